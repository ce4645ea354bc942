"""Small worlds for tests, in which every field can be changed."""

from __future__ import annotations

from typing import Any

from mqproto.simulator.world import Burst, Cable, Scenario


def a_burst(**fields: Any) -> Burst:
    return Burst(**{"at_ms": 10, "source": "a", "target": "c", "kind": "transactional", **fields})


def a_chain(*bursts: Burst, **fields: Any) -> Scenario:
    """`a`, `b` and `c` in a row, a millisecond apart."""
    common: dict[str, Any] = {
        "seed": 0,
        "nodes": ("a", "b", "c"),
        "links": (Cable(one="a", other="b"), Cable(one="b", other="c")),
        "bursts": bursts or (a_burst(count=5),),
        "storm_ms": 5_000,
    }
    return Scenario(**{**common, **fields})
