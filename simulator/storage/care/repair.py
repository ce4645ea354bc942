"""Makes a store from the undamaged parts of a damaged store. The damaged store is set aside, with a list of its
damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.simulator.base.storeerrors import StoreError, explained
from mqproto.simulator.storage.base import Mark, StoreTables
from mqproto.simulator.storage.care.salvage import Salvage, salvaged
from mqproto.simulator.storage.checksums import whole_rows
from mqproto.simulator.storage.files import Files
from mqproto.simulator.storage.recent import RecentRows
from mqproto.simulator.storage.recovery import take_again
from mqproto.simulator.storage.tables import keys_of
from mqproto.simulator.storage.witnesses.witness import Said, StoreWitness
from mqproto.turn.effects import (
    LAST_POSITION,
    POSITION_BITS,
    POSTED_UNKNOWN,
    OutgoingRow,
    QueueKind,
    Writes,
    message_key,
)

BATCH: Final = 1_000
FINDINGS: Final = "findings.txt"
COUNTER: Final = "message_id_ceiling"
APART: Final = 2**30
"""The distance between the last known MessageID and the first new one, if it is not known which MessageID was used
last.
"""


class Repaired(NamedTuple):
    """The result of a repair.

    quarantine: the folder with the old files and the findings; None if nothing was damaged.
    """

    findings: list[str]
    counts: dict[str, int]
    quarantine: Path | None


def repair(files: Files, path: Path, date: str) -> Repaired:
    """Set a damaged store aside, and replace it with a store made from the undamaged parts.

    Args:
        date: the date for the name of the folder.

    Raises:
        StoreError: there is no store, its node is running, the disk fails, or nothing shows which node owns it.
    """
    path = path.resolve()
    with explained(path), closing(files.lock(path)):
        with closing(salvaged(files, path, is_locked=True)) as found:
            if not found.findings:
                return Repaired([], found.named_counts(), None)
            if found.node is None:
                raise StoreError(
                    f"{path}: neither its tables nor its witness say whose it is: put back a copy of one"
                )
            aside = path.with_name(f"{path.name}-quarantine-{date}")
            draft = path.with_name(f"{path.name}-repaired")
            for folder in (aside, draft):
                if folder.exists():
                    raise StoreError(f"{folder}: it is there already, from another repair: move it away")
            draft.mkdir()
            counts = _write(files, found, draft / path.name)
        aside.mkdir()
        aside.joinpath(FINDINGS).write_text("".join(f"{finding}\n" for finding in found.findings), "utf-8")
        for old in sorted(path.parent.iterdir()):
            if old.is_file() and old.name.startswith(path.name) and "-lock" not in old.name:
                old.rename(aside / old.name)
        for new in draft.iterdir():
            if "-lock" not in new.name:
                new.rename(path.parent / new.name)
        draft.rmdir()
        files.flush_folder(path.parent)
    return Repaired(found.findings, _named(found, counts), aside)


def brought(tables: StoreTables, transactions: Iterable[Writes]) -> RecentRows:
    """Return the rows that a log has and these tables may lack, given the log's transactions in order."""
    recent = RecentRows()
    for writes in transactions:
        take_again(recent, tables, writes)
    return recent


def _without_a_sequence(found: Salvage) -> set[int]:
    """Return the queues whose sequence is lost. Their messages are useless without it."""
    sequences = {row.queue for row in found.outgoing} | {row.queue for row in found.incoming}
    for writes in found.records.values():
        sequences |= {row.queue for row in writes.outgoing.values()}
        sequences |= {row.queue for row in writes.incoming.values() if row is not None}
    lost = {
        queue.queue
        for queue in found.queues.values()
        if queue.kind in (QueueKind.SEQUENCE, QueueKind.HELD) and queue.queue not in sequences
    }
    for queue in sorted(lost):
        if found.counts[queue]:
            found.findings.append(
                f"{found.name_of(queue)}: its {found.counts[queue]} messages are set aside, for its sequence is lost"
            )
    return lost


def _possible(found: Salvage, writes: Writes, number: int, lost: set[int]) -> Writes:
    """Return a record without lost queues and their messages.

    The messages and sequences of unknown queues are left out as well. The findings say how many messages and sequences
    were left out.
    """
    found.queues |= {queue.queue: queue for queue in writes.queues}
    kept = [row for row in writes.messages if row.key >> POSITION_BITS in found.queues.keys() - lost]
    if len(kept) < len(writes.messages):
        missing = len(writes.messages) - len(kept)
        found.findings.append(f"record {number}: {missing} messages are set aside, for their queue is lost")
    outgoing = {key: row for key, row in writes.outgoing.items() if found.is_kept(row)}
    incoming = {key: row for key, row in writes.incoming.items() if row is None or found.is_kept(row)}
    if missing := len(writes.outgoing) - len(outgoing) + len(writes.incoming) - len(incoming):
        found.findings.append(f"record {number}: {missing} sequences are set aside, for their queue is lost")
    queues = [queue for queue in writes.queues if queue.queue not in lost]
    return replace(writes, queues=queues, messages=kept, outgoing=outgoing, incoming=incoming)


