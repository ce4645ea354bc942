"""Decides whether a store is the one that was last seen here.

Its life continues, or a new life begins, or the store is refused.

    file of the life   store                                    conclusion
    none               none                                     a first life
    there              none                                     moved away or lost: a new life
    there, at home     same life, no earlier record, same file  the same life continues
    there, at home     earlier life or record, or another file  restored: a new life
    there, elsewhere   there                                    a copy: refused until it is adopted
    none               says that it lives here                  possibly restored: a new life
    none               says that it lives elsewhere             a copy: refused until it is adopted
    damaged            says that it lives here                  possibly restored: a new life

A store whose folder was renamed is at home: machine and file are the same, and the old path no longer exists.

Before a life begins, the file records, on disk, that it is about to begin. The life begins with the queue manager's
first transaction, which contains the number of the life. The file is updated after the log. So after a kill at any
moment, either the life has not begun, or the same store is one life ahead of the file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mqproto.simulator.base.storeerrors import DiskFullError, LifeFullError, StoreError
from mqproto.simulator.storage.files import DRAFT, NO_FILE, Files
from mqproto.simulator.storage.segments import DamagedFileError, explained_file
from mqproto.simulator.storage.witnesses.life import (
    NOWHERE,
    Cause,
    Home,
    LifeFile,
    LifeNote,
    home_of,
    life_path,
)
from mqproto.turn.effects import LIFE, NewLife
from mqproto.wire.guid import Guid

CIRCLE: Final = 2**32
"""The number of possible MessageIDs. They wrap around after the last one."""
APART: Final = 2**30
"""The minimum distance, in either direction, between the last known MessageID and the first new one."""
FREE: Final = 2**30
"""How many consecutive MessageIDs, from the first new one on, no waiting message should have.

