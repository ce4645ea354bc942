"""Captures made worse: what is lost is gone, what stays is what it was, and one seed does one thing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures.files.frame import Frame, Interface
from captures.files.pcap import read_capture
from captures.files.pcapng import PcapngWriter
from captures.net.conversation import Side, TcpConversation
from captures.net.tcp import Endpoint
from captures.packets import read_packets
from captures.spoil import HEADERS, delayed, lost, main, repeated, shortened
from mqproto.wire import encode_packet
from tests.captures.whole import streams
from tests.examples import a_user_message

shares = st.sampled_from([0, 1, 30, 100])
seeds = st.integers(0, 5)


def some_frames(count: int = 40) -> list[Frame]:
    return [Frame(number * 1_000, bytes([number]) * (20 + number)) for number in range(count)]


def bare(frames: list[Frame]) -> list[bytes]:
    return [frame.data for frame in frames]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Thirty packets on one connection."""
    path = tmp_path / "whole.pcapng"
    talk = TcpConversation(Endpoint("127.0.0.1", 40_001), Endpoint("127.0.0.2", 1801))
    frames = talk.open()
    for number in range(30):
        frames += talk.send(Side.CLIENT, encode_packet(a_user_message(message_id=number)))
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for number, data in enumerate(frames + talk.finish(Side.CLIENT)):
            writer.write(Frame(1_700_000_000_000_000_000 + number * 1_000_000, data))
    return path


@given(shares, seeds)
def test_of_what_is_lost_nothing_is_left_and_the_rest_is_as_it_was(percent: int, seed: int) -> None:
    frames = some_frames()
    left = list(lost(frames, percent, seed))
    assert left == [frame for frame in frames if frame in left]
    if percent in (0, 100):
        assert len(left) == 40 - 40 * percent // 100
    assert left == list(lost(frames, percent, seed))


@given(shares, seeds)
def test_what_is_delayed_comes_all_the_same_and_time_never_goes_back(percent: int, seed: int) -> None:
    frames = some_frames()
    late = list(delayed(frames, percent, seed))
    assert Counter(bare(late)) == Counter(bare(frames))
    assert [frame.time_ns for frame in late] == sorted(frame.time_ns for frame in late)
    if percent == 0:
        assert late == frames


@given(shares, seeds)
def test_what_is_repeated_comes_a_second_time_behind_the_first(percent: int, seed: int) -> None:
    frames = some_frames()
    more = list(repeated(frames, percent, seed))
    assert [frame for frame in more if not frame.comment] == frames
    assert [frame.time_ns for frame in more] == sorted(frame.time_ns for frame in more)
    if percent == 100:
        assert Counter(bare(more)) == Counter(bare(frames) * 2)


def test_a_snapshot_length_cuts_frames_and_says_how_much() -> None:
    short = list(shortened(some_frames(), 30))
    assert [len(frame.data) + frame.missing_bytes for frame in short] == [
        len(data) for data in bare(some_frames())
    ]
    assert max(len(frame.data) for frame in short) == 30


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
@pytest.mark.parametrize("link", HEADERS)
def test_on_every_link_layer_and_in_every_kind_of_file_the_packets_are_the_same(
    link: str, suffix: str, whole: Path
) -> None:
    worse = whole.with_name(f"worse.{suffix}")
    assert main([str(whole), str(worse), "--link", link]) == 0
    assert next(read_capture(worse)).link_type == HEADERS[link][0]
    assert [packet.data for packet in read_packets(worse)] == [packet.data for packet in read_packets(whole)]


def test_classic_pcap_has_one_link_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = tmp_path / "several.pcapng"
    with several.open("wb") as file, PcapngWriter(file) as writer:
        for frame in [*some_frames(1), Frame(0, b"", interface=Interface(link_type=101))]:
            writer.write(frame)
    assert main([str(several), str(tmp_path / "worse.pcap")]) == 1
    assert capsys.readouterr().err == "spoil: a frame of link type 101 in a file of 1\n"


def test_the_command_is_repeated_by_its_seed_and_splits_what_it_writes(whole: Path) -> None:
    one, two = whole.with_name("one.pcapng"), whole.with_name("two.pcapng")
    damage = ["--seed", "3", "--lose", "10", "--repeat", "10", "--delay", "20", "--skip", "5"]
    for target in (one, two):
        assert main([str(whole), str(target), *damage]) == 0
    assert one.read_bytes() == two.read_bytes()
    assert streams(one)[0].gap_count > 0
    assert main([str(whole), str(two), "--parts", "3"]) == 0
    parts = [list(read_capture(two.with_name(f"two-{number}.pcapng"))) for number in (1, 2, 3)]
    assert [frame.data for part in parts for frame in part] == [frame.data for frame in read_capture(whole)]


def test_a_file_that_is_no_capture_or_is_not_there_is_one_line(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole.write_bytes(b"no capture at all")
    assert main([str(whole), str(whole.with_name("worse.pcapng"))]) == 1
    assert main([str(whole.with_name("nothing")), str(whole.with_name("worse.pcapng"))]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all(line.startswith("spoil: ") for line in said)
