"""Operators' requests: explain why a message is waiting, pause or purge queues, block peers, and send messages back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import trio

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname.path import check_computer
from mqproto.manager.outbound import QUEUES_NAMED
from mqproto.manager.queuemanager import QueueManager
from mqproto.manager.status import QUEUES_LISTED, NodeStatus, PeersStatus
from mqproto.manager.whereabouts import Found, MessageStatus, Whereabouts, describe_message
from mqproto.neighbours.blocks import network_of, overlap
from mqproto.neighbours.peerstatus import MetStatus, PeerStatus, SessionStatus
from mqproto.routing import MSMQ_PORT
from mqproto.routing.peers import address_of, host_group
from mqproto.simulator.node.clients.declarations import QueueAdministration
from mqproto.simulator.node.control import Block, Blocked, Explanation, PeerFacts
from mqproto.simulator.node.indoubt import lists_of
from mqproto.simulator.node.received import MessageId
from mqproto.simulator.node.room import Room
from mqproto.simulator.node.turns import Clock
from mqproto.simulator.security.guarding import NO_LIBRARIES, NodeGuard
from mqproto.simulator.storage import Store
from mqproto.simulator.topology.directory import NodeDirectory, known_as
from mqproto.turn.effects import POSITION_BITS, HurtPacket, QueueKind, ReadBy, ReadPage, message_key
from mqproto.wire import Guid, guid_from_text, guid_text
from mqproto.wire.glance import identifier_of

ALL: Final = 2**40
"""A limit that is higher than the number of messages in any queue manager's memory."""
LOOKED_THROUGH: Final = 200
"""How many messages of a queue are examined to find copies, or messages to one of its destinations."""
PAGE: Final = 64
PAGE_BYTES: Final = 2**22


