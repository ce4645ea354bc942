"""The asyncio client: when a cancelled task continues, its operation has ended and has given its messages back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.client import NodeUnreachable
from mqproto.simulator.client.aio import AsyncioClient, connect
from mqproto.simulator.testing.managers import QueueManagers, started

ORDERS = r".\private$\orders"
Program = Callable[[AsyncioClient], Awaitable[None]]


@pytest.fixture(scope="module")
def managers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueManagers]:
    with started(tmp_path_factory.mktemp("node"), 1) as managers:
        yield managers


@pytest.fixture
def carried_out(managers: QueueManagers) -> Callable[[Program], None]:
    """Return a function that runs an asyncio program with a client, and checks that no message is left."""

    async def whole(program: Program) -> None:
        async with connect(managers.topology, directory=managers.directory) as client:
            await program(client)
            assert await client.receive("orders", timeout_s=0) == []

    return lambda program: asyncio.run(whole(program))


def test_a_client_that_was_closed_says_so(managers: QueueManagers) -> None:
    async def closed() -> AsyncioClient:
        async with connect(managers.file, directory=managers.directory) as client:
            return client

    with managers.connect("qm1") as blocking:
        pass
    for late in (blocking.queues, lambda: asyncio.run(asyncio.run(closed()).queues())):
        with pytest.raises(NodeUnreachable, match="qm1 was closed: connect again"):
            late()


async def one_comes_after_all(client: AsyncioClient) -> None:
    await client.send(ORDERS, b"one", transactional=True)
    assert [message.body for message in await client.receive("orders", timeout_s=60)] == [b"one"]


def test_a_wait_that_is_cancelled_takes_nothing_that_comes_later(
    carried_out: Callable[[Program], None],
) -> None:
    async def program(client: AsyncioClient) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.receive("orders"), 0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), client.transaction("orders"):
                raise AssertionError("nothing has come")
        await one_comes_after_all(client)

    carried_out(program)


def test_a_task_that_is_cancelled_within_a_transaction_gives_its_messages_back(
    carried_out: Callable[[Program], None],
) -> None:
    async def program(client: AsyncioClient) -> None:
        await client.send(ORDERS, b"one", transactional=True)
        taken = asyncio.Event()

        async def consumer() -> None:
            async with client.transaction("orders", timeout_s=60):
                taken.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(consumer())
        await taken.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # It has been given back already, so that no wait is needed.
        [message] = await client.receive("orders", timeout_s=0)
        assert message.delivery_count == 2

    carried_out(program)


def test_what_was_wrong_is_raised_as_itself(carried_out: Callable[[Program], None]) -> None:
    async def program(client: AsyncioClient) -> None:
        with pytest.raises(UsageError, match="no queue 'nothing'"):
            await client.receive("nothing")
        with pytest.raises(ZeroDivisionError):
            async with client.transaction("orders", timeout_s=0):
                raise ZeroDivisionError
        await one_comes_after_all(client)

    carried_out(program)


@pytest.mark.long
def test_tasks_share_a_client(carried_out: Callable[[Program], None]) -> None:
    async def program(client: AsyncioClient) -> None:
        async def five() -> list[bytes]:
            taken = []
            for _ in range(5):
                async with client.transaction("orders", timeout_s=60) as [message]:
                    taken.append(message.body)
            return taken

        bodies = [b"%d" % number for number in range(20)]
        takers = asyncio.gather(*(five() for _ in range(4)))
        for body in bodies:
            await client.send(ORDERS, body, transactional=True)
        assert sorted(body for taken in await takers for body in taken) == sorted(bodies)

    carried_out(program)
