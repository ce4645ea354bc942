"""A node as the oracle sees it: its clocks, disk and connections, and the messages that have come to it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import ClassVar, Final

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.manager.queuemanager import QueueManager
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.world.network.events import EventQueue
from mqproto.simulator.world.network.links import End, Wire
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.turn.effects import Batch

BOOTED_MS: Final = 30_000
"""The uptime, in milliseconds, of a machine when its queue manager starts."""
BEGUN_MS: Final = 1_000_000
"""The uptime, in milliseconds, of all machines when a world begins."""
ROOMY: Final = Settings()
REFUSED: Final = "a message that this node refuses"
"""The reason with which a node closes a session if a scenario makes it refuse a message."""
NEVER: Final = Moment(uptime_ms=-1, utc_s=0)


@dataclass(slots=True)
class Suspicion:
    """A note by a node that its neighbour may refuse a message.

    refused: how often the neighbour has refused it.
    alone: how often the neighbour has refused it since it last took another message.
    """

    refused: int = 1
    alone: int = 1


@dataclass(eq=False)
class WatchedNode:
    """The parts of a node at which the oracle may look; `core` is None while the node is down."""

    is_node: ClassVar[bool] = True

    name: str
    queues: tuple[QueueDeclaration, ...]
    """The queues that it hosts."""
    settings: Settings
    events: EventQueue
    _: KW_ONLY
    has_sequences: bool
    """Whether it is the source or the destination of transactional messages."""
    has_sparse_neighbours: bool
    """Whether any node acknowledges sparsely."""
    misreads_order_acks: bool
    """Whether its OrderAcks name sequences in a way that only their receiver understands."""
    largest_bytes: int
    """A size above that of any packet."""
    least_window: int
    """The smallest window of any node in the world."""
    consumer_limit: int = 0
    """The number of messages for which all its consumers together ask at a time."""
    disk: Disk = field(default_factory=Disk)
    """The contents that its store must have."""
    core: QueueManager | None = None
    batch: Batch = field(default_factory=Batch)
    """The batch that it is carrying out, or has carried out last."""
    life: int = 0
    """The number of its current life; an event meant for one life does not reach the next."""
    committed_in: int = 0
    """The life that made the last commit, even if that was interrupted."""
    up_since_ms: int = 0
    lines: dict[str, Wire] = field(default_factory=dict)
    """Its links, by the name of the node at the other end."""
    ends: dict[int, End] = field(default_factory=dict)
    """Its end of each connection that it has not closed, by session."""
    strange: set[int] = field(default_factory=set)
    """The sessions of this life that strangers have opened, under whatever name."""
    stored: set[bytes] = field(default_factory=set)
    """The identity of every message that has ever been on the disk."""
    came: dict[tuple[bytes, bytes], set[int]] = field(default_factory=dict)
    """The hop counts of packets that were passed on, by the identity and the body of their glimpses."""
    came_at: dict[bytes, list[int]] = field(default_factory=dict)
    """When each non-transactional message came, measured by the number of messages of its kind from its sender. This is
    kept only if the node's history is short."""
    came_counts: dict[tuple[bytes, bool], int] = field(default_factory=dict)
    """How many non-transactional messages came, by sender and whether they are recoverable."""
    passed: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """The life in which it last took each non-transactional message that it has to pass on, and the hop count of the
    message."""
    left: dict[bytes, int] = field(default_factory=dict)
    """When each message, its own or another's, last left it."""
    shortened_ms: dict[int, int] = field(default_factory=dict)
    """When messages last left an outgoing sequence for good, by its number."""
    suspected: dict[bytes, Suspicion] = field(default_factory=dict)
    """The messages that a neighbour may refuse, as noted by the node in this life."""
    tries_anew: bool = False
    """Whether a session ended for another reason since the first suspect was noted."""
    refused_sessions: set[int] = field(default_factory=set)
    """The sessions of this life that ended because the neighbour refused something."""
    refused_ms: int = 0
    """When a neighbour last refused something by closing the session, which stopped everything else."""
    paused: set[str] = field(default_factory=set)
    """The outgoing queues that an operator has paused."""
    was_held: bool = False
    """Whether an operator has ever paused its outgoing queues."""
    may_say_one: bool = False
    """Whether it may announce a window of one, as it does from the time when it pauses a queue until the end of that
    turn."""
    may_wait_in_vain: bool = False
    """Whether an acknowledgment for which it waits may have been lost when a store was restored to an earlier
    moment."""
    called: set[str] = field(default_factory=set)
    """The hosts to which it has sent messages over connections of its own, as far as its store knows."""
    has_met: bool = False
    """Whether its store has had a message for this node, and so knows a sender."""
    was_put_back: bool = False
    """Whether its store was replaced by another, and no life has begun since."""
    queues_left: dict[str, bool] = field(default_factory=dict)
    """Whether each queue that operators have deleted or made again exists on disk."""
    has_purged: bool = False
    """Whether an operator has ever deleted messages that it had to send."""
    utc_offset_s: int = 0
    """How many seconds its date is ahead of the world's."""
    uptime_offset_ms: int = BEGUN_MS
    """How many milliseconds its uptime is ahead of the world's clock."""
    _moment: Moment = NEVER

    def __post_init__(self) -> None:
        self.guid = guid_of(self.name)

    @property
    def running(self) -> QueueManager:
        """Its queue manager, while it is up."""
        assert self.core is not None, "only a node that is up can be asked"
        return self.core

    @property
    def now_ms(self) -> int:
        """The world's clock."""
        return self.events.now_ms

    def moment(self) -> Moment:
        """Return this instant on the node's own clocks."""
        uptime_ms = self.events.now_ms + self.uptime_offset_ms
        moment = self._moment
        if moment.uptime_ms != uptime_ms:
            utc_s = self.events.begins_utc_s + self.utc_offset_s + self.events.now_ms // 1_000
            moment = self._moment = Moment(uptime_ms, utc_s)
        return moment

    def jump_clock(self, seconds: int) -> None:
        """Change the date but not the uptime."""
        self.utc_offset_s += seconds
        self._moment = NEVER

    def booted(self) -> None:
        """Restart its uptime, because its machine was switched on again."""
        self.uptime_offset_ms = BOOTED_MS - self.now_ms
        self._moment = NEVER

    def has_sent(self, name: bytes) -> bool:
        """Return whether a message has left the node, or was sent on a connection that had broken without the node's
        knowledge."""
        return name in self.left or any(name in end.in_vain for end in self.ends.values())

    @property
    def forgets_soon(self) -> bool:
        """Whether it remembers so few identifiers that a run may exceed that number."""
        return self.settings.remove_duplicate_size < ROOMY.remove_duplicate_size

    def may_have_forgotten(self, name: bytes) -> bool:
        """Return whether the node may have forgotten a message before its second copy came. This is possible if, in
        between, more messages of its kind came from its sender than twice the smallest window."""
        return any(
            then - before > 2 * self.least_window for before, then in pairwise(self.came_at.get(name, ()))
        )
