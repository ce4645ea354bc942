"""A series of transactions from a seed, and a process that commits them: `python -m tests.simulator.series`.

Messages arrive, move and leave, and sequences advance, as under a node's core. The process continues where the store
ended, and lives several lives, like a node that is stopped or killed. Every second life ends without closing the store,
so the next one finds its log. The log is small, so it is moved to the tables all the time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.storage import LogLimits, Store
from mqproto.simulator.storage.base import StoreTables
from mqproto.simulator.storage.files import FileIdentity, SystemFile, SystemFiles
from mqproto.turn.effects import (
    LIFE,
    FinalAckKept,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    OutgoingRow,
    QueueKind,
    QueueRow,
    Writes,
    message_key,
)
from mqproto.wire.guid import Guid


class SameFiles(SystemFiles):
    """Files with an identity that never changes, even if the store is written again, as after a simulated power
    loss.
    """

    def identity(self, path: Path) -> FileIdentity:
        return FileIdentity(1, 1)


SAME_FILES: Final = SameFiles()
NODE: Final = Guid(bytes(range(16)))
NEIGHBOUR: Final = Guid(bytes(range(16, 32)))
LOCAL, HELD, FINAL, SEQUENCE = 1, 2, 3, 4
QUEUES: Final = [
    QueueRow(LOCAL, QueueKind.LOCAL, "orders"),
    QueueRow(HELD, QueueKind.HELD, "orders, early"),
    QueueRow(FINAL, QueueKind.FINAL, "invoices, acknowledged"),
    QueueRow(SEQUENCE, QueueKind.SEQUENCE, "invoices"),
]
SIZES_BYTES: Final = (40, 300, 1_200, 3_000, 20_000)
"""Sizes of packets; the last is larger than a page of the store."""
LENGTH_OF_LIFE: Final = 12
"""How many transactions are committed before the process ends and another one continues."""
CHECKPOINT_PAGES: Final = 40
"""The length of SQLite's own log, in pages, at which the pages move to the file. A node's limit would take 4 MiB to
reach.
"""
LIMITS: Final = LogLimits(
    segment_bytes=12_000,
    segments=2,
    memory_bytes=60_000,
    slice_messages=5,
    slice_bytes=8_000,
    reserve_bytes=0,
)
SMALL_RESERVE: Final = LogLimits(reserve_bytes=64 << 10)
"""The limits of a node, with a smaller reserve.

The usual 12 MiB would be most of the data in the files that each simulated power loss leaves.
"""
LEFT_OUT: Final = ("log", "names", "tables")
"""The flushes that a faulty store can leave out: its log, the folder, SQLite's log."""


def series(seed: int, length: int) -> Iterator[Writes]:
    """Yield `length` random transactions; the first declares the queues."""
    yield Writes(queues=QUEUES)
    fresh = count(1)
    there: dict[int, list[int]] = {LOCAL: [], HELD: [], SEQUENCE: []}
    for number in range(1, length):
        yield _writes(chance(seed, "writes", str(number)), number, there, fresh)


