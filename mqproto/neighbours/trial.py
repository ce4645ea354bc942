"""Finds a message that a neighbour refuses.  [MS-MQQB] 3.1.5.1.3, 3.1.5.8.8

The protocol cannot express a refusal: a queue manager that cannot read a packet closes the session, and so does one
that is full. So the refused message is found by trial, and the messages behind it are sent.

    three sessions end while the same message is unanswered on each of them
        │
        ▼
    all messages that were out are sent again, one at a time and before others
        │ a session ends                                       └── they pass ──► all is as before
        ▼
    a suspect: it is sent again, alone, and no other is sent ── it passes ──► it is cleared
        │ refused three times
        ▼
    it is held back, and others overtake it, first those that were out with it. Once the neighbour
    has taken a message that is at least as demanding (new, as large, in the same sequence, and kept
    on disk if the suspect is), the suspect is sent again, alone
        │ the suspect is refused, the neighbour takes another message, and then refuses the suspect
        │ at least three times in a row (more often after trials that found nothing)
        ▼
    it is the refused message, and is set aside

A neighbour that also refuses another message is full or broken: no message is set aside, and the trial begins again.
Each new trial doubles the number of times that a suspect is sent alone before others overtake it. So a full neighbour
that rarely makes room seldom gets messages out of order. A neighbour that makes a little room in each pause takes
another message, and refuses the suspect right behind that message. So the suspect must be refused many times at the
end, with no other message in between to use up the room. Each new trial also holds back one more message together with
a suspect, because bad messages may be adjacent. Once a bad message is found, the next search begins like the first one.
A message that one next hop refuses is not suspected at another.

Messages that were out are sent before others, because new messages of a higher priority may keep coming. If these used
up a trial, it would never reach the message behind them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from mqproto.session import InFlight
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue, queue_of
from mqproto.wire import TxSequenceId
from mqproto.wire.glance import head_of, identifier_of, place_in_sequence
from mqproto.wire.guid import Guid

CLOSINGS: Final = 3
"""A trial begins after this many sessions have ended while the same message was unanswered."""
CLOSINGS_OF: Final = 1_024
"""The maximum number of messages that are not on their way now and for which ended sessions are counted."""
REFUSALS: Final = 3
"""How many times a suspect must be refused when sent alone, in the first search, before others pass it."""
PROOFS: Final = 2
"""How many times the neighbour must take another message after refusing a suspect.

Only then do the last refusals decide.
"""
ROUNDS: Final = 12
"""The number of failed searches that each double the length of the next one.

After all of them, a suspect is sent alone 12,288 times before others pass it.
"""


Place = tuple[OutgoingQueue, int]
"""A message's queue, and its position there."""


class Demand(NamedTuple):
    """What a message demands of a neighbour, which may refuse a message that demands more than others.

    is_message: False for an acknowledgment, which demands least: a full neighbour takes it, because it makes room.
    recoverable: whether the message needs room on the neighbour's disk.
    size_bytes: how much room the message needs.
    sequence: the source and the identifier of its sequence, if any. A neighbour that has reached its limit of sequences
        may refuse all messages of further sequences. Even a full neighbour takes some messages of a sequence that it
        knows, because it drops early ones, and drops held messages to make room for others. That proves nothing about a
        message that is in no sequence.
    """

    is_message: bool
    recoverable: bool
    size_bytes: int
    sequence: tuple[Guid, TxSequenceId] | None

    @classmethod
    def of(cls, entry: InFlight) -> Demand:
        """Return the demand of a message that is on its way."""
        is_message = not queue_of(entry).name.endswith(ORDER_SUFFIX)
        return cls(is_message, entry.recoverable, len(entry.packet), _sequence_of(entry.packet))

    def covers(self, other: Demand) -> bool:
        """Return whether a neighbour that takes this message could also take the other one."""
        return (
            self.is_message >= other.is_message
            and self.recoverable >= other.recoverable
            and self.size_bytes >= other.size_bytes
            and (other.sequence == self.sequence or not other.is_message)
        )


