"""Messages that have expired, wherever they are, and whatever the clock does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import FIGURES, KEEP, Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.session.acknowledgment import ACK_DELAY_MS
from mqproto.turn.effects import QueueKind
from mqproto.wire import MessageClass
from tests.observing import DEADLETTER, DEADXACT, JOURNAL, administration, bodies, ended, final_acks, messages
from tests.pair import Net, at, chain, deaf, queue

ADMIN = queue("admin", 5, transactional=False)
NOTES = queue("notes", 17, transactional=False)
ORDERS = queue("orders")
QUICK = Settings(
    try_connect_interval_ms=200,
    resend_timeouts_short_s=5,
    resend_timeouts_medium_s=5,
    resend_timeouts_long_s=5,
    resend_timeouts_final_s=5,
)
BY_THE_FIGURES = replace(QUICK, expire_sent=FIGURES)
SMALL = Settings(try_connect_interval_ms=200, resident_messages=8, resend_timeouts_short_s=5)
LATE_ON_THE_WAY = MessageClass.NACK_REACH_QUEUE_TIMEOUT
LATE_IN_QUEUE = MessageClass.NACK_RECEIVE_TIMEOUT


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[ADMIN, NOTES, ORDERS], settings=QUICK)


# At the sender


def test_a_message_with_no_time_to_spare_is_over_when_the_next_second_begins(net: Net) -> None:
    net.blocked.add(frozenset("ab"))
    net.send("a", at("c", 17), "x", time_to_reach_queue_s=0, journal_negative=True)
    net.pass_ms(1_000)
    assert ended(net, "a", DEADLETTER) == [(LATE_ON_THE_WAY, b"x")]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize("kind", ["express", "recoverable", "transactional"])
@pytest.mark.parametrize("which", ["time_to_reach_queue_s", "time_to_be_received_s"])
def test_a_message_expires_in_the_second_after_its_last(net: Net, kind: str, which: str) -> None:
    """A message expires when CURRENT_TIME minus SentTime is greater than the lifetime that it was given."""
    net.blocked.add(frozenset("ab"))
    timing: dict[str, Any] = {which: 100}
    net.send(
        "a",
        at("c", 16 if kind == "transactional" else 17),
        "x",
        transactional=kind == "transactional",
        recoverable=kind == "recoverable",
        journal_negative=True,
        **timing,
    )
    dead = DEADXACT if kind == "transactional" else DEADLETTER
    net.pass_ms(100_000)
    assert bodies(net, "a", dead) == []
    net.pass_ms(1_000)
    assert ended(net, "a", dead) == [(LATE_ON_THE_WAY, b"x")]
    assert net.nodes["a"].up.status().expired == 1


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_a_message_that_was_sent_in_vain_expires_when_it_comes_back_from_the_session(net: Net) -> None:
    """The neighbour hears nothing and acknowledges nothing; when the session ends, the message has expired."""
    net.send("a", at("c", 17), "heard")
    net.run()
    net.nodes["b"].hears = deaf
    net.send("a", at("c", 17), "x", recoverable=True, time_to_reach_queue_s=10, journal_negative=True)
    net.pass_ms(15_000)
    assert [m.properties.message_body for m in messages(net, "a", "b")] == [b"heard", b"x"]
    assert bodies(net, "a", DEADLETTER) == []
    net.pass_ms(60_000)
    assert ended(net, "a", DEADLETTER) == [(LATE_ON_THE_WAY, b"x")]
    assert len(messages(net, "a", "b")) == 2


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.5")
@pytest.mark.parametrize("recoverable", [False, True])
@pytest.mark.parametrize("answers", [False, True])
def test_by_the_figures_a_message_that_waits_for_its_session_ack_expires(
    recoverable: bool, answers: bool
) -> None:
    """Even so, the neighbour may have the message.

    If the neighbour answers late, the session continues; if it does not answer, the message is not sent again.
    """
    net = chain("a", "b", queues=[NOTES], settings=BY_THE_FIGURES)
    net.send("a", at("b", 17), "heard")
    net.run()
    b, late = net.nodes["b"].up, []

    def hold(*arguments: Any) -> int:
        late.append(arguments)
        return 0

    net.nodes["b"].hears = hold
    asks: dict[str, Any] = {"journal_negative": True, "journal_positive": True}
    net.send("a", at("b", 17), "x", recoverable=recoverable, time_to_reach_queue_s=10, **asks)
    net.pass_ms(10_000)
    assert bodies(net, "a", DEADLETTER) == []
    net.pass_ms(1_000)
    assert ended(net, "a", DEADLETTER) == [(LATE_ON_THE_WAY, b"x")]
    if answers:
        net.nodes["b"].hears = None
        for arguments in late:
            b.receive(*arguments)
    net.pass_ms(60_000)
    net.nodes["b"].hears = None
    net.send("a", at("b", 17), "next")
    net.pass_ms(10_000)
    assert net.receive("b", "notes") == [b"heard", *([b"x"] if answers else []), b"next"]
    assert len(messages(net, "a", "b")) == 3
    assert ended(net, "a", DEADLETTER) == [(LATE_ON_THE_WAY, b"x")]
    assert bodies(net, "a", JOURNAL) == []
    closings = net.nodes["a"].note_names().count("session-closed")
    assert closings == (not answers)


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.5")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.7")
@pytest.mark.parametrize("kind", ["express", "recoverable", "transactional"])
@pytest.mark.parametrize("expire_sent", [KEEP, FIGURES])
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("positive", [False, True])
def test_by_the_figures_what_expires_and_is_no_dead_letter_is_journaled_if_it_asks_for_that(
    kind: str, expire_sent: str, negative: bool, positive: bool
) -> None:
    net = chain("a", "b", queues=[NOTES, ORDERS], settings=replace(QUICK, expire_sent=expire_sent))
    net.blocked.add(frozenset("ab"))
    transactional = kind == "transactional"
    net.send(
        "a",
        at("b", 16 if transactional else 17),
        "x",
        transactional=transactional,
        recoverable=kind != "express",
        time_to_reach_queue_s=10,
        journal_negative=negative,
        journal_positive=positive,
    )
    net.pass_ms(11_000)
    assert bodies(net, "a", DEADXACT if transactional else DEADLETTER) == [b"x"] * negative
    journaled = expire_sent == FIGURES and positive and not negative
    assert bodies(net, "a", JOURNAL) == [b"x"] * journaled


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_transactional_message_that_was_sent_expires_nowhere_but_at_its_destination() -> None:
    """The message arrived in time and was received; its OrderAck arrives long after the message has expired."""
    net = chain("a", "b", "c", queues=[ORDERS])
    net.send("a", at("c"), "x", transactional=True, time_to_reach_queue_s=60, journal_negative=True)
    net.run()
    net.blocked.add(frozenset("ab"))
    net.cut("a", "b")
    assert net.receive("c", "orders") == [b"x"]
    net.pass_ms(3_600_000)
    net.kill("a")
    net.start("a")
    net.pass_ms(3_600_000)
    assert bodies(net, "a", DEADXACT) == []
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 1
    net.blocked.clear()
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == bodies(net, "a", DEADXACT) == []
    assert [node.store.messages for node in net.nodes.values()] == [{}, {}, {}]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_an_intermediate_passes_on_a_transactional_message_whose_time_is_over(net: Net) -> None:
    """The destination refuses the expired message, because no copy of it has arrived before.

    The sender waits for the FinalAck that reports the refusal.
    """
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "late", transactional=True, time_to_reach_queue_s=60, journal_negative=True)
    net.send("a", at("c"), "next", transactional=True)
    net.pass_ms(100_000)
    assert bodies(net, "a", DEADXACT) == []
    net.blocked.clear()
    net.pass_ms(10_000)
    assert final_acks(net, "c", "b")[0] == LATE_ON_THE_WAY
    assert ended(net, "a", DEADXACT) == [(LATE_ON_THE_WAY, b"late")]
    assert net.receive("c", "orders") == [b"next"]


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.8")
@pytest.mark.parametrize("late", ["waits", "comes"])
@pytest.mark.parametrize("restart", [False, True])
def test_by_the_figures_an_intermediate_ends_a_transactional_message_and_its_sender_is_told(
    net: Net, late: str, restart: bool
) -> None:
    """A FinalAck reports the end, because an OrderAck cannot be negative.

    The FinalAck is about one copy only, so the dead letter is in doubt, and the next message bridges the gap.
    """
    net.nodes["a"].queues = (ADMIN,)
    net.nodes["b"].settings = BY_THE_FIGURES
    for name in "ab":
        net.kill(name)
        net.start(name)
    asks: dict[str, Any] = {"transactional": True, "journal_negative": True, "acknowledgments": 14}
    draft: dict[str, Any] = {"time_to_reach_queue_s": 60, "admin_queue": at("a", 5).name, **asks}
    if late == "waits":
        net.blocked.add(frozenset("bc"))
        net.send("a", at("c"), "late", **draft)
    else:

        def lose(sender: str, receiver: str, chunk: bytes) -> None:
            if b"late" in chunk:
                net.blocked.add(frozenset("ab"))
                net.cut("a", "b")

        net.watch = lose
        net.send("a", at("c"), "late", **draft)
        net.run()
    net.send("a", at("c"), "next", transactional=True)
    net.pass_ms(60_000)
    assert bodies(net, "a", DEADXACT) == []
    if restart:
        net.kill("b")
        net.start("b")
    net.pass_ms(1_000)
    net.watch = lambda sender, receiver, chunk: None
    net.blocked.discard(frozenset("ab"))
    net.pass_ms(10_000)
    assert final_acks(net, "b", "a") == [LATE_ON_THE_WAY]
    assert ended(net, "a", DEADXACT) == [(LATE_ON_THE_WAY, b"late")]
    assert administration(net, "a") == [LATE_ON_THE_WAY]
    assert len(net.nodes["a"].up.inspect().doubts) == 1
    net.blocked.clear()
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == [b"next"]
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@given(late=st.sets(st.integers(0, 11)), sent_before=st.integers(0, 3), restart=st.booleans())
def test_what_expires_unsent_leaves_a_gap_that_the_next_message_bridges(
    late: set[int], sent_before: int, restart: bool
) -> None:
    net = chain("a", "c", queues=[ORDERS], settings=QUICK)
    before = [b"before %d" % number for number in range(sent_before)]
    for body in before:
        net.send("a", at("c"), body, transactional=True)
    net.run()
    net.blocked.add(frozenset("ac"))
    net.cut("a", "c")
    for number in range(12):
        timing: dict[str, Any] = {"time_to_reach_queue_s": 30} if number in late else {}
        net.send("a", at("c"), str(number), transactional=True, journal_negative=True, **timing)
    if (
        restart
    ):  # As far as the disk tells, what was not sent may have been; then its destination has to refuse it.
        net.turn("a")
        net.kill("a")
        net.start("a")
    net.pass_ms(40_000)
    net.blocked.clear()
    net.pass_ms(60_000)
    assert bodies(net, "a", DEADXACT) == [b"%d" % number for number in sorted(late)]
    on_time = [b"%d" % number for number in range(12) if number not in late]
    assert net.receive("c", "orders") == before + on_time
    net.pass_ms(20_000)
    assert [node.store.waiting(QueueKind.SEQUENCE) for node in net.nodes.values()] == [0, 0]


# Between


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize("restart", [False, True])
def test_a_message_that_is_passed_on_expires_where_it_waits(net: Net, restart: bool) -> None:
    net.blocked.add(frozenset("bc"))
    for number in range(3):
        seconds = 60 if number != 1 else 6_000
        net.send(
            "a",
            at("c", 17),
            str(number),
            recoverable=True,
            time_to_reach_queue_s=seconds,
            journal_negative=True,
        )
    net.pass_ms(1_000)
    if restart:
        net.kill("b")
        net.pass_ms(100_000)
        net.start("b")
        net.run()
    else:
        net.pass_ms(100_000)
    assert ended(net, "b", DEADLETTER) == [(LATE_ON_THE_WAY, b"0"), (LATE_ON_THE_WAY, b"2")]
    net.blocked.clear()
    net.pass_ms(10_000)
    assert net.receive("c", "notes") == [b"1"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_a_message_whose_time_was_over_when_it_came_is_not_passed_on(net: Net) -> None:
    net.kill("b")
    net.send("a", at("c", 17), "x", recoverable=True, time_to_reach_queue_s=60, journal_negative=True)
    net.pass_ms(1_000)
    net.start("b")
    b = net.nodes["b"].up
    # The clock of `b` is ahead of that of `a`.
    arrivals = b.inspect().arrivals
    forward, later = arrivals.forward, Moment(net.now.uptime_ms, net.now.utc_s + 100)
    arrivals.forward = lambda run, head, remote, now: forward(run, head, remote, later)
    net.pass_ms(1_000)
    assert ended(net, "b", DEADLETTER) == [(LATE_ON_THE_WAY, b"x")]
    assert messages(net, "b", "c") == []


# At the destination


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize("which", ["time_to_reach_queue_s", "time_to_be_received_s"])
def test_what_waited_too_long_behind_a_gap_is_refused_when_the_gap_closes(net: Net, which: str) -> None:
    timing: dict[str, Any] = {which: 60}
    net.send("a", at("c"), "first", transactional=True)
    net.pass_ms(ACK_DELAY_MS)
    net.kill("c")
    net.nodes["c"].store = type(
        net.nodes["c"].store
    )()  # The disk of `c` is lost, and with it the first message.
    net.start("c")
    net.send("a", at("c"), "second", transactional=True, journal_negative=True, **timing)
    net.send("a", at("c"), "third", transactional=True)
    net.run()
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 2
    net.kill("a")  # No resend until all is late.
    net.pass_ms(100_000)
    net.start("a")
    net.pass_ms(30_000)
    assert net.receive("c", "orders") == [b"first", b"third"]
    assert ended(net, "a", DEADXACT) == [(LATE_ON_THE_WAY, b"second")]
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.2.7")
@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize("kind", ["express", "recoverable", "transactional"])
@pytest.mark.parametrize("asked", [False, True], ids=["nobody asks", "an application asks"])
def test_nobody_receives_a_message_after_its_last_second(net: Net, kind: str, asked: bool) -> None:
    number, name = (16, "orders") if kind == "transactional" else (17, "notes")
    options = {"transactional": kind == "transactional", "recoverable": kind == "recoverable"}
    for body in ("early", "late"):
        net.send("a", at("c", number), body, time_to_be_received_s=100, journal_negative=True, **options)
    net.pass_ms(100_000)
    core = net.nodes["c"].up
    core.consume(1, name, 1, transactional=False)
    net.run()
    assert [message.properties.message_body for message in net.nodes["c"].received] == [b"early"]
    if asked:
        core.inspect().desk.timers.stop(
            Timer.EXPIRATION, None
        )  # Nothing but the application looks at the queue.
        net.now = Moment(net.now.uptime_ms + 1_000, net.now.utc_s + 1)
        assert net.receive("c", name) == []
    net.pass_ms(2_000)
    where, dead = ("a", DEADXACT) if kind == "transactional" else ("c", DEADLETTER)
    assert ended(net, where, dead) == [(LATE_IN_QUEUE, b"late")]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.2.7")
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_that_an_application_has_is_its_own_until_it_gives_it_back(
    net: Net, commits: bool, recoverable: bool
) -> None:
    net.send("a", at("c", 17), "x", time_to_be_received_s=10, journal_negative=True, recoverable=recoverable)
    net.run()
    core = net.nodes["c"].up
    core.consume(1, "notes", 1, transactional=True)
    net.pass_ms(500_000)
    core.settle(1, "notes", net.now, commit=commits)
    net.run()
    assert bodies(net, "c", DEADLETTER) == []
    net.pass_ms(2_000)
    assert ended(net, "c", DEADLETTER) == ([] if commits else [(LATE_IN_QUEUE, b"x")])


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.2.7")
def test_what_a_node_that_stopped_had_handed_out_expires_when_it_is_there_again(net: Net) -> None:
    net.send("a", at("c", 17), "x", time_to_be_received_s=10, journal_negative=True, recoverable=True)
    net.run()
    net.nodes["c"].up.consume(1, "notes", 1, transactional=True)
    net.pass_ms(500_000)
    net.kill("c")
    net.start("c")
    net.pass_ms(2_000)
    assert ended(net, "c", DEADLETTER) == [(LATE_IN_QUEUE, b"x")]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.2.7")
@pytest.mark.parametrize("down", [False, True], ids=["while it runs", "while it is down"])
@pytest.mark.parametrize("where", ["a", "c"], ids=["at the sender", "at the destination"])
def test_what_expires_in_a_backlog_on_disk_is_found_and_the_rest_keeps_its_order(
    where: str, down: bool
) -> None:
    """Memory holds only eight messages of a queue; of a thousand messages, two thirds expire, at two different
    times.
    """
    net = chain("a", "c", queues=[NOTES], settings=SMALL)
    if where == "a":
        net.blocked.add(frozenset("ac"))
    for number in range(1_000):
        timing: dict[str, Any] = {"time_to_be_received_s": 100 * (number % 3)} if number % 3 else {}
        net.send("a", at("c", 17), str(number), recoverable=True, journal_negative=True, **timing)
    net.pass_ms(2_000)
    for expected in (1, 2):
        if down:
            net.kill(where)
        net.pass_ms(100_000)
        if down:
            net.start(where)
            net.pass_ms(2_000)
        status = net.nodes[where].up.status()
        found = status.outgoing if where == "a" else [each for each in status.local if each.name == "notes"]
        assert [each.waiting for each in found] == [1_000 - 333 * expected]
        assert status.expired == 333 * (1 if down else expected)
    net.blocked.clear()
    dead = net.receive(where, DEADLETTER)
    assert sorted(map(int, dead)) == [number for number in range(1_000) if number % 3]
    net.pass_ms(2_000)
    assert net.receive("c", "notes") == [b"%d" % number for number in range(0, 1_000, 3)]


# Clocks


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_a_clock_that_is_set_ahead_is_noticed_within_a_minute_and_one_that_is_set_back_delays() -> None:
    net = chain("a", "c", queues=[NOTES])
    net.blocked.add(frozenset("ac"))
    for number in (1, 2):
        seconds = 1_000 * number
        net.send("a", at("c", 17), str(number), time_to_reach_queue_s=seconds, journal_negative=True)
    net.pass_ms(1_000)
    net.set_clock(1_001)
    net.pass_ms(61_000)
    assert bodies(net, "a", DEADLETTER) == [b"1"]
    net.set_clock(-2_000)
    net.pass_ms(1_000_000 + 999_000)
    assert bodies(net, "a", DEADLETTER) == [b"1"]
    net.pass_ms(1_000_000)
    assert bodies(net, "a", DEADLETTER) == [b"1", b"2"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_a_message_from_the_future_lasts_as_long_as_its_senders_clock_says(net: Net) -> None:
    net.set_clock(1_000)
    net.send("a", at("c", 17), "x", time_to_be_received_s=100, journal_negative=True)
    net.run()
    net.set_clock(-1_000)
    net.pass_ms(1_099_000)
    assert bodies(net, "c", "notes") == [b"x"]
    net.pass_ms(3_000)
    assert ended(net, "c", DEADLETTER) == [(LATE_IN_QUEUE, b"x")]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
@pytest.mark.parametrize("seconds", [2**32 - 2, 2**32 - 1])
def test_times_beyond_the_end_of_a_32_bit_clock_do_not_wrap(net: Net, seconds: int) -> None:
    net.blocked.add(frozenset("ab"))
    net.send("a", at("c", 17), "x", time_to_reach_queue_s=seconds, time_to_be_received_s=seconds)
    net.pass_ms(100_000)
    net.blocked.clear()
    net.pass_ms(1_000)
    assert net.receive("c", "notes") == [b"x"]


# What it costs


@pytest.mark.long
@pytest.mark.parametrize("where", ["a", "b", "c"])
def test_what_may_not_expire_here_wakes_nobody(net: Net, where: str) -> None:
    """This holds for a transactional message that was sent or passed on, for a dead letter, and for a message that an
    application holds.
    """
    net.send("a", at("c"), "first", transactional=True)
    net.run()
    net.blocked.add(frozenset("bc"))
    net.cut("b", "c")
    if where == "a":
        net.nodes["b"].hears = deaf
    net.send("a", at("c"), "sent", transactional=True, time_to_reach_queue_s=10)
    net.send("a", at("c", 17), "late", recoverable=True, time_to_reach_queue_s=20)
    net.send("c", at("c", 17), "dead", time_to_be_received_s=10, journal_negative=True)
    net.run()
    net.blocked.add(frozenset("ab"))
    net.cut("a", "b")
    net.pass_ms(30_000)
    net.send("c", at("c", 17), "taken", time_to_be_received_s=10)
    net.nodes["c"].up.consume(1, "notes", 1, transactional=True)
    net.pass_ms(70_000)
    looks: list[Moment] = []
    expiration = net.nodes[where].up.inspect().expiration
    due = expiration.due

    def counted(now: Moment) -> None:
        looks.append(now)
        due(now)

    expiration.due = counted  # type: ignore[method-assign]
    net.pass_ms(600_000)
    assert 1 <= len(looks) <= 11
