"""What a node keeps of those who invoke numbered operations: through restarts, and not for ever."""

from __future__ import annotations

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.manager.queuemanager import QueueManager
from mqproto.routing import Routes
from mqproto.turn.effects import StoredState
from simulator.node.control import PROFILE, InDoubt
from simulator.node.performers import KEPT_S, LASTING_KEPT_S, LOOK_S, Performers
from simulator.storage.disk import Disk
from tests.examples import a_guid

ONE, OTHER = b"one".ljust(16), b"other".ljust(16)
START_S = 1_700_000_000


class Machine:
    """A node's core and disk, with nothing but the performers on it."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.now_s = START_S
        self.restart()

    def restart(self) -> None:
        """The process begins, or begins again."""
        now = Moment(uptime_ms=0, utc_s=self.now_s)
        state = self.disk.load()
        self.core = QueueManager(a_guid(1), (), Routes(), Settings(), StoredState(), now)
        self.performers = Performers(self.core, state.outcomes, self.now_s)
        self.commit()

    def commit(self) -> None:
        writes = self.core.take(Moment(uptime_ms=10**6, utc_s=self.now_s)).writes
        if writes is not None:
            self.disk.commit(writes)

    def perform(
        self, identifier: int, *, writes: bool = True, invoker: bytes = ONE, lasting: bool = False
    ) -> bytes:
        """Invoke an operation, and perform it if it is new: its outcome says by which call."""
        known = self.performers.invoke(invoker, identifier % 256, self.now_s, lasting=lasting)
        if known is None:
            known = b"at %d" % identifier
            if writes:
                self.core.inspect().desk.writes.force()
            self.performers.performed(invoker, identifier % 256, known, self.now_s)
            self.commit()
        return known


def test_an_operation_that_was_performed_is_not_performed_again_after_a_crash() -> None:
    """Duplicate Operation Detection Support: the performer logs the identifier, and the outcome is the same."""
    machine = Machine()
    assert machine.perform(7) == b"at 7"
    machine.restart()
    assert machine.performers.invoke(ONE, 7, START_S, lasting=False) == b"at 7"
    assert machine.performers.invoke(OTHER, 7, START_S, lasting=False) is None, (
        "invokers have their own numbers"
    )


def test_only_the_newest_identifiers_are_kept_and_older_ones_are_refused() -> None:
    machine = Machine()
    for identifier in range(PROFILE + 10):
        machine.perform(identifier)
    assert len(machine.disk.outcomes) == PROFILE
    machine.restart()
    assert machine.perform(PROFILE + 9) == b"at %d" % (PROFILE + 9)
    with pytest.raises(InDoubt, match="older than the 64 that are remembered"):
        machine.perform(9)


def test_what_wrote_nothing_is_remembered_in_memory_alone() -> None:
    machine = Machine()
    machine.perform(0, writes=False)
    assert not machine.disk.outcomes
    assert machine.performers.invoke(ONE, 0, START_S, lasting=False) == b"at 0"
    machine.restart()
    assert machine.performers.invoke(ONE, 0, START_S, lasting=False) is None


def test_what_is_on_disk_goes_before_its_identifier_comes_round() -> None:
    """Two rounds of express messages after recoverable ones, then a crash: no old outcome is taken for a new one."""
    machine = Machine()
    for identifier in range(30):
        machine.perform(identifier)
    for identifier in range(30, 600):
        machine.perform(identifier, writes=False)
    machine.restart()
    for identifier in range(600, 900):
        assert machine.perform(identifier, writes=identifier % 7 == 0) == b"at %d" % identifier


def test_who_has_gone_on_far_in_lives_that_left_nothing_is_not_told_an_old_outcome() -> None:
    """Express messages of lives of the node that died: nothing is left of their identifiers, and 256 is 0 again."""
    machine = Machine()
    for number in (0, 256, 390):
        machine.restart()
        machine.performers.connected(ONE, following=number % 256)
        assert machine.perform(number) == b"at %d" % number
    assert set(machine.disk.outcomes) == {(ONE, 390 % 256)}


def test_invokers_that_do_not_come_back_are_forgotten_and_those_with_a_journal_much_later() -> None:
    machine = Machine()
    machine.perform(1)
    machine.perform(1, invoker=OTHER, lasting=True)
    machine.restart()
    machine.now_s += KEPT_S + LOOK_S + 1
    machine.perform(1, invoker=b"third".ljust(16))
    machine.core.stop()
    machine.commit()
    assert {invoker for invoker, _ in machine.disk.outcomes} == {OTHER, b"third".ljust(16)}
    machine.now_s += LASTING_KEPT_S + LOOK_S + 1
    machine.perform(2, invoker=b"third".ljust(16))
    assert len(machine.performers) == 1


def test_a_node_that_was_away_for_long_waits_for_its_invokers_as_long_as_ever() -> None:
    """Some client is there first; the patience of another may be longer than the node was away."""
    machine = Machine()
    assert machine.perform(5) == b"at 5"
    machine.now_s += 2 * KEPT_S
    machine.restart()
    machine.perform(0, invoker=OTHER)
    assert machine.performers.invoke(ONE, 5, machine.now_s, lasting=False) == b"at 5"


def test_who_is_connected_is_not_forgotten() -> None:
    machine = Machine()
    machine.performers.connected(ONE)
    machine.perform(1)
    machine.now_s += 10 * LASTING_KEPT_S
    machine.perform(1, invoker=OTHER)
    assert machine.performers.invoke(ONE, 1, machine.now_s, lasting=False) == b"at 1"


def test_there_is_a_limit_of_invokers_and_those_with_a_journal_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simulator.node.performers.INVOKER_LIMIT", 3)
    machine = Machine()
    names = [bytes([number]) * 16 for number in range(9)]
    machine.perform(1, invoker=names[0], lasting=True)
    for number in range(1, 6):
        machine.now_s += 1
        machine.perform(1, invoker=names[number])
        assert len(machine.performers) <= 3
    assert machine.performers.invoke(names[0], 1, machine.now_s, lasting=True) == b"at 1"
    for number in (6, 7):
        machine.perform(1, invoker=names[number], lasting=True)
    with pytest.raises(UsageError, match="3 clients are remembered"):
        machine.perform(1, invoker=names[8])
