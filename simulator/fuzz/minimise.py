"""Less of what shows a fault: parts left out for as long as the same fault shows, then bytes made plain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from mqproto.wire import SeenField
from simulator.fuzz.mutations import fields_of, sections_of, with_honest_size
from simulator.fuzz.roles import role_of

TRIES: Final = 5_000
"""How often a fault is looked at again, at most."""

Part = TypeVar("Part")


async def minimised(
    parts: Sequence[Part], still: Callable[[list[Part]], Awaitable[bool]], tries: int = TRIES
) -> list[Part]:
    """The fewest of these parts, such as the steps of a conversation, with which it still holds.

    Halves are left out first, then quarters, down to single parts.

    Args:
        still: whether these parts show the same fault; it holds for all of them.
        tries: how often to ask, at most.
    """
    kept = list(parts)
    size = len(kept) // 2 or 1
    while size:
        begin = len(kept)
        smaller = False
        # From the end, as what comes later mostly depends on what came before.
        while begin > 0:
            begin = max(begin - size, 0)
            candidate = kept[:begin] + kept[begin + size :]
            if tries <= 0:
                return kept
            tries -= 1
            if await still(candidate):
                kept, smaller = candidate, True
        if not smaller or size > len(kept):
            size //= 2
    return kept


def minimised_packet(packet: bytes, still: Callable[[bytes], bool], tries: int = TRIES) -> bytes:
    """The shortest packet, and the plainest of that length, that still shows the same fault.

    Whole sections go first, then fields, then bytes, each with PacketSize as it is or repaired; what is left is made
    zero where that changes nothing.
    """
    search = _Search(packet, still, tries)
    while True:
        before = search.best
        search.drop_fields()
        search.drop_announced()
        search.lower_lengths()
        search.drop_bytes()
        search.clear_bytes()
        if search.best == before or search.tries <= 0:
            return search.best


class _Search:
    """The smallest packet so far."""

    def __init__(self, packet: bytes, still: Callable[[bytes], bool], tries: int) -> None:
        self.best = packet
        self.still = still
        self.tries = tries

    def take(self, candidate: bytes) -> bool:
        """Whether the fault shows with this one too; then it is the best."""
        if self.tries <= 0 or candidate == self.best:
            return False
        self.tries -= 1
        if not self.still(candidate):
            return False
        self.best = candidate
        return True

    def take_without(self, start: int, stop: int) -> bool:
        candidate = self.best[:start] + self.best[stop:]
        return self.take(with_honest_size(candidate)) or self.take(candidate)

    def drop_fields(self) -> None:
        """Sections and fields left out, the largest first."""
        while any(self.take_without(start, stop) for start, stop in spans_of(self.best)):
            pass

    def drop_announced(self) -> None:
        """What a flag announces or a length counts, together with the flag or the count."""
        while any(
            self.take(with_honest_size(candidate)) or self.take(candidate)
            for candidate in unannounced(self.best)
        ):
            pass

    def lower_lengths(self) -> None:
        """Lengths and counts as small as they may be, so that what they count can go.

        What counts more than is there is halved only: how much memory or time is too much has no sharp edge, and a
        finding that stands on it shows nothing the next time.
        """
        for field in fields_of(self.best):
            if not role_of(field.section, field.name).derived:
                continue
            value = int(field.value)
            while value > len(self.best) and self.take(_written(self.best, field, value // 2)):
                value //= 2
            if value > len(self.best):
                continue
            for step in (1 << place for place in reversed(range(value.bit_length()))):
                if step <= value and self.take(_written(self.best, field, value - step)):
                    value -= step

    def drop_bytes(self) -> None:
        """Bytes left out, halves first, from the end: what comes later mostly depends on what came before."""
        size = len(self.best) // 2
        while size:
            end = len(self.best)
            while end > 0:
                start = max(end - size, 0)
                self.take_without(start, end)
                end = start
            size //= 2

    def clear_bytes(self) -> None:
        """Bytes made zero, many at a time first."""
        size = len(self.best)
        while size:
            for start in range(0, len(self.best), size):
                zeros = bytes(len(self.best[start : start + size]))
                self.take(self.best[:start] + zeros + self.best[start + size :])
            size //= 2


def unannounced(packet: bytes) -> Iterator[bytes]:
    """The packet without a section and with one flag clear, or without a field and with one length zero."""
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
    """Where sections and fields begin and end, the largest first."""
    fields = [field for field in fields_of(packet) if field.size]
    spans = {(section.start, section.stop) for section in sections_of(fields)}
    spans |= {(field.offset, field.offset + field.size) for field in fields}
    return sorted(spans, key=lambda span: (span[0] - span[1], span[0]))
