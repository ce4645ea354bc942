"""One valid example of everything that goes over the wire; each field can be changed:
`a_user_message(label="x")`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeVar

from mqproto.wire import (
    BaseHeader,
    ConnectionParameters,
    DebugHeader,
    EstablishConnection,
    FinalAck,
    FinalAckBody,
    FormatNameList,
    Guid,
    MessageClass,
    MqfAddressHeader,
    MqfFormatNameElement,
    MqfSignatureHeader,
    MultiQueueFormatHeader,
    OrderAck,
    OrderAckBody,
    Ping,
    PrivateQueueFormatName,
    SecurityHeader,
    SessionAck,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    establish_connection,
    guid_from_text,
    inspect_packet,
    user_message,
)

R = TypeVar("R")

SENDER: Final = guid_from_text("00000000-0000-0000-0000-00000000000a")
DESTINATION: Final = guid_from_text("00000000-0000-0000-0000-00000000000d")
SOMEBODY: Final = guid_from_text("12345678-9abc-def0-0123-456789abcdef")
SENT_S: Final = 1_700_000_000


def _changed(record: R, changes: dict[str, Any]) -> R:
    return dataclasses.replace(record, **changes) if changes else record  # type: ignore[type-var]


def a_sequence_id(**changes: Any) -> TxSequenceId:
    return TxSequenceId(**{"time_stamp": SENT_S, "ordinal": 1} | changes)


def a_transaction_header(**changes: Any) -> TransactionHeader:
    header = TransactionHeader(
        tx_sequence_id=a_sequence_id(), tx_sequence_number=2, previous_tx_sequence_number=1
    )
    header.first = header.last = True
    header.identifier = 7
    return _changed(header, changes)


def a_session_header(**changes: Any) -> SessionHeader:
    return _changed(SessionHeader(ack_sequence_number=3, user_msg_sequence_number=2), changes)


def a_user_message(**changes: Any) -> UserMessage:
    """Return a message made by `user_message`; the changes replace its usual arguments."""
    arguments: dict[str, Any] = {
        "source": SENDER,
        "destination_manager": DESTINATION,
        "destination": 17,
        "message_id": 5,
        "sent_time_s": SENT_S,
        "body": b"body of seven",
        "label": "label",
    }
    return user_message(**arguments | changes)


def a_transactional_message(**changes: Any) -> UserMessage:
    return a_user_message(**{"transaction": a_transaction_header()} | changes)


def a_security_header(**changes: Any) -> SecurityHeader:
    header = SecurityHeader(sender_id=SENDER, signature=b"signed", sender_cert=b"certificate")
    header.sender_id_type = 2
    header.has_security_data = True
    return _changed(header, changes)


def a_debug_header(**changes: Any) -> DebugHeader:
    return _changed(DebugHeader(flags=1, queue_identifier=SOMEBODY), changes)


def a_soap_header(**changes: Any) -> SoapHeader:
    return _changed(SoapHeader(header="<header/>", body="<body/>"), changes)


def a_multi_queue_format_header(**changes: Any) -> MultiQueueFormatHeader:
    """Return a header with every type of name; one name needs padding before it, and one list needs padding after
    it.
    """
    names = [
        MqfFormatNameElement(1, b"", SOMEBODY),
        MqfFormatNameElement(2, b"", PrivateQueueFormatName(DESTINATION, 17)),
        MqfFormatNameElement(3, b"", r"OS:one\q"),
        MqfFormatNameElement(6, b"", SOMEBODY),
    ]
    header = MultiQueueFormatHeader(
        destination=MqfAddressHeader(format_name_list=FormatNameList(names)),
        administration=MqfAddressHeader(format_name_list=FormatNameList(names[2:3])),
        signature=MqfSignatureHeader(signature=b"12345"),
    )
    return _changed(header, changes)


def a_full_message(**changes: Any) -> UserMessage:
    """Return a message with every header and every kind of field; the changes are fields of UserMessage."""
    message = a_transactional_message(
        destination=r"OS:computer\private$\orders",
        admin_queue=PrivateQueueFormatName(SOMEBODY, 9),
        response_queue="TCP:10.0.0.1\\replies",
        extension=b"extra",
        acknowledgments=0x0F,
    )
    message.user.has_connector_type = message.user.has_security = message.user.has_soap = True
    message.user.has_multi_queue_format = message.base.debug_header = message.base.session_header = True
    message.user.connector_type = SOMEBODY
    assert message.transaction is not None
    message.transaction.connector = True
    message.transaction.connector_qm_guid = SOMEBODY
    message.security = a_security_header()
    message.debug = a_debug_header()
    message.soap = a_soap_header()
    message.multi_queue_format = a_multi_queue_format_header()
    message.session = a_session_header()
    return _changed(message, changes)


def an_establish_connection(**changes: Any) -> EstablishConnection:
    packet = establish_connection(client=SENDER, server=DESTINATION, time_stamp_ms=501_140_046)
    return _changed(packet, changes)


def a_connection_parameters(**changes: Any) -> ConnectionParameters:
    packet = ConnectionParameters(recoverable_ack_timeout_ms=1_496, ack_timeout_ms=120_000, window_size=64)
    return _changed(packet, changes)


def a_session_ack(**changes: Any) -> SessionAck:
    return _changed(SessionAck(session=a_session_header()), changes)


def an_order_ack(**changes: Any) -> UserMessage:
    """Return an OrderAck; the changes replace its usual arguments."""
    arguments: dict[str, Any] = {
        "source": DESTINATION,
        "destination_manager": SENDER,
        "destination": 4,
        "message_id": 9,
        "sent_time_s": SENT_S,
        "body": OrderAckBody(a_sequence_id(), tx_sequence_number=2, tx_previous_sequence_number=1),
    }
    return OrderAck(**arguments | changes).message()


def a_final_ack(**changes: Any) -> UserMessage:
    """Return a FinalAck; the changes replace its usual arguments."""
    arguments: dict[str, Any] = {
        "source": DESTINATION,
        "destination_manager": SENDER,
        "destination": 4,
        "message_id": 10,
        "sent_time_s": SENT_S,
        "message_class": MessageClass.ACK_RECEIVE,
        "body": FinalAckBody(a_sequence_id(), 2, 1, SENDER, 5),
    }
    return FinalAck(**arguments | changes).message()


def a_ping(**changes: Any) -> Ping:
    return _changed(Ping(cookie=4, qm_guid=SENDER), changes)


def a_base_header(**changes: Any) -> BaseHeader:
    return _changed(BaseHeader(), changes)


def a_guid(last_byte: int) -> Guid:
    return Guid(bytes(15) + bytes([last_byte]))


EVERY_PACKET: Final = (
    encode_packet(a_user_message()),
    encode_packet(a_transactional_message()),
    encode_packet(a_full_message()),
    encode_packet(an_order_ack()),
    encode_packet(a_final_ack()),
    encode_packet(an_establish_connection()),
    encode_packet(a_connection_parameters()),
    encode_packet(a_session_ack()),
)


def poked(data: bytes, name: str, value: int | bytes) -> bytes:
    """Return a packet with different bytes in the field that has this dotted name; its size fields stay as they are."""
    [field] = [each for each in inspect_packet(data).fields if each.name == name]
    raw = value.to_bytes(field.size, "little") if isinstance(value, int) else value
    assert len(raw) == field.size
    return data[: field.offset] + raw + data[field.offset + field.size :]
