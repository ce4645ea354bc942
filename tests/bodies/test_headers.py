from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.bodies import MASSTRANSIT, NSERVICEBUS, REBUS, Headers, read_headers, write_headers
from tests.bodies.values import TEXTS

FIELDS = st.dictionaries(TEXTS, st.one_of(TEXTS, st.none()), max_size=4)
HEADERS = st.one_of(
    FIELDS.map(lambda fields: Headers(NSERVICEBUS, fields)),
    FIELDS.map(lambda fields: Headers(REBUS, {**fields, "rbs2-msg-id": "1"})),
    FIELDS.map(
        lambda fields: Headers(MASSTRANSIT, {**fields, "Content-Type": "application/vnd.masstransit+json"})
    ),
)


@given(HEADERS)
def test_headers_come_back(headers: Headers) -> None:
    assert read_headers(write_headers(headers)) == headers


def test_what_nservicebus_writes_is_read_with_what_stands_behind_it() -> None:
    extension = (
        b'<?xml version="1.0"?>\r\n<ArrayOfHeaderInfo xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">\r\n'
        b"  <HeaderInfo>\r\n    <Key>NServiceBus.MessageId</Key>\r\n    <Value>a&#x19;b</Value>\r\n  </HeaderInfo>\r\n"
        b"  <HeaderInfo><Key>Empty</Key></HeaderInfo><Other /></ArrayOfHeaderInfo>\0\0more"
    )
    assert read_headers(extension) == Headers(NSERVICEBUS, {"NServiceBus.MessageId": "a\x19b", "Empty": None})


@pytest.mark.parametrize(
    "extension",
    [
        b"",
        b"opaque",
        b"{",
        b"{" * 100_000,
        b'{"a": 1}',
        b'{"a": "b"}',
        b'{"rbs2-a": "\\ud800"}',
        b'{"envelope": 1, "content_type": "application/json"}',
        b'{"Content-Type": null}',
        b"<!DOCTYPE a><ArrayOfHeaderInfo></ArrayOfHeaderInfo>",
        b'{"rbs2-a": "' + b"x" * 2**20 + b'"}',
    ],
)
def test_what_is_nobodys_headers_is_none(extension: bytes) -> None:
    assert read_headers(extension) is None


@pytest.mark.parametrize(
    "headers",
    [
        Headers("Others", {}),
        Headers(REBUS, {"a": "b"}),
        Headers(MASSTRANSIT, {"rbs2-a": "b"}),
        Headers(REBUS, {"rbs2-a": "\ud800"}),
        Headers(NSERVICEBUS, {"a": "\ud800"}),
    ],
)
def test_headers_that_nobody_would_read_are_refused(headers: Headers) -> None:
    with pytest.raises(UsageError):
        write_headers(headers)
