"""The commands of applications, which send, receive and peek."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqproto import bodies as contents
from mqproto.base.errors import FormatNameError, UsageError
from mqproto.base.foreign import quoted
from mqproto.manager.deadletters import trace_queue_of
from mqproto.messages.drafts import (
    ACKNOWLEDGE_ARRIVAL,
    ACKNOWLEDGE_RECEIPT,
    BODY_LIMIT_BYTES,
    REPORT_NO_ARRIVAL,
    REPORT_NO_RECEIPT,
    Draft,
)
from mqproto.queues.protection import fingerprint
from mqproto.simulator.client import MessageId, ReceivedMessage, Reject, connect
from mqproto.simulator.client.envelope import Envelope, FailureNote, envelope_typed
from mqproto.simulator.client.live import as_it_is, host_of
from mqproto.simulator.client.submission import receive_all, send_all, send_runs
from mqproto.simulator.security.guarding import is_installed
from mqproto.simulator.security.keyfiles import SIGNING
from mqproto.simulator.topology import Topology, places
from mqproto.simulator.topology.errors import nearest
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.resolve import is_bare, is_elsewhere
from mqproto.turn.guard import CIPHERS, STRONG, cipher_named
from mqproto.wire import INFINITE, sid_from_text

if TYPE_CHECKING:
    # It brings the readers of captures: a sixth of what every other `send` would wait for.
    from mqproto.simulator.client.imported import Import

TRANSACTION_LIMIT: Final = 500
"""The maximum number of messages in one transaction of `receive`.

