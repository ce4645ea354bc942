"""Our node against the letter peer, with each switch in turn.

`make letter` runs all cells, and prints a line for each: its switch, the reading, how many connections ended, how long
it took, and what was wrong. In the cell `wraps`, more than 65,536 messages cross one session in each direction.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Final

import trio

from .cell import TO_LETTER, TO_OURS, Cell, Midst
from .endings import Endings, InDoubt
from .peer.packets import Security
from .peer.peer import Peer
from .peer.session import State
from .peer.switches import QUESTIONS, Switches

NONE: Final = "none"
DECLARED, UNDECLARED = "declared", "undeclared"
BESIDES: Final = {"ping_not_on_retry": "ping_required", "ping_latest_cookie": "ping_required"}
"""The switches that have an effect only together with another one, each with that other switch."""
SID: Final = bytes.fromhex("010500000000000515000000AD4A9EBD36D9FA3D63A656DAE8030000")

ENDINGS: Final = (
    NONE,
    "rejected_advances",
    "resend_at_open",
    "numbered_when_sent",
    "sent_expires",
    "life_counts_on_arrival",
    "refused_holds",
    "final_ack_few_classes",
    "sequence_outlives_process",
    "no_order_ack_of_none",
    "ordinals_interleave",
    "previous_from_table",
    "order_ack_number_in_id",
    "order_ack_own_sequence",
)
"""Switches that may change how messages end."""

TOGETHER: Final = (
    "order_ack_recoverable",
    "acks_at_33rd",
    "flags_sparse",
    "stale_acks",
    "own_window",
    "resend_all",
    "resend_at_open",
    "interval_grows_with_ack",
    "numbered_when_sent",
    "previous_from_table",
    "ordinals_interleave",
    "other_case",
    "reserved_bits",
    "junk",
    "order_ack_priority",
    "list_size_unpadded",
    "priority_over_all",
    "message_ids_from_zero",
    "take_from_anybody",
)
"""Switches that a peer may well have on all at once."""

NEITHER: Final[dict[str, str]] = {
    "session_ack_size_short": "a receiver that counts the header, as frame 8 does, finds no packet behind it",
    "duplicate_uncounted": "the counts of 3.1.5.5.5 differ from then on, and the peer itself closes each session",
    "no_data_without_ai": "sizes without data: frame 7 has data there, and what follows is taken for it",
    "rejected_advances, endings": "a peer that forgot confirms what it throws away, as what came before is missing",
    "final_ack_few_classes, endings": "a rejected message ends untold: its sender waits, and keeps no dead letter",
    "no_order_ack_of_none, endings": "a peer that forgot says so by no OrderAck: what it confirmed is never sent again",
}
"""Peers that cannot work with ours, declared or not, and the reasons."""

CANNOT: Final[dict[str, str]] = {
    **NEITHER,
    **{f"{label}, {UNDECLARED}": reason for label, reason in NEITHER.items()},
    "guids_reversed": "it presents another GUID than the one declared, and refuses its own",
    f"direct_arrival_untold, {UNDECLARED}": "all names are direct, and it tells about no arrival by one",
    f"refuse_null_server, {UNDECLARED}": "whoever is called by a direct name is asked for by the null GUID: 3.1.5.2.3",
}
"""All peers that cannot work with ours: their cells have to fail; if one does not, its line has to be removed."""


async def pauses(peer: Peer) -> None:
    """Pause the queues again and again.  [MS-MQQB] 3.1.7.13"""
    for _ in range(10):
        await trio.sleep(0.2)
        for session in peer.sessions:
            if session.state is State.OPEN:
                session.pause()


async def fills(peer: Peer) -> None:
    """Make the peer full, and let it have room again, several times.  [MS-MQQB] 3.1.5.8.8"""
    for _ in range(5):
        await trio.sleep(0.4)
        peer.room = 0 if peer.room else inf
    peer.room = inf


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    story: str = "exchange"
    midst: Midst | None = None
    also: tuple[str, ...] = ()
    """Further switches that are on."""
    declared: bool = True
    """Whether our topology has the peer. If not, the peer is a stranger, and a second stranger takes part."""

    @property
    def label(self) -> str:
        story = [self.story] if self.story != "exchange" else []
        return ", ".join([self.name, *story, *[UNDECLARED] * (not self.declared)])


def cases() -> Iterator[Case]:
    """Yield each case twice: with a peer that our topology declares, and with one that it does not.

    `wraps` is only yielded with a declared peer: a session's counts are the same for both, and strangers get only 1,000
    of 17,000 acknowledgments.
    """
    for case in declared_cases():
        yield case
        if case.story != "wraps":
            yield replace(case, declared=False)


def declared_cases() -> Iterator[Case]:
    """Yield a case for every switch, and variations of some; the switches about keys are in sealed/test_exchange.py."""
    for name in (NONE, *(question.name for question in QUESTIONS if not question.of_keys)):
        yield Case(name)
    for name in ENDINGS:
        yield Case(name, "endings")
    for name in (NONE, "pause_acknowledges"):
        yield Case(name, "pauses", pauses)
    for name in (NONE, "full_refuses_acks"):
        yield Case(name, "full at times", fills)
    yield Case(NONE, "in doubt")
    yield Case(NONE, "all together", also=TOGETHER)
    yield Case(NONE, "wraps")


def addresses() -> Iterator[tuple[str, str, str]]:
    """Yield three loopback addresses for each cell.

    They depend on the process and the cell's number, so that no two cells share port 1801.
    """
    for number in count(1):
        net = f"127.{64 + os.getpid() % 128}.{number % 256}"
        yield f"{net}.1", f"{net}.2", f"{net}.3"


ADDRESSES: Final = addresses()


def cell(case: Case, folder: Path, messages: int, cuts: int, seed: int) -> Cell | Endings:
    """Return a node and a peer for one case; the switches that the case's own switch needs are on, too."""
    on = {case.name, BESIDES.get(case.name, case.name), *case.also} - {NONE}
    switches, (ours, theirs, other) = Switches(**dict.fromkeys(on, True)), next(ADDRESSES)
    other = "" if case.declared else other
    if case.story == "endings":
        return Endings(folder, ours, theirs, switches, other_address=other)
    if case.story == "in doubt":
        return InDoubt(folder, ours, theirs, switches, other_address=other)
    settings: dict[str, object] = (
        {"require_pings": True} if any(name.startswith("ping") for name in on) else {}
    )
    ways = (TO_OURS,) if "ping_required" in on else (TO_OURS, TO_LETTER)
    sender = Security(SID) if "no_data_without_ai" in on else None
    amount = (17_000, 1, 0) if case.story == "wraps" else (messages, 4_000, cuts)
    midst = case.midst
    return Cell(
        folder, ours, theirs, switches, *amount, seed, settings, ways, sender, midst, other_address=other
    )


