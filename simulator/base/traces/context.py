"""The trace to which a message belongs: W3C's two headers, if they are valid.  [Trace Context] 3

They travel in a message's extension, in the form that `client/envelope.py` writes. Any sender can write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from mqproto.turn.effects import Trace
from mqproto.wire.glance import variable_part

TRACE: Final = "traceparent"
TRACE_STATE: Final = "tracestate"
TRACE_STATE_LIMIT: Final = 512
"""The maximum length of a trace state, in characters.  [Trace Context] 3.3.1.5"""
_IDS: Final = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
VALID_TRACE: Final = re.compile(rf"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(-[!-~]{{0,200}})?")
"""The form of a trace parent. A later version may append more fields to it.  [Trace Context] 3.2.2, 4"""
_FLAGS_AT: Final = len("00-") + 32 + len("-") + 16 + len("-")
_SAMPLED: Final = 0x01

_NEEDLE: Final = f'"{TRACE}":'.encode()
SEARCHED_BYTES: Final = 32_768
"""How many bytes of a packet are searched, from its beginning.

The extension is near the beginning; a body of up to 4 MiB may follow it.
"""
_EXTENSION_LIMIT_BYTES: Final = 10_240
"""The maximum size of an envelope in the extension, in bytes."""
_VERSION: Final = 1
_KNOWN: Final = 512
"""How many decoded extensions to keep. A message has several steps, each of which asks for its trace."""


def trace_of(headers: Mapping[str, str]) -> Trace | None:
    """Return the trace in the two headers; None if there is no valid one.

    If only the state is invalid, only the state is left out.
    """
    parent = headers.get(TRACE, "")
    if not VALID_TRACE.fullmatch(parent):
        return None
    state = headers.get(TRACE_STATE, "")
    is_valid = len(state) <= TRACE_STATE_LIMIT and state.isascii() and state.isprintable()
    return Trace(parent, state if is_valid else "")


def with_trace(headers: Mapping[str, str], trace: Trace | None) -> dict[str, str]:
    """Return `headers` with the two trace headers of `trace`, or with neither if `trace` is None."""
    others = {name: value for name, value in headers.items() if name not in (TRACE, TRACE_STATE)}
    if trace is None:
        return others
    return {**others, TRACE: trace.parent, **({TRACE_STATE: trace.state} if trace.state else {})}


def is_sampled(trace: Trace) -> bool:
    """Whether earlier steps may have recorded the trace.  [Trace Context] 3.2.2.5.1"""
    return bool(int(trace.parent[_FLAGS_AT : _FLAGS_AT + 2], 16) & _SAMPLED)


def sampled_in(packet: bytes) -> Trace | None:
    """Return the trace of a UserMessage if it has one that is sampled; otherwise None.

    The check is quick for most messages, which have no trace.
    """
    if packet.find(_NEEDLE, 0, SEARCHED_BYTES) < 0:
        return None
    _, extension, body, _ = variable_part(packet)
    return _sampled(packet[extension:body]) if body - extension <= _EXTENSION_LIMIT_BYTES else None


class _Envelope(msgspec.Struct):
    """The part of an envelope that is of use to a queue manager."""

    envelope: int | None = None
    headers: dict[str, str] = {}


_envelopes: Final = msgspec.json.Decoder(_Envelope)


@lru_cache(_KNOWN)
def _sampled(extension: bytes) -> Trace | None:
    try:
        found = _envelopes.decode(extension)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    trace = trace_of(found.headers) if found.envelope == _VERSION else None
    return trace if trace is not None and is_sampled(trace) else None
