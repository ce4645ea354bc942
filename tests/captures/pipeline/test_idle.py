"""If everything in a folder is already in the tables, the program notices this before it starts anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.captures.decode.names import Names
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import Wanted, analyse, nothing_new
from mqproto.captures.pipeline.source.files import inventory
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.contents import rows_of
from tests.conformance import ROOT

SAMPLES = ROOT / "captures" / "samples"
PROGRAM = """
import sys
from mqproto.simulator.cli.cli import run_command
status = run_command(["analyse", sys.argv[1], "--out", sys.argv[2]])
print(status, sorted({"pyspark", "pandas", "py4j"} & set(sys.modules)))
"""


def test_what_is_said_of_captures_that_are_in_the_tables_is_what_a_run_would_say(tmp_path: Path) -> None:
    folder, tables = tmp_path / "captures", Tables(tmp_path / "out")
    folder.mkdir()
    paths = [str(folder)]
    assert nothing_new(inventory(paths), tables) is None
    shutil.copy(SAMPLES / "gap-held.pcapng", folder)
    (folder / "broken.pcapng").write_bytes(b"\x0a\x0d\x0d\x0a and no more")
    (folder / "notes.txt").write_text("none of ours")
    assert nothing_new(inventory(paths), tables) is None
    analyse(paths, tables, LocalEngine())

    for each in (tables, Tables(tmp_path / "out")):
        idle = nothing_new(inventory(paths), each)
        assert idle is not None
        assert [error.where for error in idle.refused] == [str(folder / "broken.pcapng")]
    assert idle is not None
    before = rows_of(tables)
    again = analyse(paths, tables, LocalEngine())
    assert again.codes == idle.codes
    assert repr(replace(again, codes=Counter())) == repr(replace(idle, codes=Counter()))
    assert rows_of(tables) == before

    assert nothing_new(inventory(paths), tables, Wanted(body_texts=True)) is None
    assert nothing_new(inventory(paths), tables, Wanted(names=Names(hosts={"127.0.0.1": "a"}))) is None
    (folder / "broken.pcapng").write_bytes((SAMPLES / "pings.pcapng").read_bytes())
    assert nothing_new(inventory(paths), tables) is None
    assert nothing_new(inventory([str(tmp_path / "nowhere")]), tables) is None


def test_one_capture_that_is_not_in_the_tables_is_something_to_do(tmp_path: Path) -> None:
    known, tables = tmp_path / "known.pcapng", Tables(tmp_path / "out")
    shutil.copy(SAMPLES / "gap-held.pcapng", known)
    analyse([str(known)], tables, LocalEngine())
    assert nothing_new(inventory([str(known)]), tables) is not None
    shutil.copy(SAMPLES / "window.pcapng", tmp_path / "new.pcapng")
    assert nothing_new(inventory([str(known), str(tmp_path / "new.pcapng")]), tables) is None


@pytest.mark.long
def test_nothing_starts_for_it(tmp_path: Path) -> None:
    capture, out = str(SAMPLES / "window.pcapng"), str(tmp_path / "out")
    analyse([capture], Tables(out), LocalEngine())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, capture, out], capture_output=True, text=True, check=True, timeout=60
    )
    said = done.stdout.splitlines()
    assert said[0] == "1 capture in the tables already"
    assert said[-1] == "0 []"
