"""A repair keeps the undamaged data of a store, names the rest, and sets the old files aside unchanged."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.care import repair, salvaged
from mqproto.simulator.storage.checksums import row_checksum
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.storage.segments import HEADER, Header, segment_path
from mqproto.turn.effects import (
    POSITION_BITS,
    IncomingRow,
    OutgoingRow,
    QueueKind,
    QueueRow,
    ReadSequences,
    Writes,
    message_key,
)
from tests.memory import memory_folder
from tests.simulator.series import LIMITS, NODE
from tests.simulator.storage.batches import HELD, QUEUES, SEQUENCE, messages_in, numbers, one
from tests.simulator.storage.test_hurt import Left, altered, files_in, found_in, hurt, left_by

TRIALS: Final = int(os.environ.get("MQPROTO_HURTS", "60"))


@pytest.fixture(scope="module")
def all_left() -> Iterator[list[Left]]:
    with memory_folder() as folder:
        yield [left_by(Path(folder, f"{kind}-1"), 1, kind) for kind in ("stopped", "killed")]


def with_messages(path: Path, count: int) -> None:
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(n, bytes([n]) * 300) for n in range(1, count + 1)]))


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.mark.parametrize("place", range(4))
def test_a_hurt_message_is_named_and_the_others_stay(tmp_path: Path, place: int) -> None:
    path = tmp_path / "a.sqlite"
    with_messages(path, 40)
    key = f"key = (SELECT key FROM message LIMIT 1 OFFSET {10 * place})"
    change(path, f"UPDATE message SET packet = CAST('!' || substr(packet, 2) AS BLOB) WHERE {key}")
    before = files_in(tmp_path)
    found = repair(SYSTEM_FILES, path, "today")
    assert any(f"the message at {10 * place + 1} with MessageID" in finding for finding in found.findings)
    with Store(path, NODE) as store:
        assert numbers(store) == [n for n in range(1, 41) if n != 10 * place + 1]
        store.commit(Writes(messages=[one(50)]))
    assert found.quarantine is not None
    aside = files_in(found.quarantine)
    assert json.dumps(found.findings) == json.dumps(aside.pop("findings.txt").decode().splitlines())
    assert before.keys() - aside.keys() == {"a.life"}, "what is outside the store stays where it is"
    assert repair(SYSTEM_FILES, path, "tomorrow").quarantine is None


@pytest.mark.long
def test_of_any_store_that_was_hurt_repair_makes_one_that_opens_and_has_nothing_altered(
    all_left: list[Left],
) -> None:
    refusals: list[str] = []
    for number in range(TRIALS):
        dice = chance(number, "repair")
        left = dice.choice(all_left)
        what, files = hurt(dice, left)
        with memory_folder() as folder:
            path = Path(folder, "a.sqlite")
            for name, data in files.items():
                Path(folder, name).write_bytes(data)
            if not path.exists():
                continue
            try:
                found = repair(SYSTEM_FILES, path, "today")
            except StoreError as error:
                refusals.append(str(error))
                continue
            with Store(path, NODE, limits=LIMITS) as store:
                store.load()
                pages = messages_in(store)
            if not found.findings:
                assert not altered(found_in(files)[0], left.content), what
            whole = {packet for page in left.content[1] for _, packet, _ in page}
            packets = {packet for page in pages for _, packet, _ in page}
            assert packets <= whole or found.findings, what
            # What was removed is in pages that are free, and comes back from none of them.
            assert packets <= whole or not what.endswith("of a.sqlite"), what
    odd = [
        refusal for refusal in refusals if "start its node once" not in refusal and "put back" not in refusal
    ]
    assert odd == []


def test_check_says_of_a_whole_store_that_it_is_and_changes_nothing(
    all_left: list[Left], tmp_path: Path
) -> None:
    for left in all_left:
        for name, data in left.files.items():
            (tmp_path / name).write_bytes(data)
        with closing(salvaged(SYSTEM_FILES, tmp_path / "a.sqlite")) as found:
            assert found.findings == []
        assert {name: (tmp_path / name).read_bytes() for name in left.files} == left.files
        for name in left.files:
            (tmp_path / name).unlink()


def test_the_command_checks_and_repairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sqlite"
    with_messages(path, 5)
    assert run_command(["store", "check", str(path)]) == 0
    assert "local orders: 5 messages are whole\n" in (said := capsys.readouterr().out)
    assert said.endswith(f"{path}: whole\n")
    change(path, "DELETE FROM message WHERE key & 255 = 3")
    assert run_command(["store", "check", str(path)]) == 1
    assert "local orders: 1 of 5 messages are not whole or not there" in capsys.readouterr().out
    with pytest.raises(StoreError, match="queue 1 has 4 messages, and had 5"):
        Store(path, NODE)
    assert run_command(["store", "repair", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["messages"]["local orders"] == 4
    assert Path(told["quarantine"]).is_dir()
    assert run_command(["store", "check", str(path)]) == 0
    with Store(path, NODE) as store:
        assert numbers(store) == [1, 2, 4, 5]
        capsys.readouterr()
        assert run_command(["store", "check", str(path)]) == 0, "a node that runs is read as well"
        assert "its node runs: this is the store after record 1;" in capsys.readouterr().out
        assert run_command(["store", "repair", str(path)]) != 0


@pytest.mark.parametrize("typed", ["check FILE", "export FILE", "repair FILE", "backup FILE FILE-kept"])
def test_a_file_is_read_whatever_topology_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    path = tmp_path / "a.sqlite"
    with_messages(path, 5)
    monkeypatch.setenv("MQPROTO_TOPOLOGY", "gone.toml")
    assert run_command(["store", *typed.replace("FILE", str(path)).split()]) == 0
    assert "gone.toml" not in capsys.readouterr().err
    assert run_command(["store", "check", "sender"]) == 2
    assert "gone.toml" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["check", "repair", "adopt --moved"])
def test_a_store_of_another_topology_and_a_journal_are_told_from_a_name_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    def complaint(store: str) -> str:
        assert run_command(["--directory", str(tmp_path), "store", *typed.split(), store]) == 2
        [line] = capsys.readouterr().err.splitlines()
        return line

    with_messages(tmp_path / "shop.sqlite", 5)
    (tmp_path / "shop-a.journal").write_bytes(bytes(68) + b"mqpj")
    assert f": name its file, {tmp_path}/shop.sqlite, or its topology" in complaint("shop")
    assert complaint("shopp").endswith("sender, intermediate, destination")
    assert "is a program's journal, and no store" in complaint(f"{tmp_path}/shop-a.journal")


def test_of_tables_whose_own_statements_are_no_text_any_more_the_log_is_kept(tmp_path: Path) -> None:
    path = killed_after(tmp_path, Writes(queues=QUEUES, messages=[one(1)]))
    for name in ("a.sqlite", "a.sqlite-wal"):
        (tmp_path / name).unlink(missing_ok=True)
    with Store(path.with_name("b.sqlite"), NODE):
        pass
    data = path.with_name("b.sqlite").read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE counter (name", b"CREATE TABLE counter (n\xe9me"))
    with pytest.raises(StoreError, match="store repair"):
        Store(path, NODE)
    assert repair(SYSTEM_FILES, path, "today").findings
    with Store(path, NODE) as store:
        assert numbers(store) == [1]


def damage_record(segment: Path, number: int) -> None:
    """Flip a bit in the header of a record."""
    data = bytearray(segment.read_bytes())
    header = Header.decoded(bytes(data[: HEADER.size]))
    assert header is not None
    at = HEADER.size
    for _ in range(number - 1):
        at = data.index(header.salt, at + 1)
    data[at + 9] ^= 1
    segment.write_bytes(bytes(data))


def killed_after(folder: Path, *transactions: Writes) -> Path:
    """Return a store whose node was killed after these transactions."""
    with memory_folder() as first:
        path = Path(first, "a.sqlite")
        with Store(path, NODE) as store:
            for writes in transactions:
                store.commit(writes)
            for name, data in files_in(Path(first)).items():
                (folder / name).write_bytes(data)
    return folder / "a.sqlite"


def test_messages_whose_queue_is_hurt_are_counted_and_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with_messages(path, 3)
    queue = one(1).key >> POSITION_BITS
    change(path, f"UPDATE queue SET priority = priority + 1 WHERE queue = {queue}")
    found = repair(SYSTEM_FILES, path, "today")
    assert f"queue {queue} has 3 messages, which are set aside, for its own row is lost" in found.findings
    with Store(path, NODE) as store:
        assert queue not in {row.queue for row in store.load().queues}


@pytest.mark.parametrize("queues", [[], [QueueRow(HELD, QueueKind.LOCAL, "of another store")]])
def test_sequences_whose_queues_are_lost_are_set_aside_with_them(
    tmp_path: Path, queues: list[QueueRow]
) -> None:
    row = IncomingRow(NODE, HELD, 1, 2, 3, 4, 5, "there")
    path = killed_after(
        tmp_path,
        Writes(queues=QUEUES),
        Writes(queues=queues, messages=[one(1)], incoming={(NODE, HELD): row}),
    )
    damage_record(segment_path(path, 1), 1)
    found = repair(SYSTEM_FILES, path, "today")
    assert "record 2: 1 sequences are set aside, for their queue is lost" in found.findings
    with Store(path, NODE) as store:
        assert store.load().incoming == []


def test_what_stays_of_strangers_sequences_that_gave_up_their_places_outlives_a_repair(
    tmp_path: Path,
) -> None:
    """The sequences stay in tables and log, although no queue has their numbers; forgotten ones stay forgotten."""
    rows = [IncomingRow(NODE, -number, 1, 2, number, 0, 5, "10.0.0.9") for number in (1, 2, 3)]
    writes = [Writes(incoming={(NODE, row.queue): row}) for row in rows]
    path = killed_after(tmp_path, Writes(queues=QUEUES), *writes, Writes(incoming={(NODE, -2): None}))
    repair(SYSTEM_FILES, path, "today")
    with Store(path, NODE) as store:
        assert sorted(store.sequences(ReadSequences(NODE, -9, -1))) == [rows[2], rows[0]]
        assert store.load().incoming == []


def test_of_what_was_acknowledged_nothing_is_left_though_the_record_that_removed_it_is_lost(
    tmp_path: Path,
) -> None:
    def acknowledged(number: int) -> OutgoingRow:
        return OutgoingRow(SEQUENCE, NODE, 1, 2, 0, 10, number, 9, 9)

    path = killed_after(
        tmp_path,
        Writes(
            queues=QUEUES,
            messages=[one(number, queue=SEQUENCE) for number in range(1, 10)],
            outgoing={SEQUENCE: acknowledged(0)},
        ),
        Writes(
            removals=[(message_key(SEQUENCE, 1), message_key(SEQUENCE, 3))],
            outgoing={SEQUENCE: acknowledged(3)},
        ),
        Writes(
            removals=[(message_key(SEQUENCE, 4), message_key(SEQUENCE, 5))],
            outgoing={SEQUENCE: acknowledged(5)},
        ),
    )
    damage_record(segment_path(path, 1), 2)
    found = repair(SYSTEM_FILES, path, "today")
    assert any(finding.startswith("sequence invoices: 3 messages are left out") for finding in found.findings)
    with Store(path, NODE) as store:
        assert numbers(store, SEQUENCE) == [6, 7, 8, 9]


def test_a_sequence_that_is_lost_leaves_no_queue_behind_that_a_node_cannot_start_with(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    row = OutgoingRow(SEQUENCE, NODE, 1, 2, 0, 3, 0, 2, 2)
    with Store(path, NODE) as store:
        sent = [one(number, queue=SEQUENCE) for number in (1, 2)]
        store.commit(Writes(queues=QUEUES, messages=[*sent, one(1)], outgoing={SEQUENCE: row}))
    change(path, "UPDATE outgoing_sequence SET last_ack = 1")
    findings = repair(SYSTEM_FILES, path, "today").findings
    assert "sequence invoices: its 2 messages are set aside, for its sequence is lost" in findings
    with Store(path, NODE) as store:
        state = store.load()
        assert state.outgoing == []
        assert [queue.name for queue in state.queues if queue.kind is QueueKind.SEQUENCE] == []
        assert numbers(store) == [1]


def test_a_sequence_that_is_of_an_earlier_moment_than_its_messages_goes_on_behind_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.sqlite"
    row = OutgoingRow(SEQUENCE, NODE, 1, 2, 0, 7, 0, 6, 6)
    with Store(path, NODE) as store:
        sent = [one(number, queue=SEQUENCE) for number in range(1, 7)]
        store.commit(Writes(queues=QUEUES, messages=sent, outgoing={SEQUENCE: row}))
    earlier = row._replace(next_number=4)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "UPDATE outgoing_sequence SET next_number = ?, checksum = ?",
            (earlier.next_number, row_checksum(earlier)),
        )
        db.execute("UPDATE log SET is_begun = 1")  # What lacks here is in a record that is lost.
    findings = repair(SYSTEM_FILES, path, "today").findings
    told = "its sequence is of an earlier moment, and goes on behind its last message, number 6"
    assert f"sequence invoices: {told}" in findings
    with Store(path, NODE) as store:
        assert [row.next_number for row in store.load().outgoing] == [7]
        assert numbers(store, SEQUENCE) == [1, 2, 3, 4, 5, 6]


def test_there_must_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such store"):
        salvaged(SYSTEM_FILES, tmp_path / "a.sqlite")
