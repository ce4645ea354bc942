from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.decode.journeys import UNTOLD
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.views.follow import MESSAGE_LIMIT
from mqproto.captures.decode.ways import Copy, is_overtaken
from mqproto.captures.files.frame import Interface
from mqproto.wire import MessageClass
from tests.captures.decode.scene import (
    MILLISECOND,
    Scene,
    express,
    final,
    guid,
    ordered,
    passed_on,
    transactional,
)
from tests.captures.decode.story import followed, story

FIRST = f"{identifier_text(guid('a'), 1)}"


def test_a_message_is_followed_over_all_hops_to_its_end() -> None:
    [history] = followed(FIRST, story()).histories.values()
    assert list(history.lines())[1:] == [
        "    0.000000        #9  a > b  sent",
        "    0.001000       #10  b > c  sent, hop count 1",
        "    0.003000       #12  b > a  session acknowledgment: #9 received, saved",
        "    2.008000       #17  b > c  sent again: its sender has another connection by now, hop count 1",
        "    2.010000       #19  c > b  OrderAck of all up to 2",
        "    2.010000       #19  c > b  session acknowledgment: #17 received, saved",
        "    2.011000       #20  b > a  OrderAck of all up to 2",
        "    2.014000       #23  b > a  administration acknowledgment ACK_REACH_QUEUE",
        "  reached its destination after 1.000 ms; OrderAck back after 2.011 s; ACK_REACH_QUEUE after 2.014 s",
    ]  # fmt: skip
    assert "number 1 of sequence 1700000000:1" in history.heading


@pytest.mark.parametrize(
    ("ahead_s", "arrived"),
    [(7_200, "reached its destination after 7,200.001 s"), (-7_200, "reached its destination")],
)
def test_of_times_by_two_clocks_that_is_said(ahead_s: int, arrived: str) -> None:
    scene = story()
    for seen in scene.packets:
        if seen.connection in (1, 2):
            seen.interface = Interface(1)
            seen.time_ns += ahead_s * 1_000 * MILLISECOND
    [history] = followed(FIRST, scene).histories.values()
    acked = "OrderAck back after 2.011 s; ACK_REACH_QUEUE after 2.014 s"
    clocks = "times are by the clocks of 2 capture points, which may differ"
    assert history.verdict() == f"{arrived}; {acked}; {clocks}"


def test_of_two_copies_that_nobody_can_put_in_order_none_is_sent_again() -> None:
    for how in ("newer first", "read late", "called back"):
        scene = Scene()
        older, newer = scene.wire("a", "b"), scene.wire(*"ba" if how == "called back" else "ab")
        if how == "read late":
            first_ns = scene.now_ns
            scene.now_ns += 2_000 * MILLISECOND
            last = older.send("a", transactional(1))
            first = newer.send("a", transactional(1))
            first.time_ns = first_ns
        else:
            wires = (older, newer) if how == "called back" else (newer, older)
            first, last = (wire.send("a", transactional(1)) for wire in wires)
        [history] = followed("1", scene).histories.values()
        assert sorted(event.text for event in history.events) == ["sent", f"sent, too: {UNTOLD}"]
        text = f"it crossed this hop as #{first.number}, too; {UNTOLD}"
        assert [(each.packet, each.text) for each in scene.findings()] == [(last.number, text)]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (transactional(1), "its source sends it until its OrderAck comes"),
        (express(), "its sender has another connection by now"),
    ],
)
def test_a_copy_that_is_read_late_but_crossed_first_is_the_first(message: bytes, why: str) -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("a", "b")
    first_ns = scene.now_ns
    scene.now_ns += 2_000 * MILLISECOND
    second.send("a", message)
    first.send("a", message).time_ns = first_ns
    [history] = followed("1", scene).histories.values()
    assert [event.text for event in history.events] == [f"sent again: {why}", "sent"]
    assert next(line for line in history.lines() if line.endswith("  sent")).startswith("    0.000000")
    [finding] = scene.findings()
    assert (finding.packet, finding.text) == (9, f"it crossed this hop as #10, 2.001 s before; {why}")


def test_the_end_is_what_the_final_ack_says() -> None:
    [history] = followed("order 2", story()).histories.values()
    assert history.verdict().endswith("OrderAck back after 2.009 s; ACK_RECEIVE after 2.011 s")
    shown = json.loads(json.dumps(history.as_json()))
    assert (shown["ended"], shown["sequence_number"]) == ("ACK_RECEIVE", 2)
    assert [event["packet"] for event in shown["events"]] == [11, 12, 18, 19, 19, 20, 21, 22]


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize("packet", [ordered(1), final(1), final(2)])
def test_what_somebody_says_to_whom_it_does_not_go_is_not_heard(packet: bytes) -> None:
    for sender, heard in (("c", True), ("b", False)):
        for is_first in (False, True):
            scene = Scene()
            wire = scene.wire("a", "b")
            said = passed_on(packet) if sender == "c" else packet.replace(guid("c"), guid("b"), 1)
            if is_first:
                wire.send("b", said)
            wire.send("a", transactional(1))
            if not is_first:
                wire.send("b", said)
            [history] = followed("1", scene).histories.values()
            is_heard = not history.verdict().endswith("; no OrderAck was seen to come back")
            assert is_heard is (heard and (not is_first or packet == ordered(1)))


