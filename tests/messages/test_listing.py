"""One message to several queues."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.formatname import parse_format_name
from mqproto.formatname.wire import destinations_from_wire
from mqproto.manager.deadletters import draft_of
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import BODY_LIMIT_BYTES, Draft, copies
from mqproto.messages.listing import DESTINATION_LIMIT, list_bytes, list_of_all
from mqproto.queues.localqueue import SystemQueue
from mqproto.simulator.node.received import ReceivedMessage
from mqproto.transfer.cursors import NUMBER_BLOCK
from mqproto.wire import (
    MultiQueueFormatHeader,
    PacketBuffer,
    UserMessage,
    decode_message,
    decode_packet,
    encode_packet,
    without_session_header,
)
from tests.examples import a_user_message
from tests.pair import Net, at, chain, queue

ORDERS, NOTES, MORE = queue("orders"), queue("notes", 17, transactional=False), queue("more", 18)
BOTH = (at("c"), at("c", 18))
NAMES = tuple(destination.name for destination in BOTH)
LISTED = sorted(str(parse_format_name(name)) for name in NAMES)


def a_chain() -> Net:
    return chain("a", "b", "c", queues=[ORDERS, NOTES, MORE])


def send(net: Net, destinations: tuple[Destination, ...], *drafts: Draft) -> list[int]:
    return net.nodes["a"].up.enqueue(copies(destinations, drafts), net.now)


def first_in(net: Net, name: str) -> UserMessage:
    """Return the first message that a peek sees in a queue of `c`."""
    [received] = net.nodes["c"].up.peek(name, 1)
    message = decode_packet(received.packet)
    assert isinstance(message, UserMessage)
    return message


def listed(message: UserMessage) -> list[str]:
    assert message.multi_queue_format is not None
    return [str(name) for name in destinations_from_wire(message.multi_queue_format)]


@pytest.mark.spec("[MS-MQMQ] 2.2.20.1")
@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.27")
def test_each_queue_gets_a_copy_with_its_own_number_and_sequence_and_the_list_of_all() -> None:
    net = a_chain()
    drafts = [Draft(body=body, label="label", transactional=True) for body in (b"one", b"two")]
    ordinals = send(net, BOTH, *drafts)
    net.run()
    found = [first_in(net, name) for name in ("orders", "more")]
    assert [message.user.message_id for message in found] == ordinals[:2]
    assert len(set(ordinals)) == 4
    sequences = {message.transaction.tx_sequence_id for message in found if message.transaction}
    assert len(sequences) == 2
    numbers = [message.transaction.tx_sequence_number for message in found if message.transaction]
    assert numbers == [1, NUMBER_BLOCK + 1], "nobody knows yet how c reads, so no number is given twice"
    assert [listed(message) for message in found] == [LISTED] * 2
    assert [net.receive("c", name) for name in ("orders", "more")] == [[b"one", b"two"]] * 2


@pytest.mark.spec("[MS-MQMQ] 2.2.20.1")
def test_the_list_crosses_queue_managers_untouched_and_stays_in_the_packet() -> None:
    net = a_chain()
    send(net, BOTH, Draft(body=b"x", transactional=True))
    net.run()
    sent: dict[tuple[str, str], list[bytes]] = {}
    for here, there, chunk in net.traffic:
        packets = [packet for packet in PacketBuffer().feed(chunk) if listing(packet)]
        sent.setdefault((here, there), []).extend(packets)
    first, second = sent["a", "b"], sent["b", "c"]
    assert len(first) == len(second) == 2
    for before, after in zip(first, second, strict=True):
        assert listing(before) == listing(after) != b""
    kept = encode_packet(first_in(net, "orders"))
    assert listing(kept) == listing(second[0])


def listing(packet: bytes) -> bytes:
    """Return the MultiQueueFormatHeader of a packet, byte for byte; empty if the packet has none."""
    message = decode_packet(packet)
    if not isinstance(message, UserMessage) or message.multi_queue_format is None:
        return b""
    bare = without_session_header(packet)
    message.multi_queue_format, message.user.has_multi_queue_format, message.session = None, False, None
    message.base.session_header = False
    return bare[len(encode_packet(message)) :]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.3.8")
def test_one_queue_is_no_list_however_often_and_in_whatever_case_it_is_named() -> None:
    assert list_of_all(()) is None
    assert list_of_all(NAMES[:1]) is None
    assert list_of_all((NAMES[0], NAMES[0].lower())) is None
    net = a_chain()
    [ordinal] = send(net, BOTH[:1], Draft(body=b"x", transactional=True))
    net.run()
    message = first_in(net, "orders")
    assert (message.user.message_id, message.multi_queue_format) == (ordinal, None)


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.3.8")
@given(st.lists(st.sampled_from([r"DIRECT=OS:b\q", r"direct=os:B\Q", r"DIRECT=OS:a\q", *NAMES]), min_size=1))
def test_a_list_is_sorted_and_has_each_queue_once(names: list[str]) -> None:
    header = list_of_all(tuple(names))
    elements = [] if header is None else [str(name).casefold() for name in destinations_from_wire(header)]
    assert elements == sorted(set(elements))
    assert len(elements) == (0 if len({name.casefold() for name in names}) == 1 else len(set(elements)))


@pytest.mark.parametrize(
    "others",
    [(at("a", 17),), (at("a", 99),), (Destination("nowhere", None, 1),)],
    ids=["of the wrong kind", "unknown", "nowhere"],
)
def test_where_one_queue_takes_no_copy_no_queue_gets_one(others: tuple[Destination, ...]) -> None:
    net = Net()
    net.add("a", NOTES)
    net.add("c", ORDERS)
    net.route("a", "c", "c")
    net.start()
    net.run()
    with pytest.raises(UsageError):
        send(net, (at("c"), *others), Draft(body=b"x", transactional=True))
    net.run()
    assert net.traffic == []
    assert net.nodes["a"].store.messages == {}


def test_copies_for_queues_near_and_far_are_accepted_together() -> None:
    net = Net()
    net.add("a", MORE)
    net.add("c", ORDERS)
    net.route("a", "c", "c")
    net.start()
    send(net, (at("c"), at("a", 18)), Draft(body=b"x", transactional=True))
    net.turn("a")
    assert len(net.nodes["a"].store.messages) == 2, "one commit"
    net.pass_ms(1_000)
    assert [net.receive(name, where) for name, where in (("c", "orders"), ("a", "more"))] == [[b"x"], [b"x"]]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (tuple(rf"DIRECT=OS:host\q{n}" for n in range(DESTINATION_LIMIT + 1)), "101 destinations"),
        ((r"DIRECT=OS:a\q,DIRECT=OS:b\q", NAMES[0]), "several elements"),
        ((r"DIRECT=OS:a\q;JOURNAL", NAMES[0]), "cannot be listed"),
        (("nonsense", NAMES[0]), "nonsense"),
    ],
)
def test_a_list_that_no_packet_carries_is_refused(names: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Draft(body=b"", destinations=names).check()


def test_the_longest_list_fits_beside_the_largest_body() -> None:
    names = tuple(rf"DIRECT=OS:{'h' * 200}\private$\{n:0>60}" for n in range(DESTINATION_LIMIT))
    header = list_of_all(names)
    assert header is not None
    room = BODY_LIMIT_BYTES - list_bytes(names)
    net = a_chain()
    drafts = [Draft(body=bytes(room), transactional=True, destinations=names, label="x" * 249)]
    net.nodes["a"].up.enqueue([(at("c"), draft) for draft in drafts], net.now)
    net.run()
    assert len(first_in(net, "orders").properties.message_body) == room
    with pytest.raises(UsageError, match="list of destinations"):
        Draft(body=bytes(room + 1), destinations=names).check()


@pytest.mark.spec("[MS-MQMQ] 2.2.20.1")
def test_a_copy_that_is_sent_once_more_still_lists_all() -> None:
    net = a_chain()
    net.blocked.add(frozenset("ab"))
    draft = Draft(body=b"x", transactional=True, time_to_reach_queue_s=60, journal_negative=True)
    send(net, BOTH, draft)
    net.pass_ms(70_000)
    net.blocked.clear()
    assert net.nodes["a"].up.send_back(SystemQueue.DEADXACT, None, net.now) == 2
    net.pass_ms(10_000)
    assert listed(first_in(net, "orders")) == listed(first_in(net, "more")) == LISTED


@pytest.mark.spec("[MS-MQMQ] 2.2.20.1")
@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.4")
def test_one_name_that_cannot_be_read_hides_no_other_of_its_list() -> None:
    """Of three names in a packet, the second is invalid; an earlier version then returned an empty list."""
    names = b"".join(
        b"\3\0" + f"{text}\0".encode("utf-16-le") for text in (r"OS:a\q", "tomorrow", r"TCP:10.0.0.1\q")
    )
    message = a_user_message()
    message.user.has_multi_queue_format = True
    message.multi_queue_format = MultiQueueFormatHeader()
    packet = encode_packet(message)
    empty = bytes.fromhex("0c000000 6400 0000 00000000")
    assert packet.count(empty) == 1
    size = 12 + len(names) + (-len(names) & 3)
    whole = packet.replace(empty, struct.pack("<IHHI", size, 0x64, 0, 3) + names + bytes(-len(names) & 3))
    whole = whole[:8] + struct.pack("<I", len(whole)) + whole[12:]
    others = [r"DIRECT=OS:a\q", r"DIRECT=TCP:10.0.0.1\q"]
    assert listed(decode_message(whole)) == others
    assert ReceivedMessage(whole).destinations == others
    assert draft_of(decode_message(whole)).destinations == tuple(others)
