"""Checks the promises: compares sent messages with received ones, and packets that enter a node with packets that leave
it.

The first comparison is between the two ends. The second is between packets in the capture of the links, so it does not
rely on what a node reports about itself.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import CaptureError
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import PacketReader, SeenPacket
from mqproto.simulator.rig.verdict import Found, RunOracle, by_oracle
from mqproto.wire import (
    FinalAckBody,
    Guid,
    OrderAckBody,
    SessionAck,
    UserMessage,
    acknowledgment_in,
    with_hop_counted,
    without_session_header,
)


class Sent(NamedTuple):
    """A message that was sent; times are in seconds on one clock.

    message_id: the identifier from the sender's queue manager; None if its answer never came. In that case, it is
        unknown whether the message was accepted, and its digest identifies it.
    at_s: the time at which it was handed over; all messages of one request have the same time.
    """

    message_id: Hashable
    digest: bytes
    at_s: float


class Committed(NamedTuple):
    """A message that the consumer received and committed."""

    message_id: Hashable
    digest: bytes
    at_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of the messages.

    All counts except sent, delivered, in_doubt and in_doubt_delivered must be 0.

    sent: the number of messages that were accepted.
    delivered: the number of these messages that arrived.
    out_of_order: the number of messages, not counting repetitions, that arrived after a message that was sent later.
    altered: the number of messages whose label and body have a different SHA-256 than when they were sent.
    strangers: the number of messages that nobody sent.
    in_doubt: the number of messages that may have been accepted; each may arrive once, or not at all.
    in_doubt_delivered: the number of messages in doubt that arrived.
    torn: the number of requests in doubt that were accepted in part; a request must be accepted as a whole or not at
        all.
    twins: the number of messages that got the identifier of another message.
    """

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    altered: int = 0
    strangers: int = 0
    in_doubt: int = 0
    in_doubt_delivered: int = 0
    torn: int = 0
    twins: int = 0

    def found(self, *, once: bool = True) -> Found:
        """Return the broken promises.

        Args:
            once: whether each message must arrive exactly once and in order; if not, it is enough that none is lost or
                altered.
        """
        counts = (
            (RunOracle.LOST, self.lost, "messages lost"),
            (RunOracle.LOST, self.torn, "requests accepted in part"),
            (RunOracle.DOUBLED, self.duplicated * once, "messages delivered more than once"),
            (RunOracle.DOUBLED, self.twins, "messages with the identifier of another"),
            (RunOracle.REORDERED, self.out_of_order * once, "messages out of order"),
            (RunOracle.ALTERED, self.altered, "messages altered"),
            (RunOracle.ALTERED, self.strangers, "messages never sent"),
        )
        texts = ((oracle, f"{count} {what}") for oracle, count, what in counts if count)
        return by_oracle([oracle for oracle, *_ in counts], texts)

    def broken(self) -> list[str]:
        """Return the broken promises in words. Each message must arrive once and in order."""
        return [text for texts in self.found().values() for text in texts]


def digest_of(label: str, body: bytes) -> bytes:
    """Return a digest that distinguishes messages, even empty ones, if each has its own label."""
    return hashlib.sha256(label.encode() + b"\0" + body).digest()


def compare(sent: Sequence[Sent], received: Sequence[Committed]) -> Comparison:
    """Compare sent messages, in the order of sending, with received ones, in the order of receipt."""
    places: dict[Hashable, int] = {}
    doubts: dict[bytes, deque[int]] = {}
    for place, message in enumerate(sent):
        if message.message_id is None:
            doubts.setdefault(message.digest, deque()).append(place)
        else:
            places.setdefault(message.message_id, place)
    doubtful = sum(map(len, doubts.values()))
    twins = len(sent) - doubtful - len(places)
    highest = -1
    duplicated = out_of_order = altered = strangers = 0
    seen: set[int] = set()
    for arrived in received:
        if arrived.message_id not in places and doubts.get(arrived.digest):
            # From here on its identifier is known: a second one is a repetition.
            places[arrived.message_id] = doubts[arrived.digest].popleft()
        place = places.get(arrived.message_id, -1)
        if place < 0:
            strangers += 1
            continue
        altered += arrived.digest != sent[place].digest
        if place in seen:
            duplicated += 1
            continue
        seen.add(place)
        out_of_order += place < highest
        highest = max(highest, place)
    delivered = sum(sent[place].message_id is not None for place in seen)
    return Comparison(
        sent=len(sent) - doubtful,
        delivered=delivered,
        lost=len(sent) - doubtful - delivered,
        duplicated=duplicated,
        out_of_order=out_of_order,
        altered=altered,
        strangers=strangers,
        in_doubt=doubtful,
        in_doubt_delivered=len(seen) - delivered,
        torn=_torn(sent, seen),
        twins=twins,
    )


