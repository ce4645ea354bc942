"""Faults planted on purpose, to see that the worlds find them.

Each is named for what it breaks and replaces one attribute: of the core (core.py; upkeep.py for what it does by and
by, refusals.py for what a neighbour refuses, strangers.py for who is believed and what strangers may do, readings.py
for peers that read the text otherwise, doubts.py for dead letters of what may have arrived, secrets.py for what is
encrypted and signed), of what stands between it
and the disk (shell.py: the one loop, the store), or of both where a store goes back to an earlier moment (restored.py).
The disk in memory that says what a store must have is never damaged.
A test sees that each is found, and `make plants` tells by which seed.
"""

from tests.plants import (
    core,
    doubts,
    readings,
    refusals,
    restored,
    secrets,
    shell,
    strangers,
    upkeep,
)
from tests.plants.planting import PLANTS, Plant, planted

__all__ = [
    "PLANTS",
    "Plant",
    "core",
    "doubts",
    "planted",
    "readings",
    "refusals",
    "restored",
    "secrets",
    "shell",
    "strangers",
    "upkeep",
]
