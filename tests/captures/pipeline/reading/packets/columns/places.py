"""Packets laid out in one array of bytes, and what the decoder finds in each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mqproto.captures.decode.analyst import own_findings
from mqproto.captures.decode.digest import digest_of
from mqproto.captures.decode.findings import Finding
from mqproto.captures.decode.row import KEYS, row_of
from mqproto.captures.decode.security.keyring import NOTHING, KeyRing
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.reading.packets.columns.schema import PACKET_SCHEMA
from mqproto.captures.pipeline.source.octets import Octets, Vector
from mqproto.wire import UserMessage, inspect_packet

NOBODY: Final = Endpoint("192.0.2.1", 1801)


def laid_out(packets: list[bytes], gap: bytes = b"") -> tuple[Octets, Vector, Vector]:
    """Lay out all packets in one array, with a few other bytes after each one.

    Return the array, where each packet begins, and its size.
    """
    data = np.frombuffer(b"".join(packet + gap for packet in packets), np.uint8)
    sizes = np.array([len(packet) for packet in packets], np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes - len(gap)
    return data, starts, sizes


def decoded(data: bytes, connection: int = 0, ring: KeyRing | None = None) -> dict[str, Any]:
    """Return the values of a row of PACKET_SCHEMA, as the codec alone gives them.

    Args:
        ring: the available keys.
    """
    seen = SeenPacket(data, source=NOBODY, destination=NOBODY, time_ns=1, connection=connection)
    evidence = NOTHING
    if ring is not None and isinstance(seen.packet, UserMessage):
        evidence = ring.evidence(seen.packet)
    row = row_of(sight_of(seen), evidence=evidence)
    said = {name: getattr(row, name) if name in KEYS else None for name in PACKET_SCHEMA.names}
    packet = seen.packet
    said["own_findings"] = [_worded(each) for each in (*own_findings(seen), *evidence.findings(0))] or None
    if isinstance(packet, UserMessage):
        said["digest"] = digest_of(data)
        fields = {field.name: field for field in inspect_packet(data).fields}
        extension = fields.get("properties.extension_data") or fields.get("properties.label")
        before = extension or fields["properties.extension_size"]
        said["body_offset"] = before.offset + before.size
    return said


def _worded(finding: Finding) -> dict[str, str]:
    words = finding.as_json()
    return {name: words[name] for name in ("severity", "code", "text", "section")}
