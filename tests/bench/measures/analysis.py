"""`bench analyse`: how fast captures become tables, in how much memory, and at what cost when
there is more of them.

All is taken in one run, in turns, after Spark has started and has done a small capture, so that a busy machine slows
all of it. Every capture is by the book, and figures are given only if all of its packets were read, and nothing found.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from simulator.base.processes import Taken, Watch
from tests.bench.figures import BenchError
from tests.bench.measures.bulk import write_capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from captures.pipeline.engines.engine import Engine
    from captures.pipeline.engines.progress import Listener


PACKETS: Final = 300_000
ROUNDS: Final = 5
CONNECTIONS: Final = 64
MASTER: Final = "local[2]"
WARM_UP_PACKETS: Final = 20_000
RANGE_BYTES: Final = 64 << 20
WARM_UP_RANGE_BYTES: Final = 1 << 20
"""So small that every core's worker has something to do."""
MEGABYTE: Final = 1_000_000
PACKET_BYTES: Final = 724
"""What a packet takes in the capture, on the average."""
FLAT_BYTES: Final = 1_000 * MEGABYTE
"""What is smaller is analysed more than once, until that is done."""

SOURCE_WANTED_PER_S: Final = 400_000
TABLE_WANTED_PER_S: Final = 200_000
WHOLE_WANTED_PER_S: Final = 50_000
FLAT_WANTED_RATIO: Final = 1.5
LIMIT_BYTES: Final = 2 << 30
"""The resident memory that an executor may need: Java and its Python workers together, as Spark's `2g` has it."""

LAST_OF_TABLE: Final = "writing packets"
"""The stage that has written the table of packets when it ends."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast something was.

    rounds_s: what it took, in each round.
    median_s: of these; the rates are those of this round.
    """

    packets: int
    size_bytes: int
    rounds_s: list[float]
    median_s: float
    packets_per_s: float
    bytes_per_s: float
    wanted_per_s: int | None


@dataclass(frozen=True, slots=True)
class Cost:
    """What the whole analysis of a capture costs.

    us_per_packet: by the clock on the wall, in the median round. stages_us: of that each stage's.
    cpu_us_per_packet: of processors, for Java and workers; None where the kernel does not tell.
    peak_bytes: by its name, the most that a process had resident, pages of captures among it.
    executor_bytes: the most that all processes of Spark had at a time; None where the kernel does not tell.
    """

    packets: int
    size_bytes: int
    rounds_s: list[float]
    us_per_packet: float
    stages_us: dict[str, float]
    cpu_us_per_packet: float | None
    peak_bytes: dict[str, int]
    executor_bytes: int | None


@dataclass(frozen=True, slots=True)
class AnalysisFigures:
    """What was measured.

    source: a capture as a Spark data source, to header columns.
    table: to the table of packets: reassembled, decoded, written.
    whole: to all tables.
    costs: in this capture, and in those of other sizes.
    """

    master: str
    spark: str
    packets: int
    size_bytes: int
    connections: int
    source: Pace
    table: Pace
    whole: Pace
    costs: list[Cost]
    flat_wanted_ratio: float = FLAT_WANTED_RATIO
    limit_bytes: int = LIMIT_BYTES

    @property
    def flat_ratio(self) -> float | None:
        """What a packet costs where it costs most, to where it costs least."""
        costs = [cost.us_per_packet for cost in self.costs]
        return max(costs) / min(costs) if len(costs) > 1 else None

    @property
    def over_limit(self) -> bool:
        """Whether an executor needed more memory than any may."""
        return any((cost.executor_bytes or 0) > self.limit_bytes for cost in self.costs)


def bench_analysis(
    packets: int = PACKETS,
    rounds: int = ROUNDS,
    connections: int = CONNECTIONS,
    flat_mb: Sequence[int] = (),
    listener: Listener | None = None,
) -> AnalysisFigures:
    """Start Spark on two cores of this machine, and measure.

    Args:
        packets: in the capture, at least.
        flat_mb: sizes of further captures, to see whether a packet costs the same in each.

    Raises:
        BenchError: tables are not what they have to be.
        JobError: Spark did not start, or a task failed; the text names its log.
        OSError: the disk is full.
    """
    from captures.pipeline.engines.progress import nobody
    from captures.pipeline.engines.session import spark_session

    told = listener or nobody
    with (
        tempfile.TemporaryDirectory(prefix="mqproto-bench-") as folder,
        _log() as log,
        spark_session(MASTER, log=log, listener=told) as spark,
    ):
        return measure(spark, Path(folder), packets, rounds, connections, flat_mb, told)


def measure(
    spark: SparkSession,
    folder: Path,
    packets: int,
    rounds: int,
    connections: int,
    flat_mb: Sequence[int],
    listener: Listener,
) -> AnalysisFigures:
    """Measure in a session that is there, with captures and tables in an empty folder."""
    bench = _Bench(spark, folder, connections, listener)
    bench.warm_up()
    with bench.capture(packets) as capture:
        sources_s: list[float] = []
        rounds_of: list[_Round] = []
        for _ in range(rounds):
            sources_s.append(bench.source_s(capture))
            rounds_of.append(bench.analyse(capture))
    tables_s = [one.table_s for one in rounds_of]
    return AnalysisFigures(
        master=str(spark.sparkContext.master),
        spark=spark.version,
        packets=capture.packets,
        size_bytes=capture.size_bytes,
        connections=connections,
        source=capture.pace(sources_s, SOURCE_WANTED_PER_S),
        table=capture.pace(tables_s, TABLE_WANTED_PER_S),
        whole=capture.pace([one.whole_s for one in rounds_of], WHOLE_WANTED_PER_S),
        costs=[_cost(capture, rounds_of), *(bench.cost(size_mb, rounds) for size_mb in flat_mb)],
    )


