"""The part of one sequence that crossed one hop, and the numbers that are missing from it. [MS-MQQB] 3.1.5.8.6"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mqproto.captures.decode.facts import NumberedMessage
from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.decode.journeys import ago
from mqproto.captures.decode.ranges import BoundedRanges
from mqproto.wire import TxSequenceId

GAP_LIMIT: Final = 1_000
"""The largest number of gaps that are remembered for one sequence on one hop."""
MARK_LIMIT: Final = 64
"""The largest number of marks, each with its packet, that are remembered for one sequence on one hop."""
NOTE = Severity.NOTE


class Gap(NamedTuple):
    """Numbers that are missing on a hop, and the packet that revealed the gap."""

    first: int
    last: int
    packet: int
    time_ns: int


class HighMark(NamedTuple):
    """A packet whose number is the highest so far on its hop.

    place: the packet's connection and interface.
    """

    number: int
    packet: int
    time_ns: int
    place: tuple[int, int]


@dataclass(slots=True, eq=False)
class HopProgress:
    """The part of one sequence that crossed one hop, in the order of the capture.

    base: this number and all lower ones crossed before the capture began.
    covered: numbers that crossed, and numbers that PreviousTxSequenceNumber shows to be unused.
    passed: the unused numbers that counted as missing until they were shown to be unused.
    marks: the latest known packets of those whose number was the highest so far when they crossed.
    """

    base: int
    covered: BoundedRanges = field(default_factory=BoundedRanges)
    gaps: list[Gap] = field(default_factory=list)
    passed: BoundedRanges = field(default_factory=BoundedRanges)
    marks: deque[HighMark] = field(default_factory=lambda: deque(maxlen=MARK_LIMIT))

    def add_all(self, other: HopProgress) -> None:
        """Add the progress that was recorded for the same hop under another name."""
        self.marks = deque(sorted((*self.marks, *other.marks)), MARK_LIMIT)
        self.base = max(self.base, other.base)
        for first, last in other.covered:
            self.covered.add(first, last)
        for first, last in other.passed:
            self.passed.add(first, last)
        self.gaps = sorted((*self.gaps, *other.gaps))[-GAP_LIMIT:]

    def advance(self, message: NumberedMessage) -> tuple[Gap | None, list[Gap], list[Finding]]:
        """Take the next message of the hop; return the gap that it reveals, the gaps that it fills, and findings.

        A gap is noted only if the capture shows everything that this connection carried since the packet with the
        highest number so far. Otherwise the missing numbers may have crossed unseen.
        """
        number, previous = message.sequence_number, message.previous_number
        highest = max(self.covered.highest, self.base)
        opened, notes = None, []
        place = message.connection, message.interface
        before = self.marks[-1].packet if self.marks else 0
        is_shown = message.lost is None or (message.lost <= before and self.marks[-1].place == place)
        if number > highest:
            self.marks.append(HighMark(number, message.number, message.time_ns, place))
        if previous > highest and is_shown:
            opened = Gap(highest + 1, previous, message.number, message.time_ns)
            self.gaps.append(opened)
            del self.gaps[:-GAP_LIMIT]
            missing = numbers(highest + 1, previous)
            text = f"{missing} of sequence {shown(message.identifier)} had not been seen on this hop before {number:,}"
            others = (before,) if before else ()
            notes.append(Finding(NOTE, "gap", message.number, text, "[MS-MQQB] 3.1.5.8.6", others))
        self.covered.add(min(previous + 1, number), number)
        filled: list[Gap] = []
        if self.gaps and previous < self.gaps[-1].last:
            filled = self._fill(message, notes)
        return opened, filled, notes

    def _fill(self, message: NumberedMessage, notes: list[Finding]) -> list[Gap]:
        """Take a message that lies in a gap, or bridges gaps; return the gaps that it fills."""
        if message.previous_number < message.sequence_number - 1:
            self.passed.add(message.previous_number + 1, message.sequence_number - 1)
        begin = bisect_right(self.gaps, message.previous_number, key=lambda gap: gap.last)
        end = bisect_right(self.gaps, message.sequence_number, key=lambda gap: gap.first)
        kept, filled = [], []
        for gap in self.gaps[begin:end]:
            if self.covered.after(gap.first - 1) <= gap.last:
                kept.append(gap)
                continue
            is_passed = any(first <= gap.last and gap.first <= last for first, last in self.passed)
            since_ns = message.time_ns - gap.time_ns
            # What was waited with, for what the capture lacks, comes behind packets that crossed later.
            when = f"within {ago(since_ns)}" if since_ns >= 0 else f"{ago(-since_ns)} before it"
            text = (
                f"{numbers(gap.first, gap.last)} of sequence {shown(message.identifier)}, not seen before "
                f"#{gap.packet}, came {'or are passed over ' * is_passed}{when}"
            )
            filled.append(gap)
            notes.append(Finding(NOTE, "gap-filled", message.number, text, "", (gap.packet,)))
        self.gaps[begin:end] = kept
        return filled


def shown(identifier: TxSequenceId) -> str:
    """Return a TxSequenceID as text that distinguishes it from others: time stamp, colon, ordinal."""
    return f"{identifier.time_stamp}:{identifier.ordinal}"


def numbers(first: int, last: int) -> str:
    """Return `number 3`, or `numbers 3-7`."""
    return f"number {first:,}" if first == last else f"numbers {first:,}-{last:,}"
