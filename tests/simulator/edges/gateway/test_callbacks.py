"""What a gateway owes to URLs: how each message ended, in each of its lives, once."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

from mqproto.edge.exactlyonce import Entry
from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client
from mqproto.simulator.edges.gateway.callbacks import LOOKS, OwedCallbacks
from mqproto.simulator.edges.gateway.message import KeptFacts
from mqproto.simulator.edges.history.documents import UNKNOWN, Record
from mqproto.simulator.edges.trail import BEFORE, LIVES
from mqproto.simulator.node.node import RunningNode
from mqproto.simulator.node.posting import FULL_RECEIVE
from mqproto.turn.effects import PostedRow, Writes
from mqproto.wire import MessageClass
from tests.simulator.node.test_posting import QUEUE, client, log, node
from tests.simulator.running import until

__all__ = ["client", "log", "node"]
ABOUT = KeptFacts(callback="http://shop.example/", given="17").encoded()


class Says(dict[tuple[str, str], bytes]):
    """A history of triggers."""

    async def look(self, scope: str, key: str) -> Record:
        said = self.get((scope, key))
        return UNKNOWN if said is None else Record(Entry.COMPLETED, "", 1, said)


async def due(owed: OwedCallbacks) -> list[tuple[str, str, str, int]]:
    """Return the reports that are due, and have each heard."""
    found = []
    for hook in (await owed.due(9)).due:
        told = json.loads(hook.body)
        found.append((told["id"], told["message"], told["state"], len(told.get("before", []))))
        assert (hook.url, hook.attempts) == ("http://shop.example/", 0)
        await owed.attempted(hook.id, has_heard=True)
    return found


@pytest.mark.parametrize("is_here", [True, False], ids=["sent again here", "sent again elsewhere"])
async def test_the_url_of_the_post_is_told_of_each_life_of_its_message_once(
    node: RunningNode, client: Client, is_here: bool
) -> None:
    says, posting = Says(), node.posting
    owed = OwedCallbacks(posting, says.look)
    sent = {"admin_queue": posting.address, "acknowledgments": FULL_RECEIVE, "transactional": True}
    first = await posting.post(QUEUE, Draft(body=b"x", **sent), "17", b"x", ABOUT, owed=True)  # type: ignore[arg-type]
    assert await due(owed) == []
    await client.receive("orders", 1)

    async def has_ended() -> bool:
        return owed.news.is_set()

    await until(has_ended)
    assert await due(owed) == [("17", first.message_id, "received", 0)]
    if is_here:
        again = str(await client.send(QUEUE, b"x", **sent))  # type: ignore[arg-type]
        await client.receive("orders", 1)
    else:
        again = "00000000-0000-0000-0000-000000000007\\7"
        row = PostedRow(10**6, "", again, b"", b"", 1, MessageClass.ACK_RECEIVE, 9, owed=True)
        node.commit(Writes(posted=[row]))
        posting.carried_out([row], [])
    await until(has_ended)
    assert await due(owed) == [], "who sent it has not written down yet what it was"
    says[LIVES, first.message_id] = json.dumps({"state": "failed", "again": again}).encode()
    says[BEFORE, again] = first.message_id.encode()
    await posting.post(QUEUE, Draft(body=b"y", **sent))  # type: ignore[arg-type]  # What was settled is in the same record.
    owed = OwedCallbacks(posting, says.look)  # As after a restart.
    assert await due(owed) == [("17", again, "received", 1)]
    assert await due(owed) == []


async def test_nobody_is_told_of_a_message_that_was_no_producers(
    node: RunningNode, client: Client, autojump_clock: MockClock
) -> None:
    owed = OwedCallbacks(node.posting, Says().look)
    row = PostedRow(10**6, "", "00000000-0000-0000-0000-000000000007\\7", b"", b"", 1, 0x4000, 9, owed=True)
    node.commit(Writes(posted=[row]))
    node.posting.carried_out([row], [])
    looks = 0
    while (wait_s := (await owed.due(9)).wait_s) is not None:
        looks += 1
        autojump_clock.jump(wait_s)
    assert looks == LOOKS
