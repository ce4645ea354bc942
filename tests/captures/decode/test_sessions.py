from __future__ import annotations

from typing import Any

import pytest

from captures.decode import Acknowledged, Kind
from mqproto.wire import Guid, connection_parameters, encode_packet, establish_connection
from tests.captures.decode.scene import Scene, Wire, express, guid, transactional


def busy() -> tuple[Scene, Wire]:
    """A session on which a has sent three messages, two of them recoverable, and c has acknowledged the first two."""
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express(message_id=10))
    wire.send("a", transactional(1))
    wire.ack("c")
    wire.send("a", transactional(2))
    return scene, wire


def test_a_correct_session_has_no_findings() -> None:
    scene, wire = busy()
    wire.ack("c")
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")), riding=True)
    wire.ack("a")
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQMQ] 2.2.20.4")
def test_messages_have_their_numbers_and_acknowledgments_name_the_packets() -> None:
    scene, wire = busy()
    wire.ack("c")
    sights, _ = scene.sights()
    messages = [sight for sight in sights if sight.message is not None]
    assert [(sight.count, sight.recoverable_count) for sight in messages] == [(1, None), (2, 1), (3, 2)]
    first, second = [sight for sight in sights if sight.kind is Kind.SESSION_ACK]
    assert (first.received, first.saved) == (Acknowledged([5, 6]), Acknowledged([6]))
    assert (second.received, second.saved) == (Acknowledged([8]), Acknowledged([8]))


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_messages_without_their_bit_are_not_saved_and_may_be_later() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 5):
        wire.send("a", transactional(number))
    wire.ack("c", recoverable_msg_ack_flags=0b1010)
    wire.ack("c", recoverable_msg_ack_seq_number=3, recoverable_msg_ack_flags=1)
    sights, last = scene.sights()
    assert last == []
    assert [sight.saved for sight in sights[-2:]] == [Acknowledged([6, 8]), Acknowledged([5, 7])]


@pytest.mark.spec("[MS-MQMQ] 2.2.20.4")
def test_counts_go_on_beyond_65535() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    for end in wire.ends.values():
        end.sent = end.received = end.recoverable_sent = end.recoverable_received = end.saved = 65_534
    wire.ack("a")
    for number in range(1, 5):
        wire.send("a", transactional(number))
        wire.ack("c")
    sights, last = scene.sights()
    assert [sight.count for sight in sights if sight.message is not None] == [65_535, 0, 1, 2]
    assert [sight.received for sight in sights[2::2]] == [Acknowledged([number]) for number in (2, 4, 6, 8)]
    assert [finding for sight in sights for finding in sight.findings] + last == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param(
            {"ack_sequence_number": 4}, "ack-beyond-sent", marks=pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
        ),
        pytest.param(
            {"ack_sequence_number": 1}, "ack-backwards", marks=pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
        ),
        pytest.param(
            {"recoverable_msg_ack_flags": 0b11},
            "saved-beyond-sent",
            marks=pytest.mark.spec("[MS-MQQB] 3.1.5.5.3"),
        ),
        pytest.param(
            {"user_msg_sequence_number": 1}, "wrong-count", marks=pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
        ),
        pytest.param(
            {"recoverable_msg_seq_number": 1}, "wrong-count", marks=pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
        ),
    ],
)
def test_an_acknowledgment_that_is_wrong_is_a_fault_at_once_or_with_the_next_packet(
    changes: dict[str, Any], code: str
) -> None:
    scene, wire = busy()
    wrong = wire.ack("c", **changes)
    assert scene.faults() == [(code, wrong.number)]
    wire.send("a", transactional(3))
    assert scene.faults() == [(code, wrong.number)]
    sights, last = scene.sights()
    assert last == []
    assert len(sights[-1].findings) + len(sights[-2].findings) == 1


def test_messages_that_the_capture_lacks_may_be_acknowledged() -> None:
    scene, wire = busy()
    wire.ends["c"].received += 1  # which the capture does not have
    wire.ends["a"].sent += 1
    wire.ack("c")
    wire.send("a", transactional(3)).missing_bytes = 164
    assert scene.faults() == []
    assert scene.notes() == ["missing-bytes"]
    wire.ack("a")
    wire.ack("c")
    assert scene.faults() == []


def test_a_capture_of_one_direction_accuses_nobody() -> None:
    scene, wire = busy()
    for number in range(3, 80):
        wire.send("a", transactional(number))
        wire.ack("c")
    for sender in "ac":
        one_way = Scene([each for each in scene.packets if each.source == wire.ends[sender].endpoint])
        assert one_way.faults() == []


