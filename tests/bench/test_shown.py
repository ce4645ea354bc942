from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from tests.bench import shown
from tests.bench.figures import Figure, Result, Table, Wanted

MACHINE = {"python": "CPython 3.11.7", "cores": "2"}
RESULTS = [
    Result(
        name="chain",
        title="three nodes | and a bar",
        figures=[
            Figure("throughput", "messages/s", (9_000.0, 8_000.0, 9_500.0), Wanted(at_least=20_000)),
            Figure("CPU", "µs/message", (), Wanted(at_most=60)),
        ],
        notes=["a note"],
    ),
    Result(
        "growth",
        "more of everything",
        [Figure("100 queues", "µs", (50.0,))],
        pictures={"growth.svg": "<svg/>"},
    ),
    Result("outage", "gave no figures", [], broken=["of 3 messages: 1 messages lost"]),
]


def test_one_table_has_all_benchmarks_and_what_was_wanted_of_them() -> None:
    page = shown.as_markdown(MACHINE, RESULTS)
    rows = [
        [cell.strip() for cell in line[2:-2].split(" | ")] for line in page.splitlines() if line[:1] == "|"
    ]
    assert all(len(row) == len(rows[0]) for row in rows)
    assert rows[2] == [
        "**chain**",
        "throughput",
        "messages/s",
        "8,000",
        "9,000",
        "9,500",
        "3",
        "at least 20,000",
        "not reached",
    ]
    assert "unknown" in page
    assert "| **growth** | 100 queues | µs | 50 | 50 | 50 | 1 |  |  |" in page
    assert "- **chain**: three nodes \\| and a bar" in page
    assert "**broken: of 3 messages: 1 messages lost**" in page
    assert "![growth](growth.svg)" in page
    assert "- cores: 2" in page


def test_a_terminal_shows_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shown.show(MACHINE, RESULTS)
    out = capsys.readouterr().out
    for words in ("not reached", "8,000", "a note", "broken: of 3 messages: 1 messages lost", "cores: 2"):
        assert words in out


def test_what_stands_side_by_side_is_a_table_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    beside = Table(("", "nodes", "others"), [("flushed", "yes", "no | never"), ("messages/s", "10", "20")])
    results = [Result("chain", "three nodes", [], beside=beside)]
    page = shown.as_markdown(MACHINE, results)
    assert (
        "|  | nodes | others |\n| --- | ---: | ---: |\n| flushed | yes | no \\| never |\n| messages/s | 10 | 20 |"
        in page
    )
    shown.show(MACHINE, results)
    assert ["messages/s", "10", "20"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    found = json.loads(json.dumps(shown.as_json(MACHINE, results)))["benchmarks"]["chain"]
    assert found["beside"][1] == ["flushed", "yes", "no | never"]
    assert "beside" not in shown.as_json(MACHINE, RESULTS)["benchmarks"]["chain"]


def test_a_folder_gets_markdown_json_and_pictures(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    shown.write(folder, MACHINE, RESULTS)
    assert sorted(path.name for path in folder.iterdir()) == ["bench.json", "bench.md", "growth.svg"]
    found = json.loads((folder / "bench.json").read_text("utf-8"))
    assert found == shown.as_json(MACHINE, RESULTS)
    assert found["benchmarks"]["chain"]["figures"][0]["runs"] == [9_000, 8_000, 9_500]


def test_a_folder_that_cannot_be_had_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UsageError, match="name another folder"):
        shown.prepared(tmp_path / "file")
    (tmp_path / "bench.md").mkdir()
    with pytest.raises(UsageError, match="name another folder"):
        shown.write(tmp_path, MACHINE, RESULTS)
