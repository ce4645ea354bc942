"""Cases carried out: each step is done, expected answers are awaited, and the first fault ends the case."""

from __future__ import annotations

import socket

import pytest
from trio.testing import MockClock

from mqproto.simulator.fuzz.peer.attack import Attack
from mqproto.simulator.fuzz.peer.conduct import Fault, PeerFailure
from mqproto.simulator.fuzz.peer.lines import Place
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step
from mqproto.simulator.fuzz.tactics.talk import PeerTarget, Talk
from tests.simulator.fuzz import peers
from tests.simulator.fuzz.peers import PEER, Peer, serving

TARGET = PeerTarget((r"TCP:127.0.0.1\private$\notes",), PEER, sent_s=1_700_000_000)
STARVED = Fault(PeerFailure.STARVES, "nobody is served", "")


def a_place(address: str, patience_s: float = 2.0) -> Place:
    return Place(socket.AF_INET, ("127.0.0.1", int(address.rpartition(":")[2])), 9, patience_s, PEER)


async def everybody_is_served() -> Fault | None:
    return None


async def carried_out(talk: Talk, address: str, *, watched: Fault | None = None) -> Fault | None:
    async def watch() -> Fault | None:
        return watched

    return await Attack(a_place(address), watch).carry_out(talk.case("kind", "name"))


async def test_a_valid_conversation_is_without_fault_on_one_connection_and_on_several(
    idle_clock: MockClock,
) -> None:
    talk = Talk(TARGET, 1, 1)
    for connection in range(3):
        talk.greet(connection)
        talk.last_word(connection)
    async with serving(Peer()) as address:
        place = a_place(address)
        assert await Attack(place, everybody_is_served).carry_out(talk.case("kind", "name")) is None
        assert place.counts["connections"] == 3
        assert place.counts["answers"] == 9


async def test_one_who_has_become_deaf_is_owed_nothing(idle_clock: MockClock) -> None:
    talk = Talk(TARGET, 1, 1)
    talk.greet(glued=False)
    talk.act(Act.DEAF)
    talk.last_word()
    async with serving(Peer()) as address:
        place = a_place(address)
        assert await Attack(place, everybody_is_served).carry_out(talk.case("kind", "name")) is None
        assert place.counts["answers"] == 2


async def test_what_is_owed_at_the_end_is_waited_for(idle_clock: MockClock) -> None:
    talk = Talk(TARGET, 1, 1)
    talk.greet(glued=False)
    talk.request()
    async with serving(peers.NeverCloses()) as address:
        fault = await Attack(a_place(address, 0.1), everybody_is_served).carry_out(talk.case("", ""))
        assert fault is not None
        assert "it should have closed on EstablishConnection" in fault.rule


@pytest.mark.parametrize("act", [Act.FINISH, Act.CLOSE, Act.RESET])
async def test_what_we_close_ourselves_owes_nothing(act: Act, idle_clock: MockClock) -> None:
    talk = Talk(TARGET, 1, 1)
    talk.greet(glued=True)
    talk.message("recoverable")
    talk.act(act)
    talk.act(Act.WATCH)
    async with serving(Peer()) as address:
        assert await carried_out(talk, address) is None
        assert await carried_out(talk, address, watched=STARVED) == STARVED


@pytest.mark.parametrize("act", [Act.CLOSE, Act.RESET])
async def test_whoever_closes_before_anything_is_answered_was_not_turned_away(
    act: Act, idle_clock: MockClock
) -> None:
    talk = Talk(TARGET, 1, 1)
    talk.greet(glued=True)
    talk.act(act)
    talk.act(Act.WATCH)
    async with serving(Peer()) as address:
        place = a_place(address)
        attack = Attack(place, everybody_is_served)
        assert await attack.carry_out(talk.case("kind", "name")) is None
        assert not attack.was_turned_away
        assert {name for name, count in place.counts.items() if count} == {"connections"}


async def test_datagrams_to_nobody_are_no_fault(idle_clock: MockClock) -> None:
    talk = Talk(TARGET, 1, 1)
    for _ in range(3):
        talk.act(Act.DATAGRAM, data=b"ping?")
    talk.greet()
    async with serving(Peer()) as address:
        assert await carried_out(talk, address) is None


async def test_the_first_fault_ends_it(idle_clock: MockClock) -> None:
    steps = (Step(Act.WATCH), Step(Act.SEND, 0, b"never sent"))
    async with serving(Peer()) as address:
        place = a_place(address)

        async def watch() -> Fault | None:
            return STARVED

        assert await Attack(place, watch).carry_out(Case("", "", steps, PEER, 0)) == STARVED
        assert place.counts["connections"] == 0
