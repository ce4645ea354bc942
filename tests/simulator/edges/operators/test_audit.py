"""Audits of histories and logs only; how messages can end is tested in tests/simulator/rig/validation."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from mqproto.edge.custody import End
from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.documents import Documents, Finish, LookUp
from mqproto.simulator.edges.operators.reading import DAY_S
from mqproto.simulator.edges.trail import ENDS, Outcome
from mqproto.simulator.topology import places
from tests.conformance import ROOT
from tests.simulator.edges.operators.desks import TWO, Typed


async def test_what_is_longer_ago_than_ids_are_kept_is_counted_and_said_to_be(tmp_path: Path) -> None:
    """The history has forgotten the message, but a log may still have it.

    A more recent message that is unaccounted for is still a finding.
    """
    typed = Typed(tmp_path, "two.toml", TWO)
    now_s, moment_s, passed_s = time.time(), 0.0, 0.0
    url = places.history_url(tmp_path)
    with closing(Documents(url, None, lambda: moment_s, lambda: passed_s)) as documents:
        for name, days in (("old", 31), ("older", 40), ("young", 29)):
            moment_s = now_s - days * DAY_S
            outcome = msgspec.json.encode(Outcome(f"{uuid4()}\\1".upper(), ""))
            if name == "young":
                with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
                    db.execute("UPDATE document_history_layout SET now_s = now_s + keep_s")
            documents.carry_out([Finish(r"gateway/far\orders", name, 0, Entry.COMPLETED, outcome)])
            passed_s += 20
        moment_s = now_s
        documents.carry_out([LookUp(ENDS, "nothing")])
    with (tmp_path / "near-gateway.log").open("w") as log:
        for days in (31, 29):
            said = datetime.fromtimestamp(now_s - days * DAY_S, UTC).isoformat().replace("+00:00", "Z")
            line = {"event": "accepted", "node": "near gateway", "message": f"{uuid4()}\\2".upper()}
            log.write(json.dumps({**line, "queue": r"far\orders", "key": "", "timestamp": said}) + "\n")
    found = json.loads(await typed.run("audit", "--json", "--each", status=1))
    counts = {end: count for end, count in found["ends"].items() if count}
    # Of the young ones one is in the history, one in the log: nobody has them, and that is a finding.
    assert counts == {End.FORGOTTEN: 1, End.UNACCOUNTED: 2}
    assert found["forgotten"] == 2
    told = await typed.run("audit", status=1)
    day = datetime.fromtimestamp(now_s - 31 * DAY_S, UTC).date()
    assert (
        f"2 more, the last of {day}, are counted only as far as logs have them: the history keeps ids for 30"
        in told
    )


@pytest.mark.long
def test_what_reads_stores_and_logs_needs_nothing_of_those_who_send_or_decode_captures() -> None:
    """These imports used to take half of the time that `failed list` needed."""
    slow = ("structlog", "h11", "mqproto.captures.decode", "mqproto.simulator.edges.trigger.callee")
    asked = f"import mqproto.simulator.edges.operators.report, sys; print(*(set({slow}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
