"""Transactions with every kind of change, and the store's content after each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hypothesis import strategies as st

from mqproto.simulator.storage import LogLimits, Store
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import (
    FinalAckKept,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    PostedChange,
    PostedRow,
    QueueKind,
    QueueRow,
    ReadBy,
    ReadExpired,
    ReadPage,
    ReadSequences,
    StoredState,
    Writes,
    message_key,
)
from mqproto.wire.guid import Guid

TINY: Final = LogLimits(
    segment_bytes=600, segments=2, memory_bytes=4_000, slice_messages=3, slice_bytes=100, reserve_bytes=0
)
"""The limits of a store that constantly begins new segments and brings them to the tables."""
NODE = Guid(bytes(range(16)))
NEIGHBOUR = Guid(bytes(range(16, 32)))
LOCAL, HELD, FINAL, SEQUENCE, URGENT, ORDER = 1, 2, 3, 4, 5, 6
QUEUES = [
    QueueRow(LOCAL, QueueKind.LOCAL, "orders"),
    QueueRow(HELD, QueueKind.HELD, "orders, early"),
    QueueRow(FINAL, QueueKind.FINAL, "invoices, acknowledged"),
    QueueRow(SEQUENCE, QueueKind.SEQUENCE, "invoices"),
    QueueRow(URGENT, QueueKind.LOCAL, "orders", priority=7),
    QueueRow(ORDER, QueueKind.ORDER, "order_queue$"),
]
FINAL_NAME: Final = "invoices, acknowledged"
EVERYTHING = ReadExpired(10_000, 2**40)


def one(
    number: int,
    packet: bytes = b"packet",
    queue: int = 1,
    *,
    final_ack: bool = False,
    expires_s: int | None = None,
) -> MessageRow:
    return MessageRow(message_key(queue, number), packet, number, final_ack, expires_s)


def numbers(store: Store | Disk, queue: int = 1) -> list[int]:
    return [position for position, _, _ in store.read(ReadPage(queue, 0, 10_000, 2**30, ReadBy.WINDOW))]


positions = st.integers(0, 40)
integers = st.integers(0, 2**32 - 1)
guids = st.sampled_from([NODE, NEIGHBOUR])
deadlines = st.none() | st.integers(0, 5)
outgoing_rows = st.builds(OutgoingRow, st.integers(1, 4), guids, *[integers] * 8)
away = st.sampled_from([-1, -5, -(2**62)])
"""Draws stand-ins for the queues of sequences that gave up their places."""
incoming_rows = st.builds(IncomingRow, guids, st.just(1) | away, *[integers] * 5, st.text(max_size=9))


outcome_rows = st.builds(
    OutcomeRow,
    st.sampled_from([b"one", b"other"]),
    st.integers(0, 3),
    st.binary(max_size=9),
    st.booleans(),
    integers,
)
POSTED_TO = ["orders", "a\0b", "Gr\u00fc\u00dfe"]
ordinals = st.integers(1, 30)


def posted(
    message_id: int, fingerprint: bytes = b"", changed_s: int = 1, about: bytes = b"", *, owed: bool = False
) -> PostedRow:
    """Return a row whose queue and id follow from its MessageID; one of five has no id."""
    queue, key = POSTED_TO[message_id % len(POSTED_TO)], f"id {message_id}" if message_id % 5 else ""
    return PostedRow(message_id, queue, key, fingerprint, about, changed_s, owed=owed)


posted_rows = st.builds(
    posted, ordinals, st.binary(max_size=32), integers, st.binary(max_size=9), owed=st.booleans()
)


@st.composite
def batches(draw: st.DrawFn, there: set[int], fresh: Iterator[int]) -> Writes:
    """Draw a transaction with every kind of change, some of which affect existing messages. Its keys are new."""
    writes = Writes()
    for known in draw(st.lists(st.sampled_from(QUEUES), unique=True, max_size=2)):
        writes.queues.append(known._replace(on_hold=draw(st.booleans())))
    for _ in range(draw(st.integers(0, 6))):
        queue = draw(st.sampled_from([LOCAL, HELD, SEQUENCE, URGENT, ORDER]))
        packet, final_ack, expires_s = draw(st.binary(max_size=40)), draw(st.booleans()), draw(deadlines)
        writes.messages.append(one(next(fresh), packet, queue, final_ack=final_ack, expires_s=expires_s))
    for _ in range(draw(st.integers(0, 2))):
        first, last = message_key(SEQUENCE, draw(positions)), message_key(SEQUENCE, draw(positions))
        writes.finals.append(FinalAckKept(first, last, FINAL))
    movable = sorted(k for k in there | {message.key for message in writes.messages} if k >> 40 == HELD)
    for old in draw(st.lists(st.sampled_from(movable), unique=True, max_size=3)) if movable else []:
        writes.moves.append((old, message_key(LOCAL, next(fresh)), draw(deadlines)))
    for _ in range(draw(st.integers(0, 3))):
        writes.remove(draw(st.integers(1, len(QUEUES))), draw(positions), draw(positions))
    ever = sorted(there | {message.key for message in writes.messages})
    writes.lasting = draw(st.lists(st.sampled_from(ever), max_size=3)) if ever else []
    writes.outgoing = {row.queue: row for row in draw(st.lists(outgoing_rows, max_size=4))}
    for row in draw(st.lists(incoming_rows, max_size=3)):
        writes.incoming[row.source, row.queue] = row if draw(st.booleans()) else None
    writes.counters = draw(st.dictionaries(st.sampled_from(["ceiling", "time_stamp"]), integers))
    writes.forgotten_invokers = draw(st.lists(st.sampled_from([b"one", b"other"]), max_size=1))
    rows = draw(st.lists(outcome_rows, max_size=4))
    writes.outcomes = {(row.invoker, row.identifier): row if draw(st.booleans()) else None for row in rows}
    writes.posted = draw(st.lists(posted_rows, max_size=4))
    writes.changes = draw(
        st.lists(st.builds(PostedChange, ordinals, *[integers] * 3, st.booleans()), max_size=4)
    )
    return writes


def in_order(state: StoredState) -> StoredState:
    """Return the state with its unordered tables sorted.

    Which places are free again depends on the log; here, all places after the last one in use are free.
    """
    state.queues[:] = [queue._replace(last_used=min(queue.last, queue.last_used)) for queue in state.queues]
    state.outgoing.sort()
    state.incoming.sort()
    state.outcomes.sort()
    return state


def messages_in(store: Store | Disk) -> list[list[tuple[int, bytes, bool]]]:
    """Return the content of each queue, and the messages that expire."""
    pages = [ReadPage(queue.queue, 0, 10_000, 2**30, ReadBy.WINDOW) for queue in QUEUES]
    return [*map(store.read, pages), store.read(EVERYTHING)]


def sequences_in(store: Store | Disk) -> list[IncomingRow]:
    """Return the sequences that are not in memory."""
    reads = [ReadSequences(source, -10, -1) for source in (NODE, NEIGHBOUR)]
    return sorted(row for read in reads for row in store.sequences(read))


def posted_in(store: Store) -> dict[int, PostedRow]:
    """Return the posted messages, each as it is found by its id and by its MessageID alike."""
    rows = {number: row for number in range(1, 31) if (row := store.posted_as(number)) is not None}
    for number in range(1, 31):
        if (wanted := posted(number)).key:
            assert store.posted(wanted.queue, wanted.key) == rows.get(number)
    assert sorted(store.owed()) == sorted(row for row in rows.values() if row.owed)
    return rows


def has(store: Store, model: Disk) -> bool:
    """Return whether the store has the same content as the model."""
    return (
        messages_in(store) == messages_in(model)
        and store.size_bytes == model.size_bytes
        and in_order(store.load()) == in_order(model.load())
        and sequences_in(store) == sequences_in(model)
        and posted_in(store) == model.posted
    )
