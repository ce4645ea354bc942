"""Finds the sequence that an OrderAck confirms if the OrderAck does not name a sequence of ours.

An OrderAck has a TxSequenceID, and the number of the message that it acknowledges (2.2.4.1). But according to the table
of 3.1.7.17, the TxSequenceID is that of a sequence of the OrderAck's own sender, and according to 3.1.1.6.2 the number
belongs to the same sequence. A destination that reads the specification in this way does not say which of our sequences
it means. If its OrderAck were applied to a wrong sequence, messages would be lost. So it is applied only if no other
sequence can be meant. Only the first OrderAck shows how a destination reads the specification. Until then, numbers are
given in blocks, as in this example:

    orders at c    1 2 3 ............ 4,096                              12,289 ...
    notes at c                              4,097 4,098 ... 8,192
    orders at d                                                   8,193 ...

- Until an OrderAck has named a sequence, no number is given twice in any sequence. Each sequence
  takes its numbers in blocks above all earlier ones, including those of earlier processes. This
  holds across all destinations, because a queue manager may have several names. After a restart,
  the blocks show which sequence a number belongs to: withdrawn messages leave no trace, but
  others in their block are kept.
- Numbers start again only when an OrderAck that names the sequence has confirmed all of it
  (`OutgoingSequence`). Once a destination has named a sequence, a number alone no longer counts
  until this process ends.
- A store that is restored from an earlier moment does not know which numbers it gave after that
  moment. With such a store, this kind of destination is not reliable.

So a late OrderAck cannot confirm a later message. A destination that names sequences notices hardly any of this: the
first of several sequences may start above 1.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.succession import FIRST_TIME_STAMP, LAST_TIME_STAMP, Succession


def may_be_ours(time_stamp: int) -> bool:
    """Return whether any copy of this queue manager's store may ever have given a sequence this TimeStamp."""
    return FIRST_TIME_STAMP <= time_stamp <= LAST_TIME_STAMP


def meant_by(number: int, theirs: Collection[Succession]) -> OutgoingSequence | None:
    """Return the only sequence to a queue manager that may be meant by this number, if the number is new there.

    Return None if there is no such sequence, if several may be meant, or if only OrderAcks that name a sequence count.
    """
    if any(succession.by_name for succession in theirs):
        return None
    found = [one for one in chain.from_iterable(theirs) if one.numbering.may_mean(number)]
    return found[0] if len(found) == 1 and number > found[0].cursors.last_ack else None
