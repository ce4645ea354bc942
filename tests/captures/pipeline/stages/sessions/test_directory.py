"""Queue managers at addresses: at each packet, every part knows what a single pass would know there."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mqproto.captures.decode import Names
from mqproto.captures.decode.sessions.connections import Origins
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.stages.sessions import directory
from mqproto.captures.pipeline.stages.sessions.directory import (
    Directory,
    Introduction,
    Learners,
    Remembered,
    labels,
)
from mqproto.captures.pipeline.tables.kept import decoded, encoded
from tests.captures.decode.scene import Scene, address, express, guid, names
from tests.captures.pipeline.stages.local import analyse
from tests.captures.pipeline.stages.table import SERIES, batches, packet_table


def learnt(scene: Scene) -> Directory:
    packets = packet_table(scene.packets)
    handshakes = packets.filter(pc.equal(packets.column("kind"), "EstablishConnection"))
    learners = Learners()
    learners.learn(batches(handshakes, 3))
    return learners.directory()


def test_what_a_handshake_tells_is_known_from_its_answer_on() -> None:
    scene = Scene()
    scene.wire("a", "c")
    [introduction] = learnt(scene).of(SERIES)
    assert introduction == Introduction(
        2, Endpoint(address("a").host, 50_000), guid("a"), address("c"), guid("c")
    )
    remembered = Remembered([introduction])
    remembered.advance(1)
    assert not remembered.hosts
    remembered.advance(2)
    assert remembered.listening == {address("c"): guid("c")}


def test_only_news_is_kept() -> None:
    scene = Scene()
    for _ in range(50):
        scene.wire("a", "c")
    assert len(learnt(scene).of(SERIES)) == 1


def test_a_refused_handshake_tells_nothing() -> None:
    scene = Scene()
    scene.wire("a", "c")
    del scene.packets[1]
    assert learnt(scene).of(SERIES) == []


def test_a_connection_of_which_the_handshake_is_missing_has_the_keys_that_others_told_before_it() -> None:
    scene = Scene()
    scene.wire("a", "c", opened=False).send("a", express())
    scene.wire("a", "c")
    scene.wire("a", "c", opened=False).send("a", express())
    keys = {row["row_id"]: row["to_key"] for row in analyse(packet_table(scene.packets)).rows("relations")}
    assert (keys[0], keys[len(keys) - 1]) == (str(address("c")), "2E2E2E63-2E2E-2E2E-2E2E-2E2E2E2E2E2E")


def test_later_runs_know_what_earlier_ones_learnt_and_nothing_twice() -> None:
    scene = Scene()
    scene.wire("a", "c")
    first = len(scene.packets) - 1
    for _ in range(3):
        scene.wire("a", "c")
    handshakes = packet_table(scene.packets)
    learners = Learners()
    for some in (handshakes.slice(0, first), handshakes.slice(first)):
        learners = decoded(encoded(learners), Learners)
        asked = some.filter(pc.equal(some.column("kind"), "EstablishConnection"))
        learners.learn(batches(asked, 3))
    assert learners.directory() == learnt(scene)
    assert len(learners.directory().of(SERIES)) == 1
    assert learners.directory().of("another series") == []


def test_queue_managers_are_called_by_name_or_by_where_they_listen() -> None:
    scene = Scene()
    scene.wire("a", "c")
    known = learnt(scene)
    label = labels(names("a"), known)
    called = [label(key) for key in ("2E2E2E61-2E2E-2E2E-2E2E-2E2E2E2E2E2E", "10.0.0.1", "10.0.0.1:1801")]
    assert called == ["a", "a", "a"]
    label = labels(Names(), known)
    assert label("2E2E2E63-2E2E-2E2E-2E2E-2E2E2E2E2E2E") == str(address("c"))
    assert [label(key) for key in ("10.9.9.9", "[fe80::1]:1801", "fe80::1")] == [
        "10.9.9.9",
        "[fe80::1]:1801",
        "fe80::1",
    ]


def test_a_capture_that_tells_something_else_with_each_handshake_teaches_so_much_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "INTRODUCTION_LIMIT", 3)
    scene = Scene()
    for letter in "bcdefgh":
        wire = scene.wire("a", letter, opened=False)
        wire.ends[letter].endpoint = address("c")
        wire.open()
    assert len(learnt(scene).of(SERIES)) == 3


def test_both_ends_of_a_hop_are_not_taken_for_one_queue_manager() -> None:
    origins, hops = Origins(), [pa.array(["127.0.0.1"]), pa.array(["127.0.0.1:33761"])]
    origins.learn(Endpoint("127.0.0.1", 49_561), guid("a"))
    assert directory.resolved(hops, origins) == hops
