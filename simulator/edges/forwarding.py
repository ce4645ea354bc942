"""Forwarded headers: the headers that are passed from a producer's request to the consumer's request.

    Content-Encoding            because the body is not changed
    traceparent, tracestate     if the trace is valid; otherwise both are left out  [Trace Context] 3.2, 3.3
    ce-*                        the attributes of a CloudEvent in binary mode  [CloudEvents HTTP] 3.1
    declared headers            those that the gateway is told to accept, and the trigger to pass on

These headers are in the message's envelope (`client/envelope.py`), which anybody who may send to the queue can write.
So a trigger passes on only declared headers and valid traces. Headers are ignored when a retry is compared with its
first request, because each retry has its own trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.simulator.base.traces.context import TRACE, TRACE_STATE, trace_of, with_trace
from mqproto.simulator.client.envelope import HEADER_NAME

ENCODING: Final = "content-encoding"
CLOUD_EVENTS: Final = "ce-"
ALWAYS: Final = (ENCODING, TRACE, TRACE_STATE)
RESERVED: Final = frozenset(
    {
        *(
            "accept",
            "accept-encoding",
            "authorization",
            "connection",
            "content-length",
            "content-type",
            "cookie",
        ),
        *("date", "expect", "host", "idempotency-key", "keep-alive", "origin", "proxy-authenticate"),
        *(
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "user-agent",
        ),
    }
)
"""The headers that are never forwarded: those of a connection, those that are secret, and our own."""
RESERVED_PREFIXES: Final = ("mq-", "webhook-")


class Forwarding:
    """The set of headers that are forwarded.

    Args:
        declared: the names of further headers, in addition to those that are always forwarded.

    Raises:
        UsageError: a declared header cannot be forwarded.
    """

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self.names = tuple(dict.fromkeys([*ALWAYS, *(_declared(name) for name in declared)]))
        """The names of the forwarded headers, in lower case, except the headers of CloudEvents."""

    def taken(self, names: Collection[str], values: Callable[[str], list[str]]) -> dict[str, str]:
        """Return those headers of a request that are forwarded.

        Args:
            names: the names of the request's headers, in lower case.
            values: a function that returns all values of a header.

        Raises:
            UsageError: an attribute of a CloudEvent occurs twice.
        """
        found: dict[str, str] = {}
        for name in dict.fromkeys(filter(self._travels, names)):
            said = [value for value in values(name) if value]
            if name.startswith(CLOUD_EVENTS) and len(said) > 1:
                raise UsageError(f"{name} is there {len(said)} times: send it once")
            if said:
                found[name] = ", ".join(said)  # [RFC 9110] 5.3
        return with_trace(found, trace_of(found)) if found else found  # No reason to refuse a message.

    def given(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the message headers that the consumer gets.

        The trace is included only if it is valid, because not every sender checks it.
        """
        found = {name: value for name, value in headers.items() if self._travels(name)}
        return with_trace(found, trace_of(found)) if found else found

    def _travels(self, name: str) -> bool:
        return name in self.names or name.startswith(CLOUD_EVENTS)


def _declared(name: str) -> str:
    small = name.casefold()
    if not HEADER_NAME.fullmatch(small):
        raise UsageError(f"--forward-header {quoted(name)}: this is not a header's name")
    if small in RESERVED or small.startswith(RESERVED_PREFIXES):
        raise UsageError(f"--forward-header {name}: it is of one request alone, and cannot travel")
    return small
