"""Where connections begin and end, as SYN, FIN and RST show."""

from __future__ import annotations

import pytest

from mqproto.captures.files.frame import Frame
from mqproto.captures.net import turns
from mqproto.captures.net.tcp import ACK, FIN, RST, SYN, Endpoint, Segment
from mqproto.captures.net.turns import Turned, Turns

CLIENT, SERVER = Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.2", 1801)


def told(*segments: tuple[Endpoint, int], connection: int = 0, found: Turns | None = None) -> list[Turned]:
    found = found or Turns()
    for number, (source, flags) in enumerate(segments, 1):
        other = SERVER if source == CLIENT else CLIENT
        segment = Segment(source, other, 0, 0, flags, 0, b"", b"")
        found.take(Frame(number, b"", comment="why"), segment, connection)
    return [turn.what for turn in found.found]


def test_a_connection_is_opened_answered_and_closed_by_both() -> None:
    assert told(
        (CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, ACK), (SERVER, FIN | ACK), (CLIENT, FIN | ACK)
    ) == [
        Turned.OPENS,
        Turned.ANSWERS,
        Turned.FINISHES,
        Turned.FINISHES,
    ]


def test_who_answers_a_request_with_a_reset_refuses_and_who_resets_what_was_there_resets() -> None:
    assert told((CLIENT, SYN), (SERVER, RST | ACK)) == [Turned.OPENS, Turned.REFUSES]
    assert told((CLIENT, SYN), (SERVER, SYN | ACK), (SERVER, RST)) == [
        Turned.OPENS,
        Turned.ANSWERS,
        Turned.RESETS,
    ]
    assert told((CLIENT, SYN), (CLIENT, RST)) == [Turned.OPENS, Turned.RESETS]
    assert told((SERVER, RST)) == [Turned.RESETS]


def test_what_is_repeated_or_seen_by_two_points_is_told_once_for_each_connection() -> None:
    found = Turns()
    told((CLIENT, SYN), (CLIENT, SYN), (SERVER, RST), (SERVER, RST), found=found)
    assert told((CLIENT, SYN), (SERVER, RST), connection=1, found=found) == [Turned.OPENS, Turned.REFUSES] * 2
    assert [(turn.time_ns, turn.comment) for turn in found.found] == [
        (1, "why"),
        (3, "why"),
        (1, "why"),
        (2, "why"),
    ]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURNS_LIMIT", 3)
    monkeypatch.setattr(turns, "FOLLOWED_LIMIT", 1)
    found = Turns()
    for connection in (0, 1, 0, 1):
        told((CLIENT, SYN), connection=connection, found=found)
    assert [turn.connection for turn in found.found] == [
        0,
        1,
        0,
    ]  # The first was forgotten when the second came.
