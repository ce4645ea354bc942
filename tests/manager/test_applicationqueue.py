"""The queue that an application chooses for the dead letters of a message.  [MS-MQDMPR] 3.1.1.12"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mqproto.base.configuration import FIGURES
from mqproto.base.errors import UsageError
from mqproto.manager.arriving.transit import HOP_LIMIT
from mqproto.messages.drafts import LETTER_BYTES, headers_behind, path_name_in
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.session import Remote
from mqproto.turn.effects import QueueKind
from mqproto.wire import MessageClass, OrderAck, OrderAckBody, decode_message, encode_packet
from tests.observing import (
    DEADLETTER,
    DEADXACT,
    administration,
    arrive,
    bodies,
    brought,
    ended,
    kept,
    packets,
)
from tests.pair import Net, at, chain, guid_of, queue
from tests.ways import ADMIN, CASES, NOTES, ORDERS, TALKATIVE, Way, a_system, walk

FAILED_ORDERS = queue("failed-orders", 30)
FAILED_NOTES = queue("failed-notes", 31, transactional=False)
PUBLIC_LETTERS = QueueDeclaration("letters", 32, transactional=True, public=guid_of("letters"))
CHOSEN = {True: "failed-orders", False: "failed-notes"}
SYSTEMS = {True: DEADXACT, False: DEADLETTER}
LATE = MessageClass.NACK_REACH_QUEUE_TIMEOUT
ASKED: dict[str, Any] = {"transactional": True, "dead_letter_queue": "failed-orders"}
MINUTE: dict[str, Any] = {**ASKED, "time_to_reach_queue_s": 60}


def with_letters(net: Net, *more: QueueDeclaration) -> Net:
    """Return a net in which `a` has queues for dead letters."""
    net.nodes["a"].queues = (ADMIN, FAILED_ORDERS, FAILED_NOTES, PUBLIC_LETTERS, *more)
    net.start("a")
    return net


@pytest.fixture
def net() -> Net:
    """Return three nodes in a row; `a` resends soon, and may be in doubt about messages that expired.

    Messages expire at `a` even if they were sent.
    """
    net = chain("a", "b", "c", queues=[ORDERS, NOTES], settings=replace(TALKATIVE, expire_sent=FIGURES))
    return with_letters(net)


def cut_off(net: Net) -> None:
    """Change a net so that `a` no longer hears from anybody."""
    net.blocked.add(frozenset("ab"))
    net.cut("a", "b")


def restart(net: Net, name: str = "a") -> None:
    net.kill(name)
    net.start(name)
    net.run()


def notes(net: Net, name: str) -> list[dict[str, Any]]:
    return [note.facts for note in net.nodes["a"].notes if note.name == name]


def nothing_waits(net: Net) -> bool:
    kinds = (QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.ORDER, QueueKind.OUTGOING)
    return not any(net.nodes["a"].store.waiting(kind) for kind in kinds)


# However it ends


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize(("way", "transactional"), CASES)
def test_a_letter_of_ours_lies_in_the_queue_that_was_chosen(way: Way, transactional: bool) -> None:
    """A transactional message becomes a dead letter at its sender, wherever it fails.

    Any other message does so only if it fails at its sender.
    """
    net = with_letters(a_system())
    chosen = {"dead_letter_queue": CHOSEN[transactional], "recoverable": True}
    walk(net, way, transactional, [chosen, {"journal_negative": True, "recoverable": True}])
    has_failed = way.message_class != MessageClass.ACK_RECEIVE
    is_here = has_failed and (transactional or way.where == "a")
    assert ended(net, "a", CHOSEN[transactional]) == [(way.message_class, b"0")] * is_here
    assert bodies(net, "a", CHOSEN[not transactional]) == []
    assert ended(net, "a", SYSTEMS[transactional]) == [(way.message_class, b"1")] * is_here
    is_there = has_failed and not is_here and way.message_class != MessageClass.NACK_BAD_DST_Q
    if way.where != "a":
        assert bodies(net, way.where, DEADLETTER) == [b"0", b"1"] * is_there


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("end", ["expired", "purged", "rejected", "deleted"])
def test_the_destination_may_be_here(transactional: bool, end: str) -> None:
    net = with_letters(a_system(), ORDERS, NOTES)
    number, name = (16, "orders") if transactional else (17, "notes")
    chosen = {"dead_letter_queue": CHOSEN[transactional], "time_to_be_received_s": 60}
    net.send("a", at("a", number), "x", transactional=transactional, recoverable=True, **chosen)
    net.run()
    restart(net)
    core = net.nodes["a"].up
    if end == "purged":
        core.purge(name)
    elif end == "rejected":
        core.consume(1, name, 1, transactional=True)
        net.run()
        core.reject(1, name)
    elif end == "deleted":
        core.delete(name)
    net.pass_ms(61_000)
    assert bodies(net, "a", CHOSEN[transactional]) == [b"x"]
    assert bodies(net, "a", SYSTEMS[transactional]) == []


def test_an_express_message_that_is_late_here_lies_there_as_well(net: Net) -> None:
    cut_off(net)
    net.send("a", at("c", 17), "x", dead_letter_queue="failed-notes", time_to_reach_queue_s=60)
    net.pass_ms(62_000)
    assert ended(net, "a", "failed-notes") == [(LATE, b"x")]


@pytest.mark.parametrize("dies_committed", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
def test_the_choice_is_on_disk_with_the_message(net: Net, dies_at: int, dies_committed: bool) -> None:
    """`a` dies at each of its first batches, before or after its commit: then either one letter exists, or nothing was
    accepted.
    """
    node = net.nodes["a"]
    node.dies_at, node.dies_committed = node.batch_count + dies_at, dies_committed
    net.send("a", at("c", 99), "x", **ASKED)
    net.pass_ms(1_000)
    if node.core is None:
        net.start("a")
    net.pass_ms(20_000)
    accepted = dies_at > 1 or dies_committed
    assert ended(net, "a", "failed-orders") == [(MessageClass.NACK_BAD_DST_Q, b"x")] * accepted
    assert bodies(net, "a", DEADXACT) == []
    assert nothing_waits(net)


def test_what_goes_in_circles_is_a_letter_there_when_it_comes_back(net: Net) -> None:
    """Sessions do not carry the choice, so the copy that comes back does not have it: only the data kept here does."""
    net.route("b", "c", "a")
    net.start("b")
    net.send("a", at("c", 16), "lost", **ASKED)
    net.pass_ms(10_000)
    assert ended(net, "a", "failed-orders") == [(MessageClass.NACK_HOP_COUNT_EXCEEDED, b"lost")]
    assert bodies(net, "a", DEADXACT) == []
    assert len(notes(net, "message-came-back")) == 1
    assert net.nodes["a"].store.waiting(QueueKind.SEQUENCE) == 0


def test_what_has_arrived_by_another_way_does_not_end_when_a_copy_comes_back(net: Net) -> None:
    """The message's OrderAck arrives together with the copy, before the store has been asked."""
    copy = decode_message(_sent(net, 16))
    copy.user.hop_count = HOP_LIMIT
    assert copy.transaction is not None
    body = OrderAckBody(copy.transaction.tx_sequence_id, copy.transaction.tx_sequence_number, 0)
    ends: dict[str, Any] = {"source": guid_of("c"), "destination_manager": guid_of("a"), "destination": 4}
    for message in (copy, copy, OrderAck(**ends, message_id=900, sent_time_s=0, body=body).message()):
        remote = Remote("b", guid_of("b"), is_proven=True)
        brought(net, "a", encode_packet(message), remote)
    net.pass_ms(2_000)
    assert notes(net, "message-came-back") == []
    assert bodies(net, "a", DEADXACT) == []
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == 1


