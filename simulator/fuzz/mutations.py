"""Mutations of valid packets, derived from the layouts.

`mutants` yields every single mutation of a packet in a fixed order; `mutate` draws one at random, or a combination of a
few. They aim at the ways in which parsers break: counts that wrap when doubled, aligned or added, flags that announce
missing parts, sections that end in unexpected places. Each mutation either leaves PacketSize unchanged, or repairs it
so that a parser reads on.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations
from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.simulator.fuzz.roles import Role, role_of
from mqproto.wire import BaseHeader, SeenField, inspect_packet, inspect_ping, ping_packet
from mqproto.wire.layouts.base import SIGNATURE, base_header
from mqproto.wire.layouts.session import session_header

_SIZE_AT: Final = base_header.offset_of("packet_size")
_FLAGS: Final = struct.Struct(base_header.struct_format("flags"))
_WORD: Final = struct.Struct("<I")
_HEAD_SIZE: Final = base_header.sizeof()
_RIDES: Final = BaseHeader.session_header.mask
_RIDES_OR_INTERNAL: Final = _RIDES | BaseHeader.internal.mask
_SESSION_HEADER_SIZE: Final = session_header.sizeof()

_WORDS: Final = (
    *(
        number.to_bytes(4, "little")
        for number in (0, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFD, 0xFFFFFFFF)
    ),
    *(number.to_bytes(2, "little") for number in (0x8000, 0xFFFF)),
    SIGNATURE.to_bytes(4, "little"),
)
"""The values with which an edit overwrites a few bytes: limits, and the signature of a packet."""

LONG_FIELD: Final = 1024
"""The maximum size, in bytes, of a field that is cut at every offset.

A longer field is cut only within its first and last LONG_FIELD // 2 bytes, because further cuts would reveal nothing
new.
"""
SMALL_CHOICE: Final = 32
"""If a field, or some of its bits, can have at most this many values, every value is tried."""


class Mutant(NamedTuple):
    """A mutated packet.

    name: the mutation in words: `base.packet_size = 0xffffffff`.
    kind: the class of mutation, one of a dozen.
    """

    name: str
    kind: str
    data: bytes


class Edit(NamedTuple):
    """One change to one packet: `new` replaces the bytes from `start` to `stop`."""

    name: str
    kind: str
    start: int
    stop: int
    new: bytes

    def of(self, packet: bytes) -> bytes:
        return b"".join((packet[: self.start], self.new, packet[self.stop :]))


class FieldGroup(NamedTuple):
    """Fields that are grouped under one name: a header, a queue's name, or an element of a list."""

    name: str
    start: int
    stop: int

    @property
    def above(self) -> str:
        return self.name.rpartition(".")[0].partition("[")[0]


def mutants(packet: bytes) -> Iterator[Mutant]:
    """Yield every systematic mutation of a packet or a Ping, in a fixed order.

    Where possible, also yield each mutation with PacketSize repaired.
    """
    plan = plan_of(packet)
    for edit in chain(plan.edits, plan.truncations()):
        data = edit.of(packet)
        if data != packet:
            yield Mutant(edit.name, edit.kind, data)
        if plan.repairable(edit) and (repaired := with_honest_size(data)) not in (data, packet):
            yield Mutant(f"{edit.name}, packet_size repaired", edit.kind, repaired)


def mutate(packet: bytes, dice: random.Random) -> Mutant:
    """Draw one mutation, or a combination of a few. Each is a systematic edit, or random damage to a few bytes."""
    plan = plan_of(packet)
    roll = dice.random()
    edits = [plan.draw(dice) for _ in range(1 if roll < 0.6 else 2 if roll < 0.9 else 3)]
    if len(edits) > 1:
        # Start from the end: earlier offsets then stay valid.
        edits.sort(key=_start, reverse=True)
    data = packet
    repairable = True
    for edit in edits:
        data = edit.of(data)
        repairable = repairable and plan.repairable(edit)
    first = edits[0]
    name = first.name if len(edits) == 1 else "; ".join(edit.name for edit in edits)
    if repairable and dice.random() < 0.5:
        return Mutant(f"{name}, packet_size repaired", first.kind, with_honest_size(data))
    return Mutant(name, first.kind, data)


def _start(edit: Edit) -> int:
    return edit.start


def with_honest_size(data: bytes) -> bytes:
    """Return the bytes with their true PacketSize, or unchanged if they do not have a whole BaseHeader.  [MS-MQMQ]
    2.2.19.1
    """
    if len(data) < _HEAD_SIZE:
        return data
    rides = _FLAGS.unpack_from(data)[0] & _RIDES_OR_INTERNAL == _RIDES
    size = max(len(data) - _SESSION_HEADER_SIZE * rides, 0) & 0xFFFFFFFF
    return b"".join((data[:_SIZE_AT], _WORD.pack(size), data[_SIZE_AT + _WORD.size :]))


@lru_cache(maxsize=64)
def plan_of(packet: bytes) -> EditPlan:
    """Return the plan of a packet. It is cached, because a fuzzer mutates a packet many times."""
    return EditPlan(packet)


