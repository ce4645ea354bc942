r"""A message of our own as it is kept: with the name of its application's dead-letter queue.

    UserMessage | ExtensionHeader | DeadLetterHeader        [MS-MQRR] 2.2.5

The two headers come after all other parts of a UserMessage. PacketSize counts them, so operations on a packet preserve
them. They are never sent on a session, because they are cut off when the message leaves (`as_sent`).
"""

from __future__ import annotations

import struct
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.wire.classes import MessageClass
from mqproto.wire.generated import properties_offset, trailing_offset
from mqproto.wire.glance import user_flags
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.extension import (
    DeadLetterHeader,
    ExtensionHeader,
    dead_letter_header,
    extension_header,
)
from mqproto.wire.layouts.properties import message_properties_header
from mqproto.wire.layouts.user import UserHeader

REFUSAL: Final = 0x8000
"""The bit that is set in the class of each negative acknowledgment, and therefore of each dead letter. [MS-MQMQ]
2.2.18.1.6
"""
assert MessageClass.NACK_RECEIVE_REJECTED & REFUSAL

_JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask
_EXTENSION_BYTES: Final = extension_header.sizeof()
_SIZE_AT: Final = base_header.offset_of("packet_size")
_CLASS_AT: Final = message_properties_header.offset_of("message_class")
_size = struct.Struct("<I")
_class = struct.Struct("<H")


def headers_behind(path_name: str) -> bytes:
    """Return the bytes that follow a kept message, for `UserMessage.trailing`.

    path_name: the path name of the queue, such as `.\\private$\\failed-orders`.
    """
    letter = dead_letter_header.encode(DeadLetterHeader(path_name))
    header = ExtensionHeader(remaining_headers_size=len(letter))
    header.has_dead_letter = True
    return extension_header.encode(header) + letter


def path_name_in(trailing: bytes) -> str:
    """Return the path name of the dead-letter queue that is stored after a message; empty if there is none."""
    header = _letter_header_in(trailing)
    return header.path_name if header is not None else ""


def _letter_header_in(trailing: bytes) -> DeadLetterHeader | None:
    """Return the DeadLetterHeader that follows a message, or the padding of its signature.

    Return None if there is none.
    """
    trailing = trailing[len(trailing) % 4 :]
    if len(trailing) <= _EXTENSION_BYTES:
        return None
    try:
        header = extension_header.decode(trailing[:_EXTENSION_BYTES])
        if header.remaining_headers_size != len(trailing) - _EXTENSION_BYTES or not header.has_dead_letter:
            return None
        return dead_letter_header.decode(trailing[_EXTENSION_BYTES:])
    except WireFormatError:
        return None


def as_sent(packet: bytes) -> bytes:
    """Return a message without the headers stored after it; most messages have none.

    Args:
        packet: the packet of a UserMessage without a SessionHeader.
    """
    size = trailing_offset(packet)
    if size == len(packet) or _letter_header_in(packet[size:]) is None:
        return packet
    size += (len(packet) - size) % 4
    return b"".join((packet[:_SIZE_AT], _size.pack(size), packet[_SIZE_AT + _size.size : size]))


def is_letter(packet: bytes) -> bool:
    """Whether a packet is a dead letter whose application chose a queue for it."""
    if not user_flags(packet) & _JOURNAL_NEGATIVE:
        return False
    [message_class] = _class.unpack_from(packet, properties_offset(packet) + _CLASS_AT)
    return bool(message_class & REFUSAL) and bool(path_name_in(packet[trailing_offset(packet) :]))