def errors_in(group: BaseExceptionGroup[AssertionError]) -> Iterator[AssertionError]:
    """Yield the errors themselves, some of which may be in nested groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from errors_in(error)
        else:
            yield error


def verdict(label: str, faults: list[str]) -> str:
    """Return, in words, whether a cell is as it should be."""
    if label in CANNOT:
        return f"cannot: {CANNOT[label]}" if faults else "LIVES: take it out of CANNOT"
    return "FAILED" if faults else "ok"


async def run_all(chosen: list[Case], messages: int, cuts: int, seed: int, at_once: int) -> int:
    """Run cells, several at a time, and print a line for each; return the number of cells that are not as they should
    be.
    """
    texts = {question.name: question for question in QUESTIONS}
    limit, bad = trio.CapacityLimiter(at_once), 0

    async def one(case: Case) -> None:
        nonlocal bad
        async with limit:
            with tempfile.TemporaryDirectory() as folder:
                it = cell(case, Path(folder), messages, cuts, seed)
                broke_off: list[str] = []
                try:
                    await it.run()
                except* AssertionError as broken:
                    broke_off = [f"broke off: {error}" for error in errors_in(broken)]
        said = "FAILED" if broke_off else verdict(case.label, it.faults)
        bad += said.split(":")[0] in ("FAILED", "LIVES")
        question = texts.get(case.name)
        reading = f"{question.reading or '-':>2} {question.section}" if question else " - all as ours"
        print(f"{case.label:<47} {reading:<26} {it.sessions:>4} {it.seconds:>5.0f} s  {said}", flush=True)
        for fault in broke_off + it.faults:
            print(f"{'':<49}{fault[:400]}", flush=True)

    print(f"{'switch':<47} {'   reading':<26} ends    took  verdict")
    async with trio.open_nursery() as nursery:
        for case in chosen:
            nursery.start_soon(one, case)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "switches", nargs="*", help="all that is run of some, and `none` for none; by default of all"
    )
    parser.add_argument(
        "--messages", type=int, default=20, help="of each of three kinds to each name, each way"
    )
    parser.add_argument("--cuts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--only", choices=(DECLARED, UNDECLARED), help="what the peer is to our topology")
    typed = parser.parse_args()
    chosen = [
        case
        for case in cases()
        if (not typed.switches or case.name in typed.switches)
        and typed.only in (None, DECLARED if case.declared else UNDECLARED)
    ]
    bad = trio.run(run_all, chosen, typed.messages, typed.cuts, typed.seed, typed.at_once)
    strangers = sum(not case.declared for case in chosen)
    print(f"{len(chosen)} cells, {strangers} of them {UNDECLARED}, {bad} not as they should be")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
