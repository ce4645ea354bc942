from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.topology import DeclaredQueue, Topology, TopologyError, load, parse, shipped
from mqproto.simulator.topology.model import Strangers
from mqproto.simulator.topology.views import as_toml, seen_by
from tests.simulator.certificates import over_tls


def same(topology: Topology) -> Topology:
    return parse(as_toml(topology), f"{topology.name}.toml")


@pytest.mark.parametrize("name", shipped())
def test_a_topology_written_and_read_again_is_the_same(name: str) -> None:
    topology = load(name)
    assert same(topology) == topology


@pytest.mark.parametrize("queue", ["orders.2024", "a#b", "it's=that", "{x}", "del~"])
def test_names_that_toml_has_to_quote_survive(queue: str) -> None:
    pair = load("pair")
    node = replace(pair.nodes["sender"], queues={queue: DeclaredQueue(name=queue, identifier=77)})
    topology = replace(pair, nodes={**pair.nodes, "sender": node}, description=f'"{queue}"\\')
    assert same(topology) == topology


@given(
    queue=st.builds(
        DeclaredQueue,
        name=st.just("q"),
        identifier=st.integers(16, 2**32 - 1),
        transactional=st.booleans(),
        quota_kb=st.none() | st.integers(1, 2**32 - 1),
        journal=st.just(True),
        journal_quota_kb=st.none() | st.integers(1, 2**32 - 1),
        strangers=st.booleans(),
    )
)
def test_what_is_declared_of_a_queue_survives(queue: DeclaredQueue) -> None:
    pair = load("pair")
    node = replace(pair.nodes["sender"], queues={"q": queue})
    topology = replace(pair, nodes={**pair.nodes, "sender": node})
    assert same(topology) == topology


def test_what_nodes_are_to_write_into_their_logs_survives() -> None:
    asked = load("pair").with_waypoints()
    assert same(asked) == asked


def test_who_may_connect_and_what_strangers_may_do_survives() -> None:
    pair = load("pair")
    sender = replace(pair.nodes["sender"], origins=("10.0.0.0/8", "any"))
    strangers = Strangers(hear=("10.0.0.0/8",), call=("10.0.0.7",))
    topology = replace(pair, nodes={**pair.nodes, "sender": sender}, strangers=strangers)
    assert same(topology) == topology


def test_who_may_look_survives() -> None:
    pair = load("pair")
    asked = pair.with_readers("sender", "ops", Path("/run/look")).with_readers("destination", "ops", None)
    assert same(asked) == asked
    assert asked.nodes["sender"].readers_folder == Path("/run/look")
    assert (
        asked.with_readers("sender", "", None) == asked
    )  # What a file says holds, unless somebody says otherwise.
    with pytest.raises(TopologyError, match="readers_folder is for a group; add readers = 'GROUP'"):
        pair.with_readers("sender", "", Path("/run/look"))


def test_where_nodes_send_their_spans_survives() -> None:
    asked = load("pair").with_traces("http://127.0.0.1:4318")
    assert same(asked) == asked
    assert [node.traces for node in asked.nodes.values()] == ["http://127.0.0.1:4318"] * 2
    assert "traces" not in as_toml(load("pair"))


def test_where_nodes_answer_for_metrics_survives() -> None:
    asked = load("pair").with_metrics("::1", 9_180)
    assert same(asked) == asked
    assert [node.metrics for node in asked.nodes.values()] == [("::1", 9_180), ("::1", 9_181)]


def test_certificates_survive_and_stay_where_they_are(tmp_path: Path) -> None:
    topology = over_tls(load("three-node"), tmp_path)
    assert same(topology) == topology


def test_a_detour_of_a_link_with_tls_leads_to_the_listener_for_tls(tmp_path: Path) -> None:
    topology = over_tls(load("pair"), tmp_path)
    seen = seen_by(topology, "sender", {("sender", "destination"): ("127.0.0.9", 9)})
    assert seen.dial_address("sender", "destination") == ("127.0.0.9", 9)
    assert seen.nodes["destination"].address == topology.nodes["destination"].address
    assert seen.nodes["sender"] == topology.nodes["sender"]


def test_each_node_finds_its_neighbours_behind_the_detours_and_itself_where_it_is() -> None:
    topology = load("demo")
    detours = {("sender", "intermediate"): ("127.0.0.9", 9), ("intermediate", "sender"): ("127.0.0.8", 8)}
    sender = seen_by(topology, "sender", detours)
    intermediate = seen_by(topology, "intermediate", detours)
    assert sender.dial_address("sender", "intermediate") == ("127.0.0.9", 9)
    assert intermediate.dial_address("intermediate", "sender") == ("127.0.0.8", 8)
    assert intermediate.dial_address("intermediate", "destination") == topology.nodes["destination"].address
    assert sender.nodes["intermediate"].ping_address == topology.nodes["intermediate"].ping_address
    assert sender.nodes == topology.nodes, "a direct name with a neighbour's address takes the detour as well"
    assert same(sender) == sender
