"""Signatures: the hashes, the byte order, and refusals that name what is wrong."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.security import HASHES, ProtectionError, PublicKey, sign, verify
from mqproto.wire import MessageClass
from tests.security.keys import own_key
from tests.security.wine.vectors import BODY, vectors

DIGESTS = {0x8003: hashlib.md5, 0x8004: hashlib.sha1, 0x800C: hashlib.sha256, 0x800E: hashlib.sha512}


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
@pytest.mark.parametrize("algorithm", DIGESTS)
def test_a_signature_is_the_hash_by_name_encrypted_and_reversed(algorithm: int) -> None:
    own = own_key()
    numbers = own.public.rsa.public_numbers()
    signature = sign(algorithm, own, b"data")
    block = pow(int.from_bytes(signature, "little"), numbers.e, numbers.n).to_bytes(128, "big")
    digest = DIGESTS[algorithm](b"data").digest()
    assert block[:2] == b"\0\1"
    assert block.endswith(b"\x05\x00\x04" + bytes([len(digest)]) + digest), "NULL, and an OCTET STRING"
    verify(algorithm, own.public, b"data", signature)


@pytest.mark.parametrize("algorithm", HASHES)
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_what_wine_has_signed_is_verified(algorithm: int) -> None:
    signer = PublicKey.from_bytes(bytes.fromhex(vectors()["signer"]))
    verify(algorithm, signer, BODY, bytes.fromhex(vectors()["signed"][str(algorithm)]))


@given(st.integers(0, 1_023), st.booleans())
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_any_bit_that_is_wrong_is_refused(bit: int, in_data: bool) -> None:
    own, data = own_key(), bytearray(b"d" * 128)
    signature = bytearray(sign(0x800C, own, bytes(data)))
    (data if in_data else signature)[bit // 8] ^= 1 << bit % 8
    assert refusal_of(0x800C, own.public, bytes(data), bytes(signature)) is MessageClass.NACK_BAD_SIGNATURE


@pytest.mark.parametrize("signature", [b"", b"\1", bytes(128), b"\xff" * 128, bytes(129), b"\xff" * 3_000])
def test_bytes_that_are_no_signature_are_refused_alike(signature: bytes) -> None:
    assert refusal_of(0x8004, own_key().public, b"data", signature) is MessageClass.NACK_BAD_SIGNATURE


def refusal_of(algorithm: int, key: PublicKey, data: bytes, signature: bytes) -> MessageClass:
    with pytest.raises(ProtectionError) as refusal:
        verify(algorithm, key, data, signature)
    return refusal.value.message_class


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        (0x8001, "MD2 is broken: sign with SHA-512"),
        (0x8002, "MD4 is broken: sign with SHA-512"),
        (0x800D, "0x800d is not a HashAlgorithm"),
        (0, "0x0 is not a HashAlgorithm"),
    ],
)
@pytest.mark.spec("[MS-MQMQ] 2.2.19.3")
def test_a_hash_that_nobody_should_take_is_refused_by_name(algorithm: int, says: str) -> None:
    with pytest.raises(ProtectionError, match=f"NACK_BAD_SIGNATURE: {says}"):
        verify(algorithm, own_key().public, b"data", bytes(128))
    with pytest.raises(UsageError, match=says):
        sign(algorithm, own_key(), b"data")


def test_a_hash_that_does_not_fit_the_key_is_misuse() -> None:
    with pytest.raises(UsageError, match="sha512 does not fit a key of 512 bits: make a longer key"):
        sign(0x800E, own_key(512), b"data")
