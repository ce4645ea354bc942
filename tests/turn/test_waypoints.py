"""Waypoints: each step of a message is noted, with the message's identifier, once the step is on disk."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.turn import waypoints
from mqproto.turn.effects import Trace
from mqproto.turn.waypoints import DROPS, NEXT_WAYPOINTS, Waypoint, class_name, message_name, missing_before
from mqproto.wire import MessageClass, TransactionHeader, TxSequenceId
from tests.examples import a_user_message
from tests.observing import arrive
from tests.pair import Net, at, chain, guid_of, queue

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
LONG_MS = 120_000


def a_chain(**settings: Any) -> Net:
    """Three nodes that write waypoints; the last hosts the queues."""
    return chain("a", "b", "c", queues=[ORDERS, NOTES], settings=Settings(waypoints=True, **settings))


def path(net: Net, node: str, ordinal: int = 1, *, source: str = "a") -> list[str]:
    """Return the waypoints of one message at a node."""
    name = message_name(guid_of(source), ordinal)
    return [note.name for note in net.nodes[node].notes if note.facts.get("message") == name]


def facts(net: Net, node: str, waypoint: Waypoint) -> dict[str, str | int]:
    """Return the content of a node's last note about this waypoint."""
    return [note.facts for note in net.nodes[node].notes if note.name == waypoint][-1]


def test_a_message_is_seen_on_each_hop_from_its_acceptance_to_its_receipt() -> None:
    """From "Keep the Logs Clean": "log the important waypoints for each message id"."""
    net = a_chain()
    net.send("a", at("c"), "hello", transactional=True, final_ack=True)
    net.pass_ms(1_000)
    assert net.receive("c", "orders") == [b"hello"]
    net.pass_ms(1_000)
    assert path(net, "a") == [
        "accepted",
        "stored",
        "sent",
        "session-acknowledged",
        "order-acknowledged",
        "final-acknowledged",
    ]
    assert path(net, "b") == ["arrived", "forwarded", "stored", "sent", "session-acknowledged"]
    assert path(net, "c") == ["arrived", "queued", "stored", "delivered", "committed"]


def test_a_waypoint_tells_the_queue_the_neighbour_and_the_place_in_the_sequence() -> None:
    net = a_chain()
    net.send("a", at("c"), "hello", transactional=True, final_ack=True)
    net.pass_ms(1_000)
    net.receive("c", "orders")
    net.pass_ms(1_000)
    message = {"message": message_name(guid_of("a"), 1)}
    numbered = {"sequence": facts(net, "a", Waypoint.ACCEPTED)["sequence"], "number": 1}
    assert facts(net, "a", Waypoint.ACCEPTED) == message | {"queue": at("c").name} | numbered
    hop = {"session": 1, "peer": "a", "manager": "2E2E2E61-2E2E-2E2E-2E2E-2E2E2E2E2E2E"}
    assert facts(net, "b", Waypoint.ARRIVED) == message | hop | numbered
    assert facts(net, "c", Waypoint.QUEUED) == message | {"queue": "orders"}
    assert facts(net, "c", Waypoint.DELIVERED) == message | {
        "queue": "orders",
        "consumer": 1,
        "delivery_count": 1,
    }
    assert facts(net, "a", Waypoint.FINAL_ACKNOWLEDGED) == message | numbered | {"class": "ACK_RECEIVE"}


def test_nothing_is_said_before_it_is_on_disk() -> None:
    """A node that dies during the commit of a message reports nothing about it, and starts over with it."""
    net = a_chain()
    net.nodes["b"].dies_at = 4  # Its handshake takes three batches with something to do.
    net.send("a", at("c"), "hello", transactional=True)
    net.pass_ms(1_000)
    assert net.nodes["b"].core is None
    assert path(net, "b") == []
    net.start("b")
    net.pass_ms(10_000)
    assert path(net, "b")[:3] == ["arrived", "forwarded", "stored"]
    assert path(net, "c") == ["arrived", "queued", "stored"]


def test_a_message_is_not_accepted_if_its_application_is_told_that_it_is_not() -> None:
    net = a_chain()
    with pytest.raises(UsageError):
        net.send("a", at("c"), "hello", priority=9)
    net.run()
    assert path(net, "a") == []


def test_an_express_message_is_never_stored() -> None:
    net = a_chain()
    net.send("a", at("c", 17), "hello")
    net.pass_ms(1_000)
    assert net.receive("c", "notes") == [b"hello"]
    assert path(net, "a") == ["accepted", "sent", "session-acknowledged"]
    assert path(net, "b") == ["arrived", "forwarded", "sent", "session-acknowledged"]
    assert path(net, "c") == ["arrived", "queued", "delivered", "committed"]


