"""Tokens that open queues, rates that hold, and room that is given in turn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from mqproto.base.errors import UsageError
from simulator.edges.gateway.admission import PRODUCER, Opened, Rate, Room, Tokens

# Tokens

SHOP, BANK = "s" * 32, "b" * 32
PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
FILE = f"""
[shop]
token = "{SHOP}"
queues = ["orders", "NOTES"]

[bank]
token = "{BANK}"
queues = []
"""


def written(folder: Path, text: str = FILE, mode: int = 0o600) -> Path:
    path = folder / "tokens.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_opens_its_queues_by_their_one_name(tmp_path: Path) -> None:
    tokens = Tokens.read(written(tmp_path), str.lower)
    assert tokens.opened_by(SHOP) == Opened("shop", {"orders", "notes"})
    assert tokens.opened_by(BANK) == Opened("bank", set())


@pytest.mark.parametrize(
    ("line", "whole"), [("", "shop/17"), ('producer = "a"', "a/17"), ('producer = ""', "17")]
)
def test_ids_are_those_of_the_table_unless_it_names_another_producer(
    tmp_path: Path, line: str, whole: str
) -> None:
    opened = Tokens.read(written(tmp_path, f'[shop]\ntoken = "{SHOP}"\nqueues = []\n{line}'), str).opened_by(
        SHOP
    )
    assert opened is not None
    assert (opened.whole("17"), opened.whole("")) == (whole, "")


@given(
    st.lists(st.tuples(st.from_regex(PRODUCER, fullmatch=True), st.text(PRINTABLE, min_size=1)), max_size=9)
)
def test_no_two_producers_have_an_id_in_common(ids: list[tuple[str, str]]) -> None:
    named = {(producer, key) for producer, key in ids if producer}
    assert len({Opened(producer).whole(key) for producer, key in named}) == len(named)


@pytest.mark.parametrize("name", ["my shop", "a/b", "x" * 65, "größe"])
def test_a_producer_has_a_name_that_ids_can_begin_with(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, f'["{name}"]\ntoken = "{SHOP}"\nqueues = []\n')
    with pytest.raises(
        UsageError, match=r'its ids need a name of up to 64 .*: type producer = "NAME"'
    ) as refused:
        Tokens.read(path, str)
    assert str(refused.value).startswith(f"{path}: [{name}]: ")


@pytest.mark.parametrize("token", ["", "s" * 31, "s" * 33, "shop", "\xff" * 32])
def test_another_token_is_nobodys(tmp_path: Path, token: str) -> None:
    assert Tokens.read(written(tmp_path), str).opened_by(token) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageError, match=r"others can read the tokens \(mode 6..\); chmod 600 it"):
        Tokens.read(written(tmp_path, mode=mode), str)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[shop", "Expected ']'"),
        ('[shop]\ntoken = "short"\nqueues = []', "length >= 16"),
        (f'[shop]\ntoken = "{SHOP}"', "missing required field `queues`"),
        (f'[shop]\ntoken = "{SHOP}"\nqueues = []\nqueue = ""', "unknown field `queue`"),
        ("\udcff", "this is no text in UTF-8"),
    ],
)
def test_a_file_that_is_something_else_is_said_to_be(tmp_path: Path, text: str, error: str) -> None:
    path = written(tmp_path)
    path.write_bytes(os.fsencode(text))
    with pytest.raises(UsageError, match=error) as refused:
        Tokens.read(path, str)
    assert SHOP not in str(refused.value)


def test_a_file_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory; name a file with the tokens"):
        Tokens.read(tmp_path / "nothing", str)


# Rates


@given(
    per_s=st.floats(0.1, 1_000),
    steps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_in_no_time_more_come_than_the_rate_and_one_burst(per_s: float, steps: list[float]) -> None:
    now_s = 0.0
    rate = Rate(per_s, lambda: now_s)
    taken_s: list[float] = []
    for step in steps:
        now_s += step
        if not rate.wait_s("orders"):
            taken_s.append(now_s)
    for first, start_s in enumerate(taken_s):
        for last, end_s in enumerate(taken_s[first:], first):
            assert last - first + 1 <= max(1.0, per_s) + per_s * (end_s - start_s) + 1e-6


@given(per_s=st.floats(0.1, 1_000), count=st.integers(1, 100))
def test_after_the_time_that_is_said_one_more_may_come(per_s: float, count: int) -> None:
    now_s = 0.0
    rate = Rate(per_s, lambda: now_s)
    for _ in range(count):
        if wait_s := rate.wait_s("orders"):
            now_s += wait_s
            assert not rate.wait_s("orders")


def test_each_name_has_its_own_rate() -> None:
    rate = Rate(1, lambda: 0.0)
    assert not rate.wait_s("orders")
    assert rate.wait_s("orders") == pytest.approx(1)
    assert not rate.wait_s("notes")


# Room


async def test_who_asks_first_has_room_first(idle_clock: MockClock) -> None:
    room = Room(10)
    order: list[int] = []

    async def one(size_bytes: int) -> None:
        assert await room.take(size_bytes, 100)
        order.append(size_bytes)

    assert await room.take(6, 0)
    async with trio.open_nursery() as nursery:
        for size_bytes in (10, 1):  # The second would fit, and waits for its turn.
            nursery.start_soon(one, size_bytes)
            await wait_all_tasks_blocked()
        assert order == []
        room.give_back(6)
        await wait_all_tasks_blocked()
        assert order == [10]
        room.give_back(10)
    assert order == [10, 1]


async def test_who_has_no_patience_left_makes_room_for_the_next(idle_clock: MockClock) -> None:
    room = Room(10)
    assert await room.take(6, 0)
    async with trio.open_nursery() as nursery:

        async def large() -> None:
            assert not await room.take(10, 5)

        nursery.start_soon(large)
        await wait_all_tasks_blocked()
        assert await room.take(4, 100)
        assert trio.current_time() >= 5


@given(sizes=st.lists(st.integers(1, 10), max_size=30), data=st.data())
def test_what_is_given_comes_back_whoever_is_cancelled(sizes: list[int], data: st.DataObject) -> None:
    room = Room(10)

    async def one(size_bytes: int, wait_s: float, hold_s: float, scope: trio.CancelScope) -> None:
        with scope:
            if await room.take(size_bytes, wait_s):
                assert 0 <= room.free_bytes <= 10 - size_bytes
                try:
                    await trio.sleep(hold_s)
                finally:
                    room.give_back(size_bytes)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for size_bytes in sizes:
                wait_s, hold_s, cancel_s = (data.draw(st.sampled_from([0.0, 1, 2, 3, 5])) for _ in range(3))
                scope = trio.CancelScope(deadline=trio.current_time() + cancel_s)
                nursery.start_soon(one, size_bytes, wait_s, hold_s, scope)
        assert room.free_bytes == 10

    trio.run(run, clock=MockClock(autojump_threshold=0))
