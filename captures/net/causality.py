"""Both sides of a connection, as one interface saw them, in causal order.  [RFC 9293] 3.4, 3.10.7.4

TCP's acknowledgment numbers are the clock of a connection: a segment with number K was sent by somebody who had
received all of the other side's bytes before K. So what it brings is handed out behind these bytes, whatever the order
in which a capture has the frames. The rules of sessions can then judge packets in the order in which they come.

Each side first puts its own bytes in order (direction.py); then they wait in its queue (sender.py). Of the two queues
that one goes on whose first chunk has all before it that it acknowledges; if both do, the chunk that was caught first.
Where nothing is odd a chunk waits for nothing, and both queues are empty behind each segment. Else one of these is so:

* One queue waits for bytes of the other side that have not come. Either they are late, or the capture lacks them. They
  are late by a few frames, so they are given up PATIENCE_COUNT segments later, or when WAITING_LIMIT_BYTES or
  WAITING_LIMIT_COUNT chunks wait. Where the two sides were caught *apart*, by two interfaces whose clocks differ, one
  side may come much later than the other, and the second of these limits alone counts.
  With the bytes, a hole in the other side that was waited for is given up. If what is behind it has come, it comes
  first, and tells of the hole. Else the chunk goes out *ahead*: its sender had bytes that the capture has not shown.
* Nothing at all has come of the other side since. Then it is *absent*: it is not in the capture, or not any more. All
  goes out ahead, and nothing waits any longer, until something of it is seen. So what was caught one-sidedly
  waits for some moments, and then costs no more than anything else.
* Both queues wait, each for the other. That is so only where a segment was sent again, with a later number than the
  first time, and the first copy was not caught. That number bounds this copy alone, not the bytes, which were there
  before. The one that was caught later is the copy; it goes first, and ahead.

What belongs to an unknown past is not waited for: the first number that a side acknowledges, if nothing was seen of the
other one yet, says what came before the capture.

All of it is by amount, not by time. What waits is bounded for each connection, and counts in what all hold together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.direction import LATER_COUNT, Arrival, Stream
from mqproto.captures.net.sender import Lag, Sender
from mqproto.captures.net.tcp import ACK, RST, SYN, Endpoint, Segment

PATIENCE_COUNT: Final = LATER_COUNT
"""So many segments of a connection may come before one that was sent before them."""
WAITING_LIMIT_BYTES: Final = 4 << 20
"""What may wait in a queue for bytes of the other side."""
WAITING_LIMIT_COUNT: Final = 8_192
"""How many chunks may."""


class View:
    """What one interface saw of a connection.

    Args:
        one, other: the two sides; the one that opened it first.
        apart: whether two interfaces saw a side each, and are read as one.
    """

    def __init__(self, one: Sender, other: Sender, *, apart: bool = False) -> None:
        self.senders = (one, other)
        one.stream.opposite, other.stream.opposite = other.stream, one.stream
        self._apart = apart
        self._count = 0

    def pair(self, source: Endpoint) -> tuple[Sender, Sender]:
        """The side that is at `source`, and the other one."""
        one, other = self.senders
        return (one, other) if one.stream.source == source else (other, one)

    def beside(self, later: View) -> Iterator[tuple[Sender, Sender]]:
        """Each of our sides with that of another view."""
        straight = later.senders[0].stream.source == self.senders[0].stream.source
        return zip(self.senders, later.senders if straight else later.senders[::-1], strict=True)

    def feed(self, segment: Segment, frame: Frame) -> list[Arrival]:
        """What one segment lets be read."""
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
        """Hold nothing more."""
        for sender in self.senders:
            sender.give_up()
        self._queue_up()
        return list(self._released(all_of_it=True))

    def settle(self) -> list[Arrival]:
        """It is over: nothing waits any longer, and both streams end."""
        for sender in self.senders:
            sender.settle()
        self._queue_up()
        ends = [Arrival(sender.stream, None) for sender in self.senders]
        return [*self._released(all_of_it=True), *ends]

    @property
    def waits(self) -> bool:
        """Whether bytes wait for others."""
        return any(sender.waits for sender in self.senders)

    @property
    def ahead(self) -> list[Stream]:
        """The streams of which all goes out ahead, as nothing is seen of the other side."""
        one, other = self.senders
        return [sender.stream for sender, opposite in ((one, other), (other, one)) if opposite.absent]

    @property
    def _is_waiting(self) -> bool:
        one, other = self.senders
        return bool(one.queue or other.queue)

    def _queue_up(self) -> bool:
        one, other = self.senders
        new = one.queue_up(self._count, other.segment_count)
        return other.queue_up(self._count, one.segment_count) or new

    def _released(self, *, all_of_it: bool = False) -> Iterator[Arrival]:
        """What need not wait, or not any longer."""
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
            needs = sender.queue[0].needs
            if needs is not None:
                opposite.note_needed(needs)
            yield sender.hand_out(ahead=lag is not Lag.NONE)

    def _is_over(self, sender: Sender) -> bool:
        """Whether its first chunk has waited long enough for bytes that are not there."""
        if len(sender.queue) > WAITING_LIMIT_COUNT or sender.queue_bytes > WAITING_LIMIT_BYTES:
            return True
        return not self._apart and self._count - sender.queue[0].came >= PATIENCE_COUNT

    def _is_given_up(self, sender: Sender, opposite: Sender, *, all_of_it: bool) -> bool:
        """Give up what a chunk waits for; whether something has come to light that was behind it."""
        first = sender.queue[0]
        assert first.needs is not None
        opposite.give_up_before(first.needs)
        if self._queue_up():
            return True
        opposite.absent = not all_of_it and opposite.segment_count == first.other_came
        return False
