"""Transactions: several messages that an application sends together."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import Draft
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.transfer.cursors import TRANSACTION_LIMIT
from mqproto.turn.effects import QueueKind
from mqproto.wire import TransactionHeader
from tests.observing import kept, messages
from tests.pair import Net, at, chain, queue

ORDERS, OTHERS = queue("orders"), queue("other orders", 18)
NOTES = queue("notes", 17, transactional=False)


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[ORDERS, OTHERS, NOTES])


def a_draft(body: str, *, transactional: bool = True) -> Draft:
    return Draft(body=body.encode(), transactional=transactional)


def headers(net: Net) -> list[TransactionHeader]:
    """Return the TransactionHeaders that left `a`, in the order of their messages' numbers."""
    found = {m.user.message_id: m.transaction for m in messages(net, "a", "b") if m.transaction is not None}
    return [found[message_id] for message_id in sorted(found)]


@pytest.mark.spec("[MS-MQMQ] 2.2.20.5")
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.booleans())
def test_the_first_and_the_last_are_marked_and_all_have_one_identifier(
    kinds: list[bool], together: bool
) -> None:
    """Some of the messages are not transactional, and some go elsewhere; the marks depend on neither."""
    net = chain("a", "b", "c", queues=[ORDERS, OTHERS, NOTES])
    sent: list[tuple[Destination, Draft]] = []
    for number, transactional in enumerate(kinds):
        destination = at("c", 17) if not transactional else at("c", 16 if number % 3 else 18)
        sent.append((destination, a_draft(str(number), transactional=transactional)))
    ordinals = net.nodes["a"].up.enqueue(sent, net.now, together=together)
    assert ordinals == list(range(1, len(kinds) + 1))
    net.run()
    found = headers(net)
    count = sum(kinds)
    marks = [(header.first, header.last) for header in found]
    if together:
        assert marks == [(number == 0, number == count - 1) for number in range(count)]
        assert len({header.identifier for header in found}) == min(count, 1)
    else:
        assert marks == [(True, True)] * count
        assert len({header.identifier for header in found}) == count


@pytest.mark.spec("[MS-MQMQ] 2.2.20.5")
def test_no_two_transactions_have_one_identifier_also_over_a_restart(net: Net) -> None:
    for _ in range(3):
        for _ in range(2):
            net.nodes["a"].up.enqueue([(at("c"), a_draft("x"))] * 3, net.now)
        net.run()
        net.kill("a")
        net.start("a")
    net.pass_ms(10_000)
    assert len({header.identifier for header in headers(net)}) == 6


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.2")
@pytest.mark.parametrize("committed", [False, True], ids=["before the commit", "after the commit"])
def test_a_crash_leaves_all_of_a_transaction_or_nothing(net: Net, committed: bool) -> None:
    """The transaction has messages to two remote queues and a local one, more than memory can hold."""
    a = net.nodes["a"]
    a.queues = (queue("here", 20),)
    net.start("a")
    net.run()
    sent = [(at("c"), a_draft("c")), (at("c", 18), a_draft("d")), (at("a", 20), a_draft("a"))] * 300
    a.dies_at, a.dies_committed = a.batch_count + 1, committed
    a.up.enqueue(sent, net.now)
    net.run()
    assert a.core is None
    net.start("a")
    net.pass_ms(60_000)
    found = [net.receive("c", "orders"), net.receive("c", "other orders"), net.receive("a", "here")]
    assert [len(bodies) for bodies in found] == [300 * committed] * 3


def test_one_that_cannot_be_sent_leaves_nothing_of_the_others(net: Net) -> None:
    core = net.nodes["a"].up
    for wrong in (
        (at("a", 99), a_draft("no such queue here")),
        (Destination("nowhere", None, 1), a_draft("no way")),
        (at("c"), Draft(body=b"", priority=8)),
    ):
        with pytest.raises(UsageError):
            core.enqueue([(at("c"), a_draft("x")), wrong], net.now)
    net.pass_ms(2_000)
    assert net.traffic == []
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


def test_all_messages_for_a_queue_here_have_to_fit_it_together() -> None:
    net = chain("c", queues=[QueueDeclaration("small", 19, transactional=True, quota_bytes=7_000)])
    core = net.nodes["c"].up
    with pytest.raises(UsageError, match="small is full: its quota is 7,000 bytes"):
        core.enqueue([(at("c", 19), a_draft("x" * 3_450))] * 2, net.now)
    assert kept(net, "c", "small") == []
    core.enqueue([(at("c", 19), a_draft("x" * 3_450))], net.now)
    net.run()
    assert len(kept(net, "c", "small")) == 1


def test_a_transaction_has_its_limit(net: Net) -> None:
    with pytest.raises(UsageError, match="10,001 messages at once; at most 10,000"):
        net.nodes["a"].up.enqueue([(at("c"), a_draft("x"))] * (TRANSACTION_LIMIT + 1), net.now)
