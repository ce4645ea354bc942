"""Common parts of the report's SQL statements over the tables.

Each statement states the order of its rows; the column `place` gives the order of the table.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final

from duckdb import DuckDBPyConnection, IOException, OutOfMemoryException

from mqproto.captures.pipeline.report.facts.facts import Course
from mqproto.captures.pipeline.report.facts.overtime import Steps, slow_spells
from mqproto.captures.pipeline.report.facts.spread import STEPS, Spread, middle
from mqproto.captures.pipeline.tables.queries import connected
from mqproto.captures.pipeline.tables.tables import Tables

MEMORY: Final = "1GB"
"""The memory limit; data beyond it goes to a folder for temporary files.

There must be a limit, because strangers may write any number of names into the captures.
"""
THREADS: Final = 4
"""The maximum number of threads; each holds a group of rows in memory."""
FETCHED: Final = 4_096
MACROS: Final = f"""
create macro at_least_0(ns) as if(ns < 0, 0, ns);
create macro by_reference(time_ns, clock) as
    -- As `Ahead.of` has it.
    coalesce(try(time_ns - clock.offset_ns - if(coalesce(clock.drift_ppb, 0) = 0, 0,
        round_even((time_ns - clock.at_ns) * (clock.drift_ppb / 1e9), 0)::bigint)), time_ns);
create macro step_of(time_ns, steps) as
    -- The first may begin before all that a column has: what is too far from it is in the last.
    greatest(least(try(time_ns - steps.first_ns) // steps.step_ns, steps.length - 1), 0);
create macro doublings(ns) as greatest(floor(log2(greatest(ns, 1)))::bigint - 3, 0);
create macro bucket(ns) as doublings(ns) * {STEPS} + (ns >> doublings(ns));
"""
_TOOK: Final = """
create or replace temp table took as
    select thing, step, bucket(took_ns) as bucket, count(*) as messages, min(took_ns) as least_ns,
        max(took_ns) as most_ns
    from (select thing, step, at_least_0(took_ns) as took_ns from ({took}) where took_ns is not null) group by all
"""
_SPREADS: Final = """
select thing, list(bucket order by bucket), list(messages order by bucket), min(least_ns), max(most_ns)
from (
    select thing, bucket, sum(messages) as messages, min(least_ns) as least_ns, max(most_ns) as most_ns
    from took group by all
) group by thing
"""
_BY_STEP: Final = """
select thing, step, sum(messages), min(bucket) filter (upto >= 0.5::double * every),
    min(bucket) filter (upto >= 0.95::double * every), max(most_ns)
from (
    select *, sum(messages) over (partition by thing, step) as every,
        sum(messages) over (partition by thing, step order by bucket) as upto
    from took
) group by thing, step
"""
_CHANGES: Final = """
with went as ({went})
select thing, step, sum(change) from (
    select thing, step_of(began_ns, $steps) as step, 1 as change from went where waits
    union all
    select thing, step_of(greatest(began_ns, until_ns), $steps), -1 from went where waits and until_ns is not null
) group by thing, step
"""


@contextmanager
def asked(tables: Tables) -> Iterator[DuckDBPyConnection]:
    """Provide a connection with all tables, in limited memory; tables that were not written have no rows.

    Raises:
        OSError: a table cannot be read, or there is no room on disk for data beyond that memory.
    """
    with (
        tempfile.TemporaryDirectory(prefix="mqproto-report-") as folder,
        connected(tables, whole=True) as found,
    ):
        found.execute(f"set memory_limit = '{MEMORY}'; set threads = {min(THREADS, os.cpu_count() or 1)}")
        found.execute("set temp_directory = $folder", {"folder": folder})
        found.execute(MACROS)
        try:
            yield found
        except (IOException, OutOfMemoryException) as error:
            raise OSError(str(error).partition("\n")[0]) from None


def rows(connection: DuckDBPyConnection, sql: str, /, **values: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a statement as dictionaries; until they end, the connection takes no other statement."""
    found = connection.execute(sql, values)
    names = [column[0] for column in found.description]
    while some := found.fetchmany(FETCHED):
        for row in some:
            yield dict(zip(names, row, strict=True))


def spreads(connection: DuckDBPyConnection, took: str, /, **values: Any) -> dict[int, Spread]:
    """Return the spread of each thing's durations, keyed by the thing's number; things without a duration are left out.

    Args:
        took: rows of `thing` and `took_ns`.
    """
    _count(connection, f"select *, 0 as step from ({took})", values)
    return _spreads(connection)


def courses(
    connection: DuckDBPyConnection, steps: Steps, things: int, went: str, /, **values: Any
) -> list[tuple[Spread, Course]]:
    """Return the spread of each thing's durations, and their course over time.

    Things, such as queues or hops, are numbered from 0 to `things` - 1.

    Args:
        went: rows of `thing`, with `began_ns` and, if it is known, `took_ns`. If `waits` is true, a message waits from
            `began_ns` until `until_ns`, or to the end if `until_ns` is null. Times outside the steps count in the
            nearest step.
    """
    values["steps"] = steps._asdict()
    _count(connection, f"select *, step_of(began_ns, $steps) as step from ({went})", values)
    known = _spreads(connection)
    found = [(known.get(thing, Spread()), Course.of_steps(*steps)) for thing in range(things)]
    for thing, step, messages, half, slow, most_ns in connection.execute(_BY_STEP).fetchall():
        course = found[thing][1]
        course.counts[step], course.most_ns[step] = messages, most_ns
        course.half_ns[step], course.slow_ns[step] = middle(half), middle(slow)
    for thing, step, change in connection.execute(_CHANGES.format(went=went), values).fetchall():
        found[thing][1].waiting[step] = change
    for spread, course in found:
        course.waiting = [*accumulate(course.waiting)]
        course.usual_ns = spread.middle(0.25)
        course.spells = slow_spells(course)
    return found


def _count(connection: DuckDBPyConnection, took: str, values: dict[str, Any]) -> None:
    connection.execute(_TOOK.format(took=took), values)


def _spreads(connection: DuckDBPyConnection) -> dict[int, Spread]:
    return {
        thing: Spread(dict(zip(buckets, counts, strict=True)), least_ns, most_ns)
        for thing, buckets, counts, least_ns, most_ns in connection.execute(_SPREADS).fetchall()
    }
