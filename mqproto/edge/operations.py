"""Numbered operations, which are performed only once, no matter how often they are invoked.

They are described in "Duplicate Operation Detection Support".

An invoker whose connection breaks does not know whether its operation was performed, and invokes it once more.
Submitting a message twice would do harm. So such operations carry an Operation Instance Identifier: one byte that the
invoker increments for each operation. The performer remembers the last identifiers and outcomes. Instead of performing
an operation again, it repeats the outcome.

Identifiers wrap around. Of two identifiers, the newer is the one that is fewer steps ahead of the other. The profile, 0
to 127, is the number of identifiers that the performer remembers. So it is also the maximum number of operations that
an invoker may have outstanding. `Invoker` and `Performer` decide; their callers send, write to disk, and perform
operations.
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
"""The number of steps behind the newest identifier at which an identifier has expired."""
PROFILE_LIMIT: Final = HALF - 1

numbered = Struct("identifier" / Byte, "parameter" / GreedyBytes)
"""The argument of a numbered operation; the code that performs the operation gets only the parameter.

This is the formal layout. `with_identifier` and `parted` do the same in less time, and a test checks that.
"""


class OperationError(MqprotoError):
    """An invocation that is not valid; the text says why."""


def is_numbered(operation: int) -> bool:
    """Return whether operations with this value carry an identifier.

    Raises:
        OperationError: the value is not from 0 to 63.
    """
    if not 0 <= operation <= LAST:
        raise OperationError(f"operation value {operation}: there are 0 to {LAST}")
    return operation >= FIRST_NUMBERED


def with_identifier(identifier: int, parameter: bytes) -> bytes:
    """Return the argument of a numbered operation."""
    return bytes((identifier,)) + parameter


def parted(argument: bytes) -> tuple[int, bytes]:
    """Return the identifier and the parameter in a numbered operation's argument.

    Raises:
        OperationError: the argument is empty.
    """
    if not argument:
        raise OperationError(
            f"a numbered operation ({FIRST_NUMBERED} to {LAST}) without its instance identifier"
        )
    return argument[0], argument[1:]


def behind(identifier: int, newest: int) -> int:
    """Return how many steps an identifier is behind the newest one, from 0 to 255."""
    return (newest - identifier) % IDENTIFIERS


def _newer(identifier: int, newest: int | None) -> int:
    """Return the newer of two identifiers; if they are half the circle apart, return `identifier`."""
    return identifier if newest is None or behind(identifier, newest) >= HALF else newest


def _checked(profile: int) -> int:
    if not 0 <= profile <= PROFILE_LIMIT:
        raise UsageError(f"a profile of {profile} instance identifiers: 0 to {PROFILE_LIMIT} can be kept")
    return profile


class Answer(Enum):
    """A performer's reaction to an invocation."""

    PERFORM = "perform"
    """The operation is new."""
    REPEAT = "repeat"
    """The operation was performed before; the invoker gets its outcome again."""
    WAIT = "wait"
    """The operation is being performed; the invoker gets the outcome when it is complete."""
    REFUSE = "refuse"
    """The identifier is so old that the operation may already have been performed and forgotten."""


class Kept(NamedTuple):
    """The record of an operation, which a performer must store together with the operation's effects.

    Both must be stored in the same transaction.

    forgotten: the identifiers to delete from disk.
    """

    identifier: int
    outcome: bytes
    forgotten: tuple[int, ...]


