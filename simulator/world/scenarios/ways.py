"""The shortest ways through a world."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.world.scenarios.scenario import Link


def steps_between(nodes: Iterable[str], links: Iterable[Link]) -> dict[tuple[str, str], list[str]]:
    """For each pair of nodes that are connected, the neighbours of the one that are a step nearer to the other.

    A message that takes any of these steps at each node comes to the goal: no choice of them leads in a circle.
    """
    neighbours: dict[str, list[str]] = {name: [] for name in nodes}
    for link in links:
        neighbours[link.one].append(link.other)
        neighbours[link.other].append(link.one)
    steps = {}
    for goal in neighbours:
        distances = {goal: 0}
        frontier = [goal]
        for here in frontier:
            for near in neighbours[here]:
                if near not in distances:
                    distances[near] = distances[here] + 1
                    frontier.append(near)
        for name, distance in distances.items():
            if name != goal:
                steps[name, goal] = [
                    near for near in neighbours[name] if distances.get(near, -1) == distance - 1
                ]
    return steps
