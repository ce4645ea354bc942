"""What goes to a direct name of a host that cannot be called, from where somebody calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL, ACKNOWLEDGE_RECEIPT
from mqproto.neighbours.detours import IN_VAIN_INTERVALS
from mqproto.wire import MessageClass, guid_text
from tests.neighbours.test_met import OFFICE, ORDERS, QUICK, REPLIES, SHOP, Alone, presents, private
from tests.observing import kept
from tests.pair import Node, direct, guid_of, queue

ONCE_IN_A_WHILE_MS = IN_VAIN_INTERVALS * QUICK.try_connect_interval_ms
NAME = "shop.example"


class OneWay(Alone):
    """`SHOP` calls whom it likes. Whoever calls `SHOP` gets no answer, until it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False
        self.refused = b""
        """`SHOP` resets the connection when this comes."""
        self.called: list[str] = []
        """Whom `OFFICE` has called."""

    def transmit(self, node: Node, session: int, data: bytes) -> None:
        if self.refused and self.refused in data:
            self.cut(SHOP, OFFICE)
        else:
            super().transmit(node, session, data)

    def connect(self, node: Node, session: int, host: str) -> None:
        if node.name != OFFICE:
            super().connect(node, session, host)
            return
        self.called.append(host)
        if self.is_open:
            super().connect(node, session, SHOP)
        else:
            node.up.lost(session, "no answer", self.now, [SHOP] if host == NAME else [])


@pytest.fixture
def net() -> OneWay:
    """Both, when `SHOP` has called and its order has been received."""
    found = OneWay()
    notices = replace(queue("notices", 17, transactional=False), strangers=True)
    found.add(SHOP, REPLIES, notices, settings=QUICK)
    found.add(OFFICE, ORDERS, queue("receipts", 18, transactional=False), settings=QUICK)
    found.start()
    found.send(SHOP, direct(OFFICE), "an order", transactional=True)
    found.pass_ms(1_000)
    assert found.receive(OFFICE, "orders") == [b"an order"]
    return found


def waiting(net: OneWay) -> int:
    """How many messages `OFFICE` has on the way."""
    return sum(one.waiting for one in net.nodes[OFFICE].up.status().outgoing)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.5")
@pytest.mark.parametrize("host", [SHOP, NAME])
def test_it_leaves_over_the_session_that_he_has_opened_after_one_call_in_vain(net: OneWay, host: str) -> None:
    for number in range(40):
        net.send(OFFICE, direct(host, "replies"), f"{number}", transactional=True)
    net.pass_ms(5_000)
    net.send(OFFICE, direct(host, "replies"), "40", transactional=True)
    net.send(OFFICE, direct(host, "notices"), "a note", recoverable=True)
    net.pass_ms(5_000)
    assert net.receive(SHOP, "notices") == [b"a note"]
    assert net.receive(SHOP, "replies") == [f"{number}".encode() for number in range(41)]
    assert waiting(net) == 0, "its OrderAcks count"
    assert net.called == [host]


def test_what_is_asked_of_him_by_such_a_name_he_may_send(net: OneWay) -> None:
    net.send(
        OFFICE,
        direct(SHOP, "replies"),
        "one",
        transactional=True,
        admin_queue=private(OFFICE, 18),
        acknowledgments=ACKNOWLEDGE_ARRIVAL | ACKNOWLEDGE_RECEIPT,
    )
    net.pass_ms(5_000)
    assert net.receive(SHOP, "replies") == [b"one"]
    net.pass_ms(1_000)
    notices = [message.properties.message_class for message in kept(net, OFFICE, "receipts")]
    assert notices == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]


def test_without_a_session_it_waits_until_he_calls_and_the_host_is_called_once_in_a_while(
    net: OneWay,
) -> None:
    net.cut(SHOP, OFFICE)
    net.send(OFFICE, direct(SHOP, "replies"), "one", transactional=True)
    net.pass_ms(3 * ONCE_IN_A_WHILE_MS + 1_000)
    assert net.called == [SHOP] * 4
    [status] = [one for one in net.nodes[OFFICE].up.status().outgoing if one.waiting]
    assert status.is_waited_for
    assert (status.last_failure, status.state) == ("no answer", "disconnected")
    assert status.retry_at_ms is not None
    assert net.now.uptime_ms < status.retry_at_ms <= net.now.uptime_ms + ONCE_IN_A_WHILE_MS
    net.send(SHOP, direct(OFFICE), "another order", transactional=True)
    net.pass_ms(1_000)
    assert net.receive(SHOP, "replies") == [b"one"]
    assert waiting(net) == 0
    net.pass_ms(3 * ONCE_IN_A_WHILE_MS)
    assert net.called == [SHOP] * 4, "nothing waits"


