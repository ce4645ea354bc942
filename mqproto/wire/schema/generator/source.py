"""What reading and writing have in common: lines of source, structs, and expressions in Python.

It leans on construct's expression classes, whose operands have mangled names; the tests of the generator
would notice a change there.
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
    """One function as source, and what it leans on.

    kinds: the records that it makes.
    constants: what has to stand before it, by name.
    calls: the functions that it calls.
    """

    name: str
    source: str
    kinds: set[type]
    constants: dict[str, str]
    calls: list[Function]

    def each(self) -> Iterator[Function]:
        """It and those that it calls, the innermost first."""
        for one in self.calls:
            yield from one.each()
        yield self


def local(scope: Scope, name: str) -> str:
    """The local variable of a field: `user__flags`."""
    return "__".join((*scope, name))


def listed(values: list[str]) -> str:
    """A tuple of values, without parentheses."""
    return f"{values[0]}," if len(values) == 1 else ", ".join(values)


def snake(kind: type) -> str:
    """The name of a record in names of functions: `user_message`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


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


def is_either(expression: Any) -> bool:
    """Whether an expression says that one comparison holds or another."""
    return expression.op is operator.or_ and all(
        isinstance(side, BinExpr) and side.op in COMPARISONS for side in (expression.lhs, expression.rhs)
    )


class Writer:
    """What reading and writing have in common: lines, structs, and expressions in Python."""

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.constants: dict[str, str] = {}
        self.calls: list[Function] = []
        self.lines: list[str] = []
        self.depth = 1
        self.counter = 0
        self.used: set[str] = set()
        self.checks: list[str] = []  # any of them refuses
        # Of flag words: which bits are asked for, and what they have to be.
        self.bits: dict[str, tuple[int, int]] = {}
        self.begun = False  # whether `at` has been assigned
        self.ahead = 0  # bytes passed since then
        self.sizes: list[str] = []  # and the sizes of what else was passed
        # What the place in the packet leaves when divided by 4; None where that is known at run time only.
        self.residue: int | None = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def new(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def packer(self, codes: str, verb: str, method: str) -> str:
        """The name of a method of the `struct` of a format."""
        name = f"{verb}_{codes.removeprefix('<')}"
        self.constants[name] = f'Struct("{codes}").{method}'
        return name

    def calling(self, function: Function) -> str:
        """The name of another function, which stands before this one."""
        if function not in self.calls:
            self.calls.append(function)
        return function.name

    def must(self, condition: Any, scope: Scope) -> None:
        """Remember a rule; all rules about the bits of one word become one."""
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
        """Refuse what breaks one of the rules that have gathered."""
        checks = self.checks + [
            f"{word} & {asked:#x} != {right:#x}" for word, (asked, right) in self.bits.items()
        ]
        if checks:
            self.refuse_if(" or ".join(checks))
        self.checks, self.bits = [], {}

    def flush(self) -> None:
        """Read or write the run of fixed fields that has gathered."""
        raise NotImplementedError

    def pass_over(self, size: int) -> None:
        """`size` bytes have been read or written."""
        self.ahead += size
        if self.residue is not None:
            self.residue = (self.residue + size) & 3

    def arrive(self) -> None:
        """Bring `at` to the next byte."""
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
                # Of two truths the second is not asked for when the first holds.
                word = "or" if is_either(expression) else opnames[expression.op]
                return f"({left} {word} {right})"
            case FuncPath():
                function, operand = expression._FuncPath__func, expression._FuncPath__operand
                return self.call(function, self.words(operand, scope))
        raise NotImplementedError(f"{expression!r} in a layout")

    def call(self, function: Callable[..., Any], operand: str) -> str:
        """A function of a field."""
        if function is len:
            return f"len({operand})"
        if function is wide_size or isinstance(function, EncodedSize):
            return f"len({operand}__wire)"
        raise NotImplementedError(f"{function!r} in a layout")

    def finish(self, name: str, head: str, returned: str, says: str) -> Function:
        """The function that the lines make."""
        source = "\n".join([f"def {name}({head}) -> {returned}:", f'    """{says}"""', *self.lines, ""])
        return Function(name, source, self.kinds, self.constants, self.calls)


def bits_of(condition: Any) -> tuple[Any, int, int] | None:
    """A rule that certain bits of a word have certain values: the word, a mask of the bits, the values in place."""
    match condition:
        case BinExpr(op=operator.and_, lhs=Path() as word, rhs=int(mask)) if mask.bit_count() == 1:
            return word, mask, mask
        case BinExpr(op=operator.eq, lhs=BinExpr(op=operator.and_, lhs=Path() as word, rhs=int(mask)), rhs=0):
            return word, mask, 0
        case BinExpr(
            op=operator.le, lhs=BinExpr(op=operator.and_, lhs=number, rhs=int(limit)), rhs=0 | 1 | 3 | 7
        ):
            above = limit & ~condition.rhs  # which have to be clear
            match number:
                case Path():
                    return number, above, 0
                case BinExpr(op=operator.rshift, lhs=Path() as word, rhs=int(places)):
                    return word, above << places, 0
    return None


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


def is_packet_size(part: Any) -> bool:
    """Whether a part is PacketSize, which is known when the whole packet is."""
    return isinstance(part, Rebuild) and is_path(part.func) and steps_of(part.func)[0] == "_params"


def padded_choices(layout: Layout) -> Iterator[tuple[Any, str, str]]:
    """The parts and their names; behind a choice the name of the padding that follows it, which then comes with it."""
    parts = [(bare(part), part.name or "") for part in layout.subcons]
    after_choice = False
    for (part, name), (following, padding) in zip(parts, [*parts[1:], (None, "")], strict=True):
        if not (after_choice and isinstance(part, Pad4)):
            after_choice = isinstance(part, OneOf)
            yield part, name, padding if after_choice and isinstance(following, Pad4) else ""


def branches(part: OneOf, choice: str, expression: str) -> Iterator[tuple[str, Any]]:
    """The cases of a choice, and how Python asks for each: the first time for the number too."""
    asked: set[int] = set()
    for word, case, keys in grouped(part):
        number = choice if asked else f"({choice} := {expression})"
        asked |= {*keys}
        if asked == {*range(max(keys) + 1)}:
            test = f"<= {max(keys)}"  # quicker than whether it is one of several
        else:
            test = f"in {keys}" if len(keys) > 1 else f"== {keys[0]}"
        yield f"{word} {number} {test}:", case


def grouped(part: OneOf) -> list[tuple[str, Any, tuple[int, ...]]]:
    """The cases of a choice, each layout once with all the numbers that choose it."""
    cases: dict[Any, tuple[int, ...]] = {}
    for key, case in part.cases.items():
        cases[case] = (*cases.get(case, ()), key)
    return [("elif" if index else "if", case, keys) for index, (case, keys) in enumerate(cases.items())]
