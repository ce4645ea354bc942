"""What histories, stores and logs say of messages that were answered 200.

A node that runs goes on meanwhile, and a message may leave one store before that is read for another that was read
already. So what nobody seems to have is looked for again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.edge.exactlyonce import Entry
from mqproto.turn.effects import QueueKind
from mqproto.wire import MessageClass, UserMessage, decode_message, message_identifier
from mqproto.wire.glance import identifier_of
from simulator.client import MessageId
from simulator.client.envelope import Envelope, FailureNote
from simulator.command.story import Step, logs_in, steps_in
from simulator.edges.audit.ends import End, Evidence, end_of
from simulator.edges.failed.desk import RESOLVED_BY
from simulator.edges.failed.failures import LETTERS
from simulator.edges.gateway.confirmations import ENDS, RECEIVED, RESOLVED
from simulator.edges.gateway.trail import CONFIRMATIONS, OUTCOMES
from simulator.edges.history.documents import Documents, Record
from simulator.edges.history.history import KEEP_S
from simulator.storage.care import salvaged
from simulator.storage.care.export import Exported, exported
from simulator.storage.files import SYSTEM_FILES
from simulator.topology import places
from simulator.topology.places import Place

PASSES: Final = 3
GATEWAY, TRIGGER = "gateway/", "trigger/"
"""How scopes of the history begin."""
TOLD: Final = (
    b'"accepted"',
    b'"received"',
    b'"dead-lettered"',
    b'"committed"',
    b'"duplicate-dropped"',
    b'"in-doubt"',
)
"""Lines without one of these are of no interest."""

Answered = dict[str, Evidence]
"""By the identifier of each message that was answered 200."""


def reader_of(place: Place, history: str = "", logs: Iterable[Path] = ()) -> tuple[Reader, list[str]]:
    """A reader of one system, and the nodes whose stores are not here.

    Args:
        history: the URL of the document history; empty for the file beside the stores.
        logs: beside those in the folder of the stores.

    Raises:
        UsageError, HistoryError: the history cannot be had.
    """
    here = {name: places.store_path(place.directory, name) for name in place.topology.nodes}
    missing = [name for name, path in here.items() if not path.is_file()]
    is_there = bool(history) or (place.directory / "history.sqlite").is_file()
    documents = (
        Documents(history or places.history_url(place.directory), KEEP_S, time.time) if is_there else None
    )
    all_logs = dict.fromkeys(path.resolve() for path in (*logs_in(place.directory), *logs))
    stores = [path for name, path in here.items() if name not in missing]
    return Reader(documents, stores, all_logs), missing


class Reader:
    """Reads all there is of one system.

    Args:
        history: None if there is none.
        stores: the files of those that are here.
    """

    def __init__(self, history: Documents | None, stores: Iterable[Path], logs: Iterable[Path]) -> None:
        self._history = history
        self._stores = list(stores)
        self._logs = list(logs)
        self.answered: Answered = {}
        self._named: dict[str, list[Evidence]] = {}
        """The same by identifier and by producer's id: what was sent once more has one of them in its envelope."""
        self.unread: list[str] = []
        """What of the stores is not whole, a line each: what lay there is not known."""

    def read(self) -> Answered:
        """All that is known of each message that was answered 200.

        Raises:
            HistoryError, StoreError, OSError: something cannot be read.
        """
        self._read_accepted()
        for message, known in self.answered.items():
            for name in filter(None, (message, known.key)):
                self._named.setdefault(name, []).append(known)
        for _ in range(PASSES):
            self.unread.clear()
            self._read_history()
            for path in self._logs:
                for step in steps_in(path, TOLD):
                    self._hear(step)
            for store in self._stores:
                self._read_store(store)
            self._read_history()  # What has ended meanwhile is in no store any more.
            if not any(end_of(known) is End.UNACCOUNTED for known in self.answered.values()):
                break
        return self.answered

    # What was answered 200

    def _read_accepted(self) -> None:
        for scope, key, record in self._documents(GATEWAY):
            if record.entry is Entry.COMPLETED:
                outcome = OUTCOMES.decode(record.outcome)
                self.answered[outcome.id] = Evidence(
                    scope.removeprefix(GATEWAY), key, heard_elsewhere=bool(outcome.admin_queue)
                )
        for path in self._logs:
            for step in steps_in(path, TOLD):
                # A node's line of this name has no key.
                if step.event == "accepted" and "key" in step.facts and step.message not in self.answered:
                    self.answered[step.message] = Evidence(
                        str(step.facts.get("queue", "")),
                        str(step.facts["key"]),
                        heard_elsewhere="admin_queue" in step.facts,
                    )

    # What became of it

    def _read_history(self) -> None:
        by_key = {(known.queue, message): known for message, known in self.answered.items()}
        by_key |= {(known.queue, known.key): known for known in self.answered.values() if known.key}
        for _, message, record in self._documents(ENDS):
            if (known := self.answered.get(message)) is not None and record.outcome:
                known.confirmed = CONFIRMATIONS.decode(record.outcome).message_class
                known.resolved |= known.confirmed == RESOLVED
        for scope, key, record in self._documents(TRIGGER):
            if (known := by_key.get((scope.removeprefix(TRIGGER), key))) is not None:
                known.attempted |= record.attempts > 0
                known.processed |= record.entry is Entry.COMPLETED
                known.resolved |= record.outcome.startswith(RESOLVED_BY.encode())
                known.started = record.entry is Entry.STARTED

    def _documents(self, scope: str) -> Iterator[tuple[str, str, Record]]:
        return iter(()) if self._history is None else self._history.everything(scope)

    def _read_store(self, path: Path) -> None:
        with closing(salvaged(SYSTEM_FILES, path)) as found:
            self.unread += found.findings
            for message in exported(found):
                try:
                    self._find(message)
                except WireFormatError as error:
                    self.unread.append(f"{path}: a packet in {message.queue}: {error}")

    def _find(self, message: Exported) -> None:
        known = self.answered.get(str(MessageId(*identifier_of(message.packet))))
        if known is not None:
            known.found(message.kind, message.queue)
            return
        record = decode_message(message.packet)
        properties = record.properties
        if properties.message_class and message.queue not in LETTERS:
            self._confirm(record)
            return
        note = FailureNote.of(properties.extension_data)
        known = self.answered.get(note.message) if note else None
        key = Envelope.of(properties.extension_data).producer_key
        again = [known] if known else [one for one in self._named.get(key, []) if one.has_ended]
        for one in again:
            if note and message.kind is QueueKind.LOCAL:
                one.copied = note.failure
            elif not note:
                one.found(message.kind, message.queue)

    def _confirm(self, record: UserMessage) -> None:
        """An acknowledgment that the gateway has not taken yet."""
        about = message_identifier.decode(record.properties.correlation_id)
        known = self.answered.get(str(MessageId(about.queue_manager_guid, about.ordinal)))
        number = record.properties.message_class
        if known is not None and number in MessageClass._value2member_map_:
            known.confirmed = MessageClass(number).name

    def _hear(self, step: Step) -> None:
        """What a gateway or a trigger has written, whose names have two words."""
        known = self.answered.get(step.message)
        if known is None or " " not in step.who:
            return
        is_triggers = "attempt" in step.facts
        match step.event:
            case "committed" | "duplicate-dropped" if is_triggers:
                known.processed = True
            case "dead-lettered" | "in-doubt" if is_triggers:
                known.attempted = True
            case "received" if not known.confirmed:
                known.confirmed = RECEIVED
            case "dead-lettered" if not known.confirmed:
                known.confirmed = str(step.facts.get("reason", ""))