More messages are received in several transactions.
"""


ACKNOWLEDGMENTS: Final = {
    "arrival": ACKNOWLEDGE_ARRIVAL,
    "receipt": ACKNOWLEDGE_RECEIPT,
    "no-arrival": REPORT_NO_ARRIVAL,
    "no-receipt": REPORT_NO_RECEIPT,
}
"""The acknowledgments for an administration queue, keyed by the words that users type for them."""


def acknowledgments(
    admin_queue: str,
    chosen: Sequence[str] | None,
    name: str = "--ack",
    where: str = "--admin-queue QUEUE",
) -> int:
    """Return the requested value of Draft.acknowledgments.

    If there is an administration queue, the default is all.

    Args:
        name: the name of the option for acknowledgments, in error texts.
        where: the option for the queue, in error texts.

    Raises:
        UsageError: there is no such acknowledgment, or there is no queue for it.
    """
    if chosen and not admin_queue:
        raise UsageError(f"{name} asks for acknowledgments: say where they are to go with {where}")
    flags = 0
    for each in chosen or (ACKNOWLEDGMENTS if admin_queue else ()):
        if each not in ACKNOWLEDGMENTS:
            raise UsageError(f"{name} {each}: {nearest(each, ACKNOWLEDGMENTS)}")
        flags |= ACKNOWLEDGMENTS[each]
    return flags


def correlation_id(typed: str) -> bytes:
    """Return the correlation id that a text stands for; zeros for an empty text.

    Raises:
        UsageError: it is neither a message's identifier nor 20 bytes.
    """
    if not typed:
        return bytes(20)
    if (about := MessageId.parse(typed)) is not None:
        return about.correlation_id
    if re.fullmatch(r"[0-9A-Fa-f]{40}", typed):
        return bytes.fromhex(typed)
    raise UsageError(
        rf"--correlation-id {quoted(typed)}: write a message's identifier, GUID\number as `mqproto send` prints it, "
        "or 20 bytes as 40 hexadecimal digits"
    )


def privacy(cipher: str, *, encrypts: bool, name: str = "--cipher ") -> tuple[int, int]:
    """Return Draft.privacy_level and Draft.encryption_algorithm for a cipher.

    Args:
        cipher: the name of the cipher; may be empty.
        encrypts: whether to use the strongest cipher if none is named; if not, both values are 0 in that case.
        name: the name of the cipher's option, in error texts.

    Raises:
        UsageError: there is no such cipher.
    """
    if not cipher:
        return (STRONG if encrypts else 0), 0
    found = CIPHERS.get(cipher_named(cipher))
    if found is None:
        raise UsageError(f"{name}{cipher}: {nearest(cipher, CIPHERS)}")
    return found


def signer(user: str, *, signs: bool) -> str:
    """Return the name of the signing key on the node: a user's, or the node's own; empty for none."""
    return user or (SIGNING if signs else "")


def sender_id(typed: str) -> str:
    """Return the given SID after checking it; an empty text stands for none.

    Raises:
        UsageError: the text is not a SID.
    """
    if typed:
        sid_from_text(typed)
    return typed


def extension(text: str | None, file: Path | None, headers: Sequence[str] = ()) -> bytes:
    """Return the extension, which may be given in one of three ways; empty if none was given.

    Args:
        headers: texts of the form `NAME: VALUE`, for the consumer that a trigger calls.

    Raises:
        UsageError: several were given, a header cannot be put into an envelope, or the file is unreadable or too long.
    """
    if (text is not None) + (file is not None) + bool(headers) > 1:
        raise UsageError(
            "give one extension: --extension TEXT, --extension-file FILE, or --header, which makes one"
        )
    if headers:
        return envelope_typed(headers).as_extension()
    data = text.encode("utf-8", "surrogateescape") if text is not None else b""
    if file is not None:
        data = _contents(file, BODY_LIMIT_BYTES + 1)
    _check_length([data], "extension")
    return data


def _contents(file: Path, limit_bytes: int) -> bytes:
    """Return up to `limit_bytes` bytes of a file, or all of it if the limit is negative."""
    try:
        with file.open("rb") as stream:
            return stream.read(limit_bytes)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file to send") from None


def bodies(*, body: str | None, file: Path | None, stdin: str | None, lines: bool) -> list[bytes]:
    """Return the bodies, given in one of three ways, or the lines of standard input if it is a pipe.

    Raises:
        UsageError: none or several were given, or a body cannot be read, or is too long.
    """
    if lines and (body, file, stdin) == (None, None, None) and not sys.stdin.isatty():
        stdin = "-"
    if stdin not in (None, "-"):
        raise UsageError(f"{stdin!r} after the queue: write - for stdin, --body TEXT or --file PATH")
    if sum(given is not None for given in (body, file, stdin)) != 1 or (lines and body is not None):
        raise UsageError("give one body: --body TEXT, or --file PATH or - for stdin, alone or with --lines")
    if body is not None:
        data = body.encode("utf-8", "surrogateescape")
    elif file is not None:
        data = _contents(file, -1 if lines else BODY_LIMIT_BYTES + 1)
    else:
        data = sys.stdin.buffer.read()
    found = (
        [line.rstrip(b"\r") for line in data.removesuffix(b"\n").split(b"\n")] if lines and data else [data]
    )
    _check_length(found)
    return found


def typed(found: Sequence[bytes], kind: str) -> tuple[list[bytes], int]:
    """Return the bodies that encode these texts, and their body type.

    The kinds are listed in `mqproto.bodies.typed`.

    Raises:
        UsageError: there is no such kind, a text is not a value of it, or a body is too long.
    """
    made = [contents.body_of_text(text, kind) for text in found]
    _check_length([body for body, _ in made])
    return [body for body, _ in made], made[0][1]


def _check_length(found: Sequence[bytes], what: str = "body") -> None:
    if max(map(len, found)) > BODY_LIMIT_BYTES:
        raise UsageError(
            f"the {what} is too long: a message carries at most {BODY_LIMIT_BYTES:,} bytes; send several"
        )


async def send(
    place: Place,
    node: str | None,
    queue: str,
    found: Sequence[bytes],
    like: Draft,
    journal: Path | None = None,
    handed_over: Callable[[int], None] = lambda count: None,
    *,
    transactional: bool | None = None,
    together: bool = False,
) -> list[str]:
    """Send each body, and return the identifiers.

    With a journal, send only bodies that it does not have yet.

    Args:
        like: a draft with the properties that all messages have in common.
        transactional: whether the messages are transactional; None to follow the queue's declaration.
        together: whether all messages form one transaction.
        handed_over: a function that is called if the messages are sent in several parts. It is called after every
            TRANSACTION_LIMIT messages with the number of messages handed over so far.

    Raises:
        UsageError: the queue is unknown, or does not take such messages.
        NodeUnreachable: the node is not running.
    """
    at = place.topology.node_named(node).name if node else next(iter(place.topology.nodes))
    typed = [name.strip() for name in queue.split(",")]
    place = await as_it_is(place, *typed, at=at)
    topology = place.topology
    names = [_whole(place, name) for name in typed]
    takes_transactional = {name: _takes_transactional(topology, name, at) for name in names}
    was_said = transactional is not None
    if transactional is None:
        transactional = next((takes for takes in takes_transactional.values() if takes is not None), False)
    for name, takes in takes_transactional.items():
        if takes is not None and transactional != takes:
            # Its queue manager would drop them without a word.
            kind, option = ("transactional", "--no-") if takes else ("not transactional", "--")
            hint = f"leave {option}transactional out" if was_said else "send to it by itself"
            raise UsageError(f"{name} is {kind} and takes no others: {hint}")
    if not transactional and (option := "transaction" * together or "final-ack" * like.final_ack):
        raise UsageError(f"{queue} is not transactional: leave --{option} out")
    drafts = [replace(like, body=body, transactional=transactional) for body in found]
    names_of_all = ",".join(place.name_at(at, name) for name in names)
    async with connect(topology, at, place.directory, journal=journal) as client:
        if journal is not None:
            if together:
                raise UsageError(
                    "--resume goes on with what is not sent yet, and --transaction is all or none: choose"
                )
            sent = await send_all(client, names_of_all, drafts)
        elif together:
            sent = await client.send_together([(names_of_all, draft) for draft in drafts])
        else:
            sent = await client.send_many(names_of_all, _counted(drafts, handed_over))
        return [str(identifier) for identifier in sent]


def _counted(drafts: Sequence[Draft], tell: Callable[[int], None]) -> Iterator[Draft]:
    for count, draft in enumerate(drafts, 1):
        yield draft
        if count % TRANSACTION_LIMIT == 0:
            tell(count)


@dataclass(frozen=True, slots=True)
class Importing:
    """An import that is about to be sent, and the node that sends it."""

    place: Place
    node: str
    found: Import
    journal: Path | None

    async def send(self, show: Callable[[list[str]], None]) -> None:
        """Send all messages, and show the identifiers of each run as soon as its messages are accepted.

        With a journal, all identifiers are shown at the end.

        Raises:
            UsageError: a message cannot be sent.
            NodeUnreachable: the node is not running.
        """
        runs, done = self.found.runs(), 0
        async with connect(
            self.place.topology, self.node, self.place.directory, journal=self.journal
        ) as client:
            if self.journal is not None:
                show([str(identifier) for identifier in await send_runs(client, runs)])
                return
            for destination, drafts in runs:
                try:
                    sent = await client.send_many(destination, drafts)
                except UsageError as error:
                    count = len(self.found.chosen)
                    raise UsageError(
                        f"{done:,} or more of {count:,} messages are sent, and then: {error}"
                    ) from None
                show([str(identifier) for identifier in sent])
                done += len(drafts)


def importing(
    place: Place, node: str | None, queue: str | None, file: Path, journal: Path | None
) -> Importing:
    """Prepare to import a file from `mqproto store export`, and leave out the messages that cannot be sent.

    Args:
        place: the place with the current queues, from `mqproto.simulator.client.live.as_it_is`.
        file: the file, or - for stdin.

    Raises:
        UsageError: the file cannot be read, or is not an export; or its messages are from the stores of several nodes,
            and no node is named.
    """
    from mqproto.simulator.client.imported import read_import

    topology = place.topology
    if queue is not None:
        names = [_whole(place, name.strip()) for name in queue.split(",")]
        at = topology.node_named(node).name if node else next(iter(topology.nodes))
        queue = ",".join(place.name_at(at, name) for name in names)
    try:
        with nullcontext(sys.stdin) if str(file) == "-" else file.open(encoding="utf-8") as lines:
            found = read_import(lines, str(file), queue, has_journal=journal is not None)
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{file}: {said}; name a file of `mqproto store export`") from None
    at = topology.node_named(node).name if node else _node_of(topology, found)

    @cache
    def refusal(destination: str, transactional: bool) -> str | None:
        for name in [destination] if queue is None else destination.split(","):
            try:
                takes = _takes_transactional(topology, name, at)
                if takes is None and not name.upper().startswith("DIRECT="):
                    topology.resolve(
                        name, at=at
                    )  # Of such a name its node would say more, and nothing be sent then.
            except (UsageError, FormatNameError) as error:
                return str(error)
            if takes is not None and takes != transactional:
                return f"{name} is {'not ' * (not takes)}transactional, and the message is{' not' * takes}"
        return None

    found.leave_out(refusal)
    return Importing(place, at, found, journal)


def _node_of(topology: Topology, found: Import) -> str:
    """Return the node whose store the messages are from; if it is not in the topology, the first node.

    Raises:
        UsageError: they are from the stores of several nodes of the topology.
    """
    known = sorted(one.name for guid in found.nodes if (one := topology.node_by_guid(guid)) is not None)
    if len(known) > 1:
        raise UsageError(f"they are from stores of {', '.join(known)}: say with --node who is to send them")
    return known[0] if known else next(iter(topology.nodes))


def _whole(place: Place, queue: str) -> str:
    """Return a queue's full name: the node is added if it is missing."""
    return f"{places.host_of(place, None, queue)}\\{queue}" if is_bare(queue) else queue


