"""Audits of histories and logs only; how messages can end is tested in tests/simulator/rig/validation."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from mqproto.edge.custody import End
from mqproto.simulator.edges.operators.reading import DAY_S
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import load, places
from mqproto.turn.effects import PostedRow, Writes
from mqproto.turn.posted import POSTED_FORGOTTEN
from tests.conformance import ROOT
from tests.simulator.edges.operators.desks import TWO, Typed


async def test_what_is_longer_ago_than_ids_are_kept_is_counted_and_said_to_be(tmp_path: Path) -> None:
    """The node has forgotten the message, but a log may still have it.

    A more recent message that is unaccounted for is still a finding.
    """
    typed = Typed(tmp_path, "two.toml", TWO)
    now_s, node = time.time(), load(tmp_path / "two.toml").node_named("near")
    with Store(places.store_path(tmp_path, "near"), node.guid) as store:
        young = PostedRow(1, r"far\orders", "young", b"", b"", 1)
        store.commit(Writes(posted=[young], counters={POSTED_FORGOTTEN: 2}))
    with (tmp_path / "near.log").open("w") as log:
        for days in (31, 29):
            said = datetime.fromtimestamp(now_s - days * DAY_S, UTC).isoformat().replace("+00:00", "Z")
            line = {"event": "accepted", "node": "near", "message": f"{uuid4()}\\2".upper()}
            log.write(json.dumps({**line, "queue": r"far\orders", "key": "", "timestamp": said}) + "\n")
    found = json.loads(await typed.run("audit", "--json", "--each", status=1))
    counts = {end: count for end, count in found["ends"].items() if count}
    # Of the young ones one has a row, one a line: nobody has them, and that is a finding.
    assert counts == {End.FORGOTTEN: 1, End.UNACCOUNTED: 2}
    assert found["forgotten"] == 2
    told = await typed.run("audit", status=1)
    assert "2 more are counted only as far as logs have them: nodes keep ids for 30 days" in told


@pytest.mark.long
def test_what_reads_stores_and_logs_needs_nothing_of_those_who_send_or_decode_captures() -> None:
    """These imports used to take half of the time that `failed list` needed."""
    slow = ("structlog", "httptools", "mqproto.captures.decode", "mqproto.simulator.edges.trigger.callee")
    asked = f"import mqproto.simulator.edges.operators.report, sys; print(*(set({slow}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
