"""Producers are told over HTTP how each message ended, repeatedly until they have received it, by the rules that also
apply to consumers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from typing import Any

import httpx
import pytest
import trio
from sqlalchemy import create_engine, text
from trio.testing import MockClock

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import Client
from mqproto.simulator.edges.history.history import DocumentHistory, Hook, open_history
from mqproto.simulator.edges.httpclient import HttpClient
from mqproto.simulator.edges.options import Policy, Retries
from mqproto.simulator.edges.trail import ENDS, LIVES, Trail, trail_of
from mqproto.simulator.edges.trigger.detection import scope_of
from mqproto.simulator.edges.trigger.signing import signed
from mqproto.simulator.edges.trigger.telling import HistoryTeller, Offer
from mqproto.turn.effects import PostedRow
from tests.simulator.consumers import DROP, ERROR, OK, HttpConsumer, Reply, Seen, business_error, listening
from tests.simulator.edges.history.test_tables import make_earlier
from tests.simulator.edges.trigger.test_trigger import (
    ERRORS,
    SOON,
    Start,
    called_over_http,
    desk,
    history,
    send,
    start,
    topology,
)
from tests.simulator.running import Log, until

__all__ = ["desk", "history", "start", "topology"]
SECRETS = (b"a" * 32,)
ANY = Offer(None)
QUEUE, KEY, MESSAGE, URL = r"destination\orders", "shop/order-1", "message 1", "http://shop.example/ends"
ROW = PostedRow(1, QUEUE, KEY, b"", b"", 1)
RECEIVED = json.dumps({"message_class": "ACK_RECEIVE", "time_s": 0}).encode()


@asynccontextmanager
async def telling(
    history: DocumentHistory, log: Log, offer: Offer = ANY, attempts: int = 9, sender: str = "desk"
) -> AsyncIterator[HistoryTeller]:
    retries = Retries(interval_s=0.01, limit_s=0.02, attempts=attempts)
    with closing(HttpClient()) as client:
        yield HistoryTeller(history, sender, client, node_log(log, "desk"), offer, SECRETS, retries)


async def test_each_end_is_told_until_it_is_heard_and_under_one_name(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    consumer, told = HttpConsumer(), HttpConsumer(ERROR, DROP, Reply(200, b"half", cut=2), Reply(503))

    async def by_body(seen: Seen) -> Reply:
        answers = {b"bad": business_error("no-order", "17"), b"poison": ERROR}
        return answers.get(seen.body, OK)

    consumer.answering = by_body
    log = Log()
    async with (
        listening(told),
        called_over_http(consumer) as callee,
        telling(history, log, Offer(None, told.url), sender=scope_of("orders")) as hook,
    ):
        start(callee, Policy(error_queue=ERRORS, retries=SOON), history, log=log, hook=hook)
        sent = await send(desk, b"good", b"bad", b"poison")
        await log.at_least(3, "told")
        await start.stop()
    heard = {seen.headers["webhook-id"]: json.loads(seen.body) for seen in told.seen}
    assert len(told.seen) == 3 + 4
    assert len(log.lines("not-told")) == 4
    for end in heard.values():
        del end["ended"]
    common = {"queue": "orders", "copy_in": ERRORS}
    assert list(heard.values()) == [
        {"id": sent[0], "queue": "orders", "state": "processed", "message": sent[0], "attempts": 1},
        {
            "id": sent[1],
            "state": "failed",
            "message": sent[1],
            "attempts": 1,
            "failure": "business error",
            "reason": "no-order: 17",
            **common,
        },
        {
            "id": sent[2],
            "state": "failed",
            "message": sent[2],
            "attempts": 4,
            "failure": "retrieval failure",
            "reason": "HTTP 500",
            **common,
        },
    ]
    for seen in told.seen:
        name, timestamp = seen.headers["webhook-id"], int(seen.headers["webhook-timestamp"])
        assert (
            seen.headers["webhook-signature"]
            == signed(SECRETS, name, timestamp, seen.body)["webhook-signature"]
        )


async def test_who_refuses_it_or_never_answers_or_may_not_be_told_any_more_is_given_up(
    new_sqlite_url: Callable[[], str],
) -> None:
    log = Log()
    refusing, absent, elsewhere = HttpConsumer(business_error("gone")), HttpConsumer(), HttpConsumer()
    absent.answering = elsewhere.answering = _never

    async with open_history(new_sqlite_url()) as history, listening(refusing), listening(elsewhere):
        async with listening(absent):
            pass
        for number, consumer in enumerate((refusing, absent, elsewhere)):
            await history.tell(Hook(str(number), "desk", consumer.url, b"{}"))
        hosts = frozenset(httpx.URL(one.url).netloc.decode() for one in (refusing, absent))
        async with (
            telling(history, log, Offer(hosts, "http://elsewhere.example/"), attempts=3) as hooks,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(hooks.run)
            lines = await log.at_least(3, "given-up")
            nursery.cancel_scope.cancel()

        async def is_over() -> bool:
            return (await history.due("desk", 9)) == ([], None)

        await until(is_over)
    reasons = {line["hook"]: (line["attempt"], line["reason"].partition(" (")[0]) for line in lines}
    nowhere = f"{httpx.URL(elsewhere.url).netloc.decode()} is not a host that callbacks go to here"
    assert reasons == {"0": (1, "gone"), "1": (3, "it cannot be connected to"), "2": (1, nowhere)}
    assert elsewhere.seen == []


async def _never(seen: Seen) -> Reply:
    raise AssertionError("nobody is to be told here")


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://shop.example/ends?a=1", True),
        ("https://SHOP.example:443/", True),
        ("http://shop.example/", True),
        ("http://shop.example:8080/", False),
        ("https://other.example:8443/", True),
        ("https://other.example/", False),
        ("https://shop.example.evil.example/", False),
        ("https://evil.example/?shop.example", False),
        ("https://shop.example@evil.example/", False),
        ("https://user:word@shop.example/", False),
        ("https://shop.example\\@evil.example/", False),
        ("http://169.254.169.254/latest/meta-data/", False),
        ("http://[::1]/", False),
        ("http://127.0.0.1/", False),
        ("file:///etc/passwd", False),
        ("gopher://shop.example/", False),
        ("shop.example", False),
        ("https://shop.example/" + "a" * 2_048, False),
        ("https://shop.example/\r\nX: y", False),
        ("https://shöp.example/", False),
    ],
)
def test_a_producer_may_have_those_hosts_told_that_the_operator_allows(url: str, is_allowed: bool) -> None:
    allowed = Offer(frozenset({"shop.example", "other.example:8443"}))
    if is_allowed:
        allowed.check(url)
    else:
        with pytest.raises(UsageError):
            allowed.check(url)
    with pytest.raises(UsageError):
        Offer().check(url)


async def test_what_is_due_in_hours_is_told_then_though_nobody_else_uses_the_history(
    new_sqlite_url: Callable[[], str], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history's own time advances by ten minutes at most from one look to the next."""
    told, heard = [], trio.Event()
    async with open_history(new_sqlite_url(), passed_s=autojump_clock.current_time) as history:

        async def tell(hook: Hook) -> None:
            told.append(trio.current_time() - began_s)
            await history.attempted(hook.id, has_heard=True)
            heard.set()

        async with telling(history, Log()) as hooks, trio.open_nursery() as nursery:
            monkeypatch.setattr(hooks, "_tell", tell)
            await history.tell(Hook("1", "desk", "http://127.0.0.1:9", b"it ended"))
            await history.attempted("1", has_heard=False, again_s=7_200)
            began_s = trio.current_time()
            nursery.start_soon(hooks.run)
            await heard.wait()
            nursery.cancel_scope.cancel()
    assert told == [pytest.approx(7_200, abs=2)]


