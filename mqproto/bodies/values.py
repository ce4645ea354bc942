"""The contents of bodies as Python values and as JSON.

Python has no value for three things that .NET writes: a time in steps of 100 ns, a time span in such steps, and an
object of a class. Everything else is None, bool, int, float, str, bytes, Decimal, UUID or a list.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias
from uuid import UUID

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.base.foreign import TEXT_LIMIT, quoted, shown

DEPTH_LIMIT: Final = 100
"""The maximum number of levels to which objects may be nested."""
VALUES_LIMIT: Final = 200_000
"""The maximum number of values, including nested ones, that a body may have; each takes about 200 bytes of memory."""

TICKS_PER_S: Final = 10_000_000
_TICKS_PER_DAY: Final = 86_400 * TICKS_PER_S
_LAST_TICK: Final = 3_652_059 * _TICKS_PER_DAY - 1
"""The last tick of the year 9999, counted from the beginning of the year 1."""
_BEGIN: Final = datetime(1, 1, 1)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,7}))?(Z|[+-]\d\d:\d\d| local)?", re.ASCII
)


class UnexplainedError(MqprotoError, ValueError):
    """Bytes that do not fit their body type. The text is the reason, in one line of at most 600 characters."""

    def __init__(self, text: str) -> None:
        super().__init__(shown(text, TEXT_LIMIT))


@dataclass(frozen=True, slots=True)
class DateTime:
    """A .NET time.  [MS-NRBF] 2.1.1.5

    ticks: the number of 100 ns steps since the beginning of the year 1, on the zone's clock; the last year is 9999.
    zone: "" if unknown, "Z" for UTC, "local" for the sender's zone, or an offset of at most 14 hours, like "+01:00".
    """

    ticks: int
    zone: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.ticks <= _LAST_TICK:
            raise UsageError(f"{self.ticks} ticks: a time has 0 to {_LAST_TICK}, the end of the year 9999")
        if self.zone not in ("", "Z", "local"):
            _offset(self.zone)

    def __str__(self) -> str:
        seconds, ticks = divmod(self.ticks, TICKS_PER_S)
        text = (_BEGIN + timedelta(seconds=seconds)).isoformat()
        fraction = f".{ticks:07}".rstrip("0") if ticks else ""
        return f"{text}{fraction}{' local' if self.zone == 'local' else self.zone}"

    @property
    def as_datetime(self) -> datetime:
        """The time as a Python datetime, to the microsecond. It has a time zone if the zone is known."""
        found = _BEGIN + timedelta(microseconds=self.ticks // 10)
        if self.zone in ("", "local"):
            return found
        return found.replace(tzinfo=UTC if self.zone == "Z" else timezone(_offset(self.zone)))

    @classmethod
    def of(cls, time: datetime) -> DateTime:
        """Convert a Python datetime; seconds in its UTC offset are cut off."""
        ticks = (time.replace(tzinfo=None) - _BEGIN) // timedelta(microseconds=1) * 10
        offset = time.utcoffset()
        if offset is None:
            return cls(ticks)
        minutes = offset // timedelta(minutes=1)
        sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
        return cls(ticks, f"{sign}{hours:02}:{rest:02}" if minutes else "Z")

    @classmethod
    def parse(cls, text: str) -> DateTime:
        """Return the time that a text represents, as written by `str` or by an application.

        An example is `2024-01-02T03:04:05.1234567Z`.

        Raises:
            ValueError: the text is not such a time.
        """
        found = _TIME.fullmatch(text)
        if found is None:
            raise ValueError(f"{quoted(text)} is not a time: write it as 2024-01-02T03:04:05.1234567Z")
        seconds = (datetime.fromisoformat(found[1]) - _BEGIN) // timedelta(seconds=1)
        ticks = int((found[2] or "").ljust(7, "0"))
        return cls(seconds * TICKS_PER_S + ticks, (found[3] or "").strip())


def _offset(zone: str) -> timedelta:
    found = re.fullmatch(r"([+-])(\d\d):([0-5]\d)", zone, re.ASCII)
    minutes = int(found[2]) * 60 + int(found[3]) if found else 1_000
    if found is None or minutes > 14 * 60:
        raise UsageError(f"zone {quoted(zone)}: Z, local, nothing, or as +01:00, at most 14 hours")
    return timedelta(minutes=-minutes if found[1] == "-" else minutes)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A .NET time span, in ticks of 100 ns.  [MS-NRBF] 2.1.1.4"""

    ticks: int

    def __str__(self) -> str:
        seconds, ticks = divmod(abs(self.ticks), TICKS_PER_S)
        return f"{'-' if self.ticks < 0 else ''}{seconds}.{ticks:07} s"


@dataclass(frozen=True, slots=True)
class Above:
    """A reference to an enclosing object or array.

    levels: how many levels up it is; 1 is the nearest.
    """

    levels: int


