"""The status of queues, sequences and sessions, for operators.  [MS-MQDMPR] 3.1.1.3 to 3.1.1.5"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from operator import attrgetter
from typing import Final

from mqproto.base.foreign import TEXT_LIMIT, shown
from mqproto.base.moment import Moment
from mqproto.formatname import PrivateName
from mqproto.manager.parts import Parts
from mqproto.neighbours.calling import Neighbours
from mqproto.neighbours.connections import ConnectionAttempt
from mqproto.neighbours.door import unfinished
from mqproto.neighbours.peerstatus import (
    FloodStatus,
    MetStatus,
    PeerStatus,
    SessionStatus,
    describe_hosts,
    describe_met,
    describe_sessions,
)
from mqproto.neighbours.refusals import suspected
from mqproto.queues.localqueue import LocalQueue
from mqproto.session import InFlight
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.wire import QueueName
from mqproto.wire.guid import Guid, guid_text


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """A queue of this node, a journal or a dead-letter queue.

    waiting: the number of its messages.
    unsettled: how many of these messages consumers have received and not settled.
    held: the number of messages that wait after a gap; they do not count in `waiting`.
    size_bytes: the size of its messages.
    quota_bytes: the limit for that size; None if it has none.
    consumers: the number of applications that wait for a message or have unsettled messages.
    purging: whether an unfinished purge is still deleting messages.
    entered, left: the numbers of messages that have come and left, for whatever reason, since the process began.
    oldest_s: the time, UTC, at which its oldest message was sent, according to the sender; None if there is no message,
        or if it has yet to be read from the store.
    passed_over: the number of messages that are in the store but unknown to the queue; 0 unless mqproto has a bug. The
        caller compares the store with the queue, and fills this in.
    received: the number of messages that applications have received since the process began.
    waited_s: the total time that these messages spent in the queue.
    waited_within: for each of several durations in seconds, the number of these messages that waited no longer than
        that; empty for a journal or a dead-letter queue.
    """

    name: str
    transactional: bool
    waiting: int
    unsettled: int
    held: int
    size_bytes: int = 0
    quota_bytes: int | None = None
    consumers: int = 0
    purging: bool = False
    passed_over: int = 0
    entered: int = 0
    left: int = 0
    oldest_s: int | None = None
    received: int = 0
    waited_s: float = 0.0
    waited_within: list[tuple[float, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OutgoingStatus:
    """An outgoing queue, with its queues for all priorities combined.

    The last group of fields is for a transactional sequence. Fields ending in `_at_ms` are times on the uptime clock,
    and None if nothing is planned; those ending in `_s` are UTC.

    waiting: for a sequence, the number of messages without an OrderAck; otherwise, the number of messages that the next
        hop has not acknowledged.
    unsent: the number of messages to be sent now, including those to be resent because the connection broke.
    in_flight: the number of messages, including copies, that were sent and not yet acknowledged by the next hop.
    next_manager: the GUID of the queue manager at the next hop; empty if it is not known.
    state: connected, connecting, disconnected, on hold, or no route.
    next_hops: all next hops, the preferred one first.
    next_hop: the next hop that is in use, or that will be tried next.
    retry_at_ms: the time at which the first next hop is tried again, even while a later one is in use.
    history: the last attempts to open a session, the oldest first.
    failing_since_s: the time since which messages have waited without a session.
    suspected: the messages, as `GUID\\ordinal`, that the next hop may refuse; they wait to be sent alone.
    is_waited_for: whether the next hop is never called, so that messages leave only when it calls us.
    resent: the number of copies that were sent.
    resend_at_ms, resend_interval_ms: EodResendTime and EodResendInterval.
    resend_attempt: the number of times in a row that no OrderAck has arrived in time.
    last_ack: EodLastAck, the number of the last message that the destination has acknowledged; 0 if there is none.
    last_ack_s: EodLastAckTime; None if no OrderAck has arrived since the node started.
    last_ack_count: EodLastAckCount, the number of OrderAcks that have arrived.
    first_unacked, last_unacked, unacked: EodFirstNonAck, EodLastNonAck and EodNoAckCount, which are about sent
        messages.
    next_number: EodNextSeq.
    identifier: the SequenceIdentifier of the sequence that all these numbers belong to, as (TimeStamp, Ordinal).
    unread: EodNoReadCount, the number of messages that the destination has and that wait for their FinalAck. The caller
        fills this in, because they are only on disk.
    """

    name: str
    sequence: bool
    waiting: int
    next_hop: str
    state: str
    last_failure: str
    last_ack: int
    resent: int
    resend_at_ms: int | None
    next_hops: list[str] = field(default_factory=list)
    retry_at_ms: int | None = None
    history: list[ConnectionAttempt] = field(default_factory=list)
    failing_since_s: int | None = None
    next_manager: str = ""
    unsent: int = 0
    in_flight: int = 0
    suspected: list[str] = field(default_factory=list)
    is_waited_for: bool = False

    resend_interval_ms: int = 0
    resend_attempt: int = 0
    last_ack_s: int | None = None
    last_ack_count: int = 0
    first_unacked: int = 0
    last_unacked: int = 0
    unacked: int = 0
    next_number: int = 0
    unread: int = 0
    identifier: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class IncomingStatus:
    """An incoming sequence of transactional messages.  [MS-MQDMPR] 3.1.1.5

    queue: the local queue of its messages.
    name: the sender's name for that queue.
    source: the sender's queue manager.
    number: the SequenceNumber of the last message that was accepted.
    sequence: the SequenceIdentifier of that message, as (TimeStamp, Ordinal).
    reject_count: the number of messages that came after that one and could not be accepted.
    last_access_s: the time, UTC, at which the last message came.
    held, held_bytes: the number and the size of the messages that are held after a gap.
    missing: the first and the last number of the gap, if messages are held.
    """

    queue: str
    name: str
    source: str
    number: int
    sequence: tuple[int, int]
    reject_count: int
    last_access_s: int
    held: int
    held_bytes: int
    missing: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class DuplicatesStatus:
    """The number of dropped duplicates from one sender.

    source: the sender's queue manager.
    lately: how many of the sender's last messages were dropped, if most of them were; otherwise 0.
    of: how many messages are counted as the last ones; 0 if `lately` is 0.
    """

    source: str
    dropped: int
    lately: int = 0
    of: int = 0


QUEUES_LISTED: Final = 500
SEQUENCES_LISTED: Final = 500
"""The maximum number of incoming sequences, and of outgoing queues, that a node lists.

