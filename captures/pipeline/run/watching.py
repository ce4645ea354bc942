"""Folders that captures are added to, watched: what is complete goes into the tables, batch by batch.

Structured Streaming says what is new, and asks again for what was not finished. A run of `analyse` puts it into the
tables, as a whole or not at all, and knows by content what it has put there. So each capture counts once, whenever
this program or its Java is killed.
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
from mqproto.captures.decode.names import Names
from mqproto.captures.pipeline.engines.engine import Engine
from mqproto.captures.pipeline.run.job import Result, analyse
from mqproto.captures.pipeline.source.arrivals import SETTLE_S
from mqproto.captures.pipeline.source.files import RANGE_BYTES
from mqproto.captures.pipeline.tables.parts import HIDDEN
from mqproto.captures.pipeline.tables.tables import Tables

CHECKPOINT: Final = f"{HIDDEN}checkpoint"
INTERVAL_S: Final = 10
"""How often the folders are looked at."""
LOOK_S: Final = 1
"""How often Ctrl-C is looked for."""


def watch(
    spark: SparkSession,
    folders: Sequence[str],
    tables: Tables,
    engine: Engine,
    told: Callable[[Result], None],
    *,
    names: Names | None = None,
    range_bytes: int = RANGE_BYTES,
    body_texts: bool = False,
    keys: Sequence[str] = (),
    settle_s: int = SETTLE_S,
    interval_s: int = INTERVAL_S,
) -> None:
    """Read what comes to folders into tables, until somebody presses Ctrl-C; then what was begun is given up.

    Args:
        told: what each batch has come to.
        names: what queue managers and queues are called.
        range_bytes: how much of a file one task reads.
        body_texts, keys: as for `analyse`.
        settle_s: for how long nothing has been written to a file that is complete and the last of its series.
        interval_s: between one look into the folders and the next; `settle_s` if that is less.

    Raises:
        UsageError: there is no such folder.
        MqprotoError, OSError: as `analyse`.
    """
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder} is no folder: --watch waits for what comes to one")
    watched = json.dumps(sorted(str(Path(folder).absolute()) for folder in folders))
    # How far one set of folders was seen says nothing of another.
    place = tables.store.folder or Path(tempfile.gettempdir()) / "mqproto" / digest(tables.folder)
    seen = place / CHECKPOINT / digest(watched)
    failed: list[Exception] = []

    def add(batch: DataFrame, _number: int) -> None:
        paths = [row.file for row in batch.collect()]
        try:
            told(
                analyse(
                    paths,
                    tables,
                    engine,
                    names=names,
                    range_bytes=range_bytes,
                    body_texts=body_texts,
                    keys=keys,
                )
            )
        except Exception as error:
            failed.append(error)  # What comes back from Java is a text.
            raise

    reader = spark.readStream.format("mqproto").option("rows", "files").option("columns", "file")
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
    """A name for what has a long one."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether somebody has pressed it in the block; the second time it does what it did before."""
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
    """A logger that says nothing in the block, as what it says is raised, too."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