def test_a_message_to_a_queue_of_its_own_node_is_in_it_at_once() -> None:
    net = a_chain()
    net.send("c", at("c"), "hello", transactional=True)
    net.run()
    assert path(net, "c", source="c") == ["accepted", "queued", "stored"]


def test_what_is_rolled_back_is_delivered_again() -> None:
    net = a_chain()
    net.send("c", at("c"), "hello", transactional=True)
    core = net.nodes["c"].up
    for commit in (False, True):
        core.consume(7, "orders", 1, transactional=True)
        net.run()
        core.settle(7, "orders", net.now, commit=commit)
        net.run()
    assert path(net, "c", source="c")[3:] == ["delivered", "rolled-back", "delivered", "committed"]
    assert facts(net, "c", Waypoint.DELIVERED)["delivery_count"] == 2


def test_a_consumer_that_goes_away_has_rolled_back() -> None:
    net = a_chain()
    net.send("c", at("c"), "hello", transactional=True)
    net.nodes["c"].up.consume(7, "orders", 1, transactional=True)
    net.run()
    net.nodes["c"].up.abandon(7, "orders", net.now)
    net.run()
    assert path(net, "c", source="c")[3:] == ["delivered", "rolled-back"]


def test_what_is_rejected_is_a_dead_letter_where_it_was_sent() -> None:
    net = a_chain()
    net.send("a", at("c"), "hello", transactional=True, journal_negative=True)
    net.pass_ms(1_000)
    net.nodes["c"].up.consume(7, "orders", 1, transactional=True)
    net.run()
    net.nodes["c"].up.reject(7, "orders")
    net.pass_ms(1_000)
    assert path(net, "c")[-2:] == ["delivered", "rejected"]
    assert path(net, "a")[-3:] == ["final-acknowledged", "dead-lettered", "stored"]
    letter = facts(net, "a", Waypoint.DEAD_LETTERED)
    assert (letter["queue"], letter["class"]) == ("system$;deadxact", "NACK_RECEIVE_REJECTED")


def test_a_refusal_and_a_lost_dead_letter_are_seen() -> None:
    net = a_chain(journal_quota_bytes=1)
    net.send("a", at("c", 99), "hello", transactional=True, journal_negative=True)
    net.pass_ms(1_000)
    assert path(net, "c") == ["arrived", "refused"]
    assert facts(net, "c", Waypoint.REFUSED)["class"] == "NACK_BAD_DST_Q"
    assert "not-kept" in path(net, "a")


def test_a_message_whose_time_is_over_and_one_that_is_deleted_are_seen() -> None:
    net = a_chain()
    net.kill("b")
    net.send("a", at("c"), "late", transactional=True, time_to_reach_queue_s=1)
    net.send("a", at("c"), "unwanted", transactional=True)
    net.pass_ms(5_000)
    net.nodes["a"].up.purge(at("c").name)
    net.run()
    assert path(net, "a", 1) == ["accepted", "stored", "expired"]
    assert path(net, "a", 2) == ["accepted", "stored", "purged"]


def test_copies_of_others_that_are_purged_on_the_way_are_seen_though_nobody_is_told() -> None:
    net = a_chain()
    net.kill("c")
    net.send("a", at("c"), "hello", transactional=True)
    net.pass_ms(1_000)
    net.nodes["b"].up.purge("2E2E2E63-2E2E-2E2E-2E2E-2E2E2E2E2E2E")
    net.run()
    assert path(net, "b") == ["arrived", "forwarded", "stored", "purged"]


def numbered(number: int) -> TransactionHeader:
    return TransactionHeader(
        tx_sequence_id=TxSequenceId(time_stamp=5, ordinal=1),
        tx_sequence_number=number,
        previous_tx_sequence_number=number - 1,
    )


def early(net: Net, *numbers: int) -> None:
    """Let messages of one sequence arrive at `c` in this order."""
    for number in numbers:
        message = a_user_message(transaction=numbered(number))
        message.user.source_queue_manager, message.user.message_id = guid_of("a"), number
        message.user.queue_manager_address, message.user.destination_queue = guid_of("c"), 16
        arrive(net, "c", message)


def test_what_comes_early_is_held_until_the_gap_is_closed() -> None:
    net = a_chain()
    early(net, 2, 2)
    assert path(net, "c", 2) == ["held", "stored", "duplicate-dropped"]
    early(net, 1, 1)
    assert path(net, "c", 1) == ["queued", "stored", "duplicate-dropped"]
    assert path(net, "c", 2)[-1] == "queued"


