"""Faults that are planted on purpose, to check that the worlds find them.

Each fault has a name that says what it breaks, and replaces one attribute:

- core.py: of the core; upkeep.py: of its regular work;
- refusals.py: in the treatment of messages that a neighbor refuses;
- strangers.py: in deciding whom to believe, and what strangers may do;
- readings.py: for peers that read the specification differently;
- doubts.py: in dead letters for messages that may have arrived;
- secrets.py: of encryption and signatures;
- shell.py: of the layers between the core and the disk, including the loop and the store;
- restored.py: of a store that goes back to an earlier moment, in the core or in these layers.

The disk in memory determines what a store must contain, so no fault is ever planted there. A test checks that each
fault is found, and `make plants` prints the seed that finds it.
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
