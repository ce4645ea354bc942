"""`bench codec`: the generated codec beside code written by hand, and construct's interpreter.

All that are compared have their turn in each round of one run, so that a busy machine slows all of them, and what
counts are the ratios of the rounds. Each has to read and write the same message before it is measured.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
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
from tests.bench.figures import Figure, Result, Wanted, ratios

BODY_BYTES: Final = 1_024
MOST_BY_HAND: Final = 1.2
"""How much longer than code written by hand the generated code may take."""
SLICE_S: Final = 0.01
"""For about how long each has its turn."""
GENERATED: Final = "generated"
BY_HAND: Final = "by hand"
CONSTRUCT: Final = "construct"
DESTINATIONS: Final[dict[str, int | str]] = {"private": 16, "direct": "TCP:10.0.0.12\\private$\\orders"}

Job = Callable[[], object]


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


def bench_codec(rounds: int) -> Result:
    """Parse, build and check a transactional message with a body of 1 KiB.

    Raises:
        AssertionError: somebody reads or writes another message, and its figures would mean nothing.
    """
    tasks: dict[str, dict[str, Job]] = {}
    sizes = []
    for kind in DESTINATIONS:
        message = example(kind=kind)
        packet = codec.encode_packet(message)
        sizes.append(f"{len(packet):,} bytes with a {kind} name")
        check_packet(packet)
        parse: dict[str, Job] = {GENERATED: partial(codec.decode_packet, packet)}
        build: dict[str, Job] = {GENERATED: partial(codec.encode_packet, message)}
        parse[BY_HAND], build[BY_HAND] = partial(byhand.parse, packet), partial(byhand.build, message)
        if kind == "private":
            parse[CONSTRUCT] = partial(reference.decode_packet, packet)
            build[CONSTRUCT] = partial(reference.encode_packet, message)
        assert all(job() == message for job in parse.values())
        assert all(job() == packet for job in build.values())
        tasks[f"parse, {kind} name"], tasks[f"build, {kind} name"] = parse, build
        tasks[f"check, {kind} name"] = {GENERATED: partial(check_packet, packet)}
    figures = []
    for task, times in _measured(tasks, rounds).items():
        if BY_HAND in times:
            wanted = Wanted(at_most=MOST_BY_HAND)
            beside = ratios(times[GENERATED], times[BY_HAND])
            figures.append(Figure(f"{task}: {GENERATED} / {BY_HAND}", "ratio", beside, wanted))
        if CONSTRUCT in times:
            beside = ratios(times[CONSTRUCT], times[GENERATED])
            figures.append(Figure(f"{task}: {CONSTRUCT} / {GENERATED}", "ratio", beside))
        figures += (Figure(f"{task}: {name}", "µs", runs) for name, runs in times.items())
    return Result("codec", f"a transactional message, {' and '.join(sizes)}; all in turns", figures)


def _measured(tasks: dict[str, dict[str, Job]], rounds: int) -> dict[str, dict[str, tuple[float, ...]]]:
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
