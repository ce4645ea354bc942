"""Applications' messages on their way into the queues.  [MS-MQQB] 3.1.7.11, 3.1.7.1.3

Similar messages form lots. A lot is checked only once; then each of its messages gets its numbers and its packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Final

from mqproto.base.errors import QuotaExceeded, UsageError
from mqproto.base.moment import Moment
from mqproto.manager.expiration import Expiration
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.manager.ownsequences import OwnSequences
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import (
    ACKNOWLEDGE_ARRIVAL,
    Draft,
    Lot,
    headers_behind,
    in_lots,
    likeness,
    queue_name,
)
from mqproto.messages.listing import list_of_all
from mqproto.queues.lanes import Lane, QueueWindow
from mqproto.queues.localqueue import LocalQueue
from mqproto.queues.protection import OPEN
from mqproto.transfer.cursors import TRANSACTION_LIMIT
from mqproto.turn.desk import Desk
from mqproto.turn.effects import PostedRow
from mqproto.turn.endings import Ending, Place
from mqproto.turn.guard import (
    SIGNED_20,
    SIGNED_30,
    ProtectionError,
    in_clear,
    to_be_sealed,
    to_be_signed,
    with_proof,
)
from mqproto.turn.posted import PostedMessages
from mqproto.wire import (
    MessageClass,
    PrivateQueueFormatName,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_message,
    encode_packet,
    sid_from_text,
    user_message,
)
from mqproto.wire.glance import reach_deadline_s, receive_deadline_s
from mqproto.wire.guid import Guid, guid_text
from mqproto.wire.patch import Stamp, place_bytes

FIRST: Final = TransactionHeader.first.mask
LAST: Final = TransactionHeader.last.mask
FINAL_ACK: Final = TransactionHeader.final_ack.mask
IDENTIFIER_LIMIT: Final = TransactionHeader.identifier.limit
IDENTIFIER_FIRST: Final = TransactionHeader.identifier.first
BY_DIRECT_NAME: Final = (
    "what goes by a direct format name is neither signed nor encrypted: name a private queue by its number, or a "
    "public one"
)
"""The error text for a message that must be signed or encrypted but is addressed to a direct format name.  5.1,
3.1.7.1.5
"""
SHA_512: Final = 0x800E
"""The HashAlgorithm of signed messages whose application did not choose one.  [MS-MQMQ] 2.2.19.3"""
FIRST_PLACE: Final = place_bytes(0, TxSequenceId(ordinal=1, time_stamp=0), 1, 0)
"""A placeholder for the place of a transactional message that does not have one yet."""
STAMP_LIMIT: Final = 1_000
"""The maximum number of kinds of messages that are remembered. When there are more, all are forgotten."""
STAMP_LIMIT_BYTES: Final = 4_096
"""The maximum size, without the body, of a packet whose kind is remembered."""


class PacketBuilder:
    """Builds the packets of lots, and signs messages."""

    def __init__(self, desk: Desk, queues: LocalQueues) -> None:
        self._desk = desk
        self._queues = queues
        self._stamps: dict[tuple[object, ...], Stamp] = {}

    def build(
        self, lot: Lot, ordinals: Sequence[int], now: Moment, places: Iterable[bytes] | None = None
    ) -> list[bytes]:
        """Build the packets of a lot. They share a SentTime, and therefore the deadline for reaching their queue.

        places: the `place_bytes` of each packet, if the messages are transactional.
        """
        packet, sent_s = self._stamp(lot).packet, now.utc_s
        packets = [
            packet(draft.body, draft.label, draft.correlation_id, draft.extension, sent_s, message_id, place)
            for draft, message_id, place in zip(lot.drafts, ordinals, places or repeat(b""), strict=False)
        ]
        if lot.signed:
            return [
                self._with_signature(packet, signed, lot.destination.manager)
                for packet, signed in zip(packets, lot.signed, strict=True)
            ]
        return packets

    def signed(self, lot: Lot, now: Moment) -> Lot:
        """Return a lot with signed messages.

        Numbers and times are set later; the signature does not cover them.

        Raises:
            UsageError: the signer's key is too short for the hash.
        """
        count = len(lot.drafts)
        places = [FIRST_PLACE] * count if lot.example.transactional else None
        packets = self.build(lot, [0] * count, now, places)
        return lot._replace(signed=[self._desk.guard.signed(decode_message(packet)) for packet in packets])

    def _with_signature(self, packet: bytes, signed: UserMessage, manager: Guid | None) -> bytes:
        """Add a message's signature to its packet. In a local queue, the message counts as verified."""
        message = replace(
            decode_message(packet),
            security=signed.security,
            multi_queue_format=signed.multi_queue_format,
            trailing=signed.trailing,
        )
        if manager == self._desk.identity:
            message = with_proof(message, SIGNED_30 if message.multi_queue_format else SIGNED_20)
        return encode_packet(message)

    def _stamp(self, lot: Lot) -> Stamp:
        """Return the stamp that makes the packets of a lot.

        Stamps are cached, because producers send the same kind of message repeatedly. Messages with different signer
        certificates are of different kinds, because an operator may replace the signer's key and certificate.
        """
        name = lot.example.signer
        kind = (lot.destination, likeness(lot.example), self._desk.guard.signer(name) if name else None)
        stamp = self._stamps.get(kind)
        if stamp is None:
            packet = encode_packet(self.example(lot))
            stamp = Stamp(packet)
            if len(packet) <= STAMP_LIMIT_BYTES:
                if len(self._stamps) == STAMP_LIMIT:
                    self._stamps.clear()
                self._stamps[kind] = stamp
        return stamp

    def example(self, lot: Lot) -> UserMessage:
        """Return a message of the lot's kind, without the fields in which the lot's messages differ."""
        destination, draft = lot.destination, lot.example
        message = user_message(
            source=self._desk.identity,
            destination_manager=destination.address,
            destination=destination.queue,
            message_id=0,
            sent_time_s=0,
            body=b"",
            recoverable=draft.recoverable,
            transaction=TransactionHeader() if draft.transactional else None,
            priority=0 if draft.transactional else draft.priority,
            time_to_reach_queue_s=draft.time_to_reach_queue_s,
            time_to_be_received_s=draft.time_to_be_received_s,
            body_type=draft.body_type,
            application_tag=draft.application_tag,
            journal_negative=draft.wants_letter,
            journal_positive=draft.journal_positive,
            admin_queue=queue_name(draft.admin_queue),
            response_queue=queue_name(draft.response_queue),
            acknowledgments=draft.acknowledgments,
            trace_queue=_guid_of(draft.trace_queue),
            sender_id=sid_from_text(draft.sender_id) if draft.sender_id else b"",
            multi_queue_format=list_of_all(draft.destinations),
        )
        if draft.dead_letter_queue:
            message.trailing = headers_behind(
                self._queues.named(draft.dead_letter_queue).declaration.path_name
            )
        if draft.privacy_level:
            message = to_be_sealed(message, draft.privacy_level, draft.encryption_algorithm)
            if destination.manager == self._desk.identity:
                message = in_clear(message)
        if draft.signer:
            signer = self._desk.guard.signer(draft.signer)
            message = to_be_signed(message, signer, draft.hash_algorithm or SHA_512)
        return message

    def size_bytes(self, lot: Lot) -> int:
        """Return the size of a lot's packets, with all headers, as a queue counts it.  [MS-MQDMPR] 3.1.1.2"""
        stamp = self._stamp(lot)
        if lot.example.signer:
            example = self.example(lot)
            signed = self._desk.guard.signed(example)
            stamp = Stamp(self._with_signature(encode_packet(example), signed, lot.destination.manager))
        return sum(stamp.size_bytes(draft.body, draft.label, draft.extension) for draft in lot.drafts)


