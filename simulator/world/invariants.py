"""What must hold in every world, one function each. Each returns what is wrong, or None.

Those before `AT_REST` are asked at the moment when they could break; the others when the calm is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from mqproto.effects import POSITION_BITS, Note, QueueKind, Writes
from mqproto.session.data import ahead
from mqproto.wire import MessageClass, OrderAckBody
from simulator.world.glimpse import Glimpse, SessionGlimpse
from simulator.world.links import End
from simulator.world.traffic import Message, Promise

if TYPE_CHECKING:
    from simulator.world.ledger import Ledger
    from simulator.world.machine import Machine
    from simulator.world.world import World

SEQUENCE_KINDS: Final = frozenset({QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.HELD})
BROKEN_RULES: Final = ("3.1.5.1", "3.1.5.3", "3.1.5.4", "3.1.5.5", "3.1.5.8")
"""Sections that close a session because the peer broke a rule. Peers that keep to the rules never see them."""


# When something is put on disk


def delivered_once_and_in_order(ledger: Ledger, machine: Machine, message: Message) -> str | None:
    """A message is put into its destination's queue once, and a transactional one after all before it."""
    promise = message.kind.promise
    if machine.name != message.burst.target or promise is Promise.REFUSED:
        return f"{message} was delivered at {machine.name}"
    if promise is Promise.NOTHING:
        return None
    if message.arrivals > 1:
        return f"{message} was delivered {message.arrivals} times at {machine.name}"
    if promise is Promise.ONCE_IN_ORDER:
        stream = ledger.stream_of(message)
        if message.order <= stream.arrived:
            return f"{message} was delivered after one that was sent later"
        stream.arrived = message.order
    return None


def accepted_is_on_disk(machine: Machine, message: Message) -> str | None:
    """What an application was told is accepted has been on disk, unless it is express."""
    if message.kind.promise is Promise.NOTHING or message.identity in machine.stored:
        return None
    return f"{message} was accepted by {machine.name} and is not on its disk"


def intermediates_keep_no_sequences(machine: Machine, writes: Writes) -> str | None:
    """Who is neither source nor destination of transactional messages keeps nothing of their sequences."""
    if machine.has_sequences:
        return None
    kinds = {queue.kind for queue in writes.queues} & SEQUENCE_KINDS
    if kinds or writes.outgoing or writes.incoming:
        return (
            f"{machine.name} passes messages on, and keeps {', '.join(sorted(kinds)) or 'a sequence'} of them"
        )
    return None


# When a packet leaves


def acknowledged_is_on_disk(ledger: Ledger, end: End, header: SessionGlimpse) -> str | None:
    """A session acknowledgment calls saved only what has been on disk, or was refused.  [MS-MQQB] 3.1.5.8.7

    A transactional message that came too early for what may be held is acknowledged and dropped: its sender keeps it
    until the OrderAck, which is another invariant's.
    """
    if not header.saved_flags:
        return None
    machine = end.machine
    saved = header.saved_from + header.saved_flags.bit_length() - 1
    last = end.saved_through + ahead(saved, end.saved_through)
    while end.expected and end.expected[0][0] <= last:
        _, name = end.expected.popleft()
        end.saved_through += 1
        message = ledger.messages.get(name)
        if message is None or name in machine.stored:
            continue
        here = message.burst.target == machine.name
        if here and (message.kind.transactional or message.kind.promise is Promise.REFUSED):
            continue
        return f"{machine.name} tells {end.peer.machine.name} that it has saved {message}, which it has not"
    if end.saved_through != last:
        return (
            f"{machine.name} tells {end.peer.machine.name} that it has saved message {last}, which never came"
        )
    return None


def order_acks_leave_no_gap(
    ledger: Ledger, machine: Machine, source: bytes, body: OrderAckBody
) -> str | None:
    """An OrderAck covers only messages that are in their queue on disk, all of them.  [MS-MQQB] 3.1.1.6.2"""
    identifier = body.tx_sequence_id
    sequence = ledger.sequences.get((source, identifier.time_stamp, identifier.ordinal))
    if sequence is None:
        # By a direct format name the GUID of the source does not stand in the packet.
        found = [
            value
            for (_, time_stamp, ordinal), value in ledger.sequences.items()
            if (time_stamp, ordinal) == (identifier.time_stamp, identifier.ordinal)
        ]
        if len(found) > 1:
            return None
        if not found:
            return f"{machine.name} acknowledges {identifier}, which nobody has"
        [sequence] = found
    number = body.tx_sequence_number
    if not sequence.numbers or number > sequence.numbers[-1]:
        return f"{machine.name} acknowledges number {number} of {identifier}, which was never sent"
    while sequence.through < len(sequence.numbers) and sequence.numbers[sequence.through] <= number:
        message = sequence.messages[sequence.through]
        if not message.arrivals and not message.refusals:
            return f"{machine.name} acknowledges all up to number {number}, and {message} has not arrived"
        sequence.through += 1
    return None