class _Capture(NamedTuple):
    """What is measured on."""

    path: Path
    packets: int
    size_bytes: int

    def pace(self, rounds_s: list[float], wanted_per_s: int | None = None) -> Pace:
        """How fast this was, if it took `rounds_s`."""
        median_s = statistics.median(rounds_s)
        rates = self.packets / median_s, self.size_bytes / median_s
        return Pace(self.packets, self.size_bytes, rounds_s, median_s, *rates, wanted_per_s)


class _Round(NamedTuple):
    """One analysis."""

    table_s: float
    whole_s: float
    stages_s: dict[str, float]
    taken: Taken


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


class _Bench:
    """Spark, and a folder for captures and tables."""

    def __init__(self, spark: SparkSession, folder: Path, connections: int, listener: Listener) -> None:
        from captures.pipeline.engines.sparkengine import SparkEngine

        self._spark = spark
        self._engine = SparkEngine(spark, listener)
        self._folder = folder
        self._connections = connections
        self._listener = listener

    @contextmanager
    def capture(self, packets: int) -> Iterator[_Capture]:
        """A capture, for the block."""
        from captures.pipeline.engines.progress import Progress

        self._listener(Progress("writing a capture"))
        path = self._folder / "bulk.pcapng"
        try:
            written = write_capture(path, packets, self._connections)
            yield _Capture(path, written, path.stat().st_size)
        finally:
            path.unlink(missing_ok=True)

    def warm_up(self) -> None:
        """Let all that is done once be done: Java compiles, workers start and import."""
        with self.capture(WARM_UP_PACKETS) as capture:
            self.source_s(capture, WARM_UP_RANGE_BYTES)
            self.analyse(capture, WARM_UP_RANGE_BYTES)

    def source_s(self, capture: _Capture, range_bytes: int = RANGE_BYTES) -> float:
        """How long it takes for all header columns to come to Spark, which drops them."""
        began_s = time.monotonic()
        reader = self._spark.read.format("mqproto").option("rows", "segments")
        reader.option("rangeBytes", str(range_bytes)).load(str(capture.path)).write.format("noop").mode(
            "overwrite"
        ).save()
        return time.monotonic() - began_s

    def analyse(self, capture: _Capture, range_bytes: int = RANGE_BYTES) -> _Round:
        """All tables.

        Raises:
            BenchError: they lack packets, or something was found wrong.
        """
        from captures.pipeline.run.job import analyse
        from captures.pipeline.tables.tables import Tables

        out = self._folder / "tables"
        stopwatch = _Stopwatch(self._engine)
        began_s = time.monotonic()
        with Watch() as watch:
            result = analyse([str(capture.path)], Tables(out), stopwatch, range_bytes=range_bytes)
        whole_s = time.monotonic() - began_s
        shutil.rmtree(out)
        read = sum(series.totals.packets for series in result.series)
        if read != capture.packets or result.codes:
            wrong = ", ".join(code for _, code in result.codes) or "nothing"
            raise BenchError(
                f"of {capture.packets:,} packets {read:,} were read, and {wrong} was found wrong"
            )
        table_s = stopwatch.ended_s[LAST_OF_TABLE] - began_s
        return _Round(table_s, whole_s, dict(stopwatch.took_s), watch.taken())

    def cost(self, size_mb: int, rounds: int) -> Cost:
        """What the analysis of a capture of about that size costs."""
        with self.capture(max(1, size_mb * MEGABYTE // PACKET_BYTES)) as capture:
            count = min(rounds, max(1, FLAT_BYTES // capture.size_bytes))
            done = [self.analyse(capture) for _ in range(count)]
        return _cost(capture, done)


def _cost(capture: _Capture, rounds: Sequence[_Round]) -> Cost:
    rounds_s = [one.whole_s for one in rounds]
    cpus_s = [one.taken.cpu_s for one in rounds if one.taken.cpu_s is not None]
    peak_bytes: dict[str, int] = {}
    for one in rounds:
        for name, size_bytes in one.taken.peak_bytes.items():
            peak_bytes[name] = max(size_bytes, peak_bytes.get(name, 0))
    us = 1e6 / capture.packets
    return Cost(
        packets=capture.packets,
        size_bytes=capture.size_bytes,
        rounds_s=rounds_s,
        us_per_packet=us * statistics.median(rounds_s),
        stages_us={
            name: us * statistics.median(one.stages_s[name] for one in rounds) for name in rounds[0].stages_s
        },
        cpu_us_per_packet=us * statistics.median(cpus_s) if cpus_s else None,
        peak_bytes=peak_bytes,
        executor_bytes=max((one.taken.all_bytes or 0 for one in rounds), default=0) or None,
    )


@contextmanager
def _log() -> Iterator[Path]:
    """A file for Spark's log, which stays if an error names it."""
    from captures.pipeline.engines.failures import JobError

    handle, name = tempfile.mkstemp(prefix="mqproto-bench-", suffix=".log")
    os.close(handle)
    is_named = False
    try:
        yield Path(name)
    except JobError:
        is_named = True
        raise
    finally:
        if not is_named:
            Path(name).unlink()
