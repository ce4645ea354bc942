"""All queues of a node, found by each of their names."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.manager.localqueues import LocalQueues
from mqproto.queues.consumers import Consumer
from mqproto.queues.localqueue import QueueDeclaration, SystemQueue
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.desk import Desk, desk_of
from mqproto.turn.effects import QueueKind, QueueRow, StoredState, Writes
from mqproto.wire import MessageClass
from tests.pair import guid_of
from tests.windows import NOW, a_packet

PUBLIC = guid_of("public orders")
DECLARED = (
    QueueDeclaration("Orders", 16, True, PUBLIC, quota_bytes=9, journal=True, journal_quota_bytes=7),
    QueueDeclaration("notes", 17),
)


def all_queues(state: StoredState | None = None) -> tuple[LocalQueues, Desk]:
    numbers = count(100)
    desk = desk_of(guid_of("a"), Settings(journal_quota_bytes=5))
    return LocalQueues(desk, DECLARED, lambda: next(numbers), state or StoredState()), desk


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.5")
@pytest.mark.parametrize("name", [16, PUBLIC, r"TCP:10.0.0.7\PRIVATE$\orders", r"OS:host\ORDERS"])
def test_a_queue_is_found_by_each_name_that_a_packet_may_have_for_it(name: Any) -> None:
    queues, _ = all_queues()
    assert queues.addressed(name) is queues.named("orders")


@pytest.mark.parametrize(
    "name", [18, 4, 0, guid_of("other"), None, r"TCP:h\private$\orders;journal", r"OS:h\system$;deadletter"]
)
def test_journals_and_dead_letter_queues_are_no_destinations(name: Any) -> None:
    assert all_queues()[0].addressed(name) is None


def test_each_node_has_a_journal_and_two_dead_letter_queues_and_a_queue_has_a_journal_if_it_is_declared() -> (
    None
):
    queues, desk = all_queues()
    assert [found.name for found in queues] == ["Orders", "Orders;journal", "notes", *SystemQueue]
    assert queues.journal_of(queues.named("orders").queue) is queues.named("ORDERS;JOURNAL")
    assert queues.journal_of(queues.named("notes").queue) is None
    quotas = {found.name: found.declaration.quota_bytes for found in queues}
    assert quotas == {"Orders": 9, "Orders;journal": 7, "notes": None} | dict.fromkeys(SystemQueue, 5)
    taken = desk.writes.take(NOW)
    assert taken is not None
    assert [(row.name, row.priority) for row in taken.queues] == [(found.name, 0) for found in queues]


def test_an_unknown_queue_is_refused_with_the_names_of_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"no queue order here; there are: Orders, Orders;journal, notes, "):
        all_queues()[0].named("order")


def test_a_queue_is_found_by_the_number_of_each_of_its_lanes() -> None:
    queues, _ = all_queues()
    notes = queues.named("notes")
    lane = notes.lane(5)
    assert queues.of_lane(lane.queue) == (notes, lane)
    assert queues.of_lane(notes.queue) == (notes, notes.lane(0))
    assert queues.of_lane(99) is None


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.4")
def test_a_queue_that_is_deleted_has_no_name_any_more_and_is_gone_with_its_last_message() -> None:
    queues, desk = all_queues()
    orders, notes, journal = (queues.named(name) for name in ("orders", "notes", "orders;journal"))
    orders.insert(orders.lane(0).rows([a_packet("x")], [5], recoverable=True))
    queues.take_stirred(NOW)
    queues.delete(orders)
    assert queues.addressed(17) is queues.addressed(r"OS:host\notes") is notes, "only one is deleted"
    queues.delete(notes)
    assert queues.take_stirred(NOW) == [orders, journal, notes]
    for name in (16, PUBLIC, r"OS:host\ORDERS", 17):
        assert queues.addressed(name) is None
    with pytest.raises(UsageError, match=r"no queue orders here; there are: system"):
        queues.named("orders")
    assert [queues.is_gone(each) for each in (orders, journal, notes)] == [False, True, True]
    assert queues.of_lane(orders.queue) == (orders, orders.lane(0)), "what is on disk is still to leave"
    orders.let_go(NOW)
    assert queues.is_gone(orders)
    assert [ending.message_class for ending in desk.endings] == [MessageClass.NACK_Q_DELETED]


def test_a_queue_of_the_system_and_one_in_use_cannot_be_deleted() -> None:
    queues, _ = all_queues()
    for name in ("orders;journal", *SystemQueue):
        with pytest.raises(UsageError, match="belongs to the system and cannot be deleted; purge it"):
            queues.delete(queues.named(name))
    orders = queues.named("orders")
    orders.consumers.ask(Consumer(1, 1, transactional=False))
    with pytest.raises(UsageError, match="an application receives from Orders: stop it first"):
        queues.delete(orders)
    assert queues.addressed(16) is orders


def test_all_queues_are_looked_at_once_at_the_start_and_then_those_that_are_stirred() -> None:
    queues, _ = all_queues()
    assert queues.take_stirred(NOW) == list(queues)
    assert queues.take_stirred(NOW) == []
    for name in ("notes", "orders", "notes"):
        queues.stir(queues.named(name))
    assert queues.take_stirred(NOW) == [queues.named("notes"), queues.named("orders")]


def test_after_a_restart_each_queue_has_its_own_lanes_and_those_of_a_queue_that_is_gone_are_left_alone() -> (
    None
):
    store = Disk()
    kept = [("notes", 0), ("notes", 6), ("Orders", 0), ("gone", 0)]
    rows = [QueueRow(number, QueueKind.LOCAL, *name) for number, name in enumerate(kept, start=1)]
    store.commit(Writes(queues=[*rows, QueueRow(5, QueueKind.OUTGOING, "notes")]))
    queues, desk = all_queues(store.load())
    assert {lane.priority: lane.queue for lane in queues.named("notes").lanes} == {6: 2, 0: 1}
    assert [lane.queue for lane in queues.named("orders").lanes] == [3]
    assert queues.of_lane(4) is None
    taken = desk.writes.take(NOW)
    assert taken is not None
    assert [row.name for row in taken.queues] == ["Orders;journal", *SystemQueue]
