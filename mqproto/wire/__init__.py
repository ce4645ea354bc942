"""The wire: packets of MSMQ as records, and back.  Begin with README.md.

`decode_packet` and `encode_packet` turn whole packets into records and back, `check_packet` only says whether one is
good, `PacketBuffer` finds the packets in a stream, patch.py changes packets without decoding them, alike/ knows again
and makes more of one kind, and `inspect_packet` shows an analyst every byte.
"""

from mqproto.wire.acknowledgment import acknowledgment_in, final_ack, order_ack
from mqproto.wire.buffer import PacketBuffer, UnwelcomeError, Welcome
from mqproto.wire.classes import MessageClass
from mqproto.wire.codec import check_packet, decode_message, decode_packet, encode_packet
from mqproto.wire.guid import NULL_GUID, Guid, guid_from_text, guid_text
from mqproto.wire.keyblobs import decode_public_key_blob, decode_simple_blob, encode_key_blob
from mqproto.wire.layouts.acknowledgment import FinalAckBody, OrderAckBody
from mqproto.wire.layouts.base import INFINITE, MAXIMUM_PACKET_SIZE, BaseHeader
from mqproto.wire.layouts.debug import DebugHeader
from mqproto.wire.layouts.internal import (
    ConnectionParameters,
    EstablishConnection,
    InternalHeader,
    SessionAck,
    establish_connection,
)
from mqproto.wire.layouts.keyblobs import PublicKeyBlob, SimpleBlob
from mqproto.wire.layouts.multiqueue import (
    FormatNameList,
    MqfAddressHeader,
    MqfFormatNameElement,
    MqfSignatureHeader,
    MultiQueueFormatHeader,
)
from mqproto.wire.layouts.ping import Ping, ping_packet
from mqproto.wire.layouts.properties import MessageIdentifier, MessagePropertiesHeader, message_identifier
from mqproto.wire.layouts.security import ProviderInfo, SecurityHeader
from mqproto.wire.layouts.session import SessionHeader
from mqproto.wire.layouts.sid import sid_from_text, sid_text
from mqproto.wire.layouts.soap import SoapHeader
from mqproto.wire.layouts.transaction import TransactionHeader, TxSequenceId
from mqproto.wire.layouts.user import PrivateQueueFormatName, QueueName, UserHeader
from mqproto.wire.lenient import (
    Inspection,
    Remark,
    SeenField,
    announced_sizes,
    begins_stream,
    decode_beginning,
    inspect_key_blob,
    inspect_packet,
    inspect_ping,
    inspect_stream,
)
from mqproto.wire.messages import user_message
from mqproto.wire.packets import Packet, UserMessage
from mqproto.wire.patch import (
    passed_on,
    with_hop_counted,
    with_message_class,
    with_place,
    with_previous_number,
    with_session_header,
    without_session_header,
)

__all__ = [
    "INFINITE",
    "MAXIMUM_PACKET_SIZE",
    "NULL_GUID",
    "BaseHeader",
    "ConnectionParameters",
    "DebugHeader",
    "EstablishConnection",
    "FinalAckBody",
    "FormatNameList",
    "Guid",
    "Inspection",
    "InternalHeader",
    "MessageClass",
    "MessageIdentifier",
    "MessagePropertiesHeader",
    "MqfAddressHeader",
    "MqfFormatNameElement",
    "MqfSignatureHeader",
    "MultiQueueFormatHeader",
    "OrderAckBody",
    "Packet",
    "PacketBuffer",
    "Ping",
    "PrivateQueueFormatName",
    "ProviderInfo",
    "PublicKeyBlob",
    "QueueName",
    "Remark",
    "SecurityHeader",
    "SeenField",
    "SessionAck",
    "SessionHeader",
    "SimpleBlob",
    "SoapHeader",
    "TransactionHeader",
    "TxSequenceId",
    "UnwelcomeError",
    "UserHeader",
    "UserMessage",
    "Welcome",
    "acknowledgment_in",
    "announced_sizes",
    "begins_stream",
    "check_packet",
    "decode_beginning",
    "decode_message",
    "decode_packet",
    "decode_public_key_blob",
    "decode_simple_blob",
    "encode_key_blob",
    "encode_packet",
    "establish_connection",
    "final_ack",
    "guid_from_text",
    "guid_text",
    "inspect_key_blob",
    "inspect_packet",
    "inspect_ping",
    "inspect_stream",
    "message_identifier",
    "order_ack",
    "passed_on",
    "ping_packet",
    "sid_from_text",
    "sid_text",
    "user_message",
    "with_hop_counted",
    "with_message_class",
    "with_place",
    "with_previous_number",
    "with_session_header",
    "without_session_header",
]
