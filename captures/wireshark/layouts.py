"""Walks through the layouts of mqproto/wire and writes, for each, the Lua function that reads it.

The functions consist of calls (`number`, `octets`, `inside`, ...) to reading.lua. Any part of a layout that is not
known here raises NotImplementedError, so that no wrong dissector is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from construct import Const, FormatField, GreedyBytes, Subconstruct

from mqproto.captures.wireshark.expressions import checked, number, quoted, truth
from mqproto.wire.schema.generator.source import fixed_format, grouped
from mqproto.wire.schema.layout import Layout, Must, bare
from mqproto.wire.schema.parts import (
    Absent,
    Fits,
    GuidOctets,
    Holding,
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

INTEGERS: Final = {"B": 1, "H": 2, "L": 4, "I": 4}
"""The format codes of `struct` for unsigned numbers, with their sizes in bytes."""
CASES: Final = {"uint32": ".identifier", "guid": ".guid", "string": ".name"}
"""For each kind, the suffix that is added to a field's name if the layout allows several kinds; a Wireshark field has
only one kind.
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A field with a value.

    kind: its kind in Wireshark's words: uint8, uint16, uint32, guid, bytes or string.
    is_code: whether the number is a constant of the layout.
    """

    name: str
    kind: str
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Inner:
    """A field that is itself a layout.

    is_held: whether a field of bytes with the same name exists too, and may hold the layout.
    """

    name: str
    layout: Translated
    is_held: bool = False


@dataclass(slots=True)
class Translated:
    """One layout translated into Lua.

    name: the unique name of its function.
    record: the dataclass of its fields; None for a layout whose value is that of a single field.
    """

    name: str
    section: str
    record: type | None
    members: list[Leaf | Inner] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The layout's entry in the table of layouts, which reading.lua uses."""
        body = "".join(f"    {line}\n" for line in self.lines)
        return (
            f"layouts.{self.name} = {{\n  name = {quoted(self.name)},\n  section = {quoted(self.section)},\n"
            f"  read = function (this)\n{body}  end,\n}}\n"
        )


class Translator:
    """Translates layouts, each only once.

    translated: all layouts translated so far, inner ones before outer ones.
    """

    def __init__(self) -> None:
        self.translated: list[Translated] = []
        self._names: set[str] = set()
        self._known: dict[int, tuple[Layout, Translated]] = {}

    def record(self, record: Record[Any]) -> Translated:
        """Translate a record's layout and all layouts inside it; return the former.

        Raises:
            NotImplementedError: the layout has a part that Lua cannot express.
        """
        return self._layout(record.layout, record.kind, record.kind.__name__)

    def _layout(self, layout: Layout, record: type | None, name: str) -> Translated:
        if id(layout) in self._known:
            return self._known[id(layout)][1]
        unique = next(
            word for word in chain([name], (f"{name}{n}" for n in count(2))) if word not in self._names
        )
        self._names.add(unique)
        walk = _Walk(self, Translated(unique, layout.section, record))
        for part in layout.subcons:
            walk.part(bare(part), part.name or "")
        self._known[id(layout)] = (layout, walk.target)
        self.translated.append(walk.target)
        return walk.target

    def single(self, part: Single) -> Translated:
        """Translate the layout of a part whose value is the value of a single field of the layout."""
        return self._layout(part.layout, None, part.field.capitalize())


