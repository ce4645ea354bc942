"""Readers of the tables while runs commit: what each reads is what one run left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from captures.pipeline.tables.tables import is_there
from tests.captures.pipeline import torn
from tests.conformance import ROOT

# The long form took seven minutes of one core: the limit is for what hangs.
pytestmark = pytest.mark.timeout(3_600)

COMMITS = int(os.environ.get("MQPROTO_TORN_COMMITS", "8"))
READS = int(os.environ.get("MQPROTO_TORN_READS", "9"))
"""At least; readers go on for as long as there are commits."""


def test_of_all_reads_beside_a_writer_none_is_torn(tmp_path: Path) -> None:
    """Long: `make torn`, 200 commits and 10,000 reads."""
    known = {torn.digest(torn.state(run)): run for run in range(COMMITS + 1)}
    seen: Counter[tuple[str, int]] = Counter()
    torn.write(tmp_path, 1)
    writer = subprocess.Popen([sys.executable, "-m", torn.__name__, str(tmp_path), str(COMMITS)], cwd=ROOT)
    reads, is_over = 0, False
    try:
        while not is_over or reads < READS:
            is_over = writer.poll() is not None
            for name, reader in torn.READERS.items():
                for digest in reader(tmp_path):
                    assert digest in known, f"read {reads} by {name} is torn: {digest}"
                    seen[name, known[digest]] += 1
                reads += 1
    finally:
        writer.kill()
    assert writer.wait() == 0
    assert is_there(str(tmp_path))
    states = {run for _, run in seen}
    print(f"{reads:,} reads beside {COMMITS} commits saw {len(states)} of {COMMITS} states; 0 torn")
    assert {(name, COMMITS) for name in torn.READERS} <= set(seen)
    assert len(states) > 2


def test_all_files_that_lie_there_are_no_table(tmp_path: Path) -> None:
    """That the test above would see a torn read."""
    known = {torn.digest(torn.state(run)) for run in range(4)}
    torn.write(tmp_path, 3)
    assert {digest in known for reader in torn.READERS.values() for digest in reader(tmp_path)} == {True}
    assert {digest in known for digest in torn.by_files(tmp_path)} == {False}
