"""Processes the acknowledgments of the messages that we sent: OrderAcks and FinalAcks.

The rules are in [MS-MQQB] 3.1.5.6 and 3.1.5.7.
"""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from mqproto.base.moment import Moment
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.manager.ownsequences import OwnSequences
from mqproto.session import Remote
from mqproto.transfer.doubts import Doubt, Doubts
from mqproto.transfer.readings import may_be_ours, meant_by
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.spellings import IncomingSequences
from mqproto.transfer.succession import LAST_ORDINAL, Succession
from mqproto.turn.desk import Desk
from mqproto.turn.effects import (
    MessageRow,
    Note,
    QueueKind,
    QueueRow,
    ReadBy,
    ReadPage,
    StoredState,
    message_key,
)
from mqproto.turn.endings import Ending, Place
from mqproto.turn.posted import PostedMessages
from mqproto.turn.waypoints import class_name
from mqproto.wire import (
    FinalAckBody,
    MessageClass,
    OrderAckBody,
    TxSequenceId,
    UserMessage,
    acknowledgment_in,
    decode_message,
    with_message_class,
    without_session_header,
)
from mqproto.wire.guid import Guid, guid_text
from mqproto.wire.messages import POSTED_QUEUE, asks_final_ack

ORDER_QUEUE_NAME: Final = "order_queue$"
ORDER: Final = (QueueKind.ORDER, ORDER_QUEUE_NAME)
ENDED_ON_ITS_WAY: Final = frozenset(
    {MessageClass.NACK_HOP_COUNT_EXCEEDED, MessageClass.NACK_REACH_QUEUE_TIMEOUT}
)
"""The classes with which a queue manager other than the destination may end a message.  3.1.5.8.2, 3.1.1.1.1.8"""


class Word(NamedTuple):
    """The outcome of one message as reported by an acknowledgment. It is kept until we act on it.

    position: the FinalAck's position in the order queue. An OrderAck is not queued, so it has position 0; it reports
        that the message reached its queue.
    of_destination: whether the acknowledgment comes from the destination, rather than from the queue manager where a
        copy of the message ended.
    place: the TxSequenceID and the number in a FinalAck, by which a message in doubt is found.
    """

    position: int
    message_class: int
    of_destination: bool = True
    place: tuple[TxSequenceId, int] | None = None


