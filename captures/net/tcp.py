"""Reads TCP segments from IP packets, and writes them as Ethernet frames.  [RFC 894], [RFC 791], [RFC 9293]"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.captures.net.ip import DONT_FRAGMENT, IPV4_HEADER, Datagram

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
PSH: Final = 0x08
ACK: Final = 0x10

ETHERTYPE_IPV4: Final = 0x0800
PROTOCOL_TCP: Final = 6

ETHERNET_HEADER: Final = struct.Struct("!6s6sH")
TCP_HEADER: Final = struct.Struct("!HHIIBBHHH")
CHECKSUM_AT: Final = 16
PSEUDO_HEADER: Final = struct.Struct("!4s4sBBH")

# IPv4 counts the whole packet in 16 bits, and both headers are 20 bytes without options.
MAX_SEGMENT_BYTES: Final = 65_535 - IPV4_HEADER.size - TCP_HEADER.size


class Endpoint(NamedTuple):
    """One end of a connection: an IPv4 or IPv6 address in its usual form, and a port.

    In a numbered tunnel, the number follows the address, as in 10.0.0.1%vxlan42, because other tunnels may use the same
    address.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def validated(self) -> Endpoint:
        """Return this endpoint, if a frame can be written for it.

        Raises:
            UsageError: the host is not an IPv4 address, or the port has more than 16 bits.
        """
        try:
            socket.inet_pton(socket.AF_INET, self.host)
        except OSError:
            raise UsageError(f"{self.host!r} is not an IPv4 address: write it as 127.0.0.2") from None
        if not 0 <= self.port <= 0xFFFF:
            raise UsageError(f"{self.port} is not a port: at most 65535")
        return self


class Segment(NamedTuple):
    """One TCP segment.  [RFC 9293] 3.1

    options: whole 4-byte words, at most 40 bytes.
    cut_bytes: how many bytes the capture cut off the end of the payload.
    """

    source: Endpoint
    destination: Endpoint
    sequence_number: int
    acknowledgment_number: int
    flags: int
    window: int
    options: bytes
    payload: bytes
    cut_bytes: int = 0


def encode_frame(segment: Segment, identification: int) -> bytes:
    """Return the segment as an Ethernet frame with correct checksums.

    The hardware addresses are made from the IP addresses, so that people can tell them apart.

    Args:
        segment: its headers, options and payload must fit in 65,535 bytes.
        identification: a 16-bit number, by which the packets of one host are distinguished.
    """
    source, destination = socket.inet_aton(segment.source.host), socket.inet_aton(segment.destination.host)
    header_bytes = TCP_HEADER.size + len(segment.options)
    tcp_bytes = header_bytes + len(segment.payload)
    tcp_fields = (
        segment.source.port,
        segment.destination.port,
        segment.sequence_number,
        segment.acknowledgment_number,
        header_bytes // 4 << 4,
        segment.flags,
        segment.window,
    )
    total = (
        word_sum(PSEUDO_HEADER.pack(source, destination, 0, PROTOCOL_TCP, tcp_bytes))
        + word_sum(TCP_HEADER.pack(*tcp_fields, 0, 0))
        + word_sum(segment.options)
        + word_sum(segment.payload)
    )
    header = TCP_HEADER.pack(*tcp_fields, checksum(total), 0)
    return ip_frame(
        source, destination, PROTOCOL_TCP, identification, (header, segment.options, segment.payload)
    )


def ip_frame(
    source: bytes, destination: bytes, protocol: int, identification: int, contents: Sequence[bytes]
) -> bytes:
    """Return an IPv4 payload as an Ethernet frame.  [RFC 791] 3.1

    Args:
        source, destination: IPv4 addresses.
        protocol: the number of the payload's protocol; 6 is TCP.
        contents: the parts of the payload in order, at most 65,515 bytes in all.
    """
    ip_bytes = IPV4_HEADER.size + sum(map(len, contents))
    fields = (0x45, 0, ip_bytes, identification, DONT_FRAGMENT, 64, protocol)
    total = word_sum(IPV4_HEADER.pack(*fields, 0, source, destination))
    return b"".join(
        (
            ETHERNET_HEADER.pack(_hardware_address(destination), _hardware_address(source), ETHERTYPE_IPV4),
            IPV4_HEADER.pack(*fields, checksum(total), source, destination),
            *contents,
        )
    )


def decode_segment(datagram: Datagram) -> Segment | None:
    """Return the TCP segment in an IP packet; None if it is damaged.

    Checksums are ignored here; `sum_fits` checks them where they matter. If the capture cut the frame short, the
    segment has the part of the payload that is left.
    """
    data = datagram.payload
    if len(data) < TCP_HEADER.size:
        return None
    source_port, destination_port, sequence, acknowledgment, length, flags, window, _, _ = (
        TCP_HEADER.unpack_from(data)
    )
    payload_start = (length >> 4) * 4
    if not TCP_HEADER.size <= payload_start <= len(data):
        return None
    return Segment(
        endpoint(datagram.source, source_port, datagram.zone),
        endpoint(datagram.destination, destination_port, datagram.zone),
        sequence,
        acknowledgment,
        flags,
        window,
        data[TCP_HEADER.size : payload_start],
        data[payload_start:],
        datagram.missing_bytes,
    )


def sum_fits(datagram: Datagram) -> bool | None:
    """Return whether the checksum of a TCP segment is right; None if that is unknown.  [RFC 9293] 3.1

    It is unknown if the capture cut the segment, or captured it before the network card filled in the checksum. The
    field is then zero, or the sum of the pseudo header, to which the card adds the rest.
    """
    data = datagram.payload
    if datagram.missing_bytes or len(data) < TCP_HEADER.size:
        return None
    pseudo_sum = word_sum(datagram.source) + word_sum(datagram.destination) + PROTOCOL_TCP + len(data)
    if (pseudo_sum + word_sum(data)) % 0xFFFF == 0:
        return True
    found = int.from_bytes(data[CHECKSUM_AT : CHECKSUM_AT + 2], "big")
    return None if not found or (found - pseudo_sum) % 0xFFFF == 0 else False


@lru_cache(maxsize=4096)
def endpoint(address: bytes, port: int, zone: str = "") -> Endpoint:
    """Return an address from a packet, 4 or 16 bytes, with a port; in a tunnel, the host includes the zone."""
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    return Endpoint(socket.inet_ntop(family, address) + (f"%{zone}" if zone else ""), port)


def word_sum(data: bytes) -> int:
    """Return the sum of the 16-bit words of `data`, modulo 65,535; an odd last byte is a high half.  [RFC 1071]"""
    # 2**16 is 1 modulo 65,535, so one long number has the same remainder as the sum of its words.
    remainder = int.from_bytes(data, "big") % 0xFFFF
    return remainder << 8 if len(data) % 2 else remainder


def checksum(total: int) -> int:
    """Return the complement of a sum of words that are not all zero.  [RFC 1071]"""
    # Such a sum is never "plus zero", so a remainder of 0 stands for 0xFFFF, and its complement is 0.
    return -total % 0xFFFF


def _hardware_address(address: bytes) -> bytes:
    """Return 02:00 and the four bytes of the IP address: the 02 says that no manufacturer assigned it."""
    return b"\x02\x00" + address
