"""Texts that somebody else wrote, wherever we show them: on one line, and cut to a limited length."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import FormatNameError, WireFormatError
from mqproto.base.foreign import TEXT_LIMIT, VALUE_LIMIT, quoted, shown
from mqproto.testing import texts

HOSTILE = st.one_of(
    texts(40),
    st.text(),
    st.text("\r\n\t\0\x1b\x7f\x85\u2028\u202e", min_size=1),
    st.builds(
        str.__mul__, st.sampled_from(["x", "\n", "\u00e9", "\U0010ffff", "\ud800"]), st.integers(0, 5_000)
    ),
)


@pytest.mark.long
@given(HOSTILE, st.sampled_from([VALUE_LIMIT, TEXT_LIMIT]))
def test_any_text_is_one_line_within_its_limit(text: str, limit: int) -> None:
    told = shown(text, limit)
    assert len(told) <= limit
    assert told.isprintable()
    assert shown(told, limit) == told
    told.encode("utf-8")


@given(HOSTILE)
def test_a_text_that_is_harmless_is_shown_as_it_is_and_of_any_other_the_beginning_is(text: str) -> None:
    told = shown(text)
    if text.isprintable() and len(text) <= VALUE_LIMIT:
        assert told == text
    else:
        assert told != text
        harmless = text[: next((at for at, c in enumerate(text) if not c.isprintable()), len(text))]
        assert told.startswith(harmless[: VALUE_LIMIT - 30])


def test_what_is_left_out_is_counted() -> None:
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 2_097_000) == "x" * 174 + "... (2,097,000 characters)"
    assert shown("\n" * 150) == r"\n" * 90 + "... (150 characters)"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert shown("a\r\nb\x1b[2Jc\u202ed\x7f") == r"a\r\nb\x1b[2Jc\u202ed\x7f"
    assert quoted("a\nb") == r"'a\nb'"


@given(HOSTILE)
def test_a_text_in_quotes_fits_as_well(text: str) -> None:
    told = quoted(text)
    assert len(told) <= VALUE_LIMIT
    assert told.isprintable()
    assert (told[0], told[-1]) == ("'", "'")


@given(HOSTILE)
def test_a_refusal_is_one_line_whatever_its_value(text: str) -> None:
    error = WireFormatError(
        "soap.header", 140, text, "text that ends with its only NUL", "[MS-MQMQ] 2.2.20.7"
    )
    assert str(error).isprintable()
    assert len(str(error)) <= TEXT_LIMIT
    assert isinstance(error.value, str)
    assert len(error.value) <= VALUE_LIMIT
    assert text not in error.args or error.value == text
    name = FormatNameError(text)
    assert str(name).isprintable()
    assert len(str(name)) <= TEXT_LIMIT


@pytest.mark.parametrize("value", [0, 9, 0x524F494C])
def test_a_number_stays_one(value: int) -> None:
    assert WireFormatError("base.signature", 8, value, "0x10", "[MS-MQMQ] 2.2.19.1").value == value
