"""Failed messages are listed, then either tried again under the same id and in their order, or resolved."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.edge.custody import State
from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.logfile import LogFile
from mqproto.simulator.client import Client, DraftOptions, MessageId, ReceivedMessage, connect
from mqproto.simulator.client.envelope import Envelope, FailureNote
from mqproto.simulator.edges.history.history import DocumentHistory, open_history
from mqproto.simulator.edges.operators.desk import resolve, retry
from mqproto.simulator.edges.operators.failures import FailureFilter, note_of
from mqproto.simulator.edges.operators.reading import Unknown, failures_in
from mqproto.simulator.edges.options import CORRELATION, Policy, Retries
from mqproto.simulator.edges.trail import BEFORE, ENDS, LIFE, LIVES, Confirmation, Life, trail_of
from mqproto.simulator.edges.trigger.breaker import Breaker
from mqproto.simulator.edges.trigger.callee import Answer, Call
from mqproto.simulator.edges.trigger.detection import Detection
from mqproto.simulator.edges.trigger.judgment import TriggerEvent, TriggerJudge
from mqproto.simulator.edges.trigger.leadership import Leadership
from mqproto.simulator.edges.trigger.trigger import Trigger
from mqproto.simulator.topology import Topology, parse, places
from mqproto.simulator.topology.places import Place
from mqproto.turn.effects import PostedRow, Writes
from mqproto.wire import Guid, MessageIdentifier, encode_packet, guid_text, message_identifier, user_message
from tests.simulator.edges.operators.desks import Typed, fails, rejects
from tests.simulator.running import RUNNING, Log, running_with_client, until
from tests.simulator.typed import in_process

COUNT: Final = int(os.environ.get("MQPROTO_FAILED_MESSAGES", "600"))
GROUPS: Final = 5
NAME: Final = "its identifier"
GUID: Final = "963EBEB9-8A2F-504A-9728-78C61096BF80"
DESK: Final = """
[node.desk]
[node.desk.queue.orders]
transactional = true
[node.desk.queue.errors]
transactional = true
[node.desk.queue.notes]
transactional = true
"""
FOR_GOOD: Final = {0: "no-customer: there is none", 1: "no-stock: it is sold out"}


class Refuses:
    """A consumer that refuses each message for one of three reasons, until it is told to accept them."""

    def __init__(self) -> None:
        self.accepted: list[Call] = []
        self.has_changed_its_mind = False
        self._called = trio.Event()

    async def until(self, count: int) -> None:
        """Wait until `count` messages are accepted."""
        while len(self.accepted) < count:
            await self._called.wait()

    async def call(self, call: Call) -> Answer:
        number = int(call.body)
        if self.has_changed_its_mind:
            self.accepted.append(call)
            self._called.set()
            self._called = trio.Event()
            return Answer(Attempt.SUCCEEDED)
        if reason := FOR_GOOD.get(number % 3):
            return Answer(Attempt.FAILED_FOR_GOOD, reason)
        return Answer(Attempt.FAILED_FOR_NOW, "HTTP 500")


@pytest.fixture
def topology() -> Topology:
    return parse(DESK, "desk.toml").with_free_ports()


@pytest.fixture
async def desk(topology: Topology, tmp_path: Path) -> AsyncIterator[Client]:
    async with running_with_client(topology, "desk", tmp_path) as client:
        yield client


@pytest.fixture
async def history(desk: Client, tmp_path: Path) -> AsyncIterator[DocumentHistory]:
    async with open_history(places.history_url(tmp_path)) as history:
        yield history


@asynccontextmanager
async def trigger(
    topology: Topology, folder: Path, history: DocumentHistory, consumer: Refuses
) -> AsyncIterator[None]:
    policy = Policy(
        error_queue="errors", group_by=CORRELATION, parallel=GROUPS, retries=Retries(interval_s=0, attempts=1)
    )
    detection = Detection(r"desk\orders", "desk trigger", history)
    connected = partial(connect, topology, "desk", folder)
    runs = Trigger(connected, "orders", consumer, detection, policy, node_log(Log(), "desk trigger"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runs.run)
        yield
        runs.stop()


async def listed(typed: Typed, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await typed.run("failed", "list", "--json", *words))["failed"]
    return found


async def until_there_are(client: Client, count: int, queue: str) -> None:
    async def are_there() -> bool:
        return (await waiting(client))[queue] >= count

    await until(are_there)


async def waiting(client: Client) -> dict[str, int]:
    return {queue.name: queue.waiting for queue in (await client.queues()).local}


def an_order(number: int) -> Draft:
    """Return an order; half of the orders have an id from their producer."""
    extension = Envelope(producer_key=f"order-{number}").as_extension() if number % 2 else b""
    return Draft(
        body=str(number).encode(),
        label=f"number {number}",
        transactional=True,
        extension=extension,
        correlation_id=bytes([number % GROUPS + 1] * 20),
        body_type=8,
        application_tag=number,
        response_queue=r"desk\orders",
        sender_id="S-1-5-21-1-2-3-1001" if number % 4 else "",
    )


@pytest.mark.long
async def test_many_are_listed_by_reason_and_each_is_called_once_more_in_its_order_or_resolved(
    desk: Client, history: DocumentHistory, topology: Topology, tmp_path: Path
) -> None:
    typed, consumer = Typed(tmp_path, "desk.toml", DESK), Refuses()
    numbers = list(range(COUNT))
    async with trigger(topology, tmp_path, history, consumer):
        sent = await desk.send_many("orders", map(an_order, numbers))
        await until_there_are(desk, COUNT, "errors")
        by_number = dict(zip(numbers, map(str, sent), strict=True))
        there = await listed(typed)
        assert Counter(one["failure"] for one in there) == {
            "business error": 2 * COUNT // 3,
            "retrieval failure": COUNT // 3,
        }
        assert {one["message"] for one in there} == set(by_number.values())
        assert len(await listed(typed, "--reason", "NO-STOCK")) == COUNT // 3

        consumer.has_changed_its_mind = True
        text = await typed.run("failed", "retry", "--all", "--reason", "no-customer")
        assert text == f"{COUNT // 3} messages sent once more\n"
        some = [by_number[number] for number in numbers if number % 3 == 2]
        assert await typed.run("failed", "retry", *some) == f"{COUNT // 3} messages sent once more\n"
        await consumer.until(2 * COUNT // 3)
        text = await typed.run(
            "failed", "resolve", "--all", "--reason", "sold out", "--note", "called the shop"
        )
        assert text == f"{COUNT // 3} messages resolved\n"
        assert await listed(typed) == []
        assert (await waiting(desk))["errors"] == 0
    # Each was called once more, as it was, under the id that it had, and in order within its group.
    called: dict[bytes, list[int]] = {}
    for call in consumer.accepted:
        number = int(call.body)
        called.setdefault(call.correlation_id, []).append(number)
        assert call.key == (f"order-{number}" if number % 2 else by_number[number])
        order = an_order(number)
        for name in ("label", "correlation_id", "body_type", "application_tag", "sender_id"):
            assert getattr(call, name) == getattr(order, name)
        assert call.response_queue.endswith(r"\00000010")
    for in_order in called.values():
        for reason in (0, 2):
            of_one = [number for number in in_order if number % 3 == reason]
            assert of_one == sorted(of_one)
    assert sorted(number for in_order in called.values() for number in in_order) == [
        number for number in numbers if number % 3 != 1
    ]
    record = await history.look(r"trigger/desk\orders", "order-1")
    assert (record.entry, record.outcome) == (Entry.COMPLETED, b"resolved by an operator: called the shop")


@pytest.mark.parametrize("where", ["", "errors"])
async def test_dead_letters_are_on_the_same_desk(
    desk: Client, topology: Topology, tmp_path: Path, where: str
) -> None:
    """The dead letters are in the system's queue, or in one that their application chose, next to a trigger's
    copies.
    """
    typed = Typed(tmp_path, "desk.toml", DESK)
    sent = []
    wishes: DraftOptions = {"transactional": True, "journal_negative": True, "dead_letter_queue": where}
    for number in range(3):
        sent.append(str(await desk.send("orders", b"%d" % number, **wishes)))
        await rejects(desk)
    there = await listed(typed)
    assert [(one["message"], one["failure"], one["queue"]) for one in there] == [
        (one, "NACK_RECEIVE_REJECTED", r"desk\orders") for one in sent
    ]
    assert "1 message sent once more" in await typed.run("failed", "retry", sent[1])
    [message] = await desk.receive("orders")
    assert message.body == b"1"
    assert "1 message resolved" in await typed.run("failed", "resolve", sent[0])
    assert [one["message"] for one in await listed(typed)] == [sent[2]]
    shown = await typed.run("failed", "show", sent[2])
    assert shown.startswith(f"{sent[2]} for desk\\orders: NACK_RECEIVE_REJECTED, 20")
    assert "body: 2" in shown


UNANSWERED: Final = Answer(Attempt.FAILED_FOR_NOW, "no answer within 30 s", is_in_doubt=True)
REFUSED: Final = Answer(Attempt.FAILED_FOR_NOW, "HTTP 500")


class Says:
    """A consumer that gives the answers it was told to give, in turn."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = iter(answers)

    async def call(self, call: Call) -> Answer:
        return next(self._answers)


