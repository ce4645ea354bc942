"""Message properties that HTTP has, but for which MSMQ has no field.

They travel in the message's extension.

    extension    JSON, an object: {"envelope": 1, "content_type": "application/json", "producer_key": "order-17",
                                   "headers": {"traceparent": "00-...", "ce-type": "order"}}

The gateway and `send --header` write the envelope, the trigger reads it, and queue managers pass it on. Empty fields
are left out, and readers ignore fields that they do not know. Other applications put other data into extensions, so
anything that does not have this form is not an envelope.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted

ENVELOPE_LIMIT_BYTES: Final = 10_240
"""The maximum size, in bytes, of an extension that readers do not ignore.

The largest envelope that can be written fits, together with a note.
"""
ENVELOPE_ROOM_BYTES: Final = 1_024
"""The number of bytes that a sender leaves free, besides the body, for an envelope without headers."""
CONTENT_TYPE_LIMIT: Final = 255
"""The maximum length of a content type, in characters."""
KEY_LIMIT: Final = 320
"""The maximum length, in characters, of a producer's id for a message.

If the producer's name precedes the id, that name counts, too.
"""
KEY_ROOM: Final = 200
"""The number of characters of the id for which there is always room."""
ORIGIN_LIMIT: Final = 64
HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,80}")
"""The pattern of a header's name in the envelope.

Names are in lower case, because their case does not matter.
"""
HEADERS_LIMIT: Final = 32
HEADERS_LIMIT_CHARS: Final = 4_096
"""The limit, in characters, for the names and values of all headers together."""
VERSION: Final = 1


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The properties of a body when it was handed in.

    content_type: the content type as the producer wrote it; empty if there was none.
    producer_key: the producer's id of the message, which is the same in each retry; empty if there was none.
    headers: further headers for the consumer, keyed by their names in lower case.
    confirmed: whether a gateway learns the message's outcome. If so, the message's administration queue is of no
        concern to anyone else.
    origin: a text with three parts. These are the life of the gateway's document history, the history's own time when
        the gateway took the message, and the time since which the history has all ids.
    """

    envelope: int | None = None
    content_type: str = ""
    producer_key: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    confirmed: bool = False
    origin: str = ""

    def __post_init__(self) -> None:
        for what, text, limit in (
            ("the content type", self.content_type, CONTENT_TYPE_LIMIT),
            ("the producer's id", self.producer_key, KEY_LIMIT),
            ("the origin", self.origin, ORIGIN_LIMIT),
        ):
            if len(text) > limit:
                raise UsageError(f"{what} has {len(text)} characters; at most {limit} fit")
            if not (text.isascii() and text.isprintable()):
                raise UsageError(f"{what} is {text[:40]!a}: printable ASCII characters only")
        _check_headers(self.headers)

    def as_extension(self) -> bytes:
        """Return the envelope as an extension; empty if it has no properties."""
        if self == Envelope():
            return b""
        data = msgspec.json.encode(msgspec.structs.replace(self, envelope=VERSION))
        assert len(data) <= ENVELOPE_LIMIT_BYTES, "escapes at most double what the limits allow"
        return data

    def room_bytes(self) -> int:
        """Return the maximum number of bytes that the envelope adds, including its headers and a long id."""
        headers_bytes = len(msgspec.json.encode({"headers": self.headers})) if self.headers else 0
        return ENVELOPE_ROOM_BYTES + 2 * max(0, len(self.producer_key) - KEY_ROOM) + headers_bytes

    @classmethod
    def of(cls, extension: bytes) -> Envelope:
        """Read an extension; return an empty envelope if it is not an envelope."""
        if len(extension) > ENVELOPE_LIMIT_BYTES or not extension.startswith(b"{"):
            return cls()
        try:
            found = _envelopes.decode(extension)
        except (msgspec.MsgspecError, UnicodeDecodeError, UsageError, RecursionError):
            return cls()
        return cls() if found.envelope != VERSION else msgspec.structs.replace(found, envelope=None)


def envelope_typed(headers: Sequence[str]) -> Envelope:
    """Return an envelope with headers given as `NAME: VALUE`; one of them may be the content type.

    Raises:
        UsageError: a header cannot be put into the envelope.
    """
    fields: dict[str, str] = {}
    for header in headers:
        name, colon, value = header.partition(":")
        name = name.strip().lower()
        if not colon or not HEADER_NAME.fullmatch(name):
            raise UsageError(f"--header {quoted(header)}: write NAME: VALUE, such as 'ce-type: order'")
        if name in fields:
            raise UsageError(f"--header {name} is there twice: a name has one value")
        fields[name] = value.strip()
    content_type = fields.pop("content-type", "")
    return Envelope(content_type=content_type, headers=fields)


def _check_headers(headers: dict[str, str]) -> None:
    if not headers:
        return
    if len(headers) > HEADERS_LIMIT:
        raise UsageError(
            f"{len(headers)} headers are to travel with the message; at most {HEADERS_LIMIT} can"
        )
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > HEADERS_LIMIT_CHARS:
        raise UsageError(
            f"the headers that travel with the message have {size:,} characters; at most {HEADERS_LIMIT_CHARS:,} fit"
        )
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise UsageError(f"{name[:40]!a} is not a header's name in small letters")
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"{name} is {value[:40]!a}: printable ASCII characters only")


class FailureNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    r"""The reason why a message is in an error queue, and properties of the original message.

    failure: `business error`, `retrieval failure` or `in doubt`.
    reason: one line, cut short if the extension has no room for all of it.
    attempts: how many times the message was attempted, or delivered.
    message: the original's identifier, `GUID\ordinal`.
    queue: the queue that the original was in, such as `destination\orders`.
    extension: the original's extension, if that was not an envelope.
    correlation: the original's correlation id, 20 bytes; empty if it had none.
    admin_queue: the format name of the original's administration queue; empty if it had none.
    acknowledgments: the acknowledgments that the original asked for; 0 for none.
    """

    failure: str
    reason: str = ""
    attempts: int = 0
    message: str = ""
    queue: str = ""
    extension: bytes = b""
    correlation: bytes = b""
    admin_queue: str = ""
    acknowledgments: int = 0

    @classmethod
    def of(cls, extension: bytes) -> FailureNote | None:
        """Return the note in an extension; None if there is none."""
        if not extension.startswith(b"{"):
            return None
        try:
            return _notes.decode(extension)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


_envelopes: Final = msgspec.json.Decoder(Envelope)
_notes: Final = msgspec.json.Decoder(FailureNote)
