"""What happens when a message ends: which nodes are told, and what is kept where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqproto.formatname import FormatName, PrivateName, PublicName
from mqproto.formatname.wire import response_from_wire
from mqproto.manager.arriving.transit import HOP_LIMIT
from mqproto.messages.destinations import Destination
from mqproto.queues.localqueue import QueueDeclaration, SystemQueue
from mqproto.turn.effects import QueueKind
from mqproto.wire import (
    INFINITE,
    MAXIMUM_PACKET_SIZE,
    MessageClass,
    MessageIdentifier,
    QueueName,
    UserMessage,
    encode_packet,
    message_identifier,
)
from mqproto.wire.layouts.user import (
    DIRECT,
    PRIVATE_ELSEWHERE,
    PRIVATE_ON_DESTINATION,
    PRIVATE_ON_SOURCE,
    PUBLIC,
)
from tests.examples import a_security_header, a_user_message
from tests.observing import (
    DEADLETTER,
    DEADXACT,
    JOURNAL,
    acknowledgments,
    administration,
    arrive,
    bodies,
    ended,
    final_acks,
    kept,
    messages,
    packets,
    publish,
)
from tests.pair import Net, at, chain, direct, guid_of, queue
from tests.ways import (
    ASKED_BY,
    CASES,
    NA,
    NOTES,
    ORDERS,
    PA,
    PUBLIC_NOTES,
    TALKATIVE,
    Way,
    a_system,
    queue_of,
    walk,
)


def by_computer(name: str, queue_name: str) -> Destination:
    """Return a private queue as the destination of a direct format name that a person can write."""
    path = rf"OS:{name}\PRIVATE$\{queue_name}"
    return Destination(f"DIRECT={path}", None, path, name)


# Who is told


@pytest.mark.spec("[MS-MQQB] 3.1.7.2.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.10")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize(("way", "transactional"), CASES)
def test_the_administration_queue_hears_what_each_of_four_bits_asks_for(
    way: Way, transactional: bool
) -> None:
    """There are sixteen messages, one for each combination; the correlation of an acknowledgment identifies its
    message.
    """
    net = a_system()
    drafts = [{"acknowledgments": flags, "admin_queue": at("a", 5).name} for flags in range(16)]
    walk(net, way, transactional, drafts)
    heard = sorted(
        (message_identifier.decode(ack.properties.correlation_id).ordinal - 1, ack.properties.message_class)
        for ack in kept(net, "a", "admin")
    )
    assert heard == sorted(
        (flags, event) for flags in range(16) for event in way.history if flags & ASKED_BY[event]
    )


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
@pytest.mark.spec("[MS-MQQB] 3.1.7.2")
@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.4")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.5")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.8")
@pytest.mark.parametrize(("way", "transactional"), CASES)
def test_journals_dead_letters_and_final_acks_follow_from_three_bits(way: Way, transactional: bool) -> None:
    """There are eight messages, one for each combination of JN, JP and FinalAck."""
    net = a_system()
    drafts = [
        {"journal_negative": bool(bits & 1), "journal_positive": bool(bits & 2), "final_ack": bool(bits & 4)}
        for bits in range(8)
    ]
    walk(net, way, transactional, drafts)
    received = way.message_class == MessageClass.ACK_RECEIVE
    failed = [] if received else [(way.message_class, b"%d" % bits) for bits in range(8) if bits & 1]
    arrived = way.where != "a" if not transactional else received
    positive = [b"%d" % bits for bits in range(8) if bits & 2] if arrived else []
    refused = way.message_class & 0xC000 == 0x8000
    told = [bits for bits in range(8) if refused or bits] if transactional and way.where != "a" else []

    assert len(final_acks(net, "b", "a")) == len(told)
    assert set(final_acks(net, "b", "a")) <= {way.message_class}
    for name in "abcd":
        here = net.nodes[name]
        at_source = name == "a" and transactional
        at_end = name == way.where and not transactional and way.message_class != MessageClass.NACK_BAD_DST_Q
        assert ended(net, name, DEADXACT) == (failed if at_source else [])
        assert ended(net, name, DEADLETTER) == (failed if at_end else [])
        assert bodies(net, name, JOURNAL) == (positive if name == "a" else [])
        assert {queue.waiting for queue in here.up.status().outgoing} <= {0}
    kinds = (QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.OUTGOING)
    assert [net.nodes["a"].store.waiting(kind) for kind in kinds] == [0, 0, 0]
    # Where a copy went too far, another may have arrived.
    in_doubt = len(failed) if way.message_class == MessageClass.NACK_HOP_COUNT_EXCEEDED else 0
    assert net.nodes["a"].store.waiting(QueueKind.ORDER) == in_doubt


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.parametrize("recoverable", [False, True])
def test_twenty_nine_queue_managers_may_pass_a_message_on_and_not_thirty(recoverable: bool) -> None:
    names = [f"n{number:02}" for number in range(HOP_LIMIT + 3)]
    net = chain(*names, queues=[NOTES])
    for name in names[-2:]:
        net.send(
            names[0], at(name, 17), name, recoverable=recoverable, journal_negative=True
        )  # The last but one hosts no queue; the last one is one hop too far.
    net.pass_ms(1_000)
    assert ended(net, names[-2], DEADLETTER) == [(MessageClass.NACK_HOP_COUNT_EXCEEDED, names[-1].encode())]
    assert net.receive(names[-1], "notes") == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_destination_keeps_nothing_of_a_message_to_a_queue_that_it_does_not_have(recoverable: bool) -> None:
    """JN and JP, in bytes 60 to 63 of the packet, are set in every combination.

    If JP is set, the source puts the message into its journal when the next hop has the message.
    """
    net = a_system()
    for bits in range(4):
        asked = {"journal_negative": bool(bits & 1), "journal_positive": bool(bits & 2)}
        net.send("a", at("c", 99), f"{bits}", recoverable=recoverable, **asked)
    net.pass_ms(2_000)
    came = [packet for packet in packets(net, "b", "c") if packet[32:48] == guid_of("c")]
    assert [int.from_bytes(packet[60:64], "little") >> 8 & 3 for packet in came] == [0, 1, 2, 3], (
        "JN, then JP"
    )
    for name in "abcd":
        assert bodies(net, name, DEADLETTER) == bodies(net, name, DEADXACT) == []
        assert bodies(net, name, JOURNAL) == ([b"2", b"3"] if name == "a" else [])
    refused = [note.facts["reason"] for note in net.nodes["c"].notes if note.name == "message-refused"]
    assert refused == ["NACK_BAD_DST_Q"] * 4


# What an administration acknowledgment says


def _response_queue(message: UserMessage) -> FormatName | None:
    user = message.user
    ends = user.source_queue_manager, user.queue_manager_address
    return response_from_wire(user.response_type, user.response_queue, *ends, None)


def an_acknowledged_message(net: Net, **changes: Any) -> tuple[UserMessage, UserMessage]:
    """Send a message from `a` to `c`; return it and its acknowledgment in the queue `admin` of `a`."""
    draft: dict[str, Any] = {"admin_queue": at("a", 5).name, "acknowledgments": PA | NA}
    net.send("a", changes.pop("to", at("c", 17)), changes.pop("body", b"body"), **draft | changes)
    net.pass_ms(1_000)
    [sent] = messages(net, "a", "b") + messages(net, "a", "c")
    [acknowledgment] = kept(net, "a", "admin")
    return sent, acknowledgment


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
@pytest.mark.parametrize("kind", ["express", "recoverable", "transactional"])
@pytest.mark.parametrize("refused", [False, True])
def test_an_acknowledgment_tells_what_it_acknowledges_and_asks_for_nothing(kind: str, refused: bool) -> None:
    sent, ack = an_acknowledged_message(
        a_system(),
        to=at("c", 99 if refused else 16 if kind == "transactional" else 17),
        transactional=kind == "transactional",
        recoverable=kind == "recoverable",
        label="label",
        body=b"b\0o\0",
        body_type=8,
        application_tag=77,
        priority=6,
        correlation_id=b"of the application..",
        time_to_reach_queue_s=1_000,
        time_to_be_received_s=2_000,
        journal_negative=True,
        journal_positive=True,
        final_ack=True,
        response_queue=at("b", 9).name,
    )
    assert ack.properties.message_class == (
        MessageClass.NACK_BAD_DST_Q if refused else MessageClass.ACK_REACH_QUEUE
    )
    identifier = MessageIdentifier(guid_of("a"), sent.user.message_id)
    assert message_identifier.decode(ack.properties.correlation_id) == identifier
    assert isinstance(sent.user.destination_queue, int)
    assert _response_queue(ack) == PrivateName(guid_of("c"), sent.user.destination_queue)
    assert ack.user.recoverable == (kind != "express")
    assert ack.properties.message_body == (b"b\0o\0" if refused else b"")
    assert ack.properties.body_type == (8 if refused else 0)
    assert (ack.properties.label, ack.properties.application_tag) == ("label", 77)
    assert ack.base.priority == (0 if kind == "transactional" else 6)
    assert (ack.base.time_to_reach_queue_s, ack.user.time_to_be_received_s) == (INFINITE, INFINITE)
    assert (ack.user.journal_negative, ack.user.journal_positive, ack.transaction) == (False, False, None)
    assert (ack.properties.flags, ack.user.admin_queue) == (0, None)
    assert ack.user.source_queue_manager == guid_of("c")


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize(
    ("name", "queue_type", "host"),
    [
        (at("a", 5).name, PRIVATE_ON_SOURCE, "a"),
        (at("c", 5).name, PRIVATE_ON_DESTINATION, "c"),
        (str(PublicName(guid_of("public"))), PUBLIC, "b"),
        (at("b", 5).name, PRIVATE_ELSEWHERE, "b"),
        (by_computer("b", "admin").name, DIRECT, "b"),
    ],
    ids=["private at the source", "at the destination", "public", "private elsewhere", "direct"],
)
def test_an_administration_queue_is_found_by_each_of_the_five_forms_of_its_name(
    name: str, queue_type: int, host: str
) -> None:
    net = a_system()
    net.nodes["b"].queues = (queue("admin", 5, transactional=False, public=guid_of("public")),)
    publish(net, {"public": "b"})
    net.send("a", at("c", 17), "x", admin_queue=name, acknowledgments=PA)
    net.pass_ms(1_000)
    [sent] = [message for message in messages(net, "a", "b") if message.properties.message_body == b"x"]
    assert sent.user.admin_type == queue_type
    assert administration(net, host) == [MessageClass.ACK_REACH_QUEUE]


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
@pytest.mark.parametrize("destination", [by_computer("c", "notes"), PUBLIC_NOTES], ids=["direct", "public"])
def test_the_response_queue_of_an_acknowledgment_is_the_destination_as_its_sender_named_it(
    destination: Destination,
) -> None:
    net = a_system()
    net.nodes["c"].queues = (queue("notes", 17, transactional=False, public=guid_of("public notes")),)
    publish(net, {"public notes": "c"})
    _, ack = an_acknowledged_message(net, to=destination)
    assert ack.user.response_queue == destination.queue
    assert str(_response_queue(ack)).upper() == destination.name.upper()


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
def test_what_was_encrypted_does_not_come_back_in_an_acknowledgment() -> None:
    net = a_system()
    message = a_user_message(
        source=guid_of("a"),
        destination_manager=guid_of("c"),
        destination=99,
        admin_queue=5,
        acknowledgments=NA,
    )
    message.user.has_security = True
    message.security = a_security_header()
    clear, encrypted = encode_packet(message), a_security_header()
    message.security = encrypted
    encrypted.body_encrypted = True
    assert clear != encode_packet(message)
    arrive(net, "c", message, peer="b")
    net.pass_ms(1_000)
    assert ended(net, "a", "admin") == [(MessageClass.NACK_BAD_DST_Q, b"")]


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
@pytest.mark.parametrize(("spare", "whole"), [(0, False), (1_024, True)])
def test_the_largest_message_is_acknowledged_though_its_body_does_not_fit(spare: int, whole: bool) -> None:
    """The queue's name takes four bytes in the message, but twenty in the acknowledgment.

    The message names its destination by number alone. The acknowledgment names the same queue as its response queue.
    """
    net = a_system()
    message = a_user_message(
        source=guid_of("a"),
        destination_manager=guid_of("c"),
        destination=17,
        admin_queue=5,
        acknowledgments=NA,
        body=b"",
    )
    message.user.hop_count = HOP_LIMIT
    body = bytes(MAXIMUM_PACKET_SIZE - spare - len(encode_packet(message)))
    message.properties.message_body = body
    assert len(encode_packet(message)) == MAXIMUM_PACKET_SIZE - spare
    arrive(net, "b", message)
    net.pass_ms(1_000)
    assert ended(net, "a", "admin") == [(MessageClass.NACK_HOP_COUNT_EXCEEDED, body if whole else b"")]


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3")
@pytest.mark.parametrize("insecure", [False, True])
def test_a_stranger_learns_what_queues_there_are_only_if_insecure_nacks_are_sent(insecure: bool) -> None:
    """In any case, a FinalAck informs the sender's queue manager.

    If that queue manager has the administration queue, it puts one NACK there for the FinalAck.
    """
    net = a_system(replace(TALKATIVE, send_insecure_nacks=insecure))
    asked = {"acknowledgments": NA, "journal_negative": True}
    for admin in "ab":
        here = {"admin_queue": at(admin, 5).name, **asked}
        net.send("a", at("c", 99), "x", transactional=True, **here)
        net.send("a", at("c", 99), "y", **here)
        net.send("a", at("c", 19), "z", **here)
    net.pass_ms(1_000)
    by_class = [MessageClass.NACK_BAD_DST_Q, MessageClass.NACK_Q_EXCEED_QUOTA]
    assert sorted(administration(net, "a")) == [by_class[0]] * insecure + by_class
    assert sorted(administration(net, "b")) == [by_class[0], by_class[0]] * insecure + by_class[1:]
    assert final_acks(net, "c", "b") == [MessageClass.NACK_BAD_DST_Q] * 2
    assert bodies(net, "a", DEADXACT) == [b"x"] * 2
    assert bodies(net, "c", DEADLETTER) == [b"z"] * 2


@pytest.mark.spec("[MS-MQQB] 3.1.5.11")
@pytest.mark.spec("[MS-MQQB] 5.1")
@pytest.mark.parametrize(
    "gone", ["no such queue", "full", "transactional", "unknown manager", "no name at all"]
)
def test_nothing_follows_from_an_acknowledgment_that_cannot_be_delivered(gone: str) -> None:
    net = a_system()
    names = {
        "no such queue": at("b", 99).name,
        "full": at("c", 19).name,
        "transactional": at("c", 16).name,
        "unknown manager": at("nobody", 5).name,
        "no name at all": str(PublicName(guid_of("nobody"))),
    }
    for kind in (16, 17, 99):
        net.send(
            "a",
            at("c", kind),
            "x",
            transactional=kind == 16,
            admin_queue=names[gone],
            acknowledgments=0xF,
            final_ack=True,
        )
    net.run()
    net.receive("c", "notes")
    net.receive("c", "orders")
    net.pass_ms(10_000)
    for name in "abcd":
        assert bodies(net, name, DEADLETTER) == bodies(net, name, DEADXACT) == []
        assert [queue.waiting for queue in net.nodes[name].up.status().local] == [0] * (
            len(net.nodes[name].queues) + 3
        )
        assert {queue.waiting for queue in net.nodes[name].up.status().outgoing} <= {0}
    assert len(acknowledgments(net, "c", "b")) == 2  # An OrderAck and a FinalAck.


@pytest.mark.spec("[MS-MQQB] 3.1.5.11")
def test_administration_acknowledgments_are_received_as_other_messages_are() -> None:
    net = a_system()
    net.send("a", at("c", 17), "x", recoverable=True, admin_queue=at("a", 5).name, acknowledgments=PA)
    net.pass_ms(1_000)
    net.kill("a")
    net.start("a")
    net.nodes["a"].up.consume(1, "admin", 1, transactional=True)
    net.run()
    [message] = net.nodes["a"].received
    assert message.properties.message_class == MessageClass.ACK_REACH_QUEUE
    net.nodes["a"].up.settle(1, "admin", net.now, commit=True)
    net.run()
    assert administration(net, "a") == []


# What is kept


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.2")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_queues_journal_has_what_was_received_from_it_and_nothing_else(transactional: bool) -> None:
    number, name = queue_of(transactional)
    net = a_system()
    net.nodes["c"].queues = (QueueDeclaration(name, number, transactional=transactional, journal=True),)
    net.start("c")
    for body in ("received", "rejected", "purged"):
        net.send("a", at("c", number), body, transactional=transactional, recoverable=True)
    net.run()
    core = net.nodes["c"].up
    core.consume(1, name, 1, transactional=False)
    core.consume(2, name, 1, transactional=True)
    net.run()
    core.reject(2, name)
    core.purge(name)
    net.run()
    assert bodies(net, "c", f"{name};journal") == [b"received"]
    net.kill("c")
    net.start("c")
    assert net.receive("c", f"{name};journal") == [b"received"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.2")
def test_a_journal_keeps_as_much_as_its_quota_allows_and_an_operator_hears_of_the_rest() -> None:
    net = a_system()
    net.nodes["c"].queues = (QueueDeclaration("notes", 17, journal=True, journal_quota_bytes=2_500),)
    net.start("c")
    for number in range(3):
        net.send("a", at("c", 17), b"%d" % number + bytes(1_000))
    net.run()
    assert len(net.receive("c", "notes")) == 3
    assert [body[:1] for body in bodies(net, "c", "notes;journal")] == [b"0", b"1"]
    notes = [note for note in net.nodes["c"].notes if note.name == "no-room-to-keep"]
    assert [note.facts["queue"] for note in notes] == ["notes;journal"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.12")
@pytest.mark.parametrize("kept_in", [DEADLETTER, DEADXACT, JOURNAL])
def test_what_exceeds_the_quota_of_a_system_queue_is_discarded(kept_in: SystemQueue) -> None:
    net = a_system(replace(TALKATIVE, journal_quota_bytes=2_500))
    transactional = kept_in == DEADXACT
    for number in range(3):
        net.send(
            "a",
            at("c", {JOURNAL: 17, DEADXACT: 99, DEADLETTER: 19}[kept_in]),
            b"%d" % number + bytes(1_000),
            transactional=transactional,
            journal_negative=True,
            journal_positive=kept_in == JOURNAL,
        )
    net.pass_ms(1_000)
    where = "c" if kept_in == DEADLETTER else "a"
    assert [body[:1] for body in bodies(net, where, kept_in)] == [b"0", b"1"]
    assert net.nodes[where].note_names().count("no-room-to-keep") == 1


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.4")
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_is_journaled_when_the_next_hop_has_it_and_where_it_began_alone(recoverable: bool) -> None:
    net = a_system()
    net.blocked |= {frozenset("ab"), frozenset("bc")}
    net.send("a", at("c", 17), "x", journal_positive=True, recoverable=recoverable)
    net.pass_ms(1_000)
    assert bodies(net, "a", JOURNAL) == []
    net.blocked.remove(frozenset("ab"))
    net.pass_ms(1_000)
    assert bodies(net, "a", JOURNAL) == [b"x"]
    net.blocked.clear()
    net.pass_ms(1_000)
    assert net.receive("c", "notes") == [b"x"]
    assert [len(bodies(net, name, JOURNAL)) for name in "abc"] == [1, 0, 0]


@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
@pytest.mark.parametrize("way", ["received", "rejected"])
def test_a_queue_manager_sends_itself_no_final_ack_and_keeps_what_is_asked_for(way: str) -> None:
    net = a_system()
    asked = {"journal_negative": True, "journal_positive": True, "final_ack": True}
    net.send("c", at("c"), "x", transactional=True, acknowledgments=0xF, admin_queue=at("c", 5).name, **asked)
    net.run()
    net.nodes["c"].up.consume(1, "orders", 1, transactional=True)
    net.run()
    if way == "received":
        net.nodes["c"].up.settle(1, "orders", net.now, commit=True)
    else:
        net.nodes["c"].up.reject(1, "orders")
    net.pass_ms(1_000)
    assert net.traffic == []
    ends = {"received": MessageClass.ACK_RECEIVE, "rejected": MessageClass.NACK_RECEIVE_REJECTED}
    assert administration(net, "c") == [MessageClass.ACK_REACH_QUEUE, ends[way]]
    assert bodies(net, "c", JOURNAL) == [b"x"] * (way == "received")
    assert ended(net, "c", DEADXACT) == [(ends[way], b"x")] * (way == "rejected")


@pytest.mark.spec("[MS-MQQB] 2.2.5")
@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
@pytest.mark.parametrize(("address", "queue"), [("", r"TCP:a\PRIVATE$\order_queue$"), ("10.0.0.1", 4)])
def test_a_final_ack_goes_back_by_a_direct_name_only_if_that_has_an_address(
    address: str, queue: QueueName
) -> None:
    net = chain("a", "c", queues=[ORDERS])
    net.addresses["a"] = address
    net.send("c", at("a"), "the first one calls")
    net.run()
    net.send("a", direct("c"), "x", transactional=True, journal_positive=True)
    net.run()
    net.receive("c", "orders")
    net.pass_ms(2_000)
    names = [message.user.destination_queue for message in messages(net, "c", "a")]
    assert names[1:] == [queue] * 2
    assert bodies(net, "a", JOURNAL) == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
def test_a_message_received_after_a_restart_is_acknowledged_as_before() -> None:
    net = chain("a", "c", queues=[ORDERS])
    net.send("a", direct("c"), "x", transactional=True, journal_positive=True)
    net.pass_ms(2_000)
    for name in "ac":
        net.kill(name)
    net.start()
    net.receive("c", "orders")
    net.pass_ms(6_000)
    assert bodies(net, "a", JOURNAL) == [b"x"]
    assert final_acks(net, "c", "a") == [MessageClass.ACK_RECEIVE]


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
def test_an_administration_queue_whose_name_means_nothing_hears_nothing() -> None:
    net = a_system()
    message = a_user_message(
        source=guid_of("a"),
        destination_manager=guid_of("c"),
        destination=17,
        admin_queue=r"TCP:no address\q",
        acknowledgments=PA,
    )
    arrive(net, "c", message, peer="b")
    net.pass_ms(1_000)
    assert net.receive("c", "notes") == [b"body of seven"]
    assert net.traffic == []
