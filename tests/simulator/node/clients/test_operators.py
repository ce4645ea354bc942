"""Operators' changes to the queues of running nodes, through their clients."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.manager.status import LocalStatus, NodeStatus
from mqproto.manager.whereabouts import Spot
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client import Client, MessageId, Reject, connect
from mqproto.simulator.node.control import Explanation
from mqproto.simulator.node.node import run_node
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import DeclaredQueue, Topology, parse
from mqproto.simulator.topology.places import store_path
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.turn.effects import MessageRow, QueueKind, ReadBy, ReadPage, Writes, message_key
from mqproto.wire import Guid, guid_text
from tests.simulator.running import Log, NodeProcess, running, running_with_client

ORDERS = r"b\orders"
NOTES = r"b\notes"
TWO = """
[node.a]
[node.a.queue.replies]
[node.b]
[node.b.queue.orders]
transactional = true
journal = true
[node.b.queue.notes]
[node.b.queue.small]
transactional = true
quota_kb = 4
[[link]]
between = ["a", "b"]
[settings]
try_connect_interval_ms = 20
order_ack_timeout_ms = 20
"""


@pytest.fixture
def topology() -> Topology:
    return parse(TWO, "two.toml").with_free_ports()


@pytest.fixture
async def alone(topology: Topology, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of `a`, whose neighbour is not running."""
    async with running_with_client(topology, "a", tmp_path) as client:
        yield client


@asynccontextmanager
async def two(topology: Topology, tmp_path: Path) -> AsyncIterator[tuple[Client, Client]]:
    """Run both nodes; yield a client of each."""
    async with (
        running_with_client(topology, "a", tmp_path) as a,
        running_with_client(topology, "b", tmp_path) as b,
    ):
        yield a, b


async def found(client: Client, queue: str, count: int = 1) -> LocalStatus:
    """Return a queue of the node as soon as it has `count` messages."""
    while True:
        [status] = [local for local in (await client.queues()).local if local.name == queue]
        if status.waiting == count:
            return status
        await trio.sleep(0.01)


def waiting(status: NodeStatus) -> dict[str, int]:
    counts = [(queue.name, queue.waiting) for queue in status.local]
    counts += [(queue.name, queue.waiting) for queue in status.outgoing]
    return {name: count for name, count in counts if count}


def transactional(*bodies: bytes) -> list[Draft]:
    return [Draft(body=body, transactional=True) for body in bodies]


# Transactions that send several messages


async def test_a_transaction_goes_to_several_queues_or_to_none(alone: Client) -> None:
    one, other = transactional(b"one", b"other")
    ids = await alone.send_together([(ORDERS, one), (r"b\small", other), (ORDERS, other)])
    assert [sent.ordinal - ids[0].ordinal for sent in ids] == [0, 1, 2]
    assert sorted(waiting(await alone.queues()).values()) == [1, 2]
    with pytest.raises(UsageError, match="did you mean 'orders'"):
        await alone.send_together([(ORDERS, one), (r"b\order", other)])
    with pytest.raises(UsageError, match=r"501 messages of .* too many or too large for one transaction"):
        await alone.send_together([(ORDERS, one)] * 501)
    with pytest.raises(UsageError, match="too large"):
        await alone.send_together([(ORDERS, Draft(body=bytes(3 * 2**20), transactional=True))] * 2)
    assert await alone.send_together([]) == []
    assert sorted(waiting(await alone.queues()).values()) == [1, 2]


async def test_the_messages_of_a_transaction_are_marked_as_one(topology: Topology, tmp_path: Path) -> None:
    async with two(topology, tmp_path) as (a, b):
        await a.send_together([(ORDERS, draft) for draft in transactional(b"1", b"2", b"3")])
        await found(b, "orders", 3)
        headers = [message.record.transaction for message in await b.receive("orders", limit=3)]
    assert [(header.first, header.last) for header in headers if header] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert len({header.identifier for header in headers if header}) == 1


# Pause and resume


async def test_a_paused_queue_keeps_its_messages_until_it_is_resumed(
    topology: Topology, tmp_path: Path
) -> None:
    async with running_with_client(topology, "a", tmp_path) as a:
        await a.send_many(ORDERS, transactional(b"held back"))
        await a.pause(ORDERS)
        await a.pause(ORDERS)
        await a.send(NOTES, b"goes on", recoverable=True)
    async with two(topology, tmp_path) as (a, b):
        assert (await b.receive("notes", timeout_s=60))[0].body == b"goes on"
        [paused] = [queue for queue in (await a.queues()).outgoing if queue.sequence]
        assert (paused.state, paused.waiting) == ("on hold", 1)
        await a.resume("orders")
        assert (await b.receive("orders", timeout_s=60))[0].body == b"held back"


