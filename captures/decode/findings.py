"""Findings about the packets of a capture: breaches of the protocol, and oddities."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple


class Severity(StrEnum):
    """How bad a finding is."""

    FAULT = "fault"
    """A peer broke the protocol."""
    NOTE = "note"
    """Worth a look; a network failure, or a gap in the capture, may explain it."""


class Finding(NamedTuple):
    """One breach of the protocol, or one oddity.

    code: one of CODES, for filters and counts.
    packet: the number of the packet that the finding is about, which may be earlier than the packet that revealed it; 0
        if it is not about a packet.
    text: the finding in words, without the packet's number.
    section: the section of the specification that states the rule; empty if there is none.
    others: the numbers of the other packets that the finding rests on.
    """

    severity: Severity
    code: str
    packet: int
    text: str
    section: str = ""
    others: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f"#{self.packet} " if self.packet else ""
        return f"{self.severity} {self.code}: {where}{self.text}" + (
            f"  {self.section}" if self.section else ""
        )

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON for programs; `packet` is null if it is not about a packet."""
        return {
            "severity": str(self.severity),
            "code": self.code,
            "packet": self.packet or None,
            "text": self.text,
            "section": self.section,
        }


LACKING: Final = ("damaged-capture", "missing-frames")
"""The codes of findings that say what a capture as a whole lacks."""


def of_damaged(found: Finding) -> Finding:
    """Return the note that replaces a fault if one of its frames is damaged."""
    text = f"it would be {found.code}, but the checksum of a frame that tells so does not fit: nobody is judged by it"
    return Finding(Severity.NOTE, "damaged-frame", found.packet, text, others=found.others)


CODES: Final = {
    "malformed": "bytes that form no packet",
    "encrypted": "a connection that carries TLS, so that nobody can say what it carries",
    "odd-field": "a field that breaks what is asked of senders, and that receivers let pass",
    "bad-signature": "a signature that does not hold, by keys that were at hand",
    "out-of-turn": "a packet that its session is not ready for, or no longer",
    "wrong-answer": "an answer in the handshake that does not fit its request",
    "wrong-parameters": "timeouts that the acceptor of a session did not take over as they were proposed",
    "identity-conflict": "two queue managers that claim one address in turn, or one at two addresses",
    "refused": "a session that the acceptor does not want",
    "ack-beyond-sent": "a session acknowledgment of messages that were not sent",
    "ack-backwards": "a session acknowledgment of less than the one before",
    "saved-beyond-sent": "recoverable messages said to be saved that were not sent",
    "wrong-count": "a session header that miscounts what its sender has sent",
    "window-exceeded": "more messages unacknowledged than either side's window allows",
    "resend": "a message that crossed the same hop before",
    "resend-without-need": "a message that crossed the same connection again, though its receiver had answered for it",
    "late": "a message, not transactional, that was sent after its time to reach its queue was over",
    "duplicate-identity": "one message identifier that its queue manager gave to two messages",
    "altered": "a message that left an intermediate different from how it came",
    "hop-count": "a message whose hop count an intermediate did not raise by one",
    "gap": "transactional numbers that are missing on a hop",
    "gap-filled": "missing numbers that came, or that a later message says are not to come",
    "number-reused": "one number of a sequence that was given to two messages",
    "order-ack-beyond": "an OrderAck for a number that its sender cannot have had",
    "order-ack-backwards": "an OrderAck for less than an earlier one",
    "foreign-ack": "an OrderAck, or a positive FinalAck, by another queue manager than the messages went to",
    "order-ack-unknown": "an OrderAck of a sequence that the capture does not have",
    "final-ack-unknown": "a FinalAck for a message that the capture does not have",
    "final-ack-mismatch": "a FinalAck whose number belongs to another message than its identifier",
    "contradiction": "two frames that have other bytes for the same place of a stream",
    "damaged-frame": "a frame whose checksum does not fit, so that nobody is judged by it",
    "missing-bytes": "bytes that the capture lacks",
    "caller-by-port": "messages on a connection of which nothing but a port tells who called",
    "address-translation": "a connection that is another one, seen behind address translation or in another tunnel",
    "missing-frames": "frames that the capture says were dropped, or fragments of IP packets that it lacks",
    "damaged-capture": "a file that is not a capture, or damaged; what came before the damage was read",
    "other-system": "a capture of another system than those of which the tables are; nothing of it was taken",
}
"""The codes of all findings, each with its meaning."""
