"""The faults, with one function for each kind. Each function returns whether the fault could have an effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from mqproto.queues.localqueue import SystemQueue
from mqproto.simulator.storage.checksums import hurt_packet
from mqproto.simulator.world.faults.readings import order_acks_otherwise
from mqproto.simulator.world.faults.rogues import deaf, forged_ack, impatient, lossy, picky, sparse
from mqproto.simulator.world.faults.strangers import hostile, hostile_ping, impostor, stranger
from mqproto.simulator.world.node.files import Death
from mqproto.simulator.world.node.machine import BACK_AFTER_MS, Machine
from mqproto.simulator.world.oracle.invariants import SYSTEM_QUEUES
from mqproto.simulator.world.scenarios.scenario import Fault
from mqproto.simulator.world.scenarios.traffic import KINDS, ORDERS
from mqproto.simulator.world.world import World
from mqproto.turn.effects import QueueKind

DETOUR_MS: Final = 300
"""The time, in milliseconds, from the blocking of a route to the choice of another one."""
HURT: Final = frozenset({QueueKind.SEQUENCE, QueueKind.OUTGOING, QueueKind.HELD, QueueKind.LOCAL})
"""The kinds of queues whose messages may be damaged.

FINAL is not among them, because messages that wait for a FinalAck have already arrived.
"""
ASKED: Final = 4
"""The number of times that a curious operator asks for the state."""
LATE_MS: Final = 100
"""The time, in milliseconds, by which some nodes start later than the others after the map has changed."""

# Nodes


def kill(world: World, fault: Fault) -> bool:
    """The process ends immediately, and the operating system resets its connections.

    A commit that is under way is kept if `value` is odd.
    """
    return _stop(world, fault, told=True)


def power_loss(world: World, fault: Fault) -> bool:
    """The machine loses power, so the peers are not told."""
    return _stop(world, fault, told=False)


def _stop(world: World, fault: Fault, *, told: bool) -> bool:
    machine = world.machines[fault.where]
    if machine.node.core is None:
        return False
    machine.crash(kept=bool(fault.value & 1), told=told)
    machine.restart_at(world.events.now_ms + fault.for_ms)
    return True


def stop(world: World, fault: Fault) -> bool:
    """An operator stops the node, and starts it again later."""
    machine = world.machines[fault.where]
    return machine.node.do(machine.stop, fault.at_ms + fault.for_ms)


def die_in_commit(world: World, fault: Fault) -> bool:
    """The node dies during one of its next operations on its disk. `value` says which and how (see Death)."""
    machine = world.machines[fault.where]
    machine.files.dies_by(Death.of(fault.value))
    return machine.node.core is not None


def die_at_start(world: World, fault: Fault) -> bool:
    """The process is killed, and its successor dies during one of its first disk operations.

    `value` says which and how.
    """
    if not _stop(world, replace(fault, value=0), told=True):
        return False
    world.machines[fault.where].death_at_start = Death.of(fault.value)
    return True


def put_back(world: World, fault: Fault) -> bool:
    """The node's store is copied while the node is down for a moment. Later, the copy replaces the store.

    If `value` is odd, the store is moved away instead, and the node begins with an empty one. In both cases, promises
    for messages that were accepted earlier are void; promises for later messages hold.
    """
    machine = world.machines[fault.where]
    if machine.node.core is None:
        return False
    machine.crash(kept=True)
    machine.copy_store()
    machine.restart_at(world.events.now_ms + 1)
    world.events.at(fault.at_ms + fault.for_ms, _goes_back, world, machine, bool(fault.value & 1))
    return True


def _goes_back(world: World, machine: Machine, is_lost: bool) -> None:
    machine.crash(kept=True)
    if machine.put_back_store(is_lost=is_lost):
        world.ledger.tally["store moved away" if is_lost else "store put back"] += 1
        world.ledger.goes_back()
        for other in world.nodes.values():
            other.may_wait_in_vain = True
    machine.restart_at(world.events.now_ms + BACK_AFTER_MS)


def hurt_message(world: World, fault: Fault) -> bool:
    """The process is killed. Before it starts again, one message in its tables is damaged."""
    machine = world.machines[fault.where]
    if not _stop(world, replace(fault, value=1), told=True):
        return False
    rows = [
        row
        for number, queue in machine.node.disk.queues.items()
        if queue.kind in HURT and queue.name not in SYSTEM_QUEUES
        for row in machine.node.disk.rows(number)
        if world.ledger.message_in(row.packet) is not None
    ]
    if rows:
        row = rows[fault.value % len(rows)]
        if packet := machine.files.hurt(row.key):
            machine.node.disk.hurt[row.key] = hurt_packet(packet, row.message_id)
    return True


def slow_disk(world: World, fault: Fault) -> bool:
    """For a while, each flush takes `value` milliseconds."""
    machine = world.machines[fault.where]
    machine.files.flush_ms = fault.value
    world.events.at(fault.at_ms + fault.for_ms, _fast_disk, machine)
    return True


def _fast_disk(machine: Machine) -> None:
    machine.files.flush_ms = 0


def full_disk(world: World, fault: Fault) -> bool:
    """For a while, the log has room for only `value` more bytes."""
    machine = world.machines[fault.where]
    machine.files.room_bytes = machine.files.size_bytes + fault.value
    world.events.at(fault.at_ms + fault.for_ms, _make_room, machine)
    return True


def _make_room(machine: Machine) -> None:
    machine.files.room_bytes = None


def jump_clock(world: World, fault: Fault) -> bool:
    """The node's date jumps by `value` seconds, forward or backward. Its uptime does not change."""
    world.nodes[fault.where].jump_clock(fault.value)
    return True


