"""A session as its queue manager sees it: states and packets, room, losses, and timers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.timers import Timer
from mqproto.session import Session, SessionState
from mqproto.session.states import RECEIVE, UNWELCOME
from mqproto.testing import chunked
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    Packet,
    SessionAck,
    UserMessage,
    decode_packet,
    encode_packet,
    establish_connection,
    with_session_header,
)
from tests.examples import a_user_message
from tests.sessions import (
    EXPRESS,
    NOW,
    RECOVERABLE,
    SETTINGS,
    THEM,
    US,
    a_session,
    an_ack,
    an_entry,
    later,
    packets_of,
    receive,
    send,
    sent,
)

PACKETS: dict[str, Packet] = {
    "EstablishConnection": establish_connection(client=THEM, server=US, time_stamp_ms=0),
    "EstablishConnection answer": establish_connection(client=US, server=THEM, time_stamp_ms=0),
    "ConnectionParameters": ConnectionParameters(
        recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64
    ),
    "SessionAck": an_ack(0),
    "UserMessage": decode_packet(RECOVERABLE),
}

TABLE = """
CONNECTING      EstablishConnection         CLOSED 3.1.5.3
CONNECTING      EstablishConnection answer  CLOSED 3.1.5.3
CONNECTING      ConnectionParameters        CLOSED 3.1.5.4
CONNECTING      SessionAck                  CLOSED 3.1.5.5
CONNECTING      UserMessage                 CLOSED 3.1.5.8
WAITING_EC_MSG  EstablishConnection         WAITING_CP_MSG
WAITING_EC_MSG  EstablishConnection answer  CLOSED 3.1.5.3.1
WAITING_EC_MSG  ConnectionParameters        CLOSED 3.1.5.4
WAITING_EC_MSG  SessionAck                  CLOSED 3.1.5.5
WAITING_EC_MSG  UserMessage                 CLOSED 3.1.5.8
WAITING_ECR_MSG EstablishConnection         CLOSED 3.1.5.3.2
WAITING_ECR_MSG EstablishConnection answer  WAITING_CPR_MSG
WAITING_ECR_MSG ConnectionParameters        CLOSED 3.1.5.4
WAITING_ECR_MSG SessionAck                  CLOSED 3.1.5.5
WAITING_ECR_MSG UserMessage                 CLOSED 3.1.5.8
WAITING_CP_MSG  EstablishConnection         CLOSED 3.1.5.3
WAITING_CP_MSG  EstablishConnection answer  CLOSED 3.1.5.3
WAITING_CP_MSG  ConnectionParameters        OPEN
WAITING_CP_MSG  SessionAck                  CLOSED 3.1.5.5
WAITING_CP_MSG  UserMessage                 CLOSED 3.1.5.8
WAITING_CPR_MSG EstablishConnection         CLOSED 3.1.5.3
WAITING_CPR_MSG EstablishConnection answer  CLOSED 3.1.5.3
WAITING_CPR_MSG ConnectionParameters        OPEN
WAITING_CPR_MSG SessionAck                  CLOSED 3.1.5.5
WAITING_CPR_MSG UserMessage                 CLOSED 3.1.5.8
OPEN            EstablishConnection         CLOSED 3.1.5.3
OPEN            EstablishConnection answer  CLOSED 3.1.5.3
OPEN            ConnectionParameters        CLOSED 3.1.5.4
OPEN            SessionAck                  OPEN
OPEN            UserMessage                 OPEN
CLOSED          EstablishConnection         CLOSED 3.1.5.9
CLOSED          EstablishConnection answer  CLOSED 3.1.5.9
CLOSED          ConnectionParameters        CLOSED 3.1.5.9
CLOSED          SessionAck                  CLOSED 3.1.5.9
CLOSED          UserMessage                 CLOSED 3.1.5.9
"""


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.4")
@pytest.mark.spec("[MS-MQQB] 3.1.5.5")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.1")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.2")
def test_every_state_crossed_with_every_packet() -> None:
    """This is a snapshot: if a rule is changed, it shows what else changes."""
    lines = []
    for state in SessionState:
        for name, packet in PACKETS.items():
            session = a_session(state)
            if state is SessionState.CLOSED:
                session.data.state = SessionState.OPEN
                session.close("3.1.5.9", "a test")
            receive(session, packet)
            after = session.data.state.name
            section = f" {session.closed.section}" if session.closed else ""
            lines.append(f"{state.name:<15} {name:<27} {after}{section}")
    assert lines == TABLE.strip().splitlines()


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
def test_the_table_of_rules_holds_each_internal_packet_and_the_section_that_welcomes_it() -> None:
    assert {packet for _, packet in RECEIVE} == {EstablishConnection, ConnectionParameters, SessionAck}
    assert {state.name: rule.section for (state, _), rule in RECEIVE.items()} == {
        "WAITING_EC_MSG": "3.1.5.3.1",
        "WAITING_ECR_MSG": "3.1.5.3.2",
        "WAITING_CP_MSG": "3.1.5.4.1",
        "WAITING_CPR_MSG": "3.1.5.4.2",
        "OPEN": "3.1.5.5",
    }


# The first 16 bytes

HEAD_BYTES = 16
REQUEST, PARAMETERS = (
    encode_packet(PACKETS[name]) for name in ("EstablishConnection", "ConnectionParameters")
)
MESSAGE_OF_4_MIB = RECOVERABLE[:8] + (0x00400000).to_bytes(4, "little") + RECOVERABLE[12:HEAD_BYTES]
INTERNAL_OF_4_MIB = REQUEST[:8] + (0x00400000).to_bytes(4, "little") + REQUEST[12:HEAD_BYTES]


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
@pytest.mark.parametrize("state", list(SessionState))
@pytest.mark.parametrize("name", PACKETS)
def test_a_packet_that_a_state_does_not_welcome_is_refused_before_more_than_its_head_has_come(
    state: SessionState, name: str
) -> None:
    session = a_session(state)
    packet = encode_packet(PACKETS[name])
    kind = type(PACKETS[name])
    welcome = (state, kind) in RECEIVE or (state is SessionState.OPEN and kind is UserMessage)
    assert session.receive(packet[:HEAD_BYTES], NOW) == []
    if welcome:
        assert session.closed is None
        assert session._buffer.pending_bytes == HEAD_BYTES
        return
    assert session._buffer.pending_bytes == 0
    if state is not SessionState.CLOSED:
        assert session.closed is not None
        assert session.closed.section == UNWELCOME[kind]
        assert session.closed.reason == f"{kind.__name__} is not welcome in state {state.name}"


@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
def test_before_a_session_is_open_nothing_large_is_waited_for() -> None:
    for state in SessionState:
        session = a_session(state)
        session.receive(MESSAGE_OF_4_MIB, NOW)
        assert session._buffer.pending_bytes == (HEAD_BYTES if state is SessionState.OPEN else 0)


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.3")
@pytest.mark.parametrize("state", [state for state in SessionState if state is not SessionState.CLOSED])
def test_an_internal_packet_that_is_far_too_large_is_refused_on_its_head_in_every_state(
    state: SessionState,
) -> None:
    session = a_session(state)
    session.receive(INTERNAL_OF_4_MIB, NOW)
    assert session.closed is not None
    assert session.closed.section == "3.1.5.1.3"
    assert "packet_size at byte 8 is 0x400000, must be one of 32, 36, 572" in session.closed.reason
    assert session._buffer.pending_bytes == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.4.1")
@given(st.data())
def test_the_first_messages_may_come_in_one_read_with_the_handshake(data: st.DataObject) -> None:
    session = a_session(SessionState.WAITING_EC_MSG, initiator=False, remote_qm=None)
    stream = REQUEST + PARAMETERS + RECOVERABLE + encode_packet(an_ack(0, user=1, recoverable=1)) + EXPRESS
    found = [run for chunk in data.draw(chunked(stream)) for run in session.receive(chunk, NOW)]
    assert packets_of(found) == [RECOVERABLE, EXPRESS]
    assert session.is_open
    assert session.data.message_received_count == 2


@pytest.mark.spec("[MS-MQQB] 3.1.5.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.4")
@given(st.data())
def test_a_peer_sends_604_bytes_before_its_session_is_open_or_it_is_closed(data: st.DataObject) -> None:
    """This holds whatever the peer sends; the 604 bytes are an EstablishConnection of 572 and a ConnectionParameters of
    32.
    """
    initiator = data.draw(st.booleans())
    session = a_session(
        SessionState.WAITING_ECR_MSG if initiator else SessionState.WAITING_EC_MSG, initiator=initiator
    )
    answer = encode_packet(PACKETS["EstablishConnection answer"])
    pieces = st.sampled_from([REQUEST, answer, PARAMETERS, REQUEST[:40], RECOVERABLE]) | st.binary(
        max_size=700
    )
    stream = b"".join(data.draw(st.lists(pieces, max_size=4)))
    sent_bytes = 0
    for chunk in data.draw(chunked(stream)):
        session.receive(chunk, NOW)
        sent_bytes += len(chunk)
        if session.closed is not None or session.is_open:
            break
        assert sent_bytes < 604
        assert session._buffer.pending_bytes < 572
    if session.is_open:
        assert stream.startswith((answer if initiator else REQUEST) + PARAMETERS)


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_a_packet_that_had_begun_before_the_session_was_closed_is_not_looked_at() -> None:
    session = a_session()
    assert session.receive(RECOVERABLE[:50], NOW) == []
    session.close("3.1.5.9", "a test")
    assert session.receive(RECOVERABLE[50:] + RECOVERABLE, NOW) == []
    assert session._buffer.pending_bytes == 50


@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
def test_messages_before_an_unwelcome_packet_in_one_read_are_handed_out() -> None:
    session = a_session()
    found = session.receive(RECOVERABLE + EXPRESS + REQUEST + RECOVERABLE, NOW)
    assert packets_of(found) == [RECOVERABLE, EXPRESS]
    assert session.closed is not None
    assert session.closed.reason == "EstablishConnection is not welcome in state OPEN"


# Bytes


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.1.2")
def test_bytes_that_form_no_packet_close_the_session_and_say_where_and_what() -> None:
    session = a_session()
    bad = bytearray(RECOVERABLE)
    bad[4] ^= 0xFF
    assert packets_of(session.receive(RECOVERABLE + bytes(bad) + RECOVERABLE, NOW)) == [RECOVERABLE]
    assert session.closed is not None
    assert session.closed.section == "3.1.5.1.3"
    assert "signature at byte 4" in session.closed.reason


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.3")
def test_a_whole_packet_whose_inside_is_wrong_closes_the_session_too() -> None:
    session = a_session()
    bad = bytearray(RECOVERABLE)
    bad[16 + 44] |= 0x1F  # RC, which may be 29 at most
    assert session.receive(bytes(bad), NOW) == []
    assert session.closed is not None
    assert "hop_count" in session.closed.reason
    assert session.has_refused, "it was a UserMessage"


@pytest.mark.spec("[MS-MQQB] 3.1.5.5")
def test_a_fault_in_an_internal_packet_is_no_refusal_of_a_message_as_it_may_answer_one_of_ours() -> None:
    for bad in (encode_packet(an_ack(7)), REQUEST, INTERNAL_OF_4_MIB):
        session = a_session()
        session.receive(RECOVERABLE + bad, NOW)
        session.refuse("3.1.5.8", "the message before it is not welcome either")
        assert not session.has_refused


@given(session_header=st.booleans(), recoverable=st.booleans())
def test_a_message_is_counted_and_what_rides_on_it_acknowledges(
    session_header: bool, recoverable: bool
) -> None:
    session = a_session()
    data = RECOVERABLE if recoverable else EXPRESS
    send(session, 1)
    if session_header:
        ack = an_ack(1, base=1, flags=1)
        header = replace(ack.session, user_msg_sequence_number=1, recoverable_msg_seq_number=recoverable)
        data = with_session_header(data, header)
    assert packets_of(session.receive(data, NOW)) == [data]
    assert len(session.lost()) == (not session_header)
    assert session.data.message_received_count == 1
    assert session.data.recoverable_message_received_count == recoverable


@given(st.data())
def test_a_message_is_checked_as_strictly_as_one_that_is_read(data: st.DataObject) -> None:
    packet = bytearray(RECOVERABLE)
    packet[data.draw(st.integers(0, len(packet) - 1))] = data.draw(st.integers(0, 255))
    session = a_session()
    found = packets_of(session.receive(bytes(packet), NOW))
    for each in found:
        decode_packet(each)
    assert (session.closed is not None) == (not found and session.begun_bytes == 0)


@pytest.mark.spec("[MS-MQQB] 3.1.5.1")
@given(junk=st.binary(max_size=300), state=st.sampled_from(list(SessionState)))
def test_any_bytes_in_any_state_leave_the_session_as_it_is_or_closed(
    junk: bytes, state: SessionState
) -> None:
    session = a_session(state)
    assert session.receive(junk, NOW) == []
    assert session.data.state in (state, SessionState.CLOSED)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
def test_a_message_whose_header_closes_the_session_still_reaches_its_queue_and_what_follows_does_not() -> (
    None
):
    """[MS-MQMQ] 2.2.20.4 says so about a wrong UserMsgSequenceNumber."""
    session = a_session()
    message = decode_packet(RECOVERABLE)
    assert isinstance(message, UserMessage)
    message.session = an_ack(0, user=9).session
    message.base.session_header = True
    assert receive(session, encode_packet(message) + RECOVERABLE) == 1
    assert session.closed is not None
    assert session.closed.section == "3.1.5.5.5"


# Room


@pytest.mark.spec("[MS-MQQB] 3.1.7.1")
@pytest.mark.parametrize(("ours", "theirs"), [(1, 64), (64, 1), (5, 9), (9, 5)])
def test_the_smaller_of_both_windows_bounds_what_is_unacknowledged(ours: int, theirs: int) -> None:
    session = a_session(settings=Settings(window_size=ours), received_window_size=theirs)
    for _ in range(min(ours, theirs)):
        assert session.room
        send(session, 1)
    assert not session.room
    receive(session, an_ack(1))
    assert session.room


@pytest.mark.spec("[MS-MQQB] 3.1.7.1")
def test_bytes_in_flight_are_bounded_too_but_one_message_always_may_go() -> None:
    session = a_session(settings=Settings(in_flight_bytes=len(RECOVERABLE) + 1))
    send(session, 2)
    assert not session.room
    receive(session, an_ack(2))
    assert not session.room, "nothing is saved, so all of it may come back"
    receive(session, an_ack(2, base=1, flags=0b01))
    assert session.room
    receive(session, an_ack(2, base=1, flags=0b11))
    assert session.data.in_flight_bytes == 0
    session.data.settings = Settings(in_flight_bytes=1)
    assert session.room


@pytest.mark.parametrize("state", [state for state in SessionState if state is not SessionState.OPEN])
def test_only_an_open_session_has_room(state: SessionState) -> None:
    assert not a_session(state).room


# Loss


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1.2")
@given(
    kinds=st.lists(st.booleans(), max_size=20),
    received=st.integers(0, 20),
    saved=st.sets(st.integers(0, 19), max_size=20),
)
def test_what_nobody_answered_for_comes_back_once_and_in_the_order_in_which_it_was_sent(
    kinds: list[bool], received: int, saved: set[int]
) -> None:
    session = a_session()
    for number, recoverable in enumerate(kinds):
        session.send([an_entry(number, recoverable=recoverable)], NOW)
    received = min(received, len(kinds))
    numbers = [number for number, recoverable in enumerate(kinds) if recoverable]
    flags = sum(1 << bit for bit in saved if bit < len(numbers))
    receive(session, an_ack(received, base=1 if flags else 0, flags=flags))
    done = {number for number in range(received) if not kinds[number]}
    done |= {numbers[bit] for bit in saved if bit < len(numbers)}
    session.close("3.1.7.3", "a test")
    assert [entry.position for entry in session.lost()] == [n for n in range(len(kinds)) if n not in done]
    assert {entry.position for entry in session.take_completed()} == done


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_closing_stops_the_timers_keeps_what_waits_to_be_written_and_the_first_reason() -> None:
    session = a_session()
    send(session, 1)
    session.close("3.1.7.3", "the first")
    session.close("3.1.6.2", "the second")
    assert session.closed is not None
    assert session.closed == (7, "3.1.7.3", "the first")
    assert session.data.timers.next_ms is None
    assert len(sent(session)) == 1


# Timers


@pytest.mark.spec("[MS-MQQB] 3.1.6.2")
@pytest.mark.spec("[MS-MQQB] 3.1.2.2")
def test_a_session_without_messages_for_a_whole_interval_closes_and_an_active_one_does_not() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    session.expired(Timer.SESSION_CLEANUP, NOW)
    assert session.is_open
    deadline = session.data.timers.deadline_ms(Timer.SESSION_CLEANUP, session.key)
    assert deadline == NOW.uptime_ms + SETTINGS.session_cleanup_timeout_ms
    session.expired(Timer.SESSION_CLEANUP, later(SETTINGS.session_cleanup_timeout_ms))
    assert session.closed is not None
    assert session.closed.section == "3.1.6.2"


def deadline_ms(session: Session) -> int | None:
    """Return how many milliseconds after NOW the packet that has begun must be complete; None if no packet has
    begun.
    """
    found = session.data.timers.deadline_ms(Timer.PACKET, session.key)
    return None if found is None else found - NOW.uptime_ms


def test_a_packet_that_has_begun_has_a_minute_and_a_second_for_each_8_kib_however_it_comes() -> None:
    session = a_session()
    large = encode_packet(a_user_message(body=bytes(2**20)))
    due_ms = 60_000 + 1_000 * len(large) // 8_192
    receive(session, large[:10])
    assert deadline_ms(session) == 60_001, "nothing is known about it"
    session.receive(large[10:16], later(5))
    assert deadline_ms(session) == due_ms + 5
    for at in range(16, len(large) - 1, 2**16):
        session.receive(large[at : min(at + 2**16, len(large) - 1)], later(at))
        assert deadline_ms(session) == due_ms + 5, "its time goes on"
    session.receive(large[-1:] + large[:20], later(7))
    assert deadline_ms(session) == due_ms + 7, "another has begun"
    session.receive(large[20:], later(8))
    assert deadline_ms(session) is None
    assert session.is_open


def test_a_packet_that_is_not_whole_in_time_ends_its_session_and_says_how_much_of_it_came() -> None:
    session = a_session()
    receive(session, RECOVERABLE[:-1])
    session.expired(Timer.PACKET, later(60_100))
    assert session.closed is not None
    size = len(RECOVERABLE)
    assert session.closed.reason == (
        f"a packet has begun and comes too slowly: {size - 1:,} bytes of {size:,} are here"
    )
    assert deadline_ms(session) is None


@pytest.mark.spec("[MS-MQQB] 3.1.6.2")
def test_a_session_that_waits_for_an_acknowledgment_is_not_idle() -> None:
    """Under a literal reading, the session would close; if nothing arrives, the Session Ack Wait Timer closes it."""
    session = a_session()
    send(session, 1)
    session.data.session_active = False
    session.expired(Timer.SESSION_CLEANUP, NOW)
    assert session.is_open


@pytest.mark.spec("[MS-MQQB] 3.1.6.3")
def test_the_ack_wait_timer_closes_when_nothing_came_since_it_was_last_due() -> None:
    session = a_session()
    send(session, 1)
    receive(session, RECOVERABLE)
    session.expired(Timer.SESSION_ACK_WAIT, NOW)
    assert session.is_open
    deadline = session.data.timers.deadline_ms(Timer.SESSION_ACK_WAIT, session.key)
    assert deadline == NOW.uptime_ms + SETTINGS.ack_wait_timeout_ms
    session.expired(Timer.SESSION_ACK_WAIT, later(SETTINGS.ack_wait_timeout_ms))
    assert session.closed is not None
    assert session.closed.section == "3.1.6.3"
    assert session.closed.reason.endswith(" for a session acknowledgment and nothing came for 20 s")
    assert "1 messages wait" in session.closed.reason


@pytest.mark.spec("[MS-MQQB] 3.1.6.3")
def test_the_ack_wait_timer_does_nothing_and_rests_when_nothing_waits() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    session.expired(Timer.SESSION_ACK_WAIT, NOW)
    assert session.is_open
    assert not session.data.received_ack
    assert not session.data.timers.runs(Timer.SESSION_ACK_WAIT, session.key)


@pytest.mark.spec("[MS-MQQB] 3.1.6.3")
def test_messages_that_are_received_but_not_saved_keep_the_timer_running_and_are_counted() -> None:
    session = a_session()
    send(session, 2)
    receive(session, an_ack(2))
    session.expired(Timer.SESSION_ACK_WAIT, NOW)
    session.expired(Timer.SESSION_ACK_WAIT, NOW)
    assert session.closed is not None
    assert "2 messages wait" in session.closed.reason


@pytest.mark.spec("[MS-MQQB] 3.1.2.4")
@pytest.mark.parametrize(("direct", "factor"), [(False, 1), (True, 2)])
def test_a_direct_session_waits_twice_as_long_for_an_acknowledgment(direct: bool, factor: int) -> None:
    session = a_session(direct=direct)
    send(session, 1)
    deadline = session.data.timers.deadline_ms(Timer.SESSION_ACK_WAIT, session.key)
    assert deadline == NOW.uptime_ms + factor * SETTINGS.ack_wait_timeout_ms
