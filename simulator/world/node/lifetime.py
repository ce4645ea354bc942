"""One life of a node, from its start to its end. It has the loop that all nodes have, with the real store.

Data that arrives while a commit is being flushed waits for the flush, as in a process with one thread. The node's
actions after the commit also wait for the flush. Whenever the store is read, the result is compared with that of an
in-memory disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from mqproto.manager.carry import carry_out
from mqproto.simulator.base.storeerrors import DiskFullError, StoreError
from mqproto.simulator.node.room import Fullness
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.contents import Row
from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.node.files import FULL, DiedError, SimulatedFiles
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.node.people import Doings, People
from mqproto.simulator.world.oracle import answers, invariants
from mqproto.simulator.world.oracle.recounts import sums_are_true
from mqproto.turn.effects import (
    Batch,
    CloseTransport,
    Delivery,
    IncomingRow,
    Note,
    OpenTransport,
    ReadExpired,
    ReadPage,
    ReadSequences,
    SendBytes,
    SendPing,
    Writes,
)

RECOUNTS_EVERY: Final = 50
"""The number of turns between two checks of a core's running sums."""
LOOKS_EVERY: Final = 16
"""The number of turns between two checks of a core's memory."""
ROOM_TRIED_MS: Final = 1_000
"""The time, in milliseconds, after which a batch that did not fit on the disk is retried."""


@dataclass(slots=True)
class Flushing:
    """A batch whose writes are being flushed.

    doings: the actions of applications and operators in the batch.
    after: the node's actions after the flush.
    inbox: the events that have arrived since the flush began. They are handled after those actions.
    """

    batch: Batch
    doings: Doings
    after: list[Callable[[], None]] = field(default_factory=list)
    inbox: list[Callable[[], None]] = field(default_factory=list)


