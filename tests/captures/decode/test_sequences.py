from __future__ import annotations

import re

import pytest

from mqproto.captures.decode import Acknowledged, Kind, Severity
from mqproto.captures.decode.sequences import HOP_LIMIT, NUMBER_LIMIT, SEQUENCE_LIMIT, shown
from mqproto.captures.decode.sessions.half import LOSS_LIMIT
from mqproto.captures.decode.ways import SMALLEST_NUMBERED, SPAN_LIMIT
from mqproto.captures.files.frame import Interface
from mqproto.captures.net.tcp import Endpoint
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    MessageClass,
    TransactionHeader,
    TxSequenceId,
)
from tests.captures.decode.scene import (
    BEGAN_NS,
    MILLISECOND,
    SEQUENCE,
    Scene,
    Wire,
    express,
    final,
    ordered,
    passed_on,
    transactional,
)


def direct(*numbers: int) -> tuple[Scene, Wire]:
    """Return a scene in which a sends these numbers directly to c.

    Each message names the number before its own as its predecessor.
    """
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in numbers:
        wire.send("a", transactional(number))
    return scene, wire


def through(came: list[int], left: list[int]) -> tuple[Scene, Wire, Wire]:
    """Return a scene in which a sends numbers through b, which passes some of them on to c."""
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    for number in came:
        first.send("a", transactional(number))
    for number in left:
        second.send("b", passed_on(transactional(number)))
    return scene, first, second


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_order_ack_names_the_packets_of_all_that_it_newly_covers_on_each_of_its_hops() -> None:
    scene, first, second = through([1, 2, 3], [1, 2, 3])
    second.send("c", ordered(2, 100))
    first.send("b", passed_on(ordered(2, 100)))
    second.send("c", ordered(3, 101))
    sights, _ = scene.sights()
    acks = [sight.ended for sight in sights if sight.kind is Kind.ORDER_ACK]
    assert acks == [Acknowledged([12, 13]), Acknowledged([12, 13]), Acknowledged([14])]
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_a_gap_on_a_hop_is_noted_once_and_so_is_that_it_was_filled() -> None:
    scene, wire = direct(1, 4, 5, 2, 3)
    notes = [(each.code, each.packet) for each in scene.findings()]
    assert notes == [("gap", 6), ("gap-filled", 9)]
    assert "numbers 2-3" in scene.findings()[0].text
    wire.send("c", ordered(5))
    assert scene.faults() == []


def test_a_number_that_a_later_message_bridges_is_no_longer_missing() -> None:
    scene, wire = direct(1, 3)
    wire.send("a", transactional(3, previous=1))
    wire.send("c", ordered(3))
    assert scene.notes() == ["gap", "resend", "gap-filled"]
    assert "not seen before #6, came or are passed over within" in scene.findings()[-1].text
    assert scene.faults() == []


def test_what_fills_a_gap_behind_packets_that_crossed_later_came_before_them() -> None:
    scene, _ = direct(1, 3)
    again = scene.wire("a", "c")
    scene.now_ns -= 1_000 * MILLISECOND
    again.send("a", transactional(2))
    assert re.search("number 2 of .*, not seen before #6, came 0.9.. s before it", scene.findings()[-1].text)


def test_numbers_that_no_message_has_leave_no_gap() -> None:
    scene, wire = direct(1)
    wire.send("a", transactional(9, previous=1))
    wire.send("c", ordered(9))
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize(
    ("sent", "then"), [([1, 2, 4], []), ([1, 2, 4], [3]), ([1, 2, 4], [5]), ([1, 2, 3], [])]
)
def test_an_order_ack_beyond_what_came_by_the_only_way_is_a_fault(sent: list[int], then: list[int]) -> None:
    scene, wire = direct(*sent)
    wrong = wire.send("c", ordered(4))
    for number in then:
        wire.send("a", transactional(number))
    assert scene.faults() == [("order-ack-beyond", wrong.number)]


