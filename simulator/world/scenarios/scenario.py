"""One world as data: the nodes, their messages, and the faults.

Only the scenario and the code determine a run. `draw` makes a scenario from a seed, and `shrink` makes a scenario
smaller. A scenario can be kept as JSON for another run. Times are in milliseconds since the world began.
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
from mqproto.simulator.storage import LIMITS, LogLimits
from mqproto.simulator.storage.reserve import SHARES
from mqproto.wire.guid import Guid

RESERVE_BYTES: Final = 12 << 10
"""The number of bytes in a share of the reserve, in addition to the room for the largest message."""
SEGMENT_BYTES: Final = 32 << 10
"""The size of a segment, in bytes, in a log as long as a node's. Nodes make longer segments, whose zeros would only
take memory here."""
LOG_BYTES: Final = LIMITS.segments * LIMITS.segment_bytes
START_UTC_S: Final = 1_700_000_000
"""The date on every clock when a world begins, unless its scenario says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """Two nodes that can connect to each other. Their data takes from `latency_ms` up to `jitter_ms` more."""

    one: str
    other: str
    latency_ms: int = 1
    jitter_ms: int = 0
    cut_per_mille: int = 0
    """How many of 1,000 pieces of data arrive in two parts."""

    @property
    def name(self) -> str:
        return f"{self.one}-{self.other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Messages that an application at `source` sends at one time to a queue of `target`.

    kind: one of `traffic.KINDS`, which determines the queue and how they are sent.
    sizes_bytes: the sizes of their bodies, which are used in turn; if empty, `size_bytes` is the size of all.
    together: whether they are one transaction, if they are transactional.
    also: other nodes whose queue of that kind gets a copy of each message.
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
        """All nodes to which each of its messages goes."""
        return self.target, *self.also

    @property
    def largest_bytes(self) -> int:
        """An upper limit for the size of its largest body."""
        return max(self.size_bytes, *self.sizes_bytes, 0)

    @property
    def bodies_bytes(self) -> int:
        """The total size of its messages' bodies."""
        sizes_bytes = self.sizes_bytes or (self.size_bytes,)
        return sum(sizes_bytes[index % len(sizes_bytes)] for index in range(self.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """An application that receives from a queue of `node` again and again.

    limit: the number of messages for which it asks at once.
    hold_ms: how long it works on them before it commits.
    holds_ms: these times, used in turn, if they differ; if empty, `hold_ms` is used.
    pause_ms: how long it rests after that.
    begins_ms: when it asks for the first time.
    rolls_back_every: how often it gives them back instead: 3 for every third time; 0 for never.
    leaves_every: how often, in the same way, it goes away without notice.
    rejects_every: how often, in the same way, it refuses them for good.
    chokes_every: how many of a source's messages are poison for it and are given back: 3 for every third; 0 for none.
    asks_twice: whether it asks again, in vain, before it gets an answer, and before it has settled.
    gives_up_after: the number of deliveries after which it refuses poison for good, as it does if that number is
        unknown; 0 for never.
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
    """Something that goes wrong, once. faults/table.py says what each kind does.

    where: a node's name, or `a-b` for the link between two.
    value: the strength, if the kind has one, such as milliseconds of a flush, bytes of room, or seconds of a jump.
    """

    at_ms: int
    kind: str
    where: str
    for_ms: int = 0
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The values at which counters begin. They are near the ends of the counters, so that a short run reaches these.

    session: how many messages each session seems to have carried already, for both ends.
    sequence: how many messages have already left each outgoing sequence.
    message_id: how many MessageIDs each node has already used.
    """

    session: int = 0
    sequence: int = 0
    message_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole world. `storm_ms` is the time at which the faults end and the calm begins."""

    seed: int
    """The seed of the run's dice, which decide how long a packet takes and where a stream is cut."""
    nodes: tuple[str, ...]
    links: tuple[Cable, ...]
    bursts: tuple[Burst, ...]
    consumers: tuple[Consumer, ...] = ()
    faults: tuple[Fault, ...] = ()
    settings: dict[str, int] = field(default_factory=dict)
    """The fields of `mqproto.Settings` that do not have their defaults, for all nodes."""
    windows: dict[str, int] = field(default_factory=dict)
    """The window_size of nodes that have their own value."""
    rooms: dict[str, int] = field(default_factory=dict)
    """The quota_bytes of nodes that have their own value."""
    askers: tuple[str, ...] = ()
    """The nodes that ping before they connect, like Windows up to Server 2003; all nodes answer."""
    doubters: tuple[str, ...] = ()
    """The nodes that give up sent messages when these expire, as in figure 9 of [MS-MQQB]."""
    routes: dict[str, int] = field(default_factory=dict)
    """The number of the shortest route that a node takes if there are several; by default the first."""
    costs: dict[str, int] = field(default_factory=dict)
    """The costs of links, by name, if nodes ask a Router for the cheapest routes."""
    quota_bytes: int = 0
    """The quota of each application's queue, in bytes; 0 for none."""
    strangers: bool = False
    """Whether strangers may send to the applications' queues."""
    unmet: bool = False
    """Whether no node knows any other, so that they meet by direct format names."""
    uncalled: str = ""
    """A node that nobody can call, as if behind a firewall; empty for none."""
    storm_ms: int = 10_000
    begins_utc_s: int = START_UTC_S
    """The date on every clock when the world begins."""
    counters: Counters | None = None
    """The values at which counters begin; None if all begin at 0."""
    log_bytes: int = 0
    """The approximate number of bytes that a store's log holds before they go to the tables; 0 for as many as a node's
    log holds."""

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
    """Return the scenario in a text from `as_json`.

    Raises:
        UsageError: the text is not a scenario.
    """
    try:
        return msgspec.json.decode(text, type=Scenario)
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
        return msgspec.convert(tomllib.loads(path.read_text("utf-8"))["scenario"], Scenario)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, msgspec.ValidationError) as error:
        reason = "it has no table [scenario]" if isinstance(error, KeyError) else error
        raise UsageError(f"no scenario in {path}: {reason}; captures/samples has examples") from None
