from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, InDoubt, MessageId, NodeUnreachable
from mqproto.simulator.client.client import as_parts
from mqproto.simulator.rig.load.producer import FINAL_ACK_EVERY, Producer, produce
from mqproto.simulator.rig.load.workload import Workload, orders
from mqproto.simulator.rig.proof import digest_of
from mqproto.simulator.security.keyfiles import SIGNING
from mqproto.turn.guard import STRONG
from mqproto.wire import Guid

MANAGER = Guid(b"s" * 16)


class Node:
    """A node that accepts messages; `fates` says which requests fail, keyed by their numbers, and how.

    After a failure, the client is cut off.
    """

    def __init__(self, fates: dict[int, str]) -> None:
        self.accepted: list[Draft] = []
        self.times: list[float] = []
        self.fates = fates
        self.request_count = 0
        self.connection_count = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        await trio.lowlevel.checkpoint()
        self.connection_count += 1
        if self.connection_count in (1, 3):
            raise NodeUnreachable("not running")
        self.is_lost = False
        yield self  # type: ignore[misc]

    async def send_many(self, destination: str, drafts: list[Draft]) -> list[MessageId]:
        assert destination == r"there\orders"
        assert len(list(as_parts(drafts, 1))) == 1, "a longer list goes in parts, and may be accepted in part"
        await trio.lowlevel.checkpoint()
        if self.is_lost:
            raise NodeUnreachable("connect again")
        self.request_count += 1
        fate = self.fates.get(self.request_count, "")
        self.is_lost = bool(fate)
        if fate == "refused":
            raise NodeUnreachable("connect again")
        if fate != "lost":
            self.accepted += drafts
            self.times += [trio.current_time()] * len(drafts)
        if fate:
            raise InDoubt("it may have been carried out, or not")
        return [
            MessageId(MANAGER, len(self.accepted) - len(drafts) + place) for place, _ in enumerate(drafts)
        ]


async def produced(workload: Workload, node: Node, span_s: float = 10, **options: Any) -> Producer:
    producer = Producer(node.connect, r"there\orders", workload, **options)
    await producer.run(span_s)
    return producer


async def test_messages_are_sent_evenly_and_once_in_order(autojump_clock: trio.testing.MockClock) -> None:
    work, node = orders(1_000), Node({})
    producer = await produced(work, node)
    assert [draft.body for draft in node.accepted] == [item.body for item in work.items()]
    assert [message.message_id for message in producer.sent] == [MessageId(MANAGER, n) for n in range(1_000)]
    assert [message.digest for message in producer.sent] == [
        digest_of(item.label, item.body) for item in work.items()
    ]
    assert producer.sent_bytes == sum(len(item.body) for item in work.items())
    for second in range(1, 10):
        assert sum(at_s <= node.times[0] + second for at_s in node.times) == pytest.approx(
            100 * second, abs=5
        )


async def test_what_has_no_answer_is_in_doubt_and_not_sent_again_what_was_not_asked_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    work, node = orders(500), Node({3: "lost", 7: "done", 9: "refused", 20: "done"})
    producer = await produced(work, node)
    assert len(producer.sent) == 500
    known = [message for message in producer.sent if message.message_id is not None]
    doubtful = [message for message in producer.sent if message.message_id is None]
    assert len({message.at_s for message in doubtful}) == 3, "one request, one time"
    there = {digest_of(draft.label, draft.body) for draft in node.accepted}
    assert len(there) == len(node.accepted), "nothing was sent twice"
    assert {message.digest for message in known} <= there
    assert 0 < sum(message.digest in there for message in doubtful) < len(doubtful)
    assert [message.digest for message in producer.sent] == [
        digest_of(item.label, item.body) for item in work.items()
    ]


@pytest.mark.parametrize("transactional", [False, True])
async def test_every_message_is_one_that_is_kept_and_some_transactional_ones_ask_for_a_final_ack(
    transactional: bool, autojump_clock: trio.testing.MockClock
) -> None:
    node = Node({})
    await produced(orders(100), node, transactional=transactional)
    assert {(draft.transactional, draft.recoverable) for draft in node.accepted} == {
        (transactional, not transactional)
    }
    asked = [place for place, draft in enumerate(node.accepted) if draft.final_ack]
    assert asked == (list(range(0, 100, FINAL_ACK_EVERY)) if transactional else [])


async def test_what_is_encrypted_and_signed_goes_in_requests_that_have_room_for_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node = Node({})
    workload = orders(500, sizes=((1_000, 9_000, 9_000),))
    await produced(workload, node, 0.01, protected=True)
    assert len(node.accepted) == 500
    assert {(draft.privacy_level, draft.signer) for draft in node.accepted} == {(STRONG, SIGNING)}


class SlowNode(Node):
    """A node that takes its time for each request."""

    def __init__(self, request_s: float) -> None:
        super().__init__({})
        self._request_s = request_s

    async def send_many(self, queue: str, drafts: list[Draft]) -> list[MessageId]:
        await trio.sleep(self._request_s)
        return await super().send_many(queue, drafts)


@pytest.mark.long
@pytest.mark.parametrize("request_s", [0, 4, 9])
async def test_what_a_slow_node_has_not_accepted_a_while_after_its_time_is_not_sent(
    request_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    work, node = orders(60_000), SlowNode(request_s)
    producer = Producer(node.connect, r"there\orders", work)
    assert await produce([producer], span_s=10, patience_s=10)
    assert len(producer.sent) == len(node.accepted)
    assert bool(request_s) == (len(producer.sent) < work.count)
    assert trio.current_time() < 60


async def test_a_node_that_accepts_nothing_for_a_while_is_told_from_a_slow_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    producer = Producer(SlowNode(math.inf).connect, r"there\orders", orders(100))
    assert not await produce([producer], span_s=10, patience_s=10)
