"""Damages captures on purpose, in the ways that sniffers and networks do, to test capture readers.

    python -m mqproto.captures.spoil whole.pcapng worse.pcapng --seed 7 --lose 5 --delay 10

Each function takes frames and yields frames, one at a time. Shares are given in percent. The same seed damages a
capture in the same way on any machine and with any version of Python. A frame's comment says what was done to it,
unless the frame was dropped.
"""

from mqproto.captures.spoil.command import main
from mqproto.captures.spoil.frames import (
    HEADERS,
    cut,
    delayed,
    dice,
    lost,
    relinked,
    repeated,
    shortened,
    shuffled,
    swapped,
    with_other_bit,
)
from mqproto.captures.spoil.points import at_hosts, bonded, halved, skewed, translated
from mqproto.captures.spoil.segments import coalesced, late_syns, placed, segmented, summed, written

__all__ = [
    "HEADERS",
    "at_hosts",
    "bonded",
    "coalesced",
    "cut",
    "delayed",
    "dice",
    "halved",
    "late_syns",
    "lost",
    "main",
    "placed",
    "relinked",
    "repeated",
    "segmented",
    "shortened",
    "shuffled",
    "skewed",
    "summed",
    "swapped",
    "translated",
    "with_other_bit",
    "written",
]
