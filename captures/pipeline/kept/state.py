"""Objects that runs keep for later runs, as JSON; only those with a record in state_schema.py.

The data is a list of entries that point at one another, so that shared objects are shared again after reading. An entry
is one of Python's collections, or a record, written as its name and the values of its fields. Fields are kept by name.
A field that was added later gets its value from `DEFAULTS`; a removed one is ignored. So any Python and any later
version can read the data, and modules may be moved. No code chosen by a stranger is called: a folder of tables may come
from anywhere.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from mqproto.base.errors import MqprotoError
from mqproto.captures.pipeline.kept.state_schema import DEFAULTS, RECORDS

T = TypeVar("T")

FORM: Final = 1
"""The version of the form of the list of entries."""
PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})
TUPLE: Final = ""
"""Begins a tuple. Tuples have no entries of their own, because there are many of them."""
MANY: Final = "*"
"""Begins a collection of tuples of equal length; the length and the values, column by column, follow it.

There may be a million tuples, of two numbers each.
"""
MAP: Final = "map"
"""A dict: all keys, then all values.

Entries of the kind "dict", which earlier versions wrote, alternate keys and values.
"""
FACTORIES: Final[Mapping[str, Callable[[], Any]]] = {"list": list}
"""The factories that a defaultdict may have."""


class StateError(MqprotoError):
    """The data does not come from a run, or comes from a version that cannot be read."""


class Record(NamedTuple):
    """A class whose objects are kept.

    is_whole: whether the objects are frozen, and so are made from all their fields at once.
    """

    name: str
    kind: type
    fields: tuple[str, ...]
    is_whole: bool


@cache
def records() -> dict[str, Record]:
    """Return all records of the schema, keyed by name."""
    found = {}
    for name, text in RECORDS.items():
        place, _, told = text.partition(": ")
        module, _, kind = place.rpartition(".")
        cls = getattr(import_module(module), kind)
        found[name] = Record(name, cls, tuple(told.split()) or _fields(cls), _is_whole(cls))
    return found


def _fields(kind: Any) -> tuple[str, ...]:
    """Return the fields that a class itself declares; none for a member of an enumeration."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(getattr(kind, "_fields", getattr(kind, "__slots__", ())))


@cache
def _by_kind() -> dict[type, Record]:
    return {record.kind: record for record in records().values()}


def _is_whole(kind: type) -> bool:
    frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return frozen or issubclass(kind, tuple | Enum | Exception)


def encoded(thing: object) -> bytes:
    """Return an object in the form in which it is kept.

    Raises:
        StateError: it is not in the schema, or has a value for which its record has no field.
    """
    written = _Writer().written(thing)
    return json.dumps(written, separators=(",", ":"), default=_as_text).encode()


def decoded(data: bytes | memoryview, kind: type[T]) -> T:
    """Rebuild an object that was kept.

    Raises:
        StateError: these bytes were not kept by a run, or hold something else.
    """
    try:
        form, kinds, entries = json.loads(bytes(data), object_hook=_as_bytes)
        if form != FORM:
            raise StateError(f"it has form {form}, and this program reads {FORM}")
        found = _Reader(kinds, entries).thing(0)
    except StateError:
        raise
    except Exception as error:  # Whatever other bytes lead to.
        raise StateError(" ".join(f"it is damaged: {error}".split())) from None
    if not isinstance(found, kind):
        raise StateError(f"it holds no {kind.__name__}")
    return found


def _as_text(data: bytes) -> dict[str, str]:
    """Return bytes in their JSON form."""
    return {"bytes": b64encode(data).decode()}


def _as_bytes(text: dict[str, str]) -> bytes:
    return b64decode(text["bytes"], validate=True)


class _Writer:
    """Turns objects into entries, each object once.

    An entry has the place of the object's kind in `kinds`, and then the object's contents.
    """

    def __init__(self) -> None:
        self._kinds: list[list[Any]] = []
        self._kind_places: dict[object, int] = {}
        self._places: dict[int, int] = {}
        self._things: list[object] = []

    def written(self, thing: object) -> tuple[int, list[list[Any]], list[list[Any]]]:
        self._value(thing)
        entries = []
        for each in self._things:  # It grows meanwhile.
            entries.append(self._entry(each))
        return FORM, self._kinds, entries

    def _value(self, thing: object) -> Any:
        """Return a plain value or a tuple as it is; for any other object, a list with the place of its entry."""
        kind = type(thing)
        if kind in PLAIN:
            return thing
        if kind is tuple:
            items: Any = thing
            return [TUPLE, *(items if PLAIN.issuperset(map(type, items)) else self._values(items))]
        place = self._places.get(id(thing))
        if place is None:
            place = self._places[id(thing)] = len(self._things)
            self._things.append(thing)
        return [place]

    def _entry(self, thing: Any) -> list[Any]:
        kind = type(thing)
        record = _by_kind().get(kind)
        if record is not None:
            place = self._kind(record.name, *record.fields)
            return [place, *self._values(_held(record, thing))]
        if kind is dict:
            return [self._kind(MAP), *self._held(thing), *self._held(thing.values())]
        if kind is deque:
            return [self._kind(kind.__name__), thing.maxlen, *self._held(thing)]
        write = _WRITERS.get(kind)
        if write is None:
            raise StateError(f"{kind.__module__}.{kind.__qualname__} is nothing that is kept")
        return [self._kind(kind.__name__), *self._held(write(thing))]

    def _held(self, things: Iterable[Any]) -> list[Any]:
        """Return the values of a collection."""
        some = list(things)
        if {*map(type, some)} == {tuple} and some[0] and len({*map(len, some)}) == 1:
            return [[MANY, len(some[0]), *self._values(chain.from_iterable(zip(*some, strict=True)))]]
        return self._values(some)

    def _values(self, things: Iterable[Any]) -> list[Any]:
        some = list(things)
        if PLAIN.issuperset(map(type, some)):
            return some
        value = self._value
        return [thing if type(thing) in PLAIN else value(thing) for thing in some]

    def _kind(self, *described: str) -> int:
        place = self._kind_places.get(described[0])
        if place is None:
            place = self._kind_places[described[0]] = len(self._kinds)
            self._kinds.append(list(described))
        return place


