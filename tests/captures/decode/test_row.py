from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st

from mqproto.bodies import write_body
from mqproto.captures.decode import PacketRow, row_of
from mqproto.captures.decode.analyst import crossing_of
from mqproto.captures.decode.facts import NOT_SAID
from mqproto.captures.decode.journeys import message_key
from mqproto.captures.decode.row import BODY_TEXT_LIMIT, KEYS, NOT_EXPRESS, body_text, encodable
from mqproto.captures.decode.sessions.half import Half, Sent
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.packets import SeenPacket
from mqproto.testing import mutated, user_messages
from mqproto.wire import UserMessage, encode_packet, guid_text
from tests.bodies.values import NULL, instance, stream, string
from tests.captures.decode.scene import BEGAN_NS, Scene, address, transactional
from tests.captures.decode.story import KNOWN, pinged, story
from tests.examples import EVERY_PACKET, SOMEBODY, a_full_message, a_user_message


def seen_as(data: bytes) -> SeenPacket:
    return SeenPacket(data, source=address("a"), destination=address("c"), time_ns=BEGAN_NS)


def rows(scene: Scene) -> list[PacketRow]:
    return [row_of(sight, "there") for sight in scene.sights(KNOWN)[0]]


def test_every_row_has_every_key_and_is_json() -> None:
    for row in rows(pinged(story())):
        assert json.loads(json.dumps(row.as_json())).keys() == set(KEYS)


def test_every_key_is_documented() -> None:
    documented = set(re.findall(r"\w+", PacketRow.__doc__ or ""))
    assert set(KEYS) <= documented


def test_rows_say_what_packets_say() -> None:
    establish, _, parameters, *_ = found = rows(story())
    assert (establish.kind, establish.refused) == ("EstablishConnection", False)
    assert establish.client == "2E2E2E61-2E2E-2E2E-2E2E-2E2E2E2E2E2E"
    assert establish.time == "2023-11-14T22:13:20.001000Z"
    assert (parameters.window_size, parameters.ack_timeout_ms) == (64, 20_000)
    message = found[9]
    assert (message.source, message.destination, message.hop_count) == ("b", "c", 1)
    assert message.message == "2E2E2E61-2E2E-2E2E-2E2E-2E2E2E2E2E2E\\1"
    assert message.queue == "PRIVATE=2E2E2E63-2E2E-2E2E-2E2E-2E2E2E2E2E2E\\00000010"
    assert (message.sequence, message.sequence_number, message.previous_number) == ("1700000000:1", 1, 0)
    assert (message.session_number, message.session_recoverable_number) == (1, 1)
    order_ack, final_ack = found[18], found[20]
    assert (order_ack.ack_sequence, order_ack.ack_sequence_number) == ("1700000000:1", 2)
    assert (order_ack.ended_packets, order_ack.ended_count) == ([17, 18], 2)
    assert (order_ack.ack_number, order_ack.received_packets, order_ack.saved_count) == (2, [17, 18], 2)
    assert (final_ack.ack_message, final_ack.class_name) == (
        "2E2E2E61-2E2E-2E2E-2E2E-2E2E2E2E2E2E\\2",
        "ACK_RECEIVE",
    )
    assert [each["code"] for each in found[24].findings] == ["wrong-count"]
    assert found[16].findings[0]["packet"] == 17


def test_a_ping_and_a_full_message_have_their_rows() -> None:
    ping = rows(pinged(story()))[-1]
    assert (ping.kind, ping.cookie, ping.connection, ping.priority) == ("Ping", 7, None, None)
    scene = Scene()
    wire = scene.wire("a", "c")
    wire.put("a", encode_packet(a_full_message()))
    row = rows(scene)[-1]
    assert row.admin_queue == f"PRIVATE={guid_text(SOMEBODY)}\\00000009"
    assert row.response_queue == "DIRECT=TCP:10.0.0.1\\replies"
    assert (row.signed, row.acknowledgments, row.extension_bytes) == ("SHA-512", 15, 5)


def test_every_example_and_what_is_no_packet_has_a_row() -> None:
    scene = Scene()
    wire = scene.wire("a", "c", opened=False)
    for data in EVERY_PACKET:
        wire.put("a", data)
    wire.put("a", b"short")
    found = rows(scene)
    assert [row.valid for row in found] == [True] * len(EVERY_PACKET) + [False]
    assert found[-1].fault is not None


