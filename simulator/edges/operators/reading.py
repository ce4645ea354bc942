"""What histories, stores and logs say of messages that were answered 200.

A node that runs goes on meanwhile, and a message may leave one store before that is read for another that was read
already. So what nobody seems to have is looked for again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.edge.exactlyonce import Entry
from mqproto.turn.effects import QueueKind
from mqproto.wire import FinalAckBody, MessageClass, UserMessage, acknowledgment_in, message_identifier
from simulator.client import MessageId, ReceivedMessage
from simulator.client.envelope import Envelope
from simulator.command.story import Step, logs_in, steps_in
from simulator.edges.gateway.confirmations import ENDS, RECEIVED, RESOLVED
from simulator.edges.gateway.trail import CONFIRMATIONS, OUTCOMES
from simulator.edges.history.documents import Documents, Record
from simulator.edges.history.forgetting import GATEWAY, TRIGGER
from simulator.edges.operators.deeds import WHO, Deed
from simulator.edges.operators.desk import RESOLVED_BY
from simulator.edges.operators.ends import End, Evidence, Removal, end_of
from simulator.edges.operators.failures import LETTERS, note_of
from simulator.edges.operators.stores import Unknown, messages_in
from simulator.storage.care.export import Exported
from simulator.topology import places
from simulator.topology.places import Place

PASSES: Final = 3
DAY_S: Final = 24 * 3_600.0
TOLD: Final = (
    b'"accepted"',
    b'"received"',
    b'"dead-lettered"',
    b'"committed"',
    b'"duplicate-dropped"',
    b'"in-doubt"',
)
"""Lines without one of these are of no interest; but for these, of what had failed."""
DEEDS: Final = frozenset(Deed)
LATER: Final = (b'"removed"', *(f'"{deed}"'.encode() for deed in DEEDS))


Answered = dict[str, Evidence]
"""By the identifier of each message that was answered 200."""


class Forgotten(NamedTuple):
    """What a history does not know any more.

    messages: how many that were accepted with an id.
    last: when the last of them was, UTC.
    keep_days: how long ids are kept.
    """

    messages: int
    last: datetime
    keep_days: float


@dataclass
class Audit:
    """What is known of each message that was answered 200, and what could not be looked into."""

    answered: Answered
    unknown: Unknown
    forgotten: Forgotten | None = None

    def counted(self) -> dict[End, list[str]]:
        """The identifiers by who has them, all of `End` in its order."""
        ends: dict[End, list[str]] = {end: [] for end in End}
        for message, known in self.answered.items():
            ends[end_of(known)].append(message)
        return ends


def audited(place: Place, history: str = "", logs: Iterable[Path] = ()) -> Audit:
    """Read all there is of one system.

    Args:
        history: the URL of the document history; empty for the file beside the stores.
        logs: beside those in the folder of the stores.

    Raises:
        UsageError, HistoryError, StoreError, OSError: something cannot be read.
    """
    paths = list(dict.fromkeys(path.resolve() for path in (*logs_in(place.directory), *logs)))
    if not history and not (place.directory / "history.sqlite").is_file():
        return _Reader(place, None, paths).read()
    documents = Documents(history or places.history_url(place.directory), None, time.time)
    with closing(documents):
        return _Reader(place, documents, paths).read()


class _Reader:
    """Reads all there is of one system.

    Args:
        history: None if there is none.
    """

    def __init__(self, place: Place, history: Documents | None, logs: list[Path]) -> None:
        self._place = place
        self._history = history
        self._logs = logs
        self._answered: Answered = {}
        self._called: Answered = {}
        """The same by each of its names."""
        self._named: dict[str, list[Evidence]] = {}
        """The same by identifier and by producer's id: what was sent once more has one of them in its envelope."""

    def read(self) -> Audit:
        """All that is known of each message that was answered 200."""
        self._read_accepted()
        for message, known in self._answered.items():
            known.names.append(message)
            self._called[message] = known
            for name in filter(None, (message, known.key)):
                self._named.setdefault(name, []).append(known)
        for _ in range(PASSES):
            unknown = Unknown()
            self._read_logs()
            self._read_history()
            for node, stored in messages_in(self._place, unknown):
                try:
                    self._find(node, stored)
                except WireFormatError as error:
                    unknown.not_whole.append(f"{node}: a packet in {stored.queue}: {error}")
            self._read_history()  # What has ended meanwhile is in no store any more.
            for known in self._answered.values():
                known.destination_is_here = known.queue.partition("\\")[0] not in unknown.not_here
            audit = Audit(self._answered, unknown, self._forgotten())
            if not audit.counted()[End.UNACCOUNTED]:
                break
        return audit

    def _forgotten(self) -> Forgotten | None:
        if self._history is None:
            return None
        count, last_s = self._history.forgotten()
        return Forgotten(count, datetime.fromtimestamp(last_s, UTC), self._history.keep_s / DAY_S)

    # What was answered 200

    def _read_accepted(self) -> None:
        for scope, key, record in self._documents(GATEWAY):
            if record.entry is Entry.COMPLETED:
                outcome = OUTCOMES.decode(record.outcome)
                self._answered[outcome.id] = Evidence(
                    scope.removeprefix(GATEWAY), key, heard_elsewhere=bool(outcome.admin_queue)
                )
        kept_since = ""
        if self._history is not None:
            kept_since = datetime.fromtimestamp(time.time() - self._history.keep_s, UTC).isoformat()
        for path in self._logs:
            for step in steps_in(path, TOLD):
                # A node's line of this name has no key.
                if step.event == "accepted" and "key" in step.facts and step.message not in self._answered:
                    self._answered[step.message] = Evidence(
                        str(step.facts.get("queue", "")),
                        str(step.facts["key"]),
                        heard_elsewhere="admin_queue" in step.facts,
                        is_old=step.time < kept_since,
                    )

    # What became of it

    def _read_logs(self) -> None:
        """What gateways, triggers, nodes and operators have written."""
        for known in self._answered.values():
            known.removals.clear()
        # By these a message has other names: they come first, in the order of time.
        later = [step for path in self._logs for step in steps_in(path, LATER) if "copy" in step.facts]
        for step in sorted(later, key=lambda step: step.time):
            self._follow(step)
        for path in self._logs:
            for step in steps_in(path, TOLD):
                self._hear(step)

    def _follow(self, step: Step) -> None:
        """What became of one that had failed."""
        known = self._called.get(step.message)
        if known is None:
            return
        copy, again = str(step.facts["copy"]), str(step.facts.get("again", ""))
        if step.who == WHO and step.event in DEEDS:
            known.deeds[copy] = Deed(step.event)
        elif step.event == "removed" and self._may_be_of(copy, known):
            known.removals.append(Removal(copy, str(step.facts.get("class", "")), again))
        else:
            return
        if again and again not in self._called:
            known.sent_again(again)
            self._called[again] = known

    def _may_be_of(self, copy: str, known: Evidence) -> bool:
        """Whether a copy comes from the node whose trigger would make it: anybody can write such a one (`note_of`)."""
        node, identifier = known.queue.partition("\\")[0], MessageId.parse(copy)
        of_node = self._place.topology.nodes.get(node)
        return copy in known.names or (
            identifier is not None and of_node is not None and identifier.manager == of_node.guid
        )

    def _read_history(self) -> None:
        by_key = {(known.queue, name): known for name, known in self._called.items()}
        by_key |= {(known.queue, known.key): known for known in self._answered.values() if known.key}
        for _, message, record in self._documents(ENDS):
            if (known := self._called.get(message)) is not None and record.outcome:
                known.ends[message] = CONFIRMATIONS.decode(record.outcome).message_class
                known.resolved |= known.ends[message] == RESOLVED
        for scope, key, record in self._documents(TRIGGER):
            if (known := by_key.get((scope.removeprefix(TRIGGER), key))) is not None:
                known.attempted |= record.attempts > 0
                known.processed |= record.entry is Entry.COMPLETED
                known.resolved |= record.outcome.startswith(RESOLVED_BY.encode())
                known.started = record.entry is Entry.STARTED

    def _documents(self, scope: str) -> Iterator[tuple[str, str, Record]]:
        return iter(()) if self._history is None else self._history.everything(scope)

    def _find(self, node: str, stored: Exported) -> None:
        message = ReceivedMessage(stored.packet)
        name = str(message.id)
        if (known := self._called.get(name)) is not None:
            known.found(stored.kind, stored.queue)
            if stored.queue in LETTERS:
                known.ends.setdefault(name, message.message_class)
            return
        properties = message.record.properties
        if properties.message_class and stored.queue not in LETTERS:
            self._confirm(message.record)
            return
        note = note_of(self._place.topology, node, stored.queue, message)
        known = self._called.get(note.message) if note else None
        key = Envelope.of(properties.extension_data).producer_key
        again = [known] if known else [one for one in self._named.get(key, []) if one.has_ended]
        for one in again:
            if note is None:
                one.found(stored.kind, stored.queue)
            elif stored.kind is QueueKind.LOCAL:
                one.copied = note.failure

    def _confirm(self, record: UserMessage) -> None:
        """An acknowledgment that the gateway has not taken yet, or one for the sender that is on its way."""
        body = acknowledgment_in(record)
        if isinstance(body, FinalAckBody):
            name = str(MessageId(body.source_guid, body.message_id))
        else:
            about = message_identifier.decode(record.properties.correlation_id)
            name = str(MessageId(about.queue_manager_guid, about.ordinal))
        known, number = self._called.get(name), record.properties.message_class
        if known is not None and number in MessageClass._value2member_map_:
            known.ends[name] = MessageClass(number).name

    def _hear(self, step: Step) -> None:
        """What a gateway or a trigger has written, whose names have two words."""
        known = self._called.get(step.message)
        if known is None or " " not in step.who:
            return
        name = step.message
        is_triggers = "attempt" in step.facts
        match step.event:
            case "committed" | "duplicate-dropped" if is_triggers:
                known.processed = True
            case "dead-lettered" | "in-doubt" if is_triggers:
                known.attempted |= name == known.names[-1]
            case "received":
                known.ends.setdefault(name, RECEIVED)
            case "dead-lettered":
                known.ends.setdefault(name, str(step.facts.get("reason", "")))