def _takes_transactional(topology: Topology, queue: str, at: str) -> bool | None:
    """Return whether a queue takes only transactional messages; None if the queue is unknown."""
    if is_elsewhere(topology, queue):
        return None
    found = topology.resolve(queue, at=at)
    if found.queue is None:
        return False if found.format_name.read_only else None
    return found.queue.transactional


async def receive(
    place: Place,
    node: str | None,
    queue: str,
    count: int,
    timeout_s: float,
    *,
    show: Callable[[ReceivedMessage], None],
    reject: bool = False,
    journal: Path | None = None,
) -> int:
    """Receive up to `count` messages in transactions, and show each before its transaction ends.

    Return how many messages were shown.

    Args:
        reject: whether each transaction refuses its messages for good.
        journal: keeps the received messages, so transactions are not needed. Messages that are already in it are shown
            first, and are counted too.

    Raises:
        UsageError: the queue is unknown, or belongs to another node; or the journal is for something else.
        NodeUnreachable: the node is not running.
    """
    found = 0
    name = await host_of(place, node, queue)
    async with connect(place.topology, name, place.directory, journal=journal) as client:
        if journal is not None:
            async for message in receive_all(client, queue, count, timeout_s, TRANSACTION_LIMIT):
                show(message)
                found += 1
            sys.stdout.flush()
            return found
        while found < count:
            limit = min(count - found, TRANSACTION_LIMIT)
            async with client.transaction(queue, limit=limit, timeout_s=timeout_s) as messages:
                for message in messages:
                    show(message)
                sys.stdout.flush()
                found += len(messages)
                if reject and messages:
                    raise Reject
            if not messages:
                break
    return found


