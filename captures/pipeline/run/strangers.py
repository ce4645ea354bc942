"""Recognizes series from a system other than that of the tables; see mqproto.captures.decode.systems."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow.compute as pc

from mqproto.captures.decode.systems import APART, LOOK_COUNT, Systems
from mqproto.captures.files.frame import CaptureError
from mqproto.captures.pipeline.run.known import Known
from mqproto.captures.pipeline.run.work import Work
from mqproto.captures.pipeline.tables.lists import values
from mqproto.captures.pipeline.tables.parts import Store, parquet

ROWS: Final = 8_192
ROW_LIMIT: Final = 65_536
"""The maximum number of rows searched for messages that leave their sources."""


class OtherSystemError(CaptureError):
    """A capture from a system other than the one in the tables; it is undamaged, but is not read."""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


def apart(
    works: Sequence[Work], known: Mapping[str, Known], store: Store
) -> tuple[list[Work], list[CaptureError]]:
    """Return the series that may come from the same system as earlier ones, and why the others are not read.

    Args:
        works: series whose packets are written.
        store: the store of the tables.
    """
    if len(known) + len(works) < 2:
        return list(works), []
    systems = Systems()
    for name, each in known.items():
        systems.add(name, _contents(store.path(part) for part, _, _ in each.packets))
    left: list[Work] = []
    strangers: list[CaptureError] = []
    for work in works:
        is_new = work.known is None and not work.replaces and work.series.name not in known
        contents = _contents(work.packet_paths) if is_new else {}
        clash = systems.clash(contents)
        if clash is None:
            systems.add(work.series.name, contents)
            left.append(work)
            continue
        other, why = clash
        reason = f"{APART} {other}: {why}; analyse it into another folder"
        strangers += (OtherSystemError(file.path, 0, reason) for file in work.files)
    return left, strangers


def _contents(paths: Iterable[str]) -> dict[Hashable, int]:
    """Return digests of the first messages that are just leaving their sources, keyed by message identifier."""
    found: dict[Hashable, int] = {}
    for message, digest in _leaving(paths):
        found.setdefault(message, digest)
        if len(found) == LOOK_COUNT:
            break
    return found


def _leaving(paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    rows = 0
    for path in paths:
        with parquet(path) as part:
            for batch in part.iter_batches(ROWS, columns=["message", "digest", "hop_count"]):
                # A packet with only its beginning has no digest.
                told = pc.and_(batch.column("message").is_valid(), batch.column("digest").is_valid())
                wanted = pc.and_(pc.equal(batch.column("hop_count"), 0), told)
                chosen = batch.filter(wanted)
                yield from zip(values(chosen, "message"), values(chosen, "digest"), strict=True)
                rows += batch.num_rows
                if rows >= ROW_LIMIT:
                    return
