"""Faults of the core."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from mqproto.base.moment import Moment
from mqproto.base.ranges import Ranges
from mqproto.manager.arriving import inserting, transit
from mqproto.manager.arriving.insequence import InSequence
from mqproto.manager.arriving.transit import Transit
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import MessageIdHistory, SenderHistory
from mqproto.manager.outcomes import Outcomes
from mqproto.neighbours import connections, leaving
from mqproto.neighbours.calling import Neighbours
from mqproto.queues.consumers import Consumers
from mqproto.queues.lanes import QueueWindow
from mqproto.queues.localqueue import LocalQueue, SystemQueue
from mqproto.session import Session, acknowledgment
from mqproto.transfer import incoming
from mqproto.transfer.cursors import Numbering
from mqproto.transfer.incoming import ArrivalVerdict, IncomingSequence, make_final_ack
from mqproto.transfer.outgoing import AS_IT_IS, OutgoingQueue
from mqproto.transfer.resending import Resends
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.effects import MessageRow, QueueKind
from mqproto.turn.pending import GivenNumbers, PendingWrites
from mqproto.wire import MessageClass, SessionHeader, decode_message, without_session_header
from mqproto.wire.glance import TRANSACTIONAL, Head, reach_deadline_s
from mqproto.wire.shapes import Run
from tests.plants.planting import plant

ONCE: Final = "delivered_once_and_in_order", "delivery_counts_are_true"
ENDED: Final = "all_is_accounted_for", "endings_have_reasons"

# What is on disk, and when


@plant(
    PendingWrites,
    "put",
    "acknowledged_is_on_disk",
    "accepted_is_on_disk",
    "nothing_is_retained",
    "no_error_of_our_own",
)
def acknowledge_before_flush(sound: Any) -> Any:
    """A message waits for the next commit, but its acknowledgment does not."""
    return lambda self, message, queue: self.later.messages.append(message)


@plant(
    GivenNumbers,
    "__init__",
    "handed_out_as_it_was_sent",
    "endings_have_reasons",
    "nothing_is_retained",
    "all_is_accounted_for",
)
def reuse_message_ids_after_a_restart(sound: Any) -> Any:
    """MessageIDs from the block that was reserved before the restart are used again."""

    def begin(self: GivenNumbers, writes: PendingWrites, state: Any) -> None:
        sound(self, writes, state)
        self._next_message_id = 1

    return begin


@plant(
    OutgoingSequence,
    "order_ack",
    "nothing_is_retained",
    "no_error_of_our_own",
    "what_was_lost_is_sent_again",
)
def never_remove_what_was_acknowledged(sound: Any) -> Any:
    """The OrderAck is believed, but the removals never reach the disk."""

    def order_ack(self: OutgoingSequence, number: int, now: Any, writes: PendingWrites) -> Any:
        removals = writes.later.removals
        before = removals.copy()
        news = sound(self, number, now, writes)
        removals[:] = before
        return news

    return order_ack


@plant(
    InSequence,
    "restore",
    "delivered_once_and_in_order",
    "nothing_is_retained",
    "no_error_of_our_own",
)
def forget_incoming_sequences_after_a_restart(sound: Any) -> Any:
    """Messages that arrived before the restart may arrive again."""

    def restore(self: InSequence, state: Any, now: Any) -> None:
        state.incoming.clear()
        state.queues = [queue for queue in state.queues if queue.kind is not QueueKind.HELD]
        sound(self, state, now)

    return restore


@plant(MessageIdHistory, "__init__", *ONCE)
def forget_message_ids_after_a_restart(sound: Any) -> Any:
    """Messages that arrived before the restart are not recognized as duplicates."""
    return lambda self, settings, timers, rows, *others, **more: sound(
        self, settings, timers, (), *others, **more
    )


@plant(IncomingSequence, "restore_held", "nothing_is_retained", "no_error_of_our_own")
def forget_what_is_held_after_a_restart(sound: Any) -> Any:
    """Messages that wait behind a gap stay on disk forever, and their places are given to others."""
    return lambda self, header, packet, position: None


# Order and numbers


@plant(IncomingSequence, "place", "order_acks_leave_no_gap")
def order_ack_beyond_a_gap(sound: Any) -> Any:
    """A held message is acknowledged as if it had been accepted."""

    def place(self: IncomingSequence) -> Any:
        held = [number for identifier, number in self._order if identifier == self.identifier]
        return (self.identifier, max(self.number, *held)) if held else sound.fget(self)

    return property(place)


@plant(incoming, "comes_next", "delivered_once_and_in_order", "order_acks_leave_no_gap")
def forget_to_hold(sound: Any) -> Any:
    """Any message with a higher number is accepted as the next one."""

    def comes_next(header: Any, last_id: Any, last_number: int) -> bool:
        if header.tx_sequence_id == last_id:
            return bool(header.tx_sequence_number > last_number)
        return bool(header.tx_sequence_id > last_id)

    return comes_next


@plant(IncomingSequence, "take", "delivered_once_and_in_order")
def deliver_duplicates(sound: Any) -> Any:
    """A message that arrived before is accepted again."""

    def take(self: IncomingSequence, *arguments: Any, **options: Any) -> ArrivalVerdict:
        verdict: ArrivalVerdict = sound(self, *arguments, **options)
        return ArrivalVerdict.ACCEPT if verdict is ArrivalVerdict.DUPLICATE and not self._held else verdict

    return take


@plant(
    OutgoingSequence,
    "number_next",
    "delivered_once_and_in_order",
    "order_acks_leave_no_gap",
    "gaps_are_bridged",
)
def wrong_previous_number(sound: Any) -> Any:
    """Each message says that it has no predecessor."""
    return lambda self: (*sound(self)[:2], 0)


@plant(Numbering, "numbered", "nothing_is_retained", "gaps_are_bridged")
def forget_to_bridge_a_gap(sound: Any) -> Any:
    """A message names its predecessor even if that one was withdrawn and will never arrive."""
    return lambda self, position, packet: packet


@plant(
    OutgoingSequence,
    "withdraw",
    "order_acks_leave_no_gap",
    "nothing_is_retained",
    "all_is_accounted_for",
    "gaps_are_bridged",
)
def lose_on_withdraw(sound: Any) -> Any:
    """The next message is withdrawn together with the refused one."""

    def withdraw(self: OutgoingSequence, number: int, writes: Any, *, decided: bool = False) -> None:
        sound(self, number, writes, decided=decided)
        if number + 1 < self.next_number:
            sound(self, number + 1, writes, decided=decided)

    return withdraw


@plant(IncomingSequence, "schedule_order_ack", "nothing_is_retained", "what_was_lost_is_sent_again")
def never_send_an_order_ack(sound: Any) -> Any:
    """The destination accepts messages, but never acknowledges them with an OrderAck."""
    return lambda self, now: None


@plant(Resends, "connected", "nothing_is_retained", "what_was_lost_is_sent_again")
def forget_to_resend_after_a_restart(sound: Any) -> Any:
    """Messages that were sent before the session broke are no longer watched."""
    return lambda self, now: None


@plant(Resends, "ack_wait_expired", "nothing_is_retained", "what_was_lost_is_sent_again")
def never_resend(sound: Any) -> Any:
    """The resend timer expires, but nothing is sent."""
    return lambda self, now: self._wait.begin(now)


# Intermediates


@plant(Transit, "forward", "intermediates_keep_no_sequences")
def intermediates_that_number(sound: Any) -> Any:
    """A node that passes a message on begins a sequence for it."""

    def forward(self: Transit, run: Run, head: Head, remote: Any, now: Any) -> None:
        if run.shape.flags & TRANSACTIONAL:
            manager = head.queue_manager_address
            sequence = self._confirmations._sequences.sequence_to(
                f"forwarded to {manager.hex()}", manager, None, 1, now
            )
            self._desk.writes.changed(sequence, urgent=True)
        sound(self, run, head, remote, now)

    return forward


@plant(transit, "passed_on", "forwarded_as_it_came")
def forget_to_count_the_hop(sound: Any) -> Any:
    """A message continues as if no node had passed it on."""
    return lambda packets: list(map(without_session_header, packets))


# Queues, windows and sessions


@plant(Session, "room", "windows_are_respected")
def ignore_the_window(sound: Any) -> Any:
    """An open session always has room."""
    return property(lambda self: 1_000 * self.is_open)


@plant(QueueWindow, "fitting", "memory_is_bounded")
def keep_everything_in_memory(sound: Any) -> Any:
    """A queue's window has no limit."""
    return lambda self, packets: len(packets) if self.complete else 0


