"""Whole runs under faults: a storm of kills, cuts and refusals, then calm; then what was promised is there.

One seed, one history. MQPROTO_SEEDS says how many histories run; 60 by default.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Final

import pytest

from mqproto.configuration import Settings
from mqproto.effects import POSITION_BITS, QueueKind, Writes
from mqproto.queuemanager import QueueManager
from mqproto.status import NodeStatus
from mqproto.wire import OrderAckBody, PacketBuffer, UserMessage, acknowledgment_in, decode_packet
from simulator.disk import Disk
from tests.pair import Net, at, chain, queue

SEEDS: Final = range(int(os.environ.get("MQPROTO_SEEDS", "60")))
CALM_MS: Final = 60_000
ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
"""Transactional messages go to the one, recoverable and express ones to the other."""

happened: Counter[str] = Counter()
"""What the storms brought about, by all seeds that `ran`."""
ran: set[int] = set()


def chance(seed: int, *subject: str) -> random.Random:
    """The dice of one subject: `chance(7, "kill", "b")`."""
    return random.Random(f"{seed}/{'/'.join(subject)}")


class WatchedStore(Disk):
    """A disk that remembers which transactional messages have ever been in a local queue."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: set[bytes] = set()

    def commit(self, writes: Writes) -> None:
        super().commit(writes)
        for key in [row.key for row in writes.messages] + [new for _, new, _ in writes.moves]:
            row = self.messages.get(key)
            if row is not None and self.queues[key >> POSITION_BITS].kind is QueueKind.LOCAL:
                self.accepted.add(row.packet[-16:])