class AcknowledgedMessages:
    """Reads each message whose outcome is decided by an acknowledgment, and ends the message.

    A message that was acknowledged by an OrderAck waits on disk, in the AwaitingFinalACKTable, and is read when its
    FinalAck arrives. The FinalAck stays in the order queue, on disk, until the outcome is on disk too: as soon as we
    have acknowledged a FinalAck, its sender may forget the outcome.

    The dead letter of a message in doubt is read in the same way. After an OrderAck, the message waits for its FinalAck
    like any other; a FinalAck decides how it ends.
    """

    def __init__(
        self,
        desk: Desk,
        outbound: Outbound,
        sequences: OwnSequences,
        queues: LocalQueues,
        doubts: Doubts,
        state: StoredState,
    ) -> None:
        self._desk = desk
        self._outbound = outbound
        self._sequences = sequences
        self._queues = queues
        self._doubts = doubts
        self._expires_sent = desk.settings.follows_figures
        self.reads: list[ReadPage] = []
        self.proven: list[tuple[TxSequenceId, int, int]] = []
        """The ranges of numbers, by sequence, that OrderAcks of this turn have acknowledged."""
        self._undecided: dict[tuple[int, int], Word] = {}
        """The reported outcomes to act on, keyed by final queue and MessageID, or by the lane and position of a dead
        letter.
        """
        known = next((row for row in state.queues if (row.kind, row.name) == ORDER), None)
        self._queue, self._last = (known.queue, known.last_used) if known is not None else (0, 0)
        for key, packet in state.resident:
            if key // message_key(1, 0) == self._queue:
                self._resume(key - message_key(self._queue, 0), packet)

    def arrived(self, identifier: TxSequenceId, first: int, last: int) -> bool:
        """Start to resolve the messages in doubt that an OrderAck covers. Return whether there are any."""
        if self._expires_sent:
            self.proven.append((identifier, first, last))
        return identifier in self._doubts.by_place and self._decide_doubts(identifier, first, last)

    def _decide_doubts(self, identifier: TxSequenceId, first: int, last: int) -> bool:
        doubts = list(self._doubts.between(identifier, first, last))
        for doubt in doubts:
            self.decide(*doubt.place, Word(0, MessageClass.ACK_REACH_QUEUE))
        return bool(doubts)

    def keep(
        self, sequence: OutgoingSequence, body: FinalAckBody, word: Word, message: UserMessage, packet: bytes
    ) -> None:
        """Keep a FinalAck until the outcome that it reports is on disk, and read the message that it is about.

        A message whose copies were refused together gets several answers. The first one from the destination counts.
        """
        place = self._place_of(sequence, body)
        if not place[0]:
            return
        before = self._undecided.get(place)
        if before is not None and before.position:
            if before.of_destination or not word.of_destination:
                return
            self._desk.writes.urgent().remove(self._queue, before.position, before.position)
        if not self._queue:
            self._queue = self._outbound.numbers.next_queue()
            self._desk.writes.urgent().queues.append(QueueRow(self._queue, QueueKind.ORDER, ORDER_QUEUE_NAME))
        self._last += 1
        key = message_key(self._queue, self._last)
        row = MessageRow(key, without_session_header(packet), message.user.message_id, final_ack=False)
        self._desk.writes.put([row], ORDER_QUEUE_NAME)
        self.decide(*place, word._replace(position=self._last, place=_place_in(body)))

    def _place_of(self, sequence: OutgoingSequence, body: FinalAckBody) -> tuple[int, int]:
        """Return the queue and position of the message that a FinalAck is about.

        The queue is 0 if there is no such queue.
        """
        doubt = self._doubts.at(body.tx_sequence_id, body.tx_sequence_number)
        if doubt is not None and doubt.message_id == body.message_id:
            return doubt.place
        return sequence.final_queue, body.message_id

    def _resume(self, position: int, packet: bytes) -> None:
        """Continue with a FinalAck that had not been acted on before the node stopped."""
        message = decode_message(packet)
        body = acknowledgment_in(message)
        assert isinstance(body, FinalAckBody)
        succession = self._sequences.succession(body.tx_sequence_id.time_stamp)
        assert succession is not None, "it was kept for a sequence"
        sequence = succession.speaking_of(body.tx_sequence_id)
        message_class = message.properties.message_class
        named = sequence.destination_manager in (None, message.user.source_queue_manager)
        by_destination = named or message_class not in ENDED_ON_ITS_WAY
        word = Word(position, message_class, by_destination, _place_in(body))
        self.decide(*self._place_of(sequence, body), word)

    def decide(self, queue: int, place: int, word: Word) -> None:
        """Read the message that a reported outcome is about, and then act on that outcome.

        If several outcomes are reported, that of a FinalAck replaces the others.
        """
        if (queue, place) not in self._undecided:
            self.reads.append(ReadPage(queue, place - 1, 1, 1, ReadBy.OUTCOME))
        elif not word.position:
            return  # The FinalAck says more.
        self._undecided[queue, place] = word

    def pages(self) -> list[ReadPage]:
        """Return the pages to read now, one for each message."""
        if self.proven:
            # A message that came to be in doubt in this turn had no dead letter when its OrderAck came.
            for proven in self.proven:
                self._decide_doubts(*proven)
            self.proven.clear()
        reads, self.reads = self.reads, []
        return reads

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> None:
        """Take a message that was read because an acknowledgment decides its outcome.

        `rows` lacks the message if it is no longer there.
        """
        message_id = page.after + 1
        word = self._undecided.pop((page.queue, message_id))
        found = [packet for position, packet, _ in rows if position == message_id]
        is_letters = self._doubts.are_in(page.queue)
        if not is_letters and not found and word.of_destination and word.place is not None:
            doubt = self._doubts.at(*word.place)
            if doubt is not None and doubt.message_id == message_id:
                self.decide(*doubt.place, word)  # It has become a dead letter since.
                return
        if word.position:
            self._desk.writes.urgent().remove(self._queue, word.position, word.position)
        sequence = self._outbound.queue(page.queue)
        if isinstance(sequence, OutgoingSequence):
            self._ends_here(sequence, message_id, found)
        elif is_letters:
            doubt = self._doubts.of_letter(page.queue, message_id)
            if doubt is not None:
                self._doubt_is_over(doubt, word.message_class, found)
        elif found:
            # If the message is not there, it asked for no FinalAck, or its outcome was known before.
            self._desk.writes.urgent().remove(page.queue, message_id, message_id)
            in_doubt = not word.of_destination
            ending = Ending(found[0], word.message_class, Place.ELSEWHERE, in_doubt=in_doubt)
            self._desk.endings.append(ending)

    def _ends_here(self, sequence: OutgoingSequence, position: int, packets: list[bytes]) -> None:
        """End our own message, because a copy of it came back.

        It is in doubt: another copy may have taken another route.
        """
        if not packets or not sequence.delete(position, self._desk.writes):
            return
        self._outbound.wake(sequence)
        message = decode_message(packets[0])
        facts: dict[str, str | int] = {"queue": sequence.name, "message_id": message.user.message_id}
        self._desk.notes.append(Note("message-came-back", facts))
        packet = sequence.numbering.with_its_place(position, packets[0])
        ending = Ending(packet, MessageClass.NACK_HOP_COUNT_EXCEEDED, Place.ON_THE_WAY, in_doubt=True)
        self._desk.endings.append(ending)

    def _doubt_is_over(self, doubt: Doubt, message_class: int, letters: list[bytes]) -> None:
        """Remove the dead letter of a message in doubt, because a destination has reported the outcome.

        Nothing is removed if the letter is no longer there. An application that has received the letter without
        settling it will find nothing to settle.
        """
        self._doubts.forget(doubt)
        facts: dict[str, str | int] = {"message_id": doubt.message_id, "class": class_name(message_class)}
        found = self._queues.of_lane(doubt.lane)
        recalled = letters and found and found[0].recall(doubt.letter, letters[0])
        letter = "left" if recalled else "was gone"
        self._desk.notes.append(Note("doubt-is-over", {**facts, "letter": letter}))
        if not recalled or found is None:
            return
        packet = with_message_class(letters[0], MessageClass.NORMAL)
        self._desk.waypoints.recalled(packet, found[0].name, message_class)
        if message_class != MessageClass.ACK_REACH_QUEUE:
            self._desk.endings.append(Ending(packet, message_class, Place.ELSEWHERE))
            return
        if not asks_final_ack(decode_message(packet)):
            return
        succession = self._sequences.succession(doubt.identifier.time_stamp)
        assert succession is not None, "its OrderAck was for one of them"
        sequence = succession.speaking_of(doubt.identifier)
        key = message_key(self._sequences.final_queue_of(sequence), doubt.message_id)
        self._desk.writes.urgent().messages.append(MessageRow(key, packet, doubt.message_id, final_ack=True))


