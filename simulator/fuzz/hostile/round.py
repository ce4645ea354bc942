"""One attack and its measurements.

The load first runs alone, and then together with the attack. At the end, the round waits until all messages of the load
have arrived.

While the load runs alone, the attackers rehearse, and take as much of the processor as they will take later. A message
is sent each time that one arrives. So the load's rate shows what the attack costs the nodes, without the cost of the
attackers on the same machine.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

import trio
from msgspec.structs import replace as replace_fields

from mqproto.base.configuration import Settings
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.client import NodeUnreachable
from mqproto.simulator.fuzz.hostile.attackers import Attackers, AttackOrder
from mqproto.simulator.fuzz.hostile.chain import LATE, OPEN_QUEUES, Chain
from mqproto.simulator.fuzz.hostile.plan import RESTARTS, Form, HostilePlan
from mqproto.simulator.fuzz.hostile.verdict import Ordeal
from mqproto.simulator.rig.observer import Look
from mqproto.simulator.rig.proof import compare, delays_ms, percentile
from mqproto.simulator.rig.supervisor import NodeError
from mqproto.simulator.rig.verdict import Found, named
from mqproto.simulator.topology import Node
from mqproto.wire import guid_text

ALONE_SHARE: Final = 0.5
"""The time for which the load first runs alone, as a share of the attack's duration."""
SETTLED_S: Final = 0.3
"""The number of seconds for which the load runs before its rate is measured."""
LOOK_S: Final = 0.5
"""The number of seconds between two requests for the queues of the attacked node."""
UNFINISHED_BYTES: Final = Settings().strangers_unfinished_bytes
NETWORKS: Final = (251, 254)
"""The range of the second number in the attackers' addresses; nodes have other numbers.

Each round has new addresses, because a node remembers, for longer than an attack lasts, what a host has cost it.
"""