def reroute(world: World, fault: Fault) -> bool:
    """The node restarts, and takes another of the shortest routes, if there is more than one."""
    machine = world.machines[fault.where]
    world.route_choices[machine.node.name] = world.route_choices.get(machine.node.name, 0) + 1
    return _stop(world, fault, told=True)


def detour(world: World, fault: Fault) -> bool:
    """The messages that the node has sent get stuck at the next hop. Then the node restarts, and sends later messages
    by another route.
    """
    goals = [burst.target for burst in world.scenario.bursts if burst.source == fault.where]
    for goal in goals:
        way = world.way(fault.where, goal)
        if len(way) > 2:
            stall(world, replace(fault, where=world.nodes[way[1]].lines[way[2]].link.name, value=0))
            world.events.at(fault.at_ms + DETOUR_MS, reroute, world, replace(fault, for_ms=1))
            return True
    return False


def new_keys(world: World, fault: Fault) -> bool:
    """The node gets a new key pair, and keeps the old ones. The other nodes learn of it later."""
    if world.keyring is None:
        return False
    world.keyring.replace(fault.where)
    world.tell_of_keys(fault.where)
    world.events.at(fault.at_ms + fault.for_ms, _hand_out, world, fault.where)
    return True


def _hand_out(world: World, name: str) -> None:
    if world.keyring is not None:
        world.keyring.hand_out(name)
        world.tell_of_keys(*world.machines)


def withdraw_keys(world: World, fault: Fault) -> bool:
    """For a while, the node does not know anyone's public keys."""
    if world.keyring is None:
        return False
    world.ledger.keys_withdrawn.add(fault.where)
    _withdraw(world, fault.where, withdrawn=True)
    world.events.at(fault.at_ms + fault.for_ms, partial(_withdraw, world, fault.where, withdrawn=False))
    return True


def _withdraw(world: World, name: str, *, withdrawn: bool) -> None:
    if world.keyring is not None:
        world.keyring.withdraw(name, withdrawn=withdrawn)
        world.tell_of_keys(name)


# Links


def reset(world: World, fault: Fault) -> bool:
    """All connections of a link break, and both ends notice."""
    return world.lines[fault.where].reset_all() > 0


def stall(world: World, fault: Fault) -> bool:
    """For a while, nothing arrives from one side of the link, or from both.

    `value` is 1 or 2 for one side, and 0 for both.
    """
    line = world.lines[fault.where]
    until_ms = fault.at_ms + fault.for_ms
    for number, name in enumerate(line.stalled_until_ms, 1):
        if fault.value in (0, number):
            line.stalled_until_ms[name] = max(line.stalled_until_ms[name], until_ms)
    world.maximum("outage of a link", fault.for_ms)
    return True


def refuse(world: World, fault: Fault) -> bool:
    """For a while, no connection is made, and existing ones break."""
    line = world.lines[fault.where]
    line.refused_until_ms = max(line.refused_until_ms, fault.at_ms + fault.for_ms)
    line.reset_all()
    world.maximum("outage of a link", fault.for_ms)
    return True


def silence(world: World, fault: Fault) -> bool:
    """For a while, nothing gets through, and neither end learns of it.

    Existing connections wait, and new ones time out.
    """
    line = world.lines[fault.where]
    line.silent_until_ms = max(line.silent_until_ms, fault.at_ms + fault.for_ms)
    return stall(world, fault)


