"""Sends the messages that `mqproto store export` has written: `mqproto send --import FILE`.

Each becomes a new message, as if an application had sent it. A message that cannot be sent unchanged is named, with the
reason. No message is left out silently, and no message is sent that another node also sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, NamedTuple

from mqproto.base.errors import FormatNameError, UsageError, WireFormatError
from mqproto.formatname.wire import destination_from_wire
from mqproto.manager.deadletters import draft_of
from mqproto.messages.drafts import Draft, is_letter, path_name_in
from mqproto.queues.localqueue import DEAD_LETTERS, JOURNAL_SUFFIX
from mqproto.simulator.node.received import MessageId
from mqproto.simulator.storage.care.export import Exported, message_in
from mqproto.turn.effects import QueueKind
from mqproto.wire import MessageClass, UserMessage, decode_message
from mqproto.wire.guid import Guid, guid_text

ONLY_IF_NAMED: Final = "name a QUEUE to have it sent there"


class LeftOut(NamedTuple):
    """A message that is not sent.

    line: the message's line number, counted from 1.
    message: its identifier; empty if it cannot be read.
    """

    line: int
    message: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {f'{self.message} ' * bool(self.message)}is left out: {self.reason}"


class Run(NamedTuple):
    """Consecutive messages of one kind for one queue. One request may carry them all if they fit."""

    destination: str
    drafts: list[Draft]


class ImportedMessage(NamedTuple):
    """A message to send.

    may_have_left: whether the message has been, or may have been, sent before, and so may arrive a second time.
    """

    line: int
    message: str
    destination: str
    draft: Draft
    may_have_left: bool

    @property
    def kind(self) -> tuple[str, bool, bool]:
        """The properties that all messages of one request share."""
        return self.destination, self.draft.transactional, self.draft.recoverable


@dataclass(slots=True)
class Import:
    """The messages to send, in the order of the file, and the messages that are left out.

    nodes: the nodes from whose stores the messages come.
    """

    chosen: list[ImportedMessage] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    nodes: set[Guid] = field(default_factory=set)

    def leave_out(self, why: Callable[[str, bool], str | None]) -> None:
        """Leave out further messages.

        Args:
            why: a function that takes a destination and whether the message is transactional. It returns the reason why
                the message cannot be sent, or None if it can.
        """
        kept = []
        for one in self.chosen:
            reason = why(one.destination, one.draft.transactional)
            if reason is None:
                kept.append(one)
            else:
                self.left_out.append(LeftOut(one.line, one.message, reason))
        self.chosen = kept
        self.left_out.sort()

    def runs(self) -> list[Run]:
        """Return the messages to send, in groups that one request may carry."""
        return [
            Run(destination, [one.draft for one in run])
            for (destination, *_), run in groupby(self.chosen, lambda one: one.kind)
        ]


class _LeaveOutError(Exception):
    """A message cannot be sent; the text says why."""


def read_import(lines: Iterable[str], where: str, queue: str | None, *, has_journal: bool) -> Import:
    """Read the messages of an export.

    Args:
        where: the name of the file.
        queue: the destination of all messages; None to use each message's own destination.
        has_journal: whether the messages are sent with a journal, which may outlive express messages.

    Raises:
        UsageError: a line is not from an export, or was changed by hand.
    """
    found = Import()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            exported = message_in(line)
        except UsageError as error:
            raise UsageError(f"{where}, line {number}: {error}") from None
        if exported.node is not None:
            found.nodes.add(exported.node)
        name = ""
        try:
            message = _readable(exported)
            name = str(MessageId(message.user.source_queue_manager, message.user.message_id))
            _see_that_it_is_ours_to_send(exported, message, named=queue is not None)
            destination, draft = (
                queue or _destination(message),
                _draft(exported, message, named=queue is not None),
            )
            if has_journal and not (draft.recoverable or draft.transactional):
                raise _LeaveOutError(
                    "it is express, and --resume keeps what outlives a node: import it without"
                )
        except _LeaveOutError as reason:
            found.left_out.append(LeftOut(number, name, str(reason)))
        else:
            found.chosen.append(ImportedMessage(number, name, destination, draft, exported.may_have_left))
    return found


def _readable(exported: Exported) -> UserMessage:
    try:
        return decode_message(exported.packet)
    except WireFormatError as error:
        raise _LeaveOutError(f"its packet makes no sense: {error}") from None


def _see_that_it_is_ours_to_send(exported: Exported, message: UserMessage, *, named: bool) -> None:
    """Check that the message is ours to send, and can be sent from here.

    Raises:
        _LeaveOutError: another node has the message or sends it; it has arrived already; no application sends such
            messages; it is signed or encrypted, or has a SOAP header; or it may be sent only to a named queue, and none
            was named.
    """
    source = message.user.source_queue_manager
    is_ours = exported.node in (None, source)
    is_dead = exported.kind is QueueKind.LOCAL and (
        exported.queue in DEAD_LETTERS or is_letter(exported.packet)
    )
    message_class = message.properties.message_class
    if message_class != MessageClass.NORMAL and not is_dead:
        known = message_class in MessageClass._value2member_map_
        called = MessageClass(message_class).name if known else f"of class {message_class:#06x}"
        raise _LeaveOutError(f"it is {called}, which no application sends")
    match exported.kind:
        case None if not named:
            raise _LeaveOutError(f"nothing says in which queue it lay: {ONLY_IF_NAMED}")
        case QueueKind.HELD:
            raise _LeaveOutError(f"it came early, and {guid_text(source)} keeps it and sends it again")
        case QueueKind.FINAL:
            raise _LeaveOutError("it has arrived, and only its FinalAck was waited for")
        case QueueKind.ORDER:
            raise _LeaveOutError("it is between queue managers")
        case QueueKind.OUTGOING | QueueKind.SEQUENCE if not is_ours and message.transaction is not None:
            raise _LeaveOutError(
                f"it was passing through, and {guid_text(source)} keeps it and sends it again"
            )
        case QueueKind.OUTGOING if not is_ours and not named:
            raise _LeaveOutError(f"it was passing through from {guid_text(source)}: {ONLY_IF_NAMED}")
        case QueueKind.LOCAL if is_dead and not named:
            raise _LeaveOutError(f"it is a dead letter: {ONLY_IF_NAMED}")
        case QueueKind.LOCAL if exported.queue.endswith(JOURNAL_SUFFIX) and not named:
            raise _LeaveOutError(f"it is a journal's copy: {ONLY_IF_NAMED}")
    if message.security is not None and not message.security.has_sid_alone:
        raise _LeaveOutError("it has a signature or is encrypted, which its sender alone can make again")
    if message.soap is not None:
        raise _LeaveOutError("it has a SOAP header, and such messages are not sent from here")


def _destination(message: UserMessage) -> str:
    user = message.user
    try:
        name = destination_from_wire(
            user.destination_type, user.destination_queue, user.queue_manager_address
        )
    except FormatNameError as error:
        raise _LeaveOutError(f"it is for no queue that has a name here ({error})") from None
    if name is None:
        raise _LeaveOutError("it is for no queue")
    return str(name)


def _draft(exported: Exported, message: UserMessage, *, named: bool) -> Draft:
    """Return the message as an application's draft, without its list of destinations if a queue was named."""
    try:
        draft = draft_of(message)
        if exported.node in (None, message.user.source_queue_manager):
            name = path_name_in(message.trailing).rpartition("\\")[2]
            draft = replace(draft, dead_letter_queue=name)
        if named and draft.destinations:
            draft = replace(draft, destinations=())
        draft.check()
    except (FormatNameError, UsageError) as error:
        raise _LeaveOutError(f"such a message is not sent from here ({error})") from None
    return draft
