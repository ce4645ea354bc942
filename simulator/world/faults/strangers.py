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
from simulator.fuzz.tactics.malformed import hostile_packets, hostile_pings
from simulator.world.faults.impostors import AGAIN_MS, Impostor, Plot, Standing, plot_of
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
    is_node = False

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Whatever happens, it does not care."""

    def packets_arrive(self, end: End, data: bytes, glimpses: object) -> None:
        """It does not listen either."""

    def end_lost(self, end: End, reason: str) -> None:
        """The node has hung up."""
        end.line.forget(end)


def stranger(world: World, fault: Fault) -> bool:
    """Somebody who is no queue manager calls the node, says the thing that is number `value`, and hangs up."""
    machine = world.machines[fault.where]
    if machine.core is None:
        return False
    near = _call(world, machine, Stranger())
    data = SAYINGS[fault.value % len(SAYINGS)](machine.name)
    if data:
        _say(world, near, data)
    world.events.at(world.events.now_ms + HANGS_UP_MS, _hang_up, near)
    return True


def impostor(world: World, fault: Fault) -> bool:
    """Somebody calls the node, follows the plot that `value` tells, and hangs up after a while, before the calm.

    No sniffer sees him: what reads captures knows queue managers by their GUIDs.
    """
    machine = world.machines[fault.where]
    plot, name = plot_of(fault.value, world.scenario.nodes)
    caller = _caller(world, plot, name, fault.where)
    if machine.core is None or name == fault.where or caller is None:
        return False
    now_ms = world.events.now_ms
    until_ms = min(now_ms + fault.for_ms, world.scenario.storm_ms)
    for _ in range(plot.sessions):
        near = _call(world, machine, caller, is_watched=False)
        client = guid_of(name if plot.standing is Standing.CLAIM else caller.name)
        _shake_hands(world, near, client, machine.guid)
        world.events.at(now_ms + 2 * HANDSHAKE_MS, _follows, world, near, machine, plot, name, until_ms)
        world.events.at(max(until_ms, now_ms + 1), _hang_up, near)
    return True


def _caller(world: World, plot: Plot, name: str, called: str) -> Impostor | None:
    """Who comes for a plot; None if there is no node by whose address he could."""
    if plot.standing is not Standing.NEIGHBOUR:
        return Impostor(world, STRANGER, name if plot.standing is Standing.CLAIM else STRANGER)
    neighbour = next(iter(world.cannot_bring(name, called)), None)
    return None if neighbour is None else Impostor(world, neighbour, None)


def _follows(world: World, near: End, machine: Machine, plot: Plot, name: str, until_ms: int) -> None:
    if not near.open or machine.core is None:
        return
    for packet in plot.says(world, machine, name):
        _say(world, near, encode_packet(packet))
    if plot.goes_on and world.events.now_ms + AGAIN_MS < until_ms:
        world.events.at(world.events.now_ms + AGAIN_MS, _follows, world, near, machine, plot, name, until_ms)


def _shake_hands(world: World, near: End, client: Guid, server: Guid) -> None:
    """A stranger asks for a session, and proposes its parameters when he has it."""
    request = establish_connection(client=client, server=server, time_stamp_ms=0)
    parameters = connection_parameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    _say(world, near, encode_packet(request))
    world.events.at(world.events.now_ms + HANDSHAKE_MS, _say, world, near, encode_packet(parameters))


def _call(world: World, machine: Machine, caller: Any, *, is_watched: bool = True) -> End:
    """A stranger is connected to a node at once; the end that is his."""
    line = Line(Link(one=caller.name, other=machine.name), world.scenario.seed, world.events, world.sniffer)
    talk = None
    if world.sniffer is not None and is_watched:
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
