"""A simulated node.

Its disk, its applications and its operators outlive its queue manager, which may crash at any time and is then
restarted. In addition to the store, there is an in-memory disk that does what a store should do. At each start, the two
are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.manager.queuemanager import QueueManager
from mqproto.routing import Routes
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.storeerrors import LifeFullError, StoreError
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.world.node.counters import begin_late
from mqproto.simulator.world.node.files import FULL, POWER_LOST, Death, DiedError, SimulatedFiles, StoreCopy
from mqproto.simulator.world.node.lifetime import Flushing, Lifetime
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.node.people import People
from mqproto.simulator.world.oracle import invariants
from mqproto.simulator.world.oracle.watched import ROOMY
from mqproto.simulator.world.scenarios.scenario import Scenario
from mqproto.turn.effects import QueueKind
from mqproto.turn.guard import NO_KEYS, Guard

RESTART_MS: Final = 500
"""The time, in milliseconds, after which a node that has crashed by itself is restarted."""
BACK_AFTER_MS: Final = 1_000
"""The time, in milliseconds, for which a node is down when it restarts with different settings."""
STORE: Final = Path("node.sqlite")
STEPWISE: Final = frozenset({"die in commit", "die at start"})


class Machine:
    """One node with its disk and its people, through all its lives.

    Args:
        routes: returns the node's current routes to all others.
        guard: returns the guard that encrypts and signs for the node when it starts.
        was_down: a function that is told for how many milliseconds the node was down.
    """

    def __init__(
        self,
        scenario: Scenario,
        node: LinkedNode,
        routes: Callable[[], Routes],
        guard: Callable[[Settings], Guard],
        was_down: Callable[[int], None],
    ) -> None:
        name = node.name
        own_faults = [fault for fault in scenario.faults if fault.where == name]
        self.node = node
        self.files = SimulatedFiles(
            chance(scenario.seed, "files", name),
            loses_power=any(
                fault.kind == "power loss"
                or (fault.kind in STEPWISE and Death.of(fault.value).how == POWER_LOST)
                for fault in own_faults
            ),
        )
        self.people = People(self.node, self._failed, are_unmet=scenario.unmet)
        self.guard: Guard = NO_KEYS
        self._lifetime: Lifetime | None = None
        self.death_at_start: Death | None = None
        """The way in which the node's next process dies as it starts. The process after that one starts normally."""
        self.down_since_ms = 0
        self._scenario = scenario
        self._routes, self._guard, self._was_down = routes, guard, was_down
        self._life_dice = chance(scenario.seed, "life", name)
        self._copy: tuple[StoreCopy | None, Disk, dict[str, bool]] | None = None
        """The operator's copy of the store, with the in-memory disk and `queues_left` as they were when it was made."""
        self._undecided: Flushing | None = None
        """The batch that was being committed when the node's process ended.

        The disk may or may not have it, and nobody was told about it.
        """

    # Start and end

    def start(self) -> None:
        """Start the node with the contents of its disk."""
        node, scenario = self.node, self._scenario
        assert node.core is None
        node.trace.add(node.now_ms, node.name, "start")
        if not node.has_power:
            node.booted()
            node.has_power = True
        death, self.death_at_start = self.death_at_start, None
        if death is not None:
            self.files.dies_by(death)
        try:
            store = Store(STORE, node.guid, scenario.limits, self.files, self._life_dice)
            state = store.load()
            self._see_what_was_kept(store)
            node.ledger.hurt(node, store)
            reason = invariants.disks_have_what_was_committed(node, store, state)
        except (DiedError, StoreError) as error:
            self._cannot_start(error)
            return
        node.oracle.check("disks_have_what_was_committed", reason)
        node.disk.set_aside_hurt()
        node.was_put_back &= state.life is not None
        state.dice = chance(scenario.seed, "start", node.name, str(node.life)).getrandbits(32)
        if state.life is not None and state.life.number == 1:
            # The first MessageID matters only after an earlier life; small ones are easier to read.
            first = scenario.counters.message_id if scenario.counters is not None else 0
            state.life = state.life._replace(first_message_id=first or 1)
        self.guard = self._guard(node.settings)
        node.core = core = QueueManager(
            node.guid, node.queues, self._routes(), node.settings, state, node.moment(), self.guard
        )
        if scenario.counters is not None:
            begin_late(core, scenario.counters)
        if node.misread is not None:
            node.misread(core)
        core.stored(store.size_bytes)
        core.has_room(store.room_bytes)
        node.up_since_ms = node.now_ms
        lifetime = Lifetime(node, self.people, self.files, store, self._failed, self._stopped)
        self._lifetime, node.store = lifetime, store
        self.people.go_on()
        lifetime.enter_turn()

    def restart_at(self, at_ms: int) -> None:
        """Start the node at the given time, if it is still down then and has not been up in the meantime."""
        self.node.events.at(at_ms, self._restart, self.node.life)

    def _restart(self, life: int) -> None:
        if self.node.core is None and self.node.life == life:
            self._was_down(self.node.now_ms - self.down_since_ms)
            self.start()

    def _cannot_start(self, error: DiedError | StoreError) -> None:
        """Handle a process that ended while it was opening its store: restart it later."""
        node, power_lost = self.node, self._is_end(error)
        node.trace.add(node.now_ms, node.name, "cannot start", power_lost)
        node.ledger.tally["crash at its start"] += 1
        self.files.crash(kept=None, power_lost=power_lost)
        node.has_power = not power_lost
        self.restart_at(node.now_ms + RESTART_MS)

    def _is_end(self, error: DiedError | StoreError) -> bool:
        """Check that the disk ended the process as planned. Return whether the power was lost."""
        if isinstance(error, DiedError):
            return error.power_lost
        node, trouble = self.node, self.files.trouble
        if not trouble:
            raise error
        if trouble == FULL and not (isinstance(error, LifeFullError) or node.disk.hurt):
            node.oracle.holds(invariants.full_disks_end_no_node, node, error)
        node.ledger.tally[trouble] += 1
        return False

    def _see_what_was_kept(self, store: Store) -> None:
        """Find out whether the disk has the batch that was being committed when the process ended."""
        undecided, self._undecided = self._undecided, None
        if undecided is None:
            return
        node = self.node
        kept = store.record_count > node.disk.commit_count
        node.ledger.tally[f"crash within a commit, {'kept' if kept else 'gone'}"] += 1
        if kept:
            undecided.doings.on_disk(node, undecided.batch)
            node.oracle.noted(node, undecided.batch.notes)
        else:
            node.ledger.forgotten(undecided.doings.submissions)
        node.disk.crash(kept=kept)

    def crash(self, *, kept: bool | None, told: bool = True) -> None:
        """Crash between two instructions, or within one.

        Args:
            kept: whether a commit that was being flushed is on disk; None if both are possible.
            told: whether its operating system continues and tells the peers, as when only the process is killed.
        """
        node, lifetime = self.node, self._lifetime
        if lifetime is None:
            return
        node.trace.add(node.now_ms, node.name, "crash", kept, told)
        self._undecided, self._lifetime = lifetime.flushing, None
        self.files.crash(kept=kept, power_lost=not told)
        node.ledger.crashed(node)
        self.down_since_ms = node.now_ms
        node.end_life(told=told)
        self.people.forget()

    def _failed(self, error: DiedError | StoreError) -> None:
        """End the running process, which died while it used its disk or whose store failed.

        Restart it later.
        """
        power_lost = self._is_end(error)
        self.crash(kept=None, told=not power_lost)
        self.restart_at(self.node.now_ms + RESTART_MS)

    def stop(self, restarts_at_ms: int) -> None:
        """Stop in an orderly way: carry out one more batch, and restart at the given time."""
        assert self._lifetime is not None
        self.node.running.stop()
        self._lifetime.restarts_at_ms = restarts_at_ms

    def _stopped(self, restarts_at_ms: int, store: Store) -> None:
        self.node.events.at(restarts_at_ms, self._restart, self.node.life + 1)
        power_lost = False
        try:
            store.close()
        except DiedError as error:
            power_lost = error.power_lost
        self.crash(kept=True, told=not power_lost)

    def answer_at_rest(self) -> None:
        """Answer an operator's question if the node has no flush under way."""
        if self._lifetime is not None and self._lifetime.flushing is None:
            self.people.answer()

    # Its disk

    def copy_store(self) -> None:
        """Copy the store, as an operator would. No process has it open.

        Nothing is copied if it is unknown whether the disk has the last batch.
        """
        if self._undecided is None:
            self._copy = self.files.copied(), deepcopy(self.node.disk), dict(self.node.queues_left)

    def put_back_store(self, *, is_lost: bool) -> bool:
        """Replace the store with the copy, or with nothing. Return whether there was a replacement.

        No process has the store open.
        """
        replacement = (None, Disk(), {}) if is_lost else self._copy
        if replacement is None:
            return False
        undecided, self._undecided = self._undecided, None
        if undecided is not None:
            self.node.ledger.forgotten(undecided.doings.submissions)
        copy, disk, left = replacement
        self.files.put_back(copy)
        node = self.node
        node.was_put_back, node.has_met = True, False
        node.called.clear()
        node.disk, node.queues_left = deepcopy(disk), dict(left)
        return True

    def mend(self) -> None:
        """Begin the calm: the disk is fast and has room, the consumers do not linger, and the node is up.

        A node with a small QueueManagerQuota gets more room, as an operator would give it, because full nodes might
        refuse one another's messages forever.  [MS-MQQB] 3.1.5.8.8  A node with a quota of its own gets no more room if
        all its messages are held behind gaps: it makes room by itself. A node with a low limit of known senders gets a
        higher one, because senders are never forgotten. Deleted queues are made again.
        """
        node = self.node
        has = {queue.kind for queue in node.disk.queues.values() if node.disk.count(queue.queue)}
        quota_bytes, sequences = ROOMY.quota_bytes, ROOMY.maximum_sequences
        makes_room = node.name in self._scenario.rooms and has == {QueueKind.HELD}
        needs_room = node.settings.quota_bytes < quota_bytes and not makes_room
        if needs_room or node.settings.maximum_sequences < sequences:
            node.settings = replace(node.settings, quota_bytes=quota_bytes, maximum_sequences=sequences)
            node.do(self.stop, node.now_ms + BACK_AFTER_MS)
        self.files.flush_ms = 0
        self.files.room_bytes = None
        self.files.dies_by(None)
        self.death_at_start = None
        self._restart(node.life)
        self.people.calm_down()
