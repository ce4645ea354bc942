"""Queues from which applications receive."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.queues.localqueue import QueueDeclaration, SystemQueue
from mqproto.turn.effects import (
    UNKNOWN_COUNT,
    MessageRow,
    QueueKind,
    QueueRow,
    ReadExpired,
    Writes,
    message_key,
)
from mqproto.turn.endings import Place
from mqproto.wire import INFINITE, MessageClass
from mqproto.wire.glance import receive_deadline_s
from tests.windows import NOW, SMALL, Hosted, Pages, a_packet, body_of


def a_queue(messages: int = 0, settings: Settings | None = None) -> Hosted:
    """Return a queue with messages 1 to `messages`."""
    hosted = Hosted(settings=settings or Settings())
    for number in range(1, messages + 1):
        hosted.insert(number)
    return hosted


# Consumers


def test_who_asks_first_is_served_first_with_as_much_as_there_is() -> None:
    hosted = a_queue(3)
    for consumer in (1, 2, 3):
        hosted.ask(consumer, 2)
    assert hosted.hand_out() == {1: ["1", "2"], 2: ["3"]}
    assert hosted.queue.count == 0
    hosted.insert(4)
    assert hosted.hand_out() == {3: ["4"]}


def test_a_transaction_counts_until_it_is_committed() -> None:
    hosted = a_queue(3)
    hosted.ask(1, 2, transactional=True)
    assert hosted.hand_out() == {1: ["1", "2"]}
    assert (hosted.queue.count, list(hosted.queue.consumers.unsettled)) == (3, [1])
    assert len(hosted.store.messages) == 3
    hosted.settle(1)
    assert (hosted.queue.count, hosted.queue.consumers.unsettled) == (1, {})
    assert [body_of(row.packet) for row in hosted.store.messages.values()] == ["3"]


@given(
    priorities=st.lists(st.integers(0, 7), min_size=1, max_size=20),
    limits=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    dice=st.randoms(),
)
def test_what_is_rolled_back_in_any_order_comes_again_in_the_first_order(
    priorities: list[int], limits: list[int], dice: random.Random
) -> None:
    hosted = a_queue()
    for number, priority in enumerate(priorities):
        hosted.insert(number, priority=priority)
    for consumer, limit in enumerate(limits):
        hosted.ask(consumer, limit, transactional=True)
    consumers = list(hosted.hand_out())
    dice.shuffle(consumers)
    for consumer in consumers:
        hosted.queue.consumers.roll_back(consumer)
    for consumer in range(len(limits)):
        hosted.queue.consumers.abandon(consumer)
    in_order = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
    assert hosted.receive() == [str(number) for number in in_order]


def test_a_consumer_that_has_gone_waits_no_longer_and_gives_back_what_it_had() -> None:
    hosted = a_queue(1)
    hosted.ask(1, transactional=True)
    hosted.hand_out()
    hosted.ask(2, transactional=True)
    hosted.queue.consumers.abandon(2)
    hosted.queue.consumers.abandon(1)
    assert hosted.hand_out() == {}
    hosted.ask(3)
    assert hosted.hand_out() == {3: ["1"]}


@pytest.mark.parametrize("limit", [0, -1])
def test_asking_for_nothing_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="ask for 1 or more"):
        a_queue(1).ask(1, limit)


def test_a_consumer_settles_before_it_asks_again_and_only_what_it_was_given() -> None:
    hosted = a_queue(1)
    hosted.ask(1, transactional=True)
    with pytest.raises(UsageError, match="must settle queue orders"):
        hosted.ask(1, transactional=True)
    hosted.hand_out()
    with pytest.raises(UsageError, match="must settle queue orders"):
        hosted.ask(1, transactional=True)
    with pytest.raises(UsageError, match="nothing of queue orders to settle"):
        hosted.settle(2)
    with pytest.raises(UsageError, match="nothing of queue orders to settle"):
        hosted.queue.consumers.roll_back(2)


def test_a_queue_is_in_use_while_an_application_waits_or_has_not_settled() -> None:
    hosted = a_queue(1)
    assert (bool(hosted.queue.consumers), len(hosted.queue.consumers)) == (False, 0)
    hosted.ask(1, transactional=True)
    hosted.ask(2)
    assert (bool(hosted.queue.consumers), len(hosted.queue.consumers)) == (True, 2)
    hosted.hand_out()
    assert (bool(hosted.queue.consumers), len(hosted.queue.consumers)) == (True, 2)
    hosted.queue.consumers.abandon(2)
    hosted.settle(1)
    assert (bool(hosted.queue.consumers), len(hosted.queue.consumers)) == (False, 0)


# Pages


def test_pages_are_read_for_who_waits_and_once_for_a_peek() -> None:
    before = a_queue(15)
    before.ask(1, 10)
    before.turn()
    hosted = Hosted(settings=Settings(resident_messages=4))
    hosted.store = before.store
    hosted.restart()
    assert (hosted.queue.count, hosted.queue.name) == (5, "orders")
    [(page, rows)] = hosted.wanted()
    assert (page.after, page.limit_messages) == (10, 2)
    hosted.loaded([(page, rows[:1])])
    assert hosted.wanted() == [], "something is at hand and nobody asks"
    assert len(hosted.queue.peek(9)) == 1
    hosted.ask(1)
    [(page, _)] = hosted.wanted()
    assert page.after == 11
    hosted.insert(16)
    assert hosted.queue.lane(0).last_position == 16


def test_a_peek_shows_the_highest_priority_first_as_much_as_was_asked_for_and_is_in_memory() -> None:
    hosted = Hosted()
    for number in range(6):
        hosted.insert(f"low {number}")
    hosted.insert("high", priority=7)
    shown = hosted.queue.peek(3)
    assert [body_of(received.packet) for received in shown] == ["high", "low 0", "low 1"]
    assert len({received.key for received in shown}) == 3
    assert len(hosted.queue.peek(99)) == 1 + SMALL.resident_messages
    assert hosted.queue.count == 7


# Priorities  [MS-MQMQ] 2.2.19.1


@given(messages=st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=30), restarted=st.booleans())
def test_the_highest_priority_comes_first_and_in_one_priority_the_oldest_also_after_a_restart(
    messages: list[tuple[int, bool]], restarted: bool
) -> None:
    """Most messages are on disk: nothing overtakes messages that have yet to be read."""
    hosted = Hosted()
    there = []
    for number, (priority, recoverable) in enumerate(messages):
        key = hosted.insert(number, priority=priority, recoverable=recoverable)
        if not restarted or key in hosted.store.messages:
            there.append((-priority, number))
    if restarted:
        hosted.restart()
    assert hosted.receive() == [str(number) for _, number in sorted(there)]
    assert (hosted.queue.count, hosted.queue.size_bytes, hosted.store.messages) == (0, 0, {})


def test_a_lower_priority_waits_while_the_higher_one_is_still_to_be_read() -> None:
    hosted = Hosted()
    hosted.insert("high", priority=5)
    hosted.insert("low", priority=2)
    hosted.restart()
    pages = hosted.wanted()
    assert len(pages) == 2
    low = [(page, rows) for page, rows in pages if page.queue == hosted.queue.lane(2).queue]
    high = [(page, rows) for page, rows in pages if page.queue == hosted.queue.lane(5).queue]
    hosted.loaded(low)
    hosted.ask(1)
    assert hosted.hand_out() == {}
    hosted.loaded(high)
    assert hosted.hand_out() == {1: ["high", "low"]}


def test_a_lane_is_made_when_it_is_needed_and_known_again_by_its_priority() -> None:
    hosted = Hosted()
    assert [lane.priority for lane in hosted.queue.lanes] == [0]
    for priority in (3, 7, 5, 3):
        hosted.insert("x", priority=priority)
    numbers = {lane.priority: lane.queue for lane in hosted.queue.lanes}
    assert list(numbers) == [7, 5, 3, 0]
    assert len(set(numbers.values())) == 4
    hosted.restart()
    assert {lane.priority: lane.queue for lane in hosted.queue.lanes} == numbers
    assert hosted.queue.queue == numbers[0]
    assert hosted.store.queues[numbers[5]] == QueueRow(numbers[5], QueueKind.LOCAL, "orders", 5)


def test_an_express_message_that_memory_has_room_for_does_not_touch_the_disk() -> None:
    hosted = Hosted()
    commits = hosted.store.commit_count
    hosted.insert("x", recoverable=False)
    assert hosted.receive() == ["x"]
    assert hosted.store.commit_count == commits


# Endings: 3.1.7.2


def test_of_most_messages_that_are_received_nobody_hears() -> None:
    hosted = a_queue(2)
    assert hosted.receive() == ["1", "2"]
    assert hosted.endings == []


@pytest.mark.spec("[MS-MQQB] 3.1.7.2")
@pytest.mark.parametrize(
    "changes", [{"journal_negative": True}, {"journal_positive": True}, {"admin_queue": 9}]
)
@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_that_somebody_wants_to_hear_of_ends_when_it_is_received_for_good(
    changes: dict[str, Any], transactional: bool
) -> None:
    hosted = Hosted()
    hosted.insert("x", **changes)
    hosted.ask(1, transactional=transactional)
    hosted.hand_out()
    if transactional:
        assert hosted.endings == []
        hosted.settle(1)
    [ending] = hosted.endings
    assert (ending.message_class, ending.place, ending.queue) == (
        MessageClass.ACK_RECEIVE,
        Place.IN_QUEUE,
        hosted.queue.queue,
    )


@pytest.mark.parametrize(
    ("journal", "final_ack", "heard"), [(True, False, 1), (False, True, 1), (False, False, 0)]
)
def test_a_journal_and_a_final_ack_want_to_hear_too(journal: bool, final_ack: bool, heard: int) -> None:
    hosted = Hosted(QueueDeclaration("orders", 16, journal=journal))
    hosted.queue.insert(
        hosted.queue.lane(3).rows([a_packet("x")], [5], recoverable=False, final_ack=final_ack)
    )
    assert hosted.receive() == ["x"]
    assert len(hosted.endings) == heard


def test_what_is_rejected_leaves_with_its_class_whoever_wants_to_hear() -> None:
    hosted = a_queue(3)
    hosted.ask(1, 2, transactional=True)
    hosted.hand_out()
    hosted.reject(1)
    assert hosted.ended() == [
        ("1", MessageClass.NACK_RECEIVE_REJECTED),
        ("2", MessageClass.NACK_RECEIVE_REJECTED),
    ]
    assert hosted.receive() == ["3"]


@pytest.mark.parametrize("name", ["orders;journal", *(name.value for name in SystemQueue)])
def test_what_a_journal_or_a_dead_letter_queue_keeps_has_ended_and_ends_no_more(name: str) -> None:
    hosted = Hosted(QueueDeclaration(name, 0))
    assert hosted.queue.is_system
    hosted.insert("over", time_to_be_received_s=5, journal_positive=True)
    hosted.insert("rejected", journal_negative=True)
    hosted.pass_s(6)
    hosted.let_go()
    hosted.let_go_on_disk()
    hosted.ask(1, transactional=True)
    assert hosted.hand_out() == {1: ["over", "rejected"]}
    hosted.reject(1)
    hosted.insert("purged", journal_negative=True)
    hosted.queue.purging.begin(hosted.queue.lanes)
    hosted.turn()
    assert hosted.endings == []
    assert hosted.store.messages == {}


def test_a_queue_of_an_application_is_none_of_the_system() -> None:
    assert not Hosted().queue.is_system


# Expiry  [MS-MQDMPR] 3.1.7.2.7


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@given(seconds=st.integers(0, 99) | st.just(INFINITE), age_s=st.integers(0, 100))
def test_a_message_may_be_received_through_the_last_second_of_its_time(seconds: int, age_s: int) -> None:
    hosted = Hosted()
    hosted.insert("x", time_to_be_received_s=seconds)
    hosted.pass_s(age_s)
    assert hosted.receive() == ([] if age_s > seconds else ["x"])


def test_what_is_over_is_handed_out_to_nobody_and_ends() -> None:
    hosted = Hosted()
    hosted.insert("short", time_to_be_received_s=5)
    hosted.insert("long", time_to_be_received_s=50)
    hosted.pass_s(6)
    assert hosted.receive() == ["long"]
    assert hosted.ended() == [("short", MessageClass.NACK_RECEIVE_TIMEOUT)]
    assert hosted.store.messages == {}


def test_a_consumer_goes_on_waiting_where_all_that_there_was_is_over() -> None:
    hosted = Hosted()
    hosted.insert("short", time_to_be_received_s=5)
    hosted.pass_s(6)
    hosted.ask(1)
    assert hosted.hand_out() == {}
    hosted.insert("new")
    assert hosted.hand_out() == {1: ["new"]}


def test_what_is_over_in_memory_is_let_go_and_what_a_consumer_has_is_not() -> None:
    hosted = Hosted()
    for body in ("taken", "left"):
        hosted.insert(body, time_to_be_received_s=5)
    hosted.insert("lasting")
    hosted.ask(1, 1, transactional=True)
    hosted.hand_out()
    hosted.pass_s(6)
    hosted.let_go()
    assert hosted.ended() == [("left", MessageClass.NACK_RECEIVE_TIMEOUT)]
    assert (hosted.queue.count, len(hosted.store.messages)) == (2, 2)
    hosted.queue.consumers.roll_back(1)
    hosted.let_go()
    assert [body for body, _ in hosted.ended()] == ["left", "taken"]
    assert hosted.receive() == ["lasting"]


def test_on_disk_a_message_is_let_go_if_it_is_over_and_nobody_has_it_in_memory() -> None:
    hosted = Hosted()
    for number in range(7):
        hosted.insert(number, time_to_be_received_s=5 if number % 2 else INFINITE)
    lane = hosted.queue.lane(0)
    rows = hosted.store.read(ReadExpired(99, 2**40))
    assert [body_of(packet) for _, packet, _ in rows] == ["1", "3", "5"]
    gone = []
    for later_s in (5, 1):
        hosted.pass_s(later_s)
        for key, packet, _ in rows:
            position = key - lane.key(0)
            if hosted.queue.let_go_on_disk(lane, position, packet, hosted.now):
                gone.append((hosted.now.utc_s - NOW.utc_s, body_of(packet)))
    hosted.commit_all()
    assert gone == [(6, "3"), (6, "5")], "1 is in memory"
    assert [body for body, _ in hosted.ended()] == ["3", "5"]
    assert not hosted.queue.let_go_on_disk(lane, 99, rows[0][1], hosted.now)
    assert hosted.receive() == ["0", "2", "4", "6"]
    assert hosted.queue.count == 0


# Purging  [MS-MQDMPR] 3.1.7.1.7


def test_a_purge_takes_all_that_is_there_in_memory_and_on_disk_and_nothing_that_comes_later() -> None:
    hosted = Hosted()
    for number in range(10):
        hosted.insert(number, priority=number % 3)
    hosted.queue.purging.begin(hosted.queue.lanes)
    hosted.insert("new", priority=2)
    assert hosted.queue.purging
    hosted.turn()
    assert not hosted.queue.purging
    assert sorted(hosted.ended()) == [(str(n), MessageClass.NACK_Q_PURGED) for n in range(10)]
    assert (hosted.queue.count, len(hosted.store.messages)) == (1, 1)
    assert hosted.receive() == ["new"]


@pytest.mark.parametrize("committed", [True, False])
def test_of_what_a_consumer_has_a_purge_takes_what_it_gives_back(committed: bool) -> None:
    hosted = a_queue(3)
    hosted.ask(1, 2, transactional=True)
    hosted.hand_out()
    hosted.queue.purging.begin(hosted.queue.lanes)
    hosted.turn()
    assert hosted.queue.purging, "two may come back"
    assert hosted.ended() == [("3", MessageClass.NACK_Q_PURGED)]
    if committed:
        hosted.settle(1)
    else:
        hosted.queue.consumers.roll_back(1)
    hosted.turn()
    assert not hosted.queue.purging
    assert len(hosted.ended()) == (1 if committed else 3)
    assert hosted.receive() == []
    assert hosted.store.messages == {}


def test_the_class_says_whether_messages_were_purged_or_their_queue_deleted() -> None:
    hosted = a_queue(1)
    hosted.queue.purging.begin(hosted.queue.lanes, MessageClass.NACK_Q_DELETED)
    hosted.turn()
    hosted.insert(2)
    hosted.queue.purging.begin(hosted.queue.lanes)
    hosted.turn()
    assert hosted.ended() == [("1", MessageClass.NACK_Q_DELETED), ("2", MessageClass.NACK_Q_PURGED)]


def test_a_purge_of_an_empty_queue_has_nothing_to_do() -> None:
    hosted = a_queue()
    hosted.queue.purging.begin(hosted.queue.lanes)
    assert not hosted.queue.purging


def test_a_purge_of_a_queue_that_was_emptied_is_over_at_once() -> None:
    hosted = a_queue(2)
    hosted.receive()
    hosted.queue.purging.begin(hosted.queue.lanes)
    hosted.turn()
    assert not hosted.queue.purging
    assert hosted.endings == []


# One message taken out


def test_a_message_in_memory_is_taken_out_by_its_key_and_only_once() -> None:
    hosted = Hosted()
    keys = [hosted.insert(number, priority=number % 2) for number in range(4)]
    packet = hosted.queue.take_out(keys[1])
    assert packet is not None
    assert body_of(packet) == "1"
    assert hosted.queue.take_out(keys[1]) is None
    hosted.commit_all()
    assert hosted.receive() == ["3", "0", "2"]
    assert hosted.store.messages == {}


def test_what_leaves_is_told_with_its_reason_and_by_what_it_was_replaced() -> None:
    hosted = Hosted()
    keys = [hosted.insert(number) for number in range(3)]
    hosted.commit_all()
    hosted.queue.take_out(keys[0], again=77)
    hosted.receive()
    told = [
        (one.message_class, [body_of(packet) for packet in one.packets], one.again)
        for one in hosted.departures
    ]
    assert told == [(MessageClass.NORMAL, ["0"], 77), (MessageClass.ACK_RECEIVE, ["1", "2"], 0)]


def test_of_what_memory_alone_has_nothing_is_told_when_it_leaves() -> None:
    hosted = Hosted()
    hosted.insert("express", recoverable=False)
    [express] = hosted.queue.peek(1)
    assert hosted.queue.take_out(express.key) is not None
    hosted.insert("express", recoverable=False)
    assert hosted.receive() == ["express"]
    assert hosted.departures == []


def test_a_message_is_recalled_wherever_it_is_and_only_once() -> None:
    """The first consumer has the first two messages, memory has the next ones, and the disk has the rest."""
    hosted = a_queue(9, SMALL)
    hosted.ask(1, 2, transactional=True)
    assert hosted.hand_out() == {1: ["1", "2"]}
    packets = {key: row.packet for key, row in hosted.store.messages.items()}
    first = min(packets)
    for position in (1, 3, 9, 3, 1):
        hosted.queue.recall(position, packets[first + position - 1])
    hosted.commit_all()
    assert hosted.queue.count == len(hosted.store.messages) == 6
    assert not hosted.queue.recall(10, b"")
    hosted.queue.consumers.roll_back(1)
    assert hosted.receive() == ["2", "4", "5", "6", "7", "8"]


def test_a_message_on_disk_alone_and_a_key_of_another_queue_are_not_taken_out() -> None:
    hosted = Hosted()
    keys = [hosted.insert(number) for number in range(SMALL.resident_messages + 1)]
    for key in (keys[-1], keys[-1] + 1, keys[0] - 1, 7, 9 << 40 | 1):
        assert hosted.queue.take_out(key) is None
    assert hosted.queue.count == len(keys)


# Messages that were held  [MS-MQQB] 3.1.5.8.6


def test_a_message_that_was_held_behind_a_gap_joins_at_the_end_and_counts_from_then_on() -> None:
    hosted = Hosted()
    hosted.insert("before")
    packet = a_packet("held", time_to_be_received_s=5)
    held = QueueRow(50, QueueKind.HELD, "early")
    row = MessageRow(message_key(50, 1), packet, 7, final_ack=True)
    hosted.store.commit(Writes(queues=[held], messages=[row]))
    hosted.queue.insert_held(row.key, packet, final_ack=True, expires_s=9)
    hosted.commit()
    moved = hosted.store.messages[hosted.queue.lane(0).key(2)]
    assert (moved.packet, moved.message_id, moved.expires_s) == (packet, 7, 9)
    assert (hosted.queue.count, hosted.queue.size_bytes) == (2, len(a_packet("before")) + len(packet))
    hosted.restart()
    assert hosted.receive() == ["before", "held"]


# Quotas


def test_a_queue_has_room_for_what_keeps_within_its_quota() -> None:
    size = len(a_packet("x"))
    hosted = Hosted(QueueDeclaration("orders", 16, quota_bytes=2 * size))
    assert hosted.queue.has_room(2 * size)
    assert not hosted.queue.has_room(2 * size + 1)
    hosted.insert("x")
    assert hosted.queue.has_room(size)
    assert not hosted.queue.has_room(size + 1)
    assert a_queue(3).queue.has_room(2**60), "without a quota there is always room"


def test_what_a_consumer_has_takes_room_until_it_is_settled() -> None:
    size = len(a_packet("x"))
    hosted = Hosted(QueueDeclaration("orders", 16, quota_bytes=size))
    hosted.insert("x")
    hosted.ask(1, transactional=True)
    hosted.hand_out()
    assert not hosted.queue.has_room(1)
    hosted.queue.consumers.roll_back(1)
    assert not hosted.queue.has_room(1)
    hosted.restart()
    assert not hosted.queue.has_room(1)
    assert hosted.receive() == ["x"]
    assert hosted.queue.has_room(size)


class AQueueAgainstAList(RuleBasedStateMachine):
    """Messages arrive, are received, given back and purged, and expire; pages arrive late; the node crashes."""

    QUOTA = 3_000

    def __init__(self) -> None:
        super().__init__()
        self.hosted = Hosted(QueueDeclaration("orders", 16, quota_bytes=self.QUOTA))
        self.numbers = count(1)
        self.consumers = count(1)
        self.messages: dict[str, tuple[int, bytes, bool]] = {}
        """For each body: the message's priority, its packet, and whether it is on disk."""
        self.waiting: list[str] = []
        """The model: bodies in the order in which they are to be handed out."""
        self.unsettled: dict[int, list[str]] = {}
        self.asking: list[int] = []
        self.purged: set[str] = set()
        self.pages: Pages = []
        self.given_back = Counter[str]()
        """The number of times that a body was handed out and given back."""
        self.there_at_start: set[str] = set()

    def in_order(self, bodies: Iterable[str]) -> list[str]:
        return sorted(bodies, key=lambda body: (-self.messages[body][0], int(body)))

    def is_over(self, body: str) -> bool:
        deadline_s = receive_deadline_s(self.messages[body][1])
        return deadline_s is not None and self.hosted.now.utc_s > deadline_s

    def follow_endings(self) -> None:
        """Check that every message that ended was waiting, and that it was purged or had expired."""
        for body, message_class in self.hosted.ended():
            self.waiting.remove(body)
            if message_class == MessageClass.NACK_Q_PURGED:
                assert body in self.purged
            else:
                assert message_class == MessageClass.NACK_RECEIVE_TIMEOUT
                assert self.is_over(body)
        self.hosted.endings.clear()

    @rule(
        priority=st.sampled_from([0, 3, 7]),
        recoverable=st.booleans(),
        seconds=st.sampled_from([INFINITE, INFINITE, 5, 20]),
    )
    def come(self, priority: int, recoverable: bool, seconds: int) -> None:
        body = str(next(self.numbers))
        sent_s = self.hosted.now.utc_s
        changes = {"time_to_be_received_s": seconds, "sent_time_s": sent_s}
        key = self.hosted.insert(body, priority=priority, recoverable=recoverable, **changes)
        packet = a_packet(body, priority=priority, recoverable=recoverable, **changes)
        stored = key in self.hosted.store.messages
        assert stored or not recoverable
        self.messages[body] = (priority, packet, stored)
        self.waiting = self.in_order([*self.waiting, body])

    @rule(limit=st.integers(1, 3), transactional=st.booleans())
    def ask(self, limit: int, transactional: bool) -> None:
        consumer = next(self.consumers)
        if transactional:
            self.unsettled[consumer] = []
        self.asking.append(consumer)
        self.hosted.ask(consumer, limit, transactional=transactional)

    @rule()
    def turn(self) -> None:
        """Do what a queue manager does after an event in a queue."""
        if self.hosted.queue.purging:
            self.hosted.let_go()
        given_out = self.hosted.hand_out()
        self.follow_endings()
        assert list(given_out) == self.asking[: len(given_out)], "first come, first served"
        for consumer, bodies in given_out.items():
            assert bodies == self.waiting[: len(bodies)]
            assert not self.purged & set(bodies)
            assert not any(self.is_over(body) for body in bodies)
            self.waiting = self.waiting[len(bodies) :]
            self.asking.remove(consumer)
            for body in bodies:
                expected = UNKNOWN_COUNT if body in self.there_at_start else self.given_back[body] + 1
                assert self.hosted.delivery_counts[body] == expected
            if consumer in self.unsettled:
                self.unsettled[consumer] = bodies
        self.pages += self.hosted.wanted()

    @precondition(lambda self: self.waiting and not self.hosted.queue.purging)
    @rule(data=st.data())
    def ask_for_these(self, data: st.DataObject) -> None:
        """Ask for some messages from memory; if one is not there, or has expired, none are returned."""
        there = {one.key: body_of(one.packet) for one in self.hosted.queue.peek(99)}
        live = [key for key, body in there.items() if not self.is_over(body)]
        if not live:
            return
        chosen = data.draw(st.lists(st.sampled_from(live), min_size=1, unique=True))
        consumer = next(self.consumers)
        for absent in (2**50, *there.keys() - live):
            with pytest.raises(UsageError, match="1 of these messages"):
                self.hosted.queue.hand_out_these(consumer, [chosen[0], absent], self.hosted.now)
        given = self.hosted.queue.hand_out_these(consumer, chosen, self.hosted.now)
        bodies = [body_of(one.packet) for one in given]
        assert bodies == self.in_order(there[key] for key in chosen)
        self.waiting = [body for body in self.waiting if body not in bodies]
        self.unsettled[consumer] = bodies

    @precondition(lambda self: self.pages)
    @rule()
    def the_pages_arrive(self) -> None:
        self.hosted.loaded(self.pages)
        self.pages = []

    def one_of(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from([c for c, bodies in self.unsettled.items() if bodies]))

    @precondition(lambda self: any(self.unsettled.values()))
    @rule(
        data=st.data(),
        message_class=st.sampled_from([MessageClass.ACK_RECEIVE, MessageClass.NACK_RECEIVE_REJECTED]),
    )
    def settle(self, data: st.DataObject, message_class: MessageClass) -> None:
        consumer = self.one_of(data)
        if message_class == MessageClass.ACK_RECEIVE:
            self.hosted.settle(consumer)
        else:
            self.hosted.reject(consumer)
        rejected = self.unsettled.pop(consumer)
        told = [(body, message_class) for body in rejected if message_class != MessageClass.ACK_RECEIVE]
        assert self.hosted.ended() == told
        self.hosted.endings.clear()

    @precondition(lambda self: any(self.unsettled.values()))
    @rule(data=st.data(), gone=st.booleans())
    def give_back(self, data: st.DataObject, gone: bool) -> None:
        consumer = self.one_of(data)
        if gone:
            self.hosted.queue.consumers.abandon(consumer)
        else:
            self.hosted.queue.consumers.roll_back(consumer)
        self.given_back.update(self.unsettled[consumer])
        self.waiting = self.in_order([*self.waiting, *self.unsettled.pop(consumer)])

    @rule()
    def purge(self) -> None:
        self.hosted.queue.purging.begin(self.hosted.queue.lanes)
        self.purged |= {*self.waiting, *(body for bodies in self.unsettled.values() for body in bodies)}

    @rule(seconds=st.integers(1, 10))
    def time_passes(self, seconds: int) -> None:
        self.hosted.pass_s(seconds)

    @rule()
    def the_timer_is_due(self) -> None:
        self.hosted.let_go()
        self.follow_endings()

    @precondition(lambda self: not self.pages)
    @rule()
    def the_store_is_asked_what_expires(self) -> None:
        self.hosted.let_go_on_disk()
        self.follow_endings()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def is_taken_out(self, data: st.DataObject) -> None:
        shown = self.hosted.queue.peek(99)
        if not shown:
            return
        received = data.draw(st.sampled_from(shown))
        assert self.hosted.queue.take_out(received.key) == received.packet
        self.hosted.commit_all()
        self.waiting.remove(body_of(received.packet))

    @rule()
    def crash(self) -> None:
        self.hosted.restart()
        there = [*self.waiting, *(body for bodies in self.unsettled.values() for body in bodies)]
        self.waiting = self.in_order(body for body in there if self.messages[body][2])
        self.unsettled, self.asking, self.pages = {}, [], []
        self.purged = set()
        self.there_at_start = set(self.waiting)

    @invariant()
    def counts_and_sizes_are_right(self) -> None:
        found = self.hosted.queue
        there = [*self.waiting, *(body for bodies in self.unsettled.values() for body in bodies)]
        size_bytes = sum(len(self.messages[body][1]) for body in there)
        assert (found.count, found.size_bytes) == (len(there), size_bytes)
        room = self.QUOTA - size_bytes
        assert found.has_room(room)
        assert not found.has_room(room + 1)

    @invariant()
    def a_peek_shows_what_waits_in_order(self) -> None:
        shown = [body_of(received.packet) for received in self.hosted.queue.peek(99)]
        assert shown == [body for body in self.waiting if body in set(shown)]

    @invariant()
    def the_disk_has_what_it_should(self) -> None:
        there = {*self.waiting, *(body for bodies in self.unsettled.values() for body in bodies)}
        stored = {body_of(row.packet) for row in self.hosted.store.messages.values()}
        assert stored == {body for body in there if self.messages[body][2]}

    def teardown(self) -> None:
        """Check at the end that all messages that are neither expired nor purged can be received, in order."""
        self.the_pages_arrive()
        for consumer in [*self.asking, *self.unsettled]:
            self.hosted.queue.consumers.abandon(consumer)
        there = [*self.waiting, *(body for bodies in self.unsettled.values() for body in bodies)]
        expected = [
            body for body in self.in_order(there) if body not in self.purged and not self.is_over(body)
        ]
        assert self.hosted.receive() == expected
        self.hosted.turn()
        assert len(self.hosted.endings) == len(there) - len(expected)
        assert not self.hosted.queue.purging
        assert self.hosted.store.messages == {}


TestAQueueAgainstAList = AQueueAgainstAList.TestCase
TestAQueueAgainstAList.settings = hypothesis_settings(stateful_step_count=40)
