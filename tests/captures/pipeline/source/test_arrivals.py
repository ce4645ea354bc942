"""Files that come to a folder: each is told when it is complete, whatever happens in between."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given, strategies as st

from mqproto.captures.files.frame import NANOSECONDS
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.pipeline.source.arrivals import Arrival, arrivals, complete_until

NOW_NS = 2_000_000_000 * NANOSECONDS
SETTLE_NS = 60 * NANOSECONDS


def capture(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file, PcapngWriter(file):
        pass
    return path


def seen(folder: Path, after_s: float) -> dict[str, bool]:
    """Which captures are complete, a while after the last was changed."""
    last_ns = max(path.stat().st_ctime_ns for path in folder.rglob("*"))
    found = arrivals([str(folder)], last_ns + int(after_s * NANOSECONDS), SETTLE_NS)
    return {Path(arrival.path).name: arrival.is_complete for arrival in found}


def test_a_file_is_complete_when_there_is_a_later_one_and_the_last_when_nothing_is_written_to_it(
    tmp_path: Path,
) -> None:
    first = capture(tmp_path, "run_00001_20261122083000.pcapng")
    assert seen(tmp_path, 2) == {first.name: False}
    assert seen(tmp_path, 61) == {first.name: True}
    while first.stat().st_ctime_ns == capture(tmp_path, "run_00002_20261122083100.pcapng").stat().st_ctime_ns:
        pass
    assert seen(tmp_path, 2) == {first.name: True, "run_00002_20261122083100.pcapng": False}
    assert not any(seen(tmp_path, 0.5).values()), "the kernel's clock goes in ticks"


def test_what_is_no_capture_is_none_and_folders_in_folders_are_looked_at(tmp_path: Path) -> None:
    capture(tmp_path, "deeper/other.pcap")
    (tmp_path / "notes.txt").write_text("of whoever captured it")
    os.mkfifo(tmp_path / "pipe.txt")
    assert seen(tmp_path, 61) == {"other.pcap": True}


files = st.lists(
    st.tuples(st.integers(0, 30), st.lists(st.integers(1, 40), max_size=4)), min_size=1, max_size=6
)


@given(files, st.lists(st.integers(1, 90), max_size=12))
def test_each_file_is_told_when_it_is_complete_and_once_if_nothing_is_written_to_it_later(
    writes: list[tuple[int, list[int]]], looks: list[int]
) -> None:
    """Files come one after the other and are written to now and then; a stream looks at other times.

    Args:
        writes: of each file, how long after the one before it comes, and how long after that it is written to.
    """
    told: list[Arrival] = []
    changes: dict[str, list[int]] = {}
    at_s = 0
    for number, (after_s, more) in enumerate(writes):
        at_s += after_s
        times = [at_s]
        for later_s in more:
            times.append(times[-1] + later_s)
        changes[f"{number}"] = times
    end_s = max(times[-1] for times in changes.values())
    now_s, offset = 0, -1
    for step in [*looks, end_s + 200]:
        now_s += step
        found = []
        for name, times in changes.items():
            done = [each for each in times if each <= now_s]
            if done:
                found.append(Arrival(name, done[-1], now_s - done[-1] >= 60))
        found.sort(key=lambda arrival: (arrival.changed_ns, arrival.path))
        until = complete_until(found, offset)
        assert until >= offset
        batch = [each for each in found if offset < each.changed_ns <= until]
        assert all(each.is_complete for each in batch)
        told += batch
        offset = until
    last = {each.path: each.changed_ns for each in told}
    assert last == {name: times[-1] for name, times in changes.items()}
    assert len(told) == len({(each.path, each.changed_ns) for each in told})
