from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.captures.decode import Acknowledged, Finding, Kind
from mqproto.captures.decode.analyst import session_facts
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.decode.ways import WayBook
from mqproto.captures.packets import PacketReader, SeenPacket
from mqproto.wire import ConnectionParameters, Guid, encode_packet, establish_connection
from tests.captures.decode.lossy import judged, lacking, lossy, sessions, spoilt_frames
from tests.captures.decode.scene import Scene, Wire, express, guid, transactional


def busy() -> tuple[Scene, Wire]:
    """Return a session on which a has sent three messages, two of them recoverable.

    c has acknowledged the first two.
    """
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
    assert [finding.code for sight in sights for finding in sight.findings] + last == ["caller-by-port"]


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
def test_an_acknowledgment_that_is_wrong_is_a_fault_at_once(changes: dict[str, Any], code: str) -> None:
    scene, wire = busy()
    wrong = wire.ack("c", **changes)
    assert scene.faults() == [(code, wrong.number)]
    wire.send("a", transactional(3))
    assert scene.faults() == [(code, wrong.number)]
    sights, last = scene.sights()
    assert last == []
    assert [each.code for each in sights[-2].findings] == [code]


@pytest.mark.long
@settings(max_examples=150)
@given(st.data(), sessions())
def test_a_session_by_the_book_has_no_findings_whatever_the_capture_lacks_of_it(
    data: st.DataObject, scene: Scene
) -> None:
    assert found(scene.packets) == []
    lacks = [seen for _, seen in data.draw(lossy(scene.packets))]
    assert [each for each in found(lacks) if each.code not in ("missing-bytes", "caller-by-port")] == []


@pytest.mark.long
@settings(max_examples=150)
@given(st.data(), sessions())
def test_so_it_is_whatever_frames_are_lost_late_or_doubled(data: st.DataObject, scene: Scene) -> None:
    frames = data.draw(spoilt_frames(scene.packets))
    seen = list(PacketReader(frames))
    assert [each for each in found(seen) if each.code not in ("missing-bytes", "caller-by-port")] == []


def found(packets: list[SeenPacket]) -> list[Finding]:
    """Return the findings of the rules of sessions."""
    return [finding for view in judged(packets) for finding in view.findings]


def cut(seen: SeenPacket, size_bytes: int) -> None:
    """Cut a packet, so that the capture has only its beginning."""
    seen.cut_bytes = seen.snapped_bytes = len(seen.data) - size_bytes
    seen.data = seen.data[:size_bytes]


def test_a_message_that_is_cut_is_counted_and_what_rode_on_it_is_not_known() -> None:
    """A cut message is counted, and what its missing part acknowledged is unknown.

    So the window is not exceeded: the missing part may have acknowledged the other end's messages.
    """
    scene = Scene()
    wire = scene.wire("a", "c", window=2)
    wire.send("a", express(message_id=1))
    wire.send("a", express(message_id=2))
    cut(wire.send("c", express(source=guid("c"), body=bytes(200)), riding=True), 150)
    wire.send("a", express(message_id=3))
    wire.send("a", express(message_id=4))
    views = judged(scene.packets)
    assert [finding for view in views for finding in view.findings] == []
    counts = [view.sent.count for view in views if view.sent is not None]
    assert counts == [1, 2, 1, 3, 4]
    assert views[-1].half.stale


@pytest.mark.parametrize(("size_bytes", "counts"), [(62, [1, 2, 3]), (61, [1, None])])
def test_a_message_that_is_cut_before_it_says_what_it_is_is_counted_if_its_user_header_is_there(
    size_bytes: int, counts: list[int | None]
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express(message_id=1))
    cut(wire.send("a", transactional(1)), size_bytes)
    wire.send("a", express(message_id=3))
    views = judged(scene.packets)
    assert [finding for view in views for finding in view.findings] == []
    assert [view.sent.count for view in views if view.sent is not None] == counts
    book = WayBook()
    facts = [session_facts(sight_of(packet)) for packet in scene.packets]
    sendings = [book.take(*each) for each in zip(facts, views, strict=True)]
    assert [hole.packet for hole in sendings[-1].holes] == [scene.packets[-2].number]


