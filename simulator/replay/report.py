"""Reports on a replay, for people and for programs, and says whether the peer answered as in the capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from mqproto.base.ranges import Ranges
from mqproto.base.words import counted
from mqproto.captures.answers import Answers
from mqproto.captures.script import Script
from mqproto.simulator.replay.rewrite import Changes
from mqproto.simulator.replay.stage import Outcome
from mqproto.wire import Guid, guid_text

RANGES_SHOWN: Final = 5
SHOWN: Final = 20
"""The number of kinds of differences, and of omissions, that are shown to people; programs get all of them."""


class Difference(NamedTuple):
    """A difference between the peer's answers and those in the capture.

    message: the number that the differing message has; None if the difference concerns the whole replay.
    frame: the message's place in the capture; None if the difference concerns the whole replay.
    """

    message: int | None
    frame: int | None
    text: str

    def __str__(self) -> str:
        return (
            self.text if self.message is None else f"message {self.message} (frame {self.frame}): {self.text}"
        )


@dataclass(slots=True)
class Report:
    """The report of a finished replay.

    own, manager: the queue managers that we and the peer claimed to be.
    received_count: the number of messages that the peer sent, not counting acknowledgments.
    """

    part: str
    peer: str
    own: Guid | None
    manager: Guid | None
    duration_s: float
    message_count: int
    sent_count: int
    resend_count: int
    session_count: int
    answers: dict[str, tuple[int, int]]
    """For each kind of answer, how many there were in the capture, and how many in this replay."""
    differences: list[Difference] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    as_captured: bool = False
    received_count: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the report in a form for programs. Messages are numbered from 1, and unknown values are null."""
        return {
            "part": self.part,
            "peer": self.peer,
            "queue_manager": _text(self.own),
            "peer_queue_manager": _text(self.manager),
            "duration_s": round(self.duration_s, 3),
            "as_captured": self.as_captured,
            "messages": self.message_count,
            "sent": self.sent_count,
            "resends": self.resend_count,
            "sessions": self.session_count,
            "received": self.received_count,
            "answers": {kind: {"captured": was, "live": now} for kind, (was, now) in self.answers.items()},
            "rewritten": {
                name: {"messages": change.count, "captured": change.old, "sent": change.new}
                for name, change in self.changes.items()
            },
            "left_out": self.left_out,
            "remarks": self.remarks,
            "differences": [each._asdict() for each in self.differences],
        }

    def as_lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield f"played {self.part}"
        sessions = counted(self.session_count, "session")
        yield (
            f"to {self.peer}, queue manager {_text(self.manager) or 'unknown'}, as {_text(self.own) or 'unknown'}: "
            f"{self.sent_count:,} of {self.message_count:,} messages, {sessions}, {self.duration_s:.1f} s"
        )
        if self.received_count:
            yield f"the peer sent {self.received_count:,} messages of its own"
        yield from _first(self.left_out, "left out: ")
        yield from _first(self.remarks, "")
        yield ""
        if self.changes:
            width = max(map(len, self.changes))
            yield f"{'rewritten':<{width}}  messages  for example"
            for name, change in self.changes.items():
                yield f"{name:<{width}}  {change.count:>8,}  {change.old} -> {change.new}"
        else:
            yield "rewritten: nothing"
        yield ""
        yield f"{'answers':<30}  captured  here"
        for kind, (was, now) in self.answers.items():
            yield f"{kind:<30}  {was:>8,}  {now:>4,}"
        yield ""
        yield from _first([*_alike(self.differences)], "differs: ")
        if not self.differences:
            yield "the peer answered as in the capture"