class Suspect:
    """A message that was alone on its way when a session ended, or one held back with such a message."""

    def __init__(self, entry: InFlight) -> None:
        self.entry = entry
        self.refused: Counter[int] = Counter()
        """How many times the message was refused, by the index of the next hop."""
        self._surely: Counter[int] = Counter()
        """The number of refusals since the last proof; those that our own refusals may have caused do not count."""
        self.proofs: Counter[int] = Counter()
        """How many times the next hop has taken a comparable message after it refused this one."""
        self._alone: Counter[int] = Counter()
        """After a proof, how many more times the message must be sent alone before others are sent."""
        self.overtaken: Counter[int] = Counter()
        """The number of other messages, of any kind, that the next hop has taken since the last refusal."""
        self.proven_by: set[tuple[Guid, int]] = set()
        """The messages that were proofs. If one is sent again, even a full neighbour needs no room for it."""
        self.is_found = False
        """Whether this is the message that the neighbour refuses."""

    def refuse(self, hop: int, often: int, *, by_us: bool) -> None:
        """Count a refusal by a next hop: a session with that hop has ended."""
        self.refused[hop] += 1
        self._surely[hop] += not by_us
        self._alone[hop] = max(self._alone[hop] - 1, 0)
        self.is_found = self.proofs[hop] >= PROOFS and self._surely[hop] >= often
        del self.overtaken[hop]

    def lets_pass(self, hop: int, often: int) -> bool:
        """Return whether this message was refused at least `often` times, so that others are sent before it.

        Others are sent first until one of them is a proof or many have passed. Each refusal doubles the number that may
        pass, up to a million.
        """
        most = 1 << min(self.refused[hop], 20)
        return self.refused[hop] >= often and not self._alone[hop] and self.overtaken[hop] < most

    def prove(self, hop: int, often: int, other: tuple[Guid, int]) -> None:
        """Record that a next hop has taken another message that demands at least as much."""
        if not self._alone[hop] and other not in self.proven_by:
            self._alone[hop] = 1
            if self._surely[hop] >= (1 if self.proofs[hop] else REFUSALS):
                self._surely[hop] = 0
                self.proven_by.add(other)
                self.proofs[hop] += 1
                self._alone[hop] = often if self.proofs[hop] >= PROOFS else 1


