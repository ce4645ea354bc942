"""A small job, for tests of how jobs are distributed: count what samples hold, and say where that was done.

As a program, `census.py FOLDER LOG MASTER KILL` prints it as JSON. Without MASTER it is for spark-submit; KILL has the
executor that comes to the second sample die there, the first time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from captures.pipeline.progress import reported
from captures.pipeline.session import spark_session

SAMPLES = ("express-pair", "gap-held", "resent", "window")
SCHEMA = "sample string, packets long, digest string, executor long, attempt long, code string, needs string"


def census(spark: SparkSession, folder: Path, *, kill: bool = False) -> list[dict[str, Any]]:
    """For each sample what is in it, which process counted, and where that had our code from."""
    names = SAMPLES
    paths = [str(folder / f"{name}.pcapng") for name in names]

    with reported(spark, "counting", len(names)) as tally:

        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from hashlib import sha256

            import construct

            import captures
            from captures.packets import read_packets

            task = TaskContext.get()
            assert task is not None
            # A worker is a fork of a daemon, and the executor has started that.
            stat = Path(f"/proc/{os.getppid()}/stat").read_text()
            executor = int(stat.rpartition(")")[2].split()[1])
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    if kill and number == 1 and task.attemptNumber() == 0:
                        os.kill(executor, signal.SIGKILL)
                    packets = [packet.data for packet in read_packets(paths[number])]
                    tally.add(ranges=1, packets=len(packets), size_bytes=sum(map(len, packets)))
                    row = {
                        "sample": names[number],
                        "packets": len(packets),
                        "digest": sha256(b"".join(packets)).hexdigest(),
                        "executor": executor,
                        "attempt": task.attemptNumber(),
                        "code": captures.__file__,
                        "needs": construct.__file__,
                    }
                    yield pa.RecordBatch.from_pylist([row])

        table = spark.range(0, len(names), 1, len(names)).mapInArrow(count, SCHEMA)
        return sorted((row.asDict() for row in table.collect()), key=lambda row: str(row["sample"]))


if __name__ == "__main__":
    samples, log, *more = sys.argv[1:]
    settings = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"} if more else None
    with spark_session(more[0] if more else None, log=Path(log), settings=settings) as session:
        print(json.dumps(census(session, Path(samples), kill="KILL" in more)))
