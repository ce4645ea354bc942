"""Converts the messages of a store to text, one per line, and back, for `mqproto store export` and `mqproto send
--import`.

A line is a JSON object. `packet`, in hex, is the message, and `stored` is the place where it was. Everything else is
for people: the packet's fields, as in `mqproto decode --json` and under the same names; and its body and extension, as
text if they are UTF-8. A line that is read may lack fields, but a field that it has must agree with the packet.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.simulator.storage.care.salvage import Salvage
from mqproto.turn.effects import LAST_POSITION, POSITION_BITS, OutgoingRow, QueueKind
from mqproto.wire import UserMessage, decode_message
from mqproto.wire.guid import Guid, guid_from_text, guid_text

VERSION: Final = 1
NO_LINE: Final = "it is not a line of `mqproto store export`"
CONTENTS: Final = frozenset({"body", "body_base64", "extension", "extension_base64", "fault"})
"""The fields for the contents of a message, and the field that says why they cannot be read.

A line has only the fields that apply to its message.
"""
SHOWN: Final = 60
"""The number of characters of a wrong field that an error text quotes."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A message of a store.

    node: the node that owns the store; None if that could not be read.
    kind: the kind of the message's queue; None if the tables cannot be read.
    queue: the name of the queue, or its number if the tables cannot be read.
    may_have_left: whether the message was sent, or may have been sent, so that its destination may have it.
    """

    node: Guid | None
    kind: QueueKind | None
    queue: str
    position: int
    may_have_left: bool
    packet: bytes


def exported(found: Salvage, queues: Collection[int] | None = None) -> Iterator[Exported]:
    """Yield the undamaged messages of these queues, or of all queues, in order. Damaged ones have already been reported
    as findings."""
    sequences = {row.queue: row for row in found.outgoing}
    for number in sorted(found.records):
        sequences |= found.records[number].outgoing
    for row in found.messages([]):
        number, position = row.key >> POSITION_BITS, row.key & LAST_POSITION
        if queues is None or number in queues:
            queue = found.queues.get(number)
            kind, name = (queue.kind, queue.name) if queue else (None, str(number))
            may_have_left = _may_have_left(kind, position, sequences.get(number))
            yield Exported(found.node, kind, name, position, may_have_left, row.packet)


def _may_have_left(kind: QueueKind | None, position: int, sequence: OutgoingRow | None) -> bool:
    match kind:
        case QueueKind.SEQUENCE:
            return sequence is None or position <= sequence.sent_ceiling
        case QueueKind.OUTGOING | QueueKind.FINAL | None:
            return True
    return False


def line_of(message: Exported) -> str:
    """Return the line for a message, without a newline."""
    stored = {
        "kind": message.kind and str(message.kind),
        "queue": message.queue,
        "position": message.position,
        "may_have_left": message.may_have_left,
    }
    line = {
        "export": VERSION,
        "node": None if message.node is None else guid_text(message.node),
        "stored": stored,
        **_fields(message.packet),
        "packet": message.packet.hex(),
    }
    return json.dumps(line, ensure_ascii=False)


def _fields(packet: bytes) -> dict[str, Any]:
    """Return the fields of a packet that are meant for people."""
    from mqproto.captures.decode.row import message_columns

    try:
        message = decode_message(packet)
    except WireFormatError as error:
        return {"fault": " ".join(str(error).split())}
    return {**message_columns(message), **_contents(message)}


def _contents(message: UserMessage) -> dict[str, str]:
    contents = {}
    properties = message.properties
    for name, data in (("extension", properties.extension_data), ("body", properties.message_body)):
        try:
            contents[name] = data.decode("utf-8")
        except UnicodeDecodeError:
            contents[f"{name}_base64"] = base64.b64encode(data).decode("ascii")
    return contents


def message_in(line: str) -> Exported:
    """Return the message in a line.

    Raises:
        UsageError: the line has no message, or a field contradicts the packet.
    """
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or "export" not in found:
            raise UsageError(NO_LINE)
        if found["export"] != VERSION:
            raise UsageError(f"it has version {found['export']!a}, and this mqproto knows {VERSION}")
        stored = found["stored"]
        message = Exported(
            None if found["node"] is None else guid_from_text(found["node"]),
            None if stored["kind"] is None else QueueKind(stored["kind"]),
            str(stored["queue"]),
            int(stored["position"]),
            bool(stored["may_have_left"]),
            bytes.fromhex(found["packet"]),
        )
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())[:SHOWN]
        raise UsageError(f"{NO_LINE} ({type(error).__name__}: {said})") from None
    fields = _fields(message.packet)
    for name in found.keys() & (fields.keys() | CONTENTS):
        if found[name] != fields.get(name):
            there = _short(fields.get(name))
            raise UsageError(
                f"its {name} is {_short(found[name])}, and its packet says {there}: the packet is what is sent, so"
                " put back what was there, or take the field out"
            )
    return message


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
