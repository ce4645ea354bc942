"""Nodes that were met: where each GUID is believed to be, who is called, what is stored, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL, ACKNOWLEDGE_RECEIPT
from mqproto.neighbours.met import ASKED_INTERVALS, LAST_SEEN_S, Acquaintance, How
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import Peer, Routes
from mqproto.turn.effects import QueueKind
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    Guid,
    MessageClass,
    decode_packet,
    encode_packet,
    establish_connection,
    guid_text,
)
from tests.observing import kept
from tests.pair import Net, Node, at, direct, guid_of, queue

SHOP, OFFICE = "10.0.0.1", "10.0.0.2"
"""The names of two nodes; they are also the nodes' addresses."""
ORDERS = replace(queue("orders", 16), strangers=True)
REPLIES = replace(queue("replies", 16), strangers=True)
NOTICES = replace(queue("notices", 17, transactional=False), strangers=True)
QUICK = Settings(resend_timeouts_short_s=2, try_connect_interval_ms=500)
PARAMETERS = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)


class Alone(Net):
    """Nodes that know nothing about each other, because they have no routes and no peers."""

    def routes_of(self, node: Node) -> Routes:
        return node.routes


def two_strangers(settings: Settings = QUICK) -> Alone:
    """Return a net of `SHOP` and `OFFICE`; each of them can reach the other by calling it."""
    net = Alone()
    net.add(SHOP, REPLIES, NOTICES, settings=settings)
    net.add(OFFICE, ORDERS, settings=settings)
    net.start()
    return net


def hosts_called(net: Net, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return a dict that records the hosts that each node calls from now on."""
    called: dict[str, list[str]] = {name: [] for name in net.nodes}
    connect = net.connect

    def connecting(node: Node, session: int, host: str) -> None:
        called[node.name].append(host)
        connect(node, session, host)

    monkeypatch.setattr(net, "connect", connecting)
    return called


def met(net: Net, at_node: str, manager: Guid) -> Acquaintance:
    """Return what a node knows about another one that it has met."""
    found = net.nodes[at_node].up.inspect().met.get(manager)
    assert found is not None
    return found


def presents(net: Net, at_node: str, client: Guid, host: str) -> tuple[int, bool]:
    """Make a host present a GUID to a node; return the session's key, and whether the session was accepted."""
    node = net.nodes[at_node]
    key = node.up.accepted(host, net.now)
    request = establish_connection(client=client, server=node.guid, time_stamp_ms=0)
    node.up.receive(key, encode_packet(request), net.now)
    batch = node.up.take(net.now)
    net.carry_out(node, batch)
    [answer] = [decode_packet(chunk) for send in batch.sends if send.session == key for chunk in send.chunks]
    assert isinstance(answer, EstablishConnection)
    if not answer.refused:
        node.up.receive(key, encode_packet(PARAMETERS), net.now)
    net.run()
    return key, not answer.refused


def facts(net: Net, at_node: str, name: str) -> list[dict[str, str | int]]:
    """Return the facts of all notes that a node has made under a name."""
    return [note.facts for note in net.nodes[at_node].notes if note.name == name]


def private(node: str, identifier: int) -> str:
    """Return the private format name of a queue of a node."""
    return at(node, identifier).name


# Answers leave over a session of the one who asks


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_what_a_stranger_is_owed_leaves_over_the_session_that_he_has_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = two_strangers()
    called = hosts_called(net, monkeypatch)
    net.send(
        SHOP,
        direct(OFFICE),
        "one",
        transactional=True,
        admin_queue=private(SHOP, 17),
        acknowledgments=ACKNOWLEDGE_ARRIVAL | ACKNOWLEDGE_RECEIPT,
        final_ack=True,
    )
    net.pass_ms(1_000)
    assert net.receive(OFFICE, "orders") == [b"one"]
    net.send(OFFICE, at(SHOP), "an answer", transactional=True)
    net.pass_ms(1_000)
    assert net.receive(SHOP, "replies") == [b"an answer"]
    notices = [message.properties.message_class for message in kept(net, SHOP, "notices")]
    assert notices == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]
    for node in net.nodes.values():
        assert sum(one.waiting + one.unread for one in node.up.status().outgoing) == 0
    assert called[OFFICE] == []


