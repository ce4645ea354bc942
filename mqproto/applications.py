"""What an application hands in.  [MS-MQQB] 3.1.7.11, 3.1.7.1.3"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqproto.arrivals import Arrivals
from mqproto.errors import UsageError
from mqproto.moment import Moment
from mqproto.outbound import Outbound
from mqproto.pending import PendingWrites
from mqproto.transfer.outgoing import OutgoingSequence
from mqproto.wire import (
    NULL_GUID,
    TransactionHeader,
    TxSequenceId,
    encode_packet,
    user_message,
)
from mqproto.wire.guid import Guid

LABEL_LIMIT: Final = 249
"""Characters of a label, without the NUL that ends it.  [MS-MQMQ] 2.2.19.3"""
PACKET_LIMIT_BYTES: Final = 0x00400000
HEADROOM_BYTES: Final = 2_048
"""Room for all headers of a message that we send, so that the size of its body tells whether it fits."""
INFINITE: Final = 0xFFFFFFFF
FIRST_AND_LAST: Final = TransactionHeader.first.mask | TransactionHeader.last.mask


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a message goes.

    name: the canonical format name; one sequence of transactional messages belongs to each.
    manager: the queue manager that hosts the queue; None when only a direct format name leads there.
    queue: as it stands in the UserHeader: a private queue's identifier, a public queue's GUID, or the text of a direct
        format name without `DIRECT=`.
    host: the host that a direct format name calls, else None.
    """

    name: str
    manager: Guid | None
    queue: int | Guid | str
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message as an application writes it."""

    body: bytes
    label: str = ""
    transactional: bool = False
    recoverable: bool = False
    priority: int = 3
    extension: bytes = b""
    body_type: int = 0
    application_tag: int = 0
    correlation_id: bytes = bytes(20)
    time_to_reach_queue_s: int = INFINITE
    time_to_be_received_s: int = INFINITE
    journal_negative: bool = False
    journal_positive: bool = False
    final_ack: bool = False

    def check(self) -> None:
        """See that a packet can carry it.

        Raises:
            UsageError: names what is too long, and the limit.
        """
        room = PACKET_LIMIT_BYTES - HEADROOM_BYTES
        if len(self.body) + len(self.extension) > room:
            raise UsageError(
                f"body and extension have {len(self.body) + len(self.extension):,} bytes; "
                f"a message carries at most {room:,}"
            )
        if len(self.label.encode("utf-16-le", "surrogatepass")) > 2 * LABEL_LIMIT:
            raise UsageError(f"the label has {len(self.label)} characters; at most {LABEL_LIMIT} fit")
        if "\0" in self.label:
            raise UsageError("the label has a NUL character, which would end it")
        if not 0 <= self.priority <= 7:
            raise UsageError(f"priority {self.priority}: must be 0 to 7")
        if len(self.correlation_id) != 20:
            raise UsageError(f"the correlation id has {len(self.correlation_id)} bytes, must have 20")


class Sending:
    """Applications' messages on their way into the queues."""

    def __init__(self, identity: Guid, outbound: Outbound, arrivals: Arrivals, writes: PendingWrites) -> None:
        self._identity = identity
        self._outbound = outbound
        self._arrivals = arrivals
        self._writes = writes
        self._transaction = 0

    def enqueue(self, destination: Destination, draft: Draft, now: Moment) -> int:
        """Number a message, build its packet once, and put it where it waits.

        Raises:
            UsageError: it cannot be sent like this; nothing has changed.
        """
        draft.check()
        if destination.manager is None and destination.host is None:
            raise UsageError(f"{destination.name} names neither a queue manager nor a host")
        if destination.manager == self._identity:
            self._arrivals.check_local(destination.queue, transactional=draft.transactional)
            return self._deliver_here(destination, draft, now)
        if draft.transactional:
            return self._send_transactional(destination, draft, now)
        message_id = self._outbound.next_message_id()
        packet = self._packet(destination, draft, message_id, None, now)
        if destination.host is not None:
            queue = self._outbound.towards_host(destination.host, destination.manager)
        else:
            assert destination.manager is not None
            queue = self._outbound.towards_manager(destination.manager)
        self._outbound.put(queue, packet, message_id, recoverable=draft.recoverable, final_ack=False)
        return message_id

    def _send_transactional(self, destination: Destination, draft: Draft, now: Moment) -> int:
        sequence = self._outbound.sequence_to(destination.name, destination.manager, destination.host, now)
        final_ack = draft.final_ack or draft.journal_negative or draft.journal_positive
        message_id = self._outbound.next_message_id()
        header = self._transaction_header(sequence, draft)
        packet = self._packet(destination, draft, message_id, header, now)
        if final_ack:
            self._outbound.final_queue_of(sequence)
            sequence.final_asked = True
        self._outbound.put(sequence, packet, message_id, recoverable=True, final_ack=final_ack)
        self._writes.changed(sequence, urgent=True)
        return message_id

    def _deliver_here(self, destination: Destination, draft: Draft, now: Moment) -> int:
        """The destination is ours: no session, no sequence, straight into the queue."""
        message_id = self._outbound.next_message_id()
        header = None
        if draft.transactional:
            header = self._header(TxSequenceId(ordinal=1, time_stamp=0), max(message_id, 1), 0, draft)
        packet = self._packet(destination, draft, message_id, header, now)
        recoverable = draft.recoverable or draft.transactional
        self._arrivals.insert(destination.queue, packet, message_id, recoverable=recoverable)
        return message_id

    def _transaction_header(self, sequence: OutgoingSequence, draft: Draft) -> TransactionHeader:
        identifier, number, previous = sequence.number_next()
        return self._header(identifier, number, previous, draft)

    def _header(
        self, identifier: TxSequenceId, number: int, previous: int, draft: Draft
    ) -> TransactionHeader:
        """Each message is a transaction of its own: its first and its last.  [MS-MQMQ] 2.2.20.5"""
        self._transaction = (self._transaction + 1) & 0xFFFFF
        header = TransactionHeader(
            flags=FIRST_AND_LAST,
            tx_sequence_id=identifier,
            tx_sequence_number=number,
            previous_tx_sequence_number=previous,
        )
        header.identifier = self._transaction
        if draft.final_ack:
            header.final_ack = True
        return header

    def _packet(
        self,
        destination: Destination,
        draft: Draft,
        message_id: int,
        header: TransactionHeader | None,
        now: Moment,
    ) -> bytes:
        direct = destination.host is not None
        return encode_packet(
            user_message(
                source=self._identity,
                destination_manager=NULL_GUID
                if direct or destination.manager is None
                else destination.manager,
                destination=destination.queue,
                message_id=message_id,
                sent_time_s=now.utc_s,
                body=draft.body,
                label=draft.label,
                recoverable=draft.recoverable,
                transaction=header,
                priority=0 if header is not None else draft.priority,
                time_to_reach_queue_s=draft.time_to_reach_queue_s,
                time_to_be_received_s=draft.time_to_be_received_s,
                extension=draft.extension,
                body_type=draft.body_type,
                application_tag=draft.application_tag,
                correlation_id=draft.correlation_id,
                journal_negative=draft.journal_negative,
                journal_positive=draft.journal_positive,
            )
        )
