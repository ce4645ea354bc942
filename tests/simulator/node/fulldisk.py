"""A node on a small file system that another program fills to the last byte; test_fulldisk.py runs this in a namespace.

python -m tests.simulator.node.fulldisk FOLDER

FOLDER is on that file system. The outcomes are printed as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.client import Client
from mqproto.simulator.topology import load
from tests.simulator.running import SERVE, NodeProcess

FILLER: Final = "another-program"
BODY_BYTES: Final = 10_000
OTHERS: Final = 1_000_000
"""The number of the first message that the other node sends."""
LIMIT_S: Final = 200
"""A time limit in seconds, below that of a test, so that the program prints what it waited for."""


def body(number: int) -> bytes:
    """Return a body that contains its number; different bodies may have different lengths."""
    return f"{number}".encode().ljust(BODY_BYTES + number % 7, b".")


def numbers_of(bodies: list[bytes]) -> list[int]:
    """Return the received numbers; an altered body counts as -1."""
    found = [int(each.partition(b".")[0]) for each in bodies]
    return [number if body(number) == each else -1 for number, each in zip(found, bodies, strict=True)]


def fill(folder: Path) -> None:
    """Let another program take all the room that is left, to the last byte."""
    with (folder / FILLER).open("ab", buffering=0) as file:
        block = bytes(2**20)
        while block:
            try:
                file.write(block)
            except OSError:
                block = block[: len(block) // 2]


@asynccontextmanager
async def filling(folder: Path) -> AsyncIterator[None]:
    """Let another program also take the room that is freed, during the block."""

    async def go_on() -> None:
        while True:
            await trio.to_thread.run_sync(fill, folder)
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        yield
        nursery.cancel_scope.cancel()


class Trial:
    """Two nodes, one of which has its store on the small disk, and the messages that this node accepts and hands
    out.
    """

    def __init__(self, folder: Path, elsewhere: Path) -> None:
        topology = load("pair").with_free_ports()
        self.folder = folder
        self.node = NodeProcess(topology, "destination", folder)
        self.sender = NodeProcess(topology, "sender", elsewhere)
        self.accepted: list[int] = []
        self.sent: list[int] = []
        """The messages sent by the other node, which has room."""
        self.received: list[int] = []
        self.found: dict[str, object] = {}

    async def send(self, client: Client, count: int) -> str:
        """Send up to `count` messages to the node's own queue until it refuses one; return the refusal."""
        for _ in range(count):
            number = len(self.accepted)
            try:
                await client.send("orders", body(number), transactional=True)
            except UsageError as error:
                return str(error)
            self.accepted.append(number)
        return ""

    async def send_from_elsewhere(self, count: int) -> None:
        """Hand messages to the other node, which keeps them as long as its neighbour has no room."""
        async with self.sender.client() as client:
            for _ in range(count):
                number = OTHERS + len(self.sent)
                await client.send(r"destination\orders", body(number), transactional=True)
                self.sent.append(number)

    async def receive(self, client: Client, most: int) -> int:
        """Receive up to `most` messages, each in a separate transaction; return their number."""
        for taken in range(most):
            async with client.transaction("orders", timeout_s=0) as messages:
                self.received += numbers_of([message.body for message in messages])
            if not messages:
                return taken
        return most

    async def run(self) -> None:
        """Fill the disk while messages arrive; kill, stop, start and drain the node on it."""
        found, node = self.found, self.node
        await node.start()
        await self.sender.start()
        # A client gives up a node that is away for ten seconds, which a start on a busy machine may take: each process
        # of the node has clients of its own.
        async with filling(self.folder):
            async with node.client() as client:
                found["refusal"] = await self.send(client, 3_000)
                await self.send_from_elsewhere(20)
                found["is full"] = (await client.queues()).disk_is_full
                found["received while full"] = await self.receive(client, 50)
                found["refused again"] = await self.send(client, 1)
            await node.end(signal.SIGKILL)
            await node.start()
            async with node.client() as client:
                found["refused after a kill"] = await self.send(client, 1)
                found["received after a kill"] = await self.receive(client, 300)
            found["room was left"] = os.statvfs(self.folder).f_bavail
            found["status of the stop"] = await node.end(signal.SIGTERM)
            await node.start()
            async with node.client() as client:
                found["received after a stop"] = await self.receive(client, 10_000)
        (self.folder / FILLER).unlink()
        async with node.client() as client:
            before = len(self.accepted)
            found["refused with room"] = await self.send(client, 100)
            found["accepted with room"] = len(self.accepted) - before
            while len(self.received) < len(self.accepted) + len(self.sent):
                await self.receive(client, 1_000)
                await trio.sleep(0.05)
            found["is full in the end"] = (await client.queues()).disk_is_full
        await self.cannot_be_written()
        found["accepted"] = len(self.accepted)
        found["as accepted"] = [each for each in self.received if each < OTHERS] == self.accepted
        found["as sent"] = [each for each in self.received if each >= OTHERS] == self.sent

    async def cannot_be_written(self) -> None:
        """Kill the node; start it on a file system that is now read-only, and again once it is writable."""
        node = self.node
        async with node.client() as client:
            await self.send(client, 10)
        await node.end(signal.SIGKILL)
        remount(self.folder, "ro")
        try:
            self.found["said about a read-only disk"] = await said_at_start(node)
        finally:
            remount(self.folder, "rw")
        await node.start()
        async with node.client() as client:
            self.found["received after it"] = await self.receive(client, 100)
        await node.end(signal.SIGTERM)
        await self.sender.end(signal.SIGTERM)


def remount(folder: Path, how: str) -> None:
    """Make the file system writable, or read-only."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


async def said_at_start(node: NodeProcess) -> list[str]:
    """Return the message of a node that cannot start.

    The node's log cannot be written, so the message goes to the standard error output.
    """
    code = f"import trio, sys; sys.path.insert(0, '.')\n{SERVE}"
    done = await trio.run_process(
        [sys.executable, "-c", code, node.name, str(node.directory)],
        stdin=pickle.dumps(node.topology),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    return [f"{done.returncode}", *done.stderr.decode().strip().splitlines()[-1:]]


async def main(folder: Path) -> None:
    """Run the trial, and print the results."""
    with tempfile.TemporaryDirectory() as elsewhere:
        trial = Trial(folder, Path(elsewhere))
        try:
            with trio.fail_after(LIMIT_S):
                await trial.run()
        finally:
            process = trial.node.process
            ended = None if process is None else process.poll()
            log = (folder / "destination.log").read_text()[-2_000:]
            print(f"the node ended with {ended}: {log}", file=sys.stderr)
            print(json.dumps(trial.found), flush=True)
            for node in (trial.node, trial.sender):
                if node.process is not None:
                    node.process.kill()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
