"""What was read last of a stream, to compare repetitions with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

COMPARED_BYTES: Final = 1 << 16
"""How much of what was read stays."""
COMPARED_COUNT: Final = 1_024
"""Nor may it be more pieces than this."""
PIECE_COST_BYTES: Final = 200
"""What keeping a piece costs beside its bytes."""


@dataclass(slots=True)
class Held:
    """How many bytes all directions together hold."""

    total_bytes: int = 0


class Recent:
    """The last pieces of a stream, each with its position, and no more of them than is worth it.

    Args:
        held: what all directions together hold; what is kept here counts.

    Attributes:
        known_from: nothing that was read before this position is known, though a reader of all that came before would
            know it; None where that reader would not either.
    """

    def __init__(self, held: Held) -> None:
        self.known_from: int | None = None
        self._held = held
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size_bytes = 0

    def add(self, position: int, data: bytes) -> None:
        """What was read behind all that was added before."""
        self._pieces.append((position, data))
        self._size_bytes += len(data)
        self._held.total_bytes += len(data) + PIECE_COST_BYTES
        self._drop(COMPARED_BYTES)

    def add_many(self, position: int, sizes: Sequence[int], payload: Callable[[int], bytes]) -> int:
        """Add pieces that lie one behind the other; only those are asked for that are to stay.

        Returns:
            The position behind them.
        """
        first, kept_bytes = len(sizes), 0
        while first and kept_bytes <= COMPARED_BYTES and len(sizes) - first <= COMPARED_COUNT:
            first -= 1
            kept_bytes += sizes[first]
        position += sum(sizes[:first])
        for place in range(first, len(sizes)):
            self._pieces.append((position, payload(place)))
            position += sizes[place]
        self._size_bytes += kept_bytes
        self._held.total_bytes += kept_bytes + PIECE_COST_BYTES * (len(sizes) - first)
        self._drop(COMPARED_BYTES)
        return position

    def contradicts(self, position: int, data: bytes) -> bool:
        """Whether bytes differ from what was read there, as far as that is known."""
        end = position + len(data)
        for at, known in reversed(self._pieces):
            if at + len(known) <= position:
                break
            first, last = max(at, position), min(at + len(known), end)
            if first < last and known[first - at : last - at] != data[first - position : last - position]:
                return True
        return False

    def forget(self, known_from: int | None) -> None:
        """Keep nothing."""
        self._drop(0)
        self.known_from = known_from

    def _drop(self, limit_bytes: int) -> None:
        pieces = self._pieces
        while pieces and (self._size_bytes > limit_bytes or len(pieces) > COMPARED_COUNT):
            _, oldest = pieces.popleft()
            self.known_from = None
            self._size_bytes -= len(oldest)
            self._held.total_bytes -= len(oldest) + PIECE_COST_BYTES
