"""Packets out of turn: the bytes of each tactic, and where it ends."""

from __future__ import annotations

import pytest

from mqproto.simulator.fuzz.tactics.cases import Act
from mqproto.simulator.fuzz.tactics.outofturn import OUT_OF_TURN, STRANGERS, TACTICS
from mqproto.simulator.fuzz.tactics.talk import PeerTarget, Talk
from tests.examples import DESTINATION

TARGET = PeerTarget(
    (r"TCP:127.0.0.1\private$\notes", r"TCP:127.0.0.1\private$\orders"), DESTINATION, sent_s=1_700_000_000
)

LONGEST_BYTES = 64 * 2**20
"""The approximate limit, in bytes, on what a tactic sends: 16 connections send 4 MiB each, all of it one string."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "much"), [*((name, False) for name in OUT_OF_TURN), *((name, True) for name in STRANGERS)]
)
def test_each_tactic_says_something_and_ends_where_it_can_be_judged(name: str, much: bool) -> None:
    assert TACTICS[name].__doc__
    for number in range(1, 12):
        talk = Talk(TARGET, 9, number)
        talk.is_much = much
        what = TACTICS[name](talk)
        case = talk.case(name, what)
        assert what
        assert "\n" not in what
        assert case.steps[-1].act in (Act.AWAIT, Act.WATCH)
        assert case.connections
        assert len(case.data) <= LONGEST_BYTES
