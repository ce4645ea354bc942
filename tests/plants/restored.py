"""Faults in how a store from an earlier moment is used, and in how a peer with such a store is treated."""

from __future__ import annotations

from typing import Any

from mqproto.manager.confirmations import Confirmations
from mqproto.simulator.storage.witnesses.identity import Identity
from mqproto.simulator.storage.witnesses.life import Cause
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.resending import Resends
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.succession import Succession
from mqproto.turn.pending import GivenNumbers
from tests.plants.planting import plant

LOST = ("nothing_is_retained", "all_is_accounted_for")
DOUBLED = ("delivered_once_and_in_order", "received_once")


@plant(OutgoingSequence, "restore", *LOST, *DOUBLED, "order_acks_leave_no_gap", "gaps_are_bridged")
def go_on_with_the_sequence_that_was_found(sound: Any) -> Any:
    """Messages that are sent after a restart join the sequence that is in the store."""

    def restore(self: OutgoingSequence, *arguments: Any) -> None:
        sound(self, *arguments)
        self.is_closed = False

    return restore


@plant(Succession, "_choose_head", *LOST, *DOUBLED)
def send_before_the_sequence_before_is_done(sound: Any) -> Any:
    """The newest sequence does not wait for the sequences that were found in the store."""

    def choose_head(self: Succession) -> None:
        sound(self)
        self.newest.is_head = True

    return choose_head


@plant(GivenNumbers, "_begin", *LOST, "handed_out_as_it_was_sent", "endings_have_reasons")
def reuse_the_identifiers_of_another_life(sound: Any) -> Any:
    """A new life begins with the MessageID at which the store ended."""
    return lambda self, life: sound(self, life._replace(first_message_id=self._next_message_id))


@plant(Identity, "_cause", *LOST, "handed_out_as_it_was_sent", "no_error_of_our_own")
def take_a_store_that_was_put_back_for_the_last(sound: Any) -> Any:
    """The life file is from a later moment than the store, but nobody looks at it."""

    def cause(self: Identity, *known: Any) -> Cause:
        found: Cause = sound(self, *known)
        return Cause.NONE if found is Cause.RESTORED else found

    return cause


@plant(Confirmations, "_destination_is_ahead", *LOST, "what_was_lost_is_sent_again")
def ignore_a_destination_that_is_ahead(sound: Any) -> Any:
    """An OrderAck for more than was sent is never believed."""
    return lambda *arguments: None


@plant(Resends, "see_it_behind", *LOST, "what_was_lost_is_sent_again")
def ignore_a_destination_that_is_behind(sound: Any) -> Any:
    """An OrderAck for less than the last one is always considered late."""
    return lambda *arguments: None


@plant(IncomingSequence, "place", *LOST, "what_was_lost_is_sent_again")
def say_nothing_of_a_sequence_of_which_nothing_is_here(sound: Any) -> Any:
    """An OrderAck is always about accepted messages, so none is sent before anything has been accepted."""
    return property(lambda self: (self.identifier, self.number) if self.number else None)
