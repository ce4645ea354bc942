"""The harness's producer follows only "Message Producer Rules": it stops after a final answer, and sends again after
any other.
"""

from __future__ import annotations

import json

import pytest

from mqproto.simulator.edges.gateway.front import refused
from mqproto.simulator.edges.gateway.refusals import MEANINGS, Code, Refusal
from mqproto.simulator.rig.load.posting import Handover, Outgoing, PostingProducer
from tests.simulator.consumers import HttpConsumer, Reply, listening

ACCEPTED = Reply(200, json.dumps({"id": "GUID\\1", "duplicate": False}).encode())


@pytest.mark.parametrize("code", Code)
async def test_a_producer_asks_again_if_and_only_if_it_is_told_when(code: Code) -> None:
    status, headers, body = refused(Refusal(code, "as it is", 1 if MEANINGS[code].retry_after_s else None))
    gateway = HttpConsumer(Reply(status, body, dict(headers)), ACCEPTED)
    handover = Handover()
    async with listening(gateway):
        await PostingProducer(gateway.url, [Outgoing("order-17", "orders", b"one")], handover).run()
    if MEANINGS[code].retry_after_s is None:
        assert (handover.accepted, handover.refused) == ({}, {"order-17": code})
        assert handover.requests == 1
    else:
        assert (handover.accepted, handover.refused) == ({"order-17": "GUID\\1"}, {})
        assert [seen.headers["idempotency-key"] for seen in gateway.seen] == ["order-17", "order-17"]
    assert not handover.wrong
