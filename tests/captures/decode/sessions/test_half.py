from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.decode import Analyst, Follower
from mqproto.captures.decode.sessions import half as module
from mqproto.captures.decode.sessions.half import LOSS_LIMIT, Sent, ahead, at_or_before, last_loss
from mqproto.captures.packets import SeenPacket
from mqproto.wire import UserMessage
from tests.captures.decode.lossy import judged, lacking, lossy, sessions
from tests.captures.decode.scene import Scene, express, guid, names, transactional

COUNTS = st.integers(0, 0xFFFF)
Fates = dict[int, Sent]


def fates(packets: list[SeenPacket]) -> Fates:
    """Return what is finally known about each message, keyed by the number of its packet."""
    views = judged(packets)
    return {
        seen.number: view.sent
        for seen, view in zip(packets, views, strict=True)
        if isinstance(seen.packet, UserMessage) and view.sent is not None
    }


@given(COUNTS, st.integers(0, 0x7FFF))
def test_of_two_counts_less_than_half_the_circle_apart_one_is_before(count: int, distance: int) -> None:
    later = (count + distance) & 0xFFFF
    assert at_or_before(count, later)
    assert ahead(later, count) == distance
    assert at_or_before(later, count) is (distance == 0)


@given(
    st.sets(st.integers(1, 99)).map(lambda places: sorted(places)[:LOSS_LIMIT])
    | st.just([*range(1, 2 * LOSS_LIMIT, 2)]),
    st.integers(1, 200),
)
def test_behind_as_many_losses_as_are_told_apart_there_is_one_before_each_packet(
    losses: list[int], packet: int
) -> None:
    is_beyond = len(losses) == LOSS_LIMIT and packet >= losses[-1]
    before = [packet] if is_beyond else [each for each in losses if each <= packet]
    assert last_loss(losses, packet) == max(before, default=None)


@given(st.data(), sessions())
def test_whatever_is_known_of_a_message_in_a_capture_that_lacks_something_is_true(
    data: st.DataObject, scene: Scene
) -> None:
    whole = fates(scene.packets)
    headers = {seen.number: getattr(seen.packet, "session", None) for seen in scene.packets}
    places = data.draw(lossy(scene.packets))
    known = fates([seen for _, seen in places])
    was = {seen.number: number for number, seen in places}
    for number, sent in known.items():
        true = whole[was[number]]
        assert sent.count in (None, true.count)
        assert sent.recoverable_count in (None, true.recoverable_count)
        if sent.acknowledged_by is not None:
            header = headers[was[sent.acknowledged_by]]
            assert header is not None
            assert true.count is not None
            assert true.count <= header.ack_sequence_number
        if sent.saved_by is not None:
            assert true.saved_by is not None
            assert true.saved_by <= was[sent.saved_by]


def test_messages_between_a_hole_and_the_next_header_have_their_numbers_backwards() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 7):
        wire.send("a", transactional(number))
        wire.ack("c")
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")))
    wire.ack("a")
    whole = fates(scene.packets)
    # The fourth message is lost, which is the eleventh packet.
    known = fates(lacking(scene.packets, [10]))
    assert {number: sent.count for number, sent in known.items()} == {
        number: sent.count for number, sent in whole.items() if number != 11
    }
    assert {number: (sent.acknowledged_by, sent.saved_by) for number, sent in known.items()} == {
        number: (sent.acknowledged_by, sent.saved_by) for number, sent in whole.items() if number != 11
    }


def test_a_message_that_is_followed_has_its_acknowledgment_though_its_number_was_not_known_then() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 5):
        wire.send("a", transactional(number))
        wire.ack("c")
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")))
    wire.ack("a")
    follower, analyst = Follower("3", names("a", "c")), Analyst(names("a", "c"))
    for seen in lacking(scene.packets, [6]):
        follower.take(analyst.take(seen))
    [history] = follower.histories.values()
    assert [(each.packet, each.source, each.text) for each in history.events] == [
        (9, "a", "sent"),
        (10, "c", "session acknowledgment: #9 received, saved"),
    ]


