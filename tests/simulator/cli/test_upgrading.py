"""Files of an earlier commit, opened by the current program: stores, journals, histories and tables.

Nodes of both programs also work in one chain.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

import pytest

from mqproto.captures.pipeline.tables.runs import VERSION
from mqproto.simulator.storage.tables import BEFORE, LAYOUT as STORE_LAYOUT
from mqproto.simulator.topology.file import written_address
from mqproto.simulator.topology.ports import reserved_address
from tests.conformance import ROOT
from tests.conftest import FORBIDDEN
from tests.simulator.typed import COMMAND, topology_file

EARLIER: Final = "71819341"
COUNT: Final = 1_000
NAMES: Final = ("sender", "intermediate", "destination")

pytestmark = pytest.mark.long


class Machine:
    """A machine with three nodes; each command is given either to the earlier program or to the current one."""

    def __init__(self, folder: Path, earlier: Path) -> None:
        self.folder, self.earlier = folder, earlier
        self.topology = topology_file(folder)
        # Each program has settings of its own; that of now has more.
        text = re.sub(r"(?ms)^\[[^]]*settings\].*?(?=^\[|\Z)", "", self.topology.read_text())
        self.topology.write_text(text)
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, of: str, *typed: str | Path) -> subprocess.Popen[str]:
        """Start a command of one of the programs; `of` says whether it is the earlier or the current one."""
        name = "simulator.cli.cli" if of == "earlier" else COMMAND[-1]
        place = {"PYTHONPATH": str(self.earlier if of == "earlier" else ROOT)}
        command = [sys.executable, "-P", "-m", name, *map(str, typed)]
        if typed[0] not in ("analyse", "tables"):
            command += ["--topology", str(self.topology), "--directory", str(self.folder)]
        with (self.folder / "stderr").open("a") as said:
            return subprocess.Popen(
                command,
                env=os.environ | place,
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def done(self, of: str, *typed: str | Path, status: int = 0) -> str:
        """Return the output of a command, which must end with the given status."""
        process = self.start(of, *typed)
        said, _ = process.communicate(timeout=200)
        assert process.returncode == status, (typed, said, self.said()[-2_000:])
        return said

    def said(self) -> str:
        """Return everything that all commands have complained about."""
        return (self.folder / "stderr").read_text()

    def has(self, of: str, name: str, *typed: str | Path) -> str:
        """Kill the process with the given name, and start a program in its place.

        Return the line with which the new program reports that it is ready.
        """
        self.kill(name)
        self.processes[name] = process = self.start(of, *(typed or ("node", name)))
        assert process.stdout is not None
        line = process.stdout.readline()
        while not line.startswith("ready"):
            assert line, self.said()[-2_000:]
            line = process.stdout.readline()
        return line

    def kill(self, *names: str, number: int = signal.SIGKILL) -> None:
        """Kill the processes with these names."""
        for process in [self.processes.pop(name) for name in names if name in self.processes]:
            process.send_signal(number)
            process.communicate()


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the program as it was in the commit EARLIER."""
    folder = tmp_path_factory.mktemp("earlier")
    known = ("git", "-C", ROOT, "cat-file", "-e", EARLIER)
    if subprocess.run(known, check=False, capture_output=True).returncode:
        pytest.skip(f"{FORBIDDEN}look at commit {EARLIER}: fetch the whole history")
    archive = ("git", "-C", ROOT, "archive", "--output", folder / "earlier.tar", EARLIER)
    subprocess.run([*archive, "mqproto", "captures", "simulator"], check=True)
    with tarfile.open(folder / "earlier.tar") as files:
        files.extractall(folder)
    return folder


@pytest.fixture
def machine(tmp_path: Path, earlier: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, earlier)
    yield machine
    machine.kill(*machine.processes)


def test_a_thousand_waiting_messages_arrive_once_in_order_while_their_chain_is_upgraded_and_killed(
    machine: Machine,
) -> None:
    lines = [f"order {number}" for number in range(COUNT)]
    (machine.folder / "orders.txt").write_text("\n".join(lines))
    send = ("send", r"destination\orders", "--lines", "--file", "orders.txt", "--resume", "sent")
    receive = ("receive", "orders", "--node", "destination", "--resume", "got")
    for name in NAMES:
        machine.has("earlier", name)
    machine.processes["client"] = machine.start("earlier", *send)
    got = machine.done("earlier", *receive, "--count", "100", "--timeout", "60")
    assert got.splitlines() == lines[:100]
    machine.kill("destination", "client")
    sent = machine.done("earlier", *send)  # Nobody receives any more: they wait.
    for name in NAMES:
        machine.done("earlier", "store", "backup", name, "before")

    # Against the stream, killed each time, with the others as they were until then.
    for upgraded, name in enumerate(reversed(NAMES), 1):
        machine.has("now", name)
        for other in NAMES:
            machine.has("now" if other in NAMES[-upgraded:] else "earlier", other)
        more = [f"order {len(lines) + number}" for number in range(50)]
        lines += more
        (machine.folder / "more.txt").write_text("\n".join(more))
        of = "now" if name == "sender" else "earlier"
        machine.done(of, "send", r"destination\orders", "--lines", "--file", "more.txt")
    got = machine.done("now", *receive, "--count", str(len(lines)), "--timeout", "60")
    assert got.splitlines() == lines, "the first 100 from the journal of the earlier client"
    machine.done("now", "receive", "orders", "--node", "destination", "--timeout", "2", status=1)
    assert machine.done("now", *send) == sent
    for name in NAMES:
        machine.done("now", "store", "check", name)

    # There is no way back but by the backup, as the layout is another.
    machine.kill("sender")
    machine.done("earlier", "node", "sender", status=1)
    assert f"it has layout {STORE_LAYOUT}, and this mqproto knows {BEFORE}" in machine.said()


def test_a_gateway_knows_what_an_earlier_one_was_answered_and_tables_are_refused_by_their_layout(
    machine: Machine,
) -> None:
    listen = written_address(*reserved_address())

    def posted(of: str) -> list[tuple[str, bool]]:
        machine.has(of, "gateway", "gateway", "sender", "--listen", listen)
        answers = []
        for number in range(10):
            url, key = f"http://{listen}/queues/orders/messages", {"Idempotency-Key": f"{number}"}
            with urlopen(Request(url, b"order", key), timeout=30) as answer:
                answers.append(json.load(answer))
        return [(each["id"], each["duplicate"]) for each in answers]

    machine.has("earlier", "sender")
    first = posted("earlier")
    machine.kill("gateway", "sender")
    told = machine.done("now", "store", "copy", f"sqlite:///{machine.folder}/history.sqlite", "sender")
    assert "10 ids" in told
    assert posted("now") == [(identifier, True) for identifier, _ in first]
    machine.kill("gateway")
    machine.done("earlier", "node", "sender", status=1)
    assert f"it has layout {STORE_LAYOUT}, and this mqproto knows {BEFORE}" in machine.said()

    machine.done("earlier", "analyse", ROOT / "captures" / "samples" / "three-hop.pcapng", "--out", "tables")
    machine.done("now", "tables", "tables", status=1)
    assert f"tables has tables of layout 7, this program makes {VERSION}" in machine.said()