def test_at_the_end_of_a_capture_with_gaps_a_suspicion_is_a_note() -> None:
    scene, wire = busy()
    wire.ack("c", ack_sequence_number=4)
    assert [(each.severity, each.code) for each in scene.findings(lossless=False)] == [
        ("note", "ack-beyond-sent")
    ]


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
@pytest.mark.parametrize(("count", "codes"), [(4, []), (5, ["window-exceeded"]), (7, ["window-exceeded"])])
def test_more_messages_than_the_window_allows_without_acknowledgment_are_a_fault(
    count: int, codes: list[str]
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c", window=4)
    for number in range(1, count + 1):
        wire.send("a", transactional(number))
    wire.put("c", express(source=guid("c"), destination_manager=guid("a")))
    assert [code for code, _ in scene.faults()] == codes


def test_a_window_that_has_just_become_smaller_is_no_fault() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", window=4)
    wire.ack("c", window_size=1)
    for number in range(1, 5):
        wire.send("a", transactional(number))
    wire.ack("c", window_size=1)
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_message_before_the_session_is_open_is_out_of_turn(kept: int) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    answer = scene.packets[1]
    del scene.packets[kept:]
    wrong = wire.send("a", express())
    if kept == 1:
        assert scene.faults() == []  # The answer may have come where the capture does not see it.
        wire.put("c", answer.data)
    assert scene.faults() == [("out-of-turn", wrong.number)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.4")
@pytest.mark.parametrize("place", [0, 2])
def test_a_second_handshake_is_out_of_turn(place: int) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wrong = wire.put("a", scene.packets[place].data)
    assert scene.faults() == [("out-of-turn", wrong.number)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
@pytest.mark.parametrize(("client", "server"), [("a", "b"), ("b", "c")])
def test_an_answer_from_or_to_somebody_else_is_wrong(client: str, server: str) -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    wire.put("a", establish_connection(client=guid("a"), server=guid("c"), time_stamp_ms=0))
    wrong = wire.put("c", establish_connection(client=guid(client), server=guid(server), time_stamp_ms=0))
    assert scene.faults() == [("wrong-answer", wrong.number)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.4.1")
@pytest.mark.parametrize(
    ("timeouts_ms", "codes"),
    [((500, 20_000), []), ((501, 20_000), ["wrong-parameters"]), ((500, 20_001), ["wrong-parameters"])],
)
def test_an_acceptor_answers_with_the_timeouts_that_were_proposed_and_a_window_of_its_own(
    timeouts_ms: tuple[int, int], codes: list[str]
) -> None:
    scene = Scene()
    scene.wire("a", "c")
    del scene.packets[-1]
    saving_ms, ack_ms = timeouts_ms
    answer = connection_parameters(recoverable_ack_timeout_ms=saving_ms, ack_timeout_ms=ack_ms, window_size=9)
    Wire(scene, 0, "a", "c").put("c", answer)
    assert [code for code, _ in scene.faults()] == codes


def test_an_answer_to_a_request_for_anybody_may_come_from_anybody_and_a_refusal_is_a_note() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    wire.put("a", establish_connection(client=guid("a"), server=Guid(bytes(16)), time_stamp_ms=0))
    wire.put("c", establish_connection(client=guid("a"), server=guid("c"), time_stamp_ms=0))
    assert scene.findings() == []
    wire = scene.wire("a", "c", opened=False)
    wire.put("a", establish_connection(client=guid("a"), server=guid("b"), time_stamp_ms=0))
    refusal = establish_connection(client=guid("a"), server=guid("c"), time_stamp_ms=0, refused=True)
    wire.put("c", encode_packet(refusal))
    assert [(each.severity, each.code) for each in scene.findings()] == [("note", "refused")]


@pytest.mark.spec("[MS-MQQB] 2.2.1")
@pytest.mark.parametrize(("place", "who"), [(2, "initiator"), (3, "acceptor")])
def test_parameters_that_refuse_are_a_note_and_what_comes_then_is_out_of_turn(place: int, who: str) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    del scene.packets[place:]
    refusal = connection_parameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=9)
    refusal.internal.refused = True
    wire.put("a" if who == "initiator" else "c", refusal)
    [note] = scene.findings()
    assert (note.severity, note.code) == ("note", "refused")
    assert note.text == f"the {who} wants no session after all"
    wire.send("a", express())
    assert [code for code, _ in scene.faults()] == ["out-of-turn"]


def test_a_capture_that_begins_in_the_middle_is_judged_from_its_first_acknowledgment_on() -> None:
    scene, wire = busy()
    del scene.packets[:4]
    wire.ack("c")
    wire.ack("a")
    assert scene.findings() == []
    wrong = wire.ack("a", user_msg_sequence_number=99)
    assert scene.faults() == [("wrong-count", wrong.number)]
