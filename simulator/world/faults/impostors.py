"""What strangers say who present the GUID of a node, or speak in its name, and those who only want to send.

None of it changes what nodes have promised each other. strangers.py has them call and hang up, attacks.py says whom
they visit in a drawn world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL
from mqproto.transfer.acknowledgments import ORDER_QUEUE
from mqproto.wire import (
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    Packet,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    session_ack,
    user_message,
)
from mqproto.wire.acknowledgment import final_ack, order_ack
from simulator.world.network.glimpse import Glimpse
from simulator.world.network.links import STRANGER, End
from simulator.world.node.machine import Machine
from simulator.world.oracle import invariants
from simulator.world.scenarios.scenario import guid_of
from simulator.world.scenarios.traffic import NOTES, ORDERS, VISITING
from simulator.world.world import World

FORGED: Final = b"forged"
"""The body of what no application may ever be given."""
IDENTIFIERS: Final = 20
"""How many identifiers, the next ones of the node that he claims to be, an impostor uses up."""
CROWD: Final = 10
"""How many sessions those open who come in a crowd: more than one known queue manager may have."""
MADE_UP: Final = "made-up-host"
AGAIN_MS: Final = 700
"""How often those say the same who go on."""
LATE: Final = TxSequenceId(time_stamp=0x7FFFFFFF, ordinal=0x7FFFFFFF)
"""Beyond each TxSequenceID that anybody may have."""


class Standing(Enum):
    """As whom a stranger asks for a session."""

    CLAIM = auto()
    """From elsewhere, with the GUID of the node in whose name he speaks."""
    NAMELESS = auto()
    """From elsewhere, with a GUID that nobody knows."""
    NEIGHBOUR = auto()
    """From the address of a node and with its GUID: he is believed to be it. He speaks in the name of another, which
    that one does not bring."""


class Impostor:
    """The far end of a connection to a node.

    Args:
        name: the address that he comes from.
        mail_for: the node for which no messages may be sent to him; None if he is believed to be one.
    """

    has_power = True
    is_node = False

    def __init__(self, world: World, name: str, mail_for: str | None) -> None:
        self.name = name
        self._world = world
        self._mail_for = mail_for

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Whatever happens, it does not care."""

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """What comes is not for it, and it acknowledges nothing."""
        reason = invariants.strangers_get_no_mail(end, self._mail_for, glimpses)
        self._world.oracle.check("strangers_get_no_mail", reason)

    def end_lost(self, end: End, reason: str) -> None:
        """The node has hung up."""
        end.line.forget(end)


