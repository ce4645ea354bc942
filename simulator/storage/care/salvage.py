"""Reads everything readable in a store as of one moment, however damaged the store is. Nothing is changed.

The store's node may be running. The tables are read in one SQLite transaction, which begins first. The witness is read
next, and then the log. So the log is at least as new as the tables, and records beyond the number in the witness were
written in between. The newest records of the log and the tables together show one moment: the one after the newest
undamaged record. If the node moves a segment to the tables meanwhile, the transaction is too old, and the reading
begins again. The same happens if a node starts meanwhile, even if it has ended again.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import Any, Final, TypeVar

from mqproto.simulator.base.storeerrors import ADVICE, DamageError, StoreError, explained, primary_code
from mqproto.simulator.storage.base import Mark, made_counter, made_mark, made_queue
from mqproto.simulator.storage.care.header import mended
from mqproto.simulator.storage.care.hurtsegment import HurtSegment
from mqproto.simulator.storage.care.logged import Logged
from mqproto.simulator.storage.care.reading import ATTEMPTS, UNREADABLE, finding_of_log, log_at, opened
from mqproto.simulator.storage.checksums import MESSAGE_COLUMNS, whole_message, whole_rows
from mqproto.simulator.storage.contents import made_outcome
from mqproto.simulator.storage.files import Files
from mqproto.simulator.storage.posted import COLUMNS, made_posted
from mqproto.simulator.storage.recent import RecentPosted, changed
from mqproto.simulator.storage.segments import explained_file, segment_path, segments_of
from mqproto.simulator.storage.tables import APPLICATION_ID, BEFORE, LAYOUT, keys_of, see_that_all_is_there
from mqproto.simulator.storage.witnesses.sqlitelog import log_path
from mqproto.simulator.storage.witnesses.witness import said_by_witness, witness_path
from mqproto.turn.effects import (
    POSITION_BITS,
    IdentifierRow,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    OutgoingRow,
    PostedRow,
    QueueKind,
    QueueRow,
    Writes,
)
from mqproto.wire.guid import Guid

LAST_KEY: Final = 2**63 - 1
FAILURES: Final = 20_000
"""The number of failed reads after which the rest of a table is skipped."""
NO_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_NOMEM,
    }
)
"""The errors that say nothing about damage, because the tables could not be read at all."""
NO_SHARED_MEMORY: Final = frozenset(
    {
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_SHMMAP,
        sqlite3.SQLITE_IOERR_SHMLOCK,
    }
)
"""The errors that say nothing about damage, because the file that readers share, next to the tables, cannot be made."""
_NO_LOOK: Final = (
    "SQLite cannot look at it: is there room on its disk, and may this user write to its folder?"
)
ADVICE_FOR_LOOKING: Final = {**ADVICE, **dict.fromkeys([*NO_DAMAGE, sqlite3.SQLITE_IOERR], _NO_LOOK)}

T = TypeVar("T")


@dataclass(slots=True)
class Salvage:
    """All undamaged data in a store. The caller closes it.

    Attributes:
        db: the tables as they were at the beginning.
        with_log: whether the tables include the contents of SQLite's log.
        lacks: whether any part of the tables other than single messages is lost, and the number of lost records of the
            log.
        is_running: whether the store's node is running, or another program has the store's lock.
        findings: the damaged parts, one line for each, with its place.
        notices: other facts about the store, one line for each.
        stored: the number of messages of each queue in the tables, keyed by the queue's number.
        counts: the number of messages of each queue, including those that the log adds, but not those that it removes.
        records: the records of the log without damaged messages, keyed by their numbers.
        hurt_posted_count: the number of posted messages that are damaged in the tables.
    """

    path: Path
    db: sqlite3.Connection
    with_log: bool = True
    undo: ExitStack = field(default_factory=ExitStack)
    lacks: tuple[bool, int] = (True, 0)
    is_running: bool = False
    node: Guid | None = None
    mark: Mark | None = None
    witness: int | None = None
    last_segment: int = 0
    queues: dict[int, QueueRow] = field(default_factory=dict)
    stored: Counter[int] = field(default_factory=Counter)
    counts: Counter[int] = field(default_factory=Counter)
    outgoing: list[OutgoingRow] = field(default_factory=list)
    incoming: list[IncomingRow] = field(default_factory=list)
    identifiers: list[IdentifierRow] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    records: dict[int, Writes] = field(default_factory=dict)
    hurt_posted_count: int = 0
    findings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Close the files."""
        self.db.close()
        self.undo.close()

    @property
    def record(self) -> int:
        """The number of the newest record that is known to have existed. The salvage shows the moment after that
        record."""
        return max([self.mark.record - 1 if self.mark else 0, self.witness or 0, *self.records])

    def name_of(self, queue: int) -> str:
        """Return the name that people use for a queue."""
        row = self.queues.get(queue)
        return f"{row.kind} {row.name}" if row else f"queue {queue}"

    def is_kept(self, row: OutgoingRow | IncomingRow) -> bool:
        """Return whether a sequence's queue is known and has the right kind. A stranger's sequence without a place has
        no queue.
        """
        if row.queue < 0:
            return True
        queue = self.queues.get(row.queue)
        kind = QueueKind.SEQUENCE if isinstance(row, OutgoingRow) else QueueKind.HELD
        return queue is not None and queue.kind is kind

    def named_counts(self) -> dict[str, int]:
        """Return the number of messages in each queue, keyed by the name that people use for the queue."""
        named = Counter[str]()
        for queue, count in self.counts.items():
            named[self.name_of(queue)] += count
        return dict(named)

    def stored_messages(self, findings: list[str]) -> Iterator[MessageRow]:
        """Yield the undamaged messages of the tables whose queues exist. The other messages become findings."""
        failures = [FAILURES]
        for number in sorted(self.queues):
            for columns in _readable(self.db, *keys_of(number), failures):
                try:
                    yield whole_message(*columns)
                except DamageError as error:
                    findings.append(f"{self.name_of(number)}: {error}")

    def stored_posted(self) -> Iterator[PostedRow]:
        """Yield the undamaged posted messages of the tables. Those that are damaged were counted before."""
        with suppress(*UNREADABLE):
            for row in self.db.execute(f"SELECT {COLUMNS} FROM posted ORDER BY message_id"):
                with suppress(DamageError):
                    yield from whole_rows("posted", [row], made_posted)

    def posted(self) -> Iterator[PostedRow]:
        """Yield all undamaged posted messages of the tables and the log together, in the order of their MessageIDs."""
        logged = RecentPosted()
        for number in sorted(self.records):
            logged.add(self.records[number].posted, self.records[number].changes)
        in_tables = (row for row in self.stored_posted() if row.message_id not in logged.rows)
        changes = logged.changes
        rows = (
            changed(row, changes[row.message_id]) if row.message_id in changes else row for row in in_tables
        )
        yield from merge(rows, (logged.rows[number] for number in sorted(logged.rows)))

    def messages(self, findings: list[str]) -> Iterator[MessageRow]:
        """Yield all undamaged messages of the tables and the log together, in the order of their keys."""
        logged, gone = Logged.of(self.records), self.stored_messages(findings)
        yield from merge((row for row in gone if not logged.replaces(row.key)), logged.messages)


