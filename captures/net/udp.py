"""Writes one UDP datagram over IPv4 as an Ethernet frame.  [RFC 768]"""

from __future__ import annotations

import socket
import struct
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures.net.ip import IPV4_HEADER
from mqproto.captures.net.tcp import PSEUDO_HEADER, Endpoint, checksum, ip_frame, word_sum

PROTOCOL_UDP: Final = 17
UDP_HEADER: Final = struct.Struct("!HHHH")
MAX_DATAGRAM_BYTES: Final = 65_535 - IPV4_HEADER.size - UDP_HEADER.size


def encode_datagram(
    source: Endpoint, destination: Endpoint, payload: bytes, identification: int = 0
) -> bytes:
    """Return a datagram as an Ethernet frame with correct checksums.

    Args:
        identification: a 16-bit number, by which the packets of one host are distinguished.

    Raises:
        UsageError: an address is not IPv4, or the payload has more than 65,507 bytes.
    """
    if len(payload) > MAX_DATAGRAM_BYTES:
        raise UsageError(f"a datagram of {len(payload):,} bytes: at most {MAX_DATAGRAM_BYTES:,} fit in IPv4")
    hosts = socket.inet_aton(source.validated().host), socket.inet_aton(destination.validated().host)
    size_bytes = UDP_HEADER.size + len(payload)
    fields = (source.port, destination.port, size_bytes)
    total = (
        word_sum(PSEUDO_HEADER.pack(*hosts, 0, PROTOCOL_UDP, size_bytes))
        + word_sum(UDP_HEADER.pack(*fields, 0))
        + word_sum(payload)
    )
    # A checksum of zero means that there is none, so a sum of zero is sent in its other form.
    header = UDP_HEADER.pack(*fields, checksum(total) or 0xFFFF)
    return ip_frame(*hosts, PROTOCOL_UDP, identification, (header, payload))