@plant(QueueWindow, "loaded", "no_error_of_our_own", "nothing_is_retained")
def take_a_page_that_was_cut_for_the_last(sound: Any) -> Any:
    """A page with fewer messages than requested counts as the end of the queue, even if it was full of large ones."""

    def loaded(self: QueueWindow, rows: Any, deadline_s: Any) -> Any:
        last, is_short = self._reading, len(rows) < self._limit // 2
        first_s = sound(self, rows, deadline_s)
        if is_short:
            self.forget_through(last or 0, 0)
        return first_s

    return loaded


@plant(OutgoingQueue, "returned", "nothing_is_retained")
def lose_what_was_in_flight(sound: Any) -> Any:
    """Messages that were unanswered when the session broke are not sent again."""
    return lambda self, entries: None


@plant(OutgoingQueue, "acknowledged", "nothing_is_retained")
def never_remove_what_a_neighbour_has(sound: Any) -> Any:
    """Messages that were passed on stay on disk."""

    def acknowledged(self: OutgoingQueue, entries: Any, writes: Any) -> None:
        self.count -= len(entries)

    return acknowledged


@plant(Neighbours, "retry", "nothing_is_retained", "what_was_lost_is_sent_again")
def never_connect_again(sound: Any) -> Any:
    """A neighbour that could not be reached is abandoned after one attempt."""
    return lambda self, neighbour, *others: None


