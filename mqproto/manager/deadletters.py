"""Sends messages from dead-letter queues and journals to their destinations again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.base.moment import Moment
from mqproto.formatname import PublicName
from mqproto.formatname.wire import admin_from_wire, destinations_from_wire, response_from_wire
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.sending import Sending
from mqproto.messages.destinations import destination_in
from mqproto.messages.drafts import Draft, is_letter, path_name_in
from mqproto.messages.listing import list_of_all
from mqproto.routing import Routes
from mqproto.turn.desk import Desk
from mqproto.turn.effects import MessageRow
from mqproto.turn.guard import is_signed
from mqproto.wire import UserMessage, decode_message


class DeadLetters:
    """Sends kept messages again, each as a new message with a new time and a new number."""

    def __init__(self, desk: Desk, routes: Routes, queues: LocalQueues, sending: Sending) -> None:
        self._desk = desk
        self._routes = routes
        self._queues = queues
        self._sending = sending

    def send_back(self, name: str, keys: Sequence[int] | None, now: Moment) -> int:
        """Send messages from a dead-letter queue or a journal to their destinations again.

        Return the number of these messages.

        If applications have chosen the queue for their dead letters, only the dead letters in it are sent.

        Raises:
            UsageError: the queue does not exist, or is of another kind.
        """
        queue = self._queues.named(name)
        kept = queue.peek(queue.count)
        if not queue.is_system:
            kept = [one for one in kept if is_letter(one.packet)]
            if not kept:
                raise UsageError(
                    f"{queue.name} is neither a dead-letter queue nor a journal: receive from it and send instead"
                )
        wanted = None if keys is None else set(keys)
        chosen = [one for one in kept if wanted is None or one.key in wanted]
        sent = 0
        for one in chosen:
            if (again := self._send(one, now)) is not None:
                queue.take_out(one.key, again)
                sent += 1
        self._queues.stir(queue)
        return sent

    def _send(self, kept: MessageRow, now: Moment) -> int | None:
        """Send a message again. Return its new MessageID; None if it no longer has a destination."""
        message = decode_message(kept.packet)
        try:
            destination = destination_in(message, self._routes, self._desk.identity)
            if destination is None:
                return None
            draft = draft_of(message)
            if message.user.source_queue_manager == self._desk.identity:
                draft = replace(draft, dead_letter_queue=self._chosen_queue(message))
            if is_signed(message) and message.security is not None:
                # A message that somebody else signed goes on unsigned.
                signer = self._desk.guard.name_of(message.security.sender_cert)
                draft = replace(draft, signer=signer, hash_algorithm=message.properties.hash_algorithm)
            [again] = self._sending.enqueue([(destination, draft)], now)
        except (UsageError, FormatNameError):
            return None
        return again

    def _chosen_queue(self, message: UserMessage) -> str:
        """Return the queue that a message's application chose for dead letters.

        It is empty if the application chose none, or if the queue is gone.
        """
        path_name = path_name_in(message.trailing)
        if not path_name:
            return ""
        queue = self._queues.for_letters(path_name, transactional=message.transaction is not None)
        return queue.name if queue is not None else ""


def draft_of(message: UserMessage) -> Draft:
    """Return the application's draft of a message, as far as the packet shows it.

    Raises:
        UsageError: the packet does not show the draft, because its body is encrypted.
        FormatNameError: its administration or response queue has no name here.
    """
    user, properties = message.user, message.properties
    security = message.security
    if security is not None and security.body_encrypted and security.encryption_key:
        raise UsageError("its body is encrypted, and who receives it would not know")
    ends = user.source_queue_manager, user.queue_manager_address
    admin = admin_from_wire(user.admin_type, user.admin_queue, *ends)
    response = response_from_wire(user.response_type, user.response_queue, *ends, admin)
    return Draft(
        body=properties.message_body,
        label=properties.label or "",
        transactional=message.transaction is not None,
        recoverable=user.recoverable,
        priority=message.base.priority,
        extension=properties.extension_data,
        body_type=properties.body_type,
        application_tag=properties.application_tag,
        correlation_id=properties.correlation_id,
        time_to_reach_queue_s=message.base.time_to_reach_queue_s,
        time_to_be_received_s=user.time_to_be_received_s,
        journal_negative=user.journal_negative,
        journal_positive=user.journal_positive,
        final_ack=message.transaction is not None and message.transaction.final_ack,
        admin_queue=str(admin) if admin else "",
        response_queue=str(response) if response else "",
        acknowledgments=properties.flags & 0xF if admin else 0,
        trace_queue=trace_queue_of(message),
        sender_id=security.sid if security else "",
        privacy_level=properties.privacy_level,
        encryption_algorithm=properties.encryption_algorithm if properties.privacy_level else 0,
        destinations=_destinations(message),
    )


def _destinations(message: UserMessage) -> tuple[str, ...]:
    """Return the queues in the header's list of copies.

    The result is empty if the list has more queues than we would send to. Names that cannot be read, or that we cannot
    send to, are left out.
    """
    if message.multi_queue_format is None:
        return ()
    listed = destinations_from_wire(message.multi_queue_format)
    names = tuple(str(name) for name in listed if not name.read_only)
    try:
        list_of_all(names)
    except UsageError:
        return ()
    return names


def trace_queue_of(message: UserMessage) -> str:
    """Return the format name of the queue for reports about a message; empty if the message is not traced."""
    guid = message.debug.queue_identifier if message.debug else None
    return "" if guid is None else str(PublicName(guid))
