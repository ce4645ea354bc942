"""A queue manager's interface to its keys, and what it does without keys.

[MS-MQQB] 3.1.5.8.3, 3.1.7.1.4, 3.1.7.1.5

The core has no cryptography. A QueueManager may be given a guard that has it:
mqproto/security/guard.py. The guard opens and judges messages with a SecurityHeader, signs
applications' messages, and encrypts messages as they leave. Without a guard, no messages are
encrypted or signed here, and others' protected messages are refused with the appropriate class.

A message that will be encrypted is stored in clear, because the receiver's key may change while the message waits,
perhaps for a year. Its SecurityHeader has EB set and no EncryptionKey. A message in this form is never on the wire (see
`is_unsealed`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.turn.effects import Note
from mqproto.wire import Guid, MessageClass, ProviderInfo, SecurityHeader, UserMessage
from mqproto.wire.layouts.security import NO_SENDER, provider_info

CACHE_CLEANUPS: Final = frozenset(
    {
        Timer.RECEIVE_SYMMETRIC_KEY_CACHE_CLEANUP,
        Timer.SEND_SYMMETRIC_KEY_CACHE_CLEANUP,
        Timer.SEND_BASE_SYMMETRIC_KEY_CACHE_CLEANUP,
        Timer.USER_CERT_CACHE_CLEANUP,
    }
)
"""The timers that clean up a guard's caches."""
CIPHERS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "AES-256": (5, 0x6610),
        "AES-192": (5, 0x660F),
        "AES-128": (5, 0x660E),
        "RC2-128": (3, 0x6602),
        "RC4-128": (3, 0x6801),
        "RC2-40": (1, 0x6602),
        "RC4-40": (1, 0x6801),
    }
)
"""The PrivacyLevel and EncryptionAlgorithm of each cipher.

The names are those that `mqproto decode` and the tables use. The variants of RC2, and those of RC4, differ in the
number of bits in their keys.  [MS-MQMQ] 2.2.19.3
"""
STRONG: Final = 5
"""The PrivacyLevel of ciphers that nobody can break."""
WEAK_CIPHERS: Final = tuple(word for word, (level, _) in CIPHERS.items() if level < STRONG)
"""Ciphers that anybody can break.

A queue accepts such a cipher, and a message is encrypted with it, only if it is named explicitly.
"""
PRIVACY_LEVELS: Final = ("none", "optional", "body")
"""Queue.PrivacyLevel: whether a queue takes only messages in clear, all messages, or only encrypted ones.

[MS-MQDMPR] 3.1.1.2
"""


SIGNED_20, SIGNED_30 = 3, 5
"""The values of AS, in SecurityHeader.Flags, for verified signatures of the two kinds that we make.

The signature is one of MSMQ 3.0 if the message lists its destinations, and otherwise one of MSMQ 2.0. [MS-MQQB]
3.1.5.8.3, 3.1.7.1.4
"""


class ProtectionError(MqprotoError):
    """A message is refused because of its encryption or signature, or because one of them is missing. [MS-MQMQ]
    2.2.18.1.6

    Args:
        message_class: the class that is reported to its sender.
        reason: one line for an operator, without keys or decrypted text.
    """

    def __init__(self, message_class: MessageClass, reason: str) -> None:
        super().__init__(message_class, reason)
        self.message_class = message_class
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.message_class.name}: {self.reason}"


class Signer(NamedTuple):
    """A signer of messages: its certificate, and the sender that its messages name.

    sender_id_type: NO_SENDER, SID or QUEUE_MANAGER.
    """

    certificate: bytes
    sender_id: bytes = b""
    sender_id_type: int = NO_SENDER


class Guard(Protocol):
    """One queue manager's keys, and what it knows about others' keys."""

    def attach(self, timers: Timers, notes: list[Note]) -> None:
        """Serve this queue manager from now on, and forget what was cached for any other."""

    def opened(self, message: UserMessage, weak: Collection[str], now: Moment) -> UserMessage:
        """Take a message that has a SecurityHeader, and return it in the form in which it joins its queue.

        That form is in clear, with verified AU and AS.

        weak: the members of WEAK_CIPHERS that the queue takes.

        Raises:
            ProtectionError: the message is refused.
        """

    def check(self, message: UserMessage, manager: Guid) -> None:
        """Check that a message can be encrypted in the way it asks for, for this queue manager.

        Raises:
            UsageError: it cannot be encrypted.
        """

    def signer(self, name: str) -> Signer:
        """Return the signer with this name.

        Raises:
            UsageError: there is no such key.
        """

    def name_of(self, certificate: bytes) -> str:
        """Return the name of the key that belongs to this certificate; empty if there is none."""

    def signed(self, message: UserMessage) -> UserMessage:
        """Sign a message that has a certificate but no signature yet, and return the result.  3.1.7.1.4

        Raises:
            UsageError: the key is gone, or is too short for the hash.
        """

    def sealed(self, message: UserMessage, now: Moment) -> UserMessage:
        """Return a message of our own in encrypted form, as it leaves.  3.1.7.1.5

        Raises:
            UsageError: the message can no longer be encrypted.
        """

    def expired(self, timer: Timer, now: Moment) -> None:
        """Handle the expiry of one of CACHE_CLEANUPS."""