Peers can make us create more of both. Queues that have a route are preferred, and then those with more messages. Of the
sequences, those that hold more messages are preferred.
"""
SESSIONS_LISTED: Final = 100
"""The maximum number of sessions that a node lists; strangers can open more than that."""
ELSEWHERE_SHOWN: Final = 16
OTHER_S: Final = attrgetter("other_s")
DUPLICATES_SHOWN: Final = 16
"""The maximum number of senders of duplicates to list; those with the most duplicates are listed."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One queue manager at one moment. Counts are since the start of its process.

    uptime_ms, utc_s: that moment; the core has no clock, so its caller fills this in.
    stored_bytes, quota_bytes: the number of bytes on disk, and its limit.
    flushes: the number of times that the store flushed its files to disk for a commit.
    commits_s: the total time of all commits.
    commits_within: for each of several durations in seconds, the number of commits that took no longer than that.
    arrived: the number of messages that arrived in their queues.
    ages_s: the total age of these messages, according to their senders' clocks.
    ages_within: for each of several ages in seconds, the number of these messages that were no older than that.
    free_bytes: the number of free bytes in the file system when it was last asked; None if unknown.
    in_doubt: the names of lists of messages that may have been delivered before.
    disk_is_full: whether messages that must be stored are refused because the disk has no room.
    room_lasts_s: how many seconds the room on the disk lasts if the store grows at its recent rate; None if it does not
        grow.
    floods: the hosts that do far more than others. The caller fills in this field, `flushes`, `commits_s`,
        `commits_within`, `free_bytes`, `in_doubt`, `disk_is_full` and `room_lasts_s`.
    elsewhere: the peers whose GUID has appeared at an address other than the one where they were met, at most
        ELSEWHERE_SHOWN.
    damaged: the number of messages that were damaged in the store.
    refusals: the number of refused messages, by the name of the class that refused them; `refused` counts all of them.
    sessions: the open sessions, at most SESSIONS_LISTED, those with the most unacknowledged messages.
    unlisted, unlisted_waiting: the number of outgoing queues that `outgoing` leaves out, and the number of messages in
        them.
    unlisted_sequences: the number of incoming sequences that `incoming` leaves out.
    unfinished_bytes: the number of bytes of strangers' incomplete packets that are kept.
    duplicates_of: the duplicates of at most DUPLICATES_SHOWN senders, those with the most first; `duplicates` counts
        all duplicates.
    """

    local: list[LocalStatus] = field(default_factory=list)
    outgoing: list[OutgoingStatus] = field(default_factory=list)
    incoming: list[IncomingStatus] = field(default_factory=list)
    uptime_ms: int = 0
    utc_s: int = 0
    stored_bytes: int = 0
    quota_bytes: int = 0
    flushes: int = 0
    disk_is_full: bool = False
    room_lasts_s: int | None = None
    sessions_open: int = 0
    forwarded: int = 0
    refused: int = 0
    expired: int = 0
    damaged: int = 0
    duplicates: int = 0
    duplicates_of: list[DuplicatesStatus] = field(default_factory=list)
    held_ever: int = 0
    overflowed: int = 0
    resent: int = 0
    in_doubt: list[str] = field(default_factory=list)
    floods: list[FloodStatus] = field(default_factory=list)
    elsewhere: list[MetStatus] = field(default_factory=list)
    unlisted: int = 0
    unlisted_waiting: int = 0
    unlisted_sequences: int = 0
    unfinished_bytes: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    sessions: list[SessionStatus] = field(default_factory=list)
    commits_s: float = 0.0
    commits_within: list[tuple[float, int]] = field(default_factory=list)
    free_bytes: int | None = None
    arrived: int = 0
    ages_s: float = 0.0
    ages_within: list[tuple[float, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PeersStatus:
    """Present and former peers, and the resources that all strangers together use.

    blocked: the hosts and networks that get no answer.
    open_queues: the queues that are open to strangers, each with its size in bytes and its limit for strangers.
    sequences, sequences_limit: the number of strangers' sequences, and its limit.
    utc_s: the time of this status.
    met: the peers that are remembered, the most recently seen first.
    """

    peers: list[PeerStatus]
    blocked: list[str]
    open_queues: list[tuple[str, int, int]]
    sequences: int
    sequences_limit: int
    utc_s: int
    met: list[MetStatus] = field(default_factory=list)


def describe(parts: Parts, names: Collection[str] | None = None) -> NodeStatus:
    """Return the status of a queue manager. Nothing changes.

    names: the queues to describe; by default all.
    """
    names = None if names is None else set(names)
    neighbours, queues, incoming = parts.neighbours, parts.queues, parts.incoming
    called = {queue.queue: queue.name for queue in queues}
    held: dict[int, int] = {}
    for sequence in incoming:
        held[sequence.queue] = held.get(sequence.queue, 0) + sequence.held_count
    lanes: dict[str, list[OutgoingQueue]] = {}
    for queue in parts.outbound:
        if names is None or queue.name in names:
            lanes.setdefault(queue.name, []).append(queue)
    listed = _listed(lanes, neighbours)
    sequences = [one for one in incoming if names is None or called.get(one.queue) in names]
    newest = sequences
    if len(sequences) > SEQUENCES_LISTED:
        newest = nlargest(SEQUENCES_LISTED, sequences, attrgetter("held_count", "last_access_s"))
    in_flight = neighbours.in_flight()
    return NodeStatus(
        local=[
            _local(queue, held.get(queue.queue, 0))
            for queue in queues
            if not queues.is_gone(queue) and (names is None or queue.name in names)
        ],
        outgoing=[_outgoing(lanes[name], neighbours, in_flight) for name in listed],
        incoming=[
            _incoming(sequence, called.get(sequence.queue, ""), parts.desk.identity) for sequence in newest
        ],
        unlisted=len(lanes) - len(listed),
        unlisted_waiting=sum(queue.count for name in lanes.keys() - listed for queue in lanes[name]),
        unlisted_sequences=len(sequences) - len(newest),
        unfinished_bytes=unfinished(parts.transports.sessions.values()).total(),
        stored_bytes=parts.arrivals.room.stored_bytes,
        quota_bytes=parts.desk.settings.quota_bytes,
        sessions_open=sum(session.is_open for session in parts.transports.sessions.values()),
        sessions=describe_sessions(parts.transports.sessions.values(), SESSIONS_LISTED),
        refusals=dict(parts.arrivals.refusing.by_class),
        duplicates_of=_duplicates(parts),
        elsewhere=[
            describe_met(parts.met, one)
            for one in nlargest(ELSEWHERE_SHOWN, (one for one in parts.met if one.other), key=OTHER_S)
        ],
        in_doubt=[],
        floods=[],
        disk_is_full=False,
        commits_within=[],
        arrived=queues.ages.count,
        ages_s=queues.ages.total_s,
        ages_within=queues.ages.within,
        **counts(parts),
    )


def _listed(lanes: Mapping[str, list[OutgoingQueue]], neighbours: Neighbours) -> dict[str, None]:
    """Return the names of the outgoing queues to list, the oldest first."""
    if len(lanes) <= QUEUES_LISTED:
        return dict.fromkeys(lanes)
    ranks = {
        name: (neighbours.of_queue(queues[0]) is not None, sum(queue.count for queue in queues))
        for name, queues in lanes.items()
    }
    chosen = set(nlargest(QUEUES_LISTED, ranks, ranks.__getitem__))
    return {name: None for name in lanes if name in chosen}


def describe_peers(parts: Parts, now: Moment) -> PeersStatus:
    """Return the status of all peers that are or were connected. Nothing changes."""
    settings = parts.desk.settings
    found = describe_hosts(
        parts.transports.hosts, parts.routes.peers, parts.outbound, parts.incoming, parts.blocks, now
    )
    return PeersStatus(
        list(found),
        list(parts.blocks.networks),
        [
            (queue.name, queue.size_bytes, settings.strangers_queue_bytes)
            for queue in parts.queues
            if queue.declaration.strangers
        ],
        len(parts.arrivals.in_sequence.places),
        settings.strangers_sequences,
        now.utc_s,
        [describe_met(parts.met, one) for one in sorted(parts.met, key=lambda one: one.last_s, reverse=True)],
    )


def counts(parts: Parts) -> dict[str, int]:
    """Return the counts of a NodeStatus that have accumulated since the process began, keyed by field name."""
    incoming = parts.incoming.counted
    return {
        "forwarded": parts.arrivals.transit.forwarded_count,
        "refused": parts.arrivals.refusing.count,
        "expired": parts.outcomes.expired_count,
        "damaged": parts.outcomes.damaged_count,
        "duplicates": sum(history.duplicate_count for history in parts.histories) + incoming.duplicates,
        "held_ever": incoming.held,
        "overflowed": incoming.overflowed,
        "resent": sum(queue.resends.count for queue in parts.outbound if isinstance(queue, OutgoingSequence)),
    }


def _duplicates(parts: Parts) -> list[DuplicatesStatus]:
    dropped, most = Counter[Guid](), dict[Guid, tuple[int, int]]()
    for history in parts.histories:
        dropped.update(history.duplicates)
        most |= history.drops_most_of()
    for sequence in parts.incoming:
        dropped[sequence.source] += sequence.duplicate_count
    return [
        DuplicatesStatus(guid_text(source), count, *most.get(source, ()))
        for source, count in dropped.most_common(DUPLICATES_SHOWN)
        if count
    ]


def _local(queue: LocalQueue, held: int) -> LocalStatus:
    waits = queue.delays.waits
    return LocalStatus(
        queue.name,
        queue.declaration.transactional,
        queue.count,
        sum(map(len, queue.consumers.unsettled.values())),
        held,
        queue.size_bytes,
        queue.declaration.quota_bytes,
        len(queue.consumers),
        bool(queue.purging),
        entered=queue.entered_count,
        left=queue.left_count,
        oldest_s=queue.oldest_s,
        received=waits.count,
        waited_s=waits.total_s,
        waited_within=[] if queue.is_system else waits.within,
    )


def _outgoing(
    lanes: Sequence[OutgoingQueue], neighbours: Neighbours, in_flight: Mapping[OutgoingQueue, list[InFlight]]
) -> OutgoingStatus:
    """Return the status of all queues with one name, or of all sequences with one name.

    There is one queue for each priority. All of them have the same next hops.
    """
    queue = next((lane for lane in lanes if isinstance(lane, OutgoingSequence) and lane.is_head), lanes[0])
    neighbour = neighbours.of_queue(queue)
    if queue.on_hold:
        state = "on hold"
    elif neighbour is None or not neighbour.hop.host:
        state = "no route"
    elif neighbour.session is None:
        state = "disconnected"
    else:
        state = "connected" if neighbour.session.is_open else "connecting"
    waiting = sum(lane.count for lane in lanes)
    sent = sum(len(in_flight.get(lane, ())) for lane in lanes)
    status = OutgoingStatus(
        name=shown(queue.name, TEXT_LIMIT),
        sequence=False,
        waiting=waiting,
        next_hop=str(neighbour.hop) if neighbour and neighbour.hop.host else "",
        state=state,
        last_failure=neighbour.last_failure if neighbour and not neighbour.connected else "",
        last_ack=0,
        resent=0,
        resend_at_ms=None,
        next_hops=[str(hop) for hop in neighbour.hops] if neighbour else [],
        retry_at_ms=neighbours.retry_at_ms(neighbour) if neighbour else None,
        history=neighbour.history.attempts() if neighbour else [],
        failing_since_s=neighbour.failing_since_s if neighbour else None,
        next_manager=guid_text(neighbour.hop.manager) if neighbour and neighbour.hop.manager else "",
        unsent=waiting - sent,
        in_flight=sent,
        suspected=suspected(neighbour, lanes),
        is_waited_for=neighbour is not None and not neighbours.may_call(neighbour.hop),
    )
    return _with_sequence(status, queue) if isinstance(queue, OutgoingSequence) else status


def _with_sequence(status: OutgoingStatus, sequence: OutgoingSequence) -> OutgoingStatus:
    """Return the status with the fields of OutgoingTransferInfo added.  [MS-MQDMPR] 3.1.1.4"""
    unacked = sequence.numbering.unacked_count
    return replace(
        status,
        sequence=True,
        unsent=status.waiting - unacked,
        last_ack=sequence.cursors.last_ack,
        resent=sequence.resends.count,
        resend_at_ms=sequence.wait.due_ms,
        resend_interval_ms=sequence.wait.interval_ms,
        resend_attempt=sequence.wait.interval_index,
        last_ack_s=sequence.wait.last_ack_s if sequence.wait.ack_count else None,
        last_ack_count=sequence.wait.ack_count,
        first_unacked=sequence.numbering.first_number if unacked else 0,
        last_unacked=sequence.numbering.last_sent_number if unacked else 0,
        unacked=unacked,
        next_number=sequence.next_number,
        identifier=(sequence.identifier.time_stamp, sequence.identifier.ordinal),
    )


def _incoming(sequence: IncomingSequence, queue: str, identity: Guid) -> IncomingStatus:
    return IncomingStatus(
        queue=queue,
        name=destination_name(sequence.name, identity),
        source=guid_text(sequence.source),
        number=sequence.number,
        sequence=(sequence.identifier.time_stamp, sequence.identifier.ordinal),
        reject_count=sequence.reject_count,
        last_access_s=sequence.last_access_s,
        held=sequence.held_count,
        held_bytes=sequence.held_bytes,
        missing=sequence.missing,
    )


def destination_name(name: QueueName, identity: Guid) -> str:
    """Return the format name that a DestinationQueue stands for at the queue manager `identity`.

    It is empty if there is none. A direct name comes from a peer, so a text that is longer than any valid name is cut.
    """
    match name:
        case int():
            return str(PrivateName(identity, name))
        case str():
            return shown(f"DIRECT={name}", TEXT_LIMIT)
        case bytes():
            return f"PUBLIC={guid_text(name)}"
        case _:
            return ""
