"""A damaged store has exactly what was committed, or reports the damage: never anything else.

Each trial takes the store that a process has left after a stop or a kill, damages one of its files, and reads
everything. By default, there are about a hundred trials; MQPROTO_HURTS sets their number for longer runs.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.storage.witnesses.witness import CHECKSUM, SAID, said_by_witness
from mqproto.turn.effects import HurtPacket, StoredState
from tests.memory import memory_folder
from tests.simulator.series import LIMITS, NODE, series
from tests.simulator.storage.batches import in_order, messages_in

TRIALS: Final = int(os.environ.get("MQPROTO_HURTS", "400"))
LENGTHS: Final = (17, 38)
"""How many transactions have been committed at an earlier moment, and at the end of the process.

Files are restored from the earlier moment.
"""
HURTS: Final = (
    "flip",
    "flip in a head",
    "zeros",
    "garbage",
    "cut",
    "grown",
    "missing",
    "earlier",
    "swapped",
    "sector",
)
HARMLESS: Final = "harmless"
REFUSED: Final = "refused"

Content = tuple[StoredState, list[list[tuple[int, bytes, bool]]]]


class Left(NamedTuple):
    """The files that a process has left, those of an earlier moment, and the content that was committed."""

    kind: str
    files: dict[str, bytes]
    earlier: dict[str, bytes]
    content: Content


def content(store: Store | Disk) -> Content:
    return in_order(store.load()), messages_in(store)


def files_in(folder: Path) -> dict[str, bytes]:
    """Return all files except locks and SQLite's shared memory, which is made again anyway."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.endswith(("-lock", "-lock-journal", "-shm"))
    }


def left_by(folder: Path, seed: int, kind: str) -> Left:
    """Commit a series in several lives, the last of which is stopped or killed; return the files that are left."""
    folder.mkdir()
    path, model, moments = folder / "a.sqlite", Disk(), []
    batches = series(seed, LENGTHS[-1])
    done = 0
    for length in LENGTHS:
        store = Store(path, NODE, limits=LIMITS)
        for _ in range(length - done):
            writes = next(batches)
            store.commit(writes)
            model.commit(writes)
        done = length
        if kind == "killed":
            moments.append(files_in(folder))
        store.close()
        if kind == "stopped":
            moments.append(files_in(folder))
    return Left(f"{kind} {seed}", moments[1], moments[0], content(model))


@pytest.fixture(scope="module")
def all_left() -> Iterator[list[Left]]:
    with memory_folder() as folder:
        yield [
            left_by(Path(folder, f"{kind}-{seed}"), seed, kind)
            for seed in range(3)
            for kind in ("stopped", "killed")
        ]


