"""Layouts in Lua: each part has a translation, and unknown parts are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from construct import Byte, Bytes, Float32l, GreedyRange, Int16ub, Int16ul, Int32ul, this

from mqproto.captures.wireshark.layouts import Inner, Leaf, Translator
from mqproto.wire.guid import Guid
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Absent, GuidOctets, Octets, OneOf, Pad4, Text, When
from mqproto.wire.schema.record import Record


@dataclass
class Two:
    one: int
    two: Guid | Any


def lines(*parts: Any) -> list[str]:
    """Return the translation of a layout with a number and one more field."""
    record = Record(Two, Layout("[MS-MQMQ] 0", "one" / Int16ul, *parts))
    return Translator().record(record).lines[1:]


@pytest.mark.parametrize(
    ("part", "lua"),
    [
        (Int32ul, ['number(this, "two", 4)']),
        (Octets(this.one), ['octets(this, "two", this.one)']),
        (Text(this.one * 2), ['text(this, "two", (this.one * 2))']),
        (Pad4(), ['padding(this, "two")']),
        (
            When(this.one & 2, Int32ul),
            ["if (keep(this.one, 1, 1) ~= 0) then", '  number(this, "two", 4)', "end"],
        ),
    ],
)
def test_each_part_has_its_words(part: Any, lua: list[str]) -> None:
    assert lines("two" / part) == lua


def test_a_rule_names_its_field_its_value_and_its_limit() -> None:
    rule = Must("one", this.one <= 9, "at most 9", part="low", value=this.one & 1)
    assert lines(rule, "two" / Byte) == [
        "if not (this.one <= 9) then",
        '  broken(this, "one", "low", keep(this.one, 0, 1), "at most 9")',
        "end",
        'number(this, "two", 1)',
    ]


def test_a_choice_ends_with_what_is_said_when_there_is_none() -> None:
    nothing = Absent()
    assert lines("two" / OneOf(this.one, {0: nothing, 1: nothing, 2: Int32ul, 3: GuidOctets()})) == [
        "do",
        "  local choice = this.one",
        "  if choice == 0 or choice == 1 then",
        "    -- nothing",
        "  elseif choice == 2 then",
        '    number(this, "two", 4, ".identifier")',
        "  elseif choice == 3 then",
        '    octets(this, "two", 16, ".guid")',
        "  else",
        '    no_case(this, "two", choice, "one of 0, 1, 2, 3")',
        "  end",
        "end",
    ]


def test_cases_of_one_kind_have_one_name() -> None:
    choice = OneOf(this.one, {1: Octets(0), 2: Pad4()})
    assert [line.strip() for line in lines("two" / choice) if "two" in line] == [
        'octets(this, "two", 0)',
        'padding(this, "two")',
        'no_case(this, "two", choice, "one of 1, 2")',
    ]


def test_bytes_are_a_guid_where_the_layout_says_so() -> None:
    @dataclass
    class Named:
        guid: Guid | None
        data: bytes

    record = Record(Named, Layout("[MS-MQMQ] 0", "guid" / GuidOctets(), "data" / Octets(16)))
    assert Translator().record(record).members == [Leaf("guid", "guid"), Leaf("data", "bytes")]


def test_layouts_within_layouts_come_first_and_once() -> None:
    inner = Record(Two, Layout("[MS-MQMQ] 1", "one" / Int16ul, "two" / Int16ul))
    outer = Record(Two, Layout("[MS-MQMQ] 2", "one" / inner, "two" / inner))
    translator = Translator()
    whole = translator.record(outer)
    found = [(layout.name, layout.section) for layout in translator.translated]
    assert found == [("Two2", "[MS-MQMQ] 1"), ("Two", "[MS-MQMQ] 2")]
    first = translator.translated[0]
    assert whole.members == [Inner("one", first), Inner("two", first)]
    assert whole.lines == ['inside(this, "one", layouts.Two2)', 'inside(this, "two", layouts.Two2)']


@pytest.mark.parametrize(
    "part",
    [
        Float32l,
        Int16ub,
        Bytes(this.one),
        GreedyRange(Byte),
        When(this.one // 2, Int32ul),
        OneOf(this.one, {1: Int32ul, 2: Octets(4)}),
        Octets(lambda context: 4),
    ],
)
def test_what_a_layout_has_that_is_not_known_is_refused(part: Any) -> None:
    with pytest.raises(NotImplementedError):
        lines("two" / part)
