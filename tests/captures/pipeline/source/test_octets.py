"""Bytes at many places are gathered, checked, compared and spelled together.

The results are the same as if Python handled each place separately.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from mqproto.captures.decode.row import encodable
from mqproto.captures.pipeline.source.octets import (
    Vector,
    alike,
    binaries,
    fixed,
    gathered,
    hex_texts,
    is_terminated,
    terminated_sizes,
    texts,
    windows,
)
from mqproto.testing import texts as any_texts
from tests.captures.pipeline.reading.packets.columns.places import laid_out


@st.composite
def places(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Draw bytes, and places in them in any order; places may overlap and be empty."""
    data = draw(st.binary(max_size=30))
    ends = st.integers(0, len(data))
    pairs = st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair)))
    return data, draw(st.lists(pairs, max_size=6))


def vectors(pairs: list[tuple[int, int]]) -> tuple[Vector, Vector]:
    first, last = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    return first, last - first


@given(places())
def test_what_is_gathered_is_the_bytes_of_the_places_in_their_order(given: tuple[bytes, list]) -> None:  # type: ignore[type-arg]
    data, pairs = given
    expected = [data[first:last] for first, last in pairs]
    array = np.frombuffer(data, np.uint8)
    assert gathered(array, *vectors(pairs)).tobytes() == b"".join(expected)
    assert binaries(array, *vectors(pairs)).to_pylist() == expected


@given(st.binary(max_size=12), st.lists(st.integers(0, 12), max_size=4), st.integers(0, 5))
def test_windows_are_copies_and_never_reach_beyond_the_data(data: bytes, at: list[int], size: int) -> None:
    copies = windows(np.frombuffer(data, np.uint8), np.array(at, np.int64), size)
    assert copies.shape == (len(at), size)
    for place, copy in zip(at, copies, strict=True):
        if place + size <= len(data):
            assert copy.tobytes() == data[place : place + size]


@given(
    st.lists(
        st.binary(min_size=1, max_size=8) | st.sampled_from([b"\0\0", b"a\0\0\0", b"\0a\0\0"]), max_size=6
    )
)
def test_a_text_is_terminated_if_its_last_unit_is_its_only_nul(data: list[bytes]) -> None:
    def expected(text: bytes) -> bool:
        units = [text[at : at + 2] for at in range(0, len(text), 2)]
        return len(text) % 2 == 0 and units.count(b"\0\0") == 1 and units[-1] == b"\0\0"

    assert is_terminated(*laid_out(data)).tolist() == [*map(expected, data)]


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"\0\0", b"a\0\0\0b", b"\0a\0\0"]), max_size=6))
def test_a_text_goes_up_to_its_first_nul(data: list[bytes]) -> None:
    def expected(text: bytes) -> int:
        units = [text[at : at + 2] for at in range(0, len(text), 2)]
        return 2 * units.index(b"\0\0") + 2 if b"\0\0" in units else 0

    assert terminated_sizes(*laid_out(data)).tolist() == [*map(expected, data)]


@given(st.lists(any_texts(10), max_size=6))
def test_texts_are_decoded_as_one_by_one(given: list[str]) -> None:
    wire = [(text + "\0").encode("utf-16-le", "surrogatepass") for text in given]
    assert texts(*laid_out(wire, gap=b"\xd8")).to_pylist() == [*map(encodable, given)]


@given(st.lists(st.binary(min_size=5, max_size=5), max_size=5))
def test_bytes_are_spelt_as_python_spells_them(rows: list[bytes]) -> None:
    octets = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 5)
    assert hex_texts(octets).to_pylist() == [row.hex() for row in rows]
    assert fixed(octets).to_pylist() == rows


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 2**62, -(2**62)]), st.binary(max_size=1)), max_size=8
    )
)
def test_rows_are_alike_if_they_are_equal_in_every_column(rows: list[tuple[int, int, bytes]]) -> None:
    small, large = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    codes, examples = alike(small, large, binaries(*laid_out([row[2] for row in rows])))
    assert [rows[examples[code]] for code in codes] == rows
    assert len(examples) == len({*rows})
