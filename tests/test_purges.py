"""Queues that an operator empties, local and outgoing."""

from __future__ import annotations

import pytest

from mqproto.configuration import Settings
from mqproto.wire import MessageClass, guid_text
from tests.observing import DEADLETTER, DEADXACT, ended, final_acks
from tests.pair import Net, at, chain, guid_of, queue

ADMIN = queue("admin", 5, transactional=False)
NOTES = queue("notes", 17, transactional=False)
ORDERS = queue("orders")
TO_C = guid_text(guid_of("c"))
SMALL = Settings(resident_messages=8, try_connect_interval_ms=200)


@pytest.fixture
def net() -> Net:
    return chain("a", "c", queues=[ADMIN, NOTES, ORDERS], settings=SMALL)


# Outgoing queues


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.7")
@pytest.mark.parametrize("kind", ["express", "recoverable", "transactional"])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice at once"])
def test_what_waits_in_an_outgoing_queue_is_gone_and_a_dead_letter_if_it_asked_for_that(
    net: Net, kind: str, times: int
) -> None:
    net.blocked.add(frozenset("ac"))
    options = {"transactional": kind == "transactional", "recoverable": kind == "recoverable"}
    destination = at("c", 16 if kind == "transactional" else 17)
    for number in range(600):  # More than two pages of a purge.
        net.send("a", destination, str(number), journal_negative=number % 100 == 0, **options)
    net.run()
    core = net.nodes["a"].up
    name = destination.name if kind == "transactional" else TO_C
    assert max(core.purge(name, net.now) for _ in range(times)) == 600
    net.run()
    kept_in = DEADXACT if kind == "transactional" else DEADLETTER
    expected = [(MessageClass.NACK_DELETED, str(number).encode()) for number in range(0, 600, 100)]
    assert ended(net, "a", kept_in) == expected
    assert [queue.waiting for queue in core.status().outgoing] == [0]
    net.blocked.clear()
    net.send("a", destination, "next", **options)
    net.pass_ms(2_000)
    assert net.receive("c", "orders" if kind == "transactional" else "notes") == [b"next"]


# Queues that are deleted


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.4")
@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
def test_the_senders_of_what_lay_in_a_deleted_queue_are_told(net: Net) -> None:
    net.send("a", at("c"), "order", transactional=True, journal_negative=True)
    net.send("a", at("c", 17), "note", journal_negative=True)
    net.run()
    assert [net.nodes["c"].up.delete(name) for name in ("orders", "notes")] == [1, 1]
    net.pass_ms(2_000)
    assert final_acks(net, "c", "a") == [MessageClass.NACK_Q_DELETED]
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_Q_DELETED, b"order")]
    assert ended(net, "c", DEADLETTER) == [(MessageClass.NACK_Q_DELETED, b"note")]
    net.send("a", at("c"), "more", transactional=True, journal_negative=True)
    net.pass_ms(2_000)
    assert ended(net, "a", DEADXACT)[1:] == [(MessageClass.NACK_BAD_DST_Q, b"more")]
