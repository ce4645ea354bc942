"""`mqproto history`, which shows what the logs say about a message, and where it is now.

Nodes write waypoints on request (mqproto/turn/waypoints.py); gateways and triggers always write theirs. Each line is a
JSON object with the time, its writer and the event. It names the message by its identifier, or by its producer's key,
which a gateway knows. Logs are read from the first line to the last. They may be of any size, because memory use is
bounded. They may be rotated, cut off or
damaged: invalid lines are counted.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

import msgspec

from mqproto.base.words import counted
from mqproto.edge.custody import is_called
from mqproto.simulator.client.explain import is_kept
from mqproto.simulator.node.clients.deeds import EVENT
from mqproto.simulator.node.received import MessageId
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as
from mqproto.turn.effects import UNKNOWN_COUNT
from mqproto.turn.waypoints import Waypoint, missing_before

STEPS_LIMIT: Final = 10_000
"""The maximum number of steps in one story.

A message that is resent for days has more; those beyond it are only counted.
"""
MESSAGES_LIMIT: Final = 1_000
"""The maximum number of messages that are found for one producer's key."""
ORDERS: Final = frozenset({"purge", "delete", "return", "pause", "resume"})
"""The actions that operators take on all messages of a queue.

The story of a message names the operator.
"""
LINE_LIMIT_BYTES: Final = 64 * 2**10
"""The maximum length of a line, in bytes. A longer line is not from mqproto."""
COMMON: Final = frozenset({"timestamp", "node", "event", "level", "message"})
"""The fields that every line has, in addition to its facts."""


class Step(NamedTuple):
    """One line of a log.

    time: UTC, in ISO 8601 to the microsecond, so that the texts sort by time.
    who: the name of a node, a gateway or a trigger.
    message: the identifier; empty if the line names the message in another way.
    """

    time: str
    who: str
    event: str
    message: str
    facts: dict[str, Any]

    @property
    def copy_in(self) -> str:
        """The journal or dead-letter queue whose copy this step is about; empty for the message itself."""
        queue = str(self.facts.get("queue", ""))
        return queue if is_kept(queue) else ""


@dataclass
class MessageStory:
    """The steps of messages, taken from logs.

    nodes: the names of the nodes whose waypoints are checked against the table of waypoints that may follow each other.
    messages: the identifiers of the messages in the story: one message, or all messages with the producer's key.
    left_out: the number of steps that were left out because of the limit.
    spoilt: the number of lines that were not valid lines of a log.
    has_waypoints: whether any node has written waypoints.
    """

    nodes: frozenset[str] = frozenset()
    messages: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    left_out: int = 0
    spoilt: int = 0
    has_waypoints: bool = False

    def missing(self) -> set[int]:
        """Return the positions of the steps before which the log evidently lacks a line."""
        paths: dict[tuple[str, str, str], list[int]] = {}
        for place, step in enumerate(self.steps):
            is_nodes = step.who in self.nodes and "key" not in step.facts  # Else its gateway says it.
            if step.event in WAYPOINTS and step.message and is_nodes:
                paths.setdefault((step.message, step.who, step.copy_in), []).append(place)
        found = set()
        for places in paths.values():
            events = [Waypoint(self.steps[place].event) for place in places]
            found |= {places[index] for index in missing_before(events)}
        return found


WAYPOINTS: Final = frozenset(Waypoint)
EVERYTHING: Final = msgspec.json.Decoder(dict[str, Any])


def logs_in(directory: Path) -> list[Path]:
    """Return the logs in a folder, including rotated ones: `sender.log`, `sender.log.1`, `sender.log.2.gz`."""
    return sorted(path for path in directory.glob("*.log*") if path.is_file())


def story_of(
    subject: str, logs: Iterable[Path], topology: Topology, names: Collection[str] = ()
) -> MessageStory:
    """Return everything that these logs say about one message, or about all messages with a producer's key.

    The steps are in order of time.

    Args:
        names: the other identifiers of the message, one for each time it was sent again.

    Raises:
        OSError: a log cannot be read.
    """
    paths = list(logs)
    identifier = MessageId.parse(subject)
    story = MessageStory(frozenset(topology.nodes), set(names))
    if identifier is not None:
        story.messages.add(str(identifier))
    else:
        story.messages |= messages_with(subject, paths).keys()
    steps = _Steps(subject, story.messages, topology)
    for path in paths:
        for line in _lines(path, story):
            story.has_waypoints = story.has_waypoints or _has_waypoint(line)
            if any(name in line for name in steps.sought) and not steps.take(read_step(line)):
                story.spoilt += 1
    story.steps, story.left_out = steps.in_order(), steps.left_out
    return story


