"""Strangers that present the GUID of a node or speak in its name, and strangers that only want to send.

fuzz/tactics/forgeries.py has their packets, strangers.py makes them call and hang up, and attacks.py chooses the nodes
that they visit in a drawn world.
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
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.oracle import invariants
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.simulator.world.scenarios.traffic import NOTES, ORDERS, VISITING, Message
from mqproto.simulator.world.world import World
from mqproto.wire import INFINITE, Guid, Packet, TxSequenceId

CROWD: Final = 10
"""The number of sessions that a crowd opens. It is more than a node allows one known queue manager."""
AGAIN_MS: Final = 700
"""The interval, in milliseconds, at which a plot that goes on repeats its packets."""


class Standing(Enum):
    """The identity under which a stranger asks for a session."""

    CLAIM = auto()
    """From its own address, with the GUID of the node in whose name the stranger speaks."""
    NAMELESS = auto()
    """From its own address, with an unknown GUID."""
    NEIGHBOUR = auto()
    """From the address and with the GUID of a node, so that the stranger passes for that node.

    The stranger speaks in the name of a third node, whose messages do not come through the impersonated node.
    """


class Impostor:
    """The stranger's end of a connection to a node.

    Args:
        name: the address from which it comes.
        mail_for: the node whose messages it must not get; None if it passes for a node.
    """

    has_power = True
    is_node = False

    def __init__(self, world: World, name: str, mail_for: str | None) -> None:
        self.name = name
        self._world = world
        self._mail_for = mail_for

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Ignore the event."""

    def packets_arrive(self, end: End, data: bytes, glimpses: list[Glimpse]) -> None:
        """Check that the packets contain no message for another node. Do not acknowledge anything."""
        self._world.oracle.holds(invariants.strangers_get_no_mail, end, self._mail_for, glimpses)

    def end_lost(self, end: End, reason: str) -> None:
        """Forget the connection, because the node has hung up."""
        end.line.forget(end)


@dataclass(frozen=True, kw_only=True)
class Knowing(Speaker):
    """What an impostor knows: everything in the ledger, and the numbers of the node whose name it uses."""

    world: World
    node: str

    def next_number(self) -> int:
        core = self.world.nodes[self.node].core
        return 1 if core is None else core.inspect().outbound.numbers.next_message_id()

    def sent(self, manager: Guid) -> Iterable[LastSent]:
        for (source, *_), sequence in self.world.ledger.sequences.items():
            if source == manager and sequence.messages[-1].place is not None:
                yield sent_as(sequence.messages[-1])


def speaker_of(world: World, node: LinkedNode, name: str) -> Speaker:
    """Return a speaker that knows everything about the called node, and about the node at which the attack is aimed."""
    return Knowing(
        caller=guid_of(STRANGER),
        name=guid_of(name),
        target=node.guid,
        sent_s=node.moment().utc_s,
        notes=NOTES.identifier,
        orders=(ORDERS.identifier,),
        lives_s=INFINITE,
        own_body=VISITING,
        body=VISITING if world.scenario.strangers else FORGED,
        world=world,
        node=name,
    )


def sent_as(message: Message) -> LastSent:
    """Return the fields by which a forged acknowledgment identifies a message of a sequence."""
    assert message.place is not None
    (time_stamp, ordinal), number = message.place
    message_id = int.from_bytes(message.identity[16:], "little")
    return LastSent(TxSequenceId(time_stamp=time_stamp, ordinal=ordinal), number, number - 1, message_id)


class Plot(NamedTuple):
    """A plot of an impostor.

    says: a function that returns the packets.
    goes_on: whether to send them again and again, AGAIN_MS apart, until the impostor hangs up.
    sessions: the number of sessions to open.
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
    """Return the `value` of a fault. It encodes a plot's index in PLOTS, and the node at which the plot is aimed."""
    return nodes.index(name) * len(PLOTS) + plot


def plot_of(value: int, nodes: tuple[str, ...]) -> tuple[Plot, str]:
    """Return the plot, and the node at which it is aimed, from the `value` of a fault."""
    place, number = divmod(value, len(PLOTS))
    return PLOTS[number], nodes[place % len(nodes)]
