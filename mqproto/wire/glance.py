"""Reads individual fields of a packet without decoding the packet."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mqproto.wire.generated import properties_offset, read_session_header, transaction_offset
from mqproto.wire.guid import Guid
from mqproto.wire.layouts.base import INFINITE, BaseHeader, base_header
from mqproto.wire.layouts.properties import message_identifier, message_properties_header
from mqproto.wire.layouts.session import SessionHeader, session_header
from mqproto.wire.layouts.transaction import TxSequenceId, transaction_header
from mqproto.wire.layouts.user import PRIVATE_ON_DESTINATION, UserHeader, user_header
from mqproto.wire.messages import LABEL

_BASE_FLAGS_AT: Final = base_header.offset_of("flags")
_INTERNAL: Final = BaseHeader.internal.mask
_SESSION: Final = BaseHeader.session_header.mask
_DEBUG: Final = BaseHeader.debug_header.mask
_PRIORITY: Final = BaseHeader.priority.mask
assert (_INTERNAL | _SESSION | _DEBUG | _PRIORITY) < 0x100, "they lie in the first byte of the flags"

_USER_AT: Final = base_header.sizeof()
_FLAGS_AT: Final = _USER_AT + user_header.offset_of("flags")
RECOVERABLE: Final = UserHeader.recoverable.mask
TRANSACTIONAL: Final = UserHeader.has_transaction.mask
_DESTINATION_TYPE: Final = UserHeader.destination_type.mask
_PRIVATE: Final = PRIVATE_ON_DESTINATION << UserHeader.destination_type.first
_SESSION_HEADER_SIZE: Final = session_header.sizeof()
assert RECOVERABLE < 0x100, "the bit lies in the first byte of the flags"
_TRANSACTIONAL_AT: Final = _FLAGS_AT + 2
_TRANSACTIONAL: Final = TRANSACTIONAL >> 16
_SECURITY_AT: Final = _FLAGS_AT + 2
_SECURITY: Final = UserHeader.has_security.mask >> 16
assert 0 < _SECURITY <= 0xFF
assert 0 < _TRANSACTIONAL < 0x100, "the bit lies in the third byte of the flags"

_JOURNAL_NEGATIVE_AT: Final = _FLAGS_AT + 1
_JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask >> 8
assert 0 < _JOURNAL_NEGATIVE <= 0xFF, "the bit lies in the second byte of the flags"

_TRACE_AT: Final = base_header.offset_of("flags") + 1
_TRACE: Final = BaseHeader.trace.mask >> 8
assert 0 < _TRACE < 0x100, "the bit lies in the second byte of the flags"

_word = struct.Struct("<I")
_REACH_AT: Final = base_header.offset_of("time_to_reach_queue_s")
_RECEIVE_AT: Final = _USER_AT + user_header.offset_of("time_to_be_received_s")
_times = struct.Struct("<II")
_sent = struct.Struct(f"<{_RECEIVE_AT + _word.size}xI")
_deadlines = struct.Struct(f"<{_REACH_AT}xI{_RECEIVE_AT - _REACH_AT - _word.size}xII")
_LABEL_AT: Final = message_properties_header.offset_of("label")
_lengths = struct.Struct(
    message_properties_header.struct_format("label_length", "message_size", "extension_size")
)
_SOURCE_AT: Final = _USER_AT + user_header.offset_of("source_queue_manager")
_LABEL: Final = LABEL.encode("utf-16-le")
_SEQUENCE_AT: Final = transaction_header.offset_of("tx_sequence_id")
_place = struct.Struct("<III")
assert transaction_header.offset_of("tx_sequence_number") == _SEQUENCE_AT + 8
assert user_header.offset_of("sent_time_s") == user_header.offset_of("time_to_be_received_s") + _word.size


_head = struct.Struct("<16s16s8xII")
_identifier = struct.Struct("<16s24xI")
_correlated = struct.Struct("<16sI")
_message_id = struct.Struct(f"<{_USER_AT + user_header.offset_of('message_id')}xI")
_DESTINATION_AT: Final = _USER_AT + user_header.offset_of("destination_queue")
assert _USER_AT == _SOURCE_AT, "the head and the identifier begin with the UserHeader"
assert _identifier.size == user_header.offset_of("message_id") + _word.size
assert _correlated.size == message_identifier.sizeof()
assert _USER_AT + _head.size == _DESTINATION_AT, "it ends where fields of no fixed size begin"


class Head(NamedTuple):
    """The fixed fields of a UserHeader: source, destination, number and flags.  [MS-MQMQ] 2.2.19.2"""

    source_queue_manager: Guid
    queue_manager_address: Guid
    message_id: int
    flags: int


def head_of(packet: bytes) -> Head:
    """Return the head of a UserMessage."""
    return Head._make(_head.unpack_from(packet, _USER_AT))


def is_internal(packet: bytes) -> bool:
    """Whether a packet is not a UserMessage.  [MS-MQMQ] 2.2.19.1"""
    return bool(packet[_BASE_FLAGS_AT] & _INTERNAL)


def session_header_of(packet: bytes) -> SessionHeader | None:
    """Return the SessionHeader that comes with a UserMessage, or None.  [MS-MQMQ] 2.2.19.1"""
    if not packet[_BASE_FLAGS_AT] & _SESSION:
        return None
    return read_session_header(packet[-_SESSION_HEADER_SIZE:])


def has_debug_header(packet: bytes) -> bool:
    """Whether a packet has DH set.  [MS-MQMQ] 2.2.19.1"""
    return bool(packet[_BASE_FLAGS_AT] & _DEBUG)


def priority_of(packet: bytes, flags: int) -> int:
    """Return a message's priority; 0 if it is transactional.  [MS-MQDMPR] 3.1.7.1.32

    The priority of a transactional message is ignored.
    """
    return 0 if flags & TRANSACTIONAL else packet[_BASE_FLAGS_AT] & _PRIORITY


def goes_to_private(packet: bytes, flags: int, identifier: int) -> bool:
    """Whether a message is for the private queue with this number at its destination."""
    if flags & _DESTINATION_TYPE != _PRIVATE:
        return False
    queue: int = _word.unpack_from(packet, _DESTINATION_AT)[0]
    return queue == identifier


def is_recoverable(packet: bytes) -> bool:
    """Whether a UserMessage is recoverable; transactional messages always are.  [MS-MQMQ] 2.2.19.2"""
    return bool(packet[_FLAGS_AT] & RECOVERABLE)


def is_transactional(packet: bytes) -> bool:
    """Whether a UserMessage has a TransactionHeader.  [MS-MQMQ] 2.2.19.2"""
    return bool(packet[_TRANSACTIONAL_AT] & _TRANSACTIONAL)


def is_traced(packet: bytes) -> bool:
    """Return whether the TR bit is set, which makes each node on the message's way send a report. [MS-MQMQ] 2.2.19.1"""
    return bool(packet[_TRACE_AT] & _TRACE)


