"""Messages in the form in which an application receives them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

from mqproto.base.errors import FormatNameError
from mqproto.formatname.wire import admin_from_wire, destinations_from_wire, response_from_wire
from mqproto.messages.drafts import (
    ACKNOWLEDGE_ARRIVAL,
    ACKNOWLEDGE_RECEIPT,
    REPORT_NO_ARRIVAL,
    REPORT_NO_RECEIPT,
    path_name_in,
)
from mqproto.turn.guard import CIPHERS
from mqproto.wire import (
    Guid,
    MessageClass,
    UserMessage,
    decode_message,
    guid_from_text,
    guid_text,
)
from mqproto.wire.glance import body_of, correlated, correlation_id_of, identifier_of

SIGNATURES: Final = {1: "MSMQ 1.0", 3: "MSMQ 2.0", 5: "MSMQ 3.0"}
"""The kinds of signatures, keyed by the AS field of the SecurityHeader, as set by 3.1.5.8.3."""
HASH_NAMES: Final = {0x8003: "MD5", 0x8004: "SHA-1", 0x800C: "SHA-256", 0x800E: "SHA-512"}
ASKED_FOR: Final = ACKNOWLEDGE_ARRIVAL | ACKNOWLEDGE_RECEIPT | REPORT_NO_ARRIVAL | REPORT_NO_RECEIPT


class MessageId(NamedTuple):
    r"""A message's unique identifier, printed as `GUID\ordinal`.  [MS-MQMQ] 2.2.18.1.3"""

    manager: Guid
    ordinal: int

    def __str__(self) -> str:
        return f"{guid_text(self.manager)}\\{self.ordinal}"

    @property
    def correlation_id(self) -> bytes:
        """The CorrelationID of a message that refers to this message: 20 bytes."""
        return correlation_id_of(*self)

    @classmethod
    def parse(cls, text: str) -> MessageId | None:
        r"""Return the identifier that a text contains, as we print it or with braces as in Windows; None if the text
        has neither form.
        """
        found = re.fullmatch(r"\{?([0-9A-Fa-f-]{36})\}?\\([0-9]{1,10})", text.strip())
        if found is None or int(found[2]) > 0xFFFFFFFF:
            return None
        with suppress(ValueError):
            return cls(guid_from_text(found[1]), int(found[2]))
        return None


