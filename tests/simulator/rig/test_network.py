"""The link between two real sockets: it carries, breaks, refuses and stalls, and reports to the recorder.

Loopback hands bytes over within the call that sends them, so after `wait_all_tasks_blocked` everything that can cross
has crossed; no test has to sleep.
"""

from __future__ import annotations

import errno
import io
import select
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
import trio
from hypothesis import given, settings, strategies as st
from trio.testing import wait_all_tasks_blocked

from mqproto.base.errors import UsageError
from mqproto.captures.files.pcap import read_frames
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.base.sockets import RESET_ON_CLOSE
from mqproto.simulator.rig import network
from mqproto.simulator.rig.network import LinkProxy
from tests.captures.whole import reassemble

FREE_PORT = ("127.0.0.1", 0)

Socket = trio.socket.SocketType
Control = Callable[[LinkProxy], object]


class Ends:
    """A running link, and a target behind it."""

    def __init__(self, link: LinkProxy, target: Socket) -> None:
        self.link = link
        self.target = target

    async def connect(self) -> Socket:
        """Connect a client of the link."""
        client = trio.socket.socket()
        try:
            await client.connect(self.link.address)
        except BaseException:
            client.close()
            raise
        return client

    async def pair(self) -> tuple[Socket, Socket]:
        """Return both ends of a connection through the link."""
        client = await self.connect()
        server, _ = await self.target.accept()
        return client, server


@asynccontextmanager
async def running_link(
    recorder: Recorder | None = None, host: str | None = None, make: type[LinkProxy] = LinkProxy
) -> AsyncIterator[Ends]:
    with trio.socket.socket() as target:
        await target.bind(FREE_PORT)
        target.listen()
        link = make(FREE_PORT, target.getsockname(), recorder, recorded_host=host)
        async with trio.open_nursery() as nursery:
            await nursery.start(link.run)
            yield Ends(link, target)
            nursery.cancel_scope.cancel()


async def receive_all(end: Socket) -> bytes:
    """Receive everything until the other side has ended."""
    parts = []
    while part := await end.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


async def send_all(end: Socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[await end.send(view) :]


async def send_and_finish(end: Socket, data: bytes) -> None:
    await send_all(end, data)
    end.shutdown(socket.SHUT_WR)


async def is_reset(end: Socket) -> bool:
    """Return whether this end of a connection is reset instead of closed in an orderly way."""
    try:
        while await end.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    return False


def waiting_bytes(end: Socket) -> int:
    """Return how many bytes could be read immediately, without taking them."""
    with socket.socket(fileno=socket.dup(end.fileno())) as twin:
        twin.setblocking(False)
        try:
            return len(twin.recv(1 << 20, socket.MSG_PEEK))
        except BlockingIOError:
            return 0


def fill_backlog(target: Socket) -> list[socket.socket]:
    """Connect clients directly to the target, until the kernel makes the next one wait."""
    target.listen(0)
    fillers = []
    for _ in range(200):
        fillers.append(filler := socket.socket())
        filler.setblocking(False)
        filler.connect_ex(target.getsockname())
        if not select.select([], [filler], [], 0)[1]:
            return fillers
    raise AssertionError("the target takes clients without end")


async def fill(end: Socket) -> int:
    """Send until nothing more is accepted; return the number of accepted bytes."""
    sent_bytes = 0
    with trio.move_on_after(20), socket.socket(fileno=socket.dup(end.fileno())) as twin:
        twin.setblocking(False)
        while True:
            try:
                sent_bytes += twin.send(bytes(1 << 16))
            except BlockingIOError:
                await wait_all_tasks_blocked()
                try:
                    sent_bytes += twin.send(b"\0")
                except BlockingIOError:
                    return sent_bytes
    raise AssertionError("a stalled link takes bytes without end")


async def test_whoever_comes_through_a_link_comes_from_its_own_host() -> None:
    async with running_link() as ends, trio.open_nursery() as nursery:
        with trio.socket.socket() as client:
            await client.bind(("127.0.0.9", 0))
            nursery.start_soon(client.connect, ends.link.address)
            server, (host, _) = await ends.target.accept()
            with server:
                assert host == "127.0.0.9"


async def test_it_carries_every_byte_both_ways_and_each_end_by_itself() -> None:
    there, back = bytes(range(256)) * 8192, b"answer" * 100_000
    async with running_link() as ends:
        client, server = await ends.pair()
        with client, server:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_and_finish, client, there)
                assert await receive_all(server) == there
            # The client has finished; the server may still talk.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_and_finish, server, back)
                assert await receive_all(client) == back
        await wait_all_tasks_blocked()
        statistics = ends.link.statistics
        assert (statistics.bytes_to_server, statistics.bytes_to_client) == (len(there), len(back))
        assert (statistics.connection_count, statistics.cut_count, ends.link.open_count) == (1, 0, 0)


