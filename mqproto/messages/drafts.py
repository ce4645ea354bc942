r"""Messages as applications write them, `Lot`s of similar messages, and the form in which our own messages are kept.

manager/sending.py turns them into packets.  [MS-MQQB] 3.1.7.11

A kept message of our own has the name of its application's dead-letter queue:

    UserMessage | ExtensionHeader | DeadLetterHeader        [MS-MQRR] 2.2.5

The two headers come after all other parts of a UserMessage. PacketSize counts them, so operations on a packet preserve
them. No session carries them: they are cut off as the message leaves (`as_sent`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from mqproto.base.errors import FormatNameError, UsageError, WireFormatError
from mqproto.formatname import ConnectorName, DirectName, PrivateName, PublicName, parse_format_name
from mqproto.formatname.path import QUEUE_LIMIT
from mqproto.messages.destinations import Destination
from mqproto.messages.listing import list_bytes, list_of_all
from mqproto.wire import INFINITE, PrivateQueueFormatName, QueueName, UserMessage, sid_from_text
from mqproto.wire.classes import MessageClass
from mqproto.wire.generated import properties_offset, trailing_offset
from mqproto.wire.glance import user_flags
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.extension import (
    DeadLetterHeader,
    ExtensionHeader,
    dead_letter_header,
    extension_header,
)
from mqproto.wire.layouts.properties import MessagePropertiesHeader, message_properties_header
from mqproto.wire.layouts.sid import SIZE_LIMIT
from mqproto.wire.layouts.user import UserHeader

LABEL_LIMIT: Final = 249
"""The maximum number of characters in a label, without the NUL that ends it.  [MS-MQMQ] 2.2.19.3"""
PACKET_LIMIT_BYTES: Final = 0x00400000
HEADROOM_BYTES: Final = 2_048
"""The number of bytes reserved for all headers of a message that we send. It makes sure that the size of a message's
body alone shows whether the message fits.
"""
BODY_LIMIT_BYTES: Final = PACKET_LIMIT_BYTES - HEADROOM_BYTES
SECURITY_BYTES: Final = 16 + SIZE_LIMIT
"""The size of a SecurityHeader that names a message's sender with the longest possible SID."""
SEALING_BYTES: Final = 2_048 + 12 + 16 + 8
"""The maximum number of bytes by which encryption makes a message longer: a SIMPLEBLOB, a cipher block, and their
padding.
"""
CERTIFICATE_LIMIT_BYTES: Final = 8_192
"""The maximum size of a certificate with which messages are signed here."""
SIGNATURE_BYTES: Final = CERTIFICATE_LIMIT_BYTES + 2_048 + 8
"""The maximum number of bytes by which a signature makes a message longer: a certificate, a signature, and their
padding.
"""
LETTER_BYTES: Final = 16 + 2 * (len(".\\private$\\") + QUEUE_LIMIT + 1) + 2
"""The number of bytes that follow a kept message if the name of its dead-letter queue is as long as possible."""
NAME_ROOM: Final = 300
"""The maximum number of characters in the name of an administration or response queue; two such names fit in the
headroom.
"""
NAMES_ROOM: Final = 640
"""The number of characters of names that fit in the headroom in addition to the longest label. Further characters
reduce the room for the body.
"""
CONNECTOR, XACTONLY = "CONNECTOR=", ";XACTONLY"
"""The beginning and the end of a connector queue's name when it is used for transactional messages. [MS-MQMQ] 2.1.6,
2.2.11
"""

ACKNOWLEDGE_ARRIVAL: Final = MessagePropertiesHeader.acknowledge_arrival.mask
ACKNOWLEDGE_RECEIPT: Final = MessagePropertiesHeader.acknowledge_receipt.mask
REPORT_NO_ARRIVAL: Final = MessagePropertiesHeader.report_no_arrival.mask
REPORT_NO_RECEIPT: Final = MessagePropertiesHeader.report_no_receipt.mask
REFUSAL: Final = 0x8000
"""The bit that is set in the class of each negative acknowledgment, and therefore of each dead letter. [MS-MQMQ]
2.2.18.1.6
"""
assert MessageClass.NACK_RECEIVE_REJECTED & REFUSAL

_JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask
_EXTENSION_BYTES: Final = extension_header.sizeof()
_SIZE_AT: Final = base_header.offset_of("packet_size")
_CLASS_AT: Final = message_properties_header.offset_of("message_class")
_size = struct.Struct("<I")
_class = struct.Struct("<H")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message as an application writes it.

    admin_queue, response_queue: format names; empty for none.
    acknowledgments: the events that are reported to its administration queue: ACKNOWLEDGE_ARRIVAL and the three
        constants next to it.
    trace_queue: the format name of the public queue to which report messages go; empty for none.
    sender_id: the SID, S-1-5-21-..., that the message gives as its sender's; empty for none. Nothing proves it, because
        the message is not signed.
    privacy_level: the minimum encryption of its body in transit, a PrivacyLevel of [MS-MQMQ] 2.2.19.3; 0 for none.
    encryption_algorithm: the algorithm to use; 0 for the preferred one.
    signer: the name by which its queue manager knows the key that signs it; empty for no signature.
    hash_algorithm: the algorithm of the hash that is signed; 0 for SHA-512.
    destinations: the format names of all queues that get a copy, which each copy lists; empty if there is only one.
        This is set by `copies`.
    dead_letter_queue: the local queue that gets it if it fails; empty for the system's queue. If it is set, the message
        becomes a dead letter whatever `journal_negative` says.
    """

    body: bytes
    label: str = ""
    transactional: bool = False
    recoverable: bool = False
    priority: int = 3
    extension: bytes = b""
    body_type: int = 0
    application_tag: int = 0
    correlation_id: bytes = bytes(20)
    time_to_reach_queue_s: int = INFINITE
    time_to_be_received_s: int = INFINITE
    journal_negative: bool = False
    journal_positive: bool = False
    final_ack: bool = False
    admin_queue: str = ""
    response_queue: str = ""
    acknowledgments: int = 0
    trace_queue: str = ""
    sender_id: str = ""
    destinations: tuple[str, ...] = ()
    privacy_level: int = 0
    encryption_algorithm: int = 0
    signer: str = ""
    hash_algorithm: int = 0
    dead_letter_queue: str = ""

    @property
    def wants_letter(self) -> bool:
        """Whether the message is kept as a dead letter if it fails, which sets the JN bit."""
        return self.journal_negative or bool(self.dead_letter_queue)

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes of its packet that come from its application."""
        listed = list_bytes(self.destinations) if self.destinations else 0
        security = SECURITY_BYTES if self.sender_id or self.privacy_level or self.signer else 0
        if self.privacy_level:
            security += SEALING_BYTES
        if self.signer:
            security += SIGNATURE_BYTES
        named = LETTER_BYTES if self.dead_letter_queue else 0
        return len(self.body) + len(self.extension) + listed + security + named

    def check(self, *, names: bool = True, destination: str = "") -> None:
        """Check that a packet can carry the message.

        names: whether its queues already have format names, which are then checked.
        destination: the name of its destination queue, if it is in the packet.

        Raises:
            UsageError: a part is too long, out of range or not allowed; the text says which, and why.
        """
        named = len(destination) + len(self.admin_queue) + len(self.response_queue)
        room = BODY_LIMIT_BYTES - 2 * max(0, named - NAMES_ROOM)
        if self.size_bytes > room:
            others = {
                "extension": self.extension,
                "list of destinations": self.destinations,
                "SID": self.sender_id,
                "key": self.privacy_level,
                "certificate and signature": self.signer,
                "name of a dead-letter queue": self.dead_letter_queue,
            }
            what = ", ".join(["body", *(name for name, is_there in others.items() if is_there)])
            raise UsageError(
                f"{self.size_bytes:,} bytes ({what}) are too many: a message carries at most {room:,}; send several"
            )
        if self.label:
            if (units := len(self.label.encode("utf-16-le", "surrogatepass")) // 2) > LABEL_LIMIT:
                raise UsageError(f"the label has {units} UTF-16 units; at most {LABEL_LIMIT} fit")
            if "\0" in self.label:
                raise UsageError("the label has a NUL character, which would end it")
        if len(self.correlation_id) != 20:
            raise UsageError(f"the correlation id has {len(self.correlation_id)} bytes, must have 20")
        for what, number, most in (
            ("priority", self.priority, 7),
            ("time_to_reach_queue_s", self.time_to_reach_queue_s, INFINITE),
            ("time_to_be_received_s", self.time_to_be_received_s, INFINITE),
            ("body_type", self.body_type, 0xFFFFFFFF),
            ("application_tag", self.application_tag, 0xFFFFFFFF),
        ):
            if not (isinstance(number, int) and 0 <= number <= most):
                raise UsageError(f"{what} is {number!r}: must be a whole number from 0 to {most}")
        if not 0 <= self.acknowledgments <= 0xF:
            raise UsageError(f"acknowledgments is {self.acknowledgments:#x}: four bits there are")
        if self.acknowledgments and not self.admin_queue:
            raise UsageError("acknowledgments are asked for and no admin_queue: name one")
        if self.sender_id:
            sid_from_text(self.sender_id)
        if not names:
            return
        for what, text in (("admin_queue", self.admin_queue), ("trace_queue", self.trace_queue)):
            if text.upper().startswith(CONNECTOR) and text.upper().endswith(XACTONLY):
                raise UsageError(
                    f"{what} is {text}: what goes there is not transactional; leave {XACTONLY} out"
                )
        if len(self.dead_letter_queue) > QUEUE_LIMIT:
            raise UsageError(
                f"the name of a dead-letter queue has {len(self.dead_letter_queue):,} characters; at most "
                f"{QUEUE_LIMIT} are in one"
            )
        if self.trace_queue and not isinstance(queue_name(self.trace_queue), bytes):
            raise UsageError(f"trace_queue is {self.trace_queue}: reports go to a public queue, PUBLIC=GUID")
        if self.admin_queue or self.response_queue:
            queue_name(self.admin_queue)
            queue_name(self.response_queue)
        if self.destinations:
            list_of_all(self.destinations)


def copies(destinations: Sequence[Destination], drafts: Iterable[Draft]) -> list[tuple[Destination, Draft]]:
    """Return the copies to enqueue so that each destination gets each message.  [MS-MQDMPR] 3.1.7.1.27

    The copies of one message are adjacent. Each has its own number. If they are enqueued together, either all or none
    of them are accepted.
    """
    if len(destinations) == 1:
        return [(destinations[0], draft) for draft in drafts]
    names = tuple(destination.name for destination in destinations)
    listing = [replace(draft, destinations=names) for draft in drafts]
    return [(destination, draft) for draft in listing for destination in destinations]


@lru_cache(maxsize=1_000)
def queue_name(text: str) -> QueueName:
    """Return a format name in the form of a UserHeader's AdminQueue or ResponseQueue; None if it is empty.

    Raises:
        UsageError: acknowledgments and answers cannot go to such a name.
    """
    if not text:
        return None
    try:
        name = parse_format_name(text)
    except FormatNameError as error:
        raise UsageError(str(error)) from None
    if len(text) > NAME_ROOM:
        raise UsageError(f"{text[:40]}... has {len(text)} characters; at most {NAME_ROOM} fit")
    match name:
        case PrivateName(journal=False):
            return PrivateQueueFormatName(name.manager, name.identifier)
        case PublicName(journal=False) | ConnectorName():
            return name.guid
        case DirectName(read_only=False):
            return name.wire_text
    raise UsageError(f"{text}: name one public, private or direct queue")


OWN: Final = frozenset({"body", "label", "correlation_id", "extension"})
"""The fields of a draft in which the messages of one lot may differ."""
likeness: Final = attrgetter(*(field.name for field in fields(Draft) if field.name not in OWN))
"""Returns the values of all fields of a draft except those in OWN."""


class Lot(NamedTuple):
    """Consecutive messages that are similar and have the same destination."""

    destination: Destination
    drafts: list[Draft]
    signed: Sequence[UserMessage] = ()
    """The messages as they were when they were signed, before anything changed; empty if they are not signed."""

    @property
    def example(self) -> Draft:
        """The first draft, which has all the values that the drafts have in common."""
        return self.drafts[0]

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes of the lot's packets that come from the application."""
        own_bytes = _own_bytes(self.drafts)
        return (self.example.size_bytes - own_bytes[0]) * len(own_bytes) + sum(own_bytes)

    @property
    def longest(self) -> Draft:
        """The draft whose body and extension together are the largest."""
        own_bytes = _own_bytes(self.drafts)
        return self.drafts[own_bytes.index(max(own_bytes))]


def in_lots(messages: Iterable[tuple[Destination, Draft]]) -> Iterator[Lot]:
    """Yield the same messages as lots, in the same order."""
    for (destination, _), lot in groupby(messages, lambda message: (message[0], likeness(message[1]))):
        yield Lot(destination, [draft for _, draft in lot])


def _own_bytes(drafts: Iterable[Draft]) -> list[int]:
    """Return, for each draft, the size of the parts that differ between a lot's messages, except labels."""
    return [len(draft.body) + len(draft.extension) for draft in drafts]


def headers_behind(path_name: str) -> bytes:
    """Return the bytes that follow a kept message, for `UserMessage.trailing`.

    path_name: the path name of the queue, such as `.\\private$\\failed-orders`.
    """
    letter = dead_letter_header.encode(DeadLetterHeader(path_name))
    header = ExtensionHeader(remaining_headers_size=len(letter))
    header.has_dead_letter = True
    return extension_header.encode(header) + letter


def path_name_in(trailing: bytes) -> str:
    """Return the path name of the dead-letter queue that is stored after a message; empty if there is none."""
    header = _letter_header_in(trailing)
    return header.path_name if header is not None else ""


def _letter_header_in(trailing: bytes) -> DeadLetterHeader | None:
    """Return the DeadLetterHeader that follows a message, or that follows the padding of its signature.

    Return None if there is none.
    """
    trailing = trailing[len(trailing) % 4 :]
    if len(trailing) <= _EXTENSION_BYTES:
        return None
    try:
        header = extension_header.decode(trailing[:_EXTENSION_BYTES])
        if header.remaining_headers_size != len(trailing) - _EXTENSION_BYTES or not header.has_dead_letter:
            return None
        return dead_letter_header.decode(trailing[_EXTENSION_BYTES:])
    except WireFormatError:
        return None


def as_sent(packet: bytes) -> bytes:
    """Return a message without the headers stored after it; most messages have none.

    Args:
        packet: the packet of a UserMessage without a SessionHeader.
    """
    size = trailing_offset(packet)
    if size == len(packet) or _letter_header_in(packet[size:]) is None:
        return packet
    size += (len(packet) - size) % 4
    return b"".join((packet[:_SIZE_AT], _size.pack(size), packet[_SIZE_AT + _size.size : size]))


def is_letter(packet: bytes) -> bool:
    """Whether a packet is a dead letter whose application chose a queue for it."""
    if not user_flags(packet) & _JOURNAL_NEGATIVE:
        return False
    [message_class] = _class.unpack_from(packet, properties_offset(packet) + _CLASS_AT)
    return bool(message_class & REFUSAL) and bool(path_name_in(packet[trailing_offset(packet) :]))
