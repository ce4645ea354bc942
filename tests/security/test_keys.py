"""Key pairs as PEM, as blobs of the CryptoAPI and in certificates; bytes that are not a key pair; no pair shows its
secret.
"""

from __future__ import annotations

import base64
import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mqproto.base.errors import UsageError
from mqproto.security import KeyPair, PublicKey, new_key_pair, self_signed
from mqproto.wire import PublicKeyBlob, public_key_blob
from mqproto.wire.layouts.keyblobs import RSA_SIGN, begins_private_key, private_key_blob
from tests.security.keys import own_key


@pytest.mark.parametrize("bits", [512, 768, 1_024])
def test_a_key_pair_of_any_length_survives_pem_and_the_blob_of_windows(bits: int) -> None:
    own = own_key(bits)
    assert own.bits == own.public.bits == bits
    assert own.rsa.private_numbers().public_numbers.e == 65_537
    for form in (own.pem(), own.blob(), own.blob(RSA_SIGN)):
        again = KeyPair.from_bytes(form)
        assert again.public == own.public
        assert again.substitute(b"bytes") == own.substitute(b"bytes")


@pytest.mark.spec("[MS-MQQB] 2.4.1")
def test_a_public_key_is_the_same_in_every_form() -> None:
    public = own_key().public
    certificate = self_signed(own_key(), "node", 1_700_000_000, 30)
    forms = (
        public_key_blob.encode(public.blob()),
        public_key_blob.encode(public.blob(RSA_SIGN)),
        public.pem(),
        certificate.pem(),
        certificate.der,
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
        PublicKey.from_bytes(public_key_blob.encode(blob))


def test_what_is_no_key_is_told_in_one_line_that_says_what_to_bring() -> None:
    elliptic = ec.generate_private_key(ec.SECP256R1())
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    password = serialization.BestAvailableEncryption(b"password")
    cases: list[tuple[Callable[[bytes], object], bytes, str]] = [
        (KeyPair.from_bytes, b"", "no private key: bring PEM"),
        (KeyPair.from_bytes, own_key().public.pem(), "no private key: bring PEM"),
        (KeyPair.from_bytes, elliptic.private_bytes(*encodings, serialization.NoEncryption()), "not of RSA"),
        (
            KeyPair.from_bytes,
            own_key().rsa.private_bytes(*encodings, password),
            "encrypted: decrypt it first",
        ),
        (PublicKey.from_bytes, b"\x06\x02", "no PUBLICKEYBLOB: reserved at byte 2"),
        (PublicKey.from_bytes, b"nothing", "no public key of RSA: bring"),
        (PublicKey.from_bytes, own_key().pem(), "no public key of RSA: bring"),
    ]
    certificate = self_signed(own_key(), "shop", 0, 1).der
    for version in (
        b"\x02\x01\x03",
        b"\x02\x01\x7f",
        b"\x02\x01\xff",
    ):  # The library knows 1 and 3, which are 0 and 2.
        other = certificate.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03" + version)
        cases.append((PublicKey.from_bytes, other, "no public key of RSA: bring"))
        cases.append((KeyPair.from_bytes, other, "no private key: bring PEM"))
    for read, data, says in cases:
        with pytest.raises(UsageError, match=says) as error:
            read(data)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("bits", [0, 504, 1_025, 16_392])
def test_keys_of_other_lengths_are_not_made(bits: int) -> None:
    with pytest.raises(UsageError, match=f"a key of {bits} bits: ask for 512 to 16,384"):
        new_key_pair(bits)


def test_a_private_blob_that_is_hurt_is_refused_and_its_secrets_are_not_quoted() -> None:
    own, said = own_key(512), []
    data = own.blob()
    for at in (4, 9, 12, 30, 90, 130, 200, len(data) - 1):
        hurt = data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :]
        try:
            KeyPair.from_bytes(hurt)
        except UsageError as error:
            said.append(str(error))
    assert len(said) >= 5
    assert not [form for form in secrets_of(own) for text in said if form in text]
    with pytest.raises(UsageError, match="no PRIVATEKEYBLOB: private_exponent at byte 244 is 63 bytes"):
        KeyPair.from_bytes(data[:-1])
    with pytest.raises(UsageError, match="make no RSA key"):
        KeyPair.from_bytes(data[:90] + bytes(10) + data[100:])


def test_no_damaged_file_of_a_key_that_was_good_once_gives_another_key() -> None:
    """Nobody checks whether the numbers in a file are prime; signatures made with a wrong number reveal the others."""
    own = own_key(512)
    body = base64.b64decode(b"".join(own.pem().splitlines()[1:-1]))
    for at in range(len(body)):
        hurt = body[:at] + bytes([body[at] ^ 1 << at % 8]) + body[at + 1 :]
        pem = b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(hurt) + b"-----END PRIVATE KEY-----\n"
        with suppress(UsageError):
            assert KeyPair.from_bytes(pem, is_known=True).pem() == own.pem()
    assert KeyPair.from_bytes(own.pem(), is_known=True).pem() == own.pem()


def test_a_private_key_is_known_by_its_first_bytes() -> None:
    own = own_key(512)
    assert begins_private_key(own.blob())
    assert not begins_private_key(public_key_blob.encode(own.public.blob()))
    assert not begins_private_key(own.blob()[:11])


def secrets_of(own: KeyPair) -> set[str]:
    numbers = own.rsa.private_numbers()
    return set().union(*map(forms_of, (numbers.d, numbers.p, numbers.q)))


def forms_of(secret: int) -> set[str]:
    """Return the forms in which a secret number might leak."""
    octets = secret.to_bytes((secret.bit_length() + 7) // 8, "big")
    inner = base64.b64encode(octets[8:])[12:40].decode()
    return {str(secret), f"{secret:x}", octets.hex(), octets[::-1].hex(), repr(octets)[2:-1], inner}


def test_what_is_printed_of_a_key_pair_has_no_secret() -> None:
    own = own_key(512)
    blob = private_key_blob.decode(own.blob())
    trace = traceback.format_exception(RuntimeError(own, [own.public], blob))
    shown = [repr(own), str(own), f"{[own]}", repr(blob), *trace]
    assert not [form for form in secrets_of(own) for text in shown if form in text]
    assert own.public.fingerprint in repr(own)
    with pytest.raises(TypeError):
        pickle.dumps(own)
