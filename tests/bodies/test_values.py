from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.bodies import Above, DateTime, Mention, TimeSpan, Tree, Value, from_json, to_json
from tests.bodies.values import ANY_LEAF, TIMES

ANY_VALUE: st.SearchStrategy[Value] = st.recursive(
    st.one_of(
        ANY_LEAF,
        st.none(),
        st.binary(),
        st.sampled_from([float("inf"), float("-inf")]),
        st.builds(TimeSpan, st.integers(-(2**63), 2**63 - 1)),
        st.builds(Above, st.integers(1, 100)),
        st.builds(Mention, st.text()),
        st.decimals(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.builds(
            Tree,
            st.text(max_size=5),
            st.lists(st.tuples(st.sampled_from(["a", "b", "$type", "$guid", ""]), inner), max_size=4).map(
                tuple
            ),
        ),
    ),
    max_leaves=12,
)


@given(ANY_VALUE)
def test_a_value_comes_back_from_json(value: Value) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


def test_json_says_what_it_has_no_form_for_by_one_key() -> None:
    tree = Tree(
        "Order", (("Id", "5"), ("Price", Decimal("2.50")), ("At", DateTime.parse("2024-01-02T03:04:05.5Z")))
    )
    assert to_json(tree) == {
        "$type": "Order",
        "Id": "5",
        "Price": {"$decimal": "2.50"},
        "At": {"$dateTime": "2024-01-02T03:04:05.5Z"},
    }
    assert to_json(float("nan")) == {"$double": "NaN"}
    assert tree["Id"] == "5"
    with pytest.raises(KeyError):
        tree["None"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"$guid": 5}, "is '5'"),
        ({"$again": 5}, "is '5'"),
        ({"$decimal": "x"}, "not such a value"),
        ({"$base64": "?"}, "not such a value"),
        ({"$dateTime": "2024-02-30T00:00:00"}, "not such a value"),
        ({"$type": 5, "a": 1}, "not an object"),
        ({"$members": [], "a": 1}, "not an object"),
        ({"$unknown": 1, "a": 1}, "not an object"),
        ({"$members": {"a": 1}}, "not a list of members"),
        ({"$members": [["a"]]}, "not a list of members"),
        ((1, 2), "not a value of JSON"),
    ],
)
def test_json_of_another_form_is_refused_by_name(data: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_json(data)


def test_json_that_is_nested_too_deep_is_refused() -> None:
    data: object = 1
    for _ in range(200):
        data = [data]
    with pytest.raises(UsageError, match="deeper than 100"):
        from_json(data)


def test_json_of_more_values_than_anybody_reads_is_refused() -> None:
    assert from_json([[0] * 1_000] * 100) == [[0] * 1_000] * 100
    with pytest.raises(UsageError, match="more than 200,000 values"):
        from_json([{"a": [0] * 999}] * 200)


@given(TIMES)
def test_a_time_is_what_its_text_says(time: DateTime) -> None:
    assert DateTime.parse(str(time)) == time


@given(
    st.datetimes(
        timezones=st.sampled_from(
            [None, UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-9))]
        )
    )
)
def test_a_time_of_python_comes_back_to_the_microsecond(time: datetime) -> None:
    assert DateTime.of(time).as_datetime == time
    assert DateTime.of(time).as_datetime.utcoffset() == time.utcoffset()


def test_a_time_without_a_known_zone_is_naive() -> None:
    assert DateTime(0, "local").as_datetime.tzinfo is None
    assert str(DateTime(0, "local")) == "0001-01-01T00:00:00 local"
    assert str(TimeSpan(-15_000_000)) == "-1.5000000 s"


@pytest.mark.parametrize(("ticks", "zone"), [(-1, ""), (2**62, ""), (0, "+1"), (0, "+15:00"), (0, "CET")])
def test_a_time_that_is_none_is_refused(ticks: int, zone: str) -> None:
    with pytest.raises(UsageError):
        DateTime(ticks, zone)
