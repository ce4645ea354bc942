"""The promises to an application: no message is lost between a queue and the application, and errors say what is
known.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.messages.drafts import ACKNOWLEDGE_RECEIPT, LABEL_LIMIT, Draft
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client import (
    Client,
    InDoubt,
    MessageId,
    NodeUnreachable,
    Reject,
    RolledBack,
    connect,
    connect_to,
)
from mqproto.simulator.node import control
from mqproto.simulator.node.control import FrameBuffer, Operation, Settlement
from mqproto.simulator.node.received import ReceivedMessage
from mqproto.simulator.node.turns import TurnFeed
from mqproto.simulator.topology import Topology, TopologyError, load, places
from mqproto.wire import Guid, SecurityHeader, encode_packet, guid_text, sid_from_text
from tests.examples import a_security_header, a_user_message
from tests.simulator.running import NodeProcess, running, running_with_client

ORDERS = r".\private$\orders"
NOTES = r".\private$\notes"


@pytest.fixture
async def client(topology: Topology, tmp_path: Path) -> AsyncIterator[Client]:
    """Provide a client of a node that hosts `orders`, which is transactional, and `notes`, which is not."""
    async with running_with_client(topology, "destination", tmp_path) as client:
        yield client


def numbered(first: int, end: int) -> list[Draft]:
    return [Draft(body=str(number).encode(), transactional=True) for number in range(first, end)]


async def test_a_receive_that_waits_gives_the_node_nothing_to_do_until_a_message_comes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[TurnFeed] = []
    begin = TurnFeed.begin

    def counted(turns: TurnFeed) -> None:
        begun.append(turns)
        begin(turns)

    monkeypatch.setattr(TurnFeed, "begin", counted)
    taken: list[list[bytes]] = []

    async def take() -> None:
        taken.append([message.body for message in await client.receive("orders", timeout_s=60)])

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(take)
            await trio.testing.wait_all_tasks_blocked(cushion=0.05)
        assert len(begun) == 0
        await client.send_many(ORDERS, numbered(0, 1))
        await client.send_many(ORDERS, numbered(1, 2))
    assert sorted(taken) == [[b"0"], [b"1"]]
    assert await client.receive("orders", timeout_s=0) == []
    assert len(begun) > 4


async def numbers_in(client: Client, queue: str = "orders") -> list[int]:
    """Take all messages from a queue, and return the numbers in their bodies."""
    numbers: list[int] = []
    while messages := await client.receive(queue, limit=500, timeout_s=0):
        numbers += [int(message.body) for message in messages]
    return numbers


# Messages


async def test_a_message_arrives_as_it_was_sent(client: Client) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    about = MessageId(client.manager, 77)
    sent = await client.send(
        NOTES,
        b"\0body",
        "a label",
        priority=5,
        extension=b"\1\2",
        application_tag=9,
        correlation_id=about.correlation_id,
        response_queue=ORDERS,
        admin_queue="notes",
        acknowledgments=ACKNOWLEDGE_RECEIPT,
        sender_id="S-1-5-21-1-2-3-1000",
    )
    [message] = await client.receive("notes")
    assert (message.body, message.label, message.extension) == (b"\0body", "a label", b"\1\2")
    assert (message.id, message.source, message.priority) == (sent, client.manager, 5)
    assert before <= message.sent_time <= datetime.now(UTC)
    assert not message.transactional
    assert message.application_tag == 9
    assert (message.correlation, message.correlation_id) == (about, about.correlation_id)
    queues = [f"PRIVATE={guid_text(client.manager)}\\000000{number}" for number in (10, 11)]
    assert [message.response_queue, message.admin_queue] == queues
    assert (message.acknowledgments, message.sender_id) == (ACKNOWLEDGE_RECEIPT, "S-1-5-21-1-2-3-1000")


def test_a_queue_manager_that_signs_and_what_is_no_sid_are_no_sender_that_is_shown() -> None:
    for security in (
        a_security_header(),
        SecurityHeader(flags=1, sender_id=b"S-1-5-7"),
        SecurityHeader(flags=2, sender_id=sid_from_text("S-1-5-7")),
    ):
        message = a_user_message()
        message.user.has_security, message.security = True, security
        assert ReceivedMessage(encode_packet(message)).sender_id == ""


async def test_certain_messages_are_received_and_the_others_stay_where_they_are(client: Client) -> None:
    sent = await client.send_many(ORDERS, numbered(0, 10))
    with suppress(ZeroDivisionError):
        async with client.transaction("orders", chosen=[sent[7], sent[2]]) as taken:
            assert [message.id for message in taken] == [sent[2], sent[7]], "as the queue has them"
            raise ZeroDivisionError
    async with client.transaction("orders", chosen=[sent[2], sent[7]]) as taken:
        assert [message.delivery_count for message in taken] == [2, 2]
        with pytest.raises(UsageError, match="orders has no message"):
            async with client.transaction("orders", chosen=[sent[2], sent[3]]):
                pass
        taken.send(ORDERS, Draft(body=b"10", transactional=True))
    with pytest.raises(UsageError, match="orders has no message"):
        async with client.transaction("orders", chosen=[sent[7]]):
            pass
    assert await numbers_in(client) == [0, 1, 3, 4, 5, 6, 8, 9, 10]


def test_a_message_id_is_printed_as_msmq_prints_it() -> None:
    guid = load("three-node").nodes["sender"].guid
    text = str(MessageId(guid, 7))
    assert text.endswith("\\7")
    assert len(text) == len("00000000-0000-0000-0000-000000000000\\7")


@given(manager=st.binary(min_size=16, max_size=16), ordinal=st.integers(0, 2**32 - 1))
def test_a_message_id_is_read_as_it_is_printed_and_with_the_braces_of_windows(
    manager: bytes, ordinal: int
) -> None:
    identifier = MessageId(Guid(manager), ordinal)
    text = str(identifier)
    guid, _, number = text.partition("\\")
    for spelled in (text, text.lower(), f"{{{guid}}}\\{number}", f" {text} "):
        assert MessageId.parse(spelled) == identifier


@given(text=st.text("0123456789ABCDEFabcdef-{}\\ ") | st.text())
def test_what_is_no_message_id_is_none(text: str) -> None:
    found = MessageId.parse(text)
    assert found is None or str(found) == text.strip().replace("{", "").replace("}", "").upper()


def test_an_ordinal_of_more_than_32_bits_is_of_no_message() -> None:
    guid = "01234567-89AB-CDEF-0123-456789ABCDEF"
    found = MessageId.parse(rf"{guid}\4294967295")
    assert found is not None
    assert found.correlation_id[16:] == b"\xff" * 4
    assert MessageId.parse(rf"{guid}\4294967296") is None


async def test_a_list_of_any_length_is_sent_in_order(client: Client) -> None:
    ids = await client.send_many(ORDERS, numbered(0, 2_345))
    assert len(set(ids)) == 2_345
    assert await numbers_in(client) == list(range(2_345))


async def test_a_text_that_is_none_is_refused_and_the_client_goes_on(client: Client) -> None:
    with pytest.raises(UsageError, match=r"'\\udce9' is not a character: write the text"):
        await client.send(NOTES, b"x", label="caf\udce9")
    assert await client.send(NOTES, b"x", label="café")


async def test_large_messages_go_in_parts_that_the_node_reads(client: Client) -> None:
    await client.send_many(NOTES, [Draft(body=bytes(3 * 2**20)) for _ in range(7)])
    sizes = []
    while messages := await client.receive("notes", limit=500, timeout_s=0):
        sizes += [len(message.body) for message in messages]
    assert sizes == [3 * 2**20] * 7


async def test_a_draft_that_cannot_be_sent_keeps_its_whole_part_back(client: Client) -> None:
    with pytest.raises(UsageError, match="UTF-16 units"):
        await client.send_many(
            ORDERS, [*numbered(0, 3), Draft(body=b"", label="x" * (LABEL_LIMIT + 1), transactional=True)]
        )
    assert await numbers_in(client) == []


async def test_a_message_to_several_queues_has_an_identifier_in_each_and_lists_them(
    topology: Topology, tmp_path: Path
) -> None:
    queues = (r"destination\orders", r".\replies")
    drafts = numbered(0, 300)
    async with (
        running_with_client(topology, "sender", tmp_path) as sender,
        running(topology, "intermediate", tmp_path),
        running_with_client(topology, "destination", tmp_path) as destination,
    ):
        sent = await sender.send_many(",".join(queues), drafts)
        assert len(set(sent)) == 600
        for client, queue, expected in ((destination, "orders", sent[::2]), (sender, "replies", sent[1::2])):
            found: list[ReceivedMessage] = []
            while len(found) < len(drafts):
                found += await client.receive(queue, limit=500)
            assert [message.id for message in found] == expected
            assert [message.body for message in found] == [draft.body for draft in drafts]
            assert {len(message.destinations) for message in found} == {2}


async def test_one_identifier_is_not_given_for_several_queues(client: Client) -> None:
    with pytest.raises(UsageError, match="send_many"):
        await client.send(f"{ORDERS},{NOTES}", b"x", transactional=True)


@pytest.mark.parametrize("body", ["a text", None, {"a": 1}])
async def test_only_bytes_are_a_body(client: Client, body: object) -> None:
    with pytest.raises(UsageError, match=f"the body is a {type(body).__name__}: encode it"):
        await client.send(NOTES, body)  # type: ignore[arg-type]


async def test_where_one_of_several_queues_takes_no_such_message_none_gets_it(client: Client) -> None:
    with pytest.raises(UsageError, match="notes is not transactional"):
        await client.send_many(f"{ORDERS},{NOTES}", numbered(0, 3))
    assert await numbers_in(client) == []


async def test_copies_beyond_what_a_request_may_make_are_refused(client: Client) -> None:
    ways = ("destination\\", "DIRECT=OS:destination\\", "DIRECT=OS:destination\\private$\\")
    six = ",".join(f"{way}{queue}" for way in ways for queue in ("orders", "notes"))
    with pytest.raises(UsageError, match="504 messages in one request"):
        await client._exchange.ask(Operation.SEND, control.Send(six, numbered(0, 84)))
    large = Draft(body=bytes(4_000_000), transactional=True)
    with pytest.raises(UsageError, match=r"copies for 6 queues have 72,000,000 bytes: name fewer queues"):
        await client._exchange.ask(Operation.SEND, control.Send(six, [large] * 3))
    assert await numbers_in(client) == []


# Receiving


async def test_a_receive_waits_until_a_message_comes(client: Client) -> None:
    received = []

    async def receive() -> None:
        received.extend(await client.receive("notes"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await client.send(NOTES, b"at last")
    assert [message.body for message in received] == [b"at last"]


async def test_receives_that_came_to_nothing_are_no_open_transactions(client: Client) -> None:
    for _ in range(control.OUTSTANDING_LIMIT + 1):
        assert await client.receive("notes", timeout_s=0) == []


async def test_a_receive_that_times_out_has_nothing_and_takes_nothing_later(client: Client) -> None:
    assert await client.receive("notes", timeout_s=0.01) == []
    assert await client.receive("notes", timeout_s=0) == []
    async with client.transaction("notes", timeout_s=0.01) as messages:
        assert messages == []
    await client.send(NOTES, b"1")
    assert await numbers_in(client, "notes") == [1]


async def test_who_will_not_wait_gets_what_only_the_disk_has(topology: Topology, tmp_path: Path) -> None:
    async with running_with_client(topology, "destination", tmp_path) as client:
        await client.send_many(ORDERS, numbered(0, 1_500))
    async with running_with_client(topology, "destination", tmp_path) as client:
        assert await numbers_in(client) == list(range(1_500))


async def test_requests_of_several_tasks_share_a_connection(client: Client) -> None:
    taken: list[int] = []

    async def receive(queue: str) -> None:
        for _ in range(20):
            [message] = await client.receive(queue)
            taken.append(int(message.body))

    async with trio.open_nursery() as nursery:
        for queue in ["orders", "notes", "notes"]:
            nursery.start_soon(receive, queue)
        for number in range(40):
            await client.send(NOTES, str(number).encode())
        await client.send_many(ORDERS, numbered(40, 60))
    assert sorted(taken) == list(range(60))


async def test_a_cancelled_receive_leaves_the_message_to_the_next(client: Client) -> None:
    with trio.move_on_after(0):
        await client.receive("notes")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.receive, "notes")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await client.send(NOTES, b"1")
    assert await numbers_in(client, "notes") == [1]


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_message_that_comes_as_its_receive_is_cancelled_is_not_lost(
    client: Client, transactional: bool
) -> None:
    for steps in range(25):
        await client.send_many(ORDERS, numbered(steps, steps + 1))
        taken: list[int] = []

        async def receive(taken: list[int]) -> None:
            messages: list[ReceivedMessage]
            if transactional:
                async with client.transaction("orders") as messages:
                    await trio.lowlevel.checkpoint()
            else:
                messages = await client.receive("orders")
            taken += [int(message.body) for message in messages]

        # Cancelled after a few steps of the scheduler or many: before the request leaves, while the node has it, while
        # the answer is on its way, and after all.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, taken)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert taken + await numbers_in(client) == [steps]


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_receive_that_is_cancelled_with_its_connection_still_hears_what_became_of_its_messages(
    client: Client, topology: Topology, tmp_path: Path, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.client.client.SETTLE_TIMEOUT_S", 200.0)

    async def receive() -> None:
        async with connect(topology, "destination", tmp_path) as other:
            if transactional:
                async with other.transaction("orders"):
                    pass
            else:
                await other.receive("orders")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked(0.05)
        nursery.cancel_scope.cancel()
    await client.send_many(ORDERS, numbered(0, 1))
    assert await numbers_in(client) == [0]


# Transactions


async def test_a_transaction_commits_at_the_end_of_its_block(client: Client) -> None:
    await client.send_many(ORDERS, numbered(0, 5))
    async with client.transaction("orders", limit=3) as messages:
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        assert all(message.transactional for message in messages)
        [queue] = [queue for queue in (await client.queues()).local if queue.name == "orders"]
        assert queue.unsettled == 3
    assert await numbers_in(client) == [3, 4]


async def test_an_exception_rolls_back_and_the_order_stays(client: Client) -> None:
    await client.send_many(ORDERS, numbered(0, 5))
    with pytest.raises(ZeroDivisionError):
        async with client.transaction("orders", limit=3):
            raise ZeroDivisionError
    assert await numbers_in(client) == list(range(5))


async def test_a_cancelled_transaction_rolls_back(client: Client) -> None:
    await client.send_many(ORDERS, numbered(0, 5))
    with trio.CancelScope() as scope:
        async with client.transaction("orders", limit=3):
            scope.cancel()
            await trio.sleep_forever()
    assert await numbers_in(client) == list(range(5))


async def test_what_a_client_that_goes_away_did_not_settle_returns_in_order(
    client: Client, topology: Topology, tmp_path: Path
) -> None:
    await client.send_many(ORDERS, numbered(0, 9))
    async with connect(topology, "destination", tmp_path) as other:
        first, second = other.transaction("orders", limit=3), other.transaction("orders", limit=3)
        await first.__aenter__()
        await second.__aenter__()
        await client.send_many(ORDERS, numbered(9, 10))
        other._exchange.close()
        while any(queue.unsettled for queue in (await client.queues()).local):
            await trio.lowlevel.checkpoint()
        assert await numbers_in(client) == list(range(10))
        for transaction in (first, second):
            with pytest.raises(NodeUnreachable, match="is gone: connect again"):
                await transaction.__aexit__(None, None, None)


async def test_a_later_epoch_has_what_earlier_ones_held_in_order_and_they_get_nothing_more(
    topology: Topology, client: Client, tmp_path: Path
) -> None:
    came: list[int] = []

    async def wait_for_more(earlier: Client) -> None:
        async with earlier.transaction("orders", fence=6) as taken:
            came.append(len(taken))

    async def be_followed(earlier: Client) -> None:
        async with earlier.transaction("orders", limit=2, fence=6) as old:
            assert [message.body for message in old] == [b"0", b"1"]
            nursery.start_soon(wait_for_more, earlier)
            await trio.testing.wait_all_tasks_blocked()
            async with client.transaction("orders", limit=2, fence=7) as new:
                assert [(message.body, message.delivery_count) for message in new] == [(b"0", 2), (b"1", 2)]

    await client.send_many(ORDERS, numbered(0, 2))
    async with connect(topology, "destination", tmp_path) as earlier, trio.open_nursery() as nursery:
        with pytest.raises(RolledBack, match=r"^transaction .* is not open"):
            await be_followed(earlier)
        with pytest.raises(RolledBack, match=r"^epoch 7 receives from orders: 6 gets nothing more$"):
            await wait_for_more(earlier)
    assert came == [0]
    assert await numbers_in(client) == []


async def test_what_a_transaction_sends_is_there_if_it_commits_and_only_then(client: Client) -> None:
    reply = Draft(body=b"7", transactional=True)
    await client.send_many(ORDERS, numbered(0, 3))

    async def answer(queue: str, *, fails: bool) -> None:
        async with client.transaction("orders") as taken:
            taken.send(queue, reply)
            if fails:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await answer(ORDERS, fails=True)
    with pytest.raises(UsageError, match="not transactional"):
        await answer(NOTES, fails=False)
    assert [message.delivery_count for message in await client.peek("orders", limit=9)] == [3, 1, 1]
    async with client.transaction("orders") as taken:
        taken.send(ORDERS, reply)
    with pytest.raises(UsageError, match="is over"):
        taken.send(ORDERS, reply)
    assert await numbers_in(client) == [1, 2, 7]
    async with client.transaction("orders", timeout_s=0) as taken:
        with pytest.raises(UsageError, match="received nothing"):
            taken.send(ORDERS, reply)


# A node that goes away and comes back


async def test_a_client_goes_on_with_a_node_that_was_killed_and_each_operation_is_carried_out_once(
    topology: Topology, tmp_path: Path
) -> None:
    """Duplicate Operation Detection Support: an operation may be repeated without harm; it keeps its first outcome."""
    node = NodeProcess(topology, "destination", tmp_path)
    await node.start()
    taken: list[int] = []
    try:
        async with node.client() as client:

            async def take() -> None:
                while len(taken) < 600:
                    taken.extend(int(message.body) for message in await client.receive("orders", limit=3))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                for first in range(0, 600, 5):
                    if first % 100 == 50:
                        nursery.start_soon(killed_and_started, node)
                    await client.send_many(ORDERS, numbered(first, first + 5))
    finally:
        await node.end(signal.SIGKILL)
    assert taken == list(range(600))


async def killed_and_started(node: NodeProcess) -> None:
    await node.end(signal.SIGKILL)
    await node.start()


async def test_the_messages_of_a_transaction_whose_node_was_restarted_are_where_they_were(
    topology: Topology, tmp_path: Path
) -> None:
    async with trio.open_nursery() as nursery:
        first = await nursery.start(hosting, topology, tmp_path)
        async with connect(topology, "destination", tmp_path) as client:
            await client.send_many(ORDERS, numbered(0, 2))
            transaction = client.transaction("orders")
            assert [message.delivery_count for message in await transaction.__aenter__()] == [1]
            first.set()
            await nursery.start(hosting, topology, tmp_path)
            await client.queues()
            with pytest.raises(RolledBack, match="its messages are where they were"):
                await transaction.__aexit__(None, None, None)
            async with client.transaction("orders") as taken:
                assert [message.delivery_count for message in taken] == [-1], "nobody knows any more"
            assert await numbers_in(client) == [1]
        nursery.cancel_scope.cancel()


async def hosting(topology: Topology, directory: Path, *, task_status: trio.TaskStatus[trio.Event]) -> None:
    """Run a node until the event is set.

    If another node still uses the node's store, first wait until that node has ended.
    """
    while True:
        try:
            async with running(topology, "destination", directory):
                task_status.started(end := trio.Event())
                await end.wait()
            return
        except* StoreError:
            await trio.lowlevel.checkpoint()


async def test_a_round_of_refusals_and_a_restart_do_not_pass_an_old_outcome_for_a_new_one(
    topology: Topology, tmp_path: Path
) -> None:
    """Duplicate Operation Detection Support: at a distance of 128, an old identifier has expired, whatever came in
    between.
    """
    async with trio.open_nursery() as nursery:
        first = await nursery.start(hosting, topology, tmp_path)
        async with connect(topology, "destination", tmp_path) as client:
            await client.send(ORDERS, b"0", transactional=True)
            for _ in range(255):
                with pytest.raises(UsageError, match="not transactional"):
                    await client.send(NOTES, b"", transactional=True)
            first.set()
            await nursery.start(hosting, topology, tmp_path)
            await client.send(ORDERS, b"1", transactional=True)
            assert await numbers_in(client) == [0, 1]
        nursery.cancel_scope.cancel()


async def test_an_express_message_whose_node_died_with_it_is_in_doubt(tmp_path: Path) -> None:
    """The node had the message only in memory, so it cannot tell whether it had sent the message on."""
    async with a_node_that_breaks_off(Operation.SEND).client(tmp_path) as client:
        with pytest.raises(InDoubt, match="broke before it answered SEND"):
            await client.send(NOTES, b"")


async def test_the_status_tells_how_often_the_disk_was_flushed(client: Client) -> None:
    before = (await client.queues()).flushes
    await client.send("orders", b"one", transactional=True)
    assert (await client.queues()).flushes > before > 0


# Names


async def test_queues_go_by_any_of_their_names(client: Client) -> None:
    names = [ORDERS, r"destination\private$\orders", r"DESTINATION\Private$\Orders"]
    names += [r"DIRECT=OS:destination\private$\orders", "ORDERS"]
    for name in names[:-1]:
        await client.send(name, b"1", transactional=True)
    for name in names:
        assert len(await client.peek(name, limit=10)) == len(names) - 1


@pytest.mark.parametrize(
    ("queue", "kind", "text"),
    [
        (r"destinaton\private$\orders", TopologyError, "did you mean 'destination'"),
        (r"destination\private$\order", TopologyError, "did you mean 'orders'"),
        ("DIRECT=nonsense", FormatNameError, "DIRECT="),
        (r"destination\private$\notes", UsageError, "not transactional"),
        (r"destination\system$;DEADLETTER", UsageError, "nobody sends to a system queue"),
    ],
)
async def test_a_wrong_destination_is_said_in_one_line(
    client: Client, queue: str, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as raised:
        await client.send(queue, b"", transactional=True)
    assert type(raised.value) is kind
    assert "\n" not in str(raised.value)


async def test_a_queue_of_another_node_is_received_from_there(client: Client) -> None:
    with pytest.raises(UsageError, match="is a queue of sender: receive from it there"):
        await client.receive(r"sender\private$\replies")
    with pytest.raises(TopologyError, match="did you mean 'notes'"):
        await client.receive("note")


# Without a node


async def test_a_node_that_does_not_run_is_said_with_the_command_that_starts_it(
    topology: Topology, tmp_path: Path
) -> None:
    with pytest.raises(NodeUnreachable) as raised:
        async with connect(topology, "destination", tmp_path):
            pass
    assert str(raised.value) == (
        "node destination is not running: start it with "
        f"`mqproto node destination --directory {tmp_path}`, or all nodes with "
        f"`mqproto run --directory {tmp_path}`"
    )


async def test_a_client_of_a_node_that_has_stopped_hears_of_it(topology: Topology, tmp_path: Path) -> None:
    async def receive(client: Client) -> None:
        with pytest.raises(NodeUnreachable):
            await client.receive("orders")

    async with (
        running(topology, "destination", tmp_path) as node,
        connect(topology, "destination", tmp_path, patience_s=0) as client,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, client)
            await trio.testing.wait_all_tasks_blocked()
            node.stop()
        await client.lost()
        with pytest.raises(NodeUnreachable):
            await client.queues()


class FakeNode:
    """A server that answers as a node does, with the results of `answers`.

    On each connection, it reports a new life of the node's store.
    """

    def __init__(
        self, answers: Callable[[control.ControlFrame, int], msgspec.Struct | EndOfConnection | None]
    ) -> None:
        self.connections = 0
        self.requests: list[control.ControlFrame] = []
        self._answers = answers

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        self.connections += 1
        life = self.connections
        buffer = FrameBuffer()
        async with stream:
            async for chunk in stream:
                for request in buffer.feed(chunk):
                    answer: msgspec.Struct | EndOfConnection | None
                    if request.operation == Operation.HELLO:
                        answer = control.Hello(control.VERSION, "fake", b"guid", life, control.PROFILE)
                    else:
                        self.requests.append(request)
                        answer = self._answers(request, life)
                    if isinstance(answer, EndOfConnection):
                        return
                    if answer is not None:
                        await stream.send_all(control.frame(Operation.DONE, request.request, answer))

    @asynccontextmanager
    async def client(self, tmp_path: Path, patience_s: float = 60) -> AsyncIterator[Client]:
        """Provide a client of the node."""
        path = places.prepared(places.socket_path(tmp_path, "fake"))
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(str(path))
        listening.listen()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, self.serve, [trio.SocketListener(listening)])
                async with connect_to(path, patience_s=patience_s) as client:
                    yield client
                nursery.cancel_scope.cancel()
        finally:
            path.unlink()


class EndOfConnection:
    """Takes the place of an answer: the connection is closed."""


def a_node_that_breaks_off(after: Operation) -> FakeNode:
    """Return a node that dies on each request of one kind."""

    def answer(request: control.ControlFrame, _: int) -> msgspec.Struct | EndOfConnection:
        if request.operation == after:
            return EndOfConnection()
        return control.Messages(1, [encode_packet(a_user_message())], [1])

    return FakeNode(answer)


async def test_an_operation_without_an_answer_is_invoked_again_after_a_time_out_under_its_identifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Duplicate Operation Detection Support: two operations with the same identifier are totally identical."""
    monkeypatch.setattr("mqproto.simulator.client.exchange.SILENCE_S", 0.01)
    node = FakeNode(lambda request, life: control.Sent([(request.identifier or 0, 1)]) if life == 3 else None)
    async with node.client(tmp_path) as client:
        sent = await client.send(ORDERS, b"x", transactional=True)
    assert sent.ordinal == 0
    assert node.connections == 3
    assert len(node.requests) == 3
    assert len(set(node.requests)) == 1, "the same request, the same identifier, the same parameter"


