"""Peer against peer: the promises for each kind of message.  [MS-MQQB] 3.1"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from .peer.packets import NA, PA, PR, Class, UserMessage
from .peer.peer import Peer, bodies
from .wire import A, Wire, direct, pair, private, running

NUMBERED = [b"%d" % n for n in range(200)]
ORDERS, NOTES = direct("orders"), direct("notes")


def send_all(peer: Peer, orders: str = ORDERS, notes: str = NOTES) -> None:
    for body in NUMBERED:
        peer.send(orders, body, transactional=True)
        peer.send(notes, body, recoverable=int(body) % 2 == 0)


def arrived(peer: Peer, count: int = len(NUMBERED)) -> bool:
    return all(len(queue.messages) >= count for queue in peer.queues)


@pytest.mark.parametrize(("orders", "notes"), [(ORDERS, NOTES), (private(10), private(11))])
async def test_all_kinds_arrive_once_and_in_order_and_nothing_stays_behind(
    orders: str, notes: str, autojump_clock: trio.testing.MockClock
) -> None:
    a, b = pair(Wire())
    async with running(a, b):
        send_all(a, orders, notes)
        await b.until(lambda: arrived(b))
        await a.until(lambda: not a.waiting())
    assert [bodies(queue.messages) for queue in b.queues] == [NUMBERED] * 2


async def test_what_is_cut_again_and_again_arrives_once(autojump_clock: trio.testing.MockClock) -> None:
    a, b = pair(Wire())
    async with running(a, b):
        send_all(a)
        while len(b.queues[0].messages) < len(NUMBERED):
            count = len(b.queues[0].messages)
            await b.until(lambda: len(b.queues[0].messages) > count)  # noqa: B023
            a.cut()
        await a.until(lambda: not a.waiting())
    assert [bodies(queue.messages) for queue in b.queues] == [NUMBERED] * 2
    assert len(b.closings) > 2


@pytest.mark.long
async def test_peers_that_are_killed_go_on_where_they_were(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    wire = Wire()
    sent: list[bytes] = []
    for life in range(6):
        a, b = pair(wire)
        a.file, b.file = tmp_path / "a.json", tmp_path / "b.json"
        async with running(a, b):
            for body in NUMBERED[30 * life : 30 * life + 30]:
                a.send(ORDERS, body, transactional=True)
                sent.append(body)
            await b.until(lambda: len(b.queues[0].messages) >= len(sent) - 10)  # noqa: B023
    a, b = pair(wire)
    a.file, b.file = tmp_path / "a.json", tmp_path / "b.json"
    async with running(a, b):
        await a.until(lambda: not a.waiting())
    assert bodies(b.queues[0].messages) == sent


async def test_acknowledgments_that_were_asked_for_come_to_the_administration_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    a, b = pair(Wire())
    async with running(a, b):
        for admin in (private(3, A), direct("replies", a.address)):
            a.send(ORDERS, b"kept", transactional=True, admin=admin, acknowledge=PA | PR)
            await b.until(lambda: bool(b.queues[0].messages))
            b.receive("orders")
            a.send(NOTES, b"refused", transactional=True, admin=admin, acknowledge=NA)
            await a.until(lambda: len(a.queues[0].messages) == 3)
            classes = [message.message_class for message in a.queues[0].messages]
            assert classes == [Class.ACK_REACH_QUEUE, Class.ACK_RECEIVE, Class.NACK_NOT_TRANSACTIONAL_Q]
            a.queues[0].messages.clear()


async def test_what_never_arrives_becomes_a_dead_letter_and_what_follows_bridges_the_gap(
    autojump_clock: trio.testing.MockClock,
) -> None:
    a, b = pair(Wire())
    async with running(a):
        a.send(ORDERS, b"late", transactional=True, time_to_reach_queue=60, dead_letter=True)
        a.send(ORDERS, b"patient", transactional=True)
        await a.until(lambda: bool(a.dead_letters))
        async with running(b):
            await a.until(lambda: not a.waiting())
            assert bodies(b.queues[0].messages) == [b"patient"]
    assert bodies(a.dead_letters) == [b"late"]


async def test_a_final_ack_says_what_was_received_and_what_was_rejected(
    autojump_clock: trio.testing.MockClock,
) -> None:
    a, b = pair(Wire())
    async with running(a, b):
        for body in (b"received", b"rejected"):
            a.send(ORDERS, body, transactional=True, journal=True, dead_letter=True)
        await a.until(lambda: len(a.departures.awaiting) == 2)
        b.receive("orders")
        b.receive("orders", Class.NACK_RECEIVE_REJECTED)
        await a.until(lambda: not a.departures.awaiting)
    assert (bodies(a.journal), bodies(a.dead_letters)) == ([b"received"], [b"rejected"])


async def test_a_sequence_ends_when_all_is_confirmed_and_a_lost_order_ack_is_made_good(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wire = Wire()
    a, b = pair(wire)
    async with running(a, b):
        a.send(ORDERS, b"one", transactional=True)
        await b.until(lambda: bool(b.queues[0].messages))
        b.cut()  # Its OrderAck was for this session, and is never sent.
        await a.until(lambda: not a.waiting())
        a.send(ORDERS, b"two", transactional=True)
        await a.until(lambda: not a.waiting())
    orders = [
        packet for packet in wire.of(a.address) if isinstance(packet, UserMessage) and packet.transaction
    ]
    numbers = [(message.transaction.sequence.ordinal, message.transaction.number) for message in orders]  # type: ignore[union-attr]
    assert numbers == [(1, 1), (1, 1), (2, 1)]
    assert bodies(b.queues[0].messages) == [b"one", b"two"]