async def test_what_leads_nowhere_cannot_be_paused(alone: Client) -> None:
    with pytest.raises(UsageError, match=r"^a has no outgoing queue to b\\orders; there are: none$"):
        await alone.pause(ORDERS)
    await alone.send(NOTES, b"")
    with pytest.raises(UsageError, match=r"there are: b$"):
        await alone.resume(ORDERS)


# Purge and delete


async def test_a_purge_empties_the_queue_that_is_meant_and_no_other(alone: Client) -> None:
    await alone.send_many(ORDERS, transactional(b"1", b"2"))
    await alone.send(NOTES, b"3")
    await alone.send(r".\replies", b"4")
    assert await alone.purge(ORDERS) == 2
    assert sorted(waiting(await alone.queues()).values()) == [1, 1]
    assert await alone.purge("b") == 1
    assert waiting(await alone.queues()) == {"replies": 1}
    assert await alone.purge("replies") == 1
    assert waiting(await alone.queues()) == {}
    with pytest.raises(UsageError, match="no outgoing queue to nowhere"):
        await alone.purge("nowhere")


@pytest.mark.parametrize("queue", [r".\replies", ORDERS])
async def test_what_was_said_to_be_purged_does_not_come_back_after_a_kill(
    queue: str, topology: Topology, tmp_path: Path
) -> None:
    """More messages are on disk than are read at a time."""
    node = NodeProcess(topology, "a", tmp_path)
    for is_first in (True, False):
        await node.start()
        async with node.client() as client:
            if is_first:
                for _ in range(3):
                    drafts = [Draft(body=b"", recoverable=True, transactional=queue == ORDERS)] * 1_000
                    await client.send_many(queue, drafts)
            else:
                assert await client.purge(queue) == 3_000
        await node.end(signal.SIGKILL)
    await node.start()
    async with node.client() as client:
        assert waiting(await client.queues()) == {}
    await node.end(signal.SIGKILL)


