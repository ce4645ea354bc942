"""The dice. Each subject has its own, so one more draw for one subject leaves the others unchanged."""

from __future__ import annotations

import random


def chance(seed: int, *subject: str) -> random.Random:
    """Return the dice of one subject: `chance(7, "kill", "sender")`."""
    return random.Random(f"{seed}/{'/'.join(subject)}")
