"""Damaged stores with real traffic: all consequences for messages are reported.

The long form is `make hurt`. This file has one trial for some kinds of damage. It also has some trials that only kill
nodes, one of them with node processes.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.storage import Store
from mqproto.turn.effects import MessageRow, QueueKind, QueueRow, Writes, message_key
from mqproto.wire import encode_packet
from tests.conformance import ROOT
from tests.conversations import a_message
from tests.simulator.hurt.__main__ import main
from tests.simulator.hurt.campaign import Asked, table, told, trials
from tests.simulator.hurt.disk import (
    DEATH,
    FLUSHES,
    TROUBLES,
    VARIABLE,
    WRITES,
    FailingDisk,
    Trouble,
    compiled,
    compiler,
)
from tests.simulator.hurt.hurts import COPIED, COPIED_AND_GONE, ELSEWHERE, FILE_HURTS, Scene
from tests.simulator.hurt.ledger import Account, Ledger, read
from tests.simulator.hurt.processes import NOTHING, trace_store
from tests.simulator.hurt.trial import KILLS, Result
from tests.simulator.hurt.verdict import FAILURES, Outcome
from tests.simulator.series import LIMITS, NODE, series

SEED: Final = 17
HURTS: Final = (
    "bit in the tables: leaf of a table",
    "bit in a segment: last bytes",
    "block of garbage: tables",
    "missing: witness",
    "restored: removed, then copied",
    "moved away",
    COPIED,
    "disk full",
    "EIO at a flush",
)
KILL_COUNT: Final = 2

needs_compiler = pytest.mark.skipif(
    compiler() is None, reason="no C compiler is installed (cc, gcc or clang)"
)


@pytest.mark.long
@needs_compiler
def test_of_stores_that_are_hurt_no_message_is_altered_lost_or_doubled_without_a_word() -> None:
    asked = [Asked(number, name, is_real=False) for number, name in enumerate(HURTS)]
    asked += [Asked(number, KILLS, is_real=number == 0) for number in range(KILL_COUNT)]
    results = list(trials(asked, SEED, 1))
    print(table(results))
    assert len(results) == len(asked)
    assert [told(result, SEED) for result in results if result.outcome in FAILURES] == []
    outcomes = Counter(result.outcome for result in results)
    assert outcomes[Outcome.AT_START] > 2
    assert outcomes[Outcome.HARMLESS] >= KILL_COUNT


# The harness itself


def test_a_hurt_that_is_not_known_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hurt", "struck by lightning"]) == 2
    assert "no hurt begins with 'struck by lightning': bit in the tables" in capsys.readouterr().err


def test_what_fails_is_told_with_how_to_repeat_it() -> None:
    result = Result(7, "moved away", "the store", Outcome.SILENT, ["a is lost"], [], [], "", is_real=False)
    assert told(result, 5).endswith('repeat with: make hurt ARGS="--seed 5 --trial 7"')
    assert told(result._replace(hurt=KILLS), 5).endswith('ARGS="--seed 5 --kill 7"')
    alarm = result._replace(outcome=Outcome.ALARM, said=["sender: life 2 begins"])
    assert "said by sender: life 2 begins" in told(alarm, 5)
    assert "silently altered, lost or doubled in 1; false alarms after 0 kills" in table([result])


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def three_stores(folder: Path, length: int) -> None:
    """Make the stores of two nodes that are killed, and of one that is stopped."""
    folder.mkdir()
    left: dict[str, bytes] = {}
    for seed, name in enumerate("abc"):
        with Store(folder / f"{name}.sqlite", NODE, limits=LIMITS) as store:
            for writes in series(seed, length):
                store.commit(writes)
            if name != "c":
                left |= files_in(folder)
        (folder / f"{name}.life").write_bytes(b"%d lives of %s" % (length, name.encode()))
        (folder / f"{name}.sqlite-reserve").write_bytes(bytes(2_000))
    for file, data in left.items():
        (folder / file).write_bytes(data)


@pytest.fixture(scope="module")
def stores_left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two folders of three stores each; each test gets its own copy of it."""
    folder = tmp_path_factory.mktemp("left")
    three_stores(folder / "stores", 30)
    three_stores(folder / "earlier", 12)
    return folder


