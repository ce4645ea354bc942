"""To which trace a message belongs: W3C's two headers, valid ones only.  [Trace Context] 3

They travel in a message's extension, as `client/envelope.py` writes it, and anybody can write them who can send.
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
"""Characters.  [Trace Context] 3.3.1.5"""
_IDS: Final = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
VALID_TRACE: Final = re.compile(rf"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(-[!-~]{{0,200}})?")
"""A later version may have more at its end.  [Trace Context] 3.2.2, 4"""
_FLAGS_AT: Final = len("00-") + 32 + len("-") + 16 + len("-")
_SAMPLED: Final = 0x01

_NEEDLE: Final = f'"{TRACE}":'.encode()
SEARCHED_BYTES: Final = 32_768
"""Of a packet, from its beginning: a body of 4 MiB stands behind the extension, and is not searched."""
_EXTENSION_LIMIT_BYTES: Final = 10_240
"""As of an envelope."""
_VERSION: Final = 1
_KNOWN: Final = 512
"""So many extensions are not read again: of one message there are several steps, of which each asks."""


def trace_of(headers: Mapping[str, str]) -> Trace | None:
    """What the two headers say; None if that is nothing to go on with. A state alone that is not valid is left out."""
    parent = headers.get(TRACE, "")
    if not VALID_TRACE.fullmatch(parent):
        return None
    state = headers.get(TRACE_STATE, "")
    is_valid = len(state) <= TRACE_STATE_LIMIT and state.isascii() and state.isprintable()
    return Trace(parent, state if is_valid else "")


def with_trace(headers: Mapping[str, str], trace: Trace | None) -> dict[str, str]:
    """The same headers with these two."""
    others = {name: value for name, value in headers.items() if name not in (TRACE, TRACE_STATE)}
    if trace is None:
        return others
    return {**others, TRACE: trace.parent, **({TRACE_STATE: trace.state} if trace.state else {})}


def is_sampled(trace: Trace) -> bool:
    """Whether those before may have recorded it.  [Trace Context] 3.2.2.5.1"""
    return bool(int(trace.parent[_FLAGS_AT : _FLAGS_AT + 2], 16) & _SAMPLED)


def sampled_in(packet: bytes) -> Trace | None:
    """The trace of a UserMessage that is to be followed; None for none. Most have none, and that is found at once."""
    if packet.find(_NEEDLE, 0, SEARCHED_BYTES) < 0:
        return None
    _, extension, body, _ = variable_part(packet)
    return _sampled(packet[extension:body]) if body - extension <= _EXTENSION_LIMIT_BYTES else None


class _Envelope(msgspec.Struct):
    """As much of an envelope as a queue manager has a use for."""

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