@plant(
    Consumers,
    "roll_back",
    "nothing_is_retained",
    "higher_priorities_go_first",
    "handed_out_in_order",
)
def lose_what_was_rolled_back(sound: Any) -> Any:
    """Messages that a consumer gives back are lost."""
    return lambda self, consumer: self.settled(consumer)


@plant(LocalQueue, "_first", "higher_priorities_go_first")
def ignore_priorities(sound: Any) -> Any:
    """The lowest priority goes first."""
    return lambda self: next((lane for lane in reversed(list(self.lanes)) if lane.window), None)


@plant(connections, "PRIORITY", "higher_priorities_leave_first")
def send_the_lowest_priority_first(sound: Any) -> Any:
    """Of the queues to one destination, the one with the lowest priority has the first turn."""
    return lambda queue: -sound(queue)


@plant(LocalQueue, "has_room", "quotas_are_kept")
def ignore_the_quota(sound: Any) -> Any:
    """A queue takes everything that arrives."""
    return lambda self, size_bytes: True


# How messages end


@plant(InSequence, "arrived", "final_acks_tell_the_truth")
def final_ack_on_arrival(sound: Any) -> Any:
    """As soon as a message arrives, its sender is told that it was received."""

    def arrived(self: InSequence, queue: Any, run: Run, remote: Any, now: Any) -> None:
        sound(self, queue, run, remote, now)
        for message in map(decode_message, run.packets if run.facts.final_ack else ()):
            reply_to = self._outbound.reply_to(message, remote)
            message_id = self._outbound.numbers.next_message_id()
            ack = make_final_ack(
                message, MessageClass.ACK_RECEIVE, reply_to, self._desk.identity, message_id, now
            )
            self._outbound.acknowledge(ack, reply_to)

    return arrived


@plant(Outcomes, "_send_final_ack", "all_is_accounted_for", "nothing_is_retained", "order_acks_leave_no_gap")
def refuse_without_a_word(sound: Any) -> Any:
    """The sender of a message that cannot be delivered is not told."""

    def send(self: Outcomes, ending: Any, message: Any, now: Any) -> None:
        if ending.message_class == MessageClass.ACK_RECEIVE:
            sound(self, ending, message, now)

    return send


