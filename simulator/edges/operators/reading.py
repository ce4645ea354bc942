"""Reads stores, histories and logs to answer operators' questions.

Nodes may be running. Each store is read as it is at one moment. So a message may leave one store before that store is
read, and arrive in another that was already read. An audit therefore looks again for messages that nobody seems to
have.
"""

from __future__ import annotations

import time
from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.edge.custody import IN_DOUBT, RECEIVED, RESOLVED, Deed, End, Evidence, Removal, end_of, is_called
from mqproto.messages.drafts import is_letter as is_chosen_letter
from mqproto.queues.localqueue import DEAD_LETTERS
from mqproto.simulator.client import MessageId, ReceivedMessage
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.client.story import Step, logs_in, messages_with, steps_in
from mqproto.simulator.edges.gateway.message import KeptFacts
from mqproto.simulator.edges.history.documents import UNKNOWN, Documents, LookUp, Record
from mqproto.simulator.edges.history.errors import HistoryError
from mqproto.simulator.edges.history.forgetting import TRIGGER
from mqproto.simulator.edges.operators.deeds import WHO
from mqproto.simulator.edges.operators.failures import (
    FailedMessage,
    FailureFilter,
    destination_of,
    failure_in,
    note_of,
)
from mqproto.simulator.edges.trail import ENDS, LIVES, called, ended, lived
from mqproto.simulator.storage.care import salvaged
from mqproto.simulator.storage.care.export import exported
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.storage.posted import KEEP_S
from mqproto.simulator.topology import places
from mqproto.simulator.topology.directory import known_as
from mqproto.simulator.topology.places import Place
from mqproto.turn.effects import PostedRow, QueueKind
from mqproto.turn.posted import POSTED_FORGOTTEN
from mqproto.wire import FinalAckBody, MessageClass, acknowledgment_in

FEW: Final = 500
"""The maximum number of messages that are looked up by name in the history."""
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
"""The words that make a line of a log relevant, in addition to those about failed messages below."""
DEEDS: Final = frozenset(Deed)
LATER: Final = (b'"removed"', *(f'"{deed}"'.encode() for deed in DEEDS))


# Stores


class StoredMessage(NamedTuple):
    """A message in the store of a node.

    kind, queue: the same as in `Exported`.
    """

    node: str
    kind: QueueKind | None
    queue: str
    message: ReceivedMessage


@dataclass
class Unknown:
    """What could not be read.

    not_whole: the unreadable parts of stores, one line for each.
    not_here: the nodes whose stores are not in the folder.
    """

    not_whole: list[str] = field(default_factory=list)
    not_here: list[str] = field(default_factory=list)

    @contextmanager
    def may_be_spoilt(self, stored: StoredMessage) -> Iterator[None]:
        """Run a block that examines a message; report the message if its packet is found to be damaged."""
        try:
            yield
        except WireFormatError as error:
            self.not_whole.append(f"{stored.node}: a packet in {stored.queue}: {error}")

    def told(self) -> Iterator[str]:
        """Yield lines that say what could not be read."""
        yield from (f"not whole: {line}" for line in self.not_whole)
        if self.not_here:
            verb = "is" if len(self.not_here) == 1 else "are"
            yield f"{', '.join(self.not_here)} {verb} not here: what lies there is not known"


def messages_in(place: Place, unknown: Unknown) -> Iterator[StoredMessage]:
    """Yield all messages of all stores in the folder, queue by queue.

    Args:
        unknown: records what cannot be read.

    Raises:
        StoreError: a store cannot be read at all.
    """
    for name in place.topology.nodes:
        path = places.store_path(place.directory, name)
        if not path.is_file():
            unknown.not_here.append(name)
            continue
        with closing(salvaged(SYSTEM_FILES, path)) as store:
            unknown.not_whole += store.findings
            for message in exported(store):
                yield StoredMessage(name, message.kind, message.queue, ReceivedMessage(message.packet))