# What crosses a session


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("again", [False, True])
def test_a_message_leaves_as_it_would_without_a_choice(transactional: bool, again: bool) -> None:
    """This holds when the message is first sent, on another session, and when it is resent because no OrderAck
    arrived.
    """
    sent: list[list[bytes]] = []
    drafts: list[dict[str, Any]] = [{"dead_letter_queue": CHOSEN[transactional]}, {"journal_negative": True}]
    for draft in drafts:
        net = with_letters(chain("a", "b", "c", queues=[ORDERS, NOTES], settings=TALKATIVE))
        number = 16 if transactional else 17
        if again:
            net.blocked.add(frozenset("bc"))
        draft |= {"transactional": transactional, "recoverable": True, "label": "same", "extension": b"e"}
        net.send("a", at("c", number), "x" * 1_001, **draft)
        net.pass_ms(100)
        net.cut("a", "b")
        net.pass_ms(7_000 if again else 100)
        sent.append([packet for packet in packets(net, "a", "b") if b"x" * 1_001 in packet])
    assert sent[0] == sent[1]
    assert len(sent[0]) == (2 if again and transactional else 1)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_a_choice_that_comes_over_a_session_is_no_choice_of_ours(net: Net) -> None:
    """A neighbour brings a message that claims to be ours and names our queue."""
    for number in (16, 99):
        message = replace(
            decode_message(_sent(net, number)), trailing=headers_behind(FAILED_ORDERS.path_name)
        )
        message.user.queue_manager_address = guid_of("a")
        message.user.message_id += 100
        arrive(net, "a", message, peer="b")
    net.pass_ms(5_000)
    assert bodies(net, "a", "failed-orders") == []
    assert [path_name_in(one.trailing) for one in kept(net, "a", DEADXACT)] == [""] * 2


