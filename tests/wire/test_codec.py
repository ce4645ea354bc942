"""Both codecs, on valid, nearly valid and random packets: they agree, they refuse in time, and nothing is lost."""

from __future__ import annotations

import dataclasses
import gc
import os
import random
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.testing import nearly_valid_packets, packets
from mqproto.wire import (
    DebugHeader,
    MqfSignatureHeader,
    MultiQueueFormatHeader,
    Packet,
    PrivateQueueFormatName,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    UserMessage,
    check_packet,
    decode_packet,
    encode_packet,
    reference,
)
from mqproto.wire.codec import decode_or_refuse
from mqproto.wire.schema.refused import REFUSALS
from tests.examples import (
    EVERY_PACKET,
    SOMEBODY,
    a_full_message,
    a_session_ack,
    a_transactional_message,
    a_user_message,
)
from tests.frames import SESSION_FRAMES
from tests.wire.accidents import accidents

ROUNDS = int(os.environ.get("MQPROTO_FUZZ_ROUNDS", "5000"))
SLOWEST_S = 0.05


def decoded(decode: Any, data: bytes) -> tuple[Any, ...]:
    """Return every field and padding byte, or every word of the refusal."""
    try:
        packet = decode(data)
    except WireFormatError as error:
        return ("refused", error.field, error.offset, error.value, error.limit, error.section)
    return (type(packet), dataclasses.astuple(packet))


def hot_accepts(data: bytes) -> bool:
    """Return whether the generated code reads these bytes without falling back on the reference."""
    try:
        decode_or_refuse(data)
    except REFUSALS:
        return False
    return True


def checked(data: bytes) -> tuple[Any, ...]:
    """Return whether a packet is good, or every word of the refusal."""
    try:
        check_packet(data)
    except WireFormatError as error:
        return ("refused", error.field, error.offset, error.value, error.limit, error.section)
    return ("good",)


@given(packets())
def test_what_is_encoded_decodes_to_itself(packet: Packet) -> None:
    assert decode_packet(encode_packet(packet)) == packet


@given(packets())
def test_both_codecs_write_the_same_bytes(packet: Packet) -> None:
    assert encode_packet(packet) == reference.packet.build(packet)


@given(packets().map(encode_packet) | nearly_valid_packets() | st.binary(max_size=200))
def test_both_codecs_agree_on_any_bytes(data: bytes) -> None:
    assert decoded(decode_packet, data) == decoded(reference.read, data)


@given(packets().map(encode_packet) | nearly_valid_packets())
def test_the_generated_code_accepts_what_the_reference_accepts(data: bytes) -> None:
    assert hot_accepts(data) == (decoded(reference.read, data)[0] != "refused")


@given(packets().map(encode_packet) | nearly_valid_packets() | st.binary(max_size=200))
def test_a_packet_that_is_only_checked_is_refused_as_one_that_is_read(data: bytes) -> None:
    verdict = decoded(decode_packet, data)
    assert checked(data) == (verdict if verdict[0] == "refused" else ("good",))


@given(nearly_valid_packets())
def test_a_packet_that_is_accepted_encodes_to_the_same_bytes(data: bytes) -> None:
    try:
        packet = decode_packet(data)
    except WireFormatError:
        return
    assert encode_packet(packet) == data
    assert reference.packet.build(packet) == data


def test_mutated_and_random_packets_decode_or_are_refused_by_both_codecs_alike() -> None:
    """Set MQPROTO_FUZZ_ROUNDS=100000 for the long form, which also times each packet."""
    rng = random.Random(1801)
    seeds = [*EVERY_PACKET, *SESSION_FRAMES]
    accepted = 0
    for round_ in range(ROUNDS):
        data = rng.randbytes(rng.randrange(200)) if round_ % 10 == 9 else accidents(rng, rng.choice(seeds))
        began = time.perf_counter()
        hot = decoded(decode_packet, data)
        took_s = time.perf_counter() - began
        assert hot == decoded(reference.read, data), data.hex()
        assert hot_accepts(data) == (hot[0] != "refused"), data.hex()
        assert checked(data) == (hot if hot[0] == "refused" else ("good",)), data.hex()
        if hot[0] != "refused":
            accepted += 1
            assert encode_packet(decode_packet(data)) == data, data.hex()
        if ROUNDS >= 100_000:
            assert took_s < SLOWEST_S, data.hex()
    assert 0.05 * ROUNDS < accepted < 0.95 * ROUNDS, (
        "the accidents are too mild or too harsh to test anything"
    )


