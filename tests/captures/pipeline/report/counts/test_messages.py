"""Messages are found, however many there are: by name, by queue and by host.

Messages with the whole name come before those with a part of the name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.captures.pipeline.report.counts.messages import Sought
from mqproto.captures.pipeline.report.gather import find, gather
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import Rows, capture, history, made_up


def labels(tables: Tables, text: str = "", limit: int = 5, **also: str) -> list[str]:
    """Return the labels of the messages found."""
    return [row["label"] for row, _ in find(tables, Sought(text, **also), limit)]


def test_a_message_is_found_by_its_whole_name_before_parts_of_names(tmp_path: Path) -> None:
    rows = [history(number) for number in range(300)]
    tables = made_up(tmp_path / "out", {"histories": rows}, part_rows=90)
    assert labels(tables, "order 17") == ["order 17"]
    assert labels(tables, "A-GUID\\17") == ["order 17"]
    assert labels(tables, "17") == ["order 17"]
    assert labels(tables, "ORDER 29") == ["order 29", "order 290", "order 291", "order 292", "order 293"]
    assert labels(tables, "der 28", limit=99) == ["order 28", *(f"order 28{digit}" for digit in range(10))]
    assert labels(tables, "") == [f"order {number}" for number in range(5)]


@pytest.mark.parametrize("sought", ["(.*", "%", "_", "\udcff", "' or true --", "order\0"])
def test_what_has_a_meaning_elsewhere_is_text_here(sought: str, tmp_path: Path) -> None:
    rows = [history(number) for number in range(3)]
    assert labels(made_up(tmp_path / "out", {"histories": rows}), sought, queue="private") == []


@pytest.mark.parametrize(
    ("label", "sought"),
    [("bäB1 K", "Äb1"), ("x\u212ay", "kY"), ("a\0b", "\0B"), ("a" * 10_000 + "%b", "a%B")],
)
def test_letters_are_alike_in_both_cases(label: str, sought: str, tmp_path: Path) -> None:
    rows = [history(1, label=label), history(2, label=None), history(3, label="another")]
    assert labels(made_up(tmp_path / "out", {"histories": rows}), sought) == [label]


def test_queue_and_host_narrow_what_is_found(tmp_path: Path) -> None:
    rows = [history(number, queue=f"PRIVATE=C\\{number % 3}", row_id=number) for number in range(9)]
    rows[4] |= {"route": ["a", "relay-7", "c"]}
    rows[5] |= {"route": None, "queue": None}
    relations = [{"series": "day.pcapng", "row_id": 1, "queue_name": "c\\Invoices"}]
    tables = made_up(tmp_path / "out", {"histories": rows, "relations": relations})
    assert labels(tables, "order", queue="c\\1") == ["order 1", "order 4", "order 7"]
    assert labels(tables, "", queue="invoices") == ["order 1", "order 4", "order 7"]
    assert labels(tables, "order", queue="invoices", host="RELAY") == ["order 4"]
    assert labels(tables, "order 4", host="nobody") == []
    assert labels(tables, host="relay-7") == ["order 4"]


def test_what_is_found_has_the_story_that_the_page_has(gap_held: Tables) -> None:
    found = find(gap_held, Sought("lost once"), 9)
    assert len(found) == 3
    stories = gather(gap_held).messages.stories
    assert all(story == stories[row["message"]] for row, story in found)


def test_times_that_are_centuries_apart_are_reported_all_the_same(tmp_path: Path) -> None:
    """Times that are centuries apart are reported nevertheless.

    A capture may give its frames any times that fit in 64 bits.
    """
    rows: dict[str, Rows] = {
        "histories": [history(1, first_ns=1 - 2**62, order_acked_ns=2**62 - 1), history(2)],
        "captures": [capture(first_ns=1 - 2**62, last_ns=2**62 - 1)],
    }
    facts = gather(made_up(tmp_path / "out", rows))
    assert facts.messages.confirmed.most == 2**63 - 2
