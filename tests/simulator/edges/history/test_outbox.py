"""What somebody is to be told is kept until he has heard it, and is told of once; on SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from mqproto.simulator.edges.history.history import FencedError, Hook, open_history
from mqproto.simulator.edges.history.outbox import Outbox

KEEP_S = 100.0
URL = "http://shop.example/ends"


async def test_what_is_due_is_told_once_whoever_says_it_again_and_by_its_own_sender(history_url: str) -> None:
    now_s = 1_800_000_000.0
    async with open_history(history_url, keep_s=KEEP_S, clock=lambda: now_s) as history:
        await history.arm("gateway", Hook("1", URL, b"known"))
        assert await history.due("gateway", 9) == Outbox([], None)
        assert await history.armed("1") == Hook("1", URL, b"known")
        for body in (b"ended", b"ended otherwise"):
            await history.tell("gateway", Hook("1", "", body))
        assert await history.armed("1") is None
        await history.tell("trigger", Hook("2", URL, b"processed"))
        assert await history.due("gateway", 9) == Outbox([Hook("1", URL, b"ended")], None)
        await history.attempted("1", has_heard=False, due_s=now_s + 5)
        assert await history.due("gateway", 9) == Outbox([], now_s + 5)
        now_s += 5
        assert await history.due("gateway", 9) == Outbox([Hook("1", URL, b"ended", 1)], None)
        await history.attempted("1", has_heard=True)
        for sender in ("gateway", "trigger"):
            await history.tell(sender, Hook("1", URL, b"once more"))
            assert "1" not in {hook.id for hook in (await history.due(sender, 9)).due}
        # What waits is kept for as long as it takes; what is over, and what never ended, is not.
        await history.arm("gateway", Hook("3", URL, b""))
        now_s += KEEP_S
        await history.look("gateway/orders", "any call finds what is too old")
        assert await history.armed("3") is None
        assert [hook.id for hook in (await history.due("trigger", 9)).due] == ["2"]
        await history.tell("gateway", Hook("1", URL, b"a month later"))
        assert [hook.id for hook in (await history.due("gateway", 9)).due] == ["1"]


async def test_a_leader_that_was_followed_tells_nobody(history_url: str) -> None:
    scope = "trigger/orders"
    async with open_history(history_url) as history:
        first = await history.lead(scope, "first", 1)
        second = await history.lead(scope, "second", 2, first)
        with pytest.raises(FencedError):
            await history.tell(scope, Hook("1", URL, b"processed"), scope, first.epoch)
        assert (await history.due(scope, 9)).due == []
        await history.tell(scope, Hook("1", URL, b"in-doubt"), scope, second.epoch)
        assert [hook.body for hook in (await history.due(scope, 9)).due] == [b"in-doubt"]
