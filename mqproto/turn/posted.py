"""Messages that came over HTTP: their rows, and the acknowledgments that end them.

A row is in the transaction of its message. The message asks for acknowledgments to POSTED_QUEUE, which is an address
and not a queue: an acknowledgment that comes there changes the row, in the transaction of the turn that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mqproto.base.moment import Moment
from mqproto.formatname import PrivateName
from mqproto.turn.desk import Desk
from mqproto.turn.effects import LIFE, POSTED_LACKS_S, POSTED_UNKNOWN, PostedChange, PostedRow, StoredState
from mqproto.wire import UserMessage
from mqproto.wire.glance import correlated
from mqproto.wire.guid import Guid, guid_text
from mqproto.wire.messages import POSTED_QUEUE

RAN_S: Final = "ran_s"
"""The name of the counter for the seconds in which the queue manager has run, all its processes together."""
POSTED_ALIAS: Final = "posted_address_"
"""The beginning of the name of a counter for the number of a private queue that was such an address before.

The number follows.
"""
SHARED_LIFE: Final = "shared_ids_life"
SHARED_S: Final = "shared_ids_s"
"""The names of the counters for the life and the time of the database in which ids are shared, as last seen."""
POSTED_FORGOTTEN: Final = "posted_forgotten"
"""The name of the counter for the posted messages whose rows were deleted because they had not changed for long."""
LEAP_S: Final = 600
"""The most seconds that can pass from one look at the clock to the next. A machine that resumes may leap further."""


class RunningTime:
    """Counts the seconds in which a queue manager runs. Dates may be wrong, and time in which nothing could be posted
    ages nothing.
    """

    def __init__(self, state: StoredState, now: Moment) -> None:
        self._ran_s = self._kept_s = state.counters.get(RAN_S, 1)
        self.next_ms = now.uptime_ms + 1_000
        """When the next second will be over, on the uptime clock."""

    def now_s(self, now: Moment) -> int:
        """Return the seconds up to this moment."""
        passed_s = (now.uptime_ms - self.next_ms) // 1_000 + 1
        if passed_s > 0:
            self.next_ms += passed_s * 1_000
            self._ran_s += min(passed_s, LEAP_S)
        return self._ran_s

    def unkept(self) -> dict[str, int]:
        """Return the counter to keep, if it has changed since the last call."""
        if self._kept_s == self._ran_s:
            return {}
        self._kept_s = self._ran_s
        return {RAN_S: self._ran_s}


class PostedMessages:
    """The posted messages of one queue manager. It keeps none in memory: the shell asks the store.

    Such a message may be sent again, here or elsewhere, and is another message then, with the same address. Of one that
    is sent here, a row without queue and id has the end. Of one that is sent elsewhere, a row is made when it has
    ended: without queue, and with its identifier for an id. Both are owed, as somebody may be told about each life.
    """

    def __init__(self, desk: Desk, state: StoredState, now: Moment, next_number: Callable[[], int]) -> None:
        self._desk = desk
        self._next_number = next_number
        self.address = str(PrivateName(desk.identity, POSTED_QUEUE))
        """The format name of POSTED_QUEUE."""
        self.time = RunningTime(state, now)
        self._addresses = {POSTED_QUEUE} | {
            int(name.removeprefix(POSTED_ALIAS)) for name in state.counters if name.startswith(POSTED_ALIAS)
        }
        self._forgotten_count = state.counters.get(POSTED_FORGOTTEN, 0)
        self.shared = state.counters.get(SHARED_LIFE, 0), state.counters.get(SHARED_S, 0)
        """The life and the time of the database in which ids are shared, as last seen; 0 if none was."""
        self.is_unknown = bool(state.counters.get(POSTED_UNKNOWN))
        """Whether messages may have been posted that the store does not know, and no operator has accepted that."""
        self.lacks_s = state.counters.get(POSTED_LACKS_S, 0)
        """The date, in UTC, before which messages may have been posted that the store does not know; 0 for none."""
        self.life = state.counters.get(LIFE, 1) if state.life is None else state.life.number
        """The number of the store's life."""
        if state.life is not None and state.life.is_restored:
            self.is_unknown = True
            desk.writes.urgent().counters[POSTED_UNKNOWN] = 1

    def keep(self, rows: Sequence[PostedRow], ordinals: Sequence[int], now: Moment) -> None:
        """Keep the rows of messages that were just sent, with these MessageIDs."""
        now_s = self.time.now_s(now)
        self._put(
            row._replace(message_id=ordinal, changed_s=now_s)
            for row, ordinal in zip(rows, ordinals, strict=True)
        )

    def keep_again(self, messages: Iterable[tuple[int, str]], now: Moment) -> None:
        """Keep rows for those of these messages that ask for acknowledgments to the address.

        They were sent in another way than over HTTP. Each is given as its MessageID and its administration queue.
        """
        again = [ordinal for ordinal, admin_queue in messages if admin_queue == self.address]
        if again:
            self.keep([PostedRow(0, "", "", b"", b"", 0, owed=True)] * len(again), again, now)

    def _put(self, rows: Iterable[PostedRow]) -> None:
        writes = self._desk.writes.urgent()
        writes.posted += rows
        writes.counters |= self.time.unkept()

    def settled(self, message_id: int) -> None:
        """Record that nobody has to be told about a message any more. This may wait for the next commit."""
        self._desk.writes.later.changes.append(PostedChange(message_id, 0, 0, 0, is_settled=True))

    def forgot(self, count: int) -> None:
        """Count messages whose rows were deleted. This may wait for the next commit."""
        self._forgotten_count += count
        self._desk.writes.later.counters[POSTED_FORGOTTEN] = self._forgotten_count

    def saw(self, life: int, now_s: int) -> None:
        """Record the life and the time of the database in which ids are shared, with the next commit."""
        if self.shared != (life, now_s):
            self.shared = life, now_s
            self._desk.writes.later.counters |= {SHARED_LIFE: life, SHARED_S: now_s}

    def is_address(self, queue: object) -> bool:
        """Whether acknowledgments to a queue, as a UserHeader names it, end posted messages."""
        return queue in self._addresses

    def arrived(self, message: UserMessage, now: Moment) -> None:
        """Take an acknowledgment that came from another queue manager."""
        source, ordinal = correlated(message.properties.correlation_id)
        self.ended(source, ordinal, message.properties.message_class, message.user.sent_time_s, now)

    def ended(self, source: Guid, message_id: int, message_class: int, ended_s: int, now: Moment) -> None:
        """Record the end of a message. The last of several acknowledgments counts."""
        now_s = self.time.now_s(now)
        if source == self._desk.identity:
            self._desk.writes.urgent().changes.append(PostedChange(message_id, now_s, message_class, ended_s))
            return
        name = f"{guid_text(source)}\\{message_id}"
        self._put(
            [PostedRow(self._next_number(), "", name, b"", b"", now_s, message_class, ended_s, owed=True)]
        )

    def stop(self) -> None:
        """Keep the time, so that programs of short life age their messages, too."""
        self._desk.writes.later.counters |= self.time.unkept()
