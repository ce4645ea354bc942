"""What happened while something was slow: a reset, a hop without a connection, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.report.summary import as_json, lines
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import SAMPLES, sample
from tests.captures.pipeline.report.test_page import read


def test_where_a_node_was_killed_its_hops_say_what_became_of_their_connections(tmp_path: Path) -> None:
    facts = gather(sample("intermediate-killed", tmp_path))
    first, second = (hop.course.spells[0] for hop in facts.routes.hops if hop.course is not None)
    assert (first.messages, first.reset, [*first.without]) == (12, True, ["this hop"])
    assert (second.messages, second.reset, [*second.without]) == (12, False, ["this hop"])
    assert all(1.9e9 < spell.without["this hop"] < 2.2e9 for spell in (first, second))
    said = "slow from 02:13:21 to 02:13:21.050: 12 messages; a connection was reset; this hop had no connection in"
    assert said in "\n".join(lines(facts))
    assert said in read(page(facts)).text
    [shown] = as_json(facts)["hops"][0]["course"]["slow"]
    assert (shown["messages"], shown["reset"]) == (12, True)


def test_where_nothing_happened_to_connections_that_is_said(gap_held: Tables) -> None:
    [queue] = gather(gap_held).queues.queues
    assert queue.course is not None
    [spell] = queue.course.spells
    assert (spell.messages, spell.reset, spell.without) == (3, False, {})
    assert "3 messages; no connection was reset or out of use" in "\n".join(lines(gather(gap_held)))


@pytest.mark.parametrize("ahead_h", [-2, 2])
def test_of_clocks_apart_no_connection_is_said_to_be_out_of_use(ahead_h: int, tmp_path: Path) -> None:
    for host, ahead_ns in ((b"\x7f\0\0\1", 0), (b"\x7f\0\0\3", ahead_h * 3_600 * 10**9)):
        with (tmp_path / f"{host[3]}.pcapng").open("wb") as file, PcapngWriter(file) as writer:
            for frame in read_capture(SAMPLES / "gap-held.pcapng"):
                if host in (frame.data[26:30], frame.data[30:34]):
                    writer.write(frame._replace(time_ns=frame.time_ns + ahead_ns))
    tables = Tables(tmp_path / "tables")
    analyse([str(tmp_path)], tables, LocalEngine())
    said = "\n".join(lines(gather(tables)))
    assert "by 2 h, within" in said
    assert "no connection was reset or out of use" in said
    assert "had no connection in use" not in said
