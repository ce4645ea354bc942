"""The third reader of the layouts: it reads the same record in many packets at once.

It works with vectors instead of numbers. construct reads a packet by its layout, and the generated codec reads it at
the speed of `struct`. Here, a field is read in all packets before the next field. `this` expressions work on vectors as
on numbers. A rule tells which rows break it, and a choice divides the rows. If a size differs from packet to packet,
each row advances by its own size.

The walk accepts or refuses each row. The codec judges refused rows, and puts the fault into words. So the walk may also
refuse what it cannot read, such as a long list, and only time is lost.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import numpy as np
from construct import Const, GreedyBytes, this

from mqproto.captures.pipeline.source.octets import (
    Mask,
    Octets,
    Vector,
    is_terminated,
    terminated_sizes,
    windows,
)
from mqproto.wire.schema import parts
from mqproto.wire.schema.generator.source import BinExpr, Path, fixed_format, grouped, steps_of
from mqproto.wire.schema.layout import Layout, Must, bare
from mqproto.wire.schema.parts import (
    Absent,
    OneOf,
    Pad4,
    PaddedRest,
    Repeated,
    Single,
    TerminatedText,
    Text,
    When,
    Window,
)
from mqproto.wire.schema.record import Record

NUMBERS: Final = {"B": "<u1", "H": "<u2", "L": "<u4", "I": "<u4"}
"""Maps the codes of `struct` for unsigned numbers to numpy's formats, because L has 8 bytes in numpy."""

LONGEST_LIST: Final = 16
"""The largest number of items in a list.

Lists are read item by item in all rows at once, and rows with more items are refused.
"""


class Span(NamedTuple):
    """Bytes whose size differs from row to row, given by their place in the data."""

    at: Vector
    sizes: Vector


class Run:
    """Adjacent fields of fixed sizes; their bytes are copied together, on first use.

    Args:
        at: where the first field begins, in each row that has these fields.
        rows: the rows that have these fields; None for all.
        count: the number of all rows.
    """

    def __init__(self, data: Octets, at: Vector, rows: Vector | None, count: int) -> None:
        self.size = 0
        self._data, self._at, self._rows, self._count = data, at, rows, count
        self._copied: Octets | None = None

    def numbers(self, offset: int, kind: str) -> Vector:
        """Return one field, a number of numpy's `kind`; 0 for a row without it."""
        copied = self._bytes()
        column: Any = np.ndarray(len(copied), kind, copied, offset, (self.size,)) if len(copied) else []
        if self._rows is None:
            return np.array(column, np.int64)
        values = np.zeros(self._count, np.int64)
        values[self._rows] = column
        return values

    def octets(self, offset: int, size: int) -> Octets:
        """Return the bytes of one field, row by row, `size` bytes each; zeros for a row without it."""
        columns = self._bytes()[:, offset : offset + size]
        if self._rows is None:
            return np.ascontiguousarray(columns)
        values = np.zeros((self._count, size), np.uint8)
        values[self._rows] = columns
        return values

    def _bytes(self) -> Octets:
        if self._copied is None:
            self._copied = windows(self._data, self._at, self.size)
        return self._copied


class _Field(NamedTuple):
    """A field of fixed size: its place in its run, and its format for `struct`."""

    run: Run
    offset: int
    code: str


