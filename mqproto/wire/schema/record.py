"""Binds a layout, which says where the bytes are, to a record, which says what they mean.

`Record` checks at import that each field of the one is in the other, so neither can drift. Beyond this module
everything is typed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, overload

from construct import Const, Container, Rebuild, Subconstruct

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.wire.schema.layout import Layout, PacketStream, bare

R = TypeVar("R")


class Record(Subconstruct, Generic[R]):  # type: ignore[type-arg]
    """A layout together with the dataclass of its fields; usable as a part of other layouts.

    Fields that follow from others (constants, sizes, counts) stand in the layout alone: they are checked when
    read and computed when written.

    Args:
        kind: a dataclass; its fields are those of the layout.
        layout: of the whole header or packet.
        apart: fields of the dataclass that some other layout holds.
    """

    def __init__(self, kind: type[R], layout: Layout, apart: tuple[str, ...] = ()) -> None:
        super().__init__(layout)
        self.kind = kind
        self.layout = layout
        self.apart = apart
        carried = [part.name for part in layout.subcons if part.name and not derived(part)]
        declared = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        assert {*carried} == {*declared} - {*apart}, (kind, carried, declared)

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        fields = self.layout._parse(stream, context, path)
        fields._record = self
        return fields

    def decode(self, data: bytes) -> R:
        """The record that lies in exactly these bytes.

        Raises:
            WireFormatError: they do not form one, or some are left over.
        """
        stream = PacketStream(data)
        typed: R = to_records(self.parse_stream(stream))
        if left := len(data) - stream.tell():
            section = self.layout.section
            raise WireFormatError("after the last field", stream.tell(), f"{left} bytes", "the end", section)
        return typed

    def encode(self, value: R, *, packet_size: int = 0) -> bytes:
        """The bytes of a record; one that stands alone begins on a 4-byte boundary.

        Args:
            value: the record.
            packet_size: of the whole packet, where the layout has a field for it.

        Raises:
            UsageError: a value breaks a rule of the layout.
        """
        return self.build(to_containers(value), packet_size=packet_size)

    def offset_of(self, name: str) -> int:
        """Where a field begins, counted from the record's first byte; those before have fixed sizes."""
        return self.layout.offset_of(name)

    def struct_format(self, *names: str) -> str:
        """The format for `struct` that reads a few fields of fixed size from the record's first byte on."""
        text, at = "<", 0
        for name in names:
            part = bare(self.layout._subcons[name])
            while isinstance(part, Subconstruct):
                part = part.subcon
            text += "x" * (self.offset_of(name) - at) + part.fmtstr[1:]
            at = self.offset_of(name) + part.length
        return text


def derived(part: Any) -> bool:
    """Whether a part follows from others or is a constant, so that the record need not hold it."""
    return isinstance(bare(part), Const | Rebuild)


def to_records(value: Any) -> Any:
    """construct's containers as records, all the way down."""
    if isinstance(value, list):
        return [to_records(each) for each in value]
    if not isinstance(value, Container):
        return value
    record: Record[Any] = value._record
    names = (field.name for field in dataclasses.fields(record.kind) if field.name not in record.apart)
    return record.kind(**{name: to_records(value[name]) for name in names})


def to_containers(value: Any) -> Any:
    """Records as construct's containers, all the way down."""
    if isinstance(value, list):
        return [to_containers(each) for each in value]
    if dataclasses.is_dataclass(value):
        return Container(
            {field.name: to_containers(getattr(value, field.name)) for field in dataclasses.fields(value)}
        )
    return value


class Bits:
    """A few bits of a flag word under a name of their own: `base.priority`.

    The word stays one integer in layout and record: construct's bit structs read little-endian words in the
    wrong order. On the class, `BaseHeader.priority.within(this.flags)` is the same bits in a layout's words.
    """

    def __init__(self, first: int, width: int, word: str = "flags") -> None:
        self.first = first
        self.limit = (1 << width) - 1
        self.mask = self.limit << first
        self.attribute = word

    @overload
    def __get__(self, record: None, kind: type) -> Bits: ...
    @overload
    def __get__(self, record: object, kind: type) -> int: ...
    def __get__(self, record: object | None, kind: type) -> Bits | int:
        if record is None:
            return self
        word: int = getattr(record, self.attribute)
        return word >> self.first & self.limit

    def __set__(self, record: object, value: int) -> None:
        if not 0 <= value <= self.limit:
            raise UsageError(f"{value} does not fit {self.limit.bit_length()} bits: 0 to {self.limit}")
        word = getattr(record, self.attribute)
        setattr(record, self.attribute, word & ~self.mask | value << self.first)

    def within(self, word: Any) -> Any:
        """These bits of a flag word, as a number; `word` may be a `this` expression."""
        return (word >> self.first if self.first else word) & self.limit


class Bit:
    """One bit of a flag word, as a truth value: `base.internal`."""

    def __init__(self, place: int, word: str = "flags") -> None:
        self.mask = 1 << place
        self.attribute = word

    @overload
    def __get__(self, record: None, kind: type) -> Bit: ...
    @overload
    def __get__(self, record: object, kind: type) -> bool: ...
    def __get__(self, record: object | None, kind: type) -> Bit | bool:
        if record is None:
            return self
        return bool(getattr(record, self.attribute) & self.mask)

    def __set__(self, record: object, value: bool) -> None:
        word = getattr(record, self.attribute)
        setattr(record, self.attribute, word | self.mask if value else word & ~self.mask)

    def within(self, word: Any) -> Any:
        """This bit of a flag word, in place: 0 or the mask; `word` may be a `this` expression."""
        return word & self.mask


def names_of_bits(kind: type) -> Iterator[tuple[str, Bit | Bits]]:
    """The names that a record has for bits of its words."""
    return ((name, bits) for name, bits in vars(kind).items() if isinstance(bits, Bit | Bits))
