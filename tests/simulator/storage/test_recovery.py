"""The content of a store after a process was killed, or a disk failed, during any step of the log or of the tables."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import LogLimits, Store, files, segments
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.storage.segments import SECTOR_BYTES, segment_path
from mqproto.turn.effects import IdentifierRow, IncomingRow, OutcomeRow, OutgoingRow, ReadExpired, Writes
from tests.conformance import ROOT
from tests.memory import memory_folder
from tests.simulator.series import LIMITS, series
from tests.simulator.storage.batches import (
    EVERYTHING,
    HELD,
    LOCAL,
    NODE,
    QUEUES,
    SEQUENCE,
    TINY,
    batches,
    has,
    in_order,
    messages_in,
    numbers,
    one,
)

LOOP = """
import os, random, signal, sys
from pathlib import Path
from mqproto.turn.effects import *
from mqproto.simulator.storage import LogLimits, Store
from mqproto.simulator.storage.files import SystemFile

path, seed = Path(sys.argv[1]), int(sys.argv[2])
dice = random.Random(seed)
limits = LogLimits(segment_bytes=50_000, segments=2, memory_bytes=200_000, slice_messages=20, slice_bytes=20_000)
store = Store(path, bytes(range(16)), limits=limits)
batch = store.load().counters.get("batch", 0)
steps = dice.randrange(1, 6_000)

def killed_after_so_many_steps(taken=1):
    global steps
    steps -= taken
    return 0 if steps > 0 else os.kill(os.getpid(), signal.SIGKILL)

def write(file, offset, parts):
    data = b"".join(parts)
    if steps <= 40:
        end = (offset + dice.randrange(len(data) + 1)) // 512 * 512  # A write breaks off between two sectors.
        os.pwrite(file._file, data[: max(0, end - offset)], offset)
    killed_after_so_many_steps(40)
    os.pwrite(file._file, data, offset)
    killed_after_so_many_steps(40)

store._tables.db.set_progress_handler(killed_after_so_many_steps, 1)
SystemFile.write = write
while True:
    batch += 1
    first = message_key(1, 100 * batch)
    writes = Writes(
        messages=[MessageRow(first + i, bytes(1200), i, False) for i in range(batch % 40 + 1)],
        incoming={(bytes(16), 1): IncomingRow(bytes(16), 1, 0, 0, batch, 0, 0, "")},
        counters={"batch": batch},
    )
    if batch > 10:
        writes.remove(1, 100 * (batch - 10), 100 * (batch - 10) + 99)
    store.commit(writes)
    os.write(1, b"%d\\n" % batch)