@pytest.mark.parametrize(
    ("answers", "is_in_doubt"),
    [
        ([], False),
        ([UNANSWERED], True),
        ([REFUSED], False),
        ([UNANSWERED, REFUSED], True),
        ([REFUSED, UNANSWERED, REFUSED], True),
    ],
    ids=["not called", "no answer", "500", "no answer, 500", "500, no answer, 500"],
)
async def test_a_dead_letter_is_in_doubt_if_one_of_its_calls_had_no_answer(
    desk: Client, tmp_path: Path, history_url: str, answers: list[Answer], is_in_doubt: bool
) -> None:
    """The dead letter keeps its attempts until an operator decides about it."""
    typed, options = Typed(tmp_path, "desk.toml", DESK), ("--history", history_url)
    named = Envelope(producer_key="order-1").as_extension()
    await desk.send("orders", b"1", transactional=True, journal_negative=True, extension=named)
    [message] = await desk.peek("orders")
    async with open_history(history_url) as history:
        detection, retries = Detection(r"desk\orders", "desk trigger", history), Retries(attempts=9)
        for answer in answers:  # Whether by the same trigger or another: all that is known is in the history.
            judge = TriggerJudge(
                Says(answer),
                detection,
                Breaker(0, retries, 1),
                Leadership().confirm,
                retries.attempts,
                30,
                node_log(Log(), "desk trigger"),
            )
            assert (await judge.decide(message)).waypoint is TriggerEvent.ROLLED_BACK
        await desk.purge("orders")
        [letter] = await listed(typed, *options)
        said = ("in doubt", "no answer within 30 s; NACK_Q_PURGED") if is_in_doubt else ("NACK_Q_PURGED", "")
        assert (letter["failure"], letter["reason"], letter["attempts"]) == (*said, len(answers))
        assert await listed(typed, "--in-doubt", *options) == [letter] * is_in_doubt
        dry = await typed.run("failed", "retry", "--all", "--dry-run", *options)
        assert dry.splitlines()[-2].startswith("1 message failed")
        assert (await waiting(desk))["orders"] == 0
        if is_in_doubt:
            assert f"in doubt: {said[1]}, {len(answers)} attempt" in dry
        assert await typed.run("failed", "retry", "order-1", *options) == "1 message sent once more\n"
        assert (await waiting(desk))["orders"] == 1
        record = await history.look(r"trigger/desk\orders", "order-1")
        assert (record.attempts, record.is_in_doubt) == (0, False), "it is new to its trigger"


