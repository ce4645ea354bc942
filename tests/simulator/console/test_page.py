"""The page in a real browser while nodes run: what it shows, what it does, and whether everybody can use it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mqproto.simulator.client import blocking
from tests.chromium import CONTRAST, PROGRAM, Chromium, chromium
from tests.simulator.gateways import written_tokens
from tests.simulator.typed import COMMAND, Done, eventually, in_process, topology_file

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: apt-get install chromium")
HOSTILE = '<img src=x onerror="document.title=1"></td><script>document.title=2</script>'
ENTER, TAB, ESCAPE = ("Enter", 13), ("Tab", 9), ("Escape", 27)


class Desk(NamedTuple):
    """Three running nodes with a console, and a browser that shows it."""

    browser: Chromium
    address: str
    file: Path
    directory: Path

    def typed(self, *arguments: str) -> Done:
        """Run a command while the page is open."""
        return in_process(*arguments, "--topology", self.file, "--directory", self.directory)

    def until(self, expression: str, value: object = True) -> None:
        """Wait until the page satisfies a condition."""
        eventually(
            lambda: self.browser.evaluate(expression) == value,
            lambda: f"{expression} is {self.browser.evaluate(expression)}, not {value}",
        )

    def shows(self, selector: str, text: str) -> None:
        """Wait until a text appears in one of the elements that a selector finds."""
        self.until(
            f"[...document.querySelectorAll({selector!r})].some((one) => one.textContent.includes({text!r}))"
        )

    def press(self, name: str, within: str) -> None:
        """Press the button that has this text."""
        button = f"[...document.querySelectorAll({within + ' button'!r})].find((one) => one.textContent === {name!r})"
        self.until(f"Boolean({button})")
        self.browser.evaluate(f"{button}.click()")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("console")
    file, directory = topology_file(folder), folder / "stores"
    command = [*COMMAND, "run", "--topology", str(file), "--directory", str(directory), "--console"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
        chromium(folder) as browser,  # It starts while they do.
    ):
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            address = next(line.split()[1] for line in lines if line.startswith("console: "))
            yield Desk(browser, address, file, directory)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


@pytest.fixture
def desk(running: Desk) -> Desk:
    running.browser.open(running.address, 1_440)
    running.until("document.body.dataset.at > 0")
    return running


def rows(desk: Desk, section: str) -> dict[str, dict[str, str]]:
    """Return the content of a table: the text of each cell, keyed by its row's key and its own field name."""
    found: dict[str, dict[str, str]] = desk.browser.evaluate(
        f"Object.fromEntries([...document.querySelectorAll('#{section} tbody tr')].map((row) => [row.dataset.key, "
        "Object.fromEntries([...row.cells].filter((cell) => cell.dataset.field).map((cell) => "
        "[cell.dataset.field, cell.textContent]))]))"
    )
    return found


def number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def test_what_it_shows_is_what_queues_as_json_says(desk: Desk) -> None:
    for queue, count in (("orders", 12), ("notes", 3)):
        for _ in range(count):
            assert (
                desk.typed(
                    "send", queue, "-b", "x", "--recoverable" if queue == "notes" else "--transactional"
                ).status
                == 0
            )
    desk.until("document.querySelector('#totals [data-field=waiting] b').textContent", "15")
    desk.until("document.querySelector('#totals [data-field=outgoing] b').textContent", "0")
    said = json.loads(desk.typed("queues", "--json").out)
    shown = rows(desk, "queues")
    for node in said:
        for queue in node["local"]:
            row = shown.pop(f"{node['node']}\\{queue['name']}", {})
            assert row or not queue["waiting"]
            for name in ("waiting", "unsettled", "held", "consumers") if row else ():
                assert number(row[name]) == queue[name]
    assert shown == {}
    outgoing = rows(desk, "outgoing")
    for node in said:
        for queue in node["outgoing"]:
            row = outgoing.pop(f"{node['node']} to {queue['name']}", {})
            for name in ("waiting", "unsent", "in_flight", "unacked", "resent") if row else ():
                assert number(row[name]) == queue[name]
    assert outgoing == {}
    assert desk.browser.complaints == []


