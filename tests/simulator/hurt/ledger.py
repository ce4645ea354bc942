"""The producers' and consumers' own records: the messages that were accepted, and those that were received.

They write each event as it happens, as one line of a file that is never damaged, and that outlives a process that is
killed. A verdict compares only these lines, and uses nothing from a store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

SIZES: Final = (0, 1, 30, 100, 100, 100, 500, 1_000, 1_000, 3_000, 10_000, 40_000, 100_000)

Event = Literal["sent", "sending", "taken", "taking", "said", "record"]


class Flow(NamedTuple):
    """One kind of message.

    end: the place where each of its messages has to end, once.
    copies: the places where there has to be a copy, once the message has ended.
    """

    end: str
    transactional: bool
    copies: tuple[str, ...] = ()


FLOWS: Final = {
    "order": Flow("orders", transactional=True),
    "receipt": Flow("orders", transactional=True, copies=("journal",)),
    "note": Flow("notes", transactional=False, copies=("notes;journal",)),
    "lostorder": Flow("deadxact", transactional=True),
    "lostnote": Flow("deadletter", transactional=False),
}
"""The flows, keyed by the first word of a message's label.

The messages of the last two flows end as dead letters. Those of one flow are sent to a missing queue, those of the
other to a transactional queue without a transaction.
"""


def flow_of(label: str) -> Flow:
    """Return the flow that a label belongs to."""
    return FLOWS[label.partition("-")[0]]


def body_of(seed: int, label: str) -> bytes:
    """Return a message's body, which depends on its label: all bodies differ, except the empty ones."""
    dice = Random(f"{seed}/{label}")
    size = dice.choice(SIZES)
    return label.encode() if size == 30 else dice.randbytes(size)


def digest(body: bytes) -> str:
    """Return the digest that stands for a body in the ledger."""
    return sha256(body).hexdigest()[:24]


class Line(NamedTuple):
    """One event.

    phase: 0 before the damage; 1 after it, while earlier messages finish; 2 for messages that are accepted after that.
    place: the queue for `taken`; the node for all other events.
    label: the label of the message; for `record`, of a message in a commit.
    what: the body's digest, the printed text, or a `Trace` of the record.
    """

    event: Event
    phase: int
    place: str
    label: str
    what: str


class Trace(NamedTuple):
    """A message in a commit, as the harness saw it written to the store.

    first, last: the range that contains the commit's number; both are that number if it is known.
    queue, queue_name: the number and the name of the queue where the message is.
    """

    first: int
    last: int
    queue: int
    queue_name: str
    message_id: int


class Ledger:
    """The lines of one trial, open for writing."""

    def __init__(self, path: Path) -> None:
        self.phase = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, event: Event, place: str, label: str = "", what: str = "") -> None:
        """Write an event, with one system call, so that a killed process leaves whole lines."""
        os.write(self._file, json.dumps([event, self.phase, place, label, what]).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a ledger."""
    for line in path.read_text().splitlines():
        yield Line(*json.loads(line))


@dataclass
class Account:
    """A summary of the lines of a ledger.

    Attributes:
        accepted: the phase of each message that a producer was told is accepted, keyed by label, in order.
        uncertain: the messages that were being handed in when the node died: each may come once or not at all.
        received: the places, digests and phases of what was received, keyed by label, in the order in which consumers
            received it.
        unanswered: the labels and places of messages that a consumer was committing when the node died: they may come
            again.
        order: the places and labels of received messages, in the order in which they were received.
        said: the output of nodes and commands, with its phase and its node.
        traces: the messages in each node's commits before the damage, keyed by node.
    """

    accepted: dict[str, int] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    received: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    unanswered: set[tuple[str, str]] = field(default_factory=set)
    said: list[tuple[int, str, str]] = field(default_factory=list)
    traces: dict[str, list[tuple[str, Trace]]] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Account:
        """Summarize the lines."""
        account = cls()
        for line in lines:
            if line.event == "sending":
                account.uncertain.add(line.label)
            elif line.event == "sent":
                account.uncertain.discard(line.label)
                account.accepted[line.label] = line.phase
            elif line.event == "taking":
                account.unanswered.add((line.label, line.place))
            elif line.event == "taken":
                account.unanswered.discard((line.label, line.place))
                account.received.setdefault(line.label, []).append((line.place, line.what, line.phase))
                account.order.append((line.place, line.label))
            elif line.event == "record":
                if line.phase == 0:
                    trace = Trace(*json.loads(line.what))
                    account.traces.setdefault(line.place, []).append((line.label, trace))
            elif line.event == "said":
                account.said.append((line.phase, line.place, line.what))
        return account
