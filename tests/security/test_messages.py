"""Whole messages that are encrypted at their source and decrypted at their destination, and each way in which this
fails.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.security import (
    PROVIDERS,
    AgeingCache,
    CachedSymmetricKey,
    ProtectionError,
    Provider,
    ReceiveName,
    SessionKey,
    new_key_pair,
    new_sending_key,
    opened,
    seal_session_key,
    sealed,
)
from mqproto.wire import MessageClass, UserMessage, decode_message, encode_packet, simple_blob
from mqproto.wire.layouts.keyblobs import AES_128, AES_256, RC2, RC4
from mqproto.wire.layouts.user import PRIVATE_ON_DESTINATION
from tests.examples import a_full_message, a_user_message
from tests.security.keys import CIPHERS, FakeKey, own_key

BASE, ENHANCED, AES = PROVIDERS
OWN = {provider.word: (own_key(512),) for provider in PROVIDERS}


def no_cache() -> AgeingCache[ReceiveName, CachedSymmetricKey]:
    return AgeingCache(127, 600_000)


def on_the_wire(message: UserMessage, provider: Provider = AES, algorithm: int = AES_256) -> UserMessage:
    """Encrypt, send and read a message.

    The session key is always the same, because one in 256 wrong keys fits by chance.
    """
    dice = random.Random(1)
    return over(
        sealed(message, new_sending_key(provider, algorithm, own_key(512).public, random=dice.randbytes))
    )


def over(message: UserMessage) -> UserMessage:
    return decode_message(encode_packet(message))


def with_every_header() -> UserMessage:
    message = a_full_message()
    message.user.destination_type, message.user.destination_queue = PRIVATE_ON_DESTINATION, 17
    return message


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
@pytest.mark.parametrize(("provider", "algorithm"), CIPHERS)
@pytest.mark.parametrize("message", [a_user_message(), with_every_header()], ids=["plain", "full"])
def test_a_sealed_message_says_how_and_nothing_else_has_changed(
    message: UserMessage, provider: Provider, algorithm: int
) -> None:
    sent = on_the_wire(message, provider, algorithm)
    assert sent.security is not None
    assert sent.security.body_encrypted
    assert (sent.security.default_provider, sent.security.provider_info) == (True, b"")
    assert sent.properties.privacy_level == provider.privacy_level
    assert sent.properties.encryption_algorithm == algorithm
    assert sent.properties.message_body != message.properties.message_body
    assert sent.properties.allocation_body_size == len(sent.properties.message_body)

    back = opened(sent, OWN, no_cache(), 0)
    assert back.security is not None
    assert not back.security.body_encrypted
    assert back.security.encryption_key == sent.security.encryption_key
    same = ("message_class", "correlation_id", "body_type", "application_tag", "label", "extension_data")
    assert [getattr(back.properties, field) for field in ("message_body", *same)] == [
        getattr(message.properties, field) for field in ("message_body", *same)
    ]
    assert (back.transaction, back.debug, back.soap) == (message.transaction, message.debug, message.soap)
    assert message.properties.privacy_level == 0, "the message that was handed in is as it was"


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
def test_a_direct_name_cannot_be_encrypted() -> None:
    message = a_user_message(destination_manager=None, destination="OS:there\\private$\\orders")
    with pytest.raises(UsageError, match="send it by a private or public one"):
        on_the_wire(message)


def changed(message: UserMessage, **changes: Any) -> UserMessage:
    """Return a message with other values in its properties or in its SecurityHeader."""
    assert message.security is not None
    of_security = {name: value for name, value in changes.items() if hasattr(message.security, name)}
    of_properties = {name: value for name, value in changes.items() if name not in of_security}
    return replace(
        message,
        security=replace(message.security, **of_security),
        properties=replace(message.properties, **of_properties),
    )


def a_blob(algorithm: int, size: int, bits: int = 512) -> bytes:
    return simple_blob.encode(seal_session_key(SessionKey(algorithm, bytes(size)), own_key(bits).public))


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"privacy_level": 2}, "PrivacyLevel 2 names no provider"),
        ({"privacy_level": 3}, "AES-256 is none of the enhanced provider"),
        ({"encryption_algorithm": RC4}, "RC4 is none of the aes provider"),
        ({"encryption_algorithm": 0x6603}, "0x6603 is none of the aes provider"),
        ({"encryption_algorithm": AES_128}, "for another algorithm than EncryptionAlgorithm says"),
        ({"encryption_key": b""}, "EncryptionKey is not a SIMPLEBLOB: blob_type at byte 0 is 0 bytes"),
        (
            {"encryption_key": b"\x06\x02" + bytes(80)},
            "EncryptionKey is not a SIMPLEBLOB: blob_type at byte 0 is 6",
        ),
        (
            {"encryption_key": a_blob(AES_256, 32, bits=768)},
            "encrypted for 768 bits, and the aes key has 512",
        ),
        ({"message_body": b"no blocks"}, "the body has 9 bytes, which are not blocks of 16"),
        ({"message_body": bytes(64)}, "the body's padding is wrong"),
    ],
)
def test_what_cannot_be_decrypted_is_refused_by_what_is_wrong(changes: dict[str, Any], says: str) -> None:
    sent = changed(on_the_wire(a_user_message()), **changes)
    with pytest.raises(ProtectionError, match=says) as refusal:
        opened(sent, OWN, no_cache(), 0)
    assert refusal.value.message_class is MessageClass.NACK_BAD_ENCRYPTION
    assert "\n" not in str(refusal.value)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_without_a_key_for_the_provider_it_is_unsupported() -> None:
    with pytest.raises(ProtectionError, match="there is no key for the aes provider here") as refusal:
        opened(on_the_wire(a_user_message()), {"enhanced": OWN["enhanced"]}, no_cache(), 0)
    assert refusal.value.message_class is MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER


@given(st.integers(0, 8 * 76 - 1), st.integers(0, 8 * 16 - 1))
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_a_bit_of_the_key_or_the_body_that_is_wrong_is_refused_or_gives_another_body(
    in_key: int, in_body: int
) -> None:
    """Encryption alone does not show whether a message was changed.

    If there is a refusal, its class is always the same.
    """
    sent = SENT
    assert sent.security is not None
    for name, bit in (("encryption_key", in_key), ("message_body", in_body)):
        data = bytearray(getattr(sent.security if name == "encryption_key" else sent.properties, name))
        data[bit // 8] ^= 1 << bit % 8
        try:
            back = opened(changed(sent, **{name: bytes(data)}), OWN, no_cache(), 0)
        except ProtectionError as error:
            assert error.message_class is MessageClass.NACK_BAD_ENCRYPTION  # noqa: PT017
        else:
            reserved = name == "encryption_key" and bit // 8 in (2, 3)
            assert reserved is (back.properties.message_body == b"body of seven")


SENT = on_the_wire(a_user_message())


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_a_reduced_key_of_rc2_is_refused_where_that_is_asked_for() -> None:
    reduced = new_sending_key(ENHANCED, RC2, own_key(512).public, reduced=True)
    sent = over(sealed(a_user_message(), reduced))
    assert opened(sent, OWN, no_cache(), 0).properties.message_body == b"body of seven"
    cache = no_cache()
    with pytest.raises(ProtectionError, match="NACK_BAD_ENCRYPTION: the key of 128 bits has 40"):
        opened(sent, OWN, cache, 0, reject_reduced=True)
    assert len(cache) == 0
    whole = on_the_wire(a_user_message(), ENHANCED, RC2)
    assert opened(whole, OWN, cache, 0, reject_reduced=True).properties.message_body == b"body of seven"


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.3")
def test_a_key_that_has_come_before_is_opened_once() -> None:
    cache = no_cache()
    sending = new_sending_key(AES, AES_256, own_key(512).public)
    first, second = (over(sealed(a_user_message(body=body), sending)) for body in (b"one", b"two"))
    assert opened(first, OWN, cache, 0).properties.message_body == b"one"
    assert len(cache) == 1
    # Without our private key, only what is remembered helps.
    assert opened(second, {}, cache, 1).properties.message_body == b"two"
    other = replace(second, user=replace(second.user, source_queue_manager=second.user.queue_manager_address))
    with pytest.raises(ProtectionError, match="UNSUPPORTED"):
        opened(other, {}, cache, 1)


def test_a_message_for_the_key_before_the_one_in_use_is_opened_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if the wrong key pair yields a key of the right length: the padding of the body then shows the
    mistake.
    """
    older, newer = own_key(512), new_key_pair(512)
    own = {"aes": (newer, older)}
    assert opened(SENT, own, no_cache(), 0).properties.message_body == b"body of seven"
    monkeypatch.setattr(newer, "rsa", FakeKey(b"w" * 32))
    for pairs in ((newer, older), (older, newer)):
        assert opened(SENT, {"aes": pairs}, no_cache(), 0).properties.message_body == b"body of seven"
    monkeypatch.setattr(older, "rsa", FakeKey(b"v" * 32))
    with pytest.raises(ProtectionError, match="BAD_ENCRYPTION: the body's padding is wrong"):
        opened(SENT, own, no_cache(), 0)
