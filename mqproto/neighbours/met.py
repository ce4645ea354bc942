"""The GUIDs and addresses of undeclared queue managers that were met.

[MS-MQQB] has no such table: 3.1.5.3.1 grants a session to any GUID, and 3.1.7.17 answers the one that it presents. Here
a GUID is believed at the address where it was first met, whether we called it or it called us. Messages that wait for
it leave only over a session with that address. Declared queue managers are not in this table, and it does not affect
them.

A GUID that turns up at another address belongs to a machine with two addresses, to one that has moved, or to two
machines made from one image. So the earlier address is called. If the GUID is there, the peer at the other address gets
no session, unless an operator says that the GUID is at both addresses. An answer from the other address would prove
nothing, because anybody can present a GUID. If the GUID is no longer at the earlier address, an operator or the setting
`roaming` decides that it has moved.

The table survives restarts: each entry is stored as a special kind of row among the store's queues. A host that
presents many GUIDs displaces only its own: of the entries that may be forgotten, those of the host with the most
entries go first. While the disk is full, only operators' changes are written, so strangers do not use up the room
reserved for these changes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.routing import NextHop, Routes
from mqproto.routing.peers import host_group
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Note, QueueKind, QueueRow, StoredState
from mqproto.turn.pending import PendingWrites
from mqproto.wire.guid import Guid, guid_from_text, guid_text

DAY_S: Final = 86_400
LAST_SEEN_S: Final = 3_600
"""If a queue manager is seen at least this many seconds after the time in its row, the row is written again, even if
nothing else has changed.
"""
ASKED_INTERVALS: Final = 10
"""How many Session Retry Connect intervals pass before the earlier address is called again for a GUID."""
ALSO: Final = 8
"""The maximum number of additional addresses that an operator may give to a queue manager."""
INVITED: Final = 64
"""The maximum number of our queues to which a queue manager may send because we asked it for answers."""
FREE: Final = "free"
"""The name that marks a row in the store as free."""


class How(StrEnum):
    """The ways in which a queue manager was met, the weakest first."""

    CALLED_US = "called us"
    WAS_CALLED = "was called"
    ADDED = "added"
    """An operator gave its address."""


@dataclass(slots=True)
class Acquaintance:
    """A queue manager that was met, or added by an operator.

    manager: its GUID; None if an operator has added it and it has not been called yet.
    host: the address at which it is called, or a name that messages were sent to.
    address: where it was last seen; empty if it was never seen.
    first_s, last_s: when it was first and last seen, UTC.
    name: an operator's name for it, or empty.
    awaited_s: the time, UTC, until which answers from it are awaited; until then, it is called to collect them.
    invited: the numbers of the queues of ours to which we asked it to send answers; it may send to them.
    also: further addresses that an operator has given to it.
    other, other_s: the other address at which its GUID last turned up, and when. Unlike the other fields, these are
        lost at a restart.
    verdict: the outcome of the call to `address` that followed; empty while it is not known.
    """

    manager: Guid | None
    host: str
    address: str
    how: How
    first_s: int
    last_s: int
    name: str = ""
    awaited_s: int = 0
    invited: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    other: str = ""
    other_s: int = 0
    verdict: str = ""
    asked_ms: int | None = None
    row: int = 0
    written_s: int = 0

    def is_at(self, address: str) -> bool:
        """Return whether an address is the one where it was met, or one of its additional addresses."""
        groups = map(host_group, (self.address, *self.also) if self.address else self.also)
        return host_group(address) in groups

    def as_row(self, *, in_use: bool = True) -> QueueRow:
        """Return the entry's row for the store."""
        manager = guid_text(self.manager) if self.manager is not None else ""
        seen = (manager, self.host, self.address, self.how, self.first_s, self.last_s)
        values = (*seen, self.name, self.awaited_s, self.invited, *([self.also] if self.also else ()))
        name = json.dumps(values, separators=(",", ":")) if in_use else f"{FREE} {self.row}"
        return QueueRow(self.row, QueueKind.MET, name, on_hold=in_use)


