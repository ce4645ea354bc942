"""Access: only programs and pages of this machine that have a token may do anything."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, Reject
from mqproto.simulator.console.feed import CLIENTS
from mqproto.simulator.console.front import page
from mqproto.simulator.console.guard import check_address, is_here
from mqproto.simulator.topology import load
from tests.simulator.console.consoles import console, told
from tests.simulator.gateways import bearer, written_tokens
from tests.simulator.running import Log, running_with_client, until


class Desk(NamedTuple):
    """A client of a node that has messages in a queue, a client of a console, and a log."""

    node: Client
    console: httpx.AsyncClient
    log: Log


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    topology = load("three-node").with_free_ports()
    tokens = written_tokens(
        tmp_path,
        reader='role = "read"\nqueues = ["*"]',
        sender='role = "send"\nqueues = ["*"]',
        shop='role = "all"\nqueues = ["orders"]',
        boss='role = "all"\nqueues = ["*"]',
    )
    log = Log()
    async with (
        running_with_client(topology, "destination", tmp_path) as node,
        console(topology, tmp_path, log, tokens) as client,
    ):
        await node.send_many("orders", [Draft(body=body, transactional=True) for body in (b"one", b"two")])
        yield Desk(node, client, log)


async def waiting(node: Client, name: str = "orders") -> int:
    return sum(queue.waiting for queue in (await node.queues()).local if queue.name == name)


PURGE = {"deed": "purge", "node": "destination", "queue": "orders"}


async def test_a_deed_is_done_for_who_has_the_token_and_is_in_the_log_without_it(desk: Desk) -> None:
    answer = await desk.console.post("/do", json=PURGE)
    assert (answer.status_code, answer.json()) == (200, {"lines": ["2 messages deleted"]})
    assert await waiting(desk.node) == 0
    line = await desk.log.line("operated")
    assert (line["operation"], line["holder"], line["queue"]) == ("purge", "console", "orders")
    token = desk.console.headers["Authorization"].removeprefix("Bearer ")
    assert token not in desk.log.getvalue()


STRANGERS: list[tuple[int, dict[str, str]]] = [
    (401, {"Authorization": ""}),
    (401, {"Authorization": "Bearer reader"}),
    (401, {"Authorization": f"Basic {'boss' * 32}"}),
    (403, bearer("sender" * 32)),
    (403, bearer("shop" * 32)),
    (421, {"Host": "evil.example:9170"}),
    (421, {"Host": "127.0.0.1.evil.example"}),
    (403, {"Origin": "http://evil.example"}),
    (403, {"Origin": "null"}),
    (403, {"Sec-Fetch-Site": "cross-site"}),
    (403, {"Sec-Fetch-Site": "same-site"}),
]
LOOKS = ("/events", "/explain?node=destination&of=orders", "/story?of=x", "/failed", "/nothing")


async def test_who_may_not_is_told_nothing_and_does_nothing(desk: Desk) -> None:
    for status, headers in STRANGERS:
        assert (await desk.console.post("/do", json=PURGE, headers=headers)).status_code == status, headers
        for path in LOOKS:
            answer = await desk.console.get(path, headers=headers)
            assert (answer.status_code, "orders" in answer.text) == (status, False), (path, headers)
    assert await waiting(desk.node) == 2


async def test_who_may_read_looks_and_does_not_act(desk: Desk) -> None:
    reader = bearer("reader" * 32)
    async with told(desk.console, **reader) as following:
        assert (await following())[1]["may_act"] is False
        assert (await following())[0] == "state"
    answer = await desk.console.get("/explain?node=destination&of=orders", headers=reader)
    assert answer.json()["lines"][0]["text"] == "destination\\orders: 2 messages"
    refused = await desk.console.post("/do", json=PURGE, headers=reader)
    assert (refused.status_code, "yours has the role read" in refused.json()["error"]) == (403, True)
    assert await waiting(desk.node) == 2
    assert (await desk.console.post("/do", json=PURGE, headers=bearer("boss" * 32))).status_code == 200


MISUSE: list[tuple[int, str, str, dict[str, Any]]] = [
    (405, "GET", "/do", {}),
    (405, "POST", "/failed", {}),
    (405, "POST", "/", {}),
    (415, "POST", "/do", {"content": b"deed=purge", "headers": {"Content-Type": "text/plain"}}),
    (400, "POST", "/do", {"json": {"deed": "burn"}}),
    (400, "POST", "/do", {"json": {**PURGE, "force": True}}),
    (400, "POST", "/do", {"json": {"deed": "purge"}}),
    (400, "POST", "/do", {"json": {**PURGE, "queue": "<b>no such</b>"}}),
    (400, "POST", "/do", {"json": {"deed": "retry", "messages": []}}),
    (400, "POST", "/do", {"json": {"deed": "traffic", "nodes": ["destination"], "rate": 5}}),
    (409, "POST", "/do", {"json": {"deed": "cut", "nodes": ["sender", "intermediate"]}}),
    (409, "POST", "/do", {"json": {"deed": "purge", "node": "sender", "queue": "replies"}}),
    (413, "POST", "/do", {"json": {**PURGE, "node": "x" * 70_000}}),
    (400, "GET", "/explain?of=" + "x" * 5_000, {}),
    (400, "GET", "/story", {}),
    (404, "GET", "/../guard.py", {}),
]


async def test_what_cannot_be_done_is_one_line(desk: Desk) -> None:
    for status, method, path, options in MISUSE:
        answer = await desk.console.request(method, path, **options)
        assert (answer.status_code, "\n" in answer.json()["error"]) == (status, False), (
            method,
            path,
            options,
        )
    assert await waiting(desk.node) == 2


async def test_what_is_on_its_way_is_paused_and_goes_on(desk: Desk) -> None:
    await desk.node.send(r"sender\replies", b"out", transactional=True)
    [name] = [queue.name for queue in (await desk.node.queues()).outgoing]
    for deed, is_held in (("pause", True), ("resume", False)):
        order = {"deed": deed, "node": "destination", "queue": name}
        assert (await desk.console.post("/do", json=order)).status_code == 200
        [queue] = (await desk.node.queues()).outgoing
        assert (queue.state == "on hold") == is_held


async def test_a_dead_letter_is_found_tried_again_and_sent_back(desk: Desk) -> None:
    await desk.node.send("orders", b"bad", transactional=True, journal_negative=True)
    for deed in ("retry", "return"):
        async with desk.node.transaction("orders", 10):
            raise Reject
        found = (await desk.console.get("/failed")).json()
        order: dict[str, Any] = {"deed": deed, "messages": [each["message"] for each in found["failed"]]}
        if deed == "return":
            order |= {"node": "destination", "queue": "system$;deadxact"}
        answer = await desk.console.post("/do", json=order)
        assert answer.json() == {"lines": ["1 message sent once more"]}
        assert await waiting(desk.node) == 1


async def test_the_page_may_load_its_own_and_nothing_else(desk: Desk) -> None:
    first, second = [await desk.console.get("/", headers={"Authorization": ""}) for _ in range(2)]
    policy = first.headers["Content-Security-Policy"]
    [nonce] = set(re.findall(r"'nonce-([^']+)'", policy))
    tags = re.findall(r"<(?:script|link rel=\"stylesheet\")[^>]*>", first.text)
    assert len(tags) == 3
    assert all(f'nonce="{nonce}"' in tag for tag in tags)
    assert nonce not in second.text
    assert {"default-src 'none'", "frame-ancestors 'none'", "trusted-types 'none'"} <= set(policy.split("; "))
    assert "unsafe" not in policy
    known = page()
    wanted = {"/palette.css", "/console.css", "/icon.svg", "/main.js"}
    for data in known.values():
        wanted |= {f"/{name}" for name in re.findall(r'from "\./([a-z]+\.js)"', data.decode())}
    assert wanted == known.keys() - {"/index.html"}
    for path in wanted:
        answer = await desk.console.get(path)
        assert (answer.status_code, answer.headers["X-Content-Type-Options"]) == (200, "nosniff")


async def test_of_too_many_browsers_the_last_is_told_so_and_has_room_when_another_goes(desk: Desk) -> None:
    async with AsyncExitStack() as browsers:
        for _ in range(CLIENTS - 1):
            following = await browsers.enter_async_context(told(desk.console))
            assert (await following())[0] == "hello"
        async with told(desk.console) as following:
            assert (await following())[0] == "hello"
            refused = await desk.console.get("/events")
            assert (refused.status_code, "close one of them" in refused.json()["error"]) == (503, True)

        async def has_room() -> bool:
            async with desk.console.stream("GET", "/events") as answer:
                return answer.status_code == 200

        await until(has_room)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9170", "localhost:1", "LOCALHOST", "[::1]:9170", "127.8.8.8:80"]
)
def test_a_name_of_this_machine_is_one_however_a_tunnel_calls_its_port(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize(
    "host", ["", "10.0.0.1:9170", "localhost.evil.example", "evil.example", "0.0.0.0", "[::]:9170"]
)
def test_any_other_name_is_none(host: str) -> None:
    assert not is_here(host)


def test_a_console_that_others_could_reach_is_not_served() -> None:
    with pytest.raises(Exception, match="ssh -L 9170"):
        check_address("0.0.0.0", 9_170)
