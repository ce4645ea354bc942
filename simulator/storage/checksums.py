"""The checksum of a row in the tables: CRC-32 over everything that the row contains, in one encoding.

For a message, it covers the packed numbers and then the packet; for any other row, it covers the columns, as
MessagePack. SQLite's own cksumvfs has a checksum for each page instead. It needs another driver, and a page whose write
was lost still has a matching checksum. To notice lost rows, queues and tables also keep the number of their rows and
the sum of their checksums.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from struct import Struct, error
from typing import Any, Final, TypeVar

import msgspec

from mqproto.simulator.base.storeerrors import DamageError
from mqproto.turn.effects import POSITION_BITS, HurtPacket, MessageRow

NUMBERS: Final = Struct("<QQ?q")
"""The form of the packed numbers: key, message_id, final_ack and expires_s."""
NEVER: Final = -1
"""The number used in place of `expires_s` for a message that never expires."""
SET_ASIDE: Final = -0x71756172
"""The number used in place of the checksum of a message in the quarantine, because no message has this checksum."""
MESSAGE_COLUMNS: Final = "key, packet, message_id, final_ack, expires_s, checksum"

_encode: Final = msgspec.msgpack.Encoder().encode
_pack: Final = NUMBERS.pack
_crc: Final = zlib.crc32

T = TypeVar("T")


def row_checksum(row: Iterable[Any]) -> int:
    """Return the checksum of a row that is not a message."""
    return _crc(_encode(tuple(row)))


def message_checksum(key: int, packet: bytes, message_id: int, final_ack: bool, expires_s: int | None) -> int:
    """Return the checksum of a message."""
    return _crc(packet, _crc(_pack(key, message_id, final_ack, NEVER if expires_s is None else expires_s)))


def message_columns(rows: Iterable[MessageRow]) -> list[tuple[int, bytes, int, int, int | None, int]]:
    """Return the columns of messages in the order of MESSAGE_COLUMNS, with the checksum. This avoids a function call
    for each row.

    `final_ack` is a number, because SQLite has no type for a bool, and its driver would search in vain for an adapter
    for each message.
    """
    crc, pack = _crc, _pack
    return [
        (
            key,
            packet,
            message_id,
            int(final_ack),
            expires_s,
            crc(packet, crc(pack(key, message_id, final_ack, NEVER if expires_s is None else expires_s))),
        )
        for key, packet, message_id, final_ack, expires_s, _, _ in rows
    ]


def whole_message(
    key: int, packet: bytes, message_id: int, final_ack: int, expires_s: int | None, checksum: int
) -> MessageRow:
    """Return a message from its columns if the columns match its checksum.

    Raises:
        DamageError: the message differs from the one that was written.
    """
    try:
        if message_checksum(key, packet, message_id, bool(final_ack), expires_s) == checksum:
            return MessageRow(key, packet, message_id, bool(final_ack), expires_s)
    except (TypeError, error):
        pass
    raise DamageError(
        f"of queue {key >> POSITION_BITS} the message at {key & (1 << POSITION_BITS) - 1} with MessageID"
        f" {message_id} does not fit its checksum"
    )


def hurt_packet(packet: object, message_id: object) -> HurtPacket:
    """Return the packet of a damaged message."""
    hurt = HurtPacket(packet if isinstance(packet, bytes) else b"")
    hurt.message_id = message_id if isinstance(message_id, int) else 0
    return hurt


def message_as_read(*columns: Any) -> MessageRow:
    """Return a message from its columns in the order of MESSAGE_COLUMNS; its packet may be a `HurtPacket`."""
    try:
        return whole_message(*columns)
    except DamageError:
        key, packet, message_id, *_ = columns
        return MessageRow(key, hurt_packet(packet, message_id), 0, final_ack=False)


def packets_as_read(rows: Iterable[Any], gone: Container[int]) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the key, the packet and `final_ack` of each message, from its columns in the order of MESSAGE_COLUMNS.

    This does the same as `message_as_read`, but without a function call for each message: a page has hundreds.

    Args:
        gone: keys of messages to leave out.
    """
    crc, pack = _crc, _pack
    for key, packet, message_id, final_ack, expires_s, checksum in rows:
        if key in gone:
            continue
        ends = NEVER if expires_s is None else expires_s
        try:
            if crc(packet, crc(pack(key, message_id, final_ack, ends))) == checksum:
                yield key, packet, final_ack != 0
                continue
        except (TypeError, error):
            pass
        yield key, hurt_packet(packet, message_id), False


def whole_rows(table: str, rows: Iterable[Any], make: Callable[..., T]) -> Iterator[T]:
    """Yield rows of a table from the columns that were read, the last of which is the row's checksum.

    Args:
        make: makes a row from its columns; the row must have them in the same order.

    Raises:
        DamageError: a row differs from the row that was written.
    """
    for *columns, checksum in rows:
        try:
            row = make(*columns)
            if row_checksum(row) == checksum:  # type: ignore[arg-type]
                yield row
                continue
        except (TypeError, ValueError, msgspec.MsgspecError):
            pass
        raise DamageError(f"in table {table} the row of {columns[0]!r} does not fit its checksum")
