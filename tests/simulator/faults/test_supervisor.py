from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.client import connect
from simulator.faults.supervisor import OPENING, READY, NodeError, Supervisor, last_error, supervised
from simulator.topology import load

ORPHANS = """
import sys, trio
from pathlib import Path
from simulator.faults.supervisor import supervised
from simulator.topology import load

async def main():
    async with supervised(load("pair").with_free_ports(), Path(sys.argv[1])) as supervisor:
        print(*[node.pid for node in supervisor.running.values()], flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


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


async def test_a_node_that_does_not_start_says_why_and_the_others_are_stopped(tmp_path: Path) -> None:
    (tmp_path / "sender.sqlite").mkdir()
    supervisor = Supervisor(load("pair").with_free_ports(), tmp_path)
    with pytest.raises(NodeError, match=r"sender: .*sender\.sqlite"):
        await supervisor.start_all()
    assert set(supervisor.running) == {"destination"}
    await supervisor.stop_all()


def test_nodes_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        ends = [os.pidfd_open(pid) for pid in pids]
        process.kill()
    assert len(ends) == 2
    for end in ends:
        assert select.select([end], [], [], 10)[0], "it still runs"
        os.close(end)


def test_the_reason_is_the_last_line_that_the_command_printed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        '{"event": "started"}\nmqproto: an old one\n{"event": "x"}\nmqproto: the disk is full\n{}\n'
    )
    assert last_error(log) == "the disk is full"
    log.write_text("")
    assert last_error(log) == ""
