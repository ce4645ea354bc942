"""Several captures are read as one, in the order in which frames crossed the wire, whatever the clocks showed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.net.merging import merged, series_of
from mqproto.captures.packets import PacketReader
from tests.captures.net.test_taps import CLIENT, EAST, SERVER, WEST, halves, talked

HOUR_NS = 3_600 * 10**9


def in_two(late_ns: int) -> list[list[Frame]]:
    """Return the frames of two files, one for each direction."""
    told = halves(talked(300), late_ns)
    return [[frame._replace(number=0) for frame in told if frame.interface == one] for one in (EAST, WEST)]


@pytest.mark.parametrize("late_ns", [0, 500, 40_000, -40_000, HOUR_NS, -HOUR_NS])
@pytest.mark.parametrize("order", [1, -1])
def test_frames_come_as_they_crossed_the_wire(late_ns: int, order: int) -> None:
    found = list(merged([iter(frames) for frames in in_two(late_ns)[::order]]))
    assert [frame.data for frame in found] == talked(300)
    assert [frame.number for frame in found] == [*range(1, len(found) + 1)]
    assert {frame.interface.name: frame.interface.number for frame in found} == {
        "east": int(found[0].interface.name != "east"),
        "west": int(found[0].interface.name != "west"),
    }


def test_both_halves_in_two_files_are_one_connection() -> None:
    packets = list(PacketReader(merged([iter(frames) for frames in in_two(HOUR_NS)])))
    assert [(packet.source, packet.connection, packet.ahead) for packet in packets] == [
        (source, 0, False) for _ in range(300) for source in (CLIENT, SERVER)
    ]


def test_what_one_place_alone_has_bounds_the_clocks_from_one_side() -> None:
    """If a frame was caught at only one place, it limits the clocks' difference in only one direction.

    One place has the client's bytes. The other has the acknowledgment of these bytes, which seems to have come first.
    """
    frames = halves(talked(1), -HOUR_NS)
    east = [frame for frame in frames if frame.interface == EAST]
    west = [frame for frame in frames if frame.interface == WEST][1:2]
    found = [frame.interface for frame in merged([iter(east), iter(west)])]
    assert found.index(WEST) > 0


def test_captures_without_a_common_connection_keep_their_times() -> None:
    one, other = (
        [Frame(time_ns, data) for time_ns, data in some] for some in ([(1, b"a"), (3, b"c")], [(2, b"b")])
    )
    assert [frame.data for frame in merged([iter(one), iter(other)])] == [b"a", b"b", b"c"]


def test_damage_of_one_ends_no_other() -> None:
    def damaged() -> Iterator[Frame]:
        yield Frame(1, b"a")
        raise CaptureError("east.pcap", 24, "the file ends")

    frames = merged([damaged(), iter([Frame(2, b"b"), Frame(3, b"c")])])
    assert [next(frames).data for _ in range(3)] == [b"a", b"b", b"c"]
    with pytest.raises(CaptureError, match=r"east\.pcap: byte 24"):
        next(frames)


def in_three(names: list[str]) -> dict[str, list[Frame]]:
    """Return the frames of a sniffer that began a new file twice, keyed by file name."""
    frames = [Frame(time_ns, data) for time_ns, data in enumerate(talked(300), 1)]
    size = -(-len(frames) // 3)
    return {name: frames[place * size : (place + 1) * size] for place, name in enumerate(names)}


@pytest.mark.parametrize(
    "names",
    [
        [
            "net_00001_20231114221320.pcapng",
            "net_00002_20231114221321.pcapng",
            "net_00003_20231114221322.pcapng",
        ],
        ["net.pcap", "net.pcap1", "net.pcap2"],
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_files_that_one_sniffer_wrote_are_one_capture_in_whatever_order(names: list[str], order: int) -> None:
    files = [(name, iter(frames)) for name, frames in in_three(names).items()][::order]
    ((_, frames),) = series_of(files)
    packets = list(PacketReader(merged([frames])))
    assert [(packet.source, packet.connection, packet.ahead) for packet in packets] == [
        (source, 0, False) for _ in range(300) for source in (CLIENT, SERVER)
    ]


def test_files_of_several_places_are_captures_of_their_own() -> None:
    names = ["node-1.pcap", "node-2.pcap", "net.pcap"]
    found = series_of((name, iter([Frame(place, b"")])) for place, name in enumerate(names))
    assert [name for name, _ in found] == names


def test_damage_of_one_file_of_a_series_ends_none_behind_it() -> None:
    def damaged() -> Iterator[Frame]:
        yield Frame(1, b"a")
        raise CaptureError("net.pcap", 24, "the file ends")

    ((_, frames),) = series_of([("net.pcap1", iter([Frame(2, b"b")])), ("net.pcap", damaged())])
    assert [next(frames).data for _ in range(2)] == [b"a", b"b"]
    with pytest.raises(CaptureError, match=r"net\.pcap: byte 24"):
        next(frames)
