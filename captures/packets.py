"""Finds the packets in a capture: who sent them to whom, when, and where they are in the file.

Everything is read in one pass and in bounded memory. Whatever is not a packet is counted, never silently ignored:
`Totals` accounts for every frame and for every byte of every stream.
"""

from __future__ import annotations

import os
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.base.words import counted
from mqproto.captures.files.frame import CaptureError, Frame, Interface
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import Dropped
from mqproto.captures.framing import Framed, Framing, StreamCount
from mqproto.captures.net.answers import sum_of
from mqproto.captures.net.direction import STREAM_COUNTS, Arrival, Ending, Stream
from mqproto.captures.net.ip import Datagram, IpReader
from mqproto.captures.net.recent import (
    AHEAD_COUNT,
    KEPT_COUNT,
    LONGEST_BYTES,
    NEAR_COUNT,
    DamagedCopies,
    is_offloaded,
)
from mqproto.captures.net.streams import CONNECTION_LIMIT, Reassembler, beginning_in
from mqproto.captures.net.taps import Half, Taps
from mqproto.captures.net.tcp import PROTOCOL_TCP, Endpoint, Segment, decode_segment, endpoint
from mqproto.captures.net.tunnels import NOT_READ, datagram_in
from mqproto.captures.net.turns import Turns
from mqproto.captures.net.udp import UDP_HEADER
from mqproto.captures.points import PointCounter, point_name
from mqproto.captures.translation import Translations
from mqproto.wire import Packet, Ping, decode_beginning, decode_packet, ping_packet

PING_PORT: Final = 3527
END_LIMIT: Final = 2 * CONNECTION_LIMIT
"""The largest number of sides of connections for which the number of sent bytes is remembered, and of packets in
damaged frames.
"""

CONFLICT_LIMIT: Final = 1_024
"""The largest number of pairs of contradicting frames that are reported."""
MISSING_FRAMES: Final = "missing-frames"
"""The code of a note on what the capture as a whole lacks."""
NUMBER_DIGITS: Final = 20
"""A frame's number has fewer digits than this."""
_NUMBER: Final = re.compile(r"\d+")

DAMAGED_TCP: Final = "TCP, damaged or cut off" + NOT_READ
UDP: Final = "UDP to other ports" + NOT_READ
"""The name of UDP frames that hold no Ping; mqproto.captures.net.tunnels has further names."""


