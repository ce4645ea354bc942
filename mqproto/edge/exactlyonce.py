"""The three steps in which a consumer decides whether a message is new, a duplicate, or in doubt.

The steps come from "Summary of Duplicate Detection Process for JMS Triggers": the delivery count, the document history,
and the document resolver. Each step is taken only if the earlier ones do not decide. The tables below contain the
decisions.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from mqproto.base.errors import UsageError


class Verdict(StrEnum):
    """The decision on whether a message is new for its consumer, a duplicate, or in doubt."""

    NEW = "new"
    """The message is processed and then acknowledged."""
    DUPLICATE = "duplicate"
    """The message was processed before, so it is only acknowledged."""
    IN_DOUBT = "in doubt"
    """The message may have been processed before. It is acknowledged, and logged so that a person can look into it."""
    REJECTED = "rejected"
    """The message can never be processed. It is refused, and a retrieval failure is reported."""


class Count(Enum):
    """Step 1: the number of deliveries of the message."""

    FIRST = "1"
    AGAIN = ">1"
    UNDEFINED = "-1"

    @classmethod
    def of(cls, delivery_count: int) -> Count:
        """Return the member for a delivery count.

        Args:
            delivery_count: the number of deliveries, at least 1; -1 if it is not known.

        Raises:
            UsageError: the number is not a delivery count.
        """
        if delivery_count < 1 and delivery_count != -1:
            raise UsageError(f"a delivery count of {delivery_count}: it is 1 or more, or -1")
        return cls.FIRST if delivery_count == 1 else cls.AGAIN if delivery_count > 1 else cls.UNDEFINED


class Entry(StrEnum):
    """Step 2: the entry for the message in the document history.

    It is found by the message's UUID or message identifier.
    """

    ABSENT = "absent"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    """The processing of the message ended with a fatal error."""


class Attempt(Enum):
    """How the processing of a message ended."""

    SUCCEEDED = "succeeded"
    FAILED_FOR_NOW = "transient error"
    FAILED_FOR_GOOD = "fatal error"


ASK: Final = None
"""The value in the tables which means that the resolver has to be asked."""

# For each thing known: the verdict without a resolver, and with one.
BY_COUNT: Final = {
    Count.FIRST: (Verdict.NEW, Verdict.NEW),
    Count.AGAIN: (Verdict.IN_DOUBT, ASK),
    Count.UNDEFINED: (Verdict.NEW, ASK),
}
"""The decisions of step 1, which are used if there is no document history. Each has a value for the case without a
resolver, and one for the case with a resolver.
"""
BY_HISTORY: Final = {
    Entry.ABSENT: (Verdict.NEW, Verdict.NEW),
    Entry.STARTED: (Verdict.IN_DOUBT, ASK),
    Entry.COMPLETED: (Verdict.DUPLICATE, Verdict.DUPLICATE),
    Entry.FAILED: (Verdict.REJECTED, Verdict.REJECTED),
}
"""The decisions of step 2, which are used if there is a document history; they do not depend on the delivery count.

Each has a value for the case without a resolver, and one for the case with a resolver.
"""


def judge(delivery_count: int, entry: Entry | None, *, has_resolver: bool) -> Verdict | None:
    """Return the decision of steps 1 and 2; None if the resolver has to be asked.

    Args:
        delivery_count: the number of deliveries, including this one; -1 if it is not known.
        entry: the document history's entry; None if no history is used.
        has_resolver: whether there is a document resolver to ask if these steps do not decide.

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
"""The entry in the document history after an attempt to process a message.

After a transient error, the message counts as new the next time. After a fatal error, it is refused the next time, with
a retrieval failure. Without a history, neither happens: a failure is reported once the message has reached its limit of
deliveries.
"""


def retrieval_fails(delivery_count: int, limit: int, verdict: Verdict) -> bool:
    """Return whether the consumer gives up on the message at this delivery and reports a retrieval failure.

    Args:
        limit: the maximum number of deliveries of a message.
    """
    return verdict is Verdict.REJECTED or delivery_count > limit
