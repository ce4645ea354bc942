"""Everything that a page shows at one moment, built after each poll of the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio

from mqproto.manager.status import NodeStatus, PeersStatus
from mqproto.simulator.console.facts import (
    local_facts,
    node_facts,
    outgoing_facts,
    sequence_facts,
    totals,
)
from mqproto.simulator.console.rates import Rates
from mqproto.simulator.console.routemap import drawn_map, link_facts, other_sessions, pairs_of
from mqproto.simulator.console.watch import Sample
from mqproto.simulator.topology import TopologyError
from mqproto.simulator.topology.places import Place

QUEUES_SHOWN: Final = 1_000
"""The maximum number of queues that a page shows for all nodes together: those with the most waiting messages."""


class State:
    """Turns samples into the page's state.

    Attributes:
        place: the nodes' topology and folder, with the queues that the nodes report.
        broken: the faults that users made, keyed by the names of links.
        traffic: returns the progress of the console's own traffic.
        breakable: has one entry, `links`, which is true if links can be broken as well as nodes; None if nothing can be
            broken.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.traffic: Callable[[], Any] = lambda: None
        self.broken: dict[str, str] = {}
        self.breakable: dict[str, bool] | None = None
        self._declared = place.declared or place.topology
        self._queues: dict[str, Any] = {}
        self._rates = Rates()
        self._pairs = pairs_of(place.topology)

    def map(self) -> bytes:
        """Return the route map, which never changes."""
        topology = self.place.topology
        return msgspec.json.encode({"topology": topology.name, **drawn_map(topology, self._pairs)})

    def now(self, samples: Mapping[str, Sample]) -> bytes:
        """Return the whole current state, as JSON."""
        now_s = trio.current_time()
        self._learn(samples)
        topology = self.place.topology
        statuses: dict[str, NodeStatus] = {}
        said: dict[str, tuple[NodeStatus, PeersStatus]] = {}
        nodes = []
        for name in topology.nodes:
            sample = samples.get(name)
            status = sample.status if sample else None
            if sample is not None and status is not None and sample.peers is not None:
                statuses[name] = status
                said[name] = status, sample.peers
            age_s = now_s - sample.at_s if sample else 0.0
            nodes.append(node_facts(topology, name, status, age_s, self._rates, now_s))
        queues = [
            fact
            for name, status in statuses.items()
            for fact in local_facts(name, status, self._rates, now_s)
        ]
        outgoing = [
            fact
            for name, status in statuses.items()
            for fact in outgoing_facts(topology, name, status, self.broken)
        ]
        found = {
            "at_ms": time.time_ns() // 1_000_000,
            "nodes": nodes,
            "links": link_facts(topology, self._pairs, said, self.broken, self._rates, now_s),
            "others": list(other_sessions(topology, said, self._rates, now_s)),
            "queues": _most(queues),
            "outgoing": _most(outgoing),
            "left_out": max(0, len(queues) - QUEUES_SHOWN) + max(0, len(outgoing) - QUEUES_SHOWN),
            "sequences": list(sequence_facts(topology, statuses)),
            "totals": totals(topology, nodes, statuses),
            "breakable": self.breakable,
            "traffic": self.traffic(),
        }
        self._rates.forget_others()
        return msgspec.json.encode(found)

    def _learn(self, samples: Mapping[str, Sample]) -> None:
        """Learn which queues the nodes have now."""
        topology = self._declared
        changed = False
        for name, sample in samples.items():
            if sample.status is not None and self._queues.get(name) != sample.queues:
                self._queues[name] = sample.queues
                changed = True
        if changed:
            for name, queues in self._queues.items():
                with suppress(TopologyError):
                    topology = topology.with_queues(name, queues)
            self.place = Place(topology, self.place.directory, self._declared)


def _most(facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the queues with the most waiting messages, in their original order."""
    if len(facts) <= QUEUES_SHOWN:
        return facts
    least = sorted((fact["waiting"] for fact in facts), reverse=True)[QUEUES_SHOWN - 1]
    return [fact for fact in facts if fact["waiting"] >= least][:QUEUES_SHOWN]
