"""Helpers for the tests of operators: nodes, messages that fail, and commands that run meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mqproto.simulator.client import Client, Reject
from mqproto.simulator.client.envelope import FailureNote
from mqproto.simulator.edges.trigger.errorcopy import copy_for
from tests.simulator.typed import forked

TWO: Final = """
[node.near]
[node.far]
[node.far.queue.orders]
transactional = true
journal = true
[node.far.queue.errors]
transactional = true
[[link]]
between = ["near", "far"]
"""


class Typed:
    """Runs commands about a topology's nodes, which run in this process and hold the locks."""

    def __init__(self, folder: Path, name: str, topology: str) -> None:
        self.file = folder / name
        self.file.write_text(topology, "utf-8")
        self.options = ("-t", self.file, "--directory", folder)

    async def run(self, *words: str, status: int = 0) -> str:
        """Run a command; return its output."""
        done = await forked(*words, *self.options)
        assert done.status == status, done.err
        return done.out + done.err


async def fails(client: Client, node: str) -> None:
    """Treat the first message of `orders` as a trigger does after its consumer has refused it."""
    async with client.transaction("orders") as taken:
        note = FailureNote(failure="business error", message=str(taken[0].id), queue=f"{node}\\orders")
        taken.send("errors", copy_for(taken[0], note))


async def rejects(client: Client) -> None:
    """Let an application reject the first message of `orders`."""
    async with client.transaction("orders"):
        raise Reject
