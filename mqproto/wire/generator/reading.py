"""Generates the functions that read: a record from a packet's bytes, or only the place of a header."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

from construct import Const, GreedyBytes

from mqproto.wire.generator.source import Refused, Scope, Writer, fixed_format, grouped, local
from mqproto.wire.layout import Layout, Must, PacketStream, bare
from mqproto.wire.parts import Absent, Octets, OneOf, Pad4, Single, Text, When
from mqproto.wire.record import Record, to_records


class Reader(Writer):
    """Writes the function that reads a record from `data`, whose end is the packet's."""

    def __init__(self, interpreted: tuple[Record[Any], ...], wanted: set[str] | None = None) -> None:
        super().__init__(interpreted)
        self.wanted = wanted  # when only a place is looked for: the fields that lead to it
        self.ahead = 0  # bytes read since `at` was last assigned
        self.run: list[tuple[str, str]] = []
        self.checks: list[str] = []
        self.makes: list[str] = []

    def record(self, record: Record[Any], scope: Scope, target: str) -> None:
        """The fields, and the statement that makes the record of them."""
        self.layout(record.layout, scope)
        kind = self.constant(record.kind.__name__, record.kind)
        fields = dataclasses.fields(record.kind)
        values = (field.name if field.name in record.apart else local(scope, field.name) for field in fields)
        arguments = ", ".join(
            f"{field.name}={value}" if field.kw_only else value
            for field, value in zip(fields, values, strict=True)
        )
        self.makes.append(f"{target} = {kind}({arguments})")

    def layout(self, layout: Layout, scope: Scope) -> None:
        for part in layout.subcons:
            self.part(bare(part), scope, part.name or "")

    def part(self, part: Any, scope: Scope, name: str) -> None:
        target = local(scope, name) if name else ""
        if (code := fixed_format(part)) is not None:
            self.run.append((code, target))
            if isinstance(part, Const):
                self.checks.append(f"{target} != {part.value}")
            return
        match part:
            case Must():
                self.checks.append(f"not {self.words(part.condition, scope)}")
            case Record() if part in self.interpreted:
                self.arrive()
                read = self.constant("interpreted", interpreted_reader(part))
                self.emit(f"{target}, at = {read}(data, at)")
            case Record():
                self.record(part, (*scope, name), target)
            case Single():
                self.layout(part.layout, (*scope, name))
                self.flush()
                self.value(target, local((*scope, name), part.field))
            case When():
                self.when(part, scope, name, target)
            case OneOf():
                self.one_of(part, scope, name, target)
            case Absent():
                self.value(target, "None")
            case Text():
                self.text(part, scope, target)
            case Octets():
                self.arrive()
                self.slice(self.words(part.length, scope), target)
            case Pad4():
                self.arrive()
                self.emit("if at & 3:")
                self.depth += 1
                self.slice("(-at & 3)", target)
                self.depth -= 1
                self.otherwise(target, "b''")
            case _ if part is GreedyBytes:
                self.arrive()
                self.emit(f"{target} = data[at:]")
                self.emit("at = end")
            case _:
                raise NotImplementedError(f"{part!r} in a layout")

    def flush(self) -> None:
        """Read the run of fixed fields that has gathered, then judge it."""
        if self.run:
            where = f"at + {self.ahead}" if self.ahead else "at"
            codes = "<" + "".join(
                code if self.wanted is None or name in self.wanted else f"{struct.calcsize('<' + code)}x"
                for code, name in self.run
            )
            fields = [name for _, name in self.run if self.wanted is None or name in self.wanted]
            if fields:
                unpack = self.new("unpack")
                self.names[unpack] = struct.Struct(codes).unpack_from
                self.emit(f"{', '.join(fields)}, = {unpack}(data, {where})")
            self.ahead += struct.calcsize(codes)
            self.run = []
        if self.checks and self.wanted is None:
            self.refuse_if(" or ".join(self.checks))
        self.checks = []

    def arrive(self) -> None:
        """Bring `at` to the next byte to be read."""
        self.flush()
        if self.ahead:
            self.emit(f"at += {self.ahead}")
            self.ahead = 0

    def make(self) -> None:
        if self.wanted is None:
            for line in self.makes:
                self.emit(line)
        self.makes = []

    def value(self, target: str, value: str) -> None:
        if self.wanted is None:
            self.emit(f"{target} = {value}")

    def otherwise(self, target: str, value: str) -> None:
        if self.wanted is None:
            self.emit("else:")
            self.emit(f"    {target} = {value}")

    def slice(self, size: str, target: str) -> None:
        """So many bytes, once it is sure that they are there."""
        self.emit(f"stop = at + {size}")
        self.refuse_if("stop > end")
        self.value(target, "data[at:stop]")
        self.emit("at = stop")

    def text(self, part: Text, scope: Scope, target: str) -> None:
        self.arrive()
        self.emit(f"size = {self.words(part.size, scope)}")
        self.emit("if size:")
        self.depth += 1
        self.slice("size", target)
        if self.wanted is None:
            self.emit(f"{target} = {target}.decode('utf-16-le', 'surrogatepass')")
            self.refuse_if(f"{target}.find('\\0') != len({target}) - 1")
            self.emit(f"{target} = {target}[:-1]")
        self.depth -= 1
        self.otherwise(target, "None")

    def block(self, part: Any, scope: Scope, name: str) -> None:
        """A part that stands under a condition, complete with its checks and records."""
        outside, self.makes = self.makes, []
        self.depth += 1
        before = len(self.lines)
        self.part(part, scope, name)
        self.arrive()
        self.make()
        if len(self.lines) == before:
            self.emit("pass")
        self.depth -= 1
        self.makes = outside

    def when(self, part: When, scope: Scope, name: str, target: str) -> None:
        self.arrive()
        self.emit(f"if {self.words(part.condition, scope)}:")
        self.block(part.part, scope, name)
        self.otherwise(target, "None")

    def one_of(self, part: OneOf, scope: Scope, name: str, target: str) -> None:
        self.arrive()
        choice = self.new("choice")
        self.emit(f"{choice} = {self.words(part.choice, scope)}")
        for word, case, keys in grouped(part):
            self.emit(f"{word} {choice} in {keys}:" if len(keys) > 1 else f"{word} {choice} == {keys[0]}:")
            self.block(case, scope, name)
        self.emit("else:")
        self.emit("    raise Refused")


