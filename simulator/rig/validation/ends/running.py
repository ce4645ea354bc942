"""Sends a message for each way in ways.py, and audits who holds it.

The result is compared with the list of each party.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.rig.rig import DESTINATION, new_folder
from mqproto.simulator.rig.validation.ends.report import EndsReport
from mqproto.simulator.rig.validation.ends.system import System, WayError
from mqproto.simulator.rig.validation.ends.ways import (
    CUES,
    DOUBTS,
    ERRORS,
    FULL_KB,
    LATE,
    ORDERS,
    PLAIN,
    SHOP,
    TILL,
    TOLD,
    WAYS,
)
from mqproto.simulator.topology import DeclaredQueue
from mqproto.simulator.topology.ports import reserved_address

SECONDS: Final = "0.02"
"""The pause, in seconds, before a trigger's second and last attempt."""


async def validate_ends(begin: Callable[[str], None] = lambda name: None) -> EndsReport:
    """Send a message for each way in which a message can end.

    Stores and logs stay if a result is not as expected.

    Args:
        begin: called with the name of each way before its message is sent.
    """
    folder = new_folder("ends")
    report = await run_ends(folder, begin)
    if not report.broken:
        shutil.rmtree(folder)
    return report


async def run_ends(folder: Path, begin: Callable[[str], None] = lambda name: None) -> EndsReport:
    """Send a message for each way, all in one system, which is stopped at the end.

    Args:
        folder: the folder for stores, logs and the history, which stay there afterwards.
        begin: called with the name of each way before its message is sent.
    """
    trouble = ""
    system = System(_queues(), CUES, folder)
    consume = partial(system.consumer.serve, port := reserved_address()[1])
    async with (
        system.running(),
        system.edges(consume, _commands(system, f"http://127.0.0.1:{port}/")),
        system.clients(system.gateway_url),
    ):
        try:
            await _go(system, begin)
        except (WayError, UsageError) as error:
            trouble = str(error)
        system.end()
        found = await system.audit()
    return EndsReport(found, system.lists, system.place, trouble, system.usage)


async def _go(system: System, begin: Callable[[str], None]) -> None:
    begun = False
    for way in WAYS:
        begin(way.name)
        if way.first is not None and not begun:
            begun = True
            for other in WAYS:
                if other.first is not None:
                    await other.first(system, other.name)
        await way.go(system, way.name)
    for name in LATE:
        await system.until_state("dead-letter", name, name)


def _queues() -> dict[str, DeclaredQueue]:
    """Return a queue for each way, and the queues of the triggers."""
    names = [*(way.name for way in WAYS), ORDERS, ERRORS, DOUBTS, SHOP, TILL, TOLD]
    return {
        name: DeclaredQueue(
            name=name,
            identifier=100 + number,
            transactional=name not in PLAIN,
            quota_kb=FULL_KB if name == "queue-full" else None,
        )
        for number, name in enumerate(names)
    }


def _commands(system: System, url: str) -> dict[str, list[str]]:
    """Return the commands of the triggers, keyed by name."""

    def trigger(queue: str, *options: str) -> list[str]:
        often = ("--interval", SECONDS, "--factor", "1", "--attempts", "2")
        return system.trigger(queue, url, "--name", queue, *often, *options)

    copies = ("--error-queue", f"{DESTINATION}\\{ERRORS}", "--in-doubt-queue", f"{DESTINATION}\\{DOUBTS}")
    return {
        ORDERS: trigger(ORDERS, *copies),
        SHOP: trigger(SHOP, "--history", "none"),
        TILL: trigger(TILL, "--error-queue", "none"),
    }
