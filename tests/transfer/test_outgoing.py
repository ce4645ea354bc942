"""Queues and sequences on their way out."""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqproto.configuration import Settings
from mqproto.effects import (
    MessageRow,
    QueueKind,
    QueueRow,
    ReadPage,
    StoredQueue,
    Waiting,
    Writes,
    message_key,
)
from mqproto.moment import Moment
from mqproto.pending import PendingWrites
from mqproto.session import InFlight
from mqproto.timers import Timer, Timers
from mqproto.transfer.incoming import IncomingSequence, Verdict
from mqproto.transfer.outgoing import OutgoingQueue, OutgoingSequence
from mqproto.wire import (
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
    user_message,
)
from simulator.disk import Disk
from tests.pair import guid_of

QUEUE, FINAL = 5, 6
NOW = Moment(1_000, 1_700_000_000)
SMALL = Settings(resident_messages=3, resend_batch=2)


def a_transactional_packet(identifier: TxSequenceId, number: int, previous: int) -> bytes:
    return encode_packet(
        user_message(
            source=guid_of("a"),
            destination_manager=guid_of("c"),
            destination=16,
            message_id=number,
            sent_time_s=0,
            body=b"x",
            transaction=TransactionHeader(
                tx_sequence_id=identifier,
                tx_sequence_number=number,
                previous_tx_sequence_number=previous,
            ),
        )
    )


def header_of(packet: bytes) -> TransactionHeader:
    message = decode_packet(packet)
    assert isinstance(message, UserMessage)
    assert message.transaction is not None
    return message.transaction


class Sender:
    """One sequence with its disk, its timers and nothing else of a queue manager."""

    def __init__(self, settings: Settings = SMALL) -> None:
        self.settings = settings
        self.store = Disk()
        rows = [QueueRow(QUEUE, QueueKind.SEQUENCE, "q"), QueueRow(FINAL, QueueKind.FINAL, "q")]
        self.store.commit(Writes(queues=rows))
        self.now = NOW
        self.timers = Timers()
        self.writes = PendingWrites(self.timers)
        self.sequence = OutgoingSequence(QUEUE, "q", guid_of("c"), 9, settings, self.timers, NOW)
        self.sequence.final_queue = FINAL
        self.writes.changed(self.sequence, urgent=True)
        self.commit()

    def commit(self) -> None:
        """What is urgent goes to disk, and pages that are wanted come from there."""
        writes = self.writes.take(self.now)
        if writes is not None:
            self.store.commit(writes)
        for page in list(self.sequence.pages()):
            self.sequence.loaded(page, self.store.read(page))

    def put(self, *, final_ack: bool = False) -> tuple[TxSequenceId, int]:
        """An application sends a message; its identifier and number."""
        sequence = self.sequence
        identifier, number, previous = sequence.number_next()
        packet = a_transactional_packet(identifier, number, previous)
        position = sequence.next_position()
        sequence.final_asked |= final_ack
        self.writes.put(MessageRow(message_key(QUEUE, position), packet, 1_000 + position, final_ack))
        sequence.append(Waiting(position, packet, final_ack, stored=True))
        self.writes.changed(sequence, urgent=True)
        self.commit()
        return identifier, number

    def take(self, count: int = 1) -> list[InFlight]:
        entries = []
        for _ in range(count):
            assert self.sequence.has_next
            entries.append(self.sequence.take(self.now))
            self.commit()
        return entries

    def take_numbers(self) -> list[int]:
        """Send whatever may be sent now; the numbers on the wire."""
        numbers = []
        while self.sequence.has_next:
            numbers += [header_of(entry.packet).tx_sequence_number for entry in self.take()]
        return numbers

    def order_ack(self, number: int) -> bool:
        news = self.sequence.order_ack(number, self.now, self.writes)
        self.commit()
        return news

    def withdraw(self, number: int) -> None:
        self.sequence.withdraw(number, self.writes)
        self.writes.force()
        self.commit()

    def expire(self) -> None:
        self.sequence.ack_wait_expired(self.now)
        self.commit()

    def pass_ms(self, milliseconds: int) -> None:
        self.now = Moment(self.now.uptime_ms + milliseconds, self.now.utc_s)

    def restart(self) -> None:
        """The process ends; what was not committed is gone."""
        state = self.store.load()
        stored = next(found for found in state.queues if found.queue == QUEUE)
        low = message_key(QUEUE, 0)
        self.timers = Timers()
        self.writes = PendingWrites(self.timers)
        self.sequence = OutgoingSequence(
            QUEUE, "q", guid_of("c"), 9, self.settings, self.timers, self.now, stored
        )
        self.sequence.final_queue = FINAL
        gaps = [(first - low, last - low) for first, last in state.gaps]
        self.sequence.restore(state.outgoing[0], gaps, stored.first)
        self.commit()


