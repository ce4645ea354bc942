"""Messages' claims about senders, signatures and encryption, and what keys prove about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

WEAK: Final = {
    "MD2": "whoever signs may have another text ready with the same signature",
    "MD4": "whoever signs may have another text ready with the same signature",
    "MD5": "whoever signs may have another text ready with the same signature",
    "SHA-1": "whoever signs may have another text ready with the same signature",
    "RC2-40": "anybody can try all its keys",
    "RC4-40": "anybody can try all its keys",
    "RC2": "a cipher of 1987, which Windows keeps for what is old",
    "RC4": "two bodies under one key give each other away, and an altered one opens as well",
}
"""Hashes and ciphers that protect little, each with the reason; RC2 also stands for RC2-128."""


def why_weak(algorithm: str) -> str | None:
    """Return why a hash or cipher is weak; None if it is not known to be."""
    return WEAK.get(algorithm) or WEAK.get(algorithm.partition("-")[0])


class Mark(NamedTuple):
    """A few words about security.

    style: `good`, `bad` or `open`, as for an outcome.
    """

    style: str
    text: str


class Secured(NamedTuple):
    """The claims of one message, and what keys prove about them, in fields named like columns of PACKETS."""

    sender_kind: str | None
    sender_id: str | None
    signed: str | None
    encrypted: str | None
    verified: bool | None
    signer: str | None
    signature: str | None
    decryption: str | None

    @property
    def is_protected(self) -> bool:
        """Whether the message is signed or encrypted."""
        return self.signed is not None or self.encrypted is not None

    def marks(self) -> list[Mark]:
        """Return short remarks about the security; a signature by an unknown signer proves little."""
        marks = []
        if self.signed is not None:
            text = f"signed {self.signed}"
            if self.verified is False:
                marks.append(Mark("bad", f"{text}: does not hold"))
            elif self.verified is None:
                marks.append(Mark("open", f"{text}{_weak(self.signed)}"))
            elif self.signer is None:
                marks.append(Mark("open", f"{text}{_weak(self.signed)}: holds, by nobody known"))
            else:
                style = "open" if why_weak(self.signed) else "good"
                marks.append(Mark(style, f"{text}{_weak(self.signed)}: holds"))
        if self.encrypted is not None:
            style = "open" if why_weak(self.encrypted) else "good"
            marks.append(Mark(style, f"encrypted {self.encrypted}{_weak(self.encrypted)}"))
        return marks

    def told(self) -> dict[str, str]:
        """Return the claims and proofs in full, keyed by subject."""
        told = {}
        if self.sender_id is not None:
            told["Sender, as it says"] = f"{self.sender_kind or ''} {self.sender_id}".strip()
        for name, algorithm, words in (
            ("Signature", self.signed, self.signature or UNCHECKED),
            ("Encryption", self.encrypted, self.decryption or UNOPENED),
        ):
            if algorithm is not None:
                told[name] = f"{algorithm}{_weak(algorithm)}; {words}"
        return told


UNCHECKED: Final = "not checked: no keys were at hand"
UNOPENED: Final = "not opened: no keys were at hand"


def _weak(algorithm: str) -> str:
    return ", weak" if why_weak(algorithm) else ""


@dataclass(slots=True)
class Alike:
    """Messages with the same protection.

    algorithm: the hash of the signature, or the cipher.
    is_signature: whether `algorithm` is the hash of a signature.
    sender_kind, sender_id: the sender that signed messages name.
    words: what keys prove, in words; None if there were no keys.
    holds: whether the signature is valid; None if unknown.
    known: whether a key or certificate at hand identifies the signer.
    """

    algorithm: str
    is_signature: bool
    sender_kind: str | None = None
    sender_id: str | None = None
    holds: bool | None = None
    known: bool = False
    words: str | None = None
    messages: int = 0

    @property
    def said(self) -> str:
        """Return in words what keys prove, or that there were none."""
        return self.words or (UNCHECKED if self.is_signature else UNOPENED)


@dataclass(slots=True)
class Security:
    """The numbers of messages with each kind of protection; a message is judged by its first packet.

    headed: the messages with a SecurityHeader.
    named: the messages whose header names a sender.
    claimed: the messages whose header names a sender, but which have no signature.
    signed, encrypted: the messages with a signature, and those with encryption.
    both, bare: the messages with both, and those with neither.
    unknown: the messages that the capture cut short, so that their protection is unknown.
    holding, failing: the messages with a valid signature, and those with an invalid one.
    proved: the messages with a valid signature of an identified signer.
    opened: the messages with a decrypted body.
    altered: the number of further packets with an invalid signature.
    has_keys: whether any keys were given.
    signatures, ciphers: groups of similar messages, beginning with those whose protection fails.
    left_out: the number of messages in further groups, which are not kept. A message that is both signed and encrypted
        counts in a group for each.
    """

    headed: int = 0
    named: int = 0
    claimed: int = 0
    signed: int = 0
    encrypted: int = 0
    both: int = 0
    bare: int = 0
    unknown: int = 0
    proved: int = 0
    holding: int = 0
    failing: int = 0
    opened: int = 0
    altered: int = 0
    has_keys: bool = False
    left_out: int = 0
    signatures: list[Alike] = field(default_factory=list)
    ciphers: list[Alike] = field(default_factory=list)

    @property
    def is_there(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.headed or self.signed or self.altered)

    def weak(self) -> dict[str, int]:
        """Return, for each weak hash and cipher, the number of messages that depend on it."""
        found: dict[str, int] = {}
        for alike in (*self.signatures, *self.ciphers):
            if why_weak(alike.algorithm):
                found[alike.algorithm] = found.get(alike.algorithm, 0) + alike.messages
        return found
