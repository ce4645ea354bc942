"""Scenarios: what happens before the packets on the wire are examined; each one shows the effect of a switch.

All of them run on a clock that jumps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

from .peer.packets import NA, PA, SHA_512, SIGNED_20, Class, OrderBody
from .peer.peer import Peer, Timers
from .peer.queues import Queue
from .sealed.keys import CIPHERS, keys_of, nobody, owner
from .wire import ADDRESSES, AT_B, AT_C, A, B, C, Wire, direct, private, running

Scenario = Callable[[Wire, Peer, Peer], Awaitable[None]]
ORDERS, NOTES = direct("orders"), direct("notes")
TOLD: dict[str, Any] = {"admin": private(3, A), "label": "label", "acknowledge": PA}
NEVER = 1e9
BODY = b"a body of more than one block"
SEALED = [NOTES + "x", private(10)]
"""A list of destinations that contains padding."""


def order(destination: str = ORDERS, **fields: Any) -> dict[str, Any]:
    return {"destination": destination, "transactional": True, **fields}


def note(destination: str = NOTES, **fields: Any) -> dict[str, Any]:
    return {"destination": destination, **fields}


def sends(*messages: dict[str, Any], seconds: float = 20, times: int = 1) -> Scenario:
    """A submits messages before it has a session, and B accepts them."""

    async def run(wire: Wire, a: Peer, b: Peer) -> None:
        async with running(a, b):
            for fields in messages * times:
                a.send(**fields)
            await trio.sleep(seconds)

    return run


def unconfirmed(*messages: dict[str, Any], seconds: float, times: int = 1) -> Scenario:
    """B sends no OrderAck, so A has to send its messages again."""

    async def run(wire: Wire, a: Peer, b: Peer) -> None:
        b.timers = Timers(order_ack=NEVER)
        a.timers, a.window, b.window = Timers(resend=(1, 2, 4, 8, 16)), 200, 200
        await sends(*messages, seconds=seconds, times=times)(wire, a, b)

    return run


def alone(*messages: dict[str, Any], seconds: float, then: float) -> Scenario:
    """B is started only after A has sent its messages and waited."""

    async def run(wire: Wire, a: Peer, b: Peer) -> None:
        async with running(a):
            for fields in messages:
                a.send(**fields)
            await trio.sleep(seconds)
            async with running(b):
                await trio.sleep(then)

    return run


def received(message_class: int = Class.ACK_RECEIVE, **fields: Any) -> Scenario:
    """B's application takes the message, or rejects it."""

    async def run(wire: Wire, a: Peer, b: Peer) -> None:
        async with running(a, b):
            a.send(**order(**fields))
            await b.until(lambda: bool(b.queues[0].messages))
            b.receive("orders", message_class)
            await trio.sleep(5)

    return run


async def brought(wire: Wire, a: Peer, b: Peer) -> None:
    """A brings a message from C; C can be reached, too."""
    c = Peer(C, AT_C, wire, addresses=dict(ADDRESSES))
    async with running(a, b, c):
        a.send(**order()).source = C
        await trio.sleep(5)


async def out_of_order(wire: Wire, a: Peer, b: Peer) -> None:
    """The first message that arrives names a predecessor that never arrived."""
    async with running(a, b):
        message = a.send(**order())
        assert message.transaction
        message.transaction.number, message.transaction.previous = 6, 5
        await trio.sleep(5)


async def two_pings(wire: Wire, a: Peer, b: Peer) -> None:
    """Two hosts are pinged at once."""
    wire.ping_delay = {AT_B: 0.2, AT_C: 0.4}
    async with running(a, b, Peer(C, AT_C, wire)):
        a.send(NOTES)
        a.send(direct("notes", AT_C))
        await trio.sleep(2)


async def same_ordinal(wire: Wire, a: Peer, b: Peer) -> None:
    """Two senders use the same MessageIDs."""
    c = Peer(C, AT_C, wire, [Queue("replies", 3)], dict(ADDRESSES))
    async with running(a, b, c):
        for peer in (a, c):
            peer.message_id = 7
            peer.send(NOTES, **{**TOLD, "admin": private(3, peer.guid)})
            await trio.sleep(1)


def twice(after: float, **fields: Any) -> Scenario:
    """The same message arrives again."""

    async def run(wire: Wire, a: Peer, b: Peer) -> None:
        async with running(a, b):
            for _ in range(2):
                a.message_id = 7
                a.send(NOTES, recoverable=True, **fields)
                await trio.sleep(after)

    return run