class Operators:
    """Carries out operators' requests, which may use any name of a queue.

    Every method may raise FormatNameError, or UsageError if there is no such queue.
    """

    def __init__(
        self,
        core: QueueManager,
        directory: NodeDirectory,
        store: Store,
        clock: Clock,
        room: Room,
        guard: NodeGuard | None = None,
        round_trip_s: Callable[[int], float | None] = lambda session: None,
    ) -> None:
        self.queues = QueueAdministration(core, directory)
        self._guard = guard
        self._round_trip_s = round_trip_s
        self._core = core
        self._room = room
        self._directory = directory
        self._store = store
        self._clock = clock

    # Questions

    def status(self, names: Collection[str] | None = None) -> NodeStatus:
        """Return the current status of queues and sessions.

        names: the queues to report; by default, as many as fit into an answer.
        """
        now, status, commits = self._clock.now(), self._core.status(names), self._store.commits
        if unread := self._store.counts(QueueKind.FINAL):
            outgoing = [replace(queue, unread=unread.get(queue.name, 0)) for queue in status.outgoing]
            status = replace(status, outgoing=outgoing)
        stored, leaving = self._store.counts(QueueKind.LOCAL), self._core.leaving()
        excess = {name: count - leaving.get(name, 0) for name, count in stored.items()}
        if any(excess.get(queue.name, 0) > queue.waiting for queue in status.local):
            local = [
                replace(queue, passed_over=max(0, excess.get(queue.name, 0) - queue.waiting))
                for queue in status.local
            ]
            status = replace(status, local=local)
        return replace(
            status,
            uptime_ms=now.uptime_ms,
            utc_s=now.utc_s,
            flushes=commits.count,
            commits_s=commits.total_s,
            commits_within=commits.within,
            free_bytes=self._room.free_bytes,
            disk_is_full=self._store.room_bytes == 0,
            room_lasts_s=self._room.lasts_s,
            floods=self._core.floods(now),
            sessions=self._with_round_trips(status.sessions),
        )

    def _with_round_trips(self, sessions: Iterable[SessionStatus]) -> list[SessionStatus]:
        return [replace(one, round_trip_s=self._round_trip_s(one.key)) for one in sessions]

    def peers(self) -> PeersStatus:
        """Return the queue managers that are connected, or have been."""
        found = self._core.peers(self._clock.now())
        sessions = self._with_round_trips(self._core.status(()).sessions)
        return replace(found, peers=[_with_times(peer, sessions) for peer in found.peers])

    async def explain(self, subject: str, limit: int) -> Explanation:
        """Return everything that this node knows about a queue, a node or a message; see `control.Explain`."""
        identifier = MessageId.parse(subject)
        if identifier is not None:
            found = await self._explain_message(identifier)
        else:
            found = self._explain_queue(subject, limit) if subject else self._explain_all()
        found.status = replace(found.status, in_doubt=lists_of(self._store.path))
        return found

    def _explain_all(self) -> Explanation:
        """Return each queue that has waiting messages, and the first message of each."""
        status = _only_waiting(self.status())
        names = [queue.name for queue in status.outgoing] + [queue.name for queue in status.local]
        return Explanation(status, self._first(names, 1))

    async def _explain_message(self, identifier: MessageId) -> Explanation:
        rows = await trio.to_thread.run_sync(self._store.find, identifier.ordinal)
        places = self._core.whereabouts()
        found = [one for key, packet in rows if (one := places.stored(key, packet)) is not None]
        source = guid_text(identifier.manager)
        messages = [
            message
            for message in map(describe_message, [*found, *places.unstored()])
            if (message.source, message.ordinal) == (source, identifier.ordinal)
        ]
        return Explanation(self.status({message.queue for message in messages}), messages)

    def _explain_queue(self, subject: str, limit: int) -> Explanation:
        topology = self._directory.topology
        known = {name: known_as(topology, name) for name in self._core.outgoing_names()}
        try:
            target = self._directory.target(subject)
        except (UsageError, FormatNameError):
            names = self._directory.outgoing_queues(subject, known)
            if not names:
                raise
            return Explanation(self.status(names), self._first(names[:QUEUES_LISTED], limit))
        if target.node is self._directory.node:
            queue = target.local_name
            if not queue:
                return self._explain_all()
            return Explanation(self.status([queue]), self._first([queue], limit))
        towards_node = [name for name in known if known[name] == target.node.name]
        if not target.local_name:
            names = [name for name in known if known[name].startswith(f"{target.node.name}\\")] + towards_node
            return Explanation(self.status(names), self._first(names, limit))
        names = [name for name in known if known[name] == target.text]
        messages = self._first(names, limit)
        # Messages that pass through, and those without a transaction, wait among others for the same node.
        others = self._first(towards_node, LOOKED_THROUGH)
        mine = [one for one in others if known_as(topology, one.destination) == target.text]
        messages += mine[:limit]
        return Explanation(self.status(names + towards_node), messages)

    def _first(self, names: Iterable[str], limit: int) -> list[MessageStatus]:
        """Return the first messages of each of these queues, in the order in which they will leave the queue."""
        places = self._core.whereabouts()
        messages: list[MessageStatus] = []
        unstored: dict[str, list[Found]] = {}
        for one in places.unstored():
            unstored.setdefault(one.queue, []).append(one)
        for name in names:
            numbers = places.numbers_of(name)
            turn = {number: place for place, number in enumerate(numbers)}
            looked_through = max(limit, LOOKED_THROUGH)
            found = [
                one for number in numbers for one in islice(self._stored(places, number), looked_through)
            ]
            found += unstored.get(name, ())
            found.sort(key=lambda one: (turn[one.key >> POSITION_BITS], one.key))
            messages += _without_copies(map(describe_message, found))[:limit]
        return messages

    def _stored(self, places: Whereabouts, number: int) -> Iterator[Found]:
        """Yield, in order, the messages of one queue that are in the store."""
        after = 0
        while rows := self._store.read(ReadPage(number, after, PAGE, PAGE_BYTES, ReadBy.WINDOW)):
            for position, packet, _ in rows:
                if isinstance(packet, HurtPacket):
                    continue
                found = places.stored(message_key(number, position), packet)
                if found is not None:  # Otherwise it has left, and the store will forget it.
                    yield found
            after = rows[-1][0]

    # Orders

    def hold(self, text: str, *, on_hold: bool) -> list[str]:
        """Pause outgoing queues, or resume them; return their names."""
        names = self._outgoing(text)
        for name in names:
            self._core.hold(name, on_hold=on_hold)
        return names

    def block(self, wish: Block) -> Blocked:
        """Block or unblock an address or a network; see `control.Block`.

        Raises:
            UsageError: the text is not a network, a node of the topology connects from there, or nothing would change.
        """
        network = network_of(wish.network)
        peers = self._directory.routes.peers.items()
        names = [
            node.name
            for manager, peer in peers
            if any(overlap(network, origin) for origin in peer.origins)
            and (node := self._directory.topology.node_by_guid(manager)) is not None
        ]
        if names and wish.is_blocked and not wish.forced:
            raise UsageError(
                f"{' and '.join(names)} may come from {network}: block them as well with --force; what waits here for "
                "them still goes, as this node calls them"
            )
        return Blocked(network, self._core.block(network, is_blocked=wish.is_blocked))

    def peer(self, wish: PeerFacts) -> MetStatus:
        """Add, forget or move an undeclared queue manager; see `control.Peer`.

        Raises:
            UsageError, FormatNameError: the name or the host is not valid, or already means something else on this
                node.
        """
        for address in wish.also:
            if address_of(address) is None:
                raise UsageError(
                    f"{address}: --also takes an address, as connections come from one: 10.0.0.9"
                )
        if not wish.host and wish.also:
            return self._core.is_also(wish.name, wish.also)
        if not wish.host:
            found = (self._core.move_peer if wish.has_moved else self._core.remove_peer)(wish.name)
            if not wish.has_moved and found.manager and self._guard is not None:
                self._guard.keep_peer(guid_from_text(found.manager), {})
            return found
        check_computer(wish.name)
        if any(wish.name.casefold() == name.casefold() for name in self._directory.topology.nodes):
            raise UsageError(f"{wish.name} is a node of the topology: choose another name")
        if address_of(wish.host) is None:
            if ":" in wish.host:
                raise UsageError(
                    f"{wish.host}: a queue manager is called at port {MSMQ_PORT}, and its names have no port: "
                    "leave it out"
                )
            check_computer(wish.host)
        manager = Guid(wish.guid) if wish.guid else None
        if wish.keys:
            if manager is None:
                raise UsageError(
                    "keys are those of a queue manager: name its GUID with --guid, or let --probe find it out"
                )
            if self._guard is None:
                raise UsageError(f"this node could not use the keys: {NO_LIBRARIES}")
        added = self._core.add_peer(wish.name, wish.host, manager, self._clock.now())
        if wish.keys and manager is not None and self._guard is not None:
            self._guard.keep_peer(manager, wish.keys)
        return self._core.is_also(wish.name, wish.also) if wish.also else added

    def read_keys(self) -> None:
        """Read the keys of this node and of other nodes again.

        Raises:
            UsageError: a file is unusable, or keys cannot be used here; nothing has changed.
        """
        if self._guard is None:
            raise UsageError(f"this node could not use the keys: {NO_LIBRARIES}")
        self._guard.read_anew()

    def purge(self, text: str) -> dict[str, int]:
        """Delete everything in a queue of this node, or in outgoing queues.

        Return the number of messages to be deleted from each. Deleting those on disk may take longer; see
        `is_emptying`.
        """
        return {name: self._core.purge(name) for name in self._meant(text)}

    def is_emptying(self, text: str) -> bool:
        """Return whether messages that `purge` deletes are still on disk. Messages that consumers hold do not count."""
        try:
            names = self._meant(text)
        except UsageError:
            return False  # An outgoing queue may go with its last message.
        return any(map(self._core.is_emptying, names))

    def send_back(self, text: str, chosen: Collection[tuple[bytes, int]] | None) -> int:
        """Send messages from a dead-letter queue or a journal again; return the number of messages sent.

        Args:
            chosen: the messages to send, by source and ordinal; None for all messages in memory.

        Raises:
            UsageError: one of them is not there, or the queue is of another kind; nothing was sent.
        """
        queue = self._directory.local_queue(text)
        keys = None if chosen is None else self.keys_of(queue, chosen)
        return self._core.send_back(queue, keys, self._clock.now())

    def keys_of(self, queue: str, chosen: Collection[tuple[bytes, int]]) -> list[int]:
        """Return the keys of messages in memory that are chosen by source and ordinal.

        Raises:
            UsageError: one of the messages is not in memory.
        """
        keys = {MessageId(*identifier_of(one.packet)): one.key for one in self._core.peek(queue, ALL)}
        wanted = [MessageId(Guid(source), ordinal) for source, ordinal in chosen]
        for message in wanted:
            if message not in keys:
                raise UsageError(f"{queue} has no message {message}")
        return [keys[message] for message in wanted]

    def _meant(self, text: str) -> list[str]:
        """Return this node's own queue if the text names one; otherwise the outgoing queues that it names."""
        try:
            return [self._directory.local_queue(text)]
        except (UsageError, FormatNameError):
            return self._outgoing(text)

    def _outgoing(self, text: str) -> list[str]:
        """Return the queue manager's names for the outgoing queues to which the text refers.

        There is at least one.
        """
        names = self._core.outgoing_names()
        found = self._directory.outgoing_queues(text, names)
        if not found:
            topology = self._directory.topology
            known = sorted({known_as(topology, name) for name in names})
            shown = ", ".join(known[:QUEUES_NAMED]) or "none"
            more = f" and {len(known) - QUEUES_NAMED:,} more" if len(known) > QUEUES_NAMED else ""
            node = self._directory.node.name
            raise UsageError(f"{node} has no outgoing queue to {text}; there are: {shown}{more}")
        return found


