"""Faults of the work that the core does unasked: timers, resends, and routes that become available again.

There are also faults in the core's answers to questions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.manager import identifiers, status, whereabouts
from mqproto.manager.arriving.insequence import InSequence
from mqproto.manager.arriving.inserting import Room
from mqproto.manager.arriving.transit import Transit
from mqproto.manager.identifiers import MessageIdHistory, SenderHistory
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.purges import REPEATED, Damage, head_in
from mqproto.manager.queuemanager import QueueManager
from mqproto.neighbours.calling import Neighbours
from mqproto.queues.consumers import Consumers
from mqproto.queues.declarations import Declarations
from mqproto.queues.localqueue import LocalQueue, SystemQueue
from mqproto.routing import RoutingLink, router
from mqproto.session import Session
from mqproto.transfer.cursors import Cursors
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.effects import POSITION_BITS, HurtPacket
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass, TransactionHeader
from tests.plants.planting import plant


@plant(Transit, "forward", "what_is_over_leaves_in_time")
def forget_when_what_is_passed_on_is_over(sound: Any) -> Any:
    """An intermediate does not notice when messages that it passes on expire."""

    def forward(self: Transit, *others: Any) -> None:
        expiration = self._expiration
        self._expiration = type("Blind", (), {"expect_of": lambda *_: None})()
        try:
            sound(self, *others)
        finally:
            self._expiration = expiration

    return forward


@plant(Cursors, "begin_resend", "what_was_lost_is_sent_again")
def resend_only_once(sound: Any) -> Any:
    """A resend that is also lost is not repeated while the session lasts."""

    def begin_resend(self: Cursors, sent_through: int) -> None:
        after = self.resend_after
        sound(self, sent_through)
        self.resend_after = max(self.resend_after, after)

    return begin_resend


@plant(Neighbours, "_call_better", "the_first_way_is_taken_again")
def keep_to_a_later_way(sound: Any) -> Any:
    """If the preferred next hop could not be reached at first, it is never tried again."""

    def call_better(self: Neighbours, neighbour: Any, index: int, now: Any) -> None:
        if index < neighbour.index:
            sound(self, neighbour, index, now)

    return call_better


@plant(identifiers, "_came_before", "passed_on_once")
def pass_on_duplicates(sound: Any) -> Any:
    """A repeated message for another node is passed on once more."""

    def came_before(sender: SenderHistory, ordinal: int, hop_count: int | None) -> bool:
        known = bool(sound(sender, ordinal, hop_count))
        return known and (hop_count is None or hop_count < sender.hop_counts[ordinal])

    return came_before


# What operators are told


@plant(status, "_local", "status_tells_the_truth")
def count_one_more_that_is_held(sound: Any) -> Any:
    """A queue without held messages is reported to have one that is held behind a gap."""
    return lambda queue, held: sound(queue, held or 1)


@plant(whereabouts, "_waits", "whereabouts_tell_the_truth")
def know_only_of_what_is_in_memory(sound: Any) -> Any:
    """A message that only the store has is reported to be nowhere."""
    return lambda lane, position: any(message.position == position for message in lane.window)


# Limits, and what is said of them


@plant(InSequence, "_sequence", "memory_is_bounded")
def know_one_sender_too_many(sound: Any) -> Any:
    """The core remembers one sender more than it may."""

    def sequence(self: InSequence, *others: Any) -> Any:
        settings = self._desk.settings
        self._desk.settings = replace(settings, maximum_sequences=settings.maximum_sequences + 1)
        try:
            return sound(self, *others)
        finally:
            self._desk.settings = settings

    return sequence


@plant(Session, "send", "sessions_in_use_stay")
def clean_up_what_only_sends(sound: Any) -> Any:
    """A session that carries messages in only one direction is considered unused."""

    def send(self: Session, *others: Any, **kind: Any) -> None:
        active = self.data.session_active
        sound(self, *others, **kind)
        self.data.session_active = active

    return send


@plant(Session, "expired", "unused_sessions_are_closed")
def take_every_session_for_used(sound: Any) -> Any:
    """A session that carries no more traffic stays open."""

    def expired(self: Session, timer: Timer, now: Moment) -> None:
        self.data.session_active |= timer is Timer.SESSION_CLEANUP
        sound(self, timer, now)

    return expired


@plant(LocalQueues, "delete", "refused_for_a_reason", "endings_have_reasons")
def delete_the_names_of_all_queues_with_one(sound: Any) -> Any:
    """When one queue is deleted, messages for the other queues no longer find them."""

    def delete(self: LocalQueues, queue: LocalQueue) -> int:
        count: int = sound(self, queue)
        self._by_wire_name.clear()
        self._by_guid.clear()
        return count

    return delete


@plant(Declarations, "_write", "queues_stay_as_they_were_left")
def forget_what_operators_do_to_queues(sound: Any) -> Any:
    """A deleted queue reappears after a restart, because it is declared."""

    def write(self: Declarations, number: int, name: str, *, holds: bool) -> None:
        self._numbers.pop(next(key for key, known in self._numbers.items() if known == number), None)

    return write


@plant(Consumers, "ask", "one_request_at_a_time")
def let_everybody_ask(sound: Any) -> Any:
    """A consumer that has asked may ask again."""
    return lambda self, consumer: self.waiting.append(consumer)


@plant(QueueManager, "hold", "windows_are_told_as_they_are")
def say_late_that_a_queue_is_paused(sound: Any) -> Any:
    """The neighbour is told about a pause only when the pause is over."""

    def hold(self: QueueManager, queue: str, *, on_hold: bool) -> None:
        tell = self._parts.neighbours.hold
        self._parts.neighbours.hold = lambda queue: None  # type: ignore[method-assign]
        sound(self, queue, on_hold=on_hold)
        self._parts.neighbours.hold = tell  # type: ignore[method-assign]
        if not on_hold:
            tell(self._parts.outbound.named(queue)[0])

    return hold


@plant(router, "routing_table", "ways_are_the_cheapest")
def take_each_link_for_as_good(sound: Any) -> Any:
    """The costs of links are ignored."""
    return lambda roots, links: sound(roots, [RoutingLink(link.site1, link.site2) for link in links])


@plant(MessageIdHistory, "_arrived", "sums_are_true")
def count_a_repeat_as_one_more(sound: Any) -> Any:
    """A repeated identifier counts twice toward the size of the history."""

    def arrived(self: MessageIdHistory, sender: SenderHistory, ordinal: int, utc_s: int) -> None:
        self.size += ordinal in sender.arrivals
        sound(self, sender, ordinal, utc_s)

    return arrived


@plant(IncomingSequence, "let_go", "nothing_is_retained")
def leave_on_disk_what_gives_way(sound: Any) -> Any:
    """A held message that has made room for the awaited one is no longer held, but its row stays on disk."""
    return lambda self: replace(sound(self), position=0)


@plant(Room, "may_hold", "memory_is_bounded")
def hold_whatever_comes_early(sound: Any) -> Any:
    """Early messages are held even if they leave too little room for the awaited one."""
    return lambda self, size_bytes: True


@plant(Room, "_gives_way", "nothing_is_retained", "what_was_lost_is_sent_again")
def let_nothing_give_way(sound: Any) -> Any:
    """There is no room for the awaited message, because the messages that wait for it take up all of it."""
    return lambda self, run, head: False


@plant(IncomingSequence, "drop_held", "sums_are_true", "no_error_of_our_own")
def count_what_gave_way_as_held(sound: Any) -> Any:
    """A message that is no longer held still counts toward the bytes of held messages."""

    def drop_held(self: IncomingSequence, header: TransactionHeader) -> Any:
        held_bytes = self.held_bytes
        position = sound(self, header)
        self.held_bytes = held_bytes
        return position

    return drop_held


# One message is not what was written


@plant(Damage, "found", "gaps_are_bridged", "nothing_is_retained")
def wait_for_what_the_disk_lost(sound: Any) -> Any:
    """A damaged message ends where it was sent, but the next one in its sequence still names it as its predecessor."""

    def found(self: Damage, key: int, packet: HurtPacket, now: Moment) -> None:
        sound(self, key, packet, now)
        queue = self._outbound.queue(key >> POSITION_BITS)
        if isinstance(queue, OutgoingSequence):
            queue.numbering.numbered = lambda position, packet: packet  # type: ignore[method-assign]

    return found


@plant(LocalQueue, "lose", "sums_are_true")
def count_what_the_disk_lost(sound: Any) -> Any:
    """A message that the disk has lost still counts in the queue in which it waited."""

    def lose(self: LocalQueue, *arguments: Any) -> bool:
        self.count += 1
        return bool(sound(self, *arguments))

    return lose


@plant(Damage, "_left", "letters_lie_where_they_were_chosen", "endings_have_reasons")
def give_up_what_its_source_repeats(sound: Any) -> Any:
    """A damaged message that was only being passed on is reported as lost, although its source sends it again."""

    def left(self: Damage, key: int, packet: HurtPacket, name: str, became: str) -> None:
        if became == REPEATED:
            head = head_in(packet)
            source = None if head is None else head.user.source_queue_manager
            ending = Ending(packet, MessageClass.NACK_DELETED, Place.ON_THE_WAY)
            letters = SystemQueue.DEADLETTER
            self._outcomes.tell_of_damage(ending, letters, source, name, in_doubt=False, now=Moment(0, 0))
        sound(self, key, packet, name, became)

    return left
