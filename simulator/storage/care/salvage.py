"""All that can be read of a store, whatever is hurt in it. Nothing is changed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from mqproto.turn.effects import (
    POSITION_BITS,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    QueueRow,
    Writes,
)
from mqproto.wire.guid import Guid
from simulator.base.storeerrors import DamageError, StoreError
from simulator.storage.base import Mark, made_counter, made_mark, made_queue
from simulator.storage.checksums import MESSAGE_COLUMNS, whole_message, whole_rows
from simulator.storage.complete import see_that_all_is_there
from simulator.storage.files import Files
from simulator.storage.loading import made_outcome
from simulator.storage.segments import FoundSegment, explained_file, segment_path, segments_of
from simulator.storage.tables import APPLICATION_ID, LAYOUT, keys_of
from simulator.storage.witnesses.witness import found_record, witness_path

FAILURES: Final = 20_000
"""After so many reads that fail, what is left of a table is given up."""

T = TypeVar("T")


@dataclass(slots=True)
class Salvage:
    """What is whole in a store.

    Attributes:
        findings: what is not, with its place, a line each.
        counts: how many messages of each queue the tables have, by number; `records` bring more and take some.
        records: of the log, by number, without the messages that are hurt.
    """

    path: Path
    node: Guid | None = None
    mark: Mark | None = None
    witness: int | None = None
    last_segment: int = 0
    queues: dict[int, QueueRow] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    outgoing: list[OutgoingRow] = field(default_factory=list)
    incoming: list[IncomingRow] = field(default_factory=list)
    identifiers: list[IdentifierRow] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    records: dict[int, Writes] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @property
    def next_record(self) -> int:
        """The number after that of the newest record that is known to have been."""
        known = [self.mark.record - 1 if self.mark else 0, self.witness or 0, *self.records]
        return max(known) + 1

    def name_of(self, queue: int) -> str:
        """What people call a queue."""
        row = self.queues.get(queue)
        return f"{row.kind} {row.name}" if row else f"queue {queue}"

    def named_counts(self) -> dict[str, int]:
        """How many messages the tables have, by what people call their queues."""
        named = Counter[str]()
        for queue, count in self.counts.items():
            named[self.name_of(queue)] += count
        return dict(named)

    def messages(self, findings: list[str]) -> Iterator[MessageRow]:
        """The messages of the tables that are whole, of queues that are; the others become findings."""
        with closing(opened(self.path)) as db:
            failures = [FAILURES]
            for number in sorted(self.queues):
                for columns in _readable(db, *keys_of(number), failures):
                    try:
                        yield whole_message(*columns)
                    except DamageError as error:
                        findings.append(f"{self.name_of(number)}: {error}")


def opened(path: Path) -> sqlite3.Connection:
    """The tables, for reading alone."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)


def salvaged(files: Files, path: Path, *, with_log: bool = True) -> Salvage:
    """Read all that can be read. Messages are counted and read again when they are asked for.

    Args:
        with_log: not while the node runs, for its log changes.

    Raises:
        StoreError: there is no store.
    """
    found = Salvage(path)
    if not path.exists():
        raise StoreError(f"{path}: there is no such store: name a node of the topology, or its file")
    try:
        with closing(opened(path)) as db:
            _read_tables(db, found)
    except sqlite3.Error as error:
        found.findings.append(f"{path.name}: {error}")
    if with_log:
        _read_witness(files, found)
        _read_log(files, found)
        _compare_moments(files, found)
    return found


def _compare_moments(files: Files, found: Salvage) -> None:
    """Whether tables, log and witness are of one moment."""
    mark = found.mark
    if mark is None:
        return
    if found.witness is not None and mark.record > found.witness + 1:
        found.findings.append(
            f"{witness_path(found.path).name}: it is of an earlier moment, when record {found.witness} was the newest"
        )
    there = {name.number for name in segments_of(files, found.path)}
    for number in range(mark.segment, max(found.last_segment, mark.segment - (not mark.is_begun)) + 1):
        if number not in there:
            found.findings.append(f"{segment_path(found.path, number).name} is missing")


