"""Whatever a peer sends, what a queue manager reports about it is short, fits on one line, and cannot control a
terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.errors import FormatNameError, MqprotoError, UsageError, WireFormatError
from mqproto.base.foreign import TEXT_LIMIT, VALUE_LIMIT
from mqproto.formatname import parse_format_name, parse_path_name
from mqproto.manager.whereabouts import Found, Spot, describe_message
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import Peer, Routes
from mqproto.testing import mutated, nearly_valid_packets, packets, user_messages
from mqproto.turn.effects import Note
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    UserMessage,
    check_packet,
    decode_packet,
    encode_packet,
    establish_connection,
    inspect_packet,
)
from mqproto.wire.layouts.user import DIRECT, NO_QUEUE
from tests.base.test_foreign import HOSTILE
from tests.examples import a_full_message
from tests.pair import Net, at, guid_of, queue

ORDERS: Final = queue("orders")
NOTES: Final = QueueDeclaration("notes", 17, transactional=False)
SETTINGS: Final = Settings(waypoints=True, maximum_sequences=4)
GREETING: Final = encode_packet(
    establish_connection(client=guid_of("a"), server=guid_of("c"), time_stamp_ms=0)
) + encode_packet(ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64))
HOLE: Final = "\u4e4e"
"""A character that tests replace with a NUL on the wire; the text is then refused, and quoted in the error."""
NAMES: Final = HOSTILE.map(lambda text: text.replace("\0", "")) | st.sampled_from(
    [
        "OS:" + "m" * 250 + "\\" + "q" * 124,
        "OS:m\\" + "q" * 30_000,
        "OS:m\\private$\\q\x7f",
        "TCP:10.0.0.1\\q\r\nforged line",
        "TCP:10.0.0.1\\q,DIRECT=OS:m\\q",
        "OS:" + " " * 20_000 + "m\\private$\\orders",
    ]
)


@st.composite
def hostile_messages(draw: st.DrawFn) -> bytes:
    """Draw a message with malicious names and texts; it is for us or for others."""
    message: UserMessage = draw(st.builds(a_full_message) | user_messages())
    user = message.user
    user.queue_manager_address = draw(st.sampled_from([guid_of("c"), NULL_GUID, guid_of("d")]))
    user.source_queue_manager = guid_of("a")
    user.message_id = draw(st.integers(1, 1_000_000))
    user.destination_type, user.destination_queue = DIRECT, draw(NAMES)
    user.admin_type, user.admin_queue = draw(st.just((NO_QUEUE, None)) | st.tuples(st.just(DIRECT), NAMES))
    if message.soap is not None:
        message.soap.header = draw(HOSTILE).replace("\0", "") + draw(st.sampled_from(["", HOLE]))
    message.session, message.base.session_header = None, False
    return encode_packet(message).replace(HOLE.encode("utf-16-le"), b"\0\0")


ANYTHING: Final = hostile_messages() | nearly_valid_packets() | packets().map(encode_packet)


def is_fit(text: object) -> bool:
    """Return whether a text may be shown in a log, a table or a terminal."""
    return len(str(text)) <= TEXT_LIMIT and str(text).isprintable()


def with_a_neighbour(*queues: QueueDeclaration) -> Net:
    """Return a net with one node, `c`, that has the queue manager `a` as a declared peer and trusts it."""
    net = Net()
    node = net.add("c", *queues, settings=SETTINGS)
    node.routes = Routes(peers={guid_of("a"): Peer(("a",))})
    net.start()
    return net


def said_by(net: Net, name: str) -> list[object]:
    """Return everything that a queue manager has reported about the messages that were sent to it."""
    node = net.nodes[name]
    status = node.up.status()
    said: list[object] = [value for note in node.notes for value in note.facts.values()]
    for outgoing in status.outgoing:
        said += [outgoing.name, outgoing.next_hop, outgoing.last_failure, *outgoing.suspected]
        said += [attempt.reason for attempt in outgoing.history]
    for incoming in status.incoming:
        said += [incoming.queue, incoming.name]
    return said


@given(st.lists(ANYTHING, min_size=1, max_size=4))
def test_no_note_and_no_table_has_more_of_a_peers_text_than_one_short_line(hostile: list[bytes]) -> None:
    net = with_a_neighbour(ORDERS, NOTES)
    core = net.nodes["c"].up
    reasons = []
    for packet in hostile:
        key = core.accepted("a", net.now)
        core.receive(key, GREETING + packet, net.now)
        batch = core.take(net.now)
        reasons += [close.reason for close in batch.closes]
        net.carry_out(net.nodes["c"], batch)
        net.run()
        core.lost(key, "connection reset", net.now)
    assert [text for text in (*said_by(net, "c"), *reasons) if not is_fit(text)] == []


@pytest.mark.parametrize(
    "name", ["OS:m\\private$\\q\x7f", "TCP:10.0.0.1\\q\r\nforged line", "OS:m\\" + "q" * 9_999]
)
def test_of_a_message_to_a_queue_with_a_hostile_name_the_log_and_the_tables_are_fit(name: str) -> None:
    message = a_full_message()
    message.user.source_queue_manager = guid_of("a")
    message.user.queue_manager_address = NULL_GUID
    message.user.destination_queue = message.user.admin_queue = name
    message.user.admin_type = DIRECT
    message.session, message.base.session_header = None, False
    net = with_a_neighbour()
    core = net.nodes["c"].up
    core.receive(core.accepted("a", net.now), GREETING + encode_packet(message), net.now)
    net.run()
    assert "message-refused" in net.nodes["c"].note_names()
    assert [text for text in said_by(net, "c") if not is_fit(text)] == []


@given(hostile_messages())
def test_what_is_told_of_a_message_that_waits_is_fit_too(packet: bytes) -> None:
    queue_name = "DIRECT=OS:" + packet[-50:].decode("latin-1") * 20
    status = describe_message(Found(Spot.IN_QUEUE, queue_name, 1, packet))
    assert is_fit(status.destination)
    assert is_fit(status.queue)


def refusal(judge: Callable[[Any], object], data: object) -> MqprotoError | None:
    """Return the error that these bytes or this text cause; None if there is none."""
    try:
        judge(data)
    except (WireFormatError, FormatNameError) as error:
        return error
    return None


@given(ANYTHING.flatmap(lambda data: st.just(data) | mutated(data)))
def test_no_refusal_and_no_finding_has_more_of_it(data: bytes) -> None:
    for judge in (decode_packet, check_packet):
        error = refusal(judge, data)
        assert error is None or is_fit(error)
        assert not isinstance(error, WireFormatError) or len(str(error.value)) <= VALUE_LIMIT
    assert [str(finding) for finding in inspect_packet(data).findings if not is_fit(finding)] == []


@given(
    NAMES | HOSTILE,
    st.sampled_from(["{}", "DIRECT={}", "PUBLIC={}", "PRIVATE={}", "DIRECT=http://{}/msmq/q"]),
)
def test_no_refusal_of_a_name_has_more_of_it(text: str, spelling: str) -> None:
    for parse in (parse_format_name, parse_path_name):
        error = refusal(parse, spelling.format(text))
        assert error is None or is_fit(error)


@pytest.mark.parametrize("megabytes", [1, 4])
def test_one_packet_of_bad_text_is_one_line_of_log(megabytes: int) -> None:
    """The text of a SoapHeader contains a NUL; earlier versions wrote the whole text to the log, with escapes."""
    message = a_full_message()
    assert message.soap is not None
    message.soap.header = HOLE + "\n" * (megabytes * 500_000 - 2_000)
    packet = encode_packet(message).replace(HOLE.encode("utf-16-le"), b"\0\0", 1)
    net = with_a_neighbour()
    core = net.nodes["c"].up
    core.receive(core.accepted("a", net.now), GREETING + packet, net.now)
    net.run()
    [note] = [note for note in net.nodes["c"].notes if note.name == "session-closed"]
    reason = str(note.facts["reason"])
    assert reason.startswith("soap.header at byte ")
    assert r"is '\x00\n\n\n" in reason
    assert reason.endswith("characters)', must be text that ends with its only NUL  [MS-MQMQ] 2.2.20.7")
    assert len(reason) < 350


def test_a_note_escapes_and_cuts_what_it_is_given() -> None:
    note = Note("message-refused", {"queue": "a\nb", "message_id": 7, "reason": "x" * 10_000})
    cut = "x" * 577 + "... (10,000 characters)"
    assert note.facts == {"queue": r"a\nb", "message_id": 7, "reason": cut}


def test_an_operator_who_asks_for_an_unknown_queue_is_told_of_a_few_that_there_are() -> None:
    net = Net()
    net.add("c", settings=SETTINGS)
    names = [f"n{number:02}" for number in range(40)]
    for name in names:
        net.route("c", name, name)
    net.start()
    for name in names:
        net.send("c", at(name), "x")
    net.run()
    with pytest.raises(UsageError, match=r"no outgoing queue x here; there are: .* and 24 more"):
        net.nodes["c"].up.hold("x", on_hold=True)
