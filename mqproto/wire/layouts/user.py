"""The UserHeader: source, destination and delivery of a message.  [MS-MQMQ] 2.2.19.2"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from construct import Int16ul, Int32ul, Rebuild, this

from mqproto.wire.guid import NULL_GUID, Guid
from mqproto.wire.layouts.base import INFINITE
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import (
    Absent,
    GuidOctets,
    OneOf,
    Pad4,
    Single,
    Text,
    When,
    is_one_of,
    wide_size_,
)
from mqproto.wire.schema.record import Bit, Bits, Record

MAXIMUM_HOP_COUNT: Final = 0x1D


@dataclass(frozen=True, slots=True)
class PrivateQueueFormatName:
    """A private queue and the queue manager that hosts it.  [MS-MQMQ] 2.2.18.1.7.2"""

    source_queue_manager: Guid
    private_queue_identifier: int


private_queue_format_name = Record(
    PrivateQueueFormatName,
    Layout(
        "[MS-MQMQ] 2.2.18.1.7.2",
        "source_queue_manager" / GuidOctets(),
        "private_queue_identifier" / Int32ul,
    ),
)

# The bits of UserHeader.Flags that choose a name's layout. 1, "same as the administration queue", has none.
NO_QUEUE: Final = 0
SAME_AS_ADMIN_QUEUE: Final = 1
PRIVATE_ON_SOURCE: Final = 2
PRIVATE_ON_DESTINATION: Final = 3
PRIVATE_ON_ADMIN_HOST: Final = 4
PUBLIC: Final = 5
PRIVATE_ELSEWHERE: Final = 6
DIRECT: Final = 7

QueueName: TypeAlias = int | Guid | PrivateQueueFormatName | str | None
"""The name of a queue, in one of its forms; None if there is no queue.

It is a private queue's identifier, a public queue's GUID, a private queue's identifier with its queue manager, or a
direct name.
"""


@dataclass(slots=True)
class UserHeader:
    """The source, destination and delivery of a message.  [MS-MQMQ] 2.2.19.2

    The type bits in `flags` (destination_type, admin_type, response_type) give the kind of each queue name, and must
    match it. The padding after a direct name may contain any bytes.
    """

    source_queue_manager: Guid = NULL_GUID
    queue_manager_address: Guid = NULL_GUID
    time_to_be_received_s: int = INFINITE
    sent_time_s: int = 0
    message_id: int = 0
    flags: int = 0x00200000
    destination_queue: QueueName = None
    destination_padding: bytes = field(default=b"", compare=False, repr=False)
    admin_queue: QueueName = None
    admin_padding: bytes = field(default=b"", compare=False, repr=False)
    response_queue: QueueName = None
    response_padding: bytes = field(default=b"", compare=False, repr=False)
    connector_type: Guid | None = None

    hop_count = Bits(0, 5)
    delivery_mode = Bits(5, 2)
    recoverable = Bit(5)
    journal_negative = Bit(8)
    journal_positive = Bit(9)
    destination_type = Bits(10, 3)
    admin_type = Bits(13, 3)
    response_type = Bits(16, 3)
    has_security = Bit(19)
    has_transaction = Bit(20)
    has_properties = Bit(21)
    has_connector_type = Bit(22)
    has_multi_queue_format = Bit(23)
    over_http = Bit(25)
    has_soap = Bit(28)


_flags = this.flags
_destination_type = UserHeader.destination_type.within(_flags)
_admin_type = UserHeader.admin_type.within(_flags)
_response_type = UserHeader.response_type.within(_flags)
_delivery_mode = UserHeader.delivery_mode.within(_flags)
_hop_count = UserHeader.hop_count.within(_flags)

direct_queue_format_name = Single(
    "name",
    Layout(
        "[MS-MQMQ] 2.2.18.1.5.2",
        "count" / Rebuild(Int16ul, wide_size_(this.name)),
        Must("count", this.count >= 2, "at least 2, the bytes of the NUL"),
        Must("count", this.count & 1 == 0, "even, as WCHARs take two bytes"),
        "name" / Text(this.count),
    ),
)

# In the order in which the generated codec tests them: the common ones first.
_no_name = Absent()
_names = {
    NO_QUEUE: _no_name,
    SAME_AS_ADMIN_QUEUE: _no_name,
    PRIVATE_ON_SOURCE: Int32ul,
    PRIVATE_ON_DESTINATION: Int32ul,
    PRIVATE_ON_ADMIN_HOST: Int32ul,
    DIRECT: direct_queue_format_name,
    PUBLIC: GuidOctets(),
    PRIVATE_ELSEWHERE: private_queue_format_name,
}

user_header = Record(
    UserHeader,
    Layout(
        "[MS-MQMQ] 2.2.19.2",
        "source_queue_manager" / GuidOctets(),
        "queue_manager_address" / GuidOctets(),
        "time_to_be_received_s" / Int32ul,
        "sent_time_s" / Int32ul,
        "message_id" / Int32ul,
        "flags" / Int32ul,
        Must("flags", _hop_count <= MAXIMUM_HOP_COUNT, "at most 29", part="hop_count", value=_hop_count),
        Must("flags", _delivery_mode <= 1, "0 or 1", part="delivery_mode", value=_delivery_mode),
        Must(
            "flags",
            is_one_of(_destination_type, NO_QUEUE, PRIVATE_ON_DESTINATION, PUBLIC, DIRECT),
            "0, 3, 5 or 7",
            part="destination_type",
            value=_destination_type,
        ),
        Must(
            "flags",
            is_one_of(
                _admin_type,
                NO_QUEUE,
                PRIVATE_ON_SOURCE,
                PRIVATE_ON_DESTINATION,
                PUBLIC,
                PRIVATE_ELSEWHERE,
                DIRECT,
            ),
            "0, 2, 3, 5, 6 or 7",
            part="admin_type",
            value=_admin_type,
        ),
        Must("flags", UserHeader.has_properties.within(_flags), "set in MP", part="has_properties", value=0),
        Must(
            "flags",
            (UserHeader.has_transaction.within(_flags) == 0) | (_delivery_mode != 0),
            "1, as a transactional message is recoverable",
            part="delivery_mode",
            value=_delivery_mode,
        ),
        Must(
            "flags",
            UserHeader.over_http.within(_flags) == 0,
            "0: the SRMPEnvelopeHeader and CompoundMessageHeader of [MS-MQRR] 2.2.5.1 are not sent",
            part="over_http",
            value=1,
        ),
        "destination_queue" / OneOf(_destination_type, _names),
        "destination_padding" / Pad4(),
        "admin_queue" / OneOf(_admin_type, _names),
        "admin_padding" / Pad4(),
        "response_queue" / OneOf(_response_type, _names),
        "response_padding" / Pad4(),
        "connector_type" / When(UserHeader.has_connector_type.within(_flags), GuidOctets()),
    ),
)
