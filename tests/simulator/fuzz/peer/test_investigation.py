"""From a fault to a finding: how findings are grouped, which are known already, and which are only stored."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trio.testing import MockClock

from mqproto.simulator.fuzz.findings import Findings
from mqproto.simulator.fuzz.peer.canary import a_canary
from mqproto.simulator.fuzz.peer.conduct import Fault, PeerFailure
from mqproto.simulator.fuzz.peer.investigation import GONE, ONCE, Investigation, alike, causes_of, group_of
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step
from mqproto.simulator.fuzz.tactics.talk import Talk
from mqproto.wire import encode_packet
from tests.examples import SENDER, SENT_S, a_user_message
from tests.simulator.fuzz.peer.test_attack import TARGET, a_place
from tests.simulator.fuzz.peers import Peer, serving

PACKET = encode_packet(a_user_message())
CRASH = Fault(PeerFailure.CRASHES, "it closes a healthy session", "")
STARVES = Fault(PeerFailure.STARVES, "nobody else is served", "")
HANGS = Fault(PeerFailure.HANGS, "it owes an answer", "1 s long")


def a_case(*places: int, kind: str = "kind") -> Case:
    """Return a case with a packet whose bytes at these places are changed."""
    data = bytes(byte ^ 0xFF if at in places else byte for at, byte in enumerate(PACKET))
    return Case(kind, "name", (Step(Act.SEND, 0, data, was=PACKET if places else b""),), SENDER, SENT_S)


@asynccontextmanager
async def investigating(address: str) -> AsyncIterator[Investigation]:
    place = a_place(address, 0.3)
    async with a_canary(place, TARGET, 1) as canary:
        yield Investigation(place, canary, Findings(), random.Random(1), 1, {"seed": 1})


def test_a_crash_goes_by_the_fields_that_are_wrong_or_by_the_kind_of_case() -> None:
    assert causes_of(a_case(8, 9, 60)) == {"base.packet_size", "user.flags"}
    assert causes_of(a_case()) == {"kind"}
    assert group_of(CRASH, a_case(60)) == group_of(STARVES, a_case(61)) == "serves nobody after user.flags"
    assert group_of(HANGS, a_case(60)) == "hangs: it owes an answer"


def test_all_ways_to_fail_everybody_are_alike_and_others_go_by_their_rule() -> None:
    assert alike(CRASH, STARVES)
    assert not alike(CRASH, HANGS)
    assert alike(HANGS, Fault(PeerFailure.HANGS, HANGS.rule, "other numbers"))
    assert not alike(HANGS, Fault(PeerFailure.WRONG, HANGS.rule, ""))


async def test_a_crash_is_known_when_all_that_caused_another_is_wrong_again(idle_clock: MockClock) -> None:
    async with investigating("127.0.0.1:9") as investigation:
        assert not investigation.knows(CRASH, a_case(60))
        investigation.keep(CRASH, a_case(60))
        assert investigation.knows(CRASH, a_case(60, 8))
        assert not investigation.knows(CRASH, a_case(8))
        assert not investigation.knows(HANGS, a_case(60))


async def test_what_does_not_repeat_is_kept_and_says_so(idle_clock: MockClock) -> None:
    talk = Talk(TARGET, 1, 1)
    talk.greet()
    async with serving(Peer()) as address, investigating(address) as investigation:
        suspects = [talk.case("first", ""), talk.case("second", "")]
        await investigation.look_into(CRASH, suspects)
        assert not investigation.is_gone
        [finding] = investigation._findings.first.values()
        assert ONCE in finding.detail
        assert finding.how["kind"] == "first"


async def test_of_a_peer_that_is_gone_all_suspects_are_kept_as_one(idle_clock: MockClock) -> None:
    async with investigating("127.0.0.1:9") as investigation:
        await investigation.look_into(CRASH, [a_case(kind="last"), a_case(kind="before")])
        assert investigation.is_gone
        [finding] = investigation._findings.first.values()
        assert GONE in finding.detail
        assert finding.data == PACKET * 2
        assert "the last of them: last" in finding.detail
