"""How fast the codec is: `bench codec`.

All that are compared have their turn in each round of one run, so that a busy machine slows all of them, and what
counts are the ratios of the rounds. Each is held to the same packet and the same values before it is measured.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.wire import (
    NULL_GUID,
    Guid,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    check_packet,
    codec,
    reference,
    user_message,
)
from tests.bench.measures.others import ByHand, Contender, by_hand, contenders, values_of

BODY_BYTES: Final = 1_024
ROUNDS: Final = 21
MOST_BY_HAND: Final = 1.2
"""How much longer than code written by hand the generated code may take."""
SLICE_S: Final = 0.01
"""For about how long each has its turn."""

GENERATED: Final = "generated"
BY_HAND: Final = "by hand"
INTERPRETED: Final = "construct, interpreted"
COMPARED: Final = "private"
"""The kind of destination with which all are measured; with the other, only the generated code and that by hand are."""
DESTINATIONS: Final[dict[str, int | str]] = {"private": 16, "direct": "TCP:10.0.0.12\\private$\\orders"}

Job = Callable[[], object]


@dataclass(frozen=True, slots=True)
class CodecFigures:
    """Microseconds of CPU for one packet, of every round, by what is done (`parse, private name`) and who does it.

    missing: contenders that are not installed, and how to install them.
    """

    packet_bytes: dict[str, int]
    rounds: int
    us: dict[str, dict[str, tuple[float, ...]]]
    missing: list[str] = field(default_factory=list)

    def ratios(self, task: str, name: str, to: str = BY_HAND) -> tuple[float, ...]:
        """How much longer somebody takes than another, in each round."""
        times = self.us[task]
        return tuple(one / other for one, other in zip(times[name], times[to], strict=True))

    @property
    def reached(self) -> bool:
        """Whether the generated code is as near to code written by hand as we promise."""
        compared = (task for task, times in self.us.items() if BY_HAND in times)
        return all(statistics.median(self.ratios(task, GENERATED)) <= MOST_BY_HAND for task in compared)


def bench_codec(rounds: int = ROUNDS) -> CodecFigures:
    """Parse and build a transactional message with a body of 1 KiB, with everything that can.

    Raises:
        UsageError: this is a wheel or the compiled build, which have nothing to compare with.
    """
    yardstick = by_hand()
    if yardstick is None:
        raise UsageError(
            "what the codec is compared with is in the source alone: clone mqproto and run it there"
        )
    others, missing = contenders()
    tasks: dict[str, dict[str, Job]] = {}
    sizes = {}
    for kind in DESTINATIONS:
        message = example(kind=kind)
        packet = codec.encode_packet(message)
        sizes[kind] = len(packet)
        hold_to(message, packet, yardstick, others)
        fields = values_of(message)
        parse: dict[str, Job] = {
            GENERATED: partial(codec.decode_packet, packet),
            BY_HAND: partial(yardstick.parse, packet),
        }
        build: dict[str, Job] = {
            GENERATED: partial(codec.encode_packet, message),
            BY_HAND: partial(yardstick.build, message),
        }
        if kind == COMPARED:
            parse[INTERPRETED] = partial(reference.decode_packet, packet)
            build[INTERPRETED] = partial(reference.encode_packet, message)
        for each in others if kind == COMPARED else ():
            parse[each.name] = partial(each.parse, packet)
            if each.build is not None:
                build[each.name] = partial(each.build, each.prepare(fields))
        tasks[f"parse, {kind} name"], tasks[f"build, {kind} name"] = parse, build
        tasks[f"check, {kind} name"] = {GENERATED: partial(check_packet, packet)}
    return CodecFigures(sizes, rounds, measured(tasks, rounds), missing)


def example(body_bytes: int = BODY_BYTES, kind: str = "private") -> UserMessage:
    """A message such as the chain carries.

    Args:
        kind: of the destination's name, from DESTINATIONS.
    """
    return user_message(
        source=Guid(bytes(range(16))),
        destination_manager=Guid(bytes(range(16, 32))) if kind == "private" else NULL_GUID,
        destination=DESTINATIONS[kind],
        message_id=4_711,
        sent_time_s=1_700_000_000,
        body=bytes(body_bytes),
        label="order 4711",
        transaction=TransactionHeader(
            flags=TransactionHeader.first.mask | TransactionHeader.last.mask,
            tx_sequence_id=TxSequenceId(ordinal=1, time_stamp=1_700_000_000),
            tx_sequence_number=42,
            previous_tx_sequence_number=41,
        ),
    )


def hold_to(message: UserMessage, packet: bytes, yardstick: ByHand, others: Iterable[Contender]) -> None:
    """See that everybody reads this message in this packet, and writes this packet for this message.

    Raises:
        AssertionError: somebody does not, and its figures would mean nothing.
    """
    check_packet(packet)
    for parse in (codec.decode_packet, yardstick.parse, reference.decode_packet):
        assert parse(packet) == message
    for build in (codec.encode_packet, yardstick.build, reference.encode_packet):
        assert build(message) == packet
    fields = values_of(message)
    for each in others:
        found = each.values(each.parse(packet))
        assert {name: found.get(name) for name in fields} == fields, each.name
        assert each.build is None or each.build(each.prepare(fields)) == packet, each.name


def measured(tasks: dict[str, dict[str, Job]], rounds: int) -> dict[str, dict[str, tuple[float, ...]]]:
    """Microseconds of CPU for each job, round by round."""
    jobs = [
        (task, name, job, _repeats(job)) for task, byname in tasks.items() for name, job in byname.items()
    ]
    times: dict[tuple[str, str], list[float]] = {(task, name): [] for task, name, _, _ in jobs}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for task, name, job, repeat in jobs:
                times[task, name].append(_microseconds(job, repeat))
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return {task: {name: tuple(times[task, name]) for name in byname} for task, byname in tasks.items()}


def _microseconds(job: Job, repeat: int) -> float:
    begun = time.process_time()
    for _ in range(repeat):
        job()
    return 1e6 * (time.process_time() - begun) / repeat


def _repeats(job: Job) -> int:
    for _ in range(3):
        job()
    return max(1, round(SLICE_S * 1e6 / max(0.1, _microseconds(job, 10))))
