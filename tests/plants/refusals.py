"""Faults in finding the message that a neighbour refuses."""

from __future__ import annotations

from typing import Any

from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.refusals import Refusals
from mqproto.neighbours.trial import Demand, Suspect, Trial
from tests.plants.planting import plant


@plant(Trial, "ended", "nothing_is_retained", "what_was_lost_is_sent_again")
def never_look_for_what_is_refused(sound: Any) -> Any:
    """A message that makes each session end is always sent first on the next session, forever."""
    return lambda self, hop, lost, by_us: (lost, [])


@plant(Trial, "ended", "endings_have_reasons")
def blame_a_neighbour_for_what_was_refused_here(sound: Any) -> Any:
    """When a message from the neighbour closes the session, the messages then on their way count as refused by the
    neighbour.
    """
    return lambda self, hop, lost, by_us: sound(self, hop, lost)


@plant(Demand, "covers", "endings_have_reasons")
def take_what_is_dropped_for_a_proof(sound: Any) -> Any:
    """Messages of a sequence that a full neighbour accepts too early, and then drops, count as proof that it has room
    for others.
    """
    return lambda self, other: sound(self if other.sequence else self._replace(sequence=None), other)


@plant(Trial, "_may_have_had", "endings_have_reasons")
def take_what_came_before_for_a_proof(sound: Any) -> Any:
    """A full neighbour that accepts a message that it already had is believed to have room for others."""
    return lambda self, entry, suspect: False


@plant(Refusals, "_is_waited_for", "suspects_wait_for_others")
def let_no_other_pass_a_suspect(sound: Any) -> Any:
    """A message that was refused when it was sent alone is resent on each session.

    It is resent although other messages are waiting to be sent.
    """
    return lambda self, neighbour, trial, suspect: False


@plant(Neighbour, "count", "nothing_is_retained", "what_was_lost_is_sent_again")
def wait_for_what_waits(sound: Any) -> Any:
    """A message that was refused when it was sent alone also waits for messages of its sequence whose turn has not
    come.
    """
    return property(lambda self: sum(queue.count for queue in self._all() if not queue.on_hold))


@plant(Suspect, "refuse", "endings_have_reasons")
def decide_right_behind_another(sound: Any) -> Any:
    """A full neighbour that has used up its room for another message is believed to refuse the suspect."""
    return lambda self, hop, often, by_us: sound(self, hop, 1, by_us=by_us)
