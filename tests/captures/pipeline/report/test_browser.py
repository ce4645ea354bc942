"""The page in a real browser: its script runs, and shows what happened to a message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from urllib.parse import quote

import pytest

from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.counts.test_security import SORTS, secured_rows
from tests.captures.pipeline.report.tables import BEGIN_NS, Rows, capture, history, hop, hops_of, made_up
from tests.captures.pipeline.report.test_page import HOSTILE
from tests.chromium import CONTRAST, PROGRAM, Chromium, chromium

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests, because a browser takes seconds to start."""
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
    assert "0 01:13:20.800000 went from 127.0.0.1 to 127.0.0.2:1801 frame.number == " in said
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
    assert (
        "It asked to be kept as a dead letter: look into the transactional dead-letter queue of 127.0.0.1."
        in browser.text("#history")
    )


def test_texts_of_strangers_stay_text_when_the_script_shows_them(browser: Chromium, tmp_path: Path) -> None:
    row = history(1, label=HOSTILE, route=[HOSTILE, "b", "c"])
    tables = made_up(tmp_path / "out", {"histories": [row], "hops": hops_of(row)})
    browser.show(page(gather(tables)), "search=alert")
    assert browser.text("#said") == "1 message"
    assert "alert(1)" in browser.text("#history h3")
    assert browser.evaluate("document.scripts.length") == 2
    assert browser.evaluate("document.images.length") == 0
    assert browser.complaints == []


def test_what_the_page_does_not_name_does_not_run(browser: Chromium, gap_held_page: str) -> None:
    foreign = (
        "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title = 'taken over'\">"
    )
    browser.show(gap_held_page.replace("</main>", f"{foreign}</main>"))
    assert browser.evaluate("document.title") != "taken over"
    assert any("Content Security Policy" in said for said in browser.complaints)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read_by_day_and_by_night(
    browser: Chromium, gap_held_page: str, *, is_dark: bool
) -> None:
    browser.show(gap_held_page, "search=lost", 360 if is_dark else 1_440, is_dark=is_dark)
    assert browser.evaluate(CONTRAST) == []
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(21, 24, 27)" if is_dark else "rgb(255, 255, 255)"
    )
    assert browser.barriers() == []
    texts = browser.evaluate(
        "[...new Set([...document.querySelectorAll('svg text')].map((e) => getComputedStyle(e).fill))]"
    )
    assert texts == ["rgb(232, 232, 232)" if is_dark else "rgb(26, 26, 26)"]


TEXTS_IN_EACH_OTHERS_WAY = """
[...document.querySelectorAll("svg")].flatMap((picture) => {
  const frame = picture.getBoundingClientRect();
  const texts = [...picture.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([text, box], place) => [
    ...(box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
      || box.bottom > frame.bottom + 1 ? [`${text} leaves its picture`] : []),
    ...texts.slice(place + 1)
      // Lines that follow each other touch.
      .filter(([_, other]) => Math.min(box.right, other.right) - Math.max(box.left, other.left) > 1
        && Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 3)
      .map(([other, _]) => `${text} is over ${other}`),
  ]);
})
"""
CUT = """
[...document.querySelectorAll('.wide, figure')].filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => each.getAttribute('aria-label'))
"""


def rows_of(browser: Chromium, table: str) -> list[str]:
    """Return the first cell of each visible row of a table."""
    found = f"[...document.querySelectorAll('{table} tr[data-host]')].filter((row) => !row.hidden)"
    return [str(text) for text in browser.evaluate(f"{found}.map((row) => row.cells[0].innerText)")]


def test_queue_host_and_label_narrow_messages_queues_and_hops(browser: Chromium, tmp_path: Path) -> None:
    messages = [
        history(number, queue=f"PRIVATE=C\\{number % 2}", label=f"order {number}") for number in range(7)
    ]
    messages[3] |= {"route": ["a", "x"], "outcome": "reached"}
    messages[5] |= {"latency_ns": 10**10}
    hops = [each for row in messages for each in hops_of(row)] + [
        hop(messages[3]["message"], 3, "ax", BEGIN_NS)
    ]
    text = page(gather(made_up(tmp_path / "out", {"histories": messages, "hops": hops})))
    browser.show(text, "queue=C%5C1")
    assert browser.text("#said") == "3 messages"
    assert rows_of(browser, "#queues-table") == ["PRIVATE=C\\1"]
    assert rows_of(browser, "#hops-table") == ["b", "a", "a"]
    browser.evaluate("document.getElementById('host').focus()")
    browser.type("X")
    assert browser.text("#said") == "1 message"
    assert browser.text("#history").startswith("order 3 \\3 reached")
    assert rows_of(browser, "#hops-table") == ["a"]
    assert "1 of 3 rows, as the filter above says" in browser.text("#routes")
    browser.show(text)
    assert rows_of(browser, "#queues-table") == ["PRIVATE=C\\1", "PRIVATE=C\\0"]
    browser.evaluate(
        "order = document.getElementById('order'); order.value = 'count'; order.dispatchEvent(new Event('change'))"
    )
    assert rows_of(browser, "#queues-table") == ["PRIVATE=C\\0", "PRIVATE=C\\1"]
    assert rows_of(browser, "#hops-table") == ["b", "a", "a"]
    assert "Those with most messages first." in browser.text("#hops-table caption")
    assert browser.complaints == []