class Trial:
    """What is known about a neighbour whose sessions end while messages are unacknowledged."""

    def __init__(self) -> None:
        self.suspects: list[Suspect] = []
        """The suspects that are held back; the one whose last try was longest ago comes first."""
        self.untried: list[Suspect] = []
        """The messages that were out when the trial began, and that have not yet been sent alone."""
        self._closings: dict[Place, int] = {}
        """For each message, how many sessions ended while it was out.

        The messages that were out most recently come last.
        """
        self._ends: list[dict[Place, int]] = []
        """The unanswered messages of each ended session; those of the latest session come last."""
        self._round = 0
        """How many trials have failed since the last bad message was found.

        In each of them, the neighbour refused all messages that were tried.
        """

    @property
    def one_at_a_time(self) -> bool:
        """Return whether a message may be sent only when no other is on its way."""
        return bool(self.suspects or self.untried)

    def lets_pass(self, hop: int) -> bool:
        """Return whether a suspect was refused so often that others are tried before it is sent again."""
        return any(each.lets_pass(hop, REFUSALS << self._round) for each in self.suspects)

    @property
    def passes_over(self) -> bool:
        """Return whether the next message is also held back. At most ROUNDS + 1 such messages stay in memory."""
        return len(self.suspects) <= self._round

    def were_out(self, entries: list[InFlight]) -> None:
        """Record that a session ended with these messages unanswered: the neighbour may have them."""
        self._ends.append({_place(entry): order for order, entry in enumerate(entries)})
        while len(self._ends) > 1 and sum(map(len, self._ends)) > CLOSINGS_OF:
            del self._ends[0]

    def _may_have_had(self, entry: InFlight, suspect: Suspect) -> bool:
        """Return whether the neighbour may already have had an accepted message, and so needed no room for it.

        That is possible if the message was out when a session ended. It is impossible if the message was behind the
        suspect, because the neighbour has read nothing beyond the suspect.
        """
        place, first = _place(entry), _place(suspect.entry)
        if place[1] <= place[0].restored_through and (place[0] is not first[0] or place[1] < first[1]):
            return True
        return any(place in end and (first not in end or end[first] > end[place]) for end in self._ends)

    def _forget(self, entry: InFlight) -> None:
        self._closings.pop(_place(entry), None)
        for end in self._ends:
            end.pop(_place(entry), None)
        self._ends = list(filter(None, self._ends))

    def ended(
        self, hop: int, lost: list[InFlight], *, by_us: bool = False
    ) -> tuple[list[InFlight], list[Suspect]]:
        """Handle the end of a session with these unanswered messages, at least one.

        The messages are in the order in which they were sent.

        by_us: whether we ended the session, because we refused a message of the neighbour's. The neighbour may have
            refused one of ours at the same time, so the end counts as a refusal in the trial; otherwise both sides
            could wait for each other forever. But it does not count as evidence for setting a message aside.

        Returns:
            The messages that return to their queues, and the suspects that are held back from now on.
        """
        if not self.one_at_a_time:
            if self._count_closing(lost) < CLOSINGS:
                return lost, []
            self._closings.clear()
            self.untried = list(map(Suspect, lost))
            return [], self.untried
        entry, *more = lost
        suspect = self._held(entry)
        if more or (suspect is None and by_us and self.suspects):
            return lost, []  # If there are more, they were sent before the trial began.
        if suspect is not None:
            self.drop(suspect)
        if self.suspects and (suspect is None or not suspect.refused.total()):
            self._round = min(self._round + 1, ROUNDS)
            return [*lost, *self.give_up()], []
        suspect = suspect or Suspect(entry)
        suspect.refuse(hop, REFUSALS << self._round, by_us=by_us)
        if suspect.is_found:
            self._round = 0
            self._forget(entry)
        else:
            self.suspects.append(suspect)
        return [], [suspect]

    def were_taken(self, entries: Iterable[InFlight]) -> None:
        """Record that the neighbour acknowledged these messages before its session ended: none was refused."""
        for entry in entries:
            if (suspect := self._held(entry)) is not None:
                self.drop(suspect)

    def _count_closing(self, lost: list[InFlight]) -> int:
        """Count a session that ended with these messages unanswered. Return the highest count of any of them."""
        counts = [self._closings.pop(_place(entry), 0) + 1 for entry in lost]
        while len(self._closings) > CLOSINGS_OF:
            del self._closings[next(iter(self._closings))]
        self._closings.update(zip(map(_place, lost), counts, strict=True))
        return max(counts)

    def give_up(self) -> list[InFlight]:
        """Release all messages that are held back, and return them so that they go back to their queues."""
        back = [suspect.entry for suspect in (*self.suspects, *self.untried)]
        self.suspects.clear()
        self.untried.clear()
        self._closings.clear()
        return back

    def candidates(self, hop: int) -> list[Suspect]:
        """Return the suspects to send alone now, the likeliest first.

        While other messages may pass, these are only the untried ones.
        """
        if self.lets_pass(hop):
            return list(self.untried)
        return [*sorted(self.suspects, key=lambda suspect: -suspect.proofs[hop]), *self.untried]

    def answered(self, hop: int, completed: Iterable[InFlight]) -> None:
        """Record that the neighbour has taken these messages."""
        for entry in completed:
            self.were_taken([entry])
            demand, name = Demand.of(entry), identifier_of(entry.packet)
            for suspect in self.suspects:
                suspect.overtaken[hop] += 1
                if demand.covers(Demand.of(suspect.entry)) and not self._may_have_had(entry, suspect):
                    suspect.prove(hop, REFUSALS << self._round, name)
            self._forget(entry)

    def pass_over(self, entries: Iterable[InFlight]) -> None:
        """Hold these messages back, in addition to the suspects."""
        self.suspects += map(Suspect, entries)

    def without_suspects(self, entries: list[InFlight]) -> list[InFlight]:
        """Return the entries, but without further copies of messages that are held back."""
        return [entry for entry in entries if self._held(entry) is None]

    def drop(self, suspect: Suspect) -> None:
        """Stop holding a suspect back."""
        (self.suspects if suspect in self.suspects else self.untried).remove(suspect)

    def _held(self, entry: InFlight) -> Suspect | None:
        return next(
            (
                suspect
                for suspect in (*self.suspects, *self.untried)
                if suspect.entry.origin is entry.origin and suspect.entry.position == entry.position
            ),
            None,
        )


def _place(entry: InFlight) -> Place:
    return queue_of(entry), entry.position


def _sequence_of(packet: bytes) -> tuple[Guid, TxSequenceId] | None:
    try:
        place = place_in_sequence(packet)
    except (ValueError, IndexError, struct.error):
        return None  # It cannot be decoded, which may be why it is refused.
    return None if place is None else (head_of(packet).source_queue_manager, place[0])
