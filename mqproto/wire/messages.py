"""Makes UserMessages from a sender's data.  [MS-MQMQ] 2.2.20, [MS-MQQB] 3.1.7.11"""

from __future__ import annotations

from typing import Final

from mqproto.base.errors import UsageError
from mqproto.wire.guid import NULL_GUID, Guid
from mqproto.wire.layouts.base import DEFAULT_PRIORITY, INFINITE, BaseHeader
from mqproto.wire.layouts.debug import PUBLIC_TRACE_QUEUE, DebugHeader
from mqproto.wire.layouts.multiqueue import MultiQueueFormatHeader
from mqproto.wire.layouts.properties import MessagePropertiesHeader
from mqproto.wire.layouts.security import SID, SecurityHeader
from mqproto.wire.layouts.transaction import TransactionHeader
from mqproto.wire.layouts.user import (
    DIRECT,
    NO_QUEUE,
    PRIVATE_ELSEWHERE,
    PRIVATE_ON_DESTINATION,
    PRIVATE_ON_SOURCE,
    PUBLIC,
    PrivateQueueFormatName,
    QueueName,
    UserHeader,
)
from mqproto.wire.packets import UserMessage

_PROPERTIES: Final = UserHeader.has_properties.mask
_DESTINATION_TYPE: Final = UserHeader.destination_type.first
_RECOVERABLE: Final = UserHeader.recoverable.mask
_TRANSACTIONAL: Final = UserHeader.has_transaction.mask | UserHeader.recoverable.mask
_JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask
_JOURNAL_POSITIVE: Final = UserHeader.journal_positive.mask
_MULTI_QUEUE_FORMAT: Final = UserHeader.has_multi_queue_format.mask
_SECURITY: Final = UserHeader.has_security.mask
_SENDER_ID_TYPE: Final = SecurityHeader.sender_id_type.first


def user_message(
    *,
    source: Guid,
    destination_manager: Guid,
    destination: int | Guid | str,
    message_id: int,
    sent_time_s: int,
    body: bytes,
    label: str = "",
    recoverable: bool = False,
    transaction: TransactionHeader | None = None,
    priority: int | None = None,
    time_to_reach_queue_s: int = INFINITE,
    time_to_be_received_s: int = INFINITE,
    extension: bytes = b"",
    body_type: int = 0,
    application_tag: int = 0,
    correlation_id: bytes = bytes(20),
    message_class: int = 0,
    journal_negative: bool = False,
    journal_positive: bool = False,
    admin_queue: QueueName = None,
    response_queue: QueueName = None,
    acknowledgments: int = 0,
    trace_queue: Guid | None = None,
    sender_id: bytes = b"",
    multi_queue_format: MultiQueueFormatHeader | None = None,
) -> UserMessage:
    """Return a message as its sender first sends it, without a SessionHeader.  [MS-MQMQ] 2.2.20

    Args:
        source: the queue manager that sends it first.
        destination_manager: the queue manager that hosts the queue. For a direct name, the null GUID is used,
            regardless of this argument.
        destination: the identifier of a private queue there, a public queue's GUID, or a direct name without `DIRECT=`,
            such as `TCP:10.0.0.1\\\\private$\\\\orders`.
        message_id: a number that is unique at the source.
        sent_time_s: seconds since 1970, UTC.
        label: up to 249 characters; empty for none.
        recoverable: whether it survives restarts; a transactional message always does.
        priority: 0 to 7; by default 3. A transactional message must have 0, which is its default.
        admin_queue, response_queue: a number means a private queue at the source.
        acknowledgments: MessagePropertiesHeader.Flags, which ask for administration acknowledgments.
        trace_queue: the public queue for report messages from each node on the way.
        sender_id: the sender's SID, which is not verified; empty for none.
        multi_queue_format: the list of all queues that get a copy of the message.
    """
    if priority is None:
        priority = 0 if transaction is not None else DEFAULT_PRIORITY
    if not 0 <= priority <= 7:
        raise UsageError(f"priority is {priority}, must be 0 to 7  [MS-MQMQ] 2.2.19.1")
    # Set one word once: this runs for every message that is sent, and setting a bit by name costs half a microsecond.
    flags = _PROPERTIES | _queue_type(destination, PRIVATE_ON_DESTINATION) << _DESTINATION_TYPE
    if transaction is not None:
        flags |= _TRANSACTIONAL
    elif recoverable:
        flags |= _RECOVERABLE
    if journal_negative:
        flags |= _JOURNAL_NEGATIVE
    if journal_positive:
        flags |= _JOURNAL_POSITIVE
    if multi_queue_format is not None:
        flags |= _MULTI_QUEUE_FORMAT
    security = None
    if sender_id:
        flags |= _SECURITY
        # AI stays clear, as in the message of [MS-MQQB] 4.1.7.
        security = SecurityHeader(flags=SID << _SENDER_ID_TYPE, sender_id=sender_id)
    user = UserHeader(
        source_queue_manager=source,
        queue_manager_address=NULL_GUID if isinstance(destination, str) else destination_manager,
        time_to_be_received_s=time_to_be_received_s,
        sent_time_s=sent_time_s,
        message_id=message_id,
        flags=flags,
        destination_queue=destination,
    )
    if admin_queue is not None:
        user.admin_queue, user.admin_type = _nearest_name(admin_queue, source, destination_manager)
    if response_queue is not None:
        user.response_queue, user.response_type = _nearest_name(response_queue, source, destination_manager)
    base = BaseHeader(flags=priority, time_to_reach_queue_s=time_to_reach_queue_s)
    debug = None
    if trace_queue is not None:
        base.trace = base.debug_header = True
        debug = DebugHeader(flags=PUBLIC_TRACE_QUEUE, queue_identifier=trace_queue)
    return UserMessage(
        base=base,
        debug=debug,
        user=user,
        transaction=transaction,
        security=security,
        properties=MessagePropertiesHeader(
            flags=acknowledgments,
            message_class=message_class,
            correlation_id=correlation_id,
            body_type=body_type,
            application_tag=application_tag,
            allocation_body_size=len(body),
            label=label or None,
            extension_data=extension,
            message_body=body,
        ),
        multi_queue_format=multi_queue_format,
    )


def _queue_type(name: QueueName, private: int) -> int:
    """Return the type bits for a name.

    private: the bits for a private queue's identifier.
    """
    match name:
        case None:
            return NO_QUEUE
        case int():
            return private
        case str():
            return DIRECT
        case PrivateQueueFormatName():
            return PRIVATE_ELSEWHERE
        case _:
            return PUBLIC


def _nearest_name(name: QueueName, source: Guid, destination: Guid) -> tuple[QueueName, int]:
    """Return a name in its shortest form, and its type bits.  [MS-MQMQ] 2.2.19.2

    For a private queue at either end, its identifier is enough.
    """
    if isinstance(name, PrivateQueueFormatName):
        if name.source_queue_manager == source:
            return name.private_queue_identifier, PRIVATE_ON_SOURCE
        if name.source_queue_manager == destination:
            return name.private_queue_identifier, PRIVATE_ON_DESTINATION
    return name, _queue_type(name, PRIVATE_ON_SOURCE)