class SeenPacket:
    """One packet as the capture shows it.

    Attributes:
        number: counted from 1 in the order in which packets could be read whole.
        frame, first_frame: the number of the frame that ended the packet, and of the frame that began it.
        file_offset: the place of the record of the frame that began the packet, in the unpacked file.
        time_ns: when the packet's last byte could be read, in nanoseconds since 1970, UTC. `began_ns` is the same for
            its first byte.
        connection: counted from 0, as Wireshark's tcp.stream; -1 for a Ping.
        interface: where the packet was seen. For a bond, or a TAP with an interface for each direction, it is the first
            interface.
        position: the place of the packet's first byte in its stream, counted from the first captured byte and including
            missing bytes.
        data: the whole packet, including its SessionHeader; or the bytes before its hole; or, for bytes that begin no
            packet, up to the first 16 of them.
        cut_bytes: the size of the part of the packet after `data`, including its SessionHeader; 0 if the packet is
            whole.
        missing_bytes: how many bytes the capture lacks right before the packet. The missing bytes of a packet with a
            hole do not count.
        snapped_bytes: how many of the bytes missing before the packet, and in its own hole, were cut from frames by the
            capture's snapshot length.
        skipped_bytes: how many bytes right before the packet belong to no readable packet.
        ahead: whether the packet's sender may have received bytes of the other side that the capture does not show
            before the packet. If so, it proves nothing about what the other side had sent by then.
        opened: whether the packet's sender opened the connection, as in mqproto.captures.net.direction.Stream.
        reader: the PacketReader that read the packet. It knows whether the packet's frames, and those of packets before
            it, are damaged.
        framed: False if `data` begins no packet, so that the start of the next packet is unknown.
    """

    __slots__ = (
        "_fault",
        "_packet",
        "ahead",
        "began_ns",
        "connection",
        "cut_bytes",
        "data",
        "destination",
        "file_offset",
        "first_frame",
        "frame",
        "framed",
        "interface",
        "missing_bytes",
        "number",
        "opened",
        "position",
        "reader",
        "skipped_bytes",
        "snapped_bytes",
        "source",
        "time_ns",
    )

    def __init__(
        self,
        data: bytes,
        *,
        source: Endpoint,
        destination: Endpoint,
        time_ns: int,
        frame: int = 0,
        first_frame: int = 0,
        file_offset: int = 0,
        began_ns: int | None = None,
        connection: int = 0,
        interface: Interface | None = None,
        position: int = 0,
        missing_bytes: int = 0,
        skipped_bytes: int = 0,
        snapped_bytes: int = 0,
        cut_bytes: int = 0,
        ahead: bool = False,
        opened: bool | None = None,
        fault: WireFormatError | None = None,
    ) -> None:
        self.number = 0
        self.data = data
        self.source = source
        self.destination = destination
        self.time_ns = time_ns
        self.began_ns = time_ns if began_ns is None else began_ns
        self.frame = frame
        self.first_frame = first_frame or frame
        self.file_offset = file_offset
        self.connection = connection
        self.interface = interface or Interface()
        self.position = position
        self.missing_bytes = missing_bytes
        self.skipped_bytes = skipped_bytes
        self.snapped_bytes = snapped_bytes
        self.cut_bytes = cut_bytes
        self.ahead = ahead
        self.opened = opened
        self.framed = fault is None
        self.reader: PacketReader | None = None
        self._packet: Packet | Ping | None = None
        self._fault = fault

    @property
    def size_bytes(self) -> int:
        """The size of the packet; for bytes that begin no packet, the number of bytes shown."""
        return len(self.data) + self.cut_bytes

    @property
    def packet(self) -> Packet | Ping | None:
        """The decoded record, made on first use; None if the bytes are not a packet.

        In that case, `fault` has the reason. For a packet with a hole, this is the result of `decode_beginning`, which
        is None if too little of the packet is there.
        """
        if self.cut_bytes:
            if self._packet is None:
                self._packet = decode_beginning(self.data)
        elif self._packet is None and self._fault is None:
            try:
                self._packet = ping_packet.decode(self.data) if self.is_ping else decode_packet(self.data)
            except WireFormatError as fault:
                self._fault = fault
        return self._packet

    @property
    def fault(self) -> WireFormatError | None:
        """The error in the bytes, if there is one."""
        if self._fault is None and self._packet is None and not self.cut_bytes:
            _ = self.packet
        return self._fault

    @property
    def is_ping(self) -> bool:
        """Whether the packet came in a UDP datagram.  [MS-MQQB] 2.2.7"""
        return self.connection < 0

    def __repr__(self) -> str:
        return f"<packet {self.number}, frame {self.frame}, {self.source} > {self.destination}>"


class StreamEnd(NamedTuple):
    """One side of a connection that has ended, as one interface saw it."""

    connection: int
    interface: int
    source: Endpoint


class Sum(NamedTuple):
    """How much one side of a connection has sent, and how much of that can have arrived.

    Both are as in mqproto.captures.net.direction.Stream.
    """

    sent_bytes: int | None
    came_bytes: int | None


