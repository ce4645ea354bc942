"""What becomes of a message that came: ours, somebody else's, or nobody's.  [MS-MQQB] 3.1.5.8"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.manager.confirmations import Confirmations
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import Histories
from mqproto.manager.localqueues import LocalQueues, local_name
from mqproto.manager.outbound import Outbound
from mqproto.manager.outcomes import Tracing
from mqproto.manager.room import NoRoomError, Room
from mqproto.messages.kept import as_sent
from mqproto.queues.joining import Joining
from mqproto.queues.lanes import Lane
from mqproto.queues.localqueue import LocalQueue
from mqproto.queues.protection import OPEN
from mqproto.queues.rules.admission import ADMISSIONS, MISSING, Admission
from mqproto.queues.rules.strangers import admission_of_stranger, why_unwelcome
from mqproto.routing import Routes
from mqproto.routing.peers import host_group
from mqproto.session import Remote
from mqproto.transfer.acknowledgments import make_order_ack
from mqproto.transfer.copies import AS_IT_IS
from mqproto.transfer.incoming import IncomingSequence, SequenceKey, Verdict, held_name, key_of_held
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.places import Places, every_one, lookup, returning
from mqproto.transfer.spellings import IncomingSequences, without_case
from mqproto.turn.desk import Desk
from mqproto.turn.effects import (
    IncomingRow,
    MessageRow,
    Note,
    QueueKind,
    QueueRow,
    ReadSequences,
    StoredState,
    message_key,
)
from mqproto.turn.endings import Ending, Place
from mqproto.turn.guard import ProtectionError, is_encrypted
from mqproto.wire import (
    NULL_GUID,
    MessageClass,
    QueueName,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    decode_message,
    encode_packet,
    passed_on,
    without_session_header,
)
from mqproto.wire.acknowledgment import ORDER_QUEUE
from mqproto.wire.alike.shapes import Facts, Run, run_of
from mqproto.wire.glance import (
    RECOVERABLE,
    TRANSACTIONAL,
    Head,
    goes_to_private,
    has_debug_header,
    head_of,
    priority_of,
    reach_deadline_s,
    receive_deadline_s,
)
from mqproto.wire.guid import Guid, guid_text

LOOKED_UP_BYTES: Final = 8 * 2**20
"""The most bytes of strangers' messages that wait until the store is asked about their sequences; one may exceed it."""
TOLD_OF_HOST: Final = 8
"""How many messages of strangers at one host are answered in a second when they have ended,"""
TOLD: Final = 64
"""and how many of all strangers. The others are sent again, and may be answered then."""
HOP_COUNT: Final = UserHeader.hop_count.mask
HOP_LIMIT: Final = 0x1D
"""RC, the count of queue managers that have forwarded a message, goes no higher.  [MS-MQMQ] 2.2.19.2"""
JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask
SECURED: Final = UserHeader.has_security.mask


LAST_ACCESS: Final = attrgetter("last_access_s")


class NotWelcomeError(Exception):
    """A message that this session must not bring: the session is closed, and its sender keeps it."""