# Numbers


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
def test_messages_are_numbered_from_one_and_each_names_the_one_before() -> None:
    sender = Sender()
    assert [sender.put()[1] for _ in range(3)] == [1, 2, 3]
    headers = [header_of(entry.packet) for entry in sender.take(3)]
    assert [(h.tx_sequence_number, h.previous_tx_sequence_number) for h in headers] == [
        (1, 0),
        (2, 1),
        (3, 2),
    ]
    assert {h.tx_sequence_id for h in headers} == {TxSequenceId(time_stamp=9, ordinal=1)}


@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
def test_a_number_that_was_looked_at_is_not_used_up() -> None:
    sender = Sender()
    assert sender.sequence.number_next() == sender.sequence.number_next()
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=1), 1)


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
def test_when_all_is_acknowledged_the_next_message_begins_a_new_sequence() -> None:
    sender = Sender()
    for _ in range(3):
        sender.put()
    sender.take_numbers()
    assert sender.order_ack(2)
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=1), 4)
    sender.take_numbers()
    assert sender.order_ack(4)
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=2), 1)
    assert [header_of(entry.packet).previous_tx_sequence_number for entry in sender.take()] == [0]


# OrderAck


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1.1")
def test_an_order_ack_removes_up_to_its_number_and_says_when_the_next_resend_is() -> None:
    sender = Sender(Settings())
    for _ in range(5):
        sender.put()
    sender.take_numbers()
    sender.pass_ms(700)
    assert sender.order_ack(3)
    sequence = sender.sequence
    assert (sequence.count, sequence.last_ack, sequence.last_ack_count) == (2, 3, 1)
    assert sequence.resend_at_ms == sender.now.uptime_ms + 30_000
    assert not sender.order_ack(3), "nothing new"
    assert not sender.order_ack(1), "going back"
    assert (sequence.count, sequence.last_ack, sequence.last_ack_count) == (2, 3, 3)
    assert sender.order_ack(5)
    assert sequence.resend_at_ms is None


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
def test_a_message_leaves_the_disk_with_its_order_ack_and_not_with_a_session_ack() -> None:
    sender = Sender()
    sender.put()
    (entry,) = sender.take()
    sender.sequence.acknowledged(entry, sender.writes)
    sender.writes.force()
    sender.commit()
    assert len(sender.store.messages) == 1
    sender.order_ack(1)
    sender.writes.force()
    sender.commit()
    assert sender.store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_what_asked_for_a_final_ack_is_kept_apart_by_its_message_id() -> None:
    sender = Sender()
    for final_ack in (False, True, False):
        sender.put(final_ack=final_ack)
    sender.take_numbers()
    sender.order_ack(3)
    sender.writes.force()
    sender.commit()
    assert list(sender.store.messages) == [message_key(FINAL, 1_002)]
    assert not sender.sequence.final_asked


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
def test_what_was_sent_is_known_also_after_a_restart_when_any_may_have_been() -> None:
    sender = Sender()
    for _ in range(3):
        sender.put()
    sender.take(2)
    assert [sender.sequence.was_sent(number) for number in (0, 1, 2, 3, 4)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    sender.restart()
    assert [sender.sequence.was_sent(number) for number in (0, 1, 2, 3, 4)] == [
        False,
        True,
        True,
        True,
        False,
    ]


# Withdrawing


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_later_messages_bridge_the_gap_that_a_refused_one_leaves() -> None:
    sender = Sender(Settings())
    for _ in range(4):
        sender.put()
    sender.take_numbers()
    sender.withdraw(2)
    sender.withdraw(3)
    sender.withdraw(3)
    assert sender.sequence.count == 2
    sender.expire()
    headers = [header_of(entry.packet) for entry in sender.take(2)]
    assert [(h.tx_sequence_number, h.previous_tx_sequence_number) for h in headers] == [(1, 0), (4, 1)]
    sender.order_ack(1)
    sender.withdraw(1)
    assert sender.sequence.count == 1
    sender.withdraw(4)
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=2), 1)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_a_gap_at_the_end_of_what_is_kept_is_bridged_after_a_restart_too() -> None:
    sender = Sender()
    for _ in range(3):
        sender.put()
    sender.take_numbers()
    sender.withdraw(3)
    sender.restart()
    sender.put()
    assert sender.sequence.number_next()[2] == 4
    headers = [header_of(entry.packet) for entry in sender.take(3)]
    assert [(h.tx_sequence_number, h.previous_tx_sequence_number) for h in headers] == [
        (1, 0),
        (2, 1),
        (4, 2),
    ]


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_a_message_that_was_withdrawn_while_it_was_out_does_not_come_back_with_the_session() -> None:
    sender = Sender()
    sender.put()
    sender.put()
    entries = sender.take(2)
    sender.withdraw(1)
    sender.sequence.disconnected()
    sender.sequence.returned(entries)
    assert sender.take_numbers() == [2]