def salvaged(files: Files, path: Path, *, is_locked: bool = False) -> Salvage:
    """Read everything readable. Messages are only counted here; `messages` reads them again.

    Args:
        is_locked: whether the caller has the store's lock.

    Raises:
        StoreError: there is no store.
    """
    is_known = path.parent.is_dir() and (segments_of(files, path) or witness_path(path).exists())
    if not path.exists() and not is_known:
        raise StoreError(f"{path}: there is no such store: name a node of the topology, or its file")
    what_of_log = finding_of_log(files, path, is_locked=is_locked)
    found = _salvaged(files, path, is_locked=is_locked, with_log=not what_of_log)
    if found.with_log and found.findings and not found.is_running and log_path(path).exists():
        # SQLite's log is what is damaged, if there is more without it.
        without = _salvaged(files, path, is_locked=is_locked, with_log=False)
        is_better = without.lacks < found.lacks
        found, other = (without, found) if is_better else (found, without)
        other.close()
        what_of_log = f"{log_path(path).name}: it is hurt, or of an earlier moment"
    if not found.with_log:
        found.findings.insert(0, f"{what_of_log}; what follows is of {path.name} without it")
    return found


def _salvaged(files: Files, path: Path, *, is_locked: bool, with_log: bool) -> Salvage:
    """Read everything readable, with or without the contents of SQLite's log."""
    has_file = path.exists()
    for attempt in range(1, ATTEMPTS + 1):
        before = log_at(files, path)
        db = (
            opened(path, with_log=with_log) if has_file else sqlite3.connect(":memory:", isolation_level=None)
        )
        found = Salvage(path, db, with_log, is_running=not is_locked and files.is_locked(path))
        try:
            with explained(path, ADVICE_FOR_LOOKING):
                log = _chosen(files, found, has_file=has_file)
            if found.is_running:
                # A node that stops meanwhile may remove a log that these tables have not begun.
                is_one_moment = not log.missing and not log.missing_records
            else:  # A life may have begun meanwhile, and ended again.
                is_one_moment = is_locked or (not files.is_locked(path) and log_at(files, path) == before)
            if is_one_moment:
                break
        except BaseException:
            found.close()
            raise
        if attempt < ATTEMPTS:
            found.close()
    try:
        if log.has_tables:
            _read_tables(found)
        found.lacks = (bool(found.findings), log.missing_records)
        found.findings += log.findings
        _compare_moments(found, log)
        _count(found)
    except BaseException:
        found.close()
        raise
    return found


