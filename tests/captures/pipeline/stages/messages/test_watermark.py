"""Which messages are over, so that nothing more is expected about them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mqproto.captures.pipeline.stages.messages.watermark import Watermark, settled
from mqproto.wire import NULL_GUID, guid_text

QUIET, SILENT = 1_000, 100
SCHEMA = pa.schema(
    [
        ("subject", pa.string()),
        ("about", pa.bool_()),
        ("waits", pa.bool_()),
        ("time_ns", pa.int64()),
        ("delivery", pa.string()),
        ("to_key", pa.string()),
        ("destination_manager", pa.string()),
    ]
)


def crossing(subject: str, time_ns: int, to: str = "c", **changes: Any) -> dict[str, Any]:
    row = {"subject": subject, "about": False, "waits": False, "time_ns": time_ns}
    return row | {"delivery": "transactional", "to_key": to, "destination_manager": "c"} | changes


def confirmed(subject: str, time_ns: int) -> dict[str, Any]:
    return {"subject": subject, "about": True, "time_ns": time_ns}


def over(rows: list[dict[str, Any]], row_limit: int = 1_000, held: tuple[str, ...] = ()) -> list[str]:
    """Return the messages that are over."""
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    mask = settled(batch, Watermark(QUIET, SILENT), pa.array(held, pa.string()), row_limit)
    found = [row["subject"] for row, is_over in zip(rows, mask.tolist(), strict=True) if is_over]
    assert all(found.count(name) == sum(row["subject"] == name for row in rows) for name in set(found))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("rows", "is_over"),
    [
        ([crossing("m", 500), confirmed("m", 600)], True),
        ([crossing("m", 500), confirmed("m", QUIET)], False),
        ([crossing("m", 500)], False),
        ([crossing("m", 500, delivery="express")], True),
        ([crossing("m", 500, delivery="express", waits=True)], False),
        ([crossing("m", 500, "b", delivery="recoverable")], False),
        ([crossing("m", 500, "b"), crossing("m", 510), confirmed("m", 520)], True),
        ([crossing("m", 500, delivery="express", destination_manager=guid_text(NULL_GUID), to="host")], True),
        ([crossing("m", SILENT - 1, "b", waits=True)], True),
        ([confirmed("m", 500)], False),
        ([confirmed("m", SILENT - 1)], True),
    ],
)
def test_a_message_is_over_when_it_has_come_and_all_is_said_of_it_or_long_after(
    rows: list[dict[str, Any]], is_over: bool
) -> None:
    assert over([crossing("a", QUIET + 1), *rows, crossing("z", QUIET + 1)]) == ["m"] * is_over


def test_what_only_the_end_lets_be_read_holds_its_message() -> None:
    assert over([crossing("m", 1), crossing("n", 1)], held=("m",)) == ["n"]


def test_of_too_many_those_are_over_that_have_been_silent_longest() -> None:
    rows = [
        crossing(name, time_ns) for name, time_ns in (("p", 5_000), ("q", 2_000), ("r", 4_000), ("s", 3_000))
    ]
    assert over(rows, row_limit=4) == []
    assert over(rows, row_limit=2) == ["q", "s"]
    assert over([*rows, crossing("s", 6_000)], row_limit=2) == ["p", "q", "r"]


def test_nothing_is_over_where_there_is_nothing() -> None:
    assert over([]) == []
