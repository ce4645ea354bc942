"""A store is read as it was at one moment, whether its node runs, was killed, or is just starting."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.care import salvaged
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.storage.files import SYSTEM_FILES, Files, SystemFiles
from mqproto.simulator.storage.segments import store_of
from mqproto.turn.effects import POSITION_BITS, ReadBy, ReadPage, Writes
from tests.memory import memory_folder
from tests.simulator.series import LIMITS, NODE, QUEUES, SAME_FILES, series
from tests.simulator.storage.batches import LOCAL, one

Content = dict[int, list[tuple[int, bytes, bool]]]
LENGTH = 300
SEED = 5


def content_after(seed: int, length: int) -> Iterator[Content]:
    """Yield the content of a store before the transactions of a series, and after each of them."""
    model = Disk()
    yield {}
    for writes in series(seed, length):
        model.commit(writes)
        pages = {
            queue.queue: model.read(ReadPage(queue.queue, 0, 10_000, 2**30, ReadBy.WINDOW))
            for queue in QUEUES
        }
        yield {queue: page for queue, page in pages.items() if page}


def found_in(path: Path, files: Files = SYSTEM_FILES) -> tuple[int, Content, dict[int, int], list[str]]:
    """Return the moment, the content, the number of messages counted in each queue, and everything that was printed."""
    with closing(salvaged(files, path)) as found:
        content: Content = {}
        for row in found.messages(found.findings):
            position = row.key & (1 << POSITION_BITS) - 1
            content.setdefault(row.key >> POSITION_BITS, []).append((position, row.packet, row.final_ack))
        counts = {queue: count for queue, count in found.counts.items() if count}
        return found.record, content, counts, [*found.findings, *found.notices]


def test_tables_and_log_of_a_node_that_runs_are_one_moment() -> None:
    expected = content_after(SEED, 60)
    assert next(expected) == {}
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), NODE, limits=LIMITS) as store:
        for record, writes in enumerate(series(SEED, 60), start=1):
            store.commit(writes)
            content = next(expected)
            counts = {queue: len(page) for queue, page in content.items()}
            assert found_in(store.path) == (record, content, counts, [])


@pytest.mark.long
def test_whoever_writes_stops_dies_and_starts_meanwhile_each_look_sees_one_moment() -> None:
    expected = list(content_after(SEED, LENGTH))
    moments = set()
    with memory_folder() as folder:
        path = Path(folder, "a.sqlite")
        command = [sys.executable, "-m", "tests.simulator.series", str(path), str(SEED), str(LENGTH), ""]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as lives:
            assert lives.stdout is not None
            while lives.stdout.readline():
                record, content, counts, said = found_in(path)
                assert said == []
                assert content == expected[record]
                assert counts == {queue: len(page) for queue, page in content.items()}
                moments.add(record)
        assert lives.returncode == 0
    assert len(moments) > 5


def test_a_life_that_begins_and_ends_within_a_look_is_no_damage() -> None:
    expected, transactions, lives = list(content_after(SEED, 20)), list(series(SEED, 20)), list[Path]()

    class LivedThrough(SystemFiles):
        def read(self, path: Path) -> bytes:
            if "-log-" in path.name and not lives:
                lives.append(path)
                with Store(store_of(path), NODE, limits=LIMITS, files=SAME_FILES) as store:
                    for writes in transactions[10:]:
                        store.commit(writes)
            return super().read(path)

    with memory_folder() as folder:
        path = Path(folder, "a.sqlite")
        with Store(path, NODE, limits=LIMITS, files=SAME_FILES) as store:
            for writes in transactions[:10]:
                store.commit(writes)
            left = {file: file.read_bytes() for file in path.parent.iterdir() if "-lock" not in file.name}
        for file, data in left.items():
            file.write_bytes(data)
        record, content, _, said = found_in(path, LivedThrough())
    assert lives
    assert (record, said) == (20, [])
    assert content == expected[20]


@pytest.mark.parametrize("look", range(1, 4))
def test_a_life_that_has_begun_and_ends_within_a_look_is_no_damage(look: int) -> None:
    expected, transactions, looks = list(content_after(SEED, 20)), list(series(SEED, 20)), count(1)

    class EndsMeanwhile(SystemFiles):
        def read(self, path: Path) -> bytes:
            if path.name.endswith("-witness") and next(looks) == look:
                for writes in transactions[10:]:
                    store.commit(writes)
                store.close()
            return super().read(path)

    with memory_folder() as folder:
        path = Path(folder, "a.sqlite")
        with Store(path, NODE, limits=LIMITS, files=SAME_FILES) as store:
            for writes in transactions[:10]:
                store.commit(writes)
        store = Store(path, NODE, limits=LIMITS, files=SAME_FILES)
        record, content, _, said = found_in(path, EndsMeanwhile())
        store.close()
    assert next(looks) > look
    assert (record, said) == (20, [])
    assert content == expected[20]


@pytest.mark.parametrize("kept_bytes", [0, 700])
def test_a_record_that_was_being_written_is_no_damage_and_is_said_if_the_node_is_dead(
    tmp_path: Path, kept_bytes: int
) -> None:
    """A power loss leaves zeros, in whole sectors, in place of unflushed data, and the witness knows nothing
    about it.
    """
    path = tmp_path / "a.sqlite"
    [declared, *others] = series(SEED, 30)
    store = Store(path, NODE)
    store.commit(declared)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if "-lock" not in file.name}
    largest = max(others, key=lambda writes: sum(len(row.packet) for row in writes.messages))
    largest.finals, largest.moves = [], []
    store.commit(largest)
    [log] = tmp_path.glob("*-log-*")
    whole, old = log.read_bytes(), before[log.name]
    witness = path.with_name("a.sqlite-witness")
    knowing = witness.read_bytes()
    store.close()
    start = len(old.rstrip(b"\0")) // 512 * 512 + 512
    torn = whole[: start + kept_bytes // 512 * 512] + bytes(len(whole) - start - kept_bytes // 512 * 512)
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    log.write_bytes(torn)
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        assert (found.record, found.findings) == (1, [])
        assert [notice.partition(" is half written")[0] for notice in found.notices] == [
            f"record 2 in {log.name} at byte {len(old.rstrip(bytes(1))):,}"
        ]
        lock = SYSTEM_FILES.lock(path)
        with closing(lock), closing(salvaged(SYSTEM_FILES, path)) as running:
            assert (running.record, running.findings, running.notices) == (1, [], [])
    witness.write_bytes(knowing)
    with closing(salvaged(SYSTEM_FILES, path)) as hurt:
        assert (
            f"{log.name}: at byte {len(old.rstrip(bytes(1))):,} stands no whole record" in hurt.findings
            or any("does not fit its checksum" in finding for finding in hurt.findings)
        )
        assert "the log: record 2 cannot be read, or is not there" in hurt.findings or kept_bytes


def killed(folder: Path) -> Path:
    """Return a store with nine messages, five of them only in its log, as a kill leaves it."""
    path, aside = folder / "a.sqlite", folder / "aside"
    aside.mkdir()
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(n) for n in range(1, 5)]))
    with Store(path, NODE) as store:
        store.commit(Writes(messages=[one(n) for n in range(5, 8)]))
        store.commit(Writes(messages=[one(n) for n in range(8, 10)]))
        for file in folder.glob("a.sqlite*"):
            (aside / file.name).write_bytes(file.read_bytes())
    (aside / "a.sqlite-lock").unlink()
    return aside / path.name


@pytest.mark.parametrize(
    ("missing", "findings", "there"),
    [
        (
            "a.sqlite",
            [
                "a.sqlite: it is missing",
                "a.sqlite: where the log begins is lost, so messages of records 1 to 3 may be missing",
            ],
            [5, 6, 7, 8, 9],
        ),
        ("a.sqlite-witness", ["a.sqlite-witness is missing"], [*range(1, 10)]),
        (
            "a.sqlite-log-000002",
            [
                "the log: record 2 cannot be read, or is not there",
                "the log: record 3 cannot be read, or is not there",
                "a.sqlite-log-000002 is missing",
            ],
            [1, 2, 3, 4],
        ),
    ],
)
def test_a_file_that_is_missing_is_named_and_what_the_others_have_is_read(
    tmp_path: Path, missing: str, findings: list[str], there: list[int]
) -> None:
    path = killed(tmp_path)
    found = found_in(path)
    assert [position for position, _, _ in found[1][LOCAL]] == [*range(1, 10)]
    assert found[3] == []
    path.with_name(missing).unlink()
    _, content, _, said = found_in(path)
    assert said == findings
    waiting = [position for page in content.values() for position, _, _ in page]
    assert waiting == there


def test_what_is_no_store_is_called_that(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such store: name a node"):
        salvaged(SYSTEM_FILES, tmp_path / "a.sqlite")
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(StoreError, match="it is not a store of a node, or nothing of it can be read"):
        salvaged(SYSTEM_FILES, tmp_path / "a.txt")
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db:
        db.execute("CREATE TABLE message (key)")
    with closing(salvaged(SYSTEM_FILES, tmp_path / "b.sqlite")) as found:
        assert any("its tables are not those of a store" in finding for finding in found.findings)
