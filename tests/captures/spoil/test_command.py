"""The command: each kind of damage is requested by its option, and the result is written to one file or several."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import read_packets
from mqproto.captures.spoil import HEADERS, main
from mqproto.wire import encode_packet
from tests.captures.spoil.test_frames import some_frames
from tests.captures.whole import streams
from tests.examples import a_user_message


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Write a capture of thirty packets on one connection."""
    path = tmp_path / "whole.pcapng"
    talk = TcpConversation(Endpoint("127.0.0.1", 40_001), Endpoint("127.0.0.2", 1801))
    frames = talk.open()
    for number in range(30):
        frames += talk.send(Side.CLIENT, encode_packet(a_user_message(message_id=number)))
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for number, data in enumerate(frames + talk.finish(Side.CLIENT)):
            writer.write(Frame(1_700_000_000_000_000_000 + number * 1_000_000, data))
    return path


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


def test_both_sides_of_address_translation_have_each_frame_and_its_packets_are_one(whole: Path) -> None:
    worse = whole.with_name("worse.pcapng")
    assert main([str(whole), str(worse), "--translate"]) == 0
    assert len(list(read_capture(worse))) == 2 * len(list(read_capture(whole)))
    assert [packet.data for packet in read_packets(worse)] == [packet.data for packet in read_packets(whole)]


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


def test_two_halves_of_a_tap_come_as_two_files_with_clocks_of_their_own(whole: Path) -> None:
    worse = whole.with_name("worse.pcapng")
    assert main([str(whole), str(worse), "--tap", "--apart", "--offset", "2.5"]) == 0
    one, other = (list(read_capture(worse.with_name(f"worse-{number}.pcapng"))) for number in (1, 2))
    frames = list(read_capture(whole))
    assert sorted(frame.data for frame in one + other) == sorted(frame.data for frame in frames)
    times = {frame.data: frame.time_ns for frame in frames}
    assert {frame.time_ns - times[frame.data] for frame in one} == {0}
    assert {frame.time_ns - times[frame.data] for frame in other} == {2_500_000_000}


def test_a_capture_at_each_host_has_every_frame_twice(whole: Path) -> None:
    worse = whole.with_name("worse.pcapng")
    assert main([str(whole), str(worse), "--hosts", "--drift", "100"]) == 0
    seen = list(read_capture(worse))
    for name in ("host 0", "host 1"):
        assert [frame.data for frame in seen if frame.interface.name == name] == [
            frame.data for frame in read_capture(whole)
        ]


def test_offloaded_segments_are_the_same_streams(whole: Path) -> None:
    worse = whole.with_name("worse.pcapng")
    assert main([str(whole), str(worse), "--coalesce", "50", "--segment", "100", "--late-syn", "100"]) == 0
    assert max(len(frame.data) for frame in read_capture(worse)) == 154
    assert sum(stream.data_bytes for stream in streams(worse)) >= sum(
        stream.data_bytes for stream in streams(whole)
    )
