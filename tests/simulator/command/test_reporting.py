"""`mqproto report`: what it writes, prints and answers, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli.cli import run_command
from simulator.command.options import DONE, FINDING, MISUSE
from tests.captures.pipeline.report.tables import sample


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables of a sample."""
    return Path(sample("gap-held", tmp_path_factory.mktemp("reporting")).folder)


def test_a_page_is_written_beside_the_tables_and_the_gist_is_printed(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(tables)]) == DONE
    assert (tables / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    said = capsys.readouterr().out
    assert "9 messages: 9 confirmed" in said
    assert "gap-held.pcapng: 66 frames of its files, 2 connections; nothing is known to be lacking" in said
    waited = "waited 50% 20 ms, 95% 5.6 s, most 5.81 s, answered in 3 ms, at most 3 ms"
    assert f"127.0.0.2:1801 > 127.0.0.3:1801: 9 messages, 1.5/s, {waited}" in said
    assert "74736564\\16: 9 messages, to it 50% 20 ms, 95% 5.6 s, most 5.81 s" in said
    assert f"{tables / 'report.html'}: open it in a browser" in said
    assert not list(tables.glob(".*"))


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


def test_a_breach_of_the_protocol_is_told_by_the_status(tmp_path: Path) -> None:
    assert run_command(["report", str(sample("hostile", tmp_path).folder)]) == FINDING


def test_what_cannot_be_reported_of_is_refused_in_one_line(
    tmp_path: Path, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(tmp_path / "nothing")]) == FINDING
    assert "run mqproto analyse CAPTURES --out" in capsys.readouterr().err
    assert run_command(["report", str(tables), "--message", "x", "--html", "y.html"]) == MISUSE
    assert "leave out --html" in capsys.readouterr().err
    assert run_command(["report", str(tables), "--html", str(tables / "_lock" / "x.html")]) == FINDING
    assert "exists" in capsys.readouterr().err