def test_hostile_packets_grow_no_memory_whatever_they_announce() -> None:
    """Memory does not grow beyond a small multiple of a packet's size while the packet is decoded, nor from one packet
    to the next.
    """
    rng = random.Random(7)
    hostile = [accidents(rng, rng.choice(EVERY_PACKET)) for _ in range(ROUNDS // 5)]
    tracemalloc.start()
    try:
        for data in hostile:
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]
            with suppress(WireFormatError):
                decode_packet(data)
            assert tracemalloc.get_traced_memory()[1] - held < 128 * 1024 + 8 * len(data), data.hex()
        # The same again: what is made once, such as the words of a refusal, has been made.
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for data in hostile:
            with suppress(WireFormatError):
                decode_packet(data)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 16 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", EVERY_PACKET)
def test_a_packet_cut_short_anywhere_is_refused(data: bytes) -> None:
    for size in range(0, len(data), 3):
        with pytest.raises(WireFormatError):
            decode_packet(data[:size])


@pytest.mark.parametrize("data", EVERY_PACKET)
def test_bytes_after_a_packet_are_no_part_of_it(data: bytes) -> None:
    with pytest.raises(WireFormatError, match="packet_size"):
        decode_packet(data + b"\0")


def test_a_packet_may_come_as_any_kind_of_bytes() -> None:
    data = EVERY_PACKET[0]
    assert decode_packet(bytearray(data)) == decode_packet(data)
    assert decode_packet(memoryview(data)) == decode_packet(data)
    check_packet(bytearray(data))
    check_packet(memoryview(data))


MISFITS: list[tuple[str, Any]] = [
    ("transaction", TransactionHeader()),
    ("security", SecurityHeader(sender_id=b"x")),
    ("debug", DebugHeader()),
    ("soap", SoapHeader()),
    ("multi_queue_format", MultiQueueFormatHeader()),
    ("session", SessionHeader()),
]


@pytest.mark.parametrize(("name", "header"), MISFITS)
def test_a_header_that_the_flags_do_not_announce_is_the_callers_mistake(name: str, header: Any) -> None:
    message = a_user_message()
    setattr(message, name, header)
    with pytest.raises(UsageError, match=name):
        encode_packet(message)


@pytest.mark.parametrize("name", [name for name, _ in MISFITS])
def test_a_header_that_the_flags_announce_must_be_there(name: str) -> None:
    message = a_full_message()
    setattr(message, name, None)
    with pytest.raises(UsageError, match=name):
        encode_packet(message)


def _set(path: str, value: Any) -> Any:
    def change(message: Any) -> None:
        *above, name = path.split(".")
        for step in above:
            message = getattr(message, step)
        setattr(message, name, value)

    change.__name__ = path
    return change


@pytest.mark.parametrize(
    "path_and_value",
    [
        ("base.flags", 0x10000),
        ("base.internal", True),
        ("base.trace", True),
        ("user.source_queue_manager", b"short"),
        ("user.source_queue_manager", "sixteen letters."),
        ("user.message_id", -1),
        ("user.message_id", 2**32),
        ("user.message_id", "5"),
        ("user.hop_count", 30),
        ("user.destination_type", 6),
        ("user.destination_queue", None),
        ("user.destination_queue", SOMEBODY),
        ("user.destination_queue", "OS:a\0b"),
        ("user.admin_queue", 5),
        ("user.recoverable", False),
        ("user.has_properties", False),
        ("user.over_http", True),
        ("transaction.tx_sequence_number", 0),
        ("transaction.previous_tx_sequence_number", 0xFFFFFFFF),
        ("properties.label", "x" * 250),
        ("properties.label", "nul\0"),
        ("properties.correlation_id", bytes(19)),
        ("properties.message_body", "text"),
        ("properties.padding", None),
    ],
    ids=lambda pair: f"{pair[0]}={str(pair[1])[:20]!r}",
)
def test_a_value_that_breaks_a_rule_is_not_written(path_and_value: tuple[str, Any]) -> None:
    message = a_transactional_message()

    _set(*path_and_value)(message)
    with pytest.raises(UsageError, match=path_and_value[0].split(".")[0]):
        encode_packet(message)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
def test_a_packet_over_4_mib_is_not_written() -> None:
    overhead = len(encode_packet(a_user_message(label="", body=b"")))
    message = a_user_message(label="", body=bytes(0x00400000 - overhead))
    assert decode_packet(encode_packet(message)) == message
    message.properties.message_body += b"x"
    with pytest.raises(UsageError, match="packet_size"):
        encode_packet(message)


@pytest.mark.parametrize(
    "path_and_value",
    [
        ("user.admin_queue", PrivateQueueFormatName(SOMEBODY, 2**32)),
        ("user.response_queue", None),
        ("user.connector_type", None),
        ("security.sender_id_type", 3),
        ("security.sender_id_type", 0),
        ("security.sender_cert", bytes(0x10000)),
        ("security.signature", bytes(0x10000)),
        ("debug.queue_type", 2),
        ("debug.queue_identifier", None),
        ("soap.header", "a\0"),
        ("multi_queue_format.signature", MqfSignatureHeader(signature="text")),  # type: ignore[arg-type]
        ("multi_queue_format.destination", None),
        ("session.window_size", 0),
    ],
    ids=lambda pair: f"{pair[0]}={str(pair[1])[:20]!r}",
)
def test_a_value_of_an_optional_header_that_breaks_a_rule_is_not_written(
    path_and_value: tuple[str, Any],
) -> None:
    message = a_full_message()
    _set(*path_and_value)(message)
    with pytest.raises(UsageError):
        encode_packet(message)


def fields_of(record: Any) -> list[tuple[Any, str]]:
    """Return every field of a packet, at any depth, as its record and its name."""
    found = []
    for field in dataclasses.fields(record):
        found.append((record, field.name))
        value = getattr(record, field.name)
        for each in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(each):
                found += fields_of(each)
    return found


@pytest.mark.parametrize("nonsense", [None, -1, 2**40, 1.5, "text", b"bytes", [], {}, object()])
def test_a_value_of_the_wrong_type_is_the_callers_mistake_or_does_not_matter(nonsense: Any) -> None:
    for index in range(len(fields_of(a_full_message()))):
        packet = a_full_message()
        record, name = fields_of(packet)[index]
        try:
            setattr(record, name, nonsense)
        except dataclasses.FrozenInstanceError:
            continue
        outcomes = []
        for encode in (encode_packet, reference.packet.build):
            try:
                outcomes.append(encode(packet))
            except UsageError:
                outcomes.append(b"refused")
        assert outcomes[0] == outcomes[1], (record, name)


def test_an_internal_packet_keeps_its_flags() -> None:
    ack = a_session_ack()
    ack.base.session_header = False
    with pytest.raises(UsageError, match="SH"):
        encode_packet(ack)


def test_the_smallest_message_is_120_bytes_long() -> None:
    assert len(encode_packet(UserMessage())) == 120


def test_padding_of_the_wrong_size_gives_way_to_zeros() -> None:
    message = a_user_message(label="", body=b"12")
    message.properties.padding = b"abc"
    assert encode_packet(message)[-4:] == b"12\0\0"
    message.properties.padding = b"ab"
    assert encode_packet(message)[-4:] == b"12ab"