async def test_no_more_operations_are_outstanding_than_the_node_remembers(tmp_path: Path) -> None:
    """Duplicate Operation Detection Support: the invoker knows how many identifiers are kept."""
    node = FakeNode(lambda request, life: None)
    async with trio.open_nursery() as nursery, node.client(tmp_path) as client:
        for _ in range(2 * control.PROFILE):
            nursery.start_soon(send, client)
        while len(node.requests) < control.PROFILE:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert [request.identifier for request in node.requests] == list(range(control.PROFILE))
        nursery.cancel_scope.cancel()


async def send(client: Client) -> None:
    await client.send(ORDERS, b"")


async def commit(client: Client) -> None:
    async with client.transaction("orders"):
        pass


async def reject(client: Client) -> None:
    async with client.transaction("orders"):
        raise Reject


async def send_together(client: Client) -> None:
    await client.send_together([(ORDERS, Draft(body=b"", transactional=True))])


async def purge(client: Client) -> None:
    await client.purge("orders")


async def delete(client: Client) -> None:
    await client.delete("orders")


async def send_back(client: Client) -> None:
    await client.send_back("deadxact")


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        (Operation.SEND, send),
        (Operation.SETTLE, commit),
        (Operation.SETTLE, reject),
        (Operation.SEND_TOGETHER, send_together),
        (Operation.PURGE, purge),
        (Operation.DELETE, delete),
        (Operation.SEND_BACK, send_back),
    ],
)
async def test_an_answer_that_never_comes_leaves_doubt(
    tmp_path: Path, operation: Operation, act: Callable[[Client], Awaitable[None]]
) -> None:
    async with a_node_that_breaks_off(operation).client(tmp_path, patience_s=0) as client:
        with pytest.raises(InDoubt, match=f"broke before it answered {operation.name}"):
            await act(client)


