"""One connection of a performance. Bytes go from a socket through our session, and back."""

from __future__ import annotations

import math
from itertools import chain
from typing import Final

import trio

from mqproto.base.configuration import Settings
from mqproto.base.timers import Timers
from mqproto.session import Session
from mqproto.simulator.node.turns import Clock
from mqproto.simulator.replay.performance import Performance
from mqproto.wire import Guid, decode_message

READ_BYTES: Final = 64 * 1024
FAREWELL_S: Final = 2.0
"""The time, in seconds, that the peer may take to end a connection that we have ended."""


class News:
    """Wakes all waiting tasks when something has happened."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def tell(self) -> None:
        """Wake the waiting tasks, because something has happened."""
        self._event.set()
        self._event = trio.Event()

    async def wait(self) -> None:
        """Wait until something happens."""
        await self._event.wait()


class Talk:
    """One connection with a session on it, from its first byte on.

    Args:
        own: the queue manager that we claim to be.
        host: the peer's address.
        plays: whether the messages of the script are sent on this connection; if not, it only receives.

    ending: why the connection is over, in words; empty while it is open.
    section: the rule that the peer broke, if any.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        performance: Performance,
        news: News,
        *,
        own: Guid,
        host: str,
        initiator: bool,
        settings: Settings,
        plays: bool = True,
    ) -> None:
        self.ending = ""
        self.section = ""
        self.stream = stream
        self._performance = performance
        self._news = news
        self._own = own
        self._host = host
        self._plays = plays
        self._clock = Clock()
        self._timers = Timers()
        self.session = Session(
            0,
            initiator=initiator,
            local_qm=own,
            remote_qm=None,
            remote_address=host,
            direct=initiator,
            settings=settings,
            timers=self._timers,
        )
        if initiator:
            self.session.opened(self._clock.now())

    @property
    def is_idle(self) -> bool:
        """Whether the peer has acknowledged everything that was sent."""
        return not self.session.lost()

    async def run(self) -> None:
        """Send and receive until the connection is over, or until this task is cancelled. The stream stays open."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            await self._speak()
            nursery.cancel_scope.cancel()
        self._news.tell()

    def receive(self, data: bytes) -> None:
        """Process bytes that have arrived."""
        now, now_s = self._clock.now(), trio.current_time()
        performance, session = self._performance, self.session
        performance.heard_s = now_s
        was_open = session.is_open
        runs = session.receive(data, now)
        if session.is_open and not was_open:
            performance.progress_s = now_s
        performance.acknowledged(session.take_completed(), now_s)
        for packet in chain.from_iterable(run.packets for run in runs):
            performance.heard(decode_message(packet), packet, self._own, self._host, now, now_s)
        self._news.tell()

    async def _listen(self) -> None:
        try:
            while data := await self.stream.receive_some(READ_BYTES):
                self.receive(bytes(data))
            ending = "the peer closed the connection"
        except trio.BrokenResourceError:
            ending = "the peer reset the connection"
        if self.session.closed is None:  # Otherwise its own reason says more, and is set after the last send.
            self.ending = ending
        self._news.tell()

    async def _speak(self) -> None:
        session = self.session
        while not self.ending and session.closed is None:
            now = self._clock.now()
            for timer, _ in self._timers.expired(now.uptime_ms):
                session.expired(timer, now)
            self._performance.tick(now)
            self._send_what_is_due()
            session.acknowledge()
            if chunks := session.take_outbox():
                await self._send(b"".join(chunks))
            elif session.closed is None:
                with trio.move_on_at(self._deadline_s()):
                    await self._news.wait()
        if session.closed is not None:
            await self._send(b"".join(session.take_outbox()))
            self.ending, self.section = session.closed.reason, session.closed.section

    async def _send(self, data: bytes) -> None:
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            if self.session.closed is None:
                self.ending = "the peer closed the connection"

    def _send_what_is_due(self) -> None:
        now, now_s = self._clock.now(), trio.current_time()
        session = self.session
        while self._plays and session.room:
            assert session.remote_qm is not None, "it is known in an open session"
            entry = self._performance.take(session.remote_qm, now, now_s)
            if entry is None:
                return
            session.send([entry], now)

    def _deadline_s(self) -> float:
        """Return the time at which to act if nothing happens before then."""
        timers = (self._timers.next_ms, self._performance.timers.next_ms)
        first_s = min(self._clock.at(deadline_ms) for deadline_ms in timers)
        due_s = math.inf
        if self._plays and self.session.room:
            due_s = self._performance.due_s(trio.current_time())
        return min(first_s, due_s)


async def farewell(stream: trio.SocketStream) -> None:
    """Close a connection after the peer has closed it, or after 2 s. Closing first could send a reset that overtakes
    our last data.
    """
    with trio.move_on_after(FAREWELL_S):
        try:
            await stream.send_eof()
            while await stream.receive_some(READ_BYTES):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    await stream.aclose()
