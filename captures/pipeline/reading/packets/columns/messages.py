"""The columns of UserMessages.  [MS-MQMQ] 2.2.20

Numbers are taken directly from the packets. Only mqproto.captures.decode knows what a name, a class or an
acknowledgment means: of rows that are alike in the relevant columns, only one is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.digest import HEAD_MASK, digests
from mqproto.captures.decode.names import admin_format_name, destination_format_name, response_format_name
from mqproto.captures.decode.row import CLASS_NAMES, EXPRESS, RECOVERABLE, TRANSACTIONAL, body_text
from mqproto.captures.decode.security.keyring import KeyRing
from mqproto.captures.decode.security.words import ProtectionColumns, protection_of
from mqproto.captures.decode.sequences import shown
from mqproto.captures.decode.sight import Kind, sight_of
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.reading.packets.columns.codec import (
    AT_A_TIME,
    BODY_TEXT,
    add_findings,
    found,
    put_known,
    seen_packet,
)
from mqproto.captures.pipeline.reading.packets.columns.schema import Table
from mqproto.captures.pipeline.reading.packets.columns.walk import Fields, Walk
from mqproto.captures.pipeline.source.octets import (
    Mask,
    Octets,
    Vector,
    alike,
    binaries,
    fixed,
    hex_texts,
    texts,
    windows,
)
from mqproto.wire import (
    NULL_GUID,
    BaseHeader,
    Guid,
    MessagePropertiesHeader,
    SecurityHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
    guid_text,
)
from mqproto.wire.layouts.acknowledgment import BODY_SIZE, FinalAckBody, final_ack_body, order_ack_body
from mqproto.wire.layouts.user import DIRECT
from mqproto.wire.schema.record import Record

_NULL: Final = np.frombuffer(NULL_GUID, np.uint8)
_DELIVERIES: Final = [EXPRESS, RECOVERABLE, TRANSACTIONAL]
_NAME_TYPES: Final = (
    UserHeader.destination_type.mask | UserHeader.admin_type.mask | UserHeader.response_type.mask
)
_ASKED: Final = sum(
    bit.mask
    for bit in (
        MessagePropertiesHeader.acknowledge_arrival,
        MessagePropertiesHeader.acknowledge_receipt,
        MessagePropertiesHeader.report_no_arrival,
        MessagePropertiesHeader.report_no_receipt,
    )
)
_ALGORITHMS: Final = ("privacy_level", "hash_algorithm", "encryption_algorithm")
_ACKNOWLEDGMENTS: Final[dict[Kind, Record[Any]]] = {
    Kind.ORDER_ACK: order_ack_body,
    Kind.FINAL_ACK: final_ack_body,
}


@dataclass(frozen=True, slots=True)
class Messages:
    """Valid UserMessages on their way into the table.

    rows: the rows of the messages in the table; all vectors refer to these rows.
    starts: where each message begins.
    record_ends: where each message ends according to its PacketSize.
    ends: where each message ends, including its SessionHeader.
    fields: the result of a walk by the layout of UserMessages.
    """

    table: Table
    data: Octets
    rows: Vector
    starts: Vector
    record_ends: Vector
    ends: Vector
    fields: Fields

    def add(self) -> None:
        """Fill in all columns except those of the SessionHeader."""
        add_base(self.table, self.rows, self.fields.inside("base"))
        names = self._add_user()
        self._add_properties()
        self._add_transaction()
        self._add_security()
        self._add_kind(names)
        self._add_own_findings()
        self._put("digest", self._digests())

    def add_texts(self) -> None:
        """Fill in the texts of bodies that are not encrypted, one by one."""
        properties, flags = self.fields.inside("properties"), self.fields.inside("security").numbers("flags")
        is_plain = SecurityHeader.body_encrypted.within(flags) == 0
        at = properties.place("message_body")[is_plain]
        ends = at + properties.numbers("message_size")[is_plain]
        types = properties.numbers("body_type")[is_plain]
        places = zip(at.tolist(), ends.tolist(), types.tolist(), strict=True)
        said = [body_text(self.data[start:end].tobytes(), kind) for start, end, kind in places]
        self.table.put_items(BODY_TEXT, self.rows[is_plain], said)

    def add_evidence(self, ring: KeyRing, *, texts: bool) -> None:
        """Fill in what the keys prove about signed or encrypted messages, one message at a time.

        texts: whether to fill in the texts of bodies that the keys have decrypted.
        """
        flags = self.fields.inside("security").numbers("flags")
        some = np.flatnonzero(self._is_signed() | (SecurityHeader.body_encrypted.within(flags) != 0))
        proved = [ring.evidence(self._example(row)) for row in some.tolist()]
        rows = self.rows[some]
        put_known(self.table.put, "verified", rows, [each.verified for each in proved])
        for name in ("signer", "signature", "decryption"):
            put_known(self.table.put_items, name, rows, [getattr(each, name) for each in proved])
        bodies = [each.plain for each in proved]
        sizes = [None if body is None else len(body) for body in bodies]
        put_known(self.table.put, "plain_bytes", rows, sizes)
        if texts:
            types = self.fields.inside("properties").numbers("body_type")[some].tolist()
            pairs = zip(bodies, types, strict=True)
            said = [None if body is None else body_text(body, kind) for body, kind in pairs]
            put_known(self.table.put_items, BODY_TEXT, rows, said)
        noted = [
            found(self._seen(row), each) if each.findings(0) else None
            for row, each in zip(some.tolist(), proved, strict=True)
        ]
        put_known(self.table.put_items, "own_findings", rows, noted)

    def _put(self, column: str, values: Any, where: Mask | None = None) -> None:
        """Put a value into each row, or into some of them."""
        if where is None:
            self.table.put(column, self.rows, values)
        else:
            self.table.put(column, self.rows[where], values[where])

    def _add_user(self) -> Vector:
        """Fill in the UserHeader.  [MS-MQMQ] 2.2.19.2

        Returns:
            A number for each row, equal for rows whose queues have the same names.
        """
        user = self.fields.inside("user")
        flags, identifiers = user.numbers("flags"), user.numbers("message_id")
        for name in ("message_id", "sent_time_s", "time_to_be_received_s"):
            self._put(name, user.numbers(name))
        self._put("hop_count", UserHeader.hop_count.within(flags))
        self._put("journal_negative", UserHeader.journal_negative.within(flags) != 0)
        self._put("journal_positive", UserHeader.journal_positive.within(flags) != 0)
        deliveries = np.where(self._is_transactional(), 2, UserHeader.recoverable.within(flags) != 0)
        self.table.put_items("delivery", self.rows, _DELIVERIES, deliveries)

        sources, source_codes = guid_texts(user.octets("source_queue_manager"))
        managers, manager_codes = guid_texts(user.octets("queue_manager_address"))
        self.table.put_items("source_manager", self.rows, sources, source_codes)
        self.table.put_items("destination_manager", self.rows, managers, manager_codes)
        self.table.put_items("message", self.rows, identifier_texts(sources, source_codes, identifiers))

        first, padding = user.place("destination_queue"), user.span("response_padding")
        names = binaries(self.data, first, padding.at + padding.sizes - first)
        codes, examples = alike(source_codes, manager_codes, flags & _NAME_TYPES, names)
        headers = [self._example(row).user for row in examples]
        for column, name_of in (
            ("queue", destination_format_name),
            ("admin_queue", admin_format_name),
            ("response_queue", response_format_name),
        ):
            self.table.put_items(column, self.rows, [name_of(header) for header in headers], codes)
        return codes

    def _add_properties(self) -> None:
        """Fill in the MessagePropertiesHeader.  [MS-MQMQ] 2.2.19.3"""
        properties = self.fields.inside("properties")
        for column, name in (
            ("message_class", "message_class"),
            ("body_type", "body_type"),
            ("application_tag", "application_tag"),
            ("body_bytes", "message_size"),
            ("extension_bytes", "extension_size"),
            ("acknowledgments", "flags"),
        ):
            self._put(column, properties.numbers(name))
        self._put("body_offset", properties.place("message_body") - self.starts)
        codes, examples = alike(properties.numbers("message_class"))
        classes = [CLASS_NAMES.get(int(each)) for each in properties.numbers("message_class")[examples]]
        self.table.put_items("class_name", self.rows, classes, codes)
        self.table.put_items("correlation", self.rows, hex_texts(properties.octets("correlation_id")))
        label = properties.span("label")
        has = label.sizes > 0
        self.table.put_items("label", self.rows[has], texts(self.data, label.at[has], label.sizes[has]))

    def _add_transaction(self) -> None:
        """Fill in the TransactionHeader, if there is one.  [MS-MQMQ] 2.2.20.5"""
        has = self._is_transactional()
        transaction = self.fields.inside("transaction")
        flags = transaction.numbers("flags")
        self._put("sequence_number", transaction.numbers("tx_sequence_number"), has)
        self._put("previous_number", transaction.numbers("previous_tx_sequence_number"), has)
        self._put("first_in_transaction", TransactionHeader.first.within(flags) != 0, has)
        self._put("last_in_transaction", TransactionHeader.last.within(flags) != 0, has)
        self._put("asks_final_ack", TransactionHeader.final_ack.within(flags) != 0, has)
        sequences = sequence_texts(transaction.inside("tx_sequence_id"), has)
        self.table.put_items("sequence", self.rows[has], *sequences)

    def _add_security(self) -> None:
        """Fill in the protection that a message claims, if any.  [MS-MQMQ] 2.2.20.3, 2.2.20.6"""
        security, properties = self.fields.inside("security"), self.fields.inside("properties")
        flags = security.numbers("flags")
        has = UserHeader.has_security.within(self.fields.inside("user").numbers("flags")) != 0
        self._put("security_header", has)
        is_signed = self._is_signed()
        some = has | is_signed
        if not some.any():
            return
        sender = security.span("sender_id")
        codes, examples = alike(
            flags[some],
            has[some],
            binaries(self.data, sender.at[some], sender.sizes[some]),
            is_signed[some],
            *(properties.numbers(name)[some] for name in _ALGORITHMS),
        )
        words = [protection_of(self._example(row)) for row in np.flatnonzero(some)[examples]]
        for place, name in enumerate(ProtectionColumns._fields[1:], 1):
            self.table.put_items(name, self.rows[some], [each[place] for each in words], codes)

    def _add_kind(self, names: Vector) -> None:
        """Fill in kinds, and the subjects of acknowledgments.  [MS-MQQB] 2.2.4, 2.2.5, 3.1.5.1.1"""
        user, properties = self.fields.inside("user"), self.fields.inside("properties")
        classes, label = properties.numbers("message_class"), properties.span("label")
        # What makes an OrderAck or a FinalAck depends on much, so only messages of that size are checked.
        may = (classes != 0) & (properties.numbers("message_size") == BODY_SIZE)
        forms = np.zeros(len(self.rows), np.int64)
        flags = self.fields.inside("base").numbers("flags")
        labels = binaries(self.data, label.at[may], label.sizes[may])
        forms[may] = 1 + alike(flags[may], names[may], labels)[0]
        recoverable = UserHeader.recoverable.within(user.numbers("flags"))
        codes, examples = alike(classes, self._is_transactional(), recoverable, forms)
        kinds = [sight_of(self._seen(row)).kind for row in examples]
        self.table.put_items("kind", self.rows, kinds, codes)
        for kind, record in _ACKNOWLEDGMENTS.items():
            if kind in kinds:
                self._add_acknowledgments(np.array([each is kind for each in kinds])[codes], record)

    def _add_acknowledgments(self, which: Mask, record: Record[Any]) -> None:
        """Fill in the bodies of OrderAcks or FinalAcks.  [MS-MQQB] 2.2.4.1, 2.2.5.1"""
        rows = self.rows[which]
        at = self.fields.inside("properties").place("message_body")[which]
        walk = Walk(record, self.data, at, at + BODY_SIZE)
        assert walk.taken.all(), "a body of that size breaks no rule"
        self.table.put("ack_sequence_number", rows, walk.fields.numbers("tx_sequence_number"))
        self.table.put("ack_previous_number", rows, walk.fields.numbers("tx_previous_sequence_number"))
        self.table.put_items("ack_sequence", rows, *sequence_texts(walk.fields.inside("tx_sequence_id")))
        if record.kind is FinalAckBody:
            sources = guid_texts(walk.fields.octets("source_guid"))
            identifiers = identifier_texts(*sources, walk.fields.numbers("message_id"))
            self.table.put_items("ack_message", rows, identifiers)

    def _add_own_findings(self) -> None:
        """Fill in the remarks of `mqproto.wire.lenient.remarks`."""
        user, properties = self.fields.inside("user"), self.fields.inside("properties")
        flags, base_flags = user.numbers("flags"), self.fields.inside("base").numbers("flags")
        is_direct = UserHeader.destination_type.within(flags) == DIRECT
        is_addressed = (user.octets("queue_manager_address") != _NULL).any(axis=1)
        security = self.fields.inside("security").numbers("flags")
        signs = (
            self._is_transactional() & (BaseHeader.priority.within(base_flags) != 0),
            is_direct & is_addressed,
            (properties.numbers("flags") & _ASKED != 0) & (UserHeader.admin_type.within(flags) == 0),
            properties.numbers("allocation_body_size") < properties.numbers("message_size"),
            security & (SecurityHeader.authenticated.mask | SecurityHeader.signature_type.mask) != 0,
            self.fields.span("trailing").sizes,
        )
        add_findings(self.table, self.data, self.rows, self.starts, self.ends, *signs)

    def _digests(self) -> Vector:
        """Return the digest of each message, as `mqproto.captures.decode.digest.digest_of` computes it."""
        size = len(HEAD_MASK)
        heads = windows(self.data, self.starts, size) & np.frombuffer(HEAD_MASK, np.uint8)
        heads = heads.view(f"V{size}").ravel()
        parts = []
        for low in range(0, len(heads), AT_A_TIME):
            some = slice(low, low + AT_A_TIME)
            rests = map(slice, (self.starts[some] + size).tolist(), self.record_ends[some].tolist())
            parts.append(
                digests(zip(heads[some].tolist(), map(self.data.data.__getitem__, rests), strict=True))
            )
        return np.frombuffer(b"".join(parts), "<i8")

    def _is_signed(self) -> Mask:
        listed = self.fields.inside("multi_queue_format").inside("signature")
        sizes = self.fields.inside("security").numbers("signature_size"), listed.numbers("size")
        is_set: Mask = (sizes[0] != 0) | (sizes[1] != 0)
        return is_set

    def _is_transactional(self) -> Mask:
        flags = self.fields.inside("user").numbers("flags")
        is_set: Mask = UserHeader.has_transaction.within(flags) != 0
        return is_set

    def _seen(self, row: int) -> SeenPacket:
        return seen_packet(self.data, self.starts[row], self.ends[row])

    def _example(self, row: int) -> UserMessage:
        message = sight_of(self._seen(row)).message
        assert message is not None, "the codec takes what the walk takes"
        return message


def add_base(table: Table, rows: Vector, base: Fields) -> None:
    """Fill in the BaseHeader.  [MS-MQMQ] 2.2.19.1"""
    flags = base.numbers("flags")
    table.put("priority", rows, BaseHeader.priority.within(flags))
    table.put("trace", rows, BaseHeader.trace.within(flags) != 0)
    table.put("time_to_reach_queue_s", rows, base.numbers("time_to_reach_queue_s"))


def guid_texts(octets: Octets) -> tuple[list[str], Vector]:
    """Return GUIDs as texts, each GUID once, and the index of each row's GUID."""
    codes, examples = alike(fixed(octets))
    return [guid_text(Guid(octets[row].tobytes())) for row in examples], codes


def identifier_texts(managers: list[str], codes: Vector, ordinals: Vector) -> pa.Array:
    """Return message identifiers as `mqproto.captures.decode.row.identifier_text` writes them."""
    guids = pa.array(managers, pa.string()).take(pa.array(codes))
    return pc.binary_join_element_wise(guids, pa.array(ordinals).cast(pa.string()), "\\")


def sequence_texts(identifiers: Fields, where: Mask | None = None) -> tuple[list[str], Vector]:
    """Return TxSequenceIDs as texts, each once, and the index of the text for each row, or each chosen row."""
    time_stamps, ordinals = identifiers.numbers("time_stamp"), identifiers.numbers("ordinal")
    if where is not None:
        time_stamps, ordinals = time_stamps[where], ordinals[where]
    codes, examples = alike(time_stamps, ordinals)
    pairs = zip(time_stamps[examples].tolist(), ordinals[examples].tolist(), strict=True)
    return [shown(TxSequenceId(time_stamp=high, ordinal=low)) for high, low in pairs], codes
