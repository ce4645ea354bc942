"""The HTTP server of a node: what its options stand for, and its life beside the node."""

from __future__ import annotations

import ipaddress
import re
import resource
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.simulator.base.http.server import DOORWAY, Limits, Server
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.program.extras import build
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.base.traces.asked import checked_collector
from mqproto.simulator.base.traces.starting import edge_traces
from mqproto.simulator.edges.forwarding import Forwarding
from mqproto.simulator.edges.gateway.admission import Rate, tls_of
from mqproto.simulator.edges.gateway.callbacks import OwedCallbacks
from mqproto.simulator.edges.gateway.deliveries import LookedUpHistory
from mqproto.simulator.edges.gateway.front import GatewayFront, ProducerPolicy
from mqproto.simulator.edges.gateway.message import queue_named, queues_of
from mqproto.simulator.edges.gateway.names import QueueNames
from mqproto.simulator.edges.gateway.openapi import openapi
from mqproto.simulator.edges.gateway.refusals import Code
from mqproto.simulator.edges.gateway.sharedids import SharedIds, last_seen
from mqproto.simulator.edges.gateway.tokens import TokenFile
from mqproto.simulator.edges.history.databases import engine_for, parsed
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.edges.httpclient import HttpClient
from mqproto.simulator.edges.metrics import METRICS_PORT
from mqproto.simulator.edges.options import GatewayOptions
from mqproto.simulator.edges.trigger.signing import secrets_in
from mqproto.simulator.edges.trigger.telling import Offer, Teller
from mqproto.simulator.node.node import RunningNode
from mqproto.simulator.node.posting import CLASSES
from mqproto.simulator.storage.posted import DAY_S, KEEP_S
from mqproto.simulator.topology.file import read_address
from mqproto.wire.guid import guid_text

if TYPE_CHECKING:
    from prometheus_client import Metric

    from mqproto.simulator.base.http.monitoring import Monitored

DESCRIPTORS: Final = 64
"""The number of file descriptors for purposes other than clients' connections."""
BACKLOG: Final = 1_024


