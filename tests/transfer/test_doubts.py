"""Messages that expired at their sender after they were sent: they are dead letters until their destinations report
more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import FIGURES, KEEP, Settings
from mqproto.base.moment import Moment
from mqproto.simulator.storage.disk import Disk
from mqproto.transfer import doubts
from mqproto.turn.effects import QueueKind, ReadBy, ReadExpired, ReadPage
from mqproto.wire import (
    FinalAck,
    FinalAckBody,
    MessageClass,
    OrderAck,
    OrderAckBody,
    TransactionHeader,
    UserMessage,
    acknowledgment_in,
    guid_text,
)
from tests.observing import DEADXACT, JOURNAL, administration, arrive, bodies, ended, messages
from tests.pair import Net, at, chain, deaf, guid_of, queue

ADMIN = queue("admin", 5, transactional=False)
ORDERS = queue("orders")
NINE = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=5,
    resend_timeouts_medium_s=5,
    resend_timeouts_long_s=5,
    resend_timeouts_final_s=5,
    expire_sent=FIGURES,
)
LATE = MessageClass.NACK_REACH_QUEUE_TIMEOUT
TOO_FAR = MessageClass.NACK_HOP_COUNT_EXCEEDED
ASKED: dict[str, Any] = {"transactional": True, "journal_negative": True}
MINUTE: dict[str, Any] = {**ASKED, "time_to_reach_queue_s": 60}


@pytest.fixture
def net() -> Net:
    net = chain("a", "b", "c", queues=[ORDERS], settings=NINE)
    net.nodes["a"].queues = (ADMIN,)
    net.start("a")
    return net


def cut_off(net: Net) -> None:
    """Cut off `a`, so that it no longer hears from anybody."""
    net.blocked.add(frozenset("ab"))
    net.cut("a", "b")


def mend(net: Net) -> None:
    net.blocked.clear()
    net.pass_ms(10_000)


def in_doubt(net: Net) -> int:
    return len(net.nodes["a"].up.inspect().doubts)


def sent(net: Net, sender: str = "a", receiver: str = "b") -> list[UserMessage]:
    """Return the applications' messages that crossed a wire."""
    return [one for one in messages(net, sender, receiver) if acknowledgment_in(one) is None]


def header(net: Net, place: int = -1) -> TransactionHeader:
    found = sent(net)[place].transaction
    assert found is not None
    return found


def say_order_ack(net: Net, number: int) -> None:
    """Let an OrderAck from `c` arrive at `a`."""
    body = OrderAckBody(header(net, 0).tx_sequence_id, number, number - 1)
    there: dict[str, Any] = {"source": guid_of("c"), "destination_manager": guid_of("a"), "destination": 4}
    arrive(net, "a", OrderAck(**there, message_id=900 + number, sent_time_s=0, body=body).message(), peer="b")


def say_final_ack(
    net: Net, number: int, message_class: int = MessageClass.ACK_RECEIVE, source: str = "c"
) -> None:
    """Let a FinalAck for the message that was sent with this number arrive at `a`.

    It comes from `c`, or from a node on the way there.
    """
    [identifier, *_] = [
        one.user.message_id
        for one in sent(net)
        if one.transaction is not None and one.transaction.tx_sequence_number == number
    ]
    sequence = header(net, 0).tx_sequence_id
    ack = FinalAck(
        source=guid_of(source),
        destination_manager=guid_of("a"),
        destination=4,
        message_id=1_000 * ord(source) + number,
        sent_time_s=0,
        message_class=message_class,
        body=FinalAckBody(sequence, number, number - 1, guid_of("a"), identifier),
    ).message()
    arrive(net, "a", ack, peer="b")


