"""Strangers who present the GUID of a node, or speak in its name, and those who only want to send.

What they say is in fuzz/tactics/forgeries.py. strangers.py has them call and hang up, attacks.py says whom they visit
in a drawn world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from mqproto.simulator.fuzz.tactics.forgeries import (
    FORGED,
    Speaker,
    confirms_orders,
    confirms_receipt,
    confirms_through,
    forges_a_message,
    says_nothing,
    says_that_it_went_too_far,
    sends_through,
    stays_awake,
    uses_up_identifiers,
    uses_up_numbers,
    visits,
)
from mqproto.simulator.fuzz.tactics.packets import LastSent
from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.network.links import STRANGER, End
from mqproto.simulator.world.node.machine import Machine
from mqproto.simulator.world.oracle import invariants
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.simulator.world.scenarios.traffic import NOTES, ORDERS, VISITING, Message
from mqproto.simulator.world.world import World
from mqproto.wire import INFINITE, Guid, Packet, TxSequenceId

CROWD: Final = 10
"""How many sessions those open who come in a crowd: more than one known queue manager may have."""
AGAIN_MS: Final = 700
"""How often those say the same who go on."""


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


@dataclass(frozen=True, kw_only=True)
class Knowing(Speaker):
    """What an impostor knows: all that the ledger has, and the numbers of the node whose name he bears."""

    world: World
    node: str

    def next_number(self) -> int:
        core = self.world.machines[self.node].core
        return 1 if core is None else core.inspect().outbound.next_message_id()

    def sent(self, manager: Guid) -> Iterable[LastSent]:
        for (source, *_), sequence in self.world.ledger.sequences.items():
            if source == manager and sequence.messages[-1].place is not None:
                yield sent_as(sequence.messages[-1])


def speaker_of(world: World, machine: Machine, name: str) -> Speaker:
    """What is known of the node that is called, and of the one that it is about."""
    return Knowing(
        caller=guid_of(STRANGER),
        name=guid_of(name),
        target=machine.guid,
        sent_s=machine.moment().utc_s,
        notes=NOTES.identifier,
        orders=(ORDERS.identifier,),
        lives_s=INFINITE,
        own_body=VISITING,
        body=VISITING if world.scenario.strangers else FORGED,
        world=world,
        node=name,
    )


def sent_as(message: Message) -> LastSent:
    """A message of a sequence, as one who forges its acknowledgment has to name it."""
    assert message.place is not None
    (time_stamp, ordinal), number = message.place
    message_id = int.from_bytes(message.identity[16:], "little")
    return LastSent(TxSequenceId(time_stamp=time_stamp, ordinal=ordinal), number, number - 1, message_id)


class Plot(NamedTuple):
    """What somebody is up to.

    says: gives the packets.
    goes_on: whether they are said again and again, AGAIN_MS apart, until the impostor hangs up.
    sessions: how many are opened.
    """

    standing: Standing
    says: Callable[[Speaker], Iterable[Packet]]
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
