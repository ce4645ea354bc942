"""One world as data: the nodes, their messages, and the faults.

Only the scenario and the code determine a run. `draw` makes a scenario from a seed, and `shrink` makes a scenario
smaller. A scenario can be stored as JSON and run again. Times are in milliseconds since the world began.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from mqproto.base.configuration import FIGURES, Settings
from mqproto.base.errors import UsageError
from mqproto.simulator.base.strict import strictly
from mqproto.simulator.storage import LIMITS, LogLimits
from mqproto.simulator.storage.reserve import SHARES
from mqproto.wire.guid import Guid

RESERVE_BYTES: Final = 12 << 10
"""The size, in bytes, of each of the SHARES parts of the reserve, apart from the room for the largest message."""
SEGMENT_BYTES: Final = 32 << 10
"""The size of a segment, in bytes. A real node's segments are larger, but their zeros would only take memory here.

There are more segments than in a real node's log, so the whole log is equally long.
"""
LOG_BYTES: Final = LIMITS.segments * LIMITS.segment_bytes
START_UTC_S: Final = 1_700_000_000
"""The date that all clocks show when a world begins, unless its scenario says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """Two nodes that can connect to each other.

    Data between them takes at least `latency_ms`, and up to `jitter_ms` more.
    """

    one: str
    other: str
    latency_ms: int = 1
    jitter_ms: int = 0
    cut_per_mille: int = 0
    """The number of pieces of data, out of 1,000, that arrive in two parts."""

    @property
    def name(self) -> str:
        return f"{self.one}-{self.other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Messages that an application at `source` sends at one time to a queue of `target`.

    kind: one of `traffic.KINDS`, which determines the queue and how the messages are sent.
    sizes_bytes: the sizes of their bodies, which are used in turn; if empty, each has `size_bytes`.
    together: whether they are one transaction, if they are transactional.
    also: other nodes; their queue of that kind also gets a copy of each message.
    encrypted, signed: whether the messages are encrypted or signed; messages to a direct format name cannot be.
    chooses: whether their source chooses one of its own queues for failed messages.
    """

    at_ms: int
    source: str
    target: str
    kind: str
    count: int = 1
    size_bytes: int = 40
    priority: int = 3
    together: bool = False
    label: str = ""
    also: tuple[str, ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    encrypted: bool = False
    signed: bool = False
    chooses: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        """All nodes to which each of the burst's messages is sent."""
        return self.target, *self.also

    @property
    def largest_bytes(self) -> int:
        """An upper limit, in bytes, for the size of the burst's largest body."""
        return max(self.size_bytes, *self.sizes_bytes, 0)

    @property
    def bodies_bytes(self) -> int:
        """The total size, in bytes, of the bodies of the burst's messages."""
        sizes_bytes = self.sizes_bytes or (self.size_bytes,)
        return sum(sizes_bytes[index % len(sizes_bytes)] for index in range(self.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """An application that receives from a queue of `node` again and again.

    limit: the maximum number of messages for which it asks in one request.
    hold_ms: how long it works on the messages before it commits.
    holds_ms: such durations, used in turn, if they differ; if empty, `hold_ms` is used.
    pause_ms: how long it rests after it has worked on the messages.
    begins_ms: the time at which it first asks.
    rolls_back_every: how often it gives the messages back instead of committing: 3 means every third time; 0 means
        never.
    leaves_every: how often it goes away without notice, in the same form.
    rejects_every: how often it refuses the messages for good, in the same form.
    chokes_every: which of a source's messages are poison for it, so that it gives them back: 3 means every third one; 0
        means none.
    asks_twice: whether it asks again, in vain, both before it has an answer and before it has settled.
    gives_up_after: the number of deliveries after which it refuses poison for good. It then also refuses poison whose
        number of deliveries is unknown. 0 means that it never refuses poison.
    """

    node: str
    queue: str
    limit: int = 10
    hold_ms: int = 0
    pause_ms: int = 0
    rolls_back_every: int = 0
    leaves_every: int = 0
    rejects_every: int = 0
    chokes_every: int = 0
    gives_up_after: int = 0
    asks_twice: bool = False
    transactional: bool = True
    begins_ms: int = 0
    holds_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong once. faults/table.py says what each kind does.

    where: the name of a node, or `a-b` for the link between two nodes.
    value: the strength, if the kind has one, such as the milliseconds of a flush, the bytes of room, or the seconds of
        a jump.
    """

    at_ms: int
    kind: str
    where: str
    for_ms: int = 0
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The values at which counters begin. They are close to the counters' ends, so that a short run reaches the ends.

    session: the number of messages that both ends of each session seem to have carried already.
    sequence: the number of messages that have already left each outgoing sequence.
    message_id: the number of MessageIDs that each node has already used.
    """

    session: int = 0
    sequence: int = 0
    message_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole world. `storm_ms` is the time at which the faults end and the calm begins."""

    seed: int
    """The seed of the run's dice. They decide how long a packet takes and where a stream is cut, for example."""
    nodes: tuple[str, ...]
    links: tuple[Cable, ...]
    bursts: tuple[Burst, ...]
    consumers: tuple[Consumer, ...] = ()
    faults: tuple[Fault, ...] = ()
    settings: dict[str, int] = field(default_factory=dict)
    """The fields of `mqproto.Settings` whose values differ from the defaults. They apply to all nodes."""
    windows: dict[str, int] = field(default_factory=dict)
    """The window_size of each node that has its own value."""
    rooms: dict[str, int] = field(default_factory=dict)
    """The quota_bytes of each node that has its own value."""
    askers: tuple[str, ...] = ()
    """The nodes that ping before they connect, like Windows up to Server 2003. All nodes answer Pings."""
    doubters: tuple[str, ...] = ()
    """The nodes that give up messages which expire after sending, as in figure 9 of [MS-MQQB]."""
    routes: dict[str, int] = field(default_factory=dict)
    """For each node, which of several equally short routes it takes, as an index; by default, the first."""
    costs: dict[str, int] = field(default_factory=dict)
    """The costs of links, keyed by name, if nodes ask a Router for the cheapest routes; otherwise empty."""
    quota_bytes: int = 0
    """The quota of each application's queue, in bytes; 0 if there is no quota."""
    strangers: bool = False
    """Whether strangers may send to the applications' queues."""
    unmet: bool = False
    """Whether no node knows any other node, so that they find each other only by direct format names."""
    uncalled: str = ""
    """A node that nobody can call, as if it were behind a firewall; empty if there is none."""
    storm_ms: int = 10_000
    begins_utc_s: int = START_UTC_S
    """The date that all clocks show when the world begins."""
    counters: Counters | None = None
    """The values at which counters begin; None if all begin at 0."""
    log_bytes: int = 0
    """The approximate number of bytes in a store's log before they are moved to the tables.

    0 means as many as in a real node's log.
    """

    @property
    def limits(self) -> LogLimits:
        """The limits of each node's store."""
        reserve_bytes = 0
        if any(fault.kind == "full disk" for fault in self.faults):
            # Each share has room for the largest message.
            largest_bytes = max((burst.largest_bytes for burst in self.bursts), default=0)
            reserve_bytes = SHARES * (largest_bytes + RESERVE_BYTES)
            # A message is written again when it waits for its FinalAck, and when it is kept. If two nodes know nothing
            # about each other, either may have nearly all.
            by_source = Counter[str]()
            for burst in self.bursts:
                by_source[burst.source] += burst.bodies_bytes
            rewritten_bytes = by_source.total() if self.unmet else max(by_source.values(), default=0)
            reserve_bytes += 2 * rewritten_bytes
        if not self.log_bytes:
            segments = LOG_BYTES // SEGMENT_BYTES
            return LIMITS._replace(
                segment_bytes=SEGMENT_BYTES, segments=segments, reserve_bytes=reserve_bytes
            )
        return LogLimits(
            reserve_bytes=reserve_bytes,
            segment_bytes=self.log_bytes,
            segments=2,
            memory_bytes=4 * self.log_bytes,
            slice_messages=max(1, self.log_bytes // 1_000),
            slice_bytes=self.log_bytes // 2,
        )

    @property
    def has_keys(self) -> bool:
        """Whether its nodes have keys and know each other's keys."""
        return any(burst.encrypted or burst.signed for burst in self.bursts)

    @property
    def message_count(self) -> int:
        return sum(burst.count * len(burst.targets) for burst in self.bursts)

    def settings_of(self, name: str) -> Settings:
        """Return a node's settings."""
        settings: dict[str, Any] = dict(self.settings)
        if name in self.windows:
            settings["window_size"] = self.windows[name]
        if name in self.rooms:
            settings["quota_bytes"] = self.rooms[name]
        if name in self.askers:
            settings["require_pings"] = True
        if name in self.doubters:
            settings["expire_sent"] = FIGURES
        return Settings(**settings)


def guid_of(name: str) -> Guid:
    """Return the GUID of a node."""
    return Guid(name.encode().ljust(16, b".")[:16])


def as_json(scenario: Scenario) -> str:
    """Return a scenario as text that `from_json` can read."""
    return msgspec.json.format(msgspec.json.encode(scenario), indent=1).decode()


def from_json(text: str | bytes) -> Scenario:
    """Return the scenario in a text that `as_json` wrote.

    Raises:
        UsageError: the text is not a scenario.
    """
    try:
        return strictly(msgspec.json.decode(text), Scenario)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"no scenario: {error}; write one with mqproto simulate --seed N --save FILE"
        ) from None


def from_file(path: Path) -> Scenario:
    """Return the scenario in a file: JSON, or TOML with the table `scenario`, as in captures/samples.

    Raises:
        UsageError: there is no scenario in it.
    """
    if path.suffix != ".toml":
        return from_json(path.read_bytes())
    try:
        return strictly(tomllib.loads(path.read_text("utf-8"))["scenario"], Scenario)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, msgspec.ValidationError) as error:
        reason = "it has no table [scenario]" if isinstance(error, KeyError) else error
        raise UsageError(f"no scenario in {path}: {reason}; captures/samples has examples") from None
