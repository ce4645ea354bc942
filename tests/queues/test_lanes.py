"""A queue's window, compared with a plain list and a disk, and the lanes that have a window."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqproto.base.configuration import Settings
from mqproto.queues.lanes import QueueWindow
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import (
    MessageRow,
    QueueKind,
    QueueRow,
    ReadBy,
    ReadPage,
    Writes,
    message_key,
)
from tests.windows import QUEUE, Filed, no_deadline

OTHER = QUEUE + 1
SETTINGS = Settings(resident_messages=4, resident_bytes=100)


def append(window: QueueWindow, message: MessageRow) -> None:
    """Append a message at the end."""
    window.append([message], window.fitting([message.packet]))


class AWindowAgainstAList(RuleBasedStateMachine):
    """Messages join, leave, come back and are withdrawn; pages that are read arrive later."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Disk()
        self.store.commit(Writes(queues=[QueueRow(QUEUE, QueueKind.OUTGOING, "q")]))
        self.window = QueueWindow(QUEUE, SETTINGS)
        self.waiting: list[int] = []
        """The model: the positions that have not left yet, in order."""
        self.out: list[MessageRow] = []
        self.last = 0
        self.page: tuple[ReadPage, list[tuple[int, bytes, bool]]] | None = None

    def remove(self, position: int) -> None:
        writes = Writes()
        writes.remove(QUEUE, position, position)
        self.store.commit(writes)

    @rule(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6), express=st.booleans())
    def join(self, sizes: list[int], express: bool) -> None:
        messages = [
            MessageRow(message_key(QUEUE, position), bytes([position % 256]) * size, position, False)
            for position, size in enumerate(sizes, self.last + 1)
        ]
        fitting = self.window.fitting([message.packet for message in messages])
        self.store.commit(Writes(messages=messages[fitting if express else 0 :]))
        self.window.append(messages, fitting)
        self.last = messages[-1].position
        self.waiting += [message.position for message in messages]

    @precondition(lambda self: self.window)
    @rule()
    def leave(self) -> None:
        message = self.window.pop()
        assert message.position == self.waiting.pop(0)
        self.out.append(message)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        back = sorted(message for message in self.out if data.draw(st.booleans()))
        self.out = [message for message in self.out if message not in back]
        self.window.give_back(back)
        self.waiting = sorted(self.waiting + [message.position for message in back])

    @precondition(lambda self: self.out)
    @rule()
    def are_done_with(self) -> None:
        for message in self.out:
            self.remove(message.position)
        self.out.clear()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def is_withdrawn(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.waiting))
        # A page that was read before a withdrawal may bring the message back; the queue itself sees to that.
        if self.page is None or all(row[0] != position for row in self.page[1]):
            self.waiting.remove(position)
            if self.window.forget(position) is None:
                self.window.forget_on_disk(position)
            self.remove(position)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def all_up_to_one_are_withdrawn(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.waiting))
        on_disk = [other for other in self.waiting if self.window.read_through < other <= position]
        self.window.forget_through(position, len(on_disk))
        for other in [p for p in self.waiting if p <= position]:
            self.remove(other)
        self.waiting = [p for p in self.waiting if p > position]

    @rule()
    def a_page_is_read(self) -> None:
        page = self.window.wanted()
        if page is not None:
            assert self.page is None, "one page at a time"
            self.page = (page, self.store.read(page))

    @precondition(lambda self: self.page is not None)
    @rule()
    def the_page_arrives(self) -> None:
        assert self.page is not None
        self.window.loaded(self.page[1], no_deadline)
        self.page = None

    @invariant()
    def what_is_in_memory_is_what_leaves_next(self) -> None:
        positions = [message.position for message in self.window]
        assert positions == self.waiting[: len(positions)]
        assert len(self.window) == len(positions)
        assert self.window.next_position <= min(self.waiting, default=self.last + 1)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        unseen = self.waiting[len(self.window) :]
        if self.window.complete:
            assert unseen == []
        assert all(position > self.window.read_through for position in unseen)
        assert self.window.on_disk == len(unseen)

    @invariant()
    def the_sum_of_bytes_is_right(self) -> None:
        assert self.window._bytes == sum(len(message.packet) for message in self.window)

    def teardown(self) -> None:
        """Check at the end that all waiting messages can be read."""
        seen = []
        for _ in range(2 * self.last + 4):
            if self.page is not None:
                self.the_page_arrives()
            self.a_page_is_read()
            while self.window:
                seen.append(self.window.pop().position)
        assert seen == self.waiting
        assert self.window.complete


