"""Runs stages on this machine without Java: in this process, or in a pool of processes.

Rows in transit are in files of a temporary folder, one file for each task that has sent rows.
"""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

import pyarrow as pa

from mqproto.captures import pools
from mqproto.captures.pipeline.engines.engine import (
    Engine,
    Entry,
    Function,
    Inbox,
    Outbox,
    buckets_of,
    collecting_seldom,
    pickled,
    spare_modules,
)
from mqproto.captures.pipeline.engines.failures import JobError, TaskError, naming
from mqproto.captures.pipeline.engines.progress import Listener, Progress, nobody

T = TypeVar("T")
R = TypeVar("R")

PRELOADED: Final = ("mqproto.captures.pipeline.run.job",)
"""The modules that are imported by the process from which the pool's processes are forked."""
PATIENCE_S: Final = 1.0
"""The time, in seconds, that it takes to import the preloaded modules."""


class Sent(NamedTuple):
    """The rows that one task has sent: a file, and its batches."""

    path: str
    entries: list[Entry]


class Done(NamedTuple):
    """The outcome of a task: its result, and the batches that it has sent."""

    result: Any
    entries: list[Entry]


Waiting = list[tuple[int, str, Entry]]
"""Batches for one task, in order, each with the place of its exchange and with the file that holds it."""


class _Work(NamedTuple):
    """What the tasks of one stage share.

    waiting: the batches for each bucket.
    folder: the folder for the rows that tasks send.
    """

    function: Function[Any, Any]
    reads: Sequence[str]
    waiting: Mapping[int, Waiting]
    folder: Path


class LocalEngine(Engine):
    """Runs tasks in this process at first, and later also in a pool.

    This process works alone for as long as a pool takes to start. Only then is a pool started.

    Args:
        processes: the size of the pool; with one, this process does all the work.
        listener: is called with the progress of each stage.
        patience_s: how long this process works alone.
    """

    def __init__(
        self, processes: int = 1, listener: Listener = nobody, *, patience_s: float = PATIENCE_S
    ) -> None:
        super().__init__()
        self._alone_until_s = time.monotonic() + patience_s
        self._processes = processes
        self._listener = listener
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pool: ProcessPoolExecutor | None = None
        self._stages = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()
        if self._pool is not None:
            # The pool has received Ctrl-C as well; of any other failure its tasks know nothing.
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _run(
        self,
        stage: str,
        function: Function[T, R],
        tasks: Mapping[int, T],
        reads: Sequence[str],
        *,
        puts: bool,
    ) -> tuple[list[R], list[Sent], list[dict[str, set[int]]]]:
        """See Engine.

        Raises:
            JobError: a task failed; the text names the task and the reason.
        """
        self._stages += 1
        folder = self._folder_now() / f"{self._stages:04d}"
        folder.mkdir()
        work = _Work(function, reads, self._waiting(reads), folder)
        try:
            done = list(self._carried_out(stage, work, tasks))
        except TaskError as error:
            raise JobError(f"the job failed: {error}") from error
        except BrokenProcessPool:
            raise JobError(
                "the job failed: a process of ours was killed, perhaps as memory ran out"
            ) from None
        assert puts or not any(each.entries for each in done), f"{stage}: puts nothing"
        sent = [
            Sent(str(folder / str(bucket)), each.entries) for bucket, each in zip(tasks, done, strict=True)
        ]
        return [each.result for each in done], sent, [buckets_of(each.entries) for each in sent]

    def clear(self) -> None:
        """See Engine; also delete the folder."""
        super().clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _free(self, held: list[Sent]) -> None:
        for each in held:
            Path(each.path).unlink(missing_ok=True)

    def _folder_now(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mqproto-rows-")
        return Path(self._folder.name)

    def _waiting(self, reads: Sequence[str]) -> dict[int, Waiting]:
        """Return the batches that wait for each bucket."""
        places = {exchange: place for place, exchange in enumerate(reads)}
        found: defaultdict[int, Waiting] = defaultdict(list)
        for output in self._outputs:
            for sent in output.held:
                for entry in sent.entries:
                    if entry.exchange in places and entry.source not in output.gone:
                        found[entry.bucket].append((places[entry.exchange], sent.path, entry))
        for some in found.values():
            some.sort(key=lambda each: (each[0], each[2].source, each[2].order))
        return found

    def _carried_out(self, stage: str, work: _Work, tasks: Mapping[int, T]) -> Iterator[Done]:
        self._listener(Progress(stage, 0, len(tasks)))
        for number, done in enumerate(self._every(work, list(tasks.items())), 1):
            self._listener(Progress(stage, number, len(tasks)))
            yield done

    def _every(self, work: _Work, tasks: Sequence[tuple[int, T]]) -> Iterator[Done]:
        """Yield the outcomes of the tasks, in order."""
        for number, (bucket, task) in enumerate(tasks):
            is_worth_it = self._pool is not None or time.monotonic() >= self._alone_until_s
            if self._processes > 1 and is_worth_it and len(tasks) - number > 1:
                yield from self._in_pool(work, tasks[number:])
                return
            waiting = work.waiting.get(bucket, [])
            yield _carry_out(work.function, task, bucket, work.reads, waiting, work.folder)

    def _in_pool(self, work: _Work, tasks: Sequence[tuple[int, T]]) -> Iterator[Done]:
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(PRELOADED))
            self._pool = ProcessPoolExecutor(self._processes, context, _begin)
        stage = work.folder / "stage"
        stage.write_bytes(pickled((work.function, work.reads)))
        futures = [
            self._pool.submit(_in_process, str(stage), task, bucket, work.waiting.get(bucket, []))
            for bucket, task in tasks
        ]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _begin() -> None:
    """Prepare a new process of the pool."""
    spare_modules()
    pools.begin()


def _in_process(stage: str, task: Any, bucket: int, waiting: Waiting) -> Done:
    """Run one task in a process of the pool."""
    function, reads = _stage(stage)
    return _carry_out(function, task, bucket, reads, waiting, Path(stage).parent)


@lru_cache(maxsize=1)
def _stage(path: str) -> tuple[Function[Any, Any], Sequence[str]]:
    """Return the function and the exchanges that the tasks of a stage share."""
    function, reads = pickle.loads(Path(path).read_bytes())
    return function, reads


def _carry_out(
    function: Function[T, R], task: T, bucket: int, reads: Sequence[str], waiting: Waiting, folder: Path
) -> Done:
    path = folder / str(bucket)
    with naming(str(task)), collecting_seldom(), path.open("wb") as file:
        outbox = Outbox(bucket, file)
        result = function(task, Inbox(reads, _batches(waiting)), outbox)
    if not outbox.entries:
        path.unlink()
    return Done(result, outbox.entries)


def _batches(waiting: Waiting) -> Iterator[tuple[int, Any]]:
    """Yield batches of other tasks, still packed; data from a file stays in memory only while in use."""
    path, mapped = "", None
    for place, source, entry in waiting:
        if source != path or mapped is None:
            path, mapped = source, pa.memory_map(source)
        mapped.seek(entry.offset)
        yield place, mapped.read_buffer(entry.size)
