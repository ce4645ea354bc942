"""Sends a message on each of the ways, has an audit say who has it, and compares that with everybody's own list."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import trio

from mqproto.simulator.client import connect
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.edges.operators.reading import audited
from mqproto.simulator.rig.load.validator import Validator
from mqproto.simulator.rig.rig import new_folder
from mqproto.simulator.rig.supervisor import Programs, Supervisor, programs_in, supervised
from mqproto.simulator.rig.validation.ends.report import EndsReport
from mqproto.simulator.rig.validation.ends.system import (
    DESTINATION,
    INTERMEDIATE,
    SENDER,
    System,
    WayError,
    ends_topology,
    script,
)
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
from mqproto.simulator.topology import DeclaredQueue, Topology, places
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.ports import reserved_address

SECONDS: Final = "0.02"
"""Until a trigger's second attempt, which is the last."""
GATEWAY: Final = "gateway"


async def validate_ends(begin: Callable[[str], None] = lambda name: None) -> EndsReport:
    """Go all ways. Stores and logs stay if something is not as expected.

    Args:
        begin: called with the name of each way before a message goes it.
    """
    folder = new_folder("ends")
    report = await run_ends(folder, begin)
    if not report.broken:
        shutil.rmtree(folder)
    return report


async def run_ends(folder: Path, begin: Callable[[str], None] = lambda name: None) -> EndsReport:
    """Go all ways in one system, which is stopped at the end.

    Args:
        folder: for stores, logs and the history; they stay.
        begin: called with the name of each way before a message goes it.
    """
    trouble = ""
    async with _system(folder) as system:
        try:
            await _go(system, begin)
        except WayError as error:
            trouble = str(error)
        system.end()
        found = await trio.to_thread.run_sync(audited, system.place)
    return EndsReport(found, system.lists, system.place, trouble)


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

    async def all_is_heard() -> bool:
        return not await system.sender.peek("gateway-confirmations")

    await system.until("the gateway has heard all", all_is_heard)


def topology() -> Topology:
    """The nodes, with a queue for each way, and those of the triggers."""
    names = [*(way.name for way in WAYS), ORDERS, ERRORS, DOUBTS, SHOP, TILL, TOLD]
    return ends_topology(
        {
            name: DeclaredQueue(
                name=name,
                identifier=100 + number,
                transactional=name not in PLAIN,
                quota_kb=FULL_KB if name == "queue-full" else None,
            )
            for number, name in enumerate(names)
        }
    )


@asynccontextmanager
async def _system(folder: Path) -> AsyncIterator[System]:
    async with AsyncExitStack() as held:
        nodes = await held.enter_async_context(supervised(topology(), folder))
        nursery = await held.enter_async_context(trio.open_nursery())
        held.callback(nursery.cancel_scope.cancel)
        # They are killed before the consumer goes: what was begun stays so.
        programs = await held.enter_async_context(programs_in(folder))
        consumer = Validator(script(CUES))
        port: int = await nursery.start(consumer.serve)
        listens = f"127.0.0.1:{reserved_address()[1]}"
        commands = _commands(nodes, f"http://127.0.0.1:{port}/", listens)
        await _start(programs, commands)
        url = f"http://{listens}"
        producer = httpx.AsyncClient(base_url=url, timeout=60, trust_env=False)
        sender, intermediate, destination = [
            await held.enter_async_context(connect(nodes.topology, name, folder))
            for name in (SENDER, INTERMEDIATE, DESTINATION)
        ]
        yield System(
            place=Place(nodes.topology, folder),
            sender=sender,
            intermediate=intermediate,
            destination=destination,
            producer=await held.enter_async_context(producer),
            history=await held.enter_async_context(open_history(places.history_url(folder))),
            programs=programs,
            consumer=consumer,
        )


async def _start(programs: Programs, commands: Mapping[str, list[str]]) -> None:
    async with trio.open_nursery() as nursery:
        for name, command in commands.items():
            nursery.start_soon(partial(programs.start, name, command))


def _commands(nodes: Supervisor, url: str, listens: str) -> dict[str, list[str]]:
    """By their names: the gateway and the triggers."""
    file = str(nodes.topology_file(SENDER))

    def trigger(queue: str, *options: str) -> list[str]:
        return [
            *("trigger", f"{DESTINATION}\\{queue}", "--topology", file, "--name", queue, "--url", url),
            *("--interval", SECONDS, "--factor", "1", "--attempts", "2", *options),
        ]

    copies = ("--error-queue", f"{DESTINATION}\\{ERRORS}", "--in-doubt-queue", f"{DESTINATION}\\{DOUBTS}")
    return {
        GATEWAY: ["gateway", SENDER, "--topology", file, "--listen", listens],
        ORDERS: trigger(ORDERS, *copies),
        SHOP: trigger(SHOP, "--no-history"),
        TILL: trigger(TILL, "--no-error-queue"),
    }
