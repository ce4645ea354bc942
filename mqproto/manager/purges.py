"""Handles messages that leave their queue out of turn.

They do so because an operator purges the queue, or because they are damaged. If an operator empties an outgoing queue,
all messages that wait in it end here.  [MS-MQDMPR] 3.1.7.1.7
"""

from __future__ import annotations

from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.manager.outcomes import Outcomes
from mqproto.queues.localqueue import SystemQueue
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.desk import Desk
from mqproto.turn.effects import POSITION_BITS, HurtPacket, Note, QueueKind, ReadBy, ReadPage, StoredState
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass, UserMessage, decode_message
from mqproto.wire.glance import is_transactional


class Purges:
    """Goes through the messages of each queue that is purged, in memory and on disk, a page at a time.

    A message that the neighbour may have received, but has not acknowledged, stays with the session. Our own
    transactional messages are deleted even if they were sent, because the operator wants to be rid of them whether they
    arrived or not. Another sender's message is only a copy here. Its sender or destination decides its outcome, so it
    is dropped without a notice, and may come again.

    The last position to purge is written to disk before the first message is deleted, and stays there until the last
    one has been deleted. So a process that was killed continues when it starts again. Messages that came later are not
    deleted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._limits = desk.settings.page_limits
        self._going: dict[int, tuple[OutgoingQueue, int]] = {}
        """The queues that are being purged, by number, each with the last position to delete."""
        self.reads: list[ReadPage] = []
        """The pages to read in this turn."""

    def begin(self, queue: OutgoingQueue) -> None:
        """Begin to delete all messages that are now in a queue.

        Those in memory are deleted at once, and those on disk after they have been read. If a purge is still running,
        it is extended to all of these messages.
        """
        for message in list(queue.window):
            self._end(queue, message.position, message.packet)
        if queue.queue not in self._going:
            self._read(queue, 0)
        self._desk.writes.purge_until(queue.queue, queue.last_position)
        self._going[queue.queue] = (queue, queue.last_position)

    def go_on(self, queue: OutgoingQueue, last: int) -> None:
        """Continue a purge that an earlier process may have begun but not finished."""
        self._read(queue, 0)
        self._going[queue.queue] = (queue, last)

    def is_going_through(self, queue: OutgoingQueue) -> bool:
        """Whether messages that are to be deleted have yet to be read from disk."""
        return queue.queue in self._going

    def _read(self, queue: OutgoingQueue, after: int) -> None:
        self.reads.append(ReadPage(queue.queue, after, *self._limits, ReadBy.PURGE))

    def _end(self, queue: OutgoingQueue, position: int, packet: bytes) -> None:
        is_copy = queue.kind is QueueKind.OUTGOING and is_transactional(packet)
        if not queue.delete(position, self._desk.writes):
            return
        if is_copy:
            self._desk.waypoints.ended(packet, MessageClass.NACK_DELETED)
        else:
            self._desk.endings.append(Ending(packet, MessageClass.NACK_DELETED, Place.ON_THE_WAY))

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> None:
        """Take a page of a queue that is being purged."""
        queue, last = self._going[page.queue]
        for position, packet, _ in rows:
            if position <= last:
                self._end(queue, position, packet)
        if rows and rows[-1][0] < last:
            self._read(queue, rows[-1][0])
        else:
            del self._going[page.queue]
            self._desk.writes.purge_until(page.queue, 0)


REPEATED: Final = "it is dropped, and its source repeats it"
GOES: Final = "it is dropped: it had arrived, or is in memory"


class Damage:
    """Handles messages that are damaged in the store. Each is dropped, and all other messages continue.

    The store keeps the damaged row in its quarantine. The consequences depend on the message:

        our own, to a destination or a next hop     it is lost, and a dead letter reports it
        of others, on its way                       nothing if transactional, as its source resends it;
                                                    otherwise it is lost
        held after a gap                            nothing, as its source resends it
        in its destination queue                    it is lost
        a FinalAck, or a message that awaits one    the message stays without an outcome

    The sender of a lost message gets the acknowledgments that it asked for, if the message's head can be read. The dead
    letter here is a new message that only reports the loss, because nobody knows which parts of a damaged packet are
    right.
    """

    def __init__(
        self, desk: Desk, outbound: Outbound, queues: LocalQueues, outcomes: Outcomes, state: StoredState
    ) -> None:
        self._desk = desk
        self._outbound = outbound
        self._queues = queues
        self._outcomes = outcomes
        for key, packet in state.hurt:
            row = next(row for row in state.queues if row.queue == key >> POSITION_BITS)
            self._left(key, packet, row.name, REPEATED if row.kind is QueueKind.HELD else GOES)

    def found(self, key: int, packet: HurtPacket, now: Moment) -> None:
        """Handle a damaged message that was read from the store."""
        number, position = key >> POSITION_BITS, key & (1 << POSITION_BITS) - 1
        head = head_in(packet)
        outgoing, local = self._outbound.queue(number), self._queues.of_lane(number)
        if outgoing is not None:
            self._outbound.wake(outgoing)
            is_sequence = isinstance(outgoing, OutgoingSequence)
            may_have_arrived = outgoing.may_have_arrived(position)
            is_lost = is_sequence or position > outgoing.window.read_through
            if not (is_lost and outgoing.delete(position, self._desk.writes)):
                self._left(key, packet, outgoing.name, GOES)
            elif head is not None and head.transaction is not None and not is_sequence:
                self._left(key, packet, outgoing.name, REPEATED)
            else:
                ending = Ending(packet, MessageClass.NACK_DELETED, Place.ON_THE_WAY)
                letters = SystemQueue.DEADXACT if is_sequence else SystemQueue.DEADLETTER
                self._ends(key, ending, head, outgoing.name, letters, now, in_doubt=may_have_arrived)
        elif local is not None:
            queue, lane = local
            self._queues.stir(queue)
            if not queue.lose(lane, position, packet):
                self._left(key, packet, queue.name, GOES)
            else:
                ending = Ending(packet, MessageClass.NACK_Q_PURGED, Place.IN_QUEUE, queue.queue)
                told = None if queue.is_system else head
                self._ends(key, ending, told, queue.name, SystemQueue.DEADLETTER, now)
        else:
            self._left(key, packet, str(number), GOES)

    def _ends(
        self,
        key: int,
        ending: Ending,
        head: UserMessage | None,
        name: str,
        letters: SystemQueue,
        now: Moment,
        *,
        in_doubt: bool = False,
    ) -> None:
        """End a lost message.

        A dead letter reports it, and its sender is told if the message's head can be read.
        """
        packet = ending.packet
        assert isinstance(packet, HurtPacket)
        # If its head cannot be read, it is known to be ours only where all messages are.
        source = self._desk.identity if letters is SystemQueue.DEADXACT else None
        if head is not None:
            self._desk.endings.append(ending)
            source = head.user.source_queue_manager
        became = f"it is lost{', unless it had arrived' * in_doubt}: {letters} has a letter that says so"
        self._outcomes.tell_of_damage(ending, letters, source, name, in_doubt=in_doubt, now=now)
        self._left(key, packet, name, became)

    def _left(self, key: int, packet: HurtPacket, name: str, became: str) -> None:
        number, position = key >> POSITION_BITS, key & (1 << POSITION_BITS) - 1
        self._desk.writes.urgent().remove(number, position, position)
        self._outcomes.damaged_count += 1
        facts: dict[str, str | int] = {"queue": name, "message_id": packet.message_id, "position": position}
        self._desk.notes.append(Note("message-damaged", {**facts, "became": became}))


def head_in(packet: HurtPacket) -> UserMessage | None:
    """Decode a damaged packet.

    Return None if its head cannot be read, or does not agree with the row that was stored with it.
    """
    try:
        message = decode_message(packet)
    except WireFormatError:
        return None
    return message if message.user.message_id == packet.message_id else None