@dataclass(frozen=True)
class ReceivedMessage:
    """A message as an application sees it. The packet is decoded only if more than its identifier and body is needed.

    packet: a UserMessage that the message's node has checked.
    delivery_count: the number of times that the message was handed out, including this time; -1 if it was waiting when
        its node started, perhaps after a crash.
    """

    packet: bytes
    delivery_count: int = 1

    @cached_property
    def record(self) -> UserMessage:
        """Every field of the packet."""
        return decode_message(self.packet)

    @property
    def body(self) -> bytes:
        """The body, as uninterpreted bytes."""
        return body_of(self.packet)

    @property
    def label(self) -> str:
        """The label; empty if the message has none."""
        return self.record.properties.label or ""

    @property
    def extension(self) -> bytes:
        """The extension, as uninterpreted bytes."""
        return self.record.properties.extension_data

    @property
    def body_type(self) -> int:
        """The type of the body, for `mqproto.bodies`; 0 if only the application knows the type.  [MS-MQMQ] 2.2.12"""
        return self.record.properties.body_type

    @property
    def application_tag(self) -> int:
        """A number that applications may use as they like (AppSpecific in COM)."""
        return self.record.properties.application_tag

    @property
    def id(self) -> MessageId:
        """The message's identifier, which is the same at every queue manager on its way."""
        return MessageId(*identifier_of(self.packet))

    @property
    def source(self) -> Guid:
        """The queue manager that first sent the message."""
        return self.id.manager

    @property
    def sent_time(self) -> datetime:
        """The time at which the message was first sent, in whole seconds."""
        return datetime.fromtimestamp(self.record.user.sent_time_s, UTC)

    @property
    def priority(self) -> int:
        """The priority, 0 to 7."""
        return self.record.base.priority

    @property
    def message_class(self) -> str:
        """NORMAL for an application's message; otherwise the kind of acknowledgment, or the reason why it is a dead
        letter.  [MS-MQMQ] 2.2.18.1.6
        """
        number = self.record.properties.message_class
        return MessageClass(number).name if number in MessageClass._value2member_map_ else f"{number:#06x}"

    @property
    def correlation_id(self) -> bytes:
        """The CorrelationID, which has 20 bytes as in `Draft.correlation_id`; all zeros if there is none."""
        return self.record.properties.correlation_id

    @property
    def correlation(self) -> MessageId | None:
        """The message to which this one refers, such as the message that an acknowledgment acknowledges; None if there
        is none.

        An application may have written anything there, and any 20 bytes can be read as an identifier.
        """
        data = self.correlation_id
        return MessageId(*correlated(data)) if any(data) else None

    @property
    def response_queue(self) -> str:
        """The format name of the queue to which an answer goes; empty if there is none."""
        user = self.record.user
        ends = user.source_queue_manager, user.queue_manager_address
        try:
            admin = admin_from_wire(user.admin_type, user.admin_queue, *ends)
            name = response_from_wire(user.response_type, user.response_queue, *ends, admin)
        except FormatNameError:
            return ""
        return "" if name is None else str(name)

    @property
    def admin_queue(self) -> str:
        """The format name of the queue to which acknowledgments go; empty if there is none."""
        user = self.record.user
        ends = user.source_queue_manager, user.queue_manager_address
        try:
            name = admin_from_wire(user.admin_type, user.admin_queue, *ends)
        except FormatNameError:
            return ""
        return "" if name is None else str(name)

    @property
    def dead_letter_queue(self) -> str:
        """The path name of the sender's queue to which this message goes if it fails; empty for the system's
        dead-letter queue.

        It is known only in the sender's own queues, such as that queue itself, because packets do not carry it.
        """
        return path_name_in(self.record.trailing)

    @property
    def acknowledgments(self) -> int:
        """The acknowledgments that the message asks for, as in `Draft.acknowledgments`."""
        return self.record.properties.flags & ASKED_FOR

    @property
    def sender_id(self) -> str:
        """The SID that the message claims for its sender (SenderId), as S-1-5-21-...; empty if there is none.

        Anybody can write any SID there, unless `signature` says that the message's signature was verified.
        """
        return self.record.security.sid if self.record.security else ""

    @property
    def signature(self) -> str:
        """The kind and hash of the signature that was verified on arrival, such as MSMQ 2.0 with SHA-512; empty if none
        was.
        """
        security = self.record.security
        if security is None or not security.authenticated:
            return ""
        number = self.record.properties.hash_algorithm
        kind = SIGNATURES.get(security.signature_type, "unknown")
        return f"{kind} with {HASH_NAMES.get(number, f'{number:#x}')}"

    @property
    def certificate(self) -> bytes:
        """The signer's certificate, in DER; empty if no signature was verified."""
        security = self.record.security
        return security.sender_cert if security is not None and security.authenticated else b""

    @property
    def cipher(self) -> str:
        """The cipher with which the body was encrypted in transit; empty if it was not encrypted."""
        properties = self.record.properties
        if not properties.privacy_level:
            return ""
        used = properties.privacy_level, properties.encryption_algorithm
        return next((word for word, cipher in CIPHERS.items() if cipher == used), "")

    @property
    def transactional(self) -> bool:
        """Whether the message was transactional. If so, it arrived exactly once and in order."""
        return self.record.transaction is not None

    @property
    def destinations(self) -> list[str]:
        """The format names of all queues that got a copy; empty if there was only one queue.

        Names that cannot be read are left out.
        """
        header = self.record.multi_queue_format
        return [] if header is None else [str(name) for name in destinations_from_wire(header)]


def received(packets: Iterable[bytes], delivery_counts: Iterable[int]) -> list[ReceivedMessage]:
    """Return the messages in these packets."""
    return list(map(ReceivedMessage, packets, delivery_counts))
