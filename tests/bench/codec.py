"""`bench codec`: the generated codec, compared with code written by hand and construct's interpreter.

All of these have their turn in each round of one run, so a busy machine slows all of them. Only the ratios within
rounds count. Before the measurement, each has to read and write the same message.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

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
from tests.bench import byhand
from tests.bench.figures import Figure, Options, Result, Told, in_turns, ratios

BODY_BYTES: Final = 1_024
MOST_BY_HAND: Final = 1.2
"""The maximum time that the generated code may take, as a multiple of the time that code written by hand takes."""
SLICE_S: Final = 0.01
"""The approximate length of a turn, in seconds."""
SLICES: Final = 4
"""The number of turns that each job has in a round."""
GENERATED: Final = "generated"
BY_HAND: Final = "by hand"
CONSTRUCT: Final = "construct"
DESTINATIONS: Final[dict[str, int | str]] = {"private": 16, "direct": "TCP:10.0.0.12\\private$\\orders"}

Job = Callable[[], object]


def example(body_bytes: int = BODY_BYTES, kind: str = "private") -> UserMessage:
    """Return a message like those in the chain.

    Args:
        kind: the kind of the destination's name, from DESTINATIONS.
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


async def measure(options: Options, told: Told) -> Result:
    """Parse, build and check a transactional message with a body of 1 KiB.

    Raises:
        AssertionError: one of the codecs reads or writes a different message, so its figures would mean nothing.
    """
    jobs: dict[str, Job] = {}
    sizes = []
    for kind in DESTINATIONS:
        message = example(kind=kind)
        packet = codec.encode_packet(message)
        sizes.append(f"{len(packet):,} bytes with a {kind} name")
        parse: dict[str, Job] = {GENERATED: partial(codec.decode_packet, packet)}
        build: dict[str, Job] = {GENERATED: partial(codec.encode_packet, message)}
        parse[BY_HAND], build[BY_HAND] = partial(byhand.parse, packet), partial(byhand.build, message)
        if kind == "private":
            parse[CONSTRUCT] = partial(reference.read, packet)
            build[CONSTRUCT] = partial(reference.packet.build, message)
        assert all(job() == message for job in parse.values())
        assert all(job() == packet for job in build.values())
        check: dict[str, Job] = {GENERATED: partial(check_packet, packet)}
        for task, by_name in (("parse", parse), ("build", build), ("check", check)):
            jobs |= {f"{task}, {kind} name: {name}": job for name, job in by_name.items()}
    timed = {name: partial(_microseconds, job, _repeats(job)) for name, job in jobs.items()}
    collecting = gc.isenabled()
    gc.disable()
    try:
        times = await in_turns("codec", SLICES * options.rounds, timed, told)
    finally:
        if collecting:
            gc.enable()
    figures = [*_ratios(times), *(Figure(name, "µs", tuple(found)) for name, found in times.items())]
    return Result(f"a transactional message, {' and '.join(sizes)}; all in turns", figures)


def _ratios(times: dict[str, list[float]]) -> Iterator[Figure]:
    for name, found in times.items():
        task, _, who = name.rpartition(": ")
        beside = ratios(found, times[f"{task}: {GENERATED}"])
        if who == BY_HAND:
            beside = tuple(1 / ratio for ratio in beside)
            yield Figure(f"{task}: {GENERATED} / {who}", "ratio", beside, at_most=MOST_BY_HAND)
        if who == CONSTRUCT:
            yield Figure(f"{task}: {who} / {GENERATED}", "ratio", beside)


def _microseconds(job: Job, repeat: int) -> float:
    """Return the processor time for one call, in microseconds."""
    begun = time.process_time()
    for _ in range(repeat):
        job()
    return 1e6 * (time.process_time() - begun) / repeat


def _repeats(job: Job) -> int:
    for _ in range(3):
        job()
    return max(1, round(SLICE_S * 1e6 / max(0.1, _microseconds(job, 10))))
