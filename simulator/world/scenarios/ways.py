"""Finds the shortest or the cheapest routes through a world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Final

from mqproto.simulator.world.scenarios.scenario import Cable

ALIKE: Final[Mapping[str, int]] = {}


def steps_between(
    nodes: Iterable[str], links: Iterable[Cable], costs: Mapping[str, int] = ALIKE
) -> dict[tuple[str, str], list[str]]:
    """Return, for each connected pair of nodes, the first node's neighbours that are a step nearer to the second.

    A message that takes any of these steps at each node reaches its goal, because no choice of steps leads in a circle.

    costs: the costs of links, by name; 1 by default.
    """
    neighbours: dict[str, dict[str, int]] = {name: {} for name in nodes}
    for link in links:
        neighbours[link.one][link.other] = neighbours[link.other][link.one] = costs.get(link.name, 1)
    steps = {}
    for goal in neighbours:
        distances: dict[str, int] = {}
        frontier = [(0, goal)]
        while frontier:
            distance, here = heappop(frontier)
            if here not in distances:
                distances[here] = distance
                for near, cost in neighbours[here].items():
                    heappush(frontier, (distance + cost, near))
        for name, distance in distances.items():
            if name != goal:
                steps[name, goal] = [
                    near for near, cost in neighbours[name].items() if distances[near] + cost == distance
                ]
    return steps
