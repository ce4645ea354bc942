"""Encrypted and decrypted session keys; errors tell a stranger nothing about them."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from hypothesis import given, strategies as st

from mqproto.security import (
    PROVIDERS,
    ProtectionError,
    Provider,
    SessionKey,
    new_session_key,
    open_session_key,
    seal_session_key,
)
from mqproto.wire import MessageClass, SimpleBlob
from mqproto.wire.layouts.keyblobs import AES_256, RC4
from tests.security.keys import CIPHERS, own_key

BASE, ENHANCED, AES = PROVIDERS


@pytest.mark.spec("[MS-MQQB] 2.4.2")
@pytest.mark.parametrize(("provider", "number"), CIPHERS)
@pytest.mark.parametrize("bits", [512, 1_024])
def test_a_sealed_key_is_opened(provider: Provider, number: int, bits: int) -> None:
    own = own_key(bits)
    key = new_session_key(provider, number)
    blob = seal_session_key(key, own.public)
    assert len(blob.encrypted_key) * 8 == bits
    assert open_session_key(blob, own, provider) == key


@pytest.mark.spec("[MS-MQQB] 2.4.2")
def test_the_encrypted_key_stands_with_its_least_significant_byte_first() -> None:
    own = own_key(512)
    key = SessionKey(RC4, b"sixteen bytes ..")
    blob = seal_session_key(key, own.public)
    assert own.rsa.decrypt(blob.encrypted_key[::-1], PKCS1v15()) == key.octets


@given(st.integers(0, 511))
def test_a_blob_of_which_any_bit_is_wrong_gives_a_key_of_the_right_length_and_no_answer(bit: int) -> None:
    """The key is the same each time; otherwise a stranger would notice that it is wrong."""
    own = own_key(512)
    key = SessionKey(RC4, b"sixteen bytes ..")
    number = int.from_bytes(seal_session_key(key, own.public).encrypted_key, "little") ^ 1 << bit
    hurt = SimpleBlob(session_key_algorithm=RC4, encrypted_key=number.to_bytes(64, "little"))
    opened = open_session_key(hurt, own, ENHANCED)
    assert len(opened.octets) == len(key.octets)
    assert opened != key
    assert opened == open_session_key(hurt, own, ENHANCED)


@pytest.mark.parametrize("size", [0, 5, 15, 17, 24, 32, 53])
def test_a_key_of_another_length_is_as_good_as_none(size: int) -> None:
    own = own_key(512)
    wrong = SimpleBlob(session_key_algorithm=RC4, encrypted_key=sealed(bytes(range(size))))
    opened = open_session_key(wrong, own, ENHANCED)
    assert len(opened.octets) == 16
    assert opened.octets not in bytes(range(100))


def sealed(octets: bytes) -> bytes:
    return own_key(512).public.rsa.encrypt(octets, PKCS1v15())[::-1]


def test_what_nobody_can_read_depends_on_the_private_key() -> None:
    encrypted = bytes(64)
    assert own_key(512).substitute(encrypted) != own_key(1_024).substitute(encrypted)
    assert own_key(512).substitute(encrypted) != own_key(512).substitute(encrypted[1:])


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (
            SimpleBlob(session_key_algorithm=AES_256, encrypted_key=bytes(64)),
            "AES-256 is none of the enhanced",
        ),
        (
            SimpleBlob(session_key_algorithm=RC4, encrypted_key=bytes(128)),
            "for 1024 bits, and the enhanced key has 512",
        ),
    ],
)
def test_what_everybody_can_see_is_said(blob: SimpleBlob, says: str) -> None:
    with pytest.raises(ProtectionError, match=says) as refusal:
        open_session_key(blob, own_key(512), ENHANCED)
    assert refusal.value.message_class is MessageClass.NACK_BAD_ENCRYPTION
