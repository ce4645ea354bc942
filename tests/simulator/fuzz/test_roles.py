"""The layouts' information about their fields, read once."""

from __future__ import annotations

import pytest

from mqproto.simulator.fuzz.mutations import fields_of
from mqproto.simulator.fuzz.roles import PLAIN, ROLES, role_of
from mqproto.wire import encode_packet, inspect_packet, ping_packet
from tests.examples import EVERY_PACKET, a_full_message, a_ping

FIELDS = {
    field.name: role_of(field.section, field.name)
    for field in inspect_packet(encode_packet(a_full_message())).fields
}


def test_every_field_of_every_packet_has_a_role() -> None:
    for packet in (*EVERY_PACKET, ping_packet.encode(a_ping())):
        for field in fields_of(packet):
            assert (field.section, field.name.rpartition(".")[2].partition("[")[0]) in ROLES


@pytest.mark.parametrize(
    "name",
    [
        "base.packet_size",
        "user.destination_queue.count",
        "security.sender_cert_size",
        "properties.label_length",
        "soap.body_data_length",
        "multi_queue_format.destination.element_count",
        "multi_queue_format.signature.size",
    ],
)
def test_lengths_sizes_and_counts_follow_from_other_fields(name: str) -> None:
    assert FIELDS[name].derived


def test_constants_limits_and_bits_are_known() -> None:
    assert FIELDS["base.signature"].constant
    assert FIELDS["soap.header_section_id"].constant
    assert 250 in FIELDS["properties.label_length"].limits
    names = {bits.name: bits for bits in FIELDS["user.flags"].bits}
    assert names["destination_type"] == ("destination_type", 10, 7)
    assert names["has_security"] == ("has_security", 19, 1)


def test_what_no_layout_knows_is_plain() -> None:
    assert role_of("", "unread") is PLAIN
