"""Random numbers: each subject has its own dice, so one more draw for one leaves the others unchanged."""

from __future__ import annotations

import random


def chance(seed: int, *subject: str) -> random.Random:
    """Return the dice for one subject, as in `chance(7, "kill", "sender")`."""
    return random.Random(f"{seed}/{'/'.join(subject)}")