def _sent(net: Net, number: int) -> bytes:
    """Return the packet of a message that `a` has sent with JN."""
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c", number), "x", transactional=True, journal_negative=True)
    net.pass_ms(10)
    [*_, packet] = (packet for packet in packets(net, "a", "b") if b"x" in packet)
    message = decode_message(packet)
    message.session, message.base.session_header = None, False
    return encode_packet(message)


# Where the queue cannot have it


def leave_as_it_is(net: Net) -> None:
    """Do nothing to the queue."""


def delete_it(net: Net) -> None:
    net.nodes["a"].up.delete("failed-orders")


def make_it_another(net: Net) -> None:
    delete_it(net)
    net.run()
    net.nodes["a"].up.make(QueueDeclaration("failed-orders", 0))


def make_it_again(net: Net) -> None:
    delete_it(net)
    net.run()
    net.nodes["a"].up.make(QueueDeclaration("Failed-Orders", 0, transactional=True))


def fill_it(net: Net) -> None:
    net.nodes["a"].up.change(
        replace(net.nodes["a"].up.inspect().queues.named("failed-orders").declaration, quota_bytes=1)
    )


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (leave_as_it_is, ""),
        (delete_it, "there is no such queue any more"),
        (make_it_another, "there is no such queue any more"),
        (make_it_again, ""),
        (fill_it, "it is full"),
    ],
)
def test_where_the_queue_is_gone_or_full_the_system_has_the_letter_and_a_note_says_so(
    net: Net, act: Callable[[Net], None], reason: str
) -> None:
    cut_off(net)
    ordinal = net.send("a", at("c", 16), "x", **MINUTE)
    net.run()
    act(net)
    net.pass_ms(62_000)
    chosen = [] if act in (delete_it,) else bodies(net, "a", "failed-orders")
    assert (chosen, bodies(net, "a", DEADXACT)) == (([], [b"x"]) if reason else ([b"x"], []))
    told = {"queue": r".\private$\failed-orders", "message_id": ordinal, "reason": reason}
    assert notes(net, "letter-goes-to-the-systems-queue") == ([told] if reason else [])


