"""The process of a trigger, which calls a service for each message of a queue until SIGTERM or SIGINT."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.logfile import LogFile
from mqproto.simulator.base.program.again import AGAIN, asked_to_end
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.base.program.extras import build
from mqproto.simulator.base.program.manager import keep_telling
from mqproto.simulator.base.program.output import complain, run_task
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.base.traces.asked import checked_collector, shown
from mqproto.simulator.base.traces.starting import edge_traces
from mqproto.simulator.client import Client, connect
from mqproto.simulator.client.live import as_it_is, those_away
from mqproto.simulator.edges.firstfailures import PATIENCE_S, on_screen, say_why_it_waits
from mqproto.simulator.edges.forwarding import Forwarding
from mqproto.simulator.edges.history.databases import engine_for, parsed
from mqproto.simulator.edges.history.history import DocumentHistory, open_history
from mqproto.simulator.edges.httpclient import HttpClient
from mqproto.simulator.edges.metrics import METRICS_PORT
from mqproto.simulator.edges.options import NONE, Policy, TriggerOptions
from mqproto.simulator.edges.trigger.access import Access, is_same_origin, own_headers, trusting
from mqproto.simulator.edges.trigger.callee import (
    Callee,
    HttpCallee,
    HttpEndpoint,
    PythonCallee,
    endpoint,
    url_of_http,
)
from mqproto.simulator.edges.trigger.detection import Detection, scope_of
from mqproto.simulator.edges.trigger.leadership import Leadership, alone, has_ended, lock_of
from mqproto.simulator.edges.trigger.named import function
from mqproto.simulator.edges.trigger.resolver import HttpResolver, PythonResolver, Resolver
from mqproto.simulator.edges.trigger.signing import secrets_in
from mqproto.simulator.edges.trigger.telling import HistoryTeller, Offer
from mqproto.simulator.edges.trigger.trigger import Trigger
from mqproto.simulator.topology import TopologyError, places
from mqproto.simulator.topology.file import read_address
from mqproto.simulator.topology.places import Place, called, host_of
from mqproto.simulator.topology.resolve import is_bare

if TYPE_CHECKING:
    from prometheus_client import Metric

ASK_S: Final = 0.25
FUNCTION: Final = "write module:function, as in my.package.orders:accept"
ANSWERS: Final = {
    Attempt.SUCCEEDED: "processed",
    Attempt.FAILED_FOR_GOOD: "business-error",
    Attempt.FAILED_FOR_NOW: "system-error",
}
"""The names of a consumer's answers in metrics."""


async def serve(place: Place, queue: str, options: TriggerOptions) -> None:
    """Run a trigger until SIGTERM or SIGINT.

    Its log is kept with the stores, where `mqproto history` looks for it.

    This prints a line that begins with `ready` when the node has answered.

    Raises:
        UsageError: there is no such queue, URL or function; a queue for copies does not accept them; or a trigger with
            this name is already running.
        HistoryError: the history is not available.
    """
    async with AsyncExitStack() as held:
        metrics, collector, consumer, resolver, policy = await _prepared(held, options)
        place, node, local, policy = await _meant(place, queue, policy)
        made = "" if options.policy.error_queue else error_queue_of(local)
        policy = replace(policy, error_queue=made or policy.error_queue)
        places.make(place.directory)
        path = place.directory / f"{called(node, options.name)}.log"
        start = places.start_command(place.topology, node, place.directory)
        held.enter_context(alone(lock_of(place.directory, node, options.name)))
        scope, owner = f"{node}\\{local}", f"{node} {options.name}"
        log = held.enter_context(LogFile(path))
        lines = node_log(log, owner)
        history = await _history(held, place, options, lines)
        detection = Detection(scope, owner, history, resolver, enabled=not options.at_least_once)
        await detection.is_back()  # Complains of names that a history cannot keep.
        is_gone = partial(has_ended, place.directory)
        leadership = Leadership(history, scope_of(scope), owner, options.lease_s, is_gone)
        hook = await _hook(held, options, history, scope, lines.bind(queue=local))
        traces = await held.enter_async_context(edge_traces(collector, owner, lines))
        held.enter_context(seldom_collected())
        ready = trio.Event()
        say = _to_nobody if options.supervised else on_screen
        trigger = Trigger(
            partial(_connected, place, node, made),
            local,
            consumer,
            detection,
            policy,
            lines,
            ready.set,
            leadership,
            hook,
            traces,
            say,
        )
        with asked_to_end() as signals:
            async with trio.open_nursery() as nursery:
                if metrics is not None:
                    await _start_metrics(nursery, metrics, options, node, f"{node}\\{local}", trigger, lines)
                say(f"{scope}: each message is {_given_to(options)}; the log is {path}")
                nursery.start_soon(_stop_at_signal, trigger, signals)
                nursery.start_soon(_say_ready, options.name, ready)
                nursery.start_soon(say_why_it_waits, ready, start, path)
                await trigger.run()
                nursery.cancel_scope.cancel()


