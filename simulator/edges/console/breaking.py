"""Nodes and links of a `mqproto run`, broken and mended by a click: the orders of `mqproto cut` and its kin.

They go to the socket at which the run takes them, whether it is this process or another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import trio

from mqproto.base.errors import MqprotoError, UsageError
from simulator.faults.byhand import Deed, Done, Order
from simulator.topology import places
from simulator.topology.places import Place

PATIENCE_S: Final = 30.0
"""How long a deed may take; a node that is restarted is stopped first."""
LOOK_PATIENCE_S: Final = 0.3


class Breaking:
    """Gives orders."""

    def __init__(self, place: Place) -> None:
        self._path: Path = places.run_socket(place.directory, place.topology.name)
        self._name = place.topology.name

    async def broken(self) -> dict[str, str] | None:
        """What was done to links, by their names.

        Raises:
            MqprotoError: no run has these nodes, so nothing can be broken.
        """
        done = await self._asked(Order(Deed.LOOK, []), LOOK_PATIENCE_S)
        return None if done.broken is None else {name: str(deed) for name, deed in done.broken.items()}

    async def order(self, deed: Deed, nodes: list[str]) -> list[str]:
        """Have it done; a line for each thing that was.

        Raises:
            UsageError: there is no such node or link.
            MqprotoError: no run is there, or a node does not start.
        """
        done = await self._asked(Order(deed, nodes), PATIENCE_S)
        if done.failure:
            raise (UsageError if done.is_misuse else MqprotoError)(done.failure)
        return [effect.text for effect in done.effects]

    async def _asked(self, order: Order, patience_s: float) -> Done:
        answer = b""
        with trio.move_on_after(patience_s):
            try:
                async with await trio.open_unix_socket(str(self._path)) as stream:
                    await stream.send_all(msgspec.json.encode(order))
                    await stream.send_eof()
                    async for part in stream:
                        answer += part
            except (OSError, trio.BrokenResourceError):
                answer = b""
        if not answer:
            raise MqprotoError(f"no mqproto run has the nodes of {self._name}, or it does not answer")
        return msgspec.json.decode(answer, type=Done)
