"""Local and outgoing queues that an operator empties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.messages.destinations import Destination
from mqproto.turn.effects import QueueKind, ReadBy, ReadPage
from mqproto.wire import MessageClass, UserMessage, decode_packet, guid_text
from tests.observing import DEADLETTER, DEADXACT, JOURNAL, arrive, bodies, ended, final_acks
from tests.pair import Net, at, chain, deaf, guid_of, queue

ADMIN = queue("admin", 5, transactional=False)
NOTES = queue("notes", 17, transactional=False)
ORDERS = queue("orders")
TO_C = guid_text(guid_of("c"))
SMALL = Settings(resident_messages=8, try_connect_interval_ms=200)


@pytest.fixture
def net() -> Net:
    return chain("a", "c", queues=[ADMIN, NOTES, ORDERS], settings=SMALL)


# Outgoing queues


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
@pytest.mark.parametrize("kind", ["express", "recoverable", "transactional"])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice at once"])
def test_what_waits_in_an_outgoing_queue_is_gone_and_a_dead_letter_if_it_asked_for_that(
    net: Net, kind: str, times: int
) -> None:
    net.blocked.add(frozenset("ac"))
    options = {"transactional": kind == "transactional", "recoverable": kind == "recoverable"}
    destination = at("c", 16 if kind == "transactional" else 17)
    for number in range(600):  # More than two pages of a purge.
        net.send("a", destination, str(number), journal_negative=number % 100 == 0, **options)
    net.run()
    core = net.nodes["a"].up
    name = destination.name if kind == "transactional" else TO_C
    assert max(core.purge(name) for _ in range(times)) == 600
    net.run()
    kept_in = DEADXACT if kind == "transactional" else DEADLETTER
    expected = [(MessageClass.NACK_DELETED, str(number).encode()) for number in range(0, 600, 100)]
    assert ended(net, "a", kept_in) == expected
    [emptied] = core.status().outgoing
    assert (emptied.waiting, emptied.unsent, emptied.unacked, emptied.first_unacked) == (0, 0, 0, 0)
    net.blocked.clear()
    net.send("a", destination, "next", **options)
    net.pass_ms(2_000)
    assert net.receive("c", "orders" if kind == "transactional" else "notes") == [b"next"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
@pytest.mark.parametrize("arrives", [False, True])
def test_what_the_neighbour_may_have_stays_with_the_session(net: Net, arrives: bool) -> None:
    """Such a message was sent but not acknowledged: deleting it here would not remove it from the neighbour."""
    net.send("a", at("c", 17), "first")
    net.run()
    c = net.nodes["c"].up
    waiting: list[tuple[int, bytes]] = []

    def keep_waiting(session: int, data: bytes, now: Moment) -> int:
        waiting.append((session, data))
        return 0

    net.nodes["c"].hears = keep_waiting
    net.send("a", at("c", 17), "sent", recoverable=True, journal_negative=True)
    net.run()
    net.send("a", at("c", 17), "unsent", recoverable=True, journal_negative=True)
    assert net.nodes["a"].up.purge(TO_C) == 2
    net.run()
    assert ended(net, "a", DEADLETTER) == [(MessageClass.NACK_DELETED, b"unsent")]
    net.nodes["c"].hears = None
    if arrives:
        for session, data in waiting:
            c.receive(session, data, net.now)
    else:
        net.cut("a", "c")
    net.pass_ms(2_000)
    assert net.receive("c", "notes") == [b"first", b"sent"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_a_sequence_that_was_purged_goes_on_whether_or_not_its_messages_arrived(net: Net) -> None:
    """Three messages were received but are not acknowledged yet; three were sent and lost; three are unsent."""
    for body in ("arrived", "lost", "unsent"):
        if body == "lost":
            net.nodes["c"].hears = deaf
        if body == "unsent":
            net.blocked.add(frozenset("ac"))
            net.cut("a", "c")
        for number in range(3):
            net.send("a", at("c"), f"{body} {number}", transactional=True, journal_negative=True)
        net.run()
    net.kill("c")
    net.start("c")
    assert net.nodes["a"].up.purge(at("c").name) == 9
    assert len(net.receive("a", DEADXACT)) == 9
    net.blocked.clear()
    for number in range(3):
        net.send("a", at("c"), f"new {number}", transactional=True)
    net.pass_ms(60_000)
    found = net.receive("c", "orders")
    assert [body for body in found if body.startswith(b"new")] == [b"new 0", b"new 1", b"new 2"]
    assert found[:3] == [b"arrived 0", b"arrived 1", b"arrived 2"]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
@pytest.mark.parametrize("arrived", [False, True])
def test_what_is_deleted_between_sender_and_destination_is_a_copy_and_its_end_is_not_told(
    arrived: bool,
) -> None:
    """Another copy may have arrived earlier; the message would then be both delivered and a dead letter."""
    settings = replace(SMALL, resend_timeouts_short_s=2)
    net = chain("a", "b", "c", queues=[ADMIN, ORDERS], settings=settings)
    if arrived:
        net.send("a", at("c"), "x", transactional=True, journal_negative=True, journal_positive=True)
        net.run()
    net.blocked.add(frozenset("bc"))
    net.cut("b", "c")
    if not arrived:
        net.send("a", at("c"), "x", transactional=True, journal_negative=True, journal_positive=True)
    net.pass_ms(3_000)  # A copy waits at `b`, the first or one that was sent again.
    assert net.nodes["b"].up.purge(TO_C) >= 1
    net.run()
    assert final_acks(net, "b", "a") == []
    net.blocked.clear()
    net.pass_ms(10_000)
    assert net.receive("c", "orders") == [b"x"]
    net.pass_ms(2_000)
    assert bodies(net, "a", DEADXACT) == []
    assert bodies(net, "a", JOURNAL) == [b"x"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
def test_what_comes_while_a_queue_is_purged_stays(net: Net) -> None:
    net.blocked.add(frozenset("ac"))
    for number in range(300):
        net.send("a", at("c", 17), str(number), recoverable=True)
    net.run()
    net.nodes["a"].up.purge(TO_C)
    net.send("a", at("c", 17), "new", recoverable=True)
    net.run()
    net.blocked.clear()
    net.pass_ms(2_000)
    assert net.receive("c", "notes") == [b"new"]


def test_what_is_purged_at_the_moment_when_its_time_is_over_ends_once(net: Net) -> None:
    """The purge and the expiration ask the store in one batch, and get the same messages."""
    net.blocked.add(frozenset("ac"))
    for number in range(60):
        net.send(
            "a", at("c", 17), str(number), recoverable=True, journal_negative=True, time_to_reach_queue_s=1
        )
    net.run()
    core = net.nodes["a"].up
    net.set_clock(5)
    core.tick(replace(net.now, uptime_ms=net.now.uptime_ms + 5_000))
    core.purge(TO_C)
    net.run()
    assert [queue.waiting for queue in core.status().outgoing] == [0]
    [letters] = [queue.waiting for queue in core.status().local if queue.name == DEADLETTER]
    assert letters == 60


def test_there_is_nothing_to_purge_where_nothing_has_that_name(net: Net) -> None:
    with pytest.raises(UsageError, match="no queue nothing here"):
        net.nodes["a"].up.purge("nothing")


# Local queues


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_queue_is_purged_in_memory_and_on_disk_and_its_senders_are_told(
    net: Net, transactional: bool
) -> None:
    number, name = (16, "orders") if transactional else (17, "notes")
    for index in range(100):
        net.send(
            "a",
            at("c", number),
            str(index),
            transactional=transactional,
            recoverable=index % 2 == 0,
            priority=0 if transactional else index % 8,
            journal_negative=index % 20 == 0,
        )
    net.run()
    assert net.nodes["c"].up.purge(name) == 100
    net.send("a", at("c", number), "new", transactional=transactional)
    net.pass_ms(2_000)
    assert bodies(net, "c", name) == [b"new"]
    where, dead = ("a", DEADXACT) if transactional else ("c", DEADLETTER)
    found = ended(net, where, dead)
    assert {message_class for message_class, _ in found} == {MessageClass.NACK_Q_PURGED}
    assert {body for _, body in found} == {b"%d" % index for index in range(0, 100, 20)}
    net.kill("c")
    net.start("c")
    if transactional:
        assert net.receive("c", name) == [b"new"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
@pytest.mark.parametrize("commits", [False, True])
def test_what_an_application_has_is_purged_when_it_gives_it_back(net: Net, commits: bool) -> None:
    """The message's State is PurgePending instead of Available."""
    for body in ("first", "second", "third"):
        net.send("a", at("c"), body, transactional=True, journal_negative=True, journal_positive=True)
    net.run()
    core = net.nodes["c"].up
    core.consume(1, "orders", 2, transactional=True)
    net.run()
    core.purge("orders")
    net.run()
    core.consume(2, "orders", 10, transactional=False)
    net.send("a", at("c"), "new", transactional=True)
    net.run()
    core.settle(1, "orders", net.now, commit=commits)
    net.pass_ms(2_000)
    assert [message.properties.message_body for message in net.nodes["c"].received] == [
        b"first",
        b"second",
        b"new",
    ]
    assert {body for _, body in ended(net, "a", DEADXACT)} == (
        {b"third"} if commits else {b"first", b"second", b"third"}
    )
    assert bodies(net, "a", JOURNAL) == ([b"first", b"second"] if commits else [])


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
def test_a_purge_leaves_what_waits_behind_a_gap(net: Net) -> None:
    """A message behind a gap is not in the queue yet."""
    net.blocked.add(frozenset("ac"))
    for number in range(1, 4):
        net.send("a", at("c"), str(number), transactional=True)
    net.turn("a")
    [sequence] = net.nodes["a"].up.inspect().outbound
    found = [decode_packet(waiting.packet) for waiting in sequence.window]
    arrive(net, "c", *[message for message in found[1:] if isinstance(message, UserMessage)])
    assert net.nodes["c"].up.purge("orders") == 0
    net.blocked.clear()
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"1", b"2", b"3"]


