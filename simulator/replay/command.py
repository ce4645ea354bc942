"""`mqproto replay`: what was typed, and what it does."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from captures.answers import Answers
from captures.conversation import Side
from captures.frame import CaptureError
from captures.packets import SeenPacket, read_packets
from captures.script import Script, choose, read_script, survey
from mqproto.errors import UsageError
from mqproto.wire import Guid, TxSequenceId, guid_from_text, guid_text
from simulator.probe import target
from simulator.replay.performance import Pace, Performance
from simulator.replay.report import Report, compare, counts_of
from simulator.replay.rewrite import QueueMap, Rewriter
from simulator.replay.stage import (
    Outcome,
    accepted,
    connected,
    new_guid,
    play_listening,
    play_to,
    settings_for,
)
from simulator.replay.verbatim import Verbatim
from simulator.transport import BACKLOG

CAPTURED: Final = "captured"
NEW: Final = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was typed.

    to, listen: addresses; at least one of them.
    side, connection: as for `captures.script.choose`.
    identity: `captured`, `new`, a GUID, or empty for the default.
    speed: `captured`, `max`, a factor, or empty for the default.
    """

    capture: Path
    to: str = ""
    listen: str = ""
    side: str = ""
    connection: int | None = None
    maps: tuple[QueueMap, ...] = ()
    identity: str = ""
    speed: str = ""
    timeout_s: float = 15
    as_captured: bool = False
    allow_remote: bool = False

    @property
    def pace(self) -> Pace:
        """When packets are sent.

        Raises:
            UsageError: the speed is none.
        """
        text = self.speed or (CAPTURED if self.as_captured else "max")
        if text == "max":
            return Pace()
        try:
            speed = 1.0 if text == CAPTURED else float(text)
        except ValueError:
            speed = 0
        if not 0 < speed < float("inf"):
            raise UsageError(f"--speed {text}: write captured, max, or a factor such as 10 or 0.5")
        return Pace(speed)


async def replay(options: Options) -> Report:
    """Do what was typed.

    Raises:
        UsageError: it makes no sense, or is not allowed.
        ReplayError: there was nobody to play to.
    """
    if not options.to and not options.listen:
        raise UsageError(
            "whom to play to? give --to HOST[:PORT], or --listen HOST[:PORT] and start the client"
        )
    if options.as_captured and (options.maps or options.identity):
        raise UsageError("--as-captured rewrites nothing: leave --map and --identity out, or leave it out")
    pace = options.pace
    address, port = await _allowed(options.to, options) if options.to else ("", 0)
    is_remote = bool(options.to) and not _is_loopback(address)
    if is_remote and not options.identity and not options.as_captured:
        raise UsageError(
            "to a remote peer say who to be: --identity new, or --identity captured if the true queue manager may have "
            "its sequences taken over"
        )
    with ExitStack() as held:
        listener = None
        if options.listen:
            listener = held.enter_context(closing(_listener(*await _allowed(options.listen, options))))
        script = _script(options)
        began_s = trio.current_time()
        if options.as_captured:
            return await _play_as_captured(script, options, pace, (address, port), listener, began_s)
        return await _play(script, options, pace, (address, port), listener, began_s)


# Addresses


