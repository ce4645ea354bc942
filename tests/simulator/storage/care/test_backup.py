"""A backup is the store at one moment, can be opened as it is, and is complete or absent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.client import RolledBack, connect
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.care import BackUp, back_up, salvaged
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.topology import load
from mqproto.simulator.topology.places import store_path
from mqproto.turn.effects import LIFE, QueueKind, ReadBy, ReadPage, Writes
from mqproto.wire.glance import body_of
from tests.memory import memory_folder
from tests.simulator.running import DESTINATION, processes
from tests.simulator.series import LIMITS, NODE, series
from tests.simulator.storage.batches import in_order, numbers, one
from tests.simulator.storage.care.test_repair import change, with_messages
from tests.simulator.storage.test_hurt import content, files_in

LENGTH = 200
SEED = 6
BACKUPS = int(os.environ.get("MQPROTO_BACKUPS", "8"))
BATCH = 20
PATIENCE_S = 300.0
"""A time limit in seconds: a node that was killed may take long to start on a busy machine."""


@pytest.mark.long
def test_whoever_writes_stops_dies_and_starts_meanwhile_a_backup_is_what_was_committed_by_its_record() -> (
    None
):
    with memory_folder() as folder:
        path = Path(folder, "a.sqlite")
        command = [sys.executable, "-m", "tests.simulator.series", str(path), str(SEED), str(LENGTH), ""]
        made: list[BackUp] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE) as lives:
            assert lives.stdout is not None
            while lives.stdout.readline():
                made.append(back_up(SYSTEM_FILES, path, Path(folder, f"backup-{len(made)}")))
        assert lives.returncode == 0
        assert len({backup.record for backup in made}) > 1
        model, committed = Disk(), 0
        batches = series(SEED, LENGTH)
        for backup in made:
            while committed < backup.record:
                model.commit(next(batches))
                committed += 1
            with Store(backup.path, NODE, limits=LIMITS, is_adopted=True) as store:
                assert store.record_count == backup.record
                state, pages = content(store)
                assert state.counters.pop(LIFE, 1) == 1, "the store's own, beside the series"
                assert (state, pages) == (in_order(model.load()), content(model)[1])


def bodies_in(store: Store, kind: QueueKind) -> list[int]:
    """Return the numbers in the bodies of messages that wait in queues of one kind, in the order in which they were
    sent.

    After a kill, a node has two sequences to one queue for a while.
    """
    queues = [queue.queue for queue in store.load().queues if queue.kind is kind]
    pages = [store.read(ReadPage(queue, 0, 100_000, 2**30, ReadBy.WINDOW)) for queue in queues]
    for page in pages:
        numbers = [int(body_of(packet)) for _, packet, _ in page]
        assert numbers == sorted(numbers)
    return sorted(int(body_of(packet)) for page in pages for _, packet, _ in page)


async def test_of_nodes_that_run_and_are_killed_each_backup_has_what_was_answered_before(
    tmp_path: Path,
) -> None:
    """Messages are numbered, and leave both nodes in order, so each store has the messages of one range of numbers."""
    topology = load("three-node").with_free_ports()
    accepted = consumed = 0

    async def produce() -> None:
        nonlocal accepted
        async with connect(topology, "sender", tmp_path, patience_s=PATIENCE_S) as client:
            while True:
                numbers = range(accepted, accepted + BATCH)
                drafts = [Draft(body=b"%d" % number, transactional=True) for number in numbers]
                await client.send_many(DESTINATION, drafts)
                accepted += BATCH

    async def consume() -> None:
        nonlocal consumed
        async with connect(topology, "destination", tmp_path, patience_s=PATIENCE_S) as client:
            while True:
                with suppress(RolledBack):
                    async with client.transaction("orders", limit=2 * BATCH) as messages:
                        assert [int(message.body) for message in messages] == [
                            *range(consumed, consumed + len(messages))
                        ]
                    consumed += len(messages)

    async def start(name: str) -> None:
        await nodes[name].start()
        runs[name].set()

    async def back_up_of(name: str, number: int) -> BackUp:
        store = store_path(tmp_path, name)
        return await trio.to_thread.run_sync(back_up, SYSTEM_FILES, store, tmp_path / f"backup-{number}")

    async with processes(topology, tmp_path) as nodes, trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        nursery.start_soon(consume)
        newest = {"sender": 0, "destination": 0}
        runs = {name: trio.Event() for name in newest}
        for event in runs.values():
            event.set()
        full = 0
        for number in range(BACKUPS):
            name = ("sender", "destination")[number % 2]
            if number % 6 in (4, 5):
                await runs[name].wait()
                runs[name] = trio.Event()
                await nodes[name].end(signal.SIGKILL)
                nursery.start_soon(start, name)
                if number <= BACKUPS // 2:  # Else it is dead, or starts, while it is copied.
                    await runs[name].wait()
            accepted_before, consumed_before = accepted, consumed
            made = await back_up_of(name, number)
            with closing(salvaged(SYSTEM_FILES, made.path)) as found:
                assert (found.findings, found.notices, found.record) == ([], [], made.record)
            assert made.record >= newest[name]
            newest[name] = made.record
            with Store(made.path, topology.node_named(name).guid, is_adopted=True) as store:
                if name == "sender":
                    waiting = bodies_in(store, QueueKind.SEQUENCE)
                    end = waiting[-1] + 1 if waiting else accepted_before
                    assert accepted_before <= end <= accepted + BATCH
                    assert waiting == [*range(end - len(waiting), end)]
                    full += bool(waiting)
                else:
                    waiting = bodies_in(store, QueueKind.LOCAL)
                    first = waiting[0] if waiting else consumed_before
                    assert consumed_before <= first <= consumed + 2 * BATCH
                    assert waiting == [*range(first, first + len(waiting))]
                    assert first + len(waiting) <= accepted + BATCH
        assert min(accepted, consumed, 100 * full) > BACKUPS
        nursery.cancel_scope.cancel()


def test_a_backup_of_a_store_that_was_stopped_or_killed_is_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "stopped").mkdir()
    (tmp_path / "killed").mkdir()
    path = tmp_path / "stopped" / "a.sqlite"
    with_messages(path, 9)
    assert back_up(SYSTEM_FILES, path, tmp_path / "first").counts == {"local orders": 9}
    store = Store(path, NODE)
    store.commit(Writes(messages=[one(10)], removals=[(one(2).key, one(4).key)]))
    killed = files_in(path.parent)
    store.close()
    for name, data in killed.items():
        (tmp_path / "killed" / name).write_bytes(data)
    made = back_up(SYSTEM_FILES, tmp_path / "killed" / "a.sqlite", tmp_path / "copy.sqlite")
    assert made == BackUp(tmp_path / "copy.sqlite", 2, {"local orders": 7})
    assert files_in(tmp_path / "killed") == killed
    with Store(made.path, NODE, is_adopted=True) as copy:
        assert (numbers(copy), copy.record_count) == ([1, 5, 6, 7, 8, 9, 10], 2)
        copy.commit(Writes(messages=[one(11)]))


def test_nothing_is_overwritten_and_of_a_hurt_store_there_is_no_backup(tmp_path: Path) -> None:
    path, target = tmp_path / "a.sqlite", tmp_path / "backup"
    with_messages(path, 9)
    back_up(SYSTEM_FILES, path, target)
    before = files_in(target)
    assert sorted(before) == ["a.sqlite", "a.sqlite-witness"]
    assert {file.stat().st_mode & 0o777 for file in (target, *target.iterdir())} == {0o600, 0o700}
    with pytest.raises(StoreError, match=r"a\.sqlite: it is there already: name another file or folder"):
        back_up(SYSTEM_FILES, path, target)
    (target / "a.sqlite").unlink()
    with pytest.raises(StoreError, match=r"a\.sqlite-witness: it is there already"):
        back_up(SYSTEM_FILES, path, target)
    change(path, "DELETE FROM message WHERE key & 255 = 5")
    change(path, "UPDATE message SET packet = x'00' WHERE key & 255 = 3")
    refusal = r"it is hurt, so there is no backup of it \([^()]* has 8 messages, and had 9 and 2 more\): "
    with pytest.raises(StoreError, match=refusal):
        back_up(SYSTEM_FILES, path, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.long
def test_a_backup_that_the_disk_has_no_room_for_is_not_there_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with_messages(path, 40)
    # Without -B it would leave bytecode of which the limit has cut the end, and others could import nothing any more.
    code = (
        "import resource, sys; from mqproto.simulator.cli.cli import run_command;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])));"
        "sys.exit(run_command(['store', 'backup', sys.argv[2], sys.argv[3]]))"
    )
    size_bytes = path.stat().st_size
    for limit_bytes in (0, 8_192, size_bytes // 2, size_bytes - 1):
        command = [sys.executable, "-B", "-c", code, str(limit_bytes), str(path), str(tmp_path / "backup")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done
        [line] = done.stderr.splitlines()
        assert line.startswith(f"mqproto: {tmp_path}/")
        assert "hurt" not in line
        assert [*tmp_path.glob("backup/*"), *tmp_path.glob("backup/.*")] == []


def test_the_command_says_what_it_copied_and_of_which_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.sqlite"
    with_messages(path, 1)
    assert run_command(["store", "backup", str(path), str(tmp_path / "backup")]) == 0
    copy = tmp_path / "backup" / "a.sqlite"
    said = capsys.readouterr().out
    assert said == f"{copy}: 1 message, as of record 1; a.sqlite-witness beside it belongs to it\n"
    assert run_command(["store", "backup", str(path), str(tmp_path / "b.sqlite"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["backup"], told["record"]) == (str(tmp_path / "b.sqlite"), 1)
    assert run_command(["store", "check", str(copy)]) == 0
