"""Writes functions that read as source with types, for a compiler that comes before Python: mypyc.

What it makes of them is a module, COMPILED, that has the digest of each. Where a build has the module, the codec takes
its functions in place of those that functions.py makes at import, and refuses those of other layouts.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from mqproto.wire.generator import functions
from mqproto.wire.generator.reading import (
    Reader,
    by_its_init,
    write_checker,
    write_finder,
    write_items_checker,
    write_items_reader,
    write_reader,
)
from mqproto.wire.generator.source import Scope
from mqproto.wire.schema.record import Record

COMPILED: Final = "mqproto.wire.generator.compiled"
"""The module that a compiled build has, and no checkout."""

NUMBERS: Final = frozenset({"at", "end", "stop", "outside", "size", "count"})
WIDE: Final = ("Q", "q")
"""What `struct` reads as more than 32 bits."""
OF_ITEMS: Final = "data: bytes, at: i64, end: i64, count: i64"
HEAD: Final = '''"""Made of the layouts while the wheel was built, and compiled; no checkout has it."""

from __future__ import annotations

from codecs import utf_16_le_decode as decode
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from mqproto.wire.generator.source import Refused
from mqproto.wire.schema.parts import nul_at
'''
FOR_TYPES: Final = """
if TYPE_CHECKING:
    from mypy_extensions import i64
"""


@dataclass(slots=True)
class Typed:
    """One function: its source, what that leans on, and the functions that it calls."""

    name: str
    source: str
    formats: set[str]
    kinds: set[type]
    calls: list[Typed] = field(default_factory=list)

    def each(self) -> Iterator[Typed]:
        """It and those that it calls, the innermost first."""
        for one in self.calls:
            yield from one.each()
        yield self

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(one.source for one in self.each()).encode()).hexdigest()


class TypedReader(Reader):
    """Writes for mypyc. Fields of 32 bits or less are C's numbers of 64: sums, and four times one, have room."""

    def __init__(self, wanted: set[str] | None = None, *, judging: bool = True) -> None:
        super().__init__(wanted, judging=judging)
        self.formats: set[str] = set()
        self.kinds: set[type] = set()
        self.calls: list[Typed] = []
        self.types: dict[str, set[str]] = {}

    def making(self, record: Record[Any], scope: Scope, target: str) -> list[str]:
        self.kinds.add(record.kind)
        return [by_its_init(record, scope, target, record.kind.__name__)]

    def flush(self) -> None:
        for code, name in self.run:
            kind = "Any" if code.endswith("s") else "int" if code in WIDE else "i64"
            self.types.setdefault(name, set()).add(kind)
        super().flush()

    def unpacking(self, codes: str) -> str:
        self.formats.add(codes)
        return name_of(codes)

    def of_items(self, record: Record[Any]) -> str:
        one = typed_items_reader(record) if self.wanted is None else typed_items_checker(record)
        if one not in self.calls:
            self.calls.append(one)
        return one.name

    def typed(self, name: str, head: str, returned: str, kinds: Iterable[type] = ()) -> Typed:
        """The function that the lines make."""
        source = "\n".join([f"def {name}({head}) -> {returned}:", *self.lines])
        variables = {argument.split(":")[0] for argument in head.split(", ")}
        declared = [
            f"    {variable}: {self._type_of(variable, plainly)}"
            for variable, plainly in assigned(source).items()
            if variable not in variables
        ]
        source = "\n".join([f"def {name}({head}) -> {returned}:", *declared, *self.lines, ""])
        return Typed(name, source, self.formats, {*self.kinds, *kinds}, self.calls)

    def _type_of(self, variable: str, plainly: bool) -> str:
        """What a variable holds; `plainly` where it is set otherwise than by reading fields."""
        if variable in NUMBERS or variable.startswith("choice"):
            return "i64"
        kinds = self.types.get(variable, set())
        return kinds.pop() if len(kinds) == 1 and not plainly else "Any"


def name_of(codes: str) -> str:
    """The name of the function that reads such a run of fields."""
    return f"unpack_{codes.removeprefix('<')}"


