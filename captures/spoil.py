"""Captures made worse on purpose, as sniffers and networks make them: for tests of readers of captures.

    python -m captures.spoil whole.pcapng worse.pcapng --seed 7 --lose 5 --delay 10

Each function takes frames and gives frames, one at a time. Shares are in percent; one seed spoils one capture in one
way, on each machine and each Python. What is done to a frame stands in its comment, unless it is gone.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Final

from captures.files.frame import ETHERNET, CaptureError, Frame, Interface
from captures.files.pcap import PcapWriter, read_capture
from captures.files.pcapng import PcapngWriter
from captures.net.links import IPV4, LINUX_COOKED, LINUX_COOKED_2, NULL, ip_start
from mqproto.base.errors import UsageError

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
"""By name: the link type, and what stands before the IP packet."""

FURTHEST: Final = 8
"""How many frames a late one lets pass, at most."""


def dice(seed: int, subject: str) -> random.Random:
    """The dice of one kind of damage, so that more of the one leaves the others as they were."""
    return random.Random(f"{seed}/{subject}")


def lost(frames: Iterable[Frame], percent: float, seed: int = 0) -> Iterator[Frame]:
    """Some frames were never seen."""
    chance = dice(seed, "lose")
    return (frame for frame in frames if chance.random() * 100 >= percent)


def repeated(frames: Iterable[Frame], percent: float, seed: int = 0) -> Iterator[Frame]:
    """Some frames come once more, up to eight frames later: sent again, or caught twice."""
    chance = dice(seed, "repeat")
    waiting = _Waiting()
    for place, frame in enumerate(frames):
        yield frame
        yield from waiting.due(place, frame.time_ns)
        if chance.random() * 100 < percent:
            waiting.add(place + chance.randrange(1, FURTHEST), _noted(frame, "once more"))
    yield from waiting.rest()


def delayed(frames: Iterable[Frame], percent: float, seed: int = 0) -> Iterator[Frame]:
    """Some frames are overtaken by up to eight that came after them."""
    chance = dice(seed, "delay")
    waiting = _Waiting()
    for place, frame in enumerate(frames):
        if chance.random() * 100 < percent:
            waiting.add(place + chance.randrange(1, FURTHEST), _noted(frame, "late"))
        else:
            yield frame
        yield from waiting.due(place, frame.time_ns)
    yield from waiting.rest()


def shortened(frames: Iterable[Frame], size_bytes: int) -> Iterator[Frame]:
    """No frame has more bytes than this: a snapshot length."""
    for frame in frames:
        missing_bytes = max(0, len(frame.data) - size_bytes)
        yield frame._replace(data=frame.data[:size_bytes], missing_bytes=frame.missing_bytes + missing_bytes)


def relinked(frames: Iterable[Frame], link: str) -> Iterator[Frame]:
    """The IP packets in frames of another link layer, one of HEADERS; frames that hold none are left out."""
    link_type, header = HEADERS[link]
    interface = Interface(link_type=link_type, name=link)
    for frame in frames:
        start = ip_start(frame.link_type, frame.data)
        if start is not None:
            yield frame._replace(data=header + frame.data[start:], interface=interface)


class _Waiting:
    """Frames that are seen later than they should; then they have the time of when they are seen."""

    def __init__(self) -> None:
        self._frames: list[tuple[int, Frame]] = []
        self._time_ns = 0

    def add(self, until: int, frame: Frame) -> None:
        """A frame waits until `until` frames have come."""
        self._frames.append((until, frame))

    def due(self, place: int, time_ns: int) -> list[Frame]:
        """Those whose place has come."""
        self._time_ns = max(self._time_ns, time_ns)
        ready = [frame for until, frame in self._frames if until <= place]
        self._frames = [entry for entry in self._frames if entry[0] > place]
        return [frame._replace(time_ns=self._time_ns) for frame in ready]

    def rest(self) -> list[Frame]:
        """Nothing more comes for the others to wait for."""
        return [frame._replace(time_ns=self._time_ns) for _, frame in self._frames]


def _noted(frame: Frame, comment: str) -> Frame:
    return frame._replace(comment=f"{frame.comment}; {comment}" if frame.comment else comment)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m captures.spoil", description="Make a capture worse.")
    parser.add_argument("source", type=Path, help="the capture to read")
    parser.add_argument("target", type=Path, help="what to write; .pcap is classic pcap, all else pcapng")
    parser.add_argument("--seed", type=int, default=0, help="what the dice are made from")
    parser.add_argument("--lose", type=float, default=0, metavar="PERCENT", help="frames that are not seen")
    parser.add_argument("--repeat", type=float, default=0, metavar="PERCENT", help="frames that come twice")
    parser.add_argument("--delay", type=float, default=0, metavar="PERCENT", help="frames that are overtaken")
    parser.add_argument("--skip", type=int, default=0, metavar="FRAMES", help="leave out the beginning")
    parser.add_argument("--snap", type=int, metavar="BYTES", help="cut each frame to this many bytes")
    parser.add_argument("--link", choices=[*HEADERS], help="another link layer")
    parser.add_argument("--parts", type=int, default=1, help="split it: target-1, target-2 and so on")
    options = parser.parse_args(arguments)
    try:
        _spoil(options)
    except (CaptureError, UsageError) as error:
        print(f"spoil: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"spoil: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _spoil(options: argparse.Namespace) -> None:
    frames: Iterable[Frame] = islice(read_capture(options.source), options.skip, None)
    frames = lost(frames, options.lose, options.seed)
    frames = repeated(frames, options.repeat, options.seed)
    frames = delayed(frames, options.delay, options.seed)
    if options.link is not None:
        frames = relinked(frames, options.link)
    if options.snap is not None:
        frames = shortened(frames, options.snap)
    if options.parts == 1:
        _write(options.target, frames)
        return
    held = list(frames)
    size = -(-len(held) // options.parts)
    for number in range(options.parts):
        name = f"{options.target.stem}-{number + 1}{options.target.suffix}"
        _write(options.target.with_name(name), held[number * size : (number + 1) * size])


def _write(target: Path, frames: Iterable[Frame]) -> None:
    with ExitStack() as held:
        file = held.enter_context(target.open("wb"))
        if target.suffix != ".pcap":
            writer = held.enter_context(PcapngWriter(file))
            for frame in frames:
                writer.write(frame)
            return
        classic = None
        for frame in frames:
            classic = classic or PcapWriter(file, link_type=frame.link_type)
            classic.write(frame)
        if classic is None:
            PcapWriter(file)


if __name__ == "__main__":
    sys.exit(main())
