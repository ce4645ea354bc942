"""The pictures of the front page show what there is now."""

from __future__ import annotations

from tests.conformance import ROOT
from tests.pictures import CONSOLE, LADDER, digest, ladder, text_of


def test_the_ladder_of_the_front_page_is_what_decode_draws() -> None:
    assert LADDER.read_bytes() == ladder(), "make pictures, and look at them"


def test_the_console_of_the_front_page_is_that_of_the_page_as_it_is() -> None:
    assert text_of(CONSOLE.read_bytes()) == digest(), "make pictures, and look at them"


def test_both_are_on_the_front_page() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for picture in (LADDER, CONSOLE):
        assert f"]({picture.relative_to(ROOT).as_posix()})" in text
