"""Cuts the bytes of one side into packets, and finds packets again after a loss.  [MS-MQMQ] 2.2.19.1"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.captures.net.direction import Chunk, Stream
from mqproto.captures.net.heads import HEAD_BYTES, begins_packet, chain_in, head_in
from mqproto.captures.net.streams import MSMQ_PORT
from mqproto.wire import PacketBuffer


@dataclass(slots=True)
class StreamCount:
    """The contents of a stream.

    packet_count, packet_bytes: the number of packets framed whole, valid or not, and their size.
    cut_count: how many packets have their beginning in the capture, but not all of the rest.
    cut_bytes: how many bytes belong to packets that began but never became whole.
    headless_bytes: how many bytes belong to packets whose beginning the capture lacks.
    refused_bytes: how many bytes are skipped where a packet should begin but does not. They are counted from there to
        the next packet.
    hidden_bytes: how many bytes were cut from frames by the capture, but not from packets whose heads were captured.
    resumed_count: how often the head of a packet was found again after bytes that could not be read.
    is_msmq: whether the stream held a packet, or used TCP port 1801. All bytes of other streams are skipped.
    """

    stream: Stream
    packet_count: int = 0
    packet_bytes: int = 0
    cut_count: int = 0
    cut_bytes: int = 0
    headless_bytes: int = 0
    refused_bytes: int = 0
    hidden_bytes: int = 0
    resumed_count: int = 0

    @property
    def is_msmq(self) -> bool:
        ports = (self.stream.source.port, self.stream.destination.port)
        return self.packet_count > 0 or self.cut_count > 0 or MSMQ_PORT in ports


class Mark(NamedTuple):
    """Where a packet began.

    position: the place of the packet's first byte in its stream, counted from the first captured byte and including
        missing bytes.
    time_ns, frame, offset: as in the chunk that holds this byte.
    """

    position: int = 0
    time_ns: int = 0
    frame: int = 0
    offset: int = 0


class Loss(NamedTuple):
    """The bytes missing from a packet and right before it.

    missing_bytes: how many bytes the capture lacks right before the packet.
    skipped_bytes: how many bytes right before the packet belong to no packet.
    snapped_bytes: how many of the bytes missing before the packet, or where it is cut, were lost because the capture
        cut a frame short.
    cut_bytes: the size of the rest of the packet, if only its beginning is read; 0 if the packet is whole.
    """

    missing_bytes: int = 0
    skipped_bytes: int = 0
    snapped_bytes: int = 0
    cut_bytes: int = 0


class Guess(NamedTuple):
    """A possible packet: its head is inside a chunk, and its end is after that chunk.

    It is proved to be a packet if another packet follows it.

    began: where it begins.
    size_bytes: its whole size.
    data: its bytes so far, and those of the next packet's head.
    ended: the chunk in which it ended, without the bytes, and the place after it; None until it has ended.
    """

    began: Mark
    size_bytes: int
    data: bytearray
    ended: tuple[Chunk, Mark] | None = None


class Framed(NamedTuple):
    """A whole packet, the beginning of one with a hole, or bytes that begin no packet.

    data: the whole packet; or the bytes before its hole; or the first 16 of the bytes that begin no packet.
    ended: the chunk in which the packet ended, or that revealed its hole.
    fault: why the bytes begin no packet.
    """

    data: bytes
    began: Mark
    ended: Chunk
    loss: Loss
    fault: WireFormatError | None = None


class Framing:
    """Cuts the bytes of one stream into packets, and finds packets again after a loss.

    Args:
        in_step: whether the first byte begins a packet, as it does after a SYN.
    """

    def __init__(self, stream: Stream, in_step: bool) -> None:
        self.seen = StreamCount(stream)
        self.position = 0
        self.missing_bytes = 0  # since the last packet, like skipped_bytes
        self.skipped_bytes = 0
        self.snapped_bytes = 0  # of those that are missing
        self._buffer: PacketBuffer | None = PacketBuffer() if in_step else None
        self._mark = Mark()
        self._head = b""  # of a packet with fewer than 16 bytes so far
        self._rest_bytes = 0  # of a packet with a hole
        self._guess: Guess | None = None  # while it is lost
        self._refused = False  # whether bytes that begin no packet caused the loss, not a missing beginning

    @property
    def in_step(self) -> bool:
        """Whether the next byte begins a packet, provided that it is not missing."""
        return self._buffer is not None and not self._buffer.pending_bytes and not self._rest_bytes

    @property
    def untold(self) -> bool:
        """Whether some bytes are missing or were skipped, and no later packet has reported them yet."""
        return self.missing_bytes > 0 or self.skipped_bytes > 0

    @property
    def guesses(self) -> bool:
        """Whether earlier bytes may be a packet; the next chunk may prove that they are.

        There can be such a guess only while it is unknown where the next packet begins.
        """
        return self._guess is not None

    @property
    def lost(self) -> bool:
        """Whether it is unknown where the next packet begins.

        If so, the next packet begins where `found_in` finds a packet in a chunk.
        """
        return self._buffer is None and not self._rest_bytes

    @property
    def has_head(self) -> bool:
        """Whether a packet has its head but is not whole."""
        return self._buffer is not None and self._buffer.missing_bytes > 0

    @property
    def begun(self) -> Chunk | None:
        """Return the bytes of an unfinished packet so far, as one chunk at the packet's beginning."""
        if self._guess is not None:
            mark = self._guess.began
            return Chunk(mark.time_ns, bytes(self._guess.data), 0, mark.frame, mark.offset)
        if self._buffer is None or not self._buffer.pending_bytes:
            return None
        return Chunk(self._mark.time_ns, self._buffer.pending, 0, self._mark.frame, self._mark.offset)

    def take(self, chunk: Chunk) -> list[Framed]:
        """Return the packets that `chunk` completes, and the beginnings of packets in which it reveals a hole."""
        packets: list[Framed] = []
        if chunk.missing_bytes:
            packets += self._begun(chunk, 0)
            self.miss(chunk.missing_bytes)
        packets += self._take_data(chunk)
        if chunk.cut_bytes:
            packets += self._begun(chunk, chunk.cut_bytes)
            self.miss(chunk.cut_bytes, chunk.cut_bytes)
        return packets

    def _take_data(self, chunk: Chunk) -> list[Framed]:
        data = chunk.data
        if self._rest_bytes:
            rest = data[: self._rest_bytes]
            self._rest_bytes -= len(rest)
            self.seen.cut_bytes += len(rest)
            self.position += len(rest)
            data = data[len(rest) :]
            if not data:
                return []
        if self._buffer is not None:
            return self._cut(self._buffer, chunk, data)
        if self._guess is not None and (proved := self._prove(self._guess, chunk, data)) is not None:
            return proved
        start = self.found_in(data)
        if start is None:
            self._go_on_lost(chunk, data)
            return []
        self._give_up_guess()
        self.pass_over(start)
        self._buffer = self._found()
        return self._cut(self._buffer, chunk, data[start:])

    def _prove(self, guess: Guess, chunk: Chunk, data: bytes) -> list[Framed] | None:
        """Return the guessed packet and those after it; None if the data shows no other packet at the end of the
        guessed one.
        """
        left_bytes = max(0, guess.size_bytes - len(guess.data))
        begun = bytes(guess.data[guess.size_bytes :])
        if not begins_packet((begun + data[left_bytes : left_bytes + HEAD_BYTES])[:HEAD_BYTES]):
            return None
        ended, behind = guess.ended or self._end_of(chunk, self.position + left_bytes)
        self._guess = None
        self._buffer = self._found()
        self._buffer.feed(begun)
        self._mark, self._head = behind, begun
        whole = bytes(guess.data[: guess.size_bytes]) + data[:left_bytes]
        packets = [self._framed(whole, guess.began, ended)]
        self.seen.packet_count += 1
        self.seen.packet_bytes += len(whole)
        self.position += left_bytes
        return packets + self._cut(self._buffer, chunk, data[left_bytes:])

    def _go_on_lost(self, chunk: Chunk, data: bytes) -> None:
        """Take a chunk without a proven packet.

        An earlier guess may still turn out to be a packet, or another possible packet may begin here.
        """
        guess = self._guess
        if guess is not None and len(guess.data) + len(data) < guess.size_bytes + HEAD_BYTES:
            ended = guess.ended
            if ended is None and len(guess.data) + len(data) >= guess.size_bytes:
                ended = self._end_of(chunk, self.position + guess.size_bytes - len(guess.data))
            guess.data.extend(data)
            self._guess = guess._replace(ended=ended)
            self.position += len(data)
            return
        self._give_up_guess()
        start, size_bytes = head_in(data) if self.seen.is_msmq else (None, 0)
        if start is None:
            self.pass_over(len(data))
            return
        self.pass_over(start)
        mark = Mark(self.position, chunk.time_ns, chunk.frame, chunk.offset)
        is_whole = len(data) >= start + size_bytes
        ended = self._end_of(chunk, self.position + size_bytes) if is_whole else None
        self._guess = Guess(mark, size_bytes, bytearray(data[start:]), ended)
        self.position += len(data) - start

    @staticmethod
    def _end_of(chunk: Chunk, position: int) -> tuple[Chunk, Mark]:
        here = chunk._replace(data=b"", missing_bytes=0, cut_bytes=0)
        return here, Mark(position, chunk.time_ns, chunk.frame, chunk.offset)

    def _give_up_guess(self) -> None:
        """Give up the guess: either it is not a packet, or it cannot be proved to be one."""
        if self._guess is not None:
            self._skip(len(self._guess.data))
            self._guess = None

    def _begun(self, chunk: Chunk, snapped_bytes: int) -> list[Framed]:
        """Return the beginning of a packet before a hole, if the beginning has at least the packet's head."""
        if self._buffer is None or not self.has_head:
            return []
        self.seen.cut_count += 1
        loss = Loss(
            self.missing_bytes,
            self.skipped_bytes,
            self.snapped_bytes + min(snapped_bytes, self._buffer.missing_bytes),
            self._buffer.missing_bytes,
        )
        self.missing_bytes = self.skipped_bytes = self.snapped_bytes = 0
        return [Framed(self._buffer.pending, self._mark, chunk, loss)]

    def found_in(self, data: bytes) -> int | None:
        """Return where in a chunk a packet begins, while `lost` is true; None if no packet is found.

        A packet begins at the first byte if the chunk begins with a head. Otherwise `chain_in` looks inside the chunk,
        but only in MSMQ's streams. If `head_in` finds a possible head in this chunk, a later chunk may prove it.
        """
        if begins_packet(data):
            return 0
        return chain_in(data) if self.seen.is_msmq else None

    def miss(self, missing_bytes: int, snapped_bytes: int = 0) -> None:
        """Skip bytes that the capture lacks.

        This loses the packet that they belong to, or the place where the next packet begins. Missing bytes of a packet
        whose beginning was captured are counted with that packet.

        Args:
            snapped_bytes: how many of the missing bytes were cut from frames by the capture.
        """
        self._give_up_guess()
        self.position += missing_bytes
        known_bytes = 0
        if self._rest_bytes:
            known_bytes = self._rest_bytes
        elif self._buffer is not None:
            known_bytes = self._buffer.missing_bytes
            self.seen.cut_bytes += self._buffer.pending_bytes
        beyond_bytes = max(0, missing_bytes - known_bytes)
        self.missing_bytes += beyond_bytes
        hidden_bytes = min(snapped_bytes, beyond_bytes)
        self.snapped_bytes += hidden_bytes
        self.seen.hidden_bytes += hidden_bytes
        if not self._rest_bytes and self._buffer is None:
            return
        self._rest_bytes = max(0, known_bytes - missing_bytes)
        self._refused = False
        self._buffer = None if beyond_bytes else PacketBuffer()

    def pass_over(self, count: int) -> None:
        """Pass over bytes that belong to no readable packet, while `lost` is true and there is no guess."""
        self._skip(count)
        self.position += count

    def advance(self, packet_count: int, packet_bytes: int) -> None:
        """Count the next bytes as whole packets that were found elsewhere.

        Call this only while `in_step` is true.
        """
        self.seen.packet_count += packet_count
        self.seen.packet_bytes += packet_bytes
        self.position += packet_bytes
        self.missing_bytes = self.skipped_bytes = self.snapped_bytes = 0

    def end(self) -> StreamCount:
        """Return all counts at the end of the stream; a packet that has begun can no longer become whole."""
        self._give_up_guess()
        if self._buffer is not None:
            self.seen.cut_bytes += self._buffer.pending_bytes
        return self.seen

    def _found(self) -> PacketBuffer:
        """Record that the beginning of a packet was found again; return an empty buffer for the packet's bytes."""
        self._refused = False
        seen = self.seen
        begun = seen.packet_count or seen.cut_count or seen.headless_bytes or seen.refused_bytes
        seen.resumed_count += begun > 0
        return PacketBuffer()

    def _cut(self, buffer: PacketBuffer, chunk: Chunk, data: bytes) -> list[Framed]:
        packets: list[Framed] = []
        begun_bytes = buffer.pending_bytes
        try:
            whole = buffer.feed(data)
        except WireFormatError:
            whole = []
        begins = self.position - begun_bytes
        for packet in whole:
            mark = self._mark if begun_bytes else Mark(begins, chunk.time_ns, chunk.frame, chunk.offset)
            begun_bytes = 0
            packets.append(self._framed(packet, mark, chunk))
            self.seen.packet_count += 1
            self.seen.packet_bytes += len(packet)
            begins += len(packet)

        if not begun_bytes:
            self._mark = Mark(begins, chunk.time_ns, chunk.frame, chunk.offset)
        left = data[max(0, begins - self.position) :]
        if buffer.fault is not None:
            packets += self._refuse(buffer.fault, begun_bytes, left, chunk)
        elif buffer.pending_bytes < HEAD_BYTES:
            self._head = self._head + left if begun_bytes else left
        self.position += len(data)
        return packets

    def _refuse(self, fault: WireFormatError, begun_bytes: int, left: bytes, chunk: Chunk) -> list[Framed]:
        """Refuse bytes that begin no packet; they are shown only if the stream is known to be MSMQ's."""
        self._buffer = None
        self._refused = True
        head = (self._head if begun_bytes else b"") + left
        shown = [self._framed(head[:HEAD_BYTES], self._mark, chunk, fault)] if self.seen.is_msmq else []
        self._skip(begun_bytes + len(left))
        return shown

    def _framed(self, data: bytes, began: Mark, ended: Chunk, fault: WireFormatError | None = None) -> Framed:
        loss = Loss(self.missing_bytes, self.skipped_bytes, self.snapped_bytes)
        self.missing_bytes = self.skipped_bytes = self.snapped_bytes = 0
        return Framed(data, began, ended, loss, fault)

    def _skip(self, count: int) -> None:
        """Skip bytes that belong to no readable packet."""
        if self._refused:
            self.seen.refused_bytes += count
        else:
            self.seen.headless_bytes += count
        self.skipped_bytes += count
