"""Turns Arrow batches into lists of values, column by column, and back.

So no stage has to take a row apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.base.errors import FormatNameError
from mqproto.captures.decode.facts import NodeKey
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.tables.schemas.columns import CODED, type_of
from mqproto.formatname import DirectName, PrivateName, PublicName, parse_format_name
from mqproto.wire import (
    Guid,
    QueueName,
    TxSequenceId,
    guid_from_text,
    guid_text,
    message_identifier,
)

T = TypeVar("T")
N = TypeVar("N", bound=NamedTuple)
Batches = dict[str, pa.RecordBatch]
"""The output of a stage: some rows for each table."""

GUID_CHARACTERS: Final = 36
KEY_LIMIT: Final = 65_536
"""The maximum number of queue managers whose keys are remembered together with their texts."""


def values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return a column of numbers, lists, truth values or texts as a list, with None in place of null."""
    column = batch.column(name)
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_dictionary(column.type):
        return mapped(batch, name, str)
    if not column.null_count or pa.types.is_string(column.type):
        return _plain(column)
    if pa.types.is_list(column.type):
        found: list[Any] = column.to_pylist()
        return found
    filled = _plain(pc.fill_null(column, pa.scalar(0).cast(column.type)))
    for place in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
        filled[place] = None
    return filled


def mapped(batch: pa.RecordBatch, name: str, read: Callable[[str], T]) -> list[T | None]:
    """Return a column of texts as a list of what `read` makes of them, with None in place of null.

    Each distinct text is read only once.
    """
    column = batch.column(name)
    if column.null_count == len(column):
        return [None] * len(column)
    coded = column.dictionary_encode()
    known: list[T | None] = [read(text) for text in coded.dictionary.to_pylist()]
    known.append(None)
    return [known[place] for place in _plain(pc.fill_null(coded.indices, len(known) - 1))]


def records(kind: type[N], batch: pa.RecordBatch, /, **made: Iterable[Any]) -> Iterator[N]:
    """Yield the rows of a batch as named tuples of type `kind`.

    A field that is not in `made` is the column of the same name. This works like `kind._make`, but it calls no Python
    function for each tuple, because there is one for every packet.
    """
    columns = (made[name] if name in made else values(batch, name) for name in kind._fields)
    return map(partial(tuple.__new__, kind), zip(*columns, strict=True))


def coded(rows: pa.Table) -> pa.Table:
    """Return the rows, with the string columns that REPEATED names converted to CODED."""
    return rows.cast(pa.schema([(field.name, type_of(field.name, field.type)) for field in rows.schema]))


def mapped_texts(column: pa.Array, read: Callable[[str], str]) -> pa.Array:
    """Return a column of texts converted by `read`; null stays null.

    `read` is called only once for each distinct text.
    """
    coded = column.dictionary_encode()
    return pa.array(map(read, coded.dictionary.to_pylist()), CODED).take(coded.indices)


def mapped_flags(column: pa.Array, read: Callable[[str], bool]) -> pa.Array:
    """Return a column of strings converted to Booleans by `read`, called once for each distinct string."""
    coded = column.dictionary_encode()
    return pa.array(map(read, coded.dictionary.to_pylist()), pa.bool_()).take(coded.indices)


def integers(rows: pa.RecordBatch, name: str) -> Integers:
    """Return a column of numbers, with 0 in place of null."""
    found: Integers = pc.fill_null(rows.column(name), 0).to_numpy(zero_copy_only=False)
    return found


def codes(batch: pa.RecordBatch, names: Sequence[str]) -> Integers:
    """Return a number for each row, from 0, that is the same for rows with equal values in `names`."""
    found = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        coded = batch.column(name).dictionary_encode()
        codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
        # Renumbered each time, so the numbers stay small.
        found = np.unique(found * (len(coded.dictionary) + 1) + codes + 1, return_inverse=True)[1]
    return found


def _plain(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def batch_of(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows, given as tuples in the order of the schema's fields, as one batch."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches_of(schemas: Mapping[str, pa.Schema], rows: Mapping[str, list[tuple[Any, ...]]]) -> Batches:
    """Return batches for several tables; tables without rows are left out."""
    return {name: batch_of(schemas[name], found) for name, found in rows.items() if found}


def joined(batches: Mapping[str, list[pa.RecordBatch]]) -> Batches:
    """Return all rows of each table as one batch; if there is only one already, it is not copied."""
    return {name: some[0] if len(some) == 1 else pa.concat_batches(some) for name, some in batches.items()}


@lru_cache(KEY_LIMIT)
def key_text(key: NodeKey) -> str:
    """Return a queue manager's key as text: its GUID, or its address."""
    return key if isinstance(key, str) else guid_text(Guid(key))


@lru_cache(KEY_LIMIT)
def guid_of(text: str) -> Guid:
    """Return the GUID that a text in a table stands for."""
    return guid_from_text(text)


@lru_cache(KEY_LIMIT)
def key_of(text: str) -> NodeKey:
    """Return the queue manager's key that a text in a table stands for; no address looks like a GUID."""
    if len(text) == GUID_CHARACTERS and text.count("-") == 4:
        try:
            return guid_from_text(text)
        except ValueError:
            return text
    return text


def identifier_of(text: str) -> TxSequenceId:
    """Return a TxSequenceID, given its text as written by `mqproto.captures.decode.sequences.shown`."""
    time_stamp, _, ordinal = text.partition(":")
    return TxSequenceId(time_stamp=int(time_stamp), ordinal=int(ordinal))


def subject_of(correlation: str) -> tuple[Guid, int]:
    """Return the message that an administration acknowledgment is about.  [MS-MQMQ] 2.2.18.1.6"""
    about = message_identifier.decode(bytes.fromhex(correlation))
    return about.queue_manager_guid, about.ordinal


def queue_of(text: str) -> QueueName:
    """Return the DestinationQueue that a packet has, given the format name of a destination."""
    try:
        name = parse_format_name(text)
    except FormatNameError:
        return text  # It is not a format name, but a packet has it in the place of one.
    match name:
        case PrivateName(identifier=identifier):
            return identifier
        case PublicName(queue):
            return queue
        case DirectName():
            return name.wire_text
    return text


def message_of(text: str) -> tuple[Guid, int]:
    """Return a message's key, given its text as written by `mqproto.captures.decode.row.identifier_text`."""
    manager, _, ordinal = text.partition("\\")
    return guid_from_text(manager), int(ordinal)
