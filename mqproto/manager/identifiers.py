"""The MessageIDHistoryTable, which remembers the messages that have arrived.

[MS-MQQB] 3.1.1.3, 3.1.5.8.1, 3.1.6.7

A message can arrive twice if it was on its way when a connection broke, and at most one window of messages is on its
way. So each sender's newest messages are always remembered, up to twice the window of the neighbour that brings them.
Older ones are remembered for half an hour, as long as the table has room:

    of one sender and kind    oldest ──────────────────────────────────────────────► newest
                              │ remembered for a while, │ always remembered:          │
                              │ and if there is room    │ twice the neighbour's window│

When the whole table is full, messages are forgotten in the following order, the oldest of each
group first:
1. messages that are not among their sender's newest, and are remembered only for a while;
2. messages that a neighbour has brought in excess of twice the window of each kind, counted over
    all senders;
3. messages from senders that have no session with us, and whose messages come from no neighbour
    with a session;
4. messages of the neighbour that has brought the most, so that each neighbour keeps its share.

The store does not say which neighbour brought a message. After a restart, the sender's next message shows it. Until
then, the sender's messages belong to group 3, unless the sender is itself a neighbour with a session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from mqproto.base.configuration import WINDOWS_REMEMBERED, Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.session import Remote
from mqproto.turn.effects import IdentifierRow
from mqproto.turn.pending import PendingWrites
from mqproto.wire.guid import Guid

MARGIN: Final = 32
"""The denominator of the fraction (1/N) of a full table's entries that are forgotten at a time."""
COUNTED_SENDERS: Final = 1_000
"""The maximum number of senders whose duplicates are counted separately; those of other senders count only in the
total.
"""
LEAST_LOOKED_AT: Final = 200
"""The minimum number of a sender's messages that are needed to judge its share of duplicates."""
NUMBER: Final = itemgetter(0)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Bringer:
    """A neighbour that brings messages, either its own or those of others.

    remembered: how many messages of each sender and kind are always remembered. This is twice the
        largest window that the neighbour has announced. Our window does not matter: by the letter of 3.1.7.1, a sender
            uses its own.
    share: how many messages of both kinds together the neighbour keeps in a full table. This depends on the smaller of
        its window and ours, so that a neighbour with a large announced window cannot claim the whole table.
    """

    manager: Guid
    remembered: int = 0
    share: int = 0


@dataclass(slots=True, eq=False)
class SenderHistory:
    """The messages of one kind, express or recoverable, that came from one queue manager.

    bringer: the neighbour that brought the last message; None if none has come since the store was opened.
    arrivals: for each ordinal, its position among all arrivals, counted from 1; the oldest comes first.
    hop_counts: for messages to other queue managers, the highest hop count with which each has come.
    is_stored: whether the store may have any of the messages.
    came: how many of the sender's last messages are counted.
    dropped: how many of the counted messages were duplicates. Both numbers are halved when `came` reaches `halved_at`.
    """

    source: Guid
    recoverable: bool
    bringer: Bringer | None = None
    arrivals: dict[int, int] = field(default_factory=dict)
    hop_counts: dict[int, int] = field(default_factory=dict)
    is_stored: bool = False
    came: int = 0
    dropped: int = 0
    halved_at: int = 2 * LEAST_LOOKED_AT
    remembered_before: int = 0
    """The largest `remembered` of the neighbours that used to bring the sender's messages."""

    @property
    def spare(self) -> int:
        """How many of the oldest messages are not always remembered, but only for a while.

        It is 0 until it is known which neighbour brings the sender's messages.
        """
        if self.bringer is None:
            return 0
        return max(0, len(self.arrivals) - max(self.bringer.remembered, self.remembered_before))

    @property
    def looked_at(self) -> int:
        """The minimum number of messages needed to judge the sender.

        It is at least twice the window of the neighbour that brings them. A whole window may come twice when a
        connection breaks, and that is at most half of this number.
        """
        return max(LEAST_LOOKED_AT, self.bringer.remembered if self.bringer is not None else 0)

    def count(self, *, known: bool) -> None:
        """Count a message; `known` tells whether it is a duplicate."""
        self.came += 1
        self.dropped += known
        if self.came >= self.halved_at:
            self.came //= 2
            self.dropped //= 2
            self.halved_at = 2 * self.looked_at

    def brought_by(self, bringer: Bringer | None) -> None:
        """Set the neighbour that brings the sender's messages from now on.

        Some messages may still come from the previous neighbour.
        """
        if self.bringer is not None:
            self.remembered_before = max(self.remembered_before, self.bringer.remembered)
        self.bringer = bringer


