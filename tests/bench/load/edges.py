"""The programs of `bench edges`: a node with a gateway and triggers, and what they are compared with.

All of them run all the time, and one at a time has work. What is compared gets the same POSTs from the same program
(posting.py), or calls the same consumer (consuming.py) for the same messages.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import msgspec
import trio

from mqproto.messages.drafts import Draft
from simulator.base.program.collector import seldom_collected
from simulator.client import Client, connect
from simulator.edges.validation.programs import Programs, programs_in
from simulator.faults.proof import percentile
from simulator.faults.supervisor import Supervisor, supervised
from tests.bench.figures import BenchError
from tests.bench.load.consuming import Consumed
from tests.bench.load.posting import Posted
from tests.bench.load.row import in_a_row

NODE: Final = "node"
CONSUMER: Final = "consumer"
POSTED, ORDERED, GROUPED = "posted", "ordered", "grouped"
"""Queues."""
GATEWAY: Final = "gateway"
UVICORN: Final = "uvicorn"
SERVERS: Final = (UVICORN, GATEWAY)
IN_ORDER, IN_GROUPS = "trigger", "trigger --group-by"
WORKER: Final = "worker"
DELIVERERS: Final = (WORKER, IN_ORDER, IN_GROUPS)
GROUPS: Final = 16
BATCH: Final = 250
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What one of them did in one round.

    cpu_us: of a message, for all its processes; None where the kernel does not tell.
    busy: the share of the time in which the load generator or the consumer had the processor.
    median_ms: until a POST was answered; 0 of deliveries.
    """

    per_s: float
    cpu_us: float | None
    busy: float
    median_ms: float = 0.0


