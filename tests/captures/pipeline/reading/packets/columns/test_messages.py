"""UserMessages that differ only slightly: equal messages share values, and no others do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from mqproto.captures.decode.digest import digest_of
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.reading.packets.columns import codec, packet_columns
from mqproto.captures.pipeline.reading.packets.columns.messages import guid_texts, identifier_texts
from mqproto.captures.pipeline.reading.packets.columns.table import FEW
from mqproto.wire import MessageClass, UserMessage, encode_packet, inspect_packet
from mqproto.wire.layouts.keyblobs import RC4
from mqproto.wire.layouts.user import DIRECT
from mqproto.wire.messages import LABEL, ORDER_QUEUE_PATH
from tests.captures.decode.security.protections import with_security
from tests.captures.decode.security.sent import ENHANCED, alice, plain, ring, sealed_for, signed_by
from tests.captures.pipeline.reading.packets.columns.places import decoded, laid_out
from tests.examples import (
    EVERY_PACKET,
    SENDER,
    SOMEBODY,
    a_final_ack,
    a_transactional_message,
    a_user_message,
    an_order_ack,
    poked,
)
from tests.security.keys import own_key

MESSAGES: Final = EVERY_PACKET[:5]


@pytest.mark.parametrize("packet", MESSAGES)
def test_messages_that_differ_in_any_one_field_are_told_apart(packet: bytes) -> None:
    variants = [packet]
    for field in inspect_packet(packet).fields:
        number = int.from_bytes(field.raw, "little")
        for changed in (number ^ 1, number ^ 1 << field.size * 8 - 1):
            variants.append(poked(packet, field.name, changed.to_bytes(field.size, "little")))
    rows = packet_columns(*laid_out(variants), texts=True).to_pylist()
    assert rows == [decoded(each) for each in variants]
    assert sum(row["valid"] for row in rows) > len(rows) / 2


def test_what_nearly_is_an_acknowledgment_is_told_from_what_is_one() -> None:
    def changed(message: UserMessage, **properties: object) -> UserMessage:
        for name, value in properties.items():
            setattr(message.properties, name, value)
        return message

    direct = an_order_ack(destination=f"TCP:10.0.0.1{ORDER_QUEUE_PATH}")
    elsewhere = an_order_ack(destination="TCP:10.0.0.1\\private$\\orders")
    assert direct.user.destination_type == elsewhere.user.destination_type == DIRECT
    prioritised = an_order_ack()
    prioritised.base.priority = 1
    messages = [
        an_order_ack(),
        an_order_ack(destination=7),
        direct,
        elsewhere,
        prioritised,
        a_final_ack(),
        changed(an_order_ack(), label=LABEL + "s"),
        changed(an_order_ack(), label=None),
        changed(an_order_ack(), message_body=bytes(35)),
        changed(an_order_ack(), message_class=MessageClass.ACK_REACH_QUEUE),
        changed(an_order_ack(), message_class=MessageClass.NORMAL),
        changed(a_final_ack(), message_class=MessageClass.REPORT),
        changed(a_final_ack(), message_class=0x4001),
        changed(a_transactional_message(), message_class=0x1234),
    ]
    data = [encode_packet(message) for message in messages]
    rows = packet_columns(*laid_out(data), texts=True).to_pylist()
    assert rows == [decoded(each) for each in data]
    assert {row["kind"] for row in rows} >= {"OrderAck", "FinalAck", "AdminAck", "Report", "Transactional"}


def test_digests_of_many_messages_are_those_of_each() -> None:
    packets = [encode_packet(a_user_message(message_id=number)) for number in range(codec.AT_A_TIME + 3)]
    digests = packet_columns(*laid_out(packets, gap=b"between"))["digest"].to_pylist()
    assert digests == [digest_of(packet) for packet in packets]
    assert len(set(digests)) == len(packets)


def test_one_of_many_messages_alike_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decodings: list[SeenPacket] = []

    def counted(*place: Any) -> SeenPacket:
        decodings.append(codec.seen_packet(*place))
        return decodings[-1]

    monkeypatch.setattr("mqproto.captures.pipeline.reading.packets.columns.messages.seen_packet", counted)
    data = [encode_packet(a_user_message(message_id=number)) for number in range(100)]
    rows = packet_columns(*laid_out(data), texts=True).to_pylist()
    assert [row["message_id"] for row in rows] == [*range(100)]
    assert len(decodings) == 2, "once for the names, once for the kind"


def test_keys_say_of_many_messages_what_they_say_of_each() -> None:
    sent = signed_by(plain())
    assert sent.security is not None
    forged = replace(sent, security=replace(sent.security, signature=sent.security.signature[::-1]))
    odd = replace(forged, properties=replace(forged.properties, allocation_body_size=0))
    kinds = [
        plain(),
        sent,
        forged,
        odd,
        sealed_for(plain(body_type=8)),
        sealed_for(sent, ENHANCED, RC4),
        sealed_for(plain(), receiver=own_key(2_048)),
        with_security(),
    ]
    keys = ring(own_key(512), certificates=(alice(),))
    packets = [encode_packet(message) for message in kinds] * (FEW // len(kinds) + 1)
    expected = [decoded(packet, ring=keys) for packet in packets]
    for few in (packets, packets[: len(kinds)]):
        assert packet_columns(*laid_out(few), texts=True, ring=keys).to_pylist() == expected[: len(few)]
        rows = packet_columns(*laid_out(few), ring=keys).to_pylist()
        assert rows == [row | {"body_text": None} for row in expected[: len(few)]]
    codes = [[each["code"] for each in row["own_findings"] or ()] for row in expected[:5]]
    assert codes == [[], [], ["bad-signature"], ["odd-field", "bad-signature"], []]
    assert [row["plain_bytes"] for row in expected[4:7]] == [16, 16, None]


def test_identifiers_are_written_as_in_rows() -> None:
    guids = [SENDER, SOMEBODY, SENDER]
    texts, codes = guid_texts(np.frombuffer(b"".join(guids), np.uint8).reshape(-1, 16))
    assert len(texts) == 2
    written = identifier_texts(texts, codes, np.array([0, 0xFFFFFFFF, 7])).to_pylist()
    assert written == [identifier_text(guid, n) for guid, n in zip(guids, (0, 0xFFFFFFFF, 7), strict=True)]
