"""Encrypted and decrypted bodies: vectors by the ciphers' authors, Wine's results, and refusals."""

from __future__ import annotations

import pytest
from Crypto.Cipher import ARC2
from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher
from hypothesis import given, strategies as st

from mqproto.security import (
    ALGORITHMS,
    KeyPair,
    ProtectionError,
    Provider,
    SessionKey,
    decrypt,
    encrypt,
    new_session_key,
    open_session_key,
    provider_by_word,
)
from mqproto.wire import MessageClass, simple_blob
from mqproto.wire.layouts.keyblobs import AES_128, AES_192, AES_256, RC2, RC4
from tests.security.keys import CIPHERS
from tests.security.wine.vectors import BODY, vectors


@pytest.mark.parametrize(
    ("key", "effective_bits", "plain", "encrypted"),
    [
        ("0000000000000000", 63, "0000000000000000", "ebb773f993278eff"),
        ("ffffffffffffffff", 64, "ffffffffffffffff", "278b27e42e2f0d49"),
        ("3000000000000000", 64, "1000000000000001", "30649edf9be7d2c2"),
        ("88bca90e90875a", 64, "0000000000000000", "6ccf4308974c267f"),
        ("88bca90e90875a7f0f79c384627bafb2", 64, "0000000000000000", "1a807d272bbe5db1"),
        ("88bca90e90875a7f0f79c384627bafb2", 128, "0000000000000000", "2269552ab0f85ca6"),
    ],
)
def test_the_library_does_rc2_as_rfc_2268_has_it(
    key: str, effective_bits: int, plain: str, encrypted: str
) -> None:
    cipher = ARC2.new(bytes.fromhex(key), ARC2.MODE_ECB, effective_keylen=effective_bits)
    assert cipher.encrypt(bytes.fromhex(plain)).hex() == encrypted
    if len(key) // 2 * 8 == effective_bits == 128:
        ours = encrypt(SessionKey(RC2, bytes.fromhex(key)), bytes.fromhex(plain))
        assert ours[:8].hex() == encrypted


@pytest.mark.parametrize("size", [5, 16])
def test_rc2_has_as_many_effective_bits_as_its_key_is_long(size: int) -> None:
    key = bytes(range(size))
    by_others = ARC2.new(key, ARC2.MODE_CBC, iv=bytes(8), effective_keylen=8 * size).encrypt(b"8 octets")
    assert encrypt(SessionKey(RC2, key), b"8 octets")[:8] == by_others


@pytest.mark.parametrize(
    ("key", "at", "stream"),
    [
        ("0102030405", 0, "b2396305f03dc027ccc3524a0a1118a8 6982944f18fc82d589c403a47a0d0919"),
        ("0102030405", 240, "28cb1132c96ce286421dcaadb8b69eae 1cfcf62b03eddb641d77dfcf7f8d8c93"),
        (
            "0102030405060708090a0b0c0d0e0f10",
            0,
            "9ac7cc9a609d1ef7b2932899cde41b97 5248c4959014126a6e8a84f11d1a9e1c",
        ),
        (
            "0102030405060708090a0b0c0d0e0f10",
            240,
            "065902e4b620f6cc36c8589f66432f2b d39d566bc6bce3010768151549f3873f",
        ),
    ],
)
def test_rc4_is_that_of_rfc_6229_from_its_first_byte_on(key: str, at: int, stream: str) -> None:
    expected = bytes.fromhex(stream)
    zeros = bytes(at + len(expected))
    assert encrypt(SessionKey(RC4, bytes.fromhex(key)), zeros)[at:] == expected
    assert Cipher(ARC4(bytes.fromhex(key)), None).encryptor().update(zeros)[at:] == expected


@pytest.mark.parametrize(
    ("number", "encrypted"),
    [
        (AES_128, "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (AES_192, "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (AES_256, "8ea2b7ca516745bfeafc49904b496089"),
    ],
)
def test_aes_is_that_of_fips_197_with_an_initial_value_of_zeros(number: int, encrypted: str) -> None:
    key = SessionKey(number, bytes(range(ALGORITHMS[number].key_bits // 8)))
    assert encrypt(key, bytes.fromhex("00112233445566778899aabbccddeeff"))[:16].hex() == encrypted


@pytest.mark.parametrize(
    "said", vectors()["sealed"], ids=lambda said: f"{said['provider']}-{said['algorithm']:x}"
)
@pytest.mark.spec("[MS-MQQB] 2.4.2")
def test_what_wine_has_sealed_is_opened(said: dict[str, str]) -> None:
    own = KeyPair.from_bytes(vectors()["key"].encode())
    provider = provider_by_word(said["provider"])
    key = open_session_key(simple_blob.decode(bytes.fromhex(said["blob"])), own, provider)
    assert decrypt(key, bytes.fromhex(said["body"])) == BODY
    assert encrypt(key, BODY) == bytes.fromhex(said["body"])


@given(st.sampled_from(CIPHERS), st.binary(max_size=70))
def test_what_is_encrypted_is_decrypted(cipher: tuple[Provider, int], body: bytes) -> None:
    provider, number = cipher
    key = new_session_key(provider, number)
    encrypted = encrypt(key, body)
    block = ALGORITHMS[number].block_bytes
    assert decrypt(key, encrypted) == body
    assert len(encrypted) == (len(body) if block == 1 else len(body) // block * block + block)


@pytest.mark.parametrize("number", [RC2, AES_128, AES_192, AES_256])
def test_a_body_that_is_no_padded_blocks_is_refused_and_quoted_nowhere(number: int) -> None:
    key = SessionKey(number, bytes(range(ALGORITHMS[number].key_bits // 8 or 16)))
    encrypted = encrypt(key, b"secret" * 9)
    changed = [encrypted[:-1], b"", encrypted + b"\0", encrypted[:-1] + bytes([encrypted[-1] ^ 1])]
    for body in changed:
        with pytest.raises(ProtectionError) as refusal:
            decrypt(key, body)
        assert refusal.value.message_class is MessageClass.NACK_BAD_ENCRYPTION
        assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("number", [RC2, AES_256])
def test_blocks_are_chained(number: int) -> None:
    key = SessionKey(number, bytes(range(ALGORITHMS[number].key_bits // 8 or 16)))
    block = ALGORITHMS[number].block_bytes
    encrypted = encrypt(key, bytes(2 * block))
    assert encrypted[:block] != encrypted[block : 2 * block]
