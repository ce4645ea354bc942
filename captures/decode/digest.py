"""A digest of everything in a message that an intermediate queue manager may not change.

An intermediate increments the hop count and replaces the SessionHeader with its own. The SH bit of BaseHeader.Flags
says whether a message has a SessionHeader. [MS-MQMQ] 2.2.19.1, 2.2.19.2, [MS-MQQB] 3.1.1.6.2
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from mqproto.wire import BaseHeader, UserHeader
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.session import session_header
from mqproto.wire.layouts.user import user_header

DIGEST_BYTES: Final = 8

_FLAGS: Final = base_header.offset_of("flags")
_HOPS: Final = base_header.sizeof() + user_header.offset_of("flags")
_SESSION: Final = BaseHeader.session_header.mask
assert max(_SESSION, UserHeader.hop_count.mask) < 0x100, "they lie in the first bytes of their words"


def _kept() -> bytes:
    mask = bytearray(b"\xff" * (_HOPS + 1))
    mask[_FLAGS] &= ~_SESSION
    mask[_HOPS] &= ~UserHeader.hop_count.mask
    return bytes(mask)


HEAD_MASK: Final = _kept()
"""A mask for the first bytes of a UserMessage, which keeps only the bits that the digest covers.

The digest also covers all bits of the later bytes.
"""
_HEAD: Final = len(HEAD_MASK)
_KEPT: Final = int.from_bytes(HEAD_MASK, "little")


def digest_of(data: bytes) -> int:
    """Return a digest that ignores the hop count and the SessionHeader of a UserMessage.

    It is the same in every process.

    Args:
        data: a valid packet, including its SessionHeader.

    Returns:
        The digest, 64 bits as a signed number.
    """
    head = int.from_bytes(data[:_HEAD], "little") & _KEPT
    end = len(data) - session_header.sizeof() if data[_FLAGS] & _SESSION else len(data)
    digest = digests([(head.to_bytes(_HEAD, "little"), data[_HEAD:end])])
    return int.from_bytes(digest, "little", signed=True)


def digests(messages: Iterable[tuple[bytes, bytes | memoryview]]) -> bytes:
    """Return the digests of many messages, eight bytes each, little-endian.

    Args:
        messages: for each message, its first bytes masked with HEAD_MASK, and its other bytes without the
            SessionHeader.
    """
    found = []
    begun = blake2b(digest_size=DIGEST_BYTES)  # a copy of it is made sooner than another one
    for head, rest in messages:
        hashed = begun.copy()
        hashed.update(head)
        hashed.update(rest)
        found.append(hashed.digest())
    return b"".join(found)
