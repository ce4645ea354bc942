"""Remembers the outcomes of invokers' last numbered operations, even across restarts of the node.

An outcome is written in one transaction with its operation's effect. It is forgotten when its invoker has invoked
enough further operations, or has been away for too long. A client that lives in one process may be away for minutes,
and a client with a journal for a month.

A forgotten invoker learns this when it comes back, and performs nothing again. So each invoker has a birth, which the
node gives it before its first operation: the identity of this store, and the time on the node's own clock. For each
kind of invoker, the store keeps the latest birth of any forgotten invoker. If a remembered invoker's birth is not later
than that, the invoker keeps a row, even if it has invoked nothing. So an invoker without a row was forgotten if its
birth is not later than the kept one, or is from another store; otherwise the invoker is new.

An invoker may show no birth, because the specification does not have births. It is remembered if it continues where the
invoker of that name stopped. This is decided by its first operation, and by its next operation identifier if it gives
one. A new operation never gets an old outcome: an invoker that has lost count begins with 0, and then nothing is
remembered.

A restored store forgets all invokers, and counts as another store from then on: it does not know which of their later
operations were performed.

The clock counts the seconds in which the node ran. It ignores the dates of node and client, so a jump of a date does
not shorten any time or shut out any client.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.edge.operations import Answer, Performer
from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.node.control import BIRTH_BYTES, LASTING_KEPT_DAYS, PROFILE, InDoubt
from mqproto.turn.effects import INVOKER_ITSELF, OutcomeRow, StoredState

KEPT_S: Final = 600
"""The time, in seconds, that a node waits for an invoker whose connection broke."""
LASTING_KEPT_S: Final = LASTING_KEPT_DAYS * 86_400
"""The time, in seconds, that a node waits for an invoker that keeps a journal."""
INVOKER_LIMIT: Final = 10_000
LOOK_S: Final = 60
"""The interval, in seconds, at which a node looks for invokers that have not come back."""
SEEN_S: Final = 3_600
"""After a crash, a lasting invoker's last contact may be dated up to this many seconds too early."""
IDENTITY_BYTES: Final = 16

# The counters of the store.
STORE: Final = "invokers_store"
"""The name of the counter that holds the store's identity, a number that no other store has."""
CLOCK: Final = "invokers_clock_s"
FORGOTTEN: Final = {False: "invokers_forgotten_s", True: "lasting_invokers_forgotten_s"}
"""The names of the counters for the latest forgotten birth: False for ordinary invokers, True for lasting ones."""

_birth = struct.Struct(">QQ")
assert _birth.size == BIRTH_BYTES


class Recalled:
    """One invoker, the remembered outcomes of its operations, and which of these are on disk.

    birth_s: the time of the invoker's birth; None if the invoker is known only from a store of layout 4.
    """

    def __init__(self, invoker: bytes, *, lasting: bool, birth_s: int | None, now_s: int) -> None:
        self.invoker = invoker
        self.lasting = lasting
        self.birth_s = birth_s
        self.performer = Performer(PROFILE)
        self.on_disk: set[int] = set()
        """The operation identifiers whose outcomes are on disk, and INVOKER_ITSELF if the invoker's own row is on
        disk.
        """
        self.last_s = now_s
        """The time at which the invoker last invoked an operation or disconnected."""
        self.seen_s = now_s
        """The value of `last_s` that is on disk."""

    def itself(self, now_s: int) -> dict[tuple[bytes, int], OutcomeRow | None]:
        """Return the invoker's own row, and record that it is on disk."""
        if self.birth_s is None:
            return {}
        self.on_disk.add(INVOKER_ITSELF)
        self.seen_s = now_s
        birth = self.birth_s.to_bytes(8)
        return {
            (self.invoker, INVOKER_ITSELF): OutcomeRow(
                self.invoker, INVOKER_ITSELF, birth, self.lasting, now_s
            )
        }


class Connected(NamedTuple):
    """The facts about an invoker that has a connection."""

    lasting: bool
    birth_s: int | None
    is_certain: bool
    """Whether it is certain that the invoker continues where the earlier invoker of its name stopped."""


