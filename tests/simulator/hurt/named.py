"""The messages that a printed line names, strictly: by identifier, by record or range of records, or by the queue.

The harness saw what went to the stores before the damage, so it knows where each message was. A line about one node
names nothing that only another node has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.wire import UserMessage, decode_packet
from mqproto.wire.layouts.acknowledgment import FinalAckBody
from mqproto.wire.messages import acknowledgment_in
from tests.simulator.hurt.ledger import Trace

RANGES: Final = (
    r"records? (?P<first>\d+)(?: to (?P<last>\d+))?",
    r"up to record (?P<upto>\d+)",
)
"""The forms in which lines name records.

`upto` names all records after the last one named on earlier lines, up to and including `upto`.
"""


class Spot(NamedTuple):
    """A message in a store: its queue, by number and by name, and its MessageID."""

    queue: int
    name: str
    message_id: int


@dataclass
class Known:
    """The places of the messages in one node's store.

    Attributes:
        spots: the spots where each message waited, keyed by label.
        records: the commits that brought or removed each message, keyed by label; each commit is given as the first and
            the last possible one.
    """

    spots: dict[str, set[Spot]] = field(default_factory=dict)
    records: dict[str, set[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, traces: Iterable[tuple[str, Trace]]) -> Known:
        """Derive the places from the data that the harness saw written to the store."""
        found = cls()
        for label, trace in traces:
            found.spots.setdefault(label, set()).add(Spot(trace.queue, trace.queue_name, trace.message_id))
            found.records.setdefault(label, set()).add((trace.first, trace.last))
        return found


def final_ack_of(message_id: int) -> str:
    """Return the text that takes the place of a label for a message's FinalAck."""
    return f"the FinalAck of {message_id}"


def label_of(packet: bytes) -> str | None:
    """Return the label of a message, or the text in place of a label for a FinalAck; None if there is none."""
    try:
        message = decode_packet(packet)
    except WireFormatError:
        return None
    body = acknowledgment_in(message) if isinstance(message, UserMessage) else None
    if body is not None:
        return final_ack_of(body.message_id) if isinstance(body, FinalAckBody) else None
    label = message.properties.label if isinstance(message, UserMessage) else None
    return label.rstrip("\0") if label else None


def named(lines: Iterable[str], found: Known) -> set[str]:
    """Return the labels of all messages of a node that these lines name."""
    return {
        label for label in found.spots.keys() | found.records.keys() if _is_named(label, list(lines), found)
    }


def _is_named(label: str, lines: list[str], found: Known) -> bool:
    before, gone = 0, set[int]()
    for line in lines:
        for first, last in _ranges(line, before):
            before = last
            gone.update(range(first, last + 1))
        if any(_names_spot(line, spot) for spot in found.spots.get(label, ())):
            return True
    return any(gone.issuperset(range(first, last + 1)) for first, last in found.records.get(label, ()))


def _ranges(line: str, before: int) -> Iterator[tuple[int, int]]:
    for match in re.finditer("|".join(RANGES), line):
        if match["upto"]:
            yield before, int(match["upto"])
        else:
            yield int(match["first"]), int(match["last"] or match["first"])


def _names_spot(line: str, spot: Spot) -> bool:
    if re.search(rf"\b[Mm]essageID {spot.message_id}\b", line):
        return spot.name in line or f"queue {spot.queue} " in line
    if re.search(rf"\\{spot.message_id}\b", line):
        return True
    # A queue is named with what is missing of it: "local orders: 3 of 5 messages are not whole", "queue 7 has ...".
    is_missing = re.search(r"not whole|set aside|left out", line) is not None
    return (is_missing and line.startswith(f"{spot.name}: ")) or f"queue {spot.queue} has" in line