@pytest.mark.parametrize("answer", [REFUSED, UNANSWERED], ids=["500", "no answer"])
async def test_a_producer_learns_that_his_message_was_given_up_and_it_can_be_tried_again(
    desk: Client, tmp_path: Path, history_url: str, answer: Answer
) -> None:
    """A message that another program receives between two attempts was not given up."""
    named = Envelope(producer_key="order-1").as_extension()
    first = await desk.send("orders", b"1", transactional=True, extension=named)
    row = PostedRow(first.ordinal, r"desk\orders", "order-1", b"", b"", 1)
    received = msgspec.json.encode(Confirmation("ACK_RECEIVE", 7))
    async with open_history(history_url) as history:

        async def judged(said: Answer) -> tuple[TriggerEvent, State, int, str]:
            [message] = await desk.peek("orders")
            judge = TriggerJudge(
                Says(said),
                Detection(row.queue, "desk trigger", history),
                Breaker(0, Retries(), 1),
                Leadership().confirm,
                2,
                30,
                node_log(Log(), "desk trigger"),
            )
            ending = await judge.decide(ReceivedMessage(message.packet, -1))
            await history.finish(ENDS, str(message.id), Attempt.SUCCEEDED, received)
            trail = await trail_of(row, str(first), history.look, lambda name: None)
            return ending.waypoint, trail.state, trail.attempts, trail.reason

        assert (await judged(answer))[:3] == ("rolled-back", "received", 1)
        assert await judged(answer) == ("retrieval-failure", "failed", 2, answer.reason)
        await fails(desk, "desk")
        typed = Typed(tmp_path, "desk.toml", DESK)
        assert "1 message sent" in await typed.run("failed", "retry", "order-1", "--history", history_url)
        trail = await trail_of(row, str(first), history.look, lambda name: None)
        assert (trail.state, [life.state for life in trail.before]) == ("accepted", ["failed"])
        assert await judged(Answer(Attempt.SUCCEEDED)) == ("committed", "processed", 1, "")


