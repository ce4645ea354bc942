"""Whatever fails, a trigger calls its consumer once for each message, in order, when the consumer can be reached.

Tests cite "Transactions in OSB. Reliable Messaging" as reliable messaging, and "Summary of Duplicate Detection Process
for JMS Triggers" as duplicate detection, each with the heading.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from mqproto.base.errors import UsageError
from mqproto.bodies import Body, Tree, write_body
from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import Client, ReceivedMessage, connect
from mqproto.simulator.client.envelope import Envelope, FailureNote
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError, open_history
from mqproto.simulator.edges.options import Policy, Retries
from mqproto.simulator.edges.trigger.callee import (
    Answer,
    BusinessError,
    Call,
    Callee,
    HttpCallee,
    PythonCallee,
    endpoint,
)
from mqproto.simulator.edges.trigger.detection import Detection
from mqproto.simulator.edges.trigger.judgment import call_for
from mqproto.simulator.edges.trigger.resolver import PythonResolver, Resolver
from mqproto.simulator.edges.trigger.telling import HistoryTeller
from mqproto.simulator.edges.trigger.trigger import Trigger
from mqproto.simulator.topology import Topology, parse
from tests.simulator.consumers import DROP, ERROR, OK, HttpConsumer, Reply, Seen, business_error, listening
from tests.simulator.running import Log, NodeProcess, running_with_client

ORDERS = r"desk\orders"
ERRORS = r"desk\errors"
DOUBTS = r"desk\doubts"
TOPOLOGY = """
name = "desk"
[node.desk]
[node.desk.queue.orders]
transactional = true
[node.desk.queue.errors]
transactional = true
[node.desk.queue.doubts]
transactional = true
[node.desk.queue.notes]
"""
SOON = Retries(interval_s=0.01, limit_s=0.02, attempts=4)
POLICY = Policy(error_queue=ERRORS, in_doubt_queue=DOUBTS, retries=SOON)
WAYPOINTS = (
    "attempted",
    "committed",
    "rolled-back",
    "dead-lettered",
    "duplicate-dropped",
    "in-doubt",
    "retrieval-failure",
    "unsettled",
)


@pytest.fixture
def topology() -> Topology:
    return parse(TOPOLOGY, "desk.toml").with_free_ports()


@pytest.fixture
async def desk(topology: Topology, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of the node that has all queues."""
    async with running_with_client(topology, "desk", tmp_path) as client:
        yield client


@pytest.fixture
async def history(history_url: str) -> AsyncIterator[DocumentHistory]:
    async with open_history(history_url) as history:
        yield history


class Start:
    """Starts triggers; each call returns the trigger's log."""

    def __init__(self, topology: Topology, directory: Path, nursery: trio.Nursery) -> None:
        self._connect = partial(connect, topology, "desk", directory)
        self._nursery = nursery
        self.triggers: list[Trigger] = []

    def __call__(
        self,
        consumer: Callee,
        policy: Policy = POLICY,
        history: DocumentHistory | None = None,
        resolver: Resolver | None = None,
        *,
        detects: bool = True,
        queue: str = "orders",
        log: Log | None = None,
        patience_s: float = 10,
        hook: HistoryTeller | None = None,
    ) -> Log:
        log = log or Log()
        detection = Detection("orders", "trigger", history, resolver, enabled=detects)
        opened = partial(self._connect, patience_s=patience_s)
        trigger = Trigger(opened, queue, consumer, detection, policy, node_log(log, "trigger"), hook=hook)
        self.triggers.append(trigger)
        self._nursery.start_soon(trigger.run)
        return log

    async def stop(self) -> None:
        """Stop all triggers, and return when they have ended."""
        for trigger in self.triggers:
            trigger.stop()
        while self._nursery.child_tasks:
            await trio.lowlevel.checkpoint()


@pytest.fixture
async def start(topology: Topology, tmp_path: Path) -> AsyncIterator[Start]:
    async with trio.open_nursery() as nursery:
        start = Start(topology, tmp_path, nursery)
        yield start
        for trigger in start.triggers:
            trigger.stop()


@asynccontextmanager
async def called_over_http(consumer: HttpConsumer, error_field: str = "") -> AsyncIterator[HttpCallee]:
    async with listening(consumer), endpoint(consumer.url) as found:
        yield HttpCallee(found, error_field)


async def send(desk: Client, *bodies: bytes, **options: Any) -> list[str]:
    sent = await desk.send_many(ORDERS, [Draft(body=body, transactional=True, **options) for body in bodies])
    return [str(one) for one in sent]


async def taken_from(desk: Client, queue: str) -> list[ReceivedMessage]:
    return await desk.receive(queue, limit=500, timeout_s=0)


def story(log: Log) -> list[str]:
    """Return the waypoints in a log, in order of time."""
    lines = [line for word in WAYPOINTS for line in log.lines(word)]
    return [line["event"] for line in sorted(lines, key=lambda line: str(line["timestamp"]))]


