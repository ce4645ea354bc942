"""Connector queues in a topology: a foreign system has its GUID, its connector server and its two queues."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from mqproto.base.errors import UsageError
from mqproto.formatname import ConnectorName, PrivateName, PublicName, parse_format_name
from mqproto.messages.destinations import Destination, destination_of
from mqproto.messages.drafts import Draft
from mqproto.simulator.topology import Topology, TopologyError, parse
from mqproto.simulator.topology.directory import NodeDirectory, as_the_core_has_it, known_as
from mqproto.simulator.topology.file import load
from mqproto.simulator.topology.views import as_toml
from mqproto.wire.guid import guid_from_text

GUID = "557358D1-5055-9591-9549-97B6E611EA26"
OTHER = "6F9619FF-8B86-D011-B42D-00C04FC964FF"
PLAIN, XACT, PUBLIC = f"CONNECTOR={GUID}", f"CONNECTOR={GUID};XACTONLY", f"PUBLIC={GUID}"
TEXT = f"""
[node.shop]
[node.gateway]
[node.gateway.queue.plain]
connector = "{GUID}"
journal = true
[node.gateway.queue.xact]
connector = "{GUID}"
transactional = true
[[link]]
between = ["shop", "gateway"]
"""


@pytest.fixture
def topology() -> Topology:
    return parse(TEXT, "t.toml")


def at(topology: Topology, name: str) -> NodeDirectory:
    return NodeDirectory(topology, topology.nodes[name])


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.spec("[MS-MQMQ] 2.1.6")
@pytest.mark.parametrize(
    ("name", "path", "transactional"),
    [(PLAIN, r"gateway\plain", False), (XACT, r"gateway\xact", True), (PLAIN.lower(), ".\\plain", False)],
)
def test_a_connector_name_is_the_queue_of_its_kind_at_the_connector_server(
    topology: Topology, name: str, path: str, transactional: bool
) -> None:
    gateway = topology.nodes["gateway"]
    found = topology.resolve(name)
    assert found == topology.resolve(path, at="gateway")
    assert (found.node, found.queue) == (gateway, gateway.queue(path.partition("\\")[2]))
    assert found.format_name == ConnectorName(guid_from_text(GUID), transactional)
    assert at(topology, "gateway").local_queue(name) == found.local_name
    for node in ("shop", "gateway"):
        directory = at(topology, node)
        destination = directory.destination(name)
        assert destination == Destination(
            PUBLIC, gateway.guid, guid_from_text(GUID), transactional=transactional
        )
        assert destination == destination_of(parse_format_name(name), directory.routes, directory.node.guid)


@pytest.mark.spec("[MS-MQMQ] 2.2.7")
def test_a_journal_of_a_connector_queue_has_a_private_name(topology: Topology) -> None:
    found = topology.resolve(r"gateway\plain;journal")
    assert found.format_name == PrivateName(topology.nodes["gateway"].guid, 16, journal=True)
    assert found.local_name == "plain;journal"


def test_the_name_that_a_packet_has_is_sent_to_and_is_no_queue_to_receive_from(topology: Topology) -> None:
    """A response queue arrives under this name, and the answer itself shows which of the two queues it is for."""
    shop, gateway = at(topology, "shop"), at(topology, "gateway")
    assert shop.destination(PUBLIC) == Destination(PUBLIC, gateway.node.guid, guid_from_text(GUID))
    assert shop.with_format_names(Draft(body=b"", response_queue=PUBLIC)).response_queue == PUBLIC
    assert shop.with_format_names(Draft(body=b"", admin_queue=r"gateway\plain")).admin_queue == PLAIN
    with pytest.raises(UsageError, match=f"^{PUBLIC}: .* has two queues here: {PLAIN} and {XACT}$"):
        gateway.local_queue(PUBLIC)
    with pytest.raises(UsageError, match="is a queue of gateway: receive from it there"):
        shop.local_queue(PLAIN)


def test_both_queues_in_one_name_are_two_destinations(topology: Topology) -> None:
    found = at(topology, "shop").destinations(f"{PLAIN},{XACT},{PLAIN.lower()}")
    assert [destination.transactional for destination in found] == [False, True]


def test_a_sequence_to_a_connector_is_known_by_the_queue_that_it_leads_to(topology: Topology) -> None:
    assert known_as(topology, PUBLIC) == r"gateway\xact"
    for text in (r"gateway\xact", XACT, PUBLIC):
        assert at(topology, "shop").outgoing_queues(text, [PUBLIC, OTHER]) == [PUBLIC]
    half = topology.with_queues("gateway", [topology.nodes["gateway"].queue("plain")])
    assert known_as(half, PUBLIC) == PUBLIC
    assert known_as(load("pair"), f"PUBLIC={OTHER}") == f"PUBLIC={OTHER}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"CONNECTOR={OTHER}", f"no foreign system has the GUID {OTHER}; there is {GUID}"),
        (f"PUBLIC={OTHER}", f"no queue has the GUID {OTHER}; set it as public of a queue"),
        (f"{PUBLIC};JOURNAL", f"no queue has the GUID {GUID}; set it as public of a queue"),
    ],
)
def test_a_guid_of_nobody_is_answered_with_those_that_there_are(
    topology: Topology, name: str, said: str
) -> None:
    with pytest.raises(TopologyError) as refused:
        topology.resolve(name)
    assert str(refused.value) == said


def test_where_no_foreign_system_is_declared_it_is_said_how_one_is() -> None:
    with pytest.raises(
        TopologyError, match=rf"^no foreign system has the GUID {GUID}; set it as connector of two queues$"
    ):
        load("pair").resolve(PLAIN)


def test_a_connector_server_with_one_queue_says_which_it_lacks(topology: Topology) -> None:
    gateway = topology.nodes["gateway"]
    for kept, name, words in (
        ("plain", XACT, "transactional messages; give it one, with transactional = true"),
        ("xact", PLAIN, "other messages; give it one, with transactional = false"),
    ):
        half = topology.with_queues("gateway", [gateway.queue(kept)])
        with pytest.raises(TopologyError, match=f"^{name}: gateway has no connector queue for {words}$"):
            half.resolve(name)


def test_what_is_declared_reaches_the_core_and_a_file_and_comes_back(topology: Topology) -> None:
    assert parse(as_toml(topology), "t.toml") == topology
    directory = at(topology, "gateway")
    assert [queue.connector for queue in directory.queues] == [guid_from_text(GUID)] * 2
    directory.has_queues(map(as_the_core_has_it, topology.nodes["gateway"].queues.values()))
    assert directory.topology == topology
    assert isinstance(topology.resolve(PUBLIC).format_name, PublicName)
    assert asdict(topology.nodes["gateway"].queue("xact"))["connector"] == guid_from_text(GUID)