@pytest.mark.parametrize("size_bytes", [20, 40, 60])
def test_a_handshake_that_is_cut_accuses_nobody_and_tells_of_those_whom_it_names(size_bytes: int) -> None:
    scene, _ = busy()
    for seen in scene.packets[:2]:
        cut(seen, size_bytes)
    views = judged(scene.packets)
    assert [finding for view in views for finding in view.findings] == []
    keys = {20: ("10.0.0.1", "10.0.0.3:1801"), 40: (guid("a"), "10.0.0.3:1801"), 60: (guid("a"), guid("c"))}
    assert (views[-1].half.key, views[-1].other.key) == keys[size_bytes]
    assert [view.sent.count for view in views if view.sent is not None] == [1, 2, 3]


@pytest.mark.parametrize("sender", ["a", "c"])
def test_a_capture_of_one_direction_accuses_nobody(sender: str) -> None:
    scene, wire = busy()
    for number in range(3, 80):
        wire.send("a", transactional(number))
        wire.ack("c")
    other = wire.ends[wire.other(sender)].endpoint
    lost = [place for place, each in enumerate(scene.packets) if each.source == other]
    assert found(lacking(scene.packets, lost)) == []


@dataclass(frozen=True)
class Breach:
    """A fault that c sends after `busy`, and the packets that must be known to find it.

    needs: the positions of the earlier packets without which the fault cannot be found.
    """

    changes: dict[str, Any]
    code: str
    needs: set[int]


BREACHES: Final = [
    Breach({"ack_sequence_number": 100}, "ack-beyond-sent", {9}),
    Breach({"ack_sequence_number": 5}, "ack-beyond-sent", {9}),
    Breach({"ack_sequence_number": 1}, "ack-backwards", set()),
    Breach({"recoverable_msg_ack_seq_number": 90, "recoverable_msg_ack_flags": 1}, "saved-beyond-sent", {9}),
    Breach({"user_msg_sequence_number": 40}, "wrong-count", set()),
    Breach({"user_msg_sequence_number": 0}, "wrong-count", {8}),
]


@pytest.mark.parametrize("breach", BREACHES, ids=[f"{each.code} {each.changes}" for each in BREACHES])
@pytest.mark.parametrize("lost", [*range(10), None])
def test_what_is_certain_is_found_though_the_capture_lacks_something_else(
    breach: Breach, lost: int | None
) -> None:
    scene, wire = busy()
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")), riding=True)
    wire.send("a", transactional(3))
    wrong = wire.ack("c", **breach.changes)
    kept = Scene(lacking(scene.packets, () if lost is None else [lost]))
    assert kept.faults() == ([] if lost in breach.needs else [(breach.code, wrong.number)])


def test_messages_that_the_capture_lacks_may_be_acknowledged() -> None:
    scene, wire = busy()
    wire.send("a", transactional(3))
    wire.ack("c")
    wire.send("a", transactional(4))
    wire.ack("a")
    wire.ack("c")
    assert [each.code for each in found(lacking(scene.packets, [8]))] == ["missing-bytes"]


@pytest.mark.parametrize("code", ["ack-beyond-sent", "saved-beyond-sent", "window-exceeded", "out-of-turn"])
def test_a_packet_that_is_ahead_says_nothing_of_what_the_other_end_did(code: str) -> None:
    scene = Scene()
    wire = scene.wire("a", "c", window=64)
    if code == "out-of-turn":
        del scene.packets[3]
    if code in ("window-exceeded", "out-of-turn"):
        for number in range(1, 70):
            wire.send("a", transactional(number)).ahead = True
    else:
        wire.ack("c", ack_sequence_number=5, recoverable_msg_ack_seq_number=5, recoverable_msg_ack_flags=1)
        scene.packets[-1].ahead = True
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
def test_windows_are_judged_again_behind_a_hole_and_not_before_an_acknowledgment_has_come() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", window=64)
    for number in range(1, 110):
        wire.send("a", transactional(number))
        if number in (30, 35):
            wire.ack("c")
    # The first acknowledgment is lost, and told when the second comes; so is a message behind that.
    kept = lacking(scene.packets, [34, 45])
    # As far as anybody can tell, no message was lost: so the first one that is too much is not said to be so.
    assert scene.faults() == [("window-exceeded", 106)]
    assert Scene(kept).faults() == [("window-exceeded", 107)]


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
def test_no_window_is_judged_while_an_acknowledgment_may_be_missing() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", window=64)
    for number in range(1, 80):
        wire.send("a", transactional(number))
        if number == 40:
            wire.ack("c")
            wire.send("c", express(source=guid("c"), destination_manager=guid("a")))
    assert found(scene.packets) == []
    # The acknowledgment is lost; what comes behind it tells that, and acknowledges nothing itself.
    assert [each.code for each in found(lacking(scene.packets, [44]))] == ["missing-bytes"]


