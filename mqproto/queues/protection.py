"""A queue's requirements for incoming messages: senders, signatures and encryption.

[MS-MQDMPR] 3.1.1.2, [MS-MQQB] 3.1.5.8.3
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.turn.guard import PRIVACY_LEVELS, WEAK_CIPHERS, ProtectionError, cipher_named
from mqproto.wire import MessageClass, UserMessage, sid_from_text
from mqproto.wire.layouts.security import QUEUE_MANAGER

EVERYONE: Final = "S-1-1-0"
"""The SID that stands for a sender that is a queue manager.  3.1.5.8.3"""
ANONYMOUS: Final = "S-1-5-7"
"""The SID that stands for the sender of a message that names no sender."""
OPTIONAL: Final = "optional"


@dataclass(frozen=True, slots=True)
class Protection:
    """A queue's Authentication, PrivacyLevel and Security, as far as they matter for sending to it.

    authenticated: whether the queue takes only signed messages.
    privacy: one of PRIVACY_LEVELS.
    weak_ciphers: the members of WEAK_CIPHERS that it also takes, in upper or lower case.
    senders: the allowed senders, if not all are allowed: SIDs, or the SHA-256 hashes of certificates as 64 hexadecimal
        digits. The SID in a message is a mere claim unless `authenticated` is set. EVERYONE stands for all named
        senders, ANONYMOUS for messages that do not name a sender.

    Raises:
        UsageError: one of the words is not valid.
    """

    authenticated: bool = False
    privacy: str = OPTIONAL
    weak_ciphers: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.privacy not in PRIVACY_LEVELS:
            raise UsageError(f"privacy = {self.privacy}: must be {', '.join(PRIVACY_LEVELS)}")
        object.__setattr__(self, "weak_ciphers", tuple(map(cipher_named, self.weak_ciphers)))
        for name in self.weak_ciphers:
            if name not in WEAK_CIPHERS:
                raise UsageError(f"weak_ciphers: {name} is none: name {', '.join(WEAK_CIPHERS)}")
        for sender in self.senders:
            if not re.fullmatch(r"[0-9a-f]{64}", sender):
                sid_from_text(sender)

    def words(self) -> list[str]:
        """Return the queue's requirements in words."""
        words = ["signed messages alone"] if self.authenticated else []
        if self.privacy != OPTIONAL:
            words.append("encrypted messages alone" if self.privacy == "body" else "no encrypted messages")
        if self.weak_ciphers:
            words.append(f"takes {', '.join(self.weak_ciphers)}")
        if self.senders:
            words.append(f"{len(self.senders):,} may send")
        return words

    def check(self, message: UserMessage, *, encrypted: bool) -> None:
        """Check that a message may join the queue.

        message: the message as it joins the queue, so that AU shows whether its signature was verified.
        encrypted: whether its body was encrypted when it arrived.

        Raises:
            ProtectionError: the message may not join.
        """
        if self == OPEN:
            return
        security = message.security
        signed = security is not None and security.authenticated
        if self.authenticated and not signed:
            raise ProtectionError(
                MessageClass.NACK_BAD_SIGNATURE, "it is not signed, and the queue takes signed messages alone"
            )
        if self.privacy != OPTIONAL and encrypted != (self.privacy == "body"):
            what = "encrypted messages alone" if self.privacy == "body" else "no encrypted messages"
            raise ProtectionError(MessageClass.NACK_BAD_ENCRYPTION, f"the queue takes {what}")
        if self.senders and not self._may_send(message, signed=signed):
            raise ProtectionError(
                MessageClass.NACK_ACCESS_DENIED,
                f"{sender_of(message)} is none of those who may send to the queue",
            )

    def _may_send(self, message: UserMessage, *, signed: bool) -> bool:
        sender = sender_of(message)
        if sender in self.senders or (EVERYONE in self.senders and sender != ANONYMOUS):
            return True
        if not signed:
            return False
        assert message.security is not None, "what is signed has a SecurityHeader"
        return fingerprint(message.security.sender_cert) in self.senders


OPEN: Final = Protection()
"""The protection of a queue that takes all messages except those with weak ciphers."""


def sender_of(message: UserMessage) -> str:
    """Return the SID that counts as the message's sender.  3.1.5.8.3"""
    security = message.security
    if security is None:
        return ANONYMOUS
    return EVERYONE if security.sender_id_type == QUEUE_MANAGER else security.sid or ANONYMOUS


def fingerprint(certificate: bytes) -> str:
    """Return the name by which `senders` refers to a certificate."""
    return hashlib.sha256(certificate).hexdigest()