@dataclass(slots=True)
class Totals:
    """Counts of all frames and bytes.

    frames = segment_frames + ping_frames + the sum of other_frames, always. After the capture has been read,
    stream_bytes = packet_bytes + cut_bytes + headless_bytes + refused_bytes + other_bytes.

    other_frames: the number of frames that hold neither a TCP segment nor a Ping, by reason.
    cut_frames: the number of frames that the capture cut short.
    untimed_frames: the number of frames without a time.
    packets: the number of framed packets and Pings.
    faults: the number of packets, Pings and places without a packet that are malformed.
    cut_packets: the number of packets of which only the beginning is known, because the capture lacks something after
        it.
    missing_bytes, gap_count, and the other counts of a stream: their sums over all streams.
    hidden_bytes: the number of bytes of cut frames that belong to no packet whose head is in the capture.
    other_bytes: the number of bytes of connections that have nothing to do with MSMQ.
    given_up_connections: the number of connections that were forgotten because too many were open at a time.
    conflicts: texts, each with the code of a finding, at most CONFLICT_LIMIT of them. Texts about what the capture
        lacks come first. The others are about frames with different bytes for the same place of a stream, only in
        MSMQ's streams.
    """

    frames: int = 0
    segment_frames: int = 0
    ping_frames: int = 0
    other_frames: Counter[str] = field(default_factory=Counter)
    cut_frames: int = 0
    untimed_frames: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    connections: int = 0
    msmq_streams: int = 0
    given_up_connections: int = 0
    packets: int = 0
    cut_packets: int = 0
    stream_bytes: int = 0
    packet_bytes: int = 0
    cut_bytes: int = 0
    headless_bytes: int = 0
    refused_bytes: int = 0
    other_bytes: int = 0
    hidden_bytes: int = 0
    resumed_count: int = 0
    gap_count: int = 0
    missing_bytes: int = 0
    snapped_bytes: int = 0
    retransmission_count: int = 0
    conflict_count: int = 0
    early_count: int = 0
    keep_alive_count: int = 0
    given_up_fragments: int = 0
    conflicts: list[tuple[str, str]] = field(default_factory=list)

    def see(self, time_ns: int) -> None:
        """Take the time of a frame into account."""
        if not time_ns:
            self.untimed_frames += 1
        elif self.first_ns is None or self.last_ns is None:
            self.first_ns = self.last_ns = time_ns
        elif time_ns > self.last_ns:
            self.last_ns = time_ns
        elif time_ns < self.first_ns:
            self.first_ns = time_ns

    def add_stream(self, seen: StreamCount) -> None:
        """Count a stream that has ended."""
        self.msmq_streams += seen.is_msmq
        self.stream_bytes += seen.stream.data_bytes
        self.packet_bytes += seen.packet_bytes
        self.cut_packets += seen.cut_count
        self.cut_bytes += seen.cut_bytes
        if seen.is_msmq:
            self.hidden_bytes += seen.hidden_bytes
            self.headless_bytes += seen.headless_bytes
            self.refused_bytes += seen.refused_bytes
        else:
            self.other_bytes += seen.headless_bytes + seen.refused_bytes
        self.resumed_count += seen.resumed_count
        for name in STREAM_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(seen.stream, name))
        if seen.is_msmq and seen.stream.conflicts:
            self.note(seen.stream.said_of_conflicts())

    def end(self, waiting_count: int) -> None:
        """Note how many IP packets were not whole when the capture ended; `waiting_count` still wait for fragments."""
        self.given_up_fragments += waiting_count
        if self.given_up_fragments:
            text = f"{counted(self.given_up_fragments, 'IP packet')} of which fragments are missing, not read"
            self.note([(MISSING_FRAMES, text)])

    def drop(self, file: str, dropped: Dropped) -> None:
        """Note the frames that a file says were dropped."""
        self.note(
            (
                MISSING_FRAMES,
                f"{os.path.basename(file)} says: {counted(count, 'frame')} dropped at {point_name(interface)}",
            )
            for interface, count in dropped.most.items()
        )

    def note(self, said: Iterable[tuple[str, str]]) -> None:
        """Add contradictions, sorted by ends and frames, so that it does not matter which stream ended first."""
        every = sorted(
            (*self.conflicts, *said),
            key=lambda each: (
                each[0] != MISSING_FRAMES,
                _NUMBER.sub(lambda found: found[0].zfill(NUMBER_DIGITS), each[1]),
            ),
        )
        self.conflicts = every[:CONFLICT_LIMIT]

    def add(self, other: Totals) -> None:
        """Add the account of another part of the same capture."""
        for name in (each.name for each in fields(self)):
            ours, theirs = getattr(self, name), getattr(other, name)
            if name == "conflicts":
                self.note(theirs)
            elif name not in ("first_ns", "last_ns"):
                setattr(self, name, ours + theirs)
            elif theirs is not None:
                choose = min if name == "first_ns" else max
                setattr(self, name, theirs if ours is None else choose(ours, theirs))

    @property
    def is_complete(self) -> bool:
        """Whether no packet is known to be missing; packets whose heads are in the capture may still lack bytes.

        Bytes that begin no packet do not hide a packet: their receiver closes the session.  [MS-MQQB] 3.1.5.1
        Frames that contradict one another may.
        """
        if any(code in (MISSING_FRAMES, "contradiction") for code, _ in self.conflicts):
            return False
        return not (self.missing_bytes > self.snapped_bytes or self.hidden_bytes or self.headless_bytes)

    @property
    def skipped_bytes(self) -> int:
        """How many bytes of MSMQ's streams belong to no readable packet, headless and refused bytes together."""
        return self.headless_bytes + self.refused_bytes

    @property
    def unexplained_bytes(self) -> int:
        """The number of bytes that the account does not explain; always 0."""
        explained = self.packet_bytes + self.cut_bytes + self.skipped_bytes + self.other_bytes
        return self.stream_bytes - explained