class NoKeys:
    """The guard of a queue manager without cryptography libraries."""

    def attach(self, timers: Timers, notes: list[Note]) -> None:
        """Do nothing, because there are no keys to remember."""

    def opened(self, message: UserMessage, weak: Collection[str], now: Moment) -> UserMessage:
        what = "encrypted" if is_encrypted(message) else "signed" if is_signed(message) else ""
        if what:
            raise ProtectionError(MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER, f"it is {what}: {MISSING}")
        return with_proof(message, 0)

    def check(self, message: UserMessage, manager: Guid) -> None:
        raise UsageError(f"it is to be encrypted: {MISSING}")

    def signer(self, name: str) -> Signer:
        raise UsageError(f"it is to be signed: {MISSING}")

    def name_of(self, certificate: bytes) -> str:
        return ""

    def signed(self, message: UserMessage) -> UserMessage:
        raise UsageError(f"it is to be signed: {MISSING}")

    def sealed(self, message: UserMessage, now: Moment) -> UserMessage:
        raise UsageError(f"it is to be encrypted: {MISSING}")

    def expired(self, timer: Timer, now: Moment) -> None:
        raise AssertionError(f"{timer} was never started")


MISSING: Final = "this node has no cryptography: pip install 'mqproto[security]', and start it anew"
NO_KEYS: Final = NoKeys()


def cipher_named(typed: str) -> str:
    """Return the cipher name that matches a text, ignoring case; if there is none, return the text unchanged."""
    return _NAMES.get(typed.casefold(), typed)


_NAMES: Final = {name.casefold(): name for name in CIPHERS}


def is_encrypted(message: UserMessage) -> bool:
    """Return whether EB is set: a message's body cannot be read, or must not be sent in clear."""
    return message.security is not None and message.security.body_encrypted


def is_signed(message: UserMessage) -> bool:
    """Return whether a message has a signature, whether or not it is valid."""
    listed = message.multi_queue_format
    beside = listed is not None and bool(listed.signature.signature)
    return message.security is not None and (bool(message.security.signature) or beside)


def is_unsealed(message: UserMessage, identity: Guid) -> bool:
    """Return whether a message is ours and is to be encrypted, but is not encrypted yet."""
    security = message.security
    return (
        security is not None
        and security.body_encrypted
        and not security.encryption_key
        and message.user.source_queue_manager == identity
    )


def to_be_sealed(message: UserMessage, privacy_level: int, algorithm: int) -> UserMessage:
    """Return the message, marked for encryption when it leaves.

    privacy_level: the minimum strength.
    algorithm: the EncryptionAlgorithm to use; 0 for the preferred one.
    """
    security = replace(
        message.security or SecurityHeader(), provider_info=provider_info.encode(ProviderInfo())
    )
    security.body_encrypted = security.has_security_data = True
    properties = replace(message.properties, privacy_level=privacy_level, encryption_algorithm=algorithm)
    return _with_security(replace(message, properties=properties), security)


def to_be_signed(message: UserMessage, signer: Signer, hash_algorithm: int) -> UserMessage:
    """Return the message, marked for signing. If it already names a sender, that sender stays."""
    security = replace(message.security or SecurityHeader(), sender_cert=signer.certificate)
    security.has_security_data = True
    if not security.sender_id:
        security.sender_id, security.sender_id_type = signer.sender_id, signer.sender_id_type
    properties = replace(message.properties, hash_algorithm=hash_algorithm)
    return _with_security(replace(message, properties=properties), security)


def in_clear(message: UserMessage) -> UserMessage:
    """Return a message without its mark for encryption, because it stays here in clear, to be read."""
    security = message.security
    assert security is not None, "what is to be encrypted has a SecurityHeader"
    plain = replace(security)
    plain.body_encrypted = False
    return replace(message, security=plain)


def _with_security(message: UserMessage, security: SecurityHeader) -> UserMessage:
    user = replace(message.user)
    user.has_security = True
    return replace(message, user=user, security=security)


def with_proof(message: UserMessage, kind: int) -> UserMessage:
    """Return a message in the form that it has in a queue: AU and AS are ours, not the sender's.

    kind: the kind of signature that was verified, as in AS; 0 for none.
    """
    security = message.security
    assert security is not None, "only what has a SecurityHeader is looked at"
    proved = replace(security)
    proved.authenticated, proved.signature_type = bool(kind), kind
    return replace(message, security=proved)
