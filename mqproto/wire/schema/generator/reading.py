"""Writes functions that read packets: to make a record, to check the bytes only, or to find a header."""

from __future__ import annotations

import dataclasses
import inspect
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from construct import Const, GreedyBytes

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
from mqproto.wire.schema.stream import NUL

OF_ITEMS: Final = "data: bytes, at: int, end: int, count: int"


class Reader(Writer):
    """Writes a function that reads `data`, which ends where the packet ends.

    Args:
        wanted: the fields that are needed if no record is made; None if all are.
        judging: whether to check the rules of the layout.
    """

    def __init__(self, wanted: set[str] | None = None, *, judging: bool = True) -> None:
        super().__init__()
        self.wanted = wanted
        self.judging = judging
        self.run: list[tuple[str, str]] = []
        self.makes: list[str] = []
        self.in_window = False

    def record(self, record: Record[Any], scope: Scope, target: str) -> None:
        """Write code that reads the fields, and gather the statements that make a record from them."""
        self.layout(record.layout, scope)
        if self.wanted is None:
            self.makes += self.making(record, scope, target)

    def making(self, record: Record[Any], scope: Scope, target: str) -> list[str]:
        """Return statements that make a record without calling its `__init__`, which would take twice as long."""
        kind = record.kind
        if hasattr(kind, "__post_init__"):
            raise NotImplementedError(f"{kind.__name__} has a __post_init__, which would not be called")
        self.kinds.add(kind)
        lines = [f"{target} = new({kind.__name__})"]
        for field in dataclasses.fields(kind):
            value = field.name if field.name in record.apart else local(scope, field.name)
            if not kind.__dataclass_params__.frozen:
                lines.append(f"{target}.{field.name} = {value}")
                continue
            if not inspect.ismemberdescriptor(inspect.getattr_static(kind, field.name, None)):
                raise NotImplementedError(f"{kind.__name__} is frozen, and has no slot for {field.name}")
            setter = f"set_{snake(kind)}_{field.name}"
            self.constants[setter] = f'vars({kind.__name__})["{field.name}"].__set__'
            lines.append(f"{setter}({target}, {value})")
        return lines

    def layout(self, layout: Layout, scope: Scope) -> None:
        for part, name, padding in padded_choices(layout):
            self.part(part, scope, name, padding)

    def part(self, part: Any, scope: Scope, name: str, padding: str = "") -> None:
        target = local(scope, name) if name else ""
        if (code := fixed_format(part)) is not None:
            self.run.append((code, target))
            if isinstance(part, Const):
                self.check(f"{target} != {part.value}", target)
            elif is_packet_size(part):
                self.check(f"{target} != end", target)
            return
        match part:
            case Must():
                if self.judging:
                    self.must(part.condition, scope)
            case Record():
                self.record(part, (*scope, name), target)
            case Single():
                self.layout(part.layout, (*scope, name))
                self.flush()
                self.value(target, local((*scope, name), part.field))
            case When():
                self.when(part, scope, name, target)
            case OneOf():
                self.one_of(part, scope, name, padding)
            case Absent():
                self.value(target, "None")
            case Text():
                self.text(part, scope, target)
            case TerminatedText():
                self.terminated_text(target)
            case Window():
                self.window(part, scope, name)
            case Repeated():
                self.repeated(part, scope, target)
            case Octets():
                self.octets(self.words(part.length, scope), target)
            case Pad4():
                self.pad(target)
            case _ if part is GreedyBytes or isinstance(part, PaddedRest):
                self.greedy(target)
            case _:
                raise NotImplementedError(f"{part!r} in a layout")

    def check(self, condition: str, field: str) -> None:
        if self.judging:
            self.checks.append(condition)
            self.used.add(field)

    def flush(self) -> None:
        """Write code that reads the gathered run of fixed fields and then judges it."""
        if self.run:
            terms = [*(["at"] if self.begun else []), *([f"{self.ahead}"] if self.ahead else [])]
            where = f", {' + '.join(terms)}" if terms else ""
            codes, fields, skipped = "<", [], 0
            for code, name in self.run:
                if self.wanted is None or name in self.wanted:
                    codes += f"{skipped}x{code}" if skipped else code
                    fields.append(name)
                    skipped = 0
                else:
                    skipped += struct.calcsize(f"<{code}")
            codes += f"{skipped}x" if skipped else ""
            if fields:
                self.emit(f"{listed(fields)} = {self.packer(codes, 'unpack', 'unpack_from')}(data{where})")
            self.pass_over(struct.calcsize(codes))
            self.run = []
        self.judge()

    def make(self) -> None:
        for line in self.makes:
            self.emit(line)
        self.makes = []

    def value(self, target: str, value: str) -> None:
        if self.wanted is None:
            self.emit(f"{target} = {value}")

    def slice(self, size: str, target: str) -> None:
        """Write code that takes `size` bytes after checking that they exist.

        If the function needs none of these bytes, they are not checked here. A later part, or the last check, notices
        if the packet is too short.
        """
        if self.wanted is None:
            self.emit(f"stop = at + {size}")
            self.refuse_if("stop > end")
            self.emit(f"{target} = data[at:stop]")
            self.emit("at = stop")
        else:
            self.emit(f"at += {size}")

    def octets(self, size: str, target: str) -> None:
        self.arrive()
        if self.wanted is None:
            self.either(size, lambda: self.slice(size, target), f"{target} = b''")
        else:
            self.slice(size, target)
        self.residue = None

    def pad(self, target: str) -> None:
        self.arrive()
        if self.residue is None:
            self.either(
                "at & 3", lambda: self.slice("(-at & 3)", target), self.unless_wanted(f"{target} = b''")
            )
        elif self.residue:
            self.slice(f"{4 - self.residue}", target)
        else:
            self.value(target, "b''")
        self.residue = 0

    def greedy(self, target: str) -> None:
        """Write code that takes all remaining bytes."""
        self.arrive()
        if self.wanted is not None or self.in_window:
            self.refuse_if("at > end")
        self.value(target, "data[at:end] if at != end else b''")
        self.emit("at = end")

    def text(self, part: Text, scope: Scope, target: str) -> None:
        """Write code that takes a text with its NUL. The layout ensures that the size is even."""
        self.arrive()

        def decoded() -> None:
            self.emit("stop = at + size")
            self.refuse_if("stop > end")
            if self.judging:
                self.emit(f"{target} = decode(data[at : stop - 2], 'surrogatepass', True)[0]")
                self.refuse_if(f"data[stop - 2] or data[stop - 1] or '\\0' in {target}")
            self.emit("at = stop")

        self.emit(f"size = {self.words(part.size, scope)}")
        self.either("size", decoded, self.unless_wanted(f"{target} = None"))
        self.residue = None

    def terminated_text(self, target: str) -> None:
        self.arrive()
        self.emit("stop = nul_at(data, at, end)")
        self.refuse_if("stop < 0")
        self.value(target, "decode(data[at:stop], 'surrogatepass', True)[0]")
        self.emit(f"at = stop + {len(NUL)}")
        self.residue = None

    def window(self, part: Window, scope: Scope, name: str) -> None:
        """Write code that reads a part which ends within its window. The next part begins after the window."""
        if self.in_window:
            raise NotImplementedError("a window within a window")
        self.arrive()
        self.emit(f"outside, end = end, at + {self.words(part.size, scope)}")
        self.refuse_if("end > outside")
        self.in_window = True
        self.part(bare(part.subcon), scope, name)
        self.arrive()
        self.in_window = False
        self.refuse_if("at > end")
        self.emit("at, end = end, outside")
        self.residue = None

    def repeated(self, part: Repeated, scope: Scope, target: str) -> None:
        """Write code that reads items with a separate function, because several lists may have the same kind of
        items.
        """
        self.arrive()
        count = self.words(part.count, scope)
        into = f"{target}, at" if self.wanted is None else "at"
        function = items_reader(part.subcon) if self.wanted is None else items_checker(part.subcon)
        self.emit(f"{into} = {self.calling(function)}(data, at, end, {count})")
        self.residue = None

    def items(self, record: Record[Any]) -> None:
        """Write the lines that read `count` successive records."""
        self.begun, self.residue = True, None
        self.emit("for _ in range(count):")
        self.depth += 1
        self.record(record, ("item",), "item")
        self.arrive()
        self.make()

    def unless_wanted(self, line: str) -> str:
        return line if self.wanted is None else ""

    def either(self, condition: str, block: Callable[[], None], otherwise: str) -> None:
        self.emit(f"if {condition}:")
        self.depth += 1
        block()
        self.depth -= 1
        if otherwise:
            self.emit("else:")
            self.emit(f"    {otherwise}")

    def block(self, parts: list[tuple[Any, str]], scope: Scope) -> int | None:
        """Write parts under a condition, with their checks and records.

        Return the offset after these parts, modulo 4; None if it is not known.
        """
        outside, self.makes = self.makes, []
        residue = self.residue
        self.depth += 1
        before = len(self.lines)
        for part, name in parts:
            self.part(part, scope, name)
        self.arrive()
        self.make()
        if len(self.lines) == before:
            self.emit("pass")
        self.depth -= 1
        self.makes = outside
        after, self.residue = self.residue, residue
        return after

    def when(self, part: When, scope: Scope, name: str, target: str) -> None:
        self.arrive()
        self.emit(f"if {self.words(part.condition, scope)}:")
        after = self.block([(part.part, name)], scope)
        if self.wanted is None:
            self.emit("else:")
            self.emit(f"    {target} = None")
        if after != self.residue:
            self.residue = None

    def one_of(self, part: OneOf, scope: Scope, name: str, padding: str) -> None:
        """Write a choice.

        The code for the padding after the choice is part of each branch, because most branches need none.
        """
        self.arrive()
        then = [(Pad4(), padding)] if padding else []
        residues = set()
        for head, case in branches(part, self.new("choice"), self.words(part.choice, scope)):
            self.emit(head)
            residues.add(self.block([(case, name), *then], scope))
        self.emit("else:")
        self.emit("    raise Refused")
        self.residue = residues.pop() if len(residues) == 1 else None


