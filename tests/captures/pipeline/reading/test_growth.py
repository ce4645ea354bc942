"""The state of a series that is kept for its next files: it has only objects of known classes, in a known form."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqproto.captures.net.streams import Connection
from mqproto.captures.net.tcp import SYN, Endpoint, Segment
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.reading.addresses import hash_of
from mqproto.captures.pipeline.reading.growth import FORM, Growth, saved_pairs
from mqproto.captures.pipeline.reading.packets.flows import OpenPair
from mqproto.captures.pipeline.run import known, work
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.tables.kept import save, saved
from mqproto.captures.pipeline.tables.parts import Store
from mqproto.captures.pipeline.tables.tables import Tables, TablesError
from tests.captures.pipeline.samples import SAMPLES

ENDS = Endpoint("10.0.0.1", 49152), Endpoint("10.0.0.2", 1801)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    growth = Growth(frames=7, totals=Totals(frames=7, other_frames=Counter({"ARP": 2})))
    first = Segment(*ENDS, 1, 0, SYN, 0, b"", b"")
    pairs = [
        OpenPair((Endpoint("10.0.0.1", port), ENDS[1]), Connection(port, first))
        for port in range(50_000, 50_020)
    ]
    series = save(Store.at(tmp_path), "_series/1.parquet", [(0, growth)])
    pairs_part = save(
        Store.at(tmp_path), "_series/open.parquet", [(hash_of(pair.ends), pair) for pair in pairs]
    )
    assert saved(str(tmp_path / series.name), Growth) == growth
    found = [
        pair for bucket in range(3) for pair in saved_pairs([str(tmp_path / pairs_part.name)], bucket, 3)
    ]
    assert sorted(pair.ends for pair in found) == sorted(pair.ends for pair in pairs)


def test_what_is_damaged_is_said_in_one_line(tmp_path: Path) -> None:
    part = save(Store.at(tmp_path), "_series/1.parquet", [(0, ENDS)])
    path = tmp_path / part.name
    advice = "; analyse the captures into another folder$"
    with pytest.raises(TablesError, match=f"^{path}: it holds no Growth{advice}"):
        saved(str(path), Growth)
    pq.write_table(pa.table({"bucket": [0], "object": [b"nothing that was kept"]}), path)
    with pytest.raises(TablesError, match=f"^{path}: it is damaged: .*{advice}"):
        saved(str(path), Growth)
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(TablesError, match=f"^{path}: .*{advice}") as told:
        saved(str(path), Growth)
    assert "\n" not in str(told.value)


def test_tables_of_another_form_are_read_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (SAMPLES / "window.pcapng").read_bytes()
    first, second = (tmp_path / f"run_{number:05d}_20261122083000.pcapng" for number in (1, 2))
    first.write_bytes((SAMPLES / "resent.pcapng").read_bytes())
    second.write_bytes(whole)
    tables, at_once = Tables(tmp_path / "out"), Tables(tmp_path / "at once")
    analyse([str(first)], tables, LocalEngine())
    monkeypatch.setattr(known, "FORM", FORM + 1)
    monkeypatch.setattr(work, "FORM", FORM + 1)
    (series,) = analyse([str(second)], tables, LocalEngine()).series
    assert (len(series.files), series.new) == (2, 2)
    analyse([str(first), str(second)], at_once, LocalEngine())
    assert tables.read("packets").sort_by("row_id") == at_once.read("packets").sort_by("row_id")
