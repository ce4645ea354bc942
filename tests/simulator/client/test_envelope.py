"""The parts of an HTTP request that a message's extension carries."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.client.envelope import (
    CONTENT_TYPE_LIMIT,
    ENVELOPE_LIMIT_BYTES,
    HEADER_NAME,
    HEADERS_LIMIT,
    HEADERS_LIMIT_CHARS,
    KEY_LIMIT,
    ORIGIN_LIMIT,
    Envelope,
    envelope_typed,
)

printable = st.characters(min_codepoint=0x20, max_codepoint=0x7E)


@given(
    st.text(printable, max_size=CONTENT_TYPE_LIMIT),
    st.text(printable, max_size=KEY_LIMIT),
    st.dictionaries(st.from_regex(HEADER_NAME, fullmatch=True), st.text(printable, max_size=40), max_size=9),
)
def test_what_was_said_is_what_is_read(content_type: str, key: str, headers: dict[str, str]) -> None:
    envelope = Envelope(content_type=content_type, producer_key=key, headers=headers)
    assert Envelope.of(envelope.as_extension()) == envelope
    assert len(envelope.as_extension()) <= envelope.room_bytes()


def test_the_longest_fits_whatever_has_to_be_escaped() -> None:
    names = [f"{number:02}" for number in range(HEADERS_LIMIT)]
    share = HEADERS_LIMIT_CHARS // HEADERS_LIMIT - 2
    envelope = Envelope(
        content_type='"' * CONTENT_TYPE_LIMIT,
        producer_key="\\" * KEY_LIMIT,
        headers=dict.fromkeys(names, '"' * share),
    )
    assert len(envelope.as_extension()) <= envelope.room_bytes()
    assert len(envelope.as_extension()) <= ENVELOPE_LIMIT_BYTES
    assert Envelope.of(envelope.as_extension()) == envelope


def test_it_is_the_json_that_is_written_down() -> None:
    extension = Envelope(content_type="application/json", producer_key="order-17").as_extension()
    assert json.loads(extension) == {
        "envelope": 1,
        "content_type": "application/json",
        "producer_key": "order-17",
    }


def test_nothing_to_say_takes_no_extension() -> None:
    assert Envelope().as_extension() == b""
    assert Envelope.of(b"") == Envelope()


def test_fields_of_a_later_writer_are_no_matter() -> None:
    later = b'{"envelope": 1, "content_type": "text/plain", "colour": "green"}'
    assert Envelope.of(later) == Envelope(content_type="text/plain")


@pytest.mark.parametrize(
    "extension",
    [
        b'{"content_type": "text/plain"}',
        b'{"envelope": 2, "content_type": "text/plain"}',
        b'{"envelope": 1, "content_type": 7}',
        b'{"envelope": 1, "origin": "%s"}' % (b"a" * (ORIGIN_LIMIT + 1)),
        b'{"envelope": 1, "content_type": "text/plain\\r\\nSet-Cookie: x"}',
        b'{"envelope": 1, "headers": {"x": "a\\r\\nSet-Cookie: x"}}',
        b'{"envelope": 1, "headers": {"x y": "a"}}',
        b'{"envelope": 1, "headers": {"X": "a"}}',
        b'{"envelope": 1, "headers": {"x": 7}}',
        b'{"envelope": 1, "headers": {"x": "%s"}}' % (b"a" * 4_096),
        b'{"envelope": 1}' + b" " * ENVELOPE_LIMIT_BYTES,
        b'{"envelope": 1, "content_type": "\x80"}',
        b'{"envelope": 1, "headers": {"x": "\xff"}}',
        b"[" * 1_000,
        b'{"a":' * 200,
        b"\x00\x01",
    ],
)
def test_an_extension_of_somebody_else_says_nothing(extension: bytes) -> None:
    assert Envelope.of(extension) == Envelope()


@given(st.binary(max_size=64))
def test_any_bytes_are_an_envelope_or_none(extension: bytes) -> None:
    Envelope.of(b'{"envelope":1,' + extension)
    Envelope.of(extension)


@pytest.mark.parametrize("text", ["a\nb", "naïve", "\x7f"])
def test_only_what_a_header_can_carry_is_taken(text: str) -> None:
    with pytest.raises(UsageError, match="printable ASCII"):
        Envelope(content_type=text)
    with pytest.raises(UsageError, match="printable ASCII"):
        Envelope(producer_key=text)


@given(
    st.text(printable, max_size=CONTENT_TYPE_LIMIT).map(str.strip),
    st.dictionaries(
        st.from_regex(HEADER_NAME, fullmatch=True).filter(lambda name: name != "content-type"),
        st.text(printable, max_size=40).map(str.strip),
        max_size=9,
    ),
)
def test_headers_that_are_typed_are_those_that_travel(content_type: str, headers: dict[str, str]) -> None:
    typed = [f"{name.upper()} : {value}" for name, value in headers.items()]
    made = envelope_typed([*typed, f"Content-Type:{content_type}"])
    assert made == Envelope(content_type=content_type, headers=headers)


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (["ce-type"], "--header 'ce-type': write NAME: VALUE"),
        ([": order"], "--header ': order': write NAME: VALUE"),
        (["ce type: order"], "--header 'ce type: order': write NAME: VALUE"),
        (["ce-type: a", "CE-Type: b"], "--header ce-type is there twice"),
        (["ce-type: \u00fc"], "printable ASCII"),
        (["content-type: " + "a" * 256], "has 256 characters"),
    ],
)
def test_a_header_that_cannot_travel_is_refused(typed: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        envelope_typed(typed)


def test_what_is_too_long_is_said() -> None:
    with pytest.raises(UsageError, match="has 256 characters; at most 255 fit"):
        Envelope(content_type="a" * 256)
