"""The text of a topology with its nodes' queues: when it is read back, the topology is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import hypothesis.strategies as st
import trio
from hypothesis import given, settings

from mqproto.queues.protection import EVERYONE, Protection
from mqproto.simulator.cli.cli import DONE, FINDING
from mqproto.simulator.cli.exporting import AS_DECLARED, HEADING, MADE, exported
from mqproto.simulator.cli.likeness import like
from mqproto.simulator.client import connect
from mqproto.simulator.testing.topologies import topologies
from mqproto.simulator.topology import DeclaredQueue, Topology, load, parse
from mqproto.simulator.topology.nodes import FIRST_IDENTIFIER
from mqproto.simulator.topology.views import as_toml
from mqproto.turn.guard import PRIVACY_LEVELS, WEAK_CIPHERS
from mqproto.wire import NULL_GUID, Guid, guid_text
from tests.simulator.running import Log, running
from tests.simulator.typed import in_process

SENDER: Final = "S-1-5-21-1-2-3-1000"
ONE: Final = """
name = "one"
[node.shop]
[node.shop.queue.orders]
transactional = true
[node.shop.queue.gone]
[settings]
window_size = 16
"""

guids = st.binary(min_size=16, max_size=16).map(Guid).filter(lambda guid: guid != NULL_GUID)


@st.composite
def queues(draw: st.DrawFn) -> DeclaredQueue:
    """Draw a queue with any properties that a command or a file can give it."""
    journal, goes_by = draw(st.booleans()), draw(st.sampled_from(["", "public", "connector"]))
    other: dict[str, Any] = {goes_by: draw(guids)} if goes_by else {}
    return DeclaredQueue(
        name=draw(st.sampled_from(["orders", "a.b", "it's{q=1}", "a#b"])),
        identifier=draw(st.integers(FIRST_IDENTIFIER, 2**32 - 1)),
        transactional=draw(st.booleans()),
        quota_kb=draw(st.none() | st.integers(1, 2**32 - 1)),
        journal=journal,
        journal_quota_kb=draw(st.none() | st.integers(1, 2**32 - 1)) if journal else None,
        strangers=draw(st.booleans()),
        protection=Protection(
            authenticated=draw(st.booleans()),
            privacy=draw(st.sampled_from([*PRIVACY_LEVELS])),
            weak_ciphers=tuple(draw(st.lists(st.sampled_from([*WEAK_CIPHERS]), unique=True))),
            senders=tuple(draw(st.lists(st.sampled_from([SENDER, EVERYONE, "a" * 64]), unique=True))),
        ),
        **other,
    )


def read(text: str) -> Topology:
    return parse(text, "other.toml")


@given(queue=queues())
def test_a_queue_with_any_properties_is_read_as_it_is(queue: DeclaredQueue) -> None:
    pair = load("pair")
    text = exported(pair, {"sender": [queue], "destination": [*pair.nodes["destination"].queues.values()]})
    node = pair.nodes["sender"].with_queues([queue])
    assert read(text) == replace(pair, nodes={**pair.nodes, "sender": node})
    assert text.count(MADE) == 1


@given(topology=topologies())
@settings(max_examples=settings().max_examples // 5)
def test_a_topology_whose_queues_are_as_declared_is_read_as_it_is(topology: Topology) -> None:
    text = exported(topology, {name: [*node.queues.values()] for name, node in topology.nodes.items()})
    assert read(text) == topology
    assert MADE not in text
    assert AS_DECLARED not in text


def test_what_is_as_by_default_is_left_out() -> None:
    topology = read(ONE)
    guid = guid_text(topology.nodes["shop"].guid)
    assert (
        exported(topology, {"shop": [*topology.nodes["shop"].queues.values()]})
        == f"""{HEADING}name = "one"

[node.shop]
guid = "{guid}"
address = "127.0.0.1:1801"

[node.shop.queue.orders]
id = 16
transactional = true

[node.shop.queue.gone]
id = 17

[node.shop.settings]
window_size = 16
"""
    )


def test_a_copy_that_is_changed_as_its_heading_says_has_the_queues_and_other_queue_managers() -> None:
    pair = load("pair")
    text = exported(pair, {name: [*node.queues.values()] for name, node in pair.nodes.items()})
    lines = [line for line in text.splitlines() if not line.startswith("guid = ")]
    copy = read("\n".join(lines).replace('name = "pair"', 'name = "copy"'))
    for name, node in pair.nodes.items():
        assert copy.nodes[name].queues == node.queues
        assert copy.nodes[name].guid != node.guid


def test_of_a_node_that_does_not_run_there_is_what_is_declared_and_that_is_said() -> None:
    pair = load("pair")
    text = exported(pair, {"sender": [], "destination": None})
    topology = read(text)
    assert topology.nodes["destination"] == pair.nodes["destination"]
    assert topology.nodes["sender"].queues == {}
    assert f"# destination {AS_DECLARED}\n[node.destination]\n" in text
    assert f"# sender {AS_DECLARED}" not in text


async def test_what_commands_have_made_is_in_the_file_that_the_node_goes_on_with(tmp_path: Path) -> None:
    topology, file = parse(ONE, "one.toml").with_free_ports(), tmp_path / "one.toml"
    file.write_text(as_toml(topology))
    where = ("--topology", file, "--directory", tmp_path)

    def export(*options: str) -> tuple[int, str]:
        done = in_process("queue", "export", *options, *where)
        return done.status, done.out

    async with running(topology, "shop", tmp_path), connect(topology, "shop", tmp_path) as client:
        await client.make("bills", quota_kb=7, journal=True, privacy="body", senders=[SENDER])
        await client.make("public", public=bytes(range(16)), strangers=True, authenticated=True)
        await client.change("orders", journal=True, journal_quota_kb=9, weak_ciphers=["RC4-128"])
        await client.delete("gone")
        bills = next(queue for queue in await client.declared() if queue.name == "bills")
        await client.make("like-bills", **like(bills, {}))
        there = await client.declared()
        status, text = await trio.to_thread.run_sync(export)
        named = await trio.to_thread.run_sync(export, "--node", "shop")
    assert status == DONE
    assert named == (status, text)
    assert text.count(MADE) == 4
    file.write_text(text)
    again, log = load(file), Log()
    assert [*again.nodes["shop"].queues.values()] == there
    assert replace(again, nodes=topology.nodes) == topology
    assert replace(again.nodes["shop"], queues={}) == replace(topology.nodes["shop"], queues={})
    async with running(again, "shop", tmp_path, log), connect(again, "shop", tmp_path) as client:
        assert await client.declared() == there
    assert log.lines("declared-otherwise") == []
    elsewhere = tmp_path / "elsewhere"
    async with running(again, "shop", elsewhere), connect(again, "shop", elsewhere) as client:
        assert await client.declared() == there
    assert await trio.to_thread.run_sync(export) == (FINDING, "")
