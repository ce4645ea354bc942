from __future__ import annotations

import pytest

from mqproto.base.errors import UsageError
from tests.bench.load.row import THREE, Flow
from tests.bench.measures.beside import (
    ALONE,
    FLUSHED,
    NODES,
    NOT,
    PROMISE,
    SHARED,
    UNFLUSHED,
    Peer,
    figures_beside,
    started,
    table_beside,
)
from tests.bench.nats import servers
from tests.bench.nats.servers import program, version_of
from tests.programs import needs_nats


def a_flow(duration_s: float, cpu_s: float = 0.01) -> Flow:
    names = ("sender", "intermediate", "destination", "client")
    return Flow(1_000, duration_s, 2 * duration_s, dict.fromkeys(names, cpu_s), {}, [])


def test_a_ratio_is_of_one_round() -> None:
    ours, theirs = [a_flow(1.0, 0.04), a_flow(0.5, 0.005)], [a_flow(2.0), a_flow(0.25)]
    figures = {figure.name: figure for figure in figures_beside("window 64", ours, {UNFLUSHED: theirs})}
    ratio = figures["window 64: nodes / NATS unflushed"]
    assert ratio.values == (2.0, 0.5)
    assert ratio.is_reached
    assert figures["window 64: CPU of nodes / NATS unflushed"].values == pytest.approx((4, 0.5))
    assert figures["window 64, NATS unflushed: throughput"].values == (500, 4_000)
    assert figures["window 64, NATS unflushed: CPU of the three servers"].median == pytest.approx(30)
    assert figures["window 64, NATS unflushed: CPU of client"].median == pytest.approx(10)
    assert figures["window 64, NATS unflushed: client busy"].values == pytest.approx((0.25, 2))
    assert figures["window 64: client busy"].values == pytest.approx((2, 0.5))
    assert list(figures_beside("window 64", ours, {})) == []


def test_what_the_kernel_does_not_tell_is_unknown() -> None:
    untold = Flow(1_000, 1.0, 1.0, dict.fromkeys(("sender", "intermediate", "destination", "client")), {}, [])
    figures = {figure.name: figure for figure in figures_beside("", [untold], {UNFLUSHED: [untold]})}
    assert figures[", NATS unflushed: CPU of the three servers"].values == ()
    assert figures[", NATS unflushed: client busy"].values == ()
    assert figures[": CPU of nodes / NATS unflushed"].values == ()


def test_medians_stand_side_by_side_with_what_each_promises() -> None:
    flows = {NODES: [a_flow(1.0), a_flow(0.5), a_flow(0.4)], UNFLUSHED: [a_flow(0.25)]}
    untold = {NODES: [Flow(1_000, 1.0, 1.0, dict.fromkeys(THREE), {}, [])], UNFLUSHED: [a_flow(1.0)]}
    table = table_beside(
        {"window 64": flows, "window 8": untold},
        {UNFLUSHED: NOT},
        {"messages/s": lambda flow: flow.messages_per_s, "CPU": lambda flow: flow.cpu_us(*THREE)},
    )
    assert table.headings == ("", NODES, UNFLUSHED)
    assert table.rows == [
        (PROMISE, SHARED, NOT),
        ("window 64: messages/s", "2,000", "4,000"),
        ("window 64: CPU", "30", "30"),
        ("window 8: messages/s", "1,000", "1,000"),
        ("window 8: CPU", "unknown", "30"),
    ]


@pytest.mark.parametrize(
    ("peers", "body_bytes"),
    [
        ([Peer.NATS], 7),
        ([Peer.NATS], 2**20 + 1),
    ],
)
async def test_messages_that_servers_cannot_take_are_refused(peers: list[Peer], body_bytes: int) -> None:
    with pytest.raises(UsageError, match=f"--body-bytes {body_bytes}: beside {peers[-1]} a body has 8 to"):
        async with started(peers, body_bytes):
            pass


@needs_nats
async def test_servers_run_in_both_settings_and_tell_them() -> None:
    async with started([Peer.NATS], 8) as others:
        assert others.promises == {FLUSHED: ALONE, UNFLUSHED: NOT}
        assert list(others.chains) == [FLUSHED, UNFLUSHED]
        version = version_of(program())
        assert f"NATS flushed: nats-server {version}, sync_always true, sync_interval 120 s" in others.notes
        assert (
            f"NATS unflushed: nats-server {version}, sync_always false, sync_interval 120 s" in others.notes
        )


@needs_nats
async def test_a_server_that_cannot_flush_is_measured_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "version_of", lambda server: "2.9.10")
    async with started([Peer.NATS], 8) as others:
        assert list(others.chains) == [UNFLUSHED]
        assert any("NATS flushed is left out" in note for note in others.notes)


async def test_nothing_is_started_unless_it_is_asked_for() -> None:
    async with started([], 0) as others:
        assert not others.chains
        assert not others.notes
