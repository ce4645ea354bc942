"""A disk that keeps flushed data, and a random part of the rest.

POSIX promises no more. Until a file is flushed, each written sector may hold its earlier content, the latest, or any in
between. A name that was added or removed may be there or not, until its folder is flushed. A sector, of 512 bytes, is
old or new as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.simulator.filetrace import Created, Flushed, Removed, Renamed, Said, Step, Truncated, Written

SECTOR_BYTES: Final = 512
FILLERS: Final = (b"\0", b"\xa5")
"""The possible contents of a part that a file gained without a write: zeros, or what the disk had there before."""
NAME: Final = -1
"""A value that `Survives` gets in place of a sector if the change is one of the folder."""

Survives = Callable[[str, int, int], bool]
"""A function that says whether a change is on disk, given the file's name, the change's number, and the sector."""


@dataclass(slots=True)
class File:
    """A file: its content on disk, the content that a running system sees, and the changes that separate the two.

    pending: the changes since the last flush, with their numbers; a change is either sectors with their new content, or
        a new size.
    """

    durable: bytes = b""
    latest: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, dict[int, bytes] | int]] = field(default_factory=list)

    def write(self, number: int, offset: int, data: bytes) -> None:
        """Write bytes."""
        end = offset + len(data)
        if end > len(self.latest):
            self.latest.extend(bytes(end - len(self.latest)))
        self.latest[offset:end] = data
        touched = range(offset // SECTOR_BYTES, (end - 1) // SECTOR_BYTES + 1)
        self.pending.append((number, {sector: self._sector(sector) for sector in touched}))

    def truncate(self, number: int, size: int) -> None:
        """Change the size."""
        del self.latest[size:]
        self.latest.extend(bytes(size - len(self.latest)))
        self.pending.append((number, size))

    def flush(self) -> None:
        """Put the whole content on disk."""
        self.durable = bytes(self.latest)
        self.pending.clear()

    def after_loss(self, name: str, survives: Survives, filler: bytes) -> bytes:
        """Return the content that is on disk after a power loss.

        Args:
            filler: one of FILLERS.
        """
        data = bytearray(self.durable)
        for number, change in self.pending:
            if isinstance(change, int):
                if survives(name, number, 0):
                    del data[change:]
                    data.extend(filler * (change - len(data)))
                continue
            for sector, content in change.items():
                if survives(name, number, sector):
                    start = sector * SECTOR_BYTES
                    data.extend(filler * (start - len(data)))
                    data[start : start + len(content)] = content
        return bytes(data)

    def _sector(self, sector: int) -> bytes:
        return bytes(self.latest[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])


class LossyDisk:
    """A folder on a disk that may lose data; it has the given files from the start."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._now = {name: File(data, bytearray(data)) for name, data in (files or {}).items()}
        self._flushed = dict(self._now)
        self._changes: list[tuple[int, str, str, File | None]] = []
        """Changes since the folder was flushed: the file's old name, if it had one, its new name, and the file."""
        self._number = 0

    def apply(self, step: Step) -> None:
        """Apply an event to the folder."""
        self._number += 1
        match step:
            case Created(name):
                self._now[name] = File()
                self._changes.append((self._number, "", name, self._now[name]))
            case Removed(name):
                del self._now[name]
                self._changes.append((self._number, name, "", None))
            case Renamed(old, name):
                self._now[name] = self._now.pop(old)
                self._changes.append((self._number, old, name, self._now[name]))
            case Written(name, offset, data):
                self._now[name].write(self._number, offset, data)
            case Truncated(name, size):
                self._now[name].truncate(self._number, size)
            case Flushed(""):
                self._flushed = dict(self._now)
                self._changes.clear()
            case Flushed(name):
                self._now[name].flush()
            case Said():
                pass

    def after_loss(self, survives: Survives, filler: bytes = FILLERS[0]) -> dict[str, bytes]:
        """Return the content of the folder when the power is back."""
        names = dict(self._flushed)
        for number, old, name, file in self._changes:
            if survives(name or old, number, NAME):
                names.pop(old, None)
                if file is not None:
                    names[name] = file
        return {name: file.after_loss(name, survives, filler) for name, file in names.items()}

    def losses(self, dice: Random) -> Iterator[dict[str, bytes]]:
        """Yield different contents that the folder may have if the power fails now.

        These are the two extremes and up to three contents in between.
        """
        pending = [number for number, *_ in self._changes]
        pending += [number for file in self._now.values() for number, _ in file.pending]
        seen = []
        for survives in _choices(dice, sorted(pending)):
            image = self.after_loss(survives, dice.choice(FILLERS))
            if image not in seen:
                seen.append(image)
                yield image


def _choices(dice: Random, pending: list[int]) -> Iterator[Survives]:
    yield lambda name, number, sector: False
    yield lambda name, number, sector: True
    if not pending:
        return

    # In order up to some change, which is torn.
    last = dice.choice(pending)
    yield lambda name, number, sector: number < last or (number == last and dice.random() < 0.5)

    # Each sector and each name by itself.
    share = dice.choice([0.1, 0.5, 0.9])
    yield lambda name, number, sector: dice.random() < share

    # One file's all and another's nothing.
    kept: dict[str, bool] = {}
    yield lambda name, number, sector: kept.setdefault(name, dice.random() < 0.5)
