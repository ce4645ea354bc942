"""Objects that runs keep for later runs, in Parquet files next to the tables; state.py has their form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from mqproto.captures.pipeline.kept.state import StateError, decoded, encoded
from mqproto.captures.pipeline.tables.parts import Part, Store, TablesError, parquet_table

T = TypeVar("T")

SAVED: Final = pa.schema([("bucket", pa.int64()), ("object", pa.large_binary())])
"""The columns of saved objects.

bucket: the hash of the object's key, for readers that need only some of the objects.
"""


def save(store: Store, name: str, objects: Iterable[tuple[int, object]]) -> Part:
    """Write objects, each with its bucket.

    Args:
        name: the name of the part.
    """
    rows = [(bucket, encoded(each)) for bucket, each in objects]
    arrays = [
        pa.array([bucket for bucket, _ in rows], pa.int64()),
        pa.array([data for _, data in rows], pa.large_binary()),
    ]
    return store.write_part(name, pa.table(arrays, schema=SAVED))


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
