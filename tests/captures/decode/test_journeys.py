from __future__ import annotations

import pytest

from mqproto.captures.decode.analyst import crossing_of
from mqproto.captures.decode.journeys import JourneyChecker
from mqproto.captures.decode.sessions.half import Half, Sent
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.files.frame import Interface
from mqproto.captures.packets import SeenPacket, StreamEnd, Sum
from mqproto.wire import SecurityHeader, UserMessage, decode_packet, encode_packet, inspect_packet
from mqproto.wire.buffer import SESSION_HEADER_SIZE
from tests.captures.decode.scene import (
    MILLISECOND,
    Scene,
    decoded,
    express,
    final,
    guid,
    ordered,
    passed_on,
    transactional,
)
from tests.examples import poked


def chain() -> tuple[Scene, bytes]:
    """Return a scene in which a sends a message to b, which has yet to pass it on to c."""
    scene = Scene()
    message = transactional(1)
    wire = scene.wire("a", "b")
    wire.send("a", message)
    wire.ack("b")
    return scene, message


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_intermediate_may_count_the_hop_and_add_a_session_header() -> None:
    scene, message = chain()
    second = scene.wire("b", "c")
    second.send("c", express(source=guid("c"), destination_manager=guid("b")))
    second.send("b", passed_on(message), riding=True)
    assert scene.findings() == []


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.parametrize(
    "name",
    [
        "base.reserved",
        "base.time_to_reach_queue_s",
        "user.sent_time_s",
        "transaction.previous_tx_sequence_number",
        "properties.application_tag",
        "properties.message_body",
    ],
)
def test_an_intermediate_that_changes_anything_else_is_at_fault(name: str) -> None:
    scene, message = chain()
    field = next(each for each in inspect_packet(message).fields if each.name == name)
    altered = poked(passed_on(message), name, b"\5" * field.size)
    wrong = scene.wire("b", "c").send("b", altered)
    assert scene.faults() == [("altered", wrong.number)]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize("hops", [0, 2])
def test_an_intermediate_that_does_not_count_the_hop_by_one_is_at_fault(hops: int) -> None:
    scene, message = chain()
    wrong = scene.wire("b", "c").send("b", passed_on(message, hops))
    assert scene.faults() == [("hop-count", wrong.number)]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize("late", [False, True])
def test_what_comes_in_circles_is_compared_with_the_copy_that_it_was(late: bool) -> None:
    """If a message comes back in a circle, each copy that is passed on is compared with the copy from which it was
    made.

    Routes change: the message comes back to b, and b passes its copies on, in any order in the capture.
    """
    scene, message = chain()
    round_about = scene.wire("b", "d")
    round_about.send("b", passed_on(message))
    back = scene.wire("d", "b")
    back.send("d", passed_on(message, 2))
    onward = scene.wire("b", "c")
    for hops in (3, 1):
        onward.send("b", passed_on(message, hops))
    round_about.send("b", passed_on(message, 3))
    back.send("d", passed_on(message, 4))
    onward.send("b", passed_on(message, 3))
    if late:
        scene.packets.sort(key=lambda packet: packet.connection in (0, back.number))
    assert scene.faults() == []
    onward.send("b", passed_on(message, 7))
    assert scene.faults() == [], "it may have come back on a connection that nobody saw"
    wrong = onward.send("b", passed_on(message, 0))
    assert scene.faults() == [("hop-count", wrong.number)]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_a_copy_that_the_capture_lacks_may_have_bridged_what_has_expired() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("b", "c")
    first.send("a", transactional(3, previous=2))
    after = first.send("a", transactional(4))
    second.send("b", passed_on(transactional(3, previous=1)))
    assert [code for code, _ in scene.faults()] == ["altered"]
    after.missing_bytes = 300
    assert scene.faults() == []


def test_who_is_not_known_by_his_guid_may_be_the_source_and_is_not_accused() -> None:
    scene = Scene()
    message = transactional(1)
    scene.wire("a", "b", opened=False).send("a", passed_on(message))
    scene.wire("b", "c", opened=False).send("b", message)
    assert scene.faults() == []


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
def test_an_intermediate_is_not_accused_where_the_copy_that_it_passed_on_may_be_lacking() -> None:
    def accused(sender: str, hop_count: int, spared_bytes: int = 0) -> list[str]:
        scene, message = chain()
        other = scene.wire(sender, "b").send(
            sender, express(source=guid(sender), destination_manager=guid("b"))
        )
        other.missing_bytes = len(message) - SESSION_HEADER_SIZE - spared_bytes
        scene.wire("b", "c").send("b", passed_on(message, hop_count))
        return [code for code, _ in scene.faults()]

    assert accused("d", 2) == []
    assert accused("d", 2, spared_bytes=1) == ["hop-count"]
    assert accused("a", 2) == ["hop-count"], "its source sends it with no hop behind it"
    assert accused("a", 3) == [], "it may have gone round"
    assert accused("c", 3) == ["hop-count"], "its destination passes it on to nobody"


