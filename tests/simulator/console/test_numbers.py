"""The numbers on the page in a browser equal those of `mqproto queues --json`, sample by sample, while messages move.

`make console` compares 1,000 samples while 100,000 messages wait.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, connect
from mqproto.simulator.client.explain import is_kept
from mqproto.simulator.client.live import Away
from mqproto.simulator.client.oversee import queues_as_json
from mqproto.simulator.console import watch
from mqproto.simulator.console.state import State
from mqproto.simulator.console.stories import FIRST
from mqproto.simulator.console.watch import Sample
from mqproto.simulator.topology import load
from mqproto.transfer.outgoing import ORDER_SUFFIX
from tests.chromium import PROGRAM, Chromium, chromium
from tests.simulator.console.consoles import console
from tests.simulator.running import running, until

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: apt-get install chromium")
SAMPLES: Final = int(os.environ.get("MQPROTO_CONSOLE_SAMPLES", "20"))
WAITING: Final = int(os.environ.get("MQPROTO_CONSOLE_WAITING", "2000"))
LOCAL: Final = ("waiting", "unsettled", "held", "consumers")
OUTGOING: Final = ("waiting", "unsent", "in_flight", "unacked", "unread", "resent")
SUMS: Final = ("resent", "duplicates", "refused", "expired")
KEEP: Final = """
seen = {};
cells = (row) => Object.fromEntries([...row.cells].map((cell) => [cell.dataset.field, cell.textContent]));
table = (id) => Object.fromEntries(
  [...document.querySelectorAll(`#${id} tbody tr`)].map((row) => [row.dataset.key, cells(row)]));
totals = () => Object.fromEntries(
  [...document.querySelectorAll("#totals li")].map((one) => [one.dataset.field, one.firstChild.textContent]));
new MutationObserver(() => {
  seen[document.body.dataset.at] = { queues: table("queues"), outgoing: table("outgoing"), totals: totals() };
}).observe(document.body, { attributeFilter: ["data-at"] });
0
"""
"""A script that makes the page remember what it shows for each sample, keyed by the sample's time."""


