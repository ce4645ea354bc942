"""Numbered operations, according to "Duplicate Operation Detection Support" (RFC 2524, 4.1): each rule, then all
together.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given, settings, strategies as st

from mqproto.base.errors import UsageError
from mqproto.edge.operations import (
    HALF,
    IDENTIFIERS,
    PROFILE_LIMIT,
    Answer,
    Invoker,
    Kept,
    OperationError,
    Pending,
    Performer,
    behind,
    is_numbered,
    numbered,
    parted,
    with_identifier,
)

SUBMIT = 32
PERFORM, REPEAT, WAIT, REFUSE = Answer.PERFORM, Answer.REPEAT, Answer.WAIT, Answer.REFUSE


def perform(performer: Performer, *identifiers: int) -> list[Kept]:
    """Perform operations one after the other; return what is kept of each."""
    found = []
    for identifier in identifiers:
        assert performer.invoke(identifier % IDENTIFIERS) is PERFORM
        found.append(performer.complete(identifier % IDENTIFIERS, b"%d" % identifier))
    return found


# Operation Value


@pytest.mark.parametrize(("operation", "has_identifier"), [(0, False), (31, False), (32, True), (63, True)])
def test_operations_from_32_to_63_have_duplicate_operation_detection(
    operation: int, has_identifier: bool
) -> None:
    """4.1.1: duplication is checked only if the value is in the range of 32 to 63."""
    assert is_numbered(operation) is has_identifier


@pytest.mark.parametrize("operation", [-1, 64, 255])
def test_there_are_no_other_operation_values(operation: int) -> None:
    with pytest.raises(OperationError, match=f"operation value {operation}: there are 0 to 63"):
        is_numbered(operation)


# Operation Instance Identifier


@given(st.integers(0, 255), st.binary(max_size=50))
def test_the_identifier_is_the_first_byte_of_the_argument_and_is_stripped(
    identifier: int, parameter: bytes
) -> None:
    """4.1.2: the identifier is not encoded; it is from 0 to 255."""
    argument = with_identifier(identifier, parameter)
    assert argument == bytes([identifier]) + parameter
    assert argument == numbered.build({"identifier": identifier, "parameter": parameter})
    parsed = numbered.parse(argument)
    assert parted(argument) == (parsed.identifier, parsed.parameter)
    assert parted(argument) == (identifier, parameter)


def test_a_numbered_operation_without_an_identifier_is_none() -> None:
    with pytest.raises(OperationError, match="without its instance identifier"):
        parted(b"")


@pytest.mark.parametrize("profile", [-1, 128, 255])
def test_a_performer_keeps_0_to_127_identifiers(profile: int) -> None:
    for make in (Performer, Invoker):
        with pytest.raises(UsageError, match="0 to 127 can be kept"):
            make(profile)


def test_a_duplicate_is_not_performed_again_and_has_the_first_outcome() -> None:
    """4.1.2: multiple invocations of such an operation eventually have the same outcome."""
    performer = Performer(4)
    perform(performer, 0, 1)
    assert performer.invoke(0) is REPEAT
    assert performer.invoke(0) is REPEAT
    assert performer.outcome(0) == b"0"


def test_a_duplicate_of_what_is_being_performed_waits_for_its_outcome() -> None:
    performer = Performer(4)
    assert performer.invoke(7) is PERFORM
    assert performer.invoke(7) is WAIT
    performer.complete(7, b"done")
    assert performer.invoke(7) is REPEAT


def test_as_many_are_kept_as_the_profile_says() -> None:
    performer = Performer(3)
    assert [kept.forgotten for kept in perform(performer, 0, 1, 2, 3)] == [(), (), (), (0,)]
    assert [performer.invoke(identifier) for identifier in (1, 2, 3)] == [REPEAT] * 3


def test_what_may_have_been_forgotten_is_refused_and_not_performed_twice() -> None:
    performer = Performer(3)
    perform(performer, 0, 1, 2, 3)
    assert performer.invoke(0) is REFUSE
    assert performer.invoke(255) is REFUSE


def test_an_identifier_that_was_passed_over_is_performed_when_it_comes() -> None:
    performer = Performer(8)
    perform(performer, 0, 5, 3)
    assert [performer.invoke(identifier) for identifier in (3, 4)] == [REPEAT, PERFORM]


@pytest.mark.parametrize(("later", "answer"), [(HALF - 1, REFUSE), (HALF, PERFORM)])
def test_at_a_distance_of_128_an_identifier_has_expired(later: int, answer: Answer) -> None:
    """4.1.2: for an 8-bit identifier, the distance of 128 causes an old one to expire."""
    performer = Performer(PROFILE_LIMIT)
    perform(performer, 0, later)
    assert performer.invoke(0) is answer


def test_identifiers_go_round() -> None:
    performer = Performer(5)
    perform(performer, *range(1_000))
    assert [performer.invoke(number % IDENTIFIERS) for number in range(995, 1_000)] == [REPEAT] * 5
    assert performer.outcome(999 % IDENTIFIERS) == b"999"
    assert performer.invoke(1_000 % IDENTIFIERS) is PERFORM


def test_a_performer_without_support_has_one_operation_at_a_time() -> None:
    """4.1.2: support for 0 identifiers; there should be only one outstanding operation at any point of time."""
    performer = Performer(0)
    assert performer.invoke(1) is PERFORM
    assert performer.invoke(2) is REFUSE
    assert performer.complete(1, b"").forgotten == (1,)
    assert performer.invoke(1) is PERFORM


@given(st.sets(st.integers(0, 19)), st.randoms(use_true_random=False), st.integers(0, 255))
def test_what_is_on_disk_in_any_order_is_what_was_remembered(
    numbers: set[int], dice: random.Random, first: int
) -> None:
    order = [(first + number) % IDENTIFIERS for number in numbers]
    dice.shuffle(order)
    performer = Performer(20)
    disk: dict[int, bytes] = {}
    for identifier in order:
        [kept] = perform(performer, identifier)
        disk[kept.identifier] = kept.outcome
        for gone in kept.forgotten:
            del disk[gone]
    again = Performer(20, dice.sample(sorted(disk.items()), len(disk)))
    for identifier in range(IDENTIFIERS):
        answers = [each.invoke(identifier) for each in (performer, again)]
        assert answers[0] is answers[1]
        if answers[0] is PERFORM:
            break  # From here on there is a newer one.


def test_an_invoker_that_goes_on_far_ahead_finds_nothing_old_under_its_identifiers() -> None:
    """4.1.2: the distance of 128 causes an old one to expire, even if nothing is left of those in between."""
    performer = Performer(4, [(each, b"old") for each in range(4)])
    assert performer.go_on(5) == (0,)
    assert [performer.invoke(each) for each in (1, 2, 3, 4)] == [REPEAT] * 3 + [PERFORM]
    assert performer.complete(4, b"").forgotten == ()
    performer.invoke(5)
    assert set(performer.go_on(1)) == {1, 2, 3, 4}, "5 is being performed"
    assert performer.invoke(1) is PERFORM


@pytest.mark.parametrize("first", [0, 1, 250, 255])
def test_one_that_has_kept_count_goes_on_with_what_came_or_asks_again_but_never_from_0_on(first: int) -> None:
    performer = Performer(4)
    assert performer.goes_on(first, is_new=True)
    perform(performer, *((first + number) % 256 for number in range(3)))
    going_on = {each for each in range(256) if performer.goes_on(each, is_new=True)}
    assert going_on == {(first + number) % 256 for number in range(3, 7)}
    again = {each for each in range(256) if performer.goes_on(each, is_new=False)} - going_on
    assert again == {(first + number) % 256 for number in range(3)} - {0}


# The invoker


def test_an_invoker_numbers_consecutively() -> None:
    """4.1.2: the invoker is responsible for using consecutive numbers."""
    invoker = Invoker(1, following=254)
    found = []
    for _ in range(4):
        found.append(invoker.begin(SUBMIT, b"").identifier)
        invoker.end(found[-1])
    assert found == [254, 255, 0, 1]


@pytest.mark.parametrize("profile", [0, 1, 2, 127])
def test_no_more_is_outstanding_than_the_performer_remembers(profile: int) -> None:
    """4.1.2: the user is responsible for acting according to the performer profile."""
    invoker = Invoker(profile)
    for _ in range(max(profile, 1)):
        assert invoker.may_begin
        invoker.begin(SUBMIT, b"")
    assert not invoker.may_begin
    with pytest.raises(UsageError, match="wait for the outcome of the oldest"):
        invoker.begin(SUBMIT, b"")


def test_the_oldest_holds_up_those_behind_it() -> None:
    invoker = Invoker(3)
    for _ in range(3):
        invoker.begin(SUBMIT, b"")
    invoker.end(1)
    invoker.end(2)
    assert not invoker.may_begin
    invoker.end(0)
    assert invoker.may_begin


def test_what_was_never_sent_leaves_no_gap() -> None:
    """4.1.2: the invoker is responsible for using consecutive identifiers."""
    invoker = Invoker(3, following=254)
    for _ in range(3):
        invoker.begin(SUBMIT, b"")
    invoker.take_back(0)
    invoker.take_back(255)
    assert [each.identifier for each in invoker.pending] == [254]
    assert invoker.begin(SUBMIT, b"").identifier == 255


def test_an_operation_that_needs_no_identifier_is_refused_one() -> None:
    with pytest.raises(UsageError, match="operation 31 needs no identifier"):
        Invoker(1).begin(31, b"")


def test_an_operation_is_invoked_again_with_the_same_bytes() -> None:
    """4.1.2: two operations with the same identifier are totally identical."""
    invoker = Invoker(5, following=9)
    first = invoker.begin(SUBMIT, b"text")
    invoker.begin(SUBMIT, b"more")
    assert invoker.pending[0] is first
    assert first.argument == b"\x09text"
    assert invoker.end(9) is first
    assert invoker.end(9) is None


def test_an_invoker_that_was_saved_goes_on() -> None:
    before = Invoker(5, following=250)
    pending = [before.begin(SUBMIT, b"%d" % number) for number in range(4)]
    before.end(251)
    after = Invoker(5, before.following, before.pending)
    assert after.pending == [pending[0], *pending[2:]]
    assert after.begin(SUBMIT, b"").identifier == 254


def test_what_a_performer_with_a_smaller_profile_may_have_forgotten_is_not_invoked_again() -> None:
    invoker = Invoker(5)
    for _ in range(4):
        invoker.begin(SUBMIT, b"")
    assert all(map(invoker.may_retry, range(4)))
    assert [each.identifier for each in invoker.learn(2)] == [0, 1]
    assert not invoker.may_begin
    assert len(invoker.learn(0)) == 4


# Together


@dataclass
class Disk:
    """The data of both ends that survive a crash."""

    kept: dict[int, bytes] = field(default_factory=dict)
    following: int = 0
    pending: list[Pending] = field(default_factory=list)
    performed: Counter[bytes] = field(default_factory=Counter)


@dataclass
class World:
    """An invoker, a performer, and packets between them that are lost, duplicated or late; both ends may crash.

    A late packet arrives only while its identifier is new enough; after that, its connection has ended.
    """

    profile: int
    dice: random.Random
    disk: Disk = field(default_factory=Disk)
    told: list[bytes] = field(default_factory=list)
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    answers: list[tuple[int, int, bytes]] = field(default_factory=list)
    running: list[tuple[int, bytes]] = field(default_factory=list)
    begun: int = 0

    def __post_init__(self) -> None:
        self.restart_invoker()
        self.restart_performer()

    def restart_invoker(self) -> None:
        self.invoker = Invoker(self.profile, self.disk.following, self.disk.pending)

    def restart_performer(self) -> None:
        self.performer = Performer(self.profile, self.disk.kept.items())
        self.running.clear()

    def begin(self) -> None:
        if self.invoker.may_begin:
            pending = self.invoker.begin(SUBMIT, b"%d" % self.begun)
            self.begun += 1
            self.disk.following, self.disk.pending = self.invoker.following, self.invoker.pending
            self.requests.append((self.begun, pending.argument))

    def retry(self) -> None:
        for pending in self.invoker.pending:
            if self.invoker.may_retry(pending.identifier):
                self.requests.append((self.begun, pending.argument))

    def hear(self) -> None:
        """Let one of the requests arrive; it may arrive once more later."""
        if self.requests:
            place = self.dice.randrange(len(self.requests))
            sent_at, argument = self.requests[place]
            if self.dice.random() < 0.7 or self.is_over(sent_at):
                del self.requests[place]
            if not self.is_over(sent_at):
                identifier, parameter = parted(argument)
                answer = self.performer.invoke(identifier)
                if answer is PERFORM:
                    self.running.append((identifier, parameter))
                elif answer is REPEAT:
                    self.answers.append((self.begun, identifier, self.performer.outcome(identifier)))

    def is_over(self, sent_at: int) -> bool:
        """Whether the connection on which a request was sent has ended."""
        return self.begun - sent_at > HALF - self.profile

    def finish(self) -> None:
        """Finish performing an operation: either both its effect and its outcome are on disk, or neither is."""
        if self.running:
            identifier, parameter = self.running.pop(self.dice.randrange(len(self.running)))
            kept = self.performer.complete(identifier, b"did " + parameter)
            self.disk.performed[parameter] += 1
            self.disk.kept[kept.identifier] = kept.outcome
            for gone in kept.forgotten:
                self.disk.kept.pop(gone, None)
            self.answers.append((self.begun, identifier, kept.outcome))

    def learn(self) -> None:
        """Let one of the answers arrive."""
        if self.answers:
            sent_at, identifier, outcome = self.answers.pop(self.dice.randrange(len(self.answers)))
            if not self.is_over(sent_at) and (ended := self.invoker.end(identifier)) is not None:
                assert outcome == b"did " + ended.parameter
                self.disk.pending = self.invoker.pending
                self.told.append(ended.parameter)

    def lose(self) -> None:
        for line in (self.requests, self.answers):
            if line and self.dice.random() < 0.5:
                del line[self.dice.randrange(len(line))]


@given(st.sampled_from([1, 2, 5, 40]), st.integers(0, 2**32 - 1), st.integers(0, 255))
@settings(max_examples=settings().max_examples * 2)
def test_whatever_is_lost_doubled_late_or_dies_each_operation_is_performed_once(
    profile: int, seed: int, following: int
) -> None:
    """An operation is performed at most once, and exactly once if the invoker was told that it was performed."""
    dice = random.Random(seed)
    world = World(profile, dice, Disk(following=following))
    steps = [world.begin] * 4 + [world.hear] * 6 + [world.finish] * 5 + [world.learn] * 5
    steps += [world.retry, world.lose, world.restart_invoker, world.restart_performer]
    for _ in range(dice.choice([20, 200, 1_500])):
        dice.choice(steps)()
        assert max(world.disk.performed.values(), default=0) <= 1
    assert all(world.disk.performed[parameter] == 1 for parameter in world.told)
    event(f"operations: {world.begun // 100}00")

    while world.invoker.pending:
        world.retry()
        while world.requests or world.running or world.answers:
            world.hear()
            world.finish()
            world.learn()
    assert world.disk.performed == Counter({b"%d" % number: 1 for number in range(world.begun)})
    assert len(world.told) == world.begun
    assert len(world.disk.kept) <= profile


@given(profile=st.integers(0, PROFILE_LIMIT), data=st.data())
def test_whatever_comes_only_what_is_within_the_profile_of_the_newest_is_remembered(
    profile: int, data: st.DataObject
) -> None:
    """4.1.2: depending on its capabilities, the performer keeps 0 to 127 identifiers."""
    performer = Performer(profile)
    kept: dict[int, bytes] = {}
    newest: int | None = None
    performing: list[int] = []
    for _ in range(data.draw(st.integers(1, 40))):
        base = newest or 0
        identifier = (base + data.draw(st.integers(-140, 140))) % IDENTIFIERS
        if performer.invoke(identifier) is PERFORM:
            performing.append(identifier)
            kept.pop(identifier, None)
        for each in data.draw(st.lists(st.sampled_from(performing), unique=True)) if performing else []:
            performing.remove(each)
            row = performer.complete(each, b"%d" % each)
            newest = each if newest is None or behind(each, newest) >= HALF else newest
            kept[each] = row.outcome
            outside = {known for known in kept if behind(known, newest) >= profile}
            assert set(row.forgotten) == outside
            kept = {known: outcome for known, outcome in kept.items() if known not in outside}


@given(first=st.integers(0, IDENTIFIERS - 1), count=st.integers(0, 300))
def test_an_invoker_that_has_lost_count_goes_on_where_it_was(first: int, count: int) -> None:
    """The invoker hears the outcomes of the last operations, and its next operation is new to the performer, even after
    crashes.
    """
    performer = Performer(4)
    disk: dict[int, bytes] = {}
    for number in range(first, first + count):
        assert performer.invoke(number % IDENTIFIERS) is PERFORM
        kept = performer.complete(number % IDENTIFIERS, b"%d" % number)
        disk[kept.identifier] = kept.outcome
        for each in kept.forgotten:
            del disk[each]
    for known in (performer, Performer(4, disk.items())):
        assert sorted(known.outcomes) == sorted(b"%d" % number for number in range(first, first + count)[-4:])
        assert known.following == ((first + count) % IDENTIFIERS if count else 0)
        assert known.invoke(known.following) is PERFORM
        assert len(known.outcomes) == min(count, 4), "what is being performed has no outcome"
