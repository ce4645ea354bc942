"""Numbered operations: performed once, however often they are invoked.  "Duplicate Operation Detection Support"

An invoker whose connection breaks does not know whether its operation was performed, and invokes it once more.
Submitting a message twice would do harm. So such operations carry an Operation Instance Identifier, one byte that the
invoker counts up with each operation. The performer remembers the last ones with their outcomes: it performs none of
them again, but repeats the outcome.

Identifiers go round: the newer of two is the one that lies less far ahead. The profile, 0 to 127 identifiers, is how
many the performer remembers, and so how many an invoker may have outstanding. `Invoker` and `Performer` decide; their
callers send, keep on disk what they say, and carry out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from construct import Byte, GreedyBytes, Struct

from mqproto.base.errors import MqprotoError, UsageError

FIRST_NUMBERED: Final = 32
LAST: Final = 63
IDENTIFIERS: Final = 256
HALF: Final = IDENTIFIERS // 2
"""An identifier that is this far behind the newest one has expired."""
PROFILE_LIMIT: Final = HALF - 1

numbered = Struct("identifier" / Byte, "parameter" / GreedyBytes)
"""The argument of a numbered operation: its performer gets only the parameter.

This is the declaration. `with_identifier` and `parted` do the same in less time, and a test checks that.
"""


class OperationError(MqprotoError):
    """An invocation that is not valid: the text says why."""


def is_numbered(operation: int) -> bool:
    """Whether an operation value, 0 to 63, is one of those that carry an identifier.

    Raises:
        OperationError: it is not an operation value.
    """
    if not 0 <= operation <= LAST:
        raise OperationError(f"operation value {operation}: there are 0 to {LAST}")
    return operation >= FIRST_NUMBERED


def with_identifier(identifier: int, parameter: bytes) -> bytes:
    """Return the argument of a numbered operation."""
    return bytes((identifier,)) + parameter


def parted(argument: bytes) -> tuple[int, bytes]:
    """Return identifier and parameter from a numbered operation's argument.

    Raises:
        OperationError: it is empty.
    """
    if not argument:
        raise OperationError(
            f"a numbered operation ({FIRST_NUMBERED} to {LAST}) without its instance identifier"
        )
    return argument[0], argument[1:]


def behind(identifier: int, newest: int) -> int:
    """Return how far one identifier is before another, 0 to 255."""
    return (newest - identifier) % IDENTIFIERS


def _newer(identifier: int, newest: int | None) -> int:
    """The newer of two; at a distance of half the circle, the first."""
    return identifier if newest is None or behind(identifier, newest) >= HALF else newest


def _checked(profile: int) -> int:
    if not 0 <= profile <= PROFILE_LIMIT:
        raise UsageError(f"a profile of {profile} instance identifiers: 0 to {PROFILE_LIMIT} can be kept")
    return profile


class Answer(Enum):
    """A performer's reaction to an invocation."""

    PERFORM = "perform"
    """It is new."""
    REPEAT = "repeat"
    """It was performed: the invoker gets the first outcome."""
    WAIT = "wait"
    """It is being performed: the invoker gets the outcome when that is over."""
    REFUSE = "refuse"
    """Nobody knows: it is so old that it may be forgotten."""


class Kept(NamedTuple):
    """The record of an operation that a performer must store in one transaction with its effects.

    forgotten: identifiers that are no longer remembered.
    """

    identifier: int
    outcome: bytes
    forgotten: tuple[int, ...]


