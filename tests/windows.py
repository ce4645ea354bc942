"""A lane, a local queue, an outgoing queue and a sequence, each with a disk but without a queue manager.

Each can be driven step by step, and restarted from what was committed. Writes of a queue are committed as a queue
manager would do it: urgent ones at once, and the others with them.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final, TypeAlias

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.queues.consumers import Consumer
from mqproto.queues.lanes import Lane
from mqproto.queues.localqueue import LocalQueue, QueueDeclaration
from mqproto.session import InFlight
from mqproto.simulator.storage.disk import Disk
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.desk import Desk
from mqproto.turn.effects import (
    Departure,
    QueueKind,
    QueueRow,
    ReadExpired,
    ReadPage,
    StoredQueue,
    Writes,
    message_key,
)
from mqproto.turn.endings import Ending
from mqproto.turn.pending import PendingWrites
from mqproto.wire import (
    MessageClass,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
)
from mqproto.wire.glance import reach_deadline_s, receive_deadline_s
from tests.examples import SENT_S, a_user_message
from tests.pair import guid_of, queue

QUEUE: Final = 5
FINAL: Final = 6
NOW: Final = Moment(1_000, SENT_S)
SMALL: Final = Settings(resident_messages=3, resend_batch=2)

Pages: TypeAlias = list[tuple[ReadPage, list[tuple[int, bytes, bool]]]]


def no_deadline(position: int, packet: bytes) -> None:
    """Set no deadline, whatever the message."""


def a_packet(body: int | str, **changes: Any) -> bytes:
    """Return a message that can be recognized by its body; the changes are arguments of `user_message`."""
    return encode_packet(a_user_message(body=str(body).encode(), **changes))


def message_in(packet: bytes) -> UserMessage:
    """Return the message in a packet."""
    message = decode_packet(packet)
    assert isinstance(message, UserMessage)
    return message


def body_of(packet: bytes) -> str:
    """Return the body by which a packet of `a_packet` can be recognized."""
    return message_in(packet).properties.message_body.decode()


def header_of(packet: bytes) -> TransactionHeader:
    """Return the TransactionHeader of a packet that must have one."""
    header = message_in(packet).transaction
    assert header is not None
    return header


def key_of(packet: bytes) -> tuple[TxSequenceId, int]:
    """Return what distinguishes a transactional message from all others of its sender: its sequence and its number."""
    header = header_of(packet)
    return header.tx_sequence_id, header.tx_sequence_number


class Alone:
    """A disk, a clock, timers, and pending writes."""

    def __init__(self, settings: Settings = SMALL) -> None:
        self.settings = settings
        self.store = Disk()
        self.used: dict[int, int] = {}
        """The last position that a message had in each queue. A store may know it although that message has left."""
        self.now = NOW
        self.forget()

    def forget(self) -> None:
        """Let the process end: uncommitted data is gone."""
        self.timers = Timers()
        self.writes = PendingWrites(self.timers)
        self.departures: list[Departure] = []

    def stored(self, number: int) -> StoredQueue | None:
        """Return what the store knows about a queue."""
        found = next((found for found in self.store.load().queues if found.queue == number), None)
        return found and found._replace(last_used=max(found.last, self.used.get(number, 0)))

    def commit(self) -> Writes | None:
        """Write urgent data to disk, and the other data with it."""
        writes = self.writes.take(self.now)
        if writes is not None:
            self.departures += writes.departures
            self.store.commit(writes)
            for key in (*(row.key for row in writes.messages), *(new for _, new, _ in writes.moves)):
                number, position = divmod(key, message_key(1, 0))
                self.used[number] = max(self.used.get(number, 0), position)
        return writes

    def commit_all(self) -> None:
        """Write everything to disk, including data that could have waited."""
        self.writes.force()
        self.commit()

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        uptime_ms = self.now.uptime_ms + milliseconds
        self.now = Moment(uptime_ms, NOW.utc_s + (uptime_ms - NOW.uptime_ms) // 1_000)

    def pass_s(self, seconds: int) -> None:
        """Let time pass."""
        self.pass_ms(1_000 * seconds)


class Filed(Alone):
    """One lane."""

    def __init__(self, settings: Settings = SMALL) -> None:
        super().__init__(settings)
        self.restart()

    def restart(self) -> None:
        """Start the process, for the first time or again."""
        self.forget()
        self.lane = Lane(QUEUE, QueueKind.LOCAL, "q", self.settings, self.stored(QUEUE), priority=5)

    def join(self, packet: bytes, *, recoverable: bool) -> None:
        """Let a message join."""
        self.lane.join(self.lane.rows([packet], [1], recoverable=recoverable), self.writes)

    def leave_all(self) -> list[bytes]:
        """Let all available messages leave the lane, in order."""
        packets: list[bytes] = []
        while True:
            while self.lane.window:
                packets.append(self.lane.window.pop().packet)
            page = self.lane.window.wanted()
            if page is None:
                return packets
            self.lane.window.loaded(self.store.read(page), no_deadline)


class Hosted(Alone):
    """One local queue."""

    def __init__(self, declaration: QueueDeclaration | None = None, settings: Settings = SMALL) -> None:
        super().__init__(settings)
        self.declaration = declaration or queue("orders", transactional=False)
        self.endings: list[Ending] = []
        self.restart()

    def restart(self) -> None:
        """Start the process, for the first time or again."""
        self.forget()
        known = self.store.load().queues
        desk = Desk(guid_of("b"), self.settings, self.timers, self.writes, endings=self.endings)
        numbers = count(1 + max((stored.queue for stored in known), default=0))
        ours = [stored for stored in known if stored.kind is QueueKind.LOCAL]
        self.queue = LocalQueue(desk, self.declaration, lambda: next(numbers), ours)
        self.queue.lane(0).register(self.writes)
        self.commit_all()

    def insert(self, body: int | str, *, priority: int = 0, recoverable: bool = True, **changes: Any) -> int:
        """Let a message reach the queue; return its key."""
        packet = a_packet(body, priority=priority, recoverable=recoverable, **changes)
        lane, until_s = self.queue.lane(priority), [receive_deadline_s(packet)]
        self.queue.insert(lane.rows([packet], [5], recoverable=recoverable, expires_s=until_s))
        self.commit_all()
        return lane.key(lane.last_position)

    def ask(self, consumer: int, limit: int = 1_000, *, transactional: bool = False) -> None:
        """Let a consumer ask for messages."""
        self.queue.consumers.ask(Consumer(consumer, limit, transactional))

    def hand_out(self) -> dict[int, list[str]]:
        """Give each consumer its messages from memory; return their bodies."""
        given_out: dict[int, list[str]] = {}
        self.delivery_counts: dict[str, int] = {}
        for consumer, received in self.queue.hand_out(self.now):
            given_out[consumer.consumer] = [body_of(one.packet) for one in received]
            self.delivery_counts |= {body_of(one.packet): one.delivery_count for one in received}
        self.commit_all()
        return given_out

    def settle(self, consumer: int) -> None:
        """Let a consumer commit."""
        self.queue.settle(consumer, self.now)
        self.commit_all()

    def reject(self, consumer: int) -> None:
        """Let a consumer reject messages for good."""
        self.queue.reject(consumer)
        self.commit_all()

    def let_go(self) -> None:
        """Let the messages in memory that are purged or have expired leave."""
        self.queue.let_go(self.now)
        self.commit_all()

    def let_go_on_disk(self) -> None:
        """Let the expired messages that are only on disk leave."""
        for key, packet, _ in self.store.read(ReadExpired(1_000, 2**40)):
            [lane] = [lane for lane in self.queue.lanes if lane.queue == key >> 40]
            self.queue.let_go_on_disk(lane, key - lane.key(0), packet, self.now)
        self.commit_all()

    def wanted(self) -> Pages:
        """Return the pages that the queue asks for, each with the rows that the store has for it now."""
        return [(page, self.store.read(page)) for page in self.queue.pages()]

    def loaded(self, pages: Pages) -> None:
        """Let these pages arrive."""
        windows = {lane.queue: lane.window for lane in self.queue.lanes}
        for page, rows in pages:
            windows[page.queue].loaded(rows, self.queue.deadline_s)

    def turn(self) -> list[str]:
        """Do everything that a queue manager does for a changed queue; return the bodies that are handed out."""
        bodies: list[str] = []
        while True:
            if self.queue.purging:
                self.let_go()
            bodies += [body for found in self.hand_out().values() for body in found]
            pages = self.wanted()
            if not pages:
                return bodies
            self.loaded(pages)

    def receive(self) -> list[str]:
        """Return the bodies of all messages that can be received, in order."""
        bodies: list[str] = []
        while True:
            self.ask(99)
            found = self.turn()
            self.queue.consumers.abandon(99)
            if not found:
                return bodies
            bodies += found

    def ended(self) -> list[tuple[str, MessageClass]]:
        """Return the body and the class of each ending so far."""
        return [(body_of(ending.packet), MessageClass(ending.message_class)) for ending in self.endings]


class Carrier(Alone):
    """One outgoing queue that is not a sequence."""

    def __init__(self, settings: Settings = SMALL) -> None:
        super().__init__(settings)
        self.restart()

    def restart(self) -> None:
        """Start the process, for the first time or again."""
        self.forget()
        self.queue = OutgoingQueue(QUEUE, "b", self.settings, self.stored(QUEUE), priority=3)

    def put(self, body: int | str, *, recoverable: bool = True, **changes: Any) -> int:
        """Let a message join; return its position."""
        packet = a_packet(body, recoverable=recoverable, **changes)
        until_s = [reach_deadline_s(packet)]
        self.queue.join(
            self.queue.rows([packet], [5], recoverable=recoverable, expires_s=until_s), self.writes
        )
        self.commit()
        return self.queue.last_position

    def take(self) -> InFlight | Ending:
        """Let the next message leave for the neighbour, or end because it has expired."""
        entries, over = self.take_run(1, 1)
        return entries[0] if entries else over[0]

    def take_run(self, limit: int, limit_bytes: int) -> tuple[list[InFlight], list[Ending]]:
        """Let the next messages, as many as fit, leave for the neighbour, or end if they have expired."""
        taken = self.queue.take(limit, limit_bytes, self.now, self.writes)
        self.commit()
        return taken

    def take_all(self) -> list[InFlight]:
        """Take everything that can be sent, reading it from disk if necessary."""
        entries: list[InFlight] = []
        while True:
            while self.queue.has_next:
                entries += self.take_run(7, 10_000)[0]
            pages = self.wanted()
            if not pages:
                return entries
            self.loaded(pages)

    def wanted(self) -> Pages:
        """Return the pages that the queue asks for, each with the rows that the store has for it now."""
        return [(page, self.store.read(page)) for page in self.queue.pages()]

    def loaded(self, pages: Pages) -> None:
        """Let these pages arrive."""
        for page, rows in pages:
            self.queue.loaded(page, rows)

    def expire(self) -> list[str]:
        """Let expired messages leave memory and disk, as the expiration timer does; return their bodies."""
        endings = self.queue.expired(self.now, self.writes)
        self.commit_all()
        low = message_key(QUEUE, 0)
        for key, packet, _ in self.store.read(ReadExpired(1_000, 2**40)):
            ending = self.queue.expired_on_disk(key - low, packet, self.now, self.writes)
            endings += [ending] if ending is not None else []
        self.commit_all()
        return [body_of(ending.packet) for ending in endings]


class Sender(Alone):
    """One sequence. The pages that it wants arrive at once."""

    def __init__(self, settings: Settings = SMALL) -> None:
        super().__init__(settings)
        self.store.commit(Writes(queues=[QueueRow(FINAL, QueueKind.FINAL, "q")]))
        self.sequence = OutgoingSequence(QUEUE, "q", guid_of("c"), settings, self.timers, NOW)
        self.sequence.begin(TxSequenceId(time_stamp=9, ordinal=1))
        self.sequence.final_queue = FINAL
        self.sequence.register(self.writes)
        self.writes.changed(self.sequence, urgent=True)
        self.commit()

    def restart(self) -> None:
        """Start the process again."""
        self.forget()
        state, stored = self.store.load(), self.stored(QUEUE)
        assert stored is not None
        low = message_key(QUEUE, 0)
        self.sequence = OutgoingSequence(
            QUEUE, "q", guid_of("c"), self.settings, self.timers, self.now, stored
        )
        self.sequence.final_queue = FINAL
        gaps = [(first - low, last - low) for first, last in state.gaps]
        self.sequence.restore(state.outgoing[0], gaps, stored.first)
        self.commit()

    def commit(self) -> Writes | None:
        """Write urgent data to disk, and then read the pages that the sequence wants."""
        writes = super().commit()
        for page in list(self.sequence.pages()):
            self.sequence.loaded(page, self.store.read(page))
        return writes

    def put(self, *, final_ack: bool = False, **changes: Any) -> tuple[TxSequenceId, int]:
        """Let an application send a message; return its sequence's identifier and its number."""
        sequence = self.sequence
        identifier, number, previous = sequence.number_next()
        header = TransactionHeader(
            tx_sequence_id=identifier, tx_sequence_number=number, previous_tx_sequence_number=previous
        )
        packet = a_packet("x", transaction=header, **{"sent_time_s": self.now.utc_s} | changes)
        sequence.final_asked |= final_ack
        message_id = 1_001 + sequence.last_position
        until_s = [reach_deadline_s(packet)]
        rows = sequence.rows([packet], [message_id], recoverable=True, final_ack=final_ack, expires_s=until_s)
        sequence.join(rows, self.writes)
        self.writes.changed(sequence, urgent=True)
        self.commit()
        return identifier, number

    def put_some(self, count: int, **changes: Any) -> None:
        """Let an application send `count` messages."""
        for _ in range(count):
            self.put(**changes)

    def take_next(self) -> InFlight | Ending:
        """Let the next message leave for the neighbour, or end because it has expired."""
        entries, over = self.take_run(1)
        return entries[0] if entries else over[0]

    def take_run(self, count: int) -> tuple[list[InFlight], list[Ending]]:
        """Let up to `count` of the next messages leave, or end because they have expired."""
        assert self.sequence.has_next
        taken = self.sequence.take(count, 10**6, self.now, self.writes)
        self.commit()
        assert 1 <= len(taken[0]) + len(taken[1]) <= count
        return taken

    def take(self, count: int = 1) -> list[InFlight]:
        """Let messages leave for the neighbour; none of them may have expired."""
        entries = []
        for _ in range(count):
            taken = self.take_next()
            assert isinstance(taken, InFlight)
            entries.append(taken)
        return entries

    def take_numbers(self) -> list[int]:
        """Send everything that may be sent now; return the numbers on the wire."""
        numbers = []
        while self.sequence.has_next:
            taken = self.take_next()
            if isinstance(taken, InFlight):
                numbers.append(header_of(taken.packet).tx_sequence_number)
        return numbers

    def order_ack(self, number: int) -> bool:
        """Let an OrderAck arrive; return whether it says anything new."""
        news = self.sequence.order_ack(number, self.now, self.writes)
        self.commit()
        return news

    def withdraw(self, number: int, *, decided: bool = False) -> None:
        """Remove a message from its queue before its OrderAck."""
        self.sequence.withdraw(number, self.writes, decided=decided)
        self.commit_all()

    def time_out(self) -> None:
        """Let the time for an OrderAck run out."""
        self.sequence.resends.ack_wait_expired(self.now)
        self.commit()

    def expire(self) -> list[tuple[TxSequenceId, int]]:
        """Remove expired messages, as the expiration timer does; return their sequences' identifiers and their
        numbers.
        """
        endings = self.sequence.expired(self.now, self.writes)
        self.writes.force()
        super().commit()  # The store answers before pages bring anything new into memory.
        low = message_key(QUEUE, 0)
        for key, packet, _ in self.store.read(ReadExpired(1_000, 2**40)):
            ending = self.sequence.expired_on_disk(key - low, packet, self.now, self.writes)
            endings += [ending] if ending is not None else []
        self.commit_all()
        return [key_of(ending.packet) for ending in endings]

    def kept_on_disk(self) -> list[int]:
        """Return the positions of the sequence's messages on disk."""
        low, high = message_key(QUEUE, 0), message_key(QUEUE + 1, 0)
        return sorted(key - low for key in self.store.messages if low <= key < high)
