"""Connections to a peer that is being fuzzed, each with its judge."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from mqproto.base.errors import WireFormatError
from mqproto.simulator.base.sockets import RESET_ON_CLOSE
from mqproto.simulator.fuzz.peer.conduct import Conduct, Fault, PeerFailure
from mqproto.wire import Guid, ping_packet

READ_BYTES: Final = 65_536
SEND_BUFFER_BYTES: Final = 64 * 1024
"""The size, in bytes, of our system's send buffer. It is small, so that we can see how far the peer has read."""
PIECE_BYTES: Final = 16 * 1024
ELSEWHERE: Final = "127.98.76.54"
DATAGRAM_BYTES: Final = 2_048
TURNED_AWAY: Final = "closed before a word"
HELD_UP: Final = "waits for our host's turn"
COUNTS: Final = ("connections", "answers", "closed by the peer", TURNED_AWAY, HELD_UP)
OURS: Final = {errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""The connection errors that say nothing about the peer, because we ourselves have run out of a resource."""
PAUSE_S: Final = 0.05
TURNS: Final = 20
"""How many times `patience_s` we wait before we report a fault, if the peer makes our host wait."""
DEAF_PATIENCE_S: Final = 1.0
"""The time, in seconds, for which we try to send on a connection that we do not read. The peer may rightly stop reading
it, too.
"""


async def never() -> bool:
    return False


@dataclass(slots=True)
class Place:
    """The peer's address, and how long we wait for the peer.

    A peer may limit the share of its resources that one host gets. `patience_s` then counts from the time when it is
    our host's turn.

    where: the peer's address in the form that `socket.connect` takes.
    server: the peer's queue manager, once it is known.
    source: the address from which our connections come; empty for the system's choice.
    judge: makes the judge of a connection to a peer with this queue manager.
    holds_up: returns whether everything from our host is held up now while others are served.
    """

    family: int
    where: tuple[Any, ...]
    ping_port: int
    patience_s: float
    server: Guid | None = None
    source: str = ""
    judge: Callable[[Guid | None], Conduct] = Conduct
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    holds_up: Callable[[], Awaitable[bool]] = never

    @property
    def address(self) -> str:
        """The peer's address and port, for people."""
        host = str(self.where[0])
        return f"[{host}]:{self.where[1]}" if ":" in host else f"{host}:{self.where[1]}"


class JudgedLine:
    """One connection; its judge sees everything that is sent and received."""

    def __init__(self, place: Place, stream: trio.SocketStream) -> None:
        self.conduct = place.judge(place.server)
        self.closed = False
        """Whether the peer has closed the connection, in any way."""
        self.turned_away = False
        """Whether the peer closed the connection without an answer to a request for a session."""
        self._place = place
        self._stream = stream
        self._changed = trio.Event()
        self._listening = trio.CancelScope()

    async def listen(self) -> None:
        """Read until either side closes the connection, or until `deafen` is called."""
        try:
            with self._listening, suppress(trio.BrokenResourceError):
                while data := await self._stream.receive_some(READ_BYTES):
                    answers = self.conduct.answer_count
                    self.conduct.heard(data)
                    self._place.counts["answers"] += self.conduct.answer_count - answers
                    self._stir()
                self.conduct.ended()
        except trio.ClosedResourceError:
            # We closed it: if nothing had come by then, that says nothing about the peer.
            return
        if self._listening.cancel_called:
            return
        self.closed = True
        self._place.counts["closed by the peer"] += 1
        self.turned_away = self.conduct.is_unheard
        self._place.counts[TURNED_AWAY] += self.turned_away
        self._stir()

    def _stir(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def say(self, data: bytes, piece_bytes: int = 0) -> Fault | None:
        """Send bytes, `piece_bytes` at a time if that is not 0. It is not a fault if the peer has closed the
        connection.
        """
        self.conduct.said(data)
        with suppress(trio.BrokenResourceError, OSError):
            for start in range(0, len(data), piece_bytes or len(data) or 1):
                rest = memoryview(data)[start : start + (piece_bytes or len(data))]
                while rest:
                    size = await self._sent(rest[:PIECE_BYTES])
                    if not size and self._listening.cancel_called:
                        return self.conduct.fault
                    if not size:
                        return Fault(
                            PeerFailure.HANGS, "it reads no more", f"{self._place.patience_s:g} s long"
                        )
                    rest = rest[size:]
        return self.conduct.fault

    async def _sent(self, data: memoryview) -> int:
        """Send bytes. Return how many of them the peer, or our system, took in time; 0 if it took none.

        Raises:
            OSError: the peer has closed the connection.
        """
        is_deaf = self._listening.cancel_called
        for _ in range(TURNS):
            with trio.move_on_after(DEAF_PATIENCE_S if is_deaf else self._place.patience_s):
                return await self._stream.socket.send(data)
            if is_deaf or not await self._is_held_up():
                break
        return 0

    async def settle(self, patience_s: float | None = None) -> Fault | None:
        """Wait until the peer owes nothing or has closed the connection; return a fault if it takes too long.

        Each answer shows that the peer is working, and restarts the wait.
        """
        conduct = self.conduct
        patience_s = self._place.patience_s if patience_s is None else patience_s
        for _ in range(TURNS):
            answers = conduct.answer_count
            with trio.move_on_after(patience_s):
                while not self.closed and conduct.fault is None and conduct.owed is not None:
                    await self._changed.wait()
            if conduct.fault is not None or self.closed or conduct.owed is None:
                return conduct.fault
            if conduct.answer_count == answers and not await self._is_held_up():
                break
        owed = conduct.owed
        if owed is None or self.closed:
            return conduct.fault
        return Fault(owed.oracle, owed.rule, "; ".join(filter(None, [owed.detail, f"{patience_s:g} s long"])))

    async def _is_held_up(self) -> bool:
        held_up = await self._place.holds_up()
        self._place.counts[HELD_UP] += held_up
        return held_up

    def deafen(self) -> None:
        """Stop reading. What the peer sends stays unread, and it owes us nothing from now on."""
        self.conduct.finish()
        self._listening.cancel()

    async def finish(self) -> None:
        """Close our half of the connection."""
        self.conduct.finish()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_eof()

    def close(self, *, reset: bool = False) -> None:
        """Close the connection, or reset it."""
        self.conduct.finish()
        if reset:
            with suppress(OSError):
                self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._stream.socket.close()


async def connected(place: Place) -> trio.SocketStream | Fault:
    """Return a connection, or the fault that prevents it."""
    fault = Fault(PeerFailure.STARVES, "no connection is accepted", f"{place.patience_s:g} s long")
    with trio.move_on_after(place.patience_s):
        while True:
            connecting = trio.socket.socket(place.family, socket.SOCK_STREAM)
            try:
                connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                if place.source:
                    await connecting.bind((place.source, 0))
                await connecting.connect(place.where)
            except OSError as error:
                connecting.close()
                if error.errno not in OURS:
                    reason = os.strerror(error.errno) if error.errno else str(error)
                    return Fault(PeerFailure.CRASHES, "no connection can be had", reason.lower())
                await trio.sleep(PAUSE_S)
            except BaseException:
                connecting.close()
                raise
            else:
                place.counts["connections"] += 1
                return trio.SocketStream(connecting)
    return fault


def elsewhere(place: Place) -> str:
    """Return an address that looks like another host's to a peer on loopback; empty if there is none.

    A peer may limit the share of one host. The canary must not share a host with the attackers.
    """
    if place.family != socket.AF_INET or not str(place.where[0]).startswith("127."):
        return ""
    with socket.socket() as trying:
        try:
            trying.bind((ELSEWHERE, 0))
        except OSError:  # Only Linux answers on all of 127.0.0.0/8.
            return ""
    return ELSEWHERE


@asynccontextmanager
async def datagrams(place: Place) -> AsyncIterator[trio.socket.SocketType]:
    """Yield a socket for sending Pings to the peer."""
    with trio.socket.socket(place.family, socket.SOCK_DGRAM) as asking:
        if place.source:
            await asking.bind((place.source, 0))
        await asking.connect((place.where[0], place.ping_port, *place.where[2:]))
        yield asking


def judge_datagrams(asking: trio.socket.SocketType) -> Fault | None:
    """Return a fault if an answer is not a Ping.  [MS-MQQB] 2.2.7"""
    raw = socket.socket(fileno=asking.fileno())
    try:
        while True:
            datagram = raw.recv(DATAGRAM_BYTES, socket.MSG_DONTWAIT)
            ping_packet.decode(datagram)
    except WireFormatError as error:
        return Fault(PeerFailure.WRONG, "what answers a Ping is none (2.2.7)", str(error))
    except OSError:
        return None  # Nothing more has come, or nobody listens there.
    finally:
        raw.detach()
