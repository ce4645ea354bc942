"""Shows, in lines below a message, what keys prove about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.captures.decode.names import printable
from mqproto.captures.decode.row import body_text
from mqproto.captures.decode.security.keyring import Evidence

SHOWN_CHARACTERS: Final = 60
SHOWN_BYTES: Final = 16


def evidence_lines(evidence: Evidence, body_type: int) -> Iterator[str]:
    """Yield a line about the body and a line about the signature, except where a finding reports the same."""
    if evidence.plain is not None:
        said = _beginning(evidence.plain, body_type)
        yield f"body of {len(evidence.plain):,} bytes {evidence.decryption}" + (f": {said}" if said else "")
    elif evidence.decryption is not None:
        yield f"body {evidence.decryption}"
    if evidence.signature is not None and evidence.verified is not False:
        yield f"signature {evidence.signature}"


def _beginning(body: bytes, body_type: int) -> str:
    """Return the first characters of a body if it is text, otherwise its first bytes."""
    text = body_text(body, body_type)
    if text is None:
        return body[:SHOWN_BYTES].hex(" ", 4) + (" ..." if len(body) > SHOWN_BYTES else "")
    return repr(printable(text[:SHOWN_CHARACTERS])) + (" ..." if len(text) > SHOWN_CHARACTERS else "")
