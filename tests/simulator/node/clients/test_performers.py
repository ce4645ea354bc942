"""A node's memory of clients that invoke numbered operations: it survives restarts, but does not last forever."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle

import pytest
from hypothesis import event, given, settings, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.manager.queuemanager import QueueManager
from mqproto.routing import Routes
from mqproto.simulator.node.clients.performers import KEPT_S, LASTING_KEPT_S, LOOK_S, SEEN_S, Performers
from mqproto.simulator.node.control import PROFILE, InDoubt
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import INVOKER_ITSELF, StoredState
from tests.examples import a_guid

ONE, OTHER, THIRD = b"one".ljust(16), b"other".ljust(16), b"third".ljust(16)
START_S = 1_700_000_000
DATES = cycle([0, 4 * 10**9, START_S])


class Machine:
    """A node's core and disk, which only the performers use."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.now_s = START_S
        self.births = dict[bytes, bytes]()
        self.restart()

    def restart(self) -> None:
        """Start the process, for the first time or again."""
        now = Moment(uptime_ms=0, utc_s=self.now_s)
        state = self.disk.load()
        self.connected = set[bytes]()
        self.core = QueueManager(a_guid(1), (), Routes(), Settings(), StoredState(), now)
        self.started_s = self.now_s
        self.performers = Performers(self.core, state, self.now)
        self.commit()

    @property
    def now(self) -> Moment:
        """Return the current moment.

        Uptime begins with the process; the date does not matter, so it jumps with every call.
        """
        return Moment(uptime_ms=(self.now_s - self.started_s) * 1_000, utc_s=next(DATES))

    def connect(self, invoker: bytes = ONE, *, lasting: bool = False, following: int | None = None) -> bool:
        """Introduce an invoker as the invoker itself would: with the latest birth that it knows.

        Return whether the node remembers the invoker.
        """
        birth, remembered = self.performers.connected(
            invoker, self.now, lasting=lasting, birth=self.births.get(invoker, b""), following=following
        )
        self.births[invoker] = birth
        self.connected.add(invoker)
        self.commit()
        return remembered

    def hang_up(self, invoker: bytes = ONE) -> None:
        """End the invoker's connection."""
        self.performers.gone(invoker, self.now)
        self.connected.discard(invoker)

    def stop(self) -> None:
        """Write pending data."""
        self.core.stop()
        self.commit()

    def commit(self) -> None:
        writes = self.core.take(Moment(uptime_ms=10**6, utc_s=self.now_s)).writes
        if writes is not None:
            self.disk.commit(writes)

    def invoke(self, identifier: int, *, invoker: bytes = ONE, lasting: bool = False) -> bytes | None:
        """Invoke an operation, after introducing the invoker if necessary; return the result."""
        if invoker not in self.connected:
            self.connect(invoker, lasting=lasting)
        return self.performers.invoke(invoker, identifier % 256, self.now)

    def perform(
        self, identifier: int, *, writes: bool = True, invoker: bytes = ONE, lasting: bool = False
    ) -> bytes:
        """Invoke an operation, and perform it if it is new; the outcome says which call performed it."""
        known = self.invoke(identifier, invoker=invoker, lasting=lasting)
        if known is None:
            known = b"at %d" % identifier
            if writes:
                self.core.inspect().desk.writes.force()
            self.performers.performed(invoker, identifier % 256, known, self.now)
            self.commit()
        return known


def test_an_operation_that_was_performed_is_not_performed_again_after_a_crash() -> None:
    """Duplicate Operation Detection Support: the performer logs the identifier, and the outcome is the same."""
    machine = Machine()
    assert machine.perform(7) == b"at 7"
    machine.restart()
    assert machine.connect()
    assert machine.invoke(7) == b"at 7"
    assert machine.invoke(7, invoker=OTHER) is None, "invokers have their own numbers"


def test_only_the_newest_identifiers_are_kept_and_older_ones_are_refused() -> None:
    machine = Machine()
    for identifier in range(PROFILE + 10):
        machine.perform(identifier)
    assert len(machine.disk.outcomes) == PROFILE + 1
    machine.restart()
    assert machine.perform(PROFILE + 9) == b"at %d" % (PROFILE + 9)
    with pytest.raises(InDoubt, match="older than the 64 that are remembered"):
        machine.perform(9)


def test_what_wrote_nothing_is_remembered_in_memory_alone() -> None:
    machine = Machine()
    machine.perform(0, writes=False)
    assert not machine.disk.outcomes
    assert machine.invoke(0) == b"at 0"
    machine.restart()
    assert machine.connect(), "nothing of it was ever on disk, so nothing was forgotten"
    assert machine.invoke(0) is None


