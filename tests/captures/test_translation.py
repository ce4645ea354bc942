"""A connection that is seen on both sides of address translation counts as one; no other two connections do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from mqproto.captures import spoil
from mqproto.captures.decode import Analyst, Finding
from mqproto.captures.files.frame import Frame
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import PacketReader, SeenPacket
from mqproto.captures.translation import said_of
from mqproto.wire import encode_packet, establish_connection, guid_from_text
from tests.captures.pipeline.samples import FRAMES

LATE_NS = 20_000
HERE, THERE = Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.9", 1801)
GUID = guid_from_text("00000000-0000-0000-0000-00000000000a")
OTHER = guid_from_text("00000000-0000-0000-0000-00000000000b")
ASKED = encode_packet(establish_connection(client=GUID, server=GUID, time_stamp_ms=1))
NAMES = [name for name in FRAMES if name not in ("pings", "hostile", "loss-and-reordering")]


def read(frames: Iterable[Frame]) -> tuple[PacketReader, list[SeenPacket]]:
    reader = PacketReader(frame._replace(number=number) for number, frame in enumerate(frames, 1))
    return reader, list(reader)


def talked(client: Endpoint, packet: bytes, sequence: int = 7, *, server: Endpoint = THERE) -> list[Frame]:
    talk = TcpConversation(client, server, client_sequence=sequence, server_sequence=~sequence % 2**32)
    frames = [*talk.open(), *talk.send(Side.CLIENT, packet), *talk.finish(Side.CLIENT)]
    return [Frame(10**12 + number * 1_000, data) for number, data in enumerate(frames)]


def findings(packets: Iterable[SeenPacket]) -> list[Finding]:
    analyst = Analyst()
    return [finding for each in packets for finding in analyst.take(each).findings]


def others(frames: Sequence[Frame]) -> list[str]:
    """Return what is said about connections that were recognized as copies of others."""
    reader, _ = read(sorted(frames, key=lambda frame: frame.time_ns))
    return said_of(reader.translations.found)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_caught_on_both_sides_is_read_and_judged_once(name: str) -> None:
    _, whole = read(FRAMES[name])
    reader, packets = read(spoil.translated(FRAMES[name], LATE_NS))
    assert [each.data for each in packets] == [each.data for each in whole]
    assert findings(packets) == findings(whole)
    connections = {each.connection for each in whole}
    assert len(reader.translations.found) == len(connections)
    _, apart = read(spoil.translated(FRAMES[name], LATE_NS, apart=True))
    assert {each.data for each in apart} == {each.data for each in whole}
    assert {each.interface.number for each in apart} == {0, 1}
    assert len({each.connection for each in apart}) == len(connections)


@pytest.mark.parametrize("asks", [5, 7], ids=["inside", "outside"])
def test_what_one_side_alone_caught_before_both_were_known_as_one_is_of_that(asks: int) -> None:
    frames, (_, whole) = FRAMES["express-pair"], read(FRAMES["express-pair"])
    caught = list(spoil.translated(frames, LATE_NS))
    reader, packets = read([*caught[:asks], *caught[asks + 1 :]])
    assert [each.data for each in packets] == [each.data for each in whole]
    assert reader.totals.is_complete


def test_it_is_said_which_connection_is_which() -> None:
    frames = [*talked(HERE, ASKED), *talked(HERE._replace(port=50_001), ASKED, sequence=99)]
    reader, _ = read(spoil.translated(frames, LATE_NS))
    assert [str(each) for each in Analyst().finish(translations=reader.translations.found)] == [
        "note address-translation: the connection 198.51.100.1:20000 > 10.0.0.9:1801 is 10.0.0.1:50000 > "
        "10.0.0.9:1801, seen once more behind address translation, and is judged as that; so is 1 more of 10.0.0.9 and "
        "198.51.100.1, which is of 10.0.0.9 and 10.0.0.1"
    ]


def test_other_numbers_other_contents_and_other_times_are_other_connections() -> None:
    again = HERE._replace(host="10.0.0.2")
    asked_by_another = encode_packet(establish_connection(client=OTHER, server=GUID, time_stamp_ms=1))
    one = talked(HERE, ASKED)
    assert others([*one, *talked(again, ASKED)])
    assert others([*one, *talked(again, ASKED, sequence=8)]) == []
    assert others([*one, *talked(again, asked_by_another)]) == []
    assert others([*one, *talked(again, ASKED[:8])]) == []
    # Numbers that nobody chose by chance are those of any connection; but this one has the same ends, bar a port.
    assert others([*one, *talked(HERE._replace(port=50_001), ASKED)]) == []
    assert others([*one, *talked(HERE, ASKED, server=THERE._replace(port=18_010))])
    later = [frame._replace(time_ns=frame.time_ns + 3_600 * 10**9) for frame in talked(again, ASKED)]
    assert others([*one, *later]) == []


def test_a_port_that_is_given_to_another_client_is_that_clients_from_then_on() -> None:
    outside = Endpoint("198.51.100.1", 20_000)
    second = HERE._replace(port=50_001)
    asked = encode_packet(establish_connection(client=OTHER, server=GUID, time_stamp_ms=1))
    by_itself = encode_packet(establish_connection(client=OTHER, server=OTHER, time_stamp_ms=2))
    rounds = [
        (7, ASKED, (HERE, outside)),
        (8, asked, (second, outside)),
        (9, by_itself, (outside,)),
    ]
    frames = [
        frame._replace(time_ns=frame.time_ns + place * 10**9 + number * 10)
        for place, (sequence, packet, clients) in enumerate(rounds)
        for number, client in enumerate(clients)
        for frame in talked(client, packet, sequence)
    ]
    reader, packets = read(sorted(frames, key=lambda frame: frame.time_ns))
    assert [(each.source, each.data) for each in packets] == [
        (HERE, ASKED),
        (second, asked),
        (outside, by_itself),
    ]
    assert [each.shown for each in reader.translations.found] == [
        (HERE, THERE),
        None,
        (second, THERE),
        None,
    ]
