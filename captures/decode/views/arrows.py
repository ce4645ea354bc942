"""The label of an arrow in a ladder: short, but enough to distinguish packets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mqproto.captures.decode.facts import NodeKey
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sight import Kind, Sight
from mqproto.captures.decode.views.line import CLASS_NAMES
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    Guid,
    OrderAckBody,
    Ping,
    SessionHeader,
    UserHeader,
)

Label = Callable[[NodeKey], str]


def _unnamed(owner: str) -> None:
    """Return None, as nobody knows the name of the queue."""


class Wording(NamedTuple):
    """A label in three parts: a head, then a number that tells similar labels apart, then a tail.

    heads, tails: each in a long form and in shorter forms.
    owner: the queue manager of a queue that has only a number. It is written before the tail.
    called: a function that takes the owner's name, which may become known only later, and returns the queue's name.
    riding: further text, for use if there is room and the label is for a single packet.
    """

    heads: tuple[str, ...]
    number: int | None = None
    tails: tuple[str, ...] = ("",)
    owner: NodeKey | None = None
    called: Callable[[str], str | None] = _unnamed
    riding: str = ""

    def texts(self, label: Label, last: int | None = None, *, consecutive: bool = True) -> list[str]:
        """Return the label's forms, from the longest to the shortest.

        Args:
            last: the number of the last packet, if the label is for several packets.
            consecutive: whether the numbers of these packets follow one another without gaps.
        """
        number = "" if self.number is None else str(self.number)
        if last is not None and last != self.number:
            number += f"{'–' if consecutive else '…'}{last}"
        tails = self.tails
        if self.owner is not None:
            owner = label(self.owner)
            name = self.called(owner)
            tails = _tails(name) if name else (f" {owner}{tails[0].lstrip()}", *tails[1:])
        riding = self.riding if last is None else ""
        widest = len(self.heads) + len(tails) - 1
        said = [
            f"{self.heads[min(step, len(self.heads) - 1)]}{number}"
            f"{tails[min(max(0, step - len(self.heads) + 1), len(tails) - 1)]}"
            for step in range(widest)
        ]
        return list(dict.fromkeys([f"{said[0]}{riding}", *said]))


def wording(sight: Sight, names: Names) -> Wording:
    """Return the label of a packet."""
    packet = sight.seen.packet
    if sight.message is not None:
        said = _message(sight, names)
        return (
            said
            if sight.session is None
            else said._replace(riding=f" + {_session(sight.session).texts(str)[0]}")
        )
    if isinstance(packet, EstablishConnection):
        return Wording((("refused" if packet.refused else "welcome") if sight.answers else "establish",))
    if isinstance(packet, Ping):
        return Wording(("ping refused" if packet.refused else "ping",))
    if sight.session is not None:
        return _session(sight.session)
    if isinstance(packet, ConnectionParameters):
        return Wording(("refused" if packet.refused else "parameters",))
    return Wording((sight.kind.lower(),))


def _message(sight: Sight, names: Names) -> Wording:
    message, body = sight.message, sight.acknowledgment
    assert message is not None
    message_class = message.properties.message_class
    verdict = CLASS_NAMES.get(message_class, f"{message_class:#x}")
    if isinstance(body, OrderAckBody):
        return Wording((f"OrderAck {body.tx_sequence_id.ordinal}/", "OrderAck "), body.tx_sequence_number)
    if isinstance(body, FinalAckBody):
        heads = f"FinalAck {body.tx_sequence_id.ordinal}/", "FinalAck "
        return Wording(heads, body.tx_sequence_number, (f" {verdict}", ""))
    if sight.kind is Kind.ADMIN_ACK:
        return Wording((verdict,))
    owner, tails, called = _queue(message.user, names)
    kind = sight.kind.lower()
    if message.transaction is None:
        return Wording((f"{kind} #", "#"), message.user.message_id, tails, owner, called)
    ordinal = message.transaction.tx_sequence_id.ordinal
    sequenced = f"{kind} {ordinal}/", f"tx {ordinal}/", "tx "
    return Wording(sequenced, message.transaction.tx_sequence_number, tails, owner, called)


def _queue(
    user: UserHeader, names: Names
) -> tuple[NodeKey | None, tuple[str, ...], Callable[[str], str | None]]:
    """Return the `owner`, `tails` and `called` of a Wording for a message's destination queue.

    The owner is None if the queue has a name. The tails go from long to short.
    """
    queue, manager = user.destination_queue, user.queue_manager_address
    if isinstance(queue, int) and (manager, queue) not in names.queues:
        return Guid(manager), (f"\\{queue}", f" \\{queue}", ""), partial(names.private_queue, number=queue)
    return None, _tails(names.destination(user)), _unnamed


def _tails(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((f" {name}", f" {name.rpartition(chr(92))[-1]}", "")))


def _session(header: SessionHeader) -> Wording:
    saved = ""
    if flags := header.recoverable_msg_ack_flags:
        last = (header.recoverable_msg_ack_seq_number + flags.bit_length() - 1) & 0xFFFF
        saved = f", saved {last}"
    return Wording(("ack ",), header.ack_sequence_number, (saved, "") if saved else ("",))
