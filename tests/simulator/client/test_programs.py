"""The example programs for clients are killed repeatedly: each order is answered once, and in order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.client.blocking import BlockingClient
from mqproto.simulator.testing.managers import QueueManagers, Starting
from tests.test_readme import blocks_of

KILLS: Final = int(os.environ.get("MQPROTO_PROGRAM_KILLS", "1"))
ORDERS: Final = 20 * (KILLS + 1)
PROGRAMS: Final = {"trio": "import trio", "asyncio": "import asyncio", "threads": "import ThreadPoolExecutor"}


@pytest.mark.long
@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize("flavour", PROGRAMS)
def test_a_program_that_is_killed_again_and_again_sends_and_answers_each_order_once(
    flavour: str, queue_managers: Starting, tmp_path: Path
) -> None:
    programs = blocks_of("program-that-may-be-killed", "python")
    [text] = [block.text for block in programs if PROGRAMS[flavour] in block.text]
    program = tmp_path / f"with_{flavour}.py"
    program.write_text(text, "utf-8")
    managers = queue_managers(2)
    with managers.connect("qm1") as client:
        for kill in range(1, KILLS + 1):
            # At any moment of what it does while so many more orders are answered.
            run_until(program, managers, client, random.randint(20 * kill - 19, 20 * kill))
        run_until(program, managers, client, ORDERS)
        replies: list[ReceivedMessage] = []
        while more := client.receive("replies", limit=100, timeout_s=0):
            replies += more
        assert [reply.body for reply in replies] == [b"done: order %d" % number for number in range(ORDERS)]
        assert len({reply.correlation for reply in replies}) == ORDERS
    with managers.connect("qm2") as client:
        assert client.receive("orders", timeout_s=0) == []


def run_until(program: Path, managers: QueueManagers, client: BlockingClient, count: int) -> None:
    """Start the program, and kill it once there are `count` answers."""
    command = [sys.executable, str(program), str(managers.file), str(managers.directory), str(ORDERS)]
    with subprocess.Popen(command) as process:
        while waiting(client) < count:
            assert process.poll() is None, "it has ended by itself"
        process.kill()


def waiting(client: BlockingClient) -> int:
    """Return the number of answers in the queue."""
    return next(queue.waiting for queue in client.queues().local if queue.name == "replies")
