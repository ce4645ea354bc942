"""Sockets between neighbours; whole conversations are in test_node.py."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mqproto.base.configuration import Settings
from mqproto.simulator.node.connection import read_buffer
from mqproto.simulator.node.transport import CONNECT_TIMEOUT_S, EXHAUSTED_PAUSE_S, Transports, accept, dial
from mqproto.simulator.node.turns import Clock, TurnFeed
from mqproto.turn.effects import CloseTransport, OpenTransport


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.1")
async def test_a_host_with_several_addresses_is_called_at_the_first_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def two_addresses(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
            assert host == "server-b"
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
                for address in ("127.0.0.2", "127.0.0.1")
            ]

        monkeypatch.setattr(trio.socket, "getaddrinfo", two_addresses)
        with await dial("server-b", port, "127.0.0.1") as connected:
            assert connected.getpeername() == ("127.0.0.1", port)
    with pytest.raises(ConnectionRefusedError):
        await dial("server-b", port, "127.0.0.1")


async def test_an_address_that_does_not_answer_takes_its_share_of_the_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """The address's queue of callers is full, so callers get no answer."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.2", listener.getsockname()[1]), backlog=0) as silent,
        socket.create_connection(silent.getsockname()),
    ):
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", each.getsockname()) for each in (silent, listener)
        ]

        async def two_addresses(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
            return [*addresses]

        monkeypatch.setattr(trio.socket, "getaddrinfo", two_addresses)
        with await dial("server-b", 1801, "127.0.0.1") as connected:
            assert connected.getpeername() == listener.getsockname()
        assert trio.current_time() == pytest.approx(CONNECT_TIMEOUT_S / 2)
        addresses.reverse()
        with await dial("server-b", 1801, "127.0.0.1", avoid="127.0.0.1") as connected:
            assert connected.getpeername() == listener.getsockname()
        assert trio.current_time() == pytest.approx(CONNECT_TIMEOUT_S), "the one to avoid was called last"
        del addresses[1:]
        addresses[0] = (*addresses[0][:4], silent.getsockname())
        with pytest.raises(TimeoutError, match=f"no answer within {CONNECT_TIMEOUT_S:.0f} s"):
            await dial("server-b", 1801, "127.0.0.1")
        assert trio.current_time() == pytest.approx(2 * CONNECT_TIMEOUT_S)


class Troubled(socket.socket):
    """A listener whose next calls of `accept` fail with the given errors."""

    def __init__(self, *troubles: int) -> None:
        super().__init__()
        self._troubles = [*troubles]
        self.setblocking(False)
        self.bind(("127.0.0.1", 0))
        self.listen()

    def accept(self) -> tuple[socket.socket, Any]:
        if self._troubles:
            raise OSError(self._troubles.pop(0), "in trouble")
        return super().accept()


@pytest.mark.parametrize(("trouble", "pause_s"), [(errno.ECONNABORTED, 0), (errno.EMFILE, EXHAUSTED_PAUSE_S)])
async def test_who_calls_in_a_moment_of_trouble_is_accepted_after_it(
    trouble: int, pause_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """If no descriptor is free, the node does not keep itself busy until one is."""
    with Troubled(trouble, trouble) as listener, socket.create_connection(listener.getsockname()) as caller:
        accepted, host = await accept(listener)
        with accepted:
            assert (accepted.getpeername(), host) == (caller.getsockname(), "127.0.0.1")
    assert trio.current_time() == pytest.approx(2 * pause_s)


async def test_nobody_is_accepted_for_one_who_was_cancelled_when_somebody_had_called() -> None:
    """The two events come in one turn of the loop, in either order, so it takes some tries to see both orders."""
    for _ in range(30):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            async with trio.open_nursery() as nursery:

                async def accept_one(listener: socket.socket, scope: trio.CancelScope) -> None:
                    with scope:
                        accepted, _ = await accept(listener)
                        accepted.close()
                        assert not scope.cancel_called, "nobody looks after this connection"

                nursery.start_soon(accept_one, listener, scope := trio.CancelScope())
                await wait_all_tasks_blocked()
                with socket.create_connection(listener.getsockname()):
                    await trio.lowlevel.checkpoint()
                    scope.cancel()


async def test_a_listener_that_cannot_be_used_any_more_says_so() -> None:
    with (
        Troubled(errno.EBADF) as listener,
        socket.create_connection(listener.getsockname()),
        pytest.raises(OSError, match="in trouble"),
    ):
        await accept(listener)


async def test_a_connection_that_comes_when_the_core_has_given_up_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The core is told nothing about such a connection, because it has already given up the connection that `opened`
    would report.
    """
    core: Any = SimpleNamespace()
    transports = Transports(core, TurnFeed(), Clock(), "127.0.0.1", Settings(), read_buffer())
    connected: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as neighbour, Troubled() as listener:

        async def connect_late(*_: object, **__: object) -> socket.socket:
            connected.append(socket.create_connection(neighbour.getsockname()))
            transports.close(CloseTransport(1, "3.1.6.6", "no answer"))
            return connected[0]

        monkeypatch.setattr("mqproto.simulator.node.transport.dial", connect_late)
        async with trio.open_nursery() as nursery:
            await nursery.start(transports.run, listener)
            transports.open(OpenTransport(1, *neighbour.getsockname()))
            await wait_all_tasks_blocked()
            assert [each.fileno() for each in connected] == [-1]
            transports.stop()


class Listening:
    """Replaces the core: it keeps what neighbours send."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.has_come = trio.Event()

    def accepted(self, *_: object) -> int:
        return 1

    def is_blocked(self, host: str) -> bool:
        return False

    def is_declared(self, host: str) -> bool:
        return True

    def is_known(self, session: int) -> bool:
        return True

    def receive(self, session: int, data: memoryview, now: object) -> int:
        self.came.append(bytes(data))
        self.has_come.set()
        return len(data)

    def lost(self, *_: object) -> None:
        pass


class Steps(trio.abc.Instrument):
    """Counts how often the tasks that serve a connection run."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("_serve_accepted")


async def test_a_neighbour_wakes_its_reader_once_for_each_read_and_feeds_once_a_turn() -> None:
    core: Any = Listening()
    turns, steps = TurnFeed(), Steps()
    transports = Transports(core, turns, Clock(), "127.0.0.1", Settings(), read_buffer())

    async def comes() -> None:
        await core.has_come.wait()
        core.has_come = trio.Event()
        await wait_all_tasks_blocked()

    with Troubled() as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(transports.run, listener)
            with socket.create_connection(listener.getsockname()) as neighbour:
                await turns.work()
                turns.begin()
                turns.end()
                await wait_all_tasks_blocked()
                trio.lowlevel.add_instrument(steps)
                neighbour.sendall(b"one")
                await comes()
                neighbour.sendall(b"two")
                await wait_all_tasks_blocked(cushion=0.02)
                assert core.came == [b"one"]
                turns.begin()
                turns.end()
                await comes()
                turns.begin()
                turns.end()
                await wait_all_tasks_blocked()
                assert steps.count == 3, "for one, for two, and as two had to wait for the turn of one"
                neighbour.sendall(b"three")
                await comes()
                turns.begin()
                turns.end()
                await wait_all_tasks_blocked()
                assert steps.count == 4
                trio.lowlevel.remove_instrument(steps)
            transports.stop()
    assert core.came == [b"one", b"two", b"three"]
