"""Whole worlds: a seed gives the same world each time, and each world keeps the promises."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from mqproto.simulator.world import Burst, Cable, Consumer, Fault, Scenario, simulate
from mqproto.simulator.world.faults.table import FAULTS
from mqproto.simulator.world.oracle.atrest import waits_for_a_call
from mqproto.simulator.world.run import run
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.simulator.world.scenarios.traffic import KINDS, to_a_stranger
from mqproto.simulator.world.world import World
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.wire import guid_text
from tests.conformance import ROOT
from tests.simulator.world.worlds import a_burst, a_chain


def test_a_world_without_faults_delivers_everything_and_ends_soon() -> None:
    result = simulate(a_chain(a_burst(count=100)))
    assert result.breach is None
    assert result.tally["accepted transactional"] == result.tally["received"] == 100
    assert result.tally["core resent"] == 0
    assert result.end_ms < 10_000


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_message_keeps_its_promise(kind: str) -> None:
    target = "b" if KINDS[kind].direct else "c"
    result = simulate(a_chain(a_burst(kind=kind, target=target, count=7, together=True)))
    assert result.breach is None
    assert result.tally[f"accepted {kind}"] == 7
    assert result.tally["received"] >= (0 if KINDS[kind].undeliverable else 7)


WHERE = {"cut", "reset", "stall", "refuse", "silence", "half open"}


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("kind", FAULTS)
def test_each_kind_of_fault_happens_and_breaks_no_promise(kind: str, value: int) -> None:
    """There are two ways from `a` to `d`, so that there is a detour; forgers can use a bystander's traffic."""
    scenario = Scenario(
        seed=0,
        nodes=("a", "b", "c", "d"),
        links=tuple(Cable(one=one, other=other) for one, other in ("ab", "ac", "bd", "cd")),
        bursts=tuple(
            a_burst(target="d", count=3, at_ms=at_ms, encrypted=kind.endswith(" keys"))
            for at_ms in range(0, 2_000, 100)
        ),
        faults=(
            Fault(
                at_ms=550,
                kind=kind,
                where="a-b"
                if kind in WHERE
                else "d"
                if kind in ("purge", "delete", "new keys")
                else "a"
                if kind in ("detour", "withdraw keys")
                else "b",
                for_ms=1_000,
                value=10 * value if kind == "slow disk" else value,
            ),
        ),
        settings={"resend_timeouts_short_s": 1, "try_connect_interval_ms": 200},
        storm_ms=4_000,
    )
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally[f"fault {kind}"] == 1


@pytest.mark.parametrize(
    "consumer",
    [
        {"rolls_back_every": 2},
        {"leaves_every": 2},
        {"rejects_every": 2},
        {"transactional": False, "pause_ms": 100},
        {"hold_ms": 500, "limit": 1},
    ],
    ids=str,
)
def test_each_way_to_consume_ends_with_all_received_or_rejected(consumer: dict[str, Any]) -> None:
    consumers = (Consumer(node="c", queue="orders", **{"limit": 3, **consumer}),)
    result = simulate(a_chain(a_burst(count=20), consumers=consumers))
    assert result.breach is None
    assert result.tally["received"] + result.tally["ended in its queue"] == 20
    assert bool(result.tally["rejected"]) == ("rejects_every" in consumer)


def two_strangers(*bursts: Burst, **fields: Any) -> Scenario:
    """`a` and `b`, each of which knows at most one address of the other."""
    common: dict[str, Any] = {"nodes": ("a", "b"), "links": (Cable(one="a", other="b"),)}
    return a_chain(*bursts, **common, unmet=True, strangers=True, **fields)


def to_b(kind: str = "final ack", **fields: Any) -> Burst:
    return a_burst(target="b", kind=to_a_stranger(kind), **fields)


def from_b(kind: str, **fields: Any) -> Burst:
    return a_burst(**{"at_ms": 1_000, "source": "b", "target": "a", "kind": kind, **fields})


