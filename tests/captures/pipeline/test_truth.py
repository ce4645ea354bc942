"""Seeded worlds as captures: for each message, the tables say what the world knows.

They accuse nobody who kept to the protocol. `make truth` uses 200 worlds; MQPROTO_TRUTH_WORLDS sets their number.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from mqproto.captures.decode import Kind, Names
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.simulator.world.campaign import run_seeds
from mqproto.simulator.world.scenarios.scenario import START_UTC_S, guid_of
from mqproto.simulator.world.scenarios.traffic import KINDS
from mqproto.wire import NULL_GUID, MessageClass, guid_text

WORLDS = int(os.environ.get("MQPROTO_TRUTH_WORLDS", "0"))
SEEDS = range(2, 2 + WORLDS) if WORLDS else (2, 96, 127, 132)
"""The seeds of the worlds.

World 1 has 31 MB of bodies, and takes as long as the next twenty together. In world 96, a forged OrderAck has the
identifier of a genuine one. In 127, express messages expire. In 132, a node repeats an earlier OrderAck as a new one.
"""
SECOND_NS = 10**9
PLANTED = {
    "fault forged ack": {"foreign-ack"},
    "fault stranger": {"malformed", "out-of-turn"},
    "fault sparse": {"order-ack-backwards"},
}
"""For each fault of a world, the codes of the findings that it explains.

The findings are about what nodes, or strangers that connect to them, do because of the fault. A node that acknowledges
sparsely repeats an earlier OrderAck as a new one.
"""
MISCOUNTED = {"wrong-count", "ack-backwards", "ack-beyond-sent", "saved-beyond-sent", "window-exceeded"}
"""The codes of findings about sessions that do not begin at zero, as in worlds whose counters start near their upper
limits.
"""


def epoch_ns(world_ms: int) -> int:
    """Convert a moment of a world to the time in its captures."""
    return START_UTC_S * SECOND_NS + world_ms * 1_000_000


def outcomes_of(truth: dict[str, Any]) -> set[Outcome]:
    """Return the outcomes that a capture may show for a message, given what its world knows of it."""
    if truth["arrivals"]:
        return {Outcome.CONFIRMED, Outcome.REACHED, Outcome.REFUSED, Outcome.EXPIRED}
    return set(Outcome) - {Outcome.CONFIRMED}


def assert_told(row: dict[str, Any], truth: dict[str, Any], end_ms: int) -> None:
    """Check one message: its source and destination, its number, its time, and its outcome."""
    assert row["outcome"] in outcomes_of(truth)
    assert row["complete"]
    assert row["route"][0] == truth["source"]
    if row["outcome"] in (Outcome.CONFIRMED, Outcome.REACHED):
        assert truth["target"] in row["route"]
        assert row["arrived_ns"] is not None
    if truth["label"]:
        assert row["label"] == truth["label"]
    if truth["sequence"] is not None:
        assert (row["sequence"], row["sequence_number"]) == (
            "{}:{}".format(*truth["sequence"]),
            truth["number"],
        )
    times = [row["first_ns"], row["arrived_ns"], row["last_ns"], row["order_acked_ns"], row["final_ns"]]
    assert all(epoch_ns(truth["accepted_ms"]) <= time_ns <= epoch_ns(end_ms) for time_ns in times if time_ns)
    assert row["hop_ns"][0] == row["first_ns"]
    refusals = [each for each in (row["final_class"], *row["administration"]) if each and each[0] == "N"]
    # A world sees what its nodes store: what ends in memory alone, it allows.
    endings = KINDS[truth["kind"]].endings if row["delivery"] == "express" else ()
    unseen = {MessageClass(each).name for each in endings}
    assert set(refusals) <= {*truth["refusals"], *truth["told"], *unseen}


def messages_found(tables: Tables, code: str) -> set[str]:
    """Return the messages that findings with this code are about; a message that is sent again may have several such
    findings.
    """
    if not tables.paths("findings"):
        return set()
    numbers = {row["number"] for row in tables.read("findings").to_pylist() if row["code"] == code}
    packets = tables.read("packets", ["number", "framed", "message"]).to_pylist()
    return {row["message"] for row in packets if row["framed"] and row["number"] in numbers}


def forgeries(tables: Tables) -> set[str]:
    """Return the acknowledgments that do not come from the destination of the message that they acknowledge, as far as
    names show this.
    """
    packets = tables.read("packets").filter(pc.field("message").is_valid()).to_pylist()
    towards = {
        (row["source_manager"], row["sequence"]): row["destination_manager"]
        for row in packets
        if row["kind"] == Kind.TRANSACTIONAL
    }
    return {
        row["message"]
        for row in packets
        if row["kind"] == Kind.ORDER_ACK
        or (row["kind"] == Kind.FINAL_ACK and row["message_class"] == MessageClass.ACK_RECEIVE)
        if towards.get((row["destination_manager"], row["ack_sequence"]))
        not in (None, guid_text(NULL_GUID), row["source_manager"])
    }


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_what_tables_say_of_worlds_is_what_these_know_of_themselves(tmp_path: Path) -> None:
    for seed in SEEDS:
        run_seeds(seed, 1, captures=tmp_path, processes=1)
    outcomes: Counter[str] = Counter()
    planted = 0
    for capture in sorted(tmp_path.glob("*.pcapng")):
        world = json.loads(capture.with_suffix(".json").read_text("utf-8"))
        names = Names(managers={guid_of(name): name for name in world["scenario"]["nodes"]})
        tables = Tables(tmp_path / capture.stem)
        result = analyse([str(capture)], tables, LocalEngine(), Wanted(names=names, range_bytes=1 << 16))

        assert [series.totals.unexplained_bytes for series in result.series] == [0]
        found = {row["message"]: row for row in tables.read("histories").to_pylist()}
        known = {truth["id"]: truth for truth in world["messages"]}
        assert found.keys() <= known.keys()
        for message, truth in known.items():
            if message in found:
                assert_told(found[message], truth, world["end_ms"])
                outcomes[found[message]["outcome"]] += 1
            else:
                assert not truth["arrivals"] or truth["source"] == truth["target"]

        excused = {code for fault in PLANTED if world["tally"].get(fault) for code in PLANTED[fault]}
        excused |= MISCOUNTED if world["scenario"]["counters"] else set()
        assert {code for severity, code in result.codes if severity == "fault"} <= excused
        foreign = messages_found(tables, "foreign-ack")
        assert foreign == forgeries(tables)
        assert len(foreign) <= world["tally"].get("fault forged ack", 0)
        planted += len(foreign)
    assert outcomes[Outcome.CONFIRMED] > 10 * len(SEEDS)
    assert planted > 0