# Queues that are deleted


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.4")
@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
def test_the_senders_of_what_lay_in_a_deleted_queue_are_told(net: Net) -> None:
    net.send("a", at("c"), "order", transactional=True, journal_negative=True)
    net.send("a", at("c", 17), "note", journal_negative=True)
    net.run()
    assert [net.nodes["c"].up.delete(name) for name in ("orders", "notes")] == [1, 1]
    net.pass_ms(2_000)
    assert final_acks(net, "c", "a") == [MessageClass.NACK_Q_DELETED]
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_Q_DELETED, b"order")]
    assert ended(net, "c", DEADLETTER) == [(MessageClass.NACK_Q_DELETED, b"note")]
    net.send("a", at("c"), "more", transactional=True, journal_negative=True)
    net.pass_ms(2_000)
    assert ended(net, "a", DEADXACT)[1:] == [(MessageClass.NACK_BAD_DST_Q, b"more")]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.4")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_queue_that_is_in_use_or_the_systems_is_not_deleted(net: Net, transactional: bool) -> None:
    core = net.nodes["c"].up
    for name in (DEADLETTER, DEADXACT, JOURNAL):
        with pytest.raises(UsageError, match="belongs to the system and cannot be deleted; purge it"):
            core.delete(name)
    if transactional:
        net.send("a", at("c"), "x", transactional=True)
        net.run()
    core.consume(1, "orders", 1, transactional=True)
    net.run()
    with pytest.raises(UsageError, match="an application receives from orders: stop it first"):
        core.delete("orders")
    core.abandon(1, "orders", net.now)
    assert core.delete("orders") == transactional


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.4")
def test_what_waits_for_a_deleted_queue_behind_a_gap_is_forgotten_and_its_sender_told(net: Net) -> None:
    net.blocked.add(frozenset("ac"))
    for number in range(1, 4):
        net.send("a", at("c"), str(number), transactional=True, journal_negative=True)
    net.turn("a")
    [sequence] = net.nodes["a"].up.inspect().outbound
    found = [decode_packet(waiting.packet) for waiting in sequence.window]
    arrive(net, "c", *[message for message in found[1:] if isinstance(message, UserMessage)])
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 2
    assert net.nodes["c"].up.delete("orders") == 0
    net.blocked.clear()
    net.pass_ms(2_000)
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0
    assert {message_class for message_class, _ in ended(net, "a", DEADXACT)} == {MessageClass.NACK_BAD_DST_Q}
    assert len(bodies(net, "a", DEADXACT)) == 3
    net.kill("c")
    net.start("c")
    net.nodes["c"].up.make(ORDERS)
    net.send("a", at("c"), "new", transactional=True)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"new"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.3")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_sequence_goes_on_where_it_was_when_its_queue_is_deleted_and_made_again(
    net: Net, *, restarts: bool
) -> None:
    """The messages have a direct name, which stands for any queue that has this name."""
    to_orders = Destination(r"DIRECT=TCP:c\private$\orders", guid_of("c"), r"TCP:c\private$\orders", "c")
    for number in range(3):
        net.send("a", to_orders, str(number), transactional=True)
    net.turn_together()
    net.run()
    net.send("a", to_orders, "while it is there", transactional=True, journal_negative=True)
    net.run()
    assert net.nodes["c"].up.delete("orders") == 4
    net.send("a", to_orders, "refused", transactional=True, journal_negative=True)
    net.run()
    if restarts:
        net.kill("c")
        net.start("c")
    net.nodes["c"].up.make(ORDERS)
    net.send("a", to_orders, "new", transactional=True)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"new"]
    assert {body for _, body in ended(net, "a", DEADXACT)} == {b"while it is there", b"refused"}


