"""How far packets are judged, kept among the tables for the next run to go on from.

What a stage says about packets is *settled* if no later packet changes it; it stays in the tables. All else is *open*:
what is so if nothing more comes. That is in parts of its own, which the next run replaces. So packets are judged once,
and what is looked at again does not grow with the captures: sessions and sequences in bounded numbers, as
`mqproto.captures.decode` remembers them, and messages of the last half hour, or that are still on their way.

It lies in the folder `_judged`: of each bucket its stage as it was behind the last packet, or the rows of its open
messages; see mqproto.captures.pipeline.kept.state.
"""

from __future__ import annotations

import hashlib
from collections import Counter
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
FORM: Final = 13
"""To be raised when what is saved means something else than before, or what tables say about packets. Of another form
nothing is used: then all packets are judged anew."""
QUIET_NS: Final = 1_800 * NANOSECONDS
"""A message that has come to its destination, and for which all have answered, is settled when it has been silent for
so long. It is as long as a queue manager is taken to remember it; see
mqproto.captures.pipeline.stages.messages.duplicates."""
PARTED_NS: Final = 2 * SILENT_NS
"""After this time of silence sessions are closed. By then their connections are."""
MORE: Final = 2
"""How many times the buckets that there are new rows may want; with more, all is judged anew, in more of them."""
LOSS_LIMIT: Final = 65_536
"""Of how many sessions that are over it is remembered what the captures lack."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The numbers of buckets for connections and sequences, and for messages."""

    connections: int
    messages: int

    def hold(self, wanted: Buckets) -> bool:
        """Whether they do where others are wanted."""
        return wanted.connections <= MORE * self.connections and wanted.messages <= MORE * self.messages


@dataclass(slots=True)
class Past:
    """The state after the last judged packet.

    first_hops: who sent messages from where. losses, ways: of sessions that are over.
    places: the capture points: series and interface.
    clock_pairs: rows of `clocks.CLOCK_PAIRS`. codes: how often each severity and code was found.
    """

    learners: Learners = field(default_factory=Learners)
    first_hops: set[FirstHop] = field(default_factory=set)
    losses: Losses = field(default_factory=dict)
    ways: dict[str, Ways] = field(default_factory=dict)
    places: set[tuple[str, int]] = field(default_factory=set)
    clock_pairs: list[tuple[Any, ...]] = field(default_factory=list)
    codes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def lose(self, losses: Losses) -> None:
        """Note the losses of sessions that are over by now."""
        self.losses |= losses
        for key in list(self.losses)[:-LOSS_LIMIT]:
            del self.losses[key]


@dataclass(slots=True)
class Checkpoint:
    """The judged results in tables; parts are given by their names.

    form: of what is saved. names: what queue managers and queues are called, as a digest.
    whole: the series that the captures lack nothing of.
    newest_ns: when the last frame was caught; of the series that grew last, in the one that is furthest behind.
    past: with a Past. sessions, sequences: with stages, by bucket. messages: with the rows of open messages, by bucket.
    arrivals: by bucket, the settled parts of that table.
    open: parts of tables.
    """

    form: int
    names: str
    whole: list[str]
    newest_ns: int
    buckets: Buckets
    past: str
    sessions: list[str]
    sequences: list[str]
    messages: list[str]
    arrivals: list[list[str]]
    open: list[str]

    @property
    def replaced(self) -> set[str]:
        """Return the parts that the next run replaces."""
        return {self.past, *self.sessions, *self.sequences, *self.messages, *self.open}


def checkpoint_of(entry: dict[str, Any] | None) -> Checkpoint | None:
    """Return the results in tables, if this program can continue from them."""
    if entry is None or entry.get("form") != FORM:
        return None
    return Checkpoint(**{**entry, "buckets": Buckets(**entry["buckets"])})


def watermark(newest_ns: int) -> Watermark:
    """Return the horizon, if the newest frame has that time."""
    return Watermark(newest_ns - QUIET_NS, newest_ns - SILENT_NS)


def digest(names: Names) -> str:
    """Different for names that are."""
    told = [
        sorted(map(repr, each.items()))
        for each in (names.managers, names.addresses, names.hosts, names.queues)
    ]
    return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()
