"""The queues of messages: delays, messages in transit, and how both changed over time."""

from __future__ import annotations

from typing import Final

from duckdb import DuckDBPyConnection

from mqproto.captures.pipeline.report.counts.asking import courses, rows
from mqproto.captures.pipeline.report.facts.facts import Queue, Queues
from mqproto.captures.pipeline.report.facts.overtime import Steps
from mqproto.captures.pipeline.report.facts.words import BAD, GOOD

QUEUES_LIMIT: Final = 500
"""How many queues get a row in the table because they have the most messages.

The same number of queues get a row for the longest time to the destination, for the longest time to the OrderAck, and
for the oldest message without an end.
"""
HOSTS_EACH: Final = 32
_WENT: Final = f"""
create or replace temp view went as
select coalesce(queue, '') as name, place, series, row_id, route, first_ns, last_ns, resends,
    if(hops > 1, latency_ns, null) as latency_ns, order_acked_ns - first_ns as confirmed_ns,
    delivery = 'transactional' as is_transactional, outcome in {GOOD} as is_good, outcome in {BAD} as is_bad,
    -- Until when its source had to keep a copy, and until when it was under way; and whether that is over.
    coalesce(order_acked_ns, final_ns, last_ns) as kept_ns, coalesce(arrived_ns, kept_ns) as until_ns,
    order_acked_ns is not null or final_ns is not null or is_bad as is_let_go,
    arrived_ns is not null or is_good or is_bad as is_over
from histories
"""
_CHOSEN: Final = """
create or replace temp table chosen as
with each_queue as (
    select name, count(*) as messages, coalesce(sum(resends), 0) as resends, min(first_ns) as first_ns,
        count(*) filter (is_good) as ended, count(*) filter (is_bad) as failed,
        coalesce(max(at_least_0($ended_ns - first_ns)) filter (not (is_good or is_bad)), 0) as oldest_ns,
        max(at_least_0(latency_ns)) as latency_ns, max(at_least_0(confirmed_ns)) as confirmed_ns
    from went group by name
), first as (
    (select * from each_queue order by messages desc, name limit $limit)
    union (from each_queue where latency_ns is not null order by latency_ns desc, name limit $limit)
    union (from each_queue where confirmed_ns is not null order by confirmed_ns desc, name limit $limit)
    union (from each_queue where oldest_ns > 0 order by oldest_ns desc, name limit $limit)
)
select *, row_number() over (order by messages desc, first_ns, name) - 1 as thing from first
"""
CALLED: Final = """
select name, max(queue_name) as called
from (
    select coalesce(queue, '') as name, arg_min(struct_pack(series, row_id), place) as first
    from histories where row_id is not null group by name
) join relations on relations.row_id = first.row_id and relations.series = first.series
where queue_name <> '' group by name
"""
"""The names that people use for queues, as given in the first packet to each queue."""
_QUEUES: Final = f"""
select name, coalesce(called, '') as called, messages, resends, ended, failed, oldest_ns
from chosen left join ({CALLED}) using (name) order by thing
"""
_HOSTS: Final = """
select thing, label from (
    select thing, unnest([route[1], route[-1]]) as label, place * 2 + unnest([0, 1]) as place
    from went join chosen using (name) where len(route) > 0
) group by thing, label
qualify row_number() over (partition by thing order by min(place)) <= $limit order by thing, min(place)
"""
_ARRIVED: Final = """
select thing, went.first_ns as began_ns, went.latency_ns as took_ns, true as waits,
    if(is_over, until_ns, null) as until_ns
from went join chosen using (name)
"""
_CONFIRMED: Final = """
select thing, went.first_ns as began_ns, went.confirmed_ns as took_ns, is_transactional as waits,
    if(is_let_go, kept_ns, null) as until_ns
from went join chosen using (name)
"""


def queues(connection: DuckDBPyConnection, steps: Steps, ended_ns: int) -> Queues:
    """Return all queues that have a row.

    Args:
        ended_ns: when the captures ended.
    """
    connection.execute(_WENT)
    connection.execute(_CHOSEN, {"limit": QUEUES_LIMIT, "ended_ns": ended_ns})
    found = [Queue(**row) for row in rows(connection, _QUEUES)]
    for row in rows(connection, _HOSTS, limit=HOSTS_EACH):
        found[row["thing"]].hosts[row["label"]] = None
    every = [courses(connection, steps, len(found), each) for each in (_ARRIVED, _CONFIRMED)]
    for queue, (arrived, arriving), (confirmed, confirming) in zip(found, *every, strict=True):
        queue.arrived, queue.confirmed = arrived, confirmed
        queue.course = arriving if arrived.count else confirming
    [[count]] = connection.execute("select count(*) from histories").fetchall()
    return Queues(found, count - sum(queue.messages for queue in found))
