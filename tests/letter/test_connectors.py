"""Messages for connector queues, as the peer's codec writes and reads them; the codec has no name for such a queue."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from mqproto import wire
from mqproto.formatname import ConnectorName
from mqproto.messages.destinations import destination_of
from tests.observing import arrive, packets, publish
from tests.pair import Net, chain, guid_of, queue

from .audit import Auditor
from .peer.codec import Codec
from .peer.packets import Transaction, TxSequenceId, UserMessage

CODEC = Codec()
FOREIGN = guid_of("mainframe")
WE, THEY, SYSTEM = (UUID(bytes_le=bytes(guid)) for guid in (guid_of("c"), guid_of("a"), FOREIGN))


@pytest.fixture
def net() -> Net:
    """Return a net in which `c` is the connector server."""
    plain = replace(queue("plain", 16, transactional=False), connector=FOREIGN)
    net = chain("a", "c", queues=[plain, replace(queue("xact", 17), connector=FOREIGN)])
    publish(net, {"mainframe": "c"})
    return net


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
def test_the_peer_reads_the_public_queue_of_the_foreign_system_and_finds_no_fault(net: Net) -> None:
    node = net.nodes["a"]
    for transactional in (False, True):
        destination = destination_of(ConnectorName(FOREIGN, transactional), node.routes, node.guid)
        assert destination is not None
        net.send("a", destination, "x", transactional=transactional)
    net.run()
    auditor, found = Auditor(THEY), []
    for packet in packets(net, "a", "c"):
        auditor.look(packet)
        read = CODEC.unpack(packet)
        if isinstance(read, UserMessage):
            found.append((read.destination, read.address, read.transaction is not None))
    assert sorted(found) == [(f"PUBLIC={SYSTEM}", WE, False), (f"PUBLIC={SYSTEM}", WE, True)]
    assert not auditor.told


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.parametrize("transactional", [False, True])
def test_what_the_peer_writes_to_that_queue_is_in_the_one_for_its_kind(net: Net, transactional: bool) -> None:
    transaction = Transaction(TxSequenceId(5, 6), 1, 0) if transactional else None
    message = UserMessage(
        THEY, WE, f"PUBLIC={SYSTEM}", b"x", message_id=7, recoverable=transactional, transaction=transaction
    )
    read = wire.decode_packet(CODEC.pack(message))
    assert isinstance(read, wire.UserMessage)
    arrive(net, "c", read)
    kinds = {kind: net.receive("c", name) for kind, name in ((True, "xact"), (False, "plain"))}
    assert kinds == {transactional: [b"x"], not transactional: []}
