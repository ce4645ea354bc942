"""Functions that read, made of the lines that reading.py writes: the source is carried out at once."""

from __future__ import annotations

import dataclasses
import inspect
import struct
from codecs import utf_16_le_decode
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from mqproto.wire.generator.reading import (
    Reader,
    write_checker,
    write_finder,
    write_items_checker,
    write_items_reader,
    write_reader,
)
from mqproto.wire.generator.source import Scope, local
from mqproto.wire.schema.parts import nul_at
from mqproto.wire.schema.record import Record

OF_ITEMS: Final = "data, at, end, count"


class FunctionReader(Reader):
    """Writes for Python's own compiler."""

    def __init__(self, wanted: set[str] | None = None, *, judging: bool = True) -> None:
        super().__init__(wanted, judging=judging)
        self.names |= {"new": object.__new__, "decode": utf_16_le_decode, "nul_at": nul_at}

    def making(self, record: Record[Any], scope: Scope, target: str) -> list[str]:
        """Statements that make a record without its `__init__`, which takes twice as long to do the same."""
        kind = record.kind
        if hasattr(kind, "__post_init__"):
            raise NotImplementedError(f"{kind.__name__} has a __post_init__, which would not be called")
        lines = [f"{target} = new({self.constant(kind.__name__, kind)})"]
        for field in dataclasses.fields(kind):
            value = field.name if field.name in record.apart else local(scope, field.name)
            if not kind.__dataclass_params__.frozen:
                lines.append(f"{target}.{field.name} = {value}")
                continue
            slot = inspect.getattr_static(kind, field.name, None)
            if not inspect.ismemberdescriptor(slot):
                raise NotImplementedError(f"{kind.__name__} is frozen, and has no slot for {field.name}")
            lines.append(f"{self.constant(f'set_{field.name}', slot.__set__)}({target}, {value})")
        return lines

    def unpacking(self, codes: str) -> str:
        """The name of a function that reads fields by their `struct` format."""
        name = self.new("unpack")
        self.names[name] = struct.Struct(codes).unpack_from
        return name

    def of_items(self, record: Record[Any]) -> str:
        """The name of the function that reads or judges a list's elements."""
        made = items_reader(record) if self.wanted is None else items_checker(record)
        return self.constant("items", made)


def reader(record: Record[Any]) -> Callable[..., Any]:
    """A function of the packet's bytes that returns the record or raises one of REFUSALS.

    It takes the fields that lie apart as further arguments.
    """
    head = ", ".join(("data", *record.apart))
    return write_reader(record, FunctionReader).finish(f"read_{record.kind.__name__}", head)


def checker(record: Record[Any]) -> Callable[[bytes], None]:
    """A function of the packet's bytes that raises one of REFUSALS where `reader` does, and makes no record."""
    return write_checker(record, FunctionReader).finish(f"check_{record.kind.__name__}", "data")


def finder(record: Record[Any], name: str) -> Callable[[bytes], int]:
    """A function of a valid packet's bytes that returns where a header begins, or -1 without it."""
    return write_finder(record, name, FunctionReader).finish(f"find_{name}_in_{record.kind.__name__}", "data")


@cache
def items_reader(record: Record[Any]) -> Callable[[bytes, int, int, int], tuple[list[Any], int]]:
    """A function that reads `count` records from `at` on: they, and where they end; it raises one of REFUSALS."""
    return write_items_reader(record, FunctionReader).finish(f"read_each_{record.kind.__name__}", OF_ITEMS)


@cache
def items_checker(record: Record[Any]) -> Callable[[bytes, int, int, int], int]:
    """A function that judges as `items_reader` does, and makes no records."""
    return write_items_checker(record, FunctionReader).finish(f"check_each_{record.kind.__name__}", OF_ITEMS)
