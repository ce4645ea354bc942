"""Captures that lack frames, or have them in a different order: tshark with our dissector makes no false accusations.

It accuses nobody whom `mqproto decode` does not accuse.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import strategies as st

from mqproto.captures.decode import Analyst
from mqproto.captures.decode.analyst import sights
from mqproto.captures.decode.findings import Severity
from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import PacketReader
from mqproto.wire import encode_packet
from tests.captures.truth.kinds import KINDS, SECOND_NS
from tests.captures.wireshark.dissecting import NO_XML, SERVER, Seen, drawn, needs_tshark, seen_in, tshark
from tests.examples import EVERY_PACKET, a_session_ack

pytestmark = needs_tshark

TWO_POINTS: Final = {"TAP", "TAP, two files", "at each host"}
"""Kinds of damage that need several interfaces; they are left out, because all connections here share one interface."""
HARMLESS: Final = {"nothing", "ends early", "0.1 % lost", "0.5 % lost", "1 % swapped"}
"""Kinds of damage that change hardly anything if there are few frames."""
ROTATED: Final = {"rotated", "rotated, a file gone"}
"""Kinds of damage that make several files; nobody opens these as one unless they have been put in order."""
TRANSLATED: Final = {"address translation", "address translation, 1 % lost"}
"""Kinds of damage after which Wireshark sees two connections instead of one."""
DAMAGED: Final = {"5 % damaged, sent again"}
"""Kinds of damage for which Wireshark reports faults, but `mqproto decode` does not."""
SPOILT: Final = [
    *sorted(KINDS.keys() - TWO_POINTS - HARMLESS - ROTATED - TRANSLATED - DAMAGED),
    *["begins late"] * 2,
]
APART_S: Final = 10_000
"""The number of seconds between two connections. No kind of damage corrects a clock by that much.

