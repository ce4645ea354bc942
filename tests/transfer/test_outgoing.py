"""Queues of messages for other nodes, on their way out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqproto.session import InFlight
from mqproto.turn.effects import QueueKind, QueueRow, Writes, message_key
from mqproto.turn.endings import Ending
from mqproto.wire import INFINITE, TransactionHeader
from tests.windows import QUEUE, SMALL, Carrier, Pages, a_packet, body_of


def test_a_message_leaves_an_outgoing_queue_when_the_neighbour_has_it() -> None:
    carrier = Carrier()
    carrier.put(1)
    carrier.put(2, recoverable=False)
    entries = carrier.take_all()
    assert [entry.recoverable for entry in entries] == [True, False]
    assert not carrier.queue.has_next
    assert (carrier.queue.count, len(carrier.store.messages)) == (2, 1)
    for entry in entries:
        carrier.queue.acknowledged([entry], carrier.writes)
    assert carrier.queue.count == 0
    carrier.writes.force()
    taken = carrier.commit()
    assert taken is not None
    key = message_key(QUEUE, 1)
    assert taken.removals == [(key, key)], "the second was never stored"


def test_an_outgoing_queue_goes_on_behind_what_the_store_has() -> None:
    carrier = Carrier()
    for number in range(5):
        carrier.put(number)
    for entry in carrier.take_all()[:3]:
        carrier.queue.acknowledged([entry], carrier.writes)
    carrier.commit_all()
    carrier.restart()
    queue = carrier.queue
    assert (queue.count, queue.last_position, queue.registered, queue.priority) == (2, 5, True, 3)
    [(page, rows)] = carrier.wanted()
    assert page.after == 3
    carrier.loaded([(page, rows[:1])])
    assert queue.has_next
    assert carrier.put("new") == 6
    assert [body_of(entry.packet) for entry in carrier.take_all()] == ["3", "4", "new"]


def test_a_queue_waits_while_it_has_messages_in_memory_or_on_disk_and_is_not_on_hold() -> None:
    carrier = Carrier()
    assert not carrier.queue.is_waiting
    carrier.put("x")
    assert carrier.queue.is_waiting
    carrier.restart()
    assert (carrier.queue.has_next, carrier.queue.is_waiting) == (False, True)
    carrier.queue.on_hold = True
    assert not carrier.queue.is_waiting
    carrier.queue.on_hold = False
    carrier.take_all()
    assert not carrier.queue.is_waiting


def test_a_queue_of_which_all_was_deleted_on_disk_waits_for_nothing_though_nothing_of_it_was_read() -> None:
    carrier = Carrier()
    positions = [carrier.put(number) for number in range(5)]
    carrier.restart()
    for position in positions:
        assert carrier.queue.is_waiting
        assert carrier.queue.delete(position, carrier.writes)
    assert not carrier.queue.is_waiting
    carrier.put("new")
    assert carrier.queue.is_waiting


@pytest.mark.parametrize("on_hold", [True, False])
def test_a_queue_on_hold_sends_nothing_also_after_a_restart(on_hold: bool) -> None:
    carrier = Carrier()
    carrier.put("x")
    row = QueueRow(QUEUE, QueueKind.OUTGOING, "b", 3, on_hold)
    carrier.store.commit(Writes(queues=[row]))
    carrier.restart()
    carrier.loaded(carrier.wanted())
    assert carrier.queue.has_next is not on_hold


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize("changes", [{"time_to_reach_queue_s": 5}, {"time_to_be_received_s": 5}])
def test_a_message_may_be_on_its_way_through_the_last_second_of_either_time(changes: dict[str, Any]) -> None:
    carrier = Carrier()
    for number in range(2):
        carrier.put(number, **changes)
    carrier.pass_s(5)
    assert isinstance(carrier.take(), InFlight)
    assert carrier.expire() == []
    carrier.pass_s(1)
    over = carrier.take()
    assert isinstance(over, Ending)
    assert body_of(over.packet) == "1"
    carrier.commit()
    assert carrier.queue.count == len(carrier.store.messages) == 1


def test_an_express_message_that_expires_in_memory_does_not_touch_the_disk() -> None:
    carrier = Carrier()
    for number in range(2):
        carrier.put(number, recoverable=False, time_to_reach_queue_s=5)
    carrier.pass_s(6)
    assert isinstance(carrier.take(), Ending)
    assert carrier.expire() == ["1"]
    assert (carrier.queue.count, carrier.store.commit_count) == (0, 0)


def test_what_the_store_says_of_a_message_that_is_not_in_the_queue_means_nothing() -> None:
    carrier = Carrier()
    carrier.pass_s(6)
    over = a_packet("x", time_to_reach_queue_s=5)
    assert not carrier.queue.expired_on_disk(1, over, carrier.now, carrier.writes)
    assert carrier.queue.count == 0


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_transactional_messages_of_others_pass_whatever_their_time() -> None:
    """Only a message's destination knows whether it has had the message before."""
    carrier = Carrier()
    for number in range(6):
        carrier.put(number, transaction=TransactionHeader(), time_to_reach_queue_s=5)
    carrier.pass_s(6)
    assert carrier.expire() == []
    assert len(carrier.take_all()) == 6


