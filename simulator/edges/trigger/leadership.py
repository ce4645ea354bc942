"""Lets one of several triggers deliver from a queue.

The others stand by, and one of them takes over if that trigger is lost.

The document history names the leader (simulator/edges/history/leaders.py). A leader increases its beat three times in a
lease. A standby takes over if the beat has not changed for a lease, or at once if the leader has certainly ended. The
cases are:

    it resigns, or its process is gone: its lock is free    another takes over at once
    it is stopped, or cut off from the history              another takes over a lease later
    it comes back after that                                it is fenced: it writes nothing, calls nobody, stands by

A leader sends its epoch with all its actions. The history checks it at each write. The node, when asked for messages,
takes back the messages of earlier epochs, so that the order is restored. The consumer, which gets the epoch as
MQ-Epoch, may refuse late calls. For the next leader, messages that an earlier leader was processing are in doubt.
Without a history there is no leader, and each trigger takes messages that the others have not taken.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Final

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.logfile import appended
from mqproto.simulator.edges.history.history import DocumentHistory, FencedError, HistoryError, Leader
from mqproto.simulator.topology.places import called

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


LEASE_S: Final = 10.0
BEATS: Final = 3
"""The number of beats in a lease."""
LOCK_S: Final = 2.0
"""The number of seconds for which a program tries to get its lock.

Other programs may hold the lock briefly while they check it.
"""
TICKET_BITS: Final = 62


class Leadership:
    """One trigger's part in the choice of a leader.

    Args:
        history: the document history; if None, this trigger leads at once and for good, with epoch 0.
        scope: the name of the queue in the history.
        name: the name of this trigger; no two running triggers have the same name.
        lease_s: the number of seconds to wait for a silent leader.
        is_gone: returns whether the process of the trigger with a given name has certainly ended.
    """

    def __init__(
        self,
        history: DocumentHistory | None = None,
        scope: str = "",
        name: str = "",
        lease_s: float = LEASE_S,
        is_gone: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.epoch = 0
        self.note = b""
        """The note that this leader or an earlier one has stored."""
        self._is_refused = False
        self._history = history
        self._scope = scope
        self._name = name
        self._lease_s = lease_s
        self._is_gone = is_gone
        self._ticket = 1 + randbits(TICKET_BITS)
        self._seen_s = 0.0

    async def begin(self, log: FilteringBoundLogger, on_standby: Callable[[], None]) -> None:
        """Wait until this trigger leads.

        Args:
            on_standby: called when it is certain that another trigger leads.
        """
        if self._history is None:
            return
        watched, since_s, told = Leader(), 0.0, ""
        instead: Leader | None = None
        while True:
            asked_s = trio.current_time()
            try:
                found = await self._history.lead(self._scope, self._name, self._ticket, instead)
            except HistoryError as error:
                if told != str(error):
                    told = str(error)
                    log.warning("waiting", reason=told)
                await trio.sleep(self._lease_s / BEATS)
                continue
            if found.ticket == self._ticket:
                self.epoch, self.note, self._seen_s = found.epoch, found.note, asked_s
                return
            if found[:4] != watched[:4]:
                watched, since_s = found, trio.current_time()
            # A former life of this one is gone, as no two that run have the same name.
            is_gone = found.name == self._name or self._is_gone(found.name)
            instead = found if is_gone or asked_s - since_s >= self._lease_s else None
            if instead is not None:
                continue
            if told != found.name:
                told = found.name
                log.info("standby", leader=found.name, epoch=found.epoch)
                on_standby()
            await trio.sleep(self._lease_s / BEATS)

    async def keep(self) -> None:
        """Show regularly that this trigger is alive, as long as it leads.

        Raises:
            FencedError: another trigger has taken over.
        """
        if self._history is None:
            await trio.sleep_forever()
        while True:
            await trio.sleep(self._lease_s / BEATS)
            try:
                await self._beat()
            except HistoryError:
                continue  # Nobody can take over either, or else it is heard of at the next beat.

    async def confirm(self, *, at_once: bool = False) -> None:
        """Check that no other trigger has taken over.

        This is necessary because a process may be stopped at any point, and for any length of time.

        Args:
            at_once: whether to ask the history even if it has confirmed this leader within the last lease.

        Raises:
            FencedError: another trigger has taken over.
            HistoryError: this cannot be determined now.
        """
        if self.epoch and (at_once or trio.current_time() - self._seen_s >= self._lease_s):
            await self._beat()

    async def refused(self, reason: str, log: FilteringBoundLogger) -> None:
        """Handle a refusal by the node because a trigger with a later epoch is receiving from the queue.

        The history should also know that epoch. If it does not, the epoch is from another history that also has this
        queue, and an operator has to choose.

        Raises:
            FencedError: another trigger has taken over.
        """
        try:
            await self.confirm(at_once=True)
        except HistoryError:
            return
        if not self._is_refused:
            log.error(
                "refused",
                reason=f"{reason}; that is a trigger with another history: give both the same, or stop one and "
                "start the node again",
            )
        self._is_refused = True

    async def write(self, note: bytes) -> None:
        """Store a note for the next leader.

        Raises:
            FencedError: another trigger has taken over; the note is not stored.
            HistoryError: it is not known whether the note is stored.
        """
        self.note = note
        if self._history is not None:
            await self._history.note(self._scope, self.epoch, note)

    async def end(self) -> None:
        """Resign, so that another trigger can lead at once."""
        if self._history is None or not self.epoch:
            return
        with suppress(FencedError, HistoryError):  # It is over anyway.
            await self._history.resign(self._scope, self.epoch)
        self.epoch = 0

    async def _beat(self) -> None:
        assert self._history is not None
        asked_s = trio.current_time()
        await self._history.beat(self._scope, self.epoch)
        self._seen_s = asked_s


def lock_of(directory: Path, node: str, name: str) -> Path:
    """Return the file that the trigger with this name locks while it runs.

    Raises:
        UsageError: a trigger cannot have this name.
    """
    return directory / f"{called(node, name)}.lock"


def has_ended(directory: Path, leader: str) -> bool:
    """Return whether the process of a leader has certainly ended.

    Args:
        leader: the leader's name in the history.
    """
    node, _, name = leader.rpartition(" ")
    return bool(node) and is_free(lock_of(directory, node, name))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock until the block or this process ends.

    Raises:
        UsageError: another process has the lock.
    """
    with appended(path) as file:
        deadline_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline_s:
                    raise UsageError(
                        f"{path.stem} runs already: give this one another --name, as a standby or for another queue"
                    ) from None
            time.sleep(LOCK_S / 100)
        yield


def is_free(path: Path) -> bool:
    """Return whether it is certain that nobody holds a lock.

    If the lock's file is missing or cannot be read, nothing is known, and False is returned.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
    except OSError:
        return False
