"""Captures of anything that TCP and sniffers do, drawn at random: small, and as odd as possible."""

from __future__ import annotations

import itertools
from typing import Final

from hypothesis import strategies as st

from mqproto.captures import spoil
from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import ACK, RST, Endpoint, Segment, encode_frame
from mqproto.captures.spoil import shortened
from mqproto.wire import ConnectionParameters, encode_packet
from tests.captures.pipeline.split import numbered

CLIENT: Final = Endpoint("127.0.0.1", 40_001)
OTHER: Final = Endpoint("127.0.0.3", 40_002)
SERVER: Final = Endpoint("127.0.0.2", 1801)
ELSEWHERE: Final = Endpoint("127.0.0.2", 8080)
PLACES: Final = [Interface(number, name=name) for number, name in enumerate(("here", "there"))]
SMALL: Final = encode_packet(
    ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
)


def user_message(size_bytes: int, riding: bool = False, filler: bytes = b"\0") -> bytes:
    """Return a header and filler that suffice for framing, but are otherwise malformed. With `riding`, a SessionHeader
    follows.
    """
    head = bytes.fromhex("1000 1000 4c494f52" if riding else "1000 0000 4c494f52")
    head += size_bytes.to_bytes(4, "little") + bytes(4)
    return (head + filler * size_bytes)[:size_bytes] + bytes(16 * riding)


PACKETS: Final = st.one_of(
    st.just(SMALL), st.builds(user_message, st.sampled_from([120, 124, 160]), st.booleans())
)
SAID: Final = st.one_of(
    PACKETS,
    # Their bodies look like packets, or they are none.
    st.builds(user_message, st.sampled_from([150, 200]), st.just(False), st.just(SMALL)),
    st.sampled_from([b"GET / HTTP/1.1\r\n\r\n", b"x", SMALL[:20]]),
)


@st.composite
def conversations(
    draw: st.DrawFn,
    client: Endpoint,
    server: Endpoint,
    begun: bool | None = None,
    said: st.SearchStrategy[bytes] = SAID,
) -> list[bytes]:
    """Draw one connection, whole and in order.

    Args:
        begun: whether the connection has its handshake; None means that this is drawn, too.
        said: the packets of both sides.
    """
    talk = TcpConversation(
        client,
        server,
        client_sequence=draw(st.sampled_from([0, 7, 2**32 - 2, 2**32 - 300])),
        server_sequence=draw(st.sampled_from([0, 2**31, 2**32 - 1])),
    )
    opening = talk.open()
    frames = opening if (draw(st.booleans()) if begun is None else begun) else []
    for _ in range(draw(st.integers(0, 4))):
        side = draw(st.sampled_from(Side))
        data = b"".join(draw(st.lists(said, min_size=1, max_size=4)))
        cuts = draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=3))
        for start, end in itertools.pairwise(sorted({0, len(data), *cuts})):
            frames += talk.send(side, data[start:end])[: draw(st.integers(1, 2))]
    match draw(st.sampled_from(["open", "finish", "reset"])):
        case "finish":
            frames += talk.finish(Side.CLIENT)
        case "reset":
            frames += talk.reset(Side.SERVER)
        case _:
            pass
    return frames


