"""The generator: what it merges, what it finds, and that it refuses what it does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from construct import Array, Int8ul, Int16ub, Int16ul, Rebuild, Struct, sum_, this
from hypothesis import given

from mqproto.testing import user_messages
from mqproto.wire import UserMessage, encode_packet, reference
from mqproto.wire.codec import read_user_message, transaction_offset
from mqproto.wire.generator import builder, finder, reader
from mqproto.wire.layout import Layout, Must
from mqproto.wire.packets import user_message_packet
from mqproto.wire.record import Record
from tests.examples import a_transactional_message, a_user_message


@dataclass
class One:
    value: Any = 0


@pytest.mark.parametrize(
    "layout",
    [
        Layout("[X] 1", "value" / Array(2, Int8ul)),
        Layout("[X] 1", "value" / Struct("inner" / Int8ul)),
        Layout("[X] 1", "value" / Int16ub),
        Layout("[X] 1", "value" / Int8ul, Must("value", lambda context: True, "a lambda")),
    ],
)
def test_what_the_generator_does_not_know_fails_at_import(layout: Layout) -> None:
    record = Record(One, layout)
    for generate in (reader, builder):
        with pytest.raises(NotImplementedError):
            generate(record)


def test_a_function_that_the_generator_does_not_know_fails_at_import() -> None:
    record = Record(One, Layout("[X] 1", "value" / Int8ul, "sum" / Rebuild(Int16ul, sum_(this.value))))
    with pytest.raises(NotImplementedError, match="sum"):
        builder(record)


def test_the_first_64_bytes_of_a_message_are_read_at_once() -> None:
    source: str = read_user_message.source  # type: ignore[attr-defined]
    first = next(line for line in source.splitlines() if "unpack" in line)
    assert first.strip().startswith("base__version_number, base__reserved")
    assert "user__flags" in first


@given(user_messages())
def test_the_place_of_a_header_is_found_without_reading_the_rest(message: UserMessage) -> None:
    offset = transaction_offset(encode_packet(message))
    if message.transaction is None:
        assert offset == -1
    else:
        seen: list[Any] = []
        reference.read(encode_packet(message), seen)
        assert offset == next(start for name, start, *_ in seen if name == "transaction.flags")


def test_a_finder_reads_only_what_leads_to_the_place() -> None:
    find = finder(user_message_packet, "transaction")
    assert "sent_time_s" not in find.source  # type: ignore[attr-defined]
    assert find(encode_packet(a_transactional_message())) == 68
    assert find(encode_packet(a_user_message())) == -1
