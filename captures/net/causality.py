"""Puts both sides of a connection, as one interface saw them, in causal order.

[RFC 9293] 3.4, 3.10.7.4

TCP's acknowledgment numbers are the clock of a connection: the sender of a segment with number K had received all of
the other side's bytes before K. So the sender's bytes are handed out after those bytes, whatever the order of frames in
a capture. The rules of sessions can then judge packets in the order in which they are handed out.

Each side first puts its own bytes in order (direction.py); then they wait in its queue (sender.py). A queue advances if
its first chunk acknowledges only bytes that have arrived; if both queues can advance, the chunk that was captured first
goes first. Normally a chunk does not wait, and both queues are empty after each segment. Otherwise there are these
cases:

* One queue waits for bytes of the other side that have not arrived. They are late, or the capture
  lacks them. Late bytes arrive within a few frames. So the bytes are given up PATIENCE_COUNT
  segments later, or when WAITING_LIMIT_BYTES or WAITING_LIMIT_COUNT chunks wait. If two interfaces
  whose clocks differ captured the sides *apart*, one side may arrive much later than the other, and
  only the WAITING limits count. When these bytes are given up, so is the other side's hole. If
  bytes after the hole have arrived, those bytes go out first, and report the hole. Otherwise the
  chunk goes out *ahead*: its sender had bytes that the capture has not shown.
* Nothing at all has arrived from the other side since the chunk was queued. That side is then
  *absent*: the capture never had it, or has lost it. Until that side is seen again, nothing waits
  for it, and everything goes out ahead. So a one-sided capture waits briefly, and then costs no
  more than any other.
* Both queues wait for each other. This happens only if a segment was resent with a higher
  acknowledgment number than before, and the capture lacks the original. The bytes are older than
  the higher number suggests. Of the two chunks, the one that was captured later was resent; it goes
  first, and ahead.

Nothing waits for an unknown past: if a side acknowledges a number before the other side was seen, the bytes up to that
number came before the capture.

All limits are amounts, not times. Each connection may hold a bounded amount, which counts towards the total of all
connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.direction import LATER_COUNT, Arrival
from mqproto.captures.net.recent import signed
from mqproto.captures.net.sender import Lag, Sender
from mqproto.captures.net.tcp import ACK, RST, SYN, Endpoint, Segment

PATIENCE_COUNT: Final = LATER_COUNT
"""The largest number of later segments of a connection that may be captured before an earlier one."""
WAITING_LIMIT_BYTES: Final = 4 << 20
"""The largest number of bytes that may wait in a queue for bytes of the other side."""
WAITING_LIMIT_COUNT: Final = 8_192
"""The largest number of chunks that may wait in a queue."""
FAR: Final = 1 << 32
"""A distance beyond that of any two sequence numbers."""


class View:
    """One interface's view of a connection.

    Args:
        one, other: the two sides; the side that opened the connection comes first.
        apart: whether this view joins two interfaces, each of which saw only one side.
    """

    def __init__(self, one: Sender, other: Sender, *, apart: bool = False) -> None:
        self.senders = (one, other)
        one.stream.opposite, other.stream.opposite = other.stream, one.stream
        self._apart = apart
        self._count = 0

    def pair(self, source: Endpoint) -> tuple[Sender, Sender]:
        """Return the side at `source`, and the other side."""
        one, other = self.senders
        return (one, other) if one.stream.source == source else (other, one)

    def is_over_for(self, segment: Segment) -> bool:
        """Whether a segment belongs to another connection, or acknowledges bytes of another connection."""
        sender, other = self.pair(segment.source)
        if sender.begins_anew(segment):
            return True
        return segment.flags & (ACK | RST) == ACK and other.is_past_end(segment.acknowledgment_number)

    def distance_to(self, segment: Segment) -> int:
        """Return how far a segment's numbers are from those that are due; FAR if nothing tells."""
        sender, other = self.pair(segment.source)
        if segment.flags & SYN and sender.begins_anew(segment):
            return FAR
        numbers = [(sender.due, segment.sequence_number)]
        if segment.flags & ACK:
            numbers.append((other.due, segment.acknowledgment_number))
        return max((abs(signed(number - due)) for due, number in numbers if due is not None), default=FAR)

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self.senders[0].is_over

    def feed(self, segment: Segment, frame: Frame) -> list[Arrival]:
        """Take one segment; return the chunks that can be read now."""
        sender, other = self.pair(segment.source)
        self._count += 1
        sender.segment_count += 1
        sender.absent = False
        sender.take(segment, frame)
        if segment.flags & ACK:
            other.acknowledged(segment.acknowledgment_number, first=bool(segment.flags & SYN))
            if segment.flags & RST:
                sender.reset_at, other.dropped_at = segment.sequence_number, segment.acknowledgment_number
        arrivals = [] if sender.queue or other.queue else sender.pass_on(other)
        if self._queue_up() or self._is_waiting:
            arrivals += self._released()
        return arrivals

    def let_go(self) -> list[Arrival]:
        """Stop waiting for missing bytes; return everything that was held."""
        for sender in self.senders:
            sender.give_up()
        self._queue_up()
        return list(self._released(all_of_it=True))

    def settle(self) -> list[Arrival]:
        """End the connection: nothing waits any longer, and both streams end.

        Return everything that was held, and the ends of the streams.
        """
        for sender in self.senders:
            sender.settle()
        self._queue_up()
        ends = [Arrival(sender.stream, None) for sender in self.senders]
        return [*self._released(all_of_it=True), *ends]

    @property
    def waits(self) -> bool:
        """Whether bytes wait for other bytes."""
        return any(sender.waits for sender in self.senders)

    @property
    def _is_waiting(self) -> bool:
        one, other = self.senders
        return bool(one.queue or other.queue)

    def _queue_up(self) -> bool:
        one, other = self.senders
        new = one.queue_up(self._count, other.segment_count)
        return other.queue_up(self._count, one.segment_count) or new

    def _released(self, *, all_of_it: bool = False) -> Iterator[Arrival]:
        """Yield the bytes that do not have to wait, or do not have to wait any longer."""
        one, other = self.senders
        while one.queue or other.queue:
            choices = [
                (other.lag(sender.queue[0].needs), sender.queue[0].chunk.frame, sender is not one)
                for sender, other in (self.senders, self.senders[::-1])
                if sender.queue
            ]
            lag, _, is_other = min(choices)
            sender, opposite = self.senders[::-1] if is_other else self.senders
            if lag is Lag.LACKING:
                if len(choices) == 2:
                    _, _, is_other = max(choices)
                    sender, opposite = self.senders[::-1] if is_other else self.senders
                elif not all_of_it and not self._is_over(sender):
                    return
                elif self._is_given_up(sender, opposite, all_of_it=all_of_it):
                    continue
            yield sender.hand_out(ahead=lag is not Lag.NONE)

    def _is_over(self, sender: Sender) -> bool:
        """Whether a sender's first chunk has waited long enough for missing bytes."""
        if len(sender.queue) > WAITING_LIMIT_COUNT or sender.queue_bytes > WAITING_LIMIT_BYTES:
            return True
        return not self._apart and self._count - sender.queue[0].came >= PATIENCE_COUNT

    def _is_given_up(self, sender: Sender, opposite: Sender, *, all_of_it: bool) -> bool:
        """Give up the bytes that a chunk waits for; return whether bytes after them are now in place."""
        first = sender.queue[0]
        assert first.needs is not None
        opposite.give_up_before(first.needs)
        if self._queue_up():
            return True
        opposite.absent = not all_of_it and opposite.segment_count == first.other_came
        return False