class _TriggerParts(NamedTuple):
    """What the options stand for."""

    metrics: tuple[str, int] | None
    collector: str
    consumer: Callee
    resolver: Resolver | None
    policy: Policy


async def _prepared(held: AsyncExitStack, options: TriggerOptions) -> _TriggerParts:
    """Return what the options stand for, as far as that needs no node.

    Raises:
        UsageError: an option is not valid.
    """
    called("", options.name)  # Refuses a name that is none.
    if options.hook:
        url_of_http(options.hook)
    if options.history not in ("", NONE):
        engine_for(parsed(options.history))
    parallel = options.parallel or (8 if options.policy.group_by else 1)
    return _TriggerParts(
        read_address(options.metrics, "--metrics", METRICS_PORT) if options.metrics else None,
        checked_collector(options.traces) if options.traces else "",
        await _consumer(held, options, parallel),
        await _resolver(held, options, parallel),
        replace(options.policy, parallel=parallel),
    )


def check(place: Place, queue: str, options: TriggerOptions) -> None:
    """Check that a trigger can start with these options. A node that is not running is not waited for.

    Raises:
        UsageError: it cannot.
    """

    async def prepare() -> None:
        async with AsyncExitStack() as held:
            found = await _prepared(held, options)
            if options.hook_secrets:
                secrets_in(options.hook_secrets)
            with trio.move_on_after(PATIENCE_S):
                await _meant(place, queue, found.policy)
            if found.metrics is not None:
                listen(*found.metrics, allow_remote=options.allow_remote, is_trial=True).close()

    run_task(prepare)


async def _start_metrics(
    nursery: trio.Nursery,
    address: tuple[str, int],
    options: TriggerOptions,
    node: str,
    queue: str,
    trigger: Trigger,
    log: FilteringBoundLogger,
) -> None:
    """Serve metrics. The libraries for this are imported only when metrics are requested.

    Raises:
        UsageError: the address is not available.
    """
    from mqproto.simulator.base.http.monitoring import Monitored
    from mqproto.simulator.edges.metrics.families import Edge, TriggerFigures, of_trigger
    from mqproto.simulator.edges.metrics.serving import answer_scrapes

    edge = Edge(options.name, node, build())

    def collect() -> Iterator[Metric]:
        doing, judge, hook = trigger.doing(), trigger.judge, trigger.hook
        held = doing.held
        figures = TriggerFigures(
            queue=queue,
            leads=doing.leads,
            epoch=doing.epoch,
            is_connected=doing.is_connected,
            calls=doing.calls,
            answers={name: judge.answers[answer] for answer, name in ANSWERS.items()},
            answered=judge.answered,
            deliveries=trigger.conclusions.endings,
            held_s=0.0 if held is None else max(0.0, time.time() - held.since_s),
            failures=0 if held is None else held.failures,
            told=None if hook is None else hook.counts,
        )
        return of_trigger(edge, figures)

    def trouble() -> str:
        doing = trigger.doing()
        if doing.history_is_away:
            return "the document history is not available"
        # Who stands by does all that he is to do.
        return "" if doing.is_connected or not doing.leads else f"node {node} is not running"

    scraped = partial(answer_scrapes, address, allow_remote=options.allow_remote)
    await nursery.start(scraped, Monitored(collect, trouble), log)


def error_queue_of(queue: str) -> str:
    """Return the name of the default error queue for a queue."""
    return f"{queue.removeprefix('system$;')}-errors"


@asynccontextmanager
async def _connected(place: Place, node: str, error_queue: str) -> AsyncIterator[Client]:
    """Yield a client of the node, after making the error queue if it is missing.

    Args:
        error_queue: the name of that queue; empty for none.

    Raises:
        UsageError: there is a queue of this name that does not accept copies.
    """
    async with connect(place.topology, node, place.directory) as client:
        if error_queue:
            found = [queue for queue in await client.declared() if queue.name == error_queue]
            if not found:
                await client.make(error_queue, transactional=True)
            elif not found[0].transactional:
                raise UsageError(
                    f"{error_queue} is not transactional, and takes no copies: name another with --error-queue"
                )
        yield client


async def _stop_at_signal(trigger: Trigger, signals: AsyncIterator[int]) -> None:
    async for _ in signals:
        AGAIN.tell_stopping()
        trigger.stop()


