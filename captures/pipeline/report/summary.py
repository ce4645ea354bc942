"""The report as text for a terminal, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from mqproto.base.words import counted
from mqproto.captures.decode.views import quality
from mqproto.captures.decode.views.words import duration
from mqproto.captures.pipeline.report.facts.facts import (
    TO_DESTINATION,
    TO_ORDER_ACK,
    Course,
    Facts,
    Messages,
    Queue,
    Story,
    slowest,
    worth_a_look,
)
from mqproto.captures.pipeline.report.facts.overtime import SPELLS_SHOWN, slow_texts
from mqproto.captures.pipeline.report.facts.security import Security, why_weak
from mqproto.captures.pipeline.report.facts.spread import Spread
from mqproto.captures.pipeline.report.facts.words import (
    about,
    decode_command,
    frame_filter,
    gaps_text,
    harmless,
    rate,
    sentence,
    size,
    took,
    when,
)

POINTS_LISTED: Final = 8
LISTED_EACH: Final = 10
"""How many queues, and how many hops, are listed at most.

They are alternately the slowest ones and those with the most messages.
"""
LISTED: Final = 3
BRIEFED: Final = 10
"""The number of items from each list that programs get."""
LISTS: Final = "stuck", "unknown", "failed", "slowest", "latest", "resent"
BRIEF: Final = (
    *("message", "label", "outcome", "whereabouts", "route", "first_ns", "arrived_ns", "order_acked_ns"),
    *("resends", "file", "frame", "reason"),
)


def lines(facts: Facts) -> Iterator[str]:
    """Yield the most important facts as lines."""
    captured, messages, judged = facts.captured, facts.messages, facts.judgments
    yield f"{counted(captured.files, 'capture')}, {size(captured.size_bytes)}, {captured.frames:,} frames"
    if captured.first_ns is not None and captured.last_ns is not None:
        yield f"from {when(captured.first_ns)} UTC, {duration(captured.last_ns - captured.first_ns)}"
    yield ""
    yield from quality.lines(facts.points[:POINTS_LISTED], captured.reasons, captured.lacking)
    if len(facts.points) > POINTS_LISTED:
        yield f"and {counted(len(facts.points) - POINTS_LISTED, 'capture point')} more"
    yield ""
    outcomes = ", ".join(f"{count:,} {harmless(outcome)}" for outcome, count in messages.outcomes.items())
    yield f"{counted(messages.count, 'message')}{': ' if outcomes else ''}{outcomes}"
    yield from _spread(TO_DESTINATION, messages.arrived)
    yield from _spread(TO_ORDER_ACK, messages.confirmed)
    yield from _queues(facts)
    yield from _hops(facts)
    sequences = facts.sequences
    if sequences.gaps:
        yield ""
        yield f"{counted(sequences.count, 'sequence')}, {gaps_text(sequences)}"
    yield from _security(facts.security, messages.count)
    for title, rows in (
        ("not seen to end", messages.stuck),
        ("not known, as the captures cannot tell", messages.unknown),
        ("refused or expired", messages.failed),
        ("longest to their destination", messages.slowest),
        ("longest until their OrderAck", messages.latest),
        ("sent again most often", messages.resent),
    ):
        if rows:
            yield ""
            yield f"{title}:"
        for row in rows[:LISTED]:
            yield f"  {_one_line(row)}"
    yield ""
    for each in judged.found:
        yield f"{harmless(each.severity):<5} {harmless(each.code):<20} {each.count:>12,}  {each.meaning}"
    if not judged.found:
        yield quality.found_nothing(captured.reasons)


def _queues(facts: Facts) -> Iterator[str]:
    queues = facts.queues.queues
    if queues:
        yield ""
        yield "queues, the slowest first:"
    for queue in slowest(worth_a_look(queues, LISTED_EACH)):
        took = "source to it" if queue.arrived.count else TO_ORDER_ACK
        parts = [counted(queue.messages, "message")]
        if queue.took.count:
            parts.append(
                f"{took} 50% {about(queue.took.quantile(0.5))}, 95% {about(queue.took.quantile(0.95))}, most "
                f"{duration(queue.took.most)}"
            )
        if queue.failed:
            parts.append(f"{queue.failed:,} refused or expired")
        if queue.unended:
            parts.append(f"{queue.unended:,} not seen to end, for {duration(queue.oldest_ns)}")
        yield f"  {harmless(queue.called or queue.name) or 'no queue'}: {', '.join(parts)}"
        yield from _since(queue.course)
    yield from _more(len(queues), "queue", facts.queues.left_out)


def _hops(facts: Facts) -> Iterator[str]:
    hops = facts.routes.hops
    if hops:
        yield ""
        yield "hops, the slowest first:"
    for hop in slowest(worth_a_look(hops, LISTED_EACH)):
        parts = [counted(hop.messages, "message")]
        speed = rate(hop.messages, hop.last_ns - hop.first_ns)
        if speed != "–":
            parts.append(speed)
        if hop.waited.count:
            parts.append(
                f"waited 50% {about(hop.waited.quantile(0.5))}, 95% {about(hop.waited.quantile(0.95))}, most "
                f"{duration(hop.waited.most)}"
            )
        if hop.answered.count:
            parts.append(
                f"answered in {about(hop.answered.quantile(0.5))}, at most {duration(hop.answered.most)}"
            )
        yield f"  {harmless(hop.from_label)} > {harmless(hop.to_label)}: {', '.join(parts)}"
        yield from _since(hop.course)
    yield from _more(len(hops), "hop", facts.routes.left_out)


def _since(course: Course | None) -> Iterator[str]:
    if course is not None:
        yield from (f"    {harmless(text)}" for text in slow_texts(course))


def _more(count: int, what: str, left_out: int) -> Iterator[str]:
    if count > LISTED_EACH or left_out:
        yield f"  and {counted(max(count - LISTED_EACH, 0), what)} more{' at least' if left_out else ''}, less slow"


def _security(found: Security, in_all: int) -> Iterator[str]:
    """Yield the lines about security; none if no message states anything about it."""
    if not found.is_there:
        return
    yield ""
    parts = [f"{found.signed:,} signed", f"{found.encrypted:,} encrypted", f"{found.bare:,} neither"]
    if found.claimed:
        parts.insert(1, f"{found.claimed:,} not signed that name a sender")
    yield f"of {counted(in_all, 'message')}: {', '.join(parts)}"
    for each in (*found.signatures[:LISTED_EACH], *found.ciphers[:LISTED_EACH]):
        weak = ", weak" if why_weak(each.algorithm) else ""
        sender = f" by {each.sender_kind or ''} {each.sender_id}" if each.sender_id else ""
        text = f"{each.algorithm}{weak}{sender}, {each.messages:,}: {each.said}"
        yield f"  {'signed' if each.is_signature else 'encrypted'} {harmless(text)}"
    if found.altered:
        yield f"  {counted(found.altered, 'further packet')} with a signature that does not hold"


def _spread(name: str, spread: Spread) -> Iterator[str]:
    if spread.count:
        shares = ", ".join(f"{share:.0%} {about(spread.quantile(share))}" for share in (0.5, 0.95, 0.99))
        yield f"{name}: {shares}, most {duration(spread.most)}"


def _one_line(row: dict[str, Any]) -> str:
    number = row["message"].rpartition("\\")[-1]
    parts = [
        f"{harmless(row['label'])} \\{harmless(number)}: {harmless(row['outcome'])}, {harmless(row['whereabouts'])}"
    ]
    if row.get("reason"):
        parts.append(harmless(row["reason"]))
    if row["latency_ns"] is not None and row["hops"] > 1:
        said = took("", row["latency_ns"], row["latency_uncertainty_ns"])
        parts.append(f"{sentence(said).strip()} to its destination")
    if row["order_acked_ns"] is not None:
        parts.append(f"OrderAck after {duration(row['order_acked_ns'] - row['first_ns'])}")
    if row["resends"]:
        parts.append(f"sent again {counted(row['resends'], 'time')}")
    return ", ".join(parts).lstrip()


def story(row: dict[str, Any], told: Story) -> Iterator[str]:
    """Yield the story of one message, line by line.

    Args:
        row: the message's row of HISTORIES.
    """
    message, queue, delivery = (harmless(row[name]) for name in ("message", "queue", "delivery"))
    yield f"{harmless(row['label']) or '(no label)'}: {harmless(row['outcome'])}, {harmless(row['whereabouts'])}"
    yield f"  {message}, to {queue}, {delivery}, {row['body_bytes']:,} bytes"
    if told.secured is not None:
        for name, text in told.secured.told().items():
            yield f"  {name}: {harmless(text, limit=None)}"
    yield f"  {sentence(told.verdict)}"
    for step in told.steps:
        place = (
            ""
            if step.place is None
            else f"  ({frame_filter(step.place.frame)} in {harmless(step.place.file)})"
        )
        since = duration(step.time_ns - row["first_ns"])
        yield f"  {when(step.time_ns)}  {since:>8}  {sentence(step.said)}{place}"
    yield f"  {harmless(decode_command(row['file'], message=row['message']), limit=None)}"


def story_as_json(row: dict[str, Any], told: Story) -> dict[str, Any]:
    """Return the story of one message as JSON for programs."""
    steps = [
        {
            "time_ns": step.time_ns,
            "what": sentence(step.said),
            "file": None if step.place is None else step.place.file,
            "frame": None if step.place is None else step.place.frame,
        }
        for step in told.steps
    ]
    secured = None if told.secured is None else told.secured._asdict()
    return row | {"verdict": sentence(told.verdict), "steps": steps, "security": secured}


def as_json(facts: Facts) -> dict[str, Any]:
    """Return the facts as JSON for programs; times are in ns since 1970."""
    messages = facts.messages
    return {
        "captures": _some(facts.captured, "files size_bytes frames damaged first_ns last_ns"),
        "lacks": facts.captured.lacking,
        "points": [quality.as_json(point) for point in facts.points],
        "packets": facts.traffic.kinds if facts.traffic is not None else {},
        "messages": {
            **_some(messages, "count resends outcomes"),
            **_ends(messages),
            **{name: [_brief(row) for row in getattr(messages, name)[:BRIEFED]] for name in LISTS},
        },
        "queues": [
            {
                "queue": queue.name,
                "called": queue.called or None,
                **_some(queue, "messages ended failed unended oldest_ns"),
                **_ends(queue),
                "course": _course(queue.course),
            }
            for queue in facts.queues.queues
        ],
        "hops": [
            {
                "from": hop.from_label,
                "to": hop.to_label,
                **_some(hop, "messages copies first_ns last_ns"),
                "waited": hop.waited.as_json(),
                "answered": hop.answered.as_json(),
                "course": _course(hop.course),
            }
            for hop in facts.routes.hops
        ],
        "sequences": _some(facts.sequences, "count gaps gaps_open"),
        "findings": [_some(each, "severity code count") for each in facts.judgments.found],
        "security": _counts(facts.security),
        "sessions": facts.judgments.sessions,
        "arrivals": facts.judgments.verdicts,
    }


def _some(facts: object, names: str) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in names.split()}


def _ends(of: Messages | Queue) -> dict[str, Any]:
    return {"to_destination": of.arrived.as_json(), "until_order_ack": of.confirmed.as_json()}


def _counts(found: Security) -> dict[str, Any]:
    """Return the counts; `weak` has the number of messages that depend on each weak hash or cipher."""
    counts = asdict(found)
    for name in ("signatures", "ciphers"):
        counts[name] = counts[name][:BRIEFED]
    return counts | {"weak": found.weak()}


def _course(course: Course | None) -> dict[str, Any] | None:
    """Return a course as JSON for programs; steps in which nothing began have no durations."""
    if course is None:
        return None

    def known(values: list[int]) -> list[int | None]:
        return [ns if count else None for ns, count in zip(values, course.counts, strict=True)]

    return {
        **_some(course, "first_ns step_ns counts"),
        "p50_ns": known(course.half_ns),
        "p95_ns": known(course.slow_ns),
        "most_ns": known(course.most_ns),
        "waiting": course.waiting,
        "slow": [asdict(spell) for spell in course.spells[:SPELLS_SHOWN]],
        "slow_count": len(course.spells),
    }


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in BRIEF}
