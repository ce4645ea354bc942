"""What processes take, as the kernel tells it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.base import processes
from simulator.base.processes import (
    Memory,
    Process,
    Taken,
    Watch,
    cpu_s_of,
    memory_in,
    memory_of,
    process_in,
    started_by,
)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


@given(
    resident=st.none() | st.integers(0, 2**32),
    peak=st.none() | st.integers(0, 2**32),
    others=st.lists(
        st.sampled_from(["Name:\tVmRSS", "VmSize:\t  9 kB", "VmRSSx:\t 9 kB", "VmHWM:\t9 MB", ""])
    ),
)
def test_memory_is_read_from_its_two_lines_and_unknown_without_them(
    resident: int | None, peak: int | None, others: list[str]
) -> None:
    told = [
        f"{name}:\t{kib:8d} kB" for name, kib in (("VmHWM", peak), ("VmRSS", resident)) if kib is not None
    ]
    expected = Memory(*(None if kib is None else 1_024 * kib for kib in (resident, peak)))
    assert memory_in("\n".join([*others, *told, *others])) == expected


def test_a_process_has_memory_while_it_runs_and_none_when_it_is_gone() -> None:
    own = memory_of(os.getpid())
    if sys.platform == "linux":
        assert own.resident_bytes is not None
        assert own.resident_bytes > 1_000_000
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert memory_of(process.pid) == Memory(None, None)


@given(
    name=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=15),
    times=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
)
def test_a_process_is_read_whatever_its_name(name: str, times: tuple[int, ...]) -> None:
    before = "S 40 41 41 34816 41 4194304 1 2 3 4"
    told = process_in(f"42 ({name}) {before} {' '.join(map(str, times))} 8 9 20 0 1 0 5 6 7\n")
    assert told == Process(42, 40, name, sum(times) / os.sysconf("SC_CLK_TCK"))


def test_the_time_of_a_process_is_what_it_has_used_and_unknown_when_it_is_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as other:
        own_s, other_s = cpu_s_of(os.getpid()), cpu_s_of(other.pid)
        assert own_s is not None
        assert other_s is not None
        until_s = time.process_time() + 0.05
        while time.process_time() < until_s:
            pass
        assert cpu_s_of(os.getpid()) == pytest.approx(time.process_time(), abs=0.02)
        assert cpu_s_of(os.getpid()) > own_s + 0.03  # type: ignore[operator]
    assert cpu_s_of(other.pid) is None


@on_linux
def test_where_processes_have_no_clock_their_time_is_read_from_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    exact_s = cpu_s_of(os.getpid())
    monkeypatch.delattr(time, "clock_gettime")
    assert cpu_s_of(os.getpid()) == pytest.approx(exact_s, abs=0.05)


HELD_BYTES = 50_000_000
BUSY = f"""
import os, sys
if len(sys.argv) > 1:
    held = b"x" * {HELD_BYTES}
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    until_s = sum(os.times()[:2]) + 0.1
    while sum(os.times()[:2]) < until_s:
        pass
    print("done", flush=True)
    sys.stdin.read()
else:
    import subprocess
    subprocess.run([sys.executable, "-c", os.environ["BUSY"], "below"])
"""


@on_linux
def test_the_processes_of_processes_are_watched() -> None:
    child = [sys.executable, "-c", BUSY]
    environment = {**os.environ, "BUSY": BUSY}
    pipe = subprocess.PIPE
    with subprocess.Popen(child, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        below = int(process.stdout.readline())
        found = {each.pid: each for each in started_by(os.getpid())}
        assert (found[below].parent, found[process.pid].parent) == (process.pid, os.getpid())
        with Watch() as idle:
            pass
        with Watch() as watch:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
        process.communicate()
    assert idle.taken() == Taken(None, {}, None)
    taken = watch.taken()
    assert taken.peak_bytes[found[below].name] > HELD_BYTES
    assert taken.all_bytes is not None
    assert taken.all_bytes > HELD_BYTES
    assert taken.cpu_s is not None
    assert taken.cpu_s >= 0.09


def test_where_there_is_no_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path / "nowhere")
    with Watch() as watch:
        pass
    assert watch.taken() == Taken(None, {}, None)
