"""A topology is data: nodes, the links between them, and planned faults.

nodes.py and model.py have the records and answer questions about them. routes.py computes next hops from links, and
sites.py computes them from sites and link costs. resolve.py finds what names mean, and file.py has the TOML form. The
shipped files are in simulator/topology/shipped; read three-node.toml first.
"""

from mqproto.simulator.topology.errors import TopologyError
from mqproto.simulator.topology.file import load, parse, shipped
from mqproto.simulator.topology.model import Action, Fault, Link, Topology
from mqproto.simulator.topology.nodes import DeclaredQueue, Node, Tls
from mqproto.simulator.topology.resolve import ResolvedName

__all__ = [
    "Action",
    "DeclaredQueue",
    "Fault",
    "Link",
    "Node",
    "ResolvedName",
    "Tls",
    "Topology",
    "TopologyError",
    "load",
    "parse",
    "shipped",
]
