"""The programs of `bench edges`: a node with a gateway and triggers, and the programs with which they are compared."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import httpx
import msgspec
import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.client import Client, connect
from mqproto.simulator.rig.proof import percentile
from mqproto.simulator.rig.supervisor import Programs, Supervisor, programs_in, supervised
from mqproto.simulator.topology.file import written_address
from mqproto.simulator.topology.ports import reserved_address
from tests.bench.figures import BenchError
from tests.bench.load.row import difference, in_a_row
from tests.bench.programs.consuming import Consumed
from tests.bench.programs.posting import Posted

NODE: Final = "node"
CONSUMER: Final = "consumer"
POSTED, ORDERED, GROUPED = "posted", "ordered", "grouped"
"""Names of queues."""
GATEWAY: Final = "gateway"
SERVERS: Final = (GATEWAY, "uvicorn", "uvicorn with group commit")
TRIGGERS: Final = ("trigger", "trigger --group-by")
WORKER: Final = "worker"
DELIVERERS: Final = (*TRIGGERS, WORKER)
GROUPS: Final = 16
BATCH: Final = 250
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one program in one round.

    cpu_us: the processor time per message of all its processes; None if the kernel does not report it.
    busy: the share of the time during which the load generator or the consumer used the processor.
    median_ms: the median time until a POST was answered; None for deliveries.
    """

    per_s: float
    cpu_us: float | None
    busy: float
    median_ms: float | None = None


@dataclass(slots=True)
class Stage:
    """All programs of a measurement, running.

    servers: for each server, keyed by its name, the address and the path to which POSTs are sent, and the processes
        whose time counts.
    """

    folder: Path
    nodes: Supervisor
    programs: Programs
    client: Client
    consumer: str = ""
    servers: dict[str, tuple[str, str, tuple[str, ...]]] = field(default_factory=dict)
    rounds: int = 0

    async def posts(self, server: str, connections: int, seconds: float, body_bytes: int) -> Measured:
        """Make a server take POSTs, each with an id that has not been used before.

        Raises:
            BenchError: a POST was not answered with 200.
        """
        address, path, names = self.servers[server]
        self.rounds += 1
        command = [sys.executable, "-m", "tests.bench.programs.posting", f"{address}{path}"]
        command += [str(connections), str(seconds), str(body_bytes), f"{self.rounds}"]
        before_s = self._cpu_s(names)
        done = await trio.run_process(command, capture_stdout=True, stdin=subprocess.DEVNULL)
        posted = msgspec.json.decode(done.stdout, type=Posted)
        if posted.wrong or not posted.answered:
            raise BenchError(f"{server}: {posted.wrong or 'nothing was answered'}")
        return Measured(
            per_s=posted.answered / posted.seconds,
            cpu_us=self._cpu_us(names, before_s, posted.answered),
            busy=posted.cpu_s / posted.seconds,
            median_ms=percentile(posted.delays_ms, 50),
        )

    async def deliveries(self, deliverer: str, count: int, body_bytes: int) -> Measured:
        """Make one program deliver `count` messages.

        Raises:
            BenchError: a message was lost, or arrived twice or out of order within its group, or it took too long.
        """
        is_worker, is_grouped = deliverer == WORKER, deliverer == TRIGGERS[1]
        names = (deliverer,) if is_worker else (deliverer, NODE)
        groups = GROUPS if is_grouped else 1
        bodies = [f"{number % groups}/{number} ".encode().ljust(body_bytes) for number in range(count)]
        before_s = self._cpu_s(names)
        if is_worker:
            await trio.to_thread.run_sync(_insert, self.folder / "worker.sqlite", bodies)
        for first in range(0, 0 if is_worker else count, BATCH):
            drafts = [
                Draft(body=body, transactional=True, correlation_id=body.split(b"/")[0].ljust(20, b"\0"))
                for body in bodies[first : first + BATCH]
            ]
            await self.client.send_many(f"{NODE}\\{GROUPED if is_grouped else ORDERED}", drafts)
        consumed = await self._consumed(deliverer, count)
        cpu_us = self._cpu_us(names, before_s, count)
        check(deliverer, bodies, consumed.bodies)
        return Measured((count - 1) / consumed.seconds, cpu_us, consumed.cpu_s / consumed.seconds)

    async def _consumed(self, deliverer: str, count: int) -> Consumed:
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            try:
                answer = await client.get(f"{self.consumer}/{count}")
            except httpx.TimeoutException:
                raise BenchError(
                    f"{deliverer}: {count:,} messages took more than {PATIENCE_S:g} s, or one was lost"
                ) from None
        return msgspec.json.decode(answer.content, type=Consumed)

    def _cpu_s(self, names: Sequence[str]) -> float | None:
        running = {**self.nodes.running, **self.programs.running}
        taken = [running[name].cpu_s() for name in names]
        return None if None in taken else sum(filter(None, taken))

    def _cpu_us(self, names: Sequence[str], before_s: float | None, count: int) -> float | None:
        taken_s = difference(before_s, self._cpu_s(names))
        return None if taken_s is None else 1e6 * taken_s / count

    async def start(self) -> None:
        """Start all programs."""
        gateway = self.nodes.topology.nodes[NODE].gateway
        assert gateway is not None
        address = gateway["listen"]
        self.servers[GATEWAY] = f"http://{address}", f"/queues/{POSTED}/messages", (NODE,)
        self.consumer = _url(await self.programs.run(CONSUMER, ["tests.bench.programs.consuming"]))
        worker = ["tests.bench.programs.working", str(self.folder / "worker.sqlite"), f"{self.consumer}/"]
        by_groups = ["--group-by", "correlation", "--parallel", str(GROUPS)]
        async with trio.open_nursery() as nursery:
            for name, commit in zip(SERVERS[1:], ("each", "all"), strict=True):
                nursery.start_soon(self._serve_by_uvicorn, name, commit)
            nursery.start_soon(self.programs.run, WORKER, worker)
            nursery.start_soon(self._trigger, TRIGGERS[0], ORDERED, [])
            nursery.start_soon(self._trigger, TRIGGERS[1], GROUPED, by_groups)

    async def _serve_by_uvicorn(self, name: str, commit: str) -> None:
        command = ["tests.bench.programs.accepting", str(self.folder / f"{commit}.sqlite"), commit]
        self.servers[name] = _url(await self.programs.run(name, command)), "/", (name,)

    async def _trigger(self, name: str, queue: str, options: Sequence[str]) -> None:
        command = ["trigger", f"{NODE}\\{queue}", "--topology", str(self.nodes.topology_file(NODE))]
        command += ["--url", f"{self.consumer}/", "--name", queue, *options]
        await self.programs.start(name, command)