def test_what_may_have_come_behind_the_last_packet_of_an_end_is_known_from_how_much_came() -> None:
    scene, message = chain()
    other = scene.wire("d", "b")
    other.send("d", express(source=guid("d"), destination_manager=guid("b")))
    scene.wire("b", "c").send("b", passed_on(message, 2))
    end = other.ends["d"]

    def accused(*came_bytes: int) -> list[str]:
        ends = {StreamEnd(other.number, 0, end.endpoint): Sum(None, each) for each in came_bytes}
        return [finding.code for finding in scene.sights(lossless=False, ends=ends)[1]]

    assert accused() == []
    assert accused(end.position) == ["hop-count"]
    assert accused(end.position + len(message)) == []


def test_the_same_message_on_the_same_hop_is_a_resend_and_on_another_it_is_not() -> None:
    scene, message = chain()
    scene.wire("b", "c").send("b", passed_on(message))
    assert scene.findings() == []
    again = scene.wire("a", "b").send("a", message)
    [finding] = scene.findings()
    assert (finding.severity, finding.code, finding.packet) == ("note", "resend", again.number)
    assert finding.text.startswith("it crossed this hop as #5, ")


def test_copies_are_compared_once_it_is_known_who_is_at_the_ends_of_their_hop() -> None:
    scene = Scene()
    stranger = scene.wire("a", "b", opened=False)
    copies = [stranger.send("a", transactional(1)) for _ in range(30)]
    sights, last = scene.sights()
    assert [each.packet for each in last] == [copy.number for copy in copies[1:]], "nobody is known"
    assert [each.code for sight in sights for each in sight.findings] == ["caller-by-port"]
    copies.append(scene.wire("a", "b").send("a", transactional(1)))
    sights, last = scene.sights()
    assert [(each.code, each.packet) for each in sights[-1].findings] == [
        ("resend", copy.number) for copy in copies[1:]
    ]
    assert last == []


def test_a_packet_that_was_caught_at_two_interfaces_is_no_resend() -> None:
    scene = Scene()
    wire = scene.wire("a", "b")
    wire.send("a", transactional(1))
    twice = [(packet, Interface(number)) for number in range(2) for packet in scene.packets]
    scene.packets = []
    for packet, interface in twice:
        wire.put("a" if packet.source == wire.ends["a"].endpoint else "b", packet.data, interface=interface)
    assert scene.findings() == []


def test_why_a_message_was_sent_again_is_said_if_the_capture_shows_it() -> None:
    def reason(scene: Scene) -> str:
        return scene.findings()[-1].text.partition("; ")[2]

    scene = Scene()
    scene.wire("a", "b").send("a", express())
    scene.wire("a", "b").send("a", express())
    assert reason(scene) == "its sender has another connection by now"

    scene, message = chain()
    scene.wire("a", "b").send("a", message)
    assert reason(scene) == "its source sends it until its OrderAck comes"
    second = scene.wire("b", "c")
    second.send("b", passed_on(message))
    second.ack("c")
    again = scene.wire("a", "b").send("a", message)
    second.send("b", passed_on(message))
    assert reason(scene) == f"it had come once more as #{again.number}"

    scene = Scene()
    wire = scene.wire("a", "b")
    wire.send("a", express())
    wire.ack("b")
    wire.send("a", express())
    assert reason(scene) == "#6 had said that it was received"

    scene = Scene()
    wire = scene.wire("a", "b")
    wire.send("a", express())
    wire.send("a", express())
    assert reason(scene) == "the capture does not show why"


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
def test_one_identifier_for_two_messages_is_a_fault_of_their_first_queue_manager() -> None:
    scene, message = chain()
    scene.wire("a", "b").send("a", transactional(1, previous=0))
    scene.wire("b", "c").send("b", passed_on(message))
    assert scene.faults() == []
    wrong = scene.wire("a", "b").send("a", transactional(1, body=b"another"))
    assert scene.faults() == [("duplicate-identity", wrong.number)]