async def test_a_producers_id_is_known_without_his_name_and_if_several_have_it_nothing_is_done(
    desk: Client, tmp_path: Path
) -> None:
    typed = Typed(tmp_path, "desk.toml", DESK)
    for key in ("shop/o0", "shop/o1", "till/o1", "o2", "shop/o2"):
        await desk.send(
            "orders", b"", transactional=True, extension=Envelope(producer_key=key).as_extension()
        )
        await fails(desk, "desk")
    assert "(shop/o0)" in await typed.run("failed", "show", "o0")
    told = await typed.run("failed", "resolve", "o1", status=2)
    assert told == "mqproto: several producers have the id o1: name shop/o1 or till/o1\n"
    assert await typed.run("failed", "resolve", "o0", "till/o1") == "2 messages resolved\n"
    assert await typed.run("failed", "resolve", "o1") == "1 message resolved\n"
    assert await typed.run("failed", "resolve", "o2") == "1 message resolved\n", "the whole of an id"
    assert "(shop/o2)" in await typed.run("failed", "show", "o2")


async def test_what_lies_in_an_error_queue_is_explained_by_its_producers_id(
    desk: Client, tmp_path: Path
) -> None:
    """No gateway has answered for the message, but a trigger's log has its id."""
    typed = Typed(tmp_path, "desk.toml", DESK)
    extension = Envelope(producer_key="shop/o0").as_extension()
    message = await desk.send("orders", b"", transactional=True, extension=extension)
    await fails(desk, "desk")
    line = {"timestamp": "2026-11-22T19:27:38.056227Z", "node": "desk trigger", "event": "attempted"}
    said = json.dumps({**line, "attempt": 1, "message": str(message), "key": "shop/o0"})
    (tmp_path / "desk-trigger.log").write_text(f"{said}\n", "utf-8")
    for name in ("shop/o0", "o0", str(message)):
        told = await typed.run("explain", name)
        assert told.startswith(rf"{message} ("), name
        assert r": in an error queue, desk\errors (business error" in told, name
        assert told.splitlines()[0] in (await typed.run("history", name)), name


