"""The TLS handshakes of a node, with neighbours that it calls and with peers that call it.

Callers are unknown until they have shown a certificate: this module limits their number and time, and ends some early.
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
"""The maximum number of simultaneous handshakes with peers that call us. Each takes at most about 200 kB. Beyond that
number, the host with the most handshakes loses its oldest one, so a host that opens many displaces its own.
"""
CERTIFIED_LIMIT: Final = 16
"""The maximum number of connections to us that a neighbour may have open. Connections with and without TLS do not take
each other's places.
"""
THREADS: Final = 1
"""The number of handshakes that are computed at a time. It is chosen so that a flood of handshakes takes up at most one
more processor core.
"""


@dataclass(eq=False, slots=True)
class _HalfOpen:
    network: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_evicted: bool = False


class Handshakes:
    """All handshakes of one node.

    Args:
        certificates: the certificates that we show, and those that peers have to show.
        note: writes the log.
    """

    def __init__(self, certificates: Certificates, note: Callable[[Sequence[Note]], None]) -> None:
        self._certificates = certificates
        self._note = note
        self._threads = trio.CapacityLimiter(THREADS)
        self._half_open: dict[_HalfOpen, None] = {}
        self._certified: Counter[Guid] = Counter()

    async def call(self, connected: socket.socket, manager: Guid) -> TlsSocket:
        """Shake hands with a neighbour that we called; the caller limits the time.

        If this fails in any way, the socket is closed.

        Raises:
            TlsError: the neighbour did not show its certificate.
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
        """Shake hands with a peer that called us; return the socket and the neighbour whose certificate the peer
        showed.

        If the handshake fails, if the peer shows no valid certificate, or if that neighbour has too many connections,
        log this, close the socket and return None. Otherwise, `ended` must be called when the connection is over.
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
        """Record that an accepted connection of a neighbour is over."""
        self._certified[manager] -= 1

    async def _bounded(self, wire: TlsSocket, host: str) -> None:
        """Shake hands within the limits of time and number.

        Raises:
            TlsError: the handshake failed, took longer than 10 s, or had to make room for another.
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
