from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.bench.watch import Watch, parent_in, started_by

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
HELD_BYTES = 50_000_000
BUSY = f"""
import os, sys
if len(sys.argv) > 1:
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    held = b"x" * {HELD_BYTES}
    until_s = sum(os.times()[:2]) + 0.1
    while sum(os.times()[:2]) < until_s:
        pass
    print("done", flush=True)
    sys.stdin.read()
else:
    import subprocess
    subprocess.run([sys.executable, "-c", os.environ["BUSY"], "below"])
"""


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=15))
def test_the_parent_of_a_process_is_found_whatever_its_name(name: str) -> None:
    assert parent_in(f"42 ({name}) S 40 41 41 34816 41 4194304 1 2 3 4\n") == 40


@on_linux
def test_the_processes_of_processes_are_watched() -> None:
    child = [sys.executable, "-c", BUSY]
    pipe = subprocess.PIPE
    with subprocess.Popen(child, stdin=pipe, stdout=pipe, env={**os.environ, "BUSY": BUSY}) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        below = int(process.stdout.readline())
        assert {process.pid, below} <= set(started_by(os.getpid()))
        with Watch() as watch:
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
        process.communicate()
    cpu_s, peak_bytes = watch.taken()
    assert cpu_s is not None
    assert cpu_s >= 0.09
    assert peak_bytes is not None
    assert peak_bytes > HELD_BYTES


def test_where_there_is_no_proc_there_are_no_processes(tmp_path: Path) -> None:
    assert started_by(os.getpid(), tmp_path) == []