# From which states


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize(
    ("state", "doubted", "told"),
    [("Waiting to Send", 0, 1), ("Waiting for SessionAck", 1, 1), ("Waiting for OrderAck", 1, 2)],
)
def test_a_message_expires_from_each_state_that_has_an_arrow_and_is_reported(
    net: Net, state: str, doubted: int, told: int
) -> None:
    """The next hop, where the message also waits, reports its end as well."""
    if state == "Waiting to Send":
        cut_off(net)
    elif state == "Waiting for SessionAck":
        net.send("a", at("c"), "heard", transactional=True)
        net.run()
        net.nodes["b"].hears = deaf
    else:
        net.blocked.add(frozenset("bc"))
    asks: dict[str, Any] = {"acknowledgments": 14, "admin_queue": at("a", 5).name}
    net.send("a", at("c"), "x", **{**MINUTE, "time_to_reach_queue_s": 10}, **asks)
    net.pass_ms(10_000)
    assert not bodies(net, "a", DEADXACT)
    assert not administration(net, "a")
    net.pass_ms(1_000)
    assert ended(net, "a", DEADXACT) == [(LATE, b"x")]
    assert administration(net, "a") == [LATE] * told
    assert in_doubt(net) == net.nodes["a"].note_names().count("message-in-doubt") == doubted


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.7")
def test_a_message_that_waits_for_its_final_ack_does_not_expire(net: Net) -> None:
    net.send("a", at("c"), "x", **MINUTE)
    net.pass_ms(100_000)
    assert bodies(net, "a", DEADXACT) == []
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == 1


def test_without_a_wish_for_a_dead_letter_it_ends_and_nothing_is_in_doubt(net: Net) -> None:
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", transactional=True, time_to_reach_queue_s=60)
    net.pass_ms(61_000)
    assert bodies(net, "a", DEADXACT) == []
    assert in_doubt(net) == net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


def test_by_default_what_was_sent_is_kept() -> None:
    net = chain("a", "b", "c", queues=[ORDERS], settings=replace(NINE, expire_sent=KEEP))
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", **MINUTE)
    net.pass_ms(100_000)
    assert bodies(net, "a", DEADXACT) == []
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 1


# Late words


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("restart", [False, True])
def test_a_late_final_ack_says_that_it_was_received_and_the_letter_leaves(net: Net, restart: bool) -> None:
    net.send("a", at("c"), "x", **MINUTE, journal_positive=True)
    net.run()
    cut_off(net)
    net.pass_ms(61_000)
    assert ended(net, "a", DEADXACT) == [(LATE, b"x")]
    if restart:
        net.kill("a")
        net.start("a")
        net.run()
    assert in_doubt(net) == 1
    assert net.receive("c", "orders") == [b"x"]
    mend(net)
    assert bodies(net, "a", DEADXACT) == []
    assert bodies(net, "a", JOURNAL) == [b"x"]
    [note] = [note for note in net.nodes["a"].notes if note.name == "doubt-is-over"]
    assert (note.facts["class"], note.facts["letter"]) == ("ACK_RECEIVE", "left")
    assert in_doubt(net) == 0
    assert not any(
        node.store.waiting(kind)
        for node in net.nodes.values()
        for kind in (QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.ORDER, QueueKind.HELD)
    )


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.parametrize("last", [MessageClass.ACK_RECEIVE, MessageClass.NACK_RECEIVE_REJECTED])
@pytest.mark.parametrize("restart", [False, True])
def test_after_a_late_order_ack_it_waits_for_its_final_ack_as_any_other(
    net: Net, last: MessageClass, restart: bool
) -> None:
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", **MINUTE, journal_positive=True)
    net.pass_ms(61_000)
    if restart:
        net.kill("a")
        net.start("a")
        net.run()
    say_order_ack(net, 1)
    assert bodies(net, "a", DEADXACT) == []
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == 1
    assert in_doubt(net) == 0
    say_final_ack(net, 1, last)
    assert ended(net, "a", JOURNAL) == ([(0, b"x")] if last == MessageClass.ACK_RECEIVE else [])
    assert ended(net, "a", DEADXACT) == ([] if last == MessageClass.ACK_RECEIVE else [(last, b"x")])
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_late_refusal_leaves_one_letter_that_says_why_and_is_not_in_doubt(net: Net) -> None:
    """The link after the next hop is repaired once the message has expired: the message's destination refuses it."""
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", **MINUTE)
    net.pass_ms(61_000)
    say_final_ack(net, 1, MessageClass.NACK_Q_EXCEED_QUOTA)
    say_final_ack(net, 1, MessageClass.NACK_Q_EXCEED_QUOTA)
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_Q_EXCEED_QUOTA, b"x")]
    assert in_doubt(net) == 0
    mend(net)
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_Q_EXCEED_QUOTA, b"x")]


