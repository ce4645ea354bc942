"""The attackers' process: what it sends, from which addresses, and how much of a core it uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import pytest
import trio
from msgspec.structs import replace

from mqproto.simulator.fuzz.hostile import attackers as module
from mqproto.simulator.fuzz.hostile.attackers import SHARE, AttackOrder, Ration, attackers, carry_out
from mqproto.simulator.topology.ports import reserved_address
from mqproto.wire import guid_text
from tests.examples import DESTINATION


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[set[str], int]]:
    """Run a server that reads and sends nothing; yield the addresses that connect to it, and its port."""
    hosts: set[str] = set()

    async def serve(stream: trio.SocketStream) -> None:
        hosts.add(stream.socket.getpeername()[0])
        with suppress(trio.BrokenResourceError):
            async for _ in stream:
                pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        yield hosts, listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


def an_order(port: int, tactic: str = "forged sources") -> AttackOrder:
    return AttackOrder(
        tactic=tactic,
        seconds=0.5,
        host="127.0.0.1",
        port=port,
        ping_port=port,
        server=guid_text(DESTINATION),
        sources=("127.0.0.101", "127.0.0.102"),
        queues=(r"TCP:127.0.0.1\private$\inbox", r"TCP:127.0.0.1\private$\bids"),
    )


async def test_each_attacker_calls_from_its_own_address() -> None:
    async with listening() as (hosts, port):
        spent = await carry_out(an_order(port))
        while len(hosts) < 2:  # On a busy machine the second may not have had its turn.
            spent = await carry_out(an_order(port))
    assert hosts == {"127.0.0.101", "127.0.0.102"}
    assert spent.cases
    assert spent.connections
    assert spent.sent_bytes > 100_000


async def test_an_attack_lasts_until_one_case_was_carried_out() -> None:
    async with listening() as (hosts, port):
        spent = await carry_out(replace(an_order(port), seconds=0))
    assert spent.connections
    assert hosts


async def test_the_process_carries_out_one_order_after_the_other() -> None:
    async with listening() as (hosts, port), attackers() as crowd:
        assert (await crowd.carry_out(an_order(port))).cases
        rehearsed = await crowd.carry_out(replace(an_order(port), sources=()))
        assert (rehearsed.cases, rehearsed.connections) == (0, 0)
        assert rehearsed.cpu_s
        assert (await crowd.carry_out(an_order(port, "Pings"))).cases
    assert hosts == {"127.0.0.101", "127.0.0.102"}


async def test_where_nobody_listens_cases_are_broken_off() -> None:
    _, port = reserved_address()
    spent = await carry_out(an_order(port))
    assert spent.cases >= 2
    # The order may end in the midst of its last case.
    assert spent.cases - 1 <= spent.broken_off <= spent.cases
    assert spent.connections == 0


def test_a_ration_is_used_up_by_those_who_took_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = cpu_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: now_s, process_time=lambda: cpu_s)
    monkeypatch.setattr(module, "time", clock)
    ration = Ration()
    now_s, cpu_s = 1.0, SHARE
    assert not ration.is_used_up
    cpu_s += 0.01
    assert ration.is_used_up
    assert ration.cpu_s == SHARE + 0.01
