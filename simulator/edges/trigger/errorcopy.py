"""Makes copies for the error queue, with the message and the reason why it is there.

    body, label, body type, application tag, response queue, SID    unchanged
    correlation id    the message's identifier, 20 bytes
    extension         JSON: the message's envelope, and in addition `failure`, `reason`, `attempts`, `message`, `queue`,
                      `correlation`, `admin_queue`, `acknowledgments`

`Envelope.of` and `FailureNote.of` each read their own part of the extension. `original_of` restores the message.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import (
    BODY_LIMIT_BYTES,
    SEALING_BYTES,
    SECURITY_BYTES,
    Draft,
)
from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.client.envelope import ENVELOPE_LIMIT_BYTES, Envelope, FailureNote
from mqproto.simulator.client.talk import privacy


def copy_for(message: ReceivedMessage, note: FailureNote) -> Draft:
    """Return a copy of a message for an error queue.

    If the body leaves too little room, the reason is left out or, if that is not enough, the whole note.
    """
    correlation = message.record.properties.correlation_id
    envelope = Envelope.of(message.extension)
    is_enveloped = envelope != Envelope()
    whole = msgspec.structs.replace(
        note,
        correlation=correlation if any(correlation) else b"",
        admin_queue=message.admin_queue,
        acknowledgments=message.acknowledgments,
        extension=b"" if is_enveloped else message.extension,
    )
    both = msgspec.to_builtins(whole) | msgspec.json.decode(envelope.as_extension() or b"{}")
    extension = msgspec.json.encode(both)
    if is_enveloped and len(extension) > ENVELOPE_LIMIT_BYTES:
        # Readers of the envelope read no more than that. A character takes up to six bytes, an escape.
        fits = max(0, len(note.reason) - (len(extension) - ENVELOPE_LIMIT_BYTES))
        extension = msgspec.json.encode(both | {"reason": note.reason[:fits]})
    security = (
        SECURITY_BYTES + SEALING_BYTES if message.cipher else SECURITY_BYTES if message.sender_id else 0
    )
    if len(message.body) + len(extension) + security > BODY_LIMIT_BYTES:
        extension = msgspec.json.encode(both | {"reason": ""})
    return replace(
        _like(message),
        transactional=True,
        extension=extension if len(message.body) + len(extension) + security <= BODY_LIMIT_BYTES else b"",
        correlation_id=message.id.correlation_id,
    )


def _like(message: ReceivedMessage) -> Draft:
    """Return a draft with the properties that a copy has in common with its message."""
    level, algorithm = privacy(message.cipher, encrypts=bool(message.cipher))
    return Draft(
        body=message.body,
        label=message.label,
        body_type=message.body_type,
        application_tag=message.application_tag,
        response_queue=message.response_queue,
        sender_id=message.sender_id,
        privacy_level=level,
        encryption_algorithm=algorithm,
    )


def original_of(copy: ReceivedMessage) -> Draft:
    """Return the original of a copy, as a draft that can be sent to its queue again.

    If the original fails there, it becomes a dead letter. Its id is the producer's id or, if there is none, the old
    identifier, by which the trigger recognizes it.

    Raises:
        UsageError: the message is not such a copy.
    """
    note = FailureNote.of(copy.extension)
    if note is None:
        raise UsageError(f"{copy.id} is not a copy that a trigger has made")
    envelope = Envelope.of(copy.extension)
    named = msgspec.structs.replace(envelope, producer_key=envelope.producer_key or note.message)
    return replace(
        _like(copy),
        transactional=copy.transactional,
        extension=note.extension or named.as_extension(),
        correlation_id=note.correlation or bytes(20),
        journal_negative=True,
        admin_queue=note.admin_queue,
        acknowledgments=note.acknowledgments if note.admin_queue else 0,
    )
