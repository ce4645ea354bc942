"""What a message claims about its sender, signature and encryption. Tables say the same."""

from __future__ import annotations

import pytest

from mqproto.captures.decode.security.words import protection_of
from mqproto.captures.pipeline.reading.packets.columns import packet_columns
from mqproto.captures.pipeline.reading.packets.columns.table import FEW
from mqproto.turn.guard import CIPHERS, cipher_named
from mqproto.wire import decode_message, encode_packet
from tests.captures.decode.security.protections import EXAMPLES, encrypted
from tests.captures.pipeline.reading.packets.columns.places import decoded, laid_out


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
@pytest.mark.parametrize("name", EXAMPLES)
def test_header_sender_signature_and_encryption_are_told_apart(name: str) -> None:
    message, expected = EXAMPLES[name]
    assert protection_of(decode_message(encode_packet(message))) == expected


def test_many_messages_are_told_apart_as_one_by_one() -> None:
    packets = [encode_packet(message) for message, _ in EXAMPLES.values()] * (FEW // len(EXAMPLES) + 1)
    rows = packet_columns(*laid_out(packets)).to_pylist()
    assert len(rows) > FEW, "fewer are read one by one anyway"
    assert rows == [decoded(packet) | {"body_text": None} for packet in packets]


@pytest.mark.parametrize("name", CIPHERS)
def test_a_cipher_has_the_name_by_which_it_is_asked_for(name: str) -> None:
    message = encrypted(*CIPHERS[name])
    assert protection_of(message).encrypted == cipher_named(name.lower()) == name
