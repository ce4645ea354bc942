"""OrderAcks of queue managers that read the text otherwise: they tell a number, and leave open of which sequence."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.messages.destinations import Destination
from mqproto.transfer.readings import may_be_ours, meant_by, number_in
from mqproto.transfer.sequence import USED_UP, OutgoingSequence
from mqproto.transfer.succession import time_stamp_of
from mqproto.turn.effects import QueueKind
from mqproto.wire import (
    FinalAckBody,
    MessageClass,
    OrderAckBody,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    final_ack,
    order_ack,
    user_message,
)
from tests.observing import arrive
from tests.pair import Net, at, chain, direct, guid_of, queue

A, B, C = guid_of("a"), guid_of("b"), guid_of("c")
WINDOWS_S = 1_400_000_000
"""A TimeStamp as Windows makes it: when it was installed."""

Word = Callable[[int], OrderAckBody]
READINGS: dict[str, Word] = {
    "3.1.7.17": lambda number: OrderAckBody(
        TxSequenceId(time_stamp=WINDOWS_S, ordinal=3), number, number - 1
    ),
    "3.1.1.6.2": lambda number: OrderAckBody(TxSequenceId(time_stamp=0, ordinal=number), 0, 0),
    "both": lambda number: OrderAckBody(TxSequenceId(time_stamp=0, ordinal=number), number, number - 1),
}
every_reading = pytest.mark.parametrize("word", READINGS.values(), ids=READINGS)


@pytest.fixture
def net() -> Net:
    """`a` is the source; `c`, the destination, says nothing by itself, as it is only a name in the tests' mouths."""
    net = chain("a", "c", queues=[queue("orders"), queue("others", 18)])
    net.kill("c")
    return net


MESSAGE_IDS = count(1_000)


def say(net: Net, body: OrderAckBody, source: str = "c") -> None:
    """An OrderAck comes from a queue manager."""
    ack = order_ack(
        source=guid_of(source),
        destination_manager=A,
        destination=4,
        message_id=next(MESSAGE_IDS),
        sent_time_s=0,
        body=body,
    )
    arrive(net, "a", ack, peer=source)


def send(net: Net, *bodies: str, identifier: int = 16, **draft: object) -> None:
    """`a` sends them, and they leave if it is their turn: what becomes of them on their way is another matter."""
    for body in bodies:
        net.send("a", at("c", identifier), body, transactional=True, **draft)
    leave(net)


def leave(net: Net) -> None:
    for sequence in sequences(net):
        if sequence.is_head and sequence.count:
            sequence.cursors.send(sequence.last_position)
            net.nodes["a"].up.inspect().desk.writes.changed(sequence, urgent=True)
    net.run()


def sequences(net: Net) -> list[OutgoingSequence]:
    return [one for one in net.nodes["a"].up.inspect().outbound if isinstance(one, OutgoingSequence)]


def kept(net: Net) -> list[tuple[int, int]]:
    """Of each sequence of `a`, how many messages it keeps, and what number the next one gets."""
    return [(one.count, one.next_number) for one in sequences(net)]


def strays(net: Net) -> int:
    return net.nodes["a"].note_names().count("stray-acknowledgment")


def restart(net: Net) -> None:
    net.kill("a")
    net.start("a")
    net.run()


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@every_reading
def test_a_number_is_taken_where_it_fits_one_sequence_alone(net: Net, word: Word) -> None:
    send(net, "1", "2", "3")
    say(net, word(2))
    assert (kept(net), strays(net)) == ([(1, 4)], 0)
    say(net, word(4))
    assert (kept(net), strays(net)) == ([(1, 4)], 1), "which was never sent"
    say(net, word(3))
    assert kept(net) == [(0, 4)]
    net.pass_ms(2_000)
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@every_reading
@pytest.mark.parametrize("is_restarted", [False, True])
def test_numbers_never_begin_again_so_that_a_late_word_confirms_no_younger_message(
    net: Net, word: Word, is_restarted: bool
) -> None:
    send(net, "1", "2", "3")
    say(net, word(3))
    if is_restarted:
        restart(net)
    send(net, "4", "5")
    for number in (1, 2, 3):
        say(net, word(number))
    assert sum(left for left, _ in kept(net)) == 2
    leave(net)
    say(net, word(5))
    assert sum(left for left, _ in kept(net)) == 0


