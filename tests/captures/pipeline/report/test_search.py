"""Messages are found among any number of them: those that reading all finds, and without reading all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from mqproto.captures.pipeline.report.counts import sieve as module
from mqproto.captures.pipeline.report.counts.sieve import NO_BITS, part_bits, whole_bits, with_one_of
from mqproto.captures.pipeline.report.gather import told
from mqproto.captures.pipeline.report.search import Sought, named, of_messages, prepare
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import history, hop, hops_of, made_up

LETTERS = st.text(st.sampled_from("abÄ1 \\K\u212a"), max_size=9)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are many."""
    monkeypatch.setattr(module, "SIEVED_ROWS", 0)
    monkeypatch.setattr(module, "BLOCK_ROWS", 8)
    monkeypatch.setattr(module, "BITS", 1 << 14)
    monkeypatch.setattr("mqproto.captures.pipeline.tables.parts.GROUP_ROWS", 12)


def labels(tables: Tables, text: str = "", limit: int = 5, **also: str) -> list[str]:
    """Of what is found."""
    return [row["label"] for row in named(tables, Sought(text, **also), limit)]


@pytest.mark.parametrize("sieved_rows", [0, 1_000])
def test_a_message_is_found_by_its_whole_name_before_parts_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sieved_rows: int
) -> None:
    monkeypatch.setattr(module, "SIEVED_ROWS", sieved_rows)
    rows = [history(number) for number in range(300)]
    tables = made_up(tmp_path / "out", {"histories": rows}, part_rows=90)
    assert labels(tables, "order 17") == ["order 17"]
    assert labels(tables, "A-GUID\\17") == ["order 17"]
    assert labels(tables, "17") == ["order 17"]
    assert labels(tables, "ORDER 29") == ["order 29", "order 290", "order 291", "order 292", "order 293"]
    assert labels(tables, "der 28", limit=99) == ["order 28", *(f"order 28{digit}" for digit in range(10))]
    assert labels(tables, "(.*") == []
    assert labels(tables, "\udcff") == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), LETTERS), min_size=1, max_size=40), LETTERS, st.integers(0, 20))
@example(["a" * 9, None, "bäb1 K"], "Äb1", 0)
@example(["x\u212ay"], "kY", 0)
def test_what_is_found_is_what_reading_all_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], sought: str, offset: int
) -> None:
    rows = [history(number, label=text) for number, text in enumerate(texts)]
    tables = made_up(tmp_path_factory.mktemp("search") / "out", {"histories": rows}, part_rows=17)

    def lower(text: str) -> str:
        found: str = pc.utf8_lower(pa.scalar(text)).as_py()
        return found

    exact = [
        row["message"]
        for row in rows
        if sought in (row["label"], row["message"]) or row["message"].endswith(f"\\{sought}")
    ]
    parts = [
        row["message"]
        for row in rows
        if lower(sought) in lower(row["label"] or "\0") or lower(sought) in lower(row["message"])
    ]
    expected = exact if sought and exact else parts
    assert [row["message"] for row in named(tables, Sought(sought), 99)] == (
        expected if sought else [row["message"] for row in rows]
    )


def test_little_is_read_of_a_table_in_which_one_message_is_sought(tmp_path: Path) -> None:
    rows = [history(number, label=f"order {7919 * number % 100_003:06d}") for number in range(2_000)]
    hops = [each for row in rows for each in hops_of(row)]
    tables = made_up(tmp_path / "out", {"histories": rows, "hops": hops}, part_rows=500)
    prepare(tables)
    assert len(list((Path(tables.folder) / module.FOLDER).iterdir())) == 4 + 8
    wanted, read = rows[1_234]["label"], 0

    def counting(batch: pa.RecordBatch) -> Any:
        nonlocal read
        read += batch.num_rows
        return pc.equal(batch.column("label"), wanted)

    for text in (wanted, wanted[2:], wanted[-5:]):
        read = 0
        [found] = of_messages(tables).rows(["message"], [part_bits(text)], ["label"], counting)
        assert found.to_pylist() == [{"message": rows[1_234]["message"]}]
        assert read <= 200, text
    read = 0
    [found] = of_messages(tables).rows(["message"], [whole_bits(pa.array([wanted]))], ["label"], counting)
    assert read <= 24
    assert [*of_messages(tables).rows(["message"], [part_bits("invoice")], ["label"], counting)] == []
    ways = list(with_one_of(tables, "hops", "message", [rows[7]["message"], "nobody's"], ["position"]))
    assert ways == [{"position": 1}, {"position": 2}]


def test_queue_and_host_narrow_what_is_found(tmp_path: Path) -> None:
    rows = [history(number, queue=f"PRIVATE=C\\{number % 3}", row_id=number) for number in range(9)]
    rows[4] |= {"route": ["a", "relay-7", "c"]}
    relations = [{"series": "day.pcapng", "row_id": 1, "queue_name": "c\\Invoices"}]
    tables = made_up(tmp_path / "out", {"histories": rows, "relations": relations})
    assert labels(tables, "order", queue="c\\1") == ["order 1", "order 4", "order 7"]
    assert labels(tables, "", queue="invoices") == ["order 1", "order 4", "order 7"]
    assert labels(tables, "order", queue="invoices", host="RELAY") == ["order 4"]
    assert labels(tables, "order 4", host="nobody") == []
    assert labels(tables, host="relay-7") == ["order 4"]


def test_what_is_kept_follows_the_tables_and_is_made_again_if_it_is_damaged(tmp_path: Path) -> None:
    tables = made_up(tmp_path / "out", {"histories": [history(number) for number in range(40)]}, part_rows=20)
    prepare(tables)
    folder = Path(tables.folder) / module.FOLDER
    first, second = sorted(path for path in folder.iterdir() if "histories" in path.name)
    first.write_bytes(b"nothing")
    assert labels(tables, "order 17") == ["order 17"]
    np.save(first, np.zeros((module.BITS, 7), dtype=np.uint8))
    assert labels(tables, "order 17") == ["order 17"]
    with tables.run() as run:
        run.commit(added=[], schemas={}, dropped=[tables.parts("histories")[1].name])
    prepare(tables)
    assert not second.exists()
    assert labels(tables, "order 27") == []
    assert np.load(first, allow_pickle=False).shape == (module.BITS, 1)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("a file where a folder should be: nothing can be kept")
    assert labels(tables, "order 17") == ["order 17"]


def test_the_story_of_a_message_is_the_same_whether_all_is_read_or_not(
    gap_held: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = named(gap_held, Sought("lost once"), 9)
    stories = told(gap_held, found)
    monkeypatch.setattr(module, "SIEVED_ROWS", 1_000)
    assert named(gap_held, Sought("lost once"), 9) == found
    assert told(gap_held, found) == stories
    assert len(found) == 3


def test_very_many_values_are_looked_for_in_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAYS_LIMIT", 2)
    hops = [hop(f"m{number}", 1, "ab", number) for number in range(30)]
    tables = made_up(tmp_path / "out", {"hops": hops})
    wanted = ["m3", "m5", "m7"]
    assert [row["message"] for row in with_one_of(tables, "hops", "message", wanted, ["message"])] == wanted
    assert not (Path(tables.folder) / module.FOLDER).exists()
    assert len(part_bits("ab")) == len(NO_BITS) == 0