All connections have the same bytes and numbers, so two that appear at the same moment look like one that is translated.
"""
FIRST_PORT: Final = 40_000
LENGTHS: Final = (45, 300)
"""Segment lengths with which nearly all segments begin inside a packet."""
HEAD_BYTES: Final = 16
BROKEN: Final = b"no packet begins with these bytes, though one has to"
ACK: Final = encode_packet(a_session_ack())
ODD: Final = ACK[:-4] + bytes(2) + ACK[-2:]
"""Bytes with a valid header, and a window of zero."""
HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(506)
ENCRYPTED: Final = b"\x17\x03\x03\x03\x00" + b"\xa5" * 768


class Said(NamedTuple):
    """What is reported about one connection.

    accused: the first bytes of the packets that break a rule.
    tls: the texts that say that the connection is encrypted.
    """

    accused: set[bytes]
    tls: set[str]


def frames_of(number: int, *said: bytes, segment_bytes: int = 300) -> list[Frame]:
    """Return the frames of a connection on which the two sides take turns to send these bytes."""
    client = Endpoint(f"127.1.{number >> 8}.{number & 255}", FIRST_PORT + number)
    talk = TcpConversation(client, SERVER, segment_bytes=segment_bytes)
    raw = list(talk.open())
    for place, data in enumerate(said):
        raw += talk.send(Side.SERVER if place % 2 else Side.CLIENT, data)
    began_ns = (1_700_000_000 + APART_S * number) * SECOND_NS
    return [Frame(began_ns + place * 1_000_000, data) for place, data in enumerate(raw)]


def written(path: Path, connections: list[list[Frame]]) -> Path:
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for frames in connections:
            for frame in frames:
                writer.write(frame._replace(interface=Interface(), number=0, offset=0))
    return path


def by_decode(path: Path) -> dict[int, Said]:
    """Return what `mqproto decode` reports about each connection, keyed by the connection's number.

    The client's port is FIRST_PORT plus that number.
    """
    found: defaultdict[int, Said] = defaultdict(lambda: Said(set(), set()))
    for sight in sights(PacketReader(read_capture(path)), Analyst()):
        number = max(sight.seen.source.port, sight.seen.destination.port) - FIRST_PORT
        for finding in sight.findings:
            if finding.code == "malformed":
                assert finding.severity is Severity.FAULT
                found[number].accused.add(sight.seen.data[:HEAD_BYTES])
            elif finding.code == "encrypted":
                found[number].tls.add(finding.text)
    return found


def by_tshark(path: Path, folder: Path, *arguments: str) -> tuple[dict[int, Said], int]:
    """Return what our dissector reports about each connection, and how many times bytes could not be identified.

    The reports are keyed by the connection's number, which the client's port shows.
    """
    found: defaultdict[int, Said] = defaultdict(lambda: Said(set(), set()))
    unknown = 0
    for number, seen in packets_of(
        tshark(path, folder, "-Y", "msmq", "-J", "tcp msmq", "-T", "pdml", *arguments)
    ):
        if seen.fault_count:
            found[number].accused.add(bytes.fromhex("".join(raw for *_, raw, _ in seen.fields))[:HEAD_BYTES])
        found[number].tls.update(text for text in seen.findings if text.startswith("TLS ("))
        unknown += any(text.startswith("No packet begins here") for text in seen.findings)
    return found, unknown


def packets_of(pdml: str) -> Iterator[tuple[int, Seen]]:
    """Yield the packets that our dissector found, each with its connection's number, which the client's port shows."""
    for packet in ET.fromstring(pdml.translate(NO_XML)).iter("packet"):
        ports = [int(each.get("show", "")) for each in packet.iter("field") if each.get("name") == "tcp.port"]
        yield from ((max(ports) - FIRST_PORT, seen) for seen in seen_in(packet))


def test_a_clock_that_is_put_right_makes_no_connection_a_translation_of_the_next(tmp_path: Path) -> None:
    [spoilt] = KINDS["clock put right"](frames_of(0, *EVERY_PACKET), 7)
    capture = written(tmp_path / "two.pcapng", [spoilt, frames_of(1, *EVERY_PACKET)])
    reader = PacketReader(read_capture(capture))
    assert len({packet.connection for packet in reader}) == 2
    assert reader.translations.found == []


def test_whoever_is_accused_in_a_capture_that_lacks_something_is_accused_by_decode_too(
    tmp_path: Path,
) -> None:
    seeds = drawn(st.integers(0, 10**6), len(LENGTHS) * len(SPOILT))
    broken = [BROKEN, *EVERY_PACKET[:3], EVERY_PACKET[0][100:]]
    said = [*EVERY_PACKET, ODD, *EVERY_PACKET, *broken, *EVERY_PACKET]
    whole = frames_of(0, *said), frames_of(1, HELLO, HELLO, *[ENCRYPTED] * 20)
    connections = [*whole]
    for number, (kind, seed) in enumerate(zip(len(LENGTHS) * SPOILT, seeds, strict=True), 2):
        [spoilt] = KINDS[kind](frames_of(number, *said, segment_bytes=LENGTHS[number % len(LENGTHS)]), seed)
        connections.append(spoilt)
    # Acknowledged before it stands in the capture: tshark takes the first segment for a second one.
    connections += KINDS["shuffled"](frames_of(len(connections), *said, segment_bytes=LENGTHS[0]), 6256)
    capture = written(tmp_path / "spoilt.pcapng", connections)
    ours, (theirs, unknown) = by_decode(capture), by_tshark(capture, tmp_path, "-2")
    for number, each in theirs.items():
        what = f"{['nothing', 'TLS', *len(LENGTHS) * SPOILT, 'known'][number]} {[0, 0, *seeds, 6256][number]}"
        assert each.accused <= ours[number].accused, what
        assert each.tls <= ours[number].tls, what
    # Where nothing is lacking, both say the same.
    assert theirs[0] == ours[0]
    assert len(ours[0].accused) == 3
    assert theirs[1] == ours[1]
    assert len(ours[1].tls) == 1
    assert unknown > 30
