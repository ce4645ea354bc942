"""How fast it is here: `mqproto bench codec`.

The codec's figure is a ratio, taken in one run with the two codecs in turns, so that a busy machine slows both.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mqproto.wire import Guid, TransactionHeader, TxSequenceId, UserMessage, codec, reference, user_message

BODY_BYTES: Final = 1_024
TARGET_RATIO: Final = 40
SLICE_S: Final = 0.01
"""Each codec has its turn for about so long."""


@dataclass(frozen=True, slots=True)
class CodecFigures:
    """Microseconds for one packet, medians of all rounds; the ratios are medians of the rounds' own ratios."""

    packet_bytes: int
    rounds: int
    parse_us: float
    build_us: float
    reference_parse_us: float
    reference_build_us: float
    parse_ratio: float
    build_ratio: float

    @property
    def reached(self) -> bool:
        """Whether both ratios are what we promise."""
        return min(self.parse_ratio, self.build_ratio) >= TARGET_RATIO


def bench_codec(rounds: int = 51) -> CodecFigures:
    """The generated codec against the interpreted layouts, on a transactional message with a body of 1 KiB."""
    message = example()
    packet = codec.encode_packet(message)
    assert packet == reference.encode_packet(message)
    assert codec.decode_packet(packet) == reference.decode_packet(packet) == message
    subjects: list[Callable[[], object]] = [
        lambda: codec.decode_packet(packet),
        lambda: codec.encode_packet(message),
        lambda: reference.decode_packet(packet),
        lambda: reference.encode_packet(message),
    ]
    repeats = [_repeats(subject) for subject in subjects]
    times: list[list[float]] = [[] for _ in subjects]
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for subject, repeat, taken in zip(subjects, repeats, times, strict=True):
                taken.append(_microseconds(subject, repeat))
    finally:
        if collecting:
            gc.enable()
    parse, build, reference_parse, reference_build = times
    return CodecFigures(
        packet_bytes=len(packet),
        rounds=rounds,
        parse_us=statistics.median(parse),
        build_us=statistics.median(build),
        reference_parse_us=statistics.median(reference_parse),
        reference_build_us=statistics.median(reference_build),
        parse_ratio=_ratio(reference_parse, parse),
        build_ratio=_ratio(reference_build, build),
    )


def example(body_bytes: int = BODY_BYTES) -> UserMessage:
    """A message such as the chain carries."""
    return user_message(
        source=Guid(bytes(range(16))),
        destination_manager=Guid(bytes(range(16, 32))),
        destination=16,
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


def _microseconds(subject: Callable[[], object], repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        subject()
    return 1e6 * (time.perf_counter() - start) / repeat


def _repeats(subject: Callable[[], object]) -> int:
    for _ in range(3):
        subject()
    return max(1, round(SLICE_S * 1e6 / _microseconds(subject, 10)))


def _ratio(slow: list[float], fast: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(slow, fast, strict=True))
