"""A case: the steps of a conversation with a peer, and the form of these steps in a file.

A case contains only the bytes to send, so it can be sent again exactly as it was.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mqproto.base.errors import UsageError
from mqproto.wire import Guid, guid_from_text, guid_text

FUZZ: Final = "peer"
"""The name of the fuzzer that repeats a finding with a case."""
_time = struct.Struct("<I")


class Act(StrEnum):
    """The action of one step. The first step that names a connection opens it."""

    SEND = "send"
    AWAIT = "await"
    """Wait until the peer has sent what it owes on this connection, or has closed it."""
    FINISH = "finish"
    """Close our half of the connection, so that nothing more will come from us."""
    CLOSE = "close"
    RESET = "reset"
    DEAF = "deaf"
    """Read nothing more on this connection."""
    WATCH = "watch"
    """Check that the peer serves others while all connections stay as they are."""
    DATAGRAM = "datagram"
    """Send a datagram to the ping port."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a case.

    piece_bytes: the number of bytes of `data` that are sent at a time, in one segment; 0 for all at once.
    note: a description for people.
    was: `data` before the mutation; empty if it was not mutated.
    """

    act: Act
    connection: int = 0
    data: bytes = b""
    piece_bytes: int = 0
    note: str = ""
    was: bytes = b""


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation with a peer in which some data, or the order, is wrong.

    kind: the class of what is wrong; findings are grouped by it.
    name: what exactly is wrong.
    identity: the queue manager that we claim to be, or whose messages we deliver.
    sent_s: the SentTime of the case's messages, in seconds since 1970, UTC.
    """

    kind: str
    name: str
    steps: tuple[Step, ...]
    identity: Guid
    sent_s: int
    number: int = 0

    def renewed(self, identity: Guid, sent_s: int) -> Case:
        """Return the same case with another identity and time, for a peer that remembers the old ones."""
        old, new = (self.identity, _time.pack(self.sent_s)), (identity, _time.pack(sent_s))
        steps = tuple(
            dataclasses.replace(
                step,
                data=step.data.replace(old[0], new[0]).replace(old[1], new[1]),
                was=step.was.replace(old[0], new[0]).replace(old[1], new[1]),
            )
            for step in self.steps
        )
        return dataclasses.replace(self, steps=steps, identity=identity, sent_s=sent_s)

    def with_steps(self, steps: Iterable[Step]) -> Case:
        """Return the case with other steps."""
        return dataclasses.replace(self, steps=tuple(steps))

    @property
    def connections(self) -> set[int]:
        """The connections that the case opens."""
        return {step.connection for step in self.steps if step.act not in (Act.WATCH, Act.DATAGRAM)}

    @property
    def data(self) -> bytes:
        """All bytes that are sent, one after the other."""
        return b"".join(step.data for step in self.steps)


def joined(cases: Iterable[Case]) -> Case:
    """Join cases into one, in which each case has its own connections. The cases are those that ran when a peer went
    away.
    """
    steps: list[Step] = []
    together = list(cases)
    first = 0
    for case in together:
        steps += [
            dataclasses.replace(step, connection=step.connection + first)
            for step in case.steps
            if step.act is not Act.WATCH
        ]
        first += max(case.connections, default=-1) + 1
    last = together[-1]
    names = f"{len(together)} cases at once, the last of them: {last.kind}: {last.name}"
    return Case("several at once", names, tuple(steps), last.identity, last.sent_s, last.number)


def case_as_how(case: Case) -> dict[str, Any]:
    """Return a case without its bytes, as the `how` of a finding. The finding's data consists of these bytes, in
    order.
    """
    return {
        "fuzz": FUZZ,
        "kind": case.kind,
        "case": case.name,
        "number": case.number,
        "identity": guid_text(case.identity),
        "sent_s": case.sent_s,
        "steps": [_written(step) for step in case.steps],
        "notes": [step.note for step in case.steps],
    }


def case_from_how(how: Mapping[str, Any], data: bytes) -> Case:
    """Return the case of a finding.

    Raises:
        UsageError: the finding is not from `mqproto fuzz peer`.
    """
    try:
        if how["fuzz"] != FUZZ:
            raise ValueError(f"it is for `mqproto fuzz {how['fuzz']}`")
        steps = []
        for line, note in zip(how["steps"], how["notes"], strict=True):
            step = _read(str(line), str(note), data)
            steps.append(step)
            data = data[len(step.data) :]
        if data:
            raise ValueError(f"{len(data)} bytes belong to no step")
        return Case(
            kind=str(how["kind"]),
            name=str(how["case"]),
            steps=tuple(steps),
            identity=guid_from_text(how["identity"]),
            sent_s=int(how["sent_s"]),
            number=int(how["number"]),
        )
    except KeyError as error:
        raise UsageError(
            f"this is not a finding of `mqproto fuzz peer`: it has no {error.args[0]!r}"
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"this is not a finding of `mqproto fuzz peer`: {error}") from None


def _written(step: Step) -> str:
    """Return one step in words, without its bytes."""
    if step.act is Act.WATCH:
        return step.act.value
    if step.act is Act.DATAGRAM:
        return f"{step.act} of {len(step.data)} bytes"
    if step.act is not Act.SEND:
        return f"{step.act} on {step.connection}"
    pieces = f", {step.piece_bytes} at a time" if step.piece_bytes else ""
    return f"{step.act} on {step.connection}: {len(step.data)} bytes{pieces}"


_STEP: Final = re.compile(
    r"(?P<act>[a-z]+)(?: on (?P<connection>\d+))?(?:(?: of|:) (?P<size>\d+) bytes)?(?:, (?P<piece>\d+) at a time)?"
)


def _read(line: str, note: str, data: bytes) -> Step:
    """Return the step that `_written` has put into words; the step's bytes are at the beginning of `data`."""
    if not (words := _STEP.fullmatch(line)):
        raise ValueError(f"{line!r} is not a step")
    size = int(words["size"] or 0)
    if size > len(data):
        raise ValueError(f"{line!r}, and there are {len(data)} bytes")
    return Step(Act(words["act"]), int(words["connection"] or 0), data[:size], int(words["piece"] or 0), note)
