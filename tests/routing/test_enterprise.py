"""What a directory knows about an enterprise, and contradictions in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqproto.base.errors import UsageError
from mqproto.routing import LINK_COSTS, Enterprise, Member, RoutingLink, Site

SERVER = Member(identifier="server", sites=("north",), routing_server=True)
GATE = Member(identifier="gate", sites=("north", "south"), routing_server=True)
CLIENT = Member(identifier="client", sites=("north",))
NORTH, SOUTH = Site("north", ("gate",)), Site("south", ("gate",))
ENTERPRISE = Enterprise([CLIENT, SERVER, GATE], [NORTH, SOUTH], [RoutingLink("north", "south")])


@pytest.mark.spec("[MS-MQBR] 3.1.5.4")
def test_a_machine_is_found_or_it_is_not() -> None:
    assert ENTERPRISE.machine("client") is CLIENT
    assert ENTERPRISE.machine("nobody") is None


@pytest.mark.spec("[MS-MQBR] 3.1.5.5")
def test_the_routing_servers_of_a_machine_are_those_of_its_sites_as_they_are_listed() -> None:
    assert ENTERPRISE.routing_servers_of(CLIENT) == ("server", "gate")
    elsewhere = Member(identifier="elsewhere", sites=("south",))
    assert Enterprise([SERVER, elsewhere, GATE], [NORTH, SOUTH]).routing_servers_of(elsewhere) == ("gate",)


@pytest.mark.spec("[MS-MQBR] 3.1.5.6")
@pytest.mark.spec("[MS-MQBR] 3.1.5.7")
def test_the_gates_of_a_machine_are_those_of_its_sites_each_once() -> None:
    north = Site("north", ("server", "gate"))
    enterprise = Enterprise([SERVER, GATE], [north, SOUTH])
    assert enterprise.site_gates_for("north") == ("server", "gate")
    assert enterprise.site_gates_of(SERVER) == ("server", "gate")
    assert enterprise.site_gates_of(GATE) == ("server", "gate")


@pytest.mark.spec("[MS-MQBR] 3.1.5.8")
def test_a_machine_is_a_gate_of_the_sites_that_name_it_and_of_no_other() -> None:
    assert ENTERPRISE.gated_sites_of(GATE) == ("north", "south")
    assert ENTERPRISE.gated_sites_of(SERVER) == ()
    other = Member(identifier="other", sites=("south",), routing_server=True)
    south = Site("south", ("other",))
    assert Enterprise([GATE, other], [NORTH, south]).gated_sites_of(GATE) == ("north",)


def in_north(**fields: object) -> Member:
    return Member(identifier="m", **{"sites": ("north",), **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Enterprise([in_north(sites=())], [NORTH]), "m is in no site; give it one of north"),
        (
            lambda: Enterprise([in_north(sites=("nroth",))], [Site("north")]),
            "m: no site is called 'nroth'; there is north",
        ),
        (lambda: Enterprise([CLIENT, CLIENT], [Site("north")]), "two are called 'client'; change one"),
        (lambda: Enterprise([], [NORTH, NORTH]), "two are called 'north'; change one"),
        (
            lambda: Enterprise([in_north(in_routing_servers=("x",))], [Site("north")]),
            "m: its in-routing server 'x' is nobody; there is m",
        ),
        (
            lambda: Enterprise([in_north(out_routing_servers=("client",)), CLIENT], [Site("north")]),
            "m: its out-routing server client is not a routing server; make it one",
        ),
        (
            lambda: Enterprise([CLIENT], [Site("north", ("client",))]),
            "site north: its gate client is not a routing server; make it one",
        ),
        (
            lambda: Enterprise([SERVER], [Site("south", ("server",))]),
            "server: no site is called 'north'; there is south",
        ),
        (
            lambda: Enterprise([SERVER, GATE], [NORTH, Site("south", ("server",))]),
            "site south: its gate server is in another site; name one that is in it",
        ),
        (
            lambda: Enterprise([GATE], [NORTH, Site("south")]),
            "site south has no gate; name one of its routing servers as one",
        ),
        (
            lambda: Enterprise([GATE], [NORTH, SOUTH], [RoutingLink("north", "west")]),
            "routing link: no site is called 'west'; there is north, south",
        ),
        (
            lambda: Enterprise([GATE], [NORTH, SOUTH], [RoutingLink("north", "north")]),
            "routing link between north and north: they are linked already; leave it out",
        ),
        (
            lambda: Enterprise(
                [GATE], [NORTH, SOUTH], [RoutingLink("north", "south"), RoutingLink("south", "north")]
            ),
            "routing link between south and north: they are linked already; leave it out",
        ),
    ],
)
def test_records_that_do_not_fit_together_are_refused_by_name(
    make: Callable[[], Enterprise], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert str(refused.value) == said


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.8")
@pytest.mark.parametrize("cost", [0, -1, 1_000_000])
def test_a_link_costs_from_1_to_999999_and_a_closed_one_is_left_out(cost: int) -> None:
    assert (LINK_COSTS[0], LINK_COSTS[-1]) == (1, 999_999)
    Enterprise([GATE], [NORTH, SOUTH], [RoutingLink("north", "south", 999_999)])
    with pytest.raises(UsageError, match=f"north and south: cost {cost} is not within 1 to 999999"):
        Enterprise([GATE], [NORTH, SOUTH], [RoutingLink("north", "south", cost)])


@pytest.mark.spec("[MS-MQBR] 1.5")
def test_the_only_site_needs_no_gate() -> None:
    assert Enterprise([CLIENT, SERVER], [Site("north")]).site_gates_of(CLIENT) == ()
