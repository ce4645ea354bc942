"""Properties of whole captures.

A correct capture accuses nobody, whatever it lacks. A faulty one is shown up to its end.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.captures.decode import Analyst, Kind, LineWriter, Names, Severity, Summary, row_of
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import PacketReader, SeenPacket
from mqproto.testing.packets import nearly_valid_packets, packets, pings
from mqproto.wire import encode_packet, ping_packet
from tests.captures.decode.lossy import lossy
from tests.captures.decode.scene import (
    BEGAN_NS,
    Scene,
    Wire,
    express,
    final,
    guid,
    names,
    ordered,
    passed_on,
    transactional,
)
from tests.conformance import ROOT

FOLDER: Final = ROOT / "captures" / "samples"

ACTIONS: Final = ("send", "send", "send", "pass", "ack", "ack", "express", "order", "cut", "resend", "ride")


@st.composite
def conversations(draw: st.DrawFn) -> Scene:
    """Draw conversations in which a sends to c through b; connections break, and messages are sent again."""
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    sent = came = had = 0  # numbers sent by a, accepted by b, accepted by c
    ack_id = 100
    for action in draw(st.lists(st.sampled_from(ACTIONS), max_size=40)):
        if action in ("send", "ride") and sent - came < 30:
            sent += 1
            came = sent
            first.send("a", transactional(sent), riding=action == "ride")
        elif action == "pass" and had < came:
            had += 1
            second.send("b", passed_on(transactional(had)))
        elif action == "ack":
            wire, end = draw(st.sampled_from([(first, "a"), (first, "b"), (second, "b"), (second, "c")]))
            wire.ack(end)
        elif action == "express":
            second.send(
                "c",
                express(
                    source=guid("c"), destination_manager=guid("b"), message_id=1_000 + len(scene.packets)
                ),
            )
        elif action == "order" and had:
            ack_id += 1
            for number in draw(st.sampled_from([[], [had]])):
                answer = final(number, ack_id + 1_000)
                second.send("c", answer)
                first.send("b", passed_on(answer))
            second.send("c", ordered(had, ack_id))
            first.send("b", passed_on(ordered(had, ack_id)))
        elif action == "resend" and had:
            number = draw(st.integers(1, had))
            first.send("a", transactional(number))
            second.send("b", passed_on(transactional(number)))
        elif action == "cut":
            if draw(st.booleans()):
                first = scene.wire("a", "b")
            else:
                second = scene.wire("b", "c")
    return scene


@settings(max_examples=150)
@given(conversations())
def test_a_conversation_by_the_book_has_no_faults(scene: Scene) -> None:
    assert scene.faults() == []


@settings(max_examples=150)
@given(conversations(), st.data())
def test_a_capture_that_lacks_some_of_it_accuses_nobody(scene: Scene, data: st.DataObject) -> None:
    scene.packets = [seen for _, seen in data.draw(lossy(scene.packets))]
    assert scene.faults(lossless=False) == []


@settings(max_examples=60)
@given(conversations(), st.integers(0, 8), st.integers(0, 30))
def test_a_capture_that_begins_or_ends_in_the_middle_accuses_nobody(
    scene: Scene, first: int, last: int
) -> None:
    scene.packets = scene.packets[first : len(scene.packets) - last]
    assert scene.faults() == []


@settings(max_examples=30)
@given(
    st.lists(packets().map(encode_packet) | nearly_valid_packets() | st.binary(max_size=60), max_size=5),
    st.data(),
)
def test_whatever_packets_come_in_whatever_order_each_is_shown_in_every_form(
    chunks: list[bytes], data: st.DataObject
) -> None:
    scene = Scene()
    wire = Wire(scene, 0, "a", "c")
    for chunk in chunks:
        fault = (
            None
            if len(chunk) > 16
            else WireFormatError("base", 0, "rubbish", "a packet", "[MS-MQMQ] 2.2.19.1")
        )
        wire.put(data.draw(st.sampled_from("ac")), chunk, fault=fault)
    analyst, summary = Analyst(names("a", "c")), Summary(Names())
    writer = LineWriter(analyst.names, relative_to_ns=data.draw(st.none() | st.just(BEGAN_NS)))
    for seen in scene.packets:
        sight = analyst.take(seen)
        summary.add(sight)
        line = writer.line(sight)
        assert line.isprintable()
        assert sight.kind.startswith(line.split()[4][:9]) or line
        row = row_of(sight, None).as_json()
        assert row["valid"] is (seen.packet is not None)
        assert row["valid"] or any(each["code"] == "malformed" for each in row["findings"])
    summary.add_findings(analyst.finish())
    assert sum(count.packets for count in summary.kinds.values()) == len(chunks)


SAMPLES: Final[dict[str, dict[str, int]]] = {
    "administration": {},
    "dead-letters": {},
    "express-pair": {},
    "final-acks": {},
    "gap-held": {"gap": 1, "gap-filled": 1, "resend": 11},
    "hostile": {"malformed": 73},
    "intermediate-killed": {"resend": 24},
    "loss-and-reordering": {"missing-bytes": 3, "caller-by-port": 1},
    "multiple-destinations": {},
    "pings": {},
    "protected": {},
    "resent": {"resend": 8},
    "three-hop": {},
    "window": {},
}


@pytest.mark.parametrize("sample", sorted(path.stem for path in FOLDER.glob("*.pcapng")))
def test_of_each_sample_that_is_found_which_it_was_made_to_show(sample: str) -> None:
    analyst, reader = Analyst(), PacketReader(read_capture(FOLDER / f"{sample}.pcapng"))
    found = [finding for seen in reader for finding in analyst.take(seen).findings]
    totals = reader.totals
    found += analyst.finish(lossless=not totals.missing_bytes)
    assert Counter(finding.code for finding in found) == SAMPLES[sample]
    faults = sum(finding.severity is Severity.FAULT for finding in found)
    assert faults == SAMPLES[sample].get("malformed", 0)
    if sample not in ("hostile", "loss-and-reordering"):
        assert totals.skipped_bytes + totals.cut_bytes + totals.other_bytes == 0


@given(pings())
def test_pings_are_shown_between_the_names_of_their_hosts(ping: object) -> None:
    datagram = ping_packet.encode(ping)  # type: ignore[arg-type]
    seen = SeenPacket(
        datagram,
        source=Endpoint("10.0.0.1", 40_000),
        destination=Endpoint("10.0.0.3", 3_527),
        time_ns=BEGAN_NS,
        connection=-1,
    )
    sight = Analyst(names("a", "c")).take(seen)
    assert (sight.kind, sight.source, sight.destination) == (Kind.PING, "a", "c")
    assert row_of(sight).connection is None


def test_a_datagram_that_is_no_ping_and_bytes_that_are_no_packet_are_malformed() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    fault = WireFormatError("base.version_number", 0, "0x47", "0x10", "[MS-MQMQ] 2.2.19.1")
    wire.put("a", b"GET / HTTP/1.1\r\n", fault=fault)
    [finding] = scene.findings()
    assert (finding.severity, finding.code) == (Severity.FAULT, "malformed")
    seen = SeenPacket(
        b"what",
        source=Endpoint("10.0.0.1", 1),
        destination=Endpoint("10.0.0.3", 3_527),
        time_ns=0,
        connection=-1,
    )
    assert [each.code for each in Analyst().take(seen).findings] == ["malformed"]


def test_a_broken_packet_is_told_all_its_faults() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    packet = bytearray(transactional(1))
    packet[60] |= 0x1F  # 31 hops
    packet[61] |= 0x04 << 2  # no such type of destination
    wire.put("a", bytes(packet))
    assert [code for code, _ in scene.faults()].count("malformed") >= 1


def test_what_senders_should_not_do_and_receivers_let_pass_is_a_note() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1, priority=5))
    assert scene.notes() == ["odd-field"]


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.6")
def test_an_administration_acknowledgment_names_the_message_that_it_is_about() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    about = wire.send("a", express(message_id=7))
    wire.send(
        "c",
        express(
            source=guid("c"),
            destination_manager=guid("a"),
            message_class=2,
            correlation_id=guid("a") + (7).to_bytes(4, "little"),
        ),
    )
    sights, _ = scene.sights()
    assert sights[-1].kind is Kind.ADMIN_ACK
    assert sights[-1].ended is not None
    assert sights[-1].ended.packets == [about.number]
