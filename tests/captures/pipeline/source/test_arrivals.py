"""Files that arrive in a folder: each is reported when it is complete, whatever happens in between."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from mqproto.captures.files.frame import NANOSECONDS
from mqproto.captures.files.pcap import zstd
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.pipeline.source.arrivals import HEAD_BYTES, arrivals

NOW_NS = 2_000_000_000 * NANOSECONDS
SETTLE_NS = 60 * NANOSECONDS


def capture(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file, PcapngWriter(file):
        pass
    return path


def seen(folder: Path, after_s: float) -> dict[str, bool]:
    """Return the captures that are there some time after the last change, and whether each is complete."""
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


def test_an_earlier_file_that_changes_says_nothing_about_the_one_that_is_written(tmp_path: Path) -> None:
    names = [f"run_0000{number}_2026112208300{number}.pcapng" for number in range(2)]
    first, last = [capture(tmp_path, name) for name in names]
    while first.stat().st_ctime_ns <= last.stat().st_ctime_ns:
        first.chmod(0o600)
    assert seen(tmp_path, 2) == {names[0]: False, names[1]: False}
    with gzip.open(f"{first}.gz", "wb") as packed:
        packed.write(first.read_bytes())
    assert seen(tmp_path, 2)[names[1]] is False


@pytest.mark.parametrize("size_bytes", [0, 3, HEAD_BYTES, 3 * HEAD_BYTES])
def test_a_content_is_the_same_however_it_is_packed(tmp_path: Path, size_bytes: int) -> None:
    plain = os.urandom(size_bytes)
    packed = {
        "plain": plain,
        "gzip": gzip.compress(plain),
        "blocks": gzip.compress(plain) + gzip.compress(b""),
        "zstd": zstd.compress(plain),
        "longer": plain + b"more",
    }
    for name, content in packed.items():
        (tmp_path / f"{name}.pcap").write_bytes(content)
    found = {Path(each.path).stem: each.content for each in arrivals([str(tmp_path)], NOW_NS, SETTLE_NS)}
    longer = found.pop("longer")
    assert len(found) == 4
    assert {*found.values()} ^ {longer} == {found["plain"], longer}
