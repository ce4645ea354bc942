"""Even if SQLite does not open the tables, all rows that exist are read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from mqproto.simulator.storage import Store
from mqproto.simulator.storage.care import repair, salvage, salvaged
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.turn.effects import POSITION_BITS, Writes
from tests.simulator.series import NODE
from tests.simulator.storage.batches import QUEUES, numbers, one

COUNT = 400
PAGE_BYTES = 8_192


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a stopped store whose tables have free pages."""
    path = tmp_path / "a.sqlite"
    with Store(path, NODE) as store:
        store.commit(Writes(queues=QUEUES, messages=[one(n, b"%d" % n * 300) for n in range(1, COUNT + 1)]))
    with Store(path, NODE) as store:
        store.commit(Writes(removals=[(one(100).key, one(199).key)]))
    return path


def found_in(path: Path) -> tuple[list[int], list[str]]:
    with closing(salvaged(SYSTEM_FILES, path)) as found:
        positions = [row.key & (1 << POSITION_BITS) - 1 for row in found.messages([])]
        assert found.node == NODE
        return positions, found.findings


WAITING = [*range(1, 100), *range(200, COUNT + 1)]


@pytest.mark.parametrize("zeros", [16, 100, 4_000, PAGE_BYTES])
def test_a_first_page_that_is_gone_costs_no_message_and_brings_none_back(path: Path, zeros: int) -> None:
    before = sorted(entry.name for entry in path.parent.iterdir())
    with path.open("r+b") as file:
        file.write(bytes(zeros))
    positions, findings = found_in(path)
    assert positions == WAITING
    assert findings[0] == "a.sqlite: file is not a database"
    assert sorted(entry.name for entry in path.parent.iterdir()) == before
    assert repair(SYSTEM_FILES, path, "today").quarantine is not None
    with Store(path, NODE) as store:
        assert numbers(store) == WAITING


@pytest.mark.long
def test_of_tables_that_were_cut_what_was_before_the_cut_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvage, "FAILURES", 300)
    data = path.read_bytes()
    counts = []
    for pages in range(len(data) // PAGE_BYTES - 1, 1, -9):
        for begins in (data[:100], bytes(100)):
            path.write_bytes(begins + data[100 : pages * PAGE_BYTES])
            positions, findings = found_in(path)
            assert findings
            assert set(positions) <= set(WAITING)
            assert positions == sorted(positions)
            counts.append(len(positions))
    assert counts[0] > len(WAITING) * 9 // 10
    assert len(set(counts)) > 3


def test_a_copy_that_cannot_be_made_is_no_reason_to_fail(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    path.write_bytes(bytes(100) + path.read_bytes()[100:])
    lost = "a.sqlite: where the log begins is lost, so messages of records 1 to 2 may be missing"
    assert found_in(path) == ([], ["a.sqlite: file is not a database", lost])