async def run_gateway(
    options: GatewayOptions,
    node: RunningNode,
    *,
    limits: Limits | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a running node until it is to stop. `task_status` gets the URL as soon as requests are accepted.

    Raises:
        UsageError: an option is not valid.
    """
    limits = limits or Limits(connections=options.connections)
    _make_room(limits.connections)
    name, lines = node.name, node.log
    names, policy, secrets, tls, metrics, collector = _prepared(options, name, lines, node)
    await names.refresh()
    node.posting.keep_s = _keep_s(options)
    async with AsyncExitStack() as held:
        listener = held.enter_context(closing(_listening(options)))
        traces = await held.enter_async_context(edge_traces(collector, f"{name} gateway", lines))
        nursery = await held.enter_async_context(trio.open_nursery())
        history = LookedUpHistory(options.place.directory, options.history)
        held.callback(history.close)
        teller = None
        if policy.callbacks:
            client = held.enter_context(closing(HttpClient()))
            outbox = OwedCallbacks(node.posting, history.look)
            teller = Teller(outbox, client, lines, policy.callbacks, secrets)
            nursery.start_soon(teller.run)
        shared = None
        if options.history:
            opened = await held.enter_async_context(
                open_history(options.history, log=lines, seen=last_seen(node.posting))
            )
            owner = f"gateway {guid_text(node.topology.nodes[name].guid)}"
            shared = SharedIds(opened, node.posting, owner, lines, nursery)
            await shared.recover(queues_of(names.known))
        document = openapi(policy, node.posting.keep_s / DAY_S)
        front = GatewayFront(node, names, policy, document, history.look, shared, traces)
        server = Server(front.answer, front.at_fault, limits, lines, tls, paths=["/health"])
        if metrics is not None:
            # What it takes is imported by those alone who want it.
            from mqproto.simulator.edges.metrics.serving import answer_scrapes

            monitored = _monitored(name, names, node, front, server, teller)
            scraped = partial(answer_scrapes, metrics, allow_remote=options.allow_remote)
            await nursery.start(scraped, monitored, lines)
        host, _ = options.address
        port: int = listener.getsockname()[1]
        _tell_started(lines, options, port, node.posting.lacks_s)
        scheme = "https" if options.tls_certificate else "http"
        task_status.started(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        nursery.start_soon(_stop_with, node, server)
        await server.run([trio.SocketListener(trio.socket.from_stdlib_socket(listener))])
        lines.info("gateway-stopped", turned_away=server.turned_away)
        nursery.cancel_scope.cancel()


async def _stop_with(node: RunningNode, server: Server) -> None:
    await node.stopping.wait()
    server.stop()


class _GatewayParts(NamedTuple):
    """What the options stand for."""

    names: QueueNames
    policy: ProducerPolicy
    secrets: tuple[bytes, ...]
    tls: ssl.SSLContext | None
    metrics: tuple[str, int] | None
    collector: str


def _prepared(
    options: GatewayOptions, name: str, log: FilteringBoundLogger, node: RunningNode | None = None
) -> _GatewayParts:
    """Return what the options stand for.

    Raises:
        UsageError: an option is not valid.
    """
    _see_that_ids_are_shared(options, name)
    names = QueueNames(options.place, name, lambda: node.topology if node else options.place.topology)
    return _GatewayParts(
        names,
        _policy(options, names, name, log),
        secrets_in(options.callback_secrets) if options.callback_secrets else (),
        tls_of(options.tls_certificate, options.tls_key, options.tls_clients),
        read_address(options.metrics, "--metrics", METRICS_PORT) if options.metrics else None,
        checked_collector(options.traces) if options.traces else "",
    )


def _see_that_ids_are_shared(options: GatewayOptions, name: str) -> None:
    """Check that no other node has a gateway at which this one's ids are unknown, unless producers keep to one.

    Raises:
        UsageError: one has.
    """
    topology = options.place.topology
    others = [
        node.name
        for node in topology.nodes.values()
        if node.name != name
        and node.gateway is not None
        and not options.history == node.gateway.get("history", "") != ""
    ]
    if others and not topology.producers_stay:
        raise UsageError(
            f"{name} and {', '.join(others)} take messages over HTTP and do not share their ids, so a message that is "
            "posted to one and again to another arrives twice: give them one history, or, if each producer keeps to "
            "one of them, write producers_stay = true into the topology"
        )


def check(options: GatewayOptions) -> None:
    """Check that a gateway can start with these options.

    Raises:
        UsageError: it cannot.
    """
    node = options.place.topology.node_named(options.node).name
    _make_room(options.connections)
    found = _prepared(options, node, node_log(sys.stderr, node))
    if options.history:
        engine_for(parsed(options.history))
    _listening(options, is_trial=True).close()
    if found.metrics is not None:
        listen(*found.metrics, allow_remote=options.allow_remote, is_trial=True).close()


def _keep_s(options: GatewayOptions) -> int:
    return KEEP_S if options.keep_days is None else max(1, round(options.keep_days * DAY_S))


def _monitored(
    name: str,
    names: QueueNames,
    node: RunningNode,
    front: GatewayFront,
    server: Server,
    teller: Teller | None,
) -> Monitored:
    """Return what is monitored: the metrics, and what is wrong, if anything."""
    from mqproto.simulator.base.http.monitoring import Monitored
    from mqproto.simulator.edges.metrics.families import Edge, GatewayFigures, of_gateway

    edge, posting = Edge("gateway", name, build()), node.posting

    def collect() -> Iterator[Metric]:
        figures = GatewayFigures(
            messages=posting.messages([queue.name for queue in queues_of(names.known)]),
            refused={code: front.refusals[code] for code in Code},
            answered=front.answered,
            under_way=posting.under_way,
            connections=server.connections,
            turned_away=server.turned_away,
            told=None if teller is None else teller.counts,
            ended={name: posting.ends[name] for name in CLASSES},
        )
        return of_gateway(edge, figures)

    return Monitored(collect, lambda: node.trouble)


def _tell_started(log: FilteringBoundLogger, options: GatewayOptions, port: int, lacks_s: int) -> None:
    host, _ = options.address
    ids = "of this node" if not options.history else "shared"
    log.info("gateway-started", address=f"{host}:{port}", ids=ids)
    if lacks_s:
        before = datetime.fromtimestamp(lacks_s, UTC).isoformat()
        log.warning("ids-unknown", before=before, advice="a message with an id of before is new")
    if options.tls_certificate is None and not ipaddress.ip_address(host).is_loopback:
        advice = (
            "whoever is on the way reads them: --tls-certificate and --tls-key, or a proxy that has HTTPS"
        )
        log.warning("tokens-in-clear", advice=advice)


def _policy(
    options: GatewayOptions, names: QueueNames, node: str, log: FilteringBoundLogger
) -> ProducerPolicy:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,80}", options.key_header):
        raise UsageError(f"--key-header {options.key_header!r}: a header has letters, digits and -")

    def whole(name: str) -> str:
        return queue_named(names.known, node, name).name

    return ProducerPolicy(
        key_header=options.key_header,
        key_fields=tuple(options.key_fields or ()),
        key_length=options.key_length,
        require_key=options.require_key,
        tokens=TokenFile(options.tokens, whole, log) if options.tokens else None,
        rate=Rate(options.rate) if options.rate else None,
        forwarding=Forwarding(tuple(options.forward_headers or ())),
        callbacks=Offer.of(options.callback_hosts or (), options.callback),
        https=options.tls_certificate is not None,
        certificates=options.tls_clients is not None,
        webhook_origins=tuple(origin.casefold() for origin in options.webhook_origins or ()),
    )


def _make_room(connections: int) -> None:
    """Make sure that enough sockets can be opened.

    Raises:
        UsageError: the system does not allow that many.
    """
    wanted = connections + DOORWAY + DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise UsageError(
            f"{connections:,} connections take {wanted:,} descriptors, and this process may have {hard:,}: "
            f"raise `ulimit -n`, or type --connections {max(1, hard - DOORWAY - DESCRIPTORS)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _listening(options: GatewayOptions, *, is_trial: bool = False) -> socket.socket:
    """Listen at the address that the options give.

    Raises:
        UsageError: the address is not available, or anybody could send messages there.
    """
    host, port = options.address
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(f"{host} is not an IP address: type --listen 127.0.0.1:8080") from None
    is_guarded = options.tokens is not None or options.tls_clients is not None
    if options.allow_remote and not is_loopback and not is_guarded:
        raise UsageError(
            f"{host}:{port} can be reached from outside, where anybody could send messages: type --tokens FILE, "
            "which mqproto tokens make writes, or --tls-clients CA"
        )
    remote, advice = options.allow_remote, "name another with --listen"
    return listen(host, port, allow_remote=remote, advice=advice, backlog=BACKLOG, is_trial=is_trial)
