"""Generates the functions that write a record's bytes."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

from construct import Const, GreedyBytes, Rebuild

from mqproto.wire.generator.source import (
    Refused,
    Scope,
    Writer,
    fixed_format,
    grouped,
    is_path,
    local,
    steps_of,
)
from mqproto.wire.layout import Layout, Must, PacketStream, bare
from mqproto.wire.parts import NUL, Absent, Octets, OneOf, Pad4, Single, Text, When
from mqproto.wire.record import Record, to_containers


class Builder(Writer):
    """Writes the function that joins the bytes of a record; pieces first, packs that need the size last."""

    def __init__(self, interpreted: tuple[Record[Any], ...]) -> None:
        super().__init__(interpreted)
        self.ahead = 0  # bytes since `at` was last assigned
        self.run: list[tuple[str, str]] = []
        self.pieces: list[str] = []
        self.last: list[str] = []

    def record(self, record: Record[Any], scope: Scope, value: str) -> None:
        for field in dataclasses.fields(record.kind):
            if field.name not in record.apart:
                self.emit(f"{local(scope, field.name)} = {value}.{field.name}")
        self.layout(record.layout, scope)

    def layout(self, layout: Layout, scope: Scope) -> None:
        """What follows from the values, then the parts in order."""
        parts = [(bare(part), part.name or "") for part in layout.subcons]
        for part, name in parts:
            if isinstance(part, Text):
                self.wire(local(scope, name))
        for part, name in parts:
            if isinstance(part, Rebuild) and not self.needs_size(part.func):
                self.emit(f"{local(scope, name)} = {self.words(part.func, scope)}")
        for part, name in parts:
            self.part(part, scope, name)

    @staticmethod
    def needs_size(expression: Any) -> bool:
        """Whether an expression asks for PacketSize, which is known last."""
        return is_path(expression) and steps_of(expression)[0] == "_params"

    def wire(self, target: str) -> None:
        self.emit(f"if {target} is None:")
        self.emit(f"    {target}__wire = b''")
        self.emit(f"elif '\\0' in {target}:")
        self.emit("    raise Refused")
        self.emit("else:")
        nul = self.constant("nul", NUL)
        self.emit(f"    {target}__wire = {target}.encode('utf-16-le', 'surrogatepass') + {nul}")

    def part(self, part: Any, scope: Scope, name: str) -> None:
        target = local(scope, name) if name else ""
        if (code := fixed_format(part)) is not None:
            value = repr(part.value) if isinstance(part, Const) else target
            if code.endswith("s"):
                self.refuse_if(f"len({target}) != {part.length}")
            self.run.append((code, value))
            return
        match part:
            case Must():
                condition = self.words(part.condition, scope)
                if "packet_size" in condition:
                    self.last.append(f"if not {condition}: raise Refused")
                else:
                    self.refuse_if(f"not {condition}")
            case Record() if part in self.interpreted:
                self.arrive()
                write = self.constant("interpreted", interpreted_builder(part))
                self.piece(target, f"{write}({target}, at)")
            case Record():
                self.record(part, (*scope, name), target)
            case Single():
                inner = (*scope, name)
                self.emit(f"{local(inner, part.field)} = {target}")
                self.layout(part.layout, inner)
            case When():
                self.choose([(f"if {self.words(part.condition, scope)}:", part.part)], scope, name)
            case OneOf():
                choice = self.new("choice")
                self.emit(f"{choice} = {self.words(part.choice, scope)}")
                branches = [(f"{word} {choice} in {(*keys,)}:", case) for word, case, keys in grouped(part)]
                self.choose([*branches], scope, name)
            case Absent():
                self.refuse_if(f"{target} is not None")
            case Text():
                self.piece(target, f"{target}__wire")
            case Octets():
                self.refuse_if(f"len({target}) != {self.words(part.length, scope)}")
                self.piece(target, target)
            case Pad4():
                self.arrive()
                self.emit("missing = -at & 3")
                self.piece(target, f"{target} if len({target}) == missing else bytes(missing)")
            case _ if part is GreedyBytes:
                self.piece(target, target)
            case _:
                raise NotImplementedError(f"{part!r} in a layout")

    def flush(self) -> None:
        """Pack the run of fixed fields that has gathered, now or, with PacketSize among them, at the end."""
        if not self.run:
            return
        codes = "<" + "".join(code for code, _ in self.run)
        pack, piece = self.new("pack"), self.new("piece")
        self.names[pack] = struct.Struct(codes).pack
        line = f"{piece} = {pack}({', '.join(value for _, value in self.run)})"
        if any(value.endswith("packet_size") for _, value in self.run):
            self.last.append(line)
        else:
            self.emit(line)
        self.pieces.append(piece)
        self.ahead += struct.calcsize(codes)
        self.run = []

    def arrive(self) -> None:
        """Bring `at` to the size so far."""
        self.flush()
        if self.ahead:
            self.emit(f"at += {self.ahead}")
            self.ahead = 0

    def piece(self, target: str, value: str) -> None:
        """Some bytes of variable size."""
        self.arrive()
        piece = self.new("piece")
        self.emit(f"{piece} = {value}")
        self.emit(f"at += len({piece})")
        self.pieces.append(piece)

    def choose(self, branches: list[tuple[str, Any]], scope: Scope, name: str) -> None:
        """Branches of which one is taken; each leaves its bytes in the same piece."""
        self.arrive()
        outside = self.pieces
        whole = self.new("piece")
        for head, part in [*branches, ("else:", Absent())]:
            self.emit(head)
            self.depth += 1
            self.pieces = []
            self.part(part, scope, name)
            self.arrive()
            match self.pieces:
                case []:
                    self.emit(f"{whole} = b''")
                case [piece]:
                    self.emit(f"{whole} = {piece}")
                case pieces:
                    self.emit(f"{whole} = b''.join(({', '.join(pieces)}))")
            self.depth -= 1
        self.pieces = [*outside, whole]


def interpreted_builder(record: Record[Any]) -> Callable[[Any, int], bytes]:
    """For headers that are rare and hold lists: construct writes them, knowing where they will stand."""

    def build(value: Any, at: int) -> bytes:
        stream = PacketStream(b"", at)
        try:
            record.build_stream(to_containers(value), stream)
        except ValueError as error:
            raise Refused from error
        return stream.getvalue()

    return build


def builder(record: Record[Any], interpreted: tuple[Record[Any], ...] = ()) -> Callable[[Any], bytes]:
    """A function of the record that returns its bytes or raises one of REFUSALS."""
    writer = Builder(interpreted)
    writer.emit("at = 0")
    writer.record(record, (), "whole")
    writer.arrive()
    writer.emit("base__packet_size = at")
    for line in writer.last:
        writer.emit(line)
    writer.emit(f"return b''.join(({', '.join(writer.pieces)},))")
    return writer.finish("whole")
