"""The command `mqproto replay`, which checks its options and plays the part that they ask for."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from mqproto.base.errors import UsageError
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.selection import MessageNamed
from mqproto.captures.files.frame import CaptureError
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import SeenPacket, read_packets
from mqproto.captures.script import Script, choose, read_script, survey
from mqproto.simulator.replay.addresses import allowed, is_loopback, listening_at
from mqproto.simulator.replay.identity import CAPTURED, named, new_guid, newest_sequence, sources
from mqproto.simulator.replay.onemessage import alone, as_new, described, find_message
from mqproto.simulator.replay.options import ReplayOptions
from mqproto.simulator.replay.performance import Pace, Performance
from mqproto.simulator.replay.progress import progress
from mqproto.simulator.replay.report import Report, report_of
from mqproto.simulator.replay.rewrite import QueueMap, Rewriter, read_map
from mqproto.simulator.replay.stage import Outcome, accepted, connected, play_listening, play_to, settings_for
from mqproto.simulator.replay.verbatim import Verbatim
from mqproto.wire import Guid, guid_text

if TYPE_CHECKING:
    from mqproto.simulator.client import MessageId
    from mqproto.simulator.topology.places import Place


async def replay(options: ReplayOptions) -> Report:
    """Run the command.

    Raises:
        UsageError: the options make no sense, or are not allowed.
        ReplayError: there was no peer to play the part to.
    """
    if not options.to and not options.listen:
        raise UsageError(
            "whom to play to? give --to HOST[:PORT], or --listen HOST[:PORT] and start the client; --node NODE has a "
            "node send one message anew"
        )
    if options.as_captured and (options.maps or options.identity):
        raise UsageError("--as-captured rewrites nothing: leave --map and --identity out, or leave it out")
    if options.as_captured and options.message is not None:
        raise UsageError(
            "--as-captured plays all bytes of a connection: leave --message out, or leave it out"
        )
    stage = _PartStage(pace_of(options), _maps(options))
    if options.to:
        stage.peers = await allowed(options.to, allow_remote=options.allow_remote)
        is_local = all(is_loopback(address) for address, _ in stage.peers)
        if not (is_local or options.identity or options.as_captured):
            raise UsageError(
                "to a remote peer say who to be: --identity new, or --identity captured if the sequences of the true "
                "queue manager may become old"
            )
    with ExitStack() as held:
        if options.listen:
            address, *_ = await allowed(options.listen, allow_remote=options.allow_remote)
            stage.listener = held.enter_context(closing(listening_at(*address)))
        script = _script(options)
        if options.message is not None and not options.identity and script.messages[0].place is not None:
            raise UsageError(
                "the message is transactional: --node NODE sends it as a new one; with --to say who sends it: "
                "--identity new, a stranger, or captured, whose own next messages the peer drops then, as older"
            )
        stage.began_s = trio.current_time()
        play = _play_as_captured if options.as_captured else _play
        return await play(script, options, stage)


async def send_again(options: ReplayOptions, place: Place, node: str) -> tuple[str, str, MessageId]:
    """Let a node send a captured message as a new one. Return its old identifier, its queue and its new identifier.

    Raises:
        UsageError: the options make no sense.
        NodeUnreachable: the node is not running.
    """
    from mqproto.simulator.client import connect

    if options.to or options.listen or options.identity or options.speed or options.as_captured:
        raise UsageError(
            "--node has a node send a new message: leave --to, --listen, --identity, --speed and --as-captured out"
        )
    if options.message is None:
        raise UsageError("--node sends one message of a capture: say which with --message")
    maps = _maps(options)
    script = _script(options)
    queue, draft = as_new(script, maps)
    async with connect(place.topology, node, place.directory) as client:
        [sent] = await client.send_many(queue, [draft])
    return identifier_text(*script.messages[0].identity), queue, sent


@dataclass(slots=True)
class _PartStage:
    """The connections over which a part is played, and the times at which it is played."""

    pace: Pace
    maps: tuple[QueueMap, ...]
    peers: list[tuple[str, int]] = field(default_factory=list)
    listener: socket.socket | None = None
    began_s: float = 0.0

    @property
    def listening(self) -> socket.socket:
        """The socket that clients connect to, if --to was not given."""
        assert self.listener is not None, "there is --listen where --to is not"
        return self.listener

    @property
    def duration_s(self) -> float:
        return trio.current_time() - self.began_s


# The script


def pace_of(options: ReplayOptions) -> Pace:
    """Return the pace at which to send packets.

    Raises:
        UsageError: the speed is not valid.
    """
    text = options.speed or (CAPTURED if options.as_captured else "max")
    if text == "max":
        return Pace()
    try:
        speed = 1.0 if text == CAPTURED else float(text)
    except ValueError:
        speed = 0
    if not 0 < speed < float("inf"):
        raise UsageError(f"--speed {text}: write captured, max, or a factor such as 10 or 0.5")
    return Pace(speed)


def _maps(options: ReplayOptions) -> tuple[QueueMap, ...]:
    return tuple(map(read_map, options.maps or ()))


def _script(options: ReplayOptions) -> Script:
    """Return the part that the options ask for.

    Raises:
        UsageError: the capture does not contain this part.
    """
    damages: dict[str, None] = {}
    connections = survey(_packets(options.capture, damages))
    damage = "".join(f"; {each}" for each in damages)
    if not connections:
        raise UsageError(f"{options.capture}: there is no MSMQ in it{damage}")
    if options.message is not None:
        wanted = MessageNamed(options.message, "--message")
        part, identity = find_message(
            _packets(options.capture, {}), connections, wanted, options.side, options.connection
        )
        return alone(read_script(_packets(options.capture, {}), part), identity)
    # With --as-captured, or to play a server, the side has to be definite.
    side = options.side or (Side.SERVER.value if not options.to else Side.CLIENT.value * options.as_captured)
    part = choose(connections, side, options.connection)
    if not part.message_count and options.to and not options.as_captured:
        raise UsageError(f"{options.capture}: {part} has no message to play; name another side with --side")
    script = read_script(_packets(options.capture, {}), part)
    script.left_out += [f"what comes after the damage: {each}" for each in damages]
    return script


def _packets(path: Path, damages: dict[str, None]) -> Iterator[SeenPacket]:
    """Yield the packets up to the end of the capture, or up to the first damage."""
    try:
        yield from read_packets(path)
    except CaptureError as damage:
        damages[str(damage)] = None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a capture, pcap or pcapng") from None


# Playing


async def _play(script: Script, options: ReplayOptions, stage: _PartStage) -> Report:
    """Play messages on our own sessions."""
    own = named(options.identity, script.own_manager)
    with ExitStack() as shown:

        def make(own: Guid) -> Performance:
            rewriter = Rewriter(
                script,
                sources=sources(script, own, options.identity),
                maps=stage.maps,
                first_message_id=1 + secrets.randbelow(2**31),
                newest=newest_sequence(script),
                is_alone=options.message is not None,
            )
            settings = settings_for(options.timeout_s)
            performance = Performance(script, rewriter, settings, stage.pace, waits=not options.to)
            shown.enter_context(progress(performance.live, len(script.messages)))
            return performance

        if options.to:
            own = own or script.own_manager or new_guid()
            performance = make(own)
            outcome = await play_to(performance, stage.peers, own, options.timeout_s, stage.listener)
        else:
            performance, outcome = await play_listening(
                make, stage.listening, own, script.own_manager, options.timeout_s
            )
    report = report_of(script, performance.live, outcome, stage.duration_s)
    if options.message is not None:
        report.part = described(script)
    elif options.to and not options.side:
        report.part += ", which sent most messages"
    report.changes = performance.rewriter.changes
    report.received_count = performance.receiver.received_count
    report.remarks = [*performance.remarks, *_remarks(script, performance, outcome)]
    return report


def _remarks(script: Script, performance: Performance, outcome: Outcome) -> Iterator[str]:
    """Yield remarks: explanations of differences, and facts that are not differences."""
    if signed_count := performance.rewriter.broken_signature_count:
        yield f"{signed_count:,} messages are signed, and their signatures no longer fit"
    no_order_ack = script.answers.order_ack_count > performance.live.order_ack_count == 0
    if no_order_ack and outcome.own is not None and outcome.own != script.own_manager:
        yield (
            f"an OrderAck comes only if the peer knows the way to {guid_text(outcome.own)}: name one that it knows "
            "with --identity, or map the queue to a DIRECT= name"
        )
    if not performance.has_heard_all:
        came = performance.receiver.received_count
        yield f"in the capture the peer sent {script.heard_message_count:,} messages, here {came:,}"


async def _play_as_captured(script: Script, options: ReplayOptions, stage: _PartStage) -> Report:
    """Play the captured bytes. With --to, play the client of the captured connections; with --listen, their server."""
    side = Side.CLIENT if options.to else Side.SERVER
    scenes = [scene for scene in script.scenes if scene.side is side]
    if not scenes:
        raise UsageError(
            f"{script.part} is not the {side.value}'s: with --as-captured name --side {side.value}"
        )
    if len(scenes) < len(script.scenes):
        script.left_out.append(f"connections on which our side was the {side.other.value}")
    verbatim, outcome = Verbatim(script, stage.pace, options.timeout_s), Outcome(own=script.own_manager)
    with progress(verbatim.live, len(script.messages)):
        for scene in scenes:
            if options.to:
                stream, where = await connected(stage.peers, options.timeout_s)
                outcome.peer = str(Endpoint(*where))
            else:
                stream, outcome.peer = await accepted(stage.listening, options.timeout_s)
            await verbatim.play(scene, stream, outcome, last=scene is scenes[-1])
            if outcome.ending:
                break
    report = report_of(script, verbatim.live, outcome, stage.duration_s)
    report.as_captured, report.remarks = True, verbatim.remarks
    return report
