"""Turns a layout into Python source that reads or writes it at the speed of `struct`.

The source is made at import by walking the construct tree. Runs of fields of fixed size, across nested
headers too, become one `struct.Struct`; `this` expressions become local variables; conditions become `if`.
Whatever the walk does not know raises `NotImplementedError` at import, so it cannot go wrong on the wire.

What is generated says yes or no only: it raises anything in `REFUSALS` for bytes or records that the layout
refuses, and codec.py lets the reference codec find the words.

It leans on construct's expression classes, whose operands have mangled names; the tests of the generator
would notice a change there.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, Final

from construct import Bytes, Const, FormatField, GreedyBytes, Rebuild, expr

from mqproto.wire.layout import (
    NUL,
    Absent,
    Layout,
    Must,
    Octets,
    OneOf,
    PacketStream,
    Pad4,
    Single,
    Text,
    When,
    bare,
    wide_size,
)
from mqproto.wire.record import Record, to_containers, to_records


class Refused(Exception):  # noqa: N818  (an answer, which codec.py turns into an error)
    """A value breaks a rule; the reference codec knows which."""


REFUSALS: Final = (Refused, struct.error, UnicodeError, TypeError, AttributeError)

Scope = tuple[str, ...]

# construct's stubs say too little of these.
_expressions: Any = expr
BinExpr, FuncPath, Path, opnames = (
    _expressions.BinExpr,
    _expressions.FuncPath,
    _expressions.Path,
    _expressions.opnames,
)


def local(scope: Scope, name: str) -> str:
    """The local variable of a field: `user__flags`."""
    return "__".join((*scope, name))


def path_of(expression: Any) -> list[str]:
    """The steps of `this.a.b`."""
    steps: list[str] = []
    node: Any = expression
    while node._Path__parent is not None:
        steps.insert(0, node._Path__field)
        node = node._Path__parent
    return steps


class Writer:
    """What reading and writing have in common: lines, structs, and expressions in Python."""

    def __init__(self, interpreted: tuple[Record[Any], ...]) -> None:
        self.interpreted = interpreted
        self.names: dict[str, Any] = {"Refused": Refused}
        self.lines: list[str] = []
        self.depth = 1
        self.counter = 0
        self.used: set[str] = set()

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def new(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def constant(self, prefix: str, value: object) -> str:
        """A global name for a value."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.new(prefix)
        self.names[name] = value
        return name

    def refuse_if(self, condition: str) -> None:
        self.emit(f"if {condition}:")
        self.emit("    raise Refused")

    def words(self, expression: Any, scope: Scope) -> str:
        """A `this` expression as Python source."""
        match expression:
            case bool() | int():
                return repr(expression)
            case Path():
                *above, name = path_of(expression)
                if above == ["_params"]:
                    return name
                for step in above:
                    scope = scope[:-1] if step == "_" else (*scope, step)
                self.used.add(variable := local(scope, name))
                return variable
            case BinExpr():
                left, right = self.words(expression.lhs, scope), self.words(expression.rhs, scope)
                return f"({left} {opnames[expression.op]} {right})"
            case FuncPath():
                function, operand = expression._FuncPath__func, expression._FuncPath__operand
                return self.call(function, self.words(operand, scope))
        raise NotImplementedError(f"{expression!r} in a layout")

    def call(self, function: Callable[..., Any], operand: str) -> str:
        """A function of a field."""
        if function is len:
            return f"len({operand})"
        if function is wide_size:
            return f"len({operand}__wire)"
        raise NotImplementedError(f"{function!r} in a layout")

    def finish(self, head: str) -> Callable[..., Any]:
        """Compile the function that the lines make; the source is kept for people who want to read it."""
        source = "\n".join([f"def generated({head}):", *self.lines, ""])
        exec(compile(source, "<generated from the layouts>", "exec"), self.names)
        function: Callable[..., Any] = self.names["generated"]
        function.source = source  # type: ignore[attr-defined]
        return function


def fixed_format(part: Any) -> str | None:
    """The `struct` format of a part that always takes the same bytes and is one value; else None."""
    if isinstance(part, FormatField):
        return str(part.fmtstr)[1:]
    if isinstance(part, Const | Rebuild):
        return fixed_format(part.subcon)
    if isinstance(part, Bytes) and isinstance(part.length, int):
        return f"{part.length}s"
    return None


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


def grouped(part: OneOf) -> list[tuple[str, Any, tuple[int, ...]]]:
    """The cases of a choice, each layout once with all the numbers that choose it."""
    cases: dict[Any, tuple[int, ...]] = {}
    for key, case in part.cases.items():
        cases[case] = (*cases.get(case, ()), key)
    return [("elif" if index else "if", case, keys) for index, (case, keys) in enumerate(cases.items())]


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
    """A function of a valid packet's bytes that returns where an optional header begins, or -1 without it."""
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
        writer.emit(f"return at if {writer.words(bare(part).condition, ())} else -1")
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
        return isinstance(expression, Path) and path_of(expression)[0] == "_params"

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
