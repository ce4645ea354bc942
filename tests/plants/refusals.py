"""Faults in how a message is found that a neighbour refuses."""

from __future__ import annotations

from typing import Any

from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.refusals import Refusals
from mqproto.neighbours.trial import Demand, Trial
from tests.plants.planting import plant


@plant(Trial, "ended", "nothing_is_retained", "what_was_lost_is_sent_again")
def never_look_for_what_is_refused(sound: Any) -> Any:
    """A message with which each session ends is sent first on the next one, for ever."""
    return lambda self, hop, lost, by_us: (lost, [])


@plant(Trial, "ended", "endings_have_reasons")
def blame_a_neighbour_for_what_was_refused_here(sound: Any) -> Any:
    """What was out when a message of the neighbour's closed the session counts as refused by it."""
    return lambda self, hop, lost, by_us: sound(self, hop, lost)


@plant(Demand, "covers", "endings_have_reasons")
def take_what_is_dropped_for_a_proof(sound: Any) -> Any:
    """Messages of a sequence that a full neighbour takes early, and drops, say that it has room for others."""
    return lambda self, other: sound(self if other.sequence else self._replace(sequence=None), other)


@plant(Trial, "_may_have_had", "endings_have_reasons")
def take_what_came_before_for_a_proof(sound: Any) -> Any:
    """A full neighbour that takes what it has had already has room for others."""
    return lambda self, entry, suspect: False


@plant(Refusals, "_is_waited_for", "suspects_wait_for_others")
def let_no_other_pass_a_suspect(sound: Any) -> Any:
    """What was refused alone goes again with each session, though others wait for their resend."""
    return lambda self, neighbour, trial, suspect: False


@plant(Neighbour, "count", "nothing_is_retained", "what_was_lost_is_sent_again")
def wait_for_what_waits(sound: Any) -> Any:
    """What was refused alone waits also for messages of the sequence that waits for its own."""
    return property(lambda self: sum(queue.count for queue in self._all() if not queue.on_hold))