def steps_in(path: Path, words: Collection[bytes]) -> Iterator[Step]:
    """Yield a step for each line of a log that contains one of these words."""
    for line in _lines(path, MessageStory()):
        if any(word in line for word in words) and (step := read_step(line)) is not None:
            yield step


def messages_with(key: str, paths: Iterable[Path]) -> dict[str, str]:
    """Return the identifiers of the messages with this producer's key, each with its full key."""
    found: dict[str, str] = {}
    for path in paths:
        for step in steps_in(path, (_quoted(key)[1:],)):
            whole = str(step.facts.get("key", ""))
            if step.message and is_called(key, whole, ()):
                found[step.message] = whole
                if len(found) == MESSAGES_LIMIT:
                    return found
    return found


class _Steps:
    """Chooses the lines that belong to a story.

    After a node has restarted, its lines about OrderAcks for earlier messages have only sequence numbers. Other lines
    of the node show which of these numbers belong to the story.
    """

    def __init__(self, subject: str, messages: Collection[str], topology: Topology) -> None:
        self._subject = subject
        self._messages = messages
        self._sources = {name: _source(name, topology) for name in messages}
        self._numbers: set[tuple[str, str, int]] = set()
        self._steps: list[Step] = []
        self._ranges: list[Step] = []
        self._orders: list[Step] = []
        self.left_out = 0
        self.sought = [_quoted(name) for name in (subject, *messages)] + [b'"last_number"', _OPERATED]

    def take(self, step: Step | None) -> bool:
        """Take a line that may belong to the story; return whether it is a valid line of a log."""
        if step is None:
            return False
        facts = step.facts
        if step.event == EVENT:
            if facts.get("operation") in ORDERS:
                self._keep(self._orders, step)
        elif "last_number" in facts and not step.message:
            self._keep(self._ranges, step)
        elif step.message in self._messages or facts.get("key") == self._subject:
            self._keep(self._steps, step)
            if step.who == self._sources.get(step.message) and isinstance(facts.get("number"), int):
                self._numbers.add((step.who, str(facts.get("sequence")), facts["number"]))
        return True

    def _keep(self, steps: list[Step], step: Step) -> None:
        if len(steps) < STEPS_LIMIT:
            steps.append(step)
        else:
            self.left_out += 1

    def in_order(self) -> list[Step]:
        """Return the steps by time; those at the same moment stay in the order in which they were found."""
        steps = sorted([*self._steps, *filter(self._is_ours, self._ranges)], key=lambda step: step.time)
        places = {(step.who, step.facts.get("queue")) for step in steps}
        orders = [
            order
            for order in self._orders
            if (order.who, order.facts.get("queue")) in places
            and steps[0].time <= order.time <= steps[-1].time
        ]
        return sorted([*orders, *steps], key=lambda step: step.time)

    def _is_ours(self, step: Step) -> bool:
        first, last = step.facts.get("number"), step.facts["last_number"]
        return isinstance(first, int) and any(
            (who, sequence) == (step.who, step.facts.get("sequence")) and first <= number <= last
            for who, sequence, number in self._numbers
        )


def _source(message: str, topology: Topology) -> str:
    """Return the name of the node where a message was handed in; empty if the topology has no such node."""
    identifier = MessageId.parse(message)
    node = topology.node_by_guid(identifier.manager) if identifier else None
    return node.name if node is not None else ""


_OPERATED: Final = json.dumps({"event": EVENT}).strip("{}").encode()


def _quoted(text: str) -> bytes:
    """Return a text as it is written in a line of JSON."""
    return json.dumps(text).encode()


def _has_waypoint(line: bytes) -> bool:
    """Return whether a line is of a kind that nodes write for every message, and nobody else writes."""
    return b'"event": "sent"' in line or b'"event": "queued"' in line


