"""`mqproto analyse`, which turns captures into tables with Spark, and prints the result."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.environment import TOPOLOGY_VARIABLE
from mqproto.simulator.base.program.output import DONE, FINDING, MISUSE, Printout, complain, print_json
from mqproto.simulator.command.options import JsonOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqproto.captures.decode.names import Names
    from mqproto.captures.pipeline.engines.engine import Engine
    from mqproto.captures.pipeline.engines.localengine import LocalEngine
    from mqproto.captures.pipeline.engines.sparkengine import SparkEngine
    from mqproto.captures.pipeline.run.job import Result, Wanted
    from mqproto.captures.pipeline.tables.tables import Tables

LOG: Final = Path("_log") / "spark.log"
SMALL_BYTES: Final = 64 << 20
"""The size of captures, in bytes, below which starting Spark takes longer than reading them."""


def analyse(
    captures: Annotated[
        list[str],
        ARGUMENT,
        "Captures (pcap or pcapng, compressed or not), folders, patterns, or URIs such as s3://bucket/day-*/",
        value("CAPTURES..."),
    ],
    out: Annotated[
        str, "The folder of the tables, or its URI; existing tables are extended.", "-o", value("DIR")
    ],
    master: Annotated[str | None, "Spark's master, as for spark-submit; by default this machine."] = None,
    conf: Annotated[
        list[str] | None, "A setting of Spark, such as spark.ui.enabled=true.", value("NAME=VALUE")
    ] = None,
    topology: Annotated[
        str | None, "A topology with names for nodes and queues.", "-t", value(envvar=TOPOLOGY_VARIABLE)
    ] = None,
    range_mib: Annotated[
        int, "How many MiB of a capture each task reads.", "--range", value(min=1, max=1_024)
    ] = 64,
    body_text: Annotated[bool, "Put the text of bodies into the column body_text."] = False,
    keys: Annotated[
        list[str] | None,
        "Keys to decrypt bodies and verify signatures, at the same path on each machine; repeatable.",
        value("FILE|FOLDER"),
    ] = None,
    watch: Annotated[bool, "Wait for more captures in the folders, until Ctrl-C."] = False,
    settle_s: Annotated[
        int,
        "With --watch: the last capture of a series is complete after this many seconds without a write.",
        value("SECONDS", min=1),
    ] = 60,
    as_json: JsonOption = False,
) -> int:
    """Make Delta Lake tables from captures of any size, for Spark, pandas, DuckDB and others.

    Files of a rotating capture are read as one. A capture whose content is already in the tables is not read again.
    Status 1 if a peer broke the protocol, if a signature fails with --keys, or if a file could not be read completely.

    With --watch, new captures in the folders are added when they are complete. A file of a rotating capture is complete
    when there is a later one. The command may be stopped and started again at any time.

    \b
    mqproto analyse run.pcapng --out tables
    mqproto analyse /var/captures --out tables
    mqproto analyse /mnt/captures --out /mnt/tables --master spark://head:7077
    mqproto analyse s3://captures/day-*/ --out s3://tables/day
    mqproto analyse /var/captures --out tables --watch
    """
    settings = _settings(conf or ())
    wanted = _checked(captures, topology, keys or (), body_texts=body_text, range_bytes=range_mib << 20)
    from mqproto.captures.pipeline.tables.tables import Tables

    tables = Tables(out)
    if watch:
        return _watch(_spark(master, tables, settings), captures, tables, wanted, settle_s, as_json=as_json)
    result = _read_once(captures, tables, _spark_engine(master, tables, settings), wanted)
    status = _tell(result, tables, out, as_json=as_json)
    if master is None and not as_json:
        _advise(result, out)
    return status


def _advise(result: Result, out: str) -> None:
    """If there was little to read, name the command that does the same without Spark."""
    size_bytes = sum(file.size_bytes for series in result.series for file in series.files)
    if result.series and size_bytes < SMALL_BYTES:
        print()
        print(
            f"so little is done in a few seconds by mqproto decode CAPTURES --tables {out}, which starts no Spark"
        )


def _read_once(
    captures: list[str],
    tables: Tables,
    engine: AbstractContextManager[Engine],
    wanted: Wanted,
) -> Result:
    """Read new captures into the tables; start the engine only if there are any.

    Raises:
        UsageError: nothing can be read; then no tables are made.
    """
    from mqproto.captures.pipeline.run.job import analyse, nothing_new
    from mqproto.captures.pipeline.source.files import inventory

    found = inventory(captures)
    if not found.series:
        *others, last = [*map(str, found.refused)] or [_nothing_in(captures, len(found.passed_over))]
        for error in others:
            complain(error)
        raise UsageError(last)
    result = nothing_new(found, tables, wanted)
    if result is None:
        with engine as started:
            return analyse(captures, tables, started, wanted, found=found)
    return result


def _nothing_in(captures: Iterable[str], passed_over: int) -> str:
    """Return, in words, that there is no capture at these paths."""
    from mqproto.base.words import counted

    there = (
        f"{counted(passed_over, 'file')} of other kinds; name one to be told what it is"
        if passed_over
        else "no file; name captures, or folders with captures"
    )
    return f"no capture in {', '.join(captures)}: {there}"


@contextmanager
def _spark_engine(master: str | None, tables: Tables, settings: Mapping[str, str]) -> Iterator[SparkEngine]:
    with _spark(master, tables, settings) as (_, engine):
        yield engine


@contextmanager
def _local_engine() -> Iterator[LocalEngine]:
    """Yield an engine that runs stages in processes on this machine."""
    from mqproto.captures.pipeline.engines.localengine import LocalEngine
    from mqproto.simulator.command.analysing import ProgressLine

    line = ProgressLine()
    with line.shown(), LocalEngine(os.cpu_count() or 1, line) as engine:
        yield engine


@contextmanager
def _spark(
    master: str | None, tables: Tables, settings: Mapping[str, str]
) -> Iterator[tuple[SparkSession, SparkEngine]]:
    """Yield a Spark session and the engine that runs stages in it.

    If Spark has web pages, print their address.
    """
    # These take as long to import as all that was done so far.
    from mqproto.captures.pipeline.engines.session import spark_session
    from mqproto.captures.pipeline.engines.sparkengine import SparkEngine
    from mqproto.simulator.command.analysing import ProgressLine

    line = ProgressLine()
    with (
        line.shown(),
        spark_session(master, log=_log_of(tables), settings=settings, listener=line) as spark,
    ):
        if (address := spark.sparkContext.uiWebUrl) is not None:
            print(f"Spark's UI is at {address}", file=sys.stderr)
        yield spark, SparkEngine(spark, line)


def make_tables(
    captures: list[str],
    out: str,
    topology: str | None,
    *,
    body_text: bool,
    keys: Sequence[str],
    as_json: bool,
) -> int:
    """Do what `mqproto decode CAPTURES --tables DIR` asks for, in processes on this machine."""
    wanted = _checked(captures, topology, keys, body_texts=body_text)
    from mqproto.captures.pipeline.tables.tables import Tables

    tables = Tables(out)
    result = _read_once(captures, tables, _local_engine(), wanted)
    return _tell(result, tables, out, as_json=as_json)


def _checked(captures: Iterable[str], topology: str | None, keys: Sequence[str], **options: Any) -> Wanted:
    """Return what is wanted of a run. Mistakes are reported before anything slow begins.

    Raises:
        UsageError: as far as this machine can tell, a capture is missing; or a topology or keys are not valid.
    """
    from mqproto.captures.pipeline.source.storage import absolute, may_be_there

    for typed in captures:
        if not may_be_there(absolute(typed)):
            raise UsageError(
                f"{typed}: nothing has this name, or fits it; name captures, folders or patterns"
            )
    names, at_hand = _names(topology), _at_hand(keys)
    # This takes longer to import than all that was looked at so far.
    from mqproto.captures.pipeline.run.job import Wanted

    return Wanted(names, keys=at_hand, **options)


def _at_hand(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the absolute paths of keys, which are valid wherever a task runs.

    Raises:
        UsageError: a named file has no key or certificate, or no file in a named folder has one.
    """
    if keys:
        from mqproto.captures.decode.security.keyring import read_keys

        read_keys(tuple(keys))
    return tuple(str(Path(path).absolute()) for path in keys)


