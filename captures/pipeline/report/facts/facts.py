"""The facts of a report: found by `gather`, drawn by `figures`, written by `page` and `summary`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from mqproto.captures.pipeline.report.facts.security import Secured, Security
from mqproto.captures.pipeline.report.facts.spread import Spread
from mqproto.captures.points import Point

TO_DESTINATION: Final = "source to destination"
TO_ORDER_ACK: Final = "source to OrderAck"
"""What took so long, of a message: from the first frame in which it leaves its source."""
SLOW_SHARE: Final = 0.95
"""By what so many of all took at most is said how slow something is: one that was lost does not make all slow."""


@dataclass(slots=True)
class Captured:
    """The captures that were read.

    shown: the first files, as CAPTURES has them.
    reasons: what other frames are.
    damaged: how many are not captures, or are not whole.
    first_ns, last_ns: of all frames; None if there is none.
    """

    files: int = 0
    size_bytes: int = 0
    frames: int = 0
    segment_frames: int = 0
    ping_frames: int = 0
    other_frames: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    cut_frames: int = 0
    damaged: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    shown: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Traffic:
    """Packets over time, in steps of equal length.

    first_ns: where the first step begins.
    packets: of each sort, how many in each step. size_bytes: of all packets.
    kinds: of each kind, how many in all.
    """

    first_ns: int
    step_ns: int
    packets: dict[str, list[int]]
    size_bytes: list[int]
    kinds: dict[str, int]


@dataclass(slots=True)
class Course:
    """Durations and waiting messages over time, in steps of equal length.

    counts: how many began in each step. half_ns, slow_ns, most_ns: what half of these took at most, 95 % of them, and
        all; 0 where there are none.
    waiting: how many were waiting at the end of each step.
    usual_ns: what a quarter of all took at most.
    spells: all times in which it was slow, the longest first.
    """

    first_ns: int
    step_ns: int
    counts: list[int] = field(default_factory=list)
    half_ns: list[int] = field(default_factory=list)
    slow_ns: list[int] = field(default_factory=list)
    most_ns: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    usual_ns: int = 0
    spells: list[Spell] = field(default_factory=list)

    @staticmethod
    def of_steps(first_ns: int, step_ns: int, length: int) -> Course:
        """Return an empty one."""
        counts, half_ns, slow_ns, most_ns, waiting = ([0] * length for _ in range(5))
        return Course(first_ns, step_ns, counts, half_ns, slow_ns, most_ns, waiting)

    def begins_ns(self, step: int) -> int:
        """When a step begins."""
        return self.first_ns + step * self.step_ns


@dataclass(slots=True)
class Spell:
    """A time in which something was slow.

    until_ns: None if it was to the end. messages: how many began in it.
    reset: whether a connection that it needs was reset then; None if nobody has looked.
    without: who had no connection in use, and for how long at most.
    """

    from_ns: int
    until_ns: int | None
    messages: int
    reset: bool | None = None
    without: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Hop:
    """From one queue manager to the next.

    messages, copies: how many different ones crossed, and how often.
    first_ns, last_ns: from the first crossing to the last.
    waited: in the queue manager that they left; answered: from a crossing to its receiver's answer.
    course: of what they waited; of the answers, where no message was seen before this hop.
    """

    from_key: str
    to_key: str
    from_label: str = ""
    to_label: str = ""
    messages: int = 0
    copies: int = 0
    first_ns: int = 0
    last_ns: int = 0
    waited: Spread = field(default_factory=Spread)
    answered: Spread = field(default_factory=Spread)
    course: Course | None = None

    @property
    def title(self) -> str:
        """From where to where the durations of its course are."""
        if self.waited.count:
            return f"{self.from_label} → {self.to_label}: waited in {self.from_label}"
        return f"{self.from_label} → {self.to_label}: until {self.to_label} answered"

    @property
    def sought(self) -> dict[str, Iterable[str]]:
        """Return the text by which the page finds it."""
        return {"host": (self.from_label, self.to_label)}

    @property
    def slow_ns(self) -> int:
        """Return the 95th percentile of its messages' waits or answers."""
        return max(self.waited.quantile(SLOW_SHARE), self.answered.quantile(SLOW_SHARE))

    @property
    def most_ns(self) -> int:
        """Return the longest duration."""
        return max(self.waited.most, self.answered.most)


@dataclass(slots=True)
class Queue:
    """The messages to one queue.

    name: its format name. called: what people call it.
    arrived: to its queue manager, if there was more than one hop; confirmed: until their OrderAck.
    ended, failed: how many came there, and how many were refused or expired; the others were not seen to end.
    oldest_ns: how long before the end of the captures the first of those others was first seen.
    hosts: the queue managers at the ends of the first routes.
    course: of `arrived`, or of `confirmed` where that has nothing; and how many had not been seen to end.
    """

    name: str
    called: str = ""
    messages: int = 0
    resends: int = 0
    arrived: Spread = field(default_factory=Spread)
    confirmed: Spread = field(default_factory=Spread)
    ended: int = 0
    failed: int = 0
    oldest_ns: int = 0
    hosts: dict[str, None] = field(default_factory=dict)
    course: Course | None = None

    @property
    def unended(self) -> int:
        """How many were not seen to end."""
        return self.messages - self.ended - self.failed

    @property
    def took(self) -> Spread:
        """Return the subject of its course."""
        return self.arrived if self.arrived.count else self.confirmed

    @property
    def measured(self) -> str:
        """From where to where its durations are."""
        return TO_DESTINATION if self.arrived.count else TO_ORDER_ACK

    @property
    def shown(self) -> str:
        """Its name for people."""
        return self.called or self.name

    @property
    def title(self) -> str:
        """The same, with what its durations are."""
        return f"{self.shown or 'no queue'}: {self.measured}"

    @property
    def sought(self) -> dict[str, Iterable[str]]:
        """Return the text by which the page finds it."""
        return {"queue": (self.name, self.called), "host": self.hosts}

    @property
    def slow_ns(self) -> int:
        """What 95 % of its messages took at most, or how long ago one was seen that has not ended."""
        return max(self.took.quantile(SLOW_SHARE), self.oldest_ns)

    @property
    def most_ns(self) -> int:
        """Return the longest duration so far."""
        return max(self.took.most, self.oldest_ns)


