"""Providers and their permitted algorithms, as in the specification's tables."""

from __future__ import annotations

import pytest

from mqproto.base.errors import UsageError
from mqproto.security import (
    ALGORITHMS,
    PROVIDERS,
    ProtectionError,
    SessionKey,
    new_session_key,
    provider_by_privacy_level,
    provider_by_word,
)
from mqproto.wire import MessageClass
from mqproto.wire.layouts.keyblobs import AES_128, AES_192, AES_256, RC2, RC4


@pytest.mark.spec("[MS-MQMQ] 2.2.19.3")
@pytest.mark.parametrize(
    ("level", "name", "key_bytes"),
    [
        (1, "Microsoft Base Cryptographic Provider v1.0", {RC2: 5, RC4: 5}),
        (3, "Microsoft Enhanced Cryptographic Provider v1.0", {RC2: 16, RC4: 16}),
        (
            5,
            "Microsoft Enhanced RSA and AES Cryptographic Provider",
            {AES_128: 16, AES_192: 24, AES_256: 32},
        ),
    ],
)
def test_a_privacy_level_names_a_provider_with_these_ciphers(
    level: int, name: str, key_bytes: dict[int, int]
) -> None:
    provider = provider_by_privacy_level(level)
    assert provider.name == name
    assert {number: provider.key_bytes(number) for number in provider.algorithms} == key_bytes
    for number in {*ALGORITHMS, 0x6603} - {*key_bytes}:
        with pytest.raises(ProtectionError) as refusal:
            provider.algorithm(number)
        assert refusal.value.message_class is MessageClass.NACK_BAD_ENCRYPTION


@pytest.mark.parametrize("level", [0, 2, 4, 6, 2**32 - 1])
def test_any_other_privacy_level_is_a_failed_decryption(level: int) -> None:
    with pytest.raises(ProtectionError) as refusal:
        provider_by_privacy_level(level)
    assert refusal.value.message_class is MessageClass.NACK_BAD_ENCRYPTION


def test_a_provider_is_found_by_the_word_that_people_use() -> None:
    assert provider_by_word("AES") is PROVIDERS[-1]
    with pytest.raises(UsageError, match="'des' is not a provider: name base, enhanced, aes"):
        provider_by_word("des")


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
def test_a_reduced_key_of_rc2_is_five_bytes_and_zeros() -> None:
    base, enhanced, aes = PROVIDERS
    reduced = new_session_key(enhanced, RC2, reduced=True, random=b"\7".__mul__)
    assert reduced == SessionKey(RC2, b"\7" * 5 + bytes(11))
    assert reduced.is_reduced
    for provider, number in ((enhanced, RC4), (base, RC2), (aes, AES_128)):
        key = new_session_key(provider, number, reduced=True, random=b"\7".__mul__)
        assert key.octets == b"\7" * provider.key_bytes(number)
        assert not key.is_reduced


def test_a_key_that_is_printed_shows_none_of_its_bytes() -> None:
    key = SessionKey(RC4, b"\x5a" * 16)
    assert repr(key) == f"{key}" == f"SessionKey(algorithm={RC4})"


def test_a_key_for_a_cipher_that_the_provider_lacks_is_misuse() -> None:
    with pytest.raises(UsageError, match="EncryptionAlgorithm RC4 is none of the aes provider"):
        new_session_key(PROVIDERS[2], RC4)