def _from_row(number: int, name: str) -> Acquaintance:
    manager, host, address, how, first_s, last_s, called, awaited_s, invited, *also = json.loads(name)
    guid = guid_from_text(manager) if manager else None
    found = Acquaintance(guid, host, address, How(how), first_s, last_s, called, awaited_s, tuple(invited))
    found.row, found.written_s, found.also = number, last_s, tuple(*also)
    return found


class MetTable:
    """The entries of the queue managers that were met, indexes to find them, and their rows in the store.

    Args:
        next_number: returns a number for a queue that is new to the store.
    """

    def __init__(self, writes: PendingWrites, state: StoredState, next_number: Callable[[], int]) -> None:
        self._writes = writes
        self._next_number = next_number
        self.all: dict[int, Acquaintance] = {}
        """All entries, by row number."""
        self.by_manager: dict[Guid, Acquaintance] = {}
        self.by_host: dict[str, Acquaintance] = {}
        """The entries, keyed by the host that is called, in lower case; an entry may appear under several hosts."""
        self.by_name: dict[str, Acquaintance] = {}
        """The entries that an operator has named, keyed by their names in lower case."""
        self.hosts_by_name: dict[str, str] = {}
        """The hosts of the named entries, by the same lower-case names."""
        self._free: list[int] = []
        for stored in state.queues:
            if stored.kind is QueueKind.MET:
                if stored.on_hold:
                    self.index(_from_row(stored.queue, stored.name))
                else:
                    self._free.append(stored.queue)

    def add(self, found: Acquaintance) -> None:
        """Give a new entry a row; it is written by `write`."""
        found.row = self._free.pop() if self._free else self._next_number()
        self.index(found)

    def meant(self, text: str) -> Acquaintance:
        """Return the peer that an operator identifies by a name or a GUID.

        Raises:
            UsageError: there is no such peer.
        """
        found = self.by_name.get(text.casefold())
        if found is None:
            try:
                found = self.by_manager.get(guid_from_text(text))
            except ValueError:
                found = None
        if found is None:
            known = ", ".join(one.name for one in self.all.values() if one.name) or "none"
            raise UsageError(
                f"no peer is called {text!r}, and none with that GUID was met; names are: {known}"
            )
        return found

    def remove(self, found: Acquaintance, *, urgent: bool) -> None:
        """Remove an entry from the table and from the store, and free its row."""
        del self.all[found.row]
        self.unname(found)
        self.unindex_host(found)
        if found.manager is not None:
            del self.by_manager[found.manager]
        self._free.append(found.row)
        self._writes.put_row(found.as_row(in_use=False), urgent=urgent)

    def index(self, found: Acquaintance) -> None:
        """Index an entry under its row, and under its GUID and its name if it has them.

        It is also indexed under its host, unless the queue manager was met only because it called us.
        """
        self.all[found.row] = found
        if found.manager is not None:
            self.by_manager[found.manager] = found
        if found.how is not How.CALLED_US:
            self.by_host[found.host.casefold()] = found
        if found.name:
            self.by_name[found.name.casefold()] = found
            self.hosts_by_name[found.name.casefold()] = found.host

    def unindex_host(self, found: Acquaintance) -> None:
        """Remove an entry from the index of hosts."""
        if found.how is not How.CALLED_US:  # There may be many of those, and none of them is called anywhere.
            self.by_host = {host: one for host, one in self.by_host.items() if one is not found}

    def unname(self, found: Acquaintance) -> None:
        """Remove an entry from the indexes of names."""
        if found.name:
            del self.by_name[found.name.casefold()], self.hosts_by_name[found.name.casefold()]

    def write(self, found: Acquaintance, *, urgent: bool = False) -> None:
        """Write the row of an entry as it is now."""
        found.written_s = found.last_s
        self._writes.put_row(found.as_row(), urgent=urgent)