@dataclass(slots=True)
class Stage:
    """The programs, all of them running.

    servers: by name, where POSTs go: address, path, and the processes whose time counts.
    deliverers: by name, its processes.
    """

    folder: Path
    nodes: Supervisor
    programs: Programs
    client: Client
    consumer: str = ""
    servers: dict[str, tuple[str, str, tuple[str, ...]]] = field(default_factory=dict)
    deliverers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rounds: int = 0

    async def posts(self, server: str, connections: int, seconds: float, body_bytes: int) -> Measured:
        """Have a server take POSTs, each with an id that nobody had before.

        Raises:
            BenchError: one was not answered 200.
        """
        address, path, names = self.servers[server]
        self.rounds += 1
        options = {"connections": connections, "seconds": seconds, "body-bytes": body_bytes}
        command = [sys.executable, "-m", "tests.bench.load.posting", address, path]
        command += [f"--{name}={value}" for name, value in options.items()]
        before_s = self._cpu_s(names)
        done = await trio.run_process(
            [*command, f"--prefix={self.rounds}"], capture_stdout=True, stdin=subprocess.DEVNULL
        )
        after_s = self._cpu_s(names)
        posted = msgspec.json.decode(done.stdout, type=Posted)
        if posted.wrong or not posted.answered:
            raise BenchError(f"{server}: {posted.wrong or 'nothing was answered'}")
        return Measured(
            per_s=posted.answered / posted.seconds,
            cpu_us=_each(before_s, after_s, posted.answered),
            busy=posted.cpu_s / posted.seconds,
            median_ms=percentile(posted.delays_ms, 50),
        )

    async def deliveries(self, deliverer: str, count: int, body_bytes: int) -> Measured:
        """Have one of them deliver so many messages.

        Raises:
            BenchError: one was lost, came twice or out of the order of its group, or it took too long.
        """
        names = self.deliverers[deliverer]
        groups = GROUPS if deliverer == IN_GROUPS else 1
        bodies = [f"{number % groups}/{number} ".encode().ljust(body_bytes) for number in range(count)]
        before_s = self._cpu_s(names)
        if deliverer in (IN_ORDER, IN_GROUPS):
            for first in range(0, count, BATCH):
                drafts = [
                    Draft(body=body, transactional=True, correlation_id=body.split(b"/")[0].ljust(20, b"\0"))
                    for body in bodies[first : first + BATCH]
                ]
                queue = GROUPED if deliverer == IN_GROUPS else ORDERED
                await self.client.send_many(f"{NODE}\\{queue}", drafts)
        else:
            await trio.to_thread.run_sync(_insert, self._file(deliverer), bodies)
        consumed = await self._consumed(deliverer, count)
        after_s = self._cpu_s(names)
        check(deliverer, bodies, consumed.bodies)
        return Measured(
            per_s=(count - 1) / consumed.seconds,
            cpu_us=_each(before_s, after_s, count),
            busy=consumed.cpu_s / consumed.seconds,
        )

    async def _consumed(self, deliverer: str, count: int) -> Consumed:
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            try:
                answer = await client.get(f"{self.consumer}/{count}")
            except httpx.TimeoutException:
                raise BenchError(
                    f"{deliverer}: {count:,} messages took more than {PATIENCE_S:g} s, or one was lost"
                ) from None
        return msgspec.json.decode(answer.content, type=Consumed)

    def _file(self, worker: str) -> Path:
        return self.folder / f"{worker}.sqlite"

    def _cpu_s(self, names: Sequence[str]) -> float | None:
        running = {**self.nodes.running, **self.programs.running}
        taken = [running[name].cpu_s() for name in names]
        return None if None in taken else sum(filter(None, taken))

    async def start(self) -> None:
        """Start all of them."""
        line = await self.programs.run(CONSUMER, ["tests.bench.load.consuming"])
        self.consumer = str(_url(line))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_by_gateway)
            nursery.start_soon(self._serve_by_uvicorn)
            nursery.start_soon(self._deliver_by_worker)
            nursery.start_soon(self._deliver_by_trigger, IN_ORDER, ORDERED)
            by_groups = ["--group-by", "correlation", "--parallel", str(GROUPS)]
            nursery.start_soon(self._deliver_by_trigger, IN_GROUPS, GROUPED, by_groups)

    async def _serve_by_gateway(self) -> None:
        seen = str(self.nodes.topology_file(NODE))
        line = await self.programs.start(GATEWAY, ["gateway", NODE, "--topology", seen, "--free-port"])
        self.servers[GATEWAY] = _address(line), f"/queues/{POSTED}/messages", (GATEWAY, NODE)

    async def _serve_by_uvicorn(self) -> None:
        line = await self.programs.run(UVICORN, ["tests.bench.load.accepting", str(self._file(UVICORN))])
        self.servers[UVICORN] = _address(line), "/", (UVICORN,)

    async def _deliver_by_worker(self) -> None:
        command = ["tests.bench.load.working", str(self._file(WORKER)), f"{self.consumer}/"]
        await self.programs.run(WORKER, command)
        self.deliverers[WORKER] = (WORKER,)

    async def _deliver_by_trigger(self, name: str, queue: str, options: Sequence[str] = ()) -> None:
        seen = str(self.nodes.topology_file(NODE))
        command = [
            "trigger",
            f"{NODE}\\{queue}",
            "--topology",
            seen,
            "--url",
            f"{self.consumer}/",
            "--name",
            queue,
        ]
        await self.programs.start(name, [*command, *options])
        self.deliverers[name] = name, NODE


def check(deliverer: str, sent: Sequence[bytes], consumed: Sequence[str]) -> None:
    """See that each message came once, in the order of its group.

    Raises:
        BenchError: one did not.
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


def _address(ready: str) -> str:
    """HOST:PORT."""
    return _url(ready).netloc.decode("ascii")


def _url(ready: str) -> httpx.URL:
    """`ready http://127.0.0.1:8080` says where it listens."""
    return httpx.URL(ready.split()[1])


def _each(before_s: float | None, after_s: float | None, count: int) -> float | None:
    return None if before_s is None or after_s is None else 1e6 * (after_s - before_s) / count


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """All programs, in a folder of their own among the temporary files.

    Raises:
        NodeError: one of them does not start.
    """
    topology = in_a_row([NODE], queues={NODE: [POSTED, ORDERED, GROUPED]})
    with seldom_collected(), tempfile.TemporaryDirectory(prefix="mqproto-bench-") as name:
        folder = Path(name)
        async with (
            supervised(topology, folder) as nodes,
            connect(topology, NODE, folder) as client,
            programs_in(folder) as programs,
        ):
            stage = Stage(folder, nodes, programs, client)
            await stage.start()
            yield stage
