"""Expressions of layouts in Lua: some are translated, and others are refused."""

from __future__ import annotations

from typing import Any

import pytest
from construct import this

from mqproto.captures.wireshark.expressions import bit_places, checked, number, quoted, quoted_bytes, truth
from mqproto.wire.schema.parts import is_one_of, wide_size_


@pytest.mark.parametrize(
    ("expression", "lua"),
    [
        (7, "7"),
        (this.size, "this.size"),
        (this._.element_count, "this._.element_count"),
        (this.base.flags, "this.base.flags"),
        (this.size * 2 - 1, "((this.size * 2) - 1)"),
        (this.flags & 0xFF, "keep(this.flags, 0, 8)"),
        (this.flags & 0x0100, "keep(this.flags, 8, 1)"),
        (this.flags >> 10 & 7, "keep(shift(this.flags, 10), 0, 3)"),
        (this.flags - 1 & 15, "keep((this.flags - 1), 0, 4)"),
    ],
)
def test_numbers_are_said_in_lua(expression: Any, lua: str) -> None:
    assert number(expression) == lua


@pytest.mark.parametrize(
    ("expression", "lua"),
    [
        (this.size >= 2, "(this.size >= 2)"),
        (this.size != 2, "(this.size ~= 2)"),
        (this.flags & 8, "(keep(this.flags, 3, 1) ~= 0)"),
        ((this.a == 0) | (this.b & 1), "((this.a == 0) or (keep(this.b, 0, 1) ~= 0))"),
        ((this.a <= 6) & is_one_of(this.a, 1, 2), "((this.a <= 6) and (keep(shift(6, this.a), 0, 1) ~= 0))"),
    ],
)
def test_conditions_are_true_where_python_has_something_other_than_zero(expression: Any, lua: str) -> None:
    assert truth(expression) == lua


@pytest.mark.parametrize(
    "expression",
    [
        True,
        "text",
        this._params.packet_size,
        wide_size_(this.label),
        this.flags & 0b101,
        this.flags & this.mask,
        this.size // 2,
        this.size == 2,
        this["end"],
    ],
)
def test_what_lua_cannot_say_is_no_number(expression: Any) -> None:
    with pytest.raises(NotImplementedError):
        number(expression)


def test_bits_of_both_sides_are_no_condition_where_only_one_is_a_truth_value() -> None:
    """In Python `True & 2` is 0."""
    with pytest.raises(NotImplementedError):
        truth((this.a == 1) & this.flags)
    with pytest.raises(NotImplementedError):
        truth((this.a == 1) & (this.flags & 2))


@pytest.mark.parametrize("name", ["end", "_item", "_", "a-b", "1st", "täglich"])
def test_a_field_whose_name_lua_takes_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(NotImplementedError):
        checked(name)


@pytest.mark.parametrize(
    ("mask", "places"), [(1, (0, 1)), (0xFF, (0, 8)), (0x00FFFFF0, (4, 20)), (8, (3, 1))]
)
def test_a_mask_is_its_lowest_bit_and_its_width(mask: int, places: tuple[int, int]) -> None:
    assert bit_places(mask) == places


@pytest.mark.parametrize("mask", [0, 5, 0x90, -1])
def test_a_mask_with_gaps_is_refused(mask: int) -> None:
    with pytest.raises(NotImplementedError):
        bit_places(mask)


def test_texts_are_quoted_in_ascii() -> None:
    assert quoted('a"b\\c\n1é') == '"a\\"b\\\\c\\0101\\195\\169"'
    assert quoted_bytes(b"\0009\xff") == '"\\0009\\255"'
