"""Strangers who call a node and are no queue managers; nothing that they say may harm anybody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mqproto.wire import (
    Guid,
    connection_parameters,
    encode_packet,
    establish_connection,
)
from simulator.world.faults.hostile import hostile_packets, hostile_pings
from simulator.world.faults.impostors import PLOTS, Impostor, claimed_by, plot
from simulator.world.network.links import STRANGER, End, Line
from simulator.world.node.machine import Machine
from simulator.world.scenarios.scenario import Fault, Link, guid_of
from simulator.world.world import World

HANGS_UP_MS: Final = 5_000
HANDSHAKE_MS: Final = 10
"""What passes between two steps of a stranger who knows the handshake."""
SAYINGS: Final[tuple[Callable[[str], bytes], ...]] = (
    lambda node: b"",  # nothing, until somebody has had enough
    lambda node: b"GET / HTTP/1.1\r\nHost: queue\r\n\r\n",
    lambda node: encode_packet(
        establish_connection(client=guid_of(STRANGER), server=guid_of("nobody"), time_stamp_ms=0)
    ),
    lambda node: encode_packet(
        establish_connection(client=guid_of(node), server=guid_of(node), time_stamp_ms=0)
    ),
    lambda node: encode_packet(
        connection_parameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    ),
)
"""What strangers say, given the name of the node that they have called."""


class Stranger:
    """The far end of a connection that no queue manager has opened."""

    name = STRANGER
    has_power = True

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Whatever happens, it does not care."""

    def packets_arrive(self, end: End, data: bytes, glimpses: object) -> None:
        """It does not listen either."""

    def end_lost(self, end: End, reason: str) -> None:
        """The node has hung up."""
        end.line.forget(end)


def stranger(world: World, fault: Fault) -> bool:
    """Somebody who is no queue manager calls the node, says the thing that is number `value`, and hangs up.

    Those beyond SAYINGS are the plots of impostors, first of those who present the GUID of another node, then of those
    who present their own and only speak in its name.
    """
    machine = world.machines[fault.where]
    if machine.core is None:
        return False
    if fault.value >= len(SAYINGS):
        return _impostor(world, machine, fault)
    near = _call(world, machine, Stranger())
    data = SAYINGS[fault.value % len(SAYINGS)](machine.name)
    if data:
        _say(world, near, data)
    world.events.at(world.events.now_ms + HANGS_UP_MS, _hang_up, near)
    return True


def _impostor(world: World, machine: Machine, fault: Fault) -> bool:
    which, number = divmod(fault.value - len(SAYINGS), len(PLOTS))
    claimed = claimed_by(world, fault)
    near = _call(world, machine, Impostor(world, claimed))
    _shake_hands(world, near, guid_of(STRANGER if which else claimed), machine.guid)
    world.events.at(world.events.now_ms + 2 * HANDSHAKE_MS, _plots, world, near, machine, claimed, number)
    world.events.at(world.events.now_ms + HANGS_UP_MS, _hang_up, near)
    return True


def _plots(world: World, near: End, machine: Machine, claimed: str, number: int) -> None:
    if near.open and machine.core is not None:
        for packet in plot(world, machine, claimed, number):
            _say(world, near, packet)


def _shake_hands(world: World, near: End, client: Guid, server: Guid) -> None:
    """A stranger asks for a session, and proposes its parameters when he has it."""
    request = establish_connection(client=client, server=server, time_stamp_ms=0)
    parameters = connection_parameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    _say(world, near, encode_packet(request))
    world.events.at(world.events.now_ms + HANDSHAKE_MS, _say, world, near, encode_packet(parameters))


def _call(world: World, machine: Machine, caller: Any) -> End:
    """A stranger is connected to a node at once; the end that is his."""
    line = Line(Link(one=STRANGER, other=machine.name), world.scenario.seed, world.events, world.sniffer)
    talk = None
    if world.sniffer is not None:
        talk = world.sniffer.calls(STRANGER, machine.name)
        talk.accepted()
        talk.established()
    near, far = line.joined(caller, machine, talk)
    machine.hear(machine.life, machine.accepted, far)
    return near


def _say(world: World, near: End, data: bytes, comment: str = "") -> None:
    """The stranger sends bytes, which take a millisecond."""
    if near.talk is not None:
        near.talk.leaves(near.side, data, comment)
    world.events.at(world.events.now_ms + 1, near.line.deliver, near.peer, data, [])


def hostile(world: World, fault: Fault) -> bool:
    """A stranger opens a session with the node and sends the hostile packet that is number `value`."""
    machine = world.machines[fault.where]
    if machine.core is None:
        return False
    name, packet = list(hostile_packets(guid_of(STRANGER), machine.guid).items())[fault.value]
    near = _call(world, machine, Stranger())
    now_ms = world.events.now_ms
    _shake_hands(world, near, guid_of(STRANGER), machine.guid)
    world.events.at(now_ms + 2 * HANDSHAKE_MS, _say, world, near, packet, name)
    world.events.at(now_ms + HANGS_UP_MS, _hang_up, near)
    return True


def hostile_ping(world: World, fault: Fault) -> bool:
    """A stranger sends the node the hostile datagram that is number `value`; nothing comes back."""
    machine = world.machines[fault.where]
    if machine.core is None:
        return False
    name, datagram = list(hostile_pings(guid_of(STRANGER)).items())[fault.value]
    assert machine.core.pinged(datagram) is None, name
    if world.sniffer is not None:
        world.sniffer.pings(STRANGER, machine.name, datagram, comment=name)
    return True


def _hang_up(end: End) -> None:
    if end.open:
        end.line.close(end)
