"""The wire, where packets of MSMQ become records, and records become packets.  Begin with README.md.

`decode_packet` and `encode_packet` turn whole packets into records and back, `check_packet` only judges one, and
`PacketBuffer` finds the packets in a stream. patch.py changes packets without decoding them, and makes more packets
like a given one; shapes.py recognizes such packets, and `inspect_packet` shows an analyst every byte.
"""

from mqproto.wire.buffer import (
    PacketBuffer as PacketBuffer,
    UnwelcomeError as UnwelcomeError,
    Welcome as Welcome,
)
from mqproto.wire.classes import MessageClass as MessageClass
from mqproto.wire.codec import (
    check_packet as check_packet,
    decode_message as decode_message,
    decode_packet as decode_packet,
    encode_packet as encode_packet,
)
from mqproto.wire.guid import (
    NULL_GUID as NULL_GUID,
    Guid as Guid,
    guid_from_text as guid_from_text,
    guid_text as guid_text,
)
from mqproto.wire.layouts.acknowledgment import (
    FinalAckBody as FinalAckBody,
    OrderAckBody as OrderAckBody,
    final_ack_body as final_ack_body,
    order_ack_body as order_ack_body,
)
from mqproto.wire.layouts.base import (
    INFINITE as INFINITE,
    MAXIMUM_PACKET_SIZE as MAXIMUM_PACKET_SIZE,
    BaseHeader as BaseHeader,
    base_header as base_header,
)
from mqproto.wire.layouts.debug import DebugHeader as DebugHeader, debug_header as debug_header
from mqproto.wire.layouts.internal import (
    ConnectionParameters as ConnectionParameters,
    EstablishConnection as EstablishConnection,
    InternalHeader as InternalHeader,
    SessionAck as SessionAck,
    connection_parameters_packet as connection_parameters_packet,
    establish_connection as establish_connection,
    establish_connection_packet as establish_connection_packet,
    internal_header as internal_header,
    session_ack_packet as session_ack_packet,
)
from mqproto.wire.layouts.keyblobs import (
    PublicKeyBlob as PublicKeyBlob,
    SimpleBlob as SimpleBlob,
    public_key_blob as public_key_blob,
    simple_blob as simple_blob,
)
from mqproto.wire.layouts.multiqueue import (
    FormatNameList as FormatNameList,
    MqfAddressHeader as MqfAddressHeader,
    MqfFormatNameElement as MqfFormatNameElement,
    MqfSignatureHeader as MqfSignatureHeader,
    MultiQueueFormatHeader as MultiQueueFormatHeader,
    administration_mqf_address_header as administration_mqf_address_header,
    destination_mqf_address_header as destination_mqf_address_header,
    format_name_list as format_name_list,
    mqf_format_name_element as mqf_format_name_element,
    mqf_signature_header as mqf_signature_header,
    multi_queue_format_header as multi_queue_format_header,
    response_mqf_address_header as response_mqf_address_header,
)
from mqproto.wire.layouts.ping import Ping as Ping, ping_packet as ping_packet
from mqproto.wire.layouts.properties import (
    MessageIdentifier as MessageIdentifier,
    MessagePropertiesHeader as MessagePropertiesHeader,
    message_identifier as message_identifier,
    message_properties_header as message_properties_header,
)
from mqproto.wire.layouts.security import (
    ProviderInfo as ProviderInfo,
    SecurityHeader as SecurityHeader,
    provider_info as provider_info,
    security_header as security_header,
)
from mqproto.wire.layouts.session import SessionHeader as SessionHeader, session_header as session_header
from mqproto.wire.layouts.sid import (
    Sid as Sid,
    sid as sid,
    sid_from_text as sid_from_text,
    sid_text as sid_text,
)
from mqproto.wire.layouts.soap import SoapHeader as SoapHeader, soap_header as soap_header
from mqproto.wire.layouts.transaction import (
    TransactionHeader as TransactionHeader,
    TxSequenceId as TxSequenceId,
    transaction_header as transaction_header,
    tx_sequence_id as tx_sequence_id,
)
from mqproto.wire.layouts.user import (
    PrivateQueueFormatName as PrivateQueueFormatName,
    QueueName as QueueName,
    UserHeader as UserHeader,
    direct_queue_format_name as direct_queue_format_name,
    private_queue_format_name as private_queue_format_name,
    user_header as user_header,
)
from mqproto.wire.lenient import (
    Inspection as Inspection,
    SeenField as SeenField,
    announced_sizes as announced_sizes,
    begins_stream as begins_stream,
    decode_beginning as decode_beginning,
    inspect_packet as inspect_packet,
    inspect_ping as inspect_ping,
    inspect_stream as inspect_stream,
)
from mqproto.wire.messages import (
    FinalAck as FinalAck,
    OrderAck as OrderAck,
    acknowledgment_in as acknowledgment_in,
    final_ack_packet as final_ack_packet,
    order_ack_packet as order_ack_packet,
    user_message as user_message,
)
from mqproto.wire.packets import (
    Packet as Packet,
    UserMessage as UserMessage,
    user_message_packet as user_message_packet,
)
from mqproto.wire.patch import (
    passed_on as passed_on,
    with_hop_counted as with_hop_counted,
    with_message_class as with_message_class,
    with_place as with_place,
    with_previous_number as with_previous_number,
    with_session_header as with_session_header,
    without_session_header as without_session_header,
)
from mqproto.wire.reference import packet as packet
from mqproto.wire.schema.layout import MisuseError as MisuseError, ParseError as ParseError
