"""Files that grow by whole blocks, and are continued."""

from __future__ import annotations

import errno
import gc
import io
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.files.append import GrowingFile, whole_bytes
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture, read_frames
from mqproto.captures.files.pcapng import PcapngWriter

START_NS = 1_700_000_000_000_000_000


def add(path: Path, *contents: bytes) -> None:
    """Run the file's writer once, so that it adds a section."""
    file = GrowingFile(path)
    writer = PcapngWriter(file)
    for data in contents:
        writer.write(Frame(START_NS, data))
    writer.flush()
    file.close()


def a_file(*contents: bytes) -> bytes:
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        for data in contents:
            writer.write(Frame(START_NS, data))
        return file.getvalue()


@given(contents=st.lists(st.binary(max_size=30), min_size=1, max_size=5), data=st.data())
def test_of_a_file_that_was_cut_off_anywhere_all_whole_blocks_are_kept(
    contents: list[bytes], data: st.DataObject
) -> None:
    written = a_file(*contents)
    cut = written[: data.draw(st.integers(0, len(written)))]
    kept = whole_bytes(io.BytesIO(cut), Path("cut"))
    assert kept <= len(cut)
    assert whole_bytes(io.BytesIO(cut[:kept]), Path("cut")) == kept
    if kept:
        frames = [frame.data for frame in read_frames(io.BytesIO(cut[:kept]))]
        assert frames == contents[: len(frames)]
    if len(cut) == len(written):
        assert kept == len(written)


@pytest.mark.parametrize("cut_bytes", [0, 1, 4, 20])
def test_a_second_life_goes_on_behind_the_last_whole_block(cut_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "twice.pcapng"
    add(path, b"one", b"two")
    os.truncate(path, path.stat().st_size - cut_bytes)
    add(path, b"three")
    expected = [b"one", b"two", b"three"] if not cut_bytes else [b"one", b"three"]
    assert [frame.data for frame in read_capture(path)] == expected


def test_sections_in_the_other_byte_order_are_gone_on_with_too(tmp_path: Path) -> None:
    path = tmp_path / "big.pcapng"
    path.write_bytes(bytes.fromhex("0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c"))
    add(path, b"little")
    assert [frame.data for frame in read_capture(path)] == [b"little"]


def test_what_was_not_flushed_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.pcapng"
    file = GrowingFile(path)
    PcapngWriter(file)
    assert path.stat().st_size == 0
    file.flush()
    size_bytes = path.stat().st_size
    assert size_bytes > 0
    file.flush()
    assert path.stat().st_size == size_bytes
    file.close()
    file.close()


def test_what_a_full_disk_does_not_take_whole_is_not_in_the_file_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.pcapng"
    file = GrowingFile(path)
    writer = PcapngWriter(file)
    writer.write(Frame(START_NS, b"fits"))
    writer.flush()
    write = os.write
    said: list[bytes] = []

    def half(descriptor: int, data: bytes) -> int:
        if said:
            raise OSError(errno.ENOSPC, "No space left on device")
        said.append(data)
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    writer.write(Frame(START_NS, b"does not"))
    with pytest.raises(OSError, match="No space left"):
        writer.flush()
    file.close()
    assert [frame.data for frame in read_capture(path)] == [b"fits"]


@pytest.mark.parametrize("content", [b"Dear diary", b"x", b"\xd4\xc3\xb2\xa1" + bytes(20)])
def test_a_file_that_is_something_else_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"other is not a pcapng, and is left alone: name another file"):
        GrowingFile(path)
    assert path.read_bytes() == content


@pytest.mark.long
def test_of_a_file_that_cannot_be_had_nothing_is_closed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file cannot be used, nothing is closed twice.

    By the second time, the file descriptor may belong to another file.
    """
    letter, closed = tmp_path / "letter.txt", list[int]()
    letter.write_text("Dear sir or madam")
    close = os.close

    def noted(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr(os, "close", noted)
    with pytest.raises(UsageError, match="not a pcapng"):
        GrowingFile(letter)
    gc.collect()
    assert len(closed) == 1
    with pytest.raises(FileNotFoundError):
        GrowingFile(tmp_path / "nowhere" / "file.pcapng")
    gc.collect()
    assert len(closed) == 1
