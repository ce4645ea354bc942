"""What lies in the stores of a system, for those who look after its messages. Nodes may run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from simulator.storage.care import salvaged
from simulator.storage.care.export import Exported, exported
from simulator.storage.files import SYSTEM_FILES
from simulator.topology import places
from simulator.topology.places import Place


@dataclass
class Unknown:
    """What nobody could look into.

    not_whole: what of the stores cannot be read, a line each.
    not_here: the nodes whose stores are not in the folder.
    """

    not_whole: list[str] = field(default_factory=list)
    not_here: list[str] = field(default_factory=list)

    def told(self) -> Iterator[str]:
        """The same for people."""
        yield from (f"not whole: {line}" for line in self.not_whole)
        if self.not_here:
            verb = "is" if len(self.not_here) == 1 else "are"
            yield f"{', '.join(self.not_here)} {verb} not here: what lies there is not known"


def messages_in(place: Place, unknown: Unknown) -> Iterator[tuple[str, Exported]]:
    """All messages of all stores in the folder, each with the name of the node that has it, in the order of its queue.

    Each store is read as it is at one moment.

    Args:
        unknown: is told what cannot be read.

    Raises:
        StoreError: a store cannot be read at all.
    """
    for name in place.topology.nodes:
        path = places.store_path(place.directory, name)
        if not path.is_file():
            unknown.not_here.append(name)
            continue
        with closing(salvaged(SYSTEM_FILES, path)) as store:
            unknown.not_whole += store.findings
            for message in exported(store):
                yield name, message
