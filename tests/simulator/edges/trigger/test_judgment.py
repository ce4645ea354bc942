"""Judgments on several messages share a flush of the history."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mqproto.simulator.base.http.tcpstream import TcpStream
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.edges.history.documents import Answer, Call as Asked, Documents
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.edges.options import Retries
from mqproto.simulator.edges.trigger.breaker import Breaker
from mqproto.simulator.edges.trigger.callee import Call, HttpCallee, PythonCallee, endpoint
from mqproto.simulator.edges.trigger.detection import Detection
from mqproto.simulator.edges.trigger.judgment import TriggerEvent, TriggerJudge
from mqproto.simulator.edges.trigger.leadership import Leadership
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
    """No matter when a program dies, the history knows how the previous message ended before the next one is tried."""
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
        judge = TriggerJudge(
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
                assert ending.waypoint is TriggerEvent.COMMITTED

            await decide(1)
    assert called == [b"1", b"2", b"3"]
    assert transactions == [["Begin"], ["Finish", "Begin"], ["Finish", "Begin"], ["Finish"]]


@pytest.mark.parametrize("taken_over", [False, True])
async def test_an_answer_that_came_while_the_trigger_was_stopped_counts_unless_another_leads_since(
    history_url: str, taken_over: bool
) -> None:
    async with open_history(history_url) as history:
        first, second = (Leadership(history, "trigger/orders", name, is_gone=lambda _: True) for name in "ab")
        await first.begin(node_log(Log(), "a"), lambda: None)

        async def served(stream: trio.SocketStream) -> None:
            with closing(TcpStream(stream)) as socket:
                await socket.receive_some()
                if taken_over:
                    await second.begin(node_log(Log(), "b"), lambda: None)
                socket.send_at_once(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                # As its deadline does, and it has not looked at the socket meanwhile.
                judge._calls.pop().cancel()
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(partial(trio.serve_tcp, served, 0, host="127.0.0.1"))
            async with endpoint(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/") as called:
                retries = Retries()
                breaker = Breaker(5, retries, 1)
                judge = TriggerJudge(
                    HttpCallee(called),
                    Detection("orders", "a", history),
                    breaker,
                    first.confirm,
                    retries.attempts,
                    30,
                    node_log(Log(), "a"),
                )
                judge.lead(first.epoch, breaker)
                ending = await judge.decide(message(1))
            nursery.cancel_scope.cancel()
    assert ending.waypoint is (TriggerEvent.UNSETTLED if taken_over else TriggerEvent.COMMITTED)
    assert judge.is_fenced is taken_over