class Performer:
    """Remembers the operations of one invoker.

    Args:
        profile: how many identifiers are remembered, 0 to 127. With 0 none is, and one operation at a time is
            performed, each as if it were new.
        kept: identifiers and outcomes that are on disk.
    """

    def __init__(self, profile: int, kept: Iterable[tuple[int, bytes]] = ()) -> None:
        self.profile = _checked(profile)
        self._outcomes = dict[int, bytes | None](kept)
        self._newest: int | None = None
        self._newest_kept: int | None = None
        """The newest that came, and the newest on disk: a crash makes them one."""
        for identifier in self._outcomes:
            self._newest = self._newest_kept = _newer(identifier, self._newest)

    def invoke(self, identifier: int) -> Answer:
        """Take an invocation. If it is to be performed, `complete` follows."""
        if self._outcomes.get(identifier, b"") is None:
            return Answer.WAIT
        if not self.profile:
            if self._outcomes:
                return Answer.REFUSE
        elif self._newest is not None and (distance := behind(identifier, self._newest)) < HALF:
            if identifier in self._outcomes:
                return Answer.REPEAT
            if distance >= self.profile:
                return Answer.REFUSE
        self._newest = _newer(identifier, self._newest)
        self._outcomes[identifier] = None
        return Answer.PERFORM

    def go_on(self, following: int) -> tuple[int, ...]:
        """Take the identifier of the invoker's next operation. Return the old identifiers that are forgotten.

        Only it knows how far it has counted, if nothing of its last operations was on disk when we crashed.
        """
        self._newest = self._newest_kept = newest = (following - 1) % IDENTIFIERS
        forgotten = tuple(
            each
            for each, outcome in self._outcomes.items()
            if outcome is not None and behind(each, newest) >= self.profile
        )
        for each in forgotten:
            del self._outcomes[each]
        return forgotten

    def goes_on(self, first: int, *, is_new: bool) -> bool:
        """Whether an invoker that shows only its name may have kept count, by the first identifier that it uses.

        Then it goes on after what came, or uses a remembered one. One that has lost count begins with 0.

        Args:
            is_new: whether the identifier is of a new operation, and not of one that is invoked once more.
        """
        if self._newest is None or 0 < behind(self._newest, first) <= self.profile:
            return True
        return not is_new and first != 0 and first in self._outcomes

    @property
    def following(self) -> int:
        """Return the identifier of the next operation for an invoker that has lost count: the one after the newest
        received."""
        return 0 if self._newest is None else (self._newest + 1) % IDENTIFIERS

    @property
    def outcomes(self) -> list[bytes]:
        """The outcomes of all remembered operations that have been performed."""
        return [outcome for outcome in self._outcomes.values() if outcome is not None]

    def outcome(self, identifier: int) -> bytes:
        """The outcome of an operation that was performed."""
        outcome = self._outcomes[identifier]
        assert outcome is not None, "it has been performed"
        return outcome

    def complete(self, identifier: int, outcome: bytes) -> Kept:
        """Record the outcome of an operation; a refusal is an outcome too."""
        assert self._outcomes[identifier] is None, "it was to be performed"
        self._outcomes[identifier] = outcome
        before = self._newest_kept
        self._newest_kept = newest = _newer(identifier, before)
        # The remembered range moves on with the newest; an operation performed late may be outside from the beginning.
        steps = 0 if before is None else behind(before, newest)
        outside = {(newest - self.profile - step) % IDENTIFIERS for step in range(steps)}
        if behind(identifier, newest) >= self.profile:
            outside.add(identifier)
        forgotten = tuple(each for each in outside if self._outcomes.get(each) is not None)
        for each in forgotten:
            del self._outcomes[each]
        return Kept(identifier, outcome, forgotten)


@dataclass(frozen=True, slots=True)
class Pending:
    """An operation with an unknown outcome: it is invoked until the outcome is known, with these bytes."""

    identifier: int
    operation: int
    parameter: bytes

    @property
    def argument(self) -> bytes:
        """Return the argument in the form in which it is sent."""
        return with_identifier(self.identifier, self.parameter)


class Invoker:
    """Numbers operations, and knows which may be outstanding.

    Args:
        profile: the performer's.
        following: the identifier of the next operation.
        pending: operations whose outcome was not known when this was saved, the oldest first.
    """

    def __init__(self, profile: int, following: int = 0, pending: Iterable[Pending] = ()) -> None:
        self._profile = _checked(profile)
        self._following = following
        self._pending = {each.identifier: each for each in pending}

    @property
    def following(self) -> int:
        """The identifier of the next operation."""
        return self._following

    @property
    def pending(self) -> list[Pending]:
        """Return the operations without a known outcome, the oldest first. After a break all of them are retried."""
        return list(self._pending.values())

    @property
    def outstanding(self) -> int:
        """How many such operations there are."""
        return len(self._pending)

    @property
    def may_begin(self) -> bool:
        """Whether the performer would still remember all others after one more operation."""
        oldest = next(iter(self._pending), None)
        return oldest is None or behind(oldest, self._following) < self._profile

    def begin(self, operation: int, parameter: bytes) -> Pending:
        """Begin a new operation, to be kept on disk before it is sent, if the invoker is to survive.

        Raises:
            UsageError: it is not an operation with an identifier, or too many are outstanding.
        """
        if not is_numbered(operation):
            raise UsageError(f"operation {operation} needs no identifier: those from {FIRST_NUMBERED} on do")
        if not self.may_begin:
            raise UsageError(
                f"{len(self._pending)} operations are outstanding, and the performer remembers {self._profile}: "
                "wait for the outcome of the oldest"
            )
        pending = self._pending[self._following] = Pending(self._following, operation, parameter)
        self._following = (self._following + 1) % IDENTIFIERS
        return pending

    def take_back(self, identifier: int) -> None:
        """Take back the newest operation, which was never sent: its identifier goes to the next one."""
        assert identifier == (self._following - 1) % IDENTIFIERS, "those after it are taken back first"
        del self._pending[identifier]
        self._following = identifier

    def may_retry(self, identifier: int) -> bool:
        """Whether the performer still knows whether it has performed a pending operation.

        Otherwise invoking it once more might perform it twice, and only a person can say what to do.
        """
        return behind(identifier, (self._following - 1) % IDENTIFIERS) < self._profile

    def learn(self, profile: int) -> list[Pending]:
        """Learn the performer's profile, perhaps smaller than before. Return operations that may not be retried."""
        self._profile = _checked(profile)
        return [each for each in self._pending.values() if not self.may_retry(each.identifier)]

    def end(self, identifier: int) -> Pending | None:
        """End an operation: its outcome is known, or it is given up. Return None if it was known before."""
        return self._pending.pop(identifier, None)
