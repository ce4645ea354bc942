"""What was promised and what has happened, as somebody sees it who watches every disk and every wire.

The ledger never asks a core. It learns of a message when an application sends it, of its acceptance and arrival when
they are flushed, and of acknowledgments when they leave. invariants.py compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mqproto.effects import POSITION_BITS, Note, QueueKind, Writes
from mqproto.wire import FinalAckBody, OrderAckBody, UserMessage, acknowledgment_in, decode_packet
from simulator.world import invariants
from simulator.world.glimpse import Glimpse, identity, identity_of, place_in_sequence
from simulator.world.links import End
from simulator.world.traffic import KINDS, Message, Promise, body_of

if TYPE_CHECKING:
    from simulator.world.machine import Machine
    from simulator.world.scenario import Burst

SequenceName: TypeAlias = tuple[bytes, int, int]
"""The source's GUID, and time stamp and ordinal of the TxSequenceID."""


@dataclass(slots=True)
class Stream:
    """The messages with one promise from one source to one queue under one name."""

    accepted: int = 0
    arrived: int = -1
    """The order of the last one that was put into its queue."""


@dataclass(slots=True)
class Sequence:
    """The messages of one outgoing sequence as its source has them on disk, in order of number."""

    numbers: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    through: int = 0
    """How many of them, from the first on, are known to have arrived."""


