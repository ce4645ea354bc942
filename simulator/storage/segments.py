"""The log in front of the tables: files to which each transaction is appended and flushed.

They are next to the file of the tables: `a.sqlite-log-000001` and so on. A segment has a header and then records, each
with its length, its checksums and its number. Numbers continue from segment to segment. A record begins with the
segment's salt, which is secret, so no packet can look like a record. A segment has its full size from the start, and is
filled with zeros. A segment is damaged if it is shorter, or has bytes that are neither a whole record nor zero.

A crash can leave sectors of the last record zero. After a power loss, these may be any of its sectors. After a kill,
they are all sectors from the end of a page onward, because the system writes page by page. Such a record was never
reported to be on disk. The witness next to the log (witness.py) has the number of the newest record that was reported.
Any other mismatch is reported as damage.
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

from mqproto.simulator.base.storeerrors import ADVICE, DiskFullError, StoreError, repair_advice
from mqproto.simulator.storage.checksums import hurt_packet
from mqproto.simulator.storage.files import Files, WritableFile, made
from mqproto.simulator.storage.records import decoded, encoded
from mqproto.turn.effects import LAST_POSITION, POSITION_BITS, MessageRow, Writes
from mqproto.wire.guid import Guid, guid_text

MAGIC: Final = b"mqprolog"
VERSION: Final = 2
SALT_BYTES: Final = 8
SECTOR_BYTES: Final = 512
"""The size of a sector in bytes. A disk writes a sector completely or not at all."""
HEADER: Final = Struct(f"<8sI16sQQQ{SALT_BYTES}sI")
"""The form of the header: magic, version, the node's GUID, the segment's number and its first record's number, the
file's size, the salt, and the checksum of all these."""
LENGTHS: Final = Struct(f"<{SALT_BYTES}sII")
"""The form of a record's beginning: the salt, the number of bytes between its head and its packets, and the size of the
packets."""
HEAD: Final = Struct(f"<{LENGTHS.size}sII")
"""The form of the head of a record: the lengths, their checksum, and the checksum of all bytes between the head and the
packets."""
CHECKSUM_BYTES: Final = 4
NUMBER: Final = Struct("<Q")
"""The form of a record's number, which comes first among the bytes before the packets."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors that say that the disk is full; room can be made while the node runs."""
NO_ROOM: Final = FULL | {errno.EFBIG}
"""The errors after which there may still be room for a smaller file: the disk is full, or the file is too large."""


class DamagedFileError(StoreError):
    """A file next to the tables does not contain the data that was written to it."""


class SegmentName(NamedTuple):
    """The name of a file of a log."""

    number: int
    path: Path


class Header(NamedTuple):
    """The beginning of a segment."""

    node: Guid
    number: int
    first_record: int
    size_bytes: int
    salt: bytes
    version: int = VERSION

    def encoded(self) -> bytes:
        """Return the header as bytes, with its checksum."""
        *fields, version = self
        data = HEADER.pack(MAGIC, version, *fields, 0)[:-CHECKSUM_BYTES]
        return data + zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")

    @classmethod
    def decoded(cls, data: bytes) -> Self | None:
        """Return the header in these bytes; None if they are not a header."""
        if len(data) < HEADER.size:
            return None
        magic, version, node, number, first_record, size_bytes, salt, checksum = HEADER.unpack(data)
        if magic != MAGIC or zlib.crc32(data[:-CHECKSUM_BYTES]) != checksum:
            return None
        return cls(Guid(node), number, first_record, size_bytes, salt, version)


class Record(NamedTuple):
    """A transaction in the form that it has in the log.

    keys: the keys of the messages that it puts into the store, in the same order as the messages.
    """

    head: bytes
    packets: list[bytes]
    size_bytes: int
    keys: list[int]

    @classmethod
    def of(cls, number: int, writes: Writes) -> Self:
        """Return the record of this transaction, with this number."""
        head, packets = encoded(writes)
        size_bytes = HEAD.size + NUMBER.size + len(head) + sum(map(len, packets))
        return cls(NUMBER.pack(number) + head, packets, size_bytes, [row.key for row in writes.messages])

    def after(self, salt: bytes) -> bytes:
        """Return the record as bytes, for a segment with this salt."""
        packets_bytes = self.size_bytes - HEAD.size - len(self.head)
        lengths = LENGTHS.pack(salt, len(self.head), packets_bytes)
        start = HEAD.pack(lengths, zlib.crc32(lengths), zlib.crc32(self.head))
        return b"".join((start, self.head, *self.packets))