def test_what_is_on_disk_goes_before_its_identifier_comes_round() -> None:
    """After recoverable messages come two rounds of express ones, then a crash: no old outcome is taken for a new
    one.
    """
    machine = Machine()
    for identifier in range(30):
        machine.perform(identifier)
    for identifier in range(30, 600):
        machine.perform(identifier, writes=False)
    machine.restart()
    for identifier in range(600, 900):
        assert machine.perform(identifier, writes=identifier % 7 == 0) == b"at %d" % identifier


def test_who_has_gone_on_far_in_lives_that_left_nothing_is_not_told_an_old_outcome() -> None:
    """Nothing is left of the identifiers that express messages had in earlier lives of the node; number 256 has the
    identifier 0 again.
    """
    machine = Machine()
    for number in (0, 256, 390):
        machine.restart()
        machine.connect(following=number % 256)
        assert machine.perform(number) == b"at %d" % number
    assert set(machine.disk.outcomes) == {(ONE, 390 % 256), (ONE, INVOKER_ITSELF)}


def test_invokers_that_do_not_come_back_are_forgotten_and_those_with_a_journal_much_later() -> None:
    machine = Machine()
    machine.perform(1)
    machine.perform(1, invoker=OTHER, lasting=True)
    machine.restart()
    machine.now_s += KEPT_S + LOOK_S + 1
    machine.perform(1, invoker=THIRD)
    machine.stop()
    assert {invoker for invoker, _ in machine.disk.outcomes} == {OTHER, THIRD}
    machine.now_s += LASTING_KEPT_S + SEEN_S + LOOK_S + 1
    machine.perform(2, invoker=THIRD)
    assert len(machine.performers) == 1
    assert not machine.connect(ONE)
    assert not machine.connect(OTHER, lasting=True)


@pytest.mark.parametrize("crashes", [False, True])
def test_one_that_was_forgotten_is_told_so_and_is_born_again(crashes: bool) -> None:
    machine = Machine()
    machine.perform(5, lasting=True)
    machine.hang_up()
    machine.now_s += LASTING_KEPT_S + SEEN_S + LOOK_S + 1
    machine.perform(1, invoker=OTHER, lasting=True)
    machine.stop()
    if crashes:
        machine.restart()
    assert not machine.connect(lasting=True)
    machine.hang_up()
    assert machine.connect(lasting=True), "what it asks for from now on is remembered"
    assert machine.perform(6) == b"at 6"
    machine.restart()
    assert machine.connect(lasting=True)
    assert machine.invoke(6) == b"at 6"


@pytest.mark.parametrize("later_s", [0, 9])
def test_one_that_came_before_another_that_was_forgotten_is_not_forgotten_with_it(later_s: int) -> None:
    """The invoker has done nothing that was kept; after a crash of the node it may repeat its requests."""
    machine = Machine()
    machine.connect(ONE)
    machine.now_s += later_s
    machine.perform(1, invoker=OTHER)
    machine.hang_up(OTHER)
    machine.now_s += KEPT_S + LOOK_S + 1
    machine.perform(1, invoker=THIRD)
    machine.stop()
    assert OTHER not in {invoker for invoker, _ in machine.disk.outcomes}
    machine.restart()
    assert machine.connect(ONE)
    assert not machine.connect(OTHER)


def test_with_another_store_nobody_is_remembered() -> None:
    """The store was moved away, and the node has begun with an empty one."""
    machine = Machine()
    machine.perform(5, lasting=True)
    machine.disk = Disk()
    machine.restart()
    assert not machine.connect(lasting=True)
    assert machine.invoke(5) is None, "what it asks for now is new"


def test_one_that_a_store_of_layout_4_knows_goes_on_and_one_that_it_does_not_know_is_told_so() -> None:
    """The version with layout 4 had no births, and wrote the date."""
    machine = Machine()
    machine.perform(5, lasting=True)
    machine.disk.counters.clear()
    del machine.disk.outcomes[ONE, INVOKER_ITSELF]
    machine.disk.outcomes[ONE, 5] = machine.disk.outcomes[ONE, 5]._replace(performed_s=START_S)
    machine.births.clear()
    machine.restart()
    assert machine.connect(lasting=True)
    assert machine.invoke(5) == b"at 5"
    assert machine.births[ONE] == b""
    assert not machine.connect(OTHER, lasting=True)
    machine.hang_up()
    machine.now_s += LASTING_KEPT_S + SEEN_S + LOOK_S + 1
    machine.perform(1, invoker=OTHER, lasting=True)
    assert not machine.connect(lasting=True)