def _torn(sent: Sequence[Sent], seen: set[int]) -> int:
    """Return how many requests in doubt arrived only in part."""
    outcomes: dict[float, set[bool]] = {}
    for place, message in enumerate(sent):
        if message.message_id is None:
            outcomes.setdefault(message.at_s, set()).add(place in seen)
    return sum(len(outcome) == 2 for outcome in outcomes.values())


def delays_ms(sent: Iterable[Sent], received: Iterable[Committed]) -> list[float]:
    """Return the sorted delays, in milliseconds, between the handover of a message and its receipt by the consumer."""
    sent_at_s = {message.message_id: message.at_s for message in sent}
    return sorted(
        1_000 * (message.at_s - sent_at_s[message.message_id])
        for message in received
        if message.message_id in sent_at_s
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, by the nearest-rank method; 0 if there are no values."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


@dataclass(slots=True)
class WireCount:
    """The packets that crossed the links, according to the capture.

    session_acks: the number of SessionAck packets.
    riding_session_acks: the number of session headers on UserMessages.
    order_acks, final_acks: the number of OrderAcks, and of FinalAcks, that reached the queue manager they were meant
        for.
    forwarded: the number of packets that a node passed on, each of which was compared with the packet that the node
        received.
    crossings: the sorted times at which messages other than acknowledgments crossed, in nanoseconds since 1970, keyed
        by the two addresses.
    faults: what was wrong; empty if all is well.
    """

    packets: int = 0
    session_acks: int = 0
    riding_session_acks: int = 0
    user_messages: int = 0
    order_acks: int = 0
    final_acks: int = 0
    forwarded: int = 0
    crossings: dict[tuple[str, str], list[int]] = field(default_factory=dict, repr=False)
    faults: list[str] = field(default_factory=list)


def examine(path: str | os.PathLike[str], managers: Mapping[str, Guid]) -> WireCount:
    """Count the packets in a capture, and compare each packet that a node passed on with the packet that it received.

    An intermediate passes a message on byte for byte, except for the hop count and the session header of its own
    hop.  [MS-MQQB] 3.1.1.6.2, [MS-MQMQ] 2.2.19.2

    Args:
        managers: the queue manager at each address in the capture.
    """
    count = WireCount()
    # Keep digests, not packets: a capture may be larger than memory.
    came: dict[tuple[str, Guid, int], set[bytes]] = {}
    left: list[tuple[str, Guid, int, bytes]] = []
    for seen, message in _user_messages(path, count):
        source, destination = seen.source.host, seen.destination.host
        user = message.user
        bare = without_session_header(seen.data)
        key = (user.source_queue_manager, user.message_id)
        came.setdefault((destination, *key), set()).add(_digest(_passed_on(bare)))
        if managers.get(source) != user.source_queue_manager:
            left.append((source, *key, _digest(bare)))
        acknowledgment = acknowledgment_in(message)
        if acknowledgment is None:
            count.crossings.setdefault((source, destination), []).append(seen.time_ns)
        elif managers.get(destination) == user.queue_manager_address:
            count.order_acks += isinstance(acknowledgment, OrderAckBody)
            count.final_acks += isinstance(acknowledgment, FinalAckBody)
    for times in count.crossings.values():
        times.sort()
    for host, manager, message_id, digest in left:
        count.forwarded += 1
        originals = came.get((host, manager, message_id), set())
        if digest not in originals:
            what = "was altered on its way" if originals else "left without having come"
            count.faults.append(f"message {message_id} {what} through {host}")
    return count


def _user_messages(
    path: str | os.PathLike[str], count: WireCount
) -> Iterator[tuple[SeenPacket, UserMessage]]:
    """Yield the UserMessages of a capture. Count all packets, and record damaged, missing and foreign data as
    faults.
    """
    reader = PacketReader(read_capture(path))
    try:
        for seen in reader:
            packet = seen.packet
            count.packets += seen.framed
            if packet is None:
                count.faults.append(f"{seen.source} > {seen.destination}: {seen.fault}")
            elif isinstance(packet, SessionAck):
                count.session_acks += 1
            elif isinstance(packet, UserMessage):
                count.user_messages += 1
                count.riding_session_acks += packet.session is not None
                yield seen, packet
    except CaptureError as error:
        count.faults.append(str(error))
    if reader.totals.missing_bytes:
        count.faults.append(f"{reader.totals.missing_bytes} bytes are not in the capture")
    if reader.totals.other_bytes:
        count.faults.append(f"{reader.totals.other_bytes} bytes are not MSMQ")


def _digest(packet: bytes) -> bytes:
    return hashlib.sha256(packet).digest()


def _passed_on(packet: bytes) -> bytes:
    """Return a packet in the form in which a node must pass it on, or no bytes after 29 hops."""
    try:
        return with_hop_counted(packet)
    except UsageError:
        return b""
