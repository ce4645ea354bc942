"""`mqproto gateway`, which connects the history, the node, the HTTP server and signals."""

from __future__ import annotations

import ipaddress
import re
import resource
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.simulator.base.http.server import DOORWAY, Limits, Server
from mqproto.simulator.base.log import LogLines, node_log
from mqproto.simulator.base.logfile import LogFile
from mqproto.simulator.base.program.again import AGAIN, asked_to_end
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.base.program.extras import build
from mqproto.simulator.base.program.manager import keep_telling
from mqproto.simulator.base.program.output import run_task
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.base.traces.asked import checked_collector
from mqproto.simulator.base.traces.starting import edge_traces
from mqproto.simulator.edges.firstfailures import say_why_it_waits
from mqproto.simulator.edges.forwarding import Forwarding
from mqproto.simulator.edges.gateway.admission import Rate, tls_of
from mqproto.simulator.edges.gateway.confirmations import CLASSES, CONFIRMATIONS, ConfirmationReader
from mqproto.simulator.edges.gateway.front import GatewayFront, ProducerPolicy
from mqproto.simulator.edges.gateway.fullness import FullQueues
from mqproto.simulator.edges.gateway.gateway import Gateway, Ticket, queue_named, queues_of
from mqproto.simulator.edges.gateway.names import QueueNames
from mqproto.simulator.edges.gateway.openapi import openapi
from mqproto.simulator.edges.gateway.outlet import Ended, Outlet, history_known_to, owner_in
from mqproto.simulator.edges.gateway.refusals import Code
from mqproto.simulator.edges.gateway.tokens import TokenFile
from mqproto.simulator.edges.history.databases import engine_for, parsed
from mqproto.simulator.edges.httpclient import HttpClient
from mqproto.simulator.edges.metrics import METRICS_PORT
from mqproto.simulator.edges.options import GatewayOptions
from mqproto.simulator.edges.trigger.signing import secrets_in
from mqproto.simulator.edges.trigger.telling import Offer, Teller
from mqproto.simulator.topology import places
from mqproto.simulator.topology.file import read_address
from mqproto.simulator.topology.places import called

if TYPE_CHECKING:
    from prometheus_client import Metric

    from mqproto.simulator.base.http.monitoring import Monitored

DAY_S: Final = 24 * 3_600.0
DESCRIPTORS: Final = 64
"""The number of file descriptors for purposes other than clients' connections."""
BACKLOG: Final = 1_024