@every_reading
@pytest.mark.parametrize("is_sent_twice", [False, True])
def test_nor_do_they_where_no_word_has_come_before_the_process_ended(
    net: Net, word: Word, is_sent_twice: bool
) -> None:
    send(net, "1", "2", "3")
    restart(net)
    send(net, "4", "5")
    say(net, word(2))
    say(net, word(3))
    assert [left for left, _ in kept(net)] == [0, 2]
    if is_sent_twice:
        restart(net)
    leave(net)
    for number in (1, 2, 3):
        say(net, word(number))
    assert sum(left for left, _ in kept(net)) == 2
    leave(net)
    say(net, word(5))
    assert sum(left for left, _ in kept(net)) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@every_reading
@pytest.mark.parametrize("message_class", [MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_EXCEED_QUOTA])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_nor_do_they_where_final_acks_have_told_of_all_before(
    net: Net, word: Word, message_class: MessageClass, is_restarted: bool
) -> None:
    """The OrderAcks for what FinalAcks have settled are still on their way."""
    send(net, "1", "2", final_ack=True)
    [sequence] = sequences(net)
    for number in (1, 2):
        final = FinalAckBody(sequence.identifier, number, number - 1, A, number)
        ack = final_ack(
            source=C,
            destination_manager=A,
            destination=4,
            message_id=500 + number,
            sent_time_s=0,
            message_class=message_class,
            body=final,
        )
        arrive(net, "a", ack, peer="c")
    assert kept(net) == [(0, 3)]
    if is_restarted:
        restart(net)
    send(net, "3", "4")
    say(net, word(1))
    say(net, word(2))
    assert sum(left for left, _ in kept(net)) == 2
    say(net, word(4))
    assert sum(left for left, _ in kept(net)) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
def test_an_order_ack_that_names_the_sequence_ends_it_also_behind_a_final_ack(net: Net) -> None:
    send(net, "1", "2")
    [sequence] = sequences(net)
    before = sequence.identifier
    say(net, OrderAckBody(before, 2, 1))
    assert kept(net) == [(0, 1)]
    assert sequence.identifier > before
    send(net, "3", final_ack=True)
    current = sequence.identifier
    final = FinalAckBody(current, 1, 0, A, 3)
    ack = final_ack(
        source=C,
        destination_manager=A,
        destination=4,
        message_id=500,
        sent_time_s=0,
        message_class=MessageClass.ACK_RECEIVE,
        body=final,
    )
    arrive(net, "a", ack, peer="c")
    assert (kept(net), sequence.identifier) == ([(0, 2)], current)
    say(net, OrderAckBody(current, 1, 0))
    assert kept(net) == [(0, 1)]
    assert sequence.identifier > current


@every_reading
@given(
    turns=st.lists(
        st.tuples(st.sampled_from([16, 18, 19]), st.integers(1, 3), st.integers(0, 3)), max_size=12
    ),
    late=st.randoms(use_true_random=False),
)
def test_what_goes_to_several_queues_of_one_destination_has_each_number_once(
    word: Word, turns: list[tuple[int, int, int]], late: random.Random
) -> None:
    """What the destination has is acknowledged in the end, and nothing else is, whatever comes late and twice."""
    net = chain("a", "c", queues=[])
    net.kill("c")
    given: list[tuple[int, str]] = []
    arrived: dict[str, int] = {}
    for identifier, size, event in turns:
        send(net, *["x"] * size, identifier=identifier)
        newest = max(
            (one for one in sequences(net) if one.name == at("c", identifier).name),
            key=lambda one: one.identifier,
        )
        given += [(number, newest.name) for number in range(newest.next_number - size, newest.next_number)]
        assert len({number for number, _ in given}) == len(given)
        if event == 1:
            net.pass_ms(2_000)  # What was acknowledged has left the store.
            restart(net)
            leave(net)
        if event >= 2:
            leave(net)
            heads = [one for one in sequences(net) if one.count and one.is_head]
            head = late.choice(heads)
            arrived[head.name] = head.next_number - 1
            before = {one: one.count for one in sequences(net)}
            for number in [*late.choices(sorted(arrived.values()), k=event), arrived[head.name]]:
                if number in arrived.values():
                    say(net, word(number))
            changed = [one.name for one, left in before.items() if one.count != left]
            assert changed == [head.name]
    for _ in range(2 * len(turns)):
        leave(net)
        for one in sequences(net):
            if one.count and one.is_head:
                say(net, word(one.next_number - 1))
    assert all(not one.count for one in sequences(net))


