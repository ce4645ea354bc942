"""One queue manager, which takes events and returns batches of effects.

It makes decisions and never waits. The shell feeds it all events, takes one batch, commits the batch's writes, and then
sends:

    core.is_blocked / count_blocked     a connection came from a blocked host
    core.accepted(host, now)            a host has connected
    core.pinged(datagram)               a neighbour asks whether it may connect; returns the answer
    core.ping_answered(session, data)   a datagram came from the address that we pinged
    core.opened(session, now)           a transport that we asked for is open
    core.lost(session, reason, now)     a transport broke, or could not be opened
    core.receive(session, data, now)    bytes arrived
    core.tick(now)                      a deadline passed
    core.stored(size_bytes)             a batch was committed
    core.has_room(room_bytes)           how much a batch may add while the disk is nearly full
    core.loaded(page, rows, now)        a page of a queue was read
    core.enqueue(messages, now)         an application sends messages
    core.consume / settle / abandon     an application receives, commits or rolls back, goes away
    core.reject                         an application refuses its messages for good
    core.remember(outcomes)             the outcome of the latest operation
    core.purge / send_back / hold       an operator empties a queue, resends dead letters, pauses a
                                        queue
    core.make / change / delete         an operator adds, changes or deletes a queue
    core.block / unblock                an operator blocks a host or network, or unblocks it
    core.peek / status / peers          an operator looks at the state
    core.is_empty                       whether a consumer has to wait
    core.whereabouts                    an operator looks for messages
    core.stop()                         the node is about to shut down
    core.take(now) -> Batch             everything decided since the last take

The parts: `neighbours` has the sessions and sends messages on them, `arrivals` decides about messages that came,
`transfer` has the sequences, `confirmations` processes their acknowledgments, `localqueues` has the queues of
applications, `expiration` finds expired messages, and `outcomes` handles the consequences of a message's end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.manager.arriving.arrivals import NotWelcomeError
from mqproto.manager.arriving.inserting import NoRoomError, is_acknowledgment
from mqproto.manager.parts import Parts, build
from mqproto.manager.status import NodeStatus, PeersStatus, counts, describe, describe_peers
from mqproto.manager.whereabouts import Whereabouts
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import Draft
from mqproto.neighbours.blocks import network_of
from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.hosts import BLOCKED
from mqproto.neighbours.peerstatus import FloodStatus, MetStatus, describe_met, floods
from mqproto.queues.consumers import Consumer
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import Routes
from mqproto.session import Session
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.resending import OrderAckWait
from mqproto.turn.effects import (
    Batch,
    Delivery,
    HurtPacket,
    IncomingRow,
    MessageRow,
    OutcomeRow,
    PostedRow,
    ReadBy,
    ReadExpired,
    ReadPage,
    ReadSequences,
    StoredState,
    message_key,
)
from mqproto.turn.guard import CACHE_CLEANUPS, NO_KEYS, Guard
from mqproto.turn.pending import purges_of
from mqproto.turn.waypoints import Follow, nobody
from mqproto.wire.guid import Guid
from mqproto.wire.shapes import Run


class QueueManager:
    """The core of one node.

    Args:
        identity: QueueManager.Identifier, which is unique in the world.
        queues: the queues that the topology declares for the node; it hosts them unless an operator has changed that
            (`declared`). If a queue is in the store but not in this list, its messages are kept but cannot be reached.
        routes: the next hops towards other queue managers.
        settings: timers and limits.
        state: the contents of the store when it was opened.
        now: the moment at which the store was opened.
        guard: encrypts and signs messages, and judges those of others; by default, there are no keys for that.
        follow: tells which messages belong to a trace; each step of these messages becomes a note.
    """

    def __init__(
        self,
        identity: Guid,
        queues: Iterable[QueueDeclaration],
        routes: Routes,
        settings: Settings,
        state: StoredState,
        now: Moment,
        guard: Guard = NO_KEYS,
        follow: Follow = nobody,
    ) -> None:
        self.identity = identity
        self._parts = build(identity, queues, routes, settings, state, now, guard, follow)
        self._again: list[ReadPage | ReadExpired] = []
        """The pages that had damaged messages and have to be read again."""
        self._stored_bytes = 0
        self._room_bytes: int | None = None
        for number, last in purges_of(state.counters).items():
            self._go_on_purging(number, last)

    # Transports

    def accepted(self, host: str, now: Moment, certified: Guid | None = None) -> int:
        """Record that a host has connected to us. Return the number that names the session from now on.

        certified: the queue manager to which the host's certificate is pinned; None for a plain connection.
        """
        return self._parts.transports.accepted(host, now, certified).key

    def turns_away(self, host: str, reason: str, now: Moment) -> bool:
        """Return whether to turn away a connection from `host` for the given reason.

        Return False if a known peer may be there.
        """
        if not self._parts.transports.door.turns_away(host, reason):
            return False
        self._parts.transports.hosts.turned_away(host, reason, now)
        return True

    def is_known(self, session: int) -> bool:
        """Whether the peer has identified itself as a declared queue manager."""
        found = self._parts.transports.sessions.get(session)
        return found is not None and found.is_proven

    def may_be_known(self, session: int) -> bool:
        """Whether a session is not open yet, and its peer may be a declared queue manager.

        That is so if a declared queue manager may be at the peer's address.
        """
        found = self._parts.transports.sessions.get(session)
        return found is not None and not found.is_open and self.is_declared(found.remote_address)

    def in_flight_bytes(self, session: int) -> int:
        """Return the number of bytes that were sent on a session and are not acknowledged yet.

        Acknowledgments do not count.
        """
        found = self._parts.transports.sessions.get(session)
        return found.data.in_flight_bytes if found is not None else 0

    def is_declared(self, host: str) -> bool:
        """Whether a declared queue manager that connects without TLS may be at a given host."""
        return self._parts.routes.is_declared(host)

    def is_blocked(self, host: str) -> bool:
        """Whether an operator has blocked a host, so that connections and pings from there get no answer."""
        return self._parts.blocks.covers(host)

    def count_blocked(self, host: str, now: Moment) -> None:
        """Count a connection from a blocked host, which was closed without a session."""
        self._parts.transports.hosts.turned_away(host, BLOCKED, now)

    def opened(self, session: int, now: Moment, address: str = "") -> None:
        """Record that the transport that an OpenTransport asked for is open.

        address: the address of the host to which it was opened.
        """
        self._parts.transports.opened(session, now, address)

    def lost(self, session: int, reason: str, now: Moment) -> None:
        """Record that the transport broke or could not be opened, or that the peer closed it.

        An unknown session is not an error.
        """
        self._parts.neighbours.lost(session, reason, now)

    def pinged(self, datagram: bytes) -> bytes | None:
        """Return the answer to a datagram that came to our ping port; None if there is none.  3.1.7.7

        This changes nothing, so there is no batch to take afterwards.
        """
        return self._parts.transports.pinged(datagram)

    def ping_answered(self, session: int, datagram: bytes) -> bool:
        """Process a datagram from the address to which a SendPing went. Return whether it was the response. 3.1.7.8"""
        return self._parts.transports.ping_answered(session, datagram)

    def receive(self, session: int, data: bytes | bytearray | memoryview, now: Moment) -> int:
        """Process bytes that arrived; those for a session that is already closed are dropped.

        Returns:
            The total size of the packets that are now complete, including those of their bytes that came
            earlier.
        """
        transports, arrivals = self._parts.transports, self._parts.arrivals
        found = transports.sessions.get(session)
        if found is None or found.closed is not None:
            return 0
        begun_bytes = found.begun_bytes
        runs = transports.hear(found, data, now, arrivals.refuses)
        whole_bytes = begun_bytes + len(data) - found.begun_bytes
        refusing, before = arrivals.refusing, arrivals.refusing.count
        count = self._take_in(found, runs, now) if runs else 0
        transports.hosts.received(found, count, len(data), now, refusing.count - before, refusing.last)
        transports.touch(found)
        return whole_bytes

    def _take_in(self, session: Session, runs: list[Run], now: Moment) -> int:
        """Process messages, and return how many there were.

        A message that cannot be taken closes the session.  3.1.5.8
        """
        count, full, ended = 0, False, False
        arrivals, remote = self._parts.arrivals, session.remote
        arrivals.brought_by(remote, session.data.received_window_size)
        for run in runs:
            at, end = 0, len(run.packets)
            count += end
            while at < end and not ended:
                judgment, some = arrivals.judge(run, at, remote), run
                if end > 1:
                    some = run.part(at, 1 if full else arrivals.together(run, at, judgment))
                at += len(some.packets)
                if full and not is_acknowledgment(some):
                    continue  # Nothing may overtake a message that had no room, except acknowledgments: they make room.
                self._parts.desk.waypoints.arrived(some.packets, session)
                try:
                    arrivals.arrived(some, judgment, remote, now)
                except NoRoomError as no_room:
                    full = True
                    self._turn_away(some, session, "3.1.5.8.8", no_room)
                except NotWelcomeError as not_welcome:
                    ended = True
                    self._turn_away(some, session, "3.1.5.8", not_welcome)
        return count

    def _turn_away(self, run: Run, session: Session, section: str, reason: Exception) -> None:
        """Turn away a message, and end the session."""
        self._parts.desk.waypoints.turned_away(run.packets[0], str(reason))
        session.refuse(section, str(reason))

    # Time and the store

    def tick(self, now: Moment) -> None:
        """Handle everything that is due."""
        if now.uptime_ms >= self._parts.posted.time.next_ms:
            self._parts.posted.time.now_s(now)
        for timer, owner in self._parts.desk.timers.expired(now.uptime_ms):
            if isinstance(owner, int):
                self._parts.transports.expired(timer, owner, now)
            elif isinstance(owner, Neighbour):
                self._parts.neighbours.retry(owner, now)
            elif isinstance(owner, OrderAckWait):
                self._parts.desk.notes.append(self._parts.sequences.resend(owner.queue, now))
            elif isinstance(owner, IncomingSequence):
                self._parts.arrivals.in_sequence.order_ack_due(owner, now)
            elif timer in CACHE_CLEANUPS:
                self._parts.desk.guard.expired(timer, now)
            elif timer is Timer.MESSAGE_ID_HISTORY_CLEANUP:
                for history in self._parts.histories:
                    history.clean_up(now, self._parts.desk.writes)
            elif timer is Timer.EXPIRATION:
                self._parts.expiration.due(now)
            else:
                assert timer is Timer.LAZY_WRITES
                self._parts.desk.writes.force()

    def stored(self, size_bytes: int) -> None:
        """Record that a batch was committed, or the store was opened.

        size_bytes: the size of the messages that are now in the store.
        """
        self._stored_bytes = size_bytes
        self._parts.arrivals.room.stored_bytes = self._parts.sending.stored_bytes = size_bytes
        self._limit()

    @property
    def added_bytes(self) -> int:
        """The approximate number of bytes that applications have added since the last commit."""
        return self._parts.sending.stored_bytes - self._stored_bytes

    def has_room(self, room_bytes: int | None) -> None:
        """Set how many bytes a batch may add to the store; None if only quota_bytes limits it.

        Beyond that, applications are refused, and neighbours keep their messages. Operations that make the store
        smaller are always carried out. The limit holds until the next call.
        """
        if room_bytes != self._room_bytes:
            self._room_bytes = room_bytes
            self._limit()
            self._parts.desk.writes.has_room(room_bytes != 0)

    def _limit(self) -> None:
        limit_bytes = None if self._room_bytes is None else self._stored_bytes + self._room_bytes
        self._parts.arrivals.room.limit_bytes = self._parts.sending.limit_bytes = limit_bytes

    def loaded(self, page: ReadPage | ReadExpired, rows: list[tuple[int, bytes, bool]], now: Moment) -> None:
        """Process the answer to one of a batch's reads; the kind of read determines the type of `rows`."""
        if hurt := [(place, packet) for place, packet, _ in rows if isinstance(packet, HurtPacket)]:
            first = 0 if isinstance(page, ReadExpired) else message_key(page.queue, 0)
            for place, packet in hurt:
                self._parts.damage.found(first | place, packet, now)
            self._again.append(page)  # They are gone by then.
        elif isinstance(page, ReadExpired):
            self._parts.expiration.loaded(rows, now)
        elif page.reader is ReadBy.OUTCOME:
            self._parts.acknowledged.loaded(page, rows)
        elif page.reader is ReadBy.EXPIRY:
            self._parts.expiration.looked_through(page, rows, now)
        elif page.reader is ReadBy.PURGE:
            self._parts.purges.loaded(page, rows)
        else:
            queue = self._parts.outbound.queue(page.queue)
            if queue is not None:
                self._parts.expiration.expect(queue.loaded(page, rows), now)
                self._parts.neighbours.wake(queue)
            else:
                found = self._parts.queues.of_lane(page.queue)
                assert found is not None, f"no queue {page.queue} asked for a page"
                local, lane = found
                self._parts.expiration.expect(lane.window.loaded(rows, local.deadline_s), now)
                self._parts.queues.stir(local)

    def found(self, read: ReadSequences, rows: Sequence[IncomingRow], now: Moment) -> None:
        """Process the answer to one of a batch's reads of sequences."""
        self._parts.arrivals.found(read, rows, now)

    # Applications

    def enqueue(
        self,
        messages: Sequence[tuple[Destination, Draft]],
        now: Moment,
        *,
        together: bool = True,
        posted: Sequence[PostedRow] = (),
    ) -> list[int]:
        """Send messages for an application.

        Either all or none of them are accepted. They are accepted once the next batch's writes are committed.

        together: whether the transactional messages form a single transaction, rather than one each.
        posted: a row for each message, if they came over HTTP; its MessageID and time are not known yet.

        Returns:
            The messages' ordinals, which are unique among all messages that this queue manager sends.

        Raises:
            UsageError: one of the messages cannot be sent like this; nothing has changed.
        """
        return self._parts.sending.enqueue(messages, now, together=together, posted=posted)

    def consume(self, consumer: int, queue: str, limit: int, *, transactional: bool) -> None:
        """Ask for up to `limit` messages for an application; a Delivery follows as soon as there are any.

        A transactional consumer must `settle` before it asks again; for others, a message counts as received at once.

        Raises:
            UsageError: there is no such queue, the limit is below 1, or the consumer has not settled.
        """
        local = self._parts.queues.named(queue)
        local.consumers.ask(Consumer(consumer, limit, transactional))
        self._parts.queues.stir(local)

    def is_empty(self, queue: str) -> bool:
        """Return whether a local queue is empty, so that a consumer has to wait.

        Raises:
            UsageError: there is no such queue.
        """
        return not self._parts.queues.named(queue).count

    def consume_these(self, consumer: int, queue: str, keys: Iterable[int], now: Moment) -> list[MessageRow]:
        """Hand certain messages to an application, given their keys from `peek`. They are settled as usual.

        Raises:
            UsageError: there is no such queue; one of the messages is no longer in memory, or has expired; or the
                consumer has unsettled messages. In each case, no message was handed out.
        """
        local = self._parts.queues.named(queue)
        received = local.hand_out_these(consumer, keys, now)
        self._parts.queues.stir(local)
        return received

    def settle(self, consumer: int, queue: str, now: Moment, *, commit: bool) -> None:
        """Commit or roll back the messages of a transactional consumer.

        Raises:
            UsageError: the consumer has no messages to settle.
        """
        local = self._parts.queues.named(queue)
        if commit:
            local.settle(consumer, now)
        else:
            local.consumers.roll_back(consumer)
            self._parts.expiration.look_again(now)
        self._parts.queues.stir(local)

    def reject(self, consumer: int, queue: str) -> None:
        """Reject messages for a transactional consumer, with the class MQMSG_CLASS_NACK_RECEIVE_REJECTED.

        Raises:
            UsageError: the consumer has no messages to settle.
        """
        local = self._parts.queues.named(queue)
        local.reject(consumer)
        self._parts.queues.stir(local)

    def abandon(self, consumer: int, queue: str, now: Moment) -> None:
        """Forget a consumer; its unsettled messages return to their places."""
        local = self._parts.queues.named(queue)
        local.consumers.abandon(consumer)
        self._parts.expiration.look_again(now)
        self._parts.queues.stir(local)

    def peek(self, queue: str, limit: int) -> list[MessageRow]:
        """Return the first messages of a queue, which stay there; at most as many as are in memory.

        Raises:
            UsageError: there is no such queue.
        """
        return self._parts.queues.named(queue).peek(limit)

    def remember(
        self,
        outcomes: dict[tuple[bytes, int], OutcomeRow | None],
        *,
        needed: bool = False,
        counters: dict[str, int] | None = None,
    ) -> bool:
        """Keep the outcome of the latest operation, in the same transaction as the operation's effects.

        If an operation, such as sending an express message, changes nothing on disk, its outcome is not written either,
        unless that is `needed`. A crash then forgets both.

        Args:
            counters: numbers that the shell wants to keep together with the outcomes, by their names.

        Returns:
            Whether the outcome is kept.
        """
        return self._parts.desk.writes.accompany(outcomes, needed=needed, counters=counters)

    def forget(
        self,
        invokers: Iterable[bytes],
        rows: dict[tuple[bytes, int], OutcomeRow | None] | None = None,
        counters: dict[str, int] | None = None,
    ) -> None:
        """With the next commit, forget the outcomes of invokers that will not return.

        Keep `rows` and `counters` in the same transaction.
        """
        self._parts.desk.writes.forget(invokers, rows or {}, counters or {})

    # Operators

    def purge(self, queue: str) -> int:
        """Delete all messages in a local or an outgoing queue now.

        The dead letters and acknowledgments that were requested are sent. Messages that a consumer has not settled are
        deleted if the consumer gives them back. The next commit records the last position to delete, so that the purge
        continues after a restart.

        Returns:
            The number of messages that will be deleted. This takes a while if most of them are on disk.

        Raises:
            UsageError: there is no such queue.
        """
        outgoing = self._parts.outbound.named(queue)
        if outgoing:
            count = sum(one.count for one in outgoing)
            for one in outgoing:
                self._parts.purges.begin(one)
            return count
        local = self._parts.queues.named(queue)
        local.purging.begin(local.lanes, writes=self._parts.desk.writes)
        self._parts.queues.stir(local)
        return local.count

    def _go_on_purging(self, number: int, last: int) -> None:
        """Continue to empty a queue, or one lane of it, up to a position that an earlier process recorded."""
        if (outgoing := self._parts.outbound.queue(number)) is not None:
            self._parts.purges.go_on(outgoing, last)
            return
        found = self._parts.queues.of_lane(number)
        if found is None or not found[0].purging.go_on(found[1], last):
            self._parts.desk.writes.purge_until(number, 0)

    def is_emptying(self, queue: str) -> bool:
        """Return whether messages that `purge` is to delete have yet to be read from disk.

        Messages of consumers do not count. The last message leaves with the first batch that is taken after this has
        become false.
        """
        outgoing = self._parts.outbound.named(queue)
        if outgoing:
            return any(map(self._parts.purges.is_going_through, outgoing))
        try:
            return self._parts.queues.named(queue).purging.is_reading
        except UsageError:
            return False  # It was deleted meanwhile.

    def make(self, declaration: QueueDeclaration) -> QueueDeclaration:
        """Add a queue to those of the topology, permanently.

        Args:
            declaration: the queue to add. The identifier in it is replaced by a new one, which no queue has ever had.

        Raises:
            UsageError: another queue has that name or GUID, or a deleted queue with that name is not empty yet.
        """
        return self._parts.queues.make(declaration)

    def change(self, declaration: QueueDeclaration) -> None:
        """Permanently change a queue's quotas, its journal, or whether it is open to strangers.

        Raises:
            UsageError: the queue does not exist, or would lose a journal that is not empty.
        """
        self._parts.queues.change(declaration)

    def delete(self, queue: str) -> int:
        """Delete a local queue, its journal and their messages permanently.

        Returns:
            The number of messages that will be deleted.

        Raises:
            UsageError: the queue does not exist, is a system queue, or is in use by an application.
        """
        local = self._parts.queues.named(queue)
        count = self._parts.queues.delete(local)
        self._parts.arrivals.in_sequence.queue_deleted(local)
        return count

    @property
    def declared(self) -> list[QueueDeclaration]:
        """The existing queues, except journals and system queues."""
        return self._parts.queues.declared

    def send_back(self, queue: str, keys: Sequence[int] | None, now: Moment) -> int:
        """Send dead letters or journaled messages to their destinations again, as new messages.

        Args:
            queue: a dead-letter queue or a journal.
            keys: the keys, from `peek`, of the messages to send; None for all messages that `peek` shows.

        Returns:
            The number of messages sent; the others no longer have a destination, or are not in the queue.

        Raises:
            UsageError: the queue does not exist, or is of another kind.
        """
        return self._parts.dead_letters.send_back(queue, keys, now)

    def hold(self, queue: str, *, on_hold: bool) -> None:
        """Pause or resume an outgoing queue; a restart does not change this.  3.1.7.13, 3.1.7.14

        Raises:
            UsageError: there is no such outgoing queue.
        """
        self._parts.outbound.hold_named(queue, on_hold=on_hold)

    def block(self, network: str, *, is_blocked: bool) -> int:
        """Block an address or a network permanently, so that connections from it get no answer; or unblock it.

        Sessions that came from there end. Sessions that this queue manager opened continue, and it may open more.

        Returns:
            The number of sessions that end.

        Raises:
            UsageError: the text is not a network; BLOCKS networks are blocked already; or the network to unblock is not
                blocked.
        """
        network = network_of(network)
        if not is_blocked:
            self._parts.blocks.unblock(network)
            return 0
        self._parts.blocks.block(network)
        return self._parts.transports.turn_out(self._parts.blocks.covers)

    def add_peer(self, name: str, host: str, manager: Guid | None, now: Moment) -> MetStatus:
        """Add an undeclared queue manager with the address and the name that an operator gives.

        Raises:
            UsageError: the name is taken, the GUID is declared, or there are too many peers.
        """
        return describe_met(self._parts.met, self._parts.met.add(name, host, manager, now))

    def is_also(self, name: str, addresses: Collection[str]) -> MetStatus:
        """Add addresses to a peer, which is given by its name or its GUID.

        Raises:
            UsageError: there is no such peer, or it would have too many addresses.
        """
        return describe_met(self._parts.met, self._parts.met.is_also(name, addresses))

    def remove_peer(self, name: str) -> MetStatus:
        """Forget a peer, which is given by its name or its GUID.

        Raises:
            UsageError: there is no such peer.
        """
        return describe_met(self._parts.met, self._parts.met.remove(name))

    def move_peer(self, name: str) -> MetStatus:
        """Move a peer to the address at which its GUID has last appeared.

        Raises:
            UsageError: there is no such peer, or its GUID has not appeared elsewhere.
        """
        return describe_met(self._parts.met, self._parts.met.move(name))

    @property
    def peer_hosts(self) -> Mapping[str, str]:
        """A live view of the peers' hosts.

        The keys are the names that an operator gave the peers, in lower case.
        """
        return self._parts.met.hosts_by_name

    def stop(self) -> None:
        """Close all sessions and write all pending changes. The caller must carry out one more batch.  3.1.4.2"""
        self._parts.posted.stop()
        self._parts.transports.close_all("the queue manager stops")
        self._parts.desk.writes.force()

    # What was decided

    def take(self, now: Moment) -> Batch:
        """Return everything that was decided since the last call."""
        parts, desk, batch = self._parts, self._parts.desk, Batch()
        if parts.met.news:
            parts.outbound.learn()
        while True:
            for queue in parts.queues.take_stirred(now) if parts.queues.stirred else ():
                if queue.purging:
                    queue.let_go(now)
                batch.deliveries += [
                    Delivery(consumer.consumer, queue.name, received)
                    for consumer, received in queue.hand_out(now)
                ]
                batch.reads += queue.pages()
            parts.neighbours.turn(batch, now)
            if traced := parts.neighbours.leaving.traced:
                parts.tracing.sent(traced, now)
            if not desk.endings:
                break
            endings = desk.endings.copy()
            desk.endings.clear()
            parts.outcomes.follow(endings, now)
        if parts.arrivals.reads:
            batch.reads += parts.arrivals.take_reads()
        if parts.acknowledged.proven or parts.acknowledged.reads:
            batch.reads += parts.acknowledged.pages()
        # One after the other: if two of them let go of one message, neither would know that the other has.
        if self._again:
            batch.reads += self._again
            self._again = []
        elif parts.purges.reads:
            batch.reads += parts.purges.reads
            parts.purges.reads.clear()
        elif parts.expiration.overlooked or parts.expiration.asks_store:
            batch.reads += parts.expiration.pages()
        batch.writes = desk.writes.take(now)
        for history in parts.histories:
            if history.size > history.most:
                history.make_room(desk.writes)
        batch.pings, parts.transports.pings.requests = parts.transports.pings.requests, []
        batch.connects, parts.transports.connects = parts.transports.connects, []
        batch.notes += desk.notes
        desk.notes.clear()
        batch.deadline_ms = desk.timers.next_ms
        return batch

    def status(self, names: Collection[str] | None = None) -> NodeStatus:
        """Return the status of all queues and sessions, to be shown to people; the caller adds the time.

        names: the queues to describe; by default all, limited by QUEUES_LISTED and SEQUENCES_LISTED.
        """
        return describe(self._parts, names)

    def outgoing_names(self) -> list[str]:
        """Return the names of all outgoing queues, each only once, the oldest first."""
        return list(dict.fromkeys(queue.name for queue in self._parts.outbound))

    def peers(self, now: Moment) -> PeersStatus:
        """Return present and former peers and their activity, to be shown to people."""
        return describe_peers(self._parts, now)

    def floods(self, now: Moment) -> list[FloodStatus]:
        """Return the hosts that flooded this node in the last minute."""
        return floods(self._parts.transports.hosts.tallies(now), self._parts.routes.peers, now)

    def counts(self) -> dict[str, int]:
        """Return those counts of `status` that have accumulated since the process began, keyed by field name.

        This costs a fraction of what `status` costs, so it is for frequent callers.
        """
        return counts(self._parts)

    def leaving(self) -> dict[str, int]:
        """Return, by local queue, the maximum number of messages that the next commit may remove from it.

        Queues from which it removes none are left out.
        """
        leaving = self._parts.desk.writes.leaving()
        return {
            queue.name: count
            for queue in self._parts.queues
            if (count := sum(leaving.get(lane.queue, 0) for lane in queue.lanes))
        }

    def whereabouts(self) -> Whereabouts:
        """Return where messages are, to be shown to people. The result is valid until the next event or batch."""
        return Whereabouts(self._parts)

    def inspect(self) -> Parts:
        """Return all parts, for tests and worlds."""
        return self._parts
