from __future__ import annotations

from typing import Any

import pytest

from mqproto.captures.pipeline.stages.sessions import sessions as module
from mqproto.wire import encode_packet, establish_connection
from tests.captures.decode.scene import MILLISECOND, Scene, express, guid, names, transactional
from tests.captures.pipeline.stages.local import Cluster, analyse
from tests.captures.pipeline.stages.table import packet_table


def sessions(scene: Scene) -> list[dict[str, Any]]:
    found = analyse(packet_table(scene.packets), names=names("a", "b", "c"))
    return sorted(found.rows("sessions"), key=lambda row: row["row_id"])


def test_a_session_has_its_ends_its_parameters_and_what_went_each_way() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", window=9)
    wire.send("a", express())
    wire.send("a", transactional(2))
    wire.ack("c")
    last = wire.send("a", transactional(3))
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")), riding=True)
    [row] = sessions(scene)
    assert (row["client"], row["server"], row["client_port"], row["server_port"]) == ("a", "c", 50_000, 1801)
    assert (row["client_key"], row["handshake"], row["state"]) == (
        "2E2E2E61-2E2E-2E2E-2E2E-2E2E2E2E2E2E",
        "open",
        "open",
    )
    assert (row["recoverable_ack_timeout_ms"], row["ack_timeout_ms"]) == (500, 20_000)
    assert (row["client_window"], row["server_window"]) == (9, 64)
    assert (row["client_messages"], row["server_messages"]) == (3, 1)
    assert (row["client_session_acks"], row["server_session_acks"]) == (0, 2)
    assert (row["client_unacknowledged"], row["server_unacknowledged"]) == (0, 1)
    assert row["opened_ns"] == scene.packets[3].time_ns
    assert row["last_ns"] - last.time_ns == MILLISECOND
    assert row["client_bytes"] == sum(
        len(each.data) for each in scene.packets if each.destination.port == 1801
    )
    assert (row["faults"], row["notes"]) == (0, 0)


def test_a_refused_session_and_one_that_the_capture_has_only_the_middle_of() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    wire.put("a", establish_connection(client=guid("a"), server=guid("c"), time_stamp_ms=0))
    refusal = bytearray(
        encode_packet(establish_connection(client=guid("a"), server=guid("c"), time_stamp_ms=0))
    )
    refusal[18] |= 0x10
    wire.put("c", bytes(refusal))
    scene.wire("b", "c", opened=False).send("b", express())
    refused, begun = sessions(scene)
    assert (refused["handshake"], refused["state"], refused["notes"]) == ("refused", "refused", 1)
    assert (begun["handshake"], begun["state"], begun["opened_ns"]) == ("nothing", "unknown", None)


def test_what_a_capture_lacks_of_a_session_is_said_of_its_direction() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express())
    lost = wire.send("a", express(message_id=2))
    lost.missing_bytes = 700
    [row] = sessions(scene)
    assert (row["client_missing_bytes"], row["client_losses"]) == (700, [lost.number])
    assert (row["server_missing_bytes"], row["server_losses"]) == (0, [])
    assert (row["handshake"], row["state"]) == ("open", "unknown")


def test_a_message_knows_which_packets_answered_for_it() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    sent = [wire.send("a", transactional(number)) for number in (1, 2)]
    first = wire.ack("c", recoverable_msg_ack_flags=1)
    second = wire.ack("c", recoverable_msg_ack_seq_number=2, recoverable_msg_ack_flags=1)
    rows = {row["row_id"]: row for row in analyse(packet_table(scene.packets)).rows("relations")}
    answers = [(rows[each.number - 1]["acknowledged_by"], rows[each.number - 1]["saved_by"]) for each in sent]
    assert answers == [(first.number, first.number), (first.number, second.number)]
    assert rows[sent[0].number - 1]["acknowledged_ns"] == first.time_ns


def test_what_is_waited_for_is_bounded_and_every_packet_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_LIMIT", 5)
    monkeypatch.setattr(module, "CONNECTION_LIMIT", 2)
    scene = Scene()
    for _ in range(4):
        wire = scene.wire("a", "c")
        for number in range(1, 10):
            wire.send("a", transactional(number))
        wire.ack("c")
    found = analyse(packet_table(scene.packets), cluster=Cluster(1, 7))
    assert sorted(row["row_id"] for row in found.rows("relations")) == list(range(len(scene.packets)))
    assert len(found.rows("sessions")) == 4