class Lifetime:
    """A running queue manager, which carries out what its own loop decides.

    Args:
        failed: a function that ends this life because the process died while it used its disk, or because its store
            failed.
        stopped: a function that ends this life in an orderly way, and closes its store. The node starts again at the
            given time.
    """

    def __init__(
        self,
        node: LinkedNode,
        people: People,
        files: SimulatedFiles,
        store: Store,
        failed: Callable[[DiedError | StoreError], None],
        stopped: Callable[[int, Store], None],
    ) -> None:
        self.flushing: Flushing | None = None
        self.restarts_at_ms: int | None = None
        """The time at which the node is to start again after an orderly stop; None if it is not stopping."""
        self._node, self._people, self._files = node, people, files
        self._store, self._core = store, node.running
        self._failed, self._stopped = failed, stopped
        self._number, node.takes = node.life, self.hear
        self._fullness = Fullness(store)
        self._turn_entered = False
        self._stuck: Batch | None = None
        """A batch for which the disk has no room, even in its reserve.

        It waits for room, and all later batches wait, too.
        """
        self._behind: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._tick_ms: int | None = None

    @property
    def _is_over(self) -> bool:
        return self._node.life != self._number

    # Its loop

    def hear(self, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Run `act` immediately, or after the flush that is under way.

        If a batch is waiting for room on the disk, `act` runs after that batch.
        """
        if self._stuck is not None:
            self._behind.append((act, arguments))
        elif self.flushing is not None:
            self.flushing.inbox.append(partial(act, *arguments))
        else:
            act(*arguments)
            self.enter_turn()

    def enter_turn(self) -> None:
        """Schedule a turn for the end of this millisecond."""
        if not self._turn_entered and self.flushing is None:
            self._turn_entered = True
            self._node.events.after_all(self._turn)

    def _turn(self) -> None:
        """Take one batch and carry it out."""
        self._turn_entered = False
        if self._is_over or self.flushing is not None or self._stuck is not None:
            return
        self._files.trouble = ""
        node, people = self._node, self._people
        now = node.moment()
        self._core.tick(now)
        node.batch = batch = self._core.take(now)
        people.see(batch.deliveries)
        if batch.writes is None:
            people.settle_without_disk()
        self._carry_out(batch)

    def _carry_out(self, batch: Batch) -> None:
        node, store = self._node, self._store
        try:
            try:
                carry_out(self._core, batch, node.moment(), self)
            except DiskFullError as error:
                if not store.is_usable:
                    raise
                node.oracle.holds(invariants.reserves_last, node, error)
                self._stuck = batch
                node.ledger.tally["batch that waited for room"] += 1
                node.events.at(node.now_ms + ROOM_TRIED_MS, self._try_again)
                return
            if batch.writes is None:
                with suppress(DiskFullError):
                    store.tidy()
            self._fullness.look(node.now_ms / 1_000)
            self._core.has_room(store.room_bytes)
        except (DiedError, StoreError) as error:
            self._failed(error)
        else:
            self._then(self._after_turn, batch)

    def _try_again(self) -> None:
        """Retry the batch that waits for room."""
        if self._is_over or self._stuck is None:
            return
        batch, self._stuck = self._stuck, None
        try:
            self._store.make_room()
        except (DiedError, StoreError) as error:
            self._failed(error)
            return
        self._carry_out(batch)
        if self._stuck is None and not self._is_over:
            behind, self._behind = self._behind, []
            for act, arguments in behind:
                self._node.hear(self._number, act, *arguments)

    def _after_turn(self, batch: Batch) -> None:
        node, people = self._node, self._people
        if batch.reads:
            self.enter_turn()
        # What was received or rejected meanwhile, and the results of reads, belong to the next batch.
        if people.is_asked and not (people.doings.receipts or batch.reads or answers.has_decided(node)):
            people.answer()
        node.may_say_one = bool(node.paused)
        node.turns += 1
        if node.turns % RECOUNTS_EVERY == 0:
            node.oracle.holds(sums_are_true, node)
        if node.turns % LOOKS_EVERY == 0:
            node.oracle.holds(invariants.memory_is_bounded, node)
            node.oracle.holds(invariants.quotas_are_kept, node)
        if self.restarts_at_ms is not None:
            self._stopped(self.restarts_at_ms, self._store)
        elif batch.deadline_ms is not None:
            self._tick_at(batch.deadline_ms - node.uptime_offset_ms)

    def _tick_at(self, when_ms: int) -> None:
        if self._tick_ms is None or when_ms < self._tick_ms:
            self._tick_ms = when_ms
            self._node.events.at(when_ms, self._tick, when_ms)

    def _tick(self, when_ms: int) -> None:
        if not self._is_over and when_ms == self._tick_ms:
            self._tick_ms = None
            self.enter_turn()

    # The hands of carry_out

    def commit(self, writes: Writes) -> int:
        """Commit to the store. If the flush takes time, the next actions wait for it."""
        store, files, node = self._store, self._files, self._node
        doings = self._people.take()
        files.holds_flush = bool(files.flush_ms)
        node.disk.begin(writes)
        self.flushing = Flushing(node.batch, doings)
        node.committed_in = self._number
        try:
            store.commit(writes)
        except StoreError:
            if files.trouble == FULL:  # Then nothing of it is there.
                node.disk.crash(kept=False)
                self.flushing = None
                self._people.doings = doings
            raise
        finally:
            files.holds_flush = False
        self._core.has_room(store.room_bytes)
        if files.flush_ms:
            node.events.at(node.now_ms + files.flush_ms, self._flushed)
        else:
            self._flushed()
        return store.size_bytes

    def _flushed(self) -> None:
        """Continue after a flush. The commit is now on disk, so others may be told."""
        if self._is_over or self.flushing is None:
            return
        flushing, self.flushing = self.flushing, None
        node = self._node
        self._files.release()
        flushing.doings.on_disk(node, flushing.batch)
        node.disk.flush()
        size_bytes = self._store.size_bytes
        if size_bytes != node.disk.size_bytes:
            self._misread(f"has {size_bytes} bytes, {node.disk.size_bytes} were committed")
        for act in flushing.after:
            act()
        for inboxed in flushing.inbox:
            if self._is_over:
                return  # Its disk has ended its process, and what came after that has reached nobody.
            inboxed()
        if flushing.inbox:
            self.enter_turn()

    def _misread(self, how: str) -> None:
        self._node.oracle.check("disks_have_what_was_committed", f"the store of {self._node.name} {how}")

    def _then(self, act: Callable[..., None], *arguments: Any) -> None:
        """Do something now, or after the flush that is under way."""
        if self.flushing is not None:
            self.flushing.after.append(partial(act, *arguments))
        else:
            act(*arguments)

    def note(self, notes: Sequence[Note]) -> None:
        """Pass the notes for the log on to the oracle."""
        if notes:
            self._then(self._node.oracle.noted, self._node, notes)

    def read(self, page: ReadPage | ReadExpired) -> list[Row]:
        """Read messages from the store, and check the result."""
        rows = self._store.read(page)
        if self.flushing is None and rows != self._node.disk.read(page):
            self._misread(f"reads {page} otherwise")
        return rows

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Read incoming sequences from the store, and check the result."""
        rows = self._store.sequences(read)
        if self.flushing is None and sorted(rows) != sorted(self._node.disk.sequences(read)):
            self._misread(f"reads {read} otherwise")
        return rows

    def ping(self, ping: SendPing) -> None:
        """Ping a neighbour if there is a link to it."""
        if (line := self._node.lines.get(ping.host)) is not None:
            self._then(line.ping, self._node, ping, self._node.others[ping.host])

    def connect(self, connect: OpenTransport) -> None:
        """Connect to a neighbour."""
        self._then(self._connect, connect.session, connect.host)

    def _connect(self, session: int, host: str) -> None:
        node = self._node
        line = node.lines.get(host)
        node.trace.add(node.now_ms, node.name, "connect", session, host)
        if line is None or node.others[host].is_uncalled:
            node.later(1, node.lost_session, session, "no route to host")
        else:
            line.connect(node, session, node.others[host])

    def send(self, send: SendBytes) -> None:
        """Send packets, if the connection is still there."""
        self._then(self._send, send)

    def _send(self, send: SendBytes) -> None:
        node = self._node
        end = node.ends.get(send.session)
        node.oracle.holds(invariants.closed_after_what_was_sent, node, send)
        if end is None:
            return
        glimpses = [Glimpse(chunk) for chunk in send.chunks]
        if not end.open:
            end.in_vain.update(glimpse.identity for glimpse in glimpses if glimpse.is_user)
        else:
            node.trace.sent(node.now_ms, end, glimpses)
            node.oracle.leaves(node, end, glimpses)
            end.line.send(end, glimpses)

    def close(self, close: CloseTransport) -> None:
        """End a connection."""
        self._then(self._close, close)

    def _close(self, close: CloseTransport) -> None:
        node = self._node
        end = node.ends.pop(close.session, None)
        node.tries_anew |= bool(node.suspected)
        node.trace.add(node.now_ms, node.name, "close", close.session, close.reason)
        if end is not None and end.open:
            end.line.close(end)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Give applications their messages, and tell them which of the messages that they sent were accepted."""
        handed, answered = self._people.due()
        if handed or answered:
            self._then(self._people.given, deliveries, handed, answered)
