"""What an audit has found, for people and for programs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from simulator.edges.operators.ends import End, Evidence, end_of
from simulator.edges.operators.reading import Audit

SHOWN: Final = 20
"""So many messages are named that nobody has."""


def each_as_json(audit: Audit) -> list[dict[str, str]]:
    """Every message for programs."""
    return [
        {
            "message": message,
            "key": known.key,
            "queue": known.queue,
            "end": end_of(known),
            "reason": reason_of(known),
        }
        for message, known in audit.answered.items()
    ]


def as_json(audit: Audit) -> dict[str, Any]:
    """All of it for programs."""
    ends, answered = audit.counted(), audit.answered
    return {
        "answered": len(answered),
        "ends": {str(end): len(messages) for end, messages in ends.items()},
        "unaccounted": [
            {"message": message, "queue": answered[message].queue, "key": answered[message].key}
            for message in ends[End.UNACCOUNTED]
        ],
        **({"forgotten": audit.forgotten.messages} if audit.forgotten else {}),
        **asdict(audit.unknown),
    }


def told(audit: Audit, again: str = "") -> Iterator[str]:
    """The same for people."""
    ends, answered = audit.counted(), audit.answered
    width = len(f"{len(answered):,}")
    yield f"{len(answered):,} answered 200"
    for end, messages in ends.items():
        if messages or end is End.UNACCOUNTED:
            yield f"{len(messages):{width},} {end}" + _reasons([answered[message] for message in messages])
    if audit.forgotten is not None and audit.forgotten.messages:
        gone = audit.forgotten
        yield (
            f"{gone.messages:,} more, the last of {gone.last:%Y-%m-%d}, are counted only as far as logs have them: "
            f"the history keeps ids for {gone.keep_days:g} days"
        )
    for message in ends[End.UNACCOUNTED][:SHOWN]:
        known = answered[message]
        key = f" ({known.key})" if known.key else ""
        subject = shlex.quote(known.key or message)
        yield f"nobody has {message}{key} for {known.queue}: `mqproto history {subject}{again}`"
    if (more := len(ends[End.UNACCOUNTED]) - SHOWN) > 0:
        yield f"and {more:,} more"
    yield from audit.unknown.told()


def each_told(audit: Audit) -> Iterator[str]:
    """Every message for people."""
    for message, known in audit.answered.items():
        reason = f" ({reason})" if (reason := reason_of(known)) else ""
        yield f"{message} {known.key or '-'} for {known.queue}: {end_of(known)}{reason}"


def _reasons(found: list[Evidence]) -> str:
    """Why copies and dead letters are where they are."""
    reasons = Counter(reason for known in found if (reason := reason_of(known)))
    return ": " * bool(reasons) + ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())


def reason_of(known: Evidence) -> str:
    """Why it is where it is; empty where that says it."""
    match end_of(known):
        case End.IN_ERROR_QUEUE:
            return known.copied
        case End.DEAD_LETTER | End.LETTER_TAKEN:
            return known.confirmed
        case End.COPY_TAKEN:
            return known.removals[-1].reason
    return ""
