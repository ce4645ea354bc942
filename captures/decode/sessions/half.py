"""The messages that one end of a connection has sent, their counts, and the other end's acknowledgments.

Counts are 16 bits wide and wrap around; only `ahead` may compare two of them. If the capture lacks bytes of an end,
only bounds of its counts are known, until a SessionHeader of that end states them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from mqproto.captures.decode.facts import NodeKey, SessionFacts
from mqproto.captures.net.tcp import Endpoint

HALF_CIRCLE: Final = 0x8000
"""If a 16-bit count seems to be ahead of another by at least this much, it is really behind."""
OUTSTANDING_LIMIT: Final = HALF_CIRCLE - 1
"""The largest number of unacknowledged messages whose packets are remembered."""
HIDDEN_LIMIT: Final = 0x2000
"""If a hole may hide more messages than this, the number of messages is unknown."""
HEARD_LIMIT: Final = 1_024
"""The largest number of acknowledgments that are remembered because the numbers of their messages may become known
later.
"""

LOSS_LIMIT: Final = 64
"""The largest number of losses of one end that are remembered.

After the last remembered loss, a loss is assumed before each packet.
"""


class Step(IntEnum):
    """The kind of the last packet of one end, which determines what may follow.

    If something is missing after that packet, the step is UNKNOWN.
    """

    UNKNOWN = 0
    INTRODUCED = 1
    """An EstablishConnection packet."""
    ADJUSTED = 2
    """A ConnectionParameters packet."""
    TALKING = 3
    """A UserMessage or a SessionAck."""


MAY_FOLLOW: Final = {
    Step.UNKNOWN: frozenset(Step),
    Step.INTRODUCED: frozenset({Step.ADJUSTED}),
    Step.ADJUSTED: frozenset({Step.TALKING}),
    Step.TALKING: frozenset({Step.TALKING}),
}
"""For each packet of an end, the packets that the same end may send next.

An end first introduces itself, then adjusts the parameters, and then talks.
"""


def ahead(number: int, reference: int) -> int:
    """Return how far one 16-bit count is ahead of another, 0 to 65,535."""
    return (number - reference) & 0xFFFF


def at_or_before(number: int, reference: int) -> bool:
    """Whether a 16-bit count is at or before another."""
    return (reference - number) & 0xFFFF < HALF_CIRCLE


@dataclass(slots=True, eq=False)
class Sent:
    """A message that one end of a connection has sent, and the other end's acknowledgments of it.

    packet: the number of the packet that carried the message.
    recoverable: whether the message's receiver reports that it has saved the message.
    count, recoverable_count: the message's numbers on the session, 16 bits; None as long as they are unknown. An
        express message has no recoverable_count.
    most, most_recoverable: the highest values that these numbers may have, if known.
    acknowledged_by, saved_by: the first packets that report the message received, and saved; None until they are seen.
    acknowledged_ns: when the first of these packets was seen.
    numbered: whether the message's number was known when it was sent, so that an acknowledgment of it can be
        recognized.
    """

    half: Half
    packet: int
    recoverable: bool = False
    count: int | None = None
    recoverable_count: int | None = None
    most: int | None = None
    most_recoverable: int | None = None
    acknowledged_by: int | None = None
    acknowledged_ns: int | None = None
    saved_by: int | None = None
    numbered: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether no acknowledgment can say anything new about this message."""
        return self.acknowledged_by is not None and (not self.recoverable or self.saved_by is not None)


NOTHING: Final[deque[Sent]] = deque(maxlen=0)


def outstanding() -> deque[Sent]:
    """Return an empty queue for unacknowledged messages.

    It holds at most 32,767 messages, one fewer than half of the 16-bit numbers. When it is full, each new message makes
    it forget the oldest one.
    """
    return deque(maxlen=OUTSTANDING_LIMIT)


