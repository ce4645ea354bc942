"""For straight messages, working on columns gives the same results as examining each message by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.stages.messages import straight
from mqproto.captures.pipeline.stages.messages.subjects import KEY, ORDER, keyed
from tests.captures.decode.scene import MILLISECOND, Scene, names, ordered, passed_on, transactional
from tests.captures.decode.test_analyst import conversations
from tests.captures.pipeline.stages.local import (
    Analysed,
    Cluster,
    analyse,
    joined_with,
    none_straight,
    whole,
)
from tests.captures.pipeline.stages.messages.test_clocks import seen_twice, talk
from tests.captures.pipeline.stages.table import SAMPLES, packet_table, sample

Rows = dict[str, list[str]]
OF_MESSAGES = ("histories", "hops", "duplicates", "arrivals", "findings", "endings", "clocks")


def told(seen: list[SeenPacket], cluster: Cluster, *, lossless: bool = True) -> Rows:
    """Return everything that is said about messages, in a fixed order."""
    known = names("a", "b")
    found = analyse(packet_table(seen), names=known, lossless=lambda series: lossless, cluster=cluster)
    return {name: sorted(map(repr, found.rows(name))) for name in OF_MESSAGES}


def told_one_by_one(seen: list[SeenPacket], cluster: Cluster, *, lossless: bool = True) -> Rows:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(straight, "find", none_straight)
        return told(seen, cluster, lossless=lossless)


@pytest.mark.parametrize("name", SAMPLES)
def test_messages_of_every_sample_are_told_both_ways_alike(name: str) -> None:
    seen, lossless = sample(name)
    cluster = Cluster(parts=2, batch_rows=100)
    assert told(seen, cluster, lossless=lossless) == told_one_by_one(seen, cluster, lossless=lossless)


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(conversations(), st.sets(st.integers(0, 60), max_size=3), st.booleans(), st.integers(1, 200))
def test_so_are_those_of_conversations_in_which_anything_happens(
    scene: Scene, lost: set[int], lossless: bool, batch_rows: int
) -> None:
    kept = [packet for place, packet in enumerate(scene.packets) if place not in lost]
    cluster = Cluster(parts=2, batch_rows=batch_rows)
    assert told(kept, cluster, lossless=lossless) == told_one_by_one(kept, cluster, lossless=lossless)


def test_so_are_those_of_capture_points_with_clocks_of_their_own() -> None:
    scene = talk(3, 2)
    first, *rest = seen_twice(scene, 3_600 * 10**9, [MILLISECOND] * len(scene.packets))
    seen = [first, *(packet for packet in rest if packet.number != 9)]  # One message at one of them only.
    assert told(seen, Cluster()) == told_one_by_one(seen, Cluster())


def went_straight(scene: Scene) -> dict[int, bool]:
    """Return whether each message went straight, keyed by identifier."""
    packets = packet_table(scene.packets)
    found: Analysed = analyse(packets)
    rows = keyed(whole(joined_with(packets, found.tables["relations"])))
    [[rows]] = Cluster(1, rows.num_rows).parted(pa.Table.from_batches([rows]), KEY, ORDER)
    subjects, sizes = np.unique(rows.column("subject").to_pylist(), return_counts=True)
    which, messages = straight.find(rows, sizes, np.ones(len(sizes), dtype=bool))
    assert len(messages) == which.sum()
    return {
        int(subject.rpartition("\\")[2]): bool(each) for subject, each in zip(subjects, which, strict=True)
    }


def test_a_message_went_straight_if_it_crossed_each_hop_once_as_it_came_and_arrived() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    for number in range(1, 6):
        first.send("a", transactional(number))
    second.send("b", passed_on(transactional(1)))
    second.send("b", transactional(2))  # Its hop count was not raised.
    second.send("b", passed_on(transactional(3)))
    second.send("b", passed_on(transactional(3)))
    second.send("b", passed_on(transactional(4, label="another")))
    second.send("c", ordered(1))
    assert went_straight(scene) == {1: True, 2: False, 3: False, 4: False, 5: False, 100: False}