def test_a_node_that_was_away_for_long_waits_for_its_invokers_as_long_as_ever() -> None:
    """One client is the first to come back; another may be patient for longer than the node was away."""
    machine = Machine()
    assert machine.perform(5) == b"at 5"
    assert machine.perform(5, invoker=OTHER, lasting=True) == b"at 5"
    machine.now_s += 2 * LASTING_KEPT_S
    machine.restart()
    machine.perform(0, invoker=THIRD)
    machine.now_s += KEPT_S
    machine.perform(1, invoker=THIRD)
    for invoker in (ONE, OTHER):
        assert machine.connect(invoker, lasting=invoker is OTHER)
        assert machine.invoke(5, invoker=invoker) == b"at 5"


def test_who_is_connected_is_not_forgotten_nor_soon_after_the_node_crashed() -> None:
    machine = Machine()
    machine.perform(1, lasting=True)
    for _ in range(40):
        machine.now_s += LASTING_KEPT_S // 4
        machine.perform(1, invoker=OTHER)
    assert machine.invoke(1) == b"at 1"
    machine.restart()
    machine.now_s += LASTING_KEPT_S // 2
    machine.perform(1, invoker=OTHER)
    assert machine.connect(lasting=True)


def test_the_disk_learns_seldom_who_is_connected_and_of_those_with_a_journal_alone() -> None:
    machine = Machine()
    machine.perform(1, lasting=True)
    machine.perform(1, invoker=OTHER)
    seen_s = []
    for identifier in (2, 3):
        machine.now_s += SEEN_S // 2 + LOOK_S
        machine.perform(identifier, invoker=OTHER)
        rows = [row for row in machine.disk.load().outcomes if row.identifier == INVOKER_ITSELF]
        seen_s.append({row.invoker: row.performed_s - 1 for row in rows})
    assert seen_s == [{ONE: 0, OTHER: 0}, {ONE: SEEN_S + 2 * LOOK_S, OTHER: 0}]


def test_there_is_a_limit_of_invokers_and_those_with_a_journal_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqproto.simulator.node.clients.performers.INVOKER_LIMIT", 3)
    machine = Machine()
    names = [bytes([number]) * 16 for number in range(9)]
    machine.perform(1, invoker=names[0], lasting=True)
    for number in range(1, 6):
        machine.now_s += 1
        machine.perform(1, invoker=names[number])
        machine.hang_up(names[number])
        assert len(machine.performers) <= 3
    assert machine.invoke(1, invoker=names[0]) == b"at 1"
    assert [number for number in range(1, 6) if not machine.connect(names[number])] == [1, 2, 3]
    for number in range(1, 6):
        machine.hang_up(names[number])
    for number in (6, 7):
        machine.perform(1, invoker=names[number], lasting=True)
    with pytest.raises(UsageError, match="3 clients are remembered, those with a journal for 30 days"):
        machine.perform(1, invoker=names[8])


