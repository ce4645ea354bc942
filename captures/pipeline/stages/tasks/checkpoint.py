"""The state of judging packets, kept among the tables; the next run continues from it.

A stage's result about packets is *settled* if no later packet can change it; it stays in the tables. Other results are
*open*: they are true only if nothing more follows. They are in separate parts, which the next run replaces. So packets
are judged once, and the work of later runs does not grow with the captures. Later runs take up only a bounded number of
sessions and sequences, as `mqproto.captures.decode` does, and messages that are less than half an hour old or still on
their way.

The folder `_judged` has a Past, and for each bucket, its stage as it was after the last packet (`sessions` and
`sequences`), packets whose relations may still change (`waiting`), or the rows of its open messages (`messages`). Each
run replaces all of them; see mqproto.captures.pipeline.tables.kept.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.captures.decode.names import Names
from mqproto.captures.decode.ways import Ways
from mqproto.captures.files.frame import NANOSECONDS
from mqproto.captures.pipeline.reading.growth import SILENT_NS
from mqproto.captures.pipeline.stages.facts import Losses
from mqproto.captures.pipeline.stages.messages.watermark import Watermark
from mqproto.captures.pipeline.stages.sessions.directory import FirstHop, Learners
from mqproto.captures.pipeline.tables.parts import HIDDEN

FOLDER: Final = f"{HIDDEN}judged"
FORM: Final = 18
"""A version number. Raise it when the meaning of saved data, or of results in tables, changes.

Data with another number is not used, and all packets are judged again.
"""
QUIET_NS: Final = 1_800 * NANOSECONDS
"""A duration: a finished message is settled when no packet about it has been seen for this long.

A message is finished when it has reached its destination and has all its answers. A queue manager is assumed to
remember a message for the same time; see mqproto.captures.pipeline.stages.messages.duplicates.
"""
PARTED_NS: Final = 2 * SILENT_NS
"""A duration. Sessions that have been silent for this long are closed; by then, their connections count as over."""
MORE: Final = 2
"""New rows may need up to this many times the current number of buckets.

If they need more, everything is judged again in more buckets.
"""
LOSS_LIMIT: Final = 65_536
"""The maximum number of closed sessions whose losses are remembered."""


def part_name(table: str, run: str, stage: str, number: int) -> str:
    """Return the name of the part that one task of a stage writes for a table."""
    return f"{table}/{run}-{stage}-{number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class Buckets:
    """The number of buckets for connections and sequences, and the number of buckets for messages."""

    connections: int
    messages: int

    def hold(self, wanted: Buckets) -> bool:
        """Return whether these buckets are still enough when the ideal numbers are those in `wanted`."""
        return wanted.connections <= MORE * self.connections and wanted.messages <= MORE * self.messages


@dataclass(slots=True)
class Past:
    """The state after the last judged packet.

    first_hops: the sources of messages, and the endpoints from which they sent.
    losses, ways: the losses and the ways of sessions that are over.
    places: the capture points, each given by its series and interface.
    clock_pairs: rows of `clocks.CLOCK_PAIRS`.
    """

    learners: Learners = field(default_factory=Learners)
    first_hops: set[FirstHop] = field(default_factory=set)
    losses: Losses = field(default_factory=dict)
    ways: dict[str, Ways] = field(default_factory=dict)
    places: set[tuple[str, int]] = field(default_factory=set)
    clock_pairs: list[tuple[Any, ...]] = field(default_factory=list)

    def lose(self, losses: Losses) -> None:
        """Record the losses of sessions that are now over."""
        self.losses |= losses
        for key in list(self.losses)[:-LOSS_LIMIT]:
            del self.losses[key]


@dataclass(slots=True)
class Checkpoint:
    """The judged results in tables.

    form: the form of the saved data.
    run: the name of the run that judged last, which is in the names of the saved data.
    names: a digest of the names of queue managers and queues.
    whole: the series without losses.
    newest_ns: the time of the last frame. If several series grew in a run, the earliest of the times of their last
        frames.
    arrivals: for each bucket, the names of the settled parts of the table `arrivals`.
    open: the names of the parts of tables with open results, which the next run replaces.
    """

    form: int
    run: str
    names: str
    whole: list[str]
    newest_ns: int
    buckets: Buckets
    arrivals: list[list[str]]
    open: list[str]

    def part_name(self, stage: str, number: int = 0) -> str:
        """Return the name of the part with what one task of a stage has saved."""
        return part_name(FOLDER, self.run, stage, number)


def checkpoint_of(entry: dict[str, Any] | None) -> Checkpoint | None:
    """Return the checkpoint that an entry describes; None if this program cannot continue from it."""
    if entry is None or entry.get("form") != FORM:
        return None
    return Checkpoint(**{**entry, "buckets": Buckets(**entry["buckets"])})


def watermark(newest_ns: int) -> Watermark:
    """Return the limits that decide whether messages are over, given the time of the newest frame."""
    return Watermark(newest_ns - QUIET_NS, newest_ns - SILENT_NS)


def digest(names: Names) -> str:
    """Return a short text that is different for different names."""
    told = [
        sorted(map(repr, each.items()))
        for each in (names.managers, names.addresses, names.hosts, names.queues)
    ]
    return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()
