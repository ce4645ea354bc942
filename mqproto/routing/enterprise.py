"""Queue managers, sites and routing links: the records of an enterprise's directory that routing uses.

[MS-MQBR] 3.1.1.1, 3.1.5.4 to 3.1.5.8. Each record is identified by a text: its name, or its GUID in registry form.
Connected networks and foreign sites are left out, because no rule of [MS-MQBR] 3.1 uses them.

Where the specification chooses "one of" several, all are returned, in the order in which the enterprise lists them. The
first one is the choice, and the others are used if it cannot be reached. To spread the load at random, the caller
shuffles that order, because random numbers come from the shell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from mqproto.base.errors import UsageError

LINK_COSTS: Final = range(1, 1_000_000)
"""The possible values of ActualCost. A closed link has no cost, and is left out.  [MS-MQDMPR] 3.1.1.8"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A QueueManager record.  [MS-MQDMPR] 3.1.1.1

    sites: SiteIdentifierList. Most queue managers have one site.
    routing_server: whether it stores and forwards messages for others.
    out_routing_servers: all messages from it go through one of these. A routing server needs none and ignores them.
    in_routing_servers: all messages to it go through one of these.
    """

    identifier: str
    sites: tuple[str, ...]
    routing_server: bool = False
    out_routing_servers: tuple[str, ...] = ()
    in_routing_servers: tuple[str, ...] = ()

    def shares_site_with(self, other: Member) -> bool:
        """Return whether the two queue managers have a site in common."""
        return not set(self.sites).isdisjoint(other.sites)


@dataclass(frozen=True, slots=True)
class Site:
    """A Site record.  [MS-MQDMPR] 3.1.1.7

    site_gates: SiteGateCollection: the routing servers of the site through which all messages enter and leave it. The
        directory also lists gates for each link ([MS-MQDMPR] 3.1.1.8), but routing asks only for a site's gates.
    """

    identifier: str
    site_gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutingLink:
    """A RoutingLink record: two sites whose gates can reach each other, at one cost for both directions.

    [MS-MQDMPR] 3.1.1.8
    """

    site1: str
    site2: str
    actual_cost: int = 1


Record = TypeVar("Record", Member, Site)


class Enterprise:
    """The records of one directory, checked for consistency.

    Raises:
        UsageError: the records do not fit together; the text names one that does not fit. It is not an
            error if some sites are not connected: a destination that cannot be reached has no next hop.
    """

    def __init__(
        self, machines: Iterable[Member], sites: Iterable[Site], links: Iterable[RoutingLink] = ()
    ) -> None:
        self.machines = _by_identifier(machines)
        self.sites = _by_identifier(sites)
        self.links = tuple(links)
        for machine in self.machines.values():
            self._check_machine(machine)
        for site in self.sites.values():
            self._check_site(site)
        self._check_links()

    # What the rules ask for

    def machine(self, identifier: str) -> Member | None:
        """Return the record of a queue manager, or None. This is GetQueueManager.  [MS-MQBR] 3.1.5.4"""
        return self.machines.get(identifier)

    def routing_servers_of(self, machine: Member) -> tuple[str, ...]:
        """Return the routing servers of a machine's sites: GetRoutingServer.  [MS-MQBR] 3.1.5.5"""
        return tuple(
            other.identifier
            for other in self.machines.values()
            if other.routing_server and other.shares_site_with(machine)
        )

    def site_gates_of(self, machine: Member) -> tuple[str, ...]:
        """Return the site gates of a machine's sites: GetSiteGate.  [MS-MQBR] 3.1.5.6"""
        return _in_order(gate for site in machine.sites for gate in self.site_gates_for(site))

    def site_gates_for(self, site: str) -> tuple[str, ...]:
        """Return the site gates of one site: GetSiteGateForSite.  [MS-MQBR] 3.1.5.7"""
        return self.sites[site].site_gates

    def gated_sites_of(self, machine: Member) -> tuple[str, ...]:
        """Return the sites for which a machine is a site gate.  [MS-MQBR] 3.1.5.8

        IsSiteGate is true if there are any.
        """
        return tuple(site for site in machine.sites if machine.identifier in self.sites[site].site_gates)

    # Whether they fit together

    def _check_machine(self, machine: Member) -> None:
        name = machine.identifier
        if not machine.sites:
            raise UsageError(f"{name} is in no site; give it one of {_listed(self.sites)}")
        for site in machine.sites:
            if site not in self.sites:
                raise UsageError(f"{name}: no site is called {site!r}; there is {_listed(self.sites)}")
        for kind, servers in (
            ("out-routing", machine.out_routing_servers),
            ("in-routing", machine.in_routing_servers),
        ):
            for server in servers:
                self._check_routing_server(f"{name}: its {kind} server", server)

    def _check_site(self, site: Site) -> None:
        name = site.identifier
        for gate in site.site_gates:
            self._check_routing_server(f"site {name}: its gate", gate)
            if name not in self.machines[gate].sites:
                raise UsageError(f"site {name}: its gate {gate} is in another site; name one that is in it")
        if not site.site_gates and len(self.sites) > 1:  # [MS-MQBR] 1.5
            raise UsageError(f"site {name} has no gate; name one of its routing servers as one")

    def _check_routing_server(self, what: str, name: str) -> None:
        machine = self.machines.get(name)
        if machine is None:
            raise UsageError(f"{what} {name!r} is nobody; there is {_listed(self.machines)}")
        if not machine.routing_server:
            raise UsageError(f"{what} {name} is not a routing server; make it one")

    def _check_links(self) -> None:
        linked: set[frozenset[str]] = set()
        for link in self.links:
            for site in (link.site1, link.site2):
                if site not in self.sites:
                    raise UsageError(
                        f"routing link: no site is called {site!r}; there is {_listed(self.sites)}"
                    )
            pair = frozenset((link.site1, link.site2))
            where = f"routing link between {link.site1} and {link.site2}"
            if len(pair) == 1 or pair in linked:
                raise UsageError(f"{where}: they are linked already; leave it out")
            if link.actual_cost not in LINK_COSTS:
                raise UsageError(
                    f"{where}: cost {link.actual_cost} is not within {LINK_COSTS[0]} to {LINK_COSTS[-1]}"
                )
            linked.add(pair)


def _by_identifier(records: Iterable[Record]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in records:
        if record.identifier in found:
            raise UsageError(f"two are called {record.identifier!r}; change one")
        found[record.identifier] = record
    return found


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once, in the order of first occurrence."""
    return tuple(dict.fromkeys(names))


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"
