"""What becomes of a message that came: ours, somebody else's, or nobody's.  [MS-MQQB] 3.1.5.8"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.manager.arriving.insequence import InSequence
from mqproto.manager.arriving.inserting import Inserting
from mqproto.manager.arriving.refusing import Refusing
from mqproto.manager.arriving.room import Room
from mqproto.manager.arriving.transit import HOP_COUNT, Transit
from mqproto.manager.confirmations import Confirmations
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import Histories
from mqproto.manager.localqueues import LocalQueues, local_name
from mqproto.manager.outbound import Outbound
from mqproto.manager.outcomes import Tracing
from mqproto.messages.kept import as_sent
from mqproto.queues.rules.admission import ADMISSIONS, MISSING, Admission
from mqproto.queues.rules.strangers import admission_of_stranger, why_unwelcome
from mqproto.routing import Routes
from mqproto.session import Remote
from mqproto.transfer.places import every_one, lookup, returning
from mqproto.transfer.spellings import IncomingSequences
from mqproto.turn.desk import Desk
from mqproto.turn.effects import IncomingRow, ReadSequences
from mqproto.wire import NULL_GUID, MessageClass, TxSequenceId, UserHeader, without_session_header
from mqproto.wire.alike.shapes import Run, run_of
from mqproto.wire.glance import RECOVERABLE, TRANSACTIONAL, Head, has_debug_header, head_of
from mqproto.wire.guid import guid_text

LOOKED_UP_BYTES: Final = 8 * 2**20
"""The most bytes of strangers' messages that wait until the store is asked about their sequences; one may exceed it."""
JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask


class NotWelcomeError(Exception):
    """A message that this session must not bring: the session is closed, and its sender keeps it."""


class Arrivals:
    """The rules for messages that arrive.

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
        self._tracing = tracing
        self._sequences = sequences
        self.room = Room(desk, sequences, outbound, queues, histories)
        self.refusing = Refusing(desk, outbound)
        self._inserting = Inserting(desk, queues, expiration, self.refusing, self.room)
        self.in_sequence = InSequence(desk, sequences, outbound, queues, self._inserting, self.room, routes)
        self.transit = Transit(desk, outbound, confirmations, expiration, self.refusing, self.room)
        self.forward = self.transit.forward
        """A seam: see parts.py."""
        self._looked_up: dict[ReadSequences, list[tuple[Run, Remote]]] = {}
        """Strangers' messages of sequences that may be on disk, until the store has answered."""
        self.looked_up_bytes = 0
        self.reads: list[ReadSequences] = [every_one(manager) for manager in routes.peers]

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
            if not self.in_sequence.came_before(run, now):
                self.refusing.refuse(run, remote, admission)
            return
        assert queue is not None
        if admission is Admission.IN_SEQUENCE:
            if remote.is_proven or self._is_known(queue.queue, queue.name, run, remote):
                self.in_sequence.arrived(queue, run, remote, now)
        else:
            self._inserting.let_in(queue, run, remote, now)

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
            if self.in_sequence.came_before(run, now):
                return True
            if deleted is not None and not self._is_known(deleted, str(local_name(name)), run, remote):
                return True
        self.refusing.turn_down(run, remote, refusal, now, told=transactional)
        return True

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
            properties = run.message.properties
        except WireFormatError:
            return False
        if properties.message_class or (properties.report_no_arrival and head.flags & TRANSACTIONAL):
            return False
        is_ours = head.queue_manager_address in (self._desk.identity, NULL_GUID)
        return self._refusal_of_stranger(run, remote, head, is_ours=is_ours) is not None

    # Strangers' sequences that gave up their places

    def _is_known(self, queue: int, called: str, run: Run, remote: Remote) -> bool:
        """Whether the sequence of a stranger's message is in memory; else the store is asked, and the message waits."""
        [packet] = run.packets
        if self.in_sequence.find(run, queue) is not None:
            return True
        read = lookup(head_of(packet).source_queue_manager, queue)
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
            self.in_sequence.from_before[read.source] = rows
            return
        for run, remote in waiting:
            self.looked_up_bytes -= len(run.packets[0])
            queue = self._queues.of_run(run)
            if queue is None or not queue.declaration.transactional:
                self._end_unless_had(rows, run, remote, now)
            else:
                self.in_sequence.bring_back(run, queue, rows, remote, now)

    def _end_unless_had(self, rows: Sequence[IncomingRow], run: Run, remote: Remote, now: Moment) -> None:
        """End a message whose queue is gone. If it had come before, it has its own end, as in `came_before`."""
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
        if isinstance(refusal, MessageClass) and not self.in_sequence.came_before(run, now):
            self.refusing.turn_down(run, remote, refusal, now, told=True)
