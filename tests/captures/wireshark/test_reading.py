"""Every field of every packet: what tshark reads with our dissector, compared with what `inspect_packet` reads."""

from __future__ import annotations

import re
import struct
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqproto.base.errors import WireFormatError
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import PacketReader
from mqproto.testing import mutated, nearly_valid_packets, packets
from mqproto.wire import Inspection, MqfFormatNameElement, encode_packet, inspect_packet
from mqproto.wire.layouts.base import BaseHeader, base_header
from mqproto.wire.layouts.debug import DebugHeader
from mqproto.wire.layouts.internal import EstablishConnection, InternalHeader
from mqproto.wire.layouts.multiqueue import DIRECT_NAME
from mqproto.wire.layouts.properties import MessagePropertiesHeader
from mqproto.wire.layouts.security import SecurityHeader
from mqproto.wire.layouts.session import session_header
from mqproto.wire.layouts.transaction import TransactionHeader
from mqproto.wire.layouts.user import UserHeader
from mqproto.wire.schema.record import names_of_bits
from tests.captures.wireshark.dissecting import (
    NO_XML,
    Seen,
    conversation,
    cut,
    dissected,
    drawn,
    expected_fields,
    needs_tshark,
    write_capture,
)
from tests.conformance import ROOT
from tests.examples import (
    EVERY_PACKET,
    a_connection_parameters,
    a_full_message,
    a_session_ack,
    a_user_message,
    an_establish_connection,
    poked,
)
from tests.wire.layouts.test_srmp import SIZES, headers, over_http

pytestmark = needs_tshark

SAMPLES = sorted((ROOT / "captures" / "samples").glob("*.pcapng"))

FLAG_WORDS: dict[str, type] = {
    "base.flags": BaseHeader,
    "internal.flags": InternalHeader,
    "operating_system": EstablishConnection,
    "user.flags": UserHeader,
    "transaction.flags": TransactionHeader,
    "security.flags": SecurityHeader,
    "properties.flags": MessagePropertiesHeader,
    "debug.flags": DebugHeader,
}


def differences(data: bytes, seen: Seen) -> list[str]:
    """Return the fields of a packet that only tshark sees, or only our decoder."""
    inspection = inspect_packet(data)
    expected = expected_fields(inspection)
    found = [each[:4] for each in seen.fields]
    if found == expected:
        wrong = [*wrong_values(inspection, seen)]
    else:
        wrong = [f"tshark has not {each}" for each in expected if each not in found]
        wrong += [f"only tshark has {each}" for each in found if each not in expected] or [
            "the order differs"
        ]
    findings = [str(finding) for finding in inspection.findings]
    if sorted(map(worded, findings)) != sorted(map(worded, seen.findings)):
        wrong.append(f"tshark says {seen.findings}, we say {findings}")
    faults = [finding for finding in inspection.findings if isinstance(finding, WireFormatError)]
    if len(faults) != seen.fault_count:
        wrong.append(f"tshark says that {seen.fault_count} rules are broken, we say {len(faults)}")
    return [f"{line}; see mqproto decode {data.hex()[:4000]}" for line in wrong]


def worded(fault: str) -> str:
    """Return a finding without the quoted text in its middle, because tshark and we quote text in different ways."""
    return re.sub(r" is ['\"].*, must be text", " is ..., must be text", fault, flags=re.DOTALL)


def wrong_values(inspection: Inspection, seen: Seen) -> Iterator[str]:
    bits = []
    for ours, (name, _, _, raw, shown) in zip(inspection.fields, seen.fields, strict=True):
        match ours.value:
            case int() as number:
                right = int(shown, 0) == number
            case str() as text:
                right = shown == printed(text) or any(0xD800 <= ord(each) < 0xE000 for each in text)
            case bytes() as guid if "-" in shown:
                right = shown == str(uuid.UUID(bytes_le=guid))
            case _:
                right = shown.replace(":", "") == raw
        if not right:
            yield f"{name} is {shown!r} in tshark, {ours.value!r} here"
        if (record := FLAG_WORDS.get(ours.name)) and isinstance(ours.value, int):
            word = ours.name.rpartition(".")[2]
            bits += [(f"{name}.{part}", value) for part, value in named_bits(record, word, ours.value)]
    if sorted(bits) != sorted(seen.bits):
        yield f"the bits are {sorted(seen.bits)} in tshark, {sorted(bits)} here"


def named_bits(record: type, word: str, value: int) -> Iterator[tuple[str, int]]:
    for name, place in names_of_bits(record):
        if place.attribute == word:
            yield name, value // (place.mask & -place.mask) & (place.mask // (place.mask & -place.mask))


def printed(text: str) -> str:
    """Return a text as PDML shows it: up to the first NUL, with control characters in hex, or as blanks if XML requires
    it.
    """
    return "".join(map(_printed, text.translate(NO_XML).partition("\0")[0]))


def _printed(character: str) -> str:
    if character in "\t\n\r":
        return " "
    return character if character >= " " and character != "\x7f" else f"\\x{ord(character):x}"


def all_differences(sent: list[bytes], seen: list[Seen]) -> list[str]:
    if len(sent) != len(seen):
        return [f"{len(sent)} packets were sent, tshark saw {len(seen)}"]
    return [line for data, each in zip(sent, seen, strict=True) for line in differences(data, each)]


def test_tshark_agrees_on_every_field_of_valid_packets(tmp_path: Path) -> None:
    sent = [*EVERY_PACKET, *(encode_packet(packet) for packet in drawn(packets(), 300))]
    capture = write_capture(tmp_path / "valid.pcapng", [conversation(1, *sent)])
    assert all_differences(sent, dissected(capture, tmp_path)) == []


