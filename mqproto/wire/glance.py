"""What a packet says of itself without being decoded."""

from __future__ import annotations

from typing import Final

from mqproto.wire.base import base_header
from mqproto.wire.user import UserHeader, user_header

_FLAGS_AT: Final = base_header.sizeof() + user_header.offset_of("flags")
_RECOVERABLE: Final = UserHeader.recoverable.mask
assert _RECOVERABLE < 0x100, "the bit lies in the first byte of the flags"


def is_recoverable(packet: bytes) -> bool:
    """Whether a UserMessage, given as its whole packet, is recoverable or transactional.  [MS-MQMQ] 2.2.19.2"""
    return bool(packet[_FLAGS_AT] & _RECOVERABLE)