If no run of this length is free, a shorter one is used.
"""


class Identity:
    """The facts about a store's life. The caller holds the store's lock.

    Args:
        is_adopted: whether an operator has said that the store was moved here.
        again: the options with which a suggested command finds the node.

    Attributes:
        notices: facts about the store's life for an operator, one line each.
        new: the life that is about to begin; None if the last life continues.

    Raises:
        StoreError: the store was copied or moved here, and an operator has not said which; or the disk fails.
    """

    def __init__(self, files: Files, store: Path, node: Guid, *, is_adopted: bool, again: str = "") -> None:
        self.notices: list[str] = []
        self.new: NewLife | None = None
        self._files = files
        self._store = store
        self._node = node
        self._is_adopted = is_adopted
        self._again = again
        self._file: LifeFile | None = None
        self._is_damaged = False
        path = life_path(store)
        draft = path.with_name(f"{path.name}{DRAFT}")
        with explained_file(store.parent):
            there = files.names(store.parent)
            if draft.name in there:
                files.remove(draft)
        if path.name in there:
            try:
                self._file = LifeFile.open(files, store, node)
            except DamagedFileError:
                self._is_damaged = True
        if self._file is not None and home_of(files, store).inode:
            self._see_that_it_is_no_copy(self._file.known)

    def close(self) -> None:
        """Close the file and leave it where it is. It may be closed already."""
        if self._file is not None:
            self._file.close()

    # At the start

    def compare(self, stored: LifeNote, waiting: Callable[[], Iterable[int]], dice: random.Random) -> Home:
        """Decide in which life the store is, once the log's contents are in the tables.

        Args:
            stored: the store's own record of its life.
            waiting: returns the MessageIDs of our own messages that wait in the store.
            dice: chooses the first MessageID of a new life.

        Returns:
            The home that the store has from now on.

        Raises:
            StoreError: the store was copied or moved here, and an operator has not said which; or the disk fails.
        """
        if self._file is None:
            self._see_that_it_is_no_copy(stored)
        here = home_of(self._files, self._store)
        file = self._file.known if self._file is not None else None
        cause = self._cause(stored, file, here)
        if cause is Cause.NONE:
            assert file is not None
            if file.home != here or file.cause or file.life < stored.life:
                self._write(stored._replace(home=here))
            return here
        if file is None or file.cause is not cause or file.home != here:
            file = self._about_to_begin(stored, file, here, cause)
            self._write(file)
        last = None if cause is Cause.FIRST and not stored.record else file.message_id
        self.new = NewLife(
            file.life + 1,
            first_message_id(last, waiting() if stored.record else (), dice),
            file.sequence_ordinal,
            is_restored=bool(stored.record) and cause is not Cause.FIRST,
        )
        self.notices += self._said_of(cause, stored, file)
        return here

    def _cause(self, stored: LifeNote, file: LifeNote | None, here: Home) -> Cause:
        """Return why a new life begins; NONE if the last one continues."""
        if self._is_adopted:
            return Cause.ADOPTED
        if file is None:
            if self._is_damaged:
                return Cause.DAMAGED_FILE
            return Cause.WITHOUT_FILE if stored.life else Cause.FIRST
        if stored.life > file.life:
            # The life has begun, and the file was not told.
            return Cause.NONE if stored.home.inode == here.inode else Cause.RESTORED
        if not file.life:
            return Cause.FIRST
        if not stored.record:
            return Cause.GONE
        if file.cause not in (Cause.NONE, Cause.GONE):
            return file.cause
        is_earlier = (stored.life, stored.record) < (file.life, file.record)
        if file.cause or is_earlier or here.inode != file.home.inode:
            return Cause.RESTORED
        return Cause.NONE

    def _about_to_begin(self, stored: LifeNote, file: LifeNote | None, here: Home, cause: Cause) -> LifeNote:
        """Return the contents that the file has until the new life has begun."""
        if file is None:
            return stored._replace(home=here, cause=cause)
        seen_s = file.seen_s
        if not file.cause:
            with explained_file(life_path(self._store)):
                seen_s = self._files.changed_s(life_path(self._store))
        return LifeNote(
            max(stored.life, file.life),
            file.record,
            file.message_id or stored.message_id,
            max(stored.sequence_ordinal, file.sequence_ordinal),
            here,
            cause,
            seen_s,
        )

    def _write(self, known: LifeNote) -> None:
        """Replace the file with a new one.

        If a life continues, and the disk has no room for another file, the existing one is changed in place.

        Raises:
            LifeFullError: a life is about to begin, and the disk has no room to record it.
        """
        before = self._file
        try:
            self._file = LifeFile.create(self._files, self._store, self._node, known)
        except DiskFullError as error:
            if before is None or known.cause:
                raise LifeFullError(life_path(self._store)) from error
            before.goes_on(known)
        else:
            if before is not None:
                before.close()

    def _see_that_it_is_no_copy(self, known: LifeNote) -> None:
        """Check that the store is still in its home, or that an operator has said whether it was copied or moved.

        Raises:
            StoreError: neither is the case.
        """
        if not known.life or known.home == NOWHERE or self._is_adopted:
            return
        home, here = known.home, home_of(self._files, self._store)
        is_here = home.machine == here.machine
        if is_here and home.path != here.path:
            with explained_file(Path(home.path)):
                there = self._files.identity(Path(home.path))
                ours = self._files.identity(self._store)
            is_here = home.inode == here.inode and there in (NO_FILE, ours)
        if not is_here:
            machine = "" if home.machine == here.machine else " of another machine"
            adopt = f"`mqproto store adopt {self._store.stem}{self._again}"
            raise StoreError(
                f"{self._store}: it was copied or moved here from {home.path}{machine}: {adopt} --moved` if nothing"
                f" goes on there, {adopt} --copied` if that store goes on"
            )

    def _said_of(self, cause: Cause, stored: LifeNote, last: LifeNote) -> list[str]:
        name, begins = self._store.name, f"life {last.life + 1} begins"
        until = ""
        if last.seen_s:
            until = f", of {datetime.fromtimestamp(last.seen_s, UTC).isoformat(' ')[:19]} UTC"
        before = f"record {last.record} of life {last.life}{until}"
        match cause:
            case Cause.FIRST if stored.record and stored.home == NOWHERE:
                return [
                    f"{begins}: from now on {life_path(self._store).name} tells whether {name} was put back"
                ]
            case Cause.GONE:
                return [
                    f"{begins}: {name}, up to {before}, was moved away or lost with all that waited in it"
                ]
            case Cause.RESTORED if stored.record < last.record or stored.life < last.life:
                came = f"{name} was put back as it was at record {stored.record} of life {stored.life}"
                return [f"{begins}: {came}; what came after that, up to {before}, is gone"]
            case Cause.RESTORED:
                return [
                    f"{begins}: {name} is another file than the one of {before}: it was put back, or repaired"
                ]
            case Cause.WITHOUT_FILE | Cause.DAMAGED_FILE:
                what = "missing" if cause is Cause.WITHOUT_FILE else "damaged"
                return [
                    f"{begins}: {life_path(self._store).name} is {what}, so nothing tells whether {name}, at record"
                    f" {stored.record}, was put back as it was earlier"
                ]
            case Cause.ADOPTED:
                return [f"{begins}: {name}, at record {stored.record}, was adopted here"]
        return []

    # While it runs

    def committed(self, record: int, counters: dict[str, int]) -> None:
        """Record that the transaction with this record number and these counters is on disk.

        Raises:
            StoreError: the disk fails.
        """
        file = self._file
        assert file is not None, "the store has a file of its life from its start on"
        if self.new is None:
            file.committed(record, counters)
        elif LIFE in counters:
            self.new = None
            file.begins(file.known._replace(cause=Cause.NONE, seen_s=0), record, counters)

    def flush(self) -> None:
        """Flush the file's contents to disk, unless the disk is full.

        Raises:
            StoreError: the contents may not be on disk.
        """
        if self._file is not None:
            self._file.flush()


def first_message_id(last: int | None, waiting: Iterable[int], dice: random.Random) -> int:
    """Return the first MessageID of a life.  [MS-MQQB] 3.1.1.3, [MS-MQMQ] 2.2.18.1.3

    It is at least APART away from the last known one, in both directions. It begins a run of FREE numbers that no
    waiting message has. If no such run exists, a shorter run is used.

    Args:
        last: the last MessageID; None if there was none.
        waiting: the MessageIDs of waiting messages.
    """
    if last is None:
        return dice.randrange(1, CIRCLE)
    distances = sorted({(message_id - last) % CIRCLE for message_id in waiting})
    free = FREE
    while not (ranges := _free_ranges(distances, free)):
        free //= 2
    place = dice.randrange(sum(map(len, ranges)))
    for each in ranges:
        if place < len(each):
            return (last + each[place]) % CIRCLE or 1
        place -= len(each)
    raise AssertionError("the place lies within the ranges")


def _free_ranges(distances: list[int], free: int) -> list[range]:
    """Return the numbers at which a run of `free` unused MessageIDs can begin.

    They are ranges of distances from the last MessageID.
    """
    ranges, begin, end = list[range](), APART, CIRCLE - APART + 1
    for distance in distances:
        ranges.append(range(begin, min(end, distance - free + 1)))
        begin = max(begin, distance + 1)
    ranges.append(range(begin, end))
    return [each for each in ranges if each]