# In doubt


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_letter_in_doubt_leaves_its_queue_when_the_message_was_received(net: Net, restarted: bool) -> None:
    net.send("a", at("c", 16), "x", **MINUTE)
    net.send("a", at("c", 16), "y", transactional=True, journal_negative=True, time_to_reach_queue_s=60)
    net.run()
    cut_off(net)
    net.pass_ms(61_000)
    assert ended(net, "a", "failed-orders") == [(LATE, b"x")]
    assert ended(net, "a", DEADXACT) == [(LATE, b"y")]
    if restarted:
        restart(net)
    assert len(net.nodes["a"].up.inspect().doubts) == net.nodes["a"].store.waiting(QueueKind.ORDER) == 2
    assert net.receive("c", "orders") == [b"x", b"y"]
    net.blocked.clear()
    net.pass_ms(10_000)
    assert bodies(net, "a", "failed-orders") == bodies(net, "a", DEADXACT) == []
    assert nothing_waits(net)


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("rejected", [False, True])
def test_after_its_order_ack_a_message_in_doubt_is_a_letter_there_once_more_if_it_is_rejected(
    net: Net, rejected: bool, restarted: bool
) -> None:
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c", 16), "x", **MINUTE)
    net.pass_ms(1_000)
    cut_off(net)
    net.blocked.discard(frozenset("bc"))
    net.pass_ms(61_000)
    assert bodies(net, "a", "failed-orders") == [b"x"]
    net.blocked.clear()
    net.pass_ms(10_000)
    assert bodies(net, "a", "failed-orders") == []
    assert net.nodes["a"].store.waiting(QueueKind.FINAL) == 1
    if restarted:
        restart(net)
    core = net.nodes["c"].up
    core.consume(1, "orders", 1, transactional=True)
    net.run()
    if rejected:
        core.reject(1, "orders")
    else:
        core.settle(1, "orders", net.now, commit=True)
    net.pass_ms(10_000)
    left = [(MessageClass.NACK_RECEIVE_REJECTED, b"x")] * rejected
    assert (ended(net, "a", "failed-orders"), bodies(net, "a", DEADXACT)) == (left, [])
    assert nothing_waits(net)


# Letters in their queue


@pytest.mark.spec("[MS-MQQB] 3.1.7.2")
@pytest.mark.parametrize("leaving", ["received", "rejected", "purged", "deleted", "stays"])
def test_a_letter_has_ended_and_nothing_follows_when_it_leaves(net: Net, leaving: str) -> None:
    """No acknowledgment is sent, no further copy is kept, and the letter waits for as long as necessary."""
    cut_off(net)
    asked: dict[str, Any] = {"acknowledgments": 0xF, "admin_queue": at("a", 5).name, "journal_positive": True}
    net.send("a", at("c", 16), "x", **ASKED, time_to_be_received_s=60, **asked)
    net.pass_ms(62_000)
    heard = administration(net, "a")
    assert bodies(net, "a", "failed-orders") == [b"x"]
    core = net.nodes["a"].up
    if leaving == "received":
        assert net.receive("a", "failed-orders") == [b"x"]
    elif leaving == "rejected":
        core.consume(1, "failed-orders", 1, transactional=True)
        net.run()
        core.reject(1, "failed-orders")
    elif leaving == "purged":
        core.purge("failed-orders")
    elif leaving == "deleted":
        core.delete("failed-orders")
    else:
        restart(net)
    net.pass_ms(600_000)
    assert administration(net, "a") == heard == [LATE]
    assert bodies(net, "a", DEADXACT) == bodies(net, "a", "system$;journal") == []
    if leaving != "deleted":
        assert bodies(net, "a", "failed-orders") == [b"x"] * (leaving == "stays")


def test_what_was_received_of_a_queue_with_a_journal_is_in_that(net: Net) -> None:
    net.nodes["a"].up.change(replace(FAILED_ORDERS, journal=True))
    cut_off(net)
    net.send("a", at("c", 16), "x", **MINUTE)
    net.pass_ms(62_000)
    assert net.receive("a", "failed-orders") == [b"x"]
    assert bodies(net, "a", "failed-orders;journal") == [b"x"]


# Sent back


@pytest.mark.parametrize("source", ["failed-orders", DEADXACT])
def test_a_letter_goes_back_with_the_same_choice(net: Net, source: str) -> None:
    cut_off(net)
    net.send("a", at("c", 16), "x", **MINUTE)
    net.run()
    if source == DEADXACT:
        fill_it(net)
    net.pass_ms(62_000)
    net.blocked.clear()
    if source == DEADXACT:
        net.nodes["a"].up.change(FAILED_ORDERS)
    assert net.nodes["a"].up.send_back(source, None, net.now) == 1
    net.run()
    assert bodies(net, "a", source) == []
    net.nodes["c"].up.consume(1, "orders", 1, transactional=True)
    net.pass_ms(1_000)
    net.nodes["c"].up.reject(1, "orders")
    net.pass_ms(10_000)
    assert ended(net, "a", "failed-orders") == [(MessageClass.NACK_RECEIVE_REJECTED, b"x")]


