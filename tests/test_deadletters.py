"""Dead-letter queues and journals: what is kept there has ended; and dead letters sent back."""

from __future__ import annotations

import pytest

from mqproto.localqueues import QueueDeclaration
from mqproto.wire import MessageClass
from tests.observing import DEADLETTER, DEADXACT, JOURNAL, administration, bodies, ended, final_acks
from tests.pair import Net, at, chain, queue

ADMIN = queue("admin", 5, transactional=False)
NOTES = queue("notes", 17, transactional=False)
ORDERS = QueueDeclaration("orders", 16, transactional=True, journal=True)
EVERYTHING = {"journal_negative": True, "journal_positive": True, "acknowledgments": 0xF}


@pytest.fixture
def net() -> Net:
    return chain("a", "c", queues=[ADMIN, NOTES, ORDERS])


# What is kept has ended


@pytest.mark.spec("[MS-MQQB] 3.1.7.2")
def test_what_was_not_received_in_time_stays_a_dead_letter_until_somebody_takes_it(net: Net) -> None:
    net.send("a", at("c", 17), "late", time_to_be_received_s=1, journal_negative=True, recoverable=True)
    net.pass_ms(5_000)
    assert ended(net, "c", DEADLETTER) == [(MessageClass.NACK_RECEIVE_TIMEOUT, b"late")]
    net.kill("c")
    net.start("c")
    net.pass_ms(60_000)
    assert net.receive("c", DEADLETTER) == [b"late"]
    net.pass_ms(1_000)
    assert bodies(net, "c", DEADLETTER) == []


@pytest.mark.spec("[MS-MQQB] 3.1.7.2")
@pytest.mark.parametrize("leaving", ["received", "committed", "rejected", "purged"])
def test_nothing_follows_when_a_message_leaves_where_it_was_kept(net: Net, leaving: str) -> None:
    """A dead letter at its source and at its destination, a source journal, and a queue's own journal."""
    a, c = net.nodes["a"].up, net.nodes["c"].up
    asked = {**EVERYTHING, "admin_queue": at("c", 5).name}
    net.send("a", at("c", 99), "nowhere", transactional=True, **asked)
    net.send("a", at("c", 99), "nowhere", **asked)
    net.send("a", at("c"), "received", transactional=True, **asked)
    net.run()
    net.receive("c", "orders")
    net.pass_ms(2_000)
    kept = [("a", DEADXACT), ("c", DEADLETTER), ("a", JOURNAL), ("c", "orders;journal")]
    assert [len(bodies(net, *where)) for where in kept] == [1, 1, 2, 1]
    heard, finals = administration(net, "c"), final_acks(net, "c", "a")
    for name, queue_name in kept:
        core = a if name == "a" else c
        if leaving == "purged":
            core.purge(queue_name, net.now)
        else:
            core.consume(7, queue_name, 10, transactional=leaving != "received")
            net.run()
        if leaving == "committed":
            core.settle(7, queue_name, net.now, commit=True)
        elif leaving == "rejected":
            core.reject(7, queue_name)
    net.pass_ms(2_000)
    assert [bodies(net, *where) for where in kept] == [[], [], [], []]
    assert administration(net, "c") == heard
    assert final_acks(net, "c", "a") == finals
