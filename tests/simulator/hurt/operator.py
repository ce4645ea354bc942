"""An operator who reads the message of a node that does not start, and follows its advice exactly."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Protocol

from tests.simulator.hurt.ledger import Ledger

REMEDIES: Final = 4
"""The number of times that one node's store is repaired before the operator gives up."""
GIVEN_UP: Final = "the operator gives up"
EMPTIED: Final = "the operator moves the store away, and the node begins anew"
UNDONE: Final = "the operator puts back what was there"
REMOVED: Final = "the operator removes the file that is another node's"


class Repaired(NamedTuple):
    """The output of a repair, and whether it succeeded."""

    lines: list[str]
    is_done: bool


class Nodes(Protocol):
    """The operations on nodes that an operator needs."""

    folder: Path
    errors: dict[str, str]
    """The reason why a node is down, for each node that has ended by itself."""
    elsewhere: dict[str, Path]
    """The folders of nodes that are started in a different folder from the others."""

    def path(self, name: str) -> Path:
        """Return the path of a node's store."""

    def is_up(self, name: str) -> bool:
        """Whether a node runs."""

    def spawn(self, *names: str) -> None:
        """Launch nodes, all at once, without waiting until they have started."""

    def open(self, name: str) -> str | None:
        """Wait until a node has started; return the reason why it does not start, or None if it does."""

    def stop(self, *names: str) -> None:
        """Stop nodes in an orderly way; by default, all of them."""

    def repair(self, name: str) -> Repaired:
        """Run `mqproto store repair` on a node's store."""

    def adopt(self, name: str, how: str) -> Repaired:
        """Run `mqproto store adopt --HOW` on a node's store."""

    def produce(self, labels: list[str]) -> None:
        """Let an application at the sender send messages."""

    def consume_all(self) -> None:
        """Let applications take all available messages."""

    def calm(self) -> None:
        """Wait until nothing more arrives."""


class Operator:
    """Follows the advice of the printed lines.

    Args:
        mislaid: a folder with the files as they were before they were removed or exchanged; None if nobody has them.
        copied: the node whose store has a copy in another folder; empty if there is none.
        original_lives: whether the original is the one that continues, not the copy.
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
        """Start all nodes. If there is a copy and the original continues, the copy is tried first."""
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
        """Restart nodes that have ended by themselves, as their last line advises."""
        for name, line in list(nodes.errors.items()):
            if not nodes.is_up(name) and self._heeds(nodes, name, line):
                self._start(nodes, name)

    def _start(self, nodes: Nodes, name: str) -> None:
        while (line := nodes.open(name)) is not None:
            if not self._heeds(nodes, name, line):
                return

    def _heeds(self, nodes: Nodes, name: str, line: str) -> bool:
        """Follow a line's advice; return whether the node can be tried again."""
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
        """Restore mislaid files if they are found, or let the node begin with an empty store."""
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
        """Restore the files from before the damage."""
        for path in self._mislaid_of(name):
            path.rename(nodes.folder / path.name)
        self._say(name, UNDONE)
        return True

    def _mislaid_of(self, name: str) -> list[Path]:
        """Return those files of one node that were kept."""
        if self._mislaid is None or not self._mislaid.exists():
            return []
        return [path for path in self._mislaid.iterdir() if path.name.startswith(f"{name}.")]

    def _say(self, name: str, what: str) -> None:
        self._ledger.write("said", name, what=what)
