"""How answers to a connection request are judged, whatever they contain."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.timers import Timers
from mqproto.session import Session
from mqproto.session.data import Admit, admit_all
from mqproto.simulator.command.handshake import SHOWN_BYTES, Handshake, HandshakeFinding, Outcome, shown
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    EstablishConnection,
    Guid,
    SessionAck,
    decode_packet,
    encode_packet,
    establish_connection,
    guid_text,
)
from mqproto.wire.layouts.session import SessionHeader
from tests.sessions import NOW, US

CLIENT = Guid(b"whoever is asking"[:16])
PARAMETERS = encode_packet(
    ConnectionParameters(recoverable_ack_timeout_ms=700, ack_timeout_ms=30_000, window_size=9)
)


def an_answer(
    *, client: Guid = CLIENT, server: Guid = US, time_stamp_ms: int = 2_500, refused: bool = False
) -> bytes:
    return encode_packet(
        establish_connection(client=client, server=server, time_stamp_ms=time_stamp_ms, refused=refused)
    )


def asking(*heard: bytes) -> Handshake:
    """Return a handshake that began at 2.5 s and received this data 10 ms later."""
    handshake = Handshake(CLIENT, now_s=2.5)
    for data in heard:
        handshake.receive(data, now_s=2.51)
    return handshake


def an_acceptor(admit: Admit = admit_all) -> Session:
    return Session(
        1,
        initiator=False,
        local_qm=US,
        remote_qm=None,
        remote_address="10.0.0.7",
        direct=False,
        settings=Settings(window_size=9),
        timers=Timers(),
        admit=admit,
    )


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.3")
def test_a_request_asks_for_whoever_is_there_and_says_that_a_ping_goes_with_it() -> None:
    request = decode_packet(Handshake(CLIENT, now_s=2**32 / 1_000 + 7).request)
    assert isinstance(request, EstablishConnection)
    assert (request.client_guid, request.server_guid) == (CLIENT, NULL_GUID)
    assert (request.refused, request.no_ping, request.time_stamp_ms) == (False, False, 7_000)


@given(sizes=st.lists(st.integers(1, 600), max_size=20))
def test_a_queue_manager_is_known_however_tcp_cuts_what_it_says(sizes: list[int]) -> None:
    acceptor, handshake = an_acceptor(), asking()
    says, cuts = handshake.request, iter([*sizes, *[5_000] * 3])
    while says:
        acceptor.receive(says, NOW)
        heard, says = b"".join(acceptor.take_outbox()), b""
        while heard:
            size = next(cuts, 5_000)
            says += handshake.receive(heard[:size], 2.51)
            heard = heard[size:]
    assert acceptor.is_open
    assert handshake.is_over
    finding = handshake.finding
    assert (finding.outcome, finding.manager, finding.window_size, finding.ack_timeout_ms) == (
        Outcome.ACCEPTED,
        US,
        9,
        20_000,
    )
    assert finding.round_trip_ms == pytest.approx(10)
    assert finding.remarks == []


def test_a_queue_manager_that_refuses_is_one_all_the_same() -> None:
    acceptor, handshake = an_acceptor(lambda data, manager, now: "no place"), asking()
    acceptor.receive(handshake.request, NOW)
    assert handshake.receive(b"".join(acceptor.take_outbox()), 2.51) == b""
    assert handshake.is_over
    assert (handshake.finding.outcome, handshake.finding.manager) == (Outcome.REFUSED, US)


@pytest.mark.spec("[MS-MQQB] 2.2.1")
def test_parameters_that_refuse_are_a_refusal() -> None:
    flags_at = 18
    handshake = asking(an_answer(), PARAMETERS[:flags_at] + b"\x13\0" + PARAMETERS[flags_at + 2 :])
    finding = handshake.finding
    assert (finding.outcome, finding.window_size, handshake.is_over) == (Outcome.REFUSED, None, True)


@given(st.lists(st.binary(max_size=700), max_size=8))
def test_any_bytes_are_judged_and_little_is_kept_of_them(chunks: list[bytes]) -> None:
    handshake = asking()
    for chunk in chunks:
        if not handshake.is_over:
            assert handshake.receive(chunk, 3.0) == b""
            assert handshake._buffer.pending_bytes < len(an_answer())
            assert len(handshake._head) <= SHOWN_BYTES
    handshake.ended(Outcome.CLOSED, "closes")
    assert handshake.is_over
    assert not handshake.finding.outcome.is_msmq
    assert handshake.finding.detail


@pytest.mark.parametrize(
    ("said", "outcome", "detail"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", Outcome.FOREIGN, "not MSMQ: it says 48 54 54 50"),
        (b"SSH-2.0-x\r\n", Outcome.FOREIGN, "SSH-2.0-x.."),
        (b"\x10", Outcome.FOREIGN, "not MSMQ: it says 10  ."),
        (an_answer()[:100], Outcome.INVALID, "breaks off"),
        (an_answer()[:8] + b"\xff\xff\xff\xff" + bytes(4), Outcome.INVALID, "packet_size"),
        (an_answer()[:8] + b"\0\0\x01\0" + bytes(4), Outcome.INVALID, "packet_size"),
        (an_answer(client=US), Outcome.INVALID, f"it answers queue manager {guid_text(US)}"),
        (PARAMETERS, Outcome.INVALID, "ConnectionParameters is not what comes here"),
        (encode_packet(SessionAck(session=SessionHeader())), Outcome.INVALID, "SessionAck is not"),
        (b"", Outcome.CLOSED, "closes"),
    ],
)
def test_what_is_no_answer_is_said_with_its_reason(said: bytes, outcome: Outcome, detail: str) -> None:
    handshake = asking(said)
    handshake.ended(Outcome.CLOSED, "closes")
    assert handshake.finding.outcome is outcome
    assert detail in handshake.finding.detail


@pytest.mark.parametrize(
    ("said", "remark"),
    [
        (an_answer(time_stamp_ms=1) + PARAMETERS, "it does not repeat our TimeStamp"),
        (an_answer(server=NULL_GUID) + PARAMETERS, "it presents the null GUID"),
        (an_answer() + b"garbage, garbage", "no ConnectionParameters came: base.version_number"),
        (an_answer() + an_answer(), "no ConnectionParameters came: EstablishConnection is not"),
        (an_answer(), "no ConnectionParameters came: it closes"),
        (an_answer() + PARAMETERS[:20], "no ConnectionParameters came: it closes"),
    ],
)
def test_who_answered_is_msmq_whatever_is_odd_about_it(said: bytes, remark: str) -> None:
    handshake = asking(said[:572], said[572:])
    handshake.ended(Outcome.CLOSED, "closes")
    assert handshake.finding.outcome is Outcome.ACCEPTED
    assert [text.startswith(remark) for text in handshake.finding.remarks] == [True]


def test_what_comes_after_the_end_changes_nothing() -> None:
    handshake = asking(an_answer(), PARAMETERS)
    finding = handshake.finding
    before = HandshakeFinding(**{name: getattr(finding, name) for name in HandshakeFinding.__slots__})
    handshake.ended(Outcome.SILENT, "says nothing")
    assert handshake.finding == before
    assert before.outcome is Outcome.ACCEPTED


@given(st.binary(max_size=100))
def test_bytes_are_shown_as_no_terminal_could_obey_them(data: bytes) -> None:
    assert shown(data).isprintable()
    assert shown(data).isascii()
