"""Reads the packets of a capture in order, and says of each what it is, what it acknowledges, what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from captures.decode.connections import Connections, NodeKey
from captures.decode.findings import Finding, Severity
from captures.decode.journeys import JourneyChecker
from captures.decode.names import Names
from captures.decode.sequences import SequenceChecker
from captures.decode.sessions import SessionChecker
from captures.decode.sight import Kind, Sight, sight_of
from captures.packets import SeenPacket
from mqproto.errors import WireFormatError
from mqproto.wire import FinalAckBody, OrderAckBody, Ping, UserMessage, inspect_packet, message_identifier
from mqproto.wire.lenient import remarks


class Analyst:
    """Packets in, sights out, in one pass and in bounded memory.

    Args:
        names: what queue managers and queues are called.
    """

    def __init__(self, names: Names | None = None) -> None:
        self.names = names or Names()
        self._connections = Connections(self.names)
        self._sessions = SessionChecker(self._connections)
        self._journeys = JourneyChecker()
        self._sequences = SequenceChecker()

    def take(self, seen: SeenPacket) -> Sight:
        """The next packet of the capture; findings may be about earlier ones."""
        sight = sight_of(seen)
        if seen.is_ping:
            sight.source, sight.destination = map(self.names.endpoint, (seen.source, seen.destination))
            sight.hop = (sight.source, sight.destination)
        else:
            half = self._sessions.take(sight)
            if sight.message is not None:
                self._journeys.take(sight, sight.message, half)
                self._take_message(sight, sight.message, lossy=half.lossy)
        if seen.packet is None:
            sight.findings += malformed(seen)
        elif not isinstance(seen.packet, Ping):
            for remark in remarks(seen.packet):
                text = f"{remark.field} {remark.text}"
                sight.findings.append(Finding(Severity.NOTE, "odd-field", seen.number, text, remark.section))
        return sight

    def finish(self, *, lossless: bool = True) -> Iterator[Finding]:
        """What turns out to be wrong only at the end of the capture.

        Args:
            lossless: whether the capture has no gap at all; else what it lacks may explain them, and they are notes.
        """
        yield from self._sessions.finish(lossless=lossless)
        yield from self._sequences.finish(lossless=lossless)

    def label(self, key: NodeKey) -> str:
        """What the queue manager at one end of a hop is called."""
        return self._connections.label(key)

    def _take_message(self, sight: Sight, message: UserMessage, *, lossy: bool) -> None:
        acknowledgment = sight.acknowledgment
        if message.transaction is not None:
            self._sequences.take_message(sight, message, lossy=lossy)
        elif isinstance(acknowledgment, OrderAckBody):
            self._sequences.take_order_ack(sight, message, acknowledgment)
        elif isinstance(acknowledgment, FinalAckBody):
            self._sequences.take_final_ack(sight, message, acknowledgment)
        elif sight.kind is Kind.ADMIN_ACK:
            about = message_identifier.decode(message.properties.correlation_id)
            sight.ended = self._journeys.packets_of((about.queue_manager_guid, about.ordinal))


def malformed(seen: SeenPacket) -> Iterable[Finding]:
    """What is wrong with bytes that form no packet."""
    fault = seen.fault
    assert fault is not None
    faults = [fault]
    if seen.framed and not seen.is_ping:
        faults = [each for each in inspect_packet(seen.data).findings if isinstance(each, WireFormatError)]
    for each in faults:
        yield Finding(Severity.FAULT, "malformed", seen.number, _one_line(str(each)))


def sights(packets: Iterable[SeenPacket], analyst: Analyst) -> Iterator[Sight]:
    """Every packet, understood."""
    return map(analyst.take, packets)


def _one_line(text: str) -> str:
    return " ".join(text.split())
