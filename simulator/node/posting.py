"""Messages that an HTTP front hands to its node, in the same process.

A message is fed to the core with its row, and answered when the turn with both is on disk. Whether it came before is
asked of the turns that are not on disk yet, and then of the store. The order of a turn: flush, log lines, answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import MqprotoError, QuotaExceeded, UsageError
from mqproto.edge.custody import RECEIVED
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.drafts import ACKNOWLEDGE_RECEIPT, REPORT_NO_ARRIVAL, REPORT_NO_RECEIPT, Draft
from mqproto.simulator.base.storeerrors import DamageError
from mqproto.simulator.node.room import found_for
from mqproto.simulator.node.turns import Clock, PostedRoom, Turn, TurnFeed
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.posted import KEEP_S
from mqproto.simulator.topology.directory import NodeDirectory
from mqproto.turn.effects import PostedChange, PostedRow
from mqproto.wire import MessageClass
from mqproto.wire.guid import guid_text

FULL_RECEIVE: Final = ACKNOWLEDGE_RECEIPT | REPORT_NO_ARRIVAL | REPORT_NO_RECEIPT
CLASSES: Final = (RECEIVED, *(each.name for each in MessageClass if each.name.startswith("NACK_")))
"""The classes of the acknowledgments that say that a message has ended."""
FULL_S: Final = 10.0
"""The number of seconds for which a queue elsewhere counts as full after a message did not fit into it."""
TIDY_S: Final = 60
"""The interval, in seconds, at which a node looks for rows to forget."""
SLICE: Final = 64
"""The maximum number of rows that are forgotten in one turn, which takes about 3 ms if there are 10 million."""
TAKEN: Final = ("accepted", "duplicate-dropped")
"""The words in the log for messages that are answered with 200."""


class KeyReusedError(UsageError):
    """The id belongs to a message with other content."""


class IdInDoubtError(MqprotoError):
    """It cannot be known whether a message with this id was posted."""


class Posted(NamedTuple):
    """A message is on disk.

    message_id: the message's identifier; for a repetition, that of the first message.
    """

    message_id: str
    is_repeated: bool


@dataclass(slots=True)
class _Fed:
    """A row that is not on disk yet, with the turn that brings it there."""

    row: PostedRow
    turn: Turn


class Posting:
    """Takes the messages of one node's HTTP front.

    Args:
        core: sends the messages.
        directory: resolves names.
        store: knows the rows that are on disk.
        log: takes a line for each message.
        keep_s: see KEEP_S.
    """

    def __init__(
        self,
        core: QueueManager,
        directory: NodeDirectory,
        store: Store,
        turns: TurnFeed,
        clock: Clock,
        log: FilteringBoundLogger,
        keep_s: int = KEEP_S,
    ) -> None:
        self._core, self._directory, self._store = core, directory, store
        self._turns, self._clock, self._log = turns, clock, log
        self._room = PostedRoom(turns)
        self._posted = core.inspect().posted
        self.keep_s = keep_s
        self.counts: Counter[tuple[str, str]] = Counter()
        """The number of messages, by queue and by word of TAKEN."""
        self.ends: Counter[str] = Counter()
        """The number of ends, by message class."""
        self.on_end: Callable[[int], None] = lambda message_id: None
        """Called with the number of each row that has got its end, once that is on disk."""
        self._manager = guid_text(directory.node.guid)
        self.address = self._posted.address
        self._fed: dict[tuple[str, str], _Fed] = {}
        self._lines: dict[int, dict[str, Any]] = {}
        """The facts for the line of each message that is not on disk yet, by MessageID."""
        self.lines: list[tuple[str, dict[str, Any]]] = []
        """The lines to write in this turn, each with its event."""
        self._full_until_s: dict[str, float] = {}
        """When to try again to send to each queue that had no room."""

    async def post(
        self,
        queue: str,
        draft: Draft,
        key: str = "",
        fingerprint: bytes = b"",
        about: bytes = b"",
        *,
        owed: bool = False,
        called: str = "",
        **facts: str,
    ) -> Posted:
        """Return when the message is on disk, because of this call or an earlier one.

        Args:
            queue: the queue's name in rows and lines.
            draft: the message. If its administration queue is `address`, its end is put into its row.
            key: the id that its producer gave it; empty for none, so that repetitions are not noticed.
            fingerprint: a digest of the content, for comparing repetitions.
            about: what the row has to keep for the front.
            owed: whether somebody has to be told about the message later.
            called: the name of the queue at this node; by default, `queue`.
            facts: more facts for the line.

        Raises:
            KeyReusedError: the id belongs to a message with other content.
            IdInDoubtError: the store cannot know whether a message with this id was posted.
            UsageError, FormatNameError: the message cannot be sent like this, or there is no room.
        """
        await self._room.take(draft.size_bytes)
        if key:
            found = self._fed.get((queue, key))
            row = self._looked_up(queue, key) if found is None else found.row
            if row is not None:
                if row.fingerprint != fingerprint:
                    raise KeyReusedError(
                        f"the id {key} belongs to a message with other content: give each message its own"
                    )
                if found is not None:
                    await found.turn.carried_out()
                message = self.named(row.message_id)
                self.lines.append(("duplicate-dropped", _facts(message, queue, key, facts)))
                self.note()
                return Posted(message, is_repeated=True)
        destination = self._directory.destination(called or queue)
        if draft.admin_queue != self.address:
            draft = self._directory.with_format_names(draft)
        elif draft.response_queue:
            draft = self._directory.with_format_names(replace(draft, admin_queue=""))
            draft = replace(draft, admin_queue=self.address)
        row = PostedRow(0, queue, key, fingerprint, about, 0, owed=owed)
        now = self._clock.now()
        try:
            [ordinal] = self._core.enqueue([(destination, draft)], now, posted=[row])
        except QuotaExceeded:
            # A full disk may have room again.
            if not found_for(draft.size_bytes, self._core, self._store):
                raise
            [ordinal] = self._core.enqueue([(destination, draft)], now, posted=[row])
        turn = self._turns.count_posted(draft.size_bytes)
        if key:
            self._fed[queue, key] = _Fed(row._replace(message_id=ordinal), turn)
        message = self.named(ordinal)
        self._lines[ordinal] = _facts(message, queue, key, facts)
        await turn.carried_out()
        return Posted(message, is_repeated=False)

    def look(self, queue: str, key: str) -> PostedRow | None:
        """Return the row of the message with this id, as it is on disk; None if there is none.

        Raises:
            IdInDoubtError: the store cannot know whether a message with this id was posted.
        """
        return self._looked_up(queue, key)

    def _looked_up(self, queue: str, key: str) -> PostedRow | None:
        if self._posted.is_unknown:
            raise IdInDoubtError(
                "the store was put back or repaired, and may lack ids: put back a newer one, or, if they are lost, "
                f"stop the node and type: mqproto store adopt {self._directory.node.name}"
            )
        try:
            return self._store.posted(queue, key)
        except DamageError as error:
            raise IdInDoubtError(f"the row of the id {key} is damaged: {error}") from None

    def named(self, ordinal: int) -> str:
        return f"{self._manager}\\{ordinal}"

    @property
    def lacks_s(self) -> int:
        """The date, in UTC, before which ids may be unknown, as an operator has accepted; 0 if all are known."""
        return self._posted.lacks_s

    @property
    def shared(self) -> tuple[int, int]:
        """The life and the time of the database in which ids are shared, as last seen; 0 if none was."""
        return self._posted.shared

    def saw(self, life: int, now_s: int) -> None:
        """Record the life and the time of the database in which ids are shared, with the next commit."""
        self._posted.saw(life, now_s)

    @property
    def origin(self) -> str:
        """The origin of a message that comes now (history/lives.py): the life of its store, the time, and since when
        the store has all ids.
        """
        now_s = self._posted.time.now_s(self._clock.now())
        return f"{self._manager}.{self._posted.life} {now_s} {now_s - self.keep_s}"

    def full_s(self, queue: str) -> float:
        """Return the seconds until a message for a queue may be handed in; 0 if it may be handed in now."""
        until_s = self._full_until_s.get(queue)
        if until_s is None:
            return 0.0
        wait_s = until_s - trio.current_time()
        if wait_s <= 0:
            del self._full_until_s[queue]
        return max(wait_s, 0.0)

    def messages(self, queues: Iterable[str]) -> dict[tuple[str, str], int]:
        """Return how many messages were answered with 200, by queue and by word of TAKEN.

        The result includes `queues`, and all other queues for which there were any.
        """
        named = dict.fromkeys((*queues, *(queue for queue, _ in self.counts)))
        return {(queue, what): self.counts[queue, what] for queue in named for what in TAKEN}

    @property
    def under_way(self) -> int:
        """The number of messages that are not on disk yet."""
        return len(self._lines)

    def numbered(self, message_id: int) -> PostedRow | None:
        """Return the row of the message with this MessageID; None if there is none.

        Raises:
            DamageError: it differs from the row that was written.
        """
        return self._store.posted_as(message_id)

    def end_of(self, message: str) -> PostedRow | None:
        """Return the row with the end of a message, given its identifier; None if there is none, or it is damaged."""
        manager, _, ordinal = message.rpartition("\\")
        with suppress(DamageError, ValueError):
            if manager.upper() == self._manager:
                return self._store.posted_as(int(ordinal))
            return self._store.posted("", message)
        return None

    def owed(self) -> list[PostedRow]:
        """Return the rows of messages of which somebody has yet to be told."""
        return self._store.owed()

    def settled(self, row: PostedRow) -> None:
        """Record that nobody has to be told about a message any more. This may wait for the next commit."""
        self._posted.settled(row.message_id)
        self._turns.wake()

    # For the loop

    def note(self) -> None:
        """Write the lines of messages whose rows are on disk."""
        lines, self.lines = self.lines, []
        for event, facts in lines:
            self.counts[facts["queue"], event] += 1
            self._log.info(event, **facts)

    def carried_out(self, posted: list[PostedRow], changes: list[PostedChange]) -> None:
        """Record that these rows and changes are on disk."""
        for row in posted:
            if (facts := self._lines.pop(row.message_id, None)) is not None:
                self.lines.append(("accepted", facts))
            if row.key:
                self._fed.pop((row.queue, row.key), None)
            if row.message_class:
                self.on_end(row.message_id)
        for end in changes:
            if not end.message_class:
                continue
            self.ends[MessageClass(end.message_class).name] += 1
            if end.message_class == MessageClass.NACK_Q_EXCEED_QUOTA:
                self._is_full(end.message_id)
            self.on_end(end.message_id)

    def _is_full(self, message_id: int) -> None:
        with suppress(DamageError):
            if (row := self._store.posted_as(message_id)) is not None:
                self._full_until_s[row.queue] = trio.current_time() + FULL_S

    def tidy(self) -> bool:
        """Forget a slice of the rows that have not changed for long. Return whether that were all.

        A node calls this in a turn every TIDY_S seconds, and in each turn while there are more.

        Raises:
            StoreError: the disk fails.
        """
        since_s = self._posted.time.now_s(self._clock.now()) - self.keep_s
        count = self._store.forget_posted(since_s, SLICE)
        if count:
            self._posted.forgot(count)
        return count < SLICE


def _facts(message: str, queue: str, key: str, others: dict[str, str]) -> dict[str, str]:
    return {"message": message, "queue": queue, "key": key} | {
        name: value for name, value in others.items() if value
    }
