"""The parts of a world: nodes, links, applications and an oracle, on one event queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

from mqproto import routing
from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.captures.net.tcp import MAX_SEGMENT_BYTES
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import Enterprise, NextHop, Peer, Router, Routes, RoutingLink, Site
from mqproto.routing.peers import brought_by
from mqproto.simulator.world.network.events import EventQueue
from mqproto.simulator.world.network.links import Wire
from mqproto.simulator.world.network.sniffer import Sniffer
from mqproto.simulator.world.network.trace import WorldTrace
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.node.machine import Machine
from mqproto.simulator.world.oracle import invariants
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.watching import Oracle
from mqproto.simulator.world.scenarios.scenario import Cable, Consumer, Scenario, guid_of
from mqproto.simulator.world.scenarios.traffic import CHOSEN, KINDS, QUEUES, REPLIES
from mqproto.simulator.world.scenarios.ways import steps_between
from mqproto.turn.guard import NO_KEYS, Guard
from mqproto.wire import Guid, MessageClass

if TYPE_CHECKING:
    from mqproto.simulator.world.node.keys import Keyring

LONGEST_HEADERS_BYTES: Final = 2_000
OWN_ERROR: Final = "no_error_of_our_own"
"""The invariant that an unexpected exception breaks."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken invariant, with the time at which it broke and the details."""

    invariant: str
    at_ms: int
    detail: str

    @property
    def kind(self) -> tuple[str, str]:
        """The part of the breach that a smaller world must share.

        This is the invariant and, if an error of our own was raised, the place that raised it.
        """
        return self.invariant, self.detail.partition(": ")[0] if self.invariant == OWN_ERROR else ""

    def __str__(self) -> str:
        return f"{self.invariant.replace('_', ' ')}, at {self.at_ms:,} ms: {self.detail}"


class BreachFoundError(Exception):
    """An invariant is broken, so later events mean nothing."""