async def peek(place: Place, node: str | None, queue: str, count: int) -> list[ReceivedMessage]:
    """Return the first messages of a queue, and leave them there. The errors are those of `receive`."""
    async with connect(place.topology, await host_of(place, node, queue), place.directory) as client:
        return await client.peek(queue, limit=count)


def show_message(message: ReceivedMessage, *, as_json: bool) -> None:
    """Print one message on stdout: its body and a newline, or one line of JSON.

    For an acknowledgment, a dead letter or a report, its meaning and the message's identifier come before the body.
    """
    if as_json:
        print(json.dumps(message_as_json(message), ensure_ascii=False))
        return
    is_about_one = message.message_class != "NORMAL"
    if is_about_one:
        print(f"{message.message_class} {message.correlation or message.id}")
    if message.body or not is_about_one:
        sys.stdout.flush()
        body = _on_a_terminal(message.body) if sys.stdout.isatty() else message.body
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.buffer.flush()
        if words := protection_words(message):
            print(f"{message.id}: {words}", file=sys.stderr)


def _on_a_terminal(body: bytes) -> bytes:
    """Return the body, with escapes for the bytes that are not text, because they could upset a terminal."""
    text = body.decode("utf-8", "backslashreplace")
    shown = (char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
    return "".join(shown).encode("utf-8")


def message_as_json(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as values for programs: its properties, named as for `send`, and its decoded body.

    The body and the extension are text if they are UTF-8; otherwise they are Base64.
    """
    record = message.record
    note = FailureNote.of(message.extension)
    transaction, trace_queue = record.transaction, trace_queue_of(record)
    marks = {
        "recoverable": record.user.recoverable and transaction is None,
        "dead_letter": record.user.journal_negative,
        "journal": record.user.journal_positive,
        "final_ack": transaction is not None and transaction.final_ack,
    }
    times = {
        "time_to_reach_queue_s": record.base.time_to_reach_queue_s,
        "time_to_be_received_s": record.user.time_to_be_received_s,
    }
    asked_for = [name for name, flag in ACKNOWLEDGMENTS.items() if message.acknowledgments & flag]
    body_type = message.body_type
    return {
        "id": str(message.id),
        "label": message.label.encode("utf-8", "replace").decode("utf-8"),
        "transactional": message.transactional,
        "priority": message.priority,
        **({"destinations": message.destinations} if message.destinations else {}),
        **({} if message.message_class == "NORMAL" else {"class": message.message_class}),
        **{name: True for name, is_set in marks.items() if is_set},
        **{name: seconds for name, seconds in times.items() if seconds != INFINITE},
        **({"correlation": str(message.correlation)} if message.correlation else {}),
        **({"application_tag": message.application_tag} if message.application_tag else {}),
        **({"sender_id": message.sender_id} if message.sender_id else {}),
        **_protection(message),
        **({"dead_letter_queue": message.dead_letter_queue} if message.dead_letter_queue else {}),
        **({"trace_queue": trace_queue} if trace_queue else {}),
        **({"admin_queue": message.admin_queue} if message.admin_queue else {}),
        **({"acknowledgments": asked_for} if asked_for else {}),
        **({"response_queue": message.response_queue} if message.response_queue else {}),
        **({"failure": note.failure, "reason": note.reason, "attempts": note.attempts} if note else {}),
        **(_as_text("extension", message.extension) if message.extension else {}),
        **_travelling(Envelope.of(message.extension)),
        **_as_text("body", message.body),
        **({"body_type": body_type} if body_type else {}),
        **contents.describe(contents.read_body(message.body, body_type, message.extension)),
    }


def _travelling(envelope: Envelope) -> dict[str, Any]:
    """Return the properties that an HTTP consumer gets with the message.

    The headers are in the same form as the headers in a body (mqproto/bodies/body.py).
    """
    told: dict[str, Any] = {}
    if envelope.content_type:
        told["content_type"] = envelope.content_type
    if envelope.producer_key:
        told["producer_key"] = envelope.producer_key
    if envelope.headers:
        told["headers"] = {"sender": "mqproto", "fields": envelope.headers}
    return told


def _protection(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message's verified signer, and the cipher that protected it on its way; empty if there is neither."""
    told: dict[str, Any] = {}
    if message.cipher:
        told["encrypted"] = message.cipher
    if message.signature:
        told["signature"] = message.signature
        told["signed_by"] = signer_of(message.certificate)
        told["certificate"] = fingerprint(message.certificate)
    elif message.cipher or message.sender_id:
        told["authenticated"] = False
    return told


def protection_words(message: ReceivedMessage) -> str:
    """Return a description of a message's signer and cipher, on one line; empty if it had neither."""
    told = _protection(message)
    parts = [f"encrypted with {told['encrypted']}"] if "encrypted" in told else []
    if "signature" in told:
        parts.append(f"signed by {told['signed_by']} ({told['signature']})")
    elif parts:
        parts.append("not authenticated")
    return ", ".join(parts)


def signer_of(certificate: bytes) -> str:
    """Return the name in a certificate, or a placeholder if it cannot be read."""
    if is_installed():
        from mqproto.security import Certificate

        try:
            return Certificate.from_bytes(certificate).subject
        except UsageError:
            pass
    return f"certificate {fingerprint(certificate)}"


def _as_text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
