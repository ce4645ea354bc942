"""Ranges, stitched: however a capture is cut, it says what one reader of the whole says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures import direction, spoil
from captures.frame import Frame
from captures.pipeline import cutting, flows, seams
from tests.captures.pipeline.split import assert_same
from tests.captures.pipeline.worlds import worlds

SAMPLES = sorted(Path(spoil.__file__).parent.glob("samples/*.pcapng"))


@contextmanager
def small_limits() -> Iterator[None]:
    """All limits so low that a few packets exceed them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direction, "EARLY_LIMIT_BYTES", 400)
        patch.setattr(direction, "COMPARED_BYTES", 200)
        patch.setattr(seams, "COMPARED_BYTES", 200)
        patch.setattr(direction, "PIECE_LIMIT_COUNT", 4)
        patch.setattr(flows, "LEAD_LIMIT_BYTES", 100)
        patch.setattr(flows, "SEARCH_LIMIT_BYTES", 600)
        patch.setattr(cutting, "WINDOW_BYTES", 300)
        yield


@given(worlds(), st.data())
def test_however_a_capture_is_cut_it_says_the_same(frames: list[Frame], data: st.DataObject) -> None:
    numbers = st.sets(st.integers(0, len(frames)), max_size=5)
    cuts, odd = data.draw(numbers), data.draw(numbers)
    assert_same(frames, cuts, odd)
    assert_same(frames, range(len(frames)), odd)


@given(worlds(), st.data())
def test_so_it_does_where_limits_are_exceeded(frames: list[Frame], data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(frames)), max_size=5))
    with small_limits():
        assert_same(frames, cuts)
        assert_same(frames, range(len(frames)))
