"""Faults in the interpretation of OrderAcks that do not make clear which sequence they mean."""

from __future__ import annotations

from typing import Any

from mqproto.manager.ownsequences import OwnSequences
from mqproto.transfer.cursors import Numbering
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.pending import PendingWrites
from tests.plants.planting import plant

LOST = ("nothing_is_retained", "all_is_accounted_for", "what_was_lost_is_sent_again", "gaps_are_bridged")


@plant(OutgoingSequence, "_rest_if_empty", *LOST)
def begin_numbers_again_whatever_was_said(sound: Any) -> Any:
    """When everything is acknowledged, the next message gets the number 1, so a late acknowledgment may seem to mean
    that message.
    """

    def rest_if_empty(self: OutgoingSequence, writes: PendingWrites) -> None:
        if not self.count:
            self._end(writes)

    return rest_if_empty


@plant(OwnSequences, "_unused_number", *LOST)
def give_every_sequence_the_same_numbers(sound: Any) -> Any:
    """Each sequence begins with 1, so a number in an acknowledgment may mean any of them."""
    return lambda self, succession, count: 0


@plant(Numbering, "_give_up_blocks", *LOST)
def take_all_numbers_for_ones_own_after_a_restart(sound: Any) -> Any:
    """After a restart, a late acknowledgment about one queue confirms messages of another queue, too."""
    return lambda self, first, last, next_number: None