def test_a_link_is_cut_by_a_click_and_order_survives(desk: Desk) -> None:
    desk.browser.evaluate("document.getElementById('traffic-rate').value = '200'")
    desk.press("Send", "#traffic")
    received = (
        "Number(document.querySelector('#traffic [data-field=received]')?.textContent.replace(',', '') || 0)"
    )
    desk.until(f"{received} > 20")
    desk.browser.evaluate("document.querySelectorAll('.link')[1].dispatchEvent(new MouseEvent('click'))")
    desk.press("Cut", "#chosen")
    desk.until("document.querySelectorAll('.link')[1].classList.contains('wrong')")
    desk.shows("#chosen dd", "cut")
    desk.shows("#outgoing td", "connection refused by")
    desk.shows(".strips li p", "sent again in")
    desk.press("Mend", "#chosen")
    before = desk.browser.evaluate(received)
    desk.until(f"{received} > {before}")
    desk.browser.evaluate("document.querySelectorAll('.node')[1].dispatchEvent(new MouseEvent('click'))")
    desk.press("Kill", "#chosen")
    desk.until("document.querySelectorAll('.node')[1].classList.contains('down')")
    desk.press("Restart", "#chosen")
    desk.until("document.querySelectorAll('.node')[1].classList.contains('down')", value=False)
    desk.press("Stop", "#traffic")
    desk.until("document.querySelector('#traffic form').hidden", value=False)
    facts = desk.browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#traffic dd')]"
        ".map((one) => [one.dataset.field, one.textContent]))"
    )
    assert (facts["sent"], facts["out of order"], facts["twice"], facts["on the way"]) == (
        facts["received"],
        "0",
        "0",
        "0",
    )
    assert facts["in order up to"] == facts["sent"]
    assert desk.browser.complaints == []


def test_a_message_that_two_nodes_keep_is_on_the_way_once(desk: Desk) -> None:
    desk.typed("receive", "orders", "--count", "1000", "--timeout", "0")
    try:
        desk.typed("cut", "intermediate", "destination")
        for _ in range(4):
            desk.typed("send", "orders", "-b", "x")
        kept = (
            "[...document.querySelectorAll('#outgoing [data-field=waiting]')].map((one) => one.textContent)"
        )
        desk.until(f"{kept}.filter((one) => one === '4').length", 2)
        desk.until("document.querySelector('#totals [data-field=outgoing] b').textContent", "4")
    finally:
        desk.typed("mend")
    desk.until("document.querySelector('#totals [data-field=outgoing] b').textContent", "0")


def test_what_is_bad_leads_to_where_it_is(desk: Desk) -> None:
    assert desk.browser.evaluate(
        "[...document.querySelectorAll('#totals button')].every((one) => one.hidden)"
    )
    desk.typed("send", "notes", "-b", "x", "--time-to-be-received", "1")
    desk.until("document.querySelector('#totals [data-field=expired] b').textContent", "1")
    assert not desk.browser.evaluate("document.querySelector('#totals [data-field=expired] button').hidden")
    desk.press("Where?", "#totals [data-field=expired]")
    desk.shows("#chosen-title", "Node destination")
    desk.shows("#chosen dd[data-field=expired]", "1")


def test_traffic_ends_with_the_page_that_began_it(desk: Desk) -> None:
    desk.press("Send", "#traffic")
    desk.until("Number(document.querySelector('#traffic [data-field=received]')?.textContent || 0) > 5")
    desk.browser.open("about:blank", 1_440)
    entered: list[int] = []

    def has_ended() -> bool:
        """Return whether nothing arrived during the last ten checks, each of which takes longer than the gaps in the
        page's traffic.
        """
        [*_, destination] = json.loads(desk.typed("queues", "--json").out)
        entered.append(sum(queue["entered"] for queue in destination["local"]))
        return len(entered) > 10 and len({*entered[-10:]}) == 1

    eventually(has_ended, lambda: f"{entered} messages have come")
    desk.browser.open(desk.address, 1_440)
    desk.until("document.querySelector('#traffic form')?.hidden", value=False)