@dataclass(frozen=True, slots=True)
class Mention:
    """A reference to an object that occurs elsewhere.

    path: the members and indexes that lead to the object from the root, as a JSON Pointer: `/Lines/0/Item`.  RFC 6901
    """

    path: str


@dataclass(frozen=True, slots=True)
class Tree:
    """An object of a class.

    name: the object's class, as named in the body; empty if the body does not name it.
    members: the names and values of its members, in order. In XML, `@name` is an attribute, `#text` is text that
        accompanies attributes or elements, and a list stands for successive elements with the same name.
    """

    name: str
    members: tuple[tuple[str, Value], ...] = ()

    def __getitem__(self, name: str) -> Value:
        """Return the first member with this name."""
        for member, value in self.members:
            if member == name:
                return value
        raise KeyError(name)


Value: TypeAlias = (
    "bool | int | float | str | bytes | Decimal | UUID | DateTime | TimeSpan | Above | Mention | Tree | list[Value]"
    "| None"
)  # fmt: skip


def to_json(value: Value) -> Any:
    """Return a value in a form for `json.dumps`; `from_json` converts it back.

    A value without a JSON form becomes an object with one key, such as {"$guid": "..."}. An object has its members, and
    its class as "$type" if that is known. If two members have the same name, or a name begins with $, the object has
    "$members" instead: a list of pairs.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value - value == 0 else {"$double": _DOUBLES[str(value)]}
        case bytes():
            return {"$base64": base64.b64encode(value).decode("ascii")}
        case Decimal():
            # Without an exponent, as .NET writes it; a .NET decimal has at most 28 digits behind the point.
            plain = value.is_finite() and -40 <= int(value.as_tuple().exponent) <= 0
            return {"$decimal": format(value, "f") if plain else str(value)}
        case UUID():
            return {"$guid": str(value)}
        case DateTime():
            return {"$dateTime": str(value)}
        case TimeSpan():
            return {"$timeSpan": value.ticks}
        case Above():
            return {"$above": value.levels}
        case Mention():
            return {"$again": value.path}
        case list():
            return [to_json(item) for item in value]
    members = [(name, to_json(member)) for name, member in value.members]
    named = {"$type": value.name} if value.name else {}
    names = {name for name, _ in members}
    if len(names) < len(members) or any(name.startswith("$") for name in names) or not (named or members):
        return {**named, "$members": [list(member) for member in members]}
    return {**named, **dict(members)}


_DOUBLES: Final = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def from_json(data: Any) -> Value:
    """Return the value that corresponds to the output of `to_json`.

    Data that was written by hand in the same form is accepted, too.

    Raises:
        UsageError: the data has another form, is nested deeper than DEPTH_LIMIT, or has more than VALUES_LIMIT values.
    """
    waiting, count = [data], 0
    while waiting:
        item = waiting.pop()
        count += 1
        if count > VALUES_LIMIT:
            raise UsageError(f"the JSON has more than {VALUES_LIMIT:,} values, which nobody reads")
        if isinstance(item, list | dict):
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return _from_json(data, 0)


def _from_json(data: Any, depth: int) -> Value:
    if depth > DEPTH_LIMIT:
        raise UsageError(f"the JSON is nested deeper than {DEPTH_LIMIT} levels")
    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return [_from_json(item, depth + 1) for item in data]
        case dict():
            return _special(data) if len(data) == 1 and data.keys() <= _SPECIAL.keys() else _tree(data, depth)
    raise UsageError(f"{type(data).__name__} is not a value of JSON")


def _tree(data: dict[str, Any], depth: int) -> Tree:
    name, pairs = data.get("$type", ""), data.get("$members")
    rest = {key: value for key, value in data.items() if key not in ("$type", "$members")}
    members = list(rest.items()) if pairs is None else pairs
    if not isinstance(name, str) or (pairs is not None and rest) or any(key.startswith("$") for key in rest):
        raise UsageError(f"{quoted(str(data))} is not an object: $type with members, or with $members alone")
    if not isinstance(members, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in members
    ):
        raise UsageError(f"{quoted(str(pairs))} is not a list of members: write [[name, value], ...]")
    return Tree(name, tuple((member, _from_json(value, depth + 1)) for member, value in members))


_SPECIAL: Final[dict[str, Callable[[Any], Value]]] = {
    "$double": lambda text: {name: float(python) for python, name in _DOUBLES.items()}[text],
    "$base64": lambda text: base64.b64decode(text, validate=True),
    "$decimal": Decimal,
    "$guid": UUID,
    "$dateTime": DateTime.parse,
    "$timeSpan": lambda ticks: TimeSpan(int(ticks)),
    "$above": lambda levels: Above(int(levels)),
    "$again": lambda path: Mention("" + path),
}


def _special(data: dict[str, Any]) -> Value:
    [(key, text)] = data.items()
    try:
        return _SPECIAL[key](text)
    except (ValueError, KeyError, TypeError, AttributeError, InvalidOperation, binascii.Error):
        raise UsageError(f"{key} is {quoted(str(text))}: it is not such a value") from None