@pytest.mark.parametrize("restarted", [SHOP, OFFICE])
def test_it_comes_once_and_in_order_whoever_restarts(net: OneWay, restarted: str) -> None:
    for number in range(3):
        net.send(OFFICE, direct(SHOP, "replies"), f"{number}", transactional=True)
    net.pass_ms(10)
    net.kill(restarted)
    net.start(restarted)
    for number in range(3, 6):
        net.send(OFFICE, direct(SHOP, "replies"), f"{number}", transactional=True)
    net.pass_ms(1_000)
    net.send(SHOP, direct(OFFICE), "another order", transactional=True)
    net.pass_ms(10_000)
    assert net.receive(SHOP, "replies") == [f"{number}".encode() for number in range(6)]
    assert waiting(net) == 0


def test_once_the_host_answers_it_is_called_as_before(net: OneWay) -> None:
    net.cut(SHOP, OFFICE)
    net.send(OFFICE, direct(SHOP, "replies"), "one", transactional=True)
    net.pass_ms(1_000)
    net.is_open = True
    net.pass_ms(ONCE_IN_A_WHILE_MS)
    assert net.receive(SHOP, "replies") == [b"one"]
    assert (net.called, waiting(net)) == ([SHOP] * 2, 0)


def test_where_several_call_from_one_address_nobody_gets_what_is_for_it(net: OneWay) -> None:
    presents(net, OFFICE, guid_of("another"), SHOP)
    net.send(OFFICE, direct(SHOP, "replies"), "for whom?", transactional=True)
    net.pass_ms(10_000)
    assert waiting(net) == 1
    assert len(net.called) > 5
    assert all(b"for whom?" not in data for _, _, data in net.traffic)


@pytest.mark.parametrize("forgotten", [False, True])
def test_one_that_has_moved_or_is_forgotten_gets_nothing_that_is_for_where_it_was(
    net: OneWay, forgotten: bool
) -> None:
    net.cut(SHOP, OFFICE)
    net.send(OFFICE, direct(SHOP, "replies"), "for this address", transactional=True)
    net.pass_ms(1_000)
    guid = net.nodes[SHOP].guid
    met = net.nodes[OFFICE].up.inspect().met
    if forgotten:
        met.remove(guid_text(guid))
    else:
        presents(net, OFFICE, guid, "10.0.0.9")
        net.pass_ms(1_000)
        met.move(guid_text(guid))
    presents(net, OFFICE, guid, "10.0.0.9")
    net.pass_ms(5_000)
    assert waiting(net) == 1
    assert all(b"for this address" not in data for _, _, data in net.traffic)
    assert len(net.called) > 5, "the host is called as any other"
    net.is_open = True
    net.pass_ms(5_000)
    assert net.receive(SHOP, "replies") == [b"for this address"], "a name means whoever is called by it"


def test_what_nobody_has_asked_him_for_he_may_still_not_send(net: OneWay) -> None:
    net.send(OFFICE, direct(SHOP, "replies"), "one", transactional=True)
    net.pass_ms(2_000)
    net.send(SHOP, replace(direct(OFFICE, "receipts"), manager=None), "unasked")
    net.pass_ms(2_000)
    assert list(kept(net, OFFICE, "receipts")) == []


def test_what_was_held_back_as_he_refused_it_goes_once_the_host_is_called(net: OneWay) -> None:
    net.refused = b"refused"
    net.send(SHOP, direct(OFFICE), "asks", transactional=True, response_queue=private(SHOP, 16))
    for body in ("refused", "behind it"):
        net.send(OFFICE, direct(SHOP, "notices"), body, recoverable=True)
    net.pass_ms(20_000)
    [status] = [one for one in net.nodes[OFFICE].up.status().outgoing if one.waiting]
    assert len(status.suspected) == 1
    net.kill(SHOP)
    net.refused, net.is_open = b"", True
    net.pass_ms(100)
    net.nodes[SHOP].cloned_from = "another"  # Who knows nothing, and does not call.
    net.start(SHOP)
    net.pass_ms(2 * ONCE_IN_A_WHILE_MS)
    assert sorted(net.receive(SHOP, "notices")) == [b"behind it", b"refused"]
    assert waiting(net) == 0
