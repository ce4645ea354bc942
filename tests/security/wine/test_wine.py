"""Wine's CryptoAPI against ours, in both directions: key blobs, bodies and signatures, for each provider and algorithm.

`make wine` uses many keys and bodies; otherwise, only one of each is used. mqproto/security/README.md lists what Wine
cannot confirm.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Final

import pytest

from mqproto.security import (
    HASHES,
    PROVIDERS,
    KeyPair,
    ProtectionError,
    Provider,
    PublicKey,
    decrypt,
    encrypt,
    new_key_pair,
    new_session_key,
    open_session_key,
    provider_by_word,
    seal_session_key,
    self_signed,
    sign,
    verify,
)
from mqproto.wire import public_key_blob, simple_blob
from mqproto.wire.layouts.keyblobs import RC2, RSA_SIGN
from tests.security.keys import CIPHERS, own_key
from tests.security.wine.oracle import Oracle, OracleError, needs_wine, running

pytestmark = needs_wine

ROUNDS: Final = int(os.environ.get("MQPROTO_WINE_ROUNDS", "1"))
KNOWN: Final = {"base": (0x8003, 0x8004), "enhanced": (0x8003, 0x8004), "aes": tuple(HASHES)}
"""The hash algorithms that each provider supports."""
EXCHANGE_BITS: Final = {"base": 512, "enhanced": 1_024, "aes": 2_048}


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with running(tmp_path_factory.mktemp("wine")) as oracle:
        yield oracle


@pytest.fixture(scope="module")
def theirs(wine: Oracle) -> dict[str, PublicKey]:
    """Return Wine's public keys for key exchange, keyed by provider."""
    made = {}
    for provider, bits in EXCHANGE_BITS.items():
        [blob] = wine.ask("make", provider, "exchange", bits)
        made[provider] = PublicKey.from_bytes(blob)
        assert public_key_blob.encode(made[provider].blob()) == blob
        assert made[provider].bits == bits
    return made


def bodies(seed: str) -> list[bytes]:
    """Return bodies: an empty one, one of a single byte, whole blocks, blocks with a byte more or less, and some
    others.
    """
    dice = random.Random(seed)
    sizes = (0, 1, 7, 8, 9, 15, 16, 17, 1_000, dice.randrange(5_000))
    return [dice.randbytes(size) for size in sizes[: None if ROUNDS > 1 else 9]]


def effective_bits(provider: Provider, number: int) -> int:
    """Return the number of effective bits for RC2; 0 for other algorithms.

    The number is the key's length. Wine must be told this number, because its default is different.
    """
    return provider.session_key_bits if number == RC2 else 0


@pytest.mark.parametrize(("provider", "number"), CIPHERS)
@pytest.mark.spec("[MS-MQQB] 2.4.2")
def test_wine_opens_what_we_seal(
    wine: Oracle, theirs: dict[str, PublicKey], provider: Provider, number: int
) -> None:
    for turn in range(ROUNDS):
        key = new_session_key(provider, number)
        blob = simple_blob.encode(seal_session_key(key, theirs[provider.word]))
        for body in bodies(f"seal {turn}"):
            sealed = encrypt(key, body)
            effective = effective_bits(provider, number)
            [opened] = wine.ask("open", provider.word, effective, "none", blob, sealed)
            assert opened == body


@pytest.mark.parametrize(("provider", "number"), CIPHERS)
@pytest.mark.spec("[MS-MQQB] 2.4.1")
def test_we_open_what_wine_seals(wine: Oracle, provider: Provider, number: int) -> None:
    for turn, bits in product(range(ROUNDS), (512, 1_024)):
        own = own_key(bits)
        public = public_key_blob.encode(own.public.blob())
        for body in bodies(f"open {turn}"):
            size = provider.key_bytes(number) * 8
            effective = effective_bits(provider, number)
            blob, sealed = wine.ask(
                "seal", provider.word, f"{number:x}", size, effective, "none", public, body
            )
            key = open_session_key(simple_blob.decode(blob), own, provider)
            assert key.algorithm == number
            assert decrypt(key, sealed) == body


