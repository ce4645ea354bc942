"""The healthy session: a sound peer serves it for any length of time, and it notices a peer that is not sound."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from mqproto.session import Session
from mqproto.simulator.fuzz.peer.canary import MESSAGES_EACH, a_canary
from mqproto.simulator.fuzz.peer.conduct import PeerFailure
from mqproto.simulator.fuzz.peer.lines import ELSEWHERE
from tests.simulator.fuzz import peers
from tests.simulator.fuzz.peer.test_attack import TARGET, a_place
from tests.simulator.fuzz.peers import Peer, serving


async def test_a_sound_peer_serves_it_session_after_session() -> None:
    async with serving(Peer()) as address:
        place = a_place(address, patience_s=60)
        async with a_canary(place, TARGET, 1) as canary:
            for _ in range(2 * MESSAGES_EACH + 10):
                assert await canary.check() is None
        assert place.counts["connections"] == 3
        assert canary.slowest_s > 0


async def test_checks_at_one_time_wait_for_each_other(idle_clock: MockClock) -> None:
    async with serving(Peer()) as address:
        place = a_place(address)
        async with a_canary(place, TARGET, 1) as canary, trio.open_nursery() as nursery:

            async def check() -> None:
                assert await canary.check() is None

            for _ in range(20):
                nursery.start_soon(check)
        assert place.counts["connections"] == 1


async def test_it_sees_that_a_peer_takes_no_more_of_the_host_of_the_others(idle_clock: MockClock) -> None:
    async with (
        serving(peers.Bounds(after=1, count=1)) as address,
        a_canary(a_place(address), TARGET, 1) as canary,
    ):
        assert await canary.check() is None
        assert [await canary.is_held_up() for _ in range(3)] == [False, True, False]


async def test_where_it_is_not_served_either_nobody_is_held_up(idle_clock: MockClock) -> None:
    peer = peers.Bounds(after=0, count=99, host=ELSEWHERE)
    async with serving(peer) as address, a_canary(a_place(address), TARGET, 1) as canary:
        assert not await canary.is_held_up()


async def test_that_its_session_is_closed_is_a_crash_and_the_next_check_begins_anew() -> None:
    class Restarts(Peer):
        async def took(self, session: Session, *_: object) -> bytes:
            if session.data.message_received_count > 1:
                raise peers.CrashedError
            return b""

    async with serving(Restarts()) as address, a_canary(a_place(address, patience_s=60), TARGET, 1) as canary:
        assert await canary.check() is None
        fault = await canary.check()
        assert fault is not None
        assert (fault.oracle, fault.rule) == (PeerFailure.CRASHES, "it closes a healthy session")
        while (fault := await canary.check()) is not None:
            assert fault.rule == "no connection can be had"


async def test_that_it_is_not_answered_means_that_others_are_not_served(idle_clock: MockClock) -> None:
    class Silent(Peer):
        async def received(self, session: object, data: bytes) -> bytes:
            await trio.sleep_forever()
            return b""

    async with serving(Silent()) as address, a_canary(a_place(address, 0.05), TARGET, 1) as canary:
        fault = await canary.check()
        assert fault is not None
        assert fault.oracle is PeerFailure.STARVES
        assert "nobody else is served: it owes an answer to EstablishConnection" in fault.rule


async def test_a_wrong_answer_to_it_is_a_wrong_answer(idle_clock: MockClock) -> None:
    class Twice(Peer):
        async def took(self, session: Session, *_: object) -> bytes:
            return b"garbage" * 8 if session.data.message_received_count > 1 else b""

    async with serving(Twice()) as address, a_canary(a_place(address), TARGET, 1) as canary:
        assert await canary.check() is None
        fault = await canary.check()
        assert fault is not None
        assert fault.oracle is PeerFailure.WRONG


async def test_a_check_that_was_cancelled_leaves_the_next_one_sound(idle_clock: MockClock) -> None:
    async def cancel_after(steps: int, scope: trio.CancelScope) -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    cancelled = 0
    async with (
        serving(Peer()) as address,
        a_canary(a_place(address), TARGET, 1) as canary,
        trio.open_nursery() as nursery,
    ):
        for steps in range(20):
            assert await canary.check() is None
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_after, steps, scope)
                await canary.check()
            cancelled += scope.cancelled_caught
    assert cancelled
