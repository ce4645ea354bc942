"""A packet as one line for people, in about 120 columns: time, ends, kind, size and content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.base.words import clock, date
from mqproto.captures.decode.names import Names, printable
from mqproto.captures.decode.security.words import protection_of
from mqproto.captures.decode.sight import Kind, Sight, guids_of, tls_record
from mqproto.captures.decode.views.words import DAY_NS
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    MessageClass,
    OrderAckBody,
    Ping,
    SessionHeader,
    UserMessage,
    message_identifier,
)
from mqproto.wire.layouts.session import DEFAULT_WINDOW_SIZE

NANOSECONDS: Final = 1_000_000_000
NAME_COLUMNS: Final = 12
"""The smallest width of a column of names."""
LONGEST_NAME: Final = 24
LONGEST_LABEL: Final = 24
SHORT_KINDS: Final = {
    Kind.ESTABLISH_CONNECTION: "Establish",
    Kind.CONNECTION_PARAMETERS: "Parameters",
}
CLASS_NAMES: Final = {int(each): each.name for each in MessageClass}


class LineWriter:
    """Makes lines; the columns of names grow with the longest name so far.

    They have at least NAME_COLUMNS and at most LONGEST_NAME characters; longer names are cut.

    Args:
        names: the names of queue managers and queues.
        relative_to_ns: show seconds since this time instead of the time of day.
    """

    def __init__(self, names: Names, *, relative_to_ns: int | None = None) -> None:
        self._names = names
        self._began_ns = relative_to_ns
        self._columns = NAME_COLUMNS
        self._day: int | None = None

    def heading(self, first: Sight) -> str | None:
        """Return the heading of the columns with the date; None if the date has not changed.

        Call this before each line, because a capture may go on beyond midnight.
        """
        day = first.seen.time_ns // DAY_NS if self._began_ns is None else 0
        if day == self._day:
            return None
        self._day = day
        when = f"{date(first.seen.time_ns)} UTC" if self._began_ns is None else "seconds"
        longest = max(len(first.source), len(first.destination))
        self._columns = max(self._columns, min(longest, LONGEST_NAME))
        names = f"{'from':<{self._columns}} {'to':<{self._columns}}"
        return f"{'#':>6}  {when:<15}  {names} {'kind':<13} {'bytes':>6}  what it says"

    def line(self, sight: Sight) -> str:
        """Return the line of one packet."""
        seen = sight.seen
        source, destination = _cut(sight.source, LONGEST_NAME), _cut(sight.destination, LONGEST_NAME)
        columns = self._columns = max(self._columns, len(source), len(destination))
        number = seen.number if seen.framed else "-"
        kind = SHORT_KINDS.get(sight.kind, sight.kind)
        return (
            f"{number:>6}  {self._time(seen.time_ns):<15}  {source:<{columns}} {destination:<{columns}} "
            f"{kind:<13} {seen.size_bytes:>6}  {what(sight, self._names)}"
        )

    def _time(self, time_ns: int) -> str:
        if self._began_ns is not None:
            return f"{(time_ns - self._began_ns) / NANOSECONDS:15.6f}"
        return clock(time_ns)


def what(sight: Sight, names: Names) -> str:
    """Return the content of a packet in words. If it has a hole, say how much of it is in the capture."""
    seen = sight.seen
    if not seen.cut_bytes:
        return _what(sight, names)
    there = f"the capture has its first {len(seen.data):,} bytes"
    return there if _says_little(sight) else f"{_what(sight, names)}; {there}"


def _says_little(sight: Sight) -> bool:
    """Whether a packet with a hole lacks the part that its description needs."""
    packet = sight.seen.packet
    if isinstance(packet, EstablishConnection):
        return None in guids_of(sight.seen, packet)
    return sight.message is None


def _what(sight: Sight, names: Names) -> str:
    packet = sight.seen.packet
    if sight.message is not None:
        return " ".join(_of_message(sight, sight.message, names))
    if isinstance(packet, EstablishConnection):
        client, server = names.manager(packet.client_guid), names.manager(packet.server_guid)
        if sight.answers:
            return f"{server} refuses {client}" if packet.refused else f"{server} welcomes {client}"
        return f"{client} asks for " + ("anybody" if packet.server_guid == NULL_GUID else server)
    if isinstance(packet, ConnectionParameters):
        timeouts = f"ack {packet.recoverable_ack_timeout_ms} ms, wait {packet.ack_timeout_ms} ms"
        return f"window {packet.window_size}, {timeouts}" + (", refused" if packet.refused else "")
    if isinstance(packet, Ping):
        return f"cookie {packet.cookie}, {names.manager(packet.qm_guid)}" + (
            ", refused" if packet.refused else ""
        )
    if sight.session is not None:
        return _of_session(sight, sight.session)
    if sight.kind is Kind.ENCRYPTED:
        return f"TLS {tls_record(sight.seen)}"
    return " ".join(str(sight.seen.fault or "").split())


def _of_message(sight: Sight, message: UserMessage, names: Names) -> Iterator[str]:
    user, transaction, acknowledgment = message.user, message.transaction, sight.acknowledgment
    if sight.count is not None:
        yield f"n{sight.count}" + (
            f" r{sight.recoverable_count}" if sight.recoverable_count is not None else ""
        )
    if isinstance(acknowledgment, OrderAckBody):
        yield f"tx {acknowledgment.tx_sequence_id.ordinal}/{acknowledgment.tx_sequence_number} and before"
    elif isinstance(acknowledgment, FinalAckBody):
        verdict = CLASS_NAMES.get(
            message.properties.message_class, f"class {message.properties.message_class:#x}"
        )
        yield f"tx {acknowledgment.tx_sequence_id.ordinal}/{acknowledgment.tx_sequence_number}"
        yield f"msg {acknowledgment.message_id} {verdict}"
    elif sight.kind is Kind.ADMIN_ACK:
        about = message_identifier.decode(message.properties.correlation_id)
        yield f"msg {about.ordinal} {CLASS_NAMES[message.properties.message_class]}"
    else:
        if transaction is not None:
            yield f"tx {transaction.tx_sequence_id.ordinal}/{transaction.tx_sequence_number}"
            if transaction.previous_tx_sequence_number != transaction.tx_sequence_number - 1:
                yield f"after {transaction.previous_tx_sequence_number}"
        yield names.destination(user)
        yield f"msg {user.message_id}"
        if message.properties.label:
            yield repr(_cut(printable(message.properties.label), LONGEST_LABEL))
    if sight.ended is not None:
        yield f"= {sight.ended}"
    if user.hop_count:
        yield f"hop {user.hop_count}"
    protection = protection_of(message)
    if protection.signed is not None:
        yield f"signed {protection.signed}"
    if protection.encrypted is not None:
        yield f"encrypted {protection.encrypted}"
    if sight.session is not None:
        yield f"+ {_of_session(sight, sight.session)}"


def _of_session(sight: Sight, header: SessionHeader) -> str:
    """Describe a session acknowledgment: how many messages were received, which were saved, and how many were sent."""
    text = f"acks n{header.ack_sequence_number}"
    if sight.received is not None:
        text += f" = {sight.received}"
    if flags := header.recoverable_msg_ack_flags:
        first = header.recoverable_msg_ack_seq_number
        last = (first + flags.bit_length() - 1) & 0xFFFF
        holes = "" if flags & (flags + 1) == 0 else " in part"
        text += f", saved r{first}" + (f"-r{last}{holes}" if last != first else "")
        if sight.saved is not None and (
            sight.received is None or sight.saved.packets != sight.received.packets
        ):
            text += f" = {sight.saved}"
    if sight.message is None:
        text += f"; sent n{header.user_msg_sequence_number} r{header.recoverable_msg_seq_number}"
        if header.window_size != DEFAULT_WINDOW_SIZE:
            text += f", window {header.window_size}"
    return text


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 1]}…"