class Met:
    """All queue managers that were met.

    Args:
        next_number: returns a number for a queue that is new to the store.
    """

    def __init__(
        self, desk: Desk, routes: Routes, state: StoredState, now: Moment, next_number: Callable[[], int]
    ) -> None:
        self._desk = desk
        self._routes = routes
        self._table = MetTable(desk.writes, state, next_number)
        self.hosts_by_name = self._table.hosts_by_name
        self.news: dict[Guid, None] = {}
        """The queue managers that were met, have moved, or were forgotten in this turn."""
        self.doubts: dict[Guid, None] = {}
        """The queue managers that may no longer be where they were met; they are asked in this turn."""
        self._forget_old(now)

    def __iter__(self) -> Iterator[Acquaintance]:
        return iter(self._table.all.values())

    def get(self, manager: Guid | None) -> Acquaintance | None:
        """Return the entry with this GUID; None if there is none, or if the GUID is declared."""
        if manager is None or self._routes.declares(manager):
            return None
        return self._table.by_manager.get(manager)

    def hop_to(self, manager: Guid) -> tuple[NextHop, ...]:
        """Return the next hops to a queue manager that was met; empty for any other."""
        found = self.get(manager)
        return () if found is None else (NextHop(manager, found.host, learnt=True),)

    def may_call(self, manager: Guid | None) -> bool:
        """Return whether the node may call a queue manager.

        It may if it has called the queue manager before, or if an operator allows it.
        """
        found = self.get(manager)
        return found is not None and (found.how is not How.CALLED_US or self._routes.may_call(found.host))

    # Which GUID is seen where

    def refusal(self, manager: Guid, address: str, now: Moment) -> str | None:
        """Return why a GUID gets no session from an address; None if it may get one.

        A GUID that was met at another address gets none. In that case, a call to the earlier address is arranged,
        unless one was arranged recently. The call checks whether the GUID is still there.
        """
        found = self._current(manager, now)
        if found is None or not found.address or found.is_at(address):
            return None
        self._doubt(found, address, now)
        was = f"queue manager {guid_text(manager)} was met at {found.address}, and comes from {address}"
        return f"{was}: {found.verdict or 'the address before is asked whether it is still there'}"

    def seen(self, manager: Guid, host: str, address: str, now: Moment, *, called: bool) -> bool:
        """Record where a GUID was presented. Return whether that address is the known one.

        The first address at which a GUID is seen becomes the known one.

        Args:
            host: the host that we called, or that called us.
            address: the address of that host.
            called: whether we called it by a name that messages were sent to.
        """
        if self._routes.declares(manager):
            return False
        found = self._current(manager, now) or self._unseen_at(host)
        if found is None:
            how = How.WAS_CALLED if called else How.CALLED_US
            found = Acquaintance(manager, host, address, how, now.utc_s, now.utc_s)
            if not self._take_in(found, now):
                return False
            self.news[manager] = None
            self._table.write(found)
            return True
        by_name = called and found.host.casefold() == host.casefold()
        if found.address and not found.is_at(address) and not by_name:
            if called:
                found.other, found.other_s = address, now.utc_s
                found.verdict = f"it was called there as {host}; both lead to it, and nothing is refused"
            else:
                self._doubt(found, address, now)
            return False
        if found.address and host_group(address) in map(host_group, found.also):
            address = found.address  # It stays where it was met, and is at the other address as well.
        changes = found.address != address or found.manager is None
        if called:
            changes |= self._is_also(found, host)
        if found.manager is None:
            found.manager = manager
            self._table.by_manager[manager] = found
        if called and found.how is How.CALLED_US:
            found.how, found.host, changes = How.WAS_CALLED, host, True
            self._table.index(found)
        elif found.how is How.CALLED_US:
            found.host = address
        found.address, found.last_s = address, max(now.utc_s, found.last_s)
        if changes:
            self.news[manager] = None
        if changes or found.last_s - found.written_s >= LAST_SEEN_S:
            self._table.write(found)
        return True

    def _is_also(self, found: Acquaintance, host: str) -> bool:
        """Record that a known entry has answered at a host. Return whether the store has to be updated.

        If the host has an entry without a GUID, both entries are the same queue manager. The known entry then takes
        over the expected answers and, if it has no name, the name that an operator gave.
        """
        unseen = self._unseen_at(host)
        if unseen is None or unseen is found:
            return False
        found.invited = tuple(dict.fromkeys((*found.invited, *unseen.invited)))[:INVITED]
        found.awaited_s = max(found.awaited_s, unseen.awaited_s)
        if unseen.how is How.ADDED:
            if found.name:
                return True
            found.name, found.host, found.how = unseen.name, host, How.ADDED
        self._forget(unseen)
        self._table.index(found)
        self._table.by_host[host.casefold()] = found
        return True

    def _unseen_at(self, host: str) -> Acquaintance | None:
        """Return the entry for a host if the entry has had no GUID until now; None if there is no such entry."""
        found = self._table.by_host.get(host.casefold())
        return found if found is not None and found.manager is None else None

    def _doubt(self, found: Acquaintance, address: str, now: Moment) -> None:
        assert found.manager is not None
        if found.other != address:
            found.other, found.verdict = address, ""
        found.other_s = now.utc_s
        pause_ms = ASKED_INTERVALS * self._desk.settings.try_connect_interval_ms
        if found.asked_ms is None or now.uptime_ms - found.asked_ms >= pause_ms:
            found.asked_ms = now.uptime_ms
            self.doubts[found.manager] = None

    def take_doubts(self) -> list[Acquaintance]:
        """Return the queue managers to call at their earlier addresses, to check whether they are still there."""
        doubts, self.doubts = self.doubts, {}
        return [self._table.by_manager[manager] for manager in doubts if manager in self._table.by_manager]

    def answered(self, manager: Guid) -> None:
        """Record that a queue manager still answers at its earlier address."""
        found = self._table.by_manager.get(manager)
        if found is not None and found.other:
            found.verdict = (
                f"that at {found.address} answers, so this GUID is at both: one machine with two addresses (mqproto "
                f"peers add {guid_text(manager)} --also {found.other}), one that moved (mqproto peers move), or a "
                "copy, which needs a new identity"
            )
            self._note("guid-at-two-addresses", found)

    def unanswered(self, manager: Guid, reason: str) -> None:
        """Record that a queue manager no longer answers at its earlier address."""
        found = self._table.by_manager.get(manager)
        if found is None or not found.other:
            return
        if self._desk.settings.roaming:
            self._move(found)
            return
        found.verdict = (
            f"nobody with that GUID answers there ({reason}); if it has moved, an operator has to say so: "
            "mqproto peers move"
        )
        self._note("guid-elsewhere", found)

    def _note(self, name: str, found: Acquaintance) -> None:
        assert found.manager is not None
        facts: dict[str, str | int] = {"manager": guid_text(found.manager), "peer": found.other}
        self._desk.notes.append(Note(name, {**facts, "met_at": found.address, "verdict": found.verdict}))

    def _move(self, found: Acquaintance) -> None:
        assert found.manager is not None
        facts: dict[str, str | int] = {"manager": guid_text(found.manager), "peer": found.other}
        self._desk.notes.append(Note("guid-moved", {**facts, "met_at": found.address}))
        self._table.unindex_host(found)
        found.address = found.host = found.other
        found.how = How.CALLED_US if found.how is How.WAS_CALLED else found.how
        found.other = found.verdict = ""
        self._table.index(found)
        self.news[found.manager] = None
        self._table.write(found)

    def expect_answers(
        self, manager: Guid | None, host: str, until_s: int, queues: Collection[int], now: Moment
    ) -> None:
        """Expect answers, until `until_s`, to messages that were sent to a queue manager.

        Args:
            manager: its GUID; None for the queue manager at the host.
            queues: the numbers of our queues to which the answers should be sent.
        """
        found = self._table.by_host.get(host.casefold()) if manager is None else self.get(manager)
        if found is None:
            found = Acquaintance(None, host, "", How.WAS_CALLED, now.utc_s, now.utc_s)
            if manager is not None or not self._take_in(found, now):
                return
        invited = tuple(dict.fromkeys((*queues, *found.invited)))[:INVITED]
        if until_s - found.awaited_s >= LAST_SEEN_S or set(invited) != set(found.invited):
            found.awaited_s, found.invited = max(until_s, found.awaited_s), invited
            self._table.write(found)

    def has_invited(self, manager: Guid, queue: int) -> bool:
        """Return whether we asked a queue manager to send answers to our queue with this number."""
        found = self.get(manager)
        return found is not None and queue in found.invited

    # Operators

    def add(self, name: str, host: str, manager: Guid | None, now: Moment) -> Acquaintance:
        """Add a queue manager with the address and name that an operator gave.

        Raises:
            UsageError: the name is taken, the GUID is declared, or there are too many entries.
        """
        taken = self._table.by_name.get(name.casefold())
        known = self.get(manager)
        if known is None and taken is not None and taken.host == host and manager in (None, taken.manager):
            known = taken
        if taken is not None and taken is not known:
            raise UsageError(f"{taken.name} is at {taken.host}: remove it first, or choose another name")
        if manager is not None and self._routes.declares(manager):
            raise UsageError(f"queue manager {guid_text(manager)} is in the topology: change it there")
        if known is None:
            known = Acquaintance(manager, host, "", How.ADDED, now.utc_s, now.utc_s)
            if not self._take_in(known, now):
                raise UsageError(
                    f"{len(self._table.all):,} peers are known, which is peers_remembered: remove some"
                )
        self._table.unname(known)
        self._table.unindex_host(known)
        if known.host != host:
            known.address = known.other = known.verdict = ""
        known.name, known.host, known.how = name, host, How.ADDED
        self._table.index(known)
        if known.manager is not None:
            self.news[known.manager] = None
        self._table.write(known, urgent=True)
        return known

    def is_also(self, name: str, addresses: Collection[str]) -> Acquaintance:
        """Give additional addresses to the peer with this name or GUID.

        Raises:
            UsageError: there is no such peer, or it would have too many addresses.
        """
        found = self._table.meant(name)
        also = tuple(dict.fromkeys((*found.also, *addresses)))
        if len(also) > ALSO:
            raise UsageError(f"{name} would have {len(also)} addresses beside its own, and {ALSO} may be")
        found.also = also
        if found.other and found.is_at(found.other):
            found.other = found.verdict = ""
        self._table.write(found, urgent=True)
        return found

    def remove(self, name: str) -> Acquaintance:
        """Forget the peer with this name or GUID, and return its entry.

        Raises:
            UsageError: there is no such peer.
        """
        found = self._table.meant(name)
        self._forget(found, urgent=True)
        return found

    def move(self, name: str) -> Acquaintance:
        """Move a peer to the address at which its GUID last turned up.

        Raises:
            UsageError: there is no such peer, or its GUID has not turned up elsewhere.
        """
        found = self._table.meant(name)
        if not found.other:
            raise UsageError(f"{name} has turned up nowhere but at {found.address or found.host}")
        self._move(found)
        self._desk.writes.force()
        return found

    # Room

    def _take_in(self, found: Acquaintance, now: Moment) -> bool:
        """Remember one more queue manager if there is room for it. Return whether there was room."""
        if not self._make_room(now):
            return False
        self._table.add(found)
        return True

    def _make_room(self, now: Moment) -> bool:
        """Make room to remember one more queue manager. Return whether there is room."""
        self._forget_old(now)
        if len(self._table.all) < self._desk.settings.peers_remembered:
            return True
        weak = [one for one in self if one.how is How.CALLED_US and not one.also] or [
            one for one in self if one.how is How.WAS_CALLED and not one.also
        ]
        if not weak:
            return False
        of_host = Counter(host_group(one.address) for one in weak)
        most = max(of_host.values())
        self._forget(min((one for one in weak if of_host[host_group(one.address)] == most), key=_last_seen))
        return True

    def _current(self, manager: Guid, now: Moment) -> Acquaintance | None:
        """Return the entry with a GUID; None if there is none, if it has expired, or if the GUID is declared."""
        found = self.get(manager)
        if found is None or not self._is_old(found, now):
            return found
        self._forget(found)
        return None

    def _is_old(self, one: Acquaintance, now: Moment) -> bool:
        oldest_s = now.utc_s - self._desk.settings.peers_forgotten_days * DAY_S
        return one.how is not How.ADDED and not one.also and max(one.last_s, one.awaited_s) < oldest_s

    def _forget_old(self, now: Moment) -> None:
        for one in list(self):
            if self._is_old(one, now):
                self._forget(one)

    def _forget(self, found: Acquaintance, *, urgent: bool = False) -> None:
        self._table.remove(found, urgent=urgent)
        if found.manager is not None:
            self.news[found.manager] = None


def _last_seen(one: Acquaintance) -> int:
    return one.last_s
