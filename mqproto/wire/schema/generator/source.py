"""What reading and writing have in common: lines of source, structs, and expressions in Python.

This module uses construct's expression classes, whose operands have mangled names. The generator's tests would notice
if these changed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from construct import Bytes, Const, FormatField, Rebuild, expr

from mqproto.wire.schema.layout import Layout, bare
from mqproto.wire.schema.parts import EncodedSize, OneOf, Pad4, wide_size

COMPARISONS: Final = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)

Scope = tuple[str, ...]

# construct's stubs say too little of these.
_expressions: Any = expr
BinExpr, FuncPath, Path, opnames = (
    _expressions.BinExpr,
    _expressions.FuncPath,
    _expressions.Path,
    _expressions.opnames,
)


@dataclass(slots=True)
class Function:
    """The source of one function, and what the function requires.

    kinds: the records that it makes.
    constants: the constants that must be defined before it, by name.
    calls: the functions that it calls.
    """

    name: str
    source: str
    kinds: set[type]
    constants: dict[str, str]
    calls: list[Function]

    def each(self) -> Iterator[Function]:
        """Yield the functions that this one calls, the innermost first, and then this function itself."""
        for one in self.calls:
            yield from one.each()
        yield self


def local(scope: Scope, name: str) -> str:
    """Return the name of the local variable for a field, such as `user__flags`."""
    return "__".join((*scope, name))


def listed(values: list[str]) -> str:
    """Return values as the source of a tuple, without parentheses."""
    return f"{values[0]}," if len(values) == 1 else ", ".join(values)


def snake(kind: type) -> str:
    """Return a record's name in the form for function names, such as `user_message`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def steps_of(expression: Any) -> list[str]:
    """Return the steps of a path: for `this.a.b`, `["a", "b"]`."""
    steps: list[str] = []
    node: Any = expression
    while node._Path__parent is not None:
        steps.insert(0, node._Path__field)
        node = node._Path__parent
    return steps


def is_path(expression: Any) -> bool:
    """Whether an expression is just a path to a field."""
    return isinstance(expression, Path)


def is_either(expression: Any) -> bool:
    """Whether an expression is an `or` of two comparisons."""
    return expression.op is operator.or_ and all(
        isinstance(side, BinExpr) and side.op in COMPARISONS for side in (expression.lhs, expression.rhs)
    )


