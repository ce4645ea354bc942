"""The tables of captures as DataFrames, in any session, wherever the tables are."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqproto.base.errors import UsageError
from mqproto.captures.packets import read_packets
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.captures.spark import read
from tests.captures.pipeline.objects import BUCKET, ObjectStore
from tests.captures.pipeline.samples import elsewhere
from tests.conformance import ROOT
from tests.test_readme import blocks, how_to

pytestmark = pytest.mark.xdist_group("spark")

SAMPLES = ROOT / "captures" / "samples"


def test_nothing_is_read_before_a_table_is_asked_for_and_a_query_reads_the_columns_it_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "{a,b} [1]"
    told = read(spark, str(tmp_path / "*.pcapng"), tables=str(place))
    path = elsewhere("gap-held", tmp_path, 1)
    assert not place.exists()
    acknowledged = told.histories.where("order_acked_ns IS NOT NULL").select("label", "outcome")
    with redirect_stdout(StringIO()) as plan:
        acknowledged.explain()
    assert "PushedFilters: [IsNotNull(order_acked_ns)]" in plan.getvalue()
    assert "ReadSchema: struct<label:string,order_acked_ns:bigint,outcome:string>" in plan.getvalue()
    assert {row.outcome for row in acknowledged.collect()} == {"confirmed"}
    alone = Tables(tmp_path / "alone")
    analyse([str(path)], alone, LocalEngine())
    for name in dir(told):
        both = getattr(told, name).toArrow(), alone.read(name)
        made, expected = (sorted(map(repr, each.to_pylist(maps_as_pydicts="strict"))) for each in both)
        assert made == expected

    # And as each run left them.
    analyse([str(elsewhere("window", tmp_path, 2))], Tables(place), LocalEngine())
    counts = [read(spark, str(place), run=run).histories.count() for run in (1, None)]
    assert counts == [Tables(place, run).rows("histories") for run in (1, None)] == sorted({*counts})


@pytest.mark.long
def test_captures_and_tables_may_be_objects(spark: SparkSession, objects: ObjectStore) -> None:
    expected = []
    for name in ("three-hop.pcapng", "pings.pcapng"):
        uri = objects.put(f"packets/day 1/{name}", (SAMPLES / name).read_bytes())
        expected += [(uri, seen.number, seen.frame) for seen in read_packets(SAMPLES / name)]
    told = read(spark, f"s3://{BUCKET}/packets/day*/*.pcapng", tables=f"s3://{BUCKET}/read")
    assert sorted(told.packets.select("file", "number", "frame").collect()) == sorted(expected)
    assert told.gaps.count() == 0


def test_what_cannot_be_read_is_said(spark: SparkSession, tmp_path: Path) -> None:
    told = read(spark, str(tmp_path / "missing.pcap"), tables=str(tmp_path / "out"))
    with pytest.raises(AttributeError, match="no table is called 'messages', but arrivals, "):
        _ = told.messages
    with pytest.raises(UsageError, match=r"missing\.pcap: byte 0: No such file or directory"):
        _ = told.histories
    damaged = tmp_path / "cut.pcapng"
    damaged.write_bytes((SAMPLES / "window.pcapng").read_bytes()[:-5])
    with pytest.raises(UsageError, match=r"^run 1: name the folder of tables that it is of"):
        _ = read(spark, str(damaged), run=1).packets
    with pytest.warns(UserWarning, match=r"cut\.pcapng: byte \d+: the file ends") as caught:
        assert read(spark, str(damaged)).packets.count() > 0
    assert caught[0].filename == __file__


@pytest.mark.long
def test_the_program_of_the_readme_runs_in_ones_own_session_and_on_spark_connect(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = list(blocks(how_to("spark")))
    [place] = [number for number, block in enumerate(page) if block.language == "python spark"]
    program, shown = page[place].text, page[place + 1].text
    monkeypatch.chdir(ROOT)
    with redirect_stdout(StringIO()) as printed:
        exec(program, {})
    assert printed.getvalue().strip() == shown.strip()

    # What py4j shows of a Scala object is its static methods; the port is none of these.
    jvm: Any = spark._jvm
    named = jvm.java.lang.Class.forName("org.apache.spark.sql.connect.service.SparkConnectService$")
    service = named.getField("MODULE$").get(None)
    service.start(spark.sparkContext._jsc.sc())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=program,
        env=os.environ | {"SPARK_REMOTE": f"sc://127.0.0.1:{service.localPort()}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (shown.strip(), 0), done.stderr
