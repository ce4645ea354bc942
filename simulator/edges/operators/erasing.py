r"""Erases the bodies of messages, and keeps their trails.

Bodies are in the stores of nodes. The document history has no bodies, only identifiers, times, outcomes and checksums,
and keeps them. A message that has ended may still be in a store as a dead letter, as a trigger's copy, or in a
journal. All of these are taken out of their queues. Deleted messages stay in a store's files until other data
overwrites them. So every store is rewritten, even if the message only passed through it. A message that has not ended
is refused, because its delivery was promised.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import FormatNameError, MqprotoError, UsageError
from mqproto.edge.custody import NOT_OVER, Deed, end_of, is_called
from mqproto.queues.localqueue import DEAD_LETTERS, JOURNAL_SUFFIX
from mqproto.simulator.client import MessageId, NodeUnreachable, connect
from mqproto.simulator.client.envelope import Envelope, FailureNote
from mqproto.simulator.edges.operators.deeds import facts_of, note_down
from mqproto.simulator.edges.operators.desk import take_out
from mqproto.simulator.edges.operators.failures import FailedMessage, failure_in
from mqproto.simulator.edges.operators.reading import Audit, StoredMessage, Unknown, audited, messages_in
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.topology import places
from mqproto.simulator.topology.places import Place
from mqproto.turn.effects import QueueKind

SEARCHED_BYTES: Final = 12
"""The minimum size, in bytes, of a body to search for; a smaller one would be found everywhere."""
PIECES: Final = 8
LONG_BYTES: Final = 256
"""The size, in bytes, of the pieces of a long body that are searched for.

SQLite splits a long body over pages.
"""
READ_BYTES: Final = 2**20
PATIENCE: Final = 20
AGAIN_S: Final = 0.25


@dataclass
class Erased:
    """The result of an erasure.

    messages: the identifiers that the requested messages had when they were handed in.
    missing: the names that are unknown.
    copies: the number of dead letters, copies and journaled messages that were taken out of their queues.
    left: the files in the folder that still contain a body.
    trouble: the stores that could not be rewritten, with the reason.
    """

    messages: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    copies: int = 0
    left: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all requested messages are erased."""
        return not (self.missing or self.left or self.trouble)


@dataclass
class _Meant:
    """One message to erase.

    names: the message's current and earlier identifiers.
    """

    message: str
    key: str
    queue: str
    names: set[str]
    kept: list[FailedMessage] = field(default_factory=list)
    bodies: set[bytes] = field(default_factory=set)


async def erase(place: Place, history: str, names: Collection[str], note: str) -> Erased:
    """Erase the messages with these identifiers or producers' ids.

    Args:
        history: the URL of the document history; empty for the file in the folder of the stores.
        note: the reason, for those who ask later.

    Raises:
        UsageError: a message has not ended, or several have the same id; nothing was erased.
        NodeUnreachable, RolledBack, InDoubt: a node went away; repeat the command.
    """
    erased = Erased()
    audit = audited(place, history)
    meant = list(_meant(audit, names, erased, place.again))
    for _ in range(PATIENCE):
        if not (reason := _find(place, meant)):
            break
        await trio.sleep(AGAIN_S)  # A node forgets what its neighbour has in its own time.
    else:
        raise UsageError(f"{reason}; nothing was erased")
    for one in meant:
        facts = facts_of(one.kept) or [{"message": one.message, "queue": one.queue}]
        note_down(place.directory, Deed.ERASED, facts, note)
        erased.messages.append(one.message)
    erased.copies = await take_out(place, [kept for one in meant for kept in one.kept])
    for node in place.topology.nodes if meant else ():
        if trouble := await _scrub(place, node):
            erased.trouble.append(f"{node}: {trouble}")
    sought = _pieces({body for one in meant for body in one.bodies})
    erased.left = list(_files_with(place.directory, sought))
    return erased


def is_journal(name: str) -> bool:
    """Return whether a file is the journal of a sending program, or SQLite's log of that journal.

    While the program runs, its journal has only unfinished operations; a gateway's journal has no bodies.
    """
    return name.endswith((".journal", ".journal-wal"))


