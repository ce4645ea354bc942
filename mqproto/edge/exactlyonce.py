"""Is a message new, a duplicate, or in doubt? The three steps in which a consumer decides.

They are those of "Summary of Duplicate Detection Process for JMS Triggers": the delivery count, the document history,
the document resolver. Each is asked only if those before it do not decide. The tables here have the answers.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from mqproto.base.errors import UsageError


class Verdict(StrEnum):
    """Whether a message is new, a duplicate or in doubt for its consumer."""

    NEW = "new"
    """It is processed, then acknowledged."""
    DUPLICATE = "duplicate"
    """It has been processed: it is acknowledged."""
    IN_DOUBT = "in doubt"
    """Nobody knows whether it has been: it is acknowledged, and logged where a person will look."""
    REJECTED = "rejected"
    """It can never be processed: it is refused, and a retrieval failure is reported."""


class Count(Enum):
    """Step 1: the number of deliveries of the message."""

    FIRST = "1"
    AGAIN = ">1"
    UNDEFINED = "-1"

    @classmethod
    def of(cls, delivery_count: int) -> Count:
        """Return the member for a delivery count, from 1; -1 if it is not known.

        UsageError: it is not a delivery count.
            UsageError: it is none of these.
        """
        if delivery_count < 1 and delivery_count != -1:
            raise UsageError(f"a delivery count of {delivery_count}: it is 1 or more, or -1")
        return cls.FIRST if delivery_count == 1 else cls.AGAIN if delivery_count > 1 else cls.UNDEFINED


class Entry(StrEnum):
    """Step 2: the document history's entry for the message, by its UUID or message identifier."""

    ABSENT = "absent"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    """Its processing ended with a fatal error."""


class Attempt(Enum):
    """How the processing of a message ended."""

    SUCCEEDED = "succeeded"
    FAILED_FOR_NOW = "transient error"
    FAILED_FOR_GOOD = "fatal error"


ASK: Final = None
"""In the tables: ask the resolver."""

# For each thing known: the verdict without a resolver, and with one.
BY_COUNT: Final = {
    Count.FIRST: (Verdict.NEW, Verdict.NEW),
    Count.AGAIN: (Verdict.IN_DOUBT, ASK),
    Count.UNDEFINED: (Verdict.NEW, ASK),
}
"""Step 1, if no document history is used."""
BY_HISTORY: Final = {
    Entry.ABSENT: (Verdict.NEW, Verdict.NEW),
    Entry.STARTED: (Verdict.IN_DOUBT, ASK),
    Entry.COMPLETED: (Verdict.DUPLICATE, Verdict.DUPLICATE),
    Entry.FAILED: (Verdict.REJECTED, Verdict.REJECTED),
}
"""Step 2, if one is used: whatever the delivery count."""


def judge(delivery_count: int, entry: Entry | None, *, has_resolver: bool) -> Verdict | None:
    """Return the decision of steps 1 and 2; None if the resolver has to be asked.

    Args:
        delivery_count: from 1, this delivery counted; -1 if it is not known.
        entry: what the document history has; None if none is used.
        has_resolver: whether there is somebody to ask if these steps do not decide.

    Raises:
        UsageError: there is no such delivery count.
    """
    count = Count.of(delivery_count)
    if entry is None:
        return BY_COUNT[count][has_resolver]
    return BY_HISTORY[entry][has_resolver]


ENTRY_AFTER: Final = {
    Attempt.SUCCEEDED: Entry.COMPLETED,
    Attempt.FAILED_FOR_NOW: Entry.ABSENT,
    Attempt.FAILED_FOR_GOOD: Entry.FAILED,
}
"""The entry that a transaction in which a message was processed, or its end, leaves in the document history.
One that never ended leaves "started".

After a transient error it is new the next time; after a fatal one it is refused, and a retrieval failure is reported.
Without a history neither happens, and a failure is reported when the message has been delivered as often as it may be.
"""


def retrieval_fails(delivery_count: int, limit: int, verdict: Verdict) -> bool:
    """Whether a message is given up at this delivery, as a retrieval failure.

    Args:
        limit: how often a message may be delivered.
    """
    return verdict is Verdict.REJECTED or delivery_count > limit