def says_nothing(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He waits for what is to come."""
    return ()


def stays_awake(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """The same, with an acknowledgment of nothing now and then."""
    yield session_ack(SessionHeader(window_size=64))


def uses_up_numbers(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends to the queue of orders what would make all true orders old."""
    header = TransactionHeader(tx_sequence_id=LATE, tx_sequence_number=1)
    yield _message(machine, guid_of(name), ORDERS.identifier, FORGED, message_id=1, transaction=header)


def uses_up_identifiers(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends messages with the identifiers that the true one will give next.

    One who presents the GUID of another is no liar as far as a queue that is open to strangers can tell.
    """
    core = world.machines[name].core
    first = 1 if core is None else core.inspect().outbound.next_message_id()
    body = VISITING if world.scenario.strangers else FORGED
    for number in range(IDENTIFIERS):
        yield _message(
            machine,
            guid_of(name),
            NOTES.identifier,
            body,
            message_id=first + number & 0xFFFFFFFF,
            recoverable=True,
        )


def forges_a_message(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends one in the name of another than he has presented."""
    yield _message(machine, guid_of(name), NOTES.identifier, FORGED, message_id=1, recoverable=True)


def confirms_orders(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends OrderAcks for all that was sent, to whomever."""
    for identifier, number, _ in _sent(world, machine):
        yield order_ack(body=OrderAckBody(identifier, number, number - 1), **_common(machine, name))


def confirms_receipt(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends FinalAcks for the same."""
    for identifier, number, message_id in _sent(world, machine):
        yield final_ack(
            message_class=MessageClass.ACK_RECEIVE,
            body=FinalAckBody(identifier, number, number - 1, machine.guid, message_id),
            **_common(machine, name),
        )


def says_that_it_went_too_far(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends the FinalAck that any queue manager on the way may send, for what was sent last."""
    for identifier, number, message_id in _sent(world, machine):
        yield final_ack(
            message_class=MessageClass.NACK_HOP_COUNT_EXCEEDED,
            body=FinalAckBody(identifier, number, number - 1, machine.guid, message_id),
            **_common(machine, name),
        )


def confirms_through(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends OrderAcks of the very node that he has called to one that sends to it, and wants them passed on."""
    sender = world.machines[name]
    for identifier, number, _ in _sent(world, sender):
        common = {**_common(machine, machine.name), "destination_manager": sender.guid}
        yield order_ack(body=OrderAckBody(identifier, number, number - 1), **common)


def visits(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He sends to both queues in his own name: a note, the first of a sequence of orders, and one behind a gap.

    He wants to be told that the note has arrived, at a host that nobody has heard of.
    """
    own = guid_of(STRANGER)
    answer: dict[str, Any] = {
        "admin_queue": rf"OS:{MADE_UP}\private$\replies",
        "acknowledgments": ACKNOWLEDGE_ARRIVAL,
    }
    yield _message(machine, own, NOTES.identifier, VISITING, message_id=1, recoverable=True, **answer)
    for number, previous in ((1, 0), (3, 2)):
        header = TransactionHeader(
            tx_sequence_id=TxSequenceId(time_stamp=1, ordinal=1),
            tx_sequence_number=number,
            previous_tx_sequence_number=previous,
        )
        yield _message(machine, own, ORDERS.identifier, VISITING, message_id=1 + number, transaction=header)


def sends_through(world: World, machine: Machine, name: str) -> Iterable[Packet]:
    """He wants the node to pass something on to another."""
    own = guid_of(STRANGER)
    yield _message(machine, own, NOTES.identifier, FORGED, message_id=9, recoverable=True, to=guid_of(name))


class Plot(NamedTuple):
    """What somebody is up to.

    says: gives the packets that he sends, by the world, the node that he has called and the node that he is up to.
    goes_on: whether he says it again and again, AGAIN_MS apart, until he hangs up.
    sessions: how many he opens.
    """

    standing: Standing
    says: Callable[[World, Machine, str], Iterable[Packet]]
    goes_on: bool = False
    sessions: int = 1


PLOTS: Final = (
    Plot(Standing.CLAIM, says_nothing),
    Plot(Standing.CLAIM, uses_up_numbers),
    Plot(Standing.CLAIM, uses_up_identifiers),
    Plot(Standing.CLAIM, confirms_orders, goes_on=True),
    Plot(Standing.CLAIM, confirms_receipt, goes_on=True),
    Plot(Standing.CLAIM, says_that_it_went_too_far, goes_on=True),
    Plot(Standing.CLAIM, stays_awake, goes_on=True),
    Plot(Standing.CLAIM, says_nothing, sessions=CROWD),
    Plot(Standing.NAMELESS, uses_up_numbers),
    Plot(Standing.NAMELESS, forges_a_message),
    Plot(Standing.NAMELESS, confirms_orders, goes_on=True),
    Plot(Standing.NAMELESS, confirms_receipt, goes_on=True),
    Plot(Standing.NAMELESS, visits),
    Plot(Standing.NAMELESS, sends_through),
    Plot(Standing.NEIGHBOUR, uses_up_numbers),
    Plot(Standing.NEIGHBOUR, forges_a_message),
    Plot(Standing.NEIGHBOUR, confirms_through),
)


def value_of(plot: int, name: str, nodes: tuple[str, ...]) -> int:
    """How the `value` of a fault tells a plot, by its place in PLOTS, and the node that it is about."""
    return nodes.index(name) * len(PLOTS) + plot


def plot_of(value: int, nodes: tuple[str, ...]) -> tuple[Plot, str]:
    """The plot that a value tells, and the node."""
    place, number = divmod(value, len(PLOTS))
    return PLOTS[number], nodes[place % len(nodes)]


def _sent(world: World, machine: Machine) -> list[tuple[TxSequenceId, int, int]]:
    """The sequences of a node, each with the number and the MessageID of the message that was sent last."""
    return [
        (
            TxSequenceId(time_stamp=time_stamp, ordinal=ordinal),
            message.place[1],
            int.from_bytes(message.identity[16:], "little"),
        )
        for (source, time_stamp, ordinal), sequence in world.ledger.sequences.items()
        if source == machine.guid and (message := sequence.messages[-1]).place is not None
    ]


def _common(machine: Machine, name: str) -> dict[str, Any]:
    return {
        "source": guid_of(name),
        "destination_manager": machine.guid,
        "destination": ORDER_QUEUE,
        "message_id": 1,
        "sent_time_s": machine.moment().utc_s,
    }


def _message(
    machine: Machine, source: Guid, queue: int, body: bytes, *, to: Guid | None = None, **more: Any
) -> UserMessage:
    return user_message(
        source=source,
        destination_manager=to or machine.guid,
        destination=queue,
        sent_time_s=machine.moment().utc_s,
        body=body,
        **more,
    )
