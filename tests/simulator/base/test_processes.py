"""The time and memory of processes, as the kernel reports them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.processes import Memory, cpu_s_of, memory_in, memory_of


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