@pytest.mark.parametrize(
    ("words", "attempts"),
    [(("failed", "retry", "order-1"), 0), (("return", "deadxact"), 1), (("return", "deadxact", NAME), 1)],
)
async def test_a_message_that_is_sent_once_more_has_another_life_whichever_command_sent_it(
    desk: Client, history: DocumentHistory, tmp_path: Path, words: tuple[str, ...], attempts: int
) -> None:
    """The history keeps the first life, and by the second the gateway that has a URL for the first finds that."""
    named = Envelope(producer_key="order-1").as_extension()
    await desk.send("orders", b"1", transactional=True, journal_negative=True, extension=named)
    [first] = await desk.peek("orders")
    await history.begin(r"trigger/desk\orders", "order-1", "desk trigger")
    await history.finish(r"trigger/desk\orders", "order-1", Attempt.FAILED_FOR_NOW, b"no answer")
    await rejects(desk)
    chosen = [str(first.id) if word == NAME else word for word in words]
    assert "1 message sent once more" in await Typed(tmp_path, "desk.toml", DESK).run(*chosen)
    [second] = await desk.peek("orders")
    life = LIFE.decode((await history.look(LIVES, str(first.id))).outcome)
    assert life == Life(State.IN_DOUBT, 1, "no answer; NACK_RECEIVE_REJECTED", str(second.id))
    assert (await history.look(BEFORE, str(second.id))).outcome == str(first.id).encode()
    assert (await history.look(r"trigger/desk\orders", "order-1")).attempts == attempts, "new by retry alone"


async def test_of_many_ids_that_a_gateway_has_taken_the_one_that_is_meant_is_explained(
    desk: Client, history: DocumentHistory, tmp_path: Path
) -> None:
    """A message is named by its own identifier, by that of a later life, or by its producer's id; the message is in no
    queue.
    """
    own = guid_text(desk.manager)
    rows = [PostedRow(number, r"desk\orders", f"shop/o{number}", b"", b"", 1) for number in (1, 11, 12)]
    RUNNING[tmp_path, "desk"]._store.commit(Writes(posted=rows))
    again = json.dumps({"state": "dead-letter", "again": rf"{own}\111"}).encode()
    await history.finish(LIVES, rf"{own}\11", Attempt.FAILED_FOR_GOOD, again)
    typed = Typed(tmp_path, "desk.toml", DESK)
    for names, message, key in (((rf"{own}\1", "shop/o1", "o1"), 1, 1), ((rf"{own}\111", "o11"), 11, 11)):
        for name in names:
            told = await typed.run("explain", name, status=1)
            assert told.startswith(rf"{own}\{message} (shop/o{key}) for desk\orders: unaccounted for"), name
            assert "o12" not in told


async def test_a_limit_is_for_the_first_of_them(desk: Client, tmp_path: Path) -> None:
    typed, sent = Typed(tmp_path, "desk.toml", DESK), []
    for number in range(3):
        sent.append(str(await desk.send("orders", b"%d" % number, transactional=True, journal_negative=True)))
    await desk.purge("orders")
    dry = json.loads(await typed.run("failed", "retry", "--all", "--limit", "2", "--dry-run", "--json"))
    assert [one["message"] for one in dry["failed"]] == sent[:2]
    assert "2 messages sent once more" in await typed.run("failed", "retry", "--all", "--limit", "2")
    assert [one["message"] for one in await listed(typed)] == sent[2:]


