"""A queue manager as its shell sees it: in whole conversations, and with a kill at each step of one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.manager.whereabouts import Spot
from mqproto.queues.localqueue import SystemQueue
from mqproto.session.acknowledgment import ACK_DELAY_MS
from mqproto.turn.effects import POSITION_BITS, MessageRow, QueueKind, Writes
from mqproto.wire import (
    MessageClass,
    OrderAck,
    OrderAckBody,
    PacketBuffer,
    SessionAck,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
    guid_text,
)
from tests.examples import a_user_message
from tests.pair import Net, at, chain, guid_of, queue

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
QUICK = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=1,
    resend_timeouts_medium_s=2,
    resend_timeouts_long_s=3,
    resend_timeouts_final_s=4,
)


def a_chain(settings: Settings = QUICK) -> Net:
    return chain("a", "b", "c", queues=[ORDERS, NOTES], settings=settings)


def a_conversation(net: Net) -> list[tuple[str, bytes]]:
    """Send nine messages of both kinds, one of them with a FinalAck; return the accepted ones, each with its queue."""
    accepted = []
    for number in range(9):
        body = f"m{number}".encode()
        name, destination = ("orders", at("c")) if number % 3 else ("notes", at("c", 17))
        for _ in range(50):  # An application sends again what was not accepted.
            while net.nodes["a"].core is None:
                net.pass_ms(100)
                revive(net)
            commits = net.nodes["a"].store.commit_count
            net.send(
                "a",
                destination,
                body,
                transactional=name == "orders",
                recoverable=name == "notes",
                final_ack=number == 2,
            )
            net.turn("a")
            if net.nodes["a"].store.commit_count > commits:
                break
        accepted.append((name, body))
        net.pass_ms(300)
        revive(net)
    return accepted


def revive(net: Net) -> None:
    for node in net.nodes.values():
        if node.core is None:
            net.start(node.name)


def steps_of(name: str) -> int:
    """Return the number of batches that a node carries out in the conversation if nobody is killed."""
    net = a_chain()
    a_conversation(net)
    net.pass_ms(5_000)
    return net.nodes[name].batch_count


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.2")
@pytest.mark.parametrize("committed", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_kill_at_any_step_loses_nothing_and_doubles_nothing(name: str, committed: bool) -> None:
    steps = steps_of(name)
    assert steps >= 15
    for step in range(1, steps + 1):
        net = a_chain()
        node = net.nodes[name]
        node.dies_at, node.dies_committed = step, committed
        accepted = a_conversation(net)
        net.pass_ms(10_000)
        revive(net)
        net.pass_ms(60_000)
        for queue_name in ("orders", "notes"):
            expected = [body for found, body in accepted if found == queue_name]
            assert net.receive("c", queue_name) == expected, f"killed {name} at step {step}"
        net.pass_ms(10_000)
        for other in net.nodes.values():
            assert other.store.messages == {}, f"{other.name} after killing {name} at step {step}"


@pytest.mark.spec("[MS-MQQB] 3.1.1.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_nothing_is_acknowledged_before_it_is_on_disk() -> None:
    """Each chunk that leaves is compared with what its sender's store had by then."""
    net = a_chain()
    committed: dict[str, int] = dict.fromkeys(net.nodes, 0)
    for name, node in net.nodes.items():
        commit = node.store.commit

        def counted(writes: Writes, name: str = name, commit: object = commit) -> None:
            assert callable(commit)
            commit(writes)
            committed[name] += len(writes.messages)

        node.store.commit = counted  # type: ignore[method-assign]
    net.send("a", at("c"), "m", transactional=True)
    batch = net.nodes["a"].up.take(net.now)
    assert batch.writes is not None
    assert batch.connects
    net.carry_out(net.nodes["a"], batch)
    seen = []

    def look(sender: str, receiver: str, chunk: bytes) -> None:
        for packet in map(decode_packet, PacketBuffer().feed(chunk)):
            if isinstance(packet, SessionAck | UserMessage):
                seen.append((sender, committed[sender]))

    net.watch = look
    net.pass_ms(600)
    # A forwarded message, its session acknowledgments and its OrderAck: each after the commit that it tells of.
    assert [count for name, count in seen if name in "bc" and not count] == []
    assert {name for name, _ in seen} >= {"b", "c"}


# Applications


def positions(messages: list[MessageRow]) -> list[int]:
    """Return the positions of messages in their queue."""
    return [message.key % 2**POSITION_BITS for message in messages]