def test_so_have_those_of_a_capture_that_begins_in_the_middle() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 9):
        wire.send("a", transactional(number), riding=number == 7)
        wire.ack("c")
    whole = fates(scene.packets)
    known = fates(scene.packets[7:])
    assert [sent.count for sent in known.values()] == [3, 4, 5, 6, 7, 8]
    for number, sent in known.items():
        assert (sent.acknowledged_by, sent.saved_by) == (
            whole[number].acknowledged_by,
            whole[number].saved_by,
        )


@pytest.mark.spec("[MS-MQMQ] 2.2.20.4")
def test_what_is_too_small_for_a_message_hides_none() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")))
    wire.ack("c")  # Which is lost.
    last = wire.send("c", express(source=guid("c"), destination_manager=guid("a"), message_id=2))
    known = fates(lacking(scene.packets, [5]))
    assert known[last.number].count == 2


def test_without_a_header_of_its_end_a_message_is_known_to_have_come_once_all_that_was_hidden_has_come() -> (
    None
):
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 9):
        wire.send("a", express(message_id=number, body=bytes(200)))
        wire.ack("c")
    hidden = len(scene.packets[6].data) // 120
    assert hidden == 2
    # The second is lost; as far as anybody can tell, it may have been two small ones.
    known = fates(lacking(scene.packets, [6]))
    acknowledged = [sent.acknowledged_by for sent in known.values()]
    assert acknowledged == [6, *(scene.packets[7 + 2 * place].number + 2 for place in range(1, 6)), None]
    assert [sent.count for sent in known.values()] == [1, *[None] * 6]


def test_what_came_between_two_holes_is_acknowledged_with_what_came_behind_them() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number, size_bytes in enumerate((10, 2_000, 10, 10, 10), 1):
        wire.send("a", transactional(number, body=bytes(size_bytes)))
    wire.send("a", transactional(6), riding=True)
    answer = wire.ack("c")
    # The second is lost, which may have been many small ones, and the fourth.
    known = fates(lacking(scene.packets, [5, 7]))
    assert [sent.count for sent in known.values()] == [1, None, 5, 6]
    fate = (answer.number, answer.number)
    assert [(sent.acknowledged_by, sent.saved_by) for sent in known.values()] == [fate] * 4


def test_of_too_many_acknowledgments_none_is_taken_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARD_LIMIT", 3)
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    for number in range(1, 7):
        wire.send("a", express(message_id=number))
        wire.ack("c")
    wire.send("c", express(source=guid("c"), destination_manager=guid("a")))
    wire.ack("a")
    whole = fates([*scene.packets])
    assert [sent.count for sent in whole.values()][:6] == [None, None, None, 4, 5, 6]
    assert [sent.acknowledged_by for sent in whole.values()][:6] == [None, None, None, 8, 10, 12]


def test_an_acknowledgment_is_of_no_message_that_came_behind_it() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    first = wire.send("a", express())
    wrong = wire.ack("c", ack_sequence_number=500)
    second = wire.send("a", express(message_id=2), riding=True)
    known = fates(scene.packets)
    assert [known[each.number].count for each in (first, second)] == [1, 2]
    assert [known[each.number].acknowledged_by for each in (first, second)] == [wrong.number, None]


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_of_messages_without_their_numbers_none_is_known_to_be_saved_where_one_is_not() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, 7):
        wire.send("a", transactional(number))
    # The first is lost. Of what follows nobody can say which is the fourth, that is not saved.
    wire.ack("c", recoverable_msg_ack_flags=0b110111)
    known = fates(lacking(scene.packets, [4]))
    assert [sent.saved_by for sent in known.values()] == [None] * 5
    wire.ack("c", recoverable_msg_ack_seq_number=4, recoverable_msg_ack_flags=0b111)
    known = fates(lacking(scene.packets, [4]))
    assert [sent.saved_by for sent in known.values()] == [12] * 5
