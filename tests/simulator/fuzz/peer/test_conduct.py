"""A peer's obligations, and the packets that it may send: the acceptor's side of 3.1.5 is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.session import Session
from mqproto.simulator.fuzz.peer.conduct import Conduct, PeerFailure
from mqproto.simulator.fuzz.peer.draw import draw_case
from mqproto.simulator.fuzz.tactics.talk import PeerTarget
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    Guid,
    Packet,
    SessionAck,
    SessionHeader,
    encode_packet,
    establish_connection,
)
from mqproto.wire.layouts.internal import InternalHeader
from tests.examples import DESTINATION, SENDER, a_guid, a_user_message

REQUEST = establish_connection(client=SENDER, server=NULL_GUID, time_stamp_ms=7)
ANSWER = establish_connection(client=SENDER, server=DESTINATION, time_stamp_ms=7)
PARAMETERS = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
RECOVERABLE = a_user_message(recoverable=True)


def conduct(*packets: tuple[str, Packet]) -> Conduct:
    """Return the judge of a connection on which these packets were sent and received, in this order."""
    judge = Conduct(DESTINATION)
    for who, packet in packets:
        (judge.said if who == "we" else judge.heard)(encode_packet(packet))
    return judge


OPENED = (("we", REQUEST), ("it", ANSWER), ("we", PARAMETERS), ("it", PARAMETERS))


def ack(**changes: int) -> Packet:
    return SessionAck(session=SessionHeader(**changes))


def owed(judge: Conduct) -> str:
    return judge.owed.rule if judge.owed is not None else ""


def rule(judge: Conduct) -> str:
    return judge.fault.rule if judge.fault is not None else ""


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
def test_a_request_is_owed_an_answer_and_parameters_are_owed_theirs() -> None:
    judge = Conduct(DESTINATION)
    seen = [owed(judge)]
    for who, packet in OPENED:
        (judge.said if who == "we" else judge.heard)(encode_packet(packet))
        seen.append(owed(judge))
    request = "it owes an answer to EstablishConnection (3.1.5.3.1)"
    proposal = "it owes an answer to ConnectionParameters (3.1.5.4.1)"
    assert seen == ["", request, "", proposal, ""]
    assert judge.is_open
    assert judge.answered_by == DESTINATION
    assert judge.fault is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (establish_connection(client=a_guid(1), server=DESTINATION, time_stamp_ms=7), "another ClientGuid"),
        (establish_connection(client=SENDER, server=DESTINATION, time_stamp_ms=8), "another TimeStamp"),
        (establish_connection(client=SENDER, server=a_guid(1), time_stamp_ms=7), "another ServerGuid"),
        (PARAMETERS, "an answer to no proposal"),
        (ack(), "SessionAck before the session is open"),
        (RECOVERABLE, "UserMessage before the session is open"),
    ],
)
def test_a_wrong_answer_to_a_request_is_found(answer: Packet, expected: str) -> None:
    assert expected in rule(conduct(("we", REQUEST), ("it", answer)))


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
def test_a_request_to_another_queue_manager_is_refused() -> None:
    request = establish_connection(client=SENDER, server=a_guid(1), time_stamp_ms=7)
    refusal = establish_connection(client=SENDER, server=DESTINATION, time_stamp_ms=7, refused=True)
    assert "answer" in owed(conduct(("we", request)))
    assert "to another queue manager" in rule(conduct(("we", request), ("it", ANSWER)))
    refused = conduct(("we", request), ("it", refusal), ("we", PARAMETERS))
    assert (rule(refused), owed(refused), refused.is_refused) == ("", "", True)


@pytest.mark.spec("[MS-MQQB] 2.2.1")
@pytest.mark.parametrize("who", ["we", "it"])
def test_after_parameters_that_refuse_nothing_is_owed(who: str) -> None:
    refusing = replace(PARAMETERS, internal=InternalHeader(flags=0x13))
    before = OPENED[:2] if who == "we" else OPENED[:3]
    judge = conduct(*before, (who, refusing))
    assert (rule(judge), owed(judge), judge.is_refused) == ("", "", True)


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        ([*OPENED, ("we", REQUEST)], "EstablishConnection in an open session"),
        ([*OPENED, ("we", PARAMETERS)], "ConnectionParameters in an open session"),
        ([("we", PARAMETERS)], "ConnectionParameters before EstablishConnection"),
        ([("we", RECOVERABLE)], "UserMessage before EstablishConnection"),
        ([*OPENED[:2], ("we", RECOVERABLE)], "UserMessage before ConnectionParameters"),
        ([*OPENED[:2], ("we", ack())], "SessionAck before ConnectionParameters"),
        ([*OPENED, ("we", ack(user_msg_sequence_number=1))], "wrong message counts (3.1.5.5.5)"),
        ([*OPENED, ("we", RECOVERABLE), ("we", ack(user_msg_sequence_number=1))], "wrong message counts"),
    ],
)
def test_what_comes_out_of_turn_has_the_peer_close(packets: list[tuple[str, Packet]], expected: str) -> None:
    judge = conduct(*packets)
    assert "it should have closed" in owed(judge)
    assert expected in owed(judge)


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.3")
def test_bytes_that_form_no_packet_have_the_peer_close_for_their_field() -> None:
    judge = conduct(*OPENED)
    judge.said(b"\x10\x00\x08\x00LIOX" + bytes(24))
    assert "base.signature" in owed(judge)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.7")
def test_a_message_is_owed_an_acknowledgment_and_half_of_one_nothing() -> None:
    judge = conduct(*OPENED, ("we", RECOVERABLE))
    assert "a session acknowledgment" in owed(judge)
    judge.heard(encode_packet(ack(ack_sequence_number=1)))
    assert owed(judge) == ""
    judge.said(encode_packet(RECOVERABLE)[:50])
    assert owed(judge) == ""
    judge.finish()
    judge.said(encode_packet(RECOVERABLE)[50:])
    assert owed(judge) == ""


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_that_a_duplicate_is_not_counted_is_no_fault_and_that_it_is_neither() -> None:
    twice = conduct(*OPENED, ("we", RECOVERABLE), ("we", RECOVERABLE), ("it", ack(ack_sequence_number=1)))
    assert (owed(twice), rule(twice)) == ("", "")
    twice.heard(encode_packet(ack(ack_sequence_number=2)))
    assert (owed(twice), rule(twice)) == ("", "")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([ack(ack_sequence_number=2)], "it acknowledges what it cannot have got (3.1.5.5.1)"),
        ([ack(ack_sequence_number=0xFFFF)], "its acknowledgments go backwards (3.1.5.5.1)"),
        ([ack(ack_sequence_number=1), ack()], "its acknowledgments go backwards (3.1.5.5.1)"),
        (
            [ack(ack_sequence_number=1, recoverable_msg_ack_seq_number=1, recoverable_msg_ack_flags=2)],
            "it has saved what it cannot have got (3.1.5.5.3)",
        ),
        (
            [ack(ack_sequence_number=1, user_msg_sequence_number=1)],
            "it counts its messages wrongly (3.1.5.5.5)",
        ),
        ([ANSWER], "a second EstablishConnection"),
        ([PARAMETERS], "a second ConnectionParameters"),
    ],
)
def test_a_wrong_acknowledgment_is_found(said: list[Packet], expected: str) -> None:
    judge = conduct(*OPENED, ("we", RECOVERABLE), *(("it", packet) for packet in said))
    assert expected in rule(judge)
    assert judge.fault is not None
    assert judge.fault.oracle is PeerFailure.WRONG


def test_the_messages_of_the_peer_are_counted_as_it_counts_them() -> None:
    header = SessionHeader(user_msg_sequence_number=1, recoverable_msg_seq_number=1)
    message = a_user_message(recoverable=True)
    message.session, message.base.session_header = header, True
    judge = conduct(*OPENED, ("it", message), ("it", SessionAck(session=header)))
    assert rule(judge) == ""
    judge.heard(encode_packet(ack()))
    assert "counts its messages wrongly" in rule(judge)


def test_garbage_is_no_packet_and_a_packet_that_breaks_off_is_none_either() -> None:
    judge = conduct(*OPENED)
    judge.heard(b"garbage" * 10)
    assert "what it says is not a packet" in rule(judge)
    assert "67 61 72 62" in str(judge.fault)
    judge = conduct(*OPENED)
    judge.heard(encode_packet(ack())[:20])
    judge.ended()
    assert "breaks off" in rule(judge)


@pytest.mark.long
def test_our_own_sessions_conduct_themselves_well_in_every_case() -> None:
    """The judge and mqproto.session were written independently; here the first judges the second, without a socket."""
    target = PeerTarget((r"TCP:127.0.0.1\private$\notes",), DESTINATION, None, 1_700_000_000)
    closed = 0
    for number in range(1_500):
        case = draw_case(target, 4, number)
        judges: dict[int, tuple[Conduct, Session]] = {}
        for step in case.steps:
            if not step.data:
                continue
            if step.connection not in judges:
                judges[step.connection] = Conduct(DESTINATION), a_session()
            judge, session = judges[step.connection]
            if session.closed is not None:
                continue
            judge.said(step.data)
            session.receive(step.data, Moment(0, 0))
            session.acknowledge()
            judge.heard(b"".join(session.take_outbox()))
            assert judge.fault is None, (number, case.kind, case.name, str(judge.fault))
            if session.closed is None:
                assert judge.owed is None, (number, case.kind, case.name, str(judge.owed))
            closed += session.closed is not None
    assert closed > 500


def a_session() -> Session:
    return Session(
        1,
        initiator=False,
        local_qm=Guid(DESTINATION),
        remote_qm=None,
        remote_address="127.0.0.1",
        direct=False,
        settings=Settings(),
        timers=Timers(),
    )