class LogSegment:
    """A segment that is open for writing. `create` makes it, and `append` adds to it.

    Attributes:
        used_bytes: the number of bytes that the header and the records take.
        keys: the keys of all messages that its records put into the store, in the same order as the messages.
        is_sound: whether it is known to contain only whole records. After a failed flush, this is unknown until the
            segment is read.
    """

    def __init__(self, files: Files, path: Path, header: Header, file: WritableFile) -> None:
        self.path = path
        self.number = header.number
        self.first_record = header.first_record
        self.size_bytes = header.size_bytes
        self.used_bytes = HEADER.size
        self.keys: list[int] = []
        self.is_sound = True
        self._files = files
        self._salt = header.salt
        self._file = file

    @classmethod
    def create(
        cls, files: Files, store: Path, node: Guid, number: int, first_record: int, size_bytes: int
    ) -> Self:
        """Make a new file. When this returns, it is on disk with its name, its header, and room for this many bytes.

        Raises:
            StoreError: the file cannot be made, and does not exist.
        """
        path = segment_path(store, number)
        header = Header(node, number, first_record, size_bytes, os.urandom(SALT_BYTES))
        with explained_file(path):
            return cls(files, path, header, made(files, path, size_bytes, header.encoded()))

    @classmethod
    def gone_on(cls, files: Files, found: FoundSegment, keys: list[int]) -> Self:
        """Open an existing segment, to continue after its last whole record.

        A half-written record there is wiped.

        Raises:
            StoreError: it cannot be opened or written.
        """
        with explained_file(found.path):
            segment = cls(files, found.path, found.header, files.open(found.path))
            segment.used_bytes, segment.keys = found.used_bytes, keys
            if found.torn:
                segment._file.write(found.used_bytes, [bytes(segment.size_bytes - found.used_bytes)])
                segment._file.flush()
        return segment

    @property
    def free_bytes(self) -> int:
        """The number of bytes that are free for records."""
        return self.size_bytes - self.used_bytes

    def append(self, record: Record) -> None:
        """Put a record on disk, with one write and one flush. There must be room for it.

        Raises:
            StoreError: the record is not on disk if `is_sound` is true; otherwise, it may be.
        """
        self.is_sound = False
        try:
            try:
                self._file.write(self.used_bytes, [record.after(self._salt)])
            except OSError as error:
                if error.errno in FULL:
                    # The room was there and is gone: some file systems write to another place. Bytes of this
                    # record must not be found behind the next one.
                    self._file.write(self.used_bytes, [bytes(record.size_bytes)])
                    self._file.flush()
                    self.is_sound = True
                raise
            self._file.flush()
        except OSError as error:
            raise file_error(self.path, error) from error
        self.used_bytes += record.size_bytes
        self.keys += record.keys
        self.is_sound = True

    def close(self) -> None:
        """Close the file and leave it where it is."""
        self._file.close()

    def remove(self) -> None:
        """Remove the file, because the tables have all of its records."""
        self._file.close()
        with explained_file(self.path):
            self._files.remove(self.path)


