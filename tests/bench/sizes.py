"""`bench sizes`: the memory and disk space that a node takes, and how much more it takes for each queue, session,
connection and message.
"""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from mqproto.messages.drafts import Draft
from mqproto.simulator.base.processes import memory_of
from mqproto.simulator.client import connect
from mqproto.simulator.topology import parse
from mqproto.simulator.topology.views import as_toml
from tests.bench.figures import Figure, Options, Result, Told
from tests.simulator.running import running_with_client, until_sent
from tests.simulator.typed import node

QUEUES, SESSIONS, CONNECTIONS, MESSAGES = 1_000, 40, 200, 100_000
QUICK: Final = 50
"""The number by which a quick measurement divides the sizes."""
HUB: Final = "[node.hub]\n[node.hub.queue.orders]\ntransactional = true\n"
BODY_BYTES: Final = 1_000


async def measure(options: Options, told: Told) -> Result:
    """Add one kind of thing after another to a node in a separate process.

    Messages come last, because they fill the node's windows.
    """
    part = QUICK if options.quick else 1
    names = [f"neighbour{number}" for number in range(SESSIONS // part + 1)]
    links = (f'[node.{name}]\n[[link]]\nbetween = ["hub", "{name}"]\n' for name in names)
    topology = parse(HUB + "".join(links), "sizes.toml").with_free_ports()
    figures = list[Figure]()
    async with AsyncExitStack() as stack:
        place, others = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        file = others / "sizes.toml"
        file.write_text(as_toml(topology), "utf-8")
        pid = stack.enter_context(node(file, place, "hub")).pid
        before = (0, 0)

        def takes(count: int, kind: str) -> None:
            nonlocal before
            after = (
                memory_of(pid).resident_bytes or 0,
                sum(512 * each.stat().st_blocks for each in place.iterdir()),
            )
            told(f"sizes: {count:,} {kind}")
            for what, old, new in zip(("memory", "disk"), before, after, strict=True):
                figures.append(
                    Figure(f"{kind}, {count:,}: {what}", "kB each", ((new - old) / count / 1_000,))
                )
            before = after

        takes(1, "node")
        client = await stack.enter_async_context(connect(topology, "hub", place))
        for number in range(QUEUES // part):
            await client.make(f"queue{number}", transactional=True)
        takes(QUEUES // part, "queues")
        for name in names:
            sender = await stack.enter_async_context(running_with_client(topology, name, others))
            await sender.send(r"hub\private$\orders", b"order", transactional=True)
            await until_sent(sender)
        takes(len(names), "sessions")
        for _ in range(CONNECTIONS // part):
            await stack.enter_async_context(connect(topology, "hub", place))
        takes(CONNECTIONS // part, "connections")
        drafts = [Draft(body=bytes(BODY_BYTES), transactional=True)] * (MESSAGES // part)
        await client.send_many("orders", drafts)
        takes(MESSAGES // part, "messages")
    return Result(f"one node, with messages of {BODY_BYTES:,} bytes", figures)