def _leave_out_what_was_acknowledged(found: Salvage, tables: StoreTables) -> None:
    """Remove messages that are still stored although their destination has acknowledged them.

    The record that removed them is lost. A sequence never looks at numbers before the acknowledged one, so nothing else
    would remove them.
    """
    numbers = tables.db.execute("SELECT queue, base + last_ack FROM outgoing_sequence").fetchall()
    for queue, acknowledged in numbers:
        gone = tables.messages.sizes(message_key(queue, 0), message_key(queue, acknowledged))
        if gone:
            with tables.transaction(flushed=False):
                tables.messages.remove(gone)
            found.findings.append(
                f"{found.name_of(queue)}: {len(gone)} messages are left out, for their destination has them"
            )


def _gone_on(found: Salvage, tables: StoreTables) -> RecentRows:
    """If the row of a sequence is older than its last messages, make the sequence continue after these messages."""
    recent = RecentRows()
    found_rows = tables.db.execute("SELECT * FROM outgoing_sequence").fetchall()
    for row in whole_rows("outgoing_sequence", found_rows, OutgoingRow):
        between = "SELECT coalesce(max(key), 0) FROM message WHERE key BETWEEN ? AND ?"
        [(key,)] = tables.db.execute(between, keys_of(row.queue)).fetchall()
        number = (key & LAST_POSITION) - row.base
        if number >= row.next_number:
            recent.states.outgoing[row.queue] = row._replace(next_number=number + 1)
            name = found.name_of(row.queue)
            found.findings.append(
                f"{name}: its sequence is of an earlier moment, and goes on behind its last message, number {number}"
            )
    return recent


def _named(found: Salvage, counts: Counter[int]) -> dict[str, int]:
    named = Counter[str]()
    for queue, count in counts.items():
        named[found.name_of(queue)] += count
    return dict(named)


def _write(files: Files, found: Salvage, path: Path) -> Counter[int]:
    """Write a new store from the undamaged data, with everything in the tables. Return the number of messages in each
    queue.
    """
    assert found.node is not None
    known = 0
    with closing(StoreTables(files, path, found.node)) as tables:
        lost = _without_a_sequence(found)
        with tables.transaction(flushed=False):
            tables.put_queues(queue for number, queue in found.queues.items() if number not in lost)
        messages = (row for row in found.stored_messages([]) if row.key >> POSITION_BITS not in lost)
        while rows := list(islice(messages, BATCH)):
            known = max(known, *(row.message_id for row in rows))
            with tables.transaction(flushed=False):
                tables.messages.insert(rows)
        transactions = [
            _possible(found, found.records[number], number, lost) for number in sorted(found.records)
        ]
        known = max([known, *(row.message_id for writes in transactions for row in writes.messages)])
        recent = brought(tables, transactions)
        base = RecentRows()
        base.states.add(
            Writes(
                outgoing={row.queue: row for row in found.outgoing if found.is_kept(row)},
                incoming={(row.source, row.queue): row for row in found.incoming if found.is_kept(row)},
                identifiers=found.identifiers,
                counters=found.counters,
                outcomes={(row.invoker, row.identifier): row for row in found.outcomes},
            )
        )
        posted = found.stored_posted()
        while rows_posted := list(islice(posted, BATCH)):
            with tables.transaction(flushed=False):
                tables.posted.put(rows_posted, [])
        if found.hurt_posted_count or found.lacks != (False, 0):
            recent.states.counters[POSTED_UNKNOWN] = 1
        segment = max(found.last_segment, found.mark.segment if found.mark else 0) + 1
        mark = Mark(segment, found.record + 1, is_begun=False)
        tables.take_over(base, mark)
        if COUNTER not in found.counters | recent.states.counters and known:
            recent.states.counters[COUNTER] = (known + APART) % 2**32
            found.findings.append(f"counter {COUNTER} is lost: MessageIDs go on far behind {known}")
        tables.take_over(recent, mark)
        _leave_out_what_was_acknowledged(found, tables)
        tables.take_over(_gone_on(found, tables), mark)
        salts = tables.log_salts
        counts = Counter({queue.queue: 0 for queue in tables.queues()})
        for kind in QueueKind:
            counts.update(tables.counts(kind))
    StoreWitness.create(files, path, found.node, Said(found.record, salts)).close()
    return counts
