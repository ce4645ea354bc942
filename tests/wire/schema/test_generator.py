"""The generator: what it merges, what it finds, and what it refuses because it does not know it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from construct import Array, Int8ul, Int16ub, Int16ul, Rebuild, Struct, sum_, this
from hypothesis import given

from mqproto.base.errors import WireFormatError
from mqproto.testing import user_messages
from mqproto.wire import UserMessage, encode_packet, reference
from mqproto.wire.generated import transaction_offset
from mqproto.wire.layouts.multiqueue import mqf_format_name_element
from mqproto.wire.packets import user_message_packet
from mqproto.wire.schema.generator.module import module
from mqproto.wire.schema.generator.reading import finder, items_checker, reader
from mqproto.wire.schema.generator.source import Function
from mqproto.wire.schema.generator.writing import builder
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Window
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import REFUSALS, Refused
from mqproto.wire.schema.stream import Onlooker
from tests.examples import a_transactional_message, a_user_message


def carried_out(function: Function) -> Any:
    """Return the function itself, as Python compiles it in a separate module."""
    names: dict[str, Any] = {}
    exec(compile(module([function]), function.name, "exec"), names)
    return names[function.name]


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
def test_what_the_generator_does_not_know_it_refuses(layout: Layout) -> None:
    record = Record(One, layout)
    for generate in (reader, builder):
        with pytest.raises(NotImplementedError):
            generate(record)


@dataclass
class Two:
    first: Any = 0
    second: Any = 0


def test_a_window_within_a_window_is_refused() -> None:
    inner = Record(One, Layout("[X] 1", "value" / Int8ul))
    middle = Record(One, Layout("[X] 1", "value" / Window(4, inner)))
    outer = Record(One, Layout("[X] 1", "value" / Window(4, middle)))
    with pytest.raises(NotImplementedError, match="window within a window"):
        reader(outer)


def test_a_window_that_is_written_off_a_boundary_is_refused() -> None:
    inner = Record(One, Layout("[X] 1", "value" / Int8ul))
    with pytest.raises(NotImplementedError, match="4-byte boundary"):
        builder(Record(Two, Layout("[X] 1", "first" / Int8ul, "second" / Window(1, inner))))


def test_what_does_not_fill_its_window_leaves_the_rest_and_what_goes_beyond_it_is_refused() -> None:
    inner = Record(One, Layout("[X] 1", "value" / Int16ul))
    wide = carried_out(reader(Record(Two, Layout("[X] 1", "first" / Window(4, inner), "second" / Int8ul))))
    assert wide(b"\x01\0\xff\xff\x07") == Two(One(1), 7)
    narrow = carried_out(reader(Record(Two, Layout("[X] 1", "first" / Window(1, inner), "second" / Int8ul))))
    with pytest.raises(Refused):
        narrow(b"\x01\0")
    beyond = carried_out(reader(Record(Two, Layout("[X] 1", "first" / Window(9, inner), "second" / Int8ul))))
    with pytest.raises(Refused):
        beyond(b"\x01\0\0\0\x07")


def test_lists_of_one_kind_share_one_function() -> None:
    assert items_checker(mqf_format_name_element) is items_checker(mqf_format_name_element)
    calls = re.findall(r"elements, at = (\w+)\(", reader(user_message_packet).source)
    assert len(calls) == 3
    assert len({*calls}) == 1


def test_a_function_that_the_generator_does_not_know_is_refused() -> None:
    record = Record(One, Layout("[X] 1", "value" / Int8ul, "sum" / Rebuild(Int16ul, sum_(this.value))))
    with pytest.raises(NotImplementedError, match="sum"):
        builder(record)


@dataclass
class Counted:
    value: int = 0

    def __post_init__(self) -> None:
        self.value += 1


@dataclass(frozen=True)
class Unslotted:
    value: int = 0


@pytest.mark.parametrize("kind", [Counted, Unslotted])
def test_a_record_that_cannot_be_made_without_its_init_is_refused(kind: type) -> None:
    with pytest.raises(NotImplementedError, match=kind.__name__):
        reader(Record(kind, Layout("[X] 1", "value" / Int8ul)))


def test_rules_about_the_bits_of_one_word_are_asked_at_once() -> None:
    layout = Layout(
        "[X] 1",
        "value" / Int8ul,
        Must("value", this.value & 1 == 0, "even"),
        Must("value", this.value & 2, "with its second bit"),
        Must("value", (this.value >> 2) & 7 <= 3, "clear of its fifth bit"),
        Must("value", (this.value & 0xE0) <= 0, "below 32"),
        Must("value", this.value & 1 == 0, "even, which is asked for twice"),
    )
    record = Record(One, layout)
    assert reader(record).source.count("raise Refused") == 2
    assert builder(record).source.count("raise Refused") == 1
    read, build = carried_out(reader(record)), carried_out(builder(record))
    good = {2, 6, 10, 14}
    for value in range(256):
        outcomes = []
        for attempt in (
            lambda v: read(bytes([v])),
            lambda v: build(One(v)),
            lambda v: record.decode(bytes([v])),
        ):
            try:
                attempt(value)
                outcomes.append(True)
            except (*REFUSALS, WireFormatError):
                outcomes.append(False)
        assert outcomes == [value in good] * 3, value


def test_of_two_truths_the_second_is_not_asked_for_when_the_first_holds() -> None:
    record = Record(
        One, Layout("[X] 1", "value" / Int8ul, Must("value", (this.value == 1) | (this.value > 9), "odd"))
    )
    assert "(value == 1) or (value > 9)" in reader(record).source


def test_the_first_64_bytes_of_a_message_are_read_at_once() -> None:
    first = next(line for line in reader(user_message_packet).source.splitlines() if "unpack" in line)
    assert first.strip().startswith("base__version_number, base__reserved")
    assert "user__flags" in first


@given(user_messages())
def test_the_place_of_a_header_is_found_without_reading_the_rest(message: UserMessage) -> None:
    offset = transaction_offset(encode_packet(message))
    if message.transaction is None:
        assert offset == -1
    else:
        seen: list[Any] = []
        reference.read(encode_packet(message), Onlooker(seen))
        assert offset == next(start for name, start, *_ in seen if name == "transaction.flags")


def test_a_finder_reads_only_what_leads_to_the_place() -> None:
    source = finder(user_message_packet, "transaction").source
    assert "sent_time_s" not in source
    assert "packet_size" not in source
    assert transaction_offset(encode_packet(a_transactional_message())) == 68
    assert transaction_offset(encode_packet(a_user_message())) == -1
