"""Damaged frames: `decode` and `analyse` report the same things about them, and accuse nobody."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from mqproto.captures import spoil
from mqproto.captures.decode import Analyst, Finding, Severity
from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcap import PcapWriter, read_capture, read_frames
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.packets import PacketReader
from tests.captures.truth.saying import Decoded, Series, decoded, tabled

HOP: Final = [*read_capture(Path("captures/samples/three-hop.pcapng"))]
WHOLE: Final = decoded([HOP])
FILLED: Final = [
    number for number, frame in enumerate(HOP) if (at := spoil.placed(frame)) and at.end > at.payload
]
FIRST, LATER, LAST = FILLED[0], FILLED[12], FILLED[-1]
SYN: Final = FIRST - 3
"""The place of the frame that opens the connection of the first packet, three before it."""
PLACES: Final = pytest.mark.parametrize("place", [FIRST, LATER, LAST], ids=["first", "later", "last"])


def numbered(frames: Sequence[Frame]) -> list[Frame]:
    return [frame._replace(number=number) for number, frame in enumerate(frames, 1)]


def with_other_bit(frame: Frame, at: int) -> Frame:
    """Return a frame with one bit changed, `at` bytes into its payload."""
    place = spoil.placed(frame)
    assert place is not None
    data = bytearray(frame.data)
    data[place.payload + at] ^= 0x20
    return frame._replace(data=bytes(data))


def with_copy(place: int, first: Frame, second: Frame) -> list[Frame]:
    """Return the capture with two copies of a frame, the second three frames later."""
    behind = min(place + 4, len(HOP))
    return numbered([*HOP[:place], first, *HOP[place + 1 : behind], second, *HOP[behind:]])


def said(frames: Sequence[Frame], folder: Path) -> Decoded:
    """Return decode's report, after checking that `analyse` reports the same."""
    ours = decoded([frames])
    theirs = Counter[tuple[str, str, str]]()
    for (severity, code, _, text), count in tabled(folder, [frames], stories=False).findings.items():
        theirs[severity, code, text] += count
    assert Counter((str(each.severity), each.code, each.text) for each in ours.findings) == theirs
    return ours


def contents(told: Decoded) -> Counter[bytes]:
    return Counter(sight.seen.data for sight in told.sights)


def about_frames(told: Decoded) -> list[tuple[str, str]]:
    """Return the findings about frames: the code, and the text without the endpoints with which it begins."""
    found = [each for each in told.last if each.code in ("contradiction", "damaged-frame")]
    return [(each.code, each.text.partition(": ")[2]) for each in found]


@PLACES
@pytest.mark.parametrize("is_first", [True, False], ids=["damaged first", "damaged later"])
def test_of_two_copies_the_damaged_one_is_passed_over(place: int, is_first: bool, tmp_path: Path) -> None:
    for number, at in enumerate([0, 5, 17, 31]):
        copies = with_other_bit(HOP[place], at), HOP[place]
        frames = with_copy(place, *(copies if is_first else copies[::-1]))
        told = said(frames, tmp_path / str(number)) if not number else decoded([frames])
        assert contents(told) == contents(WHOLE)
        assert told.faults == []
        second = min(place + 4, len(HOP)) + 1
        assert about_frames(told) == [
            (
                "damaged-frame",
                f"frames {place + 1} and {second} have other bytes for the same place of the stream; the checksum of "
                f"frame {place + 1 if is_first else second} does not fit, so that it was not taken",
            )
        ]


@PLACES
@pytest.mark.parametrize("is_first", [True, False], ids=["other first", "other later"])
def test_nobody_is_judged_by_copies_that_contradict_each_other(
    place: int, is_first: bool, tmp_path: Path
) -> None:
    second = min(place + 4, len(HOP)) + 1
    text = f"frames {place + 1} and {second} have other bytes for the same place of the stream; which the receiver took"
    expected = [("contradiction", f"{text} is not known, so that neither was taken")]
    for at in (0, 9, 20, 31):
        copies = spoil.summed(with_other_bit(HOP[place], at)), HOP[place]
        told = said(with_copy(place, *copies[:: 1 if is_first else -1]), tmp_path / f"{at}")
        assert (told.faults, about_frames(told)) == ([], expected)
        assert contents(told) < contents(WHOLE), "neither is shown"


@pytest.mark.parametrize("repeated", [FIRST, SYN], ids=["opening", "SYN"])
def test_a_damaged_frame_is_passed_over_though_what_began_its_connection_comes_again_between_its_copies(
    repeated: int, tmp_path: Path
) -> None:
    offer = FILLED[2]
    copies = with_other_bit(HOP[offer], 0), HOP[repeated], HOP[offer]
    told = said(numbered([*HOP[:offer], *copies, *HOP[offer + 1 :]]), tmp_path / "tables")
    assert [code for code, _ in about_frames(told)] == ["damaged-frame"]
    assert contents(told) == contents(WHOLE)


def test_a_byte_that_asks_whether_anybody_is_there_contradicts_nothing(tmp_path: Path) -> None:
    bare = spoil.placed(HOP[LATER])
    assert bare is not None
    data = bytearray(HOP[LATER].data[: bare.payload]) + b"\0"
    data[bare.ip + 2 : bare.ip + 4] = (len(data) - bare.ip).to_bytes(2)
    data[bare.tcp + 4 : bare.tcp + 8] = (bare.sequence + bare.end - bare.payload - 1).to_bytes(4)
    asking = spoil.summed(HOP[LATER]._replace(data=bytes(data)))
    told = said(numbered([*HOP[: LATER + 1], asking, *HOP[LATER + 1 :]]), tmp_path / "tables")
    assert about_frames(told) == []
    assert contents(told) == contents(WHOLE)


