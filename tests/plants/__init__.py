"""Faults planted on purpose, to check that the worlds find them.

Each fault has a name that says what it breaks, and replaces one attribute:

- core.py: of the core; upkeep.py: of its regular work;
- refusals.py: in the treatment of messages that a neighbour refuses;
- strangers.py: in deciding whom to believe, and what strangers may do;
- readings.py: for peers that read the specification differently;
- doubts.py: in dead letters of messages that may have arrived;
- secrets.py: of encryption and signatures;
- shell.py: of the layers between the core and the disk, the one loop and the store;
- restored.py: of a store that goes back to an earlier moment, in the core or in these layers.

The disk in memory, which says what a store must have, is never damaged. A test checks that each fault is found, and
`make plants` prints by which seed.
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
