"""Whatever happens on its way, a message has one end, and its sender learns which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.turn.effects import QueueKind
from tests.observing import DEADLETTER, DEADXACT, JOURNAL
from tests.pair import Net, at, queue

SMALL = Settings(
    window_size=3,
    resident_messages=8,
    held_messages_limit=4,
    resend_batch=4,
    try_connect_interval_ms=200,
    resend_timeouts_short_s=1,
    resend_timeouts_medium_s=2,
    resend_timeouts_long_s=3,
    resend_timeouts_final_s=4,
)


class Story:
    """`a` sends transactional messages through `b` to `c`, each with JN and JP set, and everything goes wrong."""

    def __init__(self) -> None:
        self.net = Net()
        self.net.add("a", queue("admin", 5, transactional=False), settings=SMALL)
        self.net.add("b", settings=SMALL)
        self.net.add(
            "c", QueueDeclaration("orders", 16, transactional=True, quota_bytes=3_000), settings=SMALL
        )
        for here, there, via in ("abb", "acb", "baa", "bcc", "cab", "cbb"):
            self.net.route(here, there, via)
        self.net.start()
        self.accepted: list[bytes] = []
        self.in_doubt: list[bytes] = []
        self.received: list[bytes] = []
        self.taken: dict[int, list[bytes]] = {}
        self.consumer = 0

    def revive(self) -> None:
        if self.net.nodes["c"].core is None:
            self.taken.clear()
        for name, node in self.net.nodes.items():
            if node.core is None:
                self.net.start(name)

    def send(self, value: int) -> None:
        """Send messages with and without a time limit; those of every fourth call go to a missing queue."""
        timing: list[dict[str, Any]] = [{}, {"time_to_reach_queue_s": 3}, {"time_to_be_received_s": 5}]
        bodies = []
        for number in range(1 + value % 3):
            bodies.append(b"%d" % (len(self.accepted) + len(self.in_doubt) + number))
            self.net.send(
                "a",
                at("c", 99 if value == 7 else 16),
                bodies[-1],
                transactional=True,
                journal_negative=True,
                journal_positive=True,
                **timing[value % 3],
            )
        commits = self.net.nodes["a"].store.commit_count
        self.net.turn("a")
        done = self.net.nodes["a"].store.commit_count > commits
        (self.accepted if done else self.in_doubt).extend(bodies)

    def run(self, value: int) -> None:
        self.net.pass_ms((0, 10, 300, 600, 1_000, 2_000, 4_000, 9_000)[value])

    def kill(self, value: int) -> None:
        """Kill a node now, or at one of its next steps, before or after the commit."""
        node = self.net.nodes["abc"[value % 3]]
        if value < 3:
            self.net.turn(node.name)  # What was accepted is on disk.
            self.net.kill(node.name)
        else:
            node.dies_at, node.dies_committed = node.batch_count + 1 + value % 2, value > 5

    def cut(self, value: int) -> None:
        pair = ("ab", "bc")[value % 2]
        self.net.cut(*pair)
        if value < 4:
            self.net.blocked.add(frozenset(pair))

    def join(self, value: int) -> None:
        self.net.blocked.clear()

    def receive(self, value: int) -> None:
        """Receive in a transaction that is settled later, or without one."""
        node = self.net.nodes["c"]
        node.received.clear()
        self.consumer += 1
        node.up.consume(self.consumer, "orders", 1 + value % 3, transactional=value > 3)
        self.net.run()
        bodies = [message.properties.message_body for message in node.received]
        if node.core is not None:
            if not bodies:
                node.up.abandon(self.consumer, "orders", self.net.now)
            elif value > 3:
                self.taken[self.consumer] = bodies
        if value <= 3:
            self.received += bodies

    def settle(self, value: int) -> None:
        node = self.net.nodes["c"]
        for consumer, bodies in self.taken.items():
            if value < 3:
                commits = node.store.commit_count
                node.up.settle(consumer, "orders", self.net.now, commit=True)
                self.net.turn("c")
                if node.store.commit_count > commits:
                    self.received += bodies
            elif value < 6:
                node.up.settle(consumer, "orders", self.net.now, commit=False)
            else:
                node.up.reject(consumer, "orders")
            break
        self.taken = dict(list(self.taken.items())[1:])

    def hold(self, value: int) -> None:
        core = self.net.nodes["abc"[value % 3]].up
        for name in {outgoing.name for outgoing in core.inspect().outbound}:
            core.hold(name, on_hold=value < 5)

    def purge(self, value: int) -> None:
        """Purge waiting messages at the destination, or copies at the intermediate."""
        if value % 2:
            self.net.nodes["c"].up.purge("orders")
        else:
            core = self.net.nodes["b"].up
            for name in {one.name for one in core.inspect().outbound if not one.name.endswith("$")}:
                core.purge(name)

    def set_clock(self, value: int) -> None:
        self.net.set_clock((-100, -10, -1, 0, 1, 5, 10, 100)[value])

    def calm(self) -> tuple[list[bytes], list[bytes]]:
        """Let nothing go wrong any more; return the final content of `a`'s journal and dead-letter queue."""
        for node in self.net.nodes.values():
            node.dies_at = None
        self.revive()
        self.join(0)
        for value in (5, 6, 7):
            self.hold(value)
        while self.taken:
            self.settle(4)
        for _ in range(20):
            self.net.pass_ms(2_000)
            self.received += self.net.receive("c", "orders")
        self.net.pass_ms(2_000)
        return self.net.receive("a", JOURNAL), self.net.receive("a", DEADXACT)


ACTIONS: Final[list[Callable[[Story, int], None]]] = [
    *[Story.send] * 4,
    *[Story.run] * 3,
    Story.kill,
    Story.cut,
    Story.join,
    *[Story.receive] * 2,
    Story.settle,
    Story.hold,
    Story.purge,
    Story.set_clock,
]


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7)), min_size=20, max_size=80))
def test_each_message_is_journaled_or_a_dead_letter_once_and_nothing_is_kept_for_ever(
    actions: list[tuple[Callable[[Story, int], None], int]],
) -> None:
    story = Story()
    for action, value in actions:
        story.revive()
        action(story, value)
    journaled, dead = story.calm()
    ends = [*journaled, *dead]
    assert len(set(ends)) == len(ends)
    assert set(story.accepted) <= set(ends) <= set(story.accepted) | set(story.in_doubt)
    assert set(story.received) <= set(journaled)
    assert len(set(story.received)) == len(story.received)
    kinds = set(QueueKind)
    waiting = {
        name: {kind: node.store.waiting(kind) for kind in kinds} for name, node in story.net.nodes.items()
    }
    assert waiting == {name: dict.fromkeys(kinds, 0) for name in "abc"}
    assert not any(story.net.receive(name, DEADLETTER) for name in "abc")
