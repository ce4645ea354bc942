"""A simulated node: a core, the real store over simulated files, and the one loop of nodes.

What arrives while a commit is being flushed waits until that is done, as in a process with one thread; and what the
node does after the commit is done after the flush. A crash may happen at any time; the files and the applications
outlive it. Beside the store is a disk in memory that does what a store should: whenever the store is read, the two are
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from mqproto.base.configuration import Settings
from mqproto.base.errors import QuotaExceeded, UsageError
from mqproto.manager.carry import carry_out
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.drafts import Draft, copies
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import Routes
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.storeerrors import DiskFullError, LifeFullError, StoreError
from mqproto.simulator.node.room import Fullness, found_for
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.contents import Row
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.world.network.events import EventQueue
from mqproto.simulator.world.network.glimpse import Glimpse, identity_of
from mqproto.simulator.world.network.links import End
from mqproto.simulator.world.network.trace import Trace
from mqproto.simulator.world.node.consumers import Application
from mqproto.simulator.world.node.counters import begin_late
from mqproto.simulator.world.node.files import FULL, POWER_LOST, Death, DiedError, SimulatedFiles, StoreCopy
from mqproto.simulator.world.oracle import answers, invariants
from mqproto.simulator.world.oracle.oracle import Oracle
from mqproto.simulator.world.oracle.recounts import sums_are_true
from mqproto.simulator.world.oracle.watched import REFUSED, ROOMY, WatchedNode
from mqproto.simulator.world.scenarios.scenario import Burst, Scenario
from mqproto.simulator.world.scenarios.traffic import KINDS, Message, body_of, destination, wishes_of
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.turn.effects import (
    Batch,
    CloseTransport,
    Delivery,
    IncomingRow,
    Note,
    OpenTransport,
    QueueKind,
    ReadExpired,
    ReadPage,
    ReadSequences,
    SendBytes,
    SendPing,
    Writes,
)
from mqproto.turn.guard import NO_KEYS, Guard

RECOUNTS_EVERY: Final = 50
"""How many turns pass between two recounts."""
LOOKS_EVERY: Final = 16
"""How many turns pass between two checks of a core's memory."""
BACK_AFTER_MS: Final = 1_000
"""How long a node is down when it restarts with other settings."""
LETTERS: Final = 1_000
"""How many dead letters an operator resends at a time."""
LONGEST_HEADERS_BYTES: Final = 2_000
STORE: Final = Path("node.sqlite")
MADE_AGAIN_MS: Final = 100
"""How often to try to make a deleted queue again that is not empty yet."""
ROOM_TRIED_MS: Final = 1_000
"""How often to retry a batch that the disk has no room for."""
STEPWISE: Final = frozenset({"die in commit", "die at start"})


@dataclass(slots=True)
class _Flushing:
    """A batch whose writes are being flushed, and what applications and operators did in it.

    submissions: what applications sent in it.
    receipts: what applications receive for good when it is on disk.
    orders: which queues operators made or deleted.
    after: what the node does after the flush.
    """

    batch: Batch
    submissions: list[Message]
    receipts: list[Message]
    orders: dict[str, bool]
    after: list[Callable[[], None]] = field(default_factory=list)


class Surroundings(Protocol):
    """What a node needs from its world."""

    scenario: Scenario
    events: EventQueue
    oracle: Oracle
    trace: Trace
    machines: dict[str, Machine]
    settings: dict[str, Settings]

    def routes_of(self, name: str) -> Routes:
        """Return the current routes from a node to all others."""

    def guard_of(self, name: str, settings: Settings) -> Guard:
        """Return what encrypts and signs at a starting node."""

    def look(self, machine: Machine) -> None:
        """Record a core's own counts before it is gone."""

    def restart_later(self, machine: Machine) -> None:
        """Restart a node that stopped by itself after a while."""

    def restart(self, machine: Machine, life: int) -> None:
        """Start a node that has been down since that life ended."""


