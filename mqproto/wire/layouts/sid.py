"""Security identifiers (SIDs), which identify users.  [MS-DTYP] 2.4.2

A message may name its sender by a SID ([MS-MQMQ] 2.2.20.6). Only a signature would prove who sent it; this module does
not make or verify signatures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from construct import Int8ul, Int16ub, Int32ub, Int32ul, Rebuild, len_, this

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.base.foreign import quoted
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Repeated
from mqproto.wire.schema.record import Record

REVISION: Final = 1
SUB_AUTHORITY_LIMIT: Final = 15
SIZE_LIMIT: Final = 8 + 4 * SUB_AUTHORITY_LIMIT
"""The size, in bytes, of the longest SID."""
_TEXT: Final = re.compile(
    r"S-1-(0|[1-9][0-9]{0,9}|0x[0-9A-F]{12})((?:-(?:0|[1-9][0-9]{0,9}))+)", re.IGNORECASE
)


@dataclass(slots=True)
class Sid:
    """A security identifier as numbers.  [MS-DTYP] 2.4.2.2

    authority_high, authority_low: the two parts of IdentifierAuthority, which has six bytes, the most significant
        first.
    """

    revision: int = REVISION
    authority_high: int = 0
    authority_low: int = 0
    sub_authorities: list[int] = field(default_factory=list)


sid = Record(
    Sid,
    Layout(
        "[MS-DTYP] 2.4.2.2",
        "revision" / Int8ul,
        Must("revision", this.revision == REVISION, "1"),
        "sub_authority_count" / Rebuild(Int8ul, len_(this.sub_authorities)),
        Must("sub_authority_count", this.sub_authority_count <= SUB_AUTHORITY_LIMIT, "at most 15"),
        "authority_high" / Int16ub,
        "authority_low" / Int32ub,
        "sub_authorities" / Repeated(this.sub_authority_count, Int32ul),
    ),
)


@lru_cache(maxsize=1_000)
def sid_from_text(text: str) -> bytes:
    """Return the bytes of `S-1-5-21-3180219053-1037752630-3663111779-1000`, as in a packet.

    [MS-DTYP] 2.4.2.1

    Raises:
        UsageError: the text is not a SID.
    """
    found = _TEXT.fullmatch(text)
    if found is not None:
        authority = int(found[1], 0)
        numbers = [int(number) for number in found[2].split("-")[1:]]
        if len(numbers) <= SUB_AUTHORITY_LIMIT and max(numbers) <= 0xFFFFFFFF:
            return sid.encode(Sid(REVISION, authority >> 32, authority & 0xFFFFFFFF, numbers))
    raise UsageError(
        f"{quoted(text)} is not a SID: write S-1-, an authority and 1 to {SUB_AUTHORITY_LIMIT} numbers below {2**32}, "
        "as in S-1-5-21-1-2-3-1000"
    )


def sid_text(data: bytes) -> str:
    """Return a SID in the form that people write; empty if the bytes do not form a SID."""
    # A stranger may send 64 KiB, and the cache has to stay small.
    return _text_of(data) if len(data) <= SIZE_LIMIT else ""


@lru_cache(maxsize=1_000)
def _text_of(data: bytes) -> str:
    try:
        found = sid.decode(data)
    except WireFormatError:
        return ""
    if not found.sub_authorities:
        return ""  # A SID without these has no text.
    authority = found.authority_high << 32 | found.authority_low
    shown = f"0x{authority:012X}" if found.authority_high else str(authority)
    return "-".join(["S-1", shown, *map(str, found.sub_authorities)])
