"""Checks a node's answers to operators during a run: the state of its queues, and the location of each message.

Operators ask between two turns, when all decisions are on disk. Messages that a node has yet to remove may still be
there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from mqproto.manager.status import LocalStatus, OutgoingStatus
from mqproto.manager.whereabouts import Found, Spot, Whereabouts
from mqproto.queues.localqueue import SystemQueue
from mqproto.simulator.world.network.glimpse import identity_of, place_in_sequence
from mqproto.simulator.world.oracle.doubts import is_list_of_doubts
from mqproto.simulator.world.oracle.invariants import is_systems
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.simulator.world.scenarios.traffic import CHOSEN, ORDERS, Message
from mqproto.transfer.incoming import key_of_held
from mqproto.turn.effects import QueueKind, QueueRow
from mqproto.wire.glance import is_recoverable

SENT: Final = frozenset({Spot.IN_FLIGHT, Spot.AWAITING_ORDER_ACK})
"""The values of Spot that say that a message has left its queue manager."""
OUT: Final = frozenset({QueueKind.OUTGOING, QueueKind.SEQUENCE, QueueKind.FINAL})
NAMED: Final = OUT | {QueueKind.LOCAL}
"""The kinds of queues that an operator knows by name."""


def has_decided(node: WatchedNode) -> bool:
    """Return whether anything that must go to disk has been decided since the last batch.

    An example is the rejection of a message.
    """
    return node.running.inspect().desk.writes._is_urgent


def status_tells_the_truth(ledger: Ledger, node: WatchedNode) -> str | None:
    """Check that a status counts the messages that are there.  [MS-MQDMPR] 3.1.1.2 to 3.1.1.5"""
    core = node.running
    status, unstored = core.status(), Unstored(core.whereabouts())
    held = dict.fromkeys((local.name for local in status.local), 0)
    for incoming in status.incoming:
        held[incoming.queue] = held.get(incoming.queue, 0) + incoming.held
    for local in status.local:
        if local.held != held[local.name]:
            return f"{node.name}: {local.held} held for {local.name}, and {held[local.name]} in its sequences"
        if reason := _miscounted(ledger, node, local, unstored):
            return f"{node.name}: {reason}"
    for outgoing in status.outgoing:
        reason = _miscounted_on_its_way(ledger, node, outgoing, unstored.counts[outgoing.name])
        if reason := reason or _misnumbered(node, outgoing):
            return f"{node.name}: {reason}"
    return None


class Unstored:
    """For each queue, the number and the total size, in bytes, of the messages that are only in memory."""

    def __init__(self, where: Whereabouts) -> None:
        self.counts: Counter[str] = Counter()
        self.sizes_bytes: Counter[str] = Counter()
        for found in where.unstored():
            self.counts[found.queue] += 1
            self.sizes_bytes[found.queue] += len(found.packet)


def _leaving(node: WatchedNode) -> dict[int, int]:
    """Return how many messages, at most, the next commit removes from each queue, by the queue's number.

    The node's counts no longer include these messages, for example because they were purged.
    """
    return node.running.inspect().desk.writes.leaving()


def _rows_of(node: WatchedNode, name: str, *kinds: QueueKind) -> Iterator[QueueRow]:
    return (queue for queue in node.disk.queues.values() if queue.kind in kinds and queue.name == name)


def _miscounted(ledger: Ledger, node: WatchedNode, local: LocalStatus, unstored: Unstored) -> str | None:
    name = local.name
    numbers = [queue.queue for queue in _rows_of(node, name, QueueKind.LOCAL)]
    count = sum(map(node.disk.count, numbers)) + unstored.counts[name]
    if not count - node.running.leaving().get(name, 0) <= local.waiting <= count:
        return f"{local.waiting} messages in {name}, and there are {count}"
    if local.purging and not local.waiting:
        return f"messages of {name} are still to be deleted, and there are none"
    size_bytes = node.disk.size_of(QueueKind.LOCAL, name) + unstored.sizes_bytes[name]
    if local.waiting == count and local.size_bytes != size_bytes:
        return f"{local.size_bytes:,} bytes in {name}, and there are {size_bytes:,}"
    held = sum(node.disk.count(number) for number in _held_for(node, numbers))
    if local.held > held:
        return f"{local.held} messages held for {local.name}, and there are {held}"
    if local.name == ORDERS.name and not (node.forgets_soon or ledger.strangers):
        out = sum(
            message.is_out and not (message.receipts or message.gone) and message.kind.transactional
            for message in ledger.messages.values()
            if message.burst.target == node.name
        )
        if local.unsettled != out:
            return f"{local.unsettled} messages of {local.name} not settled, and consumers have {out}"
    return None


def _held_for(node: WatchedNode, numbers: list[int]) -> Iterator[int]:
    """Yield the number of each queue whose messages are held for one of these local queues."""
    for queue in node.disk.queues.values():
        if queue.kind is QueueKind.HELD and key_of_held(queue.name)[1] in numbers:
            yield queue.queue


def _miscounted_on_its_way(
    ledger: Ledger, node: WatchedNode, outgoing: OutgoingStatus, unstored: int
) -> str | None:
    name, waiting = outgoing.name, outgoing.waiting
    if (outgoing.state == "on hold") != (name in node.paused):
        return f"{name} is {outgoing.state}, and {'' if name in node.paused else 'not '}paused"
    kind = QueueKind.SEQUENCE if outgoing.sequence else QueueKind.OUTGOING
    rows = [row for queue in _rows_of(node, name, kind) for row in node.disk.rows(queue.queue)]
    if outgoing.sequence:
        messages = [ledger.messages.get(identity_of(row.packet)) for row in rows]
        least = sum(message is not None and not ledger.has_ended(node, message) for message in messages)
    else:
        least = unstored + sum(identity_of(row.packet) not in node.left for row in rows)
    least -= sum(_leaving(node).get(queue.queue, 0) for queue in _rows_of(node, name, kind))
    if not least <= waiting <= len(rows) + unstored:
        return f"{waiting} messages wait in {name}, and there are {least} to {len(rows) + unstored}"
    return None


def _misnumbered(node: WatchedNode, outgoing: OutgoingStatus) -> str | None:
    """Return what is wrong with the status of the sent messages that have no OrderAck; None if nothing is.

    The status says how many of them there are, and the first and the last of their numbers.
    """
    first, last, unacked = outgoing.first_unacked, outgoing.last_unacked, outgoing.unacked
    told = f"{outgoing.name} has no OrderAck for {unacked} messages, {first} to {last}"
    if not unacked:
        return f"{told}: there is no such number" if first or last else None
    if not outgoing.last_ack < first <= last < outgoing.next_number or unacked > last - first + 1:
        return (
            f"{told}, the last OrderAck being {outgoing.last_ack} and the next number {outgoing.next_number}"
        )
    rows = [
        row
        for queue in _rows_of(node, outgoing.name, QueueKind.SEQUENCE)
        for row in node.disk.rows(queue.queue)
    ]
    numbers = {place[1] for row in rows if (place := place_in_sequence(row.packet)) is not None}
    return None if {first, last} <= numbers else f"{told}: the store does not have these"


def whereabouts_tell_the_truth(ledger: Ledger, node: WatchedNode) -> str | None:
    """Check that each message on a node's disk is where the node says.

    Only messages that have ended may be left out.
    """
    where = node.running.whereabouts()
    for queue in node.disk.queues.values():
        if queue.kind in NAMED and queue.queue not in where.numbers_of(queue.name):
            return f"{node.name} does not know of its {queue.kind} queue {queue.name}"
        for row in node.disk.rows(queue.queue):
            found = where.stored(row.key, row.packet)
            message = ledger.message_in(row.packet)
            name = identity_of(row.packet)
            if reason := _misplaced(ledger, node, queue, found, message, has_left=node.has_sent(name)):
                spot = "nowhere" if found is None else found.spot.value
                return f"{node.name} says that {message or name.hex()} is {spot}, and {reason}"
    return _misplaced_in_memory(node, where)


def _misplaced_in_memory(node: WatchedNode, where: Whereabouts) -> str | None:
    for found in where.unstored():
        name = identity_of(found.packet)
        if is_recoverable(found.packet):
            return f"{node.name} says that {name.hex()} is in memory alone, and it is recoverable"
        if found.spot in SENT and not node.has_sent(name):
            return f"{node.name} says that {name.hex()} is {found.spot.value}, and it never left"
    return None


def _misplaced(
    ledger: Ledger,
    node: WatchedNode,
    queue: QueueRow,
    found: Found | None,
    message: Message | None,
    *,
    has_left: bool,
) -> str | None:
    """Return why the reported location of a message in the store is wrong; None if it is right."""
    if is_list_of_doubts(queue):
        return None if found is None else "it is not a message"
    if queue.kind in OUT:
        if found is None and queue.queue in _leaving(node):  # For example, it is purged.
            return None
        return _misplaced_on_its_way(ledger, node, queue.kind, found, message, has_left=has_left)
    if found is None:
        # Messages stored only to save memory leave the store with a later commit; a message in the order queue leaves
        # it as soon as the message that it decides is read.
        is_leaving = queue.name in node.running.leaving() and not (message and message.kind.transactional)
        is_leaving |= queue.kind is QueueKind.ORDER and queue.queue in _leaving(node)
        return None if is_leaving else f"it is in {queue.kind} queue {queue.name}"
    if queue.kind is QueueKind.HELD:
        return None if found.spot is Spot.HELD else "it is held"
    if found.queue != queue.name:
        return f"in {found.queue}: it is in {queue.name}"
    is_sources = message is not None and message.burst.source == node.name
    is_letter = queue.name in (SystemQueue.DEADXACT, CHOSEN[True].name)
    if is_letter and message is not None and message.in_doubt and is_sources:
        is_told = found.in_doubt or message.refusals or message.is_unsure or message.was_hurt
        return None if is_told else "it is in doubt"
    is_watched = message is not None and message.kind.transactional and not is_systems(queue.name)
    if message is None or not is_watched or message.was_forgotten:
        return None
    expected = Spot.UNSETTLED if message.is_out else Spot.IN_QUEUE
    return None if found.spot is expected else f"it is {expected.value}"


def _misplaced_on_its_way(
    ledger: Ledger,
    node: WatchedNode,
    kind: QueueKind,
    found: Found | None,
    message: Message | None,
    *,
    has_left: bool,
) -> str | None:
    spot = None if found is None else found.spot
    has_ended = message is None or ledger.has_ended(node, message)
    if kind is QueueKind.OUTGOING:
        return None if has_left or spot is Spot.UNSENT else "it was never sent"
    if (spot is None or spot is Spot.AWAITING_FINAL_ACK) and not has_ended:
        return "its destination has not acknowledged it"
    if kind is QueueKind.FINAL:
        return None if spot is Spot.AWAITING_FINAL_ACK else "its destination has acknowledged it"
    return "it was never sent" if spot in SENT and not has_left else None
