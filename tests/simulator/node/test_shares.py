"""All strangers together get a share of a node's time, and each of their hosts gets an equal part of it."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

from mqproto.simulator.node.shares import ACCOUNTS, DEBT_LIMIT_S, Shares


async def served(shares: Shares, host: str, cost_s: float, rounds: list[str]) -> None:
    """Serve a connection that always has something to be read."""
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


async def test_who_waits_is_read_when_what_was_owed_is_paid_whatever_new_connections_cost_meanwhile(
    autojump_clock: MockClock,
) -> None:
    shares = Shares(25)
    shares.took("10.0.0.1", 0.5)

    async def others_connect() -> None:
        while True:
            if shares.debt_s("10.0.0.1") < DEBT_LIMIT_S:
                shares.took("10.0.0.1", 0.1)
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others_connect)
        began = trio.current_time()
        await shares.turn("10.0.0.1")
        assert trio.current_time() - began == pytest.approx(0.5 / 0.25)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(8))
async def test_the_connections_of_a_host_are_served_as_they_come_and_none_twice_while_another_waits(
    autojump_clock: MockClock, seed: int
) -> None:
    dice = random.Random(seed)
    shares, began, count = Shares(25), trio.current_time(), dice.randint(2, 12)
    turns: list[tuple[float, float, int]] = []
    """For each read, the times at which the connection asked for its turn and got it, and the connection's number."""
    cost_s = 0.0

    async def connection(number: int, least_s: float) -> None:
        nonlocal cost_s
        while True:
            came_s = trio.current_time()
            await shares.turn("10.0.0.1")
            turns.append((came_s, trio.current_time(), number))
            own_s = least_s * dice.random()
            await trio.sleep(0.001 * dice.randint(0, 3))  # The batch is carried out.
            shares.took("10.0.0.1", own_s)
            cost_s += own_s
            await trio.sleep(dice.choice([0.0, 0.0, 0.5 * dice.random()]))

    async def others_connect() -> None:
        nonlocal cost_s
        while True:
            await trio.sleep(0.1 * dice.random())
            if shares.debt_s("10.0.0.1") < DEBT_LIMIT_S:
                shares.took("10.0.0.1", 0.1)
                cost_s += 0.1

    with trio.move_on_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others_connect)
            for number in range(count):
                nursery.start_soon(connection, number, dice.choice([0.001, 0.02, 0.3]))
    turns.sort()
    reads_s = [read_s for _, read_s, _ in turns]
    assert reads_s == sorted(reads_s)
    for came_s, read_s, number in turns:
        others = [other for _, other_s, other in turns if came_s < other_s < read_s and other != number]
        assert len(others) == len(set(others)), f"{number} came {came_s - began:.3f} s after the begin"
    longest_s = DEBT_LIMIT_S + (0.1 + count * 0.3) / 0.25
    assert max(read_s - came_s for came_s, read_s, _ in turns) <= longest_s
    last_s = {number: read_s for _, read_s, number in turns}
    assert len(last_s) == count
    assert min(last_s.values()) > trio.current_time() - longest_s - 1, "one still waits, and for too long"
    assert cost_s <= 0.25 * (60 + shares.debt_s("10.0.0.1")) + count * 0.3


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
