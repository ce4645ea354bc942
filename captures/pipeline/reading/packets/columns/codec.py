"""Reads packets and Pings one by one: the codec decodes them, and mqproto.captures.decode describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqproto.captures.decode.analyst import own_findings
from mqproto.captures.decode.digest import digest_of
from mqproto.captures.decode.row import KEYS, row_of
from mqproto.captures.decode.security.keyring import NOTHING, Evidence, KeyRing
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.net.heads import fault_of
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.reading.packets.columns.schema import PACKET_SCHEMA, Table
from mqproto.captures.pipeline.source.octets import Mask, Octets, Vector, alike
from mqproto.captures.pipeline.tables.schemas.columns import CODED
from mqproto.wire import UserMessage
from mqproto.wire.generated import properties_offset
from mqproto.wire.layouts.properties import message_properties_header
from mqproto.wire.schema.parts import wide_size

AT_A_TIME: Final = 1_024
"""The number of packets that are kept as Python objects at a time.

With more, Python would request memory again and again.
"""

_NOWHERE: Final = Endpoint("", 0)
BODY_TEXT: Final = "body_text"
TEXTS: Final = (pa.string(), CODED)
_SAID: Final = [field for field in PACKET_SCHEMA if field.name in KEYS]


def seen_packet(
    data: Octets, start: int, end: int, *, connection: int = 0, framed: bool = True, cut_bytes: int = 0
) -> SeenPacket:
    """Return a packet for mqproto.captures.decode from nothing but its bytes; a Ping has connection -1.

    Args:
        framed: False for bytes that begin no packet.
        cut_bytes: for an incomplete packet, its size beyond these bytes.
    """
    octets = data[start:end].tobytes()
    fault = None if framed else fault_of(octets)
    return SeenPacket(
        octets,
        source=_NOWHERE,
        destination=_NOWHERE,
        time_ns=0,
        connection=connection,
        cut_bytes=cut_bytes,
        fault=fault,
    )


def found(seen: SeenPacket, evidence: Evidence = NOTHING) -> list[dict[str, str]] | None:
    """Return the findings about a packet, including those from keys, for the column `own_findings`."""
    findings = [
        {"severity": str(each.severity), "code": each.code, "text": each.text, "section": each.section}
        for each in (*own_findings(seen), *evidence.findings(seen.number))
    ]
    return findings or None


def add_findings(table: Table, data: Octets, rows: Vector, starts: Vector, ends: Vector, *signs: Any) -> None:
    """Fill in findings about valid packets; of equal packets, only one is decoded.

    Args:
        rows, starts, ends: the rows of these packets, and where the packets begin and end.
        signs: vectors on which findings depend; if all of them are zero, there is nothing to find.
    """
    odd = np.logical_or.reduce([sign != 0 for sign in signs])
    if odd.any():
        codes, examples = alike(*(sign[odd] for sign in signs))
        places = zip(starts[odd][examples], ends[odd][examples], strict=True)
        forms = [found(seen_packet(data, start, end)) for start, end in places]
        table.put_items("own_findings", rows[odd], forms, codes)


def add_one_by_one(
    table: Table,
    data: Octets,
    rows: Vector,
    starts: Vector,
    ends: Vector,
    framed: Mask | None = None,
    cut: Vector | None = None,
    *,
    connection: int = 0,
    texts: bool = False,
    ring: KeyRing | None = None,
) -> None:
    """Fill in all columns of these rows; `starts`, `ends`, `framed` and `cut` are for all rows of the table.

    texts: whether to fill in `body_text`.
    ring: the keys to try, if any.
    """
    for first in range(0, len(rows), AT_A_TIME):
        some = rows[first : first + AT_A_TIME]
        seen = [
            seen_packet(
                data,
                starts[row],
                ends[row],
                connection=connection,
                framed=framed is None or bool(framed[row]),
                cut_bytes=0 if cut is None else int(cut[row]),
            )
            for row in some
        ]
        proved = [_evidence_of(each, ring) for each in seen]
        said = [
            row_of(sight_of(each), evidence=evidence) for each, evidence in zip(seen, proved, strict=True)
        ]
        for field in _SAID:
            if field.name == BODY_TEXT and not texts:
                continue
            put = table.put_items if field.type in TEXTS else table.put
            put_known(put, field.name, some, [getattr(row, field.name) for row in said])
        put_known(table.put_items, "own_findings", some, [*map(found, seen, proved)])
        put_known(table.put, "digest", some, [_digest(each) for each in seen])
        put_known(table.put, "body_offset", some, [_body_offset(each) for each in seen])


def _evidence_of(seen: SeenPacket, ring: KeyRing | None) -> Evidence:
    packet = seen.packet
    if ring is None or not isinstance(packet, UserMessage):
        return NOTHING
    return ring.evidence(packet, seen.cut_bytes)


def put_known(put: Callable[[str, Vector, Any], None], name: str, rows: Vector, values: list[Any]) -> None:
    """Put values into their rows; a row whose value is None keeps null."""
    has = np.array([value is not None for value in values])
    if has.any():
        put(name, rows[has], [value for value in values if value is not None])


def _digest(seen: SeenPacket) -> int | None:
    return digest_of(seen.data) if isinstance(seen.packet, UserMessage) and not seen.cut_bytes else None


def _body_offset(seen: SeenPacket) -> int | None:
    """Return where the body of a message begins in its packet; None if there is no whole message. [MS-MQMQ] 2.2.19.3"""
    if not isinstance(seen.packet, UserMessage) or seen.cut_bytes:
        return None
    properties = seen.packet.properties
    before = message_properties_header.offset_of("label") + wide_size(properties.label)
    return properties_offset(seen.data) + before + len(properties.extension_data)
