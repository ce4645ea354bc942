"""Small queue managers for a fuzzer: a sound one, and one for each fault that a fuzzer has to find.

They accept sessions and acknowledge messages; they have no queues. A planted fault is a few lines on top of that.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import trio

from mqproto.base.configuration import Settings
from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.session import Session
from mqproto.wire import (
    Guid,
    PacketBuffer,
    SessionAck,
    UserMessage,
    acknowledgment_in,
    decode_message,
    decode_packet,
    encode_packet,
    establish_connection,
    inspect_packet,
)

PEER = Guid(b"the peer's guid."[:16])
BACK_S = 0.02
"""How long a crashed peer is away, in seconds."""


class CrashedError(Exception):
    """Raised where a real peer's process would have ended."""


class Peer:
    """A sound peer. Subclasses with faults override the methods from `opened` on."""

    def __init__(self) -> None:
        self.port = 0
        self.crash_count = 0
        self._keys = count(1)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve; after a crash, serve again on the same port."""
        while True:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            listener.listen(64)
            self.port = listener.getsockname()[1]
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            try:
                await self._listen(trio.SocketListener(trio.socket.from_stdlib_socket(listener)))
            except* CrashedError:
                self.crash_count += 1
            await self.away()

    async def _listen(self, listener: trio.SocketListener) -> None:
        async with listener, trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._serve, await listener.accept())

    async def _serve(self, stream: trio.SocketStream) -> None:
        session = Session(
            next(self._keys),
            initiator=False,
            local_qm=PEER,
            remote_qm=None,
            remote_address="127.0.0.1",
            direct=False,
            settings=Settings(),
            timers=Timers(),
        )
        try:
            await self.opened(session)
            while session.closed is None and (data := await stream.receive_some(65_536)):
                answers = await self.received(session, data)
                if answers:
                    await stream.send_all(answers)
            stream.socket.shutdown(socket.SHUT_WR)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.lost(session)
            stream.socket.close()

    async def opened(self, session: Session) -> None:
        """Handle an accepted connection."""

    def lost(self, session: Session) -> None:
        """Handle the end of a connection."""

    async def received(self, session: Session, data: bytes) -> bytes:
        """Return the answer to these bytes."""
        runs = session.receive(data, Moment(int(1_000 * trio.current_time()), 0))
        said = [
            await self.took(session, decode_message(packet), packet) for run in runs for packet in run.packets
        ]
        session.acknowledge()
        return self.answered(session, session.take_outbox(), b"".join(said))

    async def took(self, session: Session, message: UserMessage, packet: bytes) -> bytes:
        """Take a message; return what to send in addition to the session acknowledgment."""
        return b""

    def answered(self, session: Session, outbox: list[bytes], said: bytes) -> bytes:
        """Return the bytes that are finally sent."""
        return b"".join(outbox) + said

    async def away(self) -> None:
        """Stay away for a moment after a crash."""
        await trio.sleep(BACK_S)


class Bounds(Peer):
    """A sound peer that limits one host for a time: it closes `count` connections from there without a word.

    after: the number of connections from that host that it serves first.
    """

    def __init__(self, after: int, count: int, host: str = "127.0.0.1") -> None:
        super().__init__()
        self._left, self._count, self._host = after, count, host

    async def _serve(self, stream: trio.SocketStream) -> None:
        if stream.socket.getpeername()[0] == self._host:
            self._left -= 1
            if -self._count <= self._left < 0:
                await stream.receive_some(65_536)
                stream.socket.close()
                return
        await super()._serve(stream)


@asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[str]:
    """Run a peer; yield its address."""
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.run)
        yield f"127.0.0.1:{peer.port}"
        nursery.cancel_scope.cancel()


# Faults of the state


class HangsOnAGap(Peer):
    """A peer that waits for the predecessor of a transactional message, and neglects everything else."""

    async def took(self, session: Session, message: UserMessage, packet: bytes) -> bytes:
        if message.transaction is not None and message.transaction.previous_tx_sequence_number:
            await trio.sleep_forever()
        return b""


class AnswersGarbage(Peer):
    """A peer that is confused by an OrderAck for a sequence that it never began, as KB 830639 reports of another queue
    manager.
    """

    async def took(self, session: Session, message: UserMessage, packet: bytes) -> bytes:
        return b"garbage" * 8 if acknowledgment_in(message) is not None else b""


class AcknowledgesBeyond(Peer):
    """A peer that counts a message twice if the message asks for an acknowledgment."""

    async def took(self, session: Session, message: UserMessage, packet: bytes) -> bytes:
        if message.properties.acknowledge_arrival:
            session.data.message_received_count += 1
        return b""


class ServesOneClient(Peer):
    """A peer that makes a second connection wait."""

    def __init__(self) -> None:
        super().__init__()
        self._place = trio.Lock()

    async def opened(self, session: Session) -> None:
        await self._place.acquire()

    def lost(self, session: Session) -> None:
        self._place.release()


class HangsForAll(Peer):
    """A peer that waits for the rest of half a packet, and so blocks all clients."""

    def __init__(self) -> None:
        super().__init__()
        self._stuck: set[int] = set()
        self._freed = trio.Event()

    async def received(self, session: Session, data: bytes) -> bytes:
        answers = await super().received(session, data)
        if session.closed is None and session._buffer.pending_bytes > 40:
            self._stuck.add(session.key)
        else:
            self._free(session)
        while self._stuck and session.key not in self._stuck:
            await self._freed.wait()
        return answers

    def lost(self, session: Session) -> None:
        self._free(session)

    def _free(self, session: Session) -> None:
        self._stuck.discard(session.key)
        self._freed.set()
        self._freed = trio.Event()


class AnswersTwice(Peer):
    """A peer that accepts a second EstablishConnection in an open session, where 3.1.5.3 requires it to close the
    connection.
    """

    async def received(self, session: Session, data: bytes) -> bytes:
        if session.is_open and len(data) == 572:
            with suppress(ValueError):
                request: Any = decode_packet(data)
                answer = establish_connection(
                    client=request.client_guid, server=PEER, time_stamp_ms=request.time_stamp_ms
                )
                return encode_packet(answer)
        return await super().received(session, data)


class NeverCloses(Peer):
    """A peer that stays silent where it should close the connection."""

    async def received(self, session: Session, data: bytes) -> bytes:
        answers = await super().received(session, data)
        if session.closed is not None and session.data.remote_qm is not None:
            await trio.sleep_forever()
        return answers


class ForgetsCounts(Peer):
    """A peer whose SessionAcks claim, after two express messages, that it has sent one, although it has sent none."""

    def answered(self, session: Session, outbox: list[bytes], said: bytes) -> bytes:
        if session.data.message_received_count > session.data.recoverable_message_received_count + 1:
            outbox = [_counted(packet) for packet in outbox]
        return b"".join(outbox) + said


def _counted(packet: bytes) -> bytes:
    decoded = decode_packet(packet)
    if isinstance(decoded, SessionAck):
        decoded.session.user_msg_sequence_number += 1
    return encode_packet(decoded)


class DiesForGood(Peer):
    """A peer that crashes, and is not started again."""

    async def took(self, session: Session, message: UserMessage, packet: bytes) -> bytes:
        if message.transaction is not None:
            raise CrashedError
        return b""

    async def away(self) -> None:
        await trio.sleep_forever()


# Faults of the parser, each a way in which Microsoft's was once broken: 32-bit arithmetic, flags that are believed


class CrashesOn(Peer):
    """A peer whose parser crashes on a class of packets."""

    def __init__(self, is_deadly: Callable[[dict[str, Any]], bool]) -> None:
        super().__init__()
        self.is_deadly = is_deadly
        self._buffers: dict[int, PacketBuffer] = {}

    async def received(self, session: Session, data: bytes) -> bytes:
        """Take packets one by one, because whether one is deadly does not depend on how TCP cuts the stream."""
        buffer = self._buffers.setdefault(session.key, PacketBuffer())
        begun_bytes = buffer.pending_bytes
        packets: list[bytes] = []
        with suppress(WireFormatError):
            packets = buffer.feed(data)
        answers = b""
        for packet in packets:
            if session.is_open and self.is_deadly(
                {field.name: field.value for field in inspect_packet(packet).fields}
            ):
                raise CrashedError
            new_bytes = len(packet) - begun_bytes
            answers += await super().received(session, data[:new_bytes])
            data, begun_bytes = data[new_bytes:], 0
        return answers + await super().received(session, data)

    def lost(self, session: Session) -> None:
        self._buffers.pop(session.key, None)


MASK = 0xFFFFFFFF


def doubled_count_wraps(fields: dict[str, Any]) -> bool:
    """Return whether a count of characters becomes small when it is doubled in 32 bits."""
    size = 2 * fields.get("soap.header_data_length", 0)
    return bool(size > MASK and size & MASK < 64)


def aligned_size_wraps(fields: dict[str, Any]) -> bool:
    """Return whether a size becomes 0 when it is aligned in 32 bits."""
    size = fields.get("security.provider_info_size", 0) + 3
    return bool(size > MASK)


def flag_announces_nothing(fields: dict[str, Any]) -> bool:
    """Return whether a SecurityHeader is announced, but the packet ends where it would begin."""
    return bool(fields.get("user.flags", 0) >> 19 & 1) and "properties.flags" not in fields


def more_elements_than_bytes(fields: dict[str, Any]) -> bool:
    """Return whether so many elements are announced that reserving memory for all of them would do harm."""
    names = ("destination", "administration", "response")
    counts = [fields.get(f"multi_queue_format.{name}.element_count", 0) for name in names]
    return bool(max(counts) > 100_000)


def named_so(fields: dict[str, Any]) -> bool:
    """Return whether too many elements are announced, and one bit of the sender's name is set.

    Half of the names that a mutation gives to senders have this bit.
    """
    source = fields.get("user.source_queue_manager", bytes(16))
    return more_elements_than_bytes(fields) and bool(source[0] & 1)
