"""The columns that are written are the declared ones, and the documentation page and Delta Lake describe them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.tables.schemas.columns import columns
from mqproto.captures.pipeline.tables.schemas.tables import RUNS, TABLES
from mqproto.captures.pipeline.tables.tables import Tables
from tests.conformance import ROOT

SAMPLES = ROOT / "captures" / "samples"
ALL = {**TABLES, "runs": RUNS}


def test_what_is_written_is_what_is_declared_with_its_type_its_unit_and_its_meaning(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    analyse([str(SAMPLES / "gap-held.pcapng")], tables, LocalEngine())
    assert {path.parent.parent.name for path in tmp_path.glob("*/_delta_log/*0.json")} == set(ALL)
    for name, declared in ALL.items():
        of_delta = pa.schema(DeltaTable(tmp_path / name).schema())
        assert of_delta.names == declared.schema.names
        for field, column in zip(of_delta, declared.columns, strict=True):
            assert field.metadata == {b"comment": column.comment.encode()}, (name, field.name)
        parts = list((tmp_path / name).glob("*.parquet"))
        for path in parts:
            assert pq.read_schema(path).equals(declared.written), path
        assert parts or name == "clocks"  # The sample has one capture point.


@pytest.mark.parametrize("name", ALL)
def test_each_column_is_there_once_and_means_something(name: str) -> None:
    table = ALL[name]
    assert len(set(table.schema.names)) == len(table.columns)
    assert table.about.endswith(".")
    for column in table.columns:
        assert len(column.meaning) > 7 or column.meaning in ("of TCP", "the last"), column.name
        ends = {
            "ns": "nanoseconds",
            "ms": "milliseconds",
            "s": "seconds",
            "bytes": "bytes",
            "ppb": "billionths",
        }
        end = column.name.rpartition("_")[2] if "_" in column.name else ""
        is_number = pa.types.is_integer(column.type) or column.type == pa.list_(pa.int64())
        assert column.unit == (ends.get(end, "") if is_number else column.unit), column.name


def test_texts_may_have_blanks_and_go_on_on_further_lines() -> None:
    found = columns("{end}_ns integer  when it\n    was\nname, other text  what it is\n", end="last")
    assert [(each.name, each.type, each.unit, each.meaning) for each in found] == [
        ("last_ns", pa.int64(), "nanoseconds", "when it was"),
        ("name", pa.string(), "", "what it is"),
        ("other", pa.string(), "", "what it is"),
    ]
    with pytest.raises(KeyError, match="no"):
        columns("of no type")