class EditPlan:
    """All possible edits of one packet, found once."""

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.fields = [field for field in fields_of(packet) if field.size]
        self.edits = list(self._edits())
        kinds: dict[str, list[Edit]] = {}
        for edit in self.edits:
            kinds.setdefault(edit.kind, []).append(edit)
        self._kinds = list(kinds.values())
        self._has_size = any(field.name == "base.packet_size" for field in self.fields)

    def repairable(self, edit: Edit) -> bool:
        """Return whether PacketSize may be repaired after an edit: true if the packet has one and the edit does not
        change it.
        """
        return self._has_size and (edit.start >= _SIZE_AT + _WORD.size or edit.stop <= _SIZE_AT)

    def draw(self, dice: random.Random) -> Edit:
        """Draw an edit. Each kind is equally likely, however many edits it has."""
        # Faster than choice and randrange, which this loop cannot afford.
        kind = int(dice.random() * (len(self._kinds) + 3))
        if kind >= len(self._kinds):
            return self._accident(dice)
        edits = self._kinds[kind]
        return edits[int(dice.random() * len(edits))]

    def _accident(self, dice: random.Random) -> Edit:
        """Draw random damage at a random place: a changed byte or word, a cut, or a few bytes removed or duplicated."""
        size = len(self.packet)
        at = int(dice.random() * size)
        match int(dice.random() * 5):
            case 0:
                return Edit(f"truncated to {at} bytes", "truncated", at, size, b"")
            case 1:
                new = int(dice.random() * 256)
                return Edit(f"byte {at} = {new:#04x}", "byte", at, at + 1, bytes((new,)))
            case 2:
                word = _WORDS[int(dice.random() * len(_WORDS))]
                return Edit(f"word at byte {at} = {word.hex()}", "byte", at, at + len(word), word)
            case 3:
                count = int(dice.random() * 8) + 1
                return Edit(f"{counted(count)} removed at byte {at}", "removed", at, at + count, b"")
            case _:
                some = self.packet[at : at + int(dice.random() * 40) + 1]
                return Edit(f"{counted(len(some))} at byte {at} doubled", "doubled", at, at, some)

    def truncations(self) -> Iterator[Edit]:
        """Yield an edit for each offset at which the packet is cut; LONG_FIELD says which are left out.

        There are too many of these to store.
        """
        size = len(self.packet)
        for field in self.fields:
            for at in range(field.offset, field.offset + field.size):
                if min(at - field.offset, field.offset + field.size - at) <= LONG_FIELD // 2:
                    yield Edit(f"truncated to {at} bytes, in {field.name}", "truncated", at, size, b"")

    def _edits(self) -> Iterator[Edit]:
        lengths = [field for field in self.fields if role_of(field.section, field.name).derived]
        for field in self.fields:
            role = role_of(field.section, field.name)
            if isinstance(field.value, int):
                yield from self._of_number(field, role, lengths)
            elif isinstance(field.value, str):
                yield from _of_text(field)
            else:
                yield from _of_bytes(field)
            yield from _of_room(field)
        yield from self._of_sections()

    def _of_number(self, field: SeenField, role: Role, lengths: Sequence[SeenField]) -> Iterator[Edit]:
        size = 8 * field.size
        values = set(around(field.value, size, role.limits))
        kind = "constant" if role.constant else "number"
        if role.derived:
            kind = "length"
            left = len(self.packet) - field.offset - field.size
            values |= wrapping(field.value, size, field.offset, left)
            # A parser may add up two sizes of one section, and the sum may wrap.
            values |= {2**size - each.value for each in lengths if each.section == field.section}
        elif role.limits and not role.bits:
            kind = "limit"
            values |= set(range(SMALL_CHOICE)) if max(role.limits) <= 0xFF else set()
        if not role.bits:
            yield from _set(field, kind, values)
            return
        yield from _set(field, "flags", {0, 2**size - 1})
        named = 0
        for name, first, limit in role.bits:
            named |= limit << first
            others = field.value & ~(limit << first)
            choices = range(limit + 1) if limit < SMALL_CHOICE else sorted(around(0, limit.bit_length()))
            for choice in choices:
                if (value := others | choice << first) != field.value:
                    yield _written(f"{field.name}: {name} = {choice}", "flags", field, value)
        for place in range(size):
            if not named >> place & 1:
                value = field.value ^ 1 << place
                yield _written(f"{field.name}: bit {place} = {value >> place & 1}", "flags", field, value)

    def _of_sections(self) -> Iterator[Edit]:
        sections = list(sections_of(self.fields))
        for section in sections:
            name, start, stop = section
            yield Edit(f"{name} dropped", "section dropped", start, stop, b"")
            yield Edit(f"{name} doubled", "section doubled", start, start, self.packet[start:stop])
            yield Edit(f"{name} all zeros", "section filled", start, stop, bytes(stop - start))
            yield Edit(f"{name} all ones", "section filled", start, stop, b"\xff" * (stop - start))
        for one, other in combinations(sections, 2):
            if one.above == other.above and one.stop <= other.start:
                between = self.packet[one.stop : other.start]
                swapped = self.packet[other.start : other.stop] + between + self.packet[one.start : one.stop]
                name = f"{one.name} and {other.name} swapped"
                yield Edit(name, "sections swapped", one.start, other.stop, swapped)