class Ledger:
    """All facts of one world.

    Args:
        breach: called with the name of an invariant and what broke it.
    """

    def __init__(self, breach: Callable[[str, str], None]) -> None:
        self.breach = breach
        self.tally: Counter[str] = Counter()
        self.messages: dict[bytes, Message] = {}
        self.streams: dict[tuple[str, str, str], Stream] = {}
        self.sequences: dict[SequenceName, Sequence] = {}
        self.accepted: list[Message] = []
        self.open_count = 0
        """How many accepted messages with a promise have not met their end."""

    # An application sends

    def submitted(self, machine: Machine, burst: Burst, number: int, index: int, message_id: int) -> Message:
        """A message was handed to a queue manager; it is accepted when the next batch is on disk."""
        message = Message(
            burst, KINDS[burst.kind], identity(machine.guid, message_id), body_of(burst, number, index)
        )
        self.messages[message.identity] = message
        return message

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
        if writes is not None:
            self._written(machine, writes)
        for message in accepted:
            if reason := invariants.accepted_is_on_disk(machine, message):
                self.breach("accepted_is_on_disk", reason)
        for message in received:
            message.receipts += 1
            self.tally["received"] += 1
            if message.kind.promise is not Promise.NOTHING and message.receipts == 1:
                self.open_count -= 1

    def _accepted(self, machine: Machine, message: Message) -> None:
        stream = self.stream_of(message)
        message.order = stream.accepted
        stream.accepted += 1
        message.accepted_ms = machine.now_ms
        self.accepted.append(message)
        self.tally[f"accepted {message.burst.kind}"] += 1
        if message.kind.promise is not Promise.NOTHING:
            self.open_count += 1

    def _written(self, machine: Machine, writes: Writes) -> None:
        queues = machine.disk.queues
        new = {queue.queue: queue for queue in writes.queues}
        held: dict[int, bytes] = {}
        for row in writes.messages:
            queue = queues.get(row.key >> POSITION_BITS) or new[row.key >> POSITION_BITS]
            name = identity_of(row.packet)
            machine.stored.add(name)
            if queue.kind is QueueKind.SEQUENCE:
                self._retained(name, row.packet)
            elif queue.kind is QueueKind.LOCAL:
                self._arrived(machine, name)
            elif queue.kind is QueueKind.HELD:
                held[row.key] = name
        for old, _ in writes.moves:
            moved = machine.disk.row(old)
            assert moved is not None or old in held, f"message {old:#x} moves and is not there"
            self._arrived(machine, identity_of(moved.packet) if moved is not None else held[old])
        if reason := invariants.intermediates_keep_no_sequences(machine, writes):
            self.breach("intermediates_keep_no_sequences", reason)

    def _retained(self, name: bytes, packet: bytes) -> None:
        message = self.messages.get(name)
        place = place_in_sequence(packet)
        if message is None or place is None:
            return
        (time_stamp, ordinal), number = place
        key = name[:16], time_stamp, ordinal
        sequence = self.sequences.get(key)
        if sequence is None:
            sequence = self.sequences[key] = Sequence()
        sequence.numbers.append(number)
        sequence.messages.append(message)

    def _arrived(self, machine: Machine, name: bytes) -> None:
        """A message was put into a local queue."""
        message = self.messages.get(name)
        if message is None:
            return
        message.arrivals += 1
        if message.arrived_ms < 0:
            message.arrived_ms = machine.now_ms
        if reason := invariants.delivered_once_and_in_order(self, machine, message):
            self.breach("delivered_once_and_in_order", reason)

    def stream_of(self, message: Message) -> Stream:
        """The stream that a message belongs to."""
        burst = message.burst
        name = f"{'direct ' if message.kind.direct else ''}{message.kind.queue} {message.kind.promise.name}"
        key = burst.source, burst.target, name
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = Stream()
        return stream

    def handed_out(self, machine: Machine, packet: bytes) -> Message:
        """A message was given to a consumer."""
        message = self.messages.get(identity_of(packet))
        if reason := invariants.handed_out_as_it_was_sent(machine, message, packet):
            self.breach("handed_out_as_it_was_sent", reason)
        assert message is not None
        if message.kind.promise is Promise.NOTHING and message.arrived_ms < 0:
            message.arrived_ms = machine.now_ms
        return message

    # Packets

    def leaves(self, end: End, glimpses: list[Glimpse]) -> None:
        """Packets leave one end of a connection."""
        for glimpse in glimpses:
            if glimpse.session is not None and (
                reason := invariants.acknowledged_is_on_disk(self, end, glimpse.session)
            ):
                self.breach("acknowledged_is_on_disk", reason)
            if not glimpse.is_user:
                continue
            end.sent += 1
            if reason := invariants.windows_are_respected(end):
                self.breach("windows_are_respected", reason)
            if glimpse.identity[:16] != end.machine.guid:
                if reason := invariants.forwarded_as_it_came(end.machine, glimpse):
                    self.breach("forwarded_as_it_came", reason)
            elif glimpse.may_acknowledge:
                self._acknowledges(end.machine, glimpse.packet)

    def _acknowledges(self, machine: Machine, packet: bytes) -> None:
        """An OrderAck or a FinalAck of a node's own leaves it."""
        message = decode_packet(packet)
        assert isinstance(message, UserMessage)
        body = acknowledgment_in(message)
        if isinstance(body, OrderAckBody):
            self.tally["order ack"] += 1
            source = message.user.queue_manager_address
            if reason := invariants.order_acks_leave_no_gap(self, machine, source, body):
                self.breach("order_acks_leave_no_gap", reason)
        elif isinstance(body, FinalAckBody):
            self._final_ack(machine, message.properties.message_class, body)

    def _final_ack(self, machine: Machine, message_class: int, body: FinalAckBody) -> None:
        told = self.messages.get(identity(body.source_guid, body.message_id))
        if told is None:
            return
        if reason := invariants.final_acks_tell_the_truth(machine, told, message_class):
            self.breach("final_acks_tell_the_truth", reason)

    def arrives(self, end: End, glimpses: list[Glimpse]) -> None:
        """Packets arrive at one end of a connection."""
        for glimpse in glimpses:
            header = glimpse.session
            if glimpse.window:
                end.window = glimpse.window
            if header is not None:
                end.acked += (header.ack_sequence_number - end.acked) & 0xFFFF
            if glimpse.is_user:
                machine = end.machine
                if glimpse.recoverable:
                    end.recoverable_arrived += 1
                    end.expected.append((end.recoverable_arrived, glimpse.identity))
                if glimpse.manager != machine.guid:
                    machine.came.setdefault(glimpse.identity, {})[glimpse.body] = glimpse.hop_count

    # Notes

    def noted(self, machine: Machine, notes: list[Note]) -> None:
        """A node has written its log."""
        for note in notes:
            self.tally[f"note {note.name}"] += 1
            if note.name == "message-refused-by-destination":
                message = self.messages.get(identity(machine.guid, int(note.facts["message_id"])))
                if message is not None:
                    if not message.told and message.kind.promise is not Promise.NOTHING:
                        self.open_count -= 1
                    message.told.append(int(note.facts["class"]))
            if reason := invariants.refusals_are_explained(machine, note):
                self.breach("refusals_are_explained", reason)