class World:
    """One scenario while it runs.

    Args:
        traced: whether to keep a trace of everything.
        capture: a pcapng file for the frames that a sniffer sees.
        segment_bytes: the limit for the payload of one captured frame.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        traced: bool = False,
        capture: BinaryIO | None = None,
        segment_bytes: int = MAX_SEGMENT_BYTES,
    ) -> None:
        self.scenario = scenario
        self.events = EventQueue(scenario.begins_utc_s)
        self.sniffer = None
        if capture is not None:
            self.sniffer = Sniffer(capture, scenario.nodes, self.events, segment_bytes=segment_bytes)
        self.trace = WorldTrace(wanted=traced)
        self.ledger = Ledger(_common_endings(scenario), strangers=scenario.strangers, unmet=scenario.unmet)
        self.oracle = Oracle(self.ledger, self._breach)
        self.maxima: dict[str, int] = {}
        self.route_choices = dict(scenario.routes)
        self.settings = {name: scenario.settings_of(name) for name in scenario.nodes}
        """The settings of each node when the world begins."""
        self.is_calm = False
        self.breach: Breach | None = None
        self.lines: dict[str, Wire] = {}
        self.nodes: dict[str, LinkedNode] = {}
        for name in scenario.nodes:
            self.nodes[name] = self._node(name)
        self.machines = {name: self._machine(node) for name, node in self.nodes.items()}
        for link in scenario.links:
            line = self.lines[link.name] = Wire(link, scenario.seed, self.events, self.sniffer)
            line.first_number = scenario.counters.session if scenario.counters is not None else 0
            self.nodes[link.one].lines[link.other] = line
            self.nodes[link.other].lines[link.one] = line
        self.keyring = _keyring_of(scenario, self.ledger) if scenario.has_keys else None
        self._map: dict[str, Cable] = {}
        """The links that are on the operators' map, keyed by name."""
        self._steps: dict[tuple[str, str], list[str]] = {}
        self._draw_map({link.name: link for link in scenario.links})
        self._employ()

    def _node(self, name: str) -> LinkedNode:
        bursts = self.scenario.bursts
        queues: list[QueueDeclaration] = []
        if any(name in burst.targets for burst in bursts):
            quota_bytes, strangers = self.scenario.quota_bytes or None, self.scenario.strangers
            queues += [replace(queue, quota_bytes=quota_bytes, strangers=strangers) for queue in QUEUES]
        if any(burst.source == name and KINDS[burst.kind].acknowledged for burst in bursts):
            queues.append(REPLIES)
        if any(burst.source == name and burst.chooses for burst in bursts):
            queues += CHOSEN.values()
        has_sequences = any(
            name in (burst.source, *burst.targets) and KINDS[burst.kind].transactional for burst in bursts
        )
        has_sequences |= self.scenario.strangers and bool(queues)
        kinds = {fault.kind for fault in self.scenario.faults if fault.where == name}
        largest = (LONGEST_HEADERS_BYTES + burst.largest_bytes for burst in bursts)
        return LinkedNode(
            name,
            tuple(queues),
            self.settings[name],
            self.events,
            has_sequences=has_sequences,
            has_sparse_neighbours=any(fault.kind == "sparse" for fault in self.scenario.faults),
            misreads_order_acks="order acks otherwise" in kinds,
            largest_bytes=max(largest, default=0),
            least_window=min(settings.window_size for settings in self.settings.values()),
            oracle=self.oracle,
            trace=self.trace,
            others=self.nodes,
            is_uncalled=name == self.scenario.uncalled,
        )

    def _machine(self, node: LinkedNode) -> Machine:
        return Machine(
            self.scenario,
            node,
            partial(self.routes_of, node.name),
            partial(self.guard_of, node.name),
            partial(self.maximum, "outage of a node"),
        )

    def _employ(self) -> None:
        """Add the scenario's consumers, and a consumer for each queue from which no other consumer receives.

        The queues that sources choose for dead letters get no consumer of this kind.
        """
        consumers = list(self.scenario.consumers)
        attended = {(consumer.node, consumer.queue) for consumer in consumers}
        for node in self.nodes.values():
            for queue in node.queues:
                if (node.name, queue.name) not in attended and queue not in CHOSEN.values():
                    consumers.append(Consumer(node=node.name, queue=queue.name))
        for number, consumer in enumerate(consumers, 1):
            if any(queue.name == consumer.queue for queue in self.nodes[consumer.node].queues):
                self.machines[consumer.node].people.employ(number, consumer)

    def routes_of(self, name: str) -> Routes:
        """Return a node's shortest or cheapest routes to all other nodes, beginning with the one that it prefers."""
        if self.scenario.unmet:
            return Routes()
        choice = self.route_choices.get(name, 0)
        router = None if self._enterprise is None else Router(self._enterprise, name)
        managers = {}
        for goal in self.scenario.nodes:
            steps = self._steps.get((name, goal))
            if steps and router is not None:
                hops = router.next_hops(goal)
                self.oracle.holds(invariants.ways_are_the_cheapest, name, goal, hops, steps)
                steps = [*hops]
            if steps:
                chosen = choice % len(steps)
                managers[guid_of(goal)] = tuple(
                    NextHop(guid_of(step), step) for step in (*steps[chosen:], *steps[:chosen])
                )
        lines = self.nodes[name].lines
        hosts = {host: NextHop(guid_of(host), host) for host in lines if lines[host].link.name in self._map}
        return Routes(managers, hosts, peers=self._peers_of(name))

    def _peers_of(self, name: str) -> dict[Guid, Peer]:
        """Return all other nodes, each with its address and the nodes whose messages it may forward.

        It may forward these messages over any link.
        """
        links = self._linked()
        return {
            guid_of(other): Peer((other,), brings=frozenset(map(guid_of, brought_by(other, name, links))))
            for other in self.scenario.nodes
            if other != name
        }

    def _linked(self) -> dict[str, list[str]]:
        links: dict[str, list[str]] = {node: [] for node in self.scenario.nodes}
        for link in self.scenario.links:
            links[link.one].append(link.other)
            links[link.other].append(link.one)
        return links

    def cannot_bring(self, name: str, at: str) -> list[str]:
        """Return the neighbours of the node `at` that cannot bring it messages from the node `name`."""
        links = self._linked()
        return [way for way in links[at] if name not in {way, *brought_by(way, at, links)}]

    def take_off_the_map(self, link: str) -> None:
        """From now on, each node that starts gets only routes that avoid this link."""
        self._draw_map({name: known for name, known in self._map.items() if name != link})

    def _draw_map(self, links: dict[str, Cable]) -> None:
        """Compute the next steps. If links have costs, also make the directory.

        In this directory, each node is the gate of its own site.
        """
        nodes, costs = self.scenario.nodes, self.scenario.costs
        self._map = links
        self._steps = steps_between(nodes, links.values(), costs)
        self._enterprise = None
        if costs:
            self._enterprise = Enterprise(
                [routing.Member(identifier=name, sites=(name,), routing_server=True) for name in nodes],
                [Site(name, (name,)) for name in nodes],
                [RoutingLink(link.one, link.other, costs.get(link.name, 1)) for link in links.values()],
            )

    def way(self, name: str, goal: str) -> list[str]:
        """Return the nodes through which a message from `name` to `goal` passes, including these two."""
        way = [name]
        while way[-1] != goal and (steps := self._steps.get((way[-1], goal))):
            way.append(steps[self.route_choices.get(way[-1], 0) % len(steps)])
        return way

    # Keys

    def guard_of(self, name: str, settings: Settings) -> Guard:
        """Return the guard that encrypts and signs for a starting node."""
        if self.keyring is None:
            return NO_KEYS
        self.ledger.keys_known[name] = self.keyring.known_by(name)
        return self.keyring.guard_of(name, settings)

    def tell_of_keys(self, *names: str) -> None:
        """Tell these nodes the current keys. Nodes that are down read them when they start."""
        for machine in map(self.machines.__getitem__, names):
            machine.node.do(self._renew, machine)

    def _renew(self, machine: Machine) -> None:
        if self.keyring is not None:
            name = machine.node.name
            self.ledger.keys_known[name] = self.keyring.known_by(name)
            self.keyring.renew(machine.guard, name)

    # What is counted

    def maximum(self, name: str, value: int) -> None:
        """Record a value of a figure whose maximum is reported."""
        self.maxima[name] = max(self.maxima.get(name, 0), value)

    def take_apart(self) -> None:
        """Free the world's parts.

        They refer to each other. Without this, only the garbage collector would free them; it would do so late, and
        take a tenth of the run's time.
        """
        self.events.forget_all()
        for machine in self.machines.values():
            for part in (machine.node, machine.people, machine):
                vars(part).clear()
        vars(self).clear()

    def _breach(self, name: str, detail: str) -> None:
        self.breach = Breach(name, self.events.now_ms, detail)
        self.trace.add(self.events.now_ms, "breach", name, detail)
        raise BreachFoundError


def _keyring_of(scenario: Scenario, ledger: Ledger) -> Keyring:
    """Return all keys of a world.

    Raises:
        UsageError: the libraries are missing.
    """
    try:
        from mqproto.simulator.world.node.keys import Keyring
    except ModuleNotFoundError:
        raise UsageError("the nodes of this world have keys: pip install 'mqproto[security]'") from None
    return Keyring(scenario, ledger.session_key_made)


def _common_endings(scenario: Scenario) -> frozenset[int]:
    """Return the classes with which any message of a world may end without being received."""
    endings = set()
    if scenario.quota_bytes:
        endings.add(MessageClass.NACK_Q_EXCEED_QUOTA)
    if any(consumer.rejects_every or consumer.gives_up_after for consumer in scenario.consumers):
        endings.add(MessageClass.NACK_RECEIVE_REJECTED)
    if any(fault.kind == "purge" for fault in scenario.faults):
        endings.add(MessageClass.NACK_Q_PURGED)
    if any(fault.kind == "purge outgoing" for fault in scenario.faults):
        endings.add(MessageClass.NACK_DELETED)
    return frozenset(endings)