class Performers:
    """All invokers that a node knows.

    Args:
        core: writes the outcomes that have to be kept.
        state: the invokers and outcomes in the store.
        now: the time at which the node started. The connections of invokers in `state` broke before that.
    """

    def __init__(self, core: QueueManager, state: StoredState, now: Moment) -> None:
        self._core = core
        self._known: dict[bytes, Recalled] = {}
        self._connected: dict[bytes, Connected] = {}
        counters = state.counters
        self._store_is_new = STORE not in counters
        self._store = counters.get(STORE) or secrets.randbits(62) + 1
        self._forgotten_s = {lasting: counters.get(name, 0) for lasting, name in FORGOTTEN.items()}
        start_s = counters.get(CLOCK, 1)
        self._ahead_s = start_s - now.uptime_ms // 1_000
        """The number of seconds by which the clock is ahead of the uptime."""
        self._looked_s = start_s
        kept: dict[bytes, list[OutcomeRow]] = {}
        for row in state.outcomes:
            kept.setdefault(row.invoker, []).append(row)
        if state.life is not None and state.life.is_restored:
            # The store is from an earlier moment, so neither what it knows nor what it lacks counts. A new identity
            # makes all births unknown.
            self._store, self._store_is_new = secrets.randbits(62) + 1, False
            core.forget(kept, {}, {STORE: self._store})
            kept.clear()
        for invoker, rows in kept.items():
            self._known[invoker] = _recalled(invoker, rows, start_s)

    def __len__(self) -> int:
        return len(self._known)

    def connected(
        self, invoker: bytes, now: Moment, *, lasting: bool, birth: bytes = b"", following: int | None = None
    ) -> tuple[bytes, bool]:
        """Record that an invoker has a connection. While it has one, it is not forgotten.

        Args:
            birth: the birth that the invoker was given last; empty if it was given none, or does not show it.
            following: the identifier of the invoker's next operation; None if it does not give this.

        Returns:
            The invoker's birth, and whether its earlier operations are remembered. An invoker that gives
            neither argument counts as remembered until it invokes something.
        """
        now_s = self._now_s(now)
        self._connected.pop(invoker, None)
        known = before = self._known.get(invoker)
        store, birth_s = _birth.unpack(birth) if len(birth) == BIRTH_BYTES else (0, None)
        if known is not None:
            remembered = birth_s == known.birth_s and store in (0, self._store)
            if not birth and known.birth_s is not None:
                remembered = following is None or known.performer.goes_on(following, is_new=True)
                birth_s = known.birth_s
        else:
            remembered = store == self._store and birth_s > self._forgotten_s[lasting]
        if not remembered:
            if known is not None:
                self._forget([known], now_s)
                known = None
            birth_s = max(now_s, self._forgotten_s[lasting] + 1)
            if birth or before or self._store_is_new:
                # The disk knows the store's number, and has forgotten the old invoker, before it is told its birth.
                self._core.remember({}, needed=True, counters={STORE: self._store})
                self._store_is_new = False
        self._connected[invoker] = Connected(lasting, birth_s, bool(birth))
        if known is not None:
            if rows := self._seen([known], now_s):
                self._core.remember(rows, needed=True)
            if following is not None:
                gone = known.on_disk.intersection(known.performer.go_on(following))
                if gone:
                    self._core.remember({(invoker, each): None for each in gone}, needed=True)
                    known.on_disk -= gone
        return (b"" if birth_s is None else _birth.pack(self._store, birth_s)), remembered

    def gone(self, invoker: bytes, now: Moment) -> None:
        """Record that an invoker's connection ended; the invoker may come back."""
        self._connected.pop(invoker, None)
        if (known := self._known.get(invoker)) is not None:
            known.last_s = self._now_s(now)
            self._core.forget([], self._seen([known], known.last_s))

    def invoke(self, invoker: bytes, identifier: int, now: Moment) -> bytes | None:
        """Return the outcome of an operation that was already performed, or None if it has to be performed now.

        Raises:
            InDoubt: the operation may have been performed, but its outcome has been forgotten.
            UsageError: there are too many invokers.
        """
        now_s = self._now_s(now)
        self._look(now_s)
        known = self._known.get(invoker)
        if known is None:
            if len(self._known) >= INVOKER_LIMIT:
                self._make_room(now_s)
            lasting, birth_s, _ = self._connected[invoker]
            known = self._known[invoker] = Recalled(invoker, lasting=lasting, birth_s=birth_s, now_s=now_s)
        elif not self._connected[invoker].is_certain and not known.performer.goes_on(
            identifier, is_new=False
        ):
            gone = known.on_disk - {INVOKER_ITSELF}
            self._core.remember({(invoker, each): None for each in gone}, needed=bool(gone))
            known.performer, known.on_disk = Performer(PROFILE), known.on_disk - gone
        self._connected[invoker] = self._connected[invoker]._replace(is_certain=True)
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

    def performed(self, invoker: bytes, identifier: int, outcome: bytes, now: Moment) -> None:
        """Keep the outcome of an operation that was just performed or refused, in the same transaction as its
        effect.
        """
        now_s = self._now_s(now)
        known = self._known[invoker]
        kept = known.performer.complete(identifier, outcome)
        rows: dict[tuple[bytes, int], OutcomeRow | None] = {
            (invoker, each): None for each in kept.forgotten if each in known.on_disk
        }
        # Identifiers come round again, so the disk must never be older than the memory.
        needed = bool(rows)
        rows[invoker, identifier] = OutcomeRow(invoker, identifier, outcome, known.lasting, now_s)
        if self._core.remember(rows, needed=needed):
            known.on_disk -= set(kept.forgotten)
            known.on_disk.add(identifier)
            if INVOKER_ITSELF not in known.on_disk:
                self._core.remember(known.itself(now_s))

    def _now_s(self, now: Moment) -> int:
        return now.uptime_ms // 1_000 + self._ahead_s

    def _look(self, now_s: int) -> None:
        """Forget invokers that have not come back."""
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        self._forget(
            [
                known
                for known in self._known.values()
                if known.invoker not in self._connected
                and now_s - known.last_s > (LASTING_KEPT_S + SEEN_S if known.lasting else KEPT_S)
            ],
            now_s,
        )
        connected = [self._known[invoker] for invoker in self._connected if invoker in self._known]
        self._core.forget([], self._seen(connected, now_s), {CLOCK: now_s})

    def _seen(self, invokers: Iterable[Recalled], now_s: int) -> dict[tuple[bytes, int], OutcomeRow | None]:
        """Return the rows of those lasting invokers whose rows have not been written to disk for SEEN_S."""
        rows: dict[tuple[bytes, int], OutcomeRow | None] = {}
        for known in invokers:
            if known.lasting and INVOKER_ITSELF in known.on_disk and now_s - known.seen_s >= SEEN_S:
                rows |= known.itself(now_s)
        return rows

    def _make_room(self, now_s: int) -> None:
        """Forget the invoker without a journal that has been away longest.

        Raises:
            UsageError: every invoker has a connection or a journal.
        """
        away = [
            known
            for known in self._known.values()
            if not known.lasting and known.invoker not in self._connected
        ]
        if not away:
            raise UsageError(
                f"{INVOKER_LIMIT:,} clients are remembered, those with a journal for {LASTING_KEPT_DAYS} days: "
                "use a journal that there is, or none"
            )
        self._forget([min(away, key=lambda known: known.last_s)], now_s)

    def _forget(self, chosen: list[Recalled], now_s: int) -> None:
        """Forget these invokers, which have no connection. Make sure that every remaining invoker of the same or a
        greater age has a row.
        """
        if not chosen:
            return
        for known in chosen:
            del self._known[known.invoker]
            self._forgotten_s[known.lasting] = max(self._forgotten_s[known.lasting], known.birth_s or 0)
        for invoker, (lasting, birth_s, _) in self._connected.items():
            if invoker not in self._known and (birth_s or 0) <= self._forgotten_s[lasting]:
                self._known[invoker] = Recalled(invoker, lasting=lasting, birth_s=birth_s, now_s=now_s)
        rows: dict[tuple[bytes, int], OutcomeRow | None] = {}
        for known in self._known.values():
            is_as_old = (known.birth_s or 0) <= self._forgotten_s[known.lasting]
            if is_as_old and INVOKER_ITSELF not in known.on_disk:
                rows |= known.itself(now_s)
        marks = {FORGOTTEN[lasting]: birth_s for lasting, birth_s in self._forgotten_s.items()}
        self._core.forget([known.invoker for known in chosen], rows, {**marks, CLOCK: now_s})


def _recalled(invoker: bytes, rows: list[OutcomeRow], start_s: int) -> Recalled:
    """Return an invoker that was read from its rows in the store when the node started."""
    lasting = rows[0].lasting
    [*births] = [int.from_bytes(row.outcome) for row in rows if row.identifier == INVOKER_ITSELF]
    known = Recalled(invoker, lasting=lasting, birth_s=births[0] if births else None, now_s=start_s)
    if lasting:
        # Version 0.5 wrote the date, which is far ahead. And nobody could come back while the node was not running.
        known.seen_s = min(max(row.performed_s for row in rows), start_s)
        known.last_s = max(known.seen_s, start_s - LASTING_KEPT_S + KEPT_S)
    outcomes = [(row.identifier, row.outcome) for row in rows if row.identifier != INVOKER_ITSELF]
    known.performer = Performer(PROFILE, outcomes)
    known.on_disk = {row.identifier for row in rows}
    return known
