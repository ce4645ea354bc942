"""The handshakes of a node, with those whom it calls and with those that call it.

Of the latter nobody knows yet whose they are: here is how many there may be, for how long, and who has to go.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from mqproto.routing.peers import host_group
from mqproto.simulator.node.connection import end_of
from mqproto.simulator.node.tls.certificates import Certificates
from mqproto.simulator.node.tls.wire import NOT_PINNED, TlsError, TlsSocket
from mqproto.turn.effects import Note
from mqproto.wire.guid import Guid

HANDSHAKE_TIMEOUT_S: Final = 10.0
HALF_OPEN_LIMIT: Final = 64
"""Handshakes at a time with those that call us, each of some 200 kB at most. One more ends the oldest of the host that
has most of them, so a host that opens many takes their places from itself."""
CERTIFIED_LIMIT: Final = 16
"""Connections that a neighbour may have opened to us. They take no places from those without TLS, nor the other way."""
THREADS: Final = 1
"""How many handshakes are computed at a time: a flood of them costs one other core at most."""


@dataclass(eq=False, slots=True)
class _HalfOpen:
    network: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_evicted: bool = False


class Handshakes:
    """All handshakes of one node.

    Args:
        certificates: what is shown, and has to be shown.
        note: writes the log.
    """

    def __init__(self, certificates: Certificates, note: Callable[[Sequence[Note]], None]) -> None:
        self._certificates = certificates
        self._note = note
        self._threads = trio.CapacityLimiter(THREADS)
        self._half_open: dict[_HalfOpen, None] = {}
        self._certified: Counter[Guid] = Counter()

    async def call(self, connected: socket.socket, manager: Guid) -> TlsSocket:
        """The handshake with a neighbour that we have called; whoever calls this bounds it in time.

        If it fails in any way, the socket is closed.

        Raises:
            TlsError: it has not shown its certificate.
            OSError: the connection broke.
        """
        wire = TlsSocket(connected, self._certificates.calling[manager], accepted=False)
        try:
            await wire.handshake(self._threads)
            if self._certificates.shown_by(wire) != manager:
                raise TlsError(NOT_PINNED)
        except BaseException:
            wire.close()
            raise
        return wire

    async def answer(self, accepted: socket.socket, host: str) -> tuple[TlsSocket, Guid] | None:
        """The handshake with one that has called us, and the neighbour whose certificate it has shown.

        None, with a line in the log, if it has shown none; the socket is closed then. For each that was answered with
        something else, call `ended` when its connection is over.
        """
        wire = TlsSocket(accepted, self._certificates.accepting, accepted=True)
        try:
            await self._bounded(wire, host)
            manager = self._certificates.shown_by(wire)
            if self._certified[manager] >= CERTIFIED_LIMIT:
                raise TlsError(f"{CERTIFIED_LIMIT} connections of it are open")
        except (TlsError, OSError) as error:
            wire.close()
            reason = str(error) if isinstance(error, TlsError) else end_of(error)
            self._note([Note("tls-refused", {"peer": host, "reason": reason})])
            return None
        except BaseException:
            wire.close()
            raise
        self._certified[manager] += 1
        return wire, manager

    def ended(self, manager: Guid) -> None:
        """A connection of a neighbour that was answered is over."""
        self._certified[manager] -= 1

    async def _bounded(self, wire: TlsSocket, host: str) -> None:
        """
        Raises:
            TlsError: the handshake failed, took longer than 10 s, or its place was needed.
            OSError: the connection broke.
        """
        if len(self._half_open) >= HALF_OPEN_LIMIT:
            self._evict()
        mine = _HalfOpen(host_group(host))
        self._half_open[mine] = None
        try:
            with mine.scope, trio.fail_after(HANDSHAKE_TIMEOUT_S):
                await wire.handshake(self._threads)
        except trio.TooSlowError:
            raise TlsError(f"no handshake within {HANDSHAKE_TIMEOUT_S:.0f} s") from None
        finally:
            self._half_open.pop(mine, None)
        if mine.is_evicted:
            raise TlsError(f"{HALF_OPEN_LIMIT} handshakes are under way, and most of them are its host's")

    def _evict(self) -> None:
        counts = Counter(each.network for each in self._half_open)
        most = max(counts.values())
        oldest = next(each for each in self._half_open if counts[each.network] == most)
        del self._half_open[oldest]
        oldest.is_evicted = True
        oldest.scope.cancel()