def test_a_page_of_a_purge_has_no_more_than_of_one_queue_may_be_in_memory(net: Net) -> None:
    net.blocked.add(frozenset("ac"))
    for number in range(20):
        net.send("a", at("c", 17), str(number), recoverable=True)
    net.run()
    core = net.nodes["a"].up
    core.purge(TO_C)
    [page] = [read for read in core.take(net.now).reads if isinstance(read, ReadPage)]
    assert (page.reader, page.limit_messages) == (ReadBy.PURGE, SMALL.resident_messages)


# Over restarts


@pytest.mark.parametrize("place", ["local", "transactional", "on its way"])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 99])
def test_a_purge_that_a_kill_interrupts_goes_on_and_takes_nothing_that_has_come_since(
    net: Net, place: str, turns: int
) -> None:
    net.blocked.add(frozenset("ac"))
    options = {"transactional": place == "transactional", "recoverable": place != "transactional"}
    destination, name = {
        "local": (at("c", 17), "notes"),
        "transactional": (at("c"), at("c").name),
        "on its way": (at("c", 17), TO_C),
    }[place]
    where = "c" if place == "local" else "a"
    for number in range(600):
        net.send(where, destination, str(number), **options)
    net.run()
    core = net.nodes[where].up
    assert core.purge(name) == 600
    assert core.remember({(b"invoker", 7): None}), "it is kept with what came of the operation"
    for _ in range(turns):
        net.turn(where)
    net.kill(where)
    net.start(where)
    net.send(where, destination, "since", **options)
    net.run()
    core = net.nodes[where].up
    left = waiting_in(net, where, name)
    assert left == (1 if turns else 601)
    assert not core.is_emptying(name)
    net.kill(where)
    net.start(where)
    net.run()
    assert waiting_in(net, where, name) == left
    assert not any(queue.purging for queue in net.nodes[where].up.status().local)


