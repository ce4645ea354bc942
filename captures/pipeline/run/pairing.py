"""Finds the series of a run that are the halves of a TAP; one half may be a series that an earlier run has read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations

from mqproto.captures.files.frame import CaptureError
from mqproto.captures.files.series import series_name
from mqproto.captures.pipeline.reading.halves import Ways, ways_of
from mqproto.captures.pipeline.run.known import Known, ToRead, to_read
from mqproto.captures.pipeline.source.files import CaptureFile, Series, in_order, look_at
from mqproto.captures.pipeline.tables.parts import Store


def all_to_read(
    new: Iterable[Series],
    known: Mapping[str, Known],
    is_read: Callable[[CaptureFile], bool],
    store: Store,
) -> Iterator[ToRead]:
    """Yield the series to read, given those with new files; two halves of a TAP become one series.

    Earlier runs may have read a half on its own, or both halves as one. All files are then read again if they still
    exist. If not, the new files are read on their own.

    Args:
        new: the series of this run.
        known: the series of earlier runs.
        is_read: a function that returns whether an earlier series has a file.
        store: the store of the tables.
    """
    left = {series.name: series for series in new}
    for name, each in known.items():
        grown = [half for half in each.halves if half in left]
        if grown and (task := _together(name, each.halves, left, known, is_read)) is not None:
            yield task
            for half in grown:
                del left[half]
    ways = {name: ways_of(series.files) for name, series in left.items() if name not in known}
    one_way = {name for name, found in ways.items() if found}
    if one_way:
        # One of them may be the other half of a series that was read before.
        for name, each in known.items():
            if each.one_way and (files := _there(each)) is not None:
                ways[name] = ways_of(files)
    for one, other in _pairs(ways, one_way):
        task = _together(_free(_name_of(one, other), known), (one, other), left, known, is_read)
        if task is not None:
            yield task
            for half in (one, other):
                left.pop(half, None)
    for name, series in left.items():
        task = to_read(series, known, store)
        is_one_way = name in one_way or (name in known and known[name].one_way)
        yield task._replace(one_way=is_one_way)


def _pairs(ways: Mapping[str, Ways], one_way: set[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of series that belong together, beginning with those that share the most connections.

    At least one series of each pair is new.
    """
    shared = {
        pair: ways[pair[0]].belong_to(ways[pair[1]])
        for pair in combinations(sorted(ways), 2)
        if not one_way.isdisjoint(pair)
    }
    taken: set[str] = set()
    for pair in sorted(shared, key=lambda pair: (-shared[pair], pair)):
        if shared[pair] and taken.isdisjoint(pair):
            taken.update(pair)
            yield pair


def _together(
    name: str,
    halves: Iterable[str],
    left: Mapping[str, Series],
    known: Mapping[str, Known],
    is_read: Callable[[CaptureFile], bool],
) -> ToRead | None:
    """Return two series as one; None if some of their files no longer exist.

    Args:
        name: the name of the joined series, which may be known already.
    """
    found: list[tuple[CaptureFile, ...]] = []
    new = [file for half in halves if half in left for file in left[half].files if not is_read(file)]
    of_both = _there(known[name], new) if name in known else []
    for half in halves:
        earlier = _there(known[half], new) if half in known else []
        if earlier is None or of_both is None:
            return None
        files = (file for file in (*new, *of_both) if series_name(file.path) == half)
        found.append(in_order([*files, *earlier]))
    one, other = found
    replaced = tuple(half for half in halves if half in known)
    return ToRead(Series(name, (*one, *other)), None, known.get(name), (one, other), replaced)


def _there(known: Known, new: Iterable[CaptureFile] = ()) -> list[CaptureFile] | None:
    """Return the files of a series as they were read; None if any of them is gone or has changed.

    Args:
        new: files that will be read. They may include files of the series that have grown since then.
    """
    found = []
    grown = {file.path for file in new}
    with suppress(OSError, CaptureError):
        for fingerprint, path in known.files.items():
            if path in grown:
                continue
            file = look_at(path)
            if file.fingerprint != fingerprint:
                return None
            found.append(file)
        return found
    return None


def _name_of(one: str, other: str) -> str:
    folder, name = os.path.split(other)
    return f"{one} + {name if os.path.dirname(one) == folder else other}"


def _free(name: str, known: Mapping[str, Known]) -> str:
    """Return a name that is not taken: `name` itself or, if it is known, `name` with a number.

    A known name belongs to halves whose files are gone.
    """
    names = [name]
    while names[-1] in known:
        names.append(f"{name} ({len(names) + 1})")
    return names[-1]