def final_acks_tell_the_truth(machine: Machine, message: Message, message_class: int) -> str | None:
    """A FinalAck says that an application has a message for good, or why none ever will.  [MS-MQQB] 3.1.7.2.2"""
    if message_class == MessageClass.ACK_RECEIVE:
        if not message.receipts:
            return f"{machine.name} says that {message} was received, and it was not"
        return None
    if message_class not in message.kind.refusals:
        return (
            f"{machine.name} refuses {message} with class {message_class:#06x}, for which there is no reason"
        )
    message.refusals.append(message_class)
    return None


def windows_are_respected(end: End) -> str | None:
    """No more UserMessages are out than the smaller of both windows.  [MS-MQQB] 3.1.7.1"""
    window = min(end.window, end.machine.settings.window_size)
    if end.sent - end.acked > window:
        return (
            f"{end.machine.name} has {end.sent - end.acked} messages out to {end.peer.machine.name}, "
            f"the window is {window}"
        )
    return None


def forwarded_as_it_came(machine: Machine, glimpse: Glimpse) -> str | None:
    """An intermediate passes a packet on as it came, one hop further.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.2"""
    hop_counts = machine.came.get(glimpse.identity, {})
    before = hop_counts.get(glimpse.body)
    if before is None:
        return (
            f"{machine.name} passes on message {glimpse.identity.hex()}, which did not come to it like this"
        )
    if glimpse.hop_count != before + 1:
        return f"{machine.name} raises the hop count from {before} to {glimpse.hop_count}"
    return None


# When an application receives, and when a node writes its log


def handed_out_as_it_was_sent(machine: Machine, message: Message | None, packet: bytes) -> str | None:
    """A consumer is given only what an application has sent, byte for byte."""
    if message is None:
        return f"{machine.name} hands out a message that nobody sent"
    if message.body not in packet:
        return f"{machine.name} hands out {message} with another body"
    return None


def refusals_are_explained(machine: Machine, note: Note) -> str | None:
    """A session closes for a reason that a peer by the rules can give, and says which; so does a refused message."""
    if note.name == "session-closed":
        section, reason = str(note.facts["section"]), note.facts["reason"]
        if not section or not reason:
            return f"{machine.name} closed a session and does not say why"
        if section.startswith(BROKEN_RULES) and str(note.facts["peer"]) in machine.lines:
            return f"{machine.name} closed its session with {note.facts['peer']} by {section}: {reason}"
    elif note.name == "message-refused" and not note.facts.get("reason"):
        return f"{machine.name} refused a message and does not say why"
    return None


# Now and then


def memory_is_bounded(machine: Machine) -> str | None:
    """A node has a window of each queue in memory, whatever waits; and no more sessions than connections."""
    core, settings = machine.core, machine.settings
    if core is None:
        return None
    slack = settings.window_size + sum(app.consumer.limit for app in machine.applications.values())
    for name, count in residents(core):
        if count > settings.resident_messages + slack:
            return f"{machine.name} has {count} messages of {name} in memory, {settings.resident_messages} may be"
    for sequence in core._arrivals.sequences.values():
        if sequence.held_count > settings.held_messages_limit:
            return (
                f"{machine.name} holds {sequence.held_count} messages, {settings.held_messages_limit} may be"
            )
    if len(core._history) > settings.remove_duplicate_size:
        return f"{machine.name} remembers {len(core._history)} identifiers"
    return None


def residents(core: object) -> Iterator[tuple[str, int]]:
    """How many messages of each queue a core has in memory."""
    for queue in core._outbound:  # type: ignore[attr-defined]
        yield queue.name, len(queue.window)
    for queue in core._arrivals.queues.values():  # type: ignore[attr-defined]
        yield queue.name, len(queue.window)


# When the calm is over


def nothing_is_lost(world: World) -> str | None:
    """What was accepted has been delivered, or was refused and its sender knows why."""
    for message in world.ledger.accepted:
        promise = message.kind.promise
        if promise is Promise.REFUSED:
            if not message.told:
                return f"{message} was not delivered, and {message.burst.source} was not told why"
        elif promise is not Promise.NOTHING and not message.arrivals and not message.told:
            return f"{message} was accepted and never delivered"
    return None


def all_is_received_once(world: World) -> str | None:
    """What was delivered has been received for good by exactly one consumer, once."""
    for message in world.ledger.accepted:
        if message.arrivals and message.kind.promise is not Promise.NOTHING and message.receipts != 1:
            return f"{message} was received {message.receipts} times"
    return None


def nothing_is_retained(world: World) -> str | None:
    """After the calm no disk has a message left, and no queue waits for anything."""
    for machine in world.machines.values():
        left = list(machine.disk.messages)
        if left:
            queue = machine.disk.queues[left[0] >> POSITION_BITS]
            return f"{machine.name} keeps {len(left)} messages, the first in {queue.kind} queue {queue.name}"
        if machine.core is None:
            return f"{machine.name} does not come back"
        status = machine.core.status()
        for outgoing in status.outgoing:
            if outgoing.waiting:
                return f"{machine.name} has {outgoing.waiting} messages for {outgoing.name} waiting"
        for local in status.local:
            if local.waiting or local.unsettled or local.held:
                return f"{machine.name} has messages in {local.name}: {local}"
    return None


AT_REST: Final[tuple[Callable[[World], str | None], ...]] = (
    nothing_is_lost,
    all_is_received_once,
    nothing_is_retained,
)
