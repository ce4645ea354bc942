"""Captures are found, recognized by their content, and put into the right series."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcap import PcapWriter
from mqproto.captures.files.pcapng import PcapngWriter, Section
from mqproto.captures.pipeline.source.files import CaptureFile, inventory, look_at, mapped
from tests.captures.pipeline.capture_files import packed

SECOND = 1_000_000_000
EXAMPLE = CaptureFile("net.pcap", 24, "pcap", "", "0" * 32, Section(), 24, None)


def write(path: Path, *times_ns: int, content: bytes = b"a frame") -> str:
    """Write a capture whose frames have these times. Return its path.

    The format depends on the file's name.
    """
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("wb") as file:
        writer = PcapngWriter(file) if ".pcapng" in path.name else PcapWriter(file)
        for time_ns in times_ns:
            writer.write(Frame(time_ns, content))
    return str(path)


def test_a_series_is_in_the_order_of_its_first_frames_and_then_of_its_numbers(tmp_path: Path) -> None:
    first = write(tmp_path / "net.pcap10", 1 * SECOND)
    second = write(tmp_path / "net.pcap2", 2 * SECOND)
    third = write(tmp_path / "net.pcap11", 2 * SECOND, content=b"other")
    empty = write(tmp_path / "net.pcap1")
    (series,) = inventory([str(tmp_path)]).series
    assert series.name == str(tmp_path / "net.pcap")
    assert [file.path for file in series.files] == [first, second, third, empty]


def test_what_is_no_capture_is_refused_with_its_byte_and_the_rest_is_read(tmp_path: Path) -> None:
    good = write(tmp_path / "good.pcapng", 1)
    write(tmp_path / "empty.pcap")
    (tmp_path / "empty.pcap").write_bytes(b"")
    (tmp_path / "foreign.pcap").write_bytes(b"GET / HTTP/1.1")
    cut = write(tmp_path / "cut.pcap", 1)
    Path(cut).write_bytes(Path(cut).read_bytes()[:30])
    (tmp_path / "README").write_text("What lies here")
    os.mkfifo(tmp_path / "pipe.pcap")
    write(tmp_path / "latin-\udce9.pcap", 2)
    found = inventory([str(tmp_path), str(tmp_path / "absent.pcap"), str(tmp_path / "README")])
    assert [file.path for file in found.files] == [good]
    assert sorted((Path(one.where).name, one.offset, one.reason.split(":")[0]) for one in found.refused) == [
        ("README", 0, "no capture"),
        ("absent.pcap", 0, "No such file or directory"),
        ("cut.pcap", 24, "the file ends 6 bytes into the head of a frame"),
        ("empty.pcap", 0, "the file is empty"),
        ("foreign.pcap", 0, "no capture"),
        (r"latin-\udce9.pcap", 0, "its name is not UTF-8, as the tables' texts are"),
        ("pipe.pcap", 0, "no file"),
    ]
    assert found.passed_over == (str(tmp_path / "README"),)


def test_the_same_content_is_read_once(tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "net.pcap", 1)
    copy = write(tmp_path / "b" / "copy.pcap", 1)
    other = write(tmp_path / "c" / "net.pcap", 2)
    found = inventory([str(tmp_path), first])
    assert {file.path for file in found.files} == {first, other}
    assert found.repeated == ((copy, first),)


@given(
    content=st.binary(max_size=50),
    place=st.integers(0, 10**6),
    count=st.sampled_from([1, 2, 70_000, 200_000]),
)
def test_a_file_is_known_by_its_content(
    content: bytes, place: int, count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("content")
    first = Path(write(folder / "first.pcap", 1, content=content + bytes(count)))
    other = folder / "other.pcap"
    data = bytearray(first.read_bytes())
    other.write_bytes(data)
    assert look_at(str(first)).fingerprint == look_at(str(other)).fingerprint
    data[40 + place % (len(data) - 40)] ^= 1
    other.write_bytes(data)
    assert look_at(str(first)).fingerprint != look_at(str(other)).fingerprint


@pytest.mark.parametrize("name", ["net.pcap", "net.pcapng"])
@pytest.mark.parametrize("packing", ["", "gzip", "zstd"])
def test_what_a_task_has_to_know_is_small_and_can_be_sent(name: str, packing: str, tmp_path: Path) -> None:
    path = Path(write(tmp_path / name, 5 * SECOND, 6 * SECOND))
    plain = path.read_bytes()
    if packing:
        path.write_bytes(packed(plain, packing))
    file = look_at(str(path))
    assert (file.form, file.packing, file.first_ns) == (name.removeprefix("net."), packing, 5 * SECOND)
    sent = pickle.dumps(file)
    assert len(sent) < 2_000
    assert pickle.loads(sent) == file
    with mapped(file) as source:
        assert (source.data[:], source.damage) == (plain, None)


def test_a_file_that_shrank_is_an_error_and_one_that_grew_is_read_as_it_was(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "net.pcap", 1))
    file = look_at(str(path))
    data = path.read_bytes()
    path.write_bytes(data + b"more")
    with mapped(file) as source:
        assert source.data[:] == data
    path.write_bytes(data[:-1])
    with pytest.raises(CaptureError, match="the file had 47 bytes and has 46 now"), mapped(file):
        pass