async def test_a_cut_resets_both_ends_of_every_connection() -> None:
    async with running_link() as ends:
        first, second = await ends.pair(), await ends.pair()
        assert ends.link.cut() == 2
        assert ends.link.open_count == 0
        assert ends.link.cut() == 0
        for end in (*first, *second):
            with end:
                assert await is_reset(end)
        assert ends.link.statistics.cut_count == 2
        client, server = await ends.pair()
        with client, server:
            await send_all(client, b"after the cut")
            assert await server.recv(100) == b"after the cut"


async def test_a_cut_catches_clients_that_nobody_has_accepted_yet() -> None:
    async with running_link() as ends:
        ends.link.stall()
        with await ends.connect() as client:
            assert ends.link.cut() == 1
            assert await is_reset(client)
        ends.link.restore()
        await wait_all_tasks_blocked()
        assert ends.link.statistics.connection_count == 0


async def test_a_cut_reaches_a_connection_that_is_still_being_opened() -> None:
    async with running_link() as ends:
        fillers = fill_backlog(ends.target)
        with await ends.connect() as client:
            await wait_all_tasks_blocked()
            assert ends.link.open_count == 1
            assert ends.link.cut() == 1
            assert await is_reset(client)
        await wait_all_tasks_blocked()
        statistics = ends.link.statistics
        assert (statistics.connection_count, statistics.unreachable_count) == (0, 0)
        for filler in fillers:
            filler.close()


class CutAtOnce(LinkProxy):
    """Cuts each connection between its acceptance and its first step."""

    async def _carry(self, connection: network._Connection, places: trio.Semaphore) -> None:
        self.cut()
        await super()._carry(connection, places)


async def test_a_cut_reaches_a_connection_that_has_just_been_accepted() -> None:
    async with running_link(make=CutAtOnce) as ends:
        with await ends.connect() as client:
            assert await is_reset(client)
        await wait_all_tasks_blocked()
        statistics = ends.link.statistics
        assert (statistics.cut_count, statistics.unreachable_count, ends.link.open_count) == (1, 0, 0)


async def test_a_link_that_refuses_cuts_what_is_open_and_takes_no_connection() -> None:
    async with running_link() as ends:
        client, server = await ends.pair()
        with client, server:
            assert ends.link.refuse() == 1
            assert await is_reset(client)
            assert await is_reset(server)
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                await ends.connect()
            assert ends.link.refuse() == 0


async def test_a_link_that_refused_listens_at_the_same_address_when_restored() -> None:
    async with running_link() as ends:
        address = ends.link.address
        ends.link.refuse()
        ends.link.restore()
        assert ends.link.address == address
        client, server = await ends.pair()
        with client, server:
            await send_all(server, b"again")
            assert await client.recv(100) == b"again"


class WhileProcessesStart(LinkProxy):
    """Keeps a copy of each socket, as a process that is being started does until it executes its program."""

    copies: ClassVar[list[socket.socket]] = []

    def _bind(self) -> socket.socket:
        listener = super()._bind()
        self.copies.append(listener.dup())
        return listener