def _meant(audit: Audit, names: Iterable[str], erased: Erased, again: str) -> Iterator[_Meant]:
    """Yield the messages with these names.

    Messages that no gateway accepted are found only by their identifiers.

    Raises:
        UsageError: a message has not ended, or several have the same id.
    """
    for name in names:
        found = [
            (message, known)
            for message, known in audit.answered.items()
            if is_called(name, known.key, known.names)
        ]
        found = [one for one in found if name in (one[1].key, *one[1].names)] or found
        if len(found) > 1:
            ids = ", ".join(message for message, _ in found)
            raise UsageError(
                f"{len(found)} messages have the id {name}: name one of {ids}; nothing was erased"
            )
        for message, known in found:
            if (end := end_of(known)) in NOT_OVER:
                raise UsageError(
                    f"{name} is {end}, for {known.queue}: it can be erased when that is over, or after `mqproto "
                    f"purge {shlex.quote(known.queue)}{again}`, which ends all messages there; nothing was erased"
                )
            yield _Meant(message, known.key, known.queue, set(known.names))
        if not found:
            if MessageId.parse(name) is not None:
                yield _Meant(name, "", "", {name})
            else:
                erased.missing.append(name)


def _find(place: Place, meant: list[_Meant]) -> str:
    """Find these messages in the stores.

    If one of them is waiting or on its way, return why they cannot be erased; otherwise return an empty text.
    """
    unknown, reason = Unknown(), ""
    for one in meant:
        one.kept.clear()
    for stored in messages_in(place, unknown):
        node, kind, queue, message = stored
        is_local = kind is QueueKind.LOCAL
        failure = failure_in(place.topology, node, queue, message) if is_local else None
        for one in meant:
            if not _is_about(one, stored, failure):
                continue
            one.bodies.add(message.body)
            if failure is not None:
                one.kept.append(failure)
            elif is_local and queue.endswith(JOURNAL_SUFFIX):
                journaled = FailureNote(failure="journal", message=one.message, queue=one.queue)
                one.kept.append(FailedMessage.of(journaled, node, queue, message))
            else:
                where = queue if is_local else "on its way, or waits to hear of its end"
                reason = (
                    f"{one.key or one.message}, or an acknowledgment that repeats it, is at {node}: {where}; it can be"
                    " erased when it is not"
                )
    return reason


def _is_about(one: _Meant, stored: StoredMessage, failure: FailedMessage | None) -> bool:
    """Return whether a packet contains the body of a message.

    It may be the message itself, a dead letter, a copy, or a negative acknowledgment.
    """
    message = stored.message
    if message.record.properties.message_class and stored.queue not in DEAD_LETTERS:
        return str(message.correlation) in one.names and bool(message.body)
    if str(message.id) in one.names:
        return True
    if failure is None:
        return False
    key = Envelope.of(message.extension).producer_key
    return failure.id in one.names or (key != "" and (key, failure.queue) == (one.key, one.queue))


async def _scrub(place: Place, node: str) -> str:
    """Rewrite a store. The node does this if it is running; otherwise, this process does.

    Return why this failed; empty if it did not.
    """
    path = places.store_path(place.directory, node)
    try:
        async with connect(place.topology, node, place.directory) as client:
            await client.scrub()
        return ""
    except NodeUnreachable:
        if not path.is_file():
            return "its store is not here: type the same where it is"
    except (UsageError, FormatNameError) as error:
        return str(error)
    try:
        with Store(path, place.topology.nodes[node].guid, files=SYSTEM_FILES) as store:
            if store.life is not None:
                return "its store was put back: start it, then type the same once more"
            store.settle()
            store.overwrite()
            store.overwritten()
    except MqprotoError as error:
        return str(error)
    return ""


def _pieces(bodies: Collection[bytes]) -> list[bytes]:
    """Return the pieces of bodies to search for. Pieces are needed because a file may contain a long body in parts."""
    steps = {body: max(LONG_BYTES, len(body) // PIECES) for body in bodies}
    pieces = {body[at : at + LONG_BYTES] for body, step in steps.items() for at in range(0, len(body), step)}
    return [
        piece for piece in pieces if len(piece) >= SEARCHED_BYTES and len(set(piece)) >= SEARCHED_BYTES // 2
    ]


def _files_with(folder: Path, sought: Collection[bytes]) -> Iterator[str]:
    """Yield the names of the files in a folder that contain one of these pieces."""
    overlap = max(map(len, sought), default=0)
    for path in sorted(folder.iterdir()) if sought else ():
        if path.is_file() and _has(path, sought, overlap):
            yield path.name


def _has(path: Path, sought: Collection[bytes], overlap: int) -> bool:
    with path.open("rb") as file:
        before = b""
        while read := file.read(READ_BYTES):
            data = before + read
            if data.strip(b"\0") and any(piece in data for piece in sought):
                return True
            before = data[-overlap:]
    return False
