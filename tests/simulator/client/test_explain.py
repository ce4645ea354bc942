"""Explanations for people who are on call at night: each value that a node reports is given with a reason and a
time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.words import duration
from mqproto.manager.status import DuplicatesStatus, IncomingStatus, LocalStatus, NodeStatus, OutgoingStatus
from mqproto.manager.whereabouts import MessageStatus, Spot
from mqproto.neighbours.connections import ConnectionAttempt
from mqproto.queues.localqueue import SystemQueue
from mqproto.session import ConnectionStatus
from mqproto.simulator.client.explain import Explainer
from mqproto.simulator.client.live import Away
from mqproto.simulator.client.oversee import explained
from mqproto.simulator.node.control import Explanation, QueueReceiver
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.wire import INFINITE, MessageClass, guid_text
from mqproto.wire.classes import REFUSALS
from tests.simulator.statuses import (
    DESTINATION,
    EXPRESS,
    HELD,
    MESSAGE,
    NOW_MS,
    NOW_S,
    ORDERS,
    QUEUE,
    SENDER,
    SEQUENCE,
    THREE,
)

LETTERS = ".\\private$\\failed-orders"


def words(
    *,
    node: str = "sender",
    outgoing: OutgoingStatus | None = None,
    local: LocalStatus | None = None,
    incoming: IncomingStatus | None = None,
    messages: tuple[MessageStatus, ...] = (),
    in_full: bool = True,
    **status: Any,
) -> list[str]:
    """Return the words that explain a node that reports this status."""
    found = NodeStatus(
        local=[local] if local else [],
        outgoing=[outgoing] if outgoing else [],
        incoming=[incoming] if incoming else [],
        uptime_ms=NOW_MS,
        utc_s=NOW_S,
        **status,
    )
    explainer = Explainer(THREE, "`mqproto node {}`".format, " --directory stores", in_full=in_full)
    return list(explainer.lines({node: Explanation(found, list(messages))}))


def test_a_sequence_says_what_it_waits_for_since_when_and_what_comes_next() -> None:
    assert words(outgoing=SEQUENCE, messages=(MESSAGE,)) == [
        r"sender to destination\orders: 3 messages wait, the oldest for 12 s",
        "  connected to intermediate (127.0.0.2:1801)",
        "  numbers 1 to 3: no OrderAck from destination for 12 s; sent again in 18 s (resend 2, interval 30 s)",
        f"  {MESSAGE.source}\\7 'order 7', 5 bytes, 12 s old: number 1, the next hop has it, awaits its OrderAck",
        "  and 2 more",
    ]


HOP = "intermediate (127.0.0.2:1801)"
REFUSED = "connection refused by 127.0.0.2:1801"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, f"not connected to {HOP}: {REFUSED}; next try in 4 s"),
        ({"failing_since_s": NOW_S - 60}, f"not connected to {HOP} for 1 min: {REFUSED}; next try in 4 s"),
        ({"retry_at_ms": NOW_MS - 1}, f"not connected to {HOP}: {REFUSED}; next try now"),
        ({"retry_at_ms": None, "last_failure": ""}, f"not connected to {HOP}"),
        ({"state": "connecting"}, f"connecting to {HOP}, after: {REFUSED}"),
        ({"state": "connecting", "last_failure": ""}, f"connecting to {HOP}"),
        (
            {
                "state": "connecting",
                "last_failure": "",
                "history": [ConnectionAttempt(NOW_S - 3, "127.0.0.2:1801", ConnectionStatus.IN_PROCESS, "")],
            },
            f"connecting to {HOP} for 3 s",
        ),
        (
            {"state": "no route"},
            "no way leads there from here: add a link or a route to the topology, or say where it is: mqproto peers "
            "add",
        ),
        (
            {"state": "disconnected", "is_waited_for": True},
            f"waits until {HOP} calls: it was met when it called, and is not called from here; [strangers] call says "
            "who may be",
        ),
        ({"state": "connected"}, f"2 messages to be sent when {HOP} has acknowledged those before"),
        (
            {"state": "connected", "unsent": 1, "in_flight": 1},
            f"1 message sent to {HOP}, which has not acknowledged it",
        ),
        (
            {"state": "connected", "next_manager": "", "next_hop": "10.0.0.7:1801"},
            "connected to 10.0.0.7:1801",
        ),
        (
            {"state": "on hold"},
            "paused by an operator: go on with `mqproto resume destination --node sender --directory stores`",
        ),
    ],
)
def test_the_state_of_an_outgoing_queue_is_a_reason(changes: dict[str, Any], line: str) -> None:
    said = words(outgoing=replace(EXPRESS, **changes))
    assert said[0] == "sender to destination: 2 messages wait"
    assert f"  {line}" in said


NO_ACK = "no OrderAck from destination"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"resend_at_ms": None, "state": "disconnected"},
            f"numbers 1 to 3: {NO_ACK}; sent again if none comes once the connection is back",
        ),
        ({"state": "on hold"}, f"numbers 1 to 3: {NO_ACK}; nothing is sent again while the queue is paused"),
        (
            {"first_unacked": 3, "unacked": 1},
            f"number 3: {NO_ACK}; sent again in 18 s (resend 2, interval 30 s)",
        ),
        (
            {"resend_attempt": 2},
            f"numbers 1 to 3: {NO_ACK}; sent again in 18 s (resend 3, interval 30 s); its queue may be missing, not "
            "transactional, full, or closed to strangers",
        ),
        ({"unread": 2}, "2 messages arrived and not received yet: the FinalAck is awaited"),
    ],
)
def test_what_a_sequence_waits_for_is_said_in_each_state(changes: dict[str, Any], line: str) -> None:
    assert f"  {line}" in words(outgoing=replace(SEQUENCE, **changes))


def tried(seconds_ago: int, address: str, status: ConnectionStatus, reason: str = "") -> ConnectionAttempt:
    return ConnectionAttempt(NOW_S - seconds_ago, address, status, reason)


FAILED, ESTABLISHED = ConnectionStatus.SOCKET_CONNECT_FAILURE, ConnectionStatus.ESTABLISHED
FIRST, SECOND = "127.0.0.2:1801", "127.0.0.3:1801"


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.3")
def test_a_way_with_several_next_hops_says_what_came_of_the_others() -> None:
    history = [tried(90, FIRST, FAILED, "refused"), tried(60, SECOND, ESTABLISHED, "closed by the peer")]
    down = replace(EXPRESS, next_hops=[FIRST, SECOND], failing_since_s=NOW_S - 90, last_failure="refused")
    assert words(outgoing=replace(down, history=history[:1]))[1:3] == [
        f"  not connected to {HOP} for 1 min 30 s: refused; next try in 4 s",
        f"  {SECOND} was not tried yet",
    ]
    again = [*history, tried(5, SECOND, FAILED, "refused too"), tried(3, FIRST, FAILED, "refused")]
    assert words(outgoing=replace(down, history=again))[2] == f"  {SECOND} failed 5 s ago: refused too"
    over_second = replace(down, state="connected", next_hop=SECOND, next_manager="", history=history)
    assert (
        words(outgoing=over_second)[1]
        == f"  connected to {SECOND}, as {FIRST} failed 1 min 30 s ago: refused"
    )


def test_an_order_ack_that_came_meanwhile_begins_the_wait_anew() -> None:
    said = words(outgoing=replace(SEQUENCE, last_ack_s=NOW_S - 3), messages=(MESSAGE,))
    assert any("no OrderAck from destination for 3 s" in line for line in said)


def test_a_queue_in_which_nothing_waits_is_not_worth_a_line_unless_it_is_paused() -> None:
    empty = replace(EXPRESS, waiting=0, unsent=0, state="connected")
    assert words(outgoing=empty) == []
    assert (
        words(outgoing=replace(empty, state="on hold"))[0]
        == "sender to destination: nothing waits to get there"
    )


def test_acknowledgments_have_an_outgoing_queue_that_can_be_told_apart() -> None:
    name = guid_text(SENDER.guid) + ORDER_SUFFIX
    [first, *_] = words(node="destination", outgoing=replace(EXPRESS, name=name))
    assert first == r"destination to sender\order_queue$: 2 messages wait"


def test_a_gap_names_what_came_and_what_is_missing() -> None:
    local = replace(QUEUE, waiting=0, held=4)
    said = words(node="destination", local=local, incoming=HELD)
    assert said == [
        r"destination\orders: empty, 4 held",
        "  held: 4 came from sender, number 3 is missing; the last came 5 s ago, and sender sends again what has no "
        "OrderAck",
    ]
    many = words(node="destination", local=local, incoming=replace(HELD, missing=(3, 1_005)))
    assert "numbers 3 to 1,005 are missing" in many[1]


@pytest.mark.parametrize(
    ("queue", "line"),
    [
        (QUEUE, "no application receives from it"),
        (replace(QUEUE, purging=True), "it is being emptied"),
        (
            replace(QUEUE, waiting=0, passed_over=2),
            "2 messages in the store of destination that the queue has passed over, which is a fault of mqproto, so "
            "please report it: they come when destination is started again",
        ),
        (
            replace(QUEUE, unsettled=1, consumers=1),
            "1 message given to an application that has not settled it",
        ),
        (
            replace(QUEUE, size_bytes=3_100, quota_bytes=4_096),
            "3,100 of its quota of 4,096 bytes are taken, and what does not fit is refused: receive from it, or "
            r"`mqproto purge 'destination\orders' --directory stores`",
        ),
        (
            replace(QUEUE, name=SystemQueue.DEADXACT, size_bytes=90, quota_bytes=100),
            "90 of its quota of 100 bytes are taken, and what does not fit is dropped: receive from it, or "
            r"`mqproto purge 'destination\system$;deadxact' --directory stores`",
        ),
        (
            replace(QUEUE, name=SystemQueue.DEADXACT),
            r"to send them once more: `mqproto return 'destination\system$;deadxact' --directory stores`",
        ),
    ],
)
def test_a_local_queue_says_why_it_is_not_empty_and_what_is_not_let_in(queue: LocalStatus, line: str) -> None:
    assert f"  {line}" in words(node="destination", local=queue)


def test_a_queue_with_a_consumer_and_room_needs_no_explanation() -> None:
    quiet = replace(QUEUE, consumers=1, quota_bytes=1_000)
    assert words(node="destination", local=quiet) == [r"destination\orders: 2 messages"]


def test_a_store_that_is_nearly_full_is_said() -> None:
    [line] = words(stored_bytes=80, quota_bytes=100)
    assert line.startswith("sender is nearly full: 80 of 100 bytes (quota_bytes)")
    assert words(stored_bytes=50, quota_bytes=100) == []


def test_what_was_in_doubt_when_a_life_began_is_said_as_long_as_its_list_is_there() -> None:
    [line] = words(in_doubt=["sender.life-2-in-doubt.txt"])
    assert line == (
        "sender began a life on a store that was put back, and what waited then may have been delivered before:"
        " sender.life-2-in-doubt.txt lists it; remove that file when you have looked"
    )


def test_a_sender_of_which_most_is_dropped_is_said() -> None:
    source = guid_text(THREE.nodes["intermediate"].guid)
    [line] = words(duplicates_of=[DuplicatesStatus(source, 9_000, 180, 200)])
    assert line == (
        "sender has dropped 180 of the last 200 messages of intermediate, as others with their identifiers came before:"
        " was the store of intermediate put back, or does another send in its name?"
    )
    assert words(duplicates_of=[DuplicatesStatus(source, 9_000)]) == []


def test_a_disk_that_is_full_or_soon_will_be_is_said() -> None:
    [line] = words(disk_is_full=True, room_lasts_s=5)
    assert line.startswith("the disk of sender is full: it takes no message that has to be on disk")
    [line] = words(room_lasts_s=7_500)
    assert line.startswith("sender has room for another 2 h 5 min if it goes on to grow as it does")
    assert words(room_lasts_s=100_000) == []


def test_a_node_that_does_not_run_is_a_reason_too() -> None:
    explainer = Explainer(THREE, "`mqproto node {}`".format)
    assert list(explainer.lines({"destination": Away(), "sender": Away(7)})) == [
        "destination is not running; start it with `mqproto node destination`",
        "sender is there (process 7), and has not answered for 2 s",
    ]


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"spot": Spot.UNSENT}, "number 1, to be sent"),
        ({"spot": Spot.UNSENT, "number": 0, "transactional": False}, "to be sent"),
        ({"spot": Spot.IN_FLIGHT}, "number 1, sent, not acknowledged by the next hop"),
        ({"spot": Spot.UNSENT, "reach_by_s": NOW_S + 90}, "number 1, to be sent; expires in 1 min 30 s"),
        ({"reach_by_s": NOW_S - 1}, "awaits its OrderAck; its time is over"),
        (
            {"spot": Spot.AWAITING_FINAL_ACK, "reach_by_s": NOW_S - 1},
            "its destination has it, awaits its FinalAck",
        ),
        ({"spot": Spot.HELD}, "number 1, held behind a gap"),
        (
            {"spot": Spot.UNSENT, "dead_letter_queue": LETTERS},
            "number 1, to be sent; if it fails, a dead letter in failed-orders",
        ),
        (
            {
                "spot": Spot.IN_QUEUE,
                "queue": SystemQueue.DEADXACT,
                "message_class": MessageClass.NACK_DELETED,
                "dead_letter_queue": LETTERS,
            },
            "it was deleted on its way (NACK_DELETED), and is not in failed-orders, as that could not have it",
        ),
        (
            {"spot": Spot.IN_QUEUE, "queue": "orders", "receive_by_s": NOW_S + 3},
            "to be received; expires in 3 s",
        ),
        ({"spot": Spot.UNSETTLED, "queue": "orders"}, "given to an application, not settled"),
        ({"spot": Spot.IN_QUEUE, "queue": "orders;journal"}, r"a copy of a message to destination\orders"),
        (
            {"spot": Spot.IN_QUEUE, "queue": SystemQueue.DEADLETTER, "message_class": 0x1234},
            r"a dead letter to destination\orders, class 0x1234",
        ),
        (
            {
                "spot": Spot.IN_QUEUE,
                "queue": SystemQueue.DEADXACT,
                "message_class": MessageClass.NACK_REACH_QUEUE_TIMEOUT,
                "in_doubt": True,
            },
            "(NACK_REACH_QUEUE_TIMEOUT), in doubt: it was sent and may have arrived, and leaves this queue if its "
            "destination says so",
        ),
        (
            {
                "spot": Spot.IN_QUEUE,
                "queue": SystemQueue.DEADXACT,
                "message_class": MessageClass.NACK_HOP_COUNT_EXCEEDED,
            },
            "it passed too many queue managers, or one of them could not pass it on (NACK_HOP_COUNT_EXCEEDED), "
            "and another copy of it may have arrived: its sender was told",
        ),
    ],
)
def test_a_message_says_where_it_is_and_when_that_ends(changes: dict[str, Any], end: str) -> None:
    message = replace(MESSAGE, **changes)
    local = replace(QUEUE, name=message.queue)
    said = words(
        outgoing=replace(SEQUENCE, name=message.queue), local=local, messages=(message,), in_full=False
    )
    [line, *_] = [line for line in said if f"{message.source}\\7" in line]
    assert line.endswith(end)


def test_a_dead_letter_in_its_applications_queue_is_told_from_what_else_is_there() -> None:
    letter = replace(
        MESSAGE,
        spot=Spot.IN_QUEUE,
        queue="failed-orders",
        message_class=MessageClass.NACK_DELETED,
        dead_letter_queue=LETTERS,
        receive_by_s=NOW_S - 1,
    )
    other = replace(letter, ordinal=8, message_class=MessageClass.NORMAL, dead_letter_queue="")
    said = words(local=replace(QUEUE, name="failed-orders"), messages=(letter, other))
    assert any("to send its dead letters once more: `mqproto return" in line for line in said)
    [line] = [line for line in said if f"{letter.source}\\7" in line]
    assert line.endswith(r"a dead letter to destination\orders: it was deleted on its way (NACK_DELETED)")
    [line] = [line for line in said if f"{letter.source}\\8" in line]
    assert line.endswith("to be received; its time is over")


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.6")
@pytest.mark.parametrize("number", [number for number in MessageClass if number & 0x8000])
def test_each_class_of_a_dead_letter_is_a_reason_in_words(number: MessageClass) -> None:
    dead = replace(MESSAGE, spot=Spot.IN_QUEUE, queue=SystemQueue.DEADXACT, message_class=number)
    said = words(local=replace(QUEUE, name=SystemQueue.DEADXACT), messages=(dead,))
    [line] = [line for line in said if "a dead letter" in line]
    assert f": {REFUSALS[number]} ({number.name})" in line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"), (0, "0 s"), (0.04, "0 s"), (0.4, "0.4 s"), (3, "3 s"), (9.96, "10 s"), (42.9, "42 s"),
        (60, "1 min"), (185, "3 min 5 s"), (7_440, "2 h 4 min"), (86_400, "1 d"), (3 * 86_400 + 4 * 3_600, "3 d 4 h"),
    ],
)  # fmt: skip
def test_spans_of_time_are_told_as_people_tell_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


counts = st.integers(0, 2**40)
times_ms = st.none() | st.integers(0, 2**41)
times_s = st.integers(0, 2**32)
names = st.sampled_from(
    [ORDERS, guid_text(DESTINATION.guid), "host", f"host{ORDER_SUFFIX}", "PUBLIC=nonsense"]
)
failures = st.sampled_from(["", "connection refused"])
guids = st.sampled_from(["", guid_text(SENDER.guid), "557358D1-5055-9591-9549-97B6E611EA26"])
queue_names = st.sampled_from(["orders", "orders;journal", *SystemQueue])
outgoings = st.builds(
    OutgoingStatus,
    name=names,
    waiting=counts,
    next_hop=st.just("there:1801"),
    state=st.sampled_from(["connected", "connecting", "disconnected", "on hold", "no route"]),
    last_failure=failures,
    resend_at_ms=times_ms,
    retry_at_ms=times_ms,
    next_manager=guids,
    last_ack_s=st.none() | times_s,
    next_hops=st.lists(st.sampled_from(["there:1801", "other:1801"]), unique=True),
    history=st.lists(
        st.builds(
            ConnectionAttempt,
            time_s=times_s,
            address=st.sampled_from(["there:1801", "other:1801"]),
            reason=failures,
        ),
        max_size=3,
    ),
    **dict.fromkeys(("in_flight", "unsent", "unacked", "unread", "resend_interval_ms"), counts),
)
incomings = st.builds(
    IncomingStatus,
    queue=queue_names,
    source=guids.filter(bool),
    held=counts,
    missing=st.tuples(counts, counts),
    last_access_s=times_s,
)
messages = st.builds(
    MessageStatus,
    queue=names | queue_names,
    source=guids.filter(bool),
    destination=names,
    label=st.text("ab é\n", max_size=9),
    sent_s=times_s,
    reach_by_s=st.none() | st.integers(0, 2 * INFINITE),
    receive_by_s=st.none() | st.integers(0, 2 * INFINITE),
    message_class=st.integers(0, 0xFFFF),
)
statuses = st.builds(
    NodeStatus,
    local=st.lists(st.builds(LocalStatus, name=queue_names, quota_bytes=st.none() | counts), max_size=3),
    outgoing=st.lists(outgoings, max_size=3),
    incoming=st.lists(incomings, max_size=3),
)
explanations: st.SearchStrategy[Mapping[str, Explanation | Away]] = st.dictionaries(
    st.sampled_from(list(THREE.nodes)),
    st.builds(Away, st.none() | counts) | st.builds(Explanation, statuses, st.lists(messages, max_size=5)),
)


@given(found=explanations)
def test_whatever_nodes_tell_becomes_lines_whose_commands_can_be_typed(
    found: Mapping[str, Explanation | Away],
) -> None:
    for line in Explainer(THREE, "`mqproto node {}`".format).lines(found):
        assert line.strip()
        assert "None" not in line
        assert "\n" not in line
        for command in re.findall(r"`([^`]*)`", line):
            assert shlex.split(command)[1] in ("node", "resume", "purge", "return")


@pytest.mark.parametrize(
    ("receiver", "line"),
    [
        (
            QueueReceiver("orders", 42, 1000, "ann", NOW_S - 7_440),
            "ann (process 42) waits for messages, and has received from it for 2 h 4 min",
        ),
        (
            QueueReceiver("orders", 42, 0, "root", NOW_S - 60, 2, NOW_S - 9, r"mqproto trigger far\orders"),
            r"mqproto trigger far\orders of root (process 42) has received from it for 1 min, and has not settled 2 "
            "messages for 9 s",
        ),
        (
            QueueReceiver("orders", None, 1000, "", NOW_S - 300, 1, NOW_S - 40),
            "user 1000 has received from it for 5 min, and has not settled 1 message for 40 s",
        ),
        (
            QueueReceiver("orders", None, None, "", NOW_S + 1, 3, NOW_S + 1),
            "an application has received from it for 0 s, and has not settled 3 messages for 0 s",
        ),
    ],
)
def test_who_receives_from_a_queue_is_named(receiver: QueueReceiver, line: str) -> None:
    other = QueueReceiver("notes", 7, 0, "root", NOW_S)
    status = NodeStatus(local=[replace(QUEUE, waiting=0, consumers=1)], utc_s=NOW_S)
    said = [
        *Explainer(THREE, "`mqproto node {}`".format).lines(
            {"destination": Explanation(status, [], [other, receiver])}
        )
    ]
    assert said[1:] == [f"  {line}"]


def test_what_strangers_have_begun_is_said_and_not_that_nothing_waits() -> None:
    found = {"sender": Explanation(NodeStatus(unfinished_bytes=33_554_432), [])}
    [line] = explained(Explainer(THREE, str), "", found)
    assert line.startswith(
        "sender has 33,554,432 bytes of packets that strangers have begun: it waits for the rest"
    )


def test_of_many_receivers_the_first_are_named_and_the_others_counted() -> None:
    many = [QueueReceiver("orders", pid, 0, "root", NOW_S) for pid in range(1_000, 1_012)]
    status = NodeStatus(local=[replace(QUEUE, consumers=12)], utc_s=NOW_S)
    [*_, last, rest] = Explainer(THREE, "`mqproto node {}`".format).lines(
        {"destination": Explanation(status, [], many)}
    )
    assert "(process 1004)" in last
    assert rest == "  and 7 more who receive from it"
