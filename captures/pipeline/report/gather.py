"""From tables to facts."""

from __future__ import annotations

from typing import Any, Final

from mqproto.captures.pipeline.report.counts.judgments import EXAMPLES, LINKED, complete, judgments, look_up
from mqproto.captures.pipeline.report.counts.messages import EMBEDDED_LIMIT, has_room, messages
from mqproto.captures.pipeline.report.counts.places import Places
from mqproto.captures.pipeline.report.counts.quality import quality
from mqproto.captures.pipeline.report.counts.queues import queues
from mqproto.captures.pipeline.report.counts.routes import routes
from mqproto.captures.pipeline.report.counts.scanning import rows
from mqproto.captures.pipeline.report.counts.security import security
from mqproto.captures.pipeline.report.counts.sequences import sequences
from mqproto.captures.pipeline.report.counts.spells import look_at_spells
from mqproto.captures.pipeline.report.counts.stories import evidence, stories
from mqproto.captures.pipeline.report.counts.traffic import traffic
from mqproto.captures.pipeline.report.facts.facts import Captured, Facts, Story
from mqproto.captures.pipeline.report.facts.overtime import steps_of
from mqproto.captures.pipeline.tables.tables import Tables, TablesError

FILES_SHOWN: Final = 50
_CAPTURES: Final = (
    "file",
    "size_bytes",
    "frames",
    "segment_frames",
    "ping_frames",
    "other_frames",
    "other_reasons",
    "cut_frames",
    "first_ns",
    "last_ns",
    "damage",
    "damage_offset",
)


def gather(tables: Tables, *, embedded_limit: int = EMBEDDED_LIMIT) -> Facts:
    """Everything that a report says.

    Args:
        embedded_limit: up to how many messages, all of them can be looked up in the page.

    Raises:
        TablesError: no captures were analysed into this folder.
    """
    if tables.row is None:
        raise TablesError(
            f"{tables.folder} has no tables: run mqproto analyse CAPTURES --out {tables.folder}"
        )
    captured = _captured(tables)
    judged = judgments(tables, LINKED if has_room(tables, embedded_limit) else EXAMPLES)
    went = messages(tables, embedded_limit)
    steps = steps_of(captured)
    hops = routes(tables, steps)

    waiting = queues(tables, steps, captured.last_ns or 0)
    look_at_spells(tables, hops, waiting, captured.last_ns or 0)

    places = Places()
    look_up(judged, places)
    known = evidence(tables, went.embedded, places)
    places.find(tables)
    complete(judged, places)
    went.stories = dict(stories(known, places, captured.last_ns or 0))
    return Facts(
        tables.folder,
        captured,
        [*quality(tables).found.values()],
        traffic(tables, captured),
        hops,
        waiting,
        went,
        sequences(tables, hops.labels),
        judged,
        security(tables),
    )


def told(tables: Tables, histories: list[dict[str, Any]]) -> dict[str, Story]:
    """What happened to some messages, whose rows are as HISTORIES has them; by the message."""
    places = Places()
    known = evidence(tables, histories, places)
    places.find(tables)
    return dict(stories(known, places, _captured(tables).last_ns or 0))


def _captured(tables: Tables) -> Captured:
    captured = Captured()
    for row in rows(tables, "captures", _CAPTURES):
        captured.files += 1
        for name in ("size_bytes", "frames", "segment_frames", "ping_frames", "other_frames", "cut_frames"):
            setattr(captured, name, getattr(captured, name) + row[name])
        captured.reasons.update(dict(row["other_reasons"] or ()))
        captured.damaged += row["damage"] is not None
        if row["first_ns"] is not None:
            times_ns = [captured.first_ns, captured.last_ns, row["first_ns"], row["last_ns"]]
            known_ns = [time_ns for time_ns in times_ns if time_ns is not None]
            captured.first_ns, captured.last_ns = min(known_ns), max(known_ns)
        if len(captured.shown) < FILES_SHOWN:
            captured.shown.append(row)
    return captured
