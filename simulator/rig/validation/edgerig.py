"""Nodes and the programs around them: the first node has a gateway, triggers are at the last, and a consumer is in
this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import trio

from mqproto.simulator.edges.operators.reading import Audit, audited
from mqproto.simulator.rig.rig import DESTINATION, SENDER, Rig
from mqproto.simulator.rig.supervisor import Programs, programs_in
from mqproto.simulator.rig.validation.ledger import Failed
from mqproto.simulator.topology import DeclaredQueue, Topology, load
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.ports import reserved_address

GATEWAY: Final = "gateway"
Commands: TypeAlias = Mapping[str, list[str]]


class EdgeRig(Rig):
    """One run of nodes, of programs at their edges, and of a consumer behind HTTP.

    programs: the triggers, while they run.
    """

    programs: Programs
    _commands: Commands

    @property
    def place(self) -> Place:
        """The place of the nodes, the logs and the history."""
        return Place(self.topology, self.directory)

    @asynccontextmanager
    async def edges(
        self, consume: Callable[..., Awaitable[object]], commands: Commands
    ) -> AsyncIterator[None]:
        """Run a consumer and programs in the block; measure the resources of the programs and nodes.

        Args:
            consume: serves until cancelled, and reports when it has started.
            commands: the command that starts each program, keyed by the program's name.
        """
        self.usage.clear()
        self._commands = commands
        async with trio.open_nursery() as nursery:
            # Programs are killed before the consumer goes: so a call that it has not answered stays one.
            async with programs_in(self.directory) as self.programs:
                await nursery.start(consume)
                async with trio.open_nursery() as starting:
                    for name, command in commands.items():
                        starting.start_soon(self.programs.start, name, command)
                nursery.start_soon(self.measure, self.programs)
                yield
            nursery.cancel_scope.cancel()

    async def kill_and_start(self, name: str) -> None:
        """Kill a program or a node, and start it again. The gateway's program is its node."""
        name = SENDER if name == GATEWAY else name
        if name in self._commands:
            await self.programs.kill(name)
            await self.programs.start(name, self._commands[name])
        else:
            await self.supervisor.kill(name)
            await self.supervisor.start(name)

    @property
    def gateway_url(self) -> str:
        """The URL of the first node's gateway."""
        gateway = self.topology.nodes[SENDER].gateway
        assert gateway is not None
        return f"http://{gateway['listen']}"

    def trigger(self, queue: str, url: str, *options: str) -> list[str]:
        """Return the command of a trigger that calls a consumer's URL for the messages of a queue."""
        return ["trigger", rf"{DESTINATION}\{queue}", *self._at(DESTINATION), "--url", url, *options]

    def _at(self, node: str) -> list[str]:
        return ["--topology", str(self.supervisor.topology_file(node))]

    async def audit(self, history: str = "") -> Audit:
        """Return an audit of who holds each message that was accepted with 200, as `mqproto audit` does."""
        return await trio.to_thread.run_sync(partial(audited, self.place, history))

    async def given_up(self, *queues: str) -> list[Failed]:
        """Receive from these queues the messages that triggers have given up on. The triggers must have ended."""
        failed: list[Failed] = []
        async with self.connect(DESTINATION) as client:
            for queue in queues:
                while copies := await client.receive(queue, limit=100, timeout_s=0):
                    failed += map(Failed.of, copies)
        return failed


def three_nodes(queues: Mapping[str, DeclaredQueue]) -> Topology:
    """Return three nodes in a row. The last of them has these queues in addition to the destination's own."""
    three = with_gateway(load("three-node").with_free_ports())
    host = three.nodes[DESTINATION]
    return three.with_node(replace(host, queues={**host.queues, **queues}))


def with_gateway(topology: Topology, history: str = "") -> Topology:
    """Return the topology whose first node has a gateway at a free address.

    Args:
        history: the URL of the database in which it shares its ids; empty for none.
    """
    listen = "{}:{}".format(*reserved_address())
    table = {"listen": listen} | ({"history": history} if history else {})
    return topology.with_node(replace(topology.nodes[SENDER], gateway=table))