def test_a_destination_that_names_sequences_is_numbered_for_as_before(net: Net) -> None:
    send(net, "1", "2")
    [sequence] = sequences(net)
    say(net, OrderAckBody(sequence.identifier, 1, 0))
    send(net, "1", identifier=18)
    assert kept(net) == [(1, 3), (1, 2)]


def test_a_number_that_was_given_twice_counts_for_neither(net: Net) -> None:
    """Under two names of one host, of which we do not know that they are one, both began with 1."""
    names = [Destination(f"DIRECT=TCP:{host}\\PRIVATE$\\orders", None, "", "c") for host in ("c", "C.")]
    for name in names:
        net.send("a", name, "1", transactional=True)
    leave(net)
    one, other = sequences(net)
    assert (one.next_number, other.next_number) == (2, 2)
    assert meant_by(1, [one, other]) is None
    assert meant_by(1, [one]) is one
    one.order_ack(1, net.now, net.nodes["a"].up.inspect().desk.writes, named=False)
    assert meant_by(1, [one, other]) is None, "it may come late"


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_a_word_under_the_sequence_in_which_its_sender_sends_is_known_by_what_that_has_sent(net: Net) -> None:
    """A queue manager of our own kind takes its TimeStamps from the same range as we."""
    own = TxSequenceId(time_stamp=time_stamp_of("DIRECT=TCP:a\\PRIVATE$\\replies"), ordinal=9)
    net.nodes["a"].queues = (queue("replies", 30),)
    restart(net)
    send(net, "1", "2")
    body = OrderAckBody(own, 2, 1)
    say(net, body)
    assert (kept(net), strays(net)) == ([(2, 3)], 1), "it may be one of ours, of a store that was lost"
    header = TransactionHeader(tx_sequence_id=own, tx_sequence_number=1)
    reply: UserMessage = user_message(
        source=C,
        destination_manager=A,
        destination=30,
        message_id=77,
        sent_time_s=0,
        body=b"reply",
        transaction=header,
    )
    arrive(net, "a", reply, peer="c")
    say(net, body)
    assert (kept(net), strays(net)) == ([(0, 3)], 1)


@every_reading
def test_a_word_counts_from_the_destination_alone(net: Net, word: Word) -> None:
    net.add("b")
    net.start("b")
    restart(net)
    send(net, "1", "2")
    say(net, word(2), source="b")
    assert (kept(net), strays(net)) == ([(2, 3)], 1)


@every_reading
def test_a_word_about_a_direct_name_is_taken_of_its_host(net: Net, word: Word) -> None:
    for body in ("1", "2"):
        net.send("a", direct("c"), body, transactional=True)
    leave(net)
    say(net, word(2))
    assert kept(net) == [(0, 3)]
    restart(net)
    net.send("a", direct("c"), "3", transactional=True)
    assert sequences(net)[-1].next_number == 4


def test_numbers_that_are_used_up_begin_again_when_all_is_acknowledged(net: Net) -> None:
    word = READINGS["3.1.7.17"]
    send(net, "1")
    [sequence] = sequences(net)
    sequence.pass_over(USED_UP)
    send(net, "2")
    assert net.nodes["a"].up.inspect().outbound.is_full(at("c").name)
    say(net, word(USED_UP))
    assert kept(net) == [(0, 1)]
    send(net, "3")
    assert [one.count for one in sequences(net)] == [1]


@given(
    time_stamp=st.integers(0, 2**32 - 1), ordinal=st.integers(0, 2**32 - 1), number=st.integers(0, 2**32 - 1)
)
def test_the_number_stands_in_the_identifier_where_that_has_no_time_stamp(
    time_stamp: int, ordinal: int, number: int
) -> None:
    body = OrderAckBody(TxSequenceId(time_stamp=time_stamp, ordinal=ordinal), number, 0)
    assert number_in(body) == (number or ordinal if time_stamp == 0 else number)


@given(st.text())
def test_each_time_stamp_that_we_give_may_be_ours_and_none_that_windows_gives_until_2029(name: str) -> None:
    assert may_be_ours(time_stamp_of(name))
    assert not may_be_ours(WINDOWS_S)
    assert not may_be_ours(0)
