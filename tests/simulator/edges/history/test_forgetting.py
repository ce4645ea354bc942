"""How long ids are remembered, by all who use one history; and that what is forgotten is counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import given, strategies as st

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.documents import UNKNOWN, Begin, Documents, Finish, Look
from mqproto.simulator.edges.history.forgetting import GATEWAY, TRIGGER

KEEP_S, EVERY_S = 1_000.0, 11.0
ACCEPTED, DELIVERED, BILLED = GATEWAY + "orders", TRIGGER + "orders", TRIGGER + "bills"


class World:
    """A history and its clock."""

    def __init__(self, url: str, keep_s: float | None = KEEP_S) -> None:
        self.now_s = 1_000_000.0
        self.documents = Documents(url, keep_s, lambda: self.now_s)
        self._ticket = 0

    def finish(self, scope: str, key: str, entry: Entry = Entry.COMPLETED) -> None:
        self.documents.carry_out([Finish(scope, key, 0, entry, b"")])

    def begin(self, scope: str, key: str) -> None:
        self._ticket += 1
        self.documents.carry_out([Begin(scope, key, "a", self._ticket)])

    def has(self, scope: str, key: str) -> bool:
        return self.documents.carry_out([Look(scope, key)]) != [UNKNOWN]

    def wait(self, seconds: float) -> None:
        """Let time go by, and look at what is too old."""
        self.now_s += seconds
        self.has("", "nothing")


def test_one_says_how_long_and_all_keep_to_it(history_url: str) -> None:
    trigger, gateway = World(history_url, None), World(history_url, 50.0)
    with closing(trigger.documents), closing(gateway.documents):
        trigger.finish(DELIVERED, "17")
        trigger.wait(49.0)
        assert trigger.has(DELIVERED, "17")
        trigger.wait(EVERY_S)
        assert not trigger.has(DELIVERED, "17")
        assert trigger.documents.keep_s == 50.0
        with closing(World(history_url, 70.0).documents):
            trigger.finish(DELIVERED, "18")
            trigger.wait(60.0)
            assert trigger.has(DELIVERED, "18")


def test_an_id_is_not_forgotten_before_what_was_delivered_under_it(history_url: str) -> None:
    """Else its producer could use it anew, is told 200, and the trigger drops the message."""
    world = World(history_url)
    with closing(world.documents):
        for key in ("late", "begun", "early"):
            world.finish(ACCEPTED, key)
        world.finish(DELIVERED, "early")
        world.begin(DELIVERED, "begun")
        world.finish(BILLED, "late")
        world.wait(KEEP_S - 100)
        world.finish(DELIVERED, "late")
        world.wait(110)
        assert [world.has(ACCEPTED, key) for key in ("late", "begun", "early")] == [True, True, False]
        assert not world.has(BILLED, "late")
        world.wait(KEEP_S - 100)
        assert not world.has(ACCEPTED, "late")
        assert not world.has(DELIVERED, "late")
        assert world.has(ACCEPTED, "begun")


Places = st.sampled_from([ACCEPTED, DELIVERED])


@given(
    steps=st.lists(
        st.tuples(Places, st.sampled_from("abc"), st.sampled_from([0.0, 300.0, 900.0])), max_size=10
    )
)
def test_whatever_comes_when_an_id_is_remembered_as_long_as_what_was_delivered(
    new_sqlite_url: Callable[[], str], steps: list[tuple[str, str, float]]
) -> None:
    world = World(new_sqlite_url())
    with closing(world.documents):
        for scope, key, wait_s in steps:
            if scope == ACCEPTED or world.has(ACCEPTED, key):
                world.finish(scope, key)
            world.wait(wait_s)
            for each in "abc":
                assert world.has(ACCEPTED, each) or not world.has(DELIVERED, each)
        world.wait(3 * KEEP_S)
        world.wait(EVERY_S)
        world.wait(KEEP_S + EVERY_S)
        assert not any(world.has(scope, key) for scope in (ACCEPTED, DELIVERED) for key in "abc")


def test_what_gateways_accepted_is_counted_when_it_is_forgotten(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.edges.history.forgetting.FORGET_ROWS", 2)
    world = World(history_url)
    with closing(world.documents):
        for key in ("1", "2", "3"):
            world.finish(ACCEPTED, key)
            world.now_s += 1
        last_s = world.now_s - 1
        world.finish(DELIVERED, "elsewhere")
        world.finish(ACCEPTED, "refused", Entry.FAILED)
        assert world.documents.forgotten() == (0, 0.0)
        world.now_s += 2 * KEEP_S
        for _ in range(4):
            world.has("", "nothing")
        assert world.documents.forgotten() == (3, last_s)
