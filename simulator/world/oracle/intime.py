"""Checks that certain events happen in time although nobody asks for them.

Examples are the expiry of a message, a resend, or the return to a route. If such a timer is never started, no other
rule is broken, because something else happens eventually. So these checks limit how long such an event may take.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.manager.whereabouts import Spot
from mqproto.neighbours.trial import PROOFS, REFUSALS
from mqproto.simulator.world.network.glimpse import Glimpse, identity_of
from mqproto.simulator.world.network.links import CONNECT_TIMEOUT_MS
from mqproto.simulator.world.oracle.invariants import is_systems
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.turn.effects import Note, QueueKind, QueueRow
from mqproto.wire import MessageClass, decode_message
from mqproto.wire.glance import TRANSACTIONAL, head_of, reach_deadline_s, receive_deadline_s

LONGEST_S: Final = 5
"""The maximum time, in seconds, that a message may be in a queue after it has expired."""
CLEANUP: Final = "3.1.6.2"
"""The section of the specification under which an unused session is closed."""
LIES_IN: Final = {Spot.IN_QUEUE: QueueKind.LOCAL, Spot.UNSENT: QueueKind.OUTGOING}
"""The kind of the queue, keyed by Spot, if an express message is in a queue and nowhere else."""
ON_THEIR_WAY: Final = frozenset({QueueKind.OUTGOING, QueueKind.SEQUENCE})
SLACK_MS: Final = 10_000
"""The time, in milliseconds, that is allowed for waiting, such as for a flush, a window or a connection."""


CLOSING_MS: Final = 1_000
"""The maximum time, in milliseconds, that it may take to close a session."""


def what_is_over_leaves_in_time(ledger: Ledger, node: WatchedNode) -> str | None:
    """An expired message does not stay long in a queue in which it has to end.

    It has to end in its destination queue, unless a consumer has it. In a queue on its way, it has to end unless it was
    sent on from there, because the next hop may then have it. Only its source may withdraw a transactional message, and
    after a restart the source does not know what it had sent. [MS-MQQB] 3.1.7.1.2
    """
    if node.core is None or node.now_ms - node.up_since_ms < LONGEST_S * 1_000:
        return None
    now_s = node.moment().utc_s
    for queue in node.disk.queues.values():
        if _is_watched(queue, node):
            for row in node.disk.rows(queue.queue):
                deadline_s = _deadline_s(ledger, node, queue.kind, row.packet)
                if deadline_s is not None and now_s > deadline_s + LONGEST_S:
                    message = ledger.messages[identity_of(row.packet)]
                    since_s = now_s - deadline_s
                    return f"{message} is over since {since_s} s and lies in {queue.name} of {node.name}"
    return _over_in_memory(ledger, node, now_s)


def _over_in_memory(ledger: Ledger, node: WatchedNode, now_s: int) -> str | None:
    for found in node.running.whereabouts().unstored():
        kind = None if is_systems(found.queue) else LIES_IN.get(found.spot)
        deadline_s = None if kind is None else _deadline_s(ledger, node, kind, found.packet)
        if deadline_s is not None and now_s > deadline_s + LONGEST_S:
            message = ledger.messages[identity_of(found.packet)]
            return f"{message} is over since {now_s - deadline_s} s and in memory of {node.name}"
    return None


def _is_watched(queue: QueueRow, node: WatchedNode) -> bool:
    if queue.kind is QueueKind.LOCAL:
        return not is_systems(queue.name)
    return queue.kind is QueueKind.OUTGOING or (queue.kind is QueueKind.SEQUENCE and not node.life)


def _deadline_s(ledger: Ledger, node: WatchedNode, kind: QueueKind, packet: bytes) -> int | None:
    """Return the last second at which a message may be in a queue of this kind; None if there is no limit."""
    name = identity_of(packet)
    message = ledger.message_in(packet)
    if message is None or message.is_unsure or message.was_hurt:
        return None  # Nobody knows how long a damaged message may stay; it leaves when it is read.
    if kind is QueueKind.LOCAL:
        return None if message.is_out else receive_deadline_s(packet)
    if name in node.left or (kind is QueueKind.OUTGOING and head_of(packet).flags & TRANSACTIONAL):
        return None
    if node.core is not None and node.core.inspect().neighbours.has_suspects:
        return None  # A message that is passed over is looked at when its turn to be tried comes.
    return reach_deadline_s(packet)


def sessions_in_use_stay(node: WatchedNode, note: Note) -> str | None:
    """A session is cleaned up only if no message has passed over it for the whole interval.  [MS-MQQB] 3.1.6.2

    A node that has paused a queue considers the session unused.  3.1.7.13  So nodes that have ever paused their queues
    are not checked.
    """
    end = node.ends.get(int(note.facts["session"]))
    if note.facts["section"] != CLEANUP or end is None or end.used_ms < 0 or node.was_held:
        return None
    unused_ms, interval_ms = node.now_ms - end.used_ms, node.settings.session_cleanup_timeout_ms
    if unused_ms < interval_ms:
        return f"{node.name} cleans up its session with {end.peer.host.name}, used {unused_ms} ms ago"
    return None


def suspects_wait_for_others(ledger: Ledger, node: WatchedNode, glimpse: Glimpse) -> str | None:
    """A message that a neighbour keeps refusing is not sent again until the neighbour has taken another one.

    This holds after three refusals, if the message was sent alone and refused since the neighbour last took another
    one, and if there is another message to send. Once the neighbour has taken other messages twice, it holds only after
    three refusals in a row, which decide that this message is the refused one.

    This function checks only the first suspect of a life, at a node with one link. It stops checking when a session
    ends for another reason. If another message is unacknowledged when a session ends, or is refused too, the node
    starts its search over. It then sends each suspect alone more often.

    Acknowledgments in the same batch do not count: a node sends them when everything else is under way.
    """
    suspicion = node.suspected.get(glimpse.identity)
    if suspicion is None or suspicion.refused < REFUSALS:
        return None
    if suspicion.alone < (REFUSALS if suspicion.refused >= REFUSALS + PROOFS else 1):
        return None
    if node.tries_anew or len(node.suspected) > 1 or len(node.lines) > 1 or ledger.unmet or node.core is None:
        return None
    others, told, leaving = 0, _told_in_this_batch(node), node.core.inspect().desk.writes.leaving()
    for queue in node.disk.queues.values():
        if queue.kind in ON_THEIR_WAY and queue.name not in node.paused:
            names = [identity_of(row.packet) for row in node.disk.rows(queue.queue) if row.key not in told]
            # Another sequence may have to wait for this one.
            if queue.kind is QueueKind.OUTGOING or glimpse.identity in names:
                others += len(names) - (glimpse.identity in names) - leaving.get(queue.queue, 0)
    if others > 0:
        return f"{node.name} sends again what was refused {suspicion.refused} times, before any of {others} others"
    return None


def _told_in_this_batch(node: WatchedNode) -> set[int]:
    """Return the keys of the acknowledgments that a node itself makes in this batch.

    Acknowledgments are the messages with any class except NORMAL.
    """
    rows = node.batch.writes.messages if node.batch.writes is not None else ()
    return {
        row.key
        for row in rows
        if identity_of(row.packet).startswith(node.guid)
        and decode_message(row.packet).properties.message_class != MessageClass.NORMAL
    }


# In the calm


def what_was_lost_is_sent_again(nodes: Iterable[WatchedNode], calm_ms: int) -> str | None:
    """While a sequence has messages without an OrderAck, the first of them is sent repeatedly.

    This does not hold while a neighbour ends each session because of another message. The node then sends that message
    alone, and does so for longer if the neighbour was full for longer.  [MS-MQQB] 3.1.6.5

    calm_ms: the time at which the last hindrance to messages was removed.
    """
    for node in nodes:
        limit_ms = resend_limit_ms(node.settings)
        if node.core is None or node.now_ms - max(calm_ms, node.up_since_ms) <= limit_ms:
            continue
        for queue in node.disk.queues.values():
            if queue.kind is not QueueKind.SEQUENCE:
                continue
            first = next(node.disk.rows(queue.queue), None)
            if first is None:
                continue
            left_ms = node.left.get(identity_of(first.packet), 0)
            shortened_ms = node.shortened_ms.get(queue.queue, 0)
            idle_ms = node.now_ms - max(calm_ms, node.up_since_ms, left_ms, shortened_ms, node.refused_ms)
            if idle_ms > limit_ms:
                return f"{node.name} has sent nothing of {queue.name} for {idle_ms:,} ms, and it is not acknowledged"
    return None


def unused_sessions_are_closed(nodes: Iterable[WatchedNode], calm_ms: int) -> str | None:
    """An idle session is closed at the second check after its last use.  [MS-MQQB] 3.1.6.2

    The first check still finds that the session was used.

    calm_ms: the time at which the last hindrance to messages was removed.
    """
    for node in nodes:
        limit_ms = 2 * node.settings.session_cleanup_timeout_ms + CLOSING_MS
        for end in node.ends.values() if node.core is not None else ():
            unused_ms = node.now_ms - max(end.used_ms, calm_ms, node.up_since_ms)
            if end.used_ms >= 0 and end.sent == end.acked and unused_ms > limit_ms:
                return f"{node.name} keeps its session with {end.peer.host.name}, unused for {unused_ms:,} ms"
    return None


def resend_limit_ms(settings: Settings) -> int:
    """Return the maximum time, in milliseconds, until a message without an OrderAck is sent again.

    This is the longest resend timeout, plus the time for a handshake that nobody answers, plus SLACK_MS.
    """
    return max(settings.resend_timer_table_ms) + settings.session_initialization_timeout_ms + SLACK_MS


def the_first_way_is_taken_again(nodes: Iterable[WatchedNode]) -> str | None:
    """A node does not keep using a later next hop once its first one is reachable again."""
    for node in nodes:
        if node.core is not None:
            for outgoing in node.core.status().outgoing:
                if outgoing.state == "connected" and outgoing.next_hop != outgoing.next_hops[0]:
                    return f"{node.name} sends to {outgoing.name} by {outgoing.next_hop}, not {outgoing.next_hops[0]}"
    return None


def return_limit_ms(settings: Settings) -> int:
    """Return the maximum time, in milliseconds, until the first route is taken again.

    This assumes that one attempt fails in the storm and the next one succeeds.
    """
    stuck_ms = max(CONNECT_TIMEOUT_MS, settings.session_initialization_timeout_ms)
    return stuck_ms + settings.ack_wait_timeout_ms + settings.try_connect_interval_ms + SLACK_MS
