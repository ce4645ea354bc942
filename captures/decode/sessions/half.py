"""The messages that one end of a connection has sent, their counts, and the other end's acknowledgments.

Counts are 16 bits wide and wrap; `ahead` alone may compare two of them. Where the capture lacks something of an end, it
is known about its counts how high they are at least and at most, until a SessionHeader of that end says it.
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
"""A 16-bit count that is ahead of another by as much or more is behind it."""
OUTSTANDING_LIMIT: Final = HALF_CIRCLE - 1
"""Of how many unacknowledged messages the packets are remembered."""
HIDDEN_LIMIT: Final = 0x2000
"""A hole that may hide more messages than this leaves nothing to be said about how many there were."""
HEARD_LIMIT: Final = 1_024
"""How many acknowledgments are remembered of messages whose numbers may become known later."""

LOSS_LIMIT: Final = 64
"""How many losses of one end are told apart; behind the last of them it is taken to have one before each packet."""


class Step(IntEnum):
    """The last packet of one end, if nothing is missing after it: it determines what may follow."""

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
"""What one end may send behind what, whatever the other does: each introduces itself, has parameters, and talks."""


def ahead(number: int, reference: int) -> int:
    """How far one 16-bit count is ahead of another, 0 to 65,535."""
    return (number - reference) & 0xFFFF


def at_or_before(number: int, reference: int) -> bool:
    """Whether a 16-bit count is not beyond another."""
    return (reference - number) & 0xFFFF < HALF_CIRCLE


@dataclass(slots=True, eq=False)
class Sent:
    """A message that one end of a connection has sent, and the other end's acknowledgments of it.

    packet: the number of the packet that carried it.
    recoverable: whether its receiver says that it has saved it.
    count, recoverable_count: its numbers on the session, 16 bits; None while the capture does not tell, the second also
        of an express message.
    most, most_recoverable: as high as they may be, where that is known.
    acknowledged_by, saved_by: the first packets that say it was received, and saved; None while there is none.
    acknowledged_ns: when the first of them was seen.
    numbered: whether its number was known when it was sent, so that an answer to it would be known for one.
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
        """Whether all is known that acknowledgments will say about it."""
        return self.acknowledged_by is not None and (not self.recoverable or self.saved_by is not None)


NOTHING: Final[deque[Sent]] = deque(maxlen=0)


def outstanding() -> deque[Sent]:
    """Messages that wait for an answer; of more than half the 16-bit circle the oldest are forgotten."""
    return deque(maxlen=OUTSTANDING_LIMIT)


@dataclass(slots=True, eq=False)
class Half:
    """What one end of a connection has sent.

    step: the last of it, as far as it tells what may follow.
    end: the position behind its last packet.
    sent, most: how many messages it has sent, at least and at most, 16 bits; None while the capture does not tell.
    recoverable_sent, most_recoverable: the same for recoverable ones.
    adrift: whether its counts are to be taken from its next SessionHeader.
    acknowledged: the last AckSequenceNumber that the other end has sent; None before the first one of a
        connection that the capture has not seen from its start.
    stale: whether the capture may lack a later one.
    torn: whether it lacks bytes of this end since that one.
    unacknowledged, unsaved: messages that the other end has not answered for, in the order in which they were sent.
    unnumbered: messages since its counts were lost, which its next SessionHeader gives their numbers.
    heard: what the other end has acknowledged meanwhile.
    window: the largest that this end has announced; 0 before it has.
    offered: whether the capture has its ConnectionParameters, and so the largest window there can be.
    over: whether its last message was one more than the window allows, and that has been said.
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
        """Whether all its messages and their last acknowledgment are known."""
        return (
            not (self.adrift or self.stale or self.torn or self.over)
            and self.sent is not None
            and self.acknowledged is not None
        )

    def begin(self) -> None:
        """A session begins: it has sent no message."""
        self.sent = self.most = self.recoverable_sent = self.most_recoverable = self.acknowledged = 0
        self.adrift = self.stale = self.torn = self.over = False
        for waiting in (self.unacknowledged, self.unsaved, self.unnumbered, self.heard):
            waiting.clear()

    def count(self, packet: int, *, recoverable: bool) -> Sent:
        """It sends a message, which has the next number of its session.  [MS-MQMQ] 2.2.20.4"""
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
        """Note that the capture lacks bytes that it sent.

        Args:
            hidden: as many messages at most; None if nobody can tell.
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
        """Note that the capture lacks bytes that may have acknowledged its messages."""
        self.stale = True
        if self.torn:
            self.acknowledged = None

    @property
    def _slack(self) -> int:
        return 0 if self.sent is None else ahead(self.most, self.sent)

    def could_have_sent(self, count: int, recoverable_count: int) -> bool:
        """Whether it may have sent this many messages, according to the capture."""
        if self.sent is None:
            return True
        slack = ahead(self.most_recoverable, self.recoverable_sent)
        return (
            ahead(count, self.sent) <= self._slack
            and ahead(recoverable_count, self.recoverable_sent) <= slack
        )

    def settle(self, count: int, recoverable_count: int, *, numbered: bool) -> list[Sent]:
        """Take its number of sent messages from its SessionHeader.

        Those since its counts were lost have their numbers from here backwards, so it is known now which of them were
        acknowledged meanwhile.

        Args:
            numbered: whether the header is believed in that.

        Returns:
            those of which more is known now.
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
        """What was sent before those that have their numbers now has lower ones, however many a hole may have hidden.

        Args:
            count, recoverable_count: of the last message before these.
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
        """Take the messages that a SessionHeader of the other end acknowledges as received.  [MS-MQQB] 3.1.5.5.1"""
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
        """Take those that it says are saved.  [MS-MQQB] 3.1.5.5.3

        Bit k stands for recoverable message RecoverableMsgAckSeqNumber + k; all before bit 0 are saved as well.
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
        """Without those at its head that no header will give a number any more."""
        first = self.unnumbered[0].packet if self.unnumbered else None
        while waiting and waiting[0].most is None and (first is None or waiting[0].packet < first):
            waiting.popleft()
        return waiting


def last_loss(losses: Sequence[int] | None, packet: int) -> int | None:
    """Return the last packet up to this one before which the capture lacks messages of an end with these losses."""
    if not losses or packet < losses[0]:
        return None
    if len(losses) >= LOSS_LIMIT and packet >= losses[-1]:
        return packet
    return losses[bisect_right(losses, packet) - 1]


def _covers(last: int, count: int | None, sent: Sent, facts: SessionFacts) -> bool:
    """Whether what a SessionHeader says about all up to `last` is about a message too, which it has to come behind."""
    return count is not None and at_or_before(count, last) and (sent.packet <= facts.number or facts.ahead)