async def test_a_dead_letter_is_dated_by_when_it_failed(
    desk: Client, topology: Topology, tmp_path: Path, history_url: str
) -> None:
    """The history has the date from an acknowledgment; otherwise the message's lifetime or its node's log gives the
    date.
    """
    place, unknown = Place(topology, tmp_path), Unknown()
    await desk.send("orders", b"late", transactional=True, journal_negative=True, time_to_be_received_s=1)

    async def is_late() -> bool:
        return bool(await desk.peek("deadxact"))

    await until(is_late)
    sent = await desk.send("orders", b"purged", transactional=True, journal_negative=True)
    await desk.purge("orders")
    with LogFile(tmp_path / "desk.log") as log:
        node_log(log, "desk").info("dead-lettered", message=str(sent))
    line = json.loads((tmp_path / "desk.log").read_text("utf-8"))
    late, purged = failures_in(place, Unknown(), FailureFilter(), history_url)
    assert late[0].since == late[1].sent_time + timedelta(seconds=1)
    assert purged[0].since == datetime.fromisoformat(line["timestamp"])
    async with open_history(history_url) as history:
        confirmation = msgspec.json.encode(Confirmation("NACK_Q_PURGED", 2**31))
        await history.finish(ENDS, str(sent), Attempt.FAILED_FOR_GOOD, confirmation)
    since = datetime.fromtimestamp(2**31, UTC)
    [(failure, _)] = failures_in(place, unknown, FailureFilter(since=since), history_url)
    assert (failure.id, failure.since) == (str(sent), since)
    assert not unknown.not_whole


async def test_without_its_history_the_desk_says_what_it_does_not_know(
    desk: Client, topology: Topology, tmp_path: Path
) -> None:
    unknown = Unknown()
    await desk.send("orders", b"1", transactional=True, journal_negative=True)
    await desk.purge("orders")
    (tmp_path / "other.sqlite").write_bytes(b"no database at all" * 99)
    [_] = failures_in(
        Place(topology, tmp_path), unknown, FailureFilter(), f"sqlite:///{tmp_path}/other.sqlite"
    )
    assert [line.rpartition(": ")[2] for line in unknown.not_whole] == ["name another file"]


async def test_what_was_done_is_written_down_before_it_is_and_so_is_what_could_not_be(
    desk: Client, topology: Topology, tmp_path: Path
) -> None:
    place = Place(topology, tmp_path)
    for body in (b"one", b"two"):
        await desk.send("orders", body.ljust(1_000), transactional=True)
        await fails(desk, "desk")
    failures = [failure for failure, _ in failures_in(place, Unknown(), FailureFilter())]
    await desk.change("orders", quota_kb=1)
    with pytest.raises(UsageError):
        await retry(place, "", failures[:1])
    await desk.change("orders", quota_kb=0)
    await retry(place, "", failures[:1])
    await resolve(place, "", failures[1:], "called the shop")
    [again] = await desk.receive("orders")
    lines = [json.loads(line) for line in (tmp_path / "operators.log").read_text("utf-8").splitlines()]
    first, second = failures
    assert [(one["event"], one["message"], one.get("again", one.get("reason"))) for one in lines] == [
        ("retried", first.id, None),
        ("not-retried", first.id, None),
        ("retried", first.id, None),
        ("sent-again", first.id, str(again.id)),
        ("resolved", second.id, "called the shop"),
    ]


