"""Worlds from a seed: whole systems of queue managers on a clock that jumps, with everything that can go wrong.

Read scenario.py first: a world is data. draw.py makes it from a seed, world.py runs it, invariants.py says what must
hold, shrink.py makes a world that breaks something smaller. `mqproto simulate` is all of it.
"""

from simulator.world.draw import draw
from simulator.world.run import Result, simulate
from simulator.world.scenarios.scenario import Burst, Consumer, Fault, Link, Scenario
from simulator.world.world import Breach

__all__ = ["Breach", "Burst", "Consumer", "Fault", "Link", "Result", "Scenario", "draw", "simulate"]