def failures_in(
    place: Place, unknown: Unknown, chosen: FailureFilter, history: str = ""
) -> Iterator[tuple[FailedMessage, ReceivedMessage]]:
    """Yield the selected failures, each with its copy or dead letter, queue by queue.

    Args:
        unknown: records what cannot be read.
        history: the URL of the document history; empty for the file in the folder of the stores.

    Raises:
        StoreError: a store cannot be read at all.
    """
    with closing(Letters(place, history, unknown)) as letters:
        for stored in messages_in(place, unknown):
            if stored.kind is not QueueKind.LOCAL:
                continue
            failure = None
            with unknown.may_be_spoilt(stored):
                failure = failure_in(place.topology, stored.node, stored.queue, stored.message)
                if failure is not None and failure.is_letter:
                    failure = letters.known(failure, stored.message)
            if failure is not None and chosen.has(failure):
                yield failure, stored.message


def failed_in(place: Place, chosen: FailureFilter, history: str = "") -> tuple[list[FailedMessage], Unknown]:
    """Return the selected failures without their messages, and what could not be read."""
    unknown = Unknown()
    return [failure for failure, _ in failures_in(place, unknown, chosen, history)], unknown


class Letters:
    """Looks up dead letters in the history and in logs.

    If the history is unavailable, this is reported, but is not an error.
    """

    def __init__(self, place: Place, history: str, unknown: Unknown) -> None:
        self._directory = place.directory
        self._unknown = unknown
        self._history: Documents | None = None
        try:
            if url := places.history_there(place.directory, history):
                self._history = Documents(url, None, only_reads=True)
        except HistoryError as error:
            unknown.not_whole.append(str(error))

    def close(self) -> None:
        """Close the history."""
        if self._history is not None:
            self._history.close()

    def known(self, letter: FailedMessage, message: ReceivedMessage) -> FailedMessage:
        """Return the dead letter with the time of its failure, its attempts, and whether it is in doubt."""
        known = Evidence(letter.queue, letter.key, [letter.id])
        end, called_as, life = self._looked((ENDS, letter.id), letter.called, (LIVES, letter.id))
        lived(known, letter.id, life)
        called(known, called_as)
        ended(known, letter.id, end)
        lasted_s = {
            "NACK_RECEIVE_TIMEOUT": message.record.user.time_to_be_received_s,
            "NACK_REACH_QUEUE_TIMEOUT": message.record.base.time_to_reach_queue_s,
        }
        if letter.id in known.ended_s:
            since = datetime.fromtimestamp(known.ended_s[letter.id], UTC)
        elif letter.failure in lasted_s:
            since = letter.since + timedelta(seconds=lasted_s[letter.failure])
        else:
            since = self._logged.get(letter.id, letter.since)
        attempts = known.attempts
        said = f"{called_as.doubt or f'{known.owner} has started and not finished it'}; {letter.failure}"
        if not attempts and (before := known.lives.get(letter.id)):
            # It was to be sent once more, and is here still.
            attempts, said = before.attempts, before.reason
        letter = replace(letter, since=since, attempts=attempts)
        return replace(letter, failure=IN_DOUBT, reason=said) if known.in_doubt else letter

    def _looked(self, *places: tuple[str, str]) -> list[Record]:
        try:
            if self._history is not None:
                return self._history.looked([LookUp(*one) for one in places])
        except HistoryError as error:
            self._unknown.not_whole.append(str(error))
            self.close()
            self._history = None
        return [UNKNOWN for _ in places]

    @cached_property
    def _logged(self) -> dict[str, datetime]:
        """Return the times at which messages became dead letters, keyed by message, as far back as the logs go."""
        lines = (step for path in logs_in(self._directory) for step in steps_in(path, (b'"dead-lettered"',)))
        return {step.message: datetime.fromisoformat(step.time) for step in lines}


# Audits


Answered = dict[str, Evidence]
"""The evidence about each message that a gateway has answered with 200, keyed by its identifier."""