async def test_a_link_refuses_and_is_restored_while_a_process_is_started() -> None:
    async with running_link(make=WhileProcessesStart) as ends:
        for _ in range(2):
            ends.link.refuse()
            with pytest.raises(ConnectionRefusedError):
                await ends.connect()
            ends.link.restore()
            client, server = await ends.pair()
            client.close()
            server.close()
    for copy in WhileProcessesStart.copies:
        copy.close()


async def test_controls_in_quick_succession_leave_the_last_state() -> None:
    async with running_link() as ends:
        for _ in range(3):
            ends.link.refuse()
            ends.link.restore()
        client, server = await ends.pair()
        client.close()
        server.close()
        ends.link.restore()
        ends.link.refuse()
        with pytest.raises(ConnectionRefusedError):
            await ends.connect()


async def test_a_stalled_link_lets_no_byte_cross_and_closes_nothing() -> None:
    async with running_link() as ends:
        client, server = await ends.pair()
        with client, server:
            await wait_all_tasks_blocked()
            ends.link.stall()
            await send_all(client, b"there")
            await send_and_finish(server, b"back")
            await wait_all_tasks_blocked()
            assert (waiting_bytes(server), waiting_bytes(client)) == (0, 0)
            assert ends.link.statistics.bytes_to_server == 0
            ends.link.restore()
            assert await server.recv(100) == b"there"
            assert await receive_all(client) == b"back"


async def test_a_stall_stops_a_transfer_in_its_middle_and_memory_stays_bounded() -> None:
    async with running_link() as ends:
        client, server = await ends.pair()
        with client, server:
            first_bytes = await fill(client)  # the server does not read, so the link waits to write
            ends.link.stall()
            crossed = ends.link.statistics.bytes_to_server
            assert 0 < crossed < first_bytes
            taken_bytes = 0
            while waiting_bytes(server):
                taken_bytes += len(await server.recv(1 << 20))
                await wait_all_tasks_blocked()
            # There is room to write again, and the link does not use it.
            assert taken_bytes == ends.link.statistics.bytes_to_server == crossed
            more_bytes = await fill(client)
            ends.link.restore()
            client.shutdown(socket.SHUT_WR)
            assert taken_bytes + len(await receive_all(server)) == first_bytes + more_bytes


async def test_over_a_slow_link_all_comes_in_its_time() -> None:
    async with running_link() as ends:
        client, server = await ends.pair()
        with client, server:
            ends.link.slow(0.1)
            began_s = trio.current_time()
            await send_all(client, b"there")
            assert await server.recv(100) == b"there"
            await send_all(server, b"back")
            assert await client.recv(100) == b"back"
            assert trio.current_time() - began_s >= 0.2


async def test_what_waits_on_a_slow_link_crosses_when_it_is_mended() -> None:
    """In an earlier version, data still waited for its delay to pass after the link was mended.

    A reset then removed the data from a link that worked.
    """
    async with running_link() as ends:
        client, server = await ends.pair()
        with client, server:
            ends.link.slow(3_600)
            await send_all(client, b"there")
            await wait_all_tasks_blocked()
            ends.link.restore()
            assert await server.recv(100) == b"there"


async def test_nobody_reaches_the_target_while_the_link_stalls() -> None:
    async with running_link() as ends:
        ends.link.stall()
        with await ends.connect() as client:
            await client.send(b"hello")
            await wait_all_tasks_blocked()
            assert ends.link.statistics.connection_count == 0
            ends.link.restore()
            server, _ = await ends.target.accept()
            with server:
                assert await server.recv(100) == b"hello"


async def test_a_target_that_refuses_shows_as_a_reset() -> None:
    async with running_link() as ends:
        ends.target.close()
        with await ends.connect() as client:
            assert await is_reset(client)
        assert ends.link.statistics.unreachable_count == 1
        assert ends.link.statistics.connection_count == 0