class Fields:
    """The fields of a layout, keyed by name; all vectors have one item for each row.

    Rows without a field have 0.
    """

    def __init__(self, above: Fields | None = None) -> None:
        self._above = above
        self._fields: dict[str, _Field | Span | Fields] = {}
        self._numbers: dict[str, Vector] = {}
        self._places: dict[str, Vector] = {}

    def numbers(self, name: str) -> Vector:
        """Return a field that is a number."""
        if name not in self._numbers:
            match self._fields.get(name):
                case _Field(run, offset, code) if code in NUMBERS:
                    self._numbers[name] = run.numbers(offset, NUMBERS[code])
                case _:
                    raise NotImplementedError(f"{name} is not a field of one number")
        return self._numbers[name]

    def octets(self, name: str) -> Octets:
        """Return a field that has the same size in all rows, such as a GUID."""
        field = self._fields[name]
        assert isinstance(field, _Field), name
        return field.run.octets(field.offset, struct.calcsize(field.code))

    def span(self, name: str) -> Span:
        """Return a field whose size differs from row to row, such as a text or a body."""
        field = self._fields[name]
        assert isinstance(field, Span), name
        return field

    def inside(self, name: str) -> Fields:
        """Return a field that is itself a layout."""
        field = self._fields[name]
        assert isinstance(field, Fields), name
        return field

    def place(self, name: str) -> Vector:
        """Return where a field of variable size begins, even if the field has several kinds."""
        return self._places[name]

    def vector(self, expression: Any) -> Any:
        """Return the value of a `this` expression for each row; for a constant, the constant itself.

        Raises:
            NotImplementedError: the expression has an unknown part.
        """
        match expression:
            case bool() | int():
                return expression
            case Path():
                *above, name = steps_of(expression)
                fields: Any = self
                for step in above:
                    fields = fields._above if step == "_" else fields._fields.get(step)
                    if not isinstance(fields, Fields):
                        raise NotImplementedError(f"{expression!r} in a layout")
                return fields.numbers(name)
            case BinExpr():
                return expression.op(self.vector(expression.lhs), self.vector(expression.rhs))
        raise NotImplementedError(f"{expression!r} in a layout")

    def has(self, name: str, field: _Field | Span | Fields | None, place: Vector | None = None) -> None:
        """Give a name to a field.

        The field is None if it has several kinds; then only its place is known.
        """
        if not name:
            return
        if field is None:
            self._fields.pop(name, None)
        else:
            self._fields[name] = field
        if place is not None:
            self._places[name] = place


