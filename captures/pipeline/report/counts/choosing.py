"""Which of any number of keys are worth a row: those that occur most, and those with the largest of something.

Names of queues and queue managers are what strangers write, so there may be as many as there are messages. What is
kept is bounded all the same, and no key is passed over that has one of the largest numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

Key = tuple[Any, ...]
ROOM: Final = 4
"""How many times as many keys are kept under way as are wanted at the end."""


class Leaders:
    """Keys, with how often each occurred, and the largest of each of some numbers.

    By the largest of a number the choice is exact, however many keys come. By how often they occurred it is where
    no more than ROOM times the limit come; beyond, one that is seldom among the first may be missed.

    Args:
        limit: how many of each are wanted.
        numbers: how many numbers each key has.
    """

    def __init__(self, limit: int, numbers: int) -> None:
        self._limit = limit
        self._counts: dict[Key, int] = {}
        self._largest: list[dict[Key, int]] = [{} for _ in range(numbers)]

    def take(self, keys: Sequence[Key], counts: Any, *largest: Any) -> None:
        """Some keys, each once: how often it occurred, and the largest of each number; below 0 if it has none."""
        for key, count in zip(keys, counts.tolist(), strict=True):
            self._counts[key] = self._counts.get(key, 0) + count
        for known, values in zip(self._largest, largest, strict=True):
            for key, value in zip(keys, values.tolist(), strict=True):
                if value >= 0 and value > known.get(key, -1):
                    known[key] = value
        self._counts = self._kept(self._counts, ROOM * self._limit)
        self._largest = [self._kept(known, ROOM * self._limit) for known in self._largest]

    def __len__(self) -> int:
        """For how much there is something kept."""
        return len(self._counts) + sum(map(len, self._largest))

    def chosen(self) -> list[Key]:
        """Those that are worth a row: the first of each, most frequent ones first."""
        every = [self._counts, *self._largest]
        return list(dict.fromkeys(key for known in every for key in self._first(known)))

    def _kept(self, known: dict[Key, int], room: int) -> dict[Key, int]:
        return {key: known[key] for key in self._first(known)} if len(known) > room else known

    def _first(self, known: dict[Key, int]) -> list[Key]:
        return heapq.nsmallest(self._limit, known, key=lambda key: (-known[key], key))


def keyed(batch: pa.RecordBatch, names: Sequence[str]) -> tuple[list[Key], Any]:
    """What rows have in some columns of text, each once; and which of these each row has."""
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
    _, first, places = np.unique(codes, return_index=True, return_inverse=True)
    rows = batch.select(list(names)).take(pa.array(first)).to_pylist()
    return [tuple(row[name] or "" for name in names) for row in rows], places


def largest(places: Any, values: Any, where: Any, count: int) -> Any:
    """The largest value at each place; -1 where there is none."""
    found = np.full(count, -1, dtype=np.int64)
    np.maximum.at(found, places[where], np.maximum(values[where], 0))
    return found


def each_of(
    batch: pa.RecordBatch, names: Sequence[str], place_of: Callable[[Key], int]
) -> tuple[Any, Iterator[tuple[int, Any]]]:
    """The places of all rows by their keys, -1 for those of no interest; and the rows of each place, ascending."""
    keys, codes = keyed(batch, names)
    places = np.array([place_of(key) for key in keys], dtype=np.int64)[codes]
    return places, _split(places)


def _split(places: Any) -> Iterator[tuple[int, Any]]:
    order = np.argsort(places, kind="stable")
    edges = np.flatnonzero(np.diff(places[order])) + 1
    for rows in np.split(order, edges):
        if len(rows) and places[rows[0]] >= 0:
            yield int(places[rows[0]]), rows