def test_an_order_ack_for_a_message_that_stopped_at_an_intermediate_is_a_fault() -> None:
    scene, _, second = through([1, 2, 3], [1, 2])
    wrong = second.send("c", ordered(3))
    assert scene.faults() == [("order-ack-beyond", wrong.number)]


def test_an_order_ack_for_messages_that_took_a_way_which_the_capture_lacks_is_a_note() -> None:
    """An OrderAck for messages that took a route which the capture lacks is only a note.

    The capture is from an intermediate node. After the second message, the sender took another route.
    """
    scene, _, second = through([1, 2], [1, 2])
    second.send("c", ordered(7))
    assert scene.faults() == []
    assert scene.notes() == ["order-ack-beyond"]


@pytest.mark.parametrize("ahead", [False, True])
def test_what_the_capture_lacks_of_a_connection_behind_an_order_ack_explains_none(ahead: bool) -> None:
    scene, wire = direct(1, 2)
    wrong = wire.send("c", ordered(3))
    wrong.ahead = ahead
    wire.send("a", transactional(4)).missing_bytes = 200
    assert scene.faults() == ([] if ahead else [("order-ack-beyond", wrong.number)])


@pytest.mark.parametrize("missing_bytes", [SMALLEST_NUMBERED - 1, SMALLEST_NUMBERED])
def test_a_hole_that_has_no_room_for_a_transactional_message_explains_no_order_ack(
    missing_bytes: int,
) -> None:
    scene, wire = direct(1, 2)
    wire.send("a", transactional(2)).missing_bytes = missing_bytes
    wrong = wire.send("c", ordered(3))
    explained = missing_bytes == SMALLEST_NUMBERED
    assert scene.faults() == ([] if explained else [("order-ack-beyond", wrong.number)])


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
@pytest.mark.parametrize("hidden", [express(message_id=9), transactional(3)])
def test_a_session_header_tells_whether_a_hole_had_a_recoverable_message(hidden: bytes) -> None:
    scene, wire = direct(1, 2)
    wire.send("a", hidden)
    scene.packets.pop()
    wire.ack("a").missing_bytes = len(hidden)
    wrong = wire.send("c", ordered(3))
    explained = hidden == transactional(3)
    assert scene.faults() == ([] if explained else [("order-ack-beyond", wrong.number)])


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
def test_a_message_that_is_cut_before_its_number_explains_an_order_ack_though_it_is_counted() -> None:
    scene, wire = direct(1, 2)
    cut = wire.send("a", transactional(3))
    cut.data, cut.cut_bytes = cut.data[:82], len(cut.data) - 82
    wire.ack("a")
    wire.send("c", ordered(3))
    assert scene.faults() == []


