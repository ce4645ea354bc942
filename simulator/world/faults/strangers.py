"""Strangers that call a node and are not queue managers. Nothing that they send may do harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.simulator.fuzz.tactics.malformed import hostile_packets, hostile_pings
from mqproto.simulator.fuzz.tactics.packets import SAYINGS, connection_request, proposal
from mqproto.simulator.world.faults.impostors import AGAIN_MS, Impostor, Plot, Standing, plot_of, speaker_of
from mqproto.simulator.world.network.links import STRANGER, End, Wire
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.scenarios.scenario import Cable, Fault, guid_of
from mqproto.simulator.world.world import World
from mqproto.wire import Guid, encode_packet

HANGS_UP_MS: Final = 5_000
HANDSHAKE_MS: Final = 10
"""The time, in milliseconds, between two steps of the handshake by a stranger that knows it."""
FIRST_WORDS: Final[tuple[Callable[[str], bytes], ...]] = (
    lambda node: SAYINGS["nothing"],  # until one side gives up
    lambda node: SAYINGS["HTTP"],
    lambda node: connection_request(guid_of(STRANGER), guid_of("nobody"), time_stamp_ms=0),
    lambda node: connection_request(guid_of(node), guid_of(node), time_stamp_ms=0),
    lambda node: proposal(),
    lambda node: connection_request(guid_of(STRANGER), guid_of(node), time_stamp_ms=0)[:-4],
)
"""Functions that make a stranger's first words from the name of the node that it has called.

Drawn worlds use the first five.
"""


def stranger(world: World, fault: Fault) -> bool:
    """A stranger calls the node, says the words that `value` selects from FIRST_WORDS, and hangs up."""
    node = world.nodes[fault.where]
    if node.core is None:
        return False
    near = _call(world, node, Impostor(world, STRANGER, STRANGER))
    data = FIRST_WORDS[fault.value % len(FIRST_WORDS)](node.name)
    if data:
        _say(world, near, data)
    world.events.at(world.events.now_ms + HANGS_UP_MS, _hang_up, near)
    return True


def impostor(world: World, fault: Fault) -> bool:
    """An impostor calls the node, follows the plot that `value` selects, and later hangs up, before the calm.

    Captures do not show it, because readers of captures identify queue managers by their GUIDs.
    """
    node = world.nodes[fault.where]
    plot, name = plot_of(fault.value, world.scenario.nodes)
    caller = _caller(world, plot, name, fault.where)
    if node.core is None or name == fault.where or caller is None:
        return False
    now_ms = world.events.now_ms
    until_ms = min(now_ms + fault.for_ms, world.scenario.storm_ms)
    for _ in range(plot.sessions):
        near = _call(world, node, caller, is_watched=False)
        client = guid_of(name if plot.standing is Standing.CLAIM else caller.name)
        _shake_hands(world, near, client, node.guid)
        world.events.at(now_ms + 2 * HANDSHAKE_MS, _follows, world, near, node, plot, name, until_ms)
        world.events.at(max(until_ms, now_ms + 1), _hang_up, near)
    return True


def _caller(world: World, plot: Plot, name: str, called: str) -> Impostor | None:
    """Return the caller for a plot; None if the plot needs the address of a node, and no node fits."""
    if plot.standing is not Standing.NEIGHBOUR:
        return Impostor(world, STRANGER, name if plot.standing is Standing.CLAIM else STRANGER)
    neighbour = next(iter(world.cannot_bring(name, called)), None)
    return None if neighbour is None else Impostor(world, neighbour, None)


def _follows(world: World, near: End, node: LinkedNode, plot: Plot, name: str, until_ms: int) -> None:
    if not near.open or node.core is None:
        return
    for packet in plot.says(speaker_of(world, node, name)):
        _say(world, near, encode_packet(packet))
    if plot.goes_on and world.events.now_ms + AGAIN_MS < until_ms:
        world.events.at(world.events.now_ms + AGAIN_MS, _follows, world, near, node, plot, name, until_ms)


def _shake_hands(world: World, near: End, client: Guid, server: Guid) -> None:
    """Ask for a session as a stranger, and then propose its parameters."""
    _say(world, near, connection_request(client, server, time_stamp_ms=0))
    world.events.at(world.events.now_ms + HANDSHAKE_MS, _say, world, near, proposal())


def _call(world: World, node: LinkedNode, caller: Impostor, *, is_watched: bool = True) -> End:
    """Connect a stranger to a node immediately; return the stranger's end."""
    line = Wire(Cable(one=caller.name, other=node.name), world.scenario.seed, world.events, world.sniffer)
    talk = None
    if world.sniffer is not None and is_watched:
        talk = world.sniffer.calls(STRANGER, node.name)
        talk.accepted()
        talk.established()
    near, far = line.joined(caller, node, talk)
    node.do(node.accepted, far)
    return near


def _say(world: World, near: End, data: bytes, comment: str = "") -> None:
    """Send bytes as a stranger. They arrive a millisecond later."""
    if near.talk is not None:
        near.talk.leaves(near.side, data, comment)
    world.events.at(world.events.now_ms + 1, near.line.deliver, near.peer, data, [])


def hostile(world: World, fault: Fault) -> bool:
    """A stranger opens a session with the node, and sends the hostile packet that `value` selects."""
    node = world.nodes[fault.where]
    if node.core is None:
        return False
    name, packet = list(hostile_packets(guid_of(STRANGER), node.guid).items())[fault.value]
    near = _call(world, node, Impostor(world, STRANGER, STRANGER))
    now_ms = world.events.now_ms
    _shake_hands(world, near, guid_of(STRANGER), node.guid)
    world.events.at(now_ms + 2 * HANDSHAKE_MS, _say, world, near, packet, name)
    world.events.at(now_ms + HANGS_UP_MS, _hang_up, near)
    return True


def hostile_ping(world: World, fault: Fault) -> bool:
    """A stranger sends the node the hostile datagram that `value` selects. It is not answered."""
    node = world.nodes[fault.where]
    if node.core is None:
        return False
    name, datagram = list(hostile_pings(guid_of(STRANGER)).items())[fault.value]
    assert node.core.pinged(datagram) is None, name
    if world.sniffer is not None:
        world.sniffer.pings(STRANGER, node.name, datagram, comment=name)
    return True


def _hang_up(end: End) -> None:
    if end.open:
        end.line.close(end)