class Says:
    """A consumer that gives the answers it was told to give, in turn, and then always succeeds."""

    def __init__(self, *answers: Answer) -> None:
        self.calls: list[Call] = []
        self._answers = list(answers)

    async def call(self, call: Call) -> Answer:
        self.calls.append(call)
        return self._answers.pop(0) if self._answers else Answer(Attempt.SUCCEEDED)


FOR_NOW = Answer(Attempt.FAILED_FOR_NOW, "HTTP 500")
FOR_GOOD = Answer(Attempt.FAILED_FOR_GOOD, "unknown-account: 17")


# Message Consumer Rules


async def test_after_200_and_no_business_error_the_message_is_discarded(desk: Client, start: Start) -> None:
    """Reliable messaging, Message Consumer Rules: the message is received, and can be discarded."""
    async with called_over_http(HttpConsumer()) as callee:
        log = start(callee)
        [sent] = await send(desk, b"one")
        line = await log.line("committed")
        assert (line["message"], line["queue"], line["attempt"]) == (sent, "orders", 1)
    assert story(log) == ["attempted", "committed"]
    for queue in ("orders", "errors", "doubts"):
        assert await taken_from(desk, queue) == []


class Watched(trio.abc.Instrument):
    """Counts how often the loop runs the task of a trigger itself, apart from those of its messages."""

    steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += task.name.endswith("Trigger.run")


@pytest.mark.parametrize("policy", [POLICY, replace(POLICY, group_by="correlation", parallel=8)])
async def test_while_messages_follow_each_other_the_task_that_watches_the_time_sleeps(
    desk: Client, start: Start, history: DocumentHistory, policy: Policy
) -> None:
    """Otherwise each step of a message costs a turn of the loop more."""
    log = start(Says(), policy, history)
    await send(desk, b"first")
    await log.line("committed")
    watched = Watched()
    trio.lowlevel.add_instrument(watched)
    await send(desk, *(b"%d" % number for number in range(50)))
    await log.at_least(51, "committed")
    trio.lowlevel.remove_instrument(watched)
    assert watched.steps == 0


@pytest.mark.parametrize(
    ("reply", "error_field"),
    [(business_error("unknown-account", "17"), ""), (Reply(200, b'{"fault": "unknown-account"}'), "fault")],
)
async def test_after_a_business_error_it_is_reported_and_discarded_and_never_redelivered(
    desk: Client, start: Start, reply: Reply, error_field: str
) -> None:
    """Reliable messaging, Message Consumer Rules: the message is invalid and will not be accepted, ever."""
    consumer = HttpConsumer(reply)
    async with called_over_http(consumer, error_field) as callee:
        log = start(callee)
        [sent, _] = await send(desk, b"bad", b"good", label="order")
        await log.line("committed")
    assert consumer.bodies == [b"bad", b"good"]
    assert story(log) == ["attempted", "dead-lettered", "attempted", "committed"]
    [copy] = await taken_from(desk, "errors")
    assert (copy.body, copy.label, str(copy.correlation)) == (b"bad", "order", sent)
    note = FailureNote.of(copy.extension)
    assert note is not None
    assert (note.failure, note.attempts, note.message, note.queue) == ("business error", 1, sent, "orders")
    assert note.reason.startswith("unknown-account")


@pytest.mark.parametrize("cue", [ERROR, Reply(503), DROP, Reply(200, b"half", cut=2), Reply(404, b"<html>")])
async def test_after_a_system_error_it_is_redelivered(desk: Client, start: Start, cue: Reply | None) -> None:
    """Reliable messaging, Message Consumer Rules: the message may or may not have been received; it must be
    redelivered.
    """
    consumer = HttpConsumer(cue)
    async with called_over_http(consumer) as callee:
        log = start(callee, detects=False)
        await send(desk, b"one")
        await log.line("committed")
    assert consumer.bodies == [b"one", b"one"]
    assert [seen.headers["mq-delivery-count"] for seen in consumer.seen] == ["1", "2"]
    assert story(log) == ["attempted", "rolled-back", "attempted", "committed"]


async def test_after_a_time_out_it_is_redelivered(desk: Client, start: Start) -> None:
    """Reliable messaging, Message Consumer Rules: a time-out gives no information."""
    consumer = HttpConsumer()

    async def late_at_first(seen: Seen) -> Reply:
        if len(consumer.seen) == 1:
            await trio.sleep_forever()
        return OK

    consumer.answering = late_at_first
    async with called_over_http(consumer) as callee:
        log = start(callee, Policy(timeout_s=0.2, retries=SOON), detects=False)
        await send(desk, b"one")
        line = await log.line("rolled-back")
        assert line["reason"] == "no answer within 0.2 s"
        await log.line("committed")
    assert consumer.bodies == [b"one", b"one"]


