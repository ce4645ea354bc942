"""The judge of our own codec.

It makes quick checks for every packet, and slower checks for a few packets.

For every packet, the judge checks that, within the time and the memory that the fuzzer allows:
- the generated code reads the packet or refuses it with one of its REFUSALS, and so does the code
  that only checks;
- the record that was read is written as the same bytes, and PacketBuffer finds exactly this packet
  in them.
For the first packets that take a new path through the codec, and for one in ONE_IN of the others,
it also checks that:
- the reference reads the same record, including padding and reserved bits, and writes the same
  bytes; or, if the generated code refuses the packet, the reference refuses it with a
  WireFormatError.
For a quarter of these packets, because it takes long, it also checks that:
- `inspect_packet` shows each byte once, and gives the same verdict, with the text of that
  WireFormatError;
- reading takes little memory (see MEMORY_BYTES).
"""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Final

from mqproto.base.errors import WireFormatError
from mqproto.simulator.fuzz.parser.judges import BURST, Broken, place
from mqproto.wire import (
    BaseHeader,
    Packet,
    PacketBuffer,
    UserHeader,
    UserMessage,
    decode_packet,
    encode_packet,
    inspect_packet,
    reference,
)
from mqproto.wire.codec import check_or_refuse, decode_or_refuse
from mqproto.wire.glance import user_flags
from mqproto.wire.layouts.base import SMALLEST_USER_MESSAGE
from mqproto.wire.schema.refused import REFUSALS

FIRST: Final = 16
"""For each way through the codec, the number of packets that are also read by construct."""
ONE_IN: Final = 256
"""After the FIRST packets that take the same path, one in this many is also read by construct."""
MEMORY_BYTES: Final = 128 * 1024
"""The memory, in bytes, that reading a packet may take in addition to eight times the packet's size."""

_LISTS: Final = UserHeader.has_multi_queue_format.mask
_ANNOUNCED_BY_USER: Final = (
    UserHeader.has_security.mask
    | UserHeader.has_transaction.mask
    | UserHeader.has_connector_type.mask
    | _LISTS
    | UserHeader.has_soap.mask
    | UserHeader.destination_type.mask
)
_ANNOUNCED_BY_BASE: Final = BaseHeader.session_header.mask | BaseHeader.debug_header.mask

_DECODES: Final = "decodes or is refused"
_CHECKED: Final = "is found good or not, as decoded"
_ROUND_TRIP: Final = "decoded, encodes to the same bytes and is framed as itself"
_AGREES: Final = "construct agrees"
_INSPECTED: Final = "inspection shows every byte once"
_MEMORY: Final = "decodes in little memory"


class OwnCodec:
    """The judge of our codec."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._ways: dict[Hashable, int] = {}
        self._sampled = 0

    def judge(self, data: bytes) -> Hashable:
        self.counts[_DECODES] += 1
        packet: Packet | None = None
        way: Hashable
        try:
            packet = decode_or_refuse(data)
        except REFUSALS as refusal:
            # In the lists of queues it is construct that refuses, and it knows the field.
            match refusal.__cause__:
                case WireFormatError(field=field):
                    way = field.rpartition(".")[2]
                case _:
                    way = place(refusal.__traceback__)
        if packet is not None:
            way = way_of(packet)
            self._check_round_trip(data, packet)
        met = self._ways[way] = self._ways.get(way, 0) + 1
        if met <= FIRST or not met % ONE_IN:
            error = self._check_agreement(data, packet)
            self._sampled += 1
            if not self._sampled % 4:
                self._check_inspection(data, error)
                self._check_memory(data)
        self._check_verdict(data, packet)
        return way

    def judge_again(self, data: bytes) -> None:
        packet = None
        with suppress(*REFUSALS):
            packet = decode_or_refuse(data)
        if packet is not None:
            self._check_round_trip(data, packet)
        self._check_inspection(data, self._check_agreement(data, packet))
        self._check_memory(data)
        self._check_verdict(data, packet)

    def burst(self, packet: bytes) -> int:
        # The generated code reads the lists of queues by construct, too: they would take most of the time.
        listed = len(packet) >= SMALLEST_USER_MESSAGE and user_flags(packet) & _LISTS
        return BURST // 8 if listed else BURST

    def _check_verdict(self, data: bytes, packet: Packet | None) -> None:
        self.counts[_CHECKED] += 1
        try:
            check_or_refuse(data)
        except REFUSALS:
            if packet is not None:
                raise Broken(
                    "verdict", "checked it is refused, decoded it is not", type(packet).__name__
                ) from None
        else:
            if packet is None:
                raise Broken("verdict", "checked it is good, decoded it is refused")

    def _check_round_trip(self, data: bytes, packet: Packet) -> None:
        self.counts[_ROUND_TRIP] += 1
        if encode_packet(packet) != data:
            raise Broken("round trip", f"encodes to {encode_packet(packet).hex()}", type(packet).__name__)
        if PacketBuffer().feed(data) != [data]:
            raise Broken("framing", "PacketBuffer finds other packets in it", type(packet).__name__)

    def _check_agreement(self, data: bytes, packet: Packet | None) -> WireFormatError | None:
        """Check that the reference agrees with the generated code; return the reference's refusal, or None if it
        accepts the packet.
        """
        self.counts[_AGREES] += 1
        try:
            interpreted = reference.read(data)
        except WireFormatError as error:
            if packet is not None:
                raise Broken("agreement", f"construct alone refuses: {error}", error.field) from None
            # The buffer may find a whole packet all the same, or wait for more; it must raise nothing else.
            with suppress(WireFormatError):
                PacketBuffer().feed(data)
            return error
        if packet is None:
            raise Broken("agreement", f"construct alone reads {interpreted}", type(interpreted).__name__)
        if everything(packet) != everything(interpreted):
            raise Broken("agreement", f"{packet} or, by construct, {interpreted}", type(packet).__name__)
        if reference.packet.build(packet) != data:
            raise Broken("round trip", "construct writes other bytes", type(packet).__name__)
        return None

    def _check_inspection(self, data: bytes, error: WireFormatError | None) -> None:
        self.counts[_INSPECTED] += 1
        inspection = inspect_packet(data)
        if b"".join(field.raw for field in inspection.fields) != data:
            raise Broken("inspection", "the fields do not hold every byte once")
        if inspection.is_valid != (error is None):
            raise Broken("inspection", f"inspect_packet finds {inspection.findings}, decode_packet {error}")
        if error is not None and str(error) not in map(str, inspection.findings):
            raise Broken("inspection", f"inspect_packet does not find {error}", error.field)

    def _check_memory(self, data: bytes) -> None:
        if tracemalloc.is_tracing():
            return  # Another measurement is running.
        self.counts[_MEMORY] += 1
        tracemalloc.start()
        try:
            with suppress(WireFormatError):
                decode_packet(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak > MEMORY_BYTES + 8 * len(data):
            raise Broken("memory", f"decoding {len(data):,} bytes takes {peak:,} bytes of memory")


def way_of(packet: Packet) -> Hashable:
    """Return a value that stands for a packet's path through the codec, which its headers determine."""
    if isinstance(packet, UserMessage):
        return packet.base.flags & _ANNOUNCED_BY_BASE, packet.user.flags & _ANNOUNCED_BY_USER
    return type(packet).__name__


def everything(value: Any) -> Any:
    """Return all fields of a record, padding included, in a comparable form."""
    if dataclasses.is_dataclass(value):
        return type(value), [everything(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, list):
        return [everything(each) for each in value]
    return value
