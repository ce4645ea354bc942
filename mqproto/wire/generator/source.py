"""What reading and writing have in common: lines of source, structs, and expressions in Python.

It leans on construct's expression classes, whose operands have mangled names; the tests of the generator
would notice a change there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from construct import Bytes, Const, FormatField, Rebuild, expr

from mqproto.wire.parts import OneOf, wide_size
from mqproto.wire.record import Record


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


def steps_of(expression: Any) -> list[str]:
    """The steps of `this.a.b`."""
    steps: list[str] = []
    node: Any = expression
    while node._Path__parent is not None:
        steps.insert(0, node._Path__field)
        node = node._Path__parent
    return steps


def is_path(expression: Any) -> bool:
    """Whether an expression is just the way to a field."""
    return isinstance(expression, Path)


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
                *above, name = steps_of(expression)
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
        if part.fmtstr[0] == ">" and part.length > 1:
            raise NotImplementedError(f"{part.fmtstr}: the generated codec reads little-endian numbers")
        return str(part.fmtstr)[1:]
    if isinstance(part, Const | Rebuild):
        return fixed_format(part.subcon)
    if isinstance(part, Bytes) and isinstance(part.length, int):
        return f"{part.length}s"
    return None


def grouped(part: OneOf) -> list[tuple[str, Any, tuple[int, ...]]]:
    """The cases of a choice, each layout once with all the numbers that choose it."""
    cases: dict[Any, tuple[int, ...]] = {}
    for key, case in part.cases.items():
        cases[case] = (*cases.get(case, ()), key)
    return [("elif" if index else "if", case, keys) for index, (case, keys) in enumerate(cases.items())]
