"""The algorithms of each provider.

These are the tables of [MS-MQQB] 3.1.5.8.3, 3.1.7.1.5 and [MS-MQMQ] 2.2.19.3. A provider is a Windows library, known by
its name. Here it is a row that gives the strength of its keys, and its algorithms.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.security.refusals import ProtectionError, bad_encryption
from mqproto.turn.guard import CIPHERS
from mqproto.wire.layouts.keyblobs import AES_128, AES_192, AES_256, CIPHER_NAMES, RC2, RC4

WEAK_BITS: Final = 40
PADDED_BITS: Final = 128
"""The length, in bits, to which 40-bit keys are padded with zeros if `SendEnhancedRC2Using40BitKeys` is set."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A cipher for message bodies.

    number: EncryptionAlgorithm of the MessagePropertiesHeader.
    key_bits: the length of its keys; 0 if the provider determines it.
    block_bytes: the length of its blocks; 1 for a stream cipher.
    is_weak: whether it is used only when requested by name.
    """

    number: int
    key_bits: int
    block_bytes: int
    is_weak: bool

    @property
    def name(self) -> str:
        return CIPHER_NAMES[self.number]


@dataclass(frozen=True, slots=True)
class Provider:
    """A cryptographic service provider.

    word: its short name for people.
    name: its name in ProviderInfo, and in the directory for its keys.
    kind: ulProviderType of [MS-MQMQ] 2.2.1: PROV_RSA_FULL or PROV_RSA_AES.
    privacy_level: PrivacyLevel of messages that it encrypts.
    session_key_bits: the length of session keys, if the algorithm does not determine it.
    key_pair_bits: the length of key pairs made here. The base provider takes only 512 bits; for the others, the
        specification gives 1,024.
    """

    word: str
    name: str
    kind: int
    privacy_level: int
    algorithms: tuple[int, ...]
    session_key_bits: int
    key_pair_bits: int

    def algorithm(self, number: int) -> Algorithm:
        """Return the algorithm with this number.

        Raises:
            ProtectionError: the provider does not have it, which counts as a failed decryption ([MS-MQMQ] 2.2.19.3).
        """
        if number not in self.algorithms:
            known = ALGORITHMS.get(number)
            called = known.name if known else f"{number:#x}"
            raise bad_encryption(f"EncryptionAlgorithm {called} is none of the {self.word} provider")
        return ALGORITHMS[number]

    def key_bytes(self, number: int) -> int:
        """Return the length, in bytes, of a session key for one of the provider's algorithms."""
        return (self.algorithm(number).key_bits or self.session_key_bits) // 8


ALGORITHMS: Final = {
    algorithm.number: algorithm
    for algorithm in (
        Algorithm(RC2, 0, 8, is_weak=True),
        Algorithm(RC4, 0, 1, is_weak=True),
        Algorithm(AES_128, 128, 16, is_weak=False),
        Algorithm(AES_192, 192, 16, is_weak=False),
        Algorithm(AES_256, 256, 16, is_weak=False),
    )
}
BASE: Final = Provider("base", "Microsoft Base Cryptographic Provider v1.0", 1, 1, (RC2, RC4), WEAK_BITS, 512)
ENHANCED: Final = Provider(
    "enhanced", "Microsoft Enhanced Cryptographic Provider v1.0", 1, 3, (RC2, RC4), PADDED_BITS, 2_048
)
AES: Final = Provider(
    "aes",
    "Microsoft Enhanced RSA and AES Cryptographic Provider",
    24,
    5,
    (AES_128, AES_192, AES_256),
    0,
    2_048,
)
PROVIDERS: Final = (BASE, ENHANCED, AES)
"""All providers, from the weakest to the strongest."""


def provider_by_privacy_level(level: int) -> Provider:
    """Return the provider that encrypted a message.  3.1.5.8.3

    Raises:
        ProtectionError: no provider has this PrivacyLevel.
    """
    for provider in PROVIDERS:
        if provider.privacy_level == level:
            return provider
    raise bad_encryption(f"PrivacyLevel {level} names no provider")


def cipher_word(provider: Provider, algorithm: Algorithm) -> str:
    """Return the short name for an algorithm of a provider."""
    return _WORDS[provider.privacy_level, algorithm.number]


_WORDS: Final = {cipher: word for word, cipher in CIPHERS.items()}


def provider_by_word(word: str) -> Provider:
    """Return the provider with this short name, ignoring case.

    Raises:
        UsageError: there is no such provider.
    """
    for provider in PROVIDERS:
        if provider.word == word.casefold():
            return provider
    raise UsageError(f"{word!r} is not a provider: name {', '.join(each.word for each in PROVIDERS)}")


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A symmetric key and its algorithm. Its repr does not show its bytes."""

    algorithm: int
    octets: bytes = field(repr=False)

    @property
    def is_reduced(self) -> bool:
        """Whether it is a 40-bit key padded with zeros, as 3.1.5.8.3 requires for RC2."""
        return len(self.octets) * 8 == PADDED_BITS and not any(self.octets[WEAK_BITS // 8 :])


def new_session_key(
    provider: Provider,
    algorithm: int,
    *,
    reduced: bool = False,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> SessionKey:
    """Return a new symmetric key.  3.1.7.1.5

    Args:
        reduced: SendEnhancedRC2Using40BitKeys, which affects only RC2 in the enhanced provider.
        random: returns random bytes; worlds pass in a source of their own.

    Raises:
        UsageError: the provider has no such algorithm.
    """
    try:
        size = provider.key_bytes(algorithm)
    except ProtectionError as refusal:
        raise UsageError(refusal.reason) from None
    if reduced and (provider, algorithm) == (ENHANCED, RC2):
        octets = random(WEAK_BITS // 8).ljust(size, b"\0")
    else:
        octets = random(size)
    return SessionKey(algorithm, octets)
