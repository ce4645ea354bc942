"""The life with which a store continues, for every combination of a store and a life file."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.care import adopt_moved, repair, set_aside_copied
from mqproto.simulator.storage.files import SYSTEM_FILES, FileIdentity, SystemFiles
from mqproto.simulator.storage.witnesses.identity import APART, CIRCLE, FREE, first_message_id
from mqproto.simulator.storage.witnesses.life import life_path
from mqproto.turn.effects import LIFE, MESSAGE_ID_CEILING, SEQUENCE_ORDINAL_CEILING, NewLife, Writes
from tests.simulator.storage.batches import NEIGHBOUR, NODE, QUEUES, numbers, one

CEILING = 5_000_000_000
"""The limit of the MessageIDs that the store has given out; they have wrapped around once."""


def begin(store: Store) -> NewLife | None:
    """Do the first actions of a queue manager; return the life that begins, if one does."""
    life = store.life
    if life is not None:
        assert store.load().life == life
        counters = {LIFE: life.number, MESSAGE_ID_CEILING: life.first_message_id, SEQUENCE_ORDINAL_CEILING: 0}
        store.commit(Writes(queues=QUEUES, counters=counters))
        assert store.life is None
        assert store.load().life is None
    return life


def lived(path: Path, *messages: int, ceiling: int = CEILING) -> NewLife | None:
    """Start a store, add some messages, each in a separate transaction, and stop it; return the life that began, if one
    did.
    """
    with Store(path, NODE) as store:
        life = begin(store)
        for number in messages:
            store.commit(Writes(messages=[one(number)], counters={MESSAGE_ID_CEILING: ceiling}))
        store.commit(Writes(counters={SEQUENCE_ORDINAL_CEILING: 77}))
        return life


def copied(path: Path, name: str = "backup") -> Path:
    """Copy a store, without its life file, into a folder next to its own; return the copy's folder."""
    (folder := path.parent.parent / name).mkdir()
    for each in path.parent.glob(f"{path.name}*"):
        shutil.copy(each, folder)
    return folder


def put_back(path: Path, folder: Path, *, in_place: bool = False) -> None:
    """Replace the files of a store with those of a copy, or write over them, as `cp` does."""
    for each in path.parent.glob(f"{path.name}*"):
        if not (in_place and each == path):
            each.unlink()
    for each in folder.iterdir():
        shutil.copy(each, path.parent)


def distance(message_id: int, ceiling: int = CEILING) -> int:
    """Return the distance of a MessageID from the last known one, in the shorter direction around the circle."""
    apart = (message_id - ceiling) % CIRCLE
    return min(apart, CIRCLE - apart)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "a.sqlite"


@pytest.mark.spec("[MS-MQQB] 3.1.1.3")
def test_an_empty_store_begins_its_first_life_at_a_random_message_id(path: Path) -> None:
    with Store(path, NODE) as store:
        assert store.notices == []
        life = store.life
    assert life is not None
    assert (life.number, life.first_sequence_ordinal, life.is_restored) == (1, 0, False)
    assert life.first_message_id != 1
    with Store(path, NODE) as store:
        again = begin(store)
    assert again is not None
    assert again.number == 1, "no life has begun before a transaction says so"
    assert again.first_message_id != life.first_message_id


def test_a_life_goes_on(path: Path) -> None:
    assert lived(path, 1, 2) is not None
    for number in (3, 4):
        with Store(path, NODE) as store:
            assert store.notices == []
            assert begin(store) is None
            store.commit(Writes(messages=[one(number)]))


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.3")
def test_a_store_that_was_moved_away_begins_another_life_far_from_the_last_message_id(
    path: Path, tmp_path: Path
) -> None:
    lived(path, 1, 2, 3)
    for each in path.parent.glob("a.sqlite*"):
        each.rename(tmp_path / each.name)
    for _ in range(2):
        with Store(path, NODE) as store:
            [notice] = store.notices
            life = store.life
        assert notice.startswith("life 2 begins: a.sqlite, up to record 5 of life 1, of 20")
        assert notice.endswith("was moved away or lost with all that waited in it")
        assert life is not None
        assert (life.number, life.first_sequence_ordinal, life.is_restored) == (2, 77, False)
        assert distance(life.first_message_id) >= APART
    assert lived(path) is not None
    assert lived(path) is None


@pytest.mark.parametrize("in_place", [False, True])
def test_a_store_that_was_put_back_begins_another_life_and_says_from_when(
    path: Path, *, in_place: bool
) -> None:
    lived(path, 1, 2, ceiling=100)
    backup = copied(path)
    lived(path, 3, 4, 5)
    put_back(path, backup, in_place=in_place)
    for _ in range(2):
        with Store(path, NODE) as store:
            assert numbers(store) == [1, 2]
            [notice] = store.notices
            life = store.life
        assert notice.startswith(
            "life 2 begins: a.sqlite was put back as it was at record 4 of life 1; what came after that, up to record 8"
            " of life 1, of 20"
        )
        assert life is not None
        assert life.is_restored
        assert distance(life.first_message_id) >= APART, "of the MessageIDs that the lost transactions gave"
    assert lived(path, 6) is not None
    assert lived(path, 7) is None