def waiting_in(net: Net, where: str, name: str) -> int:
    """Return how many messages a queue of a node has: messages in a local queue, or messages on their way."""
    status = net.nodes[where].up.status()
    local = {queue.name: queue.waiting for queue in status.local}
    return (local | {queue.name: queue.waiting for queue in status.outgoing})[name]


def test_what_a_consumer_has_goes_also_if_the_purge_was_an_earlier_processs(net: Net) -> None:
    for body in ("held", "not held"):
        net.send("c", at("c", 17), body, recoverable=True)
    net.run()
    core = net.nodes["c"].up
    core.consume(1, "notes", 1, transactional=True)
    net.run()
    assert core.purge("notes") == 2
    net.run()
    assert [queue.waiting for queue in core.status().local if queue.name == "notes"] == [1]
    net.kill("c")
    net.start("c")
    net.send("c", at("c", 17), "since", recoverable=True)
    net.run()
    assert bodies(net, "c", "notes") == [b"since"]


def test_a_queue_that_is_deleted_while_it_is_purged_is_emptied_whole_by_the_next_process(net: Net) -> None:
    for number in range(600):
        net.send("c", at("c", 17), str(number), recoverable=True)
    net.run()
    core = net.nodes["c"].up
    core.purge("notes")
    net.turn("c")
    for number in range(100):
        net.send("c", at("c", 17), str(number), recoverable=True)
    core.delete("notes")
    net.turn("c")
    net.kill("c")
    net.start("c")
    net.run()
    [gone] = net.nodes["c"].up.inspect().queues.gone
    assert (gone.name, gone.count, bool(gone.purging)) == ("notes", 0, False)


def test_of_a_queue_that_an_earlier_process_purged_and_that_is_not_here_any_more_nothing_is_kept(
    net: Net,
) -> None:
    net.nodes["c"].store.counters["purged_until_4711"] = 17
    net.kill("c")
    net.start("c")
    net.pass_ms(2_000)
    assert net.nodes["c"].store.counters["purged_until_4711"] == 0