def _writes(dice: Random, number: int, there: dict[int, list[int]], fresh: Iterator[int]) -> Writes:
    """Draw one transaction.

    Args:
        there: the positions of messages in each queue, oldest first; kept up to date.
        fresh: numbers that were not used before.
    """
    writes = Writes(counters={"number": number})
    for queue in dice.choices([LOCAL, HELD, SEQUENCE], k=dice.randint(0, 6)):
        position = next(fresh)
        packet = dice.randbytes(dice.choice(SIZES_BYTES))
        final_ack = queue == SEQUENCE and dice.random() < 0.3
        writes.messages.append(
            MessageRow(message_key(queue, position), packet, position, final_ack, _expiry(dice, number))
        )
        there[queue].append(position)
    if there[SEQUENCE] and dice.random() < 0.4:
        # An OrderAck came: of the oldest messages those go that wait for no FinalAck, the others to their own queue.
        acknowledged = dice.choice(there[SEQUENCE])
        writes.finals.append(
            FinalAckKept(message_key(SEQUENCE, 0), message_key(SEQUENCE, acknowledged), FINAL)
        )
        writes.remove(SEQUENCE, 0, acknowledged)
        there[SEQUENCE] = [position for position in there[SEQUENCE] if position > acknowledged]
    if there[HELD] and dice.random() < 0.3:
        for position in there[HELD]:
            there[LOCAL].append(next(fresh))
            key = message_key(LOCAL, there[LOCAL][-1])
            writes.moves.append((message_key(HELD, position), key, _expiry(dice, number)))
        there[HELD].clear()
    if len(there[LOCAL]) > 5 and dice.random() < 0.5:
        received = dice.choice(there[LOCAL])
        writes.remove(LOCAL, 0, received)
        there[LOCAL] = [position for position in there[LOCAL] if position > received]
    if dice.random() < 0.2:
        writes.remove(FINAL, 0, dice.randint(0, 3 * number))
    if there[LOCAL] and dice.random() < 0.3:
        writes.lasting.append(message_key(LOCAL, dice.choice(there[LOCAL])))
    writes.outgoing[SEQUENCE] = OutgoingRow(
        queue=SEQUENCE,
        manager=NEIGHBOUR,
        time_stamp=1,
        ordinal=2,
        base=3,
        next_number=number,
        last_ack=number,
        saved_through=number,
        sent_ceiling=number,
    )
    writes.incoming[NEIGHBOUR, HELD] = IncomingRow(
        source=NEIGHBOUR,
        queue=HELD,
        time_stamp=1,
        ordinal=2,
        number=number,
        reject_count=0,
        last_access_s=number,
        reply_host="there",
    )
    writes.identifiers = [IdentifierRow(NEIGHBOUR, dice.randrange(200), number)]
    return writes


def _expiry(dice: Random, number: int) -> int | None:
    return number + dice.randrange(20) if dice.random() < 0.5 else None


def life_of(seed: int, length: int) -> list[Writes]:
    """Return the transactions of `series`; the first one also begins a life of the store."""
    transactions = list(series(seed, length))
    transactions[0].counters[LIFE] = 1
    return transactions


def leave_out(flush: str) -> None:
    """Make stores leave out one of the flushes in LEFT_OUT."""
    patch = pytest.MonkeyPatch()
    if flush == "log":
        patch.setattr(SystemFile, "flush", lambda file: None)
    elif flush == "names":
        patch.setattr(SystemFiles, "flush_folder", lambda files, folder: None)
    elif flush == "tables":
        transaction = StoreTables.transaction
        patch.setattr(StoreTables, "transaction", lambda tables, flushed: transaction(tables, flushed=False))


def live(path: Path, transactions: list[tuple[int, Writes]], *, closes: bool) -> None:
    """Commit transactions, and print a line after each."""
    opened = Store(path, NODE, limits=LIMITS, files=SAME_FILES)
    opened._tables.db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").close()
    for number, writes in transactions:
        opened.commit(writes)
        os.write(1, b"committed %d\n" % number)
    if closes:
        opened.close()


def main(path: Path, seed: int, length: int, left_out: str) -> None:
    """Live one life after the other, each in a separate process."""
    leave_out(left_out)
    transactions = list(enumerate(life_of(seed, length), start=1))
    with Store(path, NODE, limits=SMALL_RESERVE, files=SAME_FILES) as opened:
        state = opened.load()
    begun = state.counters.get("number", 0) + 1 if state.queues else 0
    for first in range(begun, length, LENGTH_OF_LIFE):
        process = os.fork()
        if process == 0:
            live(path, transactions[first : first + LENGTH_OF_LIFE], closes=first // LENGTH_OF_LIFE % 2 == 0)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        if status:
            sys.exit(f"the life that begins with transaction {first + 1} failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
