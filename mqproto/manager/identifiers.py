"""Which messages came before: the MessageIDHistoryTable.  [MS-MQQB] 3.1.1.3, 3.1.5.8.1, 3.1.6.7"""

from __future__ import annotations

from collections.abc import Iterable

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.turn.effects import IdentifierRow
from mqproto.turn.pending import PendingWrites
from mqproto.wire.guid import Guid


class MessageIdHistory:
    """Identifiers of the messages that came, newest last; at most `remove_duplicate_size` of them.

    A message is known by its source queue manager and its ordinal together. 3.1.5.8.1 compares the ordinal alone;
    two senders that count alike would then lose messages to each other.

    A message for others may rightly come twice: the way behind us has changed, and it comes back, with more hops than
    before. By the letter it would be discarded, and nobody else has it. So of those only a copy that has no more hops
    than one before it is a duplicate. Memory alone knows of those: after a restart the destination drops what is left.
    """

    def __init__(
        self, settings: Settings, timers: Timers, rows: Iterable[IdentifierRow], now: Moment
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._times = {(row.source, row.ordinal): row.time_stamp_s for row in rows}
        self._hop_counts: dict[tuple[Guid, int], int] = {}
        """Of messages for others, the highest hop count with which each has come."""
        self.duplicate_count = 0
        if self._times:
            self._start(now)

    def __len__(self) -> int:
        return len(self._times)

    def came_before(self, source: Guid, ordinal: int, hop_count: int | None) -> bool:
        """Whether this message came before.

        hop_count: of one for others; None for one of ours.
        """
        key = (source, ordinal)
        return key in self._times and (hop_count is None or hop_count <= self._hop_counts.get(key, -1))

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
        """Whether this message came before; from now on it did.  3.1.5.8.1, 3.1.5.8.2

        What is remembered of recoverable ones of ours survives a crash, as the messages do; `hop_count` is as above.
        """
        key = (source, ordinal)
        known = self.came_before(source, ordinal, hop_count)
        self._times.pop(key, None)
        self._times[key] = now.utc_s
        if hop_count is not None and not known:
            self._hop_counts[key] = hop_count
        if recoverable and hop_count is None:
            writes.urgent().identifiers.append(IdentifierRow(source, ordinal, now.utc_s))
        if known:
            self.duplicate_count += 1
            return True
        if len(self._times) > self._settings.remove_duplicate_size:
            oldest = next(iter(self._times))
            del self._times[oldest]
            self._hop_counts.pop(oldest, None)
        if not self._timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None):
            self._start(now)
        return False

    def clean_up(self, now: Moment, writes: PendingWrites) -> None:
        """Forget what is older than the timer is long.  3.1.6.7"""
        before_s = now.utc_s - self._settings.remove_duplicate_cleanup_ms // 1_000
        self._times = {key: time_s for key, time_s in self._times.items() if time_s >= before_s}
        self._hop_counts = {key: count for key, count in self._hop_counts.items() if key in self._times}
        writes.later.identifiers_before_s = before_s
        if self._times:
            self._start(now)

    def _start(self, now: Moment) -> None:
        deadline_ms = now.uptime_ms + self._settings.remove_duplicate_cleanup_ms
        self._timers.start(Timer.MESSAGE_ID_HISTORY_CLEANUP, None, deadline_ms)
