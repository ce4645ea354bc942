"""Each host has a sniffer with its own clock: the differences between the clocks are as exact as stated."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from mqproto.captures import spoil
from mqproto.captures.files.frame import NANOSECONDS, Frame
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.stages.messages.clocks import ahead
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.samples import FRAMES
from tests.captures.truth.saying import written


class Skew(NamedTuple):
    """The error of a clock from its first frame on; that frame was caught at `first_ns`."""

    first_ns: int
    offset_ns: int
    drift_ppm: float

    def shows(self, time_ns: int) -> int:
        """Return the time that the clock shows at a true time."""
        return time_ns + self.offset_ns + round((time_ns - self.first_ns) * self.drift_ppm / 1e6)


def at_hosts(frames: Sequence[Frame], seed: int) -> tuple[list[Frame], dict[int, Skew]]:
    """Return what sniffers at all hosts see, and the error of each clock."""
    chance = random.Random(seed)
    caught: Iterable[Frame] = list(spoil.at_hosts(frames))
    first_ns: dict[int, int] = {}
    for frame in caught:
        first_ns.setdefault(frame.interface.number, frame.time_ns)
    skews = {
        number: Skew(time_ns, round(chance.uniform(-5, 5) * NANOSECONDS), chance.uniform(-100, 100))
        for number, time_ns in sorted(first_ns.items())
    }
    for number, skew in skews.items():
        caught = list(spoil.skewed(caught, skew.offset_ns, skew.drift_ppm, {number}))
    return list(caught), skews


def wrong_clocks(tables: Tables, frames: Sequence[Frame], skews: dict[int, Skew]) -> list[str]:
    """Return the clocks whose true difference from their reference clock, at the beginning or the end, is outside the
    stated limits.
    """
    [found] = tables.read("clocks").combine_chunks().to_batches()
    references = dict(
        zip(found["interface"].to_pylist(), found["reference_interface"].to_pylist(), strict=True)
    )
    wrong = []
    for (_, number), clock in ahead(found).items():
        # A file begins with an interface that has no name.
        reference, skew = skews[references[number] - 1], skews[number - 1]
        if clock.uncertainty_ns is None:
            continue
        for frame in (frames[0], frames[-1]):
            shown_ns = skew.shows(frame.time_ns)
            true_ns = shown_ns - reference.shows(frame.time_ns)
            if abs(clock.of(shown_ns) - true_ns) > clock.uncertainty_ns:
                wrong.append(
                    f"interface {number}: {clock.of(shown_ns)} ± {clock.uncertainty_ns}, is {true_ns}"
                )
    return wrong


@pytest.mark.parametrize(("name", "seed"), [("three-hop", 1), ("final-acks", 2), ("intermediate-killed", 3)])
def test_clocks_are_as_far_apart_as_is_said(name: str, seed: int, tmp_path: Path) -> None:
    frames = FRAMES[name]
    caught, skews = at_hosts(frames, seed)
    tables = Tables(tmp_path / "out")
    analyse([str(written(tmp_path / "hosts.pcapng", caught))], tables, LocalEngine())
    rows = tables.read("clocks").to_pylist()
    assert len(rows) == len(skews) > 1
    assert all(row["uncertainty_ns"] is not None for row in rows)
    assert wrong_clocks(tables, frames, skews) == []
