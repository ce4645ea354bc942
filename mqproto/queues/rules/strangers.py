"""What a stranger may do: send to queues that are open to strangers, in its own name, and nothing else.

A stranger's session presents a GUID that nobody has declared, or that of a known queue manager which is
elsewhere: the latter is a claim. It may be the true one at a new address, so nothing that it sends is refused
for good, and nothing is done in the name that it claims.
"""

from __future__ import annotations

from mqproto.queues.localqueue import HEARD_OF, QueueDeclaration
from mqproto.queues.rules.admission import ADMISSIONS, MISSING, Admission
from mqproto.wire import MessageClass
from mqproto.wire.glance import TRANSACTIONAL, Head

NOT_HIS_NAME = "a stranger sends in the name of another queue manager"
NOT_FOR_US = "a stranger's message is for another queue manager: strangers are not forwarded"
CLAIMS = "it presents the GUID of a queue manager that is declared elsewhere, and sends what is taken from there alone"


def why_unwelcome(
    head: Head, manager: bytes, *, is_ours: bool, claims: bool, queue: QueueDeclaration | None
) -> str | None:
    """Why a stranger's message ends its session, and stays with it. None if it may be judged further.

    Args:
        manager: the GUID that the stranger presents.
        is_ours: whether the message is for this queue manager.
        claims: whether that GUID belongs to a known queue manager.
        queue: the queue that it is for, if it exists.
    """
    if head.source_queue_manager != manager:
        return NOT_HIS_NAME
    if not is_ours:
        return NOT_FOR_US
    if claims and (queue is None or not queue.strangers or bool(head.flags & (TRANSACTIONAL | HEARD_OF))):
        return CLAIMS
    return None


def admission_of_stranger(
    queue: QueueDeclaration | None, *, transactional: bool, is_invited: bool = False
) -> Admission | MessageClass:
    """What becomes of a stranger's message.  [MS-MQQB] 3.1.5.8.3, whose access check this stands for.

    is_invited: whether we asked this stranger for answers to the queue.
    """
    if queue is not None and not (queue.strangers or is_invited):
        return MessageClass.NACK_ACCESS_DENIED
    return ADMISSIONS[MISSING if queue is None else queue.transactional, transactional]