def test_what_others_break_and_mend_is_seen(desk: Desk) -> None:
    assert desk.typed("stall", "sender", "intermediate").status == 0
    desk.until("document.querySelector('.link').getAttribute('aria-label').includes('stalled')")
    assert desk.typed("mend").status == 0
    desk.until("document.querySelector('.link').getAttribute('aria-label').includes('stalled')", value=False)


def test_texts_of_strangers_stay_text_wherever_they_are_shown(desk: Desk) -> None:
    sent = desk.typed(
        "send", r"destination\orders", "-b", "x", "--transactional", "--label", HOSTILE
    ).out.strip()
    desk.browser.evaluate(
        "[...document.querySelectorAll('#queues .opens')].find((one) => one.textContent.endsWith('orders')).click()"
    )
    desk.shows("#sheet p", "<img src=x onerror=")
    desk.browser.press(*ESCAPE)
    desk.until("document.getElementById('sheet').open", value=False)
    desk.browser.evaluate(f"document.getElementById('story-of').value = {sent!r}")
    arrows = "document.querySelectorAll('.ladder .arrow').length"

    def is_told() -> bool:
        """Return whether the story shows everything that nodes have logged so far."""
        desk.press("Tell", "#story")
        desk.shows("#story-inner p", "<img src=x onerror=")
        return bool(desk.browser.evaluate(arrows) >= 4)

    eventually(is_told, lambda: f"{desk.browser.evaluate(arrows)} arrows")
    desk.shows("#story-inner td", "session-acknowledged")
    assert desk.browser.evaluate("document.images.length + document.scripts.length") == 1
    assert "console" in desk.browser.evaluate("document.title")
    for text in ("</script>", HOSTILE):
        desk.browser.evaluate(f"document.getElementById('story-of').value = {text!r}")
        desk.press("Tell", "#story")
        desk.shows("#story-inner", "Nobody knows it.")
    assert desk.browser.complaints == []


def test_all_of_it_can_be_done_with_the_keyboard_alone(desk: Desk) -> None:
    """Tab reaches the map, and the selection is announced; a dialog takes the focus, returns it, and asks for
    confirmation first.
    """
    desk.typed("purge", r"destination\notes")
    for _ in range(3):
        desk.typed("send", r"destination\notes", "-b", "x", "--recoverable")
    focused = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    for _ in range(40):
        desk.browser.press(*TAB)
        if str(desk.browser.evaluate(focused)).startswith("Link sender to intermediate"):
            break
    desk.browser.press(*ENTER)
    assert desk.browser.text("#chosen-title") == "Link sender – intermediate"
    assert desk.browser.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    for _ in range(60):
        desk.browser.press(*TAB)
        if desk.browser.evaluate("document.activeElement.textContent") == "destination\\notes":
            break
    desk.browser.press(*ENTER)
    desk.shows("#sheet p", "destination\\notes: 3 messages")
    assert desk.browser.evaluate("document.getElementById('sheet').contains(document.activeElement)")
    desk.press("Purge", "#sheet")
    desk.shows("#sure h2", "Delete all that is in destination\\notes?")
    desk.browser.press(*ESCAPE)
    desk.browser.press(*ESCAPE)
    desk.until("document.activeElement.textContent", "destination\\notes")
    assert "3 messages" in desk.typed("explain", r"destination\notes").out
    desk.browser.press(*ENTER)
    desk.press("Purge", "#sheet")
    desk.press("Purge", "#sure")
    desk.shows("#said", "3 messages deleted")


