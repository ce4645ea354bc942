"""Makes and verifies signatures of bytes.  [MS-MQQB] 3.1.7.1.4, 3.1.5.8.3

signing.py decides which bytes of a message to sign. The hash is encrypted together with the name of its algorithm, as
in PKCS #1 1.5. A message carries the result with its least significant byte first, as in the CryptoAPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from mqproto.base.errors import UsageError
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.refusals import ProtectionError, bad_signature, unsupported

MD5: Final = 0x8003
SHA_1: Final = 0x8004
SHA_256: Final = 0x800C
SHA_512: Final = 0x800E
HASHES: Final[Mapping[int, hashes.HashAlgorithm]] = MappingProxyType(
    {MD5: hashes.MD5(), SHA_1: hashes.SHA1(), SHA_256: hashes.SHA256(), SHA_512: hashes.SHA512()}
)
"""The hash functions, by their HashAlgorithm in the MessagePropertiesHeader."""
_BROKEN: Final = {0x8001: "MD2", 0x8002: "MD4"}


def sign(algorithm: int, own: KeyPair, data: bytes) -> bytes:
    """Return the signature of these bytes, in the form that the SecurityHeader carries.

    Raises:
        UsageError: the hash cannot be used, or the key is too short for it.
    """
    try:
        chosen = hash_function(algorithm)
    except ProtectionError as refusal:
        raise UsageError(refusal.reason) from None
    try:
        return own.rsa.sign(data, PKCS1v15(), chosen)[::-1]
    except ValueError:
        raise UsageError(f"{chosen.name} does not fit a key of {own.bits} bits: make a longer key") from None
    except UnsupportedAlgorithm:
        raise UsageError(f"the cryptography that is installed does not sign with {chosen.name}") from None


def verify(algorithm: int, signer: PublicKey, data: bytes, signature: bytes) -> None:
    """Check that this key signed these bytes.

    Raises:
        ProtectionError: the signature does not verify, or the hash is not accepted.
    """
    chosen = hash_function(algorithm)
    try:
        signer.rsa.verify(signature[::-1], data, PKCS1v15(), chosen)
    except InvalidSignature:
        raise bad_signature("the signature is not that of this message by this certificate") from None
    except ValueError:
        raise bad_signature(f"{chosen.name} does not fit the key of the certificate") from None
    except UnsupportedAlgorithm:
        raise unsupported(f"the cryptography that is installed has no {chosen.name}") from None


def hash_function(algorithm: int) -> hashes.HashAlgorithm:
    """Return the hash function that a HashAlgorithm stands for.

    Raises:
        ProtectionError: the hash function is unknown or broken.
    """
    found = HASHES.get(algorithm)
    if found is None:
        name = _BROKEN.get(algorithm)
        why = f"{name} is broken: sign with SHA-512" if name else f"{algorithm:#x} is not a HashAlgorithm"
        raise bad_signature(why)
    return found
