"""Strangers: nodes that nobody has declared, and nodes that present a GUID from an address for which it is not
declared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from mqproto.base.configuration import Settings
from mqproto.manager.arriving.arrivals import LOOKED_UP_BYTES
from mqproto.manager.arriving.refusing import TOLD_OF_HOST
from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL, REPORT_NO_ARRIVAL
from mqproto.neighbours import door
from mqproto.routing import Peer
from mqproto.session import Remote
from mqproto.simulator.fuzz.tactics.packets import with_soap
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.effects import QueueKind
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    Guid,
    MessageClass,
    OrderAck,
    OrderAckBody,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
    establish_connection,
    guid_text,
    user_message,
    with_session_header,
)
from mqproto.wire.messages import ORDER_QUEUE
from tests.observing import DEADLETTER, DEADXACT, arrive, brought, final_acks, kept, messages
from tests.pair import Net, Node, at, chain, direct, guid_of, queue

OPEN = replace(queue("open", 16, transactional=False), strangers=True)
OPEN_ORDERS = replace(queue("open orders", 17), strangers=True)
CLOSED, ORDERS = queue("closed", 18, transactional=False), queue("orders", 19)
QUEUES = (OPEN, OPEN_ORDERS, CLOSED, ORDERS)
A, C, X = guid_of("a"), guid_of("c"), guid_of("x")


def with_a_stranger(
    *names: str, claims: str = "", settings: Settings | None = None, called: tuple[str, ...] = ()
) -> Net:
    """Return nodes in a row, the last of which hosts the queues, and a node `x` that none of them knows.

    claims: the node whose GUID `x` presents; empty if `x` presents its own.
    """
    net = chain(*names, queues=QUEUES, settings=settings)
    for name in names:
        node = net.nodes[name]
        node.routes = replace(node.routes, peers=net.peers_of(name), called=called)
    x = net.add("x", queue("replies", 16, transactional=False))
    x.cloned_from = claims
    for name in names:
        net.route("x", name, name)
    net.start()
    return net


def notes(net: Net, at: str, name: str) -> list[dict[str, str | int]]:
    """Return the facts of all notes that a node has made under a name."""
    return [note.facts for note in net.nodes[at].notes if note.name == name]


def reasons(net: Net, at: str) -> list[str]:
    """Return why sessions were closed at a node."""
    return [str(facts["reason"]) for facts in notes(net, at, "session-closed")]


def hand_in(net: Net, at: str, to: str, *packets: UserMessage) -> None:
    """Send these messages from one node to another without changes, as a node that breaks the rules would."""
    core = net.nodes[at].up
    outbound = core.inspect().outbound
    for packet in packets:
        queue = outbound.towards_manager(guid_of(to), 3)
        data, message_id = encode_packet(packet), packet.user.message_id
        outbound.put(queue, queue.rows([data], [message_id], recoverable=False))
    net.run()


def forged(
    identifier: int = 16,
    *,
    source: str = "x",
    number: int = 1,
    previous: int = 0,
    time_stamp: int = 0x7FFFFFFF,
    called: str = "",
    body: bytes = b"forged",
    recoverable: bool = False,
) -> UserMessage:
    """Return a message for a queue of `c` that claims this source; it is transactional if the queue is for orders."""
    header = None
    if identifier in (OPEN_ORDERS.identifier, ORDERS.identifier, 77):
        header = TransactionHeader(
            tx_sequence_id=TxSequenceId(ordinal=0x7FFFFFFF, time_stamp=time_stamp),
            tx_sequence_number=number,
            previous_tx_sequence_number=previous,
        )
    return user_message(
        source=guid_of(source),
        destination_manager=C,
        destination=called or identifier,
        message_id=number,
        sent_time_s=1_700_000_000,
        body=body,
        recoverable=recoverable,
        transaction=header,
    )


@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
def test_of_a_message_that_a_neighbour_has_begun_nothing_is_dropped_before_it_is_whole() -> None:
    """One read ends the handshake and begins a large message.

    By the time that message is checked, the stranger has proven its GUID.
    """
    refuses = with_a_stranger("a", "c").nodes["c"].up.inspect().arrivals.refuses
    for number in (CLOSED.identifier, 99):
        begun = encode_packet(forged(number, source="a"))
        assert refuses(begun, Remote("a", A, is_proven=False))
        assert not refuses(begun, Remote("a", A, is_proven=True))


def test_a_stranger_may_send_to_queues_that_are_open_to_strangers() -> None:
    net = with_a_stranger("a", "c")
    net.send("x", at("c", 16), "one", recoverable=True)
    net.send("x", at("c", 17), "two", transactional=True)
    net.pass_ms(2_000)
    assert net.receive("c", "open") == [b"one"]
    assert net.receive("c", "open orders") == [b"two"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_other_queues_refuse_him_and_nothing_of_it_is_kept() -> None:
    net = with_a_stranger("a", "c")
    net.send("x", at("c", 18), "one", recoverable=True, journal_negative=True)
    net.send("x", at("c", 19), "two", transactional=True)
    net.send("x", at("c", 77), "three", recoverable=True, journal_negative=True)
    net.pass_ms(2_000)
    assert {facts["reason"] for facts in notes(net, "c", "message-refused")} == {
        "NACK_ACCESS_DENIED",
        "NACK_BAD_DST_Q",
    }
    assert net.receive("c", "closed") == net.receive("c", "orders") == []
    assert kept(net, "c", DEADLETTER) == []
    c = net.nodes["c"]
    assert c.store.messages == {}
    assert c.store.incoming == {}
    assert len(c.up.inspect().histories.known) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_a_full_store_turns_away_what_it_would_refuse_so_that_what_it_would_take_is_not_given_up() -> None:
    net = with_a_stranger("a", "c", settings=Settings(try_connect_interval_ms=200, quota_bytes=6_000))
    for size in (5_000, 4_000):
        net.send("x", at("c", 16), bytes(size), recoverable=True, journal_negative=True)
    net.pass_ms(2_000)
    for identifier in (18, 77, 18, 77):
        net.send("x", at("c", identifier), bytes(4_000), recoverable=True)
    net.pass_ms(60_000)
    assert kept(net, "x", DEADLETTER) == []
    assert notes(net, "c", "message-refused") == []
    assert [len(body) for body in net.receive("c", "open")] == [5_000]
    net.pass_ms(60_000)
    assert [len(body) for body in net.receive("c", "open")] == [4_000]
    net.pass_ms(60_000)
    assert len(notes(net, "c", "message-refused")) == 4


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("made", MessageClass.NACK_BAD_DST_Q),
        ("open", MessageClass.NACK_NOT_TRANSACTIONAL_Q),
        ("orders", None),
    ],
)
def test_a_stranger_hears_why_his_transactional_message_is_refused_but_not_that_a_queue_is_closed(
    name: str, told: MessageClass | None
) -> None:
    net = with_a_stranger("a", "c")
    net.send("x", direct("c", name), "one", transactional=True, journal_negative=True)
    net.pass_ms(2_000)
    assert [message.properties.message_class for message in kept(net, "x", DEADXACT)] == [told] * bool(told)
    assert net.nodes["x"].store.waiting(QueueKind.SEQUENCE) == (not told)
    assert net.nodes["c"].store.incoming == {}
    if name == "made":
        net.nodes["c"].up.make(replace(queue(name), strangers=True))
        net.send("x", direct("c", name), "two", transactional=True)
        net.pass_ms(2_000)
        assert net.receive("c", "made") == [b"two"]


@pytest.mark.parametrize("others", ["", "uvw"], ids=["", "others have its place"])
def test_a_copy_of_what_a_stranger_sent_before_its_queue_was_deleted_is_not_refused(others: str) -> None:
    net = with_a_stranger("a", "c", settings=Settings(strangers_sequences=2))
    hand_in(net, "x", "c", forged(17))
    for name in others:
        brings(net, forged(17, source=name), host=name)
    net.receive("c", "open orders")
    net.nodes["c"].up.delete("open orders")
    hand_in(net, "x", "c", forged(17))
    net.pass_ms(1_000)
    assert (final_acks(net, "c", "x"), notes(net, "c", "message-refused")) == ([], [])
    hand_in(net, "x", "c", forged(17, number=2, previous=1))
    net.pass_ms(1_000)
    assert final_acks(net, "c", "x") == [MessageClass.NACK_BAD_DST_Q]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_of_a_host_so_many_strangers_hear_in_a_second_and_the_others_when_they_send_again() -> None:
    net, hosts = with_a_stranger("a", "c"), ("2::1", "2::2")  # In one /64, which counts as one host.
    for host in hosts:
        net.add(host)
        net.route(host, "c", "c")
    net.start(*hosts)
    for number in range(1, TOLD_OF_HOST + 4):
        hand_in(net, hosts[number % 2], "c", forged(77, source=hosts[number % 2], number=number))
    assert len(notes(net, "c", "message-refused")) == TOLD_OF_HOST + 3
    assert sum(len(final_acks(net, "c", host)) for host in hosts) == TOLD_OF_HOST
    net.pass_ms(1_000)
    hand_in(net, hosts[1], "c", forged(77, source=hosts[1], number=TOLD_OF_HOST + 1))
    assert sum(len(final_acks(net, "c", host)) for host in hosts) == TOLD_OF_HOST + 1


def test_what_waits_for_a_queue_manager_is_not_for_whoever_presents_its_guid_elsewhere() -> None:
    net = with_a_stranger("a", "c", claims="a")
    net.kill("a")
    net.send("c", at("a", 16), "secret", transactional=True)
    net.send("x", at("c", 16), "hello")
    net.pass_ms(30_000)
    assert messages(net, "c", "x") == []
    assert [facts["peer"] for facts in notes(net, "c", "guid-claimed")] == ["x"]
    assert net.receive("c", "open") == [b"hello"]
    net.nodes["a"].queues = (queue("inbox", 16),)
    net.start("a")
    net.pass_ms(30_000)
    assert net.receive("a", "inbox") == [b"secret"]


@pytest.mark.parametrize(
    ("packet", "arrives"),
    [
        (forged(16, source="a"), True),
        (forged(17, source="a"), False),
        (forged(18, source="a"), False),
        (forged(77, source="a"), False),
    ],
)
def test_in_the_name_of_a_known_queue_manager_he_may_say_what_has_no_consequence(
    packet: UserMessage, arrives: bool
) -> None:
    net = with_a_stranger("a", "c", claims="a")
    hand_in(net, "x", "c", packet)
    assert net.receive("c", "open") == [b"forged"] * arrives
    assert any("declared elsewhere" in reason for reason in reasons(net, "c")) != arrives
    net.send("a", at("c", 17), "true", transactional=True)
    for number in range(1, 4):
        net.send("a", at("c", 18), f"true {number}", recoverable=True)
    net.pass_ms(5_000)
    assert net.receive("c", "open orders") == [b"true"]
    assert net.receive("c", "closed") == [b"true 1", b"true 2", b"true 3"]


@pytest.mark.parametrize("source", ["a", "c", "somebody"])
def test_a_message_in_the_name_of_another_ends_his_session_and_changes_nothing(source: str) -> None:
    net = with_a_stranger("a", "c")
    hand_in(net, "x", "c", forged(17, source=source), forged(16, body=b"behind it"))
    assert any("in the name of another" in reason for reason in reasons(net, "c"))
    assert net.receive("c", "open") == []
    net.send("a", at("c", 17), "true", transactional=True)
    net.pass_ms(5_000)
    assert net.receive("c", "open orders") == [b"true"]


def test_a_stranger_is_not_forwarded() -> None:
    net = with_a_stranger("a", "b", "c")
    net.route("x", "c", "b")
    net.start("x")
    net.send("x", at("c", 16), "one", recoverable=True)
    net.pass_ms(20_000)
    assert any("not forwarded" in reason for reason in reasons(net, "b"))
    assert net.nodes["b"].store.messages == {}
    assert net.receive("c", "open") == []


def an_order_ack(net: Net, sender: str) -> UserMessage:
    """Return an OrderAck, in the sender's name, for everything that `a` has sent to `c`."""
    (sequence,) = (
        queue for queue in net.nodes["a"].up.inspect().outbound if isinstance(queue, OutgoingSequence)
    )
    return OrderAck(
        source=guid_of(sender),
        destination_manager=A,
        destination=ORDER_QUEUE,
        message_id=99,
        sent_time_s=1_700_000_000,
        body=OrderAckBody(sequence.identifier, 1, 0),
    ).message()


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.parametrize("claims", ["", "c"])
def test_a_stranger_confirms_nothing(claims: str) -> None:
    net = with_a_stranger("a", "c", claims=claims)
    net.blocked.add(frozenset(("a", "c")))
    net.send("a", at("c", 19), "one", transactional=True)
    net.pass_ms(20_000)
    hand_in(net, "x", "a", an_order_ack(net, "c"))
    assert [facts["kind"] for facts in notes(net, "a", "stray-acknowledgment")] == ["OrderAck"]
    net.blocked.clear()
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == [b"one"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.parametrize("is_declared", [True, False])
def test_an_order_ack_counts_by_any_declared_router_of_its_destination(is_declared: bool) -> None:
    net = with_a_stranger("a", "b", "c")
    a = net.nodes["a"]
    brings = frozenset({C}) if is_declared else frozenset()
    a.routes = replace(a.routes, peers={**a.routes.peers, X: Peer(("x",), brings=brings)})
    net.blocked.add(frozenset(("b", "c")))
    net.start("a")
    net.send("a", at("c", 19), "one", transactional=True)
    net.pass_ms(10_000)
    hand_in(net, "x", "a", an_order_ack(net, "c"))
    assert (a.up.status().outgoing[0].waiting == 0) == is_declared
    assert any("not a declared router" in reason for reason in reasons(net, "a")) != is_declared


@pytest.mark.parametrize("source", ["b", "c"])
def test_of_a_sequence_with_a_direct_name_only_who_is_declared_at_its_host_confirms(source: str) -> None:
    net = with_a_stranger("a", "b", "c")
    net.blocked.add(frozenset(("b", "c")))
    net.send("a", direct("c", "open orders"), "one", transactional=True)
    net.pass_ms(10_000)
    hand_in(net, "b", "a", an_order_ack(net, source))
    assert (net.nodes["a"].up.status().outgoing[0].waiting == 0) == (source == "c")


@pytest.mark.parametrize("source", ["x", "c"])
def test_a_neighbour_brings_only_what_it_is_a_declared_router_of(source: str) -> None:
    net = with_a_stranger("a", "c")
    hand_in(net, "a", "c", forged(18, source="a"), forged(18, source=source, number=2))
    assert net.receive("c", "closed") == [b"forged"]
    assert any("not a declared router" in reason for reason in reasons(net, "c"))


def test_what_strangers_send_pushes_nothing_out_that_is_remembered_of_others() -> None:
    settings = Settings(window_size=4, remove_duplicate_size=64, strangers_remembered=16)
    net = with_a_stranger("a", "c", settings=settings)
    net.send("a", at("c", 18), "one", recoverable=True)
    net.pass_ms(1_000)
    for number in range(200):
        net.send("x", at("c", 16), f"{number}")
    net.pass_ms(1_000)
    histories = net.nodes["c"].up.inspect().histories
    assert (len(histories.known), len(histories.strangers)) == (1, 16)
    net.kill("c")
    net.start("c")
    histories = net.nodes["c"].up.inspect().histories
    assert len(histories.known) == 1


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_after_a_restart_a_true_message_is_no_duplicate_of_one_that_a_stranger_sent_in_its_senders_name() -> (
    None
):
    net = with_a_stranger("a", "c", claims="a")
    identifiers = range(1, 4)
    hand_in(
        net, "x", "c", *(forged(16, source="a", number=number, recoverable=True) for number in identifiers)
    )
    assert net.receive("c", "open") == [b"forged"] * 3
    net.kill("c")
    net.start("c")
    for number in identifiers:
        net.send("a", at("c", 18), f"true {number}", recoverable=True)
    net.pass_ms(5_000)
    assert net.receive("c", "closed") == [b"true 1", b"true 2", b"true 3"]


def test_a_queue_takes_strangers_messages_up_to_a_bound_and_others_beyond_it() -> None:
    net = with_a_stranger("a", "c", settings=Settings(strangers_queue_bytes=2_000))
    for number in range(40):
        net.send("x", at("c", 16), f"{number:0100}", recoverable=number % 2 == 0)
    net.pass_ms(1_000)
    queue_bytes = net.nodes["c"].up.inspect().queues.named("open").size_bytes
    assert 1_700 < queue_bytes <= 2_000
    net.send("a", at("c", 16), "true", recoverable=True)
    net.pass_ms(1_000)
    assert net.receive("c", "open")[-1] == b"true"


def brings(net: Net, packet: UserMessage, host: str = "10.0.0.9") -> None:
    """Make a stranger at this host bring a message to `c`, in the name of the message's source."""
    remote = Remote(host, packet.user.source_queue_manager, is_proven=False)
    brought(net, "c", encode_packet(packet), remote)
    net.run()


def with_two_places() -> Net:
    return with_a_stranger("a", "c", settings=Settings(strangers_sequences=2, maximum_sequences=2))


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("again", [1, 3])
def test_exactly_once_holds_for_a_stranger_whose_place_others_have_taken_meanwhile(
    restarts: bool, again: int
) -> None:
    """The stranger is away for over an hour; then it repeats messages that had arrived, or continues after them."""
    net = with_two_places()
    for number in (1, 2):
        brings(net, forged(17, number=number, previous=number - 1))
    for name in "uvwyz":
        brings(net, forged(17, source=name), host=name)
        net.pass_ms(1_000)
    assert net.receive("c", "open orders") == [b"forged"] * 7
    assert [sequence.source for sequence in net.nodes["c"].up.inspect().incoming] == [
        guid_of("y"),
        guid_of("z"),
    ]
    net.pass_ms(61 * 60_000)
    if restarts:
        net.kill("c")
        net.start("c")
    for number in range(again, 5):
        brings(net, forged(17, number=number, previous=number - 1, body=b"%d" % number))
    assert net.receive("c", "open orders") == [b"3", b"4"]
    places = {sequence.source: sequence.place for sequence in net.nodes["c"].up.inspect().incoming}
    assert places[X] == (TxSequenceId(ordinal=0x7FFFFFFF, time_stamp=0x7FFFFFFF), 4)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_exactly_once_holds_for_a_stranger_who_is_declared_by_the_time_he_comes_again() -> None:
    net = with_two_places()
    for number in (1, 2):
        brings(net, forged(17, number=number, previous=number - 1))
    for name in "uvw":
        brings(net, forged(17, source=name), host=name)
    net.receive("c", "open orders")
    net.kill("c")
    c = net.nodes["c"]
    c.routes = replace(c.routes, peers={**c.routes.peers, X: Peer(("x",))})
    net.start("c")
    net.run()
    for number in (1, 2, 3):
        arrive(net, "c", forged(17, number=number, previous=number - 1, body=b"%d" % number), peer="x")
    assert net.receive("c", "open orders") == [b"3"]


def test_who_has_the_most_places_gives_one_up_and_nobody_is_turned_away() -> None:
    net = with_a_stranger("a", "c", settings=Settings(strangers_sequences=6, maximum_sequences=2))
    net.send("a", at("c", 19), "true 1", transactional=True)
    net.pass_ms(1_000)
    called = [rf"DIRECT=OS:{number}\private$\open orders" for number in range(203)]
    for name, source in zip(called, "yyyv" + 199 * "w", strict=True):
        # v and w are in one /64, which counts as one host.
        host = "10.0.0.8" if source == "y" else f"2001:db8::{source == 'w':d}"
        brings(net, forged(17, source=source, called=name), host=host)
    c = net.nodes["c"]
    strangers = [str(one.name) for one in c.up.inspect().incoming if one.source != A]
    assert sorted(strangers) == sorted(called[:4] + called[-2:]), "its oldest; those of others stay"
    assert len(net.receive("c", "open orders")) == 203
    assert not [note for note in c.notes if note.name == "session-closed"]
    net.kill("c")
    net.start("c")
    net.send("a", at("c", 19), "true 2", transactional=True)
    net.pass_ms(10_000)
    assert net.receive("c", "orders") == [b"true 1", b"true 2"]


@pytest.mark.parametrize(
    ("spelling", "previous", "time_stamp", "is_had"),
    [
        (r"DIRECT=OS:C\private$\Open Orders", 0, 0x7FFFFFFF, True),
        (r"DIRECT=OS:C\private$\Open Orders", 0, 0x7FFFFFFE, False),
        (r"DIRECT=OS:c\private$\open orders", 0, 0x7FFFFFFE, True),
        (r"DIRECT=TCP:10.0.0.1\private$\open orders", 0, 0x7FFFFFFF, False),
        (r"DIRECT=TCP:10.0.0.1\private$\open orders", 1, 0x7FFFFFFF, True),
    ],
    ids=["case", "another stream by case", "older stream", "another name", "another name in the midst"],
)
def test_what_is_on_disk_of_a_sequence_is_found_by_the_rules_for_those_in_memory(
    spelling: str, previous: int, time_stamp: int, is_had: bool
) -> None:
    for gives_up in (False, True):
        net = with_two_places()
        for number in (1, 2):
            brings(
                net,
                forged(17, number=number, previous=number - 1, called=r"DIRECT=OS:c\private$\open orders"),
            )
        for name in "uvw" * gives_up:
            brings(net, forged(17, source=name), host=name)
        net.receive("c", "open orders")
        brings(net, forged(17, number=2, previous=previous, called=spelling, time_stamp=time_stamp))
        assert net.receive("c", "open orders") == [b"forged"] * (not is_had), gives_up


def test_messages_that_wait_for_the_store_take_so_much_memory_and_are_taken_in_order() -> None:
    net = with_two_places()
    arrivals = net.nodes["c"].up.inspect().arrivals
    remote = Remote("10.0.0.9", X, is_proven=False)
    body = bytes(LOOKED_UP_BYTES // 3)
    for number in range(1, 5):
        packet = forged(17, number=number, previous=number - 1, body=body)
        brought(net, "c", encode_packet(packet), remote)
    assert arrivals.looked_up_bytes < LOOKED_UP_BYTES
    net.run()
    assert arrivals.looked_up_bytes == 0
    assert [len(each) for each in net.receive("c", "open orders")] == [len(body)] * 2


@pytest.mark.parametrize("called", [(), ("made-up",)])
def test_only_hosts_on_the_list_are_called_because_a_stranger_asks(
    called: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = with_a_stranger("a", "c", called=called)
    hosts, connect = set[str](), net.connect

    def connecting(node: Node, session: int, host: str) -> None:
        if node.name == "c":
            hosts.add(host)
        connect(node, session, host)

    monkeypatch.setattr(net, "connect", connecting)
    for host in ("x", "made-up", "a"):
        net.send(
            "x",
            at("c", 16),
            "one",
            admin_queue=rf"DIRECT=OS:{host}\private$\replies",
            acknowledgments=ACKNOWLEDGE_ARRIVAL,
        )
    net.send("x", direct("c", "open orders"), "two", transactional=True)
    net.pass_ms(3_000)
    assert hosts == set(called)
    asked = {(facts["source"], facts["queue"]) for facts in notes(net, "c", "stranger-not-answered")}
    unanswered = {"made-up", "a"} - set(called)
    assert asked == {(guid_text(X), rf"DIRECT=OS:{host}\PRIVATE$\replies") for host in unanswered}
    replies = [message.properties.message_class for message in kept(net, "x", "replies")]
    assert replies == [MessageClass.ACK_REACH_QUEUE], "what is for himself leaves over his own session"
    assert net.nodes["x"].store.messages == {}, "the OrderAck goes the same way"


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
def test_strangers_take_no_place_of_those_who_are_known() -> None:
    net = with_a_stranger("a", "c")
    core = net.nodes["c"].up
    limit = door.SESSIONS_OF_STRANGER_HOST
    for number in range(limit + 1):
        key = core.accepted("10.0.0.9", net.now)
        client = guid_of(f"stranger {number}")
        core.receive(
            key, encode_packet(establish_connection(client=client, server=C, time_stamp_ms=0)), net.now
        )
        core.receive(
            key,
            encode_packet(
                ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
            ),
            net.now,
        )
    net.run()
    assert [f"{limit} sessions of strangers are open" in reason for reason in reasons(net, "c")] == [True]
    net.send("a", at("c", 18), "true")
    net.run()
    assert net.receive("c", "closed") == [b"true"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.10")
def test_connections_that_say_nothing_end_when_more_come_and_keep_nobody_out() -> None:
    net = with_a_stranger("a", "c")
    core = net.nodes["c"].up
    hosts = Counter[str]()
    for number in range(3 * door.HALF_OPEN):
        core.accepted("10.0.0.10" if number < 100 else f"10.0.{number % 20}.9", net.now)
        net.run()
        hosts = Counter(session.remote_address for session in core.inspect().transports.sessions.values())
        assert hosts["10.0.0.10"] <= door.HALF_OPEN_OF_HOST
    assert hosts.total() == door.HALF_OPEN
    assert max(hosts.values()) - min(hosts.values()) <= 2, "each has its share"
    net.send("a", at("c", 18), "true")
    net.run()
    assert net.receive("c", "closed") == [b"true"]


def presented(net: Net, client: Guid, host: str, certified: Guid | None) -> bool:
    """Make a host present a GUID to `c`, with or without a certificate; return whether the host gets a session."""
    core = net.nodes["c"].up
    key = core.accepted(host, net.now, certified)
    core.receive(key, encode_packet(establish_connection(client=client, server=C, time_stamp_ms=0)), net.now)
    batch = core.take(net.now)
    (answer,) = (decode_packet(chunk) for send in batch.sends for chunk in send.chunks)
    assert isinstance(answer, EstablishConnection)
    return not answer.refused


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
def test_those_who_present_a_guid_from_elsewhere_take_no_session_of_its_queue_manager() -> None:
    net = with_a_stranger("a", "c")
    for number in range(3 * door.SESSIONS_OF_PEER):
        assert presented(net, A, f"10.0.0.{number}", None), "as a stranger"
    for _ in range(door.SESSIONS_OF_PEER):
        assert presented(net, A, "a", None)
    assert not presented(net, A, "a", None)


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
def test_a_certificate_stands_for_one_queue_manager_wherever_it_comes_from() -> None:
    net = with_a_stranger("a", "c")
    c = net.nodes["c"]
    c.routes = replace(c.routes, peers={A: Peer(("a",), certified=True), X: Peer(("x",))})
    net.start("c")
    assert not presented(net, X, "x", certified=A)
    assert not presented(net, A, "x", certified=X)
    assert presented(net, A, "elsewhere", certified=A)
    assert presented(net, A, "a", certified=None), "as a stranger"
    assert c.up.inspect().transports.connected() == set()
    proven = [session.is_proven for session in c.up.inspect().transports.sessions.values()]
    assert proven == [True, False]


def test_one_guid_at_two_hosts_is_refused_at_the_second() -> None:
    net = with_a_stranger("a", "c")
    assert presented(net, X, "10.0.0.1", None)
    assert presented(net, X, "10.0.0.1", None)
    assert not presented(net, X, "10.0.0.2", None)
    net._advance(net.now.uptime_ms + 31 * 86_400_000)
    assert presented(net, X, "10.0.0.2", None)


@pytest.mark.spec("[MS-MQQB] 3.1.5.10")
def test_who_comes_from_where_nobody_is_heard_is_cut_off_and_the_declared_are_not() -> None:
    net = with_a_stranger("a", "c")
    c = net.nodes["c"]
    c.routes = replace(c.routes, heard=("10.0.0.0/8",))
    net.start("c")
    for host in ("x", "10.0.0.1", "192.0.2.1", "a"):
        c.up.accepted(host, net.now)
    net.run()
    assert [session.remote_address for session in c.up.inspect().transports.sessions.values()] == [
        "10.0.0.1",
        "a",
    ]
    assert [facts["peer"] for facts in notes(net, "c", "session-closed")] == ["x", "192.0.2.1"]
    assert reasons(net, "c") == ["nobody is heard from there"] * 2


def test_who_is_where_a_known_one_may_be_counts_as_one_until_he_has_a_session() -> None:
    """The cost of a handshake is charged only to callers that cannot be neighbours."""
    net = with_a_stranger("a", "c")
    core = net.nodes["c"].up
    [origin] = core.inspect().routes.peers[A].origins
    near, far = core.accepted(origin, net.now), core.accepted("10.9.9.9", net.now)
    assert [core.may_be_known(session) for session in (near, far)] == [True, False]
    parameters = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    for session, manager in ((near, X), (core.accepted(origin, net.now), A)):
        request = establish_connection(client=manager, server=C, time_stamp_ms=0)
        core.receive(session, encode_packet(request), net.now)
        assert core.may_be_known(session)
        core.receive(session, encode_packet(parameters), net.now)
        assert core.inspect().transports.sessions[session].is_open
        assert not core.may_be_known(session)
        assert core.is_known(session) is (manager == A)


# What has begun and is not whole


def called_from(net: Net, host: str, client: Guid) -> int:
    """Return the session that a host has opened with `c` under this GUID."""
    core = net.nodes["c"].up
    key = core.accepted(host, net.now)
    for packet in (
        establish_connection(client=client, server=C, time_stamp_ms=0),
        ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64),
    ):
        core.receive(key, encode_packet(packet), net.now)
        core.take(net.now)
    return key


def closed_at(net: Net) -> list[tuple[int, str]]:
    """Return the sessions of `c` that end now, and the reasons."""
    return [(close.session, close.reason) for close in net.nodes["c"].up.take(net.now).closes]


def test_unfinished_packets_of_strangers_have_a_bound_and_those_of_the_host_with_the_most_end_first() -> None:
    """For IPv6, a host is a /64.

    A neighbour's packets are not counted; but before a neighbour has a session, it is a stranger.
    """
    net = with_a_stranger("a", "c", settings=Settings(strangers_unfinished_bytes=100_000))
    core = net.nodes["c"].up
    hosts = near_host, other_host, v4_host = "2001:db8::1", "2001:db8::2", "10.0.0.9"
    near, other, v4 = (called_from(net, host, guid_of(host)) for host in hosts)
    packets = {host: encode_packet(forged(source=host, body=bytes(200_000))) for host in (*hosts, "a")}
    core.receive(called_from(net, "a", A), packets["a"][:150_000], net.now)
    core.receive(near, packets[near_host][:40_000], net.now)
    core.receive(other, packets[other_host][:10_000], net.now)
    core.receive(v4, packets[v4_host][:45_000], net.now)
    request = encode_packet(establish_connection(client=X, server=C, time_stamp_ms=0))
    core.receive(core.accepted("10.0.0.8", net.now), request[:500], net.now)
    assert core.status().unfinished_bytes == 95_500
    core.receive(v4, packets[v4_host][45_000:49_500], net.now)
    assert closed_at(net) == []
    core.receive(v4, packets[v4_host][49_500:49_501], net.now)
    [(ended, reason)] = closed_at(net)
    assert ended == near
    assert reason == (
        "unfinished packets of strangers have 100,001 bytes, and may have 100,000 (strangers_unfinished_bytes): "
        "2001:db8::/64 has the most, 50,000"
    )
    assert core.status().unfinished_bytes == 60_001
    core.receive(v4, packets[v4_host][49_501:], net.now)
    core.receive(other, packets[other_host][10_000:], net.now)
    assert closed_at(net) == []
    assert core.status().unfinished_bytes == 500
    assert [one.packet for one in core.peek("open", 9)] == [packets[v4_host], packets[other_host]]


def test_one_that_is_larger_than_all_may_be_ends_itself_and_a_packet_that_is_whole_takes_nothing() -> None:
    net = with_a_stranger("a", "c", settings=Settings(strangers_unfinished_bytes=50_000))
    key = called_from(net, "10.0.0.9", X)
    packet = encode_packet(forged(body=bytes(60_000)))
    net.nodes["c"].up.receive(key, packet, net.now)
    assert closed_at(net) == []
    net.nodes["c"].up.receive(key, packet[:55_000], net.now)
    assert [session for session, _ in closed_at(net)] == [key]


def test_a_strangers_packet_that_comes_too_slowly_ends_his_session() -> None:
    net = with_a_stranger("a", "c")
    key = called_from(net, "10.0.0.9", X)
    packet = encode_packet(forged(body=bytes(8 * 1024)))
    net.nodes["c"].up.receive(key, packet[:-1], net.now)
    net.pass_ms(61_000)
    assert not any("too slowly" in reason for reason in reasons(net, "c"))
    net.pass_ms(100)
    assert [reason for reason in reasons(net, "c") if "too slowly" in reason]


PIECE, BODY = 16 * 1024, bytes(range(256)) * 2_000


def in_pieces(net: Net, key: int, packet: bytes) -> int:
    """Make a packet arrive in pieces; return the largest number of its bytes that were kept at one time."""
    core, most = net.nodes["c"].up, 0
    for begin in range(0, len(packet), PIECE):
        core.receive(key, packet[begin : begin + PIECE], net.now)
        most = max(most, core.status().unfinished_bytes)
    return most


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize(
    ("identifier", "source", "target"),
    [(18, "x", "c"), (19, "x", "c"), (77, "x", "c"), (16, "x", "a"), (16, "a", "c")],
    ids=["closed", "closed with orders", "no such queue", "for another", "in another's name"],
)
@pytest.mark.parametrize("kind", ["plain", "session header", "soap"])
def test_the_body_of_a_message_that_will_be_refused_is_not_kept_and_all_else_is_as_if_it_had_been(
    identifier: int, source: str, target: str, kind: str
) -> None:
    message = forged(identifier, source=source, body=BODY, recoverable=True)
    message.user.queue_manager_address = guid_of(target)
    if kind == "soap":
        message = with_soap(message, SoapHeader(header="<header/>", body="<body/>"))
    packet = encode_packet(message)
    if kind == "session header":
        packet = with_session_header(packet, SessionHeader(user_msg_sequence_number=0, window_size=9))
    told = []
    for in_one_piece in (True, False):
        net = with_a_stranger("a", "c")
        key = called_from(net, "10.0.0.9", X)
        core = net.nodes["c"].up
        if in_one_piece:
            core.receive(key, packet, net.now)
        else:
            assert in_pieces(net, key, packet) < 2 * PIECE
        core.receive(key, encode_packet(forged(number=2, body=b"next", recoverable=True)), net.now)
        net.pass_ms(600)
        batch = [(note.name, note.facts) for note in net.nodes["c"].notes]
        counts = [
            (
                data.message_received_count,
                data.recoverable_message_received_count,
                data.unacked_received_msg_count,
            )
            for data in (session.data for session in core.inspect().transports.sessions.values())
        ]
        told.append((batch, counts, core.status().refusals, core.peek("open", 9)))
    assert told[0] == told[1]


def test_the_body_of_a_message_that_may_be_taken_is_kept() -> None:
    net = with_a_stranger("a", "c")
    packet = encode_packet(forged(body=BODY))
    key = called_from(net, "10.0.0.9", X)
    assert in_pieces(net, key, packet) > len(packet) - PIECE
    assert net.receive("c", "open") == [BODY]


@pytest.mark.parametrize("asks", [False, True])
def test_a_body_that_goes_back_with_the_refusal_is_kept(asks: bool) -> None:
    net = with_a_stranger("a", "c")
    message = forged(19, body=BODY)
    message.user.destination_queue = OPEN.identifier
    message.properties.flags = asks * REPORT_NO_ARRIVAL
    packet = encode_packet(message)
    assert (in_pieces(net, called_from(net, "10.0.0.9", X), packet) > len(packet) - PIECE) == asks


def test_a_message_whose_queue_is_opened_while_it_comes_without_a_body_has_to_come_again() -> None:
    net = with_a_stranger("a", "c")
    packet = encode_packet(forged(18, body=BODY, recoverable=True))
    key = called_from(net, "10.0.0.9", X)
    core = net.nodes["c"].up
    core.receive(key, packet[:PIECE], net.now)
    core.change(replace(CLOSED, strangers=True))
    core.receive(key, packet[PIECE:], net.now)
    [(ended, reason)] = closed_at(net)
    assert ended == key
    assert reason.endswith("let it come again")
    assert in_pieces(net, called_from(net, "10.0.0.9", X), packet) > PIECE
    assert net.receive("c", "closed") == [BODY]
