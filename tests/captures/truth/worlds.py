"""Worlds that are to be damaged: what a seed generates, undamaged, and what the world knows about itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.tcp import FIN, RST, SYN
from mqproto.captures.spoil import placed
from mqproto.simulator.world.draw import draw
from mqproto.simulator.world.scenarios.scenario import Burst, Scenario
from mqproto.simulator.world.truth import simulate_into
from tests.captures.frames import moved
from tests.captures.truth.knowing import Truth

DELAYED_NS: Final = 200_000_000
"""The time in nanoseconds by which TCP may delay an acknowledgment so that a segment can carry it."""
PORTS: Final = (41_801, 700, 65_001)
"""Port numbers for nodes: two below those of clients, which begin at 49,152, and one above those that a world uses."""
LARGEST_BYTES: Final = 20_000
"""The maximum size of a body in bytes: larger ones would take time, and add no sentences."""


@dataclass
class World:
    """A world and its capture.

    facts: what the world knows about each message, from `message_facts`.
    """

    seed: int
    truth: Truth
    facts: dict[str, dict[str, Any]]


def world(seed: int, folder: Path) -> World:
    """Return the world of a seed.

    In half of the worlds, kernels leave out all acknowledgments that they can, as real ones do. In half of these
    worlds, and in half of the others, nodes listen on ports other than MSMQ's.
    """
    simulate_into(folder, modest(draw(seed)))
    name = folder / f"seed-{seed}"
    frames = list(read_capture(name.with_suffix(".pcapng")))
    facts = json.loads(name.with_suffix(".json").read_text("utf-8"))
    if seed % 2:
        frames = [frame._replace(number=number) for number, frame in enumerate(thinned(frames), 1)]
    if seed // 2 % 2:
        frames = moved(frames, PORTS[seed // 4 % len(PORTS)])
    return World(seed, Truth(frames), {each["id"]: each for each in facts["messages"]})


def thinned(frames: list[Frame]) -> list[Frame]:
    """Return the frames without superfluous bare acknowledgments.

    One is superfluous if its sender's next segment came in time.
    """
    kept: list[Frame] = []
    said_ns: dict[tuple[bytes, bytes], int] = {}
    for frame in reversed(frames):
        place = placed(frame)
        if place is not None:
            bare = place.end == place.payload and not place.flags & (SYN | FIN | RST)
            if bare and said_ns.get(place.ends, frame.time_ns + DELAYED_NS) - frame.time_ns < DELAYED_NS:
                continue
            said_ns[place.ends] = frame.time_ns
        kept.append(frame)
    return kept[::-1]


def modest(scenario: Scenario) -> Scenario:
    """Return a scenario without large bodies, whose sessions count from zero, as real ones do."""
    counters = None if scenario.counters is None else replace(scenario.counters, session=0)
    return replace(scenario, bursts=tuple(map(_modest, scenario.bursts)), counters=counters)


def _modest(burst: Burst) -> Burst:
    return replace(
        burst,
        size_bytes=min(burst.size_bytes, LARGEST_BYTES),
        sizes_bytes=tuple(min(size_bytes, LARGEST_BYTES) for size_bytes in burst.sizes_bytes),
    )