async def run_gateway(
    options: GatewayOptions,
    *,
    log: LogLines | None = None,
    limits: Limits | None = None,
    task_status: trio.TaskStatus[tuple[Server, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `Server.stop`.

    `task_status` gets the server and its port as soon as requests are accepted.

    The node may start later; no message is accepted before the node has reported the outcomes of earlier submissions.

    Raises:
        UsageError: an option is not valid.
        StoreError: the journal is not available, or another gateway has it.
        HistoryError: the document history is not available.
    """
    directory = options.place.directory
    limits = limits or Limits(connections=options.connections)
    _make_room(limits.connections)
    node = options.place.topology.node_named(options.node).name
    who = f"{node} {options.name}"
    lines = node_log(log or sys.stderr, who)
    url = options.history or places.history_url(directory)
    names, policy, secrets, tls, metrics, collector = await _prepared(options, node, lines, url)
    places.make(directory)
    journal = directory / f"{called(node, options.name)}.journal"
    owner = owner_in(journal)
    async with AsyncExitStack() as held:
        listener = held.enter_context(closing(_listening(options)))
        traces = await held.enter_async_context(edge_traces(collector, who, lines))
        keep_s = None if options.keep_days is None else options.keep_days * DAY_S
        history = await held.enter_async_context(history_known_to(journal, url, keep_s, lines))
        names.hide_own(history)
        nursery = await held.enter_async_context(trio.open_nursery())
        fullness = FullQueues()
        on_end = teller = None
        if policy.callbacks:
            client = held.enter_context(closing(HttpClient()))
            teller = Teller(history, owner, client, lines, policy.callbacks, secrets)
            on_end = teller.tell_if_over
            nursery.start_soon(teller.run)
        confirmations = ConfirmationReader(options.name + CONFIRMATIONS, history, lines, fullness, on_end)
        outlet = Outlet(options.place, node, names, journal, confirmations, lines, lambda: history.seen)
        gateway = Gateway(outlet, history, owner, lines, nursery, fullness=fullness, on_end=on_end)
        document = openapi(policy, history.keep_s / DAY_S)
        front = GatewayFront(
            gateway, outlet, names, node, confirmations.path, policy, document, lines, traces
        )
        server = Server(front.answer, front.at_fault, limits, lines, tls, paths=["/health"])
        if metrics is not None:
            # What it takes is imported by those alone who want it.
            from mqproto.simulator.edges.metrics.serving import answer_scrapes

            monitored = _monitored(options, names, outlet, gateway, front, server, confirmations, teller)
            scraped = partial(answer_scrapes, metrics, allow_remote=options.allow_remote)
            await nursery.start(scraped, monitored, lines)
        await nursery.start(outlet.run, *_recovery(gateway, names))
        port: int = listener.getsockname()[1]
        _tell_started(lines, options, port, journal)
        task_status.started((server, port))
        await server.run([trio.SocketListener(trio.socket.from_stdlib_socket(listener))])
        with trio.move_on_after(limits.grace_s):
            await gateway.idle()
        lines.info("stopped", turned_away=server.turned_away)
        nursery.cancel_scope.cancel()


class _GatewayParts(NamedTuple):
    """What the options stand for."""

    names: QueueNames
    policy: ProducerPolicy
    secrets: tuple[bytes, ...]
    tls: ssl.SSLContext | None
    metrics: tuple[str, int] | None
    collector: str


async def _prepared(
    options: GatewayOptions, node: str, log: FilteringBoundLogger, history: str
) -> _GatewayParts:
    """Return what the options stand for.

    Raises:
        UsageError: an option is not valid.
    """
    called(node, options.name)  # Refuses a name that is none.
    names = QueueNames(options.place, node)
    await names.topology()
    engine_for(parsed(history))
    return _GatewayParts(
        names,
        _policy(options, names, node, log),
        secrets_in(options.callback_secrets) if options.callback_secrets else (),
        tls_of(options.tls_certificate, options.tls_key, options.tls_clients),
        read_address(options.metrics, "--metrics", METRICS_PORT) if options.metrics else None,
        checked_collector(options.traces) if options.traces else "",
    )


def check(options: GatewayOptions) -> None:
    """Check that a gateway can start with these options.

    Raises:
        UsageError: it cannot.
    """
    node = options.place.topology.node_named(options.node).name
    history = options.history or places.history_url(options.place.directory)
    found = run_task(partial(_prepared, options, node, node_log(sys.stderr, node), history))
    _listening(options, is_trial=True).close()
    if found.metrics is not None:
        listen(*found.metrics, allow_remote=options.allow_remote, is_trial=True).close()


def _recovery(
    gateway: Gateway, names: QueueNames
) -> tuple[Callable[[], Awaitable[list[Ticket]]], Callable[[Ended], Awaitable[None]]]:
    """Return the two functions that are called for each connection to the node.

    The first asks for the tickets of the messages in question; the second records how these messages ended.
    """
    is_cleared = False

    async def in_question() -> list[Ticket]:
        return await gateway.in_question(() if is_cleared else queues_of(await names.topology()))

    async def recover(ended: Ended) -> None:
        nonlocal is_cleared
        await gateway.recover(ended)
        if not is_cleared:
            await gateway.clear(queues_of(await names.topology()))
        is_cleared = True  # What is begun from now on is of this life.

    return in_question, recover


def _monitored(
    options: GatewayOptions,
    names: QueueNames,
    outlet: Outlet,
    gateway: Gateway,
    front: GatewayFront,
    server: Server,
    confirmations: ConfirmationReader,
    teller: Teller | None,
) -> Monitored:
    """Return what is monitored: the metrics, and what is wrong, if anything."""
    from mqproto.simulator.base.http.monitoring import Monitored
    from mqproto.simulator.edges.metrics.families import Edge, GatewayFigures, of_gateway

    node = names.known.node_named(options.node).name
    edge = Edge(options.name, node, build())

    def collect() -> Iterator[Metric]:
        figures = GatewayFigures(
            is_connected=outlet.is_connected,
            messages=gateway.messages([queue.name for queue in queues_of(names.known)]),
            refused={code: front.refusals[code] for code in Code},
            answered=front.answered,
            under_way=gateway.under_way,
            in_doubt=gateway.in_doubt,
            connections=server.connections,
            turned_away=server.turned_away,
            ended={name: confirmations.ends[name] for name in CLASSES},
            told=None if teller is None else teller.counts,
        )
        return of_gateway(edge, figures)

    def trouble() -> str:
        if server.stopping:
            return "it stops"
        return "" if outlet.is_connected else f"node {node} is not running"

    return Monitored(collect, trouble)


def _tell_started(log: FilteringBoundLogger, options: GatewayOptions, port: int, journal: Path) -> None:
    host, _ = options.address
    log.info("started", address=f"{host}:{port}", journal=str(journal))
    if options.tls_certificate is None and not ipaddress.ip_address(host).is_loopback:
        advice = (
            "whoever is on the way reads them: --tls-certificate and --tls-key, or a proxy that has HTTPS"
        )
        log.warning("tokens-in-clear", advice=advice)


async def serve(options: GatewayOptions) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Its log is kept with the stores, where `mqproto history` looks for it.

    This prints a line that begins with `ready` as soon as requests are accepted.
    """
    topology, directory = options.place.topology, options.place.directory
    places.make(directory)
    node = topology.node_named(options.node).name
    path = directory / f"{called(node, options.name)}.log"
    start = places.start_command(topology, node, directory)
    server: Server | None = None
    ready = trio.Event()

    async def end_at_signal(everything: trio.CancelScope) -> None:
        async for _ in signals:
            AGAIN.tell_stopping()
            if server is None:
                everything.cancel()
            else:
                server.stop()

    with seldom_collected(), LogFile(path) as log, asked_to_end() as signals:
        async with trio.open_nursery() as around:
            around.start_soon(end_at_signal, around.cancel_scope)
            async with trio.open_nursery() as nursery:
                around.start_soon(say_why_it_waits, ready, start, path)
                server, port = await nursery.start(partial(run_gateway, options, log=log))
                ready.set()
                host, _ = options.address
                host = f"[{host}]" if ":" in host else host
                scheme = "https" if options.tls_certificate else "http"
                print(f"ready {scheme}://{host}:{port}", flush=True)
                around.start_soon(keep_telling)
            around.cancel_scope.cancel()


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