STREAM = stream(string(1, "drei Stück"))
ORDER = b"\xef\xbb\xbf<?xml version='1.0'?><Order><Id>5</Id></Order>"
ODD = b"\xef\xbb\xbf<?xml version='1.0' encoding='iso-8859-1'?><a>\xe4</a>"
DOCUMENTS = [
    ORDER,
    ODD,
    ODD[3:],
    ODD[:20] + b" " * 300 + ODD[20:],
    "<a>ä</a>".encode("utf-16"),
    write_body("ä", "xml")[0],
    STREAM,
]
LATIN = "<?xml version='1.0' encoding='ISO-8859-1'?><Stück Id='5'/>"


@pytest.mark.parametrize(
    ("body", "body_type", "text"),
    [
        (*write_body("drei Stück", "xml"), "drei Stück"),
        (*write_body("drei Stück", "VT_BSTR"), "drei Stück"),
        (*write_body("drei", "VT_LPSTR"), "drei"),
        (STREAM, 768, "drei Stück"),
        (b"drei St\xc3\xbcck\r\n", 0, "drei Stück\r\n"),
        (*write_body("", "VT_BSTR"), ""),
        (ORDER, 0, ORDER.decode("utf-8-sig")),
        (LATIN.encode("iso-8859-1"), 0, LATIN),
        ("<a>ä</a>".encode("utf-16"), 0, "<a>ä</a>"),
        (ODD, 0, ODD[3:].decode("iso-8859-1")),
        (*write_body("x" * 20_000, "xml"), "x" * BODY_TEXT_LIMIT),
        # What is no text.
        (b"", 0, None),
        (b"a\0", 0, None),
        (b"\xff", 0, None),
        (*write_body(17, "VT_I4"), None),
        (*write_body(b"text", "VT_ARRAY|VT_UI1"), None),
        # What its type does not explain.
        (b"<a>" * 350_000, 0, None),
        (b"<!DOCTYPE a><a/>", 0, None),
        (b"abc", 8, None),
        (b"text", 12, None),
        (stream(instance(1, "System.Windows.Data.ObjectDataProvider", ["a"], NULL)), 768, None),
    ],
)
def test_the_text_of_a_body_is_what_it_says_if_that_is_text(
    body: bytes, body_type: int, text: str | None
) -> None:
    assert body_text(body, body_type) == text
    message = a_user_message(body=body)
    message.properties.body_type = body_type
    scene = Scene()
    scene.wire("a", "c").put("a", encode_packet(message))
    assert rows(scene)[-1].body_text == text


def test_a_body_that_is_encrypted_has_no_text() -> None:
    message = a_full_message()
    assert message.security is not None
    found = {}
    for message.security.body_encrypted in (False, True):
        scene = Scene()
        scene.wire("a", "c").put("a", encode_packet(message))
        found[message.security.body_encrypted] = rows(scene)[-1].body_text
    assert found[False]
    assert found[True] is None


@given(
    st.binary(max_size=30) | st.sampled_from(DOCUMENTS).flatmap(mutated),
    st.sampled_from([0, 0, 8, 30, 31, 72, 768]),
)
def test_any_body_has_a_text_that_a_table_can_hold_or_none(body: bytes, body_type: int) -> None:
    text = body_text(body, body_type)
    assert text is None or len(text.encode("utf-8")) <= 4 * BODY_TEXT_LIMIT


def test_half_a_surrogate_pair_does_not_break_the_output() -> None:
    scene = Scene()
    scene.wire("a", "c").send("a", transactional(1, label="\ud800"))
    assert rows(scene)[-1].label == "?"
    assert encodable("größe") == "größe"


@given(user_messages())
def test_a_message_that_is_cut_says_no_more_of_its_delivery_than_is_there(message: UserMessage) -> None:
    whole = encode_packet(message)
    for size_bytes in (62, 64):
        packet = seen_as(whole[:size_bytes])
        packet.cut_bytes = len(whole) - size_bytes
        sight = sight_of(packet)
        user = sight.beginning
        assert user is not None
        assert (user.source_queue_manager, user.message_id) == message_key(message)
        assert (user.hop_count, user.recoverable) == (message.user.hop_count, message.user.recoverable)
        told = message.user.has_transaction if size_bytes == 64 or not message.user.recoverable else None
        assert sight.transactional is told
        delivery = row_of(sight, "there").delivery
        assert delivery in (row_of(sight_of(seen_as(whole)), "there").delivery, NOT_EXPRESS)
        assert (delivery == NOT_EXPRESS) is (told is None)
        crossing = crossing_of(sight, user, Sent(Half(packet.source), 1))
        assert (crossing.previous_number == NOT_SAID) is (told is None)
