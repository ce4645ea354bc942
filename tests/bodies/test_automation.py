from __future__ import annotations

import re
import struct
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.bodies import DateTime, Tree, UnexplainedError, Value
from mqproto.bodies.automation import BY_NAME, BY_NUMBER
from tests.bodies.values import LEAVES, TEXTS

WINE: Final = Path(__file__).with_name("variants.txt").read_text("utf-8").splitlines()
"""The results that Wine's oleaut32 and ole32 give for some bytes. variants.c says how they were made."""
DATES = st.integers(0, 9_899 * 365 * 86_400_000).map(lambda ms: DateTime((36_160 * 86_400_000 + ms) * 10_000))
VALUES: Final[dict[str, st.SearchStrategy[Value]]] = {
    "VT_NULL": st.none(),
    "VT_I2": LEAVES["short"],
    "VT_I4": LEAVES["int"],
    "VT_R4": LEAVES["float"],
    "VT_R8": LEAVES["double"],
    "VT_CY": st.integers(-(2**63), 2**63 - 1).map(lambda number: Decimal(number).scaleb(-4)),
    "VT_DATE": DATES,
    "VT_BSTR": TEXTS,
    "VT_BOOL": st.booleans(),
    "VT_I1": LEAVES["byte"],
    "VT_UI1": LEAVES["unsignedByte"],
    "VT_UI2": LEAVES["unsignedShort"],
    "VT_UI4": LEAVES["unsignedInt"],
    "VT_I8": LEAVES["long"],
    "VT_UI8": LEAVES["unsignedLong"],
    "VT_LPSTR": st.text(st.characters(min_codepoint=1, max_codepoint=127)),
    "VT_LPWSTR": TEXTS.filter(lambda text: "\0" not in text),
    "VT_STREAMED_OBJECT": st.builds(
        lambda clsid, data: Tree("VT_STREAMED_OBJECT", (("clsid", clsid), ("data", data))),
        st.uuids(),
        st.binary(),
    ),
    "VT_CLSID": st.uuids(),
    "VT_VECTOR|VT_UI1": st.binary(),
    "VT_ARRAY|VT_UI1": st.binary(),
}


@pytest.mark.parametrize("line", WINE)
def test_oleaut32_says_the_same(line: str) -> None:
    name, data, said = line.split(" ", 2)
    body = b"" if data == "-" else bytes.fromhex(data)
    value = BY_NAME[name].read(body)
    if name == "VT_DATE":
        # Of the double that is nearest to a time oleaut32 differs by some of its last bits.
        [ours], [theirs] = (struct.unpack("<d", data) for data in (BY_NAME[name].write(value), body))
        assert abs(ours - theirs) < 1e-10
    else:
        assert BY_NAME[name].write(value) == body
    match value:
        case bool():
            assert value == (said == "-1")
        case int():
            assert value == int(said)
        case float():
            assert value == float(said)
        case Decimal():
            assert value == Decimal(said)
        case UUID():
            assert value == UUID(said)
        case Tree():
            assert value["data"] == said.encode()
        case str():
            assert value == said.replace(r"\r\n", "\r\n")
        case _:
            assert str(value) == said


def test_each_type_has_been_asked_of_oleaut32_or_is_bytes_or_text() -> None:
    asked = {line.split(" ")[0] for line in WINE}
    assert BY_NAME.keys() - asked == {
        "VT_NULL",
        "VT_LPSTR",
        "VT_LPWSTR",
        "VT_VECTOR|VT_UI1",
        "VT_ARRAY|VT_UI1",
    }


@pytest.mark.spec("[MS-MQMQ] 2.2.12")
@given(st.sampled_from(sorted(VALUES)).flatmap(lambda name: st.tuples(st.just(name), VALUES[name])))
def test_a_value_of_each_type_comes_back(typed: tuple[str, Value]) -> None:
    name, value = typed
    variant = BY_NAME[name]
    assert BY_NUMBER[variant.number] is variant
    assert variant.read(variant.write(value)) == value


@given(st.sampled_from(sorted(BY_NUMBER)), st.binary(max_size=24))
def test_any_bytes_are_a_value_or_not_explained(number: int, body: bytes) -> None:
    try:
        value = BY_NUMBER[number].read(body)
    except UnexplainedError:
        return
    if value == value:
        assert BY_NUMBER[number].read(BY_NUMBER[number].write(value)) == value


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("VT_I4", b"123"),
        ("VT_I4", b"12345"),
        ("VT_BOOL", b""),
        ("VT_NULL", b"x"),
        ("VT_BSTR", b"x"),
        ("VT_LPSTR", b"\xe4"),
        ("VT_LPWSTR", b"\x00\xd8"),
        ("VT_DATE", struct.pack("<d", float("nan"))),
        ("VT_DATE", struct.pack("<d", 1e9)),
        ("VT_CLSID", b""),
        ("VT_STREAMED_OBJECT", b"short"),
    ],
)
def test_a_body_that_its_type_does_not_explain_is_refused(name: str, body: bytes) -> None:
    with pytest.raises(UnexplainedError, match=re.escape(name)):
        BY_NAME[name].read(body)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VT_I1", 128),
        ("VT_UI1", -1),
        ("VT_I4", True),
        ("VT_I4", 1.5),
        ("VT_R4", 1e39),
        ("VT_R8", "1"),
        ("VT_BOOL", 1),
        ("VT_NULL", 0),
        ("VT_CY", Decimal("0.00001")),
        ("VT_CY", Decimal(10**15)),
        ("VT_CY", Decimal("NaN")),
        ("VT_CY", 1.5),
        ("VT_DATE", DateTime(0)),
        ("VT_DATE", "2024-01-02T00:00:00"),
        ("VT_BSTR", 5),
        ("VT_BSTR", "\ud800"),
        ("VT_LPSTR", "ä"),
        ("VT_LPWSTR", "a\0b"),
        ("VT_CLSID", "557358d1-5055-9591-9549-97b6e611ea26"),
        ("VT_ARRAY|VT_UI1", "text"),
        ("VT_STREAMED_OBJECT", Tree("x")),
    ],
)
def test_a_value_that_its_type_has_not_is_refused(name: str, value: Value) -> None:
    with pytest.raises(UsageError):
        BY_NAME[name].write(value)


def test_text_is_read_with_the_nul_that_ends_it_or_without() -> None:
    assert BY_NAME["VT_LPSTR"].read(b"abc") == BY_NAME["VT_LPSTR"].read(b"abc\0") == "abc"
    assert BY_NAME["VT_LPWSTR"].read(b"a\0") == BY_NAME["VT_LPWSTR"].read(b"a\0\0\0") == "a"
    assert BY_NAME["VT_BSTR"].read(b"a\0\0\0") == "a\0"
    assert BY_NAME["VT_BOOL"].read(b"\xff") is True
    assert BY_NAME["VT_CY"].write(5) == BY_NAME["VT_CY"].write(Decimal(5))
    noon = datetime(1899, 12, 31, 12, tzinfo=UTC)
    assert BY_NAME["VT_DATE"].write(noon) == struct.pack("<d", 1.5)  # type: ignore[arg-type]
