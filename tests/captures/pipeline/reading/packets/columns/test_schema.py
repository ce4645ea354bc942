"""The columns of packets, and the table that is filled in piece by piece."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from mqproto.captures.decode.row import KEYS, PacketRow
from mqproto.captures.pipeline.reading.packets.columns import PACKET_SCHEMA
from mqproto.captures.pipeline.reading.packets.columns.schema import Table
from mqproto.captures.pipeline.tables.schemas.columns import CODED
from tests.captures.pipeline.reading.packets.columns.places import decoded
from tests.examples import EVERY_PACKET

TOLD_BY_OTHERS = {
    *("number", "frame", "first_frame", "file_offset", "time", "time_ns", "connection", "position"),
    *("missing_bytes", "skipped_bytes", "source", "destination", "source_address", "source_port"),
    *("destination_address", "destination_port", "received_packets", "received_count", "saved_packets"),
    *("saved_count", "session_number", "session_recoverable_number", "queue_name", "ended_packets"),
    *("ended_count", "findings", "ahead", "snapped_bytes", "cut_bytes"),
}
"""The columns that a packet itself does not determine: its location, and its relation to earlier packets."""


def test_the_columns_are_those_that_a_packet_says_by_itself_and_three_more() -> None:
    assert {*PACKET_SCHEMA.names} == {*KEYS} - TOLD_BY_OTHERS | {"own_findings", "digest", "body_offset"}


def test_the_types_are_those_of_the_rows() -> None:
    words = {"int": (pa.int32(), pa.int64()), "str": (pa.string(), CODED), "bool": (pa.bool_(),)}
    for field in dataclasses.fields(PacketRow):
        if field.name in PACKET_SCHEMA.names:
            kind = str(field.type).removesuffix(" | None")
            assert PACKET_SCHEMA.field(field.name).type in words[kind], field.name


def test_rows_without_a_value_are_null() -> None:
    table = Table(3)
    table.put("hop_count", np.array([2]), [7])
    table.put_items("queue", np.array([0, 2]), ["a", None], np.array([0, 1]))
    batch = table.batch()
    assert batch.schema == PACKET_SCHEMA
    assert batch["hop_count"].to_pylist() == [None, None, 7]
    assert batch["queue"].to_pylist() == ["a", None, None]
    assert batch["label"].to_pylist() == [None] * 3


def test_pieces_of_a_column_come_together_in_the_order_of_the_rows() -> None:
    table = Table(4)
    table.put_items("label", np.array([1, 3]), pa.array(["b", "d"]))
    table.put_items("label", np.array([0, 2]), ["same"], np.array([0, 0]))
    table.put("valid", np.array([0, 1, 2, 3]), True)
    table.put("valid", np.array([1]), False)
    batch = table.batch()
    assert batch["label"].to_pylist() == ["same", "b", "same", "d"]
    assert batch["valid"].to_pylist() == [True, False, True, True]


def test_a_column_of_which_every_row_has_its_own_text_is_that_array() -> None:
    table = Table(2)
    table.put_items("label", np.array([0, 1]), pa.array(["a", "b"]))
    assert table.batch()["label"].to_pylist() == ["a", "b"]


def test_every_number_of_the_examples_fits_its_column() -> None:
    rows = [decoded(packet) for packet in EVERY_PACKET]
    assert pa.RecordBatch.from_pylist(rows, PACKET_SCHEMA).to_pylist() == rows
