"""Stores are restored to an earlier moment, at either end: messages accepted afterwards arrive, once and in order."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.session.acknowledgment import ACK_DELAY_MS
from mqproto.simulator.storage.disk import Disk
from mqproto.transfer.succession import SPREAD
from mqproto.turn.effects import LIFE, MESSAGE_ID_CEILING, SEQUENCE_ORDINAL_CEILING, NewLife, QueueKind
from mqproto.wire import OrderAck, OrderAckBody, TxSequenceId
from tests.observing import arrive, messages
from tests.pair import Net, at, chain, guid_of, queue

A, C = guid_of("a"), guid_of("c")
ORDERS = queue("orders")
QUICK = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=1,
    resend_timeouts_medium_s=2,
    resend_timeouts_long_s=3,
    resend_timeouts_final_s=4,
)
LONG_MS = 30_000


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[ORDERS], settings=QUICK)


def send(net: Net, *bodies: str, **draft: Any) -> None:
    for body in bodies:
        net.send("a", at("c"), body, transactional=True, **draft)
    net.run()


def put_back(net: Net, name: str, store: Disk, *, known: bool = False) -> None:
    """Restore a store. `known`: whether its life file shows that it is from another moment."""
    net.kill(name)
    node = net.nodes[name]
    node.store = store
    counters = node.counters_of_life
    life = None
    if known:
        ordinal = counters.get(SEQUENCE_ORDINAL_CEILING, 0)
        life = NewLife(counters.get(LIFE, 0) + 1, counters.get(MESSAGE_ID_CEILING, 0) + 2**30, ordinal)
    net.start(name, life=life)


def copied(net: Net, name: str) -> Disk:
    return deepcopy(net.nodes[name].store)


def sequences(net: Net, name: str = "a") -> list[tuple[TxSequenceId, int]]:
    """Return a node's sequences in order: identifier, and how many messages each keeps."""
    sequences = net.nodes[name].up.inspect().sequences
    (succession,) = sequences._successions.values()
    return [(one.identifier, one.count) for one in succession]


def taken(net: Net) -> list[str]:
    return [body.decode() for body in net.receive("c", "orders")]


# The source has an earlier store


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
@pytest.mark.parametrize("kept", [[], ["1", "2"]], ids=["nothing waits", "some wait"])
def test_what_is_accepted_on_an_earlier_store_arrives_once_and_in_order(net: Net, kept: list[str]) -> None:
    send(net, "0")
    net.pass_ms(2_000)
    net.kill("b")
    send(net, *kept)
    store = copied(net, "a")
    send(net, *"lost")
    net.start("b")
    net.pass_ms(2_000)
    net.pass_ms(1_000)
    put_back(net, "a", store)
    send(net, *"xyz")
    net.pass_ms(LONG_MS)
    assert taken(net) == ["0", *kept, *"lost", *"xyz"]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


def test_one_copy_may_be_put_back_twice(net: Net) -> None:
    net.kill("b")
    send(net, "1", "2")
    store = copied(net, "a")
    net.start("b")
    for rest in ("abc", "de", "f"):
        send(net, *rest)
        net.pass_ms(LONG_MS)
        put_back(net, "a", deepcopy(store))
    send(net, "last")
    net.pass_ms(LONG_MS)
    assert taken(net) == ["1", "2", *"abcdef", "last"]


def test_of_an_earlier_store_the_destination_tells_what_had_arrived_and_the_log_says_so(net: Net) -> None:
    net.kill("b")
    send(net, "1", "2", "3")
    store = copied(net, "a")
    send(net, "lost")
    net.start("b")
    net.pass_ms(2_000)
    put_back(net, "a", store)
    assert [count for _, count in sequences(net)] == [3]
    net.pass_ms(LONG_MS)
    assert [count for _, count in sequences(net)] == [0]
    [note] = [note for note in net.nodes["a"].notes if note.name == "destination-ahead-of-store"]
    assert note.facts == {"queue": at("c").name, "arrived": 3, "renumbered": 0}


def put_back_when_the_clock_was_ahead(net: Net) -> None:
    """Restore a store from before the clock was ahead; the clock is right again.

    The destination has the messages "0" and "lost", but the store has only "0".
    """
    send(net, "0")
    store = copied(net, "a")
    net.set_clock(3_600)
    net.kill("a")
    net.start("a")
    send(net, "lost")
    net.pass_ms(2_000)
    net.set_clock(-3_600)
    put_back(net, "a", store)


