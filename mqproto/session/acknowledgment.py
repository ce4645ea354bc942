"""Session acknowledgments: they say which messages the neighbour has received, and which it has saved.

[MS-MQQB] 3.1.1.6.1, 3.1.5.5
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.session.data import InFlight, SessionData, ahead
from mqproto.wire import SessionAck, SessionHeader, with_session_header

FLAG_COUNT: Final = 32
"""The number of recoverable messages that one SessionHeader's RecoverableMsgAckFlags cover.

[MS-MQMQ] 2.2.20.4
"""
ACK_DELAY_MS: Final = 100
"""How long an acknowledgment waits for further messages that it can cover."""
ACK_WINDOW_PART: Final = 4
ACK_BYTES: Final = 64 * 1024
"""The number of unacknowledged bytes at which an acknowledgment leaves at once.

It also leaves at once when 1/ACK_WINDOW_PART of the window is unacknowledged.
"""
SMOOTHED: Final = 1 / 8
"""The weight of the latest measurement in the average time that an acknowledgment takes.

TCP uses the same weight for its round trips (RFC 6298).
"""
HALF_CIRCLE: Final = 0x8000
"""If a 16-bit count seems to be at least this far ahead of another count, it is really behind."""


def count_sent(data: SessionData, entries: Sequence[InFlight], now: Moment) -> None:
    """Count UserMessages that are sent: they get the session's next numbers.  3.1.7.1.3

    From then on they await acknowledgment.
    """
    data.message_sent_count = (data.message_sent_count + len(entries)) & 0xFFFF
    data.unacknowledged += entries
    recoverable = [entry for entry in entries if entry.recoverable]
    data.recoverable_message_sent_count = (data.recoverable_message_sent_count + len(recoverable)) & 0xFFFF
    data.unsaved += recoverable
    data.in_flight_bytes += sum([len(entry.message.packet) for entry in entries])
    if not data.timers.runs(Timer.SESSION_ACK_WAIT, data.key):
        data.timers.start(Timer.SESSION_ACK_WAIT, data.key, now.uptime_ms + data.ack_wait_duration_ms)
    if data.timed_ms is None:
        data.timed_ms, data.timed_number = now.uptime_ms, data.message_sent_count
    data.session_active = True


def count_received(data: SessionData, count: int, *, recoverable: bool) -> None:
    """Count UserMessages that arrived, even if they turn out to be duplicates.  3.1.5.8.2, 3.1.5.8.7

    Taken literally, 3.1.5.8.1 would not count a duplicate. Then the counts of the two ends would differ, and the next
    session acknowledgment would close the session.
    """
    data.message_received_count = (data.message_received_count + count) & 0xFFFF
    data.unacked_received_msg_count += count
    if recoverable:
        data.recoverable_message_received_count = (data.recoverable_message_received_count + count) & 0xFFFF
    data.session_active = True


def is_due(data: SessionData, now: Moment) -> bool:
    """Return whether to acknowledge received messages in this turn.  3.1.2.5

    If not, the Session Ack Send Timer runs. If each single message got its own acknowledgment, that would cost both
    ends as much as the message does. So the acknowledgment waits for more messages, unless so much is outstanding that
    the sender might be waiting for it. Taken literally, 3.1.5.8.7 would send it at the 33rd message, or after half a
    second.

    For an express message it leaves at once, because a crash would make this node forget the receipt.
    """
    count = data.unacked_received_msg_count
    if count == 0:
        return False
    recoverable = ahead(data.recoverable_message_received_count, data.last_acked_recoverable_msg_seq_number)
    if (
        data.last_message_index >= 0
        or recoverable < count
        or count * ACK_WINDOW_PART >= min(data.settings.window_size, data.received_window_size)
        or data.unacked_received_bytes >= ACK_BYTES
    ):
        return True
    if data.ack_due_ms is None:
        data.ack_due_ms = now.uptime_ms + ACK_DELAY_MS
        data.timers.start(Timer.SESSION_ACK_SEND, data.key, data.ack_due_ms)
    return now.uptime_ms >= data.ack_due_ms


def acknowledge(data: SessionData) -> None:
    """Acknowledge all received messages; each header covers up to 32 recoverable ones.  3.1.6.4, 3.1.7.11

    The messages are on disk when the headers leave. One header is added to the last UserMessage of the outbox, if there
    is one. The others are sent alone.
    """
    if data.unacked_received_msg_count == 0:
        return
    data.received_is_answered()
    first = data.last_acked_recoverable_msg_seq_number
    pending = ahead(data.recoverable_message_received_count, first)
    data.last_acked_recoverable_msg_seq_number = data.recoverable_message_received_count
    for done in range(0, max(pending, 1), FLAG_COUNT):
        flagged = min(pending - done, FLAG_COUNT)
        header = SessionHeader(
            ack_sequence_number=data.message_received_count,
            recoverable_msg_ack_seq_number=(first + done + 1) & 0xFFFF if flagged else 0,
            recoverable_msg_ack_flags=(1 << flagged) - 1,
            user_msg_sequence_number=data.message_sent_count,
            recoverable_msg_seq_number=data.recoverable_message_sent_count,
            window_size=data.settings.window_size,
        )
        if data.last_message_index >= 0:
            ridden = data.outbox[data.last_message_index]
            data.outbox[data.last_message_index] = with_session_header(ridden, header)
            data.last_message_index = -1
        else:
            data.send(SessionAck(session=header))


def say_paused(data: SessionData) -> None:
    """Send a SessionAck that acknowledges nothing new and gives a window of one.  3.1.7.13

    A queue to the neighbour is on hold. Received messages that are not on disk yet are acknowledged after the commit as
    usual, with our window.
    """
    data.send(
        SessionAck(
            session=SessionHeader(
                ack_sequence_number=data.message_received_count - data.unacked_received_msg_count & 0xFFFF,
                recoverable_msg_ack_seq_number=0,
                recoverable_msg_ack_flags=0,
                user_msg_sequence_number=data.message_sent_count,
                recoverable_msg_seq_number=data.recoverable_message_sent_count,
                window_size=1,
            )
        )
    )
    data.session_active = False
    # What is acknowledged from here on is newer, so it must not ride on a message that leaves before this.
    data.last_message_index = -1


def take_session_ack(data: SessionData, packet: SessionAck, now: Moment) -> None:
    """Take a session acknowledgment that was sent alone.  3.1.5.5"""
    take_session_header(data, packet.session, now)


def take_session_header(data: SessionData, header: SessionHeader, now: Moment) -> None:
    """Take a SessionHeader: it says what the neighbour has received, saved and sent.  3.1.5.5

    AckSequenceNumber acknowledges all messages up to it. A number older than the last one acknowledges nothing new.
    """
    received = ahead(header.ack_sequence_number, acknowledged_count(data))
    if received >= HALF_CIRCLE:
        received = 0
    if received > len(data.unacknowledged):
        data.close(
            "3.1.5.5.1",
            f"it acknowledges message {header.ack_sequence_number}, the last one sent was {data.message_sent_count}",
        )
        return
    answered = [data.unacknowledged.popleft() for _ in range(received)]
    if received and data.timed_ms is not None:
        time_acknowledgment(data, now)
    complete(data, (entry for entry in answered if not entry.recoverable))  # 3.1.5.5.1, 3.1.5.5.2
    if (header.recoverable_msg_ack_flags or header.recoverable_msg_ack_seq_number) and not take_saved(
        data, header
    ):
        return
    if (header.user_msg_sequence_number, header.recoverable_msg_seq_number) != (
        data.message_received_count,
        data.recoverable_message_received_count,
    ):
        data.close(
            "3.1.5.5.5",
            f"it has sent {header.user_msg_sequence_number} messages, {header.recoverable_msg_seq_number} of them "
            f"recoverable; we have received {data.message_received_count} and "
            f"{data.recoverable_message_received_count}",
        )
        return
    data.received_window_size = header.window_size
    if data.unacknowledged or data.unsaved:
        data.timers.start(Timer.SESSION_ACK_WAIT, data.key, now.uptime_ms + data.ack_wait_duration_ms)


def time_acknowledgment(data: SessionData, now: Moment) -> None:
    """Measure how long an acknowledgment takes, for one message at a time.

    That message is the last one of those that were sent together.
    """
    assert data.timed_ms is not None
    if ahead(acknowledged_count(data), data.timed_number) < HALF_CIRCLE:
        took_ms, known_ms = now.uptime_ms - data.timed_ms, data.acknowledged_ms
        data.acknowledged_ms = took_ms if known_ms is None else known_ms + SMOOTHED * (took_ms - known_ms)
        data.timed_ms = None


def take_saved(data: SessionData, header: SessionHeader) -> bool:
    """Complete the messages that a header reports as saved. Return False if that closed the session.

    3.1.5.5.3. Bit k stands for recoverable message RecoverableMsgAckSeqNumber + k, and all messages before bit 0 are
    saved, too. If no bit is set, the message with the number itself counts as saved, according to the first sentence of
    3.1.5.5.3. The number is also 0 if nothing was saved, so the caller ignores a 0 without a bit, even after the count
    has wrapped.  [MS-MQMQ] 2.2.20.4
    """
    base, flags = header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags or 1
    first = (data.recoverable_message_sent_count - len(data.unsaved) + 1) & 0xFFFF
    last = (base + flags.bit_length() - 1) & 0xFFFF
    count = ahead(last, first) + 1
    if count > HALF_CIRCLE:
        return True  # All of it was acknowledged before.
    if count > len(data.unsaved):
        data.close(
            "3.1.5.5.3",
            f"it has saved recoverable message {last}, the last one sent was {data.recoverable_message_sent_count}",
        )
        return False
    before = ahead(base, first) if ahead(base, first) < HALF_CIRCLE else 0
    skipped = ahead(first, base) if before == 0 else 0
    saved = flags >> skipped
    covered = islice(data.unsaved, count)
    if saved & saved + 1 == 0:  # Nearly always: all of them.
        complete(data, covered)
    else:
        complete(
            data, (e for index, e in enumerate(covered) if index < before or saved >> index - before & 1)
        )
    while data.unsaved and data.unsaved[0].done:
        data.unsaved.popleft()
    return True


def complete(data: SessionData, entries: Iterable[InFlight]) -> None:
    """Record that the neighbour has answered for these messages, so that their queues may forget them."""
    for entry in entries:
        if not entry.done:
            entry.done = True
            data.in_flight_bytes -= len(entry.message.packet)
            data.completed.append(entry)


def acknowledged_count(data: SessionData) -> int:
    """Return the number of the last message that an AckSequenceNumber acknowledged."""
    return (data.message_sent_count - len(data.unacknowledged)) & 0xFFFF