async def _allowed(text: str, options: Options) -> tuple[str, int]:
    """The address that a person means, resolved, if it may be used.

    Raises:
        UsageError: it is none, or not on loopback, and nobody asked for that.
    """
    host, port = target(text)
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(f"no computer is called {host}: give another name, or an address") from None
    addresses = [str(entry[4][0]) for entry in found]
    beyond = [address for address in addresses if not _is_loopback(address)]
    if beyond and not options.allow_remote:
        what = host if host == beyond[0] else f"{host}, {beyond[0]},"
        raise UsageError(f"{what} is not on loopback: ask for that with --allow-remote")
    return addresses[0], port


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _listener(address: str, port: int) -> socket.socket:
    """A socket that listens there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{address}:{port} cannot be listened at ({error.strerror}): name another port with --listen"
        ) from None
    print("listening at {}:{}".format(*listener.getsockname()[:2]), file=sys.stderr, flush=True)
    return listener


# The script


def _script(options: Options) -> Script:
    """The part that was asked for.

    Raises:
        UsageError: there is none in the capture.
    """
    damages: dict[str, None] = {}
    connections = survey(_packets(options.capture, damages))
    damage = "".join(f"; {each}" for each in damages)
    if not connections:
        raise UsageError(f"{options.capture}: there is no MSMQ in it{damage}")
    # With --as-captured each side has to say what belongs to it, and so does who plays a server.
    side = options.side or (Side.SERVER.value if not options.to else Side.CLIENT.value * options.as_captured)
    part = choose(connections, side, options.connection)
    if not part.message_count and options.to and not options.as_captured:
        raise UsageError(f"{options.capture}: {part} has no message to play; name another side with --side")
    script = read_script(_packets(options.capture, {}), part)
    script.left_out += [f"what comes after the damage: {each}" for each in damages]
    return script


def _packets(path: Path, damages: dict[str, None]) -> Iterator[SeenPacket]:
    """The packets up to the end of the capture, or to where it is damaged."""
    try:
        yield from read_packets(path)
    except CaptureError as damage:
        damages[str(damage)] = None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a capture, pcap or pcapng") from None


# Playing


async def _play(
    script: Script,
    options: Options,
    pace: Pace,
    peer: tuple[str, int],
    listener: socket.socket | None,
    began_s: float,
) -> Report:
    rewriters: list[Rewriter] = []

    def make(own: Guid) -> Performance:
        rewriter = Rewriter(
            script,
            sources=_sources(script, own, options),
            maps=options.maps,
            first_message_id=1 + secrets.randbelow(2**31),
            newest=_newest(script),
        )
        rewriters.append(rewriter)
        settings = settings_for(options.timeout_s)
        return Performance(script, rewriter, settings, pace, waits=not options.to)

    own = _identity(options.identity)
    if options.to or options.identity == CAPTURED:
        own = own or script.own_manager or new_guid()
    if options.to:
        assert own is not None
        performance = make(own)
        outcome = await play_to(performance, *peer, own, options.timeout_s, listener)
    else:
        assert listener is not None
        performance, outcome = await play_listening(
            make, listener, own, script.own_manager, options.timeout_s
        )
    rewriter = rewriters[0]
    report = _report(script, performance.live, outcome, began_s)
    if options.to and not options.side:
        report.part += ", which sent most messages"
    report.changes = rewriter.changes
    report.remarks = performance.remarks
    report.received_count = performance.receiver.received_count
    if rewriter.broken_signature_count:
        report.remarks.append(
            f"{rewriter.broken_signature_count:,} messages are signed, and their signatures no longer fit"
        )
    if (
        script.answers.order_ack_count > performance.live.order_ack_count == 0
        and outcome.own != script.own_manager
    ):
        report.remarks.append(
            f"an OrderAck comes only if the peer knows the way to {_name(outcome.own)}: name one that it knows with "
            "--identity, or map the queue to a DIRECT= name"
        )
    if not performance.has_heard_all:
        report.remarks.append(
            f"in the capture the peer sent {script.heard_message_count:,} messages, here {report.received_count:,}"
        )
    return report


async def _play_as_captured(
    script: Script,
    options: Options,
    pace: Pace,
    peer: tuple[str, int],
    listener: socket.socket | None,
    began_s: float,
) -> Report:
    """Play bytes: as the client of captured connections with --to, as their server with --listen."""
    side = Side.CLIENT if options.to else Side.SERVER
    scenes = [scene for scene in script.scenes if scene.side is side]
    if not scenes:
        raise UsageError(
            f"{script.part} is not the {side.value}'s: with --as-captured name --side {side.value}"
        )
    if len(scenes) < len(script.scenes):
        script.left_out.append(f"connections on which our side was the {side.other.value}")
    verbatim, outcome = Verbatim(script, pace, options.timeout_s), Outcome(own=script.own_manager)
    for scene in scenes:
        if options.to:
            stream = await connected(*peer, options.timeout_s)
            outcome.peer = "{}:{}".format(*peer)
        else:
            assert listener is not None
            stream, outcome.peer = await accepted(listener, options.timeout_s)
        await verbatim.play(scene, stream, outcome, last=scene is scenes[-1])
        if outcome.ending:
            break
    report = _report(script, verbatim.live, outcome, began_s)
    report.as_captured, report.remarks = True, verbatim.remarks
    return report


def _report(script: Script, live: Answers, outcome: Outcome, began_s: float) -> Report:
    return Report(
        part=str(script.part),
        peer=outcome.peer,
        own=outcome.own,
        manager=outcome.manager,
        duration_s=trio.current_time() - began_s,
        message_count=len(script.messages),
        sent_count=live.sent_count,
        resend_count=script.resend_count,
        acknowledgment_count=script.acknowledgment_count,
        session_count=outcome.session_count,
        received_count=0,
        answers=counts_of(script.answers, live),
        differences=compare(script, live, outcome),
        left_out=script.left_out,
    )


# Identities and numbers


def _identity(text: str) -> Guid | None:
    """Who was asked for; None if that is left to the capture or to the client.

    Raises:
        UsageError: it is no GUID.
    """
    if text in ("", CAPTURED):
        return None
    if text == NEW:
        return new_guid()
    try:
        return guid_from_text(text)
    except ValueError:
        raise UsageError(f"--identity {text}: write captured, new, or a GUID") from None


def _name(guid: Guid | None) -> str:
    return "us" if guid is None else guid_text(guid)


def _sources(script: Script, own: Guid, options: Options) -> Mapping[Guid, Guid]:
    """By the captured queue manager, who sends its messages now.

    Whoever wants another identity wants no trace of the others either whose messages our side had forwarded.
    """
    if options.identity in ("", CAPTURED):
        return {script.own_manager: own} if script.own_manager is not None else {}
    sources = {message.identity[0] for message in script.messages}
    return {each: own if each == script.own_manager else new_guid() for each in sources}


def _newest(script: Script) -> TxSequenceId:
    """Above all identifiers that anybody may have given before: they begin with the time.  [MS-MQQB] 3.1.1.3.1"""
    now_ns = time.time_ns()
    captured = [message.place[0].time_stamp for message in script.messages if message.place is not None]
    time_stamp = max([now_ns // 10**9, *(each + 1 for each in captured)])
    return TxSequenceId(time_stamp=min(time_stamp, 2**32 - 1), ordinal=now_ns % 10**9)
