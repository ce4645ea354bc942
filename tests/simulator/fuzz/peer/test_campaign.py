"""Each planted fault of a peer is found, made smaller, stored in a file, and repeated from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
from trio.testing import MockClock

from mqproto.simulator.fuzz.findings import file_of, load
from mqproto.simulator.fuzz.mutations import Edit, fields_of
from mqproto.simulator.fuzz.peer.campaign import Plan, Report
from mqproto.simulator.fuzz.peer.conduct import PeerFailure
from mqproto.simulator.fuzz.peer.draw import lies_in
from mqproto.simulator.fuzz.peer.investigation import ONCE, alike
from mqproto.simulator.fuzz.peer.smaller import groups
from mqproto.simulator.fuzz.peer.target import BOUNDED, Options, as_lines, fuzz_peer, repeat
from mqproto.simulator.fuzz.tactics.cases import case_as_how, case_from_how
from mqproto.simulator.fuzz.tactics.packets import message_of
from mqproto.wire import PacketBuffer, inspect_packet
from tests.simulator.fuzz import peers
from tests.simulator.fuzz.peers import Peer, serving

QUICK = Options(patience_s=0.7)
"""Options with little patience, because small peers answer at once."""
QUEUE: Final = r"TCP:127.0.0.1\private$\notes"
"""The default destination of messages."""
SEEDS: Final = 2_000
"""The number of seeds to try in the search for one that finds a planted crash at once."""


async def fuzzed(peer: Peer, tmp_path: Path, options: Options = QUICK, **changes: Any) -> Report:
    plan: dict[str, Any] = {"seed": 1, "seconds": 30.0, "enough": 1, "folder": tmp_path, "shrink_s": 600.0}
    async with serving(peer) as address:
        return await fuzz_peer(address, options, Plan(**plan | changes))


@pytest.mark.long
async def test_a_sound_peer_has_no_finding(tmp_path: Path, idle_clock: MockClock) -> None:
    report = await fuzzed(Peer(), tmp_path, limit=250)
    assert report.findings.lines() == []
    assert report.cases == 250
    assert report.counts["closed by the peer"] > 60
    assert len(report.kinds) > 25


async def test_what_a_peer_turns_away_comes_again_until_it_is_heard(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    report = await fuzzed(peers.Bounds(after=2, count=12), tmp_path, limit=5)
    assert report.findings.lines() == []
    assert report.counts["closed before a word"] == 12
    assert report.counts["connections"] >= 12 + 5
    assert BOUNDED in list(as_lines(report))


PLANTED: list[tuple[Callable[[], Peer], PeerFailure, str]] = [
    (peers.HangsOnAGap, PeerFailure.HANGS, "a session acknowledgment"),
    (peers.AnswersGarbage, PeerFailure.WRONG, "what it says is not a packet"),
    (peers.AcknowledgesBeyond, PeerFailure.WRONG, "acknowledges what it cannot have got"),
    (peers.AnswersTwice, PeerFailure.WRONG, "a second EstablishConnection"),
    (peers.NeverCloses, PeerFailure.HANGS, "should have closed"),
    (peers.ForgetsCounts, PeerFailure.WRONG, "counts its messages wrongly"),
]


@pytest.mark.parametrize(
    ("plant", "oracle", "rule"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
async def test_a_planted_fault_is_found_made_smaller_and_repeated_from_its_file(
    plant: Callable[[], Peer], oracle: PeerFailure, rule: str, tmp_path: Path, idle_clock: MockClock
) -> None:
    # Time passes when all cases of a moment hang. Were they eight, hundreds of others would come before.
    report = await fuzzed(plant(), tmp_path, parallel=2)
    [finding] = report.findings.first.values()
    assert finding.how["oracle"] == oracle
    assert rule in finding.how["rule"]
    kept = load(file_of(finding, tmp_path))
    assert kept == finding
    async with serving(plant()) as address:
        fault = await repeat(kept, address, QUICK)
        assert fault is not None
        assert fault.oracle == oracle
        # The peer has not crashed, and sends answers to whoever is well-behaved.
    async with serving(Peer()) as address:
        assert await repeat(kept, address, QUICK) is None
    # How few steps are left depends on the case: the number in a SessionHeader may need the messages that it counts.
    case = case_from_how(kept.how, kept.data)
    steps = list(groups(case))
    for one in steps:
        less = case.with_steps(step for group in steps if group is not one for step in group)
        finding = replace(kept, data=less.data, how=kept.how | case_as_how(less))
        async with serving(plant()) as address:
            again = await repeat(finding, address, QUICK)
            assert again is None or not alike(again, fault), f"{one} could be left out"


async def test_a_peer_that_half_a_packet_stops_is_found_out_with_that_half(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    # With other seeds the first case that stops it may be one of many connections: both of these are found then.
    report = await fuzzed(peers.HangsForAll(), tmp_path, seed=3)
    [finding] = report.findings.first.values()
    # Either the canary waits, or another connection of the same case.
    assert finding.how["oracle"] in (PeerFailure.STARVES, PeerFailure.HANGS)
    sent = [step for step in finding.how["steps"] if step.startswith("send")]
    assert len(sent) <= 4
    async with serving(peers.HangsForAll()) as address:
        assert await repeat(finding, address, QUICK) is not None


async def test_a_peer_that_serves_one_client_is_found_before_anything_hostile_is_sent(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    report = await fuzzed(peers.ServesOneClient(), tmp_path)
    [finding] = report.findings.first.values()
    assert finding.how["rule"] == "it serves one session at a time"
    assert report.cases == 1
    assert report.ended


Deadly = Callable[[dict[str, Any]], bool]


@cache
def fields_with(kind: str, edit: Edit) -> dict[str, Any]:
    """Return what a parser reads in a message of this kind that contains a lie."""
    return {field.name: field.value for field in fields_of(edit.of(message_of(QUEUE, kind)))}


def short_of(is_deadly: Deadly, count: int, deadly_count: int = 1, seeds: int = SEEDS) -> list[int]:
    """Return the first `count` seeds with which a campaign soon tells lies that crash the peer.

    At least `deadly_count` of the first twenty cases of such a campaign tell one of these lies. With other seeds, each
    campaign takes hundreds of cases. The seeds are searched for because every new lie changes the order of all lies.
    Case 0 tells no lie, and the first lie in the order is skipped.
    """

    def is_short(seed: int) -> bool:
        soon = lies_in(QUEUE, seed)[1:7]
        return sum(is_deadly(fields_with(*lie)) for lie in soon) >= deadly_count

    found = list(islice(filter(is_short, range(1, seeds)), count))
    if len(found) < count:
        name = getattr(is_deadly, "__name__", "a lie")
        pytest.fail(
            f"of the seeds below {seeds:,} {len(found)} have {deadly_count} of {name} soon, and {count} are needed: "
            "raise SEEDS, or have lies_in tell such a lie more often",
            pytrace=False,
        )
    return found


def test_too_few_seeds_are_said_in_a_sentence() -> None:
    sentence = "of the seeds below 3 0 have 1 of never soon, and 2 are needed: raise SEEDS"

    def never(_: dict[str, Any]) -> bool:
        return False

    with pytest.raises(pytest.fail.Exception, match=sentence):
        short_of(never, 2, seeds=3)


@pytest.mark.parametrize(
    "is_deadly",
    [
        peers.doubled_count_wraps,
        peers.aligned_size_wraps,
        peers.flag_announces_nothing,
        peers.more_elements_than_bytes,
    ],
)
async def test_a_packet_that_crashes_the_peer_is_found_within_a_minute_and_made_smaller(
    is_deadly: Deadly, tmp_path: Path, idle_clock: MockClock
) -> None:
    [seed] = short_of(is_deadly, 1)
    peer = peers.CrashesOn(is_deadly)
    # One case after the other: of several at once it is the machine's load that says which comes to be suspected first.
    report = await fuzzed(peer, tmp_path, seconds=60.0, seed=seed, parallel=1)
    [finding] = report.findings.first.values()
    assert finding.how["oracle"] in (PeerFailure.CRASHES, PeerFailure.STARVES)
    assert peer.crash_count > 1
    # As the peer cuts them: a size that is wrong makes a packet of less than was sent for one.
    packets = [inspect_packet(packet) for packet in PacketBuffer().feed(finding.data)]
    deadly = [is_deadly({field.name: field.value for field in packet.fields}) for packet in packets]
    assert deadly == [False, False, True], "a handshake and the packet"
    kept = load(file_of(finding, tmp_path))
    again = peers.CrashesOn(is_deadly)
    async with serving(again) as address:
        fault = await repeat(kept, address, QUICK)
        assert fault is not None
        assert again.crash_count == 1


async def test_of_a_peer_that_does_not_come_back_the_last_cases_are_kept(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    peer = peers.DiesForGood()
    report = await fuzzed(peer, tmp_path)
    [finding] = report.findings.first.values()
    assert finding.how["oracle"] in (PeerFailure.CRASHES, PeerFailure.STARVES)
    assert report.ended == "the peer serves nobody any more"
    again = peers.DiesForGood()
    async with serving(again) as address:
        assert await repeat(load(file_of(finding, tmp_path)), address, QUICK) is not None


async def test_time_ends_it_and_cases_go_on_until_then(tmp_path: Path) -> None:
    """The time is wall-clock time, on a machine that may have other work."""
    report = await fuzzed(Peer(), tmp_path, Options(), seconds=0.4)
    assert report.findings.lines() == []
    assert report.ended == ""
    assert report.cases > 1
    assert report.seconds >= 0.4


@pytest.mark.long
async def test_crashes_by_other_fields_are_other_findings_and_each_is_one_that_repeats(
    tmp_path: Path, idle_clock: MockClock
) -> None:
    def deadly(fields: dict[str, Any]) -> bool:
        return fields.get("properties.message_size", 0) > 2**31 or peers.more_elements_than_bytes(fields)

    report = await fuzzed(peers.CrashesOn(deadly), tmp_path, enough=2, seconds=60.0)
    assert report.ended == "2 findings are enough"
    for group, finding in report.findings.first.items():
        assert group.startswith("serves nobody after ")
        assert ONCE not in finding.detail
        peer = peers.CrashesOn(deadly)
        async with serving(peer) as address:
            assert await repeat(finding, address, QUICK) is not None


@pytest.mark.long
@pytest.mark.parametrize("turn", range(3))
async def test_what_a_finding_holds_is_what_was_seen_to_do_it_under_the_name_that_did(
    turn: int, tmp_path: Path, idle_clock: MockClock
) -> None:
    # Half of all names are deadly.
    seed = short_of(peers.more_elements_than_bytes, turn + 1, 2)[turn]
    peer = peers.CrashesOn(peers.named_so)
    report = await fuzzed(peer, tmp_path, seconds=60.0, seed=seed, parallel=1)
    [finding] = report.findings.first.values()
    assert ONCE not in finding.detail
    async with serving(peers.CrashesOn(peers.named_so)) as address:
        assert await repeat(finding, address, QUICK) is not None
