"""The fixture `queue_managers`, in a test of ours and in other projects' tests, where it must leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.base.processes import PROC
from mqproto.simulator.testing.managers import Starting


@pytest.mark.parametrize(
    ("topology", "queues", "why"),
    [(0, (), "start one at least"), (1, ("orders:fast",), "write NAME, or NAME:transactional")],
)
def test_what_cannot_be_is_refused(
    topology: int, queues: tuple[str, ...], why: str, queue_managers: Starting
) -> None:
    with pytest.raises(UsageError, match=why):
        queue_managers(topology, queues=queues)


def test_what_is_not_there_is_not_cut_killed_or_started_again(queue_managers: Starting) -> None:
    managers = queue_managers(1)
    with pytest.raises(UsageError, match="no link joins qm1 and qm2; there is none"):
        managers.cut("qm1", "qm2")
    with pytest.raises(UsageError, match="qm1 runs"):
        managers.start("qm1")
    managers.kill("qm1")
    with pytest.raises(UsageError, match="qm1 does not run"):
        managers.kill("qm1")


SUITE = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_that_fails(queue_managers, number):
    managers = queue_managers(1)
    print("node", managers.directory)
    with managers.connect("qm1") as client, client.transaction("orders", timeout_s=0):
        assert number > 2
"""


@pytest.mark.long
def test_a_test_that_fails_leaves_no_process_behind(tmp_path: Path) -> None:
    """The test is in another project's suite, which runs in two processes of pytest-xdist."""
    (tmp_path / "test_somebody.py").write_text(SUITE)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:schemathesis",  # It imports for a second, and again in each worker.
            "--basetemp",
            tmp_path / "temp",
        ],
        cwd=tmp_path,
        env=os.environ | {"CI": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    folders = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("node ")]
    assert len(set(folders)) == 2
    assert nodes_in(tmp_path) == []


PROGRAM = """
import sys
from pathlib import Path
from mqproto.simulator.testing.managers import started

with started(Path(sys.argv[1]), 2):
    print("they listen", flush=True)
    sys.stdin.read()
"""


def test_whoever_started_them_is_killed_and_they_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "they listen\n"
        assert len(nodes_in(tmp_path)) == 2
        program.kill()
    while nodes_in(tmp_path):
        os.sched_yield()


def nodes_in(folder: Path) -> list[str]:
    """Return the command lines of the running nodes with a store below a folder."""
    found = []
    for path in PROC.glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue  # It has ended meanwhile.
        if str(folder) in command and " node " in command:
            found.append(command)
    return found