class FoundSegment:
    """A segment that existed when the store was opened.

    Attributes:
        torn: the report about a last record that was dropped; empty if none was dropped.
        used_bytes: the number of bytes that the header and the whole records take. It is valid once all records have
            been read.

    Raises:
        StoreError: the segment cannot be read, is damaged, or is another node's.
    """

    def __init__(self, name: SegmentName, node: Guid, data: bytes) -> None:
        self.path = name.path
        self.torn = self.flipped = ""
        self.used_bytes = HEADER.size
        self._data = data
        self._read_header(name, node)

    @classmethod
    def read(cls, files: Files, name: SegmentName, node: Guid) -> Self:
        """Read the segment from its file.

        Raises:
            StoreError: it cannot be read, is damaged, or is another node's.
        """
        with explained_file(name.path):
            return cls(name, node, files.read(name.path))

    def _read_header(self, name: SegmentName, node: Guid) -> None:
        header = Header.decoded(self._data[: HEADER.size])
        if header is None:
            raise damaged(self.path, "its header does not fit its checksum")
        if header.version != VERSION:
            raise StoreError(
                f"{self.path}: it has version {header.version}, this mqproto knows {VERSION}:"
                " use the mqproto that wrote it"
            )
        if header.node != node:
            raise another_nodes(self.path, header.node, node)
        if header.number != name.number:
            raise damaged(self.path, f"it is segment {header.number} under another's name")
        if len(self._data) != header.size_bytes:
            raise damaged(
                self.path, f"it has {len(self._data):,} bytes and was made with {header.size_bytes:,}"
            )
        self.header = header
        self.first_record = header.first_record
        self._salt = header.salt

    def forget(self) -> None:
        """Forget the bytes that were read, which are no longer needed."""
        self._data = b""

    def records(self, *, is_last: bool, acknowledged: int) -> Iterator[Writes]:
        """Yield the segment's transactions in order.

        In the last segment, a record that was only partly written is left out.

        Args:
            is_last: whether this is the last segment.
            acknowledged: the number of a record that is known to have been completely on disk.

        Raises:
            StoreError: the segment is damaged.
        """
        data, number, at = memoryview(self._data), self.first_record, HEADER.size
        while (found := self._found(data, at)) is not None:
            head, packets = found
            [stands] = NUMBER.unpack_from(head)
            if stands != number:
                raise damaged(self.path, f"record {stands} is in the place of {number}")
            try:
                writes, hurt = decoded(head[NUMBER.size :], packets)
            except ValueError as error:
                raise damaged(self.path, f"record {number} at byte {at}: {error}") from error
            if hurt:
                if is_last and number > acknowledged and self._may_be_torn(at):
                    break
                for row in hurt:
                    packet = hurt_packet(row.packet, row.message_id)
                    writes.messages[writes.messages.index(row)] = row._replace(packet=packet)
            yield writes
            number += 1
            at += HEAD.size + len(head) + len(packets)
            self.used_bytes = at
        if not _is_zero(self._data, at, len(data)):
            if not (is_last and number > acknowledged and self._may_be_torn(at)):
                raise damaged(self.path, f"record {number} at byte {at} is broken")
            self.flipped = self._flipped(at)
            self.torn = "" if self.flipped else self._half_there(number, at)

    def _following(self, at: int) -> int | None:
        """Return the place of the next whole head of a record after this place; None if there is none."""
        if len(self._salt) != SALT_BYTES:
            return None
        following = self._data.find(self._salt, at + 1)
        while following >= 0 and self._found(memoryview(self._data), following) is None:
            following = self._data.find(self._salt, following + 1)
        return following if following >= 0 else None

    def _flipped(self, at: int) -> str:
        """Return a report if all bytes from this position on are zero except for one bit.

        Otherwise, return an empty string.
        """
        rest = self._data[at:].strip(b"\0")
        if len(rest) != 1 or rest[0].bit_count() != 1:
            return ""
        place = self._data.index(rest, at)
        return (
            f"one bit of {self.path.name} has flipped, at byte {place:,}, where nothing was written: nothing is lost; "
            "test this machine's memory and disk"
        )

    def _half_there(self, number: int, at: int) -> str:
        return (
            f"record {number} in {self.path.name} at byte {at:,} is half written: it was being written when its "
            "node was killed or the power went, and nobody was told that it was on disk"
        )

    def _found(self, data: memoryview, at: int) -> tuple[memoryview, memoryview] | None:
        """Return the head and the packets of the record at a position.

        The result is None if there is no record, or if its head is damaged.
        """
        lengths = self._lengths(data, at)
        if lengths is None:
            return None
        start, middle, end = lengths
        head = data[start:middle]
        *_, checksum = HEAD.unpack_from(data, at)
        return (head, data[middle:end]) if zlib.crc32(head) == checksum else None

    def _lengths(self, data: memoryview, at: int) -> tuple[int, int, int] | None:
        """Return the start and end of a record's head, and the end of its packets; None if a length is damaged."""
        start = at + HEAD.size
        if start > len(data):
            return None
        lengths, checksum, _ = HEAD.unpack_from(data, at)
        salt, head_bytes, packets_bytes = LENGTHS.unpack(lengths)
        middle, end = start + head_bytes, start + head_bytes + packets_bytes
        if (
            salt != self._salt
            or zlib.crc32(lengths) != checksum
            or head_bytes < NUMBER.size
            or end > len(data)
        ):
            return None
        return start, middle, end

    def _may_be_torn(self, at: int) -> bool:
        """Return whether the bytes at this place can be the result of a power loss during the write of one record.

        If so, each sector of the record is either still zero or completely written, and at least one is zero. Nothing
        follows the record. Its first bytes, if they were written, give its length.
        """
        data = self._data
        if at + HEAD.size > len(data):
            return False
        if self._following(at) is not None:
            return False
        if self._flipped(at):
            return True
        second = _next_sector(at)
        if _is_zero(data, at, second):
            return True
        if second < at + HEAD.size and _is_zero(data, second, _next_sector(second)):
            known = data[at:second]
            return known[:SALT_BYTES] == self._salt[: len(known)]
        lengths = self._lengths(memoryview(data), at)
        if lengths is None:
            return False
        *_, end = lengths
        starts = range(second, end, SECTOR_BYTES)
        return _is_zero(data, end, len(data)) and any(
            _is_zero(data, start, min(end, start + SECTOR_BYTES)) for start in starts
        )