def test_an_end_of_which_the_capture_lacks_the_beginning_is_not_out_of_turn() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    del scene.packets[1:]
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")))
    assert found(scene.packets) == []


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
    del scene.packets[kept:]
    wrong = wire.send("a", express())
    assert scene.faults() == [("out-of-turn", wrong.number)]
    if kept == 3:
        wrong.ahead = (
            True  # Its sender may have had the answer; but none could let it leave out its parameters.
        )
        assert scene.faults() == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.4")
@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("first", [0, 4, 5])
def test_a_second_handshake_is_out_of_turn_wherever_the_capture_begins(place: int, first: int) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", express())
    wire.send("a", express(message_id=2))
    wrong = wire.put("a", scene.packets[place].data)
    del scene.packets[:first]
    assert scene.faults() == [("out-of-turn", wrong.number)]
    wrong.missing_bytes = 1_000  # So it may be of another session.
    assert scene.faults() == []


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
    answer = ConnectionParameters(recoverable_ack_timeout_ms=saving_ms, ack_timeout_ms=ack_ms, window_size=9)
    answered = Wire(scene, 0, "a", "c").put("c", answer)
    proposal = scene.packets[-2]
    found = [(each.code, each.others) for each in scene.findings()]
    assert found == [(code, (proposal.number,)) for code in codes]

    # Without the answer to the request, and then without the proposal too.
    del scene.packets[1]
    proposal.ahead, answered.missing_bytes = True, 572
    assert [code for code, _ in scene.faults()] == codes
    scene.packets.remove(proposal)
    answered.ahead = True
    assert scene.faults() == []


def test_an_answer_to_a_request_for_anybody_may_come_from_anybody_and_a_refusal_is_a_note() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    wire.put("a", establish_connection(client=guid("a"), server=Guid(bytes(16)), time_stamp_ms=0))
    wire.put("c", establish_connection(client=guid("a"), server=guid("c"), time_stamp_ms=0))
    assert scene.findings() == []
    wire = scene.wire("a", "c", opened=False)
    wire.put("a", establish_connection(client=guid("a"), server=guid("b"), time_stamp_ms=0))
    refusal = establish_connection(client=guid("a"), server=guid("c"), time_stamp_ms=0, refused=True)
    request, refused = scene.packets[-1], wire.put("c", encode_packet(refusal))
    assert [(each.severity, each.code) for each in scene.findings()] == [("note", "refused")]
    scene.packets.remove(request)
    refused.ahead = True
    assert [(each.severity, each.code) for each in scene.findings()] == [("note", "refused")]


@pytest.mark.spec("[MS-MQQB] 2.2.1")
@pytest.mark.parametrize(("place", "who"), [(2, "initiator"), (3, "acceptor")])
def test_parameters_that_refuse_are_a_note_and_what_comes_then_is_out_of_turn(place: int, who: str) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    del scene.packets[place:]
    refusal = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=9)
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
    assert scene.notes() == ["caller-by-port"]
    wrong = wire.ack("a", user_msg_sequence_number=99)
    assert scene.faults() == [("wrong-count", wrong.number)]


HELLO: Final = bytes.fromhex("16030102000100 01fc0303 0102030405")


@pytest.mark.parametrize("at", [0, 5])
def test_a_connection_that_is_encrypted_is_named_as_such_and_accuses_nobody(at: int) -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    for sender, hello in (("a", 1), ("c", 2)):
        head = HELLO[:at] + bytes([hello]) + HELLO[at + 1 :] if at else HELLO
        fault = WireFormatError("base.version_number", 0, "0x16", "0x10", "[MS-MQMQ] 2.2.19.1")
        wire.put(sender, head, fault=fault)
    sights, _ = scene.sights()
    assert {sight.kind for sight in sights} == {Kind.ENCRYPTED}
    assert [(each.severity, each.code) for each in scene.findings()] == [("note", "encrypted")] * 2