def test_both_words_at_once_are_one(net: Net) -> None:
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", **MINUTE)
    net.pass_ms(61_000)
    run, net.run = net.run, lambda turns=0: None  # type: ignore[method-assign]
    say_order_ack(net, 1)
    say_final_ack(net, 1, MessageClass.NACK_RECEIVE_REJECTED)
    say_order_ack(net, 1)
    net.run = run  # type: ignore[method-assign]
    net.run()
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_RECEIVE_REJECTED, b"x")]
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == net.nodes["a"].store.waiting(QueueKind.ORDER) == 0


@pytest.mark.parametrize("words", [[say_final_ack], [say_order_ack, say_final_ack], [say_order_ack]])
def test_a_word_that_comes_between_the_end_of_its_time_and_the_letter_counts(
    words: list[Callable[[Net, int], None]],
) -> None:
    """The store has reported that the message has expired, and the dead letter is in the same batch as the
    acknowledgment.
    """
    net = chain("a", "b", "c", queues=[ORDERS], settings=replace(NINE, resident_messages=1))
    for number in range(3):
        net.send("a", at("c"), str(number), **MINUTE)
    net.run()
    cut_off(net)
    net.kill("a")
    net.start("a")
    net.run()
    core, numbers = net.nodes["a"].up, [1, 2, 3]
    loaded, run = core.loaded, net.run

    def late(page: ReadPage | ReadExpired, rows: list[tuple[int, bytes, bool]], now: Moment) -> None:
        loaded(page, rows, now)
        if isinstance(page, ReadExpired) and rows:
            number = numbers.pop(0)
            net.run = lambda turns=0: None  # type: ignore[method-assign]
            for say in words:
                say(net, number)
            net.run = run  # type: ignore[method-assign]

    core.loaded = late  # type: ignore[method-assign]
    net.pass_ms(61_000)
    assert not numbers
    assert in_doubt(net) == 0
    assert bodies(net, "a", DEADXACT) == []
    assert net.nodes["a"].store.waiting(QueueKind.ORDER) == 0
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == (0 if say_final_ack in words else 3)


# The word of a queue manager on the way: only a copy of the message has ended there


@pytest.fixture
def kept() -> Net:
    """A net in which sent messages never expire."""
    return chain("a", "b", "c", queues=[ORDERS], settings=replace(NINE, expire_sent=KEEP))


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize("named", [False, True], ids=["the sequence goes on", "another began"])
def test_what_is_in_its_queue_has_not_ended_on_its_way(kept: Net, named: bool) -> None:
    kept.send("a", at("c"), "x", **ASKED, journal_positive=True)
    if not named:
        kept.run()
        kept.blocked.add(frozenset("bc"))
        kept.cut("b", "c")
        kept.send("a", at("c"), "y", **ASKED)
        kept.run()
        say_order_ack(kept, 1)
    kept.pass_ms(2_000)
    say_final_ack(kept, 1, TOO_FAR, "b")
    assert bodies(kept, "a", DEADXACT) == []
    assert kept.nodes["a"].note_names().count("stray-acknowledgment") == 1
    assert kept.nodes["a"].store.waiting(QueueKind.FINAL) == 1
    say_final_ack(kept, 1)
    assert bodies(kept, "a", JOURNAL) == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.parametrize("last", [MessageClass.ACK_RECEIVE, MessageClass.NACK_RECEIVE_REJECTED])
