"""Finds out from the layouts which fields are counts, which are constant, and which bits have names.

Mutations rely on this: a new field of a layout is mutated according to its purpose, which is stated only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from construct import Const, Rebuild, Subconstruct

from mqproto.wire.layouts.ping import ping_packet
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import INTERNAL_PACKETS, user_message_packet
from mqproto.wire.schema.generator.source import BinExpr, FuncPath
from mqproto.wire.schema.layout import Layout, Must, bare
from mqproto.wire.schema.parts import Holding, OneOf, When
from mqproto.wire.schema.record import Bits, Record, names_of_bits


class NamedBits(NamedTuple):
    """Some bits of a flag word: the lowest of them, and the largest number that fits into them."""

    name: str
    first: int
    limit: int


class Role(NamedTuple):
    """The purpose of one field.

    derived: whether it follows from other fields, as a length, a size or a count does.
    constant: whether it always has the same value.
    limits: numbers that occur in the rules about the field.
    bits: those of its bits that have names.
    """

    derived: bool = False
    constant: bool = False
    limits: frozenset[int] = frozenset()
    bits: tuple[NamedBits, ...] = ()


def numbers_in(expression: Any) -> Iterator[int]:
    """Yield the numbers in a `this` expression."""
    match expression:
        case bool():
            pass
        case int():
            yield expression
        case BinExpr():
            yield from numbers_in(expression.lhs)
            yield from numbers_in(expression.rhs)
        case FuncPath():
            yield from numbers_in(expression._FuncPath__operand)


def named_bits(kind: type | None, word: str) -> tuple[NamedBits, ...]:
    """Return the names that a record gives to the bits of one of its words."""
    found = []
    for name, bits in names_of_bits(kind) if kind else ():
        if bits.attribute != word:
            continue
        if isinstance(bits, Bits):
            found.append(NamedBits(name, bits.first, bits.limit))
        else:
            found.append(NamedBits(name, bits.mask.bit_length() - 1, 1))
    return tuple(found)


def layouts_in(part: Any, kind: type | None = None) -> Iterator[tuple[Layout, type | None]]:
    """Yield each layout within a part, together with the record to which the layout belongs."""
    match bare(part):
        case Record() as record:
            yield from layouts_in(record.layout, record.kind)
        case Layout() as layout:
            yield layout, kind
            for inner in layout.subcons:
                yield from layouts_in(inner)
        case When() as when:
            yield from layouts_in(when.part)
        case OneOf() as choice:
            for case in choice.cases.values():
                yield from layouts_in(case)
        case Holding() as bytes_of:
            yield from layouts_in(bytes_of.held)
        case Subconstruct() as around:
            yield from layouts_in(around.subcon)


def _roles() -> dict[tuple[str, str], Role]:
    roles: dict[tuple[str, str], Role] = {}
    for whole in (user_message_packet, session_header, ping_packet, *INTERNAL_PACKETS.values()):
        for layout, kind in layouts_in(whole):
            rules = [part for part in map(bare, layout.subcons) if isinstance(part, Must)]
            for part in layout.subcons:
                if not part.name:
                    continue
                limits = (numbers_in(rule.condition) for rule in rules if rule.field == part.name)
                roles[layout.section, part.name] = Role(
                    derived=isinstance(bare(part), Rebuild),
                    constant=isinstance(bare(part), Const),
                    limits=frozenset(number for each in limits for number in each),
                    bits=named_bits(kind, part.name),
                )
    return roles


ROLES: Final = _roles()
"""The roles, keyed by the section of the specification and the field's name in its layout."""

PLAIN: Final = Role()


def role_of(section: str, name: str) -> Role:
    """Return the role of a field of an inspected packet; PLAIN if the layouts say nothing about it."""
    return ROLES.get((section, name.rpartition(".")[2]), PLAIN)
