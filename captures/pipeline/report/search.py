"""Messages looked for among any number of them, by label or identifier, queue and host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.report.counts.messages import HISTORY
from mqproto.captures.pipeline.report.counts.queues import names_of
from mqproto.captures.pipeline.report.counts.scanning import batches
from mqproto.captures.pipeline.report.counts.sieve import (
    NO_BITS,
    Matches,
    Sieve,
    lowered,
    part_bits,
    whole_bits,
)
from mqproto.captures.pipeline.report.facts.words import harmless
from mqproto.captures.pipeline.tables.tables import Tables

TEXTS: Final = ("label", "message")
NAMES_LIMIT: Final = 10_000
"""How many queues are looked at for what people call them."""
_NARROW: Final = (*TEXTS, "queue", "route")


class Sought(NamedTuple):
    """What messages are to have: a part of each of these texts, whatever its case; an empty one is had by all.

    text: of label or identifier; those that have it as a whole, or an identifier that it ends, come alone if there
        are any.
    queue: of its format name, or of what people call it. host: of a queue manager on its way.
    """

    text: str = ""
    queue: str = ""
    host: str = ""


def asked(sought: Sought) -> str:
    """What is sought, in words."""
    names = {"label or identifier": sought.text, "queue": sought.queue, "host": sought.host}
    return ", ".join(f"{harmless(text)!r} in its {name}" for name, text in names.items() if text)


def prepare(tables: Tables) -> None:
    """Have what makes later searches fast; what is there already stays."""
    of_messages(tables).prepare()
    for table in ("hops", "duplicates"):
        Sieve(tables, table, ("message",)).prepare()


def of_messages(tables: Tables) -> Sieve:
    """By label and identifier."""
    return Sieve(tables, "histories", TEXTS, TEXTS)


def named(tables: Tables, sought: Sought, limit: int) -> list[dict[str, Any]]:
    """The histories of messages that have what is sought, `limit` at most, in the order of the table."""
    # What is typed in a shell may be no text.
    sought = Sought(*(each.encode("utf-8", "replace").decode() for each in sought))
    also = _also(tables, sought)
    text = sought.text
    if not text:
        return _first(tables, [NO_BITS], also, limit)

    def is_named(batch: pa.RecordBatch) -> Any:
        return pc.and_(_is_named(batch, text), also(batch))

    def has_part(batch: pa.RecordBatch) -> Any:
        return pc.and_(_has_part(batch, TEXTS, text), also(batch))

    exact = [whole_bits(pa.array([text], pa.string())), part_bits(f"\\{text}")]
    return _first(tables, exact, is_named, limit) or _first(tables, [part_bits(text)], has_part, limit)


def _first(tables: Tables, ways: Sequence[Any], matches: Matches, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in of_messages(tables).rows(HISTORY, ways, _NARROW, matches):
        found += batch.slice(0, limit - len(found)).to_pylist()
        if len(found) == limit:
            break
    return found


def _is_named(batch: pa.RecordBatch, text: str) -> Any:
    identifier = batch.column("message")
    numbered = pc.ends_with(identifier, f"\\{text}")
    named = pc.or_kleene(pc.equal(batch.column("label"), text), pc.equal(identifier, text))
    return pc.fill_null(pc.or_kleene(named, numbered), False)


def _has_part(batch: pa.RecordBatch, columns: Sequence[str], text: str) -> Any:
    wanted = lowered(pa.array([text], pa.string()))[0].as_py()
    found = pa.array(np.zeros(batch.num_rows, dtype=np.bool_))
    for name in columns:
        found = pc.or_kleene(found, pc.match_substring(lowered(batch.column(name)), wanted))
    return pc.fill_null(found, False)


def _also(tables: Tables, sought: Sought) -> Matches:
    """Whether a message goes to the queue, and over the host, that are sought."""
    called = pa.array(_queues_called(tables, sought.queue) if sought.queue else [], pa.string())

    def matches(batch: pa.RecordBatch) -> Any:
        found = pa.array(np.ones(batch.num_rows, dtype=np.bool_))
        if sought.queue:
            is_called = pc.is_in(batch.column("queue"), value_set=called)
            found = pc.and_(found, pc.or_(_has_part(batch, ("queue",), sought.queue), is_called))
        if sought.host:
            found = pc.and_(found, _is_over(batch.column("route"), sought.host))
        return found

    return matches


def _is_over(routes: pa.Array, host: str) -> Any:
    """Whether a label of each route has this part."""
    labels = pa.RecordBatch.from_arrays([routes.flatten()], ["label"])
    rows = pc.list_parent_indices(routes).to_numpy(zero_copy_only=False)
    found = np.zeros(len(routes), dtype=np.bool_)
    found[rows[_has_part(labels, ("label",), host).to_numpy(zero_copy_only=False)]] = True
    return pa.array(found)


def _queues_called(tables: Tables, text: str) -> list[str]:
    """The format names of the queues that people call so; what they are called stands with their packets."""
    first: dict[str, tuple[str, int]] = {}
    for batch in batches(tables, "histories", ("queue", "series", "row_id")):
        encoded = batch.column("queue").dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, place in zip(*np.unique(codes, return_index=True), strict=True):
            if code >= 0 and len(first) < NAMES_LIMIT:
                row = batch.slice(int(place), 1).to_pylist()[0]
                if row["row_id"] is not None:
                    first.setdefault(row["queue"], (row["series"], row["row_id"]))
    return [queue for queue, called in names_of(tables, first).items() if text.lower() in called.lower()]