def test_messages_are_numbered_anew_if_the_clock_was_wrong_and_their_identifier_is_older(net: Net) -> None:
    """The destination drops the messages as duplicates, and reports which."""
    put_back_when_the_clock_was_ahead(net)
    send(net, "x", "y")
    net.pass_ms(500)
    before = sequences(net)[-1][0]
    send(net, "z")
    net.pass_ms(LONG_MS)
    assert taken(net) == ["0", "lost", "x", "y", "z"]
    assert sequences(net)[-1][0] > before
    [note] = [note for note in net.nodes["a"].notes if note.name == "destination-ahead-of-store"]
    assert note.facts["renumbered"] == 3


def test_what_is_numbered_anew_is_sent_so_after_a_restart_as_well(net: Net) -> None:
    put_back_when_the_clock_was_ahead(net)
    send(net, *"wxyz")
    while "destination-ahead-of-store" not in net.nodes["a"].note_names():
        net.pass_ms(10)
    net.kill("a")
    net.start("a")
    send(net, "last")
    net.pass_ms(LONG_MS)
    assert taken(net) == ["0", "lost", *"wxyz", "last"]


def test_messages_that_leave_make_room_for_the_next_sequence_like_those_that_arrive(net: Net) -> None:
    net.kill("b")
    send(net, "1", journal_negative=True)
    net.kill("a")
    net.start("a")
    send(net, "2")
    net.start("b")
    outbound = net.nodes["a"].up.inspect().outbound
    first = next(one for one in outbound.named(at("c").name) if one.count and one.is_waiting)
    assert first.delete(1, net.nodes["a"].up.inspect().desk.writes)
    net.pass_ms(LONG_MS)
    assert taken(net) == ["2"]


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
def test_a_sequence_that_was_found_in_the_store_takes_no_message_and_those_behind_it_wait(net: Net) -> None:
    net.kill("b")
    send(net, "1")
    for body in ("2", "3"):
        net.kill("a")
        net.start("a")
        send(net, body)
    found = sequences(net)
    assert [count for _, count in found] == [1, 1, 1]
    assert len({identifier.time_stamp for identifier, _ in found}) == 1
    assert [identifier for identifier, _ in found] == sorted(identifier for identifier, _ in found)
    net.start("b")
    net.pass_ms(LONG_MS)
    assert taken(net) == ["1", "2", "3"]


def test_a_queue_of_the_store_serves_again_when_its_sequence_is_done(net: Net) -> None:
    for _ in range(5):
        net.kill("b")
        send(net, "kept")
        net.kill("a")
        net.start("a")
        send(net, "next")
        net.start("b")
        net.pass_ms(5_000)
    queues = [row for row in net.nodes["a"].store.queues.values() if row.kind is QueueKind.SEQUENCE]
    assert len(queues) == 2
    assert taken(net) == ["kept", "next"] * 5


def test_what_a_life_knows_of_the_one_before_is_known_in_all_of_its_processes(net: Net) -> None:
    """The first process may have nothing to send, and the clock may be behind the earlier life's identifiers."""
    store = copied(net, "a")
    send(net, "lost")
    net.pass_ms(2_000)
    [(last, _)] = sequences(net)
    put_back(net, "a", store, known=True)
    net.pass_ms(10)
    net.kill("a")
    net.start("a")
    send(net, "x")
    assert sequences(net)[-1][0].ordinal > last.ordinal + SPREAD
    net.pass_ms(LONG_MS)
    assert taken(net) == ["lost", "x"]


def test_two_processes_that_begin_in_one_second_begin_with_other_identifiers(net: Net) -> None:
    """The processes' random numbers differ, because a store that is restored at once cannot count on a later second."""
    send(net, "0")
    net.pass_ms(2_000)
    store = copied(net, "a")
    begun = []
    for _ in range(2):
        put_back(net, "a", deepcopy(store))
        send(net, "x")
        begun.append(sequences(net)[-1][0].ordinal)
    assert 0 < abs(begun[0] - begun[1]) < SPREAD


def test_a_word_of_what_was_never_sent_counts_only_when_a_resend_brings_it_again(net: Net) -> None:
    net.kill("b")
    send(net, "1", "2")
    net.start("b")
    net.kill("c")
    net.pass_ms(300)
    [(identifier, _)] = sequences(net)
    later = TxSequenceId(time_stamp=identifier.time_stamp, ordinal=identifier.ordinal + 7)
    word = OrderAck(
        source=C,
        destination_manager=A,
        destination=4,
        message_id=9,
        sent_time_s=0,
        body=OrderAckBody(later, 1, 0),
    ).message()
    arrive(net, "a", word)
    assert sequences(net) == [(identifier, 2)]
    assert "stray-acknowledgment" in net.nodes["a"].note_names()


