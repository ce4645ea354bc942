"""What a report says, whoever says it: found by `gather`, drawn by `figures`, written by `page` and `summary`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from captures.pipeline.report.spread import Spread


@dataclass(slots=True)
class Captured:
    """What was read.

    shown: the first files, as CAPTURES has them.
    damaged: how many are no captures, or are not whole.
    first_ns, last_ns: of all frames; None if there is none.
    """

    files: int = 0
    size_bytes: int = 0
    frames: int = 0
    segment_frames: int = 0
    ping_frames: int = 0
    other_frames: int = 0
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
class Hop:
    """From one queue manager to the next.

    messages, copies: how many different ones crossed, and how often.
    first_ns, last_ns: from the first crossing to the last.
    waited: in the queue manager that they left; answered: from a crossing to its receiver's answer.
    """

    from_key: str
    to_key: str
    from_label: str
    to_label: str
    messages: int = 0
    copies: int = 0
    first_ns: int = 0
    last_ns: int = 0
    waited: Spread = field(default_factory=Spread)
    answered: Spread = field(default_factory=Spread)


@dataclass(slots=True)
class Routes:
    """All hops, those with most messages first; and how many messages crossed others, of which there are too many."""

    hops: list[Hop] = field(default_factory=list)
    left_out: int = 0
    labels: dict[str, str] = field(default_factory=dict)


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
    """What became of a message, and how, step by step."""

    verdict: Sentence
    steps: list[Step]


@dataclass(slots=True)
class Messages:
    """What became of messages. Rows are as HISTORIES has them.

    arrived: from where they were first seen to their destination, if there was more than one hop.
    confirmed: until an OrderAck for them came, to their source where the captures show that.
    stuck, failed: the first of them.
    slowest, latest, resent: the worst of each: to their destination, until their OrderAck, and sent again.
    every: whether `embedded` has all there are, or those of the lists alone.
    stories: by the message, of those embedded.
    """

    count: int = 0
    resends: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    deliveries: dict[str, int] = field(default_factory=dict)
    arrived: Spread = field(default_factory=Spread)
    confirmed: Spread = field(default_factory=Spread)
    stuck: list[dict[str, Any]] = field(default_factory=list)
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
    """Findings, faults first; arrivals by their verdict; sessions by their state at the end; and clocks, as CLOCKS."""

    found: list[Found] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    clocks: list[dict[str, Any]] = field(default_factory=list)

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
    traffic: Traffic | None
    routes: Routes
    messages: Messages
    sequences: Sequences
    judgments: Judgments
