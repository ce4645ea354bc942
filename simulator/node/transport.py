"""The connections between queue managers: TCP, one for each session.  [MS-MQQB] 2.1"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from contextlib import suppress
from time import perf_counter
from typing import Any, Final

import trio

from mqproto.base.configuration import Settings
from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.base.sockets import refuse_itself
from mqproto.simulator.base.tap import Recording, Tap
from mqproto.simulator.node.connection import READ_BYTES, Connection, end_of
from mqproto.simulator.node.shares import DEBT_LIMIT_S, PIECE_BYTES, Shares
from mqproto.simulator.node.tls import Handshakes, TlsConnection, TlsError, TlsSocket
from mqproto.simulator.node.turns import NO_TURN, Clock, TurnFeed
from mqproto.turn.effects import CloseTransport, OpenTransport, SendBytes
from mqproto.wire.guid import Guid

CONNECT_TIMEOUT_S: Final = 10.0
CROWD: Final = 24
"""The number of connections, beyond the core's own limit, that the core refuses with an answer. Further connections
wait in the kernel's backlog.
"""

FAREWELLS: Final = 64
"""The maximum number of strangers that may take their time to end a connection after we have closed it. Any further
ones are cut off.
"""
UNREAD_BYTES: Final = 64 * 1024
UNREAD_BY_NEIGHBOUR_BYTES: Final = 2**20
"""The number of unsent bytes, such as acknowledgments, that may wait for a peer in addition to messages. If a peer that
does not read exceeds it, the connection is cut.
"""
LITTLE_BYTES: Final = 4 * 1024

# Errors of accept() that pass: the peer has gone again, or descriptors or memory are short.
PASSING: Final = {errno.EAGAIN, errno.ECONNABORTED, errno.EPROTO, errno.EINTR}
EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
EXHAUSTED_PAUSE_S: Final = 0.1
TOO_DEAR: Final = "what came from there has taken more than its share of the time"
DOES_NOT_READ: Final = "it does not read what is sent to it"


class Transports:
    """Opens, accepts, reads, writes and closes the connections of the core's sessions.

    Args:
        core: is fed from here; its decisions come back as calls of `open`, `send` and `close`.
        source: our own address, from which connections are made, so that a capture shows the node by its address.
        settings: the settings of this queue manager.
        buffer: the buffer for reads.
        recording: records all bytes on the connections, if wanted.
        handshakes: does the TLS handshakes, if there are neighbours that speak TLS.
    """

    def __init__(
        self,
        core: QueueManager,
        turns: TurnFeed,
        clock: Clock,
        source: str,
        settings: Settings,
        buffer: memoryview,
        recording: Recording | None = None,
        handshakes: Handshakes | None = None,
    ) -> None:
        self._core = core
        self._buffer = buffer
        self._recording = recording
        self._turns = turns
        self._clock = clock
        self._source = source
        self._handshakes = handshakes
        self._places = trio.Semaphore(settings.maximum_sessions + CROWD)
        self._unread_limit_bytes = settings.in_flight_bytes + UNREAD_BY_NEIGHBOUR_BYTES
        self._shares = Shares(settings.strangers_share_percent)
        self._farewells = trio.CapacityLimiter(FAREWELLS)
        self._connections: dict[int, Connection] = {}
        self._strangers: dict[int, str] = {}
        """The hosts of peers that are unknown or have not identified themselves yet, keyed by session."""
        self._scopes: dict[int, trio.CancelScope] = {}
        self._accepting = trio.CancelScope()

    async def run(
        self,
        listener: socket.socket,
        for_tls: socket.socket | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept and serve connections. After `stop`, serve the remaining ones until the last is closed.

        Args:
            for_tls: listens for peers that speak TLS, if there are handshakes.
        """
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            with self._accepting:
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(self._accept, listener)
                    if for_tls is not None and self._handshakes is not None:
                        accepting.start_soon(self._accept_tls, for_tls, self._handshakes, accepting)

    def stop(self) -> None:
        """Accept nothing more. The core has already closed its sessions, and does not learn about later connections."""
        self._accepting.cancel()
        for scope in self._scopes.values():
            scope.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await self._places.acquire()
            accepted, host = await self._next(listener)
            began_s = perf_counter()
            if self._shares.debt_s(host) > DEBT_LIMIT_S and self._core.turns_away(
                host, TOO_DEAR, self._clock.now()
            ):
                accepted.close()
                self._places.release()
                continue
            session = self._core.accepted(host, self._clock.now())
            tap = self._recording.accepted(accepted) if self._recording is not None else None
            scope = self._adopt(session, accepted, tap, host)
            self._nursery.start_soon(self._serve_accepted, session, scope)
            self._turns.wake()
            if not self._core.is_declared(host):
                self._shares.took(host, perf_counter() - began_s)

    async def _accept_tls(
        self, listener: socket.socket, handshakes: Handshakes, accepting: trio.Nursery
    ) -> None:
        while True:
            accepted, host = await self._next(listener)
            accepting.start_soon(self._greet, accepted, host, handshakes)

    async def _next(self, listener: socket.socket) -> tuple[socket.socket, str]:
        """Return the next connection to answer. A connection from a blocked address is closed at once."""
        while True:
            accepted, host = await accept(listener)
            if not self._core.is_blocked(host):
                _hurry(accepted)
                return accepted, host
            accepted.close()
            self._core.count_blocked(host, self._clock.now())

    async def _greet(self, accepted: socket.socket, host: str, handshakes: Handshakes) -> None:
        """Tell the core about a TLS caller once the caller has shown a neighbour's certificate."""
        answered = await handshakes.answer(accepted, host)
        if answered is None:
            return
        wire, manager = answered
        session = self._core.accepted(host, self._clock.now(), manager)
        tap = self._recording.accepted(accepted) if self._recording is not None else None
        scope = self._adopt(session, wire, tap)
        self._nursery.start_soon(self._serve_certified, session, scope, manager, handshakes)
        self._turns.wake()

    # What the core decided

    def open(self, order: OpenTransport) -> None:
        """Connect to a peer. The core is told once the connection is established."""
        scope = self._scopes[order.session] = trio.CancelScope()
        self._nursery.start_soon(self._connect, order, scope)

    def send(self, order: SendBytes) -> None:
        """Send data. If the connection is gone, the core already knows or will soon be told."""
        connection = self._connections.get(order.session)
        if connection is not None:
            connection.send(b"".join(order.chunks))

    def close(self, order: CloseTransport) -> None:
        """Send the queued data, then close."""
        scope = self._scopes.get(order.session)
        if scope is not None:
            scope.cancel()

    def round_trip_s(self, session: int) -> float | None:
        """Return TCP's round-trip time on a session's connection, or None if it is unknown."""
        connection = self._connections.get(session)
        return None if connection is None else connection.round_trip_s

    # Connections

    async def _connect(self, order: OpenTransport, scope: trio.CancelScope) -> None:
        where = f"{order.host}:{order.port}"
        opened: socket.socket | None = None
        wire: socket.socket | TlsSocket | None = None  # `opened`, or TLS over it.
        reason = (
            f"no answer from {where} within {CONNECT_TIMEOUT_S:.0f} s: is it switched on, and does its firewall let "
            "TCP through to that port?"
        )
        with scope, trio.move_on_after(CONNECT_TIMEOUT_S):
            try:
                opened = await dial(order.host, order.port, self._source, avoid=order.avoid)
                _hurry(opened)
                wire = opened if order.tls is None else await self._secured(opened, order.tls)
            except TlsError as error:
                reason = f"no TLS with {where}: {error}"
            except OSError as error:
                reason = refusal(error, where)
        del self._scopes[order.session]
        if opened is None or wire is None:
            self._lost(order.session, reason)
            return
        if scope.cancel_called:
            wire.close()  # The core gave up when the connection came.
            return
        tap = self._recording.opened(opened) if self._recording is not None else None
        scope = self._adopt(order.session, wire, tap, None if order.tls is not None else order.host)
        self._core.opened(order.session, self._clock.now(), peer_of(opened))
        self._turns.wake()
        await self._serve(order.session, scope)

    async def _secured(self, opened: socket.socket, manager: Guid) -> TlsSocket:
        assert self._handshakes is not None, "who has links with TLS has certificates"
        return await self._handshakes.call(opened, manager)

    def _adopt(
        self, session: int, wire: socket.socket | TlsSocket, tap: Tap | None, stranger: str | None = None
    ) -> trio.CancelScope:
        """Keep the connection of a session; return the scope that ends it.

        Args:
            stranger: the host of a peer that cannot prove its identity.
        """
        if stranger is not None:
            self._strangers[session] = stranger
        kind = TlsConnection if isinstance(wire, TlsSocket) else Connection
        self._connections[session] = kind(wire, self._nursery, self._buffer, tap)
        scope = self._scopes[session] = trio.CancelScope()
        if self._accepting.cancel_called:
            scope.cancel()  # It came while the node was stopping.
        return scope

    async def _serve_accepted(self, session: int, scope: trio.CancelScope) -> None:
        try:
            await self._serve(session, scope)
        finally:
            self._places.release()

    async def _serve_certified(
        self, session: int, scope: trio.CancelScope, manager: Guid, handshakes: Handshakes
    ) -> None:
        try:
            await self._serve(session, scope)
        finally:
            handshakes.ended(manager)

    async def _serve(self, session: int, scope: trio.CancelScope) -> None:
        """Serve one connection until the peer ends it, or until `close` cancels the scope."""
        connection = self._connections[session]
        reason = None
        try:
            with scope:
                reason = await self._read(session, connection)
            del self._connections[session], self._scopes[session]
            is_stranger = self._strangers.pop(session, None) is not None
            if reason is None and not is_stranger:
                await connection.finish()
            elif reason is None and self._farewells.available_tokens:
                async with self._farewells:
                    await connection.finish()
        finally:
            connection.close()
        if reason is not None:
            self._lost(session, reason)

    async def _read(self, session: int, connection: Connection) -> str:
        """Feed the arriving data to the core. Return why the connection ended."""
        turn = NO_TURN
        while True:
            await connection.readable()
            await turn.carried_out()
            if connection.unsent_bytes > self._unread_limit_bytes:
                return DOES_NOT_READ
            stranger = self._strangers.get(session)
            if stranger is not None and self._core.is_known(session):
                stranger = None
                del self._strangers[session]
            elif stranger is not None and self._core.may_be_known(session):
                stranger = None  # A neighbour's handshake does not wait for strangers.
            if stranger is not None:
                await self._shares.turn(stranger)
            limit_bytes = READ_BYTES if stranger is None else PIECE_BYTES
            await self._turns.room()
            began_s = perf_counter()
            size_bytes = whole_bytes = 0
            # While the core works on a large piece, the next arrives, and the two then share a commit. A little piece
            # is mostly everything, and looking for more takes as long as feeding it.
            while size_bytes < limit_bytes:
                try:
                    data = connection.read(limit_bytes - size_bytes)
                except OSError as error:
                    return end_of(error)
                if data is None or (size_bytes and not data):
                    break
                if not data:
                    return end_of(None)
                whole_bytes += self._core.receive(session, data, self._clock.now())
                size_bytes += len(data)
                if len(data) < LITTLE_BYTES:
                    break
            if not size_bytes:
                continue
            # The batch stores a packet whole, also if most of it came with earlier ones.
            taken_bytes = max(size_bytes, whole_bytes)
            if stranger is None:
                turn = self._turns.count(size_bytes=taken_bytes)
                continue
            cost_s = perf_counter() - began_s + await self._turns.fed(size_bytes=taken_bytes)
            self._shares.took(stranger, cost_s)
            if connection.unsent_bytes > UNREAD_BYTES + self._core.in_flight_bytes(session):
                return DOES_NOT_READ

    def _lost(self, session: int, reason: str) -> None:
        self._core.lost(session, reason, self._clock.now())
        self._turns.wake()