def _log_of(tables: Tables) -> Path:
    """Return the path of Spark's log, which is with the tables if they are on this machine.

    Otherwise it is in the temporary folder.
    """
    folder = tables.store.folder
    return Path(tempfile.gettempdir()) / "mqproto" / LOG.name if folder is None else folder / LOG


def _names(topology: str | None) -> Names:
    """Return the names of queue managers and queues; none if there is no topology."""
    from mqproto.captures.decode.names import Names

    if topology is None:
        return Names()
    from mqproto.simulator.command.captured import names_of
    from mqproto.simulator.topology import load

    return names_of(load(topology))


def _tell(result: Result, tables: Tables, out: str, *, as_json: bool) -> int:
    """Report the results of a run; return the exit status."""
    counts = {name: tables.rows(name) for name in tables.names}
    told = Printout(_as_json(result, counts), _lines(result, counts, out), _status(result))
    return told.show(as_json=as_json)


def _settings(conf: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings from the command line, keyed by name."""
    settings = {}
    for said in conf:
        name, equals, value = said.partition("=")
        if not (name and equals):
            raise UsageError(f"--conf {said} is not a setting: NAME=VALUE is one, as spark.ui.enabled=true")
        settings[name] = value
    return settings


def _watch(
    started: AbstractContextManager[tuple[SparkSession, SparkEngine]],
    folders: list[str],
    tables: Tables,
    wanted: Wanted,
    settle_s: int,
    *,
    as_json: bool,
) -> int:
    """Add new captures until interrupted, and print a line for each batch; return the exit status."""
    from mqproto.captures.pipeline.run.watching import watch

    statuses = {DONE}

    def told(result: Result) -> None:
        counts = {name: tables.rows(name) for name in tables.names}
        if as_json:
            print_json(_as_json(result, counts))
        else:
            print(f"{datetime.now():%H:%M:%S}  {_batch(result, counts)}", flush=True)
        statuses.add(_status(result))

    with started as (spark, engine):
        watch(spark, folders, tables, engine, told, wanted, settle_s=settle_s)
    return max(statuses)


def _batch(result: Result, counts: dict[str, int]) -> str:
    """Return, in words, the results of one batch and the totals of the tables."""
    from mqproto.base.words import counted

    new = sum(series.new for series in result.series)
    parts = [
        f"{counted(new, 'capture')} more",
        counted(counts["packets"], "packet"),
        counted(counts["histories"], "message"),
    ]
    for severity in ("fault", "note"):
        found = sum(count for (each, _), count in result.codes.items() if each == severity)
        parts.append(counted(found, severity))
    return "; ".join(parts)


def _status(result: Result) -> int:
    """Report errors, and return the exit status."""
    from mqproto.captures.pipeline.run.strangers import OtherSystemError

    wrong = [*result.refused, *(damage for series in result.series for damage in series.damage)]
    for error in wrong:
        complain(str(error))
    count = len(result.refused) + sum(series.new for series in result.series)
    others = sum(isinstance(error, OtherSystemError) for error in wrong)
    if others:
        complain(f"{others} of {count} captures are of another system than the tables")
    if others < len(wrong):
        complain(f"{len(wrong) - others} of {count} captures could not be read, or not to the end")
    if result.refused and not result.series:
        return MISUSE
    faults = sum(count for (severity, _), count in result.codes.items() if severity == "fault")
    return FINDING if wrong or faults or result.codes["note", "bad-signature"] else DONE


def _lines(result: Result, counts: dict[str, int], out: str) -> Iterator[str]:
    from mqproto.base.words import counted
    from mqproto.captures.decode.findings import CODES, LACKING
    from mqproto.captures.decode.views.quality import found_nothing
    from mqproto.captures.decode.views.summary import accounts
    from mqproto.captures.packets import Totals

    totals = Totals()
    if result.series:
        for series in result.series:
            totals.add(series.totals)
        files = [file for series in result.series for file in series.files]
        new = sum(series.new for series in result.series)
        size_bytes = sum(file.size_bytes for file in files)
        more = f", {new} of them new" if new < len(files) else ""
        yield f"{counted(len(files), 'capture')}, {size_bytes:,} bytes{more}"
        yield from accounts(totals)
        yield from (text for code, text in totals.conflicts if code in LACKING)
        yield f"{counted(totals.packets, 'packet')}; {counted(totals.connections, 'TCP connection')} in all"
        for one, other in (series.halves for series in result.series if series.halves):
            yield f"{one} and {other} are the halves of a TAP, and read as one"
    elif not result.known:
        yield "no captures"
    if result.known:
        yield f"{counted(len(result.known), 'capture')} in the tables already"
    for path, other in result.repeated:
        yield f"{path} has the same content as {other}"
    if result.passed_over:
        yield f"{counted(len(result.passed_over), 'file')} that are not captures passed over"
    yield ""
    for (severity, code), count in sorted(result.codes.items()):
        yield f"{severity:<5} {code:<20} {count:>12,}  {CODES[code]}"
    if not result.codes:
        yield found_nothing(totals.other_frames)
    yield ""
    place = out.rstrip("/") or "/"
    wide = max(map(len, counts), default=0)
    for name, count in counts.items():
        yield f"{f'{place}/{name}':<{len(place) + wide + 1}} {count:>12,} rows"


def _as_json(result: Result, counts: dict[str, int]) -> dict[str, Any]:
    from mqproto.captures.decode.views.summary import accounts_as_json

    return {
        "series": [
            {
                "name": series.name,
                "files": [file.path for file in series.files],
                "halves": list(series.halves),
                "packets": series.totals.packets,
                "connections": series.totals.connections,
                **accounts_as_json(series.totals),
                "damaged": [_error(error) for error in series.damage],
            }
            for series in result.series
        ],
        "known": result.known,
        "repeated": [{"file": path, "same_as": other} for path, other in result.repeated],
        "passed_over": result.passed_over,
        "refused": [_error(error) for error in result.refused],
        "findings": [
            {"severity": severity, "code": code, "count": count}
            for (severity, code), count in sorted(result.codes.items())
        ],
        "tables": counts,
    }


def _error(error: Any) -> dict[str, Any]:
    return {"file": error.where, "offset": error.offset, "reason": error.reason}
