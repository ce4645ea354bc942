"""Faults of what the core does by and by, with nobody to ask for it: timers, resends, ways that are there again.

And of what it tells those who ask.
"""

from __future__ import annotations

from typing import Any

from mqproto.manager import status, whereabouts
from mqproto.manager.arrivals import Arrivals
from mqproto.manager.identifiers import MessageIdHistory
from mqproto.neighbours.neighbours import Neighbours
from mqproto.transfer.cursors import Cursors
from mqproto.wire.glance import Head
from simulator.world.plants.planting import plant


@plant(Arrivals, "_forward", "what_is_over_leaves_in_time")
def forget_when_what_is_passed_on_is_over(sound: Any) -> Any:
    """An intermediate does not watch the time of what it has to pass on."""

    def forward(self: Arrivals, head: Head, *others: Any) -> None:
        expiration = self._expiration
        self._expiration = type("Blind", (), {"expect": lambda *_: None})()
        try:
            sound(self, head, *others)
        finally:
            self._expiration = expiration

    return forward


@plant(Cursors, "begin_resend", "what_was_lost_is_sent_again")
def resend_only_once(sound: Any) -> Any:
    """A resend that is lost as well is not repeated while the session lasts."""

    def begin_resend(self: Cursors, sent_through: int) -> None:
        after = self.resend_after
        sound(self, sent_through)
        self.resend_after = max(self.resend_after, after)

    return begin_resend


@plant(Neighbours, "_call_better", "the_first_way_is_taken_again")
def keep_to_a_later_way(sound: Any) -> Any:
    """When the preferred next hop could not be reached at the first try, it is not tried again."""

    def call_better(self: Neighbours, neighbour: Any, index: int, now: Any) -> None:
        if index < neighbour.index:
            sound(self, neighbour, index, now)

    return call_better


@plant(MessageIdHistory, "came_before", "passed_on_once")
def pass_on_duplicates(sound: Any) -> Any:
    """A message for others that came before as it comes now is passed on once more."""

    def came_before(self: MessageIdHistory, source: Any, ordinal: int, hop_count: int | None) -> bool:
        known = bool(sound(self, source, ordinal, hop_count))
        return known and (hop_count is None or hop_count < self._hop_counts[source, ordinal])

    return came_before


# What operators are told


@plant(status, "_local", "status_tells_the_truth")
def count_one_more_that_is_held(sound: Any) -> Any:
    """A queue for which nothing is held is said to have a message behind a gap."""
    return lambda queue, held: sound(queue, held or 1)


@plant(whereabouts, "_waits", "whereabouts_tell_the_truth")
def know_only_of_what_is_in_memory(sound: Any) -> Any:
    """A message that only the store has is said to be nowhere."""
    return lambda lane, position: any(message.position == position for message in lane.window)
