"""Lists the messages that are waiting in a restored store, because they may already have been delivered.

None of these messages is held back, because nobody knows which of them were delivered. Destinations drop the messages
that they remember. People can compare the list with what really happened.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage import Store
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.turn.effects import NewLife, QueueKind, QueueRow
from mqproto.wire import decode_message
from mqproto.wire.glance import head_of
from mqproto.wire.guid import guid_text

HEADING: Final = (
    "# Life {number} of {name} began on a store that was put back. What waited in it stands here, a line each: its\n"
    "# queue, its identifier, and of a transactional message TxSequenceID and TxSequenceNumber. Each of these may\n"
    "# have been delivered already. Nothing was held back. A document history of a later moment knows\n"
    "# messages that are not here: put it back too, and type `mqproto audit`. Remove this file when you have looked.\n"
)
PATTERN: Final = "{name}.life-{number}-in-doubt.txt"


class InDoubtList(NamedTuple):
    """The result of writing a list.

    messages: the number of messages in the list.
    transactional: the number of these messages that are transactional.
    """

    file: Path
    messages: int
    transactional: int


def list_in_doubt(store: Store, life: NewLife) -> InDoubtList:
    """List the waiting messages of a store before any of them leaves. The list replaces an earlier one for this life.

    Raises:
        StoreError: the store cannot be read, or the list cannot be written.
    """
    name = store.path.stem
    path = store.path.with_name(PATTERN.format(name=name, number=life.number))
    draft = path.with_suffix(".draft")
    messages = transactional = 0
    try:
        with draft.open("w", encoding="utf-8") as lines:
            lines.write(HEADING.format(number=life.number, name=name))
            for queue, packet in store.everything():
                if queue.kind is QueueKind.ORDER or queue.name.endswith(ORDER_SUFFIX):
                    continue  # An acknowledgment; its message stands elsewhere.
                line, in_sequence = _line(queue, packet)
                lines.write(line)
                messages += 1
                transactional += in_sequence
            lines.flush()
            os.fsync(lines.fileno())
        draft.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: it cannot be written ({error.strerror}): make room there") from error
    return InDoubtList(path, messages, transactional)


def lists_of(store: Path) -> list[str]:
    """Return the names of the lists next to a store, starting with the list of the oldest life."""
    pattern = PATTERN.format(name=glob.escape(store.stem), number="*")
    return sorted((path.name for path in store.parent.glob(pattern)), key=lambda name: (len(name), name))


def _line(queue: QueueRow, packet: bytes) -> tuple[str, bool]:
    place = f"{queue.kind} {queue.name}"
    try:
        message = decode_message(packet)
    except WireFormatError:
        head = head_of(packet)
        return f"{place}\t{guid_text(head.source_queue_manager)}\\{head.message_id}\tunreadable\n", False
    user, transaction = message.user, message.transaction
    known = f"{place}\t{guid_text(user.source_queue_manager)}\\{user.message_id}"
    if transaction is None:
        return f"{known}\n", False
    sequence = transaction.tx_sequence_id
    number = transaction.tx_sequence_number
    return f"{known}\t{sequence.time_stamp}/{sequence.ordinal}\t{number}\n", True
