"""Histories agree with `mqproto decode --follow` on every message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mqproto.captures.decode import Analyst, Follower, History, Names
from mqproto.captures.decode.ways import PASSED_OVER, SMALLEST_NUMBERED, Lack
from mqproto.captures.packets import SeenPacket
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.wire import MessageClass
from tests.captures.decode.scene import (
    BEGAN_NS,
    MILLISECOND,
    Scene,
    express,
    final,
    guid,
    names,
    ordered,
    passed_on,
    transactional,
)
from tests.captures.decode.story import story
from tests.captures.pipeline.stages.local import Analysed, Cluster, analyse
from tests.captures.pipeline.stages.table import SAMPLES, packet_table, sample

MANY_PASSING = [
    each
    for number in range(4, 24)
    for each in ((number, 0 if number == 4 else number - 1), ordered(number, 100 + number))
]
"""Messages that pass over lower numbers, each with its OrderAck."""


def histories(scene: Scene, *, lossless: bool = True) -> list[dict[str, Any]]:
    """Return the outcome of each message of a scene, in the order in which they were first seen."""
    found = analyse(packet_table(scene.packets), names=names("a", "b", "c"), lossless=lambda series: lossless)
    return sorted(found.rows("histories"), key=lambda row: row["row_id"])


def followed(seen: list[SeenPacket], message: str) -> History:
    """Return a message's history as `--follow` shows it."""
    analyst, follower = Analyst(), Follower(message, Names())
    for packet in seen:
        follower.take(analyst.take(packet))
    list(analyst.finish())
    follower.settle(analyst.lacking)
    [history] = follower.histories.values()
    return history


@pytest.mark.parametrize("name", SAMPLES)
def test_messages_arrive_and_end_as_follow_has_it(name: str) -> None:
    seen, _ = sample(name)
    found = analyse(packet_table(seen), cluster=Cluster(3, 40)).rows("histories")
    for row in found[::5]:
        history = followed(seen, row["message"])
        times = [event for event in history.events if event.packet in history.crossings]
        assert row["arrived_ns"] == history.arrived_ns
        assert (row["first_ns"], row["last_ns"]) == (times[0].time_ns, times[-1].time_ns)
        assert row["resends"] == len(times) - len({each.hop for each in history.crossings.values()})
        assert row["order_acked_ns"] == history.order_acked_ns or not row["order_ack_at_source"]
        said = [row["final_class"], *row["administration"]]
        assert (history.ended or None) in said


def test_a_story_is_told_with_its_route_its_resends_and_its_end() -> None:
    first, second = histories(story())
    assert (first["route"], first["hops"], first["resends"]) == (["a", "b", "c"], 2, 1)
    assert (second["route"], second["resends"]) == (["a", "b", "c"], 0)
    assert (
        first["latency_ns"]
        == first["hop_ns"][1] - first["hop_ns"][0]
        == first["arrived_ns"] - first["first_ns"]
    )
    assert (first["outcome"], first["whereabouts"]) == (Outcome.CONFIRMED, "c")
    assert (first["administration"], second["final_class"]) == (["ACK_REACH_QUEUE"], "ACK_RECEIVE")
    assert first["order_ack_at_source"]
    assert first["complete"]


def test_where_a_message_is_that_has_not_arrived() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    for number in (1, 2, 3):
        first.send("a", transactional(number))
    second.send("b", passed_on(transactional(1)))
    first.ack("b", ack_sequence_number=2, recoverable_msg_ack_flags=3)
    found = histories(scene)
    assert [row["outcome"] for row in found] == [Outcome.REACHED, Outcome.IN_FLIGHT, Outcome.IN_FLIGHT]
    assert [row["whereabouts"] for row in found] == ["c", "b", "a > b"]
    assert [row["reason"] for row in found] == [None] * 3
    lossy = histories(scene, lossless=False)
    assert [row["outcome"] for row in lossy] == [Outcome.REACHED, *[Outcome.NOT_KNOWN] * 2]
    assert [row["reason"] for row in lossy] == [None, *[str(Lack.LOST)] * 2]


