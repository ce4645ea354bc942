"""Finds one message and its sender in a capture. Makes a script with only this message, or a new message like it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.captures.answers import Answers, Identity, identity_of
from mqproto.captures.decode.names import printable
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.selection import MessageNamed
from mqproto.captures.net.conversation import Side
from mqproto.captures.packets import SeenPacket
from mqproto.captures.script import Connection, Part, Scene, Script, is_message, spellings
from mqproto.manager.deadletters import draft_of
from mqproto.messages.drafts import Draft
from mqproto.simulator.replay.rewrite import QueueMap, destination_of, key_of
from mqproto.wire import UserMessage

NAMED: Final = 5
"""The maximum number of matching messages whose identifiers are named."""


def find_message(
    packets: Iterable[SeenPacket],
    connections: Iterable[Connection],
    wanted: MessageNamed,
    side: str = "",
    only: int | None = None,
) -> tuple[Part, Identity]:
    """Return the wanted message and its sender. If it crosses several links or was resent, take the first occurrence.

    Args:
        side, only: as for `mqproto.captures.script.choose`; messages from other sides or connections do not count.

    Raises:
        UsageError: there is no such message, or there are several.
    """
    looked_at = {each.number: each for each in connections if only in (None, each.number)}
    found: dict[Identity, tuple[Connection, Side]] = {}
    cut_count = 0
    for seen in packets:
        connection = looked_at.get(seen.connection)
        if connection is None or side not in spellings(connection, sender := connection.side_of(seen)):
            continue
        if seen.cut_bytes:
            cut_count += 1
        elif is_message(seen.packet):
            assert isinstance(seen.packet, UserMessage)
            identity = identity_of(seen.packet)
            if wanted.fits(identity, seen.packet.properties.label):
                found.setdefault(identity, (connection, sender))
    if not found:
        where = f" of {side}" * bool(side) + f" on connection {only}" * (only is not None)
        cut = f", beside {cut_count:,} packets that the capture has in part" if cut_count else ""
        raise UsageError(
            f"--message {wanted.text!r}: no message{where} has this identifier or, as a whole, this label{cut}; "
            "mqproto decode with --json shows both"
        )
    if len(found) > 1:
        first = ", ".join(identifier_text(*each) for each in list(found)[:NAMED])
        more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
        raise UsageError(
            f"--message {wanted.text!r}: {len(found):,} messages are called so; name one: {first}{more}"
        )
    [(identity, (connection, sender))] = found.items()
    return Part({connection.number: sender}, (connection,)), identity


def alone(script: Script, identity: Identity) -> Script:
    """Return a script of the same part, with only this message and the answers to it.

    The message does not wait for anything.
    """
    number = script.answers.number_of(identity)
    assert number is not None, "the part was chosen for it"
    message, fate = script.messages[number], script.answers.fates[number]
    answers = Answers()
    answers.expect(message.identity, message.place)
    answers.fates[0] = fate
    answers.order_ack_count = int(fate.ordered)
    step = replace(message.step, message=0, heard=0, heard_messages=0)
    [connection] = script.part.connections
    scene = Scene(connection, script.part.sides[connection.number], [step], [0])
    return Script(
        part=script.part,
        scenes=[scene],
        messages=[replace(message, step=step)],
        answers=answers,
        own_manager=script.own_manager,
        peer_manager=script.peer_manager,
    )


def as_new(script: Script, maps: Iterable[QueueMap] = ()) -> tuple[str, Draft]:
    """Return the queue of a script's only message, and a draft with which an application would send that message again.

    Raises:
        UsageError: an application cannot send it.
    """
    message = script.message(0)
    name = destination_of(message)
    if name is None:
        raise UsageError("this message is for no queue that has a name here: play it with --to")
    if message.security is not None and not message.security.has_sid_alone:
        raise UsageError(
            "it has a signature or is encrypted, which its sender alone can make: play it with --to"
        )
    moved = {key_of(each.old): each.new for each in maps}
    try:
        return str(moved.get(key_of(name), name)), draft_of(message)
    except FormatNameError as error:
        raise UsageError(f"such a message is not sent from here ({error}): play it with --to") from None


def described(script: Script) -> str:
    """Return a description of the only message of a script, and of its part."""
    label = script.message(0).properties.label
    called = f" {printable(label)!r}" if label else ""
    return f"message {identifier_text(*script.messages[0].identity)}{called} of {script.part}"
