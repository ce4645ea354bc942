"""Worlds that are drawn from a seed: whole systems of queue managers, on a clock that jumps, with everything that can
go wrong.

A world is data, so read scenarios/scenario.py first. draw.py makes a world from a seed, run.py runs it,
oracle/invariants.py has the rules that must hold, and shrink.py reduces a world that breaks one of them. `mqproto
simulate` does all of this.
"""

from mqproto.simulator.world.draw import draw
from mqproto.simulator.world.run import WorldResult, simulate
from mqproto.simulator.world.scenarios.scenario import Burst, Cable, Consumer, Fault, Scenario
from mqproto.simulator.world.world import Breach

__all__ = ["Breach", "Burst", "Cable", "Consumer", "Fault", "Scenario", "WorldResult", "draw", "simulate"]
