"""Minimizing: what remains still shows the fault, and nothing more can be left out."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.simulator.fuzz.minimise import minimised, minimised_packet
from mqproto.testing import nearly_valid_packets
from mqproto.wire import UserMessage, decode_packet, encode_packet
from tests.examples import EVERY_PACKET, a_full_message


@given(st.lists(st.integers(0, 9), max_size=40), st.sets(st.integers(0, 9), max_size=4))
async def test_the_parts_that_matter_are_left_and_no_others(parts: list[int], matter: set[int]) -> None:
    needed = matter & {*parts}

    async def still(some: list[int]) -> bool:
        return needed <= {*some}

    least = await minimised(parts, still)
    assert sorted(least) == sorted(needed)


@pytest.mark.long
@given(nearly_valid_packets())
def test_a_minimised_packet_is_refused_in_the_same_field(data: bytes) -> None:
    def refused(packet: bytes) -> str:
        try:
            decode_packet(packet)
        except WireFormatError as error:
            return error.field
        return ""

    field = refused(data)
    least = minimised_packet(data, lambda packet: refused(packet) == field, tries=100)
    assert refused(least) == field
    assert len(least) <= len(data)


def test_sections_fields_and_bytes_that_do_not_matter_are_gone() -> None:
    def is_message(packet: bytes) -> bool:
        try:
            return isinstance(decode_packet(packet), UserMessage)
        except WireFormatError:
            return False

    least = minimised_packet(encode_packet(a_full_message(trailing=b"more")), is_message)
    assert len(least) == 120, "the smallest message there is"


def test_bytes_that_matter_stay_and_the_others_become_zero() -> None:
    least = minimised_packet(b"abcXdefghYij" + bytes(40), lambda data: data[3:4] == b"X" and b"Y" in data)
    assert least == b"\0\0\0XY"


@pytest.mark.parametrize("tries", [0, 1, 10])
async def test_it_asks_no_more_often_than_it_may(tries: int) -> None:
    asked = []

    def still(data: bytes) -> bool:
        asked.append(data)
        return True

    minimised_packet(EVERY_PACKET[2], still, tries)
    assert len(asked) <= tries
    asked.clear()

    async def still_of(some: list[int]) -> bool:
        return still(bytes(some))

    await minimised(list(EVERY_PACKET[2]), still_of, tries)
    assert len(asked) <= tries