@pytest.mark.parametrize("resets", ["client", "server"])
async def test_a_reset_of_one_end_reaches_the_other(resets: str) -> None:
    async with running_link() as ends:
        pair = await ends.pair()
        broken, other = pair if resets == "client" else pair[::-1]
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        broken.close()
        with other:
            assert await is_reset(other)
        assert ends.link.statistics.cut_count == 0


async def test_a_reset_is_passed_on_while_the_link_waits_to_write() -> None:
    async with running_link() as ends:
        client, server = await ends.pair()
        await fill(client)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        server.close()
        with client:
            assert await is_reset(client)
        await wait_all_tasks_blocked()
        assert ends.link.open_count == 0


async def test_a_port_that_is_taken_is_an_error_and_the_link_can_run_later() -> None:
    with socket.socket() as taker:
        taker.bind(FREE_PORT)
        taker.listen()
        link = LinkProxy(taker.getsockname(), ("127.0.0.1", 9))
        with pytest.raises(OSError, match="in use"):
            await link.run()
    async with trio.open_nursery() as nursery:
        assert await nursery.start(link.run) == link.address
        nursery.cancel_scope.cancel()


async def test_a_link_taken_down_resets_what_is_open_and_frees_its_port() -> None:
    with trio.socket.socket() as target:
        await target.bind(FREE_PORT)
        target.listen()
        link = LinkProxy(FREE_PORT, target.getsockname())
        ends = Ends(link, target)
        for _ in range(2):  # the second time at the port of the first
            async with trio.open_nursery() as nursery:
                await nursery.start(link.run)
                client, server = await ends.pair()
                nursery.cancel_scope.cancel()
            with client, server:
                assert await is_reset(client)
                assert await is_reset(server)
            with pytest.raises(ConnectionRefusedError):
                await ends.connect()


async def test_a_link_that_was_told_to_refuse_before_it_runs_refuses() -> None:
    link = LinkProxy(FREE_PORT, ("127.0.0.1", 9))
    link.refuse()
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        with pytest.raises(ConnectionRefusedError), trio.socket.socket() as client:
            await client.connect(link.address)
        nursery.cancel_scope.cancel()


async def test_a_link_runs_once_at_a_time() -> None:
    async with running_link() as ends:
        with pytest.raises(UsageError, match="runs already"):
            await ends.link.run()


async def test_more_clients_than_there_are_places_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "CONNECTION_LIMIT", 1)
    async with running_link() as ends:
        client, server = await ends.pair()
        with await ends.connect() as waiting:
            await waiting.send(b"my turn")
            await wait_all_tasks_blocked()
            assert ends.link.open_count == 1
            client.close()
            server.close()
            server, _ = await ends.target.accept()
            with server:
                assert await server.recv(100) == b"my turn"


async def test_no_descriptor_to_spare_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    async with running_link() as ends:
        accept, failures = (
            LinkProxy._accept,
            [OSError(errno.EMFILE, "too many"), OSError(errno.ECONNABORTED, "gone")],
        )

        def exhausted(link: LinkProxy, listener: socket.socket) -> object:
            if failures:
                raise failures.pop(0)
            return accept(link, listener)

        monkeypatch.setattr(LinkProxy, "_accept", exhausted)
        client, server = await ends.pair()
        with client, server:
            assert failures == []


def test_no_link_listens_beyond_loopback() -> None:
    with pytest.raises(UsageError, match="is not on loopback"):
        LinkProxy(("0.0.0.0", 1801), ("127.0.0.2", 1801))


@pytest.mark.parametrize("address", [("localhost", 1801), ("::1", 1801), ("127.0.0.1", 70_000)])
def test_addresses_are_ipv4(address: tuple[str, int]) -> None:
    with pytest.raises(UsageError):
        LinkProxy(address, ("127.0.0.2", 1801))
    with pytest.raises(UsageError):
        LinkProxy(FREE_PORT, address)


CONTROLS: dict[str, Control] = {
    "cut": LinkProxy.cut,
    "refuse": LinkProxy.refuse,
    "stall": LinkProxy.stall,
    "slow": lambda link: link.slow(0.001),
    "restore": LinkProxy.restore,
}


