"""The memory and work that strangers can cause on a node's connections are bounded, and neighbours are still served."""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.node import transport
from mqproto.simulator.node.connection import read_buffer
from mqproto.simulator.node.shares import PIECE_BYTES
from mqproto.simulator.node.transport import FAREWELLS, Transports
from mqproto.simulator.node.turns import Clock, TurnFeed
from mqproto.turn.effects import CloseTransport, SendBytes

STRANGER, NEIGHBOUR = "127.0.0.77", "127.0.0.2"


class Listening:
    """A core that records what its shell tells it. It knows callers from NEIGHBOUR."""

    def __init__(self) -> None:
        self.hosts: dict[int, str] = {}
        self.read_bytes: dict[str, list[int]] = {STRANGER: [], NEIGHBOUR: []}
        self.turned_away: list[str] = []
        self.losses: list[str] = []

    def accepted(self, host: str, now: Moment) -> int:
        self.hosts[len(self.hosts) + 1] = host
        return len(self.hosts)

    def is_known(self, session: int) -> bool:
        return self.hosts[session] == NEIGHBOUR

    def in_flight_bytes(self, session: int) -> int:
        return 0

    def is_blocked(self, host: str) -> bool:
        return False

    def may_be_known(self, session: int) -> bool:
        return False

    def is_declared(self, host: str) -> bool:
        return host == NEIGHBOUR

    def turns_away(self, host: str, reason: str, now: Moment) -> bool:
        if host != NEIGHBOUR:
            self.turned_away.append(host)
        return host != NEIGHBOUR

    def receive(self, session: int, data: memoryview, now: Moment) -> int:
        self.read_bytes[self.hosts[session]].append(len(data))
        return len(data)

    def lost(self, session: int, reason: str, now: Moment) -> None:
        assert reason == "it does not read what is sent to it"
        self.losses.append(f"{self.hosts[session]} does not read")


class Shell:
    """The connections of a node whose core only listens, and whose turns end at once."""

    def __init__(self, core: Listening, listener: socket.socket) -> None:
        self.core = core
        self.turns = TurnFeed()
        self.address = listener.getsockname()
        made: Any = core
        self.callers: list[socket.socket] = []
        self.transports = Transports(made, self.turns, Clock(), NEIGHBOUR, Settings(), read_buffer())

    def caller(self, host: str) -> socket.socket:
        self.callers.append(socket.create_connection(self.address, source_address=(host, 0)))
        return self.callers[-1]

    async def work(self) -> None:
        while True:
            await self.turns.work()
            self.turns.begin()
            self.turns.end()


@asynccontextmanager
async def a_shell() -> AsyncIterator[Shell]:
    with closing(listen(NEIGHBOUR, 0)) as listener:
        shell = Shell(Listening(), listener)
        async with trio.open_nursery() as nursery:
            await nursery.start(shell.transports.run, listener)
            nursery.start_soon(shell.work)
            yield shell
            nursery.cancel_scope.cancel()
        for caller in shell.callers:
            caller.close()


@pytest.fixture
def dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every action seem to take a second."""
    seconds = itertools.count()
    monkeypatch.setattr(transport, "perf_counter", lambda: next(seconds))


async def test_a_stranger_is_read_in_pieces_and_again_when_those_are_paid_while_a_neighbour_is_read_at_once(
    dear: None, mock_clock: MockClock
) -> None:
    async with a_shell() as shell:
        stranger, neighbour = shell.caller(STRANGER), shell.caller(NEIGHBOUR)
        read_bytes = shell.core.read_bytes
        await wait_all_tasks_blocked()
        for caller in (stranger, neighbour):
            caller.sendall(bytes(3 * PIECE_BYTES))
        await wait_all_tasks_blocked()
        assert sum(read_bytes[NEIGHBOUR]) == 3 * PIECE_BYTES
        assert read_bytes[STRANGER] == []  # That it called has to be paid first.
        for pieces in (1, 2, 3):
            mock_clock.jump(2 * 3 / 0.25)
            await wait_all_tasks_blocked()
            assert read_bytes[STRANGER] == [PIECE_BYTES] * pieces
            neighbour.sendall(b"x")
            await wait_all_tasks_blocked()
            assert sum(read_bytes[NEIGHBOUR]) == 3 * PIECE_BYTES + pieces


async def test_a_host_that_costs_too_much_gets_no_further_connection_and_a_neighbour_there_does(
    dear: None, mock_clock: MockClock
) -> None:
    async with a_shell() as shell:
        callers = [shell.caller(host) for host in (STRANGER, STRANGER, NEIGHBOUR, NEIGHBOUR)]
        await wait_all_tasks_blocked()
        assert [*shell.core.hosts.values()] == [STRANGER, NEIGHBOUR, NEIGHBOUR]
        assert shell.core.turned_away == [STRANGER]
        assert callers[1].recv(1) == b""
        mock_clock.jump(100)
        shell.caller(STRANGER)
        await wait_all_tasks_blocked()
        assert [*shell.core.hosts.values()][3:] == [STRANGER]


async def test_strangers_who_will_not_hear_that_it_is_over_keep_no_places(mock_clock: MockClock) -> None:
    """The clock stands still, so the strangers' two seconds never pass."""
    async with a_shell() as shell:
        for host in (STRANGER, NEIGHBOUR):
            for _ in range(FAREWELLS + 3):
                shell.caller(host)
                await wait_all_tasks_blocked()
        callers = shell.callers
        for caller in callers[FAREWELLS + 3 :]:
            caller.sendall(b"x")  # With that the shell learns who it is.
        await wait_all_tasks_blocked()
        for session in shell.core.hosts:
            shell.transports.close(CloseTransport(session, "3.1.5.9", "it is over"))
        await wait_all_tasks_blocked()
        ends = {STRANGER: 0, NEIGHBOUR: 0}
        for caller in callers:
            # Who was cut off has an end of the connection also where it would send.
            caller.sendall(b"y")
        await wait_all_tasks_blocked()
        for caller in callers:
            host = caller.getsockname()[0]
            try:
                caller.sendall(b"z")
            except OSError:
                ends[host] += 1
        assert ends == {STRANGER: 3, NEIGHBOUR: 0}


async def test_a_stranger_who_does_not_read_what_is_sent_to_him_is_cut_off_and_a_neighbour_has_more_time() -> (
    None
):
    """More is sent than the system accepts for a connection that nobody reads."""
    answer = SendBytes(0, [bytes(transport.UNREAD_BY_NEIGHBOUR_BYTES)] * 8)
    async with a_shell() as shell:
        for host in (STRANGER, NEIGHBOUR):
            shell.caller(host).sendall(b"x")
            while not shell.core.read_bytes[host]:
                await trio.lowlevel.checkpoint()
        for times in (1, 2):
            for session in shell.core.hosts:
                shell.transports.send(answer._replace(session=session))
            for caller in shell.callers[times - 1 :]:
                caller.sendall(b"y")
            while len(shell.core.losses) < times:
                await trio.lowlevel.checkpoint()
            assert shell.core.losses == [f"{host} does not read" for host in (STRANGER, NEIGHBOUR)[:times]]