def reader(record: Record[Any], interpreted: tuple[Record[Any], ...] = ()) -> Callable[..., Any]:
    """A function of the packet's bytes that returns the record or raises one of REFUSALS.

    It takes the fields that lie apart as further arguments.
    """
    writer = Reader(interpreted)
    writer.emit("at = 0")
    writer.emit("end = len(data)")
    writer.record(record, (), "whole")
    writer.arrive()
    writer.refuse_if("at != end")
    writer.make()
    writer.emit("return whole")
    return writer.finish(", ".join(("data", *record.apart)))


def finder(record: Record[Any], name: str) -> Callable[[bytes], int]:
    """A function of a valid packet's bytes that returns where a header begins, or -1 without it."""
    used: set[str] = set()
    for _ in range(2):  # once to learn which fields lead there, once to read those alone
        writer = Reader((), used)
        writer.emit("at = 0")
        writer.emit("end = len(data)")
        for part in record.layout.subcons:
            if part.name == name:
                break
            writer.part(bare(part), (), part.name or "")
        writer.arrive()
        header = bare(part)
        there = f" if {writer.words(header.condition, ())} else -1" if isinstance(header, When) else ""
        writer.emit(f"return at{there}")
        used = writer.used
    return writer.finish("data")


def interpreted_reader(record: Record[Any]) -> Callable[[bytes, int], tuple[Any, int]]:
    """For headers that are rare and hold lists: construct reads them where they stand."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        stream = PacketStream(data[at:], at)
        try:
            value = to_records(record.parse_stream(stream))
        except ValueError as error:
            raise Refused from error
        return value, stream.tell()

    return read
