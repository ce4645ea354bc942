"""What the tasks of one stage hand to those of the next: rows in buckets, by way of files in the folder of the run.

A task writes one file with a batch for each bucket; a task of the next stage reads its bucket out of every file. So no
row crosses from Python into Java and back, a repeated task writes the same file again, and what a lost executor had
done is still there. All executors see the folder; that is where the tables go, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from captures.pipeline.whole import whole

PACKED: Final = pa.ipc.IpcWriteOptions(compression="lz4")
"""A packet leaves 2.3 kB on its way through all stages, and a sixth of that so: of large captures it goes to the disk
and back, which takes longer than to unpack it."""
_BUCKETS: Final = b"buckets"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows on their way from one stage to the next.

    Args:
        folder: of the run; seen by all executors.
        name: of the stage that writes.
    """

    folder: Path
    name: str

    def put(self, task: int, batches: Mapping[int, pa.RecordBatch]) -> None:
        """Write what one task has for each bucket, whole or not at all.

        Args:
            task: its number in the stage. What it wrote before is replaced.
            batches: by bucket; all of one schema. There may be none.
        """
        filled = {bucket: batch for bucket, batch in sorted(batches.items()) if batch.num_rows}
        schema = next(iter(filled.values())).schema if filled else pa.schema([])
        told = {_BUCKETS: ",".join(map(str, filled)).encode()}
        self.put_all(task, schema.with_metadata(told), filled.values())

    def put_all(self, task: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write what one task has for the one task that reads it all, whole or not at all.

        Args:
            task: as for `put`.
            batches: made one by one, as each is in the file before the next is asked for.
        """
        with whole(self._path(task)) as path, pa.ipc.new_file(path, schema, options=PACKED) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def take(self, bucket: int, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The rows of one bucket, task by task in their order; tasks that had none for it are left out."""
        for task in tasks:
            with pa.memory_map(os.fspath(self._path(task))) as file:
                reader = pa.ipc.open_file(file)
                buckets = [int(each) for each in reader.schema.metadata[_BUCKETS].split(b",") if each]
                if bucket in buckets:
                    yield reader.get_batch(buckets.index(bucket))

    def everything(self, task: int) -> list[pa.RecordBatch]:
        """What one task has put, in its order or that of the buckets."""
        with pa.memory_map(os.fspath(self._path(task))) as file:
            reader = pa.ipc.open_file(file)
            return [reader.get_batch(index) for index in range(reader.num_record_batches)]

    def drop(self) -> None:
        """Delete it: all stages that take from it are over. A large capture has many times its size on the way."""
        shutil.rmtree(self.folder / self.name, ignore_errors=True)

    def _path(self, task: int) -> Path:
        return self.folder / self.name / f"{task:06d}.arrow"