class Group(NamedTuple):
    """Senders whose messages may be forgotten.

    senders: for each sender, how many of its oldest messages may be forgotten.
    most: the maximum number of messages to forget in the whole group.
    """

    senders: list[tuple[SenderHistory, int]]
    most: int


class MessageIdHistory:
    """The identifiers of the messages that came, by sender and kind; at most `size` in total.

    A message is identified by its source queue manager and its ordinal. 3.1.5.8.1 compares only the ordinal, but then a
    sender's messages would be dropped because of another sender's messages with the same ordinals.

    A message for others may legitimately come twice: if the route beyond us changes, it comes back with more hops than
    before. By the letter of 3.1.5.8.1, the only copy would be discarded. So it is a duplicate only if it has no more
    hops than an earlier copy. Hop counts are kept only in memory; after a restart, the destination drops remaining
    duplicates.

    An entry takes about 100 bytes, and a sender takes about 500 more.

    Args:
        connected: returns the queue managers that have a session with us.
        size: the maximum number of entries.
        unstored: the senders whose messages are remembered only in memory.
    """

    def __init__(
        self,
        settings: Settings,
        timers: Timers,
        rows: Iterable[IdentifierRow],
        now: Moment,
        connected: Callable[[], Collection[Guid]],
        size: int,
        unstored: Collection[Guid] = (),
    ) -> None:
        self._settings = settings
        self.most = size
        self._timers = timers
        self._connected = connected
        self._unstored = unstored
        self._kept_s = settings.remove_duplicate_cleanup_ms // 1_000
        self._senders: dict[tuple[Guid, bool], SenderHistory] = {}
        self._bringers: WeakValueDictionary[Guid, Bringer] = WeakValueDictionary()
        self._bringer: Bringer | None = None
        self.size = 0
        self._arrival_count = 0
        self._second: int | None = None
        self._seconds: deque[tuple[int, int]] = deque(maxlen=2 * self._kept_s + 2)
        """For each second, UTC, in which messages came, the position of its first arrival among all arrivals."""
        self.duplicate_count = 0
        self.duplicates: dict[Guid, int] = {}
        """The number of duplicates from each sender, for at most COUNTED_SENDERS senders."""
        for row in rows:
            sender = self._sender(row.source, recoverable=True)
            sender.is_stored = True
            self._arrived(sender, row.ordinal, row.time_stamp_s)
        if self.size:
            self._start(now)

    def __len__(self) -> int:
        return self.size

    def brought_by(self, manager: Guid, window_size: int) -> None:
        """Set the neighbour that brings the next messages, and the window that it announces."""
        bringer = self._bringers.get(manager)
        if bringer is None:
            bringer = self._bringers[manager] = Bringer(manager)
        # A neighbour that pauses announces a window of one; what it had on its way may still come again.
        bringer.remembered = max(bringer.remembered, 2 * window_size)
        share = WINDOWS_REMEMBERED * min(window_size, self._settings.window_size)
        bringer.share = max(bringer.share, share)
        self._bringer = bringer

    def came_before(self, source: Guid, ordinal: int, hop_count: int | None, *, recoverable: bool) -> bool:
        """Whether this message has come before.

        hop_count: the hop count of a message for another queue manager; None for a message to us.
        """
        sender = self._senders.get((source, recoverable))
        return sender is not None and _came_before(sender, ordinal, hop_count)

    def drops_most_of(self) -> dict[Guid, tuple[int, int]]:
        """Return the senders whose recent messages were mostly duplicates.

        Each comes with the numbers of duplicates and of all messages.
        """
        found: dict[Guid, tuple[int, int]] = {}
        for sender in self._senders.values():
            if sender.came >= sender.looked_at and 2 * sender.dropped > sender.came:
                dropped, came = found.get(sender.source, (0, 0))
                found[sender.source] = (dropped + sender.dropped, came + sender.came)
        return found

    def is_duplicate(
        self,
        source: Guid,
        ordinal: int,
        now: Moment,
        writes: PendingWrites,
        *,
        recoverable: bool,
        hop_count: int | None = None,
    ) -> bool:
        """Return whether this message has come before, and remember the message.  3.1.5.8.1, 3.1.5.8.2

        Entries for recoverable messages to us survive a crash, as do the messages. `hop_count` is as for `came_before`.
        """
        sender = self._senders.get((source, recoverable)) or self._sender(source, recoverable=recoverable)
        if sender.bringer is not self._bringer:
            sender.brought_by(self._bringer)
        known = ordinal in sender.arrivals and _came_before(sender, ordinal, hop_count)
        self._arrived(sender, ordinal, now.utc_s)
        sender.count(known=known)
        if hop_count is not None:
            if not known:
                sender.hop_counts[ordinal] = hop_count
        elif recoverable and source not in self._unstored:
            sender.is_stored = True
            writes.urgent().identifiers.append(IdentifierRow(source, ordinal, now.utc_s))
        if known:
            self._count_duplicate(source)
            return True
        if not self._timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None):
            self._start(now)
        return False

    def _sender(self, source: Guid, *, recoverable: bool) -> SenderHistory:
        sender = self._senders.get((source, recoverable))
        if sender is None:
            sender = self._senders[source, recoverable] = SenderHistory(source, recoverable)
        return sender

    def _arrived(self, sender: SenderHistory, ordinal: int, utc_s: int) -> None:
        self._arrival_count = number = self._arrival_count + 1
        if utc_s != self._second:
            self._second = utc_s
            self._seconds.append((number, utc_s))
        if sender.arrivals.pop(ordinal, None) is None:
            self.size += 1
        sender.arrivals[ordinal] = number

    def _count_duplicate(self, source: Guid) -> None:
        self.duplicate_count += 1
        if source in self.duplicates or len(self.duplicates) < COUNTED_SENDERS:
            self.duplicates[source] = self.duplicates.get(source, 0) + 1

    # Forgetting

    def clean_up(self, now: Moment, writes: PendingWrites) -> None:
        """Forget entries older than the timer's duration, unless they are among their sender's newest. 3.1.6.7"""
        before_s = now.utc_s - self._kept_s
        while self._seconds and self._seconds[0][1] < before_s:
            self._seconds.popleft()
        if not self._seconds:
            self._second = None
        first_young = self._seconds[0][0] if self._seconds else self._arrival_count + 1
        for sender in list(self._senders.values()):
            spare = islice(sender.arrivals.items(), sender.spare)
            self._forget(sender, [ordinal for ordinal, number in spare if number < first_young], writes)
        if any(sender.spare or sender.bringer is None for sender in self._senders.values()):
            self._start(now)

    def make_room(self, writes: PendingWrites) -> None:
        """Keep the table within its size by forgetting entries in the order that the module describes.

        Call this only after the writes have been taken. Otherwise a transaction could delete an entry that it also
        adds.
        """
        size = self.most
        below = size - size // MARGIN
        for rule, goal in (
            (self._young, below),
            (self._surplus, 0),
            (self._of_the_absent, below),
            (self._above_the_share, size),
        ):
            if self.size <= size:
                return
            for group in rule():
                self._forget_oldest(group.senders, min(group.most, self.size - goal), writes)

    def _young(self) -> list[Group]:
        senders = [(sender, sender.spare) for sender in self._senders.values() if sender.spare]
        return [Group(senders, sum(spare for _, spare in senders))]

    def _surplus(self) -> list[Group]:
        return [
            _all_but(bringer.share, senders)
            for bringer, senders in self._by_bringer().items()
            if bringer is not None
        ]

    def _of_the_absent(self) -> list[Group]:
        connected = self._connected()
        absent = [
            sender
            for sender in self._senders.values()
            if sender.source not in connected
            and (sender.bringer is None or sender.bringer.manager not in connected)
        ]
        return [_all_but(0, absent)]

    def _above_the_share(self) -> list[Group]:
        groups = list(self._by_bringer().values())
        left, share = self.most, 0
        counts = sorted(_count(senders) for senders in groups)
        for index, count in enumerate(counts):
            share = left // (len(counts) - index)
            if count > share:
                break
            left -= count
        return [_all_but(share, senders) for senders in groups]

    def _by_bringer(self) -> dict[Bringer | None, list[SenderHistory]]:
        groups: dict[Bringer | None, list[SenderHistory]] = {}
        for sender in self._senders.values():
            groups.setdefault(sender.bringer, []).append(sender)
        return groups

    def _forget_oldest(
        self, senders: list[tuple[SenderHistory, int]], count: int, writes: PendingWrites
    ) -> None:
        """Forget the `count` oldest messages of these senders.

        The number that is given with each sender limits how many of its messages are forgotten.
        """
        if count <= 0:
            return
        found = [
            (number, ordinal, sender)
            for sender, most in senders
            for ordinal, number in islice(sender.arrivals.items(), min(most, count))
        ]
        if len(senders) > 1:
            found.sort(key=NUMBER)
        chosen: dict[SenderHistory, list[int]] = {}
        for _, ordinal, sender in found[:count]:
            chosen.setdefault(sender, []).append(ordinal)
        for sender, ordinals in chosen.items():
            self._forget(sender, ordinals, writes)

    def _forget(self, sender: SenderHistory, ordinals: list[int], writes: PendingWrites) -> None:
        for ordinal in ordinals:
            del sender.arrivals[ordinal]
            sender.hop_counts.pop(ordinal, None)
        self.size -= len(ordinals)
        if sender.is_stored and ordinals:
            writes.later.forget_identifiers(sender.source, ordinals)
        if not sender.arrivals:
            del self._senders[sender.source, sender.recoverable]

    def _start(self, now: Moment) -> None:
        deadline_ms = now.uptime_ms + self._settings.remove_duplicate_cleanup_ms
        self._timers.start(Timer.MESSAGE_ID_HISTORY_CLEANUP, None, deadline_ms)


class Histories(NamedTuple):
    """The history of known queue managers, and the history of strangers.

    Strangers cannot push entries out of the former. The store has one row for each source and ordinal, whoever brought
    the message. So it has no rows for strangers that present the GUID of a known queue manager. Otherwise, after a
    restart, genuine messages would count as duplicates of the strangers' messages.
    """

    known: MessageIdHistory
    strangers: MessageIdHistory

    def of(self, remote: Remote) -> MessageIdHistory:
        """Return the history in which the messages of this session are remembered."""
        return self.known if remote.is_proven else self.strangers


def _came_before(sender: SenderHistory, ordinal: int, hop_count: int | None) -> bool:
    return ordinal in sender.arrivals and (
        hop_count is None or hop_count <= sender.hop_counts.get(ordinal, -1)
    )


def _count(senders: Iterable[SenderHistory]) -> int:
    return sum(len(sender.arrivals) for sender in senders)


def _all_but(count: int, senders: list[SenderHistory]) -> Group:
    """Return a group with all messages of these senders, except for the `count` newest of them."""
    return Group([(sender, len(sender.arrivals)) for sender in senders], max(0, _count(senders) - count))