def _read_tables(db: sqlite3.Connection, found: Salvage) -> None:
    [(application_id,)] = db.execute("PRAGMA application_id").fetchall()
    [(layout,)] = db.execute("PRAGMA user_version").fetchall()
    if application_id == APPLICATION_ID and layout != LAYOUT:
        raise StoreError(
            f"{found.path}: it has layout {layout}, and this reads {LAYOUT}: start its node once, which upgrades those"
            " of version 0.5"
        )
    try:
        see_that_all_is_there(db)
    except (DamageError, sqlite3.Error) as error:
        found.findings.append(f"{found.path.name}: {' '.join(str(error).split())}")

    def rows(table: str, columns: str, make: Callable[..., T]) -> list[T]:
        whole: list[T] = []
        try:
            for row in db.execute(f"SELECT {columns} FROM {table}"):
                try:
                    whole += whole_rows(table, [row], make)
                except DamageError as error:
                    found.findings.append(f"{found.path.name}: {error}")
        except sqlite3.Error as error:
            found.findings.append(f"{found.path.name}: table {table} can be read in part: {error}")
        return whole

    for node in rows("node", "*", lambda *columns: columns):
        found.node = Guid(node[0])
    for mark in rows("log", "*", made_mark):
        found.mark = mark
    queues = rows("queue", "queue, kind, name, priority, on_hold, checksum", made_queue)
    found.queues = {queue.queue: queue for queue in queues}
    found.outgoing = rows("outgoing_sequence", "*", OutgoingRow)
    found.incoming = rows("incoming_sequence", "*", IncomingRow)
    found.identifiers = rows("message_id", "source, ordinal, time_stamp_s, checksum", IdentifierRow)
    found.counters = dict(rows("counter", "*", made_counter))
    found.outcomes = rows("outcome", "*", made_outcome)
    for row in found.messages(found.findings):
        found.counts[row.key >> POSITION_BITS] += 1
    try:
        counted = db.execute("SELECT queue, message_count FROM queue").fetchall()
    except sqlite3.Error:
        return  # It was said already.
    for queue, count in counted:
        if queue in found.queues and isinstance(count, int) and count > found.counts[queue]:
            missing = count - found.counts[queue]
            found.findings.append(
                f"{found.name_of(queue)}: {missing} of {count} messages are not whole or not there"
            )


def _readable(
    db: sqlite3.Connection, first: int, last: int, failures: list[int]
) -> Iterator[tuple[Any, ...]]:
    """The messages with these keys that SQLite can read, in order. Ranges that it cannot are halved."""
    ranges = [(first, last)]
    while ranges and failures[0] > 0:
        first, last = ranges.pop()
        try:
            found = db.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM message WHERE key BETWEEN ? AND ? ORDER BY key", (first, last)
            )
            for columns in found:
                if not first <= columns[0] <= last:
                    raise sqlite3.DatabaseError("it stands in a wrong place")
                first = columns[0] + 1
                yield columns
        except sqlite3.Error:
            failures[0] -= 1
            if first < last:
                middle = (first + last) // 2
                ranges += [(middle + 1, last), (first, middle)]


def _read_witness(files: Files, found: Salvage) -> None:
    path = witness_path(found.path)
    try:
        with explained_file(path):
            data = files.read(path)
        found.witness = found_record(path, data, found.node or Guid(data[8:24].ljust(16, b"\0")))
        found.node = found.node or Guid(data[8:24])
    except StoreError as error:
        found.findings.append(str(error).partition(": `")[0])


def _read_log(files: Files, found: Salvage) -> None:
    for name in segments_of(files, found.path):
        found.last_segment = name.number
        if found.mark is not None and name.number < found.mark.segment:
            continue
        with explained_file(name.path):
            data = files.read(name.path)
        for number, writes, finding in FoundSegment.salvaged(name, data):
            if finding:
                found.findings.append(finding)
            if writes is not None and (found.mark is None or number >= found.mark.record):
                found.records[number] = writes
    first = found.mark.record if found.mark else min(found.records, default=1)
    missing = [number for number in range(first, found.next_record) if number not in found.records]
    for each in missing[:10]:
        found.findings.append(f"the log: record {each} cannot be read, or is not there")
    if len(missing) > 10:
        found.findings.append(f"the log: nor can {len(missing) - 10} more, up to record {missing[-1]}")
