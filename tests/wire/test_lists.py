"""Lists of queues: generated code and construct agree on them, their sizes are bounded, and refusals are cheap."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.formatname.wire import destinations_to_wire, element_from_wire
from mqproto.testing.headers import mqf_format_name_elements
from mqproto.wire import (
    FormatNameList,
    MqfAddressHeader,
    MqfFormatNameElement,
    MultiQueueFormatHeader,
    UserMessage,
    check_packet,
    decode_message,
    decode_packet,
    encode_packet,
    inspect_packet,
    reference,
)
from mqproto.wire.layouts.base import MAXIMUM_PACKET_SIZE
from mqproto.wire.layouts.multiqueue import DIRECT_NAME, MAXIMUM_ELEMENTS
from mqproto.wire.schema.stream import Onlooker, nul_at
from tests.counting import allocated, instructions_of
from tests.examples import a_multi_queue_format_header, a_user_message

DESTINATIONS, ADMINISTRATION, RESPONSES, SIGNATURE = 0x64, 0xC8, 0x12C, 0x15E
SMALLEST: Final = struct.pack("<HH", DIRECT_NAME, 0)
"""A direct name without a character."""


def a_message(
    destinations: list[MqfFormatNameElement],
    administration: list[MqfFormatNameElement] | None = None,
    responses: list[MqfFormatNameElement] | None = None,
) -> UserMessage:
    """Return a message with these lists."""
    message = a_user_message(body=b"")
    message.user.has_multi_queue_format = True
    message.multi_queue_format = MultiQueueFormatHeader(
        destination=MqfAddressHeader(format_name_list=FormatNameList(destinations)),
        administration=MqfAddressHeader(format_name_list=FormatNameList(administration or [])),
        response=MqfAddressHeader(format_name_list=FormatNameList(responses or [])),
    )
    return message


def a_list(header_id: int, count: int, data: bytes, size: int | None = None) -> bytes:
    """Return one MQFAddressHeader, with any claims about itself; its size is right unless another is given."""
    return struct.pack("<IHHI", 12 + len(data) if size is None else size, header_id, 0, count) + data


def padded(data: bytes) -> bytes:
    """Return the bytes of a header's list, padded so that the list ends on a 4-byte boundary."""
    return data + bytes(-len(data) & 3)


def a_packet(destinations: bytes, rest: bytes = b"") -> bytes:
    """Return a message whose MultiQueueFormatHeader begins with these bytes; the other lists are empty."""
    others = a_list(ADMINISTRATION, 0, b"") + a_list(RESPONSES, 0, b"") + struct.pack("<HHI", SIGNATURE, 0, 0)
    empty = encode_packet(a_message([]))
    packet = bytearray(empty[: -len(a_list(DESTINATIONS, 0, b"") + others)])
    packet += padded(destinations) + (rest or others)
    packet[8:12] = struct.pack("<I", len(packet))
    return bytes(packet)


def a_packet_full_of(element: bytes, size: int, count: int | None = None) -> bytes:
    """Return a packet of at most this size that lists one name as often as there is room for it."""
    room = size - len(a_packet(a_list(DESTINATIONS, 0, b"")))
    times = room // len(element)
    return a_packet(a_list(DESTINATIONS, times if count is None else count, element * times))


def outcome(judge: Callable[[bytes], object], data: bytes) -> object:
    """Return the result of reading, or every word of the refusal."""
    try:
        return judge(data)
    except WireFormatError as error:
        return str(error)


def test_the_example_packets_are_what_the_codec_writes() -> None:
    names = [MqfFormatNameElement(DIRECT_NAME, b"", "OS:a\\b"), MqfFormatNameElement(DIRECT_NAME, b"", "")]
    data = struct.pack("<H", DIRECT_NAME) + "OS:a\\b\0".encode("utf-16-le") + SMALLEST
    assert a_packet(a_list(DESTINATIONS, 2, padded(data))) == encode_packet(a_message(names))


NAMES: Final = (r"OS:a-server-of-windows\PRIVATE$\orders", r"OS:another\PRIVATE$\the-second-one-of-these-two")
"""Two names that take 178 bytes in a list, as in the only list written by Windows whose bytes are known."""


@pytest.mark.spec("[MS-MQMQ] 2.2.20.2")
def test_the_size_of_a_list_counts_the_padding_behind_its_names() -> None:
    """In the list written by Windows, the names take 178 bytes, or 190 with the 12 bytes before them; its HeaderSize is
    192.
    """
    elements = [MqfFormatNameElement(DIRECT_NAME, format_name=name) for name in NAMES]
    message = a_message([])
    message.multi_queue_format = destinations_to_wire(map(element_from_wire, elements))
    names = b"".join(struct.pack("<H", DIRECT_NAME) + f"{name}\0".encode("utf-16-le") for name in NAMES)
    assert len(names) == 178
    written = struct.pack("<IHHI", 192, DESTINATIONS, 0, 2) + names + bytes(2)
    assert encode_packet(message) == reference.packet.build(message) == a_packet(written)


