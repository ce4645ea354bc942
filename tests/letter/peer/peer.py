"""The letter peer: one queue manager at one address, slow and simple.  [MS-MQQB] 3.1

Everything happens in turns. Arriving packets are accepted at once. Then a turn does everything that is due, in a fixed
order, and returns the time at which something is next due. The store is written at the end of a turn, and nothing is
sent before that.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from . import store
from .arrivals import Arrivals
from .codec import BASE, Codec
from .departures import Departures
from .network import Network
from .packets import NO_SEQUENCE, NULL, Class, MalformedError, OrderBody, Ping, Transaction, UserMessage
from .protection import Keys, Protection, RefusedError
from .queues import Outgoing, Queue
from .session import Session, State
from .switches import Switches


@dataclass(frozen=True)
class Timers:
    """The timers in seconds, with the values of Windows: notes 24, 43, 45, 51 and 52 of [MS-MQQB] 6."""

    retry_connect: float = 5
    session_initialization: float = 60
    ack_wait: float = 20
    order_ack: float = 0.5
    order_ack_longest: float = 10
    resend: tuple[float, ...] = (30,) * 3 + (300,) * 3 + (1800,) * 3 + (21_600,)


@dataclass
class Call:
    """The state of the calls to one host."""

    again_at: float = -inf
    busy: bool = False
    retry: bool = False
    """Whether the retry timer started the current attempt."""


@dataclass(eq=False)
class Peer:
    """A queue manager: its identity, its address, and everything that it has."""

    guid: UUID
    address: str
    network: Network
    queues: list[Queue] = field(default_factory=list)
    addresses: dict[UUID, str] = field(default_factory=dict)
    """The addresses of the queue managers in PRIVATE= names, as a directory would have them."""
    switches: Switches = field(default_factory=Switches)
    timers: Timers = field(default_factory=Timers)
    window: int = 64
    file: Path | None = None
    """The file of the store; a peer without one forgets everything when it ends."""
    routers: dict[UUID, set[UUID]] = field(default_factory=dict)
    """For each neighbour that may bring messages of other queue managers, the set of those managers."""
    names: tuple[str, ...] = ()
    """Other names by which a direct format name may refer to this host."""
    keys: Keys = field(default_factory=Keys)
    insecure_nacks: bool = False
    """SendInsecureNacks: whether NACKs of insecure classes are sent."""

    def __post_init__(self) -> None:
        self.codec = Codec(self.switches)
        self.room = inf
        """The number of further messages that the peer can keep before it is full."""
        self.protection = Protection(self.codec, self.keys, self.switches)
        self.arrivals, self.departures = Arrivals(self), Departures(self)
        self.sessions: list[Session] = []
        self.calls: dict[str, Call] = {}
        self.journal: list[UserMessage] = []
        self.dead_letters: list[UserMessage] = []
        self.closings: list[str] = []
        """The reasons why sessions closed, to be shown when tests fail."""
        self.refusals: list[tuple[str, int, str]] = []
        """For each message whose protection was wrong: its label, the class, and the reason."""
        self.heard: list[bytes] = []
        """All packets that arrived, for tests that examine each of them."""
        self.message_id = 0 if self.switches.message_ids_from_zero else random.randrange(1 << 31)
        self.ping_cookie = 0
        self.spelled: Counter[str] = Counter()
        """How many messages were sent to each name."""
        self.woken, self.changed = trio.Event(), trio.Event()

    def now(self) -> float:
        return trio.current_time()

    def utc(self) -> float:
        """Return the time in seconds since 1970, from the clock that the timers use."""
        return self._epoch + trio.current_time()

    def wake(self) -> None:
        """Signal a change: the next turn is due, and waiting callers may check their conditions."""
        self.woken.set()
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds for this peer."""
        while not condition():
            await self.changed.wait()

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self, started: trio.Event) -> None:
        """Run until cancelled; a cancellation is as sudden as a kill."""
        self._epoch = time.time() - trio.current_time()
        if self.file and self.file.exists():
            store.load(self, self.file)
        for sequence in self.departures.sequences.values():
            if not self.switches.sequence_outlives_process:
                self.departures.renew(sequence, at_least=int(self.utc()))
        async with trio.open_nursery() as self.nursery:
            self.nursery.start_soon(
                self.network.serve, self.address, self._welcome, self.answer_ping, started
            )
            while True:
                deadline = self.turn()
                self.woken = trio.Event()
                with trio.move_on_at(deadline):
                    await self.woken.wait()

    def turn(self) -> float:
        """Do what is due; return the time at which something is next due."""
        now, utc = self.now(), self.utc()
        order_acks, time_outs = self.arrivals.order_acks(now), self.departures.time_out(now)
        expiry = min(self.departures.expire(utc), self.arrivals.expire(utc))
        self.departures.leave(now)
        for session in self.sessions:
            if session.state is State.OPEN:
                session.acknowledge(now)
        sessions = min((session.time_out(now) for session in list(self.sessions)), default=inf)
        if self.file:
            store.save(self, self.file)
        return min(expiry - utc + now, order_acks, time_outs, sessions, self._call(now))

    # -- connections ----------------------------------------------------------------------------------------------

    def host(self, name: str) -> str:
        """Return the host of a queue; empty if none is known.  [MS-MQQB] 3.1.7.4"""
        kind, _, rest = name.partition("=")
        if kind.upper() == "DIRECT":
            return rest.partition(":")[2].partition("\\")[0]
        return self.addresses.get(UUID(rest.partition("\\")[0]), "")

    def leads_to(self, name: str, neighbour: UUID) -> bool:
        return any(session.remote == neighbour for session in self.sessions if self._serves(session, name))

    def session_for(self, name: str) -> Session | None:
        """Return an open session that leads to a queue, whichever side opened it."""
        return next((session for session in self.sessions if self._serves(session, name)), None)

    def _serves(self, session: Session, name: str) -> bool:
        """Return whether a session leads to a queue.  [MS-MQQB] 3.1.5.3.1, 5.1

        If the queue's name has a GUID, the session must be with that queue manager at its known address. With
        `believe_any_guid`, the session may be with any address.
        """
        if session.state is not State.OPEN:
            return False
        if name.upper().startswith("DIRECT"):
            return self.host(name) in (session.host, session.address)
        guid = UUID(name.partition("=")[2].partition("\\")[0])
        home = self.addresses.get(guid, session.address)
        return session.remote == guid and (
            home in (session.address, session.host) or self.switches.believe_any_guid
        )

    def _call(self, now: float) -> float:
        """Call each host for which something is waiting; return when the next call is due.  [MS-MQQB] 3.1.5.2,
        3.1.6.1
        """
        following = inf
        for queue in self.departures.queues.values():
            if not queue.entries or self.session_for(queue.name) or queue.hopeless:
                continue
            host = self.host(queue.name)
            if not host and not self.switches.retry_without_hop:
                queue.hopeless = True
                continue
            call = self.calls.setdefault(host, Call())
            if call.busy:
                continue
            if call.again_at > now:
                following = min(following, call.again_at)
            elif not host:
                call.again_at = now + self.timers.retry_connect
                following = min(following, call.again_at)
            else:
                call.busy = True
                direct = queue.name.upper().startswith("DIRECT")
                self.nursery.start_soon(self._connect, host, NULL if direct else self._guid(queue.name), call)
        return following

    @staticmethod
    def _guid(name: str) -> UUID:
        return UUID(name.partition("=")[2].partition("\\")[0])

    async def _connect(self, host: str, wanted: UUID, call: Call) -> None:
        """Try each address in turn, after a Ping if we send any; then start the retry timer. [MS-MQQB] 3.1.5.2,
        3.1.6.1
        """
        for index, address in enumerate(await self.network.resolve(host)):
            if index and self.switches.timer_between_addresses:
                await trio.sleep(self.timers.retry_connect)
            asks = self.switches.ping_required and not (call.retry and self.switches.ping_not_on_retry)
            call.retry = True
            if asks and not await self.ping(address):
                continue
            try:
                stream = await self.network.connect(self.address, address)
            except OSError:
                continue
            await self._carry(stream, address, partial(self._begin, host=host, wanted=wanted, pinged=asks))
            break
        call.busy, call.again_at = False, self.now() + self.timers.retry_connect
        self.wake()

    @staticmethod
    def _begin(session: Session, host: str, wanted: UUID, pinged: bool) -> None:
        session.host, session.wanted = host, wanted
        session.call(pinged)

    async def _welcome(self, stream: trio.abc.Stream, address: str) -> None:
        """[MS-MQQB] 3.1.5.10"""
        await self._carry(stream, address, lambda session: None)

    async def _carry(self, stream: trio.abc.Stream, address: str, begin: Callable[[Session], None]) -> None:
        """Until the session or the connection ends, pass arriving packets to the session, and write what it sends."""
        send, outbox = trio.open_memory_channel[bytes](inf)
        session = Session(self, address, send.send_nowait, send.close)
        session.give_up = self.now() + self.timers.session_initialization
        self.sessions.append(session)
        begin(session)
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._write, stream, outbox, nursery.cancel_scope)
            try:
                await self._read(stream, session)
            except (MalformedError, trio.BrokenResourceError, trio.ClosedResourceError) as reason:
                session.close(repr(reason))
            session.close("the connection ended")

    async def _read(self, stream: trio.abc.Stream, session: Session) -> None:
        buffer = bytearray()
        while not session.closed and (data := await stream.receive_some(65_536)):
            buffer += data
            while len(buffer) >= BASE.size and len(buffer) >= (
                size := self.codec.size(bytes(buffer[: BASE.size]))
            ):
                packet = bytes(buffer[:size])
                del buffer[:size]
                self.heard.append(packet)
                session.receive(self.codec.unpack(packet))
                if session.closed:
                    break
            self.wake()

    @staticmethod
    async def _write(
        stream: trio.abc.Stream, outbox: trio.MemoryReceiveChannel[bytes], scope: trio.CancelScope
    ) -> None:
        """Write everything that was sent before the session closed."""
        try:
            async for data in outbox:
                await stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    def opened(self, session: Session) -> None:
        self.departures.reopened(session)
        self.wake()

    def closed(self, session: Session, reason: str) -> None:
        """Make sure that unacknowledged messages are sent again.  [MS-MQQB] 3.1.5.9"""
        self.closings.append(reason)
        self.sessions.remove(session)
        self.arrivals.forget_order_acks(session)
        for flight in session.flights:
            flight.entry.on_way = False
        self.wake()

    def cut(self) -> None:
        """Close all sessions, as a network failure would."""
        for session in list(self.sessions):
            session.close("cut")

    # -- Pings ----------------------------------------------------------------------------------------------------

    async def ping(self, address: str) -> bool:
        """Return whether a queue manager at this address would accept a session.  [MS-MQQB] 3.1.7.6, 3.1.7.8"""
        self.ping_cookie += 1
        cookie = self.ping_cookie
        answer = await self.network.ping(self.address, address, self.codec.pack_ping(Ping(cookie, self.guid)))
        response = self.codec.read_ping(answer) if answer else None
        awaited = self.ping_cookie if self.switches.ping_latest_cookie else cookie
        return response is not None and response.cookie == awaited and not response.refused

    def answer_ping(self, data: bytes, port: int) -> bytes | None:
        """Return the answer to a Ping; there is none for a packet from a ping port, which may itself be a response.
        [MS-MQQB] 3.1.7.7
        """
        request = self.codec.read_ping(data)
        if request is None or (port == 3527 and not self.switches.ping_any_port):
            return None
        return self.codec.pack_ping(Ping(request.cookie, self.guid, rc=request.rc))

    # -- what an application does -----------------------------------------------------------------------------------

    def find(self, name: str) -> Queue | None:
        """Return our queue that has this format name; None if there is none.  [MS-MQMQ] 2.1"""
        kind, _, rest = name.partition("=")
        path = rest.partition("\\")[2].casefold()
        if kind.upper() == "DIRECT":
            path = path.removeprefix("private$\\")
            return next((queue for queue in self.queues if queue.name.casefold() == path), None)
        return next((queue for queue in self.queues if queue.number == int(path, 16)), None)

    def send(
        self,
        destination: str,
        body: bytes = b"",
        *,
        transactional: bool = False,
        seal: tuple[int, int] | None = None,
        sign: tuple[int, int] | None = None,
        **fields: Any,
    ) -> UserMessage:
        """Submit a message; `fields` are those of `UserMessage`, and `seal` and `sign` are as in
        `Protection.protect`.
        """
        address = NULL if destination.upper().startswith("DIRECT") else self._guid(destination)
        message = UserMessage(self.guid, address, destination, body, message_id=self.message_id, **fields)
        message.sent_time = int(self.utc())
        self.message_id = (self.message_id + 1) & 0xFFFFFFFF
        if transactional:
            message.transaction = Transaction(NO_SEQUENCE, 0, 0, identifier=self.message_id)
            message.recoverable, message.priority = True, 0
        self.spelled[destination] += 1
        if self.switches.other_case and self.spelled[destination] % 2 == 0:
            kind, _, rest = destination.partition("=")
            message.destination = f"{kind}={rest.swapcase()}"
        try:
            self.protection.protect(message, seal, sign)
        except RefusedError:  # [MS-MQQB] 3.1.7.1.5.1
            if message.dead_letter:
                self.dead_letters.append(message)
            return message
        if address == self.guid or (
            address == NULL and self.host(destination) in (self.address, *self.names)
        ):
            self.arrivals.deliver(message)
        else:
            self.departures.post(message)
        self.wake()
        return message

    def receive(self, name: str, message_class: int = Class.ACK_RECEIVE) -> UserMessage | None:
        """Take the first message from a queue; with a `message_class` other than the default, reject it."""
        queue = next(queue for queue in self.queues if queue.name == name)
        if not queue.messages:
            return None
        message = queue.messages[0]
        self.arrivals.leave(queue, message, message_class)
        return message

    def take_order(self, message_class: int, body: OrderBody) -> None:
        if message_class == Class.ORDER_ACK:
            self.departures.take_order_ack(body, self.now())
        else:
            self.departures.take_final_ack(message_class, body, self.now())

    def waiting(self) -> list[Outgoing]:
        """Return all messages that are on their way from here."""
        return [entry for queue in self.departures.queues.values() for entry in queue.entries]


def bodies(messages: Iterable[UserMessage]) -> list[bytes]:
    return [message.body for message in messages]
