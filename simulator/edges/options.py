"""What is typed for a gateway, and for a trigger: when it attempts a message again, how often, in which order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from mqproto.base.errors import UsageError
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.command.options import (
    ForwardOption,
    HistoryOption,
    MetricsOption,
    SupervisedOption,
    TracesOption,
)
from mqproto.simulator.topology.file import read_address
from mqproto.simulator.topology.places import Place

EXPONENT_LIMIT: Final = 100
LEASE_LIMIT: Final = 64
"""How many transactions a node keeps open for one connection."""
PORT: Final = 8_080
BREAKER_LIMIT: Final = 1_000_000
CORRELATION: Final = "correlation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Attempts come after growing delays.

    interval_s: after the first attempt that failed.
    factor: how many times the delay before it each delay is.
    limit_s: no delay is longer.
    attempts: how often a message may be delivered.
    jitter: 0 to 1, by what share a delay may be shorter, so that not all messages come back at one time. How much it is
        follows from the message and the attempt: the same message has the same delays again.

    Raises:
        UsageError: a value is beyond its limits.
    """

    interval_s: Annotated[
        float, typer.Option("--interval", min=0, max=86_400, help="Seconds until the second attempt.")
    ] = 1
    factor: Annotated[
        float, typer.Option(min=1, max=100, help="How many times the delay before it each delay is.")
    ] = 2
    limit_s: Annotated[
        float, typer.Option("--max-delay", min=0, max=86_400, help="Seconds that no delay exceeds.")
    ] = 60
    attempts: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How often a message may be delivered.")
    ] = 20
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for what, value, least, most in (
            ("the interval", self.interval_s, 0, 86_400),
            ("the factor", self.factor, 1, 100),
            ("the longest delay", self.limit_s, 0, 86_400),
            ("the attempts", self.attempts, 1, 1_000_000),
            ("the jitter", self.jitter, 0, 1),
        ):
            if not least <= value <= most or math.isnan(value):
                raise UsageError(f"{what} of a retry: {value:g}, must be {least:,} to {most:,}")

    def delay_s(self, attempt: int, message: str) -> float:
        """How long to wait after an attempt that failed, counted from 1."""
        delay_s = min(self.interval_s * self.factor ** min(attempt - 1, EXPONENT_LIMIT), self.limit_s)
        if not self.jitter:
            return delay_s
        return delay_s * (1 - self.jitter * chance(0, "retry", message, str(attempt)).random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a trigger treats the messages of its queue.

    error_queue, in_doubt_queue: transactional queues, by any name; empty for none.
    timeout_s: how long a consumer or resolver may take to answer.
    stop_s: how much longer those may take that are being asked when the trigger is to stop.
    group_by: CORRELATION for the unit of order by correlation id, those without one being a unit as well; empty for
        the whole queue.
    parallel: how many groups at once.
    breaker: after how many failures in a row, with one cause, the queue is held (breaker.py); 0 for never.
    """

    error_queue: Annotated[
        str,
        typer.Option(
            "--error-queue",
            help="A transactional queue for copies of what cannot be processed; by default QUEUE-errors, to be made.",
            show_default=False,
        ),
    ] = ""
    in_doubt_queue: Annotated[
        str,
        typer.Option(
            "--in-doubt-queue",
            help="The same for what may have been processed; by default the error queue.",
            show_default=False,
        ),
    ] = ""
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.01, max=86_400, help="Seconds for an answer.")
    ] = 30
    stop_s: float = 5.0
    retries: Retries = field(default_factory=Retries)
    group_by: Annotated[
        str,
        typer.Option(
            "--group-by",
            help="correlation: messages with one correlation id are in order, others side by side.",
            show_default=False,
        ),
    ] = ""
    parallel: int = 1
    breaker: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Failures in a row, with one cause, after which the queue is held and probed; 0 for none.",
        ),
    ] = 5

    def __post_init__(self) -> None:
        if self.group_by not in ("", CORRELATION):
            raise UsageError(
                f"messages cannot be grouped by {self.group_by!r}: by {CORRELATION}, or not at all"
            )
        if not self.group_by and self.parallel > 1:
            raise UsageError(f"{self.parallel} at once would change the order: say how they are grouped")
        if not 1 <= self.parallel <= LEASE_LIMIT:
            raise UsageError(f"{self.parallel} groups at once: must be 1 to {LEASE_LIMIT}")
        if not 0 <= self.breaker <= BREAKER_LIMIT:
            raise UsageError(f"a breaker after {self.breaker:,} failures: 1 to {BREAKER_LIMIT:,}, 0 for none")
        if not self.timeout_s > 0:
            raise UsageError(f"a time-out of {self.timeout_s:g} s: it takes more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """What was asked for.

    url, call: the consumer: one of the two.
    error_field: see callee.py. ca, certificate, key: see access.py.
    headers_file, signing_secrets: for the consumer's URL; for a resolver's if it is of the same server.

    Raises:
        UsageError: two of them cannot be together.
    """

    url: Annotated[
        str, typer.Option(help="Post each message to this URL.", metavar="URL", show_default=False)
    ] = ""
    call: Annotated[
        str,
        typer.Option(
            help="Call this function with each message.", metavar="MODULE:FUNCTION", show_default=False
        ),
    ] = ""
    policy: Policy = field(default_factory=Policy)
    no_error_queue: Annotated[
        bool,
        typer.Option(
            "--no-error-queue",
            help="Refuse what cannot be processed: its sender has a dead letter, if he asked for one.",
        ),
    ] = False
    parallel: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="How many groups at once; 8 with --group-by.", show_default=False),
    ] = None
    error_field: Annotated[
        str,
        typer.Option(
            "--error-field",
            help="A field of the answer's JSON: what is in it is a service code, whatever the status.",
            show_default=False,
        ),
    ] = ""
    forward_header: ForwardOption = None
    headers_file: Annotated[
        Path | None,
        typer.Option(
            "--headers-file",
            help='A TOML file of headers for the URL, a line each: Authorization = "Bearer ...".',
            show_default=False,
        ),
    ] = None
    signing_secrets: Annotated[
        Path | None,
        typer.Option(
            "--signing-secrets",
            help="A file of secrets, whsec_... each: requests are signed by the rules of Standard Webhooks.",
            show_default=False,
        ),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option(help="A PEM file of authorities to trust, in place of all others.", show_default=False),
    ] = None
    certificate: Annotated[
        Path | None,
        typer.Option(help="A PEM file of the certificate to show to the URL.", show_default=False),
    ] = None
    key: Annotated[Path | None, typer.Option(help="Its key.", show_default=False)] = None
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Post what `mqproto receive --json` says of the message, and what its body says, instead of the body.",
        ),
    ] = False
    history: HistoryOption = ""
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Go by the delivery count and the resolver alone.")
    ] = False
    at_least_once: Annotated[
        bool, typer.Option("--at-least-once", help="Look for no duplicates: every delivery is attempted.")
    ] = False
    hook: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Tell this URL how each message ends: processed, failed or in doubt; JSON, until it is heard.",
            show_default=False,
        ),
    ] = ""
    hook_secrets: Annotated[
        Path | None,
        typer.Option(
            "--hook-secrets",
            help="The same as --signing-secrets for what --hook is told.",
            show_default=False,
        ),
    ] = None
    lease_s: Annotated[
        float,
        typer.Option(
            "--lease",
            min=0.1,
            max=3_600,
            help="Seconds after which a trigger on the same queue and history that says nothing is taken over from.",
        ),
    ] = 10
    resolver: Annotated[
        str,
        typer.Option(
            help="A URL or MODULE:FUNCTION that says NEW, DUPLICATE or IN_DOUBT of what may have been processed.",
            show_default=False,
        ),
    ] = ""
    name: Annotated[
        str, typer.Option(help="Another for each trigger of the node: of its log, and in the history.")
    ] = "trigger"
    metrics: MetricsOption = ""
    traces: TracesOption = ""
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Answer --metrics beyond loopback as well.")
    ] = False
    supervised: SupervisedOption = False

    def __post_init__(self) -> None:
        if self.no_error_queue and (self.policy.error_queue or self.policy.in_doubt_queue):
            raise UsageError(
                "--no-error-queue has no copies made: leave --error-queue and --in-doubt-queue out"
            )
        if bool(self.url) == bool(self.call):
            raise UsageError("say who is to be called: --url URL or --call MODULE:FUNCTION")
        for_urls = {
            "--forward-header": self.forward_header,
            "--headers-file": self.headers_file,
            "--signing-secrets": self.signing_secrets,
            "--ca": self.ca,
            "--certificate": self.certificate or self.key,
        }
        for option, value in for_urls.items():
            if value and not (self.url or "://" in self.resolver or (self.hook and option == "--ca")):
                raise UsageError(f"{option} is for URLs: leave it out where a function is called")
        if self.as_json and not self.url:
            raise UsageError("--json is what a URL gets: a function has `call.content` and `call.as_json()`")
        if self.no_history and self.history:
            raise UsageError("--no-history uses none and --history names one: choose one")
        if self.at_least_once and (self.history or self.resolver):
            raise UsageError("--at-least-once looks for no duplicates: leave --history and --resolver out")
        if self.hook and (self.no_history or self.at_least_once):
            raise UsageError("--hook needs the document history: leave --no-history and --at-least-once out")
        if self.hook_secrets and not self.hook:
            raise UsageError("--hook-secrets sign what a URL is told: name it with --hook")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """What was typed.

    name: tells the gateways of one node apart; each has a journal.
    history: a database's URL; empty for a file beside the stores.
    keep_days: how long ids are remembered, by all who use the history; None for as long as it says itself.
    tls_certificate, tls_key, tls_clients: see admission.py.
    traces: the URL of the collector that has its spans; empty for what the environment says.
    """

    place: Place
    node: Annotated[str, typer.Argument(help="Which node messages are handed to.")]
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where producers find it.")] = (
        "127.0.0.1:8080"
    )
    free_port: Annotated[
        bool, typer.Option("--free-port", help="Take whatever port is free on that host.")
    ] = False
    name: Annotated[str, typer.Option(help="Another for each gateway of the node.")] = "gateway"
    history: HistoryOption = ""
    key_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header with the producer's id of a message.")
    ] = "Idempotency-Key"
    key_fields: Annotated[
        list[str] | None,
        typer.Option(
            "--key-field",
            metavar="NAME",
            help="The field of a JSON body that has it instead; of several, all of them together are the id.",
            show_default=False,
        ),
    ] = None
    key_length: Annotated[
        int, typer.Option(min=1, max=255, metavar="CHARACTERS", help="The longest id that is taken.")
    ] = 200
    keep_days: Annotated[
        float | None,
        typer.Option(
            "--keep-ids",
            min=0.001,
            metavar="DAYS",
            help="How long ids are remembered, by the history and all who use it; by default as it was, 30 at first.",
            show_default=False,
        ),
    ] = None
    require_key: Annotated[
        bool, typer.Option("--require-key", help="Refuse a message without an id; it could come twice.")
    ] = False
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="Ask each request for a bearer token: a file that mqproto tokens writes, with their hashes and what "
            "each opens."
        ),
    ] = None
    forward_headers: ForwardOption = None
    webhook_origins: Annotated[
        list[str] | None,
        typer.Option(
            "--webhook-origin",
            metavar="HOST",
            help="Who may send events here, when it asks by OPTIONS as CloudEvents' webhooks do. Any number of times.",
            show_default=False,
        ),
    ] = None
    callback: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Tell this URL how each message with an id ends, if its producer names nobody.",
            show_default=False,
        ),
    ] = ""
    callback_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--callback-host",
            metavar="HOST[:PORT]",
            help="Producers may name URLs there that are told, in the header MQ-Callback. Any number of times.",
            show_default=False,
        ),
    ] = None
    callback_secrets: Annotated[
        Path | None,
        typer.Option(
            "--callback-secrets",
            help="A file of secrets, whsec_... each: what is told is signed by the rules of Standard Webhooks.",
            show_default=False,
        ),
    ] = None
    metrics: MetricsOption = ""
    traces: TracesOption = ""
    rate: Annotated[
        float, typer.Option(min=0, help="Messages a second that each queue takes; 0 for no limit.")
    ] = 0
    connections: Annotated[
        int, typer.Option(min=1, max=50_000, help="At once; one more is told to come back later.")
    ] = 1_000
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-certificate", help="A PEM file: HTTPS is served, and nothing else.", show_default=False
        ),
    ] = None
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key.", show_default=False)] = None
    tls_clients: Annotated[
        Path | None,
        typer.Option(
            "--tls-clients",
            metavar="CA",
            help="A PEM file of authorities: producers must show a certificate of one of them.",
            show_default=False,
        ),
    ] = None
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help="Listen beyond loopback.")] = False

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen."""
        host, port = read_address(self.listen, "--listen", PORT)
        return host, 0 if self.free_port else port
