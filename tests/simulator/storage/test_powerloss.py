"""The store when the power fails: data reported as committed is there, other transactions are complete or absent.

A process commits a series of transactions, and strace reports each of its writes and flushes. After any of them, the
power may fail: a possible content of the disk at that moment is put into a folder and opened. By default, this is tried
after some of these steps; `make powerloss`, which sets MQPROTO_POWERLOSS_PERCENT=100, tries it after every one.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import ReadBy, ReadExpired, ReadPage, StoredState
from tests.memory import memory_folder
from tests.simulator.filetrace import Said, needs_strace, traced
from tests.simulator.lossydisk import LossyDisk
from tests.simulator.series import LEFT_OUT, NODE, SAME_FILES, SMALL_RESERVE, life_of

PERCENT: Final = float(os.environ.get("MQPROTO_POWERLOSS_PERCENT", "2"))
EVERY: Final = PERCENT == 100
LENGTH: Final = 60
STORE: Final = "a.sqlite"
KEPT: Final = "all that was committed"
KEPT_AND_NEXT: Final = "all that was committed, and what was about to be"
LOST: Final = "committed transactions are lost"
REFUSED: Final = "it does not open"
FALSE_ALARM: Final = "it is taken for one that was put back"

Content = tuple[StoredState, list[list[tuple[int, bytes, bool]]]]
"""The whole content of a store: its state, the messages of each queue, and those that expire."""


class Trial(NamedTuple):
    """The content after a power loss.

    step: the number of the process's last step before the loss.
    image: the files that were left.
    has: the number of transactions in the store, if these are exactly the first ones.
    """

    step: int
    image: Mapping[str, bytes]
    found: str
    has: int | None


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory: the number of flushes matters here, but not their time."""
    with memory_folder() as name:
        yield Path(name)


def content(store: Store | Disk) -> Content:
    state = store.load()
    state.outgoing.sort()
    state.incoming.sort()
    pages = [ReadPage(queue.queue, 0, 100_000, 2**40, ReadBy.WINDOW) for queue in state.queues]
    return state, [*map(store.read, pages), store.read(ReadExpired(100_000, 2**40))]


def history(seed: int) -> list[Content]:
    """Return the required content of a store after each number of transactions."""
    model = Disk()
    contents = [content(model)]
    for writes in life_of(seed, LENGTH):
        model.commit(writes)
        contents.append(content(model))
    return contents


def trials(
    folder: Path, seed: int, *, left_out: str = "", percent: float = PERCENT, after: Trial | None = None
) -> Iterator[Trial]:
    """Let a process commit, and let the power fail after a percentage of its steps.

    Args:
        folder: where a new folder is made for the process.
        left_out: the flush that the process leaves out, one of LEFT_OUT; empty for none.
        after: an earlier power loss; the process continues with the files that it has left.
    """
    contents = history(seed)
    start, committed = (after.image, after.has or 0) if after else ({}, 0)
    write_files(folder, start)
    steps = traced(folder, ["tests.simulator.series", str(folder / STORE), str(seed), str(LENGTH), left_out])
    disk = LossyDisk(start)
    for number, step in enumerate(steps):
        disk.apply(step)
        if isinstance(step, Said):
            committed += 1
            assert step.text == f"committed {committed}\n"
        dice = chance(seed, "power loss", str(number))
        if dice.random() < percent / 100:
            for image in disk.losses(dice):
                yield tried(number, image, folder.with_suffix(".restored"), contents, committed)
    assert committed == LENGTH


def tried(
    step: int, image: Mapping[str, bytes], folder: Path, contents: list[Content], committed: int
) -> Trial:
    """Open the files that are left, and compare them with what was committed."""
    write_files(folder, image)
    try:
        with Store(folder / STORE, NODE, limits=SMALL_RESERVE, files=SAME_FILES) as store:
            found = content(store)
            life, notices = store.life, store.notices
            [(damage,), *_] = store._tables.db.execute("PRAGMA integrity_check").fetchall()
    except Exception as error:  # Of a damaged store anything may come; of a good one nothing.
        return Trial(step, image, f"{REFUSED}: {error!r}", None)
    finally:
        shutil.rmtree(folder)
    if damage != "ok":
        return Trial(step, image, f"it is damaged: {damage}", None)
    has = contents.index(found) if found in contents else None
    if has is None:
        return Trial(step, image, "it is a mixture", None)
    if (life is not None) != (not has) or any("begins" in notice for notice in notices):
        return Trial(step, image, f"{FALSE_ALARM}: {life}, {notices}", None)
    return Trial(step, image, {0: KEPT, 1: KEPT_AND_NEXT}.get(has - committed, LOST), has)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def counted(found: Iterator[Trial], repeat: str) -> Counter[str]:
    """Check that everything was right in each trial; return how often each result occurred."""
    counts = Counter[str]()
    for trial in found:
        assert trial.found in (KEPT, KEPT_AND_NEXT), f"{repeat}, after step {trial.step}"
        counts[trial.found] += 1
    print(f"{repeat}: {dict(counts)}")
    return counts


@pytest.mark.long
@needs_strace
@pytest.mark.parametrize("seed", range(1, 6) if EVERY else [1])
def test_after_a_power_loss_all_that_was_committed_is_there_and_nothing_by_half(
    folder: Path, seed: int
) -> None:
    counts = counted(trials(folder / "once", seed), f"seed {seed}")
    assert counts[KEPT] > 100
    assert counts[KEPT_AND_NEXT] > 2


@pytest.mark.long
@needs_strace
@pytest.mark.parametrize("number", range(20 if EVERY else 1))
def test_what_a_power_loss_has_left_survives_the_next(folder: Path, number: int) -> None:
    dice = chance(number, "first power loss")
    first = dice.choice(list(trials(folder / "first", number, percent=0.3)))
    counts = counted(
        trials(folder / "second", number, percent=PERCENT / 5, after=first),
        f"seed {number}, after a first loss at step {first.step}",
    )
    assert counts


@pytest.mark.long
@needs_strace
@pytest.mark.parametrize("left_out", LEFT_OUT)
def test_a_store_that_leaves_out_a_flush_is_found_out(folder: Path, left_out: str) -> None:
    found = (
        trial
        for trial in trials(folder / "a", 1, left_out=left_out, percent=4)
        if trial.found.partition(":")[0] in (LOST, REFUSED)
    )
    assert next(found, None), "no power loss shows it"
