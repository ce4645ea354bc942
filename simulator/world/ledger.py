"""What was promised and what has happened, as somebody sees it who watches every disk and every wire.

The ledger never asks a core. It learns of a message when an application sends it, of its acceptance, arrival and end
when they are flushed, and of acknowledgments when they leave. invariants.py compares.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from mqproto.queues.localqueue import SystemQueue
from mqproto.turn.effects import POSITION_BITS, Delivery, MessageRow, Note, QueueKind, QueueRow, Writes
from mqproto.turn.waypoints import Waypoint
from mqproto.wire import FinalAckBody, MessageClass, OrderAckBody, acknowledgment_in, decode_message
from mqproto.wire.glance import acknowledges
from mqproto.wire.guid import guid_from_text
from simulator.world import invariants
from simulator.world.glimpse import Glimpse, identity, identity_of, place_in_sequence, previous_number_of
from simulator.world.links import End
from simulator.world.scenario import START_UTC_S, Burst
from simulator.world.traffic import KINDS, REPLIES, Kind, Message, Promise, Stream

if TYPE_CHECKING:
    from simulator.world.machine import Machine

SequenceName: TypeAlias = tuple[bytes, int, int]
"""The source's GUID, and time stamp and ordinal of the TxSequenceID."""
LETTERS = frozenset({SystemQueue.DEADXACT.value, SystemQueue.DEADLETTER.value})
WAYPOINTS = frozenset(Waypoint)


@dataclass(slots=True)
class Sequence:
    """The messages of one outgoing sequence as its source has them on disk, in order of number."""

    numbers: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    through: int = 0
    """How many of them, from the first on, are known to have arrived or ended."""


