"""Records from files that people write. A misspelt key must not be ignored: a default would take its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

Entry = TypeVar("Entry")


def strictly(table: object, kind: type[Entry]) -> Entry:
    """Convert a table to a record.

    Raises:
        msgspec.ValidationError: a key is missing or unknown, or a value is not valid.
    """
    record = msgspec.convert(table, kind)
    for key, known in _unknown(table, msgspec.to_builtins(record)):
        raise msgspec.ValidationError(f"unknown key {key!r}; there is {', '.join(known)}")
    return record


def _unknown(given: Any, taken: Any) -> Iterator[tuple[str, Iterable[str]]]:
    if isinstance(given, dict):
        yield from ((key, taken) for key in given if key not in taken)
        for key in given.keys() & taken.keys():
            yield from _unknown(given[key], taken[key])
    elif isinstance(given, list):
        for each, its in zip(given, taken, strict=True):
            yield from _unknown(each, its)