@pytest.mark.parametrize("source", ["a", "c"])
def test_a_delivery_comes_as_soon_as_there_is_a_message_from_another_or_from_here(source: str) -> None:
    net = a_chain()
    core = net.nodes["c"].up
    core.consume(5, "Orders", 10, transactional=True)
    net.run()
    assert net.nodes["c"].received == []
    net.send(source, at("c"), "x", transactional=True)
    net.run()
    assert [message.properties.message_body for message in net.nodes["c"].received] == [b"x"]
    assert [q.unsettled for q in core.status().local if q.name == "orders"] == [1]
    core.settle(5, "orders", net.now, commit=False)
    assert positions(core.peek("orders", 9)) == [1]
    core.consume(6, "orders", 10, transactional=True)
    net.run()
    core.settle(6, "orders", net.now, commit=True)
    net.pass_ms(2_000)
    assert net.nodes["c"].store.waiting(QueueKind.LOCAL) == 0


def test_what_was_not_settled_when_the_node_was_killed_is_there_again() -> None:
    net = a_chain()
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    net.nodes["c"].up.consume(5, "orders", 10, transactional=True)
    net.run()
    net.kill("c")
    net.start("c")
    assert net.receive("c", "orders") == [b"x"]


def test_a_peek_shows_at_most_what_was_asked_for_and_leaves_it() -> None:
    net = a_chain()
    for number in range(5):
        net.send("a", at("c"), str(number), transactional=True)
    net.run()
    core = net.nodes["c"].up
    assert positions(core.peek("orders", 3)) == [1, 2, 3]
    assert len(core.peek("orders", 99)) == 5
    assert len(net.receive("c", "orders")) == 5


def test_a_peek_sees_what_the_store_has_after_a_restart() -> None:
    net = a_chain()
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    net.kill("c")
    net.start("c")
    net.run()
    assert len(net.nodes["c"].up.peek("orders", 9)) == 1


def test_mistakes_of_an_application_are_told_and_change_nothing() -> None:
    net = a_chain()
    core = net.nodes["c"].up
    with pytest.raises(UsageError, match="no queue x here"):
        core.consume(1, "x", 1, transactional=False)
    with pytest.raises(UsageError, match="ask for 1 or more"):
        core.consume(1, "orders", 0, transactional=False)
    with pytest.raises(UsageError, match="nothing of queue orders"):
        core.settle(1, "orders", net.now, commit=True)
    core.abandon(1, "orders", net.now)
    core.consume(1, "orders", 1, transactional=False)


# Time


def test_a_node_with_nothing_to_do_asks_for_no_tick() -> None:
    net = a_chain()
    net.run()
    net.kill("a")
    net.start("a")
    assert net.nodes["a"].up.take(net.now).writes is None
    net.run()
    assert net.nodes["a"].up.take(net.now).deadline_ms is None


@pytest.mark.spec("[MS-MQQB] 3.1.6.7")
def test_the_history_of_identifiers_is_cleaned_up_on_disk_too() -> None:
    net = a_chain()
    for _ in range(200):
        net.send("a", at("c", 17), "x", recoverable=True)
    net.pass_ms(1_000)
    assert len(net.nodes["c"].store.identifiers) == 200
    net.pass_ms(2 * QUICK.remove_duplicate_cleanup_ms + 2_000)
    assert len(net.nodes["c"].store.identifiers) == 2 * QUICK.window_size


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_a_resend_is_told_to_the_operator_with_what_waits() -> None:
    net = a_chain()
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", transactional=True)
    net.pass_ms(1_500)
    (note,) = [note for note in net.nodes["a"].notes if note.name == "resend"]
    assert note.facts["waiting"] == 1
    status = net.nodes["a"].up.status()
    assert status.resent == 1
    assert [q.resent for q in status.outgoing if q.sequence] == [1]


def test_what_can_wait_is_written_a_second_later_when_nothing_else_happens() -> None:
    net = a_chain()
    net.send("a", at("b", 99), "x", recoverable=True)
    net.run()
    net.pass_ms(ACK_DELAY_MS)
    assert net.nodes["a"].store.waiting(QueueKind.OUTGOING) == 1
    net.pass_ms(1_000)
    assert net.nodes["a"].store.waiting(QueueKind.OUTGOING) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.2.7")
@pytest.mark.spec("[MS-MQQB] 3.1.6.9")
def test_one_order_ack_acknowledges_a_burst_half_a_second_after_its_last_message() -> None:
    net = chain("a", "c", queues=[ORDERS])
    for number in range(5):
        net.send("a", at("c"), str(number), transactional=True)
        net.pass_ms(400)
    assert net.nodes["a"].up.status().outgoing[0].waiting == 5
    net.pass_ms(101)
    assert net.nodes["a"].up.status().outgoing[0].waiting == 0


