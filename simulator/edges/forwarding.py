"""Travelling headers: those that are passed from a producer's request to its consumer's.

    Content-Encoding            as the body is carried as it is
    traceparent, tracestate     of one that is valid; else both are left out  [Trace Context] 3.2, 3.3
    ce-*                        the attributes of a CloudEvent in binary mode  [CloudEvents HTTP] 3.1
    whatever is declared        at the gateway, to be taken, and at the trigger, to be given

They are in the message's envelope (`client/envelope.py`), which anybody can write who sends to the queue: so a trigger
gives none that it was not told about, and no trace that is not valid. None of them is part of what an id belongs to, as
each retry has a trace of its own.
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
"""They belong to one connection, are secret, or are ours to say."""
RESERVED_PREFIXES: Final = ("mq-", "webhook-")


class Forwarding:
    """Which headers travel.

    Args:
        declared: names, beside those that always do.

    Raises:
        UsageError: one of them cannot.
    """

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self.names = tuple(dict.fromkeys([*ALWAYS, *(_declared(name) for name in declared)]))
        """In small letters; those of CloudEvents come beside them."""

    def taken(self, names: Collection[str], values: Callable[[str], list[str]]) -> dict[str, str]:
        """Return the travelling headers of a request.

        Args:
            names: of its headers, in small letters.
            values: all that one of them has.

        Raises:
            UsageError: an attribute of a CloudEvent is there twice.
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
        """Those of a message's that its consumer gets. Not every message came by a gateway that looked at its trace."""
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