def test_all_of_it_can_be_reached_with_the_keyboard_alone(browser: Chromium, gap_held_page: str) -> None:
    browser.show(gap_held_page)
    browser.evaluate("document.getElementById('search').focus()")
    browser.type("lost once")
    reached = []
    for _ in range(20):
        browser.press("Tab", 9)
        reached.append(
            browser.evaluate("document.activeElement.id || document.activeElement.className || 'button'")
        )
        assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if browser.evaluate("document.activeElement.dataset.id !== undefined"):
            break
    assert reached[:3] == ["queue", "host", "order"]
    browser.press("Enter", 13)
    browser.evaluate("new Promise((done) => setTimeout(done))")
    assert browser.text("#history").startswith("lost once \\3")


def crowded() -> dict[str, Rows]:
    """Return the rows for a crowded report.

    It has long labels, many hops between few nodes, adjacent gaps, and delays from 1 µs to years.
    """
    names = [f"{place} headquarters.gateway-{place}.example" for place in "abcde"]
    hops = []
    for number, (one, other) in enumerate(permutations(range(5), 2)):
        ends = {
            "from_key": names[one],
            "to_key": names[other],
            "from_label": names[one],
            "to_label": names[other],
        }
        times = {"waited_ns": 1_000 * 10 ** (number % 14), "acknowledged_ns": BEGIN_NS + 10 ** (number % 17)}
        hops += [
            hop(f"{number}-{copy}", 1, "ab", BEGIN_NS + copy * 10**9) | ends | times
            for copy in range(number + 1)
        ]
    messages = [
        history(number, latency_ns=1_000 * 10 ** (number % 14), order_acked_ns=BEGIN_NS + 10 ** (number % 17))
        for number in range(30)
    ]
    sequence = {
        "series": "day.pcapng",
        "source_manager": names[0],
        "sequence": "1700000000:4294967295",
        "interface": 0,
    }
    sequence |= {
        "from_key": names[0],
        "to_key": names[1],
        "first_number": 1,
        "last_number": 2**32 - 1,
        "messages": 9,
    }
    span = {"first_ns": BEGIN_NS, "last_ns": BEGIN_NS + 100 * 10**9}
    gap = {name: sequence[name] for name in ("series", "source_manager", "sequence", "from_key", "to_key")}
    gaps = [
        gap | {"first_number": 10**9 + 7 * number, "last_number": 10**9 + 7 * number + 3, "opened_by": 1}
        | {"opened_ns": BEGIN_NS + opened_s * 10**9, "filled_ns": filled_s and BEGIN_NS + filled_s * 10**9}
        for number, (opened_s, filled_s) in enumerate([(1, 2), (2, 4), (5, 30), (31, 32), (90, 95), (99, None)])
    ]  # fmt: skip
    packets = [
        {"series": "day.pcapng", "row_id": place + 1, "number": place + 1, "framed": True, "kind": kind}
        | {"time_ns": BEGIN_NS + place * 10**9, "size_bytes": 5 * 10**8 * place}
        for place, kind in enumerate(["Transactional", "SessionAck", "Ping", "???"])
    ]
    return {
        "captures": [capture(frames=4, last_ns=BEGIN_NS + 100 * 10**9)],
        "packets": packets,
        "histories": messages,
        "hops": hops,
        "sequences": [sequence | span],
        "sequence_hops": [sequence | span | {"gaps": len(gaps), "gaps_open": 1}] * 3,
        "gaps": gaps,
    }


@pytest.mark.parametrize("width", [360, 1_440])
def test_no_table_is_cut_and_no_text_of_a_picture_is_over_another_or_leaves_it(
    browser: Chromium, gap_held_page: str, tmp_path: Path, width: int
) -> None:
    for text in (gap_held_page, page(gather(made_up(tmp_path / "out", crowded())))):
        browser.show(text, "search=b", width)
        assert browser.evaluate("document.querySelectorAll('svg text').length") > 50
        assert browser.evaluate(TEXTS_IN_EACH_OTHERS_WAY) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(CUT) == ["route map"] * (width < 600)
        assert browser.barriers() == []


def test_what_protects_a_message_is_seen_where_it_is_found(browser: Chromium, tmp_path: Path) -> None:
    text = page(gather(made_up(tmp_path / "out", secured_rows(SORTS))))
    for is_dark in (False, True):
        browser.show(text, "search=order 9", width=360, is_dark=is_dark)
        assert browser.evaluate(CONTRAST) == []
    assert "signed SHA-512: holds" in browser.text("#results")
    assert "encrypted AES-256" in browser.text("#history h3")
    assert "Signature SHA-512; holds, MSMQ 2.0, by CN=a" in browser.text("#history dl")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    assert browser.complaints == []
