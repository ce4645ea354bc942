"""The options of a gateway, and those of a trigger.

A trigger's options determine when, how often and in which order it attempts messages again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program.declared import ARGUMENT, hold_bounds, value
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.edges.metrics import METRICS_PORT
from mqproto.simulator.topology.errors import nearest
from mqproto.simulator.topology.file import read_address
from mqproto.simulator.topology.places import Place

EXPONENT_LIMIT: Final = 100
LEASE_LIMIT: Final = 64
"""The maximum number of transactions that a node keeps open for one connection."""
PORT: Final = 8_080
BREAKER_LIMIT: Final = 1_000_000
CORRELATION: Final = "correlation"
NONE: Final = "none"
"""The word that stands for no queue or no history."""

TracesOption = Annotated[
    str,
    "Send OpenTelemetry spans of messages with a traceparent, over OTLP/HTTP, to this collector, such as "
    "http://127.0.0.1:4318. The environment variable OTEL_EXPORTER_OTLP_ENDPOINT does the same.",
    value("URL"),
]
ForwardOption = Annotated[
    list[str] | None,
    "A header to pass from producer to consumer; set it on both the gateway and the trigger. Repeatable.",
    "--forward-header",
    value("NAME"),
]
MetricsOption = Annotated[
    str,
    f"Serve /metrics for Prometheus, /live and /ready at this address; the port is {METRICS_PORT} by default.",
    value("HOST[:PORT]"),
]
HistoryOption = Annotated[
    str,
    "URL of the document history, which several programs may share: sqlite:///PATH or "
    "postgresql+psycopg://...; by default, history.sqlite beside the stores.",
    value("URL"),
]
LogOption = Annotated[
    list[Path] | None,
    "A log to read in addition to those in the folder of the stores; repeatable.",
    value(exists=True, dir_okay=False),
]
SupervisedOption = Annotated[bool, value(hidden=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The delays between attempts, which increase.

    interval_s: the delay after the first failed attempt.
    factor: the factor by which a delay is multiplied to get the next one.
    limit_s: the maximum delay.
    attempts: the maximum number of times that a message is delivered.
    jitter: the share, from 0 to 1, by which a delay may be shorter, so that messages do not all return at once. The
        reduction depends only on the message and the attempt, so the same message always has the same delays.

    Raises:
        UsageError: a value is not within its limits.
    """

    interval_s: Annotated[float, "Seconds until the second attempt.", value(min=0, max=86_400)] = 1
    factor: Annotated[float, "Multiply the delay by this after each attempt.", value(min=1, max=100)] = 2
    limit_s: Annotated[float, "The longest delay, in seconds.", "--max-delay", value(min=0, max=86_400)] = 60
    attempts: Annotated[int, "Give up after this many deliveries.", value(min=1, max=1_000_000)] = 20
    jitter: float = 0.0

    def __post_init__(self) -> None:
        hold_bounds(self)
        if not 0 <= self.jitter <= 1:
            raise UsageError(f"jitter {self.jitter:g}: must be 0 to 1")

    def delay_s(self, attempt: int, message: str) -> float:
        """Return the number of seconds to wait after a failed attempt. The number of the first attempt is 1."""
        delay_s = min(self.interval_s * self.factor ** min(attempt - 1, EXPONENT_LIMIT), self.limit_s)
        if not self.jitter:
            return delay_s
        return delay_s * (1 - self.jitter * chance(0, "retry", message, str(attempt)).random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a trigger treats the messages of its queue.

    error_queue: the transactional queue for failed messages, under any name that the topology resolves; NONE if there
        is no such queue. If it is empty in the options, run.py chooses a queue; in the resulting policy, empty means
        that there is none.
    in_doubt_queue: the transactional queue for messages in doubt; empty for the error queue.
    timeout_s: the number of seconds within which a consumer or resolver must answer.
    stop_s: the number of seconds for which a trigger that is stopping waits for pending answers.
    group_by: CORRELATION to keep messages with the same correlation id in order; all messages that have none form one
        group. Empty to keep all messages of the queue in order.
    parallel: how many groups are processed at the same time.
    breaker: how many successive failures with the same cause make the trigger hold the queue (breaker.py); 0 if it
        never holds the queue.
    """

    error_queue: Annotated[
        str,
        "A transactional queue for messages that cannot be processed; by default QUEUE-errors, made if needed. "
        "With the word none, they are rejected, and senders get the dead letters that they asked for.",
    ] = ""
    in_doubt_queue: Annotated[
        str, "A queue for messages that may already have been processed; by default the error queue."
    ] = ""
    timeout_s: Annotated[float, "Seconds to wait for an answer.", value(min=0.01, max=86_400)] = 30
    stop_s: float = 5.0
    retries: Retries = field(default_factory=Retries)
    group_by: Annotated[
        str,
        "correlation: keep messages with the same correlation id in order, and process others in parallel.",
    ] = ""
    parallel: int = 1
    breaker: Annotated[
        int,
        "After this many successive failures with the same cause, hold the queue and probe the service; 0 for never.",
        value(min=0, max=BREAKER_LIMIT),
    ] = 5

    def __post_init__(self) -> None:
        hold_bounds(self)
        if self.group_by not in ("", CORRELATION):
            raise UsageError(
                f"messages cannot be grouped by {self.group_by!r}: by {CORRELATION}, or not at all"
            )
        if not self.group_by and self.parallel > 1:
            raise UsageError(f"{self.parallel} at once would change the order: say how they are grouped")


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """The options that were requested.

    url, call: the consumer; exactly one of the two is set.
    error_field: see callee.py.
    ca, certificate, key: see access.py.
    headers_file, signing_secrets: used for the consumer's URL, and for a resolver's URL on the same server.

    Raises:
        UsageError: two options exclude each other.
    """

    url: Annotated[str, "Post each message to this URL.", value("URL")] = ""
    call: Annotated[str, "Call this function with each message.", value("MODULE:FUNCTION")] = ""
    policy: Policy = field(default_factory=Policy)
    parallel: Annotated[
        int | None, "Groups to process at once; 8 by default with --group-by.", value(min=1, max=LEASE_LIMIT)
    ] = None
    error_field: Annotated[
        str, "The field of a JSON answer that has the service's code, whatever the HTTP status."
    ] = ""
    forward_header: ForwardOption = None
    headers_file: Annotated[
        Path | None, 'A TOML file of headers for the URL, such as the line Authorization = "Bearer ...".'
    ] = None
    signing_secrets: Annotated[
        Path | None, "A file of secrets (whsec_...) for signing requests as Standard Webhooks specifies."
    ] = None
    ca: Annotated[Path | None, "A PEM file of certificate authorities; no others are trusted."] = None
    certificate: Annotated[Path | None, "A PEM file of the certificate to present to the URL."] = None
    key: Annotated[Path | None, "The PEM file of the certificate's key."] = None
    as_json: Annotated[
        bool,
        "Post the message as `mqproto receive --json` shows it, with its decoded body, instead of the "
        "body alone.",
        "--json",
    ] = False
    history: Annotated[
        str,
        "URL of the document history, as for a gateway, or none to use only the delivery count and the resolver.",
        value("URL|none"),
    ] = ""
    at_least_once: Annotated[bool, "Do not look for duplicates: attempt every delivery."] = False
    hook: Annotated[
        str,
        "Post the outcome of each message (processed, failed or in doubt) to this URL as JSON; retry until it answers.",
        value("URL"),
    ] = ""
    hook_secrets: Annotated[Path | None, "Like --signing-secrets, for requests to --hook."] = None
    lease_s: Annotated[
        float,
        "Take over from a trigger on the same queue and history after this many seconds without a sign of life.",
        value(min=0.1, max=3_600),
    ] = 10
    resolver: Annotated[
        str,
        "A URL or MODULE:FUNCTION that answers NEW, DUPLICATE or IN_DOUBT for a message that may have "
        "been processed.",
    ] = ""
    name: Annotated[str, "The trigger's name in its log and the history, unique among those of a node."] = (
        "trigger"
    )
    metrics: MetricsOption = ""
    traces: TracesOption = ""
    allow_remote: Annotated[bool, "Let --metrics listen beyond loopback."] = False
    supervised: SupervisedOption = False

    def __post_init__(self) -> None:
        hold_bounds(self)
        if bool(self.url) == bool(self.call):
            raise UsageError("say who is to be called: --url URL or --call MODULE:FUNCTION")
        for_urls = {
            "--forward-header": self.forward_header,
            "--headers-file": self.headers_file,
            "--signing-secrets": self.signing_secrets,
            "--ca": self.ca,
            "--certificate": self.certificate or self.key,
        }
        for option, given in for_urls.items():
            if given and not (self.url or "://" in self.resolver or (self.hook and option == "--ca")):
                raise UsageError(f"{option} is for URLs: leave it out where a function is called")
        if self.as_json and not self.url:
            raise UsageError("--json is what a URL gets: a function has `call.content` and `call.as_json()`")
        if self.at_least_once and (self.history or self.resolver):
            raise UsageError("--at-least-once looks for no duplicates: leave --history and --resolver out")
        if self.hook and (self.history == NONE or self.at_least_once):
            raise UsageError(
                "--hook needs the document history: leave --history none and --at-least-once out"
            )
        if self.hook_secrets and not self.hook:
            raise UsageError("--hook-secrets sign what a URL is told: name it with --hook")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The options of a gateway, as given.

    history: the URL of a database in which several gateways share ids; empty for none.
    keep_days: the number of days for which the node keeps ids; None for 30.
    tls_certificate, tls_key, tls_clients: see admission.py.
    traces: the URL of the collector for the gateway's spans; empty for the URL in the environment.
    """

    place: Place
    node: Annotated[str, ARGUMENT, "The node to hand messages to."]
    listen: Annotated[
        str, "The address to listen on for producers; port 0 means any free port.", value("HOST:PORT")
    ] = "127.0.0.1:8080"
    history: Annotated[
        str,
        "URL of a document history in which gateways of several nodes share their ids; by default, each node keeps "
        "its own.",
        value("URL"),
    ] = ""
    key_header: Annotated[str, "The header that holds the producer's id of a message.", value("NAME")] = (
        "Idempotency-Key"
    )
    key_fields: Annotated[
        list[str] | None,
        "A field of a JSON body that holds the id instead; repeatable: several fields together form the id.",
        "--key-field",
        value("NAME"),
    ] = None
    key_length: Annotated[int, "The longest id to accept.", value("CHARACTERS", min=1, max=255)] = 200
    keep_days: Annotated[
        float | None,
        "How many days, while the node runs, it keeps ids; 30 by default.",
        "--keep-ids",
        value("DAYS", min=0.001, max=36_500),
    ] = None
    require_key: Annotated[bool, "Refuse messages without an id, because they could arrive twice."] = False
    tokens: Annotated[Path | None, "Require a bearer token from this file; see mqproto tokens."] = None
    forward_headers: ForwardOption = None
    webhook_origins: Annotated[
        list[str] | None,
        "An origin whose OPTIONS requests are allowed, as for CloudEvents webhooks. Repeatable.",
        "--webhook-origin",
        value("HOST"),
    ] = None
    callback: Annotated[
        str,
        "Report to this URL what became of each message with an id, unless its producer names another.",
        value("URL"),
    ] = ""
    callback_hosts: Annotated[
        list[str] | None,
        "Let producers name a URL at this host in the header MQ-Callback, to receive a report on how a "
        "message ended. Repeatable.",
        "--callback-host",
        value("HOST[:PORT]"),
    ] = None
    callback_secrets: Annotated[
        Path | None, "A file of secrets (whsec_...) for signing callbacks as Standard Webhooks specifies."
    ] = None
    metrics: MetricsOption = ""
    traces: TracesOption = ""
    rate: Annotated[float, "Maximum messages per second for each queue; 0 for no limit.", value(min=0)] = 0
    connections: Annotated[
        int, "How many requests to handle at once; others are told to retry later.", value(min=1, max=50_000)
    ] = 1_000
    tls_certificate: Annotated[Path | None, "Serve only HTTPS, with the certificate in this PEM file."] = None
    tls_key: Annotated[Path | None, "The PEM file of the certificate's key."] = None
    tls_clients: Annotated[
        Path | None,
        "A PEM file of CA certificates; producers must present a certificate from one of these CAs.",
        value("CA"),
    ] = None
    allow_remote: Annotated[bool, "Listen beyond loopback."] = False

    @classmethod
    def of(cls, place: Place, node: str, table: Mapping[str, Any]) -> GatewayOptions:
        """Return the options in a topology's table.

        Raises:
            UsageError: one of them is not valid.
        """
        hints = get_type_hints(cls)
        given: dict[str, Any] = {}
        for name, said in table.items():
            if name not in hints or name in ("place", "node"):
                known = sorted(hints.keys() - {"place", "node"})
                raise UsageError(f"node.{node}.gateway: unknown key {name!r}; {nearest(name, known)}")
            try:
                given[name] = msgspec.convert(
                    said, hints[name], dec_hook=lambda kind, text: kind(text), strict=False
                )
            except msgspec.ValidationError as error:
                raise UsageError(f"node.{node}.gateway.{name}: {error}") from None
        return cls(place=place, node=node, **given)

    @property
    def address(self) -> tuple[str, int]:
        """The address to listen on."""
        host, port = read_address(self.listen.removesuffix(":0"), "--listen", PORT)
        return host, 0 if self.listen.endswith(":0") else port
