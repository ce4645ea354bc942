"""The gateway's journal: what was told to a producer is on disk, whichever way it went."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mqproto.base.errors import QuotaExceeded
from mqproto.messages.drafts import Draft
from simulator.base.log import node_log
from simulator.client import MessageId, NodeUnreachable
from simulator.client.journal import opened
from simulator.edges.gateway.confirmations import Confirmations
from simulator.edges.gateway.gateway import Ticket
from simulator.edges.gateway.names import Names
from simulator.edges.gateway.outlet import Ended, Outlet, owner_in
from simulator.edges.history.history import HistoryError, open_history
from simulator.topology import Topology, load, places
from simulator.topology.places import Place
from tests.simulator.running import Log, running

ORDERS = Ticket(r"destination\orders", "order-1", "f")


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    small = tmp_path / "small.toml"
    small.write_text(
        '[node.destination]\naddress = "127.0.0.1:1"\n[node.destination.queue.orders]\nquota_kb = 8\n'
    )
    return load(str(small)).with_free_ports()


class Recovery:
    """What an outlet tells of what has ended."""

    def __init__(self, failures: int = 0) -> None:
        self.told: list[Ended] = []
        self._failures = failures

    async def __call__(self, ended: Ended) -> None:
        self.told.append(ended)
        if len(self.told) <= self._failures:
            raise HistoryError("the database is away")


@asynccontextmanager
async def an_outlet(topology: Topology, folder: Path, recovery: Recovery) -> AsyncIterator[Outlet]:
    async with open_history(places.history_url(folder)) as history, trio.open_nursery() as nursery:
        log = node_log(Log(), "gateway")
        place = Place(topology, folder)
        names = Names(place, "destination")
        confirmations = Confirmations("the-confirmations", history, log)
        outlet = Outlet(place, "destination", names, folder / "the.journal", confirmations, log)
        await nursery.start(outlet.run, recovery)
        yield outlet
        nursery.cancel_scope.cancel()


def pending_after_a_kill(folder: Path) -> int:
    """How many operations the journal would have asked for again, had its process been killed now."""
    for path in folder.glob("the.journal*"):
        shutil.copy(path, folder / path.name.replace("the", "copy"))
    with opened(folder / "copy.journal") as journal:
        return len(journal.state()[1])


def order(size_bytes: int = 10) -> Draft:
    return Draft(body=bytes(size_bytes), recoverable=True)


async def test_what_became_of_a_message_is_told_until_it_is_forgotten(
    topology: Topology, tmp_path: Path
) -> None:
    first, second, third = Recovery(), Recovery(), Recovery()
    async with running(topology, "destination", tmp_path):
        async with an_outlet(topology, tmp_path, first) as outlet:
            sent = await outlet.submit(ORDERS, order())
            await outlet.submit(Ticket(ORDERS.queue, "", ""), order())  # Without an id: nobody will ask.
        async with an_outlet(topology, tmp_path, second) as outlet:
            outlet.forget(ORDERS)
        async with an_outlet(topology, tmp_path, third):
            pass
    assert (first.told, second.told, third.told) == ([[]], [[(ORDERS, sent)]], [[]])
    assert isinstance(sent, MessageId)


async def test_before_a_refusal_is_told_it_is_on_disk_that_the_message_is_not_to_be_sent(
    topology: Topology, tmp_path: Path
) -> None:
    """Another gateway may begin it anew at once; a later life of this one must not hand it in then."""
    async with (
        running(topology, "destination", tmp_path),
        an_outlet(topology, tmp_path, Recovery()) as outlet,
    ):
        await outlet.submit(ORDERS, order(5_000))
        with pytest.raises(QuotaExceeded):
            await outlet.submit(ORDERS, order(5_000))
        assert pending_after_a_kill(tmp_path) == 0


async def test_the_same_holds_when_the_node_goes_away_for_long(
    topology: Topology, tmp_path: Path, idle_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While the node is gone, each look for it is a moment in which this clock finds all idle.
    monkeypatch.setattr("simulator.edges.gateway.outlet.PATIENCE_S", 0.3)
    async with (
        running(topology, "destination", tmp_path) as node,
        an_outlet(topology, tmp_path, Recovery()) as outlet,
    ):
        node.stop()
        await trio.sleep(0.1)
        assert outlet.is_connected
        with pytest.raises(NodeUnreachable):
            await outlet.submit(ORDERS, order())
        assert pending_after_a_kill(tmp_path) == 0
        await trio.sleep(1)
        assert not outlet.is_connected
        with pytest.raises(NodeUnreachable, match="node destination is not running, or does not answer"):
            await outlet.submit(ORDERS, order())


async def test_without_the_history_nothing_is_handed_in(topology: Topology, tmp_path: Path) -> None:
    recovery = Recovery(failures=2)
    async with running(topology, "destination", tmp_path), an_outlet(topology, tmp_path, recovery) as outlet:
        assert recovery.told == [[], [], []]
        assert outlet.is_connected


def test_the_journal_names_the_gateway(tmp_path: Path) -> None:
    owner = owner_in(tmp_path / "one")
    assert owner_in(tmp_path / "one") == owner
    assert owner_in(tmp_path / "other") != owner
