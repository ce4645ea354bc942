"""What a series has come to, kept among the tables, so that it may grow.

A rotating capture goes on from file to file. What is known at the end of its last one is where the next begins:
connections that are open, packets that wait for fragments, how much there was. So files that are added to a series
are read without those before them, and the tables are what they would be had all been read at once. What only the end
lets be read, as no earlier bytes can come any more, is in a part of its own, which the next run replaces.

It lies in the folder `_state`: of each series one file with a `Growth`, one with the frames that connections begin
with, and some with `captures.pipeline.seams.OpenPair`s. They hold pickled objects of our own classes and no others.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from captures.frame import NANOSECONDS
from captures.packets import Totals
from captures.pipeline.files import CaptureFile
from captures.pipeline.reading import Place
from captures.pipeline.seams import OpenPair
from captures.pipeline.tables import HIDDEN, Part, TablesError, write_part

FORM: Final = 2
"""To be raised when a class changes of which objects are saved. Of another form nothing is used: then a series that
has grown is read again as a whole."""
FOLDER: Final = f"{HIDDEN}state"
SAVED: Final = pa.schema([("bucket", pa.int64()), ("object", pa.large_binary())])
"""bucket: the hash of what the object is about, for those who want some of them only."""
CONNECTIONS: Final = pa.schema([("first_frame", pa.int64())])
SILENT_NS: Final = 24 * 3600 * NANOSECONDS
"""Two ends that have said nothing for so long are taken to have parted, so that what is saved of a capture that never
ends does not grow with it. If they speak again, that is another connection."""
OTHER_CLASSES: Final = frozenset(
    {("collections", "Counter"), ("collections", "OrderedDict"), ("collections", "deque")}
)
OUR_PACKAGES: Final = ("captures", "mqproto")


@dataclass(slots=True)
class Growth:
    """A series at the end of its last file; without arguments, one that has none.

    files: all of them. frames_before: of each, in those before it.
    places: of the last ranges, as many as may be read again. last_ns: of each, when its last frame was caught.
    range_count: how many there were. frames, rows, framed: in them, without what only the end lets be read.
    totals: of what is over.
    waiting: what waits for fragments before some of `places`, and before the next one; pickled, by their numbers.
    """

    files: tuple[CaptureFile, ...] = ()
    frames_before: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    last_ns: tuple[int, ...] = ()
    range_count: int = 0
    frames: int = 0
    rows: int = 0
    framed: int = 0
    totals: Totals = field(default_factory=Totals)
    waiting: dict[int, bytes] = field(default_factory=dict)

    def pickled(self) -> bytes:
        """As it is saved."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


def save(folder: Path, name: str, objects: Iterable[tuple[int, bytes]]) -> Part:
    """Write pickled objects, each with its bucket.

    Args:
        folder: `Run.folder`.
        name: of the part, without its folder.
    """
    rows = list(objects)
    arrays = [
        pa.array([bucket for bucket, _ in rows], pa.int64()),
        pa.array([pickled for _, pickled in rows], pa.large_binary()),
    ]
    return write_part(folder, f"{FOLDER}/{name}", pa.table(arrays, schema=SAVED))


def saved_growth(path: Path) -> Growth:
    """What a run has saved of a series.

    Raises:
        TablesError: the file cannot be read, or holds something else.
    """
    try:
        (pickled,) = pq.read_table(path, partitioning=None)["object"]
        growth = loads(pickled.as_buffer())
    except Exception as error:  # Whatever Parquet or pickle make of other bytes.
        raise TablesError(f"{path} is damaged, analyse the captures into another folder: {error}") from None
    if not isinstance(growth, Growth):
        raise TablesError(f"{path} holds no series: analyse the captures into another folder")
    return growth


def saved_pairs(paths: Sequence[str], bucket: int, buckets: int) -> Iterator[OpenPair]:
    """The open pairs of a bucket."""
    for path in paths:
        table = pq.read_table(path, partitioning=None)
        for hashed, pickled in zip(table["bucket"].to_pylist(), table["object"], strict=True):
            if hashed % buckets == bucket:
                yield loads(pickled.as_buffer())


class _Unpickler(pickle.Unpickler):
    """Makes objects of our own classes, and a few collections: a folder of tables may come from anywhere."""

    def find_class(self, module: str, name: str) -> Any:
        found = None
        if (module, name) in OTHER_CLASSES or module.partition(".")[0] in OUR_PACKAGES:
            found = getattr(import_module(module), name, None)
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"{module}.{name} is nothing that is saved here")
        return found


def loads(pickled: Any) -> Any:
    """An object that was saved.

    Raises:
        pickle.UnpicklingError: it is of a class that is not.
    """
    return _Unpickler(io.BytesIO(pickled)).load()
