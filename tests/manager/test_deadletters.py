"""Dead-letter queues and journals: the messages kept there have ended. Dead letters can be sent again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.formatname import MultipleElementName, parse_format_name
from mqproto.formatname.wire import destinations_to_wire
from mqproto.manager.arriving.transit import HOP_LIMIT
from mqproto.manager.deadletters import draft_of
from mqproto.messages.drafts import Draft
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.wire import INFINITE, MessageClass, UserMessage, decode_packet, guid_text
from mqproto.wire.layouts.user import NO_QUEUE
from tests.examples import a_user_message
from tests.observing import (
    DEADLETTER,
    DEADXACT,
    JOURNAL,
    administration,
    arrive,
    bodies,
    ended,
    final_acks,
    kept,
    packets,
)
from tests.pair import Net, at, chain, guid_of, queue

ADMIN = queue("admin", 5, transactional=False)
NOTES = queue("notes", 17, transactional=False)
ORDERS = QueueDeclaration("orders", 16, transactional=True, journal=True)
FULL = QueueDeclaration("late notes", 21, quota_bytes=1)
"""The declaration of a queue in which nothing fits, so that its messages become dead letters at its node."""
QUEUE_NAMES = st.sampled_from(
    [
        *(rf"PRIVATE={guid_text(guid_of(name))}\0000000{number}" for number, name in enumerate("abc")),
        f"PUBLIC={guid_text(guid_of('public'))}",
        r"DIRECT=TCP:10.0.0.1\PRIVATE$\q",
    ]
)
EVERYTHING = {"journal_negative": True, "journal_positive": True, "acknowledgments": 0xF}


@pytest.fixture
def net() -> Net:
    return chain("a", "c", queues=[ADMIN, NOTES, ORDERS, FULL])


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
    """The messages are dead letters at their source or destination, or they are in a source journal or in a queue's
    journal.
    """
    a, c = net.nodes["a"].up, net.nodes["c"].up
    asked = {**EVERYTHING, "admin_queue": at("c", 5).name}
    net.send("a", at("c", 99), "nowhere", transactional=True, **asked)
    net.send("a", at("c", 21), "no room", **asked)
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
            core.purge(queue_name)
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


EXTENSION = bytes.fromhex("0c000000 30000000 01 000000")
"""ExtensionHeader ([MS-MQRR] 2.2.5.2): 12 bytes, followed by 48 more; DL is set, because there is a
DeadLetterHeader.
"""
OWN_LETTERS = (48).to_bytes(4, "little") + "shop\\private$\\letters\0".encode("utf-16-le")
"""DeadLetterHeader ([MS-MQRR] 2.2.5.4): its size, and the path name of an application's own dead-letter queue."""


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_the_headers_of_an_application_s_own_dead_letter_queue_are_passed_on_and_not_read(net: Net) -> None:
    """The headers follow everything in [MS-MQMQ] 2.2.20; the whole letter, headers included, is in the system's
    queue.
    """
    message = a_user_message(
        source=guid_of("a"), destination_manager=guid_of("c"), destination=21, journal_negative=True
    )
    message.trailing = EXTENSION + OWN_LETTERS
    arrive(net, "c", message)
    [letter] = [received.packet for received in net.nodes["c"].up.peek(DEADLETTER, 10)]
    assert letter.endswith(EXTENSION + OWN_LETTERS)
    message.user.message_id += 1
    message.user.queue_manager_address = guid_of("a")
    arrive(net, "c", message)
    [passed] = packets(net, "c", "a")[-1:]
    assert passed.endswith(EXTENSION + OWN_LETTERS)


# Sent back


def dead_letters(net: Net, count: int = 3) -> None:
    """Create dead letters of `a` and of `c`: messages to a missing queue, and messages to a full one."""
    for number in range(count):
        for transactional in (True, False):
            net.send(
                "a",
                at("c", 20 if transactional else 21),
                str(number),
                transactional=transactional,
                recoverable=True,
                journal_negative=True,
                time_to_reach_queue_s=1_000,
            )
    net.pass_ms(2_000)
    assert len(bodies(net, "a", DEADXACT)) == len(bodies(net, "c", DEADLETTER)) == count


