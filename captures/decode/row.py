"""A packet as a row of named values.

`mqproto decode --json` prints these values, and a table of packets has them as columns. Each row has every key,
whatever the packet is; a value that the packet lacks is null. Names and meanings never change.
"""

from __future__ import annotations

import re
import struct
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from contextlib import suppress
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, Final

from mqproto.base.words import when
from mqproto.bodies import BYTES, read_body
from mqproto.captures.decode.names import admin_format_name, destination_format_name, response_format_name
from mqproto.captures.decode.security.keyring import Evidence
from mqproto.captures.decode.security.words import protection_of
from mqproto.captures.decode.sequences import shown
from mqproto.captures.decode.sight import Acknowledged, Kind, Sight, guids_of
from mqproto.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    Guid,
    MessageClass,
    Ping,
    SessionHeader,
    UserHeader,
    UserMessage,
    announced_sizes,
    guid_text,
)
from mqproto.wire.layouts.base import base_header

_BASE: Final = struct.Struct(base_header.struct_format("flags", "time_to_reach_queue_s"))
BODY_TEXT_LIMIT: Final = 16_384
"""The largest number of characters of a body's text that a row holds."""
EXPRESS, RECOVERABLE, TRANSACTIONAL = "express", "recoverable", "transactional"
NOT_EXPRESS: Final = "recoverable or transactional"
"""The value of `delivery` for a message that is not express, but is cut before the bytes that show whether it is
recoverable or transactional.
"""
_WIDE: Final = (BOM_UTF16_LE, BOM_UTF16_BE)
_LATIN: Final = re.compile(rb"<\?xml[^>]{1,200}encoding\s*=\s*[\"']iso-8859-1", re.IGNORECASE)
_NO_TEXT: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
CLASS_NAMES: Final = {int(each): each.name for each in MessageClass}


