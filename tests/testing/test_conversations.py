"""Conversations: sessions at both ends follow valid conversations to the last packet.

In a nearly valid conversation, a session goes on, or closes with a reason.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, given, settings

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.session import InFlight, Session
from mqproto.testing import Turn, conversations, nearly_valid_conversations
from mqproto.turn.effects import MessageRow
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    SessionAck,
    UserMessage,
    acknowledgment_in,
    decode_packet,
)

NOW = Moment(uptime_ms=5_000, utc_s=1_700_000_000)


def sessions(turns: list[Turn]) -> tuple[Session, Session]:
    """Return both ends before the first packet, with the identities and windows that the conversation gives them."""
    packets = [decode_packet(turn.data) for turn in turns[:4]]
    answer, ours, theirs = packets[1:4]
    assert isinstance(answer, EstablishConnection)
    assert isinstance(ours, ConnectionParameters)
    assert isinstance(theirs, ConnectionParameters)
    # Settings have windows of up to 32,767; beyond that our own limits what we send, as it may.
    initiator, acceptor = (
        Session(
            key,
            initiator=key == 1,
            local_qm=local,
            remote_qm=remote,
            remote_address="nowhere",
            direct=False,
            settings=Settings(window_size=min(window, 32_767)),
            timers=Timers(),
        )
        for key, local, remote, window in (
            (1, answer.client_guid, answer.server_guid, ours.window_size),
            (2, answer.server_guid, None, theirs.window_size),
        )
    )
    initiator.opened(NOW)
    return initiator, acceptor


def play(turns: list[Turn], initiator: Session, acceptor: Session) -> int:
    """Carry each packet over, as if each end had sent its own; return how many messages arrived."""
    arrived = 0
    for turn in turns:
        sender, receiver = (initiator, acceptor) if turn.initiator else (acceptor, initiator)
        try:
            packet = decode_packet(turn.data)
        except ValueError:
            packet = None
        if isinstance(packet, UserMessage) and sender.is_open:
            sender.send([InFlight("queue", MessageRow(1, turn.data, 0, False), packet.user.recoverable)], NOW)
        arrived += len(receiver.receive(turn.data, NOW)) if receiver.closed is None else 0
    return arrived


@given(conversations())
def test_sessions_at_both_ends_go_along_to_the_last_packet(turns: list[Turn]) -> None:
    ends = sessions(turns)
    for count in range(len(turns)):
        turn = turns[count]
        if isinstance(decode_packet(turn.data), UserMessage):
            assert ends[not turn.initiator].room, "the window is kept"
        play([turn], *ends)
        assert ends[0].closed is None
        assert ends[1].closed is None
    assert ends[0].is_open
    assert ends[1].is_open


@given(nearly_valid_conversations())
def test_when_something_goes_wrong_a_session_closes_with_a_reason_or_goes_on(turns: list[Turn]) -> None:
    try:
        ends = sessions(turns)
    except (ValueError, AssertionError):
        return  # It went wrong in the handshake, where our ends learn who they are.
    play(turns, *ends)
    for end in ends:
        assert end.closed is None or end.closed.reason


def kinds(turns: list[Turn]) -> set[str]:
    found = set()
    for turn in turns:
        packet = decode_packet(turn.data)
        found.add(type(packet).__name__)
        if isinstance(packet, UserMessage):
            found.add(type(acknowledgment_in(packet)).__name__)
            found |= {name for name in ("session", "transaction") if getattr(packet, name) is not None}
            found.add("recoverable" if packet.user.recoverable else "express")
    return found


@pytest.mark.parametrize(
    "kind",
    [
        SessionAck.__name__,
        "OrderAckBody",
        "FinalAckBody",
        "session",
        "transaction",
        "recoverable",
        "express",
    ],
)
def test_every_kind_of_packet_occurs(kind: str) -> None:
    often = settings(max_examples=2_000, database=None, phases=[Phase.generate])
    assert find(conversations(), lambda turns: kind in kinds(turns), settings=often)
