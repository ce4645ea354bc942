"""The effect of OrderAcks and FinalAcks on the sender, no matter when and how often they arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqproto.base.configuration import Settings
from mqproto.manager.arriving.transit import HOP_LIMIT
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import QueueKind
from mqproto.wire import FinalAck, FinalAckBody, MessageClass, OrderAck, OrderAckBody, encode_packet
from tests.examples import a_sequence_id, a_transaction_header, a_transactional_message
from tests.observing import DEADXACT, JOURNAL, acknowledgments, arrive, bodies, ended, final_acks, messages
from tests.pair import Net, at, chain, guid_of, queue

ORDERS = queue("orders")
QUICK = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=1,
    resend_timeouts_medium_s=2,
    resend_timeouts_long_s=3,
    resend_timeouts_final_s=4,
)


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[ORDERS], settings=QUICK)


def test_a_resend_goes_on_at_once_behind_a_message_that_is_refused() -> None:
    net = chain("a", "b", "c", queues=[ORDERS], settings=replace(QUICK, resend_batch=1))
    net.kill("c")
    for body in "123":
        net.send("a", at("c", 99), body, transactional=True, journal_negative=True)
    net.run()
    net.kill("b")
    net.nodes["b"].store = Disk()  # It has said that it has them, and loses its disk.
    net.start("b", "c")
    net.pass_ms(1_500)  # The first resend is due after 1,200 ms, the next one after 2,200.
    assert [body for _, body in ended(net, "a", DEADXACT)] == [b"1", b"2", b"3"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_message_that_was_refused_in_several_copies_at_once_is_one_dead_letter(net: Net) -> None:
    """The resends wait at the intermediate, and arrive together; each is answered, and the answers also arrive
    together.
    """
    net.kill("c")
    net.send("a", at("c", 99), "nowhere", transactional=True, journal_negative=True)
    for _ in range(3):
        net.pass_ms(2_500)
        net.kill(
            "b"
        )  # Then it does not know any more what waits on its disk, and stores the next resend as well.
        net.start("b")
    assert net.nodes["b"].store.waiting(QueueKind.OUTGOING) >= 3
    net.start("c")
    net.pass_ms(5_000)
    assert len(final_acks(net, "b", "a")) >= 3
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_BAD_DST_Q, b"nowhere")]
    assert net.nodes["a"].store.waiting(QueueKind.ORDER) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_an_own_message_that_comes_back_in_circles_is_one_dead_letter_and_the_sequence_goes_on(
    net: Net,
) -> None:
    """The message goes back and forth between `a` and `b`; the hop that exceeds the limit leads to `a`."""
    net.route("b", "c", "a")
    net.start("b")
    net.send("a", at("c"), "lost", transactional=True, journal_negative=True)
    net.pass_ms(10_000)
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_HOP_COUNT_EXCEEDED, b"lost")]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0
    net.kill("b")
    net.route("b", "c", "c")
    net.start("b")
    net.send("a", at("c"), "found", transactional=True, journal_negative=True)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"found"]


# In whatever order they come


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_final_ack_that_comes_before_its_order_ack_stands_for_it(net: Net) -> None:
    """The application receives at once, while the OrderAck waits half a second for more messages to acknowledge."""
    net.send("a", at("c"), "x", transactional=True, journal_positive=True)
    net.send("a", at("c"), "y", transactional=True)
    net.run()
    assert net.receive("c", "orders") == [b"x", b"y"]
    assert [name for name, _ in acknowledgments(net, "c", "b")] == [MessageClass.ACK_RECEIVE]
    assert bodies(net, "a", JOURNAL) == [b"x"]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 1
    net.pass_ms(2_000)
    assert [name for name, _ in acknowledgments(net, "c", "b")][1:] == [MessageClass.ORDER_ACK]
    assert bodies(net, "a", JOURNAL) == [b"x"]
    assert nothing_waits(net)


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("restarted", ["", "a", "c", "ac"])
def test_a_message_waits_for_its_final_ack_through_restarts(net: Net, restarted: str) -> None:
    for body in ("received", "rejected"):
        net.send("a", at("c"), body, transactional=True, journal_positive=True, journal_negative=True)
    net.pass_ms(2_000)
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == 2
    for name in restarted:
        net.kill(name)
        net.start(name)
    for consumer, commit in ((1, True), (2, False)):
        net.nodes["c"].up.consume(consumer, "orders", 1, transactional=True)
        net.run()
        if commit:
            net.nodes["c"].up.settle(consumer, "orders", net.now, commit=True)
        else:
            net.nodes["c"].up.reject(consumer, "orders")
    net.pass_ms(2_000)
    assert bodies(net, "a", JOURNAL) == [b"received"]
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_RECEIVE_REJECTED, b"rejected")]
    assert nothing_waits(net)


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
def test_acknowledgments_count_whatever_their_priority_and_their_reserved_bits(net: Net) -> None:
    """An OrderAck and a FinalAck have bits set that nobody should set.

    Earlier versions treated such acknowledgments as messages to a missing queue.
    """
    net.send("a", at("c"), "x", transactional=True, journal_positive=True)
    net.send("a", at("c"), "y", transactional=True)
    net.run()
    net.kill("c")
    header = messages(net, "b", "c")[0].transaction
    assert header is not None
    there: dict[str, Any] = {"source": guid_of("c"), "destination_manager": guid_of("a"), "destination": 4}
    order = OrderAck(
        **there, message_id=1, sent_time_s=0, body=OrderAckBody(header.tx_sequence_id, 2, 1)
    ).message()
    final = FinalAck(
        **there,
        message_id=2,
        sent_time_s=0,
        message_class=MessageClass.ACK_RECEIVE,
        body=FinalAckBody(
            header.tx_sequence_id, 1, 0, guid_of("a"), messages(net, "b", "c")[0].user.message_id
        ),
    ).message()
    for ack in (order, final):
        ack.base.flags = 0xFEC7
        assert encode_packet(ack)[:4] == bytes.fromhex("1000c7fe")
        arrive(net, "a", ack, peer="b")
    assert bodies(net, "a", JOURNAL) == [b"x"]
    assert [note.name for note in net.nodes["a"].notes if note.name == "message-refused"] == []
    assert (
        net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == net.nodes["a"].store.waiting(QueueKind.FINAL) == 0
    )


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_final_ack_that_comes_twice_is_acted_upon_once(net: Net) -> None:
    """The second FinalAck has a different MessageID, so the receiver does not recognize it as a duplicate."""
    net.send("a", at("c"), "x", transactional=True, journal_negative=True, journal_positive=True)
    net.run()
    net.receive("c", "orders")
    net.pass_ms(2_000)
    [first] = [m for m in messages(net, "b", "a") if m.properties.message_class == MessageClass.ACK_RECEIVE]
    for message_class in (MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_PURGED):
        first.user.message_id += 1
        first.properties.message_class = message_class
        arrive(net, "a", first, peer="b")
    assert bodies(net, "a", JOURNAL) == [b"x"]
    assert bodies(net, "a", DEADXACT) == []
    assert nothing_waits(net)


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3.2")
@pytest.mark.parametrize("committed", [False, True], ids=["before the commit", "after the commit"])
def test_a_crash_at_any_step_neither_loses_an_outcome_nor_doubles_it(committed: bool) -> None:
    """Of four messages, one is received, one is rejected, one is refused, and one expires; `a` is killed at each of its
    steps.
    """
    for step in range(1, steps_of_a() + 1):
        net = chain("a", "b", "c", queues=[ORDERS], settings=QUICK)
        net.nodes["a"].dies_at, net.nodes["a"].dies_committed = step, committed
        four_ends(net)
        if net.nodes["a"].core is None:
            net.start("a")
        net.pass_ms(60_000)
        where = f"killed at step {step}"
        assert sorted(bodies(net, "a", JOURNAL)) == [b"received"], where
        assert sorted(ended(net, "a", DEADXACT)) == [
            (MessageClass.NACK_BAD_DST_Q, b"refused"),
            (MessageClass.NACK_RECEIVE_TIMEOUT, b"expired"),
            (MessageClass.NACK_RECEIVE_REJECTED, b"rejected"),
        ], where
        assert nothing_waits(net), where


def four_ends(net: Net) -> None:
    """Send four messages, and let them end in different ways; the sender repeats those that are lost in a kill."""
    asked = {"transactional": True, "journal_negative": True, "journal_positive": True}
    for body, number in (("received", 16), ("rejected", 16), ("refused", 99), ("expired", 16)):
        timing: dict[str, Any] = {"time_to_be_received_s": 30} if body == "expired" else {}
        while True:
            if net.nodes["a"].core is None:
                net.start("a")
            commits = net.nodes["a"].store.commit_count
            net.send("a", at("c", number), body, **asked, **timing)
            net.turn("a")
            if net.nodes["a"].store.commit_count > commits:
                break
        net.run()
        if net.nodes["a"].core is None:
            net.start("a")
    net.pass_ms(6_000)
    core = net.nodes["c"].up
    core.consume(1, "orders", 1, transactional=False)
    core.consume(2, "orders", 1, transactional=True)
    net.run()
    core.reject(2, "orders")
    net.pass_ms(40_000)


def steps_of_a() -> int:
    """Return the number of batches that `a` carries out if nobody is killed."""
    net = chain("a", "b", "c", queues=[ORDERS], settings=QUICK)
    four_ends(net)
    net.pass_ms(10_000)
    return net.nodes["a"].batch_count


def nothing_waits(net: Net) -> bool:
    """Return True if nothing is on its way any longer: no outcome, acknowledgment or message."""
    net.pass_ms(2_000)
    kinds = (QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.ORDER, QueueKind.OUTGOING, QueueKind.HELD)
    return not any(node.store.waiting(kind) for node in net.nodes.values() for kind in kinds)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.parametrize("ordinal", [0, 7])
def test_an_own_message_of_a_sequence_that_is_over_or_unknown_ends_in_silence(net: Net, ordinal: int) -> None:
    net.send("a", at("c"), "known", transactional=True)
    net.pass_ms(2_000)
    message = a_transactional_message(
        source=guid_of("a"),
        destination_manager=guid_of("c"),
        transaction=a_transaction_header(
            tx_sequence_id=a_sequence_id(time_stamp=net.now.utc_s - 2 + ordinal, ordinal=1)
        ),
        journal_negative=True,
    )
    message.user.hop_count = HOP_LIMIT
    arrive(net, "a", message, peer="b")
    assert bodies(net, "a", DEADXACT) == []
    assert nothing_waits(net)
