"""Messages that followed one another are processed together, and the results stay the same."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.captures.files.frame import Interface
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.stages.sequences import sequences, stretches
from mqproto.captures.pipeline.stages.sequences.sequences import keyed
from mqproto.captures.pipeline.stages.sequences.stretches import pieces
from mqproto.wire import TransactionHeader, TxSequenceId
from tests.captures.decode.scene import Scene, express, final, ordered, passed_on, transactional
from tests.captures.decode.test_analyst import conversations
from tests.captures.pipeline.stages.local import Cluster, analyse, joined_with, whole
from tests.captures.pipeline.stages.table import SAMPLES, packet_table, sample

Rows = dict[str, list[str]]
OF_SEQUENCES = (
    "sequences",
    "sequence_hops",
    "gaps",
    "order_acks",
    "confirmations",
    "endings",
    "findings",
)
ENDLESS = 1 << 40


def judged(seen: list[SeenPacket], cluster: Cluster, least: int) -> Rows:
    """Return everything that is said about sequences, in a fixed order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "LEAST", least)
        found = analyse(packet_table(seen), cluster=cluster)
    return {name: sorted(map(repr, found.rows(name))) for name in OF_SEQUENCES}


@st.composite
def traffic(draw: st.DrawFn) -> Scene:
    """Draw traffic: the messages of a sequence go from a through b to c.

    They are mostly in order, and most acknowledgments are true. Another capture point sees some of what b sends.
    """
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    came = left = 0
    for step in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from(["send", "pass", "pass", "both", "order", "final", "other", "queue"]))
        skipped = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
        count = draw(st.integers(1, 4))
        if kind in ("send", "both"):
            came += skipped
        if kind in ("pass", "both"):
            left += skipped
        seen_by = Interface(draw(st.sampled_from([0, 0, 0, 1])))
        for _ in range(count):
            if kind in ("send", "both"):
                came += 1
                first.send("a", transactional(max(1, came)))
            if kind in ("pass", "both"):
                left += 1
                second.send("b", passed_on(transactional(max(1, left))))
                scene.packets[-1].interface = seen_by
        if kind in ("other", "queue"):
            left += 1
            changes = {"message_id": 90} if kind == "other" else {"destination": 17}
            second.send("b", passed_on(transactional(max(1, left), **changes)))
        elif kind == "order":
            number = max(1, left + draw(st.sampled_from([0, 0, -1, 2])))
            second.send("c", ordered(number, 100 + step))
            first.send("b", passed_on(ordered(number, 100 + step)))
        elif kind == "final":
            second.send("c", final(max(1, left + skipped), 200 + step))
    return scene


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(traffic(), st.integers(1, 3), st.integers(1, 100))
def test_whatever_crosses_in_order_or_not_the_verdict_is_that_of_one_by_one(
    scene: Scene, least: int, batch_rows: int
) -> None:
    cluster = Cluster(parts=1, batch_rows=batch_rows)
    assert judged(scene.packets, cluster, least) == judged(scene.packets, cluster, ENDLESS)


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(conversations(), st.sets(st.integers(0, 60), max_size=3))
def test_so_it_is_where_the_capture_lacks_something(scene: Scene, lost: set[int]) -> None:
    kept = [packet for place, packet in enumerate(scene.packets) if place not in lost]
    for packet in kept[-5:]:
        packet.missing_bytes = len(lost)
    assert judged(kept, Cluster(), 1) == judged(kept, Cluster(), ENDLESS)


@pytest.mark.parametrize("name", SAMPLES)
def test_so_it_is_in_every_sample(name: str) -> None:
    seen, _ = sample(name)
    cluster = Cluster(parts=2, batch_rows=100)
    assert judged(seen, cluster, 2) == judged(seen, cluster, ENDLESS)


def test_a_stretch_ends_with_an_acknowledgment_and_what_is_not_in_order_stays_together() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    for number in range(1, 4):
        first.send("a", transactional(number))
        second.send("b", passed_on(transactional(number)))
    second.send("c", ordered(3))
    for number in (5, 4, 6, 7, 8):
        first.send("a", transactional(number))
    packets = packet_table(scene.packets)
    rows = keyed(whole(joined_with(packets, analyse(packets).tables["relations"]).sort_by("row_id")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "LEAST", 2)
        found = list(pieces(rows))
    assert [[len(hop) for hop in piece.hops] for piece in found] == [[3, 3], []]
    assert list(chain.from_iterable(piece.rows.tolist() for piece in found)) == list(range(rows.num_rows))


def test_no_message_is_forgotten_for_those_of_other_sequences_that_came_behind_its_acknowledgment() -> None:
    """In this test, `mqproto.captures.decode` remembers eight messages, and batches have eight rows."""
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 9):
        wire.send("a", transactional(number))
    for number in range(1, 9):
        header = TransactionHeader(
            tx_sequence_id=TxSequenceId(time_stamp=1, ordinal=2),
            tx_sequence_number=number,
            previous_tx_sequence_number=number - 1,
        )
        wire.send("a", express(message_id=100 + number, transaction=header))
        if number == 1:
            wire.send("c", ordered(7))
    packets = packet_table(scene.packets)
    rows = keyed(whole(joined_with(packets, analyse(packets).tables["relations"]).sort_by("row_id")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "REMEMBERED_LIMIT", 2 * 8)
        stage = sequences.SequenceStage()
        found = [stage.take(rows.slice(start, 8)) for start in range(0, rows.num_rows, 8)]
    [ending] = [row for each in found if "endings" in each for row in each["endings"].to_pylist()]
    assert ending["ended_count"] == 7
