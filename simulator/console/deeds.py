"""Carries out the page's requests.

They are the operations of `mqproto pause`, `purge`, `failed retry`, `cut` and others.

{"deed": "pause", "node": "sender", "queue": "PRIVATE=..."}        resume, purge, return
{"deed": "retry", "messages": ["GUID\\17", ...]}
{"deed": "cut", "nodes": ["sender", "intermediate"]}               stall, slow, mend, kill, restart
{"deed": "traffic", "nodes": ["sender", "destination"], "rate": 20}    "rate": 0 ends it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.base.foreign import shown
from mqproto.base.words import counted
from mqproto.simulator.client import oversee
from mqproto.simulator.console.traffic import ConsoleTraffic
from mqproto.simulator.edges.gateway.tokens import Opened
from mqproto.simulator.edges.operators import desk
from mqproto.simulator.edges.operators.failures import FailureFilter
from mqproto.simulator.edges.operators.reading import failed_in
from mqproto.simulator.rig.byhand import Deed, asked
from mqproto.simulator.topology.places import Place

MESSAGES_LIMIT: Final = 500
PATIENCE_S: Final = 30.0
"""The number of seconds that a run may take to break or mend something.

This includes the time to stop a node that is being restarted.
"""


class Wish(msgspec.Struct, forbid_unknown_fields=True):
    """The requested operation.

    node: the name of a node.
    queue: the name that this node has for one of its local or outgoing queues.
    """

    deed: Literal[
        "pause",
        "resume",
        "purge",
        "return",
        "retry",
        "traffic",
        "cut",
        "stall",
        "slow",
        "mend",
        "kill",
        "restart",
    ]
    node: str = ""
    queue: str = ""
    nodes: list[str] = []
    messages: list[str] = []
    rate: int = 0


class Said(msgspec.Struct):
    """The results of an operation, each on one line."""

    lines: list[str]


class Deeds:
    """Carries out the page's requests.

    Args:
        place: returns the nodes' topology and folder, with the queues that the nodes have now.
        hurry: called after each request, so that pages show its effect at once.
    """

    def __init__(
        self,
        place: Callable[[], Place],
        traffic: ConsoleTraffic,
        hurry: Callable[[], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._place = place
        self._traffic = traffic
        self._hurry = hurry
        self._log = log
        self._operations: dict[str, Callable[[Wish], Awaitable[list[str]]]] = {
            "pause": self._hold,
            "resume": self._hold,
            "purge": self._purge,
            "return": self._send_back,
            "retry": self._retry,
            "traffic": self._send,
        }

    async def carry_out(self, order: bytes, opened: Opened) -> Said:
        """Carry out one request; return the results.

        Raises:
            UsageError, FormatNameError: the request is not valid.
            MqprotoError: it cannot be carried out at the moment.
        """
        try:
            wish = msgspec.json.decode(order, type=Wish)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"that is not an order: {error}") from None
        try:
            if (operation := self._operations.get(wish.deed)) is not None:
                lines = await operation(wish)
            else:
                done = await asked(self._place(), Deed(wish.deed), wish.nodes, PATIENCE_S)
                done.raise_failure()
                lines = [effect.text for effect in done.effects]
        finally:
            self._hurry()
        self._log.info(
            "operated",
            operation=wish.deed,
            holder=opened.holder,
            at=shown(wish.node or ", ".join(wish.nodes)),
            queue=shown(wish.queue),
            messages=len(wish.messages),
        )
        return Said(lines)

    async def _hold(self, wish: Wish) -> list[str]:
        node = await oversee.hold(
            self._place(), _named(wish.node), _named(wish.queue), on_hold=wish.deed == "pause"
        )
        return [f"{node} sends nothing more there" if wish.deed == "pause" else f"{node} sends there again"]

    async def _purge(self, wish: Wish) -> list[str]:
        _, count = await oversee.purge(self._place(), _named(wish.node), _named(wish.queue))
        return [f"{counted(count, 'message')} deleted"]

    async def _send_back(self, wish: Wish) -> list[str]:
        sent, left = await desk.send_back(
            self._place(), _named(wish.node), _named(wish.queue), wish.messages[:MESSAGES_LIMIT]
        )
        return [f"{counted(sent, 'message')} sent once more" + (f", {left:,} stay" if left else "")]

    async def _retry(self, wish: Wish) -> list[str]:
        if not 0 < len(wish.messages) <= MESSAGES_LIMIT:
            raise UsageError(f"name up to {MESSAGES_LIMIT} messages")
        chosen = FailureFilter(names=wish.messages)
        failures, _ = await trio.to_thread.run_sync(failed_in, self._place(), chosen)
        if not failures:
            raise UsageError("none of these has failed, or it was seen to meanwhile")
        count = await desk.retry(self._place(), "", failures)
        return [f"{counted(count, 'message')} sent once more"]

    async def _send(self, wish: Wish) -> list[str]:
        if not wish.rate:
            self._traffic.stop()
            return ["nothing more is sent; what was sent is received"]
        if len(wish.nodes) != 2:
            raise UsageError("name two nodes")
        self._traffic.start((wish.nodes[0], wish.nodes[1]), wish.rate)
        return [f"{wish.rate} messages a second from {wish.nodes[0]} to {wish.nodes[1]}"]


def _named(text: str) -> str:
    if not text:
        raise UsageError("name a node and a queue")
    return text