class Performer:
    """Remembers the operations of one invoker.

    Args:
        profile: the number of identifiers to remember, from 0 to 127. With 0, operations are performed one at a time,
            each as if it were new.
        kept: the identifiers and outcomes on disk.
    """

    def __init__(self, profile: int, kept: Iterable[tuple[int, bytes]] = ()) -> None:
        self.profile = _checked(profile)
        self._outcomes = dict[int, bytes | None](kept)
        self._newest: int | None = None
        self._newest_kept: int | None = None
        """The newest identifier on disk. `_newest` is the newest one that was received; after a crash, both are the
        same.
        """
        for identifier in self._outcomes:
            self._newest = self._newest_kept = _newer(identifier, self._newest)

    def invoke(self, identifier: int) -> Answer:
        """Take an invocation.

        If the answer is PERFORM, the caller performs the operation and then calls `complete`.
        """
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
        """Take the identifier of the invoker's next operation.

        Forget the identifiers that are now too old, and return them.

        If there was a crash before the last operations were on disk, only the invoker knows the next identifier.
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
        """Return whether the first identifier that an invoker uses shows that it has kept count.

        This is true if the identifier is shortly after the newest one, or is a remembered one. An invoker that has lost
        count begins with 0.

        Args:
            is_new: whether the identifier belongs to a new operation, rather than to one that is invoked again.
        """
        if self._newest is None or 0 < behind(self._newest, first) <= self.profile:
            return True
        return not is_new and first != 0 and first in self._outcomes

    @property
    def following(self) -> int:
        """The identifier of the next operation for an invoker that has lost count.

        It is the one after the newest that was received.
        """
        return 0 if self._newest is None else (self._newest + 1) % IDENTIFIERS

    @property
    def outcomes(self) -> list[bytes]:
        """The outcomes of all remembered operations that are complete."""
        return [outcome for outcome in self._outcomes.values() if outcome is not None]

    def outcome(self, identifier: int) -> bytes:
        """The outcome of an operation that was performed."""
        outcome = self._outcomes[identifier]
        assert outcome is not None, "it has been performed"
        return outcome

    def complete(self, identifier: int, outcome: bytes) -> Kept:
        """Record the outcome of an operation; a refusal is an outcome, too."""
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
    """An operation whose outcome is not known; it is invoked with these bytes until the outcome is known."""

    identifier: int
    operation: int
    parameter: bytes

    @property
    def argument(self) -> bytes:
        """The argument in the form in which it is sent."""
        return with_identifier(self.identifier, self.parameter)


class Invoker:
    """Numbers operations, and limits how many of them are outstanding.

    Args:
        profile: the performer's profile.
        following: the identifier of the next operation.
        pending: the operations without a known outcome at the time when the invoker's state was saved, the oldest
            first.
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
        """The operations without a known outcome, the oldest first.

        After a connection breaks, all of them are retried.
        """
        return list(self._pending.values())

    @property
    def outstanding(self) -> int:
        """The number of operations without a known outcome."""
        return len(self._pending)

    @property
    def may_begin(self) -> bool:
        """Whether the performer would still remember all outstanding operations if one more were begun."""
        oldest = next(iter(self._pending), None)
        return oldest is None or behind(oldest, self._following) < self._profile

    def begin(self, operation: int, parameter: bytes) -> Pending:
        """Begin a new operation. To survive a crash, the caller writes it to disk before sending it.

        Raises:
            UsageError: the operation carries no identifier, or too many are outstanding.
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
        """Undo the newest operation, which was never sent. Its identifier will be used for the next one."""
        assert identifier == (self._following - 1) % IDENTIFIERS, "those after it are taken back first"
        del self._pending[identifier]
        self._following = identifier

    def may_retry(self, identifier: int) -> bool:
        """Whether the performer can still tell if it has performed a pending operation.

        If not, another invocation might perform it twice, and only a person can decide what to do.
        """
        return behind(identifier, (self._following - 1) % IDENTIFIERS) < self._profile

    def learn(self, profile: int) -> list[Pending]:
        """Learn the performer's profile, which may be smaller than before.

        Return the operations that must not be retried.
        """
        self._profile = _checked(profile)
        return [each for each in self._pending.values() if not self.may_retry(each.identifier)]

    def end(self, identifier: int) -> Pending | None:
        """End an operation, because its outcome is known or the operation was abandoned.

        Return None if it had already ended.
        """
        return self._pending.pop(identifier, None)
