"""A store that something has hurt has exactly what was committed, or says that it is damaged: never anything else.

Each trial takes what a process has left of a store, after a stop or after a kill, hurts one of its files, and reads
everything. Here that is some hundred trials; MQPROTO_HURTS says how many for longer runs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

from mqproto.turn.effects import StoredState
from simulator.base.randomness import chance
from simulator.base.storeerrors import StoreError
from simulator.storage import Store
from simulator.storage.disk import Disk
from tests.memory import memory_folder
from tests.simulator.series import LIMITS, NODE, series
from tests.simulator.storage.batches import in_order, messages_in

TRIALS: Final = int(os.environ.get("MQPROTO_HURTS", "400"))
LENGTHS: Final = (17, 38)
"""After how many transactions the process ends: first an earlier moment, from which files are put back, then now."""
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
    """What a process has left: its files, and those of an earlier moment; and what was committed."""

    kind: str
    files: dict[str, bytes]
    earlier: dict[str, bytes]
    content: Content


def content(store: Store | Disk) -> Content:
    return in_order(store.load()), messages_in(store)


def files_in(folder: Path) -> dict[str, bytes]:
    """All but what holds a lock, and SQLite's shared memory, which is made anew."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.endswith(("-lock", "-lock-journal", "-shm"))
    }


def left_by(folder: Path, seed: int, kind: str) -> Left:
    """Commit a series in several lives; the last of them is stopped or killed."""
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
    """Do one thing to one file; returns what it was, and the files."""
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
            if found != left.content:
                wrong.append(f"trial {number}, {left.kind}: {what}")
    print(dict(counts))
    assert not any("\n" in line for line in lines)
    assert wrong == []
    assert min(counts[REFUSED], counts[HARMLESS]) > TRIALS // 20


def test_nothing_that_was_left_whole_is_called_damaged(all_left: list[Left]) -> None:
    for left in all_left:
        assert found_in(left.files) == (left.content, [])