def test_without_its_queue_it_goes_back_as_if_none_had_been_chosen(net: Net) -> None:
    cut_off(net)
    net.send("a", at("c", 16), "x", **MINUTE)
    net.run()
    delete_it(net)
    net.pass_ms(62_000)
    net.blocked.clear()
    assert net.nodes["a"].up.send_back(DEADXACT, None, net.now) == 1
    net.pass_ms(1_000)
    assert net.receive("c", "orders") == [b"x"]


def test_of_an_applications_queue_letters_alone_go_back(net: Net) -> None:
    net.send("a", at("a", 30), "an order", transactional=True)
    with pytest.raises(UsageError, match="failed-orders is neither a dead-letter queue nor a journal"):
        net.nodes["a"].up.send_back("failed-orders", None, net.now)
    cut_off(net)
    net.send("a", at("c", 16), "x", **MINUTE)
    net.pass_ms(62_000)
    assert bodies(net, "a", "failed-orders") == [b"an order", b"x"]
    assert net.nodes["a"].up.send_back("failed-orders", None, net.now) == 1
    net.run()
    assert bodies(net, "a", "failed-orders") == [b"an order"]


# Refused when it is sent


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        ({"dead_letter_queue": "nowhere"}, "no queue nowhere here; there are: "),
        (
            {"dead_letter_queue": "n" * 1_000},
            "the name of a dead-letter queue has 1,000 characters; at most 124",
        ),
        (
            {"dead_letter_queue": "failed-orders"},
            "queue failed-orders is transactional, and its dead letters would be not transactional: choose another",
        ),
        (
            {"dead_letter_queue": "failed-notes", "transactional": True},
            "queue failed-notes is not transactional, and its dead letters would be transactional: choose another",
        ),
        (
            {"dead_letter_queue": "system$;deadletter"},
            r"system\$;deadletter belongs to the system: name a queue of",
        ),
        (
            {"dead_letter_queue": "orders;journal"},
            "orders;journal belongs to the system: name a queue of your own",
        ),
        ({"dead_letter_queue": "orders", "transactional": True}, "queue orders is where the message goes"),
        (
            {"dead_letter_queue": "failed-notes", "body": bytes(4 * 2**20 - 2_048 - 10)},
            r"\(body, name of a dead-letter queue\) are too many",
        ),
    ],
)
def test_a_queue_that_cannot_have_its_letters_is_refused_by_name(draft: dict[str, Any], reason: str) -> None:
    net = with_letters(a_system(), replace(ORDERS, journal=True))
    body = draft.pop("body", b"x")
    to = at("a", 16) if draft["dead_letter_queue"] == "orders" else at("c", 17)
    with pytest.raises(UsageError, match=reason) as refusal:
        net.send("a", to, body, **draft)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500
    net.run()
    assert not packets(net, "a", "b")


def test_the_longest_name_fits_beside_the_longest_body(net: Net) -> None:
    """The room that is reserved for the name suffices: a message of that size is accepted, and becomes a letter."""
    name = "n" * 124
    net.nodes["a"].up.make(QueueDeclaration(name, 0))
    net.run()
    assert len(headers_behind(QueueDeclaration(name, 0).path_name)) <= LETTER_BYTES
    body = bytes(4 * 2**20 - 2_048 - LETTER_BYTES)
    cut_off(net)
    net.send("a", at("c", 17), body, dead_letter_queue=name, recoverable=True, time_to_reach_queue_s=60)
    net.pass_ms(62_000)
    assert bodies(net, "a", name) == [body]


def test_a_public_queue_may_be_chosen_and_any_case_of_its_name(net: Net) -> None:
    net.send("a", at("c", 99), "x", transactional=True, dead_letter_queue="LETTERS")
    net.pass_ms(5_000)
    assert [path_name_in(one.trailing) for one in kept(net, "a", "letters")] == [".\\letters"]
