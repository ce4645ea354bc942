"""Outgoing queues by destination, which are created when first needed and restored after a restart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.messages.destinations import Destination
from mqproto.neighbours.calling import Neighbours
from mqproto.neighbours.met import How
from mqproto.routing import NextHop, Routes
from mqproto.routing.peers import address_of
from mqproto.session import Remote
from mqproto.transfer.incoming import reply_to_sender
from mqproto.transfer.outgoing import ORDER_SUFFIX, MessageName, OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.desk import Desk
from mqproto.turn.effects import MessageRow, QueueRow, StoredQueue
from mqproto.turn.endings import ReplyTo
from mqproto.turn.pending import GivenNumbers
from mqproto.wire import BaseHeader, UserMessage, encode_packet
from mqproto.wire.glance import RECOVERABLE
from mqproto.wire.guid import Guid, guid_from_text, guid_text

PRIORITY: Final = BaseHeader.priority.mask
STRANGERS_HOSTS = 64
STRANGERS_QUEUES = 1_000
ANSWERS = 1_000
"""The maximum number of messages that may wait for one host or queue manager when a stranger asks us to send it one
more.
"""
QUEUES_NAMED: Final = 16
"""The maximum number of outgoing queues that a refusal lists.

Peers can make us create more queues than that.
"""


class Outbound:
    """The outgoing queues of a queue manager.  [MS-MQQB] 3.1.7.12"""

    def __init__(
        self, desk: Desk, routes: Routes, neighbours: Neighbours, numbers: GivenNumbers, now: Moment
    ) -> None:
        self.numbers = numbers
        self._desk = desk
        self._routes = routes
        self._neighbours = neighbours
        self._queues: dict[int, OutgoingQueue] = {}
        self._by_name: dict[tuple[str, int], OutgoingQueue] = {}
        self._named: dict[str, list[OutgoingQueue]] = {}
        """The outgoing queues, including the sequences, by their names in lower case."""
        self._by_manager: dict[tuple[Guid, int, bool], OutgoingQueue] = {}
        self._wayless: dict[Guid, list[OutgoingQueue]] = {}
        """The queues and sequences to queue managers that are neither declared nor met."""
        self._strangers_queues: OrderedDict[tuple[Guid, int, bool], OutgoingQueue] = OrderedDict()
        """Those queues of `_by_manager` that lead to undeclared queue managers; the one that has been unused for the
        longest time comes first.
        """
        self._strangers_hosts: set[str] = set()
        self.acknowledge = self._acknowledge
        """The function that sends acknowledgments; tests may replace it, see manager/parts.py."""
        for one in neighbours.met:
            if one.awaited_s > now.utc_s and one.how is not How.CALLED_US:
                neighbours.await_answers((routes.to_host(one.host),), one.awaited_s)

    # Queues

    def queue(self, number: int) -> OutgoingQueue | None:
        """Return the outgoing queue or sequence with this number in the store; None if there is none."""
        return self._queues.get(number)

    def __iter__(self) -> Iterator[OutgoingQueue]:
        return iter(self._queues.values())

    def towards_manager(self, manager: Guid, priority: int, *, order: bool = False) -> OutgoingQueue:
        """Return the queue to another queue manager for messages that are not kept until an OrderAck.

        order: whether the messages are for its order queue; then they do not wait behind messages with a higher
            priority.
        """
        queue = self._by_manager.get((manager, priority, order))
        if queue is None:
            name = guid_text(manager) + ORDER_SUFFIX * order
            queue = self._queue(name, priority, lambda: self._way_to(manager), manager)
            self._by_manager[manager, priority, order] = queue
        return queue

    def _way_to(self, manager: Guid) -> tuple[NextHop, ...]:
        """Return the next hops to a queue manager that is declared or was met; empty for others."""
        return self._routes.to_manager(manager) or self._neighbours.met.hop_to(manager)

    def knows(self, manager: Guid) -> bool:
        """Whether a queue manager is declared, or was met."""
        return self._routes.declares(manager) or self._neighbours.met.get(manager) is not None

    def is_declared(self, destination: Destination) -> bool:
        """Whether an operator has declared the queue manager of a destination."""
        return destination.manager is not None and self._routes.declares(destination.manager)

    def expect_answers(
        self, destination: Destination, until_s: int, queues: Collection[int], now: Moment
    ) -> None:
        """Expect answers from an undeclared destination until `until_s`, in these queues of ours."""
        host, manager = destination.host, destination.manager
        met = self._neighbours.met
        if host is not None:
            met.expect_answers(None, host, until_s, queues, now)
            self._neighbours.await_answers((self._routes.to_host(host),), until_s)
        elif manager is not None and (hops := met.hop_to(manager)):
            met.expect_answers(manager, hops[0].host, until_s, queues, now)
            self._neighbours.await_answers(hops, until_s)

    def has_invited(self, remote: Remote, queue: int) -> bool:
        """Whether a stranger may send to a queue of ours because we asked it to send answers there."""
        return remote.is_met and self._neighbours.met.has_invited(remote.manager, queue)

    def leads_to(self, manager: Guid) -> bool:
        """Whether there is currently a way to a queue manager."""
        return bool(self._way_to(manager))

    def is_met_at(self, manager: Guid, host: str) -> bool:
        """Whether an undeclared queue manager was met at a given host."""
        found = self._neighbours.met.get(manager)
        return found is not None and found.is_at(host)

    def learn(self) -> None:
        """Process news about undeclared queue managers that were met, have moved, or are forgotten."""
        met = self._neighbours.met
        news, met.news = met.news, {}
        for manager in news:
            hops = met.hop_to(manager)
            for queue in self._wayless.pop(manager, ()) if hops else ():
                self._neighbours.attach(queue, hops)
            self._neighbours.moved(manager)

    def towards_host(
        self, host: str, priority: int, manager: Guid | None = None, *, order: bool = False
    ) -> OutgoingQueue:
        """Return the queue for messages to direct format names that have this host."""
        return self._queue(host + ORDER_SUFFIX * order, priority, lambda: self._hops_to_host(host, manager))

    def towards(self, destination: Destination, priority: int) -> OutgoingQueue:
        """Return the queue for non-transactional messages to a destination."""
        if destination.host is not None:
            return self.towards_host(destination.host, priority, destination.manager)
        assert destination.manager is not None
        return self.towards_manager(destination.manager, priority)

    def known_towards(self, destination: Destination, priority: int) -> OutgoingQueue | None:
        """Return the same queue as `towards`; None if the queue does not exist yet."""
        if destination.host is not None:
            return self._by_name.get((destination.host, priority))
        assert destination.manager is not None
        return self._by_manager.get((destination.manager, priority, False))

    def _hops_to_host(self, host: str, manager: Guid | None) -> tuple[NextHop, ...]:
        hop = self._routes.to_host(host)
        if hop.manager is None and manager is not None:
            return self._routes.to_manager(manager) or (NextHop(manager, host, hop.port),)
        return (hop,)

    def _queue(
        self, name: str, priority: int, hops: Callable[[], tuple[NextHop, ...]], manager: Guid | None = None
    ) -> OutgoingQueue:
        queue = self._by_name.get((name, priority))
        if queue is None:
            queue = OutgoingQueue(self.numbers.next_queue(), name, self._desk.settings, priority=priority)
            self._add(queue, hops(), manager)
            self.take_over_hold(queue)
        return queue

    def take_over_hold(self, queue: OutgoingQueue) -> None:
        """Pause a new queue if an operator has paused the queues with its name.

        Queues with the same name and different priorities are all paused together.
        """
        if any(other.on_hold for other in self.named(queue.name)):
            self.hold(queue, on_hold=True)

    def _add(self, queue: OutgoingQueue, hops: tuple[NextHop, ...], manager: Guid | None = None) -> None:
        self._queues[queue.queue] = queue
        self._named.setdefault(queue.name.lower(), []).append(queue)
        if not isinstance(queue, OutgoingSequence):
            self._by_name[queue.name, queue.priority] = queue
        if hops:
            self._neighbours.attach(queue, hops)
        elif manager is not None and not self._routes.declares(manager):
            self._wayless.setdefault(manager, []).append(queue)

    def lead(self, sequence: OutgoingSequence, host: str | None) -> None:
        """Choose the next hops of a sequence: those to the host in its direct name, or those to its queue manager."""
        manager = sequence.destination_manager
        hops = self._way_to(manager) if manager is not None else ()
        if host is not None:
            hops = self._hops_to_host(host, manager)
        self._add(sequence, hops, manager)

    def named(self, name: str) -> list[OutgoingQueue]:
        """Return the queues with this name, one for each priority, and the sequence with this name."""
        return self._named.get(name.lower(), [])

    def hold(self, queue: OutgoingQueue, *, on_hold: bool) -> None:
        """Pause or resume a queue; a restart does not change this.  3.1.7.13, 3.1.7.14"""
        queue.on_hold = on_hold
        queue.registered = True
        self._desk.writes.urgent().queues.append(
            QueueRow(queue.queue, queue.kind, queue.name, queue.priority, on_hold)
        )
        self._neighbours.wake(queue)

    def hold_named(self, name: str, *, on_hold: bool) -> None:
        """Pause or resume the queues with this name.

        Raises:
            UsageError: there are none.
        """
        queues = self.named(name)
        if not queues:
            names = sorted({one.name for one in self})
            known = ", ".join(names[:QUEUES_NAMED]) or "none"
            more = f" and {len(names) - QUEUES_NAMED:,} more" if len(names) > QUEUES_NAMED else ""
            raise UsageError(f"no outgoing queue {name} here; there are: {known}{more}")
        for queue in queues:
            self.hold(queue, on_hold=on_hold)
        if on_hold:
            self._neighbours.hold(queues[0])

    def put(self, queue: OutgoingQueue, rows: list[MessageRow]) -> None:
        """Add messages to a queue."""
        queue.join(rows, self._desk.writes)
        self._neighbours.wake(queue)

    def pass_on(self, queue: OutgoingQueue, rows: list[MessageRow], names: Sequence[MessageName]) -> None:
        """Add other senders' transactional messages to a queue that has no copies of them."""
        queue.pass_on(rows, names, self._desk.writes)
        self._neighbours.wake(queue)

    def has_way(self, queue: OutgoingQueue) -> bool:
        """Whether a queue has a next hop that we may call, or that has called us."""
        neighbour = self._neighbours.of_queue(queue)
        return neighbour is not None and self._neighbours.may_have_session(neighbour)

    def reply_to(self, message: UserMessage, remote: Remote) -> ReplyTo:
        """Return where to send acknowledgments: to a direct name only if it can lead to the message's sender.

        A queue manager treats a direct name without a GUID as the name of one of its own queues (3.1.5.8.5). So if
        several queue managers share the address from which the message came, only the GUID tells them apart. The name
        has an address, even if we called the host by its name (2.2.4). Acknowledgments for a stranger are sent on a
        session with it, whatever name they carry.
        """
        host = remote.called or remote.address
        reply_to = reply_to_sender(message, host)
        if not remote.is_proven:
            return reply_to if address_of(host) is not None else ReplyTo(reply_to.manager, None)
        if reply_to.direct_host is None or self._routes.to_host(host).manager == reply_to.manager:
            return reply_to
        return ReplyTo(reply_to.manager, None) if self._routes.to_manager(reply_to.manager) else reply_to

    def may_answer(self, host: str | None) -> bool:
        """Whether a message may be sent to a host because a stranger has asked for an answer there.

        At most STRANGERS_HOSTS such hosts have queues, and at most ANSWERS messages wait for each of them.
        """
        if host is None or not self._routes.may_call(host):
            return False
        waiting = [queue.count for queue in self.named(host) + self.named(host + ORDER_SUFFIX)]
        if not waiting and host.lower() not in self._strangers_hosts:
            if len(self._strangers_hosts) >= STRANGERS_HOSTS:
                return False
            self._strangers_hosts.add(host.lower())
        return sum(waiting) < ANSWERS

    def answers_to(self, manager: Guid, priority: int, *, order: bool = False) -> OutgoingQueue | None:
        """Return the queue for messages that an undeclared queue manager asks for; None if too many wait.

        They are sent on a session with the address where the queue manager was met. At most ANSWERS messages wait for
        each queue manager, in at most STRANGERS_QUEUES queues in total. Beyond that, an empty queue is reused.
        """
        if self._neighbours.met.get(manager) is None:
            return None
        name, key = guid_text(manager), (manager, priority, order)
        if sum(queue.count for queue in self.named(name) + self.named(name + ORDER_SUFFIX)) >= ANSWERS:
            return None
        queue = self._strangers_queues.get(key) or self._by_manager.get(key)
        if queue is None and len(self._strangers_queues) >= STRANGERS_QUEUES:
            queue = self._taken_over(key, name + ORDER_SUFFIX * order)
            if queue is None:
                return None
        self._strangers_queues[key] = queue or self.towards_manager(manager, priority, order=order)
        self._strangers_queues.move_to_end(key)
        return self._strangers_queues[key]

    def _taken_over(self, key: tuple[Guid, int, bool], name: str) -> OutgoingQueue | None:
        """Reuse another stranger's empty queue for this stranger; return None if no queue is empty."""
        empty = (one for one in self._strangers_queues.items() if not (one[1].count or one[1].on_hold))
        before, queue = next(empty, (None, None))
        if before is None or queue is None:
            return None
        del (
            self._strangers_queues[before],
            self._by_manager[before],
            self._by_name[queue.name, queue.priority],
        )
        self._named[queue.name.lower()].remove(queue)
        if queue in (wayless := self._wayless.get(before[0], [])):
            wayless.remove(queue)
        self._neighbours.detach(queue)
        manager, priority, _ = key
        queue.lead_to(name, priority)
        self._add(queue, self._way_to(manager), manager)
        self._by_manager[key] = queue
        return queue

    def _acknowledge(self, message: UserMessage, reply_to: ReplyTo) -> None:
        """Put an OrderAck or a FinalAck into its queue.  3.1.7.17

        An OrderAck is dropped if there is no way to the node that it is for; a resend asks for another.
        """
        priority, manager = message.base.flags & PRIORITY, reply_to.manager
        queue: OutgoingQueue | None
        if not self._routes.declares(manager):
            queue = self.answers_to(manager, priority, order=True)
        elif reply_to.direct_host is not None:
            queue = self.towards_host(reply_to.direct_host, priority, manager, order=True)
        else:
            queue = self.towards_manager(manager, priority, order=True)
        if queue is None:
            return
        recoverable = bool(message.user.flags & RECOVERABLE)
        if recoverable or self.has_way(queue):
            packet, message_id = encode_packet(message), message.user.message_id
            self.put(queue, queue.rows([packet], [message_id], recoverable=recoverable))

    def wake(self, queue: OutgoingQueue) -> None:
        """Record that a queue can send or read again, because of an acknowledgment or because messages left."""
        self._neighbours.wake(queue)

    def restore(self, stored: StoredQueue) -> None:
        """Restore an outgoing queue from the store."""
        queue = OutgoingQueue(
            stored.queue, stored.name, self._desk.settings, stored, priority=stored.priority
        )
        name = stored.name.removesuffix(ORDER_SUFFIX)
        try:
            manager = guid_from_text(name)
        except ValueError:
            self._add(queue, self._hops_to_host(name, None))
        else:
            self._add(queue, self._way_to(manager), manager)
            if not self._routes.declares(manager):
                key = manager, queue.priority, queue.name != name
                self._by_manager[key] = self._strangers_queues[key] = queue