def _guid_of(public: str) -> Guid | None:
    guid = queue_name(public)
    return guid if isinstance(guid, bytes) else None


class Sending:
    """Takes applications' messages."""

    def __init__(
        self,
        desk: Desk,
        outbound: Outbound,
        sequences: OwnSequences,
        queues: LocalQueues,
        expiration: Expiration,
        posted: PostedMessages,
    ) -> None:
        self._desk = desk
        self._outbound = outbound
        self._sequences = sequences
        self._queues = queues
        self._expiration = expiration
        self._posted = posted
        self._packets = PacketBuilder(desk, queues)
        self.stored_bytes = 0
        """The number of bytes in the store after the last commit, plus those of the messages sent since then."""
        self.limit_bytes: int | None = None
        """The maximum number of bytes in the store after the next commit if the disk is nearly full; otherwise None."""

    def enqueue(
        self,
        messages: Sequence[tuple[Destination, Draft]],
        now: Moment,
        *,
        together: bool = True,
        posted: Sequence[PostedRow] = (),
    ) -> list[int]:
        """Give numbers to messages, build each message's packet once, and put the messages into their queues.

        together: whether the transactional messages form a single transaction, rather than one each.
        posted: a row for each message, if they came over HTTP.

        Raises:
            UsageError: one of the messages cannot be sent like this; nothing has changed.
        """
        if len(messages) > TRANSACTION_LIMIT:
            raise UsageError(f"{len(messages):,} messages at once; at most {TRANSACTION_LIMIT:,} are taken")
        lots = list(in_lots(messages))
        stored_bytes = self._check(lots, now)
        # A key may be too short for the hash.
        lots = [self._packets.signed(lot, now) if lot.example.signer else lot for lot in lots]
        self.stored_bytes += stored_bytes
        ordinals = self._outbound.numbers.next_message_ids(len(messages))
        flags = transaction_flags([draft for _, draft in messages], ordinals, together=together)
        at = 0
        for lot in lots:
            end = at + len(lot.drafts)
            self._send(lot, ordinals[at:end], flags[at:end], now)
            at = end
        if posted:
            self._posted.keep(posted, ordinals, now)
        elif any(draft.admin_queue for _, draft in messages):
            admins = (draft.admin_queue for _, draft in messages)
            self._posted.keep_again(zip(ordinals, admins, strict=True), now)
        return ordinals

    def _check(self, lots: Iterable[Lot], now: Moment) -> int:
        """Check that all lots can be sent and that there is room.

        Return the number of bytes that they need in the store.
        """
        stored_bytes = express_bytes = express_count = 0
        needs_disk = False
        here_bytes: dict[LocalQueue, int] = {}
        for lot in lots:
            example = lot.longest
            queue = lot.destination.queue
            example.check(destination=queue if isinstance(queue, str) else "")
            for draft in lot.drafts:
                if draft.label != example.label or draft.correlation_id != example.correlation_id:
                    draft.check(names=False)
            if example.dead_letter_queue:
                self._check_letters(lot)
            self._check_destination(lot, here_bytes, now)
            size_bytes, is_express = lot.size_bytes, not (example.recoverable or example.transactional)
            express_count += len(lot.drafts) * is_express
            if is_express and self._stays_in_memory(lot, express_count, express_bytes + size_bytes):
                express_bytes += size_bytes
            else:
                stored_bytes += size_bytes
                needs_disk = True
        if self.stored_bytes + stored_bytes + express_bytes > self._desk.settings.quota_bytes:
            raise QuotaExceeded(
                f"the store would hold more than quota_bytes = {self._desk.settings.quota_bytes:,}: receive or purge "
                "something first"
            )
        # An empty message takes room as well.
        would_be_bytes = self.stored_bytes + max(stored_bytes, 1)
        if needs_disk and self.limit_bytes is not None and would_be_bytes > self.limit_bytes:
            raise QuotaExceeded(
                "the disk is full: make room there, or receive or purge something; until then the node takes no "
                "message that has to be on disk"
            )
        return stored_bytes

    def _stays_in_memory(self, lot: Lot, count: int, size_bytes: int) -> bool:
        """Return whether an express lot needs no room on disk; called only if the disk has no room.

        count, size_bytes: the number and size of the messages in this lot and all earlier ones, as if they all went to
            the same queue.
        """
        if self.limit_bytes is None:
            return True
        destination, priority = lot.destination, lot.example.priority
        if destination.manager == self._desk.identity:
            lane: Lane | None = self._here(lot).known_lane(priority)
        else:
            lane = self._outbound.known_towards(destination, priority)
        window = lane.window if lane is not None else QueueWindow(0, self._desk.settings)
        return window.takes(count, size_bytes)

    def _check_destination(self, lot: Lot, here_bytes: dict[LocalQueue, int], now: Moment) -> None:
        """Check that a lot can be sent to its destination.

        here_bytes: the bytes that earlier lots need in each of our queues that has a quota; this method adds those of
            the lot.
        """
        destination, transactional = lot.destination, lot.example.transactional
        if destination.transactional not in (None, transactional):
            raise UsageError(refusal_of_kind(destination))
        if destination.manager is None and destination.host is None:
            raise UsageError(f"{destination.name} names neither a queue manager nor a host")
        if destination.host is None and destination.manager not in (None, self._desk.identity):
            self._check_manager(destination.manager)
        if destination.manager != self._desk.identity and (lot.example.signer or lot.example.privacy_level):
            if isinstance(destination.queue, str) or destination.manager is None:
                raise UsageError(BY_DIRECT_NAME)
            self._desk.guard.check(self._packets.example(lot), destination.manager)
        if destination.manager == self._desk.identity:
            queue = self._here(lot)
            self._check_protection(lot, queue, now)
            if queue.declaration.transactional != transactional:
                kind = "transactional" if queue.declaration.transactional else "not transactional"
                raise UsageError(f"queue {queue.name} is {kind}; send it such messages only")
            if queue.declaration.quota_bytes is not None:
                here_bytes[queue] = here_bytes.get(queue, 0) + self._packets.size_bytes(lot)
                if not queue.has_room(here_bytes[queue]):
                    raise QuotaExceeded(
                        f"queue {queue.name} is full: its quota is {queue.declaration.quota_bytes:,} bytes"
                    )
        elif transactional and self._sequences.is_full(destination.name):
            raise QuotaExceeded(
                f"the sequence to {destination.name} has used up its numbers: wait until its messages are acknowledged"
            )

    def _check_letters(self, lot: Lot) -> None:
        """Check that the queue chosen for dead letters can take them.  [MS-MQDMPR] 3.1.1.12"""
        example = lot.example
        queue = self._queues.named(example.dead_letter_queue)
        if queue.is_system:
            raise UsageError(
                f"{queue.name} belongs to the system: name a queue of your own for dead letters, or none at all"
            )
        if queue.declaration.transactional != example.transactional:
            letters, kind = ("transactional", "not") if example.transactional else ("not transactional", "")
            raise UsageError(
                f"queue {queue.name} is {f'{kind} transactional'.strip()}, and its dead letters would be {letters}: "
                "choose another queue for them"
            )
        destination = lot.destination
        if destination.manager == self._desk.identity and self._here(lot) is queue:
            raise UsageError(f"queue {queue.name} is where the message goes: choose another for dead letters")

    def _check_protection(self, lot: Lot, queue: LocalQueue, now: Moment) -> None:
        """Check that a queue of ours accepts the protection of a lot.

        Other queue managers decide about their own queues.
        """
        signed, protection = bool(lot.example.signer), queue.declaration.protection
        if protection == OPEN and not signed:
            return
        message = self._packets.example(lot)
        try:
            if signed:
                message = self._desk.guard.opened(
                    self._desk.guard.signed(message), protection.weak_ciphers, now
                )
            protection.check(message, encrypted=bool(lot.example.privacy_level))
        except ProtectionError as error:
            raise UsageError(f"queue {queue.name}: {error.reason}") from None

    def _check_manager(self, manager: Guid) -> None:
        """Check that the way to a queue manager is known."""
        if not self._outbound.knows(manager):
            raise UsageError(
                f"no queue manager {guid_text(manager)} is in the topology, and none was met: send to it by a direct "
                "format name first, or say where it is: mqproto peers add"
            )

    def _here(self, lot: Lot) -> LocalQueue:
        destination = lot.destination
        queue = self._queues.addressed(destination.queue, transactional=lot.example.transactional)
        if queue is None:
            raise UsageError(f"no queue {destination.queue!r} here")
        return queue

    def _send(self, lot: Lot, ordinals: Sequence[int], flags: Sequence[int], now: Moment) -> None:
        if lot.destination.manager == self._desk.identity:
            self._deliver_here(lot, ordinals, flags, now)
        elif lot.example.transactional:
            self._send_transactional(lot, ordinals, flags, now)
        else:
            packets = self._packets.build(lot, ordinals, now)
            expires_s = reach_deadline_s(packets[0])
            self._await_answers(lot, now)
            queue = self._outbound.towards(lot.destination, lot.example.priority)
            self._desk.waypoints.accepted(packets, lot.destination.name)
            until = [expires_s] * len(packets)
            rows = queue.rows(packets, ordinals, recoverable=lot.example.recoverable, expires_s=until)
            queue.join(rows, self._desk.writes)
            self._outbound.wake(queue)
            self._expiration.expect(expires_s, now)

    def _send_transactional(
        self, lot: Lot, ordinals: Sequence[int], flags: Sequence[int], now: Moment
    ) -> None:
        destination, example = lot.destination, lot.example
        self._await_answers(lot, now)
        sequence = self._sequences.sequence_to(
            destination.name, destination.manager, destination.host, len(lot.drafts), now
        )
        if sequence.name != destination.name:
            text = sequence.name.removeprefix("DIRECT=")
            lot = lot._replace(destination=replace(destination, name=sequence.name, queue=text))
        final_ack = asks_final_ack(example)
        if final_ack:
            self._sequences.final_queue_of(sequence)
            sequence.final_asked = True
        identifier, number, previous = sequence.number_next()
        places = list[bytes]()
        for word in flags:
            places.append(place_bytes(word, identifier, number, previous))
            number, previous = number + 1, number
        packets = self._packets.build(lot, ordinals, now, places)
        expires_s = reach_deadline_s(packets[0])
        self._desk.waypoints.accepted(packets, sequence.name)
        until = [expires_s] * len(packets)
        rows = sequence.rows(packets, ordinals, recoverable=True, final_ack=final_ack, expires_s=until)
        sequence.join(rows, self._desk.writes)
        assert number == sequence.next_number, "each message that joins takes the next number"
        self._outbound.wake(sequence)
        self._expiration.expect(expires_s, now)
        self._desk.writes.changed(sequence, urgent=True)

    def _await_answers(self, lot: Lot, now: Moment) -> None:
        """Expect answers to a lot. If the destination may not call us, we call it to fetch the answers."""
        draft, destination = lot.example, lot.destination
        if self._outbound.is_declared(destination):
            return
        if draft.acknowledgments or draft.response_queue or asks_final_ack(draft):
            named = map(queue_name, (draft.admin_queue, draft.response_queue))
            ours = [
                name.private_queue_identifier
                for name in named
                if isinstance(name, PrivateQueueFormatName)
                and name.source_queue_manager == self._desk.identity
            ]
            until_s = now.utc_s + self._desk.settings.answers_awaited_s
            self._outbound.expect_answers(destination, until_s, ours, now)

    def _deliver_here(self, lot: Lot, ordinals: Sequence[int], flags: Sequence[int], now: Moment) -> None:
        """Put a lot directly into a local queue, without a session or a sequence."""
        queue, example = self._here(lot), lot.example
        reports = example.acknowledgments & ACKNOWLEDGE_ARRIVAL or (
            example.journal_positive and not example.transactional
        )
        recoverable = example.transactional or example.recoverable
        priority = 0 if example.transactional else example.priority
        places = None
        if example.transactional:
            identifier = TxSequenceId(ordinal=1, time_stamp=0)
            places = [
                place_bytes(word, identifier, max(message_id, 1), 0)
                for word, message_id in zip(flags, ordinals, strict=True)
            ]
        packets = self._packets.build(lot, ordinals, now, places)
        expires_s = receive_deadline_s(packets[0])
        self._desk.waypoints.accepted(packets, lot.destination.name)
        until = [expires_s] * len(packets)
        lane = queue.lane(priority)
        queue.insert(lane.rows(packets, ordinals, recoverable=recoverable, expires_s=until))
        if reports:
            self._desk.endings += [
                Ending(packet, MessageClass.ACK_REACH_QUEUE, Place.AT_DESTINATION) for packet in packets
            ]
        self._queues.stir(queue)
        self._expiration.expect(expires_s, now)


