from __future__ import annotations

import pytest

from mqproto.base.errors import UsageError
from mqproto.bodies import Body, DateTime, Tree, Value, body_of_text, describe, read_body
from mqproto.bodies.automation import BY_NAME

CLSID = "557358d1-5055-9591-9549-97b6e611ea26"
TYPED: list[tuple[str, str, Value]] = [
    ("xml:int", "5", 5),
    ("xml:string", " 5 ", " 5 "),
    ("xml:char", "5", "5"),
    ("xml:boolean", "true", True),
    ("xml:ArrayOfInt", "[1, null]", [1, None]),
    ("VT_I4", "-5", -5),
    ("VT_UI8", str(2**64 - 1), 2**64 - 1),
    ("VT_R8", "NaN", None),
    ("VT_BOOL", "false", False),
    ("VT_BSTR", "€", "€"),
    ("VT_LPSTR", "a", "a"),
    ("VT_DATE", "2024-01-02T03:04:05", DateTime.parse("2024-01-02T03:04:05")),
    ("VT_NULL", "", None),
    ("VT_ARRAY|VT_UI1", "raw", b"raw"),
    ("bytes", "raw", b"raw"),
]


@pytest.mark.parametrize(("kind", "text", "value"), TYPED)
def test_a_text_is_a_body_of_its_kind(kind: str, text: str, value: Value) -> None:
    body = read_body(*body_of_text(text.encode(), kind))
    assert (body.kind, body.reason) == (kind, "")
    assert body.value == value or kind == "VT_R8"


def test_a_number_is_the_body_type_of_bytes_as_they_are() -> None:
    assert body_of_text(b"raw", "8") == body_of_text(b"raw", "0x8") == (b"raw", 8)
    assert body_of_text(b"x" * 20, "VT_STREAMED_OBJECT") == (b"x" * 20, 68)
    assert body_of_text(CLSID.encode(), "vt_clsid") == (BY_NAME["VT_CLSID"].write(read_guid()), 72)
    assert body_of_text(b"a", "xml") == body_of_text(b"a", "xml:string")


def read_guid() -> Value:
    return read_body(*body_of_text(CLSID.encode(), "xml:guid")).value


def test_an_object_is_typed_as_json_and_shown_as_json() -> None:
    body, body_type = body_of_text(b'{"$type": "Order", "Id": 5, "Line": ["a", "b"]}', "xml:json")
    found = read_body(body, body_type)
    assert found == Body("xml", Tree("Order", (("Id", "5"), ("Line", ["a", "b"]))))
    assert describe(found) == {
        "content": {"kind": "xml", "value": {"$type": "Order", "Id": "5", "Line": ["a", "b"]}}
    }


def test_what_is_said_of_a_body_is_what_its_bytes_do_not_say() -> None:
    assert describe(read_body(b"plain", 0)) == {}
    assert describe(read_body(b"abc", 3)) == {
        "content": {"kind": "bytes", "reason": "VT_I4 has 4 bytes, and the body 3"}
    }
    assert describe(read_body(b"", 0, b'{"rbs2-a": "b"}')) == {
        "headers": {"sender": "Rebus", "fields": {"rbs2-a": "b"}}
    }


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (b"x", "VT_I4", "not of type long"),
        (b"300", "VT_UI1", "not VT_UI1"),
        (b"\xff", "VT_BSTR", "not of type string of UTF-8"),
        (b"x", "xml:int", "not of type int"),
        (b"{", "xml:json", "not JSON"),
        (b'{"$guid": 1}', "xml:json", "not such a value"),
        (b"[" * 100_000, "xml:json", "not JSON"),
        (b"x", "xml:Order", "there are xml:string"),
        (b"x", "VT_NULL", "not VT_NULL"),
        (b"x", "VT_NOTHING", "there are bytes, xml"),
        (b"x", "binary", "never written"),
        (b"x", "VT_STREAMED_OBJECT", "CLSID"),
        (b"x", "-1", "32 bits"),
        (b"x", str(2**32), "32 bits"),
    ],
)
def test_what_cannot_be_said_is_refused_with_what_can(text: bytes, kind: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        body_of_text(text, kind)
