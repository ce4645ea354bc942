"""Messages that arrive together have the same effect as messages that arrive one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.manager.arriving.arrivals import Arrivals
from mqproto.manager.arriving.transit import HOP_LIMIT
from mqproto.turn.effects import Batch, Note
from mqproto.wire import (
    Guid,
    MessageClass,
    OrderAck,
    OrderAckBody,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    user_message,
)
from mqproto.wire.shapes import Shape
from tests.pair import Net, Node, at, guid_of, queue

A, B, C, X = guid_of("a"), guid_of("b"), guid_of("c"), guid_of("x")
SEQUENCES: Final = [TxSequenceId(time_stamp=2_000_000_000, ordinal=ordinal) for ordinal in (1, 2)]
SMALL: Final = Settings(
    waypoints=True,
    window_size=1_000,
    resident_messages=6,
    resident_bytes=3_000,
    quota_bytes=12_000,
    held_messages_limit=2,
    maximum_sequences=2,
    order_ack_timeout_ms=500,
)


def a_node() -> tuple[Net, Node, int]:
    """Return node `b` between `a` and `c`, and its session with `a`."""
    net = Net()
    for name in ("a", "c"):
        net.add(name)
    queues = (
        queue("orders", 16),
        replace(queue("few", 17), quota_bytes=1_500),
        queue("notes", 18, transactional=False),
        queue("of the number of the order queue", 4, transactional=False),
    )
    net.add("b", *queues, settings=SMALL)
    net.route("a", "b", "b")
    net.route("b", "c", "c")
    net.route("b", "a", "a")
    net.start()
    net.send("a", at("b", 18), "open", recoverable=True)
    net.run()
    for number in (16, 17):
        net.send("a", at("b", number), "known", transactional=True)
    net.pass_ms(3_000)
    net.blocked.add(frozenset(("b", "c")))
    node = net.nodes["b"]
    [session] = [key for key, wire in node.wires.items() if "a" in wire.ends]
    node.notes.clear()
    return net, node, session


@st.composite
def messages(draw: st.DrawFn) -> list[UserMessage]:
    """Draw messages that follow one another: they are of a few kinds, and mostly alike, but sometimes one differs."""
    found: list[UserMessage] = []
    numbers: dict[tuple[Any, ...], int] = defaultdict(int)
    for _ in range(draw(st.integers(1, 4))):
        manager, destination = draw(
            st.sampled_from([(C, 5), (C, 5), (B, 16), (B, 17), (B, 17), (B, 18), (B, 99)])
        )
        transactional = draw(st.booleans()) if destination in (5, 99) else destination != 18
        common: dict[str, Any] = {
            "source": draw(st.sampled_from([A, A, A, A, X, B, C])),
            "destination_manager": manager,
            "destination": destination,
            "sent_time_s": 1_700_000_000,
            "recoverable": transactional or draw(st.booleans()),
            "journal_negative": draw(st.booleans()),
            "label": draw(st.sampled_from(["", "label"])),
            "priority": draw(st.sampled_from([0, 3])),
            **draw(st.sampled_from([{}, {}, {"acknowledgments": 1, "admin_queue": 9}])),
            **draw(
                st.sampled_from([{}, {}, {"time_to_reach_queue_s": 30}, {"time_to_be_received_s": 2**30}])
            ),
        }
        identifier = draw(st.sampled_from(SEQUENCES))
        message_class = draw(
            st.sampled_from([0, 0, 0, 0, MessageClass.ACK_REACH_QUEUE, MessageClass.ORDER_ACK])
        )
        hops = draw(st.sampled_from([0, 0, 0, 0, HOP_LIMIT]))
        for _ in range(draw(st.integers(1, 9))):
            key = manager, destination, common["source"], identifier
            numbers[key] += draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2]))
            number = max(numbers[key], 1)
            header = TransactionHeader(
                flags=0xC | draw(st.integers(0, 3)) << 4,
                tx_sequence_id=identifier,
                tx_sequence_number=number,
                previous_tx_sequence_number=draw(st.sampled_from([number - 1] * 4 + [0])),
            )
            message = user_message(
                message_id=draw(st.sampled_from([number + 100 * identifier.ordinal] * 5 + [7])),
                body=bytes(draw(st.sampled_from([10, 10, 10, 600, 2_000]))),
                transaction=header if transactional else None,
                **common,
            )
            message.user.hop_count = hops
            message.properties.message_class = message_class
            if draw(st.integers(0, 20)) == 0:
                message.base.time_to_reach_queue_s = 1
            found.append(message)
    return found


@dataclass
class Outcome:
    """All effects of some arriving messages."""

    batches: list[Batch]
    notes: dict[Any, list[Note]]
    counts: Any
    bodies: dict[str, list[bytes]]


def outcome(stream: bytes, *, singly: bool, room_bytes: int | None) -> Outcome:
    """Return the effects on node `b` when these bytes arrive from `a`."""
    net, node, session = a_node()
    core = node.up
    core.has_room(room_bytes)
    if singly:
        with (
            patch.object(Arrivals, "together", lambda *arguments: 1),
            patch.object(Shape, "fits", lambda *arguments: False),
        ):
            core.receive(session, stream, net.now)
    else:
        core.receive(session, stream, net.now)
    first = core.take(net.now)
    inner = core.inspect()
    arrivals = inner.arrivals
    counts = (
        arrivals.transit.forwarded_count,
        arrivals.refusing.count,
        arrivals.room.stored_bytes,
        arrivals.refusing.by_class,
        inner.incoming.counted,
        {one.name: (one.count, one.size_bytes, one.entered_count) for one in inner.queues},
        {(one.name, one.priority): (one.count, list(one.window)) for one in inner.outbound},
        len(inner.histories.known),
    )
    by_message: dict[Any, list[Note]] = defaultdict(list)
    for note in first.notes:
        by_message[note.facts.get("message")].append(note)
    net.carry_out(node, replace(first, notes=[]))
    net.blocked.clear()
    net.pass_ms(2_000)
    bodies = {name: net.receive("b", name) for name in ("orders", "few", "notes")}
    return Outcome([replace(first, notes=[])], dict(by_message), counts, bodies)


@pytest.mark.long
@given(
    messages(),
    st.none() | st.integers(0, 50),
    st.sampled_from([None, None, None, 0, 700, 4_000]),
    st.booleans(),
)
def test_a_run_has_the_effects_of_its_messages_one_by_one(
    came: list[UserMessage], bad: int | None, room_bytes: int | None, acknowledges: bool
) -> None:
    packets = list(map(encode_packet, came))
    if acknowledges:
        for number in (3, 5):
            body = OrderAckBody(SEQUENCES[0], number, 0)
            ack = OrderAck(
                source=C, destination_manager=B, destination=4, message_id=number, sent_time_s=0, body=body
            ).message()
            packets.append(encode_packet(ack))
    if bad is not None:
        place = bad % len(packets)
        packets[place] = packets[place][:60] + b"\x1f" + packets[place][61:]  # RC, which may be 29 at most
    stream = b"".join(packets)
    together = outcome(stream, singly=False, room_bytes=room_bytes)
    singly = outcome(stream, singly=True, room_bytes=room_bytes)
    assert together.batches == singly.batches
    assert together.notes == singly.notes
    assert together.counts == singly.counts
    assert together.bodies == singly.bodies


@pytest.mark.parametrize("numbers", [(1, 2, 3), (2, 3, 4)])
def test_of_messages_that_would_begin_one_sequence_too_many_the_first_is_turned_away(
    numbers: tuple[int, ...],
) -> None:
    packets = []
    for number in numbers:
        message = a_message(number, B)
        message.user.source_queue_manager = C
        packets.append(encode_packet(message))
    together, singly = (
        outcome(b"".join(packets), singly=singly, room_bytes=None) for singly in (False, True)
    )
    assert together == singly
    names = [note.name for notes in together.notes.values() for note in notes]
    assert names == ["arrived", "turned-away", "session-closed"]


def test_each_of_our_own_that_come_back_is_passed_on_as_it_is_sent() -> None:
    packets = []
    for number in (2, 3, 4):
        message = a_message(number, C)
        message.user.source_queue_manager, message.user.journal_negative = B, True
        packets.append(encode_packet(message))
    together, singly = (
        outcome(b"".join(packets), singly=singly, room_bytes=None) for singly in (False, True)
    )
    assert together == singly
    assert len(together.notes) == 3


def test_messages_that_are_alike_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    sound = Arrivals.arrived

    def arrived(self: Arrivals, run: Any, *others: Any) -> None:
        sizes.append(len(run.packets))
        sound(self, run, *others)

    monkeypatch.setattr(Arrivals, "arrived", arrived)
    net, node, session = a_node()
    sizes.clear()
    stream = b"".join(
        encode_packet(a_message(number, manager)) for manager in (C, B) for number in range(2, 8)
    )
    node.up.receive(session, stream, net.now)
    assert sizes == [6, 6]


def a_message(number: int, manager: Guid) -> UserMessage:
    """Return a transactional message from `a`."""
    header = TransactionHeader(0, SEQUENCES[1], number, number - 1)
    return user_message(
        source=A,
        destination_manager=manager,
        destination=16,
        message_id=number,
        sent_time_s=0,
        body=b"body",
        transaction=header,
    )


def test_the_kinds_that_end_are_among_those_that_are_compared() -> None:
    """This shows that the comparison above really covers these kinds."""
    net, node, session = a_node()
    late = a_message(2, C)
    late.transaction = None
    late.user.has_transaction = False
    late.base.time_to_reach_queue_s = 1
    hops = a_message(3, C)
    hops.user.hop_count = HOP_LIMIT
    missing = a_message(4, B)
    missing.user.destination_queue = 99
    node.up.receive(session, b"".join(map(encode_packet, (late, hops, missing))), net.now)
    refusals = node.up.inspect().arrivals.refusing.by_class
    assert set(refusals) == {
        MessageClass.NACK_REACH_QUEUE_TIMEOUT.name,
        MessageClass.NACK_HOP_COUNT_EXCEEDED.name,
        MessageClass.NACK_BAD_DST_Q.name,
    }
