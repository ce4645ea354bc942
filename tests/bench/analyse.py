"""`bench analyse`: how fast captures become tables, how much memory it takes, and how the cost grows.

All measurements are taken alternately in one run, after Spark has started and analyzed a small capture. So a busy
machine slows all of them alike. Every capture follows the protocol. Figures are given only if all packets of each
capture were read and nothing was found wrong. During the run, up to about three times the size of the largest capture
is written to the folder for temporary files.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqproto.base.errors import UsageError
from tests.bench.bulk import write_capture
from tests.bench.figures import BenchError, Figure, Options, Result, Told, in_turns
from tests.bench.watch import Taken, Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqproto.captures.pipeline.engines.engine import Engine

MASTER: Final = "local[2]"
USUAL_MB: Final = 218
QUICK_MB: Final = 22
WARM_UP_PACKETS: Final = 20_000
RANGE_BYTES: Final = 64 << 20
WARM_UP_RANGE_BYTES: Final = 1 << 20
"""The size of a range in the warm-up, in bytes. It is so small that every core's worker has something to do."""
MEGABYTE: Final = 10**6
PACKET_BYTES: Final = 724
"""The average size of a packet in the capture, in bytes."""
ROUNDS_MB: Final = 1_000
"""A size in megabytes: a smaller capture is analyzed repeatedly, until this much has been read."""
WANTED_PER_S: Final = {"source to header columns": 400_000, "table of packets": 200_000, "all tables": 50_000}
SOURCE, TABLE, WHOLE = WANTED_PER_S
WANTED_FLAT: Final = 1.5
LIMIT_BYTES: Final = 2 << 30
"""The limit on an executor's resident memory, in bytes.

It is 2 GiB for Java and its Python workers together, like `2g`.
"""
LAST_OF_TABLE: Final = "writing packets"
"""The stage whose end means that the table of packets is written."""


async def measure(options: Options, told: Told) -> Result:
    """Start Spark on two cores of this machine, and measure.

    Raises:
        BenchError: the tables are not as they should be.
        JobError: Spark did not start, or a task failed; the text names Spark's log.
        UsageError: Spark is not installed here.
    """
    if find_spec("pyspark") is None:
        raise UsageError("pyspark is not installed: pip install 'mqproto[spark]'")
    from mqproto.captures.pipeline.engines.progress import Progress
    from mqproto.captures.pipeline.engines.session import spark_session
    from mqproto.captures.pipeline.engines.sparkengine import SparkEngine

    def listen(progress: Progress) -> None:
        told(f"analyse: {progress.stage}")

    log = Path(tempfile.gettempdir()) / "mqproto-bench-spark.log"
    with (
        tempfile.TemporaryDirectory(prefix="mqproto-bench-") as folder,
        spark_session(MASTER, log=log, listener=listen) as spark,
    ):
        bench = Bench(spark, SparkEngine(spark, listen), Path(folder), options.connections)
        bench.warm_up()
        return await measure_by(bench, f"Spark {spark.version} on {MASTER}", options, told)