class Arrivals:
    """The rules for messages that arrive, and the incoming sequences.

    Consecutive messages that are alike form a run, and questions with one answer for all of them are asked once: who
    brings it, where it goes, whether there is room. A run is taken as a whole if no objection can apply to one of its
    messages and not to the first; otherwise its messages are taken one by one, as runs of one.
    """

    def __init__(
        self,
        desk: Desk,
        sequences: IncomingSequences,
        outbound: Outbound,
        queues: LocalQueues,
        histories: Histories,
        confirmations: Confirmations,
        expiration: Expiration,
        tracing: Tracing,
        routes: Routes,
    ) -> None:
        self._desk = desk
        self._outbound = outbound
        self._queues = queues
        self._histories = histories
        self._routes = routes
        self._confirmations = confirmations
        self._expiration = expiration
        self._tracing = tracing
        self._sequences = sequences
        self.room = Room(desk, sequences, outbound, queues, histories)
        self.forward = self._forward
        """A seam: see parts.py."""
        self._places = Places()
        self._looked_up: dict[ReadSequences, list[tuple[Run, Remote]]] = {}
        """Strangers' messages of sequences that may be on disk, until the store has answered."""
        self.looked_up_bytes = 0
        self.reads: list[ReadSequences] = [every_one(manager) for manager in routes.peers]
        self._from_before: dict[Guid, Sequence[IncomingRow]] = {}
        """The stored sequences of queue managers that were strangers and are declared now."""
        self._of_deleted: dict[tuple[Guid, QueueName], int] = {}
        """The numbers of queues that were deleted since, by source and by its name for them at their host."""
        self._ends_late = desk.settings.follows_figures
        """Whether transactional messages of others end here when their time is over.  3.1.1.1.1.8"""
        self._told = Counter[str]()
        """How many strangers' messages were answered in the second `_told_in`, by host."""
        self._told_in = 0
        self.forwarded_count = 0
        self.refused_count = 0
        self.refusals = Counter[str]()
        """The same count, by the name of the class with which a message was refused."""
        self.last_refusal = ""
        """The name of the class with which the last message was refused."""

    def brought_by(self, remote: Remote, window_size: int) -> None:
        """Set the neighbour or stranger that brings the next messages, and the window that it announces."""
        self._histories.of(remote).brought_by(remote.manager, window_size)

    def together(self, run: Run, at: int, remote: Remote) -> int:
        """How many messages of a run, from index `at` on, may be taken at once; at least one."""
        packets = run.packets
        count = len(packets) - at
        if not remote.is_proven:
            return 1
        head = head_of(packets[at])
        source, flags = head.source_queue_manager, head.flags
        if flags & JOURNAL_NEGATIVE and source == self._desk.identity:
            return 1
        if head.queue_manager_address in (self._desk.identity, NULL_GUID) and not self._is_awaited(run, head):
            return 1
        if source != remote.manager and not self._may_bring(remote, head):
            return 1
        if len(set(run.message_ids)) < len(packets):
            return 1
        room_bytes = self.room.left_bytes
        if at == 0 and sum(map(len, packets)) <= room_bytes:
            return count
        fitting = 0
        for packet in islice(packets, at, None):
            room_bytes -= len(packet)
            if room_bytes < 0:
                break
            fitting += 1
        return max(fitting, 1)

    def _is_awaited(self, run: Run, head: Head) -> bool:
        """Whether messages for us go to a queue that takes them, from a sender that is known there."""
        facts, transactional = run.facts, bool(head.flags & TRANSACTIONAL)
        if facts.message_class:
            return False
        queue = self._queues.addressed(facts.destination_queue, transactional=transactional)
        if queue is None or isinstance(
            ADMISSIONS[queue.declaration.transactional, transactional], MessageClass
        ):
            return False
        return not transactional or self._sequences.has(
            head.source_queue_manager, queue.queue, facts.destination_queue
        )

    def _may_bring(self, remote: Remote, head: Head) -> bool:
        """Whether a neighbour may bring another's messages: it is a declared router on their way."""
        return self._routes.brings(
            remote.manager,
            head.source_queue_manager,
            target=head.queue_manager_address,
            own=self._desk.identity,
        )

    def arrived(self, run: Run, remote: Remote, now: Moment) -> None:
        """UserMessages came: one, or as many as may be taken `together`.  3.1.5.8

        Raises:
            NoRoomError: it would exceed QueueManagerQuota or the room on the disk, or begin one sequence too
                many.
            NotWelcomeError: this session must not bring it.
        """
        packet = run.packets[0]
        head = head_of(packet)
        source, flags = head.source_queue_manager, head.flags
        if flags & JOURNAL_NEGATIVE and source == self._desk.identity:
            # Sessions do not carry the name of a queue for dead letters, so a name behind a message is not ours.
            packet = as_sent(without_session_header(packet))
            run = run_of(packet)
        is_ours = head.queue_manager_address in (self._desk.identity, NULL_GUID)
        if not remote.is_proven:
            if self._is_strangers(run, remote, head, now, is_ours=is_ours):
                return
        elif source != remote.manager and not self._may_bring(remote, head):
            raise NotWelcomeError(
                f"it brings a message of queue manager {guid_text(source)} and is no declared router on its ways"
            )
        if sum(map(len, run.packets)) > self.room.left_bytes:
            self.room.see_that_it_fits(run, head, remote, is_ours=is_ours)
        if not flags & TRANSACTIONAL:
            new = self._without_duplicates(run, head, remote, now, is_ours=is_ours)
            if new is None:
                return
            run = new
        if not run.shape.may_have_others and has_debug_header(packet) and remote.is_proven:
            self._tracing.received(run.message, now)
        if is_ours:
            self._arrived_here(run, remote, now)
        else:
            self.forward(run, remote, now)

    def _without_duplicates(
        self, run: Run, head: Head, remote: Remote, now: Moment, *, is_ours: bool
    ) -> Run | None:
        """The messages of a run that did not come before; None if all did.  3.1.5.8.1, 3.1.5.8.2"""
        history, source = self._histories.of(remote), head.source_queue_manager
        recoverable = bool(head.flags & RECOVERABLE)
        hop_count = None if is_ours else head.flags & HOP_COUNT
        new = []
        for packet, message_id in zip(run.packets, run.message_ids, strict=True):
            if history.is_duplicate(
                source, message_id, now, self._desk.writes, recoverable=recoverable, hop_count=hop_count
            ):
                self._desk.waypoints.duplicate_dropped(packet)
            else:
                new.append(packet)
        if len(new) == len(run.packets):
            return run
        return Run(run.shape, new) if new else None

    def _arrived_here(self, run: Run, remote: Remote, now: Moment) -> None:
        """Take messages that are for us."""
        facts, transactional = run.facts, bool(run.shape.flags & TRANSACTIONAL)
        if facts.message_class and self._confirmations.take(run.message, run.packets[0], remote, now):
            return
        queue = self._queues.addressed(facts.destination_queue, transactional=transactional)
        kind = MISSING if queue is None else queue.declaration.transactional
        admission = ADMISSIONS[kind, transactional]
        if isinstance(admission, MessageClass):
            if not self._came_before(run, now):
                self._refuse(run, remote, admission)
            return
        assert queue is not None
        if admission is Admission.IN_SEQUENCE:
            if remote.is_proven or self._is_known(queue.queue, queue.name, run, remote):
                self._arrived_in_sequence(queue, run, remote, now)
        else:
            self._let_in(queue, run, remote, now)

    def _is_strangers(self, run: Run, remote: Remote, head: Head, now: Moment, *, is_ours: bool) -> bool:
        """Handle a stranger's message. Return whether nothing is left to do.

        Acknowledgments are judged by their own rule. Nothing is kept of a refused message. The sender of a
        transactional message to no queue, or to one for others, is told, or it would repeat it for ever; but not that a
        queue is closed to it: the operator may have forgotten to open it. A full store turns it away as it does nodes.
        """
        [packet] = run.packets
        if is_ours and run.facts.message_class and self._confirmations.take(run.message, packet, remote, now):
            return True
        refusal = self._refusal_of_stranger(run, remote, head, is_ours=is_ours)
        if isinstance(refusal, str):
            raise NotWelcomeError(refusal)
        if refusal is None:
            return False
        self.room.see_that_it_fits(run, head, remote, is_ours=is_ours)
        transactional = bool(head.flags & TRANSACTIONAL) and refusal is not MessageClass.NACK_Q_EXCEED_QUOTA
        if transactional:
            deleted = self._queues.deleted(name := run.facts.destination_queue)
            if self._came_before(run, now):
                return True
            if deleted is not None and not self._is_known(deleted, str(local_name(name)), run, remote):
                return True
        self._turn_down(run, remote, refusal, now, told=transactional)
        return True

    def _turn_down(self, run: Run, remote: Remote, why: MessageClass, now: Moment, *, told: bool) -> None:
        """Refuse a stranger's message. told: whether the stranger is told, if that is allowed."""
        told = told and why is not MessageClass.NACK_ACCESS_DENIED and self._may_tell(remote, now)
        (self._refuse if told else self._note_refusal)(run, remote, why)

    def _refusal_of_stranger(
        self, run: Run, remote: Remote, head: Head, *, is_ours: bool
    ) -> str | MessageClass | None:
        """Why a stranger's message ends its session, or the class that refuses it; None if it is welcome."""
        queue = self._queues.of_run(run) if is_ours else None
        declaration = queue.declaration if queue is not None else None
        claims = remote.manager in self._routes.peers
        reason = why_unwelcome(head, remote.manager, is_ours=is_ours, claims=claims, queue=declaration)
        if reason is not None:
            return reason
        admission = admission_of_stranger(
            declaration,
            transactional=bool(head.flags & TRANSACTIONAL),
            is_invited=declaration is not None and self._outbound.has_invited(remote, declaration.identifier),
        )
        if isinstance(admission, MessageClass):
            return admission
        assert queue is not None
        is_full = queue.size_bytes + len(run.packets[0]) > self._desk.settings.strangers_queue_bytes
        return MessageClass.NACK_Q_EXCEED_QUOTA if is_full else None

    def refuses(self, packet: bytes, remote: Remote) -> bool:
        """Whether a stranger's message, or the beginning of one, will be refused whatever follows.

        False if it may acknowledge something, or if its body goes back with the refusal.
        """
        try:
            run, head = run_of(packet), head_of(packet)
            properties, is_ours = (
                run.message.properties,
                head.queue_manager_address in (self._desk.identity, NULL_GUID),
            )
        except WireFormatError:
            return False
        if properties.message_class or (properties.report_no_arrival and head.flags & TRANSACTIONAL):
            return False
        return self._refusal_of_stranger(run, remote, head, is_ours=is_ours) is not None

    def _may_tell(self, remote: Remote, now: Moment) -> bool:
        """Whether one more stranger's message may be answered in this second because it ended."""
        if (second := now.uptime_ms // 1_000) != self._told_in:
            self._told_in = second
            self._told.clear()
        host = host_group(remote.address)
        if self._told[host] >= TOLD_OF_HOST or self._told.total() >= TOLD:
            return False
        self._told[host] += 1
        return True

    def _forward(self, run: Run, remote: Remote, now: Moment) -> None:
        """Pass on another's message: count the hop, and leave its TransactionHeader untouched.  3.1.5.8.2, 3.1.1.6.2

        A transactional message whose time is over goes on, unless we follow the figures: only its destination
        knows whether it had it before.
        """
        packets = run.packets
        head = head_of(packets[0])
        flags, source = head.flags, head.source_queue_manager
        transactional = bool(flags & TRANSACTIONAL)
        if flags & HOP_COUNT >= HOP_LIMIT:
            self._end_of_hops(run, head, remote)
            return
        expires_s: list[int | None] = [None] * len(packets)
        passes = transactional and (not self._ends_late or source == self._desk.identity)
        if not passes and reach_deadline_s(packets[0]) is not None:
            run, expires_s = self._in_time(run, remote, now)
            if not expires_s:
                return
        queue = self._outbound.towards_manager(
            head.queue_manager_address,
            priority_of(packets[0], flags),
            order=goes_to_private(packets[0], flags, ORDER_QUEUE),
        )
        recoverable = bool(flags & RECOVERABLE)
        messages = Joining(passed_on(run.packets), run.message_ids, recoverable, False, expires_s)
        if transactional:
            self._pass_on_transactional(queue, source, messages)
        else:
            self._pass_on(queue, messages)
            self._outbound.put(queue, messages)
        self._expect(expires_s, now)

    def _pass_on_transactional(self, queue: OutgoingQueue, source: Guid, messages: Joining) -> None:
        """Pass on transactional messages, but drop one whose copy still waits here, byte by byte the same."""
        names = [(source, message_id) for message_id in messages.message_ids]
        if queue.copies.knows_one_of(names):
            if len(names) > 1:
                for one in messages.singly():
                    self._pass_on_transactional(queue, source, one)
                return
            [packet], [name] = messages.packets, names
            earlier = queue.earlier_copy(name, packet)
            if earlier == AS_IT_IS:
                self._desk.waypoints.duplicate_dropped(packet)
                return
            if earlier is not None:
                queue.delete(earlier, self._desk.writes)
        self._pass_on(queue, messages)
        self._outbound.pass_on(queue, messages, names)

    def _pass_on(self, queue: OutgoingQueue, messages: Joining) -> None:
        """Count messages that are about to join a queue."""
        self._count_stored(queue, messages)
        self.forwarded_count += len(messages.packets)
        self._desk.waypoints.forwarded(messages.packets, queue.name)

    def _count_stored(self, lane: Lane, messages: Joining) -> None:
        """Count the bytes that the store will have of messages that are about to join a queue."""
        packets = messages.packets
        if not messages.recoverable:
            packets = packets[lane.window.fitting(packets) :]
        self.room.stored_bytes += sum(map(len, packets))

    def _end_of_hops(self, run: Run, head: Head, remote: Remote) -> None:
        """End messages whose RC is at its limit; some are copies of our own that went in circles."""
        for packet in run.packets:
            alone = Run(run.shape, [packet])
            if head.flags & TRANSACTIONAL and head.source_queue_manager == self._desk.identity:
                self._desk.waypoints.duplicate_dropped(packet)
                self._confirmations.came_back(alone.message)
            else:
                self._refuse(alone, remote, MessageClass.NACK_HOP_COUNT_EXCEEDED)

    def _in_time(self, run: Run, remote: Remote, now: Moment) -> tuple[Run, list[int | None]]:
        """Refuse messages whose time to be on their way is over. Return the others, with their deadlines."""
        packets, expires_s = list[bytes](), list[int | None]()
        for packet in run.packets:
            deadline_s = reach_deadline_s(packet)
            if deadline_s is not None and now.utc_s > deadline_s:
                self._refuse(Run(run.shape, [packet]), remote, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
            else:
                packets.append(packet)
                expires_s.append(deadline_s)
        return Run(run.shape, packets), expires_s

    def _expect(self, expires_s: Sequence[int | None], now: Moment) -> None:
        """Expect messages that joined a queue to expire after these seconds."""
        if expires_s[0] is not None:  # All messages of a run have a deadline, or none.
            self._expiration.expect(min([each for each in expires_s if each is not None]), now)

    def _refuse(self, run: Run, remote: Remote, message_class: MessageClass, why: str = "") -> None:
        """The message ends here; its sender is told.  3.1.5.8.2, 3.1.5.8.8

        why: more than its class says, for the operator.
        """
        [packet] = run.packets
        self._note_refusal(run, remote, message_class, why)
        reply_to = self._outbound.reply_to(run.message, remote)
        packet = without_session_header(packet)
        self._desk.endings.append(Ending(packet, message_class, Place.AT_DESTINATION, reply_to=reply_to))

    def _note_refusal(self, run: Run, remote: Remote, message_class: MessageClass, why: str = "") -> None:
        user = run.message.user
        self.refused_count += 1
        self.refusals[message_class.name] += 1
        self.last_refusal = message_class.name
        facts: dict[str, str | int] = {
            "peer": remote.address,
            "reason": message_class.name,
            "source": guid_text(user.source_queue_manager),
            "message_id": user.message_id,
            "queue": str(user.destination_queue),
        }
        if why:
            facts["why"] = why
        self._desk.notes.append(Note("message-refused", facts))
        self._desk.waypoints.ended(run.packets[0], message_class)

    def _let_in(self, queue: LocalQueue, run: Run, remote: Remote, now: Moment) -> None:
        """Insert messages into their queue, or refuse them. Transactional ones come next in sequence.  3.1.5.8.8

        They are inserted together if no check can fail for any of them.
        """
        packets = run.packets
        if len(packets) > 1 and not (
            queue.declaration.protection == OPEN
            and reach_deadline_s(packets[0]) is None
            and queue.has_room(sum(map(len, packets)))
        ):
            for packet in packets:
                self._let_in(queue, Run(run.shape, [packet]), remote, now)
            return
        admitted = self._admitted(queue, run, remote, now)
        if admitted is not None:
            self._insert(queue, run, admitted, now)

    def _insert(
        self, queue: LocalQueue, run: Run, packets: list[bytes], now: Moment, *, was_held: bool = False
    ) -> None:
        """Messages join a queue. One that was held takes its held place, so the store does not grow.

        packets: the packets of the run, as they are kept.
        """
        flags = run.shape.flags
        priority = priority_of(packets[0], flags)
        messages = self._joining(run, packets)
        if not was_held:
            self._count_stored(queue.lane(priority), messages)
        queue.insert(messages, self._desk.writes, priority=priority)
        self._inserted(queue, run.facts, messages, now)

    def _joining(self, run: Run, packets: list[bytes]) -> Joining:
        """Messages of a run on their way into a local queue."""
        expires_s: list[int | None]
        if receive_deadline_s(packets[0]) is None:
            expires_s = [None] * len(packets)
        else:
            expires_s = list(map(receive_deadline_s, packets))
        recoverable = bool(run.shape.flags & RECOVERABLE)
        return Joining(packets, run.message_ids, recoverable, run.facts.final_ack, expires_s)

    def _admitted(self, queue: LocalQueue, run: Run, remote: Remote, now: Moment) -> list[bytes] | None:
        """The packets of messages as they join the queue; None if they are refused.  3.1.5.8.3, 3.1.7.1.2, 3.1.5.8.8

        run: one message, or several for which no check can fail.

        Encrypted or signed messages that came by a direct format name are judged like all others: the
        specification says nothing about them, and no application could read them.
        """
        packets = run.packets
        if not run.shape.may_have_others:
            packets = list(map(without_session_header, packets))
        protection = queue.declaration.protection
        try:
            if run.shape.flags & SECURED:
                message = self._desk.guard.opened(run.message, protection.weak_ciphers, now)
                packets = [without_session_header(encode_packet(message))]
                protection.check(message, encrypted=is_encrypted(run.message))
            elif protection != OPEN:
                protection.check(run.message, encrypted=False)
        except ProtectionError as error:
            self._refuse(run, remote, error.message_class, error.reason)
            return None
        deadline_s = reach_deadline_s(packets[0])
        if deadline_s is not None and now.utc_s > deadline_s:
            self._refuse(run, remote, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
        elif not queue.has_room(sum(map(len, packets))):
            self._refuse(run, remote, MessageClass.NACK_Q_EXCEED_QUOTA)
        else:
            return packets
        return None

    def _inserted(self, queue: LocalQueue, facts: Facts, messages: Joining, now: Moment) -> None:
        self._queues.stir(queue)
        self._expect(messages.expires_s, now)
        if facts.acknowledge_arrival:
            self._desk.endings += [
                Ending(packet, MessageClass.ACK_REACH_QUEUE, Place.AT_DESTINATION)
                for packet in messages.packets
            ]

    # Transactional messages at their destination

    def _arrived_in_sequence(self, queue: LocalQueue, run: Run, remote: Remote, now: Moment) -> None:
        """Accept in order and once; hold what is early; drop what came before.  3.1.5.8.6

        A message that comes next but is refused, because its time is over or the queue is full, is dealt with
        for good: the sequence goes on after it, and a FinalAck tells its sender.
        """
        shape, name = run.shape, run.facts.destination_queue
        following: list[bytes] = []
        """Messages that were accepted one after the other, and are not yet let in."""
        sequence: IncomingSequence | None = None
        for packet in run.packets:
            header = shape.header_of(packet)
            if sequence is None or header.tx_sequence_id != sequence.identifier:
                sequence = self._sequence(run, header, queue, remote, now)
                if sequence.peer != remote.address:
                    sequence.peer = remote.address
                    sequence.reply_to = self._outbound.reply_to(run.message, remote)
                sequence.schedule_order_ack(now)
            verdict = sequence.take(header, len(packet), may_hold=remote.is_proven)
            if verdict is Verdict.HOLD and not self.room.may_hold(len(packet)):
                verdict = sequence.turn_away(header)
            self._desk.writes.changed(sequence, urgent=verdict is Verdict.ACCEPT)
            if verdict is Verdict.ACCEPT:
                following.append(packet)
                if sequence.held_count:
                    self._let_in(queue, Run(shape, following), remote, now)
                    following = []
                    self._release(sequence, queue, remote, now)
            else:
                if following:
                    self._let_in(queue, Run(shape, following), remote, now)
                    following = []
                self._not_accepted(verdict, sequence, queue, run, header, packet)
            if sequence.name != name and without_case(sequence.name) != without_case(name):
                self._drop_copies(run, header, queue)
        if following:
            self._let_in(
                queue, run if len(following) == len(run.packets) else Run(shape, following), remote, now
            )

    def _not_accepted(
        self,
        verdict: Verdict,
        sequence: IncomingSequence,
        queue: LocalQueue,
        run: Run,
        header: TransactionHeader,
        packet: bytes,
    ) -> None:
        """Drop a message that came before. Hold one that is early, if there is room behind the gap."""
        if verdict is Verdict.DUPLICATE:
            self._desk.waypoints.duplicate_dropped(packet)
        elif verdict is Verdict.OVERFLOW:
            self._desk.waypoints.dropped(packet, queue.name)
        else:
            packet = without_session_header(packet)
            self.room.stored_bytes += len(packet)
            held = sequence.hold(header, packet)
            key = message_key(sequence.held_queue, held.position)
            self._desk.waypoints.held(packet, queue.name)
            row = MessageRow(key, packet, head_of(packet).message_id, run.facts.final_ack)
            self._desk.writes.put([row], queue.name)

    def _drop_copies(self, run: Run, header: TransactionHeader, queue: LocalQueue) -> None:
        """Drop an early copy, held under its own name, of a message that joined a sequence under another."""
        source = head_of(run.packets[0]).source_queue_manager
        for own in self._sequences.under_name(source, queue.queue, run.facts.destination_queue):
            position = own.drop_held(header)
            if position is not None:
                self._desk.writes.later.remove(own.held_queue, position, position)

    def _release(self, sequence: IncomingSequence, queue: LocalQueue, remote: Remote, now: Moment) -> None:
        """A gap is closed: insert the messages that were held behind it."""
        accepted, stale = sequence.release()
        for held in accepted:
            run = run_of(held.packet)
            admitted = self._admitted(queue, run, remote, now)
            if admitted is None:
                stale.append(held)
            elif admitted[0] is not held.packet:
                # The packet that joins the queue is not the one on disk.
                self._insert(queue, run, admitted, now, was_held=True)
                stale.append(held)
            else:
                messages = self._joining(run, admitted)
                key = message_key(sequence.held_queue, held.position)
                queue.insert_held(key, messages, self._desk.writes)
                self._inserted(queue, run.facts, messages, now)
        for held in stale:
            self._desk.writes.later.remove(sequence.held_queue, held.position, held.position)

    def _sequence(
        self, run: Run, header: TransactionHeader, queue: LocalQueue, remote: Remote, now: Moment
    ) -> IncomingSequence:
        source, name = head_of(run.packets[0]).source_queue_manager, run.facts.destination_queue
        sequence = self._sequences.find(source, queue.queue, name, header)
        if sequence is None:
            if remote.is_proven and self.known_count >= self._desk.settings.maximum_sequences:
                raise NoRoomError(f"{self.known_count:,} senders are known, which is maximum_sequences")
            held_queue = 0 if remote.is_proven else self._place_given_up(source, remote)
            rows = self._from_before.get(source, ())
            sequence = self._begin((source, queue.queue, name), held_queue, header, rows, now)
        if not remote.is_proven:
            self._places.take(sequence, host_group(remote.address))
        return sequence

    def _begin(
        self,
        key: SequenceKey,
        held_queue: int,
        header: TransactionHeader,
        rows: Sequence[IncomingRow],
        now: Moment,
    ) -> IncomingSequence:
        """Begin a sequence that is new in memory; the store may have had it.

        held_queue: the number of the HELD queue that it takes over; 0 for one of its own.
        """
        held_queue = held_queue or self._outbound.next_queue()
        self._desk.writes.urgent().queues.append(QueueRow(held_queue, QueueKind.HELD, held_name(key)))
        sequence = IncomingSequence(key, held_queue, self._desk.settings, self._desk.timers, now)
        _, queue, name = key
        if (row := returning(rows, queue, name, header)) is not None:
            sequence.restore(row._replace(reply_host=""), 0)
            self._desk.writes.later.incoming[row.source, row.queue] = None
        self._sequences.add(sequence)
        return sequence

    def _place_given_up(self, source: Guid, remote: Remote) -> int:
        """The number of the HELD queue that a stranger's sequence takes over; 0 if there is room for one more."""
        if len(self._places) < self._desk.settings.strangers_sequences:
            return 0
        sequence, stays = self._places.give_up(host_group(remote.address), source)
        self._desk.timers.stop(Timer.ORDER_ACK_SEND, sequence)
        self._sequences.remove(sequence)
        self._desk.writes.give_up(sequence, stays)
        return sequence.held_queue

    # Strangers' sequences that gave up their places

    def _is_known(self, queue: int, called: str, run: Run, remote: Remote) -> bool:
        """Whether the sequence of a stranger's message is in memory; else the store is asked, and the message waits."""
        [packet] = run.packets
        source, name = head_of(packet).source_queue_manager, run.facts.destination_queue
        if self._sequences.find(source, queue, name, run.shape.header_of(packet)) is not None:
            return True
        read = lookup(source, queue)
        waiting = self._looked_up.get(read)
        if waiting is None:
            waiting = self._looked_up[read] = []
            self.reads.append(read)
        if self.looked_up_bytes and self.looked_up_bytes + len(packet) > LOOKED_UP_BYTES:
            self._desk.waypoints.dropped(packet, called)  # Its sender still has it.
        else:
            waiting.append((run, remote))
            self.looked_up_bytes += len(packet)
        return False

    def take_reads(self) -> list[ReadSequences]:
        """Return what to ask the store, once."""
        reads, self.reads = self.reads, []
        return reads

    def found(self, read: ReadSequences, rows: Sequence[IncomingRow], now: Moment) -> None:
        """Take the store's answer about a stranger's sequences: the messages that waited for it go on."""
        waiting = self._looked_up.pop(read, None)
        if waiting is None:
            self._from_before[read.source] = rows
            return
        for run, remote in waiting:
            self.looked_up_bytes -= len(run.packets[0])
            queue = self._queues.of_run(run)
            header, name = run.shape.header_of(run.packets[0]), run.facts.destination_queue
            if queue is None or not queue.declaration.transactional:
                self._end_unless_had(rows, run, remote, now)
                continue
            if self._sequences.find(read.source, queue.queue, name, header) is None:
                held_queue = self._place_given_up(read.source, remote)
                self._begin((read.source, queue.queue, name), held_queue, header, rows, now)
            self._arrived_in_sequence(queue, run, remote, now)

    def _end_unless_had(self, rows: Sequence[IncomingRow], run: Run, remote: Remote, now: Moment) -> None:
        """End a message whose queue is gone. If it had come before, it has its own end, as in `_came_before`."""
        [packet] = run.packets
        header, name = run.shape.header_of(packet), run.facts.destination_queue
        deleted = self._queues.deleted(name)
        row = None if deleted is None else returning(rows, deleted, name, header)
        if row is not None:
            last = (TxSequenceId(ordinal=row.ordinal, time_stamp=row.time_stamp), row.number)
            if (header.tx_sequence_id, header.tx_sequence_number) <= last:
                self._desk.waypoints.duplicate_dropped(packet)
                return
        refusal = self._refusal_of_stranger(run, remote, head_of(packet), is_ours=True)
        if isinstance(refusal, MessageClass) and not self._came_before(run, now):
            self._turn_down(run, remote, refusal, now, told=True)

    @property
    def known_count(self) -> int:
        """How many sequences have senders that are not strangers."""
        return len(self._sequences) - len(self._places)

    @property
    def strangers_count(self) -> int:
        """How many sequences strangers have."""
        return len(self._places)

    def queue_deleted(self, queue: LocalQueue) -> None:
        """Drop messages held behind gaps: their senders still have them. Those that had come stay known."""
        for sequence in self._sequences:
            if sequence.queue == queue.queue:
                self._of_deleted[sequence.source, local_name(sequence.name)] = queue.queue
                if sequence.held_count:
                    self._desk.writes.later.remove(sequence.held_queue, 1, sequence.forget_held())

    def _came_before(self, run: Run, now: Moment) -> bool:
        """Whether it is a copy of a message that came before its queue was deleted, and had its own end."""
        message = run.message
        source, name = message.user.source_queue_manager, message.user.destination_queue
        header, deleted = message.transaction, self._of_deleted.get((source, local_name(name)))
        if deleted is None:
            deleted = self._queues.deleted(name)
        if header is None or deleted is None:
            return False
        sequence = self._sequences.find(source, deleted, name, header)
        if sequence is None or not sequence.has_had(header):
            return False
        sequence.duplicate_count += 1
        self._desk.waypoints.duplicate_dropped(run.packets[0])
        sequence.schedule_order_ack(now)
        return True

    def order_ack_due(self, sequence: IncomingSequence, now: Moment) -> None:
        """The Order Ack Send Timer is due.  3.1.6.9"""
        sequence.order_ack_sent(now)
        place = sequence.place
        if place is not None:
            message_id = self._outbound.next_message_id()
            ack = make_order_ack(sequence.reply_to, place, self._desk.identity, message_id, now)
            self._outbound.acknowledge(ack, sequence.reply_to)

    # After a restart

    def restore(self, state: StoredState, now: Moment) -> None:
        """Restore the sequences that the store knows, and the messages that they hold."""
        held = {stored.queue: stored for stored in state.queues if stored.kind is QueueKind.HELD}
        keys = {number: key_of_held(stored.name) for number, stored in held.items()}
        by_number: dict[int, IncomingSequence] = {}
        for row in sorted(state.incoming, key=LAST_ACCESS):
            key = keys[row.queue]
            if row.source != key[0]:
                continue  # It belongs to a stranger whose place another has taken.
            sequence = IncomingSequence(key, row.queue, self._desk.settings, self._desk.timers, now)
            sequence.restore(row, held[row.queue].last_used)
            if row.source not in self._routes.peers and row.source != self._desk.identity:
                self._places.take(sequence, host_group(row.reply_host))
            self._sequences.add(sequence)
            by_number[row.queue] = sequence
        for stored_key, packet in state.resident:
            number = stored_key // message_key(1, 0)
            if number not in keys:
                continue
            message = decode_message(packet)
            assert message.transaction is not None
            position = stored_key - message_key(number, 0)
            by_number[number].restore_held(message.transaction, packet, position)
        for queue in self._queues.gone:
            self.queue_deleted(queue)
