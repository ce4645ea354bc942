"""Sends or receives a known number of messages, over any number of restarts.

This is for `mqproto send --resume FILE` and `mqproto receive --resume FILE`. The journal knows how much of the work is
done. A killed command can therefore be started again with the same arguments, and continues where it stopped. No
message is lost or doubled, and the last run prints the same as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.client.client import Client, as_parts
from mqproto.simulator.client.journal import Journal
from mqproto.simulator.node import control
from mqproto.simulator.node.control import InDoubt, RolledBack
from mqproto.simulator.node.received import MessageId, ReceivedMessage, received


class SentPart(msgspec.Struct, array_like=True, tag="sent"):
    """The tag of the messages that one request carried.

    first: the position of the first of these messages among all that are to be sent.
    count: the number of these messages.
    digest: a digest of the request.
    """

    first: int
    count: int
    digest: bytes


class TakenPart(msgspec.Struct, array_like=True, tag="taken"):
    """The tag of messages that were taken from a queue. It contains them as packets."""

    queue: str
    packets: list[bytes]


LATER: Final = (
    "sender_id",
    "privacy_level",
    "encryption_algorithm",
    "signer",
    "hash_algorithm",
    "dead_letter_queue",
)
"""The fields that drafts did not have in earlier versions."""
_decoder = msgspec.msgpack.Decoder(SentPart | TakenPart)


async def send_all(client: Client, destination: str, drafts: Sequence[Draft]) -> list[MessageId]:
    """Send the messages that are not yet in the client's journal, in order.

    Return the identifiers of all messages.

    Raises:
        UsageError: a message cannot be sent; or the journal is for other messages, destinations or options.
        InDoubt, NodeUnreachable: the node has gone away; the same call, made again, continues.
    """
    return await send_runs(client, [(destination, drafts)])


async def send_runs(client: Client, runs: Sequence[tuple[str, Sequence[Draft]]]) -> list[MessageId]:
    """Do the same as `send_all` for several runs of messages, each with its own destination."""
    journal = _journal(client)
    sent: list[MessageId] = []
    total = sum(len(drafts) for _, drafts in runs)
    done = 0
    for each in list(journal.operated()):
        part = _part(each.tag)
        if not isinstance(part, SentPart):
            found = "something else" if part is None else "messages that were received"
            raise UsageError(f"{journal.path} is of {found}: name another file to send")
        destination, drafts = _rest_of_run(runs, done)
        if part.first != done or part.digest != _digest(destination, drafts[: part.count]):
            raise UsageError(
                f"{journal.path} is of other messages, from number {part.first + 1} on: send the same to the same "
                "queue, or name another file"
            )
        try:
            sent += _identifiers(client, each.result())
        except InDoubt as doubt:
            first, last = part.first + 1, part.first + part.count
            label = f" labelled {drafts[0].label!r}" if drafts[0].label else ""
            queue = shlex.quote(destination.split(",")[0])
            raise InDoubt(
                f"in doubt: messages {first:,} to {last:,} of {total:,}, which are not sent again: {doubt}. See "
                f"what{label} came there or is on its way, with `mqproto explain {queue}{client.again}` and "
                f"`mqproto queues{client.again}`; then send what is missing, and those after {last:,}, with "
                f"another file than {journal.path}"
            ) from None
        except UsageError:
            journal.forget([each.tag])  # It was refused, and is sent again.
            break
        done += part.count
    while done < total:
        destination, drafts = _rest_of_run(runs, done)
        for drafted in as_parts(drafts, destination.count(",") + 1):
            tag = control.encode(SentPart(done, len(drafted), _digest(destination, drafted)))
            try:
                sent += await client.submit(destination, drafted, tag)
            except UsageError:
                journal.forget([tag])
                raise
            done += len(drafted)
    return sent


def _rest_of_run(runs: Sequence[tuple[str, Sequence[Draft]]], done: int) -> tuple[str, Sequence[Draft]]:
    """Return the rest of the run that contains the message at position `done`, starting with that message.

    After the last message, return an empty run.
    """
    for destination, drafts in runs:
        if done < len(drafts):
            return destination, drafts[done:]
        done -= len(drafts)
    return "", []


async def receive_all(
    client: Client, queue: str, count: int, timeout_s: float, limit: int
) -> AsyncIterator[ReceivedMessage]:
    """Yield up to `count` messages: those in the journal, then new ones until none comes for `timeout_s`.

    Each message is in the journal before it leaves the queue.

    Raises:
        UsageError: the journal is for another queue, or for sent messages.
        InDoubt: nobody knows whether some messages left the queue; they may arrive again.
    """
    journal = _journal(client)
    found = 0
    for each in list(journal.operated()):
        part = _part(each.tag)
        if not isinstance(part, TakenPart) or part.queue != queue:
            raise UsageError(
                f"{journal.path} is of something else than messages received from {queue}: name another file"
            )
        try:
            each.result()
        except (RolledBack, UsageError):
            journal.forget([each.tag])  # They did not leave the queue.
            continue
        except InDoubt as doubt:
            raise InDoubt(
                f"in doubt: messages {found + 1} to {found + len(part.packets)}, which are not taken again: {doubt}. "
                f"See if they are still in {queue} with `mqproto peek {shlex.quote(queue)}{client.again}`, and go on "
                f"with the rest and another file than {journal.path}"
            ) from None
        for message in received(part.packets, [1] * len(part.packets)):
            found += 1
            yield message

    def tag(messages: Sequence[ReceivedMessage]) -> bytes:
        return control.encode(TakenPart(queue, [message.packet for message in messages]))

    while found < count:
        messages = await client.receive(queue, min(limit, count - found), timeout_s, tag=tag)
        if not messages:
            return
        for message in messages:
            found += 1
            yield message


def _part(tag: bytes) -> SentPart | TakenPart | None:
    """Decode a tag. Return None if another program, such as a gateway, made it."""
    try:
        part: SentPart | TakenPart = _decoder.decode(tag)
    except msgspec.MsgspecError:
        return None
    return part


def _journal(client: Client) -> Journal:
    assert client.journal is not None, "the client was connected with a journal"
    return client.journal


def _identifiers(client: Client, sent: control.Sent) -> list[MessageId]:
    return [MessageId(client.manager, ordinal) for ordinal in sent.ordinals]


def _digest(destination: str, drafts: Sequence[Draft]) -> bytes:
    # Leave out empty fields that earlier versions did not have: this keeps their files valid.
    said = [msgspec.to_builtins(draft, builtin_types=(bytes,)) for draft in drafts]
    for each in said:
        for name in LATER:
            if not each[name]:
                del each[name]
    return hashlib.sha256(control.encode([destination, said])).digest()
