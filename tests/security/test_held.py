"""A key pair that a token holds does all that one in a file does, and does not come out."""

from __future__ import annotations

import copy

import pytest
from cryptography.hazmat.primitives import hashes

from mqproto.base.errors import UsageError
from mqproto.security import (
    HASHES,
    Certificate,
    HeldKeyPair,
    KeyAwayError,
    new_session_key,
    open_session_key,
    provider_by_word,
    request_for,
    seal_session_key,
    self_signed,
    sign,
    verify,
)
from mqproto.security.held import REMEMBERED
from mqproto.wire import SimpleBlob
from mqproto.wire.layouts.keyblobs import AES_256
from tests.security.keys import held, own_key

AES = provider_by_word("aes")


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
@pytest.mark.parametrize("algorithm", HASHES)
def test_it_signs_as_the_same_key_in_a_file_does(algorithm: int) -> None:
    pair, _ = held(own_key())
    signature = sign(algorithm, pair, b"data")
    assert signature == sign(algorithm, own_key(), b"data")
    verify(algorithm, pair.public, b"data", signature)


def test_a_hash_that_does_not_fit_the_key_is_refused_as_for_a_file() -> None:
    pair, token = held(own_key(512))
    with pytest.raises(UsageError, match="sha512 does not fit a key of 512 bits"):
        sign(0x800E, pair, b"data")
    assert token.calls == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
def test_it_opens_session_keys_and_what_is_none_is_replaced_by_one_that_nobody_knows() -> None:
    pair, _ = held(own_key())
    key = new_session_key(AES, AES_256)
    assert open_session_key(seal_session_key(key, pair.public), pair, AES) == key
    for wrong in (bytes(128), pair.public.encrypted(b"short")[::-1]):
        blob = SimpleBlob(session_key_algorithm=AES_256, encrypted_key=wrong)
        substitute = open_session_key(blob, pair, AES)
        assert len(substitute.octets) == 32
        assert substitute == open_session_key(blob, pair, AES), "the same one each time"
        again = HeldKeyPair(pair.public, held(own_key())[1], b"seed")
        assert substitute == open_session_key(blob, again, AES), "also of a node that was started anew"
        other = HeldKeyPair(pair.public, held(own_key())[1], b"another seed")
        assert substitute != open_session_key(blob, other, AES), "nobody else knows it"


def test_what_was_opened_is_not_asked_for_again_and_what_was_not_is_away_with_the_token() -> None:
    pair, token = held(own_key())
    keys = [new_session_key(AES, AES_256) for _ in range(REMEMBERED + 1)]
    blobs = [seal_session_key(key, pair.public) for key in keys]
    assert open_session_key(blobs[0], pair, AES) == keys[0]
    token.is_away = True
    assert open_session_key(blobs[0], pair, AES) == keys[0]
    for ask in (lambda: open_session_key(blobs[1], pair, AES), lambda: sign(0x8004, pair, b"data")):
        with pytest.raises(KeyAwayError, match="the token is away: put it back"):
            ask()
    token.is_away = False
    assert [open_session_key(blob, pair, AES) for blob in blobs] == keys
    token.is_away = True
    with pytest.raises(KeyAwayError):
        open_session_key(blobs[0], pair, AES)


def test_certificates_and_requests_are_signed_by_the_token() -> None:
    pair, token = held(own_key())
    certificate = self_signed(pair, "office", 1_700_000_000, 365)
    assert Certificate.from_bytes(certificate.der).is_issued_by(certificate)
    assert request_for(pair, "office").startswith(b"-----BEGIN CERTIFICATE REQUEST-----")
    assert token.calls == 2
    token.is_away = True
    with pytest.raises(KeyAwayError):
        self_signed(pair, "office", 1_700_000_000, 365)


def test_a_signature_that_is_wrong_goes_to_nobody() -> None:
    pair = HeldKeyPair(own_key(1_032).public, held(own_key(1_024))[1], b"seed")
    with pytest.raises(KeyAwayError, match="the token signs wrong, or with another key"):
        sign(0x8004, pair, b"data")


def test_the_private_key_does_not_come_out() -> None:
    pair, _ = held(own_key())
    for ask in (pair.pem, pair.blob, pair.rsa.private_numbers):
        with pytest.raises(UsageError, match="the private key is in a token, and does not leave it"):
            ask()
    assert pair.is_held
    assert not own_key().is_held
    assert repr(pair) == repr(own_key())
    assert (pair.rsa.key_size, pair.rsa.public_key()) == (1_024, own_key().public.rsa)
    assert copy.copy(pair.rsa) is copy.deepcopy(pair.rsa) is pair.rsa


def test_what_is_hashed_elsewhere_or_padded_in_another_way_is_our_own_mistake() -> None:
    from cryptography.hazmat.primitives.asymmetric import padding, utils

    key = held(own_key())[0].rsa
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
    with pytest.raises(AssertionError):
        key.decrypt(bytes(128), oaep)
    with pytest.raises(AssertionError):
        key.sign(b"data", oaep, hashes.SHA256())
    with pytest.raises(AssertionError):
        key.sign(b"data", padding.PKCS1v15(), utils.Prehashed(hashes.SHA256()))
