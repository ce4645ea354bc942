"""Writes functions that encode a record as bytes."""

from __future__ import annotations

import dataclasses
import struct
from functools import cache
from typing import Any

from construct import Const, GreedyBytes, Rebuild

from mqproto.wire.schema.generator.source import (
    Function,
    Scope,
    Writer,
    branches,
    fixed_format,
    is_packet_size,
    listed,
    local,
    padded_choices,
    snake,
)
from mqproto.wire.schema.layout import Layout, Must, bare
from mqproto.wire.schema.parts import (
    Absent,
    Octets,
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


class Builder(Writer):
    """Writes the function that joins the bytes of a record. Parts that need the packet's size come last."""

    def __init__(self) -> None:
        super().__init__()
        self.run: list[tuple[str, str]] = []
        self.pieces: list[str] = []
        self.last: list[str] = []

    def record(self, record: Record[Any], scope: Scope, value: str) -> None:
        for field in dataclasses.fields(record.kind):
            if field.name not in record.apart:
                self.emit(f"{local(scope, field.name)} = {value}.{field.name}")
        self.layout(record.layout, scope)

    def layout(self, layout: Layout, scope: Scope) -> None:
        """Write code for the values that follow from others, and then for the parts in order."""
        parts = [(bare(part), part.name or "") for part in layout.subcons]
        for part, name in parts:
            if isinstance(part, Text):
                self.wire(local(scope, name))
            elif isinstance(part, Window):
                self.window_wire(part, (*scope, name))
        counts = {
            local(scope, name): self.words(part.func, scope)
            for part, name in parts
            if isinstance(part, Rebuild) and not is_packet_size(part)
        }
        for target, value in counts.items():
            self.emit(f"{target} = {value}")
        for part, name, padding in padded_choices(layout):
            target = local(scope, name)
            size = self.words(part.length, scope) if isinstance(part, Octets) else ""
            if counts.get(size) == f"len({target})":
                self.piece(target, size)  # the size fits by construction
            else:
                self.part(part, scope, name, padding)

    def wire(self, target: str) -> None:
        self.emit(f"if {target} is None:")
        self.emit(f"    {target}__wire = nothing")
        self.emit(f"elif '\\0' in {target}:")
        self.emit("    raise Refused")
        self.emit("else:")
        self.emit(f"    {target}__wire = encode({target}, 'surrogatepass')[0] + NUL")

    def window_wire(self, part: Window, scope: Scope) -> None:
        """Write code that encodes a window early, because the fields before it contain its size and counts."""
        record: Record[Any] = bare(part.subcon)
        target = local(scope[:-1], scope[-1])
        self.emit(f"{target}__wire = {self.calling(builder(record))}({target})")
        for field in dataclasses.fields(record.kind):
            self.emit(f"{local(scope, field.name)} = {target}.{field.name}")

    def part(self, part: Any, scope: Scope, name: str, padding: str = "") -> None:
        target = local(scope, name) if name else ""
        if (code := fixed_format(part)) is not None:
            value = repr(part.value) if isinstance(part, Const) else target
            if code.endswith("s"):
                self.checks.append(f"len({target}) != {part.length}")
            self.run.append((code, value))
            return
        match part:
            case Must():
                if "packet_size" in (condition := self.words(part.condition, scope)):
                    self.last += [f"if not {condition}:", "    raise Refused"]
                else:
                    self.must(part.condition, scope)
            case Record():
                self.record(part, (*scope, name), target)
            case Single():
                inner = (*scope, name)
                self.emit(f"{local(inner, part.field)} = {target}")
                self.layout(part.layout, inner)
            case When():
                self.choose([(f"if {self.words(part.condition, scope)}:", part.part)], scope, name)
            case OneOf():
                cases = branches(part, self.new("choice"), self.words(part.choice, scope))
                self.choose([*cases], scope, name, padding)
            case Absent():
                self.refuse_if(f"{target} is not None")
            case Text():
                self.piece(f"{target}__wire", f"len({target}__wire)")
            case TerminatedText():
                self.arrive()
                self.refuse_if(f"'\\0' in {target}")
                self.emit(f"{target}__wire = encode({target}, 'surrogatepass')[0] + NUL")
                self.piece(f"{target}__wire", f"len({target}__wire)")
            case Window():
                self.flush()
                if self.residue != 0:
                    raise NotImplementedError("a window that does not begin on a 4-byte boundary")
                self.piece(f"{target}__wire", f"len({target}__wire)")
            case Repeated():
                self.arrive()
                self.emit(f"{target}__wire = {self.calling(items_builder(part.subcon))}({target}, at)")
                self.piece(f"{target}__wire", f"len({target}__wire)")
            case Pad4():
                self.pad(target)
            case PaddedRest():
                self.arrive()
                self.emit(f"if {target} is None:")
                self.emit(f"    {target} = ZEROS[-at & 3]")
                self.piece(target, f"len({target})")
            case _ if part is GreedyBytes:
                self.piece(target, f"len({target})")
            case _:
                raise NotImplementedError(f"{part!r} in a layout")

    def flush(self) -> None:
        """Write code that judges and packs the gathered run of fixed fields.

        A run with PacketSize is packed last.
        """
        self.judge()
        if not self.run:
            return
        codes = "<" + "".join(code for code, _ in self.run)
        piece = self.new("piece")
        line = f"{piece} = {self.packer(codes, 'pack', 'pack')}({', '.join(value for _, value in self.run)})"
        if any(value.endswith("packet_size") for _, value in self.run):
            self.last.append(line)
        else:
            self.emit(line)
        self.pieces.append(piece)
        self.pass_over(struct.calcsize(codes))
        self.run = []

    def piece(self, piece: str, size: str) -> None:
        """Add a piece of the record's bytes that has a variable size."""
        self.flush()
        self.sizes.append(size)
        self.pieces.append(piece)
        self.residue = None

    def pad(self, target: str) -> None:
        """Write code that pads as `fitted` does.

        Usually, no padding is needed and none is given. In that case the code does nothing.
        """
        self.arrive()
        if self.residue == 0:
            # A value that is not bytes is refused here, because it will not be joined.
            self.emit(f"if {target} is not nothing and not len({target}):")
            self.emit(f"    {target} = nothing + {target}")
            return
        self.emit("missing = -at & 3")
        self.emit(f"if missing or {target} is not nothing:")
        self.emit(f"    if len({target}) != missing:")
        self.emit(f"        {target} = ZEROS[missing]")
        self.emit("    at += missing")
        self.pieces.append(target)
        self.residue = 0

    def choose(self, cases: list[tuple[str, Any]], scope: Scope, name: str, padding: str = "") -> None:
        """Write branches, each of which leaves its bytes in the same piece.

        The code for the padding after the choice is part of each branch, because most branches need none.
        """
        self.arrive()
        outside, residue = self.pieces, self.residue
        residues = set()
        whole = self.new("piece")
        then = [(Pad4(), padding)] if padding else []
        for head, case in [*cases, ("else:", Absent())]:
            self.emit(head)
            self.depth += 1
            self.pieces, self.residue = [], residue
            for part, part_name in [(case, name), *then]:
                self.part(part, scope, part_name)
            self.arrive()
            residues.add(self.residue)
            match self.pieces:
                case []:
                    self.emit(f"{whole} = nothing")
                case [piece]:
                    self.emit(f"{whole} = {piece}")
                case [one, other]:
                    self.emit(f"{whole} = {one} + {other}")
                case pieces:
                    self.emit(f"{whole} = b''.join(({', '.join(pieces)}))")
            self.depth -= 1
        self.pieces = [*outside, whole]
        self.residue = residues.pop() if len(residues) == 1 else None

    def finish(self, name: str, head: str, returned: str, says: str) -> Function:
        if any("nothing" in line for line in self.lines):
            self.lines.insert(0, "    nothing = b''")
        return Writer.finish(self, name, head, returned, says)


@cache
def builder(record: Record[Any]) -> Function:
    """Return a function that returns a record's bytes, or raises one of REFUSALS."""
    writer = Builder()
    writer.record(record, (), "whole")
    writer.flush()
    if writer.last:
        writer.arrive()
        writer.emit("base__packet_size = at")
    for line in writer.last:
        writer.emit(line)
    writer.emit(f"return b''.join(({listed(writer.pieces)}))")
    says = f"Return the bytes of one {record.kind.__name__}.  {record.layout.section}"
    return writer.finish(f"build_{snake(record.kind)}", "whole: Any", "bytes", says)


@cache
def items_builder(record: Record[Any]) -> Function:
    """Return a function that returns the joined bytes of records, the first of which begins at `at`."""
    writer = Builder()
    writer.begun, writer.residue = True, None
    writer.emit("pieces: list[bytes] = []")
    writer.emit("for item in items:")
    writer.depth += 1
    writer.record(record, ("item",), "item")
    writer.arrive()
    writer.emit(f"pieces += {listed(writer.pieces)}")
    writer.depth -= 1
    writer.emit("return b''.join(pieces)")
    says = (
        f"Return the bytes of each {record.kind.__name__}; the first begins at `at`.  {record.layout.section}"
    )
    return writer.finish(f"build_each_{snake(record.kind)}", "items: list[Any], at: int", "bytes", says)
