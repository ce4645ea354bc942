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
"""The name of the durations from first seeing a message leave its source to seeing its OrderAck."""
SLOW_SHARE: Final = 0.95
"""The quantile that measures slowness; with it, one lost message does not make everything slow."""


@dataclass(slots=True)
class Captured:
    """The captures that were read.

    shown: the first files, as CAPTURES has them.
    reasons: the number of other frames of each kind.
    damaged: the number of files that are not captures, or are incomplete.
    lacking: the texts of the first findings about damaged captures and missing frames.
    first_ns, last_ns: the first and the last time of all frames; None if there are none.
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
    lacking: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Traffic:
    """Packets over time, in steps of equal length.

    first_ns: where the first step begins.
    packets: for each sort, the number of packets in each step.
    size_bytes: the size of all packets in each step.
    kinds: the total number of packets of each kind.
    """

    first_ns: int
    step_ns: int
    packets: dict[str, list[int]]
    size_bytes: list[int]
    kinds: dict[str, int]


@dataclass(slots=True)
class Course:
    """Durations and waiting messages over time, in steps of equal length.

    counts: the number of messages that began in each step.
    half_ns, slow_ns, most_ns: the median, the 95th percentile and the maximum of the durations of these messages; 0
        where there are none.
    waiting: the number of messages waiting at the end of each step.
    usual_ns: the lower quartile of all durations.
    spells: all slow times, the longest first.
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
        """Return an empty course."""
        counts, half_ns, slow_ns, most_ns, waiting = ([0] * length for _ in range(5))
        return Course(first_ns, step_ns, counts, half_ns, slow_ns, most_ns, waiting)

    def begins_ns(self, step: int) -> int:
        """Return the time at which a step begins."""
        return self.first_ns + step * self.step_ns


@dataclass(slots=True)
class Spell:
    """A time during which a hop or queue was slow.

    until_ns: when this time ended; None if it lasted to the end of the captures.
    messages: the number of messages that began in it.
    reset: whether a needed connection was reset in it; None if nobody has looked.
    without: for each node, the longest time without a connection in use.
    """

    from_ns: int
    until_ns: int | None
    messages: int
    reset: bool | None = None
    without: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Hop:
    """A hop from one queue manager to the next.

    messages: the number of different messages that crossed the hop.
    copies: the number of all crossings.
    first_ns, last_ns: the first and the last crossing.
    waited: the times that messages spent in the queue manager that they left.
    answered: the times from a crossing to the receiver's answer.
    course: the course of the waiting times; of the answers if no message was seen before this hop.
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
        """Return a title that says between which two points the course measures."""
        if self.waited.count:
            return f"{self.from_label} → {self.to_label}: waited in {self.from_label}"
        return f"{self.from_label} → {self.to_label}: until {self.to_label} answered"

    @property
    def sought(self) -> dict[str, Iterable[str]]:
        """Return the text by which the page finds the hop."""
        return {"host": (self.from_label, self.to_label)}

    @property
    def slow_ns(self) -> int:
        """Return the 95th percentile of the waits or of the answers on this hop, whichever is longer."""
        return max(self.waited.quantile(SLOW_SHARE), self.answered.quantile(SLOW_SHARE))

    @property
    def most_ns(self) -> int:
        """Return the longest duration."""
        return max(self.waited.most, self.answered.most)


@dataclass(slots=True)
class Queue:
    """The messages to one queue.

    name: the queue's format name.
    called: the name that people use for the queue.
    arrived: times to the queue's queue manager, for messages with more than one hop.
    confirmed: times until the OrderAck.
    ended: the number of messages that arrived.
    failed: the number of messages that were refused or expired. The end of all other messages was not seen.
    oldest_ns: the age of the oldest message whose end was not seen, from its first sight to the end of the captures.
    hosts: the queue managers at the ends of the first routes.
    course: the course of `arrived`, or of `confirmed` if `arrived` is empty; it also counts messages whose end was not
        seen.
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
        """Return the number of messages whose end was not seen."""
        return self.messages - self.ended - self.failed

    @property
    def took(self) -> Spread:
        """Return the durations that the course shows."""
        return self.arrived if self.arrived.count else self.confirmed

    @property
    def measured(self) -> str:
        """Return the two points between which the durations are measured."""
        return TO_DESTINATION if self.arrived.count else TO_ORDER_ACK

    @property
    def shown(self) -> str:
        """Return the queue's name as people know it."""
        return self.called or self.name

    @property
    def title(self) -> str:
        """Return the queue's name, and what its durations measure."""
        return f"{self.shown or 'no queue'}: {self.measured}"

    @property
    def sought(self) -> dict[str, Iterable[str]]:
        """Return the text by which the page finds the queue."""
        return {"queue": (self.name, self.called), "host": self.hosts}

    @property
    def slow_ns(self) -> int:
        """Return how slow the queue is, in nanoseconds.

        This is the 95th percentile of the durations of the queue's messages, or the age of the oldest message that has
        not ended, whichever is longer.
        """
        return max(self.took.quantile(SLOW_SHARE), self.oldest_ns)

    @property
    def most_ns(self) -> int:
        """Return the longest duration so far."""
        return max(self.took.most, self.oldest_ns)


