"""The rules that must hold in every world at rest. Each rule is a function that returns what is wrong, or None.

The calm ends with `nothing_is_retained`. The phase that may follow it ends with `what_is_held_goes_with_the_next`. Then
the functions in `AT_REST` are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mqproto.simulator.world.network.glimpse import identity_of
from mqproto.simulator.world.network.links import STRANGER
from mqproto.simulator.world.oracle.doubts import is_list_of_doubts, letter_is_true, was_let_go
from mqproto.simulator.world.oracle.invariants import BAD_DST_Q, DELETED, is_systems
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.simulator.world.scenarios.traffic import LATE, Message, Promise
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.turn.effects import QueueKind
from mqproto.wire import MessageClass, guid_text


def all_is_accounted_for(ledger: Ledger) -> str | None:
    """Every accepted message was received, is a dead letter, or ended for a reason that was reported."""
    for message in ledger.accepted:
        kind = message.kind
        if kind.promise is Promise.NOTHING or message.receipts or message.is_unsure or message.was_hurt:
            continue
        if kind.dead_lettered:
            # A message without a transaction for a missing queue is disregarded. Of a stranger's, nothing is kept.
            is_disregarded = not kind.transactional and (
                BAD_DST_Q in message.refusals or (ledger.unmet and bool(message.refusals or message.gone))
            )
            if not message.letters and not is_disregarded:
                return f"{message} was accepted, was not received and is not a dead letter"
        elif message.deleted or message.letters:
            continue
        elif (
            not (message.told or message.refusals or message.lost_copies or message.gone)
            and not message.was_not_encrypted
            and not kind.endings & LATE
        ):
            return f"{message} was accepted and is nowhere"
        elif kind.undeliverable and not (message.told or message.was_not_encrypted):
            return f"{message} was refused, and {message.burst.source} was not told"
    return None


def journals_are_complete(ledger: Ledger) -> str | None:
    """If a message sent with JP set was received, it is in its source's journal exactly once."""
    for message in ledger.accepted:
        # Its source dropped it before it was told what became of it.
        rid = {BAD_DST_Q, DELETED} if message.deleted else {BAD_DST_Q}
        is_gone = message.is_unsure or message.was_hurt
        if is_gone or any(message_class in rid for _, message_class in message.letters):
            continue
        if message.kind.draft.get("journal_positive") and message.journaled != message.receipts:
            return f"{message} was received {message.receipts} times and journaled {message.journaled} times"
    return None


def replies_are_complete(ledger: Ledger) -> str | None:
    """A source that asked about arrival and receipt has the acknowledgments, unless some were set aside.

    An operator can find those that were set aside. An acknowledgment may also be set aside because a node had no room
    for it, and later took others.
    """
    for message in ledger.accepted:
        if not message.kind.acknowledged or message.kind.promise is Promise.NOTHING or message.is_unsure:
            continue
        untold = [
            what
            for happened, message_class, what in (
                (message.arrivals, MessageClass.ACK_REACH_QUEUE, "arrived"),
                (message.receipts, MessageClass.ACK_RECEIVE, "was received"),
            )
            if happened and message_class not in message.replies
        ]
        if len(untold) > message.replies_set_aside:
            return f"{message} {untold[0]}, and its source was not told"
    return None


def nothing_is_retained(ledger: Ledger, nodes: Iterable[WatchedNode]) -> str | None:
    """After the calm, no disk has a message left except in the system's queues, and nothing is waiting."""
    return next((reason for node in nodes if (reason := retained_by(ledger, node))), None)


def held_in_vain(ledger: Ledger, nodes: Iterable[WatchedNode]) -> list[Message]:
    """Return the messages that are held behind a gap that nothing will fill, because their source is done with them."""
    return [
        ledger.messages[identity_of(row.packet)]
        for node in nodes
        for queue in node.disk.queues.values()
        if queue.kind is QueueKind.HELD
        for row in node.disk.rows(queue.queue)
        if was_let_go(ledger, row.packet)
    ]


