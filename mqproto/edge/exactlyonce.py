"""The three steps in which a consumer decides whether a message is new, a duplicate, or in doubt.

The steps come from "Summary of Duplicate Detection Process for JMS Triggers": the delivery count, the document history,
and the document resolver. Each step is taken only if earlier ones do not decide. The tables below contain the
decisions.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from mqproto.base.errors import UsageError


class Verdict(StrEnum):
    """Whether a message is new for its consumer, a duplicate, or in doubt."""

    NEW = "new"
    """The message is processed, then acknowledged."""
    DUPLICATE = "duplicate"
    """The message was processed before, so it is only acknowledged."""
    IN_DOUBT = "in doubt"
    """The message may have been processed: it is acknowledged, and logged for a person to look into."""
    REJECTED = "rejected"
    """The message can never be processed: it is refused, and a retrieval failure is reported."""


class Count(Enum):
    """Step 1: the number of deliveries of the message."""

    FIRST = "1"
    AGAIN = ">1"
    UNDEFINED = "-1"

    @classmethod
    def of(cls, delivery_count: int) -> Count:
        """Return the member for a delivery count, from 1; -1 if it is not known.

        Raises:
            UsageError: it is not a delivery count.
        """
        if delivery_count < 1 and delivery_count != -1:
            raise UsageError(f"a delivery count of {delivery_count}: it is 1 or more, or -1")
        return cls.FIRST if delivery_count == 1 else cls.AGAIN if delivery_count > 1 else cls.UNDEFINED


class Entry(StrEnum):
    """Step 2: the entry for the message in the document history, by its UUID or message identifier."""

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
"""This value in the tables means that the resolver has to be asked."""

# For each thing known: the verdict without a resolver, and with one.
BY_COUNT: Final = {
    Count.FIRST: (Verdict.NEW, Verdict.NEW),
    Count.AGAIN: (Verdict.IN_DOUBT, ASK),
    Count.UNDEFINED: (Verdict.NEW, ASK),
}
"""The decisions of step 1, if no document history is used."""
BY_HISTORY: Final = {
    Entry.ABSENT: (Verdict.NEW, Verdict.NEW),
    Entry.STARTED: (Verdict.IN_DOUBT, ASK),
    Entry.COMPLETED: (Verdict.DUPLICATE, Verdict.DUPLICATE),
    Entry.FAILED: (Verdict.REJECTED, Verdict.REJECTED),
}
"""The decisions of step 2, if a document history is used; they do not depend on the delivery count."""


def judge(delivery_count: int, entry: Entry | None, *, has_resolver: bool) -> Verdict | None:
    """Return the decision of steps 1 and 2; None if the resolver has to be asked.

    Args:
        delivery_count: from 1, including this delivery; -1 if it is not known.
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

After a transient error the message is new the next time; after a fatal one it is refused with a retrieval failure.
Without a history neither happens: a failure is reported once the message has reached its limit of deliveries.
"""


def retrieval_fails(delivery_count: int, limit: int, verdict: Verdict) -> bool:
    """Whether a message is given up at this delivery, as a retrieval failure.

    Args:
        limit: the most deliveries of a message.
    """
    return verdict is Verdict.REJECTED or delivery_count > limit
