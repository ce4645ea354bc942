"""Presents the results of an audit, and failed messages, as text and as values for programs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from mqproto.base import foreign
from mqproto.base.words import counted
from mqproto.edge.custody import (
    OWNERS,
    End,
    Ended,
    Evidence,
    end_of,
    lives_of,
    owner_of,
    reason_of,
)
from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.client.talk import message_as_json
from mqproto.simulator.edges.operators.failures import FailedMessage
from mqproto.simulator.edges.operators.reading import Audit

NAMED: Final = 20
"""The maximum number of messages that are listed by name because nobody has them."""
REASONS: Final = 10
"""The maximum number of reasons that are named, each with its count."""
SHOWN: Final = 4_096
"""The maximum number of characters of a foreign value that are shown; --json has all of them."""


# Audits


def audit_as_json(audit: Audit, *, each: bool) -> dict[str, Any]:
    """Return the audit as values for programs; with `each`, include every message."""
    ends, answered = audit.counted(), audit.answered

    def named(message: str) -> dict[str, Any]:
        return known_as_json(message, answered[message])

    return {
        "answered": len(answered),
        "ends": {str(end): len(messages) for end, messages in ends.items()},
        "unaccounted": [named(message) for message in ends[End.UNACCOUNTED]],
        **({"forgotten": audit.forgotten.messages} if audit.forgotten else {}),
        **asdict(audit.unknown),
        **({"messages": list(map(named, answered))} if each else {}),
    }


def known_as_json(message: str, known: Evidence) -> dict[str, Any]:
    """Return who has a message, and its outcome, as values for programs."""
    lives = lives_of(known)
    return {
        "message": message,
        "queue": known.queue,
        "key": known.key,
        "state": lives[-1].state,
        "end": end_of(known),
        "reason": reason_of(known),
        "owner": owner_of(known),
        "lives": [life._asdict() for life in lives],
    }


def known_told(message: str, known: Evidence) -> Iterator[str]:
    """Yield lines that say who has a message, and its outcome. The earlier lives of the message come last."""
    end = end_of(known)
    if end is End.UNACCOUNTED and not known.promised:
        yield f"nobody has {message}: it was received, or it ended and no dead letter was asked for"
        return
    where = f", {known.where}" * (end not in OWNERS)
    *before, now = lives_of(known)
    yield f"{_named(message, known)}: {end}{where}{_because(reason_of(known), now)}"
    for life in before:
        yield f"  before, as {life.message}: {life.state}{_because(life.message_class, life)}"


def _because(reason: str, life: Ended) -> str:
    attempts = counted(life.attempts, "attempt") * bool(life.attempts)
    why = "; ".join(filter(None, (reason, foreign.shown(life.reason, SHOWN), attempts)))
    return f" ({why})" * bool(why)


def audit_told(audit: Audit, again: str = "", *, each: bool = False) -> Iterator[str]:
    """Yield the lines of the audit."""
    ends, answered = audit.counted(), audit.answered
    for message, known in answered.items() if each else ():
        yield from known_told(message, known)
    width = len(f"{len(answered):,}")
    yield f"{len(answered):,} answered 200"
    for end, messages in ends.items():
        if messages or end is End.UNACCOUNTED:
            reasons = Counter(filter(None, (reason_of(answered[message]) for message in messages)))
            why = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
            yield f"{len(messages):{width},} {end}" + f": {why}" * bool(why)
    if audit.forgotten is not None and audit.forgotten.messages:
        gone = audit.forgotten
        yield (
            f"{gone.messages:,} more are counted only as far as logs have them: nodes keep ids for "
            f"{gone.keep_days:g} days"
        )
    for message in ends[End.UNACCOUNTED][:NAMED]:
        known = answered[message]
        subject = shlex.quote(known.key or message)
        yield f"nobody has {_named(message, known)}: `mqproto history {subject}{again}`"
    if (more := len(ends[End.UNACCOUNTED]) - NAMED) > 0:
        yield f"and {more:,} more"
    yield from audit.unknown.told()


# Failures


def failures_told(failures: list[FailedMessage]) -> Iterator[str]:
    """Yield a line for each failure, grouped by queue, and then the number of failures for each of the most frequent
    reasons.
    """
    for where, run in groupby(failures, key=lambda failure: failure.place):
        there = list(run)
        yield f"{where}: {counted(len(there), 'message')}"
        for failure in there:
            yield f"  {_line(failure)}"
    reasons = Counter(map(_why, failures))
    yield f"{counted(len(failures), 'message')} failed" + ":" * bool(reasons)
    for reason, count in reasons.most_common(REASONS):
        yield f"  {count:,} {reason}"
    if len(reasons) > REASONS:
        yield f"  {len(reasons) - REASONS:,} reasons more"


def failure_shown(failure: FailedMessage, message: ReceivedMessage) -> Iterator[str]:
    """Yield lines about everything that is known about a failure, and about its copy or dead letter."""
    yield _line(failure)
    yield f"in {failure.place} as {failure.lies_as}"
    kind = Envelope.of(message.extension).content_type
    for name, value in (("content_type", kind), *message_as_json(message).items()):
        if value not in ("", None, [], 0, False):
            yield f"{name}: {foreign.shown(str(value), SHOWN)}"


def _line(failure: FailedMessage) -> str:
    attempts = f", {counted(failure.attempts, 'attempt')}" * bool(failure.attempts)
    return f"{_named(failure.id, failure)}: {_why(failure)}{attempts}, {failure.since:%Y-%m-%d %H:%M:%S}"


def _named(message: str, known: Evidence | FailedMessage) -> str:
    return message + f" ({known.key})" * bool(known.key) + f" for {known.queue}" * bool(known.queue)


def _why(failure: FailedMessage) -> str:
    return failure.failure + (f": {foreign.shown(failure.reason, SHOWN)}" if failure.reason else "")