async def test_what_somebody_else_wrote_is_no_failure(desk: Client, tmp_path: Path) -> None:
    """Otherwise, a sender could have an operator send its message to any other queue, and have the message's id
    settled.
    """
    typed = Typed(tmp_path, "desk.toml", DESK)
    [other] = await desk.send_many("notes", [Draft(body=b"other", transactional=True)])
    named = message_identifier.encode(MessageIdentifier(other.manager, other.ordinal))
    for note, correlation_id, queue in (
        (FailureNote(failure="in doubt", message=str(other), queue=r"desk\orders"), bytes(20), "notes"),
        (FailureNote(failure="in doubt", message=str(other), queue=r"desk\notes"), named, "notes"),
        (FailureNote(failure="in doubt", message=str(other), queue=r"nowhere\orders"), named, "notes"),
    ):
        extension = msgspec.json.encode(note)
        draft = Draft(body=b"forged", transactional=True, extension=extension, correlation_id=correlation_id)
        await desk.send_many(queue, [draft])
    assert await listed(typed) == []
    assert "0 messages sent once more" in await typed.run("failed", "retry", "--all")
    assert (await waiting(desk))["notes"] == 4


def test_a_copy_is_a_trigger_s_by_where_it_comes_from(topology: Topology) -> None:
    """A copy is in a different queue from the one that it names, and comes from the node that has the named queue."""
    ours, theirs = topology.nodes["desk"].guid, Guid(bytes(15) + b"1")
    for source, where, is_copy in (
        (ours, "errors", True),
        (ours, "orders", False),
        (theirs, "errors", False),
    ):
        note = FailureNote(failure="in doubt", message=str(MessageId(ours, 7)), queue="orders")
        message = user_message(
            source=source,
            destination_manager=ours,
            destination=17,
            message_id=9,
            sent_time_s=0,
            body=b"",
            extension=msgspec.json.encode(note),
            correlation_id=message_identifier.encode(MessageIdentifier(ours, 7)),
        )
        found = note_of(topology, "desk", where, ReceivedMessage(encode_packet(message)))
        assert (found is not None) is is_copy
        assert found is None or found.queue == r"desk\orders"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("retry",),
            "say which: messages by their identifiers or ids, or --all, with --reason for some of them",
        ),
        (("retry", "one", "--all"), "say which"),
        (("show", "one"), "no message that failed is called one: `mqproto failed list --directory "),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    done = in_process("failed", *words, "-t", "three-node", "--directory", tmp_path)
    assert done.status == 2
    assert complaint in done.complaint


async def test_a_name_that_nobody_has_is_said_and_the_others_go(desk: Client, tmp_path: Path) -> None:
    sent = await desk.send("orders", b"one", transactional=True, journal_negative=True)
    await rejects(desk)
    typed = Typed(tmp_path, "desk.toml", DESK)
    said = await typed.run("failed", "resolve", str(sent), "another", status=1)
    assert "1 message resolved" in said
    assert "no message that failed is called another" in said
    assert "no message that failed" in await typed.run("failed", "retry", "another", status=2)


async def test_what_was_damaged_on_disk_has_failed_and_is_said_to_have(
    topology: Topology, tmp_path: Path
) -> None:
    typed = Typed(tmp_path, "desk.toml", DESK)
    async with running_with_client(topology, "desk", tmp_path) as client:
        sent = [await client.send("orders", b"%d" % number, transactional=True) for number in range(3)]
    with closing(sqlite3.connect(places.store_path(tmp_path, "desk"))) as db, db:
        db.execute("UPDATE message SET packet = zeroblob(8) WHERE message_id = ?", (sent[1].ordinal,))
    async with running_with_client(topology, "desk", tmp_path) as client:
        async with client.transaction("orders", limit=3) as taken:
            assert [message.body for message in taken] == [b"0", b"2"]
        [failure] = await listed(typed)
        assert failure["message"] not in map(str, sent), "whose number it is, nobody can read"
        assert failure["lies_in"] == r"desk\system$;deadletter"
        assert failure["failure"] == "NACK_Q_PURGED"
        assert failure["label"] == f"damaged on disk: message {sent[1].ordinal} of orders"
        explained = await typed.run("explain")
        assert "the store of desk had 1 message not as written" in explained
        assert "0 messages sent once more" in await typed.run("failed", "retry", "--all")
        assert await listed(typed) == [failure]
        assert (await waiting(client))["orders"] == 0