def open_queues(net: Net) -> None:
    """Create the missing queue, and make room in the full one."""
    net.kill("c")
    net.nodes["c"].queues = (ADMIN, NOTES, ORDERS, queue("late orders", 20), replace(FULL, quota_bytes=None))
    net.start("c")


def test_dead_letters_go_where_they_were_going_as_new_messages(net: Net) -> None:
    dead_letters(net)
    open_queues(net)
    net.pass_ms(5_000_000)
    assert net.nodes["a"].up.send_back(DEADXACT, None, net.now) == 3
    assert net.nodes["c"].up.send_back(DEADLETTER, None, net.now) == 3
    net.pass_ms(2_000)
    [*found] = kept(net, "c", "late orders")
    assert [message.properties.message_body for message in found] == [b"0", b"1", b"2"]
    assert [message.properties.message_class for message in found] == [0, 0, 0]
    assert {message.user.sent_time_s for message in found} == {net.now.utc_s - 2}
    assert len({message.user.message_id for message in found} | set(range(1, 7))) == 9
    assert net.receive("c", "late orders") == net.receive("c", "late notes") == [b"0", b"1", b"2"]
    assert bodies(net, "a", DEADXACT) == bodies(net, "c", DEADLETTER) == []


def test_an_operator_may_choose_which_go_back(net: Net) -> None:
    dead_letters(net)
    open_queues(net)
    core = net.nodes["a"].up
    keys = [received.key for received in core.peek(DEADXACT, 10)]
    assert core.send_back(DEADXACT, [keys[1], 12_345], net.now) == 1
    assert core.send_back(DEADXACT, [keys[1]], net.now) == 0
    net.pass_ms(2_000)
    assert net.receive("c", "late orders") == [b"1"]
    assert bodies(net, "a", DEADXACT) == [b"0", b"2"]


@pytest.mark.parametrize("what", ["no such queue here", "public queue unknown", "no name", "queue full"])
def test_what_cannot_be_sent_stays_a_dead_letter(net: Net, what: str) -> None:
    """Such a message is for a queue of `c` itself, or has crossed too many hops."""
    passing = what in ("public queue unknown", "no name")
    message = a_user_message(
        source=guid_of("a"),
        destination_manager=guid_of("somebody" if passing else "c"),
        destination=guid_of("public") if passing else 21,
        journal_negative=True,
    )
    if passing:
        message.user.hop_count = HOP_LIMIT
    if what == "no name":
        message.user.destination_queue, message.user.destination_type = None, NO_QUEUE
    arrive(net, "c", message)
    assert len(bodies(net, "c", DEADLETTER)) == 1
    if what == "no such queue here":
        net.nodes["c"].up.delete(FULL.name)
    assert net.nodes["c"].up.send_back(DEADLETTER, None, net.now) == 0
    net.run()
    assert len(bodies(net, "c", DEADLETTER)) == 1


def test_what_fails_a_second_time_is_a_dead_letter_again(net: Net) -> None:
    dead_letters(net, count=1)
    core = net.nodes["a"].up
    assert core.send_back(DEADXACT, None, net.now) == 1
    net.turn("a")
    assert bodies(net, "a", DEADXACT) == []
    net.pass_ms(2_000)
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_BAD_DST_Q, b"0")]


def test_journaled_messages_can_be_sent_once_more(net: Net) -> None:
    net.send("a", at("c"), "x", transactional=True, journal_positive=True)
    net.run()
    assert net.receive("c", "orders") == [b"x"]
    net.pass_ms(2_000)
    assert net.nodes["a"].up.send_back(JOURNAL, None, net.now) == 1
    assert net.nodes["c"].up.send_back("orders;journal", None, net.now) == 1
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"x", b"x"]
    net.pass_ms(2_000)
    assert len(bodies(net, "c", "orders;journal")) == 2


