"""The client for plain threads: interrupted operations give their messages back, and errors are raised unchanged."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Timer
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from mqproto.base.errors import UsageError
from mqproto.simulator.client import Client, Reject
from mqproto.simulator.client.aio import AsyncioClient
from mqproto.simulator.client.blocking import BlockingClient
from mqproto.simulator.testing.managers import started
from tests.simulator.typed import interruptible

ORDERS = r".\private$\orders"


@pytest.fixture(scope="module")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingClient]:
    with started(tmp_path_factory.mktemp("node"), 1) as managers, managers.connect("qm1") as client:
        yield client


@pytest.fixture
def client(node_client: BlockingClient) -> BlockingClient:
    """Return a client of a node whose queues are empty."""
    assert node_client.receive("orders", timeout_s=0) == []
    return node_client


def sent(client: BlockingClient, *bodies: bytes) -> None:
    for body in bodies:
        client.send(ORDERS, body, transactional=True)


@pytest.mark.parametrize("other", [BlockingClient, AsyncioClient])
def test_all_that_a_client_of_trio_can_do_those_of_other_programs_can(other: type) -> None:
    # A lease is for programs whose transactions are not blocks of code. Theirs are.
    asked = {name for name in vars(Client) if not name.startswith("_")} - {"lease"}
    assert {name for name in dir(other) if not name.startswith("_")} >= asked
    assert "when this returns" in (other.send.__doc__ or "").casefold(), "help() says what it does"  # type: ignore[attr-defined]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_a_transaction_early_gives_its_messages_back(
    failure: type[BaseException], client: BlockingClient
) -> None:
    sent(client, b"one")
    with pytest.raises(failure), client.transaction("orders", timeout_s=60):
        raise failure
    [message] = client.receive("orders", timeout_s=60)
    assert (message.body, message.delivery_count) == (b"one", 2)


def test_what_is_rejected_goes_and_the_program_goes_on(client: BlockingClient) -> None:
    sent(client, b"one")
    with client.transaction("orders", timeout_s=60):
        raise Reject


def test_what_was_wrong_is_raised_as_itself_and_the_messages_stay(client: BlockingClient) -> None:
    sent(client, b"one")
    with (
        pytest.raises(UsageError, match="names no queue for an answer"),
        client.transaction("orders", timeout_s=60) as messages,
    ):
        messages.reply(messages[0], b"an answer")
    with pytest.raises(UsageError, match="no queue 'nothing'"):
        client.receive("nothing")
    assert [message.body for message in client.receive("orders", timeout_s=60)] == [b"one"]


def interrupted(wait: Callable[[], object]) -> None:
    """Interrupt a function with Ctrl-C, usually while it waits; wherever the interrupt comes, the result is the
    same.
    """
    with interruptible():
        Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        wait()


def test_a_wait_that_is_interrupted_takes_nothing_that_comes_later(client: BlockingClient) -> None:
    def in_transaction() -> None:
        with client.transaction("orders"):
            raise AssertionError("nothing has come")

    for wait in (partial(client.receive, "orders"), in_transaction):
        with pytest.raises(KeyboardInterrupt):
            interrupted(wait)
    sent(client, b"one")
    assert [message.body for message in client.receive("orders", timeout_s=60)] == [b"one"]


def test_nor_does_one_that_is_interrupted_while_it_is_handed_over(
    client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over = BlockingPortal.start_task_soon

    def and_then_ctrl_c(self: BlockingPortal, *arguments: Any) -> Any:
        monkeypatch.undo()
        handed_over(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockingPortal, "start_task_soon", and_then_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        client.receive("orders")
    sent(client, b"one")
    assert [message.body for message in client.receive("orders", timeout_s=60)] == [b"one"]


def test_threads_share_a_client_and_each_message_goes_to_one_of_them(client: BlockingClient) -> None:
    bodies = [b"%d" % number for number in range(20)]

    def five(_: int) -> list[bytes]:
        taken = []
        for _ in range(5):
            with client.transaction("orders", timeout_s=60) as [message]:
                taken.append(message.body)
        return taken

    with ThreadPoolExecutor(4) as threads:
        takers = threads.map(five, range(4))
        sent(client, *bodies)
        assert sorted(body for taken in takers for body in taken) == sorted(bodies)