class Forgotten(NamedTuple):
    """What is known about the messages that nodes have forgotten.

    messages: the number of such messages.
    keep_days: the number of days, while a node runs, for which it keeps ids by default.
    """

    messages: int
    keep_days: float


@dataclass
class Audit:
    """Everything known about the messages for which the answer was 200, and what could not be read."""

    answered: Answered
    unknown: Unknown
    forgotten: Forgotten | None = None

    def counted(self) -> dict[End, list[str]]:
        """Return the identifiers of the messages for each `End`, in the order of `End`."""
        ends: dict[End, list[str]] = {end: [] for end in End}
        for message, known in self.answered.items():
            ends[end_of(known)].append(message)
        return ends


def audited(
    place: Place, history: str = "", logs: Iterable[Path] = (), subject: str = "", *, strictly: bool = True
) -> Audit:
    """Read everything that is known about the messages of one system.

    Args:
        history: the URL of the document history; empty for the file in the folder of the stores.
        logs: further logs, in addition to those in the folder of the stores.
        subject: an identifier or a producer's id; only messages that have it are read, whoever sent them. Empty for all
            messages that a gateway has answered with 200.
        strictly: whether an unavailable history is an error; otherwise it is only reported.

    Raises:
        UsageError, HistoryError, StoreError, OSError: a file or the history cannot be read.
    """
    paths = list(dict.fromkeys(path.resolve() for path in (*logs_in(place.directory), *logs)))
    url = places.history_there(place.directory, history)
    try:
        with closing(Documents(url, None, only_reads=True)) if url else nullcontext() as documents:
            return _Reader(place, documents, paths, subject).read()
    except HistoryError as error:
        if strictly:
            raise
        audit = _Reader(place, None, paths, subject).read()
        audit.unknown.not_whole.append(str(error))
        return audit


