"""AMQP 0-9-1, as far as a producer and a consumer need it: what goes out, and what comes in.

Each frame has a head of seven bytes, its payload and an end of one byte. pamqp knows all of them, and takes 24 µs to
write a message and 30 to read one. So the few that come with every message are put together and taken apart here, from
what pamqp has written once.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pamqp import base, commands, frame, header
from pamqp.exceptions import UnmarshalingException

from tests.bench.figures import BenchError

CHANNEL: Final = 1
"""The one that each connection has."""
PERSISTENT: Final = 2
END: Final = 0xCE
METHOD, HEADER, BODY, HEARTBEAT = KINDS = (1, 2, 3, 8)
DELIVER: Final = (60, 60)
ACK: Final = (60, 80)
_head = struct.Struct(">BHI")
_method = struct.Struct(">HH")
_confirmation = struct.Struct(">4xQB")
_tag = struct.Struct(">Q")
_content = struct.Struct(">4xQ")
FRAMING_BYTES: Final = _head.size + 1


class Delivered(NamedTuple):
    """A message to the consumer."""

    tag: int
    body: bytes


class Confirmed(NamedTuple):
    """The broker has a message; if `also_before`, all of them up to it."""

    tag: int
    also_before: bool


Event = Delivered | Confirmed | base.Frame
"""What a broker says; of all but the first two what pamqp makes of it."""


class Publisher:
    """Makes the bytes that publish messages of one size to one queue.

    Args:
        frame_bytes: the most that a frame has, as the broker has it.
    """

    def __init__(self, queue: str, body_bytes: int, frame_bytes: int) -> None:
        properties = commands.Basic.Properties(delivery_mode=PERSISTENT)
        self._before = request(commands.Basic.Publish(exchange="", routing_key=queue)) + frame.marshal(
            header.ContentHeader(0, body_bytes, properties), CHANNEL
        )
        self._step = frame_bytes - FRAMING_BYTES

    def published(self, body: bytes) -> bytes:
        """One message."""
        parts = [body[at : at + self._step] for at in range(0, len(body), self._step)]
        return self._before + b"".join(
            b"%b%b%c" % (_head.pack(BODY, CHANNEL, len(part)), part, END) for part in parts
        )


def request(method: base.Frame, channel: int = CHANNEL) -> bytes:
    """The bytes of a method."""
    return frame.marshal(method, channel)


class Incoming:
    """What a broker says, in whatever pieces it comes."""

    def __init__(self) -> None:
        self._kept = b""
        self._tag = 0
        """Of the message that is being delivered."""
        self._parts: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Event]:
        """What is whole with these bytes.

        Raises:
            BenchError: the broker says what no broker says.
        """
        kept = self._kept + data if self._kept else data
        found: list[Event] = []
        at = 0
        while len(kept) - at >= FRAMING_BYTES:
            kind, _, size = _head.unpack_from(kept, at)
            if kind not in KINDS:
                raise BenchError(f"RabbitMQ says {kept[at : at + 20]!r}, which is not of its protocol")
            start, end = at + _head.size, at + _head.size + size
            if len(kept) <= end:
                break
            if kept[end] != END:
                raise BenchError(f"RabbitMQ says {kept[at : at + 20]!r}, which is not of its protocol")
            if kind == BODY:
                self._parts.append(kept[start:end])
                self._missing -= size
                if self._missing <= 0:
                    found.append(self._delivered())
            elif kind == HEADER:
                (self._missing,) = _content.unpack_from(kept, start)
                if not self._missing:
                    found.append(self._delivered())
            elif kind != HEARTBEAT:
                self._method(kept[at : end + 1], found)
            at = end + 1
        self._kept = kept[at:]
        return found

    def _delivered(self) -> Delivered:
        body, self._parts = b"".join(self._parts), []
        return Delivered(self._tag, body)

    def _method(self, data: bytes, found: list[Event]) -> None:
        name = _method.unpack_from(data, _head.size) if len(data) >= FRAMING_BYTES + _method.size else ()
        if name == DELIVER:
            # Behind the method's two numbers stands the name of the consumer, with its length before it.
            after = _head.size + _method.size
            (self._tag,) = _tag.unpack_from(data, after + 1 + data[after])
            return
        if name == ACK:
            tag, multiple = _confirmation.unpack_from(data, _head.size)
            found.append(Confirmed(tag, bool(multiple & 1)))
            return
        try:
            _, _, value = frame.unmarshal(data)
        except (UnmarshalingException, ValueError) as error:
            raise BenchError(f"RabbitMQ says {data[:20]!r}, which is not of its protocol: {error}") from None
        if not isinstance(value, base.Frame):
            raise BenchError(f"RabbitMQ says {data[:20]!r}, which is no method")
        found.append(value)