@pytest.mark.parametrize("name", FILE_HURTS)
def test_each_hurt_of_files_changes_the_files_of_one_store_or_of_two_that_it_swaps(
    tmp_path: Path, stores_left: Path, name: str
) -> None:
    folder, earlier = tmp_path / "stores", tmp_path / "earlier"
    shutil.copytree(stores_left, tmp_path, dirs_exist_ok=True)
    before, inodes = files_in(folder), {path.name: path.stat().st_ino for path in folder.iterdir()}
    scene = Scene(folder, earlier, tmp_path / "mislaid", ("a", "b", "c"), chance(3, name))
    done = next(filter(None, (FILE_HURTS[name].act(scene) for _ in range(20))), None)
    after = files_in(folder)
    if name in (COPIED, COPIED_AND_GONE):
        copies = files_in(folder / ELSEWHERE)
        assert copies.items() <= after.items() == before.items()
        assert len({file.partition(".")[0] for file in copies}) == 1
        return
    changed = {file for file in before.keys() | after.keys() if before.get(file) != after.get(file)}
    assert (done is None) == (not changed) == (name == "bit in the tables: interior index")
    stores = {file.partition(".")[0] for file in changed}
    assert len(stores) == (0 if done is None else 2 if "between" in name else 1)
    if not name.startswith("restored"):
        kept = inodes.keys() & after.keys()
        assert {file: (folder / file).stat().st_ino for file in kept} == {file: inodes[file] for file in kept}


def failing(tmp_path: Path, trouble: Trouble, passing: int, program: str) -> tuple[int, str, tuple[int, int]]:
    """Run a program whose writes fail.

    Return its status, its output, and the numbers of counted calls and of failed calls.
    """
    library, orders = compiled(tmp_path), tmp_path / "orders"
    disk = FailingDisk(orders)
    disk.arm(tmp_path / "store.", trouble, passing)
    environment = {**os.environ, "LD_PRELOAD": str(library), VARIABLE: str(orders)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store.sqlite")],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, disk.disarm()


WRITE_FIVE: Final = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for number in range(5):
    try:
        os.pwrite(file, b"x", number)
        os.fdatasync(file)
        print("ok", end=" ")
    except OSError as error:
        print(error.errno, end=" ")
"""


@needs_compiler
@pytest.mark.parametrize(
    ("trouble", "said", "failures"),
    [
        (Trouble(WRITES, errno.EIO, lasting=False), "ok ok 5 ok ok ", 1),
        (Trouble(WRITES, errno.ENOSPC, lasting=True), "ok ok 28 28 28 ", 3),
        (Trouble(FLUSHES, errno.EIO, lasting=True), "ok ok 5 5 5 ", 3),
        (DEATH, "", 1),
    ],
)
def test_a_disk_fails_from_the_call_on_that_was_asked_for(
    tmp_path: Path, trouble: Trouble, said: str, failures: int
) -> None:
    status, output, (_, failed) = failing(tmp_path, trouble, 2, WRITE_FIVE)
    assert (output, failed) == (said, failures)
    assert status == (0 if said else -9)


@needs_compiler
def test_a_kill_may_cut_a_write_short_at_the_end_of_a_page(tmp_path: Path) -> None:
    program = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
os.pwritev(file, [b"x" * 500, b"y" * 3 * mmap.PAGESIZE], 100)
"""
    whole, path = bytes(100) + b"x" * 500 + b"y" * 3 * mmap.PAGESIZE, tmp_path / "store.sqlite"
    path.write_bytes(bytes(len(whole)))
    status, _, _ = failing(tmp_path, DEATH, 0, program)
    assert (status, path.read_bytes()) == (-9, whole[: mmap.PAGESIZE].ljust(len(whole), b"\0"))


@needs_compiler
def test_a_disk_that_fails_reaches_what_sqlite_writes(tmp_path: Path) -> None:
    program = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL").fetchall()
db.execute("CREATE TABLE t (x)")
"""
    _, said, (_, failures) = failing(tmp_path, TROUBLES["disk full"], 3, program)
    assert "sqlite3.OperationalError" in said
    assert failures > 0


def test_a_message_with_the_key_of_one_that_is_gone_came_after_it(tmp_path: Path) -> None:
    path, ledger, seen = tmp_path / "a.sqlite", Ledger(tmp_path / "ledger"), NOTHING
    key = message_key(1, 1)
    notes = [QueueRow(1, QueueKind.LOCAL, "notes")]
    for message_id in (7, 8):
        packet = encode_packet(a_message(1, message_id=message_id, label=f"note-{message_id}"))
        row = MessageRow(key, packet, message_id, final_ack=False)
        for writes in Writes(queues=notes, removals=[(key, key)]), Writes(messages=[row]):
            with Store(path, NODE, limits=LIMITS) as store:
                store.commit(writes)
        seen = trace_store(ledger, "a", path, seen)
    ledger.close()
    traces = dict(Account.of(read(tmp_path / "ledger")).traces["a"])
    assert traces["note-8"].first > traces["note-7"].last


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("sending", "sender", "order-1")
    ledger.write("sent", "sender", "order-1")
    ledger.phase = 1
    ledger.write("taken", "orders", "order-1", "abc")
    ledger.close()
    account = Account.of(read(tmp_path / "ledger"))
    assert (account.accepted, account.uncertain) == ({"order-1": 0}, set())
    assert account.received == {"order-1": [("orders", "abc", 1)]}