def what_is_held_goes_with_the_next(ledger: Ledger, nodes: Sequence[WatchedNode]) -> str | None:
    """Once another message has followed the messages that are held in vain, no message is left at all.

    A message that passes over a gap also passes over the messages that are held behind the gap. [MS-MQQB] 3.1.7.1.3
    """
    reason = nothing_is_retained(ledger, nodes)
    held = held_in_vain(ledger, nodes)
    return reason or (f"{held[0]} is held, and another has followed on it" if held else None)


def retained_by(ledger: Ledger, node: WatchedNode) -> str | None:
    """Return a text that says what a node still has to do or to forget; None if there is nothing."""
    core = node.core
    if core is None:
        return f"{node.name} is down"
    for queue in node.disk.queues.values():
        count = node.disk.count(queue.queue)
        if queue.kind is QueueKind.FINAL and node.may_wait_in_vain:
            continue
        if queue.kind is QueueKind.FINAL:
            count -= sum(
                message is not None and message.was_hurt
                for message in (ledger.message_in(row.packet) for row in node.disk.rows(queue.queue))
            )
        if queue.kind is QueueKind.HELD:
            count -= sum(was_let_go(ledger, row.packet) for row in node.disk.rows(queue.queue))
        if count and not (
            is_list_of_doubts(queue)
            or is_for_a_stranger(queue.name)
            or waits_for_a_call(ledger, node, queue.name)
            or (queue.kind is QueueKind.LOCAL and is_systems(queue.name))
        ):
            return f"{node.name} keeps {count} messages in {queue.kind} queue {queue.name}"
    for outgoing in core.inspect().outbound:
        is_owed = not (is_for_a_stranger(outgoing.name) or waits_for_a_call(ledger, node, outgoing.name))
        if outgoing.count and is_owed:
            return f"{node.name} has {outgoing.count} messages for {outgoing.name} waiting"
    for local in core.inspect().queues:
        if (local.count or any(local.consumers.handed)) and not is_systems(local.name):
            return f"{node.name} has messages in {local.name}: {local.count} waiting or not settled"
    for sequence in core.inspect().incoming:
        let_go = sum(was_let_go(ledger, row.packet) for row in node.disk.rows(sequence.held_queue))
        if sequence.held_count > let_go:
            return f"{node.name} holds {sequence.held_count} messages behind a gap"
    return None


def is_for_a_stranger(name: str) -> bool:
    """Return whether an outgoing queue is for a stranger.

    The few answers in such a queue are sent when the stranger calls again.
    """
    return name.startswith(guid_text(guid_of(STRANGER)))


def waits_for_a_call(ledger: Ledger, node: WatchedNode, name: str) -> bool:
    """Return whether an outgoing queue waits for a stranger to call again.

    Such a queue has acknowledgments for a stranger that has hung up and that this node has never called. Read
    literally, [MS-MQQB] 3.1.7.17 opens a session for them. By our reading, a stranger cannot make a node call others.
    So the acknowledgments leave over the next session that the stranger opens. A stranger that waits for an
    acknowledgment still has the message. It calls to resend messages that have no OrderAck (3.1.6.5).
    """
    source = name.removesuffix(ORDER_SUFFIX)
    if not ledger.unmet or source == name:
        return False
    at_hand = {end.peer.host.name for end in node.ends.values() if end.open} | node.called
    return source not in {guid_text(guid_of(host)) for host in at_hand}


def letters_are_true(ledger: Ledger) -> str | None:
    """No message is still in doubt once its destination has reported its outcome."""
    return next((reason for message in ledger.accepted if (reason := letter_is_true(message))), None)


AT_REST: Final[tuple[Callable[[Ledger], str | None], ...]] = (
    all_is_accounted_for,
    letters_are_true,
    journals_are_complete,
    replies_are_complete,
)
