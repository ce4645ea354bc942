"""How a session is opened."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.session import ConnectionStatus, Session, SessionState
from mqproto.wire import NULL_GUID, ConnectionParameters, EstablishConnection, Guid, encode_packet
from mqproto.wire.layouts.internal import establish_connection
from tests.frames import FRAME_4
from tests.sessions import NOW, OTHER, SETTINGS, THEM, US, a_session, later, receive, sent

INITIALIZATION_MS = SETTINGS.session_initialization_timeout_ms


def a_request(client: Guid = THEM, server: Guid = US, time_stamp_ms: int = 123) -> EstablishConnection:
    return establish_connection(client=client, server=server, time_stamp_ms=time_stamp_ms)


def an_answer(
    client: Guid = US, server: Guid = THEM, time_stamp_ms: int = NOW.uptime_ms, refused: bool = False
) -> EstablishConnection:
    return establish_connection(client=client, server=server, time_stamp_ms=time_stamp_ms, refused=refused)


def parameters(
    window_size: int = 10, ack_ms: int = 30_000, recoverable_ms: int = 700
) -> ConnectionParameters:
    return ConnectionParameters(
        recoverable_ack_timeout_ms=recoverable_ms, ack_timeout_ms=ack_ms, window_size=window_size
    )


def initialization_deadline(session: Session) -> int | None:
    return session.data.timers.deadline_ms(Timer.SESSION_INITIALIZATION, session.key)


# 3.1.5.2.3


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.3")
@pytest.mark.spec("[MS-MQQB] 3.1.2.1")
@pytest.mark.parametrize(("remote_qm", "server"), [(THEM, THEM), (None, NULL_GUID)])
def test_an_open_transport_brings_a_request_that_names_whom_we_want_and_starts_the_timer(
    remote_qm: Guid | None, server: Guid
) -> None:
    session = a_session(SessionState.CONNECTING, remote_qm=remote_qm)
    session.opened(NOW)
    (request,) = sent(session)
    assert isinstance(request, EstablishConnection)
    assert (request.client_guid, request.server_guid, request.refused) == (US, server, False)
    assert request.time_stamp_ms == NOW.uptime_ms
    assert request.no_ping
    assert session.data.state is SessionState.WAITING_ECR_MSG
    assert initialization_deadline(session) == NOW.uptime_ms + INITIALIZATION_MS


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.3")
def test_the_time_stamp_wraps_at_32_bits() -> None:
    session = a_session(SessionState.CONNECTING)
    session.opened(Moment(uptime_ms=2**32 + 9, utc_s=0))
    (request,) = sent(session)
    assert isinstance(request, EstablishConnection)
    assert request.time_stamp_ms == 9


# 3.1.5.3.1


@pytest.mark.spec("[MS-MQQB] 2.2.3.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
@pytest.mark.parametrize("word", [0x0010, 0x0110, 0x0210, 0x0310])
@pytest.mark.parametrize("server", [US, NULL_GUID])
def test_a_request_for_us_or_for_nobody_by_name_is_granted_and_repeated(server: Guid, word: int) -> None:
    session = a_session(SessionState.WAITING_EC_MSG, initiator=False, remote_qm=None)
    request = a_request(server=server)
    request.operating_system = word
    receive(session, request)
    (answer,) = sent(session)
    assert isinstance(answer, EstablishConnection)
    assert encode_packet(answer)[:16] == FRAME_4[:16], "by its Reserved scanners know a queue manager"
    assert (answer.client_guid, answer.server_guid, answer.refused) == (THEM, US, False)
    assert (answer.time_stamp_ms, answer.operating_system) == (123, word)
    assert session.remote_qm == THEM
    assert session.data.state is SessionState.WAITING_CP_MSG
    assert initialization_deadline(session) == NOW.uptime_ms + INITIALIZATION_MS


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
@pytest.mark.parametrize(
    ("request_packet", "judgment", "why"),
    [
        (a_request(server=OTHER), None, "asks for queue manager"),
        (a_request(client=US), None, "our own GUID"),
        (a_request(client=NULL_GUID), None, "null GUID"),
        (a_request(), "a stranger too many", "a stranger too many"),
    ],
)
def test_an_unwelcome_request_is_refused_in_so_many_words_and_the_session_closed(
    request_packet: EstablishConnection, judgment: str | None, why: str
) -> None:
    session = a_session(SessionState.WAITING_EC_MSG, initiator=False, remote_qm=None)
    session.data.admit = lambda data, manager, now: judgment
    receive(session, request_packet)
    (answer,) = sent(session)
    assert isinstance(answer, EstablishConnection)
    assert answer.refused
    assert session.closed is not None
    assert session.closed.section == "3.1.5.3.1"
    assert why in session.closed.reason
    assert session.data.timers.next_ms is None


# 3.1.5.3.2


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.2")
@pytest.mark.parametrize(
    ("trip_ms", "delay_ms"), [(0, 500), (10, 500), (62, 500), (63, 504), (187, 1496), (60_000, 120_000)]
)
def test_the_ack_delay_is_eight_round_trips_within_limits(trip_ms: int, delay_ms: int) -> None:
    session = a_session(SessionState.WAITING_ECR_MSG)
    receive(session, an_answer(), later(trip_ms))
    assert sent(session) == [parameters(64, SETTINGS.ack_wait_timeout_ms, delay_ms)]
    assert session.data.state is SessionState.WAITING_CPR_MSG


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.2")
@given(start=st.integers(0, 2**40), trip_ms=st.integers(0, 20_000))
@example(start=2**32 - 5, trip_ms=100)
@example(start=2**32 + 5, trip_ms=100)
def test_the_round_trip_is_right_when_the_time_stamp_wraps_on_the_way(start: int, trip_ms: int) -> None:
    session = a_session(SessionState.CONNECTING)
    session.opened(Moment(start, 0))
    (request,) = sent(session)
    assert isinstance(request, EstablishConnection)
    receive(session, an_answer(time_stamp_ms=request.time_stamp_ms), Moment(start + trip_ms, 0))
    assert session.data.recoverable_ack_send_timeout_ms == min(max(8 * trip_ms, 500), 120_000)


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.2")
@pytest.mark.parametrize(
    ("answer", "remote_qm", "why"),
    [
        (an_answer(refused=True), THEM, "the acceptor refused the connection"),
        (an_answer(refused=True, server=OTHER), THEM, "we asked for queue manager"),
        (an_answer(refused=True, server=US), THEM, "our own GUID"),
        (an_answer(refused=True, server=NULL_GUID), None, "the acceptor refused the connection"),
        (an_answer(server=OTHER), THEM, "expected"),
        (an_answer(client=OTHER), THEM, "expected"),
        (an_answer(server=US), None, "our own GUID"),
        (an_answer(server=NULL_GUID), None, "null GUID"),
    ],
)
def test_an_answer_that_is_not_what_we_asked_for_closes(
    answer: EstablishConnection, remote_qm: Guid | None, why: str
) -> None:
    session = a_session(SessionState.WAITING_ECR_MSG, remote_qm=remote_qm)
    receive(session, answer)
    assert session.closed is not None
    assert session.closed.section == "3.1.5.3.2"
    assert why in session.closed.reason
    assert sent(session) == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.2")
def test_whoever_answers_a_direct_format_name_is_who_we_talk_to() -> None:
    session = a_session(SessionState.WAITING_ECR_MSG, remote_qm=None)
    receive(session, an_answer(server=OTHER))
    assert session.remote_qm == OTHER
    assert session.data.state is SessionState.WAITING_CPR_MSG


# 3.1.5.4


@pytest.mark.spec("[MS-MQQB] 3.1.5.4.1")
@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
def test_the_acceptor_takes_the_timeouts_answers_with_its_window_and_is_open() -> None:
    session = a_session(SessionState.WAITING_CP_MSG, initiator=False)
    receive(session, parameters(10, 30_000, 700))
    assert sent(session) == [parameters(64, 30_000, 700)]
    assert session.is_open
    data = session.data
    assert (data.ack_wait_timeout_ms, data.recoverable_ack_send_timeout_ms) == (30_000, 700)
    assert data.received_window_size == 10
    assert initialization_deadline(session) is None
    cleanup = data.timers.deadline_ms(Timer.SESSION_CLEANUP, session.key)
    assert cleanup == NOW.uptime_ms + SETTINGS.session_cleanup_timeout_ms


@pytest.mark.spec("[MS-MQQB] 3.1.5.4.2")
def test_the_initiator_adopts_the_window_keeps_its_own_timeouts_and_is_open() -> None:
    session = a_session(SessionState.WAITING_CPR_MSG)
    receive(session, parameters(10, 30_000, 700))
    assert sent(session) == []
    assert session.is_open
    assert session.data.received_window_size == 10
    assert session.data.ack_wait_timeout_ms == SETTINGS.ack_wait_timeout_ms


@pytest.mark.spec("[MS-MQQB] 3.1.5.4")
def test_a_window_of_none_counts_as_one_so_that_nothing_stalls_for_ever() -> None:
    session = a_session(SessionState.WAITING_CPR_MSG)
    receive(session, parameters(window_size=0))
    assert session.data.received_window_size == 1
    assert session.room


REFUSING = "10000b00 4c494f52 20000000 ffffffff 0000 1300 f4010000 204e0000 0000 4000"
"""ConnectionParameters, byte by byte: the flags of the InternalHeader are 0x13, which is type 3 with CS."""


@pytest.mark.spec("[MS-MQQB] 2.2.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.4.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.4.2")
@pytest.mark.parametrize(
    ("state", "who"), [(SessionState.WAITING_CP_MSG, "initiator"), (SessionState.WAITING_CPR_MSG, "acceptor")]
)
def test_parameters_with_the_refusal_bit_set_open_no_session(state: SessionState, who: str) -> None:
    session = a_session(state, initiator=who == "acceptor")
    receive(session, bytes.fromhex(REFUSING))
    assert session.closed is not None
    assert session.closed.section == "2.2.1"
    assert session.closed.reason == f"the {who} refused the connection in its ConnectionParameters"
    assert session.data.status is ConnectionStatus.CONNECTION_REFUSED
    assert sent(session) == []
    assert session.data.timers.next_ms is None


@pytest.mark.spec("[MS-MQQB] 2.2.1")
def test_reserved_bits_of_parameters_refuse_nothing() -> None:
    session = a_session(SessionState.WAITING_CPR_MSG)
    receive(session, bytes.fromhex(REFUSING.replace("1300", "e3ff")))
    assert session.is_open


@pytest.mark.spec("[MS-MQQB] 3.1.6.6")
@pytest.mark.parametrize("state", [SessionState.WAITING_ECR_MSG, SessionState.WAITING_CP_MSG])
def test_a_handshake_that_stops_in_the_middle_closes_when_the_initialization_timer_is_due(
    state: SessionState,
) -> None:
    session = a_session(state)
    session.expired(Timer.SESSION_INITIALIZATION, later(INITIALIZATION_MS))
    assert session.closed is not None
    assert session.closed.section == "3.1.6.6"
    assert state.name in session.closed.reason


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1")
@given(cuts=st.sets(st.integers(1, 1_207)), windows=st.tuples(st.integers(1, 32_767), st.integers(1, 32_767)))
def test_two_sessions_open_each_other_however_the_bytes_are_cut(
    cuts: set[int], windows: tuple[int, int]
) -> None:
    ours = a_session(SessionState.CONNECTING, settings=Settings(window_size=windows[0]))
    theirs = Session(
        8,
        initiator=False,
        local_qm=THEM,
        remote_qm=None,
        remote_address="10.0.0.8",
        direct=False,
        settings=Settings(window_size=windows[1]),
        timers=ours.data.timers,
    )
    ours.opened(NOW)
    for _ in range(4):
        for source, target in ((ours, theirs), (theirs, ours)):
            stream = b"".join(source.take_outbox())
            edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
            for start, end in pairwise(edges):
                assert target.receive(stream[start:end], NOW) == []
    assert ours.is_open
    assert theirs.is_open
    assert ours.data.received_window_size == windows[1]
    assert theirs.data.received_window_size == windows[0]
    assert theirs.remote_qm == US
