"""Fields that must differ are rewritten, and nothing else is."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.captures.answers import identity_of, place_of
from mqproto.captures.script import Script, choose, read_script, survey
from mqproto.formatname import parse_format_name
from mqproto.simulator.replay.rewrite import QueueMap, Rewriter, read_map
from mqproto.wire import (
    NULL_GUID,
    Guid,
    MessageClass,
    PrivateQueueFormatName,
    TxSequenceId,
    UserMessage,
    encode_packet,
    guid_text,
)
from tests.conversations import DESTINATION, QUEUE, SENDER, SENT_S, a_message, exchange, seen, write

NOW_S = SENT_S + 1_000
NEWEST = TxSequenceId(time_stamp=NOW_S, ordinal=5)
ME, PEER = Guid(b"me".ljust(16, b".")), Guid(b"peer".ljust(16, b"."))


def a_script(messages: Sequence[UserMessage]) -> Script:
    with tempfile.TemporaryDirectory() as folder:
        packets = seen(write(Path(folder) / "c", exchange(messages)))
    return read_script(packets, choose(survey(packets)))


def rewritten(
    messages: Sequence[UserMessage], maps: Sequence[QueueMap] = (), **changes: Any
) -> tuple[list[UserMessage], Rewriter]:
    script = a_script(messages)
    arguments: dict[str, Any] = {"sources": {SENDER: ME}, "first_message_id": 9_000, "newest": NEWEST}
    rewriter = Rewriter(script, maps=maps, **arguments | changes)
    made = [rewriter.rewritten(number, PEER, NOW_S) for number in range(len(script.messages))]
    for number, message in enumerate(made):
        encode_packet(message)
        assert identity_of(message) == rewriter.identity(number)
        assert place_of(message) == rewriter.place(number)
    return made, rewriter


numbers_sent = st.lists(st.integers(1, 500), min_size=1, max_size=12, unique=True)


@pytest.mark.spec("[MS-MQMQ] 2.2.20.5")
@given(numbers_sent)
def test_numbers_begin_with_one_have_no_holes_and_keep_their_order(numbers: list[int]) -> None:
    made, _ = rewritten([a_message(number, previous=max(0, number - 2)) for number in numbers])
    headers = [message.transaction for message in made]
    assert all(header is not None for header in headers)
    new = [header.tx_sequence_number for header in headers if header]
    assert sorted(new) == list(range(1, len(numbers) + 1))
    assert [sorted(new).index(number) for number in new] == [sorted(numbers).index(each) for each in numbers]
    assert [header.previous_tx_sequence_number for header in headers if header] == [each - 1 for each in new]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=10))
def test_all_sequences_of_one_sender_to_one_queue_become_one_newer_than_any(ordinals: list[int]) -> None:
    """A later sequence, which has the higher identifier, remains after the earlier one."""
    counts = dict.fromkeys(range(1, 4), 0)
    messages = []
    for place, ordinal in enumerate(sorted(ordinals)):
        counts[ordinal] += 1
        sequence = TxSequenceId(time_stamp=SENT_S, ordinal=ordinal)
        messages.append(a_message(counts[ordinal], sequence=sequence, message_id=place + 1))
    places = [place_of(message) for message in rewritten(messages)[0]]
    assert places == [
        (TxSequenceId(time_stamp=NOW_S, ordinal=6), place) for place in range(1, len(ordinals) + 1)
    ]
    assert TxSequenceId(time_stamp=NOW_S, ordinal=6) > NEWEST


def test_streams_to_two_queues_are_two_sequences() -> None:
    made, _ = rewritten([a_message(1), a_message(1, destination=QUEUE + 1, message_id=7), a_message(2)])
    assert [place_of(message) for message in made] == [
        (TxSequenceId(time_stamp=NOW_S, ordinal=6), 1),
        (TxSequenceId(time_stamp=NOW_S, ordinal=7), 1),
        (TxSequenceId(time_stamp=NOW_S, ordinal=6), 2),
    ]


def test_what_differs_is_named_and_all_else_is_as_captured() -> None:
    captured = a_message(3, extension=b"extended", application_tag=5, journal_positive=True)
    [message], rewriter = rewritten([captured])
    assert {name: (change.old, change.new) for name, change in rewriter.changes.items()} == {
        "user.source_queue_manager": (guid_text(SENDER), guid_text(ME)),
        "user.message_id": ("103", "9000"),
        "user.sent_time_s": (str(SENT_S), str(NOW_S)),
        "user.queue_manager_address": (guid_text(DESTINATION), guid_text(PEER)),
        "transaction.tx_sequence_id": (f"{SENT_S}/7", f"{NOW_S}/6"),
        "transaction.tx_sequence_number": ("3", "1"),
        "transaction.previous_tx_sequence_number": ("2", "0"),
    }
    header, old = message.transaction, captured.transaction
    assert header is not None
    assert old is not None
    header.tx_sequence_id, header.tx_sequence_number = old.tx_sequence_id, old.tx_sequence_number
    header.previous_tx_sequence_number = old.previous_tx_sequence_number
    user = message.user
    user.source_queue_manager, user.queue_manager_address = SENDER, DESTINATION
    user.message_id, user.sent_time_s = captured.user.message_id, SENT_S
    assert encode_packet(message) == encode_packet(captured)


def test_what_is_the_same_is_no_change() -> None:
    _, rewriter = rewritten([a_message(1)], sources={})
    assert "user.source_queue_manager" not in rewriter.changes
    assert "transaction.tx_sequence_number" not in rewriter.changes
    assert rewriter.changes["user.message_id"].count == 1


def test_a_message_for_somebody_behind_the_peer_stays_his() -> None:
    [message], _ = rewritten([a_message(1, destination_manager=Guid(b"\x77" * 16))])
    assert message.user.queue_manager_address == Guid(b"\x77" * 16)


def test_administration_queues_of_the_two_go_with_them() -> None:
    elsewhere = Guid(b"\x77" * 16)
    made, rewriter = rewritten(
        [
            a_message(1, admin_queue=PrivateQueueFormatName(DESTINATION, 8), response_queue=9),
            a_message(2, admin_queue=PrivateQueueFormatName(elsewhere, 8)),
        ]
    )
    first, second = made
    assert (first.user.admin_queue, first.user.response_queue) == (8, 9), "the type says whose they are"
    assert second.user.admin_queue == PrivateQueueFormatName(elsewhere, 8)
    assert "user.admin_queue" not in rewriter.changes


def test_messages_are_numbered_on_and_so_is_what_else_is_sent() -> None:
    made, rewriter = rewritten([a_message(1), a_message(2)], first_message_id=2**32 - 1)
    assert [message.user.message_id for message in made] == [2**32 - 1, 0]
    assert [rewriter.next_message_id(), rewriter.next_message_id()] == [1, 2]


# --map

OLD = f"PRIVATE={guid_text(DESTINATION)}\\{QUEUE:08X}"


@pytest.mark.parametrize(
    ("new", "manager", "queue"),
    [
        (r"DIRECT=OS:server\private$\orders", NULL_GUID, r"OS:server\PRIVATE$\orders"),
        (r"server\private$\orders", NULL_GUID, r"OS:server\PRIVATE$\orders"),
        (f"PRIVATE={guid_text(ME)}\\00000021", ME, 33),
        (f"private={{{guid_text(ME).lower()}}}\\21", ME, 33),
        (f"PUBLIC={guid_text(ME)}", PEER, ME),
    ],
)
def test_a_queue_is_mapped_to_any_name_that_one_can_send_to(new: str, manager: Guid, queue: Any) -> None:
    [message, other], rewriter = rewritten(
        [a_message(1), a_message(1, destination=QUEUE + 1, message_id=7)],
        [read_map(f"{OLD.lower()}={new}")],
    )
    assert (message.user.queue_manager_address, message.user.destination_queue) == (manager, queue)
    assert other.user.destination_queue == QUEUE + 1
    assert rewriter.changes["user.destination_queue"].count == 1


def test_a_direct_name_is_mapped_to_a_private_one() -> None:
    [message], _ = rewritten(
        [a_message(1, destination=r"TCP:10.0.0.2\private$\orders")],
        [read_map(rf"DIRECT=TCP:10.0.0.2\PRIVATE$\ORDERS={OLD}")],
    )
    assert (message.user.queue_manager_address, message.user.destination_queue) == (DESTINATION, QUEUE)


@pytest.mark.parametrize(
    "text", ["", "=", "orders", OLD, f"{OLD}=", f"{OLD}=nonsense", f"{OLD}=DIRECT=OS:a\\q;journal", "a=b=c"]
)
def test_what_is_no_map_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="write PRIVATE="):
        read_map(text)


@given(st.sampled_from([OLD, f"PUBLIC={guid_text(ME)}", r"DIRECT=HTTP://host/msmq/q", r"DIRECT=OS:a\b"]))
def test_every_name_may_stand_on_both_sides(name: str) -> None:
    assert read_map(f"{name}={name}") == (parse_format_name(name), parse_format_name(name))


def test_two_streams_cannot_become_one() -> None:
    messages = [a_message(1), a_message(1, destination=QUEUE + 1, message_id=7)]
    other = f"PRIVATE={guid_text(DESTINATION)}\\{QUEUE + 1:08X}"
    with pytest.raises(UsageError, match="two queues with transactional messages would become one"):
        rewritten(messages, [read_map(f"{OLD}={other}")])


def test_two_express_queues_can() -> None:
    messages = [
        a_message(1, transaction=None),
        a_message(2, transaction=None, destination=QUEUE + 1),
    ]
    other = f"PRIVATE={guid_text(DESTINATION)}\\{QUEUE + 1:08X}"
    made, _ = rewritten(messages, [read_map(f"{OLD}={other}")])
    assert [message.user.destination_queue for message in made] == [QUEUE + 1, QUEUE + 1]
    assert all(message.properties.message_class == MessageClass.NORMAL for message in made)