def test_a_copy_is_not_the_first_because_the_clock_was_put_back() -> None:
    scene = Scene()
    older, newer = scene.wire("a", "c"), scene.wire("a", "c")
    newer.send("a", transactional(1)).frame = 7
    scene.now_ns -= 3_600_000 * MILLISECOND
    older.send("a", transactional(1)).frame = 8
    [history] = followed("1", scene).histories.values()
    assert [event.text for event in history.events] == ["sent", f"sent, too: {UNTOLD}"]
    assert [each.text for each in scene.findings()] == [f"it crossed this hop as #9, too; {UNTOLD}"]
    read, late = (Copy(("a", "c"), 0, time_ns, time_ns, 8 - time_ns) for time_ns in (1, 0))
    assert not is_overtaken(read, late)
    assert is_overtaken(read, late._replace(file="another, with numbers of its own"))


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize("answer", [ordered, final])
@pytest.mark.parametrize("order", ["12", "21", "132", "312"])
def test_what_a_later_message_has_passed_over_is_confirmed_by_none_of_a_later_number(
    answer: Callable[..., bytes], order: str
) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    said = {"1": transactional(2), "2": transactional(3, previous=1), "3": answer(3)}
    for each in order:
        wire.send("a" if each < "3" else "c", said[each])
    if "3" not in order:
        wire.send("c", said["3"])
    [history] = followed("2", scene).histories.values()
    assert history.verdict() == "reached its destination after 0.000 ms; no OrderAck was seen to come back"
    assert [each.text for each in history.events] == ["sent"]
    wire.send("c", ordered(2, own_id=99))
    [history] = followed("2", scene).histories.values()
    assert "; OrderAck back after" in history.verdict()


@pytest.mark.spec("[MS-MQQB] 2.2.5.1")
@pytest.mark.parametrize("order", ["13", "31"])
def test_the_final_ack_of_a_message_that_nobody_saw_says_what_that_passed_over(order: str) -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    said = {"1": transactional(2), "3": final(3, tx_previous_sequence_number=1)}
    for each in order:
        wire.send("a" if each < "3" else "c", said[each])
    [history] = followed("2", scene).histories.values()
    assert history.verdict() == "reached its destination after 0.000 ms; no OrderAck was seen to come back"


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_final_ack_of_a_later_number_says_that_it_came() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in (1, 2):
        wire.send("a", transactional(number))
    wire.send("c", final(2, message_class=MessageClass.NACK_Q_EXCEED_QUOTA))
    [history] = followed("1", scene).histories.values()
    assert history.verdict().endswith("; no OrderAck was seen to come back")
    wire.send("c", final(2, own_id=201))
    [history] = followed("1", scene).histories.values()
    assert history.verdict().endswith("; FinalAck of a later number back after 3.000 ms")
    assert history.events[-1].text == "FinalAck of number 2: all before it came too"


@pytest.mark.parametrize("target", [FIRST, FIRST.lower(), "{" + FIRST.replace("\\", "}\\"), "1", "order 1"])
def test_a_message_goes_by_its_identifier_its_ordinal_or_its_label(target: str) -> None:
    assert list(followed(target, story()).histories) == [(guid("a"), 1)]


def test_one_that_got_stuck_is_said_to_be_where_it_was_last_seen() -> None:
    scene = Scene()
    scene.wire("a", "b").send("a", transactional(1))
    [history] = followed("1", scene).histories.values()
    assert history.verdict() == "last seen on its way to b; no OrderAck was seen to come back"


def test_an_order_ack_that_was_seen_is_not_said_to_be_missing() -> None:
    """An OrderAck that was seen is not reported as missing.

    The capture does not show who received the OrderAck, or shows it before the message.
    """
    for is_first in (False, True):
        scene = Scene()
        wire = scene.wire("a", "c", opened=False)
        acked = wire.send("c", ordered(2))
        wire.send("a", passed_on(transactional(1)))
        if not is_first:
            scene.packets.append(acked)
        [history] = followed("1", scene).histories.values()
        assert history.verdict().endswith("; an OrderAck for it was seen")


def test_a_direct_name_leads_to_the_end_of_its_hop() -> None:
    scene = Scene()
    scene.wire("a", "c").send("a", express(destination="OS:c\\private$\\orders"))
    [history] = followed("1", scene).histories.values()
    assert history.verdict() == "reached its destination after 0.000 ms"


def test_of_a_label_that_many_messages_have_the_first_are_followed() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    for number in range(1, MESSAGE_LIMIT + 3):
        wire.send("a", transactional(number, label="same"))
    follower = followed("same", scene)
    assert (len(follower.histories), follower.left_out_count) == (MESSAGE_LIMIT, 2)
    assert followed("other", scene).histories == {}


@pytest.mark.parametrize(("target", "words"), [("", "NUMBER"), ("-" * 36 + "\\1", "GUID|guid|hex|badly")])
def test_what_names_no_message_is_refused(target: str, words: str) -> None:
    with pytest.raises((UsageError, ValueError), match=words):
        followed(target, Scene())
