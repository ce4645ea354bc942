"""The content of a page of a queue: the first waiting messages, whether the log or the tables have them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import Phase, given, settings, strategies as st

from mqproto.simulator.storage import LogLimits, Store, contents
from mqproto.simulator.storage.contents import Contents, Row, fitting
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import LAST_POSITION, MessageRow, ReadBy, ReadExpired, ReadPage, Writes, message_key
from tests.memory import memory_folder
from tests.simulator.storage.batches import HELD, LOCAL, NODE, QUEUES, TINY, URGENT, one

LARGEST: Final = 4 << 20
"""The greatest size of a packet, and the default size of a window."""
READY: Final = (LOCAL, HELD, URGENT)
EXAMPLES: Final = 30
"""The number of examples to try: each may write tens of megabytes, and even fewer would find the faults below."""


class New(NamedTuple):
    """A message that joins: its queue, its size, its distance from the queue's next position, and the time at which it
    expires.
    """

    queue: int
    size_bytes: int
    ahead: int
    expires_s: int | None


class Step(NamedTuple):
    """A change to a store, and the page that is then read."""

    messages: list[New]
    tidied: int
    removed: tuple[int, int, int] | None
    settled: bool
    page: ReadPage


few = st.integers(0, 3)
sizes = st.one_of(*[st.integers(0, 60)] * 6, st.sampled_from([300, 1_000, 20_000, LARGEST - 60, LARGEST]))
limits_bytes = st.one_of(
    st.integers(0, 200), st.sampled_from([1_500, 25_000, LARGEST // 2, LARGEST, 2 * LARGEST])
)
steps = st.builds(
    Step,
    st.lists(
        st.builds(New, st.sampled_from(READY), sizes, st.sampled_from([0, 0, 0, 5]), st.none() | few),
        max_size=8,
    ),
    few,
    st.none() | st.tuples(st.sampled_from(READY), st.integers(1, 30), st.integers(0, 9)),
    st.sampled_from([False, False, False, True]),
    st.builds(
        ReadPage,
        st.sampled_from(READY),
        st.integers(0, 20),
        st.integers(1, 9),
        limits_bytes,
        st.just(ReadBy.WINDOW),
    ),
)


class Model:
    """The messages of all queues by key."""

    def __init__(self) -> None:
        self.rows: dict[int, MessageRow] = {}
        self._used: set[int] = set()

    def join(self, new: New, number: int) -> MessageRow:
        """Let a message join at the first unused position, or at a later one: others may then join before it."""
        position = 1 + new.ahead
        while message_key(new.queue, position) in self._used:
            position += 1
        row = one(position, bytes([number % 256]) * new.size_bytes, new.queue, expires_s=new.expires_s)
        self._used.add(row.key)
        self.rows[row.key] = row
        return row

    def page(self, page: ReadPage) -> list[Row]:
        first = message_key(page.queue, page.after + 1)
        rows = [self.rows[key] for key in sorted(self.rows) if first <= key <= first | LAST_POSITION]
        return cut([(row.key & LAST_POSITION, row) for row in rows], page)

    def expired(self, page: ReadExpired) -> list[Row]:
        ends = sorted((row.expires_s, row.key) for row in self.rows.values() if row.expires_s is not None)
        return cut([(key, self.rows[key]) for _, key in ends], page)


def cut(rows: list[tuple[int, MessageRow]], page: ReadPage | ReadExpired) -> list[Row]:
    """Return the longest prefix of the rows that fits the page; if not even the first row fits, return that row."""
    fitting = [
        end
        for end in range(min(len(rows), page.limit_messages) + 1)
        if sum(len(row.packet) for _, row in rows[:end]) <= page.limit_bytes
    ]
    return [(name, row.packet, row.final_ack) for name, row in rows[: max(1, *fitting)]]


@pytest.mark.long
@settings(max_examples=EXAMPLES)
@given(
    limits=st.sampled_from([TINY, TINY._replace(segments=1), LogLimits()]),
    steps=st.lists(steps, min_size=1, max_size=10),
)
def test_a_page_is_the_longest_prefix_of_what_waits_that_fits_whatever_the_sizes_and_wherever_they_lie(
    limits: LogLimits, steps: list[Step]
) -> None:
    model, disk = Model(), Disk()
    disk.commit(Writes(queues=QUEUES))
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES))
        for step in steps:
            writes = Writes(messages=[model.join(new, place) for place, new in enumerate(step.messages)])
            if step.removed is not None:
                queue, first, more = step.removed
                writes.remove(queue, first, first + more)
                removed = range(message_key(queue, first), message_key(queue, first + more) + 1)
                model.rows = {key: row for key, row in model.rows.items() if key not in removed}
            store.commit(writes)
            disk.commit(writes)
            for _ in range(step.tidied):
                store.tidy()
            if step.settled:
                store.load()
            expired = ReadExpired(step.page.limit_messages, step.page.limit_bytes)
            for asked in (store, disk):
                assert asked.read(step.page) == model.page(step.page)
                assert asked.read(expired) == model.expired(expired)


def read_page_by_page(
    limits: LogLimits, waiting: list[int], coming: list[list[int]], limit: int, limit_bytes: int
) -> None:
    """Read a whole queue while messages arrive and the log moves to the tables."""
    numbers = iter(range(1, 1_000))
    read: list[int] = []

    def rows(sizes_bytes: list[int]) -> list[MessageRow]:
        return [one(number, bytes(size)) for size, number in zip(sizes_bytes, numbers, strict=False)]

    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES))
        for size_bytes in waiting:
            store.commit(Writes(messages=rows([size_bytes])))
        more = iter(coming)
        while page := store.read(ReadPage(LOCAL, read[-1] if read else 0, limit, limit_bytes, ReadBy.WINDOW)):
            read += [position for position, _, _ in page]
            store.commit(Writes(messages=rows(next(more, []))))
            store.tidy()
    assert read == list(range(1, next(numbers)))


queues = given(
    limits=st.sampled_from([TINY, TINY._replace(segments=1), LogLimits()]),
    waiting=st.lists(sizes, min_size=1, max_size=30),
    coming=st.lists(st.lists(sizes, max_size=4), max_size=12),
    limit=st.integers(1, 9),
    limit_bytes=limits_bytes,
)
test_page_by_page_the_whole_queue_is_read_in_order = settings(max_examples=EXAMPLES)(
    queues(read_page_by_page)
)


def cut_twice(contents: Contents, page: ReadPage) -> list[Row]:
    """Cut a page as an old fault did: after a row of the log that did not fit, it added rows of the tables that did
    fit.
    """
    first, last = message_key(page.queue, page.after + 1), message_key(page.queue, LAST_POSITION)
    limits = page.limit_messages, page.limit_bytes
    stored = fitting(contents._tables.messages.waiting(first, last, contents._recent.gone), *limits)
    recent = contents._recent.messages.between(first, last, page.limit_messages)
    return fitting([*stored, *((row.key, row.packet, row.final_ack) for row in recent)], *limits)


def the_log_first(contents: Contents, page: ReadPage) -> list[Row]:
    """Return rows of the tables only after all rows of the log, as another old fault did."""
    first, last = message_key(page.queue, page.after + 1), message_key(page.queue, LAST_POSITION)
    limits = page.limit_messages, page.limit_bytes
    recent = contents._recent.messages.between(first, last, page.limit_messages)
    stored = contents._tables.messages.waiting(first, last, contents._recent.gone)
    return fitting([(row.key, row.packet, row.final_ack) for row in recent] or stored, *limits)


def what_fits(rows: Iterable[Row], limit_messages: int, limit_bytes: int) -> list[Row]:
    """Leave out a message that is too large for the page, but not the smaller messages after it."""
    found: list[Row] = []
    for row in rows:
        size_bytes = sum(len(packet) for _, packet, _ in found) + len(row[1])
        if not found or (len(found) < limit_messages and size_bytes <= limit_bytes):
            found.append(row)
    return found


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [(Contents, "page", cut_twice), (Contents, "page", the_log_first), (contents, "fitting", what_fits)],
    ids=["cut twice", "the log first", "what fits"],
)
def test_a_page_that_passes_over_a_message_is_found(
    owner: object, name: str, fault: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fault)
    at_once = settings(phases=[Phase.generate], max_examples=200, derandomize=True, database=None)
    with pytest.raises(AssertionError):
        at_once(queues(read_page_by_page))()
