"""Posted messages: a row with each, in its transaction; acknowledgments that become ends."""

from __future__ import annotations

import pytest

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.formatname import PrivateName
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import ACKNOWLEDGE_RECEIPT, REPORT_NO_ARRIVAL, REPORT_NO_RECEIPT, Draft
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.turn.desk import desk_of
from mqproto.turn.effects import POSTED_UNKNOWN, NewLife, PostedRow, StoredState
from mqproto.turn.posted import LEAP_S, RAN_S, PostedMessages, RunningTime
from mqproto.wire import MessageClass
from mqproto.wire.guid import guid_text
from mqproto.wire.messages import POSTED_QUEUE
from tests.pair import START, Net, guid_of

ASKED = ACKNOWLEDGE_RECEIPT | REPORT_NO_ARRIVAL | REPORT_NO_RECEIPT


def at(name: str, identifier: int = 16) -> Destination:
    text = str(PrivateName(guid_of(name), identifier))
    return Destination(text, guid_of(name), identifier)


def draft(body: bytes = b"x", *, transactional: bool = True) -> Draft:
    admin = str(PrivateName(guid_of("a"), POSTED_QUEUE))
    return Draft(
        body=body,
        transactional=transactional,
        recoverable=not transactional,
        admin_queue=admin,
        acknowledgments=ASKED,
    )


def post(net: Net, to: str = "b", key: str = "k", *, transactional: bool = True) -> int:
    row = PostedRow(0, "orders", key, b"f", b"", 0)
    [ordinal] = net.nodes["a"].up.enqueue(
        [(at(to), draft(transactional=transactional))], net.now, posted=[row]
    )
    return ordinal


@pytest.fixture(params=[True, False])
def transactional(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def a_pair(*, transactional: bool = True, quota_bytes: int | None = None) -> Net:
    net = Net()
    for name in "ab":
        declared = QueueDeclaration("orders", 16, transactional=transactional, quota_bytes=quota_bytes)
        net.add(name, declared)
    net.route("a", "b", "b")
    net.route("b", "a", "a")
    net.start()
    net.run()
    return net


def test_the_row_is_in_the_transaction_of_its_message(transactional: bool) -> None:
    net = a_pair(transactional=transactional)
    disk = net.nodes["a"].store
    net.run()
    before = disk.commit_count
    ordinal = post(net, transactional=transactional)
    writes = net.nodes["a"].up.take(net.now).writes
    assert writes is not None
    assert len(writes.messages) == len(writes.posted) == 1
    assert writes.posted == [PostedRow(ordinal, "orders", "k", b"f", b"", 1)]
    assert writes.messages[0].message_id == ordinal
    assert disk.commit_count == before


def test_of_a_message_that_is_refused_no_row_is_kept() -> None:
    net = a_pair(quota_bytes=10)
    with pytest.raises(UsageError):
        post(net, to="a")
    net.nodes["a"].up.stop()
    writes = net.nodes["a"].up.take(net.now).writes
    assert writes is None or not writes.posted


@pytest.mark.parametrize("to", ["a", "b"])
def test_the_acknowledgment_of_its_receipt_ends_it_in_the_turn_that_takes_it(
    to: str, transactional: bool
) -> None:
    net = a_pair(transactional=transactional)
    ordinal = post(net, to, transactional=transactional)
    net.pass_ms(100)
    assert net.nodes["a"].store.posted[ordinal].message_class == MessageClass.NORMAL
    assert net.receive(to, "orders") == [b"x"]
    net.pass_ms(5_000)
    row = net.nodes["a"].store.posted[ordinal]
    assert row.message_class == MessageClass.ACK_RECEIVE
    assert row.ended_s >= START.utc_s
    assert all(not queue.waiting for queue in net.nodes["a"].up.status().local)


def test_a_refusal_at_its_queue_ends_it_too(transactional: bool) -> None:
    net = a_pair(transactional=transactional, quota_bytes=10)
    ordinal = post(net, "b", transactional=transactional)
    net.pass_ms(5_000)
    row = net.nodes["a"].store.posted[ordinal]
    assert row.message_class == MessageClass.NACK_Q_EXCEED_QUOTA


def test_time_counts_what_passed_and_never_a_leap() -> None:
    time = RunningTime(StoredState(counters={RAN_S: 50}), Moment(10_000, 0))
    assert time.now_s(Moment(10_999, 0)) == 50
    assert time.unkept() == {}
    assert time.now_s(Moment(12_000, 10**9)) == 52
    assert time.unkept() == {RAN_S: 52}
    assert time.unkept() == {}
    assert time.now_s(Moment(10**12, 0)) == 52 + LEAP_S
    assert time.now_s(Moment(10**12 + 1_000, 0)) == 53 + LEAP_S


def test_the_time_goes_on_after_a_restart_of_a_queue_manager_that_posted_nothing() -> None:
    net = a_pair()
    net.pass_ms(7_000)
    net.nodes["a"].up.stop()
    net.run()
    assert net.nodes["a"].store.counters[RAN_S] >= 7


def test_a_restored_store_does_not_know_what_was_posted() -> None:
    desk, life = desk_of(guid_of("a"), Net().add("a").settings), NewLife(2, 1, is_restored=True)
    posted = PostedMessages(desk, StoredState(life=life), START, lambda: 7)
    assert posted.is_unknown
    writes = desk.writes.take(START)
    assert writes is not None
    assert PostedMessages(desk, StoredState(counters=writes.counters), START, lambda: 7).is_unknown
    assert writes.counters[POSTED_UNKNOWN] == 1


def test_the_end_of_one_that_was_sent_again_elsewhere_is_under_its_identifier() -> None:
    desk = desk_of(guid_of("a"), Net().add("a").settings)
    posted = PostedMessages(desk, StoredState(), START, lambda: 7)
    posted.ended(guid_of("b"), 1, MessageClass.ACK_RECEIVE, 9, START)
    writes = desk.writes.take(START)
    assert writes is not None
    name = f"{guid_text(guid_of('b'))}\\1"
    assert writes.posted == [PostedRow(7, "", name, b"", b"", 1, MessageClass.ACK_RECEIVE, 9, owed=True)]


def test_one_that_is_sent_again_here_has_a_row_for_its_end() -> None:
    net = a_pair()
    [ordinal] = net.nodes["a"].up.enqueue([(at("b"), draft())], net.now)
    net.pass_ms(100)
    assert net.receive("b", "orders") == [b"x"]
    net.pass_ms(5_000)
    row = net.nodes["a"].store.posted[ordinal]
    assert (row.queue, row.key, row.message_class) == ("", "", MessageClass.ACK_RECEIVE)


def test_what_a_shared_database_knows_is_owed_no_longer() -> None:
    desk = desk_of(guid_of("a"), Net().add("a").settings)
    posted = PostedMessages(desk, StoredState(), START, lambda: 7)
    posted.settled(1)
    desk.writes.force()
    writes = desk.writes.take(START)
    assert writes is not None
    assert (writes.posted, [(end.message_id, end.is_settled) for end in writes.changes]) == ([], [(1, True)])
