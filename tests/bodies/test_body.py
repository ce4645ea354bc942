from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.bodies import Body, Headers, Tree, Value, read_body, write_body
from mqproto.bodies.automation import BY_NUMBER
from tests.bodies.test_automation import VALUES
from tests.bodies.values import LEAVES, stream, string, xml_trees

KINDS = {
    **VALUES,
    "bytes": st.binary().filter(lambda data: not data.startswith((b"<", b"\xef", b"\xff", b"\xfe"))),
}
KINDS |= {f"xml:{name}": values for name, values in LEAVES.items()}
KINDS["xml"] = xml_trees().map(lambda tree: Tree("Order", tree.members))


@given(st.sampled_from(sorted(KINDS)).flatmap(lambda kind: st.tuples(st.just(kind), KINDS[kind])))
def test_a_body_comes_back_with_its_kind(typed: tuple[str, Value]) -> None:
    kind, value = typed
    assert read_body(*write_body(value, kind)) == Body(kind, value)


@given(
    st.binary(max_size=64),
    st.one_of(st.sampled_from([0, 768, *BY_NUMBER]), st.integers(0, 2**32 - 1)),
    st.binary(),
)
def test_any_bytes_of_any_type_are_a_body(data: bytes, body_type: int, extension: bytes) -> None:
    body = read_body(data, body_type, extension)
    if body.kind == "bytes":
        assert body.value == data
        assert body.reason or body_type == 0
    else:
        with suppress(UsageError):
            again = read_body(*write_body(body.value, body.kind))
            assert (again.kind, repr(again.value)) == (body.kind, repr(body.value))


def test_what_its_type_does_not_explain_is_bytes_with_the_reason() -> None:
    assert read_body(b"abc", 3) == Body("bytes", b"abc", "VT_I4 has 4 bytes, and the body 3")
    assert read_body(b"abc", 0x1003) == Body("bytes", b"abc", "body type 0x1003 has no published form")
    assert read_body(b"<abc", 0).reason.startswith("it is not XML: ")
    assert (
        read_body(b"abc", 768).reason
        == "it is not a stream of BinaryFormatter: it does not begin with its header"
    )
    assert read_body(b'{"a": 1}', 0) == Body("bytes", b'{"a": 1}')
    assert len(read_body(b"<?xml version='1.0' encoding='" + b"x" * 5_000 + b"'?><a/>", 0).reason) <= 600


def test_a_stream_is_read_and_never_written() -> None:
    assert read_body(stream(string(1, "x")), 768) == Body("binary", "x")
    with pytest.raises(UsageError, match="read and never written"):
        write_body("x", "binary")


def test_a_kind_is_written_in_any_case_and_one_that_is_none_is_refused() -> None:
    assert write_body("a", "vt_bstr") == (b"a\0", 8)
    assert write_body(5, "XML:int") == write_body(5, "xml:int")
    assert write_body(b"x", "Bytes") == (b"x", 0)
    for value, kind in (("a", "json"), ("a", "bytes"), ("a", "bytes:x"), (1, "xml:Int"), (1, "VT_I4:int")):
        with pytest.raises(UsageError):
            write_body(value, kind)


def test_headers_of_a_service_bus_are_beside_the_body() -> None:
    assert read_body(b"", 0, b'{"rbs2-msg-id": "1"}').headers == Headers("Rebus", {"rbs2-msg-id": "1"})