def test_an_answer_to_a_direct_name_of_where_he_comes_from_takes_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = two_strangers()
    called = hosts_called(net, monkeypatch)
    net.send(
        SHOP,
        direct(OFFICE),
        "one",
        transactional=True,
        admin_queue=rf"DIRECT=TCP:{SHOP}\private$\notices",
        acknowledgments=ACKNOWLEDGE_ARRIVAL,
    )
    net.pass_ms(1_000)
    notices = [message.properties.message_class for message in kept(net, SHOP, "notices")]
    assert notices == [MessageClass.ACK_REACH_QUEUE]
    assert called[OFFICE] == []


@pytest.mark.parametrize("restarted", [SHOP, OFFICE])
def test_who_may_not_be_called_gets_his_answer_when_he_calls_again(
    restarted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = two_strangers()
    net.send(SHOP, direct(OFFICE), "one", transactional=True, response_queue=private(SHOP, 16))
    net.pass_ms(1_000)
    assert net.receive(OFFICE, "orders") == [b"one"]
    net.kill(restarted)
    net.start(restarted)
    called = hosts_called(net, monkeypatch)
    net.send(OFFICE, at(SHOP), "an answer", transactional=True)
    net.pass_ms(2_000)
    assert net.receive(SHOP, "replies") == [b"an answer"]
    assert (called[OFFICE], called[SHOP][0]) == ([], OFFICE)


@pytest.mark.spec("[MS-MQQB] 3.1.6.2")
@pytest.mark.parametrize("asks", [True, False])
def test_one_who_waits_for_answers_calls_again_and_one_who_does_not_stays_away(
    asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(QUICK, session_cleanup_timeout_ms=10_000, answers_awaited_s=60)
    net = two_strangers(settings)
    response_queue = private(SHOP, 16) if asks else ""
    net.send(SHOP, direct(OFFICE), "one", transactional=True, response_queue=response_queue)
    called = hosts_called(net, monkeypatch)
    net.pass_ms(50_000)
    assert (len(called[SHOP]) > 2) == asks
    called[SHOP].clear()
    net.pass_ms(20_000)
    called[SHOP].clear()
    net.pass_ms(60_000)
    assert called[SHOP] == [], "what is awaited has an end"


def test_one_that_was_called_may_be_called_again_by_its_guid(monkeypatch: pytest.MonkeyPatch) -> None:
    net = two_strangers()
    net.send(SHOP, direct(OFFICE), "one", transactional=True)
    net.pass_ms(2_000)
    net.cut(SHOP, OFFICE)
    net.kill(SHOP)
    net.start(SHOP)
    called = hosts_called(net, monkeypatch)
    net.send(SHOP, at(OFFICE), "two", transactional=True)
    net.pass_ms(1_000)
    assert called[SHOP] == [OFFICE]
    assert net.receive(OFFICE, "orders") == [b"one", b"two"]


def test_nothing_is_sent_to_a_guid_that_was_never_met() -> None:
    net = two_strangers()
    with pytest.raises(UsageError, match="none was met: send to it by a direct format name first"):
        net.send(OFFICE, at(SHOP), "x")


def test_mail_for_a_guid_never_leaves_to_another_that_is_at_its_address_now() -> None:
    net = two_strangers()
    net.send(SHOP, direct(OFFICE), "one", transactional=True)
    net.pass_ms(1_000)
    net.kill(OFFICE)
    net.nodes[OFFICE].cloned_from = "another"
    net.start(OFFICE)
    net.send(SHOP, Destination(private(OFFICE, 16), guid_of(OFFICE), 16), "secret", transactional=True)
    net.pass_ms(5_000)
    assert all(b"secret" not in data for _, _, data in net.traffic)
    [waiting] = [one for one in net.nodes[SHOP].up.status().outgoing if one.waiting]
    assert "refused the connection: we asked for queue manager" in waiting.last_failure


@pytest.mark.parametrize("named_before", [False, True])
def test_what_is_asked_of_one_by_another_name_he_may_send(named_before: bool) -> None:
    """A queue that is closed to strangers still accepts an answer from the node that was asked for it."""
    net = two_strangers()
    closed = queue("closed", 18, transactional=False)
    net.add("10.0.0.3", closed, settings=QUICK)
    net.start("10.0.0.3")
    if named_before:
        net.nodes["10.0.0.3"].up.inspect().met.add("depot", SHOP, None, net.now)
    net.send(SHOP, direct("10.0.0.3", "closed"), "who calls is met", recoverable=True)
    net.pass_ms(1_000)
    net.send(
        "10.0.0.3",
        direct(SHOP, "replies"),
        "one",
        transactional=True,
        admin_queue=private("10.0.0.3", 18),
        acknowledgments=ACKNOWLEDGE_ARRIVAL | ACKNOWLEDGE_RECEIPT,
    )
    net.pass_ms(1_000)
    assert net.receive(SHOP, "replies") == [b"one"]
    net.pass_ms(1_000)
    notices = [message.properties.message_class for message in kept(net, "10.0.0.3", "closed")]
    assert notices == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]
    [known] = [one for one in net.nodes["10.0.0.3"].up.inspect().met if one.manager == net.nodes[SHOP].guid]
    assert (known.name, known.host) == ("depot" * named_before, SHOP)
    assert len(list(net.nodes["10.0.0.3"].up.inspect().met)) == 1


# One GUID at two addresses


def moving(settings: Settings = QUICK) -> tuple[Alone, Guid]:
    """Return a net in which `OFFICE` has met the node `SHOP`; also return the GUID of `SHOP`."""
    net = two_strangers(settings)
    net.send(SHOP, direct(OFFICE), "one", transactional=True)
    net.pass_ms(1_000)
    return net, net.nodes[SHOP].guid


def test_a_guid_at_two_addresses_that_both_answer_is_refused_at_the_second_and_both_are_named() -> None:
    net, guid = moving()
    assert presents(net, OFFICE, guid, "10.0.0.9") == (2, False)
    [told] = facts(net, OFFICE, "guid-at-two-addresses")
    assert (told["manager"], told["peer"], told["met_at"]) == (guid_text(guid), "10.0.0.9", SHOP)
    advice = f"mqproto peers add {guid_text(guid)} --also 10.0.0.9"
    assert advice in str(told["verdict"])
    assert not presents(net, OFFICE, guid, "10.0.0.9")[1]
    closed = [str(one["reason"]) for one in facts(net, OFFICE, "session-closed")]
    assert "and comes from 10.0.0.9: that at 10.0.0.1 answers, so this GUID is at both" in closed[-1]
    assert met(net, OFFICE, guid).address == SHOP


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
@pytest.mark.parametrize("restarts", [False, True])
def test_one_that_has_two_addresses_by_the_word_of_an_operator_is_served_at_both_at_once(
    restarts: bool,
) -> None:
    net, guid = moving()
    assert not presents(net, OFFICE, guid, "10.0.0.9")[1]
    core = net.nodes[OFFICE].up
    core.is_also(guid_text(guid), ["10.0.0.9"])
    if restarts:
        net.run()
        net.kill(OFFICE)
        net.start(OFFICE)
    net.pass_ms(40 * 86_400_000)
    for _ in range(2):
        for address in ("10.0.0.9", SHOP):
            assert presents(net, OFFICE, guid, address)[1]
        assert met(net, OFFICE, guid).address == SHOP
    assert (met(net, OFFICE, guid).other, met(net, OFFICE, guid).verdict) == ("", "")
    assert not presents(net, OFFICE, guid, "10.0.0.7")[1], "that is another"
    with pytest.raises(UsageError, match="would have 9 addresses beside its own, and 8 may be"):
        net.nodes[OFFICE].up.is_also(guid_text(guid), [f"10.0.1.{number}" for number in range(8)])


def test_where_two_names_that_we_call_lead_to_one_guid_nothing_is_refused_and_just_that_is_said() -> None:
    net, guid = moving()
    inner = net.nodes[OFFICE].up.inspect().met
    inner.seen(guid, "shop.example", "10.0.0.9", net.now, called=True)
    assert (met(net, OFFICE, guid).address, met(net, OFFICE, guid).other) == (SHOP, "10.0.0.9")
    assert met(net, OFFICE, guid).verdict == (
        "it was called there as shop.example; both lead to it, and nothing is refused"
    )
    assert inner.take_doubts() == []


def test_the_address_before_is_not_called_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    net, guid = moving()
    called = hosts_called(net, monkeypatch)
    for _ in range(20):
        presents(net, OFFICE, guid, "10.0.0.9")
    assert called[OFFICE] == [SHOP]
    net.pass_ms(ASKED_INTERVALS * QUICK.try_connect_interval_ms)
    presents(net, OFFICE, guid, "10.0.0.9")
    assert called[OFFICE] == [SHOP, SHOP]


def test_one_that_has_moved_is_a_stranger_until_an_operator_says_so() -> None:
    net, guid = moving()
    net.kill(SHOP)
    net.pass_ms(1_000)
    assert not presents(net, OFFICE, guid, "10.0.0.9")[1]
    net.pass_ms(1_000)
    found = met(net, OFFICE, guid)
    assert (found.address, found.other) == (SHOP, "10.0.0.9")
    assert "an operator has to say so: mqproto peers move" in found.verdict
    assert not presents(net, OFFICE, guid, "10.0.0.9")[1]
    net.nodes[OFFICE].up.inspect().met.move(guid_text(guid))
    assert presents(net, OFFICE, guid, "10.0.0.9")[1]
    assert not presents(net, OFFICE, guid, SHOP)[1]
    assert (met(net, OFFICE, guid).address, met(net, OFFICE, guid).other) == ("10.0.0.9", SHOP)


@pytest.mark.parametrize("still_there", [False, True])
def test_with_roaming_it_moves_by_itself_once_nobody_answers_at_the_address_before(still_there: bool) -> None:
    net, guid = moving(replace(QUICK, roaming=True))
    if not still_there:
        net.kill(SHOP)
        net.pass_ms(1_000)
    assert not presents(net, OFFICE, guid, "10.0.0.9")[1]
    net.pass_ms(1_000)
    assert presents(net, OFFICE, guid, "10.0.0.9")[1] != still_there
    assert len(facts(net, OFFICE, "guid-moved")) == (not still_there)


@pytest.mark.parametrize("by_name", [False, True])
def test_one_that_has_moved_is_called_by_the_name_that_it_had_no_more_unless_an_operator_has_given_it(
    by_name: bool,
) -> None:
    net, _ = moving(replace(QUICK, roaming=True))
    guid = net.nodes[OFFICE].guid
    if by_name:
        net.nodes[SHOP].up.add_peer("office", OFFICE, guid, net.now)
    before = met(net, SHOP, guid).how
    net.kill(OFFICE)
    net.pass_ms(1_000)
    presents(net, SHOP, guid, "10.0.0.9")
    net.pass_ms(1_000)
    assert len(facts(net, SHOP, "guid-moved")) == 1
    assert (before, met(net, SHOP, guid).how) == (
        (How.ADDED, How.ADDED) if by_name else (How.WAS_CALLED, How.CALLED_US)
    )


def test_when_one_was_seen_last_is_written_now_and_then_and_not_each_time() -> None:
    net, guid = moving()
    store = net.nodes[OFFICE].store
    written = set()
    for _ in range(8):
        net._advance(net.now.uptime_ms + LAST_SEEN_S * 1_000 // 4)
        presents(net, OFFICE, guid, SHOP)
        net.send(OFFICE, at(OFFICE), "what has to be on disk", transactional=True)  # The rest goes with it.
        net.run()
        written |= {queue.name for queue in store.queues.values() if queue.kind is QueueKind.MET}
    assert len(written) == 3


def test_what_waits_for_one_that_has_moved_leaves_from_where_it_is_now() -> None:
    net, guid = moving(replace(QUICK, roaming=True))
    net.kill(SHOP)
    net.pass_ms(1_000)
    net.send(OFFICE, at(SHOP), "an answer", transactional=True)
    net.pass_ms(1_000)
    presents(net, OFFICE, guid, "10.0.0.9")
    net.pass_ms(1_000)
    node = net.nodes[OFFICE]
    key, granted = presents(net, OFFICE, guid, "10.0.0.9")
    assert granted
    [in_flight] = node.up.inspect().transports.sessions[key].lost()
    assert b"a\x00n\x00 \x00" in in_flight.packet or b"an answer" in in_flight.packet


# What is kept, and for how long


def test_who_was_met_is_known_after_a_restart() -> None:
    net, guid = moving()
    before = met(net, OFFICE, guid)
    net.pass_ms(2_000)
    net.kill(OFFICE)
    net.start(OFFICE)
    after = met(net, OFFICE, guid)
    assert (after.host, after.address, after.how, after.first_s) == (
        SHOP,
        SHOP,
        How.CALLED_US,
        before.first_s,
    )
    assert met(net, SHOP, guid_of(OFFICE)).how is How.WAS_CALLED
    assert not presents(net, OFFICE, guid, "10.0.0.9")[1]


def test_who_is_met_while_the_disk_is_full_has_his_answer_and_is_kept_when_there_is_room() -> None:
    net = two_strangers()
    office = net.nodes[OFFICE]
    office.up.has_room(0)
    presents(net, OFFICE, net.nodes[SHOP].guid, SHOP)
    net.pass_ms(2_000)
    assert met(net, OFFICE, net.nodes[SHOP].guid).address == SHOP
    assert [row for row in office.store.queues.values() if row.kind is QueueKind.MET] == []
    office.up.has_room(None)
    net.pass_ms(2_000)
    net.kill(OFFICE)
    net.start(OFFICE)
    assert met(net, OFFICE, net.nodes[SHOP].guid).address == SHOP


def test_who_presents_many_guids_takes_the_places_of_his_own() -> None:
    net = two_strangers(replace(QUICK, peers_remembered=8))
    others = {f"10.0.1.{number}": guid_of(f"other {number}") for number in range(4)}
    for host, guid in others.items():
        key, _ = presents(net, OFFICE, guid, host)
        net.nodes[OFFICE].up.lost(key, "gone", net.now)
    for number in range(100):
        key, granted = presents(net, OFFICE, guid_of(f"made up {number}"), "10.6.6.6")
        assert granted
        net.nodes[OFFICE].up.lost(key, "gone", net.now)
    known = net.nodes[OFFICE].up.inspect().met
    assert len(list(known)) == 8
    assert all(known.get(guid) is not None for guid in others.values())
    net.pass_ms(2_000)
    rows = [row for row in net.nodes[OFFICE].store.load().queues if row.kind == "met"]
    assert len(rows) <= 9, "rows are used again"
    net.kill(OFFICE)
    net.start(OFFICE)
    assert len(list(net.nodes[OFFICE].up.inspect().met)) == 8


def test_one_that_was_not_seen_for_long_is_forgotten_and_one_that_an_operator_added_is_not() -> None:
    net, guid = moving()
    office = net.nodes[OFFICE]
    office.up.inspect().met.add("depot", "10.0.0.3", guid_of("depot"), net.now)
    net.pass_ms(1_000)
    net.kill(OFFICE)
    net._advance(net.now.uptime_ms + 31 * 86_400_000)
    net.start(OFFICE)
    known = office.up.inspect().met
    assert known.get(guid) is None
    assert known.get(guid_of("depot")) is not None


# What operators say


def test_an_operator_says_where_one_is_that_was_never_met() -> None:
    net = two_strangers()
    known = net.nodes[SHOP].up.inspect().met
    known.add("Office", OFFICE, guid_of(OFFICE), net.now)
    assert net.nodes[SHOP].up.peer_hosts == {"office": OFFICE}
    net.send(SHOP, at(OFFICE), "one", transactional=True)
    net.pass_ms(1_000)
    assert net.receive(OFFICE, "orders") == [b"one"]
    with pytest.raises(UsageError, match=r"Office is at .*: remove it first"):
        known.add("OFFICE", "10.0.0.3", None, net.now)
    net.kill(SHOP)
    net.start(SHOP)
    known = net.nodes[SHOP].up.inspect().met
    assert [(one.name, one.how) for one in known] == [("Office", How.ADDED)]
    known.remove("office")
    assert net.nodes[SHOP].up.peer_hosts == {}
    with pytest.raises(UsageError, match="no peer is called 'office'"):
        known.remove("office")


def test_the_guid_of_one_that_an_operator_added_without_is_that_which_answers() -> None:
    net = two_strangers()
    net.nodes[SHOP].up.inspect().met.add("office", OFFICE, None, net.now)
    net.send(SHOP, direct(OFFICE), "one", transactional=True)
    net.pass_ms(1_000)
    found = met(net, SHOP, guid_of(OFFICE))
    assert (found.name, found.address) == ("office", OFFICE)


def test_who_is_declared_is_never_met() -> None:
    net = two_strangers()
    office = net.nodes[OFFICE]
    office.routes = Routes(peers={guid_of(SHOP): Peer(("10.0.0.7",))})
    net.start(OFFICE)
    net.send(SHOP, direct(OFFICE, "open"), "one")
    net.pass_ms(1_000)
    known = office.up.inspect().met
    assert list(known) == []
    with pytest.raises(UsageError, match="is in the topology: change it there"):
        known.add("shop", SHOP, guid_of(SHOP), net.now)


def test_an_answer_may_come_to_a_closed_queue_from_the_one_who_was_asked_for_it_and_from_nobody_else() -> (
    None
):
    net = two_strangers()
    shop = net.nodes[SHOP]
    shop.queues = (replace(REPLIES, strangers=False), replace(NOTICES, strangers=False))
    net.kill(SHOP)
    net.start(SHOP)
    net.send(
        SHOP,
        direct(OFFICE),
        "one",
        transactional=True,
        admin_queue=private(SHOP, 17),
        response_queue=private(SHOP, 16),
        acknowledgments=ACKNOWLEDGE_ARRIVAL,
    )
    net.pass_ms(1_000)
    net.kill(SHOP)
    net.start(SHOP)
    net.pass_ms(1_000)
    net.send(OFFICE, at(SHOP), "an answer", transactional=True)
    other = net.add("10.0.0.3", queue("unused"), settings=QUICK)
    net.start("10.0.0.3")
    net.send(other.name, direct(SHOP, "replies"), "no answer", transactional=True)
    net.pass_ms(1_000)
    assert net.receive(SHOP, "replies") == [b"an answer"]
    notices = [message.properties.message_class for message in kept(net, SHOP, "notices")]
    assert notices == [MessageClass.ACK_REACH_QUEUE]


def test_a_queue_closed_to_strangers_stays_closed_to_those_who_were_met() -> None:
    net = two_strangers()
    net.kill(OFFICE)
    net.nodes[OFFICE].queues = (QueueDeclaration("orders", 16, transactional=True),)
    net.start(OFFICE)
    net.send(SHOP, direct(OFFICE), "one", transactional=True)
    net.pass_ms(3_000)
    assert net.receive(OFFICE, "orders") == []
