"""A node's memory of a gateway's messages, and the gateway's journal for messages that the node has forgotten."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mqproto.base.errors import QuotaExceeded
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import InDoubt, MessageId, NodeUnreachable
from mqproto.simulator.client.journal import HistorySeen, opened
from mqproto.simulator.edges.gateway import outlet
from mqproto.simulator.edges.gateway.confirmations import ConfirmationReader
from mqproto.simulator.edges.gateway.gateway import Ticket
from mqproto.simulator.edges.gateway.names import QueueNames
from mqproto.simulator.edges.gateway.outlet import Ended, Outlet, owner_in
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError, open_history
from mqproto.simulator.topology import Topology, load, places
from mqproto.simulator.topology.places import Place
from tests.simulator.running import Log, NodeProcess, running, until

ORDERS = Ticket(r"destination\orders", "order-1", "f")


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    small = tmp_path / "small.toml"
    small.write_text(
        '[node.destination]\naddress = "127.0.0.1:1"\n[node.destination.queue.orders]\nquota_kb = 8\n'
        "[node.destination.queue.notes]\n"
    )
    return load(str(small)).with_free_ports()


class Recovery:
    """Records what an outlet reports about ended messages."""

    def __init__(self, failures: int = 0, in_question: Iterable[Ticket] = ()) -> None:
        self.told: list[Ended] = []
        self._failures = failures
        self._in_question = list(in_question)

    async def in_question(self) -> list[Ticket]:
        return self._in_question

    async def __call__(self, ended: Ended) -> None:
        self.told.append(ended)
        if len(self.told) <= self._failures:
            raise HistoryError("the database is away")


@asynccontextmanager
async def an_outlet(topology: Topology, folder: Path, recovery: Recovery) -> AsyncIterator[Outlet]:
    async with open_history(places.history_url(folder)) as history, trio.open_nursery() as nursery:
        log = node_log(Log(), "gateway")
        place = Place(topology, folder)
        names = QueueNames(place, "destination")
        confirmations = ConfirmationReader("the-confirmations", history, log)
        outlet = Outlet(
            place, "destination", names, folder / "the.journal", confirmations, log, lambda: history.seen
        )
        await nursery.start(outlet.run, recovery.in_question, recovery)
        yield outlet
        nursery.cancel_scope.cancel()


def remove_store(folder: Path) -> None:
    for path in folder.glob("destination.sqlite*"):
        path.unlink()


def copy_journal(folder: Path) -> None:
    """Copy the journal while a gateway has it open; the copy is what a kill would leave."""
    for path in folder.glob("the.journal*"):
        shutil.copy(path, folder / path.name.replace("the", "copied"))


def order(size_bytes: int = 10) -> Draft:
    return Draft(body=bytes(size_bytes), recoverable=True)


async def test_what_became_of_a_message_is_told_by_the_node_to_the_next_life(
    topology: Topology, tmp_path: Path
) -> None:
    first, second = Recovery(), Recovery()
    async with running(topology, "destination", tmp_path):
        async with an_outlet(topology, tmp_path, first) as outlet:
            sent = await outlet.submit(ORDERS, order())
            await outlet.submit(Ticket(ORDERS.queue, "", ""), order())  # Without an id: nobody will ask.
        async with an_outlet(topology, tmp_path, second):
            pass
    assert (first.told, second.told) == ([[]], [[(ORDERS, sent)]])
    assert isinstance(sent, MessageId)


async def test_it_is_told_though_node_and_gateway_are_killed(topology: Topology, tmp_path: Path) -> None:
    second = Recovery()
    node = NodeProcess(topology, "destination", tmp_path)
    try:
        await node.start()
        async with an_outlet(topology, tmp_path, Recovery()) as outlet:
            sent = await outlet.submit(ORDERS, order())
            await node.end(signal.SIGKILL)
        await node.start()
        async with an_outlet(topology, tmp_path, second) as outlet:
            again = await outlet.submit(Ticket(ORDERS.queue, "order-2", "f"), order())
    finally:
        with trio.CancelScope(shield=True):
            await node.end(signal.SIGKILL)
    assert second.told == [[(ORDERS, sent)]]
    assert again != sent


async def test_what_is_not_forgotten_is_never_too_old_to_be_told(
    topology: Topology, tmp_path: Path, idle_clock: MockClock
) -> None:
    """A node remembers 64 operations.

    If a new operation would make the node forget an earlier one, the new one waits. It is sent when the earlier one no
    longer matters.
    """
    tickets = [Ticket(r"destination\notes", f"note-{number}", "f") for number in range(80)]
    accepted: list[Ticket] = []
    second = Recovery()

    async def submit(outlet: Outlet, ticket: Ticket) -> None:
        await outlet.submit(ticket, order(0))
        accepted.append(ticket)

    async with running(topology, "destination", tmp_path):
        async with an_outlet(topology, tmp_path, Recovery()) as outlet, trio.open_nursery() as nursery:
            for ticket in tickets:
                nursery.start_soon(submit, outlet, ticket)
            await trio.sleep(1)
            assert len(accepted) == 64
            forgotten = accepted[0]
            outlet.forget(forgotten)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        async with an_outlet(topology, tmp_path, second):
            pass
    [told] = second.told
    assert {ticket for ticket, _ in told} >= set(accepted) - {forgotten}


async def test_what_a_node_has_forgotten_is_in_doubt_for_good(topology: Topology, tmp_path: Path) -> None:
    """A node with another store knows nothing of the messages that this gateway has handed in."""
    second, third = Recovery(in_question=[ORDERS]), Recovery()
    async with (
        running(topology, "destination", tmp_path),
        an_outlet(topology, tmp_path, Recovery()) as outlet,
    ):
        await outlet.submit(ORDERS, order())
    remove_store(tmp_path)
    async with running(topology, "destination", tmp_path):
        async with an_outlet(topology, tmp_path, second):
            pass
        async with an_outlet(topology, tmp_path, third) as outlet:
            outlet.forget(ORDERS)
    for recovery in (second, third):
        [[(ticket, end)]] = recovery.told
        assert ticket == ORDERS
        assert isinstance(end, InDoubt)


async def test_a_message_that_is_refused_is_of_no_interest_any_more(
    topology: Topology, tmp_path: Path
) -> None:
    """Another gateway may begin the message again at once; a later life of this gateway must not think that it was
    accepted.
    """
    second = Recovery()
    async with running(topology, "destination", tmp_path):
        async with an_outlet(topology, tmp_path, Recovery()) as outlet:
            await outlet.submit(Ticket(ORDERS.queue, "", ""), order(5_000))
            with pytest.raises(QuotaExceeded):
                await outlet.submit(ORDERS, order(5_000))
        async with an_outlet(topology, tmp_path, second):
            pass
    assert second.told == [[]]


async def test_while_the_node_is_away_for_long_nothing_is_handed_in(
    topology: Topology, tmp_path: Path, idle_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While the node is gone, each look for it is a moment in which this clock finds all idle.
    monkeypatch.setattr("mqproto.simulator.edges.gateway.outlet.PATIENCE_S", 0.3)
    async with (
        running(topology, "destination", tmp_path) as node,
        an_outlet(topology, tmp_path, Recovery()) as outlet,
    ):
        node.stop()
        await trio.sleep(0.1)
        assert outlet.is_connected
        with pytest.raises(NodeUnreachable):
            await outlet.submit(ORDERS, order())
        await trio.sleep(1)
        assert not outlet.is_connected
        with pytest.raises(NodeUnreachable, match="node destination is not running, or does not answer"):
            await outlet.submit(ORDERS, order())


async def test_without_the_history_nothing_is_handed_in(topology: Topology, tmp_path: Path) -> None:
    recovery = Recovery(failures=2)
    async with running(topology, "destination", tmp_path), an_outlet(topology, tmp_path, recovery) as outlet:
        assert recovery.told == [[], [], []]
        assert outlet.is_connected


async def test_the_journal_knows_how_far_the_history_has_come(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history's progress is recorded while the gateway runs, because the gateway may be killed."""
    monkeypatch.setattr(outlet, "SEEN_EVERY_S", 0)
    now_s = itertools.count()
    seen = property(lambda history: HistorySeen("its life", next(now_s), "here"))
    monkeypatch.setattr(DocumentHistory, "seen", seen)

    async def is_seen() -> bool:
        copy_journal(tmp_path)
        with opened(tmp_path / "copied.journal") as journal:
            return journal.seen is not None and journal.seen.now_s > 1

    async with running(topology, "destination", tmp_path), an_outlet(topology, tmp_path, Recovery()):
        await until(is_seen)


def test_the_journal_names_the_gateway(tmp_path: Path) -> None:
    owner = owner_in(tmp_path / "one")
    assert owner_in(tmp_path / "one") == owner
    assert owner_in(tmp_path / "other") != owner