class Round:
    """One attack in one form on one node, which is chosen at random."""

    def __init__(self, chain: Chain, crowd: Attackers, plan: HostilePlan, tactic: str, form: Form) -> None:
        self._chain = chain
        self._crowd = crowd
        self._plan = plan
        self._form = form
        self._dice = chance(plan.seed, "attack", tactic, form.text)
        self._node = self._dice.choice(list(chain.topology.nodes.values()))
        self._neighbour = self._dice.choice(chain.neighbours(self._node.name))
        self._unfinished_bytes = 0
        self.ordeal = Ordeal(tactic, form.text, self._node.name, restarts=tactic in RESTARTS)

    async def run(self, seconds: float) -> Ordeal:
        """Carry out the attack for this number of seconds; return the results."""
        chain, ordeal = self._chain, self.ordeal
        chain.is_paused = False
        await trio.sleep(SETTLED_S)
        began_s = trio.current_time()
        order = self._order(seconds)
        await self._crowd.carry_out(replace_fields(order, seconds=ALONE_SHARE * seconds, sources=()))
        ordeal.before_per_s = self._rate(began_s)
        looks = {name: Look(node) for name, node in chain.supervisor.running.items()}
        began_s = trio.current_time()
        await self._attack(order)
        ended_s = trio.current_time()
        ordeal.seconds = ended_s - began_s
        ordeal.during_per_s = self._rate(began_s)
        cpu = {name: look.figures().cpu for name, look in looks.items()}
        chain.is_paused = True
        ordeal.recovered_s = await chain.emptied(self._plan.patience_s)
        for name, look in looks.items():
            ordeal.nodes[name] = replace(look.figures(), cpu=cpu[name])
        self._compare(began_s, ended_s)
        if self._unfinished_bytes > UNFINISHED_BYTES:
            ordeal.wrongs.append(f"{self._unfinished_bytes:,} bytes are kept of packets that are not whole")
        await self._look_after()
        return ordeal

    def _rate(self, since_s: float) -> float:
        now_s = trio.current_time()
        return self._chain.received_between(since_s, now_s) / (now_s - since_s)

    # The attack

    async def _attack(self, order: AttackOrder) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask)
            if self.ordeal.restarts:
                nursery.start_soon(self._restart, order.seconds)
            self.ordeal.spent = await self._crowd.carry_out(order)
            nursery.cancel_scope.cancel()

    def _order(self, seconds: float) -> AttackOrder:
        node, form = self._node, self._form
        network = f"127.{self._dice.randint(*NETWORKS)}.{self._dice.randrange(256)}"
        addresses = [f"{network}.{1 + number * form.spread}" for number in range(form.attackers)]
        sources = [self._neighbour.host] if form.as_neighbour else addresses
        return AttackOrder(
            tactic=self.ordeal.tactic,
            seconds=seconds,
            seed=self._dice.getrandbits(31),
            host=node.host,
            port=node.port,
            ping_port=node.ping_address[1],
            server=guid_text(node.guid),
            sources=tuple(sources),
            presented=guid_text(self._neighbour.guid) if form.as_neighbour else "",
            known=tuple(guid_text(other.guid) for other in self._others()),
            queues=tuple(rf"TCP:{node.host}\private$\{queue}" for queue in self._queues()),
        )

    def _queues(self) -> list[str]:
        """Return the node's queues; the first and the last in the list are the two that are open to strangers."""
        first, last = OPEN_QUEUES
        return [first, *(queue for queue in self._node.queues if queue not in OPEN_QUEUES), last]

    def _others(self) -> list[Node]:
        return [other for other in self._chain.topology.nodes.values() if other is not self._node]

    async def _ask(self) -> None:
        """Ask the node for the status of its queues again and again, as an operator would."""
        with suppress(NodeUnreachable):
            async with self._chain.connect(self._node.name) as client:
                while True:
                    began_s = trio.current_time()
                    try:
                        status = await client.queues()
                        self._unfinished_bytes = max(self._unfinished_bytes, status.unfinished_bytes)
                    finally:
                        waited_s = trio.current_time() - began_s
                        self.ordeal.answer_s = max(self.ordeal.answer_s, waited_s)
                    await trio.sleep(LOOK_S)

    async def _restart(self, seconds: float) -> None:
        """Kill a neighbour of the node, and start it again after a third of the attack's duration."""
        supervisor = self._chain.supervisor
        await trio.sleep(seconds / 4)
        with trio.CancelScope(shield=True):
            await supervisor.kill(self._neighbour.name)
            await trio.sleep(seconds / 3)
            try:
                await supervisor.start(self._neighbour.name)
            except NodeError as error:
                self.ordeal.wrongs.append(str(error))

    # Afterwards

    def _compare(self, began_s: float, ended_s: float) -> None:
        """Check that each honest message arrived once and in order. After a restart, recoverable messages may arrive
        twice."""
        delays: list[float] = []
        found: dict[str, Found] = {}
        for queue, flow in self._chain.flows.items():
            sent, received = flow.taken()
            comparison = compare(sent, received)
            if self.ordeal.recovered_s is None:
                comparison = replace(comparison, lost=0)  # They are blocked, which is reported separately.
            once = flow.producer.is_transactional or not self.ordeal.restarts
            found[queue] = comparison.found(once=once)
            if queue != LATE:
                delays += delays_ms((one for one in sent if began_s <= one.at_s < ended_s), received)
        self.ordeal.found = named(found)
        delays.sort()
        self.ordeal.typical_ms = percentile(delays, 50)
        self.ordeal.worst_ms = delays[-1] if delays else 0.0

    async def _look_after(self) -> None:
        """Check that every node still runs in its process, and remove the strangers' messages."""
        for node in self._chain.supervisor.running.values():
            if node.process.poll() is not None:
                self.ordeal.wrongs.append(str(node.failure()))
                self.ordeal.recovered_s = None
                return
        with suppress(NodeUnreachable):
            await self._chain.purge(self._node.name)