"""


@pytest.mark.long
def test_a_killed_process_leaves_exactly_the_batches_that_were_committed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES))
    committed: list[int] = []
    for seed in range(8):
        done = subprocess.run(
            [sys.executable, "-c", LOOP, path, str(seed)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -9, done.stderr
        said = [int(line) for line in done.stdout.split()]
        with Store(path, NODE) as store:
            state = store.load()
            found = numbers(store)
        batch = state.counters.get("batch", 0)
        assert batch - (said or committed or [0])[-1] in (0, 1), f"seed {seed}"
        kept = range(max(1, batch - 9), batch + 1)
        assert found == [100 * kept_batch + i for kept_batch in kept for i in range(kept_batch % 40 + 1)]
        assert state.queues[0].message_count == len(found)
        assert [row.number for row in state.incoming] == ([batch] if batch else [])
        committed.append(batch)
    assert len(set(committed)) > 4, "the kills are too early to show anything"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_what_a_process_leaves_that_is_killed_after_any_commit_is_what_was_committed(seed: int) -> None:
    model = Disk()
    with memory_folder() as name:
        folder, copy = Path(name, "own"), Path(name, "copy")
        folder.mkdir()
        with Store(
            folder / "a.sqlite", NODE, limits=LIMITS._replace(slice_messages=1, slice_bytes=1)
        ) as store:
            for writes in series(seed, 80):
                store.commit(writes)
                model.commit(writes)
                shutil.copytree(folder, copy)
                with Store(copy / "a.sqlite", NODE) as left:
                    assert in_order(left.load()) == in_order(model.load())
                    assert left.read(EVERYTHING) == model.read(EVERYTHING)
                shutil.rmtree(copy)
                assert store.read(EVERYTHING) == model.read(EVERYTHING)
                assert store.read(ReadExpired(3, 2**40)) == model.read(ReadExpired(3, 2**40))
                assert store.size_bytes == model.size_bytes


@pytest.mark.long
@pytest.mark.parametrize(("removals", "identifiers"), [(10, 40), (100, 2)])
def test_what_was_said_once_is_known_after_its_segment_has_gone_to_the_tables(
    removals: int, identifiers: int
) -> None:
    """Moving a segment takes many slices, and the segment stays until the last of them."""
    limits = LogLimits(segment_bytes=300, segments=1, memory_bytes=1 << 20, slice_messages=1, slice_bytes=1)
    known, forgotten, later = (OutcomeRow(name, 1, b"done", True, 5) for name in (b"a", b"b", b"c"))
    before = Writes(
        queues=QUEUES,
        messages=[one(number, b"old") for number in range(1, 101)],
        outcomes={(row.invoker, row.identifier): row for row in (known, forgotten)},
        identifiers=[IdentifierRow(NODE, 1, 1)],
    )
    once = Writes(
        outgoing={SEQUENCE: OutgoingRow(SEQUENCE, NODE, 1, 2, 3, 4, 5, 6, 7)},
        incoming={(NODE, HELD): IncomingRow(NODE, HELD, 1, 2, 3, 4, 5, "there")},
        forgotten_identifiers=[(NODE, 1, 1)],
        identifiers=[IdentifierRow(NODE, number, 5) for number in range(2, 2 + identifiers)],
        counters={"once": 1},
        forgotten_invokers=[b"b"],
        outcomes={(later.invoker, later.identifier): later, (known.invoker, known.identifier): None},
    )
    once.remove(LOCAL, 1, removals)
    model = Disk()
    with memory_folder() as name:
        folder, copy = Path(name, "own"), Path(name, "copy")
        folder.mkdir()
        with Store(folder / "a.sqlite", NODE, limits=limits) as store:
            store.commit(before)
        with Store(folder / "a.sqlite", NODE, limits=limits) as store:
            store.commit(once)
            model.commit(before)
            model.commit(once)
            for number in range(101, 161):
                # What goes on coming does not keep the segment.
                coming = [IdentifierRow(NODE, 10 * number + i, 5) for i in range(4)]
                writes = Writes(messages=[one(number, bytes(200))], identifiers=coming)
                store.commit(writes)
                model.commit(writes)
                shutil.copytree(folder, copy)
                with Store(copy / "a.sqlite", NODE) as left:
                    assert in_order(left.load()) == in_order(model.load())
                shutil.rmtree(copy)
            assert not segment_path(folder / "a.sqlite", 2).exists()


@pytest.mark.parametrize("at", range(1, 13))
def test_messages_that_no_longer_expire_do_so_no_more_wherever_the_crash_finds_them(
    tmp_path: Path, at: int
) -> None:
    limits = LogLimits(segment_bytes=300, segments=1, memory_bytes=1 << 20, slice_messages=1, slice_bytes=1)
    rows = [one(number, bytes(40), expires_s=number) for number in range(1, 7)]
    with Store(tmp_path / "a.sqlite", NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES, messages=rows))
        for number in range(1, at):
            store.commit(Writes(counters={"number": number}, messages=[one(10 + number, bytes(200))]))
        store.commit(Writes(lasting=[row.key for row in rows[:4]]))
        shutil.copytree(tmp_path, tmp_path / "copy")
        with Store(tmp_path / "copy" / "a.sqlite", NODE) as copy:
            for left in (store, copy):
                assert [key for key, _, _ in left.read(EVERYTHING)] == [row.key for row in rows[4:]]


class FailingSystem:
    """The system as the log's files see it, until some of its calls fail.

    Attributes:
        calls_left: the number of calls before the first failure.
        failing_count: the number of calls in a row that then fail.
        number: the errno of the failures.
        written_share: the share of a failing write that is written nevertheless, in whole sectors.
        made: the names of all calls.
        failed: the names of the calls that failed.
    """

    CALLS = ("open", "pwritev", "fdatasync", "fsync", "ftruncate")

    def __init__(self) -> None:
        self.calls_left = 0
        self.failing_count = 0
        self.number = 0
        self.written_share = 0.0
        self.made: list[str] = []
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)

        def failing(*arguments: Any) -> Any:
            self.made.append(name)
            self.calls_left -= 1
            if self.calls_left >= 0 or len(self.failed) >= self.failing_count:
                return call(*arguments)
            self.failed.append(name)
            if name == "pwritev":
                file, parts, offset = arguments
                data = b"".join(parts)
                end = (offset + int(self.written_share * len(data))) // SECTOR_BYTES * SECTOR_BYTES
                os.pwrite(file, data[: max(0, end - offset)], offset)
            raise OSError(self.number, os.strerror(self.number))

        return failing if name in self.CALLS else call


@contextmanager
def failing_system() -> Iterator[FailingSystem]:
    system = FailingSystem()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "os", system)
        yield system


def outcome(store: Store, writes: Writes) -> str:
    """Commit a transaction; return the store's error, or an empty text if it does not fail."""
    try:
        store.commit(writes)
    except StoreError as error:
        return str(error)
    return ""


