"""The fields that Wireshark registers, with the details that it shows.

Each field comes once, under its filter name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from mqproto.captures.wireshark.expressions import bit_places, quoted
from mqproto.captures.wireshark.layouts import Leaf, Translated
from mqproto.captures.wireshark.meanings import HEXADECIMAL, MEANINGS, Meanings, title
from mqproto.wire.schema.record import Bit, Bits, names_of_bits

PREFIX: Final = "msmq."


@dataclass(frozen=True, slots=True)
class Field:
    """One of Wireshark's fields.

    name: its name in filters, such as `msmq.base.flags.internal`.
    kind: uint8, uint16, uint32, guid, bytes, string, none or bool.
    sections: the sections of the specification that define it.
    bits: for a bool, the width of the word that contains it.
    mask: the field's bits in that word; 0 for a field that is not part of a flag word.
    meanings: the key in MEANINGS under which the names of its values are found.
    """

    name: str
    kind: str
    title: str
    sections: tuple[str, ...]
    is_hex: bool = False
    mask: int = 0
    bits: int = 0
    meanings: tuple[type, str] | None = None

    @property
    def source(self) -> str:
        """The call in Wireshark's Lua that makes the field.

        Its arguments are the name, the title, those that the kind needs, and the description.
        """
        names = f"values.{table_name(self.meanings)}" if self.meanings else "nil"
        mask = f"{self.mask:#x}" if self.mask else "nil"
        match self.kind:
            case "bool":
                further = f"{self.bits}, nil, {mask}, "
            case "bytes":
                further = "base.NONE, "
            case "string":
                further = "base.UNICODE, "
            case "guid" | "none":
                further = ""
            case _:
                further = f"base.{'HEX' if self.is_hex else 'DEC'}, {names}, {mask}, "
        said = quoted(", ".join(self.sections))
        return f"ProtoField.{self.kind}({quoted(self.name)}, {quoted(self.title)}, {further}{said})"


def table_name(key: tuple[type, str]) -> str:
    """Return the name of the Lua table with the names of a field's values."""
    return f"{key[0].__name__}_{key[1]}"


def fields_of(roots: list[tuple[str, Translated]]) -> dict[str, Field]:
    """Return all fields of some layouts, keyed by name.

    Args:
        roots: each layout, preceded by the prefix of its fields' names: `msmq.ping.`, `msmq.`.

    Raises:
        NotImplementedError: two fields of different kinds have the same name.
    """
    fields: dict[str, Field] = {}
    for prefix, layout in roots:
        for field in _walk(prefix, layout):
            known = fields.setdefault(field.name, field)
            if replace(known, sections=()) != replace(field, sections=()):
                raise NotImplementedError(f"{field.name} would be {known.kind} and {field.kind} in Wireshark")
            if field.sections[0] not in known.sections:
                fields[field.name] = replace(known, sections=known.sections + field.sections)
    return fields


def _walk(prefix: str, layout: Translated) -> Iterator[Field]:
    """Yield the fields of a layout and of its inner layouts; each flag word is followed by its bits."""
    for member in layout.members:
        name = prefix + member.name
        if isinstance(member, Leaf):
            yield from _leaf(name, member, layout)
        else:
            inner = member.layout
            record = inner.record.__name__ if inner.record else ""
            shown = record if record.endswith("Header") else title(member.name)
            if not member.is_held:
                yield Field(name, "none", shown, (inner.section,))
            yield from _walk(f"{name}.", inner)


def _leaf(name: str, leaf: Leaf, layout: Translated) -> Iterator[Field]:
    section = (layout.section,)
    bits = dict(bits_of(layout.record, leaf.name))
    key = _meant(layout.record, leaf.name)
    own_name = leaf.name.partition(".")[0]
    is_hex = bool(bits) or leaf.is_code or leaf.name in HEXADECIMAL
    yield Field(name, leaf.kind, title(own_name), section, is_hex=is_hex, meanings=key)
    for part, place in bits.items():
        kind = "bool" if isinstance(place, Bit) else leaf.kind
        yield Field(
            f"{name}.{part}",
            kind,
            title(part),
            section,
            mask=place.mask,
            bits=int(leaf.kind.removeprefix("uint")) if kind == "bool" else 0,
            meanings=_meant(layout.record, part),
        )


def bits_of(record: type | None, word: str) -> Iterator[tuple[str, Bit | Bits]]:
    """Return an iterator over the named bits of a flag word, the lowest first."""
    places = (
        [(name, each) for name, each in names_of_bits(record) if each.attribute == word] if record else []
    )
    return iter(sorted(places, key=lambda place: place[1].mask & -place[1].mask))


def bit_table(record: type) -> str:
    """Return the named bits of all flag words of a record as a Lua table.

    For each name, it has the lowest bit and the number of bits.
    """
    places = {name: bit_places(each.mask) for name, each in names_of_bits(record)}
    return "{" + ", ".join(f"{name} = {{{first}, {width}}}" for name, (first, width) in places.items()) + "}"


def meanings_table(meanings: Meanings) -> str:
    """Return the names of a field's values as a Lua table."""
    return "{" + ", ".join(f"[{value}] = {quoted(name)}" for value, name in meanings.items()) + "}"


def _meant(record: type | None, name: str) -> tuple[type, str] | None:
    key = (record, name)
    return (record, name) if record and key in MEANINGS else None