def _lines(path: Path, story: MessageStory) -> Iterator[bytes]:
    """Yield the valid lines of a log; count the invalid ones in the story."""
    with _opened(path) as file:
        whole = True
        try:
            while line := file.readline(LINE_LIMIT_BYTES):
                begins, whole = whole, line.endswith(b"\n")
                if begins and line.startswith(b"{") and line.endswith(b"}\n"):
                    yield line
                elif begins:
                    story.spoilt += 1
        except (EOFError, gzip.BadGzipFile):
            story.spoilt += 1


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def read_step(line: bytes) -> Step | None:
    """Return the step that a line describes; None if it is not a line of a log."""
    try:
        said = EVERYTHING.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    time, who, event = said.get("timestamp"), said.get("node"), said.get("event")
    message = said.get("message", "")
    if not all(isinstance(one, str) for one in (time, who, event, message)):
        return None
    facts = {name: value for name, value in said.items() if name not in COMMON}
    return Step(str(time), str(who), str(event), str(message), facts)


# For people


def told(story: MessageStory, topology: Topology) -> Iterator[str]:
    """Yield a line for each step, and remarks about the logs."""
    missing = story.missing()
    width = max((len(step.who) for step in story.steps), default=0)
    for place, step in enumerate(story.steps):
        if place in missing:
            yield f"{'':26}  {step.who:{width}}  (lines of the log are missing here)"
        yield f"{clock(step.time)}  {step.who:{width}}  {said(story, step, topology)}"
    if story.left_out:
        yield f"{story.left_out:,} steps more are not shown"
    if story.spoilt:
        yield f"{story.spoilt:,} lines in the logs are none of a log, or cut off; they were skipped"


def clock(time: str) -> str:
    """Return a time in a readable form, to the microsecond.

    It is in UTC, and by the clock of the machine that wrote the log.
    """
    return time.replace("T", " ").rstrip("Z")


WORDS: Final[Mapping[str, str]] = {
    "number": "number {}",
    "last_number": "up to number {}",
    "delivery_count": "delivery {}",
    "attempt": "attempt {}",
    "class": "{}",
    "reason": "{}",
    "text": "{}",
    "again": "it is {} now",
    "next_try_s": "next try in {} s",
    "to": "to {}",
    "key": "producer's id {}",
}
"""The words for facts, in the order in which they are shown; facts without words are only for programs."""


def said(story: MessageStory, step: Step, topology: Topology) -> str:
    """Return the step in words. If the story is about several messages, the message's identifier is included."""
    words = ", ".join(_details(step, topology))
    name = f"{step.message}: " * (len(story.messages) > 1 and bool(step.message))
    return f"{name}{step.event}" + f": {words}" * bool(words)


def _details(step: Step, topology: Topology) -> Iterator[str]:
    facts = step.facts
    if "queue" in facts:
        yield known_as(topology, str(facts["queue"]))
    if "peer" in facts:
        word = "from" if step.event == Waypoint.ARRIVED else "to"
        word = "by" if step.event == Waypoint.SESSION_ACKNOWLEDGED else word
        yield f"{word} {known_as(topology, str(facts.get('manager', facts['peer'])))}"
    if step.event == EVENT:
        count = facts.get("messages")
        yield f"{facts['operation']}" + (f" of {counted(count, 'message')}" if isinstance(count, int) else "")
        yield f"by {facts.get('user') or facts.get('uid')} (process {facts.get('pid', 'not known')})"
    for name, words in WORDS.items():
        if name in facts:
            unknown = name == "delivery_count" and facts[name] == UNKNOWN_COUNT
            yield "delivery count not known" if unknown else words.format(facts[name])


def as_json(story: MessageStory) -> dict[str, Any]:
    """Return the whole story as values for programs."""
    missing = story.missing()
    return {
        "messages": sorted(story.messages),
        "steps": [
            {
                "time": step.time,
                "who": step.who,
                "event": step.event,
                "message": step.message,
                **step.facts,
                "lines_missing": place in missing,
            }
            for place, step in enumerate(story.steps)
        ],
        "left_out": story.left_out,
        "spoilt": story.spoilt,
        "has_waypoints": story.has_waypoints,
    }
