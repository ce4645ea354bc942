"""Plays a part on connections to or from a live peer, one connection after the other.

Nothing waits forever. Anything that makes no progress for `timeout_s` is given up.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from mqproto.base.configuration import Settings
from mqproto.base.errors import MqprotoError, WireFormatError
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.node.transport import accept, dial, refusal
from mqproto.simulator.replay.identity import new_guid
from mqproto.simulator.replay.performance import Performance
from mqproto.simulator.replay.talk import READ_BYTES, News, Talk, farewell
from mqproto.wire import NULL_GUID, EstablishConnection, Guid, PacketBuffer, decode_packet

LINGER_S: Final = 0.3
"""The time, in seconds, for which the peer has to be quiet at the end. Unexpected packets are then noticed as well."""


class ReplayError(MqprotoError):
    """There was no peer to play the part to."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a performance.

    ending: why the performance ended before everything was sent and answered; empty if it did not.
    is_broken: whether the peer ended it.
    section: the rule that the peer broke, if any.
    """

    peer: str = ""
    own: Guid | None = None
    manager: Guid | None = None
    session_count: int = 0
    ending: str = ""
    section: str = ""
    is_broken: bool = False


def settings_for(timeout_s: float) -> Settings:
    """Return the settings of Windows, with another time limit for the handshake."""
    return Settings(session_initialization_timeout_ms=max(1, round(timeout_s * 1_000)))


async def connected(
    addresses: Sequence[tuple[str, int]], timeout_s: float
) -> tuple[trio.SocketStream, tuple[str, int]]:
    """Connect to a live peer at the first of its addresses that answers; return the connection and the address.

    Raises:
        ReplayError: none of the addresses answers.
    """
    reason = ""
    for where in addresses:
        reason = f"{Endpoint(*where)} did not take a connection within {timeout_s:g} s"
        with trio.move_on_after(timeout_s):
            try:
                return _stream(await dial(*where, "")), where
            except OSError as error:
                reason = refusal(error, str(Endpoint(*where)))
    raise ReplayError(f"{reason}: start the peer, or name another with --to")


async def accepted(listener: socket.socket, timeout_s: float) -> tuple[trio.SocketStream, str]:
    """Return the connection of the next client, and its address.

    Raises:
        ReplayError: nobody connects.
    """
    with trio.move_on_after(timeout_s):
        connection, host = await accept(listener)
        return _stream(connection), host
    raise ReplayError(
        f"nobody connected within {timeout_s:g} s: start the client, or wait longer with --timeout"
    )


def _stream(connection: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(connection))


async def play_to(
    performance: Performance,
    addresses: Sequence[tuple[str, int]],
    own: Guid,
    timeout_s: float,
    listener: socket.socket | None = None,
) -> Outcome:
    """Play to a peer that we connect to.

    There is one session for each captured connection that has messages to send.

    Args:
        addresses: the peer's addresses; the first one that answers is used.
        listener: accepts the peer's own connections.

    Raises:
        ReplayError: no address answered when we connected for the first time.
    """
    outcome = Outcome(own=own)
    settings = settings_for(timeout_s)
    news = News()
    scenes = [scene.messages for scene in performance.script.scenes if scene.messages]
    async with trio.open_nursery() as aside:
        if listener is not None:
            aside.start_soon(_take_others, performance, listener, own, settings, news)
        for place, numbers in enumerate(scenes):
            await _until_due(performance, numbers[0])
            try:
                stream, where = await connected(addresses, timeout_s)
            except ReplayError as error:
                if not place:
                    raise
                outcome.ending, outcome.is_broken = str(error), True
                break
            addresses, outcome.peer = [where], str(Endpoint(*where))
            performance.pending.extend(numbers)
            talk = Talk(stream, performance, news, own=own, host=where[0], initiator=True, settings=settings)
            outcome.session_count += 1
            is_last = place == len(scenes) - 1
            await _converse(talk, performance, news, timeout_s, outcome, answered=is_last)
            if outcome.ending:
                break
        aside.cancel_scope.cancel()
    return outcome


async def _until_due(performance: Performance, number: int) -> None:
    """Wait until the first message of a session is due."""
    step = performance.script.messages[number].step
    await trio.sleep_until(performance.pace.due_s(step.time_ns, trio.current_time()))


async def _take_others(
    performance: Performance, listener: socket.socket, own: Guid, settings: Settings, news: News
) -> None:
    """Process packets on the connections that the peer opens; answers may arrive on any connection."""
    async with trio.open_nursery() as nursery:
        while True:
            connection, host = await accept(listener)
            talk = Talk(
                _stream(connection),
                performance,
                news,
                own=own,
                host=host,
                initiator=False,
                settings=settings,
                plays=False,
            )
            nursery.start_soon(_take, talk)


async def _take(talk: Talk) -> None:
    async with talk.stream:
        await talk.run()


async def play_listening(
    make: Callable[[Guid], Performance],
    listener: socket.socket,
    own: Guid | None,
    captured: Guid | None,
    timeout_s: float,
) -> tuple[Performance, Outcome]:
    """Play to a client that connects to us.

    If the client ends the connection too early, continue on its next one.

    Args:
        make: makes the performance, once it is known which queue manager we are.
        own: our queue manager; None for the one that the client asks for. If the client asks for none, we are
            `captured` or, if that is None, too, a new queue manager.

    Raises:
        ReplayError: nobody connects.
    """
    outcome, news, settings = Outcome(), News(), settings_for(timeout_s)
    performance: Performance | None = None
    while True:
        try:
            stream, host = await accepted(listener, timeout_s)
        except ReplayError:
            if performance is None:
                raise
            return performance, outcome
        data = await _greeting(stream, timeout_s)
        if performance is None:
            outcome.own = own = own or _asked_for(data) or captured or new_guid()
            performance = make(own)
            performance.pending.extend(range(len(performance.script.messages)))
        assert own is not None
        outcome.peer, outcome.ending, outcome.section = host, "", ""
        outcome.session_count += 1
        talk = Talk(stream, performance, news, own=own, host=host, initiator=False, settings=settings)
        talk.receive(data)
        if await _converse(talk, performance, news, timeout_s, outcome, answered=True) or outcome.section:
            return performance, outcome
        performance.give_back(talk.session.lost())


async def _greeting(stream: trio.SocketStream, timeout_s: float) -> bytes:
    """Return the first bytes from a client, up to the end of its first packet, or until the client stops sending."""
    data, buffer = b"", PacketBuffer()
    with trio.move_on_after(timeout_s), suppress(trio.BrokenResourceError, WireFormatError):
        while chunk := bytes(await stream.receive_some(READ_BYTES)):
            data += chunk
            if buffer.feed(chunk):
                break
    return data


def _asked_for(data: bytes) -> Guid | None:
    """Return the queue manager that a client asks for, if it names one."""
    try:
        packets = PacketBuffer().feed(data)
        request = decode_packet(packets[0]) if packets else None
    except WireFormatError:
        return None
    if isinstance(request, EstablishConnection) and request.server_guid != NULL_GUID:
        return request.server_guid
    return None


async def _converse(
    talk: Talk, performance: Performance, news: News, timeout_s: float, outcome: Outcome, *, answered: bool
) -> bool:
    """Serve one connection to its end. Return whether the performance is over; it is not if the peer ended the
    connection too early.

    Args:
        answered: whether to wait for all answers, in addition to those of the session itself.
    """
    performance.progress_s = trio.current_time()
    async with talk.stream:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.run)
            is_over, outcome.ending = await _watch(talk, performance, news, timeout_s, answered=answered)
            nursery.cancel_scope.cancel()
        await farewell(talk.stream)
    outcome.is_broken = bool(outcome.ending) and bool(talk.ending)
    outcome.section = talk.section if outcome.ending else ""
    outcome.manager = talk.session.remote_qm
    return is_over


async def _watch(
    talk: Talk, performance: Performance, news: News, timeout_s: float, *, answered: bool
) -> tuple[bool, str]:
    """Wait for the end of a connection. Return whether the performance is over, and the reason if it ended too
    early.
    """
    while True:
        now_s = trio.current_time()
        said = not performance.pending and talk.is_idle and not (answered and performance.unmet)
        complete = said and (performance.receiver.owes_nothing or not answered)
        if talk.section or (talk.ending and not said):
            return False, talk.ending
        if talk.ending:
            # A client may go before our OrderAck is due.
            return performance.has_heard_all, ""
        if complete and (performance.has_heard_all or not answered):
            deadline_s = max(performance.heard_s, performance.progress_s) + LINGER_S * answered
            if now_s >= deadline_s:
                return True, ""
        else:
            deadline_s = max(performance.progress_s, performance.waits_until_s(now_s)) + timeout_s
            if now_s >= deadline_s:
                return True, "" if complete else f"nothing new came of it for {timeout_s:g} s"
        with trio.move_on_at(deadline_s):
            await news.wait()
