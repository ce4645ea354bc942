"""One trigger of several delivers from a queue; the others stand by, and one of them takes over when it is lost.

The document history has who leads (simulator/edges/history/leaders.py). A leader raises its beat three times in a
lease; one that stands by takes over what has not moved for a lease, and at once what is certainly over:

    resigned, or its process is gone: its lock is free      at once
    stopped, or cut off from the history                    a lease later
    comes back after that                                   it is fenced: writes nothing, calls nobody, stands by

Its epoch goes with all that it does: with what it writes into the history; with what it receives from the node, which
takes back what those of earlier epochs hold, so that the first message is the first again; and to the consumer
(MQ-Epoch), who may refuse what comes late. What an earlier one was in the middle of is in doubt to the next.

Without a history nobody leads, and each trigger takes what the others have not.
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
"""In a lease."""
LOCK_S: Final = 2.0
"""How long somebody who looks may keep a lock from its owner, at most."""
TICKET_BITS: Final = 62


class Leadership:
    """The part that one trigger has in it.

    Args:
        history: None for none, and then this one leads at once, with the epoch 0, and for ever.
        scope: names the queue in the history.
        name: this trigger's; no two that run have the same.
        lease_s: how long a leader that says nothing is waited for.
        is_gone: whether the process of the trigger with this name has ended for certain.
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
        """What this one, or those before it, have kept."""
        self._is_refused = False
        self._history = history
        self._scope = scope
        self._name = name
        self._lease_s = lease_s
        self._is_gone = is_gone
        self._ticket = 1 + randbits(TICKET_BITS)
        self._seen_s = 0.0

    async def begin(self, log: FilteringBoundLogger, on_standby: Callable[[], None]) -> None:
        """Return when this one leads.

        Args:
            on_standby: is called when it is certain that another does.
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
        """Show that this one lives, as long as it leads.

        Raises:
            FencedError: another has taken over.
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
        """Check that nobody has taken over; a process may be stopped at any point, and for long.

        Args:
            at_once: ask in any case.

        Raises:
            FencedError: another has.
            HistoryError: nobody can tell.
        """
        if self.epoch and (at_once or trio.current_time() - self._seen_s >= self._lease_s):
            await self._beat()

    async def refused(self, reason: str, log: FilteringBoundLogger) -> None:
        """The node has handed out nothing, as a later epoch receives: the history knows of that as well.

        If it does not, that is of another history: both have this queue, and somebody has to choose.

        Raises:
            FencedError: another has taken over.
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
            FencedError, HistoryError: it is not kept, or nobody can tell.
        """
        self.note = note
        if self._history is not None:
            await self._history.note(self._scope, self.epoch, note)

    async def end(self) -> None:
        """Let another lead, which need not wait."""
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
    """The file that the trigger of this name has locked while it runs.

    Raises:
        UsageError: none can have this name.
    """
    return directory / f"{called(node, name)}.lock"


def has_ended(directory: Path, leader: str) -> bool:
    """Whether the process of a leader, by its name in the history, has ended for certain."""
    node, _, name = leader.rpartition(" ")
    return bool(node) and is_free(lock_of(directory, node, name))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock for as long as this process lives, or the block lasts.

    Raises:
        UsageError: another process has it.
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
    """Whether nobody holds a lock; if there never was one, nobody knows."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
    except OSError:
        return False
