"""`mqproto crash`, which kills real nodes with SIGKILL, at any moment of their lives.

The nodes have real sockets and disks. Orders, which are transactional, and notes, which are recoverable, go from a
sender through an intermediate to a destination. strikes.py plans when nodes are killed: while they run, while they
start, and while they recover from the last kill. Bodies range from empty to nearly four megabytes, and consumers pause
and roll back, so that windows, pages and logs reach their limits. A calm period follows, in which everything owed must
arrive, and the stores must become empty.

With keys, all messages are encrypted and signed, and a Roller replaces the keys of the nodes throughout the run.

SIGKILL does not affect the operating system, so the next process sees everything that the last one wrote, whether it
was flushed or not. tests/simulator/storage/test_powerloss.py shows that the important writes are flushed as well.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import trio

from mqproto.base.errors import UsageError
from mqproto.queues.protection import Protection
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.base.screen import ProgressScreen
from mqproto.simulator.rig.load.consumer import PATIENCE_S
from mqproto.simulator.rig.load.producer import produce
from mqproto.simulator.rig.load.workload import HEAVY, HEAVY_PROTECTED, orders
from mqproto.simulator.rig.observer import LOOK_S
from mqproto.simulator.rig.report import CrashReport, FlowReport
from mqproto.simulator.rig.rig import DESTINATION, SENDER, Flow, Rig, new_folder
from mqproto.simulator.rig.strikes import JUST_READY_S, Kill, Stage, strikes
from mqproto.simulator.rig.supervisor import OPENING, PROGRAM, READY, NodeError, NodeProcess, Supervisor
from mqproto.simulator.security.guarding import is_installed
from mqproto.simulator.security.keyfiles import make_keys
from mqproto.simulator.topology import Topology, load, places
from mqproto.simulator.topology.views import as_toml
from mqproto.turn.guard import PRIVACY_LEVELS

RATES: Final = {"orders": 200, "notes": 40}
"""The number of messages per second to each queue."""
SLOWER_WITH_KEYS: Final = 2
"""If there are keys, the rates are divided by this number.

Signing, encrypting, opening and resending take time.
"""
CATCH_UP_S: Final = 60.0
"""Once all messages are due, senders have this many seconds; then they are asked to stop.