def test_an_open_queue_offers_pause_or_resume_whoever_used_the_other(desk: Desk) -> None:
    assert desk.typed("send", "notes", "-b", "x", "--recoverable").status == 0
    desk.until("Boolean(document.querySelector('#outgoing .opens'))")
    desk.browser.evaluate("document.querySelector('#outgoing .opens').click()")
    buttons = "document.querySelectorAll('#sheet .buttons button:not([hidden])')"
    offered = f"[...{buttons}].map((one) => one.textContent).join()"
    focused = "document.activeElement.textContent"
    desk.until(offered, "Pause,Purge")
    desk.browser.evaluate("document.querySelector('#sheet .buttons button').focus()")
    desk.press("Pause", "#sheet")
    desk.until(offered, "Resume,Purge")
    assert desk.browser.evaluate(focused) == "Resume"
    queue = desk.browser.evaluate("document.getElementById('sheet-title').textContent").partition(" to ")[2]
    assert desk.typed("resume", queue).status == 0
    desk.until(offered, "Pause,Purge")
    assert desk.browser.evaluate(focused) == "Pause"
    assert desk.browser.complaints == []


OBSERVED = """
window.read = [];
new MutationObserver((changes) => changes.forEach(({ target, type }) => {
  const spoken = (target.closest ? target : target.parentElement).closest("[role=status], [role=alert], [aria-live]");
  if (type === "attributes" ? target === document.activeElement : spoken) read.push(target.textContent);
})).observe(document, { subtree: true, childList: true, characterData: true, attributeFilter: ["aria-label"] });
"""


def test_what_changes_meanwhile_is_not_read_out_and_the_focus_stays(desk: Desk) -> None:
    """A screen reader would read a live region, or the element that has the focus, again whenever it changes."""
    focused = "document.activeElement.textContent"
    crossed = "document.querySelector('#sessions [data-field=crossed]').textContent"
    desk.typed("purge", r"destination\orders")
    desk.typed("send", "orders", "-b", "x", "--transactional", "--dead-letter")
    desk.until("document.querySelector('.link').getAttribute('aria-label').includes(', open')")
    desk.browser.evaluate(OBSERVED)
    desk.browser.evaluate("document.querySelector('.link').focus()")
    before = desk.browser.evaluate(crossed)
    desk.typed("send", "orders", "-b", "x", "--transactional")
    desk.until(f"{crossed} !== {before!r}")

    queues = "[...document.querySelectorAll('#queues .opens')]"
    desk.browser.evaluate(f"{queues}.find((one) => one.textContent.endsWith('notes')).focus()")
    assert desk.typed("receive", r"destination\orders", "--reject").status == 0
    dead = f"{queues}.some((one) => one.textContent.includes('deadxact'))"
    desk.until(dead)
    assert desk.typed("purge", r"sender\deadxact").status == 0
    desk.until(dead, value=False)
    assert desk.browser.evaluate(focused) == r"destination\notes"

    messages = "document.querySelectorAll('#sheet .opens').length"
    assert desk.typed("purge", r"destination\notes").status == 0
    desk.typed("send", r"destination\notes", "-b", "x", "--recoverable", "--count", "3")
    desk.browser.press(*ENTER)
    desk.until(messages, 3)
    desk.browser.evaluate("[...document.querySelectorAll('#sheet .opens')].at(-1).focus()")
    message = desk.browser.evaluate(focused)
    assert desk.typed("receive", r"destination\notes").status == 0
    desk.until(messages, 2)
    assert desk.browser.evaluate(focused) == message
    assert desk.browser.evaluate("read") == []


