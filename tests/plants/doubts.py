"""Faults in the treatment of messages that expired after being sent.

What the dead letters of such messages report must be true in the end.
"""

from __future__ import annotations

from typing import Any

from mqproto.manager.confirmations import AcknowledgedMessages, Confirmations
from mqproto.manager.expiration import Expiration
from mqproto.neighbours.refusals import Refusals
from mqproto.queues.localqueue import LocalQueue
from mqproto.transfer.cursors import Numbering
from mqproto.transfer.doubts import Doubts
from mqproto.transfer.incoming import IncomingSequence
from mqproto.turn.effects import StoredState
from tests.plants.planting import plant


@plant(Numbering, "first_proven", "recalled_for_a_reason")
def take_any_later_number_for_a_proof(sound: Any) -> Any:
    """An OrderAck counts as proof that all messages with lower numbers have arrived.

    It counts even for messages that were passed over.
    """
    return lambda self, number: 1


@plant(Confirmations, "_is_awaited", "recalled_for_a_reason", "letters_are_true", "endings_have_reasons")
def believe_that_what_has_arrived_ended_on_its_way(sound: Any) -> Any:
    """The end of a copy counts as the end of the message, although its destination has reported that it has the
    message.
    """
    return lambda self, sequence, body: True


@plant(AcknowledgedMessages, "loaded", "letters_are_true", "whereabouts_tell_the_truth")
def take_the_end_of_a_copy_for_that_of_the_message(sound: Any) -> Any:
    """The message's dead letter does not mention that there is another copy, and the letter stays when that copy is
    received.
    """

    def loaded(self: AcknowledgedMessages, *arguments: Any) -> None:
        sound(self, *arguments)
        if self._desk.endings:
            self._desk.endings[-1] = self._desk.endings[-1]._replace(in_doubt=False)

    return loaded


@plant(Refusals, "_set_aside", "letters_are_true", "whereabouts_tell_the_truth")
def take_what_was_set_aside_for_lost(sound: Any) -> Any:
    """If the next hop refuses a message, its dead letter does not mention a copy that went another way."""

    def set_aside(self: Refusals, *arguments: Any) -> None:
        sound(self, *arguments)
        if self._desk.endings:
            self._desk.endings[-1] = self._desk.endings[-1]._replace(in_doubt=False)

    return set_aside


@plant(Doubts, "__init__", "letters_are_true", "whereabouts_tell_the_truth")
def forget_what_is_in_doubt_after_a_restart(sound: Any) -> Any:
    """A dead letter from an earlier process counts as final."""
    return lambda self, *parts: sound(self, *parts[:-1], StoredState(queues=parts[-1].queues))


@plant(LocalQueue, "recall", "letters_are_true", "endings_have_reasons", "whereabouts_tell_the_truth")
def leave_the_letter_where_it_is(sound: Any) -> Any:
    """A late acknowledgment is noted, but the dead letter stays, in addition to the message that has arrived."""
    return lambda self, position, *others: any(one.position == position for one in self.lane(0).window)


@plant(Doubts, "at", "letters_are_true", "nothing_is_retained", "whereabouts_tell_the_truth")
def look_for_late_words_among_what_had_its_order_ack(sound: Any) -> Any:
    """A late FinalAck finds no dead letter."""
    return lambda self, identifier, number: None


@plant(IncomingSequence, "release", "what_is_held_goes_with_the_next", "nothing_is_retained")
def keep_what_another_passed_over(sound: Any) -> Any:
    """A held message that has expired at its source stays on disk after the next message has arrived."""
    return lambda self: (sound(self)[0], [])


@plant(Expiration, "_end_on_disk", "letters_are_true", "whereabouts_tell_the_truth")
def recall_nothing_that_expired_on_disk(sound: Any) -> Any:
    """A message that was only in the store becomes a final dead letter."""

    def end_on_disk(self: Expiration, *arguments: Any) -> bool:
        gone: bool = sound(self, *arguments)
        if gone:
            self._desk.endings[-1] = self._desk.endings[-1]._replace(in_doubt=False)
        return gone

    return end_on_disk
