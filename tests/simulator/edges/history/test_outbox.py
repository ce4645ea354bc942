"""A report to a producer is kept until the producer has received it, and is sent once; on SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from mqproto.simulator.edges.history.history import FencedError, Hook, open_history
from mqproto.simulator.edges.history.outbox import OutboxWork, State

KEEP_S = 100.0
URL = "http://shop.example/ends"


async def test_what_is_due_is_told_once_whoever_says_it_again_and_by_its_own_sender(history_url: str) -> None:
    now_s = 1_800_000_000.0
    async with open_history(history_url, keep_s=KEEP_S, clock=lambda: 0, passed_s=lambda: now_s) as history:
        for body in (b"ended", b"ended otherwise"):
            await history.tell(Hook("1", "gateway", URL, body))
        await history.tell(Hook("2", "trigger", URL, b"processed"))
        assert await history.due("gateway", 9) == OutboxWork([Hook("1", "gateway", URL, b"ended")], None)
        await history.attempted("1", has_heard=False, again_s=5)
        assert await history.due("gateway", 9) == OutboxWork([], 5)
        now_s += 5
        assert await history.due("gateway", 9) == OutboxWork([Hook("1", "gateway", URL, b"ended", 1)], None)
        await history.attempted("1", has_heard=True)
        for sender in ("gateway", "trigger"):
            await history.tell(Hook("1", sender, URL, b"once more"))
            assert "1" not in {hook.id for hook in (await history.due(sender, 9)).due}
        # What waits is kept for as long as it takes; what is over, and what never ended, is not.
        assert await history.hook("1") == Hook("1", "gateway", URL, b"ended", 2, State.TOLD)
        await history.tell(Hook("3", "gateway", URL, b"", state=State.ARMED))
        now_s += KEEP_S
        await history.look("gateway/orders", "any call finds what is too old")
        assert await history.hook("3") is None
        assert [hook.id for hook in (await history.due("trigger", 9)).due] == ["2"]
        await history.tell(Hook("1", "gateway", URL, b"a month later"))
        assert [hook.id for hook in (await history.due("gateway", 9)).due] == ["1"]


async def test_a_leader_that_was_followed_tells_nobody(history_url: str) -> None:
    scope = "trigger/orders"
    async with open_history(history_url) as history:
        first = await history.lead(scope, "first", 1)
        second = await history.lead(scope, "second", 2, first)
        with pytest.raises(FencedError):
            await history.tell(Hook("1", scope, URL, b"processed"), first.epoch)
        assert (await history.due(scope, 9)).due == []
        await history.tell(Hook("1", scope, URL, b"in-doubt"), second.epoch)
        assert [hook.body for hook in (await history.due(scope, 9)).due] == [b"in-doubt"]
