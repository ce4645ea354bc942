"""Somebody is told by HTTP how each message ended: until he has heard it, by rules that consumers know."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import Client
from mqproto.simulator.edges.history.history import DocumentHistory, Hook, open_history
from mqproto.simulator.edges.httpclient import HttpClient
from mqproto.simulator.edges.trigger.detection import scope_of
from mqproto.simulator.edges.trigger.hooks import AllowedHosts, EndHook, Hooks
from mqproto.simulator.edges.trigger.policy import Policy, Retries
from mqproto.simulator.edges.trigger.signing import signed
from tests.simulator.consumers import DROP, ERROR, OK, HttpConsumer, Reply, Seen, business_error, listening
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


@asynccontextmanager
async def telling(
    history: DocumentHistory, log: Log, may_tell: Callable[[str], None] = lambda url: None, attempts: int = 9
) -> AsyncIterator[Hooks]:
    retries = Retries(interval_s=0.01, limit_s=0.02, attempts=attempts)
    with closing(HttpClient()) as client:
        yield Hooks(history, "desk", client, node_log(log, "desk"), may_tell, SECRETS, retries)


async def test_each_end_is_told_until_it_is_heard_and_under_one_name(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    consumer, told = HttpConsumer(), HttpConsumer(ERROR, DROP, Reply(200, b"half", cut=2), Reply(503))

    async def by_body(seen: Seen) -> Reply:
        answers = {b"bad": business_error("no-order", "17"), b"poison": ERROR}
        return answers.get(seen.body, OK)

    consumer.answering = by_body
    log = Log()
    async with listening(told), called_over_http(consumer) as callee, telling(history, log) as hooks:
        hook = EndHook(hooks, told.url, r"desk\orders", scope_of("orders"))
        start(callee, Policy(error_queue=ERRORS, retries=SOON), history, log=log, hook=hook)
        sent = await send(desk, b"good", b"bad", b"poison")
        await log.at_least(3, "told")
        await start.stop()
    heard = {seen.headers["webhook-id"]: json.loads(seen.body) for seen in told.seen}
    assert len(told.seen) == 3 + 4
    assert len(log.lines("not-told")) == 4
    for end in heard.values():
        del end["ended"]
    common = {"queue": r"desk\orders", "copy_in": ERRORS}
    assert list(heard.values()) == [
        {"id": sent[0], "queue": r"desk\orders", "state": "processed", "message": sent[0], "attempts": 1},
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

    def may_tell(url: str) -> None:
        if url == elsewhere.url:
            raise UsageError("not there")

    async with open_history(new_sqlite_url()) as history, listening(refusing), listening(elsewhere):
        async with listening(absent):
            pass
        for number, consumer in enumerate((refusing, absent, elsewhere)):
            await history.tell("desk", Hook(str(number), consumer.url, b"{}"))
        async with telling(history, log, may_tell, attempts=3) as hooks, trio.open_nursery() as nursery:
            nursery.start_soon(hooks.run)
            lines = await log.at_least(3, "given-up")
            nursery.cancel_scope.cancel()

        async def is_over() -> bool:
            return (await history.due("desk", 9)) == ([], None)

        await until(is_over)
    reasons = {line["hook"]: (line["attempt"], line["reason"].partition(" (")[0]) for line in lines}
    assert reasons == {"0": (1, "gone"), "1": (3, "it cannot be connected to"), "2": (1, "not there")}
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
    allowed = AllowedHosts(frozenset({"shop.example", "other.example:8443"}))
    if is_allowed:
        allowed.check(url)
    else:
        with pytest.raises(UsageError):
            allowed.check(url)
    with pytest.raises(UsageError):
        AllowedHosts().check(url)