def test_a_page_that_was_read_before_a_withdrawal_does_not_bring_the_message_back() -> None:
    sender = Sender(Settings())
    for _ in range(3):
        sender.put()
    sender.take_numbers()
    sender.sequence.ack_wait_expired(sender.now)
    (page,) = sender.sequence.pages()
    rows = sender.store.read(page)
    sender.withdraw(2)
    sender.sequence.loaded(page, rows)
    assert sender.take_numbers() == [1, 3]


# Resending: 3.1.6.5


@pytest.mark.spec("[MS-MQQB] 3.1.2.6")
@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3")
def test_time_outs_in_a_row_wait_longer_and_an_order_ack_brings_the_first_interval_back() -> None:
    """3.1.5.6 lets the interval grow with each OrderAck; note <24> with each time-out in a row."""
    sender = Sender(Settings())
    sender.put()
    sender.put()
    sender.take_numbers()
    sequence = sender.sequence
    intervals = []
    for _ in range(11):
        due = sequence.resend_at_ms
        assert due is not None
        intervals.append(due - sender.now.uptime_ms)
        sender.pass_ms(intervals[-1])
        assert list(sender.timers.expired(sender.now.uptime_ms)) == [(Timer.TRANSACTIONAL_ACK_WAIT, sequence)]
        sender.expire()
        assert sender.take_numbers() == [1, 2]
    assert [ms // 1_000 for ms in intervals] == [30] * 3 + [300] * 3 + [1_800] * 3 + [21_600] * 2
    assert sequence.resend_count == 22
    sender.order_ack(1)
    assert sequence.resend_interval_ms == 30_000


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_a_resend_goes_a_batch_at_a_time_and_on_when_an_order_ack_tells_that_it_arrives() -> None:
    """By the letter all go at once; with a destination that is down, each time-out would fill disks with copies."""
    sender = Sender()
    for _ in range(7):
        sender.put()
    sender.take_numbers()
    sender.expire()
    assert sender.take_numbers() == [1, 2]
    sender.order_ack(1)
    assert sender.take_numbers() == [3]
    sender.order_ack(3)
    assert sender.take_numbers() == [4, 5]
    sender.order_ack(5)
    sender.put()
    assert sender.take_numbers() == [6, 7, 8]


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_a_resend_leaves_out_what_an_order_ack_covers_meanwhile() -> None:
    sender = Sender(Settings())
    for _ in range(6):
        sender.put()
    sender.take_numbers()
    sender.expire()
    sender.take(3)
    sender.order_ack(2)
    assert sender.take_numbers() == [4, 5, 6]


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_a_resend_ends_when_an_order_ack_tells_of_more_than_was_sent_again() -> None:
    """The first copies were late and not lost: a backlog that drains is not sent a second time."""
    sender = Sender(Settings())
    for _ in range(6):
        sender.put()
    sender.take_numbers()
    sender.expire()
    sender.take(2)
    sender.order_ack(3)
    assert sender.take_numbers() == []
    sender.expire()
    assert sender.take_numbers() == [4, 5, 6]


def test_a_page_that_a_newer_time_out_has_overtaken_is_read_again_from_the_start() -> None:
    sender = Sender(Settings(resident_messages=4, resend_batch=10))
    for _ in range(6):
        sender.put()
    sender.take_numbers()
    sender.expire()
    sender.take(2)
    sender.sequence.ack_wait_expired(sender.now)
    stale = ReadPage(QUEUE, 2, 2, 2**20, resend=True)
    sender.sequence.loaded(stale, sender.store.read(stale))
    sender.commit()
    assert sender.take_numbers() == [1, 2, 3, 4, 5, 6]


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
def test_without_a_session_nothing_is_late_and_with_a_new_one_the_wait_begins_anew() -> None:
    """3.1.3.2 would send all anew at once; what the neighbour has acknowledged is on its disk."""
    sender = Sender(Settings())
    sender.put()
    (entry,) = sender.take()
    sender.sequence.acknowledged(entry, sender.writes)
    sender.expire()
    sender.sequence.disconnected()
    assert sender.sequence.resend_at_ms is None
    assert not sender.sequence.has_next
    sender.sequence.connected(sender.now)
    assert sender.sequence.resend_interval_index == 0
    assert sender.sequence.resend_at_ms == sender.now.uptime_ms + 30_000
    assert not sender.sequence.has_next


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
def test_a_session_without_anything_unacknowledged_starts_no_timer() -> None:
    sender = Sender()
    sender.put()
    sender.sequence.connected(sender.now)
    assert sender.sequence.resend_at_ms is None


@pytest.mark.spec("[MS-MQQB] 3.1.2.6")
def test_what_was_saved_out_of_order_and_returned_in_part_is_still_waited_for() -> None:
    """The neighbour has saved 2 and not 1: 1 goes again, and both wait for their OrderAck."""
    sender = Sender(Settings())
    sender.put()
    sender.put()
    first, second = sender.take(2)
    sender.sequence.acknowledged(second, sender.writes)
    sender.sequence.disconnected()
    sender.sequence.returned([first])
    assert sender.take_numbers() == [1]
    sender.order_ack(1)
    assert sender.sequence.resend_at_ms is not None
    sender.expire()
    assert sender.take_numbers() == [2]


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.2")
def test_after_a_restart_only_what_the_neighbour_has_not_acknowledged_goes_at_once() -> None:
    sender = Sender()
    for _ in range(4):
        sender.put()
    entries = sender.take(3)
    for entry in entries[:2]:
        sender.sequence.acknowledged(entry, sender.writes)
    sender.writes.force()
    sender.commit()
    sender.restart()
    assert sender.take_numbers() == [3, 4]
    sender.expire()
    assert sender.take_numbers() == [1, 2]


class ASequenceFromEndToEnd(RuleBasedStateMachine):
    """A sequence, a wire that breaks, a destination that refuses some messages, and crashes.

    The destination is an IncomingSequence with a disk that never fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sender = Sender()
        self.destination = IncomingSequence(
            guid_of("a"), 1, 2, Settings(held_messages_limit=3), Timers(), NOW
        )
        self.connected = False
        self.wire: list[InFlight] = []
        self.unanswered: list[InFlight] = []
        self.refusals: list[tuple[TxSequenceId, int]] = []
        self.refused: set[tuple[TxSequenceId, int]] = set()
        self.accepted: list[tuple[TxSequenceId, int]] = []
        self.expected: list[tuple[TxSequenceId, int]] = []
        self.kept: list[tuple[TxSequenceId, int]] = []

    @rule(refused=st.booleans(), count=st.integers(1, 4))
    def put(self, refused: bool, count: int) -> None:
        for _ in range(count):
            key = self.sender.put()
            self.kept.append(key)
            if refused:
                self.refused.add(key)
            else:
                self.expected.append(key)

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.connected = True
        self.sender.sequence.connected(self.sender.now)

    @precondition(lambda self: self.connected and self.sender.sequence.has_next)
    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        while count and self.sender.sequence.has_next:
            self.wire += self.sender.take()
            count -= 1

    @precondition(lambda self: self.wire)
    @rule()
    def arrive(self) -> None:
        entry = self.wire.pop(0)
        self.unanswered.append(entry)
        header = header_of(entry.packet)
        key = (header.tx_sequence_id, header.tx_sequence_number)
        if key in self.refused:
            self.refusals.append(key)
            return
        verdict = self.destination.judge(header, len(entry.packet))
        if verdict is Verdict.HOLD:
            self.destination.hold(header, entry.packet)
        elif verdict is Verdict.ACCEPT:
            self.accepted.append(key)
            for held in self.destination.release()[0]:
                self.accepted.append((held.header.tx_sequence_id, held.header.tx_sequence_number))

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        entry = self.unanswered.pop(data.draw(st.integers(0, len(self.unanswered) - 1)))
        self.sender.sequence.acknowledged(entry, self.sender.writes)

    def _lose(self) -> list[InFlight]:
        lost = sorted([*self.wire, *self.unanswered], key=lambda entry: entry.position)
        self.wire, self.unanswered, self.connected = [], [], False
        return lost

    @precondition(lambda self: self.connected)
    @rule()
    def lose_the_session(self) -> None:
        lost = self._lose()
        self.sender.sequence.returned(lost)
        self.sender.sequence.disconnected()
        self.sender.commit()

    @rule()
    def crash(self) -> None:
        self._lose()
        self.sender.restart()

    @precondition(lambda self: self.destination.number)
    @rule()
    def order_ack(self) -> None:
        sequence, identifier, number = (
            self.sender.sequence,
            self.destination.identifier,
            self.destination.number,
        )
        if identifier == sequence.identifier and sequence.was_sent(number):
            self.sender.order_ack(number)
            self.kept = [key for key in self.kept if key[0] != identifier or key[1] > number]

    @precondition(lambda self: self.refusals)
    @rule()
    def final_ack(self) -> None:
        identifier, number = self.refusals.pop(0)
        sequence = self.sender.sequence
        if identifier == sequence.identifier and sequence.was_sent(number):
            self.sender.withdraw(number)
            self.kept = [key for key in self.kept if key != (identifier, number)]

    @precondition(lambda self: self.connected and self.sender.sequence.resend_at_ms is not None)
    @rule()
    def expire(self) -> None:
        self.sender.expire()

    @invariant()
    def what_was_accepted_is_in_order_and_once(self) -> None:
        assert self.accepted == self.expected[: len(self.accepted)]

    @invariant()
    def the_count_is_right(self) -> None:
        stored = len([k for k in self.sender.store.messages if k < message_key(FINAL, 0)])
        assert self.sender.sequence.count <= stored, "an OrderAck may be on disk later, never before"
        if self.kept or self.sender.sequence.count:
            assert self.sender.sequence.count >= len(self.kept)

    def teardown(self) -> None:
        """Calm: all that the destination does not refuse arrives, and nothing is kept."""
        for _ in range(400):
            if not self.sender.sequence.count:
                break
            if not self.connected:
                self.connect()
            if self.sender.sequence.has_next:
                self.send(100)
            elif self.sender.sequence.resend_at_ms is not None:
                self.expire()
            while self.wire:
                self.arrive()
            while self.unanswered:
                self.sender.sequence.acknowledged(self.unanswered.pop(0), self.sender.writes)
            while self.refusals:
                self.final_ack()
            if self.destination.number:
                self.order_ack()
        assert self.sender.sequence.count == 0
        assert self.accepted == self.expected
        self.sender.writes.force()
        self.sender.commit()
        assert self.sender.store.messages == {}


TestASequenceFromEndToEnd = ASequenceFromEndToEnd.TestCase
TestASequenceFromEndToEnd.settings = hypothesis_settings(stateful_step_count=40)


# Queues of what is not ours to keep


def test_a_message_leaves_an_outgoing_queue_when_the_neighbour_has_it() -> None:
    timers = Timers()
    writes = PendingWrites(timers)
    queue = OutgoingQueue(3, "b", Settings())
    for position in (1, 2):
        packet = a_transactional_packet(TxSequenceId(), 1, 0)
        queue.append(Waiting(queue.next_position(), packet, False, stored=position == 1))
    entries = [queue.take(NOW), queue.take(NOW)]
    assert [entry.recoverable for entry in entries] == [True, True]
    assert not queue.has_next
    for entry in entries:
        queue.acknowledged(entry, writes)
    assert queue.count == 0
    writes.force()
    taken = writes.take(NOW)
    assert taken is not None
    assert taken.removals == [(message_key(3, 1), message_key(3, 1))], "the second was never stored"


def test_an_outgoing_queue_goes_on_behind_what_the_store_has() -> None:
    stored = StoredQueue(3, QueueKind.OUTGOING, "b", 2, 10, first=4, last=5, final_ack_count=0)
    queue = OutgoingQueue(3, "b", Settings(), stored)
    assert (queue.count, queue.next_position(), queue.registered) == (2, 6, True)
    (page,) = queue.pages()
    assert page.after == 3
    queue.loaded(page, [(4, b"x", False)])
    assert queue.has_next