def check(deliverer: str, sent: Sequence[bytes], consumed: Sequence[str]) -> None:
    """Check that each message arrived once, and in order within its group.

    Raises:
        BenchError: a message did not arrive exactly once, or was out of order within its group.
    """
    wanted, came = _by_group([body.decode("ascii") for body in sent]), _by_group(consumed)
    if wanted != came:
        groups = sum(came.get(group) != numbers for group, numbers in wanted.items())
        raise BenchError(
            f"{deliverer}: of {len(sent):,} messages {len(consumed):,} came, and in {groups} of {len(wanted)} groups "
            "they were not those that were sent, in order"
        )


def _by_group(bodies: Sequence[str]) -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for body in bodies:
        group, _, number = body.split(" ")[0].partition("/")
        found[group].append(number)
    return dict(found)


def _insert(path: Path, bodies: Sequence[bytes]) -> None:
    with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as db, db:
        db.executemany("INSERT INTO message (body) VALUES (?)", [(body,) for body in bodies])


def _url(ready: str) -> str:
    """Return the address in a line such as `ready http://127.0.0.1:8080`."""
    return ready.split()[1].rstrip("/")


@asynccontextmanager
async def staged(parent: str | None) -> AsyncIterator[Stage]:
    """Run all programs, with their stores in a new folder.

    The folder is in `parent` or, if that is None, in the folder for temporary files.

    Raises:
        NodeError: a program does not start.
    """
    topology = in_a_row([NODE], queues={NODE: [POSTED, ORDERED, GROUPED]})
    node = topology.nodes[NODE]
    listen = written_address(*reserved_address())
    topology = topology.with_node(replace(node, gateway={"listen": listen}))
    with seldom_collected(), tempfile.TemporaryDirectory(prefix="mqproto-bench-", dir=parent) as name:
        folder = Path(name)
        async with (
            supervised(topology, folder) as nodes,
            connect(topology, NODE, folder) as client,
            programs_in(folder) as programs,
        ):
            stage = Stage(folder, nodes, programs, client)
            await stage.start()
            yield stage
