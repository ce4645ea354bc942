"""The next hops on the way to a queue manager.

nexthops.py has the `Routes` that a queue manager is given, and peers.py decides whose GUIDs are believed. The other
modules compute next hops from the records of a directory. enterprise.py has these records; router.py finds the cheapest
ways between sites, and applies the rules of [MS-MQBR] 3.1.5.
"""

from mqproto.routing.enterprise import LINK_COSTS, Enterprise, Member, RoutingLink, Site
from mqproto.routing.nexthops import MSMQ_PORT, PING_PORT, NextHop, Routes
from mqproto.routing.peers import Peer
from mqproto.routing.router import Router

__all__ = [
    "LINK_COSTS",
    "MSMQ_PORT",
    "PING_PORT",
    "Enterprise",
    "Member",
    "NextHop",
    "Peer",
    "Router",
    "Routes",
    "RoutingLink",
    "Site",
]