def cut(world: World, fault: Fault) -> bool:
    """A link breaks for good. Later, an operator takes it off the map, and all nodes restart with routes around it.

    All of them stop before the first one starts again, so running nodes never have different maps.
    """
    line = world.lines[fault.where]
    line.is_cut = True
    line.reset_all()
    world.events.at(fault.at_ms + fault.for_ms, _change_map, world, fault)
    return True


def _change_map(world: World, fault: Fault) -> None:
    world.take_off_the_map(fault.where)
    for place, name in enumerate(world.machines):
        _stop(world, replace(fault, where=name, for_ms=place % 3 * LATE_MS), told=True)


def half_open(world: World, fault: Fault) -> bool:
    """One end of each connection over a link is gone, and the other end does not know it."""
    line = world.lines[fault.where]
    victims = list(line.connections)
    for near in victims:
        end = near if fault.value & 1 else near.peer
        if end.open:
            end.host.end_lost(end, "connection reset")
    return bool(victims)


# Operators


def purge(world: World, fault: Fault) -> bool:
    """An operator purges the node's queue `orders`."""
    machine = world.machines[fault.where]
    if machine.node.core is None or ORDERS.name not in [queue.name for queue in machine.node.queues]:
        return False
    machine.node.do(_purge, machine)
    return True


def _purge(machine: Machine) -> None:
    if ORDERS.name not in machine.people.deleted:
        machine.node.running.purge(ORDERS.name)


def delete(world: World, fault: Fault) -> bool:
    """The node's queue `orders` is deleted, and later made again, either as soon as possible or in the calm."""
    machine = world.machines[fault.where]
    if machine.node.core is None or ORDERS.name not in [queue.name for queue in machine.node.queues]:
        return False
    machine.node.do(machine.people.delete, ORDERS.name)
    machine.node.later(fault.for_ms, machine.people.make_again)
    return True


def purge_outgoing(world: World, fault: Fault) -> bool:
    """The node's outgoing messages are deleted, whether they have been sent or not.

    Messages from other nodes are deleted only if `value` is odd. Acknowledgments stay, because nobody would send them
    again.
    """
    machine = world.machines[fault.where]
    acknowledged = any(KINDS[burst.kind].acknowledged for burst in world.scenario.bursts)
    return machine.node.do(machine.people.purge_outgoing, bool(fault.value & 1) and not acknowledged)


def hold(world: World, fault: Fault) -> bool:
    """For a while, all of the node's outgoing queues are paused."""
    machine = world.machines[fault.where]
    machine.node.do(machine.people.hold, True)
    world.events.at(fault.at_ms + fault.for_ms, machine.node.do, machine.people.hold, False)
    return machine.node.core is not None


def ask(world: World, fault: Fault) -> bool:
    """An operator asks several times for the state of each queue and the location of each message."""
    machine = world.machines[fault.where]
    if machine.node.core is None:
        return False
    for again in range(ASKED):
        machine.node.later(again * fault.for_ms // ASKED, machine.people.ask)
    return True


def give_back(world: World, fault: Fault) -> bool:
    """An operator sends the node's transactional dead letters again."""
    machine = world.machines[fault.where]
    return machine.node.do(machine.people.give_back, SystemQueue.DEADXACT.value)


FAULTS: Final[dict[str, Callable[[World, Fault], bool]]] = {
    "kill": kill,
    "power loss": power_loss,
    "stop": stop,
    "die in commit": die_in_commit,
    "die at start": die_at_start,
    "slow disk": slow_disk,
    "full disk": full_disk,
    "jump clock": jump_clock,
    "reroute": reroute,
    "detour": detour,
    "reset": reset,
    "stall": stall,
    "refuse": refuse,
    "silence": silence,
    "half open": half_open,
    "purge": purge,
    "delete": delete,
    "purge outgoing": purge_outgoing,
    "hold": hold,
    "ask": ask,
    "stranger": stranger,
    "impatient": impatient,
    "deaf": deaf,
    "lossy": lossy,
    "forged ack": forged_ack,
    "cut": cut,
    "sparse": sparse,
    "put back": put_back,
    "hurt message": hurt_message,
    "impostor": impostor,
    "order acks otherwise": order_acks_otherwise,
    "picky": picky,
    "new keys": new_keys,
    "withdraw keys": withdraw_keys,
}
"""The faults from which `draw` chooses."""

EVENTS: Final[dict[str, Callable[[World, Fault], bool]]] = {
    **FAULTS,
    "give back": give_back,
    "hostile": hostile,
    "hostile ping": hostile_ping,
}
"""All faults that a scenario may have; those that are never drawn are for handwritten scenarios."""
