"""The shortest ways through a world."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.simulator.world import Cable
from mqproto.simulator.world.scenarios.ways import steps_between

names = st.sampled_from("abcdefg")


@given(
    pairs=st.sets(st.tuples(names, names).filter(lambda pair: pair[0] < pair[1])), choice=st.integers(0, 6)
)
def test_any_step_at_each_node_leads_to_the_goal_in_the_fewest_steps(
    pairs: set[tuple[str, str]], choice: int
) -> None:
    nodes = sorted({name for pair in pairs for name in pair})
    steps = steps_between(nodes, [Cable(one=one, other=other) for one, other in sorted(pairs)])
    lengths = {}
    for start, goal in steps:
        here, length = start, 0
        while here != goal:
            here = steps[here, goal][choice % len(steps[here, goal])]
            length += 1
            assert length < 7, "in a circle"
        lengths[start, goal] = length
    for one, other in pairs:
        assert lengths[one, other] == 1
        for goal in nodes:
            if goal not in (one, other) and (other, goal) in lengths:
                assert lengths[one, goal] <= 1 + lengths[other, goal]
