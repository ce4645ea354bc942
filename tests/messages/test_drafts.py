"""Messages that applications submit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.errors import QuotaExceeded, UsageError
from mqproto.manager.sending import STAMP_LIMIT, STAMP_LIMIT_BYTES
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import (
    ACKNOWLEDGE_ARRIVAL,
    HEADROOM_BYTES,
    LABEL_LIMIT,
    NAMES_ROOM,
    PACKET_LIMIT_BYTES,
    SECURITY_BYTES,
    Draft,
    queue_name,
)
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.transfer.cursors import LAST_NUMBER, TRANSACTION_LIMIT
from mqproto.wire import (
    INFINITE,
    MessageClass,
    PrivateQueueFormatName,
    QueueName,
    SecurityHeader,
    UserMessage,
    decode_packet,
    guid_from_text,
    sid_from_text,
)
from tests.pair import Net, at, chain, direct, guid_of, queue

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
FULL_BYTES = PACKET_LIMIT_BYTES - HEADROOM_BYTES
GUID = "01234567-89ab-cdef-0123-456789abcdef"
SID = "S-1-5-21-1-2-3-1000"


def a_pair() -> Net:
    return chain("a", "c", queues=[ORDERS, NOTES])


def the_message(net: Net, name: str) -> UserMessage:
    """Return the first message that a peek sees in a queue of `c`."""
    (received,) = net.nodes["c"].up.peek(name, 1)
    message = decode_packet(received.packet)
    assert isinstance(message, UserMessage)
    return message


@pytest.mark.spec("[MS-MQQB] 3.1.7.10")
@pytest.mark.spec("[MS-MQQB] 3.1.7.11")
def test_all_that_an_application_says_arrives() -> None:
    net = a_pair()
    message_id = net.send(
        "a",
        at("c", 17),
        "body",
        label="label",
        recoverable=True,
        priority=5,
        extension=b"\0\1",
        body_type=8,
        application_tag=77,
        correlation_id=bytes(range(20)),
        time_to_reach_queue_s=60,
        time_to_be_received_s=90,
        journal_negative=True,
        journal_positive=True,
        sender_id=SID,
    )
    net.run()
    message = the_message(net, "notes")
    user, properties = message.user, message.properties
    assert (user.source_queue_manager, user.message_id) == (guid_of("a"), message_id)
    assert (user.recoverable, user.journal_negative, user.journal_positive) == (True, True, True)
    assert (message.base.priority, message.base.time_to_reach_queue_s) == (5, 60)
    assert user.time_to_be_received_s == 90
    assert (properties.label, properties.message_body, properties.extension_data) == (
        "label",
        b"body",
        b"\0\1",
    )
    assert (properties.body_type, properties.application_tag) == (8, 77)
    assert properties.correlation_id == bytes(range(20))
    assert message.security == SecurityHeader(flags=1, sender_id=sid_from_text(SID))
    assert user.sent_time_s == net.now.utc_s


@pytest.mark.spec("[MS-MQMQ] 2.2.20.5")
def test_each_transactional_message_is_a_transaction_of_its_own_of_priority_0() -> None:
    net = a_pair()
    net.send("a", at("c"), "one", transactional=True, priority=7, final_ack=True)
    net.run()
    message = the_message(net, "orders")
    header = message.transaction
    assert header is not None
    assert (header.first, header.last, header.final_ack, header.identifier) == (True, True, True, 1)
    assert (message.base.priority, message.user.recoverable) == (0, True)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"body": bytes(FULL_BYTES + 1)}, "at most 4,192,256"),
        ({"body": bytes(FULL_BYTES), "extension": b"x"}, "at most 4,192,256"),
        ({"label": "x" * (LABEL_LIMIT + 1)}, "has 250 UTF-16 units; at most 249"),
        ({"label": "\N{PILE OF POO}" * 125}, "has 250 UTF-16 units"),
        ({"label": "a\0b"}, "NUL"),
        ({"priority": 8}, "0 to 7"),
        ({"priority": -1}, "0 to 7"),
        ({"correlation_id": b""}, "must have 20"),
        ({"application_tag": 2**32}, "application_tag"),
        ({"body_type": -1}, "body_type"),
        ({"time_to_reach_queue_s": -1}, "time_to_reach_queue_s"),
        ({"time_to_be_received_s": INFINITE + 1}, "time_to_be_received_s"),
        ({"acknowledgments": 0x10, "admin_queue": "PUBLIC=" + GUID}, "acknowledgments is 0x10"),
        ({"acknowledgments": 1}, "no admin_queue: name one"),
        ({"admin_queue": "nowhere"}, "nowhere"),
        ({"response_queue": r"DIRECT=OS:{}\{}".format("h" * 190, "q" * 120)}, "at most 300 fit"),
        ({"admin_queue": f"PRIVATE={GUID}\\10;JOURNAL"}, "name one public, private or direct queue"),
        ({"trace_queue": r"DIRECT=OS:host\q"}, "reports go to a public queue"),
        ({"destinations": ("nowhere", "PUBLIC=" + GUID)}, "nowhere"),
        ({"sender_id": "administrator"}, "'administrator' is not a SID: write"),
        ({"body": bytes(FULL_BYTES), "sender_id": SID}, r"4,192,340 bytes \(body, SID\) are too many"),
    ],
)
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("before", [0, 1])
def test_a_draft_that_no_packet_can_carry_is_refused_and_leaves_nothing_behind(
    change: dict[str, Any], why: str, transactional: bool, before: int
) -> None:
    net = a_pair()
    values: dict[str, Any] = {"body": b"x", "transactional": transactional} | change
    messages = [(at("c"), Draft(body=b"before", transactional=True))] * before
    messages.append((at("c", 16 if transactional else 17), Draft(**values)))
    with pytest.raises(UsageError, match=why):
        net.nodes["a"].up.enqueue(messages, net.now)
    net.send("a", at("c"), "the next", transactional=True)
    net.run()
    assert net.receive("c", "orders") == [b"the next"], "no gap in the sequence, and all or none"


@given(length=st.integers(0, LABEL_LIMIT), extension=st.binary(max_size=40), tag=st.integers(0, 2**32 - 1))
def test_whatever_passes_the_check_has_a_packet(length: int, extension: bytes, tag: int) -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x", label="l" * length, extension=extension, application_tag=tag)
    net.run()
    assert net.receive("c", "notes") == [b"x"]


def test_the_largest_message_with_the_longest_label_fits() -> None:
    net = a_pair()
    body = bytes(FULL_BYTES - SECURITY_BYTES)
    sid = "S-1-5" + 15 * "-4294967295"
    net.send("a", at("c"), body, label="x" * LABEL_LIMIT, sender_id=sid, transactional=True)
    net.run()
    assert net.receive("c", "orders") == [body]


@pytest.mark.parametrize("transactional", [True, False])
def test_what_long_names_take_is_not_there_for_the_body(transactional: bool) -> None:
    net = a_pair()
    host = "h" * 63
    far = rf"OS:{host}\private$\{'q' * 124}"
    destination = Destination(f"DIRECT={far}", None, far, host)
    name = r"DIRECT=OS:{}\{}".format("h" * 160, "q" * 124)
    draft = Draft(
        body=b"",
        label="x" * LABEL_LIMIT,
        transactional=transactional,
        admin_queue=name,
        response_queue=name,
        acknowledgments=ACKNOWLEDGE_ARRIVAL,
        trace_queue="PUBLIC=" + GUID,
        sender_id="S-1-5" + 15 * "-4294967295",
    )
    room = FULL_BYTES - SECURITY_BYTES - 2 * (len(far) + 2 * len(name) - NAMES_ROOM)
    core = net.nodes["a"].up
    with pytest.raises(UsageError, match="are too many: a message carries at most"):
        core.enqueue([(destination, replace(draft, body=bytes(room + 1)))], net.now)
    assert core.status().outgoing == []
    core.enqueue([(destination, replace(draft, body=bytes(room)))], net.now)
    assert [queue.waiting for queue in core.status().outgoing] == [1]


@pytest.mark.parametrize(
    "others", [{"label": "x" * 250}, {"correlation_id": b"short"}, {"body": bytes(FULL_BYTES + 1)}]
)
def test_of_messages_that_are_alike_each_is_looked_at_for_what_is_its_own(others: dict[str, Any]) -> None:
    net = a_pair()
    drafts = [Draft(body=b"", label="one"), replace(Draft(body=b"", label="one"), **others)]
    with pytest.raises(UsageError):
        net.nodes["a"].up.enqueue([(at("c", 17), draft) for draft in drafts], net.now)
    assert net.nodes["a"].up.status().outgoing == []


def test_messages_that_are_alike_arrive_with_what_is_their_own() -> None:
    net = a_pair()
    own = [("", bytes(20), b"body"), ("label", bytes(range(20)), b""), ("x" * 249, bytes(20), bytes(3))]
    drafts = [Draft(body=body, label=label, correlation_id=about) for label, about, body in own * 2]
    net.nodes["a"].up.enqueue([(at("c", 17), draft) for draft in drafts], net.now)
    net.run()
    messages = [decode_packet(received.packet) for received in net.nodes["c"].up.peek("notes", 10)]
    found = [message.properties for message in messages if isinstance(message, UserMessage)]
    assert [(each.label or "", each.correlation_id, each.message_body) for each in found] == own * 2


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.6")
@pytest.mark.parametrize(("name", "identifier"), [("notes", 17), ("orders", 16)])
@pytest.mark.parametrize("here", [True, False])
def test_the_time_of_a_message_counts_from_when_it_was_sent_whatever_was_sent_before(
    name: str, identifier: int, here: bool
) -> None:
    """Parts made for one message are used again for later ones like it."""
    net = a_pair()
    draft = Draft(body=b"x", time_to_be_received_s=10, transactional=name == "orders")
    sent_s = []
    for _ in range(3):
        sent_s.append(net.now.utc_s)
        net.nodes["c" if here else "a"].up.enqueue([(at("c", identifier), draft)], net.now)
        net.run()
        net.pass_ms(4_000)
    left = [decode_packet(received.packet) for received in net.nodes["c"].up.peek(name, 10)]
    assert [packet.user.sent_time_s for packet in left if isinstance(packet, UserMessage)] == sent_s[1:]


def test_what_is_remembered_of_messages_is_bounded() -> None:
    net = a_pair()
    packets = net.nodes["a"].up.inspect().sending._packets
    many = tuple(f"DIRECT=OS:m\\private$\\{number:0100}" for number in range(STAMP_LIMIT_BYTES // 200))
    for number in range(2 * STAMP_LIMIT):
        draft = Draft(
            body=b"", extension=bytes(9_999), body_type=number, destinations=many if number % 2 else ()
        )
        net.nodes["a"].up.enqueue([(at("c", 17), draft)], net.now)
        assert len(packets._stamps) == min(STAMP_LIMIT, number // 2 + 1)
    net.nodes["a"].up.enqueue([(at("c", 17), Draft(body=b"", body_type=2**31))], net.now)
    assert len(packets._stamps) == 1


@pytest.mark.parametrize(
    ("what", "value"), [("priority", "3"), ("priority", 8), ("time_to_be_received_s", 1.5), ("body_type", -1)]
)
def test_a_number_that_is_none_is_named(what: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{what} is {value!r}: must be a whole number from 0 to"):
        Draft(body=b"", **{what: value}).check()  # type: ignore[arg-type]


def test_names_may_be_left_to_who_knows_what_they_mean() -> None:
    draft = Draft(body=b"x", admin_queue="orders at headquarters")
    draft.check(names=False)
    with pytest.raises(UsageError, match="orders at headquarters"):
        draft.check()


@pytest.mark.parametrize("transactional", [True, False])
def test_what_would_take_the_store_beyond_its_quota_is_refused_as_a_whole(transactional: bool) -> None:
    net = chain("a", "c", queues=[ORDERS, NOTES], settings=Settings(quota_bytes=10_000))
    net.blocked.add(frozenset("ac"))
    message = (
        at("c", 16 if transactional else 17),
        Draft(body=bytes(4_000), transactional=transactional, recoverable=True),
    )
    net.nodes["a"].up.enqueue([message], net.now)
    for _ in range(2):
        with pytest.raises(QuotaExceeded, match=r"more than quota_bytes = 10,000: receive or purge"):
            net.nodes["a"].up.enqueue([message] * 2, net.now)
        net.run()
        assert len(net.nodes["a"].store.messages) == 1


def test_what_would_take_a_queue_of_ours_beyond_its_quota_is_refused_as_a_whole() -> None:
    net = chain("a", "c", queues=[QueueDeclaration("notes", 17, quota_bytes=10_000)])
    message = at("c", 17), Draft(body=bytes(3_900))
    with pytest.raises(QuotaExceeded, match=r"queue notes is full: its quota is 10,000 bytes"):
        net.nodes["c"].up.enqueue([message] * 3, net.now)
    net.nodes["c"].up.enqueue([message] * 2, net.now)
    assert len(net.receive("c", "notes")) == 2


def test_too_many_messages_at_once_are_refused() -> None:
    net = a_pair()
    messages = [(at("c"), Draft(body=b"x", transactional=True))] * (TRANSACTION_LIMIT + 1)
    with pytest.raises(UsageError, match="10,001 messages at once; at most 10,000 are taken"):
        net.nodes["a"].up.enqueue(messages, net.now)
    assert net.nodes["a"].up.enqueue(messages[1:], net.now) == list(range(1, TRANSACTION_LIMIT + 1))


@pytest.mark.spec("[MS-MQMQ] 2.2.20.5")
@pytest.mark.parametrize("together", [True, False])
def test_messages_handed_in_at_once_are_one_transaction_or_one_each(together: bool) -> None:
    net = a_pair()
    transactional = (at("c"), Draft(body=b"x", transactional=True))
    plain = (at("c", 17), Draft(body=b"y"))
    net.nodes["a"].up.enqueue([plain, *[transactional] * 3, plain], net.now, together=together)
    net.run()
    found = [decode_packet(received.packet) for received in net.nodes["c"].up.peek("orders", 9)]
    headers = [m.transaction for m in found if isinstance(m, UserMessage) and m.transaction is not None]
    marks = [(header.first, header.last) for header in headers]
    assert marks == ([(True, False), (False, False), (False, True)] if together else [(True, True)] * 3)
    assert len({header.identifier for header in headers}) == (1 if together else 3)
    assert len(net.receive("c", "notes")) == 2


def test_a_sequence_without_numbers_takes_nothing_until_all_of_it_is_acknowledged() -> None:
    net = a_pair()
    net.send("a", at("c"), "first", transactional=True)
    sequence = net.nodes["a"].up.inspect().sequences._successions[at("c").name].newest
    base = sequence.cursors.base
    sequence.cursors.base -= LAST_NUMBER - TRANSACTION_LIMIT
    assert sequence.next_number > LAST_NUMBER - TRANSACTION_LIMIT
    with pytest.raises(QuotaExceeded, match="has used up its numbers: wait"):
        net.send("a", at("c"), "x", transactional=True)
    sequence.cursors.base = base
    net.pass_ms(1_000)
    net.send("a", at("c"), "next", transactional=True)
    net.run()
    assert net.receive("c", "orders") == [b"first", b"next"]


# Our own queues


@pytest.mark.spec("[MS-MQQB] 3.1.7.12")
@pytest.mark.parametrize(("identifier", "transactional"), [(16, True), (17, False)])
def test_a_message_for_a_queue_of_our_own_goes_straight_into_it(identifier: int, transactional: bool) -> None:
    net = a_pair()
    net.send("c", at("c", identifier), "here", transactional=transactional, recoverable=not transactional)
    net.run()
    assert net.traffic == []
    net.kill("c")
    net.start("c")
    net.run()
    name = "orders" if transactional else "notes"
    assert (the_message(net, name).transaction is not None) is transactional
    assert net.receive("c", name) == [b"here"]


@pytest.mark.parametrize(
    ("identifier", "transactional", "why"),
    [
        (16, False, "orders is transactional"),
        (17, True, "notes is not transactional"),
        (99, True, "no queue 99 here"),
    ],
)
def test_a_message_of_the_wrong_kind_for_a_queue_of_our_own_is_refused(
    identifier: int, transactional: bool, why: str
) -> None:
    net = a_pair()
    with pytest.raises(UsageError, match=why):
        net.send("c", at("c", identifier), "x", transactional=transactional)


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.6")
@pytest.mark.parametrize("name", ["system$;journal", "orders;journal", "q"])
def test_nobody_sends_to_a_queue_of_ours_that_has_no_number(name: str) -> None:
    net = a_pair()
    with pytest.raises(UsageError, match=r"no queue .* here"):
        net.send("c", Destination("x", guid_of("c"), f"OS:c\\{name}"), "x")


def test_messages_for_a_queue_of_our_own_keep_its_order_of_priorities_and_expire_in_it() -> None:
    net = a_pair()
    for priority in (1, 7):
        net.send("c", at("c", 17), f"p{priority}", priority=priority)
    net.send("c", at("c", 17), "short", priority=7, time_to_be_received_s=1)
    net.pass_ms(3_000)
    assert net.receive("c", "notes") == [b"p7", b"p1"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.10")
def test_who_asks_to_hear_of_arrivals_hears_of_those_in_its_own_queues() -> None:
    net = a_pair()
    admin = at("c", 17).name
    net.send("c", at("c"), "x", transactional=True, admin_queue=admin, acknowledgments=ACKNOWLEDGE_ARRIVAL)
    net.run()
    message = the_message(net, "notes")
    assert message.properties.message_class == MessageClass.ACK_REACH_QUEUE


# Names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", None),
        ("PUBLIC=" + GUID, guid_from_text(GUID)),
        ("CONNECTOR=" + GUID, guid_from_text(GUID)),
        (f"CONNECTOR={GUID};XACTONLY", guid_from_text(GUID)),
        (f"PRIVATE={GUID}\\1F", PrivateQueueFormatName(guid_from_text(GUID), 0x1F)),
        (r"DIRECT=TCP:10.0.0.1\q", r"TCP:10.0.0.1\q"),
    ],
)
def test_a_name_that_acknowledgments_or_answers_go_to(text: str, name: QueueName) -> None:
    assert queue_name(text) == name


@pytest.mark.parametrize("what", ["admin_queue", "trace_queue"])
def test_what_is_never_transactional_goes_to_no_connector_queue_that_takes_nothing_else(what: str) -> None:
    Draft(body=b"", **{what: f"CONNECTOR={GUID}"}).check()  # type: ignore[arg-type]
    Draft(body=b"", response_queue=f"CONNECTOR={GUID};XACTONLY").check()
    with pytest.raises(UsageError, match=f"^{what} is connector=.*; leave ;XACTONLY out$"):
        Draft(body=b"", **{what: f"connector={GUID};xactonly"}).check()  # type: ignore[arg-type]


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_direct_format_names_go_straight_and_their_acknowledgments_come_straight_back() -> None:
    net = a_pair()
    net.send("a", direct("c"), "one", transactional=True, final_ack=True)
    net.send("a", direct("c", "notes"), "two")
    net.pass_ms(1_000)
    message = the_message(net, "orders")
    assert message.user.queue_manager_address == bytes(16)
    assert net.receive("c", "orders") == [b"one"]
    assert net.receive("c", "notes") == [b"two"]
    net.pass_ms(5_000)
    assert net.nodes["a"].store.messages == {}
    order_queue = "TCP:a\\PRIVATE$\\order_queue$".encode("utf-16-le")
    assert sum(chunk.count(order_queue) for here, _, chunk in net.traffic if here == "c") == 2


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
def test_public_queues_are_named_by_their_guid() -> None:
    public = guid_of("public orders")
    net = chain("a", "b", "c", queues=[queue("orders", public=public)])
    destination = Destination("PUBLIC=whatever", guid_of("c"), public)
    net.send("a", destination, "one", transactional=True)
    net.pass_ms(1_000)
    net.kill("c")
    net.start("c")
    net.send("a", destination, "two", transactional=True)
    net.pass_ms(1_000)
    assert net.receive("c", "orders") == [b"one", b"two"]
    assert net.nodes["a"].up.status().outgoing[0].waiting == 0


def test_a_destination_without_manager_and_host_is_a_mistake_of_the_caller() -> None:
    net = a_pair()
    with pytest.raises(UsageError, match="neither a queue manager nor a host"):
        net.send("a", Destination("nowhere", None, 16), "x")
    with pytest.raises(UsageError, match="neither a queue manager nor a host"):
        net.send("a", Destination("nowhere", None, 16), "x", transactional=True)
