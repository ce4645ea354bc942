"""Faults that are planted on purpose, to check that the worlds find them.

Each fault has a name that says what it breaks, and replaces one attribute:

- core.py: faults of the core; upkeep.py: faults of the core's regular work;
- refusals.py: faults in the treatment of messages that a neighbour refuses;
- strangers.py: faults in deciding whom to believe, and what strangers may do;
- readings.py: faults that matter to peers that read the specification differently;
- doubts.py: faults in dead letters for messages that may have arrived;
- secrets.py: faults of encryption and signatures;
- shell.py: faults of the layers between the core and the disk, including the loop and the store;
- restored.py: faults in the use of a store from an earlier moment, in the core or in these layers.

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
