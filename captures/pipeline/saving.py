"""Objects that runs keep among the tables for later ones.

They are pickled, of our own classes and no others: a folder of tables may come from anywhere. One Python reads what
another wrote.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from enum import Enum
from importlib import import_module
from typing import Any, Final, TypeVar

import pyarrow as pa

from captures.pipeline.parts import Part, Store, TablesError, parquet_table

T = TypeVar("T")

SAVED: Final = pa.schema([("bucket", pa.int64()), ("object", pa.large_binary())])
"""bucket: the hash of what the object is about, for those who want some of them only."""
OTHER_CLASSES: Final = frozenset(
    {
        ("builtins", "list"),
        *(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
    }
)
OUR_PACKAGES: Final = ("captures", "mqproto")
PROTOCOL: Final = 5
"""What every Python that we run on reads; a later one may have a higher."""


class _Pickler(pickle.Pickler):
    """Writes each member of an enumeration as its class, called with its value.

    That is what Pythons do by themselves from 3.11.4 on. Before, they had `getattr` called with its name, and who
    calls that for a stranger calls anything.
    """

    def reducer_override(self, thing: object) -> Any:
        return (type(thing), (thing.value,)) if isinstance(thing, Enum) else NotImplemented


def pickled(thing: object) -> bytes:
    """As it is saved, the same on every Python."""
    written = io.BytesIO()
    _Pickler(written, PROTOCOL).dump(thing)
    return written.getvalue()


def save(store: Store, name: str, objects: Iterable[tuple[int, bytes]]) -> Part:
    """Write pickled objects, each with its bucket.

    Args:
        name: of the part.
    """
    rows = list(objects)
    arrays = [
        pa.array([bucket for bucket, _ in rows], pa.int64()),
        pa.array([pickled for _, pickled in rows], pa.large_binary()),
    ]
    return store.write_part(name, pa.table(arrays, schema=SAVED))


def saved(path: str, kind: type[T]) -> T:
    """The one object that a run has saved in a file.

    Raises:
        TablesError: the file cannot be read, or holds something else.
    """
    try:
        (pickled,) = parquet_table(path)["object"]
        found = loads(pickled.as_buffer())
    except Exception as error:  # Whatever Parquet or pickle make of other bytes.
        raise TablesError(f"{path} is damaged, analyse the captures into another folder: {error}") from None
    if not isinstance(found, kind):
        raise TablesError(f"{path} holds no {kind.__name__}: analyse the captures into another folder")
    return found


class _Unpickler(pickle.Unpickler):
    """Makes objects of our own classes, and a few collections."""

    def find_class(self, module: str, name: str) -> Any:
        found = None
        if (module, name) in OTHER_CLASSES or module.partition(".")[0] in OUR_PACKAGES:
            found = getattr(import_module(module), name, None)
        # A class that a module of ours imports stays that of its own module, whatever it would do when it is called.
        if not isinstance(found, type) or found.__module__ != module:
            raise pickle.UnpicklingError(f"{module}.{name} is nothing that is saved here")
        return found


def loads(pickled: Any) -> Any:
    """An object that was saved.

    Raises:
        pickle.UnpicklingError: it is of a class that is not.
    """
    return _Unpickler(io.BytesIO(pickled)).load()
