"""The loop that carries out each batch of every queue manager, in an order that is safe.

Nodes run it with sockets and a disk; worlds and tests run it with another implementation of `Hands`. No other code
determines the order of commits and sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mqproto.base.moment import Moment
from mqproto.manager.queuemanager import QueueManager
from mqproto.turn.effects import (
    Batch,
    CloseTransport,
    Delivery,
    IncomingRow,
    Note,
    OpenTransport,
    ReadExpired,
    ReadPage,
    ReadSequences,
    SendBytes,
    SendPing,
    Writes,
)


class Hands(Protocol):
    """Carries out the decisions of one queue manager."""

    def commit(self, writes: Writes) -> int:
        """Put all writes on disk, in one transaction with one flush.

        Return the number of bytes that all messages then occupy.

        Any exception ends the batch: none of its bytes, answers or notes are sent.
        """

    def note(self, notes: Sequence[Note]) -> None:
        """Write notes into the log."""

    def read(self, page: ReadPage | ReadExpired) -> list[tuple[int, bytes, bool]]:
        """Read a page from the store."""

    def sequences(self, read: ReadSequences) -> list[IncomingRow]:
        """Read sequences from the store."""

    def ping(self, ping: SendPing) -> None:
        """Ping a neighbour to ask whether it can be called."""

    def connect(self, connect: OpenTransport) -> None:
        """Open a transport."""

    def send(self, send: SendBytes) -> None:
        """Send bytes on a transport, if it is still open."""

    def close(self, close: CloseTransport) -> None:
        """Close a transport after all its bytes have been sent."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Answer applications, and hand them their messages."""


def carry_out(core: QueueManager, batch: Batch, now: Moment, hands: Hands) -> None:
    """Carry out a batch. Everything is on disk before anything is sent.

    Args:
        batch: the batch that `core.take(now)` has just returned. The caller takes it, because worlds inspect it before
            the commit, and tests take batches of several cores at once.
    """
    if batch.writes is not None:
        # One transaction with one flush serves all that was fed since the last.
        core.stored(hands.commit(batch.writes))
    # Notes come before anybody else can act on them, so lines of several nodes are in order of cause.
    hands.note(batch.notes)
    # Reads come after the commit, because a queue asks for what this batch has put on disk.
    for page in batch.reads:
        if isinstance(page, ReadSequences):
            core.found(page, hands.sequences(page), now)
        else:
            core.loaded(page, hands.read(page), now)
    for ping in batch.pings:
        hands.ping(ping)
    for connect in batch.connects:
        hands.connect(connect)
    for send in batch.sends:
        hands.send(send)
    for close in batch.closes:
        hands.close(close)
    hands.deliver(batch.deliveries)