# Those who wait for the end of a message


async def told(history: DocumentHistory, sender: str = "gateway") -> list[dict[str, Any]]:
    """Return a gateway's reports that are due."""
    return [json.loads(hook.body) for hook in (await history.due(sender, 9)).due]


async def test_each_life_has_its_own_end(history_url: str) -> None:
    """A message failed twice, and an operator sent it again each time, with another identifier."""
    names = [MESSAGE, "message 2", "message 3"]
    async with open_history(history_url) as history:

        async def trail(of: str = "") -> Trail:
            return await trail_of(ROW, MESSAGE, history.look, lambda name: None, of=of)

        async def now() -> tuple[str, str, str, int, str]:
            found = await trail()
            assert (found.ended is None) is not bool(found.message_class)
            return found.message, found.state, found.message_class, found.attempts, found.reason

        for name, again in pairwise(names):
            assert await now() == (name, "accepted", "", 0, "")
            await history.begin(f"trigger/{QUEUE}", KEY, "trigger")
            await history.finish(f"trigger/{QUEUE}", KEY, Attempt.FAILED_FOR_GOOD, b"E1")
            await history.finish(ENDS, name, Attempt.SUCCEEDED, RECEIVED)
            failed = (name, "failed", "ACK_RECEIVE", 1, "E1")
            assert await now() == failed
            # What an operator does, step by step; he may have died after each.
            life = {"state": "failed", "attempts": 1, "reason": "E1"}
            await history.finish(LIVES, name, Attempt.FAILED_FOR_GOOD, json.dumps(life).encode())
            await history.reopen(f"trigger/{QUEUE}", KEY)
            assert await now() == failed
            await history.finish(LIVES, name, Attempt.SUCCEEDED, json.dumps(life | {"again": again}).encode())
        await history.begin(f"trigger/{QUEUE}", KEY, "trigger")
        assert await now() == (names[-1], "being-processed", "", 1, "")
        await history.finish(f"trigger/{QUEUE}", KEY, Attempt.SUCCEEDED)
        await history.finish(ENDS, names[-1], Attempt.SUCCEEDED, RECEIVED)
        assert await now() == (names[-1], "processed", "ACK_RECEIVE", 1, "")
        for number, name in enumerate(names):
            life_of = await trail(name)
            assert [before.message for before in life_of.before] == names[:number]
            assert (life_of.message, life_of.state) == (name, "failed" if number < 2 else "processed")


