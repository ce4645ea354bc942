"""The output of `mqproto queue export`: a topology file with the queues that its nodes have now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mqproto.simulator.topology import DeclaredQueue, Topology
from mqproto.simulator.topology.views import as_toml

MADE = "made by a command, or changed by one"
HEADING = (
    "# As its nodes had it. Where they go on, another machine needs other addresses, and another `name` and no `guid`\n"
    "# at its nodes, or GUIDs of their own: two queue managers that meet must not have the same.\n"
)
AS_DECLARED = "does not run: of its queues, what the file says"


def exported(topology: Topology, found: Mapping[str, Sequence[DeclaredQueue] | None]) -> str:
    """Return the text of a topology file, with the queues of its nodes as they are now.

    Args:
        topology: the topology as its file declares it.
        found: the queues of each node, keyed by its name; None for a node that is not running, whose declared queues
            are used.
    """
    nodes = {
        name: node if (queues := found.get(name)) is None else node.with_queues(queues)
        for name, node in topology.nodes.items()
    }
    remarks = {
        (name, queue.name): MADE
        for name, node in nodes.items()
        for queue in node.queues.values()
        if topology.nodes[name].queues.get(queue.name) != queue
    }
    remarks |= {(name, ""): f"{name} {AS_DECLARED}" for name, queues in found.items() if queues is None}
    return HEADING + as_toml(replace(topology, nodes=nodes), is_brief=True, remarks=remarks)