@settings(max_examples=30)
@given(st.lists(st.sampled_from([*CONTROLS, "send", "settle"]), max_size=12))
def test_whatever_is_done_to_a_link_the_bytes_are_a_prefix_and_a_restored_link_works(
    steps: list[str],
) -> None:
    trio.run(one_story, steps)


async def one_story(steps: list[str]) -> None:
    file = io.BytesIO()
    async with running_link(Recorder(file), "127.0.0.9") as ends:
        client, server = await ends.pair()
        sent, received = b"", b""
        with client, server:
            for number, step in enumerate(steps):
                if step == "settle":
                    await wait_all_tasks_blocked()
                elif step == "send":
                    try:
                        data = bytes([number]) * 1000
                        await send_all(client, data)
                        sent += data
                    except OSError:
                        assert ends.link.statistics.cut_count
                else:
                    CONTROLS[step](ends.link)
            ends.link.restore()
            await wait_all_tasks_blocked()
            ends.link.cut()
            try:
                while part := await server.recv(1 << 16):
                    received += part
            except ConnectionResetError:
                pass
        assert sent.startswith(received)
        if "cut" not in steps and "refuse" not in steps:
            assert received == sent
        assert len(received) <= ends.link.statistics.bytes_to_server
        client, server = await ends.pair()
        with client, server:
            await send_and_finish(client, b"still here")
            assert await receive_all(server) == b"still here"
    recorded = reassemble(read_frames(io.BytesIO(file.getvalue())))
    assert recorded[0].data.startswith(received)
    assert sent.startswith(recorded[0].data)
    assert recorded[2].data == b"still here"


async def test_the_recording_shows_the_true_ends_and_every_byte() -> None:
    file = io.BytesIO()
    there, back = bytes(range(256)) * 2000, b"answer"
    with trio.socket.socket() as target:
        await target.bind(("127.0.0.2", 0))
        target.listen()
        link = LinkProxy(
            FREE_PORT,
            target.getsockname(),
            Recorder(file),
            recorded_host="10.0.0.1",
            recorded_server=("10.0.0.2", 1801),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(link.run)
            client, server = await Ends(link, target).pair()
            port = client.getsockname()[1]
            with client, server:
                nursery.start_soon(send_and_finish, client, there)
                assert await receive_all(server) == there
                await send_and_finish(server, back)
                assert await receive_all(client) == back
            nursery.cancel_scope.cancel()
    to_server, to_client = reassemble(read_frames(io.BytesIO(file.getvalue())))
    assert (to_server.source, to_server.destination) == (
        Endpoint("10.0.0.1", port),
        Endpoint("10.0.0.2", 1801),
    )
    assert (to_server.data, to_server.ending) == (there, Ending.FINISHED)
    assert (to_client.data, to_client.ending) == (back, Ending.FINISHED)


async def test_the_recording_shows_a_cut_as_a_reset_of_both_ends_and_says_so() -> None:
    file = io.BytesIO()
    async with running_link(Recorder(file)) as ends:
        client, server = await ends.pair()
        with client, server:
            await send_all(client, b"before")
            await wait_all_tasks_blocked()
            ends.link.cut()
    frames = list(read_frames(io.BytesIO(file.getvalue())))
    to_server, to_client = reassemble(frames)
    assert (to_server.data, to_server.ending, to_client.ending) == (b"before", Ending.RESET, Ending.RESET)
    assert [frame.comment for frame in frames if frame.comment] == ["the link was cut"] * 2


async def test_the_recording_shows_who_broke_the_connection_off() -> None:
    file = io.BytesIO()
    async with running_link(Recorder(file)) as ends:
        client, server = await ends.pair()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        client.close()
        with server:
            assert await is_reset(server)
    to_server, to_client = reassemble(read_frames(io.BytesIO(file.getvalue())))
    assert (to_server.ending, to_client.ending) == (Ending.RESET, Ending.OPEN)
