"""Topologies drawn by hypothesis: valid ones survive being written and read; all others are refused in one line."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, given, settings

from mqproto.simulator.testing.topologies import nearly_valid_topologies, topologies
from mqproto.simulator.topology import Topology, TopologyError
from mqproto.simulator.topology.file import parse
from mqproto.simulator.topology.views import as_toml


@pytest.mark.long
@given(topologies())
def test_every_node_of_a_topology_finds_a_way_to_every_other(topology: Topology) -> None:
    for one in topology.nodes:
        for other in topology.nodes:
            if one != other:
                assert topology.next_hop(one, other) in topology.nodes


@pytest.mark.long
@given(topologies())
def test_a_topology_is_read_as_it_was_written(topology: Topology) -> None:
    assert parse(as_toml(topology), "any.toml") == topology


@pytest.mark.long
@given(nearly_valid_topologies())
def test_a_nearly_valid_topology_is_one_or_is_refused_in_one_line(text: str) -> None:
    try:
        assert parse(text, "any.toml").nodes
    except TopologyError as error:
        refusal = str(error)
    else:
        return
    assert refusal.startswith("any.toml")
    assert "\n" not in refusal


@pytest.mark.parametrize("part", ["links", "faults", "sites", "routing_links"])
def test_every_part_of_a_topology_occurs(part: str) -> None:
    often = settings(max_examples=500, database=None, phases=[Phase.generate])
    assert find(topologies(), lambda topology: bool(getattr(topology, part)), settings=often)