def test_two_that_know_nothing_of_each_other_meet_by_direct_names() -> None:
    result = simulate(two_strangers(to_b(count=5), to_b("acknowledged"), from_b(to_a_stranger("journaled"))))
    assert result.breach is None
    counts = [result.tally[name] for name in ("received", "administration acknowledgment", "journaled")]
    assert counts == [7, 2, 1]


def test_what_is_for_one_that_nobody_can_call_goes_by_its_guid_once_it_has_called() -> None:
    answers = from_b("transactional", count=3), from_b("acknowledged"), from_b("journaled")
    early = from_b("transactional", at_ms=0, count=2)
    result = simulate(two_strangers(to_b(at_ms=100), early, *answers, uncalled="a"))
    assert result.breach is None
    assert result.tally["refused at once"] == 2, "they had not met"
    assert result.tally["accepted transactional"] == 3
    assert {str(message) for message in result.messages if not message.receipts} == set()


def test_what_is_for_a_direct_name_of_one_that_nobody_can_call_would_wait_for_ever() -> None:
    result = simulate(two_strangers(to_b(), from_b(to_a_stranger("recoverable")), uncalled="a"))
    assert result.breach is not None
    assert result.breach.invariant == "nothing_is_retained"


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_an_acknowledgment_that_its_source_has_waits_for_a_call_and_no_longer_than_that() -> None:
    """`b` dies before it hears that `a` has the acknowledgment.

    By the clock of `b`, the message arrived too late.
    """
    faults = (
        Fault(at_ms=1, kind="jump clock", where="b", value=86_400),
        Fault(at_ms=1_030, kind="kill", where="b", for_ms=100),
    )
    late = to_b("to reach, no letter", at_ms=1_000)
    queue = guid_text(guid_of("a")) + ORDER_SUFFIX

    def owed(world: World) -> int:
        disk = world.nodes["b"].disk
        return sum(disk.count(row.queue) for row in disk.queues.values() if row.name == queue)

    world = World(two_strangers(late, faults=faults))
    assert run(world).breach is None
    assert owed(world) == 1
    b = world.nodes["b"]
    assert waits_for_a_call(world.ledger, b, queue)
    b.called.add("a")
    assert not waits_for_a_call(world.ledger, b, queue), "it may call"
    for other in (to_b("recoverable", at_ms=3_000), from_b(to_a_stranger("journaled"), at_ms=500)):
        world = World(two_strangers(late, other, faults=faults))
        assert run(world).breach is None
        assert not owed(world)


def test_nothing_is_kept_for_a_stranger_and_everything_for_a_neighbour() -> None:
    rejecting = (Consumer(node="b", queue="notes", limit=1, rejects_every=1),)
    kind = "recoverable to reach"
    for burst, scenario in ((a_burst(target="b", kind=kind), a_chain), (to_b(kind), two_strangers)):
        result = simulate(scenario(burst, consumers=rejecting))
        assert result.breach is None
        [message] = result.messages
        assert message.gone
        assert bool(message.letters) == (scenario is a_chain)


def test_a_full_disk_has_room_set_aside_for_all_that_two_strangers_may_have_to_write_anew() -> None:
    """These dead letters would use up a reserve of the size that other worlds have."""
    bursts = [
        to_b("to reach", at_ms=at_ms, count=4, size_bytes=40_000, together=True)
        for at_ms in range(500, 900, 100)
    ]
    full = Fault(at_ms=1_000, kind="full disk", where="a", for_ms=30_000, value=0)
    away = Fault(at_ms=0, kind="kill", where="b", for_ms=6_000)
    result = simulate(two_strangers(*bursts, faults=(away, full), storm_ms=20_000, log_bytes=2_000))
    assert result.breach is None
    assert result.tally["dead letter"] == 16


