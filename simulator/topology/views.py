"""A topology as one of its nodes sees it, and as the text of a file that a node's process can load.

A breakable link has a proxy for each direction, and every connection goes through one. So each node gets its own
topology, whose links name the proxies to which this node must connect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from mqproto.base.configuration import Settings
from mqproto.queues.protection import OPTIONAL
from mqproto.simulator.topology import Fault, Link, Node, Topology
from mqproto.simulator.topology.file import written_address
from mqproto.simulator.topology.model import Strangers
from mqproto.wire.guid import guid_text

Address = tuple[str, int]


def seen_by(topology: Topology, name: str, detours: Mapping[tuple[str, str], Address]) -> Topology:
    """Return the topology as the node `name` sees it, with proxies in place of its neighbours.

    The node finds its neighbours at the addresses in `detours`, and all other nodes at their own addresses.

    Args:
        detours: the proxy's address for each pair (connecting node, its neighbour). The proxy must
            forward each connection with the source address of the host that opened it (rig/network.py).
    """

    def seen(link: Link) -> Link:
        other = link.second if link.first == name else link.first
        detour = detours.get((name, other)) if name in (link.first, link.second) else None
        return replace(link, proxy=None) if detour is None else Link(name, other, detour, link.tls)

    return replace(topology, links=tuple(map(seen, topology.links)))


Remarks = Mapping[tuple[str, str], str]
"""Comments, keyed by (node, queue); the queue is empty for a comment on the node itself."""


def as_toml(topology: Topology, *, is_brief: bool = False, remarks: Remarks = MappingProxyType({})) -> str:
    """Return the text that `mqproto.simulator.topology.parse` reads as this topology.

    is_brief: whether to leave out default settings, and default values for strangers and queues. If not, all optional
        values are written.
    remarks: comments to write.
    """
    return "\n".join(_lines(topology, remarks, is_brief=is_brief)) + "\n"


def _lines(topology: Topology, remarks: Remarks, *, is_brief: bool) -> Iterator[str]:
    description = None if is_brief and not topology.description else topology.description
    yield from _entries(
        name=topology.name, description=description, producers_stay=topology.producers_stay or None
    )
    if not is_brief or topology.strangers != Strangers():
        yield from _table("[strangers]", hear=topology.strangers.hear, call=topology.strangers.call)
    for node in topology.nodes.values():
        yield from _node(node, remarks, is_brief=is_brief)
    for link in topology.links:
        proxy = written_address(*link.proxy) if link.proxy else None
        yield from _table("[[link]]", between=[link.first, link.second], proxy=proxy, tls=link.tls or None)
    for site in topology.sites:
        yield from _table(f"[site.{site.identifier}]", gates=site.site_gates)
    for routing_link in topology.routing_links:
        between = [routing_link.site1, routing_link.site2]
        yield from _table("[[routing_link]]", between=between, cost=routing_link.actual_cost)
    for user in topology.users:
        certificates = [str(path) for path in user.certificates]
        yield from _table(f"[user.{_quoted(user.name)}]", sid=user.sid, certificates=certificates)
    for name, table in topology.routes.items():
        yield from _table(f"[route.{name}]", **table)
    for fault in topology.faults:
        yield from _fault(fault)


def _node(node: Node, remarks: Remarks, *, is_brief: bool) -> Iterator[str]:
    yield from _table(
        f"[node.{node.name}]",
        remarks.get((node.name, "")),
        guid=guid_text(node.guid),
        address=written_address(node.host, node.port),
        **{"from": node.origins or None},
        ping=written_address(*node.ping) if node.ping else None,
        keys=str(node.keys) if node.keys is not None else None,
        readers=node.readers or None,
        readers_folder=str(node.readers_folder) if node.readers_folder else None,
        metrics=written_address(*node.metrics) if node.metrics else None,
        traces=node.traces or None,
        site=node.sites or None,
        routing_server=node.routing_server or None,
        out_routing_servers=node.out_routing_servers or None,
        in_routing_servers=node.in_routing_servers or None,
    )
    if node.private_keys:
        named = {use: str(path) for use, path in node.private_keys.items()}
        yield from _table(f"[node.{node.name}.private_keys]", **named)
    if node.gateway is not None:
        yield from _table(f"[node.{node.name}.gateway]", **node.gateway)
    if node.tls is not None:
        yield from _table(
            f"[node.{node.name}.tls]",
            certificate=str(node.tls.certificate),
            key=str(node.tls.key),
            address=written_address(*node.tls.address),
        )
    for queue in node.queues.values():
        yield from _table(
            f"[node.{node.name}.queue.{_quoted(queue.name)}]",
            remarks.get((node.name, queue.name)),
            id=queue.identifier,
            transactional=queue.transactional or (None if is_brief else False),
            public=guid_text(queue.public) if queue.public else None,
            quota_kb=queue.quota_kb,
            journal=queue.journal or (None if is_brief else False),
            journal_quota_kb=queue.journal_quota_kb,
            strangers=queue.strangers or None,
            authenticated=queue.protection.authenticated or None,
            privacy=None if queue.protection.privacy == OPTIONAL else queue.protection.privacy,
            weak_ciphers=queue.protection.weak_ciphers or None,
            senders=queue.protection.senders or None,
            connector=guid_text(queue.connector) if queue.connector else None,
        )
    settings = {setting.name: getattr(node.settings, setting.name) for setting in fields(Settings)}
    if is_brief:
        usual = Settings()
        settings = {name: value for name, value in settings.items() if value != getattr(usual, name)}
    if settings:
        yield from _table(f"[node.{node.name}.settings]", **settings)


def _fault(fault: Fault) -> Iterator[str]:
    between = list(fault.between) if fault.between else None
    yield from _table(
        "[[fault]]",
        at_s=fault.at_s,
        action=str(fault.action),
        node=fault.node,
        between=between,
        for_s=fault.for_s,
    )


def _table(head: str, remark: str | None = None, /, **entries: object) -> Iterator[str]:
    yield ""
    if remark is not None:
        yield f"# {remark}"
    yield head
    yield from _entries(**entries)


def _entries(**entries: object) -> Iterator[str]:
    for key, value in entries.items():
        if value is not None:
            yield f"{_quoted(key)} = {_value(value)}"


def _value(value: object) -> str:
    """Return a value as TOML. Strings, numbers, booleans and arrays are written as in JSON, except that DEL is
    escaped."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"[{', '.join(_value(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _quoted(key: str) -> str:
    return key if key.replace("_", "a").replace("-", "a").isalnum() and key.isascii() else _value(key)
