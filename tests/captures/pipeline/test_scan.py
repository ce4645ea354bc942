"""All ranges together hold what one reader finds in the whole file, however it is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures.frame import CaptureError, Interface
from captures.pipeline.files import look_at, mapped
from captures.pipeline.records import TIMES_NS
from captures.pipeline.scan import frames, read_plan
from tests.captures.pipeline.capture_files import damaged, files, packed, read_whole

Row = tuple[int, int, int, int, int, Interface, bytes]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that examples overwrite."""
    return tmp_path_factory.mktemp("scan") / "capture"


def read_in_parts(path: Path, range_bytes: int) -> tuple[list[Row], CaptureError | None]:
    file = look_at(str(path))
    plan = read_plan(file, range_bytes)
    rows: list[Row] = []
    with mapped(file) as source:
        for reading in plan:
            found = frames(reading, source.data)
            assert len(found) == reading.frame_count
            for index in range(len(found)):
                start, size = int(found.start[index]), int(found.size[index])
                rows.append(
                    (
                        int(found.offset[index]),
                        reading.first_number + index,
                        int(found.time_ns[index]),
                        size,
                        int(found.missing[index]),
                        found.interfaces[int(found.interface[index])],
                        source.data[start : start + size],
                    )
                )
    return rows, plan[-1].damage if plan else None


def check(data: bytes, path: Path, range_bytes: int) -> None:
    expected, damage = read_whole(data, str(path))
    path.write_bytes(data)
    if not expected and damage is not None:
        with pytest.raises(CaptureError) as refusal:
            look_at(str(path))
        assert str(refusal.value) == str(damage)
        return
    # Enough to cut between any two bytes; more would only take longer.
    found, found_damage = read_in_parts(path, max(range_bytes, len(data) // 50))
    first_ns, last_ns = TIMES_NS
    assert found == [
        (
            frame.offset,
            frame.number,
            min(max(frame.time_ns, first_ns), last_ns),
            len(frame.data),
            frame.missing_bytes,
            frame.interface,
            frame.data,
        )
        for frame in expected
    ]
    assert str(found_damage) == str(damage)


@given(data=files, range_bytes=st.integers(4, 3000))
def test_a_capture_read_in_ranges_is_the_capture(data: bytes, range_bytes: int, path: Path) -> None:
    check(data, path, range_bytes)


@given(data=damaged(files), range_bytes=st.integers(4, 3000))
def test_a_damaged_one_ends_where_and_as_one_reader_has_it(data: bytes, range_bytes: int, path: Path) -> None:
    check(data, path, range_bytes)


@given(
    data=damaged(files),
    packing=st.sampled_from(["gzip", "zstd"]),
    cut=st.integers(0, 40),
    range_bytes=st.integers(4, 3000),
)
def test_what_is_packed_is_read_in_ranges_too(
    data: bytes, packing: str, cut: int, range_bytes: int, path: Path
) -> None:
    packed_bytes = packed(data, packing)
    check(packed_bytes[: len(packed_bytes) - cut], path, range_bytes)
