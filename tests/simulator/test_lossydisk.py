from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from tests.simulator.filetrace import Created, Flushed, Removed, Step, Truncated, Written
from tests.simulator.lossydisk import FILLERS, SECTOR_BYTES, LossyDisk

NAMES = ("a", "b")
SIZES = st.integers(0, 4 * SECTOR_BYTES)


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Draw events in a folder and in its files."""
    steps: list[Step] = []
    there: set[str] = set()
    for _ in range(draw(st.integers(0, 25))):
        name = draw(st.sampled_from(NAMES))
        if draw(st.integers(0, 6)) == 0:
            steps.append(Flushed(""))
        elif name not in there:
            there.add(name)
            steps.append(Created(name))
        else:
            data = draw(st.integers(0, 255)).to_bytes() * draw(st.integers(1, 3 * SECTOR_BYTES))
            written = Written(name, draw(SIZES), data)
            others: list[Step] = [Truncated(name, draw(SIZES)), Flushed(name), Removed(name)]
            change = draw(st.sampled_from([written, written, written, written, *others]))
            if isinstance(change, Removed):
                there.remove(name)
            steps.append(change)
    return steps


def plain(steps: list[Step]) -> dict[str, bytes]:
    """Return the content of a disk that loses nothing."""
    files: dict[str, bytes] = {}
    for step in steps:
        match step:
            case Created(name):
                files[name] = b""
            case Removed(name):
                del files[name]
            case Written(name, offset, data):
                before = files[name].ljust(offset, b"\0")
                files[name] = before[:offset] + data + before[offset + len(data) :]
            case Truncated(name, size):
                files[name] = files[name][:size].ljust(size, b"\0")
    return files


def after(steps: list[Step]) -> LossyDisk:
    disk = LossyDisk()
    for step in steps:
        disk.apply(step)
    return disk


@given(histories())
def test_a_disk_that_keeps_everything_has_what_a_plain_one_has(steps: list[Step]) -> None:
    assert after(steps).after_loss(lambda *_: True) == plain(steps)


@given(histories())
def test_a_disk_that_keeps_only_what_it_must_has_each_file_as_it_was_flushed(steps: list[Step]) -> None:
    kept = after(steps).after_loss(lambda *_: False)
    folder_flushes = [place for place, step in enumerate(steps) if step == Flushed("")]
    named = plain(steps[: folder_flushes[-1]]) if folder_flushes else {}
    assert set(kept) == set(named)
    for name, data in kept.items():
        # This file ends where its name goes, and begins where it came last before the folder was flushed.
        begin = max(p for p, step in enumerate(steps[: folder_flushes[-1]]) if step == Created(name))
        end = next((p for p, step in enumerate(steps) if p > begin and step == Removed(name)), len(steps))
        flushes = [p for p in range(begin, end) if steps[p] == Flushed(name)]
        assert data == (plain(steps[: flushes[-1]])[name] if flushes else b"")


@given(st.lists(st.none() | st.tuples(st.integers(0, 3), st.integers(1, 9))), st.randoms())
def test_each_sector_holds_what_was_flushed_or_something_that_was_written_since(
    writes: list[tuple[int, int] | None], dice: Random
) -> None:
    """None stands for a flush; the others are a sector and the byte that fills it."""
    disk = after([Created("a"), Flushed("")])
    latest: dict[int, bytes] = {}
    possible: dict[int, set[bytes]] = {}
    for write in writes:
        if write is None:
            disk.apply(Flushed("a"))
            possible = {sector: {latest[sector]} for sector in possible}
            continue
        sector, value = write
        disk.apply(Written("a", sector * SECTOR_BYTES, bytes([value]) * SECTOR_BYTES))
        latest[sector] = bytes([value])
        possible.setdefault(sector, {b"", *FILLERS}).add(bytes([value]))
    for image in disk.losses(dice):
        for sector in range(4):
            held = image["a"][sector * SECTOR_BYTES :][:SECTOR_BYTES]
            assert held == held[:1] * len(held)
            assert held[:1] in possible.get(sector, {b"", *FILLERS})


def test_a_loss_may_take_nothing_everything_or_tear_what_was_written() -> None:
    steps: list[Step] = [Created("a"), Flushed(""), Written("a", 0, b"1" * 2_048), Flushed("a")]
    found = {
        image["a"]
        for seed in range(200)
        for image in after([*steps, Written("a", 0, b"2" * 2_048)]).losses(Random(seed))
    }
    assert {b"1" * 2_048, b"2" * 2_048} < found
    assert {b"1" * 512 + b"2" * 1_536, b"2" * 1_024 + b"1" * 1_024} < found
    assert len(found) == 2**4


def test_files_that_are_there_from_the_start_are_flushed() -> None:
    disk = LossyDisk({"a": b"old"})
    disk.apply(Written("a", 0, b"new"))
    assert list(disk.losses(Random(0)))[:2] == [{"a": b"old"}, {"a": b"new"}]


def test_two_files_lose_what_they_lose_in_any_order() -> None:
    steps: list[Step] = [Created("a"), Created("b"), Flushed("")]
    writes: list[Step] = [Written("a", 0, b"1"), Written("b", 0, b"2")]
    found = {
        (image["a"], image["b"])
        for seed in range(50)
        for image in after([*steps, *writes]).losses(Random(seed))
    }
    assert found == {(b"", b""), (b"1", b""), (b"", b"2"), (b"1", b"2")}
