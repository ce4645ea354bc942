"""The in-memory disk, in cases that cannot be tried with SQLite's store: a crash during a commit, and a full disk.

storage/test_store.py checks that the in-memory disk keeps the same data as the store on disk, for any transactions.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import MessageRow, QueueKind, QueueRow, ReadBy, ReadPage, Writes, message_key

QUEUE = QueueRow(1, QueueKind.LOCAL, "orders")


def row(position: int, size_bytes: int = 10) -> MessageRow:
    return MessageRow(message_key(1, position), bytes(size_bytes), message_id=position, final_ack=False)


def a_disk(*rows: MessageRow) -> Disk:
    disk = Disk()
    disk.commit(Writes(queues=[QUEUE], messages=list(rows)))
    return disk


@pytest.mark.parametrize("kept", [True, False])
def test_a_crash_within_a_commit_leaves_all_of_it_or_nothing(kept: bool) -> None:
    disk = a_disk(row(1), row(2))
    writes = Writes(messages=[row(3)], counters={"ceiling": 7})
    writes.remove(1, 1, 2)
    disk.begin(writes)
    assert sorted(disk.messages) == [message_key(1, 1), message_key(1, 2)], (
        "nothing is there before the flush"
    )
    disk.crash(kept=kept)
    state = disk.load()
    assert [queue.message_count for queue in state.queues] == [1 if kept else 2]
    assert state.counters == ({"ceiling": 7} if kept else {})
    disk.commit(Writes(messages=[row(4)]))
    assert message_key(1, 4) in disk.messages


def test_a_full_disk_refuses_what_it_has_no_room_for_and_takes_it_later() -> None:
    disk = a_disk(row(1), row(2))
    disk.room_bytes = 25
    with pytest.raises(StoreError, match="the disk is full: make room"):
        disk.commit(Writes(messages=[row(3)], counters={"ceiling": 7}))
    assert disk.load().counters == {}
    removal = Writes()
    removal.remove(1, 1, 1)
    disk.commit(removal)
    disk.commit(Writes(messages=[row(3)]))
    assert disk.size_bytes == 20


@given(
    positions=st.sets(st.integers(1, 60)),
    removed=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 20))),
    after=st.integers(0, 60),
    limit=st.integers(1, 10),
)
def test_a_page_is_what_stands_after_a_position_in_order(
    positions: set[int], removed: list[tuple[int, int]], after: int, limit: int
) -> None:
    disk = a_disk(*(row(position) for position in sorted(positions, reverse=True)))
    for first, count in removed:
        writes = Writes()
        writes.remove(1, first, first + count)
        disk.commit(writes)
        positions -= set(range(first, first + count + 1))
    page = disk.read(ReadPage(1, after, limit, 2**30, reader=ReadBy.WINDOW))
    assert [position for position, _, _ in page] == sorted(p for p in positions if p > after)[:limit]