def test_what_comes_early_without_room_behind_the_gap_is_dropped() -> None:
    net = a_chain(held_messages_limit=1)
    early(net, 3, 2)
    assert path(net, "c", 2) == ["dropped"]


def test_a_full_node_turns_a_message_away() -> None:
    net = a_chain()
    net.nodes["b"].settings = Settings(waypoints=True, quota_bytes=10)
    net.start("b")
    net.send("a", at("c"), "hello", transactional=True)
    net.pass_ms(100)
    assert path(net, "b")[:2] == ["arrived", "turned-away"]


def test_a_resend_is_told_from_the_first_send() -> None:
    net = a_chain()
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "hello", transactional=True)
    net.pass_ms(40_000)
    assert path(net, "a") == [
        "accepted",
        "stored",
        "sent",
        "session-acknowledged",
        "resent",
        "session-acknowledged",
    ]


def test_of_what_was_sent_before_a_restart_an_order_ack_tells_the_numbers() -> None:
    net = a_chain()
    net.blocked.add(frozenset("bc"))
    for body in ("one", "two"):
        net.send("a", at("c"), body, transactional=True)
    net.pass_ms(2_000)
    net.kill("a")
    net.start("a")
    net.blocked.clear()
    net.pass_ms(10_000)
    found = facts(net, "a", Waypoint.ORDER_ACKNOWLEDGED)
    assert "message" not in found
    assert (found["number"], found["last_number"]) == (1, 2)
    assert found["sequence"] == facts(net, "a", Waypoint.ACCEPTED)["sequence"]


def test_only_so_many_messages_are_known_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waypoints, "REMEMBERED", 2)
    net = a_chain()
    for body in ("one", "two", "three", "four"):
        net.send("a", at("c"), body, transactional=True)
    net.pass_ms(1_000)
    assert [Waypoint.ORDER_ACKNOWLEDGED in path(net, "a", ordinal) for ordinal in range(1, 5)] == [
        *(True, True),
        *(False, False),
    ]
    found = facts(net, "a", Waypoint.ORDER_ACKNOWLEDGED)
    assert (found["number"], found["last_number"]) == (3, 4)


def test_a_message_that_looks_like_an_acknowledgment_is_a_message() -> None:
    net = a_chain()
    net.send("a", at("c"), "QM Ordering Ack".encode("utf-16-le"), transactional=True)
    net.pass_ms(1_000)
    assert path(net, "c") == ["arrived", "queued", "stored"]


def test_what_arrived_or_was_received_is_journaled_without_a_class() -> None:
    net = a_chain()
    net.send("a", at("c"), "hello", transactional=True, journal_positive=True)
    net.pass_ms(1_000)
    net.receive("c", "orders")
    net.pass_ms(1_000)
    assert path(net, "a")[-3:] == ["final-acknowledged", "journaled", "stored"]
    assert facts(net, "a", Waypoint.JOURNALED)["queue"] == "system$;journal"


def test_administration_acknowledgments_are_messages_and_order_acks_are_none() -> None:
    net = a_chain()
    net.nodes["a"].queues = (queue("admin", 20, transactional=False),)
    net.start("a")
    net.send("a", at("c"), "hello", transactional=True, acknowledgments=1, admin_queue=at("a", 20).name)
    net.pass_ms(2_000)
    started = {note.facts["message"] for note in net.nodes["c"].notes if note.name == Waypoint.ACCEPTED}
    assert len(started) == 1
    [name] = started
    assert [n.name for n in net.nodes["a"].notes if n.facts.get("message") == name] == [
        "arrived",
        "queued",
        "stored",
    ]


def test_without_the_setting_there_are_no_waypoints() -> None:
    net = chain("a", "b", "c", queues=[ORDERS])
    net.send("a", at("c"), "hello", transactional=True)
    net.pass_ms(1_000)
    names = {name for node in net.nodes.values() for name in node.note_names()}
    assert "session-open" in names
    assert not names & set(Waypoint)


# Those that belong to a trace

TRACE = Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "shop=1")


def followed(packet: bytes) -> Trace | None:
    return TRACE if b"follow me" in packet else None