def has_security_header(packet: bytes) -> bool:
    """Return whether a UserMessage has a SecurityHeader.  [MS-MQMQ] 2.2.19.2

    If it has one, it names its sender, is signed, or is encrypted.
    """
    return bool(packet[_SECURITY_AT] & _SECURITY)


def may_leave_changed(packet: bytes) -> bool:
    """Whether a stored UserMessage may differ from its form on the wire.

    A message with a SecurityHeader may differ, because it may be encrypted when it is sent. A message with JN set may
    differ, because it may be followed by a name that is not sent (`drafts.py`).
    """
    return (packet[_SECURITY_AT] & _SECURITY or packet[_JOURNAL_NEGATIVE_AT] & _JOURNAL_NEGATIVE) != 0


def user_flags(packet: bytes) -> int:
    """Return UserHeader.Flags of a UserMessage.  [MS-MQMQ] 2.2.19.2"""
    flags: int = _word.unpack_from(packet, _FLAGS_AT)[0]
    return flags


def sent_time_s(packet: bytes) -> int:
    """Return when a UserMessage was sent, UTC, according to its sender: SentTime.  [MS-MQMQ] 2.2.19.2"""
    sent: int = _times.unpack_from(packet, _RECEIVE_AT)[1]
    return sent


def sent_times_s(packets: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Yield each different SentTime, and how many of the UserMessages have it.

    No Python code runs for each message.
    """
    for (sent,), count in Counter(map(_sent.unpack_from, packets)).items():
        yield sent, count


def receive_deadline_s(packet: bytes) -> int | None:
    """Return the last second, UTC, at which a message may be received; None if there is no limit.

    TimeToBeReceived counts from SentTime.  [MS-MQMQ] 2.2.19.2
    """
    to_be_received, sent = _times.unpack_from(packet, _RECEIVE_AT)
    return None if to_be_received == INFINITE else sent + to_be_received


def reach_deadline_s(packet: bytes) -> int | None:
    """Return the last second, UTC, at which a message may still be on its way; None if there is no limit.

    It follows from TimeToReachQueue or TimeToBeReceived, whichever ends sooner. [MS-MQQB] 3.1.7.1.2, [MS-MQMQ]
    2.2.18.1.6
    """
    to_reach_queue, to_be_received, sent = _deadlines.unpack_from(packet)
    if to_reach_queue == INFINITE == to_be_received:
        return None  # most messages
    deadline_s: int = sent + min(to_reach_queue, to_be_received)
    return deadline_s


def identifier_of(packet: bytes) -> tuple[Guid, int]:
    """Return SourceQueueManager and MessageID, which identify a UserMessage.  [MS-MQMQ] 2.2.18.1.3"""
    identifier: tuple[Guid, int] = _identifier.unpack_from(packet, _USER_AT)
    return identifier


def correlation_id_of(manager: Guid, ordinal: int) -> bytes:
    """Return the CorrelationID that a report about a message has.  [MS-MQMQ] 2.2.18.1.3

    manager, ordinal: the queue manager that sent the reported message, and the message's number there.
    """
    return _correlated.pack(manager, ordinal)


def correlated(correlation_id: bytes) -> tuple[Guid, int]:
    """Return the identifier of the message that a CorrelationID names.  [MS-MQMQ] 2.2.18.1.3"""
    identifier: tuple[Guid, int] = _correlated.unpack(correlation_id)
    return identifier


def message_ids(packets: Iterable[bytes]) -> list[int]:
    """Return the MessageID of each UserMessage.  [MS-MQMQ] 2.2.19.2"""
    return [message_id for (message_id,) in map(_message_id.unpack_from, packets)]


def variable_part(packet: bytes) -> tuple[int, int, int, int]:
    """Return where Label, ExtensionData and MessageBody begin, and where the body ends.

    [MS-MQMQ] 2.2.19.3
    """
    at = properties_offset(packet)
    label_length, body_size, extension_size = _lengths.unpack_from(packet, at)
    label = at + _LABEL_AT
    extension = label + 2 * label_length
    body = extension + extension_size
    return label, extension, body, body + body_size


def body_of(packet: bytes) -> bytes:
    """Return the MessageBody of a UserMessage.  [MS-MQMQ] 2.2.19.3"""
    _, _, body, end = variable_part(packet)
    return packet[body:end]


def acknowledges(packet: bytes) -> bool:
    """Return whether a UserMessage may be an OrderAck or a FinalAck.

    The result is also true for any other message whose body happens to contain the label of these acknowledgments.
    """
    return _LABEL in packet


def place_in_sequence(packet: bytes) -> tuple[TxSequenceId, int] | None:
    """Return the TxSequenceID and TxSequenceNumber of a transactional message; None for any other.

    [MS-MQMQ] 2.2.20.5
    """
    at = transaction_offset(packet)
    if at < 0:
        return None
    ordinal, time_stamp, number = _place.unpack_from(packet, at + _SEQUENCE_AT)
    return TxSequenceId(ordinal=ordinal, time_stamp=time_stamp), number
