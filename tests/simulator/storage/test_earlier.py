"""Stores of layout 4 are given their checksums; layout-4.tar.xz has two."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.storage.opening.earlier import EARLIER_LAYOUT
from mqproto.simulator.storage.segments import segment_path
from mqproto.simulator.storage.witnesses.witness import witness_path
from tests.simulator.series import NODE, series
from tests.simulator.storage.batches import in_order, messages_in

SAMPLE: Final = Path(__file__).with_name("layout-4.tar.xz")
"""What is left of the first LENGTH transactions of a series when its process was stopped, and when it was killed."""
SEED: Final = 5
LENGTH: Final = 16


def unpack(folder: Path) -> None:
    """The samples; `extractall` knows its filters from Python 3.11.4 on only."""
    with tarfile.open(SAMPLE) as samples:
        for member in samples:
            if (data := samples.extractfile(member)) is not None:
                file = folder / member.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data.read())


@pytest.fixture(params=["stopped", "killed"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    unpack(tmp_path)
    return tmp_path.joinpath(request.param, "a.sqlite")


@pytest.fixture(scope="module")
def model() -> Disk:
    model = Disk()
    for writes in series(SEED, LENGTH):
        model.commit(writes)
    return model


def test_a_store_of_layout_4_has_all_that_it_had_and_says_that_it_was_upgraded(
    path: Path, model: Disk
) -> None:
    first = [
        "a.sqlite had layout 4 and has got its checksums",
        "life 1 begins: from now on a.life tells whether a.sqlite was put back",
    ]
    for said in (first, []):
        with Store(path, NODE) as store:
            assert store.notices == said
            assert store.record_count == LENGTH
            assert messages_in(store) == messages_in(model)
            assert in_order(store.load()) == in_order(model.load())


def test_an_upgrade_that_was_broken_off_is_done_again(
    path: Path, model: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("mqproto.simulator.storage.opening.earlier.SCHEMA", "nonsense")
        with pytest.raises(StoreError):
            Store(path, NODE)
    assert witness_path(path).exists()
    with Store(path, NODE) as store:
        assert messages_in(store) == messages_in(model)


def test_a_segment_of_layout_4_that_was_about_to_be_made_is_no_damage(path: Path, model: Disk) -> None:
    """It has no header yet."""
    last = max([0, *(int(each.name[-6:]) for each in path.parent.glob("*-log-*"))])
    if last:
        segment_path(path, last + 1).write_bytes(bytes(10))
    with Store(path, NODE) as store:
        assert messages_in(store) == messages_in(model)


def test_tables_of_another_form_that_say_they_have_layout_4_are_damaged(path: Path) -> None:
    Store(path, NODE).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"PRAGMA user_version = {EARLIER_LAYOUT}")
    with pytest.raises(StoreError, match="table node is not that of layout 4"):
        Store(path, NODE)


@pytest.mark.parametrize("what", ["cut", "flipped", "missing"])
def test_damage_to_the_log_of_layout_4_is_told(tmp_path: Path, what: str) -> None:
    unpack(tmp_path)
    path = tmp_path / "killed" / "a.sqlite"
    log = min(path.parent.glob("*-log-*"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    if what == "missing":
        log.unlink()
    else:
        log.write_bytes(data if what == "flipped" else data[: len(data) // 2])
    files = shutil.copytree(path.parent, tmp_path / "before")
    with pytest.raises(StoreError, match=log.name):
        Store(path, NODE)
    assert {each.name for each in files.glob("*-log-*")} == {
        each.name for each in path.parent.glob("*-log-*")
    }
