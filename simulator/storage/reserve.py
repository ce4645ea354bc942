"""A file, `a.sqlite-reserve`, that is set aside for the day on which the disk is full.

It is filled with zeros, so that its room is really taken. When the log finds no room for its next segment, the reserve
becomes that segment. This needs no further room: the segment's header is written in place, and the file gets the
segment's name. From then on, the node does not accept anything that enlarges the store; writes that shrink the store go
to the reserve. When all records of a segment are in the tables, the segment is wiped and set aside as the new reserve.
If it were removed, another program could take the room.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mqproto.simulator.base.storeerrors import DiskFullError, StoreError
from mqproto.simulator.storage.files import Files, made
from mqproto.simulator.storage.segments import (
    HEADER,
    NO_ROOM,
    SALT_BYTES,
    Header,
    LogSegment,
    explained_file,
    segment_path,
)
from mqproto.wire.guid import Guid

SHARES: Final = 3
"""The number of shares of the reserve. A batch from applications and one from neighbours may each fill one share; the
third share is for making room.
"""
SMALLEST_SHARE: Final = 8
"""On a disk with little room, the reserve may be as small as the usual size divided by this number."""


class Reserve:
    """The reserve of one store, which also makes the segments of its log.

    Args:
        store: the file of the tables.
        wanted_bytes: how many bytes to set aside; with 0, there is no reserve, and `is_missing` is False.
        segment_bytes: the usual size of a segment.

    Attributes:
        size_bytes: how many bytes are set aside; 0 if none are.
        is_missing: whether there should be a reserve but there is none, because it was used, or could not be made.
        is_short: whether the reserve is smaller than wanted, or missing.
        share_bytes: how many bytes of new messages a batch may have so that its record fits into the reserve; None if
            there is no limit.
    """

    def __init__(self, files: Files, store: Path, node: Guid, wanted_bytes: int, segment_bytes: int) -> None:
        self.path = reserve_path(store)
        self._files, self._store, self._node = files, store, node
        self._wanted_bytes, self._segment_bytes = wanted_bytes, segment_bytes
        self._has(0)

    def _has(self, size_bytes: int) -> None:
        """Set how many bytes are set aside, and the attributes that follow from this number.

        They are computed only here, because a node asks for them on each turn.
        """
        self.size_bytes, wanted_bytes = size_bytes, self._wanted_bytes
        self.is_missing = size_bytes == 0 and wanted_bytes > 0
        self.is_short = size_bytes < wanted_bytes
        self.share_bytes = size_bytes // SHARES if wanted_bytes else None

    def make(self) -> None:
        """Make the reserve. If the disk has no room for a full one, make a shorter one.

        Replace a short reserve once there is room for a full one.

        Raises:
            StoreError: the disk fails, for a reason other than being full.
        """
        if not self.is_short:
            return
        with explained_file(self.path):
            names = self._files.names(self.path.parent)
            larger = self.path.with_name(f"{self.path.name}-larger")
            if larger.name in names:
                self._files.remove(larger)
            if self.is_missing and self.path.name in names:
                self._wipe()
            if self.size_bytes:
                if self.is_short and self._is_made(larger, self._wanted_bytes):
                    self._files.remove(self.path)
                    self._files.rename(larger, self.path)
                    self._files.flush_folder(self.path.parent)
                    self._has(self._wanted_bytes)
                return
            size_bytes = self._wanted_bytes
            while size_bytes >= self._wanted_bytes // SMALLEST_SHARE:
                if self._is_made(self.path, size_bytes):
                    self._has(size_bytes)
                    return
                size_bytes //= 2

    def _is_made(self, path: Path, size_bytes: int) -> bool:
        try:
            made(self._files, path, size_bytes, b"").close()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def segment(self, number: int, record: int, needed_bytes: int) -> LogSegment:
        """Make a segment of the usual size. If there is no room for it, turn the reserve into one or, if the reserve is
        too small, make a smaller segment.

        Raises:
            DiskFullError: there is no room for the needed bytes.
            StoreError: the segment cannot be made.
        """
        size_bytes = max(self._segment_bytes, needed_bytes)
        while True:
            try:
                return self.created(number, record, size_bytes)
            except DiskFullError:
                if needed_bytes <= self.size_bytes:
                    return self._become(number, record)
                if size_bytes <= needed_bytes:
                    raise
                size_bytes = max(needed_bytes, size_bytes // 8)

    def created(self, number: int, record: int, size_bytes: int) -> LogSegment:
        """Make a segment of this size without the reserve.

        Raises:
            DiskFullError: there is no room for the segment.
            StoreError: the segment cannot be made.
        """
        try:
            return LogSegment.create(self._files, self._store, self._node, number, record, size_bytes)
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) in NO_ROOM:
                raise DiskFullError(str(error)) from error
            raise

    def _become(self, number: int, first_record: int) -> LogSegment:
        """Turn the reserve into a segment of the log.

        Raises:
            StoreError: the disk fails.
        """
        path = segment_path(self._store, number)
        header = Header(self._node, number, first_record, self.size_bytes, os.urandom(SALT_BYTES))
        with explained_file(path):
            file = self._files.open(self.path)
            try:
                file.write(0, [header.encoded()])
                file.flush()
                self._files.rename(self.path, path)
                self._files.flush_folder(path.parent)
            except BaseException:
                file.close()
                raise
        self._has(0)
        return LogSegment(self._files, path, header, file)

    def take(self, segment: LogSegment) -> None:
        """Take a segment that the log no longer needs. Turn it into the reserve if there is none and the segment is
        large enough; otherwise remove it.

        Raises:
            StoreError: the disk fails.
        """
        if not self.is_missing or segment.size_bytes < self._wanted_bytes // SMALLEST_SHARE:
            segment.remove()
            return
        segment.close()
        with explained_file(self.path):
            self._files.rename(segment.path, self.path)
            self._files.flush_folder(self.path.parent)
            self._wipe()

    def _wipe(self) -> None:
        """Fill the file with zeros on disk, because its contents are no longer needed."""
        data = self._files.read(self.path)
        if data != bytes(len(data)):
            file = self._files.open(self.path)
            try:
                file.write(0, [bytes(len(data))])
                file.flush()
            finally:
                file.close()
        if len(data) < HEADER.size:
            self._files.remove(self.path)
        else:
            self._has(len(data))


def reserve_path(store: Path) -> Path:
    """Return the path of a store's reserve."""
    return store.with_name(f"{store.name}-reserve")
