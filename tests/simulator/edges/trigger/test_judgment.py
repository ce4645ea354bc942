"""What of the judgments on several messages shares a flush of the history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.edges.history.documents import Answer, Call as Asked, Documents
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.edges.trigger.breaker import Breaker
from mqproto.simulator.edges.trigger.callee import Call, PythonCallee
from mqproto.simulator.edges.trigger.detection import Detection
from mqproto.simulator.edges.trigger.judgment import Judge, Waypoint
from mqproto.simulator.edges.trigger.leadership import Leadership
from mqproto.simulator.edges.trigger.policy import Retries
from mqproto.wire import Guid, encode_packet
from mqproto.wire.messages import user_message
from tests.simulator.running import Log

MANAGER = Guid(bytes(range(16)))


def message(number: int) -> ReceivedMessage:
    record = user_message(
        source=MANAGER,
        destination_manager=MANAGER,
        destination=7,
        message_id=number,
        sent_time_s=0,
        body=b"%d" % number,
    )
    return ReceivedMessage(encode_packet(record))


async def test_what_ends_a_message_and_what_begins_the_next_is_one_transaction(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever dies when, the next was not called before the history knew that the one before was processed."""
    transactions: list[list[str]] = []
    carry_out = Documents._transaction

    def noted(self: Documents, calls: Sequence[Asked], **options: bool) -> list[Answer]:
        transactions.append([type(call).__name__ for call in calls])
        return carry_out(self, calls, **options)

    monkeypatch.setattr(Documents, "_transaction", noted)
    called: list[bytes] = []

    async def consumer(call: Call) -> None:
        called.append(call.body)

    async with open_history(f"sqlite:///{tmp_path / 'history.sqlite'}") as history:
        detection = Detection("orders", "trigger", history)
        retries = Retries()
        judge = Judge(
            PythonCallee(consumer),
            detection,
            Breaker(5, retries, 1),
            Leadership().confirm,
            retries.attempts,
            30,
            node_log(Log(), "trigger"),
        )
        async with trio.open_nursery() as nursery:

            async def decide(number: int) -> None:
                def decided() -> None:
                    if number < 3:
                        nursery.start_soon(decide, number + 1)

                ending = await judge.decide(message(number), decided)
                assert ending.waypoint is Waypoint.COMMITTED

            await decide(1)
    assert called == [b"1", b"2", b"3"]
    assert transactions == [["Begin"], ["Finish", "Begin"], ["Finish", "Begin"], ["Finish"]]