def hurt(dice: Random, left: Left) -> tuple[str, dict[str, bytes]]:
    """Damage one file; return a description, and the files."""
    files = dict(left.files)
    how = dice.choice(HURTS)
    name = dice.choice(sorted(files))
    data = bytearray(files[name])
    used = max(1, len(data.rstrip(b"\0")))
    at = dice.randrange(used) if data else 0
    count = min(used - at, dice.choice((1, 20, 100, 512, 600, 5_000, 64 << 10)))
    if how == "flip" and data:
        data[at] ^= 1 << dice.randrange(8)
    elif how == "flip in a head" and data:
        at = dice.randrange(min(len(data), 120)) + dice.randrange(max(1, len(data) // 8192)) * 8192
        data[min(at, len(data) - 1)] ^= 1 << dice.randrange(8)
    elif how == "zeros":
        data[at : at + count] = bytes(count)
    elif how == "sector":
        at = at // 512 * 512
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif how == "garbage":
        data[at : at + count] = dice.randbytes(count)
    elif how == "cut":
        del data[at:]
    elif how == "grown":
        data += dice.choice((bytes(count), dice.randbytes(count)))
    elif how == "missing":
        del files[name]
        return f"{name} is missing", files
    elif how == "earlier":
        if name in left.earlier:
            files[name] = left.earlier[name]
        else:
            name = dice.choice(sorted(left.earlier))
            files[name] = left.earlier[name]
        return f"{name} is of an earlier moment", files
    else:
        other = dice.choice(sorted(files))
        files[name], files[other] = files[other], files[name]
        return f"{name} and {other} are swapped", files
    files[name] = bytes(data)
    return f"{how} at {at}, {count}, of {name}", files


def found_in(files: dict[str, bytes]) -> tuple[Content, list[str]]:
    with memory_folder() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        with Store(Path(folder, "a.sqlite"), NODE, limits=LIMITS) as store:
            return content(store), store.notices


def altered(found: Content, left: Content) -> str:
    """Return what differs from the committed data and is not reported as damaged; empty if nothing does."""
    hurt = {row[0] for page in found[1] for row in page if isinstance(row[1], HurtPacket)}
    if not hurt:
        return "" if found == left else "something"
    for page, committed in zip(found[1][:-1], left[1][:-1], strict=True):
        whole = [row for row in page if not isinstance(row[1], HurtPacket)]
        if len(page) != len(committed) or [row for row in committed if row in whole] != whole:
            return "a queue"
    if any(row not in left[1][-1] for row in found[1][-1]):
        return "what expires"
    state, was = found[0], left[0]
    if [(*row[:6], 0) for row in state.queues] != [(*row[:6], 0) for row in was.queues]:
        return "the count of a queue"
    state, was = (replace(each, queues=[], resident=[], hurt=[], gaps=[]) for each in (state, was))
    return "" if state == was else "a state"


@pytest.mark.long
def test_a_store_that_was_hurt_has_what_was_committed_or_says_that_it_is_damaged(
    all_left: list[Left],
) -> None:
    counts, wrong, lines = Counter[str](), list[str](), list[str]()
    for number in range(TRIALS):
        dice = chance(number, "hurt")
        left = dice.choice(all_left)
        what, files = hurt(dice, left)
        try:
            found, _ = found_in(files)
        except StoreError as error:
            counts[REFUSED] += 1
            lines.append(str(error))
        else:
            counts[HARMLESS] += 1
            counts["message"] += found != left.content
            if what_else := altered(found, left.content):
                wrong.append(f"trial {number}, {left.kind}: {what}: {what_else}")
    print(dict(counts))
    assert not any("\n" in line for line in lines)
    assert wrong == []
    assert min(counts[REFUSED], counts[HARMLESS], 4 * counts["message"]) > TRIALS // 20


def test_nothing_that_was_left_whole_is_called_damaged(all_left: list[Left]) -> None:
    for left in all_left:
        assert found_in(left.files) == (left.content, [])


# A clean stop closes the log: all of it is in the tables, and the witness says so

PAGE_BYTES: Final = 8_192


@pytest.fixture(scope="module")
def stopped(all_left: list[Left]) -> Left:
    return next(left for left in all_left if left.kind.startswith("stopped"))


def refused(files: dict[str, bytes], left: Left) -> bool:
    """Return whether the damage is reported; check that all other data is as it was committed."""
    try:
        found, notices = found_in(files)
    except StoreError:
        return True
    assert (altered(found, left.content), notices) == ("", [])
    return found != left.content


def test_a_clean_stop_leaves_tables_and_a_witness_of_one_moment_and_no_log(stopped: Left) -> None:
    assert sorted(stopped.files) == ["a.life", "a.sqlite", "a.sqlite-witness"]
    with memory_folder() as folder:
        for name, data in stopped.files.items():
            Path(folder, name).write_bytes(data)
        with closing(sqlite3.connect(Path(folder, "a.sqlite"))) as db:
            [(record, is_begun)] = db.execute("SELECT record, is_begun FROM log").fetchall()
    witness = stopped.files["a.sqlite-witness"]
    assert (record, is_begun) == (LENGTHS[-1] + 1, 0)
    assert said_by_witness(Path("a.sqlite-witness"), witness, NODE).record == LENGTHS[-1]
    for slot in (witness[:512], witness[512:]):
        said = said_by_witness(Path("a.sqlite-witness"), slot.ljust(1_024, b"\0"), NODE)
        assert said.record == LENGTHS[-1]


def test_after_a_clean_stop_each_page_that_is_lost_or_stale_or_elsewhere_is_told_of(stopped: Left) -> None:
    data, earlier = stopped.files["a.sqlite"], stopped.earlier["a.sqlite"]
    starts = range(0, len(data), PAGE_BYTES)
    pages = [data[start : start + PAGE_BYTES] for start in starts]
    told = {"lost": 0, "stale": 0, "elsewhere": 0}
    for number, start in enumerate(starts):
        for how, page in (
            ("lost", bytes(PAGE_BYTES)),
            ("stale", earlier[start : start + PAGE_BYTES]),
            ("elsewhere", pages[number - 1]),
        ):
            if len(page) == PAGE_BYTES and page != pages[number]:
                changed = data[:start] + page + data[start + PAGE_BYTES :]
                told[how] += refused({**stopped.files, "a.sqlite": changed}, stopped)
    # Those that are told of nowhere hold nothing: pages that SQLite has free.
    assert min(told["lost"], told["elsewhere"]) > len(starts) * 2 // 3, told
    assert told["stale"] > 3, told


def test_after_a_clean_stop_a_cut_a_missing_and_a_stale_file_are_told_of(stopped: Left) -> None:
    data = stopped.files["a.sqlite"]
    # Of a last page that is short SQLite reads the rest as zeros, which they may have been.
    refused({**stopped.files, "a.sqlite": data[:-1]}, stopped)
    for end in (0, 1, 99, 100, *range(PAGE_BYTES, len(data), PAGE_BYTES)):
        assert refused({**stopped.files, "a.sqlite": data[:end]}, stopped), f"cut at {end} of {len(data)}"
    for name in ("a.sqlite", "a.sqlite-witness"):
        others = {other: data for other, data in stopped.files.items() if other != name}
        assert refused(others, stopped), f"{name} is missing"
        assert refused({**stopped.files, name: stopped.earlier[name]}, stopped), f"{name} is stale"
    assert stopped.files["a.sqlite-witness"] != stopped.earlier["a.sqlite-witness"]


@pytest.mark.long
def test_after_a_clean_stop_no_bit_of_the_witness_changes_what_is_found(stopped: Left) -> None:
    witness = stopped.files["a.sqlite-witness"]
    for at in (*range(40), *range(500, 560), 1_023):
        flipped = bytearray(witness)
        flipped[at] ^= 1 << at % 8
        refused({**stopped.files, "a.sqlite-witness": bytes(flipped)}, stopped)
        both = bytearray(flipped)
        both[(at + 512) % 1_024] ^= 1 << at % 8
        is_used = at % 512 < SAID.size + CHECKSUM.size
        assert refused({**stopped.files, "a.sqlite-witness": bytes(both)}, stopped) == is_used
    for end in (0, 512, 1_023):
        assert refused({**stopped.files, "a.sqlite-witness": witness[:end]}, stopped)
