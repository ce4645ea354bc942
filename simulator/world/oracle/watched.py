"""A node as the oracle sees it: its clocks, disk and connections, and what has come to it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.manager.queuemanager import QueueManager
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.simulator.storage.disk import Disk
from mqproto.simulator.world.network.events import EventQueue
from mqproto.simulator.world.network.links import End, Line
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.turn.effects import Batch

BOOTED_MS: Final = 30_000
"""The uptime of a machine when its queue manager starts."""
BEGUN_MS: Final = 1_000_000
"""The uptime of all machines when a world begins."""
ROOMY: Final = Settings()
REFUSED: Final = "a message that this node refuses"
"""Why a node closes a session if a scenario makes it refuse a message."""
NEVER: Final = Moment(uptime_ms=-1, utc_s=0)


@dataclass(slots=True)
class Suspicion:
    """A note by a node that its neighbour may refuse a message.

    refused: how often the neighbour refused it.
    overtaken: whether the neighbour has taken another since.
    """

    refused: int = 1
    overtaken: bool = False


class WatchedNode:
    """What the oracle may look at; `core` is None while the node is down.

    Args:
        queues: what it hosts.
        has_sequences: whether it is the source or the destination of transactional messages.
        has_sparse_neighbours: whether any node acknowledges sparsely.
        misreads_order_acks: whether its OrderAcks name sequences in a way that only their receiver understands.
        largest_bytes: more than any packet takes.
        least_window: the smallest window of any node in the world.
    """

    is_node = True

    def __init__(
        self,
        name: str,
        queues: tuple[QueueDeclaration, ...],
        settings: Settings,
        events: EventQueue,
        *,
        has_sequences: bool,
        has_sparse_neighbours: bool,
        misreads_order_acks: bool,
        largest_bytes: int,
        least_window: int,
    ) -> None:
        self.name = name
        self.guid = guid_of(name)
        self.queues = queues
        self.settings = settings
        self.events = events
        self.has_sequences = has_sequences
        self.has_sparse_neighbours = has_sparse_neighbours
        self.misreads_order_acks = misreads_order_acks
        self.largest_bytes = largest_bytes
        self.least_window = least_window
        self.consumer_limit = 0
        """How many messages all its consumers together ask for at a time."""
        self.disk = Disk()
        """What must be in its store."""
        self.core: QueueManager | None = None
        self.batch = Batch()
        """The batch that it carries out, or carried out last."""
        self.life = 0
        """The number of its current life; what was meant for one does not reach the next."""
        self.committed_in = 0
        """The life that made the last commit, even if that was interrupted."""
        self.up_since_ms = 0
        self.lines: dict[str, Line] = {}
        """Its links, by the name of the node at the other end."""
        self.ends: dict[int, End] = {}
        """Its end of each connection that it has not closed, by session."""
        self.strange: set[int] = set()
        """The sessions of this life that strangers have opened, under whatever name."""
        self.stored: set[bytes] = set()
        """The identity of every message that has ever been on the disk."""
        self.came: dict[tuple[bytes, bytes], set[int]] = {}
        """The hop counts of what came to be passed on, by identity and body of its glimpse."""
        self.came_at: dict[bytes, list[int]] = {}
        """When each non-transactional message came, counted in messages of its sender and kind; kept only if the node's
        history is short."""
        self.came_counts: dict[tuple[bytes, bool], int] = {}
        """How many of these came, by sender and whether they are recoverable."""
        self.passed: dict[bytes, tuple[int, int]] = {}
        """The life and the hop count with which it last took a non-transactional message to pass on."""
        self.left: dict[bytes, int] = {}
        """When each message last left it, its own or another's."""
        self.shortened_ms: dict[int, int] = {}
        """When messages last left an outgoing sequence for good, by its number."""
        self.suspected: dict[bytes, Suspicion] = {}
        """The messages that a neighbour may refuse, as noted by the node in this life."""
        self.tries_anew = False
        """Whether a session ended for another reason since the first of them was noted."""
        self.refused_sessions: set[int] = set()
        """The sessions of this life that ended because the neighbour refused something."""
        self.refused_ms = 0
        """When a neighbour last refused something by closing the session, which stopped everything else."""
        self.paused: set[str] = set()
        """The outgoing queues that an operator has paused."""
        self.was_held = False
        """Whether an operator has ever paused its outgoing queues."""
        self.may_say_one = False
        """Whether it may announce a window of one because it has paused something, until its next turn is over."""
        self.may_wait_in_vain = False
        """Whether an acknowledgment that it waits for may be lost with a store that was put back."""
        self.called: set[str] = set()
        """The hosts that it has sent messages to over connections of its own, as far as its store knows."""
        self.has_met = False
        """Whether its store has had a message for it, and so knows a sender."""
        self.was_put_back = False
        """Whether its store was replaced by another, and no life has begun since."""
        self.queues_left: dict[str, bool] = {}
        """Whether each queue that operators have deleted or made again exists on disk."""
        self.has_purged = False
        """Whether an operator has ever deleted what it had to send."""
        self.utc_offset_s = 0
        """How far its date is ahead of the world's."""
        self._uptime_offset_ms = BEGUN_MS
        self._moment = NEVER

    @property
    def now_ms(self) -> int:
        """The world's clock."""
        return self.events.now_ms

    def moment(self) -> Moment:
        """Return this instant on the node's own clocks."""
        uptime_ms = self.events.now_ms + self._uptime_offset_ms
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
        """Restart its uptime: its machine was switched on again."""
        self._uptime_offset_ms = BOOTED_MS - self.now_ms
        self._moment = NEVER

    def has_sent(self, name: bytes) -> bool:
        """Whether a message has left, or was sent on a broken connection before the node knew that."""
        return name in self.left or any(name in end.in_vain for end in self.ends.values())

    @property
    def forgets_soon(self) -> bool:
        """Whether it remembers so few identifiers that a run may exceed them."""
        return self.settings.remove_duplicate_size < ROOMY.remove_duplicate_size

    def may_have_forgotten(self, name: bytes) -> bool:
        """Whether more than twice the smallest window of messages from its sender and of its kind have come between two
        copies of a message."""
        return any(
            then - before > 2 * self.least_window for before, then in pairwise(self.came_at.get(name, ()))
        )