async def test_a_consumer_that_is_not_there_is_called_when_it_is(desk: Client, start: Start) -> None:
    """Reliable messaging, OSB Rules: a recoverable error must not prevent the delivery."""
    consumer = HttpConsumer()
    async with listening(consumer):
        pass
    async with endpoint(consumer.url) as gone:
        log = start(HttpCallee(gone), detects=False)
        await send(desk, b"one")
        line = await log.line("rolled-back")
        assert "cannot be connected to" in line["reason"]


# Response in the same transaction, typical mistakes


async def test_the_response_is_awaited_in_the_transaction_of_the_read(desk: Client, start: Start) -> None:
    """Reliable messaging, "Why Response in the Same Trasaction?": the message stays until it is answered."""
    asked, may_answer = trio.Event(), trio.Event()

    async def slow(call: Call) -> None:
        asked.set()
        await may_answer.wait()

    log = start(PythonCallee(slow))
    await send(desk, b"one")
    await asked.wait()
    [queue] = [queue for queue in (await desk.queues()).local if queue.name == "orders"]
    assert (queue.waiting, queue.unsettled) == (1, 1)
    assert log.lines("committed") == []
    may_answer.set()
    await log.line("committed")


async def test_one_delivery_is_one_call(desk: Client, start: Start) -> None:
    """Reliable messaging, Do NOT Use Biz Service Retries: a further attempt is a further delivery, and is counted."""
    consumer = HttpConsumer(ERROR, DROP, ERROR)
    async with called_over_http(consumer) as callee:
        log = start(callee, detects=False)
        await send(desk, b"one")
        await log.line("committed")
    assert [seen.headers["mq-delivery-count"] for seen in consumer.seen] == ["1", "2", "3", "4"]


async def test_a_message_that_fails_keeps_its_place(desk: Client, start: Start) -> None:
    """Reliable messaging, Do NOT Re-Insert into Queue in Code: the first message becomes neither the last nor a
    different one.
    """
    says = Says(FOR_NOW, FOR_NOW)
    log = start(says, detects=False)
    sent = await send(desk, b"one", b"two", b"three")
    await log.at_least(3, "committed")
    assert [call.body for call in says.calls] == [b"one"] * 3 + [b"two", b"three"]
    assert [line["message"] for line in log.lines("committed")] == sent


async def test_while_a_message_waits_for_its_next_attempt_nobody_holds_it(desk: Client, start: Start) -> None:
    """Reliable messaging, Do NOT Use Biz Service Retries: retries hold no thread, and the message stays in its
    queue.
    """
    says = Says(FOR_NOW)
    log = start(says, Policy(retries=Retries(interval_s=3_600, limit_s=3_600)), detects=False)
    await send(desk, b"one")
    line = await log.line("rolled-back")
    assert line["next_try_s"] == 3_600
    [message] = await taken_from(desk, "orders")
    assert (message.body, message.delivery_count) == (b"one", 2)


async def test_the_log_has_one_line_for_each_waypoint_and_no_traceback(desk: Client, start: Start) -> None:
    """Reliable messaging, Keep the Logs Clean: the waypoints of each message id, and nothing superfluous."""

    def refuses(call: Call) -> None:
        raise ConnectionRefusedError("the database is away")

    log = start(PythonCallee(refuses), detects=False)
    [sent] = await send(desk, b"one")
    await log.line("dead-lettered")
    assert story(log) == ["attempted", "rolled-back"] * 3 + [
        "attempted",
        "retrieval-failure",
        "dead-lettered",
    ]
    assert {line["message"] for word in WAYPOINTS for line in log.lines(word)} == {sent}
    assert "Traceback" not in log.getvalue()
    assert log.lines("rolled-back")[0]["reason"] == "ConnectionRefusedError: the database is away"


# The steps, and the notes on them


async def test_step_1_a_second_delivery_is_in_doubt_without_history_and_resolver(
    desk: Client, start: Start
) -> None:
    """Duplicate detection, step 1: the second delivery is acknowledged, and not executed."""
    says = Says(FOR_NOW)
    log = start(says)
    [sent] = await send(desk, b"one")
    await log.line("in-doubt")
    assert len(says.calls) == 1
    assert story(log) == ["attempted", "rolled-back", "in-doubt"]
    [copy] = await taken_from(desk, "doubts")
    note = FailureNote.of(copy.extension)
    assert note is not None
    assert (copy.body, note.failure, note.message) == (b"one", "in doubt", sent)
    assert await taken_from(desk, "orders") == []


