"""Finds out whether anybody has asked for traces, and where to send them.

Traces are requested by `--traces URL`, by `traces` in a topology, or by OpenTelemetry's variables for an endpoint or an
exporter. OpenTelemetry's other variables apply as well: for the sampler, the service's name, attributes, headers,
certificates and batch sizes. https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER: Final = "OTEL_TRACES_EXPORTER"
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DISABLED: Final = "OTEL_SDK_DISABLED"
OTLP: Final = "otlp"
SPOKEN: Final = "http/protobuf"
PATH: Final = "/v1/traces"
DEFAULT_ENDPOINT: Final = "http://localhost:4318"


class SpanDestination(NamedTuple):
    """Where spans are sent.

    endpoint: a whole URL; empty for the one in the environment variables.
    shown: the URL without passwords, for the log.
    """

    endpoint: str
    shown: str


def wish_in(typed: str, environment: Mapping[str, str]) -> SpanDestination | None:
    """Return the destination that was requested; None if no traces were requested.

    Args:
        typed: the URL of a collector, to which the path is added; empty for none.

    Raises:
        UsageError: we cannot send traces in that way.
    """
    if environment.get(DISABLED, "").strip().lower() == "true":
        return None
    exporter = environment.get(EXPORTER, "").strip().lower()
    named = next(filter(None, map(environment.get, ENDPOINTS)), "")
    if not typed:
        if exporter == "none" or not (exporter or named):
            return None
        if exporter not in ("", OTLP):
            raise UsageError(f"{EXPORTER} is {quoted(exporter)}: there is {OTLP}, and none")
        protocol = next(filter(None, map(environment.get, PROTOCOLS)), SPOKEN)
        if protocol != SPOKEN:
            raise UsageError(f"{PROTOCOLS[1]} is {quoted(protocol)}: {SPOKEN} is spoken here, at port 4318")
    return SpanDestination(
        f"{checked_collector(typed)}{PATH}" if typed else "", shown(typed or named or DEFAULT_ENDPOINT)
    )


def checked_collector(url: str, where: str = "--traces") -> str:
    """Return the URL of a collector, to which the path for traces has yet to be added.

    Raises:
        UsageError: the text is not such a URL.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or parts.query or parts.fragment or not (url.isascii() and url.isprintable()):
        raise UsageError(
            f"{where} is {quoted(url)}: write the URL of a collector, such as http://127.0.0.1:4318"
        )
    return url.rstrip("/").removesuffix(PATH)


def shown(url: str) -> str:
    """Return a URL without its user, password and query."""
    before, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{before}://{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