@dataclass(slots=True)
class _Log:
    """The state of the log at the moment that the salvage shows.

    has_tables: whether the tables can be read at all.
    missing: the numbers of segments that should exist, but do not.
    missing_records: the number of records that are unreadable or missing.
    findings: the damage in the log, one line for each fault.
    """

    has_tables: bool = True
    missing: list[int] = field(default_factory=list)
    missing_records: int = 0
    findings: list[str] = field(default_factory=list)


def _chosen(files: Files, found: Salvage, *, has_file: bool) -> _Log:
    """Choose the moment that the salvage shows, and read the log as of that moment."""
    log = _Log()
    try:
        if not has_file:
            raise sqlite3.DatabaseError("it is missing")
        found.db.execute("BEGIN")
        _see_that_it_is_a_store(found)
        _see_whose_it_is(found)
    except UNREADABLE as error:
        if _is_the_disks(error):
            raise
        found.findings.append(f"{found.path.name}: {error}")
        log.has_tables = has_file and not found.is_running and _are_mended(found)
    _read_witness(files, found, log)
    _read_log(files, found, log)
    if not log.has_tables and found.node is None and not found.records:
        raise StoreError(
            f"{found.path}: it is not a store of a node, or nothing of it can be read: name another, or put back a copy"
        )
    return log


def _are_mended(found: Salvage) -> bool:
    """Return whether a copy of the tables can be read, although SQLite does not open the original."""
    db = mended(found.path, found.undo, with_log=found.with_log)
    if db is None:
        return False
    found.db.close()
    found.db = db
    found.findings.append(
        f"{found.path.name}: its first bytes or its end are hurt; what follows is of a copy without"
    )
    with suppress(*UNREADABLE):
        _see_whose_it_is(found)
    return True


def _see_whose_it_is(found: Salvage) -> None:
    for mark in _rows(found, "log", "*", made_mark):
        found.mark = mark
    for node in _rows(found, "node", "*", lambda *columns: columns):
        found.node = Guid(node[0])


