"""Connector queues: a foreign system has two of them, and the message itself shows which one it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.base.errors import UsageError
from mqproto.formatname import ConnectorName
from mqproto.messages.destinations import Destination, destination_of
from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL, REPORT_NO_ARRIVAL, Draft
from mqproto.wire import MessageClass
from mqproto.wire.guid import guid_text
from mqproto.wire.layouts.user import PUBLIC
from tests.observing import DEADXACT, administration, arrive, ended, kept, messages, publish
from tests.pair import Net, at, chain, guid_of, queue

FOREIGN = guid_of("mainframe")
PLAIN = replace(queue("plain", 16, transactional=False), connector=FOREIGN)
XACT = replace(queue("xact", 17), connector=FOREIGN)
ADMIN = queue("admin", 18, transactional=False)


def a_net(*queues: object) -> Net:
    """Return a net in which `c` is the connector server, behind an intermediate; `a` has a queue for
    acknowledgments.
    """
    net = chain("a", "b", "c", queues=queues or (PLAIN, XACT))  # type: ignore[arg-type]
    net.nodes["a"].queues = (ADMIN,)
    publish(net, {"mainframe": "c"})
    return net


def connector(net: Net, frm: str = "a", *, transactional: bool) -> Destination:
    """Return the destination that a connector format name stands for at a node."""
    node = net.nodes[frm]
    found = destination_of(ConnectorName(FOREIGN, transactional), node.routes, node.guid)
    assert found is not None
    return found


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
def test_messages_for_a_connector_go_through_an_intermediate_each_into_the_queue_of_its_kind() -> None:
    net = a_net()
    for number in range(3):
        net.send("a", connector(net, transactional=True), f"in {number}", transactional=True)
        net.send("a", connector(net, transactional=False), f"out {number}")
    net.pass_ms(1_000)
    sent = [message.user for message in messages(net, "a", "b")]
    assert [(user.destination_type, user.destination_queue) for user in sent] == [(PUBLIC, FOREIGN)] * 6
    assert {user.queue_manager_address for user in sent} == {guid_of("c")}
    assert net.receive("c", "xact") == [b"in 0", b"in 1", b"in 2"]
    assert net.receive("c", "plain") == [b"out 0", b"out 1", b"out 2"]
    assert [queue.waiting for queue in net.nodes["a"].up.status().outgoing] == [0] * len(
        net.nodes["a"].up.status().outgoing
    )


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
def test_the_connector_server_sends_to_its_own_connector_queues() -> None:
    net = a_net()
    net.send("c", connector(net, "c", transactional=True), "in", transactional=True)
    net.send("c", connector(net, "c", transactional=False), "out")
    assert (net.receive("c", "xact"), net.receive("c", "plain")) == ([b"in"], [b"out"])


@pytest.mark.spec("[MS-MQMQ] 2.2.11")
@pytest.mark.parametrize("frm", ["a", "c"])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_name_for_one_kind_of_messages_takes_no_other(frm: str, transactional: bool) -> None:
    net = a_net()
    name = f"CONNECTOR={guid_text(FOREIGN)}"
    said = (
        f"^{name};XACTONLY takes transactional messages alone: .*, or to {name}$"
        if transactional
        else f"^{name} takes no transactional messages: send this one to {name};XACTONLY$"
    )
    with pytest.raises(UsageError, match=said):
        net.send(frm, connector(net, frm, transactional=transactional), "x", transactional=not transactional)
    net.run()
    assert net.traffic == []


def test_the_name_that_packets_have_belongs_to_one_sequence_however_its_queue_was_called() -> None:
    """Otherwise two sequences would have the same name where they arrive, and could not be distinguished."""
    net = a_net()
    net.send("a", connector(net, transactional=True), "one", transactional=True)
    name = f"PUBLIC={guid_text(FOREIGN)}"
    net.send("a", Destination(name, guid_of("c"), FOREIGN), "two", transactional=True)
    net.run()
    found = kept(net, "c", "xact")
    assert [message.properties.message_body for message in found] == [b"one", b"two"]
    assert len({message.transaction.tx_sequence_id for message in found if message.transaction}) == 1


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize(
    ("there", "transactional", "refused"),
    [
        (PLAIN, True, MessageClass.NACK_NOT_TRANSACTIONAL_Q),
        (XACT, False, MessageClass.NACK_NOT_TRANSACTIONAL_MSG),
    ],
)
def test_a_connector_server_with_half_of_the_queues_refuses_the_other_half_by_class(
    there: object, transactional: bool, refused: MessageClass
) -> None:
    net = a_net(there)
    net.send(
        "a",
        connector(net, transactional=transactional),
        "x",
        transactional=transactional,
        admin_queue=at("a", ADMIN.identifier).name,
        acknowledgments=REPORT_NO_ARRIVAL,
    )
    net.pass_ms(1_000)
    assert administration(net, "a") == [refused]


@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
def test_acknowledgments_go_to_the_connector_queue_for_what_is_not_transactional() -> None:
    """An application of the foreign system asks for the acknowledgments.

    Its message is sent from `c`, like all messages from the foreign system.
    """
    net = a_net()
    draft = Draft(
        body=b"x", admin_queue=f"CONNECTOR={guid_text(FOREIGN)}", acknowledgments=ACKNOWLEDGE_ARRIVAL
    )
    net.nodes["c"].up.enqueue([(at("a", ADMIN.identifier), draft)], net.now)
    net.pass_ms(1_000)
    assert administration(net, "c", "plain") == [MessageClass.ACK_REACH_QUEUE]
    assert kept(net, "c", "xact") == []


def test_a_dead_letter_of_a_connector_goes_back_to_the_queue_of_its_kind() -> None:
    net = a_net(PLAIN)
    net.send("a", connector(net, transactional=True), "x", transactional=True, journal_negative=True)
    net.pass_ms(1_000)
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_NOT_TRANSACTIONAL_Q, b"x")]
    net.nodes["c"].queues = (PLAIN, XACT)
    net.kill("c")
    net.start("c")
    assert net.nodes["a"].up.send_back(DEADXACT, None, net.now) == 1
    net.pass_ms(1_000)
    assert net.receive("c", "xact") == [b"x"]


def test_of_a_deleted_connector_queue_a_copy_of_what_it_had_is_known_and_the_other_stays() -> None:
    net = a_net()
    c = net.nodes["c"].up
    net.send("a", connector(net, transactional=True), "was", transactional=True)
    net.pass_ms(1_000)
    copies = kept(net, "c", "xact")
    assert net.receive("c", "xact") == [b"was"]
    c.delete("xact")
    arrive(net, "c", *copies)
    assert c.inspect().arrivals.refusing.count == 0
    net.send("a", connector(net, transactional=False), "x")
    net.pass_ms(1_000)
    assert net.receive("c", "plain") == [b"x"]
    c.delete("plain")
    assert FOREIGN not in c.inspect().queues.publics
    made = c.make(replace(XACT, name="again"))
    assert made.connector == FOREIGN
    net.send("a", connector(net, transactional=True), "y", transactional=True)
    net.pass_ms(1_000)
    assert net.receive("c", "again") == [b"y"]
