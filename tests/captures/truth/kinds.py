"""The ways to damage captures: each kind of damage by its name, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from mqproto.captures import spoil
from mqproto.captures.files.frame import Frame
from mqproto.captures.net.tcp import FIN, RST, SYN
from tests.captures.frames import shakes_hands
from tests.captures.truth.saying import Series

Files: TypeAlias = list[list[Frame]]
"""The frames of each file, with the numbers that they have in the whole capture."""

SECOND_NS: Final = 10**9
MILLISECOND_NS: Final = 10**6
LENGTHS: Final = (300, 536, 1_448)
"""The lengths of segments on the smallest links and on Ethernet."""


def _lost(percent: float) -> Callable[[list[Frame], int], Files]:
    return lambda frames, seed: [list(spoil.lost(frames, percent, seed))]


def _swapped(percent: float) -> Callable[[list[Frame], int], Files]:
    return lambda frames, seed: [list(spoil.swapped(frames, percent, seed))]


def _shuffled(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.shuffled(frames, 24, seed))]


def _late(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.delayed(frames, 5, seed))]


def _twice(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.repeated(frames, 5, seed))]


def _damaged(frames: list[Frame], seed: int) -> Files:
    """Let a wire damage some frames, which are sent again.

    All frames have checksums, because a wire carries no frame without one.
    """
    return [list(spoil.repeated(map(spoil.summed, frames), 5, seed, damaged=True))]


def _bursts(frames: list[Frame], seed: int) -> Files:
    """Make the sniffer miss everything for short periods, as if its buffer were full."""
    chance = spoil.dice(seed, "bursts")
    moments = [
        (frames[chance.randrange(len(frames))].time_ns, chance.randrange(50, 500) * MILLISECOND_NS)
        for _ in range(max(2, len(frames) // 300) if frames else 0)
    ]
    return [
        [frame for frame in frames if not any(0 <= frame.time_ns - since_ns < ns for since_ns, ns in moments)]
    ]


def _mirrored(frames: list[Frame], seed: int) -> Files:
    """Make a switch's port show each frame twice: as it comes in, and as it goes out up to 30 ms later."""
    late_ns = spoil.dice(seed, "mirror").choice((2_000, 500_000, 5 * MILLISECOND_NS, 30 * MILLISECOND_NS))
    copies = [frame._replace(time_ns=frame.time_ns + late_ns) for frame in frames]
    return [sorted([*frames, *copies], key=lambda frame: frame.time_ns)]


def _filtered(frames: list[Frame], seed: int) -> Files:
    """Apply a capture filter that passes data, but no frames that open or end connections."""
    placed = [(frame, spoil.placed(frame)) for frame in frames]
    return [[frame for frame, place in placed if place is None or not place.flags & (SYN | FIN | RST)]]


def _stepped(frames: list[Frame], seed: int) -> Files:
    """Correct the sniffer's clock somewhere in the middle of the capture: by seconds, or by an hour."""
    chance = spoil.dice(seed, "step")
    place, step_ns = chance.randrange(len(frames)), chance.choice((-3_600, -3, 2, 100)) * SECOND_NS
    return [[*frames[:place], *spoil.skewed(frames[place:], step_ns)]]