def test_a_store_of_an_earlier_life_was_put_back_however_many_records_it_has(path: Path) -> None:
    lived(path, 1, 2, 3, 4, 5, 6, 7)
    backup = copied(path)
    for each in path.parent.glob("a.sqlite*"):
        each.unlink()
    lived(path, 8)
    put_back(path, backup)
    life = lived(path, 9)
    assert life is not None
    assert (life.number, life.is_restored) == (3, True)


def test_another_file_with_the_same_records_was_put_back(path: Path) -> None:
    """The file may have been in use elsewhere for a while."""
    lived(path, 1, 2)
    put_back(path, copied(path))
    with Store(path, NODE) as store:
        assert "is another file than the one of record 4 of life 1" in store.notices[0]
        assert begin(store) is not None


def test_a_store_that_is_repaired_begins_another_life(path: Path) -> None:
    """Data that the repair lost may have used MessageIDs."""
    lived(path, 1, 2)
    life_path(path).with_name("a.sqlite-witness").unlink()
    assert repair(SYSTEM_FILES, path, "today").findings
    with Store(path, NODE) as store:
        assert "put back, or repaired" in store.notices[0]
        life = begin(store)
        assert numbers(store) == [1, 2]
    assert life is not None
    assert life.is_restored


def test_a_store_that_is_repaired_without_the_file_of_its_life_is_no_copy(path: Path) -> None:
    lived(path, 1, 2)
    life_path(path).unlink()
    path.with_name("a.sqlite-witness").unlink()
    assert repair(SYSTEM_FILES, path, "today").findings
    assert lived(path, 3) is not None


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_without_the_file_of_its_life_nothing_tells_so_another_begins(path: Path, what: str) -> None:
    lived(path, 1, 2)
    if what == "missing":
        life_path(path).unlink()
    else:
        life_path(path).write_bytes(bytes(1024))
    for _ in range(2):
        with Store(path, NODE) as store:
            assert store.notices == [
                f"life 2 begins: a.life is {what}, so nothing tells whether a.sqlite, at record 4, was put back"
                " as it was earlier"
            ]
            life = store.life
        assert life is not None
        assert life.is_restored
        assert distance(life.first_message_id) >= APART
    assert lived(path) is not None
    assert lived(path) is None


def test_one_sector_of_the_file_is_enough(path: Path) -> None:
    lived(path, 1, 2)
    for start in (0, 512):
        data = bytearray(life_path(path).read_bytes())
        data[start : start + 512] = bytes(512)
        life_path(path).write_bytes(data)
        assert lived(path, start + 3) is None


# Copies


@pytest.mark.parametrize("with_file", [True, False])
def test_a_store_that_was_copied_does_not_start_and_nothing_of_it_changes(
    path: Path, tmp_path: Path, *, with_file: bool
) -> None:
    lived(path, 1, 2)
    folder = copied(path, "copy")
    if with_file:
        shutil.copy(life_path(path), folder)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(StoreError) as caught:
        Store(folder / "a.sqlite", NODE, again=" --directory elsewhere")
    assert str(caught.value) == (
        f"{folder / 'a.sqlite'}: it was copied or moved here from {path}:"
        " `mqproto store adopt a --directory elsewhere --moved` if nothing goes on there,"
        " `mqproto store adopt a --directory elsewhere --copied` if that store goes on"
    )
    after = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert {name: data for name, data in after.items() if name in before and "-shm" not in name} == {
        name: data for name, data in before.items() if "-shm" not in name
    }
    assert lived(path, 3) is None, "the original goes on"


@pytest.mark.parametrize("with_file", [True, False])
def test_one_that_was_moved_begins_another_life_with_what_it_has(
    path: Path, tmp_path: Path, *, with_file: bool
) -> None:
    lived(path, 1, 2)
    folder = copied(path, "new")
    if with_file:
        shutil.copy(life_path(path), folder)
    shutil.rmtree(path.parent)
    new = folder / "a.sqlite"
    assert adopt_moved(SYSTEM_FILES, new, None).number == 2
    with Store(new, NODE) as store:
        assert store.notices == ["life 2 begins: a.sqlite, at record 4, was adopted here"]
        life = begin(store)
        assert numbers(store) == [1, 2]
    assert life is not None
    assert life.is_restored
    assert lived(new, 3) is None


