"""The walk accepts the same packets as the generated codec, with the same fields.

It refuses unknown layouts.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import pytest
from construct import Array, Bytes, Int8sl, Int8ul, Int16ul, Int64ul, Struct, len_, this
from hypothesis import given, settings, strategies as st

from mqproto.captures.pipeline.reading.packets.columns.walk import LONGEST_LIST, Walk
from mqproto.testing import session_headers, user_messages
from mqproto.wire import BaseHeader, UserMessage, encode_packet
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import user_message_packet
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import (
    Absent,
    Octets,
    OneOf,
    Pad4,
    Repeated,
    TerminatedText,
    Text,
    When,
    Window,
)
from mqproto.wire.schema.record import Record
from tests.captures.pipeline.reading.packets.columns.places import laid_out
from tests.examples import a_base_header


def a_record(*parts: Any) -> Record[Any]:
    """Return a record with no fields other than those of its layout."""
    names = [part.name for part in parts if part.name]
    return Record(make_dataclass("Loose", names), Layout("[X] 1", *parts))


def walked(record: Record[Any], *data: bytes) -> Walk:
    where, starts, sizes = laid_out([*data], gap=b"?")
    return Walk(record, where, starts, starts + sizes)


@given(st.lists(session_headers(), max_size=5))
def test_numbers_are_those_of_the_records(headers: list[Any]) -> None:
    walk = walked(session_header, *map(session_header.encode, headers))
    assert walk.taken.all()
    for name in ("ack_sequence_number", "recoverable_msg_ack_flags", "window_size"):
        assert walk.fields.numbers(name).tolist() == [getattr(header, name) for header in headers]


@settings(max_examples=15)
@given(st.lists(user_messages(), min_size=1, max_size=4))
def test_what_only_some_have_is_found_where_it_is_and_0_elsewhere(messages: list[UserMessage]) -> None:
    for message in messages:
        message.base.session_header = message.base.debug_header = message.base.trace = False
        message.session = message.debug = None
    walk = walked(user_message_packet, *map(encode_packet, messages))
    transaction, properties = walk.fields.inside("transaction"), walk.fields.inside("properties")
    numbers = transaction.numbers("tx_sequence_number").tolist()
    connectors = transaction.octets("connector_qm_guid")
    for row, message in enumerate(messages):
        expected = message.transaction
        assert numbers[row] == (expected.tx_sequence_number if expected else 0)
        connector = expected.connector_qm_guid if expected else None
        assert connectors[row].tobytes() == (connector or bytes(16))
        assert properties.span("message_body").sizes[row] == len(message.properties.message_body)
    assert walk.taken.all()


@pytest.mark.parametrize("part", [Array(2, Int8ul), Struct("inner" / Int8ul)])
def test_rows_with_a_part_that_is_not_known_are_refused(part: Any) -> None:
    record = a_record("flag" / Int8ul, "value" / When(this.flag, part))
    assert walked(record, b"\1ab", b"\0", b"\1").taken.tolist() == [False, True, False]


@pytest.mark.parametrize(
    "condition", [lambda fields: True, len_(this.value) == 1, this._params.size == 0, this.nothing == 0]
)
def test_rows_with_an_expression_that_is_not_known_are_refused(condition: Any) -> None:
    assert not walked(a_record("value" / Int8ul, Must("value", condition, "right")), b"\0").taken.any()


@pytest.mark.parametrize("number", [Int64ul, Int8sl, Bytes(2)])
def test_rows_with_a_rule_about_a_number_that_is_not_known_are_refused(number: Any) -> None:
    record = a_record("value" / number, Must("value", this.value >= 0, "right"))
    assert not walked(record, bytes(number.sizeof())).taken.any()


def test_a_constant_says_what_a_rule_says() -> None:
    record = a_record("value" / Int8ul, Must("value", True, "right"), "rest" / Octets(2))
    assert walked(record, b"\0ab", b"\0a", b"\0abc").taken.tolist() == [True, False, False]


@given(st.integers(0, 0xFFFFFFFF), st.binary(max_size=9))
def test_a_size_beyond_the_record_is_refused_and_harms_no_other_row(size: int, rest: bytes) -> None:
    record = a_record(
        "size" / Int16ul, "high" / Int16ul, "value" / Octets(this.high * 0x10000 + this.size), Pad4()
    )
    good = b"\3\0\0\0abc\0"
    data = size.to_bytes(4, "little") + rest
    walk = walked(record, good, data, good)
    fits = size <= len(rest) and -size % 4 == len(rest) - size
    assert walk.taken.tolist() == [True, fits, True]
    assert walk.fields.span("value").sizes[[0, 2]].tolist() == [3, 3]


def test_a_size_below_nothing_is_refused() -> None:
    record = a_record("size" / Int8ul, "value" / Octets(this.size - 2))
    assert walked(record, b"\1", b"\2", b"\3a").taken.tolist() == [False, True, True]


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=6)), max_size=6))
def test_each_row_is_read_by_the_case_that_it_chooses(rows: list[tuple[int, bytes]]) -> None:
    cases = {0: Int16ul, 1: Octets(this.kind + 3), 2: Absent()}
    sizes = {0: 2, 1: 4, 2: 0}
    record = a_record("kind" / Int8ul, "value" / OneOf(this.kind, cases), "end" / Pad4())
    walk = walked(record, *(bytes([kind]) + value for kind, value in rows))
    padded = {kind: size + (-1 - size) % 4 for kind, size in sizes.items()}
    assert walk.taken.tolist() == [padded.get(kind) == len(value) for kind, value in rows]


@given(st.binary(max_size=8))
def test_a_text_is_taken_if_it_ends_with_its_only_nul(value: bytes) -> None:
    record = a_record("size" / Int8ul, "value" / Text(this.size))
    units = [value[at : at + 2] for at in range(0, len(value), 2)]
    right = not value or (
        len(value) % 2 == 0 and units.index(b"\0\0") == len(units) - 1 if b"\0\0" in units else False
    )
    assert walked(record, bytes([len(value)]) + value, b"\0").taken.tolist() == [right, True]


@given(st.lists(st.binary(max_size=7), max_size=5))
def test_a_text_goes_to_its_first_nul_and_not_beyond_its_window(rows: list[bytes]) -> None:
    record = a_record("size" / Int8ul, "name" / Window(this.size, TerminatedText()), "next" / Int8ul)
    walk = walked(record, *(bytes([len(row)]) + row + b"n" for row in rows))
    units = [[row[at : at + 2] for at in range(0, len(row), 2)] for row in rows]
    assert walk.taken.tolist() == [b"\0\0" in each for each in units]
    for row, each in enumerate(units):
        if walk.taken[row]:
            assert walk.fields.span("name").sizes[row] == 2 * each.index(b"\0\0") + 2
            assert walk.fields.numbers("next")[row] == ord("n")


@given(st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(1, 3), max_size=4)), max_size=5))
def test_each_item_of_a_list_is_read_by_its_own_size(rows: list[tuple[int, list[int]]]) -> None:
    item = a_record("size" / Int8ul, "value" / Octets(this.size))
    record = a_record("count" / Int8ul, "items" / Repeated(this.count, item))
    walk = walked(
        record, *(bytes([count]) + b"".join(bytes([n]) + bytes(n) for n in sizes) for count, sizes in rows)
    )
    assert walk.taken.tolist() == [count == len(sizes) for count, sizes in rows]


def test_a_list_that_is_too_long_is_refused() -> None:
    record = a_record("count" / Int8ul, "items" / Repeated(this.count, Int8ul))
    longest, longer = (
        bytes([LONGEST_LIST]) + bytes(LONGEST_LIST),
        bytes([LONGEST_LIST + 1]) + bytes(LONGEST_LIST + 1),
    )
    assert walked(record, b"\2ab", longest, longer, b"\0").taken.tolist() == [True, True, False, True]


def test_no_rows_are_no_answer() -> None:
    assert walked(base_header).taken.shape == (0,)
    assert walked(user_message_packet).fields.inside("user").numbers("flags").shape == (0,)


def test_a_record_is_read_to_its_last_byte_and_no_further() -> None:
    head = base_header.encode(a_base_header(), packet_size=200)
    assert walked(base_header, head, head[:-1], head + b"\0").taken.tolist() == [True, False, False]
    flags = walked(base_header, head, head[:-1]).fields.numbers("flags")
    assert flags[0] == BaseHeader.priority.mask & flags[0]
