"""OrderAcks of queue managers that read the text differently: they have a number, but do not show its sequence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from mqproto.messages.drafts import Draft
from mqproto.transfer.cursors import USED_UP
from mqproto.transfer.readings import may_be_ours
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.succession import time_stamp_of
from mqproto.turn.effects import QueueKind
from mqproto.wire import (
    FinalAck,
    FinalAckBody,
    MessageClass,
    OrderAck,
    OrderAckBody,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    user_message,
)
from tests.observing import arrive
from tests.pair import Net, at, chain, direct, guid_of, queue

A, B, C = guid_of("a"), guid_of("b"), guid_of("c")
WINDOWS_S = 1_400_000_000
"""A TimeStamp as Windows makes it: the time of its installation, in seconds since 1970."""

Word = Callable[[int], OrderAckBody]
READINGS: dict[str, Word] = {
    "3.1.7.17": lambda number: OrderAckBody(
        TxSequenceId(time_stamp=WINDOWS_S, ordinal=3), number, max(number - 1, 0)
    ),
    "3.1.1.6.2": lambda number: OrderAckBody(TxSequenceId(time_stamp=0, ordinal=number), 0, 0),
    "both": lambda number: OrderAckBody(
        TxSequenceId(time_stamp=0, ordinal=number), number, max(number - 1, 0)
    ),
}
every_reading = pytest.mark.parametrize("word", READINGS.values(), ids=READINGS)


@pytest.fixture
def net() -> Net:
    """A net in which `a` is the source; the destination `c` sends only what the tests send in its name."""
    net = chain("a", "c", queues=[queue("orders"), queue("others", 18)])
    net.kill("c")
    return net


MESSAGE_IDS = count(1_000)


def say(net: Net, body: OrderAckBody, source: str = "c") -> None:
    """Let an OrderAck arrive from a queue manager."""
    ack = OrderAck(
        source=guid_of(source),
        destination_manager=A,
        destination=4,
        message_id=next(MESSAGE_IDS),
        sent_time_s=0,
        body=body,
    ).message()
    arrive(net, "a", ack, peer=source)


def say_final(net: Net, identifier: TxSequenceId, number: int, message_class: MessageClass) -> None:
    """Let a FinalAck arrive from `c`."""
    ack = FinalAck(
        source=C,
        destination_manager=A,
        destination=4,
        message_id=next(MESSAGE_IDS),
        sent_time_s=0,
        message_class=message_class,
        body=FinalAckBody(identifier, number, number - 1, A, next(MESSAGE_IDS)),
    ).message()
    arrive(net, "a", ack, peer="c")


def send(net: Net, *bodies: str, identifier: int = 16, **draft: object) -> None:
    """Let `a` send messages, which leave in turn; what happens to them after that does not matter here."""
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
    """Return, for each sequence of `a`, how many messages it keeps, and the number of the next message."""
    return [(one.count, one.next_number) for one in sequences(net)]


def last_number(net: Net) -> int:
    """Return the last number that was given to a message."""
    return max(one.next_number for one in sequences(net)) - 1


def strays(net: Net) -> int:
    return net.nodes["a"].note_names().count("stray-acknowledgment")


def say_late(net: Net, word: Word, *numbers: int) -> None:
    """Let late acknowledgments of earlier messages arrive.

    Check that they settle nothing, and that only the last number settles the two messages that are kept.
    """
    for number in numbers:
        say(net, word(number))
    assert sum(left for left, _ in kept(net)) == 2
    leave(net)
    say(net, word(last_number(net)))
    assert sum(left for left, _ in kept(net)) == 0


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
    say_late(net, word, 1, 2, 3)


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
    say_late(net, word, 1, 2, 3)


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@every_reading
@pytest.mark.parametrize("message_class", [MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_EXCEED_QUOTA])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_nor_do_they_where_final_acks_have_told_of_all_before(
    net: Net, word: Word, message_class: MessageClass, is_restarted: bool
) -> None:
    """The OrderAcks for messages that FinalAcks have settled are still on their way."""
    send(net, "1", "2", final_ack=True)
    [sequence] = sequences(net)
    for number in (1, 2):
        say_final(net, sequence.identifier, number, message_class)
    assert kept(net) == [(0, 3)]
    if is_restarted:
        restart(net)
    send(net, "3", "4")
    say_late(net, word, 1, 2)


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
    say_final(net, current, 1, MessageClass.ACK_RECEIVE)
    assert (kept(net), sequence.identifier) == ([(0, 2)], current)
    say(net, OrderAckBody(current, 1, 0))
    assert kept(net) == [(0, 1)]
    assert sequence.identifier > current


def blocks_of(count: int) -> AbstractContextManager[int]:
    """Set the size of the blocks in which numbers are given."""
    return patch("mqproto.transfer.cursors.NUMBER_BLOCK", count)


class Mouth:
    """A queue manager with two names that acknowledges only by number, and the messages that it has from `a`.

    Each message is a number and the sequence in which that number was given; no number is given twice here.
    """

    PLACES = (at("c"), at("c", 18), at("c", 19), direct("c"), direct("c", "notes"))

    def __init__(self, word: Word) -> None:
        self.net = chain("a", "c", queues=[])
        self.net.kill("c")
        self.word = word
        self.given: dict[int, TxSequenceId] = {}
        self.over: set[int] = set()
        """Messages that have arrived, or have ended differently."""
        self.said: dict[TxSequenceId, int] = {}
        """The last number that the destination has in each sequence."""
        self.words: list[int] = []

    def heads(self) -> list[OutgoingSequence]:
        leave(self.net)
        return [one for one in sequences(self.net) if one.count and one.is_head]

    def numbers_in(self, sequence: OutgoingSequence) -> list[int]:
        return [number for number, identifier in self.given.items() if identifier == sequence.identifier]

    def kept_in(self, sequence: OutgoingSequence) -> list[int]:
        base = sequence.cursors.base
        return [number for number in self.numbers_in(sequence) if sequence.awaits(base + number)]

    def send(self, place: int, count: int) -> None:
        destination = self.PLACES[place]
        drafts = [(destination, Draft(body=b"x", transactional=True))] * count
        self.net.nodes["a"].up.enqueue(drafts, self.net.now)
        self.net.run()
        named = [one for one in sequences(self.net) if one.name == destination.name]
        newest = max(named, key=lambda one: one.identifier)
        for number in range(newest.next_number - count, newest.next_number):
            assert number not in self.given
            self.given[number] = newest.identifier

    def arrive(self, sequence: OutgoingSequence, through: int) -> None:
        """Let the destination accept the messages sent to it, up to a number, and report that now or later."""
        self.over |= {number for number in self.numbers_in(sequence) if number <= through}
        self.said[sequence.identifier] = max(through, self.said.get(sequence.identifier, 0))
        self.words.append(self.said[sequence.identifier])

    def refuse(self, sequence: OutgoingSequence, number: int) -> None:
        """Let the destination acknowledge a message, and then refuse it in a FinalAck."""
        self.arrive(sequence, number)
        say_final(self.net, sequence.identifier, number, MessageClass.NACK_Q_EXCEED_QUOTA)

    def delete(self, sequence: OutgoingSequence, number: int) -> None:
        """Let an operator delete a message at its source."""
        self.over.add(number)
        sequence.delete(sequence.cursors.base + number, self.net.nodes["a"].up.inspect().desk.writes)
        self.net.run()

    def restart(self, *, lazily: bool) -> None:
        if lazily:
            self.net.pass_ms(2_000)  # What was acknowledged has left the store.
        restart(self.net)

    def check(self) -> None:
        """Check that `a` still keeps every message that has neither arrived nor ended in another way."""
        kept = {number for one in sequences(self.net) for number in self.kept_in(one)}
        assert set(self.given) - self.over <= kept


STEPS = ("send", "send", "arrive", "arrive", "refuse", "delete", "say", "say", "restart", "restart lazily")


@every_reading
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 4), st.integers(0, 9), st.integers(1, 5)),
        max_size=16,
    )
)
def test_a_number_alone_confirms_what_has_arrived_and_nothing_else(
    word: Word, steps: list[tuple[str, int, int, int]]
) -> None:
    """Acknowledgments may arrive late and more than once, under any names, and across restarts; in the end, everything
    is confirmed.
    """
    with blocks_of(8):
        mouth = Mouth(word)
        for step, place, pick, count in steps:
            heads = mouth.heads() if step in ("arrive", "refuse", "delete") else []
            if step == "send":
                mouth.send(place, count)
            elif step == "say" and mouth.words:
                say(mouth.net, word(mouth.words[-1 - pick % len(mouth.words)]))
            elif step.startswith("restart"):
                mouth.restart(lazily=step.endswith("lazily"))
            elif heads:
                sequence = heads[place % len(heads)]
                kept = mouth.kept_in(sequence)
                getattr(mouth, step)(sequence, kept[pick % len(kept)])
            mouth.check()
        for _ in range(len(steps)):
            for sequence in mouth.heads():
                mouth.arrive(sequence, max(mouth.kept_in(sequence)))
                say(mouth.net, word(mouth.words[-1]))
                mouth.check()
        assert not any(one.count for one in sequences(mouth.net))


@every_reading
def test_a_late_word_counts_for_no_other_queue_after_a_restart(word: Word) -> None:
    """One queue has no messages left; the other keeps messages with numbers below and above those that were
    confirmed.
    """
    mouth = Mouth(word)
    with blocks_of(8):
        for place, count in ((0, 8), (1, 1), (0, 1)):
            mouth.send(place, count)
        assert sorted(mouth.given) == [*range(1, 9), 9, 17]
        other = mouth.heads()[1]
        mouth.arrive(other, 9)
        say(mouth.net, word(9))
        assert other.count == 0
        mouth.restart(lazily=True)
        mouth.heads()
        say(mouth.net, word(9))
        mouth.check()
        say(mouth.net, word(8))
        assert [one.count for one in sequences(mouth.net)] == [1, 0]


def test_a_destination_that_names_sequences_is_numbered_for_as_before(net: Net) -> None:
    send(net, "1", "2")
    [sequence] = sequences(net)
    say(net, OrderAckBody(sequence.identifier, 1, 0))
    send(net, "1", identifier=18)
    assert kept(net) == [(1, 3), (1, 2)]


def test_a_number_that_was_given_twice_counts_for_neither(net: Net) -> None:
    """An older version, which began every sequence with 1, gave the number."""
    with patch.object(OutgoingSequence, "pass_over", lambda self, number: None):
        send(net, "1", "2")
        send(net, "1", "2", "3", identifier=18)
    word = READINGS["3.1.7.17"]
    say(net, word(2))
    assert (kept(net), strays(net)) == ([(2, 3), (3, 4)], 0)
    say(net, word(3))
    assert kept(net) == [(2, 3), (0, 4)]
    say(net, word(2))
    assert kept(net) == [(2, 3), (0, 4)], "it may come late"


@every_reading
def test_a_number_alone_does_not_count_of_who_has_named_a_sequence(net: Net, word: Word) -> None:
    send(net, "1", "2")
    [sequence] = sequences(net)
    say(net, OrderAckBody(sequence.identifier, 1, 0))
    say(net, word(2))
    assert kept(net) == [(1, 3)]
    restart(net)
    say(net, word(2))
    assert kept(net) == [(0, 3)], "nobody knows any more"


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@every_reading
def test_a_destination_that_has_lost_its_store_gets_the_rest_although_it_says_no_more_than_a_number(
    net: Net, word: Word
) -> None:
    send(net, "1", "2", "3")
    say(net, word(2))
    [sequence] = sequences(net)
    say(net, word(0))
    assert sequence.numbering.behind is None, "it may only come late"
    sequence.resends.ack_wait_expired(net.now)
    say(net, word(0))
    assert sequence.numbering.behind == 0
    say(net, word(3))
    assert kept(net) == [(0, 4)]


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_a_word_under_the_sequence_in_which_its_sender_sends_is_known_by_what_that_has_sent(net: Net) -> None:
    """Queue managers of our own kind take their TimeStamps from the same range as we do."""
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
    assert sequences(net)[-1].next_number > 4


def test_numbers_that_are_used_up_begin_again_when_all_is_acknowledged(net: Net) -> None:
    word = READINGS["3.1.7.17"]
    send(net, "1")
    [sequence] = sequences(net)
    sequence.pass_over(USED_UP)
    send(net, "2")
    assert net.nodes["a"].up.inspect().sequences.is_full(at("c").name)
    say(net, word(USED_UP))
    assert kept(net) == [(0, 1)]
    send(net, "3")
    assert [one.count for one in sequences(net)] == [1]


def test_where_no_block_of_numbers_is_left_only_an_order_ack_that_names_the_sequence_counts(net: Net) -> None:
    send(net, "1")
    sequences(net)[0].pass_over(USED_UP - 10)
    send(net, "2", identifier=18)
    one, other = sequences(net)
    assert (other.count, other.next_number) == (1, 2)
    say(net, READINGS["3.1.7.17"](1))
    assert (one.count, other.count) == (1, 1)
    say(net, OrderAckBody(other.identifier, 1, 0))
    assert (one.count, other.count) == (1, 0)


@given(
    time_stamp=st.integers(0, 2**32 - 1), ordinal=st.integers(0, 2**32 - 1), number=st.integers(0, 2**32 - 1)
)
def test_the_number_stands_in_the_identifier_where_that_has_no_time_stamp(
    time_stamp: int, ordinal: int, number: int
) -> None:
    body = OrderAckBody(TxSequenceId(time_stamp=time_stamp, ordinal=ordinal), number, 0)
    assert body.number == (number or (None if time_stamp else ordinal))


@given(st.text())
def test_each_time_stamp_that_we_give_may_be_ours_and_none_that_windows_gives_until_2029(name: str) -> None:
    assert may_be_ours(time_stamp_of(name))
    assert not may_be_ours(WINDOWS_S)
    assert not may_be_ours(0)
