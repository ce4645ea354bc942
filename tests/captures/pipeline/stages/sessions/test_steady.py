"""Packets of steady sessions are taken together, and the results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import event, given, settings, strategies as st

from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.stages.sessions import directory, steady
from mqproto.captures.pipeline.stages.sessions.sessions import COLUMNS, SessionStage
from mqproto.captures.pipeline.tables.kept import decoded, encoded
from tests.captures.decode.scene import Scene, Wire, express, guid, names, transactional
from tests.captures.pipeline.stages.table import SAMPLES, batches, collected, packet_table, sample

Rows = dict[str, list[str]]
ENDLESS = 1 << 40
ODD: list[dict[str, Any]] = [
    {"ack_sequence_number": 2},
    {"ack_sequence_number": 9_999},
    {"recoverable_msg_ack_flags": 5},
    {"recoverable_msg_ack_flags": 3, "recoverable_msg_ack_seq_number": 1},
    {"recoverable_msg_ack_flags": 1, "recoverable_msg_ack_seq_number": 40_000},
    {"user_msg_sequence_number": 3},
    {"recoverable_msg_seq_number": 77},
    {"window_size": 2},
]


def judged(seen: Sequence[SeenPacket], batch_rows: int, least: int, *, saving: bool = False) -> Rows:
    """Return everything that is said about sessions, in a fixed order.

    Args:
        saving: whether the stage is saved after each batch, as at the end of a run.
    """
    packets = packet_table(seen)
    stage = SessionStage(names("a", "b", "c"))
    stage.know(learnt(seen))
    outputs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "LEAST", least)
        patch.setattr(steady, "MOST", 3 * least)
        for batch in batches(packets.select(COLUMNS), batch_rows):
            outputs.append(stage.take(batch))
            if saving:
                stage.know(directory.Directory({}))
                stage = decoded(encoded(stage), SessionStage)
                stage.know(learnt(seen))
    found = collected([*outputs, stage.finish()])
    return {name: sorted(map(repr, rows)) for name, rows in found.items()}


def learnt(seen: Sequence[SeenPacket]) -> directory.Directory:
    asked = packet_table(packet for packet in seen if type(packet.packet).__name__ == "EstablishConnection")
    learners = directory.Learners()
    learners.learn(batches(asked.select(directory.HANDSHAKE_COLUMNS), 10))
    return learners.directory()


@st.composite
def traffic(draw: st.DrawFn) -> Scene:
    """Draw traffic in both directions on some connections that mostly follow the protocol.

    The capture has the start of some connections, and lacks that of others.
    """
    scene = Scene()
    wires = [opened(draw, scene) for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(0, 15))):
        wire, end = draw(st.sampled_from(wires)), draw(st.sampled_from("aaac"))
        kind = draw(
            st.sampled_from(["send", "send", "send", "ride", "ack", "ack", "ack", "odd", "lose", "ahead"])
        )
        if kind == "ack":
            wire.ack(draw(st.sampled_from("accc")))
        elif kind == "odd":
            wire.ack(end, **draw(st.sampled_from(ODD)))
        else:
            for _ in range(draw(st.integers(1, 5))):
                number = len(scene.packets)
                message = transactional(number) if draw(st.integers(0, 2)) else express(message_id=number)
                wire.send(end, message, riding=kind == "ride")
            scene.packets[-1].missing_bytes = draw(st.sampled_from([10, 200, 5_000])) * (kind == "lose")
            scene.packets[-1].ahead = kind == "ahead"
    return scene


def opened(draw: st.DrawFn, scene: Scene) -> Wire:
    """Return a connection; the capture may or may not have its start."""
    if draw(st.booleans()):
        return scene.wire("a", "c", window=draw(st.sampled_from([4, 64])))
    return joined(scene, 65_530)


def joined(scene: Scene, sent: int) -> Wire:
    """Return a connection whose first messages the capture lacks; both ends state the number of those messages."""
    wire = scene.wire("a", "c", opened=False)
    for name, other in ("ac", "ca"):
        sender, receiver = wire.ends[name], wire.ends[other]
        sender.sent = receiver.received = sent
        sender.recoverable_sent = receiver.recoverable_received = receiver.saved = sent
    wire.ack("a")
    wire.ack("c")
    wire.ack("a")
    return wire


def watched(patch: pytest.MonkeyPatch) -> list[bool]:
    """On each call of `steady.take`, record whether packets could be taken together."""
    found: list[bool] = []
    take: Callable[..., Any] = steady.take

    def watching(*arguments: Any) -> Any:
        result = take(*arguments)
        found.append(result is not None)
        return result

    patch.setattr(steady, "take", watching)
    return found


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(traffic(), st.integers(1, 3), st.integers(1, 60))
def test_whatever_two_ends_send_each_other_the_verdict_is_that_of_one_by_one(
    scene: Scene, least: int, batch_rows: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        together = watched(patch)
        found = judged(scene.packets, batch_rows, least)
    event(f"steady: {any(together)}, otherwise: {not all(together)}")
    assert found == judged(scene.packets, batch_rows, ENDLESS)
    assert found == judged(scene.packets, batch_rows, least, saving=True)


def rounds(wire: Wire, count: int) -> None:
    """Let both ends send and acknowledge in rounds, following the protocol."""
    for number in range(count):
        for _ in range(3):
            wire.send("a", transactional(len(wire.scene.packets)), riding=number % 2 == 1)
        wire.ack("c")
        wire.send("c", express(message_id=len(wire.scene.packets)), riding=True)
        wire.ack("a")


@pytest.mark.parametrize("end", ["a", "c"])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("batch_rows", [4, 1_000])
def test_so_it_is_with_one_acknowledgment_that_is_wrong(
    odd: dict[str, Any], end: str, batch_rows: int
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    rounds(wire, 3)
    for _ in range(3):
        wire.send("a", transactional(len(scene.packets)))
    wire.ack(end, **odd)
    rounds(wire, 3)
    assert judged(scene.packets, batch_rows, 1) == judged(scene.packets, batch_rows, ENDLESS)


@pytest.mark.parametrize("name", SAMPLES)
def test_so_it_is_in_every_sample(name: str) -> None:
    seen, _ = sample(name)
    assert judged(seen, 100, 2) == judged(seen, 100, ENDLESS)


def test_a_session_by_the_book_is_taken_together_also_where_its_counts_wrap() -> None:
    scene = Scene()
    wire = joined(scene, 65_300)
    for number in range(1, 500):
        wire.send("a", transactional(number), riding=number % 50 == 0)
        if number % 32 == 0:
            wire.ack("c")
            wire.send("c", express(source=guid("c"), destination_manager=guid("a")))
    with pytest.MonkeyPatch.context() as patch:
        together = watched(patch)
        found = judged(scene.packets, 133, 64)
    assert together == [True] * 3
    assert found == judged(scene.packets, 133, ENDLESS)
    (note,) = found["findings"]
    assert "caller-by-port" in note


def test_a_connection_with_more_messages_than_can_be_counted_is_taken_in_parts() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    rounds(wire, 40)
    packets = packet_table(scene.packets)
    batch = batches(packets.select(COLUMNS), 10_000)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "LEAST", 10)
        patch.setattr(steady, "MOST", 64)
        single, together = steady.divide(batch, steady.Packets.of(batch))
    assert max(map(len, together)) == 64
    assert sorted([*single.tolist(), *(row for rows in together for row in rows.tolist())]) == list(
        range(batch.num_rows)
    )
