"""The inputs of a fuzzer: valid inputs to begin with, and ways to make other inputs from them.

`Packets` knows the layouts of the protocol. `Writings` knows only bytes and a few words of a format, and serves
everything that is not a packet: XML, streams of objects, hex dumps.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from mqproto.simulator.fuzz.mutations import Mutant, counted, mutants, mutate
from mqproto.simulator.fuzz.parser.seeds import generated

LARGEST_WRITING: Final = 65_536
"""The maximum length of an input, in bytes. Longer inputs are cut off, because unbounded growth is visible at this
size, too.
"""
TIMES: Final = (2, 3, 17, 130, 1_000)
"""How many times a part may be repeated.

This is enough to exceed small limits, and the nesting depth that readers allow.
"""
_NUMBERS: Final = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63,
    2**64 - 1,
)


class Material(Protocol):
    """Inputs for one parser.

    seeds: valid inputs.
    """

    seeds: Sequence[bytes]

    def singles(self, seed: bytes) -> Iterator[Mutant]:
        """Yield every useful single mutation of a seed, in a fixed order."""

    def mutant(self, data: bytes, dice: random.Random) -> Mutant:
        """Return a random mutation of an input."""

    def generated(self, dice: random.Random) -> bytes:
        """Return a random valid input."""


class Packets:
    """Packets, which are mutated according to their layouts."""

    def __init__(self, seeds: Sequence[bytes]) -> None:
        self.seeds = seeds

    def singles(self, seed: bytes) -> Iterator[Mutant]:
        return mutants(seed)

    def mutant(self, data: bytes, dice: random.Random) -> Mutant:
        return mutate(data, dice)

    def generated(self, dice: random.Random) -> bytes:
        return generated(dice)


class Writings:
    """Inputs in any other format.

    Args:
        seeds: valid inputs.
        words: bytes that mean something in this format.
        draw: makes a valid input.
    """

    def __init__(
        self, seeds: Sequence[bytes], words: Sequence[bytes], draw: Callable[[random.Random], bytes]
    ) -> None:
        self.seeds = seeds
        self.words = words
        self._draw = draw

    def singles(self, seed: bytes) -> Iterator[Mutant]:
        for at in range(len(seed)):
            yield Mutant(f"truncated to {at} bytes", "truncated", seed[:at])
            yield Mutant(f"byte {at} removed", "removed", seed[:at] + seed[at + 1 :])
            for bit in range(8):
                flipped = bytes((seed[at] ^ 1 << bit,))
                yield Mutant(f"bit {bit} of byte {at} flipped", "bit", seed[:at] + flipped + seed[at + 1 :])
        for at in range(len(seed) + 1):
            for word in self.words:
                yield Mutant(f"{word!r} at byte {at}", "word", seed[:at] + word + seed[at:])

    def mutant(self, data: bytes, dice: random.Random) -> Mutant:
        names = []
        for _ in range(dice.choice((1, 1, 2, 3, 5))):
            kind, name, data = self._once(data, dice)
            names.append(name)
        return Mutant("; ".join(names), kind, data[:LARGEST_WRITING])

    def generated(self, dice: random.Random) -> bytes:
        return self._draw(dice)

    def _once(self, data: bytes, dice: random.Random) -> tuple[str, str, bytes]:
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.choice((1, 2, 4, 8, 30, 200)))
        before, part, after = data[:at], data[at:end], data[end:]
        match dice.randrange(8):
            case 0:
                return "truncated", f"truncated to {at} bytes", before
            case 1:
                return "removed", f"{counted(len(part))} removed at byte {at}", before + after
            case 2:
                other = bytes((dice.randrange(256),))
                return "byte", f"byte {at} = {other.hex()}", before + other + data[at + 1 :]
            case 3:
                word = dice.choice(self.words)
                return "word", f"{word!r} at byte {at}", before + word + data[at:]
            case 4:
                word = dice.choice(self.words)
                return "word", f"{word!r} for {counted(len(part))} at byte {at}", before + word + after
            case 5:
                times = dice.choice(TIMES)
                name = f"{counted(len(part))} at byte {at} {times} times"
                return "repeated", name, before + part * times + after
            case 6:
                form, size = dice.choice((("<H", 2), ("<I", 4), (">I", 4), ("<Q", 8)))
                number = struct.pack(form, dice.choice(_NUMBERS) & 256**size - 1)
                return "number", f"{number.hex()} at byte {at}", before + number + data[at + size :]
            case _:
                other = dice.choice(self.seeds)
                start = dice.randrange(len(other) + 1)
                name = f"from byte {at} on, another one from its byte {start} on"
                return "spliced", name, before + other[start:]