def _alike(differences: Iterable[Difference]) -> Iterator[str]:
    """Yield a line for each kind of difference, with all its messages."""
    groups: dict[str, list[Difference]] = {}
    for each in differences:
        groups.setdefault(each.text if each.message is not None else str(each), []).append(each)
    for text, group in groups.items():
        messages, frames = Ranges(), [each.frame for each in group if each.frame is not None]
        if len(group) == 1 or not frames:
            yield str(group[0])
            continue
        for each in group:
            if each.message is not None:
                messages.add(each.message, each.message)
        named = [_range(first, last) for first, last in islice(messages, RANGES_SHOWN)]
        if (more := messages.range_count - RANGES_SHOWN) > 0:
            named.append(f"and {counted(more, 'more range')}")
        low, high = min(frames), max(frames)
        where = f"frame{'s' if high > low else ''} {_range(low, high)}"
        yield f"messages {', '.join(named)} ({where}): {text}"


def _range(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _first(lines: list[str], before: str) -> Iterator[str]:
    yield from (f"{before}{line}" for line in lines[:SHOWN])
    if len(lines) > SHOWN:
        yield f"{before}{len(lines) - SHOWN:,} more, which --json has"


def _text(guid: Guid | None) -> str | None:
    return None if guid is None else guid_text(guid)


def report_of(script: Script, live: Answers, outcome: Outcome, duration_s: float) -> Report:
    """Return the report of a finished performance, without remarks and changes."""
    return Report(
        part=str(script.part),
        peer=outcome.peer,
        own=outcome.own,
        manager=outcome.manager,
        duration_s=duration_s,
        message_count=len(script.messages),
        sent_count=live.sent_count,
        resend_count=script.resend_count,
        session_count=outcome.session_count,
        answers=counts_of(script.answers, live),
        differences=compare(script, live, outcome),
        left_out=script.left_out,
    )


def counts_of(captured: Answers, live: Answers) -> dict[str, tuple[int, int]]:
    """For each kind of answer, return how many there were in the capture and how many in this replay.

    Repetitions of an answer to the same message do not count.
    """
    both = captured.fates, live.fates
    return {
        "session acknowledgments": _pair(sum(fate.acknowledged for fate in fates) for fates in both),
        "OrderAcks": _pair(sum(fate.ordered for fate in fates) for fates in both),
        "FinalAcks": _pair(sum(fate.final is not None for fate in fates) for fates in both),
        "administration acknowledgments": _pair(
            sum(len(fate.administration) for fate in fates) for fates in both
        ),
    }


def _pair(counts: Iterator[int]) -> tuple[int, int]:
    captured, live = counts
    return captured, live


def compare(script: Script, live: Answers, outcome: Outcome) -> list[Difference]:
    """Return every difference that matters: an early end, a packet that a peer may not send, and each message whose
    outcome differs.

    The times of answers and the batching of acknowledgments do not matter.
    """
    found = list(_differences(script, live, outcome))
    if outcome.ending and not found:
        found.append(Difference(None, None, outcome.ending))
    return found


def _differences(script: Script, live: Answers, outcome: Outcome) -> Iterator[Difference]:
    unsent = [number for number in range(len(script.messages)) if not live.was_sent(number)]
    ending = outcome.ending + (f"  [MS-MQQB] {outcome.section}" if outcome.section else "")
    if unsent:
        others = f" and {len(unsent) - 1:,} more" if len(unsent) > 1 else ""
        yield _about(script, unsent[0], f"this{others} could not be sent: {ending}")
    elif outcome.is_broken:
        yield Difference(None, None, ending)
    for fault in live.faults:
        if fault.message is None:
            yield Difference(None, None, fault.text)
        else:
            yield _about(script, fault.message, fault.text)
    if script.answers.order_ack_count and not live.order_ack_count:
        count = script.answers.order_ack_count
        yield Difference(None, None, f"no OrderAck at all, the capture has {count:,}")
    for number in range(len(script.messages)):
        if live.was_sent(number):
            for text in live.fates[number].differences(script.answers.fates[number]):
                yield _about(script, number, text)


def _about(script: Script, number: int, text: str) -> Difference:
    return Difference(number + 1, script.messages[number].frame, text)
