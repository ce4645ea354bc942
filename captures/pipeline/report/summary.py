"""The report for a terminal, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from captures.pipeline.report.facts import Facts, Story
from captures.pipeline.report.spread import Spread
from captures.pipeline.report.words import (
    about,
    counted,
    decode_command,
    duration,
    frame_filter,
    gaps_text,
    harmless,
    rate,
    sentence,
    size,
    when,
)

HOPS_LISTED: Final = 10
LISTED: Final = 3
BRIEFED: Final = 10
"""How many of each list programs get."""


def lines(facts: Facts) -> Iterator[str]:
    """What is worth knowing at once."""
    captured, messages, judged = facts.captured, facts.messages, facts.judgments
    yield f"{counted(captured.files, 'capture')}, {size(captured.size_bytes)}, {captured.frames:,} frames"
    if captured.first_ns is not None and captured.last_ns is not None:
        yield f"from {when(captured.first_ns)} UTC, {duration(captured.last_ns - captured.first_ns)}"
    yield ""
    outcomes = ", ".join(f"{count:,} {harmless(outcome)}" for outcome, count in messages.outcomes.items())
    yield f"{counted(messages.count, 'message')}{': ' if outcomes else ''}{outcomes}"
    yield from _spread("to the destination", messages.arrived)
    yield from _spread("until the OrderAck", messages.confirmed)
    if facts.routes.hops:
        yield ""
    for hop in facts.routes.hops[:HOPS_LISTED]:
        speed = rate(hop.messages, hop.last_ns - hop.first_ns)
        waited = f", waited {about(hop.waited.quantile(0.5))}" if hop.waited.count else ""
        answered = f", answered in {about(hop.answered.quantile(0.5))}" if hop.answered.count else ""
        name = f"{harmless(hop.from_label)} > {harmless(hop.to_label)}"
        yield f"{name}: {counted(hop.messages, 'message')}{f', {speed}' if speed != '–' else ''}{waited}{answered}"
    left_out = len(facts.routes.hops[HOPS_LISTED:])
    if left_out:
        yield f"and {counted(left_out, 'hop')} more"
    sequences = facts.sequences
    if sequences.gaps:
        yield ""
        yield f"{counted(sequences.count, 'sequence')}, {gaps_text(sequences)}"
    for title, rows in (
        ("not seen to end", messages.stuck),
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
        yield "nothing was found to be wrong"


def _spread(name: str, spread: Spread) -> Iterator[str]:
    if spread.count:
        shares = ", ".join(f"{share:.0%} {about(spread.quantile(share))}" for share in (0.5, 0.95, 0.99))
        yield f"{name}: {shares}, most {duration(spread.most)}"


def _one_line(row: dict[str, Any]) -> str:
    number = row["message"].rpartition("\\")[-1]
    parts = [
        f"{harmless(row['label'])} \\{harmless(number)}: {harmless(row['outcome'])}, {harmless(row['whereabouts'])}"
    ]
    if row["latency_ns"] is not None and row["hops"] > 1:
        parts.append(f"{duration(row['latency_ns'])} to its destination")
    if row["order_acked_ns"] is not None:
        parts.append(f"OrderAck after {duration(row['order_acked_ns'] - row['first_ns'])}")
    if row["resends"]:
        parts.append(f"sent again {counted(row['resends'], 'time')}")
    return ", ".join(parts).lstrip()


def story(row: dict[str, Any], told: Story) -> Iterator[str]:
    """What became of one message.

    Args:
        row: as HISTORIES has it.
    """
    message, queue, delivery = (harmless(row[name]) for name in ("message", "queue", "delivery"))
    yield f"{harmless(row['label']) or '(no label)'}: {harmless(row['outcome'])}, {harmless(row['whereabouts'])}"
    yield f"  {message}, to {queue}, {delivery}, {row['body_bytes']:,} bytes"
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
    """The same for programs."""
    steps = [
        {
            "time_ns": step.time_ns,
            "what": sentence(step.said),
            "file": None if step.place is None else step.place.file,
            "frame": None if step.place is None else step.place.frame,
        }
        for step in told.steps
    ]
    return row | {"verdict": sentence(told.verdict), "steps": steps}


def as_json(facts: Facts) -> dict[str, Any]:
    """The same for programs; times in ns since 1970."""
    captured, messages = facts.captured, facts.messages
    return {
        "captures": {
            "files": captured.files,
            "size_bytes": captured.size_bytes,
            "frames": captured.frames,
            "damaged": captured.damaged,
            "first_ns": captured.first_ns,
            "last_ns": captured.last_ns,
        },
        "packets": facts.traffic.kinds if facts.traffic is not None else {},
        "messages": {
            "count": messages.count,
            "resends": messages.resends,
            "outcomes": messages.outcomes,
            "to_destination": messages.arrived.as_json(),
            "until_order_ack": messages.confirmed.as_json(),
            "stuck": [_brief(row) for row in messages.stuck[:BRIEFED]],
            "failed": [_brief(row) for row in messages.failed[:BRIEFED]],
            "slowest": [_brief(row) for row in messages.slowest[:BRIEFED]],
            "latest": [_brief(row) for row in messages.latest[:BRIEFED]],
            "resent": [_brief(row) for row in messages.resent[:BRIEFED]],
        },
        "hops": [
            {
                "from": hop.from_label,
                "to": hop.to_label,
                "messages": hop.messages,
                "copies": hop.copies,
                "first_ns": hop.first_ns,
                "last_ns": hop.last_ns,
                "waited": hop.waited.as_json(),
                "answered": hop.answered.as_json(),
            }
            for hop in facts.routes.hops
        ],
        "sequences": {
            "count": facts.sequences.count,
            "gaps": facts.sequences.gaps,
            "gaps_open": facts.sequences.gaps_open,
        },
        "findings": [
            {"severity": each.severity, "code": each.code, "count": each.count}
            for each in facts.judgments.found
        ],
        "sessions": facts.judgments.sessions,
        "arrivals": facts.judgments.verdicts,
    }


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    names = (
        "message",
        "label",
        "outcome",
        "whereabouts",
        "route",
        "first_ns",
        "arrived_ns",
        "order_acked_ns",
    )
    return {name: row[name] for name in (*names, "resends", "file", "frame")}
