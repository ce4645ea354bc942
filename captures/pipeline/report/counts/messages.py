"""Outcomes of messages: counts of all, the worst messages, and those that readers can look up."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from duckdb import DuckDBPyConnection

from mqproto.captures.pipeline.report.counts.asking import rows, spreads
from mqproto.captures.pipeline.report.counts.judgments import counts
from mqproto.captures.pipeline.report.counts.queues import CALLED
from mqproto.captures.pipeline.report.facts.facts import Messages
from mqproto.captures.pipeline.report.facts.spread import Spread
from mqproto.captures.pipeline.report.facts.words import BAD, GOOD, STUCK, harmless, why
from mqproto.captures.pipeline.stages.schema import HISTORIES
from mqproto.captures.pipeline.tables.tables import Tables

EMBEDDED_LIMIT: Final = 5_000
"""The maximum number of messages that the page lets readers look up, at about 500 bytes each."""
HOPS_EACH: Final = 8
ARRIVALS_EACH: Final = 20
"""The maximum ratio of arrivals to the limit for messages, such as EMBEDDED_LIMIT.

If there are more arrivals, the page does not hold all messages. HOPS_EACH is the same for hops. Nothing else keeps the
text for each message short.
"""
KEPT: Final = 400
"""The maximum length of each list of messages.

If the page has no room for all messages, it holds only these lists.
"""
HISTORY: Final = ", ".join(
    name for name in HISTORIES.names if name not in ("hop_ns", "row_id", "number", "file_offset")
)
_TOOK: Final = """
select 0 as thing, latency_ns as took_ns from histories where hops > 1
union all select 1, order_acked_ns - first_ns from histories
"""
_FAILURES: Final = f"""
select outcome, final_class, administration, count(*) as count from histories where outcome in {BAD}
group by all order by count(*) desc, min(place)
"""
_LISTS: Final = {
    "stuck": f"where outcome in {STUCK} order by first_ns",
    "unknown": f"where outcome not in {GOOD + STUCK + BAD} order by first_ns",
    "failed": f"where outcome in {BAD} order by first_ns",
    "slowest": f"where latency_ns > 0 and outcome not in {BAD} order by latency_ns desc",
    "latest": f"where order_acked_ns - first_ns > 0 and outcome not in {BAD} "
    "order by order_acked_ns - first_ns desc",
    "resent": "where resends > 0 order by resends desc",
}
_NAMED: Final = "(label = $text or message = $text or ends_with(message, chr(92) || $text))"
"""The condition for messages whose label or identifier is the text, or whose identifier ends with the text."""
_PART: Final = "(contains(lower(label), lower($text)) or contains(lower(message), lower($text)))"
_QUEUE: Final = f"""(contains(lower(queue), lower($queue))
    or queue in (select name from ({CALLED}) where contains(lower(called), lower($queue))))"""
_HOST: Final = "len(list_filter(route, lambda label: contains(lower(label), lower($host)))) > 0"


def messages(
    tables: Tables, connection: DuckDBPyConnection, embedded_limit: int = EMBEDDED_LIMIT
) -> Messages:
    """Return the outcomes of all messages, and the lists of the worst ones."""
    found = Messages(every=has_room(tables, embedded_limit))
    found.outcomes = counts(connection, "histories", "outcome")
    [[found.count, found.resends]] = connection.execute(
        "select count(*), coalesce(sum(resends), 0) from histories"
    ).fetchall()
    for row in rows(connection, _FAILURES):
        text = row["outcome"] + why(row)
        found.failures[text] = found.failures.get(text, 0) + row["count"]
    took = spreads(connection, _TOOK)
    found.arrived, found.confirmed = (took.get(thing, Spread()) for thing in (0, 1))
    for name, which in _LISTS.items():
        sql = f"select {HISTORY} from histories {which}, place limit {KEPT}"
        setattr(found, name, [*rows(connection, sql)])
    if found.every:
        found.embedded = [*rows(connection, f"select {HISTORY} from histories order by place")]
    else:
        lists = (getattr(found, name) for name in _LISTS)
        found.embedded = list({row["message"]: row for each in lists for row in each}.values())
    found.embedded.sort(key=lambda row: (row["first_ns"], len(row["message"]), row["message"]))
    return found


def has_room(tables: Tables, embedded_limit: int) -> bool:
    """Whether the page has room for all messages."""
    limits = {"histories": 1, "hops": HOPS_EACH, "duplicates": ARRIVALS_EACH}
    return all(tables.rows(name) <= each * embedded_limit for name, each in limits.items())


class Sought(NamedTuple):
    """The texts to search for in messages, ignoring case; an empty text matches all messages.

    text: part of the label or identifier. If it is the whole label or identifier of some messages, or the end of their
        identifiers, only these messages match.
    queue: part of the queue's format name, or of the name that people use for it.
    host: the label of a queue manager on the route.
    """

    text: str = ""
    queue: str = ""
    host: str = ""

    def __str__(self) -> str:
        """Return the search in words."""
        names = {"label or identifier": self.text, "queue": self.queue, "host": self.host}
        return ", ".join(f"{harmless(text)!r} in its {name}" for name, text in names.items() if text)


def named(connection: DuckDBPyConnection, sought: Sought, limit: int) -> list[dict[str, Any]]:
    """Return the histories of messages that match a search, at most `limit`, in the order of the table."""
    # What is typed in a shell may be no text.
    values = {
        name: text.encode("utf-8", "replace").decode() for name, text in sought._asdict().items() if text
    }
    also = [where for name, where in (("queue", _QUEUE), ("host", _HOST)) if name in values]
    for text in (_NAMED, _PART) if sought.text else ("true",):
        where = " and ".join((text, *also))
        sql = f"select {HISTORY} from histories where {where} order by place limit {limit}"
        if found := [*rows(connection, sql, **values)]:
            return found
    return []
