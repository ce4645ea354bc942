"""Opens and verifies captured messages for an analyst who has keys.

It follows the rules of 3.1.5.8.3, as a queue manager does, but does not answer the senders. So it may say which key
opened a message, or that none did. A queue manager must keep this secret (exchange.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqproto.security.algorithms import Provider, SessionKey, provider_by_privacy_level
from mqproto.security.certificates import Certificate, certificate_in
from mqproto.security.ciphers import decrypt
from mqproto.security.exchange import session_keys_in
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.messages import in_clear, session_blob
from mqproto.security.refusals import ProtectionError, bad_encryption, unsupported
from mqproto.security.signatures import hash_function
from mqproto.security.signing import SignatureKind, verified_by
from mqproto.wire import MessageClass, UserMessage

REMEMBERED: Final = 1_000
"""The maximum number of opened session keys to remember: a sender uses one for many messages."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A message as opened by one of the keys.

    message: the message with its body in clear.
    is_padded: whether the cipher uses padding. If it does, the padding was correct. RC4 uses none, so any key opens its
        bodies.
    """

    message: UserMessage = field(repr=False)
    pair: KeyPair
    is_padded: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of checking a signature.

    kind: the kind of the signature; None if the signature is wrong.
    certificate: the message's certificate, with which the signature was checked; None if the message has none.
    key: the key that verified the signature; None if no key did.
    """

    kind: SignatureKind | None
    certificate: Certificate | None
    key: PublicKey | None


class Examiner:
    """Opens and verifies messages with the given keys.

    Args:
        pairs: private keys, the newest first.
        keys: public keys of signers, in addition to the public halves of the pairs.
    """

    def __init__(self, pairs: Sequence[KeyPair], keys: Sequence[PublicKey] = ()) -> None:
        self._pairs = pairs
        self._keys = [*dict.fromkeys((*keys, *(pair.public for pair in pairs)))]
        self._opened: dict[tuple[int, int, bytes], list[tuple[KeyPair, SessionKey]]] = {}

    def openings(self, message: UserMessage) -> list[Opening]:
        """Return the message as opened by each key that fits, the newest key first. There is at least one.

        Raises:
            ProtectionError: no key fits.
        """
        security, properties = message.security, message.properties
        assert security is not None, "nothing is encrypted without a SecurityHeader"
        provider = provider_by_privacy_level(properties.privacy_level)
        algorithm = provider.algorithm(properties.encryption_algorithm)
        keys = self._session_keys(provider, algorithm.number, security.encryption_key)
        if not keys:
            raise bad_encryption("no key at hand opens its session key")
        found = [
            Opening(in_clear(message, body), pair, algorithm.block_bytes > 1)
            for pair, body in _bodies(keys, properties.message_body)
        ]
        if not found:
            raise bad_encryption("its body is not what a key at hand opens: the padding is wrong")
        return found

    def proof(self, message: UserMessage) -> Proof:
        """Check the signature of a message in clear.

        The message's own certificate is used; if it has none, all given keys are tried.

        Raises:
            ProtectionError: the signature cannot be checked.
        """
        hash_function(message.properties.hash_algorithm)
        if message.security is None:
            raise unsupported("it has no SecurityHeader, and so no certificate")
        carried = message.security.sender_cert
        certificate = certificate_in(carried) if carried else None
        keys = self._keys if certificate is None else [certificate.key]
        if not keys:
            raise unsupported("it carries no certificate, and no key is at hand")
        try:
            kind, key = verified_by(message, keys)
        except ProtectionError as refusal:
            if refusal.message_class is MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER:
                raise
            if certificate is None:
                raise unsupported("it carries no certificate, and is not by a key at hand") from None
            return Proof(None, certificate, None)
        return Proof(kind, certificate, key)

    def _session_keys(
        self, provider: Provider, algorithm: int, encrypted: bytes
    ) -> list[tuple[KeyPair, SessionKey]]:
        name = provider.privacy_level, algorithm, encrypted
        if name not in self._opened:
            blob = session_blob(encrypted, algorithm)
            bits = 8 * len(blob.encrypted_key)
            if not any(pair.bits == bits for pair in self._pairs):
                raise bad_encryption(f"it is for a key of {bits:,} bits, and none is at hand")
            if len(self._opened) >= REMEMBERED:
                self._opened.clear()
            self._opened[name] = session_keys_in(blob, self._pairs, provider)
        return self._opened[name]


def _bodies(keys: Sequence[tuple[KeyPair, SessionKey]], body: bytes) -> Iterator[tuple[KeyPair, bytes]]:
    for pair, key in keys:
        try:
            yield pair, decrypt(key, body)
        except ProtectionError as refusal:
            if refusal.message_class is MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER:
                raise