@pytest.mark.long
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_after_any_failure_of_the_disk_a_batch_is_wholly_there_or_not_and_a_full_disk_ends_nothing(
    data: st.DataObject,
) -> None:
    model, fresh = Disk(), count(1)
    with memory_folder() as name, failing_system() as system, ExitStack() as stores:
        folder, copy = Path(name, "own"), Path(name, "copy")
        folder.mkdir()
        path = folder / "a.sqlite"
        store = stores.enter_context(Store(path, NODE, limits=TINY))
        for number in range(data.draw(st.integers(1, 6), label="transactions")):
            writes = data.draw(batches(set(model.messages), fresh)) if number else Writes(queues=QUEUES)
            system.calls_left = data.draw(st.integers(0, 5), label="calls until one fails")
            system.failing_count = data.draw(st.integers(0, 2), label="how many fail")
            system.number = data.draw(st.sampled_from([errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES]))
            system.written_share = data.draw(st.floats(0, 1))
            system.failed = []
            complaint = outcome(store, writes)
            system.failing_count = 0
            if complaint:
                assert system.failed
                assert complaint.count("\n") == 0
                again = outcome(store, writes)
                if again:
                    assert "it failed before: start the node again" in again
                    assert system.failed != ["pwritev"] or system.number not in segments.FULL
                    store.close()
                    store = stores.enter_context(Store(path, NODE, limits=TINY))
                    if has(store, model):
                        store.commit(writes)
            else:
                # A smaller segment may find room, and the witness may be behind the log.
                assert not system.failed or system.number in segments.FULL
            model.commit(writes)
            shutil.copytree(folder, copy)
            with Store(copy / "a.sqlite", NODE) as left:
                assert has(left, model)
            shutil.rmtree(copy)
            assert messages_in(store) == messages_in(model)
            assert store.size_bytes == model.size_bytes
        store.close()
        with Store(path, NODE) as opened:
            assert has(opened, model)


def test_of_a_record_that_found_no_room_nothing_is_left_behind_those_that_did(tmp_path: Path) -> None:
    path, limits = tmp_path / "a.sqlite", TINY._replace(segment_bytes=8_000, segments=9)
    with failing_system() as system, Store(path, NODE, limits=limits) as store:
        store.commit(Writes(queues=QUEUES))
        system.failing_count, system.number, system.written_share = 1, errno.ENOSPC, 0.9
        assert "the disk is full" in outcome(store, Writes(messages=[one(1, bytes(5_000))]))
        for number in range(2, 12):
            store.commit(Writes(messages=[one(number, bytes(1_000))]))
        assert len(list(tmp_path.glob("*-log-*"))) > 1
        shutil.copytree(tmp_path, tmp_path / "copy")
    with Store(tmp_path / "copy" / "a.sqlite", NODE) as left:
        assert numbers(left) == [*range(2, 12)]


def test_who_hears_that_the_disk_is_full_hears_it_once_nothing_of_the_batch_is_on_it(tmp_path: Path) -> None:
    """The whole batch may be on disk. If it were not cut off for good, a power loss would restore what was refused."""
    with failing_system() as system, Store(tmp_path / "a.sqlite", NODE) as store:
        store.commit(Writes(queues=QUEUES))
        system.failing_count, system.number, system.written_share = 1, errno.ENOSPC, 1.0
        system.made.clear()
        assert "the disk is full" in outcome(store, Writes(messages=[one(1)]))
        assert system.made == ["pwritev", "pwritev", "fdatasync"]
        assert numbers(store) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_after_a_flush_that_failed_nothing_is_committed_any_more_until_the_log_was_read(
    tmp_path: Path, number: int
) -> None:
    """The system may have dropped the data to be flushed, and may not report that the next time."""
    with failing_system() as system, Store(tmp_path / "a.sqlite", NODE) as store:
        store.commit(Writes(queues=QUEUES))
        system.calls_left, system.failing_count, system.number = 1, 1, number
        assert outcome(store, Writes(messages=[one(1)]))
        assert system.failed == ["fdatasync"]
        assert "it failed before: start the node again" in outcome(store, Writes(messages=[one(2)]))
    with Store(tmp_path / "a.sqlite", NODE) as again:
        assert numbers(again) in ([], [1])


@pytest.mark.parametrize("name", ["names", "read", "remove"])
def test_a_disk_that_fails_while_the_log_goes_to_the_tables_is_said_in_one_line_and_the_next_does_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with Store(tmp_path / "a.sqlite", NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(1)]))
        shutil.copytree(tmp_path, tmp_path / "left")

    def fail(files: files.SystemFiles, path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(files.SystemFiles, name, fail)
        with pytest.raises(StoreError, match=r"the disk fails .*: look to it, then start the node again"):
            Store(tmp_path / "left" / "a.sqlite", NODE)
    with Store(tmp_path / "left" / "a.sqlite", NODE) as again:
        assert numbers(again) == [1]