@dataclass(slots=True, kw_only=True)
class PacketRow:
    """One packet. Times are in UTC, sizes in bytes, and GUIDs are text in capitals.

    Other packets are identified by their `number`.

    Where it is in the capture:
        number: the packet's number, counted from 1; null for bytes that begin no packet.
        frame, first_frame: the frame that ended it, and the frame that began it.
        file_offset: the offset of the record of `first_frame` in the unpacked file.
        time, time_ns: when its last byte could be read, as text with microseconds, and as nanoseconds since 1970.
        connection: the connection's number, counted from 0 as in Wireshark's tcp.stream; null for a Ping.
        position: the offset of its first byte in its sender's stream on the connection.
        missing_bytes: how many bytes right before it are not in the capture.
        skipped_bytes: how many bytes right before it belong to no packet.
        cut_bytes: how many of its bytes the capture lacks, or has only after a hole; 0 if it is whole. Only the
            beginning of a cut packet is read. The fields of the rest, such as a label, a body's text or a
            SessionHeader, are null.
        snapped_bytes: how many of the bytes missing before it, or in its own hole, were lost because the capture cut
            frames short.
        ahead: whether its sender may have received bytes from the other side that the capture does not show before it.

    Between whom it crossed:
        source, destination: names from the topology, otherwise address:port.
        source_address, source_port: where it came from.
        destination_address, destination_port: where it went.

    What it is:
        kind: one of Kind.
        size_bytes: its size, including its SessionHeader.
        valid: whether a queue manager accepts its bytes, as far as the capture has them.
        fault: what is wrong with its bytes.
        priority, trace, time_to_reach_queue_s: fields of the BaseHeader.  [MS-MQMQ] 2.2.19.1

    Handshakes and Pings:  [MS-MQQB] 2.2.2, 2.2.3, 2.2.7
        client, server: the GUIDs of an EstablishConnection.
        refused: whether the connection, or a Ping, is refused.
        cookie: the cookie of a Ping.
        recoverable_ack_timeout_ms, ack_timeout_ms: from ConnectionParameters, as is window_size below.

    A SessionHeader, alone or with a message:  [MS-MQMQ] 2.2.20.4
        ack_number, saved_first, saved_flags: its first three fields.
        sent_count, recoverable_sent_count, window_size: its other fields, in order.
        received_packets, received_count: the first and last of the packets that it newly acknowledges as received, and
            how many such packets there are.
        saved_packets, saved_count: the same for the packets that it newly acknowledges as saved.

    A UserMessage:  [MS-MQMQ] 2.2.19.2, 2.2.19.3, 2.2.20.5
        session_number, session_recoverable_number: its numbers on its session, if the capture shows them.
        message: SourceQueueManager and MessageID, as in 557358D1-5055-9591-9549-97B6E611EA26\\5.
        source_manager, message_id: the same two, separately.
        destination_manager: QueueManagerAddress.
        queue: the destination's format name.
        queue_name: the destination's name in the topology, otherwise a short form.
        admin_queue, response_queue: format names.
        sent_time_s, time_to_be_received_s, hop_count: fields of the UserHeader.
        delivery: express, recoverable or transactional; `recoverable or transactional` if the message is cut before the
            bytes that tell which.
        journal_negative, journal_positive: JN and JP.
        message_class, class_name: the number of its class, and the name of that class, if any.
        correlation: CorrelationID in hex.
        label, body_type, application_tag: fields of the MessagePropertiesHeader.
        body_bytes, extension_bytes: the sizes of its body and of its extension.
        acknowledgments: the flags.
        body_text: the result of `body_text`; null if the body is encrypted and no key at hand decrypts it.
        security_header: whether it has a SecurityHeader, which alone proves nothing.  [MS-MQMQ] 2.2.20.6
        sender_kind: the kind of sender that it claims, `SID` or `queue manager`, whether or not it is signed.
        sender_id: the SID, or the queue manager's GUID, that it claims.
        signed: the hash of its signature, if it has one: MD5, SHA-1, SHA-256, SHA-512; any other hash as its number.
        encrypted: the cipher of its body, if it is encrypted: AES-256, RC2-40; any other cipher as its number.
        verified, signer, signature, decryption: what keys prove about it, as in
            `mqproto.captures.decode.security.keyring.Evidence`; null if no keys were given.
        plain_bytes: the size of its decrypted body, if it was encrypted and a key at hand decrypts it.
        sequence: the time stamp and the ordinal of TxSequenceID.
        sequence_number, previous_number: the other numbers of the TransactionHeader.
        first_in_transaction, last_in_transaction, asks_final_ack: the flags of that header.

    An OrderAck or FinalAck:  [MS-MQQB] 2.2.4.1, 2.2.5.1
        ack_sequence, ack_sequence_number, ack_previous_number: fields of its body.
        ack_message: the message that a FinalAck is about, in the form of `message`.
        ended_packets, ended_count: the packets of the messages that it, or an administration acknowledgment, covers.

    findings: the findings that this packet revealed, each with severity, code, packet, text and section.
    """

    number: int | None
    frame: int
    first_frame: int
    file_offset: int
    time: str
    time_ns: int
    connection: int | None
    position: int
    missing_bytes: int
    skipped_bytes: int
    snapped_bytes: int
    cut_bytes: int
    ahead: bool
    source: str
    destination: str
    source_address: str
    source_port: int
    destination_address: str
    destination_port: int
    kind: str
    size_bytes: int
    valid: bool
    fault: str | None = None
    priority: int | None = None
    trace: bool | None = None
    time_to_reach_queue_s: int | None = None
    client: str | None = None
    server: str | None = None
    refused: bool | None = None
    cookie: int | None = None
    recoverable_ack_timeout_ms: int | None = None
    ack_timeout_ms: int | None = None
    ack_number: int | None = None
    saved_first: int | None = None
    saved_flags: int | None = None
    sent_count: int | None = None
    recoverable_sent_count: int | None = None
    window_size: int | None = None
    received_packets: list[int] | None = None
    received_count: int | None = None
    saved_packets: list[int] | None = None
    saved_count: int | None = None
    session_number: int | None = None
    session_recoverable_number: int | None = None
    message: str | None = None
    source_manager: str | None = None
    message_id: int | None = None
    destination_manager: str | None = None
    queue: str | None = None
    queue_name: str | None = None
    admin_queue: str | None = None
    response_queue: str | None = None
    sent_time_s: int | None = None
    time_to_be_received_s: int | None = None
    hop_count: int | None = None
    delivery: str | None = None
    journal_negative: bool | None = None
    journal_positive: bool | None = None
    message_class: int | None = None
    class_name: str | None = None
    correlation: str | None = None
    label: str | None = None
    body_type: int | None = None
    application_tag: int | None = None
    body_bytes: int | None = None
    extension_bytes: int | None = None
    body_text: str | None = None
    acknowledgments: int | None = None
    security_header: bool | None = None
    sender_kind: str | None = None
    sender_id: str | None = None
    signed: str | None = None
    encrypted: str | None = None
    verified: bool | None = None
    signer: str | None = None
    signature: str | None = None
    decryption: str | None = None
    plain_bytes: int | None = None
    sequence: str | None = None
    sequence_number: int | None = None
    previous_number: int | None = None
    first_in_transaction: bool | None = None
    last_in_transaction: bool | None = None
    asks_final_ack: bool | None = None
    ack_sequence: str | None = None
    ack_sequence_number: int | None = None
    ack_previous_number: int | None = None
    ack_message: str | None = None
    ended_packets: list[int] | None = None
    ended_count: int | None = None
    findings: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Return all keys with their values."""
        return {name: getattr(self, name) for name in KEYS}


KEYS: Final = tuple(field.name for field in fields(PacketRow))


def row_of(sight: Sight, queue_name: str | None = None, evidence: Evidence | None = None) -> PacketRow:
    """Return the row of a packet.

    Args:
        queue_name: for a UserMessage, the name of its queue, from `Names.destination`.
        evidence: what keys prove about the message, if keys were given.
    """
    seen = sight.seen
    packet = seen.packet
    row = PacketRow(
        number=seen.number if seen.framed else None,
        frame=seen.frame,
        first_frame=seen.first_frame,
        file_offset=seen.file_offset,
        time=f"{when(seen.time_ns, parted='T')}Z",
        time_ns=seen.time_ns,
        connection=None if seen.is_ping else seen.connection,
        position=seen.position,
        missing_bytes=seen.missing_bytes,
        skipped_bytes=seen.skipped_bytes,
        snapped_bytes=seen.snapped_bytes,
        cut_bytes=seen.cut_bytes,
        ahead=seen.ahead,
        source=sight.source,
        destination=sight.destination,
        source_address=seen.source.host,
        source_port=seen.source.port,
        destination_address=seen.destination.host,
        destination_port=seen.destination.port,
        kind=str(sight.kind),
        size_bytes=seen.size_bytes,
        valid=packet is not None or seen.cut_bytes > 0,
        findings=[finding.as_json() for finding in sight.findings],
    )
    if sight.kind is Kind.CUT:
        _add_beginning(row, sight)
    elif packet is None:
        row.fault = " ".join(str(seen.fault).split())
    elif isinstance(packet, Ping):
        row.client, row.refused, row.cookie = guid_text(packet.qm_guid), packet.refused, packet.cookie
    else:
        row.priority, row.trace = packet.base.priority, packet.base.trace
        row.time_to_reach_queue_s = packet.base.time_to_reach_queue_s
    if isinstance(packet, EstablishConnection):
        client, server = guids_of(seen, packet)
        row.client = None if client is None else guid_text(client)
        row.server = None if server is None else guid_text(server)
        row.refused = packet.refused
    elif isinstance(packet, ConnectionParameters):
        row.recoverable_ack_timeout_ms = packet.recoverable_ack_timeout_ms
        row.ack_timeout_ms, row.window_size = packet.ack_timeout_ms, packet.window_size
        row.refused = packet.refused
    if sight.session is not None:
        _add_session(row, sight, sight.session)
    if sight.message is not None:
        _add_message(row, sight, sight.message)
        row.queue_name = queue_name
        if evidence is not None:
            _add_evidence(row, evidence)
    return row


def _add_beginning(row: PacketRow, sight: Sight) -> None:
    """Add the first fields of a packet that is cut before the capture shows its kind."""
    flags, row.time_to_reach_queue_s = _BASE.unpack_from(sight.seen.data)
    row.priority, row.trace = BaseHeader.priority.within(flags), BaseHeader.trace.within(flags) != 0
    if sight.beginning is not None:
        row.session_number, row.session_recoverable_number = sight.count, sight.recoverable_count
        _tell_user(row, sight.beginning)
        if sight.transactional is None:
            row.delivery = NOT_EXPRESS


def _add_session(row: PacketRow, sight: Sight, header: SessionHeader) -> None:
    row.ack_number = header.ack_sequence_number
    row.saved_first, row.saved_flags = header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags
    row.sent_count, row.recoverable_sent_count = (
        header.user_msg_sequence_number,
        header.recoverable_msg_seq_number,
    )
    row.window_size = header.window_size
    row.received_packets, row.received_count = _ends(sight.received)
    row.saved_packets, row.saved_count = _ends(sight.saved)


def message_columns(message: UserMessage) -> dict[str, Any]:
    """Return the columns that depend on a message alone; the keys are the same wherever it was found."""
    base = message.base
    row = SimpleNamespace(
        priority=base.priority, trace=base.trace, time_to_reach_queue_s=base.time_to_reach_queue_s
    )
    _tell(row, message)
    return vars(row)


def _add_message(row: PacketRow, sight: Sight, message: UserMessage) -> None:
    row.session_number, row.session_recoverable_number = sight.count, sight.recoverable_count
    _tell(row, message)
    if sight.seen.cut_bytes:
        row.extension_bytes, row.body_bytes = announced_sizes(sight.seen.data)
    elif message.security is None or not message.security.body_encrypted:
        row.body_text = body_text(message.properties.message_body, message.properties.body_type)
    if sight.acknowledgment is not None:
        body = sight.acknowledgment
        row.ack_sequence = shown(body.tx_sequence_id)
        row.ack_sequence_number, row.ack_previous_number = (
            body.tx_sequence_number,
            body.tx_previous_sequence_number,
        )
        if isinstance(body, FinalAckBody):
            row.ack_message = identifier_text(body.source_guid, body.message_id)
    row.ended_packets, row.ended_count = _ends(sight.ended)


def _add_evidence(row: PacketRow, evidence: Evidence) -> None:
    row.verified, row.signer, row.signature, row.decryption, plain = evidence
    if plain is not None:
        assert row.body_type is not None
        row.plain_bytes, row.body_text = len(plain), body_text(plain, row.body_type)


def _tell(row: PacketRow | SimpleNamespace, message: UserMessage) -> None:
    user, properties, transaction = message.user, message.properties, message.transaction
    _tell_user(row, user)
    row.queue, row.admin_queue = destination_format_name(user), admin_format_name(user)
    row.response_queue = response_format_name(user)
    row.message_class, row.class_name = properties.message_class, CLASS_NAMES.get(properties.message_class)
    row.correlation = properties.correlation_id.hex()
    row.label = None if properties.label is None else encodable(properties.label)
    row.body_type, row.application_tag = properties.body_type, properties.application_tag
    row.body_bytes, row.extension_bytes = len(properties.message_body), len(properties.extension_data)
    row.acknowledgments = properties.flags
    row.security_header, row.sender_kind, row.sender_id, row.signed, row.encrypted = protection_of(message)
    if transaction is not None:
        row.sequence = shown(transaction.tx_sequence_id)
        row.sequence_number = transaction.tx_sequence_number
        row.previous_number = transaction.previous_tx_sequence_number
        row.first_in_transaction, row.last_in_transaction = transaction.first, transaction.last
        row.asks_final_ack = transaction.final_ack


def _tell_user(row: PacketRow | SimpleNamespace, user: UserHeader) -> None:
    """Set the columns for the fixed fields of a UserHeader."""
    row.source_manager, row.message_id = guid_text(user.source_queue_manager), user.message_id
    row.message = identifier_text(user.source_queue_manager, user.message_id)
    row.destination_manager = guid_text(user.queue_manager_address)
    row.sent_time_s, row.time_to_be_received_s = user.sent_time_s, user.time_to_be_received_s
    row.hop_count = user.hop_count
    row.delivery = TRANSACTIONAL if user.has_transaction else RECOVERABLE if user.recoverable else EXPRESS
    row.journal_negative, row.journal_positive = user.journal_negative, user.journal_positive


def identifier_text(manager: Guid, ordinal: int) -> str:
    """Return a message identifier as MSMQ's interfaces write it: GUID, backslash, ordinal. [MS-MQMQ] 2.2.18.1.3"""
    return f"{guid_text(manager)}\\{ordinal}"


