"""Strangers who present the GUID of a node, or speak in its name, in the middle of honest traffic."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.manager.outbound import Outbound
from mqproto.routing import Routes
from mqproto.session import Session
from simulator.world import simulate
from simulator.world.faults.impostors import NO_MAIL, PLOTS
from simulator.world.faults.strangers import SAYINGS
from simulator.world.scenarios.scenario import Burst, Fault, Link, Scenario

IMPOSTORS = 2 * len(PLOTS)
"""Each plot of those who present the GUID of a node, and of those who only speak in its name."""


TROUBLES = (
    None,
    Fault(at_ms=100, kind="lossy", where="b", for_ms=7_000),
    Fault(at_ms=100, kind="kill", where="c", for_ms=7_000),
)
"""What else goes wrong: the node in the middle loses most of what it says that it has; the destination is down."""


def besieged(plot: int, trouble: Fault | None) -> Scenario:
    """Three nodes in a row; whatever they send, impostors call each of them all the time."""
    nodes = ("a", "b", "c")
    bursts = [
        Burst(at_ms=at_ms, source=source, target=target, kind=kind, count=5)
        for at_ms in range(0, 8_000, 500)
        for source, target in (("a", "c"), ("b", "c"), ("c", "a"))
        for kind in ("transactional", "recoverable")
    ]
    faults = [
        Fault(at_ms=at_ms, kind="stranger", where=node, value=len(SAYINGS) + plot)
        for at_ms in range(200, 8_000, 700)
        for node in nodes
    ]
    if trouble is not None:
        faults.append(trouble)
    links = (Link(one="a", other="b"), Link(one="b", other="c"))
    return Scenario(
        seed=plot, nodes=nodes, links=links, bursts=tuple(bursts), faults=tuple(faults), storm_ms=9_000
    )


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("plot", range(IMPOSTORS))
def test_whatever_an_impostor_does_every_promise_is_kept(plot: int, trouble: Fault | None) -> None:
    assert simulate(besieged(plot, trouble)).breach is None


def broken_by(*plots: int) -> set[str]:
    """The invariants that break in worlds with these plots."""
    breaches = [simulate(besieged(plot, trouble)).breach for plot in plots for trouble in TROUBLES]
    return {breach.invariant for breach in breaches if breach is not None}


def test_the_worlds_find_a_node_that_believes_every_guid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Routes, "proves", lambda self, manager, host, certified: manager in self.peers)
    assert NO_MAIL in broken_by(0)
    assert broken_by(1)
    assert broken_by(2)


def test_the_worlds_find_a_node_that_lets_strangers_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Outbound.speaks_for

    def speaks_for(self: Outbound, sequence: Any, source: Any, remote: Any) -> bool:
        return sound(self, sequence, source, remote._replace(is_proven=True))

    monkeypatch.setattr(Outbound, "speaks_for", speaks_for)
    assert broken_by(3)


def test_the_worlds_find_a_node_that_judges_strangers_as_if_they_were_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = vars(Session)["remote"]

    def remote(self: Session) -> Any:
        return sound.fget(self)._replace(is_proven=True)

    monkeypatch.setattr(Session, "remote", property(remote))
    assert broken_by(2)
