"""A copy in an error queue is the message itself, with the reason why it is there."""

from __future__ import annotations

from hypothesis import example, given, strategies as st

from mqproto.messages.drafts import BODY_LIMIT_BYTES
from mqproto.simulator.client.envelope import ENVELOPE_LIMIT_BYTES, Envelope, FailureNote
from mqproto.simulator.client.talk import message_as_json
from mqproto.simulator.edges.trigger.errorcopy import copy_for
from mqproto.simulator.node.received import ReceivedMessage
from mqproto.wire import Guid, encode_packet, message_identifier
from mqproto.wire.messages import user_message

MANAGER = Guid(bytes(range(16)))
NOTE = FailureNote(
    failure="business error", reason="E1: no such account", attempts=3, message="GUID\\7", queue="orders"
)
PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=150)


def message(body: bytes = b"body", extension: bytes = b"", label: str = "") -> ReceivedMessage:
    record = user_message(
        source=MANAGER,
        destination_manager=MANAGER,
        destination=7,
        message_id=7,
        sent_time_s=0,
        body=body,
        label=label,
        extension=extension,
        body_type=8,
        application_tag=9,
    )
    return ReceivedMessage(encode_packet(record))


def test_a_copy_is_the_message_and_names_it() -> None:
    draft = copy_for(message(label="order"), NOTE)
    assert (draft.body, draft.label, draft.body_type, draft.application_tag) == (b"body", "order", 8, 9)
    assert draft.transactional
    identifier = message_identifier.decode(draft.correlation_id)
    assert (identifier.queue_manager_guid, identifier.ordinal) == (MANAGER, 7)
    assert FailureNote.of(draft.extension) == NOTE
    draft.check()


@given(content_type=PRINTABLE, producer_key=PRINTABLE.filter(bool), reason=st.text(max_size=300))
@example(content_type='"' * 150, producer_key="\\" * 150, reason="\x00" * 300)
def test_a_copy_keeps_the_envelope_whatever_the_reason(
    content_type: str, producer_key: str, reason: str
) -> None:
    envelope = Envelope(content_type=content_type, producer_key=producer_key, confirmed=True, origin="a 2 1")
    note = FailureNote(failure="in doubt", reason=reason, attempts=1, message="GUID\\7", queue="orders")
    draft = copy_for(message(extension=envelope.as_extension()), note)
    assert len(draft.extension) <= ENVELOPE_LIMIT_BYTES
    assert Envelope.of(draft.extension) == envelope
    found = FailureNote.of(draft.extension)
    assert found is not None
    assert reason.startswith(found.reason)
    assert (found.failure, found.message) == ("in doubt", "GUID\\7")


@given(st.binary(max_size=2_000))
def test_another_applications_extension_is_kept_in_the_note(extension: bytes) -> None:
    found = FailureNote.of(copy_for(message(extension=extension), NOTE).extension)
    assert found is not None
    assert found.extension == extension


@given(st.binary(max_size=200))
@example(b'{"failure":"\x80"}')
def test_any_extension_has_a_note_or_none(extension: bytes) -> None:
    assert FailureNote.of(extension) is None


def test_the_largest_message_has_a_copy_without_a_note() -> None:
    draft = copy_for(message(bytes(BODY_LIMIT_BYTES)), NOTE)
    draft.check()
    assert draft.extension == b""
    assert copy_for(message(bytes(BODY_LIMIT_BYTES - 1_000)), NOTE).extension != b""


def test_whoever_peeks_into_an_error_queue_is_told_why_each_message_is_there() -> None:
    shown = message_as_json(message(extension=copy_for(message(), NOTE).extension))
    assert (shown["failure"], shown["reason"], shown["attempts"]) == (
        "business error",
        "E1: no such account",
        3,
    )
    for extension in (b"", b"\0\1", b'{"envelope": 1, "content_type": "text/plain"}'):
        assert "failure" not in message_as_json(message(extension=extension))