Ranked = TypeVar("Ranked", Hop, Queue)


def slowest(rows: Iterable[Ranked]) -> list[Ranked]:
    """The slowest first."""
    return sorted(rows, key=lambda row: (-row.slow_ns, -row.most_ns, -row.messages))


def worth_a_look(rows: Sequence[Ranked], limit: int) -> list[Ranked]:
    """So many of those that are slowest or have most messages, by turns; the slowest of all comes first.

    Args:
        rows: those with most messages first.
    """
    turns = [row for both in zip(slowest(rows), rows, strict=True) for row in both]
    return list({id(row): row for row in turns}.values())[:limit]


class Resender(NamedTuple):
    """A queue manager that sent messages again: how many messages it sent, how many of them again, and how often."""

    label: str
    messages: int
    again: int
    copies: int


@dataclass(slots=True)
class Routes:
    """Hops, those with most messages first; and how many messages crossed others, of which there are too many.

    resenders: who sent most copies again comes first.
    """

    hops: list[Hop] = field(default_factory=list)
    left_out: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    resenders: list[Resender] = field(default_factory=list)


@dataclass(slots=True)
class Queues:
    """Queues, those with most messages first; and how many messages went to others, of which there are too many."""

    queues: list[Queue] = field(default_factory=list)
    left_out: int = 0


class Place(NamedTuple):
    """Where a packet is: the frame that ended it, counted from 1 over its file."""

    file: str
    frame: int


class Sentence(NamedTuple):
    """Words, with a duration between them if there is one."""

    before: str
    ns: int | None = None
    after: str = ""


class Step(NamedTuple):
    """One thing that happened to a message. place: None where no one packet shows it, or none was found."""

    time_ns: int
    said: Sentence
    place: Place | None = None


class Story(NamedTuple):
    """The outcome of a message, and its steps. secured: None if its packets say nothing about security."""

    verdict: Sentence
    steps: list[Step]
    secured: Secured | None = None


@dataclass(slots=True)
class Messages:
    """The outcomes of messages. Rows are those of HISTORIES.

    arrived: from where they were first seen to their destination, if there was more than one hop.
    confirmed: until an OrderAck for them came, to their source where the captures show that.
    stuck, unknown, failed: the first of those in flight, of those of which the captures cannot tell, and of those that
        were refused or expired.
    slowest, latest, resent: the worst of each: to their destination, until their OrderAck, and sent again.
    failures: of those that were refused or expired, how many for what reason, most first.
    every: whether `embedded` has all there are, or those of the lists alone.
    stories: by the message, of those embedded.
    """

    count: int = 0
    resends: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    arrived: Spread = field(default_factory=Spread)
    confirmed: Spread = field(default_factory=Spread)
    stuck: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    slowest: list[dict[str, Any]] = field(default_factory=list)
    latest: list[dict[str, Any]] = field(default_factory=list)
    resent: list[dict[str, Any]] = field(default_factory=list)
    every: bool = True
    embedded: list[dict[str, Any]] = field(default_factory=list)
    stories: dict[str, Story] = field(default_factory=dict)


@dataclass(slots=True)
class SequenceHop:
    """A sequence on one hop, as SEQUENCE_HOPS has it, and its first gaps, as GAPS has them."""

    row: dict[str, Any]
    queue: str
    gaps: list[dict[str, Any]]


@dataclass(slots=True)
class Sequences:
    """Transactional sequences; those shown have gaps that are open, else gaps, else most messages."""

    count: int = 0
    gaps: int = 0
    gaps_open: int = 0
    shown: list[SequenceHop] = field(default_factory=list)


@dataclass(slots=True)
class Example:
    """One finding, and the packet that it is about.

    number, place, time_ns, message: None where it is about none, or about what carries no message.
    others: the places of other packets that it rests on, as far as they are looked for; by their numbers.
    """

    text: str
    series: str
    row_id: int | None
    number: int | None
    place: Place | None
    time_ns: int | None = None
    message: str | None = None
    others: dict[int, Place | None] = field(default_factory=dict)


@dataclass(slots=True)
class Found:
    """All findings of one code.

    examples: the first of them, more than are shown: for the messages that they are about.
    """

    severity: str
    code: str
    meaning: str
    section: str
    count: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass(slots=True)
class Judgments:
    """Findings, faults first; arrivals by their verdict; sessions by their state at the end."""

    found: list[Found] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> int:
        """How many breaches of the protocol."""
        return sum(each.count for each in self.found if each.severity == "fault")


@dataclass(slots=True)
class Facts:
    """Everything. traffic: None if there are no packets.

    folder: of the tables, as it was typed.
    """

    folder: str
    captured: Captured
    points: list[Point]
    traffic: Traffic | None
    routes: Routes
    queues: Queues
    messages: Messages
    sequences: Sequences
    judgments: Judgments
    security: Security
