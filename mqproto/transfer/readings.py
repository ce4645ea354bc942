"""Finds the sequence that an OrderAck confirms if it does not name a sequence of ours.

An OrderAck has the TxSequenceID of what it acknowledges, and its number (2.2.4.1). But by the table of 3.1.7.17 it has
the TxSequenceID in which its own sender sends, and by 3.1.1.6.2 the number is there. A destination that reads it
this way leaves open which sequence it means. If its OrderAck counted for the wrong one, messages would be lost. So it
counts only if no other can ever be meant. How a destination reads is not known before its first OrderAck:

    orders at c    1 2 3 ............ 4,096                              12,289 ...
    notes at c                              4,097 4,098 ... 8,192
    orders at d                                                   8,193 ...

- Until an OrderAck has named a sequence, no number is given twice, in any sequence: each takes its numbers in blocks,
  above all that were given before, also by earlier processes. A queue manager may have several names, so it does not
  matter where a sequence leads. After a restart the blocks tell whose a number is: nothing is kept of a withdrawn
  message, but others in its block are kept.
- Numbers begin again only when an OrderAck that names the sequence has confirmed all of it (`OutgoingSequence`).
  Once a destination has named one, a number alone no longer counts until this process ends.
- A store that is restored from an earlier moment does not know which numbers it had given. Such a destination cannot
  be relied upon with it.

So a late OrderAck cannot confirm a younger message. A destination that names sequences hardly notices: the
first of several sequences may begin above 1.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.succession import FIRST_TIME_STAMP, LAST_TIME_STAMP, Succession


def may_be_ours(time_stamp: int) -> bool:
    """Whether some moment of this queue manager's store may have given a sequence this TimeStamp."""
    return FIRST_TIME_STAMP <= time_stamp <= LAST_TIME_STAMP


def meant_by(number: int, theirs: Collection[Succession]) -> OutgoingSequence | None:
    """The one sequence of a queue manager for which a number is news; None if another may be meant."""
    if any(succession.by_name for succession in theirs):
        return None
    found = [one for one in chain.from_iterable(theirs) if one.numbering.may_mean(number)]
    return found[0] if len(found) == 1 and number > found[0].cursors.last_ack else None