@plant(Outcomes, "_keep", "all_is_accounted_for")
def lose_dead_letters(sound: Any) -> Any:
    """Messages that should be kept in the transactional dead-letter queue are gone."""

    def keep(self: Outcomes, queue: LocalQueue, *others: Any) -> None:
        if queue.name != SystemQueue.DEADXACT:
            sound(self, queue, *others)

    return keep


@plant(Outcomes, "_chosen", "letters_lie_where_they_were_chosen")
def leave_letters_to_the_system(sound: Any) -> Any:
    """A dead letter goes to the system's queue, even if its application has chosen another one."""
    return lambda self, message, size_bytes: None


@plant(leaving, "as_sent", "what_is_sent_names_no_queue")
def send_the_name_as_well(sound: Any) -> Any:
    """A message leaves together with the name of the queue for its dead letter."""
    return lambda packet: packet


@plant(Outcomes, "_keep", "journals_are_complete", "whereabouts_tell_the_truth")
def forget_the_journal(sound: Any) -> Any:
    """A received message is not journaled where it was sent."""

    def keep(self: Outcomes, queue: LocalQueue, *others: Any) -> None:
        if queue.name != SystemQueue.JOURNAL:
            sound(self, queue, *others)

    return keep


@plant(Outcomes, "_acknowledge", "replies_are_complete")
def forget_administration_acknowledgments(sound: Any) -> Any:
    """A sender that asked to be told of its message's outcome is told nothing."""
    return lambda self, ending, message, now: None


@plant(LocalQueue, "_is_over", "handed_out_as_it_was_sent", "what_is_over_leaves_in_time")
def hand_out_what_is_over(sound: Any) -> Any:
    """An application is given messages that have expired."""
    return lambda self, message, now: False


@plant(inserting, "reach_deadline_s", "final_acks_tell_the_truth", "endings_have_reasons", also=(transit,))
def expire_too_soon(sound: Any) -> Any:
    """A message expires three seconds too early."""

    def deadline_s(packet: bytes) -> int | None:
        whole: int | None = sound(packet)
        return None if whole is None else whole - 3

    return deadline_s


@plant(OutgoingSequence, "deadline_s", "received_once", "endings_have_reasons")
def expire_what_was_sent(sound: Any) -> Any:
    """A message expires at its source although its destination may have it."""
    return lambda self, position, packet: reach_deadline_s(packet)


# Kinds of life: what consumers give back, operators do, neighbours say and counters come to


@plant(QueueWindow, "give_back", "handed_out_in_order")
def give_back_in_front_of_all(sound: Any) -> Any:
    """A message that is given back goes ahead of those given back earlier, even if it belongs after them."""

    def give_back(self: QueueWindow, messages: Iterable[MessageRow]) -> None:
        back = list(messages)
        self._bytes += sum(len(message.packet) for message in back)
        self._ready.extendleft(reversed(back))

    return give_back


@plant(
    OutgoingSequence,
    "_take_resends",
    "gaps_are_bridged",
    "nothing_is_retained",
    "what_was_lost_is_sent_again",
)
def resend_as_if_there_were_no_gap(sound: Any) -> Any:
    """A resent message names the predecessor that it had when it was accepted."""

    def take_resends(self: OutgoingSequence, *limits: Any) -> Any:
        holes, self.numbering.holes = self.numbering.holes, Ranges()
        try:
            return sound(self, *limits)
        finally:
            self.numbering.holes = holes

    return take_resends


@plant(LocalQueue, "_left", "turned_away_only_when_full", "status_tells_the_truth", "sums_are_true")
def never_make_room_again(sound: Any) -> Any:
    """Messages that have left a queue count toward its quota forever."""

    def left(self: LocalQueue, handed: Any) -> None:
        size_bytes = self.size_bytes
        sound(self, handed)
        self.size_bytes = size_bytes

    return left


@plant(OutgoingSequence, "has_next", "paused_queues_send_nothing")
def resend_what_is_paused(sound: Any) -> Any:
    """An operator's pause holds up only messages that were never sent."""

    def has_next(self: OutgoingSequence) -> bool:
        return self.is_head and (bool(self.resends.ready) or (bool(self.window) and not self.on_hold))

    return property(has_next)


