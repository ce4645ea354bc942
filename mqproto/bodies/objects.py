"""Bodies of .NET's BinaryMessageFormatter, body type 768, as a tree.  [MS-NRBF]

They are read and never written. An object is a `Tree`, an array a list, one of bytes bytes; what .NET writes as an
object of a class of its own that Python has a value for is that value: System.Int32 and its kin, Decimal, DateTime and
Guid. An object that is referred to twice stands there twice; where it lies in itself, there is an `Above`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import prod
from typing import Any, Final
from uuid import UUID

from mqproto.base.errors import UsageError
from mqproto.bodies.records import Array, Instance, Item, Object, Reference, Stream, time_of
from mqproto.bodies.values import DEPTH_LIMIT, VALUES_LIMIT, Above, TimeSpan, Tree, UnexplainedError, Value

BINARY_FORMATTER: Final = 768
"""The body type of BinaryMessageFormatter: learn.microsoft.com, "BinaryMessageFormatter.CanRead", has no number; Mono's
System.Messaging and NServiceBus' have this one."""
TEXT_LIMIT_BYTES: Final = 16 * 2**20
"""How much text and bytes the values may have: a stream says them once, and refers to them again and again."""
GUID_PARTS: Final = [f"_{letter}" for letter in "abcdefghijk"]
"""The members of System.Guid."""
_BOXED: Final = frozenset(
    f"System.{name}"
    for name in ("Boolean", "Byte", "SByte", "Char", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64")
) | {"System.Single", "System.Double"}


def read_objects(body: bytes) -> Value:
    """What a stream says.

    Raises:
        UnexplainedError: see `Stream`; or its objects refer to one another so often that they have more than
            VALUES_LIMIT values or TEXT_LIMIT_BYTES of text, or so deeply that they are nested deeper than DEPTH_LIMIT.
    """
    stream = Stream(body)
    return _Grower(stream).grow(Reference(stream.root))


class _Grower:
    def __init__(self, stream: Stream) -> None:
        self._objects = stream.objects
        self._count = 0
        self._size_bytes = 0
        self._around: list[Object] = []

    def grow(self, item: Item) -> Value:
        self._count += 1
        if self._count > VALUES_LIMIT:
            raise UnexplainedError(f"the objects of the stream have more than {VALUES_LIMIT:,} values")
        if isinstance(item, Reference):
            if item.id not in self._objects:
                raise UnexplainedError(f"the stream refers to an object {item.id} that it does not have")
            item = self._objects[item.id]
        if isinstance(item, str | bytes):
            self._sized(len(item))
        elif isinstance(item, Instance):
            self._sized(len(item.name) + sum(map(len, item.members)))
        if not isinstance(item, Instance | Array):
            return item
        if isinstance(item, Instance) and (found := _python(item)) is not None:
            return found
        for levels, around in enumerate(reversed(self._around), 1):
            if around is item:
                return Above(levels)
        if len(self._around) >= DEPTH_LIMIT:
            raise UnexplainedError(f"the objects of the stream are nested deeper than {DEPTH_LIMIT} levels")
        self._around.append(item)
        values = [self.grow(value) for value in item.values]
        self._around.pop()
        if isinstance(item, Array):
            return _shaped(values, item.lengths)
        return Tree(item.name, tuple(zip(item.members, values, strict=True)))

    def _sized(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        if self._size_bytes > TEXT_LIMIT_BYTES:
            raise UnexplainedError(
                f"the objects of the stream have more than {TEXT_LIMIT_BYTES:,} bytes of text"
            )


def _shaped(values: list[Value], lengths: list[int]) -> list[Value]:
    """Lists in lists, one level for each dimension; of an array without items one empty list."""
    for length in reversed(lengths[1:] if prod(lengths) else []):
        values = [values[at : at + length] for at in range(0, len(values), length)]
    return values


def _python(instance: Instance) -> Value:
    """The value that Python has for an object; None if it has none."""
    known = dict(zip(instance.members, instance.values, strict=True))
    try:
        if instance.name in _BOXED:
            [(member, value)] = known.items()
            return value if member == "m_value" and isinstance(value, bool | int | float | str) else None
        return _CLASSES[instance.name](**known) if instance.name in _CLASSES else None
    except (TypeError, ValueError, OverflowError, UsageError):
        # It is of another make than .NET's class of that name: a tree says what is there.
        return None


def _decimal(flags: int, hi: int, lo: int, mid: int) -> Decimal:
    number = sum((part & 0xFFFFFFFF) << shift for part, shift in ((lo, 0), (mid, 32), (hi, 64)))
    sign, digits = (1 if flags < 0 else 0), tuple(map(int, str(number)))
    return Decimal((sign, digits, -(flags >> 16 & 0xFF)))


def _guid(**parts: int) -> UUID:
    if sorted(parts) != GUID_PARTS:
        raise ValueError(parts)
    first, *rest = (parts[name] for name in GUID_PARTS)
    words = b"".join((part & 0xFFFF).to_bytes(2, "little") for part in rest[:2])
    return UUID(bytes_le=(first & 0xFFFFFFFF).to_bytes(4, "little") + words + bytes(rest[2:]))


_CLASSES: Final[dict[str, Callable[..., Any]]] = {
    "System.Decimal": _decimal,
    "System.Guid": _guid,
    # `ticks` are the same without the zone, for those who have read .NET 1.
    "System.DateTime": lambda ticks, dateData: time_of(dateData),  # noqa: N803
    "System.TimeSpan": lambda _ticks: TimeSpan(int(_ticks)),
}
