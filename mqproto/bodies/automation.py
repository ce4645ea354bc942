"""Bodies of COM's MSMQMessage and of .NET's ActiveXMessageFormatter.

Each is one value, and its body type is the value's VT_ number.

The numbers come from [MS-MQMQ] 2.2.12 or else from [MS-OAUT] 2.2.7 and [MS-OLEPS] 2.15. [MC-MQAC] 3.17.4.1.22 and
learn.microsoft.com, "ActiveXMessageFormatter.Read", list the types of bodies. All values are little-endian; a body has
exactly the size of its type.

    VT_BSTR, VT_LPWSTR   UTF-16          VT_LPSTR    ASCII; the last two may end with a NUL
    VT_BOOL   2 bytes: 0 or 0xFFFF       VT_CY       8 bytes, ten-thousandths
    VT_DATE   8 bytes, a double: days since 30 December 1899; the fraction always counts forward
              within the day
    VT_VECTOR|VT_UI1, VT_ARRAY|VT_UI1    unchanged bytes, from .NET and from COM; no other array has
              a published form
    VT_STREAMED_OBJECT   a CLSID of 16 bytes, and the bytes that this class wrote for its object
              (IPersistStream)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.bodies.values import TICKS_PER_S, DateTime, Tree, UnexplainedError, Value

VT_EMPTY: Final = 0
VT_VECTOR: Final = 0x1000
VT_ARRAY: Final = 0x2000
_MS_PER_DAY: Final = 86_400_000
_TICKS_PER_MS: Final = TICKS_PER_S // 1_000
_DAY_ZERO_MS: Final = 693_593 * _MS_PER_DAY
"""The time from the beginning of the year 1 to 30 December 1899, in milliseconds."""
_FIRST_DAY: Final = -657_435
_LAST_DAY: Final = 2_958_466
"""The limits for the number of days in a VT_DATE; both are exclusive, and allow the years 100 to
9999. [MS-OAUT] 2.2.25
"""


@dataclass(frozen=True, slots=True)
class VariantType:
    """One body type.

    read: a function that returns the value of a body, or raises UnexplainedError.
    write: a function that returns the body for a value, or raises UsageError.
    """

    number: int
    name: str
    read: Callable[[bytes], Value]
    write: Callable[[Value], bytes]


def _sized(body: bytes, name: str, *sizes: int) -> bytes:
    if len(body) not in sizes:
        raise UnexplainedError(f"{name} has {sizes[0]} bytes, and the body {len(body):,}")
    return body


def _refuse(name: str, value: object) -> UsageError:
    return UsageError(f"{quoted(str(value))} is not {name}")


def _number(number: int, name: str, form: str) -> VariantType:
    layout = struct.Struct(f"<{form}")

    def read(body: bytes) -> Value:
        found: int | float = layout.unpack(_sized(body, name, layout.size))[0]
        return found

    def write(value: Value) -> bytes:
        takes = (int, float) if form in "fd" else (int,)
        if isinstance(value, bool) or not isinstance(value, takes):
            raise _refuse(name, value)
        try:
            return layout.pack(value)
        except (struct.error, OverflowError):
            raise _refuse(name, value) from None

    return VariantType(number, name, read, write)


def _text(number: int, name: str, codec: str, *, ends: bool) -> VariantType:
    def read(body: bytes) -> str:
        try:
            found = body.decode(codec)
        except UnicodeDecodeError:
            said = "UTF-16" if codec != "ascii" else "ASCII, and the sender's code page is not known"
            raise UnexplainedError(f"{name} is text, and the body is not {said}") from None
        return found.removesuffix("\0") if ends else found

    def write(value: Value) -> bytes:
        if not isinstance(value, str):
            raise _refuse(name, value)
        if ends and "\0" in value:
            raise UsageError(f"{quoted(value)} has a NUL, which would end a {name}: VT_BSTR takes it")
        try:
            return (value + "\0" * ends).encode(codec)
        except UnicodeEncodeError:
            raise UsageError(
                f"{quoted(value)} cannot be written as {codec}: VT_BSTR takes all text"
            ) from None

    return VariantType(number, name, read, write)


def _bytes(number: int, name: str) -> VariantType:
    def write(value: Value) -> bytes:
        if not isinstance(value, bytes):
            raise _refuse(name, value)
        return value

    return VariantType(number, name, lambda body: body, write)


def _read_nothing(body: bytes) -> None:
    _sized(body, "VT_NULL", 0)


def _write_nothing(value: Value) -> bytes:
    if value is not None:
        raise _refuse("VT_NULL", value)
    return b""


def _read_bool(body: bytes) -> bool:
    # Some writers use one byte; all readers take anything but 0 as true.
    return any(_sized(body, "VT_BOOL", 2, 1))


def _write_bool(value: Value) -> bytes:
    if not isinstance(value, bool):
        raise _refuse("VT_BOOL", value)
    return b"\xff\xff" if value else b"\0\0"


def _read_currency(body: bytes) -> Decimal:
    return Decimal(int.from_bytes(_sized(body, "VT_CY", 8), "little", signed=True)).scaleb(-4)


def _write_currency(value: Value) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
        raise _refuse("VT_CY", value)
    number = Decimal(value)
    if number.adjusted() > 15 or (scaled := number.scaleb(4)) != scaled.to_integral_value():
        raise UsageError(f"{value} is not a VT_CY, which has four digits behind the point")
    try:
        return int(scaled).to_bytes(8, "little", signed=True)
    except OverflowError:
        raise _refuse("VT_CY", value) from None


def _read_date(body: bytes) -> DateTime:
    days: float = struct.unpack("<d", _sized(body, "VT_DATE", 8))[0]
    if not _FIRST_DAY < days < _LAST_DAY:
        raise UnexplainedError(f"VT_DATE has days from the years 100 to 9999, and the body {days}")
    # The whole part counts days, also backwards; the fraction is always later on that day.
    whole = math.trunc(days)
    ms = round(abs(days - whole) * _MS_PER_DAY)
    return DateTime((_DAY_ZERO_MS + whole * _MS_PER_DAY + ms) * _TICKS_PER_MS)


def _write_date(value: Value | datetime) -> bytes:
    time = DateTime.of(value) if isinstance(value, datetime) else value
    if not isinstance(time, DateTime):
        raise _refuse("VT_DATE", value)
    day, ms = divmod((time.ticks + _TICKS_PER_MS // 2) // _TICKS_PER_MS - _DAY_ZERO_MS, _MS_PER_DAY)
    fraction = ms / _MS_PER_DAY
    days = day + fraction if day >= 0 else day - fraction
    if not _FIRST_DAY < days < _LAST_DAY:
        raise UsageError(f"{time} is not a VT_DATE, which has the years 100 to 9999")
    return struct.pack("<d", days)


def _read_guid(body: bytes) -> UUID:
    return UUID(bytes_le=_sized(body, "VT_CLSID", 16))


def _write_guid(value: Value) -> bytes:
    if not isinstance(value, UUID):
        raise _refuse("VT_CLSID", value)
    return value.bytes_le


def _read_object(body: bytes) -> Tree:
    if len(body) < 16:
        raise UnexplainedError(
            f"VT_STREAMED_OBJECT begins with a CLSID of 16 bytes, and the body has {len(body)}"
        )
    return Tree("VT_STREAMED_OBJECT", (("clsid", UUID(bytes_le=body[:16])), ("data", body[16:])))


def _write_object(value: Value) -> bytes:
    match value:
        case Tree(members=(("clsid", UUID() as clsid), ("data", bytes() as data))):
            return clsid.bytes_le + data
    raise UsageError(f"{quoted(str(value))} is not a VT_STREAMED_OBJECT, which has clsid and data")


BY_NUMBER: Final = {
    variant.number: variant
    for variant in (
        VariantType(1, "VT_NULL", _read_nothing, _write_nothing),
        _number(2, "VT_I2", "h"),
        _number(3, "VT_I4", "i"),
        _number(4, "VT_R4", "f"),
        _number(5, "VT_R8", "d"),
        VariantType(6, "VT_CY", _read_currency, _write_currency),
        VariantType(7, "VT_DATE", _read_date, _write_date),
        _text(8, "VT_BSTR", "utf-16-le", ends=False),
        VariantType(11, "VT_BOOL", _read_bool, _write_bool),
        _number(16, "VT_I1", "b"),
        _number(17, "VT_UI1", "B"),
        _number(18, "VT_UI2", "H"),
        _number(19, "VT_UI4", "I"),
        _number(20, "VT_I8", "q"),
        _number(21, "VT_UI8", "Q"),
        _text(30, "VT_LPSTR", "ascii", ends=True),
        _text(31, "VT_LPWSTR", "utf-16-le", ends=True),
        VariantType(68, "VT_STREAMED_OBJECT", _read_object, _write_object),
        VariantType(72, "VT_CLSID", _read_guid, _write_guid),
        _bytes(VT_VECTOR | 17, "VT_VECTOR|VT_UI1"),
        _bytes(VT_ARRAY | 17, "VT_ARRAY|VT_UI1"),
    )
}
"""The body types that have a published form, keyed by number."""
BY_NAME: Final = {variant.name: variant for variant in BY_NUMBER.values()}
