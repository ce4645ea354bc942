"""Connects a layout, which has the positions of bytes, with a record, which has their meaning.

`Record` checks on import that both have the same fields. Unlike layouts, records have static types.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from construct import Const, Rebuild, Subconstruct

from mqproto.base.errors import UsageError
from mqproto.wire.schema.layout import Base, Layout, ParseError, bare
from mqproto.wire.schema.stream import PacketStream

R = TypeVar("R")


class Record(Base, Generic[R]):
    """A layout together with the dataclass of its fields: a construct, to use alone or inside others.

    `parse` and similar methods return a Container with all fields of the layout; `build` takes records, dicts and
    Containers. Fields that follow from others (constants, sizes, counts) are only in the
    layout: they are checked when read and computed when written. If a value is given for such a field, it must agree.

    Args:
        kind: a dataclass with the same fields as the layout.
        layout: the layout of the whole header or packet.
        apart: fields of the dataclass that belong to another layout.
    """

    def __init__(
        self, kind: type[R], layout: Layout, apart: Mapping[str, Record[Any]] = MappingProxyType({})
    ) -> None:
        super().__init__(layout)
        self.kind = kind
        self.layout = layout
        self.apart = apart
        carried = [part.name for part in layout.subcons if part.name and not derived(part)]
        declared = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        assert {*carried} == {*declared} - {*apart}, (kind, carried, declared)

    @cached_property
    def _inner(self) -> dict[str, Record[Any] | None]:
        """The fields of the dataclass, each with the record that it holds."""
        parts = {part.name: record_in(bare(part)) for part in self.layout.subcons if not derived(part)}
        return {name: record for name, record in parts.items() if name} | {**self.apart}

    def decode(self, data: bytes) -> R:
        """Return the record that exactly these bytes form.

        Raises:
            WireFormatError: the bytes do not form a record, or there are bytes left over.
        """
        stream = PacketStream(bytes(data))
        typed = self.typed(self.parse_stream(stream))
        if left := stream.end - stream.tell():
            section = self.layout.section
            raise ParseError("after the last field", stream.tell(), f"{left} bytes", "the end", section)
        return typed

    def encode(self, value: R, **context: Any) -> bytes:
        """Return the bytes of a record, on the assumption that it begins on a 4-byte boundary.

        Args:
            value: the record.
            context: values that follow from the surrounding packet, such as `packet_size` of a BaseHeader.

        Raises:
            UsageError: a value breaks a rule of the layout.
        """
        return self.build(value, **context)

    def typed(self, fields: Mapping[str, Any]) -> R:
        """Return the record that corresponds to a Container from `parse`."""
        return self.kind(**{name: _typed(inner, fields[name]) for name, inner in self._inner.items()})

    def _actualsize(self, stream: Any, context: Any, path: str) -> int:
        return self.layout._actualsize(stream, context, path)

    def offset_of(self, name: str) -> int:
        """Return the offset of a field from the record's first byte; all fields before it have fixed sizes."""
        return self.layout.offset_of(name)

    def struct_format(self, *names: str) -> str:
        """Return the `struct` format that reads a few fixed fields from the record's first byte on."""
        text, at = "<", 0
        for name in names:
            part = bare(self.layout._subcons[name])
            while isinstance(part, Subconstruct):
                part = part.subcon
            text += "x" * (self.offset_of(name) - at) + part.fmtstr[1:]
            at = self.offset_of(name) + part.length
        return text


def derived(part: Any) -> bool:
    """Return whether a part is a constant or follows from other parts, so that no record needs it."""
    return isinstance(bare(part), Const | Rebuild)


def record_in(part: Any) -> Record[Any] | None:
    """Return the record in a part, or in the items of a list; None if there is none."""
    if part is None or isinstance(part, Record):
        return part
    inner = getattr(part, "cases", {}).values() or [
        getattr(part, "part", None) or getattr(part, "subcon", None)
    ]
    return next(filter(None, map(record_in, inner)), None)


def _typed(record: Record[Any] | None, value: Any) -> Any:
    if isinstance(value, list):
        return [_typed(record, each) for each in value]
    return record.typed(value) if record is not None and isinstance(value, dict) else value


class Bits:
    """A few bits of a flag word that have a name of their own, such as `base.priority`.

    The word stays one integer in the layout and in the record, because construct's bit structs read little-endian words
    in the wrong order. In a layout, `BaseHeader.priority.within(this.flags)` means the same bits.
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
        """Return these bits of a flag word as a number. `word` may be a `this` expression."""
        return (word >> self.first if self.first else word) & self.limit


class Bit:
    """One bit of a flag word, as a truth value, such as `base.internal`."""

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
        """Return this bit of a flag word in its place: 0 or the mask. `word` may be a `this` expression."""
        return word & self.mask


def names_of_bits(kind: type) -> Iterator[tuple[str, Bit | Bits]]:
    """Yield the bits in a record's words, each with its name."""
    return ((name, bits) for name, bits in vars(kind).items() if isinstance(bits, Bit | Bits))