class Machine(WatchedNode):
    """One node at work, with its disk and its applications.

    Args:
        queues: what it hosts.
        has_sequences: whether it is the source or the destination of transactional messages.
    """

    def __init__(
        self,
        world: Surroundings,
        name: str,
        queues: tuple[QueueDeclaration, ...],
        *,
        has_sequences: bool,
    ) -> None:
        scenario = world.scenario
        super().__init__(
            name,
            queues,
            world.settings[name],
            world.events,
            has_sequences=has_sequences,
            has_sparse_neighbours=any(fault.kind == "sparse" for fault in scenario.faults),
            misreads_order_acks=any(
                fault.kind == "order acks otherwise" and fault.where == name for fault in scenario.faults
            ),
            largest_bytes=max(
                (
                    LONGEST_HEADERS_BYTES + max(burst.size_bytes, *burst.sizes_bytes, 0)
                    for burst in scenario.bursts
                ),
                default=0,
            ),
            least_window=min(settings.window_size for settings in world.settings.values()),
        )
        self.spare_until: Callable[[int], None] | None = None
        """Prolongs its sparse acknowledging, if it does that in this life."""
        self.oracle = world.oracle
        self.ledger = world.oracle.ledger
        self.trace = world.trace
        self.files = SimulatedFiles(
            chance(world.scenario.seed, "files", name),
            loses_power=any(
                fault.kind == "power loss"
                or (fault.kind in STEPWISE and Death.of(fault.value).how == POWER_LOST)
                for fault in world.scenario.faults
                if fault.where == name
            ),
        )
        self._life_dice = chance(world.scenario.seed, "life", name)
        self.store: Store | None = None
        self.has_power = True
        """Whether its system still answers when the core is gone."""
        self.applications: dict[int, Application] = {}
        self.receipts: list[Message] = []
        """What applications have committed since the last batch."""
        self._copy: tuple[StoreCopy, Disk, dict[str, bool]] | None = None
        """A copy of its store, what was in it, and which queues operators had left."""
        self.deleted: set[str] = set()
        """The queues that an operator has deleted, and that do not exist as far as it knows."""
        self.is_calm = False
        """Whether its operators put everything in order."""
        self.guard: Guard = NO_KEYS
        self.misread: Callable[[QueueManager], None] | None = None
        """Makes each of its queue managers read the specification differently."""
        self.refuses: set[bytes] = set()
        """The bodies of messages that make it close their session."""
        self.flush_ms = 0
        self.death_at_start: Death | None = None
        """How its next process dies at its start; the one after that lives on."""
        self.down_since_ms = 0
        self._world = world
        self._submissions: list[Message] = []
        self._orders: dict[str, bool] = {}
        """The queues that operators made (True) or deleted since the last batch."""
        self._waiting: list[tuple[Burst, int]] = []
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._flushing: _Flushing | None = None
        self._undecided: _Flushing | None = None
        """What was being committed when its process ended: the disk has all of it or nothing, and nobody was told."""
        self._answered: list[Message] = []
        """What applications have sent, and are told is accepted when its batch is carried out."""
        self._handed: list[list[Message]] = []
        """The messages of each delivery of that batch."""
        self._turn_entered = False
        self._stuck: Batch | None = None
        """A batch that the disk has no room for, not even a reserve. It waits for room, and all else behind it."""
        self._behind: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._tick_ms: int | None = None
        self._turns = 0
        self._is_asked = False
        """Whether an operator waits for its answers."""
        self._restarts_at_ms: int | None = None
        """When it has to start again after an orderly stop."""

    # What happens to it

    def jump_clock(self, seconds: int) -> None:
        """Change the date but not the uptime."""
        super().jump_clock(seconds)
        self.ledger.latest_utc_offset_s = max(self.ledger.latest_utc_offset_s, self.utc_offset_s)

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do something if it is still in this life: at once, or after the flush that it waits for."""
        if life != self.life or self.core is None:
            return
        if self._stuck is not None:
            self._behind.append((act, arguments))
        elif self._flushing is not None:
            self._inbox.append((act, arguments))
        else:
            act(*arguments)
            self._enter_turn()

    def later(self, delay_ms: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do something after a while, if the node still lives then."""
        self.events.at(self.now_ms + delay_ms, self.hear, self.life, act, *arguments)

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """Take bytes that arrive at one of its connections; `glimpses` are the packets that end in them."""
        if end.open:
            self.hear(self.life, self._receive, end, data, glimpses)

    def _receive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        if end.open and self.core is not None:
            if self.refuses and (refused := self.ledger.those_with(self.refuses, glimpses)):
                neighbours = self.core.inspect().neighbours
                session = neighbours.sessions[end.session]
                if session.closed is None:
                    self.ledger.refuses(end, refused)
                    session.refuse("3.1.5.8", REFUSED)
                    neighbours.touched(session)
                return
            self.ledger.arrives(self, end, glimpses)
            self.core.receive(end.session, data, self.moment())

    def accepted(self, end: End) -> None:
        """Take a connection from somebody else."""
        assert self.core is not None
        end.session = self.core.accepted(end.peer.host.name, self.moment())
        if not end.peer.host.is_node:
            self.strange.add(end.session)
        self.ends[end.session] = end

    def opened(self, end: End) -> None:
        """Take a connection that it asked for."""
        if end.open and self.core is not None:
            self.core.opened(end.session, self.moment())

    def end_lost(self, end: End, reason: str) -> None:
        """Handle a connection that broke or was closed by the peer."""
        if end.open:
            end.line.forget(end)
            self.hear(self.life, self.lost_session, end.session, reason)

    def lost_session(self, session: int, reason: str) -> None:
        """Tell the core that a transport broke, or could not be opened."""
        assert self.core is not None
        self.trace.add(self.now_ms, self.name, "lost", session, reason)
        self.ends.pop(session, None)
        self.tries_anew |= bool(self.suspected) and session not in self.refused_sessions
        self.core.lost(session, reason, self.moment())

    def pinged(self, session: int, response: bytes) -> None:
        """Take a datagram that answers its Ping."""
        assert self.core is not None
        self.core.ping_answered(session, response)

    def submit(self, burst: Burst, number: int) -> None:
        """Send messages as an application; if the node is down, wait until it is up."""
        if self.core is None:
            self._waiting.append((burst, number))
        else:
            self.hear(self.life, self._submit, burst, number)

    def _submit(self, burst: Burst, number: int) -> None:
        assert self.core is not None
        kind = KINDS[burst.kind]
        targets = burst.targets
        goals = [destination(target, kind) for target in targets]
        options = {**kind.draft_at(self.guid), **wishes_of(burst)}
        bodies = [body_of(burst, number, index) for index in range(burst.count)]
        drafts = [Draft(body=body, label=burst.label, priority=burst.priority, **options) for body in bodies]
        messages = copies(goals, drafts)
        try:
            try:
                message_ids = self.core.enqueue(messages, self.moment(), together=burst.together)
            except QuotaExceeded:
                size_bytes = sum(draft.size_bytes for _, draft in messages)
                if not found_for(size_bytes, self.core, self._open_store):
                    raise
                message_ids = self.core.enqueue(messages, self.moment(), together=burst.together)
        except (DiedError, StoreError) as error:
            self._ends_by(error)  # Nobody was told that anything was accepted.
            return
        except UsageError as error:
            # There is no room, or the queue is one of its own that does not exist, or belongs to a queue manager that
            # it has not met or whose key it does not know.
            is_nowhere = self.name in targets and (kind.undeliverable or bool(self.deleted))
            is_nowhere |= self._world.scenario.unmet and not kind.direct and not self.has_met
            is_nowhere |= burst.encrypted and not self.ledger.keys_known[self.name]
            if not (isinstance(error, QuotaExceeded) or is_nowhere):
                raise
            self.ledger.tally["refused at once"] += burst.count * len(goals)
            return
        needs_disk = any(draft.recoverable or draft.transactional for _, draft in messages)
        reason = invariants.full_disks_take_nothing_new(
            self, self._open_store.room_bytes, needs_disk=needs_disk
        )
        self.oracle.check("full_disks_take_nothing_new", reason)
        # Each copy is a message of its own, as if its target were the only one.
        alone = [replace(burst, target=target) for target in targets] if burst.also else [burst]
        for place, message_id in enumerate(message_ids):
            index, copy = divmod(place, len(goals))
            self._submissions.append(self.ledger.submitted(self, alone[copy], bodies[index], message_id))

    def give_back(self, queue: str) -> None:
        """Send a queue's dead letters again as new messages, as an operator."""
        assert self.core is not None
        letters = [self.ledger.messages[identity_of(kept.packet)] for kept in self.core.peek(queue, LETTERS)]
        # Each takes the next MessageID. Nothing tells which that is, so spend one to know.
        spent = self.core.inspect().outbound.next_message_id()
        sent = self.core.send_back(queue, None, self.moment())
        assert sent == len(letters), "what applications have sent has a destination"
        for message_id, letter in enumerate(letters, spent + 1):
            self._submissions.append(self.ledger.sent_again(self, letter, message_id))

    # Its life

    def start(self) -> None:
        """Start from what the disk has."""
        assert self.core is None
        self.trace.add(self.now_ms, self.name, "start")
        if not self.has_power:
            self.booted()
            self.has_power = True
        death, self.death_at_start = self.death_at_start, None
        if death is not None:
            self.files.dies_by(death)
        try:
            self.store = Store(STORE, self.guid, self._world.scenario.limits, self.files, self._life_dice)
            state = self.store.load()
            self._see_what_was_kept(self.store)
            self.ledger.hurt(self, self.store)
            reason = invariants.disks_have_what_was_committed(self, self.store, state)
        except (DiedError, StoreError) as error:
            self._cannot_start(error)
            return
        self.oracle.check("disks_have_what_was_committed", reason)
        self.disk.set_aside_hurt()
        self.was_put_back &= state.life is not None
        state.dice = chance(self._world.scenario.seed, "start", self.name, str(self.life)).getrandbits(32)
        counters = self._world.scenario.counters
        if state.life is not None and state.life.number == 1:
            # The first MessageID matters only after an earlier life; small ones are easier to read.
            first = counters.message_id if counters is not None else 0
            state.life = state.life._replace(first_message_id=first or 1)
        self.guard = self._world.guard_of(self.name, self.settings)
        self.core = QueueManager(
            self.guid,
            self.queues,
            self._world.routes_of(self.name),
            self.settings,
            state,
            self.moment(),
            self.guard,
        )
        if counters is not None:
            begin_late(self.core, counters)
        if self.misread is not None:
            self.misread(self.core)
        self.core.stored(self.store.size_bytes)
        self.core.has_room(self.store.room_bytes)
        self._fullness = Fullness(self.store)
        self.up_since_ms = self.now_ms
        there = {queue.name for queue in self.core.declared}
        self.oracle.check(
            "queues_stay_as_they_were_left", invariants.queues_stay_as_they_were_left(self, there)
        )
        self.deleted = {queue.name for queue in self.queues if queue.name not in there}
        out = [queue for queue in self.disk.queues.values() if queue.kind in answers.OUT]
        self.paused = {queue.name for queue in out if queue.on_hold}
        for application in self.applications.values():
            application.restarted(is_there=application.consumer.queue not in self.deleted)
        if self.is_calm:
            self.hold(False)
            self.make_again()
        waiting, self._waiting = self._waiting, []
        for burst, number in waiting:
            self.submit(burst, number)
        self._enter_turn()

    def _cannot_start(self, error: DiedError | StoreError) -> None:
        """Handle a process that ended while it opened its store: restart it later."""
        power_lost = self._is_end(error)
        self.trace.add(self.now_ms, self.name, "cannot start", power_lost)
        self.ledger.tally["crash at its start"] += 1
        self.files.crash(kept=None, power_lost=power_lost)
        self.store = None
        self.has_power = not power_lost
        self._world.restart_later(self)

    def _is_end(self, error: DiedError | StoreError) -> bool:
        """Handle the planned end of its process by its disk; return whether the power was lost."""
        if isinstance(error, DiedError):
            return error.power_lost
        if not self.files.trouble:
            raise error
        if self.files.trouble == FULL and not (isinstance(error, LifeFullError) or self.disk.hurt):
            self.oracle.check("full_disks_end_no_node", invariants.full_disks_end_no_node(self, error))
        self.ledger.tally[self.files.trouble] += 1
        return False

    def _see_what_was_kept(self, store: Store) -> None:
        """See whether its disk has what was being committed when it ended."""
        undecided, self._undecided = self._undecided, None
        if undecided is None:
            return
        kept = store.record_count > self.disk.commit_count
        self.ledger.tally[f"crash within a commit, {'kept' if kept else 'gone'}"] += 1
        if kept:
            self.oracle.flushing(self, undecided.batch.writes, undecided.submissions, undecided.receipts)
            self.oracle.noted(self, undecided.batch.notes)
            self.queues_left |= undecided.orders
        else:
            self.ledger.forgotten(undecided.submissions)
        self.disk.crash(kept=kept)

    def crash(self, *, kept: bool | None, told: bool = True) -> None:
        """Stop between two instructions, or within one.

        Args:
            kept: whether a commit that was being flushed is on disk; None for either.
            told: whether its system lives on and tells the peers, as when only the process is killed.
        """
        if self.core is None:
            return
        self.trace.add(self.now_ms, self.name, "crash", kept, told)
        self._undecided, self._flushing = self._flushing, None
        self.files.crash(kept=kept, power_lost=not told)
        self.store = None
        self._world.look(self)
        self.ledger.crashed(self)
        self.core = None
        self.life += 1
        self.has_power = told
        self.down_since_ms = self.now_ms
        for end in list(self.ends.values()):
            if end.open:
                if told:
                    end.line.kill(end)
                else:
                    end.line.forget(end)
        self.ends.clear()
        self.strange.clear()
        self.suspected.clear()
        self.refused_sessions.clear()
        self.tries_anew = False
        self.spare_until = None
        self._tick_ms = None
        self._restarts_at_ms = None
        self._is_asked = False
        self._inbox.clear()
        self._stuck = None
        self._behind.clear()
        self.ledger.forgotten(self._submissions)
        self._submissions.clear()
        self._orders.clear()
        self.receipts.clear()

    def copy_store(self) -> None:
        """Copy its store, which nobody has open, as an operator."""
        if self._undecided is None:
            self._copy = self.files.copied(), deepcopy(self.disk), dict(self.queues_left)

    def put_back_store(self, *, is_lost: bool) -> bool:
        """Replace its store, which nobody has open, by the copy or by nothing; return whether there was a copy."""
        if not is_lost and self._copy is None:
            return False
        undecided, self._undecided = self._undecided, None
        if undecided is not None:
            self.ledger.forgotten(undecided.submissions)
        copy, disk, left = (None, Disk(), {}) if is_lost or self._copy is None else self._copy
        self.files.put_back(copy)
        self.was_put_back, self.has_met = True, False
        self.called.clear()
        self.disk, self.queues_left = deepcopy(disk), dict(left)
        return True

    def leave(self) -> None:
        """Free its files: the world is over."""
        self.files.leave()

    def hold(self, on_hold: bool) -> None:
        """Pause all outgoing queues, or let them go on."""
        assert self.core is not None
        if not on_hold and not self.was_held:
            return
        self.was_held = True  # For good: a paused queue stays paused over a restart.
        self.paused.clear()
        self.may_say_one |= on_hold
        for name in dict.fromkeys(outgoing.name for outgoing in self.core.status().outgoing):
            self.core.hold(name, on_hold=on_hold)
            if on_hold:
                self.paused.add(name)

    def ask(self) -> None:
        """Ask what waits where, as an operator; the answer comes after the turn."""
        self._is_asked = True

    def answer_at_rest(self) -> None:
        """Answer an operator who asks when nothing happens any more."""
        if self.core is not None and self._flushing is None:
            self._answer()

    def _answer(self) -> None:
        self._is_asked = False
        self.ledger.tally["an operator was answered"] += 1
        reason = answers.status_tells_the_truth(self.ledger, self)
        self.oracle.check("status_tells_the_truth", reason)
        reason = answers.whereabouts_tell_the_truth(self.ledger, self)
        self.oracle.check("whereabouts_tell_the_truth", reason)

    def delete(self, queue: str) -> None:
        """Delete a queue as an operator; nobody receives from it until it is made again."""
        assert self.core is not None
        if queue not in self.deleted:
            self.deleted.add(queue)
            self.ledger.deleted(self, queue)
            for application in self.applications.values():
                if application.consumer.queue == queue:
                    application.leave()
            self.core.delete(queue)
            self._orders[queue] = False

    def make_again(self) -> None:
        """Make the deleted queues again as an operator, as soon as nothing is left in them."""
        assert self.core is not None
        for declaration in self.queues:
            if declaration.name not in self.deleted:
                continue
            try:
                self.core.make(declaration)
            except UsageError:
                self.later(MADE_AGAIN_MS, self.make_again)
                continue
            self.ledger.tally["a queue was made again"] += 1
            self._orders[declaration.name] = True
            self.deleted.remove(declaration.name)
            for application in self.applications.values():
                if application.consumer.queue == declaration.name:
                    application.restarted()

    def purge_outgoing(self, also_others: bool) -> None:
        """Delete what waits in outgoing queues, except the acknowledgments that destinations send."""
        assert self.core is not None
        self.has_purged = True
        for name, kind in {outgoing.name: outgoing.kind for outgoing in self.core.inspect().outbound}.items():
            if kind is QueueKind.SEQUENCE or (also_others and not name.endswith(ORDER_SUFFIX)):
                self.core.purge(name)

    def stop(self, restarts_at_ms: int) -> None:
        """Stop in order: carry out one more batch, and restart at that time."""
        assert self.core is not None
        self.core.stop()
        self._restarts_at_ms = restarts_at_ms

    def employ(self, application: Application) -> None:
        """Add a consumer of one of its queues."""
        self.applications[application.number] = application
        self.consumer_limit += application.consumer.limit

    def mend(self) -> None:
        """Begin the calm: the disk is fast and has room, the consumers do not dawdle, and the node is up.

        A node stopped by its QueueManagerQuota gets more room, as from an operator: full nodes refuse one another's
        messages, and nothing says that they ever stop.  [MS-MQQB] 3.1.5.8.8  So does a node that knows as many senders
        as it may, because none is ever forgotten. A deleted queue is made again.
        """
        quota_bytes, sequences = ROOMY.quota_bytes, ROOMY.maximum_sequences
        if self.settings.quota_bytes < quota_bytes or self.settings.maximum_sequences < sequences:
            self.settings = replace(self.settings, quota_bytes=quota_bytes, maximum_sequences=sequences)
            if self.core is not None:
                self.hear(self.life, self.stop, self.now_ms + BACK_AFTER_MS)
        self.flush_ms = 0
        self.files.room_bytes = None
        self.files.dies_by(None)
        self.death_at_start = None
        for application in self.applications.values():
            application.is_calm = True
        if self.core is None:
            self._world.restart(self, self.life)
        self.hear(self.life, self.hold, False)
        self.is_calm = True
        self.hear(self.life, self.make_again)

    # Its loop

    def _enter_turn(self) -> None:
        if not self._turn_entered and self._flushing is None:
            self._turn_entered = True
            self.events.after_all(self._turn)

    def _turn(self) -> None:
        """Take one batch and carry it out."""
        self._turn_entered = False
        core = self.core
        if core is None or self._flushing is not None or self._stuck is not None:
            return
        self.files.trouble = ""
        now = self.moment()
        core.tick(now)
        self.batch = batch = core.take(now)
        self._answered = list(self._submissions)
        self._handed = []
        for delivery in batch.deliveries:
            self._handed.append(self.oracle.handed_out(self, delivery))
            if not self.applications[delivery.consumer].consumer.transactional:
                self.receipts += self._handed[-1]
        if batch.writes is None and (self._submissions or self.receipts):
            self.oracle.flushing(self, None, *self._take_applications())
        self._carry_out(core, batch)

    def _carry_out(self, core: QueueManager, batch: Batch) -> None:
        try:
            try:
                carry_out(core, batch, self.moment(), self)
            except DiskFullError as error:
                if not self._open_store.is_usable:
                    raise
                self.oracle.check("reserves_last", invariants.reserves_last(self, error))
                self._stuck = batch
                self.ledger.tally["batch that waited for room"] += 1
                self.events.at(self.now_ms + ROOM_TRIED_MS, self._try_again, self.life)
                return
            if batch.writes is None:
                with suppress(DiskFullError):
                    self._open_store.tidy()
            self._fullness.look(self.now_ms / 1_000)
            core.has_room(self._open_store.room_bytes)
        except (DiedError, StoreError) as error:
            self._ends_by(error)
        else:
            self._then(self._after_turn, batch)

    def _ends_by(self, error: DiedError | StoreError) -> None:
        """End its running process because of its disk, and restart it later."""
        power_lost = self._is_end(error)
        self.crash(kept=None, told=not power_lost)
        self._world.restart_later(self)

    def _try_again(self, life: int) -> None:
        """Retry the batch that waits for room."""
        if life != self.life or self.core is None or self._stuck is None:
            return
        batch, self._stuck = self._stuck, None
        try:
            self._open_store.make_room()
        except (DiedError, StoreError) as error:
            self._ends_by(error)
            return
        self._carry_out(self.core, batch)
        if self._stuck is None and life == self.life:
            behind, self._behind = self._behind, []
            for act, arguments in behind:
                self.hear(life, act, *arguments)

    def _take_applications(self) -> tuple[list[Message], list[Message]]:
        """Take what applications have sent and received for good since the last batch."""
        taken = self._submissions, self.receipts
        self._submissions, self.receipts = [], []
        return taken

    def _after_turn(self, batch: Batch) -> None:
        if batch.reads:
            self._enter_turn()
        # What was received or rejected meanwhile, and the results of reads, belong to the next batch.
        if self._is_asked and not (self.receipts or batch.reads or answers.has_decided(self)):
            self._answer()
        self.may_say_one = bool(self.paused)
        self._turns += 1
        if self._turns % RECOUNTS_EVERY == 0:
            self.oracle.check("sums_are_true", sums_are_true(self))
        if self._turns % LOOKS_EVERY == 0:
            self.oracle.check("memory_is_bounded", invariants.memory_is_bounded(self))
            self.oracle.check("quotas_are_kept", invariants.quotas_are_kept(self))
        if self._restarts_at_ms is not None:
            self._world.events.at(self._restarts_at_ms, self._world.restart, self, self.life + 1)
            self._restarts_at_ms = None
            power_lost = False
            try:
                self._open_store.close()
            except DiedError as error:
                power_lost = error.power_lost
            self.crash(kept=True, told=not power_lost)
        elif batch.deadline_ms is not None:
            self._tick_at(batch.deadline_ms - self._uptime_offset_ms)

    @property
    def _open_store(self) -> Store:
        assert self.store is not None, "it runs, so it has its store"
        return self.store

    # The hands of carry_out

    def commit(self, writes: Writes) -> int:
        """Commit to the store; what follows waits for the flush, if that takes time."""
        store, files = self._open_store, self.files
        submissions, receipts = self._take_applications()
        orders, self._orders = self._orders, {}
        files.holds_flush = bool(self.flush_ms)
        self.disk.begin(writes)
        self._flushing = _Flushing(self.batch, submissions, receipts, orders)
        self.committed_in = self.life
        try:
            store.commit(writes)
        except StoreError:
            if files.trouble == FULL:  # Then nothing of it is there.
                self.disk.crash(kept=False)
                self._flushing = None
                self._submissions, self.receipts, self._orders = submissions, receipts, orders
            raise
        finally:
            files.holds_flush = False
        assert self.core is not None
        self.core.has_room(store.room_bytes)
        if self.flush_ms:
            self.events.at(self.now_ms + self.flush_ms, self._flushed, self.life)
        else:
            self._flushed(self.life)
        return store.size_bytes

    def _flushed(self, life: int) -> None:
        """Go on after a flush: the commit is on disk, so others may be told."""
        if life != self.life or self._flushing is None:
            return
        flushing, self._flushing = self._flushing, None
        self.files.release()
        self.oracle.flushing(self, flushing.batch.writes, flushing.submissions, flushing.receipts)
        self.disk.flush()
        self.queues_left |= flushing.orders
        size_bytes = self._open_store.size_bytes
        if size_bytes != self.disk.size_bytes:
            reason = f"the store of {self.name} has {size_bytes} bytes, {self.disk.size_bytes} were committed"
            self.oracle.check("disks_have_what_was_committed", reason)
        for act in flushing.after:
            act()
        inbox, self._inbox = self._inbox, []
        for inboxed, arguments in inbox:
            if life != self.life:
                return  # Its disk has ended its process, and what came after that has reached nobody.
            inboxed(*arguments)
        if inbox:
            self._enter_turn()

    def _then(self, act: Callable[..., None], *arguments: Any) -> None:
        """Do something now, or when the flush is done."""
        if self._flushing is not None:
            self._flushing.after.append(partial(act, *arguments))
        else:
            act(*arguments)

    def note(self, notes: Sequence[Note]) -> None:
        """Give the log to the ledger."""
        if notes:
            self._then(self.oracle.noted, self, notes)

    def read(self, page: ReadPage | ReadExpired) -> list[Row]:
        """Read messages from the store, and check its answer."""
        rows = self._open_store.read(page)
        if self._flushing is None and rows != self.disk.read(page):
            self.oracle.check("disks_have_what_was_committed", f"{self.name} reads {page} otherwise")
        return rows

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Read incoming sequences from the store, and check its answer."""
        rows = self._open_store.sequences(read)
        if self._flushing is None and sorted(rows) != sorted(self.disk.sequences(read)):
            self.oracle.check("disks_have_what_was_committed", f"{self.name} reads {read} otherwise")
        return rows

    def ping(self, ping: SendPing) -> None:
        """Ping a neighbour, if there is a link."""
        if (line := self.lines.get(ping.host)) is not None:
            self._then(line.ping, self, ping, self._world.machines[ping.host])

    def connect(self, connect: OpenTransport) -> None:
        """Connect to a neighbour."""
        self._then(self._connect, connect.session, connect.host)

    def send(self, send: SendBytes) -> None:
        """Send, if the connection is still there."""
        self._then(self._send, send)

    def _send(self, send: SendBytes) -> None:
        end = self.ends.get(send.session)
        self.oracle.check("closed_after_what_was_sent", invariants.closed_after_what_was_sent(self, send))
        if end is None:
            return
        glimpses = [Glimpse(chunk) for chunk in send.chunks]
        if not end.open:
            end.in_vain.update(glimpse.identity for glimpse in glimpses if glimpse.is_user)
        else:
            self.trace.sent(self.now_ms, end, glimpses)
            self.oracle.leaves(self, end, glimpses)
            end.line.send(end, glimpses)

    def close(self, close: CloseTransport) -> None:
        """End a connection."""
        self._then(self._close, close)

    def _close(self, close: CloseTransport) -> None:
        end = self.ends.pop(close.session, None)
        self.tries_anew |= bool(self.suspected)
        self.trace.add(self.now_ms, self.name, "close", close.session, close.reason)
        if end is not None and end.open:
            end.line.close(end)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Give applications their messages."""
        handed, answered = self._handed, self._answered
        if handed or answered:
            self._handed, self._answered = [], []
            self._then(self._deliver, deliveries, handed, answered)

    def _deliver(
        self, deliveries: Sequence[Delivery], handed: list[list[Message]], answered: list[Message]
    ) -> None:
        self.oracle.check("accepted_is_on_disk", invariants.accepted_is_on_disk(self, answered))
        for messages in handed:
            self.oracle.given(self, messages)
        for delivery, messages in zip(deliveries, handed, strict=True):
            self.trace.add(self.now_ms, self.name, "deliver", delivery.queue, len(delivery.messages))
            application = self.applications[delivery.consumer]
            reason = invariants.handed_out_is_on_disk(self, application.consumer, messages)
            self.oracle.check("handed_out_is_on_disk", reason)
            application.given(messages)

    def _connect(self, session: int, host: str) -> None:
        line = self.lines.get(host)
        self.trace.add(self.now_ms, self.name, "connect", session, host)
        if line is None or host == self._world.scenario.uncalled:
            self.later(1, self.lost_session, session, "no route to host")
        else:
            line.connect(self, session, self._world.machines[host])

    def _tick_at(self, when_ms: int) -> None:
        if self._tick_ms is None or when_ms < self._tick_ms:
            self._tick_ms = when_ms
            self.events.at(when_ms, self._tick, self.life, when_ms)

    def _tick(self, life: int, when_ms: int) -> None:
        if life == self.life and when_ms == self._tick_ms:
            self._tick_ms = None
            if self._flushing is None:
                self._enter_turn()