class Walk:
    """Reads the record between `starts` and `ends`, in every row.

    Attributes:
        fields: the fields that were read.
        taken: which rows hold a record that follows every rule, to its last byte.
    """

    def __init__(self, record: Record[Any], data: Octets, starts: Vector, ends: Vector) -> None:
        self.fields = Fields()
        self.taken: Mask = np.ones(len(starts), bool)
        self._data, self._starts, self._ends = data, starts, ends
        self._at = starts
        self._rows: Vector | None = None
        """The rows being read; None for all."""
        self._run: Run | None = None
        self._checks: list[tuple[Any, Fields]] = []
        self._layout(record.layout, self.fields)
        self._arrive()
        self.taken &= self._at == ends

    def _layout(self, layout: Layout, fields: Fields) -> None:
        for part in layout.subcons:
            self._part(bare(part), part.name or "", fields)

    def _part(self, part: Any, name: str, fields: Fields) -> None:
        if (code := fixed_format(part)) is not None:
            self._fixed(part, code, name, fields)
            return
        match part:
            case Must():
                self._checks.append((part.condition, fields))
            case Record() | Single():
                inner = Fields(fields)
                fields.has(name, inner)
                self._layout(part.layout, inner)
            case When():
                self._arrive()
                self._block(self._where(self._holds(part.condition, fields)), part.part, name, fields)
            case OneOf():
                self._one_of(part, name, fields)
            case Absent():
                pass
            case Text():
                self._text(self._sized(name, self._sizes(part.size, fields), fields))
            case parts.Octets():
                self._sized(name, self._sizes(part.length, fields), fields)
            case TerminatedText():
                self._terminated_text(name, fields)
            case Window():
                self._window(part, name, fields)
            case Repeated():
                self._repeated(part, fields)
            case Pad4():
                self._arrive()
                self._sized(name, self._starts - self._at & 3, fields)
            case _ if part is GreedyBytes or isinstance(part, PaddedRest):
                self._arrive()
                self._sized(name, self._ends - self._at, fields)
            case _:
                self._arrive()
                self._refuse(self.taken)

    def _fixed(self, part: Any, code: str, name: str, fields: Fields) -> None:
        if self._run is None:
            at = self._at if self._rows is None else self._at[self._rows]
            self._run = Run(self._data, at, self._rows, len(self._at))
        fields.has(name, _Field(self._run, self._run.size, code))
        self._run.size += struct.calcsize("<" + code)
        if isinstance(part, Const):
            self._checks.append((this[name] == part.value, fields))

    def _arrive(self) -> None:
        """Move to the end of the named fields, and check them."""
        if self._run is not None:
            self._advance(self._run.size)
            self._run = None
        checks, self._checks = self._checks, []
        if not self._is_idle:
            for condition, fields in checks:
                self._refuse(~self._holds(condition, fields))

    def _advance(self, sizes: Vector | int) -> None:
        """Advance by `sizes` bytes; a row with fewer bytes is refused, and stays at a harmless place."""
        if self._is_idle:
            return
        if self._rows is None:
            at = self._at + sizes
        else:
            at = self._at.copy()
            at[self._rows] += sizes if isinstance(sizes, int) else sizes[self._rows]
        beyond = (at > self._ends) | (at < self._at)
        if beyond.any():
            self.taken &= ~beyond
            at[beyond] = self._starts[beyond]
        self._at = at

    def _sized(self, name: str, sizes: Vector, fields: Fields) -> Span:
        """Take `sizes` bytes in each row."""
        self._arrive()
        span = Span(self._at, sizes)
        fields.has(name, span, self._at)
        self._advance(sizes)
        return span

    def _text(self, span: Span) -> None:
        """Refuse rows whose text does not end with its only NUL. An empty text is accepted."""
        if self._is_idle:
            return
        rows = self._where(self.taken & (span.sizes > 0))
        rows = np.arange(len(self.taken)) if rows is None else rows
        wrong = np.zeros(len(self.taken), bool)
        wrong[rows] = ~is_terminated(self._data, span.at[rows], span.sizes[rows])
        self._refuse(wrong)

    def _terminated_text(self, name: str, fields: Fields) -> None:
        """Take a text up to its first NUL; refuse rows without one before the end."""
        self._arrive()
        rows = np.arange(len(self.taken)) if self._rows is None else self._rows
        sizes = np.zeros(len(self.taken), np.int64)
        sizes[rows] = terminated_sizes(self._data, self._at[rows], (self._ends - self._at)[rows])
        self._refuse(sizes == 0)
        self._sized(name, sizes, fields)

    def _window(self, part: Window, name: str, fields: Fields) -> None:
        """Take a part limited to a number of bytes; the next part begins after all of them."""
        sizes = self._sizes(part.size, fields)
        before, ends = self._at, self._ends
        self._advance(sizes)
        behind = self._at
        self._at, self._ends = before, np.where(self._at < before, ends, behind)
        self._part(bare(part.subcon), name, fields)
        self._arrive()
        self._at, self._ends = behind, ends

    def _repeated(self, part: Repeated, fields: Fields) -> None:
        """Take several items; their fields cannot be read later."""
        counts = self._sizes(part.count, fields)
        self._refuse(counts > LONGEST_LIST)
        for index in range(LONGEST_LIST):
            further = self._where(self.taken & (counts > index))
            if further is not None and not len(further):
                break
            self._block(further, bare(part.subcon), "", fields)

    def _one_of(self, part: OneOf, name: str, fields: Fields) -> None:
        self._arrive()
        place = self._at
        if not self._is_idle:
            choice = self._sizes(part.choice, fields)
            unknown = np.ones(len(place), bool)
            for _, case, keys in grouped(part):
                chosen = np.logical_or.reduce([choice == key for key in keys])
                unknown &= ~chosen
                if not isinstance(case, Absent):
                    self._block(self._where(chosen), case, name, fields)
            self._refuse(unknown)
        fields.has(name, None, place)

    def _block(self, rows: Vector | None, part: Any, name: str, fields: Fields) -> None:
        """Take a part that only these rows have."""
        outside, self._rows = self._rows, rows
        self._part(part, name, fields)
        self._arrive()
        self._rows = outside

    def _where(self, chosen: Mask) -> Vector | None:
        """Return which of the rows being read are chosen."""
        if self._rows is not None:
            return self._rows[chosen[self._rows]]
        return None if chosen.all() else np.flatnonzero(chosen)

    def _refuse(self, wrong: Mask) -> None:
        """Refuse those of the rows being read that are wrong."""
        if self._rows is None:
            self.taken &= ~wrong
        else:
            self.taken[self._rows[wrong[self._rows]]] = False

    @property
    def _is_idle(self) -> bool:
        """Whether no row has the part being read: then only the names of its fields are collected."""
        return self._rows is not None and not len(self._rows)

    def _holds(self, condition: Any, fields: Fields) -> Mask:
        holds: Mask = self._evaluated(condition, fields) != 0
        return holds

    def _sizes(self, expression: Any, fields: Fields) -> Vector:
        self._arrive()
        return self._evaluated(expression, fields).astype(np.int64, copy=False)

    def _evaluated(self, expression: Any, fields: Fields) -> Vector | Mask:
        """Return the value of an expression for each row; refuse all rows if the expression has an unknown part."""
        try:
            value = 0 if self._is_idle else fields.vector(expression)
        except NotImplementedError:
            self._refuse(self.taken)
            value = 0
        return value if isinstance(value, np.ndarray) else np.full(len(self.taken), value)