# The destination has an earlier store, or an empty one


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize("is_empty", [False, True], ids=["put back", "moved away"])
def test_what_a_destination_has_lost_with_its_store_does_not_stop_what_follows(
    net: Net, is_empty: bool
) -> None:
    send(net, "1", "2")
    net.pass_ms(2_000)
    store = Disk() if is_empty else copied(net, "c")
    send(net, "3", "4")
    net.pass_ms(700)
    net.kill("b")
    send(net, "5", "6")
    net.start("b")
    net.pass_ms(100)
    put_back(net, "c", store)
    send(net, "7")
    net.pass_ms(LONG_MS)
    assert taken(net)[-1] == "7"
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0


def acknowledged(net: Net, number: int) -> None:
    """Let an OrderAck arrive at the source, for its only sequence."""
    [(identifier, _)] = sequences(net)
    body = OrderAckBody(identifier, number, number - 1)
    arrive(
        net,
        "a",
        OrderAck(
            source=C, destination_manager=A, destination=4, message_id=9, sent_time_s=0, body=body
        ).message(),
    )


@pytest.fixture
def half_acknowledged(net: Net) -> Net:
    """Return the net after three messages have arrived and two of them are acknowledged; the destination is down."""
    send(net, "1", "2", "3")
    net.pass_ms(ACK_DELAY_MS)
    net.kill("c")
    acknowledged(net, 2)
    assert [count for _, count in sequences(net)] == [1]
    return net


def last_sent(net: Net) -> tuple[int, int]:
    """Return the number and the previous number of the last transactional message that the source sent."""
    [*_, header] = [one.transaction for one in messages(net, "a", "b") if one.transaction is not None]
    return header.tx_sequence_number, header.previous_tx_sequence_number


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_a_message_follows_on_what_its_destination_still_has_of_those_before(half_acknowledged: Net) -> None:
    half_acknowledged.nodes["c"].store = Disk()
    half_acknowledged.start("c")
    half_acknowledged.pass_ms(LONG_MS)
    assert last_sent(half_acknowledged) == (3, 0)
    assert taken(half_acknowledged) == ["3"]
    assert [count for _, count in sequences(half_acknowledged)] == [0]


def test_an_order_ack_that_comes_late_bridges_nothing(half_acknowledged: Net) -> None:
    acknowledged(half_acknowledged, 1)
    half_acknowledged.start("c")
    half_acknowledged.pass_ms(LONG_MS)
    assert last_sent(half_acknowledged) == (3, 2)
    assert taken(half_acknowledged) == ["1", "2", "3"]


# Anything, in any order

SENDS = st.tuples(st.just("send"), st.integers(1, 4))
TIMES = st.tuples(st.just("pass"), st.sampled_from([1, 200, 700, 1_500, 6_000]))
EVENTS = st.tuples(
    st.sampled_from(["copy", "put back", "move away", "restart", "kill"]), st.sampled_from("abc")
)


@pytest.mark.parametrize("known", [True, False], ids=["said by the file of its life", "said by nobody"])
@given(events=st.lists(SENDS | TIMES | EVENTS, max_size=30))
def test_whatever_stores_are_put_back_what_is_accepted_after_the_last_arrives_once_in_order(
    events: list[tuple[str, Any]], known: bool
) -> None:
    net = chain("a", "b", "c", queues=[ORDERS], settings=QUICK)
    copies: dict[str, Disk] = {}
    accepted: list[str] = []
    number = 0
    for what, which in events:
        if what == "send":
            if net.nodes["a"].core is None:
                net.start("a")
            bodies = [str(number + index) for index in range(which)]
            number += which
            send(net, *bodies)
            accepted += bodies
        elif what == "pass":
            net.pass_ms(which)
        elif what == "copy":
            copies[which] = copied(net, which)
        elif what == "move away" or (what == "put back" and which in copies):
            store = deepcopy(copies[which]) if what == "put back" else Disk()
            if not known:
                net.set_clock(2 * SPREAD)
            put_back(net, which, store, known=known)
            accepted.clear()
        elif what == "restart":
            put_back(net, which, net.nodes[which].store)
        elif what == "kill":
            net.kill(which)
    net.start(*(name for name, node in net.nodes.items() if node.core is None))
    # What is held behind messages that both ends have lost goes when a later sequence comes.
    send(net, "last")
    accepted.append("last")
    net.pass_ms(2 * LONG_MS)
    arrived = taken(net)
    assert [body for body in arrived if body in accepted] == accepted
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0