@pytest.mark.parametrize("queue", [r".\replies", ORDERS])
async def test_who_asks_again_when_a_kill_interrupted_a_purge_is_told_what_was_to_go_and_purges_nothing_more(
    queue: str, topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats the request by itself, with the same identifier, as soon as the node is back."""
    commit, slices = Store.commit, 0

    def dies_in_the_middle(store: Store, writes: Writes) -> None:
        nonlocal slices
        slices += bool(writes.removals)
        if slices == 2:
            raise StoreError("the process is killed")
        commit(store, writes)

    async def run(*, task_status: trio.TaskStatus[object]) -> None:
        with pytest.raises(StoreError, match=r"^the process is killed$"):
            await run_node(topology, "a", tmp_path, log=Log(), task_status=task_status)
        ended.set()

    counts: list[int] = []
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        async with connect(topology, "a", tmp_path) as client:
            drafts = [Draft(body=b"", recoverable=True, transactional=queue == ORDERS)] * 2_000
            await client.send_many(queue, drafts)
            monkeypatch.setattr(Store, "commit", dies_in_the_middle)

            async def purge() -> None:
                counts.append(await client.purge(queue))

            nursery.start_soon(purge)
            await ended.wait()
            monkeypatch.setattr(Store, "commit", commit)
            async with running(topology, "a", tmp_path):
                while not counts:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                assert counts == [2_000]
                assert waiting(await client.queues()) == {}


async def test_what_is_purged_on_its_way_is_a_dead_letter_and_its_sender_is_told(alone: Client) -> None:
    await alone.send(
        ORDERS, b"gone", transactional=True, journal_negative=True, admin_queue="replies", acknowledgments=0xF
    )
    await alone.purge(ORDERS)
    [dead] = await alone.receive("deadxact", timeout_s=60)
    [told] = await alone.receive("replies", timeout_s=60)
    assert (dead.body, dead.message_class, told.message_class) == (b"gone", "NACK_DELETED", "NACK_DELETED")
    assert told.correlation == dead.id


async def test_a_deleted_queue_is_gone_over_restarts_until_it_is_made_again(
    topology: Topology, tmp_path: Path
) -> None:
    async with running_with_client(topology, "a", tmp_path) as client:
        await client.send(r".\replies", b"1", recoverable=True)
        assert [queue.name for queue in await client.declared()] == ["replies"]
        assert await client.delete("replies") == 1
        assert await client.declared() == []
        with pytest.raises(UsageError, match="no queue"):
            await client.peek("replies")
    async with running_with_client(topology, "a", tmp_path) as client:
        with pytest.raises(UsageError, match="no queue"):
            await client.send(r".\replies", b"2")
        made = await client.make("Replies", transactional=True)
        assert (made.identifier, made.transactional) == (16, True), "it has the number that is declared"
    async with running_with_client(topology, "a", tmp_path) as client:
        assert await client.peek("replies") == []
        await client.send("replies", b"3", transactional=True)
        with pytest.raises(UsageError, match="queue Replies is transactional; send it such messages only"):
            await client.send("replies", b"4")


async def test_of_a_queue_that_is_changed_all_else_stays_but_the_bound_of_a_journal_that_is_no_more(
    alone: Client,
) -> None:
    def properties(queue: DeclaredQueue) -> tuple[int | None, bool, int | None, bool]:
        return queue.quota_kb, queue.journal, queue.journal_quota_kb, queue.strangers

    made = await alone.make("bills", quota_kb=9, journal=True, journal_quota_kb=5)
    assert properties(made) == (9, True, 5, False)
    assert properties(await alone.change("bills", strangers=True)) == (9, True, 5, True)
    assert properties(await alone.change("bills", quota_kb=0, journal=True)) == (None, True, 5, True)
    assert properties(await alone.change("bills", journal_quota_kb=6)) == (None, True, 6, True)
    with pytest.raises(UsageError, match="journal_quota_kb bounds no journal"):
        await alone.change("bills", journal=False, journal_quota_kb=7)
    assert properties(await alone.change("bills", journal=False)) == (None, False, None, True)
    assert properties(await alone.change("bills", journal=True)) == (None, True, None, True)


async def test_a_queue_that_one_node_has_made_is_reached_by_its_direct_and_its_private_name(
    topology: Topology, tmp_path: Path
) -> None:
    async with two(topology, tmp_path) as (a, b):
        made = await b.make(r".\private$\bills", journal=True)
        names = [r"DIRECT=OS:b\private$\bills", f"PRIVATE={guid_text(b.manager)}\\{made.identifier:X}"]
        for name in names:
            await a.send(name, name.encode(), recoverable=True)
            [message] = await b.receive("bills", timeout_s=60)
            assert message.body == name.encode()
        assert [message.body.decode() for message in await b.peek("bills;journal", limit=2)] == names
        with pytest.raises(UsageError, match="b has no queue 'bills'"):
            await a.send(r"b\bills", b"")
        await a.send(r"DIRECT=OS:b\private$\bill", b"", transactional=True, journal_negative=True)
        [unknown] = await a.receive("deadxact", timeout_s=60)
        assert unknown.message_class == "NACK_BAD_DST_Q"


async def test_what_waits_in_a_deleted_queue_has_its_end_and_its_senders_hear_of_it(
    topology: Topology, tmp_path: Path
) -> None:
    async with two(topology, tmp_path) as (a, b):
        await a.send(ORDERS, b"late", transactional=True, journal_negative=True)
        await found(b, "orders")
        assert await b.delete("orders") == 1
        [dead] = await a.receive("deadxact", timeout_s=60)
        assert (dead.body, dead.message_class) == (b"late", "NACK_Q_DELETED")
        await a.send(ORDERS, b"later", transactional=True, journal_negative=True)
        [dead] = await a.receive("deadxact", timeout_s=60)
        assert (dead.body, dead.message_class) == (b"later", "NACK_BAD_DST_Q")
        await b.make("orders", transactional=True)
        await a.send(ORDERS, b"now", transactional=True)
        assert [message.body for message in await b.receive("orders", timeout_s=60)] == [b"now"]


async def test_a_guid_is_that_of_one_queue(topology: Topology, tmp_path: Path) -> None:
    guid = bytes(range(16))
    async with running_with_client(topology, "a", tmp_path) as a:
        await a.make("public", public=guid)
        with pytest.raises(UsageError, match=r"public has the GUID .* already: choose another"):
            await a.make("other", public=guid)
        await a.send(f"PUBLIC={guid_text(Guid(guid))}", b"by its GUID")
        assert [message.body for message in await a.receive("public")] == [b"by its GUID"]
        assert [queue.name for queue in await a.declared()] == ["replies", "public"]


async def test_a_queue_that_an_application_waits_at_is_not_deleted(alone: Client) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alone.receive, "replies")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(UsageError, match="an application receives from replies: stop it first"):
            await alone.delete("replies")
        nursery.cancel_scope.cancel()


# Quotas, rejected messages, dead letters sent back


async def test_what_is_refused_or_rejected_comes_back_as_a_dead_letter(
    topology: Topology, tmp_path: Path
) -> None:
    async with two(topology, tmp_path) as (a, b):
        await a.send(r"b\small", bytes(3_000), transactional=True)
        await a.send(r"b\small", bytes(3_001), transactional=True, journal_negative=True)
        [full] = await a.receive("deadxact", timeout_s=60)
        assert (full.message_class, len(full.body)) == ("NACK_Q_EXCEED_QUOTA", 3_001)
        await a.send(ORDERS, b"bad", transactional=True, journal_negative=True)
        async with b.transaction("orders", timeout_s=60) as messages:
            assert messages[0].body == b"bad"
            raise Reject
        [rejected] = await a.receive("deadxact", timeout_s=60)
        assert rejected.message_class == "NACK_RECEIVE_REJECTED"
        assert (await found(b, "orders", 0)).unsettled == 0


async def test_dead_letters_are_sent_back_all_or_some(topology: Topology, tmp_path: Path) -> None:
    async with running_with_client(topology, "a", tmp_path) as a:
        for body in (b"1", b"2", b"3"):
            await a.send(
                ORDERS, body, transactional=True, journal_negative=True, label="kept", sender_id="S-1-5-7"
            )
        await a.purge(ORDERS)
        first, *_ = await a.peek("deadxact", limit=3)
        with pytest.raises(UsageError, match=rf"has no message .*\\{first.id.ordinal + 9}$"):
            await a.send_back("deadxact", [first.id, MessageId(a.manager, first.id.ordinal + 9)])
        assert await a.send_back("deadxact", [first.id]) == 1
        assert [message.body for message in await a.peek("deadxact", limit=3)] == [b"2", b"3"]
        assert await a.send_back("deadxact") == 2
        assert await a.peek("deadxact") == []
    async with two(topology, tmp_path) as (a, b):
        await found(b, "orders", 3)
        messages = await b.receive("orders", limit=3)
        assert [(message.body, message.label, message.sender_id) for message in messages] == [
            (body, "kept", "S-1-5-7") for body in (b"1", b"2", b"3")
        ]
        assert await b.send_back("orders;journal") == 3
        await found(b, "orders", 3)
        with pytest.raises(UsageError, match="neither a dead-letter queue nor a journal"):
            await b.send_back("orders")


async def test_an_administration_queue_hears_of_arrival_and_receipt(
    topology: Topology, tmp_path: Path
) -> None:
    async with two(topology, tmp_path) as (a, b):
        sent = await a.send(
            NOTES, b"", admin_queue=r".\private$\replies", response_queue="replies", acknowledgments=0b11
        )
        [received] = await b.receive("notes", timeout_s=60)
        await found(a, "replies", 2)
        told = await a.receive("replies", limit=2)
        assert [(ack.message_class, ack.correlation) for ack in told] == [
            ("ACK_REACH_QUEUE", sent),
            ("ACK_RECEIVE", sent),
        ]
        assert received.response_queue == str(topology.resolve(r"a\replies").format_name)


async def test_a_traced_message_reports_to_a_public_queue(tmp_path: Path) -> None:
    text = TWO.replace("[node.a.queue.replies]", "[node.a.queue.replies]\npublic = true")
    topology = parse(text, "two.toml").with_free_ports()
    async with two(topology, tmp_path) as (a, b):
        await a.send(NOTES, b"", trace_queue="replies")
        await b.receive("notes", timeout_s=60)
        await found(a, "replies", 2)
        assert {report.message_class for report in await a.receive("replies", limit=2)} == {"REPORT"}
        with pytest.raises(UsageError, match="reports go to a public queue"):
            await a.send(NOTES, b"", trace_queue="notes")


async def test_a_second_client_sees_what_the_first_has_done(topology: Topology, tmp_path: Path) -> None:
    limited = replace(topology.nodes["a"].settings, quota_bytes=10_000)
    nodes = {**topology.nodes, "a": replace(topology.nodes["a"], settings=limited)}
    topology = replace(topology, nodes=nodes)
    async with running(topology, "a", tmp_path):
        async with connect(topology, "a", tmp_path) as client:
            await client.send(ORDERS, bytes(8_000), transactional=True)
        async with connect(topology, "a", tmp_path) as client:
            with pytest.raises(UsageError, match="receive or purge something first"):
                await client.send(ORDERS, bytes(8_000), transactional=True)
            await client.purge(ORDERS)
            while True:
                with suppress(UsageError):  # The store forgets what is gone with its next commit.
                    await client.send(ORDERS, bytes(8_000), transactional=True)
                    break
                await trio.sleep(0.01)


# Why something waits


def spots(explanation: Explanation) -> list[tuple[str, Spot, str]]:
    return [(one.label, one.spot, one.queue) for one in explanation.messages]


async def test_a_queue_is_explained_by_what_leads_there_and_by_its_messages(alone: Client) -> None:
    await alone.send_many(ORDERS, [Draft(body=b"", label=str(n), transactional=True) for n in range(4)])
    await alone.send(NOTES, b"", label="express")
    await alone.send(r"b\small", b"", label="another", transactional=True)
    name = str((await alone.queues()).outgoing[0].name)
    explanation = await alone.explain(ORDERS, limit=3)
    assert spots(explanation) == [(str(n), Spot.UNSENT, name) for n in range(3)]
    assert {queue.waiting for queue in explanation.status.outgoing} == {4, 1}, (
        "its own, and those for its node"
    )
    assert explanation.status.local == []
    assert explanation.status.utc_s > 0
    assert [one.label for one in (await alone.explain(NOTES)).messages] == ["express"]
    assert {one.label for one in (await alone.explain("b", limit=1)).messages} == {"0", "express", "another"}
    assert {one.label for one in (await alone.explain()).messages} == {"0", "express", "another"}
    assert (await alone.explain("a")).messages == (await alone.explain()).messages
    with pytest.raises(UsageError, match="did you mean 'orders'"):
        await alone.explain("order")


async def test_who_would_wait_a_second_for_a_message_waits_that_long(alone: Client) -> None:
    began_s = trio.current_time()
    assert await alone.receive("replies", timeout_s=1) == []
    assert trio.current_time() - began_s >= 1


async def test_messages_are_explained_in_the_order_in_which_they_leave_be_they_on_disk_or_in_memory(
    alone: Client,
) -> None:
    for queue in (NOTES, r".\replies"):
        for number in range(5):
            await alone.send(queue, b"", label=str(number), recoverable=number % 2 == 0)
        explained = (await alone.explain(queue)).messages
        assert [one.label for one in explained] == ["0", "1", "2", "3", "4"]


async def test_a_message_is_found_by_its_identifier_also_where_only_the_disk_has_it(alone: Client) -> None:
    sent = await alone.send_many(ORDERS, transactional(*[str(number).encode() for number in range(1_500)]))
    express = await alone.send(NOTES, b"", label="express")
    [last] = (await alone.explain(str(sent[-1]))).messages
    assert (last.spot, last.number, last.ordinal) == (Spot.UNSENT, 1_500, sent[-1].ordinal)
    [found] = (await alone.explain(f"{{{str(express).replace(chr(92), '}' + chr(92))}")).messages
    assert (found.label, found.spot) == ("express", Spot.UNSENT)
    unknown = await alone.explain(str(MessageId(alone.manager, 2**32 - 1)))
    assert (unknown.messages, unknown.status.outgoing) == ([], [])


async def test_a_queue_that_says_that_it_is_empty_and_has_messages_in_the_store_is_noticed(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_with_client(topology, "b", tmp_path) as b:
        await b.send_many(ORDERS, transactional(b"1", b"2", b"3"))
        await b.receive("orders")
        assert [queue.passed_over for queue in (await b.queues()).local if queue.name == "orders"] == [0]
        monkeypatch.setattr(Writes, "remove_each", lambda *_: None)  # What is received stays on disk.
        await b.receive("orders", limit=2)
        [orders] = [queue for queue in (await b.explain()).status.local if queue.name == "orders"]
        assert (orders.waiting, orders.passed_over) == (0, 2)


async def test_a_message_is_found_all_along_its_way(topology: Topology, tmp_path: Path) -> None:
    async with two(topology, tmp_path) as (a, b):
        sent = await a.send(ORDERS, b"", label="m", transactional=True, final_ack=True)
        await found(b, "orders")
        while True:  # Until the OrderAck came.
            [(_, spot, _)] = spots(await a.explain(str(sent)))
            if spot is Spot.AWAITING_FINAL_ACK:
                break
            await trio.sleep(0.01)
        while not any(queue.unread for queue in (await a.explain(ORDERS)).status.outgoing):
            await trio.lowlevel.checkpoint()
        async with b.transaction("orders"):
            assert spots(await b.explain(str(sent))) == [("m", Spot.UNSETTLED, "orders")]
        assert spots(await b.explain("orders")) == []
        assert [(one.queue, one.held) for one in (await b.explain("orders")).status.incoming] == [
            ("orders", 0)
        ]
        await b.explain("orders;journal")
        assert spots(await b.explain(str(sent))) == [("m", Spot.IN_QUEUE, "orders;journal")]


async def test_a_message_that_waits_at_an_intermediate_is_shown_once_however_often_it_was_sent(
    tmp_path: Path,
) -> None:
    text = TWO.replace(
        'between = ["a", "b"]', 'between = ["a", "c"]\n[[link]]\nbetween = ["c", "b"]\n[node.c]'
    )
    topology = parse(text + "resend_timeouts_short_s = 0.05\n", "three.toml").with_free_ports()
    async with (
        running_with_client(topology, "a", tmp_path) as a,
        running_with_client(topology, "c", tmp_path) as c,
    ):
        await a.send(ORDERS, b"", label="m", transactional=True)
        while True:
            if (await a.queues()).resent >= 3:
                break
            await trio.lowlevel.checkpoint()
        [message] = (await c.explain(ORDERS)).messages
        assert (message.label, message.copies) == ("m", 1)


async def test_an_acknowledgment_queue_is_explained_by_its_own_name(
    topology: Topology, tmp_path: Path
) -> None:
    async with two(topology, tmp_path) as (a, b):
        await a.send(ORDERS, b"", transactional=True)
        await found(b, "orders")
        while not (await b.queues()).outgoing:
            await trio.lowlevel.checkpoint()
        explanation = await b.explain(r"a\order_queue$")
        assert [queue.name.endswith(ORDER_SUFFIX) for queue in explanation.status.outgoing] == [True]


async def test_a_message_that_cannot_be_read_is_named_and_no_question_about_it_ends_the_node(
    topology: Topology, tmp_path: Path
) -> None:
    """While the message waited, one byte of its header was damaged in a way that the store could not see."""
    async with running_with_client(topology, "a", tmp_path) as client:
        identifier = await client.send(NOTES, b"spoilt", recoverable=True)
    with Store(store_path(tmp_path, "a"), identifier.manager) as store:
        [queue] = [each for each in store.load().queues if each.kind is QueueKind.OUTGOING]
        [(position, packet, _)] = store.read(ReadPage(queue.queue, 0, 9, 2**20, ReadBy.WINDOW))
        spoilt = bytes([packet[0] ^ 0xFF]) + packet[1:]
        key = message_key(queue.queue, position)
        row = MessageRow(key + 1, spoilt, identifier.ordinal, False, None)
        store.commit(Writes(messages=[row], removals=[(key, key)]))
    async with running_with_client(topology, "a", tmp_path) as client:
        for subject in (str(identifier), "", "b"):
            [message] = (await client.explain(subject)).messages
            assert (message.source, message.ordinal) == (guid_text(identifier.manager), identifier.ordinal)
            assert not message.is_readable
        assert (await client.queues()).outgoing[0].waiting == 1


async def test_a_question_about_what_was_hurt_on_the_disk_meanwhile_is_answered_and_the_node_goes_on(
    topology: Topology, tmp_path: Path
) -> None:
    async with running_with_client(topology, "a", tmp_path) as client:
        identifier = await client.send(NOTES, b"hurt", recoverable=True)
    async with running_with_client(topology, "a", tmp_path) as client:
        with closing(sqlite3.connect(store_path(tmp_path, "a"))) as db, db:
            db.execute("UPDATE message SET packet = CAST('!' || substr(packet, 2) AS BLOB)")
        with pytest.raises(UsageError, match=r"^no answer: .*a\.sqlite"):
            await client.explain(str(identifier))
        assert (await client.queues()).outgoing[0].waiting == 1
