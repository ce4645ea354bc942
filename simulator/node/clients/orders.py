"""Carries out operators' orders and logs them in one place, so that nothing happens without a line in the log."""

from __future__ import annotations

from mqproto.simulator.node import control
from mqproto.simulator.node.clients.deeds import ClientActivity
from mqproto.simulator.node.clients.operators import Operators
from mqproto.simulator.node.control import Operation
from mqproto.simulator.topology.directory import NodeDirectory

Order = (
    control.Hold | control.Block | control.PeerFacts | control.OneQueue | control.SendBack | control.QueueWish
)


def carry_out(
    operation: int, order: Order, operators: Operators, directory: NodeDirectory, deeds: ClientActivity
) -> object:
    """Carry out an order, and log who gave it; return the answer.

    Raises:
        UsageError, FormatNameError: the order cannot be carried out; nothing was done.
    """
    match order:
        case control.Hold(text, on_hold):
            for name in operators.hold(text, on_hold=on_hold):
                deeds.did("pause" if on_hold else "resume", name)
            return control.Nothing()
        case control.Block(_, is_blocked):
            blocked = operators.block(order)
            verb = "block" if is_blocked else "unblock"
            deeds.did(verb, network=blocked.network, sessions=blocked.sessions)
            return blocked
        case control.PeerFacts(name, host):
            status = operators.peer(order)
            verb = "add" if host or order.also else "move" if order.has_moved else "remove"
            deeds.did(f"peer-{verb}", peer=name, **({"host": host} if host else {}))
            return status
        case control.QueueWish():
            is_new = operation == Operation.MAKE
            declared = (operators.queues.make if is_new else operators.queues.change)(order)
            deeds.did("create" if is_new else "set", declared.name)
            return declared
        case control.OneQueue(text) if operation == Operation.PURGE:
            counts = operators.purge(text)
            for name, count in counts.items():
                deeds.did("purge", name, messages=count)
            return control.Count(sum(counts.values()))
    queue = directory.local_queue(order.queue)
    if isinstance(order, control.SendBack):
        verb, count = "return", operators.send_back(order.queue, order.messages)
    else:
        verb, count = "delete", operators.queues.delete(order.queue)
    deeds.did(verb, queue, messages=count)
    return control.Count(count)
