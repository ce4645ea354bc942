"""The TCP segments and Pings of a range, as columns: link, IP and TCP heads of all frames at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from captures.frame import Interface
from captures.ip import IpReader
from captures.packets import SeenPacket
from captures.pipeline.records import Data
from captures.pipeline.scan import Reading
from captures.tcp import Endpoint

Integers = npt.NDArray[np.int64]
Indexes = npt.NDArray[np.int32]


@dataclass(slots=True)
class Segments:
    """The TCP segments of a range in the order of the capture, a row each; its Pings; and what its other frames were.

    frame_count = segments + pings + the sum of `other_frames`, always.

    frame: index in the range, from 0; the frame's number in the file is `reading.first_number` more.
    time_ns: since 1970, UTC; 0 where the file does not say. Of times beyond 64 bits the nearest within them.
    offset: of the frame's record in the file.
    interface: its number, a key of `interfaces`.
    source, destination: indexes into `ends`, in which no endpoint stands twice.
    sequence, acknowledgment: 0 to 2**32 - 1.
    flags: the byte with FIN, SYN, RST, PSH and ACK.
    start, size: of the payload in the mapped file. `start` is -1 where it does not lie there in one piece (fragments,
        extension headers); then `odd_payloads` has it by its row.
    pings: as captures.packets makes them; their `number` is 0.
    other_frames, cut_frames, untimed_frames, first_ns, last_ns: as in captures.packets.Totals.
    ip: what waits for more fragments at the end. `ip.fragment_count` counts those of this range alone. Where
        `ip.waiting_count` is not 0 and the range that follows has fragments, that one is read again with this `ip`.
    """

    frame: Integers
    time_ns: Integers
    offset: Integers
    interface: Indexes
    source: Indexes
    destination: Indexes
    sequence: Integers
    acknowledgment: Integers
    flags: npt.NDArray[np.uint8]
    start: Integers
    size: Integers
    ends: list[Endpoint]
    interfaces: dict[int, Interface]
    odd_payloads: dict[int, bytes]
    pings: list[SeenPacket]
    frame_count: int
    other_frames: Counter[str]
    cut_frames: int
    untimed_frames: int
    first_ns: int | None
    last_ns: int | None
    ip: IpReader

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def open_fragments(self) -> bool:
        """Whether packets still wait for fragments at the end of the range."""
        return self.ip.waiting_count > 0

    def payload(self, data: Data, row: int) -> bytes:
        """The payload of one segment."""
        start = int(self.start[row])
        return self.odd_payloads[row] if start < 0 else data[start : start + int(self.size[row])]


def segments(reading: Reading, data: Data, ip: IpReader | None = None) -> Segments:
    """The segments of a range.

    Args:
        data: the whole file, as `files.mapped` gives it.
        ip: what waited for fragments at the end of the range before; None if nothing did.
    """
    raise NotImplementedError
