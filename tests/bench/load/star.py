"""Many small queue managers in this process, each with a session to one node in a separate process.

They are nodes like any other, with a store each. Their cost is not measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.client import Client, MessageId, connect
from mqproto.simulator.rig.proof import Committed, Sent
from mqproto.simulator.rig.supervisor import Supervisor, stopped_at_the_end
from mqproto.wire import Guid
from tests.bench.figures import BenchError
from tests.bench.load.row import QUEUE, WINDOW, comes_true, has_nothing, linked, patience_s
from tests.bench.load.traffic import UNALTERED, alike, check_delivery, share_of, taken
from tests.memory import memory_folder
from tests.simulator.running import running

NODE: Final = "node"
SLICE: Final = 100
"""The number of messages that a peer's application sends at a time."""


class Star:
    """A node in a separate process, and peers in this one; `star_of` makes it."""

    def __init__(self, supervisor: Supervisor, client: Client, peers: Mapping[Guid, Client]) -> None:
        self._supervisor = supervisor
        self._client = client
        self._peers = peers

    async def flood(self, count: int, body: bytes) -> float | None:
        """Make each peer send its share of the messages.

        Return the node's processor time per message, in microseconds; None if it is unknown.

        Raises:
            BenchError: a message was lost or altered, or arrived twice or out of its peer's order, or it took too long.
        """
        node, bodies = self._supervisor.running[NODE], alike(body)
        sent: dict[Guid, list[Sent]] = {guid: [] for guid in self._peers}
        received: dict[Guid, list[Committed]] = {guid: [] for guid in self._peers}

        async def send(guid: Guid, share: int) -> None:
            while left := share - len(sent[guid]):
                drafts = [next(bodies.drafts)] * min(SLICE, left)
                identifiers = await self._peers[guid].send_many(f"{NODE}\\{QUEUE}", drafts)
                sent[guid] += [Sent(each, UNALTERED, 0.0) for each in identifiers]

        before_s = node.cpu_s()
        with trio.move_on_after(patience_s(count)):
            async with trio.open_nursery() as nursery:
                for place, guid in enumerate(self._peers):
                    nursery.start_soon(send, guid, share_of(count, len(self._peers), place))
                while sum(map(len, received.values())) < count:
                    for each in await taken(self._client, QUEUE, bodies, timeout_s=1):
                        assert isinstance(each.message_id, MessageId)
                        received[each.message_id.manager].append(each)
        settled = await comes_true(self._is_settled, patience_s(count))
        after_s = node.cpu_s()
        for guid in self._peers:
            check_delivery(sent[guid], received[guid])
        if sum(map(len, sent.values())) != count or not settled:
            raise BenchError(f"{count:,} messages were not all sent and acknowledged in time")
        return None if before_s is None or after_s is None else 1e6 * (after_s - before_s) / count

    async def _is_settled(self) -> bool:
        return all([await has_nothing(client) for client in self._peers.values()])


@asynccontextmanager
async def star_of(peers: int) -> AsyncIterator[Star]:
    """Run a node and its peers for the block. The peers' stores are in memory if that is possible.

    Raises:
        NodeError: the node does not start.
    """
    names = [f"peer-{number}" for number in range(peers)]
    topology = linked([NODE, *names], [(name, NODE) for name in names], WINDOW, {NODE: [QUEUE]})
    async with AsyncExitStack() as stack:
        stack.enter_context(seldom_collected())
        beside = Path(stack.enter_context(memory_folder()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mqproto-bench-")))
        supervisor = await stack.enter_async_context(stopped_at_the_end(Supervisor(topology, folder)))
        await supervisor.start(NODE)
        client = await stack.enter_async_context(connect(topology, NODE, folder))
        clients: dict[Guid, Client] = {}

        async def be_a_peer(name: str, *, task_status: trio.TaskStatus[None]) -> None:
            async with running(topology, name, beside), connect(topology, name, beside) as peer:
                clients[topology.nodes[name].guid] = peer
                task_status.started()
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as starting:
                for name in names:
                    starting.start_soon(nursery.start, be_a_peer, name)
            yield Star(supervisor, client, clients)
            nursery.cancel_scope.cancel()