If no message of any sender is accepted in a period of this length while senders still run, the run fails.
"""
SETTLE_S: Final = 60.0
"""After the last kill, it is a fault if nothing arrives for this time, in seconds, while something is owed or still
stored.
"""
BITS: Final = 2_048
KEY_PAUSES_S: Final = (0.5, 4.0)
"""The range of pauses, in seconds, between two replacements of keys. They are short enough for several replacements
while a message is resent, or between two kills.
"""
OPERATORS: Final = "operator.toml"
PROTECTED: Final = Protection(authenticated=True, privacy=PRIVACY_LEVELS[-1])


async def run_crash(
    minutes: float,
    seed: int,
    directory: Path | None = None,
    screen: ProgressScreen | None = None,
    topology: Topology | None = None,
    *,
    kills: bool = True,
    keys: bool = False,
) -> CrashReport:
    """Send messages, kill and restart nodes for the given time, wait for calm, and return the report.

    Args:
        seed: determines the messages, and the nodes and times of kills. Real processes never repeat a run exactly.
        kills: whether nodes are killed; everything else is the same in both cases.
        keys: whether all messages are encrypted and signed, and keys are replaced while nodes are killed.
        directory: a folder on the disk to test, in which a new folder for the stores is made; by default, the folder
            for temporary files.
        topology: the nodes to kill, by default those of three-node; it must have `sender`, and `destination` with the
            queues `orders`, which takes transactions, and `notes`.

    Raises:
        UsageError: the directory does not exist, the topology lacks something, or the libraries for cryptography are
            missing.
        NodeError: a node fails at its first start.
    """
    topology = (topology or load("three-node")).with_free_ports()
    topology.node_named(SENDER)
    for queue in RATES:
        topology.node_named(DESTINATION).queue(queue)
    if keys:
        topology = protected(topology, DESTINATION, RATES)
    folder = new_folder("crash", directory)
    if keys:
        give_keys(topology, folder)
    crash = Crash(topology, folder, minutes, seed, screen, kills=kills, keys=keys)
    await crash.run()
    report = crash.report()
    if not report.broken:
        shutil.rmtree(folder)  # Otherwise the stores and the logs in it say more.
    return report


def longest_gap_s(times: Sequence[float], start_s: float, end_s: float) -> float:
    """Return the length, in seconds, of the longest gap between these times within an interval.

    A gap may also begin at the start of the interval, or end at its end. The times are sorted.
    """
    inside = times[bisect_left(times, start_s) : bisect_right(times, end_s)]
    return max(later - earlier for earlier, later in pairwise([start_s, *inside, end_s]))


class Crash(Rig):
    """One run, from the first process to the last message."""

    def __init__(
        self,
        topology: Topology,
        directory: Path,
        minutes: float,
        seed: int,
        screen: ProgressScreen | None = None,
        *,
        kills: bool = True,
        keys: bool = False,
    ) -> None:
        super().__init__(topology, directory, screen)
        self.minutes = minutes
        self.seed = seed
        self.has_keys = keys
        for queue, per_s in RATES.items():
            count = max(1, round(60 * minutes * per_s / (SLOWER_WITH_KEYS if keys else 1)))
            self.flow(
                queue,
                orders(count, seed, HEAVY_PROTECTED if keys else HEAVY),
                chance(seed, "consumer", queue),
                transactional=queue != "notes",
                protected=keys,
            )
        self.kills = {name: dict.fromkeys(Stage, 0) for name in topology.nodes}
        self.has_kills = kills
        self.at_once = 0
        self.again = 0
        self.rolled: dict[str, int] = {}
        self.failures: list[str] = []
        self._span_s = 60 * minutes
        self._all_up: list[tuple[float, float]] = []
        self._ready_s = dict.fromkeys(topology.nodes, 0.0)
        self._judged = trio.CancelScope()

    async def run(self) -> None:
        """Run the storm, then wait for calm.

        Raises:
            NodeError: a node fails at its first start.
        """
        async with self.running() as watching:
            watching.start_soon(self.watch)
            with self._judged:
                await self._storm()
                await self._calm()

    async def _storm(self) -> None:
        async with trio.open_nursery() as nursery:
            if self.has_kills:
                nursery.start_soon(self._strike_all)
            if self.has_keys:
                nursery.start_soon(self._roll_keys)
            nursery.start_soon(self._produce)

    async def _produce(self) -> None:
        producers = [flow.producer for flow in self.flows.values()]
        if not await produce(producers, self._span_s, CATCH_UP_S):
            self._fail(f"{SENDER} runs, but does not accept messages")

    async def _calm(self) -> None:
        """Wait until the queues are empty, then wait a little longer for messages that must not come. A backlog may
        take any time, provided that it keeps shrinking.
        """
        before, still_since_s = self.received_count, trio.current_time()
        while trio.current_time() - still_since_s < SETTLE_S:
            if self._is_empty() and not any(flow.consumer.is_in_doubt for flow in self.flows.values()):
                await trio.sleep(2 * PATIENCE_S)
                return
            await trio.sleep(LOOK_S)
            if self.received_count != before:
                before, still_since_s = self.received_count, trio.current_time()

    def _is_empty(self) -> bool:
        """Return whether all nodes run, and none reported messages on disk in its last answer."""
        statuses = self.observer.statuses
        return len(statuses) == len(self.topology.nodes) and not any(
            status.stored_bytes for status in statuses.values()
        )

    def _fail(self, why: str) -> None:
        """End the run with a failure."""
        self.failures.append(why)
        self._judged.cancel()

    def ended(self, node: NodeProcess) -> None:
        """End the run with a failure, because a node ended on its own."""
        self._fail(str(node.failure()))

    # Kills

    async def _strike_all(self) -> None:
        for strike in strikes(self.seed, list(self.topology.nodes)):
            up_s = trio.current_time()
            await trio.sleep(strike.pause_s)
            if self.elapsed_s() >= self._span_s:
                return
            self._all_up.append((up_s, trio.current_time()))
            self.at_once += strike.at_once
            async with trio.open_nursery() as nursery:
                for name, kills in strike.kills.items():
                    nursery.start_soon(self._hit, name, kills)

    async def _hit(self, name: str, kills: list[Kill]) -> None:
        """Carry out the first of these kills on a running node.

        Carry out each of the others while the node starts again.
        """
        first, *others = kills
        supervisor = self.supervisor
        try:
            await self._kill(supervisor.running[name], first)
            for kill in others:
                node = await supervisor.spawn(name)
                if kill.aim is not Stage.STARTING:
                    await supervisor.until(node, OPENING if kill.aim is Stage.RECOVERING else READY)
                    self._ready_s[name] = trio.current_time()
                await self._kill(node, kill)
                self.again += 1
            self._ready_s[name] = (await supervisor.start(name)).ready_s
        except NodeError as error:
            self._fail(str(error))

    async def _kill(self, node: NodeProcess, kill: Kill) -> None:
        await trio.sleep(kill.after_s)
        seen_ready = node.has_said(READY)
        ready_for_s = trio.current_time() - self._ready_s[node.name]
        await self.supervisor.kill(node.name)
        if node.process.returncode != -signal.SIGKILL:
            raise node.failure()
        # The node itself has printed how far it came, which may be further than we knew.
        if not node.has_said(READY):
            stage = Stage.RECOVERING if node.has_said(OPENING) else Stage.STARTING
        else:
            stage = Stage.RUNNING if seen_ready and ready_for_s > JUST_READY_S else Stage.JUST_READY
        self.kills[node.name][stage] += 1
        await trio.sleep(kill.down_s)

    async def _roll_keys(self) -> None:
        roller = Roller(self.supervisor, self.seed)
        self.rolled = roller.rolled
        try:
            await roller.run(self.start_s + self._span_s)
        except NodeError as error:
            self._fail(str(error))

    # The report

    def report(self) -> CrashReport:
        """Return the whole report, after the nodes have stopped."""
        failures = [*self.failures, *self._damage()]
        return CrashReport(
            seed=self.seed,
            minutes=self.minutes,
            duration_s=self.end_s - self.start_s,
            flows={name: self._told(flow) for name, flow in self.flows.items()},
            kills=self.kills,
            at_once=self.at_once,
            again=self.again,
            nodes=self.observer.nodes,
            retained={} if failures else self._retained(),
            failures=failures,
            stores=str(self.directory),
            has_kills=self.has_kills,
            rolled=self.rolled,
            usage=self.usage,
        )

    def _told(self, flow: Flow) -> FlowReport:
        times = [message.at_s for message in flow.consumer.received]
        return FlowReport(
            transactional=flow.producer.is_transactional,
            comparison=flow.comparison(),
            commits_in_doubt=flow.consumer.in_doubt_count,
            commits_done=flow.consumer.committed_in_doubt_count,
            rolled_back=flow.consumer.rolled_back_count,
            longest_outage_s=longest_gap_s(times, self.start_s, max(times, default=self.start_s)),
            longest_silence_s=max((longest_gap_s(times, *up) for up in self._all_up), default=0.0),
        )

    def caption(self) -> str:
        """Return a caption that shows the progress of the run and the number of kills."""
        killed = sum(sum(stages.values()) for stages in self.kills.values())
        return f"{self.elapsed_s():.0f} of {self._span_s:.0f} s, {killed:,} kills"

    def _retained(self) -> dict[str, int]:
        """Return how many messages wait in the stores, for each queue that has any. The nodes must have stopped."""
        return {
            f"{kind} queue {queue!r} of {name}": count
            for name in self.topology.nodes
            for kind, queue, count in self._look(name, "SELECT kind, name, messages FROM waiting")
        }

    def _damage(self) -> Iterator[str]:
        """Yield the damage that SQLite finds in the stores."""
        for name in self.topology.nodes:
            try:
                [(verdict,), *_] = self._look(name, "PRAGMA integrity_check")
            except sqlite3.Error as error:
                verdict = error
            if verdict != "ok":
                yield f"the store of {name} is damaged: {verdict}"

    def _look(self, name: str, query: str) -> list[tuple[Any, ...]]:
        """Run a query on a node's store."""
        with closing(sqlite3.connect(places.store_path(self.directory, name))) as store:
            return store.execute(query).fetchall()