class _Reader:
    """Reads everything that is known about the messages of one system.

    Args:
        history: the document history; None if there is none.
    """

    def __init__(self, place: Place, history: Documents | None, logs: list[Path], subject: str) -> None:
        self._place = place
        self._subject = subject
        self._history = history
        self._logs = logs
        self._answered: Answered = {}
        self._forgotten_count = 0
        self._called: Answered = {}
        """The evidence about each message, keyed by each of its identifiers."""
        self._named: dict[str, list[Evidence]] = defaultdict(list)
        """The evidence about messages, keyed by identifier and by producer's id.

        The envelope of a message that was sent again contains one of these keys.
        """

    def read(self) -> Audit:
        """Return everything that is known about each message for which the answer was 200."""
        later: list[Step] | None = self._read_accepted()
        self._index()
        for _ in range(PASSES):
            unknown = Unknown()
            self._read_logs(later)
            self._read_history()
            self._read_ends()
            if self._subject and later is not None and self._choose():
                self._read_logs(later)
                self._read_history()
            later = None
            for stored in messages_in(self._place, unknown) if self._is_in_stores() else ():
                with unknown.may_be_spoilt(stored):
                    self._find(stored)
            # What has ended meanwhile is in no store any more.
            self._read_history()
            self._read_ends()
            for known in self._answered.values():
                known.destination_is_here = known.node not in unknown.not_here
            audit = Audit(self._answered, unknown, Forgotten(self._forgotten_count, KEEP_S / DAY_S))
            if not audit.counted()[End.UNACCOUNTED]:
                break
        return audit

    def _index(self) -> None:
        self._called.clear()
        self._named.clear()
        for known in self._answered.values():
            self._called |= dict.fromkeys(known.names, known)
            for name in filter(None, (*known.names, known.key)):
                self._named[name].append(known)

    def _choose(self) -> bool:
        """Keep only the requested messages; return True if no gateway has accepted any of them."""
        self._answered = {
            message: known
            for message, known in self._answered.items()
            if is_called(self._subject, known.key, known.names)
        }
        if is_new := not self._answered:
            identifier = MessageId.parse(self._subject)
            keys = {str(identifier): ""} if identifier else messages_with(self._subject, self._logs)
            self._answered = {
                name: Evidence(key=key, names=[name], promised=False) for name, key in keys.items()
            }
        self._index()
        return is_new

    def _is_in_stores(self) -> bool:
        """Return whether the stores may have more information about the requested messages."""
        over = (End.RESOLVED, End.PROCESSED, End.RECEIVED)
        return not self._subject or any(end_of(known) not in over for known in self._answered.values())

    # What was answered 200

    def _read_accepted(self) -> list[Step]:
        """Read which messages were accepted; return the steps that gave messages new identifiers later."""
        later = []
        self._read_posted()
        kept_since = datetime.fromtimestamp(time.time() - KEEP_S, UTC).isoformat()
        for step in self._steps((b'"accepted"', *LATER)):
            # A node's line of this name has no key.
            if "copy" in step.facts:
                later.append(step)
            elif step.event == "accepted" and "key" in step.facts and step.message not in self._answered:
                self._answered[step.message] = Evidence(
                    str(step.facts.get("queue", "")),
                    str(step.facts["key"]),
                    [step.message],
                    heard_elsewhere="admin_queue" in step.facts,
                    is_old=step.time < kept_since,
                )
        return later

    def _read_posted(self) -> None:
        """Read the rows of the messages that were answered with 200.

        If messages are requested by a name that no row has, a later life of one may have it: then all rows are read.
        """
        for subject in dict.fromkeys((self._subject, "")):
            for name, row in self._rows():
                if row.queue and (not subject or is_called(subject, row.key, [name])):
                    elsewhere = bool(KeptFacts.of(row.about).admin_queue)
                    self._answered[name] = Evidence(row.queue, row.key, [name], heard_elsewhere=elsewhere)
            if self._answered:
                return

    def _rows(self) -> Iterator[tuple[str, PostedRow]]:
        """Yield the rows of the nodes whose stores are in the folder, each with its message's identifier."""
        self._forgotten_count = 0
        for name, node in self._place.topology.nodes.items():
            path = places.store_path(self._place.directory, name)
            if path.is_file():
                with closing(salvaged(SYSTEM_FILES, path)) as store:
                    later = [store.records[number].counters for number in sorted(store.records, reverse=True)]
                    self._forgotten_count += ChainMap(*later, store.counters).get(POSTED_FORGOTTEN, 0)
                    for row in store.posted():
                        yield str(MessageId(node.guid, row.message_id)), row

    def _read_ends(self) -> None:
        """Read from the rows how the messages ended, in each of their lives."""
        for name, row in self._rows():
            life = name if row.queue or not row.key else row.key
            known = self._called.get(life)
            # What an operator resolved was ended before.
            if row.message_class and known is not None and known.ends.get(life) != RESOLVED:
                known.ends[life], known.ended_s[life] = MessageClass(row.message_class).name, row.ended_s

    # What became of it

    def _steps(self, words: Collection[bytes]) -> Iterator[Step]:
        """Yield, from all logs, the steps whose lines contain one of these words."""
        return (step for path in self._logs for step in steps_in(path, words))

    def _read_logs(self, later: list[Step] | None) -> None:
        """Read the logs of gateways, triggers, nodes and operators."""
        for known in self._answered.values():
            known.removals.clear()
        # By these a message has other names: they come first, in the order of time.
        if later is None:
            later = [step for step in self._steps(LATER) if "copy" in step.facts]
        for step in sorted(later, key=lambda step: step.time):
            self._follow(step)
        for step in self._steps(TOLD):
            self._hear(step)

    def _follow(self, step: Step) -> None:
        """Add to the evidence a logged step that says what happened to a failed message."""
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
        """Return whether a copy comes from the node whose trigger would make it.

        Others can forge copies (`note_of`).
        """
        identifier, of_node = MessageId.parse(copy), self._place.topology.nodes.get(known.node)
        return copy in known.names or (
            identifier is not None and of_node is not None and identifier.manager == of_node.guid
        )

    def _read_history(self) -> None:
        few = [*self._called, *(known.key for known in self._answered.values())]
        keys = few if len(few) <= FEW else ()
        lives = {message: record for _, message, record in self._documents(LIVES)}
        for known in self._answered.values():
            for name in known.names:
                lived(known, name, lives.get(name, UNKNOWN))
                self._called[name] = known
        by_key = {(known.queue, name): known for name, known in self._called.items()}
        by_key |= {(known.queue, known.key): known for known in self._answered.values() if known.key}
        for _, message, record in self._documents(ENDS, keys):
            if (one := self._called.get(message)) is not None:
                ended(one, message, record)
        for scope, key, record in self._documents(TRIGGER, keys):
            queue = scope.removeprefix(TRIGGER)
            if (about := by_key.get((queue, key)) or by_key.get(("", key))) is not None:
                about.queue = queue
                called(about, record)

    def _documents(self, scope: str, keys: Collection[str] = ()) -> Iterator[tuple[str, str, Record]]:
        return iter(()) if self._history is None else self._history.everything(scope, keys)

    def _find(self, stored: StoredMessage) -> None:
        message = stored.message
        is_letter = stored.queue in DEAD_LETTERS or is_chosen_letter(message.packet)
        name = str(message.id)
        if (known := self._called.get(name)) is not None:
            if not known.promised:
                known.queue = known.queue or destination_of(self._place.topology, message)
                known.key = known.key or Envelope.of(message.extension).producer_key
            known.found(stored.kind, stored.node, stored.queue, is_letter=is_letter)
            if is_letter:
                known.ends.setdefault(name, message.message_class)
        elif message.record.properties.message_class and not is_letter:
            self._confirm(message)
        else:
            note = note_of(self._place.topology, stored.node, stored.queue, message)
            known = self._called.get(note.message) if note else None
            key = Envelope.of(message.extension).producer_key
            named = self._named.get(key, ())
            if note and known and not known.promised:
                known.queue, known.key = note.queue, key
            for one in [known] if known else [one for one in named if one.has_ended]:
                if note is None:
                    one.found(stored.kind, stored.node, stored.queue)
                elif stored.kind is QueueKind.LOCAL:
                    one.copied, one.where = note.failure, f"{stored.node}\\{stored.queue}"

    def _confirm(self, message: ReceivedMessage) -> None:
        """Add an acknowledgment found in a store to the evidence about its message.

        Its gateway has not read the acknowledgment yet, or the acknowledgment is on its way to the sender.
        """
        body = acknowledgment_in(message.record)
        of_final = MessageId(body.source_guid, body.message_id) if isinstance(body, FinalAckBody) else None
        name = str(of_final or message.correlation)
        known = self._called.get(name)
        if known is not None and message.message_class in MessageClass.__members__:
            known.ends[name] = message.message_class

    def _hear(self, step: Step) -> None:
        """Add to the evidence a step from the log of a gateway or trigger.

        The name of a gateway or trigger in a log consists of two words. Of other programs, only the events `accepted`
        and `committed` count.
        """
        name = step.message
        known = self._called.get(name)
        if known is None or (" " not in step.who and step.event not in ("accepted", "committed")):
            return
        is_triggers = "attempt" in step.facts
        match step.event:
            case "accepted":
                known.queue = known.queue or known_as(self._place.topology, str(step.facts.get("queue", "")))
            case "committed" | "duplicate-dropped" if is_triggers:
                known.processed = True
            case "dead-lettered" | "in-doubt" if is_triggers:
                known.attempted |= name == known.names[-1]
            case "committed" if step.facts.get("class") == RECEIVED:
                known.ends.setdefault(name, RECEIVED)
            case "received":
                known.ends.setdefault(name, RECEIVED)
            case "dead-lettered":
                known.ends.setdefault(name, str(step.facts.get("reason", "")))