def test_what_is_over_leaves_in_memory_and_on_disk_but_not_what_the_neighbour_may_have() -> None:
    carrier = Carrier()
    for number in range(8):
        carrier.put(number, time_to_reach_queue_s=5 if number % 2 else INFINITE)
    first, second = carrier.take(), carrier.take()
    assert isinstance(first, InFlight)
    assert isinstance(second, InFlight)
    carrier.pass_s(6)
    assert carrier.expire() == ["3", "5", "7"]
    assert carrier.queue.count == len(carrier.store.messages) == 5
    carrier.queue.returned([first, second])
    assert [body_of(entry.packet) for entry in carrier.take_all()] == ["0", "2", "4", "6"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
def test_a_message_is_deleted_where_it_lies_but_not_where_the_neighbour_may_have_it() -> None:
    carrier = Carrier()
    for number in range(1, 8):
        carrier.put(number, recoverable=number != 3)
    taken = carrier.take()
    assert isinstance(taken, InFlight)
    deleted = [position for position in range(10) if carrier.queue.delete(position, carrier.writes)]
    assert deleted == [2, 3, *range(SMALL.resident_messages + 1, 8)]
    assert not carrier.queue.delete(2, carrier.writes)
    carrier.commit()
    assert (carrier.queue.count, len(carrier.store.messages)) == (1, 1)


class AQueueAgainstAList(RuleBasedStateMachine):
    """Messages of all kinds join, are sent, come back, expire and are deleted; pages arrive late; the node crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.carrier = Carrier()
        self.bodies: Iterator[int] = count(1)
        self.messages: dict[str, tuple[int, bool, int | None]] = {}
        """For each message, keyed by body: its position, whether it is on disk, and the last second before it
        expires.
        """
        self.waiting: list[str] = []
        self.out: list[InFlight] = []
        self.pages: Pages = []

    def in_order(self, bodies: list[str]) -> list[str]:
        return sorted(bodies, key=int)

    def is_over(self, body: str) -> bool:
        deadline_s = self.messages[body][2]
        return deadline_s is not None and self.carrier.now.utc_s > deadline_s

    @rule(
        kind=st.sampled_from(["express", "recoverable", "transactional"]),
        seconds=st.sampled_from([INFINITE, INFINITE, 5, 20]),
    )
    def join(self, kind: str, seconds: int) -> None:
        body, now_s = str(next(self.bodies)), self.carrier.now.utc_s
        changes: dict[str, Any] = {"time_to_reach_queue_s": seconds, "sent_time_s": now_s}
        if kind == "transactional":
            changes["transaction"] = TransactionHeader()
        position = self.carrier.put(body, recoverable=kind != "express", **changes)
        stored = message_key(QUEUE, position) in self.carrier.store.messages
        assert stored or kind == "express"
        lasts = seconds == INFINITE or kind == "transactional"
        self.messages[body] = (position, stored, None if lasts else now_s + seconds)
        self.waiting.append(body)

    @precondition(lambda self: self.carrier.queue.has_next)
    @rule(limit=st.integers(1, 4), limit_bytes=st.sampled_from([1, 300, 10_000]))
    def leave(self, limit: int, limit_bytes: int) -> None:
        ready = len(self.carrier.queue.window)
        entries, over = self.carrier.take_run(limit, limit_bytes)
        count = len(entries) + len(over)
        assert 1 <= count <= min(limit, ready)
        sizes = [len(entry.packet) for entry in entries]
        assert sum(sizes[:-1]) < limit_bytes, "the last one is the first that does not fit"
        assert count == min(limit, ready) or sum(sizes) >= limit_bytes
        bodies, self.waiting = self.waiting[:count], self.waiting[count:]
        assert [body_of(message.packet) for message in over] == list(filter(self.is_over, bodies))
        assert [body_of(entry.packet) for entry in entries] == [b for b in bodies if not self.is_over(b)]
        for entry in entries:
            assert entry.message.stored is self.messages[body_of(entry.packet)][1]
        self.out += entries

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def are_acknowledged(self, data: st.DataObject) -> None:
        places = data.draw(st.sets(st.integers(0, len(self.out) - 1), min_size=1))
        entries = [self.out[place] for place in sorted(places)]
        self.out = [entry for entry in self.out if entry not in entries]
        self.carrier.queue.acknowledged(entries, self.carrier.writes)
        self.carrier.commit_all()

    @precondition(lambda self: self.out)
    @rule()
    def the_session_breaks(self) -> None:
        self.carrier.queue.returned(self.out)
        self.waiting = self.in_order([*self.waiting, *(body_of(entry.packet) for entry in self.out)])
        self.out = []

    @rule()
    def pages_are_read(self) -> None:
        self.pages += self.carrier.wanted()

    @precondition(lambda self: self.pages)
    @rule()
    def the_pages_arrive(self) -> None:
        self.carrier.loaded(self.pages)
        self.pages = []

    @rule(seconds=st.integers(1, 10))
    def time_passes(self, seconds: int) -> None:
        self.carrier.pass_s(seconds)

    @precondition(lambda self: not self.pages)
    @rule()
    def what_is_over_leaves(self) -> None:
        gone = self.carrier.expire()
        assert sorted(gone) == sorted(body for body in self.waiting if self.is_over(body))
        self.waiting = [body for body in self.waiting if body not in gone]

    @precondition(lambda self: self.waiting and not self.pages)
    @rule(data=st.data())
    def is_deleted(self, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(self.waiting))
        assert self.carrier.queue.delete(self.messages[body][0], self.carrier.writes)
        self.carrier.commit()
        self.waiting.remove(body)

    @rule()
    def crash(self) -> None:
        self.carrier.restart()
        there = [*self.waiting, *(body_of(entry.packet) for entry in self.out)]
        self.waiting = self.in_order([body for body in there if self.messages[body][1]])
        self.out, self.pages = [], []

    @invariant()
    def counts_are_right(self) -> None:
        there = {*self.waiting, *(body_of(entry.packet) for entry in self.out)}
        assert self.carrier.queue.count == len(there)
        stored = {body_of(row.packet) for row in self.carrier.store.messages.values()}
        assert stored == {body for body in there if self.messages[body][1]}

    @invariant()
    def what_the_neighbour_may_have_is_not_deleted(self) -> None:
        for entry in self.out:
            assert not self.carrier.queue.delete(entry.position, self.carrier.writes)

    def teardown(self) -> None:
        """Check at the end that all messages that have not expired can be sent, in order."""
        self.the_pages_arrive()
        if self.out:
            self.the_session_breaks()
        expected = [body for body in self.waiting if not self.is_over(body)]
        entries = self.carrier.take_all()
        assert [body_of(entry.packet) for entry in entries] == expected
        for entry in entries:
            self.carrier.queue.acknowledged([entry], self.carrier.writes)
        self.carrier.commit_all()
        assert (self.carrier.queue.count, self.carrier.store.messages) == (0, {})


TestAQueueAgainstAList = AQueueAgainstAList.TestCase
TestAQueueAgainstAList.settings = hypothesis_settings(stateful_step_count=40)
