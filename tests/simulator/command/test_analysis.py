"""`mqproto analyse` on the command line: its output, its JSON, its exit status, and its complaints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from tests.captures.pipeline.contents import rows_of
from tests.captures.pipeline.rotation import rotation
from tests.captures.pipeline.samples import another_run
from tests.conformance import ROOT

pytestmark = pytest.mark.xdist_group("spark")

SAMPLES = ROOT / "captures" / "samples"


def analysed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run_command(["analyse", *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


def decoded(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return the result of `mqproto decode`: its status and both outputs."""
    status = run_command(["decode", *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_bad_files_are_named_and_the_rest_is_in_the_tables(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, out = tmp_path / "captures", tmp_path / "tables"
    folder.mkdir()
    shutil.copy(SAMPLES / "loss-and-reordering.pcapng", folder)
    whole = (SAMPLES / "window.pcapng").read_bytes()
    (folder / "cut.pcapng").write_bytes(whole[:20_001])
    (folder / "foreign.pcap").write_bytes(b"no capture, whatever its name says")

    status, told, complaints = analysed(capsys, str(folder), "--out", str(out))

    assert status == FINDING
    lines = complaints.splitlines()
    assert lines[0].startswith(f"mqproto: {folder / 'foreign.pcap'}: byte 0: ")
    assert lines[1].startswith(f"mqproto: {folder / 'cut.pcapng'}: byte 19")
    assert lines[2:] == ["mqproto: 2 of 3 captures could not be read, or not to the end"]
    assert "0 unexplained" in told
    assert "damaged-capture                 2  " in told
    told, _, hint = told.rpartition("\n\n")
    assert hint == (
        f"so little is done in a few seconds by mqproto decode CAPTURES --tables {out}, which starts no Spark\n"
    )

    alone = tmp_path / "tables by decode"
    by_decode = decoded(capsys, str(folder), "--tables", str(alone))
    assert by_decode[:1] + by_decode[2:] == (status, complaints)
    assert [line.split()[-2:] for line in by_decode[1].splitlines()] == [
        line.split()[-2:] for line in told.splitlines()
    ]
    assert rows_of(Tables(alone)) == rows_of(Tables(out))

    status, told, complaints = analysed(
        capsys, str(folder / "loss-and-reordering.pcapng"), "--out", str(out), "--json"
    )
    assert (status, complaints) == (DONE, "")
    found = json.loads(told)
    assert found["known"] == [str(folder / "loss-and-reordering.pcapng")]
    assert found["tables"]["captures"] == 2
    assert {each["code"]: each["count"] for each in found["findings"]}["damaged-capture"] == 2


def test_a_capture_of_another_system_is_not_called_damaged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = another_run("three-hop", tmp_path)
    window = tmp_path / "window.pcapng"
    shutil.copy(SAMPLES / "window.pcapng", window)
    status, told, complaints = decoded(capsys, str(window), str(other), "--tables", str(tmp_path / "tables"))
    assert status == FINDING
    assert f"mqproto: {window}: not of one system with {other}: " in complaints
    assert complaints.splitlines()[-1] == "mqproto: 1 of 2 captures are of another system than the tables"
    assert "note  other-system                    1  a capture of another system" in told
    assert "damaged" not in told + complaints


def test_a_run_goes_on_from_an_earlier_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    earlier, later = rotation(tmp_path / "captures", 2)
    grown, at_once = tmp_path / "grown", tmp_path / "at once"
    _, told, _ = decoded(capsys, str(earlier), "--tables", str(grown), "--json")
    [series] = json.loads(told)["series"]
    before = series["packets"]

    status, told, complaints = decoded(capsys, str(later), "--tables", str(grown), "--json")
    [series] = json.loads(told)["series"]
    assert series["files"] == [str(earlier), str(later)]
    assert series["packets"] > before
    assert json.loads(told)["known"] == []

    assert decoded(capsys, str(tmp_path / "captures"), "--tables", str(at_once), "--json") == (
        status,
        told,
        complaints,
    )


def test_tables_are_of_all_packets_and_what_bodies_say_is_for_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    capture = str(SAMPLES / "three-hop.pcapng")
    status, told, complaints = decoded(capsys, capture, "--tables", "out", "--kind", "Ping")
    assert (status, told) == (MISUSE, "")
    assert complaints.startswith("mqproto: --tables makes tables of all packets: beside it are --topology, ")
    status, told, complaints = decoded(capsys, capture, "--body-text")
    assert (status, told) == (MISUSE, "")
    assert complaints.startswith("mqproto: --body-text is for the tables of --tables; ")


def test_a_folder_with_something_else_and_captures_that_are_not_there_are_misuse(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("my only copy")
    capture = str(SAMPLES / "three-hop.pcapng")
    status, _, complaints = analysed(capsys, capture, "--out", str(tmp_path))
    assert status == FINDING
    assert complaints == f"mqproto: {tmp_path} holds something else than tables: choose another folder\n"

    missing = tmp_path / "nowhere.pcap"
    status, _, complaints = analysed(capsys, str(missing), "--out", str(tmp_path / "out"))
    assert status == MISUSE
    assert (
        complaints
        == f"mqproto: {missing}: nothing has this name, or fits it; name captures, folders or patterns\n"
    )
    assert not (tmp_path / "out").exists()

    status, _, complaints = analysed(capsys, capture, "--out", str(tmp_path / "out"), "--master", "local[1]")
    assert status == MISUSE
    assert "Spark is running already" in complaints
    assert spark.range(3).count() == 3


@pytest.mark.parametrize("said", ["spark.ui.enabled", "=true", ""])
def test_what_is_no_setting_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    status, told, complaints = analysed(capsys, "no.pcap", "--out", str(tmp_path / "out"), "--conf", said)
    assert (status, told) == (MISUSE, "")
    assert complaints == (
        f"mqproto: --conf {said} is not a setting: NAME=VALUE is one, as spark.ui.enabled=true\n"
    )


def test_settings_are_for_whoever_starts_spark(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = str(SAMPLES / "three-hop.pcapng")
    for setting in (["--conf", "spark.ui.enabled=true"], ["--conf", "spark.jars.packages=a:b:1"]):
        status, _, complaints = analysed(capsys, capture, "--out", str(tmp_path / "out"), *setting)
        assert status == MISUSE
        assert "Spark is running already: give master and settings to spark-submit" in complaints
    assert spark.range(3).count() == 3
