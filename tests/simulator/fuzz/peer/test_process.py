"""The peer's process: whether it is alive, and how much memory it has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.peer.conduct import PeerFailure
from mqproto.simulator.fuzz.peer.process import Process


def test_a_process_that_lives_is_no_fault_and_one_that_ended_is() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = Process(child.pid, 64)
        assert process.check() is None
        assert process.first_mb > 0
        assert child.stdin is not None
        child.stdin.close()
        # It is a zombie when it has ended, and before its parent asks.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        fault = process.check()
        assert fault is not None
        assert (fault.oracle, fault.rule) == (PeerFailure.CRASHES, "its process has ended")
        child.wait()
        assert process.check() == fault
    with pytest.raises(UsageError, match=f"--pid {child.pid}: there is no such process"):
        Process(child.pid, 64)


def test_growth_is_said_once() -> None:
    process = Process(os.getpid(), 64)
    assert process.check() is None
    process.first_mb -= 65
    fault = process.check()
    assert fault is not None
    assert fault.oracle is PeerFailure.GROWS
    assert "over 64 MB more" in fault.rule
    assert process.check() is None
