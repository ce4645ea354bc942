r"""Logs the removal of failed messages, with a line for each one that leaves its queue: a dead letter, or a copy that a
trigger made.

The line is on disk before the store forgets the message, so the log and the store together always account for the
message:

    {"event": "removed", "message": "GUID\\17", "queue": "errors", "copy": "GUID\\21", "class": "NACK_Q_PURGED", ...}

The line goes to NAME.removals.log next to the store, where `mqproto history` and `mqproto audit` look for logs. The
file rotates like other logs. A node that is killed between the line and the commit still has the message, and later
writes another line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.messages.drafts import is_letter
from mqproto.queues.localqueue import DEAD_LETTERS
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.logfile import LogFile
from mqproto.simulator.node.received import MessageId, ReceivedMessage
from mqproto.turn.effects import Departure
from mqproto.turn.waypoints import class_name
from mqproto.wire import Guid, MessageClass
from mqproto.wire.glance import variable_part

COPY: Final = b'{"failure":"'
"""The beginning of the extension of a copy made by a trigger (`mqproto.simulator.client.envelope.FailureNote`)."""


class Removed(NamedTuple):
    """A failed message that has left its queue.

    message: the identifier that the message had before it failed.
    copy: the identifier of the message that has left the queue; the same as `message` for a dead letter.
    reason: the message class for the removal; `RETURNED` if the message was sent back.
    """

    message: MessageId
    copy: MessageId
    queue: str
    reason: str
    again: int


RETURNED: Final = "RETURNED"
"""The word in place of a message class for a message that was sent again under another identifier."""


class Removals:
    """Writes one node's log of removals.

    Args:
        store: the path of the node's store.
        node, manager: the name and the GUID of the node.
    """

    def __init__(self, store: Path, node: str, manager: Guid) -> None:
        self._path = store.with_suffix(".removals.log")
        self._node = node
        self._manager = manager

    def keep(self, departures: Iterable[Departure]) -> None:
        """Write a line to disk for each failed message among these."""
        if not (found := list(removed(departures))):
            return
        with suppress(OSError), LogFile(self._path) as file:
            log = node_log(file, self._node)
            for one in found:
                facts = {"again": str(MessageId(self._manager, one.again))} if one.again else {}
                log.info(
                    "removed",
                    message=str(one.message),
                    queue=one.queue,
                    copy=str(one.copy),
                    **{"class": one.reason},
                    **facts,
                )
            file.sync()


def removed(departures: Iterable[Departure]) -> Iterator[Removed]:
    """Yield the failed messages among those that leave their queues.

    The bytes of COPY are searched for first, because messages of other kinds hardly ever contain them.
    """
    for departure in departures:
        are_letters = departure.queue in DEAD_LETTERS
        for packet in departure.packets:
            has_failed = are_letters or is_letter(packet)
            if not has_failed and (COPY not in packet or not _is_copy(packet)):
                continue
            message = ReceivedMessage(packet)
            original = message.id if has_failed else message.correlation
            if original is not None:
                reason = departure.message_class
                said = RETURNED if reason == MessageClass.NORMAL else class_name(reason)
                yield Removed(original, message.id, departure.queue, said, departure.again)


def _is_copy(packet: bytes) -> bool:
    """Return whether a trigger made this message, judging by the beginning of its extension."""
    _, extension, *_ = variable_part(packet)
    return packet.startswith(COPY, extension)