Ranked = TypeVar("Ranked", Hop, Queue)


def slowest(rows: Iterable[Ranked]) -> list[Ranked]:
    """Return the rows, the slowest first."""
    return sorted(rows, key=lambda row: (-row.slow_ns, -row.most_ns, -row.messages))


def worth_a_look(rows: Sequence[Ranked], limit: int) -> list[Ranked]:
    """Return at most `limit` rows: alternately the slowest rows and those with the most messages.

    The slowest row comes first.

    Args:
        rows: the rows, beginning with those that have the most messages.
    """
    turns = [row for both in zip(slowest(rows), rows, strict=True) for row in both]
    return list({id(row): row for row in turns}.values())[:limit]


class Resender(NamedTuple):
    """A queue manager that sent messages again.

    messages: the number of messages that it sent.
    again: the number of these messages that it sent more than once.
    copies: the number of resends.
    """

    label: str
    messages: int
    again: int
    copies: int


@dataclass(slots=True)
class Routes:
    """The hops, beginning with those that have the most messages.

    left_out: the number of messages that crossed hops beyond the limit.
    resenders: queue managers that sent messages again, beginning with those that sent the most copies.
    """

    hops: list[Hop] = field(default_factory=list)
    left_out: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    resenders: list[Resender] = field(default_factory=list)


@dataclass(slots=True)
class Queues:
    """The queues, beginning with those that have the most messages.

    left_out: the number of messages to queues beyond the limit.
    """

    queues: list[Queue] = field(default_factory=list)
    left_out: int = 0


class Place(NamedTuple):
    """The place of a packet: its file, and its last frame, counted from 1 over the file."""

    file: str
    frame: int


class Sentence(NamedTuple):
    """Words with a duration between them, if there is one."""

    before: str
    ns: int | None = None
    after: str = ""


class Step(NamedTuple):
    """One event in the life of a message.

    place: the packet that shows the event; None if no single packet shows it, or none was found.
    """

    time_ns: int
    said: Sentence
    place: Place | None = None


class Story(NamedTuple):
    """The outcome of a message, and its steps.

    secured: the security of the message; None if its packets say nothing about it.
    """

    verdict: Sentence
    steps: list[Step]
    secured: Secured | None = None


@dataclass(slots=True)
class Messages:
    """The outcomes of messages; the lists hold messages as rows of HISTORIES.

    arrived: times from the first sight of a message to its destination, for messages with more than one hop.
    confirmed: times until an OrderAck was first seen, at the source if the captures show that.
    stuck: the first messages that are in flight.
    unknown: the first messages of unknown outcome.
    failed: the first messages that were refused or expired.
    slowest: the messages with the longest times to their destination.
    latest: the messages with the longest times until their OrderAck.
    resent: the messages with the most resends.
    failures: how many messages were refused or expired for each reason, the most frequent reason first.
    every: whether `embedded` has all messages, or only those in the lists.
    stories: the stories of the embedded messages, keyed by message.
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
    """A sequence on one hop.

    row: its row of SEQUENCE_HOPS.
    gaps: its first gaps, as rows of GAPS.
    """

    row: dict[str, Any]
    queue: str
    gaps: list[dict[str, Any]]


@dataclass(slots=True)
class Sequences:
    """Transactional sequences: first those with open gaps, then others with gaps, then those with the most messages."""

    count: int = 0
    gaps: int = 0
    gaps_open: int = 0
    shown: list[SequenceHop] = field(default_factory=list)


@dataclass(slots=True)
class Example:
    """One finding, and the packet that it is about.

    number, place, time_ns, message: describe that packet. They are None if the finding is not about a packet; `message`
        is also None if the packet does not carry a message.
    others: the places of the other packets that support the finding, keyed by packet number; only those that were
        requested.
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

    examples: the first findings. There may be more of them than are shown with the code, because they are also listed
        with their messages.
    """

    severity: str
    code: str
    meaning: str
    section: str
    count: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass(slots=True)
class Judgments:
    """Findings, faults first; the number of arrivals by verdict, and of sessions by final state."""

    found: list[Found] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> int:
        """Return the number of breaches of the protocol."""
        return sum(each.count for each in self.found if each.severity == "fault")


@dataclass(slots=True)
class Facts:
    """All facts of a report.

    folder: the folder of the tables, as the user named it.
    traffic: the packets over time; None if there are no packets.
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
