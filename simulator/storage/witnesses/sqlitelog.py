"""Checks whether SQLite's log (`a.sqlite-wal`) belongs to a store's tables, before SQLite reads it.

SQLite accepts any undamaged log next to the tables. A log of another store, or from an earlier moment, would mix its
pages with those of the tables. The log's header shows whether it belongs to them. The header has two salts
(https://sqlite.org/walformat.html): the first grows by one each time the log is restarted, and the second is drawn at
random each time. SQLite removes its log when a store is closed, and would choose both salts of the next log at random.
So we write the header of the next log, and SQLite keeps it. In this way, the first salt grows for as long as the store
exists. The witness has the salts that were last seen.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from struct import Struct
from typing import Final, Literal, NamedTuple, Self

from mqproto.simulator.base.storeerrors import repair_advice
from mqproto.simulator.storage.segments import DamagedFileError

HEADER: Final = Struct(">IIIIII")
"""The form of the header: magic, version, page size, number of restarts of the log, and the two salts. Two words of a
checksum follow.
"""
HEADER_BYTES: Final = HEADER.size + 8
MAGIC: Final = 0x377F0682
"""The magic number of a log.

Its lowest bit is set in a log whose checksums are computed over big-endian words.
"""
VERSION: Final = 3_007_000
WORD: Final = 2**32
FURTHEST: Final = 2**16
"""A log is refused if it was restarted this many times or more since the witness on disk was written.

The log is restarted whenever it reaches about 4 MiB.
"""


class Salts(NamedTuple):
    """The salts of SQLite's log, which identify it until it is restarted.

    number: a random number plus how many times the log has been restarted, modulo 2^32.
    drawn: a random number.
    """

    number: int
    drawn: int

    @classmethod
    def some(cls, dice: random.Random) -> Self:
        """Return salts for a log that does not exist yet."""
        return cls(dice.randrange(WORD), dice.randrange(WORD))

    def next(self, dice: random.Random) -> Salts:
        """Return the salts of the next log."""
        return Salts((self.number + 1) % WORD, dice.randrange(WORD))

    def follow(self, known: Salts) -> bool:
        """Return whether a log with these salts can be the last known log, or a later one."""
        later = (self.number - known.number) % WORD
        return later < FURTHEST and (later > 0 or self == known)


def header_of(salts: Salts, page_bytes: int) -> bytes:
    """Return the beginning of a log that has these salts."""
    # SQLite would draw other salts for a log that has never begun anew.
    data = HEADER.pack(MAGIC | (sys.byteorder == "big"), VERSION, page_bytes, 1, *salts)
    return data + _checksum(data)


def found_salts(header: bytes) -> Salts | None:
    """Return the salts in a log's header; None if SQLite never wrote to the log, or if the bytes are not a header."""
    data = header[: HEADER.size]
    if len(header) < HEADER_BYTES or _checksum(data) != header[HEADER.size :] or not any(header):
        return None
    return Salts(*HEADER.unpack(data)[-2:])


def trouble_with(header: bytes, known: Salts | None) -> str:
    """Return why SQLite's log does not belong to the tables.

    The result is empty if the log belongs to them, or if there is no log.

    Args:
        header: the log's first bytes; empty if there is no log.
        known: the salts that were last seen; None if they are not known.
    """
    salts = found_salts(header)
    if salts is None:
        return "its header does not fit its checksum" if any(header) else ""
    if known is not None and not salts.follow(known):
        return "it is of another store, or of an earlier moment"
    return ""


def see_that_it_belongs(store: Path, header: bytes, known: Salts | None) -> None:
    """Check that SQLite's log belongs to the tables.

    Raises:
        DamagedFileError: it does not belong to the tables.
    """
    if trouble := trouble_with(header, known):
        raise DamagedFileError(
            f"{log_path(store)}: {trouble}: put back the one that belongs to {store.name}, or {repair_advice(store)}"
        )


def log_path(store: Path) -> Path:
    """Return the path of SQLite's log."""
    return store.with_name(f"{store.name}-wal")


def _checksum(data: bytes) -> bytes:
    """Return SQLite's checksum of these bytes. The words are big-endian if the magic number is odd."""
    order: Literal["big", "little"] = "big" if data[3] & 1 else "little"
    words = [int.from_bytes(data[at : at + 4], order) for at in range(0, len(data), 4)]
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) % WORD
        second = (second + other + first) % WORD
    return first.to_bytes(4, "big") + second.to_bytes(4, "big")