@st.composite
def worlds(draw: st.DrawFn) -> list[Frame]:
    """Draw the frames of a few connections, some of them between the same endpoints, with faults on the way."""
    pairs = [(CLIENT, SERVER), (CLIENT, SERVER), (CLIENT, ELSEWHERE), (OTHER, SERVER)]
    talks = [draw(conversations(*draw(st.sampled_from(pairs)))) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        line = [frame for talk in talks for frame in talk]
    else:
        longest = max(map(len, talks))
        line = [talk[place] for place in range(longest) for talk in talks if place < len(talk)]
    line = line[draw(st.sampled_from([0, 0, 1, 4])) :]
    if draw(st.integers(0, 5)) == 0:
        # From here on one side is not in the capture.
        silent, since = draw(st.sampled_from([1801, 40_001])), draw(st.integers(0, len(line)))
        line = line[:since] + [frame for frame in line[since:] if _segment(frame).source.port != silent]
    time_ns = 0
    resent: list[Segment] = []
    frames: list[Frame] = []
    both = draw(st.integers(0, 3)) == 0
    for frame in line:
        time_ns += draw(st.sampled_from([0, 1_000, 1_000_000, 1_100_000_000]))
        seen = [frame]
        for _ in range(both):
            frames.append(Frame(time_ns, frame, interface=PLACES[1]))
        match draw(
            st.sampled_from(
                [
                    *["kept"] * 14,
                    "lost",
                    "late",
                    "late",
                    "twice",
                    "changed",
                    "before",
                    "alive",
                    "far",
                    "resent",
                ]
            )
        ):
            case "lost":
                seen = []
            case "late":
                place = draw(st.integers(0, len(frames)))
                frames.insert(place, Frame(time_ns, frame, interface=PLACES[0]))
                seen = []
            case "twice":
                seen = [frame, frame]
            case "changed":
                seen = [frame, _other(frame)]
            case "before":
                earlier = frames[draw(st.integers(0, len(frames) - 1))].data if frames else frame
                seen = [frame, draw(st.sampled_from([earlier, _other(earlier)]))]
            case "resent":
                # The first copy was not caught; the second acknowledges all that had come by then.
                resent.append(_segment(frame))
                seen = []
            case "alive" | "far" as kind:
                seen = [frame, _odd(frame, kind)]
            case _:
                pass
        frames += [Frame(time_ns, one, interface=PLACES[0]) for one in seen]
        segment = _segment(frame)
        for original in [one for one in resent if seen and one[:2] == segment[:2]]:
            resent.remove(original)
            copy = original._replace(acknowledgment_number=segment.acknowledgment_number)
            frames.append(Frame(time_ns, encode_frame(copy, 0), interface=PLACES[0]))
    if not both and draw(st.integers(0, 5)) == 0:
        frames = tapped(frames, draw(st.integers(-6, 6)))
    if draw(st.integers(0, 2)) == 0:
        snaplen, each = draw(st.integers(54, 400)), draw(st.integers(1, 3))
        frames[::each] = shortened(frames[::each], snaplen)
    return numbered(frames)


def tapped(frames: list[Frame], late: int) -> list[Frame]:
    """Give each direction its own interface, and move the servers' packets by `late` frames: later, or earlier if it is
    negative.
    """
    served = [_segment(frame.data).source.host == SERVER.host for frame in frames]
    frames = [frame._replace(interface=PLACES[it]) for frame, it in zip(frames, served, strict=True)]
    order = sorted(range(len(frames)), key=lambda number: number + late * served[number])
    return [frames[number] for number in order]


def some_worlds() -> st.SearchStrategy[list[Frame]]:
    """Draw worlds with at least one frame."""
    return worlds().filter(bool)


def _other(frame: bytes) -> bytes:
    """Return a frame with a different last byte, and the checksum for it."""
    return spoil.summed(Frame(0, frame[:-1] + b"?")).data


def _odd(frame: bytes, kind: str) -> bytes:
    """Return a keep-alive from a frame's sender, or a segment from far beyond the sender's window."""
    segment = _segment(frame)
    if kind == "alive":
        return _encoded(segment, segment.sequence_number + len(segment.payload) - 1, ACK, b"\0")
    return _encoded(segment, segment.sequence_number + (1 << 29), ACK | RST, segment.payload)


def _segment(frame: bytes) -> Segment:
    segment = segment_in(Frame(0, frame), IpReader())
    assert segment is not None
    return segment


def _encoded(segment: Segment, number: int, flags: int, payload: bytes) -> bytes:
    return encode_frame(
        segment._replace(sequence_number=number % 2**32, flags=flags, payload=payload, options=b""), 0
    )
