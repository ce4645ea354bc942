"""The log in front of the tables: files to which each transaction is appended and flushed.

They lie beside the tables, `a.sqlite-log-000001` and on. A segment has a header and then records, each with its
length, a checksum and its number; numbers go on from segment to segment. A record begins with the segment's salt, which
nobody outside knows, so that no packet can pass for one.

What a crash can leave is a last record that is there by half, or a last segment without its header: neither was ever
said to be on disk. Anything else that does not fit is damage, and told.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self

from mqproto.turn.effects import Writes
from mqproto.wire.guid import Guid, guid_text
from simulator.base.storeerrors import ADVICE, StoreError
from simulator.storage.files import Files, LogFile
from simulator.storage.records import decoded, encoded

MAGIC: Final = b"mqprolog"
VERSION: Final = 1
SALT_BYTES: Final = 8
HEADER: Final = Struct(f"<8sI16sQQ{SALT_BYTES}sI")
"""Magic, version, the node's GUID, the segment's number, that of its first record, the salt; the checksum of these."""
HEAD: Final = Struct(f"<{SALT_BYTES}sII")
"""Of a record: the salt, how many bytes follow, their checksum."""
NUMBER: Final = Struct("<Q")
"""The record's own, with which those bytes begin."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""After these, room can be made while the node runs."""


class SegmentName(NamedTuple):
    """A file of a log."""

    number: int
    path: Path


class Segment:
    """The segment that is written to. `create` makes it; `append` adds to it.

    Attributes:
        size_bytes: header and records.
        keys: of all messages that its records put into the store, in their order.
        is_sound: whether it is known to hold whole records alone. After a failed flush, say, only reading it can tell.
    """

    def __init__(
        self, files: Files, path: Path, number: int, first_record: int, salt: bytes, file: LogFile
    ) -> None:
        self.path = path
        self.number = number
        self.first_record = first_record
        self.size_bytes = HEADER.size
        self.keys: list[int] = []
        self.is_sound = True
        self._files = files
        self._salt = salt
        self._file = file

    @classmethod
    def create(cls, files: Files, store: Path, node: Guid, number: int, first_record: int) -> Self:
        """A new file, which is on disk with its name and header.

        Raises:
            StoreError: it cannot be made, and none is there.
        """
        path = segment_path(store, number)
        salt = os.urandom(SALT_BYTES)
        with explained_file(path):
            file = files.create(path)
            try:
                file.write(0, [_header(node, number, first_record, salt)])
                file.flush()
                files.flush_folder(path.parent)
            except BaseException:
                file.close()
                files.remove(path)
                raise
        return cls(files, path, number, first_record, salt, file)

    def append(self, number: int, writes: Writes) -> None:
        """Put a transaction on disk, with one write and one flush.

        Raises:
            StoreError: it is not there, if `is_sound`; else it may be.
        """
        body = b"".join((NUMBER.pack(number), *encoded(writes)))
        head = HEAD.pack(self._salt, len(body), zlib.crc32(body))
        self.is_sound = False
        with explained_file(self.path):
            try:
                self._file.write(self.size_bytes, [head, body])
            except OSError as error:
                if error.errno in FULL:
                    # What was written of it must not be found behind the next record.
                    self._file.truncate(self.size_bytes)
                    self._file.flush()
                    self.is_sound = True
                raise
            self._file.flush()
        self.size_bytes += len(head) + len(body)
        self.keys += [row.key for row in writes.messages]
        self.is_sound = True

    def close(self) -> None:
        """Leave the file where it is."""
        self._file.close()

    def remove(self) -> None:
        """The tables have all of it."""
        self._file.close()
        with explained_file(self.path):
            self._files.remove(self.path)