@plant(OutgoingSequence, "delete", *ENDED, "nothing_is_retained", "gaps_are_bridged")
def delete_only_what_was_not_sent(sound: Any) -> Any:
    """When an operator deletes a message that was sent, the message ends, but its sequence keeps it."""

    def delete(self: OutgoingSequence, position: int, writes: Any) -> bool:
        if self.cursors.base < position <= self.numbering.sent_through:
            return self.numbering.is_kept(position)
        return bool(sound(self, position, writes))

    return delete


@plant(LocalQueue, "_left", "delivery_counts_are_true")
def forget_all_counts_when_one_message_leaves(sound: Any) -> Any:
    """When one consumer receives a message, the return counts of all other messages start over."""

    def left(self: LocalQueue, handed: Any) -> None:
        sound(self, handed)
        for lane in self.lanes:
            waiting = lane.window.take(len(lane.window))
            lane.window.give_back(one._replace(delivery_count=min(one.delivery_count, 1)) for one in waiting)

    return left


@plant(Transit, "forward", "all_is_accounted_for", "nothing_is_retained")
def drop_what_comes_back(sound: Any) -> Any:
    """A message that comes back to its source, because the route that it took no longer exists, goes no further."""

    def forward(self: Transit, run: Run, head: Head, *others: Any) -> None:
        if head.source_queue_manager != self._desk.identity:
            sound(self, run, head, *others)

    return forward


@plant(Expiration, "loaded", "what_is_over_leaves_in_time")
def one_page_of_what_is_over(sound: Any) -> Any:
    """The store is asked only once for expired messages, although there may be more than fit on one page."""

    def loaded(self: Expiration, rows: Any, now: Any) -> None:
        sound(self, rows, now)
        self.asks_store = False

    return loaded


@plant(acknowledgment, "take_saved", "all_is_accounted_for", "nothing_is_retained")
def take_flags_for_a_count(sound: Any) -> Any:
    """A neighbour that has saved one message is believed to have saved all earlier ones."""

    def take_saved(data: Any, header: SessionHeader) -> bool:
        flags = (1 << header.recoverable_msg_ack_flags.bit_length()) - 1
        return bool(sound(data, replace(header, recoverable_msg_ack_flags=flags)))

    return take_saved


@plant(SenderHistory, "spare", *ONCE, "replies_tell_the_truth")
def remember_by_age_alone(sound: Any) -> Any:
    """Messages that may arrive again, because a window still covers them, are forgotten if they are old or the history
    is full.
    """
    return property(lambda self: len(self.arrivals))


@plant(MessageIdHistory, "brought_by", *ONCE, "replies_tell_the_truth")
def remember_less_than_a_window(sound: Any) -> Any:
    """All but two old messages are forgotten, however large the neighbour's window is."""
    return lambda self, manager, window_size: sound(self, manager, 1)


@plant(
    OutgoingQueue,
    "earlier_copy",
    "all_is_accounted_for",
    "nothing_is_retained",
    "what_was_lost_is_sent_again",
)
def drop_what_comes_after_the_first_has_left(sound: Any) -> Any:
    """An intermediate believes that a copy that it has passed on is still waiting, and so drops each resend."""
    return lambda self, name, packet: AS_IT_IS if name in self.copies._places else sound(self, name, packet)


@plant(acknowledgment, "ahead", "no_error_of_our_own", "nothing_is_retained")
def compare_counts_that_wrap(sound: Any) -> Any:
    """Of two counts of a session, the higher one is considered to be ahead, although counts wrap."""
    return lambda number, reference: max(0, number - reference)


@plant(Session, "acknowledge", "refusals_are_explained")
def acknowledge_what_never_came(sound: Any) -> Any:
    """Each session acknowledgment covers one message too many, so the sender closes the session, as the rules
    require.
    """

    def acknowledge(self: Session, now: Moment | None = None) -> None:
        self.data.message_received_count = self.data.message_received_count + 1 & 0xFFFF
        sound(self, now)

    return acknowledge