async def test_what_may_be_asked_again_leaves_no_doubt(tmp_path: Path) -> None:
    async with a_node_that_breaks_off(Operation.QUEUES).client(tmp_path, patience_s=0) as client:
        with pytest.raises(NodeUnreachable, match="connect again"):
            await client.queues()
    async with a_node_that_breaks_off(Operation.HOLD).client(tmp_path, patience_s=0) as client:
        with pytest.raises(NodeUnreachable, match="connect again"):
            await client.pause("orders")


async def test_a_rollback_needs_no_answer(tmp_path: Path) -> None:
    async with a_node_that_breaks_off(Operation.SETTLE).client(tmp_path, patience_s=0) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.transaction("b"):
                raise ZeroDivisionError


async def test_a_lease_is_held_until_it_is_settled_even_if_a_message_with_it_is_refused(
    client: Client,
) -> None:
    await client.send_many(ORDERS, numbered(0, 2))
    lease = await client.lease("orders")
    assert ([message.body for message in lease.messages], lease.is_held) == ([b"0"], True)
    with pytest.raises(TopologyError):
        await lease.settle(Settlement.COMMIT, [("nowhere", draft) for draft in numbered(2, 3)])
    await lease.settle(Settlement.COMMIT)
    await lease.roll_back()
    again = await client.lease("orders")
    await again.roll_back()
    assert await numbers_in(client) == [1]
