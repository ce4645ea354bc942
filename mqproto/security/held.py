"""Key pairs whose private half never leaves the token that holds it: a card, an HSM, or what stands in for one.

What a token does is two things: it decrypts one block, and it encrypts one block with the private key, which signs.
To ask it is I/O, so the shell brings a `Holder`. Here its answers become a private key of pyca's, and all else goes as
with any key: signatures.py, exchange.py and pyca's certificates see no difference. What is signed goes to the token as
a whole DigestInfo, since tokens differ in the hashes that they know and all know this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NoReturn, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding as paddings
from cryptography.hazmat.primitives.asymmetric import rsa

from mqproto.base.errors import UsageError
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.refusals import KeyAwayError

DIGEST_INFOS: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "md5": bytes.fromhex("3020300c06082a864886f70d020505000410"),
        "sha1": bytes.fromhex("3021300906052b0e03021a05000414"),
        "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
        "sha512": bytes.fromhex("3051300d060960864801650304020305000440"),
    }
)
"""What stands before a hash: which one it is, and how long. RFC 8017 9.2, note 1"""
PADDING_BYTES: Final = 11
"""What RSASSA-PKCS1-v1_5 takes at least beside what it signs. RFC 8017 9.2"""
REMEMBERED: Final = 256
"""Of how many blocks it is known what is in them."""


class Holder(Protocol):
    """Where a private key is."""

    def decrypted(self, block: bytes) -> bytes | None:
        """What RSAES-PKCS1-v1_5 has in a block, its most significant byte first; None if it is not well encrypted.

        Raises:
            KeyAwayError: nobody can say, since the key is out of reach.
        """

    def signed(self, digest_info: bytes) -> bytes:
        """The block that RSASSA-PKCS1-v1_5 makes of a DigestInfo.

        Raises:
            KeyAwayError: the key is out of reach.
        """


class HeldKeyPair(KeyPair):
    """A key pair that a token holds.

    Args:
        seed: bytes that nobody else has, the same ones each time. `substitute` follows from them, as it cannot from a
            private key that nobody can read.
    """

    is_held = True

    def __init__(self, public: PublicKey, holder: Holder, seed: bytes) -> None:
        self.rsa = _HeldKey(public, holder)
        self.public, self.bits = public, public.bits
        self._seed = hashlib.sha256(seed + public.pem()).digest()


class _HeldKey(rsa.RSAPrivateKey):
    """What pyca takes for a private key."""

    def __init__(self, public: PublicKey, holder: Holder) -> None:
        self._public = public
        self._holder = holder
        self._opened: dict[bytes, bytes | None] = {}

    def decrypt(self, ciphertext: bytes, padding: paddings.AsymmetricPadding) -> bytes:
        """As pyca's. What has been opened once the token is not asked for again: it may be gone by then."""
        assert isinstance(padding, paddings.PKCS1v15), "MSMQ knows no other"
        if ciphertext not in self._opened:
            opened = self._holder.decrypted(ciphertext)
            if len(self._opened) >= REMEMBERED:
                del self._opened[next(iter(self._opened))]
            self._opened[ciphertext] = opened
        found = self._opened[ciphertext]
        if found is None:
            raise ValueError("Decryption failed")
        return found

    def sign(self, data: bytes, padding: paddings.AsymmetricPadding, algorithm: object) -> bytes:
        assert isinstance(padding, paddings.PKCS1v15), "MSMQ knows no other"
        assert isinstance(algorithm, hashes.HashAlgorithm), "what is signed is hashed here"
        digest = hashes.Hash(algorithm)
        digest.update(data)
        info = DIGEST_INFOS[algorithm.name] + digest.finalize()
        if len(info) + PADDING_BYTES > self._public.bits // 8:
            raise ValueError("Digest too large for key size")
        signature = self._holder.signed(info)
        try:
            self._public.rsa.verify(signature, data, padding, algorithm)
        except InvalidSignature:
            # What a faulty token writes can tell its key, and what another key signs nobody believes.
            raise KeyAwayError(
                "the token signs wrong, or with another key: see what was changed there"
            ) from None
        return signature

    @property
    def key_size(self) -> int:
        return self._public.rsa.key_size

    def public_key(self) -> rsa.RSAPublicKey:
        return self._public.rsa

    def private_numbers(self) -> NoReturn:
        raise UsageError("the private key is in a token, and does not leave it")

    def private_bytes(
        self,
        encoding: serialization.Encoding,
        format: serialization.PrivateFormat,
        encryption_algorithm: serialization.KeySerializationEncryption,
    ) -> NoReturn:
        self.private_numbers()

    def __copy__(self) -> _HeldKey:
        return self

    def __deepcopy__(self, memo: object) -> _HeldKey:
        return self