def body_text(body: bytes, body_type: int) -> str | None:
    """Return the first BODY_TEXT_LIMIT characters of a body's text; None if it has none.

    The text is that of a COM string, of a string in BinaryFormatter's format, or of a string in XML; for other XML, it
    is the whole document. A body without a type is text if it is UTF-8 without control characters. Any other body has
    no text.
    """
    found = read_body(body, body_type)
    if found.reason or (not body and found.kind == BYTES):
        return None
    if isinstance(found.value, str):
        text = found.value
    elif found.kind.startswith("xml"):
        text = _document(body)
    elif found.kind == BYTES:
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            return None
        if _NO_TEXT.search(text):
            return None
    else:
        return None
    return text[:BODY_TEXT_LIMIT]


def _document(body: bytes) -> str:
    """Return the text of a body that is known to be XML."""
    if body.startswith(_WIDE):
        return body.decode("utf-16")
    data = body.removeprefix(BOM_UTF8)
    if not _LATIN.match(data):
        with suppress(UnicodeDecodeError):
            return data.decode("utf-8")
    return data.decode("iso-8859-1")


def encodable(text: str) -> str:
    """Return text that UTF-8 can hold.

    Halves of surrogate pairs, which 16-bit labels may contain, become question marks.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def _ends(acknowledged: Acknowledged | None) -> tuple[list[int] | None, int | None]:
    if acknowledged is None:
        return None, None
    packets = acknowledged.packets
    return [packets[0], packets[-1]], len(packets)