def reader(record: Record[Any]) -> Function:
    """Return a function that turns a packet's bytes into the record, or raises one of REFUSALS.

    The function takes the fields of `apart` as further arguments.
    """
    writer = Reader()
    writer.emit("end = len(data)")
    writer.record(record, (), "whole")
    writer.arrive()
    writer.refuse_if("at != end")
    writer.make()
    writer.emit("return whole")
    kind = record.kind
    head = ", ".join(("data: bytes", *(f"{name}: Any" for name in record.apart)))
    says = f"Read one {kind.__name__} from its bytes.  {record.layout.section}"
    return writer.finish(f"read_{snake(kind)}", head, kind.__name__, says)


def checker(record: Record[Any]) -> Function:
    """Return a function that makes no record, but refuses the same bytes as the function from `reader`.

    For these bytes, it raises one of REFUSALS.
    """

    def write(used: set[str]) -> Reader:
        writer = Reader(used)
        writer.emit("end = len(data)")
        writer.record(record, (), "whole")
        writer.arrive()
        writer.refuse_if("at != end")
        return writer

    # Once to learn which fields the rules and sizes use, once to read those alone.
    name = snake(record.kind)
    says = f"Refuse what `read_{name}` refuses."
    return write(write(set()).used).finish(f"check_{name}", "data: bytes", "None", says)