@pytest.mark.parametrize(
    ("provider", "algorithm"), [(word, algorithm) for word, known in KNOWN.items() for algorithm in known]
)
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
def test_each_verifies_the_signatures_of_the_other(wine: Oracle, provider: str, algorithm: int) -> None:
    for turn in range(ROUNDS):
        [theirs] = wine.ask("make", provider, "sign", 1_024)
        data = bodies(f"sign {turn}")[-1]
        [signature] = wine.ask("sign", provider, f"{algorithm:x}", data)
        verify(algorithm, PublicKey.from_bytes(theirs), data, signature)
        with pytest.raises(ProtectionError, match="BAD_SIGNATURE"):
            verify(algorithm, PublicKey.from_bytes(theirs), data + b"\0", signature)
        own = own_key(1_024)
        ours = sign(algorithm, own, data)
        for use in (own.public.blob(), own.public.blob(RSA_SIGN)):
            assert wine.verifies(provider, algorithm, public_key_blob.encode(use), data, ours)
        assert not wine.verifies(provider, algorithm, public_key_blob.encode(use), data[1:], ours)
        assert not wine.verifies(provider, algorithm, public_key_blob.encode(use), data, ours[::-1])


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
def test_wine_finds_our_key_in_our_certificate(wine: Oracle) -> None:
    own = new_key_pair(1_024)
    der = self_signed(own, "node", 1_700_000_000, 30).der
    for provider in PROVIDERS:
        [blob] = wine.ask("key", provider.word, der)
        assert PublicKey.from_bytes(blob) == own.public


def test_wine_refuses_a_key_blob_of_which_a_byte_is_wrong(wine: Oracle, theirs: dict[str, PublicKey]) -> None:
    """Wine reveals to a stranger that the blob is wrong; our code returns another key instead, and reveals nothing."""
    aes = provider_by_word("aes")
    key = new_session_key(aes, aes.algorithms[0])
    blob = bytearray(simple_blob.encode(seal_session_key(key, theirs["aes"])))
    blob[-9] ^= 1
    with pytest.raises(OracleError):
        wine.ask("open", "aes", 0, "none", bytes(blob), encrypt(key, b"body"))


def test_a_salt_of_zeros_is_another_key_and_wine_is_no_witness_of_the_default(
    wine: Oracle, theirs: dict[str, PublicKey]
) -> None:
    """According to Microsoft's documentation, 11 zero bytes follow a 40-bit key unless CRYPT_NO_SALT is given."""
    base = provider_by_word("base")
    key = new_session_key(base, RC2)
    blob = simple_blob.encode(seal_session_key(key, theirs["base"]))
    sealed = encrypt(key, b"body")
    assert wine.ask("open", "base", 40, "none", blob, sealed) == [b"body"]
    with suppress(OracleError):
        assert wine.ask("open", "base", 40, "salt", blob, sealed) != [b"body"]


def test_wine_takes_our_private_key_and_signs_with_it_as_we_do(wine: Oracle) -> None:
    for bits in (512, 1_024):
        own = own_key(bits)
        for provider in PROVIDERS:
            assert wine.ask("take", provider.word, own.blob(RSA_SIGN)) == [own.blob(RSA_SIGN)]
            assert wine.ask("sign", provider.word, "8004", b"data") == [sign(0x8004, own, b"data")]


def test_a_key_of_ours_is_one_to_wine_whatever_its_length(wine: Oracle) -> None:
    for bits in (512, 768, 1_024, 2_048):
        pair: KeyPair = own_key(bits)
        signature = sign(0x8004, pair, b"data")
        assert wine.verifies(
            "enhanced", 0x8004, public_key_blob.encode(pair.public.blob()), b"data", signature
        )
