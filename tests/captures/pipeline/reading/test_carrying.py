"""Segments on their way to the readers of connections: however they are cut, the result is that of one reader."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame
from mqproto.captures.pipeline.engines.engine import pack, unpack
from mqproto.captures.pipeline.reading import carrying
from mqproto.captures.pipeline.reading.addresses import Addresses
from mqproto.captures.pipeline.reading.carrying import SegmentParts, carried
from mqproto.captures.pipeline.reading.packets.reassembly import SegmentPart
from tests.captures.pipeline.samples import FRAMES
from tests.captures.pipeline.split import numbered, ranges, read_in_parts, whole
from tests.captures.pipeline.worlds import worlds

ONE_BUCKET = Addresses(0, 0, 0, 0, 1)


def on_their_way(parts: Iterable[SegmentPart], apart: bool, part_bytes: int) -> list[SegmentPart]:
    """Return the parts that ranges produce."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrying, "PART_BYTES", part_bytes)
        come = SegmentParts(apart)
        found = [
            each
            for part in parts
            for bucket, rows in carried(ONE_BUCKET, part.segments, part.data, 0)
            for each in come.take(unpack(pack(rows)))
        ]
        return [*found, *come.rest()]


@given(worlds(), st.data())
def test_what_is_carried_says_the_same(frames: list[Frame], data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(frames)), max_size=5))
    odd = data.draw(st.sets(st.integers(0, len(frames)), max_size=5))
    parts = ranges(frames, cuts, odd)
    apart = any(part.apart for part in parts)
    found = read_in_parts(on_their_way(parts, apart, data.draw(st.sampled_from([1, 500, 1 << 20]))))
    assert found.packets == whole(frames)[0]


@pytest.mark.parametrize("is_first", [True, False], ids=["damaged first", "damaged later"])
def test_a_damaged_copy_is_passed_over_whichever_range_has_the_other(is_first: bool) -> None:
    clean = [frame._replace(number=0, offset=0) for frame in FRAMES["resent"]]
    place = max(range(12, 40), key=lambda place: len(clean[place].data))
    damaged = clean[place]._replace(data=clean[place].data[:-1] + b"?")
    one, other = (damaged, clean[place]) if is_first else (clean[place], damaged)
    frames = numbered([*clean[:place], one, *clean[place + 1 : place + 5], other, *clean[place + 5 :]])
    expected, reader = whole(frames)
    assert reader.totals.conflict_count == 1
    for cuts in ([], [place + 1], [place + 3], range(0, len(frames), 2)):
        found = read_in_parts(on_their_way(ranges(frames, cuts), False, 1))
        assert found.packets == expected
        assert sum(seen.stream.conflict_count for seen in found.closed) == 1
        told = [each for seen in found.closed for each in seen.stream.conflicts]
        assert [{each.first, each.second} for each in told] == [{place + 1, place + 6}]