def _held(record: Record, thing: Any) -> Iterable[Any]:
    """Return the values of a record's fields."""
    if isinstance(thing, Enum):
        return (thing.value,)
    if isinstance(thing, tuple):
        return thing
    own = getattr(thing, "__dict__", None)
    if own is not None and not own.keys() <= set(record.fields):
        raise StateError(
            f"{record.name} has more than its fields: {', '.join(own.keys() - {*record.fields})}"
        )
    return (getattr(thing, name) for name in record.fields)


def _pairs(thing: dict[Any, Any]) -> Iterable[Any]:
    return chain.from_iterable(thing.items())


def _default_pairs(thing: defaultdict[Any, Any]) -> Iterator[Any]:
    name = getattr(thing.default_factory, "__name__", "")
    if FACTORIES.get(name) is not thing.default_factory:
        raise StateError(f"a defaultdict of {name} is nothing that is kept")
    yield name
    yield from _pairs(thing)


_WRITERS: Final[Mapping[type, Callable[[Any], Iterable[Any]]]] = {
    frozenset: iter,
    list: iter,
    set: iter,
    bytearray: lambda thing: (bytes(thing),),
    OrderedDict: _pairs,
    Counter: _pairs,
    defaultdict: _default_pairs,
}


class _Reader:
    """Turns entries into objects; mutable objects are first made empty, so that they may hold one another."""

    def __init__(self, kinds: list[list[Any]], entries: list[list[Any]]) -> None:
        self._kinds = kinds
        self._entries = entries
        self._things: dict[int, Any] = {}
        self._empty: list[int] = []

    def thing(self, place: int) -> Any:
        found = self._made(place)
        while self._empty:
            self._fill(self._empty.pop())
        return found

    def _value(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        first, *rest = value
        return tuple(map(self._value, rest)) if first == TUPLE else self._made(first)

    def _held(self, values: list[Any]) -> Iterator[Any]:
        """Yield the items of a collection."""
        for value in values:
            if type(value) is list and value[0] == MANY:
                _, width, *flat = value
                flat = list(map(self._value, flat))
                count = len(flat) // width
                yield from zip(*(flat[at : at + count] for at in range(0, len(flat), count)), strict=True)
            else:
                yield self._value(value)

    def _made(self, place: int) -> Any:
        """Return the object of an entry; a mutable one may still be empty."""
        if place in self._things:
            return self._things[place]
        kind, *values = self._entries[place]
        name = self._kinds[kind][0]
        if name in _EMPTY:
            found = _EMPTY[name](values)
            self._empty.append(place)
        elif name == "frozenset":
            found = frozenset(self._held(values))
        else:
            record = records().get(name)
            if record is None:
                raise StateError(f"{name} is nothing that is kept")
            if record.is_whole:
                found = self._whole(record, kind, values)
            else:
                found = object.__new__(record.kind)
                self._empty.append(place)
        self._things[place] = found
        return found

    def _whole(self, record: Record, kind: int, values: list[Any]) -> Any:
        if issubclass(record.kind, Enum):
            return record.kind(self._value(values[0]))
        held = dict(self._fields(record, kind, values))
        if not is_dataclass(record.kind):
            return record.kind(*(held[name] for name in record.fields))
        found = object.__new__(record.kind)
        for name, value in held.items():
            object.__setattr__(found, name, value)
        return found

    def _fields(self, record: Record, kind: int, values: list[Any]) -> Iterator[tuple[str, Any]]:
        """Yield the record's fields with their values, whatever fields it had when it was kept."""
        names = self._kinds[kind][1:]
        kept = dict(zip(names, values, strict=True))
        for name in record.fields:
            if name in kept:
                yield name, self._value(kept[name])
            elif (record.name, name) in DEFAULTS:
                yield name, DEFAULTS[record.name, name]()
            else:
                raise StateError(f"a {record.name} of another version, of which nothing says its {name}")

    def _fill(self, place: int) -> None:
        kind, *values = self._entries[place]
        name, found = self._kinds[kind][0], self._things[place]
        if name in ("list", "set", "deque"):
            held = self._held(values[1:] if name == "deque" else values)
            found.update(held) if name == "set" else found.extend(held)
        elif name == "bytearray":
            found += values[0]
        elif name == MAP:
            every = list(self._held(values))
            half = len(every) // 2
            found.update(zip(every[:half], every[half:], strict=True))
        elif name in _EMPTY:
            held = self._held(values[1:] if name == "defaultdict" else values)
            for key in held:
                found[key] = next(held)
        else:
            for field, value in self._fields(records()[name], kind, values):
                setattr(found, field, value)


_EMPTY: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "list": lambda _: [],
    "set": lambda _: set(),
    "deque": lambda values: deque(maxlen=values[0]),
    "bytearray": lambda _: bytearray(),
    "dict": lambda _: {},
    MAP: lambda _: {},
    "OrderedDict": lambda _: OrderedDict(),
    "Counter": lambda _: Counter(),
    "defaultdict": lambda values: defaultdict(FACTORIES[values[0]]),
}
