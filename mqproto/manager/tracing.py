"""Report messages, which tell a trace queue where a message has been.  [MS-MQQB] 1.3.6, 3.1.5.8.9, 3.1.7.1.7"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from mqproto.base.errors import FormatNameError
from mqproto.base.moment import Moment
from mqproto.formatname.wire import destination_from_wire
from mqproto.manager.outcomes import Outcomes
from mqproto.wire import UserMessage, decode_message, guid_text

# The words of the ABNF; strftime would ask the locale.
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Tracing:
    """Writes a report for each traced message that comes or goes."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def received(self, message: UserMessage, now: Moment) -> None:
        """A message came.  3.1.5.8.9"""
        if message.base.trace and message.debug is not None:
            body = _element("MESSAGE ID", f"{message.user.message_id:08X}")
            body += _element("TARGET QUEUE", _target(message))
            self._outcomes.report(message.debug, report_label(message, now), body, now)

    def sent(self, sent: Iterable[tuple[bytes, str]], now: Moment) -> None:
        """Messages left: their packets, and the hosts that they were sent to.  3.1.7.1.7"""
        for packet, host in sent:
            message = decode_message(packet)
            assert message.debug is not None, "no packet has TR set and no DebugHeader"
            body = _element("MESSAGE ID", f"{message.user.message_id:08X}")
            body += _element("TARGET QUEUE", _target(message))
            body += _element("NEXT HOP", host)
            body += _element("HOP COUNT", f"{message.user.hop_count:02X} ")
            self._outcomes.report(message.debug, report_label(message, now), body, now)


def report_label(message: UserMessage, now: Moment) -> str:
    """Source, message, hops, and when: `1B6A:00000007:00 received by GUID at 02:15:09 AM Sun,Nov 22 26`."""
    source = guid_text(message.user.source_queue_manager).upper()
    at = datetime.fromtimestamp(now.utc_s, UTC)
    half = "AM" if at.hour < 12 else "PM"
    date = f"{DAYS[at.weekday()]},{MONTHS[at.month - 1]} {at.day:02} {at.year % 100:02}"
    number = f"{source[:4]}:{message.user.message_id:08X}:{message.user.hop_count:02X}"
    return f"{number} received by {source} at {at:%H:%M:%S} {half} {date}"


def _element(name: str, value: str) -> str:
    return f"<{name}>{value}</{name}>\r\n"


def _target(message: UserMessage) -> str:
    user = message.user
    try:
        name = destination_from_wire(
            user.destination_type, user.destination_queue, user.queue_manager_address
        )
    except FormatNameError:
        return ""
    return "" if name is None else str(name)