@pytest.mark.spec("[MS-MQMQ] 2.2.20.2")
@given(st.lists(mqf_format_name_elements(), min_size=1, max_size=5), st.binary(min_size=3, max_size=3))
def test_a_list_is_read_whether_or_not_its_size_counts_the_padding_and_written_as_it_came(
    elements: list[MqfFormatNameElement], filler: bytes
) -> None:
    packet = encode_packet(a_message(elements))
    size_at = packet.index(struct.pack("<HHI", DESTINATIONS, 0, len(elements))) - 4
    [size] = struct.unpack_from("<I", packet, size_at)
    assert size % 4 == 0
    elements_end = size_at + 12 + len(b"".join(_elements_of(packet)))
    missing = -elements_end & 3
    for counted in {0, missing}:
        data = (
            packet[:size_at]
            + struct.pack("<I", size - missing + counted)
            + packet[size_at + 4 : elements_end]
        )
        data += filler[:missing] + packet[elements_end + missing :]
        message = decode_message(data)
        assert message == reference.read(data) == a_message(elements)
        check_packet(data)
        assert encode_packet(message) == reference.packet.build(message) == data
        header = message.multi_queue_format
        assert header is not None
        assert header.destination.format_name_list.padding == (filler[:missing] if counted else b"")
        assert inspect_packet(data).findings == []


def _elements_of(packet: bytes) -> list[bytes]:
    """Return the bytes of the fields in a packet's first list."""
    names = "multi_queue_format.destination.format_name_list.elements["
    return [field.raw for field in inspect_packet(packet).fields if field.name.startswith(names)]


# Both codecs


@given(st.lists(mqf_format_name_elements(), max_size=40), st.lists(mqf_format_name_elements(), max_size=3))
def test_lists_of_any_names_are_written_and_read_by_both_codecs_alike(
    destinations: list[MqfFormatNameElement], responses: list[MqfFormatNameElement]
) -> None:
    message = a_message(destinations, [], responses)
    data = encode_packet(message)
    assert data == reference.packet.build(message)
    assert decode_packet(data) == reference.read(data) == message
    check_packet(data)


PIECES: Final = st.sampled_from(
    [
        SMALLEST,
        struct.pack("<H", 1) + b"public queue GUID",
        struct.pack("<H", 1) + bytes(range(1, 17)),
        struct.pack("<HH", 2, 0) + bytes(range(1, 21)),
        struct.pack("<H", 3) + "OS:a\\q\0".encode("utf-16-le"),
        struct.pack("<H", 3) + "OS:a\\q".encode("utf-16-le"),
        struct.pack("<HH", 6, 0) + bytes(range(1, 17)),
        struct.pack("<H", 6) + bytes(16),
        struct.pack("<H", 3) + b"\x01\0\0\x01" * 3 + b"\0\0",
        b"\0",
        b"\0\0",
        b"\x03",
        b"\x09\0",
        b"\xff\xff",
        b"\x00\xd8",
    ]
)


@given(
    st.lists(PIECES, max_size=8).map(b"".join), st.integers(0, 9), st.none() | st.integers(0, 80), st.data()
)
def test_both_codecs_agree_on_lists_that_are_nearly_right_word_for_word(
    pieces: bytes, count: int, size: int | None, data: st.DataObject
) -> None:
    """This holds for any count, wherever the window ends, and even if the packet ends before that."""
    packet = a_packet(a_list(DESTINATIONS, count, pieces, size))
    packet = packet[: len(packet) - data.draw(st.integers(0, 60))]
    packet = packet[:8] + struct.pack("<I", len(packet)) + packet[12:]
    verdict = outcome(reference.read, packet)
    assert outcome(decode_packet, packet) == verdict
    assert outcome(check_packet, packet) == (verdict if isinstance(verdict, str) else None)
    if not isinstance(verdict, str):
        assert encode_packet(decode_packet(packet)) == packet


@given(st.lists(mqf_format_name_elements(), min_size=1, max_size=30), st.data())
def test_of_a_list_with_one_bad_name_both_codecs_blame_that_one(
    elements: list[MqfFormatNameElement], data: st.DataObject
) -> None:
    """Generated code skips the good names before the bad one, but the error names the bad one."""
    packet = bytearray(encode_packet(a_message(elements)))
    index = data.draw(st.integers(0, len(elements) - 1))
    seen: list[Any] = []
    reference.read(bytes(packet), Onlooker(seen))
    name = f"multi_queue_format.destination.format_name_list.elements[{index}].format_type"
    [at] = [offset for field, offset, *_ in seen if field == name]
    packet[at : at + 2] = b"\x09\0"
    verdict = outcome(reference.read, bytes(packet))
    assert isinstance(verdict, str)
    assert verdict.startswith(f"{name} at byte {at} is 9")
    assert outcome(decode_packet, bytes(packet)) == outcome(check_packet, bytes(packet)) == verdict


