"""What HTTP says of a message and MSMQ has no place for: it travels in the message's extension.

    extension    JSON, an object: {"envelope": 1, "content_type": "application/json", "producer_key": "order-17"}

The gateway puts it there, the trigger reads it, and queue managers pass it on. What is empty is left out, and fields
that a reader does not know are no matter to it. Other applications put other things into extensions, so whatever does
not look like this is none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mqproto.base.errors import UsageError

ENVELOPE_LIMIT_BYTES: Final = 1_024
"""How much room a sender of one leaves beside the body."""
CONTENT_TYPE_LIMIT: Final = 255
"""Characters."""
KEY_LIMIT: Final = 200
"""Characters of the producer's id of a message."""
VERSION: Final = 1


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was said of a body when it was handed in.

    content_type: as the producer wrote it; empty if he did not.
    producer_key: his id of the message, the same in each retry; empty if he gave none.
    """

    envelope: int | None = None
    content_type: str = ""
    producer_key: str = ""

    def __post_init__(self) -> None:
        for what, text, limit in (
            ("the content type", self.content_type, CONTENT_TYPE_LIMIT),
            ("the producer's id", self.producer_key, KEY_LIMIT),
        ):
            if len(text) > limit:
                raise UsageError(f"{what} has {len(text)} characters; at most {limit} fit")
            if not (text.isascii() and text.isprintable()):
                raise UsageError(f"{what} is {text[:40]!a}: printable ASCII characters only")

    def as_extension(self) -> bytes:
        """As it travels; nothing if there is nothing to say."""
        if self == Envelope():
            return b""
        data = msgspec.json.encode(msgspec.structs.replace(self, envelope=VERSION))
        assert len(data) <= ENVELOPE_LIMIT_BYTES, "escapes at most double what the limits allow"
        return data

    @classmethod
    def of(cls, extension: bytes) -> Envelope:
        """What an extension says; nothing if it is somebody else's, whatever is in it."""
        if len(extension) > ENVELOPE_LIMIT_BYTES or not extension.startswith(b"{"):
            return cls()
        try:
            found = _envelopes.decode(extension)
        except (msgspec.MsgspecError, UsageError, RecursionError):
            return cls()
        return cls() if found.envelope != VERSION else msgspec.structs.replace(found, envelope=None)


class FailureNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    r"""Why a message is in an error queue.

    failure: `business error`, `retrieval failure` or `in doubt`.
    reason: one line, cut short where the extension has no room for all of it.
    attempts: how often it was attempted, or delivered.
    message: the original's identifier, `GUID\ordinal`.
    queue: where it was, such as `destination\orders`.
    extension: what the original had there, if that was no envelope.
    correlation: the original's correlation id, 20 bytes; empty if it had none.
    """

    failure: str
    reason: str = ""
    attempts: int = 0
    message: str = ""
    queue: str = ""
    extension: bytes = b""
    correlation: bytes = b""

    @classmethod
    def of(cls, extension: bytes) -> FailureNote | None:
        """The note in an extension; None if there is none."""
        if not extension.startswith(b"{"):
            return None
        try:
            return _notes.decode(extension)
        except (msgspec.MsgspecError, RecursionError):
            return None


_envelopes: Final = msgspec.json.Decoder(Envelope)
_notes: Final = msgspec.json.Decoder(FailureNote)