def refusal_of_kind(destination: Destination) -> str:
    """Return the error text for a message that a connector queue does not accept under this name."""
    name = f"CONNECTOR={destination.name.removeprefix('PUBLIC=')}"
    if destination.transactional:
        return f"{name};XACTONLY takes transactional messages alone: send this one in a transaction, or to {name}"
    return f"{name} takes no transactional messages: send this one to {name};XACTONLY"


def transaction_flags(drafts: Sequence[Draft], ordinals: Sequence[int], *, together: bool) -> list[int]:
    """Return TransactionHeader.Flags for each message.  [MS-MQMQ] 2.2.20.5

    The flags are 0 for messages that are not transactional. The transaction's identifier is unique on its queue
    manager, as MessageIDs are.

    Args:
        together: whether the messages form a single transaction, rather than one each.
    """
    transactional = [number for number, draft in enumerate(drafts) if draft.transactional]
    flags = [0] * len(drafts)
    for number in transactional:
        first, last = (transactional[0], transactional[-1]) if together else (number, number)
        word = (ordinals[first] & IDENTIFIER_LIMIT) << IDENTIFIER_FIRST
        if number == first:
            word |= FIRST
        if number == last:
            word |= LAST
        if drafts[number].final_ack:
            word |= FINAL_ACK
        flags[number] = word
    return flags


def asks_final_ack(draft: Draft) -> bool:
    """Whether the sender of a message waits for a FinalAck, provided that the message is transactional. 2.2.5"""
    return draft.final_ack or draft.wants_letter or draft.journal_positive