def test_what_the_capture_lacks_of_other_ways_leaves_a_message_where_it_is() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(1))
    first.ack("b")
    elsewhere = scene.wire("c", "d")
    elsewhere.send("c", express(source=guid("c"), destination_manager=guid("d"))).missing_bytes = 500
    assert histories(scene)[0]["outcome"] == Outcome.IN_FLIGHT
    second.ack("c")
    second.ack("b").missing_bytes = 500
    [row, _] = histories(scene)
    assert (row["outcome"], row["reason"], row["whereabouts"]) == (Outcome.NOT_KNOWN, Lack.LOST, "b")


@pytest.mark.parametrize(("lacking_bytes", "outcome"), [(500, Outcome.IN_FLIGHT), (2_500, Outcome.NOT_KNOWN)])
def test_a_message_did_not_cross_where_too_little_is_lacking_to_have_been_it(
    lacking_bytes: int, outcome: Outcome
) -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(1, body=bytes(2_000)))
    second.ack("b").missing_bytes = lacking_bytes
    [row] = histories(scene)
    assert row["outcome"] == outcome


def test_a_direction_that_the_capture_has_not_may_have_carried_the_message() -> None:
    scene = Scene()
    scene.wire("a", "b").send("a", transactional(1))
    onward = scene.wire("b", "c")
    onward.ack("c")
    scene.packets = [packet for packet in scene.packets if packet.source != onward.ends["b"].endpoint]
    [row] = histories(scene)
    assert (row["outcome"], row["reason"]) == (Outcome.NOT_KNOWN, Lack.ONE_WAY)


