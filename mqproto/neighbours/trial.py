"""Finds a message that a neighbour refuses.  [MS-MQQB] 3.1.5.1.3, 3.1.5.8.8

The protocol cannot express a refusal: a queue manager that cannot read a packet closes the session, and so does one
that is full. So the refused message is found by trial, and the messages behind it are sent.

    three sessions on which the same message was sent end while it is unanswered
        │
        ▼
    all that were out go again, one at a time and before others ── they pass ──► all is as before
        │ a session ends
        ▼
    a suspect: it goes again, alone, and no other goes ── it passes ──► it is cleared
        │ refused three times
        ▼
    it is held back, and others pass, first those that were out with it. Once the neighbour has taken one that is no
    less demanding (kept on disk if the suspect is, as large, of the same sequence, and new), the suspect goes again,
    alone
        │ it is refused, another is taken, and it is then refused as often as before others first passed it
        ▼
    it is the refused message, and is set aside

A neighbour that also refuses another message is full or broken: no message is set aside, and the trial begins again.
Each time, a suspect is sent alone twice as often before others pass it, so a full neighbour that makes room seldom gets
messages out of order. A neighbour that makes room in each pause takes another message, and refuses the suspect right
behind it. So the last refusals are many, with no other message between them to use up the room. One more message is
also passed over with a suspect, because bad messages may be adjacent. Once a bad message is found, the next search
begins like the first one. A message that one next hop refuses is not suspected at another.

Messages that were out go before others, because new messages of a higher priority may keep coming. If these used up a
trial, it would never reach the message behind them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from mqproto.session import InFlight
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue
from mqproto.wire import TxSequenceId
from mqproto.wire.glance import head_of, identifier_of, place_in_sequence
from mqproto.wire.guid import Guid

CLOSINGS: Final = 3
"""A trial begins after this many sessions have ended with the same message unanswered."""
CLOSINGS_OF: Final = 1_024
"""The most messages whose ended sessions are counted while they are not on their way."""
REFUSALS: Final = 3
"""How often a suspect must be refused alone, in the first search, before others pass it."""
PROOFS: Final = 2
"""How often the neighbour must take other messages after refusing a suspect, before the last refusals decide."""
ROUNDS: Final = 12
"""How many failed searches make the next one longer; after them, a suspect goes alone 12,288 times before others pass
it.
"""


Place = tuple[OutgoingQueue, int]
"""Queue and position of a message."""


class Demand(NamedTuple):
    """The demands of a message on a neighbour, which may refuse a message that demands more than others.

    is_message: False for an acknowledgment, which demands least: a full neighbour takes it, because it makes room.
    recoverable, size_bytes: whether it needs room on the neighbour's disk, and how much.
    sequence: source and identifier. A neighbour that has reached its limit of sequences may refuse all messages of
    another one. Even if it is full, it takes early messages of a known sequence, to drop them, and messages to which
    held messages give way. That proves nothing about a message outside sequences.
    """

    is_message: bool
    recoverable: bool
    size_bytes: int
    sequence: tuple[Guid, TxSequenceId] | None

    @classmethod
    def of(cls, entry: InFlight) -> Demand:
        """Return the demand of a message on its way."""
        is_message = not queue_of(entry).name.endswith(ORDER_SUFFIX)
        return cls(is_message, entry.recoverable, len(entry.packet), _sequence_of(entry.packet))

    def covers(self, other: Demand) -> bool:
        """Whether a neighbour that takes this message could also take the other."""
        return (
            self.is_message >= other.is_message
            and self.recoverable >= other.recoverable
            and self.size_bytes >= other.size_bytes
            and (other.sequence == self.sequence or not other.is_message)
        )


class Suspect:
    """A message that was alone on its way when a session ended, or one that is passed over with such a message."""

    def __init__(self, entry: InFlight) -> None:
        self.entry = entry
        self.refused: Counter[int] = Counter()
        """How often the message was refused, by the index of the next hop."""
        self._surely: Counter[int] = Counter()
        """The refusals since the last proof, except those that a refusal of our own may have caused."""
        self.proofs: Counter[int] = Counter()
        """How often the next hop has taken a comparable message after refusing this one."""
        self._alone: Counter[int] = Counter()
        """How often it goes again before others, because the next hop has taken a comparable message."""
        self.overtaken: Counter[int] = Counter()
        """The number of other messages, of any kind, that the next hop has taken since the last refusal."""
        self.proven_by: set[tuple[Guid, int]] = set()
        """The messages that were proofs. A repeated one is a duplicate, for which a full neighbour needs no room."""
        self.is_found = False
        """Whether this is the message that the neighbour refuses."""

    def refuse(self, hop: int, often: int, *, by_us: bool) -> None:
        """Count a refusal: a session with a next hop ended."""
        self.refused[hop] += 1
        self._surely[hop] += not by_us
        self._alone[hop] = max(self._alone[hop] - 1, 0)
        self.is_found = self.proofs[hop] >= PROOFS and self._surely[hop] >= often
        del self.overtaken[hop]

    def lets_pass(self, hop: int, often: int) -> bool:
        """Whether others are sent before it, because it was refused `often`: until one is a proof, or many have passed.

        Each refusal doubles the number that may pass, up to a million.
        """
        most = 1 << min(self.refused[hop], 20)
        return self.refused[hop] >= often and not self._alone[hop] and self.overtaken[hop] < most

    def prove(self, hop: int, often: int, other: tuple[Guid, int]) -> None:
        """Note that a next hop has taken another message that demands no less."""
        if not self._alone[hop] and other not in self.proven_by:
            self._alone[hop] = 1
            if self._surely[hop] >= (1 if self.proofs[hop] else REFUSALS):
                self._surely[hop] = 0
                self.proven_by.add(other)
                self.proofs[hop] += 1
                self._alone[hop] = often if self.proofs[hop] >= PROOFS else 1


class Trial:
    """The knowledge about a neighbour whose sessions end while messages are unacknowledged."""

    def __init__(self) -> None:
        self.suspects: list[Suspect] = []
        """The suspects that are held back; the one tried longest ago comes first."""
        self.untried: list[Suspect] = []
        """The messages that were out when the trial began, and have not been sent alone yet."""
        self._closings: dict[Place, int] = {}
        """How many sessions ended while each message was out; the messages that were out most recently come last."""
        self._ends: list[dict[Place, int]] = []
        """The unanswered messages of ended sessions; those of the latest session come last."""
        self._round = 0
        """How often the neighbour has refused all messages that were tried, since the last message was found."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether a message may be sent only when none is on its way."""
        return bool(self.suspects or self.untried)

    def lets_pass(self, hop: int) -> bool:
        """Whether a suspect was refused so often that others are tried before it is sent again."""
        return any(each.lets_pass(hop, REFUSALS << self._round) for each in self.suspects)

    @property
    def passes_over(self) -> bool:
        """Whether the next message is also passed over. At most ROUNDS + 1 such messages stay in memory."""
        return len(self.suspects) <= self._round

    def were_out(self, entries: list[InFlight]) -> None:
        """Note that a session ended with these messages unanswered: the neighbour may have them."""
        self._ends.append({_place(entry): order for order, entry in enumerate(entries)})
        while len(self._ends) > 1 and sum(map(len, self._ends)) > CLOSINGS_OF:
            del self._ends[0]

    def _may_have_had(self, entry: InFlight, suspect: Suspect) -> bool:
        """Whether the neighbour may already have had an accepted message, which was out, and so needs no room for it.

        False if the message was behind the suspect, because the neighbour has read nothing beyond that.
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
        """A session ended with these messages unanswered, at least one, in the order in which they were sent.

        by_us: whether we ended it, because we refuse a message of the neighbour's. The neighbour may also have refused
        one of ours. So the end counts for trying messages; otherwise both sides could wait for each other forever. It
        does not count for setting a message aside.

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
        """Note that the neighbour acknowledged these messages before its session ended, so it does not refuse them."""
        for entry in entries:
            if (suspect := self._held(entry)) is not None:
                self.drop(suspect)

    def _count_closing(self, lost: list[InFlight]) -> int:
        """Count a session that ended with these messages unanswered. Return the highest count of one of them."""
        counts = [self._closings.pop(_place(entry), 0) + 1 for entry in lost]
        while len(self._closings) > CLOSINGS_OF:
            del self._closings[next(iter(self._closings))]
        self._closings.update(zip(map(_place, lost), counts, strict=True))
        return max(counts)

    def give_up(self) -> list[InFlight]:
        """Release all messages that are held back, and return them for their queues."""
        back = [suspect.entry for suspect in (*self.suspects, *self.untried)]
        self.suspects.clear()
        self.untried.clear()
        self._closings.clear()
        return back

    def candidates(self, hop: int) -> list[Suspect]:
        """Return the suspects to send alone now, the likeliest first; only untried ones if others have to pass."""
        if self.lets_pass(hop):
            return list(self.untried)
        return [*sorted(self.suspects, key=lambda suspect: -suspect.proofs[hop]), *self.untried]

    def answered(self, hop: int, completed: Iterable[InFlight]) -> None:
        """Note that the neighbour has taken these messages."""
        for entry in completed:
            self.were_taken([entry])
            demand, name = Demand.of(entry), identifier_of(entry.packet)
            for suspect in self.suspects:
                suspect.overtaken[hop] += 1
                if demand.covers(Demand.of(suspect.entry)) and not self._may_have_had(entry, suspect):
                    suspect.prove(hop, REFUSALS << self._round, name)
            self._forget(entry)

    def pass_over(self, entries: Iterable[InFlight]) -> None:
        """Hold these messages back with the suspects."""
        self.suspects += map(Suspect, entries)

    def pass_over_untried(self) -> None:
        """Hold back, unsent, the first of the messages that were out when the trial began."""
        self.suspects.append(self.untried.pop(0))

    def without_suspects(self, entries: list[InFlight]) -> list[InFlight]:
        """Return the same entries without further copies of messages that are held back."""
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


def queue_of(entry: InFlight) -> OutgoingQueue:
    """The queue from which a message came."""
    assert isinstance(entry.origin, OutgoingQueue)
    return entry.origin


def _place(entry: InFlight) -> Place:
    return queue_of(entry), entry.position


def _sequence_of(packet: bytes) -> tuple[Guid, TxSequenceId] | None:
    try:
        place = place_in_sequence(packet)
    except (ValueError, IndexError, struct.error):
        return None  # It cannot be decoded, which may be why it is refused.
    return None if place is None else (head_of(packet).source_queue_manager, place[0])