def read_packets(path: str | os.PathLike[str]) -> Iterator[SeenPacket]:
    """Yield every packet in the capture file at `path`, in the order in which the packets could be read whole.

    Raises:
        CaptureError: the file is damaged; the packets before the damage have been yielded.
        OSError: the file cannot be opened or read.
    """
    return iter(PacketReader(read_capture(path)))


class PacketReader:
    """Takes frames and yields packets; it can be iterated once.

    MSMQ is looked for on every port: a stream carries it if its first bytes, or the first bytes of a later segment, are
    the head of a packet. If a packet has a gap in its middle, its beginning is read. After a gap that swallows a head,
    nothing is read until a segment begins with a head, or contains heads that follow one another to its end.

    Interfaces that each have one part of the traffic, as in a TAP or a bond, are read as one. A connection that appears
    again behind address translation is read as the first connection.

    A damaged capture raises its CaptureError at the end, after all packets before the damage.

    Args:
        turns: collects where connections begin and end; None if that is not needed.
        ahead: how many later frames may have copies of a frame, or be read before it. Twice as many are waited for,
            so that what is read early has been compared as well. 0 to read each frame at once.

    Attributes:
        totals, points: the counts of the whole capture, and of each capture point; complete once everything has been
            read.
        ends: for sides of connections, how much they sent in total, and how much of that can have arrived, if the
            capture shows it. Only the last END_LIMIT sides that ended are kept; nearly all end with the capture.
        translations: connections that are other connections behind address translation.
    """

    def __init__(self, frames: Iterable[Frame], turns: Turns | None = None, ahead: int = AHEAD_COUNT) -> None:
        self.totals = Totals()
        self.points = PointCounter()
        self.ends: OrderedDict[StreamEnd, Sum] = OrderedDict()
        self._frames = frames
        self._turns = turns
        self._ahead = ahead
        self._early: set[int] = set()  # the numbers of waiting frames that have been read
        self.translations = Translations()
        self._ip = IpReader()
        self._reassembler = Reassembler()
        self._halves: dict[int, Half] = {}
        self._framings: dict[Stream, Framing] = {}
        self._copies = DamagedCopies()
        self._waiting: deque[tuple[Frame, Segment | SeenPacket | str]] = deque()
        self._kept: deque[Frame] = deque(maxlen=KEPT_COUNT)
        self._hurt: deque[tuple[int, Endpoint]] = deque(maxlen=KEPT_COUNT)  # damaged frames
        self._since_hurt: dict[int, int] = {}
        self._damaged: deque[int] = deque(maxlen=END_LIMIT)

    def is_damaged(self, number: int) -> bool:
        """Whether a packet, or one shortly before it on its connection, is in a damaged frame."""
        return number in self._damaged

    def __iter__(self) -> Iterator[SeenPacket]:
        damage: CaptureError | OSError | None = None
        waiting = self._waiting
        try:
            for frame in self._looked_at():
                self._meet(frame)
                if len(waiting) > 2 * self._ahead:
                    for packet in self._take(*waiting.popleft()):
                        yield self._counted(packet)
        except (CaptureError, OSError) as error:
            damage = error
        while waiting:
            for packet in self._take(*waiting.popleft()):
                yield self._counted(packet)
        for packet in self._packets_in(self._reassembler.finish()):
            yield self._counted(packet)
        self.points.finish()
        for number, half in self._halves.items():
            self.points.put_right(number, half.ahead_ns)
        self.totals.given_up_fragments = self._ip.given_up_count
        self.totals.end(self._ip.waiting_count)
        if damage is not None:
            raise damage

    def _looked_at(self) -> Iterator[Frame]:
        """Yield all frames, once it is decided which interfaces are halves of a TAP."""
        frames, taps = iter(self._frames), Taps()
        damage: CaptureError | OSError | None = None
        try:
            taps.look(frames)
        except (CaptureError, OSError) as error:
            damage = error
        self._reassembler = Reassembler(apart=bool(taps.halves))
        self._halves = taps.halves
        yield from taps.looked_at
        if damage is not None:
            raise damage
        yield from frames

    def _counted(self, packet: SeenPacket) -> SeenPacket:
        self.totals.packets += packet.framed
        packet.number = self.totals.packets
        packet.reader = self
        if not self._hurt:
            return packet
        first, last, where = packet.first_frame, packet.frame, packet.connection
        if any(first <= each <= last and (first == last or end == packet.source) for each, end in self._hurt):
            self._since_hurt[where] = NEAR_COUNT
        if self._since_hurt.get(where):
            self._since_hurt[where] -= 1
            self._damaged.append(packet.number)
        return packet

    def _meet(self, frame: Frame) -> None:
        """Let a frame wait, because later frames may be intact copies of it, or show that its connection is
        translated.
        """
        self.points.frame(frame)
        self.totals.see(frame.time_ns)
        content = content_of(frame, self._ip)
        if isinstance(content, Segment):
            known_count = len(self.translations.found)
            self.translations.meet(content, frame.number, frame.time_ns)
            if frame.interface.number in self._halves:
                frame = self._halves[frame.interface.number].put_right(frame)
            if len(self.translations.found) > known_count:
                for at, (earlier, segment) in enumerate(self._waiting):
                    if isinstance(segment, Segment) and segment.payload:
                        self._compare(earlier, segment, len(self._waiting) - at)
            if content.payload:
                self._compare(frame, content)
        self._waiting.append((frame, content))

    def _compare(self, frame: Frame, content: Segment, later_count: int = 0) -> None:
        """Compare a segment with the waiting ones before it, all as their connections count by now.

        Args:
            later_count: how many of the last waiting frames are not before it.
        """
        here = frame.interface.number
        segment = self.translations.translated(content, frame.number)
        if later_count or self._copies.is_behind(segment, here, frame.number):
            before = (
                (other, self.translations.translated(each, other.number))
                for other, each in islice(reversed(self._waiting), later_count, None)
                if isinstance(each, Segment) and other.interface.number == here
                if frame.number - other.number <= AHEAD_COUNT
            )
            self._copies.compare(frame, segment, before)

    def _overtaken(self, frame: Frame, content: Segment) -> list[SeenPacket]:
        """Return the packets in the segments that the first segment of a side has overtaken.

        These segments are read before the first one.
        """
        caught = [
            (other, self.translations.translated(segment, other.number))
            for other, segment in ((frame, content), *self._waiting)
            if isinstance(segment, Segment)
            and other.number not in self._copies.passed
            and other.number not in self._early
            and other.number - frame.number <= AHEAD_COUNT
        ]
        if place := beginning_in(caught):
            number = caught[place][0].number
            earlier = next(each for each in self._waiting if each[0].number == number)
            packets = list(self._take(*earlier))
            self._early.add(number)
            return packets
        return []

    def _take(self, frame: Frame, content: Segment | SeenPacket | str) -> Iterable[SeenPacket]:
        if frame.number in self._early:
            self._early.remove(frame.number)
            return ()
        if len(frame.data) <= LONGEST_BYTES:
            source = content.source if isinstance(content, Segment) and content.payload else None
            if source and sum_of(frame) is False and not is_offloaded(source.host, frame, list(self._kept)):
                self._hurt.append((frame.number, source))
            self._kept.append(frame)
        totals = self.totals
        totals.frames += 1
        totals.cut_frames += frame.missing_bytes > 0
        if isinstance(content, Segment):
            totals.segment_frames += 1
            whole = None
            if frame.number in self._copies.passed:
                whole = self._copies.passed.pop(frame.number)
                content = content._replace(payload=b"", flags=0, cut_bytes=0)
            segment = self.translations.translated(content, frame.number)
            before: list[SeenPacket] = []
            if self._reassembler.begins(frame, segment):
                before = self._overtaken(frame, content)
            arrivals = self._reassembler.feed(frame, segment)
            if whole is not None:
                self._reassembler.contradict(frame, whole, segment)
            if self._turns is not None:
                self._turns.take(frame, segment, self._reassembler.number_of(segment))
            return before + self._packets_in(arrivals)
        if isinstance(content, SeenPacket):
            totals.ping_frames += 1
            return (content,)
        totals.other_frames[content] += 1
        return ()

    def _packets_in(self, arrivals: Iterable[Arrival]) -> list[SeenPacket]:
        packets: list[SeenPacket] = []
        for stream, chunk in arrivals:
            framing = self._framings.get(stream)
            if framing is None:
                framing = self._framings[stream] = Framing(stream, stream.from_start)
            if chunk is not None:
                is_ahead = chunk.ahead or self._is_untold(stream)
                packets += [_seen(stream, framed, ahead=is_ahead) for framed in framing.take(chunk)]
            else:
                del self._framings[stream]
                self._count(framing.end())
        return packets

    def _is_untold(self, stream: Stream) -> bool:
        """Whether the capture lacks bytes of the other side, and no packet has reported that loss yet."""
        opposite = None if stream.opposite is None else self._framings.get(stream.opposite)
        return opposite is not None and opposite.untold

    def _count(self, seen: StreamCount) -> None:
        totals = self.totals
        totals.connections = self._reassembler.connection_count
        totals.given_up_connections = self._reassembler.given_up_count
        totals.add_stream(seen)
        self.points.stream(seen)
        stream = seen.stream
        if seen.is_msmq and (stream.came_bytes is not None or stream.ending is not Ending.OPEN):
            end = StreamEnd(stream.connection, stream.interface.number, stream.source)
            self.ends[end] = Sum(stream.sent_bytes, stream.came_bytes)
            if len(self.ends) > END_LIMIT:
                self.ends.popitem(last=False)