def _is_the_disks(error: Exception) -> bool:
    """Return whether the error says nothing about damage, because SQLite lacks room or permission to read the store."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return primary_code(error) in NO_DAMAGE or extended in NO_SHARED_MEMORY


def _see_that_it_is_a_store(found: Salvage) -> None:
    [(application_id,)] = found.db.execute("PRAGMA application_id").fetchall()
    [(layout,)] = found.db.execute("PRAGMA user_version").fetchall()
    if application_id == APPLICATION_ID and layout not in (LAYOUT, BEFORE):
        raise StoreError(
            f"{found.path}: it has layout {layout}, and this mqproto knows {LAYOUT}: use the mqproto that wrote it"
        )


def _compare_moments(found: Salvage, log: _Log) -> None:
    """Check that the tables, the log and the witness show the same moment."""
    mark = found.mark
    if mark is not None and found.witness is not None and mark.record > found.witness + 1:
        found.findings.append(
            f"{witness_path(found.path).name}: it is of an earlier moment, when record {found.witness} was the newest"
        )
    found.findings += [f"{segment_path(found.path, number).name} is missing" for number in log.missing]
    if mark is None and len(found.records) < found.record:
        # Whole queues of the tables may be gone, and the log of a store that ran for long has only the last records.
        lost = f"messages of records 1 to {found.record} may be missing"
        found.findings.append(f"{found.path.name}: where the log begins is lost, so {lost}")


def _rows(found: Salvage, table: str, columns: str, make: Callable[..., T]) -> list[T]:
    """Return the undamaged rows of a table. Damaged rows become findings."""
    whole: list[T] = []
    try:
        for row in found.db.execute(f"SELECT {columns} FROM {table}"):
            try:
                whole += whole_rows(table, [row], make)
            except DamageError as error:
                found.findings.append(f"{found.path.name}: {error}")
    except UNREADABLE as error:
        found.findings.append(f"{found.path.name}: table {table} can be read in part: {error}")
    return whole


def _read_tables(found: Salvage) -> None:
    try:
        see_that_all_is_there(found.db)
    except (DamageError, *UNREADABLE) as error:
        found.findings.append(f"{found.path.name}: {' '.join(str(error).split())}")
    queues = _rows(found, "queue", "queue, kind, name, priority, on_hold, checksum", made_queue)
    found.queues = {queue.queue: queue for queue in queues}
    found.outgoing = _rows(found, "outgoing_sequence", "*", OutgoingRow)
    found.incoming = _rows(found, "incoming_sequence", "*", IncomingRow)
    found.identifiers = _rows(found, "message_id", "source, ordinal, time_stamp_s, checksum", IdentifierRow)
    found.counters = dict(_rows(found, "counter", "*", made_counter))
    found.outcomes = _rows(found, "outcome", "*", made_outcome)
    _read_posted(found)


def _count(found: Salvage) -> None:
    """Read all messages, and check that the number of undamaged ones matches the stored counts."""
    logged = Logged.of(found.records)
    for row in found.stored_messages(found.findings):
        found.stored[row.key >> POSITION_BITS] += 1
        if not logged.replaces(row.key):
            found.counts[row.key >> POSITION_BITS] += 1
    found.counts.update(row.key >> POSITION_BITS for row in logged.messages)
    for queue, count in sorted(_without_a_queue(found).items()):
        what = "1 message, which is" if count == 1 else f"{count:,} messages, which are"
        found.findings.append(f"queue {queue} has {what} set aside, for its own row is lost")
    try:
        counted = found.db.execute("SELECT queue, message_count FROM queue").fetchall()
    except UNREADABLE:
        counted = []  # It was said already.
    for queue, count in counted:
        if queue in found.queues and isinstance(count, int) and count > found.stored[queue]:
            missing = count - found.stored[queue]
            found.findings.append(
                f"{found.name_of(queue)}: {missing} of {count} messages are not whole or not there"
            )
    for number in sorted(found.records):
        found.queues |= {queue.queue: queue for queue in found.records[number].queues}


def _without_a_queue(found: Salvage) -> Counter[int]:
    """Return the number of messages that belong to queues that the tables lack, keyed by the number of the queue."""
    failures, counts, first = [FAILURES], Counter[int](), 0
    for last, after in [*map(keys_of, sorted(found.queues)), (LAST_KEY + 1, 0)]:
        counts.update(
            columns[0] >> POSITION_BITS for columns in _readable(found.db, first, last - 1, failures)
        )
        first = after + 1
    return counts


def _readable(
    db: sqlite3.Connection, first: int, last: int, failures: list[int]
) -> Iterator[tuple[Any, ...]]:
    """Yield, in order, the messages with these keys that SQLite can read.

    A range that cannot be read is halved, again and again, until only unreadable messages are left out.

    Each failure to read lowers the number in `failures`. When it reaches 0, the rest is left out.
    """
    ranges = [(first, last)]
    while ranges and failures[0] > 0:
        first, last = ranges.pop()
        try:
            found = db.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM message WHERE key BETWEEN ? AND ? ORDER BY key", (first, last)
            )
            for columns in found:
                if not first <= columns[0] <= last:
                    raise sqlite3.DatabaseError("it is in a wrong place")
                first = columns[0] + 1
                yield columns
        except UNREADABLE:
            failures[0] -= 1
            if first < last:
                middle = (first + last) // 2
                ranges += [(middle + 1, last), (first, middle)]


def _read_posted(found: Salvage) -> None:
    """Read the posted messages, and count the damaged ones. There may be millions, so they are not kept."""
    there_count = whole_count = counted = 0
    try:
        [(layout,)] = found.db.execute("PRAGMA user_version").fetchall()
        if layout == BEFORE:
            return
        for (count,) in found.db.execute("SELECT row_count FROM total WHERE name = 'posted'"):
            counted = count if isinstance(count, int) else 0
        for row in found.db.execute(f"SELECT {COLUMNS} FROM posted"):
            there_count += 1
            with suppress(DamageError):
                whole_count += len([*whole_rows("posted", [row], made_posted)])
    except UNREADABLE as error:
        found.findings.append(f"{found.path.name}: table posted can be read in part: {error}")
        counted = max(counted, there_count + 1)
    found.hurt_posted_count = max(counted, there_count) - whole_count
    if found.hurt_posted_count:
        found.findings.append(
            f"{found.path.name}: {found.hurt_posted_count:,} posted messages are not whole or not there, so their"
            " ids are unknown"
        )


def _read_witness(files: Files, found: Salvage, log: _Log) -> None:
    path = witness_path(found.path)
    try:
        if not path.exists():
            raise StoreError(f"{path.name} is missing")
        with explained_file(path):
            data = files.read(path)
        found.witness = said_by_witness(path, data, found.node or Guid(data[8:24].ljust(16, b"\0"))).record
        found.node = found.node or Guid(data[8:24])
    except StoreError as error:
        log.findings.append(str(error).partition(": `")[0].removesuffix(": name another file"))


def _read_log(files: Files, found: Salvage, log: _Log) -> None:
    mark = found.mark
    names = segments_of(files, found.path)
    found.last_segment = names[-1].number if names else 0
    if mark is not None:
        names = [name for name in names if name.number >= mark.segment]
        first, last = mark.segment, max(found.last_segment, mark.segment - (not mark.is_begun))
        log.missing = sorted({*range(first, last + 1)}.difference(name.number for name in names))
    for name in names:
        try:
            data = files.read(name.path)
        except FileNotFoundError:
            log.missing.append(name.number)
            continue
        except OSError as error:
            log.findings.append(f"{name.path.name}: {error.strerror}")
            continue
        segment = HurtSegment(
            name,
            data,
            is_last=name == names[-1],
            acknowledged=found.witness,
            is_written=found.is_running,
        )
        for number, writes, finding, notice in segment.salvaged():
            log.findings += [finding] * bool(finding)
            found.notices += [notice] * bool(notice)
            if writes is not None and (mark is None or number >= mark.record):
                found.records[number] = writes
    first = mark.record if mark else min(found.records, default=found.record + 1)
    missing = [number for number in range(first, found.record + 1) if number not in found.records]
    log.missing_records = len(missing)
    for each in missing[:10]:
        log.findings.append(f"the log: record {each} cannot be read, or is not there")
    if len(missing) > 10:
        log.findings.append(f"the log: nor can {len(missing) - 10} more, up to record {missing[-1]}")
