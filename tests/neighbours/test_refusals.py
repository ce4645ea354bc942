"""A message that a neighbour refuses is identified by trial and set aside; it does not hold up anything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.base.configuration import Settings
from mqproto.manager.whereabouts import Spot
from mqproto.neighbours.trial import CLOSINGS, REFUSALS, Trial
from mqproto.queues.localqueue import SystemQueue
from mqproto.session import InFlight, acknowledgment
from mqproto.session.data import SessionData
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.turn.effects import QueueKind, Writes
from mqproto.wire import MessageClass, SessionHeader, decode_message, encode_packet
from mqproto.wire.glance import identifier_of
from tests.examples import a_transactional_message, a_user_message
from tests.pair import Net, at, chain, queue

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
SETTINGS = Settings(try_connect_interval_ms=500)
DEADXACT, DEADLETTER, JOURNAL = (
    SystemQueue.DEADXACT.value,
    SystemQueue.DEADLETTER.value,
    SystemQueue.JOURNAL.value,
)


def a_net(*names: str, settings: Settings = SETTINGS) -> Net:
    return chain(*names, queues=[ORDERS, NOTES], settings=settings)


def two_ways() -> Net:
    """Return a net with two ways from `a` to `c`: through `b`, and through `d` if `b` cannot be reached."""
    net = Net()
    for name in "abdc":
        net.add(name, ORDERS, NOTES, settings=replace(SETTINGS, window_size=8))
    for name in "abd":
        net.route(name, "c", *{"a": "bd", "b": "c", "d": "c"}[name])
    net.route("c", "a", "b", "d")
    net.route("b", "a", "a")
    net.route("d", "a", "a")
    net.start()
    return net


def refuse(net: Net, name: str, bad: Callable[[bytes], bool]) -> list[int]:
    """Make a node close each session on which a bad chunk arrives; return a list that collects the sizes of these
    chunks.
    """
    closings: list[int] = []

    def watch(sender: str, receiver: str, chunk: bytes) -> None:
        if receiver == name and bad(chunk):
            closings.append(len(chunk))
            net.cut(sender, receiver)

    net.watch = watch
    return closings


def letters(net: Net, name: str, kept_in: str) -> list[tuple[bytes, int]]:
    """Return the body and class of each message in a dead-letter queue."""
    packets = [decode_message(kept.packet) for kept in net.nodes[name].up.peek(kept_in, 100)]
    return [(message.properties.message_body, message.properties.message_class) for message in packets]


def noted(net: Net, name: str, what: str) -> list[int]:
    """Return the MessageIDs in all notes that a node has made under a name."""
    return [int(note.facts["message_id"]) for note in net.nodes[name].notes if note.name == what]


@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_that_the_neighbour_refuses_is_set_aside_and_those_behind_it_arrive(
    recoverable: bool,
) -> None:
    net = a_net("a", "c")
    closings = refuse(net, "c", lambda chunk: b"bad" in chunk)
    ids = [net.send("a", at("c", 17), body, recoverable=recoverable) for body in ("one", "bad", "two", "six")]
    net.pass_ms(60_000)
    assert sorted(net.receive("c", "notes")) == [b"one", b"six", b"two"]
    assert letters(net, "a", DEADLETTER) == [(b"bad", MessageClass.NACK_DELETED)]
    assert noted(net, "a", "message-suspected") == noted(net, "a", "message-set-aside") == [ids[1]]
    assert len(closings) == 10, "three at first, three alone, one, and three that decide"
    assert not net.nodes["a"].store.waiting(QueueKind.OUTGOING)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_one_of_ours_in_a_sequence_is_a_dead_letter_and_the_next_one_bridges_the_gap() -> None:
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    for body in ("one", "bad", "two", "six"):
        net.send("a", at("c"), body, transactional=True)
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == [b"one", b"two", b"six"]
    assert letters(net, "a", DEADXACT) == [(b"bad", MessageClass.NACK_DELETED)]
    assert not net.nodes["a"].store.waiting(QueueKind.SEQUENCE)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_an_intermediate_sets_it_aside_and_tells_its_sender_whose_next_one_bridges_the_gap() -> None:
    net = a_net("a", "b", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    for body in ("one", "bad", "two", "six"):
        net.send("a", at("c"), body, transactional=True, journal_negative=True)
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == [b"one", b"two", b"six"]
    assert letters(net, "b", DEADXACT) == [(b"bad", MessageClass.NACK_HOP_COUNT_EXCEEDED)]
    assert letters(net, "a", DEADXACT) == [(b"bad", MessageClass.NACK_HOP_COUNT_EXCEEDED)]
    assert not net.nodes["a"].store.waiting(QueueKind.SEQUENCE)


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_what_arrived_by_another_way_is_no_dead_letter_at_its_sender_when_a_copy_is_set_aside() -> None:
    net = two_ways()
    net.blocked.add(frozenset("bc"))
    for body in ("one", "bad", "two", "six"):
        net.send("a", at("c"), body, transactional=True, journal_negative=True, journal_positive=True)
    net.run()
    net.blocked.add(frozenset("ab"))
    net.cut("a", "b")
    net.pass_ms(60_000)
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    net.blocked.clear()
    net.pass_ms(60_000)
    assert len(noted(net, "b", "message-set-aside")) == 1
    assert letters(net, "a", DEADXACT) == []
    assert net.receive("c", "orders") == [b"one", b"bad", b"two", b"six"]
    net.pass_ms(2_000)
    assert letters(net, "a", JOURNAL) == [(body, 0) for body in (b"one", b"bad", b"two", b"six")]


@pytest.mark.parametrize("transactional", [False, True])
def test_of_a_neighbour_that_refuses_all_nothing_is_set_aside_and_all_arrives_when_it_is_mended(
    transactional: bool,
) -> None:
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"body" in chunk)
    for number in range(40):
        place = at("c") if transactional else at("c", 17)
        net.send("a", place, f"body {number:02}", transactional=transactional, recoverable=True)
    net.pass_ms(60_000)
    assert noted(net, "a", "message-set-aside") == []
    refuse(net, "c", lambda chunk: False)
    net.pass_ms(60_000)
    found = net.receive("c", "orders" if transactional else "notes")
    assert sorted(found) == [f"body {number:02}".encode() for number in range(40)]


def test_once_a_neighbour_that_was_full_for_long_takes_others_the_next_bad_one_is_found_as_fast_as_ever() -> (
    None
):
    net, found_after = a_net("a", "c"), list[int]()
    refuse(net, "c", lambda chunk: b"body" in chunk)
    good = [f"body {number:02}" for number in range(20)]
    for body in ("bad body 1", *good[:10], "bad body 2", *good[10:]):
        net.send("a", at("c", 17), body.ljust(20), recoverable=True)
    net.pass_ms(60_000)
    closings = refuse(net, "c", lambda chunk: b"bad" in chunk)
    while len(found_after) < 2:
        net.pass_ms(100)
        found_after += [len(closings)] * (len(letters(net, "a", DEADLETTER)) - len(found_after))
        assert len(closings) < 200
    assert found_after[0] > 50, "it was full for long"
    assert found_after[1] - found_after[0] <= 10, "three at first, three alone, one, and three that decide"


def entries(*message_ids: int) -> list[InFlight]:
    """Return messages with these identifiers, all in one queue."""
    queue = OutgoingQueue(1, "queue", SETTINGS)
    packets = [encode_packet(a_user_message(message_id=number)) for number in message_ids]
    return [InFlight(queue, queue.stored_row(place, packet), True) for place, packet in enumerate(packets)]


def is_found(trial: Trial, bad: InFlight, *, behind: InFlight, by_us: bool = False) -> bool:
    """Let the neighbour take another message, then refuse the bad one again and again; return whether it is found.

    The trial ends when the bad message is found, or when other messages may pass it.
    """
    trial.answered(0, [behind])
    while not trial.lets_pass(0):
        _, [suspect] = trial.ended(0, [bad], by_us=by_us)
        if suspect.is_found:
            return True
    return False


def test_a_copy_of_what_a_neighbour_has_taken_before_proves_nothing_as_it_needs_no_room() -> None:
    trial, [bad, good, copy, other] = Trial(), entries(1, 2, 2, 3)
    for _ in range(CLOSINGS + REFUSALS):
        trial.ended(0, [bad])
    assert [is_found(trial, bad, behind=entry) for entry in (good, copy, other)] == [False, False, True]


def test_what_others_prove_nothing_of_goes_again_when_many_have_passed_and_then_twice_as_many() -> None:
    """This message is in no sequence, while all others are in sequences."""
    trial, [bad, other] = Trial(), entries(1, 2)
    other.message = other.message._replace(packet=encode_packet(a_transactional_message()))
    for _ in range(CLOSINGS + REFUSALS):
        trial.ended(0, [bad])
    for count in (8, 16, 32):
        for _ in range(count):
            assert trial.lets_pass(0)
            trial.answered(0, [other])
        assert not trial.lets_pass(0)
        trial.ended(0, [bad])


def test_a_neighbour_that_was_full_and_has_taken_another_now_and_then_is_asked_once_more() -> None:
    """The neighbour has room for all messages once it has accepted PROOFS messages that are no less demanding than the
    suspect.
    """
    net = a_net("a", "c")
    closings = refuse(net, "c", lambda chunk: b"one" in chunk and len(closings) < 7)
    for body in ("one", "two", "six", "ten"):
        net.send("a", at("c", 17), body, recoverable=True)
    net.pass_ms(60_000)
    assert sorted(net.receive("c", "notes")) == [b"one", b"six", b"ten", b"two"]
    assert letters(net, "a", DEADLETTER) == []


def test_of_a_full_neighbour_that_makes_room_for_one_with_each_pause_nothing_is_set_aside() -> None:
    """When another message has just used up the neighbour's room, there is none left for the suspect."""
    net, room = a_net("a", "c"), [0]

    def is_refused(chunk: bytes) -> bool:
        bodies = chunk.count(b"body")
        if is_full := bodies > room[0]:
            room[0] = int(len(closings) + 1 >= CLOSINGS + REFUSALS)
        elif bodies:
            room[0] -= bodies
        return is_full

    closings = refuse(net, "c", is_refused)
    bodies = [f"body {number}" for number in range(6)]
    for body in bodies:
        net.send("a", at("c", 17), body, recoverable=True)
    net.pass_ms(60_000)
    assert noted(net, "a", "message-set-aside") == []
    assert sorted(net.receive("c", "notes")) == [body.encode() for body in bodies]


