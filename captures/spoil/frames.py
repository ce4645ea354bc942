"""Loses, delays, repeats and cuts frames, as sniffers do, and puts frames on another link layer."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from mqproto.captures.files.frame import ETHERNET, Frame, Interface
from mqproto.captures.net.links import IPV4, LINUX_COOKED, LINUX_COOKED_2, NULL, ip_start

RAW_IP: Final = 101
VLAN_TAG: Final = struct.pack("!HH", 0x8100, 42)
HEADERS: Final[dict[str, tuple[int, bytes]]] = {
    "vlan": (ETHERNET, bytes(12) + VLAN_TAG + struct.pack("!H", IPV4)),
    "vlan-in-vlan": (
        ETHERNET,
        bytes(12) + struct.pack("!HH", 0x88A8, 7) + VLAN_TAG + struct.pack("!H", IPV4),
    ),
    "cooked": (LINUX_COOKED, struct.pack("!HHH8sH", 0, 772, 6, bytes(8), IPV4)),
    "cooked-2": (LINUX_COOKED_2, struct.pack("!HHIHBB8s", IPV4, 0, 1, 772, 0, 6, bytes(8))),
    "loopback": (NULL, struct.pack("<I", 2)),
    "raw": (RAW_IP, b""),
}
"""For each link layer, given by name: the link type, and the bytes before the IP packet."""

HEADS_BYTES: Final = 54
FURTHEST: Final = 8
"""The limit for how late a frame may be: fewer frames than this overtake it."""
QUEUED_NS: Final = 100_000_000
"""The longest time, in nanoseconds, for which a network card's queue keeps a frame."""


def dice(seed: int, subject: str) -> random.Random:
    """Return a random number generator for one kind of damage.

    Each kind of damage has its own generator, so a larger share of one kind leaves the others unchanged.
    """
    return random.Random(f"{seed}/{subject}")


def lost(frames: Iterable[Frame], percent: float, seed: int = 0) -> Iterator[Frame]:
    """Drop some frames."""
    chance = dice(seed, "lose")
    return (frame for frame in frames if chance.random() * 100 >= percent)


def repeated(
    frames: Iterable[Frame], percent: float, seed: int = 0, *, damaged: bool = False
) -> Iterator[Frame]:
    """Repeat some frames, up to eight frames later, as if they had been sent again or captured twice.

    Args:
        damaged: whether the frames were sent again because they arrived damaged; then the first copy has one bit
            changed after its headers.
    """
    chance = dice(seed, "repeat")
    waiting = _Waiting()
    for place, frame in enumerate(frames):
        is_repeated = chance.random() * 100 < percent
        yield with_other_bit(frame, chance) if is_repeated and damaged else frame
        yield from waiting.due(place, frame.time_ns)
        if is_repeated:
            waiting.add(place + chance.randrange(1, FURTHEST), noted(frame, "once more"))
    yield from waiting.rest()


def with_other_bit(frame: Frame, chance: random.Random) -> Frame:
    """Return a frame with one bit changed after the first 54 bytes, which are usually its headers."""
    data = bytearray(frame.data)
    if len(data) > HEADS_BYTES:
        data[chance.randrange(HEADS_BYTES, len(data))] ^= 1 << chance.randrange(8)
    return noted(frame, "damaged")._replace(data=bytes(data))


def delayed(frames: Iterable[Frame], percent: float, seed: int = 0) -> Iterator[Frame]:
    """Delay some frames, each of which is overtaken by up to seven later ones."""
    chance = dice(seed, "delay")
    waiting = _Waiting()
    for place, frame in enumerate(frames):
        if chance.random() * 100 < percent:
            waiting.add(place + chance.randrange(1, FURTHEST), noted(frame, "late"))
        else:
            yield frame
        yield from waiting.due(place, frame.time_ns)
    yield from waiting.rest()


def swapped(frames: Iterable[Frame], percent: float, seed: int = 0) -> Iterator[Frame]:
    """Swap some frames with the next one, as a network card with several queues does.

    Each frame gets the time that belongs to its new place, so times do not go back.
    """
    chance = dice(seed, "swap")
    stream = iter(frames)
    for frame in stream:
        following = next(stream, None) if chance.random() * 100 < percent else None
        if following is None:
            yield frame
            continue
        yield noted(following, "swapped")._replace(time_ns=frame.time_ns)
        yield noted(frame, "swapped")._replace(time_ns=following.time_ns)


def shuffled(frames: Iterable[Frame], places: int, seed: int = 0) -> Iterator[Frame]:
    """Let up to `places` other frames overtake each frame, as in a network card with several queues.

    No queue waits for longer than QUEUED_NS. As in `swapped`, each frame gets the time that belongs to its new place.
    """
    chance = dice(seed, "shuffle")
    in_order = list(frames)
    times_ns = [frame.time_ns for frame in in_order]

    def overtaken(place: int) -> float:
        near = bisect_right(
            times_ns, times_ns[place] + QUEUED_NS, place, min(place + places + 1, len(times_ns))
        )
        return place + chance.uniform(0, near - place)

    order = sorted(range(len(in_order)), key=overtaken)
    for place, frame in zip(order, in_order, strict=True):
        moved = in_order[place]
        yield moved if moved is frame else noted(moved, "shuffled")._replace(time_ns=frame.time_ns)


def cut(frames: Iterable[Frame], start: int = 0, end: int = 0) -> Iterator[Frame]:
    """Drop the first `start` and the last `end` frames.

    The result looks as if the capture had started late and stopped early.
    """
    waiting: deque[Frame] = deque()
    for frame in islice(frames, start, None):
        waiting.append(frame)
        if len(waiting) > end:
            yield waiting.popleft()


def shortened(frames: Iterable[Frame], size_bytes: int) -> Iterator[Frame]:
    """Cut each frame to at most this many bytes, as a snapshot length does."""
    for frame in frames:
        missing_bytes = max(0, len(frame.data) - size_bytes)
        yield frame._replace(data=frame.data[:size_bytes], missing_bytes=frame.missing_bytes + missing_bytes)


def relinked(frames: Iterable[Frame], link: str) -> Iterator[Frame]:
    """Yield the IP packets in frames of another link layer, one of HEADERS.

    Frames without an IP packet are left out.
    """
    link_type, header = HEADERS[link]
    for frame in frames:
        start = ip_start(frame.link_type, frame.data)
        if start is not None:
            interface = Interface(frame.interface.number, link_type, link)
            yield frame._replace(data=header + frame.data[start:], interface=interface)


def noted(frame: Frame, comment: str) -> Frame:
    """Return a frame with a comment added that says what was done to it."""
    return frame._replace(comment=f"{frame.comment}; {comment}" if frame.comment else comment)


class _Waiting:
    """Frames that are seen late; they get the time at which they are seen."""

    def __init__(self) -> None:
        self._frames: list[tuple[int, Frame]] = []
        self._time_ns = 0

    def add(self, until: int, frame: Frame) -> None:
        """Let a frame wait until the frame with the index `until` has been seen."""
        self._frames.append((until, frame))

    def due(self, place: int, time_ns: int) -> list[Frame]:
        """Return the frames that have waited long enough."""
        self._time_ns = max(self._time_ns, time_ns)
        ready = [frame for until, frame in self._frames if until <= place]
        self._frames = [entry for entry in self._frames if entry[0] > place]
        return [frame._replace(time_ns=self._time_ns) for frame in ready]

    def rest(self) -> list[Frame]:
        """Return all remaining frames, because there is nothing more to wait for."""
        return [frame._replace(time_ns=self._time_ns) for _, frame in self._frames]