def _place_in(body: FinalAckBody) -> tuple[TxSequenceId, int]:
    return body.tx_sequence_id, body.tx_sequence_number


class Confirmations:
    """Takes OrderAcks and FinalAcks, and starts the decision about the message that each FinalAck names.

    An acknowledgment from a queue manager on the route is weaker. It reports the end of one copy, but other copies may
    have taken another route. It counts only while we await the OrderAck, and leaves the message in doubt.
    """

    def __init__(
        self,
        desk: Desk,
        outbound: Outbound,
        sequences: OwnSequences,
        incoming: IncomingSequences,
        acknowledged: AcknowledgedMessages,
        posted: PostedMessages,
    ) -> None:
        self._desk = desk
        self._outbound = outbound
        self._sequences = sequences
        self._incoming = incoming
        self._acknowledged = acknowledged
        self._posted = posted

    def take(self, message: UserMessage, packet: bytes, remote: Remote, now: Moment) -> bool:
        """Process an OrderAck, a FinalAck or the acknowledgment of a posted message. Return whether it was one of them.

        An acknowledgment normally counts only if its source is the destination of the sequence. The neighbour that
        brings it must be that queue manager, or a router that is declared to bring its messages. Our own messages may
        take another route to the destination.

        There are two exceptions. If the destination is known only by a direct name, any peer that calls from that
        name's host speaks for it. Until the destination has acknowledged a message, a queue manager on the route may
        report in a FinalAck that a copy of the message ended there.
        """
        acknowledgment = acknowledgment_in(message)
        if isinstance(acknowledgment, OrderAckBody):
            self._order_ack(acknowledgment, message.user.source_queue_manager, remote, now)
        elif isinstance(acknowledgment, FinalAckBody):
            self._final_ack(acknowledgment, message, packet, remote, now)
        elif self._posted.is_address(message.user.destination_queue) and (
            remote.is_proven or self._outbound.has_invited(remote, POSTED_QUEUE)
        ):
            self._posted.arrived(message, now)
        else:
            return False
        return True

    def came_back(self, message: UserMessage) -> None:
        """End one of our own messages, because a copy of it went in circles and ends here.

        Nothing happens if the message is no longer kept. No queue manager sends itself a FinalAck, and resent copies
        would come back as well. Unlike the copy, the kept message names the queue that its application chose for dead
        letters. So the kept message is read first, and then ended.
        """
        header = message.transaction
        assert header is not None
        succession = self._sequences.succession(header.tx_sequence_id.time_stamp)
        sequence = succession.named(header.tx_sequence_id) if succession is not None else None
        if sequence is not None and sequence.numbering.is_kept(
            position := sequence.cursors.base + header.tx_sequence_number
        ):
            self._acknowledged.decide(sequence.queue, position, Word(0, MessageClass.NACK_HOP_COUNT_EXCEEDED))

    def _order_ack(self, body: OrderAckBody, source: Guid, remote: Remote, now: Moment) -> None:
        """Process an OrderAck: a destination has our messages on its disk.  3.1.5.6

        An OrderAck for an unknown sequence, or for a message that was never sent, is logged and changes nothing. Such
        an OrderAck counts if it comes again after we have resent our messages.
        """
        identifier, number = body.tx_sequence_id, body.tx_sequence_number
        succession = self._sequences.succession(identifier.time_stamp)
        if succession is None and self._names_no_sequence_of_ours(identifier.time_stamp, source):
            self._open_word(body, source, remote, now)
            return
        if succession is None or not self._sequences.speaks_for(succession.head, source, remote):
            self._note_stray("OrderAck", body, source, remote)
            return
        head = succession.head
        succession.by_name = True
        is_current = identifier == head.identifier and (number == 0 or head.numbering.was_sent(number))
        first = head.numbering.first_proven(number) if is_current else number
        were_in_doubt = self._acknowledged.arrived(identifier, first, number)
        if is_current:
            if self._arrived_through(head, number, now):
                self._outbound.wake(head)
        elif succession.speaking_of(identifier).name != head.name:
            self._note_stray("OrderAck", body, source, remote)  # It names an older version's spelling.
        elif identifier < head.identifier:
            head.resends.see_it_behind(0)
        elif head.wait.in_vain and identifier.ordinal <= LAST_ORDINAL:
            self._destination_is_ahead(succession, identifier, number, now)
        elif not were_in_doubt:
            self._note_stray("OrderAck", body, source, remote)

    def _names_no_sequence_of_ours(self, time_stamp: int, source: Guid) -> bool:
        """Return whether a TimeStamp does not name a sequence of ours.

        That is so if it cannot be ours, or belongs to a sequence that the source sends to us.
        """
        return not may_be_ours(time_stamp) or any(
            one.source == source and one.identifier.time_stamp == time_stamp for one in self._incoming
        )

    def _open_word(self, body: OrderAckBody, source: Guid, remote: Remote, now: Moment) -> None:
        """Process an OrderAck that has a number but does not name its sequence.  3.1.1.6.2, 3.1.7.17

        If the number is new to us in exactly one sequence, it acknowledges the messages of that sequence. Otherwise,
        the destination may have lost data, in any of the sequences to it.
        """
        theirs, number = self._sequences.towards_source(source, remote), body.number or 0
        if (meant := meant_by(number, theirs)) is not None:
            self._acknowledged.arrived(meant.identifier, meant.numbering.first_proven(number), number)
            self._arrived_through(meant, number, now, named=False)
            self._outbound.wake(meant)
            return
        for succession in theirs:
            succession.head.resends.see_it_behind(0)
            self._outbound.wake(succession.head)
        if not any(one.numbering.may_mean(number) for one in chain.from_iterable(theirs)):
            self._note_stray("OrderAck", body, source, remote)

    def _destination_is_ahead(
        self, succession: Succession, identifier: TxSequenceId, number: int, now: Moment
    ) -> None:
        """Process an OrderAck for more messages than we have sent according to our store.

        The store must be an earlier copy that was restored. Messages up to the OrderAck's number have arrived if an
        earlier process numbered them, because a sequence sends nothing until all earlier sequences are acknowledged.
        They have not arrived if this process numbered them: the destination has other messages with these numbers.
        """
        arrived = renumbered = 0
        for sequence in list(succession):
            kept = sequence.count
            if sequence.identifier > identifier:
                break
            if not sequence.is_closed:
                succession.renumber(sequence, identifier.ordinal, now, self._desk.writes)
                self._outbound.numbers.set_aside(sequence.identifier)
                renumbered += kept
            elif kept:
                is_last = sequence.identifier == identifier
                through = min(number, sequence.next_number - 1) if is_last else sequence.next_number - 1
                self._arrived_through(sequence, through, now)
                arrived += kept - sequence.count
            self._outbound.wake(sequence)
        facts: dict[str, str | int] = {"queue": succession.head.name, "arrived": arrived}
        self._desk.notes.append(Note("destination-ahead-of-store", facts | {"renumbered": renumbered}))

    def _arrived_through(
        self, sequence: OutgoingSequence, number: int, now: Moment, *, named: bool = True
    ) -> bool:
        """Record that all messages of a sequence up to a number have arrived. Return whether that is new to us.

        named: whether the OrderAck names the sequence.
        """
        identifier, first = sequence.identifier, sequence.cursors.last_ack + 1
        if not sequence.order_ack(number, now, self._desk.writes, named=named):
            return False
        self._desk.waypoints.order_acknowledged(identifier, first, number)
        return True

    def _final_ack(
        self, body: FinalAckBody, message: UserMessage, packet: bytes, remote: Remote, now: Moment
    ) -> None:
        """Process a FinalAck.  3.1.5.7

        An application received one of our messages, or the message was refused for good. Normally only the destination
        may send it. If a message exceeded its hops or its time, the queue manager that ended it may also send one
        (3.1.5.8.2), but that does not count once the destination has the message.
        """
        message_class, source = message.properties.message_class, message.user.source_queue_manager
        identifier, number = body.tx_sequence_id, body.tx_sequence_number
        succession = self._sequences.succession(identifier.time_stamp)
        is_ours = body.source_guid == self._desk.identity
        if succession is None or not is_ours or identifier > succession.newest.identifier:
            self._note_stray("FinalAck", body, source, remote)
            return
        sequence = succession.speaking_of(identifier)
        current = identifier == sequence.identifier
        by_destination = self._sequences.speaks_for(sequence, source, remote)
        is_a_copys = remote.is_proven and message_class in ENDED_ON_ITS_WAY
        counts = by_destination or (is_a_copys and self._is_awaited(sequence, body))
        if (current and not sequence.numbering.was_sent(number)) or not counts:
            self._note_stray("FinalAck", body, source, remote)
            return
        self._desk.waypoints.final_acknowledged(identifier, number, body.message_id, message_class)
        facts: dict[str, str | int] = {"queue": sequence.name, "message_id": body.message_id}
        if not by_destination:
            by: dict[str, str | int] = {"by": guid_text(source), "class": message_class}
            self._desk.notes.append(Note("message-ended-on-its-way", facts | by))
        elif message_class != MessageClass.ACK_RECEIVE:
            self._desk.notes.append(Note("message-refused-by-destination", {**facts, "class": message_class}))
        self._acknowledged.keep(sequence, body, Word(0, message_class, by_destination), message, packet)
        if current and message_class == MessageClass.ACK_RECEIVE:
            self._acknowledged.arrived(identifier, sequence.numbering.first_proven(number), number)
            self._arrived_through(sequence, number, now, named=False)
        elif current:
            sequence.withdraw(number, self._desk.writes)
        self._desk.writes.force()
        self._outbound.wake(sequence)

    def _is_awaited(self, sequence: OutgoingSequence, body: FinalAckBody) -> bool:
        """Whether a message still has neither an acknowledgment from its destination nor a known outcome."""
        is_current = body.tx_sequence_id == sequence.identifier
        return is_current and sequence.numbering.is_kept(sequence.cursors.base + body.tx_sequence_number)

    def _note_stray(self, kind: str, body: OrderAckBody | FinalAckBody, source: Guid, remote: Remote) -> None:
        facts: dict[str, str | int] = {"peer": remote.address, "kind": kind, "source": guid_text(source)}
        self._desk.notes.append(Note("stray-acknowledgment", facts | {"number": body.tx_sequence_number}))
