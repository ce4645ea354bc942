"""Strangers who present the GUID of a node that is elsewhere, or speak in its name: they change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mqproto.transfer.acknowledgments import ORDER_QUEUE
from mqproto.wire import (
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    user_message,
)
from mqproto.wire.acknowledgment import final_ack, order_ack
from simulator.base.randomness import chance
from simulator.world.network.glimpse import Glimpse
from simulator.world.network.links import STRANGER, End
from simulator.world.node.machine import Machine
from simulator.world.scenarios.scenario import Fault, guid_of
from simulator.world.scenarios.traffic import QUEUES
from simulator.world.world import World

FORGED: Final = 40
"""How many identifiers, the next ones of the node that he claims to be, an impostor uses up."""
LATE: Final = TxSequenceId(time_stamp=0x7FFFFFFF, ordinal=0x7FFFFFFF)
"""Beyond each TxSequenceID that anybody may have."""


NO_MAIL: Final = "strangers_get_no_mail"
"""The invariant that breaks if an impostor is sent what is for the node that he claims to be."""


class Impostor:
    """The far end of a connection to a node, which must not send messages there."""

    name = STRANGER
    has_power = True

    def __init__(self, world: World, claimed: str) -> None:
        self._world = world
        self._claimed = claimed

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Whatever happens, it does not care."""

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """What comes is not for it, and it acknowledges nothing."""
        mail = sum(glimpse.is_user for glimpse in glimpses)
        reason = (
            f"{end.peer.host.name} sends {mail} messages for {self._claimed} to a stranger" if mail else None
        )
        self._world.oracle.check(NO_MAIL, reason)

    def end_lost(self, end: End, reason: str) -> None:
        """The node has hung up."""
        end.line.forget(end)


def claimed_by(world: World, fault: Fault) -> str:
    """The node whose GUID an impostor presents: any but the one that he calls."""
    others = [name for name in world.scenario.nodes if name != fault.where]
    return chance(world.scenario.seed, "impostor", fault.where, str(fault.at_ms)).choice(others)


def says_nothing(world: World, machine: Machine, claimed: str) -> list[UserMessage]:
    """He waits for what is to come."""
    return []


def uses_up_numbers(world: World, machine: Machine, claimed: str) -> list[UserMessage]:
    """He sends to each queue with orders what would make all true orders old."""
    header = TransactionHeader(tx_sequence_id=LATE, tx_sequence_number=1)
    return [
        _message(machine, claimed, queue.identifier, message_id=1, transaction=header)
        for queue in QUEUES
        if queue.transactional
    ]


def uses_up_identifiers(world: World, machine: Machine, claimed: str) -> list[UserMessage]:
    """He sends messages with the identifiers that the true one will give next."""
    core = world.machines[claimed].core
    first = 1 if core is None else core.inspect().outbound.next_message_id()
    return [
        _message(machine, claimed, queue.identifier, message_id=first + number & 0xFFFFFFFF, recoverable=True)
        for number in range(FORGED)
        for queue in QUEUES
        if not queue.transactional
    ]


def confirms_orders(world: World, machine: Machine, claimed: str) -> list[UserMessage]:
    """He sends OrderAcks for all that was sent, to whomever."""
    return [
        order_ack(body=OrderAckBody(identifier, number, number - 1), **_common(machine, claimed))
        for identifier, number in _sent(world, machine)
    ]


def confirms_receipt(world: World, machine: Machine, claimed: str) -> list[UserMessage]:
    """He sends FinalAcks for the same."""
    return [
        final_ack(
            message_class=MessageClass.ACK_RECEIVE,
            body=FinalAckBody(identifier, number, number - 1, machine.guid, 1),
            **_common(machine, claimed),
        )
        for identifier, number in _sent(world, machine)
    ]


PLOTS: Final[tuple[Callable[[World, Machine, str], list[UserMessage]], ...]] = (
    says_nothing,
    uses_up_numbers,
    uses_up_identifiers,
    confirms_orders,
    confirms_receipt,
)
"""What impostors do, given the node that they have called and the one that they claim to be."""


def plot(world: World, machine: Machine, claimed: str, number: int) -> list[bytes]:
    """The packets of one of the plots."""
    return [encode_packet(message) for message in PLOTS[number % len(PLOTS)](world, machine, claimed)]


def _sent(world: World, machine: Machine) -> list[tuple[TxSequenceId, int]]:
    """The sequences of a node, each with the number of the message that was sent last."""
    return [
        (TxSequenceId(time_stamp=time_stamp, ordinal=ordinal), message.place[1])
        for (source, time_stamp, ordinal), sequence in world.ledger.sequences.items()
        if source == machine.guid and (message := sequence.messages[-1]).place is not None
    ]


def _common(machine: Machine, claimed: str) -> dict[str, Any]:
    return {
        "source": guid_of(claimed),
        "destination_manager": machine.guid,
        "destination": ORDER_QUEUE,
        "message_id": 1,
        "sent_time_s": machine.moment().utc_s,
    }


def _message(machine: Machine, claimed: str, queue: int, **more: Any) -> UserMessage:
    return user_message(
        source=guid_of(claimed),
        destination_manager=Guid(machine.guid),
        destination=queue,
        sent_time_s=machine.moment().utc_s,
        body=b"forged",
        **more,
    )