async def small_window(wire: Wire, a: Peer, b: Peer) -> None:
    """B announces a window of 8, and acknowledges after half a second."""
    b.window = 8
    await sends(note(), times=60)(wire, a, b)


async def cut(wire: Wire, a: Peer, b: Peer) -> None:
    """The session ends after B has acknowledged some messages, but before it has confirmed them."""
    b.timers = Timers(order_ack=NEVER)
    async with running(a, b):
        for _ in range(3):
            a.send(**order())
        await trio.sleep(0.2)
        a.cut()
        await trio.sleep(10)


async def two_addresses(wire: Wire, a: Peer, b: Peer) -> None:
    """A host has two addresses; something listens only at the second one."""
    wire.names["shop"] = [AT_C, AT_B]
    await sends(note(r"DIRECT=OS:shop\private$\notes"))(wire, a, b)


async def unknown_host(wire: Wire, a: Peer, b: Peer) -> None:
    """B's address becomes known after a while."""
    home = a.addresses.pop(b.guid)
    async with running(a, b):
        a.send(private(11))
        await trio.sleep(1)
        a.addresses[b.guid] = home
        a.wake()
        await trio.sleep(20)


async def paused(wire: Wire, a: Peer, b: Peer) -> None:
    """B sends a pause while a message from A is still unacknowledged."""
    async with running(a, b):
        a.send(**note())
        await b.until(lambda: bool(b.queues[1].messages))
        b.sessions[0].pause()
        await trio.sleep(0.1)


async def full_queue(wire: Wire, a: Peer, b: Peer) -> None:
    b.queues[0].quota = 0
    await sends(order())(wire, a, b)


async def full_sender(wire: Wire, a: Peer, b: Peer) -> None:
    a.room = 0
    await sends(order())(wire, a, b)


async def deleted(wire: Wire, a: Peer, b: Peer) -> None:
    """An operator deletes the messages that wait for C; the administration queue is at B."""
    async with running(a, b):
        a.send(direct("notes", AT_C), admin=NOTES, acknowledge=NA)
        a.departures.delete(direct("notes", AT_C))
        await trio.sleep(5)


async def restarted(wire: Wire, a: Peer, b: Peer) -> None:
    """A dies after all its messages are confirmed, and sends more in its next life."""
    with TemporaryDirectory() as folder:
        for _ in range(2):
            a = Peer(A, a.address, wire, switches=a.switches, file=Path(folder, "a.json"))
            await sends(order(), seconds=5)(wire, a, b)


async def claimed(wire: Wire, a: Peer, b: Peer) -> None:
    """A stranger calls from B's address and claims to be C; a message for C is waiting."""
    impostor = Peer(C, AT_B, wire)
    async with running(a, impostor):
        a.send(private(11, C))
        impostor.send(direct("replies", a.address))
        await trio.sleep(5)


async def half_confirmed(wire: Wire, a: Peer, b: Peer) -> None:
    """The first of two messages is confirmed; the second is sent again."""
    b.timers = Timers(order_ack=NEVER)
    async with running(a, b):
        messages = [a.send(**order()) for _ in range(2)]
        await b.until(lambda: len(b.queues[0].messages) == 2)
        await trio.sleep(1)
        assert messages[0].transaction
        a.departures.take_order_ack(OrderBody(messages[0].transaction.sequence, 1, 0), a.now())
        await trio.sleep(40)


def keyed(*messages: dict[str, Any], deceived: bool = False, times: int = 1) -> Scenario:
    """Both peers have keys; with `deceived`, a directory is wrong, so A encrypts with a key that nobody has."""

    async def run(wire: Wire, a: Peer, b: Peer) -> None:
        first, second = owner(0), owner(1)
        a.protection.keys = keys_of(first, A, second, B)
        b.protection.keys = keys_of(second, B, first, A)
        if deceived:
            a.protection.keys.others = keys_of(first, A, nobody(second), B).others
        await sends(*messages, times=times)(wire, a, b)

    return run


def protected(
    cipher: str = "", signed: bool = True, hash_algorithm: int = SHA_512, **fields: Any
) -> dict[str, Any]:
    """Return the fields of an order to a private name; the order is encrypted, signed, or both."""
    told = {"destination": private(10), "body": BODY, "label": "label", **fields}
    seal = CIPHERS[cipher] if cipher else None
    return order(seal=seal, sign=(SIGNED_20, hash_algorithm) if signed else None, **told)
