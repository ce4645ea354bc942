"""Key pairs: as PEM, as the CryptoAPI's blobs, in certificates; what is no key; and that none shows its secret."""

from __future__ import annotations

import base64
import pickle
import traceback

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mqproto.base.errors import UsageError
from mqproto.security import KeyPair, PublicKey, new_key_pair
from mqproto.wire import PublicKeyBlob, encode_key_blob
from mqproto.wire.layouts.keyblobs import RSA_SIGN
from tests.security.keys import own_key


@pytest.mark.parametrize("bits", [512, 768, 1_024])
def test_a_key_pair_of_any_length_survives_pem(bits: int) -> None:
    own = own_key(bits)
    assert own.bits == own.public.bits == bits
    assert own.rsa.private_numbers().public_numbers.e == 65_537
    again = KeyPair.from_pem(own.pem())
    assert again.public == own.public
    assert again.substitute(b"bytes") == own.substitute(b"bytes")


@pytest.mark.spec("[MS-MQQB] 2.4.1")
def test_a_public_key_is_the_same_in_every_form() -> None:
    public = own_key().public
    certificate = own_key().certificate("node", 1_700_000_000, 30)
    der = PublicKey.der_of_certificate(certificate)
    forms = (
        encode_key_blob(public.blob()),
        encode_key_blob(public.blob(RSA_SIGN)),
        public.pem(),
        certificate,
        der,
    )
    for form in forms:
        assert PublicKey.from_bytes(form) == public
    assert public.blob().modulus == public.rsa.public_numbers().n.to_bytes(128, "little")


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (PublicKeyBlob(modulus=b"\1" * 127 + b"\0"), "most significant byte of the modulus is 0"),
        (PublicKeyBlob(modulus=b"\2" * 128), "the modulus is even"),
        (PublicKeyBlob(modulus=b"\1" * 128, pub_exp=2), "make no RSA key"),
        (PublicKeyBlob(modulus=b"\1" * 128, pub_exp=0), "make no RSA key"),
    ],
)
def test_numbers_that_make_no_key_are_refused(blob: PublicKeyBlob, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        PublicKey.from_bytes(encode_key_blob(blob))


def test_what_is_no_key_is_told_in_one_line_that_says_what_to_bring() -> None:
    elliptic = ec.generate_private_key(ec.SECP256R1())
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    password = serialization.BestAvailableEncryption(b"password")
    cases = [
        (KeyPair.from_pem, b"", "no private key: bring a PEM file"),
        (KeyPair.from_pem, own_key().public.pem(), "no private key: bring a PEM file"),
        (KeyPair.from_pem, elliptic.private_bytes(*encodings, serialization.NoEncryption()), "not of RSA"),
        (KeyPair.from_pem, own_key().rsa.private_bytes(*encodings, password), "encrypted: decrypt it first"),
        (PublicKey.from_bytes, b"\x06\x02", "no PUBLICKEYBLOB: reserved at byte 2"),
        (PublicKey.from_bytes, b"nothing", "no public key of RSA: bring"),
        (PublicKey.from_bytes, own_key().pem(), "no public key of RSA: bring"),
        (PublicKey.der_of_certificate, own_key().pem(), "no certificate: bring PEM"),
    ]
    for read, data, says in cases:
        with pytest.raises(UsageError, match=says) as error:
            read(data)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("bits", [0, 504, 1_025, 16_392])
def test_keys_of_other_lengths_are_not_made(bits: int) -> None:
    with pytest.raises(UsageError, match=f"a key of {bits} bits: ask for 512 to 16,384"):
        new_key_pair(bits)


def test_a_certificate_is_its_key_s_own_and_for_signatures() -> None:
    made = x509.load_pem_x509_certificate(own_key().certificate("shop", 1_700_000_000, 30))
    assert made.subject == made.issuer
    assert made.subject.rfc4514_string() == "CN=shop"
    assert (made.not_valid_before_utc.timestamp(), made.not_valid_after_utc.timestamp()) == (
        1_700_000_000,
        1_702_592_000,
    )
    made.verify_directly_issued_by(made)
    assert made.extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature
    with pytest.raises(UsageError, match="give a name of 1 to 64 characters"):
        own_key().certificate("", 1_700_000_000, 30)


def forms_of(secret: int) -> set[str]:
    """A secret number as it might leak."""
    octets = secret.to_bytes((secret.bit_length() + 7) // 8, "big")
    inner = base64.b64encode(octets[8:])[12:40].decode()
    return {str(secret), f"{secret:x}", octets.hex(), octets[::-1].hex(), repr(octets)[2:-1], inner}


def test_what_is_printed_of_a_key_pair_has_no_secret() -> None:
    own = own_key(512)
    numbers = own.rsa.private_numbers()
    try:
        raise RuntimeError(own, [own.public])
    except RuntimeError as error:
        shown = [repr(own), str(own), f"{[own]}", "".join(traceback.format_exception(error))]
    for secret in (numbers.d, numbers.p, numbers.q):
        assert not [form for form in forms_of(secret) for text in shown if form in text]
    assert own.public.fingerprint in repr(own)
    with pytest.raises(TypeError):
        pickle.dumps(own)
