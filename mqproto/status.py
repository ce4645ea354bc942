"""What waits where, as an operator sees it.  [MS-MQDMPR] 3.1.1.3 to 3.1.1.5"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mqproto.arrivals import Arrivals
from mqproto.connections import ConnectionAttempt
from mqproto.identifiers import MessageIdHistory
from mqproto.localqueues import LocalQueues
from mqproto.neighbours import Neighbours
from mqproto.outbound import Outbound
from mqproto.outcomes import Outcomes
from mqproto.transfer.incoming import IncomingSequence, SequenceKey
from mqproto.transfer.outgoing import OutgoingQueue, OutgoingSequence


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """A queue of this node. `held` are messages that wait behind a gap and do not count in `waiting`."""

    name: str
    transactional: bool
    waiting: int
    unsettled: int
    held: int
    size_bytes: int = 0
    quota_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class OutgoingStatus:
    """A queue on its way out. For a sequence, `waiting` are the messages without an OrderAck.

    next_hops: all that there are, the preferred first; next_hop is the one that serves, or is tried next.
    retry_at_ms: when the first next hop is tried again, on the uptime clock; also while a later one serves.
    history: the last tries to have a session, the oldest first.
    """

    name: str
    priority: int
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


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One queue manager at one moment. The counts begin when its process does."""

    local: list[LocalStatus] = field(default_factory=list)
    outgoing: list[OutgoingStatus] = field(default_factory=list)
    sessions_open: int = 0
    forwarded: int = 0
    refused: int = 0
    expired: int = 0
    duplicates: int = 0
    held_ever: int = 0
    overflowed: int = 0
    resent: int = 0


def describe(
    neighbours: Neighbours,
    outbound: Outbound,
    queues: LocalQueues,
    sequences: Mapping[SequenceKey, IncomingSequence],
    arrivals: Arrivals,
    history: MessageIdHistory,
    outcomes: Outcomes,
) -> NodeStatus:
    """Look at all parts of a queue manager; nothing changes."""
    held: dict[int, int] = {}
    for sequence in sequences.values():
        held[sequence.queue] = held.get(sequence.queue, 0) + sequence.held_count
    incoming = sequences.values()
    return NodeStatus(
        local=[
            LocalStatus(
                queue.name,
                queue.declaration.transactional,
                queue.count,
                sum(len(messages) for messages in queue.unsettled.values()),
                held.get(queue.queue, 0),
                queue.size_bytes,
                queue.declaration.quota_bytes,
            )
            for queue in queues
        ],
        outgoing=[_outgoing(queue, neighbours) for queue in outbound],
        sessions_open=sum(session.is_open for session in neighbours.sessions.values()),
        forwarded=arrivals.forwarded_count,
        refused=arrivals.refused_count,
        expired=outcomes.expired_count,
        duplicates=history.duplicate_count + sum(sequence.duplicate_count for sequence in incoming),
        held_ever=sum(sequence.held_count_total for sequence in incoming),
        overflowed=sum(sequence.overflow_count for sequence in incoming),
        resent=sum(queue.resend_count for queue in outbound if isinstance(queue, OutgoingSequence)),
    )


def _outgoing(queue: OutgoingQueue, neighbours: Neighbours) -> OutgoingStatus:
    neighbour = neighbours.of_queue(queue)
    sequence = queue if isinstance(queue, OutgoingSequence) else None
    if queue.on_hold:
        state = "on hold"
    elif neighbour is None:
        state = "no route"
    elif neighbour.session is None:
        state = "disconnected"
    else:
        state = "connected" if neighbour.session.is_open else "connecting"
    return OutgoingStatus(
        name=queue.name,
        priority=queue.priority,
        sequence=sequence is not None,
        waiting=queue.count,
        next_hop=str(neighbour.hop) if neighbour else "",
        state=state,
        last_failure=neighbour.last_failure if neighbour and not neighbour.connected else "",
        last_ack=sequence.last_ack if sequence else 0,
        resent=sequence.resend_count if sequence else 0,
        resend_at_ms=sequence.resend_at_ms if sequence else None,
        next_hops=[str(hop) for hop in neighbour.hops] if neighbour else [],
        retry_at_ms=neighbours.retry_at_ms(neighbour) if neighbour else None,
        history=neighbour.history.attempts() if neighbour else [],
    )
