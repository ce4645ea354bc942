"""`python -m mqproto.captures.spoil`: reads one capture and writes one or several damaged ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import NANOSECONDS, CaptureError, Frame
from mqproto.captures.files.pcap import PcapWriter, read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.spoil.frames import HEADERS, cut, delayed, lost, relinked, repeated, shortened, swapped
from mqproto.captures.spoil.points import at_hosts, halved, skewed, translated
from mqproto.captures.spoil.segments import coalesced, late_syns, segmented

SHARES: Final = {
    "coalesce": "segments that are joined to the one before them",
    "late-syn": "SYNs that are seen behind what came after them",
    "lose": "frames that are not seen",
    "repeat": "frames that come twice",
    "swap": "frames that change places with the next one",
    "delay": "frames that are overtaken",
}
"""The kinds of damage that hit only some frames, each with its description."""
LATE_NS: Final = 20_000
"""The time, in nanoseconds, that a host takes to forward a packet with a translated address."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m mqproto.captures.spoil", description="Make a capture worse."
    )
    parser.add_argument("source", type=Path, help="the capture to read")
    parser.add_argument("target", type=Path, help="what to write; .pcap is classic pcap, all else pcapng")
    parser.add_argument("--seed", type=int, default=0, help="what the dice are made from")
    parser.add_argument("--segment", type=int, metavar="BYTES", help="cut segments that are longer")
    for name, what in SHARES.items():
        parser.add_argument(f"--{name}", type=float, default=0, metavar="PERCENT", help=what)
    parser.add_argument("--skip", type=int, default=0, metavar="FRAMES", help="leave out the beginning")
    parser.add_argument("--stop", type=int, default=0, metavar="FRAMES", help="leave out the end")
    points = parser.add_mutually_exclusive_group()
    points.add_argument("--tap", action="store_true", help="an interface for each way between two hosts")
    points.add_argument("--hosts", action="store_true", help="an interface at each host")
    points.add_argument(
        "--translate", action="store_true", help="both sides of a host that translates addresses"
    )
    parser.add_argument(
        "--offset",
        type=float,
        default=0,
        metavar="SECONDS",
        help="how far all clocks but the first are ahead",
    )
    parser.add_argument("--drift", type=float, default=0, metavar="PPM", help="how much they gain")
    parser.add_argument("--snap", type=int, metavar="BYTES", help="cut each frame to this many bytes")
    parser.add_argument("--link", choices=[*HEADERS], help="another link layer")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--parts", type=int, default=1, help="split it: target-1, target-2 and so on")
    files.add_argument("--apart", action="store_true", help="such a file for each interface")
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
    seed = options.seed
    frames: Iterable[Frame] = coalesced(read_capture(options.source), options.coalesce, seed)
    if options.segment is not None:
        frames = segmented(frames, options.segment)
    frames = late_syns(frames, options.late_syn, seed)
    if options.hosts:
        frames = at_hosts(frames)
    frames = cut(frames, options.skip, options.stop)
    frames = lost(frames, options.lose, seed)
    frames = repeated(frames, options.repeat, seed)
    frames = swapped(frames, options.swap, seed)
    frames = delayed(frames, options.delay, seed)
    if options.tap:
        frames = halved(frames)
    if options.translate:
        frames = translated(frames, LATE_NS)
    if options.link is not None:
        frames = relinked(frames, options.link)
    if options.snap is not None:
        frames = shortened(frames, options.snap)
    if options.offset or options.drift:
        frames = list(frames)
        for number in sorted({frame.interface.number for frame in frames} - {0}):
            frames = skewed(frames, round(options.offset * NANOSECONDS), options.drift, {number})
    if options.apart:
        held = list(frames)
        numbers = sorted({frame.interface.number for frame in held})
        parts = [[frame for frame in held if frame.interface.number == number] for number in numbers]
    elif options.parts > 1:
        held = list(frames)
        size = -(-len(held) // options.parts)
        parts = [held[number * size : (number + 1) * size] for number in range(options.parts)]
    else:
        _write(options.target, frames)
        return
    for number, part in enumerate(parts, 1):
        _write(options.target.with_name(f"{options.target.stem}-{number}{options.target.suffix}"), part)


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