def test_what_was_written_before_a_capture_that_began_late_may_have_come_before() -> None:
    scene = Scene()
    scene.wire("c", "d", opened=False).ack("d")
    scene.now_ns += 5_000 * MILLISECOND
    first = scene.wire("a", "b")
    first.send("a", transactional(1))
    first.send("a", transactional(2, sent_time_s=BEGAN_NS // 10**9 + 4))
    found = histories(scene)
    assert [row["outcome"] for row in found] == [Outcome.NOT_KNOWN, Outcome.IN_FLIGHT]
    assert found[0]["reason"] == Lack.BEGAN


def test_a_message_whose_destination_says_that_it_has_it_though_it_was_not_seen_to_come() -> None:
    scene = Scene()
    first = scene.wire("a", "b")
    first.send("a", transactional(1))
    first.send("b", passed_on(ordered(1)))
    [row] = histories(scene)
    assert (row["outcome"], row["arrived_ns"]) == (Outcome.ACKNOWLEDGED, None)


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_positive_final_ack_says_of_those_before_it_what_an_order_ack_would() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in (1, 2, 3, 4):
        wire.send("a", transactional(number))
    wire.send("c", ordered(1))
    wire.send("c", final(3))
    found = histories(scene)
    assert [row["outcome"] for row in found] == [*[Outcome.CONFIRMED] * 3, Outcome.REACHED]
    said_ns = scene.now_ns
    assert [row["covered_ns"] for row in found] == [None, said_ns, None, None]
    assert [row["final_class"] for row in found] == [None, None, "ACK_RECEIVE", None]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
def test_a_capture_that_begins_in_mid_session_knows_who_is_where_from_first_hops() -> None:
    """The capture has no handshake, and queues are named by their queue manager's GUID."""
    scene = Scene()
    first, second = scene.wire("a", "b", opened=False), scene.wire("b", "c", opened=False)
    for number in (1, 2):
        first.send("a", transactional(number))
        second.send("b", passed_on(transactional(number)))
    second.send("c", ordered(1))
    first.send("b", passed_on(ordered(1)))
    found = analyse(packet_table(scene.packets)).rows("histories")
    found.sort(key=lambda row: row["row_id"])
    assert [row["outcome"] for row in found] == [Outcome.CONFIRMED, Outcome.REACHED]
    assert [row["route"] for row in found] == [["10.0.0.1", "10.0.0.2:1801", "10.0.0.3:1801"]] * 2
    assert found[0]["order_ack_at_source"]
    second.send("b", express(message_id=9, source=guid("e")))
    second.send("b", express(message_id=10, source=guid("d")))
    found = analyse(packet_table(scene.packets)).rows("histories")
    assert {row["outcome"] for row in found} == {Outcome.CONFIRMED, Outcome.REACHED}


def test_of_many_order_acks_before_the_first_message_the_newest_count() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 21):
        wire.send("c", ordered(number, own_id=100 + number))
    for number in range(1, 22):
        wire.send("a", transactional(number))
    assert [row["outcome"] for row in histories(scene)] == [*[Outcome.CONFIRMED] * 20, Outcome.REACHED]


def test_an_order_ack_just_before_its_message_is_the_one_that_counts_however_many_come_later() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("c", ordered(1, own_id=101))
    wire.send("a", transactional(1))
    for number in range(2, 21):
        wire.send("a", transactional(number))
        wire.send("c", ordered(number, own_id=100 + number))
    first = histories(scene)[0]
    assert first["order_acked_ns"] < first["first_ns"]


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_order_ack_proves_nothing_of_what_a_later_message_has_passed_over() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    for message in (transactional(1), transactional(2), transactional(3, previous=1)):
        first.send("a", message)
    for message in (transactional(1), transactional(3, previous=1)):
        second.send("b", passed_on(message))
    second.send("c", ordered(3))
    found = [row["outcome"] for row in histories(scene)]
    assert found == [Outcome.CONFIRMED, Outcome.IN_FLIGHT, Outcome.CONFIRMED]


@pytest.mark.parametrize(("late_ns", "outcome"), [(1, Outcome.CONFIRMED), (-1, Outcome.REACHED)])
def test_what_passed_a_message_over_before_an_order_ack_counts_although_it_is_read_later(
    late_ns: int, outcome: Outcome
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    wire.send("a", transactional(2))
    ack = wire.send("c", ordered(3))
    wire.send("a", transactional(3, previous=1)).time_ns = ack.time_ns + late_ns
    assert [row["outcome"] for row in histories(scene)] == [Outcome.CONFIRMED, outcome, Outcome.CONFIRMED]


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize(
    ("packets", "told"),
    [
        # An OrderAck confirms also what the capture has behind it,
        ([ordered(2), 1, 2, 3], "CCR"),
        # but not what was passed over: its receiver may not have taken it,
        ([1, 2, (3, 1), ordered(3)], "CRC"),
        # nor if it comes late,
        ([1, (3, 1), ordered(3), 2], "CRC"),
        # unless a higher number than the acknowledged one passes it over,
        ([(9, 1), 1, 2, 3, ordered(3)], "CCCR"),
        # or there is an OrderAck of its own.
        ([1, 2, (3, 1), ordered(2, 102), ordered(3, 103)], "CCC"),
        # OrderAcks that prove less do not replace one.
        ([1, ordered(3, 103), *MANY_PASSING, 2], "C" * 22),
        # So it is with a FinalAck.
        ([(3, 1), 1, 2, 3, final(3)], "CRC"),
        # The FinalAck of a message that nobody saw says by itself what that passed over.
        ([1, 2, final(3, tx_previous_sequence_number=1), ordered(3)], "CR"),
        ([1, 2, ordered(3), final(3, tx_previous_sequence_number=1)], "CR"),
        ([1, 2, final(2), (3, 0), final(3, 201)], "CCC"),
        ([1, 2, final(2), (3, 0), final(3, 201), ordered(3)], "CCC"),
    ],
)
def test_an_acknowledgment_proves_what_no_message_up_to_it_passes_over(
    packets: list[int | tuple[int, int] | bytes], told: str
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for each in packets:
        if isinstance(each, bytes):
            wire.send("c", each)
        else:
            wire.send("a", transactional(*each) if isinstance(each, tuple) else transactional(each))
    found = {row["sequence_number"]: row["outcome"] for row in histories(scene)}
    assert "".join(found[number][0].upper() for number in sorted(found)) == told


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize("late", [(2, 3), (3, 2)])
def test_so_it_is_of_what_the_capture_has_behind_its_order_ack(late: tuple[int, int]) -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    passing = transactional(3, previous=1)
    first.send("a", transactional(1))
    for message in (transactional(1), passing):
        second.send("b", passed_on(message))
    second.send("c", ordered(4))
    messages = {2: transactional(2), 3: passing}
    for number in late:
        first.send("a", messages[number])
    first.send("a", transactional(4))
    found = {row["sequence_number"]: row["outcome"] for row in histories(scene)}
    assert (found[2], found[3], found[4]) == (Outcome.IN_FLIGHT, Outcome.CONFIRMED, Outcome.ACKNOWLEDGED)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@pytest.mark.parametrize("answer", [ordered(2), final(2)])
@pytest.mark.parametrize(
    ("again", "waited_ms", "lacking_bytes", "is_told"),
    [(True, 10, 200, False), (False, 2_000, 200, False), (False, 10, 200, True), (False, 2_000, 20, True)],
)
def test_a_message_may_be_passed_over_where_the_capture_lacks_one_that_may_have_been_sent_again(
    again: bool, waited_ms: int, lacking_bytes: int, is_told: bool, answer: bytes
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    wire.send("a", transactional(2))
    scene.now_ns += waited_ms * MILLISECOND
    wire = scene.wire("a", "c") if again else wire
    wire.send("a", express(message_id=9)).missing_bytes = lacking_bytes
    wire.send("c", answer)
    found = {row["sequence_number"]: row for row in histories(scene)}
    assert found[1]["outcome"] == (Outcome.CONFIRMED if is_told else Outcome.REACHED)
    assert found[1]["reason"] == (None if is_told else PASSED_OVER)
    assert found[2]["outcome"] == Outcome.CONFIRMED
    verdict = followed(scene.packets, "1").verdict()
    assert (" back after " in verdict) == is_told == (PASSED_OVER not in verdict)
    assert " after " in followed(scene.packets, "2").verdict().partition("; ")[2]


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("answer", [ordered, final])
@pytest.mark.parametrize(
    ("sizes", "number", "told"),
    [
        ((400, 200), 3, "RR"),
        ((200, 200), 3, "CR"),  # A FinalAck of each message before the new one has to have room.
        ((400, 200), 2, "CC"),
        ((20, 200), 3, "CC"),
        ((400, 20), 3, "CC"),
    ],
)
def test_a_new_message_may_pass_over_one_that_a_final_ack_ended_where_the_capture_lacks_both(
    sizes: tuple[int, int], number: int, told: str, answer: Callable[[int], bytes]
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for each in (1, 2):
        wire.send("a", transactional(each))
    wire.ack("c").missing_bytes = sizes[0]
    wire.send("a", express(message_id=9)).missing_bytes = sizes[1]
    wire.send("c", answer(number))
    assert "".join(row["outcome"][0].upper() for row in histories(scene)[:2]) == told
    assert (PASSED_OVER in followed(scene.packets, "1").verdict()) == (told[0] == "R")


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("lacking_bytes", [SMALLEST_NUMBERED - 1, SMALLEST_NUMBERED, 0])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_new_message_may_pass_over_one_that_was_refused_before(lacking_bytes: int, is_before: bool) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    packets = [
        ("a", transactional(1)),
        ("a", express(message_id=9)),
        ("a", transactional(3)),
        ("c", ordered(3)),
    ]
    refusal = final(1, message_class=MessageClass.NACK_Q_EXCEED_QUOTA)
    packets.insert(1 if is_before else 4, ("c", refusal))
    hidden = [wire.send(*each) for each in packets][2 if is_before else 1]
    hidden.missing_bytes = lacking_bytes
    if not lacking_bytes:
        hidden.data, hidden.cut_bytes = hidden.data[:62], len(hidden.data) - 62
    row, verdict = histories(scene)[0], followed(scene.packets, "1").verdict()
    is_told = not is_before or lacking_bytes == SMALLEST_NUMBERED - 1
    assert (row["order_acked_ns"] is not None) == ("OrderAck back" in verdict) == is_told
    assert row["outcome"] == Outcome.REFUSED
    assert PASSED_OVER not in verdict


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@pytest.mark.parametrize("lacking", [("a",), ("b",), ("a", "b")])
def test_it_is_passed_over_unseen_only_where_each_hop_lacks_something(lacking: tuple[str, ...]) -> None:
    scene = Scene()
    wires = {"a": scene.wire("a", "b"), "b": scene.wire("b", "c")}
    for number in (1, 2):
        for hops, (sender, wire) in enumerate(wires.items()):
            wire.send(sender, passed_on(transactional(number), hops))
    scene.now_ns += 2_000 * MILLISECOND
    for sender in lacking:
        wires[sender].send(sender, express(message_id=9)).missing_bytes = 200
    wires["b"].send("c", ordered(2))
    wires["a"].send("b", ordered(2))
    is_told = len(lacking) == 1
    found = {row["sequence_number"]: row["outcome"] for row in histories(scene)}
    assert found[1] == (Outcome.CONFIRMED if is_told else Outcome.REACHED)
    assert (PASSED_OVER in followed(scene.packets, "1").verdict()) != is_told


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_an_order_ack_that_is_read_late_tells_of_a_message_by_its_time() -> None:
    """Packets that follow bytes missing from the capture are read after those of other connections."""
    scene = Scene()
    late, wire = scene.wire("a", "c"), scene.wire("a", "c")
    sent_ns = scene.now_ns
    scene.now_ns += 3_000 * MILLISECOND
    wire.send("a", express(message_id=8))
    wire.send("a", express(message_id=9)).missing_bytes = 200
    wire.send("c", ordered(2))
    scene.now_ns = sent_ns
    late.send("a", transactional(1))
    late.send("a", transactional(2))
    late.send("c", ordered(2, own_id=99))
    found = {row["sequence_number"]: row["outcome"] for row in histories(scene)}
    assert found[1] == Outcome.CONFIRMED
    assert PASSED_OVER not in followed(scene.packets, "1").verdict()


def test_of_a_message_whose_number_was_lost_no_answer_would_be_known() -> None:
    scene = Scene()
    wire = scene.wire("a", "b")
    wire.send("a", transactional(1))
    wire.send("a", transactional(2)).missing_bytes = 200
    hops = analyse(packet_table(scene.packets)).rows("hops")
    assert [row["numbered"] for row in sorted(hops, key=lambda row: int(row["number"]))] == [True, False]


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_final_ack_of_a_refusal_or_by_somebody_else_says_nothing_of_those_before_it() -> None:
    scene = Scene()
    wire, other = scene.wire("a", "c"), scene.wire("a", "b")
    for number in (1, 2):
        wire.send("a", transactional(number))
    wire.send("c", final(2, message_class=MessageClass.NACK_Q_EXCEED_QUOTA))
    other.send("b", final(2, own_id=300, source="b"))
    assert [row["outcome"] for row in histories(scene)] == [Outcome.REACHED, Outcome.REFUSED]


@pytest.mark.parametrize(
    ("message_class", "outcome"),
    [
        (MessageClass.NACK_RECEIVE_TIMEOUT, Outcome.EXPIRED),
        (MessageClass.NACK_REACH_QUEUE_TIMEOUT, Outcome.EXPIRED),
        (MessageClass.NACK_Q_EXCEED_QUOTA, Outcome.REFUSED),
        (MessageClass.ACK_REACH_QUEUE, Outcome.CONFIRMED),
    ],
)
def test_an_administration_acknowledgment_says_how_a_message_ended(
    message_class: MessageClass, outcome: Outcome
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express(message_id=7))
    answer = {"source": guid("c"), "destination_manager": guid("a"), "message_id": 900}
    correlation_id = guid("a") + (7).to_bytes(4, "little")
    wire.send("c", express(**answer, message_class=message_class, correlation_id=correlation_id))
    [row] = histories(scene)
    assert (row["outcome"], row["administration"]) == (outcome, [message_class.name])


def test_an_acknowledgment_by_somebody_to_whom_the_message_never_went_says_nothing() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(1))
    second.send("b", passed_on(transactional(1)))
    for acknowledgment in (ordered(1, source="b"), ordered(1, source="b")):
        first.send("b", acknowledgment)
    [row] = histories(scene)
    assert (row["outcome"], row["order_acked_ns"]) == (Outcome.REACHED, None)
    first.send("b", final(1))
    assert histories(scene)[0]["final_class"] == "ACK_RECEIVE"


def test_a_message_waits_where_it_came_before_it_left() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(1))
    scene.now_ns += 500 * MILLISECOND
    second.send("b", passed_on(transactional(1)))
    second.ack("c")
    found = analyse(packet_table(scene.packets)).rows("hops")
    assert [(row["position"], row["waited_ns"]) for row in found] == [(1, None), (2, 501 * MILLISECOND)]
    assert found[1]["acknowledged_ns"] == found[1]["first_ns"] + MILLISECOND


def analysed(seen: list[SeenPacket]) -> Analysed:
    return analyse(packet_table(seen), cluster=Cluster(2, 1_000))