@dataclass(slots=True, eq=False)
class Half:
    """The packets and messages that one end of a connection has sent.

    step: the last packet of this end, as far as it determines what may follow.
    end: the position after that packet.
    sent: the smallest number of messages that this end can have sent, 16 bits; None as long as that is unknown.
    most: the largest number of messages that this end can have sent, 16 bits; it means nothing while `sent` is None.
    recoverable_sent, most_recoverable: the smallest and the largest number of recoverable messages, 16 bits; they mean
        nothing while `sent` is None.
    adrift: whether the counts of this end are unknown until its next SessionHeader.
    acknowledged: the last AckSequenceNumber from the other end. None before the first one, if the capture lacks the
        start of the connection.
    stale: whether the capture may lack a later AckSequenceNumber.
    torn: whether the capture lacks bytes of this end since the last AckSequenceNumber.
    unacknowledged, unsaved: messages not yet acknowledged as received, and as saved, in the order of sending.
    unnumbered: messages that were sent since the counts were lost; the next SessionHeader of this end reveals their
        numbers.
    heard: acknowledgments from the other end since the counts were lost.
    window: the largest window that this end has announced; 0 before the first.
    offered: whether the capture has the ConnectionParameters of this end, and so the largest possible window.
    over: whether the last message of this end exceeded the window; if so, that has been reported.
    """

    endpoint: Endpoint
    key: NodeKey = ""
    hop: tuple[NodeKey, NodeKey] = ("", "")
    label: str = ""
    step: Step = Step.UNKNOWN
    end: int = 0
    sent: int | None = None
    most: int = 0
    recoverable_sent: int = 0
    most_recoverable: int = 0
    adrift: bool = True
    acknowledged: int | None = None
    stale: bool = False
    torn: bool = False
    unacknowledged: deque[Sent] = field(default_factory=outstanding)
    unsaved: deque[Sent] = field(default_factory=outstanding)
    unnumbered: deque[Sent] = field(default_factory=outstanding)
    heard: deque[SessionFacts] = field(default_factory=deque)
    window: int = 0
    offered: bool = False
    over: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether all messages of this end and their last acknowledgment are known."""
        return (
            not (self.adrift or self.stale or self.torn or self.over)
            and self.sent is not None
            and self.acknowledged is not None
        )

    def begin(self) -> None:
        """Begin a session, in which this end has not sent any message yet."""
        self.sent = self.most = self.recoverable_sent = self.most_recoverable = self.acknowledged = 0
        self.adrift = self.stale = self.torn = self.over = False
        for waiting in (self.unacknowledged, self.unsaved, self.unnumbered, self.heard):
            waiting.clear()

    def count(self, packet: int, *, recoverable: bool) -> Sent:
        """Count a message that this end sends, and give it the next number of the session. [MS-MQMQ] 2.2.20.4"""
        sent = Sent(self, packet, recoverable)
        if self.sent is not None:
            self.sent = (self.sent + 1) & 0xFFFF
            self.most = sent.most = (self.most + 1) & 0xFFFF
            if not self.adrift:
                sent.count, sent.numbered = self.sent, True
            if recoverable:
                self.recoverable_sent = (self.recoverable_sent + 1) & 0xFFFF
                self.most_recoverable = sent.most_recoverable = (self.most_recoverable + 1) & 0xFFFF
                if not self.adrift:
                    sent.recoverable_count = self.recoverable_sent
        self.unacknowledged.append(sent)
        if recoverable:
            self.unsaved.append(sent)
        if self.adrift:
            self.unnumbered.append(sent)
        return sent

    def lose(self, hidden: int | None) -> None:
        """Record that the capture lacks bytes that this end sent.

        Args:
            hidden: the largest number of messages that these bytes may hold; None if unknown.
        """
        self.step = Step.UNKNOWN
        self.torn = True
        if self.stale:
            # With a hole on either side it may even be another connection between the same ports.
            self.acknowledged = None
        if hidden == 0:
            return
        if hidden is None or self.sent is None or self._slack + hidden > HIDDEN_LIMIT:
            self.sent = None
        else:
            self.most = (self.most + hidden) & 0xFFFF
            self.most_recoverable = (self.most_recoverable + hidden) & 0xFFFF
        self.adrift = True
        self.unnumbered.clear()
        self.heard.clear()

    def miss_answers(self) -> None:
        """Record that the capture lacks bytes that may have acknowledged messages of this end."""
        self.stale = True
        if self.torn:
            self.acknowledged = None

    @property
    def _slack(self) -> int:
        return 0 if self.sent is None else ahead(self.most, self.sent)

    def could_have_sent(self, count: int, recoverable_count: int) -> bool:
        """Whether this end may have sent this many messages, as far as the capture shows."""
        if self.sent is None:
            return True
        slack = ahead(self.most_recoverable, self.recoverable_sent)
        return (
            ahead(count, self.sent) <= self._slack
            and ahead(recoverable_count, self.recoverable_sent) <= slack
        )

    def settle(self, count: int, recoverable_count: int, *, numbered: bool) -> list[Sent]:
        """Take this end's number of sent messages from its SessionHeader.

        Messages that were sent after the counts were lost are numbered backwards from that number. This shows which of
        them have been acknowledged.

        Args:
            numbered: whether the header's counts are believed.

        Returns:
            The messages whose acknowledgment is now known.
        """
        self.sent = self.most = count
        self.recoverable_sent = self.most_recoverable = recoverable_count
        was_adrift, self.adrift = self.adrift, False
        answered: list[Sent] = []
        if numbered:
            for sent in reversed(self.unnumbered):
                sent.count = sent.most = count
                count = (count - 1) & 0xFFFF
                if sent.recoverable:
                    sent.recoverable_count = sent.most_recoverable = recoverable_count
                    recoverable_count = (recoverable_count - 1) & 0xFFFF
            if was_adrift:
                self._bound(count, recoverable_count)
            for facts in self.heard:
                answered += self.received(facts)
                answered += self.saved(facts)
            answered = list(dict.fromkeys(answered))
        self.unnumbered.clear()
        self.heard.clear()
        return answered

    def _bound(self, count: int, recoverable_count: int) -> None:
        """Set upper bounds on the numbers of messages that precede the newly numbered ones.

        Earlier messages have lower numbers, even if a hole hides some messages.

        Args:
            count, recoverable_count: the numbers of the last message before the newly numbered ones.
        """
        first = self.unnumbered[0].packet if self.unnumbered else None
        for sent in reversed(self.unacknowledged):
            if first is None or sent.packet < first:
                if sent.most is None or at_or_before(sent.most, count):
                    break
                sent.most, count = count, (count - 1) & 0xFFFF
        for sent in reversed(self.unsaved):
            if first is None or sent.packet < first:
                if sent.most_recoverable is None or at_or_before(sent.most_recoverable, recoverable_count):
                    break
                sent.most_recoverable = recoverable_count
                recoverable_count = (recoverable_count - 1) & 0xFFFF

    def hear(self, facts: SessionFacts) -> None:
        """Remember an acknowledgment of messages whose numbers may become known later."""
        if not self.unnumbered:
            return
        self.heard.append(facts)
        if len(self.heard) > HEARD_LIMIT:
            # Nobody could say any more which acknowledgment was the first one for messages from before it.
            forgotten = self.heard.popleft()
            while self.unnumbered and self.unnumbered[0].packet < forgotten.number:
                self.unnumbered.popleft()

    def received(self, facts: SessionFacts) -> list[Sent]:
        """Record and return the messages that a SessionHeader of the other end acknowledges as received. [MS-MQQB]
        3.1.5.5.1
        """
        assert facts.header is not None
        through = facts.header.ack_sequence_number
        covered = []
        waiting = self._within_reach(self.unacknowledged)
        while waiting and _covers(through, waiting[0].most, waiting[0], facts):
            sent = waiting.popleft()
            sent.acknowledged_by, sent.acknowledged_ns = facts.number, facts.time_ns
            covered.append(sent)
        return covered

    def saved(self, facts: SessionFacts) -> list[Sent]:
        """Record and return the messages that a SessionHeader of the other end acknowledges as saved. [MS-MQQB]
        3.1.5.5.3

        Bit k stands for the recoverable message with number RecoverableMsgAckSeqNumber + k. All messages before that of
        bit 0 are saved, too.
        """
        assert facts.header is not None
        base, flags = facts.header.recoverable_msg_ack_seq_number, facts.header.recoverable_msg_ack_flags
        last = (base + flags.bit_length() - 1) & 0xFFFF
        leaves_none_out = flags & (flags + 1) == 0
        kept, saved = [], []
        waiting = self._within_reach(self.unsaved)
        while flags and waiting and _covers(last, waiting[0].most_recoverable, waiting[0], facts):
            sent = waiting.popleft()
            assert sent.most_recoverable is not None
            place = ahead(sent.most_recoverable, base)
            is_sure = leaves_none_out or sent.recoverable_count is not None
            if place >= HALF_CIRCLE or (is_sure and flags >> place & 1):
                sent.saved_by = facts.number
                saved.append(sent)
            else:
                kept.append(sent)
        waiting.extendleft(reversed(kept))
        return saved

    def _within_reach(self, waiting: deque[Sent]) -> deque[Sent]:
        """Drop the leading messages whose numbers can no longer be revealed by any header; return the rest."""
        first = self.unnumbered[0].packet if self.unnumbered else None
        while waiting and waiting[0].most is None and (first is None or waiting[0].packet < first):
            waiting.popleft()
        return waiting


def last_loss(losses: Sequence[int] | None, packet: int) -> int | None:
    """Return the last packet, up to and including `packet`, that comes right after a loss.

    Return None if there is none.

    Args:
        losses: the packets from one end that come right after messages that the capture lacks.
    """
    if not losses or packet < losses[0]:
        return None
    if len(losses) >= LOSS_LIMIT and packet >= losses[-1]:
        return packet
    return losses[bisect_right(losses, packet) - 1]


def _covers(last: int, count: int | None, sent: Sent, facts: SessionFacts) -> bool:
    """Whether a SessionHeader that covers all messages up to number `last` covers this one.

    A message that comes after the header in the capture is covered only if the header is `ahead`.
    """
    return count is not None and at_or_before(count, last) and (sent.packet <= facts.number or facts.ahead)
