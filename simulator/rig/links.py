"""The links of a topology as pairs of proxies, one for each direction. Each connection goes through a proxy that can
break it.

All links of a run write to one capture. It shows the nodes at 127.0.0.1, 127.0.0.2 and so on, at port 1801, whatever
ports the run actually uses.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

import trio

from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.rig.network import LinkProxy
from mqproto.simulator.topology import Action, Link, Topology
from mqproto.simulator.topology.nodes import DEFAULT_PORT
from mqproto.simulator.topology.views import Address

ANY_PORT: Final = ("127.0.0.1", 0)


@dataclass(frozen=True, slots=True)
class BreakableLink:
    """The two proxies of one link."""

    link: Link
    proxies: tuple[LinkProxy, LinkProxy]

    def __str__(self) -> str:
        return f"{self.link.first}-{self.link.second}"

    @property
    def cut_count(self) -> int:
        """The number of connections that we have reset."""
        return sum(proxy.statistics.cut_count for proxy in self.proxies)

    def break_off(self, action: Action) -> int:
        """Cut, refuse or stall both directions. Return how many connections were reset.

        While a link is cut, new connections are impossible, too, so the caller must restore the link later.
        """
        if action is Action.STALL:
            for proxy in self.proxies:
                proxy.stall()
            return 0
        return sum(proxy.refuse() for proxy in self.proxies)

    def slow(self, delay_s: float) -> None:
        """Delay all data by this time, in both directions."""
        for proxy in self.proxies:
            proxy.slow(delay_s)

    def restore(self) -> None:
        """Undo all faults of the link."""
        for proxy in self.proxies:
            proxy.restore()


class Links:
    """Every link of a topology."""

    def __init__(self, topology: Topology, recorder: Recorder | None = None) -> None:
        shown = shown_addresses(topology)
        self._ends = [
            (frm, to, link)
            for link in topology.links
            for frm, to in ((link.first, link.second), (link.second, link.first))
        ]
        self._proxies = {
            (frm, to): LinkProxy(
                ANY_PORT,
                topology.listening_address(frm, to),
                recorder,
                recorded_host=shown[frm],
                recorded_server=(shown[to], DEFAULT_PORT),
            )
            for frm, to, _ in self._ends
        }
        self.links = [
            BreakableLink(
                link, (self._proxies[link.first, link.second], self._proxies[link.second, link.first])
            )
            for link in topology.links
        ]

    async def run(
        self, *, task_status: trio.TaskStatus[dict[tuple[str, str], Address]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Carry traffic until this task is cancelled. The value passed to `task_status` has the address at which each
        end finds the other (views.py).
        """
        async with trio.open_nursery() as nursery:
            detours: dict[tuple[str, str], Address] = {}
            for ends, proxy in self._proxies.items():
                host, port = await nursery.start(proxy.run)
                detours[ends] = (host, port)
            task_status.started(detours)

    def between(self, one: str, other: str) -> BreakableLink:
        """Return the link that joins two nodes. The topology has checked that there is one."""
        return next(each for each in self.links if {each.link.first, each.link.second} == {one, other})

    def of(self, node: str) -> list[BreakableLink]:
        """Return all links of a node."""
        return [each for each in self.links if node in (each.link.first, each.link.second)]


def shown_addresses(topology: Topology) -> Mapping[str, str]:
    """Return the address that a capture shows for each node: its own if all addresses differ; otherwise one that is
    derived from its position.
    """
    hosts = [node.host for node in topology.nodes.values()]
    if len(set(hosts)) == len(hosts):
        return {name: node.host for name, node in topology.nodes.items()}
    return {name: f"127.0.0.{place}" for place, name in enumerate(topology.nodes, 1)}


def free(topology: Topology) -> Topology:
    """Return a topology whose nodes can all listen right now. It is the same topology if its ports are free and its
    addresses are on this machine.
    """
    for address in chain.from_iterable(node.addresses for node in topology.nodes.values()):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(address)
            except OSError:
                return topology.with_free_ports()
    return topology
