"""Finds a smaller world that still breaks the invariant that a larger one breaks.

Only the scenario shrinks, never the dice. Nodes, messages, faults, consumers and settings are left out, and then
numbers are made smaller, as long as the same invariant is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

from mqproto.base.errors import UsageError
from mqproto.simulator.base.shrinking import anew, fewer, shrunk
from mqproto.simulator.world.run import WorldResult, simulate
from mqproto.simulator.world.scenarios.scenario import Burst, Cable, Consumer, Fault, Scenario
from mqproto.simulator.world.scenarios.ways import steps_between

RUNS: Final = 3_000
"""The maximum number of worlds to try."""

Part = TypeVar("Part")
Simple = TypeVar("Simple", Cable, Burst, Consumer, Fault)


def shrink(result: WorldResult, show: Callable[[Scenario], None] = lambda scenario: None) -> WorldResult:
    """Make the scenario of a broken run as small as possible. Return the smallest run that is still broken.

    Args:
        show: a function that is called with each smaller scenario that is found.
    """
    assert result.breach is not None, "nothing broke"
    smallest = result

    def breaks_the_same(scenario: Scenario) -> bool:
        nonlocal smallest
        try:
            found = simulate(scenario)
        except UsageError:
            return False  # One setting may need another.
        if found.breach is None or found.breach.kind != kind:
            return False
        smallest = found
        show(scenario)
        return True

    kind = result.breach.kind
    shrunk(result.scenario, [anew(partial(_connected, step)) for step in STEPS], breaks_the_same, RUNS)
    return smallest


def _connected(step: Callable[[Scenario], Iterator[Scenario]], scenario: Scenario) -> Iterator[Scenario]:
    return filter(_is_connected, step(scenario))


def _is_connected(scenario: Scenario) -> bool:
    """Return whether each message has a route. Without a route, a missing message would not be a breach."""
    cut = {fault.where for fault in scenario.faults if fault.kind == "cut"}
    steps = steps_between(scenario.nodes, [link for link in scenario.links if link.name not in cut])
    return all(
        burst.source == burst.target or (burst.source, burst.target) in steps for burst in scenario.bursts
    )


def fewer_nodes(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with one node fewer.

    The node's links are left out, and its neighbours may be linked directly instead.
    """
    for name in scenario.nodes:
        if len(scenario.nodes) <= 2:
            return
        kept = [link for link in scenario.links if name not in (link.one, link.other)]
        neighbours = [
            link.other if link.one == name else link.one
            for link in scenario.links
            if name in (link.one, link.other)
        ]
        pairs = {(link.one, link.other) for link in kept}
        past = [
            Cable(one=one, other=other)
            for one, other in pairwise(neighbours)
            if (one, other) not in pairs and (other, one) not in pairs
        ]
        yield _without(scenario, name, (*kept, *past))
        if past:
            yield _without(scenario, name, tuple(kept))


def _without(scenario: Scenario, name: str, links: tuple[Cable, ...]) -> Scenario:
    names = {link.name for link in links} | set(scenario.nodes) - {name}
    return replace(
        scenario,
        nodes=tuple(node for node in scenario.nodes if node != name),
        links=links,
        bursts=tuple(burst for burst in scenario.bursts if name not in (burst.source, burst.target)),
        consumers=tuple(consumer for consumer in scenario.consumers if consumer.node != name),
        faults=tuple(fault for fault in scenario.faults if fault.where in names),
        routes={node: choice for node, choice in scenario.routes.items() if node != name},
    )


def fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with fewer faults. At first many faults are left out at a time, then few."""
    return (replace(scenario, faults=faults) for faults in _subsets(scenario.faults))


def fewer_bursts(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with fewer bursts. At first many bursts are left out at a time, then few."""
    return (replace(scenario, bursts=bursts) for bursts in _subsets(scenario.bursts))


