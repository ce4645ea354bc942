from __future__ import annotations

import pytest

from mqproto.captures.decode import Acknowledged, LineWriter, Names
from mqproto.captures.decode.views.words import DAY_NS
from mqproto.captures.packets import SeenPacket
from mqproto.wire import SessionAck, SessionHeader
from tests.captures.decode.scene import Scene, names, transactional
from tests.captures.decode.story import KNOWN, ladder, pinged, story

REFUSING = bytes.fromhex("10000b00 4c494f52 20000000 ffffffff 0000 1300 f4010000 204e0000 0000 4000")

STORY = """
     #  2023-11-14 UTC   from         to           kind           bytes  what it says
     1  22:13:20.001000  a            b            Establish        572  a asks for b
     2  22:13:20.002000  b            a            Establish        572  b welcomes a
     3  22:13:20.003000  a            b            Parameters        32  window 64, ack 500 ms, wait 20000 ms
     4  22:13:20.004000  b            a            Parameters        32  window 64, ack 500 ms, wait 20000 ms
     5  22:13:20.005000  b            c            Establish        572  b asks for c
     6  22:13:20.006000  c            b            Establish        572  c welcomes b
     7  22:13:20.007000  b            c            Parameters        32  window 64, ack 500 ms, wait 20000 ms
     8  22:13:20.008000  c            b            Parameters        32  window 64, ack 500 ms, wait 20000 ms
     9  22:13:20.009000  a            b            Transactional    164  n1 r1 tx 1/1 c\\orders msg 1 'order 1'
    10  22:13:20.010000  b            c            Transactional    164  n1 r1 tx 1/1 c\\orders msg 1 'order 1' hop 1
    11  22:13:20.011000  a            b            Transactional    164  n2 r2 tx 1/2 c\\orders msg 2 'order 2'
    12  22:13:20.012000  b            a            SessionAck        36  acks n2 = #9..#11 (2), saved r1-r2; sent n0 r0
    13  22:13:22.013000  b            c            Establish        572  b asks for c
    14  22:13:22.014000  c            b            Establish        572  c welcomes b
    15  22:13:22.015000  b            c            Parameters        32  window 64, ack 500 ms, wait 20000 ms
    16  22:13:22.016000  c            b            Parameters        32  window 64, ack 500 ms, wait 20000 ms
    17  22:13:22.017000  b            c            Transactional    164  n1 r1 tx 1/1 c\\orders msg 1 'order 1' hop 1
    18  22:13:22.018000  b            c            Transactional    164  n2 r2 tx 1/2 c\\orders msg 2 'order 2' hop 1
    19  22:13:22.019000  c            b            OrderAck         208  n1 tx 1/2 and before = #17-#18 + acks n2 = #17-#18, saved r1-r2
    20  22:13:22.020000  b            a            OrderAck         192  n1 tx 1/2 and before = #17-#18 hop 1
    21  22:13:22.021000  c            b            FinalAck         192  n2 r1 tx 1/2 msg 2 ACK_RECEIVE = #18
    22  22:13:22.022000  b            a            FinalAck         192  n2 r1 tx 1/2 msg 2 ACK_RECEIVE = #18 hop 1
    23  22:13:22.023000  b            a            AdminAck         128  n3 msg 1 ACK_REACH_QUEUE = #17
    24  22:13:22.024000  a            b            SessionAck        36  acks n3 = #20..#23 (3), saved r1 = #22; sent n2 r2
    25  22:13:22.025000  a            b            SessionAck        36  acks n3; sent n9 r2
    26  22:13:22.026000  a            c            Ping              24  cookie 7, a
"""  # noqa: E501


def written(scene: Scene, known: Names, *, relative: bool = False) -> list[str]:
    writer = LineWriter(known, relative_to_ns=scene.packets[0].time_ns if relative else None)
    return [writer.line(sight) for sight in scene.sights(known)[0]]


def test_every_kind_of_packet_has_its_line() -> None:
    scene = pinged(story())
    heading = LineWriter(KNOWN).heading(scene.sights(KNOWN)[0][0])
    assert [heading, *written(scene, KNOWN)] == STORY.strip("\n").splitlines()


def test_the_date_is_said_again_when_it_changes() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    scene.now_ns += DAY_NS
    wire.send("a", transactional(1))
    writer = LineWriter(KNOWN)
    headings = [writer.heading(sight) for sight in scene.sights(KNOWN)[0]]
    assert [heading and heading[8:18] for heading in headings] == [
        "2023-11-14",
        None,
        None,
        None,
        "2023-11-15",
    ]
    assert None not in [
        LineWriter(KNOWN, relative_to_ns=0).heading(sight) for sight in scene.sights(KNOWN)[0]
    ]


def test_times_may_be_seconds_since_the_first_packet() -> None:
    lines = written(story(), KNOWN, relative=True)
    assert [line[8:23] for line in lines[:2]] == ["       0.000000", "       0.001000"]
    assert "seconds" in (LineWriter(KNOWN, relative_to_ns=0).heading(story().sights(KNOWN)[0][0]) or "")


def test_without_a_topology_ends_are_addresses_and_columns_grow_with_them() -> None:
    lines = written(story(), Names())
    assert lines[8][25:55] == "10.0.0.1:50000 10.0.0.2:1801  "
    assert "2E2E2E63\\16" in lines[8]


@pytest.mark.parametrize(
    ("packets", "text"),
    [([3], "#3"), ([3, 4, 5], "#3-#5"), ([3, 4, 9], "#3..#9 (3)"), ([9, 3], "#9..#3 (2)")],
)
def test_acknowledged_packets_are_named_as_shortly_as_can_be(packets: list[int], text: str) -> None:
    assert str(Acknowledged(packets)) == text


def test_what_is_out_of_the_ordinary_is_said() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(5, previous=2, label="\x1b[2J" + "long " * 9))
    wire.put(
        "c",
        SessionAck(
            session=SessionHeader(
                ack_sequence_number=1,
                recoverable_msg_ack_seq_number=1,
                recoverable_msg_ack_flags=0b101,
                window_size=1,
            )
        ),
    )
    message, ack = written(scene, names("a", "c"))[4:]
    assert message.endswith(r"tx 1/5 after 2 c\orders msg 5 '\\x1b[2Jlong long long l…'")
    assert "saved r1-r3 in part" in ack
    assert ack.endswith("; sent n0 r0, window 1")


def test_parameters_that_refuse_the_session_say_so() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    del scene.packets[3:]
    wire.put("c", REFUSING)
    assert written(scene, names("a", "c"))[-1].endswith("window 64, ack 500 ms, wait 20000 ms, refused")
    assert ladder(scene).arrows[-1].said.texts(str) == ["refused"]


def test_bytes_that_begin_no_packet_have_no_number_and_long_names_are_cut() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    seen: SeenPacket = wire.put("a", b"GET / HTTP/1.1\r\n")
    seen.framed = False
    known = Names(hosts={"10.0.0.1": "a-very-long-name-of-a-computer"})
    [line] = written(scene, known)
    assert line.startswith("     -  ")
    assert "a-very-long-name-of-a-c… " in line
    assert "Malformed" in line
