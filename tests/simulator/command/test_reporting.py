"""`mqproto report` and `mqproto tables`: their files, output, answers and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mqproto
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.simulator.base.program.output import DONE, FINDING, MISUSE
from mqproto.simulator.cli.cli import run_command
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.report.counts.test_security import secured_rows
from tests.captures.pipeline.report.tables import made_up, sample
from tests.captures.pipeline.rotation import rotation


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that contains a sample's tables."""
    return Path(sample("gap-held", tmp_path_factory.mktemp("reporting")).folder)


@pytest.mark.long
def test_a_page_is_written_beside_the_tables_and_the_gist_is_printed(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(tables)]) == DONE
    assert (tables / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    said = capsys.readouterr().out
    assert "9 messages: 9 confirmed" in said
    frames = Tables(tables).read("captures").to_pylist()[0]["frames"]
    assert f"gap-held.pcapng: {frames} frames of its files, 2 connections; nothing is known to be lac" in said
    waited = "waited 50% 20 ms, 95% 5.6 s, most 5.81 s, answered in "
    assert f"127.0.0.2:1801 > 127.0.0.3:1801: 9 messages, 1.5/s, {waited}" in said
    assert "65645F33\\16: 9 messages, source to it 50% 20 ms, 95% 5.6 s, most 5.81 s" in said
    assert f"{tables / 'report.html'}: open it in a browser" in said
    assert not list(tables.glob(".*"))


@pytest.mark.long
@pytest.mark.parametrize(("holds", "status"), [(True, DONE), (False, FINDING)])
def test_a_signature_that_does_not_hold_is_a_finding(tmp_path: Path, holds: bool, status: int) -> None:
    signed = {"security_header": True, "signed": "SHA-512", "verified": holds}
    folder = str(made_up(tmp_path / "tables", secured_rows([signed])).folder)
    assert run_command(["report", folder]) == status


@pytest.mark.long
def test_programs_get_json_and_the_page_goes_where_it_is_told(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "monday.html"
    assert run_command(["report", str(tables), "--html", str(target), "--json"]) == DONE
    said = json.loads(capsys.readouterr().out)
    assert said["page"] == str(target)
    assert target.exists()
    assert said["messages"]["outcomes"] == {"confirmed": 9}
    assert said["findings"][0] == {"severity": "note", "code": "resend", "count": 11}


def test_a_message_is_told_of_by_its_label(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", str(tables), "--message", "lost once"]) == DONE
    said = capsys.readouterr().out
    assert said.count("lost once: confirmed, 127.0.0.3:1801") == 3
    went = "went from 127.0.0.2:1801 to 127.0.0.3:1801, its destination, after it waited 5.81 s"
    assert f"{went}  (frame.number == " in said
    assert (
        run_command(["report", str(tables), "--find", "lost once", "--host", "127.0.0.3", "--json"]) == DONE
    )
    for row in json.loads(capsys.readouterr().out):
        assert row["verdict"].startswith("It came to its destination, 127.0.0.3:1801, after ")
        assert {step["what"] for step in row["steps"]} >= {"went from 127.0.0.1 to 127.0.0.2:1801"}


def test_a_message_that_nobody_sent_is_said_to_be_none(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(tables), "--message", "nobody's"]) == FINDING
    assert 'has all of this: "nobody\'s" in its label or identifier' in capsys.readouterr().out
    assert run_command(["report", str(tables), "--find", "lost", "--queue", "\x1b"]) == FINDING
    assert capsys.readouterr().out.rstrip("\n").isprintable()


@pytest.mark.long
def test_a_breach_of_the_protocol_is_told_by_the_status(tmp_path: Path) -> None:
    assert run_command(["report", str(sample("hostile", tmp_path).folder)]) == FINDING


def test_what_cannot_be_reported_of_is_refused_in_one_line(
    tmp_path: Path, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(tmp_path / "nothing")]) == FINDING
    assert "run mqproto analyse CAPTURES --out" in capsys.readouterr().err
    assert run_command(["report", str(tables), "--message", "x", "--html", "y.html"]) == MISUSE
    assert "leave out --html" in capsys.readouterr().err
    assert run_command(["report", str(tables), "--html", str(tables / "_lock" / "x.html")]) == MISUSE
    assert "exists; name another" in capsys.readouterr().err


def test_tables_are_listed_described_and_asked(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["tables", str(tables)]) == DONE
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("run 1, 20")
    assert said[0].endswith(f" UTC, by mqproto {mqproto.__version__}")
    assert "histories                9 rows  What became of a message of an application." in "\n".join(said)
    assert run_command(["tables", str(tables), "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["tables"]["packets"] == {
        "rows": Tables(tables).rows("packets"),
        "version": 0,
    }

    assert run_command(["tables", str(tables), "--columns", "clocks"]) == DONE
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "clocks: How far the clock of a capture point is ahead of the reference."
    assert said[6].split("  ", 1)[0] == "offset_ns"
    assert said[6].endswith("int64   nanoseconds  how far it is ahead when it shows at_ns")
    assert run_command(["tables", str(tables), "--columns", "runs", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)[0] == {
        "name": "run",
        "type": "int64",
        "unit": "",
        "meaning": "counted from 1",
    }

    sql = "SELECT outcome, count(*) AS messages FROM histories JOIN runs ON run = 1 GROUP BY outcome"
    assert run_command(["tables", str(tables), "--sql", sql]) == DONE
    assert capsys.readouterr().out == "outcome    messages\nconfirmed  9\n"
    sql = "SELECT route, time, 'nan'::float x FROM histories JOIN packets USING (series, row_id) ORDER BY time LIMIT 1"
    assert run_command(["tables", str(tables), "--sql", sql, "--json"]) == DONE
    [row] = json.loads(capsys.readouterr().out)
    assert row["route"] == ["127.0.0.1", "127.0.0.2:1801", "127.0.0.3:1801"]
    assert (row["time"][:21], row["x"]) == ("2023-11-15 01:13:20.7", None)
    assert run_command(["tables", str(tables), "--sql", "FROM range(1500)"]) == DONE
    said = capsys.readouterr().out.splitlines()
    assert (len(said), said[-1][:31]) == (1_002, "and more than these 1,000 rows:")


def test_tables_are_exported(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "it's for others"
    assert run_command(["tables", str(tables), "--export", str(target)]) == DONE
    written = capsys.readouterr().out.splitlines()
    assert len(written) == 16
    found = pq.read_table(target / "histories.parquet")
    expected = Tables(tables).read("histories")
    assert found.schema.names == expected.schema.names
    assert found.sort_by("row_id").to_pylist() == expected.sort_by("row_id").to_pylist()

    target = tmp_path / "csv"
    query = "SELECT label, route FROM histories ORDER BY row_id -- the first of all;"
    options = ["--export", str(target), "--format", "csv"]
    assert run_command(["tables", str(tables), *options, "--sql", query]) == DONE
    rows = (target / "answer.csv").read_text().splitlines()
    assert rows[0] == "label,route"
    assert len(rows) == 10
    options[1] = str(tmp_path / "formulas")
    run = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    others = ["-1", "'1-1'", "'=3'::blob", r"'\x00=4'::blob", "'@5'::enum('@5')", "['=6']", "null::text"]
    columns = [f"'{text}'" for text in run] + others
    query = f"select {', '.join(f'{one} as a' for one in columns)}"
    assert run_command(["tables", str(tables), *options, "--sql", query]) == DONE
    with (tmp_path / "formulas" / "answer.csv").open(newline="") as file:
        [_, found] = csv.reader(file)
    expected = [f"'{text}" for text in run] + ["-1", "1-1", "'=3", r"\x00=4", "'@5", "['=6']", ""]
    assert found == expected, "no spreadsheet runs what a message says"
    options[1] = str(target)
    assert run_command(["tables", str(tables), *options]) == MISUSE
    assert capsys.readouterr().err.endswith(
        "has something in it: choose another folder for what is exported\n"
    )


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        (["--sql", "SELEC 1"], MISUSE, 'Parser Error: syntax error at or near "SELEC"'),
        (["--sql", "-- nothing"], MISUSE, "'-- nothing' asks for no rows: begin with SELECT"),
        (["--sql", "FROM nothing"], MISUSE, "Catalog Error: Table with name nothing does not exist!"),
        (["--columns", "nothing"], MISUSE, "there is no table 'nothing', but arrivals, captures, clocks"),
        (["--columns", "gaps", "--vacuum", "1"], MISUSE, "are different things: one at a time"),
        (["--run", "7"], FINDING, "has no run 7: its table `runs` has those that there were"),
    ],
)
def test_what_is_asked_wrongly_of_tables_is_said_in_one_line(
    tables: Path, capsys: pytest.CaptureFixture[str], options: list[str], status: int, reason: str
) -> None:
    assert run_command(["tables", str(tables), *options]) == status
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


@pytest.mark.long
def test_files_that_nobody_needs_are_deleted_when_somebody_wishes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "out")
    assert run_command(["tables", place]) == FINDING
    assert "has no tables: run mqproto analyse CAPTURES --out" in capsys.readouterr().err
    for path in rotation(tmp_path / "captures", 2):
        analyse([str(path)], Tables(place), LocalEngine())
    before = rows_of(Tables(place))
    assert run_command(["tables", place, "--vacuum", "1"]) == DONE
    assert capsys.readouterr().out == "0 files that nobody needs deleted\n"
    assert run_command(["tables", place, "--vacuum", "0", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["deleted"] > 5
    assert rows_of(Tables(place)) == before
