"""Makes findings smaller.

Parts are left out as long as the same fault still shows; then bytes are set to zero.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from mqproto.simulator.base.shrinking import Search, Step, anew, fewer, shrinking, shrunk
from mqproto.simulator.fuzz.mutations import fields_of, sections_of, with_honest_size
from mqproto.simulator.fuzz.roles import role_of
from mqproto.wire import SeenField

TRIES: Final = 5_000
"""The maximum number of attempts to make one finding smaller."""

Part = TypeVar("Part")


async def minimised(
    parts: Sequence[Part], still: Callable[[list[Part]], Awaitable[bool]], tries: int = TRIES
) -> list[Part]:
    """Leave out parts, such as steps of a conversation, as long as the fault shows; return the rest.

    Args:
        still: returns whether the given parts show the same fault, which is true for all of them together.
        tries: the maximum number of calls of `still`.
    """
    search = shrinking(tuple(parts), [fewer], tries)
    try:
        candidate = next(search)
        while True:
            candidate = search.send(await still([*candidate]))
    except StopIteration as end:
        return [*end.value]


def minimised_packet(packet: bytes, still: Callable[[bytes], bool], tries: int = TRIES) -> bytes:
    """Return the shortest packet that is found to show the same fault, with as many zeros as possible.

    First whole sections are left out, then fields, then bytes, each with PacketSize unchanged or repaired. Then the
    remaining bytes are set to zero as long as the fault still shows.
    """
    return shrunk(packet, STEPS, still, tries)


def without_fields(packet: bytes) -> Iterator[bytes]:
    """Yield versions of the packet, each without one section or field; the largest are left out first."""
    for start, stop in spans_of(packet):
        yield from _repaired_or_not(packet, packet[:start] + packet[stop:])


def without_announced(packet: bytes) -> Iterator[bytes]:
    """Yield versions of the packet, each without one part that a flag announces or a length counts.

    The flag is cleared, or the length is set to zero.
    """
    for candidate in unannounced(packet):
        yield from _repaired_or_not(packet, candidate)


def lower_lengths(packet: bytes) -> Search[bytes]:
    """Make lengths and counts as small as possible, so that the bytes that they count can be left out.

    A count beyond the end of the packet is only halved. The finding may be that a limit of memory or time is exceeded.
    Such a limit is not exact, and a finding just above it would not show again.
    """
    for field in fields_of(packet):
        if not role_of(field.section, field.name).derived:
            continue
        value = int(field.value)
        while value > len(packet) and (yield _written(packet, field, value // 2)):
            value //= 2
            packet = _written(packet, field, value)
        if value > len(packet):
            continue
        for step in (1 << place for place in reversed(range(value.bit_length()))):
            if step <= value and (yield _written(packet, field, value - step)):
                value -= step
                packet = _written(packet, field, value)


def fewer_bytes(packet: bytes) -> Search[bytes]:
    """Leave out bytes: first one half of the packet, then the other, then smaller and smaller parts.

    Begin at the end, because later bytes mostly depend on earlier ones.
    """
    size = len(packet) // 2
    while size:
        end = len(packet)
        while end > 0:
            start = max(end - size, 0)
            for candidate in _repaired_or_not(packet, packet[:start] + packet[end:]):
                if (yield candidate):
                    packet = candidate
                    break
            end = start
        size //= 2


def zeros(packet: bytes) -> Search[bytes]:
    """Set bytes to zero, first many at a time, then fewer."""
    size = len(packet)
    while size:
        for start in range(0, len(packet), size):
            candidate = packet[:start] + bytes(len(packet[start : start + size])) + packet[start + size :]
            if candidate != packet and (yield candidate):
                packet = candidate
        size //= 2


STEPS: Final[tuple[Step[bytes], ...]] = (
    anew(without_fields),
    anew(without_announced),
    lower_lengths,
    fewer_bytes,
    zeros,
)


def _repaired_or_not(packet: bytes, candidate: bytes) -> Iterator[bytes]:
    """Yield the candidate with PacketSize repaired, and then unrepaired; skip what equals the packet."""
    return (each for each in dict.fromkeys((with_honest_size(candidate), candidate)) if each != packet)


def unannounced(packet: bytes) -> Iterator[bytes]:
    """Yield versions of the packet, each without one part, and with one flag cleared or one length set to zero."""
    fields = [field for field in fields_of(packet) if field.size]
    announcing = [
        (word, word.value & ~(bits.limit << bits.first))
        for word in fields
        for bits in role_of(word.section, word.name).bits
        if isinstance(word.value, int) and word.value >> bits.first & bits.limit
    ]
    spans = [(section.start, section.stop, "") for section in sections_of(fields)]
    spans += [(field.offset, field.offset + field.size, field.section) for field in fields]
    for start, stop, section in spans:
        for word, value in announcing:
            if word.offset + word.size <= start and section in ("", word.section):
                yield _written(packet, word, value)[:start] + packet[stop:]
    for length in fields:
        if role_of(length.section, length.name).derived:
            for field in fields:
                if field.section == length.section and length.offset < field.offset:
                    yield _written(packet, length, 0)[: field.offset] + packet[field.offset + field.size :]


def _written(packet: bytes, field: SeenField, value: int) -> bytes:
    new = value.to_bytes(field.size, "little")
    return packet[: field.offset] + new + packet[field.offset + field.size :]


def spans_of(packet: bytes) -> list[tuple[int, int]]:
    """Return the ranges of all sections and fields in the packet, the largest first."""
    fields = [field for field in fields_of(packet) if field.size]
    spans = {(section.start, section.stop) for section in sections_of(fields)}
    spans |= {(field.offset, field.offset + field.size) for field in fields}
    return sorted(spans, key=lambda span: (span[0] - span[1], span[0]))
