"""Real traffic: nodes in separate processes, the TCP of a kernel, and a sniffer that was written by others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.simulator.client import connect
from mqproto.simulator.rig.supervisor import supervised
from mqproto.simulator.topology import Topology, load
from mqproto.simulator.topology.nodes import DEFAULT_PORT
from tests.simulator.running import DESTINATION
from tests.simulator.sniffed import LAST, exchange, sniffing, until_all_is_acknowledged

LARGE: Final = bytes(range(256)) * 700
"""A message body that takes several segments, even with the loopback's 64 KiB."""


def own_addresses() -> Topology:
    """Return a topology with sender, intermediate and destination, all at MSMQ's own port.

    No other test uses their addresses.
    """
    topology = load("three-node").with_free_ports()
    number = os.getpid()
    nodes = {
        name: replace(node, host=f"127.{64 + number // 256 % 64}.{number % 256}.{place}", port=DEFAULT_PORT)
        for place, (name, node) in enumerate(topology.nodes.items(), 1)
    }
    return replace(topology, nodes=nodes)


async def caught(folder: Path, program: str, count: int = 60) -> list[Frame]:
    """Return what a sniffer sees of messages that pass through an intermediate, which is killed once meanwhile."""
    topology, sniffed = own_addresses(), folder / "sniffed"
    async with sniffing(sniffed, topology, program), supervised(topology, folder) as nodes:
        await exchange(topology, folder, count)
        async with connect(topology, "sender", folder) as client:
            await client.send(DESTINATION, LARGE, transactional=True)
            for number in range(count // 4):
                await client.send(DESTINATION, b"%d" % number, transactional=True, label=f"late {number}")
        await nodes.kill("intermediate")
        await nodes.start("intermediate")
        await until_all_is_acknowledged(topology, folder)
        for name in topology.nodes:
            await nodes.stop(name)
    return [frame for frame in read_capture(sniffed) if LAST not in frame.data]
