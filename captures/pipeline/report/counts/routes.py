"""The hops between queue managers, counted from the table of every message's hops."""

from __future__ import annotations

from typing import Final

from duckdb import DuckDBPyConnection

from mqproto.captures.pipeline.report.counts.asking import courses, rows
from mqproto.captures.pipeline.report.facts.facts import Hop, Resender, Routes
from mqproto.captures.pipeline.report.facts.overtime import Steps

HOPS_LIMIT: Final = 500
"""The number of hops with the most messages that get a row in the table.

As many hops with the longest waits, and with the slowest answers, get a row as well. That is more than most estates
have, and a limit for forged traffic.
"""
RESENDERS_LIMIT: Final = 50
_CHOSEN: Final = """
create or replace temp table chosen as
with crossed as (
    select coalesce(from_key, '') as from_key, coalesce(to_key, '') as to_key,
        arg_min(coalesce(from_label, ''), place) as from_label, arg_min(coalesce(to_label, ''), place) as to_label,
        count(*) as messages, coalesce(sum(copies), 0) as copies, min(first_ns) as first_ns, max(last_ns) as last_ns,
        max(at_least_0(waited_ns)) as waited_ns, max(at_least_0(acknowledged_ns - first_ns)) as answered_ns
    from hops group by all
), first as (
    (select * from crossed order by messages desc, from_key, to_key limit $limit)
    union (from crossed where waited_ns is not null order by waited_ns desc, from_key, to_key limit $limit)
    union (from crossed where answered_ns is not null order by answered_ns desc, from_key, to_key limit $limit)
)
select *, row_number() over (order by messages desc, first_ns, from_key, to_key) - 1 as thing from first
"""
_HOPS: Final = """
select from_key, to_key, from_label, to_label, messages, copies, first_ns, last_ns from chosen order by thing
"""
_CROSSINGS: Final = """
from hops join chosen on coalesce(hops.from_key, '') = chosen.from_key and coalesce(hops.to_key, '') = chosen.to_key
"""
_WAITED: Final = f"""
select thing, hops.first_ns - hops.waited_ns as began_ns, hops.waited_ns as took_ns,
    hops.waited_ns is not null as waits, hops.first_ns as until_ns
{_CROSSINGS}
"""
_ANSWERED: Final = f"""
select thing, hops.first_ns as began_ns, acknowledged_ns - hops.first_ns as took_ns, true as waits,
    acknowledged_ns as until_ns
{_CROSSINGS}
"""

_RESENDERS: Final = """
select arg_min(coalesce(from_label, ''), place) as label, count(*) as messages, count(*) filter (copies > 1) as again,
    sum(copies - 1) as copies
from hops group by coalesce(from_key, '') having sum(copies - 1) > 0 order by sum(copies - 1) desc, label limit $limit
"""


def routes(connection: DuckDBPyConnection, steps: Steps) -> Routes:
    """Return the hops between queue managers, their speed, and how this speed changed over time."""
    connection.execute(_CHOSEN, {"limit": HOPS_LIMIT})
    hops = [Hop(**row) for row in rows(connection, _HOPS)]
    every = [courses(connection, steps, len(hops), each) for each in (_WAITED, _ANSWERED)]
    labels: dict[str, str] = {}
    for hop, (waited, waiting), (answered, answering) in zip(hops, *every, strict=True):
        hop.waited, hop.answered = waited, answered
        hop.course = waiting if waited.count else answering
        labels |= {hop.from_key: hop.from_label, hop.to_key: hop.to_label}
    [[count]] = connection.execute("select count(*) from hops").fetchall()
    resenders = [Resender(**row) for row in rows(connection, _RESENDERS, limit=RESENDERS_LIMIT)]
    return Routes(hops, count - sum(hop.messages for hop in hops), labels, resenders)