def test_a_connection_that_begins_at_the_same_place_contradicts_nothing_of_the_one_before(
    tmp_path: Path,
) -> None:
    def earlier(frame: Frame) -> Frame:
        place = spoil.placed(frame)
        assert place is not None
        at = place.tcp + (4 if place.ends[0] == ends[0] else 8)
        data = bytearray(frame.data)
        data[at : at + 4] = max(0, int.from_bytes(data[at : at + 4]) - 4).to_bytes(4)
        return spoil.summed(frame._replace(data=bytes(data)))

    opening = spoil.placed(HOP[0])
    assert opening is not None
    ends = opening.ends
    told = said(numbered([*HOP[:8], *map(earlier, HOP[:8])]), tmp_path / "tables")
    assert about_frames(told) == []
    assert contents(told) == contents(decoded([HOP[:8], HOP[:8]]))


@pytest.mark.long
def test_nobody_is_judged_by_a_frame_that_came_damaged_only(tmp_path: Path) -> None:
    accused = 0
    for number, place in enumerate(FILLED):
        for at in (5, 17, 30):
            frames = numbered([*HOP[:place], with_other_bit(HOP[place], at), *HOP[place + 1 :]])
            fitting = numbered([*frames[:place], spoil.summed(frames[place]), *frames[place + 1 :]])
            accused += bool(decoded([fitting]).faults)
            told = said(frames, tmp_path / f"{number}") if at == 5 and not number % 8 else decoded([frames])
            assert told.faults == []
    assert accused > len(FILLED), "were the checksums right, somebody would be"


def test_a_copy_that_came_damaged_long_before_or_in_another_file_accuses_nobody(tmp_path: Path) -> None:
    copies = [*HOP[:38], with_other_bit(HOP[38], 199), *HOP[39:], *HOP[-1:] * 200]  # Byte 199 is in a body.
    fitting = [*copies[:38], spoil.summed(copies[38]), *copies[39:]]
    assert [each.code for each in decoded([numbered(fitting)]).faults] == ["altered"]
    frames = numbered(copies)
    assert said(frames, tmp_path / "one").faults == []
    rotated = tabled(tmp_path / "two", Series([frames[:39], frames[39:]]), stories=False)
    assert [code for severity, code, _, _ in rotated.findings if severity == "fault"] == []


def test_where_no_checksum_of_a_sender_fits_nothing_can_be_told_of_it(tmp_path: Path) -> None:
    def offloaded(frame: Frame) -> Frame:
        place = spoil.placed(frame)
        assert place is not None
        data = bytearray(frame.data)
        data[place.tcp + 16] ^= 0x55
        return frame._replace(data=bytes(data))

    bad = with_other_bit(HOP[FIRST], 5)
    frames = [*map(offloaded, [*HOP[:FIRST], bad, *HOP[FIRST + 1 :]])]
    told = said(numbered(frames), tmp_path / "one")
    assert [each.code for each in told.faults][:1] == ["malformed"]
    copies = [offloaded(frame) for frame in with_copy(LATER, HOP[LATER], with_other_bit(HOP[LATER], 31))]
    assert [code for code, _ in about_frames(said(copies, tmp_path / "two"))] == ["contradiction"]


def test_of_a_frame_that_was_cut_nobody_can_say(tmp_path: Path) -> None:
    cut = [*spoil.shortened(HOP, 80)]
    data = cut[LATER].data
    other = cut[LATER]._replace(data=data[:-1] + bytes([data[-1] ^ 0x20]))
    frames = [*cut[: LATER + 1], other, *cut[LATER + 1 :]]
    assert [code for code, _ in about_frames(said(numbered(frames), tmp_path / "tables"))] == [
        "contradiction"
    ]


@pytest.mark.parametrize("is_first", [True, False], ids=["cut first", "cut later"])
def test_of_two_copies_the_cut_one_lacks_nothing(is_first: bool, tmp_path: Path) -> None:
    pairs = zip(spoil.shortened(HOP, 80), HOP, strict=True)
    told = said(
        numbered([each for pair in pairs for each in pair[:: 1 if is_first else -1]]), tmp_path / "tables"
    )
    assert contents(told) == contents(WHOLE)
    assert [each.code for each in told.findings] == [each.code for each in WHOLE.findings]


def file_of(kind: str) -> bytes:
    file = io.BytesIO()
    writer = PcapWriter(file) if kind == "pcap" else PcapngWriter(file)
    for frame in HOP:
        writer.write(frame)
    return file.getvalue()


def faults_in(file: bytes) -> list[Finding]:
    """Return what decode finds in a file, up to its damage."""
    reader, analyst = PacketReader(read_frames(io.BytesIO(file))), Analyst()
    found: list[Finding] = []
    try:
        for packet in reader:
            found += analyst.take(packet).findings
    except CaptureError:
        pass
    found += analyst.finish(lossless=False, ends=reader.ends)
    return [each for each in found if each.severity is Severity.FAULT]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_damage_inside_a_file_accuses_nobody(kind: str) -> None:
    chance = random.Random(7)
    whole = file_of(kind)
    for at in range(200, len(whole) - 512, 97):
        for damage in (bytes(4_096), chance.randbytes(512), chance.randbytes(24)):
            hurt = (whole[:at] + damage + whole[at + len(damage) :])[: len(whole)]
            assert faults_in(hurt) == [], (at, len(damage))