def a_followed_chain(*, waypoints: bool) -> Net:
    """Return a net that four messages have crossed from end to end: of each kind, one that is followed, and one that is
    not.
    """
    net = chain("a", "b", "c", queues=[ORDERS, NOTES], settings=Settings(waypoints=waypoints))
    for node in net.nodes.values():
        node.follow = followed
    net.start()
    for body in ("follow me", "let me be"):
        net.send("a", at("c"), body, transactional=True, final_ack=True)
        net.send("a", at("c", 17), body)
    net.pass_ms(1_000)
    for name in ("orders", "notes", "orders", "notes"):
        net.receive("c", name)
    net.pass_ms(1_000)
    return net


def steps(net: Net, node: str, ordinal: int) -> list[tuple[str, Trace | None]]:
    name = message_name(guid_of("a"), ordinal)
    return [(note.name, note.trace) for note in net.nodes[node].notes if note.facts.get("message") == name]


def test_each_step_of_a_message_that_is_followed_says_its_trace() -> None:
    net = a_followed_chain(waypoints=False)
    sent = ["accepted", "stored", "sent", "session-acknowledged", "order-acknowledged", "final-acknowledged"]
    assert steps(net, "a", 1) == [(step, TRACE) for step in sent]
    assert steps(net, "a", 2) == [(step, TRACE) for step in ("accepted", "sent", "session-acknowledged")]
    assert steps(net, "c", 1) == [
        (step, TRACE) for step in ("arrived", "queued", "stored", "delivered", "committed")
    ]


def test_of_those_that_nobody_follows_there_is_no_note() -> None:
    net = a_followed_chain(waypoints=False)
    waypoints = [note for node in net.nodes.values() for note in node.notes if note.name in set(Waypoint)]
    assert {note.facts["message"] for note in waypoints} == {
        message_name(guid_of("a"), ordinal) for ordinal in (1, 2)
    }


def test_with_the_setting_the_others_have_notes_as_well_without_a_trace() -> None:
    net = a_followed_chain(waypoints=True)
    assert steps(net, "a", 1)[-1] == ("final-acknowledged", TRACE)
    others = steps(net, "a", 3)
    assert [step for step, _ in others] == [step for step, _ in steps(net, "a", 1)]
    assert {trace for _, trace in others} == {None}


def test_what_never_has_a_final_ack_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waypoints, "REMEMBERED", 2)
    net = chain("a", "b", "c", queues=[ORDERS])
    net.nodes["a"].follow = followed
    net.start("a")
    for _ in range(3):
        net.send("a", at("c"), "follow me", transactional=True, final_ack=True)
    net.pass_ms(1_000)
    for _ in range(3):
        net.receive("c", "orders")
    net.pass_ms(1_000)
    told = [note.facts["message"] for note in net.nodes["a"].notes if note.name == "final-acknowledged"]
    assert told == [message_name(guid_of("a"), ordinal) for ordinal in (2, 3)]


def test_of_what_was_sent_before_a_restart_and_is_followed_nothing_is_guessed() -> None:
    net = chain("a", "b", "c", queues=[ORDERS])
    net.nodes["a"].follow = followed
    net.start("a")
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "follow me", transactional=True)
    net.pass_ms(2_000)
    net.kill("a")
    net.start("a")
    net.blocked.clear()
    net.pass_ms(10_000)
    assert Waypoint.ORDER_ACKNOWLEDGED not in net.nodes["a"].note_names()


# The table of what follows what


def test_each_waypoint_has_a_meaning_and_a_place_in_the_table() -> None:
    reached = {waypoint for followers in NEXT_WAYPOINTS.values() for waypoint in followers}
    assert all(waypoint.meaning for waypoint in Waypoint)
    assert set(NEXT_WAYPOINTS) | reached | DROPS == set(Waypoint) - {Waypoint.STORED, Waypoint.NOT_KEPT}


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ("accepted stored sent session-acknowledged order-acknowledged", []),
        ("arrived queued stored delivered arrived duplicate-dropped committed", []),
        ("stored sent", [0, 1]),
        ("accepted session-acknowledged", [1]),
        ("arrived queued stored committed", [3]),
        ("arrived arrived queued", [1]),
        ("duplicate-dropped", [0]),
        ("arrived stored", [1]),
        ("arrived queued delivered committed sent", [4]),
        ("", []),
    ],
)
def test_a_line_that_is_missing_is_missed(names: str, missing: list[int]) -> None:
    assert missing_before(Waypoint(name) for name in names.split()) == missing


def test_a_class_goes_by_its_name_if_it_has_one() -> None:
    assert class_name(MessageClass.NACK_Q_PURGED) == "NACK_Q_PURGED"
    assert class_name(0x8123) == "0x8123"
