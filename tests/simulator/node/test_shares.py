"""Strangers get a share of a node's time together, and each of their hosts as much of it as any other."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from simulator.node.shares import ACCOUNTS, DEBT_LIMIT_S, Shares


async def served(shares: Shares, host: str, cost_s: float, rounds: list[str]) -> None:
    """One connection that always has something to be read."""
    while True:
        await shares.turn(host)
        rounds.append(host)
        shares.took(host, cost_s)
        await trio.lowlevel.checkpoint()


async def test_whoever_costs_most_waits_longest_and_all_together_have_their_share(
    autojump_clock: MockClock,
) -> None:
    shares, rounds = Shares(25), list[str]()
    costs_s = {"10.0.0.1": 0.001, "10.0.0.2": 0.004}
    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            for host, cost_s in costs_s.items():
                for _ in range(8):
                    nursery.start_soon(served, shares, host, cost_s, rounds)
    took_s = {host: rounds.count(host) * cost_s for host, cost_s in costs_s.items()}
    assert sum(took_s.values()) == pytest.approx(0.25 * 10, rel=0.05)
    assert took_s["10.0.0.1"] == pytest.approx(took_s["10.0.0.2"], rel=0.05)


async def test_a_host_alone_has_the_whole_share_and_one_that_comes_is_read_at_once(
    autojump_clock: MockClock,
) -> None:
    shares, rounds = Shares(50), list[str]()
    with trio.move_on_after(10):
        await served(shares, "10.0.0.1", 0.01, rounds)
    assert len(rounds) == pytest.approx(0.5 * 10 / 0.01, rel=0.05)
    shares.took("10.0.0.1", 100)
    began = trio.current_time()
    await shares.turn("10.0.0.2")
    assert trio.current_time() == began
    assert shares.debt_s("10.0.0.1") > DEBT_LIMIT_S


async def test_a_64_of_ipv6_is_one_host(autojump_clock: MockClock) -> None:
    shares = Shares(25)
    shares.took("2001:db8::1", 1)
    assert shares.debt_s("2001:db8::ffff:2") == shares.debt_s("2001:db8::1") == 4
    assert not shares.debt_s("2001:db8:0:1::1")


async def test_accounts_are_bounded_and_end_when_they_are_paid(autojump_clock: MockClock) -> None:
    shares = Shares(25)
    for number in range(2 * ACCOUNTS):
        shares.took(f"10.1.{number // 256}.{number % 256}", 1e-9)
    assert len(shares._paid_at) == ACCOUNTS + 1
    assert shares.debt_s("10.99.0.1") > 0, "it shares an account with all that found no place"
    await trio.sleep(2 * DEBT_LIMIT_S)
    shares.took("10.99.0.2", 0.001)
    assert len(shares._paid_at) == 1
