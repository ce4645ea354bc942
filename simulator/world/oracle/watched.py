"""A node as the oracle sees it: its clocks, disk and connections, and the messages that have arrived there."""

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
"""The uptime, in milliseconds, that a machine has when its queue manager starts after a boot."""
BEGUN_MS: Final = 1_000_000
"""The uptime, in milliseconds, of all machines when a world begins."""
ROOMY: Final = Settings()
REFUSED: Final = "a message that this node refuses"
"""The reason that a node gives when it closes a session because a scenario makes it refuse a message."""
NEVER: Final = Moment(uptime_ms=-1, utc_s=0)


@dataclass(slots=True)
class Suspicion:
    """What a node notes when its neighbour may be refusing a message.

    refused: the number of times that the neighbour has refused the message.
    alone: the number of times that it has refused the message since it last took another one.
    """

    refused: int = 1
    alone: int = 1


@dataclass(eq=False)
class WatchedNode:
    """The parts of a node that the oracle may look at. `core` is None while the node is down."""

    is_node: ClassVar[bool] = True

    name: str
    queues: tuple[QueueDeclaration, ...]
    """The queues that the node hosts."""
    settings: Settings
    events: EventQueue
    _: KW_ONLY
    has_sequences: bool
    """Whether the node is the source or the destination of transactional messages."""
    has_sparse_neighbours: bool
    """Whether any node of the world acknowledges sparsely."""
    misreads_order_acks: bool
    """Whether the node's OrderAcks name sequences in a way that only their receiver understands."""
    largest_bytes: int
    """An upper limit, in bytes, for the size of any packet."""
    least_window: int
    """The smallest window of any node in the world."""
    consumer_limit: int = 0
    """The number of messages that all its consumers together can ask for at a time."""
    disk: Disk = field(default_factory=Disk)
    """The contents that the node's store must have."""
    core: QueueManager | None = None
    batch: Batch = field(default_factory=Batch)
    """The batch that the node is carrying out, or the last one that it has carried out."""
    life: int = 0
    """The number of the node's current life. An event meant for one life does not reach the next one."""
    committed_in: int = 0
    """The life that made the last commit, even if that was interrupted."""
    up_since_ms: int = 0
    lines: dict[str, Wire] = field(default_factory=dict)
    """The node's links, keyed by the name of the node at the other end."""
    ends: dict[int, End] = field(default_factory=dict)
    """The node's end of each connection that it has not closed, keyed by session."""
    strange: set[int] = field(default_factory=set)
    """The sessions of this life that strangers have opened, whatever name they used."""
    stored: set[bytes] = field(default_factory=set)
    """The identities of all messages that have ever been on the disk."""
    came: dict[tuple[bytes, bytes], set[int]] = field(default_factory=dict)
    """The hop counts with which each packet to be passed on arrived.

    A packet is known by the identity and the body in its glimpse.
    """
    came_at: dict[bytes, list[int]] = field(default_factory=dict)
    """For each non-transactional message, its arrivals, if the node's history is short.

    For each arrival, this has how many messages of the same kind had arrived from the same sender by then.
    """
    came_counts: dict[tuple[bytes, bool], int] = field(default_factory=dict)
    """The number of non-transactional messages that have arrived, keyed by sender and by whether they are
    recoverable.
    """
    passed: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """For each non-transactional message that the node passes on, the life in which the node last took it, and its hop
    count at that time.
    """
    left: dict[bytes, int] = field(default_factory=dict)
    """The time at which each message last left the node, whether the message is its own or another node's."""
    shortened_ms: dict[int, int] = field(default_factory=dict)
    """The time at which messages last left each outgoing sequence for good, keyed by the sequence's queue number."""
    suspected: dict[bytes, Suspicion] = field(default_factory=dict)
    """The messages that a neighbour may be refusing, as the node has noted in this life."""
    tries_anew: bool = False
    """Whether the trial of the first suspect has been disturbed since the node noted that suspect.

    This is the case if a session has ended for a reason other than the refusal of a suspect, or if a suspect was noted
    again.
    """
    refused_sessions: set[int] = field(default_factory=set)
    """The sessions of this life that ended because the neighbour refused something."""
    refused_ms: int = 0
    """The time at which a neighbour last refused something by closing the session, so that all other messages stopped,
    too.
    """
    paused: set[str] = field(default_factory=set)
    """The outgoing queues that an operator has paused."""
    was_held: bool = False
    """Whether an operator has ever paused the node's outgoing queues."""
    may_say_one: bool = False
    """Whether the node may announce a window of one.

    This is allowed from the moment when the node pauses a queue until the end of that turn.
    """
    may_wait_in_vain: bool = False
    """Whether the node may be waiting for an acknowledgment that was lost when a store was restored."""
    called: set[str] = field(default_factory=set)
    """The hosts to which the node has sent messages over connections that it opened, as far as its store knows."""
    has_met: bool = False
    """Whether the node's store has ever had a message for the node itself, so that the node knows a sender."""
    was_put_back: bool = False
    """Whether the node's store was replaced by another one, and no life has begun since then."""
    queues_left: dict[str, bool] = field(default_factory=dict)
    """Whether a queue exists on disk, for each queue that operators have deleted or made again."""
    has_purged: bool = False
    """Whether an operator has ever deleted messages that the node had to send."""
    utc_offset_s: int = 0
    """The number of seconds by which the node's date is ahead of the world's."""
    uptime_offset_ms: int = BEGUN_MS
    """The number of milliseconds by which the node's uptime is ahead of the world's clock."""
    _moment: Moment = NEVER

    def __post_init__(self) -> None:
        self.guid = guid_of(self.name)

    @property
    def running(self) -> QueueManager:
        """The node's queue manager. The node must be up."""
        assert self.core is not None, "only a node that is up can be asked"
        return self.core

    @property
    def now_ms(self) -> int:
        """The time on the world's clock, in milliseconds."""
        return self.events.now_ms

    def moment(self) -> Moment:
        """Return the present moment on the node's own clocks."""
        uptime_ms = self.events.now_ms + self.uptime_offset_ms
        moment = self._moment
        if moment.uptime_ms != uptime_ms:
            utc_s = self.events.begins_utc_s + self.utc_offset_s + self.events.now_ms // 1_000
            moment = self._moment = Moment(uptime_ms, utc_s)
        return moment

    def jump_clock(self, seconds: int) -> None:
        """Change the node's date but not its uptime."""
        self.utc_offset_s += seconds
        self._moment = NEVER

    def booted(self) -> None:
        """Reset the node's uptime, because its machine was switched on again."""
        self.uptime_offset_ms = BOOTED_MS - self.now_ms
        self._moment = NEVER

    def has_sent(self, name: bytes) -> bool:
        """Return whether a message has left the node.

        This includes a message that was sent on a connection that had broken without the node's knowledge.
        """
        return name in self.left or any(name in end.in_vain for end in self.ends.values())

    @property
    def forgets_soon(self) -> bool:
        """Whether the node remembers so few identifiers that a run may have more of them."""
        return self.settings.remove_duplicate_size < ROOMY.remove_duplicate_size

    def may_have_forgotten(self, name: bytes) -> bool:
        """Return whether the node may have forgotten a message before a second copy of it arrived.

        This is possible if the number of messages of the same kind that arrived from its sender in between exceeds
        twice the smallest window.
        """
        return any(
            then - before > 2 * self.least_window for before, then in pairwise(self.came_at.get(name, ()))
        )
