"""Somebody who reads what a node says when it does not start, and does just that."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Protocol

from tests.simulator.hurt.ledger import Ledger

REMEDIES: Final = 4
"""How often one node's store is cared for before the operator gives up."""
GIVEN_UP: Final = "the operator gives up"
EMPTIED: Final = "the operator moves the store away, and the node begins anew"
UNDONE: Final = "the operator puts back what was there"
REMOVED: Final = "the operator removes the file that is another node's"


class Repaired(NamedTuple):
    """What a repair has printed, and whether it could be done."""

    lines: list[str]
    is_done: bool


class Nodes(Protocol):
    """What an operator needs of the nodes."""

    folder: Path
    errors: dict[str, str]
    """Why nodes are down that have ended by themselves."""
    elsewhere: dict[str, Path]
    """The folders of nodes that are started in another one than all others."""

    def path(self, name: str) -> Path:
        """The store of a node."""

    def is_up(self, name: str) -> bool:
        """Whether a node runs."""

    def spawn(self, *names: str) -> None:
        """Have nodes begin to start, all at once."""

    def open(self, name: str) -> str | None:
        """Wait until a node has started; why it does not, or None."""

    def stop(self, *names: str) -> None:
        """End nodes in order, all of them by default."""

    def repair(self, name: str) -> Repaired:
        """`mqproto store repair` on the store of a node."""

    def adopt(self, name: str, how: str) -> Repaired:
        """`mqproto store adopt --HOW` on the store of a node."""

    def produce(self, labels: list[str]) -> None:
        """An application at the sender sends messages."""

    def consume_all(self) -> None:
        """Applications take all that is to be had."""

    def calm(self) -> None:
        """Wait until nothing more comes."""


class Operator:
    """Follows the advice of the lines that are printed.

    Args:
        mislaid: a folder with files as they were before they were taken away or exchanged; None if nobody has them.
        copied: of which node there is a copy in another folder; empty for none.
        original_lives: whether that goes on.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        ledger: Ledger,
        dice: Random,
        mislaid: Path | None,
        copied: str = "",
        *,
        original_lives: bool = False,
    ) -> None:
        self._names = names
        self._ledger = ledger
        self._dice = dice
        self._mislaid = mislaid
        self._copied = copied
        self._original_lives = original_lives
        self._remedies = dict.fromkeys(names, 0)

    def starts(self, nodes: Nodes) -> None:
        """Start all nodes. Of a copy, if there is one, what goes on there is tried first."""
        if self._copied and self._original_lives:
            self._start(nodes, self._copied)
            if nodes.is_up(self._copied):
                nodes.calm()
                nodes.stop(self._copied)
            nodes.elsewhere.pop(self._copied)
        nodes.spawn(*self._names)
        for name in self._names:
            self._start(nodes, name)

    def looks(self, nodes: Nodes) -> None:
        """Start those again that have ended by themselves, as their last line says."""
        for name, line in list(nodes.errors.items()):
            if not nodes.is_up(name) and self._heeds(nodes, name, line):
                self._start(nodes, name)

    def _start(self, nodes: Nodes, name: str) -> None:
        while (line := nodes.open(name)) is not None:
            if not self._heeds(nodes, name, line):
                return

    def _heeds(self, nodes: Nodes, name: str, line: str) -> bool:
        """Do what a line says; whether the node can be tried again."""
        self._remedies[name] += 1
        if self._remedies[name] > REMEDIES:
            nodes.errors.pop(name, None)
            self._say(name, f"{GIVEN_UP}: {line}")
            return False
        if "store adopt" in line:
            return self._adopts(nodes, name)
        if "put back the one that belongs" in line and self._mislaid_of(name) and self._dice.random() < 0.5:
            return self._finds_again(nodes, name)
        if "store repair" in line:
            return self._repairs(nodes, name)
        if "or remove this file" in line and self._dice.random() < 0.5:
            return self._removes(nodes, name, Path(line.partition(": ")[0]))
        if "put it back" in line or "put back" in line or "name another" in line:
            return self._puts_back(nodes, name)
        if "start the node again" in line:
            return True
        self._say(name, f"{GIVEN_UP}: {line}")
        nodes.errors.pop(name, None)
        return False

    def _repairs(self, nodes: Nodes, name: str) -> bool:
        repaired = nodes.repair(name)
        for line in repaired.lines:
            self._say(name, line)
        return repaired.is_done or self._heeds(nodes, name, repaired.lines[-1])

    def _adopts(self, nodes: Nodes, name: str) -> bool:
        is_copied = name == self._copied and self._original_lives
        adopted = nodes.adopt(name, "copied" if is_copied else "moved")
        for line in adopted.lines:
            self._say(name, line)
        # With a GUID of its own the copy's node is another one, and none of ours.
        return not is_copied and (adopted.is_done or self._heeds(nodes, name, adopted.lines[-1]))

    def _removes(self, nodes: Nodes, name: str, path: Path) -> bool:
        away = nodes.folder / f"{name}-removed-{self._remedies[name]}"
        away.mkdir()
        path.rename(away / path.name)
        self._say(name, REMOVED)
        return True

    def _puts_back(self, nodes: Nodes, name: str) -> bool:
        """What was mislaid is found again, or the node begins with an empty store."""
        if self._mislaid_of(name) and self._dice.random() < 0.5:
            return self._finds_again(nodes, name)
        away = nodes.folder / f"{name}-away-{self._remedies[name]}"
        away.mkdir()
        store = nodes.path(name)
        for path in store.parent.iterdir():
            if path.is_file() and path.name.startswith(store.name):
                path.rename(away / path.name)
        self._say(name, EMPTIED)
        return True

    def _finds_again(self, nodes: Nodes, name: str) -> bool:
        """What was there before the hurt is put back."""
        for path in self._mislaid_of(name):
            path.rename(nodes.folder / path.name)
        self._say(name, UNDONE)
        return True

    def _mislaid_of(self, name: str) -> list[Path]:
        """The files of one node that somebody has kept."""
        if self._mislaid is None or not self._mislaid.exists():
            return []
        return [path for path in self._mislaid.iterdir() if path.name.startswith(f"{name}.")]

    def _say(self, name: str, what: str) -> None:
        self._ledger.write("said", name, what=what)
