"""Messages that are alike: a judgment about one holds for the others, and nothing more is assumed."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.testing import mutated, packets, user_messages
from mqproto.wire import (
    MAXIMUM_PACKET_SIZE,
    BaseHeader,
    Packet,
    SessionHeader,
    UserMessage,
    check_packet,
    decode_message,
    encode_packet,
    with_session_header,
)
from mqproto.wire.glance import head_of, reach_deadline_s, receive_deadline_s
from mqproto.wire.messages import asks_final_ack
from mqproto.wire.shapes import KNOWN, LONGEST_HEAD, Facts, Run, Shape, Shapes, run_of
from tests.examples import (
    a_multi_queue_format_header,
    a_soap_header,
    a_transaction_header,
    a_transactional_message,
    a_user_message,
)

ACK = SessionHeader(1, 1, 1, 1, 1, 64)
BITS = [1 << bit for bit in range(8)]


def found(shapes: Shapes, came: Iterable[bytes]) -> tuple[list[bytes], str]:
    """Return the packets that were handed out, and the reason why no more were."""
    given_out: list[bytes] = []
    try:
        for run in shapes.runs(came):
            given_out += [run] if isinstance(run, bytes) else run.packets
    except WireFormatError as error:
        return given_out, str(error)
    return given_out, ""


def checked(came: Iterable[bytes]) -> tuple[list[bytes], str]:
    """Check each packet; return the good ones, and the reason for stopping."""
    good: list[bytes] = []
    for packet in came:
        try:
            if not packet[2] & 8:  # IN
                check_packet(packet)
        except WireFormatError as error:
            return good, str(error)
        good.append(packet)
    return good, ""


def one_run(*came: bytes) -> bool:
    """Return whether these packets are taken for messages that are alike."""
    runs = list(Shapes().runs(came))
    return len(runs) == 1 and isinstance(runs[0], Run) and runs[0].packets == list(came)


def changed(packet: bytes, at: int, bits: int) -> bytes:
    """Return the packet with bits of one byte inverted."""
    return b"".join((packet[:at], bytes((packet[at] ^ bits,)), packet[at + 1 :]))


def with_soap() -> UserMessage:
    """Return a message with a SoapHeader."""
    message = a_user_message(transaction=None)
    message.user.has_soap, message.soap = True, a_soap_header()
    return message


KINDS = {
    "express": a_user_message(transaction=None, label=""),
    "transactional": a_transactional_message(),
    "labelled": a_transactional_message(label="4711", body=b"12345"),
    "direct": a_transactional_message(destination=r"OS:c\q", label="x"),
    "with a response queue": a_user_message(response_queue=r"TCP:1.1\r", label="\ud800"),
    "for a connector": a_transactional_message(
        transaction=a_transaction_header(flags=1, connector_qm_guid=bytes(16))
    ),
    "with an extension": a_transactional_message(extension=b"abc"),
    "traced": a_user_message(trace_queue=bytes(16)),
    "with a sender": a_user_message(sender_id=b"\1\1\0\0\0\0\0\1\0\0\0\0"),
    "with SOAP": with_soap(),
    "to a list": a_user_message(multi_queue_format=a_multi_queue_format_header()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_packet_of_which_one_byte_is_another_is_judged_as_if_it_came_alone(kind: str) -> None:
    packet = encode_packet(KINDS[kind])
    other = encode_packet(KINDS[kind])
    for at in range(len(packet)):
        for bits in (1, 0x10, 0x80, packet[at]):
            came = [packet, other, changed(packet, at, bits), packet]
            assert found(Shapes(), came) == checked(came), f"byte {at} with {bits:#x} turned"


@pytest.mark.parametrize(("number", "previous"), [(0, 0), (1, 0), (2**32 - 1, 2**32 - 2), (5, 2**32 - 1)])
def test_a_place_in_a_sequence_is_judged_in_each(number: int, previous: int) -> None:
    packet = encode_packet(a_transactional_message(label=""))
    at = packet.index(struct.pack("<II", 2, 1))  # the numbers of the example
    other = packet[:at] + struct.pack("<II", number, previous) + packet[at + 8 :]
    assert found(Shapes(), [packet, packet, other]) == checked([packet, packet, other])


@pytest.mark.parametrize("length", [249, 250, 251, 255])
def test_a_label_is_not_longer_than_it_may_be(length: int) -> None:
    packet = encode_packet(a_transactional_message(label="", body=b""))
    text = ("x" * (length - 1) + "\0").encode("utf-16-le") + bytes(-2 * length % 4)
    at = len(packet) - 55  # LabelLength, of 56 bytes of properties
    long = bytearray(packet[:at] + bytes((length,)) + packet[at + 1 :] + text)
    long[8:12] = len(long).to_bytes(4, "little")
    came = [packet, packet, bytes(long)]
    assert found(Shapes(), came) == checked(came)
    assert len(checked(came)[0]) == 2 + (length <= 250)


@given(st.lists(packets(), min_size=1, max_size=3), st.data())
def test_what_is_known_lets_pass_what_a_check_lets_pass_and_in_the_same_words(
    models: list[Packet], data: st.DataObject
) -> None:
    whole = [encode_packet(model) for model in models]
    shapes = Shapes()
    for _ in range(3):
        come = data.draw(st.sampled_from(whole))
        came = [come, come, data.draw(mutated(come)), come]
        came = [each for each in came if len(each) >= 120]
        assert found(shapes, came) == checked(came)


@given(user_messages(), st.data())
def test_all_that_is_said_of_a_run_is_so_of_each_of_its_messages(
    message: UserMessage, data: st.DataObject
) -> None:
    packet = encode_packet(message)
    came = [packet]
    for _ in range(4):
        at, bits = data.draw(st.integers(0, min(len(packet), 300) - 1)), data.draw(st.sampled_from(BITS))
        came.append(changed(packet, at, bits))
    for other in came[1:]:
        try:
            runs = list(Shapes().runs([packet, packet, other]))
        except WireFormatError:
            continue
        for run in runs:
            if isinstance(run, bytes):
                assert run[2] & BaseHeader.internal.mask, "a bit that was changed may be IN"
                continue
            for each in run.packets:
                says_the_same(run, each)


def says_the_same(run: Run, packet: bytes) -> None:
    """Check that a run gives the same facts about its messages as this packet, which is one of them."""
    read = decode_message(packet)
    properties = read.properties
    assert run.facts == Facts(
        read.user.destination_queue,
        properties.message_class,
        asks_final_ack(read),
        properties.acknowledge_arrival,
    )
    assert run.shape.flags == read.user.flags
    first = run.packets[0]
    assert packet[:4] == first[:4], "the flags of the BaseHeader"
    assert head_of(packet)[:2] == head_of(first)[:2]
    assert (reach_deadline_s(packet) is None) == (reach_deadline_s(first) is None)
    assert (receive_deadline_s(packet) is None) == (receive_deadline_s(first) is None)
    if read.transaction is not None:
        header = run.shape.header_of(packet)
        header.connector_qm_guid = read.transaction.connector_qm_guid
        assert header == read.transaction


@pytest.mark.parametrize(
    "other",
    [
        {"body": b"another, and longer"},
        {"label": "another label"},
        {"label": ""},
        {"extension": b"12345"},
        {"message_id": 4, "sent_time_s": 5},
        {"correlation_id": bytes(range(20))},
        {"transaction": a_transaction_header(tx_sequence_number=9, previous_tx_sequence_number=8)},
        {"transaction": a_transaction_header(flags=0xABCDEC)},
    ],
    ids=lambda other: ", ".join(other),
)
def test_messages_that_an_application_sends_one_after_the_other_are_a_run(other: dict[str, object]) -> None:
    usual: dict[str, object] = {"label": "a label", "body": b"body"}
    messages = [a_transactional_message(**usual), a_transactional_message(**{**usual, **other})]
    assert one_run(*map(encode_packet, messages))


@pytest.mark.parametrize(
    "other",
    [
        {"destination": 99},
        {"source": bytes(range(16))},
        {"destination_manager": bytes(range(16))},
        {"time_to_reach_queue_s": 5},
        {"time_to_be_received_s": 5},
        {"acknowledgments": 1, "admin_queue": 7},
        {"journal_negative": True},
        {"transaction": a_transaction_header(flags=2)},
        {"sender_id": b"\1\1\0\0\0\0\0\1\0\0\0\0"},
    ],
    ids=lambda other: ", ".join(other),
)
def test_those_that_differ_in_what_decides_where_they_go_are_none(other: dict[str, object]) -> None:
    plain, special = a_transactional_message(), a_transactional_message(**other)
    assert not one_run(encode_packet(plain), encode_packet(special))
    assert not one_run(encode_packet(special), encode_packet(plain))


def test_one_that_a_session_acknowledgment_rides_on_is_a_run_by_itself() -> None:
    packet = encode_packet(a_transactional_message())
    riding = with_session_header(packet, ACK)
    runs = list(Shapes().runs([packet, packet, riding, riding, packet]))
    assert [len(run.packets) for run in runs if isinstance(run, Run)] == [2, 1, 1, 1]


def test_a_packet_that_says_that_it_is_too_large_is_no_message_of_a_known_shape() -> None:
    packet = encode_packet(a_transactional_message(body=b"x"))
    huge = bytearray(packet) + bytes(MAXIMUM_PACKET_SIZE)
    huge[8:12] = len(huge).to_bytes(4, "little")
    assert found(Shapes(), [packet, packet, bytes(huge)]) == checked([packet, packet, bytes(huge)])
    assert not Shape(packet).fits(bytes(huge))


def test_what_a_session_knows_is_bounded() -> None:
    shapes = Shapes()
    name = "OS:c\\" + "long" * LONGEST_HEAD
    for destination in (*range(3 * KNOWN), name):
        packet = encode_packet(a_transactional_message(destination=destination, body=bytes(10_000)))
        assert found(shapes, [packet, packet]) == ([packet, packet], "")
    assert len(shapes) == KNOWN
    assert all(len(shape._example) <= LONGEST_HEAD for shape in shapes._known.values())
    assert not one_run(packet, packet), "what is behind so long a name is judged in each"


def test_a_shape_is_known_again_in_what_comes_later() -> None:
    shapes = Shapes()
    packets_of = [encode_packet(a_transactional_message(destination=number)) for number in range(KNOWN)]
    first = [run.shape for run in shapes.runs(packets_of) if isinstance(run, Run)]
    assert [run.shape for run in shapes.runs(packets_of) if isinstance(run, Run)] == first
    assert len(set(first)) == KNOWN


def test_a_message_is_read_once_and_a_run_has_parts() -> None:
    packet = encode_packet(a_user_message())
    run = run_of(packet)
    assert run.message is run.message
    assert run.part(0, 1) is run
    several = Run(run.shape, [packet, packet + b"", packet])
    assert several.part(1, 1).packets == [packet]
    assert several.part(0, 3) is several
