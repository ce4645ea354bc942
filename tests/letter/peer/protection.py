"""How messages are encrypted, opened, signed and verified. [MS-MQQB] 3.1.5.8.3, 3.1.7.1.4, 3.1.7.1.5, [MS-MQMQ] 2.5

A peer signs and encrypts a message as soon as it is submitted; this looks the same on the wire as if it were done
later. Session keys are kept as long as the peer exists, because a test ends before they expire.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.x509 import load_der_x509_certificate

from .codec import Codec
from .cryptoapi import (
    KEY_BITS,
    PROVIDERS,
    Random,
    UndecipherableError,
    cipher,
    decrypted,
    is_signature,
    pack_session_key,
    padded,
    read_public_key,
    read_session_key,
    signature,
)
from .packets import (
    AI,
    AU,
    DE,
    EB,
    RC4,
    SIGNED_10,
    SIGNED_20,
    SIGNED_30,
    Class,
    Security,
    UserMessage,
)
from .reader import padding, wide
from .switches import Switches


class RefusedError(Exception):
    """A message is rejected with this class, for this reason."""

    def __init__(self, message_class: int, reason: str) -> None:
        super().__init__(reason)
        self.message_class = message_class


@dataclass
class Keys:
    """The keys that a peer has, and those that it would get from a directory."""

    own: dict[int, RSAPrivateKey] = field(default_factory=dict)
    """Keys for key exchange, keyed by PrivacyLevel."""
    others: dict[UUID, dict[int, bytes]] = field(default_factory=dict)
    """PublicEncryptionKeyList: PUBLICKEYBLOBs, keyed by queue manager and PrivacyLevel."""
    signer: RSAPrivateKey | None = None
    certificate: bytes = b""
    sender: Security = field(default_factory=lambda: Security(flags=0))
    """The sender that is named in signed messages."""
    users: dict[bytes, set[bytes]] = field(default_factory=dict)
    """The certificates of each user, keyed by SecurityID."""


class Protection:
    """Protects messages, and checks their protection, with a peer's keys."""

    def __init__(self, codec: Codec, keys: Keys, switches: Switches, random: Random = os.urandom) -> None:
        self.codec, self.keys, self.switches, self.random = codec, keys, switches, random
        self.sending: dict[tuple[UUID, int, int], tuple[bytes, bytes]] = {}
        """SendSymmetricKeyCache: keys, each with its SIMPLEBLOB."""
        self.received: dict[tuple[UUID, int, int, bytes], bytes] = {}
        """ReceiveSymmetricKeyCache."""
        self.streams: dict[tuple[str, bytes], Any] = {}
        """For each direction and key, the RC4 cipher in use, with its current position in the key stream."""

    # -- what leaves ----------------------------------------------------------------------------------------------

    def protect(
        self, message: UserMessage, seal: tuple[int, int] | None, sign: tuple[int, int] | None
    ) -> None:
        """Sign a message, then encrypt it.  [MS-MQQB] 3.1.7.1

        seal: PrivacyLevel and EncryptionAlgorithm.
        sign: the kind of signature, and HashAlgorithm.
        """
        message.security = replace(message.security) if message.security else None
        if seal and self.switches.signs_ciphertext:
            self._seal(message, *seal)
        if sign:
            self._sign(message, *sign)
        if seal and not self.switches.signs_ciphertext:
            self._seal(message, *seal)

    def _sign(self, message: UserMessage, kind: int, algorithm: int) -> None:
        """[MS-MQQB] 3.1.7.1.4"""
        assert self.keys.signer, "who signs has a key"
        it = message.security = message.security or Security(self.keys.sender.sender, self.keys.sender.flags)
        it.flags |= AI | DE
        it.certificate, message.hash_algorithm = self.keys.certificate, algorithm
        if self.switches.sig30_in_security_header or message.destinations:
            kind = SIGNED_30
        made = signature(self.keys.signer, algorithm, self.hashed(message, kind), self.switches)
        if message.destinations:
            message.list_signature = made
        else:
            it.signature = made
        self._name_provider(it, max(PROVIDERS))

    def _seal(self, message: UserMessage, level: int, algorithm: int) -> None:
        """[MS-MQQB] 3.1.7.1.5"""
        known = self.keys.others.get(message.address, {})
        if level not in known:
            raise RefusedError(Class.NACK_BAD_ENCRYPTION, f"no public key of {message.address} is known")
        name = message.address, level, algorithm
        if name not in self.sending:
            key = self.random(KEY_BITS[level, algorithm] // 8)
            receiver = read_public_key(known[level])
            self.sending[name] = key, pack_session_key(key, algorithm, receiver, self.switches, self.random)
        key, blob = self.sending[name]
        message.body = self._cipher("to", key, algorithm).encrypt(padded(message.body, algorithm))
        message.allocated = len(message.body)
        message.privacy, message.encryption_algorithm = level, algorithm
        it = message.security = message.security or Security(flags=0)
        it.key, it.flags = blob, it.flags | EB | AI | DE
        self._name_provider(it, level)

    def _name_provider(self, it: Security, level: int) -> None:
        """Name the provider of UseCSP in SecurityHeader.ProviderName, or let PrivacyLevel imply it. [MS-MQMQ]
        2.2.20.6
        """
        if self.switches.provider_info_always:
            kind, name = PROVIDERS[level]
            it.provider, it.flags = struct.pack("<I", kind) + wide(name), it.flags & ~DE

    def _cipher(self, way: str, key: bytes, algorithm: int) -> Any:
        if algorithm == RC4 and self.switches.rc4_goes_on:
            return self.streams.setdefault((way, key), cipher(key, algorithm, self.switches))
        return cipher(key, algorithm, self.switches)

    # -- what comes -----------------------------------------------------------------------------------------------

    def judge(self, message: UserMessage) -> None:
        """Decrypt a message, then authenticate it, because the signature covers the plaintext.

        3.1.5.8.3 states the opposite order, which is followed if `signs_ciphertext` is on.
        """
        it = message.security
        if it is None:
            return
        it.flags &= ~(AU | 0xF << 8)
        if self.switches.signs_ciphertext:
            self._authenticate(message, it)
            self._open(message, it)
        else:
            self._open(message, it)
            self._authenticate(message, it)

    def _open(self, message: UserMessage, it: Security) -> None:
        if not it.encrypted:
            return
        level, algorithm = message.privacy, message.encryption_algorithm
        if (level, algorithm) not in KEY_BITS:
            raise RefusedError(Class.NACK_BAD_ENCRYPTION, f"{algorithm:#x} with PrivacyLevel {level}")
        if level not in self.keys.own:
            raise RefusedError(Class.NACK_BAD_ENCRYPTION, f"there is no key for PrivacyLevel {level}")
        name = message.source, level, algorithm, it.key
        try:
            if name not in self.received:
                own = self.keys.own[level]
                key = read_session_key(it.key, level, algorithm, own, self.switches, self.random)
                self.received[name] = key
            way = self._cipher("from", self.received[name], algorithm)
            message.body = decrypted(way, message.body, algorithm)
        except UndecipherableError as error:
            raise RefusedError(Class.NACK_BAD_ENCRYPTION, str(error)) from None
        it.flags &= ~EB

    def _authenticate(self, message: UserMessage, it: Security) -> None:
        """Check the signature, and set AS; check the owner of the certificate."""
        made = it.signature or message.list_signature
        if made:
            key = self._key_of(it.certificate)
            kinds = (SIGNED_20, SIGNED_10, SIGNED_30) if it.signature else (SIGNED_30,)
            for kind in kinds:
                data = self.hashed(message, kind)
                if is_signature(key, message.hash_algorithm, data, made, self.switches):
                    it.flags |= AU | kind << 8
                    break
            else:
                raise RefusedError(Class.NACK_BAD_SIGNATURE, "no signature of this message")
        named = it.flags & 15 and (made or self.switches.sid_is_verified)
        if named and it.certificate not in self.keys.users.get(it.sender, ()):
            raise RefusedError(Class.NACK_BAD_SIGNATURE, "a certificate of somebody else")

    @staticmethod
    def _key_of(certificate: bytes) -> RSAPublicKey:
        try:
            key = load_der_x509_certificate(certificate).public_key()
        except ValueError:
            raise RefusedError(Class.NACK_BAD_SIGNATURE, "no certificate") from None
        if not isinstance(key, RSAPublicKey):
            raise RefusedError(Class.NACK_BAD_SIGNATURE, "a certificate of another kind of key")
        return key

    # -- which bytes ----------------------------------------------------------------------------------------------

    def hashed(self, message: UserMessage, kind: int) -> bytes:
        """Return the hash of all signed fields, in the order of [MS-MQMQ] 2.5.1 to 2.5.3."""
        switches, codec = self.switches, self.codec
        names = [data for _, data in codec.names(message)]
        if switches.names_with_padding:
            names = [data + padding(len(data)) for data in names]
        destination, admin, response = names
        label = wide(message.label) if message.label else b""
        if switches.label_without_nul:
            label = label[:-2]
        data = message.correlation + struct.pack("<I", message.tag) + message.body + label + response + admin
        if kind == SIGNED_10:
            return data
        if kind == SIGNED_30:
            data += message.extension
            data += codec.elements(message.destinations, padded=not switches.list_without_padding)
        data += codec.guid(message.source) + struct.pack(
            "<BBBBHI",
            message.recoverable,
            message.priority,
            message.journal << 1 | message.dead_letter,
            message.acknowledge & 15,
            message.message_class,
            message.body_type,
        )
        data += message.connector
        return data + destination if kind == SIGNED_20 else data
