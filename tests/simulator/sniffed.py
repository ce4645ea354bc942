"""Real traffic of real nodes, as other people's sniffers see it on the loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import trio

from mqproto.simulator.client import connect
from mqproto.simulator.topology import Topology, load
from tests.simulator.running import DESTINATION, until_sent

LAST = b"all that was sent before this has been seen"
# Each frame that waits has a place of the largest size, and the 2 MiB of the usual buffer have few places.
COMMANDS: Final = {
    "tcpdump": ("tcpdump -p --immediate-mode -B 65536 -U -n -i lo -w -", b"listening on"),
    "dumpcap": ("dumpcap -p -B 64 -q -i lo -w - -f", b"File: "),
}
"""The command of each sniffer, and what it prints once it listens; the filter is added to the command."""


def three_hosts() -> Topology:
    """Return sender, intermediate and destination, each on an address of its own, with free ports."""
    topology = load("three-node").with_free_ports()
    nodes = {
        name: replace(node, host=f"127.0.0.{place}")
        for place, (name, node) in enumerate(topology.nodes.items(), 1)
    }
    return replace(topology, nodes=nodes)


async def until_all_is_acknowledged(topology: Topology, directory: Path) -> None:
    """Wait until all messages that the sender has sent are acknowledged."""
    async with connect(topology, "sender", directory) as client:
        await until_sent(client)


async def exchange(topology: Topology, directory: Path, count: int) -> None:
    """Pass messages from the sender to an application at the destination."""
    async with connect(topology, "sender", directory) as client:
        for number in range(count):
            await client.send(DESTINATION, b"%d " % number * 100, transactional=True)
    received = 0
    async with connect(topology, "destination", directory) as client:
        while received < count:
            async with client.transaction("orders", timeout_s=20) as messages:
                received += len(messages)


@asynccontextmanager
async def sniffing(path: Path, topology: Topology, program: str) -> AsyncIterator[None]:
    """Run a sniffer on the loopback during the block; the file then has everything that crossed."""
    nodes = topology.nodes.values()
    wanted = " or ".join(f"(host {node.host} and port {node.port})" for node in nodes)
    command, listens = COMMANDS[program]
    process = await trio.lowlevel.open_process(
        [*command.split(), wanted], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said = b""
    while listens not in said:
        chunk = await process.stderr.receive_some()
        said += chunk
        if not chunk:
            await process.wait()
            # Not skipped, since CI does not have it in its hand who may listen.
            pytest.skip(f"{program} may not listen here: {said.decode().strip()}")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_collect, process.stdout, path)
            yield
            with socket.socket(type=socket.SOCK_DGRAM) as last:
                last.sendto(LAST, next(iter(nodes)).address)
    finally:
        with trio.CancelScope(shield=True):
            process.send_signal(signal.SIGINT)
            await process.wait()
            for pipe in (process.stdout, process.stderr):
                await pipe.aclose()


async def _collect(source: trio.abc.ReceiveStream, path: Path) -> None:
    """Write the sniffer's output to a file, after it has seen the last packet that was sent."""
    said = b""
    while LAST not in said:
        said += await source.receive_some()
    await trio.Path(path).write_bytes(said)
