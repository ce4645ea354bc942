"""Blocks that are found many at a time are those that a walk finds one by one, whatever frames contain."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import example, given, strategies as st

from mqproto.captures.files.pcapng import ENHANCED_PACKET, MAX_BLOCK_BYTES, SECTION_HEADER
from mqproto.captures.pipeline.source.chain import STEPS, WINDOW_BYTES, chain
from tests.captures.pipeline.capture_files import block

ORDERS = st.sampled_from("<>")


def one_by_one(data: bytes, order: str, low: int, high: int) -> list[int]:
    """Walk from block to block according to the rule itself. Return the positions of the blocks."""
    found = []
    at = low
    while at < high and at + 12 <= len(data):
        kind, length = struct.unpack_from(order + "II", data, at)
        if (
            length % 4
            or not 12 <= length <= MAX_BLOCK_BYTES
            or at + length > len(data)
            or kind == SECTION_HEADER
        ):
            break
        found.append(at)
        at += length
    return found


def found_in(data: bytes, order: str, low: int, high: int) -> list[int]:
    return [int(at) for at in chain(np.frombuffer(data, np.uint8), order, low, high)]


@st.composite
def captures(draw: st.DrawFn) -> tuple[bytes, str]:
    """Draw blocks, each repeated many times, and their byte order.

    Some blocks contain bytes that look like blocks, or break rules.
    """
    order = draw(ORDERS)
    words = st.sampled_from([ENHANCED_PACKET, 0, 12, 16, 32, 44]) | st.integers(0, 2**32 - 1)
    contents = st.lists(words, max_size=8).map(lambda some: struct.pack(f"{order}{len(some)}I", *some))
    kinds = st.sampled_from([ENHANCED_PACKET] * 4 + [1, 3, 5])
    plain = st.builds(block, st.just(order), kinds, contents)
    inner = st.builds(block, st.just(order), kinds, plain)
    usual = st.lists(plain | inner, min_size=1, max_size=6).map(b"".join)
    parts = st.tuples(usual, st.integers(1, 4 * STEPS)).map(lambda part: part[0] * part[1])
    odd = st.just(block(order, SECTION_HEADER, b"\0" * 16)) | contents
    data = draw(st.lists(parts | odd, max_size=4).map(b"".join))
    return data, order


@given(capture=captures(), low=st.integers(0, 40), cut=st.integers(0, 60), short=st.integers(0, 200))
def test_many_at_a_time_are_those_one_by_one(
    capture: tuple[bytes, str], low: int, cut: int, short: int
) -> None:
    data, order = capture
    data = data[: max(0, len(data) - cut)]
    low, high = low * 4, len(data) - short
    assert found_in(data, order, low, high) == one_by_one(data, order, low, high)


def test_blocks_go_on_where_one_search_ends_and_the_next_begins() -> None:
    packet = block("<", ENHANCED_PACKET, b"\0" * (1 << 16))
    data = packet * (3 * WINDOW_BYTES // len(packet) + 7)
    assert found_in(data, "<", 0, len(data)) == list(range(0, len(data), len(packet)))


@example(lengths=[0, 4, 8])
@given(lengths=st.lists(st.integers(0, 2**32 - 1), max_size=8))
def test_the_chain_ends_with_a_length_that_no_block_has(lengths: list[int]) -> None:
    packet = block("<", ENHANCED_PACKET, b"\0" * 20)
    for length in lengths:
        data = packet * 3 * STEPS + struct.pack("<II", ENHANCED_PACKET, length) + packet * STEPS
        assert found_in(data, "<", 0, len(data)) == one_by_one(data, "<", 0, len(data))
