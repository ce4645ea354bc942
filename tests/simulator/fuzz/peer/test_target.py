"""`mqproto fuzz peer` on the command line, against a real node and against servers that are not queue managers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from mqproto.session import Session
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, run_command
from mqproto.simulator.fuzz.peer.campaign import Plan
from mqproto.simulator.fuzz.peer.target import Options, fuzz_peer
from mqproto.simulator.topology import load
from tests.simulator.fuzz import peers
from tests.simulator.fuzz.peers import Peer, serving
from tests.simulator.running import Log, processes, running


async def typed(*arguments: str) -> int:
    """Return the exit status of a command, while this test does other things."""
    return await trio.to_thread.run_sync(partial(run_command, ["fuzz", *arguments]))


def file_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.long
async def test_a_node_of_ours_stands_it(tmp_path: Path) -> None:
    chain = load("three-node").with_free_ports()
    node = chain.nodes["destination"]
    node = replace(node, settings=replace(node.settings, strangers_share_percent=100))
    alone = replace(chain, nodes={"destination": node}, links=(), routes={})
    host, port = chain.nodes["destination"].address
    async with processes(alone, tmp_path) as nodes:
        process = nodes["destination"].process
        assert process is not None
        plan = Plan(seed=2026, seconds=60, limit=300, folder=tmp_path / "found")
        report = await fuzz_peer(f"{host}:{port}", Options(), plan, pid=process.pid)
        assert report.findings.lines() == []
        assert report.cases == 300
        assert report.checks > 1
        assert report.memory_mb is not None
        assert process.poll() is None
    assert not (tmp_path / "found").exists()


@pytest.mark.long
async def test_a_node_that_answers_pings_stands_malformed_ones(tmp_path: Path) -> None:
    chain = load("three-node").with_free_ports()
    node = chain.nodes["destination"]
    async with running(chain, "destination", tmp_path, Log()):
        plan = Plan(seed=5, seconds=60, limit=100, folder=tmp_path / "found")
        options = Options(ping_port=node.ping_address[1])
        report = await fuzz_peer(f"{node.host}:{node.address[1]}", options, plan)
        assert report.findings.lines() == []


async def test_the_end_is_told_to_people_and_to_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(Peer()) as address:
        arguments = ["peer", address, "--count", "30", "--seed", "4", "--out", str(tmp_path)]
        assert await typed(*arguments) == DONE
        printed = capsys.readouterr().out
        assert printed.startswith(f"{address}, seed 4: 30 cases in ")
        assert printed.endswith("no finding\n")
        assert await typed(*arguments, "--json") == DONE
        report = json.loads(capsys.readouterr().out)
        assert (report["cases"], report["findings"], report["seed"]) == (30, [], 4)
    assert not file_names(tmp_path)


@pytest.mark.long
async def test_the_command_that_is_printed_repeats_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(peers.AcknowledgesBeyond()) as address:
        out = ["--out", str(tmp_path), "--timeout", "2", "--seed", "1", "--count", "400"]
        assert await typed("peer", address, *out) == FINDING
        [line] = [line for line in capsys.readouterr().out.splitlines() if "repeat with: " in line]
        repeat = line.partition("repeat with: mqproto fuzz ")[2].split()
        assert await typed(*repeat) == FINDING
        assert "it acknowledges what it cannot have got" in capsys.readouterr().out
        assert await typed(*repeat, "--to", address, "--as-new", "--json") == FINDING
        assert "answers wrongly" in json.loads(capsys.readouterr().out)["seen"]["group"]
    async with serving(Peer()) as mended:
        assert await typed(*repeat, "--to", mended) == DONE
        assert capsys.readouterr().out.startswith("nothing wrong now; it was answers wrongly")
    assert await typed(*repeat) == MISUSE
    assert "there is nobody to fuzz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["192.0.2.1"], "192.0.2.1 is not this machine (192.0.2.1): hostile packets go there only with"),
        (["127.0.0.1:9"], "there is nobody to fuzz"),
        (["127.0.0.1:0"], "has no port from 1 to 65535"),
        (["no-such-host.invalid"], "no computer is found under no-such-host.invalid"),
        (["127.0.0.1:9", "--as", "me"], "'me' is not a GUID"),
        (["127.0.0.1:9", "--pid", "4194305"], "--pid 4194305: there is no such process"),
    ],
)
def test_misuse_is_one_line_and_status_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["fuzz", "peer", *arguments]) == MISUSE
    printed = capsys.readouterr()
    assert reason in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


class Foreign(Peer):
    """A server that is not a queue manager: it greets every caller in another protocol."""

    async def received(self, session: object, data: bytes) -> bytes:
        return b"220 mail.example ESMTP\r\n"


class Closes(Peer):
    """A server that closes every connection."""

    async def received(self, session: object, data: bytes) -> bytes:
        raise OSError


class Refuses(Peer):
    """A queue manager that accepts no more sessions."""

    async def opened(self, session: Session) -> None:
        session.data.admit = lambda data, manager, now: "it has sessions enough"


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (Refuses, "refuses us a session: try --as with one that it knows"),
        (Foreign, "is not a queue manager that talks to us: answers wrongly"),
        (Closes, "is not a queue manager that talks to us: it closes the connection without an answer"),
    ],
)
async def test_what_is_no_queue_manager_is_not_fuzzed(
    peer: Callable[[], Peer], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(peer()) as address:
        assert await typed("peer", address) == MISUSE
    assert reason in capsys.readouterr().err


async def test_a_process_that_ends_is_noticed(tmp_path: Path) -> None:
    child = await trio.lowlevel.open_process([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    async with serving(Peer()) as address:
        plan = Plan(seed=1, seconds=30, folder=tmp_path)
        report = await fuzz_peer(
            address, Options(patience_s=2), plan, pid=child.pid, show=lambda report: child.kill()
        )
    [finding] = report.findings.first.values()
    assert finding.how["rule"] == "its process has ended"
    assert report.ended == f"process {child.pid} has ended"
    assert await child.wait() < 0


async def test_that_a_process_grows_is_said_once_with_the_cases_that_lead_there(tmp_path: Path) -> None:
    async with serving(Peer()) as address:
        plan = Plan(seed=1, seconds=30, limit=60, folder=tmp_path)
        report = await fuzz_peer(address, Options(patience_s=2), plan, pid=os.getpid(), growth_mb=-1_000)
    [finding] = report.findings.first.values()
    assert finding.how["oracle"] == "grows"
    assert f"mqproto fuzz peer {address} --seed 1 --count " in finding.detail
    assert report.cases == 60, "it goes on"
