"""The pictures in READMEs show the current state."""

from __future__ import annotations

from tests.conformance import ROOT
from tests.pictures import CONSOLE, LADDER, digest, ladder, text_of


def test_the_ladder_is_what_decode_draws() -> None:
    assert LADDER.read_bytes() == ladder(), "make pictures, and look at them"


def test_the_console_of_the_front_page_is_that_of_the_page_as_it_is() -> None:
    assert text_of(CONSOLE.read_bytes()) == digest(), "make pictures, and look at them"


def test_each_is_on_its_page() -> None:
    for picture, page in ((LADDER, "docs/how-to/who-said-what.md"), (CONSOLE, "README.md")):
        assert f"{picture.relative_to(ROOT).as_posix()})" in (ROOT / page).read_text("utf-8")
