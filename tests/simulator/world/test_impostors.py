"""Strangers who present the GUID of a node, or speak in its name, during honest traffic."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from mqproto.captures.files.pcap import read_frames
from mqproto.captures.packets import PacketReader
from mqproto.simulator.world import draw, simulate
from mqproto.simulator.world.faults.impostors import PLOTS, plot_of, value_of
from mqproto.simulator.world.scenarios.scenario import Burst, Cable, Fault, Scenario

NODES = ("a", "b", "c")
SEEDS = range(400)
NAMES = {"a": "c", "b": "a", "c": "a"}
"""The node whose name is misused, keyed by the node that is called."""
TROUBLES = (
    (None, False),
    (None, True),
    (Fault(at_ms=100, kind="lossy", where="b", for_ms=7_000), True),
    (Fault(at_ms=100, kind="kill", where="c", for_ms=7_000), False),
)
"""Additional troubles, and for each, whether strangers are admitted.

Either the node in the middle loses most of the data that it claims to have, or the destination is down.
"""


def besieged(plot: int, trouble: Fault | None, *, strangers: bool = False) -> Scenario:
    """Return three nodes in a row; whatever they send, impostors call each of them all the time."""
    bursts = [
        Burst(at_ms=at_ms, source=source, target=target, kind=kind, count=5)
        for at_ms in range(0, 8_000, 500)
        for source, target in (("a", "c"), ("a", "b"), ("b", "c"), ("c", "a"))
        for kind in ("transactional", "recoverable")
    ]
    faults = [
        Fault(
            at_ms=at_ms,
            kind="impostor",
            where=called,
            for_ms=5_000,
            value=value_of(plot, name, NODES),
        )
        for at_ms in range(200, 8_000, 700)
        for called, name in NAMES.items()
    ]
    if trouble is not None:
        faults.append(trouble)
    links = (Cable(one="a", other="b"), Cable(one="b", other="c"))
    return Scenario(
        seed=plot,
        nodes=NODES,
        links=links,
        bursts=tuple(bursts),
        faults=tuple(faults),
        strangers=strangers,
        storm_ms=9_000,
    )


@pytest.mark.long
@pytest.mark.parametrize(("trouble", "strangers"), TROUBLES)
@pytest.mark.parametrize("plot", range(len(PLOTS)))
def test_whatever_an_impostor_does_every_promise_is_kept(
    plot: int, trouble: Fault | None, strangers: bool
) -> None:
    result = simulate(besieged(plot, trouble, strangers=strangers))
    assert result.breach is None
    assert result.tally["fault impostor"] > 0


def test_strangers_who_come_by_the_address_of_a_node_come_only_where_that_one_leads_nowhere() -> None:
    plot = next(index for index, plot in enumerate(PLOTS) if plot.standing.name == "NEIGHBOUR")
    calls = {fault.where for fault in besieged(plot, None).faults}
    assert calls == set(NODES)
    result = simulate(besieged(plot, None))
    # `a` has one neighbour, by which all others come, and so has `c`: only `b` can be called.
    assert result.tally["fault impostor"] == sum(fault.where == "b" for fault in besieged(plot, None).faults)


def test_no_capture_shows_an_impostor() -> None:
    file = io.BytesIO()
    scenario = besieged(1, None)
    result = simulate(scenario, capture=file)
    assert result.tally["fault impostor"] > 0
    packets = list(PacketReader(read_frames(io.BytesIO(file.getvalue()))))
    assert {packet.source.host for packet in packets} == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
    assert not any(b"forged" in packet.data for packet in packets)


def test_a_value_tells_a_plot_and_the_node_that_it_is_about() -> None:
    for plot in range(len(PLOTS)):
        for name in NODES:
            assert plot_of(value_of(plot, name, NODES), NODES) == (PLOTS[plot], name)


@pytest.mark.long
def test_one_world_of_four_has_attacks_with_every_plot_and_half_of_these_are_open_to_strangers() -> None:
    attacked = [
        scenario
        for scenario in map(draw, SEEDS)
        if any(fault.kind == "impostor" for fault in scenario.faults)
    ]
    assert len(SEEDS) / 5 < len(attacked) < len(SEEDS) / 3
    assert len(attacked) / 3 < sum(scenario.strangers for scenario in attacked) < 2 * len(attacked) / 3
    plots = Counter(
        PLOTS.index(plot_of(fault.value, scenario.nodes)[0])
        for scenario in attacked
        for fault in scenario.faults
        if fault.kind == "impostor"
    )
    assert plots.keys() == set(range(len(PLOTS)))
    others = [scenario for scenario in map(draw, SEEDS) if scenario not in attacked]
    assert all(scenario.strangers == scenario.unmet for scenario in others)