class _Walk:
    """Translates one layout into Lua, part by part."""

    def __init__(self, translator: Translator, target: Translated) -> None:
        self.translator = translator
        self.target = target
        self.depth = 0

    def emit(self, line: str) -> None:
        self.target.lines.append("  " * self.depth + line)

    def part(self, part: Any, name: str, suffix: str = "") -> None:
        """Emit the code that reads a part, and record its fields."""
        named = f'this, "{checked(name)}"' if name else "this"
        match part:
            case Must():
                self._must(part)
            case Fits():
                self.emit(f'fits(this, "{checked(part.counted)}", {part.unit}, {quoted(part.known_as)})')
            case Const():
                self._leaf(Leaf(name, f"uint{8 * self._size(part)}", is_code=True))
                self.emit(f"constant({named}, {self._size(part)}, {number(part.value)})")
            case _ if fixed_format(part) is not None and not isinstance(part, Octets):
                self._leaf(Leaf(name + suffix, self.kind(part, name)))
                self.emit(f"number({named}, {self._size(part)}{_further(suffix)})")
            case Holding():
                self._leaf(Leaf(name, "bytes"))
                self.emit(f"octets({named}, {number(part.length)})")
                held = self._inner(name, self.translator.record(part.held), is_held=True)
                self.emit(f"holding({named}, layouts.{held})")
            case Octets():
                self._leaf(Leaf(name + suffix, self.kind(part, name)))
                self.emit(f"octets({named}, {number(part.length)}{_further(suffix)})")
            case Pad4():
                self._leaf(Leaf(name, "bytes"))
                self.emit(f"padding({named})")
            case Text():
                self._leaf(Leaf(name, "string"))
                self.emit(f"text({named}, {number(part.size)})")
            case TerminatedText():
                self._leaf(Leaf(name + suffix, "string"))
                self.emit(f"terminated({named}{_further(suffix)})")
            case _ if part is GreedyBytes or isinstance(part, PaddedRest):
                self._leaf(Leaf(name, "bytes"))
                self.emit(f"rest({named})")
            case Record():
                self.emit(f"inside({named}, layouts.{self._inner(name, self.translator.record(part))})")
            case Single():
                self.emit(f"inside({named}, layouts.{self._inner(name, self.translator.single(part))})")
            case Window(subcon=Record() as record):
                inner = self._inner(name, self.translator.record(record))
                self.emit(f"window({named}, {number(part.size)}, layouts.{inner})")
            case Repeated(subcon=Record() as record):
                inner = self._inner(name, self.translator.record(record))
                self.emit(f"repeated({named}, {number(part.count)}, layouts.{inner})")
            case When():
                self.emit(f"if {truth(part.condition)} then")
                self._branch(part.part, name)
                self.emit("end")
            case OneOf():
                self._one_of(part, name)
            case Absent():
                self.emit("-- nothing")
            case _:
                raise NotImplementedError(f"{part!r} in the layout of {self.target.name}, for Wireshark")

    def kind(self, part: Any, name: str) -> str:
        """Return Wireshark's kind for the value of a leaf."""
        if isinstance(part, TerminatedText):
            return "string"
        if isinstance(part, GuidOctets):
            return "guid"
        if isinstance(part, Octets | Pad4):
            return "bytes"
        return f"uint{8 * self._size(part)}"

    @staticmethod
    def _size(part: Any) -> int:
        """Return the size of an unsigned number in bytes; every such number is little-endian."""
        while isinstance(part, Subconstruct):
            part = part.subcon
        code = str(part.fmtstr) if isinstance(part, FormatField) else ""
        size = INTEGERS.get(code[1:], 0)
        if not size or (size > 1 and code[0] != "<"):
            raise NotImplementedError(f"{part!r}, a number of format {code!r}, for Wireshark")
        return size

    def _leaf(self, leaf: Leaf) -> None:
        if leaf not in self.target.members:
            self.target.members.append(leaf)

    def _inner(self, name: str, layout: Translated, *, is_held: bool = False) -> str:
        inner = Inner(name, layout, is_held)
        if inner not in self.target.members:
            self.target.members.append(inner)
        return layout.name

    def _must(self, rule: Must) -> None:
        value = f"this.{checked(rule.field)}" if rule.value is None else number(rule.value)
        names = f"{quoted(rule.field)}, {quoted(rule.part or rule.field)}"
        self.emit(f"if not {truth(rule.condition)} then")
        if rule.is_last:
            self.emit(f"  refuse(this, {quoted(rule.field)}, {value}, {quoted(rule.limit)})")
        else:
            self.emit(f"  broken(this, {names}, {value}, {quoted(rule.limit)})")
        self.emit("end")

    def _branch(self, part: Any, name: str, suffix: str = "") -> None:
        self.depth += 1
        self.part(part, name, suffix)
        self.depth -= 1

    def _one_of(self, part: OneOf, name: str) -> None:
        self.emit("do")
        self.depth += 1
        self.emit(f"local choice = {number(part.choice)}")
        suffixes = self._suffixes(part, name)
        for word, case, keys in grouped(part):
            condition = " or ".join(f"choice == {key}" for key in keys)
            self.emit(f"{'elseif' if word == 'elif' else word} {condition} then")
            self._branch(case, name, suffixes.get(id(case), ""))
        self.emit("else")
        limit = "one of " + ", ".join(map(str, part.cases))
        self.emit(f'  no_case(this, "{checked(name)}", choice, {quoted(limit)})')
        self.emit("end")
        self.depth -= 1
        self.emit("end")

    def _suffixes(self, part: OneOf, name: str) -> dict[int, str]:
        """Return the suffixes that distinguish the names of a choice's cases, keyed by the `id` of each case."""
        present = [case for case in part.cases.values() if not isinstance(case, Absent)]
        leaves = [case for case in present if not isinstance(case, Record | Single)]
        kinds = {id(case): self.kind(case, name) for case in leaves}
        if len(leaves) == len(present) and len(set(kinds.values())) == 1:
            return {}
        if not CASES.keys() >= set(kinds.values()):
            raise NotImplementedError(
                f"{name} is one of {[*kinds.values()]}, which have no names for Wireshark"
            )
        return {case: CASES[kind] for case, kind in kinds.items()}


def _further(suffix: str) -> str:
    return f', "{suffix}"' if suffix else ""
