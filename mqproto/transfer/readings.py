"""OrderAcks that do not name a sequence of ours: which of them they confirm, if that can be told.

An OrderAck has the TxSequenceID of what it acknowledges, and its number (2.2.4.1). By the table of 3.1.7.17 it has the
TxSequenceID in which its own sender sends, and by 3.1.1.6.2 the number stands there. A destination that reads this so
leaves open which sequence it means. Its word counts where the number fits one sequence alone, and that it does so is
seen to from the beginning, as nobody knows how a destination reads before its first OrderAck:

- While no OrderAck of a destination has named a sequence, no number is given twice towards it, in whatever sequence:
  `Outbound.sequence_to`. After a crash that goes on.
- Numbers begin again only where an OrderAck that names the sequence has confirmed all of it: `OutgoingSequence`.

So a word that comes late cannot confirm a younger message. A destination that names sequences never notices.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.succession import FIRST_TIME_STAMP, LAST_TIME_STAMP
from mqproto.wire import OrderAckBody
from mqproto.wire.guid import Guid, guid_text


def number_in(body: OrderAckBody) -> int:
    """The number that an OrderAck tells of, which may stand in TxSequenceID.  3.1.1.6.2"""
    if body.tx_sequence_id.time_stamp == 0:
        return body.tx_sequence_number or body.tx_sequence_id.ordinal
    return body.tx_sequence_number


def may_be_ours(time_stamp: int) -> bool:
    """Whether some moment of this queue manager's store may have given a sequence this TimeStamp."""
    return FIRST_TIME_STAMP <= time_stamp <= LAST_TIME_STAMP


def where_to(name: str, manager: Guid | None) -> str:
    """The queue manager to which a format name leads, or its host if only that is known."""
    return name.partition(":")[2].partition("\\")[0].lower() if manager is None else guid_text(manager)


def destination_of(sequence: OutgoingSequence) -> str:
    """Where a sequence leads."""
    return where_to(sequence.name, sequence.destination_manager)


def meant_by(number: int, theirs: Iterable[OutgoingSequence]) -> OutgoingSequence | None:
    """The one of a queue manager's sequences for which a number is news, if it can be about no other.

    It may be known under several names, and numbers are given once towards each. A message that was refused is not kept
    any more, and may be the last that its destination knows of.
    """
    found = [one for one in theirs if one.may_mean(number)]
    keepers = [one for one in found if one.is_kept(one.base + number)]
    if keepers:
        destination = destination_of(keepers[0])
        found = [one for one in found if one in keepers or destination_of(one) != destination]
    return found[0] if len(found) == 1 and number > found[0].last_ack else None
