"""The dice. Each subject has its own, so that one more draw about one of them leaves every other as it was."""

from __future__ import annotations

import random


def chance(seed: int, *subject: str) -> random.Random:
    """The dice of one subject: `chance(7, "kill", "sender")`."""
    return random.Random(f"{seed}/{'/'.join(subject)}")