@pytest.mark.parametrize(
    ("status", "calls", "waypoints"),
    [
        ("NEW", 2, ["attempted", "committed"]),
        ("DUPLICATE", 1, ["duplicate-dropped"]),
        ("IN_DOUBT", 1, ["in-doubt"]),
        ("PERHAPS", 1, ["in-doubt"]),
    ],
)
async def test_step_3_the_resolver_decides(
    desk: Client, start: Start, status: str, calls: int, waypoints: list[str]
) -> None:
    """Duplicate detection, step 3: NEW is executed; DUPLICATE and IN_DOUBT are acknowledged without execution."""
    says = Says(FOR_NOW)
    log = start(says, resolver=PythonResolver(lambda call: status))
    await send(desk, b"one")
    await log.line(waypoints[-1])
    assert len(says.calls) == calls
    assert story(log) == ["attempted", "rolled-back", *waypoints]
    assert await taken_from(desk, "orders") == []


async def test_a_resolver_that_fails_leaves_the_message_in_doubt_and_one_that_is_away_is_asked_again(
    desk: Client, start: Start
) -> None:
    """Duplicate detection, step 3: what becomes of a message if the resolver raises an error is our interpretation."""
    failures: list[Exception] = [TimeoutError("the database is away"), ValueError("no such order")]

    def fails(call: Call) -> str:
        raise failures.pop(0)

    log = start(Says(FOR_NOW), resolver=PythonResolver(fails))
    await send(desk, b"one")
    line = await log.line("in-doubt")
    assert line["reason"] == "the resolver failed: ValueError: no such order"
    assert story(log) == ["attempted", "rolled-back", "rolled-back", "in-doubt"]
    assert log.lines("rolled-back")[-1]["reason"] == "the resolver: TimeoutError: the database is away"


