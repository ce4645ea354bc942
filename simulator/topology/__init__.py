"""Who there is, who talks to whom, and what goes wrong when: a topology is data.

nodes.py and model.py have the records and what they can be asked, routes.py the next hops by links, sites.py those by
sites and link costs, resolve.py what a typed name means, file.py how it is all written in TOML. The shipped files lie
in simulator/topology/shipped; read three-node.toml first.
"""

from mqproto.simulator.topology.errors import TopologyError
from mqproto.simulator.topology.file import load, parse, shipped
from mqproto.simulator.topology.model import Action, Fault, Link, Topology
from mqproto.simulator.topology.nodes import Node, QueueDeclaration, Tls
from mqproto.simulator.topology.resolve import Destination

__all__ = [
    "Action",
    "Destination",
    "Fault",
    "Link",
    "Node",
    "QueueDeclaration",
    "Tls",
    "Topology",
    "TopologyError",
    "load",
    "parse",
    "shipped",
]
