"""Scenarios are data: drawn alike everywhere, written and read back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.world import draw
from mqproto.simulator.world.draw import MESSAGES, NAMES
from mqproto.simulator.world.faults.table import FAULTS
from mqproto.simulator.world.scenarios.scenario import as_json, from_file, from_json
from mqproto.simulator.world.scenarios.traffic import KINDS, UNMET, by_its_guid, to_a_stranger
from mqproto.simulator.world.scenarios.ways import steps_between
from tests.simulator.world.worlds import a_chain


@pytest.mark.parametrize("seed", range(50))
def test_a_drawn_scenario_is_the_same_each_time_and_survives_being_written(seed: int) -> None:
    scenario = draw(seed)
    assert draw(seed) == scenario
    assert from_json(as_json(scenario)) == scenario


def test_the_same_scenarios_are_drawn_on_every_machine_and_python() -> None:
    """The expected value is pinned: changes of draw.py change it; changes of the core must not."""
    drawn = hashlib.sha256("".join(as_json(draw(seed)) for seed in range(200)).encode())
    assert drawn.hexdigest()[:16] == "494501fa97809fdd"


def test_what_is_drawn_can_be_run() -> None:
    scenarios = [draw(seed) for seed in range(200)]
    for scenario in scenarios:
        steps = steps_between(scenario.nodes, scenario.links)
        assert 2 <= len(scenario.nodes) <= len(NAMES)
        assert MESSAGES <= scenario.message_count <= MESSAGES + 42
        for burst in scenario.bursts:
            assert burst.source == burst.target or (burst.source, burst.target) in steps
            assert burst.at_ms < scenario.storm_ms
        for fault in scenario.faults:
            assert fault.where in {*scenario.nodes, *(link.name for link in scenario.links)}
            assert fault.at_ms < scenario.storm_ms
        for name in scenario.nodes:
            scenario.settings_of(name)
    assert {fault.kind for scenario in scenarios for fault in scenario.faults} == set(FAULTS)
    kinds = {burst.kind.removesuffix(UNMET) for scenario in scenarios for burst in scenario.bursts}
    assert kinds == {name for name in KINDS if not name.endswith(UNMET)}
    assert {len(scenario.nodes) for scenario in scenarios} == {2, 3, 4, 5, 6, 7}


@pytest.mark.long
def test_nodes_that_were_not_told_of_each_other_send_by_direct_names_and_by_the_guid_of_one_that_nobody_can_call() -> (
    None
):
    scenarios = [scenario for scenario in map(draw, range(300)) if scenario.unmet]
    assert {scenario.uncalled for scenario in scenarios} == {"", "a"}
    for scenario in scenarios:
        assert scenario.strangers
        assert scenario.nodes == ("a", "b")
        for burst in scenario.bursts:
            assert {burst.source, burst.target} == {"a", "b"}
            assert KINDS[burst.kind].direct == (burst.target != scenario.uncalled)
    assert (to_a_stranger("final ack"), by_its_guid("final ack")) == ("final ack to a stranger", "final ack")
    assert any(KINDS[burst.kind].undeliverable for scenario in scenarios for burst in scenario.bursts)
    for kind in ("direct", "nowhere"):
        assert (to_a_stranger(kind), by_its_guid(kind)) == ("transactional to a stranger", "transactional")


def test_a_file_holds_a_scenario_or_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    path.write_text(as_json(a_chain()), "utf-8")
    assert from_file(path) == a_chain()
    misspelt = as_json(a_chain()).replace('"count"', '"cuont": 3, "count"')
    for text in ("", "{}", '{"seed": "seven"}', misspelt, as_json(a_chain()).replace('"nodes"', '"knots"')):
        with pytest.raises(UsageError, match=r"no scenario: .*mqproto simulate --seed"):
            from_json(text)


def test_a_node_with_a_window_of_its_own_has_it() -> None:
    scenario = a_chain(settings={"window_size": 64, "resident_messages": 2}, windows={"b": 3})
    assert [scenario.settings_of(name).window_size for name in "abc"] == [64, 3, 64]
    assert scenario.settings_of("b").resident_messages == 2


def test_a_scenario_stands_in_toml_as_a_table_or_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "world.toml"
    path.write_text(
        """
        [scenario]
        seed = 0
        nodes = ["a", "b", "c"]
        links = [{ one = "a", other = "b" }, { one = "b", other = "c" }]
        bursts = [{ at_ms = 10, source = "a", target = "c", kind = "transactional", count = 5 }]
        storm_ms = 5_000
        """,
        "utf-8",
    )
    assert from_file(path) == a_chain()
    for text in ("", "[scenario]\nseed = 'seven'", "scenario = ", "[scenario]\nseed = 1"):
        path.write_text(text, "utf-8")
        with pytest.raises(
            UsageError, match=r"^no scenario in .*world\.toml: .*; captures/samples has examples"
        ):
            from_file(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="captures/samples"):
        from_file(path)
