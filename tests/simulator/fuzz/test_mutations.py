"""Mutations: every length is set to its limits, every section is removed, and the same seed gives the same
mutations.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.simulator.fuzz.mutations import Mutant, mutants, mutate, sections_of, with_honest_size
from mqproto.simulator.fuzz.parser.seeds import examples
from mqproto.simulator.fuzz.roles import layouts_in
from mqproto.testing import nearly_valid_packets, packets
from mqproto.wire import (
    Packet,
    UserMessage,
    decode_packet,
    encode_packet,
    inspect_packet,
    ping_packet,
    reference,
)
from mqproto.wire.layouts.keyblobs import simple_blob
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import INTERNAL_PACKETS, user_message_packet
from mqproto.wire.schema.layout import Must, bare
from tests.examples import EVERY_PACKET, a_full_message, a_ping, poked

FULL = encode_packet(a_full_message())
OF_FULL = {mutant.name: mutant for mutant in mutants(FULL)}


def number(data: bytes, name: str) -> int:
    [value] = [field.value for field in inspect_packet(data).fields if field.name == name]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize("packet", [*EVERY_PACKET, ping_packet.encode(a_ping())], ids=len)
def test_mutants_are_changed_and_come_in_the_same_order_every_time(packet: bytes) -> None:
    found = list(mutants(packet))
    assert found == list(mutants(packet))
    assert len(found) > 90
    assert all(mutant.data != packet for mutant in found)
    assert len({mutant.name for mutant in found}) == len(found)


@given(packets())
def test_a_packet_is_cut_after_every_byte(packet: Packet) -> None:
    data = encode_packet(packet)
    cuts = {
        len(each.data) for each in mutants(data) if each.kind == "truncated" and "repaired" not in each.name
    }
    assert cuts >= {*range(min(len(data), 500))}


@given(nearly_valid_packets() | st.binary(max_size=100), st.integers(0, 2**32))
def test_whatever_the_bytes_are_they_can_be_mutated_and_the_dice_repeat_it(data: bytes, seed: int) -> None:
    first, again = random.Random(seed), random.Random(seed)
    for _ in range(20):
        assert mutate(data, first) == mutate(data, again)
    assert len(list(mutants(data))) >= min(len(data), 500)


# The classes of number that broke parsers: what is left when C has computed with 32 bits.
WRAPS = {
    "doubled": lambda value, size: value * 2 % 2**32 <= size < value,
    "aligned to 4": lambda value, size: (value + 3) % 2**32 // 4 * 4 < size < value,
    "added to its place": lambda value, size: (value + size) % 2**32 < size < value,
    "multiplied by 16": lambda value, size: value * 16 % 2**32 <= size < value,
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize(
    "name",
    [
        "soap.header_data_length",
        "soap.body_data_length",
        "properties.message_size",
        "properties.extension_size",
        "security.sender_cert_size",
        "security.provider_info_size",
        "multi_queue_format.destination.header_size",
        "multi_queue_format.response.element_count",
        "multi_queue_format.signature.size",
    ],
)
def test_each_length_of_32_bits_takes_values_that_wrap(name: str, wrap: str) -> None:
    values = [number(each.data, name) for each in OF_FULL.values() if each.name.startswith(f"{name} = ")]
    assert any(WRAPS[wrap](value, len(FULL)) for value in values)
    assert {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF} <= {*values, number(FULL, name)}


def test_two_sizes_of_one_section_add_up_to_nothing() -> None:
    size = number(FULL, "properties.message_size")
    assert f"properties.extension_size = {2**32 - size:#x}" in OF_FULL


@pytest.mark.parametrize("limit", [249, 250, 251])
def test_limits_that_only_a_rule_of_the_layout_states_are_tried(limit: int) -> None:
    assert f"properties.label_length = {limit:#x}" in OF_FULL


def test_each_bit_of_a_flag_word_is_flipped_by_its_name_or_its_place() -> None:
    [field] = [field for field in inspect_packet(FULL).fields if field.name == "user.flags"]
    flipped = {
        int.from_bytes(each.data[field.offset :][:4], "little") ^ field.value
        for each in OF_FULL.values()
        if each.name.startswith("user.flags: ")
    }
    assert {1 << place for place in range(32)} <= flipped
    assert "user.flags: bit 26 = 1" in OF_FULL
    assert "user.flags: has_security = 0" in OF_FULL


def test_sections_are_dropped_doubled_and_swapped_with_packet_size_as_it_was_and_repaired() -> None:
    assert OF_FULL["soap dropped"].data == FULL.replace(section("soap"), b"")
    assert OF_FULL["soap doubled"].data == FULL.replace(section("soap"), section("soap") * 2)
    assert number(OF_FULL["soap dropped"].data, "base.packet_size") == number(FULL, "base.packet_size")
    repaired = OF_FULL["soap dropped, packet_size repaired"].data
    assert number(repaired, "base.packet_size") == number(FULL, "base.packet_size") - len(section("soap"))
    swapped = OF_FULL["debug and soap swapped"].data
    assert swapped == FULL.replace(section("debug") + section("soap"), section("soap") + section("debug"))
    elements = "multi_queue_format.destination.format_name_list.elements"
    assert f"{elements}[2] dropped" in OF_FULL
    assert f"{elements}[1] and {elements}[3] swapped" in OF_FULL


def section(name: str) -> bytes:
    [found] = [each for each in sections_of(inspect_packet(FULL).fields) if each.name == name]
    return FULL[found.start : found.stop]


@given(packets())
def test_repairing_leaves_a_valid_packet_as_it_is(packet: Packet) -> None:
    assert with_honest_size(encode_packet(packet)) == encode_packet(packet)


@pytest.mark.parametrize("packet", EVERY_PACKET, ids=len)
def test_repairing_mends_a_packet_size_that_lies(packet: bytes) -> None:
    assert with_honest_size(poked(packet, "base.packet_size", 0)) == packet


def test_a_ping_has_no_packet_size_to_repair() -> None:
    names = [mutant.name for mutant in mutants(ping_packet.encode(a_ping()))]
    assert "signature = 0x5549" in names
    assert not any("repaired" in name for name in names)


@pytest.mark.long
def test_drawn_mutations_are_of_every_kind_and_some_of_them_are_still_packets() -> None:
    dice = random.Random(4)
    drawn = [mutate(FULL, dice) for _ in range(2_000)]
    assert {mutant.kind for mutant in OF_FULL.values()} <= {mutant.kind for mutant in drawn}
    accepted = sum(map(accepts, drawn))
    assert 0.02 < accepted / len(drawn) < 0.6, "too mild or too harsh to test anything"
    assert any("; " in mutant.name for mutant in drawn)


def accepts(mutant: Mutant) -> bool:
    try:
        decode_packet(mutant.data)
    except WireFormatError:
        return False
    return True


def rules() -> set[tuple[str, str]]:
    """Return every rule of every layout of a packet, except those that the reader used to choose the layout.

    The content of a bytes field has other rules, which do not affect the packet.
    """
    wholes = (user_message_packet, session_header, *INTERNAL_PACKETS.values())
    parts = (
        (layout.section, bare(part))
        for whole in wholes
        for layout, _ in layouts_in(whole)
        for part in layout.subcons
    )
    return {
        (section, part.limit)
        for section, part in parts
        if isinstance(part, Must)
        and "packet_type" not in part.part.split(".")[1:]
        and section != simple_blob.layout.section
        and " IN" not in part.limit
    }


@pytest.mark.long
def test_every_rule_of_every_layout_is_broken_by_some_single_mutation() -> None:
    """The mutations therefore exercise every check that a parser may have forgotten."""
    unbroken = rules()
    for packet in examples():
        for mutant in mutants(packet):
            if mutant.kind in ("length", "limit", "flags", "constant") and "repaired" not in mutant.name:
                try:
                    reference.read(mutant.data)
                except WireFormatError as refusal:
                    unbroken.discard((refusal.section, refusal.limit))
        if not unbroken:
            return
    assert unbroken == set()


def test_a_key_within_a_message_is_mutated_by_what_its_fields_are_for() -> None:
    packet = next(each for each in examples() if _key_in(each))
    refused = set()
    for mutant in mutants(packet):
        if mutant.kind in ("limit", "constant") and "encryption_key." in mutant.name:
            try:
                simple_blob.decode(_key_in(mutant.data))
            except WireFormatError as refusal:
                refused.add(refusal.field)
    assert refused >= {"blob_type", "blob_version", "session_key_algorithm", "key_algorithm"}


def _key_in(packet: bytes) -> bytes:
    """Return the EncryptionKey of a message, if it is a message and has one."""
    try:
        found = reference.read(packet)
    except WireFormatError:
        return b""
    return found.security.encryption_key if isinstance(found, UserMessage) and found.security else b""