def finder(record: Record[Any], name: str) -> Function:
    """Return a function that finds a header's offset in a valid packet; -1 if there is no such header."""

    def write(used: set[str]) -> Reader:
        writer = Reader(used, judging=False)
        writer.emit("end = len(data)")
        for part, part_name, padding in padded_choices(record.layout):
            if part_name == name:
                break
            writer.part(part, (), part_name, padding)
        writer.arrive()
        there = f" if {writer.words(part.condition, ())} else -1" if isinstance(part, When) else ""
        writer.emit(f"return at{there}")
        return writer

    says = f"Return where `{name}` begins in a valid {record.kind.__name__}; -1 if it has none."
    return write(write(set()).used).finish(f"{name}_offset", "data: bytes", "int", says)


@cache
def items_reader(record: Record[Any]) -> Function:
    """Return a function that reads `count` records from `at` on, and returns the records and their end.

    On a fault, the function raises one of REFUSALS. It may read fixed fields beyond the window's `end`; its caller
    checks where the records end.
    """
    writer = Reader()
    writer.emit("items = []")
    writer.items(record)
    writer.emit("items.append(item)")
    writer.depth -= 1
    writer.emit("return items, at")
    says = f"Read `count` {record.kind.__name__} from `at` on; return them and their end.  {record.layout.section}"
    return writer.finish(f"read_each_{snake(record.kind)}", OF_ITEMS, "tuple[list[Any], int]", says)


@cache
def items_checker(record: Record[Any]) -> Function:
    """Return a function that judges like the one from `items_reader`, but does not make records."""

    def write(used: set[str]) -> Reader:
        writer = Reader(used)
        writer.items(record)
        writer.depth -= 1
        writer.emit("return at")
        return writer

    name = snake(record.kind)
    says = f"Refuse what `read_each_{name}` refuses; return their end."
    return write(write(set()).used).finish(f"check_each_{name}", OF_ITEMS, "int", says)
