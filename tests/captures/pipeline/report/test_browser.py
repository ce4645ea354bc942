"""The page in a real browser: its script runs, and answers what happened to a message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from captures.pipeline.report.gather import gather
from captures.pipeline.report.page import page
from captures.pipeline.tables import Tables
from tests.captures.pipeline.report.chromium import PROGRAM, Chromium, chromium
from tests.captures.pipeline.report.tables import history, hops_of, made_up
from tests.captures.pipeline.report.test_page import HOSTILE

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One for all tests: it takes seconds to start."""
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def test_a_message_that_is_searched_for_is_shown_with_its_way(
    browser: Chromium, gap_held: Tables, gap_held_page: str
) -> None:
    row = gather(gap_held).messages.slowest[0]
    browser.show(gap_held_page)
    browser.evaluate("document.getElementById('search').focus()")
    browser.type(row["message"].lower())
    assert browser.text("#said") == "1 message"
    said = browser.text("#history")
    assert said.startswith("lost once \\3 confirmed")
    assert "It came to its destination, 127.0.0.3:1801, after 5.81 s, and its source was told so." in said
    assert "0 22:13:20.800000 went from 127.0.0.1 to 127.0.0.2:1801 frame.number == 31" in said
    assert "to 127.0.0.3:1801, its destination, after it waited 5.81 s frame.number == " in said
    assert "its source got the OrderAck frame.number == " in said
    assert browser.complaints == []


def test_a_link_to_a_message_shows_it(browser: Chromium, dead_letters: Tables) -> None:
    facts = gather(dead_letters)
    row = facts.messages.failed[0]
    browser.show(page(facts))
    link = f'#worst a[href="#message={quote(row["message"], safe="")}"]'
    browser.evaluate(
        "new Promise((done) => { addEventListener('hashchange', () => setTimeout(done)); "
        f"document.querySelector({link!r}).click(); }})"
    )
    assert "It expired: it did not reach its queue in time. It was last seen at " in browser.text("#history")


def test_texts_of_strangers_stay_text_when_the_script_shows_them(browser: Chromium, tmp_path: Path) -> None:
    row = history(1, label=HOSTILE, route=[HOSTILE, "b", "c"])
    tables = made_up(tmp_path / "out", {"histories": [row], "hops": hops_of(row)})
    browser.show(page(gather(tables)), "search=alert")
    assert browser.text("#said") == "1 message"
    assert "alert(1)" in browser.text("#history h3")
    assert browser.evaluate("document.scripts.length") == 2
    assert browser.evaluate("[...document.images].every((image) => image.src.startsWith('data:'))")
    assert browser.complaints == []


def test_what_the_page_does_not_name_does_not_run(browser: Chromium, gap_held_page: str) -> None:
    foreign = (
        "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title = 'taken over'\">"
    )
    browser.show(gap_held_page.replace("</main>", f"{foreign}</main>"))
    assert browser.evaluate("document.title") != "taken over"
    assert any("Content Security Policy" in said for said in browser.complaints)


@pytest.mark.parametrize("width", [400, 1_000])
def test_all_pictures_are_shown_and_the_page_is_no_wider_than_its_window(
    browser: Chromium, gap_held_page: str, width: int
) -> None:
    browser.show(gap_held_page, width=width)
    sizes = browser.evaluate("[...document.images].map((image) => [image.complete, image.naturalWidth > 0])")
    assert sizes == [[True, True]] * 5
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.picture().startswith(b"\x89PNG")