def test_only_what_the_system_keeps_can_be_sent_back(net: Net) -> None:
    with pytest.raises(UsageError, match="notes is neither a dead-letter queue nor a journal"):
        net.nodes["c"].up.send_back("notes", None, net.now)
    with pytest.raises(UsageError, match="no queue deadletter here"):
        net.nodes["c"].up.send_back("deadletter", None, net.now)


@pytest.mark.parametrize("committed", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("step", range(1, 6))
def test_a_crash_while_dead_letters_go_back_loses_none_and_doubles_none(
    net: Net, step: int, committed: bool
) -> None:
    dead_letters(net)
    open_queues(net)
    net.pass_ms(1_000)
    a = net.nodes["a"]
    a.dies_at, a.dies_committed = a.batch_count + step, committed
    a.up.send_back(DEADXACT, None, net.now)
    net.pass_ms(2_000)
    if a.core is None:
        net.start("a")
    a.dies_at = None
    net.pass_ms(60_000)
    net.nodes["a"].up.send_back(DEADXACT, None, net.now)
    net.pass_ms(60_000)
    assert net.receive("c", "late orders") == [b"0", b"1", b"2"]
    assert bodies(net, "a", DEADXACT) == []


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.32")
@given(
    draft=st.builds(
        Draft,
        body=st.binary(max_size=50),
        label=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
        transactional=st.just(True),
        recoverable=st.just(True),
        priority=st.just(0),
        extension=st.binary(max_size=20),
        body_type=st.integers(0, 2**32 - 1),
        application_tag=st.integers(0, 2**32 - 1),
        correlation_id=st.binary(min_size=20, max_size=20),
        time_to_reach_queue_s=st.integers(1_000, INFINITE),
        time_to_be_received_s=st.integers(1_000, INFINITE),
        journal_negative=st.booleans(),
        journal_positive=st.booleans(),
        final_ack=st.booleans(),
        admin_queue=QUEUE_NAMES,
        response_queue=st.one_of(st.just(""), QUEUE_NAMES),
        acknowledgments=st.integers(0, 15),
    ),
    transactional=st.booleans(),
)
def test_a_packet_tells_all_that_its_application_wrote(draft: Draft, transactional: bool) -> None:
    if not transactional:
        draft = replace(draft, transactional=False, recoverable=False, priority=6, final_ack=False)
    net = chain("a", "c", queues=[])
    net.blocked.add(frozenset("ac"))
    net.nodes["a"].up.enqueue([(at("c"), draft)], net.now)
    [outgoing] = net.nodes["a"].up.inspect().outbound
    [waiting] = outgoing.window
    message = decode_packet(waiting.packet)
    assert isinstance(message, UserMessage)
    assert draft_of(message) == draft


@pytest.mark.parametrize(("count", "kept"), [(100, 100), (101, 0)])
def test_of_a_list_of_more_copies_than_we_send_no_draft_has_any(count: int, kept: int) -> None:
    names = (parse_format_name(f"DIRECT=TCP:10.0.0.{last}\\PRIVATE$\\q") for last in range(count))
    listed = destinations_to_wire(name for name in names if not isinstance(name, MultipleElementName))
    packet = replace(a_user_message(), multi_queue_format=listed)
    assert len(draft_of(packet).destinations) == kept


def test_a_message_that_asks_for_acknowledgments_and_names_no_queue_for_them_can_go_back(net: Net) -> None:
    """Such a packet is odd but not forbidden; no application can submit a message like it."""
    arrive(
        net,
        "c",
        a_user_message(
            source=guid_of("a"),
            destination_manager=guid_of("c"),
            destination=21,
            acknowledgments=0xF,
            journal_negative=True,
            recoverable=True,
        ),
    )
    open_queues(net)
    net.run()
    assert net.nodes["c"].up.send_back(DEADLETTER, None, net.now) == 1
    assert net.receive("c", "late notes") == [b"body of seven"]
