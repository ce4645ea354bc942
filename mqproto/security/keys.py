"""Key pairs, and other parties' public keys, as PEM and as blobs of the CryptoAPI.

Keys are values: the shell decides where to store them, and their repr shows no secret. As in the CryptoAPI, there are
separate key pairs for signatures and for key exchange.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.x509 import InvalidVersion, load_der_x509_certificate, load_pem_x509_certificate

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.wire import PublicKeyBlob, public_key_blob
from mqproto.wire.layouts.keyblobs import (
    MAXIMUM_BITS,
    MINIMUM_BITS,
    RSA_KEY_EXCHANGE,
    PrivateKeyBlob,
    begins_key_blob,
    begins_private_key,
    private_key_blob,
)

EXPONENT: Final = 65_537
PYCA_MINIMUM_BITS: Final = 1_024
"""The length, in bits, of the shortest keys that pyca makes. It also reads and uses shorter ones."""


class PublicKey:
    """A key that encrypts for its owner, or verifies the owner's signatures.

    Keys with the same numbers are equal.
    """

    def __init__(self, key: rsa.RSAPublicKey) -> None:
        self.rsa = key
        self.bits = -(-key.key_size // 8) * 8
        if not MINIMUM_BITS <= self.bits <= MAXIMUM_BITS:
            raise UsageError(
                f"an RSA key of {key.key_size} bits: bring one of {MINIMUM_BITS} to {MAXIMUM_BITS:,} bits"
            )
        if key.public_numbers().e >= 2**32:
            raise UsageError("its public exponent does not fit 32 bits: bring a key with 65537")

    @classmethod
    def from_blob(cls, blob: PublicKeyBlob) -> PublicKey:
        """Return the key in a PUBLICKEYBLOB.  [MS-MQQB] 2.4.1

        Raises:
            UsageError: the blob's numbers do not form a key.
        """
        modulus = int.from_bytes(blob.modulus, "little")
        if not modulus & 1:
            raise UsageError("the modulus is even: bring the key anew")
        if not modulus >> len(blob.modulus) * 8 - 8:
            raise UsageError("the most significant byte of the modulus is 0: bring the key anew")
        try:
            return cls(rsa.RSAPublicNumbers(blob.pub_exp, modulus).public_key())
        except ValueError:
            raise UsageError("modulus and exponent make no RSA key: bring the key anew") from None

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKey:
        """Return the key in a PUBLICKEYBLOB, or in the PEM or DER form of a public key or a certificate.

        Raises:
            UsageError: there is no such key.
        """
        if begins_key_blob(data):
            try:
                return cls.from_blob(public_key_blob.decode(data))
            except WireFormatError as error:
                raise UsageError(f"no PUBLICKEYBLOB: {error}") from None
        for load in _LOADS:
            try:
                found = load(data)
            except (ValueError, UnsupportedAlgorithm, TypeError, InvalidVersion):
                continue
            if isinstance(found, rsa.RSAPublicKey):
                return cls(found)
        raise UsageError(
            "no public key of RSA: bring a PUBLICKEYBLOB, or PEM of a public key or a certificate"
        )

    def encrypted(self, octets: bytes) -> bytes:
        """Encrypt bytes for the key's owner, by RSAES-PKCS1-v1_5, with the most significant byte first."""
        return self.rsa.encrypt(octets, PKCS1v15())

    def blob(self, algorithm: int = RSA_KEY_EXCHANGE) -> PublicKeyBlob:
        """Return the key in the CryptoAPI's form."""
        numbers = self.rsa.public_numbers()
        modulus = numbers.n.to_bytes(self.bits // 8, "little")
        return PublicKeyBlob(key_algorithm=algorithm, pub_exp=numbers.e, modulus=modulus)

    def pem(self) -> bytes:
        """Return the key in OpenSSL's form, SubjectPublicKeyInfo."""
        return self.rsa.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def fingerprint(self) -> str:
        """The first half of the SHA-256 hash of its PUBLICKEYBLOB for key exchange, to compare by telephone."""
        digest = hashlib.sha256(public_key_blob.encode(self.blob())).digest()[:16]
        return ":".join(f"{byte:02x}" for byte in digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.rsa.public_numbers() == other.rsa.public_numbers()

    def __hash__(self) -> int:
        return hash(self.rsa.public_numbers())

    def __repr__(self) -> str:
        return f"<public key of {self.bits} bits, {self.fingerprint}>"


class KeyPair:
    """A private key and its public half. Its repr shows only the public half."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self.rsa = key
        self.public = PublicKey(key.public_key())
        self.bits = self.public.bits
        secret = key.private_numbers().d.to_bytes(self.bits // 8, "big")
        self._seed = hashlib.sha256(secret).digest()

    def substitute(self, encrypted: bytes) -> bytes:
        """Return 32 bytes that only the key's owner can predict. The same input always gives the same bytes."""
        return hmac.digest(self._seed, encrypted, "sha256")

    @classmethod
    def from_bytes(cls, data: bytes, *, is_known: bool = False) -> KeyPair:
        """Return the private key in a PEM file, or in a PRIVATEKEYBLOB of the CryptoAPI.

        Args:
            is_known: whether the key was valid when it was written. If so, only check that its numbers are consistent,
                which detects a damaged file. Checking that they are prime would take 30 ms for 2,048 bits.

        Raises:
            UsageError: there is no usable key.
        """
        if begins_private_key(data):
            return cls._from_blob(data)
        try:
            found = serialization.load_pem_private_key(
                data, password=None, unsafe_skip_rsa_key_validation=is_known
            )
        except TypeError:
            raise UsageError(
                "the key is encrypted: decrypt it first, openssl pkey -in FILE -out KEY"
            ) from None
        except (ValueError, UnsupportedAlgorithm):
            raise UsageError(
                "no private key: bring PEM with -----BEGIN PRIVATE KEY-----, or a PRIVATEKEYBLOB"
            ) from None
        if not isinstance(found, rsa.RSAPrivateKey):
            raise UsageError("the private key is not of RSA, which is all that MSMQ knows: bring one that is")
        if is_known and not _fit(found.private_numbers()):
            raise UsageError(
                "the numbers of the key do not fit each other, so the file is damaged: import it again"
            )
        return cls(found)

    @classmethod
    def from_primes(cls, p: int, q: int) -> KeyPair:
        """Return the key pair made from two primes. pyca does not make short keys, but can use them."""
        private = pow(EXPONENT, -1, (p - 1) * (q - 1))
        public = rsa.RSAPublicNumbers(EXPONENT, p * q)
        parts = (rsa.rsa_crt_dmp1(private, p), rsa.rsa_crt_dmq1(private, q), rsa.rsa_crt_iqmp(p, q))
        return cls(rsa.RSAPrivateNumbers(p, q, private, *parts, public).private_key())

    @classmethod
    def _from_blob(cls, data: bytes) -> KeyPair:
        try:
            blob = private_key_blob.decode(data)
            number = {name: int.from_bytes(getattr(blob, name), "little") for name in _PRIVATE_NUMBERS}
            public = rsa.RSAPublicNumbers(blob.pub_exp, int.from_bytes(blob.modulus, "little"))
            private = rsa.RSAPrivateNumbers(
                p=number["prime1"],
                q=number["prime2"],
                d=number["private_exponent"],
                dmp1=number["exponent1"],
                dmq1=number["exponent2"],
                iqmp=number["coefficient"],
                public_numbers=public,
            )
            return cls(private.private_key())
        except WireFormatError as error:
            raise UsageError(f"no PRIVATEKEYBLOB: {error}") from None
        except ValueError:
            raise UsageError("the numbers of the PRIVATEKEYBLOB make no RSA key: export it anew") from None

    def blob(self, algorithm: int = RSA_KEY_EXCHANGE) -> bytes:
        """Return the private key in the form in which the CryptoAPI exports it, unencrypted; see `pem`.

        Raises:
            UsageError: the key's length is not a multiple of 16 bits, so there is no blob for it.
        """
        if self.bits % 16:
            raise UsageError(f"a PRIVATEKEYBLOB has no room for a key of {self.bits} bits: take PEM")
        numbers = self.rsa.private_numbers()
        half, whole = self.bits // 16, self.bits // 8
        return private_key_blob.encode(
            PrivateKeyBlob(
                key_algorithm=algorithm,
                pub_exp=numbers.public_numbers.e,
                modulus=numbers.public_numbers.n.to_bytes(whole, "little"),
                prime1=numbers.p.to_bytes(half, "little"),
                prime2=numbers.q.to_bytes(half, "little"),
                exponent1=numbers.dmp1.to_bytes(half, "little"),
                exponent2=numbers.dmq1.to_bytes(half, "little"),
                coefficient=numbers.iqmp.to_bytes(half, "little"),
                private_exponent=numbers.d.to_bytes(whole, "little"),
            )
        )

    def pem(self) -> bytes:
        """Return the private key, unencrypted, for a file that only its owner can read."""
        return self.rsa.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def __repr__(self) -> str:
        return f"<key pair of {self.bits} bits, {self.public.fingerprint}>"


_PRIVATE_NUMBERS: Final = (
    "prime1",
    "prime2",
    "exponent1",
    "exponent2",
    "coefficient",
    "private_exponent",
)
_LOADS: Final[tuple[Any, ...]] = (
    serialization.load_pem_public_key,
    serialization.load_der_public_key,
    lambda data: load_pem_x509_certificate(data).public_key(),
    lambda data: load_der_x509_certificate(data).public_key(),
)


def new_key_pair(bits: int) -> KeyPair:
    """Return a new key pair.

    Raises:
        UsageError: keys of this length cannot be used.
    """
    if not MINIMUM_BITS <= bits <= MAXIMUM_BITS or bits % 8:
        raise UsageError(f"a key of {bits} bits: ask for {MINIMUM_BITS} to {MAXIMUM_BITS:,}, a multiple of 8")
    if bits >= PYCA_MINIMUM_BITS:
        return KeyPair(rsa.generate_private_key(EXPONENT, bits))
    return _short_key(bits)


def _fit(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Return whether the numbers of a private key are consistent.

    Signing with inconsistent numbers would reveal the secret.
    """
    p, q, d, public = numbers.p, numbers.q, numbers.d, numbers.public_numbers
    return (
        min(p, q) > 1
        and p * q == public.n
        and numbers.dmp1 == d % (p - 1)
        and numbers.dmq1 == d % (q - 1)
        and numbers.iqmp * q % p == 1
        and d * public.e % (p - 1) == 1
        and d * public.e % (q - 1) == 1
    )


def _short_key(bits: int) -> KeyPair:
    """Return a key of the length that the base provider requires, which anybody can break.

    pyca can use such keys but does not make them. pycryptodome does not make them either, but it makes the primes.
    """
    from Crypto.Math.Primality import generate_probable_prime

    while True:
        p, q = (int(generate_probable_prime(exact_bits=bits // 2)) for _ in range(2))
        if p != q and (p * q).bit_length() == bits and (p - 1) * (q - 1) % EXPONENT:
            return KeyPair.from_primes(p, q)
