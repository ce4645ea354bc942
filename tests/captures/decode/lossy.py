"""The packets that a reader yields, one by one, for a capture with losses.

The packets of a scene are in the order in which they were sent: the sender of a packet had already sent or received all
earlier packets. So it is known what the sender of a packet may have received. It is also known whether the packet is
*ahead*, that is, whether its sender may have received something that the capture does not show before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from mqproto.captures.decode.analyst import session_facts
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sessions.checker import SessionChecker, SessionView
from mqproto.captures.decode.sessions.connections import Connections
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.files.frame import Frame
from mqproto.captures.net.conversation import Segments, Side
from mqproto.captures.net.tcp import ACK, SYN
from mqproto.captures.packets import SeenPacket
from mqproto.captures.spoil import shortened
from tests.captures.decode.scene import BEGAN_NS, MILLISECOND, Scene, express, transactional

Place = tuple[int, SeenPacket]
"""A packet, with its number in the whole capture."""


@st.composite
def sessions(draw: st.DrawFn) -> Scene:
    """Draw sessions that follow the protocol: both ends send within the window, and acknowledge at any time."""
    scene = Scene()
    wires = [scene.wire("a", "c") for _ in range(draw(st.integers(1, 2)))]
    open_counts = {(wire.number, end): 0 for wire in wires for end in "ac"}
    size_bytes = draw(st.sampled_from([0, 0, 400]))
    for _ in range(draw(st.integers(0, 40))):
        wire, end = draw(st.sampled_from(wires)), draw(st.sampled_from("aaac"))
        action = draw(st.sampled_from(["send", "send", "ride", "ack", "ack"]))
        if action == "ack":
            end = draw(st.sampled_from("accc"))
            wire.ack(end)
        elif open_counts[wire.number, end] < 64:
            number = len(scene.packets)
            body = bytes(size_bytes)
            make = transactional(number, body=body) if draw(st.booleans()) else express(message_id=number)
            wire.send(end, make, riding=action == "ride")
            open_counts[wire.number, end] += 1
        if action in ("ride", "ack"):
            open_counts[wire.number, wire.other(end)] = 0
    return scene


def is_same_stream(one: SeenPacket, other: SeenPacket) -> bool:
    return (one.connection, one.source) == (other.connection, other.source)


def answers(one: SeenPacket, other: SeenPacket) -> bool:
    """Return whether two packets cross the same connection in opposite directions."""
    return (one.connection, one.source) == (other.connection, other.destination)


def copied(seen: SeenPacket, **changes: int | bool) -> SeenPacket:
    copy = SeenPacket(
        seen.data,
        source=seen.source,
        destination=seen.destination,
        time_ns=seen.time_ns,
        connection=seen.connection,
        position=seen.position,
        missing_bytes=seen.missing_bytes,
        skipped_bytes=seen.skipped_bytes,
        snapped_bytes=seen.snapped_bytes,
        cut_bytes=seen.cut_bytes,
        ahead=seen.ahead,
        fault=None if seen.framed else seen.fault,
    )
    copy.number = seen.number
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


def lacking(packets: Sequence[SeenPacket], lost: Iterable[int]) -> list[SeenPacket]:
    """Return the packets that are not lost, renumbered.

    Lost packets are reported by the next packet in their direction. Until then, packets in the other direction are
    ahead, because their sender had received the lost ones.
    """
    gone = set(lost)
    untold: list[SeenPacket] = []
    kept = []
    for place, seen in enumerate(packets):
        if place in gone:
            untold.append(seen)
            continue
        missing_bytes = sum(len(each.data) for each in untold if is_same_stream(each, seen))
        untold = [each for each in untold if not is_same_stream(each, seen)]
        is_ahead = any(answers(each, seen) for each in untold)
        kept.append(
            copied(seen, missing_bytes=seen.missing_bytes + missing_bytes, ahead=seen.ahead or is_ahead)
        )
    return kept


@st.composite
def lossy(draw: st.DrawFn, packets: Sequence[SeenPacket]) -> list[Place]:
    """Draw a capture of these packets as a reader may yield it.

    It lacks some packets, may begin and end at any packet, and has one direction of a connection or both. Some packets
    come before data that their senders had received, as if the reader could not wait for that data; these packets are
    ahead. Any other packet may be ahead, too.
    """
    places = range(len(packets))
    some = st.sets(st.sampled_from(places), max_size=6) if packets else st.just(set[int]())
    lost = draw(some)
    first, last = draw(st.integers(0, 6)), len(packets) - draw(st.integers(0, 6))
    one_way = draw(st.sampled_from([None, None, None, *packets]))
    if one_way is not None:
        lost |= {place for place in places if answers(packets[place], one_way)}
    kept = lacking(packets[:last], lost)
    kept = [seen for seen in kept if seen.number > first]
    for place in sorted(draw(some)):
        if place < len(kept):
            _hurry(kept, place, draw(st.integers(1, 8)))
    for place in draw(some):
        if place < len(kept):
            kept[place].ahead = True
    return [(seen.number, copied(seen, number=place)) for place, seen in enumerate(kept, 1)]


def _hurry(kept: list[SeenPacket], place: int, steps: int) -> None:
    """Move a packet to before some packets that its sender had received.

    Packets in its own direction stay in order.
    """
    seen = kept.pop(place)
    while steps and place and not is_same_stream(kept[place - 1], seen):
        place -= 1
        steps -= 1
        seen.ahead |= answers(kept[place], seen)
    kept.insert(place, seen)


@st.composite
def spoilt_frames(draw: st.DrawFn, packets: Sequence[SeenPacket]) -> list[Frame]:
    """Draw the frames that a sniffer saw. Some are lost, late or duplicated.

    The sniffer may also have started late, stopped early, or truncated frames. The packets are sent in segments of any
    size. Receivers acknowledge them immediately, or with the data that they send.
    """
    size_bytes = draw(st.sampled_from([100, 300, 1_460]))
    talks: dict[int, Segments] = {}
    frames: list[bytes] = []
    for seen in packets:
        talk = talks.get(seen.connection)
        side = Side.SERVER if seen.source.port == 1801 else Side.CLIENT
        if talk is None:
            ends = (seen.source, seen.destination)
            talk = Segments(*ends, segment_bytes=size_bytes, client_sequence=2**32 - 700, server_sequence=5)
            talks[seen.connection] = talk
            for sender, flags in ((Side.CLIENT, SYN), (Side.SERVER, SYN | ACK), (Side.CLIENT, ACK)):
                frames.append(talk.leave(sender, flags))
                talk.arrive(sender.other)
        for frame in talk.leave_data(side, seen.data):
            frames.append(frame)
            talk.arrive(side.other)
            if draw(st.booleans()):
                frames.append(talk.leave(side.other, ACK))
    places = st.integers(0, max(0, len(frames) - 1))
    for place in draw(st.lists(places, max_size=4)):
        frames[place : place + 2] = reversed(frames[place : place + 2])
    for place in draw(st.lists(places, max_size=2)):
        frames.insert(min(len(frames), place + draw(st.integers(1, 9))), frames[place])
    lost = draw(st.sets(places, max_size=4))
    first, last = draw(st.integers(0, 9)), len(frames) - draw(st.integers(0, 9))
    snaplen = draw(st.none() | st.integers(60, 500))
    kept = [
        Frame(BEGAN_NS + MILLISECOND * place, frame, number=place)
        for place, frame in enumerate(frames, 1)
        if first < place <= last and place not in lost
    ]
    return kept if snaplen is None else list(shortened(kept, snaplen))


def judged(packets: Iterable[SeenPacket]) -> list[SessionView]:
    """Return what the rules of sessions say about each packet."""
    checker = SessionChecker(Connections(Names()))
    return [checker.take(session_facts(sight_of(seen))) for seen in packets]
