from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import given, strategies as st

from mqproto.simulator.client import connect
from mqproto.simulator.rig.supervisor import (
    OPENING,
    PAUSE_LIMIT_S,
    READY,
    STEADY_S,
    NodeError,
    NodeProcess,
    Pauses,
    Supervisor,
    last_error,
    stopped_at_the_end,
    supervised,
)
from mqproto.simulator.topology import Topology, load, places
from tests.simulator.typed import TIMEOUT_S

FORKED: Final = pytest.mark.usefixtures("forked_programs")
"""Makes a test start its nodes as forks; other tests cover the start of an interpreter."""
ORPHANS = """
import sys, trio
from pathlib import Path
from mqproto.simulator.rig.supervisor import supervised
from mqproto.simulator.topology import load

async def main():
    async with supervised(load("pair").with_free_ports(), Path(sys.argv[1])) as supervisor:
        print(*[node.pid for node in supervisor.running.values()], flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


class Said:
    """The lines that a supervisor prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = trio.Event()

    def append(self, line: str) -> None:
        self.lines.append(line)
        self._more.set()

    async def line(self, words: str) -> str:
        """Return the first line with these words, as soon as there is one."""
        while not (found := [line for line in self.lines if words in line]):
            self._more = trio.Event()
            await self._more.wait()
        return found[0]


class Spawning(Supervisor):
    """A supervisor that reports each process that it starts."""

    def __init__(self, topology: Topology, directory: Path) -> None:
        super().__init__(topology, directory)
        self._spawned, self.pids = trio.open_memory_channel[int](99)

    async def spawn(self, name: str) -> NodeProcess:
        node = await super().spawn(name)
        self._spawned.send_nowait(node.pid)
        return node


@FORKED
async def test_nodes_are_ready_when_they_are_started_and_gone_at_the_end(tmp_path: Path) -> None:
    topology = load("pair").with_free_ports()
    async with supervised(topology, tmp_path) as supervisor:
        pids = {name: node.pid for name, node in supervisor.running.items()}
        assert set(pids) == {"sender", "destination"}
        async with connect(topology, "sender", tmp_path) as client:
            assert (await client.queues()).local[0].name == "replies"
        assert all(node.cpu_s() or 0 > 0 for node in supervisor.running.values())
        await supervisor.kill("sender")
        assert set(supervisor.running) == {"destination"}
        started = await supervisor.start("sender")
        assert started.spawned_s < started.ready_s
        assert supervisor.running["sender"].pid != pids["sender"]
        pids = {name: node.pid for name, node in supervisor.running.items()}
    assert supervisor.running == {}
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@FORKED
async def test_a_node_that_ends_by_itself_is_noticed_with_its_reason(tmp_path: Path) -> None:
    async with supervised(load("pair").with_free_ports(), tmp_path) as supervisor:
        os.kill(supervisor.running["sender"].pid, signal.SIGKILL)
        node = await supervisor.watch()
        assert (node.name, str(node.failure())) == ("sender", "sender: killed by SIGKILL")


async def test_a_node_can_be_killed_while_it_starts_and_what_it_had_come_to_is_known(tmp_path: Path) -> None:
    supervisor = Supervisor(load("pair").with_free_ports(), tmp_path)
    await supervisor.spawn("sender")
    killed = await supervisor.kill("sender")
    assert (killed.has_said(OPENING), killed.has_said(READY)) == (False, False)
    node = await supervisor.spawn("sender")
    await supervisor.until(node, OPENING)
    assert await supervisor.kill("sender") is node
    assert node.has_said(OPENING)
    assert node.process.returncode == -signal.SIGKILL
    assert supervisor.running == {}


@FORKED
async def test_a_node_that_does_not_start_says_why_and_the_others_are_stopped(tmp_path: Path) -> None:
    (tmp_path / "sender.sqlite").mkdir()
    topology = load("pair").with_free_ports()
    with pytest.raises(NodeError, match=r"sender: .*sender\.sqlite"):
        async with supervised(topology, tmp_path):
            pass
    async with stopped_at_the_end(Supervisor(topology, tmp_path)) as supervisor:
        failures = await supervisor.start_all()
        assert set(failures) == {"sender"}
        assert set(supervisor.running) == {"destination"}
    assert supervisor.running == {}


