"""Ends messages at their destination or after too many hops, and answers their senders.  3.1.5.8.2, 3.1.5.8.8"""

from __future__ import annotations

from collections import Counter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.manager.outbound import Outbound
from mqproto.routing.peers import host_group
from mqproto.session import Remote
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Note
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass, without_session_header
from mqproto.wire.guid import guid_text
from mqproto.wire.shapes import Run

TOLD_OF_HOST: Final = 8
"""The maximum number of refused messages per second that strangers on one host are told about."""
TOLD: Final = 64
"""The maximum number of refused messages per second that all strangers together are told about.

Any other refused message is sent again by its sender.
"""


class Refusing:
    """Refuses messages, and counts the refusals, in total and by class.

    last: the name of the class of the last refusal.
    """

    def __init__(self, desk: Desk, outbound: Outbound) -> None:
        self._desk = desk
        self._outbound = outbound
        self.count = 0
        self.by_class = Counter[str]()
        self.last = ""
        self._told = Counter[str]()
        """For each host, how many messages of strangers were answered in the second that `_told_in` states."""
        self._told_in = 0

    def refuse(self, run: Run, remote: Remote, message_class: MessageClass, why: str = "") -> None:
        """End a message here, and tell its sender.  3.1.5.8.2, 3.1.5.8.8

        why: a reason that is shown to the operator, if the class does not say enough.
        """
        [packet] = run.packets
        self._note_refusal(run, remote, message_class, why)
        reply_to = self._outbound.reply_to(run.message, remote)
        packet = without_session_header(packet)
        self._desk.endings.append(Ending(packet, message_class, Place.AT_DESTINATION, reply_to=reply_to))

    def _note_refusal(self, run: Run, remote: Remote, message_class: MessageClass, why: str = "") -> None:
        user = run.message.user
        self.count += 1
        self.by_class[message_class.name] += 1
        self.last = message_class.name
        facts: dict[str, str | int] = {
            "peer": remote.address,
            "reason": message_class.name,
            "source": guid_text(user.source_queue_manager),
            "message_id": user.message_id,
            "queue": str(user.destination_queue),
        }
        if why:
            facts["why"] = why
        self._desk.notes.append(Note("message-refused", facts))
        self._desk.waypoints.ended(run.packets[0], message_class)

    def turn_down(self, run: Run, remote: Remote, why: MessageClass, now: Moment, *, told: bool) -> None:
        """Refuse a stranger's message.

        told: whether to tell the stranger, if the limits allow it.
        """
        told = told and why is not MessageClass.NACK_ACCESS_DENIED and self._may_tell(remote, now)
        (self.refuse if told else self._note_refusal)(run, remote, why)

    def _may_tell(self, remote: Remote, now: Moment) -> bool:
        """Return whether a stranger may be told in this second that one more message has ended.

        If so, count the message.
        """
        if (second := now.uptime_ms // 1_000) != self._told_in:
            self._told_in = second
            self._told.clear()
        host = host_group(remote.address)
        if self._told[host] >= TOLD_OF_HOST or self._told.total() >= TOLD:
            return False
        self._told[host] += 1
        return True
