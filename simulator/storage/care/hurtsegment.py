"""A segment of a log that may be damaged anywhere, and that a running node may be writing at the moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from mqproto.simulator.storage.records import decoded
from mqproto.simulator.storage.segments import (
    HEAD,
    HEADER,
    NUMBER,
    SALT_BYTES,
    FoundSegment,
    Header,
    SegmentName,
    named,
)
from mqproto.turn.effects import Writes


class Salvaged(NamedTuple):
    """The data found at one place of a segment.

    number: the record's number, if it can be read.
    writes: the undamaged part of the record.
    finding: what to report about the rest.
    notice: a note that only a part of the record has been written, which is not damage.
    """

    number: int = 0
    writes: Writes | None = None
    finding: str = ""
    notice: str = ""


class HurtSegment(FoundSegment):
    """Reads the undamaged records of a segment.

    Args:
        is_last: whether no segment follows.
        acknowledged: the number of a record that is known to have been completely on disk; None if that is unknown.
        is_written: whether the segment's node is running, so that the last record may have been written only in part so
            far.
    """

    def __init__(
        self, name: SegmentName, data: bytes, *, is_last: bool, acknowledged: int | None, is_written: bool
    ) -> None:
        # This does not call FoundSegment's, which refuses damage.
        self.path = name.path
        self.torn = ""
        self._number = name.number
        self._data = data
        self._header = Header.decoded(data[: HEADER.size])
        self._salt = self._header.salt if self._header else data[HEADER.size : HEADER.size + SALT_BYTES]
        self._is_written = is_written
        self._acknowledged = acknowledged if is_last and self._header else None

    def salvaged(self) -> Iterator[Salvaged]:
        """Yield each record, and each place where no record can be read."""
        name, data, header = self.path.name, self._data, self._header
        if header is None:
            yield Salvaged(finding=f"{name}: its header does not fit its checksum")
        elif header.size_bytes != len(data):
            yield Salvaged(
                finding=f"{name}: it has {len(data):,} bytes and was made with {header.size_bytes:,}"
            )
        elif header.number != self._number:
            yield Salvaged(finding=f"{name}: it is segment {header.number} under another's name")
        expected = header.first_record if header else 0
        view, at, end = memoryview(data), HEADER.size, len(data.rstrip(b"\0"))
        while at < end:
            found = self._found(view, at)
            if found is None:
                if self._is_unfinished(expected, at):
                    yield self._unfinished(expected, at)
                    return
                yield Salvaged(finding=f"{name}: at byte {at:,} stands no whole record")
                following = self._following(at)
                if following is None:
                    return
                at = following
                continue
            head, packets = found
            [number] = NUMBER.unpack_from(head)
            try:
                writes, hurt = decoded(head[NUMBER.size :], packets)
            except ValueError as error:
                yield Salvaged(number, finding=f"{name}: record {number}: {error}")
            else:
                if hurt and number == expected and self._is_unfinished(number, at):
                    yield self._unfinished(number, at)
                    return
                gone = {row.key for row in hurt}
                kept = replace(writes, messages=[row for row in writes.messages if row.key not in gone])
                yield Salvaged(number, kept, f"{name}: record {number}: {named(hurt)}" if hurt else "")
            expected = number + 1
            at += HEAD.size + len(head) + len(packets)

    def _is_unfinished(self, number: int, at: int) -> bool:
        """Return whether the record at this place was only partly written, and was never reported to be on disk."""
        if self._acknowledged is None or number <= self._acknowledged:
            return False
        return self._may_be_torn(at) or (self._is_written and self._following(at) is None)

    def _unfinished(self, number: int, at: int) -> Salvaged:
        return Salvaged(notice="" if self._is_written else self._flipped(at) or self._half_there(number, at))
