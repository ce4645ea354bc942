"""Reads, judges and writes packets, acknowledgments and key blobs.

Generated from the layouts: change those, and then `make codec`. A test holds the two equal.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from codecs import utf_16_le_decode, utf_16_le_encode
from struct import Struct
from typing import Any, Final

from mqproto.wire.layouts.acknowledgment import FinalAckBody, OrderAckBody
from mqproto.wire.layouts.base import BaseHeader
from mqproto.wire.layouts.debug import DebugHeader
from mqproto.wire.layouts.internal import (
    ConnectionParameters,
    EstablishConnection,
    InternalHeader,
    SessionAck,
)
from mqproto.wire.layouts.multiqueue import (
    FormatNameList,
    MqfAddressHeader,
    MqfFormatNameElement,
    MqfSignatureHeader,
    MultiQueueFormatHeader,
)
from mqproto.wire.layouts.properties import MessagePropertiesHeader
from mqproto.wire.layouts.security import SecurityHeader
from mqproto.wire.layouts.session import SessionHeader
from mqproto.wire.layouts.soap import SoapHeader
from mqproto.wire.layouts.transaction import TransactionHeader, TxSequenceId
from mqproto.wire.layouts.user import PrivateQueueFormatName, UserHeader
from mqproto.wire.packets import UserMessage
from mqproto.wire.schema.refused import Refused
from mqproto.wire.schema.stream import NUL, nul_at

decode: Any = utf_16_le_decode
encode: Any = utf_16_le_encode
new: Any = object.__new__
ZEROS: Final = (b"", b"\0", b"\0\0", b"\0\0\0")

pack_0s: Final = Struct("<0s").pack
pack_16s: Final = Struct("<16s").pack
pack_16sL: Final = Struct("<16sL").pack
pack_BBH20sLLLLLLLL: Final = Struct("<BBH20sLLLLLLLL").pack
pack_BBHLLL16s16sLLLL: Final = Struct("<BBHLLL16s16sLLLL").pack
pack_BBHLLLHH16s16sLHH512s: Final = Struct("<BBHLLLHH16s16sLHH512s").pack
pack_BBHLLLHHHHLHHHH: Final = Struct("<BBHLLLHHHHLHHHH").pack
pack_BBHLLLHHLLHH: Final = Struct("<BBHLLLHHLLHH").pack
pack_H: Final = Struct("<H").pack
pack_HH: Final = Struct("<HH").pack
pack_HHHHLL: Final = Struct("<HHHHLL").pack
pack_HHL: Final = Struct("<HHL").pack
pack_HHLHHHH: Final = Struct("<HHLHHHH").pack
pack_L: Final = Struct("<L").pack
pack_LHHL: Final = Struct("<LHHL").pack
pack_LLLL16sL: Final = Struct("<LLLL16sL").pack
pack_LLLL20s: Final = Struct("<LLLL20s").pack
pack_LLLLL: Final = Struct("<LLLLL").pack
set_private_queue_format_name_private_queue_identifier: Final = vars(PrivateQueueFormatName)[
    "private_queue_identifier"
].__set__
set_private_queue_format_name_source_queue_manager: Final = vars(PrivateQueueFormatName)[
    "source_queue_manager"
].__set__
set_tx_sequence_id_ordinal: Final = vars(TxSequenceId)["ordinal"].__set__
set_tx_sequence_id_time_stamp: Final = vars(TxSequenceId)["time_stamp"].__set__
unpack_0s: Final = Struct("<0s").unpack_from
unpack_16s: Final = Struct("<16s").unpack_from
unpack_16sL: Final = Struct("<16sL").unpack_from
unpack_1xB30xL16xL: Final = Struct("<1xB30xL16xL").unpack_from
unpack_2xH56xL: Final = Struct("<2xH56xL").unpack_from
unpack_2xHHHLL: Final = Struct("<2xHHHLL").unpack_from
unpack_4xL: Final = Struct("<4xL").unpack_from
unpack_60xL: Final = Struct("<60xL").unpack_from
unpack_B1xHLL48xL: Final = Struct("<B1xHLL48xL").unpack_from
unpack_BBH20sLLLLLLLL: Final = Struct("<BBH20sLLLLLLLL").unpack_from
unpack_BBHLLL16s16sLLLL: Final = Struct("<BBHLLL16s16sLLLL").unpack_from
unpack_BBHLLLHH16s16sLHH512s: Final = Struct("<BBHLLLHH16s16sLHH512s").unpack_from
unpack_BBHLLLHHHHLHHHH: Final = Struct("<BBHLLLHHHHLHHHH").unpack_from
unpack_BBHLLLHHLLHH: Final = Struct("<BBHLLLHHLLHH").unpack_from
unpack_H: Final = Struct("<H").unpack_from
unpack_H2x: Final = Struct("<H2x").unpack_from
unpack_H2xL: Final = Struct("<H2xL").unpack_from
unpack_HH: Final = Struct("<HH").unpack_from
unpack_HHHHLL: Final = Struct("<HHHHLL").unpack_from
unpack_HHL: Final = Struct("<HHL").unpack_from
unpack_HHLHHHH: Final = Struct("<HHLHHHH").unpack_from
unpack_L: Final = Struct("<L").unpack_from
unpack_L16x: Final = Struct("<L16x").unpack_from
unpack_L4xL: Final = Struct("<L4xL").unpack_from
unpack_L8xLL: Final = Struct("<L8xLL").unpack_from
unpack_LH2xL: Final = Struct("<LH2xL").unpack_from
unpack_LHHL: Final = Struct("<LHHL").unpack_from
unpack_LLLL16sL: Final = Struct("<LLLL16sL").unpack_from
unpack_LLLL20s: Final = Struct("<LLLL20s").unpack_from
unpack_LLLLL: Final = Struct("<LLLLL").unpack_from


def read_each_mqf_format_name_element(data: bytes, at: int, end: int, count: int) -> tuple[list[Any], int]:
    """Read `count` MqfFormatNameElement from `at` on; return them and their end.  [MS-MQMQ] 2.2.18.1.4"""
    items = []
    for _ in range(count):
        (item__format_type,) = unpack_H(data, at)
        if not ((item__format_type <= 7) & ((78 >> (item__format_type & 7)) & 1)):
            raise Refused
        at += 2
        if (choice1 := item__format_type) in (1, 3):
            (item__padding,) = unpack_0s(data, at)
        elif choice1 in (2, 6):
            if at & 3:
                stop = at + (-at & 3)
                if stop > end:
                    raise Refused
                item__padding = data[at:stop]
                at = stop
            else:
                item__padding = b""
        else:
            raise Refused
        if (choice2 := item__format_type) == 3:
            stop = nul_at(data, at, end)
            if stop < 0:
                raise Refused
            item__format_name = decode(data[at:stop], "surrogatepass", True)[0]
            at = stop + 2
        elif choice2 == 2:
            item__format_name__source_queue_manager, item__format_name__private_queue_identifier = (
                unpack_16sL(data, at)
            )
            at += 20
            item__format_name = new(PrivateQueueFormatName)
            set_private_queue_format_name_source_queue_manager(
                item__format_name, item__format_name__source_queue_manager
            )
            set_private_queue_format_name_private_queue_identifier(
                item__format_name, item__format_name__private_queue_identifier
            )
        elif choice2 in (1, 6):
            (item__format_name,) = unpack_16s(data, at)
            at += 16
        else:
            raise Refused
        item = new(MqfFormatNameElement)
        item.format_type = item__format_type
        item.padding = item__padding
        item.format_name = item__format_name
        items.append(item)
    return items, at


def read_user_message(data: bytes, session: Any) -> UserMessage:
    """Read one UserMessage from its bytes.  [MS-MQMQ] 2.2.20"""
    end = len(data)
    (
        base__version_number,
        base__reserved,
        base__flags,
        base__signature,
        base__packet_size,
        base__time_to_reach_queue_s,
        user__source_queue_manager,
        user__queue_manager_address,
        user__time_to_be_received_s,
        user__sent_time_s,
        user__message_id,
        user__flags,
    ) = unpack_BBHLLL16s16sLLLL(data)
    if (
        base__version_number != 16
        or base__signature != 1380927820
        or base__packet_size != end
        or not (base__packet_size <= 4194304)
        or not (base__packet_size >= 32)
        or not ((base__packet_size >= 120) or ((base__flags & 8) != 0))
        or not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((user__flags & 31) <= 29)
        or not ((169 >> ((user__flags >> 10) & 7)) & 1)
        or not ((237 >> ((user__flags >> 13) & 7)) & 1)
        or not (((user__flags & 1048576) == 0) or (((user__flags >> 5) & 3) != 0))
        or base__flags & 0x8 != 0x0
        or user__flags & 0x2200040 != 0x200000
    ):
        raise Refused
    at = 64
    if (choice1 := ((user__flags >> 10) & 7)) <= 1:
        user__destination_queue = None
        user__destination_padding = b""
    elif choice1 <= 4:
        (user__destination_queue,) = unpack_L(data, at)
        at += 4
        user__destination_padding = b""
    elif choice1 == 7:
        (user__destination_queue__count,) = unpack_H(data, at)
        if not (user__destination_queue__count >= 2) or user__destination_queue__count & 0x1 != 0x0:
            raise Refused
        at += 2
        size = user__destination_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            user__destination_queue__name = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in user__destination_queue__name:
                raise Refused
            at = stop
        else:
            user__destination_queue__name = None
        user__destination_queue = user__destination_queue__name
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            user__destination_padding = data[at:stop]
            at = stop
        else:
            user__destination_padding = b""
    elif choice1 == 5:
        (user__destination_queue,) = unpack_16s(data, at)
        at += 16
        user__destination_padding = b""
    elif choice1 == 6:
        user__destination_queue__source_queue_manager, user__destination_queue__private_queue_identifier = (
            unpack_16sL(data, at)
        )
        at += 20
        user__destination_padding = b""
        user__destination_queue = new(PrivateQueueFormatName)
        set_private_queue_format_name_source_queue_manager(
            user__destination_queue, user__destination_queue__source_queue_manager
        )
        set_private_queue_format_name_private_queue_identifier(
            user__destination_queue, user__destination_queue__private_queue_identifier
        )
    else:
        raise Refused
    if (choice2 := ((user__flags >> 13) & 7)) <= 1:
        user__admin_queue = None
        user__admin_padding = b""
    elif choice2 <= 4:
        (user__admin_queue,) = unpack_L(data, at)
        at += 4
        user__admin_padding = b""
    elif choice2 == 7:
        (user__admin_queue__count,) = unpack_H(data, at)
        if not (user__admin_queue__count >= 2) or user__admin_queue__count & 0x1 != 0x0:
            raise Refused
        at += 2
        size = user__admin_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            user__admin_queue__name = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in user__admin_queue__name:
                raise Refused
            at = stop
        else:
            user__admin_queue__name = None
        user__admin_queue = user__admin_queue__name
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            user__admin_padding = data[at:stop]
            at = stop
        else:
            user__admin_padding = b""
    elif choice2 == 5:
        (user__admin_queue,) = unpack_16s(data, at)
        at += 16
        user__admin_padding = b""
    elif choice2 == 6:
        user__admin_queue__source_queue_manager, user__admin_queue__private_queue_identifier = unpack_16sL(
            data, at
        )
        at += 20
        user__admin_padding = b""
        user__admin_queue = new(PrivateQueueFormatName)
        set_private_queue_format_name_source_queue_manager(
            user__admin_queue, user__admin_queue__source_queue_manager
        )
        set_private_queue_format_name_private_queue_identifier(
            user__admin_queue, user__admin_queue__private_queue_identifier
        )
    else:
        raise Refused
    if (choice3 := ((user__flags >> 16) & 7)) <= 1:
        user__response_queue = None
        user__response_padding = b""
    elif choice3 <= 4:
        (user__response_queue,) = unpack_L(data, at)
        at += 4
        user__response_padding = b""
    elif choice3 == 7:
        (user__response_queue__count,) = unpack_H(data, at)
        if not (user__response_queue__count >= 2) or user__response_queue__count & 0x1 != 0x0:
            raise Refused
        at += 2
        size = user__response_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            user__response_queue__name = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in user__response_queue__name:
                raise Refused
            at = stop
        else:
            user__response_queue__name = None
        user__response_queue = user__response_queue__name
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            user__response_padding = data[at:stop]
            at = stop
        else:
            user__response_padding = b""
    elif choice3 == 5:
        (user__response_queue,) = unpack_16s(data, at)
        at += 16
        user__response_padding = b""
    elif choice3 == 6:
        user__response_queue__source_queue_manager, user__response_queue__private_queue_identifier = (
            unpack_16sL(data, at)
        )
        at += 20
        user__response_padding = b""
        user__response_queue = new(PrivateQueueFormatName)
        set_private_queue_format_name_source_queue_manager(
            user__response_queue, user__response_queue__source_queue_manager
        )
        set_private_queue_format_name_private_queue_identifier(
            user__response_queue, user__response_queue__private_queue_identifier
        )
    else:
        raise Refused
    if user__flags & 4194304:
        (user__connector_type,) = unpack_16s(data, at)
        at += 16
    else:
        user__connector_type = None
    if user__flags & 1048576:
        (
            transaction__flags,
            transaction__tx_sequence_id__ordinal,
            transaction__tx_sequence_id__time_stamp,
            transaction__tx_sequence_number,
            transaction__previous_tx_sequence_number,
        ) = unpack_LLLLL(data, at)
        if not (transaction__tx_sequence_number >= 1) or not (
            transaction__previous_tx_sequence_number <= 4294967294
        ):
            raise Refused
        at += 20
        if transaction__flags & 1:
            (transaction__connector_qm_guid,) = unpack_16s(data, at)
            at += 16
        else:
            transaction__connector_qm_guid = None
        transaction__tx_sequence_id = new(TxSequenceId)
        set_tx_sequence_id_time_stamp(transaction__tx_sequence_id, transaction__tx_sequence_id__time_stamp)
        set_tx_sequence_id_ordinal(transaction__tx_sequence_id, transaction__tx_sequence_id__ordinal)
        transaction = new(TransactionHeader)
        transaction.flags = transaction__flags
        transaction.tx_sequence_id = transaction__tx_sequence_id
        transaction.tx_sequence_number = transaction__tx_sequence_number
        transaction.previous_tx_sequence_number = transaction__previous_tx_sequence_number
        transaction.connector_qm_guid = transaction__connector_qm_guid
    else:
        transaction = None
    if user__flags & 524288:
        (
            security__flags,
            security__sender_id_size,
            security__encryption_key_size,
            security__signature_size,
            security__sender_cert_size,
            security__provider_info_size,
        ) = unpack_HHHHLL(data, at)
        if (
            not ((security__flags & 15) <= 2)
            or not (((security__flags & 15) != 0) or (security__sender_id_size == 0))
            or not (security__sender_cert_size <= 65535)
            or not (
                (
                    (
                        (
                            (security__sender_id_size + security__encryption_key_size)
                            + security__signature_size
                        )
                        + security__sender_cert_size
                    )
                    + security__provider_info_size
                )
                > 0
            )
        ):
            raise Refused
        at += 16
        if security__sender_id_size:
            stop = at + security__sender_id_size
            if stop > end:
                raise Refused
            security__sender_id = data[at:stop]
            at = stop
        else:
            security__sender_id = b""
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            security__sender_id_padding = data[at:stop]
            at = stop
        else:
            security__sender_id_padding = b""
        if security__encryption_key_size:
            stop = at + security__encryption_key_size
            if stop > end:
                raise Refused
            security__encryption_key = data[at:stop]
            at = stop
        else:
            security__encryption_key = b""
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            security__encryption_key_padding = data[at:stop]
            at = stop
        else:
            security__encryption_key_padding = b""
        if security__signature_size:
            stop = at + security__signature_size
            if stop > end:
                raise Refused
            security__signature = data[at:stop]
            at = stop
        else:
            security__signature = b""
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            security__signature_padding = data[at:stop]
            at = stop
        else:
            security__signature_padding = b""
        if security__sender_cert_size:
            stop = at + security__sender_cert_size
            if stop > end:
                raise Refused
            security__sender_cert = data[at:stop]
            at = stop
        else:
            security__sender_cert = b""
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            security__sender_cert_padding = data[at:stop]
            at = stop
        else:
            security__sender_cert_padding = b""
        if security__provider_info_size:
            stop = at + security__provider_info_size
            if stop > end:
                raise Refused
            security__provider_info = data[at:stop]
            at = stop
        else:
            security__provider_info = b""
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            security__provider_info_padding = data[at:stop]
            at = stop
        else:
            security__provider_info_padding = b""
        security = new(SecurityHeader)
        security.flags = security__flags
        security.sender_id = security__sender_id
        security.sender_id_padding = security__sender_id_padding
        security.encryption_key = security__encryption_key
        security.encryption_key_padding = security__encryption_key_padding
        security.signature = security__signature
        security.signature_padding = security__signature_padding
        security.sender_cert = security__sender_cert
        security.sender_cert_padding = security__sender_cert_padding
        security.provider_info = security__provider_info
        security.provider_info_padding = security__provider_info_padding
    else:
        security = None
    (
        properties__flags,
        properties__label_length,
        properties__message_class,
        properties__correlation_id,
        properties__body_type,
        properties__application_tag,
        properties__message_size,
        properties__allocation_body_size,
        properties__privacy_level,
        properties__hash_algorithm,
        properties__encryption_algorithm,
        properties__extension_size,
    ) = unpack_BBH20sLLLLLLLL(data, at)
    if not (properties__label_length <= 250):
        raise Refused
    at += 56
    size = properties__label_length * 2
    if size:
        stop = at + size
        if stop > end:
            raise Refused
        properties__label = decode(data[at : stop - 2], "surrogatepass", True)[0]
        if data[stop - 2] or data[stop - 1] or "\0" in properties__label:
            raise Refused
        at = stop
    else:
        properties__label = None
    if properties__extension_size:
        stop = at + properties__extension_size
        if stop > end:
            raise Refused
        properties__extension_data = data[at:stop]
        at = stop
    else:
        properties__extension_data = b""
    if properties__message_size:
        stop = at + properties__message_size
        if stop > end:
            raise Refused
        properties__message_body = data[at:stop]
        at = stop
    else:
        properties__message_body = b""
    if at & 3:
        stop = at + (-at & 3)
        if stop > end:
            raise Refused
        properties__padding = data[at:stop]
        at = stop
    else:
        properties__padding = b""
    if base__flags & 32:
        debug__flags, debug__reserved = unpack_HH(data, at)
        if debug__flags & 0x2 != 0x0:
            raise Refused
        at += 4
        if (debug__flags & 3) == 1:
            (debug__queue_identifier,) = unpack_16s(data, at)
            at += 16
        else:
            debug__queue_identifier = None
        debug = new(DebugHeader)
        debug.flags = debug__flags
        debug.reserved = debug__reserved
        debug.queue_identifier = debug__queue_identifier
    else:
        debug = None
    if user__flags & 268435456:
        soap__header_section_id, soap__reserved, soap__header_data_length = unpack_HHL(data, at)
        if soap__header_section_id != 800:
            raise Refused
        at += 8
        size = soap__header_data_length * 2
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            soap__header = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in soap__header:
                raise Refused
            at = stop
        else:
            soap__header = None
        soap__body_section_id, soap__reserved1, soap__body_data_length = unpack_HHL(data, at)
        if soap__body_section_id != 900:
            raise Refused
        at += 8
        size = soap__body_data_length * 2
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            soap__body = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in soap__body:
                raise Refused
            at = stop
        else:
            soap__body = None
        soap = new(SoapHeader)
        soap.reserved = soap__reserved
        soap.header = soap__header
        soap.reserved1 = soap__reserved1
        soap.body = soap__body
    else:
        soap = None
    if user__flags & 8388608:
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            multi_queue_format__leading_padding = data[at:stop]
            at = stop
        else:
            multi_queue_format__leading_padding = b""
        (
            multi_queue_format__destination__header_size,
            multi_queue_format__destination__header_id,
            multi_queue_format__destination__reserved,
            multi_queue_format__destination__element_count,
        ) = unpack_LHHL(data, at)
        if (
            not (multi_queue_format__destination__header_size >= 12)
            or multi_queue_format__destination__header_id != 100
            or not (multi_queue_format__destination__element_count <= 4096)
            or not (
                (multi_queue_format__destination__element_count * 4)
                <= (multi_queue_format__destination__header_size - 12)
            )
        ):
            raise Refused
        at += 12
        outside, end = end, at + (multi_queue_format__destination__header_size - 12)
        if end > outside:
            raise Refused
        multi_queue_format__destination__format_name_list__elements, at = read_each_mqf_format_name_element(
            data, at, end, multi_queue_format__destination__element_count
        )
        if at > end:
            raise Refused
        multi_queue_format__destination__format_name_list__padding = data[at:end] if at != end else b""
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            multi_queue_format__destination__padding = data[at:stop]
            at = stop
        else:
            multi_queue_format__destination__padding = b""
        (
            multi_queue_format__administration__header_size,
            multi_queue_format__administration__header_id,
            multi_queue_format__administration__reserved,
            multi_queue_format__administration__element_count,
        ) = unpack_LHHL(data, at)
        if (
            not (multi_queue_format__administration__header_size >= 12)
            or multi_queue_format__administration__header_id != 200
            or not (multi_queue_format__administration__element_count <= 4096)
            or not (
                (multi_queue_format__administration__element_count * 4)
                <= (multi_queue_format__administration__header_size - 12)
            )
        ):
            raise Refused
        at += 12
        outside, end = end, at + (multi_queue_format__administration__header_size - 12)
        if end > outside:
            raise Refused
        multi_queue_format__administration__format_name_list__elements, at = (
            read_each_mqf_format_name_element(
                data, at, end, multi_queue_format__administration__element_count
            )
        )
        if at > end:
            raise Refused
        multi_queue_format__administration__format_name_list__padding = data[at:end] if at != end else b""
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            multi_queue_format__administration__padding = data[at:stop]
            at = stop
        else:
            multi_queue_format__administration__padding = b""
        (
            multi_queue_format__response__header_size,
            multi_queue_format__response__header_id,
            multi_queue_format__response__reserved,
            multi_queue_format__response__element_count,
        ) = unpack_LHHL(data, at)
        if (
            not (multi_queue_format__response__header_size >= 12)
            or multi_queue_format__response__header_id != 300
            or not (multi_queue_format__response__element_count <= 4096)
            or not (
                (multi_queue_format__response__element_count * 4)
                <= (multi_queue_format__response__header_size - 12)
            )
        ):
            raise Refused
        at += 12
        outside, end = end, at + (multi_queue_format__response__header_size - 12)
        if end > outside:
            raise Refused
        multi_queue_format__response__format_name_list__elements, at = read_each_mqf_format_name_element(
            data, at, end, multi_queue_format__response__element_count
        )
        if at > end:
            raise Refused
        multi_queue_format__response__format_name_list__padding = data[at:end] if at != end else b""
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            stop = at + (-at & 3)
            if stop > end:
                raise Refused
            multi_queue_format__response__padding = data[at:stop]
            at = stop
        else:
            multi_queue_format__response__padding = b""
        (
            multi_queue_format__signature__id,
            multi_queue_format__signature__reserved,
            multi_queue_format__signature__size,
        ) = unpack_HHL(data, at)
        if multi_queue_format__signature__id != 350:
            raise Refused
        at += 8
        if multi_queue_format__signature__size:
            stop = at + multi_queue_format__signature__size
            if stop > end:
                raise Refused
            multi_queue_format__signature__signature = data[at:stop]
            at = stop
        else:
            multi_queue_format__signature__signature = b""
        multi_queue_format__destination__format_name_list = new(FormatNameList)
        multi_queue_format__destination__format_name_list.elements = (
            multi_queue_format__destination__format_name_list__elements
        )
        multi_queue_format__destination__format_name_list.padding = (
            multi_queue_format__destination__format_name_list__padding
        )
        multi_queue_format__destination = new(MqfAddressHeader)
        multi_queue_format__destination.reserved = multi_queue_format__destination__reserved
        multi_queue_format__destination.format_name_list = multi_queue_format__destination__format_name_list
        multi_queue_format__destination.padding = multi_queue_format__destination__padding
        multi_queue_format__administration__format_name_list = new(FormatNameList)
        multi_queue_format__administration__format_name_list.elements = (
            multi_queue_format__administration__format_name_list__elements
        )
        multi_queue_format__administration__format_name_list.padding = (
            multi_queue_format__administration__format_name_list__padding
        )
        multi_queue_format__administration = new(MqfAddressHeader)
        multi_queue_format__administration.reserved = multi_queue_format__administration__reserved
        multi_queue_format__administration.format_name_list = (
            multi_queue_format__administration__format_name_list
        )
        multi_queue_format__administration.padding = multi_queue_format__administration__padding
        multi_queue_format__response__format_name_list = new(FormatNameList)
        multi_queue_format__response__format_name_list.elements = (
            multi_queue_format__response__format_name_list__elements
        )
        multi_queue_format__response__format_name_list.padding = (
            multi_queue_format__response__format_name_list__padding
        )
        multi_queue_format__response = new(MqfAddressHeader)
        multi_queue_format__response.reserved = multi_queue_format__response__reserved
        multi_queue_format__response.format_name_list = multi_queue_format__response__format_name_list
        multi_queue_format__response.padding = multi_queue_format__response__padding
        multi_queue_format__signature = new(MqfSignatureHeader)
        multi_queue_format__signature.reserved = multi_queue_format__signature__reserved
        multi_queue_format__signature.signature = multi_queue_format__signature__signature
        multi_queue_format = new(MultiQueueFormatHeader)
        multi_queue_format.leading_padding = multi_queue_format__leading_padding
        multi_queue_format.destination = multi_queue_format__destination
        multi_queue_format.administration = multi_queue_format__administration
        multi_queue_format.response = multi_queue_format__response
        multi_queue_format.signature = multi_queue_format__signature
    else:
        multi_queue_format = None
    trailing = data[at:end] if at != end else b""
    at = end
    if at != end:
        raise Refused
    base = new(BaseHeader)
    base.reserved = base__reserved
    base.flags = base__flags
    base.time_to_reach_queue_s = base__time_to_reach_queue_s
    user = new(UserHeader)
    user.source_queue_manager = user__source_queue_manager
    user.queue_manager_address = user__queue_manager_address
    user.time_to_be_received_s = user__time_to_be_received_s
    user.sent_time_s = user__sent_time_s
    user.message_id = user__message_id
    user.flags = user__flags
    user.destination_queue = user__destination_queue
    user.destination_padding = user__destination_padding
    user.admin_queue = user__admin_queue
    user.admin_padding = user__admin_padding
    user.response_queue = user__response_queue
    user.response_padding = user__response_padding
    user.connector_type = user__connector_type
    properties = new(MessagePropertiesHeader)
    properties.flags = properties__flags
    properties.message_class = properties__message_class
    properties.correlation_id = properties__correlation_id
    properties.body_type = properties__body_type
    properties.application_tag = properties__application_tag
    properties.allocation_body_size = properties__allocation_body_size
    properties.privacy_level = properties__privacy_level
    properties.hash_algorithm = properties__hash_algorithm
    properties.encryption_algorithm = properties__encryption_algorithm
    properties.label = properties__label
    properties.extension_data = properties__extension_data
    properties.message_body = properties__message_body
    properties.padding = properties__padding
    whole = new(UserMessage)
    whole.base = base
    whole.user = user
    whole.transaction = transaction
    whole.security = security
    whole.properties = properties
    whole.debug = debug
    whole.soap = soap
    whole.multi_queue_format = multi_queue_format
    whole.session = session
    whole.trailing = trailing
    return whole


def read_session_header(data: bytes) -> SessionHeader:
    """Read one SessionHeader from its bytes.  [MS-MQMQ] 2.2.20.4"""
    end = len(data)
    (
        ack_sequence_number,
        recoverable_msg_ack_seq_number,
        recoverable_msg_ack_flags,
        user_msg_sequence_number,
        recoverable_msg_seq_number,
        window_size,
        reserved,
    ) = unpack_HHLHHHH(data)
    if not (window_size >= 1):
        raise Refused
    at = 16
    if at != end:
        raise Refused
    whole = new(SessionHeader)
    whole.ack_sequence_number = ack_sequence_number
    whole.recoverable_msg_ack_seq_number = recoverable_msg_ack_seq_number
    whole.recoverable_msg_ack_flags = recoverable_msg_ack_flags
    whole.user_msg_sequence_number = user_msg_sequence_number
    whole.recoverable_msg_seq_number = recoverable_msg_seq_number
    whole.window_size = window_size
    whole.reserved = reserved
    return whole


def read_session_ack(data: bytes) -> SessionAck:
    """Read one SessionAck from its bytes.  [MS-MQQB] 2.2.6"""
    end = len(data)
    (
        base__version_number,
        base__reserved,
        base__flags,
        base__signature,
        base__packet_size,
        base__time_to_reach_queue_s,
        internal__reserved,
        internal__flags,
        session__ack_sequence_number,
        session__recoverable_msg_ack_seq_number,
        session__recoverable_msg_ack_flags,
        session__user_msg_sequence_number,
        session__recoverable_msg_seq_number,
        session__window_size,
        session__reserved,
    ) = unpack_BBHLLLHHHHLHHHH(data)
    if (
        base__version_number != 16
        or base__signature != 1380927820
        or base__packet_size != end
        or not (base__packet_size <= 4194304)
        or not (base__packet_size >= 32)
        or not ((base__packet_size >= 120) or ((base__flags & 8) != 0))
        or not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((((internal__flags & 15) - 1) & 15) <= 2)
        or not ((internal__flags & 15) == 1)
        or not (base__packet_size == 36)
        or not (session__window_size >= 1)
        or base__flags & 0x18 != 0x18
    ):
        raise Refused
    at = 36
    if at != end:
        raise Refused
    base = new(BaseHeader)
    base.reserved = base__reserved
    base.flags = base__flags
    base.time_to_reach_queue_s = base__time_to_reach_queue_s
    internal = new(InternalHeader)
    internal.reserved = internal__reserved
    internal.flags = internal__flags
    session = new(SessionHeader)
    session.ack_sequence_number = session__ack_sequence_number
    session.recoverable_msg_ack_seq_number = session__recoverable_msg_ack_seq_number
    session.recoverable_msg_ack_flags = session__recoverable_msg_ack_flags
    session.user_msg_sequence_number = session__user_msg_sequence_number
    session.recoverable_msg_seq_number = session__recoverable_msg_seq_number
    session.window_size = session__window_size
    session.reserved = session__reserved
    whole = new(SessionAck)
    whole.base = base
    whole.internal = internal
    whole.session = session
    return whole


def read_establish_connection(data: bytes) -> EstablishConnection:
    """Read one EstablishConnection from its bytes.  [MS-MQQB] 2.2.3"""
    end = len(data)
    (
        base__version_number,
        base__reserved,
        base__flags,
        base__signature,
        base__packet_size,
        base__time_to_reach_queue_s,
        internal__reserved,
        internal__flags,
        client_guid,
        server_guid,
        time_stamp_ms,
        operating_system,
        reserved,
        padding,
    ) = unpack_BBHLLLHH16s16sLHH512s(data)
    if (
        base__version_number != 16
        or base__signature != 1380927820
        or base__packet_size != end
        or not (base__packet_size <= 4194304)
        or not (base__packet_size >= 32)
        or not ((base__packet_size >= 120) or ((base__flags & 8) != 0))
        or not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((((internal__flags & 15) - 1) & 15) <= 2)
        or not ((internal__flags & 15) == 2)
        or not (base__packet_size == 572)
        or not ((operating_system & 255) == 16)
        or base__flags & 0x8 != 0x8
    ):
        raise Refused
    at = 572
    if at != end:
        raise Refused
    base = new(BaseHeader)
    base.reserved = base__reserved
    base.flags = base__flags
    base.time_to_reach_queue_s = base__time_to_reach_queue_s
    internal = new(InternalHeader)
    internal.reserved = internal__reserved
    internal.flags = internal__flags
    whole = new(EstablishConnection)
    whole.base = base
    whole.internal = internal
    whole.client_guid = client_guid
    whole.server_guid = server_guid
    whole.time_stamp_ms = time_stamp_ms
    whole.operating_system = operating_system
    whole.reserved = reserved
    whole.padding = padding
    return whole


def read_connection_parameters(data: bytes) -> ConnectionParameters:
    """Read one ConnectionParameters from its bytes.  [MS-MQQB] 2.2.2.1"""
    end = len(data)
    (
        base__version_number,
        base__reserved,
        base__flags,
        base__signature,
        base__packet_size,
        base__time_to_reach_queue_s,
        internal__reserved,
        internal__flags,
        recoverable_ack_timeout_ms,
        ack_timeout_ms,
        reserved,
        window_size,
    ) = unpack_BBHLLLHHLLHH(data)
    if (
        base__version_number != 16
        or base__signature != 1380927820
        or base__packet_size != end
        or not (base__packet_size <= 4194304)
        or not (base__packet_size >= 32)
        or not ((base__packet_size >= 120) or ((base__flags & 8) != 0))
        or not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((((internal__flags & 15) - 1) & 15) <= 2)
        or not ((internal__flags & 15) == 3)
        or not (base__packet_size == 32)
        or not (recoverable_ack_timeout_ms >= 500)
        or not (recoverable_ack_timeout_ms <= 120000)
        or not (ack_timeout_ms >= 20000)
        or not (ack_timeout_ms <= 120000)
        or base__flags & 0x8 != 0x8
    ):
        raise Refused
    at = 32
    if at != end:
        raise Refused
    base = new(BaseHeader)
    base.reserved = base__reserved
    base.flags = base__flags
    base.time_to_reach_queue_s = base__time_to_reach_queue_s
    internal = new(InternalHeader)
    internal.reserved = internal__reserved
    internal.flags = internal__flags
    whole = new(ConnectionParameters)
    whole.base = base
    whole.internal = internal
    whole.recoverable_ack_timeout_ms = recoverable_ack_timeout_ms
    whole.ack_timeout_ms = ack_timeout_ms
    whole.reserved = reserved
    whole.window_size = window_size
    return whole


def read_order_ack_body(data: bytes) -> OrderAckBody:
    """Read one OrderAckBody from its bytes.  [MS-MQQB] 2.2.4.1"""
    end = len(data)
    (
        tx_sequence_id__ordinal,
        tx_sequence_id__time_stamp,
        tx_sequence_number,
        tx_previous_sequence_number,
        reserved,
    ) = unpack_LLLL20s(data)
    at = 36
    if at != end:
        raise Refused
    tx_sequence_id = new(TxSequenceId)
    set_tx_sequence_id_time_stamp(tx_sequence_id, tx_sequence_id__time_stamp)
    set_tx_sequence_id_ordinal(tx_sequence_id, tx_sequence_id__ordinal)
    whole = new(OrderAckBody)
    whole.tx_sequence_id = tx_sequence_id
    whole.tx_sequence_number = tx_sequence_number
    whole.tx_previous_sequence_number = tx_previous_sequence_number
    whole.reserved = reserved
    return whole


def read_final_ack_body(data: bytes) -> FinalAckBody:
    """Read one FinalAckBody from its bytes.  [MS-MQQB] 2.2.5.1"""
    end = len(data)
    (
        tx_sequence_id__ordinal,
        tx_sequence_id__time_stamp,
        tx_sequence_number,
        tx_previous_sequence_number,
        source_guid,
        message_id,
    ) = unpack_LLLL16sL(data)
    at = 36
    if at != end:
        raise Refused
    tx_sequence_id = new(TxSequenceId)
    set_tx_sequence_id_time_stamp(tx_sequence_id, tx_sequence_id__time_stamp)
    set_tx_sequence_id_ordinal(tx_sequence_id, tx_sequence_id__ordinal)
    whole = new(FinalAckBody)
    whole.tx_sequence_id = tx_sequence_id
    whole.tx_sequence_number = tx_sequence_number
    whole.tx_previous_sequence_number = tx_previous_sequence_number
    whole.source_guid = source_guid
    whole.message_id = message_id
    return whole


def check_each_mqf_format_name_element(data: bytes, at: int, end: int, count: int) -> int:
    """Refuse what `read_each_mqf_format_name_element` refuses; return their end."""
    for _ in range(count):
        (item__format_type,) = unpack_H(data, at)
        if not ((item__format_type <= 7) & ((78 >> (item__format_type & 7)) & 1)):
            raise Refused
        at += 2
        if (choice1 := item__format_type) in (1, 3):
            pass
        elif choice1 in (2, 6):
            if at & 3:
                at += -at & 3
        else:
            raise Refused
        if (choice2 := item__format_type) == 3:
            stop = nul_at(data, at, end)
            if stop < 0:
                raise Refused
            at = stop + 2
        elif choice2 == 2:
            at += 20
        elif choice2 in (1, 6):
            at += 16
        else:
            raise Refused
    return at


def check_user_message(data: bytes) -> None:
    """Refuse what `read_user_message` refuses."""
    end = len(data)
    base__version_number, base__flags, base__signature, base__packet_size, user__flags = unpack_B1xHLL48xL(
        data
    )
    if (
        base__version_number != 16
        or base__signature != 1380927820
        or base__packet_size != end
        or not (base__packet_size <= 4194304)
        or not (base__packet_size >= 32)
        or not ((base__packet_size >= 120) or ((base__flags & 8) != 0))
        or not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((user__flags & 31) <= 29)
        or not ((169 >> ((user__flags >> 10) & 7)) & 1)
        or not ((237 >> ((user__flags >> 13) & 7)) & 1)
        or not (((user__flags & 1048576) == 0) or (((user__flags >> 5) & 3) != 0))
        or base__flags & 0x8 != 0x0
        or user__flags & 0x2200040 != 0x200000
    ):
        raise Refused
    at = 64
    if (choice1 := ((user__flags >> 10) & 7)) <= 1:
        pass
    elif choice1 <= 4:
        at += 4
    elif choice1 == 7:
        (user__destination_queue__count,) = unpack_H(data, at)
        if not (user__destination_queue__count >= 2) or user__destination_queue__count & 0x1 != 0x0:
            raise Refused
        at += 2
        size = user__destination_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            user__destination_queue__name = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in user__destination_queue__name:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice1 == 5:
        at += 16
    elif choice1 == 6:
        at += 20
    else:
        raise Refused
    if (choice2 := ((user__flags >> 13) & 7)) <= 1:
        pass
    elif choice2 <= 4:
        at += 4
    elif choice2 == 7:
        (user__admin_queue__count,) = unpack_H(data, at)
        if not (user__admin_queue__count >= 2) or user__admin_queue__count & 0x1 != 0x0:
            raise Refused
        at += 2
        size = user__admin_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            user__admin_queue__name = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in user__admin_queue__name:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice2 == 5:
        at += 16
    elif choice2 == 6:
        at += 20
    else:
        raise Refused
    if (choice3 := ((user__flags >> 16) & 7)) <= 1:
        pass
    elif choice3 <= 4:
        at += 4
    elif choice3 == 7:
        (user__response_queue__count,) = unpack_H(data, at)
        if not (user__response_queue__count >= 2) or user__response_queue__count & 0x1 != 0x0:
            raise Refused
        at += 2
        size = user__response_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            user__response_queue__name = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in user__response_queue__name:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice3 == 5:
        at += 16
    elif choice3 == 6:
        at += 20
    else:
        raise Refused
    if user__flags & 4194304:
        at += 16
    if user__flags & 1048576:
        transaction__flags, transaction__tx_sequence_number, transaction__previous_tx_sequence_number = (
            unpack_L8xLL(data, at)
        )
        if not (transaction__tx_sequence_number >= 1) or not (
            transaction__previous_tx_sequence_number <= 4294967294
        ):
            raise Refused
        at += 20
        if transaction__flags & 1:
            at += 16
    if user__flags & 524288:
        (
            security__flags,
            security__sender_id_size,
            security__encryption_key_size,
            security__signature_size,
            security__sender_cert_size,
            security__provider_info_size,
        ) = unpack_HHHHLL(data, at)
        if (
            not ((security__flags & 15) <= 2)
            or not (((security__flags & 15) != 0) or (security__sender_id_size == 0))
            or not (security__sender_cert_size <= 65535)
            or not (
                (
                    (
                        (
                            (security__sender_id_size + security__encryption_key_size)
                            + security__signature_size
                        )
                        + security__sender_cert_size
                    )
                    + security__provider_info_size
                )
                > 0
            )
        ):
            raise Refused
        at += 16
        at += security__sender_id_size
        if at & 3:
            at += -at & 3
        at += security__encryption_key_size
        if at & 3:
            at += -at & 3
        at += security__signature_size
        if at & 3:
            at += -at & 3
        at += security__sender_cert_size
        if at & 3:
            at += -at & 3
        at += security__provider_info_size
        if at & 3:
            at += -at & 3
    properties__label_length, properties__message_size, properties__extension_size = unpack_1xB30xL16xL(
        data, at
    )
    if not (properties__label_length <= 250):
        raise Refused
    at += 56
    size = properties__label_length * 2
    if size:
        stop = at + size
        if stop > end:
            raise Refused
        properties__label = decode(data[at : stop - 2], "surrogatepass", True)[0]
        if data[stop - 2] or data[stop - 1] or "\0" in properties__label:
            raise Refused
        at = stop
    at += properties__extension_size
    at += properties__message_size
    if at & 3:
        at += -at & 3
    if base__flags & 32:
        (debug__flags,) = unpack_H2x(data, at)
        if debug__flags & 0x2 != 0x0:
            raise Refused
        at += 4
        if (debug__flags & 3) == 1:
            at += 16
    if user__flags & 268435456:
        soap__header_section_id, soap__header_data_length = unpack_H2xL(data, at)
        if soap__header_section_id != 800:
            raise Refused
        at += 8
        size = soap__header_data_length * 2
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            soap__header = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in soap__header:
                raise Refused
            at = stop
        soap__body_section_id, soap__body_data_length = unpack_H2xL(data, at)
        if soap__body_section_id != 900:
            raise Refused
        at += 8
        size = soap__body_data_length * 2
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            soap__body = decode(data[at : stop - 2], "surrogatepass", True)[0]
            if data[stop - 2] or data[stop - 1] or "\0" in soap__body:
                raise Refused
            at = stop
    if user__flags & 8388608:
        if at & 3:
            at += -at & 3
        (
            multi_queue_format__destination__header_size,
            multi_queue_format__destination__header_id,
            multi_queue_format__destination__element_count,
        ) = unpack_LH2xL(data, at)
        if (
            not (multi_queue_format__destination__header_size >= 12)
            or multi_queue_format__destination__header_id != 100
            or not (multi_queue_format__destination__element_count <= 4096)
            or not (
                (multi_queue_format__destination__element_count * 4)
                <= (multi_queue_format__destination__header_size - 12)
            )
        ):
            raise Refused
        at += 12
        outside, end = end, at + (multi_queue_format__destination__header_size - 12)
        if end > outside:
            raise Refused
        at = check_each_mqf_format_name_element(data, at, end, multi_queue_format__destination__element_count)
        if at > end:
            raise Refused
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            at += -at & 3
        (
            multi_queue_format__administration__header_size,
            multi_queue_format__administration__header_id,
            multi_queue_format__administration__element_count,
        ) = unpack_LH2xL(data, at)
        if (
            not (multi_queue_format__administration__header_size >= 12)
            or multi_queue_format__administration__header_id != 200
            or not (multi_queue_format__administration__element_count <= 4096)
            or not (
                (multi_queue_format__administration__element_count * 4)
                <= (multi_queue_format__administration__header_size - 12)
            )
        ):
            raise Refused
        at += 12
        outside, end = end, at + (multi_queue_format__administration__header_size - 12)
        if end > outside:
            raise Refused
        at = check_each_mqf_format_name_element(
            data, at, end, multi_queue_format__administration__element_count
        )
        if at > end:
            raise Refused
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            at += -at & 3
        (
            multi_queue_format__response__header_size,
            multi_queue_format__response__header_id,
            multi_queue_format__response__element_count,
        ) = unpack_LH2xL(data, at)
        if (
            not (multi_queue_format__response__header_size >= 12)
            or multi_queue_format__response__header_id != 300
            or not (multi_queue_format__response__element_count <= 4096)
            or not (
                (multi_queue_format__response__element_count * 4)
                <= (multi_queue_format__response__header_size - 12)
            )
        ):
            raise Refused
        at += 12
        outside, end = end, at + (multi_queue_format__response__header_size - 12)
        if end > outside:
            raise Refused
        at = check_each_mqf_format_name_element(data, at, end, multi_queue_format__response__element_count)
        if at > end:
            raise Refused
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            at += -at & 3
        multi_queue_format__signature__id, multi_queue_format__signature__size = unpack_H2xL(data, at)
        if multi_queue_format__signature__id != 350:
            raise Refused
        at += 8
        at += multi_queue_format__signature__size
    if at > end:
        raise Refused
    at = end
    if at != end:
        raise Refused


def transaction_offset(data: bytes) -> int:
    """Return where `transaction` begins in a valid UserMessage; -1 if it has none."""
    end = len(data)
    (user__flags,) = unpack_60xL(data)
    at = 64
    if (choice1 := ((user__flags >> 10) & 7)) <= 1:
        pass
    elif choice1 <= 4:
        at += 4
    elif choice1 == 7:
        (user__destination_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__destination_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice1 == 5:
        at += 16
    elif choice1 == 6:
        at += 20
    else:
        raise Refused
    if (choice2 := ((user__flags >> 13) & 7)) <= 1:
        pass
    elif choice2 <= 4:
        at += 4
    elif choice2 == 7:
        (user__admin_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__admin_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice2 == 5:
        at += 16
    elif choice2 == 6:
        at += 20
    else:
        raise Refused
    if (choice3 := ((user__flags >> 16) & 7)) <= 1:
        pass
    elif choice3 <= 4:
        at += 4
    elif choice3 == 7:
        (user__response_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__response_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice3 == 5:
        at += 16
    elif choice3 == 6:
        at += 20
    else:
        raise Refused
    if user__flags & 4194304:
        at += 16
    return at if (user__flags & 1048576) else -1


def properties_offset(data: bytes) -> int:
    """Return where `properties` begins in a valid UserMessage; -1 if it has none."""
    end = len(data)
    (user__flags,) = unpack_60xL(data)
    at = 64
    if (choice1 := ((user__flags >> 10) & 7)) <= 1:
        pass
    elif choice1 <= 4:
        at += 4
    elif choice1 == 7:
        (user__destination_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__destination_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice1 == 5:
        at += 16
    elif choice1 == 6:
        at += 20
    else:
        raise Refused
    if (choice2 := ((user__flags >> 13) & 7)) <= 1:
        pass
    elif choice2 <= 4:
        at += 4
    elif choice2 == 7:
        (user__admin_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__admin_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice2 == 5:
        at += 16
    elif choice2 == 6:
        at += 20
    else:
        raise Refused
    if (choice3 := ((user__flags >> 16) & 7)) <= 1:
        pass
    elif choice3 <= 4:
        at += 4
    elif choice3 == 7:
        (user__response_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__response_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice3 == 5:
        at += 16
    elif choice3 == 6:
        at += 20
    else:
        raise Refused
    if user__flags & 4194304:
        at += 16
    if user__flags & 1048576:
        (transaction__flags,) = unpack_L16x(data, at)
        at += 20
        if transaction__flags & 1:
            at += 16
    if user__flags & 524288:
        (
            security__sender_id_size,
            security__encryption_key_size,
            security__signature_size,
            security__sender_cert_size,
            security__provider_info_size,
        ) = unpack_2xHHHLL(data, at)
        at += 16
        at += security__sender_id_size
        if at & 3:
            at += -at & 3
        at += security__encryption_key_size
        if at & 3:
            at += -at & 3
        at += security__signature_size
        if at & 3:
            at += -at & 3
        at += security__sender_cert_size
        if at & 3:
            at += -at & 3
        at += security__provider_info_size
        if at & 3:
            at += -at & 3
    return at


def trailing_offset(data: bytes) -> int:
    """Return where `trailing` begins in a valid UserMessage; -1 if it has none."""
    end = len(data)
    base__flags, user__flags = unpack_2xH56xL(data)
    at = 64
    if (choice1 := ((user__flags >> 10) & 7)) <= 1:
        pass
    elif choice1 <= 4:
        at += 4
    elif choice1 == 7:
        (user__destination_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__destination_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice1 == 5:
        at += 16
    elif choice1 == 6:
        at += 20
    else:
        raise Refused
    if (choice2 := ((user__flags >> 13) & 7)) <= 1:
        pass
    elif choice2 <= 4:
        at += 4
    elif choice2 == 7:
        (user__admin_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__admin_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice2 == 5:
        at += 16
    elif choice2 == 6:
        at += 20
    else:
        raise Refused
    if (choice3 := ((user__flags >> 16) & 7)) <= 1:
        pass
    elif choice3 <= 4:
        at += 4
    elif choice3 == 7:
        (user__response_queue__count,) = unpack_H(data, at)
        at += 2
        size = user__response_queue__count
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        if at & 3:
            at += -at & 3
    elif choice3 == 5:
        at += 16
    elif choice3 == 6:
        at += 20
    else:
        raise Refused
    if user__flags & 4194304:
        at += 16
    if user__flags & 1048576:
        (transaction__flags,) = unpack_L16x(data, at)
        at += 20
        if transaction__flags & 1:
            at += 16
    if user__flags & 524288:
        (
            security__sender_id_size,
            security__encryption_key_size,
            security__signature_size,
            security__sender_cert_size,
            security__provider_info_size,
        ) = unpack_2xHHHLL(data, at)
        at += 16
        at += security__sender_id_size
        if at & 3:
            at += -at & 3
        at += security__encryption_key_size
        if at & 3:
            at += -at & 3
        at += security__signature_size
        if at & 3:
            at += -at & 3
        at += security__sender_cert_size
        if at & 3:
            at += -at & 3
        at += security__provider_info_size
        if at & 3:
            at += -at & 3
    properties__label_length, properties__message_size, properties__extension_size = unpack_1xB30xL16xL(
        data, at
    )
    at += 56
    size = properties__label_length * 2
    if size:
        stop = at + size
        if stop > end:
            raise Refused
        at = stop
    at += properties__extension_size
    at += properties__message_size
    if at & 3:
        at += -at & 3
    if base__flags & 32:
        (debug__flags,) = unpack_H2x(data, at)
        at += 4
        if (debug__flags & 3) == 1:
            at += 16
    if user__flags & 268435456:
        (soap__header_data_length,) = unpack_4xL(data, at)
        at += 8
        size = soap__header_data_length * 2
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
        (soap__body_data_length,) = unpack_4xL(data, at)
        at += 8
        size = soap__body_data_length * 2
        if size:
            stop = at + size
            if stop > end:
                raise Refused
            at = stop
    if user__flags & 8388608:
        if at & 3:
            at += -at & 3
        multi_queue_format__destination__header_size, multi_queue_format__destination__element_count = (
            unpack_L4xL(data, at)
        )
        at += 12
        outside, end = end, at + (multi_queue_format__destination__header_size - 12)
        if end > outside:
            raise Refused
        at = check_each_mqf_format_name_element(data, at, end, multi_queue_format__destination__element_count)
        if at > end:
            raise Refused
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            at += -at & 3
        multi_queue_format__administration__header_size, multi_queue_format__administration__element_count = (
            unpack_L4xL(data, at)
        )
        at += 12
        outside, end = end, at + (multi_queue_format__administration__header_size - 12)
        if end > outside:
            raise Refused
        at = check_each_mqf_format_name_element(
            data, at, end, multi_queue_format__administration__element_count
        )
        if at > end:
            raise Refused
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            at += -at & 3
        multi_queue_format__response__header_size, multi_queue_format__response__element_count = unpack_L4xL(
            data, at
        )
        at += 12
        outside, end = end, at + (multi_queue_format__response__header_size - 12)
        if end > outside:
            raise Refused
        at = check_each_mqf_format_name_element(data, at, end, multi_queue_format__response__element_count)
        if at > end:
            raise Refused
        at = end
        if at > end:
            raise Refused
        at, end = end, outside
        if at & 3:
            at += -at & 3
        (multi_queue_format__signature__size,) = unpack_4xL(data, at)
        at += 8
        at += multi_queue_format__signature__size
    return at


def build_each_mqf_format_name_element(items: list[Any], at: int) -> bytes:
    """Return the bytes of each MqfFormatNameElement; the first begins at `at`.  [MS-MQMQ] 2.2.18.1.4"""
    nothing = b""
    pieces: list[bytes] = []
    for item in items:
        item__format_type = item.format_type
        item__padding = item.padding
        item__format_name = item.format_name
        if not ((item__format_type <= 7) & ((78 >> (item__format_type & 7)) & 1)):
            raise Refused
        piece2 = pack_H(item__format_type)
        at += 2
        if (choice1 := item__format_type) in (1, 3):
            if len(item__padding) != 0:
                raise Refused
            piece4 = pack_0s(item__padding)
            piece3 = piece4
        elif choice1 in (2, 6):
            missing = -at & 3
            if missing or item__padding is not nothing:
                if len(item__padding) != missing:
                    item__padding = ZEROS[missing]
                at += missing
            piece3 = item__padding
        else:
            if item__padding is not None:
                raise Refused
            piece3 = nothing
        if (choice5 := item__format_type) == 3:
            if "\0" in item__format_name:
                raise Refused
            item__format_name__wire = encode(item__format_name, "surrogatepass")[0] + NUL
            at += len(item__format_name__wire)
            piece6 = item__format_name__wire
        elif choice5 == 2:
            item__format_name__source_queue_manager = item__format_name.source_queue_manager
            item__format_name__private_queue_identifier = item__format_name.private_queue_identifier
            if len(item__format_name__source_queue_manager) != 16:
                raise Refused
            piece7 = pack_16sL(
                item__format_name__source_queue_manager, item__format_name__private_queue_identifier
            )
            at += 20
            piece6 = piece7
        elif choice5 in (1, 6):
            if len(item__format_name) != 16:
                raise Refused
            piece8 = pack_16s(item__format_name)
            at += 16
            piece6 = piece8
        else:
            if item__format_name is not None:
                raise Refused
            piece6 = nothing
        pieces += piece2, piece3, piece6
    return b"".join(pieces)


def build_format_name_list(whole: Any) -> bytes:
    """Return the bytes of one FormatNameList.  [MS-MQMQ] 2.2.20.2"""
    elements = whole.elements
    padding = whole.padding
    at = 0
    elements__wire = build_each_mqf_format_name_element(elements, at)
    at += len(elements__wire)
    if padding is None:
        padding = ZEROS[-at & 3]
    return b"".join((elements__wire, padding))


def build_user_message(whole: Any) -> bytes:
    """Return the bytes of one UserMessage.  [MS-MQMQ] 2.2.20"""
    nothing = b""
    base = whole.base
    user = whole.user
    transaction = whole.transaction
    security = whole.security
    properties = whole.properties
    debug = whole.debug
    soap = whole.soap
    multi_queue_format = whole.multi_queue_format
    trailing = whole.trailing
    base__reserved = base.reserved
    base__flags = base.flags
    base__time_to_reach_queue_s = base.time_to_reach_queue_s
    user__source_queue_manager = user.source_queue_manager
    user__queue_manager_address = user.queue_manager_address
    user__time_to_be_received_s = user.time_to_be_received_s
    user__sent_time_s = user.sent_time_s
    user__message_id = user.message_id
    user__flags = user.flags
    user__destination_queue = user.destination_queue
    user__destination_padding = user.destination_padding
    user__admin_queue = user.admin_queue
    user__admin_padding = user.admin_padding
    user__response_queue = user.response_queue
    user__response_padding = user.response_padding
    user__connector_type = user.connector_type
    if (
        not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or len(user__source_queue_manager) != 16
        or len(user__queue_manager_address) != 16
        or not ((user__flags & 31) <= 29)
        or not ((169 >> ((user__flags >> 10) & 7)) & 1)
        or not ((237 >> ((user__flags >> 13) & 7)) & 1)
        or not (((user__flags & 1048576) == 0) or (((user__flags >> 5) & 3) != 0))
        or base__flags & 0x8 != 0x0
        or user__flags & 0x2200040 != 0x200000
    ):
        raise Refused
    at = 64
    if (choice1 := ((user__flags >> 10) & 7)) <= 1:
        if user__destination_queue is not None:
            raise Refused
        if user__destination_padding is not nothing and not len(user__destination_padding):
            user__destination_padding = nothing + user__destination_padding
        piece3 = nothing
    elif choice1 <= 4:
        piece4 = pack_L(user__destination_queue)
        at += 4
        if user__destination_padding is not nothing and not len(user__destination_padding):
            user__destination_padding = nothing + user__destination_padding
        piece3 = piece4
    elif choice1 == 7:
        user__destination_queue__name = user__destination_queue
        if user__destination_queue__name is None:
            user__destination_queue__name__wire = nothing
        elif "\0" in user__destination_queue__name:
            raise Refused
        else:
            user__destination_queue__name__wire = (
                encode(user__destination_queue__name, "surrogatepass")[0] + NUL
            )
        user__destination_queue__count = len(user__destination_queue__name__wire)
        if not (user__destination_queue__count >= 2) or user__destination_queue__count & 0x1 != 0x0:
            raise Refused
        piece5 = pack_H(user__destination_queue__count)
        at += 2 + len(user__destination_queue__name__wire)
        missing = -at & 3
        if missing or user__destination_padding is not nothing:
            if len(user__destination_padding) != missing:
                user__destination_padding = ZEROS[missing]
            at += missing
        piece3 = b"".join((piece5, user__destination_queue__name__wire, user__destination_padding))
    elif choice1 == 5:
        if len(user__destination_queue) != 16:
            raise Refused
        piece6 = pack_16s(user__destination_queue)
        at += 16
        if user__destination_padding is not nothing and not len(user__destination_padding):
            user__destination_padding = nothing + user__destination_padding
        piece3 = piece6
    elif choice1 == 6:
        user__destination_queue__source_queue_manager = user__destination_queue.source_queue_manager
        user__destination_queue__private_queue_identifier = user__destination_queue.private_queue_identifier
        if len(user__destination_queue__source_queue_manager) != 16:
            raise Refused
        piece7 = pack_16sL(
            user__destination_queue__source_queue_manager, user__destination_queue__private_queue_identifier
        )
        at += 20
        if user__destination_padding is not nothing and not len(user__destination_padding):
            user__destination_padding = nothing + user__destination_padding
        piece3 = piece7
    else:
        if user__destination_queue is not None:
            raise Refused
        if user__destination_padding is not nothing and not len(user__destination_padding):
            user__destination_padding = nothing + user__destination_padding
        piece3 = nothing
    if (choice8 := ((user__flags >> 13) & 7)) <= 1:
        if user__admin_queue is not None:
            raise Refused
        if user__admin_padding is not nothing and not len(user__admin_padding):
            user__admin_padding = nothing + user__admin_padding
        piece9 = nothing
    elif choice8 <= 4:
        piece10 = pack_L(user__admin_queue)
        at += 4
        if user__admin_padding is not nothing and not len(user__admin_padding):
            user__admin_padding = nothing + user__admin_padding
        piece9 = piece10
    elif choice8 == 7:
        user__admin_queue__name = user__admin_queue
        if user__admin_queue__name is None:
            user__admin_queue__name__wire = nothing
        elif "\0" in user__admin_queue__name:
            raise Refused
        else:
            user__admin_queue__name__wire = encode(user__admin_queue__name, "surrogatepass")[0] + NUL
        user__admin_queue__count = len(user__admin_queue__name__wire)
        if not (user__admin_queue__count >= 2) or user__admin_queue__count & 0x1 != 0x0:
            raise Refused
        piece11 = pack_H(user__admin_queue__count)
        at += 2 + len(user__admin_queue__name__wire)
        missing = -at & 3
        if missing or user__admin_padding is not nothing:
            if len(user__admin_padding) != missing:
                user__admin_padding = ZEROS[missing]
            at += missing
        piece9 = b"".join((piece11, user__admin_queue__name__wire, user__admin_padding))
    elif choice8 == 5:
        if len(user__admin_queue) != 16:
            raise Refused
        piece12 = pack_16s(user__admin_queue)
        at += 16
        if user__admin_padding is not nothing and not len(user__admin_padding):
            user__admin_padding = nothing + user__admin_padding
        piece9 = piece12
    elif choice8 == 6:
        user__admin_queue__source_queue_manager = user__admin_queue.source_queue_manager
        user__admin_queue__private_queue_identifier = user__admin_queue.private_queue_identifier
        if len(user__admin_queue__source_queue_manager) != 16:
            raise Refused
        piece13 = pack_16sL(
            user__admin_queue__source_queue_manager, user__admin_queue__private_queue_identifier
        )
        at += 20
        if user__admin_padding is not nothing and not len(user__admin_padding):
            user__admin_padding = nothing + user__admin_padding
        piece9 = piece13
    else:
        if user__admin_queue is not None:
            raise Refused
        if user__admin_padding is not nothing and not len(user__admin_padding):
            user__admin_padding = nothing + user__admin_padding
        piece9 = nothing
    if (choice14 := ((user__flags >> 16) & 7)) <= 1:
        if user__response_queue is not None:
            raise Refused
        if user__response_padding is not nothing and not len(user__response_padding):
            user__response_padding = nothing + user__response_padding
        piece15 = nothing
    elif choice14 <= 4:
        piece16 = pack_L(user__response_queue)
        at += 4
        if user__response_padding is not nothing and not len(user__response_padding):
            user__response_padding = nothing + user__response_padding
        piece15 = piece16
    elif choice14 == 7:
        user__response_queue__name = user__response_queue
        if user__response_queue__name is None:
            user__response_queue__name__wire = nothing
        elif "\0" in user__response_queue__name:
            raise Refused
        else:
            user__response_queue__name__wire = encode(user__response_queue__name, "surrogatepass")[0] + NUL
        user__response_queue__count = len(user__response_queue__name__wire)
        if not (user__response_queue__count >= 2) or user__response_queue__count & 0x1 != 0x0:
            raise Refused
        piece17 = pack_H(user__response_queue__count)
        at += 2 + len(user__response_queue__name__wire)
        missing = -at & 3
        if missing or user__response_padding is not nothing:
            if len(user__response_padding) != missing:
                user__response_padding = ZEROS[missing]
            at += missing
        piece15 = b"".join((piece17, user__response_queue__name__wire, user__response_padding))
    elif choice14 == 5:
        if len(user__response_queue) != 16:
            raise Refused
        piece18 = pack_16s(user__response_queue)
        at += 16
        if user__response_padding is not nothing and not len(user__response_padding):
            user__response_padding = nothing + user__response_padding
        piece15 = piece18
    elif choice14 == 6:
        user__response_queue__source_queue_manager = user__response_queue.source_queue_manager
        user__response_queue__private_queue_identifier = user__response_queue.private_queue_identifier
        if len(user__response_queue__source_queue_manager) != 16:
            raise Refused
        piece19 = pack_16sL(
            user__response_queue__source_queue_manager, user__response_queue__private_queue_identifier
        )
        at += 20
        if user__response_padding is not nothing and not len(user__response_padding):
            user__response_padding = nothing + user__response_padding
        piece15 = piece19
    else:
        if user__response_queue is not None:
            raise Refused
        if user__response_padding is not nothing and not len(user__response_padding):
            user__response_padding = nothing + user__response_padding
        piece15 = nothing
    if user__flags & 4194304:
        if len(user__connector_type) != 16:
            raise Refused
        piece21 = pack_16s(user__connector_type)
        at += 16
        piece20 = piece21
    else:
        if user__connector_type is not None:
            raise Refused
        piece20 = nothing
    if user__flags & 1048576:
        transaction__flags = transaction.flags
        transaction__tx_sequence_id = transaction.tx_sequence_id
        transaction__tx_sequence_number = transaction.tx_sequence_number
        transaction__previous_tx_sequence_number = transaction.previous_tx_sequence_number
        transaction__connector_qm_guid = transaction.connector_qm_guid
        transaction__tx_sequence_id__time_stamp = transaction__tx_sequence_id.time_stamp
        transaction__tx_sequence_id__ordinal = transaction__tx_sequence_id.ordinal
        if not (transaction__tx_sequence_number >= 1) or not (
            transaction__previous_tx_sequence_number <= 4294967294
        ):
            raise Refused
        piece23 = pack_LLLLL(
            transaction__flags,
            transaction__tx_sequence_id__ordinal,
            transaction__tx_sequence_id__time_stamp,
            transaction__tx_sequence_number,
            transaction__previous_tx_sequence_number,
        )
        at += 20
        if transaction__flags & 1:
            if len(transaction__connector_qm_guid) != 16:
                raise Refused
            piece25 = pack_16s(transaction__connector_qm_guid)
            at += 16
            piece24 = piece25
        else:
            if transaction__connector_qm_guid is not None:
                raise Refused
            piece24 = nothing
        piece22 = piece23 + piece24
    else:
        if transaction is not None:
            raise Refused
        piece22 = nothing
    if user__flags & 524288:
        security__flags = security.flags
        security__sender_id = security.sender_id
        security__sender_id_padding = security.sender_id_padding
        security__encryption_key = security.encryption_key
        security__encryption_key_padding = security.encryption_key_padding
        security__signature = security.signature
        security__signature_padding = security.signature_padding
        security__sender_cert = security.sender_cert
        security__sender_cert_padding = security.sender_cert_padding
        security__provider_info = security.provider_info
        security__provider_info_padding = security.provider_info_padding
        security__sender_id_size = len(security__sender_id)
        security__encryption_key_size = len(security__encryption_key)
        security__signature_size = len(security__signature)
        security__sender_cert_size = len(security__sender_cert)
        security__provider_info_size = len(security__provider_info)
        if (
            not ((security__flags & 15) <= 2)
            or not (((security__flags & 15) != 0) or (security__sender_id_size == 0))
            or not (security__sender_cert_size <= 65535)
            or not (
                (
                    (
                        (
                            (security__sender_id_size + security__encryption_key_size)
                            + security__signature_size
                        )
                        + security__sender_cert_size
                    )
                    + security__provider_info_size
                )
                > 0
            )
        ):
            raise Refused
        piece27 = pack_HHHHLL(
            security__flags,
            security__sender_id_size,
            security__encryption_key_size,
            security__signature_size,
            security__sender_cert_size,
            security__provider_info_size,
        )
        at += 16 + security__sender_id_size
        missing = -at & 3
        if missing or security__sender_id_padding is not nothing:
            if len(security__sender_id_padding) != missing:
                security__sender_id_padding = ZEROS[missing]
            at += missing
        at += security__encryption_key_size
        missing = -at & 3
        if missing or security__encryption_key_padding is not nothing:
            if len(security__encryption_key_padding) != missing:
                security__encryption_key_padding = ZEROS[missing]
            at += missing
        at += security__signature_size
        missing = -at & 3
        if missing or security__signature_padding is not nothing:
            if len(security__signature_padding) != missing:
                security__signature_padding = ZEROS[missing]
            at += missing
        at += security__sender_cert_size
        missing = -at & 3
        if missing or security__sender_cert_padding is not nothing:
            if len(security__sender_cert_padding) != missing:
                security__sender_cert_padding = ZEROS[missing]
            at += missing
        at += security__provider_info_size
        missing = -at & 3
        if missing or security__provider_info_padding is not nothing:
            if len(security__provider_info_padding) != missing:
                security__provider_info_padding = ZEROS[missing]
            at += missing
        piece26 = b"".join(
            (
                piece27,
                security__sender_id,
                security__sender_id_padding,
                security__encryption_key,
                security__encryption_key_padding,
                security__signature,
                security__signature_padding,
                security__sender_cert,
                security__sender_cert_padding,
                security__provider_info,
                security__provider_info_padding,
            )
        )
    else:
        if security is not None:
            raise Refused
        piece26 = nothing
    properties__flags = properties.flags
    properties__message_class = properties.message_class
    properties__correlation_id = properties.correlation_id
    properties__body_type = properties.body_type
    properties__application_tag = properties.application_tag
    properties__allocation_body_size = properties.allocation_body_size
    properties__privacy_level = properties.privacy_level
    properties__hash_algorithm = properties.hash_algorithm
    properties__encryption_algorithm = properties.encryption_algorithm
    properties__label = properties.label
    properties__extension_data = properties.extension_data
    properties__message_body = properties.message_body
    properties__padding = properties.padding
    if properties__label is None:
        properties__label__wire = nothing
    elif "\0" in properties__label:
        raise Refused
    else:
        properties__label__wire = encode(properties__label, "surrogatepass")[0] + NUL
    properties__label_length = len(properties__label__wire) >> 1
    properties__message_size = len(properties__message_body)
    properties__extension_size = len(properties__extension_data)
    if not (properties__label_length <= 250) or len(properties__correlation_id) != 20:
        raise Refused
    piece28 = pack_BBH20sLLLLLLLL(
        properties__flags,
        properties__label_length,
        properties__message_class,
        properties__correlation_id,
        properties__body_type,
        properties__application_tag,
        properties__message_size,
        properties__allocation_body_size,
        properties__privacy_level,
        properties__hash_algorithm,
        properties__encryption_algorithm,
        properties__extension_size,
    )
    at += 56 + len(properties__label__wire) + properties__extension_size + properties__message_size
    missing = -at & 3
    if missing or properties__padding is not nothing:
        if len(properties__padding) != missing:
            properties__padding = ZEROS[missing]
        at += missing
    if base__flags & 32:
        debug__flags = debug.flags
        debug__reserved = debug.reserved
        debug__queue_identifier = debug.queue_identifier
        if debug__flags & 0x2 != 0x0:
            raise Refused
        piece30 = pack_HH(debug__flags, debug__reserved)
        at += 4
        if (debug__flags & 3) == 1:
            if len(debug__queue_identifier) != 16:
                raise Refused
            piece32 = pack_16s(debug__queue_identifier)
            at += 16
            piece31 = piece32
        else:
            if debug__queue_identifier is not None:
                raise Refused
            piece31 = nothing
        piece29 = piece30 + piece31
    else:
        if debug is not None:
            raise Refused
        piece29 = nothing
    if user__flags & 268435456:
        soap__reserved = soap.reserved
        soap__header = soap.header
        soap__reserved1 = soap.reserved1
        soap__body = soap.body
        if soap__header is None:
            soap__header__wire = nothing
        elif "\0" in soap__header:
            raise Refused
        else:
            soap__header__wire = encode(soap__header, "surrogatepass")[0] + NUL
        if soap__body is None:
            soap__body__wire = nothing
        elif "\0" in soap__body:
            raise Refused
        else:
            soap__body__wire = encode(soap__body, "surrogatepass")[0] + NUL
        soap__header_data_length = len(soap__header__wire) >> 1
        soap__body_data_length = len(soap__body__wire) >> 1
        piece34 = pack_HHL(800, soap__reserved, soap__header_data_length)
        piece35 = pack_HHL(900, soap__reserved1, soap__body_data_length)
        at += 16 + len(soap__header__wire) + len(soap__body__wire)
        piece33 = b"".join((piece34, soap__header__wire, piece35, soap__body__wire))
    else:
        if soap is not None:
            raise Refused
        piece33 = nothing
    if user__flags & 8388608:
        multi_queue_format__leading_padding = multi_queue_format.leading_padding
        multi_queue_format__destination = multi_queue_format.destination
        multi_queue_format__administration = multi_queue_format.administration
        multi_queue_format__response = multi_queue_format.response
        multi_queue_format__signature = multi_queue_format.signature
        missing = -at & 3
        if missing or multi_queue_format__leading_padding is not nothing:
            if len(multi_queue_format__leading_padding) != missing:
                multi_queue_format__leading_padding = ZEROS[missing]
            at += missing
        multi_queue_format__destination__reserved = multi_queue_format__destination.reserved
        multi_queue_format__destination__format_name_list = multi_queue_format__destination.format_name_list
        multi_queue_format__destination__padding = multi_queue_format__destination.padding
        multi_queue_format__destination__format_name_list__wire = build_format_name_list(
            multi_queue_format__destination__format_name_list
        )
        multi_queue_format__destination__format_name_list__elements = (
            multi_queue_format__destination__format_name_list.elements
        )
        multi_queue_format__destination__format_name_list__padding = (
            multi_queue_format__destination__format_name_list.padding
        )
        multi_queue_format__destination__header_size = (
            len(multi_queue_format__destination__format_name_list__wire) + 12
        )
        multi_queue_format__destination__element_count = len(
            multi_queue_format__destination__format_name_list__elements
        )
        if (
            not (multi_queue_format__destination__header_size >= 12)
            or not (multi_queue_format__destination__element_count <= 4096)
            or not (
                (multi_queue_format__destination__element_count * 4)
                <= (multi_queue_format__destination__header_size - 12)
            )
        ):
            raise Refused
        piece37 = pack_LHHL(
            multi_queue_format__destination__header_size,
            100,
            multi_queue_format__destination__reserved,
            multi_queue_format__destination__element_count,
        )
        at += 12 + len(multi_queue_format__destination__format_name_list__wire)
        missing = -at & 3
        if missing or multi_queue_format__destination__padding is not nothing:
            if len(multi_queue_format__destination__padding) != missing:
                multi_queue_format__destination__padding = ZEROS[missing]
            at += missing
        multi_queue_format__administration__reserved = multi_queue_format__administration.reserved
        multi_queue_format__administration__format_name_list = (
            multi_queue_format__administration.format_name_list
        )
        multi_queue_format__administration__padding = multi_queue_format__administration.padding
        multi_queue_format__administration__format_name_list__wire = build_format_name_list(
            multi_queue_format__administration__format_name_list
        )
        multi_queue_format__administration__format_name_list__elements = (
            multi_queue_format__administration__format_name_list.elements
        )
        multi_queue_format__administration__format_name_list__padding = (
            multi_queue_format__administration__format_name_list.padding
        )
        multi_queue_format__administration__header_size = (
            len(multi_queue_format__administration__format_name_list__wire) + 12
        )
        multi_queue_format__administration__element_count = len(
            multi_queue_format__administration__format_name_list__elements
        )
        if (
            not (multi_queue_format__administration__header_size >= 12)
            or not (multi_queue_format__administration__element_count <= 4096)
            or not (
                (multi_queue_format__administration__element_count * 4)
                <= (multi_queue_format__administration__header_size - 12)
            )
        ):
            raise Refused
        piece38 = pack_LHHL(
            multi_queue_format__administration__header_size,
            200,
            multi_queue_format__administration__reserved,
            multi_queue_format__administration__element_count,
        )
        at += 12 + len(multi_queue_format__administration__format_name_list__wire)
        missing = -at & 3
        if missing or multi_queue_format__administration__padding is not nothing:
            if len(multi_queue_format__administration__padding) != missing:
                multi_queue_format__administration__padding = ZEROS[missing]
            at += missing
        multi_queue_format__response__reserved = multi_queue_format__response.reserved
        multi_queue_format__response__format_name_list = multi_queue_format__response.format_name_list
        multi_queue_format__response__padding = multi_queue_format__response.padding
        multi_queue_format__response__format_name_list__wire = build_format_name_list(
            multi_queue_format__response__format_name_list
        )
        multi_queue_format__response__format_name_list__elements = (
            multi_queue_format__response__format_name_list.elements
        )
        multi_queue_format__response__format_name_list__padding = (
            multi_queue_format__response__format_name_list.padding
        )
        multi_queue_format__response__header_size = (
            len(multi_queue_format__response__format_name_list__wire) + 12
        )
        multi_queue_format__response__element_count = len(
            multi_queue_format__response__format_name_list__elements
        )
        if (
            not (multi_queue_format__response__header_size >= 12)
            or not (multi_queue_format__response__element_count <= 4096)
            or not (
                (multi_queue_format__response__element_count * 4)
                <= (multi_queue_format__response__header_size - 12)
            )
        ):
            raise Refused
        piece39 = pack_LHHL(
            multi_queue_format__response__header_size,
            300,
            multi_queue_format__response__reserved,
            multi_queue_format__response__element_count,
        )
        at += 12 + len(multi_queue_format__response__format_name_list__wire)
        missing = -at & 3
        if missing or multi_queue_format__response__padding is not nothing:
            if len(multi_queue_format__response__padding) != missing:
                multi_queue_format__response__padding = ZEROS[missing]
            at += missing
        multi_queue_format__signature__reserved = multi_queue_format__signature.reserved
        multi_queue_format__signature__signature = multi_queue_format__signature.signature
        multi_queue_format__signature__size = len(multi_queue_format__signature__signature)
        piece40 = pack_HHL(350, multi_queue_format__signature__reserved, multi_queue_format__signature__size)
        at += 8 + multi_queue_format__signature__size
        piece36 = b"".join(
            (
                multi_queue_format__leading_padding,
                piece37,
                multi_queue_format__destination__format_name_list__wire,
                multi_queue_format__destination__padding,
                piece38,
                multi_queue_format__administration__format_name_list__wire,
                multi_queue_format__administration__padding,
                piece39,
                multi_queue_format__response__format_name_list__wire,
                multi_queue_format__response__padding,
                piece40,
                multi_queue_format__signature__signature,
            )
        )
    else:
        if multi_queue_format is not None:
            raise Refused
        piece36 = nothing
    at += len(trailing)
    base__packet_size = at
    if not (base__packet_size <= 4194304):
        raise Refused
    if not (base__packet_size >= 32):
        raise Refused
    if not ((base__packet_size >= 120) or ((base__flags & 8) != 0)):
        raise Refused
    piece2 = pack_BBHLLL16s16sLLLL(
        16,
        base__reserved,
        base__flags,
        1380927820,
        base__packet_size,
        base__time_to_reach_queue_s,
        user__source_queue_manager,
        user__queue_manager_address,
        user__time_to_be_received_s,
        user__sent_time_s,
        user__message_id,
        user__flags,
    )
    return b"".join(
        (
            piece2,
            piece3,
            piece9,
            piece15,
            piece20,
            piece22,
            piece26,
            piece28,
            properties__label__wire,
            properties__extension_data,
            properties__message_body,
            properties__padding,
            piece29,
            piece33,
            piece36,
            trailing,
        )
    )


def build_session_header(whole: Any) -> bytes:
    """Return the bytes of one SessionHeader.  [MS-MQMQ] 2.2.20.4"""
    ack_sequence_number = whole.ack_sequence_number
    recoverable_msg_ack_seq_number = whole.recoverable_msg_ack_seq_number
    recoverable_msg_ack_flags = whole.recoverable_msg_ack_flags
    user_msg_sequence_number = whole.user_msg_sequence_number
    recoverable_msg_seq_number = whole.recoverable_msg_seq_number
    window_size = whole.window_size
    reserved = whole.reserved
    if not (window_size >= 1):
        raise Refused
    piece1 = pack_HHLHHHH(
        ack_sequence_number,
        recoverable_msg_ack_seq_number,
        recoverable_msg_ack_flags,
        user_msg_sequence_number,
        recoverable_msg_seq_number,
        window_size,
        reserved,
    )
    return b"".join((piece1,))


def build_session_ack(whole: Any) -> bytes:
    """Return the bytes of one SessionAck.  [MS-MQQB] 2.2.6"""
    base = whole.base
    internal = whole.internal
    session = whole.session
    base__reserved = base.reserved
    base__flags = base.flags
    base__time_to_reach_queue_s = base.time_to_reach_queue_s
    internal__reserved = internal.reserved
    internal__flags = internal.flags
    session__ack_sequence_number = session.ack_sequence_number
    session__recoverable_msg_ack_seq_number = session.recoverable_msg_ack_seq_number
    session__recoverable_msg_ack_flags = session.recoverable_msg_ack_flags
    session__user_msg_sequence_number = session.user_msg_sequence_number
    session__recoverable_msg_seq_number = session.recoverable_msg_seq_number
    session__window_size = session.window_size
    session__reserved = session.reserved
    if (
        not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((((internal__flags & 15) - 1) & 15) <= 2)
        or not ((internal__flags & 15) == 1)
        or not (session__window_size >= 1)
        or base__flags & 0x18 != 0x18
    ):
        raise Refused
    at = 36
    base__packet_size = at
    if not (base__packet_size <= 4194304):
        raise Refused
    if not (base__packet_size >= 32):
        raise Refused
    if not ((base__packet_size >= 120) or ((base__flags & 8) != 0)):
        raise Refused
    if not (base__packet_size == 36):
        raise Refused
    piece1 = pack_BBHLLLHHHHLHHHH(
        16,
        base__reserved,
        base__flags,
        1380927820,
        base__packet_size,
        base__time_to_reach_queue_s,
        internal__reserved,
        internal__flags,
        session__ack_sequence_number,
        session__recoverable_msg_ack_seq_number,
        session__recoverable_msg_ack_flags,
        session__user_msg_sequence_number,
        session__recoverable_msg_seq_number,
        session__window_size,
        session__reserved,
    )
    return b"".join((piece1,))


def build_establish_connection(whole: Any) -> bytes:
    """Return the bytes of one EstablishConnection.  [MS-MQQB] 2.2.3"""
    base = whole.base
    internal = whole.internal
    client_guid = whole.client_guid
    server_guid = whole.server_guid
    time_stamp_ms = whole.time_stamp_ms
    operating_system = whole.operating_system
    reserved = whole.reserved
    padding = whole.padding
    base__reserved = base.reserved
    base__flags = base.flags
    base__time_to_reach_queue_s = base.time_to_reach_queue_s
    internal__reserved = internal.reserved
    internal__flags = internal.flags
    if (
        not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((((internal__flags & 15) - 1) & 15) <= 2)
        or not ((internal__flags & 15) == 2)
        or len(client_guid) != 16
        or len(server_guid) != 16
        or not ((operating_system & 255) == 16)
        or len(padding) != 512
        or base__flags & 0x8 != 0x8
    ):
        raise Refused
    at = 572
    base__packet_size = at
    if not (base__packet_size <= 4194304):
        raise Refused
    if not (base__packet_size >= 32):
        raise Refused
    if not ((base__packet_size >= 120) or ((base__flags & 8) != 0)):
        raise Refused
    if not (base__packet_size == 572):
        raise Refused
    piece1 = pack_BBHLLLHH16s16sLHH512s(
        16,
        base__reserved,
        base__flags,
        1380927820,
        base__packet_size,
        base__time_to_reach_queue_s,
        internal__reserved,
        internal__flags,
        client_guid,
        server_guid,
        time_stamp_ms,
        operating_system,
        reserved,
        padding,
    )
    return b"".join((piece1,))


def build_connection_parameters(whole: Any) -> bytes:
    """Return the bytes of one ConnectionParameters.  [MS-MQQB] 2.2.2.1"""
    base = whole.base
    internal = whole.internal
    recoverable_ack_timeout_ms = whole.recoverable_ack_timeout_ms
    ack_timeout_ms = whole.ack_timeout_ms
    reserved = whole.reserved
    window_size = whole.window_size
    base__reserved = base.reserved
    base__flags = base.flags
    base__time_to_reach_queue_s = base.time_to_reach_queue_s
    internal__reserved = internal.reserved
    internal__flags = internal.flags
    if (
        not (((base__flags & 256) == 0) or ((base__flags & 32) != 0))
        or not ((((internal__flags & 15) - 1) & 15) <= 2)
        or not ((internal__flags & 15) == 3)
        or not (recoverable_ack_timeout_ms >= 500)
        or not (recoverable_ack_timeout_ms <= 120000)
        or not (ack_timeout_ms >= 20000)
        or not (ack_timeout_ms <= 120000)
        or base__flags & 0x8 != 0x8
    ):
        raise Refused
    at = 32
    base__packet_size = at
    if not (base__packet_size <= 4194304):
        raise Refused
    if not (base__packet_size >= 32):
        raise Refused
    if not ((base__packet_size >= 120) or ((base__flags & 8) != 0)):
        raise Refused
    if not (base__packet_size == 32):
        raise Refused
    piece1 = pack_BBHLLLHHLLHH(
        16,
        base__reserved,
        base__flags,
        1380927820,
        base__packet_size,
        base__time_to_reach_queue_s,
        internal__reserved,
        internal__flags,
        recoverable_ack_timeout_ms,
        ack_timeout_ms,
        reserved,
        window_size,
    )
    return b"".join((piece1,))


def build_order_ack_body(whole: Any) -> bytes:
    """Return the bytes of one OrderAckBody.  [MS-MQQB] 2.2.4.1"""
    tx_sequence_id = whole.tx_sequence_id
    tx_sequence_number = whole.tx_sequence_number
    tx_previous_sequence_number = whole.tx_previous_sequence_number
    reserved = whole.reserved
    tx_sequence_id__time_stamp = tx_sequence_id.time_stamp
    tx_sequence_id__ordinal = tx_sequence_id.ordinal
    if len(reserved) != 20:
        raise Refused
    piece1 = pack_LLLL20s(
        tx_sequence_id__ordinal,
        tx_sequence_id__time_stamp,
        tx_sequence_number,
        tx_previous_sequence_number,
        reserved,
    )
    return b"".join((piece1,))


def build_final_ack_body(whole: Any) -> bytes:
    """Return the bytes of one FinalAckBody.  [MS-MQQB] 2.2.5.1"""
    tx_sequence_id = whole.tx_sequence_id
    tx_sequence_number = whole.tx_sequence_number
    tx_previous_sequence_number = whole.tx_previous_sequence_number
    source_guid = whole.source_guid
    message_id = whole.message_id
    tx_sequence_id__time_stamp = tx_sequence_id.time_stamp
    tx_sequence_id__ordinal = tx_sequence_id.ordinal
    if len(source_guid) != 16:
        raise Refused
    piece1 = pack_LLLL16sL(
        tx_sequence_id__ordinal,
        tx_sequence_id__time_stamp,
        tx_sequence_number,
        tx_previous_sequence_number,
        source_guid,
        message_id,
    )
    return b"".join((piece1,))
