"""What a node keeps of those who invoke numbered operations: what came of their last ones, over its own restarts too.

An outcome is written in one transaction with what its operation did. It is forgotten when its invoker has gone on far
enough, or has not come back for long: a client that lives in one process for minutes, one with a journal for a month.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.edge.operations import Answer, Performer
from mqproto.manager.queuemanager import QueueManager
from mqproto.turn.effects import OutcomeRow
from simulator.node.control import PROFILE, InDoubt

KEPT_S: Final = 600
"""How long a node waits for an invoker whose connection broke."""
LASTING_KEPT_S: Final = 30 * 86_400
"""The same for one that keeps a journal."""
INVOKER_LIMIT: Final = 10_000
LOOK_S: Final = 60
"""How often a node looks for invokers that do not come back."""
IDENTITY_BYTES: Final = 16


class Known:
    """One invoker: what is remembered of its operations, and which of that is on disk."""

    def __init__(self, invoker: bytes, *, lasting: bool, now_s: int) -> None:
        self.invoker = invoker
        self.lasting = lasting
        self.performer = Performer(PROFILE)
        self.on_disk: set[int] = set()
        self.last_s = now_s
        """When it last invoked something, UTC."""


class Performers:
    """All invokers that a node knows.

    Args:
        core: writes what is to be kept.
        rows: what the store has.
        now_s: when the node started, UTC. The connections of those in `rows` broke no later, but the node may have been
            away for longer than it waits for them.
    """

    def __init__(self, core: QueueManager, rows: Iterable[OutcomeRow], now_s: int) -> None:
        self._core = core
        self._known: dict[bytes, Known] = {}
        self._connected: set[bytes] = set()
        self._looked_s = 0
        kept: dict[bytes, list[OutcomeRow]] = {}
        for row in rows:
            kept.setdefault(row.invoker, []).append(row)
        for invoker, outcomes in kept.items():
            lasting = outcomes[0].lasting
            newest = max(row.performed_s for row in outcomes)
            known = Known(invoker, lasting=lasting, now_s=newest if lasting else now_s)
            known.performer = Performer(PROFILE, [(row.identifier, row.outcome) for row in outcomes])
            known.on_disk = {row.identifier for row in outcomes}
            self._known[invoker] = known

    def __len__(self) -> int:
        return len(self._known)

    def connected(self, invoker: bytes, following: int | None = None) -> None:
        """It has a connection, and is not forgotten while it has.

        following: the identifier of its next operation.
        """
        self._connected.add(invoker)
        known = self._known.get(invoker)
        if known is not None and following is not None:
            gone = known.on_disk.intersection(known.performer.go_on(following))
            if gone:
                self._core.remember({(invoker, each): None for each in gone}, needed=True)
                known.on_disk -= gone

    def gone(self, invoker: bytes, now_s: int) -> None:
        """It has none any more; it may come back."""
        self._connected.discard(invoker)
        if invoker in self._known:
            self._known[invoker].last_s = now_s

    def invoke(self, invoker: bytes, identifier: int, now_s: int, *, lasting: bool) -> bytes | None:
        """An operation is invoked: what came of it, or None if it is to be performed now.

        Raises:
            InDoubt: it may have been performed, and its outcome forgotten.
            UsageError: there are too many invokers.
        """
        self._look(now_s)
        known = self._known.get(invoker)
        if known is None:
            if len(self._known) >= INVOKER_LIMIT:
                self._make_room()
            known = self._known[invoker] = Known(invoker, lasting=lasting, now_s=now_s)
        known.last_s = now_s
        match known.performer.invoke(identifier):
            case Answer.PERFORM:
                return None
            case Answer.REPEAT:
                return known.performer.outcome(identifier)
            case answer:
                assert answer is Answer.REFUSE, "each operation is performed at once"
                raise InDoubt(
                    f"operation {identifier} is older than the {PROFILE} that are remembered: it may have been carried "
                    "out, or not"
                )

    def performed(self, invoker: bytes, identifier: int, outcome: bytes, now_s: int) -> None:
        """It was, or was refused, just now: its outcome joins what it wrote."""
        known = self._known[invoker]
        kept = known.performer.complete(identifier, outcome)
        rows: dict[tuple[bytes, int], OutcomeRow | None] = {
            (invoker, each): None for each in kept.forgotten if each in known.on_disk
        }
        # An identifier comes round again: what is on disk must never be older than what is remembered.
        needed = bool(rows)
        rows[invoker, identifier] = OutcomeRow(invoker, identifier, outcome, known.lasting, now_s)
        if self._core.remember(rows, needed=needed):
            known.on_disk -= set(kept.forgotten)
            known.on_disk.add(identifier)

    def _look(self, now_s: int) -> None:
        """Forget those that do not come back."""
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        self._forget(
            known
            for known in self._known.values()
            if now_s - known.last_s > (LASTING_KEPT_S if known.lasting else KEPT_S)
        )

    def _make_room(self) -> None:
        """Forget the one with no journal that has been away for longest.

        Raises:
            UsageError: there is none.
        """
        away = [
            known
            for known in self._known.values()
            if not known.lasting and known.invoker not in self._connected
        ]
        if not away:
            raise UsageError(
                f"{INVOKER_LIMIT:,} clients are remembered, those with a journal for {LASTING_KEPT_S // 86_400} days: "
                "use a journal that there is, or none"
            )
        self._forget([min(away, key=lambda known: known.last_s)])

    def _forget(self, chosen: Iterable[Known]) -> None:
        forgotten = [known.invoker for known in chosen if known.invoker not in self._connected]
        for invoker in forgotten:
            del self._known[invoker]
        self._core.forget(forgotten)