async def test_notes_after_a_transient_error_a_message_is_new_with_document_history(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    """Duplicate detection, first note."""
    says = Says(FOR_NOW)
    log = start(says, history=history)
    [sent] = await send(desk, b"one")
    await log.line("committed")
    assert [call.delivery_count for call in says.calls] == [1, 2]
    assert (await history.look("trigger/orders", sent)).entry is Entry.COMPLETED


async def test_notes_after_a_fatal_error_a_message_is_rejected_and_reported_with_document_history(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    """Duplicate detection, second note: this happens the next time the message is received, here under its producer's
    id.
    """
    says = Says(FOR_GOOD)
    log = start(says, history=history)
    extension = Envelope(producer_key="order-17").as_extension()
    await send(desk, b"one", b"again", extension=extension)
    await log.at_least(2, "dead-lettered")
    assert [call.body for call in says.calls] == [b"one"]
    assert story(log) == ["attempted", "dead-lettered", "retrieval-failure", "dead-lettered"]
    first, second = await taken_from(desk, "errors")
    note = FailureNote.of(second.extension)
    assert note is not None
    assert (note.failure, note.reason) == ("retrieval failure", "unknown-account: 17")
    assert Envelope.of(first.extension).producer_key == "order-17"


async def test_notes_without_history_a_failure_is_reported_at_the_maximum_delivery_count_alone(
    desk: Client, start: Start
) -> None:
    """Duplicate detection, third note; reliable messaging, Error Handling: interval, maximum, error queue."""
    says = Says(*[FOR_NOW] * 4)
    log = start(says, resolver=PythonResolver(lambda call: "NEW"))
    await send(desk, b"one")
    await log.line("dead-lettered")
    assert len(says.calls) == SOON.attempts
    assert len(log.lines("retrieval-failure")) == 1
    assert story(log)[-2:] == ["retrieval-failure", "dead-lettered"]
    [copy] = await taken_from(desk, "errors")
    note = FailureNote.of(copy.extension)
    assert note is not None
    assert (note.failure, note.reason, note.attempts) == ("retrieval failure", "HTTP 500", 4)


async def test_what_was_given_up_may_be_sent_once_more_under_the_same_key(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    """Duplicate detection, first note: after a transient error a message is new; so is one that a person sends
    again.
    """
    says = Says(*[FOR_NOW] * SOON.attempts)
    log = start(says, history=history)
    extension = Envelope(producer_key="order-17").as_extension()
    await send(desk, b"one", extension=extension)
    await log.line("dead-lettered")
    [copy] = await taken_from(desk, "errors")
    await send(desk, copy.body, extension=copy.extension)
    line = await log.line("committed")
    assert line["attempt"] == 1
    assert log.lines("attempted")[-1]["key"] == says.calls[-1].key == "order-17"


async def test_a_message_that_was_delivered_too_often_is_given_up_without_a_call(
    desk: Client, start: Start
) -> None:
    """Duplicate detection, notes: the retrieval failure is found when the message is delivered."""
    await send(desk, b"one")
    for _ in range(SOON.attempts):
        with pytest.raises(ValueError, match="not yet"):
            async with desk.transaction("orders"):
                raise ValueError("not yet")
    says = Says()
    log = start(says, detects=False)
    await log.line("dead-lettered")
    assert says.calls == []
    assert story(log) == ["retrieval-failure", "dead-lettered"]


@pytest.mark.parametrize(
    ("entry", "waypoint"), [(Attempt.SUCCEEDED, "duplicate-dropped"), (None, "in-doubt")]
)
async def test_step_2_what_was_completed_is_a_duplicate_and_what_was_started_is_in_doubt(
    desk: Client, start: Start, history: DocumentHistory, entry: Attempt | None, waypoint: str
) -> None:
    """Duplicate detection, step 2: both are acknowledged without being executed."""
    await history.begin("trigger/orders", "order-17", "somebody")
    if entry is not None:
        await history.finish("trigger/orders", "order-17", entry)
    says = Says()
    log = start(says, history=history)
    await send(desk, b"one", extension=Envelope(producer_key="order-17").as_extension())
    await log.line(waypoint)
    assert says.calls == []
    assert story(log) == [waypoint]
    assert await taken_from(desk, "orders") == []


async def test_a_duplicate_is_dropped_however_often_it_was_delivered(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    """Duplicate detection, step 2: a processed message is not a failure, whatever the maximum delivery count."""
    [sent] = await send(desk, b"one")
    await history.begin("trigger/orders", sent, "somebody")
    await history.finish("trigger/orders", sent, Attempt.SUCCEEDED)
    for _ in range(SOON.attempts):
        with pytest.raises(ValueError, match="not yet"):
            async with desk.transaction("orders"):
                raise ValueError("not yet")
    log = start(Says(), history=history)
    await log.line("duplicate-dropped")
    assert await taken_from(desk, "errors") == []


@pytest.mark.parametrize(("producer_key", "key"), [("order-17", "order-17"), ("", None)])
async def test_a_message_goes_by_its_uuid_and_without_one_by_its_identifier(
    desk: Client, producer_key: str, key: str | None
) -> None:
    """Duplicate detection, step 2: the producer's id is the UUID."""
    [sent] = await send(desk, b"one", extension=Envelope(producer_key=producer_key).as_extension())
    [message] = await taken_from(desk, "orders")
    call = call_for(message)
    assert (call.key, call.message) == (key or sent, sent)


# What the consumer is told


async def test_the_consumer_is_told_what_the_producer_said(desk: Client, start: Start) -> None:
    """Reliable messaging, Eliminating Duplicates on the Consumer: the consumer gets the id that the producer chose."""
    consumer = HttpConsumer()
    extension = Envelope(content_type="application/json", producer_key="order-17").as_extension()
    async with called_over_http(consumer) as callee:
        log = start(callee)
        [sent] = await send(desk, b'{"id": 17}', label="Größe 7", extension=extension)
        await log.line("committed")
    [seen] = consumer.seen
    assert seen.body == b'{"id": 17}'
    expected = {
        "content-type": "application/json",
        "idempotency-key": "order-17",
        "mq-message-id": sent,
        "mq-delivery-count": "1",
        "mq-label": "Gr%C3%B6%C3%9Fe%207",
    }
    assert expected.items() <= seen.headers.items()


async def test_messages_of_a_queue_that_is_not_transactional_are_handled_alike(
    desk: Client, start: Start
) -> None:
    says = Says(FOR_NOW, FOR_GOOD)
    log = start(says, queue="notes", detects=False)
    await desk.send(r"desk\notes", b"one", recoverable=True, priority=5)
    await log.line("dead-lettered")
    assert [call.delivery_count for call in says.calls] == [1, 2]
    [copy] = await taken_from(desk, "errors")
    assert copy.body == b"one"


async def test_a_function_may_run_in_a_thread_and_raise_a_business_error(desk: Client, start: Start) -> None:
    def accept(call: Call) -> None:
        if call.body == b"bad":
            raise BusinessError("unknown-account", "17")

    log = start(PythonCallee(accept))
    await send(desk, b"bad", b"good")
    await log.line("committed")
    assert log.lines("dead-lettered")[0]["reason"] == "unknown-account: 17"


# Without an error queue, with one that is full


async def test_without_an_error_queue_the_senders_dead_letter_queue_has_the_message(
    desk: Client, start: Start
) -> None:
    log = start(Says(FOR_GOOD), Policy(retries=SOON))
    await send(desk, b"one", journal_negative=True)
    line = await log.line("dead-lettered")
    assert line["to"] == "the sender"
    [dead] = await desk.receive("deadxact", timeout_s=5)
    assert (dead.body, dead.message_class) == (b"one", "NACK_RECEIVE_REJECTED")


async def test_a_message_stays_while_the_error_queue_does_not_take_its_copy(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    """Reliable messaging, Transactions: a message is removed only when its outcome is safely stored."""
    says = Says(FOR_GOOD)
    log = start(says, Policy(error_queue=r"desk\nowhere", retries=SOON), history=history)
    await send(desk, b"one")
    lines = await log.at_least(2, "rolled-back")
    assert "nowhere" in lines[0]["reason"]
    assert len(says.calls) == 1
    assert log.lines("dead-lettered") == []


# The breaker


async def test_an_outage_holds_the_queue_and_gives_up_no_message(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    """Reliable messaging, OSB Rules: a recoverable error must not prevent the delivery, however long it lasts."""
    consumer = HttpConsumer(*[Reply(503)] * 9)
    async with called_over_http(consumer) as callee:
        policy = Policy(error_queue=ERRORS, retries=SOON, breaker=2)
        log = start(callee, policy, history)
        sent = await send(desk, b"one", b"two")
        await log.at_least(2, "committed")
    assert consumer.bodies == [b"one"] * 10 + [b"two"]
    [opened] = log.lines("breaker-open")
    assert (opened["reason"], opened["failures"], opened["queue"]) == ("HTTP 503", 2, "orders")
    assert opened["next_try_s"] == 0.02
    assert len(log.lines("breaker-closed")) == 1
    attempts = [(line["message"], line["attempt"]) for line in log.lines("committed")]
    # The first failure came before it opened, and was an attempt.
    assert attempts == [(sent[0], 2), (sent[1], 1)]


async def test_a_message_that_the_consumer_cannot_digest_is_given_up_though_the_queue_is_held(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    consumer = HttpConsumer()

    async def by_body(seen: Seen) -> Reply:
        return ERROR if seen.body == b"bad" else OK

    consumer.answering = by_body
    async with called_over_http(consumer) as callee:
        log = start(callee, Policy(error_queue=ERRORS, retries=SOON, breaker=2), history)
        await send(desk, b"bad", b"good")
        await log.line("committed")
    assert consumer.bodies == [b"bad"] * 4 + [b"good"]
    assert [copy.body for copy in await taken_from(desk, "errors")] == [b"bad"]
    assert [len(log.lines(f"breaker-{word}")) for word in ("open", "closed")] == [1, 1]


# Groups


async def test_a_group_that_fails_does_not_hold_up_the_others_and_keeps_its_order(
    desk: Client, start: Start
) -> None:
    done: list[bytes] = []
    may_succeed = trio.Event()

    async def accept(call: Call) -> None:
        if call.body == b"a1" and not may_succeed.is_set():
            raise OSError("not now")
        done.append(call.body)
        if call.body == b"b3":
            may_succeed.set()

    policy = Policy(
        retries=Retries(interval_s=0.01, limit_s=0.02, attempts=1_000), group_by="correlation", parallel=2
    )
    log = start(PythonCallee(accept), policy, detects=False)
    bodies = [b"a1", b"a2", b"b1", b"a3", b"b2", b"b3"]
    await desk.send_many(
        ORDERS,
        [Draft(body=body, transactional=True, correlation_id=body[:1] * 20) for body in bodies],
    )
    await log.at_least(6, "committed")
    assert [body for body in done if body[:1] == b"a"] == [b"a1", b"a2", b"a3"]
    assert [body for body in done if body[:1] == b"b"] == [b"b1", b"b2", b"b3"]
    assert done.index(b"b3") < done.index(b"a1")


async def test_groups_run_side_by_side_up_to_a_limit(desk: Client, start: Start) -> None:
    consumer = HttpConsumer()
    full = trio.Event()

    async def together(seen: Seen) -> Reply:
        if consumer.under_way == 3:
            full.set()
        await full.wait()
        return OK

    consumer.answering = together
    async with called_over_http(consumer) as callee:
        log = start(callee, Policy(group_by="correlation", parallel=3))
        drafts = [
            Draft(body=b"%d" % number, transactional=True, correlation_id=bytes([number]) * 20)
            for number in range(8)
        ]
        await desk.send_many(ORDERS, drafts)
        await log.at_least(8, "committed")
    assert consumer.most_under_way == 3


# What breaks


async def test_a_call_that_succeeded_while_the_node_died_is_not_repeated(
    topology: Topology, tmp_path: Path, start: Start, new_sqlite_url: Callable[[], str]
) -> None:
    node = NodeProcess(topology, "desk", tmp_path)
    await node.start()
    asked, may_answer = trio.Event(), trio.Event()
    calls: list[bytes] = []

    async def slow(call: Call) -> None:
        calls.append(call.body)
        asked.set()
        await may_answer.wait()

    try:
        async with node.client() as desk:
            await send(desk, b"one", b"two")
        async with open_history(new_sqlite_url()) as history:
            log = start(PythonCallee(slow), history=history)
            await asked.wait()
            await node.end(signal.SIGKILL)
            await node.start()
            may_answer.set()
            await log.line("duplicate-dropped")
            await log.line("committed")
            await start.stop()
        assert calls == [b"one", b"two"]
    finally:
        await node.end(signal.SIGKILL)


async def test_a_trigger_waits_for_its_node_before_the_first_message_and_during_a_call(
    topology: Topology, tmp_path: Path, start: Start, new_sqlite_url: Callable[[], str]
) -> None:
    """Reliable messaging, OSB Rules: a node that can be started again must not prevent the delivery."""
    node = NodeProcess(topology, "desk", tmp_path)
    asked, may_answer = trio.Event(), trio.Event()
    calls: list[bytes] = []

    async def slow(call: Call) -> None:
        calls.append(call.body)
        asked.set()
        await may_answer.wait()

    async with open_history(new_sqlite_url()) as history:
        log = start(PythonCallee(slow), history=history, patience_s=0.05)
        line = await log.line("waiting")
        assert "desk is not running" in line["reason"]
        await node.start()
        try:
            async with node.client() as desk:
                await send(desk, b"one")
            await asked.wait()
            await node.end(signal.SIGKILL)
            may_answer.set()
            await log.at_least(2, "waiting")
            await node.start()
            await log.line("duplicate-dropped")
            await start.stop()
        finally:
            await node.end(signal.SIGKILL)
    assert calls == [b"one"]
    # Whether the kill or the commit came first is not ours to say.
    assert story(log) in (
        ["attempted", "rolled-back", "duplicate-dropped"],
        ["attempted", "unsettled", "duplicate-dropped"],
    )


async def test_groups_keep_their_order_and_nothing_is_repeated_though_the_node_dies_again_and_again(
    topology: Topology, tmp_path: Path, start: Start, new_sqlite_url: Callable[[], str]
) -> None:
    node = NodeProcess(topology, "desk", tmp_path)
    await node.start()
    bodies = [b"%c%d" % (group, number) for number in range(8) for group in b"abc"]
    calls: list[bytes] = []
    reached, may_go_on = trio.Event(), trio.Event()

    async def accept(call: Call) -> None:
        calls.append(call.body)
        if call.body in (b"b1", b"c5"):
            reached.set()
            await may_go_on.wait()

    try:
        async with node.client() as desk:
            drafts = [Draft(body=body, transactional=True, correlation_id=body[:1] * 20) for body in bodies]
            await desk.send_many(ORDERS, drafts)
        async with open_history(new_sqlite_url()) as history:
            policy = Policy(group_by="correlation", parallel=2, retries=SOON)
            log = start(PythonCallee(accept), policy, history=history)
            for _ in range(2):
                await reached.wait()
                await node.end(signal.SIGKILL)
                await node.start()
                reached = trio.Event()
                may_go_on.set()
                may_go_on = trio.Event()
            while len(log.lines("committed")) + len(log.lines("duplicate-dropped")) < len(bodies):
                await log.more()
            await start.stop()
    finally:
        await node.end(signal.SIGKILL)
    for group in (b"a", b"b", b"c"):
        of_group = [body for body in calls if body[:1] == group]
        assert of_group == [body for body in bodies if body[:1] == group]
    assert log.lines("in-doubt") == []


async def test_without_a_history_several_triggers_share_a_queue(desk: Client, start: Start) -> None:
    everyone = [Says(*[FOR_NOW] * 3) for _ in range(3)]
    log = Log()
    policy = Policy(retries=Retries(interval_s=0.01, limit_s=0.02, attempts=10))  # One may meet all failures.
    for says in everyone:
        start(says, policy, detects=False, log=log)
    sent = await send(desk, *[b"%d" % number for number in range(30)])
    committed = [line["message"] for line in await log.at_least(len(sent), "committed")]
    assert sorted(committed) == sorted(sent)
    calls = sum(len(says.calls) for says in everyone)
    assert calls == len(sent) + len(log.lines("rolled-back"))
    assert await taken_from(desk, "orders") == []


async def test_a_trigger_that_stops_lets_the_call_in_hand_come_to_its_end(desk: Client, start: Start) -> None:
    asked, may_answer = trio.Event(), trio.Event()

    async def slow(call: Call) -> None:
        asked.set()
        await may_answer.wait()

    log = start(PythonCallee(slow))
    await send(desk, b"one", b"two")
    await asked.wait()
    start.triggers[0].stop()
    may_answer.set()
    await start.stop()
    assert story(log) == ["attempted", "committed"]
    assert [message.body for message in await taken_from(desk, "orders")] == [b"two"]


async def test_a_message_that_comes_while_another_trigger_takes_over_is_let_go(
    desk: Client, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is received just after the trigger has let go of all messages that it held."""
    hold, consumer, late = Trigger._hold, HttpConsumer(), []

    async def hold_late(trigger: Trigger, message: ReceivedMessage) -> Any:
        late.append(message.body)
        if len(late) == 1:
            trigger.judge.fence()
            trigger._changed.set()
            await trio.testing.wait_all_tasks_blocked()
        return await hold(trigger, message)

    monkeypatch.setattr(Trigger, "_hold", hold_late)
    await send(desk, b"order")
    async with called_over_http(consumer) as callee:
        await start(callee).line("in-doubt")  # It has been delivered twice.
        await start.stop()
    assert (late, consumer.bodies) == ([b"order"] * 2, [])


async def test_a_call_that_does_not_end_is_rolled_back_when_the_trigger_stops(
    desk: Client, start: Start, history: DocumentHistory
) -> None:
    asked = trio.Event()

    async def never(call: Call) -> None:
        asked.set()
        await trio.sleep_forever()

    log = start(PythonCallee(never), Policy(stop_s=0.05, retries=Retries(attempts=1)), history=history)
    [sent] = await send(desk, b"one")
    await asked.wait()
    await start.stop()
    assert story(log) == ["attempted", "rolled-back"]
    assert log.lines("rolled-back")[0]["reason"] == "no answer before the trigger stopped"
    assert (await history.look("trigger/orders", sent)).entry is Entry.ABSENT
    [message] = await taken_from(desk, "orders")
    assert message.body == b"one"


async def test_while_the_history_is_away_nobody_is_called_and_nothing_is_given_up(
    desk: Client, start: Start, history: DocumentHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reliable messaging, OSB Rules: when the history works again, the message is delivered."""

    async def away(*arguments: object, **options: object) -> None:
        raise HistoryError("the database is away: start it")

    says = Says()
    with monkeypatch.context() as broken:
        broken.setattr(history, "begin", away)
        broken.setattr(history, "started_by", away)
        log = start(says, Policy(retries=Retries(interval_s=0, attempts=2)), history=history)
        await send(desk, b"one")
        line = await log.line("rolled-back")
        assert line["reason"] == "the database is away: start it"
        await trio.testing.wait_all_tasks_blocked()
        assert len(log.lines("rolled-back")) == 1
        assert says.calls == []
    await log.line("committed")
    assert len(says.calls) == 1


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"group_by": "label"}, "messages cannot be grouped by 'label': by correlation, or not at all"),
        ({"parallel": 2}, "2 at once would change the order: say how they are grouped"),
        ({"timeout_s": 0}, "timeout 0: must be 0.01 to 86,400"),
        ({"breaker": -1}, "breaker -1: must be 0 to 1,000,000"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        Policy(**policy)


async def test_the_consumer_is_told_what_stands_beside_the_body(desk: Client, start: Start) -> None:
    consumer = HttpConsumer()
    async with called_over_http(consumer) as callee:
        log = start(callee)
        await send(
            desk,
            b"\x11\0\0\0",
            body_type=3,
            application_tag=7,
            extension=b"\xff",
            correlation_id=b"\x0a" * 20,
            response_queue=r"DIRECT=OS:shop\private$\replies",
            admin_queue=r"DIRECT=OS:shop\private$\acks",
        )
        await log.line("committed")
    [seen] = consumer.seen
    assert seen.body == b"\x11\0\0\0"
    assert {name: text for name, text in seen.headers.items() if name.startswith("mq-")} == {
        "mq-message-id": seen.headers["idempotency-key"],
        "mq-delivery-count": "1",
        "mq-body-type": "3",
        "mq-application-tag": "7",
        "mq-extension": "/w==",
        "mq-correlation-id": "0a" * 20,
        "mq-response-queue": "DIRECT%3DOS%3Ashop%5CPRIVATE%24%5Creplies",
        "mq-admin-queue": "DIRECT%3DOS%3Ashop%5CPRIVATE%24%5Cacks",
        "mq-acknowledge": "none",
    }


async def test_the_consumer_may_have_what_receive_says_of_a_message(desk: Client, start: Start) -> None:
    consumer = HttpConsumer()
    body, body_type = write_body(Tree("Order", (("Id", "5"),)), "xml")
    async with listening(consumer), endpoint(consumer.url, as_json=True) as posted:
        log = start(HttpCallee(posted))
        await send(desk, body, body_type=body_type)
        # XML of a megabyte of nesting, and text that is none: bytes, with the reason.
        await send(desk, b"<a>" * 350_000)
        await send(desk, b"\0", body_type=8)
        await log.at_least(3, "committed")
    first, second, third = (json.loads(seen.body) for seen in consumer.seen)
    assert first["content"] == {"kind": "xml", "value": {"$type": "Order", "Id": "5"}}
    assert first["body"] == body.decode()
    assert second["content"] == {"kind": "bytes", "reason": "the XML is nested deeper than 100 levels"}
    assert third["content"] == {"kind": "bytes", "reason": "VT_BSTR is text, and the body is not UTF-16"}
    assert {seen.headers["content-type"] for seen in consumer.seen} == {"application/json"}


async def test_a_function_is_told_what_the_body_says(desk: Client, start: Start) -> None:
    found = []
    body, body_type = write_body("drei Stück", "VT_BSTR")

    def accept(call: Call) -> None:
        found.append((call.content, call.application_tag, json.loads(call.as_json())["content"]))

    log = start(PythonCallee(accept))
    await send(desk, body, body_type=body_type, application_tag=5)
    await log.line("committed")
    assert found == [(Body("VT_BSTR", "drei Stück"), 5, {"kind": "VT_BSTR", "value": "drei Stück"})]
