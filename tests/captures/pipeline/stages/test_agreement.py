"""Packets, relations, endings and findings that are judged separately and then joined agree with `mqproto decode`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.captures.decode import Names
from mqproto.captures.packets import SeenPacket
from tests.captures.decode.lossy import lacking
from tests.captures.decode.scene import Scene, names, passed_on, transactional
from tests.captures.decode.story import pinged, story
from tests.captures.decode.test_analyst import conversations
from tests.captures.pipeline.stages.local import Analysed, Cluster, analyse
from tests.captures.pipeline.stages.table import OF_OTHERS, decode

PLACES = st.integers(0, 60)


def joined(found: Analysed, row_id: int) -> dict[str, Any]:
    """Return what the tables say about one packet, keyed by the field names of PacketRow."""
    [relation] = [row for row in found.rows("relations") if row["row_id"] == row_id]
    endings = [row for row in found.rows("endings") if row["row_id"] == row_id]
    assert len(endings) <= 1
    every = {"ended_packets": None, "ended_count": None} | relation | (endings[0] if endings else {})
    return {name: every[name] for name in OF_OTHERS if name != "findings"}


def findings(found: Analysed, row_id: int | None) -> list[dict[str, Any]]:
    """Return the findings that one packet revealed, in the form of `Finding.as_json`."""
    rows = sorted(
        (row for row in found.rows("findings") if row["row_id"] == row_id), key=lambda row: row["rank"]
    )
    return [
        {
            name: row["number" if name == "packet" else name]
            for name in ("severity", "code", "packet", "text", "section")
        }
        for row in rows
    ]


def agree(
    seen: list[SeenPacket],
    known: Names | None,
    cluster: Cluster,
    *,
    lossless: bool = True,
) -> None:
    """Check that the stages say the same about packets as `mqproto decode`."""
    decoded = decode(seen, known, lossless=lossless)
    found = analyse(decoded.packets, names=known, lossless=lambda series: lossless, cluster=cluster)
    for row_id, row in enumerate(decoded.rows):
        expected = {name: getattr(row, name) for name in OF_OTHERS if name != "findings"}
        assert joined(found, row_id) == expected
        assert findings(found, row_id) == row.findings
    last = sorted(map(str, findings(found, None)))
    assert last == sorted(str(finding.as_json()) for finding in decoded.last)


def test_a_story_with_names_and_pings_is_told_as_decode_tells_it() -> None:
    agree(pinged(story()).packets, names("a", "b", "c"), Cluster(parts=2, batch_rows=3))


def test_an_answer_without_its_request_tells_both_who_is_there() -> None:
    scene = Scene()
    before = scene.wire("a", "b", opened=False)
    before.send("a", transactional(1))
    wire = scene.wire("b", "c")
    del scene.packets[1]
    wire.send("b", passed_on(transactional(1)))
    before.send("a", transactional(1))
    wire.send("b", passed_on(transactional(1)))
    found = [finding.text for sight in scene.sights()[0] for finding in sight.findings]
    assert any("it had come once more as " in text for text in found)
    agree(lacking(scene.packets, []), None, Cluster(parts=2, batch_rows=3), lossless=False)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    conversations(),
    st.lists(st.tuples(PLACES, PLACES), max_size=4),
    st.sets(PLACES, max_size=3),
    st.sets(PLACES, max_size=3),
    st.builds(Cluster, st.integers(1, 4), st.integers(1, 50)),
)
def test_whatever_the_capture_lacks_or_has_wrong_and_however_rows_are_dealt_out_the_verdict_is_one(
    scene: Scene, swaps: list[tuple[int, int]], lost: set[int], early: set[int], cluster: Cluster
) -> None:
    for one, other in swaps:
        if max(one, other) < len(scene.packets):
            scene.packets[one].data = scene.packets[other].data
    kept = lacking(scene.packets, lost)
    for place in early:
        if place < len(kept):
            kept[place].ahead = True
    agree(kept, None, cluster, lossless=not lost)
