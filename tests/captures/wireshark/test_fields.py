"""The fields that Wireshark registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_type_hints

import pytest
from construct import Int16ul, Int32ul

from mqproto.captures.wireshark.fields import Field, bit_table, bits_of, fields_of
from mqproto.captures.wireshark.layouts import Translator
from mqproto.captures.wireshark.meanings import MEANINGS
from mqproto.wire.layouts.user import UserHeader
from mqproto.wire.packets import UserMessage, user_message_packet
from mqproto.wire.schema.layout import Layout
from mqproto.wire.schema.parts import Octets
from mqproto.wire.schema.record import Bit, Bits, Record, names_of_bits


@dataclass
class Sample:
    flags: int
    sent_s: int

    kind = Bits(1, 3)
    first = Bit(0)


sample = Record(Sample, Layout("[MS-MQMQ] 0", "flags" / Int16ul, "sent_s" / Int32ul))


def test_a_flag_word_is_followed_by_its_bits_from_the_lowest_on() -> None:
    fields = fields_of([("msmq.", Translator().record(sample))])
    assert list(fields) == ["msmq.flags", "msmq.flags.first", "msmq.flags.kind", "msmq.sent_s"]
    assert [field.source for field in fields.values()] == [
        'ProtoField.uint16("msmq.flags", "Flags", base.HEX, nil, nil, "[MS-MQMQ] 0")',
        'ProtoField.bool("msmq.flags.first", "First", 16, nil, 0x1, "[MS-MQMQ] 0")',
        'ProtoField.uint16("msmq.flags.kind", "Kind", base.DEC, nil, 0xe, "[MS-MQMQ] 0")',
        'ProtoField.uint32("msmq.sent_s", "Sent (s)", base.DEC, nil, nil, "[MS-MQMQ] 0")',
    ]
    assert bit_table(Sample) == "{kind = {1, 3}, first = {0, 1}}"


def test_a_field_of_several_layouts_names_the_section_of_each() -> None:
    again = Record(Sample, Layout("[MS-MQMQ] 1", "flags" / Int16ul, "sent_s" / Int32ul))
    translator = Translator()
    fields = fields_of([("msmq.", translator.record(each)) for each in (sample, again, sample)])
    assert fields["msmq.sent_s"].sections == ("[MS-MQMQ] 0", "[MS-MQMQ] 1")


def test_one_name_is_of_one_kind() -> None:
    other = Record(Sample, Layout("[MS-MQMQ] 1", "flags" / Int16ul, "sent_s" / Octets(4)))
    translator = Translator()
    with pytest.raises(NotImplementedError, match=r"msmq\.sent_s would be uint32 and bytes"):
        fields_of([("msmq.", translator.record(each)) for each in (sample, other)])


def test_every_header_and_field_of_a_message_is_there() -> None:
    fields = fields_of([("msmq.", Translator().record(user_message_packet))])
    headers = [name for name in UserMessage.__dataclass_fields__ if name not in ("session", "trailing")]
    assert [name for name in fields if name.count(".") == 1] == [f"msmq.{name}" for name in headers] + [
        "msmq.trailing"
    ]
    assert fields["msmq.user.queue_manager_address"].kind == "guid"
    assert fields["msmq.user.destination_queue.name"].kind == "string"
    assert fields["msmq.base"].title == "BaseHeader"


def test_the_names_of_values_are_those_of_fields_or_bits() -> None:
    for record, name in MEANINGS:
        assert name in get_type_hints(record) or isinstance(dict(names_of_bits(record))[name], Bits)


def test_a_word_has_the_bits_that_name_it() -> None:
    assert [*bits_of(None, "flags")] == [*bits_of(UserHeader, "sent_time_s")] == []
    assert next(bits_of(UserHeader, "flags")) == ("hop_count", UserHeader.hop_count)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("none", 'ProtoField.none("msmq.x", "X", "s")'),
        ("guid", 'ProtoField.guid("msmq.x", "X", "s")'),
        ("bytes", 'ProtoField.bytes("msmq.x", "X", base.NONE, "s")'),
        ("string", 'ProtoField.string("msmq.x", "X", base.UNICODE, "s")'),
    ],
)
def test_each_kind_is_made_with_what_it_needs(kind: str, source: str) -> None:
    assert Field("msmq.x", kind, "X", ("s",)).source == source
