"""The commands at the edges, where messages come in and go out by HTTP; `cli/cli.py` has them all."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program.environment import DEFAULT_TOPOLOGY
from mqproto.simulator.base.traces.asked import checked_collector
from mqproto.simulator.command.options import (
    DONE,
    ConfigOption,
    DirectoryOption,
    HistoryOption,
    SupervisedOption,
    TopologyOption,
    TracesOption,
    end_with_input,
    place_of,
    run_task,
)

METRICS_PORT: Final = 9190
"""Where /metrics is answered if no port is named; nodes begin at 9180."""
ForwardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--forward-header",
        metavar="NAME",
        help="A header that travels from producer to consumer; declare it at gateway and trigger. Any number of times.",
        show_default=False,
    ),
]

MetricsOption = Annotated[
    str,
    typer.Option(
        metavar="HOST[:PORT]",
        help=f"Answer /metrics for Prometheus, /live and /ready over HTTP there; at port {METRICS_PORT} by default.",
        show_default=False,
    ),
]


def gateway(
    node: Annotated[str, typer.Argument(help="Which node messages are handed to.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where producers find it.")
    ] = "127.0.0.1:8080",
    free_port: Annotated[
        bool, typer.Option("--free-port", help="Take whatever port is free on that host.")
    ] = False,
    name: Annotated[str, typer.Option(help="Another for each gateway of the node.")] = "gateway",
    history: HistoryOption = "",
    key_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header with the producer's id of a message.")
    ] = "Idempotency-Key",
    key_field: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The field of a JSON body that has it instead.", show_default=False
        ),
    ] = "",
    key_length: Annotated[
        int, typer.Option(min=1, max=255, metavar="CHARACTERS", help="The longest id that is taken.")
    ] = 200,
    keep_ids: Annotated[
        float | None,
        typer.Option(
            "--keep-ids",
            min=0.001,
            metavar="DAYS",
            help="How long ids are remembered, by the history and all who use it; by default as it was, 30 at first.",
            show_default=False,
        ),
    ] = None,
    require_key: Annotated[
        bool, typer.Option("--require-key", help="Refuse a message without an id; it could come twice.")
    ] = False,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="Ask each request for a bearer token: a file that mqproto tokens writes, with their hashes and what "
            "each opens."
        ),
    ] = None,
    forward_header: ForwardOption = None,
    callback: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Tell this URL how each message with an id ends, if its producer names nobody.",
            show_default=False,
        ),
    ] = "",
    callback_host: Annotated[
        list[str] | None,
        typer.Option(
            "--callback-host",
            metavar="HOST[:PORT]",
            help="Producers may name URLs there that are told, in the header MQ-Callback. Any number of times.",
            show_default=False,
        ),
    ] = None,
    callback_secrets: Annotated[
        Path | None,
        typer.Option(
            "--callback-secrets",
            help="A file of secrets, whsec_... each: what is told is signed by the rules of Standard Webhooks.",
            show_default=False,
        ),
    ] = None,
    metrics: MetricsOption = "",
    traces: TracesOption = "",
    rate: Annotated[
        float, typer.Option(min=0, help="Messages a second that each queue takes; 0 for no limit.")
    ] = 0,
    connections: Annotated[
        int, typer.Option(min=1, max=50_000, help="At once; one more is told to come back later.")
    ] = 1_000,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-certificate", help="A PEM file: HTTPS is served, and nothing else.", show_default=False
        ),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key.", show_default=False)] = None,
    tls_clients: Annotated[
        Path | None,
        typer.Option(
            "--tls-clients",
            metavar="CA",
            help="A PEM file of authorities: producers must show a certificate of one of them.",
            show_default=False,
        ),
    ] = None,
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help="Listen beyond loopback.")] = False,
    _config: ConfigOption = "",
    supervised: SupervisedOption = False,
) -> int:
    """Take messages by HTTP: POST /queues/NAME/messages is answered 200 once the message is on disk at the node.

    \b
    $ curl -H 'Idempotency-Key: order-17' -H 'Content-Type: application/json' \\
        --data '{"pieces": 3}' http://127.0.0.1:8080/queues/orders/messages
    {"id":"963EBEB9-8A2F-504A-9728-78C61096BF80\\\\3","duplicate":false}

    The same once more gives the same id, and is dropped. /openapi.json has all that may be said and answered.
    """
    from mqproto.simulator.topology.file import read_address

    if supervised:
        end_with_input()
    place = place_of(topology, directory)
    from mqproto.simulator.edges.gateway.run import Options, serve

    host, port = read_address(listen, "--listen", 8080)
    options = Options(
        place=place,
        node=node,
        host=host,
        port=0 if free_port else port,
        name=name,
        history=history,
        key_header=key_header,
        key_field=key_field,
        key_length=key_length,
        keep_days=keep_ids or 0.0,
        require_key=require_key,
        tokens=tokens,
        rate=rate,
        forward_headers=tuple(forward_header or ()),
        callback=callback,
        callback_hosts=tuple(callback_host or ()),
        callback_secrets=callback_secrets,
        metrics=read_address(metrics, "--metrics", METRICS_PORT) if metrics else None,
        traces=checked_collector(traces) if traces else "",
        connections=connections,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_clients=tls_clients,
        allow_remote=allow_remote,
    )
    run_task(partial(serve, options))
    return DONE


def trigger(
    queue: Annotated[str, typer.Argument(help=r"Such as 'destination\orders'.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    url: Annotated[
        str, typer.Option(help="Post each message to this URL.", metavar="URL", show_default=False)
    ] = "",
    call: Annotated[
        str,
        typer.Option(
            help="Call this function with each message.", metavar="MODULE:FUNCTION", show_default=False
        ),
    ] = "",
    error_queue: Annotated[
        str,
        typer.Option(
            "--error-queue",
            help="A transactional queue for copies of what cannot be processed; by default QUEUE-errors, to be made.",
            show_default=False,
        ),
    ] = "",
    no_error_queue: Annotated[
        bool,
        typer.Option(
            "--no-error-queue",
            help="Refuse what cannot be processed: its sender has a dead letter, if he asked for one.",
        ),
    ] = False,
    in_doubt_queue: Annotated[
        str,
        typer.Option(
            "--in-doubt-queue",
            help="The same for what may have been processed; by default the error queue.",
            show_default=False,
        ),
    ] = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.01, max=86_400, help="Seconds for an answer.")
    ] = 30,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0, max=86_400, help="Seconds until the second attempt.")
    ] = 1,
    factor: Annotated[
        float, typer.Option(min=1, max=100, help="How many times the delay before it each delay is.")
    ] = 2,
    limit_s: Annotated[
        float, typer.Option("--max-delay", min=0, max=86_400, help="Seconds that no delay exceeds.")
    ] = 60,
    attempts: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How often a message may be delivered.")
    ] = 20,
    breaker: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Failures in a row, with one cause, after which the queue is held and probed; 0 for none.",
        ),
    ] = 5,
    group_by: Annotated[
        str,
        typer.Option(
            "--group-by",
            help="correlation: messages with one correlation id are in order, others side by side.",
            show_default=False,
        ),
    ] = "",
    parallel: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="How many groups at once; 8 with --group-by.", show_default=False),
    ] = None,
    error_field: Annotated[
        str,
        typer.Option(
            "--error-field",
            help="A field of the answer's JSON: what is in it is a service code, whatever the status.",
            show_default=False,
        ),
    ] = "",
    forward_header: ForwardOption = None,
    headers_file: Annotated[
        Path | None,
        typer.Option(
            "--headers-file",
            help='A TOML file of headers for the URL, a line each: Authorization = "Bearer ...".',
            show_default=False,
        ),
    ] = None,
    signing_secrets: Annotated[
        Path | None,
        typer.Option(
            "--signing-secrets",
            help="A file of secrets, whsec_... each: requests are signed by the rules of Standard Webhooks.",
            show_default=False,
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(help="A PEM file of authorities to trust, in place of all others.", show_default=False),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="A PEM file of the certificate to show to the URL.", show_default=False),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its key.", show_default=False)] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Post what `mqproto receive --json` says of the message, and what its body says, instead of the body.",
        ),
    ] = False,
    history: HistoryOption = "",
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Go by the delivery count and the resolver alone.")
    ] = False,
    at_least_once: Annotated[
        bool, typer.Option("--at-least-once", help="Look for no duplicates: every delivery is attempted.")
    ] = False,
    hook: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Tell this URL how each message ends: processed, failed or in doubt; JSON, until it is heard.",
            show_default=False,
        ),
    ] = "",
    hook_secrets: Annotated[
        Path | None,
        typer.Option(
            "--hook-secrets",
            help="The same as --signing-secrets for what --hook is told.",
            show_default=False,
        ),
    ] = None,
    lease_s: Annotated[
        float,
        typer.Option(
            "--lease",
            min=0.1,
            max=3_600,
            help="Seconds after which a trigger on the same queue and history that says nothing is taken over from.",
        ),
    ] = 10,
    resolver: Annotated[
        str,
        typer.Option(
            help="A URL or MODULE:FUNCTION that says NEW, DUPLICATE or IN_DOUBT of what may have been processed.",
            show_default=False,
        ),
    ] = "",
    name: Annotated[
        str, typer.Option(help="Another for each trigger of the node: of its log, and in the history.")
    ] = "trigger",
    metrics: MetricsOption = "",
    traces: TracesOption = "",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Answer --metrics beyond loopback as well.")
    ] = False,
    directory: DirectoryOption = None,
    _config: ConfigOption = "",
    supervised: SupervisedOption = False,
) -> int:
    """Have a service called for each message of a queue: once, in order, again if it fails. Until Ctrl-C or SIGTERM.

    200 to 299 is success. 400 to 499 with a JSON field `code`, or as application/problem+json, is a business error: to
    the error queue with the message. Everything else rolls back, a plain 400 as well, and the message is
    attempted again. What came of each attempt is in NODE-trigger.log, beside the stores; the first failure is said
    here too, and the next one after a message was processed.

    \b
    $ mqproto trigger orders --url http://127.0.0.1:8080/orders
    """
    if supervised:
        end_with_input()

    if no_error_queue and (error_queue or in_doubt_queue):
        raise UsageError("--no-error-queue has no copies made: leave --error-queue and --in-doubt-queue out")
    if bool(url) == bool(call):
        raise UsageError("say who is to be called: --url URL or --call MODULE:FUNCTION")
    for_urls = {
        "--forward-header": forward_header,
        "--headers-file": headers_file,
        "--signing-secrets": signing_secrets,
        "--ca": ca,
        "--certificate": certificate or key,
    }
    for option, value in for_urls.items():
        if value and not (url or "://" in resolver or (hook and option == "--ca")):
            raise UsageError(f"{option} is for URLs: leave it out where a function is called")
    if as_json and not url:
        raise UsageError("--json is what a URL gets: a function has `call.content` and `call.as_json()`")
    if no_history and history:
        raise UsageError("--no-history uses none and --history names one: choose one")
    if at_least_once and (history or resolver):
        raise UsageError("--at-least-once looks for no duplicates: leave --history and --resolver out")
    if hook and (no_history or at_least_once):
        raise UsageError("--hook needs the document history: leave --no-history and --at-least-once out")
    if hook_secrets and not hook:
        raise UsageError("--hook-secrets sign what a URL is told: name it with --hook")
    place = place_of(topology, directory)
    from mqproto.simulator.edges.trigger.policy import Policy, Retries
    from mqproto.simulator.edges.trigger.run import Options, serve
    from mqproto.simulator.topology.file import read_address

    options = Options(
        url=url,
        function=call,
        resolver=resolver,
        error_field=error_field,
        headers_file=headers_file,
        signing_secrets=signing_secrets,
        hook=hook,
        hook_secrets=hook_secrets,
        ca=ca,
        certificate=certificate,
        key=key,
        forward_headers=tuple(forward_header or ()),
        as_json=as_json,
        history=None if no_history else history,
        makes_error_queue=not no_error_queue,
        detects=not at_least_once,
        lease_s=lease_s,
        name=name,
        metrics=read_address(metrics, "--metrics", METRICS_PORT) if metrics else None,
        traces=checked_collector(traces) if traces else "",
        allow_remote=allow_remote,
        is_watched=not supervised,
        policy=Policy(
            error_queue=error_queue,
            in_doubt_queue=in_doubt_queue,
            timeout_s=timeout_s,
            retries=Retries(interval_s=interval_s, factor=factor, limit_s=limit_s, attempts=attempts),
            group_by=group_by,
            parallel=parallel or (8 if group_by else 1),
            breaker=breaker,
        ),
    )
    run_task(partial(serve, place, queue, options))
    return DONE