TestAWindowAgainstAList = AWindowAgainstAList.TestCase


def test_memory_is_bounded_by_count_and_by_bytes() -> None:
    window = QueueWindow(QUEUE, SETTINGS)
    for position in range(1, 10):
        append(window, MessageRow(position, b"x", 0, False))
    assert len(window) == 4
    assert not window.fits
    heavy = QueueWindow(QUEUE, SETTINGS)
    for position in range(1, 10):
        append(heavy, MessageRow(position, bytes(60), 0, False))
    assert len(heavy) == 2, "the second still begins below the limit"


@given(
    sizes=st.lists(st.integers(1, 60), max_size=3),
    coming=st.lists(st.integers(1, 60), min_size=1, max_size=5),
)
def test_what_a_window_is_said_to_take_stays_in_memory(sizes: list[int], coming: list[int]) -> None:
    window = QueueWindow(QUEUE, SETTINGS)
    for position, size in enumerate(sizes, 1):
        append(window, MessageRow(position, bytes(size), 0, False, stored=False))
    before = len(window)
    takes_one, takes_all = window.takes(1, coming[0]), window.takes(len(coming), sum(coming))
    for position, size in enumerate(coming, len(sizes) + 1):
        append(window, MessageRow(position, bytes(size), 0, False, stored=False))
    assert takes_one == (len(window) > before)
    assert not takes_all or window.complete


@given(
    sizes=st.lists(st.integers(0, 60), max_size=3),
    coming=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    left_out=st.booleans(),
)
def test_of_messages_that_join_together_those_stay_in_memory_that_would_one_by_one(
    sizes: list[int], coming: list[int], left_out: bool
) -> None:
    last = int(left_out)
    together, singly = (QueueWindow(QUEUE, SETTINGS, last=last, on_disk=last) for _ in range(2))
    for window in (together, singly):
        for position, size in enumerate(sizes, 2):
            append(window, MessageRow(position, bytes(size), 0, False))
    messages = [MessageRow(position, bytes(size), 0, False) for position, size in enumerate(coming, 6)]
    fits = []
    for message in messages:
        fits.append(singly.fits)
        append(singly, message)
    assert together.fitting([message.packet for message in messages]) == sum(fits)
    together.append(messages, sum(fits))
    for name in ("read_through", "last", "on_disk", "next_position"):
        assert getattr(together, name) == getattr(singly, name)
    assert list(together) == list(singly)


def test_a_page_asks_for_half_of_the_window_and_only_when_half_of_it_is_free() -> None:
    window = QueueWindow(QUEUE, SETTINGS, last=9, on_disk=9)
    assert window.wanted() == ReadPage(QUEUE, 0, 2, 50, ReadBy.WINDOW)
    assert window.wanted() is None, "it is on its way"
    window.loaded([(1, b"x", False), (2, b"x", False)], no_deadline)
    assert window.wanted() == ReadPage(QUEUE, 2, 2, 50, ReadBy.WINDOW)
    window.loaded([(3, bytes(60), True)], no_deadline)
    assert window.wanted() is None, "more than half full"
    assert [message.final_ack for message in window] == [False, False, True]


def test_an_empty_page_tells_only_of_what_was_there_when_it_was_asked_for() -> None:
    window = QueueWindow(QUEUE, SETTINGS, last=2)
    assert window.wanted() is not None
    append(window, MessageRow(3, b"x", 0, False))
    window.loaded([], no_deadline)
    assert window.wanted() == ReadPage(QUEUE, 2, 2, 50, ReadBy.WINDOW)


@pytest.mark.parametrize("pages", [[[1, 2], [4, 5]], [[1, 2], []], [[]], [[5]], [[1, 3], [4, 5], []]])
def test_a_window_that_seems_to_be_read_to_its_end_though_the_store_has_more_says_so(
    pages: list[list[int]],
) -> None:
    window = QueueWindow(QUEUE, SETTINGS, last=5, on_disk=5)

    def read_all() -> None:
        for page in pages:
            assert window.wanted() is not None
            window.loaded([(position, b"x", False) for position in page], no_deadline)
            window.take(len(page))

    with pytest.raises(
        AssertionError, match=r"queue 5 is read to its end, and [1-5] of its messages are not"
    ):
        read_all()


# Lanes


def a_lane() -> Filed:
    """Return a lane, and a queue of another kind in the same store."""
    filed = Filed(SETTINGS)
    filed.store.commit(Writes(queues=[QueueRow(OTHER, QueueKind.HELD, "early")]))
    return filed


messages = st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=12)