async def _say_ready(name: str, ready: trio.Event) -> None:
    await ready.wait()
    print(f"ready {name}", flush=True)
    await keep_telling()


def _to_nobody(_: str) -> None: ...


def _given_to(options: TriggerOptions) -> str:
    """Return, in words, how each message is processed. Passwords and tokens in URLs are left out."""
    return f"posted to {shown(options.url)}" if options.url else f"given to {options.call}"


async def _consumer(held: AsyncExitStack, options: TriggerOptions, parallel: int) -> Callee:
    if options.url:
        called = await held.enter_async_context(_endpoint(options.url, options))
        return HttpCallee(called, options.error_field)
    return PythonCallee(function(options.call, FUNCTION), parallel)


def _endpoint(url: str, options: TriggerOptions) -> AbstractAsyncContextManager[HttpEndpoint]:
    # Secrets are for one server. If the consumer is a function, it is the resolver's.
    is_trusted = is_same_origin(url, options.url or url)
    access = Access(
        forwarding=Forwarding(tuple(options.forward_header or ())),
        headers=own_headers(options.headers_file) if options.headers_file and is_trusted else {},
        secrets=secrets_in(options.signing_secrets) if options.signing_secrets and is_trusted else (),
        trusted=trusting(options.ca, options.certificate, options.key),
    )
    return endpoint(url, access, as_json=options.as_json)


async def _history(
    held: AsyncExitStack, place: Place, options: TriggerOptions, lines: FilteringBoundLogger
) -> DocumentHistory | None:
    if options.at_least_once or options.history == NONE:
        return None
    url = options.history or places.history_url(place.directory)
    return await held.enter_async_context(open_history(url, log=lines))


async def _resolver(held: AsyncExitStack, options: TriggerOptions, parallel: int) -> Resolver | None:
    if not options.resolver:
        return None
    if "://" in options.resolver:
        asked = await held.enter_async_context(_endpoint(options.resolver, options))
        return HttpResolver(asked)
    return PythonResolver(function(options.resolver, FUNCTION), parallel)


async def _hook(
    held: AsyncExitStack,
    options: TriggerOptions,
    history: DocumentHistory | None,
    queue: str,
    log: FilteringBoundLogger,
) -> HistoryTeller | None:
    if not options.hook or history is None:
        return None
    secrets = secrets_in(options.hook_secrets) if options.hook_secrets else ()
    client = held.enter_context(closing(HttpClient(trusting(options.ca, None, None))))
    return HistoryTeller(history, scope_of(queue), client, log, Offer(None, options.hook), secrets)


class Meant(NamedTuple):
    """What the names that were given on the command line refer to."""

    place: Place
    node: str
    queue: str
    policy: Policy


async def _meant(place: Place, queue: str, policy: Policy) -> Meant:
    """Return what the names refer to.

    If a name is unknown, wait as long as a node that may know it is not running.

    Raises:
        UsageError: no node has such a queue, and all nodes that may have it are running; or a queue for copies does not
            accept any.
        FormatNameError: a name is not valid.
    """
    since, is_told = trio.current_time(), False
    if policy.error_queue == NONE:
        policy = replace(policy, error_queue="")
    copies = [*filter(None, (policy.error_queue, policy.in_doubt_queue))]
    while True:
        now = await as_it_is(place)
        name, targets = queue, {}
        try:
            node = host_of(now, None, queue)
            local = now.topology.resolve(f"{node}\\{queue}" if is_bare(queue) else queue).local_name
            for name in copies:
                targets[name] = now.topology.resolve(name)
        except TopologyError as unknown:
            away = await those_away(now, name)
            if not away:
                raise
            if not is_told and trio.current_time() - since >= PATIENCE_S:
                start = places.start_command(now.topology, away[0], now.directory)
                complain(f"{unknown}; {away[0]} does not run, and may have it: waits until it does ({start})")
                is_told = True
            await trio.sleep(ASK_S)
            continue
        for name, target in targets.items():
            if target.queue is None or not target.queue.transactional:
                raise UsageError(f"{name} takes no copies: name a transactional queue")
            if (target.node.name, target.local_name) == (node, local):
                raise UsageError(f"{name} is the queue of the trigger itself: name another one for copies")
        return Meant(now, node, local, _named_at(now, node, policy))


def _named_at(place: Place, node: str, policy: Policy) -> Policy:
    """Return the policy with the names that the node itself uses for its queues."""
    return replace(
        policy,
        error_queue=policy.error_queue and place.name_at(node, policy.error_queue),
        in_doubt_queue=policy.in_doubt_queue and place.name_at(node, policy.in_doubt_queue),
    )
