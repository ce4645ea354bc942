from __future__ import annotations

from mqproto.captures.decode import Finding, Severity
from mqproto.captures.pipeline.stages.schema import FINDINGS, finding_row
from mqproto.captures.pipeline.stages.tasks.findings import packet_findings
from mqproto.captures.pipeline.tables.lists import batch_of
from tests.captures.decode.scene import Scene, transactional
from tests.captures.pipeline.stages.local import whole
from tests.captures.pipeline.stages.table import packet_table


def test_a_finding_is_a_row_with_all_that_it_rests_on() -> None:
    finding = Finding(Severity.FAULT, "altered", 7, "it left otherwise", "[MS-MQQB] 3.1.1.6.2", (3, 5))
    batch = batch_of(
        FINDINGS, [finding_row("s", 9, 1, finding), finding_row("s", None, 0, finding._replace(packet=0))]
    )
    about, about_none = batch.to_pylist()
    assert (about["number"], about["row_id"], about["others"], about["severity"]) == (7, 9, [3, 5], "fault")
    assert (about_none["number"], about_none["row_id"]) == (None, None)


def test_what_packets_say_by_themselves_comes_last_among_their_findings() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    odd = wire.send("a", transactional(1, priority=5))
    broken = wire.put("a", transactional(2)[:60] + b"\x1f" + transactional(2)[61:])
    found = packet_findings(whole(packet_table(scene.packets))).to_pylist()
    codes = [(row["code"], row["number"]) for row in found]
    assert list(dict.fromkeys(codes)) == [("odd-field", odd.number), ("malformed", broken.number)]
    assert min(row["rank"] for row in found) > 2_000_000
    assert packet_findings(whole(packet_table([]))).num_rows == 0
