"""Decides whether an arriving message is for us, for another queue manager, or unwanted. [MS-MQQB] 3.1.5.8"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.manager.arriving.insequence import InSequence
from mqproto.manager.arriving.inserting import Inserting, Room
from mqproto.manager.arriving.refusing import Refusing
from mqproto.manager.arriving.transit import HOP_COUNT, Transit
from mqproto.manager.confirmations import Confirmations
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import Histories
from mqproto.manager.localqueues import LocalQueues, local_name
from mqproto.manager.outbound import Outbound
from mqproto.manager.outcomes import Tracing
from mqproto.messages.drafts import as_sent
from mqproto.queues.localqueue import LocalQueue
from mqproto.queues.rules import admission as rules
from mqproto.queues.rules.strangers import standing
from mqproto.routing import Routes
from mqproto.session import Remote
from mqproto.transfer.places import every_one, lookup, returning
from mqproto.transfer.spellings import IncomingSequences
from mqproto.turn.desk import Desk
from mqproto.turn.effects import IncomingRow, ReadSequences
from mqproto.wire import NULL_GUID, MessageClass, TxSequenceId, UserHeader, without_session_header
from mqproto.wire.glance import RECOVERABLE, TRANSACTIONAL, Head, has_debug_header, head_of
from mqproto.wire.guid import guid_text
from mqproto.wire.shapes import Run, run_of

LOOKED_UP_BYTES: Final = 8 * 2**20
"""The maximum number of bytes of strangers' messages that wait for the store's answer about sequences; a single message
may exceed it.
"""
JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask


Judgment = tuple[rules.Ruling, Head, LocalQueue | None]
"""The ruling on a message, fields of its head, and the local queue that it is for, or None if there is no such
queue.
"""


class NotWelcomeError(Exception):
    """A message that must not be sent on this session.

    The session is closed, and the sender keeps the message.
    """


class Arrivals:
    """The rules for messages that arrive.

    Consecutive messages of the same kind form a run. Questions with the same answer for the whole run are asked once:
    who brings the run, where it goes, whether there is room. A run is taken as a whole if every objection to one of its
    messages would also apply to the first. Otherwise its messages are taken one by one, as runs of one.
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
        """The function that forwards messages; tests may replace it, see parts.py."""
        self._looked_up: dict[ReadSequences, list[tuple[Run, Remote]]] = {}
        """Strangers' messages that wait for the store's answer, because their sequences may be on disk."""
        self.looked_up_bytes = 0
        self.reads: list[ReadSequences] = [every_one(manager) for manager in routes.peers]

    def brought_by(self, remote: Remote, window_size: int) -> None:
        """Set the neighbour or stranger from which the next messages come, and the window that it announces."""
        self._histories.of(remote).brought_by(remote.manager, window_size)

    def judge(self, run: Run, at: int, remote: Remote, *, confirms: bool = True) -> Judgment:
        """Return the judgment of the message at index `at` of a run.

        It says what will be done with the message, and gives the reason.

        confirms: whether the message may be an acknowledgment, as far as we know.
        """
        head, identity = head_of(run.packets[at]), self._desk.identity
        source, target = head.source_queue_manager, head.queue_manager_address
        transactional = bool(head.flags & TRANSACTIONAL)
        destination: rules.Destination = rules.ELSEWHERE
        queue = None
        if target in (identity, NULL_GUID):
            facts = run.facts
            if facts.message_class and confirms:
                destination = rules.CLASSED
            else:
                queue = self._queues.addressed(facts.destination_queue, transactional=transactional)
                destination = rules.MISSING if queue is None else queue.declaration.transactional
        if not remote.is_proven:
            bringer = self._standing(destination, queue, head, remote, len(run.packets[at]))
        elif source == remote.manager or self._routes.brings(
            remote.manager, source, target=target, own=identity
        ):
            bringer = rules.NEIGHBOUR
        else:
            bringer = rules.NO_ROUTER
        return rules.RULES[bringer, destination, transactional], head, queue

    def _standing(
        self,
        destination: rules.Destination,
        queue: LocalQueue | None,
        head: Head,
        remote: Remote,
        size_bytes: int,
    ) -> str:
        """Return the standing of a stranger's message, or the reason why it is unwelcome."""
        declaration = None if queue is None else queue.declaration
        return standing(
            head,
            remote.manager,
            destination,
            declaration,
            claims=remote.manager in self._routes.peers,
            is_invited=declaration is not None and self._outbound.has_invited(remote, declaration.identifier),
            is_full=queue is not None
            and queue.size_bytes + size_bytes > self._desk.settings.strangers_queue_bytes,
        )

    def together(self, run: Run, at: int, judgment: Judgment) -> int:
        """Return how many messages, beginning with the judged one at index `at`, may be taken at once.

        The result is at least 1.
        """
        ruling, head, queue = judgment
        packets, source = run.packets, head.source_queue_manager
        if not ruling.together or (head.flags & JOURNAL_NEGATIVE and source == self._desk.identity):
            return 1
        if ruling.take is rules.Take.IN_SEQUENCE:
            assert queue is not None
            if not self._sequences.has(source, queue.queue, run.facts.destination_queue):
                return 1
        if len(set(run.message_ids)) < len(packets):
            return 1
        sizes = list(accumulate(map(len, islice(packets, at, None))))
        return max(bisect_right(sizes, self.room.left_bytes), 1)

    def arrived(self, run: Run, judgment: Judgment, remote: Remote, now: Moment) -> None:
        """Process judged UserMessages: one, or as many as may be taken `together`.  3.1.5.8

        Raises:
            NoRoomError: the messages would exceed QueueManagerQuota or the room on the disk, or would begin one
                sequence too many.
            NotWelcomeError: the messages must not be sent on this session.
        """
        packet, head = run.packets[0], judgment[1]
        if head.flags & JOURNAL_NEGATIVE and head.source_queue_manager == self._desk.identity:
            # Sessions do not carry the name of a queue for dead letters, so a name behind a message is not ours.
            packet = as_sent(without_session_header(packet))
            run = run_of(packet)
        if not remote.is_proven:
            if (welcome := self._welcome(run, judgment, remote, now)) is None:
                return
            judgment = welcome
        ruling, _, queue = judgment
        take = ruling.take
        if take is rules.Take.TURN_AWAY:
            raise NotWelcomeError(ruling.why.format(guid_text(head.source_queue_manager)))
        is_ours = take is not rules.Take.PASS_ON
        if sum(map(len, run.packets)) > self.room.left_bytes:
            self.room.see_that_it_fits(run, head, remote, is_ours=is_ours)
        if not head.flags & TRANSACTIONAL:
            if (new := self._without_duplicates(run, head, remote, now, is_ours=is_ours)) is None:
                return
            run = new
        if take is rules.Take.CONFIRM:
            if self._confirmations.take(run.message, packet, remote, now):
                return
            ruling, _, queue = self.judge(run, 0, remote, confirms=False)
            take = ruling.take
        refused_count = self.refusing.count
        if take is rules.Take.PASS_ON:
            self.forward(run, head, remote, now)
        elif queue is None or take is rules.Take.REFUSE:
            self._refuse(run, ruling, remote, now)
        elif take is rules.Take.LET_IN:
            self._inserting.let_in(queue, run, remote, now)
        elif take is rules.Take.IN_SEQUENCE or self._is_known(queue.queue, queue.name, run, remote):
            self.in_sequence.arrived(queue, run, remote, now)
        traced = not run.shape.may_have_others and has_debug_header(packet) and remote.is_proven
        if traced and self.refusing.count == refused_count:  # 3.1.5.8.2: what is refused is disregarded.
            self._tracing.received(run.message, now, passes_on=take is rules.Take.PASS_ON)

    def _refuse(self, run: Run, ruling: rules.Ruling, remote: Remote, now: Moment) -> None:
        """End a message here, unless it is a copy of a message that ended earlier."""
        assert ruling.message_class is not None
        if not self.in_sequence.came_before(run, now):
            self.refusing.refuse(run, remote, ruling.message_class)

    def _welcome(self, run: Run, judgment: Judgment, remote: Remote, now: Moment) -> Judgment | None:
        """Return the judgment of a stranger's message if it still has to be processed.

        Return None if nothing is left to do. Acknowledgments have their own rule. Refused messages are not kept. If a
        transactional message is for a queue that does not exist or refuses its kind, its sender is told, because
        otherwise it would resend forever. It is not told that a queue is closed to strangers, because the operator may
        have forgotten to open the queue. A full store also refuses strangers.
        """
        [packet] = run.packets
        if judgment[0].take is rules.Take.CONFIRM:
            if self._confirmations.take(run.message, packet, remote, now):
                return None
            judgment = self.judge(run, 0, remote, confirms=False)
        head, refusal = judgment[1], judgment[0].message_class
        if refusal is None:
            return judgment
        self.room.see_that_it_fits(run, head, remote, is_ours=True)
        transactional = bool(head.flags & TRANSACTIONAL) and refusal is not MessageClass.NACK_Q_EXCEED_QUOTA
        if transactional:
            deleted = self._queues.deleted(name := run.facts.destination_queue)
            if self.in_sequence.came_before(run, now):
                return None
            if deleted is not None and not self._is_known(deleted, str(local_name(name)), run, remote):
                return None
        self.refusing.turn_down(run, remote, refusal, now, told=transactional)
        return None

    def _without_duplicates(
        self, run: Run, head: Head, remote: Remote, now: Moment, *, is_ours: bool
    ) -> Run | None:
        """Return the messages of a run that are not duplicates; None if all of them are.  3.1.5.8.1, 3.1.5.8.2"""
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

    def refuses(self, packet: bytes, remote: Remote) -> bool:
        """Return whether a stranger's message will be refused no matter what bytes follow.

        The packet may be incomplete. Return False if the message may be an acknowledgment, or if the refusal returns
        the body to the sender. Also return False for a neighbour: its handshake and a large first message may arrive in
        one read, so the message is judged once it is complete.
        """
        try:
            run = run_of(packet)
            (ruling, head, _), properties = self.judge(run, 0, remote), run.message.properties
        except WireFormatError:
            return False
        goes_back = properties.report_no_arrival and head.flags & TRANSACTIONAL
        is_kept = remote.is_proven or properties.message_class or goes_back
        return not is_kept and ruling.take in (rules.Take.TURN_AWAY, rules.Take.REFUSE)

    # Strangers' sequences that gave up their places

    def _is_known(self, queue: int, called: str, run: Run, remote: Remote) -> bool:
        """Return whether the sequence of a stranger's message is in memory.

        If not, the message waits for the store's answer; it is dropped if too many bytes are waiting.
        """
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
        """Return the requests to the store that have not been taken yet, each only once."""
        reads, self.reads = self.reads, []
        return reads

    def found(self, read: ReadSequences, rows: Sequence[IncomingRow], now: Moment) -> None:
        """Take the store's answer about a stranger's sequences, and process the messages that waited for it."""
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
        """End a message whose queue no longer exists, unless an earlier copy of it has already ended.

        The store's rows, or else `came_before`, show whether there was such a copy.
        """
        [packet] = run.packets
        header, name = run.shape.header_of(packet), run.facts.destination_queue
        deleted = self._queues.deleted(name)
        row = None if deleted is None else returning(rows, deleted, name, header)
        if row is not None:
            last = (TxSequenceId(ordinal=row.ordinal, time_stamp=row.time_stamp), row.number)
            if (header.tx_sequence_id, header.tx_sequence_number) <= last:
                self._desk.waypoints.duplicate_dropped(packet)
                return
        refusal = self.judge(run, 0, remote, confirms=False)[0].message_class
        if refusal is not None and not self.in_sequence.came_before(run, now):
            self.refusing.turn_down(run, remote, refusal, now, told=True)
