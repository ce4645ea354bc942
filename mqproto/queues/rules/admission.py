"""May a message that has come to its destination go into its queue?  [MS-MQQB] 3.1.5.8.5, 3.1.5.8.6

Two things decide: the kind of its queue, if there is one, and whether the message is transactional. Time and quota
are checked afterwards, when its turn has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from mqproto.wire import MessageClass


class Admission(Enum):
    """What becomes of a message at its destination."""

    LET_IN = auto()
    """Into the queue, if time and quota allow."""
    IN_SEQUENCE = auto()
    """The same, once all messages before it have come: [MS-MQQB] 3.1.5.8.6."""


MISSING: Final = None
"""There is no queue of that name."""
TRANSACTIONAL, PLAIN = True, False

ADMISSIONS: Final[Mapping[tuple[bool | None, bool], Admission | MessageClass]] = {
    (MISSING, PLAIN): MessageClass.NACK_BAD_DST_Q,
    (MISSING, TRANSACTIONAL): MessageClass.NACK_BAD_DST_Q,
    (PLAIN, PLAIN): Admission.LET_IN,
    (PLAIN, TRANSACTIONAL): MessageClass.NACK_NOT_TRANSACTIONAL_Q,
    (TRANSACTIONAL, PLAIN): MessageClass.NACK_NOT_TRANSACTIONAL_MSG,
    (TRANSACTIONAL, TRANSACTIONAL): Admission.IN_SEQUENCE,
}
"""What becomes of a message, or the class that refuses it, by the kinds of its queue and of itself."""