async def measure_by(bench: Bench, engine: str, options: Options, told: Told) -> Result:
    """Measure with an engine that is running."""
    first_mb, *further_mb = options.megabytes or (QUICK_MB if options.quick else USUAL_MB,)
    with bench.capture(_packets(first_mb)) as capture:
        jobs: dict[str, Any] = {
            SOURCE: partial(bench.source_s, capture),
            WHOLE: partial(bench.analyse, capture),
        }
        found = await in_turns("analyse", options.rounds, jobs, told)
    rounds: list[Analysis] = found[WHOLE]
    times_s = {
        SOURCE: found[SOURCE],
        TABLE: [each.table_s for each in rounds],
        WHOLE: [each.whole_s for each in rounds],
    }
    figures = [
        Figure(name, "packets/s", tuple(capture.packets / each for each in times_s[name]), wanted)
        for name, wanted in WANTED_PER_S.items()
    ]
    analyses = [(capture, rounds)]
    for size_mb in further_mb:
        with bench.capture(_packets(size_mb)) as further:
            count = min(options.rounds, max(1, ROUNDS_MB // size_mb))
            analyses.append((further, [bench.analyse(further) for _ in range(count)]))
    costs = [statistics.median(each.whole_s for each in rounds) / one.packets for one, rounds in analyses]
    if further_mb:
        flat = (max(costs) / min(costs),)
        figures.append(Figure("a packet, dearest / cheapest capture", "ratio", flat, at_most=WANTED_FLAT))
    figures += (figure for one, rounds in analyses for figure in costs_of(one, rounds))
    taken = [each.taken.peak_bytes or 0 for _, rounds in analyses for each in rounds]
    return Result(
        f"{capture.packets:,} packets on {options.connections:,} connections, by {engine}",
        figures,
        broken=["Spark's executor needed more memory than any may"] if max(taken) > LIMIT_BYTES else [],
    )


def _packets(size_mb: int) -> int:
    return max(1, size_mb * MEGABYTE // PACKET_BYTES)


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture that is measured."""

    path: Path
    packets: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """The time that one analysis took: until the table of packets was written, in total, and by stage."""

    table_s: float
    whole_s: float
    stages_s: dict[str, float]
    taken: Taken


def costs_of(capture: Capture, rounds: Sequence[Analysis]) -> Iterator[Figure]:
    """Yield the cost of analyzing a capture: wall-clock time, processor time and memory.

    The processes' resident memory includes pages of captures.
    """
    size = f"{capture.size_bytes / MEGABYTE:,.0f} MB"
    us = 1e6 / capture.packets
    yield Figure(f"{size}: {WHOLE}", "µs/packet", tuple(us * each.whole_s for each in rounds))
    for stage in rounds[0].stages_s:
        yield Figure(f"{size}: {stage}", "µs/packet", tuple(us * each.stages_s[stage] for each in rounds))
    cpus_s = [each.taken.cpu_s for each in rounds if each.taken.cpu_s is not None]
    yield Figure(f"{size}: CPU", "µs/packet", tuple(us * each for each in cpus_s))
    executor = tuple(each.taken.peak_bytes / MEGABYTE for each in rounds if each.taken.peak_bytes is not None)
    name = f"{size}: most that Spark's executor had resident"
    yield Figure(name, "MB", executor, at_most=LIMIT_BYTES / MEGABYTE)


class _Stopwatch:
    """An engine that notes how long each stage takes, and when it has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.buckets, self.drop, self.clear = engine.buckets, engine.drop, engine.clear
        self.took_s: defaultdict[str, float] = defaultdict(float)
        self.ended_s: dict[str, float] = {}

    def carry_out(self, stage: str, function: Any, tasks: Any, reads: Any = (), **how: Any) -> list[Any]:
        if not tasks:
            return []
        began_s = time.monotonic()
        results = self._engine.carry_out(stage, function, tasks, reads, **how)
        self.ended_s[stage] = time.monotonic()
        self.took_s[stage] += self.ended_s[stage] - began_s
        return results


class Bench:
    """Spark, its engine, and an empty folder for captures and tables."""

    def __init__(self, spark: SparkSession, engine: Engine, folder: Path, connections: int) -> None:
        self._spark = spark
        self._engine = engine
        self._folder = folder
        self._connections = connections

    @contextmanager
    def capture(self, packets: int) -> Iterator[Capture]:
        """Provide a capture for the block."""
        path = self._folder / "bulk.pcapng"
        try:
            written = write_capture(path, packets, self._connections)
            yield Capture(path, written, path.stat().st_size)
        finally:
            path.unlink(missing_ok=True)

    def warm_up(self) -> None:
        """Do everything that happens only once: let Java compile, and let workers start and import."""
        with self.capture(WARM_UP_PACKETS) as capture:
            self.source_s(capture, WARM_UP_RANGE_BYTES)
            self.analyse(capture, WARM_UP_RANGE_BYTES)

    def source_s(self, capture: Capture, range_bytes: int = RANGE_BYTES) -> float:
        """Return the time, in seconds, until all header columns have reached Spark, which drops them."""
        began_s = time.monotonic()
        reader = self._spark.read.format("mqproto").option("rows", "segments")
        table = reader.option("rangeBytes", str(range_bytes)).load(str(capture.path))
        table.write.format("noop").mode("overwrite").save()
        return time.monotonic() - began_s

    def analyse(self, capture: Capture, range_bytes: int = RANGE_BYTES) -> Analysis:
        """Make all tables. Return the time that this took.

        Raises:
            BenchError: packets are missing from the tables, or something was found wrong.
        """
        from mqproto.captures.pipeline.run.job import Wanted, analyse
        from mqproto.captures.pipeline.tables.tables import Tables

        out = self._folder / "tables"
        stopwatch: Any = _Stopwatch(self._engine)
        began_s = time.monotonic()
        with Watch() as watch:
            result = analyse([str(capture.path)], Tables(out), stopwatch, Wanted(range_bytes=range_bytes))
        whole_s = time.monotonic() - began_s
        shutil.rmtree(out)
        check(sum(series.totals.packets for series in result.series), capture, list(result.codes))
        table_s = stopwatch.ended_s[LAST_OF_TABLE] - began_s
        return Analysis(table_s, whole_s, dict(stopwatch.took_s), watch.taken())


def check(packets: int, capture: Capture, codes: Sequence[tuple[Any, str]]) -> None:
    """Check that as many packets were read as the capture has, and that nothing was found wrong.

    Raises:
        BenchError: a different number of packets was read, or something was found wrong.
    """
    if packets != capture.packets or codes:
        wrong = ", ".join(code for _, code in codes) or "nothing"
        raise BenchError(f"of {capture.packets:,} packets {packets:,} were read, and {wrong} was found wrong")