@given(before=messages, after=messages)
def test_what_joins_a_lane_leaves_it_in_order_and_what_is_stored_survives_a_restart(
    before: list[tuple[int, bool]], after: list[tuple[int, bool]]
) -> None:
    filed = a_lane()
    expected = []
    for number, (size, recoverable) in enumerate(before):
        packet = bytes([number]) * size
        fits = filed.lane.window.fits
        filed.join(packet, recoverable=recoverable)
        written = filed.commit()
        stored = written is not None and bool(written.messages)
        assert stored == (recoverable or not fits), "an express message is stored where memory is short"
        if stored:
            expected.append(packet)
    filed.restart()
    for number, (size, recoverable) in enumerate(after, start=100):
        filed.join(bytes([number]) * size, recoverable=recoverable)
        filed.commit()
        expected.append(bytes([number]) * size)
    assert filed.leave_all() == expected


def test_positions_count_on_behind_what_the_store_has() -> None:
    filed = a_lane()
    for _ in range(3):
        filed.join(b"x", recoverable=True)
    assert filed.lane.last_position == 3
    filed.commit()
    filed.store.commit(Writes(removals=[(message_key(QUEUE, 1), message_key(QUEUE, 1))]))
    filed.restart()
    assert filed.lane.last_position == 3
    filed.join(b"y", recoverable=True)
    assert filed.lane.last_position == 4
    assert filed.lane.key(4) == message_key(QUEUE, 4)


def test_the_store_hears_of_a_lane_once_and_only_when_there_is_something_to_keep() -> None:
    filed = a_lane()
    filed.join(b"x", recoverable=False)
    assert filed.commit() is None
    filed.join(b"x", recoverable=True)
    filed.join(b"x", recoverable=True)
    written = filed.commit()
    assert written is not None
    assert written.queues == [QueueRow(QUEUE, QueueKind.LOCAL, "q", 5)]
    filed.lane.register(filed.writes)
    assert filed.commit() is None
    filed.restart()
    assert filed.lane.registered
    filed.join(b"x", recoverable=True)
    written = filed.commit()
    assert written is not None
    assert written.queues == []


def test_a_message_is_stored_with_all_that_the_lane_is_told_of_it() -> None:
    filed = a_lane()
    rows = filed.lane.rows([b"x"], [77], recoverable=True, final_ack=True, expires_s=[9])
    filed.lane.join(rows, filed.writes)
    filed.commit()
    assert list(filed.store.messages.values()) == [MessageRow(message_key(QUEUE, 1), b"x", 77, True, 9)]
    assert list(filed.lane.window) == [MessageRow(message_key(QUEUE, 1), b"x", 77, True, 9)]


@given(before=st.integers(0, 6), expires_s=st.none() | st.integers(0, 9))
def test_a_message_that_joins_from_another_queue_moves_in_the_store_and_stands_at_the_end(
    before: int, expires_s: int | None
) -> None:
    filed = a_lane()
    for number in range(before):
        filed.join(bytes([number]), recoverable=True)
    old = message_key(OTHER, 8)
    filed.store.commit(Writes(messages=[MessageRow(old, b"held", 77, True, 1)]))
    filed.lane.join_from(old, b"held", filed.writes, final_ack=True, expires_s=expires_s)
    filed.commit()
    assert old not in filed.store.messages
    key = message_key(QUEUE, before + 1)
    assert filed.store.messages[key] == MessageRow(key, b"held", 77, True, expires_s)
    assert filed.leave_all() == [*(bytes([number]) for number in range(before)), b"held"]
    filed.restart()
    assert filed.leave_all()[-1] == b"held"


def test_a_message_may_join_a_lane_from_another_in_the_transaction_that_stores_it() -> None:
    filed = a_lane()
    old = message_key(OTHER, 8)
    filed.writes.put([MessageRow(old, b"held", 77, False)], "held")
    filed.lane.join_from(old, b"held", filed.writes, final_ack=False, expires_s=None)
    filed.commit()
    assert list(filed.store.messages) == [message_key(QUEUE, 1)]
    assert filed.store.queues[QUEUE].priority == 5


# Single messages out of a window


def test_a_message_in_memory_is_forgotten_once_and_one_that_is_not_there_never() -> None:
    window = QueueWindow(QUEUE, SETTINGS)
    for position in (1, 2, 3):
        append(window, MessageRow(position, bytes([position]), 0, False))
    assert window.forget(2) == MessageRow(2, b"\2", 0, False)
    assert window.forget(2) is None
    assert window.forget(9) is None
    assert [message.position for message in window] == [1, 3]
