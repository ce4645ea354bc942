"""Objects that runs keep for later runs, in Parquet files next to the tables.

An object is kept as JSON: a list of entries that point at one another, because its parts may be shared. An entry is a
collection, or an object of one of CLASSES with its fields. No code chosen by a stranger is called: a folder of tables
may come from anywhere. If one of these classes changes, `growth.FORM` or `checkpoint.FORM` must be raised. Kept data is
then not used: captures are read again, or packets are judged again.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa

from mqproto.base.errors import MqprotoError
from mqproto.captures.pipeline.tables.parts import Part, Store, TablesError, parquet_table

T = TypeVar("T")

PLAIN: Final = frozenset({type(None), bool, int, float, str})
COLLECTIONS: Final = (list, set, deque, bytearray, dict)
CLASSES: Final = {
    "builtins": "bytearray bytes dict list set tuple",
    "collections": "Counter OrderedDict defaultdict deque",
    "mqproto.base.errors": "WireFormatError",
    "mqproto.captures.decode.facts": "Acknowledgment SessionFacts",
    "mqproto.captures.decode.findings": "Finding Severity",
    "mqproto.captures.decode.names": "Names",
    "mqproto.captures.decode.ranges": "BoundedRanges",
    "mqproto.captures.decode.sequences.checker": "SequenceChecker",
    "mqproto.captures.decode.sequences.progress": "Gap HighMark HopProgress",
    "mqproto.captures.decode.sequences.sequence": "Claim Said Sequence",
    "mqproto.captures.decode.sessions.checker": "SessionChecker",
    "mqproto.captures.decode.sessions.connections": "Connection Connections Stage",
    "mqproto.captures.decode.sessions.half": "Half Sent Step",
    "mqproto.captures.decode.sight": "Acknowledged Kind",
    "mqproto.captures.decode.ways": "Hole Lack Sending Silence Span Ways",
    "mqproto.captures.files.frame": "Frame Interface",
    "mqproto.captures.files.pcapng": "Clock Section Source",
    "mqproto.captures.framing": "Framing Guess Mark StreamCount",
    "mqproto.captures.net.causality": "View",
    "mqproto.captures.net.conversation": "Side",
    "mqproto.captures.net.direction": "Chunk Early Ending InPlace Stream",
    "mqproto.captures.net.ip": "IpReader _Partial",
    "mqproto.captures.net.recent": "Contradiction Held Recent",
    "mqproto.captures.net.sender": "Sender Waiting",
    "mqproto.captures.net.streams": "Connection",
    "mqproto.captures.net.taps": "Half",
    "mqproto.captures.net.tcp": "Endpoint Segment",
    "mqproto.captures.packets": "Totals",
    "mqproto.captures.pipeline.reading.growth": "Growth",
    "mqproto.captures.pipeline.reading.packets.flows": "OpenPair",
    "mqproto.captures.pipeline.source.files": "CaptureFile",
    "mqproto.captures.pipeline.stages.messages.histories": "Outcome",
    "mqproto.captures.pipeline.stages.sequences.sequence_counts": "HopCount OrderRow SequenceCount Unconfirmed",
    "mqproto.captures.pipeline.stages.sequences.sequences": "SequenceStage",
    "mqproto.captures.pipeline.stages.sessions.directory": (
        "Directory FirstHop Introduction Learners Remembered _Learner"
    ),
    "mqproto.captures.pipeline.stages.sessions.sessions": "SessionStage _Count _Series _Session",
    "mqproto.captures.pipeline.stages.tasks.checkpoint": "Past",
    "mqproto.captures.translation": "Between Translation",
    "mqproto.wire.buffer": "PacketBuffer",
    "mqproto.wire.classes": "MessageClass",
    "mqproto.wire.layouts.session": "SessionHeader",
    "mqproto.wire.layouts.transaction": "TxSequenceId",
}
"""The classes of objects that are kept, by module."""


class StateError(MqprotoError):
    """The data does not come from a run, or comes from a version that cannot be read."""


def encoded(thing: object) -> bytes:
    """Return an object in the form in which it is kept.

    Raises:
        StateError: the class of something in it is not in CLASSES.
    """
    kinds: dict[tuple[str, ...], int] = {}
    places: dict[int, int] = {}
    things: list[Any] = []

    def value(each: Any) -> Any:
        """Return a plain value as it is, an immutable one with its contents, and others by place."""
        kind: Any = type(each)
        if kind in PLAIN:
            return each
        if kind is bytes:
            return [-1 - code(kind), b64encode(each).decode()]
        if issubclass(kind, (tuple, Enum, Exception)):
            held = each.args if isinstance(each, Exception) else each
            held = [each.value] if isinstance(each, Enum) else held
            return [-1 - code(kind), *(each if type(each) in PLAIN else value(each) for each in held)]
        place = places.setdefault(id(each), len(things))
        if place == len(things):
            things.append(each)
        return [place]

    def column(held: Iterable[Any]) -> Any:
        """Return the values of some objects; tuples of equal size are joined into one flat list.

        There may be a million tuples of numbers.
        """
        some = [*held]
        if {*map(type, some)} == {tuple} and some[0] and len({*map(len, some)}) == 1:
            return {"width": len(some[0]), "flat": column(chain.from_iterable(some))}
        # Most are plain, and there may be millions.
        return [each if type(each) in PLAIN else value(each) for each in some]

    def code(kind: type, *fields: str) -> int:
        return kinds.setdefault((_name(kind), *fields), len(kinds))

    def entry(each: Any) -> list[Any]:
        if getattr(each, "default_factory", list) is not list:
            raise StateError("a defaultdict of something else than lists is nothing that is kept")
        match each:
            case dict():
                return [code(type(each)), column(each), column(each.values())]
            case list() | set():
                return [code(type(each)), column(each)]
            case deque():
                return [code(deque), column(each), [each.maxlen]]
            case bytearray():
                return [code(bytearray), [value(bytes(each))]]
        kind: type = type(each)
        fields = (*_slots(kind), *getattr(each, "__dict__", ()))
        return [code(kind, *fields), column(getattr(each, field) for field in fields)]

    found = value(thing)
    entries = [entry(each) for each in things]  # Their number grows meanwhile.
    return json.dumps([[*kinds], entries, found], separators=(",", ":")).encode()


def decoded(data: bytes | memoryview, kind: type[T]) -> T:
    """Rebuild an object that was kept.

    Raises:
        StateError: these bytes were not kept by a run, or hold something else.
    """
    try:
        found = _decoded(*json.loads(bytes(data)))
    except StateError:
        raise
    except Exception as error:  # Whatever other bytes lead to.
        raise StateError(" ".join(f"it is damaged: {error}".split())) from None
    if not isinstance(found, kind):
        raise StateError(f"it holds no {kind.__name__}")
    return found


def _decoded(kinds: list[list[str]], entries: list[list[Any]], found: Any) -> Any:
    classes = [_class(name) for name, *_ in kinds]
    # All are first made empty, so that they may hold one another.
    things = [
        deque(maxlen=held[1][0]) if classes[kind] is deque else classes[kind].__new__(classes[kind])
        for kind, *held in entries
    ]

    def value(each: Any) -> Any:
        if type(each) is not list:
            return each
        place, *held = each
        if place >= 0:
            return things[place]
        whole = classes[-1 - place]
        if whole is bytes:
            return b64decode(each[1], validate=True)
        if not issubclass(whole, (tuple, Enum, Exception)):
            raise StateError(f"it is damaged: a {whole.__name__} in place of its number")
        return tuple(map(value, held)) if whole is tuple else whole(*map(value, held))

    def column(held: Any) -> Iterator[Any]:
        if isinstance(held, dict):
            innermost = held["flat"]
            while isinstance(innermost, dict):
                innermost = innermost["flat"]
            if (
                not 0 < held["width"] <= len(innermost)
            ):  # A stranger's number takes no more memory than there is data.
                raise StateError(f"it is damaged: {held['width']} fields")
            return zip(*[column(held["flat"])] * held["width"], strict=True)
        return map(value, held)

    # Collections come last, because they need the hashes of what they hold.
    for are_collections in (False, True):
        for thing, (kind, *held) in zip(things, entries, strict=True):
            if isinstance(thing, COLLECTIONS) is are_collections:
                _fill(thing, kinds[kind][1:], column(held[0]), column(held[-1]))
    return value(found)


def _fill(thing: Any, fields: list[str], held: Iterator[Any], others: Iterator[Any]) -> None:
    match thing:
        case dict():
            if isinstance(thing, defaultdict):
                thing.default_factory = list
            for key, other in zip(held, others, strict=True):
                thing[key] = other
        case set():
            thing.update(held)
        case list() | deque():
            thing.extend(held)
        case bytearray():
            thing.extend(next(held))
        case _:
            for field, value in zip(fields, held, strict=True):
                object.__setattr__(thing, field, value)


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(chain.from_iterable(getattr(each, "__slots__", ()) for each in kind.__mro__))


@cache
def _name(kind: type) -> str:
    """Return the name under which objects of a class are kept."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    if _class(name) is not kind:
        raise StateError(f"{name} is nothing that is kept")
    return name


