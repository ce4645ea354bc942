"""Makes a readable copy of tables that SQLite cannot open because their first page is damaged or their end is missing.

All rows of such a file may be undamaged. Before SQLite reads any of them, it examines the first hundred bytes of the
file, and the number of pages given there. In the copy, these bytes match the file, and missing pages are empty. The
copy does not have a list of free pages, so it is only for reading. If SQLite still does not open it, the pages that
name the tables are damaged. These pages are replaced, because they are the same in every store.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from struct import pack_into, unpack_from
from typing import Final

from mqproto.simulator.storage.files import PAGE_BYTES
from mqproto.simulator.storage.tables import APPLICATION_ID, LAYOUT, SCHEMA

MAGIC: Final = b"SQLite format 3\0"
HEADER_BYTES: Final = 100
INTERIOR: Final = 5
"""The type of a page that has other pages of its table below it."""
PAGES_LIMIT: Final = 2**23
"""The number of pages in 64 GiB, which is more than any store has."""
PAGE_SIZE, VERSIONS, FRACTIONS, PAGES, COOKIE, FORMAT = 16, 18, 21, 28, 40, 44
ENCODING, USER_VERSION, APPLICATION = 56, 60, 68
"""The offsets of three fields of the header."""


def mended(path: Path, undo: ExitStack, *, with_log: bool) -> sqlite3.Connection | None:
    """Return a connection to a copy of the tables that SQLite can open; the copy exists until `undo` ends. Return None
    if no such copy is possible, or if there is no room for one.

    Args:
        with_log: whether SQLite's log belongs to the tables.
    """
    try:
        folder = Path(
            undo.enter_context(tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent))
        )
        copy = folder / path.name
        shutil.copyfile(path, copy)
        log = path.with_name(f"{path.name}-wal")
        if with_log and log.exists():
            shutil.copyfile(log, folder / log.name)
        with copy.open("r+b") as file:
            size_bytes = file.seek(0, 2)
            file.seek(0)
            found = file.read(HEADER_BYTES)
            fewest, naming = _new_store(folder / "new")
            page_count = max(-(-size_bytes // PAGE_BYTES), _promised(found), fewest)
            # Missing pages become empty ones, which take no room on the disk.
            file.truncate(page_count * PAGE_BYTES)
            for pages in ({}, naming):
                for number, page in pages.items():
                    file.seek((number - 1) * PAGE_BYTES)
                    file.write(page)
                file.seek(0)
                file.write(_header(found, page_count))
                file.flush()
                if (db := _opened(copy)) is not None:
                    return undo.enter_context(closing(db))
    except OSError:
        pass
    return None


def _opened(copy: Path) -> sqlite3.Connection | None:
    db = sqlite3.connect(copy, isolation_level=None)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchall()
        db.execute("SELECT count(*) FROM node").fetchall()
    except sqlite3.Error:
        db.close()
        return None
    return db


def _new_store(path: Path) -> tuple[int, dict[int, bytes]]:
    """Return the number of pages of a new store, and the beginnings of the pages that name its tables, keyed by page
    number.
    """
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}").close()
        db.executescript(SCHEMA)
    data = path.read_bytes()
    first = data[:PAGE_BYTES]
    numbers = [1]
    kind = first[HEADER_BYTES]
    [cell_count] = unpack_from(">H", first, HEADER_BYTES + 3)
    if kind == INTERIOR:
        cells = unpack_from(f">{cell_count}H", first, HEADER_BYTES + 12)
        numbers += [
            *unpack_from(">I", first, HEADER_BYTES + 8),
            *(unpack_from(">I", first, cell)[0] for cell in cells),
        ]
    pages = {number: data[(number - 1) * PAGE_BYTES : number * PAGE_BYTES] for number in numbers}
    return len(data) // PAGE_BYTES, pages


def _promised(header: bytes) -> int:
    """Return the number of pages that a header gives; 0 if it gives none, or more than a file can have."""
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        return 0
    [pages] = unpack_from(">I", header, PAGES)
    return int(pages) if pages <= PAGES_LIMIT else 0


def _header(found: bytes, page_count: int) -> bytes:
    """Return a header for this many pages, none of which is free. Valid fields of the existing header are kept."""
    header = bytearray(found.ljust(HEADER_BYTES, b"\0"))
    if not found.startswith(MAGIC):
        header = bytearray(HEADER_BYTES)
        pack_into("16sH", header, 0, MAGIC, 0)
        pack_into(">BB", header, VERSIONS, 2, 2)
        pack_into(">I", header, COOKIE, 1)
        pack_into(">I", header, USER_VERSION, LAYOUT)
        pack_into(">I", header, APPLICATION, APPLICATION_ID)
    pack_into(">H", header, PAGE_SIZE, PAGE_BYTES)
    pack_into(">BBB", header, FRACTIONS, 64, 32, 32)
    pack_into(">III", header, PAGES, page_count, 0, 0)
    pack_into(">I", header, FORMAT, 4)
    pack_into(">I", header, ENCODING, 1)
    return bytes(header)