@pytest.mark.parametrize("restart", [False, True])
def test_what_ended_on_its_way_is_in_doubt_until_its_destination_has_said_more(
    kept: Net, last: MessageClass, restart: bool
) -> None:
    kept.blocked.add(frozenset("bc"))
    kept.send("a", at("c"), "x", **ASKED, journal_positive=True)
    kept.run()
    say_final_ack(kept, 1, TOO_FAR, "b")
    assert ended(kept, "a", DEADXACT) == [(TOO_FAR, b"x")]
    [note] = [note for note in kept.nodes["a"].notes if note.name == "message-ended-on-its-way"]
    assert note.facts["by"] == guid_text(guid_of("b"))
    if restart:
        kept.kill("a")
        kept.start("a")
        kept.run()
    assert in_doubt(kept) == 1
    say_final_ack(kept, 1, last)
    received = last == MessageClass.ACK_RECEIVE
    assert ended(kept, "a", JOURNAL) == ([(0, b"x")] if received else [])
    assert ended(kept, "a", DEADXACT) == ([] if received else [(last, b"x")])
    assert in_doubt(kept) == 0
    assert not any(kept.nodes["a"].store.waiting(kind) for kind in (QueueKind.FINAL, QueueKind.ORDER))


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("killed", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("first", "bc")
def test_of_both_words_that_of_the_destination_holds_whichever_comes_first(
    kept: Net, first: str, turns: int, committed: bool, killed: int | None
) -> None:
    """The second report comes a number of turns after the first, and the sender may be killed meanwhile."""
    kept.blocked.add(frozenset("bc"))
    kept.send("a", at("c"), "x", **ASKED, journal_positive=True)
    kept.run()
    a = kept.nodes["a"]
    if killed is not None:
        a.dies_at, a.dies_committed = a.batch_count + killed, committed
    run, kept.run = kept.run, lambda turns=0: None  # type: ignore[method-assign]
    for source in (first, *({"b", "c"} - {first})):
        if a.core is not None:
            say_final_ack(kept, 1, TOO_FAR if source == "b" else MessageClass.ACK_RECEIVE, source)
        for _ in range(turns if a.core is not None else 0):
            kept.turn("a")
            if a.core is None:
                break
    kept.run = run  # type: ignore[method-assign]
    kept.run()
    if a.core is None:
        kept.start("a")
        kept.run()
        for source in "bc":  # Neither was acknowledged, so both come again.
            say_final_ack(kept, 1, TOO_FAR if source == "b" else MessageClass.ACK_RECEIVE, source)
    assert bodies(kept, "a", DEADXACT) == []
    assert bodies(kept, "a", JOURNAL) == [b"x"]
    kinds = (QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.ORDER)
    assert not any(a.store.waiting(kind) for kind in kinds)


def test_one_on_the_way_ends_no_doubt(net: Net) -> None:
    three_in_doubt(net)
    say_final_ack(net, 2, TOO_FAR, "b")
    assert ended(net, "a", DEADXACT) == [(LATE, b"1"), (LATE, b"2"), (LATE, b"3")]
    assert in_doubt(net) == 3


# Set aside, as its next hop refuses it: a copy may have gone another way


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_what_was_set_aside_is_in_doubt_until_its_destination_has_said_that_it_has_it(
    kept: Net, restart: bool, asks: bool
) -> None:
    def refuse(sender: str, receiver: str, chunk: bytes) -> None:
        if receiver == "b" and b"bad" in chunk:
            kept.cut(sender, receiver)

    kept.watch = refuse
    for body in ("one", "bad", "two", "six"):
        kept.send("a", at("c"), body, transactional=True, final_ack=asks)
    kept.pass_ms(60_000)
    assert ended(kept, "a", DEADXACT) == [(MessageClass.NACK_DELETED, b"bad")]
    if restart:
        kept.kill("a")
        kept.start("a")
        kept.run()
    assert in_doubt(kept) == 1
    say_order_ack(kept, 2)
    assert bodies(kept, "a", DEADXACT) == []
    assert in_doubt(kept) == 0
    waiting = kept.nodes["a"].store.waiting(QueueKind.FINAL)
    for number in range(1, 5) if asks else ():
        say_final_ack(kept, number)
    assert (waiting, kept.nodes["a"].store.waiting(QueueKind.FINAL)) == (4 * asks, 0)


# Gaps


def three_in_doubt(net: Net) -> None:
    """Make messages 1 to 3 dead letters in doubt; no later message has passed them over."""
    net.blocked.add(frozenset("bc"))
    for body in "123":
        net.send("a", at("c"), body, **MINUTE)
    net.pass_ms(61_000)
    assert bodies(net, "a", DEADXACT) == [b"1", b"2", b"3"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize("had", [False, True], ids=["never arrived", "arrived"])
def test_the_next_message_bridges_the_gap_whether_the_message_has_arrived_or_not(net: Net, had: bool) -> None:
    net.send("a", at("c"), "before", transactional=True)
    net.run()
    net.pass_ms(2_000)
    if not had:
        net.blocked.add(frozenset("bc"))
        net.cut("b", "c")
    net.send("a", at("c"), "x", **MINUTE)
    net.run()
    cut_off(net)
    net.send("a", at("c"), "next", transactional=True)
    net.pass_ms(61_000)
    assert bodies(net, "a", DEADXACT) == [b"x"]
    mend(net)
    net.pass_ms(10_000)
    place = header(net)
    assert place.tx_sequence_number - place.previous_tx_sequence_number == 2
    assert net.receive("c", "orders") == [b"before", *[b"x"] * had, b"next"]
    mend(net)
    assert bodies(net, "a", DEADXACT) == ([] if had else [b"x"])
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_order_ack_proves_what_none_has_passed_over(net: Net) -> None:
    three_in_doubt(net)
    say_order_ack(net, 2)
    assert bodies(net, "a", DEADXACT) == [b"3"]
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == 2


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize("restart", [False, True])
def test_once_the_gap_is_bridged_only_the_exact_number_proves(net: Net, restart: bool) -> None:
    three_in_doubt(net)
    net.send("a", at("c"), "4", transactional=True)
    net.run()
    assert header(net).previous_tx_sequence_number == 0
    if restart:
        net.kill("a")
        net.start("a")
        net.run()
    say_order_ack(net, 4)
    assert bodies(net, "a", DEADXACT) == [b"1", b"2", b"3"]
    say_order_ack(net, 2)
    assert bodies(net, "a", DEADXACT) == [b"1", b"3"]
    say_final_ack(net, 3)
    assert bodies(net, "a", DEADXACT) == [b"1"]
    assert in_doubt(net) == 1


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@given(
    late=st.sets(st.integers(0, 5)),
    arrived=st.integers(0, 6),
    restart=st.booleans(),
    committed=st.booleans(),
    step=st.integers(1, 12),
)
def test_each_message_ends_in_one_way_whatever_arrived_and_whenever_the_sender_is_killed(
    late: set[int], arrived: int, restart: bool, committed: bool, step: int
) -> None:
    """Some of six messages expire while `a` is cut off; the first ones have arrived before."""
    net = chain("a", "c", queues=[ORDERS], settings=NINE)
    for number in range(6):
        if number == arrived:
            net.blocked.add(frozenset("ac"))
            net.cut("a", "c")
        net.send("a", at("c"), str(number), **(MINUTE if number in late else ASKED))
        net.turn("a")
        if number < arrived:
            net.run()
    net.blocked.add(frozenset("ac"))
    net.cut("a", "c")
    assert net.receive("c", "orders") == [b"%d" % number for number in range(arrived)]
    if restart:
        net.nodes["a"].dies_at = net.nodes["a"].batch_count + step
        net.nodes["a"].dies_committed = committed
    net.pass_ms(61_000)
    for _ in range(3):
        if net.nodes["a"].core is None:
            net.start("a")
        net.blocked.clear()
        net.pass_ms(30_000)
    lost = [b"%d" % number for number in range(arrived, 6) if number in late]
    assert net.receive("c", "orders") == [
        b"%d" % number for number in range(arrived, 6) if number not in late
    ]
    net.pass_ms(10_000)
    assert bodies(net, "a", DEADXACT) == lost
    kinds = (QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.HELD, QueueKind.OUTGOING)
    assert not any(node.store.waiting(kind) for node in net.nodes.values() for kind in kinds)


# The letter


def test_a_letter_that_an_application_has_or_had_is_told_in_the_log(net: Net) -> None:
    three_in_doubt(net)
    core = net.nodes["a"].up
    core.consume(1, DEADXACT, 1, transactional=False)
    core.consume(2, DEADXACT, 1, transactional=True)
    net.run()
    for number in (1, 2):
        say_final_ack(net, number)
    letters = [note.facts["letter"] for note in net.nodes["a"].notes if note.name == "doubt-is-over"]
    assert letters == ["was gone", "left"]
    core.settle(2, DEADXACT, net.now, commit=False)
    net.run()
    assert bodies(net, "a", DEADXACT) == [b"3"]
    net.kill("a")
    net.start("a")
    net.run()
    assert bodies(net, "a", DEADXACT) == [b"3"]


def test_a_letter_that_is_on_disk_alone_is_found() -> None:
    net = chain("a", "b", "c", queues=[ORDERS], settings=replace(NINE, resident_messages=2))
    net.blocked.add(frozenset("bc"))
    for number in range(20):
        net.send("a", at("c"), str(number), **MINUTE)
    net.pass_ms(90_000)
    assert in_doubt(net) == 20
    say_final_ack(net, 20, MessageClass.NACK_Q_PURGED)
    say_order_ack(net, 7)  # All before it as well.
    assert net.receive("a", DEADXACT) == [b"%d" % number for number in range(7, 20)]


def test_of_too_many_doubts_the_oldest_letter_stays(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "DOUBTS", 2)
    three_in_doubt(net)
    assert net.nodes["a"].note_names().count("stays-in-doubt") == 1
    say_order_ack(net, 3)
    assert bodies(net, "a", DEADXACT) == [b"1"]
    assert net.nodes["a"].store.waiting(QueueKind.ORDER) == 0


# The setting changes


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_change_of_the_setting_what_was_kept_expires(killed: bool) -> None:
    """The store no longer reports such messages, because they expired when nothing could be done about them."""
    net = chain("a", "b", "c", queues=[ORDERS], settings=replace(NINE, expire_sent=KEEP, resident_messages=8))
    net.blocked.add(frozenset("bc"))
    for number in range(20):
        net.send("a", at("c"), str(number), **(MINUTE if number % 2 else ASKED))
    net.pass_ms(100_000)
    a = net.nodes["a"]
    for setting, left in ((KEEP, 20), (FIGURES, 10), (KEEP, 10), (FIGURES, 10)):
        net.kill("a")
        a.settings = replace(a.settings, expire_sent=setting)
        net.start("a")
        if killed and left == 10:
            for _ in range(2):
                net.turn("a")
            net.kill("a")
            net.start("a")
        net.pass_ms(1_000)
        assert a.store.waiting(QueueKind.SEQUENCE) == left
    assert net.receive("a", DEADXACT) == [b"%d" % number for number in range(1, 20, 2)]


def test_a_store_is_looked_through_once(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", **ASKED)
    net.pass_ms(1_000)
    a, looked = net.nodes["a"], list[int]()
    read = Disk.read

    def watched(disk: Disk, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        if isinstance(page, ReadPage) and page.reader is ReadBy.EXPIRY:
            looked.append(page.after)
        return read(disk, page)

    monkeypatch.setattr(Disk, "read", watched)
    for setting, pages in ((FIGURES, []), (KEEP, []), (FIGURES, [0, 1]), (FIGURES, [0, 1])):
        net.kill("a")
        a.settings = replace(a.settings, expire_sent=setting)
        net.start("a")
        net.pass_ms(1_000)
        assert looked == pages