@pytest.mark.long
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_traces_are_the_same_on_every_machine_and_python_whatever_its_hashes(hash_seed: str) -> None:
    """The expected values are pinned.

    Every change of nodes' decisions changes them: check that two versions of Python agree on the new ones.
    """
    program = (
        "from mqproto.simulator.world import draw, simulate\n"
        "print(*(simulate(draw(seed), traced=True).trace.digest() for seed in (0, 2, 3, 139)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        "00e9e21e29840408",
        "af478a6782f60216",
        "3d84f5b94652f3de",
        "b0df278495baf184",
    ], "the last one has keys"


def test_a_trace_that_nobody_wants_is_empty() -> None:
    assert list(simulate(a_chain()).trace.lines()) == []


def test_an_error_of_our_own_is_a_breach_that_says_where() -> None:
    world = World(a_chain())
    world.machines["c"].people.applications.clear()  # So what is delivered is nobody's: a KeyError.
    world.nodes["c"].has_sequences = True
    world.ledger.stream_of = None  # type: ignore[assignment]
    breach = run(world).breach
    assert breach is not None
    assert breach.invariant == "no_error_of_our_own"
    assert "TypeError in ledger.py:" in breach.detail


def test_when_a_node_ends_with_what_waited_for_its_flush_the_rest_that_waited_reaches_nobody() -> None:
    """Two applications send during a flush, and the disk fails when it is asked whether it has room for the first
    message.
    """
    scenario = Scenario(
        seed=5991,
        nodes=("a", "b"),
        links=(Cable(one="a", other="b", latency_ms=25),),
        bursts=(
            a_burst(at_ms=1_800, target="b"),
            a_burst(at_ms=3_000, target="b", kind="wrong queue", count=5, sizes_bytes=(5_000, 5_000, 40)),
            a_burst(at_ms=3_800, target="b"),
        ),
        faults=(
            Fault(at_ms=1_000, kind="die in commit", where="a", for_ms=0, value=26),
            Fault(at_ms=1_900, kind="slow disk", where="a", for_ms=58, value=2_000),
            Fault(at_ms=1_000, kind="full disk", where="b", for_ms=0, value=0),
        ),
        storm_ms=4_800,
    )
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["disk fails"] == 1


def test_a_message_that_has_nowhere_to_go_is_found() -> None:
    scenario = a_chain(a_burst(), links=(Cable(one="a", other="b"),))
    breach = simulate(scenario).breach
    assert breach is not None
    assert str(breach).startswith("nothing is retained, at ")
    assert "a keeps 1 messages in sequence queue" in breach.detail


def test_who_may_choose_between_two_ways_takes_the_other_after_a_restart() -> None:
    links = tuple(Cable(one=one, other=other) for one, other in ("ab", "ac", "bd", "cd"))
    world = World(a_chain(nodes=("a", "b", "c", "d"), links=links, routes={"a": 1}))
    assert world.way("a", "d") == ["a", "c", "d"]
    world.route_choices["a"] += 1
    assert world.way("a", "d") == ["a", "b", "d"]
    assert [hop.host for hop in world.routes_of("a").managers[world.nodes["d"].guid]] == ["b", "c"]


def test_a_message_to_several_queues_is_one_promise_for_each_of_them() -> None:
    scenario = a_chain(a_burst(also=("b",), count=3), a_burst(kind="express", also=("b",), label="to both"))
    assert scenario.message_count == 8
    result = simulate(scenario)
    assert result.breach is None
    assert result.tally["received"] == 8


def test_dead_letters_that_are_given_back_arrive_as_new_messages() -> None:
    result = simulate(
        a_chain(
            a_burst(kind="to reach", count=3),
            faults=(
                Fault(at_ms=1, kind="refuse", where="a-b", for_ms=4_000),
                Fault(at_ms=6_000, kind="give back", where="a"),
            ),
            settings={"try_connect_interval_ms": 200},
            storm_ms=8_000,
        )
    )
    assert result.breach is None
    assert result.tally["dead letter"] == result.tally["sent again"] == result.tally["received"] == 3
