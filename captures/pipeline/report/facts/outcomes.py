"""The outcomes of messages that a report distinguishes.

The outcomes themselves are those that the tables have. One that is none of these is a way of saying that the captures
cannot tell.
"""

from __future__ import annotations

from typing import Any, Final

from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.wire.classes import REFUSALS

GOOD: Final = (str(Outcome.CONFIRMED), str(Outcome.REACHED), str(Outcome.ACKNOWLEDGED))
BAD: Final = (str(Outcome.REFUSED), str(Outcome.EXPIRED))
STUCK: Final = (str(Outcome.IN_FLIGHT),)

_REFUSALS: Final = {each.name: text for each, text in REFUSALS.items()}


def style(outcome: str) -> str:
    """How it is shown: `good`, `bad` or `open`."""
    return "good" if outcome in GOOD else "bad" if outcome in BAD else "open"


def total(outcomes: dict[str, int], texts: tuple[str, ...]) -> int:
    """How many messages ended so."""
    return sum(outcomes.get(text, 0) for text in texts)


def unknown(outcomes: dict[str, int]) -> int:
    """Return the number of messages with an unknown outcome."""
    return sum(outcomes.values()) - total(outcomes, GOOD + BAD + STUCK)


def why(row: dict[str, Any]) -> str:
    """What the first refusal of a message said, in words where the class of it is known, behind a colon."""
    names = (row["final_class"], *(row["administration"] or ()))
    return next((f": {_REFUSALS[name]}" for name in names if name in _REFUSALS), "")
