"""Nodes and links of a `mqproto run`, broken and mended by a click: the orders of `mqproto cut` and its kin.

They go to the socket at which the run takes them, whether it is this process or another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mqproto.simulator.rig.byhand import Deed, asked
from mqproto.simulator.topology import places
from mqproto.simulator.topology.places import Place

PATIENCE_S: Final = 30.0
"""How long a deed may take; a node that is restarted is stopped first."""
LOOK_PATIENCE_S: Final = 0.3


class Breaking:
    """Gives orders."""

    def __init__(self, place: Place) -> None:
        self._path: Path = places.run_socket(place.directory, place.topology.name)
        self._otherwise = f"no mqproto run has the nodes of {place.topology.name}"

    async def broken(self) -> dict[str, str] | None:
        """What was done to links, by their names.

        Raises:
            MqprotoError: no run has these nodes, so nothing can be broken, or it does not answer.
        """
        done = await asked(self._path, Deed.LOOK, [], self._otherwise, LOOK_PATIENCE_S)
        return None if done.broken is None else {name: str(deed) for name, deed in done.broken.items()}

    async def order(self, deed: Deed, nodes: list[str]) -> list[str]:
        """Have it done; a line for each thing that was.

        Raises:
            UsageError: there is no such node or link.
            MqprotoError: no run is there, it does not answer, or a node does not start.
        """
        done = await asked(self._path, deed, nodes, self._otherwise, PATIENCE_S)
        done.raise_failure()
        return [effect.text for effect in done.effects]