@cache
def _class(name: str) -> type:
    module, _, kind = name.rpartition(".")
    if kind not in CLASSES.get(module, "").split():
        raise StateError(f"{name} is nothing that is kept")
    found: type = getattr(import_module(module), kind)
    return found


def save(store: Store, name: str, objects: Iterable[tuple[int, object]]) -> Part:
    """Write objects, each with its bucket: the hash of its key, for readers that need only some of the objects.

    Args:
        name: the name of the part.
    """
    rows = [(bucket, encoded(each)) for bucket, each in objects]
    columns = zip(*rows, strict=True) if rows else ((), ())
    kinds = (pa.int64(), pa.large_binary())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return store.write_part(name, pa.table(arrays, ["bucket", "object"]))


def saved(path: str, kind: type[T]) -> T:
    """Return the only object that a run has saved in a file.

    Raises:
        TablesError: the file cannot be read, or holds something else.
    """
    found = list(every_saved(path, kind))
    if len(found) != 1:
        raise TablesError(f"{path} holds no {kind.__name__}: analyse the captures into another folder")
    return found[0]


def every_saved(path: str, kind: type[T], bucket: int = 0, buckets: int = 1) -> Iterator[T]:
    """Yield the objects of a file that belong to a bucket.

    Raises:
        TablesError: the file cannot be read, or holds something else.
    """
    try:
        table = parquet_table(path)
        for hashed, data in zip(table["bucket"].to_pylist(), table["object"], strict=True):
            if hashed % buckets == bucket:
                yield decoded(memoryview(data.as_buffer()), kind)
    except (OSError, pa.ArrowException, KeyError, TypeError, StateError) as error:
        why = str(error).partition("\n")[0]
        raise TablesError(f"{path}: {why}; analyse the captures into another folder") from None