def _begun_late(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.cut(frames, start=spoil.dice(seed, "start").randrange(1, len(frames) // 2)))]


def _ended_early(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.cut(frames, end=spoil.dice(seed, "end").randrange(1, len(frames) // 2)))]


def _snapped(size_bytes: int) -> Callable[[list[Frame], int], Files]:
    return lambda frames, seed: [list(spoil.shortened(frames, size_bytes))]


def _late_syns(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.late_syns(frames, 50, seed))]


def _offloaded(frames: list[Frame], seed: int) -> list[Frame]:
    chance = spoil.dice(seed, "offload")
    joined = spoil.coalesced(frames, chance.choice((30, 70, 100)), seed)
    return list(spoil.segmented(joined, chance.choice(LENGTHS)))


def _joined(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.coalesced(frames, 100, seed))]


def _cut_up(frames: list[Frame], seed: int) -> Files:
    return [_offloaded(frames, seed)]


def _cut_up_and_lost(frames: list[Frame], seed: int) -> Files:
    return [list(spoil.lost(_offloaded(frames, seed), 1, seed))]


def _halves(frames: Iterable[Frame], seed: int) -> list[Frame]:
    """Apply a TAP; the clock of one half may be ahead or behind by seconds."""
    offset_ns = spoil.dice(seed, "offset").choice((0, 0, -3, 2)) * SECOND_NS
    return list(spoil.skewed(spoil.halved(frames), offset_ns, 0, {1}))


def _tap(frames: list[Frame], seed: int) -> Files:
    return [_halves(frames, seed)]


def _tap_apart(frames: list[Frame], seed: int) -> Files:
    return apart(_halves(frames, seed))


def _bonded(frames: list[Frame], seed: int) -> Files:
    """Apply a bond whose two interfaces take turns: segment by segment, or for each connection and direction."""
    by_connection = bool(spoil.dice(seed, "bonded").randrange(2))
    return [list(spoil.bonded(frames, seed, by_connection=by_connection))]


def _one_way(frames: list[Frame], seed: int) -> Files:
    way = spoil.dice(seed, "way").randrange(2)
    return [[frame for frame in spoil.halved(frames) if frame.interface.number == way]]


def _hosts(frames: list[Frame], seed: int) -> Files:
    """Put a sniffer at each host, each with its own clock."""
    chance = spoil.dice(seed, "clocks")
    caught: Iterable[Frame] = list(spoil.at_hosts(frames))
    for number in sorted({frame.interface.number for frame in caught}):
        offset_ns = round(chance.uniform(-5, 5) * SECOND_NS)
        caught = list(spoil.skewed(caught, offset_ns, chance.uniform(-100, 100), {number}))
    return [list(caught)]


def _hosts_and_lost(frames: list[Frame], seed: int) -> Files:
    """Put a sniffer at each host; some handshake frames are seen at only one of two hosts."""
    chance = spoil.dice(seed, "handshakes")
    (caught,) = _hosts(frames, seed)
    return [[frame for frame in caught if not shakes_hands(frame) or chance.randrange(8)]]


def _translated(frames: list[Frame], seed: int) -> Files:
    """Apply a host that translates addresses; frames are caught on both sides of it.

    They are caught either by one interface for both sides, or by one interface for each side.
    """
    chance = spoil.dice(seed, "translated")
    late_ns = chance.choice((2_000, 50_000, 500_000))  # An answer comes later than that.
    return [list(spoil.translated(frames, late_ns, apart=bool(chance.randrange(2))))]


def _translated_and_lost(frames: list[Frame], seed: int) -> Files:
    """Apply a host that translates addresses; most frames are caught on both sides of it, but some are lost."""
    return [list(spoil.lost(_translated(frames, seed)[0], 1, seed))]


def _everything(frames: list[Frame], seed: int) -> Files:
    worse: Iterable[Frame] = spoil.late_syns(_offloaded(frames, seed), 20, seed)
    start = spoil.dice(seed, "start").choice((0, 0, len(frames) // 10))
    worse = spoil.lost(spoil.cut(worse, start=start), 0.5, seed)
    worse = spoil.delayed(spoil.swapped(spoil.repeated(worse, 1, seed), 1, seed), 1, seed)
    if spoil.dice(seed, "tap").randrange(2):
        return [_halves(worse, seed)]
    return [list(worse)]


def _ring(frames: list[Frame], seed: int, *, lost: int = 0) -> Series:
    """Make the sniffer begin a new file from time to time; the files are in any order, and `lost` of them are gone."""
    chance = spoil.dice(seed, "ring")
    cuts = sorted(chance.sample(range(1, len(frames)), 4))
    files = [frames[start:end] for start, end in pairwise([0, *cuts, len(frames)])]
    chance.shuffle(files)
    return Series(files[lost:])


def apart(frames: Sequence[Frame]) -> Files:
    """Return a file for each interface."""
    numbers = sorted({frame.interface.number for frame in frames})
    return [[frame for frame in frames if frame.interface.number == number] for number in numbers]


KINDS: Final[dict[str, Callable[[list[Frame], int], Files]]] = {
    "nothing": lambda frames, seed: [frames],
    "0.1 % lost": _lost(0.1),
    "0.5 % lost": _lost(0.5),
    "2 % lost": _lost(2),
    "10 % lost": _lost(10),
    "bursts lost": _bursts,
    "1 % swapped": _swapped(1),
    "20 % swapped": _swapped(20),
    "shuffled": _shuffled,
    "5 % late": _late,
    "5 % twice": _twice,
    "5 % damaged, sent again": _damaged,
    "mirrored": _mirrored,
    "no handshakes": _filtered,
    "clock put right": _stepped,
    "begins late": _begun_late,
    "ends early": _ended_early,
    "late SYNs": _late_syns,
    "joined": _joined,
    "cut up": _cut_up,
    "cut up, 1 % lost": _cut_up_and_lost,
    "TAP": _tap,
    "TAP, two files": _tap_apart,
    "bond": _bonded,
    "one way only": _one_way,
    "at each host": _hosts,
    "at each host, handshakes lost": _hosts_and_lost,
    "address translation": _translated,
    "address translation, 1 % lost": _translated_and_lost,
    "snaplen 96": _snapped(96),
    "snaplen 300": _snapped(300),
    "rotated": _ring,
    "rotated, a file gone": lambda frames, seed: _ring(frames, seed, lost=1),
    "everything": _everything,
}
"""The kinds of damage: functions that take the frames of a whole capture and a seed, and return files."""
