"""The basis for judging a trial: how lists are compared, and which differences were named. No store is read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from mqproto.wire import MessageClass, encode_packet
from mqproto.wire.layouts.acknowledgment import FinalAckBody
from mqproto.wire.messages import ORDER_QUEUE, FinalAck
from tests.simulator.hurt.ledger import Account, Line, Trace, body_of, digest
from tests.simulator.hurt.named import Known, final_ack_of, label_of, named
from tests.simulator.hurt.operator import GIVEN_UP
from tests.simulator.hurt.trial import told_of
from tests.simulator.hurt.verdict import Outcome, Verdict, differences, judged
from tests.simulator.series import NODE

SEED = 3


def sent(*labels: str, phase: int = 0) -> list[Line]:
    return [Line("sent", phase, "sender", label, "") for label in labels]


def taken(place: str, *labels: str, phase: int = 1) -> list[Line]:
    return [Line("taken", phase, place, label, digest(body_of(SEED, label))) for label in labels]


def said(what: str, phase: int = 1) -> Line:
    return Line("said", phase, "sender", "", what)


def found(*lines: Sequence[Line]) -> list[str]:
    account = Account.of(line for some in lines for line in some)
    return sorted(map(str, differences(account, SEED)))


def verdict(
    *lines: Line,
    names: Sequence[str] = (),
    waiting: Sequence[str] = (),
    is_kill: bool = False,
    is_done: bool = True,
) -> Verdict:
    account = Account.of(lines)
    return judged(account, SEED, lambda _: set(names), lambda: set(waiting), is_kill=is_kill, is_done=is_done)


ORDERS = ("order-00001", "order-00002", "order-00003")


def test_what_was_accepted_and_received_once_in_its_places_and_order_differs_in_nothing() -> None:
    assert found(sent(*ORDERS), taken("orders", *ORDERS)) == []
    assert found(sent("note-00001"), taken("notes", "note-00001"), taken("notes;journal", "note-00001")) == []
    assert found(sent("lostnote-00001"), taken("deadletter", "lostnote-00001")) == []


@pytest.mark.parametrize(
    ("received", "difference"),
    [
        (("order-00001", "order-00003"), "order-00002 is lost in orders"),
        ((*ORDERS, "order-00002"), "order-00002 is doubled in orders"),
        (("order-00001", "order-00003", "order-00002"), "order-00002 is out of order in orders"),
        ((*ORDERS, "order-00009"), "order-00009 is unknown in orders"),
    ],
)
def test_a_loss_a_double_a_stranger_and_a_message_out_of_order_are_seen(
    received: tuple[str, ...], difference: str
) -> None:
    assert found(sent(*ORDERS), taken("orders", *received)) == [difference]


def test_one_byte_of_a_body_is_seen() -> None:
    wrong = digest(body_of(SEED, "order-00001") + b"!")
    assert found(sent("order-00001"), [Line("taken", 1, "orders", "order-00001", wrong)]) == [
        "order-00001 is altered in orders"
    ]


def test_a_journal_without_its_copy_is_a_loss_and_a_message_that_never_ended_has_none() -> None:
    assert found(sent("note-00001"), taken("notes", "note-00001")) == ["note-00001 is lost in notes;journal"]
    assert found(sent("note-00001")) == ["note-00001 is lost in notes"]


def test_a_dead_letter_names_its_message() -> None:
    assert found(sent("order-00001"), taken("deadxact", "order-00001")) == []


def test_what_nobody_was_told_is_accepted_may_come_once_or_not_at_all() -> None:
    handed_in = [Line("sending", 0, "sender", "order-00001", "")]
    assert found(handed_in) == []
    assert found(handed_in, taken("orders", "order-00001")) == []
    assert found(handed_in, taken("orders", "order-00001", "order-00001")) == [
        "order-00001 is doubled in orders"
    ]


def test_what_a_consumer_was_committing_to_when_its_node_died_may_come_again_or_not() -> None:
    committing = [Line("taking", 0, "orders", "order-00001", "")]
    assert found(sent("order-00001"), committing) == []
    assert found(sent("order-00001"), committing, taken("orders", "order-00001", "order-00001")) == [
        "order-00001 is doubled in orders"
    ]


def test_a_difference_is_silent_unless_it_was_named() -> None:
    lines = [*sent(*ORDERS), *taken("orders", *ORDERS[:2]), said("something is wrong")]
    assert verdict(*lines).outcome is Outcome.SILENT
    assert verdict(*lines, names=["order-00002"]).outcome is Outcome.SILENT
    assert verdict(*lines, names=["order-00003"]).outcome is Outcome.AT_START
    assert verdict(*lines, waiting=["order-00003"]).outcome is Outcome.STUCK


def test_without_a_difference_it_counts_when_something_was_said() -> None:
    whole = [*sent(*ORDERS), *taken("orders", *ORDERS)]
    assert verdict(*whole).outcome is Outcome.HARMLESS
    assert verdict(*whole, is_done=False).outcome is Outcome.NOTHING
    assert verdict(*whole, said("a segment is missing")).outcome is Outcome.AT_START
    assert verdict(*whole, said("a message does not fit", phase=2)).outcome is Outcome.AT_READ
    assert verdict(*whole, said("a segment is missing"), is_kill=True).outcome is Outcome.ALARM
    assert verdict(*whole, said(f"{GIVEN_UP}: whatever")).outcome is Outcome.REFUSED


# What a line names


def known(since: int = 0, **where: tuple[int, int]) -> Known:
    """Return messages in queue 7, each with its MessageID and the number of the record that brought it.

    since: if not 0, the first record that may have brought a message, because nobody saw which one did.
    """
    return Known.of(
        (label, Trace(since or record, record, 7, "local orders", message_id))
        for label, (record, message_id) in where.items()
    )


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("the log: record 12 cannot be read, or is not there", {"two"}),
        ("a.sqlite-log-000001: it is damaged, records 12 to 30 are gone from its end", {"two", "three"}),
        ("of queue 7 the message at 3 with MessageID 101 does not fit its checksum", {"one"}),
        ("of queue 8 the message at 3 with MessageID 101 does not fit its checksum", set()),
        ("local orders: 2 of 3 messages are not whole or not there", {"one", "two", "three"}),
        ("local notes: 2 of 3 messages are not whole or not there", set()),
        ("local orders: 3 messages are whole", set()),
        ("local orders\t646E6573-7265-2E2E-2E2E-2E2E2E2E2E2E\\103", {"three"}),
        ("it is damaged (database disk image is malformed)", set()),
        ("it has 12 bytes and was made with 30", set()),
    ],
)
def test_a_line_names_messages_by_record_identifier_or_queue_and_by_nothing_else(
    line: str, labels: set[str]
) -> None:
    assert named([line], known(one=(2, 101), two=(12, 102), three=(30, 103))) == labels


def test_a_message_of_one_of_several_records_is_named_with_all_of_them() -> None:
    lines = ["the log: record 1 cannot be read, or is not there", "the log: nor can 5 more, up to record 7"]
    assert named(lines, known(since=1, one=(7, 101), two=(8, 102))) == {"one"}


def test_further_records_are_named_by_where_they_end() -> None:
    lines = ["the log: record 12 cannot be read, or is not there", "the log: nor can 5 more, up to record 30"]
    assert named(lines, known(one=(2, 101), two=(13, 102), three=(31, 103))) == {"two"}


def test_to_name_a_final_ack_that_is_lost_is_to_name_the_message_that_waits_for_it() -> None:
    sent_one = Line("record", 0, "sender", "receipt-00001", json.dumps(Trace(4, 4, 7, "sequence orders", 9)))
    trace = json.dumps(Trace(5, 5, 8, "outgoing sender\\order_queue$", 70))
    ack = Line("record", 0, "destination", final_ack_of(9), trace)
    line = "outgoing sender\\order_queue$: 1 of 1 messages are not whole or not there"
    names = Line("said", 1, "destination", "", line)
    assert told_of(Account.of([sent_one, ack, names])) == {final_ack_of(9), "receipt-00001"}
    assert told_of(Account.of([sent_one, names])) == set()


def test_a_final_ack_is_known_by_the_message_that_it_is_about() -> None:
    body = FinalAckBody(message_id=9)
    ack = FinalAck(
        source=NODE,
        destination_manager=NODE,
        destination=ORDER_QUEUE,
        message_id=70,
        sent_time_s=1,
        message_class=MessageClass.ACK_RECEIVE,
        body=body,
    ).message()
    assert label_of(encode_packet(ack)) == final_ack_of(9)


def test_an_account_has_the_records_of_before_the_hurt() -> None:
    trace = json.dumps(Trace(4, 4, 7, "local orders", 9))
    lines = [Line("record", phase, "sender", f"order-{phase}", trace) for phase in (0, 1)]
    assert Account.of(lines).traces == {"sender": [("order-0", Trace(4, 4, 7, "local orders", 9))]}