def _seen(stream: Stream, framed: Framed, *, ahead: bool) -> SeenPacket:
    return SeenPacket(
        framed.data,
        source=stream.source,
        destination=stream.destination,
        time_ns=framed.ended.time_ns,
        frame=framed.ended.frame,
        first_frame=framed.began.frame,
        file_offset=framed.began.offset,
        began_ns=framed.began.time_ns,
        connection=stream.connection,
        interface=stream.interface,
        position=framed.began.position,
        **framed.loss._asdict(),
        ahead=ahead or framed.ended.ahead,
        opened=stream.opened,
        fault=framed.fault,
    )


def content_of(frame: Frame, ip: IpReader) -> Segment | SeenPacket | str:
    """Return the segment or Ping that a frame holds or completes; otherwise return a key of `Totals.other_frames`."""
    datagram = datagram_in(frame.link_type, frame.data, frame.missing_bytes, ip)
    if isinstance(datagram, str):
        return datagram
    if datagram.protocol == PROTOCOL_TCP:
        return decode_segment(datagram) or DAMAGED_TCP
    return _ping(datagram, frame) or UDP


def _ping(datagram: Datagram, frame: Frame) -> SeenPacket | None:
    """Return the Ping in a UDP datagram; None if it uses other ports, or if the capture cut it."""
    if len(datagram.payload) < UDP_HEADER.size or datagram.missing_bytes:
        return None
    source_port, destination_port, size_bytes, _ = UDP_HEADER.unpack_from(datagram.payload)
    if PING_PORT not in (source_port, destination_port):
        return None
    return SeenPacket(
        datagram.payload[UDP_HEADER.size : size_bytes],
        source=endpoint(datagram.source, source_port, datagram.zone),
        destination=endpoint(datagram.destination, destination_port, datagram.zone),
        time_ns=frame.time_ns,
        frame=frame.number,
        file_offset=frame.offset,
        connection=-1,
        interface=frame.interface,
    )
