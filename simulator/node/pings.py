"""Pings over UDP: requests to neighbours, and answers to their requests.  [MS-MQQB] 2.1.2

Requests and answers have separate sockets, because a request and a response look alike. An answer is no larger than its
request, and never goes to a ping port. A node examines about 12,800 requests a second, and the system drops the rest.
It answers all requests from known hosts, and about 800 a second from strangers, whose addresses may be forged.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.manager.queuemanager import QueueManager
from mqproto.neighbours.ping import PING_RESPONSE_MS
from mqproto.routing import PING_PORT
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.base.tap import Recording
from mqproto.simulator.node.transport import dial, refusal
from mqproto.simulator.node.turns import Clock, TurnFeed
from mqproto.simulator.topology import Node
from mqproto.turn.effects import SendPing
from mqproto.wire.layouts.ping import ping_packet

READ_BYTES: Final = ping_packet.sizeof() + 1
"""The number of bytes to read: one more than a Ping has, to detect longer datagrams."""
ROUND: Final = 128
"""The maximum number of requests that are examined before the node does anything else."""
ROUND_OF_STRANGERS: Final = 8
"""The maximum number of these requests that are answered if they come from unknown hosts."""
PAUSE_S: Final = 0.01
"""The time, in seconds, that further requests then have to wait. The kernel drops requests for which it has no room."""


class PingPort:
    """The ping port of a node, and the requests that the node sends.

    Args:
        core: decides which Pings to send and how to answer them.
        source: our own address, from which requests to loopback are sent.
        ping_ports: the ports of the nodes that we know. A request that seems to come from such a port is forged; if it
            were answered, the two ports would answer each other endlessly.
        is_declared: returns whether a known queue manager may be at a host.
        recording: records the datagrams in both directions, if wanted.
    """

    def __init__(
        self,
        core: QueueManager,
        turns: TurnFeed,
        clock: Clock,
        source: str,
        ping_ports: Collection[int],
        is_declared: Callable[[str], bool],
        recording: Recording | None = None,
    ) -> None:
        self._core = core
        self._turns = turns
        self._clock = clock
        self._source = source
        self._ping_ports = {PING_PORT, *ping_ports}
        self._is_declared = is_declared
        self._recording = recording
        self._scope = trio.CancelScope()

    async def run(
        self, listener: socket.socket | None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Answer requests on this socket, if there is one, and send the requests from `ask`. Return after `stop`."""
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                if listener is None:
                    await trio.sleep_forever()
                else:
                    await self._answer(listener)

    def stop(self) -> None:
        """End `run`. The core has already closed the sessions that were waiting for a response."""
        self._scope.cancel()

    # The acceptor

    async def _answer(self, listener: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            if self._answer_some(listener):
                await trio.sleep(PAUSE_S)

    def _answer_some(self, listener: socket.socket) -> bool:
        """Answer up to ROUND requests; return whether there may be more."""
        strangers = 0
        for _ in range(ROUND):
            try:
                datagram, address = listener.recvfrom(READ_BYTES)
            except BlockingIOError:
                return False
            except OSError:  # From an earlier answer, on systems that tell.
                continue
            if not self._is_declared(address[0]):
                strangers += 1
                if strangers > ROUND_OF_STRANGERS:
                    continue
            self._record(address, listener.getsockname(), datagram)
            is_answered = address[1] not in self._ping_ports and not self._core.is_blocked(address[0])
            response = self._core.pinged(datagram) if is_answered else None
            if response is not None:
                with suppress(OSError):  # A neighbour that cannot be answered asks again.
                    listener.sendto(response, address)
                    self._record(listener.getsockname(), address, response)
        return True

    # The initiator

    def ask(self, order: SendPing) -> None:
        """Send a request. Pass the responses to the core as long as it waits for one."""
        self._nursery.start_soon(self._ask, order)

    async def _ask(self, order: SendPing) -> None:
        try:
            with trio.move_on_after(PING_RESPONSE_MS / 1_000):
                asking = await dial(order.host, order.port, self._source, socket.SOCK_DGRAM)
                with asking:
                    asking.send(order.datagram)
                    self._record(asking.getsockname(), asking.getpeername(), order.datagram)
                    await self._hear(order, asking)
        except OSError as error:
            where = f"{order.host}:{order.port} (UDP)"
            refused = error.errno == errno.ECONNREFUSED
            reason = f"nobody answers pings at {where}" if refused else refusal(error, where)
            self._core.lost(order.session, reason, self._clock.now())
            self._turns.wake()

    async def _hear(self, order: SendPing, asking: socket.socket) -> None:
        """Listen until the core has the response that it is waiting for; ignore other datagrams."""
        while True:
            await trio.lowlevel.wait_readable(asking)
            with suppress(BlockingIOError):
                datagram = asking.recv(READ_BYTES)
                self._record(asking.getpeername(), asking.getsockname(), datagram)
                if self._core.ping_answered(order.session, datagram):
                    self._turns.wake()
                    return

    def _record(self, source: tuple[str, int], destination: tuple[str, int], datagram: bytes) -> None:
        if self._recording is not None:
            self._recording.datagram(source, destination, datagram)


def ping_port(node: Node, *, allow_remote: bool, is_trial: bool = False) -> tuple[socket.socket | None, str]:
    """Return the socket for a node's answers, and the reason if the usual port is not available.

    Raises:
        UsageError: the port that the topology declares is not available.
    """
    if not node.settings.answer_pings:
        return None, ""
    try:
        kind = socket.SOCK_DGRAM
        found = listen(*node.ping_address, kind=kind, allow_remote=allow_remote, is_trial=is_trial)
        return found, ""
    except UsageError as error:
        if node.ping is not None:
            raise
        return None, str(error)
