"""Queues that applications receive from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.configuration import Settings
from mqproto.effects import QueueKind, StoredQueue, Waiting
from mqproto.errors import UsageError
from mqproto.localqueues import Consumer, LocalQueue
from tests.pair import queue


def a_queue(count: int = 0, settings: Settings | None = None) -> LocalQueue:
    found = LocalQueue(queue("orders"), 2, settings or Settings(), None)
    for _ in range(count):
        position = found.next_position()
        found.append(Waiting(position, b"x", False, stored=True))
    return found


def given_out(found: LocalQueue) -> dict[int, list[int]]:
    return {
        consumer.consumer: [message.position for message in messages]
        for consumer, messages in found.hand_out()
    }


def test_who_asks_first_is_served_first_with_as_much_as_there_is() -> None:
    found = a_queue(3)
    found.ask(Consumer(1, 2, transactional=False))
    found.ask(Consumer(2, 2, transactional=False))
    found.ask(Consumer(3, 2, transactional=False))
    assert given_out(found) == {1: [1, 2], 2: [3]}
    assert found.count == 0
    found.append(Waiting(found.next_position(), b"x", False, stored=True))
    assert given_out(found) == {3: [4]}


def test_a_transaction_counts_until_it_is_committed() -> None:
    found = a_queue(3)
    found.ask(Consumer(1, 2, transactional=True))
    assert given_out(found) == {1: [1, 2]}
    assert (found.count, list(found.unsettled)) == (3, [1])
    assert [message.position for message in found.commit(1)] == [1, 2]
    assert (found.count, found.unsettled) == (1, {})


@given(limits=st.lists(st.integers(1, 4), min_size=1, max_size=5), order=st.randoms())
def test_what_is_rolled_back_in_any_order_comes_again_in_the_first_order(
    limits: list[int], order: object
) -> None:
    found = a_queue(20)
    for consumer, limit in enumerate(limits):
        found.ask(Consumer(consumer, limit, transactional=True))
    consumers = list(given_out(found))
    order.shuffle(consumers)  # type: ignore[attr-defined]
    for consumer in consumers:
        found.roll_back(consumer)
    found.ask(Consumer(99, 20, transactional=False))
    assert given_out(found) == {99: list(range(1, 21))}


def test_a_consumer_that_has_gone_waits_no_longer_and_gives_back_what_it_had() -> None:
    found = a_queue(1)
    found.ask(Consumer(1, 1, transactional=True))
    given_out(found)
    found.ask(Consumer(2, 1, transactional=True))
    found.abandon(2)
    found.abandon(1)
    assert given_out(found) == {}
    found.ask(Consumer(3, 1, transactional=False))
    assert given_out(found) == {3: [1]}


@pytest.mark.parametrize("limit", [0, -1])
def test_asking_for_nothing_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="ask for 1 or more"):
        a_queue(1).ask(Consumer(1, limit, transactional=False))


def test_a_consumer_settles_before_it_asks_again_and_only_what_it_was_given() -> None:
    found = a_queue(1)
    found.ask(Consumer(1, 1, transactional=True))
    with pytest.raises(UsageError, match="must settle queue orders"):
        found.ask(Consumer(1, 1, transactional=True))
    given_out(found)
    with pytest.raises(UsageError, match="must settle queue orders"):
        found.ask(Consumer(1, 1, transactional=True))
    with pytest.raises(UsageError, match="nothing of queue orders to settle"):
        found.commit(2)
    with pytest.raises(UsageError, match="nothing of queue orders to settle"):
        found.roll_back(2)


def test_pages_are_read_for_who_waits_and_once_for_a_peek() -> None:
    stored = StoredQueue(2, QueueKind.LOCAL, "orders", 5, 500, first=11, last=15, final_ack_count=0)
    found = LocalQueue(queue("orders"), 2, Settings(resident_messages=4), stored)
    assert found.count == 5
    (page,) = found.pages()
    assert (page.after, page.limit_messages) == (10, 2)
    found.window.loaded([(11, b"x", False)])
    assert list(found.pages()) == [], "something is at hand and nobody asks"
    found.ask(Consumer(1, 1, transactional=False))
    (page,) = found.pages()
    assert page.after == 11
    assert found.next_position() == 16
    assert found.name == "orders"
