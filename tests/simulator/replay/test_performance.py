"""The packets to send and when to send them, and the answers: those that came and those still missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.captures.net.conversation import Side
from mqproto.captures.script import choose, read_script, survey
from mqproto.session import InFlight
from mqproto.simulator.replay.performance import GATE_S, OWN, Pace, Performance
from mqproto.simulator.replay.rewrite import Rewriter
from mqproto.turn.effects import MessageRow
from mqproto.wire import UserMessage, decode_packet, encode_packet
from tests.conversations import (
    DESTINATION,
    SENDER,
    SEQUENCE,
    Said,
    a_message,
    an_order_ack,
    answered,
    handshake,
    seen,
    write,
)

NOW = Moment(uptime_ms=0, utc_s=1_800_000_000)


def a_performance(
    path: Path, talk: Sequence[Said], side: str = "client", *, speed: float = math.inf, waits: bool = False
) -> Performance:
    packets = seen(write(path / "c", talk))
    script = read_script(packets, choose(survey(packets), side))
    rewriter = Rewriter(script, sources={}, first_message_id=9_000, newest=SEQUENCE)
    performance = Performance(script, rewriter, Settings(), Pace(speed), waits=waits)
    performance.pending.extend(range(len(script.messages)))
    return performance


def taken(performance: Performance, now_s: float) -> list[InFlight]:
    """Return everything that should be sent by now."""
    found = []
    while entry := performance.take(DESTINATION, NOW, now_s):
        found.append(entry)
    return found


def hear(performance: Performance, message: UserMessage, now_s: float = 0.0) -> None:
    performance.heard(message, encode_packet(message), DESTINATION, "10.0.0.1", NOW, now_s)


def test_as_fast_as_the_peer_takes_it_all_is_due_at_once(tmp_path: Path) -> None:
    performance = a_performance(tmp_path, answered([1, 2, 3]))
    assert [entry.origin for entry in taken(performance, 0)] == [0, 1, 2]
    assert performance.due_s(0) == math.inf
    assert performance.unmet == {0, 1, 2}


@given(st.floats(0.1, 100))
def test_in_its_own_time_each_message_is_due_when_the_capture_has_it(speed: float) -> None:
    pace = Pace(speed)
    assert pace.due_s(5_000_000_000, 70.0) == 70.0
    assert pace.due_s(7_000_000_000, 99.0) == pytest.approx(70 + 2 / speed)


def test_what_is_not_due_is_not_sent(tmp_path: Path) -> None:
    talk = [*handshake(), Said(Side.CLIENT, a_message(1)), Said(Side.CLIENT, a_message(2), 3)]
    performance = a_performance(tmp_path, talk, speed=1)
    assert [entry.origin for entry in taken(performance, 10)] == [0]
    assert performance.due_s(10) == performance.waits_until_s(10) == pytest.approx(13, abs=0.01)
    assert [entry.origin for entry in taken(performance, 13.1)] == [1]


def test_what_is_answered_is_no_longer_missing(tmp_path: Path) -> None:
    performance = a_performance(tmp_path, answered([1, 2]))
    entries = taken(performance, 0)
    performance.acknowledged(entries, 5)
    assert (performance.unmet, performance.progress_s) == ({0, 1}, 5)
    message = decode_packet(entries[1].packet)
    assert isinstance(message, UserMessage)
    assert message.transaction is not None
    hear(performance, an_order_ack(1, sequence=message.transaction.tx_sequence_id), 6)
    assert (performance.unmet, performance.progress_s) == ({1}, 6)


def test_what_a_broken_connection_took_along_is_next_again_in_its_order(tmp_path: Path) -> None:
    performance = a_performance(tmp_path, answered([1, 2, 3]))
    entries = taken(performance, 0)
    own = InFlight(OWN, MessageRow(0, b"an acknowledgment", 0, False), recoverable=False)
    performance.receiver.outgoing.append(encode_packet(an_order_ack(1)))
    performance.give_back([entries[1], entries[2]])
    assert list(performance.pending) == [1, 2]
    performance.give_back([own])
    assert performance.receiver.outgoing[0] == b"an acknowledgment"


def a_servers_part(path: Path) -> Performance:
    talk = [
        *handshake(),
        Said(Side.CLIENT, a_message(1)),
        Said(Side.SERVER, a_message(2, source=DESTINATION)),
    ]
    return a_performance(path, talk, "server", waits=True)


def test_a_server_waits_until_the_client_has_sent_as_much_as_in_the_capture(tmp_path: Path) -> None:
    performance = a_servers_part(tmp_path)
    assert taken(performance, 0) == []
    assert not performance.has_heard_all
    hear(performance, a_message(1, source=SENDER), 0.5)
    assert performance.has_heard_all
    assert [entry.origin for entry in taken(performance, 0.5)] == [0]
    assert performance.remarks == []


def test_a_server_does_not_wait_for_ever_and_says_so(tmp_path: Path) -> None:
    performance = a_servers_part(tmp_path)
    assert performance.due_s(0) == GATE_S
    assert [entry.origin for entry in taken(performance, GATE_S)] == [0]
    assert "the peer had sent 1 messages before it, here 0" in performance.remarks[0]


def test_order_acks_go_out_before_messages(tmp_path: Path) -> None:
    performance = a_performance(tmp_path, answered([1]))
    hear(performance, a_message(1, source=DESTINATION))
    performance.tick(Moment(uptime_ms=60_000, utc_s=NOW.utc_s))
    assert [entry.origin for entry in taken(performance, 0)] == [OWN, 0]