def _with_times(peer: PeerStatus, sessions: Iterable[SessionStatus]) -> PeerStatus:
    """Return a peer's status with the longest times among the peer's reported sessions, if there are any."""
    own = [one for one in sessions if (host_group(one.host), one.manager) == (peer.host, peer.manager)]
    return replace(
        peer,
        acknowledged_s=max(
            (one.acknowledged_s for one in own if one.acknowledged_s is not None), default=None
        ),
        round_trip_s=max((one.round_trip_s for one in own if one.round_trip_s is not None), default=None),
    )


def _without_copies(messages: Iterable[MessageStatus]) -> list[MessageStatus]:
    """Return each message once, at its first position, with the number of its copies."""
    first: dict[tuple[str, int], MessageStatus] = {}
    for message in messages:
        key = (message.source, message.ordinal)
        first[key] = replace(first[key], copies=first[key].copies + 1) if key in first else message
    return list(first.values())


def _only_waiting(status: NodeStatus) -> NodeStatus:
    """Return the status without its empty queues."""
    return replace(
        status,
        local=[queue for queue in status.local if queue.waiting or queue.held or queue.passed_over],
        outgoing=[
            queue for queue in status.outgoing if queue.waiting or queue.unread or queue.state == "on hold"
        ],
        incoming=[sequence for sequence in status.incoming if sequence.held],
    )
