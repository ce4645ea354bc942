"""Functions that show a test what happens in a `Net`: packets on wires, messages in queues, and their classes."""

from __future__ import annotations

from dataclasses import replace

from mqproto.queues.localqueue import SystemQueue
from mqproto.session import Remote
from mqproto.wire import (
    FinalAckBody,
    Guid,
    OrderAckBody,
    PacketBuffer,
    UserMessage,
    acknowledgment_in,
    decode_packet,
    encode_packet,
)
from mqproto.wire.shapes import run_of
from tests.pair import Net, guid_of

JOURNAL, DEADLETTER, DEADXACT = SystemQueue.JOURNAL, SystemQueue.DEADLETTER, SystemQueue.DEADXACT


def packets(net: Net, sender: str, receiver: str) -> list[bytes]:
    """Return the packets that went from one node to another, in order."""
    buffer = PacketBuffer()
    found: list[bytes] = []
    for here, there, chunk in net.traffic:
        if (here, there) == (sender, receiver):
            found += buffer.feed(chunk)
    return found


def messages(net: Net, sender: str, receiver: str) -> list[UserMessage]:
    """Return the UserMessages that went from one node to another, in order."""
    found = [decode_packet(raw) for raw in packets(net, sender, receiver)]
    return [packet for packet in found if isinstance(packet, UserMessage)]


def acknowledgments(net: Net, sender: str, receiver: str) -> list[tuple[int, OrderAckBody | FinalAckBody]]:
    """Return the OrderAcks and FinalAcks that went from one node to another, each with its class."""
    return [
        (message.properties.message_class, body)
        for message in messages(net, sender, receiver)
        if (body := acknowledgment_in(message)) is not None
    ]


def final_acks(net: Net, sender: str, receiver: str) -> list[int]:
    """Return the classes of the FinalAcks that went from one node to another."""
    found = acknowledgments(net, sender, receiver)
    return [message_class for message_class, body in found if isinstance(body, FinalAckBody)]


def kept(net: Net, at: str, queue: str) -> list[UserMessage]:
    """Return the messages in a queue that are in memory; they stay in the queue."""
    found = [decode_packet(received.packet) for received in net.nodes[at].up.peek(queue, 1_000)]
    return [message for message in found if isinstance(message, UserMessage)]


def ended(net: Net, at: str, queue: str) -> list[tuple[int, bytes]]:
    """Return the class and the body of each message in a queue; in a dead-letter queue, the class says how the message
    ended.
    """
    return [(m.properties.message_class, m.properties.message_body) for m in kept(net, at, queue)]


def bodies(net: Net, at: str, queue: str) -> list[bytes]:
    """Return the bodies of the messages in a queue; the messages stay there."""
    return [body for _, body in ended(net, at, queue)]


def administration(net: Net, at: str, queue: str = "admin") -> list[int]:
    """Return the classes of the acknowledgments in an administration queue."""
    return [message_class for message_class, _ in ended(net, at, queue)]


def publish(net: Net, queues: dict[str, str]) -> None:
    """Make public queues known to every node, each by its GUID and its host; all nodes are restarted."""
    publics: dict[Guid, Guid] = {guid_of(name): guid_of(host) for name, host in queues.items()}
    for node in net.nodes.values():
        node.routes = replace(node.routes, publics=publics)
    net.start()


def arrive(net: Net, at: str, *found: UserMessage, peer: str = "a") -> None:
    """Make messages arrive at a node, all at once, as if their senders had sent them from the address `peer`."""
    for message in found:
        sender = Remote(peer, message.user.source_queue_manager, is_proven=True)
        brought(net, at, encode_packet(message), sender)
    net.run()


def brought(net: Net, at: str, packet: bytes, remote: Remote) -> None:
    """Judge a message that was brought to a node, and carry out the judgment."""
    run, arrivals = run_of(packet), net.nodes[at].up.inspect().arrivals
    arrivals.arrived(run, arrivals.judge(run, 0, remote), remote, net.now)
