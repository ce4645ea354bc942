"""Small parsers, each with one of the bugs that broke Microsoft's: a fuzzer has to find them.

They compute as C would: in 32 bits, with a check that looks right. Access to memory outside the packet raises
`AccessViolation`, as it would fault on a machine; a packet that a parser refuses on purpose raises `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

BITS_32: Final = 0xFFFFFFFF
BASE_SIZE: Final = 16
FIXED_USER_SIZE: Final = 48
PROPERTIES_SIZE: Final = 56
HAS_SECURITY, HAS_TRANSACTION = 1 << 19, 1 << 20
HAS_CONNECTOR, HAS_LISTS, HAS_SOAP = 1 << 22, 1 << 23, 1 << 28


class AccessViolation(Exception):  # noqa: N818
    """The parser read beyond the packet."""


class Memory:
    """A packet as a C program sees it: an address and a size, and no checks."""

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.end = len(packet)

    def read(self, at: int, size: int) -> bytes:
        if at + size > self.end:
            raise AccessViolation("read beyond the packet")
        return self.packet[at : at + size]

    def number(self, at: int, size: int) -> int:
        return int.from_bytes(self.read(at, size), "little")

    def require(self, at: int, size: int) -> None:
        """Check a range as a careful parser does: no sum wraps around."""
        if at + size > self.end:
            raise ValueError("cut short")


def open_message(packet: bytes) -> tuple[Memory, int, int, int]:
    """Return the memory, the offset of the optional headers, and both flag words; everything before those headers is
    properly checked.
    """
    memory = Memory(packet)
    memory.require(0, BASE_SIZE + FIXED_USER_SIZE)
    version, _, base_flags, signature, size = struct.unpack_from("<BBHII", packet)
    if version != 0x10 or signature != 0x524F494C or size > len(packet):
        raise ValueError("no packet")
    if base_flags & 8:
        raise ValueError("no message")
    flags = memory.number(BASE_SIZE + 44, 4)
    at = BASE_SIZE + FIXED_USER_SIZE
    for shift in (10, 13, 16):
        at = after_name(memory, at, flags >> shift & 7)
    if flags & HAS_CONNECTOR:
        memory.require(at, 16)
        at += 16
    return memory, at, flags, base_flags


def after_name(memory: Memory, at: int, kind: int) -> int:
    sizes = {0: 0, 1: 0, 2: 4, 3: 4, 4: 4, 5: 16, 6: 20}
    if kind == 7:
        memory.require(at, 2)
        size = 2 + memory.number(at, 2)
    else:
        size = sizes[kind]
    memory.require(at, size)
    return at + size + (-(at + size) & 3)


def after_properties(memory: Memory, at: int) -> int:
    memory.require(at, PROPERTIES_SIZE)
    size = (
        PROPERTIES_SIZE + 2 * memory.number(at + 1, 1) + memory.number(at + 32, 4) + memory.number(at + 52, 4)
    )
    memory.require(at, size)
    return at + size + (-(at + size) & 3)


def after_transaction(memory: Memory, at: int, flags: int) -> int:
    if not flags & HAS_TRANSACTION:
        return at
    memory.require(at, 20)
    size = 36 if memory.number(at, 4) & 1 else 20
    memory.require(at, size)
    return at + size


def doubled(packet: bytes) -> None:
    """DataLength of the SoapHeader counts characters, and is doubled in 32 bits before it is checked."""
    memory, at, flags, base_flags = open_message(packet)
    at = after_transaction(memory, at, flags)
    if flags & HAS_SECURITY:
        raise ValueError("not read here")
    at = after_properties(memory, at)
    if base_flags & 0x20:
        memory.require(at, 4)
        at += 20 if memory.number(at, 2) & 3 == 1 else 4
    if not flags & HAS_SOAP:
        return
    memory.require(at, 8)
    if memory.number(at, 2) != 0x0320:
        raise ValueError("another section")
    count = memory.number(at + 4, 4)
    memory.require(at + 8, count * 2 & BITS_32)
    memory.read(at + 8, count * 2)


def aligned(packet: bytes) -> None:
    """The sizes of the SecurityHeader's items are rounded up to four bytes, in 32 bits, before they are checked."""
    memory, at, flags, _ = open_message(packet)
    at = after_transaction(memory, at, flags)
    if not flags & HAS_SECURITY:
        return
    memory.require(at, 16)
    sizes = [memory.number(at + 2 * each, 2) for each in (1, 2, 3)]
    sizes += [memory.number(at + 8, 4), memory.number(at + 12, 4)]
    at += 16
    for size in sizes:
        taken = (size + 3 & BITS_32) & ~3
        memory.require(at, taken)
        memory.read(at, size)
        at += taken


def announced(packet: bytes) -> None:
    """Every header that the flags announce is believed to be there."""
    memory, at, flags, _ = open_message(packet)
    if flags & HAS_TRANSACTION:
        memory.number(at, 4)
        memory.read(at + 4, 16)


def element_count(packet: bytes) -> tuple[Memory, int, int]:
    """Return the memory, the offset of the elements of the first list of queues, and their stated number."""
    memory, at, flags, base_flags = open_message(packet)
    at = after_transaction(memory, at, flags)
    if flags & (HAS_SECURITY | HAS_SOAP) or base_flags & 0x20 or not flags & HAS_LISTS:
        raise ValueError("not read here")
    at = after_properties(memory, at)
    memory.require(at, 12)
    size, header_id, count = memory.number(at, 4), memory.number(at + 4, 2), memory.number(at + 8, 4)
    if header_id != 0x0064 or size < 12:
        raise ValueError("another header")
    memory.require(at, size)
    return memory, at + 12, count


def counted(packet: bytes) -> None:
    """As many elements of a list are read as the packet states, without a check for its end."""
    memory, at, count = element_count(packet)
    for _ in range(count):
        kind = memory.number(at, 2)
        at += 2 + {1: 16, 2: 20, 6: 16}.get(kind, 2)


def preallocated(packet: bytes) -> list[object]:
    """A list is allocated before any element is read: the packet decides its size."""
    _, _, count = element_count(packet)
    return [None] * count


def endless(packet: bytes) -> None:
    """A list whose elements take no bytes has no end."""
    memory = Memory(packet)
    memory.require(0, BASE_SIZE)
    at = 12
    while at < memory.end:
        at += memory.number(at, 1) & 0xF0


Bug = Callable[[bytes], object]
CLASSES: Final[tuple[Bug, ...]] = (doubled, aligned, announced, counted)
"""The classes of publicly known bugs in which a packet broke a parser."""

_HEADERS: Final = BASE_SIZE + FIXED_USER_SIZE
LEAST: Final[dict[Bug, int]] = {
    doubled: _HEADERS + PROPERTIES_SIZE + 8,
    aligned: _HEADERS + 16,
    announced: _HEADERS + 4,
    counted: _HEADERS + PROPERTIES_SIZE + 12,
}
"""For each bug, the size in bytes of the smallest packet that shows it: the headers up to the bug, and nothing else."""
