"""Our node as a black box: a process of `mqproto node`, and commands that are run while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import trio

from .wire import direct, private

OURS, LETTER, OTHER = (UUID(f"{part * 4}-0000-0000-0000-000000000001") for part in ("0b", "0a", "0c"))
QUEUES: Final = {"orders": 32, "notes": 33, "acks": 34, "few": 35, "nowhere": 36}
"""The queues of our node and of the peer, and their PrivateQueueIdentifiers.

`orders`, `few` and `nowhere` are transactional; only our node believes that the peer has `nowhere`.
"""
COMMAND: Final = str(Path(sys.executable).with_name("mqproto"))
SETTINGS: Final[Mapping[str, object]] = {
    "try_connect_interval_ms": 200,
    "order_ack_timeout_ms": 50,
    "maximum_order_ack_delay_s": 0.3,
    "resend_timeouts_short_s": 1,
    "resend_timeouts_medium_s": 2,
    "resend_timeouts_long_s": 3,
    "resend_timeouts_final_s": 4,
    "window_size": 16,
}


@dataclass
class Node:
    """Our node. Its topology declares a neighbour, in whose place the peer runs.

    If no neighbour is declared, all queues of our node are open to strangers.
    """

    folder: Path
    address: str
    peer_address: str
    settings: Mapping[str, object]
    asks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What each queue requires of messages, keyed by the queue's name, as entries of a topology."""
    declared: bool = True
    """Whether the node's topology has the neighbour."""

    def names(self, guid: UUID, queue: str) -> dict[str, str]:
        """Return the names by which a queue of our node or of the peer is addressed; between strangers, only a direct
        name.
        """
        numbered = {"private": private(QUEUES.get(queue, 99), guid)} if self.declared else {}
        return numbered | {"direct": direct(queue, self.address if guid == OURS else self.peer_address)}

    def write_topology(self) -> None:
        lines = []
        both = ("ours", OURS, self.address), ("letter", LETTER, self.peer_address)
        for name, guid, address in both[: 1 + self.declared]:
            lines += [f"[node.{name}]", f'guid = "{guid}"']
            lines += [f'address = "{address}:1801"', f'ping = "{address}:3527"']
            for queue, number in QUEUES.items():
                transactional = str(queue in ("orders", "few", "nowhere")).lower()
                lines += [
                    f"[node.{name}.queue.{queue}]",
                    f"id = {number}",
                    f"transactional = {transactional}",
                    f"strangers = {str(not self.declared).lower()}",
                    *(f"{key} = {json.dumps(value)}" for key, value in self.asks.get(queue, {}).items()),
                ]
        lines += ["[[link]]", 'between = ["ours", "letter"]'] * self.declared + ["[settings]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in self.settings.items()]
        self.topology.write_text("\n".join(lines) + "\n")

    @property
    def topology(self) -> Path:
        return self.folder / "two.toml"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the process during the block, which begins when the process is ready; its output goes to node.log."""
        words = [COMMAND, "node", "ours", "--topology", str(self.topology), "--directory", str(self.folder)]
        with (self.folder / "node.log").open("ab") as log:
            process = await trio.lowlevel.open_process(words, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout
        try:
            said = b""
            while b"ready" not in said:
                some = await process.stdout.receive_some()
                assert some, f"the node did not start: {(self.folder / 'node.log').read_text()[-500:]}"
                said += some
            yield
        finally:
            with trio.CancelScope(shield=True):
                process.terminate()
                await process.wait()
                await process.stdout.aclose()

    async def send(self, queue: str, bodies: Iterable[bytes], *options: str) -> None:
        await self.typed("send", queue, "-", "--lines", "--node", "ours", *options, lines=bodies)

    async def receive(self, queue: str) -> list[bytes]:
        """Receive everything in a queue."""
        words = ("receive", queue, "--node", "ours", "--count", "1000000", "--timeout", "0.1")
        return (await self.typed(*words, check=False)).encode().split()

    async def state(self) -> tuple[int, dict[str, int]]:
        """Return the number of messages that wait to leave, and the number in each of the node's queues."""
        node = await self._queues()
        waiting = sum(int(queue["waiting"]) for queue in node["outgoing"])
        return waiting, {str(queue["name"]): int(queue["waiting"]) for queue in node["local"]}

    async def _queues(self) -> dict[str, Any]:
        nodes: list[dict[str, Any]] = json.loads(await self.typed("queues", "--json"))
        return next(node for node in nodes if node["running"])

    async def typed(self, *words: str, lines: Iterable[bytes] = (), check: bool = True) -> str:
        """Run a command, and return its output."""
        places = ["--topology", str(self.topology), "--directory", str(self.folder)]
        stdin = b"".join(line + b"\n" for line in lines)
        done = await trio.run_process(
            [COMMAND, *words, *places], stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{words}: {done.stderr.decode()}")
        return done.stdout.decode()
