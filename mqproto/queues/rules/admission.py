"""Decides, by a table, who takes an arriving message, and why.  [MS-MQQB] 3.1.5.8

Three things matter: who brings the message, where it goes, and whether it is transactional. Room and duplicates are
checked before the message is taken; its expiry and its queue's quota are checked when its turn has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import product
from typing import Final, NamedTuple

from mqproto.wire import MessageClass


class Take(Enum):
    """Who takes a message, if anybody."""

    TURN_AWAY = "nobody: the session ends"
    """The sender keeps the message."""
    REFUSE = "nobody: it ends here"
    """The sender is told; a stranger, however, is not always told."""
    PASS_ON = "the queue towards its destination"
    CONFIRM = "the sequence that it confirms"
    """The message is processed if it is an OrderAck or a FinalAck. Otherwise, it is judged again, as a message for its
    queue.
    """
    LET_IN = "its queue"
    IN_SEQUENCE = "its queue, in sequence"
    """The message joins the queue once all messages before it have arrived."""
    LOOK_UP = "its queue, in sequence, when the store has answered"
    """The store is asked because a stranger's sequence may be only on disk."""


class Ruling(NamedTuple):
    """The decision about who takes a message, and the section of the specification for it.

    message_class: the class with which the message is refused.
    together: whether similar messages may be taken all at once.
    why: the reason why the session ends; {} stands for the source of the message.
    """

    take: Take
    section: str
    message_class: MessageClass | None = None
    together: bool = False
    why: str = ""


NEIGHBOUR: Final = "neighbour"
"""A queue manager that is believed: the message's source, or a declared router on the message's way."""
NO_ROUTER: Final = "it brings a message of queue manager {} and is not a declared router on its ways"
STRANGER: Final = "stranger"
UNINVITED: Final = "stranger, not invited"
"""The queue is closed to this stranger."""
CROWDING: Final = "stranger, too much"
"""If this message were taken, strangers would have more than their share of the queue."""
NOT_HIS_NAME: Final = "a stranger sends in the name of another queue manager"
NOT_FOR_US: Final = "a stranger's message is for another queue manager: strangers are not forwarded"
CLAIMS: Final = (
    "it presents the GUID of a queue manager declared elsewhere, and sends what is taken from there alone"
)

ELSEWHERE: Final = "elsewhere"
"""The message is for another queue manager."""
CLASSED: Final = "has a class"
"""The message is for us, but has a class, so it is not an ordinary message."""
MISSING: Final = None
"""The message is for us, but there is no queue of that name."""
TRANSACTIONAL, PLAIN = True, False
"""The two kinds of queues and of messages."""

BOTH: Final = (PLAIN, TRANSACTIONAL)
QUEUES: Final = (MISSING, *BOTH)
Destination = str | bool | None

_TELLS: Final = Ruling(Take.CONFIRM, "3.1.5.6, 3.1.5.7")
_NO_QUEUE: Final = Ruling(Take.REFUSE, "3.1.5.8.2", MessageClass.NACK_BAD_DST_Q)
_NO_TRANSACTIONS: Final = Ruling(Take.REFUSE, "3.1.5.8.2", MessageClass.NACK_NOT_TRANSACTIONAL_Q)
_TRANSACTIONS_ONLY: Final = Ruling(Take.REFUSE, "3.1.5.8.2", MessageClass.NACK_NOT_TRANSACTIONAL_MSG)
_CLOSED: Final = Ruling(Take.REFUSE, "3.1.5.8.3", MessageClass.NACK_ACCESS_DENIED)
_FULL: Final = Ruling(Take.REFUSE, "3.1.5.8.8", MessageClass.NACK_Q_EXCEED_QUOTA)

_ROWS: Final[tuple[tuple[Iterable[str], Iterable[Destination], Iterable[bool], Ruling], ...]] = (
    ([NEIGHBOUR], [ELSEWHERE], BOTH, Ruling(Take.PASS_ON, "3.1.5.8.2", together=True)),
    ([NEIGHBOUR], [PLAIN], [PLAIN], Ruling(Take.LET_IN, "3.1.5.8.8", together=True)),
    ([NEIGHBOUR], [TRANSACTIONAL], [TRANSACTIONAL], Ruling(Take.IN_SEQUENCE, "3.1.5.8.6", together=True)),
    ([STRANGER], [PLAIN], [PLAIN], Ruling(Take.LET_IN, "3.1.5.8.8")),
    ([STRANGER], [TRANSACTIONAL], [TRANSACTIONAL], Ruling(Take.LOOK_UP, "3.1.5.8.6")),
    ([NEIGHBOUR, STRANGER], [CLASSED], BOTH, _TELLS),
    ([NEIGHBOUR, STRANGER], [MISSING], BOTH, _NO_QUEUE),
    ([NEIGHBOUR, STRANGER, CROWDING], [PLAIN], [TRANSACTIONAL], _NO_TRANSACTIONS),
    ([NEIGHBOUR, STRANGER, CROWDING], [TRANSACTIONAL], [PLAIN], _TRANSACTIONS_ONLY),
    ([CROWDING], [PLAIN], [PLAIN], _FULL),
    ([CROWDING], [TRANSACTIONAL], [TRANSACTIONAL], _FULL),
    ([UNINVITED], BOTH, BOTH, _CLOSED),
    ([NO_ROUTER], [ELSEWHERE, CLASSED, *QUEUES], BOTH, Ruling(Take.TURN_AWAY, "3.1.5.8", why=NO_ROUTER)),
    ([NOT_HIS_NAME], [ELSEWHERE, *QUEUES], BOTH, Ruling(Take.TURN_AWAY, "3.1.5.8", why=NOT_HIS_NAME)),
    ([NOT_FOR_US], [ELSEWHERE], BOTH, Ruling(Take.TURN_AWAY, "3.1.5.8", why=NOT_FOR_US)),
    ([CLAIMS], QUEUES, BOTH, Ruling(Take.TURN_AWAY, "3.1.5.8", why=CLAIMS)),
)
RULES: Final[Mapping[tuple[str, Destination, bool], Ruling]] = {
    case: ruling for who, where, kind, ruling in _ROWS for case in product(who, where, kind)
}
"""The rulings, keyed by the sender of a message (or why it is unwelcome), its destination, and its kind."""
