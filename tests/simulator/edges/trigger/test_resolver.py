"""The answers of a document resolver, and what its silence means.

"Duplicate detection" means the document "Summary of Duplicate Detection Process for JMS Triggers".
"""

from __future__ import annotations

import json

import pytest
import trio

from mqproto.edge.exactlyonce import Verdict
from mqproto.simulator.edges.trigger.callee import Call, endpoint
from mqproto.simulator.edges.trigger.resolver import HttpResolver, PythonResolver
from tests.simulator.consumers import DROP, HttpConsumer, Reply, listening

CALL = Call(message="GUID\\1", key="order-17", delivery_count=2, body=b"one")
NEW, DUPLICATE, IN_DOUBT, ASK_AGAIN = Verdict.NEW, Verdict.DUPLICATE, Verdict.IN_DOUBT, None


def says(status: object) -> Reply:
    return Reply(200, json.dumps({"status": status}).encode())


@pytest.mark.parametrize(
    ("cue", "verdict"),
    [
        (says("NEW"), NEW),
        (says("DUPLICATE"), DUPLICATE),
        (says("IN_DOUBT"), IN_DOUBT),
        (says("PERHAPS"), IN_DOUBT),
        (says(["NEW"]), IN_DOUBT),
        (Reply(200, b"NEW"), IN_DOUBT),
        (Reply(200, b'["NEW"]'), IN_DOUBT),
        (Reply(200, b"[" * 60_000), IN_DOUBT),
        (Reply(404), IN_DOUBT),
        (Reply(302), IN_DOUBT),
        (Reply(408), ASK_AGAIN),
        (Reply(429), ASK_AGAIN),
        (Reply(503), ASK_AGAIN),
        (DROP, ASK_AGAIN),
    ],
)
async def test_what_a_resolver_behind_http_says(cue: Reply | None, verdict: Verdict | None) -> None:
    """Duplicate detection, step 3: NEW, DUPLICATE, IN_DOUBT; the rest is our interpretation."""
    consumer = HttpConsumer(cue)
    async with listening(consumer), endpoint(consumer.url) as found:
        resolution = await HttpResolver(found).resolve(CALL)
    assert resolution.verdict is verdict
    assert resolution.reason.isprintable()
    assert consumer.seen[0].headers["mq-delivery-count"] == "2"


@pytest.mark.parametrize(("status", "verdict"), [("NEW", NEW), ("new", IN_DOUBT), (None, IN_DOUBT)])
async def test_what_a_function_says(status: object, verdict: Verdict) -> None:
    async def later(call: Call) -> object:
        await trio.lowlevel.checkpoint()
        return status

    for function in (later, lambda call: status):
        assert (await PythonResolver(function).resolve(CALL)).verdict is verdict


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(ConnectionError("away"), ASK_AGAIN), (TimeoutError(), ASK_AGAIN), (KeyError("order"), IN_DOUBT)],
)
async def test_a_function_that_raises_is_asked_again_or_leaves_the_message_in_doubt(
    error: Exception, verdict: Verdict | None
) -> None:
    def fails(call: Call) -> str:
        raise error

    resolution = await PythonResolver(fails).resolve(CALL)
    assert resolution.verdict is verdict
    assert type(error).__name__ in resolution.reason
