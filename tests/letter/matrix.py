"""Our node against the letter peer, with each switch in turn.

`make letter` runs all cells and prints a line for each: the reading, how often a connection ended, how long it took,
and what was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import trio

from .cell import TO_LETTER, TO_OURS, Cell
from .peer.switches import QUESTIONS, Switches

NONE: Final = "none"
BESIDES: Final = {"ping_not_on_retry": "ping_required", "ping_latest_cookie": "ping_required"}
"""Switches that do nothing without another."""
PINGS: Final = {"ping_required", "ping_not_on_retry", "ping_latest_cookie", "ping_any_port"}
SID: Final = bytes.fromhex("010500000000000515000000AD4A9EBD36D9FA3D63A656DAE8030000")

CANNOT: Final[dict[str, str]] = {}
"""What cannot live with ours, and why: its cell has to fail, or this line goes."""


def addresses() -> Iterator[tuple[str, str]]:
    """Two loopback addresses for each cell, by process and number, so that no two cells share port 1801."""
    for number in count(1):
        net = f"127.{64 + os.getpid() % 128}.{number % 256}"
        yield f"{net}.1", f"{net}.2"


ADDRESSES: Final = addresses()


def cell(names: tuple[str, ...], folder: Path, messages: int, cuts: int, seed: int) -> Cell:
    """A cell with some switches on; what they need is on too."""
    on = {*names, *(BESIDES[name] for name in names if name in BESIDES)} - {NONE}
    settings: dict[str, object] = {"ping": True} if on & PINGS else {}
    ways = (TO_OURS,) if on & {"ping_required"} else (TO_OURS, TO_LETTER)
    sender = SID if "no_data_without_ai" in on else b""
    ours, theirs = next(ADDRESSES)
    return Cell(
        folder,
        ours,
        theirs,
        Switches(**dict.fromkeys(on, True)),
        settings,
        messages,
        cuts,
        seed,
        ways,
        sender,
    )


def verdict(name: str, faults: list[str]) -> str:
    """Whether a cell was as it should be."""
    if name in CANNOT:
        return f"cannot: {CANNOT[name]}" if faults else "LIVES: take it out of CANNOT"
    return "FAILED" if faults else "ok"


async def run_all(names: list[str], messages: int, cuts: int, seed: int, at_once: int) -> int:
    """Run cells, some at a time, and print a line for each; says how many were not as they should be."""
    texts = {question.name: question for question in QUESTIONS}
    limit, bad = trio.CapacityLimiter(at_once), 0

    async def one(name: str) -> None:
        nonlocal bad
        async with limit:
            with tempfile.TemporaryDirectory() as folder:
                it = cell((name,), Path(folder), messages, cuts, seed)
                await it.run()
            said = verdict(name, it.faults)
            bad += said.split(":")[0] in ("FAILED", "LIVES")
            question = texts.get(name)
            reading = f"{question.reading or '-':>3} {question.section}" if question else "  - all as ours"
            print(f"{name:<26} {reading:<28} {it.sessions:>4} {it.seconds:>6.1f} s  {said}", flush=True)
            for fault in it.faults:
                print(f"{'':<31}{fault}", flush=True)

    print(f"{'switch':<26} {'  reading':<28} ends   took   verdict")
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("switches", nargs="*", help="some of them, and none for none; all by default")
    parser.add_argument(
        "--messages", type=int, default=20, help="of each of three kinds to each of two names, each way"
    )
    parser.add_argument("--cuts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2)
    typed = parser.parse_args()
    names = typed.switches or [NONE, *(question.name for question in QUESTIONS)]
    bad = trio.run(run_all, names, typed.messages, typed.cuts, typed.seed, typed.at_once)
    print(f"{len(names)} cells, {bad} not as they should be")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
