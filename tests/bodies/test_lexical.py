from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.bodies import DateTime, Tree, Value
from mqproto.bodies.lexical import TYPES, parse, type_of
from tests.bodies.values import LEAVES

TYPED = st.sampled_from(sorted(TYPES)).flatmap(lambda name: st.tuples(st.just(name), LEAVES[name]))


@given(TYPED)
def test_a_value_is_what_its_text_says(typed: tuple[str, Value]) -> None:
    name, value = typed
    assert parse(name, TYPES[name].form(value)) == value


@given(st.sampled_from(sorted(TYPES)), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_is_a_value_or_refused(name: str, text: str) -> None:
    try:
        value = parse(name, text)
    except ValueError:
        return
    assert parse(name, TYPES[name].form(value)) == value or name == "decimal"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("boolean", "True"),
        ("boolean", ""),
        ("byte", "128"),
        ("int", "1_0"),
        ("int", "٣"),
        ("unsignedLong", "-1"),
        ("long", "9" * 5_000),
        ("double", "nan"),
        ("double", "Infinity"),
        ("double", "1_0"),
        ("float", "1e39"),
        ("decimal", "1e5"),
        ("decimal", f".{'20' * 15}"),
        ("decimal", str(2**96)),
        ("decimal", "NaN"),
        ("char", "55296"),
        ("char", "a"),
        ("guid", "{557358d1-5055-9591-9549-97b6e611ea26}"),
        ("dateTime", "2024-01-02"),
        ("dateTime", "2024-13-02T00:00:00"),
        ("dateTime", "2024-01-02T00:00:00 local"),
        ("base64Binary", "A"),
    ],
)
def test_a_text_that_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse(name, text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int", True),
        ("int", 2**31),
        ("int", "5"),
        ("boolean", 1),
        ("double", "1"),
        ("double", 10**400),
        ("float", 1e39),
        ("decimal", Decimal("NaN")),
        ("decimal", Decimal(2**96)),
        ("decimal", Decimal("1e-29")),
        ("decimal", Decimal("1e999999")),
        ("decimal", 1.5),
        ("char", "ab"),
        ("char", "😀"),
        ("string", 5),
        ("base64Binary", "AQI="),
        ("dateTime", "2024-01-02T00:00:00"),
        ("guid", "557358d1-5055-9591-9549-97b6e611ea26"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Value) -> None:
    with pytest.raises(UsageError):
        TYPES[name].form(value)


def test_white_space_around_a_value_is_none_of_it_but_in_a_string() -> None:
    assert parse("int", "\r\n 5 ") == 5
    assert parse("string", " 5 ") == " 5 "
    assert parse("base64Binary", " AQ\r\nI= ") == b"\x01\x02"


def test_the_type_that_says_most_of_a_value() -> None:
    assert [type_of(value) for value in (True, 1, 2**31, 2**63, 2**64, 1.5)] == [
        "boolean", "int", "long", "unsignedLong", None, "double",
    ]  # fmt: skip
    assert type_of(Tree("x")) is None
    assert TYPES["dateTime"].form(DateTime(0, "local")) == "0001-01-01T00:00:00"
    assert TYPES["dateTime"].form(datetime(2024, 1, 2, tzinfo=UTC)) == "2024-01-02T00:00:00Z"  # type: ignore[arg-type]
    assert TYPES["decimal"].form(5) == "5"
