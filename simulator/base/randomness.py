"""Random numbers: each subject has its own generator, so one more draw for one subject leaves the others unchanged."""

from __future__ import annotations

import random


def chance(seed: int, *subject: str) -> random.Random:
    """Return the random number generator for one subject, as in `chance(7, "kill", "sender")`."""
    return random.Random(f"{seed}/{'/'.join(subject)}")