def fewer_messages(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios in which a burst has only one message, half of its messages, or one message fewer."""
    for burst in scenario.bursts:
        for count in sorted({1, burst.count // 2, burst.count - 1}):
            if 0 < count < burst.count:
                yield replace(scenario, bursts=_changed(scenario.bursts, burst, replace(burst, count=count)))


def fewer_consumers(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with fewer consumers. A plain consumer takes the place of each one left out."""
    return (replace(scenario, consumers=consumers) for consumers in _subsets(scenario.consumers))


def fewer_settings(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios in which a setting has its default, or one of the other choices is dropped.

    These choices are the routes, the counters, the askers and the doubters.
    """
    if scenario.routes:
        yield replace(scenario, routes={})
    if scenario.counters is not None:
        yield replace(scenario, counters=None)
    if scenario.askers:
        yield replace(scenario, askers=())
    if scenario.doubters:
        yield replace(scenario, doubters=())
    for name in scenario.settings:
        others = {key: value for key, value in scenario.settings.items() if key != name}
        if name == "window_size":
            others.pop("remove_duplicate_size", None)  # The default window may be too large for it.
        yield replace(scenario, settings=others)


def plainer_parts(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios in which a field of a part has its default, if it has one, or a smaller value."""
    for link in scenario.links:
        for plain in _plainer(link):
            yield replace(scenario, links=_changed(scenario.links, link, plain))
    for burst in scenario.bursts:
        for plainer in _plainer(burst):
            yield replace(scenario, bursts=_changed(scenario.bursts, burst, plainer))
    for consumer in scenario.consumers:
        for simpler in _plainer(consumer):
            yield replace(scenario, consumers=_changed(scenario.consumers, consumer, simpler))
    for fault in scenario.faults:
        for weaker in _plainer(fault):
            yield replace(scenario, faults=_changed(scenario.faults, fault, weaker))


def shorter(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with a shorter storm, or with rounded times."""
    times = [burst.at_ms for burst in scenario.bursts] + [fault.at_ms for fault in scenario.faults]
    last_ms = max(times, default=0)
    for storm_ms in (last_ms + 1, last_ms + 1_000):
        if storm_ms < scenario.storm_ms:
            yield replace(scenario, storm_ms=storm_ms)
    for unit in (1_000, 100, 10):
        for burst in scenario.bursts:
            if burst.at_ms % unit:
                rounded = replace(burst, at_ms=burst.at_ms // unit * unit)
                yield replace(scenario, bursts=_changed(scenario.bursts, burst, rounded))
        for fault in scenario.faults:
            if fault.at_ms % unit:
                earlier = replace(fault, at_ms=fault.at_ms // unit * unit)
                yield replace(scenario, faults=_changed(scenario.faults, fault, earlier))


STEPS: Final[tuple[Callable[[Scenario], Iterator[Scenario]], ...]] = (
    fewer_faults,
    fewer_bursts,
    fewer_nodes,
    fewer_messages,
    fewer_consumers,
    fewer_settings,
    plainer_parts,
    shorter,
)


def _subsets(parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """Yield the parts that remain when some are left out.

    First all parts are left out, then each half, each quarter and so on, and at the end each single part.
    """
    search = fewer(parts)
    candidate = next(search, None)
    while candidate is not None:
        yield candidate
        try:
            candidate = search.send(False)
        except StopIteration:
            return


def _changed(parts: Iterable[Part], old: Part, new: Part) -> tuple[Part, ...]:
    return tuple(new if part is old else part for part in parts)


def _plainer(part: Simple) -> Iterator[Simple]:
    """Yield the part with one field set to its default, or to half of its value."""
    for each in fields(part):
        value = getattr(part, each.name)
        values: list[Any] = []
        if isinstance(each.default, int) and value != each.default and each.name != "count":
            values = [each.default]
            if not isinstance(value, bool) and value // 2 > each.default:
                values.append(value // 2)
        elif each.default == () != value:
            values = [()]
        for smaller in values:
            yield replace(part, **{each.name: smaller})