@pytest.mark.long
async def test_a_node_is_started_again_however_often_it_dies_also_while_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.rig.supervisor.PAUSE_LIMIT_S", 0.1)
    said = Said()
    topology = load("pair").with_free_ports()
    async with stopped_at_the_end(Spawning(topology, tmp_path)) as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.keep, "sender", said.append)
        for _ in range(4):
            os.kill(await supervisor.pids.receive(), signal.SIGKILL)
        await said.line("sender is back")
        assert supervisor.is_up("sender")
        nursery.cancel_scope.cancel()
    assert sum("sender: killed by SIGKILL; it " in line for line in said.lines) >= 4


@FORKED
async def test_a_node_that_does_not_start_is_tried_again_until_its_reason_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.rig.supervisor.PAUSE_LIMIT_S", 0.1)
    (tmp_path / "sender.sqlite").mkdir()
    said = Said()
    async with stopped_at_the_end(Supervisor(load("pair").with_free_ports(), tmp_path)) as supervisor:
        await supervisor.start_all()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.keep, "sender", said.append)
            reason = await said.line("it is tried again in 0.1 s")
            assert "sender.sqlite" in reason
            assert not supervisor.is_up("sender")
            assert supervisor.is_up("destination")
            (tmp_path / "sender.sqlite").rmdir()
            await said.line("sender is back")
            nursery.cancel_scope.cancel()


@given(ran_s=st.lists(st.floats(0, 2 * STEADY_S)))
def test_pauses_grow_to_a_minute_and_begin_anew_when_a_node_has_lived_a_while(ran_s: list[float]) -> None:
    pauses, last = Pauses(), -1.0
    for each in ran_s:
        pause = pauses.after(each)
        if last < 0 or each >= STEADY_S:
            assert pause == 0
        else:
            assert pause == (1 if last == 0 else min(2 * last, PAUSE_LIMIT_S))
        last = pause


@FORKED
async def test_the_reason_of_an_earlier_process_is_not_told_of_a_later_one(tmp_path: Path) -> None:
    (tmp_path / "sender.log").write_text("mqproto: the disk is full\n")
    async with supervised(load("pair").with_free_ports(), tmp_path) as supervisor:
        node = await supervisor.kill("sender")
        assert str(node.failure()) == "sender: killed by SIGKILL"


def test_nodes_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        ends = [os.pidfd_open(pid) for pid in pids]
        process.kill()
    assert len(ends) == 2
    for end in ends:
        assert select.select([end], [], [], TIMEOUT_S)[0], "it still runs"
        os.close(end)


def test_the_reason_is_the_last_line_that_the_command_printed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        '{"event": "started"}\nmqproto: an old one\n{"event": "x"}\nmqproto: the disk is full\n{}\n'
    )
    assert last_error(log) == "the disk is full"
    log.write_text('{"event": "ended", "reason": "the port is taken"}\n{"event": "x", "reason": 7}\n[]\n')
    assert last_error(log) == "the port is taken"
    log.write_text("")
    assert last_error(log) == ""


def modes_of(folder: Path, *others: Path) -> dict[str, int]:
    """Return the permissions of the files in a folder, and of some other files."""
    return {path.name: path.stat().st_mode & 0o777 for path in [*folder.iterdir(), *others]}


def open_to_all(folder: Path) -> None:
    """Let everybody read and write the files in a folder, as another program might leave them."""
    for path in folder.iterdir():
        path.chmod(0o666)


@pytest.mark.long
async def test_files_of_nodes_are_for_their_owner_alone_and_an_open_folder_is_said_once(
    tmp_path: Path,
) -> None:
    """This includes a folder that existed before, and files made with another umask."""
    topology = load("pair").with_free_ports()
    os.chmod(tmp_path, 0o755)
    before = os.umask(0)
    try:
        for _ in range(2):
            async with (
                supervised(topology, tmp_path),
                connect(topology, "sender", tmp_path, journal=tmp_path / "a.journal") as client,
            ):
                await client.send(r"destination\orders", b"x", transactional=True)
                modes = modes_of(tmp_path, places.socket_path(tmp_path, "sender"))
                assert len(modes) > 10
                assert set(modes.values()) == {0o600}, modes
            open_to_all(tmp_path)
    finally:
        os.umask(before)
    lines = (tmp_path / "sender.log").read_text().splitlines()
    [first, second] = [line for line in lines if '"folder-open"' in line]
    assert f"chmod 700 {tmp_path}" in first
    assert '"mode": "755"' in second
