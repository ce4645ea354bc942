"""The reference reader and writer, in which the library `construct` interprets the layouts.

They are about eighty times slower than codec.py, which is generated from the same layouts and uses this module for the
texts of its errors. Tools that need every byte use `read`.
"""

from __future__ import annotations

from typing import Any, Final

from construct import Container

from mqproto.wire.layouts.base import (
    BaseHeader,
    PacketRecord,
    announced,
    base_header,
    size_within,
    whole_packet,
)
from mqproto.wire.layouts.internal import InternalHeader, internal_header
from mqproto.wire.layouts.user import UserHeader, user_header
from mqproto.wire.packets import (
    INTERNAL_PACKETS,
    Packet,
    srmp_message_packet,
    user_message_packet,
)
from mqproto.wire.schema.layout import Anywhere, Layout, found
from mqproto.wire.schema.stream import NOBODY, Onlooker, PacketStream

_internal_head = Layout("[MS-MQQB] 2.2.1", "base" / base_header, "internal" / internal_header)
_FLAGS_AT: Final = base_header.offset_of("flags")
_TYPE_AT: Final = base_header.sizeof() + internal_header.offset_of("flags")
_OVER_HTTP_AT: Final = base_header.sizeof() + user_header.offset_of("flags") + 3
_OVER_HTTP: Final = UserHeader.over_http.mask >> 24


def read(data: bytes, onlooker: Onlooker = NOBODY) -> Packet:
    """Return the record of one whole packet with its SessionHeader.

    The onlooker gets all fields that are read.

    Raises:
        WireFormatError: the bytes do not form a packet of [MS-MQQB] 2.2.
    """
    if len(data) < base_header.sizeof():
        announced(data, onlooker)
    head = Onlooker(faults=None if onlooker.faults is None else [])
    size = size_within(data, *announced(data[: base_header.sizeof()], head), onlooker)
    record = _kind_of(data[:size], onlooker)
    whole: Packet = record.typed(record.fields(data, size, onlooker))
    return whole


def _kind_of(data: bytes, onlooker: Onlooker = NOBODY) -> PacketRecord[Any]:
    """Return the definition of a packet, judging by its head."""
    if data[_FLAGS_AT] & BaseHeader.internal.mask:
        kind = InternalHeader.packet_type.within(data[_TYPE_AT]) if len(data) > _TYPE_AT else 0
        if kind not in INTERNAL_PACKETS:
            _internal_head.parse_stream(PacketStream(data, onlooker=onlooker))
            # Nothing beyond the type can be read, so this fault ends the reading for analysts too.
            assert onlooker.faults
            raise onlooker.faults.pop()
        return INTERNAL_PACKETS[kind]
    # Only an analyst reads on if AH is set.
    is_over_http = (
        onlooker.faults is not None and len(data) > _OVER_HTTP_AT and data[_OVER_HTTP_AT] & _OVER_HTTP
    )
    return srmp_message_packet if is_over_http else user_message_packet


class AnyPacket(Anywhere):
    """Any packet of a session, with its SessionHeader. The BaseHeader and InternalHeader tell its kind."""

    def _read(self, stream: PacketStream, context: Any, path: str) -> Container[Any]:
        data, size = whole_packet(stream)
        return _kind_of(data[:size]).fields(data, size)

    def _write(self, fields: Any, stream: PacketStream, context: Any, path: str) -> Any:
        flags = found(fields, "internal", "flags")
        kind = InternalHeader.packet_type.within(flags) if isinstance(flags, int) else 0
        return INTERNAL_PACKETS.get(kind, user_message_packet)._write(fields, stream, context, path)


packet = AnyPacket()