def fields_of(packet: bytes) -> list[SeenField]:
    """Return the fields of a packet or a Ping, as many as can be read."""
    try:
        ping_packet.decode(packet)
    except WireFormatError:
        return inspect_packet(packet).fields
    return inspect_ping(packet).fields


def sections_of(fields: Sequence[SeenField]) -> Iterator[FieldGroup]:
    """Yield each section that contains other fields; an outer section comes before the sections inside it."""
    spans: dict[str, FieldGroup] = {}
    for field in fields:
        for length, letter in enumerate(field.name):
            if letter in ".[":
                name = field.name[:length]
                start = spans[name].start if name in spans else field.offset
                spans[name] = FieldGroup(name, start, field.offset + field.size)
    yield from spans.values()


def around(value: int, bits: int, limits: frozenset[int] = frozenset()) -> Iterator[int]:
    """Yield values at which arithmetic with this number of bits goes wrong, and values close to the current one and to
    the limits.
    """
    top, sign = 2**bits, 2 ** (bits - 1)
    values = {0, 1, 2, sign - 1, sign, sign + 1, top - 2, top - 1}
    values |= {value - 1, value + 1, value // 2, value * 2, value ^ sign}
    for limit in limits:
        values |= {limit - 1, limit, limit + 1}
    yield from sorted(each for each in values if 0 <= each < top)


def wrapping(value: int, bits: int, offset: int, left: int) -> set[int]:
    """Return wrong lengths and counts, including some that seem right to a parser that computes with this number of
    bits.

    Args:
        offset: the field's offset in its packet.
        left: the number of bytes after the field.
    """
    top = 2**bits
    lies = {left - 1, left, left + 1, left // 2, left // 2 + 1, left // 4, left // 4 + 1}
    lies |= {value + each for each in (2, 3, 4, 8, 16, 256)}
    # Elements of 2, 4, 8 and 16 bytes: these counts of them wrap to sizes that fit.
    multiplied = {top // each + count for each in (2, 4, 8, 16) for count in (-1, 0, 1, value)}
    aligned = {top - each for each in (1, 2, 3, 4, 5)}
    start = offset + bits // 8
    added = {top - each for each in (offset, start, start - 1, start + 1, start + left, 12, 16)}
    return lies | multiplied | aligned | added


def counted(size: int) -> str:
    return "1 byte" if size == 1 else f"{size} bytes"


def _set(field: SeenField, kind: str, values: set[int]) -> Iterator[Edit]:
    for value in sorted(values):
        if 0 <= value < 2 ** (8 * field.size) and value != field.value:
            yield _written(
                f"{field.name} = {value:#x}" if value > 9 else f"{field.name} = {value}", kind, field, value
            )


def _written(name: str, kind: str, field: SeenField, value: int) -> Edit:
    new = value.to_bytes(field.size, "little")
    return Edit(name, kind, field.offset, field.offset + field.size, new)


def _of_text(field: SeenField) -> Iterator[Edit]:
    """Yield edits of a text that remove its NUL, add NULs where none belongs, or leave half a character."""
    start, stop = field.offset, field.offset + field.size
    middle = start + field.size // 4 * 2
    yield Edit(f"{field.name} without NUL", "text", stop - 2, stop, b"A\0")
    yield Edit(f"{field.name} with a NUL first", "text", start, start + 2, b"\0\0")
    yield Edit(f"{field.name} with a NUL inside", "text", middle, middle + 2, b"\0\0")
    yield Edit(f"{field.name} with half a surrogate", "text", middle, middle + 2, b"\x00\xd8")
    yield Edit(f"{field.name} all NUL", "text", start, stop, bytes(field.size))
    yield Edit(f"{field.name} without a NUL anywhere", "text", start, stop, b"A" * field.size)


def _of_bytes(field: SeenField) -> Iterator[Edit]:
    start, stop = field.offset, field.offset + field.size
    yield Edit(f"{field.name} all zeros", "bytes", start, stop, bytes(field.size))
    yield Edit(f"{field.name} all ones", "bytes", start, stop, b"\xff" * field.size)
    yield Edit(f"{field.name} other last byte", "bytes", stop - 1, stop, bytes((field.raw[-1] ^ 0xFF,)))


def _of_room(field: SeenField) -> Iterator[Edit]:
    """Yield edits that insert a few bytes before a field, remove some or all of its bytes, or double it."""
    start, stop = field.offset, field.offset + field.size
    for new in (b"\0", b"\xff" * 2, bytes(4)):
        yield Edit(f"{counted(len(new))} inserted before {field.name}", "inserted", start, start, new)
    for count in sorted({1, 2, field.size}):
        if count <= field.size:
            yield Edit(f"{counted(count)} of {field.name} removed", "removed", stop - count, stop, b"")
    yield Edit(f"{field.name} doubled", "doubled", stop, stop, field.raw[:LONG_FIELD])