class Ledger:
    """All facts of one world.

    Args:
        breach: called with the name of an invariant and what broke it.
        common_endings: the classes with which any message of this world may end unreceived.
    """

    def __init__(self, breach: Callable[[str, str], None], common_endings: frozenset[int]) -> None:
        self.tally: Counter[str] = Counter()
        self.messages: dict[bytes, Message] = {}
        self.sequences: dict[SequenceName, Sequence] = {}
        self.accepted: list[Message] = []
        self._streams: dict[tuple[str, str, int, bool], Stream] = {}
        self._waiting: dict[tuple[str, int], dict[Message, None]] = {}
        """By target and queue, the messages that can be handed out."""
        self._positions = count(1)
        self._turned_away: list[Message] = []
        """The messages that a batch refuses as their queue is full."""
        self._bridged: set[bytes] = set()
        """The identities of messages that went out over a gap."""
        self.forgeries: set[bytes] = set()
        """Source and content of acknowledgments that are lies; their MessageIDs may change, or be those of others."""
        self.waypoints: list[tuple[str, Note]] = []
        """Where messages have been, by the nodes' own notes: node and note, in order. None unless the setting is on."""
        self.latest_utc_offset_s = 0
        """How far ahead the fastest clock of all has ever been."""
        self._breach = breach
        self._common_endings = common_endings

    def check(self, name: str, reason: str | None) -> None:
        """Stop the world if there is a reason."""
        if reason is not None:
            self._breach(name, reason)

    def endings_of(self, message: Message) -> frozenset[int]:
        """The classes with which a message may end unreceived."""
        return message.kind.endings | self._common_endings

    def latest_utc_s(self, now_ms: int) -> int:
        """The latest date that any clock can have shown by now."""
        return START_UTC_S + now_ms // 1_000 + self.latest_utc_offset_s

    # An application sends

    def submitted(self, machine: Machine, burst: Burst, body: bytes, message_id: int) -> Message:
        """A message was handed to a queue manager; it is accepted when the next batch is on disk."""
        kind = KINDS[burst.kind]
        message = Message(burst, kind, self.stream_of(burst, kind), identity(machine.guid, message_id), body)
        message.accepted_s = machine.moment().utc_s
        self.messages[message.identity] = message
        return message

    def sent_again(self, machine: Machine, letter: Message, message_id: int) -> Message:
        """A dead letter was sent once more, as a message of its own."""
        self.tally["sent again"] += 1
        return self.submitted(machine, letter.burst, letter.body, message_id)

    def stream_of(self, burst: Burst, kind: Kind) -> Stream:
        """The stream that the messages of a burst belong to."""
        key = burst.source, burst.target, kind.queue, kind.direct
        stream = self._streams.get(key)
        if stream is None:
            waiting = self._waiting.setdefault((burst.target, kind.queue), {})
            stream = self._streams[key] = Stream(waiting)
        return stream

    def forgotten(self, submitted: list[Message]) -> None:
        """A node crashed before it accepted these; it may use their MessageIDs for others."""
        for message in submitted:
            self.messages.pop(message.identity, None)

    # A batch is on disk, or would be if it had writes

    def flushing(
        self, machine: Machine, writes: Writes | None, accepted: list[Message], received: list[Message]
    ) -> None:
        """A batch lasts from now on; the disk has not applied its writes yet.

        Args:
            accepted: what applications sent in it.
            received: what they received for good in it.
        """
        for message in accepted:
            self._accepted(machine, message)
        if received:
            self.tally["received"] += len(received)
        for message in received:
            message.receipts += 1
        if writes is not None:
            self._written(machine, writes, received)
        if received:
            for message in received:
                message.stream.waiting.pop(message, None)
            self.check("received_once", invariants.received_once(machine, received))

    def _accepted(self, machine: Machine, message: Message) -> None:
        stream = message.stream
        message.order = stream.accepted
        stream.accepted += 1
        message.accepted_ms = machine.now_ms
        self.accepted.append(message)
        self.tally[f"accepted {message.burst.kind}"] += 1

    def _written(self, machine: Machine, writes: Writes, received: list[Message]) -> None:
        queues = machine.disk.queues
        if writes.queues:
            queues = queues | {queue.queue: queue for queue in writes.queues}
        self._turned_away.clear()
        fresh: dict[int, MessageRow] = {}
        """By key, what is put into local queues, or held for them."""
        for row in writes.messages:
            kind = queues[row.key >> POSITION_BITS].kind
            name = identity_of(row.packet)
            machine.stored.add(name)
            if kind is QueueKind.SEQUENCE:
                self._retained(name, row.packet)
            elif kind is QueueKind.OUTGOING:
                if name.startswith(machine.guid):
                    self._posted(machine, row.packet)
            elif kind is QueueKind.LOCAL or kind is QueueKind.HELD:
                fresh[row.key] = row
        for old, new, _ in writes.moves:
            moved = fresh.pop(old, None) or machine.disk.row(old)
            assert moved is not None, f"message {old:#x} moves and is not there"
            fresh[new] = moved
        for message in self._turned_away:
            reason = invariants.turned_away_only_when_full(machine, message, _sizes(queues, fresh))
            self.check("turned_away_only_when_full", reason)
        if fresh:
            self._put(machine, queues, fresh)
        for first, last in writes.removals:
            queue = queues[first >> POSITION_BITS]
            if queue.kind is QueueKind.LOCAL:
                self._removed(machine, queue, first, last, fresh, received)
            elif machine.has_purged:
                self._deleted(machine, first, last, writes)
        self.check(
            "intermediates_keep_no_sequences", invariants.intermediates_keep_no_sequences(machine, writes)
        )

    def _retained(self, name: bytes, packet: bytes) -> None:
        """A source keeps a message of its own until the OrderAck."""
        message = self.messages.get(name)
        place = place_in_sequence(packet)
        if message is None or place is None:
            return
        message.place = place
        message.size_bytes = len(packet)
        (time_stamp, ordinal), number = place
        key = name[:16], time_stamp, ordinal
        sequence = self.sequences.get(key)
        if sequence is None:
            sequence = self.sequences[key] = Sequence()
        sequence.numbers.append(number)
        sequence.messages.append(message)

    def _put(self, machine: Machine, queues: Mapping[int, QueueRow], fresh: Mapping[int, MessageRow]) -> None:
        """Messages were put into local queues, or are held for them; by key."""
        arrived, replies = [], []
        for key in sorted(fresh):
            queue, packet = queues[key >> POSITION_BITS], fresh[key].packet
            if queue.name == REPLIES.name:
                replies.append(packet)
            elif queue.kind is QueueKind.LOCAL:
                name = identity_of(packet)
                message = self.messages.get(name)
                if message is None:
                    continue
                if queue.name in LETTERS:
                    self._is_dead_letter(machine, message, packet)
                elif queue.name == SystemQueue.JOURNAL:
                    message.journaled += 1
                    self.tally["journaled"] += 1
                else:
                    message.arrivals += 1
                    if message.arrivals > 1 and message.was_forgotten:
                        self.tally["came again when it was forgotten"] += 1
                    message.life = machine.committed_in
                    message.position = next(self._positions)
                    self.waits(message)
                    arrived.append(message)
        if arrived:
            reason = invariants.delivered_once_and_in_order(machine, arrived)
            self.check("delivered_once_and_in_order", reason)
        for packet in replies:
            self._reply(machine, packet)

    def _is_dead_letter(self, machine: Machine, message: Message, packet: bytes) -> None:
        decoded = decode_message(packet)
        message_class = decoded.properties.message_class
        message.letters.append((machine.name, message_class))
        self.tally["dead letter"] += 1
        self.check(
            "endings_have_reasons", invariants.endings_have_reasons(self, machine, message, message_class)
        )

    def _reply(self, machine: Machine, packet: bytes) -> None:
        """An administration acknowledgment came to the source of a message."""
        reply = decode_message(packet)
        message = self.messages.get(reply.properties.correlation_id)
        message_class = reply.properties.message_class
        self.tally["administration acknowledgment"] += 1
        if (
            message is not None
            and message_class in message.replies
            and (message.was_forgotten or machine.may_have_forgotten(identity_of(packet)))
        ):
            return
        self.check(
            "replies_tell_the_truth", invariants.replies_tell_the_truth(machine, message, message_class)
        )
        if message is not None:
            message.replies.append(message_class)

    def _posted(self, machine: Machine, packet: bytes) -> None:
        """A node has something of its own to send; if it is a FinalAck, it is as good as said."""
        if not acknowledges(packet):
            return
        glimpse = Glimpse(packet)
        if glimpse.hop_count or self._is_forged(glimpse):
            return  # What comes back to its source, and goes on, was said before.
        ack = decode_message(packet)
        body = acknowledgment_in(ack)
        message = (
            self.messages.get(identity(body.source_guid, body.message_id))
            if isinstance(body, FinalAckBody)
            else None
        )
        if message is None:
            return
        message_class = ack.properties.message_class
        self.tally["final ack"] += 1
        if message_class == MessageClass.NACK_Q_EXCEED_QUOTA:
            self.tally["turned away from a full queue"] += 1
            self._turned_away.append(message)
        self.check(
            "final_acks_tell_the_truth",
            invariants.final_acks_tell_the_truth(self, machine, message, message_class),
        )

    def _removed(
        self,
        machine: Machine,
        queue: QueueRow,
        first: int,
        last: int,
        fresh: Mapping[int, MessageRow],
        received: list[Message],
    ) -> None:
        """Messages leave a local queue: received in this batch, or else ended."""
        if queue.name in invariants.SYSTEM_QUEUES:
            return
        rows = machine.disk.between(first, last)
        rows += [row for key, row in fresh.items() if first <= key <= last]
        for row in rows:
            message = self.messages.get(identity_of(row.packet))
            if message is not None and message not in received:
                message.gone += 1
                message.stream.waiting.pop(message, None)
                self.tally["ended in its queue"] += 1
                self.check(
                    "endings_have_reasons", invariants.endings_have_reasons(self, machine, message, None)
                )

    def _deleted(self, machine: Machine, first: int, last: int, writes: Writes) -> None:
        """Messages leave an outgoing queue where an operator has deleted some: perhaps these."""
        packets = [row.packet for row in machine.disk.between(first, last)]
        packets += [row.packet for row in writes.messages if first <= row.key <= last]
        for packet in packets:
            message = self.messages.get(identity_of(packet))
            if message is not None and not message.deleted:
                message.deleted = True
                self.tally["left an outgoing queue that was purged"] += 1

    # Applications receive

    def handed_out(self, machine: Machine, delivery: Delivery) -> list[Message]:
        """A consumer will be given these; back come those that applications have sent."""
        packets = [received.packet for received in delivery.messages]
        handed = [(self.messages.get(identity_of(packet)), packet) for packet in packets]
        reason = invariants.handed_out_as_it_was_sent(machine, handed)
        self.check("handed_out_as_it_was_sent", reason)
        for (message, _), received in zip(handed, delivery.messages, strict=True):
            if message is not None:
                message.delivery_count = received.delivery_count
                self.check("delivery_counts_are_true", invariants.delivery_counts_are_true(machine, message))
        messages = [message for message, _ in handed if message is not None]
        for message in messages:
            waiting = message.stream.waiting
            waiting.pop(message, None)
            if not message.kind.transactional:
                reason = invariants.higher_priorities_go_first(message, waiting)
                self.check("higher_priorities_go_first", reason)
            message.is_out = True
        return messages

    def given(self, machine: Machine, messages: list[Message]) -> None:
        """A consumer has these now; what left the queue in the same batch is on disk."""
        self.check("handed_out_in_order", invariants.handed_out_in_order(machine, messages))

    def given_back(self, messages: list[Message]) -> None:
        """A consumer has rolled back, or gone away."""
        waiting = messages[0].stream.waiting if messages else {}
        if any(other.position < messages[-1].position for other in waiting):
            self.tally["given back behind others"] += 1
        for message in messages:
            message.is_out = False
            message.given_back += 1
            self.waits(message)

    def crashed(self, machine: Machine) -> None:
        """A node knows no more what it has handed out."""
        for message in self.messages.values():
            if message.is_out and message.burst.target == machine.name:
                message.is_out = False
                self.waits(message)

    def waits(self, message: Message) -> None:
        """A message is in its queue and can be handed out, if it is still there; express ones may not be."""
        if (
            message.arrivals
            and not (message.receipts or message.gone or message.is_out)
            and message.kind.promise is not Promise.NOTHING
        ):
            message.stream.waiting[message] = None

    # Packets

    def leaves(self, end: End, glimpses: list[Glimpse]) -> None:
        """Packets leave one end of a connection."""
        machine = end.machine
        guid, sent = machine.guid, end.sent
        if machine.paused:
            reason = invariants.paused_queues_send_nothing(self, machine, glimpses)
            self.check("paused_queues_send_nothing", reason)
        foreign = []
        for glimpse in glimpses:
            if glimpse.session is not None:
                reason = invariants.acknowledged_is_on_disk(self, end, glimpse.session)
                self.check("acknowledged_is_on_disk", reason)
            if not glimpse.is_user:
                continue
            end.sent += 1
            if not glimpse.identity.startswith(guid) or glimpse.hop_count:
                foreign.append(glimpse)
                if glimpse.identity.startswith(guid):
                    self.tally["came back to its source"] += 1
            elif acknowledges(glimpse.packet):
                if not self._is_forged(glimpse):
                    self._acknowledged(machine, glimpse.packet)
            else:
                self._goes_out(machine, glimpse)
        if foreign:
            self.check("forwarded_as_it_came", invariants.forwarded_as_it_came(machine, foreign))
        if end.sent > sent:  # Nothing arrives in between, so the most are out behind the last of them.
            self.check("windows_are_respected", invariants.windows_are_respected(end))

    def _is_forged(self, glimpse: Glimpse) -> bool:
        return glimpse.identity[:16] + glimpse.body in self.forgeries

    def _acknowledged(self, machine: Machine, packet: bytes) -> None:
        """An OrderAck of a node's own leaves it."""
        message = decode_message(packet)
        body = acknowledgment_in(message)
        if isinstance(body, OrderAckBody):
            self.tally["order ack"] += 1
            source = message.user.queue_manager_address
            reason = invariants.order_acks_leave_no_gap(self, machine, source, body)
            self.check("order_acks_leave_no_gap", reason)

    def _goes_out(self, machine: Machine, glimpse: Glimpse) -> None:
        """A message of an application leaves its source, for the first time or again."""
        place = place_in_sequence(glimpse.packet)
        if place is None or (sequence := self.sequences.get((machine.guid, *place[0]))) is None:
            return
        first = bisect_right(sequence.numbers, previous_number_of(glimpse.packet))
        passed = sequence.messages[first : bisect_left(sequence.numbers, place[1])]
        named = sequence.messages[first - 1] if first else None
        reason = invariants.gaps_are_bridged(self, machine, glimpse, passed, named)
        self.check("gaps_are_bridged", reason)
        if passed:
            again = glimpse.identity in self._bridged
            self.tally["bridged again" if again else "bridged"] += 1
            self._bridged.add(glimpse.identity)

    def sequences_named(self, source: bytes, time_stamp: int, ordinal: int) -> Iterator[Sequence]:
        """The sequences that an OrderAck can mean: by a direct format name, the source's GUID is not in the packet."""
        if (source, time_stamp, ordinal) in self.sequences:
            yield self.sequences[source, time_stamp, ordinal]
            return
        for (_, *key), sequence in self.sequences.items():
            if key == [time_stamp, ordinal]:
                yield sequence

    def has_ended(self, machine: Machine, message: Message) -> bool:
        """Whether a sequence may go on behind a message: it has arrived, was refused, or its time is over."""
        if message.arrivals or message.refusals or message.letters or message.deleted:
            return True
        deadline_s = self.reach_deadline_s(message)
        return deadline_s is not None and self.latest_utc_s(machine.now_ms) > deadline_s

    def reach_deadline_s(self, message: Message) -> int | None:
        """The last second at which a message may be on its way, None for ever."""
        draft = message.kind.draft
        limits = [draft[name] for name in ("time_to_reach_queue_s", "time_to_be_received_s") if name in draft]
        return message.accepted_s + min(limits) if limits else None

    def arrives(self, end: End, glimpses: list[Glimpse]) -> None:
        """Packets arrive at one end of a connection."""
        machine = end.machine
        forgets_soon = machine.forgets_soon
        for glimpse in glimpses:
            if glimpse.is_user:
                if forgets_soon and place_in_sequence(glimpse.packet) is None:
                    machine.came_count += 1
                    machine.came_at.setdefault(glimpse.identity, []).append(machine.came_count)
                    message = self.messages.get(glimpse.identity)
                    if message is not None and machine.name == message.burst.target:
                        message.was_forgotten |= machine.may_have_forgotten(glimpse.identity)
                if glimpse.recoverable:
                    end.recoverable_arrived += 1
                    end.expected.append((end.recoverable_arrived, glimpse.identity))
                if glimpse.manager != machine.guid:
                    machine.came.setdefault((glimpse.identity, glimpse.body), set()).add(glimpse.hop_count)
            if glimpse.window:
                end.window = glimpse.window
            if glimpse.session is not None:
                end.acked += (glimpse.session.ack_sequence_number - end.acked) & 0xFFFF

    # Notes

    def noted(self, machine: Machine, notes: list[Note]) -> None:
        """A node has written its log."""
        for note in notes:
            if note.name in WAYPOINTS:
                self.waypoints.append((machine.name, note))
                continue
            self.tally[f"note {note.name}"] += 1
            facts = note.facts
            if note.name == "message-refused-by-destination":
                message = self.messages.get(identity(machine.guid, int(facts["message_id"])))
                if message is not None:
                    message.told.append(int(facts["class"]))
            elif note.name == "message-refused":
                source = guid_from_text(str(facts["source"]))
                message = self.messages.get(identity(source, int(facts["message_id"])))
                if message is not None and not message.kind.transactional:
                    message.refusals.append(invariants.class_named(str(facts["reason"])))
            self.check("refusals_are_explained", invariants.refusals_are_explained(machine, note))


def _sizes(queues: Mapping[int, QueueRow], rows: Mapping[int, MessageRow]) -> Counter[str]:
    """How many bytes rows bring to each local queue, by its name."""
    sizes_bytes: Counter[str] = Counter()
    for key, row in rows.items():
        queue = queues[key >> POSITION_BITS]
        if queue.kind is QueueKind.LOCAL:
            sizes_bytes[queue.name] += len(row.packet)
    return sizes_bytes