@given(st.text(st.sampled_from("\0\u0100\u0001a\ud800"), max_size=12), st.integers(0, 3), st.integers(0, 30))
def test_a_nul_is_found_between_characters_and_never_within_two(text: str, at: int, end: int) -> None:
    data = bytes(at) + text.encode("utf-16-le", "surrogatepass")
    end = min(end, len(data))
    places = [place for place in range(at, end - 1, 2) if data[place : place + 2] == b"\0\0"]
    assert nul_at(data, at, end) == (places or [-1])[0]


# The bound


@pytest.mark.spec("[MS-MQMQ] 2.2.20.2")
def test_a_list_may_have_4096_queues_and_no_more() -> None:
    element = MqfFormatNameElement(DIRECT_NAME, b"", r"OS:server\private$\orders")
    most = a_message([element] * MAXIMUM_ELEMENTS, [element] * MAXIMUM_ELEMENTS, [element] * MAXIMUM_ELEMENTS)
    data = encode_packet(most)
    assert decode_packet(data) == most
    check_packet(data)
    more = a_message([element] * (MAXIMUM_ELEMENTS + 1))
    for encode in (encode_packet, reference.packet.build):
        with pytest.raises(UsageError, match="element_count is 4097, must be at most 4096"):
            encode(more)
    one_more = a_packet_full_of(SMALLEST, 20_000, MAXIMUM_ELEMENTS + 1)
    for judge in (decode_packet, check_packet, reference.read):
        with pytest.raises(
            WireFormatError, match=r"destination\.element_count at byte 144 is 0x1001"
        ) as caught:
            judge(one_more)
        assert caught.value.section == "[MS-MQMQ] 2.2.20.2"


@pytest.mark.spec("[MS-MQMQ] 2.2.20.2")
def test_an_analyst_is_shown_one_fault_and_the_rest_unread() -> None:
    packet = a_packet_full_of(SMALLEST, 400_000)
    seen = inspect_packet(packet)
    assert [finding.field for finding in seen.findings] == ["multi_queue_format.destination.element_count"]
    assert [field.name for field in seen.fields[-2:]] == [
        "multi_queue_format.destination.element_count",
        "unread",
    ]
    assert instructions_of(lambda: inspect_packet(packet)).total() < 20_000


# What they cost


@pytest.mark.parametrize("judge", [decode_packet, check_packet])
@pytest.mark.parametrize("size", [400_000, MAXIMUM_PACKET_SIZE])
def test_a_packet_that_lists_a_million_queues_is_refused_for_what_its_head_costs(
    judge: Callable[[bytes], object], size: int
) -> None:
    """With the earlier interpreted code, a packet of 4 MiB took 17 s and 290 MB; one of 400 kB took 1.5 s and 27 MB."""
    packet = a_packet_full_of(SMALLEST, size)
    assert "element_count" in str(outcome(judge, packet))
    assert instructions_of(lambda: outcome(judge, packet)).total() < 10_000
    assert allocated(lambda: outcome(judge, packet)) < 32 * 1_024


@pytest.mark.parametrize(
    ("judge", "spoilt", "instructions_each", "bytes_each"),
    [
        (decode_packet, False, 150, 80),
        (check_packet, False, 100, 1),
        (decode_packet, True, 350, 100),
        (check_packet, True, 300, 20),
    ],
)
def test_what_each_queue_of_a_list_costs(
    judge: Callable[[bytes], object], spoilt: bool, instructions_each: int, bytes_each: int
) -> None:
    """This includes lists whose last name is refused: construct, which has to word the refusal, is told where that name
    is.
    """
    packet = a_packet(a_list(DESTINATIONS, MAXIMUM_ELEMENTS, SMALLEST * MAXIMUM_ELEMENTS))
    if spoilt:
        at = packet.rindex(SMALLEST)
        packet = packet[:at] + b"\x09\0" + packet[at + 2 :]
    assert ("elements[4095]" in str(outcome(judge, packet))) == spoilt
    assert instructions_of(lambda: outcome(judge, packet)).total() < instructions_each * MAXIMUM_ELEMENTS
    assert allocated(lambda: outcome(judge, packet)) < bytes_each * MAXIMUM_ELEMENTS + 32 * 1_024


def test_a_text_of_zeros_that_end_no_character_is_read_once() -> None:
    """Two of every four bytes are zero, but only the last zeros are a NUL."""
    text = "\u0001\u0100" * 100_000
    packet = encode_packet(a_message([MqfFormatNameElement(DIRECT_NAME, b"", text)]))
    few = encode_packet(a_message([MqfFormatNameElement(DIRECT_NAME, b"", text[:20_000])]))
    costs = [instructions_of(partial(check_packet, data)).total() for data in (few, packet)]
    assert costs[1] < 11 * costs[0]
    header = decode_message(packet).multi_queue_format
    assert header is not None
    assert header.destination.format_name_list.elements[0].format_name == text


def test_an_example_of_every_kind_of_name_takes_the_generated_way() -> None:
    message = a_message([])
    message.multi_queue_format = a_multi_queue_format_header()
    assert decode_packet(encode_packet(message)) == message