def protected(topology: Topology, node: str, queues: Iterable[str]) -> Topology:
    """Return the topology, changed so that these queues accept only encrypted and signed messages.

    Raises:
        UsageError: the libraries for that are not installed.
    """
    if not is_installed():
        raise UsageError("--keys needs cryptography: pip install 'mqproto[security]'")
    host = topology.node_named(node)
    changed = {name: replace(host.queue(name), protection=PROTECTED) for name in queues}
    return topology.with_node(replace(host, queues={**host.queues, **changed}))


def give_keys(topology: Topology, directory: Path) -> None:
    """Make keys for each node."""
    for name in topology.nodes:
        make_keys(directory, name, BITS)


class Roller:
    """Replaces keys, as an operator would, whether the nodes run, are down or are starting. Messages in transit are
    still encrypted with the old keys, and signed with the old certificates.

    Attributes:
        rolled: the number of replacements for each node.
    """

    def __init__(self, supervisor: Supervisor, seed: int) -> None:
        self.rolled = dict.fromkeys(supervisor.topology.nodes, 0)
        self._dice = chance(seed, "keys")
        self._directory = supervisor.directory
        self._topology = supervisor.directory / OPERATORS
        self._topology.write_text(as_toml(supervisor.topology), "utf-8")

    async def run(self, ends_s: float) -> None:
        """Replace the keys of random nodes until `ends_s` on trio's clock, but at least those of one node.

        Raises:
            NodeError: keys could not be replaced.
        """
        while True:
            await self._roll(self._dice.choice(list(self.rolled)))
            pause_s = self._dice.uniform(*KEY_PAUSES_S)
            if trio.current_time() + pause_s >= ends_s:
                return
            await trio.sleep(pause_s)

    async def _roll(self, name: str) -> None:
        command = [sys.executable, "-m", PROGRAM, "keys", "make", name, "--replace"]
        command += ["--provider", "aes", "--topology", str(self._topology)]
        command += ["--directory", str(self._directory)]
        done = await trio.run_process(command, stdout=subprocess.DEVNULL, capture_stderr=True, check=False)
        if done.returncode:
            raise NodeError(
                f"{name}: its keys were not replaced: {done.stderr.decode('utf-8', 'replace').strip()}"
            )
        self.rolled[name] += 1