def test_a_session_that_ends_by_a_refusal_of_ours_is_no_proof_that_the_neighbour_refuses_what_was_out_on_it() -> (
    None
):
    """Both sides may have refused something.

    Our side lets other messages pass; otherwise the two sides would wait for each other forever.
    """
    trial, [bad, *others] = Trial(), entries(*range(1, 20))
    for _ in range(CLOSINGS + REFUSALS):
        trial.ended(0, [bad], by_us=True)
    assert trial.lets_pass(0)
    assert trial.ended(0, others[:1], by_us=True) == (others[:1], []), "nor that it refuses all"
    assert not any(is_found(trial, bad, behind=other, by_us=True) for other in others)
    trial, [bad, *others] = Trial(), entries(*range(1, 20))
    for _ in range(CLOSINGS + REFUSALS):
        trial.ended(0, [bad])
    by_us = [True, True, False, True, True, False, False]
    found = [
        is_found(trial, bad, behind=other, by_us=ours) for other, ours in zip(others, by_us, strict=False)
    ]
    assert found == [False] * 6 + [True], "one proof before the first that is sure, one before the second"


def test_what_a_neighbour_had_acknowledged_and_not_saved_when_it_died_it_did_not_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The neighbour is full until the message has been sent alone three times; then it has room for all other
    messages.
    """
    take_saved, net = acknowledgment.take_saved, a_net("a", "c")

    def but_for_one(data: SessionData, header: SessionHeader) -> bool:
        return any(b"one" in entry.packet for entry in data.unsaved) or take_saved(data, header)

    closings = refuse(net, "c", lambda chunk: b"one" in chunk and len(closings) < 6)
    for body in ("one", "two", "six"):
        net.send("a", at("c", 17), body, recoverable=True)
    with monkeypatch.context() as patched:
        patched.setattr(acknowledgment, "take_saved", but_for_one)
        net.pass_ms(20_000)
        assert (len(closings), len(net.nodes["c"].up.peek("notes", 9))) == (6, 2)
        net.kill("c")
        net.start("c")
        net.pass_ms(1_000)
    net.pass_ms(20_000)
    assert letters(net, "a", DEADLETTER) == []
    assert sorted(net.receive("c", "notes")) == [b"one", b"six", b"two"]


def test_one_that_is_larger_than_all_that_pass_is_not_set_aside_as_a_neighbour_may_lack_room_for_it() -> None:
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"large" in chunk)
    for body in ("one", "large" * 100, "two", "six"):
        net.send("a", at("c", 17), body, recoverable=True)
    net.pass_ms(60_000)
    assert sorted(net.receive("c", "notes")) == [b"one", b"six", b"two"]
    assert noted(net, "a", "message-set-aside") == []
    [status] = net.nodes["a"].up.status().outgoing
    assert (status.waiting, len(status.suspected)) == (1, 1)
    refuse(net, "c", lambda chunk: False)
    net.pass_ms(60_000)
    assert net.receive("c", "notes") == [b"large" * 100]


def test_at_each_moment_the_node_knows_where_each_message_is() -> None:
    """This includes messages that were on their way when the trial began, and now wait to be sent alone."""
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    left = {
        net.send("a", at("c", 17), body, recoverable=body == "kept")
        for body in ("bad", "one", "kept", "two", "six")
    }
    for _ in range(60):
        net.pass_ms(100)
        where = net.nodes["a"].up.whereabouts()
        stored = (where.stored(key, row.packet) for key, row in net.nodes["a"].store.messages.items())
        known = {identifier_of(one.packet)[1] for one in (*filter(None, stored), *where.unstored())}
        arrived = {identifier_of(one.packet)[1] for one in net.nodes["c"].up.peek("notes", 9)}
        assert known | arrived >= left


@pytest.mark.parametrize("kind", ["express", "recoverable", "transactional"])
def test_only_what_a_session_has_out_is_in_flight_and_what_waits_to_go_alone_is_to_be_sent(kind: str) -> None:
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    there = at("c") if kind == "transactional" else at("c", 17)
    for body in ("bad", "one", "bad too", "two", "six"):
        net.send("a", there, body, recoverable=kind == "recoverable", transactional=kind == "transactional")
    core, spots = net.nodes["a"].up, set[Spot]()
    for _ in range(300):
        net.pass_ms(50)
        where, sessions = core.whereabouts(), core.inspect().transports.sessions.values()
        stored = (where.stored(key, row.packet) for key, row in net.nodes["a"].store.messages.items())
        out = {identifier_of(entry.packet) for session in sessions for entry in session.lost()}
        for found in (*filter(None, stored), *where.unstored()):
            spots.add(found.spot)
            assert found.spot is not Spot.IN_FLIGHT or identifier_of(found.packet) in out
    assert Spot.UNSENT in spots


def test_a_suspect_is_not_tried_again_and_again_until_those_behind_it_are_sent_again() -> None:
    """Messages sent before the trial arrive with the resend; they would prove nothing if the session ended at once."""
    net = a_net("a", "c")
    closings = refuse(net, "c", lambda chunk: b"bad" in chunk)
    for body in ("bad", "one"):
        net.send("a", at("c"), body, transactional=True)
    net.pass_ms(10_000)
    net.send("a", at("c"), "two", transactional=True)
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == [b"one", b"two"]
    assert letters(net, "a", DEADXACT) == [(b"bad", MessageClass.NACK_DELETED)]
    assert len(closings) == 10, "three at first, three alone, one, and three that decide"


@pytest.mark.parametrize("count", [2, 3])
def test_those_side_by_side_are_found_though_one_alone_is_more_than_may_be_on_its_way(count: int) -> None:
    net = a_net("a", "c", settings=replace(SETTINGS, in_flight_bytes=300))
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    bad = [net.send("a", at("c", 17), "bad" * 200, recoverable=True) for _ in range(count)]
    for _ in range(12):
        net.send("a", at("c", 17), "sound" * 200, recoverable=True)
    net.pass_ms(200_000)
    assert sorted(noted(net, "a", "message-set-aside")) == bad
    assert net.receive("c", "notes") == [b"sound" * 200] * 12


@pytest.mark.parametrize(
    "settings",
    [replace(SETTINGS, window_size=1), replace(SETTINGS, in_flight_bytes=300)],
    ids=["window", "bytes in flight"],
)
def test_two_in_queues_that_take_turns_are_found_though_each_session_ends_with_another(
    settings: Settings,
) -> None:
    """Only one message is on its way at a time, so no message is unanswered in three sessions in a row."""
    net = a_net("a", "c", settings=settings)
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    net.send("a", at("c"), "bad", transactional=True)
    net.send("a", at("c", 17), "bad", recoverable=True)
    net.pass_ms(60_000)
    for number in range(10):
        net.send("a", at("c"), f"order {number}", transactional=True)
        net.send("a", at("c", 17), f"note {number}", recoverable=True)
        net.pass_ms(10_000)
    net.pass_ms(200_000)
    assert net.receive("c", "orders") == [b"order %d" % number for number in range(10)]
    assert sorted(net.receive("c", "notes")) == [b"note %d" % number for number in range(10)]
    assert len(noted(net, "a", "message-set-aside")) == 2


def test_new_messages_that_go_first_do_not_keep_the_one_that_is_refused_from_being_found() -> None:
    """Whenever a session ends, the new messages are lost together with the refused one, or they get through
    before it.
    """
    net = a_net("a", "c")
    closings = refuse(net, "c", lambda chunk: b"bad" in chunk)
    bad = net.send("a", at("c", 17), "bad", recoverable=True, priority=0)
    for _ in range(40):
        net.pass_ms(400)
        net.send("a", at("c", 17), "new", recoverable=True)
    assert noted(net, "a", "message-set-aside") == [bad]
    assert len(closings) == 10
    net.pass_ms(10_000)
    assert net.receive("c", "notes") == [b"new"] * 40


def test_one_that_nobody_can_read_is_named_and_stays_on_disk_out_of_the_way() -> None:
    """The message was damaged while it waited."""
    net = a_net("a", "c")
    net.kill("c")
    ids = [net.send("a", at("c", 17), body, recoverable=True) for body in ("one", "bad", "two", "six")]
    net.run()
    net.kill("a")
    store = net.nodes["a"].store
    rows = store.messages
    [bad] = [row for row in rows.values() if row.message_id == ids[1]]
    spoilt = bad._replace(key=max(rows) + 1, packet=bytes([bad.packet[0] ^ 0xFF]) + bad.packet[1:])
    store.commit(Writes(messages=[spoilt], removals=[(bad.key, bad.key)]))
    net.start("a")
    net.start("c")
    for _ in range(3):
        net.pass_ms(10_000)
        net.send("a", at("c", 17), "new", recoverable=True)
    net.pass_ms(60_000)
    assert sorted(net.receive("c", "notes")) == [b"new", b"new", b"new", b"one", b"six", b"two"]
    assert noted(net, "a", "message-unreadable") == [ids[1]]
    assert store.waiting(QueueKind.OUTGOING) == 1


@pytest.mark.parametrize("transactional", [False, True])
def test_a_suspect_can_be_purged(transactional: bool) -> None:
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    net.send(
        "a", at("c") if transactional else at("c", 17), "bad", transactional=transactional, recoverable=True
    )
    net.pass_ms(8_000)
    [status] = net.nodes["a"].up.status().outgoing
    assert len(status.suspected) == 1
    net.nodes["a"].up.purge(status.name)
    net.pass_ms(60_000)
    [status] = net.nodes["a"].up.status().outgoing
    assert (status.waiting, status.suspected) == (0, [])
    assert not net.nodes["a"].store.messages


@pytest.mark.parametrize("refuses_all", [False, True])
def test_a_suspect_that_was_purged_is_not_set_aside_and_does_not_come_back(refuses_all: bool) -> None:
    """Afterward, either another message passes, which would prove the suspicion, or another one is refused, too, and
    the trial starts over.
    """
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    net.send("a", at("c", 17), "bad", recoverable=True)
    net.pass_ms(8_000)
    net.send("a", at("c", 17), "one", recoverable=True)
    net.pass_ms(2_000)
    [status] = net.nodes["a"].up.status().outgoing
    assert len(status.suspected) == 1
    net.nodes["a"].up.purge(status.name)
    refuse(net, "c", lambda chunk: refuses_all and b"two" in chunk)
    net.send("a", at("c", 17), "two", recoverable=True)
    net.pass_ms(2_000)
    refuse(net, "c", lambda chunk: False)
    net.pass_ms(60_000)
    assert net.receive("c", "notes") == [b"one", b"two"]
    [status] = net.nodes["a"].up.status().outgoing
    assert (status.waiting, noted(net, "a", "message-set-aside")) == (0, [])


def test_a_trial_begins_anew_after_a_restart() -> None:
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    for body in ("bad", "one", "two", "six"):
        net.send("a", at("c"), body, transactional=True)
    for _ in range(5):
        net.pass_ms(1_500)
        net.kill("a")
        net.start("a")
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == [b"one", b"two", b"six"]
    assert letters(net, "a", DEADXACT) == [(b"bad", MessageClass.NACK_DELETED)]


def test_one_that_the_next_sequence_waits_for_is_tried_until_the_neighbour_takes_it() -> None:
    """Messages sent after a restart cannot overtake the refused message.

    So the refused message is not held back to let them pass.
    """
    net = a_net("a", "c")
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    net.send("a", at("c"), "bad", transactional=True)
    net.pass_ms(8_000)
    net.kill("a")
    net.start("a")
    for _ in range(10):
        net.send("a", at("c"), "new", transactional=True)
        net.pass_ms(2_000)
    refuse(net, "c", lambda chunk: False)
    net.pass_ms(10_000)
    assert net.receive("c", "orders") == [b"bad", *[b"new"] * 10]


def test_what_one_next_hop_refuses_goes_over_another() -> None:
    net = two_ways()
    refuse(net, "b", lambda chunk: b"bad" in chunk)
    for body in ("one", "bad", "two", "six"):
        net.send("a", at("c"), body, transactional=True)
    net.pass_ms(60_000)
    assert net.receive("c", "orders") == [b"one", b"bad", b"two", b"six"]
    assert noted(net, "a", "message-set-aside") == []


@pytest.mark.long
@settings(max_examples=settings().max_examples // 2)
@given(
    bad=st.sets(st.integers(0, 13), max_size=4),
    transactional=st.booleans(),
    names=st.sampled_from(["ac", "abc"]),
)
def test_exactly_those_that_are_refused_are_set_aside_and_all_others_arrive(
    bad: set[int], transactional: bool, names: str
) -> None:
    """Good messages follow from time to time: a bad message looks like a bad neighbour unless another message
    passes.
    """
    net = a_net(*names)
    refuse(net, "c", lambda chunk: b"bad" in chunk)
    place = at("c") if transactional else at("c", 17)
    bodies = [f"{'bad' if number in bad else 'good'} {number:02}".rjust(7) for number in range(60)]
    for number, body in enumerate(bodies):
        net.send("a", place, body, transactional=transactional, recoverable=True)
        if number > 14:
            net.pass_ms(10_000)
    good = [body.encode() for body in bodies if "good" in body]
    found = net.receive("c", "orders" if transactional else "notes")
    assert (found if transactional else sorted(found, key=lambda body: body[-2:])) == good
    aside = noted(net, names[-2], "message-set-aside")
    kept = letters(net, names[-2], DEADXACT if transactional else DEADLETTER)
    assert {body for body, _ in kept} == {body.encode() for body in bodies if "bad" in body}
    assert len(set(aside)) == len(aside) == len(kept) == len(bad)
