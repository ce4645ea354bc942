"""The rights of strangers: they send only in their own names, and only to queues open to strangers.

A stranger's session presents a GUID that is not declared, or the GUID of a known queue manager at another address. The
latter is a claim: the stranger may be that queue manager at a new address. So its messages are not refused for good,
but nothing is done in the name that it claims.
"""

from __future__ import annotations

from mqproto.queues.localqueue import HEARD_OF, QueueDeclaration
from mqproto.queues.rules.admission import (
    CLAIMS,
    CLASSED,
    CROWDING,
    ELSEWHERE,
    NOT_FOR_US,
    NOT_HIS_NAME,
    STRANGER,
    UNINVITED,
    Destination,
)
from mqproto.wire.glance import TRANSACTIONAL, Head


def standing(
    head: Head,
    manager: bytes,
    destination: Destination,
    queue: QueueDeclaration | None,
    *,
    claims: bool,
    is_invited: bool,
    is_full: bool,
) -> str:
    """Return the standing of a stranger's message, or why it is unwelcome.

    This replaces the access check of 3.1.5.8.3.

    Args:
        manager: the GUID that the stranger presents.
        queue: the queue that the message is for, if it exists.
        claims: whether that GUID belongs to a known queue manager.
        is_invited: whether we asked this stranger to send answers to the queue.
        is_full: whether the message would give strangers more than their share of the queue.
    """
    if destination is CLASSED:
        return STRANGER
    if head.source_queue_manager != manager:
        return NOT_HIS_NAME
    if destination is ELSEWHERE:
        return NOT_FOR_US
    is_open = queue is not None and queue.strangers
    if claims and (not is_open or head.flags & (TRANSACTIONAL | HEARD_OF)):
        return CLAIMS
    if queue is not None and not (is_open or is_invited):
        return UNINVITED
    return CROWDING if is_full else STRANGER