@pytest.mark.spec("[MS-MQQB] 3.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3.2")
def test_a_restart_in_the_middle_of_everything_goes_on_where_it_was() -> None:
    """All nodes are killed at once, ten times, under a steady stream of messages."""
    net = a_chain()
    sent = []
    for round_ in range(10):
        for number in range(20):
            body = f"{round_}.{number}".encode()
            sent.append(body)
            net.send("a", at("c"), body, transactional=True, final_ack=number == 7)
        net.turn("a")
        for _ in range(round_):
            for name in net.nodes:
                net.turn(name)
        for name in net.nodes:
            net.kill(name)
        net.start()
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == sent
    net.pass_ms(10_000)
    assert all(node.store.messages == {} for node in net.nodes.values())


# What operators and the outside ask for


def test_a_message_that_is_rejected_is_gone_and_the_ones_behind_it_come() -> None:
    net = a_chain()
    for body in ("bad", "good"):
        net.send("a", at("c"), body, transactional=True, final_ack=True)
    net.run()
    core = net.nodes["c"].up
    core.consume(5, "orders", 1, transactional=True)
    net.run()
    core.reject(5, "orders")
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"good"]
    (note,) = [note for note in net.nodes["a"].notes if note.name == "message-refused-by-destination"]
    assert note.facts["class"] == MessageClass.NACK_RECEIVE_REJECTED
    with pytest.raises(UsageError, match="nothing of queue orders"):
        core.reject(5, "orders")


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
def test_a_purge_says_how_many_are_to_go_here_and_on_their_way() -> None:
    net = a_chain(Settings(resident_messages=2))
    net.blocked.add(frozenset("ab"))
    for number in range(5):
        net.send("a", at("c", 17), str(number), recoverable=True)
        net.send("c", at("c", 17), str(number), recoverable=True)
    net.run()
    assert net.nodes["a"].up.purge(guid_text(guid_of("c"))) == 5
    assert net.nodes["c"].up.purge("notes") == 5
    net.run()
    assert net.nodes["a"].store.messages == net.nodes["c"].store.messages == {}
    with pytest.raises(UsageError, match="no queue x here"):
        net.nodes["c"].up.purge("x")


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.4")
def test_a_queue_that_is_deleted_says_how_many_are_to_go_and_stays_deleted_until_it_is_made_again() -> None:
    net = a_chain()
    for number in range(3):
        net.send("a", at("c"), str(number), transactional=True)
    net.run()
    assert net.nodes["c"].up.delete("orders") == 3
    net.run()
    with pytest.raises(UsageError, match="no queue orders here"):
        net.nodes["c"].up.peek("orders", 1)
    net.kill("c")
    net.start("c")
    net.run()
    with pytest.raises(UsageError, match="no queue orders here"):
        net.nodes["c"].up.peek("orders", 1)
    net.nodes["c"].up.make(queue("orders"))
    net.run()
    assert net.nodes["c"].up.peek("orders", 1) == []
    net.kill("c")
    net.start("c")
    assert net.nodes["c"].up.peek("orders", 1) == []


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
@pytest.mark.spec("[MS-MQQB] 3.1.7.14")
def test_a_queue_on_its_way_is_paused_and_resumed_by_its_name() -> None:
    net = a_chain()
    core = net.nodes["a"].up
    with pytest.raises(UsageError, match="no outgoing queue x here; there are: none"):
        core.hold("x", on_hold=True)
    net.send("a", at("c"), "one", transactional=True)
    net.run()
    with pytest.raises(UsageError, match="there are: PRIVATE="):
        core.hold("x", on_hold=True)
    core.hold(at("c").name, on_hold=True)
    net.send("a", at("c"), "two", transactional=True)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"one"]
    core.hold(at("c").name, on_hold=False)
    net.run()
    assert net.receive("c", "orders") == [b"two"]


