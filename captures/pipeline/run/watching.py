"""Watches folders for new captures: complete ones go into the tables, batch by batch.

Structured Streaming reports new files, and repeats those of unfinished batches. A run of `analyse` puts either all or
none of them into the tables, and recognizes by content the files that are already there. So each capture counts once,
even if this program or its Java process is killed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from mqproto.base.errors import UsageError
from mqproto.captures.pipeline.engines.engine import Engine
from mqproto.captures.pipeline.run.job import DEFAULT, Result, Wanted, analyse
from mqproto.captures.pipeline.source.arrivals import SETTLE_S
from mqproto.captures.pipeline.tables.parts import HIDDEN
from mqproto.captures.pipeline.tables.tables import Tables

CHECKPOINT: Final = f"{HIDDEN}watched"
INTERVAL_S: Final = 10
"""The time, in seconds, between two searches of the folders."""
LOOK_S: Final = 1
"""The time, in seconds, between two checks for Ctrl-C."""


def watch(
    spark: SparkSession,
    folders: Sequence[str],
    tables: Tables,
    engine: Engine,
    told: Callable[[Result], None],
    wanted: Wanted = DEFAULT,
    *,
    settle_s: int = SETTLE_S,
    interval_s: int = INTERVAL_S,
) -> None:
    """Read new captures in folders into tables until Ctrl-C, which abandons unfinished work.

    Args:
        told: is called with the result of each batch.
        settle_s: the last file of a series is complete after this many seconds without a write.
        interval_s: the time between two searches of the folders; `settle_s` if that is shorter.

    Raises:
        UsageError: a folder does not exist.
        MqprotoError, OSError: as for `analyse`.
    """
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder} is not a folder: --watch waits for what comes to one")
    watched = json.dumps(sorted(str(Path(folder).absolute()) for folder in folders))
    # The progress on one set of folders says nothing about another set.
    place = tables.store.folder or Path(tempfile.gettempdir()) / "mqproto" / digest(tables.folder)
    seen = place / CHECKPOINT / digest(watched)
    failed: list[Exception] = []

    def add(batch: DataFrame, _number: int) -> None:
        paths = [row.file for row in batch.collect()]
        try:
            told(analyse(paths, tables, engine, wanted))
        except Exception as error:
            failed.append(error)  # Java turns it into a text.
            raise

    reader = spark.readStream.format("mqproto").option("rows", "files").schema("file string")
    reader = reader.option("settleSeconds", str(settle_s)).option("paths", watched)
    with _ctrl_c() as is_pressed, _silent("py4j.clientserver"):
        query = (
            reader.load()
            .writeStream.foreachBatch(add)
            .option("checkpointLocation", str(seen))
            .trigger(processingTime=f"{min(interval_s, settle_s)} seconds")
            .start()
        )
        try:
            while not is_pressed() and not query.awaitTermination(LOOK_S):
                pass
            query.stop()
        except Exception:
            if failed:
                raise failed[0] from None
            raise


def digest(text: str) -> str:
    """Return a short name for a long one."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed in the block; a second press acts as before."""
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, _frame: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Silence a logger in the block, because its messages are also raised."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