def test_one_that_was_copied_is_set_aside_and_its_node_is_another(path: Path, tmp_path: Path) -> None:
    lived(path, 1, 2)
    new = shutil.copytree(path.parent, tmp_path / "copy") / "a.sqlite"
    with pytest.raises(StoreError, match=r'give this one a GUID of its own, guid = "..." in \[node.a\]'):
        set_aside_copied(SYSTEM_FILES, new, NODE, "today")
    aside = set_aside_copied(SYSTEM_FILES, new, NEIGHBOUR, "today")
    assert aside.name == "a.sqlite-copied-today"
    assert {"a.sqlite", "a.sqlite-witness", "a.life"} <= {each.name for each in aside.iterdir()}
    with Store(new, NEIGHBOUR) as store:
        assert store.notices == []
        life = begin(store)
        assert numbers(store) == []
    assert life is not None
    assert life.number == 1
    assert lived(path) is None, "the original goes on"


def test_one_of_another_machine_is_a_copy_though_path_and_file_are_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemFiles, "machine", lambda files: "one")
    lived(path, 1)
    monkeypatch.setattr(SystemFiles, "machine", lambda files: "another")
    with pytest.raises(StoreError, match="of another machine: `mqproto store adopt"):
        Store(path, NODE)
    life_path(path).unlink()
    with pytest.raises(StoreError, match="of another machine"):
        Store(path, NODE)


def test_a_folder_that_gets_another_name_is_no_copy(path: Path, tmp_path: Path) -> None:
    lived(path, 1)
    new = path.parent.rename(tmp_path / "renamed") / "a.sqlite"
    for number in (2, 3):
        assert lived(new, number) is None
    life_path(new).unlink()
    assert lived(new) is not None, "the tables have learned the new name as well"


def test_a_copy_that_has_the_number_of_the_original_by_chance_is_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stores are on two small file systems, each just made."""
    lived(path, 1)
    copy = shutil.copytree(path.parent, tmp_path / "copy") / "a.sqlite"
    inode = path.stat().st_ino
    monkeypatch.setattr(
        SystemFiles, "identity", lambda files, each: FileIdentity(1 if each == path else 2, inode)
    )
    with pytest.raises(StoreError, match="copied or moved"):
        Store(copy, NODE)


def test_a_long_path_is_told_from_another(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["so" * 80] * 2)
    folder.mkdir(parents=True)
    lived(folder / "a.sqlite", 1)
    assert lived(folder / "a.sqlite", 2) is None
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    with pytest.raises(StoreError, match="copied or moved"):
        Store(other / "a.sqlite", NODE)


# Where MessageIDs begin


@given(
    last=st.integers(0, 2**40),
    waiting=st.lists(st.integers(0, CIRCLE - 1), max_size=12),
    seed=st.integers(0, 2**32),
)
def test_many_message_ids_follow_the_first_that_nobody_has(last: int, waiting: list[int], seed: int) -> None:
    first = first_message_id(last, waiting, random.Random(seed))
    assert distance(first, last) >= APART
    free = FREE if not waiting else FREE // 8
    assert all((message_id - first) % CIRCLE >= free for message_id in waiting)


def test_where_messages_wait_everywhere_fewer_follow() -> None:
    waiting = range(0, CIRCLE, 2**20)
    first = first_message_id(7, waiting, random.Random(1))
    assert all((message_id - first) % CIRCLE >= 2**18 for message_id in waiting)


def test_messages_of_ours_that_wait_are_passed_over(path: Path) -> None:
    """Messages of other queue managers have MessageIDs of their own."""
    with Store(path, NODE) as store:
        begin(store)
        ours = one(1)._replace(message_id=CEILING % CIRCLE ^ 2**31, packet=bytes(16) + NODE + bytes(100))
        theirs = one(2)._replace(packet=bytes(16) + NEIGHBOUR + bytes(100))
        store.commit(Writes(messages=[ours, theirs], counters={MESSAGE_ID_CEILING: CEILING}))
        store.close()
    for seed in range(20):
        adopt_moved(SYSTEM_FILES, path, NODE)
        with Store(path, NODE, dice=random.Random(seed)) as store:
            assert [*store._tables.own_message_ids()] == [ours.message_id]
            assert store.life is not None
            assert (ours.message_id - store.life.first_message_id) % CIRCLE >= FREE // 2


def test_the_file_of_another_nodes_life_is_named_and_without_it_the_store_starts(path: Path) -> None:
    lived(path, 1)
    (other := path.parent.parent / "other").mkdir()
    with Store(other / path.name, NEIGHBOUR) as store:
        begin(store)
    shutil.copy(life_path(other / path.name), life_path(path))
    with pytest.raises(
        StoreError, match=rf"a\.life: it belongs to .*remove this file if {path.name} is the right one"
    ):
        Store(path, NODE)
    life_path(path).unlink()
    with Store(path, NODE) as store:
        assert numbers(store) == [1]
        assert begin(store) is not None
