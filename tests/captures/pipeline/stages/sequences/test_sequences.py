from __future__ import annotations

from mqproto.captures.decode.sequences import HOP_LIMIT, NUMBER_LIMIT
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.stages.sequences.sequence_counts import Unconfirmed
from mqproto.wire import MessageClass
from tests.captures.decode.scene import MILLISECOND, Scene, final, ordered, passed_on, transactional
from tests.captures.decode.test_sequences import direct, through
from tests.captures.pipeline.stages.local import Analysed, analyse
from tests.captures.pipeline.stages.table import packet_table


def analysed(scene: Scene) -> Analysed:
    return analyse(packet_table(scene.packets))


def test_a_sequence_counts_its_messages_once_and_its_hops_what_crossed_them() -> None:
    scene, first, second = through([1, 2, 3, 2], [1, 3])
    second.send("c", ordered(1, 100))
    first.send("b", passed_on(ordered(1, 100)))
    for answer in [final(1), final(2, 201, message_class=MessageClass.NACK_Q_PURGED), final(3, 202)] * 2:
        second.send("c", answer)
        first.send("b", passed_on(answer))
    found = analysed(scene)
    [row] = found.rows("sequences")
    assert (row["first_number"], row["last_number"], row["messages"]) == (1, 3, 3)
    assert (row["order_acks"], row["order_acked"], row["one_queue"]) == (1, 1, True)
    assert (row["final_acks_positive"], row["final_acks_negative"]) == (2, 1)
    hops = sorted(found.rows("sequence_hops"), key=lambda row: row["first_ns"])
    assert [(row["messages"], row["resends"], row["gaps"], row["gaps_open"]) for row in hops] == [
        (3, 1, 0, 0),
        (2, 0, 1, 1),
    ]


def test_a_gap_knows_what_opened_it_and_what_filled_it() -> None:
    scene, _ = direct(1, 4, 5, 2, 3, 9)
    filled, left = sorted(analysed(scene).rows("gaps"), key=lambda row: row["first_number"])
    assert (filled["first_number"], filled["last_number"]) == (2, 3)
    assert (filled["opened_by"], filled["filled_by"]) == (6, 9)
    assert filled["filled_ns"] - filled["opened_ns"] == 3 * MILLISECOND
    assert (left["first_number"], left["last_number"], left["filled_by"]) == (6, 8, None)


def test_an_order_ack_covers_what_is_new_to_it_and_its_delay_is_that_of_the_last() -> None:
    scene, first, second = through([1, 2, 3], [1, 2, 3])
    scene.now_ns += 500 * MILLISECOND
    for number in (2, 3):
        second.send("c", ordered(number, 100 + number))
        first.send("b", passed_on(ordered(number, 100 + number)))
    rows = sorted(analysed(scene).rows("order_acks"), key=lambda row: row["row_id"])
    assert [(row["sequence_number"], row["covered"], row["at_source"]) for row in rows] == [
        (2, 2, False),
        (2, None, True),
        (3, 1, False),
        (3, None, True),
    ]
    assert [row["delay_ns"] for row in rows] == [502 * MILLISECOND, None, 503 * MILLISECOND, None]
    confirmed = {(row["subject"][-1], row["number"]) for row in analysed(scene).rows("confirmations")}
    assert {number for number, _ in confirmed} == {"1", "2", "3"}
    assert len(confirmed) == 6


def test_an_order_ack_that_nobody_should_have_sent_confirms_nothing() -> None:
    scene, first, _ = through([1, 2], [1, 2])
    for _ in range(2):
        first.send("b", ordered(2, 100, source="b"))
    found = analysed(scene)
    assert found.rows("confirmations") == found.rows("order_acks") == []


def test_numbers_without_an_order_ack_are_remembered_within_bounds() -> None:
    waiting = Unconfirmed()
    for number in range(NUMBER_LIMIT + 10, 0, -1):
        waiting.add(number, number, None)
        waiting.add(number, number + 1, 7)
        waiting.add(number, number, None)
    found = waiting.through(1 << 31)
    assert (found[0], len(found)) == ((11, 11, 7), NUMBER_LIMIT)
    assert waiting.through(1 << 31) == []


def test_one_identifier_for_two_queues_is_no_sequence_to_judge() -> None:
    scene, wire = direct(1)
    wire.send("a", transactional(5, destination=17, message_id=50))
    [row] = analysed(scene).rows("sequences")
    assert not row["one_queue"]


def test_a_sequence_on_more_hops_than_there_can_be_is_counted_on_so_many() -> None:
    scene = Scene()
    for number in range(HOP_LIMIT + 5):
        wire = scene.wire("a", "c", opened=False)
        wire.ends["a"].endpoint = Endpoint(f"10.1.0.{number}", 50_000)
        wire.send("a", passed_on(transactional(1)))
    assert len(analysed(scene).rows("sequence_hops")) == HOP_LIMIT
