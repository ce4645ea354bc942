"""What a packet says of itself without being decoded."""

from __future__ import annotations

import struct
from typing import Final

from mqproto.wire.acknowledgment import LABEL
from mqproto.wire.base import INFINITE, BaseHeader, base_header
from mqproto.wire.codec import transaction_offset
from mqproto.wire.guid import Guid
from mqproto.wire.transaction import TxSequenceId, transaction_header
from mqproto.wire.user import UserHeader, user_header

_USER_AT: Final = base_header.sizeof()
_FLAGS_AT: Final = _USER_AT + user_header.offset_of("flags")
_RECOVERABLE: Final = UserHeader.recoverable.mask
assert _RECOVERABLE < 0x100, "the bit lies in the first byte of the flags"

_TRACE_AT: Final = base_header.offset_of("flags") + 1
_TRACE: Final = BaseHeader.trace.mask >> 8
assert 0 < _TRACE < 0x100, "the bit lies in the second byte of the flags"

_word = struct.Struct("<I")
_REACH_AT: Final = base_header.offset_of("time_to_reach_queue_s")
_RECEIVE_AT: Final = _USER_AT + user_header.offset_of("time_to_be_received_s")
_times = struct.Struct("<II")
_SOURCE_AT: Final = _USER_AT + user_header.offset_of("source_queue_manager")
_MESSAGE_ID_AT: Final = _USER_AT + user_header.offset_of("message_id")
_LABEL: Final = LABEL.encode("utf-16-le")
_SEQUENCE_AT: Final = transaction_header.offset_of("tx_sequence_id")
_place = struct.Struct("<III")
assert transaction_header.offset_of("tx_sequence_number") == _SEQUENCE_AT + 8
assert user_header.offset_of("sent_time_s") == user_header.offset_of("time_to_be_received_s") + _word.size


def is_recoverable(packet: bytes) -> bool:
    """Whether a UserMessage, given as its whole packet, is recoverable or transactional.  [MS-MQMQ] 2.2.19.2"""
    return bool(packet[_FLAGS_AT] & _RECOVERABLE)


def is_transactional(packet: bytes) -> bool:
    """Whether a UserMessage has a TransactionHeader.  [MS-MQMQ] 2.2.19.2"""
    return bool(user_flags(packet) & UserHeader.has_transaction.mask)


def is_traced(packet: bytes) -> bool:
    """Whether a report is to be sent wherever the message comes or goes: TR.  [MS-MQMQ] 2.2.19.1"""
    return bool(packet[_TRACE_AT] & _TRACE)


def user_flags(packet: bytes) -> int:
    """UserHeader.Flags of a UserMessage.  [MS-MQMQ] 2.2.19.2"""
    flags: int = _word.unpack_from(packet, _FLAGS_AT)[0]
    return flags


def receive_deadline_s(packet: bytes) -> int | None:
    """The last second, UTC, at which an application may receive a message; None if any will do.

    TimeToBeReceived counts from SentTime.  [MS-MQMQ] 2.2.19.2
    """
    to_be_received, sent = _times.unpack_from(packet, _RECEIVE_AT)
    return None if to_be_received == INFINITE else sent + to_be_received


def reach_deadline_s(packet: bytes) -> int | None:
    """The last second, UTC, at which a message may still be on its way; None if any will do.

    TimeToReachQueue ends it, and TimeToBeReceived does if that is sooner.  [MS-MQQB] 3.1.7.1.2, [MS-MQMQ] 2.2.18.1.6
    """
    to_be_received, sent = _times.unpack_from(packet, _RECEIVE_AT)
    (to_reach_queue,) = _word.unpack_from(packet, _REACH_AT)
    seconds = min(to_reach_queue, to_be_received)
    return None if seconds == INFINITE else sent + seconds


def identifier_of(packet: bytes) -> tuple[Guid, int]:
    """SourceQueueManager and MessageID, which name a UserMessage from end to end.  [MS-MQMQ] 2.2.18.1.3"""
    ordinal: int = _word.unpack_from(packet, _MESSAGE_ID_AT)[0]
    return Guid(packet[_SOURCE_AT : _SOURCE_AT + 16]), ordinal


def acknowledges(packet: bytes) -> bool:
    """Whether a UserMessage may be an OrderAck or a FinalAck; one whose body has their label is taken for one, too."""
    return _LABEL in packet


def place_in_sequence(packet: bytes) -> tuple[TxSequenceId, int] | None:
    """TxSequenceID and TxSequenceNumber of a transactional message; None for others.  [MS-MQMQ] 2.2.20.5"""
    at = transaction_offset(packet)
    if at < 0:
        return None
    ordinal, time_stamp, number = _place.unpack_from(packet, at + _SEQUENCE_AT)
    return TxSequenceId(ordinal=ordinal, time_stamp=time_stamp), number