def test_tshark_agrees_on_every_field_and_fault_of_nearly_valid_packets(tmp_path: Path) -> None:
    streams = [data for data in drawn(nearly_valid_packets(), 300) if data]
    full = encode_packet(a_full_message())
    streams += [data for data in drawn(mutated(full), 100) if data]
    # What stands behind AH: well made, with each size a lie, and mutated.
    http = over_http(headers())
    streams += [http, *(over_http(headers(**{name: 2**31 + 15})) for name in SIZES)]
    streams += [data for data in drawn(mutated(http), 100) if data]
    capture = write_capture(
        tmp_path / "nearly.pcapng", (conversation(number, data) for number, data in enumerate(streams))
    )
    sent = [data for stream in streams for data in cut(stream)]
    assert all_differences(sent, dissected(capture, tmp_path)) == []


def bytes_of(seen: Seen) -> bytes:
    """Return a packet that is put together from tshark's fields; these must contain every byte exactly once."""
    return bytes.fromhex("".join(raw for _, _, _, raw, _ in seen.fields))


@pytest.mark.long
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_tshark_agrees_on_every_packet_of_the_samples(sample: Path, tmp_path: Path) -> None:
    reader = PacketReader(read_capture(sample))
    ours = Counter(packet.data for packet in reader if packet.framed)
    seen = dissected(sample, tmp_path)
    theirs = Counter(data for data in map(bytes_of, seen) if data in ours)
    assert len(theirs) >= len(ours) // 2
    if not reader.totals.missing_bytes:  # Where frames were lost, Wireshark finds its way in another manner.
        assert theirs == ours
        assert all(bytes_of(each) in ours or each.fault_count for each in seen)
    packets_seen = [each for each in seen if bytes_of(each) in ours and not is_ping(each)]
    assert [line for each in packets_seen for line in differences(bytes_of(each), each)] == []


def is_ping(seen: Seen) -> bool:
    return seen.fields[0][0].startswith("msmq.ping.")


def with_honest_size(data: bytes) -> bytes:
    """Return a packet with a PacketSize that covers everything up to its last byte."""
    riding = session_header.sizeof() if data[2] & 0x18 == 0x10 else 0
    return poked_size(data, len(data) - riding)


def poked_size(data: bytes, size: int) -> bytes:
    at = base_header.offset_of("packet_size")
    return data[:at] + struct.pack("<I", size) + data[at + 4 :]


def hostile_packets() -> Iterator[bytes]:
    """Yield packets that have broken parsers of this protocol; tests/wire/test_refusals.py has what our own parser
    refuses.
    """
    full, plain = encode_packet(a_full_message()), encode_packet(a_user_message())
    for size in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0):
        for name in (
            "properties.message_size",
            "properties.extension_size",
            "soap.header_data_length",
            "soap.body_data_length",
            "security.sender_cert_size",
            "security.provider_info_size",
            "multi_queue_format.destination.header_size",
            "multi_queue_format.destination.element_count",
            "multi_queue_format.response.element_count",
            "multi_queue_format.signature.size",
            "base.packet_size",
        ):
            yield poked(full, name, size)
        yield poked(plain, "user.flags", size)
    for size in (0, 1, 3, 0x7FFF, 0x8000, 0xFFFF):
        for name in (
            "user.destination_queue.count",
            "user.response_queue.count",
            "security.sender_id_size",
            "security.signature_size",
            "multi_queue_format.destination.format_name_list.elements[0].format_type",
            "debug.flags",
            "base.flags",
        ):
            yield poked(full, name, size)
        yield poked(full, "properties.label_length", size & 0xFF)
        yield poked(encode_packet(a_session_ack()), "internal.flags", size)
        yield poked(encode_packet(an_establish_connection()), "base.flags", size)
    yield poked(full, "properties.label", "a\0b\0c\0".encode("utf-16-le"))
    for packet in (full, encode_packet(a_session_ack()), encode_packet(a_connection_parameters())):
        for size in range(16, len(packet), 1 + len(packet) // 200):
            yield with_honest_size(packet[:size])
    yield from (bytes(20), b"\xff" * 700, b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", plain[16:])


def test_tshark_agrees_on_hostile_packets_without_an_error_in_lua(tmp_path: Path) -> None:
    streams = list(hostile_packets())
    capture = write_capture(
        tmp_path / "hostile.pcapng", (conversation(number, data) for number, data in enumerate(streams))
    )
    sent = [data for stream in streams for data in cut(stream)]
    assert sum(not inspect_packet(data).is_valid for data in sent) > 300
    assert all_differences(sent, dissected(capture, tmp_path)) == []


def test_a_packet_with_too_many_fields_is_judged_to_its_end(tmp_path: Path) -> None:
    message = a_full_message()
    assert message.multi_queue_format is not None
    names = [MqfFormatNameElement(DIRECT_NAME, b"", "")] * 3_400
    message.multi_queue_format.destination.format_name_list.elements = names
    data = encode_packet(message)
    name = f"multi_queue_format.destination.format_name_list.elements[{len(names) - 1}].format_type"
    [last] = (field for field in inspect_packet(data).fields if field.name == name)
    broken = data[:-4] + bytes(2) + data[-2:]  # WindowSize, of the SessionHeader
    lost = broken[: last.offset] + b"\5" + broken[last.offset + 1 :]
    capture = write_capture(tmp_path / "many.pcapng", [conversation(1, data, broken, lost)])
    many = "Too many fields to show them all; all of them were judged"
    seen = dissected(capture, tmp_path)
    assert [sorted(each.findings) for each in seen] == [
        sorted([*map(str, inspect_packet(each).findings), many]) for each in (data, broken, lost)
    ]
    assert [each.fault_count for each in seen] == [0, 1, 2]