class Storm:
    """One history: `a` sends to `c`, straight, over `b`, over `b` or `d`, or over whichever of them can be reached."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        dice = chance(seed, "settings")
        self.settings = Settings(
            window_size=dice.choice([1, 4, 64]),
            try_connect_interval_ms=200,
            resend_timeouts_short_s=1,
            resend_timeouts_medium_s=2,
            resend_timeouts_long_s=3,
            resend_timeouts_final_s=4,
            order_ack_timeout_ms=dice.choice([50, 500]),
            resident_messages=dice.choice([1, 2, 16, 512]),
            resident_bytes=dice.choice([300, 4 * 2**20]),
            in_flight_bytes=dice.choice([300, 8 * 2**20]),
            resend_batch=dice.choice([1, 2, 50, 1024]),
            held_messages_limit=dice.choice([1, 10, 4096]),
        )
        self.topology = chance(seed, "topology").choice(["pair", "chain", "two routes", "two next hops"])
        self.net = self._build()
        self.names = list(self.net.nodes)
        self.faults = {
            fault
            for fault in ("kill", "kill at a batch", "cut", "block", "reroute", "roll back")
            if chance(seed, "fault", fault).random() < 0.7
        }
        self.final_acks = chance(seed, "final acks").choice([0, 0.1, 0.5])
        self.strength = chance(seed, "strength").choice([0.02, 0.1, 0.25])
        self.sent: dict[str, list[bytes]] = {"transactional": [], "recoverable": [], "express": []}
        self.received: dict[str, list[bytes]] = {"orders": [], "notes": []}
        self.count = 0
        self.consumers = 0
        self.lives: dict[QueueManager, NodeStatus] = {}
        self.net.watch = self.watch

    def _build(self) -> Net:
        if self.topology in ("pair", "chain"):
            names = ("a", "c") if self.topology == "pair" else ("a", "b", "c")
            net = chain(*names, queues=[ORDERS, NOTES], settings=self.settings)
        else:
            net = Net()
            for name in "abdc":
                net.add(name, *((ORDERS, NOTES) if name == "c" else ()), settings=self.settings)
            for here, there in ("ab", "ba", "ad", "da", "bc", "cb", "dc", "cd"):
                net.route(here, there, there)
            several = self.topology == "two next hops"
            net.route("a", "c", *("bd" if several else "b"))
            net.route("c", "a", *("db" if several else "d"))
            for name in "bd":
                net.route(name, "a", "a")
        for node in net.nodes.values():
            node.store = WatchedStore()
        net.start()
        return net

    @property
    def links(self) -> list[frozenset[str]]:
        """The pairs of nodes that talk to each other."""
        if self.topology in ("two routes", "two next hops"):
            return [frozenset(pair) for pair in ("ab", "ad", "bc", "dc")]
        return [frozenset(pair) for pair in zip(self.names, self.names[1:], strict=False)]

    def watch(self, sender: str, receiver: str, chunk: bytes) -> None:
        """What an OrderAck acknowledges and its sender still keeps is on the destination's disk at that moment."""
        if sender != "c":
            return
        store, origin = self.net.nodes["c"].store, self.net.nodes["a"].store
        assert isinstance(store, WatchedStore)
        for raw in PacketBuffer().feed(chunk):
            packet = decode_packet(raw)
            if not isinstance(packet, UserMessage):
                continue
            body = acknowledgment_in(packet)
            if not isinstance(body, OrderAckBody):
                continue
            happened["order ack"] += 1
            for key, row in origin.messages.items():
                if origin.queues[key >> POSITION_BITS].kind is QueueKind.SEQUENCE:
                    kept = decode_packet(row.packet)
                    assert isinstance(kept, UserMessage)
                    assert kept.transaction is not None
                    header = kept.transaction
                    if (
                        header.tx_sequence_id == body.tx_sequence_id
                        and header.tx_sequence_number <= body.tx_sequence_number
                    ):
                        assert row.packet[-16:] in store.accepted, "acknowledged beyond what is on disk"

    # What happens

    def is_up(self, name: str) -> bool:
        return self.net.nodes[name].core is not None

    def produce(self, dice: random.Random) -> None:
        """An application at `a` sends a few messages; they are accepted if the next commit was made."""
        if not self.is_up("a"):
            return
        store = self.net.nodes["a"].store
        drafts: list[tuple[str, bytes]] = []
        for _ in range(dice.choice([1, 5, 30])):
            self.count += 1
            kind = dice.choices(["transactional", "recoverable", "express"], [8, 2, 1])[0]
            body = f"message {self.count:08}".encode()
            if kind == "transactional":
                final_ack = chance(self.seed, "final ack", str(self.count)).random() < self.final_acks
                self.net.send("a", at("c"), body, transactional=True, final_ack=final_ack)
            else:
                self.net.send("a", at("c", 17), body, recoverable=kind == "recoverable")
            drafts.append((kind, body))
        before = store.commit_count
        self.net.turn("a")
        accepted = store.commit_count > before
        for kind, body in drafts:
            if accepted or kind == "express":
                self.sent[kind].append(body)
        self.net.run()

    def consume(self, name: str, limit: int, *, commit: bool) -> bool:
        """An application at `c` receives with a transaction; whether it was given anything."""
        node = self.net.nodes["c"]
        self.consumers += 1
        consumer = self.consumers
        node.received.clear()
        node.up.consume(consumer, name, limit, transactional=True)
        self.net.run()
        bodies = [message.properties.message_body for message in node.received]
        if not self.is_up("c"):
            return False
        if not bodies:
            node.up.abandon(consumer, name, self.net.now)
            return False
        node.up.settle(consumer, name, self.net.now, commit=commit)
        before = node.store.commit_count
        self.net.turn("c")
        if commit and (node.store.commit_count > before or self.is_up("c")):
            self.received[name] += bodies
        happened["rolled back"] += not commit
        self.net.run()
        return True

    def disturb(self, dice: dict[str, random.Random]) -> None:
        """Kill, restart, cut, block and reroute, each by its own dice."""
        for name in self.names:
            roll = dice[name]
            if not self.is_up(name):
                if roll.random() < 0.5:
                    self.restart(name, roll)
            elif "kill" in self.faults and roll.random() < self.strength:
                self.kill(name)
            elif "kill at a batch" in self.faults and roll.random() < self.strength:
                node = self.net.nodes[name]
                node.dies_at = node.batch_count + roll.randint(1, 6)
                node.dies_committed = roll.random() < 0.5
                happened[f"doomed, {'after' if node.dies_committed else 'before'} a commit"] += 1
        for link in self.links:
            one, other = sorted(link)
            roll = dice[one + other]
            if "cut" in self.faults and roll.random() < self.strength:
                happened["cut"] += 1
                self.net.cut(one, other)
            if "block" in self.faults and roll.random() < self.strength:
                happened["blocked"] += 1
                self.net.blocked ^= {link}
                self.net.cut(one, other)
        if "reroute" in self.faults and self.topology == "two routes":
            roll = dice["reroute"]
            if self.is_up("a") and roll.random() < self.strength:
                self.kill("a")
                self.restart("a", roll)

    def kill(self, name: str) -> None:
        happened["killed"] += 1
        self.net.kill(name)

    def restart(self, name: str, dice: random.Random) -> None:
        if self.topology == "two routes" and name in "ac" and "reroute" in self.faults:
            self.net.route(name, "c" if name == "a" else "a", dice.choice("bd"))
        self.net.nodes[name].dies_at = None
        self.net.start(name)

    def look(self) -> None:
        """Take down what each core says of itself, for a killed one cannot be asked."""
        for node in self.net.nodes.values():
            if node.core is not None:
                self.lives[node.core] = node.core.status()

    def blow(self) -> None:
        """The storm."""
        subjects = [*self.names, *("".join(sorted(link)) for link in self.links), "reroute"]
        dice = {subject: chance(self.seed, "disturb", subject) for subject in subjects}
        producer, consumer, clock = (chance(self.seed, who) for who in ("producer", "consumer", "clock"))
        for _ in range(chance(self.seed, "length").randrange(20, 60)):
            if producer.random() < 0.6:
                self.produce(producer)
            self.disturb(dice)
            self.net.run()
            if self.is_up("c") and consumer.random() < 0.3:
                commit = "roll back" not in self.faults or consumer.random() < 0.6
                self.consume(
                    consumer.choice(["orders", "notes"]), consumer.choice([1, 7, 100]), commit=commit
                )
            self.net.pass_ms(clock.choice([0, 10, 100, 1000, 5000]))
            self.look()
        # The last gust, after a lull: nobody sends after it, so whoever owes something has to remember by itself.
        self.mend()
        self.net.pass_ms(clock.choice([0, 10_000]))
        self.produce(producer)
        self.kill(clock.choice(self.names))

    def mend(self) -> None:
        """Everything is up again and every link works."""
        self.net.blocked.clear()
        for node in self.net.nodes.values():
            node.dies_at = None
            if node.core is None:
                self.net.start(node.name)

    def calm(self) -> None:
        """What is owed arrives and is received."""
        ran.add(self.seed)
        self.mend()
        for _ in range(10):  # Small resend batches, each with an OrderAck of its own, take their time.
            self.net.pass_ms(CALM_MS)
            if not any(q.waiting for q in self.net.nodes["a"].up.status().outgoing):
                break
        for name in self.received:
            while self.consume(name, 50, commit=True):
                pass
        self.net.pass_ms(CALM_MS)
        self.look()
        for status in self.lives.values():
            happened["over a later next hop"] += any(
                outgoing.state == "connected" and outgoing.next_hop in outgoing.next_hops[1:]
                for outgoing in status.outgoing
            )
            happened["held"] += status.held_ever
            happened["overflowed"] += status.overflowed
            happened["duplicate"] += status.duplicates
            happened["resent"] += status.resent
            happened["forwarded"] += status.forwarded


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize("seed", SEEDS)
def test_after_the_storm_each_message_has_arrived_once_and_in_order(seed: int) -> None:
    storm = Storm(seed)
    storm.blow()
    storm.calm()
    assert storm.received["orders"] == storm.sent["transactional"]
    express = set(storm.sent["express"])
    assert sorted(b for b in storm.received["notes"] if b not in express) == storm.sent["recoverable"]
    for node in storm.net.nodes.values():
        assert not node.store.messages, f"{node.name} still keeps {node.store.messages}"
        status = node.up.status()
        assert [q.name for q in status.outgoing if q.waiting] == []
        assert all(q.next_hop == q.next_hops[0] for q in status.outgoing), "back to the preferred way"
        assert [q.name for q in status.local if q.waiting or q.unsettled or q.held] == []


@pytest.mark.skipif(len(SEEDS) < 60, reason="too few seeds to bring everything about")
def test_the_storms_brought_about_all_that_they_are_for() -> None:
    """Without this a storm that has grown tame would go unnoticed. It runs after the seeds and counts with them."""
    for seed in set(SEEDS) - ran:  # It runs alone, or another worker had the seeds.
        storm = Storm(seed)
        storm.blow()
        storm.calm()
    expected = {
        "order ack", "killed", "cut", "blocked", "rolled back", "doomed, after a commit", "doomed, before a commit",
        "held", "overflowed", "duplicate", "resent", "forwarded", "over a later next hop",
    }  # fmt: skip
    assert {name for name in expected if happened[name] == 0} == set()