def test_dead_letters_are_sent_once_more_as_many_as_are_chosen() -> None:
    net = a_chain()
    for number in range(3):
        net.send("a", at("c", 99), str(number), transactional=True, journal_negative=True)
    net.pass_ms(2_000)
    net.kill("c")
    net.nodes["c"].queues += (queue("late", 99),)
    net.start("c")
    core = net.nodes["a"].up
    key = core.peek(SystemQueue.DEADXACT, 9)[1].key
    assert core.send_back(SystemQueue.DEADXACT, [key], net.now) == 1
    assert core.send_back(SystemQueue.DEADXACT, None, net.now) == 2
    net.pass_ms(2_000)
    assert net.receive("c", "late") == [b"1", b"0", b"2"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_what_comes_behind_a_message_that_had_no_room_is_not_taken_but_acknowledgments_are() -> None:
    """The messages and the acknowledgments arrive in a single read from the transport; the session is closed."""
    net = chain("a", "c", queues=[ORDERS, NOTES], settings=Settings(quota_bytes=3_000))
    net.send("c", at("a", 99), "makes c wait", transactional=True)
    net.run()
    core = net.nodes["c"].up
    (session,) = core.inspect().transports.sessions
    (row,) = net.nodes["c"].store.outgoing.values()
    identifier = TxSequenceId(time_stamp=row.time_stamp, ordinal=row.ordinal)
    to_notes = {"source": guid_of("a"), "destination_manager": guid_of("c"), "destination": 17}
    found = [
        a_user_message(**to_notes, message_id=900, body=bytes(3_000)),
        a_user_message(**to_notes, message_id=901),
        OrderAck(
            source=guid_of("a"),
            destination_manager=guid_of("c"),
            destination=4,
            message_id=902,
            sent_time_s=0,
            body=OrderAckBody(identifier, 1, 0),
        ).message(),
    ]
    core.receive(session, b"".join(encode_packet(message) for message in found), net.now)
    batch = core.take(net.now)
    (close,) = batch.closes
    assert (close.section, "quota_bytes = 3,000" in close.reason) == ("3.1.5.8.8", True)
    assert core.peek("notes", 9) == []
    assert [q.waiting for q in core.status().outgoing if q.sequence] == [0]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_what_is_over_ends_by_itself_wherever_it_waits() -> None:
    net = a_chain()
    net.blocked.add(frozenset("bc"))
    for where in (at("c"), at("c", 17)):
        net.send("a", where, "x", transactional=where == at("c"), recoverable=True, time_to_reach_queue_s=5)
    net.send("c", at("c", 17), "x", time_to_be_received_s=5)
    net.nodes["a"].up.hold(at("c").name, on_hold=True)
    net.pass_ms(10_000)
    assert [net.nodes[name].up.status().expired for name in "abc"] == [1, 1, 1]
    assert all(node.store.messages == {} for node in net.nodes.values())


@pytest.mark.spec("[MS-MQQB] 3.1.4.2")
def test_a_queue_manager_that_stops_closes_its_sessions_and_loses_nothing() -> None:
    net = a_chain()
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    for node in net.nodes.values():
        node.up.stop()
    net.run()
    assert all(node.up.status().sessions_open == 0 for node in net.nodes.values())
    for name in net.nodes:
        net.kill(name)
    net.start()
    net.pass_ms(5_000)
    assert net.receive("c", "orders") == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.8")
def test_datagrams_that_are_no_pings_are_answered_by_silence() -> None:
    core = a_chain().nodes["a"].up
    assert core.pinged(b"garbage") is None
    assert core.ping_answered(1, b"garbage") is False


def test_where_a_message_is_can_be_asked_at_any_time() -> None:
    net = a_chain()
    net.send("a", at("c", 17), "x")
    (found,) = net.nodes["a"].up.whereabouts().unstored()
    assert found.spot is Spot.UNSENT
    net.run()
    assert list(net.nodes["a"].up.whereabouts().unstored()) == []
    (found,) = net.nodes["c"].up.whereabouts().unstored()
    assert (found.spot, found.queue) == (Spot.IN_QUEUE, "notes")


def test_bytes_count_when_their_packet_is_whole_also_those_that_came_long_before() -> None:
    net = chain("a", "c", queues=[ORDERS, NOTES])
    net.send("c", at("a", 99), "opens a session", transactional=True)
    net.run()
    core = net.nodes["c"].up
    (session,) = core.inspect().transports.sessions
    to_notes = {"source": guid_of("a"), "destination_manager": guid_of("c"), "destination": 17}
    first = encode_packet(a_user_message(**to_notes, message_id=900, body=bytes(3_000)))
    second = encode_packet(a_user_message(**to_notes, message_id=901, body=bytes(2_000)))
    stream = first + second
    cuts = [0, 10, 2_000, len(first) + 50, len(stream) - 1, len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(cuts)]
    whole_bytes = [core.receive(session, piece, net.now) for piece in pieces]
    assert whole_bytes == [0, 0, len(first), 0, len(second)]
    assert len(core.peek("notes", 9)) == 2


def test_bytes_of_a_session_that_is_gone_are_dropped() -> None:
    net = a_chain()
    assert net.nodes["a"].up.receive(99, b"whatever", net.now) == 0
    net.run()
    assert net.traffic == []


def test_a_queue_is_empty_when_nothing_is_left_for_a_consumer_not_even_what_another_one_holds() -> None:
    net = chain("a", "c", queues=[ORDERS])
    core = net.nodes["c"].up
    assert core.is_empty("orders")
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    assert not core.is_empty("orders")
    core.consume(1, "orders", 1, transactional=True)
    net.run()
    assert not core.is_empty("orders")
    core.settle(1, "orders", net.now, commit=True)
    assert core.is_empty("orders")
    with pytest.raises(UsageError, match="nowhere"):
        core.is_empty("nowhere")