class Desk(NamedTuple):
    """Three nodes, a console and a page that shows them, and the output of `queues --json` for each sample."""

    sender: Client
    destination: Client
    browser: Chromium
    said: dict[int, list[dict[str, Any]]]
    sizes: list[int]

    async def asked(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return await trio.to_thread.run_sync(self.browser.evaluate, expression)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@asynccontextmanager
async def watched(browser: Chromium, directory: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """Run the nodes, the console and the page, with twenty samples a second instead of two."""
    topology = load("three-node").with_free_ports()
    said: dict[int, list[dict[str, Any]]] = {}
    sizes: list[int] = []
    now = State.now

    def told(state: State, samples: Mapping[str, Sample]) -> bytes:
        event = now(state, samples)
        found = {name: (name in samples and samples[name].status) or Away() for name in topology.nodes}
        said[json.loads(event)["at_ms"]] = json.loads(json.dumps(queues_as_json(topology, found)))
        sizes.append(len(event))
        return event

    patch.setattr(State, "now", told)
    patch.setattr(watch, "LOOK_S", 0.05)
    async with AsyncExitStack() as stack:
        for name in topology.nodes:
            await stack.enter_async_context(running(topology, name, directory))
        clients = [
            await stack.enter_async_context(connect(topology, name, directory))
            for name in ("sender", "destination")
        ]
        page = await stack.enter_async_context(console(topology, directory))
        token = page.headers["Authorization"].removeprefix("Bearer ")
        await trio.to_thread.run_sync(browser.open, f"{page.base_url}/#token={token}".replace("//#", "/#"))
        desk = Desk(clients[0], clients[1], browser, said, sizes)

        async def is_shown() -> bool:
            return bool(await desk.asked("document.body.dataset.at > 0"))

        await until(is_shown)
        yield desk


async def send(client: Client, queue: str, *, transactional: bool) -> None:
    """Send messages without end: sometimes a few, sometimes many at once."""
    for number in count():
        drafts = [Draft(body=b"x" * 100, transactional=transactional)] * (1, 3, 40)[number % 3]
        await client.send_many(rf"destination\{queue}", drafts)
        await trio.sleep(0.02)


async def receive(client: Client, queue: str) -> None:
    """Receive some messages at a time, and hold them for a moment."""
    while True:
        async with client.transaction(queue, 50):
            await trio.sleep(0.05)


async def test_each_number_is_that_of_queues_as_json_while_messages_move(
    browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: dict[str, str] = {}
    async with watched(browser, tmp_path, monkeypatch) as desk, trio.open_nursery() as load_on:
        await desk.asked(KEEP)
        for queue, transactional in (("orders", True), ("notes", False)):
            load_on.start_soon(partial(send, desk.sender, queue, transactional=transactional))
            load_on.start_soon(receive, desk.destination, queue)
        while len(compared) < SAMPLES:
            await trio.sleep(0.2)
            for at, shown in (await desk.asked("[seen, seen = {}][0]")).items():
                compare(shown, desk.said[int(at)])
                compared[at] = json.dumps(shown)
        load_on.cancel_scope.cancel()
    assert len(set(compared.values())) > SAMPLES / 2, "nothing moved"
    assert browser.complaints == []
    print(f"{len(compared):,} samples compared, {len(set(compared.values())):,} of them different")


def number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def compare(shown: dict[str, dict[str, Any]], said: list[dict[str, Any]]) -> None:
    """Check that a page shows what is reported for a sample, and nothing else."""
    sent, passed = Counter[str](), Counter[str]()
    sums = dict.fromkeys(("waiting", "kept", "outgoing", "held", *SUMS), 0)
    for node in said:
        for queue in node["local"]:
            kept = is_kept(queue["name"])
            sums["kept" if kept else "waiting"] += queue["waiting"]
            sums["held"] += queue["held"]
            if not kept or queue["waiting"]:
                same(shown["queues"].pop(f"{node['node']}\\{queue['name']}"), queue, LOCAL)
        for queue in node["outgoing"]:
            to = queue["to"].partition("\\")[0]
            sums["outgoing"] += queue["waiting"] * queue["sequence"]
            sent[to] += queue["unacked"] * queue["sequence"]
            passed[to] += queue["waiting"] * (not queue["sequence"])
            if queue["waiting"] or queue["unread"] or not queue["name"].endswith(ORDER_SUFFIX):
                same(shown["outgoing"].pop(f"{node['node']} to {queue['name']}"), queue, OUTGOING)
        for name in SUMS:
            sums[name] += node[name]
    sums["outgoing"] += sum((passed - sent).values())
    assert (shown["queues"], shown["outgoing"]) == ({}, {})
    assert {name: number(shown["totals"][name]) for name in sums} == sums


def same(row: dict[str, str], queue: dict[str, Any], names: tuple[str, ...]) -> None:
    assert {name: number(row[name]) for name in names} == {name: queue[name] for name in names}


async def test_a_page_is_told_no_more_and_shows_no_more_where_many_messages_wait(
    browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = r"document.querySelector('#queues tr[data-key=\"destination\\\\notes\"] [data-field=waiting]').textContent"
    elements = "document.querySelectorAll('body *').length"
    async with watched(browser, tmp_path, monkeypatch) as desk:
        before, size = await desk.asked(elements), desk.sizes[-1]
        await desk.destination.send_many("notes", [Draft(body=b"x")] * WAITING)

        async def is_shown() -> bool:
            return bool(await desk.asked(shown) == f"{WAITING:,}")

        await until(is_shown)
        assert await desk.asked(elements) == before
        assert desk.sizes[-1] < size + 1_000
        await desk.asked("document.querySelector('#queues tr[data-key$=notes] .opens').click()")

        async def is_open() -> bool:
            return bool(await desk.asked("document.querySelectorAll('#sheet .opens').length > 0"))

        await until(is_open)
        assert await desk.asked("document.querySelectorAll('#sheet .opens').length") == FIRST
        await desk.asked("document.getElementById('sheet').close()")