def encrypted(plain: bytes) -> bytes:
    """Return a message whose body seems to be encrypted, with a key that begins like the body."""
    message = decode_packet(plain)
    assert isinstance(message, UserMessage)
    message.security = security = SecurityHeader(encryption_key=message.properties.message_body[:4])
    message.user.has_security = security.body_encrypted = security.has_security_data = True
    return encode_packet(message)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.4")
def test_a_message_that_is_encrypted_anew_is_the_same_message_at_every_hop() -> None:
    scene = Scene()
    for body in (b"by the first key", b"with another key"):
        scene.wire("a", "b").send("a", encrypted(transactional(1, body=body)))
    scene.wire("b", "c").send("b", passed_on(encrypted(transactional(1, body=b"by a third"))))
    assert scene.faults() == []


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_a_sender_may_bridge_what_has_expired_when_it_sends_again() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(3, previous=2))
    wire.send("a", transactional(3, previous=1))
    assert (scene.faults(), scene.notes()) == ([], ["resend"])


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.2")
@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
@pytest.mark.parametrize(
    ("recoverable", "changes", "code"),
    [
        (False, {}, "resend-without-need"),
        (False, {"ack_sequence_number": 0}, "resend"),
        (True, {}, "resend-without-need"),
        (True, {"recoverable_msg_ack_flags": 0, "recoverable_msg_ack_seq_number": 0}, "resend"),
    ],
)
def test_what_was_received_or_saved_and_said_to_be_needs_no_resend(
    recoverable: bool, changes: dict[str, int], code: str
) -> None:
    scene = Scene()
    wire = scene.wire("a", "b")
    wire.send("a", express(recoverable=recoverable))
    wire.ack("b", **changes)
    again = wire.send("a", express(recoverable=recoverable))
    [finding] = scene.findings()
    assert (finding.code, finding.packet) == (code, again.number)
    assert finding.others == ((5, 6) if code == "resend-without-need" else (5,))


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize(("after_s", "codes"), [(10, []), (11, ["late"])])
def test_a_message_that_is_sent_after_its_time_is_late(after_s: int, codes: list[str]) -> None:
    scene = Scene()
    wire = scene.wire("a", "b")
    scene.now_ns += after_s * 1_000 * MILLISECOND
    wire.send("a", express(time_to_reach_queue_s=10, message_id=9))
    wire.send("a", transactional(1, time_to_reach_queue_s=10))
    assert [finding.code for finding in scene.findings()] == codes


def test_acknowledgments_are_messages_and_may_be_sent_again() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.send("a", transactional(1))
    wire.send("a", transactional(2))
    for acknowledgment in (ordered(1), final(2)):
        wire.send("c", acknowledgment)
        wire.send("c", acknowledgment)
    assert scene.notes() == ["resend", "resend"]
    assert scene.faults() == []


def test_what_is_remembered_is_bounded() -> None:
    scene = Scene()
    wire = scene.wire("a", "c")
    packets = [wire.send("a", transactional(number)) for number in range(1, 10)]
    checker = JourneyChecker(limit=5)
    half = Half(wire.ends["a"].endpoint)

    def take(seen: SeenPacket) -> None:
        sight = sight_of(seen)
        sight.hop = (guid("a"), guid("c"))
        checker.take(crossing_of(sight, decoded(seen).user, Sent(half, seen.number)))

    for seen in packets:
        take(seen)
    known = [checker.packets_of((guid("a"), number)) for number in range(1, 10)]
    assert [each is None for each in known] == [True] * 4 + [False] * 5
    for seen in packets[-2:] * 40:
        take(seen)
    known = [checker.packets_of((guid("a"), number)) for number in range(1, 10)]
    assert [each is None for each in known] == [True] * 4 + [False] * 5


def test_what_is_read_late_is_not_the_last_that_crossed() -> None:
    scene = Scene()
    first, second = scene.wire("a", "b"), scene.wire("a", "b")
    first.send("a", transactional(1))
    late = first.send("a", transactional(1))
    last = second.send("a", transactional(1))
    scene.packets.remove(late)
    scene.packets.append(late)
    late.number, last.number = last.number, late.number
    again = second.send("a", transactional(1))
    found = [each for each in scene.findings() if each.packet == again.number and each.code == "resend"]
    assert [each.others for each in found] == [(last.number,)]
