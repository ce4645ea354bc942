"""The meaning of a topology for one node: which node it calls for which destination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname import PrivateName, parse_format_name
from mqproto.messages.destinations import destination_of
from mqproto.messages.drafts import Draft
from mqproto.routing import NextHop
from mqproto.simulator.topology import Link, Topology, TopologyError, load, parse
from mqproto.simulator.topology.directory import NodeDirectory, known_as
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.wire.guid import guid_from_text, guid_text
from tests.simulator.certificates import over_tls

THREE = load("three-node")
SENDER, INTERMEDIATE, DESTINATION = THREE.nodes.values()


def hop(topology: Topology, name: str) -> NextHop:
    node = topology.nodes[name]
    return NextHop(node.guid, node.host, node.port, node.ping)


def hosts(topology: Topology, name: str) -> Mapping[str, NextHop]:
    return NodeDirectory(topology, topology.nodes[name]).routes.hosts


def test_what_is_routed_goes_to_the_next_hop_and_a_direct_name_straight() -> None:
    directory = NodeDirectory(THREE, SENDER)
    assert directory.routes.to_manager(DESTINATION.guid) == (hop(THREE, "intermediate"),)
    assert directory.routes.to_host(DESTINATION.host) == hop(THREE, "destination")
    assert directory.routes.to_host("Destination") == hop(THREE, "destination")

    routed = directory.destination(r"destination\private$\orders")
    assert (routed.manager, routed.host) == (DESTINATION.guid, None)
    assert routed.queue == DESTINATION.queue("orders").identifier
    direct = directory.destination(rf"DIRECT=TCP:{DESTINATION.host}\private$\orders")
    assert (direct.manager, direct.host) == (DESTINATION.guid, DESTINATION.host)
    assert direct.name == f"DIRECT={direct.queue!s}"


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
def test_a_public_name_leads_to_the_queue_manager_that_hosts_the_queue() -> None:
    fan_in = load("fan-in")
    there = fan_in.nodes["destination"]
    found = NodeDirectory(fan_in, fan_in.nodes["sender-1"]).destination(r"destination\orders")
    assert found.name.startswith("PUBLIC=")
    assert (found.manager, found.queue) == (there.guid, there.queue("orders").public)


def test_a_proxy_is_called_in_place_of_the_neighbour_behind_it() -> None:
    proxy = ("127.0.0.9", 2000)
    links = (Link("sender", "intermediate", proxy), Link("intermediate", "destination"))
    topology = replace(THREE, links=links)
    there = NextHop(INTERMEDIATE.guid, *proxy, ping=(INTERMEDIATE.host, 3527))
    assert NodeDirectory(topology, SENDER).routes.to_manager(DESTINATION.guid) == (there,)
    assert NodeDirectory(topology, SENDER).routes.to_host("intermediate") == there
    assert NodeDirectory(topology, INTERMEDIATE).routes.to_manager(SENDER.guid) == (hop(topology, "sender"),)


def test_a_neighbour_with_tls_is_called_over_tls_by_its_guid_its_name_and_its_address(tmp_path: Path) -> None:
    topology = over_tls(THREE, tmp_path)
    routes = NodeDirectory(topology, SENDER).routes
    there = NextHop(INTERMEDIATE.guid, INTERMEDIATE.host, 1812, tls=True)
    assert routes.to_manager(DESTINATION.guid) == (there,)
    assert routes.to_host("intermediate") == routes.to_host(INTERMEDIATE.host) == there
    # No link leads to the destination itself, so a direct name goes there without TLS.
    assert routes.to_host("destination") == hop(topology, "destination")


def test_an_address_stands_for_a_node_only_if_it_is_that_nodes_alone() -> None:
    assert SENDER.host == "127.0.0.1"
    assert hosts(THREE, "intermediate")["127.0.0.1"] == hop(THREE, "sender")
    assert "127.0.0.1" not in hosts(THREE.with_free_ports(), "intermediate")
    # A proxy that leads here comes from 127.0.0.1, whoever is behind it.
    behind = Link("destination", "intermediate", ("127.0.0.9", 2000))
    proxied = replace(THREE, links=(Link("sender", "intermediate"), behind))
    assert "127.0.0.1" not in hosts(proxied, "intermediate")
    assert hosts(proxied, "intermediate")["sender"] == hop(proxied, "sender")


def test_a_direct_name_whose_address_says_nothing_is_called_by_its_nodes_name() -> None:
    behind = Link("destination", "intermediate", ("127.0.0.9", 2000))
    proxied = replace(THREE, links=(Link("sender", "intermediate"), behind))
    found = NodeDirectory(proxied, INTERMEDIATE).destination(r"DIRECT=TCP:127.0.0.1\private$\replies")
    assert found.host == "sender"


def test_a_node_without_a_way_has_no_route_to_it() -> None:
    apart = replace(THREE, links=(Link("sender", "intermediate"),))
    assert NodeDirectory(apart, SENDER).routes.to_manager(DESTINATION.guid) == ()


def test_more_names_than_are_remembered_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.simulator.topology.directory.KNOWN_LIMIT", 1)
    directory = NodeDirectory(THREE, SENDER)
    for name in 2 * [r"destination\private$\orders", r"destination\private$\notes"]:
        assert directory.destination(name).queue == DESTINATION.queue(name.rpartition("\\")[2]).identifier


def test_several_names_are_several_destinations_each_once() -> None:
    orders, notes = rf"PRIVATE={guid_text(DESTINATION.guid)}\10", r"DIRECT=OS:destination\private$\notes"
    directory = NodeDirectory(THREE, SENDER)
    for text in (
        rf"{orders},{notes}",
        rf"FORMATNAME:{orders} , {notes.lower()}, {notes}",
        rf"destination\orders,{notes},{orders}",
    ):
        found = directory.destinations(text)
        assert [destination.name.casefold() for destination in found] == [
            directory.destination(name).name.casefold() for name in (orders, notes)
        ]
    with pytest.raises(TopologyError, match="nowhere"):
        directory.destinations(rf"{orders},nowhere\q")
    with pytest.raises(FormatNameError):
        directory.destinations(f"{orders},")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (r"destination\private$\orders;journal", TopologyError),
        (r"destination\system$;DEADXACT", UsageError),
        (rf"MACHINE={'0' * 8}-0000-0000-0000-{'0' * 12};DEADXACT", UsageError),
    ],
)
def test_nobody_sends_to_journals_and_dead_letters(name: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        NodeDirectory(THREE, SENDER).destination(name)


def test_a_queue_is_known_by_its_bare_name_at_its_own_node() -> None:
    directory = NodeDirectory(THREE, DESTINATION)
    assert directory.local_queue("ORDERS") == "orders"
    assert directory.local_queue(r".\private$\Orders") == "orders"
    with pytest.raises(UsageError, match="receive from it there"):
        NodeDirectory(THREE, SENDER).local_queue(r"destination\private$\orders")


@pytest.mark.parametrize(
    "text",
    ["deadletter", "system$;DeadLetter", "DeadLetter$", r".\system$;DEADLETTER", r"destination\deadletter"],
)
def test_a_system_queue_is_known_by_its_bare_name_too(text: str) -> None:
    assert NodeDirectory(THREE, DESTINATION).local_queue(text) == "system$;deadletter"


def test_quotas_and_journals_are_declared_in_bytes() -> None:
    topology = parse("[node.a.queue.q]\nquota_kb = 8\njournal = true\njournal_quota_kb = 4", "t.toml")
    directory = NodeDirectory(topology, topology.nodes["a"])
    [queue] = directory.queues
    assert (queue.quota_bytes, queue.journal, queue.journal_quota_bytes) == (8_192, True, 4_096)
    assert directory.local_queue("q;journal") == "q;journal"


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
def test_the_core_is_told_which_names_mean_its_own_node_and_where_public_queues_are() -> None:
    public = "557358D1-5055-9591-9549-97B6E611EA26"
    text = f"[node.a.queue.q]\npublic = '{public}'\n[node.b]\n[[link]]\nbetween = ['a', 'b']"
    topology = parse(text, "t.toml")
    a, b = topology.nodes.values()
    assert NodeDirectory(topology, a).routes.own_hosts == {"a", "127.0.0.1"}
    assert NodeDirectory(topology.with_free_ports(), a).routes.own_hosts == {"a"}
    for node in (a, b):
        directory = NodeDirectory(topology, node)
        assert directory.routes.publics == {guid_from_text(public): a.guid}
        for name in (r"a\q", r"DIRECT=OS:a\q", r"DIRECT=TCP:127.0.0.1\q"):
            known = directory.destination(name)
            assert destination_of(parse_format_name(known.name), directory.routes, node.guid) == known


def test_the_queues_that_a_draft_names_get_their_format_names() -> None:
    public = "557358D1-5055-9591-9549-97B6E611EA26"
    text = f"[node.a.queue.q]\n[node.b.queue.traces]\npublic = '{public}'\n[[link]]\nbetween = ['a', 'b']"
    topology = parse(text, "t.toml")
    directory = NodeDirectory(topology, topology.nodes["a"])
    draft = directory.with_format_names(
        Draft(body=b"", admin_queue=r".\q", response_queue=r"DIRECT=OS:.\q", trace_queue="traces")
    )
    assert parse_format_name(draft.admin_queue) == PrivateName(topology.nodes["a"].guid, 16)
    assert (draft.response_queue, draft.trace_queue) == (r"DIRECT=OS:a\q", f"PUBLIC={public}")
    draft.check()
    with pytest.raises(UsageError, match="nobody sends to a system queue"):
        directory.with_format_names(Draft(body=b"", admin_queue=r"a\deadxact"))


def test_no_acknowledgments_are_asked_for_that_their_queue_is_known_to_refuse() -> None:
    text = "[node.a.queue.q]\n[node.b.queue.sales]\ntransactional = true\n[[link]]\nbetween = ['a', 'b']"
    topology = parse(text, "t.toml")
    directory = NodeDirectory(topology, topology.nodes["a"])
    whole = str(PrivateName(topology.nodes["b"].guid, 16))
    for name in ("sales", r"b\sales", r"b\private$\SALES"):
        with pytest.raises(UsageError, match="queue sales is transactional; acknowledgments need one that"):
            directory.with_format_names(Draft(body=b"", admin_queue=name, acknowledgments=1))
        directory.with_format_names(Draft(body=b"", admin_queue=name))
        directory.with_format_names(Draft(body=b"", response_queue=name))
    for name in ("q", r"DIRECT=OS:stranger\sales", whole):  # The last may be in a message that is sent again.
        directory.with_format_names(Draft(body=b"", admin_queue=name, acknowledgments=1))


FAILED = "[node.a.queue.failed]\n[node.a.queue.Shared]\n[node.b.queue.b-only]\n[[link]]\nbetween = ['a', 'b']"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("failed", "failed"),
        ("FAILED", "failed"),
        (r".\failed", "failed"),
        (r"private$\failed", "failed"),
        (r"PRIVATE$\Failed", "failed"),
        (r".\private$\shared", "Shared"),
        (r"a\private$\failed", "failed"),
        (r"DIRECT=OS:a\private$\failed", "failed"),
        ("deadletter", "system$;deadletter"),
        (r"b\b-only", "is not at a: a dead letter stays where its message was sent"),
        ("b-only", "a has no queue 'b-only'"),
        (r"DIRECT=TCP:10.9.9.9\private$\x", "is not at a: a dead letter stays where its message was sent"),
        (r"stranger\private$\x", "no node 'stranger'"),
        ("a,b", "a path name is"),
    ],
)
def test_the_queue_for_dead_letters_is_one_of_this_node(text: str, found: str) -> None:
    topology = parse(FAILED, "t.toml")
    directory = NodeDirectory(topology, topology.nodes["a"])
    try:
        said = directory.with_format_names(Draft(body=b"", dead_letter_queue=text)).dead_letter_queue
    except (FormatNameError, UsageError) as error:
        said = str(error)
        assert found in said
    else:
        assert said == found
    assert "\n" not in said


ROUTED = guid_text(DESTINATION.guid)
SEQUENCE = str(DESTINATION.format_name(DESTINATION.queue("orders")))
NAMES = [
    ROUTED,
    f"{ROUTED}{ORDER_SUFFIX}",
    SEQUENCE,
    r"DIRECT=OS:destination\orders",
    "10.0.0.7",
    "intermediate",
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("destination", [ROUTED]),
        (r"destination\orders", [SEQUENCE, r"DIRECT=OS:destination\orders"]),
        ("ORDERS", [SEQUENCE, r"DIRECT=OS:destination\orders"]),
        (SEQUENCE, [SEQUENCE, r"DIRECT=OS:destination\orders"]),
        (r"destination\order_queue$", [f"{ROUTED}{ORDER_SUFFIX}"]),
        ("10.0.0.7", ["10.0.0.7"]),
        ("Intermediate", ["intermediate"]),
        (r"destination\notes", []),
        ("nonsense\\", []),
    ],
)
def test_outgoing_queues_go_by_what_they_lead_to(text: str, found: list[str]) -> None:
    assert NodeDirectory(THREE, SENDER).outgoing_queues(text, NAMES) == found


@pytest.mark.parametrize("name", NAMES)
def test_what_an_outgoing_queue_is_called_finds_it(name: str) -> None:
    assert name in NodeDirectory(THREE, SENDER).outgoing_queues(known_as(THREE, name), NAMES)


def test_an_address_that_several_nodes_share_is_called_as_it_is() -> None:
    assert known_as(THREE.with_free_ports(), "127.0.0.1") == "127.0.0.1"
    assert known_as(THREE, "127.0.0.1") == "sender"