@pytest.mark.parametrize("says", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize(
    ("count", "first", "outcome", "is_remembered"),
    [
        (6, 5, b"at 5", True),
        (6, 6, None, True),
        (6, 0, None, False),
        (1, 0, None, False),
        (6, 200, None, False),
        (300, 299, b"at 299", True),
        (256, 256, None, True),
    ],
    ids=["again", "goes on", "anew", "anew after 0", "elsewhere", "again after a round", "on after a round"],
)
def test_one_that_shows_its_name_alone_is_remembered_if_it_goes_on(
    says: bool, crashes: bool, count: int, first: int, outcome: bytes | None, is_remembered: bool
) -> None:
    """This follows the document alone: an invoker has a name and identifiers, and may state its next identifier."""
    machine = Machine()
    for number in range(count):
        machine.perform(number)
    machine.births.clear()
    if crashes:
        machine.restart()
    else:
        machine.hang_up()
    following = (first + (outcome is not None)) % 256 if says else None
    assert machine.connect(following=following) is (is_remembered or not says)
    assert machine.invoke(first) == outcome
    machine.commit()
    assert (ONE, (count - 1) % 256) in machine.disk.outcomes or not is_remembered


def test_what_is_not_remembered_any_more_is_gone_from_the_disk_before_an_operation_is_performed() -> None:
    """Otherwise the node would recognize the operation after a crash, and answer with its outcome."""
    machine = Machine()
    machine.perform(5)
    machine.hang_up()
    assert not machine.performers.connected(ONE, machine.now, lasting=False, following=0)[1]
    writes = machine.core.take(machine.now).writes
    assert writes is not None
    machine.disk.commit(writes)
    assert not machine.disk.outcomes


def test_one_that_shows_its_name_alone_and_was_forgotten_is_told_so() -> None:
    machine = Machine()
    machine.perform(5)
    machine.births.clear()
    machine.hang_up()
    machine.now_s += KEPT_S + LOOK_S + 1
    machine.perform(1, invoker=OTHER)
    assert not machine.connect()
    assert machine.invoke(5) is None


@given(
    st.booleans(),
    st.integers(0, 300),
    st.lists(st.sampled_from(["written", "lost", "unheard", "hang up", "crash", "lose count"]), max_size=60),
)
@settings(deadline=None)
def test_a_new_operation_is_never_answered_with_an_old_outcome(
    says: bool, earlier: int, steps: list[str]
) -> None:
    """The invoker shows no birth, and begins with 0 when it has lost count.

    An operation on disk is not done again, either.
    """
    machine, count, asked, serial = Machine(), 0, None, 0
    done = Counter[int]()
    for step in ["written"] * earlier + steps:
        if step in ("hang up", "crash", "lose count"):
            machine.births.clear()
            if step == "crash":
                machine.restart()
            elif ONE in machine.connected:
                machine.hang_up()
            if step == "lose count":
                count, asked = 0, None
            continue
        if asked is None:
            asked, count, serial = (count % 256, serial + 1), count + 1, serial + 1
        if ONE not in machine.connected:
            machine.connect(following=count % 256 if says else None)
        identifier, number = asked
        outcome = machine.performers.invoke(ONE, identifier, machine.now)
        if outcome is None:
            if step == "written":
                machine.core.inspect().desk.writes.force()
                done[number] += 1
            outcome = b"%d" % number
            machine.performers.performed(ONE, identifier, outcome, machine.now)
            machine.commit()
        assert outcome == b"%d" % number
        assert done[number] <= 1 or identifier == 0
        if step != "unheard":
            asked = None


@pytest.mark.long
@dataclass
class Life:
    """An invoker as the property test below sees it: at most one operation is without an outcome."""

    name: bytes
    lasting: bool
    count: int = 0
    asked: int | None = None
    left_s: int = 0
    done: dict[int, int] = field(default_factory=dict)
    """How often each operation was performed with a result that is on disk."""


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_nothing_is_performed_twice_and_only_who_was_away_for_long_is_in_doubt(seed: int) -> None:
    """There are operations that write and others that do not, answers that nobody hears, crashes that lose pending
    data, and years that pass.
    """
    dice = random.Random(seed)
    machine = Machine()
    lives = [Life(bytes([number]) * 16, lasting=number % 2 == 0) for number in range(6)]
    pauses = [1, LOOK_S, KEPT_S // 2, KEPT_S + LOOK_S, LASTING_KEPT_S // 2, 2 * LASTING_KEPT_S]
    pauses = dice.sample(pauses, 3)
    ran_s = 0
    for _ in range(200):
        life = dice.choice(lives)
        if dice.random() < 0.1:
            pause_s = dice.choice(pauses)
            machine.now_s += pause_s
            ran_s += pause_s
        if dice.random() < 0.05:
            for each in lives:
                if each.name in machine.connected:
                    each.left_s = ran_s
            if dice.random() < 0.3:
                machine.stop()
            machine.restart()
        if dice.random() < 0.2 and life.name in machine.connected:
            machine.hang_up(life.name)
            life.left_s = ran_s
        if life.name not in machine.connected and not machine.connect(
            life.name, lasting=life.lasting, following=life.count % 256
        ):
            away_s = ran_s - life.left_s
            assert not life.count or away_s > (LASTING_KEPT_S if life.lasting else KEPT_S)
            if life.asked is not None:
                event("an operation was in doubt")
            life.asked = None
        if life.asked is None:
            life.asked = life.count
            life.count += 1
        writes = dice.random() < 0.5
        identifier = life.asked % 256
        if machine.performers.invoke(life.name, identifier, machine.now) is None:
            if writes:
                machine.core.inspect().desk.writes.force()
                life.done[life.asked] = life.done.get(life.asked, 0) + 1
            machine.performers.performed(life.name, identifier, b"%d" % life.asked, machine.now)
            machine.commit()
        else:
            assert machine.invoke(identifier, invoker=life.name) == b"%d" % life.asked
        if dice.random() < 0.7:
            life.asked = None
    assert max((count for life in lives for count in life.done.values()), default=0) <= 1
