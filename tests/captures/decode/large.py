"""A capture of any size: orders from a through b to c, acknowledged both on each hop and from end to end.

python -m tests.captures.decode.large FILE BYTES [BODY_BYTES]
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side, TcpConversation
from tests.captures.decode.scene import BEGAN_NS, Scene, Wire, ordered, passed_on, transactional

BATCH: Final = 32
"""The number of messages that cross a hop before they are acknowledged."""
SPACING_NS: Final = 10_000
_MESSAGE_ID: Final = 56
_NUMBERS: Final = 80


class _Writer:
    """Writes the packets of a scene, and forgets them."""

    def __init__(self, capture: PcapngWriter, scene: Scene) -> None:
        self._capture = capture
        self._scene = scene
        self._talks: dict[int, TcpConversation] = {}
        self.size_bytes = 0
        self.packet_count = 0

    def write(self) -> None:
        for seen in self._scene.packets:
            talk = self._talks.get(seen.connection)
            if talk is None:
                talk = self._talks[seen.connection] = TcpConversation(seen.source, seen.destination)
                self._frames(talk.open(), seen.time_ns)
            side = Side.SERVER if seen.source.port == 1801 else Side.CLIENT
            self._frames(talk.send(side, seen.data), seen.time_ns)
            self.packet_count += 1
        self._scene.packets.clear()

    def _frames(self, frames: list[bytes], time_ns: int) -> None:
        for data in frames:
            self._capture.write(Frame(time_ns=time_ns, data=data))
            self.size_bytes += len(data) + 32


def numbered(message: bytes, number: int) -> bytes:
    """Return the message with a different number and identifier; this is much faster than encoding it."""
    ids = struct.pack("<I", number)
    numbers = struct.pack("<II", number, number - 1)
    return b"".join(
        (message[:_MESSAGE_ID], ids, message[_MESSAGE_ID + 4 : _NUMBERS], numbers, message[_NUMBERS + 8 :])
    )


def write_capture(path: Path, size_bytes: int, body_bytes: int = 1_024) -> int:
    """Write about `size_bytes`. Return the number of packets."""
    scene = Scene()
    with path.open("wb") as file, PcapngWriter(file) as capture:
        writer = _Writer(capture, scene)
        first, second = scene.wire("a", "b"), scene.wire("b", "c")
        came = transactional(1, body=bytes(body_bytes))
        left = passed_on(came)
        number = 0
        while writer.size_bytes < size_bytes:
            batch = range(number + 1, number + BATCH + 1)
            _send(first, "a", came, batch)
            _send(second, "b", left, batch)
            number += BATCH
            acknowledgment = ordered(number, number)
            second.send("c", acknowledgment)
            second.ack("b")
            first.send("b", passed_on(acknowledgment))
            first.ack("a")
            for seen in scene.packets:
                seen.time_ns = BEGAN_NS + SPACING_NS * (writer.packet_count + seen.number)
            writer.write()
        return writer.packet_count


def _send(wire: Wire, sender: str, message: bytes, numbers: range) -> None:
    for number in numbers:
        wire.send(sender, numbered(message, number))
    wire.ack(wire.other(sender))


assert numbered(transactional(1), 7) == transactional(7, label="order 1")

if __name__ == "__main__":
    print(f"{write_capture(Path(sys.argv[1]), *map(int, sys.argv[2:])):,} packets")
