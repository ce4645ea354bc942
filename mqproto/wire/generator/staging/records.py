"""Gives dataclasses an `__init__` that a compiler sees.

Python's own `dataclass` writes one while the program starts. mypyc compiles the class, and leaves that to the
interpreter: to make a record took longer than all that a compiled function does with it. Of the same fields, with the
same defaults, this writes a method of one line into the blank line that follows a class, so that no line of the module
moves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

DESCRIPTORS: Final = frozenset({"Bit", "Bits"})
"""What names bits of a word is of the class, and no field of each record; mypyc has to be told."""
FUTURE: Final = "from __future__ import annotations"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record: its type, and its default or what makes one, as they are written."""

    name: str
    kind: str
    default: str | None = None
    factory: str | None = None

    @property
    def argument(self) -> str:
        """What `__init__` takes for it."""
        if self.factory is not None:
            return f"{self.name}: {self.kind} | None = None"
        return f"{self.name}: {self.kind}" + (f" = {self.default}" if self.default is not None else "")

    @property
    def statement(self) -> str:
        """How it is set."""
        made = f" if {self.name} is not None else ({self.factory})()" if self.factory is not None else ""
        return f"self.{self.name} = {self.name}{made}"


def with_inits(source: str) -> str:
    """The same module, in which each dataclass has its `__init__`."""
    lines = source.split("\n")
    known: dict[str, list[Field]] = {}
    told = False
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or (options := options_of(node)) is None:
            continue
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        if len(bases) != len(node.bases) or any(base not in known for base in bases):
            continue  # Its base has fields that are not seen here.
        fields = [field for base in bases for field in known[base]] + [*fields_of(node)]
        known[node.name] = fields
        if descriptors := [*descriptors_of(node)]:
            set_apart(node, descriptors, lines)
            told = True
        if fields and not has(node, "__init__") and not has(node, "__post_init__"):
            at = node.end_lineno or 0
            if at >= len(lines) or lines[at]:
                raise ValueError(f"class {node.name} ends in line {at}, and no blank line follows")
            lines[at] = init_of(fields, kw_only="kw_only" in options)
    if told:
        lines[lines.index(FUTURE)] = f"{FUTURE}; from typing import ClassVar"
    return "\n".join(lines)


def options_of(node: ast.ClassDef) -> set[str] | None:
    """What is asked of `dataclass`; None of a class that is none."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Name(id="dataclass"):
                return set()
            case ast.Call(func=ast.Name(id="dataclass"), keywords=keywords):
                return {keyword.arg or "" for keyword in keywords}
    return None


def fields_of(node: ast.ClassDef) -> Iterator[Field]:
    """The fields of a dataclass, its bases' left out."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(name), annotation=annotation, value=value):
                kind = ast.unparse(annotation)
                if kind.startswith("ClassVar"):
                    continue
                match value:
                    case None:
                        yield Field(name, kind)
                    case ast.Call(func=ast.Name(id="field"), keywords=keywords):
                        given = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
                        yield Field(name, kind, given.get("default"), given.get("default_factory"))
                    case _:
                        yield Field(name, kind, ast.unparse(value))


def descriptors_of(node: ast.ClassDef) -> Iterator[ast.Assign]:
    """What names bits of a word."""
    for statement in node.body:
        match statement:
            case ast.Assign(value=ast.Call(func=ast.Name(id))) if id in DESCRIPTORS:
                yield statement


def set_apart(node: ast.ClassDef, descriptors: list[ast.Assign], lines: list[str]) -> None:
    """Give a class a base that has its names of bits, in the blank line before it: mypyc would make fields of them."""
    base, before = f"{node.name}Bits", node.decorator_list[0].lineno - 2
    head = f"class {node.name}:"
    if lines[before] or lines[node.lineno - 1] != head:
        raise ValueError(f"line {node.lineno} is no {head!r} with a blank line before it")
    named = [f"{ast.unparse(each.targets[0])}: ClassVar = {ast.unparse(each.value)}" for each in descriptors]
    lines[before] = f"class {base}: {'; '.join(named)}"
    lines[node.lineno - 1] = f"class {node.name}({base}):"
    for each in descriptors:
        lines[each.lineno - 1] = ""


def has(node: ast.ClassDef, name: str) -> bool:
    """Whether a class has a method of its own."""
    return any(isinstance(statement, ast.FunctionDef) and statement.name == name for statement in node.body)


def init_of(fields: Iterable[Field], *, kw_only: bool) -> str:
    """The method, in one line. Of a frozen record nobody but this sets a field."""
    fields = list(fields)
    arguments = ", ".join(["self", *(["*"] if kw_only else []), *(field.argument for field in fields)])
    statements = "; ".join(field.statement for field in fields)
    return f"    def __init__({arguments}) -> None: {statements}  # type: ignore[misc]"