class Writer:
    """The base of Reader and Builder: lines, structs, and expressions in Python."""

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.constants: dict[str, str] = {}
        self.calls: list[Function] = []
        self.lines: list[str] = []
        self.depth = 1
        self.counter = 0
        self.used: set[str] = set()
        self.checks: list[str] = []  # any of them refuses
        # For each flag word: which bits are tested, and what they have to be.
        self.bits: dict[str, tuple[int, int]] = {}
        self.begun = False  # whether `at` has been assigned
        self.ahead = 0  # bytes passed since then
        self.sizes: list[str] = []  # and the variable sizes passed
        # The place in the packet modulo 4; None if known only at run time.
        self.residue: int | None = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def new(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def packer(self, codes: str, verb: str, method: str) -> str:
        """Return the name of a constant that holds a method of the `Struct` for this format."""
        name = f"{verb}_{codes.removeprefix('<')}"
        self.constants[name] = f'Struct("{codes}").{method}'
        return name

    def calling(self, function: Function) -> str:
        """Return the name of another function, and record that it must be defined before this one."""
        if function not in self.calls:
            self.calls.append(function)
        return function.name

    def must(self, condition: Any, scope: Scope) -> None:
        """Remember a rule. All rules about the bits of one word become one rule."""
        if (about := bits_of(condition)) is None:
            self.checks.append(f"not {self.words(condition, scope)}")
            return
        word, asked, right = about
        name = self.words(word, scope)
        before, right_before = self.bits.get(name, (0, 0))
        if before & asked:
            self.checks.append(f"{name} & {asked:#x} != {right:#x}")
        else:
            self.bits[name] = before | asked, right_before | right

    def judge(self) -> None:
        """Write code that refuses values which break any of the gathered rules."""
        checks = self.checks + [
            f"{word} & {asked:#x} != {right:#x}" for word, (asked, right) in self.bits.items()
        ]
        if checks:
            self.refuse_if(" or ".join(checks))
        self.checks, self.bits = [], {}

    def flush(self) -> None:
        """Write code that reads or writes the gathered run of fixed fields."""
        raise NotImplementedError

    def pass_over(self, size: int) -> None:
        """Record that the code has read or written `size` more bytes."""
        self.ahead += size
        if self.residue is not None:
            self.residue = (self.residue + size) & 3

    def arrive(self) -> None:
        """Write code that moves `at` to the next byte."""
        self.flush()
        passed = [*([f"{self.ahead}"] if self.ahead else []), *self.sizes]
        if not self.begun:
            self.emit(f"at = {' + '.join(passed) or 0}")
        elif passed:
            self.emit(f"at += {' + '.join(passed)}")
        self.begun, self.ahead, self.sizes = True, 0, []

    def refuse_if(self, condition: str) -> None:
        self.emit(f"if {condition}:")
        self.emit("    raise Refused")

    def words(self, expression: Any, scope: Scope) -> str:
        """Return a `this` expression as Python source."""
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
                # `or` skips the second comparison if the first holds.
                word = "or" if is_either(expression) else opnames[expression.op]
                return f"({left} {word} {right})"
            case FuncPath():
                function, operand = expression._FuncPath__func, expression._FuncPath__operand
                return self.call(function, self.words(operand, scope))
        raise NotImplementedError(f"{expression!r} in a layout")

    def call(self, function: Callable[..., Any], operand: str) -> str:
        """Return the Python source for the result of this function, called with a field."""
        if function is len:
            return f"len({operand})"
        if function is wide_size or isinstance(function, EncodedSize):
            return f"len({operand}__wire)"
        raise NotImplementedError(f"{function!r} in a layout")

    def finish(self, name: str, head: str, returned: str, says: str) -> Function:
        """Return a function that consists of the lines written so far."""
        source = "\n".join([f"def {name}({head}) -> {returned}:", f'    """{says}"""', *self.lines, ""])
        return Function(name, source, self.kinds, self.constants, self.calls)


def bits_of(condition: Any) -> tuple[Any, int, int] | None:
    """Split a rule about bits of a word into the word, the mask of the bits, and their required value.

    The value is in the same position as the mask.
    """
    match condition:
        case BinExpr(op=operator.and_, lhs=Path() as word, rhs=int(mask)) if mask.bit_count() == 1:
            return word, mask, mask
        case BinExpr(op=operator.eq, lhs=BinExpr(op=operator.and_, lhs=Path() as word, rhs=int(mask)), rhs=0):
            return word, mask, 0
        case BinExpr(
            op=operator.le, lhs=BinExpr(op=operator.and_, lhs=number, rhs=int(limit)), rhs=0 | 1 | 3 | 7
        ):
            above = limit & ~condition.rhs  # bits that have to be clear
            match number:
                case Path():
                    return number, above, 0
                case BinExpr(op=operator.rshift, lhs=Path() as word, rhs=int(places)):
                    return word, above << places, 0
    return None


def fixed_format(part: Any) -> str | None:
    """Return the `struct` format of a part that has a fixed size and one value; None for any other part."""
    if isinstance(part, FormatField):
        if part.fmtstr[0] == ">" and part.length > 1:
            raise NotImplementedError(f"{part.fmtstr}: the generated codec reads little-endian numbers")
        return str(part.fmtstr)[1:]
    if isinstance(part, Const | Rebuild):
        return fixed_format(part.subcon)
    if isinstance(part, Bytes) and isinstance(part.length, int):
        return f"{part.length}s"
    return None


def is_packet_size(part: Any) -> bool:
    """Whether a part is PacketSize, which is known only when the packet is complete."""
    return isinstance(part, Rebuild) and is_path(part.func) and steps_of(part.func)[0] == "_params"


def padded_choices(layout: Layout) -> Iterator[tuple[Any, str, str]]:
    """Yield each part with its name, and for a choice also the name of the padding after it."""
    parts = [(bare(part), part.name or "") for part in layout.subcons]
    after_choice = False
    for (part, name), (following, padding) in zip(parts, [*parts[1:], (None, "")], strict=True):
        if not (after_choice and isinstance(part, Pad4)):
            after_choice = isinstance(part, OneOf)
            yield part, name, padding if after_choice and isinstance(following, Pad4) else ""


def branches(part: OneOf, choice: str, expression: str) -> Iterator[tuple[str, Any]]:
    """Yield the cases of a choice, each with the Python test for it.

    The first test computes the number that selects the case.
    """
    asked: set[int] = set()
    for word, case, keys in grouped(part):
        number = choice if asked else f"({choice} := {expression})"
        asked |= {*keys}
        if asked == {*range(max(keys) + 1)}:
            test = f"<= {max(keys)}"  # quicker than `in`
        else:
            test = f"in {keys}" if len(keys) > 1 else f"== {keys[0]}"
        yield f"{word} {number} {test}:", case


def grouped(part: OneOf) -> list[tuple[str, Any, tuple[int, ...]]]:
    """Return the cases of a choice: each layout once, with all the numbers that select it."""
    cases: dict[Any, tuple[int, ...]] = {}
    for key, case in part.cases.items():
        cases[case] = (*cases.get(case, ()), key)
    return [("elif" if index else "if", case, keys) for index, (case, keys) in enumerate(cases.items())]
