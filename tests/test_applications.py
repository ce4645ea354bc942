"""What an application hands in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.applications import HEADROOM_BYTES, LABEL_LIMIT, PACKET_LIMIT_BYTES, Draft
from mqproto.destinations import Destination
from mqproto.errors import UsageError
from mqproto.wire import INFINITE, UserMessage, decode_packet
from tests.pair import Net, at, chain, direct, guid_of, queue

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
FULL_BYTES = PACKET_LIMIT_BYTES - HEADROOM_BYTES


def a_pair() -> Net:
    return chain("a", "c", queues=[ORDERS, NOTES])


def the_message(net: Net, name: str) -> UserMessage:
    """What a peek sees first in a queue of `c`."""
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
        ({"label": "x" * (LABEL_LIMIT + 1)}, "has 250 characters; at most 249"),
        ({"label": "\N{PILE OF POO}" * 125}, "at most 249"),
        ({"label": "a\0b"}, "NUL"),
        ({"priority": 8}, "0 to 7"),
        ({"priority": -1}, "0 to 7"),
        ({"correlation_id": b""}, "must have 20"),
        ({"application_tag": 2**32}, "application_tag"),
        ({"body_type": -1}, "body_type"),
        ({"time_to_reach_queue_s": -1}, "time_to_reach_queue_s"),
        ({"time_to_be_received_s": INFINITE + 1}, "time_to_be_received_s"),
    ],
)
@pytest.mark.parametrize("transactional", [True, False])
def test_a_draft_that_no_packet_can_carry_is_refused_and_leaves_nothing_behind(
    change: dict[str, Any], why: str, transactional: bool
) -> None:
    net = a_pair()
    values: dict[str, Any] = {"body": b"x", "transactional": transactional} | change
    with pytest.raises(UsageError, match=why):
        net.nodes["a"].up.enqueue([(at("c", 16 if transactional else 17), Draft(**values))], net.now)
    net.send("a", at("c"), "the next", transactional=True)
    net.run()
    assert net.receive("c", "orders") == [b"the next"], "no gap in the sequence"


@given(length=st.integers(0, LABEL_LIMIT), extension=st.binary(max_size=40), tag=st.integers(0, 2**32 - 1))
def test_whatever_passes_the_check_has_a_packet(length: int, extension: bytes, tag: int) -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x", label="l" * length, extension=extension, application_tag=tag)
    net.run()
    assert net.receive("c", "notes") == [b"x"]


def test_the_largest_message_with_the_longest_label_fits() -> None:
    net = a_pair()
    body = bytes(FULL_BYTES)
    net.send("a", at("c"), body, label="x" * LABEL_LIMIT, transactional=True)
    net.run()
    assert net.receive("c", "orders") == [body]


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


# Names


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