def assigned(source: str) -> dict[str, bool]:
    """The variables of a function in order, each with whether it is set otherwise than by reading fields."""
    found: dict[str, bool] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts)], value=ast.Call(func=ast.Name(id))) if id.startswith(
                "unpack_"
            ):
                plainly, targets = False, elts
            case ast.Assign(targets=[ast.Tuple(elts)]):
                plainly, targets = True, elts
            case ast.Assign(targets=[target]) | ast.NamedExpr(target=target):
                plainly, targets = True, [target]
            case _:
                continue
        for target in targets:
            assert isinstance(target, ast.Name), "no other is generated"
            found[target.id] = found.get(target.id, False) or plainly
    return found


def typed_reader(record: Record[Any]) -> Typed:
    """What `functions.reader` makes, with types."""
    head = ", ".join(("data: bytes", *(f"{name}: Any" for name in record.apart)))
    kind = record.kind.__name__
    return write_reader(record, TypedReader).typed(f"read_{kind}", head, kind)


def typed_checker(record: Record[Any]) -> Typed:
    """What `functions.checker` makes, with types."""
    return write_checker(record, TypedReader).typed(f"check_{record.kind.__name__}", "data: bytes", "None")


def typed_finder(record: Record[Any], name: str) -> Typed:
    """What `functions.finder` makes, with types."""
    made = f"find_{name}_in_{record.kind.__name__}"
    return write_finder(record, name, TypedReader).typed(made, "data: bytes", "i64")


@cache
def typed_items_reader(record: Record[Any]) -> Typed:
    """What `functions.items_reader` makes, with types."""
    made = f"read_each_{record.kind.__name__}"
    return write_items_reader(record, TypedReader).typed(made, OF_ITEMS, "tuple[Any, i64]")


@cache
def typed_items_checker(record: Record[Any]) -> Typed:
    """What `functions.items_checker` makes, with types."""
    return write_items_checker(record, TypedReader).typed(
        f"check_each_{record.kind.__name__}", OF_ITEMS, "i64"
    )


def module(functions: Iterable[Typed]) -> str:
    """The source of a module that has these functions."""
    each = {one.name: one for function in functions for one in function.each()}
    kinds = {(kind.__module__, kind.__name__) for one in each.values() for kind in one.kinds}
    formats = {codes for one in each.values() for codes in one.formats}
    return "\n".join(
        [
            HEAD.rstrip(),
            *(f"from {where} import {name}" for where, name in sorted(kinds)),
            FOR_TYPES,
            *(f'{name_of(codes)}: Final = Struct("{codes}").unpack_from' for codes in sorted(formats)),
            *(f"\n\n{one.source.rstrip()}" for one in each.values()),
            "\n\nDIGESTS: Final[dict[str, str]] = {",
            *(f'    "{name}": "{one.digest}",' for name, one in each.items()),
            "}\n",
        ]
    )


@cache
def compiled() -> ModuleType | None:
    """The module that the build has; None where there is none."""
    try:
        return import_module(COMPILED)
    except ModuleNotFoundError as error:
        if error.name != COMPILED:
            raise
        return None


def chosen(written: Callable[[], Typed], generate: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The function that the build has, or else one that is made now.

    Raises:
        ImportError: what the build has was made of other layouts.
    """
    if (there := compiled()) is None:
        return generate()
    function = written()
    if function.name not in there.DIGESTS:
        return generate()
    if there.DIGESTS[function.name] != function.digest:
        raise ImportError(
            f"{function.name} was compiled from other layouts: build the wheel anew, by make fast"
        )
    made: Callable[..., Any] = getattr(there, function.name)
    return made


def reader(record: Record[Any]) -> Callable[..., Any]:
    """`functions.reader`, compiled where the build has it."""
    return chosen(lambda: typed_reader(record), lambda: functions.reader(record))


def checker(record: Record[Any]) -> Callable[[bytes], None]:
    """`functions.checker`, compiled where the build has it."""
    return chosen(lambda: typed_checker(record), lambda: functions.checker(record))


def finder(record: Record[Any], name: str) -> Callable[[bytes], int]:
    """`functions.finder`, compiled where the build has it."""
    return chosen(lambda: typed_finder(record, name), lambda: functions.finder(record, name))
