"""The truth that a world writes next to its capture: the same messages, and their outcomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqproto.captures.packets import read_packets
from mqproto.simulator.world import draw, simulate
from mqproto.simulator.world.campaign import run_seeds
from mqproto.simulator.world.truth import as_truth, simulate_into
from mqproto.wire import MessageClass, UserMessage, guid_text
from tests.simulator.world.worlds import a_burst, a_chain


def test_what_became_of_each_message_is_told() -> None:
    truth = as_truth(simulate(a_chain(a_burst(count=2), a_burst(kind="nowhere", label="lost"))))
    assert truth["breach"] is None
    first, second, lost = truth["messages"]
    assert (first["receipts"], first["arrivals"], first["number"], first["order"]) == (1, 1, 1, 0)
    assert (second["receipts"], second["number"], second["sequence"]) == (1, 2, first["sequence"])
    assert (lost["receipts"], lost["label"], lost["told"]) == (0, "lost", ["NACK_BAD_DST_Q"])
    assert lost["dead_letters"] == [["a", "NACK_BAD_DST_Q"]]
    assert first["id"].endswith("\\1")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_messages_of_the_truth_are_those_of_the_capture(seed: int, tmp_path: Path) -> None:
    """Each message that crossed a link was accepted by its source; each message that was received elsewhere has crossed
    a link.
    """
    result = simulate_into(tmp_path, draw(seed))
    truth = json.loads((tmp_path / f"seed-{seed}.json").read_text("utf-8"))
    assert truth == json.loads(json.dumps(as_truth(result)))
    crossed = {
        f"{guid_text(packet.packet.user.source_queue_manager)}\\{packet.packet.user.message_id}"
        for packet in read_packets(tmp_path / f"seed-{seed}.pcapng")
        if isinstance(packet.packet, UserMessage)
        and packet.packet.properties.message_class == MessageClass.NORMAL
    }
    received = {
        message["id"]
        for message in truth["messages"]
        if message["receipts"] and message["source"] != message["target"]
    }
    assert received <= crossed <= {message["id"] for message in truth["messages"]}


@pytest.mark.long
def test_many_worlds_are_written_by_many_processes(tmp_path: Path) -> None:
    summary = run_seeds(40, 4, captures=tmp_path, processes=1)
    assert summary.run_count == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"seed-{seed}.{suffix}" for seed in range(40, 44) for suffix in ("json", "pcapng")
    )