# Sockets


def _hurry(connected: socket.socket) -> None:
    """Make the system send small packets without delay."""
    with suppress(OSError):  # Some systems refuse it for a connection that was reset meanwhile.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def accept(listener: socket.socket) -> tuple[socket.socket, str]:
    """Return the next connection and the address that it comes from; wait until temporary errors are over."""
    while True:
        await trio.lowlevel.wait_readable(listener)
        # If this was cancelled after somebody connected, accept nobody.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno in PASSING:
                continue
            if error.errno not in EXHAUSTED:
                raise
            await trio.sleep(EXHAUSTED_PAUSE_S)
        else:
            return accepted, address[0] if address else ""


def peer_of(connected: socket.socket) -> str:
    """Return the address of the other end, or an empty text if the other end is already gone."""
    try:
        address = connected.getpeername()
    except OSError:
        return ""
    return str(address[0])


async def dial(
    host: str,
    port: int,
    source: str,
    kind: socket.SocketKind = socket.SOCK_STREAM,
    *,
    avoid: str = "",
) -> socket.socket:
    """Connect to a host's first address that answers. Use our own address as the source if both are on loopback.

    [MS-MQQB] 3.1.5.2.1, 3.1.6.1. The host is looked up again each time (note <55>). If there are several addresses,
    each gets a share of the time. A datagram socket is connected at once, even if nobody listens there.

    Args:
        avoid: an address to try last.

    Raises:
        OSError: nobody answers, or there is no such host.
    """
    failure: OSError | None = None
    try:
        found = await trio.socket.getaddrinfo(host, port, type=kind)
    except UnicodeError:  # The text cannot be a name at all.
        raise socket.gaierror(socket.EAI_NONAME, "no such name") from None
    found.sort(key=lambda entry: str(entry[4][0]) == avoid)
    ends_at = trio.current_time() + CONNECT_TIMEOUT_S
    for place, (family, _, _, _, address) in enumerate(found):
        share_s = (ends_at - trio.current_time()) / (len(found) - place)
        try:
            with trio.fail_after(max(0.0, share_s)):
                return await _dial(socket.socket(family, kind), address, source)
        except trio.TooSlowError:
            failure = TimeoutError(errno.ETIMEDOUT, f"no answer within {share_s:.0f} s")
        except OSError as error:
            failure = error
    assert failure is not None, "a host that is found has an address"
    raise failure


async def _dial(connecting: socket.socket, address: tuple[Any, ...], source: str) -> socket.socket:
    try:
        connecting.setblocking(False)
        if _on_loopback(source) and _on_loopback(str(address[0])):
            connecting.bind((source, 0))
        try:
            connecting.connect(address)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connecting)
            if failure := connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(failure, os.strerror(failure)) from None
        refuse_itself(connecting)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _on_loopback(address: str) -> bool:
    try:
        return ipaddress.IPv4Address(address).is_loopback
    except ValueError:
        return False


def refusal(error: OSError, where: str) -> str:
    """Return in words why the host could not be reached."""
    if isinstance(error, socket.gaierror):
        return f"no computer is found under {where}"
    if error.errno == errno.ECONNREFUSED:
        return f"connection refused by {where}"
    return f"cannot reach {where}: {error.strerror}"