@pytest.fixture(scope="module")
def busy(running: Desk) -> Iterator[str]:
    """Set up a cut link, a failed message, and an application that holds two messages; yield the identifier of one of
    these two.
    """
    running.typed("purge", r"destination\orders")
    sent = running.typed(
        "send", "orders", "-b", "x", "--transactional", "--label", "held", "--count", "5", "--dead-letter"
    )
    assert sent.status == 0
    assert running.typed("receive", r"destination\orders", "--reject").status == 0
    with (
        blocking.connect(str(running.file), "destination", running.directory) as client,
        client.transaction("orders", 2, 30) as taken,
    ):
        assert len(taken) == 2
        assert running.typed("cut", "intermediate", "destination").status == 0
        assert running.typed("send", "orders", "-b", "x", "--transactional").status == 0
        yield sent.out.splitlines()[1]
    assert running.typed("mend").status == 0


@pytest.mark.long
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1_440])
def test_it_can_be_read_by_day_and_by_night_on_any_screen(
    running: Desk, busy: str, width: int, *, is_dark: bool
) -> None:
    browser = running.browser
    browser.open(running.address, width, is_dark=is_dark)
    running.until("Boolean(document.querySelector('.link.wrong'))")
    browser.evaluate("document.querySelector('.link.wrong').dispatchEvent(new MouseEvent('click'))")
    running.shows("#chosen dd", "cut")
    running.shows("#sessions td[data-field=round_trip]", "ms")
    running.shows("#outgoing td", "the link is cut by hand")
    browser.evaluate(f"document.getElementById('story-of').value = {busy!r}")
    running.press("Tell", "#story")
    running.shows("#story-inner td", "delivered")
    running.press("Look", "#failed")
    running.shows("#failed-inner li", "held")
    # axe-core takes seconds: each width is looked at by it once, and so are day and night.
    looked_at = is_dark == (width == 360)
    readable(browser, width, "html" if looked_at else "")
    browser.evaluate(
        "[...document.querySelectorAll('#queues .opens')].find((one) => one.textContent.endsWith('orders')).click()"
    )
    running.shows("#sheet p", "has not settled 2 messages")
    running.shows("#sheet p", "intermediate-destination is cut by hand; to undo: mqproto mend")
    readable(browser, width, "#sheet" if looked_at else "")
    running.press("Purge", "#sheet")
    readable(browser, width, "#sure" if looked_at else "")
    assert browser.complaints == []


def readable(browser: Chromium, width: int, selector: str) -> None:
    """Check that everybody can read the page, without scrolling sideways.

    Args:
        selector: the part of the page that axe-core checks; if it is empty, axe-core checks nothing.
    """
    assert not selector or browser.barriers(selector) == []
    assert browser.evaluate(CONTRAST) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = (
        "[...document.querySelectorAll('button, h2, th[scope=row], td, dd')].filter((one) => one.offsetParent && "
        f"one.getBoundingClientRect().right > {width + 0.5}).length"
    )
    assert browser.evaluate(outside) == 0


def test_who_has_a_token_to_read_has_nothing_to_press_and_no_token_opens_nothing(
    running: Desk, tmp_path: Path
) -> None:
    tokens = written_tokens(tmp_path, reader='role = "read"\nqueues = ["*"]')
    command = [*COMMAND, "console", "--topology", str(running.file), "--directory", str(running.directory)]
    command += ["--tokens", str(tokens)]
    browser = running.browser
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base = process.stdout.readline().partition("#")[0]
            browser.open(f"{base}#token={'reader' * 32}")
            running.until("document.body.dataset.at > 0")
            assert browser.text("#live") == "live, to look only"
            browser.evaluate("document.querySelector('.link').dispatchEvent(new MouseEvent('click'))")
            running.shows("#chosen p", "You may look, and change nothing.")
            assert browser.evaluate("document.querySelectorAll('#chosen button').length") == 0
            assert browser.evaluate("document.getElementById('traffic').hidden")
            assert browser.evaluate("location.hash") == ""
            browser.evaluate("sessionStorage.clear()")
            browser.open(base)
            running.shows("#gate", "open the console by the address that it printed")
            assert browser.text("main") == browser.text("#gate")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
