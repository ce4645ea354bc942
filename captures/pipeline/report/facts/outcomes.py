"""The outcomes of messages that a report distinguishes.

These are the outcomes in the tables. Any other outcome means that the captures
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
    """Return the style in which an outcome is shown: `good`, `bad` or `open`."""
    return "good" if outcome in GOOD else "bad" if outcome in BAD else "open"


def total(outcomes: dict[str, int], texts: tuple[str, ...]) -> int:
    """Return the number of messages with one of these outcomes."""
    return sum(outcomes.get(text, 0) for text in texts)


def unknown(outcomes: dict[str, int]) -> int:
    """Return the number of messages with an unknown outcome."""
    return sum(outcomes.values()) - total(outcomes, GOOD + BAD + STUCK)


def why(row: dict[str, Any]) -> str:
    """Return a colon and the first refusal of a message in words; empty if there is none of a known class."""
    names = (row["final_class"], *(row["administration"] or ()))
    return next((f": {_REFUSALS[name]}" for name in names if name in _REFUSALS), "")