def named(rows: list[MessageRow]) -> str:
    """Return a text for people that names these damaged messages, in one line."""
    first = rows[0]
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return (
        f"of queue {first.key >> POSITION_BITS} the message at {first.key & LAST_POSITION} with MessageID"
        f" {first.message_id}{others} does not fit its checksum"
    )


def _next_sector(at: int) -> int:
    return (at // SECTOR_BYTES + 1) * SECTOR_BYTES


def _is_zero(data: bytes, start: int, end: int) -> bool:
    return not data[start:end].strip(b"\0")


def segment_path(store: Path, number: int) -> Path:
    """Return the path of a segment of a store's log."""
    return store.with_name(f"{store.name}-log-{number:06}")


def store_of(path: Path) -> Path:
    """Return the path of the store to which a file in the same folder belongs.

    The file is one of our log or of SQLite's log, a witness, or the file of the store's life.
    """
    return path.with_name(re.sub(r"\.life$", ".sqlite", re.sub(r"-(log-\d+|witness|wal)$", "", path.name)))


def segments_of(files: Files, store: Path) -> list[SegmentName]:
    """Return the segments next to a store, in order.

    Raises:
        StoreError: the folder cannot be read.
    """
    ending = re.compile(re.escape(f"{store.name}-log-") + r"(\d{6,})")
    with explained_file(store.parent):
        names = files.names(store.parent)
    found = ((ending.fullmatch(name), name) for name in names)
    return sorted(SegmentName(int(match[1]), store.parent / name) for match, name in found if match)


def damaged(path: Path, what: str) -> StoreError:
    """Return the error for a file in a state that no crash can have left."""
    return DamagedFileError(f"{path}: it is damaged, {what}: {repair_advice(store_of(path))}")


def another_nodes(path: Path, owner: Guid, node: Guid) -> StoreError:
    """Return the error for a file that belongs to another node."""
    return StoreError(
        f"{path}: it belongs to {guid_text(owner)}, not to {guid_text(node)}: name another file"
    )


def file_error(path: Path, error: OSError) -> StoreError:
    """Return the StoreError for the system's error about a file."""
    advice = f"the disk fails ({error.strerror}): look to it, then start the node again"
    if error.errno in FULL:
        return DiskFullError(f"{path}: {ADVICE[sqlite3.SQLITE_FULL]}")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = ADVICE[sqlite3.SQLITE_READONLY]
    return StoreError(f"{path}: {advice}")


@contextmanager
def explained_file(path: Path) -> Iterator[None]:
    """Turn the system's error about a file into a StoreError."""
    try:
        yield
    except OSError as error:
        raise file_error(path, error) from error