@pytest.mark.parametrize("layout", [2, 3])
async def test_what_an_earlier_mqproto_had_in_its_outbox_is_told(history_url: str, layout: int) -> None:
    async with open_history(history_url):
        pass
    hook = json.dumps(
        {"id": "order-9", "queue": QUEUE, "state": "failed", "message": "message 9", "attempts": 1}
    )
    if layout == 2:
        make_earlier(history_url)
    aged = "" if layout == 2 else ", aged_s"
    insertion = (
        f"INSERT INTO document_history_hook (id, sender, state, url, body, attempts, due_s, changed_s{aged}) "
        f"VALUES (:id, :sender, :state, :url, :body, :attempts, 0, 0{aged and ', 1'})"
    )
    engine = create_engine(history_url)
    with engine.begin() as db:
        db.execute(text("DELETE FROM document_history_hook"))
        row = {"id": "message 9/failed", "sender": f"trigger/{QUEUE}", "state": "due", "url": URL}
        db.execute(text(insertion), row | {"body": hook.encode(), "attempts": 3})
    engine.dispose()
    async with open_history(history_url) as history:
        assert await told(history, f"trigger/{QUEUE}") == [json.loads(hook)]


async def test_a_life_whose_identifier_nobody_wrote_down_is_told_without_one(history_url: str) -> None:
    """An operator's command died after it had sent the message again, with an identifier that nobody wrote down."""
    async with open_history(history_url) as history:
        await history.finish(ENDS, MESSAGE, Attempt.FAILED_FOR_GOOD, RECEIVED.replace(b"ACK_", b"NACK_"))
        await history.finish(LIVES, MESSAGE, Attempt.FAILED_FOR_GOOD, b'{"state": "dead-letter"}')
        await history.begin(f"trigger/{QUEUE}", KEY, "trigger")
        await history.finish(f"trigger/{QUEUE}", KEY, Attempt.SUCCEEDED)
        trail = await trail_of(ROW, MESSAGE, history.look, lambda name: None)
        assert (trail.state, trail.message, trail.message_class, trail.ended) == ("processed", "", "", None)
    assert [(one.state, one.message, one.message_class) for one in trail.before] == [
        ("dead-letter", MESSAGE, "NACK_RECEIVE")
    ]
