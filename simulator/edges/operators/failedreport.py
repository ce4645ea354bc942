"""Failures in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from mqproto.base import foreign
from mqproto.base.words import counted
from simulator.client import ReceivedMessage
from simulator.client.envelope import Envelope
from simulator.command.talk import message_as_json
from simulator.edges.operators.failures import Failure

REASONS: Final = 10
"""So many reasons are counted by name."""
SHOWN: Final = 4_096
"""Characters of a value that somebody else has written; --json has all."""


def told(failures: list[Failure]) -> Iterator[str]:
    """A line for each failure, by the queue that has it, and how many there are for each reason."""
    for where, run in groupby(failures, key=lambda failure: failure.place):
        there = list(run)
        yield f"{where}: {counted(len(there), 'message')}"
        for failure in there:
            yield f"  {_line(failure)}"
    reasons = Counter(_why(failure) for failure in failures)
    yield f"{counted(len(failures), 'message')} failed" + ":" * bool(reasons)
    for reason, count in reasons.most_common(REASONS):
        yield f"  {count:,} {reason}"
    if len(reasons) > REASONS:
        yield f"  {len(reasons) - REASONS:,} reasons more"


def shown(failure: Failure, message: ReceivedMessage) -> Iterator[str]:
    """All that is known of one; the copy, or the letter."""
    yield _line(failure)
    yield f"in {failure.place} as {failure.lies_as}"
    kind = Envelope.of(message.extension).content_type
    for name, value in (("content_type", kind), *message_as_json(message).items()):
        if value not in ("", None, [], 0, False):
            yield f"{name}: {foreign.shown(str(value), SHOWN)}"


def _line(failure: Failure) -> str:
    key = f" ({failure.key})" * bool(failure.key)
    attempts = (
        f", {failure.attempts} attempt{'' if failure.attempts == 1 else 's'}" if failure.attempts else ""
    )
    return (
        f"{failure.id}{key} for {failure.queue}: {_why(failure)}{attempts}, {failure.since:%Y-%m-%d %H:%M:%S}"
    )


def _why(failure: Failure) -> str:
    return failure.failure + (f": {foreign.shown(failure.reason, SHOWN)}" if failure.reason else "")
