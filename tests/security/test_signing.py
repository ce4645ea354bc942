"""Whole messages that are signed and verified: which bytes count, which kind of signature it was, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import as_sent, headers_behind, path_name_in
from mqproto.security import (
    HASHES,
    PROVIDERS,
    AgeingCache,
    ProtectionError,
    SignatureKind,
    hashed,
    new_sending_key,
    opened,
    sealed,
    self_signed,
    signed,
    verified,
)
from mqproto.testing import user_messages
from mqproto.wire import (
    MessageClass,
    PrivateQueueFormatName,
    UserMessage,
    decode_message,
    encode_packet,
    inspect_packet,
    passed_on,
    with_previous_number,
    with_session_header,
)
from mqproto.wire.layouts.keyblobs import AES_256
from mqproto.wire.layouts.security import QUEUE_MANAGER
from mqproto.wire.layouts.user import PRIVATE_ELSEWHERE
from tests.examples import SENDER, a_full_message, a_session_header, a_user_message
from tests.security.keys import own_key

MSMQ_10, MSMQ_20, MSMQ_30 = SignatureKind
CERTIFICATE = self_signed(own_key(), "shop", 1_700_000_000, 3_650)


def a_message() -> UserMessage:
    """Return a message that has everything that a signature covers, but no list of destinations."""
    message = a_full_message()
    message.multi_queue_format, message.security = None, None
    message.user.has_multi_queue_format = message.user.has_security = False
    return message


def as_it_lies_in_the_packet(message: UserMessage, kind: SignatureKind) -> bytes:
    """Return the bytes that are hashed, taken field by field from the packet."""
    base = replace(message.base)
    base.session_header = False
    fields = inspect_packet(encode_packet(replace(message, base=base, session=None))).fields

    def raw(name: str) -> bytes:
        return b"".join(each.raw for each in fields if each.name == name or each.name.startswith(f"{name}."))

    user, properties = message.user, message.properties
    names = ["correlation_id", "application_tag", "message_body", "label"]
    parts = [raw(f"properties.{name}") for name in names] + [
        raw("user.response_queue"),
        raw("user.admin_queue"),
    ]
    if kind is MSMQ_30:
        parts += [raw("properties.extension_data"), raw("multi_queue_format.destination.format_name_list")]
    if kind is not MSMQ_10:
        journal = user.journal_positive << 1 | user.journal_negative
        bits = bytes((user.delivery_mode, message.base.priority, journal, properties.flags & 0x0F))
        parts += [raw("user.source_queue_manager"), bits, raw("properties.message_class")]
        parts += [raw("properties.body_type"), raw("user.connector_type")]
    if kind is MSMQ_20:
        parts.append(raw("user.destination_queue"))
    return b"".join(parts)


@pytest.mark.parametrize("bits", [1_024, 1_032])
def test_what_stands_behind_a_message_that_is_kept_is_there_when_it_is_signed(bits: int) -> None:
    kept = replace(
        a_full_message(), security=None, session=None, trailing=headers_behind(".\\private$\\failed")
    )
    kept.base.session_header = False
    certificate = self_signed(own_key(bits), "shop", 1_700_000_000, 3_650)
    packet = encode_packet(signed(kept, own_key(bits), certificate))
    assert path_name_in(decode_message(packet).trailing) == ".\\private$\\failed"
    assert verified(decode_message(as_sent(packet))) == (MSMQ_30, certificate)
    assert as_sent(packet) == encode_packet(signed(replace(kept, trailing=b""), own_key(bits), certificate))


@pytest.mark.long
@given(user_messages(), st.sampled_from(SignatureKind))
def test_what_is_hashed_lies_like_this_in_the_packet(message: UserMessage, kind: SignatureKind) -> None:
    assert hashed(message, kind) == as_it_lies_in_the_packet(message, kind)


def over(message: UserMessage) -> UserMessage:
    return decode_message(encode_packet(message))


@pytest.mark.spec("[MS-MQMQ] 2.5.1")
@pytest.mark.spec("[MS-MQMQ] 2.5.2")
@pytest.mark.spec("[MS-MQMQ] 2.5.3")
def test_these_bytes_are_hashed_in_this_order() -> None:
    message = a_user_message(body=b"body", label="l", body_type=8, application_tag=7)
    message.properties.correlation_id = b"c" * 20
    message.properties.extension_data = b"extension"
    message.properties.flags, message.properties.message_class = 0xF5, 0x0102
    message.user.response_type, message.user.admin_type = PRIVATE_ELSEWHERE, PRIVATE_ELSEWHERE
    message.user.response_queue = PrivateQueueFormatName(SENDER, 3)
    message.user.admin_queue = PrivateQueueFormatName(SENDER, 4)
    message.user.journal_positive, message.user.recoverable, message.base.priority = True, True, 6
    first = b"c" * 20 + b"\7\0\0\0" + b"body" + b"l\0\0\0" + SENDER + b"\3\0\0\0" + SENDER + b"\4\0\0\0"
    numbers = SENDER + bytes([1, 6, 2, 5]) + b"\2\1" + b"\x08\0\0\0"
    assert hashed(message, MSMQ_10) == first
    assert hashed(message, MSMQ_20) == first + numbers + b"\x11\0\0\0"
    assert hashed(message, MSMQ_30) == first + b"extension" + numbers
    message.user.connector_type, message.user.has_connector_type = SENDER, True
    assert hashed(message, MSMQ_20) == first + numbers + SENDER + b"\x11\0\0\0"


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
@pytest.mark.parametrize("kind", SignatureKind)
@pytest.mark.parametrize("algorithm", HASHES)
def test_what_is_signed_is_verified_and_its_kind_is_told(kind: SignatureKind, algorithm: int) -> None:
    sent = over(
        signed(
            a_message(),
            own_key(),
            CERTIFICATE,
            kind=kind,
            hash_algorithm=algorithm,
            sender_id=SENDER,
            sender_id_type=QUEUE_MANAGER,
        )
    )
    assert verified(sent) == (kind, CERTIFICATE)
    assert sent.security is not None
    assert (sent.security.authenticated, sent.security.signature_type) == (False, 0), "a receiver sets them"
    assert sent.security.sender_id == SENDER


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
def test_a_list_of_destinations_has_the_signature_beside_it() -> None:
    sent = over(signed(replace(a_full_message(), security=None), own_key(), CERTIFICATE))
    assert sent.security is not None
    assert sent.multi_queue_format is not None
    assert (sent.security.signature, verified(sent)) == (b"", (MSMQ_30, CERTIFICATE))
    sent.multi_queue_format.destination.format_name_list.elements.pop()
    with pytest.raises(ProtectionError, match="NACK_BAD_SIGNATURE"):
        verified(sent)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
@pytest.mark.parametrize("bits", [1_024, 1_032, 1_040])
def test_behind_a_signature_beside_a_list_the_packet_ends_on_a_boundary(bits: int) -> None:
    certificate = self_signed(own_key(bits), "shop", 1_700_000_000, 3_650)
    message = replace(a_full_message(), security=None, session=a_session_header())
    message.base.session_header = True
    packet = encode_packet(signed(message, own_key(bits), certificate))
    assert len(packet) % 4 == 0
    assert verified(decode_message(packet)) == (MSMQ_30, certificate)


@given(user_messages(), st.sampled_from(SignatureKind))
def test_any_message_that_can_be_sent_can_be_signed(message: UserMessage, kind: SignatureKind) -> None:
    sent = over(signed(replace(message, security=None), own_key(), CERTIFICATE, kind=kind))
    told, wanted = verified(sent)[0], kind if message.multi_queue_format is None else MSMQ_30
    # Without a destination, an extension and a list, those of 2.0 and 3.0 are over the same bytes.
    assert told == wanted or hashed(sent, told) == hashed(sent, wanted)


@pytest.mark.parametrize(
    "pass_on",
    [
        lambda packet: passed_on([packet])[0],
        lambda packet: with_session_header(packet, a_session_header()),
        lambda packet: with_previous_number(packet, 3),
    ],
)
def test_what_queue_managers_do_on_the_way_leaves_a_signature_valid(
    pass_on: Callable[[bytes], bytes],
) -> None:
    sent = signed(a_message(), own_key(), CERTIFICATE)
    assert verified(decode_message(pass_on(encode_packet(sent)))) == (MSMQ_20, CERTIFICATE)


def changes_of() -> list[tuple[str, str, Any]]:
    return [
        ("properties", "message_body", b"other"),
        ("properties", "label", "other"),
        ("properties", "correlation_id", b"o" * 20),
        ("properties", "application_tag", 99),
        ("properties", "body_type", 99),
        ("properties", "message_class", 99),
        ("properties", "hash_algorithm", 0x8004),
        ("properties", "hash_algorithm", 0x8001),
        ("user", "source_queue_manager", bytes(16)),
        ("user", "connector_type", bytes(16)),
        ("user", "destination_queue", "OS:other\\private$\\orders"),
        ("security", "signature", b"other"),
        ("security", "sender_cert", b"other"),
        ("security", "sender_cert", self_signed(own_key(512), "other", 0, 1).der),
    ]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize(("header", "field", "value"), changes_of())
def test_a_field_that_was_changed_on_the_way_is_a_bad_signature(header: str, field: str, value: Any) -> None:
    sent = signed(a_message(), own_key(), CERTIFICATE)
    hurt = replace(sent, **{header: replace(getattr(sent, header), **{field: value})})
    with pytest.raises(ProtectionError) as refusal:
        verified(hurt)
    assert refusal.value.message_class is MessageClass.NACK_BAD_SIGNATURE
    assert "\n" not in str(refusal.value)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_a_message_that_is_not_signed_is_told_from_one_with_a_bad_signature() -> None:
    for message in (a_message(), a_user_message(), replace(a_full_message(), security=None)):
        with pytest.raises(ProtectionError, match="the message is not signed"):
            verified(message)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1")
def test_what_is_signed_and_then_encrypted_is_verified_when_it_is_open() -> None:
    sending = new_sending_key(PROVIDERS[2], AES_256, own_key(512).public)
    sent = over(sealed(signed(a_user_message(), own_key(), CERTIFICATE), sending))
    with pytest.raises(ProtectionError, match="NACK_BAD_SIGNATURE"):
        verified(sent)
    plain = opened(sent, {"aes": (own_key(512),)}, AgeingCache(127, 600_000), 0)
    assert verified(plain) == (MSMQ_20, CERTIFICATE)


def test_a_certificate_of_another_key_signs_nothing() -> None:
    with pytest.raises(UsageError, match="the certificate is not that of the key"):
        signed(a_message(), own_key(512), CERTIFICATE)
