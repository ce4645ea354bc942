"""Gathers the facts of a report from the tables."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.decode.findings import LACKING
from mqproto.captures.decode.sight import MESSAGES, Kind
from mqproto.captures.pipeline.report.counts.asking import asked, rows
from mqproto.captures.pipeline.report.counts.judgments import EXAMPLES, LINKED, complete, judgments, look_up
from mqproto.captures.pipeline.report.counts.messages import EMBEDDED_LIMIT, Sought, has_room, messages, named
from mqproto.captures.pipeline.report.counts.places import Places
from mqproto.captures.pipeline.report.counts.quality import quality
from mqproto.captures.pipeline.report.counts.queues import queues
from mqproto.captures.pipeline.report.counts.routes import look_at_spells, routes
from mqproto.captures.pipeline.report.counts.security import security
from mqproto.captures.pipeline.report.counts.sequences import sequences
from mqproto.captures.pipeline.report.counts.stories import evidence, stories
from mqproto.captures.pipeline.report.facts.facts import Captured, Facts, Story, Traffic
from mqproto.captures.pipeline.report.facts.overtime import steps_of
from mqproto.captures.pipeline.tables.tables import Tables, TablesError

FILES_SHOWN: Final = 50
_CAPTURED: Final = """
select count(*) as files, count(damage) as damaged, min(first_ns) as first_ns,
    max(last_ns) filter (first_ns is not null) as last_ns,
    coalesce(sum(columns('^(size_bytes|frames|(segment|ping|other|cut)_frames)$')), 0) as '\\1'
from captures
"""
_REASONS: Final = """
select reason.key, sum(reason.value)::bigint
from (select unnest(map_entries(other_reasons)) as reason, place from captures)
group by reason.key order by min(place), reason.key
"""
_SHOWN: Final = """
select file, size_bytes, frames, first_ns, last_ns, damage, damage_offset from captures order by place limit $limit
"""
_SPAN: Final = """
with each as (
    select captures.place, max(by_reference(first_ns, clocks)) as first_ns,
        min(by_reference(last_ns, clocks)) as last_ns
    from captures left join clocks using (series) group by captures.place
)
select coalesce(min(first_ns), 0), coalesce(max(last_ns) filter (first_ns is not null), 0) from each
"""
"""Selects when the captures began and ended, by the reference clock."""
_LACKING: Final = """
select concat(coalesce(file || ': byte ' || file_offset, series), ': ', text)
from findings where list_contains($codes, code) order by place limit $limit
"""


def gather(tables: Tables, *, embedded_limit: int = EMBEDDED_LIMIT) -> Facts:
    """Return all facts of a report.

    Args:
        embedded_limit: the page lets readers look up all messages if there are at most this many.

    Raises:
        TablesError: no captures were analyzed into this folder.
    """
    if tables.row is None:
        raise TablesError(
            f"{tables.folder} has no tables: run mqproto analyse CAPTURES --out {tables.folder}"
        )
    with asked(tables) as connection:
        captured = _captured(connection)
        judged = judgments(connection, LINKED if has_room(tables, embedded_limit) else EXAMPLES)
        went = messages(tables, connection, embedded_limit)
        steps = steps_of(captured)
        hops = routes(connection, steps)

        began_ns, ended_ns = connection.execute(_SPAN).fetchall()[0]
        waiting = queues(connection, steps, ended_ns)
        look_at_spells(connection, hops, waiting, began_ns, ended_ns)

        places = Places()
        look_up(judged, places)
        went.stories = _told(tables, connection, went.embedded, places)
        complete(judged, places)
        return Facts(
            tables.folder,
            captured,
            [*quality(connection).found.values()],
            traffic(connection, captured),
            hops,
            waiting,
            went,
            sequences(connection, hops.labels),
            judged,
            security(connection),
        )


def find(tables: Tables, sought: Sought, limit: int) -> list[tuple[dict[str, Any], Story]]:
    """Return the histories of messages that match a search, at most `limit`, each with its story."""
    with asked(tables) as connection:
        histories = named(connection, sought, limit)
        found = _told(tables, connection, histories, Places())
        return [(row, found[row["message"]]) for row in histories]


def _told(
    tables: Tables, connection: DuckDBPyConnection, histories: list[dict[str, Any]], places: Places
) -> dict[str, Story]:
    """Return the stories of some messages, keyed by message; this also finds every packet requested from `places`."""
    known = evidence(connection, tables.state.get("series", {}), histories, places)
    places.find(connection)
    [(_, ended_ns)] = connection.execute(_SPAN).fetchall()
    return dict(stories(known, places, ended_ns))


def _captured(connection: DuckDBPyConnection) -> Captured:
    [counts] = rows(connection, _CAPTURED)
    reasons = Counter(dict(connection.execute(_REASONS).fetchall()))
    shown = [*rows(connection, _SHOWN, limit=FILES_SHOWN)]
    lacking = connection.execute(_LACKING, {"codes": LACKING, "limit": EXAMPLES}).fetchall()
    return Captured(**counts, reasons=reasons, shown=shown, lacking=[text for (text,) in lacking])


SORTS: Final = {
    "messages": MESSAGES | {Kind.REPORT},
    "acknowledgments": {Kind.SESSION_ACK, Kind.ORDER_ACK, Kind.FINAL_ACK, Kind.ADMIN_ACK},
    "sessions and pings": {Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS, Kind.PING},
}
MALFORMED: Final = "malformed"
_PACKETS: Final = """
select step_of(time_ns, $steps) as step, coalesce(nullif(kind, ''), $malformed) as kind, count(*) as packets,
    sum(size_bytes) as size_bytes
from packets group by all
"""


def traffic(connection: DuckDBPyConnection, captured: Captured) -> Traffic | None:
    """Return the packets over time; None if there are none."""
    if captured.first_ns is None or captured.last_ns is None:
        return None
    steps = steps_of(captured)
    sort_of = {str(kind): name for name, kinds in SORTS.items() for kind in kinds}
    counts = {name: [0] * steps.length for name in (*SORTS, MALFORMED)}
    sizes = [0] * steps.length
    kinds: Counter[str] = Counter()
    for row in rows(connection, _PACKETS, steps=steps._asdict(), malformed=str(Kind.MALFORMED)):
        kinds[row["kind"]] += row["packets"]
        counts[sort_of.get(row["kind"], MALFORMED)][row["step"]] += row["packets"]
        sizes[row["step"]] += row["size_bytes"] or 0
    if not kinds:
        return None
    return Traffic(
        steps.first_ns,
        steps.step_ns,
        {name: each for name, each in counts.items() if any(each)},
        sizes,
        dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
    )