class FoundSegment:
    """A segment that was there when the store was opened.

    Raises:
        StoreError: it cannot be read, or it is another node's.
    """

    def __init__(self, files: Files, name: SegmentName, node: Guid) -> None:
        self.path = name.path
        with explained_file(name.path):
            self._data = files.read(name.path)
        fields = HEADER.unpack(self._data[: HEADER.size].ljust(HEADER.size, b"\0"))
        _, version, owner, number, self.first_record, self._salt, _ = fields
        self.is_headless = self._data[: HEADER.size] != _header(
            owner, number, self.first_record, self._salt, version
        )
        """It has no header, so no record either: the crash came when it was new."""
        if self.is_headless:
            if len(self._data) > HEADER.size:
                raise damaged(self.path, "its header makes no sense")
            return
        if version != VERSION:
            raise StoreError(
                f"{self.path}: it has version {version}, this mqproto knows {VERSION}: use the mqproto that wrote it"
            )
        if owner != node:
            raise StoreError(
                f"{self.path}: it belongs to {guid_text(owner)}, not to {guid_text(node)}: name another file"
            )
        if number != name.number:
            raise damaged(self.path, f"it is segment {number} under another's name")

    def records(self, *, is_last: bool) -> Iterator[Writes]:
        """Its transactions, in order; of the last segment without one that was written by half.

        Raises:
            StoreError: it is damaged.
        """
        data, number, at = memoryview(self._data), self.first_record, HEADER.size
        while at < len(data):
            body = self._body(data, at)
            if body is None:
                if not is_last:
                    raise damaged(self.path, f"record {number} at byte {at} is broken")
                following = self._data.find(self._salt, at + 1)
                while following >= 0:
                    if self._body(data, following) is not None:
                        raise damaged(
                            self.path, f"record {number} at byte {at} is broken, one at {following} is whole"
                        )
                    following = self._data.find(self._salt, following + 1)
                return
            [found] = NUMBER.unpack_from(body)
            if found != number:
                raise damaged(self.path, f"record {found} stands in the place of {number}")
            try:
                writes = decoded(body[NUMBER.size :])
            except ValueError as error:
                raise damaged(self.path, f"record {number} at byte {at}: {error}") from error
            yield writes
            number += 1
            at += HEAD.size + len(body)

    def _body(self, data: memoryview, at: int) -> memoryview | None:
        """What follows the head of a record; None if no record stands there, or not all of it."""
        if at + HEAD.size + NUMBER.size > len(data):
            return None
        salt, size, checksum = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + size]
        if salt != self._salt or not NUMBER.size <= size == len(body) or zlib.crc32(body) != checksum:
            return None
        return body


def segment_path(store: Path, number: int) -> Path:
    """The file of a segment of a store's log."""
    return store.with_name(f"{store.name}-log-{number:06}")


def segments_of(files: Files, store: Path) -> list[SegmentName]:
    """The segments that lie beside a store, in order.

    Raises:
        StoreError: the folder cannot be read.
    """
    ending = re.compile(re.escape(f"{store.name}-log-") + r"(\d{6,})")
    with explained_file(store.parent):
        names = files.names(store.parent)
    found = ((ending.fullmatch(name), name) for name in names)
    return sorted(SegmentName(int(match[1]), store.parent / name) for match, name in found if match)


def damaged(path: Path, what: str) -> StoreError:
    """What to say of a segment that no crash can have left so."""
    return StoreError(f"{path}: {ADVICE[sqlite3.SQLITE_CORRUPT]} ({what})")


@contextmanager
def explained_file(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into a StoreError."""
    try:
        yield
    except OSError as error:
        advice = f"the disk fails ({error.strerror}): look to it, then start the node again"
        if error.errno in FULL:
            advice = ADVICE[sqlite3.SQLITE_FULL]
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            advice = ADVICE[sqlite3.SQLITE_READONLY]
        raise StoreError(f"{path}: {advice}") from error


def _header(node: bytes, number: int, first_record: int, salt: bytes, version: int = VERSION) -> bytes:
    fields = (MAGIC, version, node, number, first_record, salt)
    return HEADER.pack(*fields, zlib.crc32(HEADER.pack(*fields, 0)))
