"""Bodies of .NET's BinaryMessageFormatter, body type 768, as a tree.  [MS-NRBF]

They are read but never written. An object becomes a `Tree`, an array becomes a list, and an array
of bytes becomes bytes. Objects of .NET classes with an equivalent in Python become that value:
System.Int32 and other numbers, Decimal, DateTime and Guid. An object inside itself becomes an
`Above`. A second reference to an object becomes a `Mention`; a text is repeated instead, as long as
all repeated texts together are no longer than the body.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import prod
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from mqproto.base.errors import UsageError
from mqproto.bodies.records import EXPANSION, Array, Instance, Item, Reference, Stream, time_of
from mqproto.bodies.values import DEPTH_LIMIT, Above, Mention, TimeSpan, Tree, UnexplainedError, Value

BINARY_FORMATTER: Final = 768
"""The body type of BinaryMessageFormatter. learn.microsoft.com, "BinaryMessageFormatter.CanRead", gives no number, but
Mono's System.Messaging and NServiceBus use this one.
"""
TEXT_LIMIT_BYTES: Final = 16 * 2**20
TEXT_FLOOR_BYTES: Final = 64 * 2**10
"""The number of bytes of text that even the smallest body may produce.

A body may produce more text than it has, because a name that is in the stream only once is repeated in many values.
"""
GUID_PARTS: Final = [f"_{letter}" for letter in "abcdefghijk"]
"""The members of System.Guid."""
_BOXED: Final = frozenset(
    f"System.{name}"
    for name in ("Boolean", "Byte", "SByte", "Char", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64")
) | {"System.Single", "System.Double"}


def read_objects(body: bytes) -> Value:
    """Return the value of a stream.

    Raises:
        UnexplainedError: for one of the reasons that `Stream` lists; or the objects have more than `values_limit`
            values, more text than a body of this length may have, or references nested deeper than DEPTH_LIMIT.
    """
    stream = Stream(body)
    return _Grower(stream, len(body)).grow(Reference(stream.root), None)


class _Stands(NamedTuple):
    """The place of an object, given by the object that contains it and the index in that object.

    around: the place of the containing object; None for the root.
    """

    around: _Stands | None
    item: Instance | Array
    at: int

    @property
    def path(self) -> str:
        """The path of the place in the form that `Mention` uses."""
        if isinstance(self.item, Instance):
            step = self.item.members[self.at].replace("~", "~0").replace("/", "~1")
        else:
            step, at = "", self.at
            for length in reversed(self.item.lengths[1:]):
                at, inner = divmod(at, length)
                step = f"/{inner}{step}"
            step = f"{at}{step}"
        return f"{self.around.path if self.around else ''}/{step}"


class _Grower:
    def __init__(self, stream: Stream, size_bytes: int) -> None:
        self._objects = stream.objects
        self._values_left = self._values_limit = stream.values_limit
        self._text_left = self._text_limit = min(TEXT_LIMIT_BYTES, TEXT_FLOOR_BYTES + EXPANSION * size_bytes)
        self._repeats_left = size_bytes
        self._around: list[Instance | Array] = []
        self._places: dict[int, _Stands | None] = {}
        """The place where each object first occurs, keyed by the object's id()."""

    def grow(self, item: Item, place: _Stands | None) -> Value:
        self._values_left -= 1
        if self._values_left < 0:
            raise UnexplainedError(f"the objects of the stream have more than {self._values_limit:,} values")
        if isinstance(item, Reference):
            if item.id not in self._objects:
                raise UnexplainedError(f"the stream refers to an object {item.id} that it does not have")
            item = self._objects[item.id]
        found: Item | Value = _python(item) if isinstance(item, Instance) else None
        if found is None:
            found = item
        if not isinstance(found, str | bytes | Instance | Array):
            return cast("Value", found)
        for levels, around in enumerate(reversed(self._around), 1):
            if around is item:
                return Above(levels)
        if id(found) in self._places:
            if isinstance(found, str | bytes) and len(found) <= self._repeats_left:
                self._repeats_left -= len(found)
                return found
            first = self._places[id(found)]
            path = first.path if first else ""
            self._sized(len(path))
            return Mention(path)
        self._places[id(found)] = place
        if isinstance(found, str | bytes):
            return found
        return self._grown(found, place)

    def _grown(self, item: Instance | Array, place: _Stands | None) -> Value:
        if len(self._around) >= DEPTH_LIMIT:
            raise UnexplainedError(f"the objects of the stream are nested deeper than {DEPTH_LIMIT} levels")
        if isinstance(item, Instance):
            self._sized(len(item.name) + sum(map(len, item.members)))
        self._around.append(item)
        values = [self.grow(value, _Stands(place, item, index)) for index, value in enumerate(item.values)]
        self._around.pop()
        if isinstance(item, Array):
            return _shaped(values, item.lengths)
        return Tree(item.name, tuple(zip(item.members, values, strict=True)))

    def _sized(self, size_bytes: int) -> None:
        self._text_left -= size_bytes
        if self._text_left < 0:
            raise UnexplainedError(
                f"the objects of the stream have more than {self._text_limit:,} bytes of text"
            )


def _shaped(values: list[Value], lengths: list[int]) -> list[Value]:
    """Return nested lists, one level for each dimension; a single empty list for an array without items."""
    for length in reversed(lengths[1:] if prod(lengths) else []):
        values = [values[at : at + length] for at in range(0, len(values), length)]
    return values


def _python(instance: Instance) -> Value:
    """Return the Python value that is equivalent to an object; None if there is none."""
    known = dict(zip(instance.members, instance.values, strict=True))
    try:
        if instance.name in _BOXED:
            [(member, value)] = known.items()
            return value if member == "m_value" and isinstance(value, bool | int | float | str) else None
        return _CLASSES[instance.name](**known) if instance.name in _CLASSES else None
    except (TypeError, ValueError, OverflowError, UsageError):
        # It differs from .NET's class of that name, so show it as a tree.
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
    # `ticks` are the same without the zone, for readers of .NET 1.
    "System.DateTime": lambda ticks, dateData: time_of(dateData),  # noqa: N803
    "System.TimeSpan": lambda _ticks: TimeSpan(int(_ticks)),
}
