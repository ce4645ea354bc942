"""The table of "Summary of Duplicate Detection Process for JMS Triggers", cell by cell, and its notes."""

from __future__ import annotations

import itertools

import pytest

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import (
    ENTRY_AFTER,
    Attempt,
    Entry,
    Verdict,
    judge,
    retrieval_fails,
)

NEW, DUPLICATE, IN_DOUBT, REJECTED = Verdict.NEW, Verdict.DUPLICATE, Verdict.IN_DOUBT, Verdict.REJECTED
ASK_RESOLVER = None


@pytest.mark.parametrize(
    ("delivery_count", "has_resolver", "judgment"),
    [
        (1, False, NEW),
        (1, True, NEW),
        (2, False, IN_DOUBT),
        (2, True, ASK_RESOLVER),
        (1_000_000, False, IN_DOUBT),
        (-1, False, NEW),
        (-1, True, ASK_RESOLVER),
    ],
)
def test_step_1_check_delivery_count(
    delivery_count: int, has_resolver: bool, judgment: Verdict | None
) -> None:
    """This is step 1, if document history is not used."""
    assert judge(delivery_count, None, has_resolver=has_resolver) == judgment


@pytest.mark.parametrize("delivery_count", [1, 2, 17, -1])
@pytest.mark.parametrize(
    ("entry", "has_resolver", "judgment"),
    [
        (Entry.ABSENT, False, NEW),
        (Entry.ABSENT, True, NEW),
        (Entry.COMPLETED, False, DUPLICATE),
        (Entry.COMPLETED, True, DUPLICATE),
        (Entry.STARTED, False, IN_DOUBT),
        (Entry.STARTED, True, ASK_RESOLVER),
        (Entry.FAILED, False, REJECTED),
        (Entry.FAILED, True, REJECTED),
    ],
)
def test_step_2_check_document_history(
    delivery_count: int, entry: Entry, has_resolver: bool, judgment: Verdict | None
) -> None:
    """In step 1, if document history is used, the server proceeds to step 2 whatever the delivery count is."""
    assert judge(delivery_count, entry, has_resolver=has_resolver) == judgment


def test_the_resolver_is_asked_only_if_there_is_one() -> None:
    for count, entry in itertools.product([1, 2, -1], [None, *Entry]):
        assert judge(count, entry, has_resolver=False) is not None


@pytest.mark.parametrize("delivery_count", [0, -2, -100])
def test_there_is_no_such_delivery_count(delivery_count: int) -> None:
    with pytest.raises(UsageError, match=f"a delivery count of {delivery_count}: it is 1 or more, or -1"):
        judge(delivery_count, Entry.COMPLETED, has_resolver=True)


@pytest.mark.parametrize("has_resolver", [False, True])
@pytest.mark.parametrize(
    ("attempt", "verdict", "is_reported"),
    [
        (Attempt.SUCCEEDED, DUPLICATE, False),
        (Attempt.FAILED_FOR_NOW, NEW, False),
        (Attempt.FAILED_FOR_GOOD, REJECTED, True),
    ],
)
def test_notes_what_a_message_is_the_next_time_with_document_history(
    attempt: Attempt, verdict: Verdict, is_reported: bool, has_resolver: bool
) -> None:
    found = judge(2, ENTRY_AFTER[attempt], has_resolver=has_resolver)
    assert found is verdict
    assert retrieval_fails(2, 5, found) is is_reported


@pytest.mark.parametrize(("delivery_count", "is_reported"), [(2, False), (5, False), (6, True), (-1, False)])
def test_notes_without_document_history_a_failure_is_reported_at_the_maximum_delivery_count(
    delivery_count: int, is_reported: bool
) -> None:
    found = judge(delivery_count, None, has_resolver=False)
    assert found is not None
    assert retrieval_fails(delivery_count, 5, found) is is_reported
