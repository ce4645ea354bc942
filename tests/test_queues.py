"""A queue's window, against a plain list and a disk."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqproto.configuration import Settings
from mqproto.effects import MessageRow, QueueKind, QueueRow, ReadBy, ReadPage, Waiting, Writes, message_key
from mqproto.queues import QueueWindow
from simulator.disk import Disk

QUEUE = 3
SETTINGS = Settings(resident_messages=4, resident_bytes=100)


class AWindowAgainstAList(RuleBasedStateMachine):
    """Messages join, leave, come back and are withdrawn; pages are read now and arrive later."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Disk()
        self.store.commit(Writes(queues=[QueueRow(QUEUE, QueueKind.OUTGOING, "q")]))
        self.window = QueueWindow(QUEUE, SETTINGS)
        self.waiting: list[int] = []
        """Positions that have not left, in order: the model."""
        self.out: list[Waiting] = []
        self.last = 0
        self.page: tuple[ReadPage, list[tuple[int, bytes, bool]]] | None = None

    def remove(self, position: int) -> None:
        writes = Writes()
        writes.remove(QUEUE, position, position)
        self.store.commit(writes)

    @rule(size=st.integers(1, 60), express=st.booleans())
    def join(self, size: int, express: bool) -> None:
        self.last += 1
        packet = bytes([self.last % 256]) * size
        stored = not express or not self.window.fits
        if stored:
            row = MessageRow(message_key(QUEUE, self.last), packet, self.last, False)
            self.store.commit(Writes(messages=[row]))
        self.window.append(Waiting(self.last, packet, False, stored))
        self.waiting.append(self.last)

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
            self.window.forget(position)
            self.remove(position)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def all_up_to_one_are_withdrawn(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.waiting))
        self.window.forget_through(position)
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
        self.window.loaded(self.page[1])
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

    @invariant()
    def the_sum_of_bytes_is_right(self) -> None:
        assert self.window._bytes == sum(len(message.packet) for message in self.window)

    def teardown(self) -> None:
        """All that waits can be read in the end."""
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
        window.append(Waiting(position, b"x", False, stored=True))
    assert len(window) == 4
    assert not window.fits
    heavy = QueueWindow(QUEUE, SETTINGS)
    for position in range(1, 10):
        heavy.append(Waiting(position, bytes(60), False, stored=True))
    assert len(heavy) == 2, "the second still begins below the limit"


def test_a_page_asks_for_half_of_the_window_and_only_when_half_of_it_is_free() -> None:
    window = QueueWindow(QUEUE, SETTINGS, last=9)
    assert window.wanted() == ReadPage(QUEUE, 0, 2, 50, ReadBy.WINDOW)
    assert window.wanted() is None, "it is on its way"
    window.loaded([(1, b"x", False), (2, b"x", False)])
    assert window.wanted() == ReadPage(QUEUE, 2, 2, 50, ReadBy.WINDOW)
    window.loaded([(3, bytes(60), True)])
    assert window.wanted() is None, "more than half full"
    assert [message.final_ack for message in window] == [False, False, True]


def test_an_empty_page_tells_only_of_what_was_there_when_it_was_asked_for() -> None:
    window = QueueWindow(QUEUE, SETTINGS, last=2)
    assert window.wanted() is not None
    window.append(Waiting(3, b"x", False, stored=True))
    window.loaded([])
    assert window.wanted() == ReadPage(QUEUE, 2, 2, 50, ReadBy.WINDOW)
