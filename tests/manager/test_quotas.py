"""Full queues and full queue managers: which nodes are told, and where messages stay.

The tests also check how traffic resumes.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.errors import QuotaExceeded
from mqproto.manager.arriving.inserting import NoRoomError
from mqproto.messages.drafts import Draft
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.turn.effects import QueueKind
from mqproto.wire import MessageClass, SecurityHeader, UserMessage, decode_packet
from tests.examples import a_transaction_header, a_user_message
from tests.observing import DEADLETTER, DEADXACT, arrive, bodies, ended, final_acks
from tests.pair import Net, at, chain, guid_of, queue

NOTES, ORDERS = queue("notes", 17, transactional=False), queue("orders")
SMALL = QueueDeclaration("small", 18, transactional=True, quota_bytes=2_600)
SMALL_NOTES = QueueDeclaration("small notes", 19, quota_bytes=2_600)
QUICK = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=1,
    resend_timeouts_medium_s=2,
    resend_timeouts_long_s=3,
    resend_timeouts_final_s=4,
)
FULL_AT_20_KB = replace(QUICK, quota_bytes=20_000)


def body(number: int) -> bytes:
    """Return a number followed by a thousand bytes."""
    return b"%d." % number + bytes(1_000)


def numbers(found: list[bytes]) -> list[int]:
    return [int(each.partition(b".")[0]) for each in found]


# The quota of a queue


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_a_full_queue_refuses_and_the_sequence_goes_on_behind_what_it_refused() -> None:
    net = chain("a", "c", queues=[SMALL], settings=QUICK)
    for number in range(4):
        net.send("a", at("c", 18), body(number), transactional=True, journal_negative=number == 3)
    net.pass_ms(2_000)
    assert final_acks(net, "c", "a") == [MessageClass.NACK_Q_EXCEED_QUOTA] * 2
    assert numbers(bodies(net, "a", DEADXACT)) == [3]
    assert numbers(net.receive("c", "small")) == [0, 1]
    for number in (4, 5):
        net.send("a", at("c", 18), body(number), transactional=True)
    net.pass_ms(2_000)
    assert numbers(net.receive("c", "small")) == [4, 5]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_what_waited_behind_a_gap_is_refused_too_where_it_does_not_fit_when_the_gap_closes() -> None:
    net = chain("a", "c", queues=[SMALL], settings=QUICK)
    for number in range(1, 5):
        net.send("a", at("c", 18), body(number), transactional=True, journal_negative=True)
    net.turn("a")
    [sequence] = net.nodes["a"].up.inspect().outbound
    found = [decode_packet(waiting.packet) for waiting in sequence.window]
    arrive(net, "c", *[message for message in reversed(found) if isinstance(message, UserMessage)])
    net.pass_ms(2_000)
    assert numbers(net.receive("c", "small")) == [1, 2]
    assert numbers(bodies(net, "a", DEADXACT)) == [3, 4]
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_full_queue_counts_by_bytes_and_goes_on_when_there_is_room(recoverable: bool) -> None:
    net = chain("a", "c", queues=[SMALL_NOTES], settings=QUICK)
    for number in range(4):
        net.send("a", at("c", 19), body(number), recoverable=recoverable, journal_negative=True)
    net.run()
    assert [message_class for message_class, _ in ended(net, "c", DEADLETTER)] == [
        MessageClass.NACK_Q_EXCEED_QUOTA
    ] * 2
    if recoverable:  # What is on disk counts after a restart as before.
        net.kill("c")
        net.start("c")
    else:
        assert len(net.receive("c", DEADLETTER)) == 2
        core = net.nodes["c"].up
        core.consume(1, "small notes", 2, transactional=True)
        net.run()
        core.settle(1, "small notes", net.now, commit=False)
    net.send("a", at("c", 19), body(4), recoverable=recoverable)
    net.pass_ms(1_000)
    assert numbers(net.receive("c", "small notes")) == [0, 1]
    net.send("a", at("c", 19), body(5), recoverable=recoverable)
    net.pass_ms(1_000)
    assert numbers(net.receive("c", "small notes")) == [5]


def test_an_application_is_told_that_a_queue_is_full() -> None:
    net = chain("c", queues=[SMALL_NOTES])
    with pytest.raises(QuotaExceeded, match=r"small notes is full: its quota is 2,600 bytes"):
        net.send("c", at("c", 19), body(1) * 3)
    net.send("c", at("c", 19), body(2) * 2)
    assert numbers(net.receive("c", "small notes")) == [2]


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.2")
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("label", ["", "an order"])
def test_what_applications_hand_in_together_keeps_within_the_quota_of_a_queue_to_the_byte(
    transactional: bool, label: str
) -> None:
    """Messages with empty bodies consist mostly of headers, which count for each message."""
    declared = SMALL if transactional else SMALL_NOTES
    draft = Draft(body=b"", label=label, transactional=transactional, extension=b"e")
    net = chain("c", queues=[declared])
    core, destination = net.nodes["c"].up, at("c", declared.identifier)
    core.enqueue([(destination, draft)], net.now)
    net.run()
    [local] = [each for each in core.status().local if each.name == declared.name]
    fitting = 2_600 // local.size_bytes
    assert fitting > 10
    with pytest.raises(QuotaExceeded, match="is full: its quota is 2,600 bytes"):
        core.enqueue([(destination, draft)] * fitting, net.now)
    core.enqueue([(destination, draft)] * (fitting - 1), net.now)
    with pytest.raises(QuotaExceeded):
        core.enqueue([(destination, draft)], net.now)
    net.run()
    assert len(net.receive("c", declared.name)) == fitting


# The quota of a queue manager


def full(*names: str) -> Net:
    """Return nodes in a row; the last one hosts the queues, and has room for 20,000 bytes."""
    net = chain(*names, queues=[NOTES, ORDERS], settings=QUICK)
    net.nodes[names[-1]].settings = FULL_AT_20_KB
    net.start(names[-1])
    return net


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize(("rounds", "at_a_time"), [(6, 40), (40, 1)])
def test_a_full_queue_manager_closes_the_session_and_its_neighbours_keep_what_it_did_not_take(
    transactional: bool, rounds: int, at_a_time: int
) -> None:
    """Forty messages arrive, but there is room for only eighteen.

    Each message that an application receives makes room for one more.
    """
    net = full("a", "b", "c")
    number, name = (16, "orders") if transactional else (17, "notes")
    for index in range(40):
        net.send("a", at("c", number), body(index), transactional=transactional, recoverable=True)
    net.pass_ms(2_000)
    c = net.nodes["c"]
    assert 15_000 < c.store.size_bytes <= 20_000
    taken = c.store.waiting(QueueKind.LOCAL)
    assert net.nodes["b"].store.waiting(QueueKind.OUTGOING) >= 40 - taken
    assert any("quota_bytes = 20,000 allows" in str(note.facts.get("reason")) for note in c.notes)
    for _ in range(rounds):
        c.up.consume(1, name, at_a_time, transactional=False)
        net.run()
        c.up.abandon(1, name, net.now)
        assert c.store.size_bytes <= 20_000
        net.pass_ms(2_000)
    assert numbers([message.properties.message_body for message in c.received]) == list(range(40))
    net.pass_ms(20_000)
    assert [node.store.messages for node in net.nodes.values()] == [{}, {}, {}]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_a_full_queue_manager_takes_acknowledgments_since_they_make_room() -> None:
    """Everything that fills `c` waits for the OrderAck of `a`, and `a` has other messages for `c`."""
    net = full("a", "c")
    net.nodes["a"].queues = (ORDERS,)
    net.start("a")
    net.blocked.add(frozenset("ac"))
    for index in range(19):
        net.send("c", at("a"), body(index), transactional=True)
    for index in range(40):
        net.send("a", at("c", 17), body(index), recoverable=True)
    net.run()
    net.blocked.clear()
    received: list[int] = []
    for _ in range(6):
        net.pass_ms(2_000)
        received += numbers(net.receive("c", "notes"))
    assert numbers(net.receive("a", "orders")) == list(range(19))
    assert received == list(range(40))
    net.pass_ms(20_000)
    assert [node.store.messages for node in net.nodes.values()] == [{}, {}]


def an_order(number: int, source: str = "a", size_bytes: int = 2_500) -> UserMessage:
    """Return the order with this number from a source to `c`; its predecessor is the order with the previous number."""
    return a_user_message(
        source=guid_of(source),
        destination_manager=guid_of("c"),
        destination=16,
        message_id=number,
        recoverable=True,
        body=f"{source}{number}.".encode() + bytes(size_bytes),
        transaction=a_transaction_header(tx_sequence_number=number, previous_tx_sequence_number=number - 1),
    )


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@given(
    orders=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 8)), min_size=16, max_size=16, unique=True
    ).flatmap(st.permutations),
    sizes=st.lists(st.sampled_from((100, 2_500, 6_000, 9_000)), min_size=8, max_size=8),
    restarts=st.sets(st.integers(0, 40)),
)
def test_what_is_held_leaves_room_for_the_message_that_is_awaited_in_whatever_order_they_come(
    orders: list[tuple[str, int]], sizes: list[int], restarts: set[int]
) -> None:
    """Senders repeat messages that were not accepted, and a consumer takes messages: all arrive, without exceeding the
    quota.
    """
    net = full("b", "a", "c")
    received: list[str] = []
    for tried in range(len(orders) ** 2):
        source, number = orders[tried % len(orders)]
        with contextlib.suppress(NoRoomError):
            arrive(net, "c", an_order(number, source, sizes[number - 1]))
        c = net.nodes["c"]
        assert c.store.size_bytes <= 20_000
        if tried in restarts:
            net.kill("c")
            net.start("c")
        received += [found.partition(b".")[0].decode() for found in net.receive("c", "orders")]
        if len(received) == len(orders):
            break
    for source in "ab":
        assert [each for each in received if source in each] == [
            f"{source}{number}" for number in range(1, 9)
        ]


def test_held_messages_give_way_by_the_highest_number_of_all_senders_first_and_are_told_as_dropped() -> None:
    net = full("a", "c")
    for number, source in ((5, "b"), (3, "a"), (4, "a")):
        arrive(net, "c", an_order(number, source, 4_000))
    c = net.nodes["c"]
    assert (c.up.status().held_ever, c.up.status().overflowed) == (2, 1), "more than half is not held"
    c.up.enqueue([(at("c", 17), Draft(body=bytes(8_000), recoverable=True))], net.now)
    net.run()
    arrive(net, "c", an_order(1, size_bytes=4_000))
    assert c.up.status().overflowed == 2
    assert c.store.waiting(QueueKind.HELD) == 1
    assert len(net.receive("c", "notes")) == 1
    arrive(net, "c", an_order(2, size_bytes=4_000))
    assert [found[:2] for found in net.receive("c", "orders")] == [b"a1", b"a2", b"a3"]


def test_nothing_gives_way_to_what_finds_no_room_even_so_nor_to_what_is_not_awaited() -> None:
    net = full("a", "c")
    arrive(net, "c", an_order(3, size_bytes=4_000))
    net.nodes["c"].up.enqueue([(at("c", 17), Draft(body=bytes(14_000), recoverable=True))], net.now)
    net.run()
    with pytest.raises(NoRoomError, match="quota_bytes = 20,000 allows"):
        arrive(net, "c", an_order(1, size_bytes=6_000))
    arrive(net, "c", an_order(3, size_bytes=4_000), an_order(2, size_bytes=100))
    status = net.nodes["c"].up.status()
    assert (net.nodes["c"].store.waiting(QueueKind.HELD), status.held_ever, status.overflowed) == (1, 1, 1)
    arrive(net, "c", an_order(1, "b", 4_000))
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0, "the first of a sender is awaited as well"


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_a_class_alone_opens_no_door_into_a_full_store() -> None:
    net = full("a", "c")
    message = a_user_message(
        source=guid_of("a"), destination_manager=guid_of("c"), body=body(0) * 25, recoverable=True
    )
    for message_class in (0, MessageClass.REPORT, MessageClass.ACK_RECEIVE, MessageClass.ORDER_ACK, 0x1F):
        message.properties.message_class = message_class
        with pytest.raises(NoRoomError):
            arrive(net, "c", message)


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.9")
def test_an_application_is_told_that_the_queue_manager_is_full_and_goes_on_when_there_is_room() -> None:
    net = full("c")
    destination = at("c", 17)
    net.nodes["c"].up.enqueue([(destination, Draft(body=body(0) * 18, recoverable=True))], net.now)
    with pytest.raises(QuotaExceeded, match="quota_bytes = 20,000: receive or purge"):
        net.send("c", destination, body(1) * 2, recoverable=True)
    net.run()
    assert len(net.receive("c", "notes")) == 1
    net.send("c", destination, body(1) * 2, recoverable=True)
    assert len(net.receive("c", "notes")) == 1


def test_what_is_not_stored_does_not_count_for_ever() -> None:
    net = full("c")
    for _ in range(3):
        net.send("c", at("c", 17), body(0) * 18)
        assert len(net.receive("c", "notes")) == 1


# How many senders


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_one_sender_too_many_is_turned_away_with_the_reason_and_the_others_go_on() -> None:
    net = Net()
    net.add("c", ORDERS, settings=replace(QUICK, maximum_sequences=2))
    for name in "abd":
        net.add(name, settings=QUICK)
        net.route(name, "c", "c")
        net.route("c", name, name)
    net.start()
    for name in "abd":
        net.send(name, at("c"), name, transactional=True)
        net.run()
    net.send("a", at("c"), "again", transactional=True)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"a", b"b", b"again"]
    reasons = {note.facts["reason"] for note in net.nodes["c"].notes if note.name == "session-closed"}
    assert reasons == {"2 senders are known, which is maximum_sequences"}
    assert net.nodes["d"].store.waiting(QueueKind.SEQUENCE) == 1


# A full disk


@pytest.mark.parametrize("to", ["a", "c"])
def test_on_a_full_disk_express_messages_are_taken_as_far_as_memory_has_places_for_them(to: str) -> None:
    net = chain("a", "c", queues=[NOTES], settings=replace(QUICK, resident_messages=5))
    net.nodes["a"].queues = (NOTES,)
    net.start("a")
    net.blocked.add(frozenset("ac"))
    net.cut("a", "c")
    core = net.nodes["a"].up

    def send(*numbers: int) -> None:
        core.enqueue([(at(to, 17), Draft(body=body(number))) for number in numbers], net.now)

    core.has_room(0)
    with pytest.raises(QuotaExceeded, match="the disk is full"):
        send(*range(6))
    send(0, 1, 2)
    with pytest.raises(QuotaExceeded, match="the disk is full"):
        send(3, 4, 5)
    send(3, 4)
    with pytest.raises(QuotaExceeded, match="the disk is full"):
        send(5)
    net.pass_ms(2_000)
    assert not net.nodes["a"].store.messages
    core.has_room(10_000)
    send(5, 6)
    assert 2_000 < core.added_bytes < 3_000
    net.run()
    assert len(net.nodes["a"].store.messages) == 2


def test_an_application_hears_that_the_disk_is_full_and_how_much_was_handed_in_is_known() -> None:
    net = chain("a", "c", queues=[ORDERS], settings=QUICK)
    core = net.nodes["a"].up
    core.has_room(5_000)
    net.send("a", at("c"), body(1), transactional=True)
    assert 1_000 < core.added_bytes < 2_000
    core.has_room(0)
    with pytest.raises(
        QuotaExceeded, match="the disk is full: make room there, or receive or purge something"
    ):
        net.send("a", at("c"), b"", transactional=True)
    net.send("a", at("c", 17), b"express")
    core.has_room(None)
    net.send("a", at("c"), body(3), transactional=True)
    net.pass_ms(2_000)
    assert numbers(net.receive("c", "orders")) == [1, 3]


def test_what_was_held_behind_a_gap_and_joins_its_queue_is_not_taken_for_what_is_new() -> None:
    """Each message has a SecurityHeader, so the packet that joins the queue differs from the held one, and
    replaces it.
    """
    net = chain("a", "c", queues=[ORDERS, NOTES], settings=QUICK)
    core = net.nodes["c"].up
    core.has_room(5_000)

    def signed(number: int) -> UserMessage:
        place = a_transaction_header(tx_sequence_number=number, previous_tx_sequence_number=number - 1)
        whose = {"source": guid_of("a"), "destination_manager": guid_of("c"), "destination": 16}
        message = a_user_message(**whose, message_id=number, body=body(number), transaction=place)
        message.user.has_security = True
        message.security = SecurityHeader(sender_id=b"somebody")
        message.security.sender_id_type, message.security.has_security_data = 2, True
        return message

    for number in range(2, 12):
        arrive(net, "c", signed(number))
    arrive(net, "c", signed(1), signed(12))
    assert numbers(bodies(net, "c", "orders")) == list(range(1, 13))
    assert net.nodes["c"].store.size_bytes == core.status().stored_bytes