def test_two_holes_are_not_one_that_reaches_from_one_to_the_other() -> None:
    scene, wire = direct(1, 2)
    wire.send("a", transactional(2)).missing_bytes = 200
    scene.now_ns += 5_000 * MILLISECOND
    late = {"sent_time_s": BEGAN_NS // 10**9 + 5}
    wire.send("a", transactional(3, **late))
    wrong = scene.wire("c", "a").send("c", ordered(4))
    scene.now_ns += 5_000 * MILLISECOND
    wire.send("a", transactional(3, **late))
    wire.send("a", transactional(3, **late)).missing_bytes = 200
    assert scene.faults(ends=wire.reset("a")) == [("order-ack-beyond", wrong.number)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.3")
def test_a_hole_in_the_handshake_of_another_connection_had_no_message() -> None:
    scene, wire = direct(1, 2)
    other = scene.wire("a", "c", opened=False)
    offer = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    for end in ("a", "c"):
        other.put(end, offer, missing_bytes=572, opened=end == "a").position = 572
    wrong = wire.send("c", ordered(3))
    assert scene.faults(ends=other.reset("a")) == [("order-ack-beyond", wrong.number)]


def test_an_order_ack_for_an_address_is_taken_once_it_is_known_who_is_there() -> None:
    scene = Scene()
    scene.wire("c", "a", opened=False).send("c", ordered(2, towards=NULL_GUID))
    assert "order-ack-unknown" not in scene.notes()
    scene.wire("a", "c")
    assert "order-ack-unknown" in scene.notes()


def test_the_first_packets_of_one_end_may_be_missing_if_it_is_known_how_much_the_other_end_sent() -> None:
    scene, wire = direct(1, 2)
    other = scene.wire("c", "a", opened=False)
    other.ack("c", user_msg_sequence_number=9).missing_bytes = 604
    other.ack("a", user_msg_sequence_number=9)
    wire.send("c", ordered(3))
    assert scene.faults(ends=other.reset("a")) == []


def test_what_was_written_behind_an_order_ack_was_not_before_it_whatever_lacks() -> None:
    scene, wire = direct(1, 2)
    other = scene.wire("a", "c")
    wrong = wire.send("c", ordered(4))
    scene.now_ns += 5_000 * MILLISECOND
    wire.send("a", transactional(3, sent_time_s=BEGAN_NS // 10**9 + 5))
    other.send("a", express(message_id=9)).missing_bytes = 200
    assert scene.faults(ends=other.reset("a")) == [("order-ack-beyond", wrong.number)]


@pytest.mark.parametrize("lost", ["first", "second", "both"])
def test_what_never_left_its_source_did_not_come_by_way_of_another(lost: str) -> None:
    scene, first, second = through([1, 2], [1, 2])
    if lost != "second":
        first.send("a", transactional(2)).missing_bytes = 200
    if lost != "first":
        second.send("b", passed_on(transactional(2))).missing_bytes = 200
    second.send("c", ordered(3))
    assert ("order-ack-beyond" in scene.notes()) == (lost != "both")
    assert scene.faults() == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize("holes", [1, 2, LOSS_LIMIT + 2])
@pytest.mark.parametrize("same", [True, False])
def test_what_was_seen_behind_a_hole_was_in_it_if_a_higher_number_was(holes: int, same: bool) -> None:
    scene, wire = direct(1)
    other = wire if same else scene.wire("a", "c")
    for _ in range(holes):
        other.send("a", express(message_id=9)).missing_bytes = 2 * SMALLEST_NUMBERED
        other.ack("c")
    scene.now_ns += 2_000 * MILLISECOND
    for number in (2, 3):
        wire.send("a", transactional(number))
    wrong = wire.send("c", ordered(4))
    faults = scene.faults(ends=other.reset("a") if not same else None)
    assert faults == ([("order-ack-beyond", wrong.number)] if holes == 1 else [])


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_what_took_another_way_may_come_behind_higher_numbers_that_were_in_a_hole() -> None:
    scene, _, second = through([3, 4, 5], [3])
    second.send("b", passed_on(transactional(5))).missing_bytes = SMALLEST_NUMBERED
    scene.now_ns += 2_000 * MILLISECOND
    other = scene.wire("a", "c")
    for number in (1, 2):
        other.send("a", transactional(number))
    other.send("c", ordered(5))
    assert scene.faults(ends=other.reset("a") | second.reset("b")) == []


def test_what_was_lost_before_a_number_was_written_explains_no_order_ack_for_it() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1)).missing_bytes = 200
    scene.now_ns += 5_000 * MILLISECOND
    wire.send("a", transactional(2, sent_time_s=BEGAN_NS // 10**9 + 5))
    wrong = wire.send("c", ordered(3))
    assert scene.faults() == [("order-ack-beyond", wrong.number)]


def fell_silent(next_client: str = "a") -> tuple[Scene, Wire, int]:
    """Return a scene with a connection that does not end.

    Later there is another connection, with an OrderAck for a higher number.
    """
    scene, wire = direct(1, 2)
    scene.now_ns += 5_000 * MILLISECOND
    server = "c" if next_client != "c" else "a"
    wrong = scene.wire(next_client, server).send("c", ordered(3))
    return scene, wire, wrong.number


@pytest.mark.parametrize("client", ["a", "c"])
def test_what_a_connection_that_fell_silent_may_have_brought_accuses_nobody(client: str) -> None:
    scene, _, _ = fell_silent(client)
    assert scene.faults() == []


def test_nor_does_it_where_many_more_fall_silent_later() -> None:
    scene, _, _ = fell_silent()
    for _ in range(SPAN_LIMIT + 1):
        scene.now_ns += 1_000 * MILLISECOND
        scene.wire("a", "c")
    assert scene.faults() == []


@pytest.mark.parametrize("by", ["a", "c"])
def test_a_connection_that_is_seen_to_end_has_brought_no_more_than_it_is_seen_to(by: str) -> None:
    scene, wire, wrong = fell_silent()
    assert scene.faults(ends=wire.reset(by)) == [("order-ack-beyond", wrong)]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("missing_bytes", [0, 200])
def test_a_whole_connection_may_be_lost_where_another_fell_silent_and_frames_are_missing(
    missing_bytes: int, first: bool
) -> None:
    scene = Scene()
    scene.wire("d", "b")
    ends = {} if first else scene.wire("a", "c").reset("a")
    scene.now_ns += 5_000 * MILLISECOND
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    wrong = wire.send("c", ordered(3))
    scene.wire("d", "b").send("d", express(message_id=9)).missing_bytes = missing_bytes
    wrongs = [] if missing_bytes else [("order-ack-beyond", wrong.number)]
    assert scene.faults(ends=ends | wire.reset("a")) == wrongs


def test_a_connection_whose_two_have_no_other_since_is_taken_for_whole() -> None:
    scene, wire = direct(1, 2)
    scene.now_ns += 5_000 * MILLISECOND
    scene.wire("a", "b")
    wrong = wire.send("c", ordered(3))
    assert scene.faults() == [("order-ack-beyond", wrong.number)]


@pytest.mark.parametrize("apart_ms", [0, 2_000, -3_000])
def test_halves_of_a_tap_whose_clocks_are_apart_accuse_nobody(apart_ms: int) -> None:
    scene, wire = direct(1, 2)
    wire.send("a", transactional(4)).missing_bytes = 200
    wire.send("c", ordered(3))
    for packet in scene.packets:
        if packet.source == wire.ends["a"].endpoint:
            packet.time_ns += apart_ms * MILLISECOND
    assert scene.faults() == []


@pytest.mark.parametrize("interface", [0, 1])
def test_times_of_two_interfaces_do_not_tell_what_was_lost_later(interface: int) -> None:
    scene, wire = direct(1, 2)
    wrong = wire.send("c", ordered(3))
    scene.now_ns += 5_000 * MILLISECOND
    before = len(scene.packets)
    scene.wire("a", "c").send("a", transactional(4)).missing_bytes = 200
    for packet in scene.packets[before:]:
        packet.interface = Interface(interface)
    assert scene.faults(ends=wire.reset("a")) == ([] if interface else [("order-ack-beyond", wrong.number)])


def test_an_order_ack_that_is_read_before_what_leads_to_its_sender_is_judged_in_the_end() -> None:
    """An OrderAck that is read before the packets that identify its sender is judged at the end.

    If frames are lost, a whole connection may be read after others.
    """
    scene, first, second = through([1, 2], [])
    first.send("b", passed_on(ordered(9)))
    second.send("b", passed_on(transactional(1)))
    assert [each.code for each in scene.findings()] == ["order-ack-beyond"]


def test_an_order_ack_that_a_later_one_has_overtaken_is_judged_too() -> None:
    scene, wire = direct(1, 2, 3)
    wire.send("c", ordered(3, own_id=102))
    wrong = wire.send("c", ordered(9, own_id=101))
    assert ("order-ack-beyond", wrong.number) in scene.faults()


def test_that_packets_had_to_wait_for_others_says_nothing_of_clocks() -> None:
    scene, wire = direct(1, 2)
    wrong = wire.send("c", ordered(9))
    late = scene.wire("b", "d")
    scene.now_ns -= 5_000 * MILLISECOND
    late.send("b", express()).missing_bytes = 200
    assert scene.faults() == [("order-ack-beyond", wrong.number)]


@pytest.mark.parametrize("in_time", [False, True])
def test_what_was_passed_on_unseen_had_come_before_that(in_time: bool) -> None:
    scene, first, second = through([1, 2], [1])
    for wire, sender in [(first, "a"), (second, "b")][:: 1 if in_time else -1]:
        wire.send(sender, express(message_id=len(scene.packets)))
        wire.send(sender, express(message_id=len(scene.packets))).missing_bytes = 300
        scene.now_ns += 3_000 * MILLISECOND
    second.send("c", ordered(4))
    assert scene.notes().count("order-ack-beyond") == (not in_time)


def test_an_order_ack_may_cover_what_came_before_the_capture_began_and_is_sent_again_in_it() -> None:
    """An OrderAck may cover messages from before the capture, even if they are sent again during it.

    The earlier connections ended before the capture, so the capture shows the beginning of all others.
    """
    scene = Scene()
    scene.now_ns += 3_000 * MILLISECOND
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    wire.send("c", ordered(20))
    assert scene.findings() == []
    wire.send("a", transactional(21, sent_time_s=BEGAN_NS // 10**9 + 3))
    wrong = wire.send("c", ordered(30, own_id=101))
    assert scene.faults() == [("order-ack-beyond", wrong.number)]


def test_a_clock_that_is_ahead_proves_nothing_about_when_messages_were_written() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1, sent_time_s=BEGAN_NS // 10**9 + 60))
    wire.send("a", transactional(2))
    wire.send("c", ordered(20))
    assert scene.findings() == []


@pytest.mark.parametrize("after_ms", [500, 1_500])
def test_what_came_by_another_connection_a_moment_later_may_have_come_in_time(after_ms: int) -> None:
    scene, wire = direct(1, 2)
    wrong = wire.send("c", ordered(3))
    scene.now_ns += after_ms * MILLISECOND
    scene.wire("a", "c").send("a", transactional(3))
    faults = scene.faults(ends=wire.reset("a"))
    assert faults == ([] if after_ms < 1_000 else [("order-ack-beyond", wrong.number)])


def test_an_order_ack_beyond_what_came_a_moment_later_is_a_note() -> None:
    scene, first, second = through([1, 2, 3], [1])
    wrong = first.send("b", passed_on(ordered(4)))
    third = scene.wire("b", "c")
    for number in (2, 3):
        third.send("b", passed_on(transactional(number)))
    found = scene.findings(ends=second.reset("b"))
    assert not any(each.severity is Severity.FAULT for each in found)
    noted = [each for each in found if each.code == "order-ack-beyond"]
    assert [each.packet for each in noted] == [wrong.number]
    assert "number 4 had not come to its sender" in noted[0].text


def test_of_order_acks_the_capture_may_have_the_later_one_first() -> None:
    scene, wire = direct(1, 2, 3)
    wrong = wire.send("c", ordered(2, own_id=102))
    wire.send("c", ordered(3, own_id=101))
    assert scene.faults() == [("order-ack-backwards", wrong.number)]


def test_an_order_ack_that_comes_before_the_messages_of_its_sequence_is_no_riddle() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("c", ordered(3))
    wire.send("a", transactional(2))
    assert scene.findings() == []


def test_a_gap_is_not_noted_behind_bytes_that_the_capture_lacks() -> None:
    scene, wire = direct(1)
    wire.send("a", transactional(4)).missing_bytes = 500
    assert scene.notes() == ["missing-bytes"]
    wire.send("a", transactional(6))
    assert scene.notes() == ["missing-bytes", "gap"], "nothing lacks since number 4"
    assert [each.others for each in scene.findings() if each.code == "gap"] == [(scene.packets[-2].number,)]
    scene, wire = direct(1, 2)
    wire.send("a", transactional(2)).missing_bytes = 500
    wire.send("a", transactional(6))
    assert scene.notes() == ["missing-bytes", "resend"], "more may have crossed before"


def test_a_sequence_that_began_before_the_capture_is_judged_from_its_first_number_on() -> None:
    scene, wire = direct(7, 8)
    wire.send("c", ordered(8))
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_later_order_ack_for_less_is_a_fault_and_an_overtaken_one_is_not() -> None:
    scene, wire = direct(1, 2, 3)
    wire.send("c", ordered(3, own_id=101))
    wire.send("c", ordered(2, own_id=100))
    assert scene.findings() == []
    wrong = wire.send("c", ordered(2, own_id=102))
    assert scene.faults() == [("order-ack-backwards", wrong.number)]


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_order_acks_of_two_lives_are_not_compared() -> None:
    """A queue manager whose store was put back begins far from its earlier MessageIDs."""
    scene, wire = direct(1, 2, 3)
    wire.send("c", ordered(2, own_id=2**30 + 101))
    wire.send("c", ordered(3, own_id=100))
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_order_ack_by_an_intermediate_is_a_fault_once_and_accuses_nobody_else() -> None:
    scene, first, second = through([1, 2, 3], [1, 2])
    wrong = first.send("b", ordered(3, source="b"))
    second.send("c", ordered(2, 101))
    first.send("b", passed_on(ordered(2, 101)))
    likewise = first.send("b", ordered(3, 101, source="b"))
    assert scene.faults() == [("foreign-ack", wrong.number), ("foreign-ack", likewise.number)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("is_early", [False, True])
def test_a_final_ack_by_an_intermediate_is_a_fault_unless_it_says_that_the_message_ended_there(
    is_early: bool,
) -> None:
    scene, first, _ = through([1, 2][2 * is_early :], [])
    first.send("b", final(1, 201, "b", MessageClass.NACK_HOP_COUNT_EXCEEDED))
    wrong = first.send("b", final(2, 202, "b"))
    first.send("a", transactional(3))
    assert scene.faults() == [("foreign-ack", wrong.number)]


def test_a_wrong_acknowledgment_is_accused_once_on_all_its_hops() -> None:
    scene, first, second = through([1, 2], [1, 2])
    second.send("c", ordered(2, 100))
    wrong = second.send("c", ordered(1, 101))
    first.send("b", passed_on(ordered(1, 101)))
    assert scene.faults() == [("order-ack-backwards", wrong.number)]


def test_acknowledgments_of_sequences_that_the_capture_lacks_are_notes() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("c", ordered(3))
    wire.send("c", final(3))
    assert scene.faults() == []
    assert scene.notes() == ["order-ack-unknown", "final-ack-unknown"]


@pytest.mark.spec("[MS-MQQB] 2.2.5.1")
def test_a_final_ack_names_its_message() -> None:
    scene, wire = direct(1, 2)
    wire.send("c", final(2))
    sights, last = scene.sights()
    assert (sights[-1].ended, sights[-1].findings, last) == (Acknowledged([6]), [], [])


@pytest.mark.spec("[MS-MQQB] 2.2.5.1")
def test_a_final_ack_for_another_message_than_its_number_has_is_a_fault() -> None:
    scene, wire = direct(1, 2)
    wrong = wire.send("c", final(2, message_id=1))
    assert scene.faults() == [("final-ack-mismatch", wrong.number)]


@pytest.mark.spec("[MS-MQQB] 2.2.5")
def test_a_final_ack_for_a_message_that_was_never_sent_is_a_fault() -> None:
    scene, wire = direct(1, 2)
    wrong = wire.send("c", final(9))
    assert scene.faults() == [("final-ack-unknown", wrong.number)]


@pytest.mark.parametrize("ahead", [True, False])
def test_what_its_sender_had_may_come_behind_an_acknowledgment_that_is_ahead(ahead: bool) -> None:
    """Data that was received before an acknowledgment was sent may come after it in the capture.

    A message with missing bytes is read only once the missing bytes are given up.
    """
    for early in (ordered(3), final(3)):
        scene, wire = direct(1, 2)
        wrong = wire.send("c", early)
        wrong.ahead = ahead
        scene.now_ns += 5_000 * MILLISECOND
        wire.send("a", transactional(3))
        assert [packet for _, packet in scene.faults()] == ([] if ahead else [wrong.number])


@pytest.mark.spec("[MS-MQMQ] 2.2.20.5")
def test_two_messages_with_one_number_of_a_sequence_are_a_fault_and_a_resend_is_none() -> None:
    scene, wire = direct(1, 2)
    wire.send("a", transactional(2))
    assert scene.faults() == []
    wrong = wire.send("a", transactional(2, message_id=50))
    assert scene.faults() == [("number-reused", wrong.number)]


def test_an_identifier_that_two_queues_share_is_not_judged() -> None:
    scene, wire = direct(1)
    wire.send("a", transactional(5, destination=17, message_id=50))
    wire.send("c", ordered(5))
    assert scene.findings() == []


def test_a_sequence_that_crosses_more_hops_than_there_can_be_is_not_judged() -> None:
    scene, wire = direct(1, 2)
    wrong = wire.send("c", ordered(9))
    assert scene.faults() == [("order-ack-beyond", wrong.number)]
    for number in range(HOP_LIMIT):
        far = scene.wire("a", "c", opened=False)
        far.ends["a"].endpoint = Endpoint(f"10.1.0.{number}", 50_000)
        far.ends["c"].endpoint = Endpoint("10.2.0.1", 1_801)
        far.put("a", passed_on(transactional(3)))
    assert scene.faults() == []


def test_an_order_ack_with_its_number_in_the_identifier_is_not_judged() -> None:
    scene, wire = direct(1)
    wire.send("c", ordered(0, tx_sequence_id=TxSequenceId(ordinal=7)))
    assert scene.findings() == []


def test_an_order_ack_to_a_direct_name_belongs_to_the_end_of_its_hop() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1, destination="TCP:10.0.0.3\\private$\\orders"))
    wire.send("c", ordered(1))
    sights, _ = scene.sights()
    assert sights[-1].ended == Acknowledged([5])


def test_many_sequences_are_followed_in_bounded_memory() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for ordinal in range(1, 20):
        header = TransactionHeader(tx_sequence_id=TxSequenceId(time_stamp=1, ordinal=ordinal))
        wire.send("a", express(message_id=ordinal, transaction=header))
    wire.send("c", ordered(2**32 - 1, tx_sequence_id=TxSequenceId(time_stamp=1, ordinal=1)))
    assert [code for code, _ in scene.faults()] == ["order-ack-beyond"]
    assert SEQUENCE_LIMIT * 1_000 > NUMBER_LIMIT
    assert shown(SEQUENCE) == "1700000000:1"


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize("lost", [False, True])
def test_where_a_message_left_and_was_not_seen_to_come_another_may_have_done_so_too(lost: bool) -> None:
    came = [number for number in range(1, 8) if not (lost and number == 5)]
    scene, _, second = through(came, [1, 4, 5, 6, 7])
    wrong = second.send("c", ordered(7))
    assert scene.faults() == ([] if lost else [("order-ack-beyond", wrong.number)])
