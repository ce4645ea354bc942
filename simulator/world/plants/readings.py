"""Faults of what a node makes of OrderAcks that leave open which sequence they mean."""

from __future__ import annotations

from typing import Any

from mqproto.manager import confirmations
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.pending import PendingWrites
from simulator.world.plants.planting import plant

LOST = ("nothing_is_retained", "all_is_accounted_for", "what_was_lost_is_sent_again", "gaps_are_bridged")


@plant(OutgoingSequence, "_rest_if_empty", *LOST)
def begin_numbers_again_whatever_was_said(sound: Any) -> Any:
    """All is acknowledged, and the next message has the number 1: a late word may mean it."""

    def rest_if_empty(self: OutgoingSequence, writes: PendingWrites) -> None:
        if not self.count:
            self._end(writes)

    return rest_if_empty


@plant(confirmations, "meant_by", *LOST)
def take_a_number_for_the_first_sequence_that_may_mean_it(sound: Any) -> Any:
    """A late word of one sequence confirms what another keeps."""

    def meant_by(number: int, theirs: Any) -> OutgoingSequence | None:
        found = (one for one in theirs if one.was_sent(number) and number > one.last_ack)
        return next(found, None)

    return meant_by
