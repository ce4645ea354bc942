"""The yardstick for the codec is fair: it reads, writes and refuses the same bytes as the codec."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from mqproto.testing import nearly_valid_packets, user_messages
from mqproto.wire import UserMessage, decode_packet, encode_packet
from mqproto.wire.codec import decode_or_refuse
from mqproto.wire.schema.refused import REFUSALS
from tests.bench import byhand
from tests.examples import EVERY_PACKET, a_full_message
from tests.frames import SESSION_FRAMES
from tests.wire.accidents import accidents
from tests.wire.test_codec import fields_of

MESSAGES = [data for data in [*EVERY_PACKET, *SESSION_FRAMES] if isinstance(decode_packet(data), UserMessage)]
ROUNDS = 3_000


def outcome(function: Callable[[Any], Any], value: Any) -> Any:
    """Return the bytes, or every field and padding byte of a record; None for input that is refused."""
    try:
        result = function(value)
    except REFUSALS:
        return None
    return dataclasses.astuple(result) if dataclasses.is_dataclass(result) else result  # type: ignore[arg-type]


def read_message(data: bytes) -> UserMessage | None:
    packet = decode_or_refuse(data)
    return packet if isinstance(packet, UserMessage) else None


@given(user_messages())
def test_any_message_is_read_and_written_as_the_codec_does(message: UserMessage) -> None:
    data = encode_packet(message)
    assert byhand.build(message) == data
    assert outcome(byhand.parse, data) == outcome(read_message, data)


@given(nearly_valid_packets())
def test_what_is_no_message_is_refused_as_the_codec_does(data: bytes) -> None:
    assert outcome(byhand.parse, data) == outcome(read_message, data)


def test_mutated_messages_are_read_or_refused_as_the_codec_does() -> None:
    rng = random.Random(1801)
    read = 0
    for _ in range(ROUNDS):
        data = accidents(rng, rng.choice(MESSAGES))
        found = outcome(byhand.parse, data)
        assert found == outcome(read_message, data), data.hex()
        if found is not None:
            read += 1
            assert byhand.build(byhand.parse(data)) == data
    assert 0.1 * ROUNDS < read < 0.9 * ROUNDS


@pytest.mark.parametrize("nonsense", [None, -1, 2**40, 1, "text", b"bytes"])
def test_a_record_with_nonsense_in_it_is_refused_as_the_codec_does(nonsense: Any) -> None:
    for index in range(len(fields_of(a_full_message()))):
        message = a_full_message()
        record, name = fields_of(message)[index]
        try:
            setattr(record, name, nonsense)
        except dataclasses.FrozenInstanceError:
            continue
        try:
            expected = encode_packet(message)
        except ValueError:
            expected = None
        assert outcome(byhand.build, message) == expected, (record, name)
